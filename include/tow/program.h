/* Compiled graphs: a linear schedule over one arena, whose peak bytes are known before the first run. */
#ifndef TOW_PROGRAM_H
#define TOW_PROGRAM_H

#include "tow/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tow_program tow_program;

/* Output `output` is written where input `input`, of the same type, lies: after a run the caller finds the new value in
 * the array that it passed in, and passes NULL, or the same array, as that output. Instructions that still need the old
 * value get it: where a plan cannot overwrite the input in place, it keeps the new value in the arena and copies it at
 * the end. For state that goes from run to run: parameters and slots of an optimizer, a cache of keys and values. (JAX:
 * donate_argnums.) */
typedef struct tow_donation {
    size_t output, input;
} tow_donation;

/* One arena for programs that never run at once, in place of one for each: as large as the largest of them needs. The
 * programs of a model function, of a generator and of a training state share one; for caches of one's own
 * (tow_program_cache) it is made here. Programs of one context, whose thread runs them one after the other: a program
 * that is run while another of the arena runs, by a function of the caller's that this one calls, is refused. Between
 * runs nothing lives in an arena (constants, results and donated state are elsewhere), so programs may run in any
 * order. */
typedef struct tow_shared_arena tow_shared_arena;
/* Takes no memory for an arena yet. Error: TOW_OUT_OF_MEMORY. */
TOW_API tow_status tow_shared_arena_create(tow_context *context, tow_shared_arena **arena);
/* Programs keep it until the last of them is freed. NULL is accepted. */
TOW_API void tow_shared_arena_release(tow_shared_arena *arena);
/* Bytes of the arena: those of the largest program compiled with it so far (tow_program_bytes.arena, in units of 64). 0
 * for NULL. */
TOW_API size_t tow_shared_arena_bytes(const tow_shared_arena *arena);

typedef struct tow_compile_options {
    size_t size TOW__SIZE(tow_compile_options); /* set by TOW_COMPILE_OPTIONS */
    int threads;                                /* 0: the context's */
    const tow_donation *donations;              /* copied; each names another output and another input */
    size_t n_donations;
    /* Leaves out tile groups and parallel loops, that is the passes "fission-loops", "parallelize" and "tile": every
     * instruction runs over all rows before the next one begins, and scans run iteration by iteration, in each of which
     * all threads share every instruction. Calls and remat are as always. Slower, the same bits. */
    bool no_regions;
    /* Every instruction makes a pass over memory of its own, and a cross-entropy makes its logits again for the
     * gradient: slower, the same bits. */
    bool no_fusion;
    /* Take subnormal numbers as zeros while the program runs, as XLA does: gradients that fade away over many layers
     * otherwise cost up to a hundred times more per operation. Training states do so. */
    bool flush_subnormals;
    /* Bytes that a run may take, inputs, outputs, constants and arena together; 0: no limit, and the plan is the one
     * that the graph's remat regions describe. With a limit the fastest plan within it is looked for, by a model of
     * time: a gradient (tow_grad, tow_value_and_grad) keeps less or more of its forward pass, a scan of layers keeps
     * what its last iterations make and makes the rest again, and blocks of rows may go through the forward and the
     * backward pass one after the other. Regions need not be written; what a policy insists on (TOW_MUST_SAVE,
     * TOW_MUST_RECOMPUTE) holds. More bytes never give a plan that is slower by the model. The same bits under every
     * limit. Compiles a graph many times the first time; what was found is kept with a gradient, for other limits and
     * tow_memory_curve with the same options. Error: TOW_INVALID_ARGUMENT if no plan is within it; the message says the
     * least that is possible, and what that consists of. */
    size_t memory_limit;
    tow_shared_arena *shared_arena; /* NULL: an arena of its own */
    bool plan_only;                 /* no memory: the program can be asked, printed and checked, but not run */
    /* Names of passes of the compiler that are left out (tow_pass_name), NULL behind the last; NULL: none. For
     * measuring, and for finding the pass behind a wrong result: slower, the same bits. */
    const char *const *without;
    /* Called after each pass with its name, what it has worked on ("the program", "the body of a scan", "a tile group")
     * and that as text, which lives as long as the call. NULL: nobody is told. */
    void (*after_pass)(const char *pass, const char *function, const char *text, void *user);
    void *after_pass_user;
    /* Compares each value that a run makes again with the one that it made first, bit by bit: what remat regions, cuts
     * of a memory limit and schedules of scans make again, in loops for each iteration (not within a while that keeps
     * .slots). The first difference ends the
     * run with TOW_CHECK_FAILED; the message names source line, path and operation, iteration and element, and both
     * values. For gradients (tow_grad, tow_value_and_grad): they are made once more from their function, with
     * comparisons in them. The first values are kept for that, so a run takes more bytes than with everything_saveable,
     * and also more than .memory_limit, by which the plan is chosen as always. NaNs with the same bits are equal.
     * Error: TOW_UNSUPPORTED for other graphs that make values again, unless they come from a context with .verify. */
    bool verify;
} tow_compile_options;
#define TOW_COMPILE_OPTIONS(...) TOW__OPTIONS(tow_compile_options, __VA_ARGS__)

/* The passes of the compiler, in the order in which they run, by index; NULL behind the last. */
TOW_API const char *tow_pass_name(size_t index);
/* Why a pass is there, and why it stands where it stands: a sentence. NULL behind the last. */
TOW_API const char *tow_pass_reason(size_t index);
/* The pass that does its work on the way; NULL: it runs by itself. */
TOW_API const char *tow_pass_within(size_t index);
/* True if it cannot be left out. */
TOW_API bool tow_pass_required(size_t index);

/* Exact sizes in bytes, known before the first run. */
typedef struct tow_program_bytes {
    size_t inputs, outputs; /* arrays that the caller holds; donated inputs are outputs, too, and count once */
    size_t arena;           /* everything else: intermediates, residuals, workspace; of a shared arena, what it needs */
    size_t lower_bound; /* most bytes of the arena that are alive at once; arena / lower_bound shows fragmentation */
    size_t residuals;   /* of the arena: values made in the forward pass of a gradient and read in the backward pass;
                               inputs and what waits in an output array are not part of it */
    size_t constants;   /* of array constants in the graph, and of what is made of them when it is compiled */
    size_t file;        /* of the file for states of loops with .file_slots; no memory, and no part of a limit */
} tow_program_bytes;

/* Compiles `graph`. options may be NULL. The program holds a reference to the graph.
 * Errors: TOW_OUT_OF_MEMORY, TOW_UNSUPPORTED; TOW_INVALID_ARGUMENT for a negative number of threads, for a
 * .memory_limit that no plan keeps, for a
 * shared arena of another context or one in which a program runs, and for donations of what is not there or taken
 * already, TOW_TYPE_MISMATCH for those whose input has another type. */
TOW_API tow_status tow_compile(tow_context *context, const tow_graph *graph, const tow_compile_options *options,
                               tow_program **program);
/* A plan that a memory limit may choose: bytes of a run (inputs, outputs, constants and arena), its seconds by the
 * model, and the floating-point operations of its products and convolutions, two for each multiply-add. Seconds of
 * plans of one function may be compared with each other and with nothing else. */
typedef struct tow_memory_point {
    size_t bytes;
    double seconds;
    double flops;
} tow_memory_point;
/* The plans among which .memory_limit chooses, each with more bytes and fewer seconds than the one before: writes the
 * first `size` of them to `points` and their number to *n. The first one is the least limit that can be kept. A
 * gradient keeps them: tow_compile with these options and a .memory_limit does not search again. options may be NULL.
 * Errors: those of tow_compile. */
TOW_API tow_status tow_memory_curve(tow_context *context, const tow_graph *graph, const tow_compile_options *options,
                                    size_t size, tow_memory_point *points, size_t *n);
/* The point of a program, to be shown beside such a curve: that of the same function with other regions, say. */
TOW_API tow_memory_point tow_program_memory_point(const tow_program *program);
/* Of a program that was compiled within a limit: the point of the plan without one, from which the search began. Of
 * others: their own. */
TOW_API tow_memory_point tow_program_unlimited_point(const tow_program *program);
/* A plan beside a curve, and what it is called: "nothing", "dots". */
typedef struct tow_memory_mark {
    const char *name;
    tow_memory_point point;
} tow_memory_mark;
/* A table of a curve of n points, and behind it of the marks: bytes and seconds as ratios to those of the last point,
 * and operations. Like snprintf. */
TOW_API size_t tow_memory_curve_text(size_t n, const tow_memory_point *points, size_t n_marks,
                                     const tow_memory_mark *marks, char *text, size_t size);
/* Draws the same as SVG: time, relative to that of the last point, over bytes. Between two points the plan is the one
 * of fewer bytes, so the curve goes in steps. The file is the old one or the whole new one. Errors:
 * TOW_INVALID_ARGUMENT without points, TOW_OUT_OF_MEMORY, TOW_IO_ERROR with the path. */
TOW_API tow_status tow_memory_curve_draw(tow_context *context, const char *path, size_t n,
                                         const tow_memory_point *points, size_t n_marks, const tow_memory_mark *marks);
/* NULL is accepted. */
TOW_API void tow_program_free(tow_program *program);
TOW_API tow_program_bytes tow_program_get_bytes(const tow_program *program);
/* Seconds of a run by the cost model with which plans are compared. It counts no overlap, and is made for comparisons:
 * a run takes between half and twice as long on most machines (tow plan --run). 0 for NULL. */
TOW_API double tow_program_seconds(const tow_program *program);
/* When an output is there, in seconds of the model after the run has begun. An output that a loop writes row by row is
 * there in `pieces`: the first one at `first`, the last one at `last`, the others in between in equal distances. An
 * output of which nothing is written, an input for instance, has 0 pieces. */
typedef struct tow_output_time {
    double first, last;
    int64_t pieces;
} tow_output_time;
TOW_API tow_output_time tow_program_output_time(const tow_program *program, size_t index);
/* The plan: instructions in order with engines, arena offsets, lifetimes and bytes alive; like snprintf. */
TOW_API size_t tow_program_text(const tow_program *program, char *text, size_t size);
/* An instruction that runs on one of several engines: a matrix product, a convolution, attention, a cross-entropy of
 * logits, a sum of products. */
typedef struct tow_program_engine {
    const char *instruction; /* "dot_general" */
    const char *engine; /* as in plans, of products: "own", "xsmm", "blis", "amx", "avx512_bf16", "reference"; of others
                           also "vector" (convolutions of single features), "sum_dots" (sums of products over the
                           iterations of a loop), "strips" (attention), "tiles", "bands", "panels" (cross-entropy) */
    tow_type result;    /* its first one */
    bool backward;      /* of the backward pass */
    char reason[160];   /* "libxsmm: bits of the own kernel, 1.31 times as fast here" */
} tow_program_engine;
/* Describes instruction number `index` of those, in the order of the plan, bodies of loops where the loop is. Returns
 * false if there are not so many. Large products whose first runs have not been made say so. */
TOW_API bool tow_program_get_engine(const tow_program *program, size_t index, tow_program_engine *engine);
/* A collective over processes in a program, which starts in one instruction and ends in another. */
typedef struct tow_program_collective {
    const char *kind;        /* "all_reduce", "reduce_scatter", "all_gather" */
    const char *scope;       /* the part of the model that it was recorded for: "blocks/mlp"; NULL: none */
    const char *pass;        /* "forward", "backward"; "update": it gathers new parameters in their place */
    tow_type type;           /* of the whole array; of several layers [layers, elements] */
    int64_t length;          /* iterations of the innermost loop in which it stands; 0: in none */
    int64_t runs;            /* in one run of the program, if each branch and body runs once */
    bool deferred;           /* it travels while another iteration runs */
    uint64_t sent, received; /* bytes, by this process in one of these runs */
} tow_program_collective;
/* Describes collective number `index`, in the order of the plan, bodies of loops where the loop is. Those over the
 * group of one are not among them. Returns false if there are not so many. The groups must still be there. */
TOW_API bool tow_program_get_collective(const tow_program *program, size_t index, tow_program_collective *collective);
/* The exchange of a process with others in one run of a program, if each branch and body runs once. */
typedef struct tow_program_exchange {
    uint64_t sent, received; /* bytes of this process */
    int64_t sums, gathers;   /* number of collectives */
    /* At most so many at once between their start and their end. */
    int64_t sums_in_flight, gathers_in_flight;
    double seconds;       /* of a run by the cost model, with the time in which it waits for the network */
    double communication; /* seconds of the network */
    double waiting;       /* of these, seconds in which the run waits for it; the rest is hidden behind instructions */
} tow_program_exchange;
/* bandwidth: bytes that a process sends in a second while it receives as many; latency: of a message, in seconds. With
 * a bandwidth of 0, the network takes no time. A collective takes latency x levels of the tree + bytes / bandwidth, and
 * the network moves one after the other, beginning with the instruction that starts it; instructions take their
 * modelled seconds (tow_program_seconds). */
TOW_API tow_program_exchange tow_program_get_exchange(const tow_program *program, double bandwidth, double latency);
/* The number of operations of primitive `name` in one run: each operation of a row program counts, and those of a scan
 * by its length; NULL: all. Regions are inlined, composites without a kernel count as their parts, products over one
 * element as "mul", "copy" counts copies; views, and small functions of constants, which are computed when the program
 * is compiled, count nothing. */
TOW_API uint64_t tow_program_operation_count(const tow_program *program, const char *name);
/* Floating-point operations of primitive `name` in one run, by the plan; NULL: of all. Products, convolutions and
 * attention count 2 for each pair that is multiplied and added (masks left out), functions of a row program and
 * reductions one for each element, other primitives what their cost rule counts or, if that leaves it to their parts,
 * estimates. */
TOW_API double tow_program_flops(const tow_program *program, const char *name);
/* Draws live bytes over the schedule as SVG: what the caller holds, then the arena by kind (residuals, values of the
 * forward and of the backward pass, workspace) and by part of the model, with a mark where most are alive ("most live":
 * inputs + outputs + lower_bound of tow_program_get_bytes; a training step has the optimizer's slots and the batch
 * among its inputs; tow_train_bytes.total has the evaluation program and the gaps of the arena, too). Scans of
 * few iterations are drawn iteration by iteration, longer ones once. Errors: TOW_OUT_OF_MEMORY, TOW_IO_ERROR. */
TOW_API tow_status tow_program_draw_memory(const tow_program *program, FILE *file);
struct tow_residuals; /* tow/autodiff.h */
/* The residuals of the program of a gradient (tow_grad, tow_value_and_grad) or of a training step, with `plan` filled
 * in: where each is in this plan, from when to when; and plans that are made for the answer: of each residual one that
 * makes it again, of each value that is made again one that keeps it. Takes as long as some 200 compilations at most.
 * Free with tow_residuals_free. Errors: TOW_INVALID_ARGUMENT if the program is neither, TOW_OUT_OF_MEMORY. */
TOW_API tow_status tow_program_explain(const tow_program *program, struct tow_residuals *residuals);
/* Writes a page for a browser, one file that loads nothing: the blocks of the arena over instructions and addresses,
 * the bytes in use with a mark where they are most, and for each block what it holds, where that was written, which
 * derivative rule asked for it, what a policy said, who reads it, and from when to when it is there. against (may be
 * NULL): a second plan beside it, with what differs. path becomes the whole new page or stays as it was.
 * Errors: TOW_OUT_OF_MEMORY, TOW_IO_ERROR. */
TOW_API tow_status tow_program_write_html(const tow_program *program, const tow_program *against, const char *path);
/* Re-simulates the plan: no two live intervals overlap, every read follows its write. */
TOW_API tow_status tow_program_check(const tow_program *program);

/* Runs. inputs and outputs are caller's arrays of exactly the graph's types; an output may share no memory with an
 * input or another output. outputs[i] is ignored, and may be NULL, where an input is donated to it.
 * Allocates nothing.
 * Errors: TOW_TYPE_MISMATCH with index, name, expected and found; TOW_INVALID_ARGUMENT for a missing array, for a
 * program that was compiled with .plan_only, and while another program of its shared arena runs. */
TOW_API tow_status tow_program_run(tow_program *program, tow_array *const *inputs, tow_array *const *outputs);

/* From here on (or no longer) counts what runs do, from 0 on: which calls of kernels they make, in bodies of loops as
 * often as these run. Programs that do not count pay nothing for it. */
TOW_API tow_status tow_program_count(tow_program *program, bool on);
/* Operations and floating-point operations that the runs since then have done, counted as
 * tow_program_operation_count and tow_program_flops count those of a plan: so after n runs they are n times those,
 * unless data decide how often a body runs, or which branch. Blocks of rows together are one operation. */
TOW_API uint64_t tow_program_counted(const tow_program *program, const char *name);
TOW_API double tow_program_counted_flops(const tow_program *program, const char *name);

/* From here on (or no longer) notes when each instruction of a run begins and ends. Programs that do not record pay
 * nothing for it. Error: TOW_OUT_OF_MEMORY. */
TOW_API tow_status tow_program_record(tow_program *program, bool on);
/* Writes the last recorded run as trace events (JSON) that Perfetto and chrome://tracing open: for each instruction the
 * thread and, as arguments, phase, engine, scope, source line, result, bytes read and written, and flops (exact for
 * products, also those inside attention, without masks, and linear_cross_entropy; rough elsewhere). Errors:
 * TOW_INVALID_ARGUMENT if nothing was recorded, TOW_IO_ERROR. */
TOW_API tow_status tow_program_write_trace(const tow_program *program, FILE *file);

/* Compiles, allocates the outputs, runs once and frees the program: for tests, tools and one-off calls.
 * outputs[] receives tow_graph_output_count(graph) new arrays. */
TOW_API tow_status tow_evaluate(const tow_graph *graph, tow_array *const *inputs, tow_array **outputs);

#ifdef __cplusplus
}
#endif
#endif
