/* Equations on floats of 16 bits, and products that sum in another type than that of their operands. */
#include "src/ops/wide.h"

#include "src/ops/rules.h"

tow_dtype tow__half_among(size_t n, const tow_type *types)
{
    for (size_t i = 0; i < n; i++)
        if (tow__is_half(types[i].dtype)) return types[i].dtype;
    return (tow_dtype)TOW_DTYPE_END;
}

tow_dtype tow__preferred(const tow_primitive *primitive, const void *params)
{
    for (const tow__param *p = primitive->params; p && p->name; p++) {
        const int64_t *field = (const void *)((const char *)params + p->offset);
        if (p->kind == TOW__P_SUM_DTYPE && *field != 0) return (tow_dtype)(*field - 1);
    }
    return (tow_dtype)TOW_DTYPE_END;
}

bool tow__may_be_widened(const tow__equation *e)
{
    return !e->primitive->definition && tow__nested_count(e->primitive, e->params) == 0;
}

/* The parameters for operands that have been converted. of_halves: some had 16 bits. */
static void *wide_params(tow_trace *t, const tow__equation *e, bool of_halves)
{
    char *params = tow__trace_alloc(t, 1, e->primitive->params_size);
    if (!params || !e->params) return params;
    memcpy(params, e->params, e->primitive->params_size);
    for (const tow__param *p = e->primitive->params; p && p->name; p++) {
        tow_dtype dtype;
        if (p->kind == TOW__P_SUM_DTYPE) memset(params + p->offset, 0, sizeof(int64_t));
        if (p->kind == TOW__P_OF_HALVES) memcpy(params + p->offset, &(int64_t){of_halves}, sizeof(int64_t));
        if (p->kind != TOW__P_DTYPE) continue;
        memcpy(&dtype, params + p->offset, sizeof dtype);
        dtype = tow__wide(dtype);
        memcpy(params + p->offset, &dtype, sizeof dtype);
    }
    return params;
}

static tow_value convert_once(tow_value x, tow_dtype dtype, tow__conversions *c)
{
    enum {
        N = sizeof c->last / sizeof *c->last
    };
    if (tow__dtype(x) == dtype) return x;
    if (!c) return tow_convert(x, dtype);
    for (uint32_t i = 0; i < N && i < c->n; i++)
        if (c->last[i].from.id == x.id && tow__dtype(c->last[i].to) == dtype) return c->last[i].to;
    const uint32_t at = c->n++ % N;
    c->last[at].from = x;
    return c->last[at].to = tow_convert(x, dtype);
}

/* The operands of the equation in the types in which it is computed. NULL: the trace has failed. */
static tow_value *widened(tow_trace *t, const tow__equation *e, const tow_value *x, tow__conversions *conversions)
{
    const tow_dtype preferred = tow__preferred(e->primitive, e->params);
    tow_value *wide = tow__trace_alloc(t, e->n_in, sizeof *wide);
    for (uint32_t i = 0; wide && i < e->n_in; i++) {
        const tow_dtype dtype = tow__dtype(x[i]);
        wide[i] = convert_once(x[i], tow__wide((int)preferred < TOW_DTYPE_END ? preferred : dtype), conversions);
    }
    return tow__failed(t) ? NULL : wide; /* null values have no shapes */
}

static bool any_half(uint32_t n, const tow_value *x)
{
    for (uint32_t i = 0; i < n; i++)
        if (tow__is_half(tow__dtype(x[i]))) return true;
    return false;
}

static void narrow(uint32_t n, const tow_type *types, tow_value *y)
{
    for (uint32_t i = 0; i < n; i++)
        if (!tow_is_null(y[i])) y[i] = tow_convert(y[i], types[i].dtype);
}

void tow__bind_wide(tow_trace *t, const tow__equation *e, const tow_type *out, const tow_value *x, tow_value *y,
                    tow__conversions *conversions)
{
    const tow_value *wide = widened(t, e, x, conversions);
    const void *params = wide ? wide_params(t, e, any_half(e->n_in, x)) : NULL;
    if (!params) return;
    tow__bind(t, e->primitive, params, e->n_in, wide, e->n_out, y);
    narrow(e->n_out, out, y);
}

void tow__decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    const tow_primitive *p = e->primitive;
    tow_type *types = tow__trace_alloc(t, (size_t)e->n_in + e->n_out, sizeof *types), *out = types + e->n_in;
    if (!types) return;
    for (uint32_t i = 0; i < e->n_in; i++) types[i] = tow_value_type(x[i]);
    const bool halves = (int)tow__half_among(e->n_in, types) < TOW_DTYPE_END;
    if (!halves || !tow__may_be_widened(e)) {
        p->decompose(t, e, x, y);
        return;
    }
    const tow_value *wide = widened(t, e, x, NULL);
    if (!wide || tow__infer(t, p, e->params, e->n_in, types, e->n_out, out) != TOW_OK) return;
    p->decompose(t, e, wide, y);
    narrow(e->n_out, out, y);
}
