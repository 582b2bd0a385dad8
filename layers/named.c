/* Named: a layer as a child of that name; Function: a function as a layer; Activation: one of values alone. */
#include <stdio.h>

#include "layers/children.h"
#include "src/scope/tree.h"

/* ---- Named, and what combinators call their children ------------------------------------------------------------- */

static void call_named(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    const tow_named *m = (const tow_named *)module;
    tow_apply_module_n(scope, m->name, m->inner, n_in, in, n_out, out);
}

static bool is_named(const tow_module *child) { return child && child->cls == &tow_named_class; }

/* The name of child i; text has room for one that is made of its place. */
static const char *name_of(const char *kind, size_t i, const tow_module *child, char text[40])
{
    if (is_named(child)) return ((const tow_named *)child)->name;
    snprintf(text, 40, "%s_%zu", kind, i);
    return text;
}

void tow__call_child_named(tow_scope *scope, const char *name, const tow_module *child, size_t n_in,
                           const tow_value *in, size_t n_out, tow_value *out)
{
    const tow_named *named =
        is_named(child) ? (const tow_named *)child : NULL; /* gives the child its name, and no more */
    tow_apply_module_n(scope, named ? named->name : name, named ? named->inner : child, n_in, in, n_out, out);
}

void tow__call_child(tow_scope *scope, const char *kind, size_t i, const tow_module *child, size_t n_in,
                     const tow_value *in, size_t n_out, tow_value *out)
{
    char text[40];
    tow__call_child_named(scope, name_of(kind, i, child, text), child, n_in, in, n_out, out);
}

static const tow_module *layer_of(const tow_module *child)
{
    return is_named(child) ? ((const tow_named *)child)->inner : child;
}

bool tow__check_children(tow_scope *scope, const char *layer, const char *kind, size_t n,
                         const tow_module *const *children)
{
    char a[40], b[40];
    if (n == 0 || !children) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "%s: no %s; expected TOW_MODULE(&first), ...", layer, kind);
        return false;
    }
    for (size_t i = 1; i < n; i++) {
        const char *name = name_of(kind, i, children[i], a);
        for (size_t k = 0; name && k < i; k++) {
            if (!is_named(children[i]) && !is_named(children[k])) continue; /* places differ */
            const char *other = name_of(kind, k, children[k], b);
            if (!other || strcmp(name, other) != 0 || layer_of(children[i]) == layer_of(children[k])) continue;
            tow_scope_fail(
                scope, TOW_INVALID_ARGUMENT,
                "%s: %s %zu and %zu are both called \"%s\"; give them different names, or pass the same layer "
                "twice for shared parameters",
                layer, kind, k, i, name);
            return false;
        }
    }
    return true;
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

static void call_function(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                          tow_value *out)
{
    const tow_function_layer *m = (const tow_function_layer *)module;
    const char *name = m->name ? m->name : "Function";
    int given = (m->function != NULL) + (m->function_with != NULL) + (m->function_n != NULL);
    if (given != 1) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "Function: expected one function, found %d; make the layer with TOW_FUNCTION(function), "
                       "TOW_FUNCTION_WITH or TOW_FUNCTION_N",
                       given);
        return;
    }
    if (m->function_n) {
        m->function_n(scope, n_in, in, n_out, out, m->user);
        return;
    }
    if (!tow__check_counts(scope, name, n_in, 1, 1, n_out)) return;
    out[0] = m->function ? m->function(scope, in[0]) : m->function_with(scope, in[0], m->user);
    if (tow_is_null(out[0]) && !tow__scope_failed(scope))
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "%s returned the null value; expected its result", name);
}

static void call_activation(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                            tow_value *out)
{
    const tow_activation_layer *m = (const tow_activation_layer *)module;
    if (!tow__check_counts(scope, "Activation", n_in, 1, 1, n_out)) return;
    if (!m->activation)
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "Activation: no function; expected TOW_ACTIVATION(tow_relu) or the like");
    else
        out[0] = m->activation(in[0]);
}

const tow_module_class tow_named_class = {TOW__MADE_BY(TOW_NAMED, tow_named), .name = "Named", .call = call_named,
                                          .layout =
                                              TOW__LAYOUT_OF(tow_named, TOW_MEMBER(tow_named, name, TOW_MEMBER_TEXT),
                                                             TOW_MEMBER(tow_named, inner, TOW_MEMBER_LAYER))};
const tow_module_class tow_function_class = {
    TOW__MADE_BY(TOW_FUNCTION, tow_function_layer), .name = "Function", .call = call_function,
    .layout = TOW__LAYOUT_OF(tow_function_layer, TOW_MEMBER(tow_function_layer, name, TOW_MEMBER_TEXT))};
const tow_module_class tow_activation_class = {TOW__MADE_BY(TOW_ACTIVATION, tow_activation_layer), .name = "Activation",
                                               .call = call_activation, .layout = TOW__LAYOUT(tow_activation_layer)};
