/* Shared by the type rules of regions. */
#include "src/autodiff/regions/types.h"

tow_status tow__body_type(const tow__typing *ty, const tow_graph *body)
{
    if (!body) return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "it has no body");
    tow_status status = tow__require_count(ty, body->n_inputs, body->n_outputs);
    if (status != TOW_OK) return status;
    for (size_t i = 0; i < ty->n_in; i++) {
        tow_type want = tow_graph_input_type(body, i);
        if (!tow_type_equal(ty->in[i], want))
            return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "operand %zu must be %s as input %zu of the body, found %s",
                                  i, tow__type_name(want).text, i, tow__type_name(ty->in[i]).text);
    }
    for (size_t i = 0; i < ty->n_out; i++) ty->out[i] = tow_graph_output_type(body, i);
    return TOW_OK;
}

tow_status tow__inputs_agree(const tow__typing *ty, const tow_graph *body, const char *what, size_t lead, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        tow_type want = tow_graph_input_type(body, i), have = ty->in[i + lead];
        if (!tow_type_equal(want, have))
            return tow__type_fail(ty, TOW_TYPE_MISMATCH, "operand %zu must be %s as input %zu of %s, found %s",
                                  i + lead, tow__type_name(want).text, i, what, tow__type_name(have).text);
    }
    return TOW_OK;
}

tow_status tow__carries_keep_types(const tow__typing *ty, const tow_graph *body, size_t first)
{
    for (size_t i = 0; i < body->n_outputs; i++) {
        tow_type want = tow_graph_input_type(body, first + i), have = tow_graph_output_type(body, i);
        if (!tow_type_equal(want, have))
            return tow__type_fail(ty, TOW_TYPE_MISMATCH,
                                  "carry %zu starts as %s but the body returns %s; a carry must keep its type: convert "
                                  "or reshape one of the two",
                                  i, tow__type_name(want).text, tow__type_name(have).text);
        ty->out[i] = have;
    }
    return TOW_OK;
}

tow_status tow__loop_counts_fit(const tow__typing *ty, int64_t consts, int64_t max_iterations, size_t lead)
{
    if (consts < 0 || (uint64_t)consts + lead + ty->n_out != ty->n_in)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "%lld consts do not fit %zu operands and %zu results",
                              (long long)consts, ty->n_in, ty->n_out);
    if (max_iterations < 0)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "max_iterations must not be negative, found %lld",
                              (long long)max_iterations);
    return TOW_OK;
}
