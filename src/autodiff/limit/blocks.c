/* A loss without scans as a chain of blocks, in the order of its equations.
 *
 *   x ─[ block 0 ]─ y ─[ block 1 ]─ z ─ ... ─ loss          cut where few bytes are alive
 *
 * Each block keeps a set of its values (kept_sets.c) and the results that later blocks read; what it does not keep is
 * made again from its operands, in a region around it. Parts of the chain may be regions that keep nothing: they run
 * again as a chain. Dynamic programming (chain.c) finds which, for limits from all bytes to the fewest. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "src/autodiff/limit/body.h"
#include "src/autodiff/limit/chain.h"
#include "src/autodiff/regions/record.h"

enum {
    MOST_BLOCKS = 64,
    MOST_OPTIONS = 10, /* of a block */
    MOST_SETS = 20,    /* of all of a loss */
    SLOTS = 256,       /* limits that are told apart */
    SMALL = 40         /* equations of a loss that is also cut at every place */
};

/* One way to cut the loss. */
typedef struct chain_of_blocks {
    uint32_t n;
    uint32_t *at; /* [n + 1] first equations */
    tow__kept_set **sets;
    tow__chain chain;
} chain_of_blocks;

/* One way to run it: bytes and seconds are estimates by which ways are compared. */
typedef struct solution {
    const chain_of_blocks *chain;
    tow__chain_step *steps;
    uint32_t n;
    uint64_t bytes;
    double seconds;
} solution;

struct tow__blocks {
    tow__body_values values;
    uint32_t *var_last; /* [vars] the last equation that reads it; n_equations: an output of the loss; 0: none */
    solution *solutions;
    uint32_t n, capacity;
};

/* ---- cuts -------------------------------------------------------------------------------------------------------- */

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Places first to last, before equations, with as few bytes alive, more than that on both sides, and the most that is
 * alive up to the next one. */
typedef struct valley {
    uint32_t first, last;
    size_t alive, peak;
} valley;

static uint32_t find_valleys(uint32_t n_equations, const size_t *alive, valley *valleys)
{
    uint32_t n = 0;
    bool falls = true;
    for (uint32_t p = 1; p < n_equations; p++) {
        if (p > 1 && alive[p] > alive[p - 1]) falls = false;
        if (p == 1 || (alive[p] < alive[p - 1] && !falls)) {
            valleys[n++] = (valley){p, p, alive[p], alive[p]};
            falls = true;
            continue;
        }
        valley *v = &valleys[n - 1];
        if (falls && alive[p] < v->alive && v->last > v->first + 2) { /* a long one is one, whatever comes behind */
            v->peak = SIZE_MAX;
            v = &valleys[n++];
            *v = (valley){p, p, alive[p], alive[p]};
        }
        if (falls && alive[p] < v->alive) *v = (valley){p, p, alive[p], alive[p]};
        if (falls && alive[p] == v->alive) v->last = p;
        if (alive[p] > v->peak) v->peak = alive[p];
    }
    return n;
}

/* The depth of a valley: so many times as much is alive on its lower side. */
static double depth_of(const valley *valleys, uint32_t n, uint32_t i)
{
    const size_t before = i > 0 ? valleys[i - 1].peak : SIZE_MAX, behind = i + 1 < n ? valleys[i].peak : SIZE_MAX;
    return (double)(before < behind ? before : behind) / (double)(valleys[i].alive ? valleys[i].alive : 1);
}

static uint32_t span_of(const valley *valleys, uint32_t n, uint32_t i)
{
    return (i + 1 < n ? valleys[i + 1].first : valleys[n - 1].last) - (i > 0 ? valleys[i - 1].last : 0);
}

/* Of two that are as deep that one goes between which and its neighbors there are fewer equations. */
static bool is_flatter(const valley *valleys, uint32_t n, uint32_t i, uint32_t j)
{
    const double x = depth_of(valleys, n, i), y = depth_of(valleys, n, j);
    if (x < 0.99 * y || y < 0.99 * x) return x < y;
    return span_of(valleys, n, i) < span_of(valleys, n, j);
}

/* Leaves valleys that are at least so deep, at most `most`. */
static uint32_t keep_deep(valley *valleys, uint32_t n, double depth, uint32_t most)
{
    while (n > 1) {
        uint32_t flat = 0;
        for (uint32_t i = 1; i < n; i++)
            if (is_flatter(valleys, n, i, flat)) flat = i;
        if (depth_of(valleys, n, flat) >= depth && n <= most) break;
        if (flat > 0 && valleys[flat].peak > valleys[flat - 1].peak) valleys[flat - 1].peak = valleys[flat].peak;
        memmove(&valleys[flat], &valleys[flat + 1], (n - flat - 1) * sizeof *valleys);
        n--;
    }
    return n;
}

/* Of the places of a valley those behind equations that take longer than the ones around them, whose results had better
 * be kept: every n-th of them. */
static void add_cuts(const tow__body_values *v, const valley *places, uint32_t every, chain_of_blocks *c)
{
    uint32_t best = places->first, n = 0;
    for (uint32_t p = places->first; p <= places->last; p++) {
        const double before = p > 1 ? v->seconds[p - 2] : 0, here = v->seconds[p - 1], next = v->seconds[p];
        if (here > v->seconds[best - 1]) best = p;
        if (here > before && here > next && p > places->first && n++ % every == 0) c->at[++c->n] = p;
    }
    if (n == 0) c->at[++c->n] = best;
}

/* Cuts the loss where few bytes are alive, `depth` times less than on both sides. 0: between any two equations;
 * INFINITY: nowhere. At most `most` blocks, or all. */
static tow_status cut_loss(tow__arena *arena, const tow__body_values *v, double depth, uint32_t most,
                           chain_of_blocks *c)
{
    const uint32_t n = v->g->n_equations;
    size_t *alive = tow__arena_alloc(arena, (size_t)n + 1, sizeof *alive);
    valley *valleys = tow__arena_alloc(arena, (size_t)n + 1, sizeof *valleys);
    c->at = tow__arena_alloc(arena, (size_t)n + 2, sizeof *c->at);
    if (!alive || !valleys || !c->at) return TOW_OUT_OF_MEMORY;
    for (uint32_t p = 1; p < n; p++) alive[p] = tow__crossing_bytes(v, 0, p);
    if (depth > 0 && !isinf(depth)) {
        const uint32_t n_valleys = keep_deep(valleys, find_valleys(n, alive, valleys), depth, most - 1);
        uint32_t every = 0;
        do {
            c->n = 0;
            every++;
            for (uint32_t i = 0; i < n_valleys; i++) add_cuts(v, &valleys[i], every, c);
        } while (c->n >= most);
    }
    for (uint32_t p = 1; p < n && depth <= 0; p++)
        if (!v->g->equations[p].primitive->view && v->g->equations[p - 1].n_in > 0) c->at[++c->n] = p;
    uint32_t n_cuts = 0;
    for (uint32_t i = 1; i <= c->n; i++)
        if (tow__may_cut(v, c->at[i])) c->at[++n_cuts] = c->at[i];
    c->n = n_cuts;
    c->at[++c->n] = n;
    return TOW_OK;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static tow_status describe_block(tow__arena *arena, tow__body_values *v, chain_of_blocks *c, uint32_t i,
                                 tow__chain_block *block)
{
    v->begin = c->at[i];
    v->end = c->at[i + 1];
    tow_status status =
        tow__search_kept_sets(arena, v, false, c->n > 1 ? MOST_OPTIONS : MOST_SETS, &c->sets[i], &block->n_options);
    tow__chain_option *options = tow__arena_alloc(arena, block->n_options, sizeof *options);
    if (status != TOW_OK || !options) return TOW_OUT_OF_MEMORY;
    for (uint32_t o = 0; o < block->n_options; o++)
        options[o] = (tow__chain_option){c->sets[i][o].bytes, c->sets[i][o].working, c->sets[i][o].seconds};
    block->options = options;
    block->runs_once = tow__is_forced(v);
    for (uint32_t k = v->begin; k < v->end; k++) {
        const bool crosses = v->end < v->g->n_equations && v->last[k] >= v->end && v->g->equations[k].n_in > 0;
        block->seconds += v->seconds[k];
        block->results += crosses ? v->result[k] : 0;
    }
    return TOW_OK;
}

static tow_status describe_chain(tow__arena *arena, tow__body_values *v, chain_of_blocks *c)
{
    const size_t n = c->n;
    tow__chain_block *blocks = tow__arena_alloc(arena, n, sizeof *blocks);
    uint64_t *crossing = tow__arena_alloc(arena, n * (n + 1), sizeof *crossing);
    c->sets = tow__arena_alloc(arena, n, sizeof *c->sets);
    if (!blocks || !crossing || !c->sets) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < n; i++) {
        tow_status status = describe_block(arena, v, c, i, &blocks[i]);
        if (status != TOW_OK) return status;
        for (uint32_t j = i + 1; j < n; j++) crossing[i * (n + 1) + j] = tow__crossing_bytes(v, c->at[i], c->at[j]);
    }
    c->chain = (tow__chain){.n = c->n, .blocks = blocks, .crossing = crossing};
    return TOW_OK;
}

/* ---- solutions --------------------------------------------------------------------------------------------------- */

static tow_status add_solution(tow__arena *arena, struct tow__blocks *b, solution s)
{
    solution *grown = tow__list_extend(arena, b->solutions, b->n, &b->capacity, sizeof *grown);
    if (!grown) return TOW_OUT_OF_MEMORY;
    b->solutions = grown;
    b->solutions[b->n++] = s;
    return TOW_OK;
}

/* A chain of one block: each set of its values. */
static tow_status add_sets(tow__arena *arena, struct tow__blocks *b, const chain_of_blocks *c)
{
    tow_status status = TOW_OK;
    for (uint32_t o = 0; o < c->chain.blocks[0].n_options && status == TOW_OK; o++) {
        tow__chain_step *step = tow__arena_alloc(arena, 1, sizeof *step);
        if (!step) return TOW_OUT_OF_MEMORY;
        *step = (tow__chain_step){TOW__CHAIN_BLOCK, 0, 1, o};
        const tow__chain_option *option = &c->chain.blocks[0].options[o];
        status =
            add_solution(arena, b, (solution){c, step, 1, larger(option->bytes, option->working), option->seconds});
    }
    return status;
}

/* Solutions for all limits that are told apart. */
static tow_status solve(tow__arena *arena, struct tow__blocks *b, const chain_of_blocks *c)
{
    uint64_t most = 0;
    tow__chain_table *table;
    for (uint32_t i = 0; i < c->n; i++) {
        const tow__chain_option *all = &c->chain.blocks[i].options[0];
        most += larger(all->bytes, c->chain.blocks[i].results);
        for (uint32_t o = 0; o < c->chain.blocks[i].n_options; o++) most = larger(most, all[o].working);
    }
    const uint64_t quantum = most / (SLOTS - 8) + 1;
    tow_status status = tow__chain_solve(arena, &c->chain, SLOTS * quantum, quantum, &table);
    double last = INFINITY;
    for (uint64_t m = 0; m <= SLOTS * quantum && status == TOW_OK; m += quantum) {
        solution s = {.chain = c, .bytes = m, .seconds = tow__chain_seconds(table, m)};
        if (s.seconds >= last) continue;
        last = s.seconds;
        status = tow__chain_steps(table, m, &s.steps, &s.n);
        if (status == TOW_OK) status = add_solution(arena, b, s);
    }
    return status;
}

static int by_bytes(const void *a, const void *b)
{
    const solution *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

/* The price of leaving out solution i of several: limits from its bytes to those of the next one have the one before
 * it. */
static double loss_without(const solution *s, uint32_t i)
{
    return (s[i - 1].seconds - s[i].seconds) * (double)(s[i + 1].bytes - s[i].bytes);
}

/* Leaves those that take fewer seconds than any with fewer bytes; of these, while there are more than `most`, that one
 * goes without which least is lost. The first and the last stay. */
static void choose(struct tow__blocks *b, uint32_t most)
{
    solution *s = b->solutions;
    uint32_t n = 0;
    if (b->n > 0) qsort(s, b->n, sizeof *s, by_bytes);
    for (uint32_t i = 0; i < b->n; i++)
        if (n == 0 || s[i].seconds < s[n - 1].seconds) s[n++] = s[i];
    while (n > most && n > 2) {
        uint32_t least = 1;
        for (uint32_t i = 2; i + 1 < n; i++)
            if (loss_without(s, i) < loss_without(s, least)) least = i;
        memmove(&s[least], &s[least + 1], (n - least - 1) * sizeof *s);
        n--;
    }
    b->n = n;
}

static tow_status find_last_readers(tow__arena *arena, struct tow__blocks *b)
{
    const tow_graph *g = b->values.g;
    b->var_last = tow__arena_alloc(arena, (size_t)g->n_vars + 1, sizeof *b->var_last);
    if (!b->var_last) return TOW_OUT_OF_MEMORY;
    for (uint32_t k = 0; k < g->n_equations; k++)
        for (uint32_t i = 0; i < g->equations[k].n_in; i++) b->var_last[g->equations[k].in[i]] = k;
    for (uint32_t i = 0; i < g->n_outputs; i++) b->var_last[g->outputs[i]] = g->n_equations;
    return TOW_OK;
}

tow_status tow__find_block_plans(tow__arena *arena, const tow_graph *loss, const tow__price *price, uint32_t most,
                                 tow__block_plans *plans)
{
    struct tow__blocks *b = tow__arena_alloc(arena, 1, sizeof *b);
    *plans = (tow__block_plans){.blocks = b};
    if (!b) return TOW_OUT_OF_MEMORY;
    tow_status status = tow__body_values_find(arena, loss, price, &plans->body, &b->values);
    if (status == TOW_OK) status = find_last_readers(arena, b);
    if (status != TOW_OK || b->values.g->n_equations == 0) return status;
    static const struct {
        double depth;
        uint32_t most;
    } cuts[] = {{INFINITY, 1}, {1.05, MOST_BLOCKS}, {1.05, 24}, {1.05, 10}, {1.05, 4}, {0, SMALL}};
    for (uint32_t i = 0, last = UINT32_MAX; i < sizeof cuts / sizeof *cuts && status == TOW_OK; i++) {
        if (cuts[i].depth <= 0 && b->values.g->n_equations > SMALL) break;
        chain_of_blocks *c = tow__arena_alloc(arena, 1, sizeof *c);
        if (!c) return TOW_OUT_OF_MEMORY;
        status = cut_loss(arena, &b->values, cuts[i].depth, cuts[i].most, c);
        if (c->n == last) continue;
        last = c->n;
        if (status == TOW_OK) status = describe_chain(arena, &b->values, c);
        if (status == TOW_OK) status = c->n > 1 ? solve(arena, b, c) : add_sets(arena, b, c);
    }
    choose(b, most);
    plans->n = b->n;
    return status;
}

/* ---- recording --------------------------------------------------------------------------------------------------- */

typedef struct recording {
    const struct tow__blocks *b;
    const solution *s;
    tow_trace *t;
    tow_value *values; /* [vars of the loss] */
} recording;

/* Records equations begin to end - 1; verdict NULL: as they are. */
static void record_equations(const recording *r, uint32_t begin, uint32_t end, const uint8_t *verdict)
{
    const tow_graph *g = r->b->values.g;
    for (uint32_t k = begin; k < end; k++) {
        const tow__equation *e = &g->equations[k];
        tow_value *x = tow__trace_alloc(r->t, (size_t)e->n_in + e->n_out, sizeof *x);
        if (!x) return;
        for (uint32_t i = 0; i < e->n_in; i++) x[i] = r->values[e->in[i]];
        if (verdict) {
            tow__record_marked(r->t, g, e, (tow_verdict)verdict[k - begin], x, x + e->n_in);
        } else {
            tow__set_source(r->t, &e->source);
            tow__rebind(r->t, e, x, x + e->n_in);
            tow__set_source(r->t, NULL);
        }
        for (uint32_t i = 0; i < e->n_out; i++) r->values[e->out[i]] = x[e->n_in + i];
    }
}

/* Ends the region that tow__push began, around equations begin to end - 1. */
static void end_region(const recording *r, uint32_t begin, uint32_t end, const tow_policy *policy)
{
    const tow_graph *g = r->b->values.g;
    tow__remat_params params = {.policy = policy};
    tow__traced_body body = {0};
    size_t n = 0, n_out = 0;
    for (uint32_t k = begin; k < end; k++) n += g->equations[k].n_out;
    uint32_t *vars = tow__trace_alloc(r->t, n + 1, sizeof *vars);
    tow_value *out = tow__trace_alloc(r->t, n + 1, sizeof *out);
    for (uint32_t k = begin; k < end && vars && out; k++)
        for (uint32_t i = 0; i < g->equations[k].n_out; i++) {
            const uint32_t var = g->equations[k].out[i];
            if (r->b->var_last[var] >= end) vars[n_out] = var, out[n_out++] = r->values[var];
        }
    body.graph = tow__pop(r->t, n_out, out, &body.n_captures, &body.captures);
    if (!body.graph) return;
    tow__bind_region(r->t, &tow__remat_p, &params, offsetof(tow__remat_params, body), &body, 0, NULL, n_out, out);
    for (size_t i = 0; i < n_out; i++) r->values[vars[i]] = out[i];
    tow_graph_release(body.graph);
}

/* Does a policy of the user's want something of it made again? */
static bool has_verdict(const tow__body_values *v, uint32_t begin, uint32_t end)
{
    for (uint32_t k = begin; k < end; k++)
        if (v->forced[k] == TOW_MUST_RECOMPUTE + 1) return true;
    return false;
}

static void record_step(const recording *r, const tow__chain_step *step)
{
    const chain_of_blocks *c = r->s->chain;
    const uint32_t begin = c->at[step->first], end = c->at[step->last];
    if (step->kind == TOW__CHAIN_OPEN) {
        tow__push(r->t);
    } else if (step->kind == TOW__CHAIN_CLOSE) {
        end_region(r, begin, end, NULL);
    } else if (step->option == 0 && !has_verdict(&r->b->values, begin, end)) {
        record_equations(r, begin, end, NULL);
    } else {
        const uint8_t *verdict = c->sets[step->first][step->option].verdict;
        tow__push(r->t);
        record_equations(r, begin, end, verdict);
        end_region(r, begin, end, tow__policy_of_marked(r->b->values.g, begin, end, verdict));
    }
}

tow_status tow__block_plan(const tow__block_plans *plans, uint32_t i, tow_graph **graph)
{
    const tow_graph *g = plans->body;
    tow_value *in, *out;
    *graph = NULL;
    recording r = {.b = plans->blocks, .s = &plans->blocks->solutions[i]};
    r.t = tow__trace_begin_over(g, &in, &out);
    if (!r.t) return TOW_OUT_OF_MEMORY;
    r.values = tow__trace_alloc(r.t, (size_t)g->n_vars + 1, sizeof *r.values);
    for (uint32_t k = 0; k < g->n_inputs && r.values; k++)
        r.values[g->inputs[k]] = tow__input(r.t, g->vars[g->inputs[k]].type, g->input_names[k]);
    for (uint32_t k = 0; k < r.s->n && r.values; k++) record_step(&r, &r.s->steps[k]);
    for (uint32_t k = 0; k < g->n_outputs && r.values; k++) out[k] = r.values[g->outputs[k]];
    return tow__trace_end(r.t, g->n_outputs, out, false, graph);
}
