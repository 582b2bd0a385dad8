/* Parallel: layers side by side, whose results are added, multiplied, joined, or given as they are. */
#include "layers/children.h"
#include "src/scope/tree.h"
#include "tow/numpy.h"

static bool check_options(tow_scope *scope, const tow_parallel *m, size_t n_in, size_t n_out)
{
    size_t outputs = m->combine == TOW_APART ? m->n_branches : 1;
    if (!tow__check_children(scope, "Parallel", "branches", m->n_branches, m->branches) ||
        !tow__check_option(scope, "Parallel", m->combine >= TOW_SUM && m->combine <= TOW_COMBINED_BY, "combine",
                           (double)m->combine, "a tow_combine"))
        return false;
    if ((m->combine == TOW_COMBINED_BY) != (m->function != NULL)) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "Parallel: TOW_COMBINED_BY and .function go together; set both");
        return false;
    }
    if (m->own_inputs && n_in != m->n_branches) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "Parallel: expected an input for each of %zu branches, found %zu",
                       m->n_branches, n_in);
        return false;
    }
    if (n_out == outputs) return true;
    tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "Parallel: expected %zu output%s, found %zu", outputs,
                   outputs == 1 ? "" : "s", n_out);
    return false;
}

/* Results of the shape of the first one, but for `axis` (-1: none). */
static bool check_shapes(tow_scope *scope, const char *how, size_t n, const tow_value *results, int axis)
{
    tow_type first = tow_value_type(results[0]);
    for (size_t i = 1; i < n; i++) {
        tow_type type = tow_value_type(results[i]);
        bool fits = type.rank == first.rank && type.dtype == first.dtype;
        for (int k = 0; k < first.rank && fits; k++) fits = k == axis || type.dims[k] == first.dims[k];
        if (fits) continue;
        tow_scope_fail(scope, TOW_SHAPE_MISMATCH, "Parallel: results of branches 0 and %zu cannot be %s: %s and %s", i,
                       how, tow__type_name(first).text, tow__type_name(type).text);
        return false;
    }
    return true;
}

/* The option .axis as one of `rank` axes; -1 after an error. */
static int read_axis(tow_scope *scope, int given, int rank)
{
    int axis = given == 0 ? -1 : given;
    if (axis < 0) axis += rank;
    if (tow__check_option(scope, "Parallel", axis >= 0 && axis < rank, "axis", given, "an axis of the results"))
        return axis;
    return -1;
}

/* results[i] with an axis of size 1. */
static void add_axis(size_t n, tow_value *results, int axis)
{
    tow_type type = tow_value_type(results[0]);
    int64_t dims[TOW_MAX_RANK + 1];
    for (int i = 0; i <= type.rank; i++) dims[i] = i < axis ? type.dims[i] : i == axis ? 1 : type.dims[i - 1];
    for (size_t i = 0; i < n; i++) results[i] = tow_reshape(results[i], type.rank + 1, dims);
}

static tow_value join(tow_scope *scope, const tow_parallel *m, size_t n, tow_value *results)
{
    bool stack = m->combine == TOW_STACK;
    int axis = read_axis(scope, m->axis, tow_value_type(results[0]).rank + stack);
    if (axis < 0 || !check_shapes(scope, stack ? "stacked" : "concatenated", n, results, stack ? -1 : axis))
        return (tow_value){0};
    if (stack) add_axis(n, results, axis);
    return n == 1 ? results[0] : tow_concatenate(n, results, axis);
}

static tow_value add_up(tow_scope *scope, const tow_parallel *m, size_t n, const tow_value *results)
{
    bool product = m->combine == TOW_PRODUCT;
    if (!check_shapes(scope, product ? "multiplied" : "added", n, results, -1)) return (tow_value){0};
    tow_value sum = results[0];
    for (size_t i = 1; i < n; i++) sum = product ? tow_mul(sum, results[i]) : tow_add(sum, results[i]);
    return m->combine == TOW_MEAN ? tow_div(sum, tow_full_like(sum, (double)n)) : sum;
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_parallel *m = (const tow_parallel *)module;
    if (!check_options(scope, m, n_in, n_out)) return;
    size_t n = m->n_branches;
    tow_value *results = tow__trace_alloc(tow_scope_trace(scope), n, sizeof *results);
    if (!results) return;
    for (size_t i = 0; i < n; i++)
        tow__call_child(scope, "branches", i, m->branches[i], m->own_inputs ? 1 : n_in, m->own_inputs ? &in[i] : in, 1,
                        &results[i]);
    if (tow__scope_failed(scope)) return;
    if (m->combine == TOW_APART) {
        memcpy(out, results, n * sizeof *out);
        return;
    }
    if (m->combine == TOW_COMBINED_BY) {
        out[0] = m->function(scope, n, results, m->user);
        return;
    }
    tow__promote_floats(n, results);
    out[0] = m->combine == TOW_CONCATENATE || m->combine == TOW_STACK ? join(scope, m, n, results)
                                                                      : add_up(scope, m, n, results);
}

const tow_module_class tow_parallel_class = {
    TOW__MADE_BY(TOW_PARALLEL, tow_parallel), .name = "Parallel", .call = call,
    .layout = TOW__LAYOUT_OF(tow_parallel, TOW_MEMBER_LIST(tow_parallel, branches, n_branches))};
