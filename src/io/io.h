/* Shared by the file formats: reading whole ranges of a file with checks, and writing a file so that it is either the
 * old one or the whole new one. */
#ifndef TOW_SRC_IO_H
#define TOW_SRC_IO_H

#include "tow/io.h"

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the file formats are little-endian and are read and written without swapping bytes"
#endif

/* ---- reading ----------------------------------------------------------------------------------------------------- */

typedef struct tow__input_file {
    tow_context *ctx;
    const char *path; /* the caller's */
    int fd;           /* -1: not open */
    uint64_t size;
} tow__input_file;

/* Opens a regular file. On an error the struct is closed already; closing it again does no harm. */
tow_status tow__input_open(tow_context *ctx, const char *path, tow__input_file *file);
/* Reads exactly `count` bytes at `offset`. Errors: TOW_IO_ERROR with the system's text, or if the file is shorter. */
tow_status tow__input_read(const tow__input_file *file, uint64_t offset, void *data, size_t count);
void tow__input_close(tow__input_file *file);

/* ---- writing ----------------------------------------------------------------------------------------------------- */

typedef struct tow__output_file {
    tow_context *ctx;
    const char *path; /* the caller's, for messages */
    char *target;     /* path with symbolic links resolved */
    char *temporary;  /* target.tmp, or NULL for devices and pipes, which are written directly */
    int fd;           /* -1: not open */
} tow__output_file;

/* Starts a new version of `path` in the temporary file "<path>.tmp" beside it. A left-over one of a killed process is
 * taken over; one that another process is writing is an error. */
tow_status tow__output_open(tow_context *ctx, const char *path, tow__output_file *file);
tow_status tow__output_write(tow__output_file *file, const void *data, size_t count);
/* Syncs the temporary file, renames it to `path` and syncs the directory. */
tow_status tow__output_commit(tow__output_file *file);
/* Closes; removes the temporary file unless it was committed. Always the last call, also after an error. */
void tow__output_close(tow__output_file *file);

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

/* True if all bytes are 0 or 1, as the kernels take for granted in arrays of booleans. */
bool tow__valid_bools(const void *data, size_t count);

/* A hash of names to indices, so that looking up one of many tensors takes constant time. */
tow_status tow__tensors_add(tow_tensors *tensors, const char *name, tow_array *array, bool *duplicate);
tow_context *tow__tensors_context(const tow_tensors *tensors);
/* Metadata by index, in the order in which keys were set. False beyond the last one. */
bool tow__tensors_metadata_at(const tow_tensors *tensors, size_t index, const char **key, const char **value);

#endif
