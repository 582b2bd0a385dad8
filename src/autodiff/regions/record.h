/* Shared by the operations that record nested graphs from C functions (remat.c, call.c,
 * scan_record.c, control_record.c, custom_function.c, vmap.c). */
#ifndef TOW_SRC_AUTODIFF_RECORD_H
#define TOW_SRC_AUTODIFF_RECORD_H

#include "src/autodiff/autodiff.h"

/* A body under construction: (captures, explicit inputs) -> outputs. */
typedef struct tow__traced_body {
    tow_graph *graph;
    size_t n_captures;
    tow_value *captures;
} tow__traced_body;

/* Outer values that any of several bodies captures, each once, in order of first use. */
typedef struct tow__captures {
    size_t n;
    tow_value *values;
} tow__captures;

/* A list of n values that a caller gave, or has room for. */
typedef struct tow__listed {
    size_t n;
    const tow_value *values;
} tow__listed;

void tow__clear(size_t n, tow_value *values);
tow_type *tow__types_of(tow_trace *t, size_t n, const tow_value *values);
tow_value *tow__join(tow_trace *t, size_t n, const tow_value *a, size_t m, const tow_value *b);
/* Runs a function of the user, which writes n_out places from tow__guarded_alloc. False on a sticky error. */
bool tow__run_function(tow_trace *t, tow_function function, void *user, const tow_value *in, size_t n_out,
                       tow_value *out);
/* Traces function on placeholders of the given types. False on a sticky error. */
bool tow__trace_body(tow_trace *t, tow_function function, void *user, size_t n_in, const tow_type *types, size_t n_out,
                     tow__traced_body *b);
/* Adds the captured values of n bodies, which one builder surrounds, to *all. False: no memory. */
bool tow__unite_captures(tow_trace *t, size_t n, const tow__traced_body *bodies, tow__captures *all);
/* The index of v among the captured values, or their number. */
size_t tow__find_capture(const tow__captures *all, tow_value v);
/* The body with all of these, its own among them, as first inputs. False on a sticky error. */
bool tow__capture_all(tow_trace *t, const tow__captures *all, tow__traced_body *b);
/* Binds a region whose body b runs once. Outputs of it that are its inputs, or equal to an earlier output, leave the
 * body, and the caller's own value is returned: a region changes neither the residuals nor the order in which
 * cotangents are added. A loop needs each of its carries among the outputs of its body, so loops bind themselves
 * (scan_record.c). body_offset: of the body in params. */
void tow__bind_region(tow_trace *t, const tow_primitive *p, void *params, size_t body_offset, tow__traced_body *b,
                      size_t n_in, const tow_value *in, size_t n_out, tow_value *out);
/* A copy of the operands a and b, because callers may have results written over them; NULL if one is null, if the
 * trace is or failed, or if the caller of `op` forgot the function or a list. */
tow_value *tow__operands_of(tow_trace *t, const char *op, bool has_function, tow__listed a, tow__listed b,
                            tow__listed out, tow__listed more_out);
/* The operands and the body of `op`, which calls one function on them; NULL, with null outputs, on a sticky error. */
const tow_value *tow__trace_call(tow_trace *t, const char *op, tow_function function, void *user, tow__listed inputs,
                                 size_t n_out, tow_value *out, tow__traced_body *b);
/* True if the carries leave the body with the types with which they enter; else an error of `op`. */
bool tow__carries_agree(tow_trace *t, const char *op, const tow_graph *g, size_t n_carry, const tow_value *carry);

/* tow_remat_function; limit: bytes of residuals that the region may make (tow_remat); 0: no limit. */
void tow__remat_within(tow_trace *trace, tow_function function, void *user, const tow_policy *policy, size_t limit,
                       size_t n_inputs, const tow_value *inputs, size_t n_outputs, tow_value *outputs);
/* remat.c: the parameters of a remat region that somebody wrote; NULL: e is something else, or differentiation made
 * it. */
const tow__remat_params *tow__written_region(const tow__equation *e);

#endif
