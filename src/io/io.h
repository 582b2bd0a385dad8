/* Shared by the file formats: reading whole ranges of a file with checks, and writing a file so that it is either the
 * old one or the whole new one. */
#ifndef TOW_SRC_IO_H
#define TOW_SRC_IO_H

#include <sys/stat.h>

#include "src/base/base.h"
#include "tow/io.h"

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the file formats are little-endian and are read and written without swapping bytes"
#endif

/* ---- reading ----------------------------------------------------------------------------------------------------- */

typedef struct tow__input_file {
    tow_context *ctx;
    char *path; /* a copy, for messages */
    int fd;     /* -1: not open */
    uint64_t size;
} tow__input_file;

/* Opens a regular file. On an error the struct is closed already; closing it again does no harm. */
tow_status tow__input_open(tow_context *ctx, const char *path, tow__input_file *file);
/* Reads exactly `count` bytes at `offset`. Errors: TOW_IO_ERROR with the system's text, or if the file is shorter. */
tow_status tow__input_read(const tow__input_file *file, uint64_t offset, void *data, size_t count);
/* The whole file, which must not be empty, as an array of bytes that outlives the open file. Bytes that are written to
 * the array stay in memory. */
tow_status tow__input_map(const tow__input_file *file, tow_array **array);
void tow__input_close(tow__input_file *file);

typedef enum tow__format {
    TOW__FORMAT_SAFETENSORS,
    TOW__FORMAT_NPY,
    TOW__FORMAT_ZIP,
    TOW__FORMAT_GGUF
} tow__format;
enum {
    TOW__KIND_BYTES = 24 /* of a file tell its kind */
};
/* Says what a file with these first bytes is, if it is known and not of the format, and what to do with it: "a .npy
 * file, which tow_npy_read reads". Otherwise NULL. */
const char *tow__other_kind(const void *first, size_t n, tow__format format);
/* TOW_BAD_FORMAT if the file is known to be of another format. `expected`: "a safetensors file". */
tow_status tow__input_check_kind(const tow__input_file *file, tow__format format, const char *expected);

/* ---- writing ----------------------------------------------------------------------------------------------------- */

typedef struct tow__output_file {
    tow_context *ctx;      /* NULL: not open */
    const char *path;      /* the caller's, for messages */
    const char *target;    /* path with symbolic links resolved */
    const char *directory; /* of the target */
    const char *temporary; /* beside the target; NULL for devices and pipes, which are written directly */
    int fd;                /* -1: not open */
    bool joined;           /* the temporary file is another process's */
    bool replaces;         /* there is an old version, */
    struct stat old;       /* and these are its owner and permissions */
    tow__arena memory;     /* of the paths */
} tow__output_file;

/* Starts a new version of `path` in a temporary file beside it. Removes what killed writers of this path left; one that
 * is at work is an error. */
tow_status tow__output_open(tow_context *ctx, const char *path, tow__output_file *file);
tow_status tow__output_write(tow__output_file *file, const void *data, size_t count);
/* The same at a place of the file, whatever was written before. */
tow_status tow__output_write_at(tow__output_file *file, uint64_t offset, const void *data, size_t count);
/* The temporary file gets so many bytes, zeros where nothing is written. */
tow_status tow__output_resize(tow__output_file *file, uint64_t size);
/* Opens the temporary file that another process, which has opened `path`, holds and has given this size: to write parts
 * of it at their places, and to sync them. It is closed, and neither committed nor removed. `path` lives longer. */
tow_status tow__output_join(tow_context *ctx, const char *path, const char *temporary, uint64_t size,
                            tow__output_file *file);
/* Gives the temporary file the permissions of the old version and syncs it. Committing does so, too; a writer of
 * several files calls this for all of them first, so that their renames follow one another at once. A file that was
 * joined is only synced. */
tow_status tow__output_sync(tow__output_file *file);
/* Gives the temporary file the permissions of the old version, syncs it, renames it to `path` and syncs the directory.
 * After an error of the last step the new version is in place, but a power cut may undo it. */
tow_status tow__output_commit(tow__output_file *file);
/* Closes; removes the temporary file unless it was committed. Always the last call, also after an error. */
void tow__output_close(tow__output_file *file);

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

/* True if all bytes are 0 or 1, as the kernels take for granted in arrays of booleans. */
bool tow__valid_bools(const void *data, size_t count);

/* Integers of 16 bits to i32, in place: from the end, as each takes the place of two. */
void tow__widen_16_bits(void *data, size_t count, bool is_signed);
/* The conversions that readers make on request (convert.c): everything to floats, integers and booleans to integers. */
bool tow__file_converts(tow_dtype from, tow_dtype to);
/* Converts n elements, each rounded at most once. Returns the index of the first integer that does not fit, or -1. */
int64_t tow__file_convert(tow_dtype to_dtype, void *to, tow_dtype from_dtype, const void *from, int64_t n);
/* Element i, an integer, as text. */
void tow__integer_text(tow_dtype dtype, const void *data, int64_t i, char text[24]);

#endif
