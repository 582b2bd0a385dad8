/* Sums over the processes of a group, as instructions that a run starts and waits for.
 *
 *   all_reduce_start   x -> partial sums, buffer u8[]       starts to exchange with other processes
 *   all_reduce_wait    partial sums, buffer -> sum          waits until the sum is there
 *
 * Both results of a start belong to the exchange until the wait: partial sums change there, and the buffer has what
 * arrives. Nothing else reads them, so they are alive from the start to the wait, and nothing else lies there. All
 * processes start the same sums in the same order, which is that of the graph; waits are where readers are. */
#include "src/ops/collective.h"

#include "src/base/params.h"
#include "src/ops/rules.h"

static bool always(const void *params)
{
    (void)params;
    return true;
}

static void refuse(tow_trace *t, const tow__equation *e, const char *what)
{
    tow_trace_fail(t, TOW_UNSUPPORTED,
                   "%s%sa sum over processes has no %s: differentiate and vectorize the program of the whole batch, "
                   "and cut that into row groups",
                   e->source.scope ? e->source.scope : "", e->source.scope ? ": " : "", what);
}

static void refuse_jvp(tow__jvp *r) { refuse(r->t, r->e, "derivative"); }
static void refuse_batch(tow__batch *r) { refuse(r->t, r->e, "rows"); }

tow_status tow__all_reduce_create(tow_context *ctx, const tow__group_params *params, tow_type type, const char *what,
                                  tow__collective **collective)
{
    tow_group *group = params->group && *params->group ? tow__group_find(ctx, params->group) : NULL;
    *collective = NULL;
    if (!group && params->group && *params->group)
        return tow__fail(ctx, TOW_NOT_FOUND,
                         "the context has no group of processes \"%s\"; make it before, in this context",
                         params->group);
    const bool fits = params->row_groups > 0 && params->row_groups <= TOW__MOST_ROW_GROUPS;
    return tow__collective_create(ctx, group,
                                  &(tow__collective_options){.kind = TOW__ALL_REDUCE,
                                                             .dtype = type.dtype,
                                                             .n = tow_type_element_count(type),
                                                             .row_groups = fits ? (int)params->row_groups : 0,
                                                             .what = what},
                                  collective);
}

static tow_status all_reduce_start_type(const tow__typing *ty)
{
    tow__collective *collective;
    const tow_status status = tow__all_reduce_create(ty->ctx, ty->params, ty->in[0], NULL, &collective);
    if (status != TOW_OK) return status;
    const int64_t bytes = TOW__COLLECTIVE_HEADER + (int64_t)tow__collective_scratch(collective);
    tow__collective_free(collective);
    ty->out[0] = ty->in[0];
    ty->out[1] = tow_make_type(TOW_U8, 1, &bytes);
    return tow__require_valid(ty, ty->out[1]);
}

static tow_status all_reduce_wait_type(const tow__typing *ty)
{
    if (ty->in[1].dtype != TOW_U8 || ty->in[1].rank != 1 || ty->in[1].dims[0] < TOW__COLLECTIVE_HEADER)
        return tow__type_fail(ty, TOW_TYPE_MISMATCH, "expected the buffer of an all_reduce_start, found %s",
                              tow__type_name(ty->in[1]).text);
    ty->out[0] = ty->in[0];
    return TOW_OK;
}

TOW__PRIMITIVE(all_reduce_start, TOW__COMPOSITE, tow__no_tiling, tow__element_cost, .inputs = 1, .outputs = 2,
               .type = all_reduce_start_type, .jvp = refuse_jvp, .batch = refuse_batch, .effect = always, .host = true,
               .varies = true, .aliasing = TOW__ALIAS_FIRST,
               TOW__PARAMS(tow__group_params, TOW__PARAM(tow__group_params, group, TOW__P_STRING),
                           TOW__PARAM(tow__group_params, row_groups, TOW__P_INT)));

TOW__PRIMITIVE(all_reduce_wait, TOW__COMPOSITE, tow__no_tiling, tow__element_cost, .inputs = 2, .outputs = 1,
               .operands = "x, buffer", .type = all_reduce_wait_type, .jvp = refuse_jvp, .batch = refuse_batch,
               .effect = always, .host = true, .varies = true, .aliasing = TOW__ALIAS_FIRST);

tow_value tow__all_reduce(tow_trace *t, const tow_group *group, int64_t row_groups, tow_value x)
{
    if (tow_is_null(x) || tow_group_count(group) == 1) return x;
    const tow__group_params p = {.group = tow_group_name(group), .row_groups = row_groups};
    tow_value started[2] = {tow__null(), tow__null()}, sum = tow__null();
    if (tow__group_find(tow_trace_context(t), p.group) != group) {
        tow_trace_fail(t, TOW_INVALID_ARGUMENT,
                       "group of processes \"%s\": expected the one of this name that was made last in the context of "
                       "the program; make it in this context, and give each group a .name of its own",
                       p.group);
        return sum;
    }
    tow__bind(t, &tow__all_reduce_start_p, &p, 1, &x, 2, started);
    if (!tow__failed(t)) tow__bind(t, &tow__all_reduce_wait_p, NULL, 2, started, 1, &sum);
    return sum;
}
