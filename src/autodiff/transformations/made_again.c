/* The values of the forward pass that the backward pass makes again: what somebody could name, so that it is kept. */
#include "src/autodiff/transformations/residuals.h"
#include "src/graph/region.h"
#include "src/ops/table.h"

enum {
    DEEPEST = 64 /* regions in one another */
};

/* Values that cost nothing are no choice: constants, views, names. */
static bool counts(const tow__equation *e)
{
    return e->source.phase == TOW__RECOMPUTED && e->n_in > 0 && e->n_out > 0 && !e->primitive->view &&
           !e->primitive->region && e->primitive != &tow__name_p;
}

static bool is_listed(const tow__again_list *list, uint32_t number, const tow_primitive *made)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->keys[i].number == number && list->keys[i].made == made) return true;
    return false;
}

static bool extend(tow__again_list *list)
{
    if (list->n < list->capacity) return true;
    const size_t capacity = list->capacity ? 2 * list->capacity : 16;
    tow_residual *items = tow__arena_alloc(list->arena, capacity, sizeof *items);
    tow__residual_key *keys = tow__arena_alloc(list->arena, capacity, sizeof *keys);
    if (!items || !keys) return false;
    if (list->n) memcpy(items, list->items, list->n * sizeof *items);
    if (list->n) memcpy(keys, list->keys, list->n * sizeof *keys);
    list->items = items, list->keys = keys, list->capacity = capacity;
    return true;
}

int64_t tow__iterations_in(int64_t around, int64_t length)
{
    int64_t product;
    return __builtin_mul_overflow(around, length, &product) ? INT64_MAX : product;
}

static bool add(tow__again_list *list, const tow_graph *g, const tow__equation *e, int64_t iterations)
{
    const tow__reason *why = &e->source.why;
    tow__readers readers = {.arena = list->arena, .operands = list->operands};
    if (is_listed(list, why->number, e->primitive)) return true;
    if (!extend(list)) return false;
    for (uint32_t i = 0; i < e->n_out; i++) tow__find_value_readers(&readers, g, e->out[i]);
    tow_residual *item = &list->items[list->n];
    *item = (tow_residual){.type = g->vars[e->out[0]].type,
                           .kind = TOW_RESIDUAL_OUTPUT,
                           .what = e->primitive->name,
                           .here = e->source.here,
                           .scope = e->source.scope,
                           .line = why->line,
                           .iterations = iterations,
                           .policy = why->policy,
                           .verdict = why->verdict ? (tow_verdict)(why->verdict - 1) : TOW_PREFER_RECOMPUTE,
                           .readers = readers.items,
                           .n_readers = readers.n};
    for (uint32_t i = 0; i < e->n_out; i++) item->bytes += tow_type_bytes(g->vars[e->out[i]].type);
    if (__builtin_mul_overflow(item->bytes, (size_t)iterations, &item->bytes)) item->bytes = SIZE_MAX;
    if (list->price) item->seconds = (double)iterations * list->price->seconds(list->price, g, e);
    list->keys[list->n++] = (tow__residual_key){.number = why->number, .made = e->primitive, .row = item->type};
    return !readers.failed;
}

static bool walk(tow__again_list *list, const tow_graph *g, int64_t iterations, int depth)
{
    bool fine = true;
    for (uint32_t k = 0; k < g->n_equations && fine && depth < DEEPEST; k++) {
        const tow__equation *e = &g->equations[k];
        tow__region_form form;
        if (counts(e)) fine = add(list, g, e, iterations);
        if (!tow__region_of(e, &form)) continue;
        const int64_t times = form.repeats && form.length > 0 ? form.length : 1;
        for (uint32_t i = form.conditions; i < form.conditions + form.branches && fine; i++)
            fine =
                walk(list, tow__nested(e->primitive, e->params, i), tow__iterations_in(iterations, times), depth + 1);
    }
    return fine;
}

bool tow__find_made_again(tow__again_list *list, const tow_graph *backward) { return walk(list, backward, 1, 0); }
