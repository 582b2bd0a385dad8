/* The split of a loop's body, shared by the rules of scan (scan_partial.c) and of while and fori (while_partial.c). */
#ifndef TOW_SRC_LOOP_SPLIT_H
#define TOW_SRC_LOOP_SPLIT_H

#include "src/autodiff/loops.h"
#include "src/autodiff/partial.h"

typedef struct tow__loop_split {
    tow__split *s;
    const tow__equation *e;
    tow__region_form form;
    uint32_t n_in, n_out, consts, carry; /* of the body, (consts, carry, rest) -> (carry, ys) */
    bool *unknown, *available, *force;   /* [n_in], [n_in], [n_out] */
    bool *carry_unknown;                 /* [carry] */
    tow__partial part;
} tow__loop_split;

static inline uint32_t tow__first_rest(const tow__loop_split *l) { return l->consts + l->carry; }

/* Operand of the equation behind body input i, which is not the number of an iteration. */
static inline uint32_t tow__operand_behind(const tow__loop_split *l, uint32_t i) { return l->form.lead + i; }

/* A carry that the unknown loop has. */
static inline bool tow__is_carried(const tow__loop_split *l, uint32_t carry)
{
    return l->unknown[l->consts + carry] || l->available[l->consts + carry];
}

/* The loop keeps some states and makes the others again. Under a policy it is run again as a whole, and keeps states
 * then. */
static inline bool tow__is_scheduled(const tow__loop_split *l)
{
    const int64_t most = l->form.length == TOW__DATA_DECIDE ? l->form.most : l->form.length;
    const bool unbounded = l->form.length == TOW__DATA_DECIDE && l->form.most == 0;
    return l->form.slots > 0 && (unbounded || l->form.slots < most) && !l->s->policy;
}

/* Begins with the carries: which of them are unknown. False: an error, which is that of s->k. */
bool tow__loop_split_begin(tow__loop_split *l, tow__split *s, const tow__equation *e);
/* Splits the body. */
bool tow__loop_split_body(tow__loop_split *l);
/* False, with an error: the body has a loop that keeps states in a file, of which it holds those of one iteration. */
bool tow__loop_split_stacks(const tow__loop_split *l);
void tow__loop_split_end(tow__loop_split *l);
/* Sets the results once both loops are there, which have set the staged values. */
void tow__loop_split_results(const tow__loop_split *l);

/* The type of rows of a stack for a residual of this type: that of the residual, or one of the highest rank made
 * flat. */
tow_type tow__stack_row(tow_type type);
/* x, of as many elements, in the shape of `type`. */
tow_value tow__in_shape(tow_value x, tow_type type);

#endif
