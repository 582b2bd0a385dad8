/* The generator: a program for each number of positions in a call, all over one set of parameters and one cache.
 *
 *   program: params..., variables..., tokens i32 [B, T], key u32[2] -> next i32 [B], logits f32 [B, V], variables...
 *
 * where the new variables are donated to the old ones. Prompts go in pieces of powers of two, so that prompts of all lengths need
 * a few programs only. */
#include <string.h>

#include "layers/layer.h"
#include "tow/generate.h"
#include "tow/random.h"

enum {
    SIZES = 24 /* powers of two that calls may have */
};

struct tow_generator {
    tow_context *ctx;
    const tow_module *model;
    const tow_params *params;
    tow_generator_options options;
    tow_params *state; /* its own: the arrays are the cache */
    tow_array **in;    /* params, variables, tokens, key */
    tow_array *key, *next, *logits;
    tow_program *programs[SIZES]; /* for 2^i positions */
    tow_array *tokens[SIZES];     /* i32 [B, 2^i] */
    uint32_t root[2], draws;
    int64_t position, length;
};

/* ---- the model with a choice behind it --------------------------------------------------------------------------- */

typedef struct chooser {
    tow_module module;
    const tow_module *inner;
    const tow_sampling *sampling;
} chooser;

static void call_chooser(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                         tow_value *out)
{
    const chooser *m = (const chooser *)module;
    tow_value logits = {0};
    (void)n_in, (void)n_out;
    tow__call_here(scope, m->inner, 1, in, 1, &logits);
    if (tow__scope_failed(scope)) return;
    tow_type type = tow_value_type(logits), tokens = tow_value_type(in[0]);
    if (!tow_dtype_is_float(type.dtype) || type.rank != 3 || type.dims[0] != tokens.dims[0] || type.dims[1] < 1 ||
        type.dims[2] < 1) {
        tow_scope_fail(
            scope, TOW_SHAPE_MISMATCH, "generator: expected logits [%lld,%lld,V] or [%lld,1,V] of the model, found %s",
            (long long)tokens.dims[0], (long long)tokens.dims[1], (long long)tokens.dims[0], tow__type_name(type).text);
        return;
    }
    logits = tow_squeeze(tow_slice_axis(logits, 1, type.dims[1] - 1, type.dims[1]), 1);
    if (type.dtype != TOW_F32) logits = tow_convert(logits, TOW_F32);
    out[0] = tow_sample_logits(logits, in[1], m->sampling);
    out[1] = logits;
}
static const tow_module_class chooser_class = {.name = "Generator", .call = call_chooser};

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static tow_type tokens_type(const tow_generator *g, int64_t n)
{
    return tow_make_type(TOW_I32, 2, (int64_t[]){g->options.batch, n});
}

static tow_type key_type(void) { return tow_make_type(TOW_U32, 1, (int64_t[]){2}); }

/* Allocates what takes the choice and the logits, once their types are known. */
static tow_status make_results(tow_generator *g, const tow_graph *graph)
{
    tow_status status = TOW_OK;
    if (!g->next) status = tow_array_create(g->ctx, tow_graph_output_type(graph, 0), &g->next);
    if (status == TOW_OK && !g->logits) status = tow_array_create(g->ctx, tow_graph_output_type(graph, 1), &g->logits);
    return status;
}

static tow_status compile(tow_generator *g, const tow_graph *graph, tow_program **program)
{
    size_t n = tow_params_count(g->params), n_state = tow_params_count(g->state);
    tow_compile_options options = g->options.compile ? *g->options.compile : (tow_compile_options){0};
    tow_donation *donations = tow__alloc(g->ctx, n_state, sizeof *donations);
    if (!donations) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < n_state; i++) donations[i] = (tow_donation){.output = 2 + i, .input = n + i};
    options.donations = donations;
    options.n_donations = n_state;
    tow_status status = tow_compile(g->ctx, graph, &options, program);
    tow__free(g->ctx, donations, n_state, sizeof *donations);
    return status;
}

/* Makes the program for 2^size positions, if there is none. */
static tow_status prepare(tow_generator *g, int size)
{
    static const char *const every[] = {TOW_EVERY_COLLECTION, NULL};
    tow_status status = TOW_OK;
    tow_graph *graph = NULL;
    chooser model = {{&chooser_class}, g->model, &g->options.sampling};
    tow_type types[2] = {tokens_type(g, (int64_t)1 << size), key_type()};
    tow_model_options options = {
        .n_outputs = 2, .deterministic = true, .state = g->state, .mutable_collections = every};
    if (g->programs[size]) return TOW_OK;
    if (!g->tokens[size]) TRY(tow_array_create(g->ctx, types[0], &g->tokens[size]));
    TRY(tow_forward(&model.module, g->params, 2, types, &options, &graph));
    TRY(make_results(g, graph));
    status = compile(g, graph, &g->programs[size]);
done:
    tow_graph_release(graph);
    return status;
}

/* ---- making and freeing ------------------------------------------------------------------------------------------ */

static bool ends_with(const char *path, const char *name)
{
    size_t length = strlen(path), n = strlen(name);
    return length >= n && strcmp(path + length - n, name) == 0;
}

/* How many positions the shortest cache has; 0 without one. */
static int64_t find_length(const tow_params *state)
{
    int64_t length = 0;
    for (size_t i = 0; i < tow_params_count(state); i++) {
        tow_type type = tow_array_type(tow_params_array(state, i));
        if (!ends_with(tow_params_path(state, i), "/cached_key") || type.rank < 4) continue;
        int64_t own = type.dims[type.rank - 3]; /* [layers..., B, length, G, D] */
        if (length == 0 || own < length) length = own;
    }
    return length;
}

/* A copy of the given variables, or those of the model as it is initialised. */
static tow_status make_state(tow_generator *g)
{
    if (g->options.state) return tow_params_copy(g->options.state, &g->state);
    tow_params *drawn = NULL;
    tow_type type = tokens_type(g, 1);
    tow_status status = tow_init_with_options(g->ctx, g->model, 0, 1, &type, NULL, &drawn, &g->state);
    tow_params_free(drawn);
    return status;
}

static tow_status fill_inputs(tow_generator *g)
{
    size_t n = tow_params_count(g->params), n_state = tow_params_count(g->state);
    tow_status status = tow_array_create(g->ctx, key_type(), &g->key);
    g->in = status == TOW_OK ? tow__alloc(g->ctx, n + n_state + 2, sizeof *g->in) : NULL;
    if (!g->in) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < n; i++) g->in[i] = tow_params_array(g->params, i);
    for (size_t i = 0; i < n_state; i++) g->in[n + i] = tow_params_array(g->state, i);
    g->in[n + n_state + 1] = g->key;
    return TOW_OK;
}

static tow_status check_options(tow_context *ctx, const tow_generator_options *o)
{
    if (o->batch > 0 && o->chunk > 0) return TOW_OK;
    return tow__fail(
        ctx, TOW_INVALID_ARGUMENT,
        "tow_generator_create: .batch = %lld, .chunk = %lld; expected positive numbers, or 0 for the default",
        (long long)o->batch, (long long)o->chunk);
}

tow_status tow_generator_create(tow_context *context, const tow_module *model, const tow_params *params,
                                const tow_generator_options *options, tow_generator **generator)
{
    tow_status status = TOW_OK;
    if (generator) *generator = NULL;
    if (!context) return TOW_INVALID_ARGUMENT;
    if (!model || !params || !generator)
        return tow__fail(context, TOW_INVALID_ARGUMENT,
                         "tow_generator_create: the model, the parameters or the result is NULL");
    tow_generator *g = tow__alloc(context, 1, sizeof *g);
    if (!g) return TOW_OUT_OF_MEMORY;
    *g = (tow_generator){.ctx = context, .model = model, .params = params};
    if (options) g->options = *options;
    if (g->options.batch == 0) g->options.batch = 1;
    if (g->options.chunk == 0) g->options.chunk = 512;
    TRY(check_options(context, &g->options));
    TRY(make_state(g));
    g->length = find_length(g->state);
    if (g->length == 0)
        TRY(tow__fail(
            context, TOW_INVALID_ARGUMENT,
            "tow_generator_create: the model has no variable \"cached_key\"; give its attention .decode = true and "
            ".cache_length"));
    TRY(fill_inputs(g));
    tow_random_host_key(g->options.seed, g->root);
    TRY(prepare(g, 0)); /* errors of the model show here */
    *generator = g;
    return TOW_OK;
done:
    tow_generator_free(g);
    return status;
}

void tow_generator_free(tow_generator *g)
{
    if (!g) return;
    for (int i = 0; i < SIZES; i++) {
        tow_program_free(g->programs[i]);
        tow_array_release(g->tokens[i]);
    }
    if (g->in) tow__free(g->ctx, g->in, tow_params_count(g->params) + tow_params_count(g->state) + 2, sizeof *g->in);
    tow_array_release(g->key);
    tow_array_release(g->next);
    tow_array_release(g->logits);
    tow_params_free(g->state);
    tow__free(g->ctx, g, 1, sizeof *g);
}

void tow_generator_reset(tow_generator *g)
{
    if (!g) return;
    for (size_t i = 0; i < tow_params_count(g->state); i++) {
        tow_array *array = tow_params_array(g->state, i);
        if (strncmp(tow_params_path(g->state, i), "cache/", 6) != 0) continue;
        memset(tow_array_data(array), 0, tow_type_bytes(tow_array_type(array)));
    }
    g->position = 0;
    g->draws = 0;
}

const tow_array *tow_generator_logits(const tow_generator *g) { return g && g->position > 0 ? g->logits : NULL; }
int64_t tow_generator_position(const tow_generator *g) { return g ? g->position : 0; }
int64_t tow_generator_length(const tow_generator *g) { return g ? g->length : 0; }

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* The largest piece of n positions: 2^size of them. */
static int size_of_piece(const tow_generator *g, int64_t n)
{
    int64_t most = n < g->options.chunk ? n : g->options.chunk;
    int size = 0;
    while (size + 1 < SIZES && (int64_t)2 << size <= most) size++;
    return size;
}

/* Positions [first, first + 2^size) of tokens [batch, n]. */
static tow_status run_piece(tow_generator *g, int size, int64_t n, int64_t first, const int32_t *tokens)
{
    size_t inputs = tow_params_count(g->params) + tow_params_count(g->state);
    int64_t piece = (int64_t)1 << size;
    int32_t *to = tow_array_data(g->tokens[size]);
    for (int64_t b = 0; b < g->options.batch; b++)
        memcpy(to + b * piece, tokens + b * n + first, (size_t)piece * sizeof *to);
    g->in[inputs] = g->tokens[size];
    size_t n_out = 2 + tow_params_count(g->state);
    tow_array **out = tow__alloc(g->ctx, n_out, sizeof *out);
    if (!out) return TOW_OUT_OF_MEMORY;
    out[0] = g->next;
    out[1] = g->logits;
    tow_status status = tow_program_run(g->programs[size], g->in, out);
    tow__free(g->ctx, out, n_out, sizeof *out);
    return status;
}

static tow_status check_feed(const tow_generator *g, int64_t n, const int32_t *tokens)
{
    if (!g) return TOW_INVALID_ARGUMENT;
    if (n > 0 && tokens && n <= g->length - g->position) return TOW_OK;
    return tow__fail(g->ctx, TOW_INVALID_ARGUMENT,
                     "tow_generator_feed: %lld positions%s behind %lld; expected 1 to %lld, which the cache of %lld "
                     "has left; reset the "
                     "generator, or give a longer .cache_length",
                     (long long)n, tokens ? "" : " at NULL", (long long)g->position,
                     (long long)(g->length - g->position), (long long)g->length);
}

tow_status tow_generator_feed(tow_generator *g, int64_t n, const int32_t *tokens, int32_t *next)
{
    tow_status status = check_feed(g, n, tokens);
    if (status != TOW_OK) return status;
    for (int64_t rest = n; rest > 0; rest -= (int64_t)1 << size_of_piece(g, rest))
        TRY(prepare(g, size_of_piece(g, rest)));
    tow_random_host_fold_in(g->root, g->draws, tow_array_data(g->key));
    for (int64_t done_so_far = 0; done_so_far < n;) {
        int size = size_of_piece(g, n - done_so_far);
        TRY(run_piece(g, size, n, done_so_far, tokens));
        done_so_far += (int64_t)1 << size;
        g->position += (int64_t)1 << size;
    }
    g->draws++;
    if (next) memcpy(next, tow_array_data(g->next), (size_t)g->options.batch * sizeof *next);
done:
    return status;
}

/* Token `index` of all sequences goes to the result; *ended if all have ended. */
static void put_tokens(const tow_generator *g, int32_t *next, int64_t index, int64_t limit, int32_t *tokens,
                       bool *ended)
{
    *ended = g->options.stop_at_end;
    for (int64_t b = 0; b < g->options.batch; b++) {
        const int32_t *before = index > 0 ? &tokens[b * limit + index - 1] : NULL;
        if (g->options.stop_at_end && before && *before == g->options.end) next[b] = g->options.end;
        tokens[b * limit + index] = next[b];
        if (next[b] != g->options.end) *ended = false;
    }
}

tow_status tow_generate(tow_generator *g, int64_t n, const int32_t *prompt, int64_t limit, int32_t *tokens,
                        int64_t *count)
{
    tow_status status = check_feed(g, n, prompt);
    if (count) *count = 0;
    if (status != TOW_OK) return status;
    if (limit < 1 || !tokens || limit - 1 > g->length - g->position - n)
        return tow__fail(g->ctx, TOW_INVALID_ARGUMENT,
                         "tow_generate: a limit of %lld tokens%s behind %lld positions; expected 1 to %lld, which the "
                         "cache has left",
                         (long long)limit, tokens ? "" : " at NULL", (long long)(g->position + n),
                         (long long)(g->length - g->position - n + 1));
    size_t batch = (size_t)g->options.batch;
    int32_t *next = tow__alloc(g->ctx, batch, sizeof *next);
    if (!next) return TOW_OUT_OF_MEMORY;
    bool ended = false;
    for (int64_t i = 0; i < limit && !ended; i++) {
        TRY(i == 0 ? tow_generator_feed(g, n, prompt, next) : tow_generator_feed(g, 1, next, next));
        put_tokens(g, next, i, limit, tokens, &ended);
        if (count) *count = i + 1;
        if (g->options.on_token && !g->options.on_token(g->options.user, i, next)) break;
    }
done:
    tow__free(g->ctx, next, batch, sizeof *next);
    return status;
}
