/* Whole models: tracing them to draw their parameters and initial variables (tow_model_init), and to graphs over given
 * ones (tow_model_forward_graph, tow_model_loss_graph). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "src/base/arithmetic.h"
#include "src/base/counts.h"
#include "src/base/options.h"
#include "src/model/init.h"
#include "src/model/summary.h"
#include "src/scope/frames.h"
#include "src/scope/initializers.h"
#include "src/scope/streams.h"
#include "src/scope/tree.h"

/* Calls the model in the root scope, or in the scope at m->at below it. */
static void call_root(tow__model *m, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    tow_scope *scope = tow__trace_alloc(m->trace, 1, sizeof *scope);
    char *name = tow__trace_alloc(m->trace, strlen(m->at) + 1, 1);
    for (size_t i = 0; i < n_out; i++) out[i] = (tow_value){0};
    if (!scope || !name) return;
    *scope = (tow_scope){.model = m, .name = "", .path = "", .fixed = -1};
    int opened = 0;
    for (const char *at = m->at; *at; opened++) {
        const size_t length = strcspn(at, "/");
        memcpy(name, at, length);
        name[length] = '\0';
        scope = tow_scope_begin(scope, name);
        at += length + (at[length] == '/');
    }
    tow__call_here(scope, module, n_in, in, n_out, out);
    while (opened-- > 0) tow_scope_end(scope);
}

/* "inputs/0" and the like, as long-lived as the trace. */
static const char *numbered(tow_trace *t, const char *kind, size_t i)
{
    char *name = tow__trace_alloc(t, strlen(kind) + 24, 1);
    if (name) snprintf(name, strlen(kind) + 24, "%s/%zu", kind, i);
    return name;
}

static const char *prefixed(tow_trace *t, const char *prefix, const char *text)
{
    size_t size = strlen(prefix) + strlen(text) + 2;
    char *name = tow__trace_alloc(t, size, 1);
    if (name) snprintf(name, size, "%s/%s", prefix, text);
    return name;
}

static tow_value *add_inputs(tow_trace *t, const char *kind, size_t n, const tow_type *types)
{
    tow_value *in = tow__trace_alloc(t, n + 1, sizeof *in);
    for (size_t i = 0; in && i < n; i++) in[i] = tow__input(t, types[i], numbered(t, kind, i));
    return in;
}

/* The path of a part of the model is one. */
static tow_status check_at(tow_context *ctx, const char *caller, const tow_model_options *options)
{
    if (!options || !options->at || tow__is_path(options->at)) return TOW_OK;
    return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                     "%s: .at = \"%.200s\": expected a path such as \"encoder\" or \"encoder/norm\", or NULL", caller,
                     options->at);
}

/* ---- initializing ------------------------------------------------------------------------------------------------ */

/* Draws entry i, or this process's share of it: every layer of a stack with the key of its own path. */
static tow_status fill_entry(tow_context *ctx, const tow__store *store, uint32_t i, tow__key root, tow_group *shards)
{
    const tow__recipe *r = &store->recipes[i];
    const char *path = store->list->names.names[i];
    const tow_type stacked = tow__type_in_front(path, store->list->types[i]);
    int levels = r->levels;
    tow_type type = tow_make_type(stacked.dtype, stacked.rank - levels, stacked.dims + levels);
    int64_t rows = 1, first, count;
    int depths[TOW_MAX_RANK] = {0}, outer = levels; /* of the scans of which the axes are */
    for (int l = 0; l < levels; l++) rows *= stacked.dims[l];
    for (const tow_scope *s = r->scope; s; s = s->parent)
        if (s->iteration) depths[--outer] = s->level->depth;
    tow_array *front = NULL; /* the layers one after the other */
    tow_status status = tow__params_keep_share(store->list, i, shards, &first, &count);
    if (!status) status = tow_array_create(ctx, store->list->types[i], &store->list->arrays[i]);
    if (!status && !tow__path_in_front(path, stacked.rank)) status = tow_array_create(ctx, stacked, &front);
    if (status) return status;
    char *data = tow_array_data(front ? front : store->list->arrays[i]);
    for (int64_t row = 0; row < rows && !status; row++) {
        int64_t index[TOW_MAX_RANK] = {0}, rest = row;
        for (int l = levels - 1; l >= 0; --l) {
            index[depths[l]] = rest % stacked.dims[l];
            rest /= stacked.dims[l];
        }
        tow__key key = tow__scope_key(r->keys, root, index, r->counter);
        char *to = data + (size_t)(row * count) * tow_dtype_size(type.dtype);
        status = tow__initialize_part(ctx, &r->init, type, key.k, first, count, to);
    }
    if (front && !status) tow__put_from_front(path, store->list->arrays[i], data);
    tow_array_release(front);
    return status;
}

/* kind: what stands before a path in messages. */
static tow_status fill_store(tow_context *ctx, const tow__store *store, const char *kind, uint64_t seed,
                             tow_group *shards)
{
    for (uint32_t i = 0; i < store->list->names.count; i++) {
        tow_status status = fill_entry(ctx, store, i, tow__key_from_seed(seed), shards);
        if (!status) continue;
        char text[sizeof ctx->error]; /* say where */
        memcpy(text, ctx->error, sizeof text);
        return tow__fail(ctx, status, "%s%s: %s", kind, store->list->names.names[i],
                         text[0] ? text : "its initializer failed without a message");
    }
    return TOW_OK;
}

static tow_status check_arguments(tow_context *ctx, const char *caller, size_t n_inputs, size_t n_extra, size_t n_aux,
                                  const tow_model_options *options)
{
    tow_status status = TOW_OK;
    TRY(tow__check_count(ctx, caller, "n_inputs", n_inputs));
    TRY(tow__check_count(ctx, caller, "n_extra", n_extra));
    TRY(tow__check_count(ctx, caller, "n_aux", n_aux));
    TRY(tow__check_count(ctx, caller, ".n_outputs of the model's options", options ? options->n_outputs : 0));
done:
    return status;
}

/* stack: the frame of the function that was called. params NULL: they are not drawn. */
static tow_status init(tow_context *context, const tow_module *model, uint64_t seed, size_t n_inputs,
                       const tow_type *input_types, const tow_model_options *options, tow_group *shards,
                       tow_params **params, tow_params **state, const void *stack)
{
    size_t n_out = options && options->n_outputs ? options->n_outputs : 1;
    if (params) *params = NULL;
    if (state) *state = NULL;
    if (!context || !model || (!params && !state))
        return tow__missing(context, "tow_model_init", "a context, a model and a place for its parameters");
    if (!input_types && n_inputs > 0) return tow__missing(context, "tow_model_init", "%zu input_types", n_inputs);
    TOW__ARITHMETIC(false);
    tow_status status = check_arguments(context, "tow_model_init", n_inputs, 0, 0, options);
    if (!status) status = check_at(context, "tow_model_init", options);
    if (status) return status;
    if (!tow__check_stack(context, "tow_model_init", model, stack)) return tow_context_status(context);
    tow__frame frame = {0};
    tow__model m = {.ctx = context, .initializing = true, .trace = tow__trace_begin(context), .frame = &frame};
    tow__names_init(&m.counter_names, context);
    tow__names_init(&m.sown_collections, context);
    if (!m.trace) return TOW_OUT_OF_MEMORY;
    frame.body = tow__innermost_serial(m.trace);
    m.deterministic = options && options->deterministic;
    m.at = options && options->at ? options->at : "";
    m.keys = options ? options->keys : TOW_KEYS_DEFAULT;
    TRY(tow__params_create(context, &m.params.list));
    TRY(tow__params_create(context, &m.state.list));
    tow_value *in = add_inputs(m.trace, "inputs", n_inputs, input_types);
    tow_value *out = tow__trace_alloc(m.trace, n_out, sizeof *out);
    if (in && out) call_root(&m, model, n_inputs, in, n_out, out);
    tow__check_policies(m.trace);
    if (tow__failed(m.trace)) {
        tow_graph *none = NULL;
        status = tow__trace_end(m.trace, 0, NULL, false, &none);
        m.trace = NULL;
        goto done;
    }
    if (!state && tow_params_count(m.state.list) > 0)
        TRY(tow__fail(context, TOW_INVALID_ARGUMENT,
                      "%s: the model has %zu variables besides its parameters, this is the first; call "
                      "tow_model_init_with with a place for them",
                      tow_params_path(m.state.list, 0), tow_params_count(m.state.list)));
    TRY(tow__params_check_names(m.params.list, "params/"));
    TRY(tow__params_check_names(m.state.list, ""));
    if (params) TRY(fill_store(context, &m.params, "params/", seed, shards));
    TRY(fill_store(context, &m.state, "", seed, NULL));
    if (params) {
        *params = m.params.list;
        m.params.list = NULL;
    }
    if (!state) goto done;
    *state = m.state.list;
    m.state.list = NULL;
done:
    tow_params_free(m.params.list);
    tow_params_free(m.state.list);
    tow__model_free(&m);
    tow__trace_abandon(m.trace);
    return status;
}

TOW__OWN_FRAME tow_status tow_model_init_with(tow_context *context, const tow_module *model, uint64_t seed,
                                              size_t n_inputs, const tow_type *input_types,
                                              const tow_model_options *options, tow_params **params, tow_params **state)
{
    tow_model_options own;
    if (context && !TOW__OPTIONS_TAKE(context, tow_model_options, options, &own)) return TOW_INVALID_ARGUMENT;
    if (!params) return tow__missing(context, "tow_model_init_with", "a place for the parameters");
    return init(context, model, seed, n_inputs, input_types, options, NULL, params, state, TOW__CALLERS_FRAME);
}

TOW__OWN_FRAME tow_status tow__model_init_shares(tow_context *context, const tow_module *model, uint64_t seed,
                                                 size_t n_inputs, const tow_type *input_types,
                                                 const tow_model_options *options, tow_group *shards,
                                                 tow_params **params, tow_params **state)
{
    return init(context, model, seed, n_inputs, input_types, options, shards, params, state, TOW__CALLERS_FRAME);
}

TOW__OWN_FRAME tow_status tow__model_init_state(tow_context *context, const tow_module *model, size_t n_inputs,
                                                const tow_type *input_types, tow_params **state)
{
    return init(context, model, 0, n_inputs, input_types, NULL, NULL, NULL, state, TOW__CALLERS_FRAME);
}

TOW__OWN_FRAME tow_status tow_model_init(tow_context *context, const tow_module *model, uint64_t seed, size_t n_inputs,
                                         const tow_type *input_types, tow_params **params)
{
    return init(context, model, seed, n_inputs, input_types, NULL, NULL, params, NULL, TOW__CALLERS_FRAME);
}

/* ---- graphs over given parameters -------------------------------------------------------------------------------- */

typedef struct build {
    const tow_module *module;
    size_t n_inputs, n_extra, n_aux;
    const tow_type *input_types, *extra_types;
    tow_loss_function loss; /* NULL: the model's outputs */
    void *user;
    const tow_model_options *options; /* may be NULL */
    tow__call_log *log;               /* may be NULL */
    const void *frame;                /* of the function that was called, above which the stack is its caller's */
} build;

/* The graph's inputs for a store; NULL: out of memory, reported. kind: "params", or NULL if paths begin with it. */
static tow_value *add_store(tow__model *m, tow__store *store, const char *kind)
{
    uint32_t n = store->list->names.count;
    tow_value *values = tow__trace_alloc(m->trace, n + 1U, sizeof *values);
    store->used = tow__trace_alloc(m->trace, n + 1U, sizeof *store->used);
    for (uint32_t i = 0; values && i < n; i++) {
        const char *path = store->list->names.names[i];
        if (kind) path = prefixed(m->trace, kind, path);
        values[i] = tow__input(m->trace, store->list->types[i], path);
    }
    return values;
}

static void add_streams(tow__model *m, const tow_model_options *options)
{
    if (!options || !options->streams) return;
    m->streams = options->streams;
    while (m->streams[m->n_streams]) ++m->n_streams;
    m->stream_keys = tow__trace_alloc(m->trace, m->n_streams + 1, sizeof *m->stream_keys);
    for (size_t i = 0; m->stream_keys && i < m->n_streams; i++)
        m->stream_keys[i] =
            tow__input(m->trace, tow_make_type(TOW_U32, 1, (int64_t[]){2}), prefixed(m->trace, "rngs", m->streams[i]));
}

/* True if `path` is below m->at, behind its collection if it begins with one. */
static bool below_root(const tow__model *m, const char *path, bool in_collection)
{
    if (in_collection) path += strcspn(path, "/") + 1;
    return tow__path_below(path, m->at);
}

/* Everything given must have been asked for, as far as it belongs to the part of the model that was called. */
static void check_used(tow__model *m, const tow__store *store, const char *kind, const char *what)
{
    for (uint32_t i = 0; i < store->list->names.count && !tow__failed(m->trace); i++)
        if (!store->used[i] && below_root(m, store->list->names.names[i], store == &m->state))
            tow__params_fail(m, TOW_NOT_FOUND,
                             "%s%s: %s is among the %ss given, but the model does not ask for it; give the %ss of this "
                             "model",
                             kind, store->list->names.names[i], tow__type_name(store->list->types[i]).text, what, what);
}

/* ---- what the call changes --------------------------------------------------------------------------------------- */

static bool was_sown(const tow__model *m, const char *collection)
{
    for (const tow__sown *s = m->frame->sown; s; s = s->next)
        if (tow__path_in(s->path, collection)) return true;
    return false;
}

static bool in_state(const tow__model *m, const char *collection)
{
    for (uint32_t i = 0; i < m->state.list->names.count; i++)
        if (tow__path_in(m->state.list->names.names[i], collection)) return true;
    return false;
}

/* A name under which the model has nothing would be without effect. */
static void check_mutable(tow__model *m)
{
    for (const char *const *name = m->mutable_collections; name && *name && !tow__failed(m->trace); name++) {
        if (strcmp(*name, TOW_EVERY_COLLECTION) == 0 || in_state(m, *name) || was_sown(m, *name)) continue;
        tow__string known;
        tow__string_init(&known, m->ctx);
        for (uint32_t i = 0; i < m->state.list->names.count; i++)
            tow__string_add(&known, " %s", m->state.list->names.names[i]);
        for (uint32_t i = 0; i < m->sown_collections.count; i++)
            tow__string_add(&known, " %s/... (sown)", m->sown_collections.names[i]);
        tow_trace_fail(m->trace, TOW_NOT_FOUND, "mutable collection \"%s\": %s; there are%.600s", *name,
                       strcmp(*name, "params") == 0 ? "no call changes parameters"
                                                    : "the model has no variable and sows no value in it",
                       known.text ? known.text : " none");
        tow__string_free(&known);
    }
}

/* The list of outputs that the call changes; arrays of zeros, for a program to write. */
static tow_status add_update(tow_params *updates, const char *path, tow_value value)
{
    tow_type type = tow_value_type(value);
    tow_status status = tow__params_add(updates, path, type);
    return status ? status : tow_array_create(updates->ctx, type, &updates->arrays[updates->names.count - 1]);
}

/* Appends new values of variables and sown values to the outputs; updates may be NULL. */
static void append_updates(tow__model *m, tow_params *updates, size_t *n_out, tow_value **out)
{
    uint32_t n_state = m->state.list->names.count;
    size_t n = *n_out + n_state;
    for (const tow__sown *s = m->frame->sown; s; s = s->next) ++n;
    tow_value *all = tow__trace_alloc(m->trace, n + 1, sizeof *all);
    if (!all) return;
    memcpy(all, *out, *n_out * sizeof *all);
    tow_status status = TOW_OK;
    size_t next = *n_out;
    for (uint32_t i = 0; i < n_state && !status; i++) {
        const char *path = m->state.list->names.names[i];
        bool changes = false;
        for (const char *const *name = m->mutable_collections; name && *name && !changes; name++)
            changes = strcmp(*name, TOW_EVERY_COLLECTION) == 0 || tow__path_in(path, *name);
        if (!changes) continue;
        all[next++] = tow__variable_value(m, i);
        if (updates) status = add_update(updates, path, all[next - 1]);
    }
    for (const tow__sown *s = m->frame->sown; s && !status; s = s->next) {
        all[next++] = s->value;
        if (updates) status = add_update(updates, s->path, s->value);
    }
    if (status) tow__adopt_error(m->trace);
    *out = all;
    *n_out = next;
}

/* ---- the loss function ------------------------------------------------------------------------------------------- */

static void call_loss(tow__model *m, const build *b, const tow_value *outputs, const tow_value *extra,
                      tow_value *result)
{
    tow_value *loss = tow__guarded_alloc(m->trace, 1);
    tow_value *aux = b->n_aux ? tow__guarded_alloc(m->trace, b->n_aux) : NULL;
    if (!loss || (!aux && b->n_aux > 0)) return;
    b->loss(m->trace, outputs, extra, loss, aux, b->user);
    tow__check_guards(m->trace, "loss", 1, loss);
    if (aux) tow__check_guards(m->trace, "aux", b->n_aux, aux);
    if (tow__failed(m->trace)) return;
    tow_type type = tow_value_type(*loss);
    if (tow_is_null(*loss) || type.rank != 0 || !tow_dtype_is_float(type.dtype))
        tow_trace_fail(m->trace, TOW_SHAPE_MISMATCH,
                       "loss: expected a float scalar, found %s; take the mean or the sum",
                       tow_is_null(*loss) ? "nothing" : tow__type_name(type).text);
    for (size_t i = 0; i < b->n_aux; i++)
        if (tow_is_null(aux[i]))
            tow_trace_fail(m->trace, TOW_INVALID_ARGUMENT,
                           "aux[%zu]: expected %zu values from the loss function, found none here; write it, or give a "
                           "smaller n_aux",
                           i, b->n_aux);
    result[0] = *loss;
    if (aux) memcpy(result + 1, aux, b->n_aux * sizeof *aux);
}

/* ---- recording --------------------------------------------------------------------------------------------------- */

/* Captured outputs are sown into "intermediates", which is therefore mutable. */
static void set_capture(tow__model *m, const char *const *patterns)
{
    size_t n = 0, n_mutable = 0;
    if (!patterns) return;
    while (patterns[n]) n++;
    while (m->mutable_collections && m->mutable_collections[n_mutable]) n_mutable++;
    m->captured = tow__trace_alloc(m->trace, n + 1, sizeof *m->captured);
    const char **collections = tow__trace_alloc(m->trace, n_mutable + 2, sizeof *collections);
    if (!m->captured || !collections) return;
    m->capture = patterns;
    if (n == 0 || tow__collection_listed(m->mutable_collections, TOW_INTERMEDIATES)) return;
    if (n_mutable) memcpy(collections, m->mutable_collections, n_mutable * sizeof *collections);
    collections[n_mutable] = TOW_INTERMEDIATES;
    m->mutable_collections = collections;
}

/* outputs: model's, or loss and aux. Returns how many; NULL array: out of memory, reported. */
static size_t record(tow__model *m, const build *b, tow_value **result)
{
    size_t n_out = b->options && b->options->n_outputs ? b->options->n_outputs : 1;
    m->frame->params = add_store(m, &m->params, "params");
    m->frame->state = add_store(m, &m->state, NULL);
    tow_value *in = add_inputs(m->trace, "inputs", b->n_inputs, b->input_types);
    tow_value *extra = add_inputs(m->trace, "extra", b->n_extra, b->extra_types);
    add_streams(m, b->options);
    tow_value *out = tow__trace_alloc(m->trace, n_out, sizeof *out);
    tow_value *all = tow__trace_alloc(m->trace, b->n_aux + 1, sizeof *all);
    *result = b->loss ? all : out;
    size_t n_result = b->loss ? b->n_aux + 1 : n_out;
    if (!out || !all || !in || !extra || tow__failed(m->trace)) return n_result;
    set_capture(m, b->options ? b->options->capture : NULL);
    call_root(m, b->module, b->n_inputs, in, n_out, out);
    tow__check_captured(m);
    check_used(m, &m->params, "params/", "parameter");
    check_used(m, &m->state, "", "variable");
    check_mutable(m);
    if (!b->loss || tow__failed(m->trace)) return n_result;
    call_loss(m, b, out, extra, all);
    return n_result;
}

static tow_status make_graph(const char *caller, const build *b, const tow_params *params, tow_graph **graph)
{
    static const tow_model_options none = TOW_MODEL_OPTIONS();
    const tow_model_options *options = b->options ? b->options : &none;
    tow_model_options own;
    if (graph) *graph = NULL;
    if (params && !TOW__OPTIONS_TAKE(params->ctx, tow_model_options, options, &own)) return TOW_INVALID_ARGUMENT;
    if (options->updates) *options->updates = NULL;
    if (!params || !b->module || !graph)
        return tow__missing(params ? params->ctx : NULL, caller, "a model, its parameters and a place for the graph");
    if ((!b->input_types && b->n_inputs > 0) || (!b->extra_types && b->n_extra > 0))
        return tow__missing(params->ctx, caller, "%zu input_types and %zu extra_types", b->n_inputs, b->n_extra);
    tow_status status = check_arguments(params->ctx, caller, b->n_inputs, b->n_extra, b->n_aux, options);
    if (!status) status = check_at(params->ctx, caller, options);
    if (status) return status;
    if (!tow__check_stack(params->ctx, caller, b->module, b->frame)) return tow_context_status(params->ctx);
    TOW__ARITHMETIC(false);
    tow_context *ctx = params->ctx;
    tow_params *updates = NULL, no_state = {.ctx = ctx};
    tow__frame frame = {0};
    /* The lists are only read: initializing is false. */
    tow__model m = {.ctx = ctx,
                    .params = {.list = (tow_params *)params},
                    .state = {.list = options->state ? (tow_params *)options->state : &no_state},
                    .frame = &frame,
                    .log = b->log,
                    .mutable_collections = options->mutable_collections,
                    .at = options->at ? options->at : "",
                    .deterministic = options->deterministic,
                    .keys = options->keys};
    tow__names_init(&m.counter_names, ctx);
    tow__names_init(&m.sown_collections, ctx);
    tow__names_init(&no_state.names, ctx);
    if (options->updates && tow__params_create(ctx, &updates)) return TOW_OUT_OF_MEMORY;
    m.trace = tow__trace_begin(ctx);
    if (!m.trace) {
        tow_params_free(updates);
        return TOW_OUT_OF_MEMORY;
    }
    frame.body = tow__innermost_serial(m.trace);
    tow_value *out = NULL;
    size_t n_out = record(&m, b, &out);
    if (!tow__failed(m.trace)) append_updates(&m, updates, &n_out, &out);
    status = tow__trace_end(m.trace, out ? n_out : 0, out, true, graph);
    tow__model_free(&m);
    if (status)
        tow_params_free(updates);
    else if (options->updates)
        *options->updates = updates;
    return status;
}

TOW__OWN_FRAME tow_status tow_model_forward_graph(const tow_module *model, const tow_params *params, size_t n_inputs,
                                                  const tow_type *input_types, const tow_model_options *options,
                                                  tow_graph **graph)
{
    build b = {.module = model,
               .n_inputs = n_inputs,
               .input_types = input_types,
               .options = options,
               .frame = TOW__CALLERS_FRAME};
    return make_graph(__func__, &b, params, graph);
}

tow_status tow__forward_logged(const tow_module *model, const tow_params *params, size_t n_inputs,
                               const tow_type *input_types, const tow_model_options *options, tow__call_log *log,
                               tow_graph **graph)
{
    build b = {.module = model, .n_inputs = n_inputs, .input_types = input_types, .options = options, .log = log};
    return make_graph("tow_model_summary", &b, params, graph);
}

TOW__OWN_FRAME tow_status tow_model_loss_graph(const tow_module *model, const tow_params *params, size_t n_inputs,
                                               const tow_type *input_types, size_t n_extra, const tow_type *extra_types,
                                               tow_loss_function loss, void *user, size_t n_aux,
                                               const tow_model_options *options, tow_graph **graph)
{
    build b = {.module = model,
               .n_inputs = n_inputs,
               .input_types = input_types,
               .n_extra = n_extra,
               .extra_types = extra_types,
               .loss = loss,
               .user = user,
               .n_aux = n_aux,
               .options = options,
               .frame = TOW__CALLERS_FRAME};
    if (!loss && params) {
        if (graph) *graph = NULL;
        return tow__fail(params->ctx, TOW_INVALID_ARGUMENT,
                         "tow_model_loss_graph: no loss function; use tow_model_forward_graph for the outputs alone");
    }
    return make_graph(__func__, &b, params, graph);
}
