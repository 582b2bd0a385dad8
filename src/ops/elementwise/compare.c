/* Comparisons and bit operations. None has a derivative. */
#include "src/ops/rules.h"
#include "src/ops/shapes/broadcast.h"

#define COMPARE(op) TOW__ARITHMETIC_PRIMITIVE(op, .inputs = 2, .outputs = 1, .type = tow__type_compare);
COMPARE(eq)
COMPARE(ne)
COMPARE(lt)
COMPARE(le)
COMPARE(gt)
COMPARE(ge)

#define LOGIC(op, count, rule) TOW__ARITHMETIC_PRIMITIVE(op, .inputs = count, .outputs = 1, .type = rule);
LOGIC(not, 1, tow__type_same_bits)
LOGIC(and, 2, tow__type_same_bits)
LOGIC(or, 2, tow__type_same_bits)
LOGIC(xor, 2, tow__type_same_bits)
LOGIC(shift_left, 2, tow__type_same_integer)
LOGIC(shift_right, 2, tow__type_same_integer)
LOGIC(shift_right_arithmetic, 2, tow__type_same_integer)
LOGIC(population_count, 1, tow__type_same_integer)
LOGIC(clz, 1, tow__type_same_integer)

#define PUBLIC(op)                                                                                                     \
    tow_value tow_##op(tow_value x, tow_value y) { return tow__broadcast_op2(&tow__##op##_p, x, y); }
PUBLIC(eq)
PUBLIC(ne)
PUBLIC(lt)
PUBLIC(le)
PUBLIC(gt)
PUBLIC(ge)
PUBLIC(and)
PUBLIC(or)
PUBLIC(xor)
PUBLIC(shift_left)
PUBLIC(shift_right)
PUBLIC(shift_right_arithmetic)

tow_value tow_not(tow_value x) { return tow__op1(&tow__not_p, x); }
tow_value tow_population_count(tow_value x) { return tow__op1(&tow__population_count_p, x); }
tow_value tow_clz(tow_value x) { return tow__op1(&tow__clz_p, x); }
