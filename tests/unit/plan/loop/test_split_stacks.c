/* A scan that a memory limit cuts into runs updates the rows of each run where their gradients are made: gradients of
 * all rows never exist, and the parameters after some steps are those without a limit. A stack that somebody reads as
 * a whole stays whole.
 *
 * Tests split_stacks.c. */
#include "tests/unit/support/training.h"

#include "src/plan/ir.h"

enum {
    WIDTH = 64,
    LAYERS = 12,
    BATCH = 32,
    KERNELS = LAYERS * WIDTH * WIDTH * 4, /* bytes of the stacked kernels */
    LIMITS = 6
};

typedef struct stack {
    tow_dense layer;
    tow_activation_layer gelu;
    tow_sequential block;
    const tow_module *layers[2];
    tow_scan scan;
} stack;

static const tow_module *make(stack *s, bool reverse)
{
    s->layer = TOW_DENSE(.features = WIDTH);
    s->gelu = TOW_ACTIVATION(tow_gelu);
    s->layers[0] = TOW_MODULE(&s->layer);
    s->layers[1] = TOW_MODULE(&s->gelu);
    s->block =
        (tow_sequential){.module = {&tow_sequential_class, sizeof(tow_sequential)}, .layers = s->layers, .n_layers = 2};
    s->scan = TOW_SCAN(&s->block, .length = LAYERS, .reverse = reverse);
    return TOW_MODULE(&s->scan);
}

typedef struct trained {
    training t;
    size_t bytes, workspace; /* of the step's program */
    bool split;
} trained;

static tow_status begin(const fixture *f, const tow_module *model, tow_train_options options, training *t)
{
    t->batch[0] = exact_fractions(f->ctx, BATCH, WIDTH);
    t->batch[1] = exact_fractions(f->ctx, BATCH, WIDTH);
    const tow_type types[2] = {tow_array_type(t->batch[0]), tow_array_type(t->batch[1])};
    options.n_inputs = options.n_extra = 1;
    options.input_types = &types[0];
    options.extra_types = &types[1];
    options.loss = mean_squared_error;
    return tow_train_create(f->ctx, model, &options, &t->state);
}

static trained train(const fixture *f, bool reverse, tow_train_options options)
{
    trained r = {0};
    stack s;
    if (begin(f, make(&s, reverse), options, &r.t) != TOW_OK) fail_msg("%s", tow_context_error(f->ctx));
    const tow_program *p = tow_train_program(r.t.state);
    const tow_program_bytes b = tow_program_get_bytes(p);
    assert_int_equal(tow_program_check(p), TOW_OK);
    r.bytes = b.inputs + b.outputs + b.constants + b.arena;
    r.workspace = b.arena - b.residuals;
    r.split = p->split.whole != NULL;
    step(&r.t, 3);
    return r;
}

static size_t least_of(const fixture *f, bool reverse, tow_train_options options)
{
    stack s;
    training t;
    options.memory_limit = 1;
    assert_int_equal(begin(f, make(&s, reverse), options, &t), TOW_INVALID_ARGUMENT);
    tow_array_release(t.batch[0]);
    tow_array_release(t.batch[1]);
    const char *at = strstr(tow_context_error(f->ctx), "at least ");
    assert_non_null(at);
    return strtoull(at + strlen("at least "), NULL, 10);
}

/* Returns how many of the plans within limits have split stacks. */
static int expect_same_steps(const fixture *f, bool reverse, tow_train_options options)
{
    const trained free = train(f, reverse, options);
    const size_t least = least_of(f, reverse, options);
    int n_split = 0;
    save(f, &free.t, f->a);
    assert_true(least < free.bytes);
    for (size_t i = 0; i <= LIMITS; i++) {
        options.memory_limit = least + (free.bytes - least) * i / LIMITS;
        trained r = train(f, reverse, options);
        assert_true(r.bytes <= options.memory_limit);
        save(f, &r.t, f->b);
        assert_equal_files(f->a, f->b);
        n_split += r.split;
        if (r.split && r.workspace >= KERNELS)
            fail_msg("limit %zu: %zu bytes besides residuals, of which gradients need %d", options.memory_limit,
                     r.workspace, KERNELS);
        stop(&r.t);
    }
    trained end = free;
    stop(&end.t);
    return n_split;
}

static void rows_are_updated_in_their_run(void **fixture_)
{
    const fixture *f = *fixture_;
    const tow_average_options average = TOW_AVERAGE_OPTIONS(.decay = 0.9);
    const tow_train_options options[] = {
        TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = {.peak_value = 0.01}, .weight_decay = 0.1}),
        TOW_TRAIN_OPTIONS(.optimizer = {.kind = TOW_SGD, .learning_rate = {.peak_value = 0.01}, .momentum = 0.9}),
        TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = {.peak_value = 0.01}}, .average = &average),
    };
    for (int i = 0; i < 3; i++)
        if (expect_same_steps(f, i == 1, options[i]) < 2) fail_msg("options %d: no stack is split", i);
}

/* The norm of all gradients is known after all runs, and sums of micro-batches are. */
static void whole_stacks_stay_whole(void **fixture_)
{
    const fixture *f = *fixture_;
    const tow_train_options options[] = {
        TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = {.peak_value = 0.01}, .clip_norm = 0.5}),
        TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = {.peak_value = 0.01}}, .micro_batches = 2),
    };
    for (int i = 0; i < 2; i++) assert_int_equal(expect_same_steps(f, false, options[i]), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows_are_updated_in_their_run, setup, teardown),
        cmocka_unit_test_setup_teardown(whole_stacks_stay_whole, setup, teardown),
    };
    return cmocka_run_group_tests_name("split_stacks", tests, NULL, NULL);
}
