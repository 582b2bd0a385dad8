/* replay_while: the linear loop of a while that keeps states. Its body reads the state with which each iteration of the
 * while began.
 *
 *   replay_while  (count, last, positions [slots], kept [slots, ...], [file], consts, carry) -> carry
 *   decompose     a fori that runs the states from the first one on beside the carries
 *   transpose     a loop from the last iteration to the first, which fetches each state (fetch.c)
 *
 * The kept states belong to the iterations `positions`, in order; there are last + 1 of them. file: token and staging
 * of each carry whose first file_slots states are in a file (tier.c). */
#include "src/autodiff/regions/schedule.h"
#include "src/autodiff/regions/types.h"
#include "src/base/spill.h"
#include "tow/control.h"
#include "tow/ops.h"

enum {
    COUNT,
    LAST,
    POSITIONS,
    KEPT /* the first kept state of the operands */
};

static size_t first_file(const tow__replay_while_params *p) { return KEPT + (size_t)p->states; }
static size_t n_files(const tow__replay_while_params *p) { return p->file_slots > 0 ? 2 * (size_t)p->states : 0; }
static size_t first_const(const tow__replay_while_params *p) { return first_file(p) + n_files(p); }
static size_t first_carry(const tow__replay_while_params *p) { return first_const(p) + (size_t)p->consts; }

/* ---- type -------------------------------------------------------------------------------------------------------- */

static tow_status counts_fit(const tow__typing *ty)
{
    const tow__replay_while_params *p = ty->params;
    if (p->file_slots < 0 || p->file_slots >= p->slots || p->states < 0 || p->states > INT32_MAX)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "expected fewer file_slots than slots, which count both, found %lld and %lld",
                              (long long)p->file_slots, (long long)p->slots);
    const size_t n = ty->n_in - KEPT - n_files(p);
    if (ty->n_in < KEPT + n_files(p) || p->consts < 0 || p->states < 0 || (uint64_t)p->consts > n ||
        (uint64_t)p->states > n - (uint64_t)p->consts || n - (size_t)p->consts - (size_t)p->states != ty->n_out)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "%lld consts and %lld states do not fit %zu operands and %zu results",
                              (long long)p->consts, (long long)p->states, ty->n_in, ty->n_out);
    if (p->slots < 1 || p->slots > INT32_MAX || p->max_iterations < 0 || p->max_iterations > INT32_MAX)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "expected slots from 1 on and max_iterations from 0 on, below 2^31, found %lld and %lld",
                              (long long)p->slots, (long long)p->max_iterations);
    if (p->body->n_inputs != n || p->body->n_outputs != ty->n_out || p->advance->n_outputs != (uint64_t)p->states ||
        p->advance->n_inputs < p->advance->n_outputs || p->advance->n_inputs > (uint64_t)(p->consts + p->states))
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "the graphs have %u and %u inputs and %u and %u outputs",
                              p->advance->n_inputs, p->body->n_inputs, p->advance->n_outputs, p->body->n_outputs);
    return TOW_OK;
}

/* The type that operand i must have. */
static tow_type operand_type(const tow__replay_while_params *p, size_t i)
{
    if (i == POSITIONS) return tow_make_type(TOW_I32, 1, &p->slots);
    if (i < KEPT) return tow_make_type(TOW_I32, 0, NULL);
    const size_t file = first_file(p);
    if (i >= file && i < first_const(p) && (i - file) % 2 == 0) return tow_make_type(TOW_I32, 0, NULL);
    if (i < first_const(p)) {
        const size_t state = i < file ? i - KEPT : (i - file) / 2;
        return tow__stack_of(tow_graph_input_type(p->body, (size_t)p->consts + state),
                             i < file ? p->slots - p->file_slots : (int64_t)TOW__SPILL_STAGING);
    }
    const size_t k = i - first_const(p);
    return tow_graph_input_type(p->body, k < (size_t)p->consts ? k : (size_t)p->states + k);
}

static tow_status must_be(const tow__typing *ty, const char *what, size_t i, tow_type want, tow_type found)
{
    if (tow_type_equal(found, want)) return TOW_OK;
    return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "%s %zu must be %s, found %s", what, i, tow__type_name(want).text,
                          tow__type_name(found).text);
}

static tow_status replay_while_type(const tow__typing *ty)
{
    const tow__replay_while_params *p = ty->params;
    tow_status status = ty->n_in < KEPT ? tow__require_count(ty, KEPT, ty->n_out) : counts_fit(ty);
    if (status != TOW_OK) return status;
    const size_t states = (size_t)p->states, known = p->advance->n_inputs - states;
    for (size_t i = 0; i < ty->n_in && status == TOW_OK; i++)
        status = must_be(ty, "operand", i, operand_type(p, i), ty->in[i]);
    for (size_t i = 0; i < p->advance->n_inputs && status == TOW_OK; i++)
        status = must_be(ty, "input of advance", i,
                         tow_graph_input_type(p->body, i < known ? i : i - known + (size_t)p->consts),
                         tow_graph_input_type(p->advance, i));
    for (size_t i = 0; i < states && status == TOW_OK; i++)
        status = must_be(ty, "output of advance", i, tow_graph_input_type(p->advance, known + i),
                         tow_graph_output_type(p->advance, i));
    for (size_t i = 0; i < ty->n_out && status == TOW_OK; i++) {
        ty->out[i] = tow_graph_input_type(p->body, (size_t)p->consts + states + i);
        status = must_be(ty, "output of the body", i, ty->out[i], tow_graph_output_type(p->body, i));
    }
    return status;
}

/* ---- decomposition ----------------------------------------------------------------------------------------------- */

/* (consts, states, carry, i) -> (states, carry) */
static tow_status forward_body(const tow__replay_while_params *p, tow_graph **result)
{
    const tow_graph *g = p->body, *a = p->advance;
    const size_t states = (size_t)p->states, known = a->n_inputs - states;
    tow_value *in, *out;
    tow_trace *t = tow__trace_begin_over(g, &in, &out);
    tow_value *x = t ? tow__trace_alloc(t, a->n_inputs + 1, sizeof *x) : NULL;
    tow_value *all = t ? tow__trace_alloc(t, states + g->n_outputs, sizeof *all) : NULL;
    if (!x || !all) {
        tow__trace_abandon(t);
        return TOW_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < g->n_inputs; i++) in[i] = tow__input(t, tow_graph_input_type(g, i), NULL);
    tow__input(t, tow_make_type(TOW_I32, 0, NULL), NULL);
    memcpy(x, in, known * sizeof *x);
    memcpy(x + known, in + p->consts, states * sizeof *x);
    tow__inline(t, g, in, out);
    tow__inline(t, a, x, all);
    memcpy(all + states, out, g->n_outputs * sizeof *all);
    return tow__trace_end(t, states + g->n_outputs, all, false, result);
}

static void replay_while_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    const tow__replay_while_params *p = e->params;
    const size_t states = (size_t)p->states, consts = (size_t)p->consts;
    tow__fori_params params = {.consts = p->consts, .max_iterations = p->max_iterations};
    tow_value *in = tow__trace_alloc(t, e->n_in, sizeof *in), *out = tow__trace_alloc(t, e->n_in, sizeof *out);
    if (!in || !out) return;
    const tow__tier tier = {p->file_slots, x + first_file(p)};
    in[0] = x[COUNT];
    memcpy(in + 1, x + first_const(p), consts * sizeof *in);
    for (size_t k = 0; k < states; k++)
        in[1 + consts + k] = tow__tier_read(t, &tier, k, x[KEPT + k], tow_scalar(t, TOW_I32, 0),
                                            tow_graph_input_type(p->body, consts + k));
    memcpy(in + 1 + consts + states, x + first_carry(p), e->n_out * sizeof *in);
    if (forward_body(p, &params.body) != TOW_OK) {
        tow__adopt_error(t);
        return;
    }
    tow__bind(t, &tow__fori_p, &params, 1 + consts + states + e->n_out, in, states + e->n_out, out);
    tow_graph_release(params.body);
    memcpy(y, out + states, e->n_out * sizeof *y);
}

/* ---- transpose --------------------------------------------------------------------------------------------------- */

/* The transposed loop: its carries are last, positions, kept..., the sums of linear consts, and cotangents. */
typedef struct transposed {
    const tow__transpose *r;
    const tow__replay_while_params *p;
    tow__fetch fetch;
    bool *linear;  /* [inputs of the body] */
    size_t n_sums; /* linear consts */
} transposed;

/* in: number of the iteration from the last one on, carries; out: carries */
static void transposed_iteration(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    transposed *l = user;
    const tow__replay_while_params *p = l->p;
    const tow_graph *g = p->body;
    const size_t states = (size_t)p->states, consts = (size_t)p->consts, fetched = TOW__FETCH_KEPT + states;
    tow_value *x = tow__trace_alloc(t, 2 * (size_t)g->n_inputs, sizeof *x), *dx = x + g->n_inputs;
    tow_value *at = tow__trace_alloc(t, 2 * fetched, sizeof *at), *next = at + fetched;
    if (!x || !at) return;
    memcpy(at, in, fetched * sizeof *at);
    at[TOW__FETCH_NUMBER] = tow_add_scalar(tow_sub(tow__import(t, l->r->x[COUNT]), in[0]), -1);
    tow__fetch_state(t, &l->fetch, at, next, x + consts);
    memcpy(out, next + TOW__FETCH_LAST, (fetched - TOW__FETCH_LAST) * sizeof *out);
    size_t n = fetched;
    for (size_t i = 0; i < consts; i++) {
        if (l->linear[i])
            dx[i] = in[n++];
        else
            x[i] = tow__import(t, l->r->x[first_const(p) + i]);
    }
    if (tow__failed(t)) return;
    tow__transpose_body(t, g, l->linear, x, in + n, dx);
    n = fetched - TOW__FETCH_LAST;
    for (size_t i = 0; i < g->n_inputs; i++)
        if (l->linear[i]) out[n++] = tow_is_null(dx[i]) ? tow__zeros(t, tow_graph_input_type(g, i)) : dx[i];
}

static tow_value start_of(tow_trace *t, tow_value value, tow_type type)
{
    return tow_is_null(value) ? tow__zeros(t, type) : value;
}

/* The carries with which the loop starts. carry: room for them; returns how many there are. */
static size_t start(const transposed *l, tow_value *carry)
{
    const tow__transpose *r = l->r;
    const tow_graph *g = l->p->body;
    const size_t consts = (size_t)l->p->consts, states = (size_t)l->p->states;
    size_t n = 0;
    carry[n++] = r->x[LAST];
    carry[n++] = r->x[POSITIONS];
    for (size_t k = 0; k < states; k++) carry[n++] = r->x[KEPT + k];
    for (size_t i = 0; i < consts; i++)
        if (l->linear[i]) carry[n++] = start_of(r->t, r->dx[first_const(l->p) + i], tow_graph_input_type(g, i));
    for (size_t i = 0; i < r->e->n_out; i++)
        carry[n++] = start_of(r->t, r->ct[i], tow_graph_input_type(g, consts + states + i));
    return n;
}

static void run_backward(transposed *l)
{
    const tow__transpose *r = l->r;
    const tow__replay_while_params *p = l->p;
    const size_t consts = (size_t)p->consts, states = (size_t)p->states;
    tow_value *carry = tow__trace_alloc(r->t, r->e->n_in, sizeof *carry);
    if (!carry || !tow__fetch_tables(r->t, &l->fetch)) return;
    const size_t n = start(l, carry);
    const tow_fori_options options = TOW_FORI_OPTIONS(.upper = r->x[COUNT], .max_iterations = p->max_iterations);
    tow_fori_function(r->t, 0, 0, transposed_iteration, l, &options, n, carry, carry);
    const tow_value *result = carry + 2 + states;
    for (size_t i = 0; i < consts; i++)
        if (l->linear[i]) r->dx[first_const(p) + i] = *result++;
    for (size_t i = 0; i < r->e->n_out; i++) {
        tow_value *dx = &r->dx[first_carry(p) + i];
        *dx = tow__add_or(*dx, *result++);
    }
}

static void replay_while_transpose(tow__transpose *r)
{
    const tow__replay_while_params *p = r->e->params;
    const size_t consts = (size_t)p->consts, states = (size_t)p->states;
    transposed l = {.r = r,
                    .p = p,
                    .fetch = {.advance = p->advance,
                              .consts = p->advance->n_inputs - states,
                              .carry = states,
                              .slots = p->slots,
                              .most = p->max_iterations,
                              .operands = r->x + first_const(p),
                              .tier = {p->file_slots, r->x + first_file(p)}},
                    .linear = tow__trace_alloc(r->t, p->body->n_inputs, sizeof *l.linear)};
    if (!l.linear) return;
    for (size_t i = 0; i < p->body->n_inputs; i++)
        l.linear[i] = i < consts ? r->linear[first_const(p) + i] : i >= consts + states;
    run_backward(&l);
}

/* Does a tangent reach carries and consts alone? */
static bool is_linear_in(const tow__equation *e, const bool *depends)
{
    const tow__replay_while_params *p = e->params;
    const size_t known = first_const(p) + p->advance->n_inputs - (size_t)p->states;
    for (size_t i = 0; i < known; i++)
        if (depends[e->in[i]]) return false;
    return true;
}

/* ---- descriptor -------------------------------------------------------------------------------------------------- */

/* The graphs belong to the value, not to the program around it: passes leave them alone. */
static void replay_while_form(const tow__equation *e, tow__region_form *form) { (void)e, (void)form; }

static const tow__region replay_while_region = {.form = replay_while_form};

TOW__PRIMITIVE(replay_while, TOW__COMPOSITE, tow__no_tiling, tow__element_cost,
               .operands = "count, last, positions, kept..., consts..., carry...", .inputs = -1, .outputs = -1,
               .type = replay_while_type, .region = &replay_while_region, .transpose = replay_while_transpose,
               .linear_in = is_linear_in, .continues = true, .decompose = replay_while_decompose,
               TOW__PARAMS(tow__replay_while_params, TOW__PARAM(tow__replay_while_params, consts, TOW__P_INT),
                           TOW__PARAM(tow__replay_while_params, states, TOW__P_INT),
                           TOW__PARAM(tow__replay_while_params, slots, TOW__P_INT),
                           TOW__PARAM(tow__replay_while_params, file_slots, TOW__P_COUNT),
                           TOW__PARAM(tow__replay_while_params, max_iterations, TOW__P_INT),
                           TOW__PARAM(tow__replay_while_params, advance, TOW__P_GRAPH),
                           TOW__PARAM(tow__replay_while_params, body, TOW__P_GRAPH)));
