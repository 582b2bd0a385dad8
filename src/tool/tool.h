/* The command `tow`: what its files share. It uses the public interface, and src/base for
 * single elements of arrays.
 *
 *   tow.c       command line and dispatch          arrays.c   inputs and outputs of a run
 *   commands.c  one function per subcommand        show.c     printing, as text or JSON
 *   vmap.c      the subcommand vmap                passes.c   those of the compiler, for plan
 *   primitives.c  the subcommand primitives         plot.c, plot_read.c  the subcommand plot
 *   weights.c   the subcommands convert-weights and tokenize
 *   gguf.c, transformers.c  convert-weights to GGUF, and back
 *   scale.c     plan --processes
 *   page.c      the page of plan --html             reasons.c  the subcommand residuals
 *   curve.c     plan --curve
 */
#ifndef TOW_TOOL_H
#define TOW_TOOL_H

#include <jansson.h>

#include "tow/tow.h"

enum {
    TOOL_MAX_ARRAYS = 256,
    TOOL_NO_STAGE = -1 /* nothing is split */
};

/* Exit status: fine; the graph, an input or a file is bad; the command line is bad. */
enum {
    TOOL_OK = 0,
    TOOL_FAILED = 1,
    TOOL_USAGE = 2
};

/* A memory limit: bytes, or percent of the bytes of a run without a limit. */
typedef struct tool_limit {
    size_t bytes;
    double percent;
} tool_limit;

typedef struct tool_options {
    const char *command, *file;
    const char *input[TOOL_MAX_ARRAYS]; /* --input: FILE.npy, a JSON value, or NAME=either */
    size_t n_input;
    const char *output[TOOL_MAX_ARRAYS]; /* --output FILE.npy, in the order of the results */
    size_t n_output;
    const char *inputs, *outputs; /* safetensors, or .npz */
    bool random_inputs;
    uint64_t seed;
    size_t wrt[TOOL_MAX_ARRAYS];
    size_t n_wrt;
    const char *policy;                      /* NULL: no remat region */
    tool_limit memory_limit;                 /* zeros: none */
    const char *memory;                      /* SVG to draw, or NULL */
    const char *curve_file;                  /* SVG to draw, or NULL */
    const char *html, *against;              /* a page to write, and what to show beside the plan; or NULL */
    const char *trace;                       /* trace events to write, or NULL */
    const char *dump_after, *dump_directory; /* of plan: a pass, where to write all; or NULL */
    char *without;                           /* passes, separated by commas; or NULL */
    const char *size, *in_axes, *out_axes;   /* of vmap, or NULL */
    const char *files[TOOL_MAX_ARRAYS];      /* of plot: its logs */
    size_t n_files;
    const char *x, *y, *title; /* of plot, or NULL */
    double smooth;
    bool log_y;
    const char *mapping, *architecture, *dtype, *type; /* of convert-weights, or NULL */
    char *axis[TOOL_MAX_ARRAYS];                       /* NAME=SIZE */
    size_t n_axis;
    uint64_t max_file_bytes; /* 0: no limit */
    bool reverse, partial;
    const char *tokenizer;              /* of tokenize */
    int processes, stage, slots;        /* of plan; processes 0, slots -1: not given */
    double bandwidth, latency, compute; /* bits in a second, seconds, seconds; 0: not given */
    bool value, run, grad, curve, why, verify, jvp, jacfwd, jacrev, hessian, split, dce, cse, json;
    int threads;
    uint64_t given; /* bit i: option i of the table in tow.c was given */
} tool_options;

typedef struct tool {
    tool_options options;
    tow_context *context;
    tow_graph *graph;   /* read from options.file, under --policy inside one remat region */
    tow_graph *written; /* without --policy; NULL: there is none */
    char message[1024]; /* the tool's own error; "": the error is the context's */
} tool;

/* Commands. The message of a failure is in the context or in t->message. */
tow_status tool_check(tool *t);
tow_status tool_print(tool *t);
tow_status tool_run(tool *t);
tow_status tool_grad(tool *t);
tow_status tool_residuals(tool *t);
tow_status tool_count(tool *t);
tow_status tool_plan(tool *t);
tow_status tool_vmap(tool *t);
tow_status tool_plot(tool *t); /* reads no graph, as those below */
tow_status tool_convert_weights(tool *t);
tow_status tool_tokenize(tool *t);

/* tow.c: a positive number of bytes, which may end with K, M or G. False: it is none. */
bool tool_read_limit(const char *text, tool_limit *limit);
/* curve.c: *bytes: the limit for plans of the graph with these options, 0: none. */
tow_status tool_limit_of(tool *t, const tow_graph *graph, const tow_compile_options *options, tool_limit limit,
                         size_t *bytes);
/* page.c: plan --html. program: of graph, made with these options. */
tow_status tool_write_page(tool *t, const tow_graph *graph, const tow_compile_options *options,
                           const tow_program *program);
/* curve.c: plan --curve, of graph and of the same with policies around it. */
tow_status tool_show_curve(tool *t, const tow_graph *graph, const tow_compile_options *options);
/* scale.c: for plan --processes, without --wrt all float inputs are parameters. */
tow_status tool_choose_floats(tool *t);
/* scale.c: plan --processes. gradient: of t->graph, with all of its results in front; program: made of it. */
tow_status tool_scale(tool *t, const tow_graph *gradient, const tow_program *program);
/* The bytes of options.file ("-": standard input), malloc'ed, with a zero byte behind them. zeros: it may have some. */
tow_status tool_read_text(tool *t, bool zeros, char **text, size_t *size);
/* Reads options.file ("-": standard input), parses it and applies --policy, --dce and --cse. */
tow_status tool_load(tool *t);
/* The graph that the derivative options ask for. value: with the value, if it is a gradient. */
tow_status tool_differentiate(tool *t, bool value, tow_graph **result);
/* Prints graph, as text or JSON. */
tow_status tool_show_graph(tool *t, const tow_graph *graph);
/* Runs graph on the inputs that the options name and shows or writes what it returns. */
tow_status tool_evaluate(tool *t, const tow_graph *graph);

/* Fails with a message of the tool's own; returns status. */
__attribute__((format(printf, 3, 4))) tow_status tool_fail(tool *t, tow_status status, const char *format, ...);
/* The error to standard error, as FILE:LINE:COLUMN: text or as JSON. */
void tool_report(const tool *t, tow_status status);

/* arrays.c: inputs[] receives tow_graph_input_count(graph) arrays, which the caller releases. */
tow_status tool_read_inputs(tool *t, const tow_graph *graph, tow_array **inputs);
tow_status tool_write_outputs(tool *t, size_t n, tow_array *const *outputs);

/* primitives.c */
void tool_print_primitives(void);

/* passes.c */
enum {
    TOOL_MAX_PASSES = 64
};
typedef struct tool_dumps {
    const char *after, *directory;
    size_t runs[TOOL_MAX_PASSES];
    char failure[1200];
} tool_dumps;
void tool_print_passes(void);
/* names: those in `text`, which is cut up, and NULL. */
tow_status tool_read_without(tool *t, char *text, const char *names[TOOL_MAX_PASSES + 1]);
/* Makes the compiler tell d, which lives until tool_end_dumps, what the options ask for. */
tow_status tool_begin_dumps(tool *t, tool_dumps *d, tow_compile_options *options);
tow_status tool_end_dumps(tool *t, const tool_dumps *d); /* says what could not be written */

/* show.c */
typedef size_t (*tool_text)(const void *object, char *text, size_t size); /* like snprintf */
char *tool_text_of(tool_text write, const void *object);                  /* malloc'ed; NULL: out of memory */
json_t *tool_json_text(const char *text);                                 /* what is not UTF-8 becomes '?' */
json_t *tool_json_type(tow_type type);
json_t *tool_json_graph(const tow_graph *graph);
json_t *tool_json_array(tow_array *array);
void tool_show_array(tow_array *array);
tow_status tool_show_json(tool *t, json_t *value); /* prints and releases value; NULL is reported as out of memory */
size_t tool_graph_text(const void *graph, char *text, size_t size);
size_t tool_program_text(const void *program, char *text, size_t size);
size_t tool_reasons_text(const void *residuals, char *text, size_t size);
size_t tool_residuals_text(const void *residuals, char *text, size_t size);

#endif
