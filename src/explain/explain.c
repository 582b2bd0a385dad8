/* The residuals of a gradient in its plan, and the plans that would do without one of them.
 *
 *   where    a residual is the storage whose value is made by the same written equation; the forward pass writes it and
 *            the backward pass reads it
 *   what if  the gradient is made once more with another verdict on that value alone, and planned with the same
 *            options; the difference of the arenas and of the modelled seconds is the answer */
#include <stdlib.h>

#include "src/autodiff/limit/limit.h"
#include "src/autodiff/transformations/residuals.h"
#include "src/base/arithmetic.h"
#include "src/explain/explain.h"
#include "src/plan/pass.h"
#include "src/plan/remat/remat.h"

enum {
    MOST_TRIED = 200, /* plans of one report, those of the largest values */
    MOST_NAMED = 3    /* values kept in the place of another */
};

/* ---- prices ------------------------------------------------------------------------------------------------------ */

typedef struct pricing {
    tow__price price;
    int threads;
} pricing;

static double seconds_of(const tow__price *price, const tow_graph *g, const tow__equation *e)
{
    const pricing *p = price->user;
    tow__pricing one;
    double seconds = 0;
    if (tow__pricing_begin(g->ctx, g, p->threads, &one) == TOW_OK) seconds = one.price.seconds(&one.price, g, e);
    tow__pricing_end(&one);
    return seconds;
}

/* ---- where ------------------------------------------------------------------------------------------------------- */

/* The degree to which storage s fits the residual; 0: it does not. */
static int fit(const tow_program *p, const tow__plan_value *values, const tow_residual *r, const tow__residual_key *key,
               uint32_t s)
{
    const tow__storage *x = &p->storages[s];
    if (values[s].from == TOW__NONE || values[s].backward || x->bytes < r->bytes) return 0;
    if (!x->source || x->source->why.number != key->number || x->source->phase == TOW__RECOMPUTED) return 0;
    return 1 + 2 * (x->bytes == r->bytes) + 4 * (x->made == key->made) + 8 * tow__is_residual(&values[s]);
}

static void place(const tow_program *p, const tow__plan_value *values, uint32_t s, tow_residual_plan *plan)
{
    const uint32_t root = tow__representative(p, s);
    const tow__storage *x = &p->storages[root];
    plan->storage = root;
    plan->bytes = x->bytes;
    plan->first = values[s].from;
    plan->last = values[s].last_read != TOW__NONE ? values[s].last_read : values[s].to;
    plan->stored = x->kind == TOW__S_ARENA;
    plan->held = plan->stored               ? NULL
                 : x->kind == TOW__S_OUTPUT ? "in an array of the caller's, as a result"
                                            : "elsewhere";
    if (plan->stored) plan->offset = x->body->arena_offset + x->offset;
}

/* The storage around a loop in which the rows of residual `key` lie, which an iteration hands to the next one as a
 * carry; TOW__NONE: there is none. */
static uint32_t find_carried(const tow_program *p, const tow__plan_value *values, const tow__residual_key *key)
{
    for (uint32_t s = 0; s < p->n_storages; s++) {
        const tow__storage *x = &p->storages[s];
        const tow__loop *loop = x->body->loop;
        if (!loop || x->kind != TOW__S_CARRY_OUT || x->made != key->made || !x->source) continue;
        if (x->source->why.number != key->number) continue;
        const uint32_t outer = loop->carry[x->index].result;
        if (outer != TOW__NONE && tow__is_residual(&values[outer])) return outer;
    }
    return TOW__NONE;
}

/* Rows of an argument, which a plan reads where they are: those of stacked parameters in one of several loops. */
static bool is_part(const tow_residual *r)
{
    static const char begin[] = "the argument ";
    return r->kind == TOW_RESIDUAL_OUTPUT && r->of && strncmp(r->of, begin, sizeof begin - 1) == 0;
}

static void find_places(const tow_program *p, const tow__plan_value *values, tow_residuals *list,
                        tow__page_residuals *places, uint32_t *storage, bool *taken)
{
    const tow__residuals_memory *memory = list->memory;
    for (size_t i = 0; i < list->count; i++) {
        tow_residual *r = &list->items[i];
        uint32_t best = TOW__NONE;
        int most = 0;
        storage[i] = TOW__NONE;
        r->plan.planned = true;
        r->plan.held = r->kind == TOW_RESIDUAL_ARGUMENT ? "in the caller's array"
                       : r->kind == TOW_RESIDUAL_CONSTANT
                           ? "as a constant of the program"
                           : "in no array of its own: within a tile group, or made where it "
                             "is read";
        for (uint32_t s = 0; r->kind != TOW_RESIDUAL_ARGUMENT && s < p->n_storages; s++) {
            const int fits = taken[s] ? 0 : fit(p, values, r, &memory->keys[i], s);
            if (fits > most) most = fits, best = s;
        }
        const bool carried = best == TOW__NONE && r->iterations > 1;
        if (carried) best = find_carried(p, values, &memory->keys[i]);
        if (best == TOW__NONE && is_part(r)) r->plan.held = "in the caller's array, as a part of it";
        if (best == TOW__NONE) continue;
        place(p, values, best, &r->plan);
        if (carried) continue; /* it shares the array with the carry, which is another residual */
        taken[best] = true;
        storage[i] = best;
    }
    *places = (tow__page_residuals){.list = list, .storage = storage, .n = list->count};
}

/* ---- what if ----------------------------------------------------------------------------------------------------- */

typedef struct trial {
    const tow_program *p;
    tow_compile_options options;
    const char *without[TOW__PASSES + 1];
    tow__machine machine;
    double seconds;
} trial;

/* The options with which a program was compiled, as far as they make its plan. */
static void begin_trial(trial *t, const tow_program *p)
{
    size_t n = 0;
    *t = (trial){.p = p, .options = TOW_COMPILE_OPTIONS(.plan_only = true, .without = t->without)};
    for (size_t i = 0; i < TOW__PASSES; i++)
        if (p->left_out[i] && !tow_pass_required(i)) t->without[n++] = tow_pass_name(i);
    t->options.memory_limit = p->memory_limit;
    t->options.flush_subnormals = p->flush_subnormals;
    t->options.donations = p->donations;
    t->options.n_donations = p->n_donations;
    t->machine = tow__price_machine(p->team.threads);
    t->seconds = tow__modelled_seconds(p, &t->machine);
}

static bool has_key(const tow_residuals *list, const tow__residual_key *key)
{
    const tow__residuals_memory *memory = list->memory;
    for (size_t i = 0; i < list->count; i++)
        if (memory->keys[i].number == key->number && memory->keys[i].made == key->made) return true;
    return false;
}

/* The values that `other` keeps and `list` does not, as text in memory of the list; NULL: there are none. */
static tow_status name_new(const tow_residuals *list, const tow_residuals *other, const char **text)
{
    tow__residuals_memory *memory = list->memory;
    const tow__residuals_memory *others = other->memory;
    tow__string s;
    size_t n = 0;
    tow__string_init(&s, memory->arena.ctx);
    for (size_t i = 0; i < other->count; i++) {
        const tow_residual *r = &other->items[i];
        if (!others->keys[i].made || has_key(list, &others->keys[i]) || n++ >= MOST_NAMED) continue;
        tow__string_add(&s, "%s%s", n > 1 ? ", " : "", r->what);
        if (r->here || r->line) tow__string_add(&s, " from ");
        if (r->here) tow__string_add(&s, "%s", r->here);
        if (!r->here && r->line) tow__string_add(&s, "line %u", r->line);
    }
    if (n > MOST_NAMED) tow__string_add(&s, " and %zu more", n - MOST_NAMED);
    *text = s.length ? tow__arena_string(&memory->arena, s.text) : NULL;
    const bool failed = s.failed || (s.length && !*text);
    tow__string_free(&s);
    return failed ? TOW_OUT_OF_MEMORY : TOW_OK;
}

/* list: to compare with, for what is kept in the place of the value. */
static tow_status try_verdict(const trial *t, uint32_t number, tow_verdict verdict, const tow_residuals *list,
                              tow_residual_plan *plan)
{
    tow_residuals now = {0};
    const tow__origin *o = tow__origin_of(t->p);
    tow_graph *loss = NULL, *gradient = NULL;
    tow_program *other = NULL;
    tow_status status = tow__override_verdict(o->loss, number, verdict, &loss);
    const bool before = tow__verify_gradients(t->p->ctx, t->p->verifies || t->p->ctx->verifies);
    if (status == TOW_OK) status = o->make(o, loss, &gradient);
    tow__verify_gradients(t->p->ctx, before);
    if (status == TOW_OK)
        status = tow__compile_with_choice(t->p->ctx, gradient, &t->options, t->p->team.threads, t->p->choice, &other);
    if (status == TOW_INVALID_ARGUMENT) { /* the region has a limit of its own, which this verdict does not keep */
        status = TOW_OK;
        goto done;
    }
    if (status == TOW_OK) {
        plan->tried = true;
        plan->bytes_more = (int64_t)other->bytes.arena - (int64_t)t->p->bytes.arena;
        plan->seconds_more = tow__modelled_seconds(other, &t->machine) - t->seconds;
    }
    if (status == TOW_OK && verdict == TOW_MUST_RECOMPUTE)
        status = tow__list_residuals(loss, o->n_wrt, o->wrt, true, NULL, &now);
    if (status == TOW_OK && now.memory) status = name_new(list, &now, &plan->instead);
done:
    tow_residuals_free(&now);
    tow_program_free(other);
    tow_graph_release(gradient);
    tow_graph_release(loss);
    return status;
}

/* The number of items with more bytes than item i, or as many and before it. */
static size_t rank_of(const tow_residual *items, size_t n, size_t i)
{
    size_t rank = 0;
    for (size_t j = 0; j < n; j++)
        rank += items[j].bytes > items[i].bytes || (items[j].bytes == items[i].bytes && j < i);
    return rank;
}

static tow_status try_all(const tow_program *p, tow_residuals *list)
{
    const tow__residuals_memory *memory = list->memory;
    trial t;
    tow_status status = TOW_OK;
    begin_trial(&t, p);
    for (size_t i = 0; i < list->count && status == TOW_OK; i++) {
        tow_residual *r = &list->items[i];
        const tow_primitive *made = memory->keys[i].made;
        const bool choice = made && made->kind != TOW__SOURCE && !made->region; /* carries of loops are none */
        if (choice && rank_of(list->items, list->count, i) < MOST_TRIED)
            status = try_verdict(&t, memory->keys[i].number, TOW_MUST_RECOMPUTE, list, &r->plan);
        if (r->plan.tried && p->memory_limit && !r->policy && !is_part(r) && r->verdict == TOW_PREFER_SAVE)
            r->policy = "the memory limit";
    }
    for (size_t i = 0; i < list->again_count && status == TOW_OK; i++)
        if (rank_of(list->again, list->again_count, i) < MOST_TRIED)
            status = try_verdict(&t, memory->again_keys[i].number, TOW_MUST_SAVE, list, &list->again[i].plan);
    return status;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

tow_status tow__explain(const tow_program *p, tow__arena *scratch, tow_residuals *list, tow__page_residuals *places)
{
    const tow__origin *o = tow__origin_of(p);
    pricing price = {.threads = p->team.threads};
    tow_status status = TOW_OUT_OF_MEMORY;
    price.price = (tow__price){seconds_of, &price};
    TRY(tow__list_residuals(o->loss, o->n_wrt, o->wrt, true, &price.price, list));
    const tow__plan_value *values = tow__list_values(p, scratch);
    uint32_t *storage = tow__arena_alloc(scratch, list->count, sizeof *storage);
    bool *taken = tow__arena_alloc(scratch, p->n_storages, sizeof *taken);
    TRY(values && storage && taken ? TOW_OK : TOW_OUT_OF_MEMORY);
    find_places(p, values, list, places, storage, taken);
    for (size_t i = 0; i < list->again_count; i++) list->again[i].plan.planned = true;
    TRY(try_all(p, list));
done:
    if (status != TOW_OK) tow_residuals_free(list);
    return status;
}

tow_status tow_program_explain(const tow_program *p, tow_residuals *residuals)
{
    if (residuals) *residuals = (tow_residuals){0};
    if (!p || !residuals) return tow__missing(p ? p->ctx : NULL, __func__, "a program and a place for the residuals");
    if (!tow__origin_of(p))
        return tow__fail(
            p->ctx, TOW_INVALID_ARGUMENT,
            "tow_program_explain: expected the program of a gradient or of a training step, found another; compile "
            "what tow_grad or tow_value_and_grad makes, or ask tow_saved_residuals");
    TOW__ARITHMETIC(false);
    tow__arena scratch;
    tow__page_residuals places;
    tow__arena_init(&scratch, p->ctx);
    const tow_status status = tow__explain(p, &scratch, residuals, &places);
    tow__arena_free(&scratch);
    return status;
}
