/* Small models in training, and files of their states, for the tests of training. One test program includes it once. */
#ifndef TOW_TESTS_TRAINING_H
#define TOW_TESTS_TRAINING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/support/directories.h"
#include "tow/tow.h"

/* ---- a small model ----------------------------------------------------------------------------------------------- */

enum {
    ROWS = 4,
    STEPS = 6
};

static void mean_squared_error(tow_trace *trace, const tow_value *out, const tow_value *extra, tow_value *loss,
                               tow_value *aux, void *user)
{
    (void)trace, (void)aux, (void)user;
    *loss = tow_mean(tow_square(tow_sub(out[0], extra[0])), 0, NULL);
}

/* The inputs of the golden file: ((7919 i) mod 257 - 128) / 64. */
static tow_array *exact_fractions(tow_context *ctx, int64_t rows, int64_t columns)
{
    tow_array *array = NULL;
    assert_int_equal(tow_array_create(ctx, tow_make_type(TOW_F32, 2, (int64_t[]){rows, columns}), &array), TOW_OK);
    float *data = tow_array_data(array);
    for (int64_t i = 0; i < rows * columns; i++) data[i] = (float)((i * 7919) % 257 - 128) / 64;
    return array;
}

/* A state over a model [ROWS, in] -> [ROWS, out], and its batch. */
typedef struct training {
    tow_train_state *state;
    tow_array *batch[2];
} training;

static inline training start(tow_context *ctx, const tow_module *model, int64_t in, int64_t out,
                             tow_train_options options)
{
    training t = {.batch = {exact_fractions(ctx, ROWS, in), exact_fractions(ctx, ROWS, out)}};
    tow_type types[2] = {tow_array_type(t.batch[0]), tow_array_type(t.batch[1])};
    options.n_inputs = options.n_extra = 1;
    options.input_types = &types[0];
    options.extra_types = &types[1];
    options.loss = mean_squared_error;
    if (tow_train_create(ctx, model, &options, &t.state) != TOW_OK) fail_msg("%s", tow_context_error(ctx));
    return t;
}

static inline void step(training *t, int count)
{
    double loss;
    for (int i = 0; i < count; i++) {
        assert_int_equal(tow_train_step(t->state, t->batch, &loss), TOW_OK);
        assert_true(isfinite(loss));
    }
}

static inline void stop(training *t)
{
    tow_train_free(t->state);
    tow_array_release(t->batch[0]);
    tow_array_release(t->batch[1]);
}

typedef struct fixture {
    tow_context *ctx;
    char directory[64], a[96], b[96];
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    if (f == NULL) return -1;
    strcpy(f->directory, "/tmp/tow-test-train-XXXXXX");
    if (mkdtemp(f->directory) == NULL || tow_context_create(NULL, &f->ctx) != TOW_OK) return -1;
    snprintf(f->a, sizeof f->a, "%s/a", f->directory);
    snprintf(f->b, sizeof f->b, "%s/b", f->directory);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    int failed = remove_directory(f->directory);
    tow_context_free(f->ctx);
    free(f);
    return failed;
}

static inline void assert_message(const fixture *f, const char *part)
{
    const char *text = tow_context_error(f->ctx);
    if (strstr(text, part) == NULL) fail_msg("expected a message with \"%s\", found \"%s\"", part, text);
}

/* tow_train_create() refuses these options for a model [ROWS, features] -> [ROWS, features]. */
static inline void assert_refused(const fixture *f, const tow_module *model, int64_t features,
                                  tow_train_options options, const char *message)
{
    tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){ROWS, features});
    tow_train_state *s;
    options.n_inputs = options.n_extra = 1;
    options.input_types = options.extra_types = &type;
    options.loss = mean_squared_error;
    assert_int_equal(tow_train_create(f->ctx, model, &options, &s), TOW_INVALID_ARGUMENT);
    assert_null(s);
    assert_message(f, message);
}

static inline void save(const fixture *f, const training *t, const char *path)
{
    if (tow_train_save(t->state, path) != TOW_OK) fail_msg("%s", tow_context_error(f->ctx));
}

static inline void assert_equal_files(const char *a, const char *b)
{
    char command[256];
    snprintf(command, sizeof command, "cmp '%s' '%s'", a, b);
    assert_int_equal(system(command), 0);
}

static const tow_standard_optimizer usual = {
    .learning_rate = {.peak_value = 0.01}, .weight_decay = 0.1, .clip_norm = 0.5};

/* A model with random masks: resuming must draw the same ones. */
typedef struct noisy {
    tow_dense up, down;
    tow_dropout dropout;
    const tow_module *layers[3];
    tow_sequential model;
} noisy;

static inline const tow_module *make_noisy(noisy *n)
{
    n->up = TOW_DENSE(.features = 16);
    n->dropout = TOW_DROPOUT(.rate = 0.5);
    n->down = TOW_DENSE(.features = 2);
    n->layers[0] = TOW_MODULE(&n->up);
    n->layers[1] = TOW_MODULE(&n->dropout);
    n->layers[2] = TOW_MODULE(&n->down);
    n->model =
        (tow_sequential){.module = {&tow_sequential_class, sizeof(tow_sequential)}, .layers = n->layers, .n_layers = 3};
    return TOW_MODULE(&n->model);
}

static const tow_model_options with_dropout = TOW_MODEL_OPTIONS(.streams = (const char *const[]){"dropout", NULL});

#endif
