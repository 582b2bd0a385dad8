/* The speed of the machine at hand, as kernels measure it. */
#ifndef TOW_SRC_KERNELS_MACHINE_RATES_H
#define TOW_SRC_KERNELS_MACHINE_RATES_H

#include "src/base/machine.h"

/* Rates as they were found, per second; 0: it was not measured. */
typedef struct tow__measured_rates {
    double f32;        /* operations of a product */
    double l3, memory; /* bytes of a sum of two arrays */
} tow__measured_rates;

/* Measures the machine at hand when it is asked for the first time in a process, which takes less than 10 ms (products
 * that are tuned, products/gemm_tuning.h, share their timings with it). */
tow__measured_rates tow__measure_machine(void);
/* The rates that were measured; zeros: nothing yet. */
tow__measured_rates tow__machine_rates_here(void);
/* The nominal rates of a machine in the light of what was measured. */
tow__rates tow__correct_rates(const tow__machine *machine, const tow__measured_rates *measured);

#endif
