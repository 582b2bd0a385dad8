/* Origins of the carries of a scan whose body forwards values: it returns inputs as they are.
 *
 *   body: (a, b, c) -> (u, a, a)        u: made by the body
 *   b and c hold what a held one iteration earlier: the value u of iteration t is a in t + 1, and b and c in t + 2
 *
 * In the iterations written out u, a, b and c name one value there, whose cotangents add up in one order. Linear scans
 * are asked about: those of tangents. Shared by the rules of scan (scan.c, scan_transpose.c, scan_normal.c). */
#ifndef TOW_SRC_SCAN_FLOW_H
#define TOW_SRC_SCAN_FLOW_H

#include "src/autodiff/autodiff.h"

typedef enum tow__flow_kind {
    TOW__FLOW_NONE,     /* nothing linear: its cotangent goes nowhere */
    TOW__FLOW_MADE,     /* by an equation of the body; index: the variable */
    TOW__FLOW_ELEMENT,  /* of xs; index: input of the body */
    TOW__FLOW_CONSTANT, /* of the loop; index: input of the body */
    TOW__FLOW_CARRY     /* index: which carry. Of a final value: the initial value of that carry */
} tow__flow_kind;

/* The origin of a carry's next value, or its final value: the value of `delay` iterations before the
 * last one. */
typedef struct tow__flow {
    tow__flow_kind kind;
    uint32_t index, delay;
} tow__flow;

/* linear: of the body's values (NULL: all are). flow: [carry]. */
void tow__scan_flow(const tow__scan_params *p, const bool *linear, tow__flow *flow);
tow__flow tow__scan_final(const tow__scan_params *p, const tow__flow *flow, uint32_t carry);
/* Forwarding: a final carry that is an operand, or the same value as an earlier final carry, becomes that value in
 * `results`. Carries from `first` on are looked at. */
void tow__forward_carries(tow_trace *t, const tow__scan_params *p, int64_t first, const tow_value *operands,
                          tow_value *results);

/* Row i of x, without its first axis. */
tow_value tow__scan_row(tow_value x, int64_t i);
/* The number of contributions to the cotangent of a linear value, one for each reader, also inside of regions. More
 * than two count as two: the order of two contributions does not matter. */
int tow__contributions(const tow_graph *g, uint32_t var);

/* scan_normal.c: a linear scan in which two operands or carries are the same value for a while is transposed as an
 * equal program in which they are one. False if there is nothing of the kind; true as well after an error.
 * *separate: false because that program could become too large; then the scan gets the body that the other function
 * makes, in which no carry hands on what another one or an input is. */
bool tow__scan_normalize(tow__transpose *r, const tow__flow *flow, bool *separate);
tow_status tow__scan_separate(const tow__scan_params *p, tow_graph **result);

#endif
