/* Safetensors files that the processes of a group write and check together, each its share of every tensor.
 *
 *     header | a a a a b b | c c c c c c |        the file, with tensors a, b and c
 *              0 0 1 1 0 1   0 0 0 1 1 1          the process that writes an element (tow_group_share)
 *
 * Writing: the processes find that their sets agree, and make the checksums; rank 0 makes the temporary file with its
 * header and in its full length; the others open it, all write their elements at their places and sync them; rank 0
 * renames it. Behind each of these steps all agree that it has worked in every process; else rank 0 removes the
 * temporary file, and the old one stays. Ranges of different processes do not overlap, and the file has its full length
 * before the second process opens it, so no process writes what another one has written, pages of a file system that
 * caches them (NFS) included.
 *
 * A checksum is that of the whole tensor, as if one process had made it. Of tensors that all have, each makes it, and
 * they compare it. Of shares, XXH3 reads the bytes in order, and shares lie in one order of ranks in all tensors, so
 * states of the hash pass along that chain, a few tensors at a time: while a process works on some, the one before it
 * is at the next ones. */
#include <limits.h>
#include <stdio.h>

#include "src/base/xxh3.h"
#include "src/group/agreement.h"
#include "src/io/tensors.h"

enum {
    AT_ONCE = 32,   /* tensors whose states pass together */
    PIECE = 1 << 16 /* bytes that are read from a file at a time */
};

/* ---- shares ------------------------------------------------------------------------------------------------------ */

/* Elements of a tensor that this process has. */
static void own_share(const tow_group *group, tow_type type, int64_t *first, int64_t *n)
{
    *first = 0;
    *n = tow_type_element_count(type);
    if (group) tow_group_share(tow_group_rank(group), tow_group_count(group), *n, first, n);
}

tow_status tow_tensors_add_share(tow_tensors *tensors, const char *name, tow_type type, const tow_group *group,
                                 tow_array *array)
{
    int64_t first, n;
    bool duplicate;
    tow_array *whole = NULL;
    tow_status status = TOW_OK;
    if (!tensors) return tow__missing(NULL, __func__, "a set of tensors");
    if (!name || !array) return tow__missing(tensors->ctx, __func__, "a name and an array");
    if (!tow__type_valid(type))
        return tow__fail(tensors->ctx, TOW_INVALID_ARGUMENT, "%.200s: expected the type of a tensor, found %s", name,
                         tow__type_name(type).text);
    own_share(group, type, &first, &n);
    const tow_type found = tow_array_type(array), expected = tow_make_type(type.dtype, 1, &n);
    if (!tow_type_equal(found, expected))
        return tow__fail(tensors->ctx, TOW_TYPE_MISMATCH,
                         "%.200s: expected %s, the share of rank %d of %d in %s, found %s", name,
                         tow__type_name(expected).text, tow_group_rank(group), tow_group_count(group),
                         tow__type_name(type).text, tow__type_name(found).text);
    if (tow_group_count(group) == 1) {
        TRY(tow__array_view(tensors->ctx, array, 0, type, &whole));
        TRY(tow_tensors_add(tensors, name, whole));
    } else {
        if (strcmp(name, "__metadata__") == 0) return tow_tensors_add(tensors, name, array); /* for its message */
        TRY(tow__tensors_append(tensors, name, type, &duplicate));
        if (duplicate) return tow_tensors_add(tensors, name, array);
        tow__tensor *tensor = &tensors->items[tensors->count - 1];
        tensor->array = tow_array_retain(array);
        tensor->is_share = true;
    }
done:
    tow_array_release(whole);
    return status;
}

tow_status tow_tensors_get_share(const tow_tensors *tensors, const char *name, const tow_group *group,
                                 tow_array **array)
{
    if (array) *array = NULL;
    if (!tensors || !name || !array)
        return tow__missing(tensors ? tensors->ctx : NULL, __func__, "tensors, a name and a place for the array");
    const ptrdiff_t index = tow__tensors_lookup(tensors, name);
    int64_t first, n;
    tow_status status = TOW_OK;
    if (index < 0) return tow_tensors_get(tensors, name, array); /* for its message */
    const tow__tensor *tensor = &tensors->items[index];
    if (tensor->is_share) {
        *array = tow_array_retain(tensor->array);
        return TOW_OK;
    }
    TRY(tow__tensors_known(tensors, (size_t)index));
    own_share(group, tensor->type, &first, &n);
    TRY(tow_array_create(tensors->ctx, tow_make_type(tensor->type.dtype, 1, &n), array));
    TRY(tow__tensors_read_elements(tensors, (size_t)index, first, n, tow_array_data(*array)));
done:
    if (status) {
        tow_array_release(*array);
        *array = NULL;
    }
    return status;
}

/* ---- checksums --------------------------------------------------------------------------------------------------- */

/* Adds this process's bytes of a tensor to the state of its hash. */
typedef tow_status (*add_bytes)(const tow_group *group, const tow_tensors *tensors, size_t index, XXH3_state_t *state);

/* States that come from another process know its addresses. */
static void adopt(XXH3_state_t *state)
{
    XXH3_state_t own;
    XXH3_64bits_reset(&own);
    state->extSecret = own.extSecret;
}

/* Tensors [begin, begin + n): their states pass through this process. The first error is kept, and the states go on. */
static tow_status pass_states(tow__share_chain *chain, const tow_tensors *t, size_t begin, size_t n, add_bytes add,
                              XXH3_state_t *states, uint64_t *sums, tow_status *error)
{
    tow_status status = TOW_OK;
    for (size_t i = 0; i < n; i++) XXH3_64bits_reset(&states[i]);
    TRY(tow__share_chain_receive(chain, states, n * sizeof *states));
    for (size_t i = 0; i < n; i++) {
        adopt(&states[i]);
        if (!*error) *error = add(chain->group, t, begin + i, &states[i]);
        sums[begin + i] = XXH3_64bits_digest(&states[i]);
    }
    TRY(tow__share_chain_send(chain, states, n * sizeof *states));
done:
    return status;
}

/* The checksums of all tensors, in all processes. */
static tow_status make_sums(tow_group *group, const tow_tensors *t, add_bytes add, uint64_t *sums)
{
    tow__share_chain chain = {0};
    XXH3_state_t *states = tow__alloc_aligned(t->ctx, AT_ONCE * sizeof *states);
    tow_status status = states ? TOW_OK : TOW_OUT_OF_MEMORY, error = TOW_OK;
    if (!status) status = tow__share_chain_create(t->ctx, group, "checksums of a file", &chain);
    TRY(tow__group_agree(t->ctx, group, status));
    for (size_t i = 0; i < t->count; i += AT_ONCE)
        TRY(pass_states(&chain, t, i, t->count - i < AT_ONCE ? t->count - i : AT_ONCE, add, states, sums, &error));
    TRY(tow__group_agree(t->ctx, group, error));
    TRY(tow__group_send_to_all(group, chain.last, sums, t->count * sizeof *sums, "checksums of a file"));
done:
    tow__share_chain_free(&chain);
    if (states) tow__free_aligned(t->ctx, states, AT_ONCE * sizeof *states);
    return status;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* The place and the bytes of this process's share of a tensor, `at` in its data. */
static tow_status share_data(const tow_group *group, const tow_tensors *t, size_t index, uint64_t *at,
                             const char **data, size_t *bytes)
{
    const tow__tensor *tensor = &t->items[index];
    const size_t size = tow_dtype_size(tensor->type.dtype);
    int64_t first, n;
    if (!tensor->is_share) {
        const tow_status status = tow__tensors_load(t, index);
        if (status) return status;
    }
    own_share(group, tensor->type, &first, &n);
    *at = (uint64_t)first * size;
    *bytes = (size_t)n * size;
    *data = (const char *)tow_array_data(tensor->array) + (tensor->is_share ? 0 : (size_t)first * size);
    return TOW_OK;
}

/* Nothing of tensors that all have, whose checksums are there. */
static tow_status add_share(const tow_group *group, const tow_tensors *t, size_t index, XXH3_state_t *state)
{
    uint64_t at;
    const char *data;
    size_t bytes;
    if (!t->items[index].is_share) return TOW_OK;
    const tow_status status = share_data(group, t, index, &at, &data, &bytes);
    if (!status && bytes > 0) XXH3_64bits_update(state, data, bytes);
    return status;
}

/* The checksums of tensors that this process has whole; of shares 0. */
static tow_status sum_wholes(const tow_tensors *t, uint64_t *sums)
{
    tow_status status = TOW_OK;
    for (size_t i = 0; i < t->count; i++) {
        const tow__tensor *tensor = &t->items[i];
        sums[i] = 0;
        if (tensor->is_share) continue;
        TRY(tow__tensors_load(t, i));
        sums[i] = XXH3_64bits(tow_array_data(tensor->array), tow_type_bytes(tensor->type));
    }
done:
    return status;
}

static tow_status compare_with(const tow_group *group, const tow_tensors *t, const uint64_t *own, const uint64_t *first)
{
    for (size_t i = 0; i < t->count; i++)
        if (own[i] != first[i])
            return tow__fail(
                t->ctx, TOW_INVALID_ARGUMENT,
                "%.200s: expected the values that rank 0 (%s) has, found others; the processes write parts "
                "of what they have in common, and must have it with the same bits",
                t->items[i].name, group->hosts[0]);
    return TOW_OK;
}

/* Tensors that all processes have whole must be the same everywhere, as each process writes a part of them. */
static tow_status compare_wholes(tow_group *group, const tow_tensors *t, uint64_t *sums)
{
    const size_t n = t->count;
    uint64_t *first = tow__alloc(t->ctx, n + 1, sizeof *first);
    tow_status status = first ? sum_wholes(t, sums) : TOW_OUT_OF_MEMORY;
    TRY(tow__group_agree(t->ctx, group, status));
    memcpy(first, sums, n * sizeof *first);
    TRY(tow__group_send_to_all(group, 0, first, n * sizeof *first, "checksums of a file"));
    TRY(tow__group_agree(t->ctx, group, compare_with(group, t, sums, first)));
done:
    if (first) tow__free(t->ctx, first, n + 1, sizeof *first);
    return status;
}

/* The file that rank 0 has opened, as it tells the others. */
typedef struct opened {
    uint64_t begin, size; /* of the data, of the file */
    char temporary[PATH_MAX];
} opened;

/* The processes must write the same file: name, metadata, names and types of tensors. */
static tow_status compare_sets(tow_group *group, const char *path, const tow_tensors *t, const tow__string *header)
{
    const size_t n = t->n_metadata + 2;
    char digest[17];
    tow_group_fact *facts = tow__alloc(t->ctx, n, sizeof *facts);
    tow_status status = facts ? TOW_OK : TOW_OUT_OF_MEMORY;
    TRY(tow__group_agree(t->ctx, group, status));
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)XXH3_64bits(header->text, header->length));
    facts[0] = (tow_group_fact){"file", path};
    for (size_t i = 0; i < t->n_metadata; i++)
        facts[1 + i] = (tow_group_fact){t->metadata[i].key, t->metadata[i].text ? t->metadata[i].text : ""};
    facts[n - 1] = (tow_group_fact){"digest of names and types in the file", digest};
    TRY(tow_group_check_same(group, n, facts));
done:
    if (facts) tow__free(t->ctx, facts, n, sizeof *facts);
    return status;
}

/* Rank 0: the temporary file with its header, in its full length. */
static tow_status open_file(const tow__tensor_writer *w, const char *path, tow__output_file *file, opened *o)
{
    tow_status status = TOW_OK;
    tow__string header;
    tow__string_init(&header, w->tensors->ctx);
    TRY(tow__tensor_writer_header(w, path, &header));
    TRY(tow__output_open(w->tensors->ctx, path, file));
    if (!file->temporary)
        TRY(tow__fail(w->tensors->ctx, TOW_UNSUPPORTED,
                      "%s: expected a file that several processes can write, found a device or pipe; write a file",
                      path));
    const uint64_t length = header.length;
    o->begin = sizeof length + length;
    o->size = o->begin;
    for (size_t i = 0; i < w->end; i++) o->size += tow_type_bytes(w->tensors->items[i].type);
    if (strlen(file->temporary) >= sizeof o->temporary)
        TRY(tow__fail(w->tensors->ctx, TOW_INVALID_ARGUMENT, "%s: expected a path of less than %d bytes", path,
                      PATH_MAX));
    memcpy(o->temporary, file->temporary, strlen(file->temporary) + 1);
    TRY(tow__output_resize(file, o->size));
    TRY(tow__output_write_at(file, 0, &length, sizeof length));
    TRY(tow__output_write_at(file, sizeof length, header.text, header.length));
done:
    tow__string_free(&header);
    return status;
}

static tow_status write_shares(const tow_group *group, const tow__tensor_writer *w, const opened *o,
                               tow__output_file *file)
{
    uint64_t begin = o->begin;
    tow_status status = TOW_OK;
    for (size_t size = 0, i = w->first; tow__tensor_writer_next(w, &size, &i); i++) {
        uint64_t at;
        const char *data;
        size_t bytes;
        TRY(share_data(group, w->tensors, i, &at, &data, &bytes));
        TRY(tow__output_write_at(file, begin + at, data, bytes));
        begin += tow_type_bytes(w->tensors->items[i].type);
    }
    TRY(tow__output_sync(file));
done:
    return status;
}

/* The checksums, and proof that all processes write the same. */
static tow_status prepare(tow_group *group, const char *path, tow__tensor_writer *w)
{
    const tow_tensors *t = w->tensors;
    tow__string header;
    tow__string_init(&header, t->ctx);
    tow_status status = tow__safetensors_check(path, t);
    uint64_t *wholes = tow__alloc(t->ctx, t->count + 1, sizeof *wholes);
    if (!status && !(w->checksums = tow__alloc(t->ctx, t->count, sizeof *w->checksums))) status = TOW_OUT_OF_MEMORY;
    if (!status && !wholes) status = TOW_OUT_OF_MEMORY;
    if (!status) status = tow__tensor_writer_header(w, path, &header);
    TRY(tow__group_agree(t->ctx, group, status));
    TRY(compare_sets(group, path, t, &header));
    TRY(compare_wholes(group, t, wholes));
    TRY(make_sums(group, t, add_share, w->checksums));
    for (size_t i = 0; i < t->count; i++)
        if (!t->items[i].is_share) w->checksums[i] = wholes[i];
done:
    if (wholes) tow__free(t->ctx, wholes, t->count + 1, sizeof *wholes);
    tow__string_free(&header);
    return status;
}

static tow_status write_together(tow_group *group, const char *path, const tow_tensors *tensors)
{
    tow__tensor_writer w = {.tensors = tensors, .end = tensors->count};
    tow__output_file file = {.fd = -1};
    tow_context *ctx = tensors->ctx;
    const bool first = tow_group_rank(group) == 0;
    tow_status status = TOW_OK;
    opened *o = tow__alloc(ctx, 1, sizeof *o);
    TRY(tow__group_agree(ctx, group, o ? TOW_OK : TOW_OUT_OF_MEMORY));
    TRY(prepare(group, path, &w));
    TRY(tow__group_agree(ctx, group, first ? open_file(&w, path, &file, o) : TOW_OK));
    TRY(tow__group_send_to_all(group, 0, o, sizeof *o, "a file that is written"));
    if (!first) status = tow__output_join(ctx, path, o->temporary, o->size, &file);
    if (!status) status = write_shares(group, &w, o, &file);
    TRY(tow__group_agree(ctx, group, status));
    TRY(tow__group_agree(ctx, group, first ? tow__output_commit(&file) : TOW_OK));
done:
    tow__output_close(&file);
    tow__tensor_writer_free(&w);
    if (o) tow__free(ctx, o, 1, sizeof *o);
    return status;
}

tow_status tow_safetensors_write_all(tow_group *group, const char *path, const tow_tensors *tensors)
{
    if (!tensors) return tow__missing(NULL, __func__, "a set of tensors");
    if (!path) return tow__missing(tensors->ctx, __func__, "the path of a file to write");
    return tow_group_count(group) == 1 ? tow_safetensors_write(path, tensors) : write_together(group, path, tensors);
}

/* ---- checking ---------------------------------------------------------------------------------------------------- */

/* Has the file of a tensor what the checksum is of? Sets whose files are closed were checked when they were read. */
static bool is_in_file(const tow_tensors *t, size_t index)
{
    const tow__tensor *tensor = &t->items[index];
    return tensor->has_checksum && tensor->file < t->n_files &&
           (t->files[tensor->file].mapping || t->files[tensor->file].input.fd >= 0);
}

/* Bytes as the file has them, a piece at a time. */
static tow_status add_stored(const tow_group *group, const tow_tensors *t, size_t index, XXH3_state_t *state)
{
    const tow__tensor *tensor = &t->items[index];
    const size_t size = tow_dtype_size(tensor->type.dtype) / (tensor->stored == TOW__STORED_PLAIN ? 1 : 2);
    int64_t first, n;
    if (!is_in_file(t, index)) return TOW_OK;
    own_share(group, tensor->type, &first, &n);
    const uint64_t begin = (uint64_t)first * size, end = begin + (uint64_t)n * size;
    for (uint64_t at = begin; at < end; at += PIECE) {
        char piece[PIECE];
        const size_t bytes = end - at < PIECE ? (size_t)(end - at) : PIECE;
        const tow_status status = tow__tensors_read_bytes(t, index, at, piece, bytes);
        if (status) return status;
        XXH3_64bits_update(state, piece, bytes);
    }
    return TOW_OK;
}

tow_status tow_safetensors_check_all(tow_group *group, const tow_tensors *tensors)
{
    if (!tensors) return tow__missing(NULL, __func__, "a set of tensors");
    uint64_t *sums = tow__alloc(tensors->ctx, tensors->count, sizeof *sums);
    tow_status status = sums ? TOW_OK : TOW_OUT_OF_MEMORY;
    TRY(tow__group_agree(tensors->ctx, group, status));
    TRY(make_sums(group, tensors, add_stored, sums));
    for (size_t i = 0; i < tensors->count; i++)
        if (is_in_file(tensors, i)) TRY(tow__tensors_check_sum(tensors, i, sums[i]));
done:
    if (sums) tow__free(tensors->ctx, sums, tensors->count, sizeof *sums);
    return status;
}
