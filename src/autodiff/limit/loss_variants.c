/* The variants of a loss. Without scans they are its plans of blocks. Otherwise, in order, fewer bytes from one to the
 * next, by estimates that only order them:
 *
 * A site is a scan of the loss that has no schedule of its own. A scan's choices
 * mix the sets of its body: the last iterations keep the larger one, because their values are read first, and the first
 * ones the next smaller one.
 *
 *   set 0      0 0 0 0 0 0  ->  1 0 0 0 0 0  -> ... ->  1 1 1 1 1 1  ->  2 1 1 1 1 1  -> ... set of each iteration
 *   grouped    behind the last of them, if carries take more than the values of one iteration
 *   slots      behind it, of long scans: schedules that keep fewer states and run iterations more often
 *
 * With several sites, that one goes on which frees most bytes for a second. Of all choices so many are kept that their
 * bytes differ by about the same amounts. */
#include "src/autodiff/limit/limit.h"
#include "src/autodiff/regions/schedule.h"
#include "src/graph/region.h"

enum {
    MOST_SITES = 8,
    MOST_SETS = 8,    /* of the body of a scan */
    MOST_BLOCKS = 32, /* plans of blocks of a loss without scans */
    MOST_VARIANTS = 32,
    LONG_SCAN = 64,      /* iterations from which on schedules are choices */
    MOST_REPETITIONS = 5 /* of iterations, in schedules: from 2 on */
};

/* The first `count` iterations keep set `set`, the others set `rest`. group: of those first iterations. slots: of a
 * schedule in place of sets; 0: none. */
typedef struct choice {
    uint32_t set, rest;
    int64_t count, group, slots;
    double bytes, seconds;
} choice;

typedef struct site {
    uint32_t at; /* equation */
    tow__cuts cuts;
    tow__kept_sets sets;
    choice *choices;
    uint32_t n;
} site;

struct tow__loss_variants {
    tow_context *ctx;
    tow__arena arena;
    tow_graph *loss;
    const tow__price *price; /* while the list is made */
    tow__string note;
    tow__block_plans blocks; /* of a loss without scans */
    site sites[MOST_SITES];
    uint32_t n_sites;
    uint32_t (*state)[MOST_SITES]; /* [n] the choice of each site */
    uint32_t n;
};

static const tow__equation *equation_of(const tow__loss_variants *l, const site *s)
{
    return &l->loss->equations[s->at];
}

/* ---- choices of a site ------------------------------------------------------------------------------------------- */

static size_t carry_bytes(const tow__equation *e)
{
    const tow__scan_params *p = e->params;
    size_t bytes = 0;
    for (uint32_t j = 0; j < (uint64_t)p->carry; j++) {
        const uint32_t in = p->body->inputs[(uint32_t)p->consts + j];
        if (in != p->body->outputs[j]) bytes += tow_type_bytes(p->body->vars[in].type);
    }
    return bytes;
}

/* Do rows of the scan have room for one more axis? */
static bool may_group(const tow__equation *e)
{
    const tow__scan_params *p = e->params;
    for (uint32_t i = (uint32_t)(p->consts + p->carry); i < p->body->n_inputs; i++)
        if (p->body->vars[p->body->inputs[i]].type.rank + 2 > TOW_MAX_RANK) return false;
    for (uint32_t j = (uint32_t)p->carry; j < p->body->n_outputs; j++)
        if (p->body->vars[p->body->outputs[j]].type.rank + 2 > TOW_MAX_RANK) return false;
    return true;
}

/* The size of groups that keeps the fewest bytes: carries of n / g groups, and all values of one of g iterations. */
static int64_t best_group(int64_t n, double carry, double working)
{
    int64_t best = 1;
    double least = (double)n * carry + working;
    for (int64_t g = 2; g <= n / 2; g++) {
        const double bytes = (double)(n / g) * carry + (double)g * (carry + working);
        if (n % g == 0 && bytes < least) best = g, least = bytes;
    }
    return best;
}

/* The least number of states with which n iterations are reversed in so many repetitions. */
static int64_t least_slots(int64_t n, int64_t repetitions)
{
    int64_t slots = 1;
    while (tow__binomial_reach(slots, repetitions, n) < n) slots++;
    return slots;
}

/* Adds schedules of a long scan that keep less than the choice before. */
static void add_schedules(site *s, int64_t length, double carry)
{
    const double again = s->sets.sets[s->sets.n - 1].seconds; /* to make one iteration again */
    for (int64_t t = 2; t <= MOST_REPETITIONS && length >= LONG_SCAN; t++) {
        const int64_t slots = least_slots(length, t);
        const double bytes = (double)(slots + 1 - length) * carry;
        if (bytes >= s->choices[s->n - 1].bytes) continue;
        const double steps = (double)tow__binomial_steps(length, slots);
        s->choices[s->n++] = (choice){.count = length, .slots = slots, .bytes = bytes, .seconds = steps * again};
    }
}

static tow_status list_choices(tow__loss_variants *l, site *s)
{
    const tow__kept_set *sets = s->sets.sets;
    const tow__equation *e = equation_of(l, s);
    const int64_t length = ((const tow__scan_params *)e->params)->length;
    const int64_t steps = s->cuts.why_not ? 1 : length < 16 ? length : 16;
    const double carry = (double)carry_bytes(e);
    s->choices = tow__arena_alloc(
        &l->arena, (size_t)(s->sets.n * (uint64_t)steps) + (size_t)steps + 2 + MOST_REPETITIONS, sizeof(choice));
    if (!s->choices) return TOW_OUT_OF_MEMORY;
    s->choices[s->n++] = (choice){.bytes = (double)length * (double)sets[0].bytes};
    for (uint32_t i = 1; i < s->sets.n; i++)
        for (int64_t k = 1; k <= steps; k++) {
            const int64_t count = length * k / steps;
            s->choices[s->n++] = (choice){
                .set = i,
                .rest = i - 1,
                .count = count,
                .bytes = (double)count * (double)sets[i].bytes + (double)(length - count) * (double)sets[i - 1].bytes,
                .seconds = (double)count * sets[i].seconds + (double)(length - count) * sets[i - 1].seconds};
        }
    const int64_t group =
        s->cuts.groups && may_group(e) && length >= 4 ? best_group(length, carry, (double)s->sets.working) : 1;
    if (group > 1) {
        const tow__kept_set *least = &sets[s->sets.n - 1];
        s->choices[s->n++] = (choice){.count = length,
                                      .group = group,
                                      .bytes = (double)(length / group) * carry - (double)length * carry,
                                      .seconds = (double)length * least->seconds};
    }
    if (e) add_schedules(s, length, carry);
    return TOW_OK;
}

/* ---- notes ------------------------------------------------------------------------------------------------------- */

static void add_note(tow__loss_variants *l, const site *s)
{
    const tow__equation *e = equation_of(l, s);
    const char *scope = e->source.scope, *here = e->source.here;
    tow__string_add(&l->note,
                    "the scan of %lld iterations%s%s%s%s is not cut into runs: %s, whose cotangents would be summed in "
                    "another order\n",
                    (long long)((const tow__scan_params *)e->params)->length, scope ? " in " : "", scope ? scope : "",
                    here ? " at " : "", here ? here : "", s->cuts.why_not);
}

/* ---- sites ------------------------------------------------------------------------------------------------------- */

static tow_status add_site(tow__loss_variants *l, uint32_t at)
{
    site *s = &l->sites[l->n_sites];
    const tow__equation *e = &l->loss->equations[at];
    *s = (site){.at = at};
    tow_status status = tow__scan_cuts(l->loss, e, &s->cuts);
    if (status == TOW_OK)
        status = tow__find_kept_sets(&l->arena, ((const tow__scan_params *)e->params)->body, l->price, true, MOST_SETS,
                                     &s->sets);
    if (status == TOW_OK && s->sets.n > 0) status = list_choices(l, s);
    if (status == TOW_OK && s->n > 1) {
        if (s->cuts.why_not) add_note(l, s);
        l->n_sites++;
        return TOW_OK;
    }
    tow_graph_release(s->sets.body);
    *s = (site){0};
    if (status == TOW_OUT_OF_MEMORY || status == TOW_CANCELLED) return status;
    return TOW_OK; /* what has no derivative stays as it is */
}

static bool has_scan(const tow_graph *g)
{
    for (uint32_t k = 0; k < g->n_equations; k++) {
        const tow__equation *e = &g->equations[k];
        if (tow__is_loop(e->primitive)) return true;
        for (uint32_t i = 0; i < tow__nested_count(e->primitive, e->params); i++)
            if (has_scan(tow__nested(e->primitive, e->params, i))) return true;
    }
    return false;
}

/* Lists the plans of a loss without scans. A loss that has no derivative stays as it is. */
static tow_status find_blocks(tow__loss_variants *l)
{
    tow_status status = tow__find_block_plans(&l->arena, l->loss, l->price, MOST_BLOCKS, &l->blocks);
    if (status == TOW_OK || status == TOW_OUT_OF_MEMORY || status == TOW_CANCELLED) return status;
    l->blocks.n = 0;
    return TOW_OK;
}

static tow_status find_sites(tow__loss_variants *l)
{
    tow_status status = TOW_OK;
    for (uint32_t k = 0; k < l->loss->n_equations && l->n_sites < MOST_SITES && status == TOW_OK; k++) {
        const tow__equation *e = &l->loss->equations[k];
        if (!tow__is_loop(e->primitive)) continue;
        const tow__scan_params *p = e->params;
        if (p->length > 1 && !p->slots && !p->stops && !p->body->has_effects) status = add_site(l, k);
    }
    if (status == TOW_OK && l->n_sites == 0 && !has_scan(l->loss) && !l->loss->has_effects) status = find_blocks(l);
    return status;
}

/* ---- the sequence ------------------------------------------------------------------------------------------------ */

/* The site whose next choice frees most bytes for a second; MOST_SITES: none is left. */
static uint32_t next_site(const tow__loss_variants *l, const uint32_t *state)
{
    uint32_t best = MOST_SITES;
    double least = 0;
    for (uint32_t i = 0; i < l->n_sites; i++) {
        const site *s = &l->sites[i];
        if (state[i] + 1 >= s->n) continue;
        const choice *now = &s->choices[state[i]], *next = now + 1;
        const double freed = now->bytes - next->bytes, price = (next->seconds - now->seconds) / (freed > 1 ? freed : 1);
        if (best == MOST_SITES || price < least) best = i, least = price;
    }
    return best;
}

static double bytes_of(const tow__loss_variants *l, const uint32_t *state)
{
    double bytes = 0;
    for (uint32_t i = 0; i < l->n_sites; i++) bytes += l->sites[i].choices[state[i]].bytes;
    return bytes;
}

/* Variant 0 is the loss as it is, variant 1 keeps all, or they are that and the plans of blocks. */
static tow_status list_states(tow__loss_variants *l)
{
    uint32_t now[MOST_SITES] = {0}, at;
    l->state = tow__arena_alloc(&l->arena, MOST_VARIANTS + 4, sizeof *l->state);
    if (!l->state) return TOW_OUT_OF_MEMORY;
    l->n = 1 + l->blocks.n;
    if (l->n_sites == 0) return TOW_OK;
    memset(l->state[l->n++], 0, sizeof now);
    const double most = bytes_of(l, now);
    double last = most;
    while ((at = next_site(l, now)) != MOST_SITES) {
        now[at]++;
        const bool end = next_site(l, now) == MOST_SITES,
                   is_last = l->sites[at].choices[now[at]].group > 1 || l->sites[at].choices[now[at]].slots > 0;
        const double bytes = bytes_of(l, now);
        if (!end && !is_last && last - bytes < most / MOST_VARIANTS) continue;
        if (l->n < MOST_VARIANTS + 2 || end)
            memcpy(l->state[l->n < MOST_VARIANTS + 3 ? l->n++ : l->n - 1], now, sizeof now);
        last = bytes;
    }
    return TOW_OK;
}

tow_status tow__loss_variants_create(const tow_graph *loss, const tow__price *price, tow__loss_variants **list)
{
    tow__loss_variants *l = tow__alloc(loss->ctx, 1, sizeof *l);
    *list = NULL;
    if (!l) return TOW_OUT_OF_MEMORY;
    l->ctx = loss->ctx;
    l->price = price;
    tow__arena_init(&l->arena, loss->ctx);
    tow__string_init(&l->note, loss->ctx);
    tow_status status = tow_graph_dce(loss, &l->loss);
    if (status == TOW_OK) status = find_sites(l);
    if (status == TOW_OK) status = l->note.failed ? TOW_OUT_OF_MEMORY : list_states(l);
    l->price = NULL;
    if (status == TOW_OK)
        *list = l;
    else
        tow__loss_variants_free(l);
    return status;
}

void tow__loss_variants_free(tow__loss_variants *l)
{
    if (!l) return;
    for (uint32_t i = 0; i < l->n_sites; i++) tow_graph_release(l->sites[i].sets.body);
    tow_graph_release(l->blocks.body);
    tow_graph_release(l->loss);
    tow__string_free(&l->note);
    tow__arena_free(&l->arena);
    tow__free(l->ctx, l, 1, sizeof *l);
}

uint32_t tow__loss_variants_count(const tow__loss_variants *l) { return l->n; }

const char *tow__loss_variants_note(const tow__loss_variants *l) { return l->note.length ? l->note.text : ""; }

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

typedef struct recording {
    const tow__loss_variants *l;
    const uint32_t *state;
} recording;

static void record_site(tow_trace *t, const site *s, const choice *c, const tow__equation *e, const tow_value *x,
                        tow_value *y)
{
    const tow__scan_params *p = e->params;
    if (c->slots > 0) {
        tow__scan_params scheduled = *p;
        scheduled.slots = c->slots;
        tow__bind(t, e->primitive, &scheduled, e->n_in, x, e->n_out, y);
        return;
    }
    tow_graph *few = NULL, *many = NULL;
    tow_status status = tow__keep_set(&s->sets, c->set, &few);
    if (status == TOW_OK) status = tow__keep_set(&s->sets, c->rest, &many);
    const tow__scan_run runs[] = {{c->count, few, c->group}, {p->length - c->count, many, 0}};
    const uint32_t first = c->count == 0, n = 2u - first - (c->count == p->length);
    if (status == TOW_OK)
        tow__record_scan_runs(t, e, runs + first, n, x, y);
    else
        tow__adopt_error(t);
    tow_graph_release(few);
    tow_graph_release(many);
}

static void record(tow_trace *t, const tow_graph *g, const tow__equation *e, tow_value *x, tow_value *y,
                   const void *user)
{
    const recording *r = user;
    for (uint32_t i = 0; i < r->l->n_sites; i++) {
        const site *s = &r->l->sites[i];
        if (&g->equations[s->at] != e) continue;
        record_site(t, s, &s->choices[r->state[i]], e, x, y);
        return;
    }
    tow__rebind(t, e, x, y);
}

tow_status tow__loss_variant(const tow__loss_variants *l, uint32_t i, tow_graph **graph)
{
    const tow_graph *g = l->loss;
    *graph = NULL;
    if (i == 0) {
        *graph = tow__graph_share(g);
        return TOW_OK;
    }
    if (l->blocks.n > 0) return tow__block_plan(&l->blocks, i - 1, graph);
    const recording r = {l, l->state[i]};
    return tow__copy_by(g, record, &r, graph);
}
