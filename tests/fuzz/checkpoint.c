/* Fuzz target: bytes as a checkpoint, loaded into the training of a small model. A file that is refused changes
 * nothing; what is loaded can be trained on. */
#include <stdlib.h>

#include "src/base/xxh3.h"
#include "tests/fuzz/fuzz.h"

/* ---- the model: two dense layers, a scan of dense layers between them -------------------------------------------- */

static void mean_square(tow_trace *trace, const tow_value *out, const tow_value *extra, tow_value *loss, tow_value *aux,
                        void *user)
{
    (void)trace, (void)extra, (void)aux, (void)user;
    *loss = tow_mean(tow_square(out[0]), 0, NULL);
}

typedef struct training {
    tow_context *ctx;
    tow_train_state *state;
    tow_array *batch;
} training;

static training make_training(void)
{
    training t = {.ctx = fuzz_context()};
    tow_dense up = TOW_DENSE(.features = 2), middle = TOW_DENSE(.features = 2), down = TOW_DENSE(.features = 1);
    tow_scan stack = TOW_SCAN(&middle, .length = 2);
    const tow_module *layers[] = {TOW_MODULE(&up), TOW_MODULE(&stack), TOW_MODULE(&down)};
    tow_sequential model = {.module = {&tow_sequential_class, sizeof(tow_sequential)}, .layers = layers, .n_layers = 3};
    const tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){2, 1});
    const tow_train_options options = TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = tow_schedule_constant(0.01)},
                                                        .n_inputs = 1, .input_types = &type, .loss = mean_square);
    fuzz_expect(t.ctx, tow_train_create(t.ctx, TOW_MODULE(&model), &options, &t.state), "training");
    fuzz_expect(t.ctx, tow_array_from_data(t.ctx, type, (float[]){1, -1}, &t.batch), "the batch");
    return t;
}

/* Of all that a load may change. */
static uint64_t state_hash(const tow_train_state *state)
{
    const tow_params *params = tow_train_params(state);
    uint64_t hash = tow_train_data_position(state) ^ (uint64_t)tow_train_step_count(state) << 32;
    for (size_t i = 0; i < tow_params_count(params); i++) {
        const tow_array *array = tow_params_array(params, i);
        hash = XXH3_64bits_withSeed(tow_array_data(array), tow_type_bytes(tow_array_type(array)), hash);
    }
    return hash;
}

/* ---- the target -------------------------------------------------------------------------------------------------- */

static training only; /* made once: compiling it takes longer than a load */

static void end_training(void)
{
    tow_train_free(only.state);
    tow_array_release(only.batch);
    fuzz_end(only.ctx);
}

int fuzz_target(const uint8_t *data, size_t size)
{
    if (only.ctx == NULL) {
        only = make_training();
        atexit(end_training);
    }
    const size_t bytes = fuzz_bytes();
    const uint64_t before = state_hash(only.state);
    fuzz_file(only.ctx, data, size);
    if (fuzz_succeeds(only.ctx, tow_train_load(only.state, "input")))
        fuzz_expect(only.ctx, tow_train_step(only.state, &only.batch, NULL), "a step after loading");
    else if (state_hash(only.state) != before)
        fuzz_fail("a checkpoint that was refused has changed the state");
    if (fuzz_bytes() != bytes) fuzz_fail("%zu bytes before, %zu after loading", bytes, fuzz_bytes());
    return 0;
}
