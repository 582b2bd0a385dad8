/* See chain.h.
 *
 *   least(a, b, m)   the fewest seconds beyond a forward and a backward pass of blocks a to b - 1 with m bytes, beside
 *                    the values that block a reads; the least of
 *     keep option k  seconds(a, k) + least(a + 1, b, m - bytes(a, k))
 *     open [a, j)    seconds(a) + ... + seconds(j - 1) + least(j, b, m - crossing(a, j)) + least(a, j, m)
 *
 * with m at least what the forward and the backward pass of each need: of a part that keeps nothing, operands and
 * results of a block, beside the cotangents of the results of b - 1. */
#include "src/autodiff/limit/chain.h"

#include <math.h>

enum {
    NONE = 0, /* of a choice: not possible */
    KEEP = 1  /* + option; behind the options: KEEP + n_options + (j - a - 1) opens [a, j) */
};

typedef struct cell {
    double seconds;
    uint32_t choice;
} cell;

struct tow__chain_table {
    tow__arena *arena;
    const tow__chain *chain;
    uint64_t quantum;
    uint32_t n_slots; /* limits 0, quantum, ... */
    cell *cells;      /* [n (n + 1) / 2][n_slots] */
    double *seconds;  /* [n + 1] of all blocks before */
};

static cell *cells_of(const tow__chain_table *t, uint32_t a, uint32_t b)
{
    const size_t length = b - a, n = t->chain->n; /* parts of one length stand together */
    const size_t before = (length - 1) * (2 * n - length + 2) / 2;
    return t->cells + (before + a) * t->n_slots;
}

static uint64_t crossing(const tow__chain *c, uint32_t a, uint32_t b)
{
    return c->crossing ? c->crossing[(size_t)a * (c->n + 1) + b] : c->blocks[b - 1].results;
}

static uint32_t slots(const tow__chain_table *t, uint64_t bytes)
{
    const uint64_t n = bytes / t->quantum + (bytes % t->quantum != 0);
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Bytes with which block a runs forward and backward with this option, as the first of blocks a to b - 1. */
static uint64_t keeping_bytes(const tow__chain *c, uint32_t a, uint32_t b, const tow__chain_option *o)
{
    return larger(c->blocks[b - 1].results + o->bytes + c->blocks[a].temporary, o->working);
}

/* Bytes of a forward pass over a to j - 1 that keeps nothing, as the beginning of blocks a to b - 1. */
static uint64_t passing_bytes(const tow__chain *c, uint32_t a, uint32_t j, uint32_t b)
{
    uint64_t most = 0;
    for (uint32_t i = a; i < j; i++) {
        const tow__chain_block *k = &c->blocks[i];
        most = larger(most, (i > a ? c->blocks[i - 1].results : 0) + k->results + k->temporary);
    }
    return most + c->blocks[b - 1].results;
}

static void better(cell *best, double seconds, uint32_t choice)
{
    if (best->choice == NONE || seconds < best->seconds) *best = (cell){.seconds = seconds, .choice = choice};
}

/* The options of block a, before blocks a + 1 to b - 1. */
static void keep_options(const tow__chain_table *t, uint32_t a, uint32_t b)
{
    const tow__chain_block *k = &t->chain->blocks[a];
    cell *part = cells_of(t, a, b);
    const cell *rest = a + 1 < b ? cells_of(t, a + 1, b) : NULL;
    for (uint32_t o = 0; o < k->n_options; o++) {
        const tow__chain_option *option = &k->options[o];
        const uint32_t kept = rest ? slots(t, option->bytes) : 0,
                       least = slots(t, keeping_bytes(t->chain, a, b, option));
        for (uint32_t m = least > kept ? least : kept; m < t->n_slots; m++)
            if (!rest)
                better(&part[m], option->seconds, KEEP + o);
            else if (rest[m - kept].choice != NONE)
                better(&part[m], option->seconds + rest[m - kept].seconds, KEEP + o);
    }
}

static void open_parts(const tow__chain_table *t, uint32_t a, uint32_t b)
{
    const tow__chain *c = t->chain;
    cell *part = cells_of(t, a, b);
    for (uint32_t j = a + 1; j < b && !c->blocks[j - 1].runs_once; j++) {
        const uint32_t kept = slots(t, crossing(c, a, j)), least = slots(t, passing_bytes(c, a, j, b)),
                       choice = KEEP + c->blocks[a].n_options + (j - a - 1);
        const cell *rest = cells_of(t, j, b), *again = cells_of(t, a, j);
        const double seconds = t->seconds[j] - t->seconds[a];
        for (uint32_t m = least > kept ? least : kept; m < t->n_slots; m++)
            if (rest[m - kept].choice != NONE && again[m].choice != NONE)
                better(&part[m], seconds + rest[m - kept].seconds + again[m].seconds, choice);
    }
}

tow_status tow__chain_solve(tow__arena *arena, const tow__chain *chain, uint64_t most, uint64_t quantum,
                            tow__chain_table **table)
{
    tow__chain_table *t = tow__arena_alloc(arena, 1, sizeof *t);
    *table = t;
    if (!t) return TOW_OUT_OF_MEMORY;
    const size_t n = chain->n;
    *t = (tow__chain_table){.arena = arena, .chain = chain, .quantum = quantum ? quantum : 1};
    t->n_slots = (uint32_t)(most / t->quantum) + 1;
    t->cells = tow__arena_alloc(arena, n * (n + 1) / 2 * t->n_slots, sizeof *t->cells);
    t->seconds = tow__arena_alloc(arena, n + 1, sizeof *t->seconds);
    if (!t->cells || !t->seconds) return TOW_OUT_OF_MEMORY;
    for (uint32_t a = 0; a < n; a++) t->seconds[a + 1] = t->seconds[a] + chain->blocks[a].seconds;
    for (uint32_t length = 1; length <= n; length++)
        for (uint32_t a = 0; a + length <= n; a++) {
            keep_options(t, a, a + length);
            open_parts(t, a, a + length);
        }
    return TOW_OK;
}

/* The largest limit that is told apart from those above and that so many bytes keep. */
static uint32_t slot_of(const tow__chain_table *t, uint64_t bytes)
{
    const uint64_t m = bytes / t->quantum;
    return m < t->n_slots ? (uint32_t)m : t->n_slots - 1;
}

double tow__chain_seconds(const tow__chain_table *t, uint64_t bytes)
{
    const cell *all = &cells_of(t, 0, t->chain->n)[slot_of(t, bytes)];
    return all->choice == NONE ? INFINITY : all->seconds;
}

static uint32_t follow(const tow__chain_table *t, uint32_t a, uint32_t b, uint32_t m, tow__chain_step *steps)
{
    uint32_t n = 0;
    while (a < b) { /* the rest of a part has no part of its own behind it */
        const tow__chain_block *k = &t->chain->blocks[a];
        const uint32_t choice = cells_of(t, a, b)[m].choice - KEEP;
        if (choice < k->n_options) {
            steps[n++] = (tow__chain_step){TOW__CHAIN_BLOCK, a, a + 1, choice};
            if (++a < b) m -= slots(t, k->options[choice].bytes);
            continue;
        }
        const uint32_t j = a + 1 + choice - k->n_options;
        steps[n++] = (tow__chain_step){TOW__CHAIN_OPEN, a, j, 0};
        n += follow(t, a, j, m, steps + n);
        steps[n++] = (tow__chain_step){TOW__CHAIN_CLOSE, a, j, 0};
        m -= slots(t, crossing(t->chain, a, j));
        a = j;
    }
    return n;
}

tow_status tow__chain_steps(const tow__chain_table *t, uint64_t bytes, tow__chain_step **steps, uint32_t *n)
{
    *n = 0; /* at most 2 n - 1 parts, of which none overlap, are opened and closed */
    *steps = tow__arena_alloc(t->arena, 5 * (size_t)t->chain->n, sizeof **steps);
    if (!*steps) return TOW_OUT_OF_MEMORY;
    if (!isinf(tow__chain_seconds(t, bytes))) *n = follow(t, 0, t->chain->n, slot_of(t, bytes), *steps);
    return TOW_OK;
}
