/* Attention and what transformers are made of: attention with heads, positions, gated feed-forward layers, blocks,
 * encoder and decoder. docs/attention.md says which options GPT-2, Llama, BERT and others are. */
#ifndef TOW_ATTENTION_H
#define TOW_ATTENTION_H

#include "tow/layers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- RoPE: rotates pairs of features by angles that grow with the position --------------------------------------- */
/* x [..., T, H, D] -> likewise; with d features that are rotated, pair i of position p by the angle p f(i), f(i) =
 * theta^(-2i/d) before scaling (Su et al., "RoFormer", 2021). A second input, i32 [T] or [B, T], has the positions;
 * without it they are 0 to T - 1. No parameters. In C the function is tow_apply_rope. */
typedef enum tow_rope_scaling {
    TOW_ROPE_PLAIN,
    TOW_ROPE_LINEAR, /* f / factor */
    TOW_ROPE_NTK,    /* theta factor^(d / (d - 2)) in place of theta */
    TOW_ROPE_LLAMA3  /* f / factor for wavelengths above original_length / low_frequency, f below original_length /
                      * high_frequency, between them linear in original_length / wavelength */
} tow_rope_scaling;
typedef struct tow_rope {
    tow_module module;
    double theta;             /* 0: 10000 */
    int64_t features;         /* how many features of a head are rotated, its first ones; even; 0: all */
    bool interleaved;         /* pairs are (2i, 2i + 1); else (i, i + d/2), as in Hugging Face's Llama */
    tow_rope_scaling scaling; /* TOW_ROPE_PLAIN */
    double factor;            /* of scaling; 0: 1 */
    double low_frequency;     /* of TOW_ROPE_LLAMA3; 0: 1 */
    double high_frequency;    /* 0: 4 */
    double original_length;   /* 0: 8192 */
} tow_rope;
#define TOW_ROPE(...) TOW__LAYER(tow_rope, __VA_ARGS__)
/* The same as a function of a float x. positions: i32 [T] or [B, T], or the null value; options may be NULL. Angles are
 * computed in the type of x, or in f32 if that is bf16 or f16: then the result alone is rounded. */
TOW_API tow_value tow_apply_rope(tow_value x, tow_value positions, const tow_rope *options);
/* The options of RoPE as a member of other layers. */
typedef struct tow_rope_options {
    double theta;             /* 0: 10000 */
    int64_t features;         /* how many features of a head are rotated, its first ones; even; 0: all */
    bool interleaved;         /* pairs are (2i, 2i + 1); else (i, i + d/2), as in Hugging Face's Llama */
    tow_rope_scaling scaling; /* TOW_ROPE_PLAIN */
    double factor;            /* of scaling; 0: 1 */
    double low_frequency;     /* of TOW_ROPE_LLAMA3; 0: 1 */
    double high_frequency;    /* 0: 4 */
    double original_length;   /* 0: 8192 */
} tow_rope_options;

/* ---- LearnedPositions: adds a row of a table to each position ---------------------------------------------------- */
/* x [B, T, D] -> x + embedding[positions]. embedding [max_length, D]. A second input, i32 [T] or [B, T], has the
 * positions; without it they are 0 to T - 1. A position outside the table gives NaN. */
typedef struct tow_learned_positions {
    tow_module module;
    int64_t max_length; /* 0: T of the input */
    bool decode; /* positions go on from call to call: the variable "cache" "cache_index", i32 [], or as given [B] */
    tow_initializer embedding_init; /* normal, standard deviation 1/sqrt(D) */
    tow_dtype dtype, param_dtype;   /* tow_dtype in tow/module.h */
} tow_learned_positions;
#define TOW_LEARNED_POSITIONS(...) TOW__LAYER(tow_learned_positions, __VA_ARGS__)

/* ---- SinusoidalPositions: adds sines and cosines of the position ------------------------------------------------- */
/* x [B, T, D] -> x + table[positions], table[p, 2i] = sin(p f(i)), table[p, 2i + 1] = cos(p f(i)), f(i) =
 * max_timescale^(-2i/D) (Vaswani et al., "Attention is all you need", 2017). Positions as in LearnedPositions; any
 * number of them. No parameters. */
typedef struct tow_sinusoidal_positions {
    tow_module module;
    double max_timescale; /* 0: 10000 */
    bool halves;          /* all sines, then all cosines */
    bool decode;          /* positions go on from call to call: the variable "cache" "cache_index", i32 [] */
} tow_sinusoidal_positions;
#define TOW_SINUSOIDAL_POSITIONS(...) TOW__LAYER(tow_sinusoidal_positions, __VA_ARGS__)

/* ---- GatedMLP: feed-forward layer whose hidden features are gated ------------------------------------------------ */
/* x [..., D] -> down(activation(gate(x)) * up(x)) [..., out_features]: SwiGLU with tow_silu, GeGLU with tow_gelu
 * or tow_gelu_erf, GLU with tow_logistic (Shazeer, "GLU variants improve transformer", 2020). Children gate, up, down,
 * all Dense.
 * Checkpoint names: "mlp_gate" (before the activation), "mlp_pre" (up), "mlp_act" (the product), "mlp_out". */
typedef struct tow_gated_mlp {
    tow_module module;
    int64_t features;          /* hidden */
    int64_t out_features;      /* 0: D */
    tow_activation activation; /* NULL: tow_silu */
    bool no_bias;
    tow_initializer kernel_init;      /* lecun_normal */
    tow_initializer down_kernel_init; /* kernel_init */
    tow_initializer bias_init;        /* zeros */
    tow_dtype dtype, param_dtype;     /* tow_dtype in tow/module.h */
} tow_gated_mlp;
#define TOW_GATED_MLP(...) TOW__LAYER(tow_gated_mlp, __VA_ARGS__)

/* ---- MultiHeadAttention: attention between the projections of its inputs ----------------------------------------- */
/* Inputs: x [B, T, D] (self), or x_q [B, T, D], x_kv [B, S, E] (cross), or x_q, x_k [B, S, E], x_v [B, S, F]. After
 * them, in any order, each at most once: a mask, bool, that broadcasts to [B, H, T, S] (true: visible); a bias, float
 * of rank 4, that broadcasts to [B, H, T, S] and is added to the logits; positions for RoPE, i32 [T] or [B, T]. Result
 * [B, T, out_features]. Without .decode, B may be any number of axes, or none: of inputs, mask, bias and result alike.
 *     logits = cap(scale q.k) + bias, the lowest number where not visible; cap(l) = logit_cap tanh(l / logit_cap)
 *     out(gate * softmax(logits) v)
 * Children query, key, value: kernel [D, H, Dh], bias [H, Dh]; query_ln, key_ln: scale [Dh]; gate: kernel [D, H], bias
 * [H]; out: kernel [H, Dh, O], bias [O]. Position i + S - T of the keys is that of query i.
 * Decoding: the collection "cache", which must be mutable, has cached_key and cached_value [B, cache_length, G, Dh],
 * after norms and RoPE, and cache_index, i32 [], the number of positions so far. A caller may give it as i32 [B]
 * instead: then each row counts its own positions, and what stands at negative ones or behind the end is padding that
 * leaves no trace. Each call puts its T positions behind them, so that a prompt may be given at once; a query sees the
 * positions up to its own. As in Flax, positions past the end overwrite the last ones while the index goes on: stop
 * before. More positions in one call than the cache has are an error. With the cache's outputs donated to its inputs
 * (tow_compile_options.donations) it stays in place.
 * Decoding with a memory, x_kv or x_k and x_v: "cache" has memory_key and memory_value [B, S, G, Dh], after norms, and
 * no index. A call puts those of its memory there; with .recall it takes what an earlier call has put there, and its
 * program does not project the memory, of which only the type counts. Queries see all of the memory: .causal, .window
 * and .rope are errors.
 * Checkpoint names: "query", "key", "value" (projections), "attention" (before the output projection). */
typedef enum tow_qk_norm {
    TOW_QK_NO_NORM,
    TOW_QK_LAYER_NORM, /* LayerNorm without a bias over Dh, one scale for all heads: Flax's normalize_qk */
    TOW_QK_RMS_NORM    /* RMSNorm likewise */
} tow_qk_norm;
typedef struct tow_multi_head_attention {
    tow_module module;
    int64_t heads;
    int64_t kv_heads;     /* 0: heads; a divisor of heads: grouped queries */
    int64_t qkv_features; /* 0: D; divisible by heads */
    int64_t out_features; /* 0: D */
    bool causal;
    bool no_bias;
    bool no_qkv_bias; /* none in query, key and value, but in out */
    bool no_out_bias;
    double scale;           /* of the logits; 0: 1/sqrt(Dh) */
    int64_t window;         /* a query sees keys whose distance from it is below this; 0: all */
    double logit_cap;       /* 0: none */
    tow_qk_norm qk_norm;    /* of queries and keys, before RoPE */
    double qk_norm_epsilon; /* 0: 1e-6 */
    bool head_gates;        /* heads are multiplied by logistic(gate(x_q)) */
    bool rope;              /* rotates queries and keys */
    tow_rope_options rope_options;
    bool decode;          /* one call after the other, see above; causal without a memory */
    bool recall;          /* of .decode with a memory: attend to that of an earlier call, from the cache */
    int64_t cache_length; /* positions that the cache has; 0: T of tow_model_init, as in Flax */
    /* sows the softmax as "attention_weights" [B, H, T, S], before dropout, if "intermediates" is mutable */
    bool sow_weights;
    double dropout_rate; /* of the attention weights; one mask [T, S] for all batches and heads, as in Flax */
    bool dropout_each;   /* a mask of their own for every batch and head instead */
    bool deterministic;
    tow_initializer kernel_init;     /* lecun_normal */
    tow_initializer out_kernel_init; /* kernel_init */
    tow_initializer bias_init;       /* zeros */
    tow_dtype dtype, param_dtype;    /* tow_dtype in tow/module.h */
    /* Of cached_key and cached_value: TOW_BF16, TOW_F16, TOW_Q8_0 or TOW_Q4_0, of which the cache then has [B,
     * cache_length, G, Dh / 32]; attention decodes them while it reads them. 0: the type of keys and values */
    tow_dtype cache_dtype;
} tow_multi_head_attention;
#define TOW_MULTI_HEAD_ATTENTION(...) TOW__LAYER(tow_multi_head_attention, __VA_ARGS__)

/* ---- TransformerBlock: attention and MLP, each behind a norm and added to its input ------------------------------ */
/* x [B, T, D] -> [B, T, D]. Further inputs: with .cross the memory [B, S, E]; then mask, bias and positions as in
 * MultiHeadAttention; with .cross the second of two masks is that of the cross attention.
 *     pre-norm   x = x + dropout1(attn(ln1(x)));  x = x + dropout2(mlp(ln2(x)))
 *     post_norm  x = ln1(x + dropout1(attn(x)));  x = ln2(x + dropout2(mlp(x)))
 *     parallel   x + dropout1(attn(ln1(x))) + dropout2(mlp(ln2(x))), with shared_norm ln1 in place of ln2
 * mlp is down(activation(up(x))), or a GatedMLP. Cross attention is a branch of its own between the two, ln_cross,
 * cross, dropout3.
 * Children ln1, attn, ln2, mlp (up, down), dropout1, dropout2, and as options want them ln_cross, cross, dropout3,
 * mlp/gate, and norms of the branches' results post_ln1, post_ln2, post_ln_cross.
 * Checkpoint names, besides those of attention: "ln1", "attn_out" (after the output projection), "attn_residual"
 * (after the first addition), "ln2", "mlp_pre" (before the activation), "mlp_act" (after it), "mlp_out",
 * "block_out", "ln_cross", "cross_out", "cross_residual". */
typedef struct tow_transformer_block {
    tow_module module;
    int64_t heads;
    int64_t kv_heads;     /* 0: heads */
    int64_t mlp_features; /* 0: 4 D */
    bool causal;
    bool no_bias;             /* of the six products (query, key, value, out, up, down); a LayerNorm keeps its bias */
    bool rms_norm;            /* RMSNorm in place of LayerNorm */
    double epsilon;           /* of the norms; 0: 1e-6 */
    double dropout_rate;      /* of all branches, before they are added */
    double attn_dropout_rate; /* of the attention weights */
    bool deterministic;
    tow_activation activation;   /* NULL: tow_gelu; gated: tow_silu */
    tow_initializer kernel_init; /* lecun_normal */
    tow_initializer out_init;    /* of attn/out and mlp/down; kernel_init */
    bool post_norm;
    bool branch_norms; /* norms of the branches' results, too, before they are added */
    bool parallel;
    bool shared_norm; /* of parallel */
    bool gated;       /* mlp is a GatedMLP */
    bool cross;
    bool no_qkv_bias, no_out_bias, no_mlp_bias;
    int64_t qkv_features;   /* 0: D */
    double scale;           /* as in MultiHeadAttention, as all below */
    int64_t window;         /* of the self-attention, as are RoPE and decoding */
    double logit_cap;       /* 0: none */
    tow_qk_norm qk_norm;    /* TOW_QK_NO_NORM */
    double qk_norm_epsilon; /* 0: epsilon */
    bool head_gates;
    bool rope;
    tow_rope_options rope_options;
    bool decode;
    bool recall; /* of .decode with .cross, the cross attention's; in calls behind the first */
    int64_t cache_length;
    bool sow_weights;
    tow_dtype dtype, param_dtype; /* tow_dtype in tow/module.h */
    tow_dtype cache_dtype;        /* of decoding: TOW_BF16, TOW_F16, TOW_Q8_0 or TOW_Q4_0; 0: that of keys and values */
} tow_transformer_block;
#define TOW_TRANSFORMER_BLOCK(...) TOW__LAYER(tow_transformer_block, __VA_ARGS__)

/* ---- EncoderDecoder: a stack of encoder blocks, and a stack of decoder blocks that look at its result ------------ */
/* Inputs: source [B, S, D], target [B, T, E], then bool masks of positions that are there and no padding: source [B,
 * S], target [B, T]. Result [B, T, E].
 *     memory = encoder_norm(blocks of the encoder(source))
 *     result = decoder_norm(blocks of the decoder(target, memory))
 * Decoding: .decode of the decoder's block. The first call fills the caches of the cross attention; further calls, by a
 * model whose block has .recall besides, do not compute the encoder, nor keys and values of the memory. They are given
 * a source of the same type, which is not read.
 * Children encoder and decoder, scans ("encoder/{}/attn/query/kernel"), encoder_norm, decoder_norm.
 *     tow_transformer_block read = TOW_TRANSFORMER_BLOCK(.heads = 8),
 *                           write = TOW_TRANSFORMER_BLOCK(.heads = 8, .causal = true, .cross = true);
 *     tow_encoder_decoder model = TOW_ENCODER_DECODER(.encoder = TOW_MODULE(&read), .decoder = TOW_MODULE(&write),
 *                                                     .encoder_length = 6, .decoder_length = 6); */
typedef struct tow_encoder_decoder {
    tow_module module;
    const tow_module *encoder; /* a block: (x, mask [B, 1, 1, S] if there is one) -> x */
    const tow_module *decoder; /* (x, memory, masks [B|1, 1, 1, T|1] and [B, 1, 1, S] if there is one) -> x */
    int64_t encoder_length;
    int64_t decoder_length;
    bool unrolled;       /* as in tow_scan */
    bool no_final_norms; /* post-norm blocks end with norms of their own */
    bool rms_norm;       /* RMSNorm in place of LayerNorm */
    double epsilon;      /* of the norms; 0: 1e-6 */
} tow_encoder_decoder;
#define TOW_ENCODER_DECODER(...) TOW__LAYER(tow_encoder_decoder, __VA_ARGS__)

TOW_API extern const tow_module_class tow_encoder_decoder_class, tow_rope_class, tow_learned_positions_class,
    tow_sinusoidal_positions_class, tow_gated_mlp_class, tow_multi_head_attention_class, tow_transformer_block_class;

#ifdef __cplusplus
}
#endif
#endif
