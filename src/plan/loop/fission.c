/* Loop fission: splits a scan with a small body into two loops. The second one computes the results on which no carry
 * depends: weight gradients of layers in a scan are of this kind.
 *
 *   scan: carry, xs                       scan over strips of iterations:
 *     h = f(carry, x)                       scan: carry, xs               every instruction keeps rows apart
 *     carry' = dot(h, w)         ──>          h = f(carry, x); carry' = dot(h, w)
 *     y = dot(z, h)   mixes rows              ys: h
 *                                           scan: xs, h                   no carry: iterations are independent
 *                                             y = dot(z, h)
 *
 * Each thread then takes its rows through all iterations of the first loop and its share of the iterations of the
 * second one (loop/parallelize.c): threads synchronize twice in a strip instead of several times in an iteration.
 * Strips are short, so the values that the second loop reads stay in L2. A scan is split if that takes less time by the
 * cost model (analysis/cost.h). No bits change. */
#include "src/graph/region.h"
#include "src/kernels/strided.h"
#include "src/plan/analysis/cost.h"
#include "src/plan/analysis/tiling.h"
#include "src/plan/loop/distribute.h"
#include "tow/ops.h"

enum {
    MOST_ITERATIONS = 32, /* of a strip: with more, threads would meet a little less, and more would be stacked */
    LEAST_ITERATIONS = 2
};

/* A scan that is split into a first and a second loop. */
typedef struct parts {
    const tow__machine *machine;
    const tow__equation *scan;
    tow__scan_params params;
    const tow_graph *body;
    uint32_t consts, carry;
    bool *first;        /* [n_equations] a carry depends on it: it stays in the first loop */
    bool *early;        /* [n_vars] defined before the second loop: inputs, results of the first loop */
    bool *stacked;      /* [n_vars] stacked by the first loop, since the second one reads it */
    int64_t iterations; /* of a strip; 0: the scan stays as it is */
} parts;

static tow_type type_of(const parts *s, uint32_t var) { return s->body->vars[var].type; }

static bool is_carry(const parts *s, uint32_t var)
{
    const tow__var *v = &s->body->vars[var];
    return v->equation == TOW__INPUT && v->index >= s->consts && v->index < s->consts + s->carry;
}

/* ---- the second loop --------------------------------------------------------------------------------------------- */

/* Finds the equations that carries depend on. Equations stand in an order in which they can run. */
static void find_first(parts *s, bool *needed)
{
    const tow_graph *g = s->body;
    for (uint32_t i = 0; i < s->carry; i++) needed[g->outputs[i]] = true;
    for (uint32_t i = g->n_equations; i-- > 0;) {
        const tow__equation *e = &g->equations[i];
        for (uint32_t j = 0; j < e->n_out; j++) s->first[i] |= needed[e->out[j]];
        for (uint32_t j = 0; j < e->n_in && s->first[i]; j++) needed[e->in[j]] = true;
    }
    for (uint32_t i = 0; i < g->n_inputs; i++) s->early[g->inputs[i]] = true;
    for (uint32_t i = 0; i < g->n_equations; i++)
        for (uint32_t j = 0; j < g->equations[i].n_out; j++) s->early[g->equations[i].out[j]] = s->first[i];
    for (uint32_t i = 0; i < g->n_equations; i++)
        for (uint32_t j = 0; j < g->equations[i].n_in && !s->first[i]; j++) {
            uint32_t x = g->equations[i].in[j];
            if (s->early[x]) s->stacked[x] = g->vars[x].equation != TOW__INPUT || is_carry(s, x);
        }
}

/* True if each row of the results depends on the same row of the operands, as tiling decides it for instructions
 * (analysis/tiling.c). */
static bool keeps_rows(const parts *s, const tow__equation *e)
{
    tow__view in[8] = {0}, out[4] = {0};
    int from[8];
    if (TOW__IS(e, broadcast_in_dim) || TOW__IS(e, const)) return true;
    if (e->n_in > 8 || e->n_out > 4 || e->n_in == 0) return false;
    for (uint32_t i = 0; i < e->n_in; i++) in[i].type = type_of(s, e->in[i]);
    for (uint32_t i = 0; i < e->n_out; i++) out[i].type = type_of(s, e->out[i]);
    tow__instruction inst = {.op = e->primitive, .params = e->params, .n_in = e->n_in, .n_out = e->n_out};
    inst.kernel = tow__kernel_of(e->primitive, in[0].type.dtype);
    inst.in = in;
    inst.out = out;
    return tow__is_tileable(&inst, from);
}

/* Seconds of an iteration, of the equations of each loop, by one thread, and by all if they share each of them. */
typedef struct times {
    double first, second, shared;
} times;

static times time_body(const parts *s, tow__view *views)
{
    times sum = {0};
    for (uint32_t i = 0; i < s->body->n_equations; i++) {
        const tow__equation_time t = tow__time_equation(s->machine, s->body, &s->body->equations[i], views);
        *(s->first[i] ? &sum.first : &sum.second) += t.alone;
        sum.shared += t.shared;
    }
    return sum;
}

/* True if both loops contain products, and only the second loop mixes rows. */
static bool can_be_split(const parts *s)
{
    bool first = false, second = false;
    for (uint32_t i = 0; i < s->body->n_equations; i++) {
        const tow__equation *e = &s->body->equations[i];
        if (tow__is_region(e) || e->primitive->host || (s->first[i] && !keeps_rows(s, e))) return false;
        if (TOW__IS(e, dot_general)) *(s->first[i] ? &first : &second) = true;
    }
    return first && second;
}

/* Bytes of an iteration that the first loop stacks for the second one; -1: they have no room for one more axis. */
static int64_t stacked_bytes(const parts *s)
{
    int64_t bytes = 0;
    for (uint32_t v = 0; v < s->body->n_vars; v++) {
        if (s->stacked[v] && type_of(s, v).rank + 2 > TOW_MAX_RANK) return -1;
        if (s->stacked[v]) bytes += (int64_t)tow_type_bytes(type_of(s, v));
    }
    return bytes;
}

/* Seconds of a strip of n iterations: threads take their rows through all of the first loop, and whole iterations of
 * the second one, and meet after each. */
static double strip_seconds(const parts *s, const times *t, int64_t n)
{
    const int64_t threads = s->machine->threads;
    return (double)n * t->first / (double)threads + (double)tow__ceil_div(n, threads) * t->second +
           2 * s->machine->rates.meeting;
}

/* Chooses the iterations of a strip, whose stacked rows L2 holds; the scan stays as it is if it takes less time then,
 * or if the time that is saved is not worth the bytes. */
static void choose_strip(parts *s, tow__view *views)
{
    const int64_t bytes = stacked_bytes(s), l2 = s->machine->l2.bytes, length = s->params.length;
    if (bytes < 0 || !tow__can_strip_mine(&s->params)) return;
    int64_t n = tow__min(MOST_ITERATIONS, length);
    if (bytes > 0) n = tow__min(n, l2 / bytes);
    while (n >= LEAST_ITERATIONS && length % n != 0) n--;
    if (n < LEAST_ITERATIONS) return;
    const times t = time_body(s, views);
    const double strips = (double)(length / n), before = (double)length * t.shared;
    if (tow__is_worth(s->machine, before, strips * strip_seconds(s, &t, n), (double)(n * bytes))) s->iterations = n;
}

static tow_status analyze(tow__arena *arena, const tow__machine *machine, const tow__equation *scan,
                          const tow__scan_params *params, parts *s)
{
    const tow_graph *g = params->body;
    *s = (parts){.machine = machine, .scan = scan, .params = *params, .body = g};
    s->consts = (uint32_t)params->consts;
    s->carry = (uint32_t)params->carry;
    s->first = tow__arena_alloc(arena, g->n_equations, sizeof *s->first);
    s->early = tow__arena_alloc(arena, g->n_vars, sizeof *s->early);
    s->stacked = tow__arena_alloc(arena, g->n_vars, sizeof *s->stacked);
    bool *needed = tow__arena_alloc(arena, g->n_vars, sizeof *needed);
    tow__view *views = tow__arena_alloc(arena, tow__most_views(g), sizeof *views);
    if (!s->first || !s->early || !s->stacked || !needed || !views) return TOW_OUT_OF_MEMORY;
    find_first(s, needed);
    if (s->carry > 0 && can_be_split(s)) choose_strip(s, views);
    return TOW_OK;
}

/* ---- recording anew ---------------------------------------------------------------------------------------------- */

static void record_equations(tow_trace *t, const parts *s, bool first, tow_value *values)
{
    for (uint32_t i = 0; i < s->body->n_equations; i++) {
        if (s->first[i] == first && !tow__rebind_among(t, &s->body->equations[i], values)) return;
    }
}

/* Values that stand for vars of the body while a scan is recorded. */
typedef struct recording {
    tow_value *values; /* [n_vars] inside a loop */
    tow_value *rows;   /* [n_vars] outside: rows of all iterations of a strip */
    tow_value *in, *out;
} recording;

static bool begin_recording(tow_trace *t, const tow_graph *g, recording *r)
{
    size_t most = (size_t)g->n_vars + g->n_inputs + g->n_outputs;
    r->values = tow__trace_alloc(t, g->n_vars, sizeof *r->values);
    r->rows = tow__trace_alloc(t, g->n_vars, sizeof *r->rows);
    r->in = tow__trace_alloc(t, most, sizeof *r->in);
    r->out = tow__trace_alloc(t, most, sizeof *r->out);
    return r->values && r->rows && r->in && r->out;
}

/* Records the first loop, which has all carries. ys: early outputs, then the vars stacked for the second loop. */
static bool record_first(tow_trace *t, const parts *s, const tow_value *operands, tow_value *results, recording *r)
{
    const tow_graph *g = s->body;
    tow_value *captures;
    size_t n_captures;
    uint32_t n = s->carry;
    tow__scan_params p = s->params;
    p.length = s->iterations;
    tow__push(t);
    for (uint32_t i = 0; i < g->n_inputs; i++)
        r->values[g->inputs[i]] = tow__input(t, type_of(s, g->inputs[i]), g->input_names[i]);
    record_equations(t, s, true, r->values);
    for (uint32_t i = 0; i < s->carry; i++) r->out[i] = r->values[g->outputs[i]];
    for (uint32_t i = s->carry; i < g->n_outputs; i++)
        if (s->early[g->outputs[i]]) r->out[n++] = r->values[g->outputs[i]];
    for (uint32_t v = 0; v < g->n_vars; v++)
        if (s->stacked[v]) r->out[n++] = r->values[v];
    p.body = tow__pop(t, n, r->out, &n_captures, &captures);
    if (!p.body) return false;
    tow__set_source(t, &s->scan->source);
    tow__bind(t, s->scan->primitive, &p, g->n_inputs, operands, n, r->out);
    tow_graph_release(p.body);
    n = s->carry;
    for (uint32_t i = 0; i < s->carry; i++) results[i] = r->out[i];
    for (uint32_t i = s->carry; i < g->n_outputs; i++)
        if (s->early[g->outputs[i]]) results[i] = r->out[n++];
    for (uint32_t v = 0; v < g->n_vars; v++)
        if (s->stacked[v]) r->rows[v] = r->out[n++];
    return true;
}

/* Records the second loop, which has no carries. Its operands are constants, xs and the stacked vars. */
static void record_second(tow_trace *t, const parts *s, const tow_value *operands, tow_value *results, recording *r)
{
    const tow_graph *g = s->body;
    tow_value *captures;
    size_t n_captures;
    uint32_t n_in = 0, n_out = 0;
    tow__scan_params p = s->params;
    p.length = s->iterations;
    p.carry = 0;
    tow__push(t);
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        if (is_carry(s, g->inputs[i])) continue;
        r->values[g->inputs[i]] = tow__input(t, type_of(s, g->inputs[i]), g->input_names[i]);
        r->in[n_in++] = operands[i];
    }
    for (uint32_t v = 0; v < g->n_vars; v++) {
        if (!s->stacked[v]) continue;
        r->values[v] = tow__input(t, type_of(s, v), NULL);
        r->in[n_in++] = r->rows[v];
    }
    record_equations(t, s, false, r->values);
    for (uint32_t i = s->carry; i < g->n_outputs; i++)
        if (!s->early[g->outputs[i]]) r->out[n_out++] = r->values[g->outputs[i]];
    p.body = tow__pop(t, n_out, r->out, &n_captures, &captures);
    if (!p.body) return;
    tow__set_source(t, &s->scan->source);
    tow__bind(t, s->scan->primitive, &p, n_in, r->in, n_out, r->out);
    tow_graph_release(p.body);
    n_out = 0;
    for (uint32_t i = s->carry; i < g->n_outputs; i++)
        if (!s->early[g->outputs[i]]) results[i] = r->out[n_out++];
}

/* user: the parts. */
static void record_strip(tow_trace *t, const tow__equation *scan, const tow__scan_params *strip, const void *user,
                         const tow_value *operands, tow_value *results)
{
    const parts *s = user;
    recording r;
    (void)scan;
    (void)strip;
    if (begin_recording(t, s->body, &r) && record_first(t, s, operands, results, &r))
        record_second(t, s, operands, results, &r);
}

tow_status tow__fission_loop(tow__arena *arena, tow_trace *t, const tow__machine *machine, const tow__equation *scan,
                             const tow__scan_params *params, const tow_value *operands, tow_value *results, bool *done)
{
    parts s;
    tow_status status = analyze(arena, machine, scan, params, &s);
    *done = status == TOW_OK && s.iterations > 0;
    if (*done && t) tow__record_strips(t, scan, params, s.iterations, record_strip, &s, operands, results);
    return status;
}
