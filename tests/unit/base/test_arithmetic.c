/* Floating-point environments: the application's is the same after every call, whatever it is, and no result depends on
 * it; the optimizer flushes subnormal numbers wherever it runs. */
#include <fenv.h>

#include "src/base/arithmetic.h"
#include "tests/unit/support/training.h"

/* ---- what the application sets ----------------------------------------------------------------------------------- */

typedef struct modes {
    const char *name;
    int rounding;
    bool traps; /* every exception that the processor can trap */
    bool flushes;
} modes;

static const modes all_modes[] = {
    {"default", FE_TONEAREST, false, false}, {"upward", FE_UPWARD, false, false},
    {"flushing", FE_TONEAREST, false, true}, {"towards zero", FE_TOWARDZERO, false, false},
    {"trapping", FE_TONEAREST, true, false},
};

static int trap_all(bool on)
{
#ifdef __GLIBC__
    return on ? feenableexcept(FE_ALL_EXCEPT) : fedisableexcept(FE_ALL_EXCEPT);
#else
    (void)on;
    return 0;
#endif
}

static int traps(void)
{
#ifdef __GLIBC__
    return fegetexcept();
#else
    return 0;
#endif
}

static void set_modes(const modes *m)
{
    fesetenv(FE_DFL_ENV);
    fesetround(m->rounding);
#if defined(__x86_64__)
    if (m->flushes) __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#endif
    if (m->traps)
        trap_all(true);
    else
        feraiseexcept(FE_DIVBYZERO); /* a flag that must stay, beside others that must not appear */
}

typedef struct seen {
    int rounding, traps, flags;
    unsigned long long all; /* of the unit that vectors use */
} seen;

static seen look(void) { return (seen){fegetround(), traps(), fetestexcept(FE_ALL_EXCEPT), tow__arithmetic_modes()}; }

static seen before;
static const char *mode_name;

static void assert_same_environment(const char *call)
{
    seen after = look();
    if (after.rounding != before.rounding || after.traps != before.traps || after.flags != before.flags ||
        after.all != before.all)
        fail_msg("%s, %s: rounding %d, traps %x, flags %x, modes %llx became %d, %x, %x, %llx", mode_name, call,
                 before.rounding, (unsigned)before.traps, (unsigned)before.flags, before.all, after.rounding,
                 (unsigned)after.traps, (unsigned)after.flags, after.all);
}

#define CALL(f, call)                                                                                                  \
    do {                                                                                                               \
        tow_status status_ = (call);                                                                                   \
        assert_same_environment(#call);                                                                                \
        if (status_ != TOW_OK) fail_msg("%s: %s: %s", mode_name, #call, tow_context_error((f)->ctx));                  \
    } while (0)

/* ---- the life of a model, call by call --------------------------------------------------------------------------- */

/* A model whose passes divide, take logarithms, exponentials and remainders, with dropout and a loop. */
typedef struct example {
    tow_dense first, last;
    tow_transformer_block block;
    tow_remat cheap;
    tow_scan stack;
    tow_module mixed;
    const tow_module *layers[4];
    tow_sequential model;
} example;

static void mixed_call(tow_scope *s, const tow_module *self, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)s, (void)self, (void)n_in, (void)n_out;
    tow_value zero = tow_mul_scalar(in[0], 0), infinite = tow_log(zero); /* constants of the program, too */
    tow_value huge = tow_exp(tow_full_like(in[0], 1000)), never = tow_div(zero, zero);
    tow_value wild =
        tow_where(tow_gt(in[0], tow_full_like(in[0], -1e30)), in[0], tow_add(tow_add(infinite, huge), never));
    out[0] = tow_add(wild, tow_mul_scalar(tow_rem(in[0], tow_full_like(in[0], 0.75)), 0.125));
}

static const tow_module_class mixed_class = {"Mixed", mixed_call};

static const tow_module *make_example(example *e)
{
    e->first = TOW_DENSE(.features = 16);
    e->block = TOW_TRANSFORMER_BLOCK(.heads = 2, .mlp_features = 32, .causal = true);
    e->cheap = TOW_REMAT(&e->block, .policy = tow_nothing_saveable());
    e->stack = TOW_SCAN(&e->cheap, .length = 2);
    e->mixed = (tow_module){&mixed_class};
    e->last = TOW_DENSE(.features = 3);
    e->layers[0] = TOW_MODULE(&e->first);
    e->layers[1] = TOW_MODULE(&e->stack);
    e->layers[2] = &e->mixed;
    e->layers[3] = TOW_MODULE(&e->last);
    e->model =
        (tow_sequential){.module = {&tow_sequential_class, sizeof(tow_sequential)}, .layers = e->layers, .n_layers = 4};
    return TOW_MODULE(&e->model);
}

static void small_cross_entropy(tow_trace *trace, const tow_value *out, const tow_value *extra, tow_value *loss,
                                tow_value *aux, void *user)
{
    (void)trace, (void)aux;
    *loss = tow_mean(tow_square(tow_sub(out[0], extra[0])), 0, NULL);
    *loss = tow_mul_scalar(*loss, user ? *(const double *)user : 1);
}

static void write_everything(const fixture *f, tow_train_state *state)
{
    char text[64];
    FILE *file = fopen("/dev/null", "w");
    assert_non_null(file);
    tow_program_text(tow_train_program(state), text, sizeof text);
    assert_same_environment("tow_program_text");
    CALL(f, tow_program_draw_memory(tow_train_program(state), file));
    CALL(f, tow_graph_print(tow_train_loss_graph(state), file));
    tow_array_text(tow_params_array(tow_train_params(state), 0), text, sizeof text);
    assert_same_environment("tow_array_text");
    fclose(file);
}

static void live(fixture *f, const modes *m, const tow_standard_optimizer *optimizer, bool early, const char *path)
{
    static const tow_type types[2] = {{TOW_F32, 3, {2, 5, 3}}, {TOW_F32, 3, {2, 5, 3}}};
    example e;
    const tow_module *model = make_example(&e);
    tow_array *batch[2] = {NULL, NULL};
    tow_train_state *state = NULL;
    FILE *trace = fopen("/dev/null", "w");
    double loss;
    tow_train_options options = TOW_TRAIN_OPTIONS(.optimizer = *optimizer, .n_inputs = 1, .input_types = &types[0],
                                                  .n_extra = 1, .extra_types = &types[1], .loss = small_cross_entropy,
                                                  .early_update = early, .evaluation = true);
    mode_name = m->name;
    float data[30];
    for (int i = 0; i < 30; i++) data[i] = (float)(i * 7 % 31 - 15) / 8;
    set_modes(m);
    before = look();
    CALL(f, tow_array_from_data(f->ctx, types[0], data, &batch[0]));
    CALL(f, tow_array_from_data(f->ctx, types[1], data, &batch[1]));
    CALL(f, tow_train_create(f->ctx, model, &options, &state));
    for (int i = 0; i < 3; i++) CALL(f, tow_train_step(state, batch, &loss));
    CALL(f, tow_train_evaluate(state, batch, &loss));
    CALL(f, tow_train_step_with(state, batch, &loss, trace));
    CALL(f, tow_train_save(state, path));
    CALL(f, tow_train_load(state, path));
    write_everything(f, state);
    tow_train_free(state);
    tow_array_release(batch[0]);
    tow_array_release(batch[1]);
    fesetenv(FE_DFL_ENV);
    fclose(trace);
}

static const tow_standard_optimizer optimizers[] = {
    {.learning_rate = {.kind = TOW_SCHEDULE_WARMUP_COSINE, .peak_value = 0.01, .warmup_steps = 2, .decay_steps = 9},
     .weight_decay = 0.1},
    {.kind = TOW_SGD, .learning_rate = {.peak_value = 0.01}, .momentum = 0.9, .nesterov = true},
    {.learning_rate = {.peak_value = 0.01}, .weight_decay = 0.1, .clip_norm = 0.1},
};
enum {
    N_OPTIMIZERS = sizeof optimizers / sizeof optimizers[0],
    N_MODES = sizeof all_modes / sizeof all_modes[0]
};

static void the_environment_stays_and_does_not_matter(void **state)
{
    fixture *f = *state;
    for (int threads = 1; threads <= 2; threads++) {
        tow_context *outer = f->ctx;
        assert_int_equal(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = threads), &f->ctx), TOW_OK);
        for (size_t o = 0; o < N_OPTIMIZERS; o++) {
            live(f, &all_modes[0], &optimizers[o], false, f->a);
            for (size_t m = 1; m < N_MODES; m++) {
                live(f, &all_modes[m], &optimizers[o], optimizers[o].clip_norm == 0 && m != 3, f->b);
                assert_equal_files(f->a, f->b);
            }
        }
        tow_context_free(f->ctx);
        f->ctx = outer;
    }
}

/* Workers that were started by a thread with traps set have none. */
static void workers_do_not_trap(void **state)
{
    fixture *f = *state;
    tow_context *outer = f->ctx;
    trap_all(true);
    assert_int_equal(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 2), &f->ctx), TOW_OK);
    trap_all(false);
    live(f, &all_modes[4], &optimizers[0], false, f->a);
    tow_context_free(f->ctx);
    f->ctx = outer;
}

/* Graphs from text, and constants that no f32 holds. */
static void graphs_from_text_do_not_trap(void **state)
{
    fixture *f = *state;
    static const char text[] = "{ lambda ; x:f32[3]\"x\". let\n"
                               "    q:f32[3] = const[value=f32[3](3.0000001 1e-40 0.1)]\n"
                               "    z:f32[3] = const[value=f32[3](0.0 0.0 0.0)]\n"
                               "    a:f32[3] = mul x q\n"
                               "    b:f32[3] = div a z\n"
                               "    c:f32[3] = log b\n"
                               "    loss:f32[] = reduce_sum[axes=(0)] c\n"
                               "  in (loss) }";
    tow_graph *g = NULL, *gradient = NULL, *clean = NULL, *same = NULL;
    tow_array *in = NULL, *out[2] = {NULL, NULL};
    tow_type type = tow_make_type(TOW_F32, 1, (int64_t[]){3});
    mode_name = "trapping";
    assert_int_equal(tow_array_create(f->ctx, type, &in), TOW_OK);
    set_modes(&all_modes[4]);
    before = look();
    if (tow_graph_parse(f->ctx, text, &g) == TOW_OK) {
        CALL(f, tow_value_and_grad(g, 0, NULL, false, &gradient));
        CALL(f, tow_graph_cse(gradient, &same));
        CALL(f, tow_graph_dce(same, &clean));
        CALL(f, tow_evaluate(clean, &in, out));
    }
    assert_same_environment("tow_graph_parse");
    fesetenv(FE_DFL_ENV);
    if (!g) fail_msg("%s", tow_context_error(f->ctx));
    tow_graph_release(g);
    tow_graph_release(gradient);
    tow_graph_release(clean);
    tow_graph_release(same);
    tow_array_release(in);
    tow_array_release(out[0]);
    tow_array_release(out[1]);
}

/* ---- subnormal numbers ------------------------------------------------------------------------------------------- */

/* Gradients of about 1e-20: AdamW's second moments would be subnormal, and with the least eps, updates depend on
 * them. */
static void faint_gradients_are_the_same_everywhere(void **state)
{
    fixture *f = *state;
    static const tow_type types[2] = {{TOW_F32, 2, {ROWS, 31}}, {TOW_F32, 2, {ROWS, 5}}};
    static const tow_standard_optimizer faint[] = {
        {.learning_rate = {.peak_value = 0.01}, .eps = 2e-38},
        {.learning_rate = {.peak_value = 0.01}},
        {.kind = TOW_SGD, .learning_rate = {.peak_value = 0.01}, .momentum = 0.9},
    };
    static const double scales[] = {1e-19, 1e-30, 1e-38};
    for (size_t i = 0; i < 9; i++) {
        double scale = scales[i / 3];
        tow_mlp model = TOW_MLP(.features = {300, 5});
        for (int run = 0; run < 4; run++) {
            tow_context *ctx;
            assert_int_equal(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1 + run / 2), &ctx), TOW_OK);
            training t = {.batch = {exact_fractions(ctx, ROWS, 31), exact_fractions(ctx, ROWS, 5)}};
            tow_train_options options =
                TOW_TRAIN_OPTIONS(.optimizer = faint[i % 3], .n_inputs = 1, .input_types = &types[0], .n_extra = 1,
                                  .extra_types = &types[1], .loss = small_cross_entropy, .loss_user = &scale,
                                  .early_update = run % 2);
            if (tow_train_create(ctx, TOW_MODULE(&model), &options, &t.state) != TOW_OK)
                fail_msg("%s", tow_context_error(ctx));
            for (int n = 0; n < 4; n++) assert_int_equal(tow_train_step(t.state, t.batch, NULL), TOW_OK);
            assert_int_equal(tow_train_save(t.state, run == 0 ? f->a : f->b), TOW_OK);
            if (run > 0) assert_equal_files(f->a, f->b);
            stop(&t);
            tow_context_free(ctx);
        }
    }
}

static size_t count_subnormals(const fixture *f, const char *path)
{
    tow_tensors *tensors;
    size_t n = 0;
    assert_int_equal(tow_safetensors_read(f->ctx, path, &tensors), TOW_OK);
    for (size_t i = 0; i < tow_tensors_count(tensors); i++) {
        tow_array *array = tow_tensors_at(tensors, i);
        const float *data = tow_array_data(array);
        for (int64_t k = 0; k < tow_type_element_count(tow_array_type(array)); k++)
            n += fpclassify(data[k]) == FP_SUBNORMAL;
    }
    tow_tensors_free(tensors);
    return n;
}

/* Once the loss is 0, momenta fade away: on their way to 0 they are never subnormal, which would be slow. */
static void moments_fade_to_zero(void **state)
{
    fixture *f = *state;
    static const tow_type types[2] = {{TOW_F32, 2, {ROWS, 31}}, {TOW_F32, 2, {ROWS, 5}}};
    static const tow_standard_optimizer fading[] = {
        {.learning_rate = {.peak_value = 1e-9}, .b1 = 0.25, .b2 = 0.25},
        {.kind = TOW_SGD, .learning_rate = {.peak_value = 1e-9}, .momentum = 0.25},
        {.learning_rate = {.peak_value = 1e-9}, .b1 = 0.25, .b2 = 0.25, .clip_norm = 1},
    };
    if (!tow__arithmetic_flushes()) skip();
    for (size_t i = 0; i < 6; i++) {
        if (i / 3 && fading[i % 3].clip_norm > 0) continue;
        tow_mlp model = TOW_MLP(.features = {30, 5}, .no_bias = false);
        training t = {.batch = {exact_fractions(f->ctx, ROWS, 31), exact_fractions(f->ctx, ROWS, 5)}};
        double gone = 1;
        tow_train_options options =
            TOW_TRAIN_OPTIONS(.optimizer = fading[i % 3], .n_inputs = 1, .input_types = &types[0], .n_extra = 1,
                              .extra_types = &types[1], .loss = small_cross_entropy, .loss_user = &gone,
                              .early_update = i / 3 > 0);
        assert_int_equal(tow_train_create(f->ctx, TOW_MODULE(&model), &options, &t.state), TOW_OK);
        step(&t, 1);
        memset(tow_array_data(t.batch[0]), 0, tow_type_bytes(types[0])); /* no gradient for the first kernel */
        for (int n = 0; n < 80; n++) {
            step(&t, 1);
            if (n % 4) continue;
            save(f, &t, f->a);
            assert_int_equal(count_subnormals(f, f->a), 0);
        }
        tow_tensors *tensors;
        assert_int_equal(tow_safetensors_read(f->ctx, f->a, &tensors), TOW_OK);
        tow_array *m = tow_tensors_find(tensors, i % 3 == 1 ? "sgd/trace/Dense_0/kernel" : "adam/mu/Dense_0/kernel");
        assert_non_null(m);
        for (int64_t k = 0; k < 31 * 30; k++) assert_true(((const float *)tow_array_data(m))[k] == 0);
        tow_tensors_free(tensors);
        stop(&t);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(the_environment_stays_and_does_not_matter), TEST(workers_do_not_trap),  TEST(graphs_from_text_do_not_trap),
        TEST(faint_gradients_are_the_same_everywhere),   TEST(moments_fade_to_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
