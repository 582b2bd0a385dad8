/* Trials: which engine runs the products of one shape whose bits the own kernel defines.
 *
 * A library may stand in for the own kernel where its sums are the same chains of multiply-adds. That is proven for
 * the very code at hand and not assumed: before a program runs for the first time, the own kernel and the library
 * compute the same product of random numbers (zeros of both signs, subnormal numbers, underflow and cancellation among
 * them), and every bit must agree. Then both are timed, and the faster one runs the product; on a tie the library does.
 * So the choice follows from the machine, and no bits depend on it.
 *
 *   small products    libxsmm, whose machine code is made for one shape. Both are timed at once, which takes some tens
 *                     of microseconds; all such trials of a process take at most TOW__TRIAL_NANOSECONDS. Once that is
 *                     spent, sizes alone decide. If the times of products that are not tiny are close, the first
 *                     runs decide, as they do for large products.
 *   large products    BLIS; all products, where the processor has no vector instructions that Tow has a kernel for. A
 *                     part of the product is proof enough, because no bits of either depend on the rows and columns
 *                     that share a call. Neither is timed beforehand: the first runs of the product go to both in turn
 *                     (tow__gemm_contest), so times are those among the other work of a program, and cost nothing.
 *
 * A trial is made once for each shape (sizes, strides, accumulation) in a process, and is kept. */
#ifndef TOW_SRC_KERNELS_GEMM_TRIAL_H
#define TOW_SRC_KERNELS_GEMM_TRIAL_H

#include <stdatomic.h>

#include "src/kernels/products/gemm.h"

enum {
    TOW__TRIAL_WORK = 1 << 22,        /* m n k of a product that libxsmm is tried on, at most */
    TOW__TRIAL_ALWAYS = 1 << 18,      /* the same up to which libxsmm stands in untimed, and times of a trial decide */
    TOW__TRIAL_NANOSECONDS = 8000000, /* of all trials of small products of a process */
    TOW__CONTEST_RUNS = 12            /* of both engines together */
};

/* b, a, c: of a tile; the strides are part of the code. */
typedef void (*tow__gemm_tile)(const f32 *b, const f32 *a, f32 *c);

/* Two engines with the same bits, of which the first runs find the faster one. Threads may run the product at once. */
typedef struct tow__gemm_contest {
    atomic_int begun, ended; /* runs that count */
    atomic_llong best[2];    /* of the own kernel and of the other one: femtoseconds of a multiply-add; 0: none */
} tow__gemm_contest;

/* The code that an engine made for the products of one shape. It lives as long as the process, and does not change but
 * for the contest. */
typedef struct tow__gemm_code {
    const tow__gemm_engine *engine;
    int64_t m, n;               /* of the product */
    int64_t rows, columns;      /* of a tile; behind whole tiles are smaller ones */
    tow__gemm_tile tiles[2][2]; /* [the last rows][the last columns] */
    bool apart;                 /* tiles are computed in memory of their own, rows `columns` apart, then added to C */
    bool transposes;            /* columns of B run along k: some at a time are packed, as the own kernel does it */
    void *memory;               /* with the machine code; NULL: there is none */
    size_t bytes;
    tow__gemm_contest *contest; /* that the first runs decide; NULL: it is decided */
} tow__gemm_code;

/* Times of one product by the own kernel, and by an engine with the same bits, in one unit; 0: not timed. */
typedef struct tow__gemm_times {
    double own, other;
} tow__gemm_times;

/* The result of a trial. */
typedef struct tow__gemm_trial {
    const tow__gemm_engine *proven; /* the engine with the same bits, whether it is faster or not; NULL: none */
    bool stands_in;                 /* it was found to be as fast; a contest is not asked */
    tow__gemm_code code;            /* of `proven` */
    tow__gemm_times times;          /* of `proven`, unless there is a contest */
    tow__gemm_contest *contest;     /* NULL: there is none */
} tow__gemm_trial;

/* The trial of products like g, which is made if there is none; NULL: no library can stand in. Reads no pointers, but
 * for `packed` and `epilogue`: whether they are NULL. */
const tow__gemm_trial *tow__gemm_try(const tow__gemm *g);
/* Why no trial is made of products like g; NULL: one is made, as long as there is room for its result. */
const char *tow__gemm_untried(const tow__gemm *g);

/* The engine that runs g, a product that is not prepared, in place of the own kernel on a processor for which that has
 * no vector instructions: BLIS, if its bits are proven equal, which is done once in a process. NULL: none, the own
 * kernel. */
const tow__gemm_engine *tow__gemm_without_vectors(const tow__gemm *g);

/* The number of shapes that each engine has won in this process, large ones by contests that are decided. */
typedef struct tow__gemm_tally {
    int small, small_own, large, large_own;
} tow__gemm_tally;
tow__gemm_tally tow__gemm_count_trials(void);

/* The times that the runs have found so far, in femtoseconds of a multiply-add; false: the contest goes on. */
bool tow__gemm_contest_times(tow__gemm_contest *contest, tow__gemm_times *times);
/* Runs g, whose code has a contest, on one of both engines. m, n, k > 0. */
void tow__gemm_compete(const tow__gemm *g);

#endif
