/* Is what differentiation recorded linear in its tangents? Rules of primitives are; rules that users write (custom_jvp,
 * the jvp of a primitive of their own) are as linear as they were written. Reverse mode asks before it transposes an
 * equation, linearize before it hands out its linear graph. */
#ifndef TOW_SRC_LINEAR_H
#define TOW_SRC_LINEAR_H

#include "src/autodiff/autodiff.h"

/* The reason why an equation is not linear: "file.c:10: mul is not linear in operands 0 and 1, ...". */
typedef struct tow__nonlinear {
    char text[320];
} tow__nonlinear;

/* False, with the text: equation e of g is not linear in those of its values that depend on tangents. depends:
 * [n_vars]. A region is looked at from outside: its bodies have equations of their own. */
bool tow__is_linear(const tow_graph *g, const tow__equation *e, const bool *depends, tow__nonlinear *found);
/* An error that names the first equation of g, or of a body in it, that is not linear in the inputs with linear[i]. */
tow_status tow__check_linear(const tow_graph *g, const char *caller, const bool *linear_inputs);

#endif
