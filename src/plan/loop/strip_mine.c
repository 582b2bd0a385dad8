/* Strip mining: a scan becomes a scan over strips of iterations, so that values stacked in a strip stay in L2.
 *
 *   scan: carry, xs [iterations, ...]    ──>   scan: carry, xs [strips, iterations of a strip, ...]
 *     carry', y = body                           carry', ys = recorded by the caller for the iterations of a strip
 *   ys [iterations, ...]                       ys [strips, iterations of a strip, ...], reshaped
 *
 * Iterations keep their order, so no bits change. */
#include "src/plan/loop/distribute.h"
#include "tow/ops.h"

static bool has_room(const tow_graph *g, uint32_t first, uint32_t n, const uint32_t *vars)
{
    for (uint32_t i = first; i < n; i++)
        if (g->vars[vars[i]].type.rank + 2 > TOW_MAX_RANK) return false;
    return true;
}

bool tow__can_strip_mine(const tow__scan_params *params)
{
    const tow_graph *g = params->body;
    return has_room(g, (uint32_t)(params->consts + params->carry), g->n_inputs, g->inputs) &&
           has_room(g, (uint32_t)params->carry, g->n_outputs, g->outputs);
}

tow_type tow__row_type(tow_type type) { return tow_make_type(type.dtype, type.rank - 1, type.dims + 1); }

/* x [iterations, ...] as [strips, iterations of a strip, ...]. */
static tow_value cut(tow_value x, int64_t strip)
{
    tow_type type = tow_value_type(x);
    int64_t dims[TOW_MAX_RANK] = {type.dims[0] / strip, strip};
    for (int i = 1; i < type.rank; i++) dims[i + 1] = type.dims[i];
    return tow_reshape(x, type.rank + 1, dims);
}

/* x [strips, iterations of a strip, ...] as [iterations, ...]. */
static tow_value join(tow_value x)
{
    tow_type type = tow_value_type(x);
    int64_t dims[TOW_MAX_RANK] = {type.dims[0] * type.dims[1]};
    for (int i = 2; i < type.rank; i++) dims[i - 1] = type.dims[i];
    return tow_reshape(x, type.rank - 1, dims);
}

void tow__record_strips(tow_trace *t, const tow__equation *scan, const tow__scan_params *params, int64_t iterations,
                        tow__strip_recorder record, const void *user, const tow_value *operands, tow_value *results)
{
    const tow_graph *g = params->body;
    uint32_t first_x = (uint32_t)(params->consts + params->carry);
    tow__scan_params all = *params, strip = *params;
    strip.length = iterations;
    all.length /= iterations;
    if (all.length == 1) {
        record(t, scan, &strip, user, operands, results);
        return;
    }
    tow_value *in = tow__trace_alloc(t, g->n_inputs, sizeof *in), *inner = tow__trace_alloc(t, g->n_inputs, sizeof *in);
    tow_value *out = tow__trace_alloc(t, g->n_outputs, sizeof *out), *captures;
    size_t n_captures;
    if (!in || !inner || !out) return;
    for (uint32_t i = 0; i < g->n_inputs; i++) in[i] = i < first_x ? operands[i] : cut(operands[i], iterations);
    tow__push(t);
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        tow_type type = tow_value_type(in[i]);
        inner[i] = tow__input(t, i < first_x ? type : tow__row_type(type), g->input_names[i]);
    }
    record(t, scan, &strip, user, inner, out);
    all.body = tow__pop(t, g->n_outputs, out, &n_captures, &captures);
    if (!all.body) return;
    tow__set_source(t, &scan->source);
    tow__bind(t, scan->primitive, &all, g->n_inputs, in, g->n_outputs, results);
    tow_graph_release(all.body);
    for (uint32_t i = (uint32_t)params->carry; i < g->n_outputs; i++) results[i] = join(results[i]);
}
