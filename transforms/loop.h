/* Loops over layers: what TOW_SCAN, TOW_REMAT_SCAN and TOW_LAYER_STACK are made of.
 *
 * A loop has `turns` turns; in each, the layers bodies[0..n_bodies) are called one after the other. Turn i calls body j
 * as layer first + stride * (n_bodies * i + j) of the stack in whose scope the loop stands. The turn is traced once;
 * stacked parameters and variables enter as xs beside the caller's, together with the turn's index, from which random
 * keys are made.
 *
 *   operands:  carry..., carried variables...   xs: caller's..., rows of parameters..., rows of variables..., index i32
 *   results:   carry..., carried variables...   ys: caller's..., rows of variables written..., values sown...
 *   whole inputs are captured by the body like any outer value, and so are shared parameters and variables that no call
 * changes. */
#ifndef TOW_TRANSFORMS_LOOP_H
#define TOW_TRANSFORMS_LOOP_H

#include "src/scope/scope.h"
#include "tow/autodiff.h"

typedef struct tow__layer_loop {
    const char *transform; /* "scan", for messages */
    tow_scope *scope;
    int64_t turns;
    size_t n_bodies;
    const tow_module *const *bodies;
    int64_t first, stride;
    bool covered; /* a loop below counts on */
    bool reverse, flax_keys;
    bool mapped;     /* a vmap: no carries, and all turns at once */
    int64_t unroll;  /* turns in one iteration of the loop */
    tow_scan_schedule schedule;
    tow__lift *lift; /* as long as the trace; may be NULL */
    size_t n_carry, n_broadcast, n_xs, n_ys;
    const tow_value *carry, *broadcast;
    const tow_value *xs; /* [turns * n_bodies, ...] */
    const bool *whole;   /* per xs: every layer sees all of it; NULL: none */
    const bool *once;    /* per ys: the same for all layers, given once; NULL: none */
} tow__layer_loop;

/* Records the loop: out[n_carry + n_ys]. Errors stick to the trace. */
void tow__loop_record(const tow__layer_loop *loop, tow_value *out);
/* The same, every layer by itself. */
void tow__loop_unroll(const tow__layer_loop *loop, tow_value *out);

/* ---- shared by both ---------------------------------------------------------------------------------------------- */

/* Calls the bodies of one turn. turn: in the scope of `loop`, without .first, .stride and .unit. carry[n_carry] is
 * changed; ys[j * n_ys + k]: of body j. */
void tow__loop_turn(const tow__layer_loop *loop, tow__turn turn, tow_value *carry, const tow_value *xs, tow_value *ys);
/* Row i of x [n, ...]. */
tow_value tow__loop_row(tow_value x, int64_t i);
/* rows[0..n), at least one -> [n, ...]; rows are changed. */
tow_value tow__loop_stack(tow_trace *trace, int64_t n, tow_value *rows);
/* A scope as an iteration of the loop has it that calls body j, for asking what it says of entries. */
tow_scope tow__loop_iteration(const tow__layer_loop *loop, size_t j);

#endif
