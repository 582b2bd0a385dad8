/* Row programs: chains of elementwise functions that run tile by tile, in one pass over memory.
 *
 *   operands ──> tile of a few hundred elements ──> ops, one after the other, on tiles in the nearest cache ──> results
 *
 * A program is a list of ops. Each calls the tile function of an elementwise kernel, so a fused chain has the bits of
 * its parts. Values are numbered: first the operands, then the results, then the temporaries, which exist only as one
 * tile on the stack. All operands and results have one shape; operands that repeat elements have strides of 0. Nothing
 * in a program depends on that shape, so it may run on any rows of it. */
#ifndef TOW_SRC_KERNELS_FUSED_H
#define TOW_SRC_KERNELS_FUSED_H

#include "src/base/params.h"
#include "src/kernels/strided.h"

enum {
    TOW__FUSED_OPS = 64,
    TOW__FUSED_IN = 24,
    TOW__FUSED_OUT = 12,
    TOW__FUSED_TEMPS = 16,
    TOW__FUSED_VALUES = TOW__FUSED_IN + TOW__FUSED_OUT + TOW__FUSED_TEMPS,
    TOW__FUSED_ARITY = 5,
    TOW__FUSED_RESULTS = 2
};

typedef struct tow__fused_op {
    tow__tile tile;
    const void *params;
    tow__function function; /* of several that were joined (joined.h): the last one */
    tow_dtype dtype;        /* of the results */
    uint8_t n_in, n_out;
    uint8_t joined; /* 0: it computes one function */
    uint8_t in[TOW__FUSED_ARITY], out[TOW__FUSED_RESULTS];
} tow__fused_op;

typedef struct tow__fused {
    const tow__fused_op *ops;
    uint32_t n_ops;
    uint32_t n_in, n_out, n_temps;
    uint8_t sizes[TOW__FUSED_VALUES]; /* bytes of one element of each value */
    /* Operands, as bits, that are read after this result is made: if it takes the memory of one of them, it waits in a
     * tile until the end. */
    uint32_t read_after_write[TOW__FUSED_OUT];
    bool single[TOW__FUSED_IN]; /* of the operand, its first element alone is read */
} tow__fused;

_Static_assert(TOW__FUSED_IN <= 32, "operands are bits");

/* The way in which a value is read. */
typedef enum tow__access {
    TOW__CONTIGUOUS, /* along rows */
    TOW__SINGLE,     /* one element, which is read where it lies */
    TOW__REPEATED,   /* one element for all rows */
    TOW__PER_ROW,    /* one element per row */
    TOW__SAME_ROW,   /* one row for all rows, which share tiles of whole rows */
    TOW__GATHERED
} tow__access;

/* The layout, which follows from shapes and strides alone. Axes: those of the results, merged where all operands allow
 * it. */
typedef struct tow__fused_layout {
    int64_t count, row, tile; /* elements in all; of the last merged axis; of one tile */
    int64_t room;             /* elements from tile to tile in memory */
    bool shared;              /* rows share tiles: operands are read as a whole */
    int rank;                 /* of the axes before the last */
    int64_t dims[TOW_MAX_RANK];
    tow__access access[TOW__FUSED_IN];
    bool whole[TOW__FUSED_IN];                    /* contiguous as a whole */
    int64_t strides[TOW__FUSED_IN][TOW_MAX_RANK]; /* the last axis at [rank] */
} tow__fused_layout;

/* A program on its operands and results. */
typedef struct tow__fused_job {
    const tow__fused *program;
    const tow__fused_layout *layout;
    const char *in[TOW__FUSED_IN];
    char *out[TOW__FUSED_OUT];
    bool staged[TOW__FUSED_OUT]; /* results that take the memory of operands that are still to be read */
    bool moves;                  /* from tile to tile nothing changes but where they begin */
    tow__strided gathered[TOW__FUSED_IN];
} tow__fused_job;

/* in[i], out[k]: buffers of the program's operands and results; their addresses are not read. */
void tow__fused_prepare(const tow__fused *program, const tow__buffer *const *in, const tow__buffer *const *out,
                        tow__fused_layout *layout);
void tow__fused_begin(tow__fused_job *job, const tow__fused *program, const tow__fused_layout *layout,
                      const tow__buffer *const *in, const tow__buffer *const *out);
/* Elements first + i * step .. first + i * step + n for i in [0, times), by row-major index; on the caller. */
void tow__fused_run(const tow__fused_job *job, int64_t first, int64_t times, int64_t step, int64_t n);
/* The same, but result k goes to room[k], unless that is NULL, in the order in which its elements are made. */
void tow__fused_run_into(const tow__fused_job *job, char *const *room, int64_t first, int64_t times, int64_t step,
                         int64_t n);

/* ---- programs some of whose results are reduced ----------------------------------------------------------------- */

enum {
    TOW__FUSED_REDUCTIONS = 4
};

/* Reductions of what a row program makes. Its results, as [outer, elements, columns], are reduced to [outer, columns].
 * Results of the instruction: those of the program that are stored, then the reductions. Other results exist only as
 * tiles. */
typedef struct tow__row_reductions {
    uint32_t n_results; /* of the program */
    bool stored[TOW__FUSED_OUT];
    int64_t outer, elements, columns;
    uint32_t n_reductions;
    struct {
        const char *name;                   /* of the primitive */
        const struct tow__reducer *reducer; /* reduce.h */
        tow_dtype dtype;
        uint32_t result; /* of the program */
    } reductions[TOW__FUSED_REDUCTIONS];
} tow__row_reductions;

/* Into how many pieces so many threads can divide the work. */
int64_t tow__fused_reduce_pieces(const tow__row_reductions *reductions, int64_t threads);

/* ---- programs on finished strips of a product -------------------------------------------------------------------- */

/* A row program that reads the result of a product (dot_general, conv_general_dilated, ...) as operand 0. The product
 * is computed in result `accumulator` of the instruction: that of the program which has this number or, if there is one
 * more than the program has, the plain product. Operands of the instruction: those of the product, then operands 1.. of
 * the program. */
typedef struct tow__row_epilogue {
    const tow__fused *program;
    const tow__kernel *product;
    uint32_t accumulator;
} tow__row_epilogue;

/* The tile function of a call of an elementwise kernel; NULL: it is not elementwise. */
tow__tile tow__kernel_tile(const tow__kernel *kernel, const tow__kernel_call *call);

#endif
