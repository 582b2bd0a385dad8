/* The split of a loop's body, shared by the rules of scan (scan_partial.c) and of while and fori (while_partial.c). */
#ifndef TOW_SRC_LOOP_SPLIT_H
#define TOW_SRC_LOOP_SPLIT_H

#include "src/autodiff/loops.h"
#include "src/autodiff/partial.h"

typedef struct tow__loop_split {
    tow__split *s;
    const tow__equation *e;
    tow__loop_form form;
    tow_graph *body; /* after hoisting: (consts, hoisted, carry, rest) -> (carry, ys) */
    uint32_t n_in, n_out, consts, hoisted, carry;
    tow_value *hoisted_known;          /* values in the known trace */
    bool *unknown, *available, *force; /* [n_in], [n_in], [n_out] */
    bool *carry_unknown;               /* [carry] */
    tow__partial part;
} tow__loop_split;

static inline uint32_t tow__first_carry(const tow__loop_split *l) { return l->consts + l->hoisted; }
static inline uint32_t tow__first_rest(const tow__loop_split *l) { return tow__first_carry(l) + l->carry; }

/* Operand of the equation behind body input i, which is neither a hoisted one nor the number of an iteration. */
static inline uint32_t tow__operand_behind(const tow__loop_split *l, uint32_t i)
{
    return l->form.lead + (i < l->consts ? i : i - l->hoisted);
}
static inline bool tow__is_hoisted(const tow__loop_split *l, uint32_t i)
{
    return i >= l->consts && i < tow__first_carry(l);
}

/* A carry that the unknown loop has. */
static inline bool tow__is_carried(const tow__loop_split *l, uint32_t carry)
{
    return l->unknown[tow__first_carry(l) + carry] || l->available[tow__first_carry(l) + carry];
}

/* Begins with the carries: which of them are unknown. False: an error, which is that of s->k. */
bool tow__loop_split_begin(tow__loop_split *l, tow__split *s, const tow__equation *e);
/* Takes what does not change out of the body, and splits the body. */
bool tow__loop_split_body(tow__loop_split *l);
void tow__loop_split_end(tow__loop_split *l);
/* What becomes of the results once both loops are there: staged values have been set. */
void tow__loop_split_results(const tow__loop_split *l);

/* What stands in rows of a stack for a residual of this type: the residual, or one of the highest rank made flat. */
tow_type tow__stack_row(tow_type type);
/* x, of as many elements, in the shape of `type`. */
tow_value tow__in_shape(tow_value x, tow_type type);

#endif
