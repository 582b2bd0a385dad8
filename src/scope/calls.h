/* Calls of layers, which may be captured, and listed for a summary. */
#ifndef TOW_SRC_SCOPE_CALLS_H
#define TOW_SRC_SCOPE_CALLS_H

#include "src/scope/scope.h"

/* A call that has not returned. */
struct tow__layer_call {
    tow__layer_call *outer;
    const char *path;
    bool wraps;    /* it called a layer in the same scope, as remat does: that call is a part of this one */
    bool method;   /* what it gives is that of a method with a name */
    size_t around; /* calls in the same scope that have not returned, this one not counted */
};

/* A layer that was called: all calls in scopes of one path. */
typedef struct tow__called {
    const char *path, *name; /* name: "Dense", or "Remat(Dense)" */
    size_t calls;
    size_t n_in, n_out; /* of the first call */
    const tow_type *in, *out;
} tow__called;

/* The layers in the order of their first calls. All memory but the list is the arena's. */
struct tow__call_log {
    tow_context *ctx;
    tow__arena *arena;
    tow__names paths;
    tow__called *layers;
    size_t capacity;
};
void tow__call_log_free(tow__call_log *log);

/* A layer with a class as this library reads it: itself, or, if a program of another version made it, a copy that
 * lives as long as the trace. NULL: an error of the scope. Whoever reads another layer's struct than its own calls it
 * first. */
const tow_module *tow__read_layer(tow_scope *scope, const tow_module *module);

/* Calls a layer in this very scope and checks that it wrote its outputs. */
void tow__call_here(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                    tow_value *out);
/* Around a method with a name (TOW_METHOD): its outputs are captured under that name by patterns "path:name", and not
 * as those of the layer. */
void tow__capture_method(tow_scope *scope, const char *name, size_t n_out, const tow_value *out);
/* A pattern of captures that no call matched is an error, with the paths of layers. */
void tow__check_captured(tow__model *model);

#endif
