/* Steps and evaluation of a train state.
 *
 *   for each micro-batch: inputs, keys -> the program -> loss, aux, new variables, gradients -> the optimiser
 *
 * The optimiser adds gradients up and updates in place with the last micro-batch; variables are copied after it. So
 * whatever fails before that leaves parameters, slots and variables as they were. With early_update the program itself
 * updates. */
#include <math.h>

#include "layers/keys.h"
#include "src/base/arithmetic.h"
#include "src/base/dtypes.h"
#include "tow/metrics.h"
#include "tow/program.h"
#include "train/average.h"
#include "train/not_finite.h"
#include "train/state.h"

/* ---- what goes in ------------------------------------------------------------------------------------------------ */

/* The key of stream i at step t is fold_in(fold_in(PRNGKey(seed), i), t), of micro-batch j > 0 fold_in(that, j): nothing to
 * save but the step. */
static void set_keys(tow_train_state *s, size_t micro)
{
    for (size_t i = 0; i < s->n_streams; i++) {
        tow__key key = tow__key_fold_in(tow__key_from_seed(s->seed), (uint32_t)i);
        key = tow__key_fold_in(key, (uint32_t)s->step);
        if (micro > 0) key = tow__key_fold_in(key, (uint32_t)micro);
        memcpy(tow_array_data(s->inputs[tow__train_first_input(s) + s->n_inputs + i]), key.k, sizeof key.k);
    }
}

static void set_inputs(tow_train_state *s, const tow__train_program *p, tow_array *const *inputs, size_t micro)
{
    tow_array **to = s->inputs + tow__train_first_input(s);
    for (size_t i = 0; i < s->n_inputs; i++) {
        to[i] = inputs[i];
        if (!p->views) continue;
        const bool whole = tow_type_equal(tow_array_type(inputs[i]), p->micro_types[i]);
        const size_t bytes = whole ? 0 : tow_type_bytes(p->micro_types[i]);
        tow__array_point(p->views[i], (const char *)tow_array_data(inputs[i]) + micro * bytes);
        to[i] = p->views[i];
    }
    set_keys(s, micro);
}

static void set_outputs(tow_train_state *s, const tow__train_program *p, size_t micro)
{
    s->outputs[0] = p->loss;
    for (size_t i = 0; i < s->n_aux; i++) s->outputs[1 + i] = p->rows ? p->rows[micro * s->n_aux + i] : p->aux[i];
    for (size_t i = 0; i < s->n_variables; i++) {
        s->inputs[s->n_params + i] =
            micro == 0 ? tow_params_array(s->variables, i) : tow_params_array(s->updates[(micro - 1) % 2], i);
        s->outputs[tow__train_first_update(s) + i] = tow_params_array(s->updates[micro % 2], i);
    }
}

static tow_status find_program(tow_train_state *s, tow_array *const *inputs, bool evaluation,
                               const tow__train_program **program)
{
    if (!inputs && s->n_inputs > 0)
        return tow__fail(s->ctx, TOW_INVALID_ARGUMENT, "train: expected a batch of %zu arrays, found NULL",
                         s->n_inputs);
    tow_type *types = s->types + s->n_inputs;
    for (size_t i = 0; i < s->n_inputs; i++) {
        if (!inputs[i])
            return tow__fail(s->ctx, TOW_INVALID_ARGUMENT,
                             "train: input %zu: expected an array of type %s, found NULL; pass an array", i,
                             tow__type_name(s->types[i]).text);
        types[i] = tow_array_type(inputs[i]);
    }
    return tow__train_program_for(s, types, evaluation, program);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static double number_in(const tow_array *scalar)
{
    return tow__load_element(tow_array_type(scalar).dtype, tow_array_data(scalar), 0).f;
}

/* Runs the program on a micro-batch, whose inputs and outputs are set. */
static tow_status run_micro(tow_train_state *s, const tow__train_program *p, double *loss, double *weight)
{
    tow_status status = tow_program_run(p->program, s->inputs, s->outputs);
    if (status != TOW_OK) return status;
    *loss = number_in(p->loss);
    *weight = s->options.weighted ? number_in(s->outputs[1]) : 1;
    return TOW_OK;
}

/* The loss of the whole batch: with weights, a batch without any has none. */
static tow_status loss_of_parts(const tow_train_state *s, const tow_weighted_mean *mean, double *loss)
{
    *loss = tow_weighted_mean_value(mean);
    if (mean->weight > 0) return TOW_OK;
    return tow__fail(s->ctx, TOW_INVALID_ARGUMENT,
                     "train: expected a batch whose weight, aux value 0, is above 0, found %g; leave it out",
                     mean->weight);
}

/* Are the loss and the gradients of this micro-batch finite? If not, the error says where that began. */
static tow_status check_finite(tow_train_state *s, const tow__train_program *p, double loss)
{
    bool finite;
    double norm;
    if (!s->norm) return TOW_OK;
    tow_status status = tow__norm_run(s->norm, s->outputs + tow__train_first_gradient(s), &norm, &finite);
    if (status != TOW_OK) return status;
    s->gradient_norm = norm;
    int64_t in_a_row;
    tow_optimizer_skipped(s->optimizer, &in_a_row);
    const bool skipped = !finite && (uint64_t)in_a_row < s->options.skip_not_finite; /* the optimiser does so */
    if ((finite && isfinite(loss)) || skipped) return TOW_OK;
    return tow__fail_not_finite(s, p->step_graph, loss, finite);
}

/* Loss and gradients of all micro-batches, and the update. */
static tow_status run_step(tow_train_state *s, const tow__train_program *p, tow_array *const *inputs, double *loss)
{
    tow_status status = TOW_OK;
    tow_weighted_mean mean = {0};
    for (size_t j = 0; j < s->micro_batches; j++) {
        double of_micro, weight;
        set_inputs(s, p, inputs, j);
        set_outputs(s, p, j);
        TRY(run_micro(s, p, &of_micro, &weight));
        TRY(s->early_status);
        tow_weighted_mean_add(&mean, of_micro, weight);
        if (s->early) continue;
        if (weight != 0) TRY(check_finite(s, p, of_micro));
        if (j + 1 == s->micro_batches) TRY(loss_of_parts(s, &mean, loss));
        tow_optimizer_set_weight(s->optimizer, weight);
        TRY(tow_optimizer_update_with_loss(s->optimizer, s->outputs + tow__train_first_gradient(s), of_micro));
    }
    if (s->early) *loss = tow_weighted_mean_value(&mean);
done:
    return status;
}

static void keep_variables(tow_train_state *s)
{
    const tow_params *updates = s->updates[(s->micro_batches - 1) % 2];
    for (size_t i = 0; i < s->n_variables; i++) { /* the program reads one array and writes another */
        tow_array *array = tow_params_array(s->variables, i);
        memcpy(tow_array_data(array), tow_array_data(tow_params_array(updates, i)),
               tow_type_bytes(tow_array_type(array)));
    }
}

static tow_status step(tow_train_state *s, tow_array *const *inputs, double *loss)
{
    const tow__train_program *p;
    double sum = 0;
    tow_status status = find_program(s, inputs, false, &p);
    if (status != TOW_OK) return status;
    tow_optimizer_set_step(s->optimizer, s->step);
    tow_optimizer_forget_gradients(s->optimizer);
    if (s->early) tow__optimizer_begin(s->optimizer);
    s->early_status = TOW_OK;
    s->last = p;
    status = run_step(s, p, inputs, &sum);
    if (status != TOW_OK) return status;
    if (loss) *loss = sum;
    if (!s->early && tow_optimizer_step(s->optimizer) == s->step) return TOW_OK; /* left out: nothing changes */
    keep_variables(s);
    s->step++;
    return s->average ? tow_average_update(s->average) : TOW_OK;
}

/* The optimiser flushes subnormal numbers wherever it runs, in the program or after it: the same bits, and moments of
 * parameters without a gradient do not fade away into numbers that are slow. */
tow_status tow_train_step(tow_train_state *state, tow_array *const *inputs, double *loss)
{
    if (!state) return tow__missing(NULL, __func__, "a train state");
    if (state->torn) return tow__train_torn(state, __func__);
    TOW__ARITHMETIC(true);
    return step(state, inputs, loss);
}

tow_status tow_train_step_traced(tow_train_state *state, tow_array *const *inputs, double *loss, FILE *file)
{
    if (!state || !file)
        return tow__missing(state != NULL ? state->ctx : NULL, __func__, "a train state and a file for the trace");
    const tow__train_program *p;
    if (state->torn) return tow__train_torn(state, __func__);
    tow_status status = find_program(state, inputs, false, &p);
    if (status == TOW_OK) status = tow_program_record(p->program, true);
    if (status != TOW_OK) return status;
    status = tow_train_step(state, inputs, loss);
    if (status == TOW_OK) status = tow_program_write_trace(p->program, file);
    tow_program_record(p->program, false);
    return status;
}

/* ---- evaluating -------------------------------------------------------------------------------------------------- */

static tow_status evaluate(tow_train_state *s, const tow_params *params, tow_array *const *inputs, double *loss)
{
    const tow__train_program *p;
    tow_weighted_mean mean = {0};
    if (s->torn) return tow__train_torn(s, "tow_train_evaluate");
    if (!s->options.evaluation)
        return tow__fail(
            s->ctx, TOW_INVALID_ARGUMENT,
            "tow_train_evaluate: the state was made without an evaluation program; set .evaluation = true");
    tow_status status = find_program(s, inputs, true, &p);
    if (status != TOW_OK) return status;
    for (size_t i = 0; i < s->n_params; i++) s->inputs[i] = tow_params_array(params, i);
    s->last = p;
    for (size_t j = 0; j < s->micro_batches && status == TOW_OK; j++) {
        set_inputs(s, p, inputs, j);
        set_outputs(s, p, j);
        for (size_t i = 0; i < s->n_variables; i++) s->inputs[s->n_params + i] = tow_params_array(s->variables, i);
        double of_micro, weight;
        status = run_micro(s, p, &of_micro, &weight);
        if (status == TOW_OK) tow_weighted_mean_add(&mean, of_micro, weight);
    }
    for (size_t i = 0; i < s->n_params; i++) s->inputs[i] = tow_params_array(s->params, i);
    double whole;
    if (status == TOW_OK) status = loss_of_parts(s, &mean, loss ? loss : &whole);
    return status;
}

tow_status tow_train_evaluate(tow_train_state *state, tow_array *const *inputs, double *loss)
{
    if (!state) return tow__missing(NULL, __func__, "a train state");
    return evaluate(state, state->params, inputs, loss);
}

tow_status tow_train_evaluate_average(tow_train_state *state, tow_array *const *inputs, double *loss)
{
    if (!state) return tow__missing(NULL, __func__, "a train state");
    if (!state->average)
        return tow__fail(state->ctx, TOW_INVALID_ARGUMENT,
                         "tow_train_evaluate_average: the state was made without averages; set .average.decay");
    return evaluate(state, tow_average_params(state->average), inputs, loss);
}
