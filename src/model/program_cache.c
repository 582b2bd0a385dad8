/* A cache of programs by the types of their inputs. Entries stand in the order of their last use, the latest first, so
 * that the last one is the one to free. There are few of them: a search walks the list. */
#include "src/base/counts.h"
#include "src/base/options.h"
#include "tow/model.h"

enum {
    LARGEST_LIMIT = 4096 /* a search walks them all */
};

struct tow_program_cache {
    tow_context *ctx;
    tow_program_cache_options options;
    tow_cached_program *entries; /* [limit + 1]: one more is made before the last one goes */
    size_t count, made;
};

tow_status tow_program_cache_create(tow_context *context, const tow_program_cache_options *options,
                                    tow_program_cache **cache)
{
    if (cache) *cache = NULL;
    tow_program_cache_options own;
    if (context && !TOW__OPTIONS_TAKE(context, tow_program_cache_options, options, &own)) return TOW_INVALID_ARGUMENT;
    if (!context || !options || !options->make || !cache)
        return tow__missing(context, __func__, "a context, options with .make and a place for the cache");
    if (options->limit > LARGEST_LIMIT)
        return tow__fail(context, TOW_INVALID_ARGUMENT,
                         "tow_program_cache_create: expected a .limit of 0 to %d programs, found %zu", LARGEST_LIMIT,
                         options->limit);
    tow_status status = tow__check_count(context, "tow_program_cache_create", ".n_types", options->n_types);
    if (status) return status;
    tow_program_cache *made = tow__alloc(context, 1, sizeof *made);
    if (!made) return TOW_OUT_OF_MEMORY;
    made->ctx = context;
    made->options = *options;
    if (made->options.limit == 0) made->options.limit = 8;
    made->entries = tow__alloc(context, made->options.limit + 1, sizeof *made->entries);
    if (!made->entries) {
        tow__free(context, made, 1, sizeof *made);
        return TOW_OUT_OF_MEMORY;
    }
    *cache = made;
    return TOW_OK;
}

static void free_types(tow_program_cache *cache, const tow_type *types)
{
    if (types) tow__free(cache->ctx, (tow_type *)types, cache->options.n_types + 1, sizeof *types);
}

static void free_entry(tow_program_cache *cache, const tow_cached_program *entry)
{
    tow_program_free(entry->program);
    if (entry->data && cache->options.free_data) cache->options.free_data(entry->data, cache->options.user);
    free_types(cache, entry->types);
}

void tow_program_cache_free(tow_program_cache *cache)
{
    if (!cache) return;
    for (size_t i = 0; i < cache->count; i++) free_entry(cache, &cache->entries[i]);
    tow__free(cache->ctx, cache->entries, cache->options.limit + 1, sizeof *cache->entries);
    tow__free(cache->ctx, cache, 1, sizeof *cache);
}

static bool same_types(size_t n, const tow_type *a, const tow_type *b)
{
    for (size_t i = 0; i < n; i++)
        if (!tow_type_equal(a[i], b[i])) return false;
    return true;
}

/* Puts an entry in front of the first `n`. */
static void move_to_front(tow_program_cache *cache, size_t n, tow_cached_program entry)
{
    memmove(cache->entries + 1, cache->entries, n * sizeof entry);
    cache->entries[0] = entry;
}

/* A new entry in front. */
static tow_status add(tow_program_cache *cache, const tow_type *types)
{
    const size_t n = cache->options.n_types;
    tow_type *copy = tow__alloc(cache->ctx, n + 1, sizeof *copy);
    if (!copy) return TOW_OUT_OF_MEMORY;
    if (n) memcpy(copy, types, n * sizeof *copy);
    tow_cached_program entry = {.types = copy};
    tow_status status = cache->options.make(copy, &entry.program, &entry.data, cache->options.user);
    if (status != TOW_OK) {
        free_types(cache, copy);
        return status;
    }
    move_to_front(cache, cache->count++, entry);
    cache->made++;
    if (cache->count > cache->options.limit) free_entry(cache, &cache->entries[--cache->count]);
    return TOW_OK;
}

tow_status tow_program_cache_get(tow_program_cache *cache, const tow_type *types, tow_cached_program *program)
{
    if (program) *program = (tow_cached_program){0};
    if (!cache || !program || (!types && cache->options.n_types > 0))
        return tow__missing(cache ? cache->ctx : NULL, __func__, "a cache, types and a place for the program");
    size_t i = 0;
    while (i < cache->count && !same_types(cache->options.n_types, cache->entries[i].types, types)) i++;
    if (i < cache->count) {
        move_to_front(cache, i, cache->entries[i]);
    } else {
        tow_status status = add(cache, types);
        if (status != TOW_OK) return status;
    }
    *program = cache->entries[0];
    return TOW_OK;
}

size_t tow_program_cache_count(const tow_program_cache *cache) { return cache ? cache->count : 0; }
tow_cached_program tow_program_cache_at(const tow_program_cache *cache, size_t index)
{
    return cache && index < cache->count ? cache->entries[index] : (tow_cached_program){0};
}
size_t tow_program_cache_made_count(const tow_program_cache *cache) { return cache ? cache->made : 0; }
