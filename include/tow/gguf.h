/* GGUF, the files of llama.cpp: tensors, many of them in few bits, and what a model needs beside them as metadata with
 * types: hyperparameters, the tokenizer's vocabulary.
 *
 *     tow_tensors *tensors;
 *     tow_gguf_model model;
 *     tow_gguf_mmap(context, "model.gguf", &tensors);
 *     tow_gguf_model_read(tensors, &model);                              // "llama", 32 layers, ...
 *     tow_tensors_get(tensors, "blk.0.attn_q.weight", &array);           // f32[out, in]
 *
 * Files of version 2 and 3 are read, the highest byte last. Axes are in the order of Tow, the last one in neighboring
 * elements; GGUF lists them the other way round. Tensors of F32, F16, BF16, F64, I8, I32 and I64 have that type here,
 * I16 becomes i32, and blocks of few bits become f32 when an array is asked for:
 *
 *   type   block  bytes  an element is
 *   Q8_0      32     34  d q, of a scale d (f16) and q in -127 to 127
 *   Q4_0      32     18  d (q - 8), q in 0 to 15
 *   Q4_K     256    144  d s q - m t, of 8 scales s and minima t of 6 bits each, and d, m (f16); q in 0 to 15
 *   Q6_K     256    210  d s (q - 32), of 16 scales s of 8 bits, and d (f16); q in 0 to 63
 *
 * These blocks are elements of TOW_Q8_0, TOW_Q4_0, TOW_Q4_K and TOW_Q6_K (tow/base.h), too: tow_tensors_get_with of
 * these types hands those of a mapped file out untouched, in place, and makes others of floats; tow_gguf_write writes
 * arrays of these types as they are. A tensor of another type can be in a mapped file, but not be asked for
 * (TOW_UNSUPPORTED). */
#ifndef TOW_GGUF_H
#define TOW_GGUF_H

#include "tow/io.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* Reads a file, or several if it is the first of them (NAME-00001-of-00003.gguf). A header is checked before memory is
 * taken for data: lengths against the bytes that are left, names, types, shapes, that data are in the file, aligned and
 * without gaps. Errors: TOW_IO_ERROR, TOW_BAD_FORMAT, TOW_UNSUPPORTED with the path and what was found. */
TOW_API tow_status tow_gguf_read(tow_context *context, const char *path, tow_tensors **tensors);
/* The same without the data, which stay in the file, as tow_safetensors_mmap leaves them (tow/io.h): a tensor is read
 * when it is asked for, and one that is not made of blocks is used in place. */
TOW_API tow_status tow_gguf_mmap(tow_context *context, const char *path, tow_tensors **tensors);

/* The element type of tensor `index` in the set: that of blocks (TOW_Q4_K) if a mapped file has such ones, which
 * tow_tensors_get_with then hands out untouched; else that of tow_tensors_type. 0: there is no such tensor, or Tow
 * cannot read it. */
TOW_API tow_dtype tow_tensors_stored_dtype(const tow_tensors *tensors, size_t index);

/* The types in which tow_gguf_write stores floats. */
typedef enum tow_gguf_type {
    TOW_GGUF_AS_IT_IS, /* as arrays have them */
    TOW_GGUF_F32,
    TOW_GGUF_F16,
    TOW_GGUF_BF16,
    TOW_GGUF_Q8_0,
    TOW_GGUF_Q4_0
} tow_gguf_type;

typedef struct tow_gguf_write_options {
    size_t size TOW__SIZE(tow_gguf_write_options); /* set by TOW_GGUF_WRITE_OPTIONS */
    /* Of tensors of floats with two axes or more; the others are written as f32, as llama.cpp wants norms and biases,
     * and so are those whose last axis is not a multiple of 32, if this is Q8_0 or Q4_0. Rounding is that of
     * tow_array_convert. Arrays of blocks stay what they are. */
    tow_gguf_type type;
} tow_gguf_write_options;
#define TOW_GGUF_WRITE_OPTIONS(...) TOW__OPTIONS(tow_gguf_write_options, __VA_ARGS__)

/* Writes version 3, with the tensors and the metadata of the set in their order, as all writers here do: the file is
 * the old one or the whole new one. options: may be NULL. "general.alignment" among the metadata, a power of two of at
 * least 8, is the alignment of the data; the default is 32. Programs that read the file need "general.architecture" and
 * more (docs/weights.md).
 * Errors: TOW_IO_ERROR with the path; TOW_INVALID_ARGUMENT for names that are not UTF-8 or longer than 63 bytes, for
 * more than 4 axes, and for floats that are not finite, or too large, where they become blocks; TOW_UNSUPPORTED for
 * arrays of bool, u8, u32 and u64, which GGUF does not have. */
TOW_API tow_status tow_gguf_write(const char *path, const tow_tensors *tensors, const tow_gguf_write_options *options);

/* ---- metadata with types ----------------------------------------------------------------------------------------- */

/* In the order of GGUF. */
typedef enum tow_metadata_type {
    TOW_METADATA_NONE, /* there is no such key */
    TOW_METADATA_U8,
    TOW_METADATA_I8,
    TOW_METADATA_U16,
    TOW_METADATA_I16,
    TOW_METADATA_U32,
    TOW_METADATA_I32,
    TOW_METADATA_F32,
    TOW_METADATA_BOOL,
    TOW_METADATA_STRING,
    TOW_METADATA_ARRAY,
    TOW_METADATA_U64,
    TOW_METADATA_I64,
    TOW_METADATA_F64
} tow_metadata_type;

typedef struct tow_metadata_value {
    tow_metadata_type type;
    int64_t integer;  /* of integers and of bool; that of an u64 has the same bits */
    double number;    /* of all numbers and of bool */
    const char *text; /* of a string, up to its first zero byte */
    /* Of an array: `count` elements of one type, as C has them: uint8_t to uint64_t, float, double, bool,
     * const char * for strings, tow_metadata_value for arrays. */
    tow_metadata_type element;
    size_t count;
    const void *elements;
} tow_metadata_value;

/* The value under a key, of type TOW_METADATA_NONE if there is none; what it points to lives as long as the set.
 * Metadata of safetensors files are strings. */
TOW_API tow_metadata_value tow_tensors_metadata_value(const tow_tensors *tensors, const char *key);
/* The key of metadata `index`; NULL behind the last one. */
TOW_API const char *tow_tensors_metadata_key(const tow_tensors *tensors, size_t index);
/* Sets the value of a key, which may be there, to a copy: of `integer` for integers and bool, of `number` for floats.
 * Only GGUF files have values that are no strings; writers of safetensors leave them out.
 * Errors: TOW_INVALID_ARGUMENT for what is no type and for an integer that is not one of its type; those of
 * tow_tensors_set_metadata. */
TOW_API tow_status tow_tensors_set_metadata_value(tow_tensors *tensors, const char *key, tow_metadata_value value);

/* ---- hyperparameters --------------------------------------------------------------------------------------------- */

/* The numbers that the metadata of a language model have under its architecture's name, "llama.block_count" for
 * instance. A number that is not there is 0, unless a default is given. */
typedef struct tow_gguf_model {
    const char *architecture; /* "llama", "qwen2", "gemma", "gpt2", ...; lives as long as the set */
    int64_t layers;           /* block_count */
    int64_t width;            /* embedding_length */
    int64_t hidden;           /* feed_forward_length */
    int64_t heads;            /* attention.head_count */
    int64_t kv_heads;         /* attention.head_count_kv; default: heads */
    int64_t head_width;       /* attention.key_length; default: width / heads */
    int64_t rope_width;       /* rope.dimension_count; default: head_width */
    int64_t context;          /* context_length */
    int64_t vocabulary;       /* vocab_size; default: rows of token_embd.weight, or tokens of the tokenizer */
    double rope_base;         /* rope.freq_base; default: 10000 */
    double norm_epsilon;      /* attention.layer_norm_rms_epsilon, or attention.layer_norm_epsilon */
    /* The scaling of angles of positions: what rope.scaling.type says ("none", "linear", "yarn", ...; default: linear
     * with a rope.scaling.factor, else none), or "llama3", if the file has a tensor rope_freqs.weight with the factors
     * of Llama 3.1. */
    const char *rope_scaling;
    double rope_factor; /* by which angles are divided; 1 without scaling */
    /* Of llama3: pairs of features that turn fewer than rope_low times within rope_length positions are divided by the
     * factor, those that turn more often than rope_high times by 1 (factor, low_freq_factor, high_freq_factor and
     * original_max_position_embeddings of transformers). A file has the quotients alone: of several numbers that give
     * them, 1, 4 and 8192 are preferred. */
    double rope_low, rope_high, rope_length;
} tow_gguf_model;

/* Errors: TOW_NOT_FOUND without "general.architecture"; TOW_BAD_FORMAT for a value of the wrong type, and for numbers
 * that no model has (negative, more heads than the width, heads that are no multiple of kv_heads, other layers than
 * those of which there are tensors "blk.N."), with the key; TOW_UNSUPPORTED for a rope_freqs.weight that Llama 3.1 does
 * not explain, for a rope.scaling.attn_factor other than 1 (without scaling, with linear and with llama3), and for a
 * rope_width of "llama" that is not head_width. */
TOW_API tow_status tow_gguf_model_read(const tow_tensors *tensors, tow_gguf_model *model);

/* The tensor rope_freqs.weight, f32[rope_width / 2], of a model whose rope_scaling is "llama3": by what llama.cpp
 * divides the angles of each pair. Errors: TOW_INVALID_ARGUMENT for another scaling, and for numbers that it cannot
 * have. */
TOW_API tow_status tow_gguf_rope_factors(tow_context *context, const tow_gguf_model *model, tow_array **factors);

#ifdef __cplusplus
}
#endif
#endif
