/* Tables of parameters and variables: a line for each entry, or one for each subtree, and totals. */
#include <inttypes.h>

#include "src/base/options.h"
#include "src/params/params.h"

typedef struct table {
    tow__string text;
    int width; /* of the column of paths */
} table;

typedef struct sum {
    int64_t entries, count;
    size_t bytes;
} sum;

static void widen(table *t, size_t length)
{
    if ((int)length > t->width) t->width = (int)length;
}

static void add(sum *s, tow_type type)
{
    s->entries++;
    s->count += tow_type_element_count(type) * tow_dtype_numbers(type.dtype);
    s->bytes += tow_type_bytes(type);
}

static void join(sum *all, sum part)
{
    all->entries += part.entries;
    all->count += part.count;
    all->bytes += part.bytes;
}

/* ---- a line for each entry --------------------------------------------------------------------------------------- */

static void add_head(table *t)
{
    tow__string_add(&t->text, "%-*s  %-20s %-9s %14s %16s\n", t->width, "path", "type", "kind", "count", "bytes");
}

static void add_sum(table *t, const char *what, sum s)
{
    tow__string_add(&t->text, "%-*s  %-30s %14" PRId64 " %16zu\n", t->width, what, "", s.count, s.bytes);
}

/* A line for every entry whose path begins with `collection` (NULL: all); `prefix` is put before the paths. */
static sum add_entries(table *t, const tow_params *params, const char *prefix, const char *collection)
{
    sum s = {0};
    size_t length = collection ? strlen(collection) : 0;
    for (uint32_t i = 0; i < params->names.count; i++) {
        const char *path = params->names.names[i];
        tow_type type = params->types[i];
        if (collection && (strncmp(path, collection, length) != 0 || path[length] != '/')) continue;
        tow__string_add(&t->text, "%s%-*s  %-20s %-9s %14" PRId64 " %16zu\n", prefix, t->width - (int)strlen(prefix),
                        path, tow__type_name(type).text, collection ? "" : tow_param_kind_name(params->kinds[i]),
                        tow_type_element_count(type) * tow_dtype_numbers(type.dtype), tow_type_bytes(type));
        add(&s, type);
    }
    return s;
}

/* True if no earlier entry has the collection of entry i. */
static bool begins_collection(const tow_params *state, uint32_t i)
{
    const char *path = state->names.names[i];
    size_t length = strcspn(path, "/") + 1;
    for (uint32_t j = 0; j < i; j++)
        if (strncmp(state->names.names[j], path, length) == 0) return false;
    return true;
}

/* The collections of `state`, each with a total, which `all` gets as well. */
static void add_collections(table *t, const tow_params *state, sum *all)
{
    for (uint32_t i = 0; i < state->names.count; i++) {
        if (!begins_collection(state, i)) continue;
        tow__string what;
        tow__string_init(&what, state->ctx);
        tow__string_add(&what, "total %.*s", (int)strcspn(state->names.names[i], "/"), state->names.names[i]);
        sum s = {0};
        if (what.text) s = add_entries(t, state, "", what.text + strlen("total "));
        if (what.text) add_sum(t, what.text, s);
        t->text.failed |= !what.text;
        tow__string_free(&what);
        join(all, s);
    }
}

static const char prefix[] = "params/";

static void add_all(table *t, const tow_params *params, const tow_params *state)
{
    t->width = state ? 12 : 5;
    for (uint32_t i = 0; i < params->names.count; i++)
        widen(t, (state ? strlen(prefix) : 0) + strlen(params->names.names[i]));
    for (uint32_t i = 0; state && i < state->names.count; i++)
        widen(t, sizeof "total " + strlen(state->names.names[i]));
    add_head(t);
    sum all = add_entries(t, params, state ? prefix : "", NULL);
    if (state) {
        add_sum(t, "total params", all);
        add_collections(t, state, &all);
    }
    add_sum(t, "total", all);
}

/* ---- a line for each subtree ------------------------------------------------------------------------------------- */

/* Length of the first `depth` components. */
static size_t subtree_length(const char *path, int depth)
{
    size_t length = 0;
    for (int i = 0; i < depth && path[length]; i++) {
        if (i > 0) length++; /* the '/' */
        length += strcspn(path + length, "/");
    }
    return length;
}

/* No entry before i is of the same subtree. */
static bool begins_subtree(const tow_params *p, uint32_t i, int depth)
{
    const char *path = p->names.names[i];
    const size_t length = subtree_length(path, depth);
    for (uint32_t k = 0; k < i; k++)
        if (subtree_length(p->names.names[k], depth) == length && strncmp(p->names.names[k], path, length) == 0)
            return false;
    return true;
}

static void add_subtree_line(table *t, const char *before, const char *path, size_t length, sum s)
{
    tow__string_add(&t->text, "%s%-*.*s  %8" PRId64 " %14" PRId64 " %16zu\n", before, t->width - (int)strlen(before),
                    (int)length, path, s.entries, s.count, s.bytes);
}

/* The subtrees of one list; returns the sum of all. */
static sum add_subtrees(table *t, const char *before, const tow_params *p, int depth)
{
    sum all = {0};
    for (uint32_t first = 0; first < p->names.count; first++) {
        if (!begins_subtree(p, first, depth)) continue;
        const char *path = p->names.names[first];
        const size_t length = subtree_length(path, depth);
        sum s = {0};
        for (uint32_t i = first; i < p->names.count; i++)
            if (subtree_length(p->names.names[i], depth) == length && strncmp(p->names.names[i], path, length) == 0)
                add(&s, p->types[i]);
        add_subtree_line(t, before, path, length, s);
        join(&all, s);
    }
    return all;
}

static void widen_to_subtrees(table *t, size_t before, const tow_params *p, int depth)
{
    for (uint32_t i = 0; i < p->names.count; i++) widen(t, before + subtree_length(p->names.names[i], depth));
}

static void add_all_subtrees(table *t, const tow_params *params, const tow_params *state, int depth)
{
    const char *before = state ? prefix : "";
    t->width = 7;
    widen_to_subtrees(t, strlen(before), params, depth);
    if (state) widen_to_subtrees(t, 0, state, depth + 1);
    tow__string_add(&t->text, "%-*s  %8s %14s %16s\n", t->width, "subtree", "entries", "count", "bytes");
    sum all = add_subtrees(t, before, params, depth);
    if (state) join(&all, add_subtrees(t, "", state, depth + 1));
    add_subtree_line(t, "", "total", strlen("total"), all);
}

size_t tow_params_table(const tow_params *params, const tow_table_options *options, char *text, size_t size)
{
    tow_table_options own;
    if (size > 0) text[0] = '\0';
    if (!TOW__OPTIONS_TAKE(params->ctx, tow_table_options, options, &own)) return 0;
    const tow_params *state = options ? options->state : NULL;
    table t = {.width = 0};
    tow__string_init(&t.text, params->ctx);
    if (options && options->depth > 0)
        add_all_subtrees(&t, params, state, options->depth);
    else
        add_all(&t, params, state);
    return tow__string_hand_out(&t.text, text, size);
}
