/* A loss without scans as a chain of blocks, in the order of its equations.
 *
 *   x ─[ block 0 ]─ y ─[ block 1 ]─ z ─ ... ─ loss          cut where few bytes cross
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

#define NEAR 1.15 /* times the bytes of the best solution: as good, perhaps */

enum {
    EVERYWHERE = 0,    /* blocks: as many as there can be */
    MOST_OPTIONS = 20, /* of a block */
    MOST_SETS = 40,    /* of all of a loss */
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

/* May a block begin with equation p, behind the first? A view stays with what makes its operand. */
static bool may_begin(const tow__body_values *v, uint32_t p)
{
    const tow_graph *g = v->g;
    return !g->equations[p].primitive->view && g->equations[p - 1].n_in > 0 && tow__may_cut(v, p);
}

/* The cheapest blocks that end before equation p. */
typedef struct cut {
    bool allowed;
    uint32_t begin;    /* of the last block */
    uint64_t crossing; /* bytes of values that one block makes and others read */
} cut;

/* The last block before p: it has at most so many bytes of residuals, or has no place to be cut. */
static void find_block(const tow__body_values *v, cut *cuts, uint32_t p, uint64_t most)
{
    uint64_t crossing = 0, bytes = 0;
    bool found = false;
    for (uint32_t q = p; q-- > 0;) {
        if (v->last[q] >= p && v->g->equations[q].n_in > 0) crossing += v->result[q];
        bytes += tow__residual_bytes_of(v, q);
        if (bytes > most && found) return;
        if (!cuts[q].allowed || (found && cuts[q].crossing + crossing > cuts[p].crossing)) continue;
        cuts[p].crossing = cuts[q].crossing + crossing;
        cuts[p].begin = q;
        found = true;
    }
}

/* Cuts the loss so that none of its blocks has more than an n-th of all bytes of residuals, at the places that fewest
 * bytes cross: ends of layers, where a loss has layers, and of so many of them that blocks are alike. Two neighbors
 * together have more than that, so there are at most 2 n + 1 blocks. */
static tow_status cut_evenly(tow__arena *arena, const tow__body_values *v, uint32_t n_blocks, chain_of_blocks *c)
{
    const uint32_t n = v->g->n_equations;
    uint64_t all = 0;
    cut *cuts = tow__arena_alloc(arena, (size_t)n + 1, sizeof *cuts);
    if (!cuts) return TOW_OUT_OF_MEMORY;
    for (uint32_t k = 0; k < n; k++) all += tow__residual_bytes_of(v, k);
    for (uint32_t p = 0; p <= n; p++) cuts[p].allowed = p == 0 || p == n || may_begin(v, p);
    for (uint32_t p = 1; p <= n; p++)
        if (cuts[p].allowed) find_block(v, cuts, p, all / n_blocks);
    for (uint32_t p = n; p > 0; p = cuts[p].begin) c->n++;
    c->at = tow__arena_alloc(arena, (size_t)c->n + 1, sizeof *c->at);
    if (!c->at) return TOW_OUT_OF_MEMORY;
    for (uint32_t p = n, i = c->n; p > 0; p = cuts[p].begin) c->at[i--] = p;
    return TOW_OK;
}

static tow_status cut_everywhere(tow__arena *arena, const tow__body_values *v, chain_of_blocks *c)
{
    const uint32_t n = v->g->n_equations;
    c->at = tow__arena_alloc(arena, (size_t)n + 1, sizeof *c->at);
    if (!c->at) return TOW_OUT_OF_MEMORY;
    for (uint32_t p = 1; p < n; p++)
        if (may_begin(v, p)) c->at[++c->n] = p;
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

/* Of n solutions, of which each takes fewer seconds than the one before, that one goes without which least is lost,
 * while there are more than `most`. The first and the last stay. */
static uint32_t thin_out(solution *s, uint32_t n, uint32_t most)
{
    while (n > most && n > 2) {
        uint32_t least = 1;
        for (uint32_t i = 2; i + 1 < n; i++)
            if (loss_without(s, i) < loss_without(s, least)) least = i;
        memmove(&s[least], &s[least + 1], (n - least - 1) * sizeof *s);
        n--;
    }
    return n;
}

/* Bytes beyond the solution before it that cuts the loss in the same way; those of the first one are all that it takes.
 */
static uint64_t gap_of(const solution *s, uint32_t i)
{
    for (uint32_t j = i; j-- > 0;)
        if (s[j].chain == s[i].chain) return s[i].bytes - s[j].bytes;
    return s[i].bytes;
}

/* Estimates are off by some percent, for each way to cut the loss by others: leaves solutions that are no worse than
 * that, at most `most`, of each way some. s, best: fewest bytes first. */
static uint32_t keep_near(solution *s, uint32_t n_s, const solution *best, uint32_t n_best, uint32_t most)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_s; i++) {
        uint32_t at = 0;
        while (at + 1 < n_best && best[at].seconds > s[i].seconds) at++;
        if ((double)s[i].bytes < NEAR * (double)best[at].bytes) s[n++] = s[i];
    }
    while (n > most) {
        uint32_t least = 0;
        for (uint32_t i = 1; i < n; i++)
            if (gap_of(s, i) < gap_of(s, least)) least = i;
        memmove(&s[least], &s[least + 1], (n - least - 1) * sizeof *s);
        n--;
    }
    return n;
}

/* Leaves those that take fewer seconds than any with fewer bytes, and some that are nearly as good. */
static tow_status choose(tow__arena *arena, struct tow__blocks *b, uint32_t most)
{
    solution *s = b->solutions, *others = tow__arena_alloc(arena, (size_t)b->n + 1, sizeof *others);
    uint32_t n = 0, n_others = 0;
    if (!others) return TOW_OUT_OF_MEMORY;
    if (b->n > 0) qsort(s, b->n, sizeof *s, by_bytes);
    for (uint32_t i = 0; i < b->n; i++)
        if (n == 0 || s[i].seconds < s[n - 1].seconds)
            s[n++] = s[i];
        else
            others[n_others++] = s[i];
    n_others = keep_near(others, n_others, s, n, most / 3);
    n = thin_out(s, n, most - n_others);
    memcpy(s + n, others, n_others * sizeof *s);
    b->n = n + n_others;
    if (b->n > 0) qsort(s, b->n, sizeof *s, by_bytes);
    return TOW_OK;
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
    static const uint32_t n_blocks[] = {1, 2, 4, 6, 8, 12, 16, 24, EVERYWHERE};
    for (uint32_t i = 0, last = 0; i < sizeof n_blocks / sizeof *n_blocks && status == TOW_OK; i++) {
        if (n_blocks[i] == EVERYWHERE && b->values.g->n_equations > SMALL) break;
        chain_of_blocks *c = tow__arena_alloc(arena, 1, sizeof *c);
        if (!c) return TOW_OUT_OF_MEMORY;
        status = n_blocks[i] == EVERYWHERE ? cut_everywhere(arena, &b->values, c)
                                           : cut_evenly(arena, &b->values, n_blocks[i], c);
        if (c->n == last) continue;
        last = c->n;
        if (status == TOW_OK) status = describe_chain(arena, &b->values, c);
        if (status == TOW_OK) status = c->n > 1 ? solve(arena, b, c) : add_sets(arena, b, c);
    }
    if (status == TOW_OK) status = choose(arena, b, most);
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
