/* Whole models: tracing them to draw their parameters (tow_init), and to graphs over given ones (tow_forward,
 * tow_loss). */
#include <stdio.h>

#include "layers/scope.h"

/* Calls the model in the root scope. */
static void call_root(tow__model *m, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    tow_scope *root = tow__trace_alloc(m->trace, 1, sizeof *root);
    if (!root) {
        for (size_t i = 0; i < n_out; ++i) out[i] = (tow_value){0};
        return;
    }
    *root = (tow_scope){.model = m, .name = "", .path = "", .fixed = -1};
    tow__call_here(root, module, n_in, in, n_out, out);
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
    for (size_t i = 0; in && i < n; ++i) in[i] = tow__input(t, types[i], numbered(t, kind, i));
    return in;
}

/* ---- initialising ------------------------------------------------------------------------------------------------ */

/* Draws parameter i: every layer of a stack with the key of its own path. */
static tow_status fill_param(const tow__model *m, uint32_t i, tow__key root)
{
    const tow__recipe *r = &m->recipes[i];
    tow_type stacked = m->params->types[i];
    int levels = r->scope->level ? r->scope->level->depth + 1 : 0;
    tow_type type = tow_make_type(stacked.dtype, stacked.rank - levels, stacked.dims + levels);
    int64_t rows = 1;
    for (int l = 0; l < levels; ++l) rows *= stacked.dims[l];
    tow_status status = tow_array_create(m->ctx, stacked, &m->params->arrays[i]);
    if (status) return status;
    float *data = tow_array_data(m->params->arrays[i]);
    for (int64_t row = 0; row < rows && !status; ++row) {
        int64_t index[TOW_MAX_RANK] = {0}, rest = row;
        for (int l = levels - 1; l >= 0; --l) {
            index[l] = rest % stacked.dims[l];
            rest /= stacked.dims[l];
        }
        tow__key key = tow__scope_key(r->scope, root, index, r->counter);
        status = r->init.fill(m->ctx, &r->init, type, key.k, data + row * tow_type_count(type));
    }
    if (status) { /* say where */
        char text[sizeof m->ctx->error];
        memcpy(text, m->ctx->error, sizeof text);
        tow__fail(m->ctx, status, "params/%s: %s", m->params->names.names[i], text);
    }
    return status;
}

tow_status tow_init_with_options(tow_context *context, const tow_module *model, uint64_t seed, size_t n_inputs,
                                 const tow_type *input_types, const tow_model_options *options, tow_params **params)
{
    size_t n_out = options && options->n_outputs ? options->n_outputs : 1;
    *params = NULL;
    tow_status status = TOW_OK;
    tow__model m = {.ctx = context, .initialising = true, .trace = tow__trace_begin(context)};
    tow__names_init(&m.counter_names, context);
    if (!m.trace) return TOW_OUT_OF_MEMORY;
    m.deterministic = options && options->deterministic;
    TRY(tow__params_create(context, &m.params));
    tow_value *in = add_inputs(m.trace, "inputs", n_inputs, input_types);
    tow_value *out = tow__trace_alloc(m.trace, n_out, sizeof *out);
    if (in && out) call_root(&m, model, n_inputs, in, n_out, out);
    if (tow__failed(m.trace)) {
        tow_graph *none = NULL;
        status = tow__trace_end(m.trace, 0, NULL, false, &none);
        m.trace = NULL;
        goto done;
    }
    for (uint32_t i = 0; i < m.params->names.count; ++i) TRY(fill_param(&m, i, tow__key_from_seed(seed)));
    *params = m.params;
    m.params = NULL;
done:
    tow_params_free(m.params);
    tow__model_free(&m);
    tow__trace_abandon(m.trace);
    return status;
}

tow_status tow_init(tow_context *context, const tow_module *model, uint64_t seed, size_t n_inputs,
                    const tow_type *input_types, tow_params **params)
{
    return tow_init_with_options(context, model, seed, n_inputs, input_types, NULL, params);
}

/* ---- graphs over given parameters -------------------------------------------------------------------------------- */

typedef struct build {
    const tow_module *module;
    size_t n_inputs, n_extra, n_aux;
    const tow_type *input_types, *extra_types;
    tow_loss_function loss; /* NULL: the model's outputs */
    void *user;
    const tow_model_options *options; /* may be NULL */
} build;

static void add_params(tow__model *m)
{
    uint32_t n = m->params->names.count;
    m->values = tow__trace_alloc(m->trace, n + 1U, sizeof *m->values);
    m->used = tow__trace_alloc(m->trace, n + 1U, sizeof *m->used);
    for (uint32_t i = 0; m->values && i < n; ++i)
        m->values[i] =
            tow__input(m->trace, m->params->types[i], prefixed(m->trace, "params", m->params->names.names[i]));
}

static void add_streams(tow__model *m, const tow_model_options *options)
{
    if (!options || !options->streams) return;
    m->streams = options->streams;
    while (m->streams[m->n_streams]) ++m->n_streams;
    m->stream_keys = tow__trace_alloc(m->trace, m->n_streams + 1, sizeof *m->stream_keys);
    for (size_t i = 0; m->stream_keys && i < m->n_streams; ++i)
        m->stream_keys[i] =
            tow__input(m->trace, tow_make_type(TOW_U32, 1, (int64_t[]){2}), prefixed(m->trace, "rngs", m->streams[i]));
}

/* Every parameter given must have been asked for. */
static void check_used(tow__model *m)
{
    for (uint32_t i = 0; i < m->params->names.count && !tow__failed(m->trace); ++i)
        if (!m->used[i])
            tow__params_fail(m, TOW_NOT_FOUND,
                             "params/%s: %s is among the parameters given, but the model does not ask for it; give the "
                             "parameters of this model",
                             m->params->names.names[i], tow__type_name(m->params->types[i]).text);
}

/* outputs: model's, or loss and aux. Returns how many; NULL array: out of memory, reported. */
static size_t record(tow__model *m, const build *b, tow_value **result)
{
    size_t n_out = b->options && b->options->n_outputs ? b->options->n_outputs : 1;
    add_params(m);
    tow_value *in = add_inputs(m->trace, "inputs", b->n_inputs, b->input_types);
    tow_value *extra = add_inputs(m->trace, "extra", b->n_extra, b->extra_types);
    add_streams(m, b->options);
    tow_value *out = tow__trace_alloc(m->trace, n_out, sizeof *out);
    tow_value *all = tow__trace_alloc(m->trace, b->n_aux + 1, sizeof *all);
    *result = b->loss ? all : out;
    size_t n_result = b->loss ? b->n_aux + 1 : n_out;
    if (!out || !all || !in || !extra || tow__failed(m->trace)) return n_result;
    call_root(m, b->module, b->n_inputs, in, n_out, out);
    if (!tow__failed(m->trace)) check_used(m);
    if (!b->loss || tow__failed(m->trace)) return n_result;
    b->loss(m->trace, out, extra, &all[0], all + 1, b->user);
    tow_type type = tow_value_type(all[0]);
    if (!tow__failed(m->trace) && (tow_is_null(all[0]) || type.rank != 0 || !tow_dtype_is_float(type.dtype)))
        tow_trace_fail(m->trace, TOW_SHAPE_MISMATCH,
                       "loss: expected a float scalar, found %s; take the mean or the sum",
                       tow_is_null(all[0]) ? "nothing" : tow__type_name(type).text);
    return n_result;
}

static tow_status make_graph(const build *b, const tow_params *params, tow_graph **graph)
{
    *graph = NULL;
    /* params is only read: initialising is false. */
    tow__model m = {.ctx = params->ctx, .params = (tow_params *)params, .trace = tow__trace_begin(params->ctx)};
    tow__names_init(&m.counter_names, m.ctx);
    if (!m.trace) return TOW_OUT_OF_MEMORY;
    m.deterministic = b->options && b->options->deterministic;
    tow_value *out = NULL;
    size_t n_out = record(&m, b, &out);
    tow_status status = tow__trace_end(m.trace, out ? n_out : 0, out, true, graph);
    tow__model_free(&m);
    return status;
}

tow_status tow_forward(const tow_module *model, const tow_params *params, size_t n_inputs, const tow_type *input_types,
                       const tow_model_options *options, tow_graph **graph)
{
    build b = {.module = model, .n_inputs = n_inputs, .input_types = input_types, .options = options};
    return make_graph(&b, params, graph);
}

tow_status tow_loss(const tow_module *model, const tow_params *params, size_t n_inputs, const tow_type *input_types,
                    size_t n_extra, const tow_type *extra_types, tow_loss_function loss, void *user, size_t n_aux,
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
               .options = options};
    if (!loss)
        return tow__fail(params->ctx, TOW_INVALID_ARGUMENT,
                         "tow_loss: no loss function; use tow_forward for the outputs alone");
    return make_graph(&b, params, graph);
}
