/* A program that is compiled against headers of an earlier version, of this one, and of a later one, and runs with the
 * library of this version: it prints the same each time. With TOW_LATER it also sets options that the library does not
 * know, and expects to be told. It is C and C++. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tow/tow.h"

static tow_context *context;

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TOW_OK) {                                                                                        \
            fprintf(stderr, "%s: %s\n", #call, tow_context_error(context));                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static void mean_squared_error(tow_trace *trace, const tow_value *out, const tow_value *extra, tow_value *loss,
                               tow_value *aux, void *user)
{
    (void)trace, (void)aux, (void)user;
    *loss = tow_mean(tow_square(tow_sub(out[0], extra[0])), 0, NULL);
}

static tow_array *numbers(tow_type type)
{
    tow_array *array = NULL;
    OK(tow_array_create(context, type, &array));
    float *data = (float *)tow_array_data(array);
    for (int64_t i = 0; i < tow_type_element_count(type); i++) data[i] = (float)((i * 7919) % 257 - 128) / 64;
    return array;
}

/* The layers whose structs the program fills in: of a cell, a loop around it, a dropout and a dense layer. */
typedef struct model {
    tow_gru_cell cell;
    tow_remat remat;
    tow_rnn rnn;
    tow_dropout dropout;
    tow_dense dense;
    const tow_module *layers[3];
    tow_sequential whole;
} model;

static void make_model(model *m)
{
    m->cell = TOW_GRU_CELL();
    m->cell.features = 4;
    m->remat = TOW_REMAT(&m->cell);
    m->rnn = TOW_RNN(&m->remat);
    m->rnn.reverse = true;
    m->dropout = TOW_DROPOUT();
    m->dropout.rate = 0.25;
    m->dense = TOW_DENSE();
    m->dense.features = 2;
    m->layers[0] = TOW_MODULE(&m->rnn);
    m->layers[1] = TOW_MODULE(&m->dropout);
    m->layers[2] = TOW_MODULE(&m->dense);
    m->whole = TOW_SEQUENTIAL_OF(m->layers);
}

/* Optimizers of transforms: a schedule-free one asks its struct for the rate before every update. */
typedef struct optimizer {
    tow_scale_by_adam adam;
    tow_scale rate;
    tow_schedule_free free;
    const tow_gradient_transform *list[2];
    tow_chain chain;
} optimizer;

static void make_optimizer(optimizer *o)
{
    o->adam = TOW_SCALE_BY_ADAM();
    o->adam.b1 = 0.8;
    o->rate = TOW_SCALE();
    o->rate.factor = -0.01;
    o->list[0] = TOW_GRADIENT_TRANSFORM(&o->adam);
    o->list[1] = TOW_GRADIENT_TRANSFORM(&o->rate);
#ifndef __cplusplus
    o->chain = (tow_chain){.base = {&tow_chain_class, sizeof(tow_chain)}, .transforms = o->list, .n = 2};
#else
    o->chain = tow_chain{};
    o->chain.base = {&tow_chain_class, sizeof(tow_chain)};
    o->chain.transforms = o->list;
    o->chain.n = 2;
#endif
    o->free = TOW_SCHEDULE_FREE(&o->chain);
    o->free.learning_rate = tow_schedule_linear(0.01, 0.02, 4, 0);
}

static void train(const model *m, const optimizer *o)
{
    const int64_t in[] = {3, 5, 2}, out[] = {3, 5, 2};
    const tow_type types[] = {tow_make_type(TOW_F32, 3, in), tow_make_type(TOW_F32, 3, out)};
    const char *const streams[] = {"dropout", NULL};
    tow_model_options of_model = TOW_MODEL_OPTIONS();
    tow_average_options average = TOW_AVERAGE_OPTIONS();
    tow_train_options options = TOW_TRAIN_OPTIONS();
    tow_train_state *state = NULL;
    tow_array *batch[] = {numbers(types[0]), numbers(types[1])};
    double loss = 0;
    of_model.streams = streams;
    average.decay = 0.5;
    options.transform = TOW_GRADIENT_TRANSFORM(&o->free);
    options.seed = 3;
    options.n_inputs = options.n_extra = 1;
    options.input_types = &types[0];
    options.extra_types = &types[1];
    options.loss = mean_squared_error;
    options.model = &of_model;
    options.average = &average;
    options.evaluation = true;
    OK(tow_train_create(context, TOW_MODULE(&m->whole), &options, &state));
    for (int i = 0; i < 4; i++) {
        OK(tow_train_step(state, batch, &loss));
        printf("%.9g\n", loss);
    }
    OK(tow_train_evaluate_average(state, batch, &loss));
    printf("%.9g\n", loss);
    tow_train_free(state);
    tow_array_release(batch[0]);
    tow_array_release(batch[1]);
}

/* A copy of the model is one of this version. */
static void copy(const model *m)
{
    const int64_t in[] = {3, 5, 2};
    const tow_type type = tow_make_type(TOW_F32, 3, in);
    tow_module *copied = NULL;
    tow_params *params = NULL;
    char text[1000];
    OK(tow_module_copy(context, TOW_MODULE(&m->whole), &copied));
    OK(tow_model_init(context, copied, 0, 1, &type, &params));
    tow_params_table(params, NULL, text, sizeof text);
    fputs(text, stdout);
    tow_params_free(params);
    tow_module_free(copied);
}

/* Operations. */
static void record(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    tow_pool_options pool = TOW_POOL_OPTIONS();
    (void)trace, (void)user;
    pool.spatial = 1;
    pool.window[0] = 2;
    out[0] = tow_max_pool(in[0], &pool);
}

static void run(void)
{
    const int64_t in[] = {3, 5, 2};
    const tow_type type = tow_make_type(TOW_F32, 3, in);
    tow_compile_options options = TOW_COMPILE_OPTIONS();
    tow_graph *graph = NULL;
    tow_program *program = NULL;
    char text[2000];
    options.flush_subnormals = true;
    OK(tow_trace_function(context, record, NULL, 1, &type, NULL, 1, &graph));
    OK(tow_compile(context, graph, &options, &program));
    tow_graph_text(graph, text, sizeof text);
    fputs(text, stdout);
    tow_program_free(program);
    tow_graph_release(graph);
}

#ifdef TOW_LATER
static void refused(const char *what, tow_status status, const char *name)
{
    if (status == TOW_INVALID_ARGUMENT && strstr(tow_context_error(context), name)) return;
    fprintf(stderr, "%s: %s: %s\n", what, tow_status_text(status), tow_context_error(context));
    exit(1);
}

/* Options that the library of this version does not know. */
static void set_later(const model *m, const optimizer *o)
{
    const int64_t in[] = {3, 5, 2};
    const tow_type type = tow_make_type(TOW_F32, 3, in);
    tow_context_options of_context = TOW_CONTEXT_OPTIONS();
    tow_context *other = NULL;
    tow_model_options options = TOW_MODEL_OPTIONS();
    tow_params *params = NULL;
    tow_optimizer_state *state = NULL;
    model layers = *m;
    optimizer transforms = *o;
    of_context.more = 0.5;
    if (tow_context_create(&of_context, &other) != TOW_INVALID_ARGUMENT ||
        !strstr(tow_context_error(other), "TOW_CONTEXT_OPTIONS"))
        exit(1);
    tow_context_free(other);
    OK(tow_model_init(context, TOW_MODULE(&layers.whole), 0, 1, &type, &params));
    options.later = 1;
    tow_params *none = NULL;
    refused("options", tow_model_init_with(context, TOW_MODULE(&m->whole), 0, 1, &type, &options, &none, NULL),
            "TOW_MODEL_OPTIONS");
    layers.dense.later = -1;
    layers.layers[2] = TOW_MODULE(&layers.dense);
    layers.whole.layers = layers.layers;
    refused("layer", tow_model_init(context, TOW_MODULE(&layers.whole), 0, 1, &type, &none), "TOW_DENSE");
    transforms.adam.more = 1e-300;
    transforms.list[0] = TOW_GRADIENT_TRANSFORM(&transforms.adam);
    transforms.list[1] = TOW_GRADIENT_TRANSFORM(&transforms.rate);
    transforms.chain.transforms = transforms.list;
    refused("transform", tow_optimizer_create(context, TOW_GRADIENT_TRANSFORM(&transforms.chain), params, NULL, &state),
            "TOW_SCALE_BY_ADAM");
    tow_params_free(params);
}
#endif

int main(void)
{
    tow_context_options options = TOW_CONTEXT_OPTIONS();
    model m;
    optimizer o;
    options.threads = 1;
    if (tow_context_create(&options, &context) != TOW_OK) return 1;
    make_model(&m);
    make_optimizer(&o);
    train(&m, &o);
    copy(&m);
    run();
#ifdef TOW_LATER
    set_later(&m, &o);
#endif
    tow_context_free(context);
    return 0;
}
