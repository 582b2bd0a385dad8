/* Recurrent networks: cells, which make one step, and RNN, which makes a step for each element of a sequence.
 *
 *     tow_lstm_cell cell = TOW_LSTM_CELL(.features = 128);
 *     tow_rnn rnn = TOW_RNN(&cell);
 *     tow_value y = tow_apply(scope, "rnn", &rnn, x);                  x [batch, time, in] -> [batch, time, 128]
 *
 * A cell is a layer with inputs (carry..., x) and outputs (carry..., y). Its carry has the batch axes of x. Parameter
 * names, shapes and initial values are those of Flax's linen: each gate is a Dense without a level of its own,
 * "ii/kernel".
 *
 * Types: a carry is of .param_dtype, as in Flax, or of the type that the cell computes in if that is wider; but the
 * SimpleCell without .residual, of which each carry is made anew, has carries of the type of computation. The terms
 * that a cell adds to a carry are rounded to the type of computation, and the carry is not: with .dtype = TOW_BF16 over
 * parameters of f32, carries and results are f32. A carry that is given may be of any float type; results promote to
 * it. */
#ifndef TOW_RECURRENT_H
#define TOW_RECURRENT_H

#include "tow/layers.h"
#include "tow/transforms.h"

#ifdef __cplusplus
extern "C" {
#endif

/* sigma(x) is `gate` and tanh `activation` in what follows; h is also the result y. W x stands for a kernel [in,
 * features] and U h for one [features, features]. */

/* ---- SimpleCell: (h, x) -> h' = tanh(W x + b + U h) -------------------------------------------------------------- */
/* Carry h [batch..., features]. Children i (kernel, bias), h (kernel). */
typedef struct tow_simple_cell {
    tow_module module;
    int64_t features;
    bool residual;                         /* h' = tanh(W x + b + U h + h) */
    tow_activation activation;             /* NULL: tow_tanh */
    tow_initializer kernel_init;           /* lecun_normal */
    tow_initializer recurrent_kernel_init; /* orthogonal */
    tow_initializer bias_init;             /* zeros */
    tow_initializer carry_init;            /* zeros */
    tow_dtype dtype, param_dtype;          /* tow_dtype in tow/module.h */
} tow_simple_cell;
#define TOW_SIMPLE_CELL(...) TOW__LAYER(tow_simple_cell, __VA_ARGS__)

/* ---- LSTMCell: (c, h, x) -> c' = f c + i g, h' = o tanh(c') ------------------------------------------------------ */
/* i, f, o = sigma(W x + U h + b) and g = tanh(W x + U h + b), each with kernels of its own. Carry c, h [batch...,
 * features], in this order. Children ii, if, ig, io (kernel), hi, hf, hg, ho (kernel, bias). A call by itself makes
 * eight products; RNN makes two, one of them for all steps at once. */
typedef struct tow_lstm_cell {
    tow_module module;
    int64_t features;
    tow_activation gate;                   /* NULL: tow_logistic */
    tow_activation activation;             /* NULL: tow_tanh */
    tow_initializer kernel_init;           /* lecun_normal */
    tow_initializer recurrent_kernel_init; /* orthogonal */
    tow_initializer bias_init;             /* zeros */
    tow_initializer carry_init;            /* zeros */
    tow_dtype dtype, param_dtype;          /* tow_dtype in tow/module.h */
} tow_lstm_cell;
#define TOW_LSTM_CELL(...) TOW__LAYER(tow_lstm_cell, __VA_ARGS__)

/* ---- OptimizedLSTMCell: LSTMCell with two products --------------------------------------------------------------- */
/* Parameters and initial values of LSTMCell. A call puts the kernels together, which pays for all but very large
 * ones. */
typedef struct tow_optimized_lstm_cell {
    tow_module module;
    int64_t features;
    tow_activation gate;                   /* NULL: tow_logistic */
    tow_activation activation;             /* NULL: tow_tanh */
    tow_initializer kernel_init;           /* lecun_normal */
    tow_initializer recurrent_kernel_init; /* orthogonal */
    tow_initializer bias_init;             /* zeros */
    tow_initializer carry_init;            /* zeros */
    tow_dtype dtype, param_dtype;          /* tow_dtype in tow/module.h */
} tow_optimized_lstm_cell;
#define TOW_OPTIMIZED_LSTM_CELL(...) TOW__LAYER(tow_optimized_lstm_cell, __VA_ARGS__)

/* ---- GRUCell: (h, x) -> h' = (1 - z) n + z h --------------------------------------------------------------------- */
/* r, z = sigma(W x + b + U h), n = tanh(W x + b + r (U h + b_hn)). Carry h [batch..., features]. Children ir, iz, in
 * (kernel, bias), hr, hz (kernel), hn (kernel, bias). */
typedef struct tow_gru_cell {
    tow_module module;
    int64_t features;
    tow_activation gate;                   /* NULL: tow_logistic */
    tow_activation activation;             /* NULL: tow_tanh */
    tow_initializer kernel_init;           /* lecun_normal */
    tow_initializer recurrent_kernel_init; /* orthogonal */
    tow_initializer bias_init;             /* zeros */
    tow_initializer carry_init;            /* zeros */
    tow_dtype dtype, param_dtype;          /* tow_dtype in tow/module.h */
} tow_gru_cell;
#define TOW_GRU_CELL(...) TOW__LAYER(tow_gru_cell, __VA_ARGS__)

/* ---- MGUCell: (h, x) -> h' = (1 - f) n + f h --------------------------------------------------------------------- */
/* f = sigma(W x + b + U h), n = tanh(W x + b + f (U h + b_hn)), the minimal gated unit of arXiv:1603.09420. Carry h
 * [batch..., features]. Children if, in (kernel, bias), hf (kernel), hn (kernel, bias). */
typedef struct tow_mgu_cell {
    tow_module module;
    int64_t features;
    bool no_reset_gate;                    /* n = tanh(W x + b + U h); hn has no bias */
    tow_activation gate;                   /* NULL: tow_logistic */
    tow_activation activation;             /* NULL: tow_tanh */
    tow_initializer kernel_init;           /* lecun_normal */
    tow_initializer recurrent_kernel_init; /* orthogonal */
    tow_initializer forget_bias_init;      /* of if: ones */
    tow_initializer activation_bias_init;  /* of in and hn: zeros */
    tow_initializer carry_init;            /* zeros */
    tow_dtype dtype, param_dtype;          /* tow_dtype in tow/module.h */
} tow_mgu_cell;
#define TOW_MGU_CELL(...) TOW__LAYER(tow_mgu_cell, __VA_ARGS__)

/* ---- ConvLSTMCell: LSTMCell with convolutions -------------------------------------------------------------------- */
/* x [batch..., spatial..., in], carry c, h [batch..., spatial..., features]. i, g, f, o, in this order, are the
 * features of Conv(x) + Conv(h), each with 4 features and SAME padding; f = sigma(f + 1). Children ih, hh: kernel,
 * bias. */
typedef struct tow_conv_lstm_cell {
    tow_module module;
    int64_t features;
    int64_t kernel_size[TOW_MAX_RANK]; /* {3, 3} for images */
    bool no_bias;                      /* of both convolutions */
    tow_initializer kernel_init;       /* of both: lecun_normal */
    tow_initializer bias_init;         /* zeros */
    tow_initializer carry_init;        /* zeros */
    tow_dtype dtype, param_dtype;      /* tow_dtype in tow/module.h */
} tow_conv_lstm_cell;
#define TOW_CONV_LSTM_CELL(...) TOW__LAYER(tow_conv_lstm_cell, __VA_ARGS__)

/* ---- RNN: a cell over a sequence --------------------------------------------------------------------------------- */
/* Inputs (carry..., x[, lengths]), outputs (y), or (carry..., y). x [batch..., time, in...] -> y [batch..., time,
 * features...].
 * All steps share the parameters of the cell, a child "cell": a module of Flax that holds an RNN as its attribute, or
 * is one, has these paths ("rnn/cell/ii/kernel").
 * Without an initial carry the cell makes one (carry_init). The product of x and the input kernels is one for all
 * steps, and so is its gradient.
 * lengths: i32 [batch...], how many elements of each sequence count. They change the order (.reverse) and the final
 * carry, which is that after the last element that counts (0: after all); y has a row for every element, and those
 * beyond are not zeros.
 * Other variables than parameters, and streams of random keys, go by the rules of TOW_SCAN: without any, each step has
 * its own ("rnn/cell/3/dropout"). A stream that is TOW_SHARED draws the same in all steps (variational dropout);
 * statistics of which there is one set are TOW_CARRIED.
 * Layers that are no cells (tow_module_class.cell) need the initial carry. TOW_REMAT(&cell, ...) is a cell: reverse
 * mode then keeps what the policy permits of each step. */
typedef struct tow_rnn {
    tow_module module;
    const tow_module *inner; /* the cell */
    bool time_major;         /* x [time, batch..., in...], and y likewise */
    bool lengths;            /* the last input has the lengths */
    bool reverse;            /* from the last element that counts to the first; y in the order of the steps */
    bool keep_order;         /* with reverse: y in the order of x */
    bool in_place;       /* the cell has the path of the RNN: that of a cell made in a compact module of Flax, where the
                                RNN has no level, if the RNN is called "LSTMCell_0" */
    uint64_t carry_seed; /* of an initial carry that is drawn: PRNGKey(carry_seed) */
    bool unrolled;       /* record every step by itself: the same bits, but where TOW_SCAN says otherwise */
    int64_t unroll;      /* steps in one turn of the loop, as of TOW_SCAN, and of flax.linen.RNN; 0: one */
    tow_scan_schedule schedule; /* which states reverse mode keeps of a long sequence, as of TOW_SCAN */
    tow_scan_keys keys; /* as of TOW_SCAN; TOW_KEYS_FLAX: what Flax's RNN draws with split_rngs of all streams */
    const tow_lift_rule *variables; /* of variables; NULL: those of each step are stacked. Parameters are shared */
    const tow_lift_rule *streams;   /* of random keys ("dropout"); NULL: all are split */
} tow_rnn;
#define TOW_RNN(...) TOW__WRAPPER(tow_rnn, __VA_ARGS__)

/* ---- Bidirectional: two RNNs, one in each direction -------------------------------------------------------------- */
/* Inputs (carry of forward_rnn..., carry of backward_rnn..., x[, lengths]), or without carries; outputs (y), or the
 * carries and y = merge(y of forward_rnn, y of backward_rnn), both in the order of x. The RNNs are children
 * "forward_rnn" and "backward_rnn"; their .time_major, .lengths, .reverse and .keep_order do not count. */
typedef struct tow_bidirectional {
    tow_module module;
    const tow_rnn *forward_rnn, *backward_rnn; /* backward_rnn NULL: like forward_rnn, with parameters of its own */
    tow_value (*merge)(tow_value forward, tow_value backward); /* NULL: concatenates features */
    bool time_major;                                           /* x [time, batch..., in...], and y likewise */
    bool lengths;                                              /* the last input has the lengths */
    bool shared;                                               /* both have the parameters of "forward_rnn" */
} tow_bidirectional;
#define TOW_BIDIRECTIONAL(...) TOW__LAYER(tow_bidirectional, __VA_ARGS__)

/* ---- what RNN asks of a cell ------------------------------------------------------------------------------------- */

enum {
    TOW_CELL_SHARED = 8
};
/* The values that a cell computes of a whole sequence before its first step. */
typedef struct tow_cell_prepared {
    tow_value xs; /* as long as the sequence: the step gets its elements in place of those of x */
    size_t n_shared;
    tow_value shared[TOW_CELL_SHARED]; /* kernels and the like: every step sees them whole */
} tow_cell_prepared;

/* In the class of a cell: .cell = &methods. */
typedef struct tow_cell_methods {
    size_t n_carry;
    int (*feature_axes)(const tow_module *cell); /* last axes of x that are not batch; NULL: one */
    /* Writes carry[0..n_carry) for an x of one step of this type. key: for those that draw. */
    void (*initial_carry)(tow_scope *scope, const tow_module *cell, tow_type x, const uint32_t key[2],
                          tow_value *carry);
    /* Computes what does not depend on the carry for all steps at once: xs has any number of axes before those of x.
     * NULL: nothing; then the layer itself is called in each step, and step is not. */
    void (*prepare)(tow_scope *scope, const tow_module *cell, tow_value xs, tow_cell_prepared *prepared);
    /* One step; x is an element of prepared->xs. Writes out[0..n_carry] like the layer itself. */
    void (*step)(tow_scope *scope, const tow_module *cell, const tow_cell_prepared *prepared, const tow_value *carry,
                 tow_value x, tow_value *out);
} tow_cell_methods;

/* The carry before the first step, of a cell or a remat of one: carry[0..n_carry), for an x of one step of this type.
 * Errors: TOW_INVALID_ARGUMENT for a layer that is no cell, and for another n_carry than the cell's. */
TOW_API void tow_cell_initial_carry(tow_scope *scope, const tow_module *cell, tow_type x, uint64_t seed, size_t n_carry,
                                    tow_value *carry);

TOW_API extern const tow_module_class tow_simple_cell_class, tow_lstm_cell_class, tow_optimized_lstm_cell_class,
    tow_gru_cell_class, tow_mgu_cell_class, tow_conv_lstm_cell_class, tow_rnn_class, tow_bidirectional_class;

#ifdef __cplusplus
}
#endif
#endif
