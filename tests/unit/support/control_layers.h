/* The layers of tests/oracle/flax_control.py. A test program includes it once, after cmocka. */
#ifndef TOW_TESTS_CONTROL_LAYERS_H
#define TOW_TESTS_CONTROL_LAYERS_H

#include "tests/unit/support/lift_cell.h"

/* Calls "choice" with an index: steps + first, or whether the first element of x is positive. */
typedef struct chooser {
    tow_module module;
    const tow_module *choice;
    int first;
    bool by_sign;
} chooser;

/* x[0, 0] as [] */
static inline tow_value first_element(tow_value x)
{
    return tow_reshape(tow_slice_axis(tow_slice_axis(x, 0, 0, 1), 1, 0, 1), 0, NULL);
}

static inline void call_chooser(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                                tow_value *out)
{
    const chooser *m = (const chooser *)module;
    tow_value step = tow_variable(s, "steps", "step", SCALAR(TOW_I32), (tow_initializer){0});
    tow_value index = tow_add_scalar(step, m->first);
    (void)n_in;
    if (m->by_sign) {
        tow_value first = first_element(in[0]);
        index = tow_gt(first, tow_zeros_like(first));
    }
    if (tow_is_mutable(s, "steps")) tow_set_variable(s, "steps", "step", tow_add_scalar(step, 1));
    tow_apply_module_n(s, "choice", m->choice, 2, (tow_value[]){index, in[0]}, n_out, out);
}
static const tow_module_class chooser_class = {"chooser", call_chooser};
#define CHOOSER(layer, ...) ((chooser){{&chooser_class}, TOW_MODULE(layer), __VA_ARGS__})

/* A cell of -x. */
static inline void call_negated(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                                tow_value *out)
{
    tow_value x = tow_neg(in[0]);
    if (tow_is_null(x)) return;
    call_cell(s, module, n_in, &x, n_out, out);
}
static const tow_module_class negated_class = {"negated", call_negated};
static const bare negated = {{&negated_class}};

/* (y, 2 y, key) with y = tanh(x kernel), or tanh(x gain other). */
typedef struct own {
    tow_module module;
    bool gains;
} own;
static inline void call_own(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                            tow_value *out)
{
    const own *m = (const own *)module;
    const int64_t d = tow_value_type(in[0]).dims[1];
    tow_value x = in[0];
    (void)n_in, (void)n_out;
    if (m->gains) x = tow_mul(x, tow_param(s, "gain", 1, &d, tow_initializer_normal(0.5)));
    out[0] = tow_tanh(tow_matmul(
        x, tow_param(s, m->gains ? "other" : "kernel", 2, (int64_t[]){d, d}, tow_initializer_lecun_normal())));
    out[1] = tow_mul_scalar(out[0], 2);
    out[2] = tow_make_rng(s, "noise");
    if (m->gains) out[2] = tow_make_rng(s, "noise");
}
static const tow_module_class own_class = {"own", call_own};
#define OWN(gain) ((own){{&own_class}, gain})

/* ---- loops ------------------------------------------------------------------------------------------------------- */

typedef enum limit {
    BY_NUMBER, /* 4 iterations */
    BY_NONE,
    BY_COUNTER,
    BY_KEY,
    BY_SIGN
} limit;

/* The body and the condition of a loop with the carry x, ys, key, i. */
typedef struct looped {
    tow_module module;
    limit by;
    bool plain; /* a Dense in place of the cell */
} looped;

static inline void call_looped(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                               tow_value *out)
{
    const looped *m = (const looped *)module;
    (void)n_in, (void)n_out;
    if (m->by == BY_COUNTER) {
        tow_value n = tow_variable(s, "counters", "n", TYPE(TOW_I32, 1), (tow_initializer){0});
        if (tow_is_mutable(s, "counters")) tow_set_variable(s, "counters", "n", tow_add_scalar(n, 1));
    }
    if (m->plain) {
        const tow_dense dense = TOW_DENSE(.features = 4);
        out[0] = tow_tanh(tow_apply(s, "cell", &dense, in[0]));
        out[1] = tow_mul_scalar(out[0], 2);
        out[2] = tow_make_rng(s, "noise");
    } else {
        tow_apply_n(s, "cell", &cell, 1, in, 3, out);
    }
    tow_value byte =
        tow_shift_right(tow_reshape(tow_slice_axis(out[2], 0, 0, 1), 0, NULL), tow_scalar(in[0].trace, TOW_U32, 24));
    out[0] = tow_add(out[0], tow_broadcast_to(tow_mul_scalar(tow_convert(byte, TOW_F32), 1.0 / 256), 2,
                                              tow_value_type(out[0]).dims));
    out[3] = tow_add_scalar(in[3], 1);
}

static inline void call_limit(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                              tow_value *out)
{
    const looped *m = (const looped *)module;
    tow_trace *t = in[0].trace;
    tow_value most = tow_scalar(t, TOW_I32, m->by == BY_NONE ? 0 : m->by == BY_COUNTER ? 6 : 4);
    (void)n_in, (void)n_out;
    if (m->by == BY_KEY) {
        tow_value bits = tow_reshape(tow_slice_axis(tow_make_rng(s, "noise"), 0, 0, 1), 0, NULL);
        most = tow_add_scalar(tow_convert(tow_and(bits, tow_scalar(t, TOW_U32, 3)), TOW_I32), 2);
    }
    if (m->by == BY_SIGN)
        most = tow_add_scalar(
            tow_mul_scalar(tow_convert(tow_gt(first_element(in[0]), tow_scalar(t, TOW_F32, 0.5)), TOW_I32), 2), 2);
    out[0] = tow_lt(in[3], most);
    if (m->by == BY_COUNTER)
        out[0] = tow_and(
            out[0], tow_lt(tow_reshape(tow_get_variable(s, "counters", "n"), 0, NULL), tow_scalar(t, TOW_I32, 10)));
}
static const tow_module_class looped_class = {"looped", call_looped}, limit_class = {"limit", call_limit};
#define BODY(...)      (&((looped){{&looped_class}, __VA_ARGS__}).module)
#define CONDITION(...) (&((looped){{&limit_class}, __VA_ARGS__}).module)

/* x -> the first three carries of a loop. */
typedef struct looper {
    tow_module module;
    const tow_while *loop;
} looper;
static inline void call_looper(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                               tow_value *out)
{
    tow_trace *t = in[0].trace;
    tow_value all[4] = {in[0], tow_full_like(in[0], 0), tow_full(t, TYPE(TOW_U32, 2), 0), tow_scalar(t, TOW_I32, 0)};
    const tow_module *loop = TOW_MODULE(((const looper *)module)->loop);
    (void)n_in;
    loop->cls->call(s, loop, 4, all, 4, all);
    memcpy(out, all, n_out * sizeof *out);
}
static const tow_module_class looper_class = {"looper", call_looper};
#define LOOPER(loop) ((looper){{&looper_class}, loop})

#endif
