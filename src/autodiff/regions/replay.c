/* replay: the states with which the iterations of a loop begin, from some that were kept.
 *
 *   replay   (consts, kept [slots + 1, ...], [file], xs [length, ...]) -> states [length, ...]
 *                kept[0]: the first state; kept[slots]: the last one, with which the first sweep ends
 *                file: token and staging of each carry whose first file_slots states are in a file (tier.c)
 *   batch, jvp: those of the decomposition, a scan from the first state that stacks its carries
 *
 * It stands in the linear part of a scheduled scan, whose transpose reads its rows from the last iteration to the
 * first. That loop gets the rows one by one (tow__bind_fetching), so the stack of all states is not made:
 *
 *   carries     the number i of the iteration, kept states with the iterations they belong to, the number of the last
 *               one
 *   fetch       state, cur = the last state kept; cur <= i
 *               while slots are free and cur + 1 < i:      run forward by tow__binomial_split, keep the state
 *               run forward to i
 *   after it    iteration i is reversed; a state kept for i is given up
 *
 * so forward iterations are those of the binomial schedule, the least possible for so many slots. */
#include "src/autodiff/regions/scan_flow.h"
#include "src/autodiff/regions/schedule.h"
#include "src/autodiff/regions/types.h"
#include "src/base/spill.h"
#include "tow/control.h"

/* ---- rows -------------------------------------------------------------------------------------------------------- */

tow_type tow__stack_of(tow_type type, int64_t n)
{
    tow_type stack = tow__stack_row(type);
    for (int d = stack.rank++; d > 0; d--) stack.dims[d] = stack.dims[d - 1];
    stack.dims[0] = n;
    return stack;
}

tow_value tow__row_at(tow_value stack, tow_value index, tow_type type)
{
    return tow__in_shape(tow_gather(stack, index), type);
}

tow_value *tow__iteration_inputs(tow_trace *t, const tow_graph *body, size_t consts, size_t carry,
                                 const tow_value *operands, const tow_value *carries, tow_value row)
{
    tow_value *x = tow__trace_alloc(t, body->n_inputs, sizeof *x);
    for (size_t i = 0; x && i < body->n_inputs; i++)
        x[i] = i < consts           ? tow__import(t, operands[i])
               : i < consts + carry ? carries[i - consts]
                                    : tow__row_at(operands[i], row, tow_graph_input_type(body, i));
    return x;
}

tow_value tow__with_row(tow_trace *t, tow_value stack, tow_value row, tow_value index)
{
    tow_value at[TOW_MAX_RANK];
    const int rank = tow_value_type(stack).rank;
    for (int d = 0; d < rank; d++) at[d] = d == 0 ? index : tow_scalar(t, TOW_I32, 0);
    const tow_value flat = tow__in_shape(row, tow__stack_row(tow_value_type(row)));
    return tow_dynamic_update_slice(stack, tow_expand_dims(flat, 0), at);
}

tow_value tow__row_number(tow_value number, int64_t length, bool reverse)
{
    return reverse ? tow_add_scalar(tow_neg(number), (double)(length - 1)) : number;
}

/* ---- type and decomposition -------------------------------------------------------------------------------------- */

/* Operands between kept states and rows. */
static size_t n_files(const tow__replay_params *p) { return p->file_slots > 0 ? 2 * (size_t)p->carry : 0; }

/* The type that operand i must have. */
static tow_type operand_type(const tow__replay_params *p, size_t i)
{
    const size_t consts = (size_t)p->consts, file = consts + (size_t)p->carry;
    if (i < consts) return tow_graph_input_type(p->body, i);
    if (i < file) return tow__stack_of(tow_graph_input_type(p->body, i), p->slots + 1 - p->file_slots);
    if (i < file + n_files(p))
        return (i - file) % 2 == 0
                   ? tow_make_type(TOW_I32, 0, NULL)
                   : tow__stack_of(tow_graph_input_type(p->body, consts + (i - file) / 2), TOW__SPILL_STAGING);
    return tow__stack_of(tow_graph_input_type(p->body, i - n_files(p)), p->length);
}

static tow_status replay_type(const tow__typing *ty)
{
    const tow__replay_params *p = ty->params;
    if (p->file_slots < 0 || p->file_slots >= p->slots || p->carry < 0 || p->carry > INT32_MAX)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "expected fewer file_slots than slots, which count both, found %lld and %lld",
                              (long long)p->file_slots, (long long)p->slots);
    tow_status status = tow__require_count(ty, p->body->n_inputs + n_files(p), p->body->n_outputs);
    if (status != TOW_OK) return status;
    if (p->consts < 0 || p->carry < 0 || (uint64_t)p->carry != ty->n_out || (uint64_t)p->consts > ty->n_in ||
        (uint64_t)p->carry > ty->n_in - (uint64_t)p->consts)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "%lld consts and %lld carries do not fit %zu operands and %zu results",
                              (long long)p->consts, (long long)p->carry, ty->n_in, ty->n_out);
    if (p->slots < 1 || p->length < p->slots || p->length > INT32_MAX)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "expected 1 slot or more, at most %lld, one for each iteration, found %lld",
                              (long long)p->length, (long long)p->slots);
    for (size_t i = 0; i < ty->n_in; i++) {
        const tow_type want = operand_type(p, i);
        if (!tow_type_equal(ty->in[i], want))
            return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "operand %zu must be %s, found %s", i,
                                  tow__type_name(want).text, tow__type_name(ty->in[i]).text);
    }
    status = tow__carries_keep_types(ty, p->body, (size_t)p->consts);
    for (size_t i = 0; i < ty->n_out && status == TOW_OK; i++) {
        ty->out[i] = tow__stack_of(ty->out[i], p->length);
        status = tow__require_valid(ty, ty->out[i]);
    }
    return status;
}

/* (consts, carry, x) -> (carry, rows of the carry with which the iteration began) */
static tow_status stacking_body(const tow__replay_params *p, tow_graph **result)
{
    const tow_graph *g = p->body;
    tow_value *in, *out;
    tow_trace *t = tow__trace_begin_over(g, &in, &out);
    tow_value *all = t ? tow__trace_alloc(t, 2 * (size_t)g->n_outputs, sizeof *all) : NULL;
    if (!all) {
        tow__trace_abandon(t);
        return TOW_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const tow_type type = tow_graph_input_type(g, i);
        const bool row = i >= p->consts + p->carry;
        in[i] = tow__in_shape(tow__input(t, row ? tow__stack_row(type) : type, NULL), type);
    }
    tow__inline(t, g, in, out);
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        all[i] = out[i];
        all[g->n_outputs + i] = tow__in_shape(in[p->consts + i], tow__stack_row(tow_graph_output_type(g, i)));
    }
    return tow__trace_end(t, 2 * (size_t)g->n_outputs, all, false, result);
}

static void replay_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    const tow__replay_params *p = e->params;
    tow__scan_params params = {.length = p->length, .reverse = p->reverse, .consts = p->consts, .carry = p->carry};
    tow_value *in = tow__trace_alloc(t, e->n_in, sizeof *in),
              *out = tow__trace_alloc(t, 2 * (size_t)e->n_out, sizeof *out);
    if (!in || !out) return;
    const size_t consts = (size_t)p->consts, file = consts + (size_t)p->carry;
    const tow__tier tier = {p->file_slots, x + file};
    for (size_t i = 0; i < p->body->n_inputs; i++) {
        const bool kept = i >= consts && i < file;
        in[i] = !kept            ? x[i < consts ? i : i + n_files(p)]
                : n_files(p) > 0 ? tow__tier_read(t, &tier, i - consts, x[i], tow_scalar(t, TOW_I32, 0),
                                                  tow_graph_input_type(p->body, i))
                                 : tow__in_shape(tow__scan_row(x[i], 0), tow_graph_input_type(p->body, i));
    }
    if (stacking_body(p, &params.body) != TOW_OK) {
        tow__adopt_error(t);
        return;
    }
    tow__bind(t, &tow__scan_p, &params, p->body->n_inputs, in, 2 * (size_t)e->n_out, out);
    tow_graph_release(params.body);
    memcpy(y, out + e->n_out, e->n_out * sizeof *y);
}

/* The body belongs to the value, not to the program around it: passes leave it alone. */
static void replay_form(const tow__equation *e, tow__region_form *form) { (void)e, (void)form; }

static const tow__region replay_region = {.form = replay_form};

TOW__PRIMITIVE(replay, TOW__COMPOSITE, tow__no_tiling, tow__element_cost, .operands = "consts..., kept..., xs...",
               .inputs = -1, .outputs = -1, .type = replay_type, .region = &replay_region,
               .decompose = replay_decompose,
               TOW__PARAMS(tow__replay_params, TOW__PARAM(tow__replay_params, length, TOW__P_INT),
                           TOW__PARAM(tow__replay_params, reverse, TOW__P_BOOL),
                           TOW__PARAM(tow__replay_params, consts, TOW__P_INT),
                           TOW__PARAM(tow__replay_params, carry, TOW__P_INT),
                           TOW__PARAM(tow__replay_params, slots, TOW__P_INT),
                           TOW__PARAM(tow__replay_params, file_slots, TOW__P_COUNT),
                           TOW__PARAM(tow__replay_params, body, TOW__P_GRAPH)));
