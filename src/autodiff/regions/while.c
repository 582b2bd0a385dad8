/* while: the body runs as long as the condition holds, at most max_iterations times.
 *
 *   while  (consts, carry)           -> carry
 *
 * Its decomposition, which plans run, is a scan that stops:
 *
 *   p = condition(carry);  scan (p, carry) -> (condition(carry'), carry') until p is false
 *
 * Rules are in loop_jvp.c, while_partial.c, while_schedule.c and batch_control.c. */
#include "src/autodiff/regions/control.h"
#include "src/autodiff/regions/types.h"

static tow_status while_type(const tow__typing *ty)
{
    const tow__while_params *p = ty->params;
    tow_status status = tow__require_count(ty, p->body->n_inputs, p->body->n_outputs);
    if (status == TOW_OK) status = tow__loop_counts_fit(ty, p->consts, p->max_iterations, 0);
    if (status != TOW_OK) return status;
    if (p->slots < 0)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "slots must not be negative, found %lld", (long long)p->slots);
    if (p->file_slots < 0 || p->file_slots + p->slots > INT32_MAX || (p->file_slots > 0 && p->slots == 0))
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "file_slots stand beside slots, found %lld and %lld",
                              (long long)p->file_slots, (long long)p->slots);
    tow_type found = tow_graph_output_type(p->condition, 0);
    if (p->condition->n_inputs != ty->n_in || p->condition->n_outputs != 1)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "the condition has %u inputs and %u outputs, expected the %zu inputs of the body and 1 "
                              "output",
                              p->condition->n_inputs, p->condition->n_outputs, ty->n_in);
    if (found.rank != 0 || found.dtype != TOW_BOOL)
        return tow__type_fail(ty, TOW_TYPE_MISMATCH, "the condition must give bool[], found %s",
                              tow__type_name(found).text);
    status = tow__inputs_agree(ty, p->condition, "the condition", 0, ty->n_in);
    if (status == TOW_OK) status = tow__inputs_agree(ty, p->body, "the body", 0, ty->n_in);
    return status == TOW_OK ? tow__carries_keep_types(ty, p->body, (size_t)p->consts) : status;
}

/* (consts, p, carry) -> (condition(carry'), carry') */
static tow_status while_body(const tow__while_params *p, tow_graph **result)
{
    const tow_graph *g = p->body;
    tow_value *in, *out;
    tow_trace *t = tow__trace_begin_over(g, &in, &out);
    if (!t) return TOW_OUT_OF_MEMORY;
    tow_value *all = tow__trace_alloc(t, (size_t)g->n_outputs + 1, sizeof *all);
    for (uint32_t i = 0; i < p->consts; i++) in[i] = tow__input(t, tow_graph_input_type(g, i), NULL);
    tow__input(t, tow_make_type(TOW_BOOL, 0, NULL), NULL);
    for (uint32_t i = (uint32_t)p->consts; i < g->n_inputs; i++)
        in[i] = tow__input(t, tow_graph_input_type(g, i), NULL);
    tow__inline(t, g, in, out);
    if (all) {
        memcpy(in + p->consts, out, g->n_outputs * sizeof *in);
        memcpy(all + 1, out, g->n_outputs * sizeof *all);
        tow__inline(t, p->condition, in, all);
    }
    return tow__trace_end(t, all ? (size_t)g->n_outputs + 1 : 0, all, false, result);
}

static void while_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    const tow__while_params *p = e->params;
    tow__scan_params params = {.length = p->max_iterations ? p->max_iterations : INT64_MAX,
                               .consts = p->consts,
                               .carry = (int64_t)e->n_out + 1,
                               .stops = 1};
    tow_value *in = tow__trace_alloc(t, (size_t)e->n_in + 1, sizeof *in);
    tow_value *out = tow__trace_alloc(t, (size_t)e->n_out + 1, sizeof *out);
    if (!in || !out) return;
    memcpy(in, x, (size_t)p->consts * sizeof *in);
    memcpy(in + p->consts + 1, x + p->consts, e->n_out * sizeof *in);
    tow__inline(t, p->condition, x, in + p->consts);
    if (while_body(p, &params.body) != TOW_OK) {
        tow__adopt_error(t);
        return;
    }
    tow__bind(t, &tow__scan_p, &params, (size_t)e->n_in + 1, in, (size_t)e->n_out + 1, out);
    tow_graph_release(params.body);
    memcpy(y, out + 1, e->n_out * sizeof *y);
}

/* Partial evaluation makes a fori of a while whose number of iterations is bounded, a replay_while of one that keeps
 * states. */
static void while_transpose(tow__transpose *r)
{
    const char *scope = r->e->source.scope;
    tow_trace_fail(r->t, TOW_UNSUPPORTED,
                   "%s%swhile: reverse mode does not work for a loop without a bound on its iterations; give it "
                   "max_iterations, or .schedule = {.slots = 8} to keep so many states, use a scan or a fori whose "
                   "bounds are numbers, or stop the derivative with tow_stop_gradient",
                   scope ? scope : "", scope ? ": " : "");
}

static void while_form(const tow__equation *e, tow__region_form *form)
{
    const tow__while_params *p = e->params;
    form->repeats = true;
    form->conditions = 1;
    form->consts = (uint32_t)p->consts;
    form->carry = e->n_out;
    form->length = TOW__DATA_DECIDE;
    form->most = p->max_iterations;
    form->slots = p->slots + p->file_slots;
    form->file_slots = p->file_slots;
}

static void while_resize(void *params, int64_t consts, int64_t carry)
{
    (void)carry;
    ((tow__while_params *)params)->consts = consts;
}

static const tow__region while_region = {.form = while_form, .resize = while_resize, .split = tow__while_split};

TOW__PRIMITIVE(while, TOW__REGION, tow__no_tiling, tow__element_cost, .operands = "consts..., carry...", .inputs = -1,
               .outputs = -1, .type = while_type, .region = &while_region, .jvp = tow__loop_jvp,
               .transpose = while_transpose, .batch = tow__batch_while, .decompose = while_decompose,
               TOW__PARAMS(tow__while_params, TOW__PARAM(tow__while_params, max_iterations, TOW__P_INT),
                           TOW__PARAM(tow__while_params, consts, TOW__P_INT),
                           TOW__PARAM(tow__while_params, slots, TOW__P_COUNT),
                           TOW__PARAM(tow__while_params, file_slots, TOW__P_COUNT),
                           TOW__PARAM(tow__while_params, condition, TOW__P_GRAPH),
                           TOW__PARAM(tow__while_params, body, TOW__P_GRAPH)));
