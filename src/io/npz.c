/* NumPy's .npz: a zip archive whose members "NAME.npy" are .npy files. */
#include <stdio.h>

#include "src/base/dtypes.h"
#include "src/io/json.h"
#include "src/io/npy.h"
#include "src/io/tensors.h"
#include "src/io/zip.h"

static const char suffix[] = ".npy";

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Bytes of the member's name without the suffix, or -1 if it has none: then it is no array. */
static int stem_length(const tow__zip_member *m)
{
    const size_t length = strlen(m->name), tail = sizeof suffix - 1;
    return length >= tail && strcmp(m->name + length - tail, suffix) == 0 ? (int)(length - tail) : -1;
}

/* Adds a member that Tow cannot read, with the context's message for those who ask for it. */
static tow_status add_foreign(tow_tensors *t, const char *name, const char *path)
{
    tow_status status = TOW_OK;
    bool duplicate = false;
    const char *message = tow__arena_string(&t->strings, tow_context_error(t->ctx));
    if (!message) return TOW_OUT_OF_MEMORY;
    TRY(tow__tensors_append(t, name, tow_make_type(TOW_F32, -1, NULL), &duplicate));
    if (duplicate)
        return tow__fail(t->ctx, TOW_BAD_FORMAT, "%s: a tensor of this name is there already; names must differ", path);
    t->items[t->count - 1].foreign = message;
done:
    return status;
}

static tow_status add_member(tow_tensors *t, const char *name, tow__stream *stream)
{
    tow__npy npy;
    tow_array *array = NULL;
    tow_status status = tow__npy_read_header(stream, &npy);
    if (status != TOW_OK) return status;
    TRY(tow__npy_read_data(stream, &npy, npy.type.dtype, &array));
    status = tow_tensors_add(t, name, array);
    if (status == TOW_INVALID_ARGUMENT) /* a name that is there already */
        status = tow__fail(t->ctx, TOW_BAD_FORMAT, "%s: %s", stream->path, tow_context_error(t->ctx));
done:
    tow_array_release(array);
    return status;
}

static tow_status read_member(tow_tensors *t, const tow__zip *zip, const tow__zip_member *m)
{
    tow_status status = TOW_OK;
    tow__zip_stream s = {.inflater = NULL};
    tow__string path, name;
    tow__string_init(&path, t->ctx);
    tow__string_init(&name, t->ctx);
    tow__string_add(&path, "%s/%s", zip->file->path, m->name);
    tow__string_add(&name, "%.*s", stem_length(m), m->name);
    if (path.failed || name.failed) TRY(TOW_OUT_OF_MEMORY);
    if (!tow__is_utf8(name.text))
        TRY(tow__fail(t->ctx, TOW_BAD_FORMAT, "%s: expected a name in UTF-8; name the array anew", path.text));
    status = tow__zip_stream_open(zip, m, path.text, &s);
    if (status == TOW_OK) status = add_member(t, name.text, &s.stream);
    if (status == TOW_UNSUPPORTED) status = add_foreign(t, name.text, path.text);
done:
    tow__zip_stream_close(&s);
    tow__string_free(&path);
    tow__string_free(&name);
    return status;
}

static tow_status read_members(const tow__input_file *file, tow_tensors *t)
{
    tow__zip zip;
    tow_status status = tow__zip_open(file, &zip);
    if (status != TOW_OK) return status;
    for (size_t i = 0; i < zip.count; i++)
        if (stem_length(&zip.members[i]) >= 0) TRY(read_member(t, &zip, &zip.members[i]));
done:
    tow__zip_close(&zip);
    return status;
}

tow_status tow_npz_read(tow_context *context, const char *path, tow_tensors **tensors)
{
    if (tensors) *tensors = NULL;
    if (!context || !tensors) return tow__missing(context, __func__, "a context and a place for the tensors");
    tow__input_file file;
    tow_tensors *t = NULL;
    tow_status status = tow__input_open(context, path, &file);
    if (status != TOW_OK) return status;
    TRY(tow_tensors_create(context, &t));
    TRY(read_members(&file, t));
    *tensors = t;
done:
    if (status != TOW_OK) tow_tensors_free(t);
    tow__input_close(&file);
    return status;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static tow_status add_array(tow__zip_writer *w, tow__arena *memory, const tow__tensor *tensor)
{
    const size_t size = strlen(tensor->name) + sizeof suffix;
    char *name = tow__arena_alloc(memory, size, 1);
    char prefix[TOW__NPY_PREFIX];
    if (!name) return TOW_OUT_OF_MEMORY;
    snprintf(name, size, "%s%s", tensor->name, suffix);
    const tow__zip_part parts[] = {{prefix, tow__npy_prefix(tensor->type, prefix)},
                                   {tow_array_data(tensor->array), tow_type_bytes(tensor->type)}};
    return tow__zip_add(w, name, 2, parts);
}

static tow_status write_members(const tow_tensors *t, tow__output_file *file, bool compress)
{
    tow_status status = TOW_OK;
    tow__arena memory; /* of the names */
    tow__zip_writer writer = {.file = NULL};
    tow__zip_member *members = tow__alloc(t->ctx, t->count, sizeof *members);
    tow__arena_init(&memory, t->ctx);
    if (!members) TRY(TOW_OUT_OF_MEMORY);
    TRY(tow__zip_begin(&writer, file, members, compress));
    for (size_t i = 0; i < t->count; i++) TRY(add_array(&writer, &memory, &t->items[i]));
    TRY(tow__zip_finish(&writer));
done:
    tow__zip_end(&writer);
    tow__arena_free(&memory);
    if (members) tow__free(t->ctx, members, t->count, sizeof *members);
    return status;
}

tow_status tow_npz_write(const char *path, const tow_tensors *tensors, bool compress)
{
    if (!tensors) return tow__missing(NULL, __func__, "a set of tensors");
    if (!path) return tow__missing(tensors->ctx, __func__, "the path of a file to write");
    tow__output_file file = {.ctx = NULL};
    tow_status status = TOW_OK;
    for (size_t i = 0; i < tensors->count; i++) {
        if (!tow__is_utf8(tensors->items[i].name))
            TRY(tow__fail(tensors->ctx, TOW_INVALID_ARGUMENT, "%s: names in a .npz file are UTF-8, found '%.200s'",
                          path, tensors->items[i].name));
        TRY(tow__npy_check(tensors->ctx, tensors->items[i].name, tensors->items[i].type));
        TRY(tow__tensors_load(tensors, i));
    }
    TRY(tow__output_open(tensors->ctx, path, &file));
    TRY(write_members(tensors, &file, compress));
    TRY(tow__output_commit(&file));
done:
    tow__output_close(&file);
    return status;
}
