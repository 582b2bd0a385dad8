/* The graph of a part of the rows, and that of all of them: see part.h. */
#include "src/autodiff/rows/part.h"

#include "src/autodiff/rows/rows.h"
#include "src/base/arithmetic.h"
#include "tow/autodiff.h"
#include "tow/ops.h"

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static bool is_power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

static tow_status check_groups(const tow_graph *g, int64_t groups, int64_t count)
{
    if (!is_power_of_two(groups) || !is_power_of_two(count) || count > groups)
        return tow__fail(g->ctx, TOW_INVALID_ARGUMENT,
                         "row groups: expected a power of two, found %lld%s; the tree over groups is a binary one",
                         (long long)groups, count == groups ? "" : " or a part of them");
    return TOW_OK;
}

/* The axis of input i that has the rows, TOW__WHOLE for none. */
static tow_status check_axis(const tow_graph *g, int64_t groups, uint32_t i, int asked, int *axis)
{
    const tow_type type = g->vars[g->inputs[i]].type;
    *axis = TOW__WHOLE;
    if (asked == TOW_NOT_MAPPED) return TOW_OK;
    *axis = asked < 0 ? asked + type.rank : asked;
    if (*axis < 0 || *axis >= type.rank)
        return tow__fail(g->ctx, TOW_INVALID_ARGUMENT,
                         "row groups: input %u is %s, which has no axis %d with the rows of a batch; give one in "
                         "[%d, %d), or TOW_NOT_MAPPED",
                         i, tow__type_name(type).text, asked, -type.rank, type.rank);
    if (type.dims[*axis] % groups == 0) return TOW_OK;
    return tow__fail(g->ctx, TOW_INVALID_ARGUMENT,
                     "row groups: input %u is %s, of which axis %d cannot be cut into %lld groups of one size; take a "
                     "batch that the number of groups divides, or fewer groups",
                     i, tow__type_name(type).text, *axis, (long long)groups);
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

/* Begins the new graph, with the inputs of g in the walk. NULL: an error in the context; the trace is abandoned. */
static tow__row_walk *begin(const tow_graph *g, tow__row_blocks *blocks, const int *in_axes, tow_trace **trace)
{
    tow_trace *t = *trace = tow__trace_begin(g->ctx);
    tow__row_walk *w = t ? tow__rows_begin(t, g, blocks) : NULL;
    tow_status status = w ? TOW_OK : TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < g->n_inputs && status == TOW_OK; i++) {
        tow__row_value *x = &w->values[g->inputs[i]];
        status = check_axis(g, blocks->groups, i, in_axes ? in_axes[i] : 0, &x->axis);
        if (status != TOW_OK) break;
        const tow_type type = tow__rows_type(blocks, g->vars[g->inputs[i]].type, x->axis);
        x->value = tow__input(t, type, g->input_names[i]);
    }
    if (status == TOW_OK) return w;
    tow__trace_abandon(t);
    *trace = NULL;
    return NULL;
}

static tow_status failure(tow_context *ctx)
{
    const tow_status status = tow_context_status(ctx);
    return status == TOW_OK ? TOW_OUT_OF_MEMORY : status;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

tow_status tow__row_axes_of_outputs(const tow_graph *g, const tow__row_share *share, const int *in_axes, int *axes)
{
    tow_status status = check_groups(g, share->groups, share->groups);
    if (status != TOW_OK) return status;
    tow__row_blocks blocks = {.groups = share->groups, .count = share->groups};
    tow_trace *t;
    tow__row_walk *w = begin(g, &blocks, in_axes, &t);
    if (!w) return failure(g->ctx);
    tow__rows_walk(w);
    for (uint32_t i = 0; i < g->n_outputs; i++) axes[i] = w->values[g->outputs[i]].axis;
    status = tow__failed(t) ? failure(g->ctx) : TOW_OK;
    tow__trace_abandon(t);
    return status;
}

tow_status tow__row_groups_whole(const tow_graph *g, const tow__row_share *share, const int *in_axes,
                                 tow_graph **result)
{
    tow_status status = check_groups(g, share->groups, share->count);
    if (status != TOW_OK) return status;
    tow__row_blocks blocks = {.groups = share->groups,
                              .count = share->count,
                              .part = share->group != NULL,
                              .group = share->group,
                              .scatters = share->scatters};
    tow_trace *t;
    tow__row_walk *w = begin(g, &blocks, in_axes, &t);
    if (!w) return failure(g->ctx);
    if (blocks.part) blocks.first = tow_scalar(t, TOW_I32, (double)share->first);
    tow_value *out = tow__trace_alloc(t, (size_t)g->n_outputs + 1, sizeof *out);
    if (out) tow__rows_walk(w);
    for (uint32_t i = 0; out && i < g->n_outputs; i++) out[i] = w->values[g->outputs[i]].value;
    return tow__trace_end(t, out ? g->n_outputs : 0, out, true, result);
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

/* Sums that an output is, or that something reads which waits for all rows. */
static void find_sums(const tow__row_walk *w, bool *needed)
{
    const tow_graph *g = w->g;
    for (uint32_t i = 0; i < g->n_equations; i++) {
        const tow__equation *e = &g->equations[i];
        if (e->n_out == 0 || !w->values[e->out[0]].unknown) continue;
        for (uint32_t k = 0; k < e->n_in; k++) needed[e->in[k]] |= w->values[e->in[k]].sum != NULL;
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) needed[g->outputs[i]] |= w->values[g->outputs[i]].sum != NULL;
}

/* Outputs of the part: those with rows, then sums. */
static bool list_outputs(tow__row_part *p, const tow__row_walk *w, tow_value *out, size_t *n, uint32_t *sums)
{
    const tow_graph *g = w->g;
    bool *needed = tow__trace_alloc(w->t, (size_t)g->n_vars + 1, sizeof *needed);
    if (!needed) return false;
    find_sums(w, needed);
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        const tow__row_value *y = &w->values[g->outputs[i]];
        p->axes[i] = y->axis;
        if (y->axis != TOW__WHOLE) out[(*n)++] = y->value;
    }
    p->n_rows = (uint32_t)*n;
    for (uint32_t v = 0; v < g->n_vars; v++) {
        const bool adds = !tow_is_null(w->values[v].addend);
        if (!needed[v] && !adds) continue;
        p->joins[p->n_sums] = adds ? &tow__add_p : w->values[v].sum;
        sums[p->n_sums++] = v;
        out[(*n)++] = adds ? w->values[v].addend : w->values[v].value;
        p->adds[v] = adds;
    }
    return true;
}

/* (inputs without rows, sums) -> outputs without rows */
static tow_status record_rest(const tow_graph *g, const uint32_t *sums, tow__row_part *p)
{
    tow_trace *t = tow__trace_begin(g->ctx);
    tow_value *values = t ? tow__trace_alloc(t, (size_t)g->n_vars + 1, sizeof *values) : NULL;
    tow_value *addends = t ? tow__trace_alloc(t, (size_t)g->n_vars + 1, sizeof *addends) : NULL;
    tow_value *out = t ? tow__trace_alloc(t, (size_t)g->n_outputs + 1, sizeof *out) : NULL;
    size_t n = 0;
    if (!values || !addends || !out) {
        tow__trace_abandon(t);
        return TOW_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (p->in_axes[i] == TOW__WHOLE)
            values[g->inputs[i]] = tow__input(t, g->vars[g->inputs[i]].type, g->input_names[i]);
    for (uint32_t i = 0; i < p->n_sums; i++) {
        const tow_value sum = tow__input(t, g->vars[sums[i]].type, NULL);
        *(p->adds[sums[i]] ? &addends[sums[i]] : &values[sums[i]]) = sum;
    }
    for (uint32_t i = 0; i < g->n_equations && !tow__failed(t); i++) {
        const tow__equation *e = &g->equations[i];
        bool there = false, all = true;
        for (uint32_t k = 0; k < e->n_out; k++) there |= !tow_is_null(values[e->out[k]]);
        for (uint32_t k = 0; k < e->n_in; k++) all &= !tow_is_null(values[e->in[k]]);
        if (e->n_out == 1 && p->adds[e->out[0]])
            values[e->out[0]] = tow_add(values[e->in[0]], addends[e->out[0]]);
        else if (all && !there)
            tow__rebind_among(t, e, values);
    }
    for (uint32_t i = 0; i < g->n_outputs; i++)
        if (p->axes[i] == TOW__WHOLE) out[n++] = values[g->outputs[i]];
    return tow__trace_end(t, n, out, true, &p->rest);
}

static tow_status create_part(const tow_graph *g, int64_t groups, int64_t count, const int *in_axes, tow__row_part *p)
{
    tow_status status = TOW_OK;
    p->axes = tow__arena_alloc(&p->arena, (size_t)g->n_outputs + 1, sizeof *p->axes);
    p->adds = tow__arena_alloc(&p->arena, (size_t)g->n_vars + 1, sizeof *p->adds);
    p->joins = tow__arena_alloc(&p->arena, (size_t)g->n_vars + 1, sizeof(const tow_primitive *));
    p->in_axes = tow__arena_alloc(&p->arena, (size_t)g->n_inputs + 1, sizeof *p->in_axes);
    if (!p->axes || !p->adds || !p->joins || !p->in_axes) return TOW_OUT_OF_MEMORY;
    tow__row_blocks blocks = {.groups = groups, .count = count, .part = true};
    tow_trace *t;
    tow__row_walk *w = begin(g, &blocks, in_axes, &t);
    if (!w) return failure(g->ctx);
    blocks.first = tow__input(t, tow_make_type(TOW_I32, 0, NULL), NULL);
    const size_t most = (size_t)g->n_outputs + g->n_vars + 1;
    tow_value *out = tow__trace_alloc(t, most, sizeof *out);
    uint32_t *sums = tow__arena_alloc(&p->arena, (size_t)g->n_vars + 1, sizeof *sums);
    size_t n = 0;
    for (uint32_t i = 0; i < g->n_inputs; i++) p->in_axes[i] = w->values[g->inputs[i]].axis;
    if (out && sums) tow__rows_walk(w);
    if (out && sums && !tow__failed(t) && !list_outputs(p, w, out, &n, sums)) n = 0;
    status = tow__trace_end(t, n, out, true, &p->part);
    if (status == TOW_OK && (!out || !sums)) status = TOW_OUT_OF_MEMORY;
    if (status == TOW_OK) status = tow__verify(p->part, "row groups");
    if (status == TOW_OK) status = record_rest(g, sums, p);
    return status;
}

tow_status tow__row_part_create(const tow_graph *g, int64_t groups, int64_t count, const int *in_axes, tow__row_part *p)
{
    tow_graph *moved = NULL;
    *p = (tow__row_part){.ctx = g->ctx};
    tow_status status = check_groups(g, groups, count);
    if (status != TOW_OK) return status;
    tow__arena_init(&p->arena, g->ctx);
    status = tow__rows_move_conversions(g, &moved);
    if (status == TOW_OK) status = create_part(moved, groups, count, in_axes, p);
    tow_graph_release(moved);
    return status;
}

void tow__row_part_free(tow__row_part *p)
{
    tow_graph_release(p->part);
    tow_graph_release(p->rest);
    tow__arena_free(&p->arena);
    *p = (tow__row_part){0};
}
