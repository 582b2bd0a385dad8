/* The train state: made of options, and asked. All its arrays are made with it, so that a step allocates nothing. */
#include "src/train/state.h"
#include "src/plan/report/report.h"
#include "src/plan/report/timeline.h"

#include <math.h>
#include <stdio.h>

#include "src/autodiff/sharding/sharding.h"
#include "src/base/arithmetic.h"
#include "src/base/counts.h"
#include "src/base/hash.h"
#include "src/base/options.h"
#include "src/group/agreement.h"
#include "src/io/json.h"
#include "src/model/init.h"
#include "src/params/params.h"
#include "src/plan/remat/remat.h"
#include "src/scope/tree.h"
#include "src/train/average.h"
#include "src/train/step_graph.h"
#include "src/train/transforms.h"
#include "tow/program.h"

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
        const tow_standard_optimizer none = {0};
        if (memcmp(&none, &options->optimizer, sizeof none) != 0)
            return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                             "tow_train_create: expected either .optimizer or .transform, found both; leave one zero");
        state->optimizer_name = transform->cls && transform->cls->name ? transform->cls->name : "";
    } else {
        tow_standard_optimizer resolved;
        TRY(tow__optimizer_resolve(ctx, &options->optimizer, &resolved));
        tow__optimizer_chain(&resolved, &state->transforms);
        state->optimizer_name = tow__optimizer_name(&resolved);
        transform = TOW_GRADIENT_TRANSFORM(&state->transforms.chain);
    }
    TRY(tow__optimizer_create(
        ctx, transform, state->params,
        &TOW_OPTIMIZER_OPTIONS(.skip_not_finite = options->skip_not_finite, .master = options->master,
                               .stochastic_rounding = options->stochastic_rounding, .seed = options->seed,
                               .loss_scale = options->loss_scale, .loss_scale_period = options->loss_scale_period,
                               .slot_bits = options->slot_bits, .slot_bits_least = options->slot_bits_least),
        &(tow__optimizer_of_state){options->shard >= TOW_SHARD_SLOTS ? options->group : NULL, options->shard,
                                   state->row_groups > 1, state->kept},
        &state->optimizer));
    state->options.skip_not_finite = state->optimizer->skip_not_finite;
done:
    return status;
}

/* Lists what a step changes in place, in the order of step_graph.h. */
static void list_kept(tow_train_state *s)
{
    const tow_optimizer_state *o = s->optimizer;
    tow_array **at = s->inputs, *const *averages = NULL;
    const size_t n_averages = s->average ? tow__average_arrays(s->average, &averages) : 0;
    for (size_t i = 0; i < s->n_params; i++) *at++ = tow_params_array(s->kept, i);
    for (size_t i = 0; i < o->slot_names.count; i++) *at++ = o->slots[i].array;
    for (size_t i = 0; i < s->n_variables; i++) *at++ = tow_params_array(s->variables, i);
    for (size_t i = 0; i < n_averages; i++) *at++ = averages[i];
    for (size_t i = 0; i < o->report_names.count; i++) *at++ = o->report_arrays[i];
}

/* The arrays of a step that are the same for all shapes of the batch: what is kept, keys, numbers, norms. */
static tow_status make_step_arrays(tow_train_state *s)
{
    const tow__step_layout l = tow__step_layout_of(s);
    const int64_t n = (int64_t)s->micro_batches, key_dims[2] = {n, 2};
    const int many = n > 1;
    tow_status status = TOW_OK;
    s->step_inputs = l.n_inputs;
    s->step_outputs = l.n_outputs;
    s->inputs = tow__alloc(s->ctx, l.n_inputs, sizeof *s->inputs);
    s->outputs = tow__alloc(s->ctx, l.n_outputs, sizeof *s->outputs);
    if (!s->inputs || !s->outputs) return TOW_OUT_OF_MEMORY;
    list_kept(s);
    for (size_t i = 0; i < s->n_streams; i++)
        TRY(tow_array_create(s->ctx, tow_make_type(TOW_U32, 1 + many, key_dims + !many), &s->inputs[l.keys + i]));
    for (uint32_t i = 0; i < s->optimizer->number_names.count; i++)
        s->inputs[l.numbers + i] = s->optimizer->number_arrays[i];
    if (l.weight) TRY(tow_array_create(s->ctx, tow_make_type(TOW_F64, 0, NULL), &s->inputs[l.weight]));
    if (l.skips) TRY(tow_array_create(s->ctx, tow_make_type(TOW_BOOL, 0, NULL), &s->inputs[l.skips]));
    if (l.norm) TRY(tow_array_create(s->ctx, tow_make_type(TOW_F64, many, &n), &s->outputs[l.norm]));
    if (l.finite) TRY(tow_array_create(s->ctx, tow_make_type(TOW_BOOL, many, &n), &s->outputs[l.finite]));
    if (l.all_finite) TRY(tow_array_create(s->ctx, tow_make_type(TOW_BOOL, 0, NULL), &s->outputs[l.all_finite]));
done:
    return status;
}

/* The lists of graphs of one micro-batch, with keys of their own. */
static tow_status make_micro_lists(tow_train_state *s)
{
    const size_t first = tow__train_first_input(s), first_key = first + s->n_inputs;
    tow_status status = TOW_OK;
    s->micro_inputs = tow__alloc(s->ctx, first_key + s->n_streams + 1, sizeof *s->micro_inputs);
    s->micro_outputs = tow__alloc(s->ctx, s->n_aux + 1, sizeof *s->micro_outputs);
    if (!s->micro_inputs || !s->micro_outputs) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < s->n_streams; i++)
        TRY(tow_array_create(s->ctx, tow_make_type(TOW_U32, 1, (int64_t[]){2}), &s->micro_inputs[first_key + i]));
done:
    return status;
}

static tow_status check_counts(tow_context *ctx, const tow_train_options *o)
{
    static const char function[] = "tow_train_create";
    tow_status status = TOW_OK;
    TRY(tow__check_count(ctx, function, ".n_inputs", o->n_inputs));
    TRY(tow__check_count(ctx, function, ".n_extra", o->n_extra));
    TRY(tow__check_count(ctx, function, ".n_aux", o->n_aux));
    TRY(tow__check_count(ctx, function, ".micro_batches", o->micro_batches));
    TRY(tow__check_count(ctx, function, ".other_shapes", o->other_shapes));
done:
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
    if (options->weighted && options->n_aux == 0)
        return tow__fail(
            ctx, TOW_INVALID_ARGUMENT,
            "tow_train_create: expected .n_aux of 1 or more with .weighted, found 0; the loss function writes "
            "the weight to aux value 0");
    if (options->loss_scale != 0 && options->check_finite)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "tow_train_create: expected .loss_scale or .check_finite, found both; steps whose gradients "
                         "overflow are a part of finding the scale, so leave .check_finite out");
    if (options->shard < TOW_SHARD_NOTHING || options->shard > TOW_SHARD_PARAMETERS)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "tow_train_create: expected .shard from 0 (nothing) to 3 (slots, gradients and parameters), "
                         "found %d",
                         options->shard);
    const tow_model_options *m = options->model;
    if (m && (m->state || m->mutable_collections || m->updates || m->capture))
        return tow__fail(
            ctx, TOW_INVALID_ARGUMENT,
            "tow_train_create: expected .model without .state, .mutable_collections, .updates and .capture; the train "
            "state makes the variables itself and every step may change them");
    return check_counts(ctx, options);
}

/* An update of shares reads no more of gradients than theirs. */
static int stage_of(const tow_train_options *options)
{
    if (tow_group_count(options->group) == 1) return TOW_SHARD_NOTHING;
    return options->shard == TOW_SHARD_SLOTS ? TOW_SHARD_GRADIENTS : options->shard;
}

static tow_status copy_options(tow_train_state *s, const tow_module *model, const tow_train_options *options)
{
    const char *description = options->description ? options->description : "";
    s->model = model;
    s->options = *options;
    if (options->model) {
        s->model_options = *options->model;
        s->options.model = &s->model_options;
    }
    s->description_size = strlen(description) + 1;
    s->description = tow__alloc(s->ctx, s->description_size, 1);
    if (!s->description) return TOW_OUT_OF_MEMORY;
    memcpy(s->description, description, s->description_size);
    s->options.shard = stage_of(options);
    s->seed = options->seed;
    s->n_inputs = options->n_inputs + options->n_extra;
    s->n_aux = options->n_aux;
    s->micro_batches = options->micro_batches > 0 ? options->micro_batches : 1;
    s->row_groups = options->row_groups > 0 ? options->row_groups : 1;
    s->row_parts = 1;
    if (s->row_groups > 1) {
        s->row_parts = s->micro_batches;
        s->micro_batches = 1;
    }
    s->n_streams = count_streams(options->model);
    return tow__row_share_of(s->ctx, options->group, (int64_t)s->row_groups, &s->share);
}

/* The list of the parameters, whole ones, of which this process keeps shares: without their arrays. */
static tow_status list_wholes(tow_train_state *s)
{
    const tow_params *kept = s->kept;
    tow_status status = tow__params_create(s->ctx, &s->params);
    for (uint32_t i = 0; i < kept->names.count && status == TOW_OK; i++) {
        const bool is_share = tow__params_whole_layer(kept, i).rank >= 0;
        status = is_share ? tow__params_add_like(s->params, kept->names.names[i], kept->wholes[i], kept, i)
                          : tow__params_append(s->params, kept->names.names[i], kept->arrays[i], kept, i);
        if (s->params->wholes) s->params->wholes[i].rank = -1; /* also where this process's share is all of it */
    }
    return status;
}

/* The parameters are drawn for the whole batch: their number and types do not depend on it. */
static tow_status make_params(tow_train_state *s)
{
    const tow_train_options *o = &s->options;
    tow_status status = tow__model_init_shares(s->ctx, s->model, o->seed, o->n_inputs, o->input_types, o->model,
                                               tow__train_shares_params(s) ? o->group : NULL, &s->kept, &s->variables);
    if (status != TOW_OK) return status;
    s->n_params = tow_params_count(s->kept);
    s->n_variables = tow_params_count(s->variables);
    /* an empty list of arguments would mean the first one, which is an input here */
    if (s->n_params == 0)
        return tow__fail(
            s->ctx, TOW_INVALID_ARGUMENT,
            "tow_train_create: the model has no parameters, so there is nothing to train; use tow_model_forward_graph");
    if (tow__train_shares_params(s)) return list_wholes(s);
    s->params = s->kept;
    return TOW_OK;
}

/* Lists the arrays that a step changes besides parameters and variables. */
static tow_status make_kept(tow_train_state *s)
{
    const tow_train_options *o = &s->options;
    tow_array *const *averages;
    tow_status status = TOW_OK;
    TRY(make_optimizer(s, o));
    if (o->average) TRY(tow__average_create(s->ctx, s->kept, o->average, false, &s->average));
    s->n_kept = s->n_params + s->optimizer->slot_names.count + s->n_variables + s->optimizer->report_names.count;
    if (s->average) s->n_kept += tow__average_arrays(s->average, &averages);
    TRY(make_step_arrays(s));
    TRY(make_micro_lists(s));
done:
    return status;
}

/* The names and types of arrays. */
static uint64_t hash_of_list(const tow_params *list)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < tow_params_count(list); i++) {
        const tow_type type = list->types[i];
        hash = tow__hash(hash, list->names.names[i], strlen(list->names.names[i]));
        hash = tow__hash(hash, &type.dtype, sizeof type.dtype);
        hash = tow__hash(hash, type.dims, (size_t)type.rank * sizeof *type.dims);
    }
    return hash;
}

/* Numbers of the optimizer: the first value of each, and a hash of later ones, as schedules may begin alike. */
static void add_numbers(const tow_optimizer_state *o, tow__string *text)
{
    enum {
        MOST = 1000000
    };
    uint64_t hash = 0;
    for (uint32_t i = 0; i < o->number_names.count; i++) {
        if (tow__number_is_loss(o, i)) continue;
        tow__string_add(text, ", %s %g", o->number_names.names[i], tow__optimizer_number_at(o, i, 0));
        for (int64_t step = 0; step < MOST; step += 1 + step / 64) {
            const double value = tow__optimizer_number_at(o, i, step);
            hash = tow__hash(hash, &value, sizeof value);
        }
    }
    tow__string_add(text, ", hash %016llx", (unsigned long long)hash);
}

/* The optimizer's options, and those of the step that say which numbers come out. */
static void add_update(const tow_train_state *s, tow__string *text)
{
    const tow_train_options *o = &s->options;
    const tow_standard_optimizer *u = &o->optimizer;
    tow__string_add(text, "%s with %u slots", s->optimizer_name, (unsigned)s->optimizer->slot_names.count);
    if (!o->transform)
        tow__string_add(text, ", b1 %g, b2 %g, eps %g, momentum %g%s, weight decay %g%s, clip norm %g", u->b1, u->b2,
                        u->eps, u->momentum, u->nesterov ? " (Nesterov)" : "", u->weight_decay,
                        u->decay_all ? " of all" : "", u->clip_norm);
    if (o->loss_scale != 0) tow__string_add(text, ", loss scale %g, period %zu", o->loss_scale, o->loss_scale_period);
    if (o->skip_not_finite > 0) tow__string_add(text, ", .skip_not_finite %zu", o->skip_not_finite);
    tow__string_add(text, "%s%s%s", o->check_finite ? ", .check_finite" : "", o->early_update ? ", .early_update" : "",
                    o->weighted ? ", .weighted" : "");
    add_numbers(s->optimizer, text);
}

/* The programs that a state has besides that of a step, and what a step does behind the update. */
static void write_programs(const tow_train_options *o, char *text, size_t size)
{
    char average[64] = "";
    if (o->average)
        snprintf(average, sizeof average, ", .average with decay %.9g%s", o->average->decay,
                 o->average->debias ? " and .debias" : "");
    snprintf(text, size, "%zu of .other_shapes%s%s", o->other_shapes, o->evaluation ? ", .evaluation" : "", average);
}

/* Compares what all processes of a group must have in common. */
static tow_status check_same(const tow_train_state *s)
{
    const tow_train_options *o = &s->options;
    char seed[32], parameters[80], variables[80], batch[240], parts[64], stage[16], programs[128], units[64];
    uint64_t types = 0;
    tow__string update;
    if (!tow__train_has_others(s)) return TOW_OK;
    tow__string_init(&update, s->ctx);
    add_update(s, &update);
    if (update.failed) {
        tow__string_free(&update);
        return TOW_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < s->n_inputs; i++) {
        tow_type type = i < o->n_inputs ? o->input_types[i] : o->extra_types[i - o->n_inputs];
        types = tow__hash(types, &type.dtype, sizeof type.dtype);
        types = tow__hash(types, type.dims, (size_t)type.rank * sizeof *type.dims);
    }
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)s->seed);
    snprintf(parameters, sizeof parameters, "%zu, hash %016llx", s->n_params,
             (unsigned long long)hash_of_list(s->params));
    snprintf(variables, sizeof variables, "%zu, hash %016llx", s->n_variables,
             (unsigned long long)hash_of_list(s->variables));
    snprintf(batch, sizeof batch, "%zu arrays%s%s, hash %016llx", s->n_inputs, s->n_inputs ? ", the first one " : "",
             s->n_inputs ? tow__type_name(o->n_inputs ? o->input_types[0] : o->extra_types[0]).text : "",
             (unsigned long long)types);
    snprintf(parts, sizeof parts, "%zu in %zu micro-batches", s->row_groups, s->row_parts);
    snprintf(stage, sizeof stage, "%d", o->shard);
    write_programs(o, programs, sizeof programs);
    tow__units_of_products(s->ctx, units, sizeof units);
    const tow_group_fact facts[] = {{"the description", s->description},
                                    {"the seed", seed},
                                    {"the list of parameters", parameters},
                                    {"the list of variables", variables},
                                    {"the optimizer", update.text},
                                    {"the batch", batch},
                                    {"the number of row groups", parts},
                                    {"the stage of sharding (.shard)", stage},
                                    {"the list of programs and averages", programs},
                                    {"the unit of products, which .portable_bits of contexts makes the same on all "
                                     "machines,",
                                     units}};
    const tow_status status = tow_group_check_same(o->group, sizeof facts / sizeof *facts, facts);
    tow__string_free(&update);
    return status;
}

/* Constants in transforms of the caller's own are in the graph of the update alone. */
static tow_status check_same_update(const tow_train_state *s)
{
    tow_graph *graph = NULL;
    if (!tow__train_has_others(s)) return TOW_OK;
    tow_status status = tow__update_graph(s->optimizer, &graph);
    status = tow__group_agree(s->ctx, s->options.group, status);
    if (status == TOW_OK) status = tow__train_check_same_graph(s, "the graph of the optimizer's update", graph);
    tow_graph_release(graph);
    return status;
}

/* The programs for batches of the types that the options name. */
static tow_status make_programs(tow_train_state *s)
{
    const tow_train_options *o = &s->options;
    const tow__train_program *p;
    tow_status status = TOW_OK;
    s->types = tow__alloc(s->ctx, 2 * s->n_inputs + 1, sizeof *s->types);
    if (!s->types) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < s->n_inputs; i++) {
        s->types[i] = i < o->n_inputs ? o->input_types[i] : o->extra_types[i - o->n_inputs];
        TRY(tow__train_own_rows(s, i, &s->types[i]));
    }
    TRY(check_same(s));
    TRY(check_same_update(s));
    TRY(tow__limit_together(s->ctx, s->options.group, &s->options.memory_limit));
    TRY(tow_shared_arena_create(s->ctx, &s->shared_arena));
    TRY(tow__train_programs_create(s, false));
    TRY(tow__train_program_for(s, s->types, false, &p));
    if (o->evaluation) {
        TRY(tow__train_programs_create(s, true));
        TRY(tow__train_program_for(s, s->types, true, &p));
    }
done:
    return status;
}

/* For the watchdog, unless the program tells more. */
static void tell_step(char *text, size_t size, void *user)
{
    snprintf(text, size, "step %lld", (long long)((const tow_train_state *)user)->step + 1);
}

static void begin_telling(tow_train_state *s)
{
    if (tow__train_has_others(s) && !s->options.group->where) tow_group_set_where(s->options.group, tell_step, s);
}

static void end_telling(const tow_train_state *s)
{
    tow_group *group = s->options.group;
    if (tow__train_has_others(s) && group->where_user == s) tow_group_set_where(group, NULL, NULL);
}

static tow_status make_state(tow_train_state *s, const tow_module *model, const tow_train_options *options)
{
    tow_status status = TOW_OK;
    TRY(copy_options(s, model, options));
    begin_telling(s);
    TRY(make_params(s));
    TRY(make_kept(s));
    TRY(make_programs(s));
    s->options.average = NULL; /* it is the caller's */
done:
    return status;
}

TOW__OWN_FRAME tow_status tow_train_create(tow_context *context, const tow_module *model,
                                           const tow_train_options *options, tow_train_state **state)
{
    if (state) *state = NULL;
    if (!context || !state) return tow__missing(context, __func__, "a context and a place for the train state");
    tow_train_options own;
    if (!TOW__OPTIONS_TAKE(context, tow_train_options, options, &own)) return TOW_INVALID_ARGUMENT;
    tow_model_options of_model;
    tow_average_options average;
    if (options && (!TOW__OPTIONS_TAKE(context, tow_model_options, own.model, &of_model) ||
                    !TOW__OPTIONS_TAKE(context, tow_average_options, own.average, &average)))
        return TOW_INVALID_ARGUMENT;
    tow_status status = check_options(context, model, options);
    if (status != TOW_OK) return status;
    const void *frame = TOW__CALLERS_FRAME;
    if (!tow__check_stack(context, __func__, model, frame) ||
        !tow__check_transform_stack(context, __func__, options->transform, frame))
        return tow_context_status(context);
    tow_train_state *made = tow__alloc(context, 1, sizeof *made);
    if (!made) return TOW_OUT_OF_MEMORY;
    made->ctx = context;
    made->frontiers.ctx = context;
    TOW__ARITHMETIC(false);
    status = make_state(made, model, options);
    if (status == TOW_OK)
        *state = made;
    else
        tow_train_free(made);
    return status;
}

static void free_lists(tow_train_state *s)
{
    const tow__step_layout l = s->optimizer ? tow__step_layout_of(s) : (tow__step_layout){0};
    const size_t first_key = tow__train_first_input(s) + s->n_inputs;
    if (s->inputs) {
        for (size_t i = 0; i < s->n_streams; i++) tow_array_release(s->inputs[l.keys + i]);
        if (l.weight) tow_array_release(s->inputs[l.weight]);
        if (l.skips) tow_array_release(s->inputs[l.skips]);
        tow__free(s->ctx, s->inputs, s->step_inputs, sizeof *s->inputs);
    }
    if (s->outputs) {
        if (l.norm) tow_array_release(s->outputs[l.norm]);
        if (l.finite) tow_array_release(s->outputs[l.finite]);
        if (l.all_finite) tow_array_release(s->outputs[l.all_finite]);
        tow__free(s->ctx, s->outputs, s->step_outputs, sizeof *s->outputs);
    }
    if (s->micro_inputs) {
        for (size_t i = 0; i < s->n_streams; i++) tow_array_release(s->micro_inputs[first_key + i]);
        tow__free(s->ctx, s->micro_inputs, first_key + s->n_streams + 1, sizeof *s->micro_inputs);
    }
    if (s->micro_outputs) tow__free(s->ctx, s->micro_outputs, s->n_aux + 1, sizeof *s->micro_outputs);
}

void tow_train_free(tow_train_state *s)
{
    if (!s) return;
    tow_context *ctx = s->ctx;
    end_telling(s);
    free_lists(s);
    tow_program_cache_free(s->steps);
    tow_program_cache_free(s->evaluations);
    tow__frontiers_free(&s->frontiers);
    tow_shared_arena_release(s->shared_arena);
    if (s->types) tow__free(ctx, s->types, 2 * s->n_inputs + 1, sizeof *s->types);
    tow_average_free(s->average);
    tow_optimizer_free(s->optimizer);
    if (s->params != s->kept) tow_params_free(s->params);
    tow_params_free(s->kept);
    tow_params_free(s->variables);
    if (s->description) tow__free(ctx, s->description, s->description_size, 1);
    tow__free(ctx, s, 1, sizeof *s);
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

int64_t tow_train_step_count(const tow_train_state *state) { return state->step; }
uint64_t tow_train_data_position(const tow_train_state *state) { return state->data_position; }
void tow_train_set_data_position(tow_train_state *state, uint64_t position) { state->data_position = position; }
double tow_train_gradient_norm(const tow_train_state *state)
{
    if (!tow__optimizer_reports(state->optimizer, "clip/norm")) return state->gradient_norm;
    return tow_optimizer_reported(state->optimizer, "clip/norm");
}
tow_optimizer_state *tow_train_optimizer(const tow_train_state *state) { return state->optimizer; }
tow_params *tow_train_params(const tow_train_state *state) { return state->kept; }
tow_params *tow_train_variables(const tow_train_state *state) { return state->variables; }
tow_params *tow_train_averages(const tow_train_state *state)
{
    return state->average ? tow_average_params(state->average) : NULL;
}

tow_array *tow_train_aux(const tow_train_state *state, size_t index)
{
    return state->last && index < state->n_aux ? state->last->aux[index] : NULL;
}

const tow_graph *tow_train_loss_graph(const tow_train_state *state)
{
    const tow__train_program *p = tow_program_cache_at(state->steps, 0).data;
    return p->loss_graph;
}
const tow_program *tow_train_program(const tow_train_state *state)
{
    return tow_program_cache_at(state->steps, 0).program;
}

/* ---- the learning rate ------------------------------------------------------------------------------------------- */

static const char rate_name[] = "learning_rate/value";

/* "learning_rate/value", also of one transform of several ("partition/learning_rate_1/value"). */
static bool is_rate(const char *name)
{
    const size_t length = strlen(name);
    const char *begin = name + length;
    while (begin > name && begin[-1] != '/') begin--; /* "value" */
    if (strcmp(begin, "value") != 0 || begin == name) return false;
    begin--;
    while (begin > name && begin[-1] != '/') begin--;
    return strncmp(begin, rate_name, sizeof "learning_rate" - 1) == 0;
}

tow_status tow_train_set_learning_rate(tow_train_state *state, double rate)
{
    if (!state) return tow__missing(NULL, __func__, "a train state");
    tow_optimizer_state *o = state->optimizer;
    bool found = false;
    for (uint32_t i = 0; i < o->number_names.count; i++) {
        if (!is_rate(o->number_names.names[i])) continue;
        o->numbers[i].fixed = rate;
        found = true;
    }
    return found ? TOW_OK : tow_optimizer_set_number(o, rate_name, rate);
}

double tow_train_learning_rate(const tow_train_state *state)
{
    const tow_optimizer_state *o = state->optimizer;
    for (uint32_t i = 0; i < o->number_names.count; i++)
        if (is_rate(o->number_names.names[i])) return tow_optimizer_number(o, o->number_names.names[i]);
    return NAN;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* The bytes of arrays that programs of one shape write besides those that are kept. */
static size_t bytes_of_outputs(const tow_train_state *s, const tow__train_program *p)
{
    size_t bytes = tow_type_bytes(tow_array_type(p->loss));
    for (size_t i = 0; i < s->n_aux; i++) bytes += tow_type_bytes(tow_array_type(p->aux[i]));
    return bytes;
}

/* The program of the cache that needs most of the arena. */
static tow_program_bytes largest_of(const tow_program_cache *cache, const tow_program **program)
{
    tow_program_bytes largest = {0};
    tow_cached_program entry;
    *program = NULL;
    for (size_t i = 0; (entry = tow_program_cache_at(cache, i)).program; i++) {
        const tow_program_bytes b = tow_program_get_bytes(entry.program);
        if (i > 0 && b.arena <= largest.arena) continue;
        largest = b;
        *program = entry.program;
    }
    return largest;
}

/* The bytes that each program of a cache has for itself. */
static size_t bytes_beside_arenas(const tow_train_state *s, const tow_program_cache *cache)
{
    size_t bytes = 0;
    tow_cached_program entry;
    for (size_t i = 0; (entry = tow_program_cache_at(cache, i)).program; i++)
        bytes += tow_program_get_bytes(entry.program).constants + bytes_of_outputs(s, entry.data);
    return bytes;
}

/* All programs share one arena: residuals and workspace of the largest step, then what an evaluation needs beyond that.
 * Memory that programs needed before they were freed counts as workspace. */
static void add_programs(const tow_train_state *s, tow_train_bytes *bytes)
{
    const tow_program *program, *other;
    const tow_program_bytes evaluation = largest_of(s->evaluations, &other), step = largest_of(s->steps, &program);
    const size_t beyond = evaluation.arena > step.arena ? evaluation.arena - step.arena : 0;
    bytes->residuals = step.residuals;
    bytes->evaluation = beyond + bytes_beside_arenas(s, s->evaluations);
    bytes->workspace =
        tow_shared_arena_bytes(s->shared_arena) - step.residuals - beyond + bytes_beside_arenas(s, s->steps);
    size_t live[TOW__LIVE_KINDS] = {0};
    if (!program) return;
    tow__live_bytes(program, live); /* 0: no memory to find out */
    bytes->gradients = live[TOW__LIVE_GRADIENT];
    bytes->exchange = live[TOW__LIVE_EXCHANGE];
    const tow_program_exchange exchange = tow_program_get_exchange(program, 0, 0);
    bytes->sent = (size_t)exchange.sent;
    bytes->received = (size_t)exchange.received;
}

/* The bytes that a step reads and writes besides the batch, kept arrays, loss and aux: reports, keys, numbers,
 * norms. */
static size_t bytes_of_numbers(const tow_train_state *s)
{
    const tow__step_layout l = tow__step_layout_of(s);
    size_t bytes = s->optimizer->report_names.count * sizeof(double);
    for (size_t i = l.keys; i < l.n_inputs; i++) bytes += tow_type_bytes(tow_array_type(s->inputs[i]));
    for (size_t i = l.aux + s->n_aux; i < l.n_outputs; i++) bytes += tow_type_bytes(tow_array_type(s->outputs[i]));
    return bytes;
}

tow_train_bytes tow_train_get_bytes(const tow_train_state *s)
{
    tow_train_bytes bytes = {0};
    for (size_t i = 0; i < s->n_params; i++) bytes.parameters += tow_type_bytes(s->kept->types[i]);
    for (size_t i = 0; i < s->n_variables; i++) bytes.variables += tow_type_bytes(s->variables->types[i]);
    bytes.optimizer = tow_optimizer_bytes(s->optimizer);
    bytes.averages = s->average ? tow__average_bytes(s->average) : 0;
    for (size_t i = 0; i < s->n_inputs; i++) bytes.batch += tow_type_bytes(s->types[i]);
    add_programs(s, &bytes);
    bytes.workspace += bytes_of_numbers(s);
    bytes.total = bytes.parameters + bytes.variables + bytes.optimizer + bytes.residuals + bytes.workspace +
                  bytes.evaluation + bytes.averages + bytes.batch;
    return bytes;
}
