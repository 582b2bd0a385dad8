/* Finds residuals that need not be kept: the unknown graph can make them from its other inputs.
 *
 *   at hand   inputs of the known graph that the unknown graph reads, and residuals
 *
 * A residual is given up if it can be made from what is at hand
 *
 *   by moves, conversions and at most one pass of arithmetic: x / y, where x and y are at hand, or a slice of x; or
 *   by equations of any kind that nothing else in the known graph needs: cos x, where x is at hand, moves from the
 *   known graph to the unknown one, and runs as often as before.
 *
 * So rules of derivatives name the coefficients that they need, and do not ask what else is kept. A residual that is
 * given up serves for no other one, so that each is made in a few steps when it is needed, and not in a chain that
 * keeps all links alive. Residuals on which a policy insists are kept. */
#include "src/autodiff/partial.h"
#include "src/ops/table.h"

enum {
    MOST_EQUATIONS = 8 /* in what makes one residual */
};

typedef enum effort {
    FREE,       /* a view, a conversion, a number, a name */
    ARITHMETIC, /* costs no more than to read the result from memory */
    WORK,       /* runs once or not at all */
    NEVER
} effort;

/* The equations that make a residual from what is at hand: readers before what they read. */
typedef struct making {
    uint32_t equations[MOST_EQUATIONS];
    bool moves[MOST_EQUATIONS]; /* the known graph does without it */
    uint32_t n;
} making;

typedef struct thinning {
    tow__partial *p;
    const tow_graph *k;
    bool arithmetic;
    bool *at_hand, *pinned, *given_up; /* [n_vars] of k */
    bool *compared; /* [n_vars] of k: it stays a residual, with which what is made again is compared */
    uint32_t *uses; /* [n_vars] of k: by equations that still run, and by outputs */
    uint32_t *kept; /* [n_vars] of k: how many residuals it is */
    uint32_t n_given_up;
} thinning;

static uint32_t residual(const thinning *t, uint32_t r)
{
    return t->k->outputs[t->k->n_outputs - t->p->n_residuals + r];
}

static effort effort_of(const tow__equation *e)
{
    const tow_primitive *p = e->primitive;
    if (p->kind == TOW__REGION || p->varies || tow__has_effect(e)) return NEVER;
    if (p->kind == TOW__SOURCE || p == &tow__name_p || p == &tow__convert_p) return FREE;
    if (p->kind == TOW__MOVE && p->view) return FREE;
    return p->arithmetic ? ARITHMETIC : WORK;
}

/* The value of which v is another name, or TOW__INPUT. */
static uint32_t name_of(const tow_graph *k, uint32_t v)
{
    const uint32_t e = k->vars[v].equation;
    return e != TOW__INPUT && k->equations[e].primitive == &tow__name_p ? k->equations[e].in[0] : TOW__INPUT;
}

/* Says whether a residual is at hand, under all of its names. An input that it names is an input as before. */
static void put_at_hand(thinning *t, uint32_t v, bool at_hand)
{
    t->at_hand[v] = at_hand;
    while ((v = name_of(t->k, v)) != TOW__INPUT && t->k->vars[v].equation != TOW__INPUT) t->at_hand[v] = at_hand;
}

/* Adds the equation that makes v, and those that make its operands. False: v cannot be made. */
static bool collect(const thinning *t, uint32_t v, making *m)
{
    const uint32_t producer = t->k->vars[v].equation;
    if (producer == TOW__INPUT || effort_of(&t->k->equations[producer]) == NEVER) return false;
    for (uint32_t i = 0; i < m->n; i++)
        if (m->equations[i] == producer) return true;
    if (m->n == MOST_EQUATIONS) return false;
    m->equations[m->n++] = producer;
    const tow__equation *e = &t->k->equations[producer];
    for (uint32_t i = 0; i < e->n_in; i++)
        if (!t->at_hand[e->in[i]] && !collect(t, e->in[i], m)) return false;
    return true;
}

static void sort_down(making *m)
{
    for (uint32_t i = 1; i < m->n; i++)
        for (uint32_t j = i; j > 0 && m->equations[j - 1] < m->equations[j]; j--) {
            const uint32_t swap = m->equations[j];
            m->equations[j] = m->equations[j - 1];
            m->equations[j - 1] = swap;
        }
}

/* Does nothing in the known graph need result v, once residual r is given up and equations of m that move are gone? */
static bool is_unneeded(const thinning *t, const making *m, uint32_t r, uint32_t v)
{
    uint32_t n = v == r ? t->kept[r] : 0;
    for (uint32_t i = 0; i < m->n; i++) {
        const tow__equation *e = &t->k->equations[m->equations[i]];
        for (uint32_t j = 0; j < e->n_in && m->moves[i]; j++) n += e->in[j] == v;
    }
    return n == t->uses[v];
}

/* Finds out which equations move. False: what would run twice is too much. */
static bool is_worth_it(const thinning *t, making *m, uint32_t r)
{
    uint32_t repeated = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        const tow__equation *e = &t->k->equations[m->equations[i]];
        const effort work = effort_of(e);
        bool moves = true;
        for (uint32_t j = 0; j < e->n_out; j++) moves &= is_unneeded(t, m, r, e->out[j]);
        m->moves[i] = moves;
        if (work != FREE && !t->arithmetic) return false;
        if (work == WORK && !moves) return false;
        repeated += work == ARITHMETIC && !moves;
    }
    return repeated <= 1;
}

static void give_up(thinning *t, const making *m, uint32_t r)
{
    t->given_up[r] = true;
    t->compared[r] = t->k->ctx->verifies && !m->moves[0]; /* the equation that makes it runs twice */
    t->uses[r] -= t->kept[r];
    t->n_given_up++;
    for (uint32_t i = 0; i < m->n; i++) {
        const tow__equation *e = &t->k->equations[m->equations[i]];
        for (uint32_t j = 0; j < e->n_in && m->moves[i]; j++) t->uses[e->in[j]]--;
    }
}

/* False: no memory. */
static bool begin(thinning *t, tow__arena *arena)
{
    const tow_graph *k = t->k;
    t->at_hand = tow__arena_alloc(arena, k->n_vars, sizeof *t->at_hand);
    t->pinned = tow__arena_alloc(arena, k->n_vars, sizeof *t->pinned);
    t->given_up = tow__arena_alloc(arena, k->n_vars, sizeof *t->given_up);
    t->compared = tow__arena_alloc(arena, k->n_vars, sizeof *t->compared);
    t->uses = tow__arena_alloc(arena, k->n_vars, sizeof *t->uses);
    t->kept = tow__arena_alloc(arena, k->n_vars, sizeof *t->kept);
    if (!t->at_hand || !t->pinned || !t->given_up || !t->compared || !t->uses || !t->kept) return false;
    for (uint32_t i = 0; i < k->n_equations; i++)
        for (uint32_t j = 0; j < k->equations[i].n_in; j++) t->uses[k->equations[i].in[j]]++;
    for (uint32_t i = 0; i < k->n_outputs; i++) t->uses[k->outputs[i]]++;
    for (uint32_t r = 0; r < t->p->n_residuals; r++) {
        const uint32_t v = residual(t, r);
        put_at_hand(t, v, true);
        t->kept[v]++;
        t->pinned[v] |= t->p->pinned[r];
    }
    return true;
}

/* Values of k are numbered in the order in which they are made: what comes earlier has been decided. */
static void choose(thinning *t)
{
    for (uint32_t v = 0; v < t->k->n_vars; v++) {
        making m = {.n = 0};
        if (t->kept[v] == 0 || t->pinned[v]) continue;
        put_at_hand(t, v, false);
        bool fine = collect(t, v, &m);
        sort_down(&m);
        if (fine && is_worth_it(t, &m, v))
            give_up(t, &m, v);
        else
            put_at_hand(t, v, true);
    }
}

/* ---- the two graphs anew ----------------------------------------------------------------------------------------- */

/* Records what makes value v of k, unless it is there. values: [k->n_vars] in the new unknown graph. */
static void make(const tow_graph *k, tow_trace *u, tow_value *values, uint32_t v)
{
    const uint32_t producer = k->vars[v].equation;
    if (!tow_is_null(values[v]) || producer == TOW__INPUT || tow__failed(u)) return;
    const tow__equation *e = &k->equations[producer];
    for (uint32_t i = 0; i < e->n_in; i++) make(k, u, values, e->in[i]);
    if (e->primitive == &tow__name_p)
        values[v] = values[e->in[0]];
    else
        tow__rebind_among(u, e, values);
}

/* The residual that input i of the unknown graph is, or n_residuals. */
static uint32_t residual_of_input(const tow__partial *p, uint32_t i)
{
    const uint32_t first = p->unknown->n_inputs - p->n_residuals;
    return i < first ? p->n_residuals : i - first;
}

/* The value that has been made for v, once it is compared with the residual, which `kept` is, if that stays. */
static tow_value compare(const thinning *t, tow_trace *u, uint32_t v, tow_value made, tow_value kept)
{
    const uint32_t producer = t->k->vars[v].equation;
    if (!t->compared[v] || producer == TOW__INPUT) return made;
    made = tow__split_same_bits(u, &t->k->equations[producer], t->k->vars[v].index, made, kept);
    tow__set_source(u, NULL);
    return made;
}

/* The unknown graph with what is given up made directly before its first reader. inputs: [n_inputs] the value of k
 * behind the input, or TOW__INPUT. */
static tow_status without_inputs(const thinning *t, const uint32_t *inputs, tow_graph **result)
{
    const tow_graph *g = t->p->unknown;
    tow_trace *u = tow__trace_begin(g->ctx);
    tow_value *values = u ? tow__trace_alloc(u, g->n_vars, sizeof *values) : NULL;
    tow_value *known = u ? tow__trace_alloc(u, t->k->n_vars, sizeof *known) : NULL;
    tow_value *kept = u ? tow__trace_alloc(u, g->n_vars, sizeof *kept) : NULL;
    tow_value *outputs = u ? tow__trace_alloc(u, g->n_outputs, sizeof *outputs) : NULL;
    uint32_t *made_of = u ? tow__trace_alloc(u, g->n_vars, sizeof *made_of) : NULL; /* 1 + the value of k */
    if (!values || !known || !kept || !outputs || !made_of) {
        tow__trace_abandon(u);
        return TOW_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const uint32_t v = inputs[i];
        if (v != TOW__INPUT && residual_of_input(t->p, i) < t->p->n_residuals && t->given_up[v]) {
            made_of[g->inputs[i]] = v + 1;
            if (t->compared[v]) kept[g->inputs[i]] = tow__input(u, g->vars[g->inputs[i]].type, NULL);
            continue;
        }
        values[g->inputs[i]] = tow__input(u, g->vars[g->inputs[i]].type, g->input_names[i]);
        for (uint32_t w = v; w != TOW__INPUT && tow_is_null(known[w]); w = name_of(t->k, w))
            known[w] = values[g->inputs[i]];
    }
    for (uint32_t i = 0; i <= g->n_equations; i++) {
        const bool end = i == g->n_equations;
        const uint32_t n = end ? g->n_outputs : g->equations[i].n_in, *in = end ? g->outputs : g->equations[i].in;
        for (uint32_t j = 0; j < n; j++) {
            if (made_of[in[j]] == 0 || !tow_is_null(values[in[j]])) continue;
            make(t->k, u, known, made_of[in[j]] - 1);
            values[in[j]] = compare(t, u, made_of[in[j]] - 1, known[made_of[in[j]] - 1], kept[in[j]]);
        }
        if (!end && !tow__rebind_among(u, &g->equations[i], values)) break;
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) outputs[i] = values[g->outputs[i]];
    return tow__trace_end(u, g->n_outputs, outputs, false, result);
}

/* Both graphs without what is given up. */
static tow_status give_up_all(thinning *t, const uint32_t *inputs, tow__arena *arena)
{
    tow__partial *p = t->p;
    const tow_graph *k = t->k;
    const uint32_t n_known = k->n_outputs - p->n_residuals;
    tow_graph *unknown = NULL, *known = NULL;
    bool *stays = tow__arena_alloc(arena, k->n_outputs, sizeof *stays);
    uint32_t n = 0;
    tow_status status = stays ? without_inputs(t, inputs, &unknown) : TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; stays && i < k->n_outputs; i++)
        stays[i] = i < n_known || !t->given_up[k->outputs[i]] || t->compared[k->outputs[i]];
    if (status == TOW_OK) status = tow__dce(k, stays, false, NULL, &known);
    if (status != TOW_OK) {
        tow_graph_release(unknown);
        return status;
    }
    for (uint32_t r = 0; r < p->n_residuals; r++)
        if (stays[n_known + r]) p->pinned[n++] = p->pinned[r];
    p->n_residuals = n;
    tow_graph_release(p->known);
    tow_graph_release(p->unknown);
    p->known = known, p->unknown = unknown;
    status = tow__verify(known, "thinning (known)");
    return status == TOW_OK ? tow__verify(unknown, "thinning (unknown)") : status;
}

tow_status tow__thin(tow__partial *p, uint32_t n_inputs, const bool *in_unknown, bool arithmetic)
{
    tow__arena arena;
    thinning t = {.p = p, .k = p->known, .arithmetic = arithmetic};
    if (p->n_residuals == 0) return TOW_OK;
    tow__arena_init(&arena, p->known->ctx);
    uint32_t *inputs = tow__arena_alloc(&arena, p->unknown->n_inputs, sizeof *inputs), n = 0, known = 0;
    tow_status status = inputs && begin(&t, &arena) ? TOW_OK : TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; status == TOW_OK && i < n_inputs; i++) {
        const uint32_t v = in_unknown[i] ? TOW__INPUT : t.k->inputs[known++];
        if (v != TOW__INPUT) t.at_hand[v] |= p->input_used[i];
        if (p->input_used[i]) inputs[n++] = v;
    }
    for (uint32_t r = 0; status == TOW_OK && r < p->n_residuals; r++) inputs[n++] = residual(&t, r);
    if (status == TOW_OK) choose(&t);
    if (status == TOW_OK && t.n_given_up > 0) status = give_up_all(&t, inputs, &arena);
    tow__arena_free(&arena);
    return status;
}
