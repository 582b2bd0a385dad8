/* GGUF: what its reader and its writer share.
 *
 *   "GGUF", u32 version, u64 number of tensors, u64 number of metadata
 *   metadata:  string key, u32 type, value
 *   tensors:   string name, u32 number of axes, u64 axes (the fastest first), u32 type, u64 offset of its data
 *   zeros up to a multiple of the alignment; data, each tensor at a multiple of the alignment
 *
 * A string is a u64 length and its bytes, an array a u32 type of elements, a u64 count and the elements. */
#ifndef TOW_SRC_IO_GGUF_H
#define TOW_SRC_IO_GGUF_H

#include "src/io/tensors.h"

enum {
    TOW__GGUF_VERSION = 3,
    TOW__GGUF_ALIGNMENT = 32, /* where the metadata say nothing */
    TOW__GGUF_MAX_ALIGNMENT = 1 << 20,
    TOW__GGUF_MAX_AXES = 4,
    TOW__GGUF_NAME_BYTES = 64, /* with a zero byte: longer names of tensors are not read by llama.cpp */
    TOW__GGUF_MAX_METADATA = 4096
};
#define TOW__GGUF_ALIGNMENT_KEY "general.alignment"

/* A type of tensors. */
typedef struct tow__gguf_dtype {
    const char *name;    /* NULL: there is no such type */
    int elements, bytes; /* of a block */
    int tow;             /* the element type here; 0: Tow does not read it */
    int stored;          /* one of TOW__STORED_... */
} tow__gguf_dtype;

/* By the number of the type in files; NULL if there is none. */
const tow__gguf_dtype *tow__gguf_dtype_of(uint32_t number);
/* The number of the type of a form of elements, or UINT32_MAX. */
uint32_t tow__gguf_number_of(tow_dtype dtype, int stored);

/* Opens a file, or all files of a model of which it is the first, and checks the headers; tensors are in the order of
 * the files and of their data. Errors: those of tow_gguf_read. */
tow_status tow__gguf_open(tow_context *ctx, const char *path, tow_tensors **tensors);
/* Adds what the header of the one open file of a set, which is empty, says. */
tow_status tow__gguf_read_header(tow_tensors *tensors);
/* Adds the tensors of the other files, if the metadata say that the file of the set is the first of several. */
tow_status tow__gguf_read_others(tow_tensors *tensors);
/* True for a file that begins as GGUF files do. */
tow_status tow__gguf_recognize(tow_context *ctx, const char *path, bool *is_gguf);
/* Reads the scaling of a model's positions from the metadata and the tensor of factors; the other numbers of the model
 * are there. Errors: those of tow_gguf_model_read. */
tow_status tow__gguf_read_rope(const tow_tensors *tensors, tow_gguf_model *model);
/* tow_gguf_write with data from elsewhere, which are asked for once, in the order of the set. */
tow_status tow__gguf_write_file(const char *path, const tow_tensors *tensors, tow__tensor_data data,
                                tow_gguf_type type);

#endif
