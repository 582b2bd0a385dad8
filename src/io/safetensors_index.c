/* Indices of safetensors files, as "model.safetensors.index.json": an object whose "weight_map" says for each name
 * which file beside the index holds that tensor. Other members of the object are skipped. If several files hold a name,
 * the index decides. Each header is read into a set of its own, of which the index takes what it wants. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/io/json.h"
#include "src/io/tensors.h"

/* A name and the file that must have it. The string is in the text of the index. */
typedef struct entry {
    const char *name;
    uint32_t file, elsewhere; /* elsewhere: another file with that name; 0, which is the index: none */
} entry;

typedef struct reader {
    tow_context *ctx;
    tow_tensors *tensors;
    const char *path; /* of the index */
    tow__json json;
    char *text; /* [length + 1] */
    size_t length;
    entry *entries;
    size_t count, capacity;
    bool seen_map;
} reader;

/* The file of that name beside the index, opened if it is new. */
static tow_status find_file(reader *r, const char *name, uint32_t *file)
{
    const char *slash = strrchr(r->path, '/');
    const int directory = slash ? (int)(slash - r->path) + 1 : 0;
    tow_status status = TOW_OK;
    tow__string path;
    for (uint32_t i = (uint32_t)r->tensors->n_files - 1; i > 0; i--)
        if (strcmp(r->tensors->files[i].path + directory, name) == 0) {
            *file = i;
            return TOW_OK;
        }
    if (name[0] == '\0' || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return tow__fail(r->ctx, TOW_BAD_FORMAT, "%s: expected the name of a file beside the index, found '%.200s'",
                         r->path, name);
    tow__string_init(&path, r->ctx);
    tow__string_add(&path, "%.*s%s", directory, r->path, name);
    if (path.failed) TRY(TOW_OUT_OF_MEMORY);
    *file = (uint32_t)r->tensors->n_files;
    TRY(tow__tensors_open_file(r->tensors, path.text));
done:
    tow__string_free(&path);
    return status;
}

static tow_status add_entry(reader *r, const char *name, const char *file)
{
    if (r->count == r->capacity) {
        const size_t capacity = r->capacity == 0 ? 32 : 2 * r->capacity;
        entry *entries = tow__grow(r->ctx, r->entries, r->capacity, capacity, sizeof *entries);
        if (!entries) return TOW_OUT_OF_MEMORY;
        r->entries = entries;
        r->capacity = capacity;
    }
    r->entries[r->count] = (entry){.name = name};
    return find_file(r, file, &r->entries[r->count++].file);
}

static tow_status read_map(reader *r)
{
    tow_status status = TOW_OK;
    bool more;
    if (r->seen_map) return tow__fail(r->ctx, TOW_BAD_FORMAT, "%s: duplicate weight_map in the index", r->path);
    r->seen_map = true;
    TRY(tow__json_expect(&r->json, '{'));
    for (size_t i = 0;; i++) {
        char *name, *file;
        TRY(tow__json_next(&r->json, i, '}', &more));
        if (!more) break;
        TRY(tow__json_string(&r->json, &name));
        TRY(tow__json_expect(&r->json, ':'));
        TRY(tow__json_string(&r->json, &file));
        TRY(add_entry(r, name, file));
    }
done:
    return status;
}

static tow_status read_object(reader *r)
{
    tow_status status = TOW_OK;
    bool more;
    TRY(tow__json_expect(&r->json, '{'));
    for (size_t i = 0;; i++) {
        char *name;
        TRY(tow__json_next(&r->json, i, '}', &more));
        if (!more) break;
        TRY(tow__json_string(&r->json, &name));
        TRY(tow__json_expect(&r->json, ':'));
        TRY(strcmp(name, "weight_map") == 0 ? read_map(r) : tow__json_skip(&r->json));
    }
    TRY(tow__json_end(&r->json));
    if (!r->seen_map)
        TRY(tow__fail(r->ctx, TOW_BAD_FORMAT, "%s: expected an index with a weight_map, found none", r->path));
done:
    return status;
}

static tow_status read_text(reader *r)
{
    const tow__input_file *file = &r->tensors->files[0].input;
    if (file->size > TOW__SAFETENSORS_MAX_HEADER)
        return tow__fail(r->ctx, TOW_BAD_FORMAT, "%s: expected an index of at most %" PRIu64 " bytes, found %" PRIu64,
                         r->path, TOW__SAFETENSORS_MAX_HEADER, file->size);
    r->length = (size_t)file->size;
    r->text = tow__alloc(r->ctx, r->length + 1, 1);
    if (!r->text) return TOW_OUT_OF_MEMORY;
    r->json = (tow__json){.ctx = r->ctx,
                          .path = r->path,
                          .what = "the index",
                          .start = r->text,
                          .at = r->text,
                          .end = r->text + r->length};
    return tow__input_read(file, 0, r->text, r->length);
}

static int by_name(const void *a, const void *b) { return strcmp(((const entry *)a)->name, ((const entry *)b)->name); }

static tow_status sort_entries(const reader *r)
{
    if (r->count > 1) qsort(r->entries, r->count, sizeof *r->entries, by_name);
    for (size_t i = 1; i < r->count; i++)
        if (by_name(&r->entries[i - 1], &r->entries[i]) == 0)
            return tow__fail(r->ctx, TOW_BAD_FORMAT, "%s: duplicate name '%.200s' in the index", r->path,
                             r->entries[i].name);
    return TOW_OK;
}

static entry *find_entry(const reader *r, const char *name)
{
    const entry key = {.name = name};
    return r->count > 0 ? bsearch(&key, r->entries, r->count, sizeof key, by_name) : NULL;
}

static tow_status check_entry(const reader *r, const entry *e)
{
    if (tow__tensors_lookup(r->tensors, e->name) >= 0) return TOW_OK; /* take_tensor took it from its file */
    return tow__fail(r->ctx, TOW_BAD_FORMAT, "%s: expected the tensor '%.200s' in %s, found it %s%s", r->path, e->name,
                     r->tensors->files[e->file].path, e->elsewhere > 0 ? "in " : "nowhere",
                     e->elsewhere > 0 ? r->tensors->files[e->elsewhere].path : "");
}

/* ---- headers ----------------------------------------------------------------------------------------------------- */

static tow_status take_tensor(const reader *r, const tow__tensor *tensor, uint32_t file)
{
    tow_tensors *t = r->tensors;
    bool duplicate;
    entry *e = find_entry(r, tensor->name);
    if (e && e->file != file) {
        e->elsewhere = file;
        return TOW_OK;
    }
    const tow_status status = tow__tensors_take(t, tensor, file, &duplicate);
    if (status == TOW_OK && duplicate)
        return tow__fail(
            r->ctx, TOW_BAD_FORMAT,
            "%s: tensor '%.200s': duplicate name, here and in a file before; an index that names it decides",
            t->files[file].path, tensor->name);
    return status;
}

/* Adds what the set of one file has: tensors, the metadata that files before it did not have, and its mark. */
static tow_status take_all(const reader *r, const tow_tensors *from, uint32_t file)
{
    tow_tensors *t = r->tensors;
    tow_status status = TOW_OK;
    for (size_t i = 0; i < from->n_metadata; i++)
        if (!tow_tensors_metadata(t, from->metadata[i].key))
            TRY(tow_tensors_set_metadata(t, from->metadata[i].key, from->metadata[i].text));
    const char *set = from->files[0].set;
    if (set && !(t->files[file].set = tow__arena_string(&t->strings, set))) return TOW_OUT_OF_MEMORY;
    TRY(tow__tensors_reserve(t, t->count + from->count));
    for (size_t i = 0; i < from->count; i++) TRY(take_tensor(r, &from->items[i], file));
done:
    return status;
}

static tow_status read_header(const reader *r, uint32_t file)
{
    tow__tensor_file borrowed = r->tensors->files[file];
    tow_tensors *one = NULL;
    tow_status status = tow_tensors_create(r->ctx, &one);
    if (status != TOW_OK) return status;
    one->files = &borrowed;
    one->n_files = 1;
    TRY(tow__safetensors_read_header(one));
    TRY(take_all(r, one, file));
done:
    one->files = NULL;
    one->n_files = 0;
    tow_tensors_free(one);
    return status;
}

/* Files of one writing say so, unless another program wrote them. */
static tow_status check_sets(const tow_tensors *t)
{
    for (size_t i = 2; i < t->n_files; i++) {
        const char *first = t->files[1].set, *set = t->files[i].set;
        if ((!first && !set) || (first && set && strcmp(first, set) == 0)) continue;
        return tow__fail(t->ctx, TOW_BAD_FORMAT,
                         "%s and %s are not of one set: the program that replaced one set with another did not come to "
                         "its end, or a file was copied over one of these; write or copy the whole set again",
                         t->files[1].path, t->files[i].path);
    }
    return TOW_OK;
}

tow_status tow__safetensors_read_index(tow_tensors *t)
{
    tow_status status = TOW_OK;
    reader r = {.ctx = t->ctx, .tensors = t, .path = t->files[0].path};
    TRY(read_text(&r));
    TRY(read_object(&r));
    tow__input_close(&t->files[0].input);
    TRY(sort_entries(&r));
    for (uint32_t i = 1; i < t->n_files; i++) TRY(read_header(&r, i));
    TRY(check_sets(t));
    for (size_t i = 0; i < r.count; i++) TRY(check_entry(&r, &r.entries[i]));
done:
    if (r.text) tow__free(t->ctx, r.text, r.length + 1, 1);
    if (r.entries) tow__free(t->ctx, r.entries, r.capacity, sizeof *r.entries);
    return status;
}
