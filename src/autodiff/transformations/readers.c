/* The operations of the backward pass that read a residual, looked for through regions and through moves of elements:
 * whoever keeps bytes for a reader wants to know which one computes with them. */
#include "src/autodiff/transformations/residuals.h"
#include "src/graph/region.h"
#include "src/ops/table.h"

enum {
    DEEPEST = 64 /* regions and moves in one another; readers behind more of them are not listed */
};

static bool same_text(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

static bool same_reader(const tow_residual_reader *a, const tow_residual_reader *b)
{
    return a->again == b->again && a->line == b->line && same_text(a->what, b->what) && same_text(a->rule, b->rule) &&
           same_text(a->here, b->here) && same_text(a->scope, b->scope);
}

static void add_reader(tow__readers *list, const tow__equation *e)
{
    const tow__reason *why = &e->source.why;
    const tow_residual_reader reader = {.what = e->primitive->name,
                                        .rule = why->rule ? why->rule->name : NULL,
                                        .here = e->source.here,
                                        .scope = e->source.scope,
                                        .line = why->line,
                                        .again = e->source.phase == TOW__RECOMPUTED};
    for (size_t i = 0; i < list->n; i++)
        if (same_reader(&list->items[i], &reader)) return;
    tow_residual_reader *grown = list->items;
    if (list->n == list->capacity) {
        const size_t capacity = list->capacity ? 2 * list->capacity : 8;
        grown = tow__arena_alloc(list->arena, capacity, sizeof *grown);
        if (grown && list->n) memcpy(grown, list->items, list->n * sizeof *grown);
        if (grown) list->capacity = capacity;
    }
    list->failed |= !grown;
    if (!grown) return;
    list->items = grown;
    list->items[list->n++] = reader;
}

/* Counts the operands that a value is, then lists them from the last one on. */
static void list_operands(const tow_graph *g, tow__operand_lists *lists)
{
    for (uint32_t k = 0; k < g->n_equations; k++)
        for (uint32_t i = 0; i < g->equations[k].n_in; i++) lists->first[g->equations[k].in[i]]++;
    for (uint32_t v = 0; v < g->n_vars; v++) lists->first[v + 1] += lists->first[v];
    for (uint32_t k = g->n_equations; k-- > 0;)
        for (uint32_t i = g->equations[k].n_in; i-- > 0;)
            lists->items[--lists->first[g->equations[k].in[i]]] = (tow__operand_place){k, i};
}

/* NULL: out of memory. */
static const tow__operand_lists *operands_of(tow__readers *list, const tow_graph *g)
{
    for (const tow__operand_lists *u = *list->operands; u; u = u->next)
        if (u->g == g) return u;
    size_t n = 0;
    for (uint32_t k = 0; k < g->n_equations; k++) n += g->equations[k].n_in;
    tow__operand_lists *u = tow__arena_alloc(list->arena, 1, sizeof *u);
    if (u) u->first = tow__arena_alloc(list->arena, (size_t)g->n_vars + 1, sizeof *u->first);
    if (u) u->items = tow__arena_alloc(list->arena, n, sizeof *u->items);
    list->failed |= !u || !u->first || !u->items;
    if (list->failed) return NULL;
    list_operands(g, u);
    u->g = g;
    u->next = *list->operands;
    return *list->operands = u;
}

static void find(tow__readers *list, const tow_graph *g, uint32_t var, int depth);

/* Operand i of region e: its readers are those of the inputs of the bodies. */
static void find_inside(tow__readers *list, const tow__equation *e, uint32_t i, int depth)
{
    tow__region_form form;
    if (!tow__region_of(e, &form) || i < form.lead) {
        add_reader(list, e);
        return;
    }
    for (uint32_t k = 0; k < form.conditions + form.branches; k++) {
        const tow_graph *body = tow__nested(e->primitive, e->params, k);
        if (i - form.lead < body->n_inputs) find(list, body, body->inputs[i - form.lead], depth + 1);
    }
}

static void find(tow__readers *list, const tow_graph *g, uint32_t var, int depth)
{
    const tow__operand_lists *operands = depth <= DEEPEST ? operands_of(list, g) : NULL;
    for (uint32_t k = operands ? operands->first[var] : 0; operands && k < operands->first[var + 1]; k++) {
        const tow__operand_place at = operands->items[k];
        const tow__equation *e = &g->equations[at.equation];
        const bool moves = e->primitive == &tow__name_p || (e->primitive->view && e->n_in == 1);
        const size_t before = list->n;
        if (e->primitive->region)
            find_inside(list, e, at.operand, depth);
        else if (moves)
            find(list, g, e->out[0], depth + 1);
        if (list->n == before && !e->primitive->region) add_reader(list, e);
    }
}

void tow__find_value_readers(tow__readers *list, const tow_graph *g, uint32_t var) { find(list, g, var, 0); }

void tow__find_readers(tow__readers *list, const tow_graph *backward, uint32_t input)
{
    find(list, backward, backward->inputs[input], 0);
}
