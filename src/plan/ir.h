/* Plans: what src/plan makes, and what the executable program (src/run/program.h) is made from.
 *
 * The passes that make them, in order, are in src/plan/pipeline.c.
 *
 * A storage is a piece of memory with one schedule position for its first write and one for its last read; a view is a
 * storage with offset and strides. Every result of every instruction has a storage of its own; aliasing joins storages
 * (`representative`), so the checker can still tell the values apart. A scan is one instruction of the function around
 * it (a loop) with a body, a function of its own, whose arena is one storage of the surrounding arena:
 *
 *   arena    |  a  |  b   |  arena of the body: | t0 | t1 |     |  stacked result  |
 *
 * A tile group is a loop, too: its iterations are blocks of rows. Threads run them side by side, each in a copy of the
 * body's arena; or, where products sum over rows, all threads run one block after the other. */
#ifndef TOW_SRC_PLAN_IR_H
#define TOW_SRC_PLAN_IR_H

#include "src/base/machine.h"
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
    X(TOW__S_ARENA, "arena")       /* `offset` in the arena of its function */                                         \
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

typedef struct tow__body tow__body;
typedef struct tow__function_state tow__function_state; /* pass.h */
typedef struct tow__column tow__column;

typedef struct tow__storage {
    tow__storage_kind kind;
    tow__body *body; /* the function that it belongs to */
    size_t bytes;
    size_t need;             /* bytes for the lower bound; less than `bytes` for the fragmented block of a loop */
    uint32_t index;          /* of the input, output, xs, ys or carry */
    uint32_t representative; /* the storage whose memory it shares, itself if none */
    uint32_t first, last;    /* of a representative: instructions of the first write and of the last access */
    bool in_flight;          /* an exchange between processes goes on in it in the next iteration (defer_waits.c) */
    size_t offset;
    const void *data;
    /* for reports */
    const tow_primitive *made; /* what makes the value, of stacked rows what makes one; NULL: nothing does */
    const tow__source *source; /* of that equation, or NULL */
    tow_type type;             /* of the value, as it was written; of other bytes if it is not known */
    uint32_t base; /* number of the address from which it is reached; TOW__NONE if its address never changes */
    uint32_t next; /* storage of the same function, or TOW__NONE */
} tow__storage;

/* One carry of a loop that changes. Iteration 0 reads the initial value where it is, or a copy; the last iteration
 * writes `result`. Lowering says which ys are to stack the carry in the memory in which it lies; once aliasing has
 * decided who overwrites what, tow__choose_carry_storage decides where it lies, for all carries. */
typedef struct tow__carry {
    uint32_t in, out;           /* storages of the body */
    uint32_t result;            /* outer storage */
    uint32_t entering, leaving; /* ys that stack it as it enters, and (one of those) as it leaves; or TOW__NONE */
    tow__carry_storage storage;
    bool copies;    /* the initial value is copied into the first buffer when the loop starts */
    bool ahead;     /* begun for the next iteration: the last one begins nothing, and nobody reads the result */
    uint32_t spare; /* outer storage, or TOW__NONE */
    tow__view init; /* outer view */
    ptrdiff_t part; /* bytes from block to block of rows */
} tow__carry;

/* xs or ys: `row` is the body's storage for one row, `array` the outer view of all. */
typedef struct tow__rows {
    uint32_t row; /* TOW__NONE: the rows are written as a carry */
    tow__view array;
    const tow__carry *carry; /* ys: rows of this carry, as it enters or leaves; or NULL */
    ptrdiff_t stride;        /* bytes from row to row */
    ptrdiff_t part;          /* bytes from block to block of one row; 0: all blocks need the whole of it */
    int shift; /* 1: the row is that of the next iteration, -1: of the one before (pipeline_exchanges.c) */
} tow__rows;

typedef struct tow__loop {
    tow__schedule schedule;
    int64_t length;
    int64_t blocks; /* of rows, for TOW__PARALLEL_ROWS */
    int64_t shared; /* the number of last iterations whose instructions all threads share, or they would leave threads
                       without work */
    bool reverse;
    bool stops;     /* a flag says before each iteration whether it runs: `flag`, or carry 0 if new_flags */
    bool new_flags; /* the body makes the next flag */
    bool continues; /* ordered tiles: the rest of the rows; another loop has begun its sums */
    bool mixed;     /* a tile group with instructions of the forward and of the backward pass */
    tow__body *body;
    uint32_t n_carry, n_xs, n_ys;
    tow__carry *carry;
    tow__rows *xs, *ys;
    tow__view flag; /* of a loop that stops: the flag before iteration 0 */
    int64_t row;    /* at hand, while it runs: parameters of kernels point here */
} tow__loop;

/* The body makes rows, or blocks of them, and has no carries. */
static inline bool tow__by_blocks(const tow__loop *loop)
{
    return loop->schedule != TOW__SEQUENTIAL && loop->schedule != TOW__PARALLEL_ROWS;
}

/* An operation of a function. Until lowering its operands and results are values; lowering attaches a kernel and views
 * of storages. Instructions that only rearrange, and constants, become views and are instructions no more.
 *
 * A scan has its body as a nested function, and since lowering a loop that runs it: in = initial values, xs, then what
 * the body reads of functions around; out = carries, ys. */
typedef struct tow__instruction {
    const tow_primitive *op; /* what it computes */
    const void *params;      /* of op */
    tow__extras extras;      /* what it does beside op: epilogue, accumulation, part of a sum (kernels/kernel.h) */
    const tow__kernel
        *kernel; /* for op with these extras. NULL: a scan; until lowering, a constant or a view as well */
    uint32_t n_in, n_out;
    const tow__source *source; /* of the equation it was made for; NULL: of none */
    bool backward;             /* comes from the backward pass of a gradient */
    tow__body *body;           /* of a scan */
    /* until lowering */
    uint32_t *operands, *results; /* values of the function */
    bool effect;                  /* runs once, where it stands among others with effects */
    bool late;                    /* runs directly before its first reader */
    bool awaits;                  /* likewise: waits for other processes, or is a view or a few numbers of what does */
    bool deferred; /* all_reduce_wait: its loop waits, in the end or in front of the start of the next iteration */
    int shift; /* in a loop: 1: works for the next iteration, not in the last one; -1: for the one before, not in the
                      first one, and once more at the end (loop/pipeline_exchanges.c) */
    /* since lowering */
    tow__view *in, *out;
    tow__loop *loop;
    uint32_t
        scratch; /* storage that only it accesses: the kernel's scratch or the arena of the loop's body; or TOW__NONE */
    bool packed; /* a product whose operand 2 is operand 1, packed, and read in its place */
    bool *alone; /* loop: [n_in] no other operand lies in the memory of this one; since tow__alias_results */
    uint32_t dead_begin, dead_end; /* into body->dead: arena storages that nobody accesses afterwards */
} tow__instruction;

/* Is the instruction one of the primitive `name` of the table, or of the operation of plans? */
#define TOW__COMPUTES(inst, name) ((inst)->op == &tow__##name##_p)

/* Does it compute its operation and nothing else? */
static inline bool tow__is_plain(const tow__instruction *inst) { return tow__variant_of(&inst->extras) == TOW__PLAIN; }

/* The kernel that does all that the instruction does, on this type; NULL: there is none. */
static inline const tow__kernel *tow__kernel_for(const tow__instruction *inst, tow_dtype dtype)
{
    return tow__kernel_variant(inst->op->name, tow__variant_of(&inst->extras), dtype);
}

/* The results that it may write over operands: what is added to an operand may lie there. */
static inline tow__aliasing tow__aliasing_of(const tow__instruction *inst)
{
    switch (tow__variant_of(&inst->extras)) {
    case TOW__PLAIN:
    case TOW__WITH_REDUCTIONS:
        return inst->op->aliasing;
    case TOW__ADDING:
    case TOW__ADDING_IN_ORDER:
        return TOW__ALIAS_LAST;
    case TOW__WITH_EPILOGUE:
    case TOW__PART_OF_SUM:
        return TOW__ALIAS_NONE;
    }
    return TOW__ALIAS_NONE;
}

/* The operation of an instruction, as rules of primitives see it. */
static inline tow__operation tow__operation_of(const tow__instruction *inst)
{
    return (tow__operation){inst->params, inst->n_in, inst->n_out, inst->in, inst->out, inst->op};
}

/* A function: the program itself, the body of a scan, or that of a tile group. Instructions run in order once they are
 * ordered. */
struct tow__body {
    tow__body *outer;
    const tow__loop *loop; /* that runs it, or NULL */
    tow__instruction *insts;
    uint32_t n_insts, insts_capacity;
    /* until lowering */
    uint32_t *inputs, *outputs; /* values */
    uint32_t n_inputs, n_outputs;
    tow_type *types;  /* [n_values] */
    uint32_t *makers; /* [n_values] the instruction that makes it, TOW__INPUT, or TOW__NONE if that is left out */
    bool is_gradient; /* has a forward and a backward pass of its own */
    bool *delivered;  /* [n_values] it, or a view of it, is an output; since it is ordered */
    uint32_t n_values, types_capacity, makers_capacity;
    /* since lowering */
    uint32_t first_storage, last_storage, n_storages; /* its own, linked by `next`; see tow__first_storage */
    tow__team *team;                                  /* that its kernels run on */
    uint32_t
        copies; /* one arena for each thread that runs it, or 0: one arena; copy c lies c * bytes behind the first */
    size_t scratch; /* of a call of an iteration that all threads share, at most; it lies behind the first copy */
    /* since buffer assignment */
    uint32_t block;      /* the storage of `outer` that is its arena */
    size_t bytes;        /* of its arena */
    size_t need;         /* lower bound: most bytes that are alive at once */
    size_t arena_offset; /* of its arena in the program's */
    uint32_t *dead;
};

/* The values that remat keeps in spite of its policies, because a memory limit allows it. */
typedef struct tow__remat_choice {
    uint32_t products; /* number of recomputed products to keep, latest first */
    bool all;          /* keep all forward values, not only products */
    bool interleaved;  /* ordered tiles may go through the forward and the backward pass before the next tile begins */
    bool untiled;      /* no tile groups, whose values wait for each other in blocks of rows */
} tow__remat_choice;

/* A graph whose donated stacks are two inputs and two outputs each, for the runs of a loop that is cut
 * (loop/split_stacks.c). */
typedef struct tow__split_stacks {
    tow_graph *whole;            /* the caller's; NULL: it is the graph of the program */
    uint32_t *donors;            /* of its outputs */
    tow__port *inputs, *outputs; /* of the graph of the program */
} tow__split_stacks;

struct tow_program {
    tow_context *ctx;
    tow_graph *graph;
    tow__arena memory;          /* everything below, except the arena and the graphs */
    tow_graph **decompositions; /* of composites without a kernel: parameters of instructions point into them */
    uint32_t n_decompositions, decompositions_capacity;
    tow__storage *storages;
    uint32_t n_storages, storages_capacity;
    tow__column *columns; /* while it is compiled (analysis/columns.c) */
    tow__body *top;
    const tow__kernel *copy;
    uint32_t *donors; /* [outputs of the graph] the input in whose place it is written, or TOW__NONE */
    tow__split_stacks split;
    int64_t no_row;                   /* 0: where there are no rows */
    bool verifies;                    /* of the options */
    bool calls_host;                  /* functions of the caller's that may end a run, somewhere in the graph */
    bool plan_only, flush_subnormals; /* of the options */
    tow_shared_arena *shared_arena;   /* of the options */
    bool left_out[TOW__PASSES];       /* by number of the pass */
    void (*after_pass)(const char *pass, const char *function, const char *text, void *user);
    void *after_pass_user;
    size_t memory_limit;
    tow__remat_choice choice;      /* that was made for it */
    tow_memory_point unlimited;    /* within a limit: of the plan without one; else zeros */
    const tow_donation *donations; /* [n_donations], of the options */
    size_t n_donations;
    const char *limit_note; /* lines about what no choice could change; NULL: none */
    uint32_t n_repeated;    /* remat/eliminate_recomputation.c: products that repeat one of the forward pass */
    tow__machine machine;   /* that the plan is for; .threads: of the team, unless a machine is given that has others */
    tow__team team, solo;   /* all threads; the caller alone */
    tow__executable executable;
    tow_program_bytes bytes;
};

/* The storages of a function in the order in which they were added:
 *     for (uint32_t s = tow__first_storage(body); s != TOW__NONE; s = p->storages[s].next) */
static inline uint32_t tow__first_storage(const tow__body *body)
{
    return body->n_storages ? body->first_storage : TOW__NONE;
}

/* True if the storage has an offset of its own in the arena of its function: instructions access it, and it shares no
 * other's memory. */
static inline bool tow__in_arena(const tow_program *p, uint32_t s)
{
    const tow__storage *x = &p->storages[s];
    return x->kind == TOW__S_ARENA && x->representative == s && x->first != TOW__NONE;
}

/* The storage whose memory it is. */
static inline uint32_t tow__representative(const tow_program *p, uint32_t storage)
{
    while (p->storages[storage].representative != storage) storage = p->storages[storage].representative;
    return storage;
}

static inline size_t tow__round_up(size_t bytes)
{
    return (bytes + (TOW__ALIGNMENT - 1)) & ~(size_t)(TOW__ALIGNMENT - 1);
}

/* Room for one more item in an array that lives in an arena; NULL: out of memory. */
static inline void *tow__extend(tow__arena *arena, void *items, uint32_t n, uint32_t *capacity, size_t size)
{
    if (n < *capacity) return items;
    uint32_t more = *capacity ? 2 * *capacity : 16;
    void *grown = tow__arena_alloc(arena, more, size);
    if (!grown) return NULL;
    if (n) memcpy(grown, items, n * size);
    *capacity = more;
    return grown;
}

#endif
