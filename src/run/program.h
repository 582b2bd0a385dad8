/* The program as it is executed: calls with addresses. src/plan makes it (memory/bind_addresses.c), src/run reads it
 * and knows nothing of plans.
 *
 *   code       call | call | loop | call                 calls of kernels, and loops, in order
 *                            |
 *                            code of the body            once for each thread that runs iterations side by side
 *
 * All buffers of a call lie in the arena, in constants, or in memory that moves: the caller's arrays, rows and carries
 * of loops. Memory that moves is addressed through a base. A base knows the pointers that depend on it (its
 * relocations), so moving it is a few stores, and running needs no lookups:
 *
 *   xs row     base moved by one row per iteration          (read in place)
 *   carry      bases `in` and `out`: see tow__carry_storage
 *   ys row     base moved by one row per iteration          (written in place) */
#ifndef TOW_SRC_RUN_PROGRAM_H
#define TOW_SRC_RUN_PROGRAM_H

#include "src/base/base.h"
#include "src/base/cancel.h"
#include "src/base/spill.h"
#include "src/group/group.h"
#include "src/kernels/kernel.h"
#include "src/run/shared_arena.h"
#include "tow/program.h"

#define TOW__NONE UINT32_MAX

typedef struct tow__recording tow__recording;
typedef struct tow__executable_loop tow__executable_loop;

/* Whenever a base moves to an address, *where becomes that address + offset. */
typedef struct tow__relocation {
    void **where;
    ptrdiff_t offset;
} tow__relocation;

typedef struct tow__base {
    uint32_t begin, end; /* its relocations */
} tow__base;

/* ---- loops ------------------------------------------------------------------------------------------------------- */

/* The ways in which the iterations of a loop run. If threads run them side by side, each has code for the body with an
 * arena of its own. */
typedef enum tow__schedule {
    TOW__SEQUENTIAL,          /* one after the other; all threads share the work on each instruction */
    TOW__PARALLEL_ITERATIONS, /* a scan without carries: threads take iterations */
    TOW__PARALLEL_ROWS,       /* a scan that keeps rows apart: threads take blocks of rows through all iterations */
    TOW__PARALLEL_TILES,      /* a tile group: threads take blocks of rows */
    TOW__ORDERED_TILES        /* a tile group that adds to sums, results behind its ys: blocks run in order */
} tow__schedule;

/* Threads take iterations side by side. */
static inline bool tow__is_parallel(tow__schedule schedule)
{
    return schedule == TOW__PARALLEL_ITERATIONS || schedule == TOW__PARALLEL_TILES;
}

/* The place of a carry between iterations. The last iteration writes the result of the loop. */
typedef enum tow__carry_storage {
    TOW__CARRY_IN_PLACE,   /* in the result: each iteration overwrites the value that it has read */
    TOW__CARRY_ALTERNATES, /* in the result and in a spare buffer in turn: the old value is read after the new one is
                               written. In a loop that stops, iteration 0 writes the spare buffer, and the last
                               value is copied into the result if need be */
    TOW__CARRY_IN_ROWS,    /* in the rows of the ys that stack it as it enters: each new value is written where the next
                               row is, the last one in the result */
    TOW__CARRY_IN_ALL_ROWS, /* likewise, and the last value is a row: other ys stack the carry as it leaves. One array
                               of one row more holds both stacks and the result */
} tow__carry_storage;

typedef struct tow__executable_rows {
    uint32_t base; /* of a row; TOW__NONE: nothing moves, because the rows are written as a carry */
    char *data;
    ptrdiff_t stride; /* bytes from row to row */
    ptrdiff_t part;   /* bytes from block to block of one row; 0: all blocks need the whole of it */
} tow__executable_rows;

typedef struct tow__executable_carry {
    tow__carry_storage storage;
    uint32_t in, out; /* bases */
    bool copies;      /* the initial value is copied into the first buffer when the loop starts */
    bool ahead;       /* for the next iteration: nobody reads the result, and iteration 0 writes the spare buffer */
    char *init, *result, *spare;
    uint32_t rows;  /* index of the ys, where the carry lies in rows */
    ptrdiff_t part; /* bytes from block to block of rows */
    tow__buffer copy_in, copy_out;
} tow__executable_carry;

/* ---- code -------------------------------------------------------------------------------------------------------- */

/* The call of a kernel, or a loop. */
typedef struct tow__call {
    const tow__kernel *kernel; /* NULL: a loop */
    tow__executable_loop *loop;
    tow__kernel_call arguments;
    int shift; /* in a loop: 1: for the next iteration, and not in the last one; -1: for the one before, and not in the
                  first one */
    const struct tow__instruction *origin; /* the instruction of the plan it was made from, which recordings tell */
    uint64_t runs; /* since counting was switched on; each thread counts in the calls of its own code */
} tow__call;

/* Bytes of an arena. */
typedef struct tow__range {
    size_t offset, bytes;
} tow__range;

typedef struct tow__code {
    tow__call *calls;
    uint32_t n;
    char *arena; /* of its function */
    /* In debug builds: freed[freed_begin[i]], ..., freed[freed_begin[i + 1] - 1] are what nobody reads after call i. */
    const tow__range *freed;
    const uint32_t *freed_begin;
} tow__code;

struct tow__executable_loop {
    tow__schedule schedule;
    bool reverse;
    bool stops;   /* a flag says before each iteration whether it runs */
    bool settles; /* in the end it waits for sums over processes that its iterations have begun */
    bool shifts;  /* calls work for other iterations */
    bool drains;  /* those for the iteration before run once more at the end */
    char *flag;   /* of a loop that stops; NULL: carry 0 is the flag */
    int64_t length;
    int64_t blocks; /* of rows, for TOW__PARALLEL_ROWS */
    int64_t shared; /* the number of last iterations that all threads share, call by call, on the first code's arena */
    tow__code *codes; /* one, or one for each thread */
    uint32_t n_codes;
    tow__code together; /* for shared iterations */
    uint32_t n_carry, n_xs, n_ys;
    tow__executable_carry *carry;
    tow__executable_rows *xs, *ys;
    int64_t *row; /* kernels of the body read here which row is at hand */
};

/* ---- programs ---------------------------------------------------------------------------------------------------- */

/* An array of the caller's. */
typedef struct tow__argument {
    tow_type type;
    const char *name; /* or NULL */
    bool absent;      /* an output that is written in place of an input */
} tow__argument;

/* The address of an input or output of the plan: so many bytes into an array of the caller's. */
typedef struct tow__port {
    uint32_t array;
    size_t offset;
} tow__port;

typedef struct tow__executable {
    tow_context *ctx;
    tow__team *team; /* all threads */
    tow__code code;
    tow__base *bases; /* inputs, outputs, then those of loops */
    tow__relocation *relocations;
    tow__argument *inputs, *outputs;
    uint32_t n_inputs, n_outputs;
    tow__port *ports; /* [n_ports_in + n_ports_out] of the first bases */
    uint32_t n_ports_in, n_ports_out;
    const tow__kernel *copy; /* of initial values of carries */
    char *arena; /* NULL: planned only; where calls point to, which a run moves if the shared arena has moved */
    size_t arena_size;
    tow_shared_arena *shared_arena; /* that the arena belongs to; NULL: to the program */
    uint32_t arena_base;            /* moves the arena of a shared arena */
    bool tuned;                     /* it has run before */
    bool flush_subnormals;
    tow_status failure;           /* of a host function, which ends the run */
    tow__spill spill;             /* rows in a file */
    tow__collectives collectives; /* sums over processes */
    /* The first call of `code` that overwrites an array of the caller's which holds what a cancelled run must leave:
     * from there on the run goes to its end. */
    uint32_t first_lasting;
    tow__cancellation cancellation;
    tow__recording *recording; /* of runs (record.h), or NULL */
    bool counting;             /* runs of calls */
} tow__executable;

/* Checks the arrays, and runs. */
tow_status tow__execute(tow__executable *x, tow_array *const *inputs, tow_array *const *outputs);

#endif
