/* The train state: parameters, slots and compiled programs, and the step that joins them.
 *
 * All arrays are made with the state; a step fills in the caller's inputs and the random keys, runs the program, which
 * writes loss and gradients, and runs the optimiser, which writes parameters and slots in place. */
#include "train/state.h"

#include <math.h>

#include "layers/keys.h"
#include "layers/params.h"
#include "src/base/arithmetic.h"
#include "src/base/dtypes.h"
#include "src/io/json.h"
#include "tow/program.h"

/* ---- random keys ------------------------------------------------------------------------------------------------- */

static size_t first_input(const tow_train_state *state) { return state->n_params + state->n_variables; }

/* The key of stream i at step t is fold_in(fold_in(PRNGKey(seed), i), t): nothing to save but the step. */
static void set_keys(tow_train_state *state)
{
    for (size_t i = 0; i < state->n_streams; i++) {
        tow__key key = tow__key_fold_in(tow__key_from_seed(state->seed), (uint32_t)i);
        key = tow__key_fold_in(key, (uint32_t)state->step);
        memcpy(tow_array_data(state->inputs[first_input(state) + state->n_inputs + i]), key.k, sizeof key.k);
    }
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

static size_t count_streams(const tow_model_options *model)
{
    size_t n = 0;
    while (model && model->streams && model->streams[n]) n++;
    return n;
}

static tow_status make_optimizer(tow_train_state *state, const tow_train_options *options)
{
    tow_context *ctx = state->ctx;
    const tow_gradient_transform *transform = options->transform;
    tow_status status = TOW_OK;
    if (transform) {
        const tow_optimizer none = {0};
        if (memcmp(&none, &options->optimizer, sizeof none) != 0)
            return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                             "tow_train_create: expected either .optimizer or .transform, found both; leave one zero");
        state->optimizer_name = transform->cls && transform->cls->name ? transform->cls->name : "";
    } else {
        tow_optimizer resolved;
        TRY(tow__optimizer_resolve(ctx, &options->optimizer, &resolved));
        tow__optimizer_chain(&resolved, &state->transforms);
        state->optimizer_name = tow__optimizer_name(&resolved);
        transform = TOW_TRANSFORM(&state->transforms.chain);
    }
    TRY(tow_optimizer_create(ctx, transform, state->params,
                             &(tow_optimizer_options){.one_by_one = options->early_update}, &state->optimizer));
done:
    return status;
}

/* The lists of inputs and outputs, with keys, loss and gradients as arrays of the state's own. */
static tow_status make_arrays(tow_train_state *state)
{
    tow_context *ctx = state->ctx;
    tow_status status = TOW_OK;
    size_t first_key = first_input(state) + state->n_inputs;
    state->inputs = tow__alloc(ctx, first_key + state->n_streams + 1, sizeof(tow_array *));
    state->outputs = tow__alloc(ctx, 1 + state->n_variables + state->n_params, sizeof(tow_array *));
    if (!state->inputs || !state->outputs) return TOW_OUT_OF_MEMORY;
    TRY(tow_array_create(ctx, tow_graph_output_type(state->loss_graph, 0), &state->outputs[0]));
    for (size_t i = 0; i < state->n_variables; i++) {
        state->inputs[state->n_params + i] = tow_params_array(state->variables, i);
        state->outputs[1 + i] = tow_params_array(state->updates, i);
    }
    for (size_t i = 0; i < state->n_params; i++) {
        tow_array *param = tow_params_array(state->params, i);
        state->inputs[i] = param;
        if (!state->early_update)
            TRY(tow_array_create(ctx, tow_array_type(param), &state->outputs[1 + state->n_variables + i]));
    }
    for (size_t i = 0; i < state->n_streams; i++)
        TRY(tow_array_create(ctx, tow_make_type(TOW_U32, 1, (int64_t[]){2}), &state->inputs[first_key + i]));
done:
    return status;
}

/* Updates a piece of a parameter as soon as its gradient is there. */
static void take_gradient(void *user, int64_t first, int64_t count, const void *gradient)
{
    const tow__early *e = user;
    tow_status status = tow__optimizer_update_piece(e->state->optimizer, e->parameter, first, count, gradient);
    if (e->state->early_status == TOW_OK) e->state->early_status = status;
}

static tow_status compile_gradient(tow_train_state *state, const tow_graph *graph)
{
    tow_context *ctx = state->ctx;
    tow_compile_options options = {.flush_subnormals = true, .keep_within = state->keep_within};
    if (!state->early_update) return tow_compile(ctx, graph, &options, &state->program);
    tow_consumer *consumers = tow__alloc(ctx, state->n_params, sizeof *consumers);
    state->early = tow__alloc(ctx, state->n_params, sizeof *state->early);
    tow_status status = TOW_OUT_OF_MEMORY;
    if (consumers && state->early) {
        for (size_t i = 0; i < state->n_params; i++) {
            state->early[i] = (tow__early){state, (uint32_t)i};
            consumers[i] = (tow_consumer){
                .output = 1 + state->n_variables + i, .input = i, .consume = take_gradient, .user = &state->early[i]};
        }
        options.consumers = consumers;
        options.n_consumers = state->n_params;
        status = tow_compile(ctx, graph, &options, &state->program);
    }
    if (consumers) tow__free(ctx, consumers, state->n_params, sizeof *consumers);
    return status;
}

static tow_status compile_step(tow_train_state *state)
{
    tow_context *ctx = state->ctx;
    tow_graph *graph = NULL;
    tow_status status = TOW_OK;
    /* an empty list of arguments would mean the first one, which is an input here */
    if (state->n_params == 0)
        return tow__fail(
            ctx, TOW_INVALID_ARGUMENT,
            "tow_train_create: the model has no parameters, so there is nothing to train; use tow_forward");
    size_t *wrt = tow__alloc(ctx, state->n_params + 1, sizeof *wrt);
    if (!wrt) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < state->n_params; i++) wrt[i] = i;
    TRY(tow_value_and_grad(state->loss_graph, state->n_params, wrt, state->n_variables > 0, &graph));
    TRY(compile_gradient(state, graph));
done:
    tow_graph_release(graph);
    tow__free(ctx, wrt, state->n_params + 1, sizeof *wrt);
    return status;
}

static tow_status trace_loss(tow_train_state *state, const tow_module *model, const tow_train_options *options,
                             bool evaluation, tow_graph **graph)
{
    tow_model_options model_options = options->model != NULL ? *options->model : (tow_model_options){0};
    static const char *const every_collection[] = {TOW_EVERY_COLLECTION, NULL};
    model_options.state = state->variables;
    if (evaluation) {
        model_options.deterministic = true;
    } else {
        model_options.mutable_collections = every_collection;
        model_options.updates = &state->updates;
    }
    return tow_loss(model, state->params, options->n_inputs, options->input_types, options->n_extra,
                    options->extra_types, options->loss, options->loss_user, 0, &model_options, graph);
}

static tow_status compile_evaluation(tow_train_state *state, const tow_module *model, const tow_train_options *options)
{
    tow_graph *graph = NULL;
    tow_status status = TOW_OK;
    TRY(trace_loss(state, model, options, true, &graph));
    TRY(tow_compile(state->ctx, graph, &(tow_compile_options){.flush_subnormals = true}, &state->evaluation));
done:
    tow_graph_release(graph);
    return status;
}

static tow_status check_options(tow_context *ctx, const tow_module *model, const tow_train_options *options)
{
    if (!model || !options || !options->loss)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "tow_train_create: expected a model and options with a loss function, found NULL");
    if ((options->n_inputs > 0 && !options->input_types) || (options->n_extra > 0 && !options->extra_types))
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "tow_train_create: expected %zu input_types and %zu extra_types, found NULL",
                         options->n_inputs, options->n_extra);
    if (options->description && !tow__is_utf8(options->description))
        return tow__fail(
            ctx, TOW_INVALID_ARGUMENT,
            "tow_train_create: expected a .description in UTF-8, found other bytes; checkpoints are written "
            "in UTF-8");
    const tow_model_options *m = options->model;
    if (m && (m->state || m->mutable_collections || m->updates))
        return tow__fail(
            ctx, TOW_INVALID_ARGUMENT,
            "tow_train_create: expected .model without .state, .mutable_collections and .updates; the train "
            "state makes the variables itself and every step may change them");
    return TOW_OK;
}

static tow_status make_state(tow_train_state *state, const tow_module *model, const tow_train_options *options)
{
    tow_context *ctx = state->ctx;
    tow_status status = TOW_OK;
    state->early_update = options->early_update;
    state->keep_within = options->keep_within;
    if (options->early_update && options->optimizer.clip_norm > 0)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "tow_train_create: expected .clip_norm = 0 with .early_update, found %g; clipping needs the "
                         "norm of all gradients before the first update",
                         options->optimizer.clip_norm);
    const char *description = options->description != NULL ? options->description : "";
    state->description_size = strlen(description) + 1;
    state->description = tow__alloc(ctx, state->description_size, 1);
    if (!state->description) TRY(TOW_OUT_OF_MEMORY);
    memcpy(state->description, description, state->description_size);
    state->seed = options->seed;
    state->n_inputs = options->n_inputs + options->n_extra;
    state->n_streams = count_streams(options->model);
    TRY(tow_init_with_options(ctx, model, options->seed, options->n_inputs, options->input_types, options->model,
                              &state->params, &state->variables));
    state->n_params = tow_params_count(state->params);
    state->n_variables = tow_params_count(state->variables);
    TRY(trace_loss(state, model, options, false, &state->loss_graph));
    TRY(compile_step(state));
    TRY(make_optimizer(state, options));
    if (options->evaluation) TRY(compile_evaluation(state, model, options));
    TRY(make_arrays(state));
done:
    return status;
}

tow_status tow_train_create(tow_context *context, const tow_module *model, const tow_train_options *options,
                            tow_train_state **state)
{
    if (state) *state = NULL;
    if (!context || !state) return tow__missing(context, __func__, "a context and a place for the train state");
    tow_status status = check_options(context, model, options);
    if (status != TOW_OK) return status;
    tow_train_state *made = tow__alloc(context, 1, sizeof *made);
    if (!made) return TOW_OUT_OF_MEMORY;
    made->ctx = context;
    TOW__ARITHMETIC(false);
    status = make_state(made, model, options);
    if (status == TOW_OK)
        *state = made;
    else
        tow_train_free(made);
    return status;
}

void tow_train_free(tow_train_state *state)
{
    if (!state) return;
    tow_context *ctx = state->ctx;
    size_t first_key = first_input(state) + state->n_inputs;
    if (state->inputs) {
        for (size_t i = 0; i < state->n_streams; i++) tow_array_release(state->inputs[first_key + i]);
        tow__free(ctx, state->inputs, first_key + state->n_streams + 1, sizeof(tow_array *));
    }
    if (state->outputs) {
        tow_array_release(state->outputs[0]);
        for (size_t i = 0; i < state->n_params; i++) tow_array_release(state->outputs[1 + state->n_variables + i]);
        tow__free(ctx, state->outputs, 1 + state->n_variables + state->n_params, sizeof(tow_array *));
    }
    tow_program_free(state->program);
    tow_program_free(state->evaluation);
    tow_graph_release(state->loss_graph);
    tow_optimizer_free(state->optimizer);
    tow_params_free(state->params);
    tow_params_free(state->variables);
    tow_params_free(state->updates);
    if (state->early) tow__free(ctx, state->early, state->n_params, sizeof *state->early);
    if (state->description) tow__free(ctx, state->description, state->description_size, 1);
    tow__free(ctx, state, 1, sizeof *state);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static tow_status run(tow_train_state *state, tow_program *program, tow_array *const *inputs, double *loss)
{
    if (!inputs && state->n_inputs > 0)
        return tow__fail(state->ctx, TOW_INVALID_ARGUMENT, "train: expected a batch of %zu arrays, found NULL",
                         state->n_inputs);
    for (size_t i = 0; i < state->n_inputs; i++) state->inputs[first_input(state) + i] = inputs[i];
    set_keys(state);
    tow_status status = tow_program_run(program, state->inputs, state->outputs);
    if (status != TOW_OK || !loss) return status;
    *loss = tow__load_element(tow_array_type(state->outputs[0]).dtype, tow_array_data(state->outputs[0]), 0).f;
    return TOW_OK;
}

static tow_status step(tow_train_state *state, tow_array *const *inputs, double *loss)
{
    tow_optimizer_set_step(state->optimizer, state->step);
    if (state->early_update) tow__optimizer_begin(state->optimizer);
    state->early_status = TOW_OK;
    tow_status status = run(state, state->program, inputs, loss);
    if (status == TOW_OK) status = state->early_status;
    if (status != TOW_OK) return status;
    for (size_t i = 0; i < state->n_variables; i++) { /* the program reads one array and writes another */
        tow_array *array = tow_params_array(state->variables, i);
        memcpy(tow_array_data(array), tow_array_data(state->outputs[1 + i]), tow_type_bytes(tow_array_type(array)));
    }
    if (!state->early_update) status = tow_optimizer_update(state->optimizer, state->outputs + 1 + state->n_variables);
    if (status == TOW_OK) state->step++;
    return status;
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
    tow_status status = tow_program_record(state->program, true);
    if (status == TOW_OK) status = tow_train_step(state, inputs, loss);
    if (status == TOW_OK) status = tow_program_write_trace(state->program, file);
    tow_program_record(state->program, false);
    return status;
}

tow_status tow_train_evaluate(tow_train_state *state, tow_array *const *inputs, double *loss)
{
    if (!state) return tow__missing(NULL, __func__, "a train state");
    if (state->torn) return tow__train_torn(state, __func__);
    if (!state->evaluation)
        return tow__fail(
            state->ctx, TOW_INVALID_ARGUMENT,
            "tow_train_evaluate: the state was made without an evaluation program; set .evaluation = true");
    return run(state, state->evaluation, inputs, loss);
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

int64_t tow_train_step_number(const tow_train_state *state) { return state->step; }
uint64_t tow_train_data_position(const tow_train_state *state) { return state->data_position; }
void tow_train_set_data_position(tow_train_state *state, uint64_t position) { state->data_position = position; }
double tow_train_gradient_norm(const tow_train_state *state)
{
    const double norm = tow_optimizer_reported(state->optimizer, "clip/norm");
    return isnan(norm) && !tow__optimizer_reports(state->optimizer, "clip/norm") ? 0 : norm;
}
tow_optimizer_state *tow_train_optimizer(const tow_train_state *state) { return state->optimizer; }
tow_params *tow_train_params(const tow_train_state *state) { return state->params; }
tow_params *tow_train_variables(const tow_train_state *state) { return state->variables; }
const tow_graph *tow_train_loss_graph(const tow_train_state *state) { return state->loss_graph; }
const tow_program *tow_train_program(const tow_train_state *state) { return state->program; }

tow_train_bytes tow_train_get_bytes(const tow_train_state *state)
{
    tow_train_bytes bytes = {0};
    for (size_t i = 0; i < state->n_params; i++) bytes.parameters += tow_type_bytes(tow_array_type(state->inputs[i]));
    for (size_t i = 0; i < state->n_variables; i++)
        bytes.variables += 2 * tow_type_bytes(tow_array_type(tow_params_array(state->variables, i)));
    bytes.gradients = state->early_update ? 0 : bytes.parameters;
    bytes.optimizer = tow_optimizer_bytes(state->optimizer);
    tow_program_bytes program = tow_program_get_bytes(state->program);
    bytes.residuals = program.residuals;
    bytes.workspace = program.arena - program.residuals + program.constants +
                      (program.outputs - bytes.gradients - bytes.variables / 2) +
                      tow__optimizer_workspace(state->optimizer);
    if (state->evaluation) {
        tow_program_bytes evaluation = tow_program_get_bytes(state->evaluation);
        bytes.evaluation = evaluation.arena + evaluation.constants;
    }
    bytes.total = bytes.parameters + bytes.variables + bytes.gradients + bytes.optimizer + bytes.residuals +
                  bytes.workspace + bytes.evaluation;
    return bytes;
}
