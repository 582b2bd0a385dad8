/* Calls of host functions, and debug_print. Neither has a derivative; both run on the calling thread, in the order in
 * which they stand, unless the function is pure. */
#include "src/base/host.h"

#include <stdarg.h>

#include "src/base/params.h"
#include "src/ops/batching.h"
#include "src/ops/rules.h"
#include "tow/ops.h"

/* ---- functions of a context -------------------------------------------------------------------------------------- */

const tow__host *tow__host_find(const tow_context *ctx, const char *name)
{
    const tow__host *h = ctx->hosts;
    while (h && strcmp(h->function.name, name) != 0) h = h->next;
    return h;
}

tow_status tow_host_define(tow_context *context, const tow_host_function *function)
{
    if (!context || !function || !function->name || !function->run)
        return tow__missing(context, __func__, "a context and a function with a name");
    if (!*function->name)
        return tow__fail(context, TOW_INVALID_ARGUMENT, "tow_host_define: expected a name, found an empty one");
    const tow__host *known = tow__host_find(context, function->name);
    if (known) {
        const tow_host_function *f = &known->function;
        if (f->run == function->run && f->user == function->user && f->pure == function->pure &&
            f->whole_batch == function->whole_batch)
            return TOW_OK;
        return tow__fail(
            context, TOW_INVALID_ARGUMENT,
            "host function \"%s\": the context knows another function, user or options of this name; choose "
            "another name",
            function->name);
    }
    tow__host *h = tow__arena_alloc(&context->trace_memory, 1, sizeof *h);
    if (!h) return TOW_OUT_OF_MEMORY;
    h->function = *function;
    h->function.name = tow__arena_string(&context->trace_memory, function->name);
    if (!h->function.name) return TOW_OUT_OF_MEMORY;
    h->next = context->hosts;
    context->hosts = h;
    return TOW_OK;
}

tow_status tow_host_fail(const tow_host_call *call, tow_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    status = tow__fail_of_caller(call->context, status, format, args);
    va_end(args);
    return status;
}

void tow_debug_output(tow_context *context, void (*write)(const char *text, size_t length, void *user), void *user)
{
    if (!context) return;
    context->debug_write = write;
    context->debug_user = user;
}

/* ---- call_host --------------------------------------------------------------------------------------------------- */

static bool has_effect(const void *params) { return !((const tow__call_host_params *)params)->pure; }

static tow_status call_host_type(const tow__typing *ty)
{
    const tow__call_host_params *p = ty->params;
    const tow__host *h = p->name ? tow__host_find(ty->ctx, p->name) : NULL;
    if (!h)
        return tow__type_fail(ty, TOW_NOT_FOUND,
                              "the context has no host function \"%s\"; make it known with tow_host_define",
                              p->name ? p->name : "");
    if (h->function.pure != p->pure || h->function.whole_batch != p->whole_batch)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "expected pure=%s whole_batch=%s, as host function \"%s\" is",
                              h->function.pure ? "true" : "false", h->function.whole_batch ? "true" : "false", p->name);
    if (p->results.n != ty->n_out)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "it has types for %u results, found %zu results", p->results.n,
                              ty->n_out);
    for (size_t i = 0; i < ty->n_out; i++) {
        ty->out[i] = p->results.v[i];
        tow_status status = tow__require_valid(ty, ty->out[i]);
        if (status != TOW_OK) return status;
    }
    return TOW_OK;
}

/* Without float results there is nothing that a tangent could reach. */
static void call_host_jvp(tow__jvp *r)
{
    const tow__call_host_params *p = r->e->params;
    bool floats = false;
    for (uint32_t i = 0; i < p->results.n; i++) floats |= tow_dtype_is_float(p->results.v[i].dtype);
    if (!floats) {
        tow__jvp_primal(r);
        return;
    }
    tow_trace_fail(r->t, TOW_UNSUPPORTED,
                   "%s%shost function \"%s\" has no derivative: call it within tow_custom_jvp_function or "
                   "tow_custom_vjp_function, which give it one, or on tow_stop_gradient of its operands",
                   r->e->source.here ? r->e->source.here : "", r->e->source.here ? ": " : "", p->name);
}

/* One call for all rows, or one for each. */
static void call_host_batch(tow__batch *r)
{
    tow__call_host_params p = *(const tow__call_host_params *)r->e->params;
    if (!p.whole_batch) {
        r->looped(r);
        return;
    }
    tow_type *types = tow__trace_alloc(r->t, r->e->n_out, sizeof *types);
    tow_value *in = tow__trace_alloc(r->t, r->e->n_in, sizeof *in),
              *out = tow__trace_alloc(r->t, r->e->n_out, sizeof *out);
    if (!types || !in || !out) return;
    for (uint32_t i = 0; i < r->e->n_in; i++) in[i] = tow__batch_operand(r, i, 0);
    for (uint32_t i = 0; i < r->e->n_out; i++) types[i] = tow__with_axis(r->out[i], 0, r->size);
    p.results.v = types;
    tow__bind(r->t, r->e->primitive, &p, r->e->n_in, in, r->e->n_out, out);
    for (uint32_t i = 0; i < r->e->n_out; i++) r->y[i] = (tow__mapped){.value = out[i], .axis = 0};
}

TOW__PRIMITIVE(call_host, TOW__COMPOSITE, tow__no_tiling, tow__element_cost, .inputs = -1, .outputs = -1,
               .type = call_host_type, .jvp = call_host_jvp, .batch = call_host_batch, .effect = has_effect,
               .host = true,
               TOW__PARAMS(tow__call_host_params, TOW__PARAM(tow__call_host_params, name, TOW__P_STRING),
                           TOW__PARAM(tow__call_host_params, results, TOW__P_TYPES),
                           TOW__PARAM(tow__call_host_params, pure, TOW__P_BOOL),
                           TOW__PARAM(tow__call_host_params, whole_batch, TOW__P_BOOL)));

void tow_call_host(tow_trace *trace, const tow_host_function *function, size_t n_in, const tow_value *x, size_t n_out,
                   const tow_type *types, tow_value *y)
{
    if (!tow__records(trace, NULL)) return;
    if (!function || (n_in && !x) || (n_out && (!types || !y))) {
        tow_trace_fail(
            trace, TOW_INVALID_ARGUMENT,
            "tow_call_host: expected a function, operands, and types and places for results, found NULL; pass "
            "what is missing");
        return;
    }
    if (tow_host_define(tow_trace_context(trace), function) != TOW_OK) {
        tow__adopt_error(trace);
        return;
    }
    const tow__call_host_params p = {.name = function->name,
                                     .results = {.n = (uint32_t)n_out, .v = types},
                                     .pure = function->pure,
                                     .whole_batch = function->whole_batch};
    tow__bind(trace, &tow__call_host_p, &p, n_in, x, n_out, y);
}

/* ---- debug_print ------------------------------------------------------------------------------------------------- */

static bool always(const void *params)
{
    (void)params;
    return true;
}

/* The number of places; false: a brace that is neither a place nor doubled, at *at. */
static bool count_places(const char *format, size_t *n, size_t *at)
{
    *n = 0;
    for (*at = 0; format[*at]; ++*at) {
        const char c = format[*at], next = format[*at + 1];
        if (c != '{' && c != '}') continue;
        const bool place = c == '{' && next == '}';
        if (!place && next != c) return false;
        *n += place;
        ++*at;
    }
    return true;
}

static tow_status debug_print_type(const tow__typing *ty)
{
    const char *format = ((const tow__debug_print_params *)ty->params)->format;
    size_t n, at;
    if (!format) return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "it has no format");
    if (!count_places(format, &n, &at))
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "\"%s\": expected {} for a value, or {{ or }} for a brace, found a single brace at %zu",
                              format, at);
    if (n != ty->n_in)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "\"%s\": it has places for %zu values, found %zu values",
                              format, n, ty->n_in);
    return tow__require_count(ty, n, 0);
}

TOW__PRIMITIVE(debug_print, TOW__COMPOSITE, tow__no_tiling, tow__element_cost, .inputs = -1, .outputs = 0,
               .type = debug_print_type, .effect = always, .host = true,
               TOW__PARAMS(tow__debug_print_params, TOW__PARAM(tow__debug_print_params, format, TOW__P_STRING)));

void tow_debug_print_values(tow_trace *trace, const char *format, size_t n, const tow_value *x)
{
    for (size_t i = 0; x && !trace && i < n; i++) trace = tow_value_trace(x[i]);
    if (!tow__records(trace, NULL)) return;
    if (!format || (n && !x)) {
        tow_trace_fail(trace, TOW_INVALID_ARGUMENT,
                       "tow_debug_print: expected a format and values, found NULL; pass what is missing");
        return;
    }
    const tow__debug_print_params p = {.format = format};
    tow__bind(trace, &tow__debug_print_p, &p, n, x, 0, NULL);
}
