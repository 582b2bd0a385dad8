/* Products that are sums over groups of rows (gemm.h, tow__gemm_run_groups): for each tile of C, all groups one after
 * the other, while its partial sums stay in a near cache.
 *
 *   slots of a tile   C       1       2          Partial sums lie as on a stack: a group begins one, the next one is
 *   group 0           0                          added to it by the product itself, and where a sum of the tree is
 *         1           01                         complete, it is added to the one below it, rectangle by rectangle, as
 *         2           01      2                  the epilogue of the product that completes it.
 *         3           0123
 *         4           0123    4
 *         5           0123    45
 *         6           0123    45      6
 *         7           01234567 */
#include <string.h>

#include "src/base/cancel.h"
#include "src/base/clones.h"
#include "src/base/machine.h"
#include "src/kernels/products/gemm_own.h"

enum {
    ROWS = 128,        /* of a tile, at least: what is packed of B for a tile is used for so many */
    UNIT_ROWS = 384,   /* the same for the matrix unit: it splits B for a tile, which is dear */
    ELEMENTS = 393216, /* of a tile, at least: what is packed of A is used for 3,072 or 1,024 columns */
    PANEL = 32         /* rows and columns of tiles are multiples of this */
};

/* Partial sums of all groups of a tile. */
typedef struct tree {
    const tow__gemm *whole;
    int64_t rows, columns; /* of the largest tiles */
    bool adds;             /* the product of an odd group is added by its engine */
    int slots;             /* beside C */
    char *memory;          /* of these slots */
} tree;

/* The sum that is complete with a group, and the tile that it belongs to. */
typedef struct completion {
    const tree *t;
    int64_t row, column; /* of the tile in C */
    int slot, merges;    /* the sum in `slot` is added to that of the slot below, and so on, so many times */
    bool last;           /* group */
} completion;

static int ones(int64_t x)
{
    int n = 0;
    for (; x > 0; x &= x - 1) n++;
    return n;
}

static int trailing_ones(int64_t x)
{
    int n = 0;
    for (; x & 1; x >>= 1) n++;
    return n;
}

/* Slot 0 is the tile of C. */
static char *slot_at(const completion *c, int slot, int64_t *row)
{
    const tow__gemm *g = c->t->whole;
    const int64_t bytes = tow__gemm_c_bytes(g);
    *row = slot == 0 ? g->ldc : c->t->columns;
    if (slot == 0) return (char *)g->c + (c->row * g->ldc + c->column) * bytes;
    return c->t->memory + (slot - 1) * c->t->rows * c->t->columns * bytes;
}

#define ADD(T)                                                                                                         \
    TOW__CLONES static void add_##T(void *into, const void *other, int64_t n)                                          \
    {                                                                                                                  \
        T *restrict s = into;                                                                                          \
        const T *restrict o = other;                                                                                   \
        for (int64_t i = 0; i < n; i++) s[i] += o[i];                                                                  \
    }
ADD(f32)
ADD(f64)

/* The epilogue of a product that completes sums. */
static void complete(void *user, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    const completion *c = user;
    const tow__gemm *g = c->t->whole;
    const int64_t bytes = tow__gemm_c_bytes(g);
    for (int i = 0; i < c->merges; i++) {
        int64_t into_row, from_row;
        char *into = slot_at(c, c->slot - i - 1, &into_row);
        const char *from = slot_at(c, c->slot - i, &from_row);
        for (int64_t r = row; r < row + rows; r++)
            (g->dtype == TOW_F32 ? add_f32 : add_f64)(into + (r * into_row + column) * bytes,
                                                      from + (r * from_row + column) * bytes, columns);
    }
    if (c->last && g->epilogue) g->epilogue(g->user, c->row + row, rows, c->column + column, columns);
}

static void run_group(const tree *t, tow__gemm *g, const tow__gemm_engine *engine, int64_t group, completion *c)
{
    const tow__gemm *whole = t->whole;
    const bool joins = t->adds && group % 2 == 1;
    c->slot = ones(group) - joins;
    c->merges = trailing_ones(group) - joins;
    g->accumulate = joins;
    g->a = (const char *)whole->a + (c->row * g->a_row + group * g->k * g->a_column) * tow__gemm_a_bytes(g);
    g->b = (const char *)whole->b + (c->column * g->b_column + group * g->k * g->b_row) * tow__gemm_b_bytes(g);
    g->c = slot_at(c, c->slot, &g->ldc);
    g->epilogue = c->merges > 0 || (c->last && whole->epilogue) ? complete : NULL;
    g->user = c;
    g->next_b = c->last ? NULL : (const char *)g->b + g->k * g->b_row * tow__gemm_b_bytes(g);
    tow__gemm_run(g, engine);
}

static int64_t even_parts(int64_t length, int64_t most)
{
    const int64_t parts = tow__ceil_div(length, most);
    return tow__min(length, tow__ceil_div(tow__ceil_div(length, parts), PANEL) * PANEL);
}

/* The tiles: of whole rows of C, unless these are long, and as many of them as half of the second cache holds of one
 * slot; the others are read seldom. An engine whose bits depend on how products are cut gets C in one piece. */
static tree plan(const tow__gemm *g, const tow__gemm_engine *engine, int64_t groups)
{
    tree t = {.whole = g, .rows = g->m, .columns = g->n};
    t.adds = engine->in_parts && g->k <= tow__gemm_kc(g->k);
    t.slots = ones(groups - 1) - t.adds;
    if (!engine->cuts) return t;
    const int64_t least = engine == &tow__gemm_amx ? UNIT_ROWS : ROWS;
    const int64_t elements = tow__machine_here()->l2.bytes / 2 / tow__gemm_c_bytes(g);
    t.columns = even_parts(g->n, ELEMENTS / least);
    t.rows = even_parts(g->m, tow__max(least, elements / t.columns / PANEL * PANEL));
    return t;
}

static size_t slot_bytes(const tree *t)
{
    const size_t bytes = (size_t)(t->slots * t->rows * t->columns * tow__gemm_c_bytes(t->whole));
    return (bytes + 63) / 64 * 64;
}

size_t tow__gemm_groups_scratch(const tow__gemm *g, const tow__gemm_engine *engine, int64_t groups)
{
    if (g->m == 0 || g->n == 0) return 0;
    const tree t = plan(g, engine, groups);
    const int64_t rows[] = {t.rows, g->m % t.rows}, columns[] = {t.columns, g->n % t.columns};
    size_t most = 0;
    for (int i = 0; i < 4; i++) { /* tiles at the edges may need more */
        tow__gemm tile = *g;
        tile.m = rows[i / 2], tile.n = columns[i % 2];
        const size_t bytes = tow__gemm_scratch(&tile, engine);
        if (bytes > most) most = bytes;
    }
    return slot_bytes(&t) + most;
}

void tow__gemm_run_groups(const tow__gemm *g, const tow__gemm_engine *engine, int64_t groups)
{
    if (g->m == 0 || g->n == 0) return; /* an empty slice */
    tree t = plan(g, engine, groups);
    t.memory = g->scratch;
    for (int64_t row = 0; row < g->m; row += t.rows)
        for (int64_t column = 0; column < g->n && !tow__cancelled(); column += t.columns) {
            completion c = {.t = &t, .row = row, .column = column};
            tow__gemm tile = *g;
            tile.m = tow__min(t.rows, g->m - row), tile.n = tow__min(t.columns, g->n - column);
            tile.scratch = t.memory + slot_bytes(&t);
            tile.code = NULL, tile.read_after = NULL;
            memset(tile.epilogue_operands, 0, sizeof tile.epilogue_operands);
            for (int64_t group = 0; group < groups; group++) {
                c.last = group == groups - 1;
                run_group(&t, &tile, engine, group, &c);
            }
        }
}
