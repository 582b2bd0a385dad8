/* Opens safetensors files: one, or all that an index names, to be read, or to be mapped. */
#include "src/io/file_calls.h"
#include "src/io/tensors.h"

/* ---- a file, or an index ----------------------------------------------------------------------------------------- */

/* True if the file begins as an index does, whose text then is all of it, and not as a safetensors file. */
static tow_status recognize_index(const tow__input_file *file, bool *is_index)
{
    uint64_t length = 0;
    const size_t have = file->size < sizeof length ? (size_t)file->size : sizeof length;
    *is_index = false;
    tow_status status = tow__input_read(file, 0, &length, have);
    /* A file of tensors begins with the length of its header, whose upper bytes are zeros. */
    if (status == TOW_OK) *is_index = (length & 0xff) == '{' && (have < sizeof length || length >> 32 != 0);
    return status;
}

/* The index beside a path where there is no file, "PATH.index.json", if that is there: left in *index. */
static tow_status find_index(tow_context *ctx, const char *path, tow__string *index)
{
    const tow__file_calls *calls = tow__calls(ctx);
    struct stat info;
    int result;
    if (!path) return TOW_OK;
    TOW__RETRY(result, calls->stat(path, &info));
    if (result == 0) return TOW_OK;
    if (errno != ENOENT) return tow__fail(ctx, TOW_IO_ERROR, "%s: cannot open for reading: %s", path, strerror(errno));
    tow__string_add(index, "%s.index.json", path);
    if (index->failed) return TOW_OUT_OF_MEMORY;
    TOW__RETRY(result, calls->stat(index->text, &info));
    if (result != 0) tow__string_free(index);
    return TOW_OK;
}

tow_status tow__safetensors_open(tow_context *ctx, const char *path, tow_tensors **tensors)
{
    tow_status status = tow_tensors_create(ctx, tensors);
    bool is_index;
    tow__string index;
    if (status != TOW_OK) return status;
    tow__string_init(&index, ctx);
    TRY(find_index(ctx, path, &index));
    TRY(tow__tensors_open_file(*tensors, index.text ? index.text : path));
    TRY(recognize_index(&(*tensors)->files[0].input, &is_index));
    TRY(is_index ? tow__safetensors_read_index(*tensors) : tow__safetensors_read_header(*tensors));
done:
    tow__string_free(&index);
    if (status != TOW_OK) {
        tow_tensors_free(*tensors);
        *tensors = NULL;
    }
    return status;
}

/* ---- all of its tensors ------------------------------------------------------------------------------------------ */

tow_status tow__tensors_load_all(tow_tensors *t)
{
    tow_status status = TOW_OK;
    for (size_t i = 0; i < t->count; i++) TRY(tow__tensors_load(t, i));
done:
    return status;
}

tow_status tow__tensors_map(tow_tensors *t)
{
    tow_status status = TOW_OK;
    for (size_t i = 0; i < t->n_files; i++)
        if (t->files[i].input.fd >= 0) TRY(tow__input_map(&t->files[i].input, &t->files[i].mapping));
done:
    return status;
}

tow_status tow__tensors_open(tow_context *context, const char *path,
                             tow_status (*open)(tow_context *ctx, const char *path, tow_tensors **tensors),
                             tow_status (*get)(tow_tensors *t), tow_tensors **tensors)
{
    tow_tensors *t = NULL;
    tow_status status = open(context, path, &t);
    if (status != TOW_OK) return status;
    TRY(get(t));
    for (size_t i = 0; i < t->n_files; i++) tow__input_close(&t->files[i].input);
    *tensors = t;
done:
    if (status != TOW_OK) tow_tensors_free(t);
    return status;
}

tow_status tow_safetensors_read(tow_context *context, const char *path, tow_tensors **tensors)
{
    if (tensors) *tensors = NULL;
    if (!context || !tensors) return tow__missing(context, __func__, "a context and a place for the tensors");
    return tow__tensors_open(context, path, tow__safetensors_open, tow__tensors_load_all, tensors);
}

tow_status tow_safetensors_mmap(tow_context *context, const char *path, tow_tensors **tensors)
{
    if (tensors) *tensors = NULL;
    if (!context || !tensors) return tow__missing(context, __func__, "a context and a place for the tensors");
    return tow__tensors_open(context, path, tow__safetensors_open, tow__tensors_map, tensors);
}
