/* Models as functions of arrays: what everybody writes around tow_model_loss_graph, tow_value_and_grad and tow_compile.
 *
 *   inputs of a program    parameters | state | inputs | extra | keys
 *   outputs                loss, aux or the model's outputs | updates | sown values | gradients
 *
 * A program for inputs of new types is made when they first come, and kept in a cache. Gradients and new variables have
 * the same types in all programs: there is one array for each. Outputs and sown values belong to their program. */
#include "src/base/counts.h"
#include "src/base/dtypes.h"
#include "src/base/keys.h"
#include "src/base/options.h"
#include "src/params/params.h"
#include "src/scope/tree.h"
#include "tow/autodiff.h"
#include "tow/model.h"

struct tow_model_function {
    tow_context *ctx;
    const tow_module *module;
    tow_model_function_options options; /* .model and .compile stand below */
    tow_model_options model_options;
    tow_compile_options compile_options;
    tow_params *params, *state; /* arrays shared with the caller's lists; state may be empty */
    size_t *wrt;                /* [n_params] of which n_wrt are used */
    size_t n_wrt;
    bool differentiates;
    tow_params *gradients; /* [n_wrt], NULL without */
    tow_params *updates;   /* of the variables that calls may change, from the first program on */
    tow_program_cache *cache;
    tow_shared_arena *shared_arena;                /* of its programs */
    size_t n_params, n_state, n_inputs, n_streams; /* n_inputs: extra ones counted */
    tow_array **inputs;                            /* of a program */
    tow_type *types;                               /* [n_inputs] of the call */
};

/* The values that are kept beside a program. */
typedef struct made {
    tow_graph *graph, *gradient;
    size_t n_outputs; /* of the program */
    tow_array **outputs;
    tow_params *sown;
} made;

/* ---- one program ------------------------------------------------------------------------------------------------- */

static void free_made(void *data, void *user)
{
    tow_context *ctx = ((tow_model_function *)user)->ctx;
    made *m = data;
    tow_graph_release(m->graph);
    tow_graph_release(m->gradient);
    if (m->outputs) {
        for (size_t i = 0; i < m->n_outputs; i++) tow_array_release(m->outputs[i]);
        tow__free(ctx, m->outputs, m->n_outputs + 1, sizeof *m->outputs);
    }
    tow_params_free(m->sown);
    tow__free(ctx, m, 1, sizeof *m);
}

static tow_status make_graphs(tow_model_function *f, const tow_type *types, made *m, tow_params **changes)
{
    const tow_model_function_options *o = &f->options;
    tow_model_options model = f->model_options;
    tow_status status = TOW_OK;
    model.state = f->state;
    model.updates = changes;
    if (o->loss)
        TRY(tow_model_loss_graph(f->module, f->params, o->n_inputs, types, o->n_extra, types + o->n_inputs, o->loss,
                                 o->loss_user, o->n_aux, &model, &m->graph));
    else
        TRY(tow_model_forward_graph(f->module, f->params, o->n_inputs, types, &model, &m->graph));
    if (f->differentiates)
        TRY(tow_value_and_grad(m->graph, f->n_wrt, f->wrt, tow_graph_output_count(m->graph) > 1, &m->gradient));
done:
    return status;
}

/* New values of variables go to the arrays that all programs share, sown values to those of this program. */
static tow_status share_changes(tow_model_function *f, made *m, const tow_params *changes, tow_array **outputs)
{
    for (uint32_t i = 0; i < changes->names.count; i++) {
        const char *path = changes->names.names[i];
        tow_array *array = changes->arrays[i];
        tow_params *list = tow__names_find(&f->state->names, path) != TOW__NO_NAME ? f->updates : m->sown;
        tow_array *known = tow_params_find(list, path);
        tow_status status = known ? TOW_OK : tow__params_append(list, path, array, NULL, 0);
        if (status) return status;
        outputs[i] = tow_array_retain(known ? known : array);
    }
    return TOW_OK;
}

static tow_status make_outputs(tow_model_function *f, made *m, const tow_params *changes)
{
    tow_status status = TOW_OK;
    const size_t n_changes = changes->names.count, n_results = tow_graph_output_count(m->graph) - n_changes;
    m->n_outputs = n_results + n_changes + f->n_wrt;
    m->outputs = tow__alloc(f->ctx, m->n_outputs + 1, sizeof *m->outputs);
    if (!m->outputs) return TOW_OUT_OF_MEMORY;
    TRY(tow__params_create(f->ctx, &m->sown));
    for (size_t i = 0; i < n_results; i++)
        TRY(tow_array_create(f->ctx, tow_graph_output_type(m->graph, i), &m->outputs[i]));
    TRY(share_changes(f, m, changes, m->outputs + n_results));
    for (size_t i = 0; i < f->n_wrt; i++)
        m->outputs[n_results + n_changes + i] = tow_array_retain(f->gradients->arrays[i]);
done:
    return status;
}

static tow_status make(const tow_type *types, tow_program **program, void **data, void *user)
{
    tow_model_function *f = user;
    tow_compile_options compile = f->compile_options;
    tow_status status = TOW_OK;
    tow_params *changes = NULL;
    made *m = tow__alloc(f->ctx, 1, sizeof *m);
    if (!m) return TOW_OUT_OF_MEMORY;
    TRY(make_graphs(f, types, m, &changes));
    TRY(make_outputs(f, m, changes));
    if (!compile.shared_arena) compile.shared_arena = f->shared_arena;
    TRY(tow_compile(f->ctx, m->gradient ? m->gradient : m->graph, &compile, program));
    *data = m;
done:
    tow_params_free(changes);
    if (status) free_made(m, f);
    return status;
}

/* ---- making a function ------------------------------------------------------------------------------------------- */

/* Finds the parameters that are differentiated, and makes arrays for their gradients. */
static tow_status choose_parameters(tow_model_function *f, const char *caller)
{
    const tow_params *p = f->params;
    tow_status status = tow__params_check_patterns(p, caller, ".wrt", f->options.wrt);
    if (status) return status;
    f->wrt = tow__alloc(f->ctx, f->n_params + 1, sizeof *f->wrt);
    if (!f->wrt) return TOW_OUT_OF_MEMORY;
    TRY(tow__params_create(f->ctx, &f->gradients));
    for (uint32_t i = 0; i < p->names.count; i++) {
        const char *path = p->names.names[i];
        if (p->frozen[i] || !tow_dtype_is_float(p->types[i].dtype) || !tow__entry_wanted(f->options.wrt, p, i) ||
            !tow__path_below(path, f->model_options.at))
            continue;
        f->wrt[f->n_wrt++] = i;
        TRY(tow__params_add_like(f->gradients, path, p->types[i], p, i));
        TRY(tow_array_create(f->ctx, p->types[i], &f->gradients->arrays[f->n_wrt - 1]));
    }
    if (f->n_wrt == 0)
        TRY(tow__fail(
            f->ctx, TOW_INVALID_ARGUMENT,
            "%s: none of the %zu parameters is left to differentiate; give .wrt patterns of some, or unfreeze "
            "them (tow_params_freeze), or use tow_model_function_create",
            caller, f->n_params));
done:
    return status;
}

static tow_status make_lists(tow_model_function *f, const tow_params *params, const char *caller)
{
    tow_status status = TOW_OK;
    TRY(tow__params_shared(f->ctx, params, &f->params));
    if (f->model_options.state)
        TRY(tow__params_shared(f->ctx, f->model_options.state, &f->state));
    else
        TRY(tow__params_create(f->ctx, &f->state));
    TRY(tow__params_create(f->ctx, &f->updates));
    f->n_params = f->params->names.count;
    f->n_state = f->state->names.count;
    f->n_inputs = f->options.n_inputs + f->options.n_extra;
    const char *const *streams = f->model_options.streams;
    while (streams && streams[f->n_streams]) f->n_streams++;
    if (f->differentiates) TRY(choose_parameters(f, caller));
    const size_t n = f->n_params + f->n_state + f->n_inputs;
    f->types = tow__alloc(f->ctx, f->n_inputs + 1, sizeof *f->types);
    f->inputs = tow__alloc(f->ctx, n + f->n_streams + 1, sizeof *f->inputs);
    if (!f->types || !f->inputs) TRY(TOW_OUT_OF_MEMORY);
    for (size_t i = 0; i < f->n_streams; i++)
        TRY(tow_array_create(f->ctx, tow_make_type(TOW_U32, 1, (int64_t[]){2}), &f->inputs[n + i]));
    const tow_program_cache_options cache = TOW_PROGRAM_CACHE_OPTIONS(.n_types = f->n_inputs, .limit = f->options.limit,
                                                                      .make = make, .free_data = free_made, .user = f);
    TRY(tow_shared_arena_create(f->ctx, &f->shared_arena));
    TRY(tow_program_cache_create(f->ctx, &cache, &f->cache));
done:
    return status;
}

static tow_status check_options(tow_context *ctx, const char *caller, const tow_model_function_options *o)
{
    tow_status status = TOW_OK;
    TRY(tow__check_count(ctx, caller, ".n_inputs", o->n_inputs));
    TRY(tow__check_count(ctx, caller, ".n_extra", o->n_extra));
    TRY(tow__check_count(ctx, caller, ".n_aux", o->n_aux));
    if (o->model && o->model->updates)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "%s: expected .model without .updates; a call gives them in its results", caller);
    if (o->compile && (o->compile->n_donations || o->compile->plan_only))
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "%s: expected .compile without .donations and .plan_only; take the graph of "
                         "tow_model_function_program for a program of your own",
                         caller);
done:
    return status;
}

static tow_status make_function(const char *caller, const tow_module *model, const tow_params *params,
                                const tow_model_function_options *options, bool differentiates, const void *frame,
                                tow_model_function **function)
{
    if (function) *function = NULL;
    if (!model || !params || !options || !function)
        return tow__missing(params ? params->ctx : NULL, caller,
                            "a model, its parameters, options and a place for the function");
    tow_context *ctx = params->ctx;
    tow_model_function_options own;
    if (!TOW__OPTIONS_TAKE(ctx, tow_model_function_options, options, &own)) return TOW_INVALID_ARGUMENT;
    tow_model_options of_model = TOW_MODEL_OPTIONS();
    tow_compile_options compile = TOW_COMPILE_OPTIONS(.flush_subnormals = true); /* as in training */
    if (!TOW__OPTIONS_TAKE(ctx, tow_model_options, own.model, &of_model) ||
        !TOW__OPTIONS_TAKE(ctx, tow_compile_options, own.compile, &compile))
        return TOW_INVALID_ARGUMENT;
    tow_status status = check_options(ctx, caller, options);
    if (status) return status;
    if (differentiates && !options->loss)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "%s: no loss function; set .loss, or use tow_model_function_create for the model's outputs",
                         caller);
    if (!tow__check_stack(ctx, caller, model, frame)) return tow_context_status(ctx);
    tow_model_function *f = tow__alloc(ctx, 1, sizeof *f);
    if (!f) return TOW_OUT_OF_MEMORY;
    f->ctx = ctx;
    f->module = model;
    f->options = *options;
    f->differentiates = differentiates;
    f->model_options = of_model;
    f->compile_options = compile;
    f->options.model = NULL;
    f->options.compile = NULL;
    status = make_lists(f, params, caller);
    if (status)
        tow_model_function_free(f);
    else
        *function = f;
    return status;
}

TOW__OWN_FRAME tow_status tow_model_function_create_value_and_grad(const tow_module *model, const tow_params *params,
                                                                   const tow_model_function_options *options,
                                                                   tow_model_function **function)
{
    return make_function(__func__, model, params, options, true, TOW__CALLERS_FRAME, function);
}

TOW__OWN_FRAME tow_status tow_model_function_create(const tow_module *model, const tow_params *params,
                                                    const tow_model_function_options *options,
                                                    tow_model_function **function)
{
    return make_function(__func__, model, params, options, false, TOW__CALLERS_FRAME, function);
}

void tow_model_function_free(tow_model_function *f)
{
    if (!f) return;
    tow_context *ctx = f->ctx;
    const size_t n = f->n_params + f->n_state + f->n_inputs;
    tow_program_cache_free(f->cache);
    tow_shared_arena_release(f->shared_arena);
    if (f->inputs) {
        for (size_t i = 0; i < f->n_streams; i++) tow_array_release(f->inputs[n + i]);
        tow__free(ctx, f->inputs, n + f->n_streams + 1, sizeof *f->inputs);
    }
    if (f->types) tow__free(ctx, f->types, f->n_inputs + 1, sizeof *f->types);
    if (f->wrt) tow__free(ctx, f->wrt, f->n_params + 1, sizeof *f->wrt);
    tow_params_free(f->params);
    tow_params_free(f->state);
    tow_params_free(f->gradients);
    tow_params_free(f->updates);
    tow__free(ctx, f, 1, sizeof *f);
}

/* ---- calling ----------------------------------------------------------------------------------------------------- */

/* The arrays of `given` in the order of `known`. kind: what stands before paths in messages. */
static tow_status order_arrays(tow_model_function *f, const tow_params *known, const tow_params *given,
                               const char *kind, tow_array **arrays)
{
    for (uint32_t i = 0; i < known->names.count; i++) {
        const char *path = known->names.names[i];
        const uint32_t k = tow__params_index(given, path, i);
        if (k == TOW__NO_NAME)
            return tow__fail(f->ctx, TOW_NOT_FOUND,
                             "%s%s: the function was made with it, and the list given does not have it; give all of "
                             "them, or NULL for those that the function was made with",
                             kind, path);
        arrays[i] = given->arrays[k];
        tow_type found = tow_array_type(arrays[i]);
        if (!tow_type_equal(found, known->types[i]))
            return tow__fail(f->ctx, TOW_TYPE_MISMATCH, "%s%s: expected %s, found %s", kind, path,
                             tow__type_name(known->types[i]).text, tow__type_name(found).text);
    }
    if (given->names.count == known->names.count) return TOW_OK;
    for (uint32_t i = 0; i < given->names.count; i++)
        if (tow__params_index(known, given->names.names[i], i) == TOW__NO_NAME)
            return tow__fail(f->ctx, TOW_NOT_FOUND,
                             "%s%s: the list given has it, and the function was made without it; give a part of the "
                             "list (tow_params_select, tow_params_subtree)",
                             kind, given->names.names[i]);
    return TOW_OK;
}

static tow_status take_inputs(tow_model_function *f, const char *what, size_t n, tow_array *const *given, size_t first)
{
    if (!given && n > 0)
        return tow__fail(f->ctx, TOW_INVALID_ARGUMENT, "tow_model_function_call: .%s: expected %zu arrays, found NULL",
                         what, n);
    for (size_t i = 0; i < n; i++) {
        if (!given[i])
            return tow__fail(f->ctx, TOW_INVALID_ARGUMENT,
                             "tow_model_function_call: .%s[%zu]: expected an array, found NULL", what, i);
        f->inputs[f->n_params + f->n_state + first + i] = given[i];
        f->types[first + i] = tow_array_type(given[i]);
    }
    return TOW_OK;
}

static void set_keys(tow_model_function *f, const tow_model_arguments *a)
{
    for (size_t i = 0; i < f->n_streams; i++) {
        tow__key key = tow__key_fold_in(tow__key_fold_in(tow__key_from_seed(a->seed), (uint32_t)i), a->step);
        tow_array *array = f->inputs[f->n_params + f->n_state + f->n_inputs + i];
        memcpy(tow_array_data(array), a->keys ? a->keys[i] : key.k, sizeof key.k);
    }
}

static void fill_results(const tow_model_function *f, const tow_cached_program *c, tow_model_results *results)
{
    const made *m = c->data;
    const size_t first = f->options.loss ? 1 : 0;
    *results = (tow_model_results){.outputs = m->outputs + first,
                                   .n_outputs =
                                       m->n_outputs - first - f->n_wrt - f->updates->names.count - m->sown->names.count,
                                   .gradients = f->gradients,
                                   .updates = f->updates,
                                   .sown = m->sown,
                                   .program = c->program};
    if (first)
        results->loss = tow__load_element(tow_array_type(m->outputs[0]).dtype, tow_array_data(m->outputs[0]), 0).f;
}

tow_status tow_model_function_call(tow_model_function *f, const tow_model_arguments *arguments,
                                   tow_model_results *results)
{
    if (results) *results = (tow_model_results){0};
    if (!f || !arguments || !results)
        return tow__missing(f ? f->ctx : NULL, __func__, "a function, arguments and a place for the results");
    tow_model_arguments own;
    if (!TOW__OPTIONS_TAKE(f->ctx, tow_model_arguments, arguments, &own)) return TOW_INVALID_ARGUMENT;
    tow_status status = TOW_OK;
    tow_cached_program c;
    TRY(order_arrays(f, f->params, arguments->params ? arguments->params : f->params, "params/", f->inputs));
    TRY(order_arrays(f, f->state, arguments->state ? arguments->state : f->state, "", f->inputs + f->n_params));
    TRY(take_inputs(f, "inputs", f->options.n_inputs, arguments->inputs, 0));
    TRY(take_inputs(f, "extra", f->options.n_extra, arguments->extra, f->options.n_inputs));
    set_keys(f, arguments);
    TRY(tow_program_cache_get(f->cache, f->types, &c));
    TRY(tow_program_run(c.program, f->inputs, ((made *)c.data)->outputs));
    fill_results(f, &c, results);
done:
    return status;
}

tow_status tow_model_function_prepare(tow_model_function *f, const tow_type *input_types, const tow_type *extra_types)
{
    if (!f || (!input_types && f->options.n_inputs > 0) || (!extra_types && f->options.n_extra > 0))
        return tow__missing(f ? f->ctx : NULL, __func__, "a function, input_types and extra_types");
    for (size_t i = 0; i < f->options.n_inputs; i++) f->types[i] = input_types[i];
    for (size_t i = 0; i < f->options.n_extra; i++) f->types[f->options.n_inputs + i] = extra_types[i];
    tow_cached_program c;
    return tow_program_cache_get(f->cache, f->types, &c);
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

size_t tow_model_function_program_count(const tow_model_function *f)
{
    return f ? tow_program_cache_count(f->cache) : 0;
}

size_t tow_model_function_arena_bytes(const tow_model_function *f)
{
    if (!f) return 0;
    tow_shared_arena *given = f->compile_options.shared_arena;
    return tow_shared_arena_bytes(given ? given : f->shared_arena);
}

tow_model_program tow_model_function_program(const tow_model_function *f, size_t index)
{
    const tow_cached_program c = tow_program_cache_at(f ? f->cache : NULL, index);
    const made *m = c.data;
    if (!m) return (tow_model_program){0};
    return (tow_model_program){.types = c.types, .program = c.program, .graph = m->graph, .gradient = m->gradient};
}

size_t tow_model_function_wrt(const tow_model_function *f, const size_t **indices)
{
    if (indices) *indices = f ? f->wrt : NULL;
    return f ? f->n_wrt : 0;
}
