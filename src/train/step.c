/* Steps and evaluation of a train state.
 *
 * A step is one program (step_graph.h): inputs, keys and numbers go in, loss and aux come out, and parameters, slots,
 * variables and averages are changed in place, or not at all. Evaluation runs the loss alone, micro-batch by
 * micro-batch. */
#include <math.h>

#include "src/base/arithmetic.h"
#include "src/base/dtypes.h"
#include "src/base/keys.h"
#include "src/train/average.h"
#include "src/train/loss_scale.h"
#include "src/train/not_finite.h"
#include "src/train/step_graph.h"
#include "tow/log.h"
#include "tow/program.h"

/* ---- what goes in ------------------------------------------------------------------------------------------------ */

/* The key of stream i at step t is fold_in(fold_in(PRNGKey(seed), i), t), of micro-batch j > 0 fold_in(that, j):
 * nothing to save but the step. */
static void write_key(const tow_train_state *s, size_t stream, size_t micro, uint32_t *to)
{
    tow__key key = tow__key_fold_in(tow__key_from_seed(s->seed), (uint32_t)stream);
    key = tow__key_fold_in(key, (uint32_t)s->step);
    if (micro > 0) key = tow__key_fold_in(key, (uint32_t)micro);
    memcpy(to, key.k, sizeof key.k);
}

void tow__train_set_micro_inputs(tow_train_state *s, const tow__train_program *p, tow_array *const *batch, size_t micro)
{
    tow_array **to = s->micro_inputs + tow__train_first_input(s);
    for (size_t i = 0; i < s->n_inputs; i++) {
        to[i] = batch[i];
        if (!p->views) continue;
        const bool whole = tow_type_equal(tow_array_type(batch[i]), p->micro_types[i]);
        const size_t bytes = whole ? 0 : tow_type_bytes(p->micro_types[i]);
        tow__array_point(p->views[i], (const char *)tow_array_data(batch[i]) + micro * bytes);
        to[i] = p->views[i];
    }
    for (size_t i = 0; i < s->n_streams; i++) write_key(s, i, micro, tow_array_data(to[s->n_inputs + i]));
}

/* Sets the arrays that a step reads and writes besides those that are kept. */
static void set_step(tow_train_state *s, const tow__train_program *p, tow_array *const *batch)
{
    const tow__step_layout l = tow__step_layout_of(s);
    int64_t in_a_row;
    for (size_t i = 0; i < s->n_inputs; i++) s->inputs[l.batch + i] = batch[i];
    for (size_t i = 0; i < s->n_streams; i++)
        for (size_t j = 0; j < s->micro_batches; j++)
            write_key(s, i, j, (uint32_t *)tow_array_data(s->inputs[l.keys + i]) + 2 * j);
    tow_optimizer_set_step_count(s->optimizer, s->step);
    tow__optimizer_begin(s->optimizer);
    if (l.weight) *(double *)tow_array_data(s->inputs[l.weight]) = tow__average_weight(s->average);
    tow_optimizer_skipped_count(s->optimizer, &in_a_row);
    if (l.skips) *(bool *)tow_array_data(s->inputs[l.skips]) = (uint64_t)in_a_row < s->options.skip_not_finite;
    s->outputs[l.loss] = p->loss;
    for (size_t i = 0; i < s->n_aux; i++) s->outputs[l.aux + i] = p->aux[i];
}

/* Batches of any sizes: those of all processes are parts of one batch. */
static tow_status check_same_sizes(const tow_train_state *s, const tow_type *types)
{
    tow__string text;
    tow_status status = TOW_OK;
    tow__string_init(&text, s->ctx);
    for (size_t i = 0; i < s->n_inputs && status == TOW_OK; i++) {
        tow_type whole = types[i];
        status = tow__train_all_rows(s, i, &whole);
        tow__string_add(&text, "%s%s", i > 0 ? ", " : "", tow__type_name(whole).text);
    }
    if (status == TOW_OK && text.failed) status = TOW_OUT_OF_MEMORY;
    const tow_group_fact fact = {"the batch", text.text ? text.text : ""};
    if (status == TOW_OK) status = tow_group_check_same(s->options.group, 1, &fact);
    tow__string_free(&text);
    return status;
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
    if (tow__train_has_others(s) && s->options.other_shapes > 0) {
        const tow_status status = check_same_sizes(s, types);
        if (status != TOW_OK) return status;
    }
    return tow__train_program_for(s, types, evaluation, program);
}

/* ---- judging ----------------------------------------------------------------------------------------------------- */

static double number_in(const tow_array *array, size_t index)
{
    return tow__load_element(tow_array_type(array).dtype, tow_array_data(array), (int64_t)index).f;
}

static bool flag_in(const tow_array *array, size_t index) { return ((const bool *)tow_array_data(array))[index]; }

/* The loss of the whole batch: with weights, a batch without any has none. */
static tow_status loss_of_parts(const tow_train_state *s, const tow_weighted_mean *mean, double *loss)
{
    *loss = tow_weighted_mean_value(mean);
    if (mean->weight > 0) return TOW_OK;
    return tow__fail(s->ctx, TOW_INVALID_ARGUMENT,
                     "train: expected a batch whose weight, aux value 0, is above 0, found %g; leave it out",
                     mean->weight);
}

/* Does the program leave an update out whose gradients are not finite? */
static bool skips(const tow_train_state *s, const tow__step_layout *l)
{
    return l->skips && flag_in(s->inputs[l->skips], 0);
}

/* Are loss and gradients of a micro-batch finite? If not, the error says where that began. */
static tow_status check_finite(tow_train_state *s, const tow__train_program *p, tow_array *const *batch, size_t micro)
{
    const tow__step_layout l = tow__step_layout_of(s);
    if (!l.finite) return TOW_OK;
    const bool finite = flag_in(s->outputs[l.finite], micro);
    const double loss = number_in(p->loss, micro);
    s->gradient_norm = number_in(s->outputs[l.norm], micro);
    if ((finite && isfinite(loss)) || (!finite && skips(s, &l))) return TOW_OK;
    return tow__fail_not_finite(s, p, batch, micro, loss, finite);
}

static tow_status check_weight(const tow_train_state *s, double weight)
{
    if (s->micro_batches == 1 || (weight >= 0 && !isinf(weight))) return TOW_OK;
    return tow__fail(s->ctx, TOW_INVALID_ARGUMENT,
                     "optimizer: expected gradients with a finite weight of 0 or more, found %g", weight);
}

/* The loss of the step, or why nothing has changed: the program has come to the same conclusion. */
static tow_status judge(tow_train_state *s, const tow__train_program *p, tow_array *const *batch, double *loss)
{
    tow_weighted_mean mean = {0};
    tow_status status = TOW_OK;
    for (size_t j = 0; j < s->micro_batches; j++) {
        const double weight = s->options.weighted ? number_in(p->aux[0], j) : 1;
        tow_weighted_mean_add(&mean, number_in(p->loss, j), weight);
        if (weight != 0) TRY(check_finite(s, p, batch, j));
        TRY(check_weight(s, weight));
    }
    *loss = tow_weighted_mean_value(&mean);
    if (tow__step_is_conditional(s)) TRY(loss_of_parts(s, &mean, loss));
done:
    return status;
}

/* Counts the update, or that it was left out. */
static void count(tow_train_state *s)
{
    const tow__step_layout l = tow__step_layout_of(s);
    tow_optimizer_state *o = s->optimizer;
    if (l.all_finite) {
        const bool finite = flag_in(s->outputs[l.all_finite], 0), left_out = !finite && skips(s, &l);
        o->skipped_in_a_row = finite ? 0 : o->skipped_in_a_row + 1;
        o->skipped += left_out;
        tow__loss_scale_after(o, finite);
        if (left_out) return;
    }
    s->step++;
    tow_optimizer_set_step_count(o, s->step);
    if (s->average) tow__average_updated(s->average);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static tow_status step(tow_train_state *s, tow_array *const *inputs, double *loss)
{
    const tow__train_program *p;
    double whole = 0;
    tow_status status = TOW_OK;
    TRY(find_program(s, inputs, false, &p));
    set_step(s, p, inputs);
    s->last = p;
    TRY(tow_program_run(p->program, s->inputs, s->outputs));
    TRY(judge(s, p, inputs, &whole));
    if (loss) *loss = whole;
    count(s);
done:
    return status;
}

/* Subnormal numbers are flushed in the program, and in what is made of its results here. */
tow_status tow_train_step(tow_train_state *state, tow_array *const *inputs, double *loss)
{
    if (!state) return tow__missing(NULL, __func__, "a train state");
    if (state->torn) return tow__train_torn(state, __func__);
    TOW__ARITHMETIC(true);
    return step(state, inputs, loss);
}

tow_status tow_train_step_with(tow_train_state *state, tow_array *const *inputs, double *loss, FILE *file)
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
    double whole;
    tow_status status = TOW_OK;
    if (s->torn) return tow__train_torn(s, "tow_train_evaluate");
    if (!s->options.evaluation)
        return tow__fail(
            s->ctx, TOW_INVALID_ARGUMENT,
            "tow_train_evaluate: the state was made without an evaluation program; set .evaluation = true");
    TRY(find_program(s, inputs, true, &p));
    for (size_t i = 0; i < s->n_params; i++) s->micro_inputs[i] = tow_params_array(params, i);
    for (size_t i = 0; i < s->n_variables; i++) s->micro_inputs[s->n_params + i] = tow_params_array(s->variables, i);
    s->last = p;
    s->micro_outputs[0] = p->loss;
    for (size_t j = 0; j < s->micro_batches; j++) {
        tow__train_set_micro_inputs(s, p, inputs, j);
        for (size_t i = 0; i < s->n_aux; i++) s->micro_outputs[1 + i] = p->rows ? p->rows[j * s->n_aux + i] : p->aux[i];
        TRY(tow_program_run(p->program, s->micro_inputs, s->micro_outputs));
        tow_weighted_mean_add(&mean, number_in(p->loss, 0), s->options.weighted ? number_in(p->aux[0], j) : 1);
    }
    TRY(loss_of_parts(s, &mean, loss ? loss : &whole));
done:
    return status;
}

tow_status tow_train_evaluate(tow_train_state *state, tow_array *const *inputs, double *loss)
{
    if (!state) return tow__missing(NULL, __func__, "a train state");
    return evaluate(state, state->kept, inputs, loss);
}

tow_status tow_train_evaluate_average(tow_train_state *state, tow_array *const *inputs, double *loss)
{
    if (!state) return tow__missing(NULL, __func__, "a train state");
    if (!state->average)
        return tow__fail(state->ctx, TOW_INVALID_ARGUMENT,
                         "tow_train_evaluate_average: the state was made without averages; set .average");
    return evaluate(state, tow_average_params(state->average), inputs, loss);
}
