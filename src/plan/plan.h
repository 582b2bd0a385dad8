/* Plans: what src/plan makes, and what the executable program (src/run/program.h) is made from.
 *
 * The passes that make them, in order, are in src/plan/pipeline.c.
 *
 * A storage is a piece of memory with one schedule position for its first write and one for its last read; a view is a
 * storage with offset and strides. Every result of every instruction has a storage of its own; aliasing joins storages
 * (`representative`), so the checker can still tell the values apart. A scan is one instruction of the function around it
 * (a loop) with a plan of its own, whose arena is one block of the surrounding arena:
 *
 *   arena    |  a  |  b   |  block of the loop: | t0 | t1 |     |  stacked result  |
 *
 * A tile group is a loop, too: its iterations are blocks of rows. Threads run them side by side, each in a copy of the
 * body's arena; or, where products sum over rows, all threads run one block after the other. */
#ifndef TOW_SRC_PLAN_H
#define TOW_SRC_PLAN_H

#include "src/graph/graph.h"
#include "src/kernels/kernel.h"
#include "src/plan/operations.h"
#include "src/plan/pass_list.h"
#include "src/run/program.h"

enum {
    TOW__ALIGNMENT = 64,
    TOW__MOST_TRIED = 1 << 18 /* numbers of blocks, of which one is to divide an axis: an axis may have 2^60 rows */
};

/* X(symbol, short text in printed plans) */
#define TOW__STORAGE_LIST(X)                                                                                           \
    X(TOW__S_ARENA, "arena")       /* `offset` in the block of its plan */                                             \
    X(TOW__S_INPUT, "input")       /* the caller's array `index` */                                                    \
    X(TOW__S_OUTPUT, "output")     /* the caller's array `index` */                                                    \
    X(TOW__S_CONSTANT, "constant") /* `data` */                                                                        \
    X(TOW__S_ROW_IN, "row")        /* in a loop: row of xs `index` */                                                  \
    X(TOW__S_ROW_OUT, "row out")   /* row of ys `index` */                                                             \
    X(TOW__S_CARRY_IN, "carry")    /* carry `index` as it enters the iteration */                                      \
    X(TOW__S_CARRY_OUT, "carry out")

typedef enum tow__storage_kind {
#define X(symbol, text) symbol,
    TOW__STORAGE_LIST(X)
#undef X
} tow__storage_kind;

typedef struct tow__plan tow__plan;
typedef struct tow__flat tow__flat;
typedef struct tow__function_state tow__function_state; /* pass.h */
typedef struct tow__column tow__column;

typedef struct tow__storage {
    tow__storage_kind kind;
    tow__plan *plan; /* in whose schedule first and last count */
    size_t bytes;
    size_t need;             /* bytes for the lower bound; less than `bytes` for the fragmented block of a loop */
    uint32_t index;          /* of the input, output, xs, ys or carry */
    uint32_t representative; /* the storage whose memory it shares, itself if none */
    uint32_t first, last;    /* of a root: steps of the first write and the last access */
    size_t offset;
    const void *data;
    uint32_t base; /* of its address; TOW__NONE if that never changes */
    uint32_t next; /* storage of the same plan, or TOW__NONE */
} tow__storage;

/* One carry of a loop that changes. Iteration 0 reads the initial value where it is, or a copy; the last iteration writes
 * `result`. Lowering says which ys are to stack the carry in the memory in which it lies; once aliasing has decided who
 * overwrites what, tow__choose_carry_storage decides where it lies, for all carries. */
typedef struct tow__carry {
    uint32_t in, out;           /* storages of the body */
    uint32_t result;            /* outer storage */
    uint32_t entering, leaving; /* ys that stack it as it enters, and (one of those) as it leaves; or TOW__NONE */
    tow__carry_storage storage;
    bool copies;    /* the initial value is copied into the first buffer when the loop starts */
    uint32_t spare; /* outer storage, or TOW__NONE */
    tow__view init; /* outer view */
    ptrdiff_t part; /* bytes from block to block of rows */
} tow__carry;

/* xs or ys: `row` is the body's storage for one row, `array` the outer view of all. */
typedef struct tow__rows {
    uint32_t row; /* TOW__NONE: the rows are written as a carry, or a consumer takes them */
    tow__view array;
    const tow__carry *carry; /* ys: rows of this carry, as it enters or leaves; or NULL */
    ptrdiff_t stride;        /* bytes from row to row */
    ptrdiff_t part;          /* bytes from block to block of one row; 0: all blocks need the whole of it */
} tow__rows;

typedef struct tow__loop {
    tow__schedule schedule;
    int64_t length;
    int64_t blocks; /* of rows, for TOW__PARALLEL_ROWS */
    int64_t shared; /* so many iterations, the last ones, would leave threads without work: all share each of their
                        instructions */
    bool reverse;
    bool continues; /* ordered tiles: the rest of the rows; another loop has begun its sums */
    bool mixed;     /* a tile group with instructions of the forward and of the backward pass */
    bool consumes;  /* the body hands rows to consumers, which overwrite inputs */
    tow__plan *body;
    uint32_t n_carry, n_xs, n_ys;
    tow__carry *carry;
    tow__rows *xs, *ys;
    int64_t row; /* at hand, while it runs: parameters of kernels point here */
} tow__loop;

/* The body makes rows, or blocks of them, and has no carries. */
static inline bool tow__by_blocks(const tow__loop *loop)
{
    return loop->schedule != TOW__SEQUENTIAL && loop->schedule != TOW__PARALLEL_ROWS;
}

/* Parameters of a step "consume": elements from *row * count on go to a consumer. */
typedef struct tow__sink_params {
    const tow_consumer *consumer;
    const int64_t *row;
    int64_t count;
} tow__sink_params;

/* A kernel call or a loop. Loop: in = init values, xs, then what the body reads of outer plans; out = carries, ys. */
typedef struct tow__instruction {
    const tow_primitive *op;   /* what the kernel computes */
    const tow_primitive *base; /* what it was made of: op itself, or the product that op does more than */
    const tow__kernel *kernel; /* NULL: loop */
    const void *params;
    tow__loop *loop;
    uint32_t n_in, n_out;
    tow__view *in, *out;
    bool *alone;      /* loop: [n_in] no other operand lies in the memory of this one; since tow__alias_results */
    uint32_t scratch; /* storage of one step: the kernel's scratch or the block of the loop's body; or TOW__NONE */
    bool backward;    /* comes from the backward part of a gradient */
    bool packed;      /* a product whose operand 2 is operand 1, packed, and read in its place */
    const tow__source *source;     /* of the equation it was made for; NULL: of none */
    uint32_t dead_begin, dead_end; /* into plan->dead: arena storages that nobody accesses after this step */
} tow__instruction;

struct tow__plan {
    tow__plan *outer;
    const tow__loop *loop;                            /* of which it is the body, or NULL */
    uint32_t first_storage, last_storage, n_storages; /* its own, linked by `next`; see tow__first_storage */
    uint32_t block;                                   /* the storage of `outer` that holds this plan's arena */
    tow__instruction *insts;
    uint32_t n_insts, insts_capacity;
    uint32_t *dead;
    tow__team *team; /* that its kernels run on */
    uint32_t copies; /* of the body of a region, else 0; copy c lies c * bytes behind the first */
    size_t scratch;  /* of a call of an iteration that all threads share, at most; it lies behind the first copy */
    size_t bytes;    /* of its arena */
    size_t need;     /* lower bound: most bytes that are alive at once */
    size_t base;     /* offset of its arena in the program's */
};

/* What remat keeps in spite of its policies, because a budget allows it. */
typedef struct tow__remat_budget {
    uint32_t products; /* of those that would be made again, so many that were made last */
    bool all;          /* whatever the forward part makes, products or not */
    bool interleaved;  /* blocks of rows may go through forward and backward part before the next block begins */
} tow__remat_budget;

struct tow_program {
    tow_context *ctx;
    tow_graph *graph;
    tow__arena memory;          /* everything below, except the arena and the graphs */
    tow_graph **decompositions; /* of composites without a kernel: parameters of steps point into them */
    uint32_t n_decompositions, decompositions_capacity;
    tow__storage *storages;
    uint32_t n_storages, storages_capacity;
    tow__column *columns; /* while it is compiled (analysis/columns.c) */
    tow__plan *top;
    const tow__kernel *copy;
    tow_consumer *consumers; /* [outputs of the graph]; .consume is NULL where there is none */
    uint32_t n_consumers;
    bool *consumed;                   /* [outputs of the graph] a loop hands it over row by row */
    int64_t no_row;                   /* 0: where there are no rows */
    bool plan_only, flush_subnormals; /* of the options */
    bool left_out[TOW__PASSES];       /* by number of the pass */
    void (*after_pass)(void *user, const char *pass, const char *function, const char *text);
    void *after_pass_user;
    size_t keep_within;
    tow__remat_budget budget; /* what keep_within is spent on */
    uint32_t n_repeated;      /* remat/eliminate_recomputation.c: products that repeat one of the forward part */
    tow__team team, solo;     /* all threads; the caller alone */
    tow__executable executable;
    tow_program_bytes bytes;
};

/* The plan's storages in the order in which they were added:
 *     for (uint32_t s = tow__first_storage(plan); s != TOW__NONE; s = p->storages[s].next) */
static inline uint32_t tow__first_storage(const tow__plan *plan)
{
    return plan->n_storages ? plan->first_storage : TOW__NONE;
}

/* True if it has a place of its own in the arena of its plan: steps access it, and it shares no other's memory. */
static inline bool tow__in_arena(const tow_program *p, uint32_t s)
{
    const tow__storage *x = &p->storages[s];
    return x->kind == TOW__S_ARENA && x->representative == s && x->first != TOW__NONE;
}

/* ---- analysis/columns.c ------------------------------------------------------------------------------------------ */

/* An array with an item of so many bytes for each storage that there is, every byte `blank`. Give it back in the end,
 * unless the program is given up. NULL: out of memory. */
void *tow__borrow(tow_program *p, tow__arena *scratch, size_t size, int blank);
/* Makes one item blank again. */
void tow__blank(const tow_program *p, const void *column, uint32_t storage);
/* All items that are not blank belong to storages that steps[which[0]], ..., steps[which[n - 1]] read or write. which
 * NULL: the first n steps. */
void tow__give_back(tow_program *p, const void *column, const tow__instruction *insts, uint32_t n,
                    const uint32_t *which);
/* All items that are not blank belong to these storages. */
void tow__give_back_named(tow_program *p, const void *column, const uint32_t *storages, uint32_t n);

/* ---- compile.c, remat/search_budget.c ---------------------------------------------------------------------------- */

tow_status tow__compile_with_budget(tow_context *ctx, const tow_graph *graph, const tow_compile_options *options,
                                    int threads, tow__remat_budget budget, tow_program **program);
/* *budget: how options->keep_within is spent best. Compiles the graph several times, without memory. */
tow_status tow__search_budget(tow_context *ctx, const tow_graph *graph, const tow_compile_options *options, int threads,
                              tow__remat_budget *budget);

/* Is storage `root` written (or read) by the backward part where `step` does so? A region may have steps of both. */
bool tow__is_backward(const tow_program *p, const tow__instruction *inst, uint32_t root, bool write);

/* ---- loop/distribute.c, loop/fission.c: products that need not wait leave scans ---------------------------------- */

/* A graph with the same inputs, outputs and bits; `g` itself, retained, if nothing moves. defers: what carries of small
 * scans do not wait for may come later (loop/fission.c). */
tow_status tow__distribute_loops(const tow_graph *g, bool defers, tow_graph **result);
/* loop/fission.c: records scan `scan` with these parameters in chunks, if that is worth it (*done). trace NULL: only
 * tells. */
tow_status tow__fission_loop(tow__arena *arena, tow_trace *trace, const tow__equation *scan,
                             const tow__scan_params *params, const tow_value *operands, tow_value *results, bool *done);

/* ---- lower/inline.c: inlined equations in the order in which they will run --------------------------------------- */

typedef struct tow__node {
    const tow__equation *e;
    uint32_t *in, *out; /* values of the flat graph */
    bool lazy;          /* runs directly before its first reader */
    bool backward;
    tow__flat *body;           /* scan, else NULL */
    const tow__kernel *kernel; /* NULL: scan, constant or view */
} tow__node;

struct tow__flat {
    tow__node *nodes;
    uint32_t n_nodes, nodes_capacity;
    tow_type *types;  /* [n_values] */
    uint32_t *makers; /* [n_values] node, or TOW__INPUT */
    bool *carries;    /* [n_values] depends on a cotangent (as far as known) */
    uint32_t n_values, types_capacity, makers_capacity, carries_capacity;
    uint32_t *inputs, *outputs;
    uint32_t n_inputs, n_outputs;
    bool *delivered; /* [n_values] it, or a view of it, is an output */
    uint32_t *order; /* nodes to run, in order; those that no output needs are left out */
    uint32_t n_order;
};

/* Everything lives in `scratch`. scan: g is its body, which also goes through the passes on nodes; or NULL. */
tow_status tow__inline_graph(tow_program *p, tow__arena *scratch, const tow_graph *g, const tow__scan_params *scan,
                             tow__flat **flat);
/* A new value of a flat graph, or TOW__NONE. */
uint32_t tow__add_value(tow__arena *scratch, tow__flat *f, tow_type type, uint32_t maker, bool carries);
/* remat/eliminate_recomputation.c: leaves out those repeated nodes that p->budget says, counts products in
 * p->n_repeated. Before the merges below. */
tow_status tow__eliminate_recomputation(tow_program *p, tow__arena *scratch, tow__flat *f);
/* Lists the nodes that outputs need, in the order in which they run; says which values end in arrays of somebody else.
 * */
tow_status tow__order_nodes(tow__flat *f, tow__arena *scratch);

/* ---- analysis/view.c --------------------------------------------------------------------------------------------- */

/* Makes *y, the result of equation e (a primitive that only rearranges) on view x, without moving data. False if e is
 * not of that kind or the result is not a view of x. */
bool tow__view_of(const tow__equation *e, const tow__view *x, tow_type type, tow__view *y);
/* All of its storage, row-major. */
bool tow__is_whole(const tow_program *p, const tow__view *x);
/* What a kernel gets; data stays NULL. */
tow__buffer tow__view_buffer(const tow__view *x);
/* The name of the engine that runs a step, which is no loop. */
const char *tow__engine_of(const tow_program *p, const tow__instruction *inst);

/* ---- lower/lower.c, lower/lower_scan.c --------------------------------------------------------------------------- */

/* Steps for a flat graph whose inputs are given as views. env: a view per value. */
typedef struct tow__lowering {
    tow_program *p;
    tow__plan *plan;
    tow__arena *scratch;
    const tow__flat *flat;
    tow__view *env;
} tow__lowering;

tow_status tow__lower(tow__lowering *l);
/* The views of the program's inputs, its instructions, and the copies or designations of its outputs. */
tow_status tow__lower_graph(tow_program *p, tow__arena *scratch, const tow__flat *flat);
tow_status tow__lower_loop(tow__lowering *l, const tow__node *node);
/* The operands of a loop: init values, xs, then what its body reads of functions around. Once more when that has
 * changed. */
tow_status tow__list_loop_reads(tow_program *p, tow__instruction *inst, tow__arena *scratch);
/* Memory for a new constant, or for a storage that becomes one, which the caller fills; NULL: out of memory. */
void *tow__add_constant(tow__lowering *l, size_t bytes, uint32_t *storage);
void *tow__become_constant(tow__lowering *l, uint32_t storage, size_t bytes);
/* Asks the step's kernel for its scratch, once kernel, params and views are known. */
tow_status tow__add_scratch(tow__lowering *l, tow__instruction *inst);
/* *bytes: what it needs when it runs on `team`. */
tow_status tow__scratch_bytes(tow__arena *scratch, const tow__instruction *inst, tow__team *team, size_t *bytes);
/* Copies view x, row-major, into a storage that exists. */
tow_status tow__add_copy(tow__lowering *l, const tow__view *x, uint32_t storage, bool backward);
/* A step with room for its views; NULL: out of memory. Steps move when more are added: fill it before adding another.
 * */
tow__instruction *tow__add_instruction(tow__lowering *l, const tow_primitive *op, uint32_t n_in, uint32_t n_out);
/* Appends a step as it is. */
tow_status tow__append_instruction(tow_program *p, tow__plan *plan, const tow__instruction *inst);
/* A new storage for a whole value; TOW__NONE: out of memory. */
uint32_t tow__add_storage(tow_program *p, tow__plan *plan, tow__storage_kind kind, uint32_t index, size_t bytes);
/* Output `value` of the plan must end in a storage of this kind and index, which is returned in *storage: its producer
 * writes there if it can, else a copy step does. */
tow_status tow__deliver(tow__lowering *l, uint32_t value, tow__storage_kind kind, uint32_t index, uint32_t *storage);

/* ---- lower/output_sink.c ----------------------------------------------------------------------------------------- */

/* The consumers of the options, by output. */
tow_status tow__set_consumers(tow_program *p, const tow_compile_options *options);
/* The consumer that may take the loop's rows of `value`, a result of node at->order, or NULL. */
const tow_consumer *tow__row_sink(const tow__lowering *l, const tow__node *node, uint32_t value);
/* Copies x, which is to be handed over, unless it is contiguous and no consumer can overwrite it. Call this for all
 * that a plan hands over before it hands over the first. */
tow_status tow__copy_for_sink(tow__lowering *l, tow__view *x);
/* A step that hands x over, directly after the last step that makes x or reads `input`, which the consumer overwrites;
 * NULL: the plan does not read it. *row: which row x is when the step runs. */
tow_status tow__add_sink(tow__lowering *l, const tow_consumer *consumer, const tow__view *x, const tow__view *input,
                         const int64_t *row);
/* Hands over the outputs with consumers whose rows no loop has handed over. */
tow_status tow__sink_outputs(tow__lowering *l);

/* Room for one more item in an array that lives in an arena; NULL: out of memory. */
void *tow__extend(tow__arena *arena, void *items, uint32_t n, uint32_t *capacity, size_t size);

/* ---- fuse/fuse.c, fuse/fuse_reductions.c ------------------------------------------------------------------------- */

/* Joins elementwise steps into row programs ("fused" steps, src/kernels/elementwise/fused.h; fuse/row_program.c).
 * After lowering. */
tow_status tow__fuse(tow__function_state *s);
/* fuse/fuse_reductions.c: joins row programs with reductions of what they make. After fusion and regions, in which
 * reductions along rows go with their rows. */
tow_status tow__fuse_reductions(tow__function_state *s);
/* A reduction of a whole storage to another one, in the order of src/kernels/reductions/reduce.h? */
bool tow__is_reduction(const tow_program *p, const tow__instruction *inst);
typedef struct tow__extents {
    int64_t outer, elements, columns;
} tow__extents;
/* The operand of a reduction as [outer, elements, columns]; false: there is a kept axis among those reduced. */
bool tow__find_extents(const tow__instruction *inst, tow__extents *e);
/* The row program of a step: all that a fused step does, or what follows a product; NULL: none. */
const struct tow__fused *tow__row_program_of(const tow__instruction *inst);

/* ---- analysis/tiling.c, tile/tile_groups.c, tile/tiles.c, loop/parallelize.c ------------------------------------- */

/* True if the step computes rows (axis 0 of its results) independently of each other. from[i] is 0 where it
 * needs the same rows of operand i only, else TOW__WHOLE. */
bool tow__is_tileable(const tow__instruction *inst, int *from);
/* Is it one of those that reduce rows: sums and maxima along them, softmax, norms? */
bool tow__reduces_axis(const tow__instruction *inst);
/* Floating-point operations: those of products exactly. */
double tow__flops(const tow__instruction *inst);
/* Rows of a product or of queries that belong to one row of axis 0. */
int64_t tow__inner_rows(const tow__instruction *inst);
/* True if axis 0 of x repeats one row: whatever block is read, it is the same. */
bool tow__repeats_rows(const tow__view *x);
/* True if block b of x, of `blocks` blocks of rows, lies in part b of its storage, for all b. */
bool tow__fits_tiles(const tow_program *p, const tow__view *x, int64_t blocks);
/* True if `blocks` pieces of equal work keep so many threads busy for three quarters of the time at least. */
bool tow__is_balanced(int64_t blocks, int64_t threads);
/* The same, where what is left over may be shared: `work` is that of a piece, in n_steps steps. */
bool tow__is_balanced_with_remainder(int64_t blocks, int64_t threads, double work, uint32_t n_insts);
/* loop/parallelize.c: makes a loop whose iterations, or whose rows, do without each other run side by side. After
 * fusion of its body, before regions. */
tow_status tow__parallelize_loop(tow__function_state *s);
/* Once the body of a parallel loop has its steps: says how many iterations all threads share. */
tow_status tow__distribute_remainder(tow__function_state *s);

/* ---- memory/alias.c, memory/assign_buffers.c --------------------------------------------------------------------- */

uint32_t tow__representative(const tow_program *p, uint32_t storage);
/* Lifetimes of the plan's storages, then joins outputs with operands that die. */
tow_status tow__alias_results(tow__function_state *s);
/* True if a loop's carry needs two buffers: its new value (storage `out`) is written while the old one (`in`) is still
 * read, and not by a step that may overwrite what it reads. */
bool tow__carry_alternates(const tow_program *p, const tow__plan *body, uint32_t in, uint32_t out);
/* Where each carry lies, once the aliasing of the body is settled. */
tow_status tow__choose_carry_storage(tow_program *p, tow__loop *loop);
/* True if output k of the step may have the memory of operand j. */
bool tow__may_overwrite(const tow_program *p, const tow__instruction *inst, uint32_t k, uint32_t j);

typedef struct tow__interval {
    uint32_t first, last; /* steps, both included */
    size_t bytes;         /* multiple of the alignment */
    size_t need;          /* what counts for the lower bound */
    size_t offset;        /* result */
} tow__interval;

/* Gives every interval an offset such that no two that meet in time meet in memory. *total: bytes needed;
 * *bound: most bytes of `need` at one step. */
tow_status tow__assign_offsets(tow_context *ctx, tow__interval *intervals, uint32_t n, uint32_t n_insts, size_t *total,
                               size_t *bound);
/* Offsets for the storages of a plan, and the size of its block in the surrounding one. */
tow_status tow__assign_buffers(tow_program *p, tow__plan *plan, tow__arena *scratch);

/* ---- memory/bind_addresses.c ------------------------------------------------------------------------------------- */

/* Allocates the arena and makes the executable program. */
tow_status tow__bind_addresses(tow_program *p, tow__arena *scratch);

/* ---- helpers ----------------------------------------------------------------------------------------------------- */

static inline size_t tow__round_up(size_t bytes)
{
    return (bytes + (TOW__ALIGNMENT - 1)) & ~(size_t)(TOW__ALIGNMENT - 1);
}

#endif
