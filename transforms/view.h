/* Layers around another one that change how it sees its parameters. */
#ifndef TOW_TRANSFORMS_VIEW_H
#define TOW_TRANSFORMS_VIEW_H

#include "layers/layer.h"

/* Calls the inner layer in this scope with its parameters seen through .map and .product of `view`, for .user. */
void tow__call_viewed(tow_scope *scope, const tow_module *inner, const tow__parameter_view *view, size_t n_in,
                      const tow_value *in, size_t n_out, tow_value *out);
/* A scope "kind/parameter" below the one that asked for the parameter, in which nothing is mapped: for what a view keeps of it. */
tow_scope *tow__open_beside(tow_scope *scope, const char *kind, const char *parameter);
void tow__close_beside(tow_scope *beside);

#endif
