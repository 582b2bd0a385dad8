/* Forward mode and transpose of cond.
 *
 *   cond         (index, x)              -> y        one of several branches
 *   jvp          (index, x, dx)          -> y, dy    a result has a tangent if it has one in any branch
 *   transpose    (index, x, ct, sums)    -> sums     each branch goes on with the caller's sums, so what does not
 *                                                    contribute in a branch costs no addition there */
#include "src/autodiff/reach.h"
#include "src/autodiff/regions/control.h"
#include "src/ops/rules.h"

/* ---- forward mode ------------------------------------------------------------------------------------------------ */

/* Marks results that have a tangent in any branch, and what gets one in the branches. NULL: an error. */
static const tow__reach *find_tangents(tow__jvp *r, tow__arena *arena, bool *in, bool *out)
{
    tow_context *ctx = tow_trace_context(r->t);
    const tow__graphs *branches = &((const tow__cond_params *)r->e->params)->branches;
    const tow__reach *known = r->reach;
    for (uint32_t i = 0; i < r->e->n_in; i++) in[i] = !tow_is_null(r->dx[i]);
    if (known) {
        const tow__reach *state = known;
        for (uint32_t k = 0; k < branches->n; k++, state = state->next)
            for (uint32_t i = 0; i < r->e->n_out; i++) out[i] |= state->var[branches->v[k]->outputs[i]];
        return known;
    }
    tow__reach_walk walk = {.ctx = ctx, .arena = arena, .rules = tow__trace_begin(ctx), .reverse = r->reverse};
    tow__reach *states = NULL;
    bool fine = walk.rules && tow__reach_region(&walk, r->e, &states, in, out) == TOW_OK;
    tow__trace_abandon(walk.rules);
    return fine ? states : NULL;
}

/* The branches with tangents; false: an error. */
static bool differentiate(tow__jvp *r, const tow__reach *states, bool *in, const bool *out, tow__graphs *result)
{
    const tow__graphs *branches = &((const tow__cond_params *)r->e->params)->branches;
    bool *nonzero = tow__trace_alloc(r->t, r->e->n_out, sizeof *nonzero);
    if (!nonzero) return false;
    for (; result->n < branches->n; result->n++, states = states->next) {
        memcpy(nonzero, out, r->e->n_out * sizeof *nonzero);
        if (tow__jvp_graph(branches->v[result->n], states, r->reverse, in + 1, nonzero, &result->v[result->n]) !=
            TOW_OK) {
            tow__adopt_error(r->t);
            return false;
        }
    }
    return true;
}

void tow__cond_jvp(tow__jvp *r)
{
    const tow__equation *e = r->e;
    const tow__graphs *branches = &((const tow__cond_params *)e->params)->branches;
    bool *in = tow__trace_alloc(r->t, (size_t)e->n_in + 1, sizeof *in),
         *out = tow__trace_alloc(r->t, e->n_out, sizeof *out);
    tow_value *operands = tow__trace_alloc(r->t, 2 * (size_t)e->n_in, sizeof *operands);
    tow_value *results = tow__trace_alloc(r->t, 2 * (size_t)e->n_out, sizeof *results);
    tow__cond_params params = {.branches.v = tow__trace_alloc(r->t, branches->n, sizeof(tow_graph *))};
    if (!in || !out || !operands || !results || !params.branches.v) return;
    tow__arena arena;
    tow__arena_init(&arena, tow_trace_context(r->t));
    const tow__reach *states = find_tangents(r, &arena, in, out);
    if (!states) tow__adopt_error(r->t);
    bool fine = states && differentiate(r, states, in, out, &params.branches);
    tow__arena_free(&arena);
    size_t n = e->n_in, n_out = e->n_out;
    memcpy(operands, r->x, n * sizeof *operands);
    for (uint32_t i = 1; i < e->n_in; i++)
        if (in[i]) operands[n++] = r->dx[i];
    for (uint32_t i = 0; i < e->n_out; i++) n_out += out[i];
    if (fine) tow__bind(r->t, &tow__cond_p, &params, n, operands, n_out, results);
    for (uint32_t k = 0; k < params.branches.n; k++) tow_graph_release(params.branches.v[k]);
    n = e->n_out;
    for (uint32_t i = 0; i < e->n_out; i++) {
        r->y[i] = results[i];
        r->dy[i] = out[i] ? results[n++] : (tow_value){0};
    }
}

/* ---- transpose --------------------------------------------------------------------------------------------------- */

typedef struct choice {
    tow__transpose *r;
    const tow__graphs *branches;
    uint32_t n_in, n_out; /* of the branches */
    bool *changed;        /* [n_in] some branch adds to the sum */
} choice;

static bool has_sum(const choice *c, uint32_t i) { return c->r->linear[1 + i] && !tow_is_null(c->r->dx[1 + i]); }

/* Branch k: (x, ct, sums) -> sums of all linear inputs. */
static tow_status transpose_branch(choice *c, uint32_t k, tow_graph **result)
{
    const tow_graph *g = c->branches->v[k];
    const tow__transpose *r = c->r;
    tow_trace *t = tow__trace_begin(g->ctx);
    if (!t) return TOW_OUT_OF_MEMORY;
    tow__set_phase(t, TOW__BACKWARD);
    tow_value *in = tow__trace_alloc(t, 4 * (size_t)c->n_in, sizeof *in), *dx = in + c->n_in, *start = dx + c->n_in,
              *out = start + c->n_in, *ct = tow__trace_alloc(t, c->n_out, sizeof *ct);
    if (!in || !ct) {
        tow__trace_abandon(t);
        return TOW_OUT_OF_MEMORY;
    }
    size_t n = 0;
    for (uint32_t i = 0; i < c->n_in; i++)
        if (!r->linear[1 + i]) in[i] = tow__input(t, tow_graph_input_type(g, i), NULL);
    for (uint32_t i = 0; i < c->n_out; i++)
        if (!tow_is_null(r->ct[i])) ct[i] = tow__input(t, tow_graph_output_type(g, i), NULL);
    for (uint32_t i = 0; i < c->n_in; i++)
        if (has_sum(c, i)) dx[i] = start[i] = tow__input(t, tow_graph_input_type(g, i), NULL);
    tow__transpose_body(t, g, r->linear + 1, in, ct, dx);
    for (uint32_t i = 0; i < c->n_in; i++) {
        if (!r->linear[1 + i]) continue;
        c->changed[i] |= !tow_is_null(dx[i]) && (tow_is_null(start[i]) || dx[i].id != start[i].id);
        out[n++] = tow_is_null(dx[i]) ? tow__zeros(t, tow_graph_input_type(g, i)) : dx[i];
    }
    return tow__trace_end(t, n, out, false, result);
}

/* Drops the sums to which no branch adds. */
static tow_status drop_unchanged(choice *c, tow_graph **branch)
{
    bool *kept = tow__trace_alloc(c->r->t, c->n_in, sizeof *kept);
    size_t n = 0;
    tow_graph *reduced = NULL;
    if (!kept) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < c->n_in; i++)
        if (c->r->linear[1 + i]) kept[n++] = c->changed[i];
    tow_status status = tow__dce(*branch, kept, false, NULL, &reduced);
    if (status != TOW_OK) return status;
    tow_graph_release(*branch);
    *branch = reduced;
    return TOW_OK;
}

static tow_status transpose_branches(choice *c, tow__graphs *result)
{
    tow_status status = TOW_OK;
    for (; result->n < c->branches->n && status == TOW_OK; result->n++)
        status = transpose_branch(c, result->n, &result->v[result->n]);
    for (uint32_t k = 0; k < result->n && status == TOW_OK; k++) status = drop_unchanged(c, &result->v[k]);
    return status;
}

void tow__cond_transpose(tow__transpose *r)
{
    const tow__equation *e = r->e;
    choice c = {.r = r, .n_in = e->n_in - 1, .n_out = e->n_out};
    c.branches = &((const tow__cond_params *)e->params)->branches;
    c.changed = tow__trace_alloc(r->t, c.n_in, sizeof(bool));
    tow_value *operands = tow__trace_alloc(r->t, 2 * (size_t)e->n_in + e->n_out, sizeof *operands),
              *results = tow__trace_alloc(r->t, e->n_in, sizeof *results);
    tow__cond_params params = {.branches.v = tow__trace_alloc(r->t, c.branches->n, sizeof(tow_graph *))};
    if (!c.changed || !operands || !results || !params.branches.v) return;
    if (transpose_branches(&c, &params.branches) != TOW_OK) tow__adopt_error(r->t);
    size_t n = 0, n_changed = 0;
    operands[n++] = r->x[0];
    for (uint32_t i = 1; i < e->n_in; i++)
        if (!r->linear[i]) operands[n++] = r->x[i];
    for (uint32_t i = 0; i < e->n_out; i++)
        if (!tow_is_null(r->ct[i])) operands[n++] = r->ct[i];
    for (uint32_t i = 0; i < c.n_in; i++) {
        if (has_sum(&c, i)) operands[n++] = r->dx[1 + i];
        n_changed += c.changed[i];
    }
    if (n_changed && !tow__failed(r->t)) tow__bind(r->t, &tow__cond_p, &params, n, operands, n_changed, results);
    for (uint32_t k = 0; k < params.branches.n; k++) tow_graph_release(params.branches.v[k]);
    n = 0;
    for (uint32_t i = 0; i < c.n_in; i++)
        if (c.changed[i]) r->dx[1 + i] = results[n++];
}
