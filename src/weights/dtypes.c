/* Rules of element types from the tensors of a file (tow_weight_mapping_dtypes): first a rule for each parameter, then
 * one for those that differ in numbers of layers alone and have one type. */
#include <stdlib.h>

#include "src/base/dtypes.h"
#include "src/base/options.h"
#include "src/weights/mapping.h"

struct tow_weight_dtypes {
    tow_context *ctx;
    tow__arena memory; /* of patterns */
    tow_dtype_rule *rules;
    size_t count, capacity; /* the last one of the list has no pattern */
    bool by_layer;
};

/* A parameter that the file has. */
typedef struct entry {
    const char *path, *pattern; /* the same with "*" for numbers */
    tow_dtype dtype;
    bool mixed; /* another one of this pattern has another type */
    bool later; /* one of this pattern came before */
} entry;

typedef struct entries {
    entry *items;
    size_t count, capacity;
} entries;

/* The type of parameters that hold the tensor as it is; f32 for what is decoded, as blocks without rows are. */
static tow_dtype dtype_of(const tow_tensors *tensors, size_t index)
{
    const tow_dtype dtype = tow_tensors_stored_dtype(tensors, index);
    const bool blocks = tow__is_blocks(dtype) && tow_tensors_type(tensors, index).rank > 1;
    return tow_dtype_is_float(dtype) || blocks ? dtype : TOW_F32;
}

/* The prefix and the pattern of a rule with its numbers, as a text that lives in the arena. NULL: no memory. */
static const char *expand(tow_weight_dtypes *d, const char *prefix, const char *pattern, const tow__numbers *numbers)
{
    tow__string text;
    tow__string_init(&text, d->ctx);
    tow__string_add(&text, "%s", prefix);
    tow__pattern_expand(pattern, numbers, &text);
    const char *copy = text.failed ? NULL : tow__arena_string(&d->memory, text.text);
    tow__string_free(&text);
    return copy;
}

static tow_status add_entry(tow_weight_dtypes *d, entries *list, const char *prefix, const char *pattern,
                            const tow__numbers *numbers, tow_dtype dtype)
{
    tow__numbers stars = *numbers;
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity ? 2 * list->capacity : 64;
        entry *items = tow__grow(d->ctx, list->items, list->capacity, capacity, sizeof *items);
        if (!items) return TOW_OUT_OF_MEMORY;
        list->items = items;
        list->capacity = capacity;
    }
    for (int i = 0; i < stars.n; i++) stars.digits[i] = "*", stars.lengths[i] = 1;
    entry *e = &list->items[list->count++];
    *e = (entry){
        .path = expand(d, prefix, pattern, numbers), .pattern = expand(d, prefix, pattern, &stars), .dtype = dtype};
    return e->path && e->pattern ? TOW_OK : TOW_OUT_OF_MEMORY;
}

static tow_status list_entries(tow_weight_dtypes *d, const tow_weight_mapping *mapping, const tow_tensors *tensors,
                               const char *prefix, entries *list)
{
    tow_status status = TOW_OK;
    for (size_t i = 0; i < tow_tensors_count(tensors); i++) {
        tow__numbers numbers;
        const tow__tensor_rule *rule = tow__mapping_rule(mapping, tow_tensors_name(tensors, i), &numbers);
        const int parts = rule && rule->kind == TOW__RULE_MAP ? rule->n_ours : 0;
        for (int p = 0; p < parts; p++) TRY(add_entry(d, list, prefix, rule->ours[p], &numbers, dtype_of(tensors, i)));
    }
done:
    return status;
}

/* By pattern, those of one in the order of the list. */
static int by_pattern(const void *a, const void *b)
{
    const entry *x = *(entry *const *)a, *y = *(entry *const *)b;
    const int order = strcmp(x->pattern, y->pattern);
    return order != 0 ? order : (x > y) - (x < y);
}

/* Compares entries [0, n), which have one pattern. */
static void compare_alike(entry **alike, size_t n)
{
    bool mixed = false;
    for (size_t i = 1; i < n; i++) mixed = mixed || alike[i]->dtype != alike[0]->dtype;
    for (size_t i = 0; i < n; i++) alike[i]->mixed = mixed, alike[i]->later = i > 0;
}

static tow_status compare(const tow_weight_dtypes *d, const entries *list)
{
    entry **sorted = tow__alloc(d->ctx, list->count + 1, sizeof *sorted);
    if (!sorted) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < list->count; i++) sorted[i] = &list->items[i];
    qsort(sorted, list->count, sizeof *sorted, by_pattern);
    for (size_t begin = 0, end; begin < list->count; begin = end) {
        for (end = begin + 1; end < list->count && strcmp(sorted[end]->pattern, sorted[begin]->pattern) == 0;) end++;
        compare_alike(sorted + begin, end - begin);
    }
    tow__free(d->ctx, sorted, list->count + 1, sizeof *sorted);
    return TOW_OK;
}

static tow_status make_rules(tow_weight_dtypes *d, const entries *list)
{
    d->capacity = list->count + 1;
    d->rules = tow__alloc(d->ctx, d->capacity, sizeof *d->rules);
    if (!d->rules) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < list->count; i++) {
        const entry *e = &list->items[i];
        if (!e->mixed && e->later) continue;
        d->rules[d->count++] = (tow_dtype_rule){e->mixed ? e->path : e->pattern, e->dtype};
        d->by_layer = d->by_layer || e->mixed;
    }
    d->rules[d->count] = (tow_dtype_rule){.pattern = NULL};
    return TOW_OK;
}

tow_status tow_weight_mapping_dtypes(const tow_weight_mapping *mapping, const char *path,
                                     const tow_weight_mapping_options *options, tow_weight_dtypes **dtypes)
{
    if (dtypes) *dtypes = NULL;
    if (!mapping || !path || !dtypes)
        return tow__missing(mapping ? mapping->ctx : NULL, __func__, "a mapping, a path and a place for the rules");
    tow_context *ctx = mapping->ctx;
    tow_weight_mapping_options own;
    if (!TOW__OPTIONS_TAKE(ctx, tow_weight_mapping_options, options, &own)) return TOW_INVALID_ARGUMENT;
    tow_weight_dtypes *d = tow__alloc(ctx, 1, sizeof *d);
    tow_tensors *tensors = NULL;
    entries list = {.items = NULL};
    tow_status status = TOW_OK;
    if (!d) return TOW_OUT_OF_MEMORY;
    *d = (tow_weight_dtypes){.ctx = ctx};
    tow__arena_init(&d->memory, ctx);
    TRY(tow__weights_open(ctx, path, &tensors));
    TRY(list_entries(d, mapping, tensors, options && options->prefix ? options->prefix : "", &list));
    TRY(compare(d, &list));
    TRY(make_rules(d, &list));
    *dtypes = d;
done:
    if (list.items) tow__free(ctx, list.items, list.capacity, sizeof *list.items);
    tow_tensors_free(tensors);
    if (status != TOW_OK) tow_weight_dtypes_free(d);
    return status;
}

const tow_dtype_rule *tow_weight_dtypes_rules(const tow_weight_dtypes *dtypes) { return dtypes ? dtypes->rules : NULL; }

bool tow_weight_dtypes_by_layer(const tow_weight_dtypes *dtypes) { return dtypes && dtypes->by_layer; }

void tow_weight_dtypes_free(tow_weight_dtypes *dtypes)
{
    if (!dtypes) return;
    tow_context *ctx = dtypes->ctx;
    if (dtypes->rules) tow__free(ctx, dtypes->rules, dtypes->capacity, sizeof *dtypes->rules);
    tow__arena_free(&dtypes->memory);
    tow__free(ctx, dtypes, 1, sizeof *dtypes);
}
