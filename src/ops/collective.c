/* Exchange between the processes of a group, as instructions that a run starts and waits for.
 *
 *   all_reduce_start       x -> partial sums, buffer u8[]       starts to exchange with other processes
 *   all_reduce_wait        partial sums, buffer -> sum          waits until the sum is there
 *   reduce_scatter_start   x [layers, n] -> partial sums, buffer
 *   reduce_scatter_wait    partial sums, buffer -> the process's share of the sum, [layers, n / N]
 *   all_gather_start       share [layers, n / N] -> layers [layers, n], buffer
 *   all_gather_wait        layers, buffer -> layers
 *
 * Parameters `first` and `of` say that the one layer is a window of a longer one: the share of a process is what it has
 * of the window, which may be nothing.
 *
 * Both results of a start belong to the exchange until the wait: partial sums change there, and the buffer has what
 * arrives. Nothing else reads them, so they are alive from the start to the wait, and nothing else lies there. All
 * processes start the same exchanges in the same order, which is that of the graph; waits are where readers are. */
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
                   "%s%s%s over processes has no %s: differentiate and vectorize the program of the whole batch, "
                   "and cut that into row groups",
                   e->source.scope ? e->source.scope : "", e->source.scope ? ": " : "", e->primitive->name, what);
}

static void refuse_jvp(tow__jvp *r) { refuse(r->t, r->e, "derivative"); }
static void refuse_batch(tow__batch *r) { refuse(r->t, r->e, "rows"); }

/* ---- collectives ------------------------------------------------------------------------------------------------- */

/* NULL: the group of one. */
static tow_status find_group(tow_context *ctx, const char *name, tow_group **group)
{
    *group = name && *name ? tow__group_find(ctx, name) : NULL;
    if (*group || !name || !*name) return TOW_OK;
    return tow__fail(ctx, TOW_NOT_FOUND,
                     "the context has no group of processes \"%s\"; make it before, in this context", name);
}

static tow_status sum_of_start(tow_context *ctx, const tow_primitive *p, const tow__group_params *params, tow_type type,
                               const char *what, tow__collective **collective)
{
    const bool fits = params->row_groups > 0 && params->row_groups <= TOW__MOST_ROW_GROUPS;
    const bool scatters = p == &tow__reduce_scatter_start_p;
    const int64_t layers = scatters ? type.dims[0] : 1;
    tow_group *group;
    tow_status status = find_group(ctx, params->group, &group);
    if (status != TOW_OK) return status;
    return tow__collective_create(
        ctx, group,
        &(tow__collective_options){.kind = scatters ? TOW__REDUCE_SCATTER : TOW__ALL_REDUCE,
                                   .dtype = type.dtype,
                                   .n = scatters ? type.dims[1] : tow_type_element_count(type),
                                   .layers = layers,
                                   .row_groups = fits ? (int)params->row_groups : 0,
                                   .window = {params->first, scatters ? params->of : 0},
                                   .what = what},
        collective);
}

static tow_status gather_of_start(tow_context *ctx, const tow__share_params *params, tow_type type, const char *what,
                                  tow__collective **collective)
{
    tow_group *group;
    tow_status status = find_group(ctx, params->group, &group);
    if (status != TOW_OK) return status;
    return tow__collective_create(ctx, group,
                                  &(tow__collective_options){.kind = TOW__ALL_GATHER,
                                                             .dtype = type.dtype,
                                                             .n = params->n,
                                                             .layers = type.dims[0],
                                                             .unit = params->unit,
                                                             .window = {params->first, params->of},
                                                             .what = what},
                                  collective);
}

tow_status tow__collective_of_start(tow_context *ctx, const tow_primitive *primitive, const void *params, tow_type type,
                                    const char *what, tow__collective **collective)
{
    *collective = NULL;
    if (primitive == &tow__all_gather_start_p) return gather_of_start(ctx, params, type, what, collective);
    return sum_of_start(ctx, primitive, params, type, what, collective);
}

bool tow__starts_collective(const tow_primitive *p)
{
    return p == &tow__all_reduce_start_p || p == &tow__reduce_scatter_start_p || p == &tow__all_gather_start_p;
}

bool tow__awaits_collective(const tow_primitive *p)
{
    return p == &tow__all_reduce_wait_p || p == &tow__reduce_scatter_wait_p || p == &tow__all_gather_wait_p;
}

/* ---- types ------------------------------------------------------------------------------------------------------- */

/* Is a layer of n elements a window of one of so many? */
static tow_status check_window(const tow__typing *ty, int64_t n, tow__window window)
{
    if (window.of == 0 && window.first == 0) return TOW_OK;
    if (ty->in[0].dims[0] == 1 && window.first >= 0 && window.of <= INT64_MAX / 2 && n <= window.of &&
        window.first <= window.of - n)
        return TOW_OK;
    return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                          "expected a window of one layer, found elements %lld to %lld of %lld in %s",
                          (long long)window.first, (long long)window.first + (long long)n, (long long)window.of,
                          tow__type_name(ty->in[0]).text);
}

/* Elements of this process's share of a layer. */
static tow_status share_of(const tow__typing *ty, const tow__share_params *params, int64_t *n)
{
    tow_group *group;
    tow_status status = find_group(ty->ctx, params->group, &group);
    if (status != TOW_OK) return status;
    if (params->n < 0 || params->n > INT64_MAX / 2 || params->unit < 0 || params->unit > INT64_MAX / 4)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "expected a number of elements, and a unit, found %lld and %lld", (long long)params->n,
                              (long long)params->unit);
    const tow__window window = {params->first, params->of};
    status = check_window(ty, params->n, window);
    if (status != TOW_OK) return status;
    *n = tow__share_in_window(tow_group_rank(group), tow_group_count(group), params->n, params->unit, window).count;
    return TOW_OK;
}

/* `whole` and the buffer. */
static tow_status start_type(const tow__typing *ty, tow_type whole)
{
    tow__collective *collective;
    const tow_status status =
        tow__collective_of_start(ty->ctx, ty->primitive, ty->params, ty->in[0], NULL, &collective);
    if (status != TOW_OK) return status;
    const int64_t bytes = TOW__COLLECTIVE_HEADER + (int64_t)tow__collective_scratch(collective);
    tow__collective_free(collective);
    ty->out[0] = whole;
    ty->out[1] = tow_make_type(TOW_U8, 1, &bytes);
    const tow_status valid = tow__require_valid(ty, whole);
    return valid == TOW_OK ? tow__require_valid(ty, ty->out[1]) : valid;
}

static tow_status all_reduce_start_type(const tow__typing *ty) { return start_type(ty, ty->in[0]); }

static tow_status reduce_scatter_start_type(const tow__typing *ty)
{
    const tow__group_params *params = ty->params;
    tow_status status = tow__require_rank(ty, 0, 2);
    if (status == TOW_OK) status = check_window(ty, ty->in[0].dims[1], (tow__window){params->first, params->of});
    return status == TOW_OK ? start_type(ty, ty->in[0]) : status;
}

static tow_status all_gather_start_type(const tow__typing *ty)
{
    const tow__share_params *params = ty->params;
    int64_t n;
    tow_status status = tow__require_rank(ty, 0, 2);
    if (status == TOW_OK) status = share_of(ty, params, &n);
    if (status != TOW_OK) return status;
    if (ty->in[0].dims[1] != n)
        return tow__type_fail(ty, TOW_TYPE_MISMATCH, "expected the share of %lld elements, %lld, found %s",
                              (long long)params->n, (long long)n, tow__type_name(ty->in[0]).text);
    return start_type(ty, tow_make_type(ty->in[0].dtype, 2, (int64_t[]){ty->in[0].dims[0], params->n}));
}

static tow_status wait_type(const tow__typing *ty)
{
    if (ty->in[1].dtype != TOW_U8 || ty->in[1].rank != 1 || ty->in[1].dims[0] < TOW__COLLECTIVE_HEADER)
        return tow__type_fail(ty, TOW_TYPE_MISMATCH, "expected the buffer of a start, found %s",
                              tow__type_name(ty->in[1]).text);
    ty->out[0] = ty->in[0];
    return TOW_OK;
}

static tow_status reduce_scatter_wait_type(const tow__typing *ty)
{
    const tow__share_params *params = ty->params;
    int64_t n;
    tow_status status = tow__require_rank(ty, 0, 2);
    if (status == TOW_OK) status = share_of(ty, params, &n);
    if (status == TOW_OK) status = wait_type(ty);
    if (status != TOW_OK) return status;
    if (params->unit != 0)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "expected shares in their usual unit, 0, found %lld",
                              (long long)params->unit);
    if (ty->in[0].dims[1] != params->n)
        return tow__type_fail(ty, TOW_TYPE_MISMATCH, "expected layers of %lld elements, found %s", (long long)params->n,
                              tow__type_name(ty->in[0]).text);
    ty->out[0].dims[1] = n;
    return TOW_OK;
}

/* ---- primitives -------------------------------------------------------------------------------------------------- */

#define COLLECTIVE(name_, inputs_, outputs_, type_, ...)                                                               \
    TOW__PRIMITIVE(name_, TOW__COMPOSITE, tow__no_tiling, tow__element_cost, .inputs = inputs_, .outputs = outputs_,   \
                   .type = type_, .jvp = refuse_jvp, .batch = refuse_batch, .effect = always, .host = true,            \
                   .varies = true, __VA_ARGS__)
#define WINDOW_PARAMS(type) TOW__PARAM(type, first, TOW__P_COUNT), TOW__PARAM(type, of, TOW__P_COUNT)
#define GROUP_PARAMS                                                                                                   \
    TOW__PARAMS(tow__group_params, TOW__PARAM(tow__group_params, group, TOW__P_STRING),                                \
                TOW__PARAM(tow__group_params, row_groups, TOW__P_INT), WINDOW_PARAMS(tow__group_params))
#define SHARE_PARAMS                                                                                                   \
    TOW__PARAMS(tow__share_params, TOW__PARAM(tow__share_params, group, TOW__P_STRING),                                \
                TOW__PARAM(tow__share_params, n, TOW__P_INT), TOW__PARAM(tow__share_params, unit, TOW__P_COUNT),       \
                WINDOW_PARAMS(tow__share_params))

COLLECTIVE(all_reduce_start, 1, 2, all_reduce_start_type, .aliasing = TOW__ALIAS_FIRST, GROUP_PARAMS);
COLLECTIVE(all_reduce_wait, 2, 1, wait_type, .operands = "x, buffer", .aliasing = TOW__ALIAS_FIRST);
COLLECTIVE(reduce_scatter_start, 1, 2, reduce_scatter_start_type, .aliasing = TOW__ALIAS_FIRST, GROUP_PARAMS);
COLLECTIVE(reduce_scatter_wait, 2, 1, reduce_scatter_wait_type, .operands = "x, buffer", SHARE_PARAMS);
COLLECTIVE(all_gather_start, 1, 2, all_gather_start_type, SHARE_PARAMS);
COLLECTIVE(all_gather_wait, 2, 1, wait_type, .operands = "x, buffer", .aliasing = TOW__ALIAS_FIRST);

/* ---- recording --------------------------------------------------------------------------------------------------- */

/* Has x to be exchanged, with the group that its name means? */
static bool is_exchanged(tow_trace *t, const tow_group *group, tow_value x)
{
    if (tow_is_null(x) || tow_group_count(group) == 1) return false;
    if (tow__group_find(tow_trace_context(t), tow_group_name(group)) == group) return true;
    tow_trace_fail(t, TOW_INVALID_ARGUMENT,
                   "group of processes \"%s\": expected the one of this name that was made last in the context of "
                   "the program; make it in this context, and give each group a .name of its own",
                   tow_group_name(group));
    return false;
}

/* A start and its wait. */
static tow_value exchange(tow_trace *t, const tow_primitive *start, const void *params, const tow_primitive *wait,
                          const void *wait_params, tow_value x)
{
    tow_value started[2] = {tow__null(), tow__null()}, result = tow__null();
    tow__bind(t, start, params, 1, &x, 2, started);
    if (!tow__failed(t)) tow__bind(t, wait, wait_params, 2, started, 1, &result);
    return result;
}

tow_value tow__all_reduce(tow_trace *t, const tow_group *group, int64_t row_groups, tow_value x)
{
    if (!is_exchanged(t, group, x)) return tow__failed(t) ? tow__null() : x;
    const tow__group_params p = {.group = tow_group_name(group), .row_groups = row_groups};
    return exchange(t, &tow__all_reduce_start_p, &p, &tow__all_reduce_wait_p, NULL, x);
}

tow_value tow__reduce_scatter(tow_trace *t, const tow_group *group, int64_t row_groups, tow_value x, tow__window window)
{
    if (!is_exchanged(t, group, x)) return tow__failed(t) ? tow__null() : x;
    const tow__group_params p = {tow_group_name(group), row_groups, window.first, window.of};
    const tow__share_params share = {p.group, tow_value_type(x).dims[1], 0, window.first, window.of};
    return exchange(t, &tow__reduce_scatter_start_p, &p, &tow__reduce_scatter_wait_p, &share, x);
}

tow_value tow__all_gather(tow_trace *t, const tow_group *group, int64_t n, int64_t unit, tow_value x,
                          tow__window window)
{
    if (!is_exchanged(t, group, x)) return tow__failed(t) ? tow__null() : x;
    const tow__share_params p = {tow_group_name(group), n, unit, window.first, window.of};
    return exchange(t, &tow__all_gather_start_p, &p, &tow__all_gather_wait_p, NULL, x);
}
