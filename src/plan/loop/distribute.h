/* Loop distribution: loop/distribute.c decides which equations leave a scan, loop/record_distributed.c records the scan
 * and the equations around it anew. loop/strip_mine.c makes strips of iterations, for loop/fission.c as well. */
#ifndef TOW_SRC_PLAN_DISTRIBUTE_H
#define TOW_SRC_PLAN_DISTRIBUTE_H

#include "src/plan/ir.h"

enum {
    TOW__MOST_LOOP_SUMS = 16 /* at most so many sums of one scan are considered */
};

/* The place of an equation of the body after distribution. */
typedef enum tow__distributed {
    TOW__IN_LOOP,
    TOW__BEFORE_LOOP, /* its result is a row of one product over all iterations */
    TOW__REPLACED,    /* part of a sum, or replaced by one product after the loop */
    TOW__AFTER_LOOP
} tow__distributed;

typedef struct tow__loop_sum {
    uint32_t carry;               /* index */
    const tow__equation *add, *e; /* sum' = sum + e(...) */
} tow__loop_sum;

typedef struct tow__distribution {
    const tow__machine *machine;
    const tow__scan_params *params;
    const tow_graph *body;
    uint32_t consts, carry, n_ys;
    uint32_t *uses;          /* [n_vars] readers; outputs count */
    tow__distributed *fates; /* [n_equations] */
    bool *stacked;           /* [n_vars] what is computed in the loop and needed after it */
    bool *summed;            /* [carry] */
    tow__loop_sum sums[TOW__MOST_LOOP_SUMS];
    uint32_t n_sums;
    bool changes;
} tow__distribution;

static inline const tow__equation *tow__maker(const tow__distribution *s, uint32_t var)
{
    uint32_t e = s->body->vars[var].equation;
    return e == TOW__INPUT ? NULL : &s->body->equations[e];
}

static inline tow_type tow__type_of(const tow__distribution *s, uint32_t var) { return s->body->vars[var].type; }

static inline bool tow__is_output(const tow__distribution *s, uint32_t var)
{
    for (uint32_t i = s->carry; i < s->body->n_outputs; i++)
        if (s->body->outputs[i] == var) return true;
    return false;
}

/* Result i of the scan is a carry that became a sum, or ys that are a product outside. */
static inline bool tow__leaves_loop(const tow__distribution *s, uint32_t i)
{
    if (i < s->carry) return s->summed[i];
    const tow__equation *e = tow__maker(s, s->body->outputs[i]);
    return e && s->fates[e - s->body->equations] != TOW__IN_LOOP;
}

/* Records scan `scan`, which has been split, on `operands`; where rows of all iterations would not stay in L2, as
 * a scan over strips of iterations. */
void tow__record_distributed(tow_trace *t, const tow__distribution *s, const tow__equation *scan,
                             const tow_value *operands, tow_value *results);

/* ---- loop/strip_mine.c ------------------------------------------------------------------------------------------- */

/* Records what the iterations of one strip do; strip: parameters of the scan, with their number as length. */
typedef void (*tow__strip_recorder)(tow_trace *t, const tow__equation *scan, const tow__scan_params *strip,
                                    const void *user, const tow_value *operands, tow_value *results);

/* True if xs and ys have room for one more axis. */
bool tow__can_strip_mine(const tow__scan_params *params);
/* Records a scan with these parameters as one over strips of `iterations` iterations, which divide its length. */
void tow__record_strips(tow_trace *t, const tow__equation *scan, const tow__scan_params *params, int64_t iterations,
                        tow__strip_recorder record, const void *user, const tow_value *operands, tow_value *results);
/* Of one row of a stack. */
tow_type tow__row_type(tow_type type);

/* Records scan `scan` with these parameters in strips, if that is worth it (*done). trace NULL: only
 * tells. */
tow_status tow__fission_loop(tow__arena *arena, tow_trace *trace, const tow__machine *machine,
                             const tow__equation *scan, const tow__scan_params *params, const tow_value *operands,
                             tow_value *results, bool *done);

#endif
