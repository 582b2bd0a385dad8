/* Files of arrays: NumPy's .npy and safetensors.
 *
 * Writers make a temporary file "NAME.16 hexadecimal digits.tmp" in the directory of the file, sync it, rename it over
 * the file and sync the directory, so that a file is either the old one or the whole new one. It keeps the permissions
 * of the old one. A writer that fails removes its temporary file; what a killed one left the next writer of the same
 * path removes. Where two write one path at once, one of them gets TOW_IO_ERROR ("another process is writing this
 * file"), or the file is the whole of what the later one wrote.
 *
 * Readers copy data into memory of their own. tow_npy_map and tow_safetensors_map leave them in the file instead: pages
 * are read when they are touched and need no memory while they are only read. Writing to such an array changes its
 * memory and never the file. In return, nobody may change or truncate that file in place as long as one of its arrays
 * lives: values would change, and touching what was cut off ends the process (SIGBUS). Replacing the file, as Tow's
 * writers do, is safe. Arrays whose data must be converted, are not aligned for their type in the file, or are booleans
 * are copied by these functions as well. */
#ifndef TOW_IO_H
#define TOW_IO_H

#include "tow/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads version 1.0, 2.0 and 3.0 files of f4 f8 i4 u4 b1 (and i8 with values that fit i32), little-endian, C or Fortran
 * order.
 * Errors: TOW_IO_ERROR, TOW_BAD_FORMAT, TOW_UNSUPPORTED with the path and what was found. */
TOW_API tow_status tow_npy_read(tow_context *context, const char *path, tow_array **array);
/* The same without a copy of the data; see the top of this file. */
TOW_API tow_status tow_npy_map(tow_context *context, const char *path, tow_array **array);
/* Writes version 1.0 in C order. Errors: TOW_IO_ERROR with the path. */
TOW_API tow_status tow_npy_write(const char *path, const tow_array *array, tow_context *context);

/* Named arrays of one file, in the order of the file. */
typedef struct tow_tensors tow_tensors;

/* An empty set. */
TOW_API tow_status tow_tensors_create(tow_context *context, tow_tensors **tensors);
/* Frees it and drops its references. NULL is accepted. */
TOW_API void tow_tensors_free(tow_tensors *tensors);
/* Adds an array (retained) under a copy of `name`. Error: TOW_INVALID_ARGUMENT for a name that is there already, and
 * for "__metadata__". */
TOW_API tow_status tow_tensors_add(tow_tensors *tensors, const char *name, tow_array *array);
TOW_API size_t tow_tensors_count(const tow_tensors *tensors);
/* Of tensor `index`; NULL behind the last one. */
TOW_API const char *tow_tensors_name(const tow_tensors *tensors, size_t index);
TOW_API tow_array *tow_tensors_at(const tow_tensors *tensors, size_t index);       /* not retained */
TOW_API tow_array *tow_tensors_find(const tow_tensors *tensors, const char *name); /* NULL if absent */
/* The __metadata__ of the file: strings by key, both copied. A key that is there gets the new value. Error:
 * TOW_INVALID_ARGUMENT for "tow.xxh3" and keys that begin with "tow.xxh3/", which are made on writing and not seen here. */
TOW_API tow_status tow_tensors_set_metadata(tow_tensors *tensors, const char *key, const char *value);
/* NULL if there is no such key. */
TOW_API const char *tow_tensors_metadata(const tow_tensors *tensors, const char *key);

/* Reads and checks everything: header length against file size and 100 MB, JSON, dtypes, offsets in bounds, no gaps, no
 * overlaps, all before memory is taken for the data; and the checksums, if the file has any. Errors: TOW_IO_ERROR,
 * TOW_BAD_FORMAT, TOW_UNSUPPORTED with the path and what was found, for wrong data the name of the tensor. */
TOW_API tow_status tow_safetensors_read(tow_context *context, const char *path, tow_tensors **tensors);
/* The same without a copy of the data; see the top of this file. Checksums are compared once, by reading the file. */
TOW_API tow_status tow_safetensors_map(tow_context *context, const char *path, tow_tensors **tensors);
/* The metadata of the file get a checksum of each tensor, "tow.xxh3/NAME": XXH3 with 64 bits of its bytes, as 16
 * hexadecimal digits, and one of the header, "tow.xxh3"; other programs see them as texts. A program that changes such a
 * file and keeps its metadata must leave these keys out. Errors: TOW_IO_ERROR with the path, TOW_INVALID_ARGUMENT where
 * the names need a header of more than 100 MB, or are not UTF-8. */
TOW_API tow_status tow_safetensors_write(const char *path, const tow_tensors *tensors);

#ifdef __cplusplus
}
#endif
#endif
