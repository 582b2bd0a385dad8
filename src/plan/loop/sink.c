/* Sinking: elementwise readers of the stacked results of a scan move into its body, if what they make takes the place
 * of an input (donations; carries of a loop around). An optimizer's update of a stack of layers is of this kind: the
 * rows of a parameter are updated as soon as their gradient is there, and the gradients are never stacked.
 *
 *   scan: carry, xs p                  scan: carry, xs p, consts a
 *     g = dot(x, y)             ──>      g = dot(x, y)
 *     ys: g                              p' = p - a g
 *   p' = p - a g                         ys: p'
 *
 * Equations behind the scan move, if all of these hold:
 *   - they are elementwise on arrays with a row for each iteration, or repeat along that axis what does not depend on
 *     the scan; their other operands do not depend on it, or move as well;
 *   - all readers of their results move, or the result is an output that takes the place of an input (its home);
 *   - no other equation behind the scan reads that input, and the scan reads it row by row, once, or not at all;
 *   - all readers of the stacked results that they read move.
 * No bits change: an element is computed by the same operations. */
#include "src/graph/builder.h"
#include "src/graph/region.h"
#include "src/plan/loop/distribute.h"
#include "src/plan/loop/loop.h"
#include "tow/ops.h"

/* One scan of a graph, and the equations that are to move into it. */
typedef struct sinking {
    const tow_graph *g;
    const uint32_t *homes; /* [outputs of g] the input whose place it takes, or TOW__NONE */
    uint32_t at;           /* the scan's equation */
    const tow__scan_params *params;
    bool *depends; /* [n_vars] on the scan */
    bool *moves;   /* [n_equations] */
    uint32_t n_moves;
} sinking;

static const tow__equation *scan_of(const sinking *s) { return &s->g->equations[s->at]; }

static bool is_stack(const sinking *s, uint32_t var)
{
    const tow_type type = s->g->vars[var].type;
    return type.rank > 0 && type.dims[0] == s->params->length;
}

static bool has_same_dims(tow_type a, tow_type b)
{
    a.dtype = b.dtype;
    return tow_type_equal(a, b);
}

/* The equation that makes var; TOW__INPUT: none. */
static uint32_t maker(const sinking *s, uint32_t var) { return s->g->vars[var].equation; }

static bool is_made_by_scan(const sinking *s, uint32_t var) { return maker(s, var) == s->at; }

/* ys of the scan. */
static bool is_stacked_result(const sinking *s, uint32_t var)
{
    return is_made_by_scan(s, var) && s->g->vars[var].index >= (uint64_t)s->params->carry;
}

/* ---- what can move ----------------------------------------------------------------------------------------------- */

/* Repeats something along the axis of rows that does not depend on the scan. */
static bool is_repetition(const sinking *s, const tow__equation *e)
{
    if (!TOW__IS(e, broadcast_in_dim) || s->depends[e->in[0]] || !is_stack(s, e->out[0])) return false;
    const tow__broadcast_params *p = e->params;
    for (int i = 0; i < p->axes.n; i++)
        if (p->axes.v[i] == 0) return false;
    return true;
}

/* Is there a row of var for each iteration, in the body or before the scan? */
static bool has_rows(const sinking *s, uint32_t var)
{
    const uint32_t made = maker(s, var);
    if (made != TOW__INPUT && made > s->at) return s->moves[made];
    return made != s->at || is_stacked_result(s, var);
}

/* Elementwise on arrays of one size that have a row for each iteration. */
static bool works_on_rows(const sinking *s, const tow__equation *e)
{
    if (e->primitive->kind != TOW__ELEMENTWISE || e->n_in == 0 || !is_stack(s, e->out[0]) || tow__has_effect(e))
        return false;
    const tow_type type = s->g->vars[e->out[0]].type;
    for (uint32_t i = 0; i < e->n_out; i++)
        if (!has_same_dims(s->g->vars[e->out[i]].type, type)) return false;
    for (uint32_t i = 0; i < e->n_in; i++)
        if (!has_same_dims(s->g->vars[e->in[i]].type, type)) return false;
    return true;
}

static bool can_move(const sinking *s, const tow__equation *e)
{
    if (is_repetition(s, e)) return true;
    if (!works_on_rows(s, e)) return false;
    for (uint32_t i = 0; i < e->n_in; i++)
        if (!has_rows(s, e->in[i])) return false;
    return true;
}

static void find_candidates(sinking *s)
{
    const tow_graph *g = s->g;
    for (uint32_t i = 0; i < scan_of(s)->n_out; i++) s->depends[scan_of(s)->out[i]] = true;
    for (uint32_t k = s->at + 1; k < g->n_equations; k++) {
        const tow__equation *e = &g->equations[k];
        bool depends = false;
        for (uint32_t i = 0; i < e->n_in; i++) depends |= s->depends[e->in[i]];
        for (uint32_t i = 0; i < e->n_out; i++) s->depends[e->out[i]] = depends;
        s->moves[k] = can_move(s, e);
    }
}

/* ---- what may move ----------------------------------------------------------------------------------------------- */

/* Who reads a var behind the scan. */
typedef struct readers {
    uint32_t moving, others; /* equations */
    uint32_t output;         /* an output that it is, or TOW__NONE */
    bool several;            /* it is more than one output */
} readers;

/* readers of all vars. NULL: out of memory. */
static readers *find_readers(const sinking *s, tow__arena *arena)
{
    const tow_graph *g = s->g;
    readers *all = tow__arena_alloc(arena, g->n_vars, sizeof *all);
    for (uint32_t v = 0; all && v < g->n_vars; v++) all[v].output = TOW__NONE;
    for (uint32_t k = s->at + 1; all && k < g->n_equations; k++)
        for (uint32_t i = 0; i < g->equations[k].n_in; i++)
            ++*(s->moves[k] ? &all[g->equations[k].in[i]].moving : &all[g->equations[k].in[i]].others);
    for (uint32_t i = 0; all && i < g->n_outputs; i++) {
        readers *r = &all[g->outputs[i]];
        r->several |= r->output != TOW__NONE;
        r->output = i;
    }
    return all;
}

/* The scan reads it as rows, once, or not at all. */
static bool is_read_by_rows(const sinking *s, uint32_t var)
{
    const tow__equation *scan = scan_of(s);
    uint32_t n = 0;
    for (uint32_t i = 0; i < scan->n_in; i++) {
        if (scan->in[i] != var) continue;
        if (i < (uint64_t)(s->params->consts + s->params->carry)) return false;
        n++;
    }
    return n <= 1;
}

/* May the body write var where its home is? */
static bool is_at_home(const sinking *s, const readers *all, uint32_t var)
{
    const readers *r = &all[var];
    if (r->output == TOW__NONE) return true;
    if (r->several || s->homes[r->output] == TOW__NONE) return false;
    const uint32_t home = s->g->inputs[s->homes[r->output]];
    return all[home].others == 0 && all[home].output == TOW__NONE && is_read_by_rows(s, home);
}

static bool may_move(const sinking *s, const readers *all, const tow__equation *e)
{
    if (is_repetition(s, e)) return true; /* others get a copy of it */
    for (uint32_t i = 0; i < e->n_in; i++) {
        const readers *r = &all[e->in[i]];
        if (is_stacked_result(s, e->in[i]) && (r->others > 0 || r->output != TOW__NONE)) return false;
        if (!has_rows(s, e->in[i])) return false;
    }
    for (uint32_t i = 0; i < e->n_out; i++) {
        const readers *r = &all[e->out[i]];
        if (r->others > 0 || !is_at_home(s, all, e->out[i])) return false;
        if (r->moving == 0 && r->output == TOW__NONE) return false;
    }
    return true;
}

/* Equations that may not move hold others back, until all is settled. */
static tow_status settle(sinking *s, tow__arena *arena)
{
    for (bool changes = true; changes;) {
        const readers *all = find_readers(s, arena);
        if (!all) return TOW_OUT_OF_MEMORY;
        changes = false;
        for (uint32_t k = s->at + 1; k < s->g->n_equations; k++) {
            if (!s->moves[k] || may_move(s, all, &s->g->equations[k])) continue;
            s->moves[k] = false;
            changes = true;
        }
    }
    return TOW_OK;
}

/* Equations that do not depend on the scan move only if another one needs them there. */
static void drop_idle(sinking *s, bool *needed)
{
    for (uint32_t k = s->g->n_equations; k-- > s->at + 1;) {
        const tow__equation *e = &s->g->equations[k];
        bool wanted = s->depends[e->out[0]];
        for (uint32_t i = 0; i < e->n_out; i++) wanted |= needed[e->out[i]];
        s->moves[k] &= wanted;
        for (uint32_t i = 0; i < e->n_in && s->moves[k]; i++) needed[e->in[i]] = true;
        s->n_moves += s->moves[k];
    }
}

/* s->n_moves: 0 if nothing moves. */
static tow_status analyze(sinking *s, tow__arena *arena)
{
    const tow_graph *g = s->g;
    tow_status status = TOW_OK;
    s->depends = tow__arena_alloc(arena, g->n_vars, sizeof *s->depends);
    s->moves = tow__arena_alloc(arena, g->n_equations, sizeof *s->moves);
    bool *needed = tow__arena_alloc(arena, g->n_vars, sizeof *needed);
    if (!s->depends || !s->moves || !needed) return TOW_OUT_OF_MEMORY;
    find_candidates(s);
    TRY(settle(s, arena));
    drop_idle(s, needed);
done:
    return status;
}

/* ---- recording --------------------------------------------------------------------------------------------------- */

typedef struct recorder {
    const sinking *s;
    tow_trace *t;
    tow_value *values;             /* [n_vars] of the graph that is recorded */
    bool *done;                    /* [n_equations] it is recorded */
    tow_value *rows;               /* [n_vars] in the body: the row of a stack */
    uint32_t *xs, n_xs, *ys, n_ys; /* vars that become operands and results of the scan */
} recorder;

/* Records what var is made of, which does not depend on the scan. */
static void record_before(recorder *r, uint32_t var)
{
    const uint32_t k = maker(r->s, var);
    if (k == TOW__INPUT || r->done[k]) return;
    for (uint32_t i = 0; i < r->s->g->equations[k].n_in; i++) record_before(r, r->s->g->equations[k].in[i]);
    r->done[k] = true;
    tow__rebind_among(r->t, &r->s->g->equations[k], r->values);
}

static bool is_operand(const sinking *s, uint32_t var)
{
    for (uint32_t i = (uint32_t)(s->params->consts + s->params->carry); i < scan_of(s)->n_in; i++)
        if (scan_of(s)->in[i] == var) return true;
    return false;
}

static void add_once(uint32_t *list, uint32_t *n, uint32_t var)
{
    for (uint32_t i = 0; i < *n; i++)
        if (list[i] == var) return;
    list[(*n)++] = var;
}

static bool is_output(const tow_graph *g, uint32_t var)
{
    for (uint32_t i = 0; i < g->n_outputs; i++)
        if (g->outputs[i] == var) return true;
    return false;
}

/* Lists the operands and results that the scan gets, and records what its body will read of the graph around. */
static void list_operands(recorder *r)
{
    const sinking *s = r->s;
    for (uint32_t k = s->at + 1; k < s->g->n_equations; k++) {
        const tow__equation *e = &s->g->equations[k];
        if (!s->moves[k]) continue;
        if (is_repetition(s, e)) {
            record_before(r, e->in[0]);
            continue;
        }
        for (uint32_t i = 0; i < e->n_in; i++) {
            const uint32_t made = maker(s, e->in[i]);
            if ((made == TOW__INPUT || made < s->at) && !is_operand(s, e->in[i])) add_once(r->xs, &r->n_xs, e->in[i]);
        }
        for (uint32_t i = 0; i < e->n_out; i++)
            if (is_output(s->g, e->out[i])) r->ys[r->n_ys++] = e->out[i];
    }
}

/* Records one row of a value that repeats it along the rows. */
static tow_value record_repetition(const recorder *r, const tow__equation *e)
{
    const tow__broadcast_params *p = e->params;
    const tow_type type = tow__row_type(r->s->g->vars[e->out[0]].type);
    int axes[TOW_MAX_RANK];
    for (int i = 0; i < p->axes.n; i++) axes[i] = (int)p->axes.v[i] - 1;
    return tow_broadcast_in_dim(r->values[e->in[0]], type.rank, type.dims, axes);
}

static void record_moved(const recorder *r)
{
    const sinking *s = r->s;
    for (uint32_t k = s->at + 1; k < s->g->n_equations; k++) {
        const tow__equation *e = &s->g->equations[k];
        if (!s->moves[k]) continue;
        tow__set_source(r->t, &e->source);
        if (is_repetition(s, e))
            r->rows[e->out[0]] = record_repetition(r, e);
        else
            tow__rebind_among(r->t, e, r->rows);
    }
}

/* The body with the equations that move: (carry, xs, new xs) -> (carry, ys, new ys); what it reads of the graph around
 * is captured. */
static tow_graph *record_body(const recorder *r, size_t *n_captures, tow_value **captures)
{
    const sinking *s = r->s;
    const tow__equation *scan = scan_of(s);
    const tow_graph *body = s->params->body;
    const uint32_t n_consts = (uint32_t)s->params->consts, n_carry = (uint32_t)s->params->carry;
    tow_value *values = tow__trace_alloc(r->t, (size_t)body->n_vars + 1, sizeof *values),
              *out = tow__trace_alloc(r->t, (size_t)body->n_outputs + r->n_ys, sizeof *out);
    if (!values || !out) return NULL;
    tow__push(r->t);
    for (uint32_t i = 0; i < n_consts; i++) values[body->inputs[i]] = r->values[scan->in[i]];
    for (uint32_t i = n_consts; i < body->n_inputs; i++) {
        const tow_value x = tow__input(r->t, body->vars[body->inputs[i]].type, body->input_names[i]);
        values[body->inputs[i]] = x;
        if (i >= n_consts + n_carry) r->rows[scan->in[i]] = x;
    }
    for (uint32_t i = 0; i < r->n_xs; i++)
        r->rows[r->xs[i]] = tow__input(r->t, tow__row_type(s->g->vars[r->xs[i]].type), NULL);
    for (uint32_t k = 0; k < body->n_equations; k++) { tow__rebind_among(r->t, &body->equations[k], values); }
    for (uint32_t j = 0; j < body->n_outputs; j++) out[j] = values[body->outputs[j]];
    for (uint32_t j = n_carry; j < body->n_outputs; j++) r->rows[scan->out[j]] = out[j];
    record_moved(r);
    for (uint32_t i = 0; i < r->n_ys; i++) out[body->n_outputs + i] = r->rows[r->ys[i]];
    return tow__pop(r->t, body->n_outputs + r->n_ys, out, n_captures, captures);
}

static void record_scan(recorder *r)
{
    const sinking *s = r->s;
    const tow__equation *scan = scan_of(s);
    size_t n_captures, n = 0;
    tow_value *captures;
    list_operands(r);
    tow__scan_params p = *s->params;
    p.body = record_body(r, &n_captures, &captures);
    if (!p.body) return;
    p.consts = (int64_t)n_captures;
    tow_value *in = tow__trace_alloc(r->t, n_captures + scan->n_in + r->n_xs, sizeof *in),
              *out = tow__trace_alloc(r->t, (size_t)scan->n_out + r->n_ys, sizeof *out);
    for (size_t i = 0; in && i < n_captures; i++) in[n++] = captures[i];
    for (uint32_t i = (uint32_t)s->params->consts; in && i < scan->n_in; i++) in[n++] = r->values[scan->in[i]];
    for (uint32_t i = 0; in && i < r->n_xs; i++) in[n++] = r->values[r->xs[i]];
    tow__set_source(r->t, &scan->source);
    if (in && out) tow__bind(r->t, scan->primitive, &p, n, in, (size_t)scan->n_out + r->n_ys, out);
    for (uint32_t i = 0; out && i < scan->n_out; i++) r->values[scan->out[i]] = out[i];
    for (uint32_t i = 0; out && i < r->n_ys; i++) r->values[r->ys[i]] = out[scan->n_out + i];
    tow_graph_release(p.body);
}

/* A scan whose body is another one now. */
static void rebind_with_body(const recorder *r, const tow__equation *e, tow_graph *body)
{
    tow__scan_params p = *(const tow__scan_params *)e->params;
    tow_value *in = tow__trace_alloc(r->t, (size_t)e->n_in + 1, sizeof *in),
              *out = tow__trace_alloc(r->t, (size_t)e->n_out + 1, sizeof *out);
    if (!in || !out) return;
    for (uint32_t i = 0; i < e->n_in; i++) in[i] = r->values[e->in[i]];
    p.body = body;
    tow__set_source(r->t, &e->source);
    tow__bind(r->t, e->primitive, &p, e->n_in, in, e->n_out, out);
    for (uint32_t i = 0; i < e->n_out; i++) r->values[e->out[i]] = out[i];
}

/* Repetitions that others read are recorded where they are, too. */
static bool stays(const sinking *s, uint32_t k)
{
    return !s->depends || !s->moves[k] || is_repetition(s, &s->g->equations[k]);
}

/* The graph with the equations moved. bodies: in place of those of scans, or NULL. */
static tow_status record(const sinking *s, tow_graph *const *bodies, tow_graph **result)
{
    const tow_graph *g = s->g;
    tow_graph *all = NULL;
    tow_trace *t = tow__trace_begin(g->ctx);
    if (!t) return TOW_OUT_OF_MEMORY;
    recorder r = {.s = s,
                  .t = t,
                  .values = tow__trace_alloc(t, (size_t)g->n_vars + g->n_outputs, sizeof *r.values),
                  .rows = tow__trace_alloc(t, g->n_vars, sizeof *r.rows),
                  .done = tow__trace_alloc(t, (size_t)g->n_equations + 1, sizeof *r.done),
                  .xs = tow__trace_alloc(t, g->n_vars, sizeof *r.xs),
                  .ys = tow__trace_alloc(t, g->n_vars, sizeof *r.ys)};
    const bool fine = r.values && r.rows && r.done && r.xs && r.ys;
    tow_value *outputs = fine ? r.values + g->n_vars : NULL;
    for (uint32_t i = 0; fine && i < g->n_inputs; i++)
        r.values[g->inputs[i]] = tow__input(t, g->vars[g->inputs[i]].type, g->input_names[i]);
    for (uint32_t k = 0; fine && k < g->n_equations; k++) {
        const tow__equation *e = &g->equations[k];
        if (k == s->at && s->n_moves > 0)
            record_scan(&r);
        else if (bodies && bodies[k])
            rebind_with_body(&r, e, bodies[k]);
        else if (!r.done[k] && stays(s, k))
            tow__rebind_among(t, e, r.values);
    }
    tow__set_source(t, NULL);
    for (uint32_t i = 0; fine && i < g->n_outputs; i++) outputs[i] = r.values[g->outputs[i]];
    tow_status status = tow__trace_end(t, fine ? g->n_outputs : 0, outputs, false, &all);
    if (status != TOW_OK) return status;
    status = tow__dce(all, NULL, false, NULL, result); /* drops stacked results that nobody reads any more */
    tow_graph_release(all);
    return status == TOW_OK ? tow__verify(*result, "sinking into loops") : status;
}

/* ---- which scans are worth the analysis -------------------------------------------------------------------------- */

/* Facts about a graph that are found once and not for each of its scans, which may be thousands. */
typedef struct paths {
    uint32_t *first, *reader; /* the equations that read var v are reader[first[v]] to reader[first[v + 1] - 1] */
    bool *home;               /* [n_vars] an output that takes the place of an input */
    uint32_t *seen;           /* [n_equations] by the search from the scan at equation seen - 1 */
    uint32_t *open;           /* [n_vars] vars whose readers are yet to be looked at */
} paths;

static void list_readers(const tow_graph *g, const paths *p)
{
    for (uint32_t k = 0; k < g->n_equations; k++)
        for (uint32_t i = 0; i < g->equations[k].n_in; i++) p->first[g->equations[k].in[i] + 1]++;
    for (uint32_t v = 0; v < g->n_vars; v++) p->first[v + 1] += p->first[v];
    for (uint32_t k = g->n_equations; k-- > 0;) /* from the end of each list, which first[v + 1] is until then */
        for (uint32_t i = g->equations[k].n_in; i-- > 0;) p->reader[--p->first[g->equations[k].in[i] + 1]] = k;
    for (uint32_t v = 0; v < g->n_vars; v++) p->first[v] = p->first[v + 1];
}

static tow_status find_paths(const tow_graph *g, const uint32_t *homes, tow__arena *arena, paths *p)
{
    size_t reads = 0;
    for (uint32_t k = 0; k < g->n_equations; k++) reads += g->equations[k].n_in;
    p->first = tow__arena_alloc(arena, (size_t)g->n_vars + 1, sizeof *p->first);
    p->reader = tow__arena_alloc(arena, reads + 1, sizeof *p->reader);
    p->home = tow__arena_alloc(arena, (size_t)g->n_vars + 1, sizeof *p->home);
    p->seen = tow__arena_alloc(arena, (size_t)g->n_equations + 1, sizeof *p->seen);
    p->open = tow__arena_alloc(arena, (size_t)g->n_vars + 1, sizeof *p->open);
    if (!p->first || !p->reader || !p->home || !p->seen || !p->open) return TOW_OUT_OF_MEMORY;
    list_readers(g, p);
    for (uint32_t i = 0; i < g->n_outputs; i++) p->home[g->outputs[i]] |= homes[i] != TOW__NONE;
    return TOW_OK;
}

/* Do elementwise equations lead from a stacked result of the scan to an output that has a home? Without them nothing
 * moves, and the analysis, which looks at everything behind the scan, is not made. */
static bool leads_home(const paths *p, const sinking *s)
{
    uint32_t n = 0;
    for (uint32_t i = (uint32_t)s->params->carry; i < scan_of(s)->n_out; i++) p->open[n++] = scan_of(s)->out[i];
    while (n > 0) {
        const uint32_t var = p->open[--n];
        for (uint32_t j = p->first[var]; j < p->first[var + 1]; j++) {
            const tow__equation *e = &s->g->equations[p->reader[j]];
            if (p->seen[p->reader[j]] == s->at + 1 || !works_on_rows(s, e)) continue;
            p->seen[p->reader[j]] = s->at + 1;
            for (uint32_t i = 0; i < e->n_out; i++) {
                if (p->home[e->out[i]]) return true;
                p->open[n++] = e->out[i];
            }
        }
    }
    return false;
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

/* Puts `next`, NULL for no change, in the place of *g. */
static void replace(tow_graph **g, tow_graph *next)
{
    if (!next) return;
    tow_graph_release(*g);
    *g = next;
}

/* Sinks into the scan at equation `at`, if that is possible. *next: the graph then, or NULL. */
static tow_status sink_into(const tow_graph *g, const uint32_t *homes, uint32_t at, const paths *p, tow_graph **next)
{
    sinking s = {.g = g, .homes = homes, .at = at, .params = g->equations[at].params};
    if (s.params->stops || s.params->length < 2 || !leads_home(p, &s)) return TOW_OK;
    tow__arena arena;
    tow__arena_init(&arena, g->ctx);
    tow_status status = analyze(&s, &arena);
    if (status == TOW_OK && s.n_moves > 0) status = record(&s, NULL, next);
    tow__arena_free(&arena);
    return status;
}

/* Sinks into the first scan of *g for which that is possible; *changes: there is one. */
static tow_status sink_once(tow_graph **g, const uint32_t *homes, bool *changes)
{
    tow_graph *next = NULL;
    paths p;
    tow__arena arena;
    tow__arena_init(&arena, (*g)->ctx);
    tow_status status = find_paths(*g, homes, &arena, &p);
    for (uint32_t at = 0; at < (*g)->n_equations && status == TOW_OK && !next; at++)
        if (tow__is_loop((*g)->equations[at].primitive)) status = sink_into(*g, homes, at, &p, &next);
    tow__arena_free(&arena);
    *changes = next != NULL;
    replace(g, next);
    return status;
}

/* The homes of the outputs of a scan's body: a carry takes its own place; a row that of a row of xs, if the stack of
 * one is at home where the other is. */
static uint32_t *find_homes(tow__arena *arena, const tow_graph *g, const uint32_t *homes, const tow__equation *scan)
{
    const tow__scan_params *p = scan->params;
    const uint32_t n_carry = (uint32_t)p->carry, first_row = (uint32_t)(p->consts + p->carry);
    uint32_t *inner = tow__arena_alloc(arena, scan->n_out, sizeof *inner);
    for (uint32_t j = 0; inner && j < scan->n_out; j++) {
        inner[j] = j < n_carry ? (uint32_t)p->consts + j : TOW__NONE;
        for (uint32_t o = 0; j >= n_carry && o < g->n_outputs; o++)
            for (uint32_t i = first_row; i < scan->n_in; i++)
                if (g->outputs[o] == scan->out[j] && homes[o] != TOW__NONE && g->inputs[homes[o]] == scan->in[i])
                    inner[j] = i;
    }
    return inner;
}

/* Sinks into scans within the bodies of scans. */
static tow_status sink_inside(tow_graph **g, const uint32_t *homes)
{
    tow_status status = TOW_OK;
    tow__arena arena;
    tow_graph *next = NULL, **bodies;
    bool changes = false;
    const tow_graph *now = *g;
    tow__arena_init(&arena, now->ctx);
    bodies = tow__arena_alloc(&arena, (size_t)now->n_equations + 1, sizeof *bodies);
    if (!bodies) status = TOW_OUT_OF_MEMORY;
    for (uint32_t k = 0; k < now->n_equations && status == TOW_OK; k++) {
        const tow__equation *e = &now->equations[k];
        if (!tow__is_loop(e->primitive)) continue;
        tow_graph *body = ((const tow__scan_params *)e->params)->body;
        const uint32_t *inner = find_homes(&arena, now, homes, e);
        status = inner ? tow__sink_into_loops(body, inner, &bodies[k]) : TOW_OUT_OF_MEMORY;
        if (status == TOW_OK && bodies[k] == body) {
            tow_graph_release(body);
            bodies[k] = NULL;
        }
        changes |= bodies[k] != NULL;
    }
    if (status == TOW_OK && changes) status = record(&(sinking){.g = now, .at = TOW__NONE}, bodies, &next);
    for (uint32_t k = 0; bodies && k < now->n_equations; k++) tow_graph_release(bodies[k]);
    tow__arena_free(&arena);
    replace(g, next);
    return status;
}

tow_status tow__sink_into_loops(const tow_graph *g, const uint32_t *homes, tow_graph **result)
{
    tow_status status = TOW_OK;
    *result = tow__graph_share(g);
    for (bool changes = true; changes && status == TOW_OK;) status = sink_once(result, homes, &changes);
    if (status == TOW_OK) status = sink_inside(result, homes);
    if (status == TOW_OK) return TOW_OK;
    tow_graph_release(*result);
    *result = NULL;
    return status;
}
