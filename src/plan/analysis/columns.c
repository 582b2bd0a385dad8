/* Columns: arrays with an entry per storage of the program, which passes over one plan borrow and give back. A pass
 * writes few entries, those of storages that its instructions name, and makes them blank again; so a program of many
 * bodies has neither a large array per body nor the time to fill it. */
#include "src/plan/analysis/columns.h"
#include "src/plan/ir.h"

struct tow__column {
    tow__column *next;
    char *items;
    size_t size; /* of an item */
    int blank;   /* each of its bytes, where nobody has written */
    uint32_t capacity;
    bool busy;
};

/* One that is not in use and whose items look so; NULL: there is none. */
static tow__column *find_free(const tow_program *p, size_t size, int blank)
{
    tow__column *c = p->columns;
    while (c && (c->busy || c->size != size || c->blank != blank)) c = c->next;
    return c;
}

void *tow__borrow(tow_program *p, tow__arena *scratch, size_t size, int blank)
{
    tow__column *c = find_free(p, size, blank);
    if (!c) {
        c = tow__arena_alloc(scratch, 1, sizeof *c);
        if (!c) return NULL;
        *c = (tow__column){.next = p->columns, .size = size, .blank = blank};
        p->columns = c;
    }
    if (!c->items || c->capacity < p->n_storages) { /* capacities double, so all that is left behind is about as much */
        c->items = tow__arena_alloc(scratch, p->storages_capacity, size);
        if (!c->items) return NULL;
        c->capacity = p->storages_capacity;
        if (blank) memset(c->items, blank, c->capacity * size);
    }
    c->busy = true;
    return c->items;
}

void tow__blank(const tow_program *p, const void *column, uint32_t storage)
{
    const tow__column *c = p->columns;
    while (c->items != column) c = c->next;
    memset(c->items + storage * c->size, c->blank, c->size);
}

static void blank_inst(tow__column *c, const tow__instruction *inst)
{
    for (uint32_t j = 0; j < inst->n_in; j++) memset(c->items + inst->in[j].storage * c->size, c->blank, c->size);
    for (uint32_t j = 0; j < inst->n_out; j++) memset(c->items + inst->out[j].storage * c->size, c->blank, c->size);
}

void tow__give_back(tow_program *p, const void *column, const tow__instruction *insts, uint32_t n,
                    const uint32_t *which)
{
    tow__column *c = p->columns;
    while (c->items != column) c = c->next;
    for (uint32_t i = 0; i < n; i++) blank_inst(c, &insts[which ? which[i] : i]);
    c->busy = false;
}

void tow__give_back_named(tow_program *p, const void *column, const uint32_t *storages, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) tow__blank(p, column, storages[i]);
    tow__give_back(p, column, NULL, 0, NULL);
}
