/* See calls.h. */
#include "src/scope/calls.h"

#include <stdio.h>

#include "src/scope/frames.h"
#include "src/scope/tree.h"

/* ---- the list ---------------------------------------------------------------------------------------------------- */

static const tow_type *types_of(tow__call_log *log, size_t n, const tow_value *values)
{
    tow_type *types = tow__arena_alloc(log->arena, n + 1, sizeof *types);
    for (size_t i = 0; types && i < n; i++) types[i] = tow_value_type(values[i]);
    return types;
}

/* A new entry. False: out of memory. */
static bool add_layer(tow__call_log *log, const char *path, const char *name, size_t n_in, const tow_value *in)
{
    const size_t index = log->paths.count;
    if (index == log->capacity) {
        const size_t capacity = index ? 2 * index : 32;
        tow__called *layers = tow__grow(log->ctx, log->layers, log->capacity, capacity, sizeof *layers);
        if (!layers) return false;
        log->layers = layers;
        log->capacity = capacity;
    }
    tow__called *l = &log->layers[index];
    *l = (tow__called){.path = tow__arena_string(log->arena, path),
                       .name = tow__arena_string(log->arena, name),
                       .n_in = n_in,
                       .in = types_of(log, n_in, in)};
    return l->path && l->name && l->in && tow__names_add(&log->paths, path) != TOW__NO_NAME;
}

/* "Remat" becomes "Remat(Dense)", and "Remat(Scan)" becomes "Remat(Scan(Dense))". A second call by one wrapper, as a
 * choice has them, makes "Cond(Dense, MLP)". around: calls in the same scope that have not returned. */
static bool add_wrapped(tow__call_log *log, tow__called *l, const char *name, size_t around, bool second)
{
    const char *before = second ? ", " : "(", *behind = second ? "" : ")";
    const size_t closing = second ? around : around - 1, old = strlen(l->name) - closing;
    const size_t size = strlen(l->name) + strlen(name) + 4;
    char *text = tow__arena_alloc(log->arena, size, 1);
    if (!text) return false;
    snprintf(text, size, "%.*s%s%s%s%s", (int)old, l->name, before, name, behind, l->name + old);
    l->name = text;
    return true;
}

/* A call begins. around: calls in the same scope that have not returned; second: the innermost of them called another
 * layer before. */
static bool log_call(tow__call_log *log, const char *path, const char *name, size_t around, bool second, size_t n_in,
                     const tow_value *in)
{
    const uint32_t index = tow__names_find(&log->paths, path);
    if (index == TOW__NO_NAME) return add_layer(log, path, name, n_in, in);
    /* A wrapper that was called before has its name already. */
    return around == 0 || log->layers[index].calls > 0 || add_wrapped(log, &log->layers[index], name, around, second);
}

static bool log_return(tow__call_log *log, const char *path, size_t n_out, const tow_value *out)
{
    const uint32_t index = tow__names_find(&log->paths, path);
    if (index == TOW__NO_NAME) return true;
    tow__called *l = &log->layers[index];
    if (l->calls++ > 0) return true;
    l->n_out = n_out;
    l->out = types_of(log, n_out, out);
    return l->out != NULL;
}

void tow__call_log_free(tow__call_log *log)
{
    if (log->layers) tow__free(log->ctx, log->layers, log->capacity, sizeof *log->layers);
    tow__names_free(&log->paths);
}

/* ---- capturing --------------------------------------------------------------------------------------------------- */

/* method: NULL for the layer's own call */
static void capture(tow_scope *scope, const char *method, size_t n_out, const tow_value *out)
{
    tow__model *m = scope->model;
    bool wanted = false;
    const size_t size = method ? strlen(scope->path) + strlen(method) + 2 : 0;
    char *called = m->capture && method ? tow__trace_alloc(m->trace, size, 1) : NULL;
    if (m->capture && method && !called) return;
    if (called) snprintf(called, size, "%s:%s", scope->path, method);
    for (size_t i = 0; m->capture && m->capture[i]; i++) {
        if (!tow_path_matches(m->capture[i], called ? called : scope->path)) continue;
        if (tow__unreturned(m) || m->frame->silent) {
            if (!m->captured[i].hidden) m->captured[i].hidden = scope->path;
            continue;
        }
        m->captured[i].done = true;
        wanted = true;
    }
    for (size_t i = 0; wanted && i < n_out; i++)
        tow_sow(scope, TOW_INTERMEDIATES, method ? method : "__call__", out[i]);
}

void tow__capture_method(tow_scope *scope, const char *name, size_t n_out, const tow_value *out)
{
    tow__layer_call *call = scope->model->open_call;
    while (call->outer && strcmp(call->outer->path, scope->path) == 0) call = call->outer;
    call->method = true;
    if (!tow__scope_failed(scope)) capture(scope, name, n_out, out);
}

void tow__check_captured(tow__model *m)
{
    for (size_t i = 0; m->capture && m->capture[i] && !tow__failed(m->trace); i++)
        if (!m->captured[i].done && m->captured[i].hidden)
            tow_trace_fail(
                m->trace, TOW_UNSUPPORTED,
                "capture: \"%.200s\" matches %.200s, which is called inside a function given to an operation "
                "(tow_remat_function, tow_cond_function, tow_vmap_function or the like) or the condition of a "
                "while, which hand out only their own outputs; use the layers TOW_REMAT, TOW_SCAN and TOW_COND, or "
                "make the value one of these outputs",
                m->capture[i], m->captured[i].hidden);
        else if (!m->captured[i].done)
            tow_trace_fail(m->trace, TOW_NOT_FOUND,
                           "capture: \"%.200s\" matches the path of no layer that is called; paths are those of "
                           "tow_model_summary, \"blocks/{}/attn\" for layers in a scan, \"decoder:generate\" for a "
                           "method with a name",
                           m->capture[i]);
}

/* ---- around a call ----------------------------------------------------------------------------------------------- */

static void begin_call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in,
                       tow__layer_call *call)
{
    tow__model *m = scope->model;
    *call = (tow__layer_call){.outer = m->open_call, .path = scope->path};
    const bool wrapped = call->outer && strcmp(call->outer->path, scope->path) == 0;
    const bool second = wrapped && call->outer->wraps;
    m->open_call = call;
    if (wrapped) {
        call->around = call->outer->around + 1;
        call->outer->wraps = true;
    }
    if (m->log && !log_call(m->log, scope->path, module->cls->name, call->around, second, n_in, in))
        tow_scope_fail(scope, TOW_OUT_OF_MEMORY, "no memory for the list of layers");
}

static void end_call(tow_scope *scope, tow__layer_call *call, size_t n_out, const tow_value *out, bool succeeded)
{
    tow__model *m = scope->model;
    m->open_call = call->outer;
    if (!succeeded) return;
    const bool wrapped = call->outer && strcmp(call->outer->path, scope->path) == 0;
    if (m->log && !wrapped && !log_return(m->log, scope->path, n_out, out))
        tow_scope_fail(scope, TOW_OUT_OF_MEMORY, "no memory for the list of layers");
    if (!wrapped && !call->method) capture(scope, NULL, n_out, out);
}

/* ---- layers of other versions ------------------------------------------------------------------------------------ */

const tow_module *tow__read_layer(tow_scope *scope, const tow_module *module)
{
    const tow_module_class *cls = module->cls;
    char text[320];
    if (!cls || !cls->macro || module->size == cls->size) return module;
    if (tow__layer_fault(module, text, sizeof text) > 0) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "%s", text);
        return NULL;
    }
    tow_module *own = tow__trace_alloc(scope->model->trace, 1, cls->size);
    if (!own) return NULL;
    tow__struct_copy(&(const tow__struct_kind){.size = cls->size}, module, module->size, own);
    own->size = cls->size;
    return own;
}

/* ---- calling layers ---------------------------------------------------------------------------------------------- */

void tow__call_here(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                    tow_value *out)
{
    for (size_t i = 0; out && i < n_out; i++) out[i] = (tow_value){0};
    if (tow__scope_failed(scope) || tow__too_deep(scope, scope->model->calls + 1)) return;
    if (!module) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "expected a layer, found NULL; pass one");
        return;
    }
    if (!module->cls || !module->cls->name || !module->cls->call) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "the layer has no class with a name and a call; make it with its macro, for instance "
                       "TOW_DENSE(.features = 8)");
        return;
    }
    module = tow__read_layer(scope, module);
    if (!module) return;
    if ((!in && n_in > 0) || (!out && n_out > 0)) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "%s: expected %zu inputs and places for %zu outputs, found NULL; pass what is missing",
                       module->cls->name, n_in, n_out);
        return;
    }
    for (size_t i = 0; i < n_in; i++) {
        if (tow_is_null(in[i]))
            tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "%s: input %zu is %s; expected a traced value",
                           module->cls->name, i, tow__null_text(in[i], "the null value"));
        if (!tow__is_current(scope->model->trace, in[i])) return;
    }
    tow__layer_call call;
    begin_call(scope, module, n_in, in, &call);
    scope->model->calls++;
    module->cls->call(scope, module, n_in, in, n_out, out);
    scope->model->calls--;
    for (size_t i = 0; i < n_out && !tow__scope_failed(scope); i++)
        if (tow_is_null(out[i]))
            tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                           "%s did not write output %zu of %zu; ask for as many outputs as the layer gives",
                           module->cls->name, i, n_out);
    end_call(scope, &call, n_out, out, !tow__scope_failed(scope));
    for (size_t i = 0; i < n_out && tow__scope_failed(scope); i++) out[i] = (tow_value){0};
}

void tow_apply_module_n(tow_scope *scope, const char *name, const tow_module *module, size_t n_in, const tow_value *in,
                        size_t n_out, tow_value *out)
{
    tow_scope *child = tow_scope_begin(scope, name);
    tow__call_here(child, module, n_in, in, n_out, out);
    tow_scope_end(child);
}

tow_value tow_apply_module(tow_scope *scope, const char *name, const tow_module *module, tow_value x)
{
    tow_value out;
    tow_apply_module_n(scope, name, module, 1, &x, 1, &out);
    return out;
}

void tow_apply_module_here_n(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                             tow_value *out)
{
    tow__call_here(scope, module, n_in, in, n_out, out);
}

tow_value tow_apply_module_here(tow_scope *scope, const tow_module *module, tow_value x)
{
    tow_value out;
    tow__call_here(scope, module, 1, &x, 1, &out);
    return out;
}
