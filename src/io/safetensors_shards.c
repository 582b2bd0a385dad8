/* Writing a set of tensors as several safetensors files with an index: all files beside the old ones first, then the
 * renames, the index last, then what an earlier writing left is removed. */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "src/io/file_calls.h"
#include "src/io/json.h"
#include "src/io/tensors.h"

enum {
    MAX_FILES = 99999, /* that have numbers of five digits */
    NUMBERS = sizeof "-00001-of-00002" - 1
};
static const char suffix[] = ".safetensors";

typedef struct shards {
    tow_context *ctx;
    const char *path;
    int stem, directory; /* bytes of the path without ".safetensors"; of its directory, with the slash */
    tow__tensor_writer writer;
    size_t count;
    size_t *ends;            /* [count] one behind the last tensor of each file */
    tow__output_file *files; /* [count + 1], the last one is the index */
    char set[17];
    tow__arena memory; /* of paths, which open files refer to */
} shards;

/* ---- what goes where --------------------------------------------------------------------------------------------- */

/* Files for all tensors in their order. ends NULL: only counts. */
static size_t divide(const tow_tensors *t, uint64_t limit, size_t *ends)
{
    size_t count = 0, first = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < t->count; i++) {
        const uint64_t more = tow_type_bytes(t->items[i].type);
        if (i > first && (more > limit || bytes > limit - more)) {
            if (ends) ends[count] = i;
            count++;
            first = i;
            bytes = 0;
        }
        bytes += more;
    }
    if (ends) ends[count] = t->count;
    return count + 1;
}

static const char *file_path(shards *s, size_t index)
{
    const size_t size = (size_t)s->stem + NUMBERS + sizeof suffix;
    char *path = tow__arena_alloc(&s->memory, size + 10, 1);
    if (path) snprintf(path, size + 10, "%.*s-%05zu-of-%05zu%s", s->stem, s->path, index + 1, s->count, suffix);
    return path;
}

static const char *index_path(shards *s)
{
    const size_t size = strlen(s->path) + sizeof ".index.json";
    char *path = tow__arena_alloc(&s->memory, size, 1);
    if (path) snprintf(path, size, "%s.index.json", s->path);
    return path;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void name_set(shards *s)
{
    const tow_tensors *t = s->writer.tensors;
    uint64_t sum = 0;
    for (size_t i = 0; i < t->count; i++)
        sum += tow__tensor_sum(t->items[i].name, t->items[i].type, s->writer.checksums[i]);
    snprintf(s->set, sizeof s->set, "%016" PRIx64, sum);
    s->writer.set = s->set;
}

static void add_index(const shards *s, tow__string *text, const char *const *names)
{
    const tow_tensors *t = s->writer.tensors;
    uint64_t total = 0;
    for (size_t i = 0; i < t->count; i++) total += tow_type_bytes(t->items[i].type);
    tow__string_add(text, "{\"metadata\": {\"total_size\": %" PRIu64 "},\n \"weight_map\": {", total);
    for (size_t i = 0, file = 0; i < t->count; i++) {
        while (s->ends[file] <= i) file++;
        tow__string_add(text, i > 0 ? ",\n  " : "\n  ");
        tow__json_add_string(text, t->items[i].name);
        tow__string_add(text, ": ");
        tow__json_add_string(text, names[file] + s->directory);
    }
    tow__string_add(text, "\n }}\n");
}

static tow_status write_index(shards *s, const char *const *names)
{
    tow_status status = TOW_OK;
    tow__string text;
    tow__output_file *file = &s->files[s->count];
    const char *path = index_path(s);
    tow__string_init(&text, s->ctx);
    if (!path) TRY(TOW_OUT_OF_MEMORY);
    add_index(s, &text, names);
    if (text.failed) TRY(TOW_OUT_OF_MEMORY);
    if (text.length > TOW__SAFETENSORS_MAX_HEADER)
        TRY(tow__fail(s->ctx, TOW_INVALID_ARGUMENT, "%s: the names need an index of %zu bytes; readers accept %" PRIu64,
                      path, text.length, TOW__SAFETENSORS_MAX_HEADER));
    TRY(tow__output_open(s->ctx, path, file));
    TRY(tow__output_write(file, text.text, text.length));
done:
    tow__string_free(&text);
    return status;
}

/* All files, not committed. */
static tow_status write_files(shards *s)
{
    const char **names = tow__arena_alloc(&s->memory, s->count, sizeof *names);
    tow_status status = TOW_OK;
    if (!names) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < s->count; i++) {
        names[i] = file_path(s, i);
        if (!names[i]) return TOW_OUT_OF_MEMORY;
        s->writer.first = i > 0 ? s->ends[i - 1] : 0;
        s->writer.end = s->ends[i];
        TRY(tow__tensor_writer_write(&s->writer, names[i], &s->files[i]));
    }
    TRY(write_index(s, names));
    for (size_t i = 0; i <= s->count; i++) TRY(tow__output_sync(&s->files[i]));
done:
    return status;
}

/* ---- what an earlier writing left -------------------------------------------------------------------------------- */

static tow_status remove_file(const shards *s, const char *path)
{
    int result;
    TOW__RETRY(result, tow__calls(s->ctx)->unlink(path));
    if (result == 0 || errno == ENOENT) return TOW_OK;
    return tow__fail(s->ctx, TOW_IO_ERROR, "%s: written, but cannot remove the old file %s: %s", s->path, path,
                     strerror(errno));
}

/* True for "STEM-00001-of-00003.safetensors" if it is none of `count` files. */
static bool is_old(const shards *s, const char *name, size_t count)
{
    const size_t stem = (size_t)(s->stem - s->directory);
    unsigned number, of;
    if (strlen(name) != stem + NUMBERS + sizeof suffix - 1 || memcmp(name, s->path + s->directory, stem) != 0 ||
        strcmp(name + stem + NUMBERS, suffix) != 0)
        return false;
    const char *digits = name + stem;
    for (int i = 0; i < NUMBERS; i++) {
        const char want = "-00000-of-00000"[i];
        if (want == '0' ? digits[i] < '0' || digits[i] > '9' : digits[i] != want) return false;
    }
    return sscanf(digits, "-%5u-of-%5u", &number, &of) == 2 && of != count;
}

/* A directory that may be written but not listed keeps them; they are in no index. */
static tow_status remove_old(shards *s, size_t count)
{
    tow_status status = TOW_OK;
    char *directory = tow__arena_alloc(&s->memory, (size_t)s->directory + 2, 1);
    if (!directory) return TOW_OUT_OF_MEMORY;
    memcpy(directory, s->directory > 0 ? s->path : ".", s->directory > 0 ? (size_t)s->directory : 1);
    DIR *entries = opendir(directory);
    for (const struct dirent *entry; entries && (entry = readdir(entries));) {
        if (!is_old(s, entry->d_name, count)) continue;
        const size_t size = (size_t)s->directory + strlen(entry->d_name) + 1;
        char *path = tow__arena_alloc(&s->memory, size, 1);
        if (!path) TRY(TOW_OUT_OF_MEMORY);
        snprintf(path, size, "%.*s%s", s->directory, s->path, entry->d_name);
        TRY(remove_file(s, path));
    }
done:
    if (entries) closedir(entries);
    return status;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static tow_status begin(shards *s, const char *path, const tow_tensors *t, tow__tensor_data data)
{
    const char *slash = strrchr(path, '/');
    const size_t length = strlen(path), tail = sizeof suffix - 1;
    s->ctx = t->ctx;
    s->path = path;
    s->directory = slash ? (int)(slash - path) + 1 : 0;
    s->writer = (tow__tensor_writer){.tensors = t, .data = data};
    if (length - (size_t)s->directory <= tail || strcmp(path + length - tail, suffix) != 0 || length > INT32_MAX)
        return tow__fail(s->ctx, TOW_INVALID_ARGUMENT,
                         "%.200s: expected a path such as DIR/model.safetensors, of which the names of the files are "
                         "made",
                         path);
    s->stem = (int)(length - tail);
    return tow__safetensors_check(path, t);
}

static tow_status write_several(shards *s, uint64_t limit)
{
    tow_status status = TOW_OK;
    size_t committed = 0;
    if (s->count > MAX_FILES)
        return tow__fail(s->ctx, TOW_INVALID_ARGUMENT,
                         "%s: files of at most %" PRIu64
                         " bytes would be %zu; at most %d have numbers: raise the limit",
                         s->path, limit, s->count, MAX_FILES);
    s->ends = tow__arena_alloc(&s->memory, s->count, sizeof *s->ends);
    s->files = tow__arena_alloc(&s->memory, s->count + 1, sizeof *s->files);
    if (!s->ends || !s->files) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i <= s->count; i++) s->files[i].fd = -1;
    divide(s->writer.tensors, limit, s->ends);
    TRY(tow__tensor_writer_sum(&s->writer));
    name_set(s);
    TRY(write_files(s));
    for (; committed <= s->count; committed++) TRY(tow__output_commit(&s->files[committed]));
    TRY(remove_file(s, s->path));
    TRY(remove_old(s, s->count));
done:
    for (size_t i = 0; i <= s->count; i++) tow__output_close(&s->files[i]);
    tow__tensor_writer_free(&s->writer);
    return status;
}

/* One file; the index of an earlier writing goes before its files do. */
static tow_status write_one(shards *s)
{
    const char *index = index_path(s);
    tow_status status = TOW_OK;
    if (!index) return TOW_OUT_OF_MEMORY;
    TRY(tow__safetensors_write_file(s->path, s->writer.tensors, s->writer.data));
    TRY(remove_file(s, index));
    TRY(remove_old(s, 0));
done:
    return status;
}

tow_status tow__safetensors_write_sharded(const char *path, const tow_tensors *tensors, tow__tensor_data data,
                                          uint64_t max_file_bytes)
{
    shards s = {.ctx = tensors->ctx};
    tow_status status = TOW_OK;
    const uint64_t limit = max_file_bytes > 0 ? max_file_bytes : UINT64_MAX;
    tow__arena_init(&s.memory, tensors->ctx);
    TRY(begin(&s, path, tensors, data));
    s.count = divide(tensors, limit, NULL);
    TRY(s.count == 1 ? write_one(&s) : write_several(&s, limit));
done:
    tow__arena_free(&s.memory);
    return status;
}

tow_status tow_safetensors_write_sharded(const char *path, const tow_tensors *tensors, uint64_t max_file_bytes)
{
    if (!tensors) return tow__missing(NULL, __func__, "a set of tensors");
    if (!path) return tow__missing(tensors->ctx, __func__, "the path of a file to write");
    return tow__safetensors_write_sharded(path, tensors, tow__tensors_data(tensors), max_file_bytes);
}
