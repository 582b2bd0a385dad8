/* Random keys of streams.
 *
 * A key is fold_in(root, d), d the first four bytes (big-endian) of SHA-1 over the names of the path one after the
 * other and the counter of the draw in minimal big-endian bytes: Flax's rule. The index of an iteration would run
 * together with digits beside it ("1", "11" and "11", "1" in nested scans), so a '/' is put there, whether the scan is
 * a loop or unrolled. Names of children follow each other without one, as in Flax. */
#include "src/scope/streams.h"

#include <inttypes.h>
#include <sha1.h>
#include <stdio.h>

#include "src/scope/lift.h"

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* The end of what was fed to the hash. */
typedef struct path_end {
    char last;   /* character; 0: none */
    bool number; /* it is the index of an iteration */
} path_end;

/* The layer that iteration `scope` is, with those above that it counts on; index[depth]: of loops. */
static int64_t layer_of(const tow_scope *scope, const int64_t *index)
{
    int64_t layer = 0;
    for (const tow_scope *s = scope; s && (s == scope || s->covered); s = s->parent)
        layer += s->first + s->stride * (s->iteration ? index[s->level->depth] : s->fixed);
    return layer;
}

/* Feeds the components of a path. */
static path_end hash_path(SHA1_CTX *sha, const tow_scope *scope, const int64_t *index)
{
    if (!scope->parent) return (path_end){0};
    path_end before = hash_path(sha, scope->parent, index);
    if (scope->flax_keys || scope->covered || scope->transparent) return before;
    char digits[24];
    const char *name = scope->name;
    bool number = tow__scope_is_iteration(scope);
    if (number) {
        snprintf(digits, sizeof digits, "%" PRId64, layer_of(scope, index));
        name = digits;
    }
    if ((number || before.number) && is_digit(before.last) && is_digit(name[0]))
        SHA1Update(sha, (const uint8_t *)"/", 1);
    SHA1Update(sha, (const uint8_t *)name, strlen(name));
    return (path_end){name[strlen(name) - 1], number};
}

/* The number that path and counter contribute. */
static uint32_t path_data(const tow_scope *scope, const int64_t *index, uint32_t counter)
{
    SHA1_CTX sha;
    SHA1Init(&sha);
    hash_path(&sha, scope, index);
    for (int shift = 24; shift >= 0; shift -= 8) {
        uint8_t byte = (uint8_t)(counter >> shift);
        if (counter >> shift) SHA1Update(&sha, &byte, 1);
    }
    uint8_t digest[SHA1_DIGEST_LENGTH];
    SHA1Final(digest, &sha);
    return (uint32_t)digest[0] << 24 | (uint32_t)digest[1] << 16 | (uint32_t)digest[2] << 8 | digest[3];
}

/* The stream's root key as the iterations with Flax's keys around `scope` have split it. */
static tow__key root_key(const tow_scope *scope, tow__key root, const int64_t *index)
{
    if (!scope->parent) return root;
    root = root_key(scope->parent, root, index);
    if (!scope->flax_keys) return root;
    int64_t i = scope->iteration ? index[scope->level->depth] : scope->fixed;
    return tow__key_fold_in(root, (uint32_t)((scope->first + scope->stride * i) / scope->unit));
}

tow__key tow__scope_key(const tow_scope *scope, tow__key root, const int64_t *index, uint32_t counter)
{
    return tow__key_fold_in(root_key(scope, root, index), path_data(scope, index, counter));
}

/* ---- random keys ------------------------------------------------------------------------------------------------- */

static size_t find_stream(const tow__model *m, const char *stream)
{
    size_t i = 0;
    while (i < m->n_streams && strcmp(m->streams[i], stream) != 0) ++i;
    return i;
}

static bool is_hidden_stream(const tow_scope *scope, const char *stream)
{
    tow__resolved resolved;
    return tow__resolve_stream(scope, stream, &resolved) && resolved.hidden;
}

bool tow_has_rng(const tow_scope *scope, const char *stream)
{
    if (!stream || is_hidden_stream(scope, stream)) return false;
    return scope->model->initializing || find_stream(scope->model, stream) < scope->model->n_streams;
}

/* fold_in(root, i), or -i in the condition of the while. */
static tow_value repeated_key(tow__repetition *repeated, tow_value root)
{
    repeated->used = true;
    return tow_random_fold_in(root,
                              tow_convert(repeated->negative ? tow_neg(repeated->index) : repeated->index, TOW_U32));
}

/* The stream's root key in the graph, split by the iterations with Flax's keys and those of whiles. */
static tow_value root_value(const tow_scope *scope, tow_value root)
{
    if (!scope->parent) return root;
    root = root_value(scope->parent, root);
    if (scope->transparent) return scope->repeated ? repeated_key(scope->repeated, root) : root;
    if (!scope->flax_keys) return root;
    const int64_t first = scope->first / scope->unit, stride = scope->stride / scope->unit;
    tow_trace *t = scope->model->trace;
    if (!scope->iteration)
        return tow_random_fold_in(root, tow_scalar(t, TOW_U32, (double)(first + stride * scope->fixed)));
    tow_value data = tow_convert(scope->level->index, TOW_U32);
    if (stride != 1) data = tow_mul_scalar(data, (double)stride);
    if (first != 0) data = tow_add_scalar(data, (double)first);
    return tow_random_fold_in(root, data);
}

/* path_data for every iteration of the scans around a resolved scope, looked up by their traced indices. */
static tow_value path_data_value(const tow_scope *scope, uint32_t counter)
{
    tow__model *m = scope->model;
    const tow__level *levels[TOW_MAX_RANK] = {0}; /* innermost first */
    int n = 0;
    int64_t rows = 1, index[TOW_MAX_RANK] = {0};
    for (const tow_scope *s = scope; s; s = s->parent) {
        if (!s->iteration || s->flax_keys) continue;
        levels[n++] = s->level;
        rows *= s->level->length;
    }
    uint32_t *table = tow__trace_alloc(m->trace, rows > 0 ? (size_t)rows : 1, sizeof *table);
    if (!table) return (tow_value){0};
    bool same = true;
    for (int64_t row = 0; row < rows; row++) {
        int64_t rest = row;
        for (int l = 0; l < n; l++) {
            index[levels[l]->depth] = rest % levels[l]->length;
            rest /= levels[l]->length;
        }
        table[row] = path_data(scope, index, counter);
        same = same && table[row] == table[0];
    }
    if (same) return tow_constant_data(m->trace, tow_make_type(TOW_U32, 0, NULL), table);
    tow_value row = levels[n - 1]->index;
    for (int l = n - 2; l >= 0; l--) row = tow_add(tow_mul_scalar(row, (double)levels[l]->length), levels[l]->index);
    return tow_gather(tow_constant_data(m->trace, tow_make_type(TOW_U32, 1, &rows), table), row);
}

tow_value tow_make_rng(tow_scope *scope, const char *stream)
{
    tow__model *m = scope->model;
    if (tow__scope_failed(scope)) return (tow_value){0};
    if (!stream) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "random keys: expected the name of a stream, found NULL; pass one");
        return (tow_value){0};
    }
    if (is_hidden_stream(scope, stream)) {
        tow_scope_fail(
            scope, TOW_NOT_FOUND,
            "needs random keys of stream \"%s\", which a rule of a transform around it hides; leave TOW_HIDDEN "
            "out, or set .deterministic",
            stream);
        return (tow_value){0};
    }
    if (m->initializing) return tow_full(m->trace, tow_make_type(TOW_U32, 1, (int64_t[]){2}), 0);
    size_t i = find_stream(m, stream);
    if (i == m->n_streams) {
        tow__string known;
        tow__string_init(&known, m->ctx);
        for (size_t k = 0; k < m->n_streams; k++) tow__string_add(&known, "%s\"%s\"", k ? ", " : "", m->streams[k]);
        tow_scope_fail(
            scope, TOW_NOT_FOUND,
            "needs random keys of stream \"%s\", the model was given %s; add it to tow_model_options.streams, or "
            "set .deterministic",
            stream, known.text ? known.text : "none");
        tow__string_free(&known);
        return (tow_value){0};
    }
    tow__resolved resolved;
    uint32_t counter = tow__scope_count(scope, stream);
    if (!counter || !tow__resolve_stream(scope, stream, &resolved)) return (tow_value){0};
    return tow_random_fold_in(root_value(resolved.scope, m->stream_keys[i]), path_data_value(resolved.scope, counter));
}
