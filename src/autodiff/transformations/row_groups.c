/* tow_row_groups: the public function over src/autodiff/rows. */
#include "src/autodiff/rows/part.h"
#include "src/autodiff/sharding/sharding.h"
#include "src/base/arithmetic.h"
#include "tow/autodiff.h"

/* Layers that there may be; n 0: all of a value is wanted. */
static tow_status check_layers(const tow_graph *g, const char *what, const uint32_t *vars, size_t n,
                               const int64_t *layers)
{
    for (size_t i = 0; layers && i < n; i++) {
        const tow_type type = g->vars[vars[i]].type;
        if (layers[i] == 0 || (layers[i] > 0 && tow_type_element_count(type) % layers[i] == 0)) continue;
        return tow__fail(g->ctx, TOW_INVALID_ARGUMENT,
                         "row groups: %s %zu: expected a number of layers that divides %s, or 0, found %lld", what, i,
                         tow__type_name(type).text, (long long)layers[i]);
    }
    return TOW_OK;
}

/* Rows are no shares: each process has its own. */
static tow_status check_rows(const tow_graph *g, const char *what, size_t n, const int *axes, const int64_t *layers)
{
    for (size_t i = 0; layers && i < n; i++)
        if (layers[i] > 0 && (!axes || axes[i] != TOW_NOT_MAPPED))
            return tow__fail(g->ctx, TOW_INVALID_ARGUMENT,
                             "row groups: %s %zu: found layers to share of a value that has the rows of the batch; "
                             "give 0 for it",
                             what, i);
    return TOW_OK;
}

/* The graph on shares. */
static tow_status share_values(const tow_graph *graph, const tow__row_share *share, const tow_row_groups_options *o,
                               int64_t parts, tow_graph **result)
{
    const tow_graph *g = graph;
    tow_graph *made = NULL, *blocks = NULL;
    tow__arena memory;
    tow__arena_init(&memory, g->ctx);
    int64_t *none = tow__arena_alloc(&memory, (size_t)g->n_inputs + g->n_outputs + 1, sizeof *none);
    const tow__sharding shards = {share->group, o->in_layers ? o->in_layers : none,
                                  o->out_layers ? o->out_layers : none, false};
    int *axes = tow__arena_alloc(&memory, (size_t)g->n_outputs + 1, sizeof *axes);
    tow_status status = none && axes ? TOW_OK : TOW_OUT_OF_MEMORY;
    if (status == TOW_OK) status = check_layers(g, "input", g->inputs, g->n_inputs, o->in_layers);
    if (status == TOW_OK) status = check_layers(g, "output", g->outputs, g->n_outputs, o->out_layers);
    if (status == TOW_OK) status = check_rows(g, "input", g->n_inputs, o->in_axes, o->in_layers);
    if (status == TOW_OK) status = tow__row_axes_of_outputs(g, share, o->in_axes, axes);
    for (uint32_t i = 0; status == TOW_OK && i < g->n_outputs; i++)
        if (axes[i] == TOW__WHOLE) axes[i] = TOW_NOT_MAPPED;
    if (status == TOW_OK) status = check_rows(g, "output", g->n_outputs, axes, o->out_layers);
    if (status == TOW_OK) status = tow__sharding_blocks(graph, &shards, &blocks);
    if (blocks) g = blocks;
    if (status == TOW_OK && parts > 1)
        status = tow__row_groups_in_parts(g, share, parts, o->in_axes, &shards, result);
    else if (status == TOW_OK)
        status = tow__row_groups_whole(g, share, o->in_axes, &made);
    if (status == TOW_OK && made) status = tow__sharding_graph(made, &shards, result);
    tow_graph_release(made);
    tow_graph_release(blocks);
    tow__arena_free(&memory);
    return status;
}

tow_status tow_row_groups(const tow_graph *graph, const tow_row_groups_options *options, tow_graph **result)
{
    if (result) *result = NULL;
    if (!graph || !result) return tow__missing(tow__context_of(graph), __func__, "a graph and a place for the result");
    tow_row_groups_options own;
    if (!TOW__OPTIONS_TAKE(graph->ctx, tow_row_groups_options, options, &own)) return TOW_INVALID_ARGUMENT;
    const int64_t groups = options && options->groups != 0 ? options->groups : 1;
    const int64_t parts = options && options->micro_batches != 0 ? options->micro_batches : 1;
    const int *in_axes = options ? options->in_axes : NULL;
    const bool shares = options && (options->in_layers || options->out_layers);
    tow__row_share share;
    TOW__ARITHMETIC(false);
    tow_status status = tow__row_share_of(graph->ctx, options ? options->group : NULL, groups, &share);
    share.scatters = options && options->out_layers;
    if (status == TOW_OK)
        status = shares       ? share_values(graph, &share, options, parts, result)
                 : parts == 1 ? tow__row_groups_whole(graph, &share, in_axes, result)
                              : tow__row_groups_in_parts(graph, &share, parts, in_axes, NULL, result);
    if (status == TOW_OK) status = tow__verify(*result, "row groups");
    if (status == TOW_OK) return TOW_OK;
    tow_graph_release(*result);
    *result = NULL;
    return status;
}
