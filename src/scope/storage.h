/* The types in which parameters are stored, where these are others than layers ask for: by rules of a TOW_PRECISION
 * around, or in blocks of few bits.
 *
 *     layer, views  --request of numbers-->  storage  --request of what is stored-->  store
 *                   <-- floats as asked --            <-- other floats, or blocks -- */
#ifndef TOW_SRC_SCOPE_STORAGE_H
#define TOW_SRC_SCOPE_STORAGE_H

#include "src/scope/scope.h"

/* The rules of one TOW_PRECISION. */
typedef struct tow__storage_rules {
    const struct tow__storage_rules *outer;
    const tow_dtype_rule *rules;
    bool *used;          /* per rule: it matched something */
    const tow_scope *at; /* of the TOW_PRECISION */
} tow__storage_rules;

/* "attn/query/kernel": the path, as it is stored, of what is asked for, below the scope `at`; a scan in it is "{}",
 * whatever the axis of its layers. NULL: out of memory, reported. */
const char *tow__path_from(const tow_scope *at, const tow_scope *scope, const tow_variable_request *request);
/* The parameter as it is stored: of the type asked for, or of another float type, or in blocks, which a weight
 * [inputs..., features...] has as [features, inputs] and a table along its rows. */
tow_value tow__stored_weight(tow_scope *scope, const tow_variable_request *asked);
/* Its numbers, of the type asked for. */
tow_value tow__weight_numbers(const tow_variable_request *asked, tow_value stored);
/* x, whose axes `dot` names, times a weight in blocks, of which the layer asked for the numbers: of the type of x. */
tow_value tow__multiply_blocks(const tow_variable_request *asked, const tow_dot_dims *dot, tow_value x,
                               tow_value stored);
/* A copy of the scope with rules for what is under it; they may be NULL. NULL: out of memory, or wrong rules. */
tow_scope *tow__scope_with_storage(tow_scope *scope, const tow_dtype_rule *rules);
/* Reports a rule of the scope's that nothing matched. */
void tow__check_storage_used(tow_scope *scope);

#endif
