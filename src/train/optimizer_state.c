/* An optimizer that runs: slots, numbers and programs over the caller's parameters.
 *
 * Parameters and slots are donated to the program, which writes their new values in place. */
#include <math.h>
#include <stdio.h>

#include "src/autodiff/sharding/sharding.h"
#include "src/base/arithmetic.h"
#include "src/base/cancel.h"
#include "src/base/options.h"
#include "src/graph/graph.h"
#include "src/scope/tree.h"
#include "src/train/loss_scale.h"
#include "src/train/transforms.h"
#include "src/train/update.h"
#include "tow/ops.h"
#include "tow/program.h"
#include "tow/train.h"

/* ---- making ------------------------------------------------------------------------------------------------------ */

typedef struct filling {
    tow_type type;
    double value;
} filling;

static void record_full(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const filling *f = user;
    (void)in;
    out[0] = tow_full(trace, f->type, f->value);
}

/* An array of `value`, in any type. */
static tow_status make_array(tow_context *ctx, tow_type type, double value, tow_array **array)
{
    tow_graph *graph = NULL;
    filling f = {type, value};
    if (value == 0) return tow_array_create(ctx, type, array);
    tow_status status = tow_trace_function(ctx, record_full, &f, 0, NULL, NULL, 1, &graph);
    if (status == TOW_OK) status = tow_evaluate(graph, NULL, array);
    tow_graph_release(graph);
    return status;
}

static tow_status add_to_group(tow_optimizer_state *o, uint32_t slot)
{
    tow__slot *s = &o->slots[slot];
    tow__slot_group *group = NULL;
    tow_status status = TOW_OK;
    const char *path = o->slot_names.names[slot] + s->prefix_size - 1;
    const size_t size = strlen(path) + 1;
    char *plain = tow__alloc(o->ctx, size, 1); /* layers are in front */
    if (!plain) return TOW_OUT_OF_MEMORY;
    tow__path_plain(path, plain);
    for (uint32_t i = 0; i < o->n_groups && !group; i++)
        if (strcmp(o->groups[i].prefix, s->prefix) == 0) group = &o->groups[i];
    if (!group) {
        group = &o->groups[o->n_groups];
        TRY(tow__params_create(o->ctx, &group->list));
        group->prefix = s->prefix;
        o->n_groups++;
    }
    if (tow__names_find(&group->list->names, plain) != TOW__NO_NAME)
        TRY(tow__fail(
            o->ctx, TOW_INVALID_ARGUMENT,
            "optimizer: %s: another parameter differs from it in the axis of layers only; give them different paths "
            "(tow_params_rename)",
            path));
    if (s->parameter == TOW__NO_PARAMETER)
        TRY(tow__params_add(group->list, plain, s->type));
    else
        TRY(tow__params_add_like(group->list, plain, s->type, o->params, s->parameter));
    if (s->layers > 0)
        TRY(tow__params_set_share(group->list, group->list->names.count - 1, o->shards, tow__slot_kept_type(o, slot)));
    TRY(make_array(o->ctx, tow__slot_kept_type(o, slot), s->initial, &s->array));
    group->list->arrays[group->list->names.count - 1] = s->array;
done:
    tow__free(o->ctx, plain, size, 1);
    return status;
}

/* Arrays of numbers and reports: f64 scalars. */
static tow_status make_scalars(tow_context *ctx, uint32_t n, tow_array ***arrays)
{
    tow_status status = TOW_OK;
    *arrays = tow__alloc(ctx, (size_t)n + 1, sizeof **arrays);
    if (!*arrays) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < n && status == TOW_OK; i++)
        status = tow_array_create(ctx, tow_make_type(TOW_F64, 0, NULL), &(*arrays)[i]);
    return status;
}

static void free_scalars(tow_context *ctx, uint32_t n, tow_array **arrays)
{
    if (!arrays) return;
    for (uint32_t i = 0; i < n; i++) tow_array_release(arrays[i]);
    tow__free(ctx, arrays, (size_t)n + 1, sizeof *arrays);
}

static tow_status compile(tow_optimizer_state *o, const tow_graph *graph, size_t n, size_t n_slots,
                          tow_program **program)
{
    tow_donation *donations = tow__alloc(o->ctx, n + n_slots + 1, sizeof *donations);
    if (!donations) return TOW_OUT_OF_MEMORY;
    const size_t n_written = o->search ? 0 : n; /* parameters that the program writes */
    for (size_t i = 0; i < n_written; i++) donations[i] = (tow_donation){i, i};
    for (size_t i = 0; i < n_slots; i++) donations[n_written + i] = (tow_donation){n + i, 2 * n + i};
    const tow_compile_options options =
        TOW_COMPILE_OPTIONS(.flush_subnormals = true, .donations = donations, .n_donations = n_written + n_slots,
                            .shared_arena = o->shared_arena);
    tow_status status = tow_compile(o->ctx, graph, &options, program);
    tow__free(o->ctx, donations, n + n_slots + 1, sizeof *donations);
    return status;
}

static tow_status make_program(tow_optimizer_state *o)
{
    const size_t n = o->params->names.count, n_slots = o->slot_names.count, n_reports = o->report_names.count;
    const size_t n_inputs = 2 * n + n_slots + o->number_names.count, n_outputs = n + n_slots + n_reports;
    tow_status status = TOW_OK;
    TRY(tow__update_graph(o, &o->graph));
    TRY(compile(o, o->graph, n, n_slots, &o->program));
    o->inputs = tow__alloc(o->ctx, n_inputs + 1, sizeof *o->inputs);
    o->outputs = tow__alloc(o->ctx, n_outputs + 1, sizeof *o->outputs);
    if (!o->inputs || !o->outputs) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < n; i++) o->inputs[i] = o->params->arrays[i];
    for (size_t i = 0; i < n_slots; i++) o->inputs[2 * n + i] = o->slots[i].array;
    for (size_t i = 0; i < o->number_names.count; i++) o->inputs[2 * n + n_slots + i] = o->number_arrays[i];
    for (size_t i = 0; i < n_reports; i++) o->outputs[n + n_slots + i] = o->report_arrays[i];
    for (size_t i = 0; i < n && o->search; i++) o->outputs[i] = tow__search_directions(o->search)[i];
done:
    return status;
}

/* ---- the state --------------------------------------------------------------------------------------------------- */

static tow_status check_options(tow_context *ctx, const tow_optimizer_options *options)
{
    if (options->weighted && options->every <= 1)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "optimizer: expected .weighted with .every of 2 or more, found %zu",
                         options->every);
    if (options->examples < 0 || options->examples >= INT64_C(1) << 30)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "optimizer: expected .examples in [0, 2^30), found %lld",
                         (long long)options->examples);
    if ((options->examples || options->line_search) && (options->every > 1 || options->skip_not_finite))
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "optimizer: expected .every = 0 and .skip_not_finite = 0 with .examples and .line_search; "
                         "aggregate, or search, by a state of its own");
    if ((options->slot_bits != 0 && options->slot_bits != 8) || options->slot_bits_least < 0)
        return tow__fail(
            ctx, TOW_INVALID_ARGUMENT,
            "optimizer: expected .slot_bits of 8, or 0 for slots as they are, and .slot_bits_least of 0 or "
            "more, found %d and %lld",
            options->slot_bits, (long long)options->slot_bits_least);
    if (options->master && options->stochastic_rounding)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "optimizer: found .master and .stochastic_rounding; masters are rounded to nearest, so leave "
                         "one of them out");
    if (options->line_search && (options->master || options->stochastic_rounding))
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "optimizer: expected neither .master nor .stochastic_rounding with .line_search, which takes "
                         "parameters of f32 and f64");
    if (options->examples && options->line_search)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "optimizer: found .examples and .line_search; a search takes the gradients of one loss");
    return TOW_OK;
}

int64_t tow__layers_of(const tow_params *params, uint32_t i)
{
    const char *path = params->names.names[i];
    const tow_type front = tow__type_in_front(path, params->types[i]);
    int64_t layers = 1;
    for (int a = 0; a < tow__path_levels(path); a++) layers *= front.dims[a];
    return tow_type_element_count(front) == 0 ? 0 : layers;
}

int64_t tow__optimizer_layers(const tow_optimizer_state *o, uint32_t parameter)
{
    if (tow_group_count(o->shards) == 1) return 0;
    const bool in_front = tow__path_in_front(o->params->names.names[parameter], o->params->types[parameter].rank);
    return in_front ? tow__layers_of(o->params, parameter) : 0;
}

/* Slots that have the shape of their parameter are shared; others are few numbers, or every process reads all. */
static void share_slots(tow_optimizer_state *o)
{
    if (tow_group_count(o->shards) == 1) return;
    for (uint32_t i = 0; i < o->slot_names.count; i++) {
        tow__slot *s = &o->slots[i];
        if (s->parameter == TOW__NO_PARAMETER) continue;
        tow_type whole = tow__type_in_front(o->params->names.names[s->parameter], o->params->types[s->parameter]);
        whole.dtype = s->type.dtype;
        if (tow_type_equal(whole, s->type)) s->layers = tow__layers_of(o->params, s->parameter);
    }
}

tow_type tow__slot_kept_type(const tow_optimizer_state *o, uint32_t slot)
{
    const tow__slot *s = &o->slots[slot];
    if (s->layers == 0) return s->type;
    tow_type kept = s->type;
    kept.rank = tow__path_levels(o->params->names.names[s->parameter]) + 1;
    kept.dims[kept.rank - 1] = tow__sharding_type(o->shards, s->type, s->layers).dims[1];
    return kept;
}

static tow_status make(tow_optimizer_state *o, const tow_optimizer_options *options, bool with_program)
{
    tow_status status = TOW_OK;
    TRY(check_options(o->ctx, options));
    o->shared_arena = options->shared_arena;
    const uint32_t n = o->params->names.count;
    for (uint32_t i = 0; i < n; i++)
        if (!tow_dtype_is_float(o->params->types[i].dtype))
            return tow__fail(o->ctx, TOW_TYPE_MISMATCH,
                             "params/%s: expected a float type, which has gradients, found %s; freeze it "
                             "(tow_params_freeze)",
                             o->params->names.names[i], tow__type_name(o->params->types[i]).text);
    o->first_slot = tow__alloc(o->ctx, (size_t)n + 1, sizeof *o->first_slot);
    if (!o->first_slot) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < n; i++) o->first_slot[i] = TOW__NO_NAME;
    o->examples = options->examples;
    o->master = options->master;
    o->stochastic_rounding = options->stochastic_rounding;
    o->seed = options->seed;
    o->slot_bits = options->slot_bits;
    o->slot_bits_least = options->slot_bits_least;
    o->skip_not_finite = options->skip_not_finite;
    TRY(tow__loss_scale_begin(o, options));
    for (uint32_t i = 0; i < n && o->examples; i++)
        if (o->params->types[i].rank == TOW_MAX_RANK || !tow__type_valid(tow__gradient_type(o, i)))
            return tow__fail(
                o->ctx, TOW_UNSUPPORTED,
                "optimizer: params/%s is %s; gradients of single examples have one axis more, of %d at most",
                o->params->names.names[i], tow__type_name(o->params->types[i]).text, TOW_MAX_RANK);
    if (options->line_search) TRY(tow__search_create(o));
    TRY(tow__update_discover(o));
    share_slots(o);
    o->groups = tow__alloc(o->ctx, (size_t)o->slot_names.count + 1, sizeof *o->groups);
    if (!o->groups) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < o->slot_names.count; i++) TRY(add_to_group(o, i));
    TRY(make_scalars(o->ctx, o->number_names.count, &o->number_arrays));
    TRY(make_scalars(o->ctx, o->report_names.count, &o->report_arrays));
    if (!with_program) return TOW_OK;
    TRY(make_program(o));
    if (options->every > 1)
        TRY(tow__gathering_create(o->ctx, o->params, options->every, options->sum, options->weighted, &o->gathering));
    if (o->skip_not_finite) TRY(tow__norm_create(o->ctx, o->params, &o->norm));
done:
    return status;
}

/* In the memory of `ctx`, whatever context the list is of. */
static tow_status list_trainable(tow_context *ctx, const tow_params *params, tow_params **trainable)
{
    tow_params *all = NULL;
    tow_status status = tow__params_shared(ctx, params, &all);
    if (status == TOW_OK) status = tow_params_trainable(all, trainable);
    tow_params_free(all);
    return status;
}

tow_status tow__optimizer_create(tow_context *context, const tow_gradient_transform *transform,
                                 const tow_params *params, const tow_optimizer_options *options,
                                 const tow__optimizer_of_state *of_state, tow_optimizer_state **state)
{
    tow_params *trainable = NULL;
    tow_optimizer_state *o = tow__alloc(context, 1, sizeof *o);
    if (!o) return TOW_OUT_OF_MEMORY;
    if (list_trainable(context, params, &trainable)) {
        tow__free(context, o, 1, sizeof *o);
        return TOW_OUT_OF_MEMORY;
    }
    o->ctx = context;
    o->frontiers.ctx = context;
    o->transform = transform;
    o->weight = 1;
    o->params = trainable;
    o->shards = of_state ? of_state->shards : NULL;
    o->shard = of_state ? of_state->shard : TOW_SHARD_NOTHING;
    o->by_lines = of_state && of_state->by_lines;
    o->kept = of_state ? of_state->kept : NULL;
    tow__names_init(&o->slot_names, context);
    tow__names_init(&o->number_names, context);
    tow__names_init(&o->report_names, context);
    tow__arena_init(&o->read_memory, context);
    tow_status status = make(o, options, of_state == NULL);
    if (status == TOW_OK)
        *state = o;
    else
        tow_optimizer_free(o);
    return status;
}

TOW__OWN_FRAME tow_status tow_optimizer_create(tow_context *context, const tow_gradient_transform *transform,
                                               tow_params *params, const tow_optimizer_options *options,
                                               tow_optimizer_state **state)
{
    if (state) *state = NULL;
    if (!context || !transform || !params || !state)
        return tow__missing(context, __func__, "a context, a transform, parameters and a place for the state");
    if (!tow__check_transform_stack(context, __func__, transform, TOW__CALLERS_FRAME))
        return tow_context_status(context);
    tow_optimizer_options own;
    if (!TOW__OPTIONS_TAKE(context, tow_optimizer_options, options, &own)) return TOW_INVALID_ARGUMENT;
    TOW__ARITHMETIC(false);
    return tow__optimizer_create(context, transform, params, options ? options : &TOW_OPTIMIZER_OPTIONS(), NULL, state);
}

void tow_optimizer_free(tow_optimizer_state *o)
{
    if (!o) return;
    tow_context *ctx = o->ctx;
    const size_t n = o->params->names.count;
    const size_t n_inputs = 2 * n + o->slot_names.count + o->number_names.count;
    const size_t n_outputs = n + o->slot_names.count + o->report_names.count;
    if (o->inputs) tow__free(ctx, o->inputs, n_inputs + 1, sizeof *o->inputs);
    if (o->outputs) tow__free(ctx, o->outputs, n_outputs + 1, sizeof *o->outputs);
    tow__search_free(o->search);
    tow__gathering_free(o->gathering);
    tow__norm_free(o->norm);
    tow__frontiers_free(&o->frontiers);
    tow_program_free(o->program);
    tow_graph_release(o->graph);
    free_scalars(ctx, o->number_names.count, o->number_arrays);
    free_scalars(ctx, o->report_names.count, o->report_arrays);
    for (uint32_t i = 0; i < o->n_groups; i++) tow_params_free(o->groups[i].list);
    if (o->groups) tow__free(ctx, o->groups, (size_t)o->slot_names.count + 1, sizeof *o->groups);
    for (uint32_t i = 0; i < o->slot_names.count; i++) tow__free(ctx, o->slots[i].prefix, o->slots[i].prefix_size, 1);
    if (o->slots) tow__free(ctx, o->slots, o->slots_capacity, sizeof *o->slots);
    if (o->numbers) tow__free(ctx, o->numbers, o->numbers_capacity, sizeof *o->numbers);
    if (o->first_slot) tow__free(ctx, o->first_slot, n + 1, sizeof *o->first_slot);
    tow_params_free(o->params);
    tow__names_free(&o->slot_names);
    tow__names_free(&o->number_names);
    tow__names_free(&o->report_names);
    tow__arena_free(&o->read_memory);
    tow__free(ctx, o, 1, sizeof *o);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static double number_at(const tow__number *x, int64_t step)
{
    if (!isnan(x->fixed)) return x->fixed;
    for (int i = 0; i < x->steps.n; i++) {
        if (x->steps.divisors[i]) step /= x->steps.divisors[i];
        if (x->steps.moduli[i]) step %= x->steps.moduli[i];
    }
    return x->function ? x->function(step, x->self) : tow_schedule_at(&x->schedule, step);
}

double tow__optimizer_number_at(const tow_optimizer_state *o, uint32_t number, int64_t step)
{
    return number_at(&o->numbers[number], step);
}

void tow__optimizer_begin(tow_optimizer_state *o)
{
    for (uint32_t i = 0; i < o->number_names.count; i++)
        *(double *)tow_array_data(o->number_arrays[i]) = number_at(&o->numbers[i], o->step);
}

tow_type tow__gradient_type(const tow_optimizer_state *o, uint32_t parameter)
{
    tow_type type = o->params->types[parameter];
    if (!o->examples) return type;
    memmove(type.dims + 1, type.dims, (size_t)type.rank * sizeof type.dims[0]);
    type.dims[0] = o->examples;
    type.rank++;
    return type;
}

static tow_status check_gradients(const tow_optimizer_state *o, tow_array *const *gradients)
{
    for (uint32_t i = 0; i < o->params->names.count; i++) {
        const char *path = o->params->names.names[i];
        const tow_type expected = tow__gradient_type(o, i);
        if (!gradients[i])
            return tow__fail(o->ctx, TOW_INVALID_ARGUMENT, "the gradient of params/%s: expected %s, found NULL", path,
                             tow__type_name(expected).text);
        if (!tow_type_equal(tow_array_type(gradients[i]), expected))
            return tow__fail(o->ctx, TOW_TYPE_MISMATCH, "the gradient of params/%s: expected %s, found %s", path,
                             tow__type_name(expected).text, tow__type_name(tow_array_type(gradients[i])).text);
    }
    return TOW_OK;
}

/* Is the update left out because of what is in the gradients? */
static tow_status skips(tow_optimizer_state *o, tow_array *const *gradients, bool *skip)
{
    bool finite = true;
    *skip = false;
    if (!o->norm) return TOW_OK;
    tow_status status = tow__norm_run(o->norm, gradients, NULL, &finite);
    if (status != TOW_OK) return status;
    o->skipped_in_a_row = finite ? 0 : o->skipped_in_a_row + 1;
    *skip = !finite && (uint64_t)o->skipped_in_a_row <= o->skip_not_finite;
    o->skipped += *skip;
    return TOW_OK;
}

static void forget_losses(tow_optimizer_state *o)
{
    o->loss_sum = 0;
    o->loss_weight = 0;
}

static tow_status run_program(tow_optimizer_state *o, tow_array *const *gradients)
{
    tow__optimizer_begin(o);
    memcpy(o->inputs + o->params->names.count, gradients, o->params->names.count * sizeof *gradients);
    tow_status status = tow_program_run(o->program, o->inputs, o->outputs);
    o->step += status == TOW_OK;
    return status;
}

/* Nothing cancels an update that has begun: what it has to do after it was asked is a pass over memory. */
static tow_status update(tow_optimizer_state *o, tow_array *const *gradients, const double *loss)
{
    bool skip;
    tow_status status = TOW_OK;
    if (o->gathering) TRY(tow__gathering_add(o->gathering, gradients, o->weight, &gradients));
    if (loss && o->weight != 0) { /* what counts for nothing may be NaN */
        o->loss_sum += o->weight * *loss;
        o->loss_weight += o->weight;
    }
    if (!gradients) return TOW_OK;
    if (o->loss_weight != 0) o->loss = o->loss_sum / o->loss_weight;
    forget_losses(o);
    TRY(skips(o, gradients, &skip));
    if (!skip) TRY(run_program(o, gradients));
    tow__loss_scale_after(o, o->skipped_in_a_row == 0);
done:
    return status;
}

tow_status tow__optimizer_run(tow_optimizer_state *o, tow_array *const *gradients, double loss)
{
    o->loss = loss;
    return run_program(o, gradients);
}

/* loss NULL: it is not known. */
static tow_status update_checked(tow_optimizer_state *o, tow_array *const *gradients, const double *loss)
{
    if (!o->program)
        return tow__fail(o->ctx, TOW_INVALID_ARGUMENT,
                         "tow_optimizer_update: the state belongs to a training state, whose program updates; call "
                         "tow_train_step");
    if (o->search)
        return tow__fail(o->ctx, TOW_INVALID_ARGUMENT,
                         "tow_optimizer_update: the state was made with .line_search; call tow_optimizer_line_search");
    if (o->loss_taker && !loss)
        return tow__fail(o->ctx, TOW_INVALID_ARGUMENT,
                         "tow_optimizer_update: %s takes the loss; call tow_optimizer_update_with", o->loss_taker);
    tow_status status = check_gradients(o, gradients);
    if (status != TOW_OK) return status;
    const tow__cancel_reason reason = tow__cancel_reason_of(o->ctx);
    if (reason != TOW__GOES_ON && !tow__cancellation_shielded())
        return tow__fail_cancelled(o->ctx, reason, "tow_optimizer_update", "nothing has changed");
    tow__cancellation *before = tow__cancellation_shield();
    status = update(o, gradients, loss);
    tow__cancellation_enter(before);
    return status;
}

tow_status tow_optimizer_update(tow_optimizer_state *o, tow_array *const *gradients)
{
    if (!o || !gradients) return tow__missing(o ? o->ctx : NULL, __func__, "a state and gradients");
    return update_checked(o, gradients, NULL);
}

tow_status tow_optimizer_update_with(tow_optimizer_state *o, tow_array *const *gradients, double loss)
{
    if (!o || !gradients) return tow__missing(o ? o->ctx : NULL, __func__, "a state and gradients");
    return update_checked(o, gradients, &loss);
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

int64_t tow_optimizer_step_count(const tow_optimizer_state *o) { return o->step; }
void tow_optimizer_set_step_count(tow_optimizer_state *o, int64_t step) { o->step = step; }

size_t tow_optimizer_gathered_count(const tow_optimizer_state *o)
{
    return o->gathering ? tow__gathering_count(o->gathering) : 0;
}

void tow_optimizer_set_weight(tow_optimizer_state *o, double weight) { o->weight = weight; }

void tow_optimizer_forget_gradients(tow_optimizer_state *o)
{
    if (o->gathering) tow__gathering_forget(o->gathering);
    forget_losses(o);
}

int64_t tow_optimizer_skipped_count(const tow_optimizer_state *o, int64_t *in_a_row)
{
    if (in_a_row) *in_a_row = o->skipped_in_a_row;
    return o->skipped;
}

tow_status tow_optimizer_set_number(tow_optimizer_state *o, const char *name, double value)
{
    if (!o || !name) return tow__missing(o ? o->ctx : NULL, __func__, "a state and the name of a number");
    const uint32_t index = tow__names_find(&o->number_names, name);
    if (index != TOW__NO_NAME) {
        o->numbers[index].fixed = value;
        return TOW_OK;
    }
    char list[300] = "none";
    size_t length = 0;
    for (uint32_t i = 0; i < o->number_names.count && length < sizeof list; i++)
        length +=
            (size_t)snprintf(list + length, sizeof list - length, "%s%s", i ? ", " : "", o->number_names.names[i]);
    return tow__fail(o->ctx, TOW_NOT_FOUND, "the optimizer has no number '%s'; there are: %s", name, list);
}

double tow_optimizer_number(const tow_optimizer_state *o, const char *name)
{
    const uint32_t index = tow__names_find(&o->number_names, name);
    return index == TOW__NO_NAME ? NAN : number_at(&o->numbers[index], o->step);
}

double tow_optimizer_reported(const tow_optimizer_state *o, const char *name)
{
    const uint32_t index = tow__names_find(&o->report_names, name);
    return index == TOW__NO_NAME ? NAN : *(const double *)tow_array_data(o->report_arrays[index]);
}

size_t tow_optimizer_slot_count(const tow_optimizer_state *o) { return o->n_groups; }
const char *tow_optimizer_slot_prefix(const tow_optimizer_state *o, size_t index)
{
    return index < o->n_groups ? o->groups[index].prefix : NULL;
}
tow_params *tow_optimizer_slot(const tow_optimizer_state *o, size_t index)
{
    return index < o->n_groups ? o->groups[index].list : NULL;
}

tow_params *tow_optimizer_find_slot(const tow_optimizer_state *o, const char *prefix)
{
    for (uint32_t i = 0; prefix && i < o->n_groups; i++)
        if (strcmp(o->groups[i].prefix, prefix) == 0) return o->groups[i].list;
    return NULL;
}

size_t tow_optimizer_bytes(const tow_optimizer_state *o)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < o->slot_names.count; i++) bytes += tow_type_bytes(tow__slot_kept_type(o, i));
    return bytes;
}

const tow_graph *tow_optimizer_graph(const tow_optimizer_state *o) { return o->graph; }
const tow_program *tow_optimizer_program(const tow_optimizer_state *o) { return o->program; }

bool tow__optimizer_reports(const tow_optimizer_state *o, const char *name)
{
    return tow__names_find(&o->report_names, name) != TOW__NO_NAME;
}

void tow__optimizer_forget_reports(tow_optimizer_state *o)
{
    for (uint32_t i = 0; i < o->report_names.count; i++) *(double *)tow_array_data(o->report_arrays[i]) = 0;
}

size_t tow__optimizer_workspace(const tow_optimizer_state *o)
{
    return (o->number_names.count + o->report_names.count) * sizeof(double);
}
