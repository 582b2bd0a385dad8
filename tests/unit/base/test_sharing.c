/* Arrays that contexts share: any order of freeing, any number of threads; what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>

#include "tests/unit/support/counting_allocator.h"
#include "tow/tow.h"

#define F32(...)                                                                                                       \
    tow_make_type(TOW_F32, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})
#define OK_IN(context, call)                                                                                           \
    do {                                                                                                               \
        if ((call) != TOW_OK) fail_msg("%s: %s", #call, tow_context_error(context));                                   \
    } while (0)

/* Two contexts, each with an allocator that counts. `maker` makes arrays, `taker` gets them. */
typedef struct contexts {
    counting of_maker, of_taker;
    tow_context *maker, *taker;
} contexts;

static void open_contexts(contexts *c)
{
    const tow_context_options maker = counting_options(&c->of_maker, -1), taker = counting_options(&c->of_taker, -1);
    assert_int_equal(tow_context_create(&maker, &c->maker), TOW_OK);
    assert_int_equal(tow_context_create(&taker, &c->taker), TOW_OK);
}

static void expect_nothing_left(const contexts *c)
{
    assert_int_equal(c->of_maker.blocks + c->of_taker.blocks, 0);
    assert_int_equal(c->of_maker.wrong_sizes + c->of_taker.wrong_sizes, 0);
}

static tow_array *numbers(tow_context *ctx, tow_type type)
{
    tow_array *array = NULL;
    OK_IN(ctx, tow_array_create(ctx, type, &array));
    float *data = tow_array_data(array);
    for (int64_t i = 0; i < tow_type_element_count(type); i++) data[i] = (float)((i * 7919) % 257 - 128) / 64;
    return array;
}

static void expect_numbers(const tow_array *array)
{
    const float *data = tow_array_data(array);
    for (int64_t i = 0; i < tow_type_element_count(tow_array_type(array)); i++)
        assert_true(data[i] == (float)((i * 7919) % 257 - 128) / 64);
}

/* ---- any order of freeing ---------------------------------------------------------------------------------------- */

/* A holder of an array of another context: made by `take`, freed by `drop` after that context was destroyed. */
typedef struct holder {
    const char *name;
    void *(*take)(contexts *c, tow_array *array);
    void (*drop)(void *held);
} holder;

static void *take_array(contexts *c, tow_array *array)
{
    (void)c;
    return tow_array_retain(array);
}
static void drop_array(void *held)
{
    expect_numbers(held);
    tow_array_release(held);
}

static void *take_shared(contexts *c, tow_array *array)
{
    tow_array *shared = NULL;
    OK_IN(c->taker, tow_array_share(c->taker, array, &shared));
    return shared;
}

static void *take_list(contexts *c, tow_array *array)
{
    tow_params *list = NULL;
    OK_IN(c->taker, tow_params_from_arrays(c->taker, 1, (const char *const[]){"blocks/{}/kernel"}, &array, &list));
    return list;
}
static void drop_list(void *held)
{
    tow_params *list = held, *part = NULL;
    tow_array *layer = NULL;
    expect_numbers(tow_params_array(list, 0));
    assert_int_equal(tow_params_get(list, "blocks/1/kernel", &layer), TOW_OK);
    assert_int_equal(tow_params_unstack(list, &part), TOW_OK);
    assert_memory_equal(tow_array_data(layer), tow_array_data(tow_params_array(part, 1)), 4 * sizeof(float));
    tow_params_free(list);
    tow_array_release(layer);
    tow_params_free(part);
}

static void *take_shared_list(contexts *c, tow_array *array)
{
    tow_params *list = NULL, *shared = NULL;
    OK_IN(c->maker, tow_params_from_arrays(c->maker, 1, (const char *const[]){"blocks/{}/kernel"}, &array, &list));
    OK_IN(c->taker, tow_params_share(c->taker, list, &shared));
    assert_true(tow_params_is_frozen(shared, 0) && !tow_params_is_frozen(list, 0));
    assert_ptr_equal(tow_array_data(tow_params_array(shared, 0)), tow_array_data(array));
    tow_params_free(list);
    return shared;
}

static void *take_tensors(contexts *c, tow_array *array)
{
    tow_tensors *tensors = NULL;
    OK_IN(c->taker, tow_tensors_create(c->taker, &tensors));
    OK_IN(c->taker, tow_tensors_add(tensors, "x", array));
    return tensors;
}
static void drop_tensors(void *held)
{
    expect_numbers(tow_tensors_find(held, "x"));
    tow_tensors_free(held);
}

static void *take_source(contexts *c, tow_array *array)
{
    tow_source *source = NULL;
    OK_IN(c->taker, tow_source_array(c->taker, array, &source));
    return source;
}
static void drop_source(void *held)
{
    tow_array *row = NULL;
    assert_int_equal(tow_source_row(held, 2, &row), TOW_OK);
    assert_true(*(float *)tow_array_data(row) == (float)((8 * 7919) % 257 - 128) / 64);
    tow_array_release(row);
    tow_source_release(held);
}

/* A loader over a source of the array. */
static void *take_loader(contexts *c, tow_array *array)
{
    tow_source *source = NULL;
    tow_loader *loader = NULL;
    OK_IN(c->taker, tow_source_array(c->taker, array, &source));
    const tow_field field = {.source = source};
    OK_IN(c->taker,
          tow_loader_create(c->taker, &TOW_LOADER_OPTIONS(.fields = &field, .n_fields = 1, .batch = 3), &loader));
    tow_source_release(source);
    return loader;
}
static void drop_loader(void *held)
{
    tow_array *const *batch = NULL;
    assert_int_equal(tow_loader_next(held, &batch), TOW_OK);
    expect_numbers(batch[0]);
    tow_loader_free(held);
}

static void identity(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)in;
    out[0] = tow_constant(t, user);
}
static void *take_graph(contexts *c, tow_array *array)
{
    tow_graph *graph = NULL;
    OK_IN(c->taker, tow_trace_function(c->taker, identity, array, 0, NULL, NULL, 1, &graph));
    return graph;
}
static void drop_graph(void *held)
{
    tow_array *y = NULL;
    assert_int_equal(tow_evaluate(held, NULL, &y), TOW_OK);
    expect_numbers(y);
    tow_array_release(y);
    tow_graph_release(held);
}

static const holder holders[] = {
    {"an array", take_array, drop_array},    {"a shared array", take_shared, drop_array},
    {"a list", take_list, drop_list},        {"a shared list", take_shared_list, drop_list},
    {"tensors", take_tensors, drop_tensors}, {"a source", take_source, drop_source},
    {"a loader", take_loader, drop_loader},  {"a graph", take_graph, drop_graph},
};

/* Twice: the array's context is destroyed before, and after what holds the array. */
static void contexts_and_holders_go_in_any_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * sizeof holders / sizeof *holders; i++) {
        const holder *h = &holders[i / 2];
        contexts c;
        open_contexts(&c);
        tow_array *array = numbers(c.maker, F32(3, 4));
        void *held = h->take(&c, array);
        tow_array_release(array);
        if (i % 2) tow_context_free(c.maker);
        assert_true(c.of_maker.blocks > 0);
        h->drop(held);
        if (!(i % 2)) tow_context_free(c.maker);
        if (c.of_maker.blocks != 0) fail_msg("%s: %ld blocks are left", h->name, c.of_maker.blocks);
        tow_context_free(c.taker);
        expect_nothing_left(&c);
    }
}

/* Graphs point to what their context has defined and traced. */
static void graphs_outlive_their_context(void **state)
{
    (void)state;
    contexts c;
    open_contexts(&c);
    tow_array *array = numbers(c.taker, F32(3, 4));
    tow_graph *graph = take_graph(&c, array);
    tow_array_release(array);
    tow_context_free(c.taker);
    char text[400];
    assert_true(tow_graph_text(graph, text, sizeof text) > 0);
    tow_graph_release(graph);
    tow_context_free(c.maker);
    expect_nothing_left(&c);
}

/* ---- what programs take ------------------------------------------------------------------------------------------ */

static void squares(tow_trace *trace, const tow_value *out, const tow_value *extra, tow_value *loss, tow_value *aux,
                    void *user)
{
    (void)trace, (void)aux, (void)user;
    *loss = tow_mean(tow_square(tow_sub(out[0], extra[0])), 0, NULL);
}

/* A training state and a model function over inputs of another context, which is destroyed in between. */
static void programs_take_arrays_of_any_context(void **state)
{
    (void)state;
    const tow_dense model = TOW_DENSE(.features = 2);
    contexts c;
    open_contexts(&c);
    tow_array *batch[2] = {numbers(c.maker, F32(4, 3)), numbers(c.maker, F32(4, 2))};
    const tow_type types[2] = {tow_array_type(batch[0]), tow_array_type(batch[1])};
    const tow_train_options options =
        TOW_TRAIN_OPTIONS(.optimizer = {.kind = TOW_SGD, .learning_rate = {.peak_value = 0.125}}, .n_inputs = 1,
                          .input_types = &types[0], .n_extra = 1, .extra_types = &types[1], .loss = squares);
    tow_train_state *training = NULL;
    tow_model_function *f = NULL;
    tow_model_results r;
    double loss;
    OK_IN(c.taker, tow_train_create(c.taker, TOW_MODULE(&model), &options, &training));
    OK_IN(c.taker, tow_model_function_create(TOW_MODULE(&model), tow_train_params(training),
                                             &TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1), &f));
    tow_context_free(c.maker);
    OK_IN(c.taker, tow_train_step(training, batch, &loss));
    OK_IN(c.taker, tow_model_function_call(f, &TOW_MODEL_ARGUMENTS(.inputs = batch), &r));
    tow_model_function_free(f);
    tow_train_free(training);
    tow_array_release(batch[0]);
    tow_array_release(batch[1]);
    tow_context_free(c.taker);
    expect_nothing_left(&c);
}

/* ---- whose memory, whose messages -------------------------------------------------------------------------------- */

static void expect_error(tow_context *ctx, tow_status found, tow_status expected, const char *part)
{
    assert_int_equal(found, expected);
    if (!strstr(tow_context_error(ctx), part))
        fail_msg("expected a message with \"%s\", found \"%s\"", part, tow_context_error(ctx));
    tow_context_clear_error(ctx);
}

static void adds(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_add(in[0], in[0]);
}

/* A program keeps its graph, and that its context. */
static void programs_keep_graphs_of_another_context(void **state)
{
    (void)state;
    contexts c;
    open_contexts(&c);
    const tow_type type = F32(3, 4);
    tow_graph *graph = NULL;
    tow_program *program = NULL;
    tow_array *x = numbers(c.taker, type), *y = NULL;
    OK_IN(c.maker, tow_trace_function(c.maker, adds, NULL, 1, &type, NULL, 1, &graph));
    OK_IN(c.taker, tow_compile(c.taker, graph, NULL, &program));
    OK_IN(c.taker, tow_array_create(c.taker, type, &y));
    tow_graph_release(graph);
    tow_context_free(c.maker);
    OK_IN(c.taker, tow_program_run(program, &x, &y));
    assert_true(((float *)tow_array_data(y))[5] == 2 * ((float *)tow_array_data(x))[5]);
    tow_program_free(program);
    tow_array_release(x);
    tow_array_release(y);
    tow_context_free(c.taker);
    expect_nothing_left(&c);
}

/* Arenas belong to the thread of their context. */
static void arenas_of_another_context_are_refused(void **state)
{
    (void)state;
    contexts c;
    open_contexts(&c);
    const tow_type type = F32(2);
    tow_graph *graph = NULL;
    tow_program *program = NULL;
    tow_shared_arena *arena = NULL;
    OK_IN(c.maker, tow_trace_function(c.maker, adds, NULL, 1, &type, NULL, 1, &graph));
    OK_IN(c.taker, tow_shared_arena_create(c.taker, &arena));
    expect_error(c.maker, tow_compile(c.maker, graph, &TOW_COMPILE_OPTIONS(.shared_arena = arena), &program),
                 TOW_INVALID_ARGUMENT, ".shared_arena of this context");
    assert_null(program);
    tow_shared_arena_release(arena);
    tow_graph_release(graph);
    tow_context_free(c.maker);
    tow_context_free(c.taker);
    expect_nothing_left(&c);
}

/* Objects over a list of another context are made in one's own memory: the other context is not touched, whose
 * thread may be at work. */
static void lists_of_another_context_stay_untouched(void **state)
{
    (void)state;
    const tow_dense model = TOW_DENSE(.features = 2);
    const tow_scale_by_learning_rate sgd = TOW_SCALE_BY_LEARNING_RATE(.schedule = {.peak_value = 0.5});
    const tow_type type = F32(4, 3);
    contexts c;
    tow_params *params = NULL, *mine = NULL;
    tow_optimizer_state *optimizer = NULL;
    tow_average *average = NULL;
    tow_generator *generator = NULL;
    open_contexts(&c);
    OK_IN(c.maker, tow_model_init(c.maker, TOW_MODULE(&model), 0, 1, &type, &params));
    const long calls = c.of_maker.calls;
    OK_IN(c.taker, tow_params_share(c.taker, params, &mine));
    OK_IN(c.taker, tow_optimizer_create(c.taker, TOW_GRADIENT_TRANSFORM(&sgd), params, NULL, &optimizer));
    OK_IN(c.taker, tow_optimizer_update(optimizer, tow_params_arrays(params)));
    OK_IN(c.taker, tow_average_create(c.taker, params, &TOW_AVERAGE_OPTIONS(.decay = 0.5), &average));
    assert_int_not_equal(tow_generator_create(c.taker, TOW_MODULE(&model), params, NULL, &generator), TOW_OK);
    assert_int_equal(c.of_maker.calls, calls);
    assert_int_equal(tow_context_status(c.maker), TOW_OK);
    assert_true(tow_params_equal(params, mine)); /* the optimizer has written to the arrays of both */
    tow_optimizer_free(optimizer);
    tow_average_free(average);
    tow_params_free(params);
    tow_params_free(mine);
    tow_context_free(c.taker);
    tow_context_free(c.maker);
    expect_nothing_left(&c);
}

/* Messages about a shared array are those of the context that asks, and so is the memory. */
static void errors_and_memory_are_those_of_the_taker(void **state)
{
    (void)state;
    contexts c;
    open_contexts(&c);
    tow_array *array = numbers(c.maker, F32(3, 4)), *shared = NULL, *row = NULL, *wide = NULL;
    OK_IN(c.taker, tow_array_share(c.taker, array, &shared));
    const long calls = c.of_maker.calls;
    expect_error(c.taker, tow_array_row(shared, 3, &row), TOW_INVALID_ARGUMENT, "row 3");
    OK_IN(c.taker, tow_array_row(shared, 2, &row));
    OK_IN(c.taker, tow_array_convert(shared, TOW_F64, &wide));
    char text[200];
    assert_true(tow_array_text(shared, text, sizeof text) > 0);
    tow_params *list = take_list(&c, array);
    tow_array *layer = NULL;
    expect_error(c.taker, tow_params_get(list, "blocks/3/kernel", &layer), TOW_INVALID_ARGUMENT, "no such layer");
    OK_IN(c.taker, tow_params_get(list, "blocks/2/kernel", &layer));
    assert_int_equal(c.of_maker.calls, calls);
    assert_int_equal(tow_context_status(c.maker), TOW_OK);
    tow_array *no_array = NULL;
    tow_params *no_list = NULL;
    assert_int_equal(tow_array_share(c.taker, NULL, &no_array), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_params_share(c.taker, NULL, &no_list), TOW_INVALID_ARGUMENT);
    tow_params_free(list);
    tow_array *const all[] = {array, shared, row, wide, layer};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) tow_array_release(all[i]);
    tow_context_free(c.maker);
    tow_context_free(c.taker);
    expect_nothing_left(&c);
}

/* Every allocation of tow_params_share fails in turn. */
static void out_of_memory_leaves_nothing(void **state)
{
    (void)state;
    contexts c;
    open_contexts(&c);
    tow_array *arrays[2] = {numbers(c.maker, F32(3, 4)), numbers(c.maker, F32(5))};
    tow_params *list = NULL, *shared = NULL;
    OK_IN(c.maker, tow_params_from_arrays(c.maker, 2, (const char *const[]){"a/kernel", "a/bias"}, arrays, &list));
    const long blocks = c.of_taker.blocks;
    for (long n = 0;; n++) {
        c.of_taker.fail_at = c.of_taker.calls + n;
        const tow_status status = tow_params_share(c.taker, list, &shared);
        if (status == TOW_OK) break;
        assert_int_equal(status, TOW_OUT_OF_MEMORY);
        assert_null(shared);
        assert_int_equal(c.of_taker.blocks, blocks);
    }
    c.of_taker.fail_at = -1;
    tow_params_free(shared);
    tow_params_free(list);
    tow_array_release(arrays[0]);
    tow_array_release(arrays[1]);
    tow_context_free(c.maker);
    tow_context_free(c.taker);
    expect_nothing_left(&c);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

enum {
    THREADS = 4,
    ROUNDS = 60
};

typedef struct worker {
    pthread_t thread;
    const tow_module *model;
    const tow_params *weights;
    tow_array *x;
    float y[4 * 2];
    int failed;
} worker;

/* Makes and frees lists over the shared arrays, and then computes with them. */
static tow_status work_with(tow_context *ctx, worker *w)
{
    tow_params *mine = NULL, *part = NULL, *direct = NULL;
    tow_array *kernel = NULL, *x = NULL;
    tow_model_function *f = NULL;
    tow_model_results r;
    tow_status status = tow_params_share(ctx, w->weights, &mine);
    for (int i = 0; i < ROUNDS && !status; i++) {
        status = tow_params_select(mine, TOW_NAMES("**kernel"), &part);
        if (!status)
            status =
                tow_params_from_arrays(ctx, 2, (const char *const[]){"a", "b"}, tow_params_arrays(w->weights), &direct);
        if (!status) status = tow_params_get(mine, "kernel", &kernel);
        if (!status) status = tow_array_share(ctx, w->x, &x);
        tow_array_release(kernel);
        tow_array_release(x);
        tow_params_free(direct);
        tow_params_free(part);
        kernel = x = NULL;
        direct = part = NULL;
    }
    if (!status) status = tow_model_function_create(w->model, mine, &TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1), &f);
    for (int i = 0; i < 3 && !status; i++)
        status = tow_model_function_call(f, &TOW_MODEL_ARGUMENTS(.inputs = &w->x), &r);
    if (!status) memcpy(w->y, tow_array_data(r.outputs[0]), sizeof w->y);
    tow_model_function_free(f);
    tow_params_free(mine);
    return status;
}

static void *work(void *user)
{
    worker *w = user;
    tow_context *ctx = NULL;
    w->failed = tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1), &ctx) || work_with(ctx, w);
    tow_context_free(ctx);
    return NULL;
}

static void threads_share_weights(void **state)
{
    (void)state;
    const tow_dense model = TOW_DENSE(.features = 2);
    tow_context *ctx = NULL;
    tow_params *weights = NULL;
    worker workers[THREADS];
    assert_int_equal(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1), &ctx), TOW_OK);
    tow_array *x = numbers(ctx, F32(4, 3));
    const tow_type type = tow_array_type(x);
    OK_IN(ctx, tow_model_init(ctx, TOW_MODULE(&model), 1, 1, &type, &weights));
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.model = TOW_MODULE(&model), .weights = weights, .x = x};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_false(workers[i].failed);
        assert_memory_equal(workers[i].y, workers[0].y, sizeof workers[i].y);
    }
    worker here = {.model = TOW_MODULE(&model), .weights = weights, .x = x};
    assert_int_equal(work_with(ctx, &here), TOW_OK);
    assert_memory_equal(here.y, workers[0].y, sizeof here.y);
    tow_array_release(x);
    tow_params_free(weights);
    tow_context_free(ctx);
}

/* The last of many threads frees an array whose context is gone. */
static void *release_it(void *user)
{
    tow_array *array = user;
    for (int i = 0; i < 1000; i++) tow_array_release(tow_array_retain(array));
    tow_array_release(array);
    return NULL;
}

static void the_last_thread_frees(void **state)
{
    (void)state;
    counting memory;
    const tow_context_options options = counting_options(&memory, -1);
    tow_context *ctx = NULL;
    pthread_t threads[THREADS];
    assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
    tow_array *array = numbers(ctx, F32(1000));
    for (int i = 0; i < THREADS; i++) tow_array_retain(array);
    tow_array_release(array);
    tow_context_free(ctx);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, release_it, array), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(memory.blocks, 0);
    assert_int_equal(memory.wrong_sizes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contexts_and_holders_go_in_any_order),
        cmocka_unit_test(graphs_outlive_their_context),
        cmocka_unit_test(programs_take_arrays_of_any_context),
        cmocka_unit_test(programs_keep_graphs_of_another_context),
        cmocka_unit_test(arenas_of_another_context_are_refused),
        cmocka_unit_test(lists_of_another_context_stay_untouched),
        cmocka_unit_test(errors_and_memory_are_those_of_the_taker),
        cmocka_unit_test(out_of_memory_leaves_nothing),
        cmocka_unit_test(threads_share_weights),
        cmocka_unit_test(the_last_thread_frees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
