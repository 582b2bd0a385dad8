/* Models in several GGUF files, as llama.cpp's gguf-split makes them: NAME-00001-of-00003.gguf and so on. Each file is
 * whole for itself, with its number (from 0) and their count as metadata; other metadata are those of the first one. */
#include <inttypes.h>
#include <stdio.h>

#include "src/io/gguf.h"

enum {
    MAX_FILES = 99999, /* the digits of their names */
    END = 64           /* bytes of the end of a name, at most, whatever the numbers are */
};
static const char number_key[] = "split.no", count_key[] = "split.count", tensors_key[] = "split.tensors.count";

/* An integer among the metadata; 0 where there is none. */
static tow_status read_integer(const tow_tensors *t, const char *key, int64_t most, int64_t *integer)
{
    const tow_metadata_value value = tow_tensors_metadata_value(t, key);
    const bool is_number = value.type != TOW_METADATA_STRING && value.type != TOW_METADATA_ARRAY &&
                           value.type != TOW_METADATA_F32 && value.type != TOW_METADATA_F64;
    *integer = value.integer;
    if (is_number && value.integer >= 0 && value.integer <= most) return TOW_OK;
    return tow__fail(t->ctx, TOW_BAD_FORMAT, "%s: %s: expected an integer, 0 to %" PRId64, t->files[0].path, key, most);
}

/* "-00001-of-00003.gguf" */
static void end_of_name(char end[END], int64_t number, int64_t count)
{
    snprintf(end, END, "-%05" PRId64 "-of-%05" PRId64 ".gguf", number + 1, count);
}

/* The length of the path up to its number. */
static tow_status find_stem(const tow_tensors *t, int64_t number, int64_t count, size_t *stem)
{
    char end[END], first[END];
    const char *path = t->files[0].path;
    const size_t length = strlen(path);
    end_of_name(end, number, count);
    end_of_name(first, 0, count);
    *stem = length > strlen(end) ? length - strlen(end) : 0;
    if (*stem == 0 || strcmp(path + *stem, end) != 0)
        return tow__fail(t->ctx, TOW_BAD_FORMAT,
                         "%s: expected a name that ends with %s, since it is file %" PRId64 " of %" PRId64
                         " of a model; the others are found by it",
                         path, end, number + 1, count);
    if (number == 0) return TOW_OK;
    return tow__fail(t->ctx, TOW_INVALID_ARGUMENT,
                     "%s: expected the first file of the model, %.*s%s, found file %" PRId64 " of %" PRId64, path,
                     (int)*stem, path, first, number + 1, count);
}

static tow_status check_numbers(const tow_tensors *t, const tow_tensors *one, int64_t number, int64_t count)
{
    int64_t its_number, its_count;
    tow_status status = TOW_OK;
    if (tow_tensors_metadata_value(one, number_key).type == TOW_METADATA_NONE ||
        tow_tensors_metadata_value(one, count_key).type == TOW_METADATA_NONE)
        TRY(tow__fail(t->ctx, TOW_BAD_FORMAT,
                      "%s: expected file %" PRId64 " of %" PRId64 " of a model, found one without %s and %s",
                      one->files[0].path, number + 1, count, number_key, count_key));
    TRY(read_integer(one, number_key, MAX_FILES, &its_number));
    TRY(read_integer(one, count_key, MAX_FILES, &its_count));
    if (its_number != number || its_count != count)
        TRY(tow__fail(t->ctx, TOW_BAD_FORMAT,
                      "%s: expected file %" PRId64 " of %" PRId64 ", found that it is file %" PRId64 " of %" PRId64,
                      one->files[0].path, number + 1, count, its_number + 1, its_count));
done:
    return status;
}

/* Adds the tensors of the set of one file. */
static tow_status take_tensors(tow_tensors *t, const tow_tensors *one, uint32_t file)
{
    tow_status status = tow__tensors_reserve(t, t->count + one->count);
    bool duplicate = false;
    for (size_t i = 0; i < one->count && status == TOW_OK; i++) {
        status = tow__tensors_take(t, &one->items[i], file, &duplicate);
        if (duplicate)
            return tow__fail(t->ctx, TOW_BAD_FORMAT, "%s: tensor '%.200s': duplicate name, here and in a file before",
                             t->files[file].path, one->items[i].name);
    }
    return status;
}

/* Opens file `number` of the model, which is also that of the set, and adds its tensors. */
static tow_status take_file(tow_tensors *t, size_t stem, int64_t number, int64_t count)
{
    char end[END];
    tow_tensors *one = NULL;
    tow_status status = TOW_OK;
    tow__string path;
    tow__string_init(&path, t->ctx);
    end_of_name(end, number, count);
    tow__string_add(&path, "%.*s%s", (int)stem, t->files[0].path, end);
    if (path.failed) TRY(TOW_OUT_OF_MEMORY);
    TRY(tow__tensors_open_file(t, path.text));
    t->files[number].format = TOW__FORMAT_GGUF;
    tow__tensor_file borrowed = t->files[number];
    TRY(tow_tensors_create(t->ctx, &one));
    one->files = &borrowed;
    one->n_files = 1;
    status = tow__gguf_read_header(one);
    if (status == TOW_OK) status = check_numbers(t, one, number, count);
    if (status == TOW_OK) status = take_tensors(t, one, (uint32_t)number);
    one->files = NULL;
    one->n_files = 0;
done:
    tow_tensors_free(one);
    tow__string_free(&path);
    return status;
}

/* The set is whole: it says no more that it is a part. */
static void remove_numbers(tow_tensors *t)
{
    size_t kept = 0;
    for (size_t i = 0; i < t->n_metadata; i++)
        if (strcmp(t->metadata[i].key, number_key) != 0 && strcmp(t->metadata[i].key, count_key) != 0 &&
            strcmp(t->metadata[i].key, tensors_key) != 0)
            t->metadata[kept++] = t->metadata[i];
    t->n_metadata = kept;
}

tow_status tow__gguf_read_others(tow_tensors *t)
{
    int64_t number, count, tensors;
    size_t stem;
    tow_status status = TOW_OK;
    if (tow_tensors_metadata_value(t, count_key).type == TOW_METADATA_NONE) return TOW_OK;
    TRY(read_integer(t, count_key, MAX_FILES, &count));
    TRY(read_integer(t, number_key, MAX_FILES, &number));
    TRY(read_integer(t, tensors_key, INT32_MAX, &tensors));
    if (count < 2) goto done;
    TRY(find_stem(t, number, count, &stem));
    for (int64_t i = 1; i < count; i++) TRY(take_file(t, stem, i, count));
    if (tow_tensors_metadata_value(t, tensors_key).type != TOW_METADATA_NONE && (uint64_t)tensors != t->count)
        TRY(tow__fail(t->ctx, TOW_BAD_FORMAT, "%s: expected %" PRId64 " tensors in %" PRId64 " files, found %zu",
                      t->files[0].path, tensors, count, t->count));
    remove_numbers(t);
done:
    return status;
}
