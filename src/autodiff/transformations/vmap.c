/* tow_vmap: the public function over batching (batch.c), with its checks of axes. */
#include "src/autodiff/batch.h"
#include "src/autodiff/regions/record.h"
#include "src/base/arithmetic.h"
#include "src/ops/rules.h"

/* axis of an array of `rank` axes made non-negative, or TOW__UNBATCHED for TOW_NOT_MAPPED; false if it has no such
 * axis. */
static bool mapped_axis(int axis, int rank, int *result)
{
    *result = TOW__UNBATCHED;
    if (axis == TOW_NOT_MAPPED) return true;
    if (axis < -rank || axis >= rank) return false;
    *result = axis < 0 ? axis + rank : axis;
    return true;
}

/* Output i with its batch axis where the caller wants it. */
static tow_value place_output(tow_trace *t, int64_t size, uint32_t i, tow__mapped x, int axis)
{
    if (tow_is_null(x.value)) return x.value;
    tow_type type = tow_value_type(x.value);
    int rank = tow__is_batched(x) ? type.rank : type.rank + 1, at;
    if (!mapped_axis(axis, rank, &at))
        tow_trace_fail(
            t, TOW_INVALID_ARGUMENT,
            "vmap: the rows of output %u make an array of rank %d, which has no axis %d to stack them along; "
            "give one in [%d, %d)",
            i, rank, axis, -rank, rank);
    else if (at == TOW__UNBATCHED && tow__is_batched(x))
        tow_trace_fail(t, TOW_INVALID_ARGUMENT,
                       "vmap: output %u differs between rows (all together: %s), but its axis is TOW_NOT_MAPPED; say "
                       "along which axis its rows are stacked",
                       i, tow__type_name(type).text);
    else
        return at == TOW__UNBATCHED ? x.value : tow__batched_at(x, size, at);
    return (tow_value){0};
}

/* Records for all rows a function that was traced. in: [g->n_inputs]; out_axes as in tow_vmap. */
static void record_rows(tow_trace *t, const tow_graph *g, int64_t size, const tow__mapped *in, const int *out_axes,
                        tow_value *out)
{
    tow__mapped *results = tow__trace_alloc(t, g->n_outputs, sizeof *results);
    if (!results) return;
    tow__batch_inline(t, g, NULL, size, in, results);
    for (uint32_t i = 0; i < g->n_outputs && !tow__failed(t); i++)
        out[i] = place_output(t, size, i, results[i], out_axes ? out_axes[i] : 0);
}

/* Input i of the batched graph. */
static tow__mapped map_input(tow_trace *t, const tow_graph *g, int64_t size, uint32_t i, int axis)
{
    tow_type type = g->vars[g->inputs[i]].type;
    tow__mapped x = {.axis = TOW__UNBATCHED};
    if (!mapped_axis(axis, type.rank + 1, &x.axis)) {
        tow_trace_fail(t, TOW_INVALID_ARGUMENT,
                       "vmap: rows %s of input %u make an array of rank %d, which has no axis %d to map over; give "
                       "one in [%d, %d), or TOW_NOT_MAPPED",
                       tow__type_name(type).text, i, type.rank + 1, axis, -type.rank - 1, type.rank + 1);
    } else if (tow__is_batched(x) && type.rank == TOW_MAX_RANK) {
        tow_trace_fail(t, TOW_UNSUPPORTED,
                       "vmap: input %u is %s for one row, so for all rows it would have rank %d; reshape it to a "
                       "smaller rank",
                       i, tow__type_name(type).text, type.rank + 1);
    } else {
        if (tow__is_batched(x)) type = tow__with_axis(type, x.axis, size);
        x.value = tow__input(t, type, g->input_names[i]);
    }
    return x;
}

/* A loop over rows may be one level too many. */
static tow_status check_depth(tow_graph *g)
{
    if (g->depth <= TOW__DEEPEST_GRAPH) return TOW_OK;
    return tow__fail(g->ctx, TOW_UNSUPPORTED,
                     "vmap: loops over the rows nest graphs %u levels deep; expected no more than %d levels", g->depth,
                     TOW__DEEPEST_GRAPH);
}

tow_status tow_vmap(const tow_graph *graph, int64_t size, const int *in_axes, const int *out_axes, tow_graph **result)
{
    if (result) *result = NULL;
    if (!graph || !result) return tow__missing(tow__context_of(graph), __func__, "a graph and a place for the result");
    if (size < 0)
        return tow__fail(graph->ctx, TOW_INVALID_ARGUMENT, "vmap: the size is %lld, expected 0 or more",
                         (long long)size);
    TOW__ARITHMETIC(false);
    tow_trace *t = tow__trace_begin(graph->ctx);
    if (!t) return TOW_OUT_OF_MEMORY;
    tow__mapped *in = tow__trace_alloc(t, graph->n_inputs, sizeof *in);
    tow_value *out = tow__trace_alloc(t, graph->n_outputs, sizeof *out);
    for (uint32_t i = 0; in && out && i < graph->n_inputs && !tow__failed(t); i++)
        in[i] = map_input(t, graph, size, i, in_axes ? in_axes[i] : 0);
    if (in && out && !tow__failed(t)) record_rows(t, graph, size, in, out_axes, out);
    tow_status status = tow__trace_end(t, out ? graph->n_outputs : 0, out, true, result);
    if (status == TOW_OK) status = tow__verify(*result, "vmap");
    if (status == TOW_OK) status = check_depth(*result);
    if (status == TOW_OK) return TOW_OK;
    tow_graph_release(*result);
    *result = NULL;
    return status;
}

/* ---- of a C function --------------------------------------------------------------------------------------------- */

/* Inputs with their batch axes, and the types of their rows. */
typedef struct mapped_inputs {
    tow__mapped *x;
    tow_type *rows;
    int64_t size; /* of the batch axes; -1: no input has one */
    size_t sized; /* the input that says so */
} mapped_inputs;

static bool read_input(tow_trace *t, const tow_vmap_options *options, size_t i, tow_value value, mapped_inputs *in)
{
    tow_type type = tow_value_type(value);
    int axis = options && options->in_axes ? options->in_axes[i] : 0, at;
    if (!mapped_axis(axis, type.rank, &at)) {
        tow_trace_fail(
            t, TOW_INVALID_ARGUMENT,
            "vmap: input %zu is %s, which has no axis %d to map over; give one in [%d, %d), or TOW_NOT_MAPPED", i,
            tow__type_name(type).text, axis, -type.rank, type.rank);
        return false;
    }
    in->x[i] = (tow__mapped){.value = value, .axis = at};
    in->rows[i] = type;
    if (at == TOW__UNBATCHED) return true;
    int64_t size = type.dims[at];
    if (in->size >= 0 && size != in->size) {
        bool given = in->sized == SIZE_MAX;
        tow_trace_fail(t, TOW_SHAPE_MISMATCH,
                       "vmap: input %zu is %s, so axis %d has %lld rows, but %s %lld; mapped axes have one size: make "
                       "them equal, or give TOW_NOT_MAPPED for an input that all rows share",
                       i, tow__type_name(type).text, at, (long long)size,
                       given ? "the size in the options is" : "an earlier input has", (long long)in->size);
        return false;
    }
    if (in->size < 0) in->sized = i;
    in->size = size;
    in->rows[i] = tow__without_axes(type, &(tow__ints){.n = 1, .v = {at}});
    return true;
}

/* False on a sticky error. */
static bool read_inputs(tow_trace *t, const tow_vmap_options *options, size_t n, const tow_value *values,
                        mapped_inputs *in)
{
    const bool given = options && (options->has_axis_size || (options->axis_size != 0 && options->axis_size != -1));
    *in = (mapped_inputs){.x = tow__trace_alloc(t, n, sizeof *in->x),
                          .rows = tow__trace_alloc(t, n, sizeof *in->rows),
                          .size = given ? options->axis_size : -1,
                          .sized = SIZE_MAX};
    if (!in->x || !in->rows) return false;
    if (given && options->axis_size < 0) {
        tow_trace_fail(t, TOW_INVALID_ARGUMENT, "vmap: the size is %lld, expected 0 or more",
                       (long long)options->axis_size);
        return false;
    }
    for (size_t i = 0; i < n; i++)
        if (!read_input(t, options, i, values[i], in)) return false;
    if (in->size < 0)
        tow_trace_fail(t, TOW_INVALID_ARGUMENT,
                       "vmap: no input is mapped, so the number of rows is unknown; map one, or give a size");
    return in->size >= 0;
}

void tow_vmap_function(tow_trace *trace, tow_function function, void *user, const tow_vmap_options *options,
                       size_t n_inputs, const tow_value *inputs, size_t n_outputs, tow_value *outputs)
{
    const tow_value *operands = tow__operands_of(trace, "vmap", function != NULL, (tow__listed){n_inputs, inputs},
                                                 (tow__listed){0}, (tow__listed){n_outputs, outputs}, (tow__listed){0});
    mapped_inputs in;
    tow__traced_body b = {0};
    tow__clear(n_outputs, outputs);
    tow_vmap_options own;
    if (!TOW__TRACE_OPTIONS(trace, tow_vmap_options, options, &own)) return;
    if (!operands || !read_inputs(trace, options, n_inputs, operands, &in)) return;
    if (!tow__trace_body(trace, function, user, n_inputs, in.rows, n_outputs, &b)) return;
    tow__mapped *all = tow__trace_alloc(trace, b.graph->n_inputs, sizeof *all);
    for (size_t i = 0; all && i < b.n_captures; i++)
        all[i] = (tow__mapped){.value = b.captures[i], .axis = TOW__UNBATCHED};
    if (all && n_inputs) memcpy(all + b.n_captures, in.x, n_inputs * sizeof *in.x);
    if (all) record_rows(trace, b.graph, in.size, all, options ? options->out_axes : NULL, outputs);
    tow_graph_release(b.graph);
}
