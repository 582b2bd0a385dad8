/* One side of a comparison: a model, how it is computed, and the named numbers that come out of it. Printed programs
 * contain a copy of this file. */
#ifndef TOW_TESTS_MODELS_SIDE_H
#define TOW_TESTS_MODELS_SIDE_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/models/layers.h"

/* ---- named numbers ----------------------------------------------------------------------------------------------- */

typedef struct result {
    char name[160];
    tow_type type;
    void *data;
} result;

typedef struct results {
    size_t n;
    result *list;
    char error[600]; /* "" or what is wrong with this side alone */
    int undecided;   /* inputs of which differences tell nothing */
} results;

static inline void free_results(results *r)
{
    for (size_t i = 0; i < r->n; i++) free(r->list[i].data);
    free(r->list);
    *r = (results){0};
}

static void add_result(results *r, const char *what, const char *name, tow_array *array)
{
    r->list = realloc(r->list, (r->n + 1) * sizeof *r->list);
    if (r->list == NULL) abort();
    result *e = &r->list[r->n++];
    e->type = tow_array_type(array);
    snprintf(e->name, sizeof e->name, "%s%s%s", what, *name ? " " : "", name);
    e->data = malloc(tow_type_bytes(e->type) + 1);
    if (e->data == NULL) abort();
    memcpy(e->data, tow_array_data(array), tow_type_bytes(e->type));
}

static inline uint64_t hash_results(const results *r)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < r->n; i++)
        for (size_t k = 0; k < tow_type_bytes(r->list[i].type); k++)
            h = (h ^ ((const unsigned char *)r->list[i].data)[k]) * 0x100000001b3u;
    return h;
}

/* Element k of floats; bf16 is the upper half of an f32. */
static inline double get_element(tow_dtype dtype, const void *data, int64_t k)
{
    if (dtype == TOW_F64) return ((const double *)data)[k];
    if (dtype == TOW_F32) return (double)((const float *)data)[k];
    uint32_t bits = (uint32_t)((const uint16_t *)data)[k] << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

static inline void set_element(tow_dtype dtype, void *data, int64_t k, double value)
{
    const float x = (float)value;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (dtype == TOW_F64)
        ((double *)data)[k] = value;
    else if (dtype == TOW_F32)
        ((float *)data)[k] = x;
    else
        ((uint16_t *)data)[k] = (uint16_t)(bits >> 16);
}

static inline bool is_finite(const results *r)
{
    for (size_t i = 0; i < r->n; i++) {
        const tow_type type = r->list[i].type;
        for (int64_t k = 0; tow_dtype_is_float(type.dtype) && k < tow_type_element_count(type); k++)
            if (!isfinite(get_element(type.dtype, r->list[i].data, k))) return false;
    }
    return true;
}

/* The first number of b that has not the bits of the one of this name in a. */
static inline bool same_bits(const results *a, const results *b, char *text, size_t size)
{
    text[0] = '\0';
    if (a->error[0] || b->error[0])
        snprintf(text, size, "error: \"%s\" and \"%s\"", a->error, b->error);
    else if (a->n != b->n)
        snprintf(text, size, "%zu and %zu results", a->n, b->n);
    for (size_t i = 0; i < b->n && !text[0]; i++) {
        const result *y = &b->list[i], *x = NULL;
        for (size_t j = 0; j < a->n && !x; j++) /* unrolled stacks are listed in another order */
            if (strcmp(a->list[(i + j) % a->n].name, y->name) == 0) x = &a->list[(i + j) % a->n];
        if (x == NULL || !tow_type_equal(x->type, y->type)) {
            snprintf(text, size, "%s: only on one side, or of two types", y->name);
            break;
        }
        size_t each = tow_dtype_size(x->type.dtype), bytes = tow_type_bytes(x->type), at = 0;
        const char *p = x->data, *q = y->data;
        while (at < bytes && memcmp(p + at, q + at, each) == 0) at += each;
        if (at == bytes) continue;
        float u = 0, v = 0;
        memcpy(&u, p + at, each < sizeof u ? each : sizeof u), memcpy(&v, q + at, each < sizeof v ? each : sizeof v);
        snprintf(text, size, "%s, number %zu: %.9g and %.9g", y->name, at / each, (double)u, (double)v);
    }
    return !text[0];
}

/* ---- computing one side ------------------------------------------------------------------------------------------ */

typedef struct problem {
    uint32_t seed; /* of inputs and of what is added to parameters */
    size_t n_inputs;
    tow_type inputs[2], extra[2]; /* integers are drawn below .classes */
    int64_t classes;
    tow_loss_function loss;
    tow_standard_optimizer optimizer;
} problem;

typedef enum pass {
    NO_PASS,
    DEAD_CODE,
    COMMON_CODE,
    TEXT
} pass;

/* Training, or value and gradients by the options of tow_compile. */
typedef struct how {
    int threads;
    int limit; /* of bytes: 1 .. 1000 from the least to the most of all plans; 0: none */
    bool no_regions, no_fusion, portable_bits, verify;
    const char *without; /* a pass of the compiler that is left out; NULL: none */
    const char *machine; /* that it is planned for (TOW_MACHINE); NULL: the one at hand */
    pass pass;
    bool train, early_update, resume;
    int rows; /* not 0: as the middle one of three rows, of which others have other numbers; says which inputs differ */
    bool parameters_only; /* no gradient of the input */
    bool function;    /* by tow_model_function_create_value_and_grad, while the outputs of all layers are captured */
    bool differences; /* the gradients in f64 against central differences (compute.h) instead */
} how;

enum {
    MOST = 3000, /* inputs or outputs of a graph */
    MOST_POLICIES = 400,
    MOST_LAYERS = 4000, /* parts of layers that live as long as the side */
    STEPS = 3
};

/* Everything that is freed at the end. */
typedef struct side {
    how how;
    tow_context *ctx;
    tow_params *params, *state, *updates, *gradients;
    tow_graph *loss, *graph;
    tow_array *in[MOST], *out[MOST];
    tow_policy *policies[MOST_POLICIES];
    int n_policies;
    void *layers[MOST_LAYERS];
    int n_layers;
    tow_train_state *training;
} side;

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        if ((call) != TOW_OK) return false;                                                                            \
    } while (0)

static inline side *begin_side(how h)
{
    side *s = calloc(1, sizeof *s);
    if (s == NULL) abort();
    s->how = h;
    setenv("TOW_MACHINE", h.machine ? h.machine : "", 1);
    tow_context_options options =
        TOW_CONTEXT_OPTIONS(.threads = h.threads, .portable_bits = h.portable_bits, .verify = h.verify);
    if (tow_context_create(&options, &s->ctx) != TOW_OK) fprintf(stderr, "%s\n", tow_context_error(s->ctx));
    return s;
}

static void end_side(side *s)
{
    tow_train_free(s->training);
    for (int i = 0; i < MOST; i++) tow_array_release(s->in[i]), tow_array_release(s->out[i]);
    tow_graph_release(s->loss);
    tow_graph_release(s->graph);
    tow_params_free(s->params);
    tow_params_free(s->state);
    tow_params_free(s->updates);
    tow_params_free(s->gradients);
    for (int i = 0; i < s->n_policies; i++) tow_policy_free(s->policies[i]);
    for (int i = 0; i < s->n_layers; i++) free(s->layers[i]);
    tow_context_free(s->ctx);
    free(s);
}

/* A copy that lives as long as the side. */
static inline void *keep_layer(side *s, const void *layer, size_t size)
{
    void *copy = malloc(size);
    if (copy == NULL || s->n_layers == MOST_LAYERS) abort();
    return s->layers[s->n_layers++] = memcpy(copy, layer, size);
}

static inline tow_verdict by_letters(const tow_policy_query *q, void *user)
{
    (void)user;
    return (tow_verdict)((strlen(q->primitive) + q->n_inputs + (size_t)q->output_types[0].rank) % 4);
}

static inline tow_policy policy_of(side *s, const char *text)
{
    if (strcmp(text, "custom") == 0) return tow_policy_custom(by_letters, NULL);
    if (s->n_policies == MOST_POLICIES || tow_policy_parse(s->ctx, text, &s->policies[s->n_policies]) != TOW_OK)
        abort();
    return *s->policies[s->n_policies++];
}

/* -1 to 1, by seed and place. */
static double noise(uint32_t seed, const char *name, int64_t i)
{
    uint64_t h = seed * 0x9e3779b97f4a7c15u + (uint64_t)i;
    for (; *name; name++) h = (h ^ (uint64_t)*name) * 0x100000001b3u;
    h = (h ^ h >> 31) * 0xd6e8feb86659fd93u;
    h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
    return (double)(h >> 40) / 8388608.0 - 1;
}

static void fill(tow_array *a, const problem *p, const char *name)
{
    tow_type t = tow_array_type(a);
    for (int64_t i = 0; i < tow_type_element_count(t); i++) {
        double x = noise(p->seed, name, i);
        if (t.dtype == TOW_F32)
            ((float *)tow_array_data(a))[i] = (float)x;
        else
            ((int32_t *)tow_array_data(a))[i] = (int32_t)((x + 1) / 2 * (double)p->classes) % (int32_t)p->classes;
    }
}

/* Adds noise, which the names on disk decide, so that no bias is zero and no scale is one. */
static bool stir(side *s, tow_params *params, const problem *p)
{
    tow_tensors *all;
    TRY(tow_tensors_create(s->ctx, &all));
    tow_status status = tow_params_to_tensors(params, "", all);
    for (size_t i = 0; i < tow_tensors_count(all) && status == TOW_OK; i++) {
        void *data = tow_array_data(tow_tensors_at(all, i));
        const tow_type type = tow_array_type(tow_tensors_at(all, i));
        for (int64_t k = 0; k < tow_type_element_count(type); k++)
            set_element(type.dtype, data, k,
                        get_element(type.dtype, data, k) + 0.25 * noise(p->seed, tow_tensors_name(all, i), k));
    }
    if (status == TOW_OK) status = tow_params_from_tensors(params, "", all);
    tow_tensors_free(all);
    return status == TOW_OK;
}

static bool add_params(side *s, results *r, const char *what, const tow_params *params)
{
    tow_tensors *all;
    TRY(tow_tensors_create(s->ctx, &all));
    tow_status status = tow_params_to_tensors(params, "", all);
    for (size_t i = 0; i < tow_tensors_count(all) && status == TOW_OK; i++)
        add_result(r, what, tow_tensors_name(all, i), tow_tensors_at(all, i));
    tow_tensors_free(all);
    return status == TOW_OK;
}

/* Arrays for inputs and extra inputs, from .in[at] on. */
static bool make_inputs(side *s, const problem *p, size_t at)
{
    for (size_t i = 0; i < p->n_inputs + 2; i++) {
        tow_type type = i < p->n_inputs ? p->inputs[i] : p->extra[i - p->n_inputs];
        TRY(tow_array_create(s->ctx, type, &s->in[at + i]));
        fill(s->in[at + i], p, i == 0 ? "input" : i == 1 ? "second" : "extra");
    }
    return true;
}

static const char *const streams[] = {"dropout", NULL}, *const collections[] = {TOW_EVERY_COLLECTION, NULL};

/* The graph of the loss, its parameters and inputs. */
static bool trace_loss(side *s, const tow_module *model, const problem *p, bool deterministic)
{
    tow_model_options options = TOW_MODEL_OPTIONS(.streams = streams, .deterministic = deterministic);
    TRY(tow_model_init_with(s->ctx, model, p->seed, p->n_inputs, p->inputs, &options, &s->params, &s->state));
    if (!stir(s, s->params, p)) return false;
    options.state = s->state;
    if (s->state && tow_params_count(s->state) > 0 && !deterministic)
        options.mutable_collections = collections, options.updates = &s->updates;
    TRY(tow_model_loss_graph(model, s->params, p->n_inputs, p->inputs, 2, p->extra, p->loss, NULL, 0, &options,
                             &s->loss));
    size_t n = tow_params_count(s->params), n_state = s->state ? tow_params_count(s->state) : 0;
    if (2 * (n + n_state) + 8 > MOST) abort(); /* draw_model draws smaller ones */
    for (size_t i = 0; i < n + n_state; i++)
        s->in[i] = tow_array_retain(i < n ? tow_params_array(s->params, i) : tow_params_array(s->state, i - n));
    if (!make_inputs(s, p, n + n_state)) return false;
    size_t keys = n + n_state + p->n_inputs + 2;
    TRY(tow_array_from_data(s->ctx, tow_make_type(TOW_U32, 1, (int64_t[]){2}), (uint32_t[]){7, p->seed}, &s->in[keys]));
    return true;
}

/* The gradient's graph by way of a pass that keeps its function. */
static bool pass_over(side *s)
{
    tow_graph *clean = NULL;
    if (s->how.pass == DEAD_CODE) TRY(tow_graph_dce(s->graph, &clean));
    if (s->how.pass == COMMON_CODE) TRY(tow_graph_cse(s->graph, &clean));
    if (s->how.pass == TEXT) {
        size_t length = tow_graph_text(s->graph, NULL, 0);
        char *text = malloc(length + 1);
        if (text == NULL) abort();
        tow_graph_text(s->graph, text, length + 1);
        tow_status status = tow_graph_parse(s->ctx, text, &clean);
        free(text);
        TRY(status);
    }
    if (clean) tow_graph_release(s->graph), s->graph = clean;
    return true;
}

/* The bytes of a plan between the least and the most. */
static bool find_limit(side *s, const tow_graph *graph, tow_compile_options *options)
{
    tow_memory_point points[256];
    size_t n = 0;
    if (!s->how.limit) return true;
    TRY(tow_memory_curve(s->ctx, graph, options, 256, points, &n));
    options->memory_limit = points[(n - 1) * (size_t)s->how.limit / 1000].bytes;
    return true;
}

static bool run_graph(side *s, const tow_graph *graph)
{
    const char *const without[] = {s->how.without, NULL};
    tow_compile_options options =
        TOW_COMPILE_OPTIONS(.no_regions = s->how.no_regions, .no_fusion = s->how.no_fusion, .without = without);
    tow_program *program = NULL;
    for (size_t i = 0; i < tow_graph_output_count(graph); i++)
        TRY(tow_array_create(s->ctx, tow_graph_output_type(graph, i), &s->out[i]));
    if (!find_limit(s, graph, &options)) return false;
    TRY(tow_compile(s->ctx, graph, &options, &program));
    tow_status status = tow_program_check(program);
    if (status == TOW_OK) status = tow_program_run(program, s->in, s->out);
    tow_program_free(program);
    return status == TOW_OK;
}

/* Of so many rows, the one that counts. */
enum {
    ROWS = 3,
    ROW = 1
};

/* True if input i has rows. */
static bool has_rows(const side *s, size_t i) { return s->how.rows == 1 || (i * 7 + (size_t)s->how.rows) % 3 != 0; }

/* x, ROWS times, and every time but once with other numbers. */
static bool repeat_input(side *s, tow_array **x)
{
    tow_type type = tow_array_type(*x), repeated = type;
    tow_array *all;
    for (int d = repeated.rank++; d > 0; d--) repeated.dims[d] = repeated.dims[d - 1];
    repeated.dims[0] = ROWS;
    TRY(tow_array_create(s->ctx, repeated, &all));
    size_t count = (size_t)tow_type_element_count(type), bytes = tow_type_bytes(type);
    for (int r = 0; r < ROWS; r++) {
        char *row = (char *)tow_array_data(all) + (size_t)r * bytes;
        memcpy(row, tow_array_data(*x), bytes);
        for (size_t k = 0; k < count && r != ROW; k++) {
            if (tow_dtype_is_float(type.dtype))
                set_element(type.dtype, row, (int64_t)k, get_element(type.dtype, row, (int64_t)k) * 0.75 + 0.125 * r);
            if (type.dtype == TOW_U32) ((uint32_t *)(void *)row)[k] += (uint32_t)r + 1;
        }
    }
    tow_array_release(*x);
    *x = all;
    return true;
}

/* Makes the graph, whose inputs are there, one of all rows, and the inputs likewise. */
static bool batch_graph(side *s)
{
    static int axes[MOST];
    tow_graph *all = NULL;
    for (size_t i = 0; i < tow_graph_input_count(s->graph); i++) {
        axes[i] = has_rows(s, i) ? 0 : TOW_NOT_MAPPED;
        if (has_rows(s, i) && !repeat_input(s, &s->in[i])) return false;
    }
    TRY(tow_vmap(s->graph, ROWS, axes, NULL, &all));
    tow_graph_release(s->graph);
    s->graph = all;
    return true;
}

/* Results become those of the row that counts. */
static bool pick_row(side *s)
{
    for (size_t i = 0; i < tow_graph_output_count(s->graph); i++) {
        tow_array *row;
        TRY(tow_array_row(s->out[i], ROW, &row));
        tow_array_release(s->out[i]);
        s->out[i] = row;
    }
    return true;
}

/* Value, gradients of parameters and of a float input, new variables. */
static bool gradients(side *s, const tow_module *model, const problem *p, results *r)
{
    if (!trace_loss(s, model, p, false)) return false;
    size_t n = tow_params_count(s->params), n_state = tow_params_count(s->state), wrt[MOST], n_wrt = n;
    size_t n_updates = tow_graph_output_count(s->loss) - 1;
    for (size_t i = 0; i < n; i++) wrt[i] = i;
    if (tow_dtype_is_float(p->inputs[0].dtype) && !s->how.parameters_only) wrt[n_wrt++] = n + n_state;
    TRY(tow_value_and_grad(s->loss, n_wrt, wrt, n_updates > 0, &s->graph));
    if (!pass_over(s) || (s->how.rows && !batch_graph(s)) || !run_graph(s, s->graph)) return false;
    if (s->how.rows && !pick_row(s)) return false;
    add_result(r, "value", "", s->out[0]);
    TRY(tow_params_zeros_like(s->params, &s->gradients));
    for (size_t i = 0; i < n; i++)
        memcpy(tow_array_data(tow_params_array(s->gradients, i)), tow_array_data(s->out[1 + n_updates + i]),
               tow_type_bytes(tow_array_type(s->out[1 + n_updates + i])));
    if (!add_params(s, r, "gradient", s->gradients)) return false;
    if (n_wrt > n) add_result(r, "gradient", "of the input", s->out[1 + n_updates + n]);
    for (size_t i = 0; i < n_updates; i++) {
        tow_array *to = tow_params_array(s->updates, i);
        memcpy(tow_array_data(to), tow_array_data(s->out[1 + i]), tow_type_bytes(tow_array_type(to)));
    }
    return n_updates == 0 || add_params(s, r, "variable", s->updates);
}

/* The same by a function of the model. */
static bool by_function(side *s, const tow_module *model, const problem *p, results *r)
{
    if (!trace_loss(s, model, p, false)) return false; /* for the parameters and inputs */
    const size_t first = tow_params_count(s->params) + (s->state ? tow_params_count(s->state) : 0);
    static const char *const everything[] = {"**", NULL};
    const tow_model_options calls =
        TOW_MODEL_OPTIONS(.streams = streams, .state = s->state, .mutable_collections = s->updates ? collections : NULL,
                          .capture = everything);
    const tow_compile_options compile = TOW_COMPILE_OPTIONS(.memory_limit = s->how.limit ? SIZE_MAX : 0);
    const tow_model_function_options options =
        TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = p->n_inputs, .n_extra = 2, .loss = p->loss, .model = &calls,
                                   .compile = &compile);
    const uint32_t keys[1][2] = {{7, p->seed}};
    const tow_model_arguments arguments =
        TOW_MODEL_ARGUMENTS(.inputs = s->in + first, .extra = s->in + first + p->n_inputs,
                            .keys = (const uint32_t(*)[2])keys);
    tow_model_function *f = NULL;
    tow_model_results found;
    TRY(tow_model_function_create_value_and_grad(model, s->params, &options, &f));
    bool good = tow_model_function_call(f, &arguments, &found) == TOW_OK;
    if (good) {
        const float value = (float)found.loss;
        const tow_type scalar = tow_make_type(TOW_F32, 0, NULL);
        tow_array *array = NULL;
        good = tow_array_from_data(s->ctx, scalar, &value, &array) == TOW_OK;
        if (good) add_result(r, "value", "", array);
        tow_array_release(array);
    }
    good = good && add_params(s, r, "gradient", found.gradients);
    if (good && tow_params_count(found.updates) > 0) good = add_params(s, r, "variable", found.updates);
    tow_model_function_free(f);
    return good;
}

/* Saves and goes on in a new state. */
static bool resume(side *s, const tow_module *model, const tow_train_options *options)
{
    char path[] = "/tmp/tow-random-model-XXXXXX";
    int file = mkstemp(path);
    if (file < 0) return false;
    close(file);
    tow_status status = tow_train_save(s->training, path);
    tow_train_free(s->training);
    s->training = NULL;
    if (status == TOW_OK) status = tow_train_create(s->ctx, model, options, &s->training);
    if (status == TOW_OK) status = tow_train_load(s->training, path);
    unlink(path);
    return status == TOW_OK;
}

/* A limit so many thousandths from the least that is possible, which an error says, to the bytes of a step without
 * one. */
static bool set_training_limit(side *s, const tow_module *model, tow_train_options *options)
{
    static const char least[] = "expected at least ";
    if (!s->how.limit) return true;
    if (s->how.limit >= 1000) {
        options->memory_limit = SIZE_MAX;
        return true;
    }
    tow_train_state *state;
    TRY(tow_train_create(s->ctx, model, options, &state));
    const tow_program_bytes b = tow_program_get_bytes(tow_train_program(state));
    const size_t most = b.inputs + b.outputs + b.constants + b.arena;
    tow_train_free(state);
    options->memory_limit = 1;
    if (tow_train_create(s->ctx, model, options, &state) == TOW_OK) {
        tow_train_free(state);
        return false;
    }
    const char *at = strstr(tow_context_error(s->ctx), least);
    if (!at) return false;
    const size_t from = strtoull(at + sizeof least - 1, NULL, 10), to = most > from ? most : from;
    tow_context_clear_error(s->ctx);
    options->memory_limit = from + (to - from) * (size_t)s->how.limit / 1000;
    return true;
}

static bool training(side *s, const tow_module *model, const problem *p, results *r)
{
    tow_model_options with_streams = TOW_MODEL_OPTIONS(.streams = streams);
    tow_train_options options =
        TOW_TRAIN_OPTIONS(.optimizer = p->optimizer, .seed = p->seed, .n_inputs = p->n_inputs, .input_types = p->inputs,
                          .n_extra = 2, .extra_types = p->extra, .loss = p->loss, .model = &with_streams,
                          .early_update = s->how.early_update);
    if (!set_training_limit(s, model, &options)) return false;
    TRY(tow_train_create(s->ctx, model, &options, &s->training));
    if (!stir(s, tow_train_params(s->training), p) || !make_inputs(s, p, 0)) return false;
    TRY(tow_array_create(s->ctx, tow_make_type(TOW_F64, 1, (int64_t[]){STEPS}), &s->out[0]));
    for (int i = 0; i < STEPS; i++) {
        TRY(tow_train_step(s->training, s->in, (double *)tow_array_data(s->out[0]) + i));
        if (i == 0 && s->how.resume && !resume(s, model, &options)) return false;
    }
    add_result(r, "losses", "", s->out[0]);
    return add_params(s, r, "trained", tow_train_params(s->training)) &&
           add_params(s, r, "variable", tow_train_variables(s->training));
}

#endif
