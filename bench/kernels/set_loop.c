/* Loops over the functions of math_f32.h. Compiled once per instruction set, SET being the name of the result. */
#include "kernels/sets.h"

#include "src/kernels/math_f32.h"

void SET(int f, int64_t n, const float *x, float *y)
{
    switch (f) {
#define X(name, function)                                                                                              \
    case SET_##function:                                                                                               \
        for (int64_t i = 0; i < n; i++) y[i] = function(x[i]);                                                         \
        break;
        SET_LIST(X)
#undef X
    }
}
