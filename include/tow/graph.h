/* Traced values, tracing of C functions, and graphs: printing, parsing, checking, cleaning. */
#ifndef TOW_GRAPH_H
#define TOW_GRAPH_H

#include <stdio.h>

#include "tow/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tow_trace tow_trace;
typedef struct tow_graph tow_graph;

/* A traced value: a handle, passed by value. `trace` NULL is the null value, which failed operations return and on
 * which operations do nothing. `here` ("file.c:12") is filled by the operation macros of ops.h. Read-only for users.
 * A value that outlives its trace is refused wherever it is used, as long as the context lives. */
typedef struct tow_value {
    tow_trace *trace;
    const char *here;
    uint32_t id;
    uint32_t serial; /* of the trace: a later one may have its address */
} tow_value;

#define TOW__STRING2(x) #x
#define TOW__STRING(x)  TOW__STRING2(x)
#define TOW_HERE        (__FILE__ ":" TOW__STRING(__LINE__))

/* `value` with its source position; what the operation macros pass on. */
static inline tow_value tow_at(tow_value value, const char *here)
{
    value.here = here;
    return value;
}
static inline bool tow_is_null(tow_value value) { return value.trace == NULL; }

/* Type of a value; f32[] for the null value. */
TOW_API tow_type tow_value_type(tow_value value);
/* The trace that records the value; NULL for the null value. */
TOW_API tow_trace *tow_value_trace(tow_value value);

/* A C function that is traced: reads the inputs, writes the outputs. The counts are those that were given to whoever
 * calls it. It may use any value of the same trace from outside (closure conversion makes these operands). */
typedef void (*tow_function)(tow_trace *trace, const tow_value *inputs, tow_value *outputs, void *user);

/* Runs `function` on placeholders and returns what it recorded. names may be NULL, or inputs' names for reports.
 * Errors: whatever the first failing operation reported, with its source line and scope path; TOW_INVALID_ARGUMENT if
 * an output was never written or belongs to another trace. */
TOW_API tow_status tow_trace_function(tow_context *context, tow_function function, void *user, size_t n_inputs,
                                      const tow_type *input_types, const char *const *input_names, size_t n_outputs,
                                      tow_graph **graph);

/* Records an error in the trace, as a failing operation would: the first one sticks. printf format. */
#ifdef __GNUC__
__attribute__((format(printf, 3, 4)))
#endif
TOW_API void
tow_trace_fail(tow_trace *trace, tow_status status, const char *format, ...);
/* The context that the trace was begun with. */
TOW_API tow_context *tow_trace_context(tow_trace *trace);
/* Names the part of the model that records from here on ("blocks/attn"); nested calls append with '/', "" appends
 * nothing. Every push needs its pop. */
TOW_API void tow_trace_push_scope(tow_trace *trace, const char *name);
TOW_API void tow_trace_pop_scope(tow_trace *trace);

/* ---- graphs ----------------------------------------------------------------------------------------------------- */

/* A graph never changes. It is counted: one reference more, which is `graph`; and one less. NULL is accepted. */
TOW_API tow_graph *tow_graph_retain(tow_graph *graph);
TOW_API void tow_graph_release(tow_graph *graph);
TOW_API tow_context *tow_graph_context(const tow_graph *graph);
/* The number of inputs, equations and outputs. */
TOW_API size_t tow_graph_input_count(const tow_graph *graph);
TOW_API size_t tow_graph_output_count(const tow_graph *graph);
TOW_API size_t tow_graph_equation_count(const tow_graph *graph); /* at the top level, without nested graphs */
/* f32[] where there is no such input or output. */
TOW_API tow_type tow_graph_input_type(const tow_graph *graph, size_t index);
TOW_API tow_type tow_graph_output_type(const tow_graph *graph, size_t index);
/* Name of an input, or NULL. */
TOW_API const char *tow_graph_input_name(const tow_graph *graph, size_t index);

/* Equations in the whole graph, nested bodies included (a scan's body once), whose primitive is called `primitive`;
 * NULL counts all. */
TOW_API size_t tow_graph_primitive_count(const tow_graph *graph, const char *primitive);
/* Names of all primitives, sorted: index 0, 1, ...; NULL beyond the last. */
TOW_API const char *tow_primitive_name(size_t index);

/* The stable textual form (docs/textual-form.md), written like snprintf. */
TOW_API size_t tow_graph_text(const tow_graph *graph, char *text, size_t size);
/* The same into a file. Errors: TOW_OUT_OF_MEMORY, TOW_IO_ERROR. */
TOW_API tow_status tow_graph_print(const tow_graph *graph, FILE *file);
/* Reads the textual form. Errors: TOW_BAD_FORMAT and others with "line L, column C: ...". */
TOW_API tow_status tow_graph_parse(tow_context *context, const char *text, tow_graph **graph);

/* Checks every invariant: definitions before uses, types as the primitives' rules say, nested graphs closed. */
TOW_API tow_status tow_graph_check(const tow_graph *graph);
/* The same function without equations that no output needs, nested bodies included. Inputs stay. */
TOW_API tow_status tow_graph_dce(const tow_graph *graph, tow_graph **result);
/* The same function with equal equations merged, within each nested graph but never across its border. */
TOW_API tow_status tow_graph_cse(const tow_graph *graph, tow_graph **result);

#ifdef __cplusplus
}
#endif
#endif
