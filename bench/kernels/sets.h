/* The arithmetic of elementwise functions, compiled for each instruction set by itself. */
#ifndef BENCH_KERNELS_SETS_H
#define BENCH_KERNELS_SETS_H

#include <stdint.h>

#include "limits.h"

/* X(name, function of one float in src/kernels/math_f32.h) */
#define SET_LIST(X)                                                                                                    \
    X("exp", tow__exp_f32)                                                                                             \
    X("log", tow__log_f32)                                                                                             \
    X("tanh", tow__tanh_f32)                                                                                           \
    X("logistic", tow__logistic_f32)                                                                                   \
    X("silu", tow__silu_f32)                                                                                           \
    X("silu_grad", tow__silu_slope_f32)                                                                                \
    X("gelu", tow__gelu_tanh_f32)                                                                                      \
    X("gelu_grad", tow__gelu_tanh_slope_f32)                                                                           \
    X("gelu (erf)", tow__gelu_erf_f32)                                                                                 \
    X("gelu_grad (erf)", tow__gelu_erf_slope_f32)                                                                      \
    X("erf", tow__erf_f32)

enum {
#define X(name, function) SET_##function,
    SET_LIST(X)
#undef X
    SET_FUNCTIONS
};

extern const char *const set_names[SET_FUNCTIONS];
/* y[i] = function f of x[i]; one per instruction set, NULL where this architecture lacks the set. */
typedef void (*set_loop)(int f, int64_t n, const float *x, float *y);
void set_loop_plain(int f, int64_t n, const float *x, float *y);
void set_loop_avx2(int f, int64_t n, const float *x, float *y);
void set_loop_avx512(int f, int64_t n, const float *x, float *y);

/* Elements per nanosecond on one thread; 0 if this architecture lacks the set. */
double sets_measure(int f, bench_isa isa);

#endif
