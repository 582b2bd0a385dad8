/* Loop distribution: moves products and sums that need not wait for the previous iteration out of a scan.
 *
 *   scan: carry, xs                        products before the scan       u = dot(xs, w), for all iterations at once
 *     u = dot(x, w)                        scan: the remainder
 *     carry' = f(carry, u)         ──>       carry' = f(carry, u)         u is a row of xs
 *     sum' = sum + dot(x, carry)             ys: carry                    the operands of a sum are stacked
 *     y = dot(carry', w)                   products after the scan        y = dot(stacked carry', w)
 *                                          scan: sum' = sum + dot(x, c)   a loop around the sum alone: one kernel
 *
 * A sum is a carry whose only reader is its own addition: gradients of shared parameters are of this kind.
 *
 * No bits change: an element of a product or of a sum over an axis depends on its own row alone (gemm.h), and sums add
 * their terms in the order of the iterations. Shapes alone decide which equations move. Rows of all iterations take
 * memory, so a product moves only if it is slow in the loop: if an iteration has so few rows that the product waits for
 * its weights (tow__enough_rows). */
#include "src/plan/loop/distribute.h"
#include "src/graph/builder.h"
#include "src/graph/region.h"
#include "src/plan/analysis/cost.h"
#include "src/plan/loop/loop.h"

enum {
    MOST_GROWTH = 8 /* a product stays in the loop if its result has so many times more elements than x */
};

/* ---- equations that move ----------------------------------------------------------------------------------------- */

static bool is_input(const tow__distribution *s, uint32_t var, uint32_t first, uint32_t limit)
{
    const tow__var *v = &s->body->vars[var];
    return v->equation == TOW__INPUT && v->index >= first && v->index < limit;
}

static bool is_const(const tow__distribution *s, uint32_t var) { return is_input(s, var, 0, s->consts); }
static bool is_row(const tow__distribution *s, uint32_t var)
{
    return is_input(s, var, s->consts + s->carry, s->body->n_inputs);
}

/* True for a product x w of few rows x with a constant w of the loop that can run once for all iterations. */
static bool takes_all_rows(const tow__distribution *s, const tow__equation *e)
{
    if (!TOW__IS(e, dot_general) || !is_const(s, e->in[1])) return false;
    const tow__dot_params *p = e->params;
    tow_type x = tow__type_of(s, e->in[0]), y = tow__type_of(s, e->out[0]);
    if (p->lhs_batch.n > 0 || x.rank == TOW_MAX_RANK || y.rank == TOW_MAX_RANK) return false;
    int64_t depth = 1;
    for (int i = 0; i < p->lhs_contract.n; i++) depth *= x.dims[p->lhs_contract.v[i]];
    if (depth < 2 || tow_type_element_count(x) == 0) return false;
    return tow_type_element_count(x) / depth < tow__enough_rows(s->machine) &&
           tow_type_element_count(y) < MOST_GROWTH * tow_type_element_count(x);
}

/* True for a product of two matrices or vectors that differ from iteration to iteration, if it contracts few rows. */
static bool is_outer_product(const tow__distribution *s, const tow__equation *e)
{
    if (!TOW__IS(e, dot_general) || is_const(s, e->in[0]) || is_const(s, e->in[1])) return false;
    const tow__dot_params *p = e->params;
    tow_type x = tow__type_of(s, e->in[0]), y = tow__type_of(s, e->in[1]);
    int contracted = p->lhs_contract.n;
    if (p->lhs_batch.n > 0 || contracted > 1 || x.rank != contracted + 1 || y.rank != x.rank) return false;
    int64_t rows = contracted > 0 ? x.dims[p->lhs_contract.v[0]] : 1;
    return rows < tow__enough_rows(s->machine) && tow_type_element_count(tow__type_of(s, e->out[0])) > 0;
}

/* The equation that makes d, if carry j is sum' = sum + d and only the addition reads sum and d; else NULL. */
static const tow__equation *summand(const tow__distribution *s, uint32_t j)
{
    uint32_t old = s->body->inputs[s->consts + j], new = s->body->outputs[j];
    const tow__equation *add = tow__maker(s, new);
    if (!add || !TOW__IS(add, add) || s->uses[old] != 1 || s->uses[new] != 1) return NULL;
    if (add->in[0] != old && add->in[1] != old) return NULL;
    if (!tow_dtype_is_float(tow__type_of(s, old).dtype)) return NULL;
    uint32_t d = add->in[0] == old ? add->in[1] : add->in[0];
    return s->uses[d] == 1 ? tow__maker(s, d) : NULL;
}

static void stack(tow__distribution *s, uint32_t var)
{
    if (!is_row(s, var)) s->stacked[var] = true;
}

static void move_sum(tow__distribution *s, uint32_t j, const tow__equation *e)
{
    if (s->n_sums == TOW__MOST_LOOP_SUMS) return;
    const tow__equation *add = tow__maker(s, s->body->outputs[j]);
    s->sums[s->n_sums++] = (tow__loop_sum){j, add, e};
    s->summed[j] = s->changes = true;
    s->fates[add - s->body->equations] = s->fates[e - s->body->equations] = TOW__REPLACED;
    for (uint32_t i = 0; i < e->n_in; i++) stack(s, e->in[i]);
}

/* True if the rows of a var are stored for use after the loop in any case. */
static bool is_stored(const tow__distribution *s, uint32_t var)
{
    return s->stacked[var] || is_row(s, var) || tow__is_output(s, var);
}

static void decide(tow__distribution *s)
{
    const tow_graph *g = s->body;
    for (uint32_t i = 0; i < g->n_equations; i++)
        if (takes_all_rows(s, &g->equations[i]) && is_row(s, g->equations[i].in[0])) {
            s->fates[i] = TOW__BEFORE_LOOP;
            s->changes = true;
        }
    for (uint32_t j = 0; j < s->carry; j++) {
        const tow__equation *e = summand(s, j);
        if (e && is_outer_product(s, e)) move_sum(s, j, e);
    }
    for (uint32_t j = 0; j < s->carry; j++) { /* sums over rows that a product needs stacked */
        const tow__equation *e = s->summed[j] ? NULL : summand(s, j);
        if (e && TOW__IS(e, reduce_sum) && tow__type_of(s, e->in[0]).rank < TOW_MAX_RANK && is_stored(s, e->in[0]))
            move_sum(s, j, e);
    }
    for (uint32_t i = 0; i < g->n_equations; i++) {
        const tow__equation *e = &g->equations[i];
        if (s->fates[i] != TOW__IN_LOOP || !takes_all_rows(s, e) || !is_stored(s, e->in[0])) continue;
        if (s->uses[e->out[0]] != 1 || !tow__is_output(s, e->out[0])) continue;
        s->fates[i] = TOW__AFTER_LOOP;
        s->changes = true;
        stack(s, e->in[0]);
    }
}

/* Distribution of all scans of a graph. */
typedef struct distributor {
    tow__arena *arena;
    const tow__machine *machine;
    bool fissions; /* scans that do not change otherwise may be split */
} distributor;

static tow_status analyze(const distributor *d, const tow__scan_params *params, const tow_graph *body,
                          tow__distribution *s)
{
    *s = (tow__distribution){.machine = d->machine,
                             .params = params,
                             .body = body,
                             .consts = (uint32_t)params->consts,
                             .carry = (uint32_t)params->carry};
    s->n_ys = body->n_outputs - s->carry;
    s->uses = tow__arena_alloc(d->arena, body->n_vars, sizeof *s->uses);
    s->fates = tow__arena_alloc(d->arena, body->n_equations, sizeof *s->fates);
    s->stacked = tow__arena_alloc(d->arena, body->n_vars, sizeof *s->stacked);
    s->summed = tow__arena_alloc(d->arena, s->carry, sizeof *s->summed);
    if (!s->uses || !s->fates || !s->stacked || !s->summed) return TOW_OUT_OF_MEMORY;
    if (params->length < 2) return TOW_OK;
    for (uint32_t i = 0; i < body->n_equations; i++)
        for (uint32_t j = 0; j < body->equations[i].n_in; j++) s->uses[body->equations[i].in[j]]++;
    for (uint32_t i = 0; i < body->n_outputs; i++) s->uses[body->outputs[i]]++;
    decide(s);
    return TOW_OK;
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

/* A scan is distributed, or split, after what is in its body. */
static tow_status record_loop(const distributor *d, tow_trace *t, const tow__equation *e, const tow__scan_params *p,
                              const tow_value *operands, tow_value *results, bool *done)
{
    tow__distribution s = {0};
    tow_status status = analyze(d, p, p->body, &s);
    if (status == TOW_OK && d->fissions && !s.changes)
        status = tow__fission_loop(d->arena, t, d->machine, e, p, operands, results, done);
    if (status != TOW_OK || !s.changes) return status;
    tow__record_distributed(t, &s, e, operands, results);
    *done = true;
    return TOW_OK;
}

static tow_status record_region(const distributor *d, tow_trace *t, const tow__equation *e, const tow_value *operands,
                                tow_value *results)
{
    void *params;
    tow_graph *inner = NULL;
    bool done = false;
    tow_status status = tow__distribute_loops(tow__nested(e->primitive, e->params, 0), d->machine, d->fissions, &inner);
    if (status != TOW_OK) return status;
    if (!tow__params_own(t, e->primitive, e->params, &params)) {
        tow_graph_release(inner);
        return TOW_OUT_OF_MEMORY;
    }
    tow__set_nested(e->primitive, params, 0, inner);
    if (tow__is_loop(e->primitive)) status = record_loop(d, t, e, params, operands, results, &done);
    if (status == TOW_OK && !done) tow__bind(t, e->primitive, params, e->n_in, operands, e->n_out, results);
    tow_graph_release(inner);
    return status;
}

/* A region that plans run as it is, and not its decomposition. */
static bool is_region(const tow__equation *e)
{
    return e->primitive->region && e->primitive->region->planned != TOW__AS_PARTS;
}

static tow_status record_graph(const distributor *d, const tow_graph *g, tow_trace *t, tow_value *values)
{
    tow_status status = TOW_OK;
    for (uint32_t i = 0; i < g->n_inputs; i++)
        values[g->inputs[i]] = tow__input(t, g->vars[g->inputs[i]].type, g->input_names[i]);
    for (uint32_t i = 0; i < g->n_equations && status == TOW_OK; i++) {
        const tow__equation *e = &g->equations[i];
        tow_value *operands = tow__arena_alloc(d->arena, (size_t)e->n_in + e->n_out, sizeof *operands);
        if (!operands) return TOW_OUT_OF_MEMORY;
        for (uint32_t j = 0; j < e->n_in; j++) operands[j] = values[e->in[j]];
        tow__set_source(t, &e->source);
        if (is_region(e))
            status = record_region(d, t, e, operands, operands + e->n_in);
        else
            tow__rebind(t, e, operands, operands + e->n_in);
        for (uint32_t j = 0; j < e->n_out; j++) values[e->out[j]] = operands[e->n_in + j];
    }
    tow__set_source(t, NULL);
    return status;
}

/* *changes: true if an equation moves out of any scan in g. */
static tow_status find_changes(const distributor *d, const tow_graph *g, bool *changes)
{
    tow_status status = TOW_OK;
    for (uint32_t i = 0; i < g->n_equations && status == TOW_OK && !*changes; i++) {
        const tow__equation *e = &g->equations[i];
        if (!is_region(e)) continue;
        const tow_graph *body = tow__nested(e->primitive, e->params, 0);
        const bool loop = tow__is_loop(e->primitive);
        tow__distribution s = {0};
        if (loop) status = analyze(d, e->params, body, &s);
        *changes = s.changes;
        if (status == TOW_OK && loop && d->fissions && !*changes)
            status = tow__fission_loop(d->arena, NULL, d->machine, e, e->params, NULL, NULL, changes);
        if (status == TOW_OK && !*changes) status = find_changes(d, body, changes);
    }
    return status;
}

tow_status tow__distribute_loops(const tow_graph *g, const tow__machine *machine, bool defers, tow_graph **result)
{
    bool changes = false;
    tow__arena arena;
    const distributor d = {&arena, machine, defers};
    tow__arena_init(&arena, g->ctx);
    tow_trace *t = NULL;
    tow_graph *all = NULL;
    tow_status status = TOW_OK;
    *result = NULL;
    TRY(find_changes(&d, g, &changes));
    if (!changes) {
        *result = tow__graph_share(g);
        goto done;
    }
    tow_value *values = tow__arena_alloc(&arena, (size_t)g->n_vars + g->n_outputs, sizeof *values);
    t = values ? tow__trace_begin(g->ctx) : NULL;
    status = t ? TOW_OK : TOW_OUT_OF_MEMORY;
    TRY(status);
    TRY(record_graph(&d, g, t, values));
    for (uint32_t i = 0; i < g->n_outputs; i++) values[g->n_vars + i] = values[g->outputs[i]];
    status = tow__trace_end(t, g->n_outputs, values + g->n_vars, false, &all);
    t = NULL;
    TRY(status);
    TRY(tow__dce(all, NULL, false, NULL, result)); /* drops xs that only products outside read */
    TRY(tow__verify(*result, "loop distribution"));
done:
    tow__trace_abandon(t);
    tow_graph_release(all);
    tow__arena_free(&arena);
    if (status != TOW_OK) {
        tow_graph_release(*result);
        *result = NULL;
    }
    return status;
}
