/* Tells what a file is by its first bytes, for messages to those who give a file of one format to the reader of
 * another. */
#include "src/io/io.h"

typedef struct file_kind {
    const char *magic;
    size_t length;
    int format; /* a tow__format; -1: none that Tow reads */
    const char *text;
} file_kind;

#define MAGIC(bytes) bytes, sizeof bytes - 1
#define ZIP_TEXT     "a zip archive: tow_npz_read reads those of NumPy; write other checkpoints as safetensors first"
#define PICKLE_TEXT  "a pickle; write its arrays as safetensors or .npz first"

static const file_kind kinds[] = {
    {MAGIC("\x93NUMPY"), TOW__FORMAT_NPY, "a .npy file, which tow_npy_read reads"},
    {MAGIC("PK\3\4"), TOW__FORMAT_ZIP, ZIP_TEXT},
    {MAGIC("PK\5\6"), TOW__FORMAT_ZIP, ZIP_TEXT},
    {MAGIC("GGUF"), TOW__FORMAT_GGUF, "a GGUF file, which tow_gguf_read reads"},
    {MAGIC("\x89HDF"), -1, "an HDF5 file; write its arrays as safetensors or .npz first"},
    {MAGIC("\x80\2"), -1, PICKLE_TEXT},
    {MAGIC("\x80\3"), -1, PICKLE_TEXT},
    {MAGIC("\x80\4"), -1, PICKLE_TEXT},
    {MAGIC("\x1f\x8b"), -1, "a file that gzip compressed; decompress it first"},
    {MAGIC("version https://git-lfs"), -1, "a pointer of Git LFS; fetch the file that it stands for (git lfs pull)"},
};

/* A file of tensors begins with the length of its header, whose upper bytes are zeros; no other kind above does. */
static bool has_length(const unsigned char *first, size_t n)
{
    return n >= 8 && first[4] == 0 && first[5] == 0 && first[6] == 0 && first[7] == 0;
}

const char *tow__other_kind(const void *first, size_t n, tow__format format)
{
    if (has_length(first, n))
        return n > 8 && ((const char *)first)[8] == '{' && format != TOW__FORMAT_SAFETENSORS
                   ? "a safetensors file, which tow_safetensors_read reads"
                   : NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (n >= kinds[i].length && memcmp(first, kinds[i].magic, kinds[i].length) == 0)
            return kinds[i].format != (int)format ? kinds[i].text : NULL;
    return NULL;
}

tow_status tow__input_check_kind(const tow__input_file *file, tow__format format, const char *expected)
{
    char first[TOW__KIND_BYTES];
    const size_t n = file->size < sizeof first ? (size_t)file->size : sizeof first;
    const tow_status status = tow__input_read(file, 0, first, n);
    const char *kind = status == TOW_OK ? tow__other_kind(first, n, format) : NULL;
    return kind ? tow__fail(file->ctx, TOW_BAD_FORMAT, "%s: expected %s, found %s", file->path, expected, kind)
                : status;
}
