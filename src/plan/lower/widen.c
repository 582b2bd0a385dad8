/* Widening: equations on floats of 16 bits for which there is no kernel, and products that are asked to sum in another
 * type, are recorded in wider types (ops/wide.h), with conversions around them.
 *
 *   y: bf16 = tanh x: bf16   =>   w: f32 = convert x,  v: f32 = tanh w,  y: bf16 = convert v
 *
 * The conversions are instructions as any other: fusion makes them parts of row programs.
 *
 * Products of f32 go the other way: an operand that is a conversion of 16 bits is read as it is stored, and widened by
 * the kernel while it is packed. The bits stay, and no array of f32 exists.
 *
 *   w: f32 = convert k: bf16,  y: f32 = dot_general x, w   =>   y: f32 = dot_general[preferred=f32] x, k */
#include "src/graph/builder.h"
#include "src/graph/region.h"
#include "src/kernels/products/dot.h"
#include "src/ops/wide.h"
#include "src/plan/lower/inline.h"

/* A float type of 16 bits among operands and results; TOW_DTYPE_END: there is none. */
static tow_dtype half_dtype(const tow_graph *g, const tow__equation *e)
{
    for (uint32_t i = 0; i < e->n_in; i++)
        if (tow__is_half(g->vars[e->in[i]].type.dtype)) return g->vars[e->in[i]].type.dtype;
    for (uint32_t i = 0; i < e->n_out; i++)
        if (tow__is_half(g->vars[e->out[i]].type.dtype)) return g->vars[e->out[i]].type.dtype;
    return (tow_dtype)TOW_DTYPE_END;
}

tow_dtype tow__dtype_of_kernel(const tow_graph *g, const tow__equation *e)
{
    if (e->primitive->of_first) return g->vars[e->in[0]].type.dtype;
    const tow_dtype half = half_dtype(g, e);
    if ((int)half < TOW_DTYPE_END) return half;
    if (e->primitive->of_result) return g->vars[e->out[0]].type.dtype;
    for (uint32_t i = 0; i < e->n_in; i++)
        if (tow_dtype_is_float(g->vars[e->in[i]].type.dtype)) return g->vars[e->in[i]].type.dtype;
    return e->n_in + e->n_out > 0 ? g->vars[e->n_in ? e->in[0] : e->out[0]].type.dtype : TOW_F32;
}

/* A region whose nested graphs are instructions of the plan, in their place or as a loop. */
static bool is_region(const tow__equation *e)
{
    return e->primitive->region && e->primitive->region->planned != TOW__AS_PARTS;
}

/* True for a product whose kernel takes operands of 16 bits, sums in f32 and rounds the result itself if that has 16
 * bits. A product over one element or none stays between conversions, as the elementwise one that it becomes. */
static bool sums_halves(const tow_graph *g, const tow__equation *e)
{
    if (!TOW__IS(e, dot_general)) return false;
    const tow__dot_params *p = e->params;
    const tow_type x = g->vars[e->in[0]].type, y = g->vars[e->out[0]].type;
    int64_t k = 1;
    for (int i = 0; i < p->lhs_contract.n; i++) k *= x.dims[p->lhs_contract.v[i]];
    const bool halves = tow__is_half(x.dtype) || tow__is_half(g->vars[e->in[1]].type.dtype);
    return k > 1 && halves && (y.dtype == x.dtype || y.dtype == TOW_F32);
}

/* f32 = convert of 16 bits */
static bool widens(const tow_graph *g, const tow__equation *e)
{
    return TOW__IS(e, convert) && tow__is_half(g->vars[e->in[0]].type.dtype) &&
           g->vars[e->out[0]].type.dtype == TOW_F32;
}

/* Constants, views and names touch no bits. */
static bool is_widened(const tow_graph *g, const tow__equation *e)
{
    if (sums_halves(g, e)) return false;
    if (is_region(e) || e->primitive->kind == TOW__NAME || e->primitive->view) return false;
    if (TOW__IS(e, const) || TOW__IS(e, stop_gradient)) return false;
    if (!tow__may_be_widened(e)) return false;
    if ((int)tow__preferred(e->primitive, e->params) < TOW_DTYPE_END) return true;
    const tow_dtype dtype = tow__dtype_of_kernel(g, e);
    return tow__is_half(dtype) && !tow__kernel_of(e->primitive, dtype);
}

/* Is there anything to widen, here or in a region? */
static bool has_narrow(const tow_graph *g)
{
    for (uint32_t k = 0; k < g->n_equations; k++) {
        const tow__equation *e = &g->equations[k];
        if (is_widened(g, e) || widens(g, e)) return true;
        for (uint32_t i = 0; is_region(e) && i < tow__nested_count(e->primitive, e->params); i++) {
            const tow_graph *nested = tow__nested(e->primitive, e->params, i);
            if (nested && has_narrow(nested)) return true;
        }
    }
    return false;
}

/* A region with nested graphs that are widened. */
static tow_status record_region(tow_trace *t, const tow__equation *e, const tow__team *team, const tow_value *operands,
                                tow_value *results)
{
    const uint32_t n = tow__nested_count(e->primitive, e->params);
    tow_graph **wide = tow__trace_alloc(t, (size_t)n + 1, sizeof *wide);
    void *params;
    tow_status status = wide && tow__params_own(t, e->primitive, e->params, &params) ? TOW_OK : TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < n && status == TOW_OK; i++) {
        const tow_graph *nested = tow__nested(e->primitive, e->params, i);
        if (!nested) continue;
        status = tow__widen_graph(nested, team, &wide[i]);
        if (status == TOW_OK) tow__set_nested(e->primitive, params, i, wide[i]);
    }
    if (status == TOW_OK) tow__bind(t, e->primitive, params, e->n_in, operands, e->n_out, results);
    for (uint32_t i = 0; wide && i < n; i++) tow_graph_release(wide[i]);
    return status;
}

static void record_wide(tow_trace *t, const tow_graph *g, const tow__equation *e, const tow_value *operands,
                        tow_value *results, tow__conversions *conversions)
{
    tow_type *types = tow__trace_alloc(t, (size_t)e->n_out + 1, sizeof *types);
    for (uint32_t i = 0; types && i < e->n_out; i++) types[i] = g->vars[e->out[i]].type;
    if (types && !tow__failed(t))
        tow__bind_wide(t, e, types, operands, results, conversions); /* null values have no shapes */
}

/* Records a product of f32 with the operands that are conversions as they are stored. False: it has none. stored: of
 * each variable that widens 16 bits, what it widens. */
static bool record_stored(tow_trace *t, const tow_graph *g, const tow__equation *e, const tow__team *team,
                          const tow_value *stored, const tow_value *operands, tow_value *results)
{
    if (!TOW__IS(e, dot_general) || g->vars[e->out[0]].type.dtype != TOW_F32) return false;
    tow__dot_params p = *(const tow__dot_params *)e->params;
    tow_value in[2];
    bool any = false;
    int64_t k = 1;
    for (int i = 0; i < 2; i++) {
        const bool is_stored = !tow_is_null(stored[e->in[i]]);
        in[i] = is_stored ? stored[e->in[i]] : operands[i];
        any = any || is_stored;
    }
    for (int i = 0; i < p.lhs_contract.n; i++) k *= g->vars[e->in[0]].type.dims[p.lhs_contract.v[i]];
    const tow_dtype x = tow_value_type(in[0]).dtype, y = tow_value_type(in[1]).dtype;
    if (!any || k <= 1 || (x != y && tow__is_half(x) && tow__is_half(y))) return false;
    if (!tow__dot_has_bits_of_f32(team, &p, tow_value_type(in[0]), tow_value_type(in[1]))) return false;
    p.preferred = 1 + (int64_t)TOW_F32;
    tow__bind(t, e->primitive, &p, 2, in, 1, results);
    return true;
}

static tow_status record_graph(tow_trace *t, const tow_graph *g, const tow__team *team, tow_value *values,
                               tow_value *stored)
{
    tow_status status = TOW_OK;
    tow__conversions conversions = {.n = 0};
    for (uint32_t i = 0; i < g->n_inputs; i++)
        values[g->inputs[i]] = tow__input(t, g->vars[g->inputs[i]].type, g->input_names[i]);
    for (uint32_t k = 0; k < g->n_equations && status == TOW_OK; k++) {
        const tow__equation *e = &g->equations[k];
        tow_value *operands = tow__trace_alloc(t, (size_t)e->n_in + e->n_out + 1, sizeof *operands);
        if (!operands) return TOW_OUT_OF_MEMORY;
        tow_value *results = operands + e->n_in;
        for (uint32_t j = 0; j < e->n_in; j++) operands[j] = values[e->in[j]];
        tow__set_source(t, &e->source);
        if (k > 0 && e->source.phase != g->equations[k - 1].source.phase) conversions.n = 0;
        if (widens(g, e)) stored[e->out[0]] = operands[0];
        if (record_stored(t, g, e, team, stored, operands, results))
            (void)0; /* recorded */
        else if (is_widened(g, e))
            record_wide(t, g, e, operands, results, &conversions);
        else if (is_region(e))
            status = record_region(t, e, team, operands, results);
        else
            tow__rebind(t, e, operands, results);
        for (uint32_t j = 0; j < e->n_out; j++) values[e->out[j]] = results[j];
    }
    tow__set_source(t, NULL);
    return status;
}

tow_status tow__widen_graph(const tow_graph *g, const tow__team *team, tow_graph **result)
{
    *result = NULL;
    if (!has_narrow(g)) {
        *result = tow__graph_share(g);
        return TOW_OK;
    }
    tow_trace *t = tow__trace_begin(g->ctx);
    if (!t) return TOW_OUT_OF_MEMORY;
    tow_value *values = tow__trace_alloc(t, (size_t)g->n_vars + g->n_outputs + 1, sizeof *values);
    tow_value *stored = tow__trace_alloc(t, (size_t)g->n_vars + 1, sizeof *stored);
    tow_status status = values && stored ? record_graph(t, g, team, values, stored) : TOW_OUT_OF_MEMORY;
    if (status != TOW_OK) {
        tow__trace_abandon(t);
        return status;
    }
    tow_value *outputs = values + g->n_vars;
    for (uint32_t i = 0; i < g->n_outputs; i++) outputs[i] = values[g->outputs[i]];
    status = tow__trace_end(t, g->n_outputs, outputs, false, result);
    if (status == TOW_OK) status = tow__verify(*result, "widening");
    if (status == TOW_OK) return TOW_OK;
    tow_graph_release(*result);
    *result = NULL;
    return status;
}
