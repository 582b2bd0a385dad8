/* Children of combinators: lists of layers, named after their place or by TOW_NAMED. */
#ifndef TOW_LAYERS_CHILDREN_H
#define TOW_LAYERS_CHILDREN_H

#include "src/scope/layer.h"
#include "tow/layers.h"

/* Reports an empty list, a missing layer, or one name for two different layers. kind: "layers", names of children are
 * kind_i. */
bool tow__check_children(tow_scope *scope, const char *layer, const char *kind, size_t n,
                         const tow_module *const *children);
/* Calls child i under its name. */
void tow__call_child(tow_scope *scope, const char *kind, size_t i, const tow_module *child, size_t n_in,
                     const tow_value *in, size_t n_out, tow_value *out);
/* The same for a child of that name. */
void tow__call_child_named(tow_scope *scope, const char *name, const tow_module *child, size_t n_in,
                           const tow_value *in, size_t n_out, tow_value *out);

#endif
