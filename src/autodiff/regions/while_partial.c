/* Partial evaluation of while and fori.
 *
 *   known loop      (known consts, known carries, [i], stacks)   -> (known carries, [i], stacks)
 *   unknown loop    fori over the iterations that ran: (consts, stacks, carries) -> carries
 *
 * A while whose number of iterations is bounded by n counts them, and its residuals are rows of stacks [n, ...]:
 * carries that iteration i writes row i of, in place. They start as empty arrays, so that rows of iterations that do
 * not run cost nothing. The unknown loop gathers row i in iteration i.
 *
 * A loop with a schedule keeps states (while_schedule.c). Without a schedule and
 * without a bound nothing can be stacked: the unknown loop is the whole loop once more. So it is under a policy that
 * lets all of the body be repeated. If the condition of a while is unknown, so is everything. */
#include "src/autodiff/regions/control.h"
#include "src/autodiff/regions/loop_split.h"
#include "src/autodiff/regions/schedule.h"

/* ---- stacks ------------------------------------------------------------------------------------------------------ */

static tow_type stack_type(tow_type residual, int64_t n)
{
    tow_type type = tow__stack_row(residual);
    for (int d = type.rank++; d > 0; d--) type.dims[d] = type.dims[d - 1];
    type.dims[0] = n;
    return type;
}

static tow_value empty_stack(tow_trace *t, tow_type type)
{
    tow__empty_params p = {.dtype = type.dtype, .shape = {.n = type.rank}};
    memcpy(p.shape.v, type.dims, sizeof p.shape.v);
    return tow__bind1(t, &tow__empty_p, &p, 0, NULL);
}

static tow_value write_row(tow_trace *t, tow_value stack, tow_value row, tow_value i)
{
    tow_value at[TOW_MAX_RANK];
    int rank = tow_value_type(stack).rank;
    for (int d = 0; d < rank; d++) at[d] = d == 0 ? i : tow_scalar(t, TOW_I32, 0);
    tow_value stacked = tow__in_shape(row, tow__stack_row(tow_value_type(row)));
    return tow_dynamic_update_slice(stack, tow_expand_dims(stacked, 0), at);
}

/* Row i of a stack, for a residual of this type. The transpose of gather adds rows in place. */
static tow_value read_row(tow_value stack, tow_value i, tow_type residual)
{
    return tow__in_shape(tow_gather(stack, i), residual);
}

/* ---- the known loop ---------------------------------------------------------------------------------------------- */

/* The part of the body that runs in the known loop: known carries, then residuals. */
typedef struct known_loop {
    tow__loop_split *l;
    const tow_graph *g; /* (known inputs) -> (known outputs, residuals) */
    uint32_t n_res;     /* of g */
    uint32_t *stack; /* [n_res] which stack residual r is a row of: equal ones share theirs; TOW__INPUT: a constant */
    uint32_t n_stacks;
    tow_type *types;   /* [n_stacks] */
    uint32_t *outputs; /* [n_carry] outputs of g that are the known carries */
    uint32_t n_carry;
    uint32_t *place; /* [inputs of the original body] inputs of the new one, or TOW__INPUT */
    bool counts;     /* a while: i is a carry of its own */
} known_loop;

static bool is_fori(const tow__loop_split *l) { return l->form.lead > 0; }

static bool plan_known(known_loop *k, tow__loop_split *l, const tow_graph *g, uint32_t n_res)
{
    tow_trace *t = l->s->k;
    *k = (known_loop){.l = l, .g = g, .n_res = n_res, .counts = !is_fori(l) && n_res > 0};
    k->stack = tow__trace_alloc(t, n_res, sizeof *k->stack);
    k->types = tow__trace_alloc(t, n_res, sizeof *k->types);
    k->outputs = tow__trace_alloc(t, l->carry, sizeof *k->outputs);
    k->place = tow__trace_alloc(t, l->form.body->n_inputs, sizeof *k->place);
    if (!k->stack || !k->types || !k->outputs || !k->place) return false;
    uint32_t n_known = g->n_outputs - n_res;
    for (uint32_t i = 0, n = 0; i < l->carry; i++) {
        if (!l->carry_unknown[i]) k->outputs[k->n_carry++] = n;
        n += n_res > 0 || l->part.known ? !l->part.out_unknown[i] : !l->carry_unknown[i];
    }
    for (uint32_t r = 0; r < n_res; r++) {
        uint32_t first = 0;
        k->stack[r] = TOW__INPUT;
        if (tow__source_of(g, g->outputs[n_known + r])) continue;
        while (first < r && g->outputs[n_known + first] != g->outputs[n_known + r]) first++;
        k->stack[r] = first < r ? k->stack[first] : k->n_stacks;
        if (first == r) k->types[k->n_stacks++] = stack_type(tow_graph_output_type(g, n_known + r), l->form.most);
    }
    return !tow__failed(t);
}

/* The body over (known consts, known carries, [i], stacks, [number of a fori's iteration]). */
static tow_status known_body(known_loop *k, tow_graph **result)
{
    tow__loop_split *l = k->l;
    const tow_graph *g = k->g;
    tow_value *in, *out, i = {0};
    tow_trace *t = tow__trace_begin_over(g, &in, &out);
    if (!t) return TOW_OUT_OF_MEMORY;
    tow_value *stacks = tow__trace_alloc(t, k->n_stacks, sizeof *stacks);
    tow_value *all = tow__trace_alloc(t, (size_t)k->n_carry + k->n_stacks + 1, sizeof *all);
    uint32_t n = 0, made = 0, rest = tow__first_rest(l), n_known = g->n_outputs - k->n_res;
    tow_type i32 = tow_make_type(TOW_I32, 0, NULL);
    for (uint32_t j = 0; j < l->form.body->n_inputs; j++) k->place[j] = TOW__INPUT;
    for (uint32_t j = 0; j < rest; j++) {
        if (l->unknown[j]) continue;
        in[n++] = tow__input(t, tow_graph_input_type(l->form.body, j), NULL);
        k->place[j] = made++;
    }
    if (k->counts) i = tow__input(t, i32, NULL);
    for (uint32_t s = 0; stacks && s < k->n_stacks; s++) stacks[s] = tow__input(t, k->types[s], NULL);
    if (is_fori(l)) i = in[n++] = tow__input(t, i32, NULL);
    tow__inline(t, g, in, out);
    n = 0;
    for (uint32_t c = 0; all && c < k->n_carry; c++) all[n++] = out[k->outputs[c]];
    if (all && k->counts) all[n++] = tow_add_scalar(i, 1);
    for (uint32_t r = 0, s = 0; stacks && all && r < k->n_res; r++)
        if (k->stack[r] == s) all[n++] = write_row(t, stacks[s++], out[n_known + r], i);
    return tow__trace_end(t, all && stacks ? n : 0, all, false, result);
}

/* Binds the known loop. rows: [n_res] the stacks; *count: the number of iterations of a while that counts them. */
static bool bind_known(known_loop *k, tow_value *rows, tow_value *count)
{
    tow__loop_split *l = k->l;
    tow__split *s = l->s;
    tow_graph *body = NULL;
    size_t most = (size_t)l->n_in + k->n_stacks + 2;
    tow_value *in = tow__trace_alloc(s->k, most, sizeof *in), *out = tow__trace_alloc(s->k, most, sizeof *out);
    uint32_t n = 0, consts = 0, carry = k->n_carry + k->counts + k->n_stacks;
    if (!in || !out) return false;
    if (carry == 0 && !k->g->has_effects) return true;
    if (known_body(k, &body) != TOW_OK) {
        tow__adopt_error(s->k);
        return false;
    }
    if (l->form.lead) in[n++] = s->vars[l->e->in[0]].known;
    for (uint32_t i = 0; i < tow__first_rest(l); i++) {
        if (l->unknown[i]) continue;
        in[n++] = s->vars[l->e->in[tow__operand_behind(l, i)]].known;
        consts += i < l->consts;
    }
    if (k->counts) in[n++] = tow_scalar(s->k, TOW_I32, 0);
    for (uint32_t i = 0; i < k->n_stacks; i++) in[n++] = empty_stack(s->k, k->types[i]);
    tow__loop_bind(s->k, l->e, body, consts, carry, k->place, n, in, out);
    tow_graph_release(body);
    n = 0;
    for (uint32_t i = 0; i < l->carry; i++)
        if (!l->carry_unknown[i]) s->vars[l->e->out[i]].known = out[n++];
    if (k->counts) *count = out[n++];
    for (uint32_t r = 0; r < k->n_res; r++)
        if (k->stack[r] != TOW__INPUT) rows[r] = out[n + k->stack[r]];
    return !tow__failed(s->k);
}

/* ---- the unknown loop -------------------------------------------------------------------------------------------- */

/* Is input i of the split body an input of the unknown loop? */
static bool enters(const tow__loop_split *l, uint32_t i)
{
    bool is_carry = i >= l->consts && i < tow__first_rest(l);
    return l->part.input_used[i] || (is_carry && tow__is_carried(l, i - l->consts));
}

/* (consts, stacks, carries, i) -> carries */
static tow_status unknown_body(const known_loop *k, tow_graph **result)
{
    const tow__loop_split *l = k->l;
    const tow_graph *g = l->part.unknown;
    tow_value *in, *out;
    tow_trace *t = tow__trace_begin_over(g, &in, &out);
    tow_value *stacks = t ? tow__trace_alloc(t, k->n_stacks, sizeof *stacks) : NULL;
    if (!stacks) {
        tow__trace_abandon(t);
        return TOW_OUT_OF_MEMORY;
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < tow__first_rest(l); i++) {
        if (i == l->consts)
            for (uint32_t s = 0; s < k->n_stacks; s++) stacks[s] = tow__input(t, k->types[s], NULL);
        if (!enters(l, i)) continue;
        tow_value v = tow__input(t, tow_graph_input_type(l->form.body, i), NULL);
        if (l->part.input_used[i]) in[n++] = v;
    }
    tow_value i = tow__input(t, tow_make_type(TOW_I32, 0, NULL), NULL);
    if (is_fori(l) && l->part.input_used[tow__first_rest(l)]) in[n++] = i;
    for (uint32_t r = 0; r < k->n_res; r++) {
        uint32_t first = 0;
        const tow__equation *source = tow__source_of(k->g, k->g->outputs[k->g->n_outputs - k->n_res + r]);
        if (source) tow__rebind(t, source, NULL, &in[n + r]);
        if (source) continue;
        while (k->stack[first] != k->stack[r]) first++;
        in[n + r] = first < r ? in[n + first] : read_row(stacks[k->stack[r]], i, tow_graph_input_type(g, n + r));
    }
    tow__inline(t, g, in, out);
    return tow__trace_end(t, g->n_outputs, out, false, result);
}

static bool bind_unknown(const known_loop *k, const tow_value *rows, tow_value count)
{
    const tow__loop_split *l = k->l;
    tow__split *s = l->s;
    uint32_t n_out = l->part.unknown->n_outputs, n = 1;
    tow_value *in = tow__trace_alloc(s->u, (size_t)l->n_in + k->n_stacks + 1, sizeof *in),
              *out = tow__trace_alloc(s->u, n_out, sizeof *out);
    tow__fori_params params = {.reverse = l->form.reverse, .max_iterations = l->form.most};
    if (!in || !out) return false;
    if (n_out == 0) return true;
    if (unknown_body(k, &params.body) != TOW_OK) {
        tow__adopt_error(s->u);
        return false;
    }
    in[0] = is_fori(l) ? tow__split_staged(s, l->e->in[0]) : tow__split_residual(s, count, TOW__INPUT, false);
    for (uint32_t i = 0; i < tow__first_rest(l); i++) {
        if (i == l->consts) {
            for (uint32_t r = 0, stack = 0; r < k->n_res; r++)
                if (k->stack[r] == stack) in[n++] = tow__split_residual(s, rows[r], TOW__INPUT, false), stack++;
            params.consts = n - 1;
        }
        if (!enters(l, i)) continue;
        in[n++] = tow__split_staged(s, l->e->in[tow__operand_behind(l, i)]);
    }
    tow__set_source(s->u, &l->e->source);
    tow__bind(s->u, &tow__fori_p, &params, n, in, n_out, out);
    tow_graph_release(params.body);
    n = 0;
    for (uint32_t i = 0; i < l->n_out; i++)
        if (l->part.out_staged[i]) s->vars[l->e->out[i]].staged = out[n++];
    return true;
}

/* ---- the rule ---------------------------------------------------------------------------------------------------- */

/* The unknown loop is the whole loop, but for its effects, which the known one has. */
static void repeat_whole(tow__loop_split *l)
{
    tow__split *s = l->s;
    tow__equation e = *l->e;
    void *params = NULL;
    if (tow__has_effect(l->e)) {
        if (tow__own_without_effects(s->u, l->e, &params) != TOW_OK) tow__adopt_error(s->u);
        e.params = params;
    }
    if (!tow__failed(s->u)) tow__split_record_unknown(s, &e);
    tow__release_owned(e.primitive, params);
    for (uint32_t i = 0; i < l->carry; i++) {
        tow__pvar *v = &s->vars[l->e->out[i]];
        v->unknown = l->carry_unknown[i];
        if (v->unknown) continue;
        bool kept = v->named != TOW__INPUT && v->tags >= TOW_PREFER_SAVE;
        if (kept || !s->policy) v->staged = (tow_value){0};
        v->staged = tow__split_compared(s, l->e, i, v->staged);
        v->available = !tow_is_null(v->staged);
    }
}

/* Nothing is kept of the iterations: every value that the unknown part of the body reads is made in it. */
static bool keeps_nothing(const tow__loop_split *l) { return l->part.n_residuals == 0; }

/* The body without what is unknown. */
static tow_status known_half(const tow__loop_split *l, tow_graph **result)
{
    const tow_graph *g = l->form.body;
    tow_value *in, *out;
    tow_graph *live = NULL;
    bool *keep = tow__trace_alloc(l->s->k, g->n_outputs, sizeof *keep);
    for (uint32_t i = 0; keep && i < g->n_outputs; i++) keep[i] = !l->carry_unknown[i];
    tow_status status = keep ? tow__dce(g, keep, false, NULL, &live) : TOW_OUT_OF_MEMORY;
    if (status != TOW_OK) return status;
    tow_trace *t = tow__trace_begin_over(live, &in, &out);
    for (uint32_t i = 0; t && i < g->n_inputs; i++)
        if (!l->unknown[i]) in[i] = tow__input(t, tow_graph_input_type(g, i), NULL);
    if (t) tow__inline(t, live, in, out);
    status = t ? tow__trace_end(t, live->n_outputs, out, false, result) : TOW_OUT_OF_MEMORY;
    tow_graph_release(live);
    return status;
}

/* A loop without a bound: the known carries in the known trace, everything in the unknown one. */
static void split_unbounded(tow__loop_split *l)
{
    tow_graph *half = NULL;
    known_loop k;
    l->n_in = l->form.body->n_inputs;
    l->unknown = tow__trace_alloc(l->s->k, l->n_in, sizeof(bool));
    for (uint32_t i = 0; l->unknown && i < tow__first_rest(l); i++)
        l->unknown[i] =
            i < l->consts ? l->s->vars[l->e->in[tow__operand_behind(l, i)]].unknown : l->carry_unknown[i - l->consts];
    if (!l->unknown) return;
    if (known_half(l, &half) != TOW_OK)
        tow__adopt_error(l->s->k);
    else if (plan_known(&k, l, half, 0) && bind_known(&k, NULL, NULL))
        repeat_whole(l);
    tow_graph_release(half);
}

static void split_bounded(tow__loop_split *l)
{
    known_loop k;
    tow_value count = {0};
    if (!tow__loop_split_body(l) || !tow__loop_split_stacks(l)) return;
    tow_value *rows = tow__trace_alloc(l->s->k, l->part.n_residuals, sizeof *rows);
    bool whole = l->s->policy && keeps_nothing(l) && !tow__has_effect(l->e);
    if (!rows || !plan_known(&k, l, l->part.known, l->part.n_residuals)) return;
    k.counts = !is_fori(l) && !whole;
    if (!bind_known(&k, rows, &count)) return;
    if (whole) {
        repeat_whole(l);
    } else if (bind_unknown(&k, rows, count)) {
        tow__loop_split_results(l);
    }
}

void tow__while_split(tow__split *s, const tow__equation *e)
{
    tow__loop_split l;
    bool all = true;
    if (tow__loop_split_begin(&l, s, e)) {
        for (uint32_t i = 0; i < l.carry; i++) all &= l.carry_unknown[i];
        const bool count_unknown = l.form.lead > 0 && s->vars[e->in[0]].unknown;
        if (count_unknown || (all && l.form.conditions > 0)) {
            tow__split_record_unknown(s, e);
        } else if (l.form.lead == 0 && tow__is_scheduled(&l)) {
            tow__while_split_keeping(&l);
        } else if (l.form.most == 0) {
            split_unbounded(&l);
        } else {
            split_bounded(&l);
        }
    }
    tow__loop_split_end(&l);
}
