/* Linear scans in which operands or carries are the same value for a while, as equal programs in which they are one.
 *
 *   two carries from one value of the body             the first iterations stand before the loop, as far as the two
 *   a carry that is a constant after some iterations   differ; the loop over the rest has one carry, or the constant
 *   two carries, or a carry and a constant, that       the same: only the first iterations see the initial value
 *     start from one value
 *   a carry that never changes                         a constant
 *   xs that are also a constant or a carry's start     the constant, of which the body gathers the element
 *
 * The transpose of that program adds the cotangents of each value in the order of the iterations written out.
 *
 * Iterations that stand before the loop are copies of its body. If loops are nested and each level had some, the
 * program would grow exponentially with the depth. So a loop whose copies could become too large keeps its iterations
 * and gets a body in which all results are different values: the sums are right, but for the order of their terms. */
#include <stdlib.h>

#include "src/autodiff/regions/scan_flow.h"
#include "src/graph/region.h"
#include "src/ops/rules.h"

enum {
    WRITTEN_OUT = 1 << 16 /* equations of the first iterations and of what becomes of the loops in them, at most */
};

/* The key by which values are equal, and its owner. */
typedef struct key {
    uint64_t a, b;
    uint32_t index;
} key;

typedef struct rewriting {
    tow__transpose *r;
    const tow__scan_params *p;
    const tow_graph *body;
    const tow__flow *flow;
    uint32_t consts, carries, n_in, n_ys;
    int64_t peeled; /* iterations that stand before the loop */
    /* Operands and, from then on, inputs of the body. */
    uint32_t *first; /* [n_in] the first operand that is the same value */
    uint32_t *same;  /* [consts + carries] the first of those that are one value once `peeled` iterations are over */
    bool *gathered;  /* [n_in] xs that become a constant */
    bool any_gathered;
    key *keys;        /* [n_in] */
    tow_trace *t;     /* of the new program */
    tow_value *x;     /* [n_in] operands there */
    tow_value *carry; /* [carries] present values */
    tow_value *row;   /* [n_in + n_out] of one iteration */
    tow_value *ys;    /* [n_ys * peeled] */
} rewriting;

/* ---- what is the same value when ------------------------------------------------------------------------------- */

/* Values after iteration `t`: of constants, then carries. Equal numbers mean equal values. */
static void next_values(const rewriting *w, int64_t t, const uint64_t *now, uint64_t *next)
{
    uint64_t new = (uint64_t)(t + 1) << 32;
    for (uint32_t i = 0; i < w->consts; i++) next[i] = now[i];
    for (uint32_t k = 0; k < w->carries; k++) {
        tow__flow f = w->flow[k];
        uint64_t *v = &next[w->consts + k];
        if (f.kind == TOW__FLOW_CARRY)
            *v = now[w->consts + f.index];
        else if (f.kind == TOW__FLOW_CONSTANT)
            *v = now[f.index];
        else if (f.kind == TOW__FLOW_NONE)
            *v = new + w->body->n_vars + k;
        else
            *v = new + (f.kind == TOW__FLOW_ELEMENT ? w->body->inputs[f.index] : f.index);
    }
}

static int by_key(const void *a, const void *b)
{
    const key *x = a, *y = b;
    if (x->a != y->a) return x->a < y->a ? -1 : 1;
    if (x->b != y->b) return x->b < y->b ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* same[i]: the first whose key is that of i. True if two are equal. */
static bool compare_keys(key *keys, uint32_t n, uint32_t *same)
{
    bool any = false;
    for (uint32_t i = 0; i < n; i++) keys[i].index = i;
    if (n > 0) qsort(keys, n, sizeof *keys, by_key);
    for (uint32_t i = 0; i < n; i++) {
        bool equal = i > 0 && keys[i].a == keys[i - 1].a && keys[i].b == keys[i - 1].b;
        same[keys[i].index] = equal ? same[keys[i - 1].index] : keys[i].index;
        any |= equal;
    }
    return any;
}

/* The same for numbers of values. */
static bool compare_values(const rewriting *w, const uint64_t *values, uint32_t *same)
{
    for (uint32_t i = 0; i < w->consts + w->carries; i++) w->keys[i] = (key){.a = values[i]};
    return compare_keys(w->keys, w->consts + w->carries, same);
}

/* The key of value i after one more iteration, given the values that are now the same. */
static key next_key(const rewriting *w, uint32_t i)
{
    tow__flow f = i < w->consts ? (tow__flow){TOW__FLOW_CONSTANT, i, 0} : w->flow[i - w->consts];
    uint64_t kind = (uint64_t)f.kind << 32;
    if (f.kind == TOW__FLOW_CARRY) f.index += w->consts;
    if (f.kind == TOW__FLOW_CARRY || f.kind == TOW__FLOW_CONSTANT) kind = 0, f.index = w->same[f.index];
    if (f.kind == TOW__FLOW_NONE) kind = UINT64_C(0xff) << 32, f.index = i; /* equals nothing else */
    return (key){.a = w->same[i], .b = kind | f.index};
}

/* Keeps values equal only if they stay so, as values may change places for ever. True if there are any. */
static bool keep_lasting_equalities(rewriting *w, uint32_t *same)
{
    uint32_t n = w->consts + w->carries;
    bool any = false;
    for (bool changed = true; changed;) {
        for (uint32_t i = 0; i < n; i++) w->keys[i] = next_key(w, i);
        any = compare_keys(w->keys, n, same);
        changed = memcmp(same, w->same, n * sizeof *same) != 0;
        memcpy(w->same, same, n * sizeof *same);
    }
    return any;
}

/* Finds the number of iterations after which no more values become equal or different. False if nothing needs it. */
TOW__OWN_FRAME static bool find_equals(rewriting *w)
{
    uint32_t n = w->consts + w->carries;
    uint64_t *values = tow__trace_alloc(w->r->t, n, sizeof *values), *next = tow__trace_alloc(w->r->t, n, sizeof *next);
    uint32_t *same = tow__trace_alloc(w->r->t, n, sizeof *same);
    if (!values || !next || !same) return false;
    for (uint32_t i = 0; i < n; i++) values[i] = w->r->linear[i] ? w->first[i] : i;
    bool any = compare_values(w, values, w->same);
    for (w->peeled = 0; w->peeled < w->p->length; w->peeled++) {
        next_values(w, w->peeled, values, next);
        bool more = compare_values(w, next, same);
        if (memcmp(same, w->same, n * sizeof *same) == 0) return any;
        if (w->peeled > w->carries) return keep_lasting_equalities(w, same);
        any |= more;
        uint64_t *swap = values;
        values = next, next = swap;
        memcpy(w->same, same, n * sizeof *same);
    }
    return any;
}

/* A carry that keeps its value once the first iterations are over. */
static bool is_invariant(const rewriting *w, uint32_t k)
{
    return w->flow[k].kind == TOW__FLOW_CARRY && w->same[w->consts + w->flow[k].index] == w->same[w->consts + k];
}

/* A carry that the loop has, too. */
static bool stays_carry(const rewriting *w, uint32_t k)
{
    return w->same[w->consts + k] == w->consts + k && !is_invariant(w, k);
}

/* The constant or carry whose value is result y in every iteration of the loop; TOW__INPUT if there is none. */
static uint32_t constant_y(const rewriting *w, uint32_t y)
{
    for (uint32_t i = 0; i < w->consts + w->carries; i++)
        if (w->body->inputs[i] == w->body->outputs[w->carries + y])
            return i < w->consts || w->same[i] < w->consts || is_invariant(w, w->same[i] - w->consts) ? i : TOW__INPUT;
    return TOW__INPUT;
}

/* xs that are also constants or initial values. */
static bool find_gathered(rewriting *w)
{
    for (uint32_t i = w->consts + w->carries; i < w->n_in; i++) {
        w->gathered[i] = w->r->linear[i] && w->first[i] < w->consts + w->carries;
        w->any_gathered |= w->gathered[i];
    }
    return w->any_gathered;
}

/* ---- the program ------------------------------------------------------------------------------------------------ */

/* The rows of x that the loop sees. */
static tow_value rest_of(const rewriting *w, tow_value x)
{
    int64_t n = w->p->length, k = w->peeled;
    return w->p->reverse ? tow_slice_axis(x, 0, 0, n - k) : tow_slice_axis(x, 0, k, n);
}

static void record_iteration(rewriting *w, int64_t t)
{
    uint32_t xs = w->consts + w->carries;
    tow_value *in = w->row, *out = in + w->n_in;
    memcpy(in, w->x, w->consts * sizeof *in);
    if (w->carries) memcpy(in + w->consts, w->carry, w->carries * sizeof *in);
    for (uint32_t i = xs; i < w->n_in; i++) in[i] = tow__scan_row(w->x[i], w->p->reverse ? w->p->length - 1 - t : t);
    tow__inline(w->t, w->body, in, out);
    if (w->carries) memcpy(w->carry, out, w->carries * sizeof *out);
    for (uint32_t y = 0; y < w->n_ys; y++) w->ys[y * w->peeled + t] = out[w->carries + y];
}

static tow_type input_type(const rewriting *w, uint32_t i) { return w->body->vars[w->body->inputs[i]].type; }

/* The body of the loop: (constants, carries that became constants, gathered xs, carries, xs, position) -> (carries,
 * ys). */
static tow_status loop_body(const rewriting *w, tow_graph **result)
{
    tow_value *in, *out, position = {0};
    tow_trace *t = tow__trace_begin_over(w->body, &in, &out);
    if (!t) return TOW_OUT_OF_MEMORY;
    uint32_t xs = w->consts + w->carries, n = 0;
    for (uint32_t i = 0; i < w->consts; i++)
        in[i] = w->same[i] == i ? tow__input(t, input_type(w, i), NULL) : in[w->same[i]];
    for (uint32_t k = 0; k < w->carries; k++)
        if (w->same[w->consts + k] == w->consts + k && is_invariant(w, k))
            in[w->consts + k] = tow__input(t, input_type(w, w->consts + k), NULL);
    for (uint32_t i = xs; i < w->n_in; i++)
        if (w->gathered[i]) in[i] = tow__input(t, w->r->in_types[i], NULL);
    for (uint32_t k = 0; k < w->carries; k++)
        if (stays_carry(w, k)) in[w->consts + k] = tow__input(t, input_type(w, w->consts + k), NULL);
    for (uint32_t i = w->consts; i < xs; i++) in[i] = in[w->same[i]];
    for (uint32_t i = xs; i < w->n_in; i++)
        if (!w->gathered[i]) in[i] = tow__input(t, input_type(w, i), NULL);
    if (w->any_gathered) position = tow__input(t, tow_make_type(TOW_I32, 0, NULL), NULL);
    for (uint32_t i = xs; i < w->n_in; i++)
        if (w->gathered[i]) in[i] = tow_gather(in[i], position);
    tow__inline(t, w->body, in, out);
    for (uint32_t k = 0; k < w->carries; k++)
        if (stays_carry(w, k)) out[n++] = out[k];
    for (uint32_t y = 0; y < w->n_ys; y++)
        if (constant_y(w, y) == TOW__INPUT) out[n++] = out[w->carries + y];
    return tow__trace_end(t, n, out, false, result);
}

/* Binds the loop over the rest: leaves the final carries in w->carry. ys: [n_ys], null where a result is constant. */
static void record_loop(rewriting *w, tow_value *ys)
{
    tow__scan_params params = {.length = w->p->length - w->peeled, .reverse = w->p->reverse, .slots = w->p->slots};
    tow_value *in = tow__trace_alloc(w->t, w->n_in + 1, sizeof *in), *out = w->row;
    uint32_t xs = w->consts + w->carries, n = 0;
    if (!in) return;
    if (loop_body(w, &params.body) != TOW_OK) {
        tow__adopt_error(w->t);
        return;
    }
    for (uint32_t i = 0; i < w->consts; i++)
        if (w->same[i] == i) in[n++] = w->x[i];
    for (uint32_t k = 0; k < w->carries; k++)
        if (w->same[w->consts + k] == w->consts + k && is_invariant(w, k)) in[n++] = w->carry[k];
    for (uint32_t i = xs; i < w->n_in; i++)
        if (w->gathered[i]) in[n++] = w->x[i];
    params.consts = n;
    for (uint32_t k = 0; k < w->carries; k++)
        if (stays_carry(w, k)) in[n++] = w->carry[k];
    params.carry = n - params.consts;
    for (uint32_t i = xs; i < w->n_in; i++)
        if (!w->gathered[i]) in[n++] = rest_of(w, w->x[i]);
    if (w->any_gathered) in[n++] = rest_of(w, tow_iota(w->t, tow_make_type(TOW_I32, 1, (int64_t[]){w->p->length}), 0));
    tow__bind(w->t, &tow__scan_p, &params, n, in, params.body->n_outputs, out);
    tow__forward_carries(w->t, &params, 0, in, out);
    tow_graph_release(params.body);
    n = 0;
    for (uint32_t k = 0; k < w->carries; k++)
        if (stays_carry(w, k)) w->carry[k] = out[n++];
    for (uint32_t k = 0; k < w->carries; k++) {
        uint32_t i = w->same[w->consts + k];
        w->carry[k] = i < w->consts ? w->x[i] : w->carry[i - w->consts];
    }
    for (uint32_t y = 0; y < w->n_ys; y++)
        if (constant_y(w, y) == TOW__INPUT) ys[y] = out[n++];
}

/* The rows of a result that is constant in the loop, which add to its cotangent one after the other. */
static tow_value repeat_rows(rewriting *w, tow_value x)
{
    tow_value out = {0};
    tow__scan_params params = {.length = w->p->length - w->peeled, .consts = 1};
    tow_trace *t = tow__trace_begin(w->body->ctx);
    tow_value in = t ? tow__input(t, tow_value_type(x), NULL) : out;
    if (!t || tow__trace_end(t, 1, &in, false, &params.body) != TOW_OK)
        tow__adopt_error(w->t);
    else
        tow__bind(w->t, &tow__scan_p, &params, 1, &x, 1, &out);
    tow_graph_release(params.body);
    return out;
}

/* Row i of the first iterations' y is that of iteration t or, in reverse, the other way round. */
static void first_rows(rewriting *w, uint32_t y, tow_value *parts)
{
    for (int64_t i = 0; i < w->peeled; i++) {
        int64_t t = w->p->reverse ? w->peeled - 1 - i : i;
        parts[i] = tow_expand_dims(w->ys[y * w->peeled + t], 0);
    }
}

/* The first iterations' y and the loop's, in one array. Values of one array are recorded from the first row to the
 * last. */
static tow_value stack(rewriting *w, uint32_t y, tow_value rest)
{
    tow_value *parts = tow__trace_alloc(w->t, (size_t)w->peeled + 1, sizeof *parts);
    uint32_t i = constant_y(w, y);
    bool loop = w->peeled < w->p->length;
    if (!parts) return (tow_value){0};
    if (!w->p->reverse) first_rows(w, y, parts);
    if (loop && i != TOW__INPUT) rest = repeat_rows(w, i < w->consts ? w->x[i] : w->carry[i - w->consts]);
    if (w->p->reverse) first_rows(w, y, parts + loop);
    if (loop) parts[w->p->reverse ? 0 : w->peeled] = rest;
    return tow_concatenate((size_t)w->peeled + loop, parts, 0);
}

/* The whole: inputs are the operands, each value once. */
TOW__OWN_FRAME static tow_status record(rewriting *w, tow_graph **result)
{
    tow_trace *t = w->t = tow__trace_begin(w->body->ctx);
    if (!t) return TOW_OUT_OF_MEMORY;
    uint32_t n_out = w->carries + w->n_ys;
    w->x = tow__trace_alloc(t, w->n_in, sizeof *w->x);
    w->carry = tow__trace_alloc(t, w->carries, sizeof *w->carry);
    w->row = tow__trace_alloc(t, (size_t)w->n_in + n_out, sizeof *w->row);
    w->ys = tow__trace_alloc(t, w->n_ys * (size_t)w->peeled, sizeof *w->ys);
    tow_value *out = tow__trace_alloc(t, n_out, sizeof *out), *ys = tow__trace_alloc(t, w->n_ys, sizeof *ys);
    if (!w->x || !w->carry || !w->row || !w->ys || !out || !ys) {
        tow__trace_abandon(t);
        return TOW_OUT_OF_MEMORY;
    }
    tow__set_source(t, &w->r->e->source);
    for (uint32_t i = 0; i < w->n_in; i++)
        w->x[i] = w->first[i] == i ? tow__input(t, w->r->in_types[i], NULL) : w->x[w->first[i]];
    if (w->carries) memcpy(w->carry, w->x + w->consts, w->carries * sizeof *w->carry);
    for (int64_t i = 0; i < w->peeled; i++) record_iteration(w, i);
    if (w->peeled < w->p->length) record_loop(w, ys);
    memcpy(out, w->carry, w->carries * sizeof *out);
    for (uint32_t y = 0; y < w->n_ys; y++) out[w->carries + y] = stack(w, y, ys[y]);
    return tow__trace_end(t, n_out, out, false, result);
}

/* Transposes the program in place of the scan. */
static void transpose_program(rewriting *w, const tow_graph *g)
{
    tow__transpose *r = w->r;
    tow_value *in = tow__trace_alloc(r->t, g->n_inputs, sizeof *in),
              *dx = tow__trace_alloc(r->t, g->n_inputs, sizeof *dx);
    bool *linear = tow__trace_alloc(r->t, g->n_inputs, sizeof *linear);
    if (!in || !dx || !linear) return;
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n_in; i++) {
        if (w->first[i] != i) continue;
        in[n] = r->x[i], dx[n] = r->dx[i], linear[n++] = r->linear[i];
    }
    if (((const tow__scan_params *)r->e->params)->slots > 0) /* iterations run again beside their transposes */
        tow__transpose_body(r->t, g, linear, in, r->ct, dx);
    else
        tow__transpose_inline(r->t, g, linear, in, r->ct, dx);
    n = 0;
    for (uint32_t i = 0; i < w->n_in; i++) r->dx[i] = w->first[i] == i ? dx[n++] : (tow_value){0};
}

/* The most copies of its bodies that a region has once it is rewritten: of a loop the first iterations, and one. */
static double copies_of(const tow__equation *e)
{
    tow__region_form form;
    if (!tow__region_of(e, &form) || !form.repeats || form.length == TOW__DATA_DECIDE) return 1;
    const int64_t most = (int64_t)form.carry + 2;
    return (double)(form.length < most ? form.length : most) + 1;
}

/* Equations of a graph once the loops in it are rewritten, at most. */
static double rewritten_size(const tow_graph *g)
{
    double size = g->n_equations;
    for (uint32_t i = 0; i < g->n_equations; i++) {
        const tow__equation *e = &g->equations[i];
        for (uint32_t k = 0, n = tow__nested_count(e->primitive, e->params); k < n; k++)
            size += copies_of(e) * rewritten_size(tow__nested(e->primitive, e->params, k));
    }
    return size;
}

tow_status tow__scan_separate(const tow__scan_params *p, tow_graph **result)
{
    const tow_graph *g = p->body;
    tow_value *in, *out;
    tow_trace *t = tow__trace_begin_over(g, &in, &out);
    bool *taken = t ? tow__trace_alloc(t, g->n_vars, sizeof *taken) : NULL;
    if (!taken) {
        tow__trace_abandon(t);
        return TOW_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < g->n_inputs; i++) in[i] = tow__input(t, g->vars[g->inputs[i]].type, g->input_names[i]);
    tow__inline(t, g, in, out);
    for (uint32_t i = 0; i < g->n_inputs; i++) taken[g->inputs[i]] = true;
    for (uint32_t k = 0; k < p->carry; k++) {
        tow_type type = g->vars[g->outputs[k]].type;
        tow__shape_params same = {tow__ints_of(type.rank, type.dims)};
        if (taken[g->outputs[k]]) out[k] = tow__op(&tow__reshape_p, &same, 1, &out[k]);
        taken[g->outputs[k]] = true;
    }
    return tow__trace_end(t, g->n_outputs, out, false, result);
}

bool tow__scan_normalize(tow__transpose *r, const tow__flow *flow, bool *separate)
{
    const tow__equation *e = r->e;
    const tow__scan_params *p = e->params;
    rewriting w = {.r = r, .p = p, .body = p->body, .flow = flow, .consts = (uint32_t)p->consts};
    w.carries = (uint32_t)p->carry, w.n_in = e->n_in, w.n_ys = e->n_out - w.carries;
    w.first = tow__trace_alloc(r->t, w.n_in, sizeof *w.first);
    w.same = tow__trace_alloc(r->t, w.n_in, sizeof *w.same);
    w.gathered = tow__trace_alloc(r->t, w.n_in, sizeof *w.gathered);
    w.keys = tow__trace_alloc(r->t, w.n_in, sizeof *w.keys);
    if (!w.first || !w.same || !w.gathered || !w.keys) return true;
    for (uint32_t i = 0; i < w.n_in; i++) w.keys[i].a = e->in[i];
    compare_keys(w.keys, w.n_in, w.first);
    bool needed = find_gathered(&w);
    if (!needed) needed = find_equals(&w);
    if (!needed || w.any_gathered) {
        for (uint32_t i = 0; i < w.consts + w.carries; i++) w.same[i] = i;
        w.peeled = 0;
    }
    for (uint32_t k = 0; k < w.carries; k++) needed |= is_invariant(&w, k);
    if (tow__failed(r->t)) return true;
    if (!needed) return false;
    *separate = (double)w.peeled * rewritten_size(w.body) > WRITTEN_OUT;
    if (*separate) return false;
    tow_graph *g = NULL;
    if (record(&w, &g) == TOW_OK)
        transpose_program(&w, g);
    else
        tow__adopt_error(r->t);
    tow_graph_release(g);
    return true;
}
