/* tow_row_groups: the public function over src/autodiff/rows. */
#include "src/autodiff/rows/part.h"
#include "src/base/arithmetic.h"
#include "tow/autodiff.h"

tow_status tow_row_groups(const tow_graph *graph, const tow_row_groups_options *options, tow_graph **result)
{
    if (result) *result = NULL;
    if (!graph || !result) return tow__missing(tow__context_of(graph), __func__, "a graph and a place for the result");
    tow_row_groups_options own;
    if (!TOW__OPTIONS_TAKE(graph->ctx, tow_row_groups_options, options, &own)) return TOW_INVALID_ARGUMENT;
    const int64_t groups = options && options->groups != 0 ? options->groups : 1;
    const int64_t parts = options && options->micro_batches != 0 ? options->micro_batches : 1;
    const int *in_axes = options ? options->in_axes : NULL;
    tow__row_share share;
    TOW__ARITHMETIC(false);
    tow_status status = tow__row_share_of(graph->ctx, options ? options->group : NULL, groups, &share);
    if (status == TOW_OK)
        status = parts == 1 ? tow__row_groups_whole(graph, &share, in_axes, result)
                            : tow__row_groups_in_parts(graph, &share, parts, in_axes, result);
    if (status == TOW_OK) status = tow__verify(*result, "row groups");
    if (status == TOW_OK) return TOW_OK;
    tow_graph_release(*result);
    *result = NULL;
    return status;
}
