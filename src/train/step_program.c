/* Value, gradient and update of a caller's function in one program (tow_step): the step of a training state without its
 * batches, checks and averages.
 *
 *   inputs     params..., slots..., state..., inputs..., numbers...
 *   outputs    those parameters that are trained..., slots..., state..., reports..., loss, aux...
 *
 * Parameters, slots and state are donated. */
#include "src/autodiff/limit/limit.h"
#include "src/base/arithmetic.h"
#include "src/base/options.h"
#include "src/graph/graph.h"
#include "src/group/agreement.h"
#include "src/plan/remat/remat.h"
#include "src/train/update.h"
#include "tow/autodiff.h"
#include "tow/program.h"
#include "tow/train.h"

struct tow_step {
    tow_optimizer_state *optimizer;
    const tow_params *params;
    size_t n_params, n_trained, n_slots, n_state, n_rest, n_numbers, n_reports, n_results; /* results: loss, aux */
    size_t *trained; /* [n_trained] positions among the parameters */
    tow_program *program;
    tow_array **inputs, **outputs;
    const tow_row_groups_options *row_groups; /* while the step is made; or NULL */
};

static size_t n_inputs(const tow_step *s) { return s->n_params + s->n_slots + s->n_state + s->n_rest + s->n_numbers; }
static size_t n_updated(const tow_step *s) { return s->n_trained + s->n_slots + s->n_state; }
static size_t n_outputs(const tow_step *s) { return n_updated(s) + s->n_reports + s->n_results; }

/* ---- recording --------------------------------------------------------------------------------------------------- */

typedef struct recording {
    const tow_step *s;
    const tow_graph *gradient; /* (params..., state..., inputs...) -> (loss, aux..., state..., gradients...) */
} recording;

static void record(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const recording *r = user;
    const tow_step *s = r->s;
    const size_t n = s->n_trained, behind = s->n_params + s->n_slots, numbers = behind + s->n_state + s->n_rest;
    tow_value *x = tow__trace_alloc(t, n_inputs(s) + 1, sizeof *x),
              *y = tow__trace_alloc(t, s->n_results + s->n_state + n + 1, sizeof *y),
              *update = tow__trace_alloc(t, 2 * n + s->n_slots + s->n_numbers + 1, sizeof *update),
              *updated = tow__trace_alloc(t, n + s->n_slots + s->n_reports + 1, sizeof *updated);
    if (!x || !y || !update || !updated) return;
    memcpy(x, in, s->n_params * sizeof *x);
    memcpy(x + s->n_params, in + behind, (s->n_state + s->n_rest) * sizeof *x);
    tow_inline(t, r->gradient, x, y);
    for (size_t i = 0; i < n; i++) update[i] = in[s->trained[i]];
    memcpy(update + n, y + s->n_results + s->n_state, n * sizeof *update);
    memcpy(update + 2 * n, in + s->n_params, s->n_slots * sizeof *update);
    for (size_t i = 0; i < s->n_numbers; i++)
        update[2 * n + s->n_slots + i] =
            tow__number_is_loss(s->optimizer, (uint32_t)i) ? tow_convert(y[0], TOW_F64) : in[numbers + i];
    tow__record_update(t, update, updated, s->optimizer);
    memcpy(out, updated, (n + s->n_slots) * sizeof *out);
    memcpy(out + n + s->n_slots, y + s->n_results, s->n_state * sizeof *out);
    memcpy(out + n_updated(s), updated + n + s->n_slots, s->n_reports * sizeof *out);
    memcpy(out + n_updated(s) + s->n_reports, y, s->n_results * sizeof *out);
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

/* Finds the parameters that the optimizer trains: the same arrays, in the same order. */
static tow_status find_trained(tow_step *s)
{
    const tow_params *trained = s->optimizer->params;
    tow_context *ctx = s->optimizer->ctx;
    size_t at = 0;
    s->trained = tow__alloc(ctx, s->n_trained + 1, sizeof *s->trained);
    if (!s->trained) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < s->n_trained; i++, at++) {
        while (at < s->n_params && s->params->arrays[at] != trained->arrays[i]) at++;
        if (at == s->n_params)
            return tow__fail(
                ctx, TOW_INVALID_ARGUMENT,
                "tow_step_create: expected the parameters of the optimizer among those of the loss, in the "
                "same order, with the same arrays; %s is not there",
                trained->names.names[i]);
        s->trained[i] = at;
    }
    return TOW_OK;
}

static tow_status check(const tow_step *s, const tow_graph *loss)
{
    const tow_optimizer_state *o = s->optimizer;
    tow_context *ctx = o->ctx;
    const size_t n_in = tow_graph_input_count(loss), n_out = tow_graph_output_count(loss);
    if (!o->program || o->gathering || o->skip_not_finite || o->examples || o->search)
        return tow__fail(
            ctx, TOW_UNSUPPORTED,
            "tow_step_create: expected an optimizer of one's own without .every, .skip_not_finite, .loss_scale, "
            ".examples and .line_search, which decide outside of a program");
    if (n_in < s->n_params + s->n_state || n_out < 1 + s->n_state)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "tow_step_create: expected a loss of %zu parameters and %zu arrays of state, which gives the "
                         "loss and as many, found one of %zu inputs and %zu outputs",
                         s->n_params, s->n_state, n_in, n_out);
    for (size_t i = 0; i < s->n_params; i++)
        if (!tow_type_equal(tow_graph_input_type(loss, i), s->params->types[i]))
            return tow__fail(ctx, TOW_TYPE_MISMATCH,
                             "tow_step_create: input %zu of the loss: expected params/%s, %s, found %s", i,
                             s->params->names.names[i], tow__type_name(s->params->types[i]).text,
                             tow__type_name(tow_graph_input_type(loss, i)).text);
    return TOW_OK;
}

/* gradient: with the rows of this process, if there are others. */
static tow_type input_type(const tow_step *s, const tow_graph *gradient, size_t i)
{
    const size_t behind = s->n_params + s->n_slots;
    if (i < s->n_params) return s->params->types[i];
    if (i < behind) return s->optimizer->slots[i - s->n_params].type;
    if (i < behind + s->n_state + s->n_rest) return tow_graph_input_type(gradient, i - s->n_slots);
    return tow_make_type(TOW_F64, 0, NULL);
}

static tow_status step_graph(tow_step *s, const tow_graph *loss, tow_graph **graph);

static tow_status make_again(const tow__origin *origin, const tow_graph *loss, tow_graph **graph)
{
    return step_graph(origin->user, loss, graph);
}

/* The whole step with the gradient of this loss, which says what it is a step of. */
static tow_status step_graph(tow_step *s, const tow_graph *loss, tow_graph **graph)
{
    tow_context *ctx = s->optimizer->ctx;
    tow_graph *gradient = NULL, *grouped = NULL;
    tow_type *types = tow__alloc(ctx, n_inputs(s) + 1, sizeof *types);
    tow_status status = types ? TOW_OK : TOW_OUT_OF_MEMORY;
    TRY(status);
    TRY(tow_value_and_grad(loss, s->n_trained, s->trained, tow_graph_output_count(loss) > 1, &gradient));
    if (s->row_groups) TRY(tow_row_groups(gradient, s->row_groups, &grouped));
    recording r = {s, grouped ? grouped : gradient};
    for (size_t i = 0; i < n_inputs(s); i++) types[i] = input_type(s, r.gradient, i);
    TRY(tow_trace_function(ctx, record, &r, n_inputs(s), types, NULL, n_outputs(s), graph));
    if (!s->row_groups) /* those options are the caller's, and not there later */
        status = tow__set_step_origin(*graph, loss, s->n_trained, s->trained, tow_graph_output_count(loss) > 1,
                                      make_again, s);
    if (status != TOW_OK) {
        tow_graph_release(*graph);
        *graph = NULL;
    }
done:
    tow_graph_release(gradient);
    tow_graph_release(grouped);
    if (types) tow__free(ctx, types, n_inputs(s) + 1, sizeof *types);
    return status;
}

/* ---- within a memory limit: of variants of the loss -------------------------------------------------------------- */

typedef struct step_variants {
    tow_step *s;
    const tow_graph *step;
    tow__loss_variants *losses;
} step_variants;

static tow_status make_variant(void *user, uint32_t i, tow_graph **graph)
{
    const step_variants *v = user;
    tow_graph *loss = NULL;
    *graph = NULL;
    if (i == 0 && !v->s->optimizer->ctx->verifies) {
        *graph = tow__graph_share(v->step);
        return TOW_OK;
    }
    tow_status status = tow__loss_variant(v->losses, i, &loss);
    if (status == TOW_OK) status = step_graph(v->s, loss, graph);
    tow_graph_release(loss);
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

/* All that tells two steps of one optimizer and one loss apart. */
static void describe(const tow_step *s, const tow_graph *loss, tow__string *text)
{
    const tow_row_groups_options *r = s->row_groups;
    tow__string_add(text, "state %zu", s->n_state);
    for (size_t i = 0; i < s->n_trained; i++) tow__string_add(text, " %zu", s->trained[i]);
    if (!r) return;
    tow__string_add(text, ", groups %lld %lld", (long long)r->groups, (long long)r->micro_batches);
    for (size_t i = 0; r->in_axes && i < tow_graph_input_count(loss); i++) tow__string_add(text, " %d", r->in_axes[i]);
}

/* Of processes that take the step together; NULL: there are none. */
static tow_group *group_of(const tow_step *s)
{
    const tow_row_groups_options *r = s->row_groups;
    tow_row_groups_options own;
    return TOW__OPTIONS_TAKE(s->optimizer->ctx, tow_row_groups_options, r, &own) && r ? r->group : NULL;
}

static tow_status compile_within(tow_step *s, const tow_graph *loss, const tow_graph *step,
                                 const tow_compile_options *options)
{
    tow__string text;
    tow_context *ctx = s->optimizer->ctx;
    step_variants v = {.s = s, .step = step};
    const tow__input_kind kinds[] = {{"parameters", s->n_params, parameter_path},
                                     {"slots", s->n_slots, slot_path},
                                     {"state", s->n_state, NULL},
                                     {"inputs", s->n_rest, NULL},
                                     {"numbers", s->n_numbers, NULL}};
    tow__variants variants = {
        .user = &v, .make = make_variant, .kinds = kinds, .n_kinds = sizeof kinds / sizeof *kinds};
    tow__pricing pricing;
    tow__string_init(&text, ctx);
    describe(s, loss, &text);
    tow_group *group = group_of(s);
    tow_status status = tow__group_agree(ctx, group, tow__pricing_begin(ctx, loss, ctx->threads, &pricing));
    if (status == TOW_OK) status = tow__price_together(group, &pricing);
    if (status == TOW_OK) status = tow__loss_variants_create(loss, &pricing.price, &v.losses);
    tow__pricing_end(&pricing);
    if (status == TOW_OK && text.failed) status = TOW_OUT_OF_MEMORY;
    if (status == TOW_OK) {
        variants.frontiers = &s->optimizer->frontiers;
        variants.loss = loss;
        variants.of = text.text;
        variants.n = tow__loss_variants_count(v.losses);
        variants.group = group;
        variants.note = tow__loss_variants_note(v.losses);
        status = tow__compile_variants(ctx, &variants, options, &s->program);
    }
    tow__loss_variants_free(v.losses);
    tow__string_free(&text);
    return status;
}

static tow_status compile(tow_step *s, const tow_graph *loss, const tow_graph *graph, const tow_step_options *options)
{
    tow_context *ctx = s->optimizer->ctx;
    const size_t n = n_updated(s);
    tow_donation *donations = tow__alloc(ctx, n + 1, sizeof *donations);
    if (!donations) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < n; i++)
        donations[i] = (tow_donation){i, i < s->n_trained ? s->trained[i] : i - s->n_trained + s->n_params};
    const tow_compile_options of_step =
        TOW_COMPILE_OPTIONS(.flush_subnormals = true, .donations = donations, .n_donations = n,
                            .memory_limit = options->memory_limit, .shared_arena = options->shared_arena,
                            .verify = options->verify);
    tow_status status = options->memory_limit ? compile_within(s, loss, graph, &of_step)
                                              : tow_compile(ctx, graph, &of_step, &s->program);
    tow__free(ctx, donations, n + 1, sizeof *donations);
    return status;
}

static tow_status make_program(tow_step *s, const tow_graph *loss, const tow_step_options *options)
{
    tow_context *ctx = s->optimizer->ctx;
    tow_graph *graph = NULL;
    tow_step_options o = *options;
    tow_status status = tow__limit_together(ctx, group_of(s), &o.memory_limit);
    if (status != TOW_OK) return status;
    const bool before = tow__verify_gradients(ctx, ctx->verifies || (o.verify && !o.memory_limit));
    status = step_graph(s, loss, &graph);
    tow__verify_gradients(ctx, before);
    if (status == TOW_OK) status = compile(s, loss, graph, &o);
    tow_graph_release(graph);
    return status;
}

static tow_status check_row_groups(const tow_step *s)
{
    const tow_row_groups_options *r = s->row_groups;
    tow_row_groups_options own;
    if (!TOW__OPTIONS_TAKE(s->optimizer->ctx, tow_row_groups_options, r, &own)) return TOW_INVALID_ARGUMENT;
    if (!r || (!r->in_layers && !r->out_layers)) return TOW_OK;
    return tow__fail(
        s->optimizer->ctx, TOW_INVALID_ARGUMENT,
        "tow_step_create: expected .row_groups without .in_layers and .out_layers, as the update is one of "
        "whole parameters; a training state shares them (.shard of tow_train_options)");
}

static tow_status make(tow_step *s, const tow_graph *loss, const tow_step_options *options)
{
    tow_optimizer_state *o = s->optimizer;
    tow_status status = TOW_OK;
    TRY(check(s, loss));
    TRY(check_row_groups(s));
    TRY(find_trained(s));
    s->n_rest = tow_graph_input_count(loss) - s->n_params - s->n_state;
    s->n_results = tow_graph_output_count(loss) - s->n_state;
    s->inputs = tow__alloc(o->ctx, n_inputs(s) + 1, sizeof *s->inputs);
    s->outputs = tow__alloc(o->ctx, n_outputs(s) + 1, sizeof *s->outputs);
    if (!s->inputs || !s->outputs) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < s->n_params; i++) s->inputs[i] = s->params->arrays[i];
    for (size_t i = 0; i < s->n_slots; i++) s->inputs[s->n_params + i] = o->slots[i].array;
    for (size_t i = 0; i < s->n_numbers; i++) s->inputs[n_inputs(s) - s->n_numbers + i] = o->number_arrays[i];
    for (size_t i = 0; i < s->n_reports; i++) s->outputs[n_updated(s) + i] = o->report_arrays[i];
    TRY(make_program(s, loss, options));
done:
    return status;
}

tow_status tow_step_create(tow_optimizer_state *optimizer, const tow_params *params, const tow_graph *loss,
                           const tow_step_options *options, tow_step **step)
{
    if (step) *step = NULL;
    if (!optimizer || !params || !loss || !step)
        return tow__missing(optimizer ? optimizer->ctx : NULL, __func__,
                            "an optimizer, parameters, the graph of a loss and a place for the step");
    tow_step_options own;
    if (!TOW__OPTIONS_TAKE(optimizer->ctx, tow_step_options, options, &own)) return TOW_INVALID_ARGUMENT;
    TOW__ARITHMETIC(false);
    tow_step *s = tow__alloc(optimizer->ctx, 1, sizeof *s);
    if (!s) return TOW_OUT_OF_MEMORY;
    const tow_step_options none = TOW_STEP_OPTIONS();
    *s = (tow_step){.optimizer = optimizer,
                    .params = params,
                    .n_params = tow_params_count(params),
                    .n_trained = tow_params_count(optimizer->params),
                    .n_slots = optimizer->slot_names.count,
                    .n_state = options ? options->n_state : 0,
                    .n_numbers = optimizer->number_names.count,
                    .n_reports = optimizer->report_names.count,
                    .row_groups = options ? options->row_groups : NULL};
    tow_status status = make(s, loss, options ? options : &none);
    s->row_groups = NULL;
    if (status == TOW_OK)
        *step = s;
    else
        tow_step_free(s);
    return status;
}

void tow_step_free(tow_step *s)
{
    if (!s) return;
    tow_context *ctx = s->optimizer->ctx;
    if (s->trained) tow__free(ctx, s->trained, s->n_trained + 1, sizeof *s->trained);
    if (s->inputs) tow__free(ctx, s->inputs, n_inputs(s) + 1, sizeof *s->inputs);
    if (s->outputs) tow__free(ctx, s->outputs, n_outputs(s) + 1, sizeof *s->outputs);
    tow_program_free(s->program);
    tow__free(ctx, s, 1, sizeof *s);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

tow_status tow_step_run(tow_step *s, tow_array *const *inputs, tow_array *const *outputs)
{
    if (!s || !outputs || (!inputs && s->n_state + s->n_rest > 0))
        return tow__missing(s ? s->optimizer->ctx : NULL, __func__, "a step, inputs and outputs");
    TOW__ARITHMETIC(true);
    tow__optimizer_begin(s->optimizer);
    for (size_t i = 0; i < s->n_state + s->n_rest; i++) s->inputs[s->n_params + s->n_slots + i] = inputs[i];
    for (size_t i = 0; i < s->n_results; i++) s->outputs[n_updated(s) + s->n_reports + i] = outputs[i];
    tow_status status = tow_program_run(s->program, s->inputs, s->outputs);
    s->optimizer->step += status == TOW_OK;
    return status;
}

const tow_program *tow_step_program(const tow_step *s) { return s->program; }
