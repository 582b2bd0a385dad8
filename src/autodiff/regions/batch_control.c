/* Batching of cond, while and fori.
 *
 *   cond    rows that share the index share the choice; else every branch runs for all rows, and each row takes the
 *           results of its own. Gradients of rows that a branch is not for are exact zeros, whatever the branch makes
 *           of them: select(mask, x, stop_gradient(x)) stands for each operand
 *   while   rows that share the condition stop together; else the loop runs until all rows are done, and a row that is
 *           done keeps its value. p [rows] says which rows are not done; it is a carry, so the condition runs once
 *   fori    likewise: with counts of their own, rows take part in iterations below their count, of which there are no
 *           more than the bound says
 *
 * Loops and choices of rows that differ, with effects inside, run row after row.
 *
 * A carry is batched if it starts so or the body makes it so, a fixpoint over the body. */
#include "src/autodiff/reach.h"
#include "src/autodiff/regions/control.h"
#include "src/graph/builder.h"
#include "src/ops/batching.h"
#include "tow/ops.h"

/* The values that are batched. in[]: operands and, of loops, the next values of carries; out[]: results. */
typedef struct spreading {
    bool *in, *out;
    tow__reach *states; /* of the bodies, for those who batch them */
    tow__arena arena;
} spreading;

/* False: an error, and the arena holds nothing. */
static bool find_batched(tow__batch *r, spreading *s)
{
    const tow__equation *e = r->e;
    tow_context *ctx = tow_trace_context(r->t);
    const tow__reach_walk walk = {.ctx = ctx, .arena = &s->arena};
    tow__arena_init(&s->arena, ctx);
    s->states = NULL;
    s->in = tow__trace_alloc(r->t, (size_t)e->n_in + 1, sizeof(bool));
    s->out = tow__trace_alloc(r->t, e->n_out, sizeof(bool));
    if (!s->in || !s->out) return false;
    for (uint32_t i = 0; i < e->n_in; i++) s->in[i] = tow__is_batched(r->x[i]);
    if (tow__reach_region(&walk, e, &s->states, s->in, s->out) == TOW_OK) return true;
    tow__adopt_error(r->t);
    tow__arena_free(&s->arena);
    return false;
}

/* mask [rows], repeated along all axes of x [rows, ...] but the first. */
static tow_value mask_like(tow_value mask, tow_value x)
{
    tow_type type = tow_value_type(x);
    return type.rank == 1 ? mask : tow_broadcast_in_dim(mask, type.rank, type.dims, (int[]){0});
}

/* x [rows, ...] where the mask holds; elsewhere the same values, through which no gradient flows. */
static tow_value masked(tow_value mask, tow_value x)
{
    if (!tow_dtype_is_float(tow_value_type(x).dtype)) return x;
    return tow_where(mask_like(mask, x), x, tow_stop_gradient(x));
}

/* ---- cond -------------------------------------------------------------------------------------------------------- */

/* One choice for all rows. */
static void choose_together(tow__batch *r)
{
    const tow__equation *e = r->e;
    const tow__graphs *branches = &((const tow__cond_params *)e->params)->branches;
    tow__cond_params params = {.branches.v = tow__trace_alloc(r->t, branches->n, sizeof(tow_graph *))};
    int *axes = tow__trace_alloc(r->t, (size_t)e->n_in + e->n_out, sizeof *axes), *out_axes = axes + e->n_in;
    tow_value *in = tow__trace_alloc(r->t, e->n_in, sizeof *in), *out = tow__trace_alloc(r->t, e->n_out, sizeof *out);
    spreading s;
    bool fine = find_batched(r, &s) && params.branches.v && axes && in && out;
    for (uint32_t i = 0; fine && i < e->n_in; i++) {
        in[i] = r->x[i].value;
        axes[i] = r->x[i].axis;
    }
    for (; fine && params.branches.n < branches->n; params.branches.n++) {
        uint32_t k = params.branches.n;
        for (uint32_t i = 0; i < e->n_out; i++) out_axes[i] = s.out[i] ? 0 : TOW__UNBATCHED;
        fine = tow__batch_graph(branches->v[k], NULL, r->size, axes + 1, out_axes, &params.branches.v[k]) == TOW_OK;
        if (!fine) tow__adopt_error(r->t);
    }
    if (fine) tow__bind(r->t, &tow__cond_p, &params, e->n_in, in, e->n_out, out);
    for (uint32_t k = 0; params.branches.v && k < branches->n; k++) tow_graph_release(params.branches.v[k]);
    for (uint32_t i = 0; fine && i < e->n_out; i++)
        r->y[i] = (tow__mapped){.value = out[i], .axis = s.out[i] ? 0 : TOW__UNBATCHED};
    tow__arena_free(&s.arena);
}

/* [rows]: is branch k of n that of the row? */
static tow_value mask_of(tow_value index, uint32_t k, uint32_t n)
{
    if (tow_value_type(index).dtype == TOW_BOOL) return k ? index : tow_not(index);
    tow_value number = tow_full_like(index, k);
    if (n == 1) return tow_eq(index, index);
    return k == 0 ? tow_le(index, number) : k + 1 == n ? tow_ge(index, number) : tow_eq(index, number);
}

/* All branches, and for each row the results of its own. */
static void choose_row_by_row(tow__batch *r)
{
    const tow__equation *e = r->e;
    const tow__graphs *branches = &((const tow__cond_params *)e->params)->branches;
    tow__mapped *in = tow__trace_alloc(r->t, e->n_in, sizeof *in), *out = tow__trace_alloc(r->t, e->n_out, sizeof *out);
    if (!in || !out) return;
    tow_value index = tow__batch_operand(r, 0, 0);
    for (uint32_t k = 0; k < branches->n && !tow__failed(r->t); k++) {
        tow_value mask = mask_of(index, k, branches->n);
        for (uint32_t i = 1; i < e->n_in; i++)
            in[i - 1] = (tow__mapped){.value = masked(mask, tow__batch_operand(r, i, 0)), .axis = 0};
        tow__batch_inline(r->t, branches->v[k], NULL, r->size, in, out);
        for (uint32_t i = 0; i < e->n_out && !tow__failed(r->t); i++) {
            tow_value y = tow__batched_at(out[i], r->size, 0);
            r->y[i].value = k == 0 ? y : tow_where(mask_like(mask, y), y, r->y[i].value);
            r->y[i].axis = 0;
        }
    }
}

/* A branch with effects runs for its own rows only: then the choice runs row after row. */
void tow__batch_cond(tow__batch *r)
{
    if (!tow__is_batched(r->x[0]))
        choose_together(r);
    else
        tow__has_effect(r->e) ? r->looped(r) : choose_row_by_row(r);
}

/* ---- loops ------------------------------------------------------------------------------------------------------- */

/* Operands of a loop where they are, carries with their batch axis in front; and the axes of the inputs of its
 * bodies. */
static void loop_operands(const tow__batch *r, const tow__region_form *form, const bool *carry_batched, tow_value *in,
                          int *axes)
{
    uint32_t first = form->lead + form->consts;
    for (uint32_t i = form->lead; i < r->e->n_in; i++) {
        bool is_carry = i >= first;
        bool batched = is_carry ? carry_batched[i - first] : tow__is_batched(r->x[i]);
        in[i] = is_carry && batched ? tow__batch_operand(r, i, 0) : r->x[i].value;
        axes[i - form->lead] = !batched ? TOW__UNBATCHED : is_carry ? 0 : r->x[i].axis;
    }
    axes[form->consts + form->carry] = TOW__UNBATCHED; /* the number of a fori's iteration */
}

static void set_results(tow__batch *r, const bool *batched, const tow_value *out)
{
    for (uint32_t i = 0; i < r->e->n_out; i++)
        r->y[i] = (tow__mapped){.value = out[i], .axis = batched[i] ? 0 : TOW__UNBATCHED};
}

/* The graphs of a loop for all rows, in params; those that were made are to be released. axes: of their inputs. */
static tow_status batch_bodies(const tow__batch *r, const tow__region_form *form, const int *axes, int *out_axes,
                               const bool *batched, void *params)
{
    const tow__equation *e = r->e;
    tow_status status = TOW_OK;
    for (uint32_t k = 0; k <= form->conditions; k++) tow__set_nested(e->primitive, params, k, NULL);
    for (uint32_t k = 0; k <= form->conditions && status == TOW_OK; k++) {
        tow_graph *graph = NULL;
        for (uint32_t i = 0; i < e->n_out; i++) out_axes[i] = batched[i] ? 0 : TOW__UNBATCHED;
        if (k < form->conditions) out_axes[0] = TOW__UNBATCHED;
        status = tow__batch_graph(tow__nested(e->primitive, e->params, k), NULL, r->size, axes, out_axes, &graph);
        tow__set_nested(e->primitive, params, k, graph);
    }
    return status;
}

/* All rows run the same iterations. */
static void repeat_together(tow__batch *r, const tow__region_form *form, const bool *batched)
{
    const tow__equation *e = r->e;
    int *axes = tow__trace_alloc(r->t, (size_t)e->n_in + 2 + e->n_out, sizeof *axes), *out_axes = axes + e->n_in + 1;
    tow_value *in = tow__trace_alloc(r->t, e->n_in, sizeof *in), *out = tow__trace_alloc(r->t, e->n_out, sizeof *out);
    void *params;
    if (!axes || !in || !out || !tow__params_own(r->t, e->primitive, e->params, &params)) return;
    if (form->lead) in[0] = r->x[0].value;
    loop_operands(r, form, batched, in, axes);
    if (batch_bodies(r, form, axes, out_axes, batched, params) == TOW_OK)
        tow__bind(r->t, e->primitive, params, e->n_in, in, e->n_out, out);
    else
        tow__adopt_error(r->t);
    tow__release_owned(e->primitive, params);
    set_results(r, batched, out);
}

/* Inputs of a body for rows of their own: constants as they are, then what `more` says, then batched carries.
 * in: [consts + carry + 1] */
typedef struct row_body {
    tow__batch *r;
    const tow__region_form *form;
    tow__mapped *in;
} row_body;

static void add_inputs(const row_body *b, tow_trace *t, uint32_t from, uint32_t to)
{
    const tow_graph *g = b->form->body;
    for (uint32_t i = from; i < to; i++) {
        int axis = i < b->form->consts ? b->r->x[b->form->lead + i].axis : 0;
        tow_type type = tow_graph_input_type(g, i);
        if (axis != TOW__UNBATCHED) type = tow__with_axis(type, axis, b->r->size);
        b->in[i] = (tow__mapped){.value = tow__input(t, type, NULL), .axis = axis};
    }
}

/* The body for all rows; rows where the mask does not hold keep their carries. */
static void step_rows(const row_body *b, tow_trace *t, tow_value mask, tow_value *next)
{
    const tow__region_form *form = b->form;
    size_t n_in = form->body->n_inputs;
    tow__mapped *in = tow__trace_alloc(t, n_in, sizeof *in), *out = tow__trace_alloc(t, form->carry, sizeof *out);
    if (!in || !out) return;
    memcpy(in, b->in, n_in * sizeof *in);
    for (uint32_t i = form->consts; i < form->consts + form->carry; i++) in[i].value = masked(mask, in[i].value);
    tow__batch_inline(t, form->body, NULL, b->r->size, in, out);
    for (uint32_t i = 0; i < form->carry && !tow__failed(t); i++) {
        tow_value y = tow__batched_at(out[i], b->r->size, 0);
        next[i] = tow_where(mask_like(mask, y), y, b->in[form->consts + i].value);
    }
}

/* (consts, p, carry) -> any of p */
static tow_status any_left(const row_body *b, tow_graph **result)
{
    tow_trace *t = tow__trace_begin(b->form->body->ctx);
    if (!t) return TOW_OUT_OF_MEMORY;
    add_inputs(b, t, 0, b->form->consts);
    tow_value p = tow__input(t, tow_make_type(TOW_BOOL, 1, &b->r->size), NULL);
    add_inputs(b, t, b->form->consts, b->form->consts + b->form->carry);
    tow_value any = tow_reduce_or(p, 0, NULL);
    return tow__trace_end(t, 1, &any, false, result);
}

/* (consts, p, carry) -> (condition(carry'), carry') */
static tow_status while_rows(const row_body *b, const tow_graph *condition, tow_graph **result)
{
    const tow__region_form *form = b->form;
    tow_trace *t = tow__trace_begin(form->body->ctx);
    tow_value *out = t ? tow__trace_alloc(t, (size_t)form->carry + 1, sizeof *out) : NULL;
    if (!out) {
        tow__trace_abandon(t);
        return TOW_OUT_OF_MEMORY;
    }
    add_inputs(b, t, 0, form->consts);
    tow_value p = tow__input(t, tow_make_type(TOW_BOOL, 1, &b->r->size), NULL);
    add_inputs(b, t, form->consts, form->consts + form->carry);
    step_rows(b, t, p, out + 1);
    for (uint32_t i = 0; i < form->carry; i++) b->in[form->consts + i].value = out[1 + i];
    tow__mapped next = {.axis = TOW__UNBATCHED};
    if (!tow__failed(t)) tow__batch_inline(t, condition, NULL, b->r->size, b->in, &next);
    if (!tow__failed(t)) out[0] = tow__batched_at(next, b->r->size, 0);
    return tow__trace_end(t, (size_t)form->carry + 1, out, false, result);
}

/* Until all rows are done. */
static void while_row_by_row(tow__batch *r, const row_body *b)
{
    const tow__equation *e = r->e;
    const tow__region_form *form = b->form;
    tow__while_params params = *(const tow__while_params *)e->params;
    const tow_graph *condition = params.condition;
    tow_value *in = tow__trace_alloc(r->t, (size_t)e->n_in + 1, sizeof *in),
              *out = tow__trace_alloc(r->t, (size_t)e->n_out + 1, sizeof *out);
    tow__mapped p = {.axis = TOW__UNBATCHED};
    if (!in || !out) return;
    for (uint32_t i = 0; i < e->n_in; i++) {
        bool is_carry = i >= form->consts;
        in[i + is_carry] = is_carry ? tow__batch_operand(r, i, 0) : r->x[i].value;
        b->in[i] = is_carry ? (tow__mapped){.value = in[i + 1], .axis = 0} : r->x[i];
    }
    tow__batch_inline(r->t, condition, NULL, r->size, b->in, &p);
    if (tow__failed(r->t)) return;
    in[form->consts] = tow__batched_at(p, r->size, 0);
    params.condition = params.body = NULL;
    tow_status status = any_left(b, &params.condition);
    if (status == TOW_OK) status = while_rows(b, condition, &params.body);
    if (status == TOW_OK)
        tow__bind(r->t, e->primitive, &params, (size_t)e->n_in + 1, in, (size_t)e->n_out + 1, out);
    else
        tow__adopt_error(r->t);
    tow_graph_release(params.condition);
    tow_graph_release(params.body);
    for (uint32_t i = 0; i < e->n_out; i++) r->y[i] = (tow__mapped){.value = out[1 + i], .axis = 0};
}

void tow__batch_while(tow__batch *r)
{
    tow__region_form form;
    spreading s;
    tow__loop_of(r->e, &form);
    row_body b = {.r = r, .form = &form, .in = tow__trace_alloc(r->t, (size_t)r->e->n_in + 1, sizeof *b.in)};
    if (b.in && find_batched(r, &s)) {
        const tow__reach *condition = s.states->next;
        bool own = condition->var[condition->g->outputs[0]];
        if (!own)
            repeat_together(r, &form, s.out);
        else
            tow__has_effect(r->e) ? r->looped(r) : while_row_by_row(r, &b);
        tow__arena_free(&s.arena);
    }
}

/* (count [rows], consts, carry, i): rows take part in iterations below their count, in either direction */
static tow_status fori_rows(const row_body *b, tow_graph **result)
{
    const tow__region_form *form = b->form;
    tow_trace *t = tow__trace_begin(form->body->ctx);
    tow_value *out = t ? tow__trace_alloc(t, form->carry, sizeof *out) : NULL;
    if (!out) {
        tow__trace_abandon(t);
        return TOW_OUT_OF_MEMORY;
    }
    tow_value count = tow__input(t, tow_make_type(TOW_I32, 1, &b->r->size), NULL);
    add_inputs(b, t, 0, form->consts + form->carry);
    tow_value i = tow__input(t, tow_make_type(TOW_I32, 0, NULL), NULL);
    b->in[form->consts + form->carry] = (tow__mapped){.value = i, .axis = TOW__UNBATCHED};
    step_rows(b, t, tow_lt(i, count), out);
    return tow__trace_end(t, form->carry, out, false, result);
}

static void fori_row_by_row(tow__batch *r, const row_body *b)
{
    const tow__equation *e = r->e;
    const tow__region_form *form = b->form;
    tow__fori_params params = *(const tow__fori_params *)e->params;
    tow_value *in = tow__trace_alloc(r->t, (size_t)e->n_in + 1, sizeof *in),
              *out = tow__trace_alloc(r->t, e->n_out, sizeof *out);
    if (!in || !out) return;
    tow_value counts = tow__batch_operand(r, 0, 0), none = tow_scalar(r->t, TOW_I32, 0);
    /* in a branch that is not for a row, the row's count is whatever memory that branches share holds */
    if (params.max_iterations > 0 && params.max_iterations <= INT32_MAX)
        counts = tow_min(counts, tow_full_like(counts, (double)params.max_iterations));
    /* the maximum of no rows would be the lowest number, which is no iteration either */
    in[0] = r->size > 0 ? tow_reduce_max(counts, 0, NULL) : none;
    in[1] = counts;
    for (uint32_t i = 1; i < e->n_in; i++)
        in[i + 1] = i >= 1 + form->consts ? tow__batch_operand(r, i, 0) : r->x[i].value;
    params.consts++;
    params.body = NULL;
    if (fori_rows(b, &params.body) == TOW_OK)
        tow__bind(r->t, e->primitive, &params, (size_t)e->n_in + 1, in, e->n_out, out);
    else
        tow__adopt_error(r->t);
    tow_graph_release(params.body);
    for (uint32_t i = 0; i < e->n_out; i++) r->y[i] = (tow__mapped){.value = out[i], .axis = 0};
}

void tow__batch_fori(tow__batch *r)
{
    tow__region_form form;
    spreading s;
    tow__loop_of(r->e, &form);
    row_body b = {.r = r, .form = &form, .in = tow__trace_alloc(r->t, (size_t)r->e->n_in + 1, sizeof *b.in)};
    if (!b.in) return;
    if (tow__is_batched(r->x[0])) {
        tow__has_effect(r->e) ? r->looped(r) : fori_row_by_row(r, &b);
    } else if (find_batched(r, &s)) {
        repeat_together(r, &form, s.out);
        tow__arena_free(&s.arena);
    }
}
