/* The header of a .npy file, in a file of its own or in an archive. */
#ifndef TOW_SRC_IO_NPY_H
#define TOW_SRC_IO_NPY_H

#include "src/io/stream.h"

typedef struct tow__npy {
    tow_type type;
    bool fortran;   /* the first axis runs fastest, and there are at least two */
    bool swapped;   /* numbers have their highest byte first */
    bool narrow;    /* they are integers of 16 bits, which become i32, */
    bool is_signed; /* with a sign */
    uint64_t data;  /* where the data begin */
} tow__npy;

/* Bytes of an element in the file. */
static inline size_t tow__npy_element_size(const tow__npy *npy)
{
    return npy->narrow ? sizeof(int16_t) : tow_dtype_size(npy->type.dtype);
}

enum {
    TOW__NPY_PREFIX = 512 /* bytes are enough for what stands before the data of any array */
};

/* Reads what stands before the data, which must be all that is left. Errors: TOW_BAD_FORMAT, TOW_UNSUPPORTED. */
tow_status tow__npy_read_header(tow__stream *stream, tow__npy *npy);
/* The data as a new array of the dtype. Errors: TOW_TYPE_MISMATCH if they do not convert to it, TOW_BAD_FORMAT. */
tow_status tow__npy_read_data(tow__stream *stream, const tow__npy *npy, tow_dtype dtype, tow_array **array);
/* Magic, version 1.0 and header, padded so that the data start at a multiple of 64. Returns the number of bytes. */
/* Refuses elements that NumPy has no type for; `what`: the file, and where in it. */
tow_status tow__npy_check(tow_context *ctx, const char *what, tow_type type);
size_t tow__npy_prefix(tow_type type, char prefix[TOW__NPY_PREFIX]);

#endif
