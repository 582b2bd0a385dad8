/* Partial evaluation of cond: one choice becomes two, and what crosses between them.
 *
 *   known choice    (index, known operands)          -> (known results, slots)
 *   unknown choice  (index, operands, slots)         -> results
 *
 * A result is unknown if it is so in any branch. Slots hold the residuals of the branches, which exclude each other
 * (cond_slots.c). A known result that some branches save, because a policy says so, and others make again is a residual
 * of the former, so that the unknown choice has it: else it would be kept whole, besides what the others keep. */
#include "src/autodiff/regions/cond_partial.h"
#include "src/autodiff/reach.h"
#include "src/autodiff/regions/control.h"
#include "src/ops/rules.h"

/* ---- what is unknown --------------------------------------------------------------------------------------------- */

static bool find_unknown_results(tow__choice *c)
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

/* A known result that every branch can make again is a result of the unknown choice, too. */
static void find_staged(tow__choice *c)
{
    for (uint32_t i = 0; i < c->n_out; i++) {
        c->staged[i] = true;
        for (uint32_t k = 0; k < c->branches->n; k++) c->staged[i] &= c->parts[k].out_staged[i];
        c->n_known += !c->out_unknown[i];
    }
    for (uint32_t i = 0; i < c->n_in; i++)
        for (uint32_t k = 0; k < c->branches->n; k++) c->used[i] |= c->parts[k].input_used[i];
}

/* ---- results that some branches save ----------------------------------------------------------------------------- */

/* Under a name outside of the choice that its policy keeps. */
static bool is_kept(const tow__pvar *v) { return v->named != TOW__INPUT && v->tags >= TOW_PREFER_SAVE; }

/* Marks in forced[] known results that some branches save and others make again. True: there are some. */
static bool find_saved_results(tow__choice *c)
{
    bool any = false;
    for (uint32_t i = 0; i < c->n_out && c->s->policy; i++) {
        uint32_t n = 0;
        for (uint32_t k = 0; k < c->branches->n; k++) n += c->parts[k].out_staged[i];
        if (c->out_unknown[i] || n == 0 || n == c->branches->n || is_kept(&c->s->vars[c->e->out[i]])) continue;
        c->forced[i] = any = true;
    }
    return any;
}

/* Bytes of the slots and of the results that are residuals. False: no memory. */
static bool count_kept(tow__choice *c, size_t *bytes)
{
    *bytes = c->n_slots = 0;
    if (!tow__place_residuals(c)) return false;
    for (uint32_t i = 0; i < c->n_slots; i++) *bytes += tow_type_bytes(c->types[i]);
    for (uint32_t i = 0, index = 0; i < c->n_out; i++) {
        if (c->out_unknown[i]) continue;
        if (tow__is_slot_residual(c, index++)) *bytes += tow_type_bytes(tow_graph_output_type(c->branches->v[0], i));
    }
    c->n_slots = 0;
    return true;
}

/* parts: [branches] */
static bool split_all(tow__choice *c, tow__partial *parts)
{
    tow__split *s = c->s;
    bool *available = tow__trace_alloc(s->k, c->n_in, sizeof *available);
    if (!available) return false;
    for (uint32_t i = 0; i < c->n_in; i++) available[i] = true;
    for (uint32_t k = 0; k < c->branches->n; k++)
        if (tow__partial_eval(c->branches->v[k], c->unknown, available, tow__manner_of(s), c->forced, NULL,
                              &parts[k]) != TOW_OK ||
            tow__thin(&parts[k], c->n_in, c->unknown, s->runs_once) != TOW_OK) {
            tow__adopt_error(s->u);
            return false;
        }
    return true;
}

/* Nothing is known yet about readers of such a result. So its branches keep it where that costs nothing. */
static bool stage_saved_results(tow__choice *c)
{
    tow__partial *first = c->parts;
    size_t before, after;
    if (!find_saved_results(c)) return true;
    tow__partial *second = tow__trace_alloc(c->s->k, c->branches->n, sizeof *second);
    if (!second || !count_kept(c, &before)) return false;
    bool fine = split_all(c, second);
    c->parts = second;
    fine = fine && count_kept(c, &after);
    const bool better = fine && after <= before;
    c->parts = first;
    for (uint32_t k = 0; k < c->branches->n; k++) {
        tow__partial_free(better ? &first[k] : &second[k]);
        if (better) first[k] = second[k];
    }
    return fine;
}

/* ---- the split of all branches ----------------------------------------------------------------------------------- */

static bool split_branches(tow__choice *c)
{
    tow__split *s = c->s;
    tow__split_region *known = tow__split_remembered(s, c->e);
    if (known && known->done) {
        c->parts = known->branches;
        return true;
    }
    c->parts = known ? tow__arena_alloc(&s->memo->arena, c->branches->n, sizeof *c->parts)
                     : tow__trace_alloc(s->k, c->branches->n, sizeof *c->parts);
    if (!c->parts) return false;
    if (known) known->branches = c->parts, known->n_branches = c->branches->n;
    memcpy(c->forced, c->out_unknown, c->n_out * sizeof *c->forced);
    if (!split_all(c, c->parts) || !stage_saved_results(c)) return false;
    if (known) known->done = true;
    return true;
}

static tow_value empty_of(tow_trace *t, tow_type type)
{
    tow__empty_params p = {.dtype = type.dtype, .shape = tow__ints_of(type.rank, type.dims)};
    return tow__bind1(t, &tow__empty_p, &p, 0, NULL);
}

/* The value that branch k puts into a slot. res: its residuals. */
static tow_value fill_slot(const tow__choice *c, tow_trace *t, uint32_t k, uint32_t slot, const tow_value *res)
{
    const tow__partial *p = &c->parts[k];
    tow_value *pieces = tow__trace_alloc(t, (size_t)p->n_residuals + 1, sizeof *pieces);
    size_t n = 0;
    int64_t end = 0, flat = -1;
    for (uint32_t r = 0; pieces && r < p->n_residuals; r++) {
        const tow__slot_of *at = &c->slots[k][r];
        if (at->is_result || at->source || at->index != slot) continue;
        if (!at->joined) return res[r];
        pieces[n++] = tow_reshape(res[r], 1, &flat);
        end += tow_type_element_count(tow__slot_residual_type(p, r));
    }
    if (!pieces || n == 0) return empty_of(t, c->types[slot]);
    if (end < c->types[slot].dims[0])
        pieces[n++] = empty_of(t, tow_make_type(c->types[slot].dtype, 1, (int64_t[]){c->types[slot].dims[0] - end}));
    return n == 1 ? pieces[0] : tow_concatenate(n, pieces, 0);
}

/* ---- the two choices --------------------------------------------------------------------------------------------- */

/* (known operands) -> (known results, slots) */
static tow_status known_branch(const tow__choice *c, uint32_t k, tow_graph **result)
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
static tow_value take_residual(const tow__choice *c, tow_trace *t, uint32_t k, uint32_t r, const tow_value *results,
                               const tow_value *slots)
{
    const tow__slot_of *at = &c->slots[k][r];
    tow_type type = tow__slot_residual_type(&c->parts[k], r);
    tow_value constant;
    if (at->source) {
        tow__rebind(t, at->source, NULL, &constant);
        return constant;
    }
    if (at->is_result) return results[at->index];
    if (!at->joined) return slots[at->index];
    return tow_reshape(tow_slice_axis(slots[at->index], 0, at->start, at->start + tow_type_element_count(type)),
                       type.rank, type.dims);
}

/* (used operands, known results, slots) -> staged results */
static tow_status unknown_branch(const tow__choice *c, uint32_t k, tow_graph **result)
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
static bool make_branches(tow__choice *c, tow_status (*make)(const tow__choice *, uint32_t, tow_graph **),
                          tow__graphs *result)
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
static bool bind_known(tow__choice *c, tow_value *results)
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

static bool bind_unknown(tow__choice *c, const tow_value *results)
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
        in[n++] = tow__is_slot_residual(c, index)
                      ? tow__split_residual(s, results[index], s->vars[c->e->out[i]].root, false)
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

static void set_results(tow__choice *c)
{
    for (uint32_t i = 0; i < c->n_out; i++) {
        tow__pvar *v = &c->s->vars[c->e->out[i]];
        v->unknown = c->out_unknown[i];
        bool kept = !v->unknown && is_kept(v);
        if (kept || (!v->unknown && !c->s->policy)) v->staged = (tow_value){0};
        v->available = !v->unknown && !tow_is_null(v->staged);
    }
}

static bool begin(tow__choice *c)
{
    tow_trace *k = c->s->k;
    c->unknown = tow__trace_alloc(k, 2 * (size_t)c->n_in + 3 * (size_t)c->n_out, sizeof(bool));
    if (!c->unknown) return false;
    c->used = c->unknown + c->n_in;
    c->out_unknown = c->used + c->n_in;
    c->staged = c->out_unknown + c->n_out;
    c->forced = c->staged + c->n_out;
    for (uint32_t i = 0; i < c->n_in; i++) c->unknown[i] = c->s->vars[c->e->in[1 + i]].unknown;
    return true;
}

void tow__cond_split(tow__split *s, const tow__equation *e)
{
    tow__choice c = {.s = s, .e = e, .n_in = e->n_in - 1, .n_out = e->n_out};
    c.branches = &((const tow__cond_params *)e->params)->branches;
    if (s->vars[e->in[0]].unknown) {
        tow__split_record_unknown(s, e);
        return;
    }
    if (begin(&c) && find_unknown_results(&c) && split_branches(&c)) {
        find_staged(&c);
        tow_value *results = NULL;
        if (tow__place_residuals(&c)) results = tow__trace_alloc(s->k, (size_t)c.n_known + c.n_slots, sizeof *results);
        if (results && bind_known(&c, results) && bind_unknown(&c, results)) set_results(&c);
    }
    for (uint32_t k = 0; c.parts && !tow__split_remembered(s, e) && k < c.branches->n; k++)
        tow__partial_free(&c.parts[k]);
}
