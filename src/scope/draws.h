/* Random draws on the host, bit for bit those of jax.random on a CPU with FMA, in every float type. They decide initial
 * values; in graphs the primitives of src/ops do the same. */
#ifndef TOW_SRC_SCOPE_DRAWS_H
#define TOW_SRC_SCOPE_DRAWS_H

#include "tow/module.h"

typedef struct tow__draws {
    tow_distribution distribution;
    const uint32_t *key; /* [2] */
    double low, high;    /* the interval of uniform draws; the bounds of truncated normal ones */
    double scale;        /* every draw is multiplied by it */
    bool folded;         /* of a normal draw: sqrt(2) and scale are one factor */
} tow__draws;

/* data[i] = scale * draw number first + i, elements of a float type. */
void tow__draw(const tow__draws *draws, tow_dtype dtype, int64_t first, int64_t count, void *data);
/* The number of a float type nearest to x, as operations of JAX give it: floats of 16 bits by way of f32. */
double tow__as_float(tow_dtype dtype, double x);

#endif
