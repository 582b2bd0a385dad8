/* A bound on what a run of differentially private SGD tells about any one example. */
#ifndef DPSGD_PRIVACY_H
#define DPSGD_PRIVACY_H

#include <stdint.h>

/* The smallest epsilon for which `steps` steps are (epsilon, delta)-differentially private, for neighbors that differ
 * by one example. Each step takes every example with probability `rate` in (0, 1], and adds noise of standard deviation
 * `noise` times the norm to which gradients are clipped. INFINITY without noise; 0 without steps. */
double dp_epsilon(double rate, double noise, int64_t steps, double delta);

#endif
