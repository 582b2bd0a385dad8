/* scan: a loop over rows.
 *
 *   scan       (consts, carry, xs [length, ...])   -> (carry, ys [length, ...])
 *   batching   one loop over the batched body: a carry is batched if it starts so or the body makes it so, a fixpoint
 *              over the body; elements of xs keep the loop's axis in front: [length, ..., rows, ...]
 *
 * Rules are in loop_jvp.c, scan_partial.c and scan_transpose.c. */
#include "src/autodiff/batch.h"
#include "src/autodiff/reach.h"
#include "src/autodiff/regions/control.h"
#include "src/autodiff/regions/scan_transpose.h"
#include "src/autodiff/regions/types.h"

/* ---- type -------------------------------------------------------------------------------------------------------- */

/* Counts of scan agree: operands consts, carry, xs; results carry, ys. */
static tow_status scan_counts(const tow__typing *ty, const tow__scan_params *p)
{
    if (!p->body) return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "it has no body");
    tow_status status = tow__require_count(ty, p->body->n_inputs, p->body->n_outputs);
    if (status != TOW_OK) return status;
    if (p->consts < 0 || p->carry < 0 || (uint64_t)p->consts > ty->n_in ||
        (uint64_t)p->carry > ty->n_in - (uint64_t)p->consts || (uint64_t)p->carry > ty->n_out)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "%lld consts and %lld carries do not fit a body with %zu inputs and "
                              "%zu outputs",
                              (long long)p->consts, (long long)p->carry, ty->n_in, ty->n_out);
    if (p->length < 0)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "length must not be negative, found %lld",
                              (long long)p->length);
    if (p->slots < 0)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "slots must not be negative, found %lld", (long long)p->slots);
    if (p->file_slots < 0 || (p->file_slots > 0 && (p->slots == 0 || p->slots + p->file_slots >= p->length)))
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "file_slots stand beside slots, with less than length %lld in all, found %lld and %lld",
                              (long long)p->length, (long long)p->file_slots, (long long)p->slots);
    if (p->slots > 0 && p->length > INT32_MAX)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "a scan with slots has at most 2^31 - 1 iterations, found %lld",
                              (long long)p->length);
    return TOW_OK;
}

/* scan(consts, carry, xs [length, ...]) -> carry, ys [length, ...] */
static tow_status scan_type(const tow__typing *ty)
{
    const tow__scan_params *p = ty->params;
    tow_status status = scan_counts(ty, p);
    if (status != TOW_OK) return status;
    size_t xs = (size_t)(p->consts + p->carry), carry = (size_t)p->carry;
    for (size_t i = 0; i < ty->n_in; i++) {
        tow_type have = ty->in[i], want = tow_graph_input_type(p->body, i);
        if (i >= xs) {
            if (have.rank == 0)
                return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                                      "operand %zu is scanned over and needs a leading axis, found %s", i,
                                      tow__type_name(have).text);
            if (have.dims[0] != p->length)
                return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                                      "operand %zu is scanned over: its leading axis must be the length "
                                      "%lld, found %s",
                                      i, (long long)p->length, tow__type_name(have).text);
            have = tow_make_type(have.dtype, have.rank - 1, have.dims + 1);
        }
        if (!tow_type_equal(have, want))
            return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "%s %zu of the body must be %s, found %s",
                                  i >= xs ? "the element of operand" : "operand", i, tow__type_name(want).text,
                                  tow__type_name(have).text);
    }
    for (size_t i = 0; i < ty->n_out; i++) {
        ty->out[i] = tow_graph_output_type(p->body, i);
        if (i < carry) {
            tow_type want = ty->in[(size_t)p->consts + i];
            if (!tow_type_equal(ty->out[i], want))
                return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                                      "carry %zu starts as %s but the body returns %s; a carry must "
                                      "keep its type: convert or reshape one of the two",
                                      i, tow__type_name(want).text, tow__type_name(ty->out[i]).text);
            continue;
        }
        if (ty->out[i].rank == TOW_MAX_RANK)
            return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                                  "output %zu of the body is %s: stacking it would need rank %d; reshape "
                                  "it to a smaller rank",
                                  i, tow__type_name(ty->out[i]).text, TOW_MAX_RANK + 1);
        for (int d = ty->out[i].rank++; d > 0; d--) ty->out[i].dims[d] = ty->out[i].dims[d - 1];
        ty->out[i].dims[0] = p->length;
        if ((status = tow__require_valid(ty, ty->out[i])) != TOW_OK) return status;
    }
    return TOW_OK;
}

/* ---- forward mode ------------------------------------------------------------------------------------------------ */

/* Final tangents that are one value in the iterations written out, or an operand's, are one value here: its cotangents
 * add up in one order. */
static void forward_tangents(tow_trace *t, const tow__equation *loop, const tow_graph *body, uint32_t consts,
                             uint32_t carry, const tow_value *operands, tow_value *results)
{
    const tow__scan_params *old = loop->params;
    const tow__scan_params params = {
        .body = (tow_graph *)body, .length = old->length, .reverse = old->reverse, .consts = consts, .carry = carry};
    tow__forward_carries(t, &params, old->carry, operands, results);
}

static void scan_jvp(tow__jvp *r) { tow__loop_jvp_forwarding(r, forward_tangents); }

/* ---- batching ---------------------------------------------------------------------------------------------------- */

/* Finds the operands of the loop that are batched inside, and the values that the body makes batched. in: [n_in],
 * starts as the operands say. */
TOW__OWN_FRAME static const tow__reach *batched_fixpoint(tow__arena *arena, const tow__equation *e, bool *in)
{
    tow__reach_walk walk = {.ctx = arena->ctx, .arena = arena};
    tow__region_form form;
    tow__region_of(e, &form);
    tow__reach *reach = tow__reach_begin(&walk, form.body);
    return reach && tow__reach_loop(&walk, reach, &form, in) == TOW_OK ? reach : NULL;
}

/* Operands where the loop wants them, and the axes of the body's inputs: carries keep the axis of their initial value,
 * an element of xs loses the axis in front. */
TOW__OWN_FRAME static void loop_operands(const tow__batch *r, const bool *batched, tow_value *in, int *axes)
{
    const tow__scan_params *p = r->e->params;
    for (uint32_t i = 0; i < r->e->n_in; i++) {
        bool is_row = i >= p->consts + p->carry;
        int axis = tow__is_batched(r->x[i]) ? r->x[i].axis : 0;
        if (is_row && axis == 0) axis = 1;
        in[i] = batched[i] ? tow__batch_operand(r, i, axis) : r->x[i].value;
        axes[i] = !batched[i] ? TOW__UNBATCHED : is_row ? axis - 1 : axis;
    }
}

static void bind_loop(tow__batch *r, const tow__reach *reach, const bool *batched)
{
    const tow__equation *e = r->e;
    tow__scan_params params = *(const tow__scan_params *)e->params;
    const tow_graph *body = params.body;
    int *axes = tow__trace_alloc(r->t, (size_t)e->n_in + e->n_out, sizeof *axes), *out_axes = axes + e->n_in;
    tow_value *in = tow__trace_alloc(r->t, e->n_in, sizeof *in), *out = tow__trace_alloc(r->t, e->n_out, sizeof *out);
    if (!axes || !in || !out) return;
    loop_operands(r, batched, in, axes);
    for (uint32_t i = 0; i < e->n_out; i++) out_axes[i] = i < params.carry ? axes[params.consts + i] : TOW__AS_IT_FALLS;
    if (tow__batch_graph(body, reach, r->size, axes, out_axes, &params.body) != TOW_OK) {
        tow__adopt_error(r->t);
        return;
    }
    tow__bind(r->t, &tow__scan_p, &params, e->n_in, in, e->n_out, out);
    tow_graph_release(params.body);
    for (uint32_t i = 0; i < e->n_out; i++) {
        bool stacked = i >= params.carry && out_axes[i] != TOW__UNBATCHED;
        r->y[i] = (tow__mapped){.value = out[i], .axis = stacked ? out_axes[i] + 1 : out_axes[i]};
    }
}

static void scan_batch(tow__batch *r)
{
    const tow__scan_params *p = r->e->params;
    const tow__reach *reach = r->reach;
    bool *batched = tow__trace_alloc(r->t, r->e->n_in, sizeof *batched);
    tow__arena arena;
    if (!batched) return;
    tow__arena_init(&arena, p->body->ctx);
    for (uint32_t i = 0; i < r->e->n_in; i++)
        batched[i] = reach ? reach->var[p->body->inputs[i]] : tow__is_batched(r->x[i]);
    if (!reach) reach = batched_fixpoint(&arena, r->e, batched);
    if (reach)
        bind_loop(r, reach, batched);
    else
        tow__adopt_error(r->t);
    tow__arena_free(&arena);
}

/* ---- descriptor -------------------------------------------------------------------------------------------------- */

static void scan_form(const tow__equation *e, tow__region_form *form)
{
    const tow__scan_params *p = e->params;
    form->repeats = true;
    form->consts = (uint32_t)p->consts;
    form->carry = (uint32_t)p->carry;
    form->reverse = p->reverse;
    form->stops = p->stops;
    form->length = p->length;
    form->slots = p->slots + p->file_slots;
    form->file_slots = p->file_slots;
}

static void scan_resize(void *params, int64_t consts, int64_t carry)
{
    tow__scan_params *p = params;
    p->consts = consts;
    p->carry = carry;
}

static const tow__region scan_region = {
    .planned = TOW__AS_LOOP, .form = scan_form, .resize = scan_resize, .split = tow__scan_split};

TOW__PRIMITIVE(
    scan, TOW__REGION, tow__no_tiling, tow__element_cost, .operands = "consts..., carry..., xs...", .inputs = -1,
    .outputs = -1, .type = scan_type, .region = &scan_region, .jvp = scan_jvp, .transpose = tow__scan_transpose,
    .continues = true, .batch = scan_batch,
    TOW__PARAMS(tow__scan_params, TOW__PARAM(tow__scan_params, length, TOW__P_INT),
                TOW__PARAM(tow__scan_params, reverse, TOW__P_BOOL), TOW__PARAM(tow__scan_params, consts, TOW__P_INT),
                TOW__PARAM(tow__scan_params, carry, TOW__P_INT), TOW__PARAM(tow__scan_params, slots, TOW__P_COUNT),
                TOW__PARAM(tow__scan_params, file_slots, TOW__P_COUNT),
                TOW__PARAM(tow__scan_params, stops, TOW__P_PLAN), TOW__PARAM(tow__scan_params, body, TOW__P_GRAPH)));
