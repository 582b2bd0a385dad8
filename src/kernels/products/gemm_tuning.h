/* Tuning of the own kernel to a machine: a function of its caches and of a few products that are timed.
 *
 * Products with large operands (TOW__TUNED elements of B) have the tuning of the machine; the timings it needs are
 * made before a program with such products runs for the first time, once in a process, in less than 10 ms. All others
 * have the tuning that needs no timing. Scratch memory is counted for the tuning that packs most. */
#ifndef TOW_SRC_KERNELS_GEMM_TUNING_H
#define TOW_SRC_KERNELS_GEMM_TUNING_H

#include "src/base/machine.h"
#include "src/kernels/products/gemm_own.h"

enum {
    TOW__TUNED = 1 << 16
};

/* Nanoseconds, each the best of some; 0: not measured. */
typedef struct tow__gemm_timings {
    double direct, packed; /* of a product of some hundred rows and columns whose A is used in place, and packed */
    double to_l2, to_l1;   /* of one of a few rows, whose B comes from L3, prefetched to one or the other */
} tow__gemm_timings;

tow__gemm_tuning tow__gemm_tune(const tow__machine *machine, const tow__gemm_timings *timings);
/* Makes the timings, unless they are made. */
void tow__gemm_time(void);
/* The measured timings; zeros: none yet. */
tow__gemm_timings tow__gemm_timings_here(void);
/* Floating-point operations per second of the fastest of these products; 0: not measured. */
double tow__gemm_rate(void);

#endif
