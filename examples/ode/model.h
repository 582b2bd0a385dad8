/* Lotka and Volterra's equations, integrated by 10,000 Runge-Kutta steps, and how far they are from the
 * measurements. */
#ifndef ODE_MODEL_H
#define ODE_MODEL_H

#include <tow/tow.h>

#include "hares.h"

enum {
    PARAMETERS = 6,
    YEAR_STEPS = 500, /* Runge-Kutta steps in a year */
    STEPS = YEARS * YEAR_STEPS,
    POINTS = 400 /* of a trajectory that is drawn */
};

/* Regions of recomputation around the loop over the steps of a year. */
typedef enum nesting {
    /* a loop over years, in it a loop over steps: reverse mode keeps what every step computes */
    NO_REGION,
    /* a region around each year: it keeps the states between years, and what the steps of one year compute */
    ONE_REGION,
    /* and within a year 20 regions of 25 steps: states between years, between parts of one year, and 25 steps */
    NESTED,
    /* no region, but schedules: 4 states between years and 8 within one, from which the others are made again */
    SLOTS,
    NESTINGS
} nesting;

/* in: f64[6], logarithms of the rates at which hares are born, lynxes die, hares are eaten, lynxes are born of them,
 * and of both populations in the first year; measured logarithms f64[21, 2]. -> f64[], the mean squared difference.
 * user: the nesting. */
void ode_loss(tow_trace *trace, const tow_value *in, tow_value *out, void *user);
/* in: f64[6] as above -> logarithms of both populations at POINTS equally distant times, f64[POINTS, 2]. */
void ode_trajectory(tow_trace *trace, const tow_value *in, tow_value *out, void *user);

#endif
