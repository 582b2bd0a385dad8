/* Partial evaluation of cond: one choice becomes two, and what crosses between them.
 *
 *   known choice    (index, known operands)          -> (known results, slots)
 *   unknown choice  (index, operands, slots)         -> results
 *
 * A result is unknown if it is so in any branch. Residuals of branches exclude each other, so they share slots:
 *
 *   a residual that is a known result         no slot but the result, if no other branch could share a slot with it
 *   a constant                                no slot: it is made again
 *   types that residuals of all branches have one slot for one of each
 *   what is left of an element type           slots that residuals of one type share, if these together are not larger than
 *                                             what the branch keeps that needs most; else one slot: an array with room
 *                                             for that branch, in which residuals lie one behind the other
 *
 * so slots take no more bytes than the residuals of one branch do, if they are of one element type. A branch leaves slots
 * that are not its own empty, which costs nothing. */
#include "src/autodiff/partial.h"
#include "src/autodiff/reach.h"
#include "src/ops/rules.h"

/* Where residual r of a branch is found in the unknown choice. */
typedef struct slot_of {
    bool is_result;              /* known result `index` of the known choice, else slot `index` */
    const tow__equation *source; /* not NULL: a constant */
    bool joined;                 /* the slot holds several residuals: this one from element `start` on */
    uint32_t index;
    int64_t start;
    bool placed;
} slot_of;

typedef struct choice {
    tow__split *s;
    const tow__equation *e;
    const tow__graphs *branches;
    uint32_t n_in, n_out; /* of the branches */
    bool *unknown;        /* [n_in] */
    bool *out_unknown;    /* [n_out] in any branch */
    bool *staged;         /* [n_out] the unknown choice has it */
    bool *used;           /* [n_in] an operand of the unknown choice */
    tow__partial *parts;  /* [branches] */
    slot_of **slots;      /* [branches][residuals] */
    tow_type *types;      /* [n_slots] */
    uint32_t n_slots, n_known;
} choice;

/* ---- the split of the branches ----------------------------------------------------------------------------------- */

static bool find_unknown_results(choice *c)
{
    tow_context *ctx = c->s->g->ctx;
    bool *in = tow__trace_alloc(c->s->k, (size_t)c->e->n_in + 1, sizeof *in);
    if (!in) return false;
    tow__arena arena;
    tow__arena_init(&arena, ctx);
    const tow__reach_walk walk = {.ctx = ctx, .arena = &arena};
    tow__reach *states = NULL;
    for (uint32_t i = 0; i < c->n_in; i++) in[1 + i] = c->unknown[i];
    tow_status status = tow__reach_region(&walk, c->e, &states, in, c->out_unknown);
    tow__arena_free(&arena);
    if (status != TOW_OK) tow__adopt_error(c->s->k);
    return status == TOW_OK;
}

static bool split_branches(choice *c)
{
    tow__split *s = c->s;
    tow__split_region *known = tow__split_remembered(s, c->e);
    bool *available = tow__trace_alloc(s->k, c->n_in, sizeof *available);
    if (!available) return false;
    if (known && known->done) {
        c->parts = known->branches;
        return true;
    }
    c->parts = known ? tow__arena_alloc(&s->memo->arena, c->branches->n, sizeof *c->parts)
                     : tow__trace_alloc(s->k, c->branches->n, sizeof *c->parts);
    if (!c->parts) return false;
    if (known) known->branches = c->parts, known->n_branches = c->branches->n;
    for (uint32_t i = 0; i < c->n_in; i++) available[i] = true;
    for (uint32_t k = 0; k < c->branches->n; k++)
        if (tow__partial_eval(c->branches->v[k], c->unknown, available, tow__manner_of(s), c->out_unknown, NULL,
                              &c->parts[k]) != TOW_OK ||
            tow__thin(&c->parts[k], c->n_in, c->unknown, s->runs_once) != TOW_OK) {
            tow__adopt_error(s->u);
            return false;
        }
    if (known) known->done = true;
    return true;
}

/* A known result that every branch can make again is a result of the unknown choice, too. */
static void find_staged(choice *c)
{
    for (uint32_t i = 0; i < c->n_out; i++) {
        c->staged[i] = true;
        for (uint32_t k = 0; k < c->branches->n; k++) c->staged[i] &= c->parts[k].out_staged[i];
        c->n_known += !c->out_unknown[i];
    }
    for (uint32_t i = 0; i < c->n_in; i++)
        for (uint32_t k = 0; k < c->branches->n; k++) c->used[i] |= c->parts[k].input_used[i];
}

/* ---- slots ------------------------------------------------------------------------------------------------------- */

static uint32_t residual_var(const tow__partial *p, uint32_t r)
{
    return p->known->outputs[p->known->n_outputs - p->n_residuals + r];
}

static tow_type residual_type(const tow__partial *p, uint32_t r) { return p->known->vars[residual_var(p, r)].type; }

/* The known result of the choice that residual r of branch k is, or TOW__INPUT. */
static uint32_t result_behind(const choice *c, uint32_t k, uint32_t r)
{
    const tow__partial *p = &c->parts[k];
    uint32_t at = 0, index = 0;
    for (uint32_t i = 0; i < c->n_out; i++) {
        if (!p->out_unknown[i] && !c->out_unknown[i] && p->known->outputs[at] == residual_var(p, r)) return index;
        at += !p->out_unknown[i];
        index += !c->out_unknown[i];
    }
    return TOW__INPUT;
}

/* Does branch k have known result `index` as a residual? */
static bool keeps_result(const choice *c, uint32_t k, uint32_t index)
{
    for (uint32_t r = 0; r < c->parts[k].n_residuals; r++)
        if (result_behind(c, k, r) == index) return true;
    return false;
}

/* Does a branch other than k have residuals of this element type that have no place yet? */
static bool others_need_room(const choice *c, uint32_t k, tow_dtype dtype)
{
    for (uint32_t other = 0; other < c->branches->n; other++)
        for (uint32_t r = 0; other != k && r < c->parts[other].n_residuals; r++)
            if (!c->slots[other][r].placed && residual_type(&c->parts[other], r).dtype == dtype) return true;
    return false;
}

/* Constants; and known results, which need no slot if each branch keeps them (`all`), or if no other branch has something
 * to put into the slot. */
static void place_results(choice *c, uint32_t k, bool all)
{
    const tow__partial *p = &c->parts[k];
    for (uint32_t r = 0; r < p->n_residuals; r++) {
        const tow__equation *source = tow__source_of(p->known, residual_var(p, r));
        uint32_t index = result_behind(c, k, r);
        if (c->slots[k][r].placed) continue;
        if (source) c->slots[k][r] = (slot_of){.source = source, .placed = true};
        if (source || index == TOW__INPUT) continue;
        bool fits = all || !others_need_room(c, k, residual_type(p, r).dtype);
        for (uint32_t other = 0; all && other < c->branches->n; other++) fits &= keeps_result(c, other, index);
        if (fits) c->slots[k][r] = (slot_of){.is_result = true, .index = index, .placed = true};
    }
}

/* A residual of the branch of this type that has no place yet, or TOW__INPUT. */
static uint32_t find_unplaced(const choice *c, uint32_t k, tow_type type)
{
    for (uint32_t r = 0; r < c->parts[k].n_residuals; r++)
        if (!c->slots[k][r].placed && tow_type_equal(residual_type(&c->parts[k], r), type)) return r;
    return TOW__INPUT;
}

/* One slot for residuals of one type that each branch has. */
static void place_common(choice *c)
{
    for (uint32_t r = 0; r < c->parts[0].n_residuals; r++) {
        if (c->slots[0][r].placed) continue;
        tow_type type = residual_type(&c->parts[0], r);
        bool all = true;
        for (uint32_t k = 0; k < c->branches->n; k++) all &= find_unplaced(c, k, type) != TOW__INPUT;
        for (uint32_t k = 0; all && k < c->branches->n; k++)
            c->slots[k][find_unplaced(c, k, type)] = (slot_of){.index = c->n_slots, .placed = true};
        if (all) c->types[c->n_slots++] = type;
    }
}

/* Elements of `dtype` without a place in branch k. */
static int64_t count_left(const choice *c, uint32_t k, tow_dtype dtype)
{
    int64_t n = 0;
    for (uint32_t r = 0; r < c->parts[k].n_residuals; r++) {
        tow_type type = residual_type(&c->parts[k], r);
        if (!c->slots[k][r].placed && type.dtype == dtype) n += tow_type_count(type);
    }
    return n;
}

/* Residuals before r of branch k that have its type and no place yet; r n_residuals: all of `type`. */
static uint32_t count_before(const choice *c, uint32_t k, uint32_t r, tow_type type)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r; i++)
        n += !c->slots[k][i].placed && tow_type_equal(residual_type(&c->parts[k], i), type);
    return n;
}

/* Elements of all slots if those of each type were its own. */
static int64_t count_typed(const choice *c, tow_dtype dtype)
{
    int64_t elements = 0;
    for (uint32_t k = 0; k < c->branches->n; k++)
        for (uint32_t r = 0; r < c->parts[k].n_residuals; r++) {
            const tow_type type = residual_type(&c->parts[k], r);
            if (c->slots[k][r].placed || type.dtype != dtype) continue;
            const uint32_t before = count_before(c, k, r, type);
            bool more = true; /* than any earlier branch has */
            for (uint32_t i = 0; i < k; i++) more &= count_before(c, i, c->parts[i].n_residuals, type) <= before;
            if (more) elements += tow_type_count(type);
        }
    return elements;
}

/* A slot for each residual that has none, which a residual of the same type of each other branch shares. */
static void place_typed(choice *c, tow_dtype dtype)
{
    for (uint32_t k = 0; k < c->branches->n; k++)
        for (uint32_t r = 0; r < c->parts[k].n_residuals; r++) {
            const tow_type type = residual_type(&c->parts[k], r);
            if (c->slots[k][r].placed || type.dtype != dtype) continue;
            for (uint32_t i = k; i < c->branches->n; i++) {
                const uint32_t other = find_unplaced(c, i, type);
                if (other != TOW__INPUT) c->slots[i][other] = (slot_of){.index = c->n_slots, .placed = true};
            }
            c->types[c->n_slots++] = type;
        }
}

/* One slot, in which the residuals of a branch lie one behind the other. */
static void place_joined(choice *c, tow_dtype dtype, int64_t most)
{
    for (uint32_t k = 0; k < c->branches->n; k++) {
        int64_t start = 0;
        for (uint32_t r = 0; r < c->parts[k].n_residuals; r++) {
            tow_type type = residual_type(&c->parts[k], r);
            if (c->slots[k][r].placed || type.dtype != dtype) continue;
            c->slots[k][r] = (slot_of){.joined = true, .index = c->n_slots, .start = start, .placed = true};
            start += tow_type_count(type);
        }
    }
    c->types[c->n_slots++] = tow_make_type(dtype, 1, &most);
}

/* What is left of one element type. */
static void place_rest(choice *c, tow_dtype dtype)
{
    int64_t most = 0;
    for (uint32_t k = 0; k < c->branches->n; k++) {
        const int64_t n = count_left(c, k, dtype);
        most = n > most ? n : most;
    }
    if (count_typed(c, dtype) <= most)
        place_typed(c, dtype);
    else
        place_joined(c, dtype, most);
}

static bool place_residuals(choice *c)
{
    tow_trace *t = c->s->k;
    size_t most = TOW_DTYPE_COUNT;
    c->slots = tow__trace_alloc(t, c->branches->n, sizeof *c->slots);
    for (uint32_t k = 0; k < c->branches->n; k++) most += c->parts[k].n_residuals;
    c->types = tow__trace_alloc(t, most, sizeof *c->types);
    if (!c->slots || !c->types) return false;
    for (uint32_t k = 0; k < c->branches->n; k++) {
        c->slots[k] = tow__trace_alloc(t, c->parts[k].n_residuals, sizeof *c->slots[k]);
        if (!c->slots[k]) return false;
    }
    for (uint32_t k = 0; k < c->branches->n; k++) place_results(c, k, true);
    place_common(c);
    for (uint32_t k = 0; k < c->branches->n; k++) place_results(c, k, false);
    for (int dtype = 0; dtype < TOW_DTYPE_COUNT; dtype++) place_rest(c, (tow_dtype)dtype);
    return true;
}

static tow_value empty_of(tow_trace *t, tow_type type)
{
    tow__empty_params p = {.dtype = type.dtype, .shape = tow__ints_of(type.rank, type.dims)};
    return tow__bind1(t, &tow__empty_p, &p, 0, NULL);
}

/* What branch k puts into a slot. res: its residuals. */
static tow_value fill_slot(const choice *c, tow_trace *t, uint32_t k, uint32_t slot, const tow_value *res)
{
    const tow__partial *p = &c->parts[k];
    tow_value *pieces = tow__trace_alloc(t, (size_t)p->n_residuals + 1, sizeof *pieces);
    size_t n = 0;
    int64_t end = 0, flat = -1;
    for (uint32_t r = 0; pieces && r < p->n_residuals; r++) {
        const slot_of *at = &c->slots[k][r];
        if (at->is_result || at->source || at->index != slot) continue;
        if (!at->joined) return res[r];
        pieces[n++] = tow_reshape(res[r], 1, &flat);
        end += tow_type_count(residual_type(p, r));
    }
    if (!pieces || n == 0) return empty_of(t, c->types[slot]);
    if (end < c->types[slot].dims[0])
        pieces[n++] = empty_of(t, tow_make_type(c->types[slot].dtype, 1, (int64_t[]){c->types[slot].dims[0] - end}));
    return n == 1 ? pieces[0] : tow_concatenate(n, pieces, 0);
}

/* ---- the two choices --------------------------------------------------------------------------------------------- */

/* (known operands) -> (known results, slots) */
static tow_status known_branch(const choice *c, uint32_t k, tow_graph **result)
{
    const tow__partial *p = &c->parts[k];
    tow_value *in, *out;
    tow_trace *t = tow__trace_begin_over(p->known, &in, &out);
    if (!t) return TOW_OUT_OF_MEMORY;
    tow_value *all = tow__trace_alloc(t, (size_t)c->n_known + c->n_slots, sizeof *all);
    for (uint32_t i = 0; i < p->known->n_inputs; i++) in[i] = tow__input(t, tow_graph_input_type(p->known, i), NULL);
    tow__inline(t, p->known, in, out);
    size_t n = 0, at = 0;
    for (uint32_t i = 0; all && i < c->n_out; i++) {
        if (!c->out_unknown[i]) all[n++] = out[at];
        at += !p->out_unknown[i];
    }
    for (uint32_t slot = 0; all && slot < c->n_slots; slot++) all[n++] = fill_slot(c, t, k, slot, out + at);
    return tow__trace_end(t, n, all, true, result);
}

/* Residual r of branch k, from the known results and the slots. */
static tow_value take_residual(const choice *c, tow_trace *t, uint32_t k, uint32_t r, const tow_value *results,
                               const tow_value *slots)
{
    const slot_of *at = &c->slots[k][r];
    tow_type type = residual_type(&c->parts[k], r);
    tow_value constant;
    if (at->source) {
        tow__rebind(t, at->source, NULL, &constant);
        return constant;
    }
    if (at->is_result) return results[at->index];
    if (!at->joined) return slots[at->index];
    return tow_reshape(tow_slice_axis(slots[at->index], 0, at->start, at->start + tow_type_count(type)), type.rank,
                       type.dims);
}

/* (used operands, known results, slots) -> staged results */
static tow_status unknown_branch(const choice *c, uint32_t k, tow_graph **result)
{
    const tow__partial *p = &c->parts[k];
    tow_value *in, *out;
    tow_trace *t = tow__trace_begin_over(p->unknown, &in, &out);
    if (!t) return TOW_OUT_OF_MEMORY;
    tow_value *values = tow__trace_alloc(t, (size_t)c->n_known + c->n_slots, sizeof *values);
    size_t n = 0, m = 0;
    for (uint32_t i = 0; i < c->n_in; i++) {
        if (!c->used[i]) continue;
        tow_value v = tow__input(t, tow_graph_input_type(c->branches->v[k], i), NULL);
        if (p->input_used[i]) in[n++] = v;
    }
    for (uint32_t i = 0; values && i < c->n_out; i++)
        if (!c->out_unknown[i]) values[m++] = tow__input(t, tow_graph_output_type(c->branches->v[k], i), NULL);
    for (uint32_t i = 0; values && i < c->n_slots; i++) values[m++] = tow__input(t, c->types[i], NULL);
    for (uint32_t r = 0; values && r < p->n_residuals; r++)
        in[n++] = take_residual(c, t, k, r, values, values + c->n_known);
    tow__inline(t, p->unknown, in, out);
    n = m = 0;
    for (uint32_t i = 0; i < c->n_out; i++) {
        if (c->staged[i]) out[m++] = out[n];
        n += p->out_staged[i];
    }
    return tow__trace_end(t, m, out, false, result);
}

/* All branches of one of the two; false: an error. */
static bool make_branches(choice *c, tow_status (*make)(const choice *, uint32_t, tow_graph **), tow__graphs *result)
{
    result->v = tow__trace_alloc(c->s->k, c->branches->n, sizeof *result->v);
    for (; result->v && result->n < c->branches->n; result->n++)
        if (make(c, result->n, &result->v[result->n]) != TOW_OK) {
            tow__adopt_error(c->s->k);
            return false;
        }
    return result->v != NULL;
}

static void release_branches(const tow__graphs *branches)
{
    for (uint32_t k = 0; k < branches->n; k++) tow_graph_release(branches->v[k]);
}

/* results: [n_known + n_slots] in the known trace. */
static bool bind_known(choice *c, tow_value *results)
{
    tow__split *s = c->s;
    tow__cond_params params = {.branches.n = 0};
    tow_value *in = tow__trace_alloc(s->k, c->e->n_in, sizeof *in);
    uint32_t n = 0, n_out = c->n_known + c->n_slots;
    if (!in) return false;
    in[n++] = s->vars[c->e->in[0]].known;
    for (uint32_t i = 0; i < c->n_in; i++)
        if (!c->unknown[i]) in[n++] = s->vars[c->e->in[1 + i]].known;
    if ((n_out > 0 || tow__has_effect(c->e)) && make_branches(c, known_branch, &params.branches))
        tow__bind(s->k, &tow__cond_p, &params, n, in, n_out, results);
    release_branches(&params.branches);
    n = 0;
    for (uint32_t i = 0; i < c->n_out; i++)
        if (!c->out_unknown[i]) s->vars[c->e->out[i]].known = results[n++];
    return !tow__failed(s->k);
}

/* True if a branch takes known result `index` as a residual. */
static bool is_residual(const choice *c, uint32_t index)
{
    for (uint32_t k = 0; k < c->branches->n; k++)
        for (uint32_t r = 0; r < c->parts[k].n_residuals; r++)
            if (c->slots[k][r].is_result && c->slots[k][r].index == index) return true;
    return false;
}

static bool bind_unknown(choice *c, const tow_value *results)
{
    tow__split *s = c->s;
    tow__cond_params params = {.branches.n = 0};
    size_t most = (size_t)c->e->n_in + c->n_known + c->n_slots;
    tow_value *in = tow__trace_alloc(s->u, most, sizeof *in), *out = tow__trace_alloc(s->u, c->n_out, sizeof *out);
    uint32_t n = 0, n_out = 0;
    if (!in || !out) return false;
    for (uint32_t i = 0; i < c->n_out; i++) n_out += c->staged[i];
    if (n_out == 0) return true;
    in[n++] = tow__split_staged(s, c->e->in[0]);
    for (uint32_t i = 0; i < c->n_in; i++)
        if (c->used[i]) in[n++] = tow__split_staged(s, c->e->in[1 + i]);
    for (uint32_t i = 0, index = 0; i < c->n_out; i++) {
        if (c->out_unknown[i]) continue;
        tow_type type = tow_graph_output_type(c->branches->v[0], i);
        in[n++] = is_residual(c, index) ? tow__split_residual(s, results[index], s->vars[c->e->out[i]].root, false)
                                        : empty_of(s->u, type);
        index++;
    }
    for (uint32_t i = 0; i < c->n_slots; i++)
        in[n++] = tow__split_residual(s, results[c->n_known + i], TOW__INPUT, false);
    tow__set_source(s->u, &c->e->source);
    if (make_branches(c, unknown_branch, &params.branches)) tow__bind(s->u, &tow__cond_p, &params, n, in, n_out, out);
    release_branches(&params.branches);
    n = 0;
    for (uint32_t i = 0; i < c->n_out; i++)
        if (c->staged[i]) s->vars[c->e->out[i]].staged = out[n++];
    return !tow__failed(s->u);
}

static void set_results(choice *c)
{
    for (uint32_t i = 0; i < c->n_out; i++) {
        tow__pvar *v = &c->s->vars[c->e->out[i]];
        v->unknown = c->out_unknown[i];
        bool kept = !v->unknown && v->named != TOW__INPUT && v->tags >= TOW_PREFER_SAVE;
        if (kept || (!v->unknown && !c->s->policy)) v->staged = (tow_value){0};
        v->available = !v->unknown && !tow_is_null(v->staged);
    }
}

static bool begin(choice *c)
{
    tow_trace *k = c->s->k;
    c->unknown = tow__trace_alloc(k, 2 * ((size_t)c->n_in + c->n_out), sizeof(bool));
    if (!c->unknown) return false;
    c->used = c->unknown + c->n_in;
    c->out_unknown = c->used + c->n_in;
    c->staged = c->out_unknown + c->n_out;
    for (uint32_t i = 0; i < c->n_in; i++) c->unknown[i] = c->s->vars[c->e->in[1 + i]].unknown;
    return true;
}

void tow__cond_partial(tow__split *s, const tow__equation *e)
{
    choice c = {.s = s, .e = e, .n_in = e->n_in - 1, .n_out = e->n_out};
    c.branches = &((const tow__cond_params *)e->params)->branches;
    if (s->vars[e->in[0]].unknown) {
        tow__split_record_unknown(s, e);
        return;
    }
    if (begin(&c) && find_unknown_results(&c) && split_branches(&c)) {
        find_staged(&c);
        tow_value *results = NULL;
        if (place_residuals(&c)) results = tow__trace_alloc(s->k, (size_t)c.n_known + c.n_slots, sizeof *results);
        if (results && bind_known(&c, results) && bind_unknown(&c, results)) set_results(&c);
    }
    for (uint32_t k = 0; c.parts && !tow__split_remembered(s, e) && k < c.branches->n; k++)
        tow__partial_free(&c.parts[k]);
}
