/* The compiled programs of a train state: one for each shape of the batch. Parameters, variables and the optimizer's
 * slots belong to the state, so all programs work on the same ones. */
#include <stdio.h>

#include "src/autodiff/limit/limit.h"
#include "src/base/arithmetic.h"
#include "src/base/hash.h"
#include "src/group/agreement.h"
#include "src/params/params.h"
#include "src/plan/ir.h"
#include "src/plan/remat/remat.h"
#include "src/train/average.h"
#include "src/train/loss_scale.h"
#include "src/train/step_graph.h"
#include "tow/program.h"

/* ---- types ------------------------------------------------------------------------------------------------------- */

static bool is_cut_by_rows(const tow_train_state *s, size_t i, tow_type type)
{
    return type.rank > 0 && !(s->options.whole_inputs && s->options.whole_inputs[i]);
}

/* dims[0] / of * to */
static tow_status scale_rows(const tow_train_state *s, size_t i, int64_t of, int64_t to, tow_type *type)
{
    if (!tow__train_has_others(s) || !is_cut_by_rows(s, i, *type)) return TOW_OK;
    if (type->dims[0] % of != 0)
        return tow__fail(s->ctx, TOW_INVALID_ARGUMENT,
                         "train: input %zu: expected an axis 0 that %lld row groups divide, found %s; use other sizes, "
                         "or name the input in .whole_inputs",
                         i, (long long)of, tow__type_name(*type).text);
    type->dims[0] = type->dims[0] / of * to;
    return TOW_OK;
}

tow_status tow__train_own_rows(const tow_train_state *s, size_t i, tow_type *type)
{
    return scale_rows(s, i, s->share.groups, s->share.count, type);
}

tow_status tow__train_all_rows(const tow_train_state *s, size_t i, tow_type *type)
{
    return scale_rows(s, i, s->share.count, s->share.groups, type);
}

/* The type of one of n parts of a batch along axis 0. */
static tow_status micro_type(const tow_train_state *s, size_t i, tow_type type, tow_type *micro)
{
    const size_t n = s->micro_batches;
    *micro = type;
    if (n == 1) return tow__train_all_rows(s, i, micro);
    if (!is_cut_by_rows(s, i, type)) return TOW_OK;
    if (type.dims[0] % (int64_t)n != 0)
        return tow__fail(s->ctx, TOW_INVALID_ARGUMENT,
                         "train: input %zu: expected an axis 0 that .micro_batches = %zu divides, found %s; use other "
                         "sizes, or name the input in .whole_inputs",
                         i, n, tow__type_name(type).text);
    micro->dims[0] /= (int64_t)n;
    return TOW_OK;
}

/* ---- tracing ----------------------------------------------------------------------------------------------------- */

static tow_status check_weight(const tow_train_state *s, const tow__train_program *p)
{
    const tow_type weight = s->options.weighted ? tow_graph_output_type(p->loss_graph, 1) : tow_make_type(0, 0, NULL);
    if (weight.rank == 0 && weight.dtype != TOW_BOOL) return TOW_OK;
    return tow__fail(s->ctx, TOW_INVALID_ARGUMENT,
                     "train: aux value 0: expected a scalar, the weight of the loss (.weighted), found %s",
                     tow__type_name(weight).text);
}

static tow_status trace_loss(tow_train_state *s, const tow__train_program *p, bool evaluation, tow_graph **graph)
{
    const tow_train_options *o = &s->options;
    tow_model_options model_options = o->model ? *o->model : TOW_MODEL_OPTIONS();
    static const char *const every_collection[] = {TOW_EVERY_COLLECTION, NULL};
    tow_params *updates = NULL;
    model_options.state = s->variables;
    if (evaluation) {
        model_options.deterministic = true;
    } else {
        model_options.mutable_collections = every_collection;
        model_options.updates = &updates;
    }
    tow_status status =
        tow_model_loss_graph(s->model, s->params, o->n_inputs, p->micro_types, o->n_extra, p->micro_types + o->n_inputs,
                             o->loss, o->loss_user, s->n_aux, &model_options, graph);
    tow_params_free(updates); /* the variables, in their order */
    return status;
}

/* ---- row groups -------------------------------------------------------------------------------------------------- */

static bool has_rows(const tow_train_state *s, const tow_graph *g, size_t input)
{
    const size_t first = tow__train_first_input(s);
    if (input < first || input >= first + s->n_inputs || tow_graph_input_type(g, input).rank == 0) return false;
    return !s->options.whole_inputs || !s->options.whole_inputs[input - first];
}

/* [inputs + 1], to be freed; NULL: no memory. */
static int *row_axes(const tow_train_state *s, const tow_graph *g)
{
    const size_t n = tow_graph_input_count(g);
    int *axes = tow__alloc(s->ctx, n + 1, sizeof *axes);
    for (size_t i = 0; axes && i < n; i++) axes[i] = has_rows(s, g, i) ? 0 : TOW_NOT_MAPPED;
    return axes;
}

/* [n + 1] the layers of shares of parameters, which begin at value `first` of n; NULL: no memory. */
static int64_t *list_layers(const tow_train_state *s, size_t n, size_t first)
{
    int64_t *layers = tow__alloc(s->ctx, n + 1, sizeof *layers);
    for (size_t i = 0; layers && i < s->n_params; i++)
        layers[first + i] = tow__optimizer_layers(s->optimizer, (uint32_t)i);
    return layers;
}

/* The graph of the batch, a loss or its gradient, with sums over rows as trees, and micro-batches in it. shard: what it
 * takes and gives as shares; of a loss there are no gradients. */
static tow_status group_rows(const tow_train_state *s, int shard, tow_graph **graph)
{
    const size_t n = tow_graph_input_count(*graph), n_out = tow_graph_output_count(*graph);
    const bool is_gradient = n_out > 1 + s->n_aux + s->n_variables;
    tow_graph *grouped = NULL;
    if (s->row_groups == 1) return TOW_OK;
    int64_t *in = NULL, *out = NULL;
    tow_status status = TOW_OUT_OF_MEMORY;
    int *axes = row_axes(s, *graph);
    if (!axes) goto done;
    if (shard >= TOW_SHARD_PARAMETERS && !(in = list_layers(s, n, 0))) goto done;
    if (shard >= TOW_SHARD_GRADIENTS && is_gradient && !(out = list_layers(s, n_out, n_out - s->n_params))) goto done;
    status = tow_row_groups(*graph,
                            &TOW_ROW_GROUPS_OPTIONS(.groups = (int64_t)s->row_groups, .in_axes = axes,
                                                    .micro_batches = (int64_t)s->row_parts, .group = s->options.group,
                                                    .in_layers = in, .out_layers = out),
                            &grouped);
done:
    if (axes) tow__free(s->ctx, axes, n + 1, sizeof *axes);
    if (in) tow__free(s->ctx, in, n + 1, sizeof *in);
    if (out) tow__free(s->ctx, out, n_out + 1, sizeof *out);
    if (status != TOW_OK) return status;
    tow_graph_release(*graph);
    *graph = grouped;
    return TOW_OK;
}

/* ---- steps within a memory limit: of variants of the loss -------------------------------------------------------- */

typedef struct step_variants {
    tow_train_state *s;
    const tow__train_program *p;
    const tow_type *types;
    const tow_graph *step;
    tow__loss_variants *losses;
} step_variants;

/* The numbers of the parameters among the inputs of the loss; the caller frees them. NULL: out of memory. */
static size_t *list_params(const tow_train_state *s)
{
    size_t *wrt = tow__alloc(s->ctx, s->n_params + 1, sizeof *wrt);
    for (size_t i = 0; wrt && i < s->n_params; i++) wrt[i] = i;
    return wrt;
}

static tow_status gradient_of_batch(const tow_train_state *s, const tow_graph *loss, tow_graph **gradient)
{
    size_t *wrt = list_params(s);
    if (!wrt) return TOW_OUT_OF_MEMORY;
    tow_graph *scaled = NULL;
    tow_status status = tow__scale_loss(s, loss, &scaled);
    if (status == TOW_OK)
        status = tow_value_and_grad(scaled, s->n_params, wrt, s->n_variables + s->n_aux > 0, gradient);
    tow_graph_release(scaled);
    tow__free(s->ctx, wrt, s->n_params + 1, sizeof *wrt);
    return status;
}

static tow_status gradient_of(const tow_train_state *s, const tow_graph *loss, tow_graph **gradient)
{
    tow_status status = gradient_of_batch(s, loss, gradient);
    return status == TOW_OK ? group_rows(s, s->options.shard, gradient) : status;
}

tow_status tow__train_whole_gradient(const tow_train_state *s, const tow_graph *loss, tow_graph **gradient)
{
    tow_status status = gradient_of_batch(s, loss, gradient);
    return status == TOW_OK ? group_rows(s, TOW_SHARD_NOTHING, gradient) : status;
}

tow_status tow__train_own_part(const tow_train_state *s, const tow_graph *loss, tow__row_part *part)
{
    tow_graph *gradient = NULL;
    *part = (tow__row_part){.ctx = s->ctx};
    tow_status status = gradient_of_batch(s, loss, &gradient);
    int *axes = status == TOW_OK ? row_axes(s, gradient) : NULL;
    if (status == TOW_OK && !axes) status = TOW_OUT_OF_MEMORY;
    if (status == TOW_OK) status = tow__row_part_create(gradient, s->share.groups, s->share.count, axes, part);
    if (axes) tow__free(s->ctx, axes, tow_graph_input_count(gradient) + 1, sizeof *axes);
    tow_graph_release(gradient);
    return status;
}

/* Whatever makes the step of another loss. It belongs to the graph of the step, whose program the state owns. */
typedef struct step_maker {
    tow_train_state *s;
    tow_type *types, *micro_types; /* [n_inputs] */
} step_maker;

static tow_status make_graph(tow_train_state *s, const tow_graph *loss, const tow_graph *gradient,
                             const tow_type *types, const tow_type *micro_types, tow_graph **step);

static tow_status make_again(const tow__origin *origin, const tow_graph *loss, tow_graph **step)
{
    const step_maker *m = origin->user;
    tow_graph *gradient = NULL;
    tow_status status = gradient_of(m->s, loss, &gradient);
    if (status == TOW_OK) status = make_graph(m->s, loss, gradient, m->types, m->micro_types, step);
    tow_graph_release(gradient);
    return status;
}

static tow_status set_origin(tow_train_state *s, const tow_graph *loss, const tow_type *types,
                             const tow_type *micro_types, tow_graph *step)
{
    size_t *wrt = list_params(s);
    step_maker *m = tow__arena_alloc(&step->arena, 1, sizeof *m);
    tow_status status = TOW_OUT_OF_MEMORY;
    if (!wrt || !m) goto done;
    *m = (step_maker){.s = s,
                      .types = tow__arena_alloc(&step->arena, s->n_inputs, sizeof *m->types),
                      .micro_types = tow__arena_alloc(&step->arena, s->n_inputs, sizeof *m->micro_types)};
    if (!m->types || !m->micro_types) goto done;
    for (size_t i = 0; i < s->n_inputs; i++) m->types[i] = types[i], m->micro_types[i] = micro_types[i];
    status = tow__set_step_origin(step, loss, s->n_params, wrt, s->n_variables + s->n_aux > 0, make_again, m);
done:
    if (wrt) tow__free(s->ctx, wrt, s->n_params + 1, sizeof *wrt);
    return status;
}

/* The step with this gradient of the loss, which says what it is a step of. */
static tow_status make_graph(tow_train_state *s, const tow_graph *loss, const tow_graph *gradient,
                             const tow_type *types, const tow_type *micro_types, tow_graph **step)
{
    tow_status status = tow__step_graph(s, gradient, types, micro_types, step);
    if (status == TOW_OK) status = set_origin(s, loss, types, micro_types, *step);
    if (status == TOW_OK) return TOW_OK;
    tow_graph_release(*step);
    *step = NULL;
    return status;
}

static tow_status make_variant(void *user, uint32_t i, tow_graph **graph)
{
    const step_variants *v = user;
    tow_graph *loss = NULL, *gradient = NULL;
    *graph = NULL;
    if (i == 0 && !v->s->ctx->verifies) {
        *graph = tow__graph_share(v->step);
        return TOW_OK;
    }
    tow_status status = tow__loss_variant(v->losses, i, &loss);
    if (status == TOW_OK) status = gradient_of(v->s, loss, &gradient);
    if (status == TOW_OK) status = make_graph(v->s, loss, gradient, v->types, v->p->micro_types, graph);
    tow_graph_release(loss);
    tow_graph_release(gradient);
    return status;
}

/* Paths of arrays in the model. */
static const char *parameter_path(const void *user, size_t i)
{
    return ((const step_variants *)user)->s->params->names.names[i];
}

static const char *slot_path(const void *user, size_t i)
{
    const tow_optimizer_state *o = ((const step_variants *)user)->s->optimizer;
    const uint32_t parameter = o->slots[i].parameter;
    return parameter == TOW__NO_PARAMETER ? NULL : o->params->names.names[parameter];
}

static const char *variable_path(const void *user, size_t i)
{
    const char *collection = strchr(((const step_variants *)user)->s->variables->names.names[i], '/');
    return collection ? collection + 1 : NULL;
}

static const char *average_path(const void *user, size_t i)
{
    const tow_train_state *s = ((const step_variants *)user)->s;
    const tow_params *averages = tow__average_state(s->average);
    return i < averages->names.count ? averages->names.names[i] : NULL;
}

/* The wish of a caller: the plan within the limit, or the list of all plans. */
typedef struct plan_wish {
    tow_program **program; /* NULL: the list */
    size_t size;
    tow_memory_point *points; /* [size] */
    size_t *n;
} plan_wish;

static tow_status compile_within(tow_train_state *s, const tow_type *types, const tow__train_program *p,
                                 const tow_graph *step, const tow_compile_options *options, const plan_wish *wish)
{
    tow__string sizes;
    step_variants v = {.s = s, .p = p, .types = types, .step = step};
    const size_t slots = s->optimizer->slot_names.count, reports = s->optimizer->report_names.count;
    const tow__input_kind kinds[] = {
        {"parameters", s->n_params, parameter_path},
        {"slots", slots, slot_path},
        {"variables", s->n_variables, variable_path},
        {"averages", s->n_kept - s->n_params - slots - s->n_variables - reports, average_path},
        {"reports", reports, NULL},
        {"inputs", s->n_inputs, NULL},
        {"keys and numbers", SIZE_MAX / 2, NULL}};
    tow__variants variants = {
        .user = &v, .make = make_variant, .kinds = kinds, .n_kinds = sizeof kinds / sizeof *kinds};
    tow__pricing pricing;
    tow__string_init(&sizes, s->ctx);
    for (size_t i = 0; i < s->n_inputs; i++) tow__string_add_type(&sizes, types[i]);
    tow_status status = tow__pricing_begin(s->ctx, p->loss_graph, s->ctx->threads, &pricing);
    if (wish->program) status = tow__group_agree(s->ctx, s->options.group, status);
    if (status == TOW_OK && wish->program) status = tow__price_together(s->options.group, &pricing);
    if (status == TOW_OK) status = tow__loss_variants_create(p->loss_graph, &pricing.price, &v.losses);
    tow__pricing_end(&pricing);
    if (status == TOW_OK && sizes.failed) status = TOW_OUT_OF_MEMORY;
    if (status == TOW_OK) {
        variants.frontiers = &s->frontiers;
        variants.of = sizes.text;
        variants.n = tow__loss_variants_count(v.losses);
        variants.group = s->options.group;
        variants.note = tow__loss_variants_note(v.losses);
        status = wish->program
                     ? tow__compile_variants(s->ctx, &variants, options, wish->program)
                     : tow__list_plans(s->ctx, &variants, options, s->ctx->threads, wish->size, wish->points, wish->n);
    }
    tow__loss_variants_free(v.losses);
    tow__string_free(&sizes);
    return status;
}

static tow_status compile_step(tow_train_state *s, const tow_type *types, const tow__train_program *p,
                               const tow_graph *step, const plan_wish *wish)
{
    tow_donation *donations = tow__alloc(s->ctx, s->n_kept, sizeof *donations);
    if (!donations) return TOW_OUT_OF_MEMORY;
    static const char *const splitting[] = {"fission-loops", NULL};
    for (size_t i = 0; i < s->n_kept; i++) donations[i] = (tow_donation){i, i};
    const tow_compile_options options =
        TOW_COMPILE_OPTIONS(.flush_subnormals = true, .memory_limit = s->options.memory_limit,
                            .shared_arena = s->shared_arena, .donations = donations, .n_donations = s->n_kept,
                            .without = s->options.early_update ? splitting : NULL, .verify = s->options.verify);
    const bool chooses = options.memory_limit || !wish->program;
    tow_status status = chooses ? compile_within(s, types, p, step, &options, wish)
                                : tow_compile(s->ctx, step, &options, wish->program);
    tow__free(s->ctx, donations, s->n_kept, sizeof *donations);
    return status;
}

/* The text of a graph has no source lines, which may differ. */
tow_status tow__train_check_same_graph(const tow_train_state *s, const char *what, const tow_graph *graph)
{
    char text[80];
    if (!tow__train_has_others(s)) return TOW_OK;
    const size_t length = tow_graph_text(graph, NULL, 0);
    char *all = length > 0 ? tow__alloc(s->ctx, length + 1, 1) : NULL; /* of length 0 if there is no memory */
    if (!all) return TOW_OUT_OF_MEMORY;
    const bool whole = tow_graph_text(graph, all, length + 1) == length;
    snprintf(text, sizeof text, "%zu characters, hash %016llx", length, (unsigned long long)tow__hash(0, all, length));
    tow__free(s->ctx, all, length + 1, 1);
    if (!whole) return TOW_OUT_OF_MEMORY;
    const tow_group_fact fact = {what, text};
    return tow_group_check_same(s->options.group, 1, &fact);
}

static tow_status make_step(tow_train_state *s, const tow_type *types, tow__train_program *p)
{
    tow_graph *step = NULL;
    bool before;
    tow_status status = TOW_OK;
    TRY(trace_loss(s, p, false, &p->loss_graph));
    TRY(tow__train_check_same_graph(s, "the graph of model and loss", p->loss_graph));
    before = tow__verify_gradients(s->ctx, s->ctx->verifies || (s->options.verify && !s->options.memory_limit));
    status = gradient_of(s, p->loss_graph, &p->gradient_graph);
    tow__verify_gradients(s->ctx, before);
    TRY(status);
    TRY(check_weight(s, p));
    TRY(make_graph(s, p->loss_graph, p->gradient_graph, types, p->micro_types, &step));
    TRY(compile_step(s, types, p, step, &(plan_wish){.program = &p->program}));
done:
    tow_graph_release(step);
    return status;
}

/* The plans of a step without comparisons: .verify is no part of what a limit counts. */
static tow_status list_plans(tow_train_state *s, const tow__train_program *p, const plan_wish *wish)
{
    tow_graph *gradient = NULL, *step = NULL;
    tow_status status = gradient_of(s, p->loss_graph, &gradient);
    if (status == TOW_OK) status = make_graph(s, p->loss_graph, gradient, s->types, p->micro_types, &step);
    if (status == TOW_OK) status = compile_step(s, s->types, p, step, wish);
    tow_graph_release(gradient);
    tow_graph_release(step);
    return status;
}

/* The axes of aux values that have the rows of the batch, which metrics add up group by group. */
static tow_status find_aux_axes(tow_train_state *s, tow__train_program *p)
{
    const size_t n = tow_graph_output_count(p->loss_graph);
    if (s->row_groups == 1) return TOW_OK;
    p->aux_axes = tow__alloc(s->ctx, s->n_aux + 1, sizeof *p->aux_axes);
    int *in = row_axes(s, p->loss_graph), *out = tow__alloc(s->ctx, n + 1, sizeof *out);
    tow_status status =
        p->aux_axes && in && out ? tow__row_axes_of_outputs(p->loss_graph, &s->share, in, out) : TOW_OUT_OF_MEMORY;
    for (size_t i = 0; status == TOW_OK && i < s->n_aux; i++) p->aux_axes[i] = out[1 + i];
    if (in) tow__free(s->ctx, in, tow_graph_input_count(p->loss_graph) + 1, sizeof *in);
    if (out) tow__free(s->ctx, out, n + 1, sizeof *out);
    return status;
}

static tow_status make_evaluation(tow_train_state *s, tow__train_program *p)
{
    tow_status status = TOW_OK;
    TRY(trace_loss(s, p, true, &p->loss_graph));
    TRY(check_weight(s, p));
    TRY(find_aux_axes(s, p));
    TRY(group_rows(s, s->options.shard, &p->loss_graph));
    if (tow__train_shares_params(s)) TRY(tow__train_on_shares(s, &p->loss_graph));
    TRY(tow_compile(s->ctx, p->loss_graph,
                    &TOW_COMPILE_OPTIONS(.flush_subnormals = true, .shared_arena = s->shared_arena), &p->program));
done:
    return status;
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

/* The type of an output of one micro-batch, for all of them. */
static tow_type stacked(tow_type type, size_t n)
{
    int64_t dims[TOW_MAX_RANK + 1] = {(int64_t)n};
    for (int i = 0; i < type.rank; i++) dims[1 + i] = type.dims[i];
    return tow_make_type(type.dtype, type.rank + 1, dims);
}

/* The array of output `output` of the loss graph, of all micro-batches. */
static tow_status make_output(tow_train_state *s, const tow__train_program *p, size_t output, tow_array **array)
{
    const tow_type type = tow_graph_output_type(p->gradient_graph ? p->gradient_graph : p->loss_graph, output);
    if (s->micro_batches == 1) return tow_array_create(s->ctx, type, array);
    if (type.rank == TOW_MAX_RANK)
        return tow__fail(s->ctx, TOW_INVALID_ARGUMENT,
                         "train: aux value %zu: expected a rank below %d, with which all micro-batches make one array, "
                         "found %s",
                         output - 1, TOW_MAX_RANK, tow__type_name(type).text);
    return tow_array_create(s->ctx, stacked(type, s->micro_batches), array);
}

/* Evaluations write the rows of one micro-batch after the other. */
static tow_status make_rows(tow_train_state *s, tow__train_program *p)
{
    const size_t n = s->micro_batches;
    tow_status status = TOW_OK;
    p->rows = tow__alloc(s->ctx, n * s->n_aux + 1, sizeof *p->rows);
    if (!p->rows) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < s->n_aux; i++)
        for (size_t j = 0; j < n; j++) TRY(tow_array_row(p->aux[i], (int64_t)j, &p->rows[j * s->n_aux + i]));
done:
    return status;
}

/* The arrays that the program writes besides what is kept. */
static tow_status make_outputs(tow_train_state *s, tow__train_program *p, bool evaluation)
{
    tow_status status = TOW_OK;
    if (evaluation)
        TRY(tow_array_create(s->ctx, tow_graph_output_type(p->loss_graph, 0), &p->loss));
    else
        TRY(make_output(s, p, 0, &p->loss));
    for (size_t i = 0; i < s->n_aux; i++) TRY(make_output(s, p, 1 + i, &p->aux[i]));
    if (evaluation && s->micro_batches > 1) TRY(make_rows(s, p));
done:
    return status;
}

/* Lists, and views for micro-batches. */
static tow_status make_lists(tow_train_state *s, tow__train_program *p, const tow_type *types)
{
    tow_status status = TOW_OK;
    p->micro_types = tow__alloc(s->ctx, s->n_inputs + 1, sizeof *p->micro_types);
    p->aux = tow__alloc(s->ctx, s->n_aux + 1, sizeof *p->aux);
    if (!p->micro_types || !p->aux) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < s->n_inputs; i++) TRY(micro_type(s, i, types[i], &p->micro_types[i]));
    if (s->micro_batches == 1) return TOW_OK;
    p->views = tow__alloc(s->ctx, s->n_inputs + 1, sizeof *p->views);
    if (!p->views) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < s->n_inputs; i++) TRY(tow__array_borrow(s->ctx, p->micro_types[i], &p->views[i]));
done:
    return status;
}

/* ---- the caches -------------------------------------------------------------------------------------------------- */

static void free_list(tow_context *ctx, tow_array **list, size_t n)
{
    for (size_t i = 0; list && i < n; i++) tow_array_release(list[i]);
    if (list) tow__free(ctx, list, n + 1, sizeof *list);
}

static void free_program(void *data, void *user)
{
    tow_train_state *s = user;
    tow__train_program *p = data;
    if (s->last == p) s->last = NULL;
    tow_graph_release(p->loss_graph);
    tow_graph_release(p->gradient_graph);
    tow_array_release(p->loss);
    free_list(s->ctx, p->rows, s->micro_batches * s->n_aux);
    free_list(s->ctx, p->aux, s->n_aux);
    free_list(s->ctx, p->views, s->n_inputs);
    if (p->aux_axes) tow__free(s->ctx, p->aux_axes, s->n_aux + 1, sizeof *p->aux_axes);
    if (p->micro_types) tow__free(s->ctx, p->micro_types, s->n_inputs + 1, sizeof *p->micro_types);
    tow__free(s->ctx, p, 1, sizeof *p);
}

/* All processes start the same sums in the same order, or they would wait for each other. */
static tow_status check_same_sums(const tow_train_state *s, const tow_program *program)
{
    const tow__collectives *all = &program->executable.collectives;
    char text[80];
    if (!tow__train_has_others(s)) return TOW_OK;
    snprintf(text, sizeof text, "%u, hash %016llx", (unsigned)all->n, (unsigned long long)tow__collectives_hash(all));
    const tow_group_fact fact = {"the list of sums over processes", text};
    return tow_group_check_same(s->options.group, 1, &fact);
}

static tow_status make_program(tow_train_state *s, const tow_type *types, bool evaluation, tow_program **program,
                               void **data)
{
    tow__train_program *p = tow__alloc(s->ctx, 1, sizeof *p);
    if (!p) return TOW_OUT_OF_MEMORY;
    tow_status status = make_lists(s, p, types);
    if (status == TOW_OK) status = evaluation ? make_evaluation(s, p) : make_step(s, types, p);
    if (status == TOW_OK) status = make_outputs(s, p, evaluation);
    if (status == TOW_OK) status = check_same_sums(s, p->program);
    if (status == TOW_OK) {
        *program = p->program;
        *data = p;
    } else {
        tow_program_free(p->program);
        free_program(p, s);
    }
    return status;
}

static tow_status make_for_steps(const tow_type *types, tow_program **program, void **data, void *user)
{
    return make_program(user, types, false, program, data);
}

static tow_status make_for_evaluation(const tow_type *types, tow_program **program, void **data, void *user)
{
    return make_program(user, types, true, program, data);
}

tow_status tow__train_programs_create(tow_train_state *s, bool evaluation)
{
    const tow_program_cache_options options =
        TOW_PROGRAM_CACHE_OPTIONS(.n_types = s->n_inputs, .limit = s->options.other_shapes + 1,
                                  .make = evaluation ? make_for_evaluation : make_for_steps, .free_data = free_program,
                                  .user = s);
    return tow_program_cache_create(s->ctx, &options, evaluation ? &s->evaluations : &s->steps);
}

/* Types that differ in sizes alone from those that the state was made with, if they may. */
static tow_status check_types(const tow_train_state *s, const tow_type *types)
{
    for (size_t i = 0; i < s->n_inputs; i++) {
        const tow_type found = types[i], known = s->types[i];
        const bool alike = found.dtype == known.dtype && found.rank == known.rank;
        if (tow_type_equal(found, known) || (s->options.other_shapes > 0 && alike)) continue;
        return tow__fail(s->ctx, TOW_TYPE_MISMATCH,
                         "train: input %zu: expected %s, found %s; pass an array of the expected type%s", i,
                         tow__type_name(known).text, tow__type_name(found).text, alike ? ", or set .other_shapes" : "");
    }
    return TOW_OK;
}

tow_status tow__train_program_for(tow_train_state *s, const tow_type *types, bool evaluation,
                                  const tow__train_program **program)
{
    tow_cached_program entry;
    tow_status status = check_types(s, types);
    if (status == TOW_OK) status = tow_program_cache_get(evaluation ? s->evaluations : s->steps, types, &entry);
    if (status == TOW_OK) *program = entry.data;
    return status;
}

tow_status tow_train_memory_curve(tow_train_state *s, size_t size, tow_memory_point *points, size_t *n)
{
    const tow__train_program *p;
    if (n) *n = 0;
    if (!s || !n || (size && !points))
        return tow__missing(s ? s->ctx : NULL, __func__, "a state, and places for points and their number");
    TOW__ARITHMETIC(false);
    tow_status status = tow__train_program_for(s, s->types, false, &p);
    return status == TOW_OK ? list_plans(s, p, &(plan_wish){.size = size, .points = points, .n = n}) : status;
}
