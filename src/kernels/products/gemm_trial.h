/* Trials: which engine runs the products of one shape whose bits the own kernel defines.
 *
 * A library may stand in for the own kernel where its sums are the same chains of multiply-adds. That is proven for
 * the very code at hand and not assumed: when a program is linked, the own kernel and the library compute the same
 * product of random numbers (zeros of both signs, subnormal numbers and cancellation among them), and every bit must
 * agree. Then both are timed, and the faster one runs the product; on a tie the library does. So the choice follows
 * from the machine, and no bits depend on it.
 *
 * A trial is made once for each shape (sizes, strides, accumulation) in a process, takes some tens of microseconds
 * and is kept; all of them together take at most TOW__TRIAL_NANOSECONDS. Where that is spent, sizes alone decide. */
#ifndef TOW_SRC_KERNELS_GEMM_TRIAL_H
#define TOW_SRC_KERNELS_GEMM_TRIAL_H

#include "src/kernels/products/gemm.h"

enum {
    TOW__TRIAL_WORK = 1 << 22,       /* m n k of a product for which a trial is made, at most */
    TOW__TRIAL_ALWAYS = 1 << 18,     /* the same from which only a timed trial lets a library stand in */
    TOW__TRIAL_NANOSECONDS = 8000000 /* of all trials of a process */
};

/* b, a, c: of a tile; the strides are part of the code. */
typedef void (*tow__gemm_tile)(const f32 *b, const f32 *a, f32 *c);

/* What an engine made for the products of one shape. It does not change and lives as long as the process. */
typedef struct tow__gemm_code {
    int64_t m, n;               /* of the product */
    int64_t rows, columns;      /* of a tile; behind whole tiles are smaller ones */
    tow__gemm_tile tiles[2][2]; /* [the last rows][the last columns] */
    bool apart;                 /* tiles are computed in memory of their own, rows `columns` apart, then added to C */
    void *memory;               /* with the machine code */
    size_t bytes;
} tow__gemm_code;

/* Nanoseconds of one product by the own kernel, and by an engine with the same bits; 0: not timed. */
typedef struct tow__gemm_times {
    double own, other;
} tow__gemm_times;

/* The result of a trial. */
typedef struct tow__gemm_trial {
    const tow__gemm_engine *engine; /* that stands in for the own kernel; NULL: none */
    const tow__gemm_engine *proven; /* the one with the same bits, whether it is faster or not; NULL: none */
    tow__gemm_code code;            /* of `proven` */
    tow__gemm_times times;          /* of `proven` */
} tow__gemm_trial;

/* The trial of products like g, which is made if there is none; NULL: no library can stand in. Reads no pointers. */
const tow__gemm_trial *tow__gemm_try(const tow__gemm *g);
/* Why no trial is made of products like g; NULL: one is made, as long as there is room for its result. */
const char *tow__gemm_untried(const tow__gemm *g);

#endif
