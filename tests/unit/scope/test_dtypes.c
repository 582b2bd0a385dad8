/* dtype and param_dtype of the layers against Flax (tests/oracle/flax_dtypes.py); the defaults that TOW_PRECISION sets;
 * layers of one's own; errors.
 * Tests dtypes.c, transforms/precision.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/plain_context.h"
#include "tests/unit/support/shape_text.h"
#include "tow/tow.h"

#define TYPE(dtype, ...)                                                                                               \
    tow_make_type(dtype, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})

/* ---- the layers of the golden file ------------------------------------------------------------------------------- */

typedef struct setting {
    const char *name;
    tow_dtype x;
    tow_dtype dtype, param_dtype;
} setting;
static const setting settings[] = {
    {"mixed", TOW_F32, TOW_BF16, 0},   {"mixed_f16", TOW_F32, TOW_F16, TOW_F32},
    {"stored", TOW_BF16, 0, TOW_BF16}, {"stored_f16", TOW_F16, 0, TOW_F16},
    {"promoted", TOW_BF16, 0, 0},      {"crossed", TOW_BF16, 0, TOW_F16},
    {"wide", TOW_F32, 0, TOW_F64},     {"narrow", TOW_F64, TOW_F32, TOW_BF16},
};

static const setting *setting_called(const char *name)
{
    size_t i = 0;
    while (strcmp(settings[i].name, name) != 0) assert_true(++i < sizeof settings / sizeof *settings);
    return &settings[i];
}

typedef void (*case_use)(void *user, const tow_module *model, tow_type input);

/* Calls use(user, ...) for the layer of this name with these options; false if there is none. */
static bool with_case(const char *name, tow_dtype x, tow_dtype dtype, tow_dtype param_dtype, case_use use, void *user)
{
#define TYPES .dtype = dtype, .param_dtype = param_dtype
#define CASE(text, layer, input)                                                                                       \
    if (strcmp(name, text) == 0) {                                                                                     \
        use(user, TOW_MODULE(&(layer)), input);                                                                        \
        return true;                                                                                                   \
    }
#define RECURRENT .recurrent_kernel_init = tow_initializer_he_normal(), .bias_init = tow_initializer_normal(0.3)
    tow_simple_cell simple = TOW_SIMPLE_CELL(.features = 4, RECURRENT, TYPES);
    tow_simple_cell residual = TOW_SIMPLE_CELL(.features = 4, .residual = true, RECURRENT, TYPES);
    tow_lstm_cell lstm = TOW_LSTM_CELL(.features = 4, RECURRENT, TYPES);
    tow_optimized_lstm_cell optimized = TOW_OPTIMIZED_LSTM_CELL(.features = 4, RECURRENT, TYPES);
    tow_gru_cell gru = TOW_GRU_CELL(.features = 4, RECURRENT, TYPES);
    tow_mgu_cell mgu = TOW_MGU_CELL(.features = 4, .recurrent_kernel_init = tow_initializer_he_normal(), TYPES);
    tow_conv_lstm_cell conv_lstm = TOW_CONV_LSTM_CELL(.features = 3, .kernel_size = {3}, TYPES);
    CASE("rnn_simple", TOW_RNN(&simple), TYPE(x, 2, 4, 3))
    CASE("rnn_residual", TOW_RNN(&residual), TYPE(x, 2, 4, 3))
    CASE("rnn_lstm", TOW_RNN(&lstm), TYPE(x, 2, 4, 3))
    CASE("rnn_optimized", TOW_RNN(&optimized), TYPE(x, 2, 4, 3))
    CASE("rnn_gru", TOW_RNN(&gru), TYPE(x, 2, 4, 3))
    CASE("rnn_mgu", TOW_RNN(&mgu), TYPE(x, 2, 4, 3))
    CASE("rnn_conv", TOW_RNN(&conv_lstm), TYPE(x, 2, 3, 4, 2))
    CASE("dense", TOW_DENSE(.features = 6, TYPES), TYPE(x, 3, 5))
    CASE("dense_drawn",
         TOW_DENSE(.features = 6, .kernel_init = tow_initializer_normal(0.3), .bias_init = tow_initializer_uniform(0.5),
                   TYPES),
         TYPE(x, 3, 5))
    CASE("dense_plain", TOW_DENSE(.features = 6, .no_bias = true, .kernel_init = tow_initializer_he_uniform(), TYPES),
         TYPE(x, 3, 5))
    CASE("general", TOW_DENSE_GENERAL(.features = {3, 2}, .n_batch_dims = 1, TYPES), TYPE(x, 2, 4, 5))
    CASE("mlp", TOW_MLP(.features = {7, 4}, TYPES), TYPE(x, 3, 5))
    CASE("embed", TOW_EMBED(.num_embeddings = 5, .features = 4, TYPES), TYPE(TOW_I32, 2, 3))
    CASE("layer_norm", TOW_LAYER_NORM(TYPES), TYPE(x, 3, 9))
    CASE("layer_norm_bare", TOW_LAYER_NORM(.no_scale = true, .no_bias = true, TYPES), TYPE(x, 3, 9))
    CASE("rms_norm", TOW_RMS_NORM(.scale_init = tow_initializer_normal(0.5), TYPES), TYPE(x, 3, 9))
    CASE("conv", TOW_CONV(.features = 4, .kernel_size = {3, 3}, TYPES), TYPE(x, 2, 5, 4, 3))
    CASE("conv_circular",
         TOW_CONV(.features = 4, .kernel_size = {3}, .padding = TOW_CONV_CIRCULAR,
                  .bias_init = tow_initializer_normal(0.5), TYPES),
         TYPE(x, 2, 6, 3))
    CASE("conv_transpose", TOW_CONV_TRANSPOSE(.features = 3, .kernel_size = {3}, .strides = {2}, TYPES),
         TYPE(x, 2, 4, 2))
    CASE("batch_norm", TOW_BATCH_NORM(TYPES), TYPE(x, 6, 5))
    CASE("group_norm", TOW_GROUP_NORM(.groups = 2, TYPES), TYPE(x, 2, 4, 6))
    CASE("instance_norm", TOW_INSTANCE_NORM(.bias_init = tow_initializer_normal(0.5), TYPES), TYPE(x, 2, 5, 3))
    CASE("prelu", TOW_PRELU(.slope_init = tow_initializer_constant(0.3), TYPES), TYPE(x, 3, 5))
    CASE("attention", TOW_MULTI_HEAD_ATTENTION(.heads = 2, TYPES), TYPE(x, 2, 5, 8))
    CASE("gated_mlp", TOW_GATED_MLP(.features = 6, TYPES), TYPE(x, 3, 5))
    CASE("positions", TOW_LEARNED_POSITIONS(TYPES), TYPE(x, 2, 3, 5))
    CASE("block", TOW_TRANSFORMER_BLOCK(.heads = 2, .causal = true, .mlp_features = 8, TYPES), TYPE(x, 2, 3, 4))
    CASE("block_modern",
         TOW_TRANSFORMER_BLOCK(.heads = 2, .mlp_features = 8, .rope = true, .rms_norm = true, .gated = true,
                               .no_bias = true, .qk_norm = TOW_QK_RMS_NORM, .head_gates = true, TYPES),
         TYPE(x, 2, 3, 8))
    CASE("einsum",
         TOW_EINSUM(.spec = "bd,dhk->bhk", .shape = {5, 2, 4}, .bias_init = tow_initializer_normal(0.5), TYPES),
         TYPE(x, 3, 5))
    return false;
#undef CASE
#undef RECURRENT
#undef TYPES
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static double fraction(int64_t i) { return (double)((i * 7919) % 257 - 128) / 64; }

static tow_array *fractions(tow_type type)
{
    static const int32_t indices[] = {0, 4, 2, 1, 4, 3};
    tow_array *exact, *array;
    if (type.dtype == TOW_I32) {
        OK(tow_array_from_data(ctx, type, indices, &array));
        return array;
    }
    OK(tow_array_create(ctx, tow_make_type(TOW_F64, type.rank, type.dims), &exact));
    for (int64_t i = 0; i < tow_type_element_count(type); i++) ((double *)tow_array_data(exact))[i] = fraction(i);
    OK(tow_array_convert(exact, type.dtype, &array));
    tow_array_release(exact);
    return array;
}

/* sum(output * fractions) in f32 or f64, and the output */
static void weighted_sum(tow_trace *t, const tow_value *outputs, const tow_value *extra, tow_value *loss,
                         tow_value *aux, void *user)
{
    (void)extra, (void)user;
    tow_value wide = outputs[0];
    if (tow_value_type(wide).dtype != TOW_F64) wide = tow_convert(wide, TOW_F32);
    tow_array *weights = fractions(tow_value_type(wide));
    *loss = tow_reduce_sum(tow_mul(wide, tow_constant(t, weights)), 0, NULL);
    aux[0] = outputs[0];
    tow_array_release(weights);
}

enum {
    MOST = 32
};
typedef struct results {
    tow_params *params, *state;
    size_t n;
    tow_array *arrays[MOST]; /* loss, output, new variables, gradients of parameters and of the input */
    tow_array *eval;
} results;

static void evaluate_again(results *r, const tow_module *model, tow_type type, tow_array *x)
{
    size_t n = tow_params_count(r->params);
    tow_model_options options = TOW_MODEL_OPTIONS(.state = r->state, .deterministic = true);
    tow_array *in[MOST];
    tow_graph *graph;
    OK(tow_model_forward_graph(model, r->params, 1, &type, &options, &graph));
    for (size_t i = 0; i < n; i++) in[i] = tow_params_array(r->params, i);
    for (size_t i = 0; i < tow_params_count(r->state); i++) in[n + i] = r->arrays[2 + i];
    in[n + tow_params_count(r->state)] = x;
    OK(tow_evaluate(graph, in, &r->eval));
    tow_graph_release(graph);
}

static void compute(void *user, const tow_module *model, tow_type type)
{
    static const char *const every[] = {TOW_EVERY_COLLECTION, NULL};
    results *r = user;
    OK(tow_model_init_with(ctx, model, 3, 1, &type, NULL, &r->params, &r->state));
    size_t n = tow_params_count(r->params), n_state = tow_params_count(r->state), wrt[MOST], n_wrt = 0;
    tow_model_options options = TOW_MODEL_OPTIONS(.state = r->state, .mutable_collections = n_state ? every : NULL);
    tow_graph *loss, *gradient;
    OK(tow_model_loss_graph(model, r->params, 1, &type, 0, NULL, weighted_sum, NULL, 1, &options, &loss));
    for (size_t i = 0; i < n; i++) wrt[n_wrt++] = i;
    if (type.dtype != TOW_I32) wrt[n_wrt++] = n + n_state;
    OK(tow_value_and_grad(loss, n_wrt, wrt, true, &gradient));
    r->n = 2 + n_state + n_wrt;
    tow_array *x = fractions(type), *in[MOST];
    for (size_t i = 0; i < n; i++) in[i] = tow_params_array(r->params, i);
    for (size_t i = 0; i < n_state; i++) in[n + i] = tow_params_array(r->state, i);
    in[n + n_state] = x;
    OK(tow_evaluate(gradient, in, r->arrays));
    if (n_state) evaluate_again(r, model, type, x);
    tow_array_release(x);
    tow_graph_release(loss);
    tow_graph_release(gradient);
}

static void release(results *r)
{
    for (size_t i = 0; i < r->n; i++) tow_array_release(r->arrays[i]);
    tow_array_release(r->eval);
    tow_params_free(r->params);
    tow_params_free(r->state);
    *r = (results){0};
}

/* ---- against Flax ------------------------------------------------------------------------------------------------ */

static tow_array *result_called(const results *r, const char *what)
{
    size_t n_state = tow_params_count(r->state);
    if (strcmp(what, "output") == 0) return r->arrays[1];
    if (strcmp(what, "input") == 0) return r->arrays[r->n - 1];
    if (strcmp(what, "eval") == 0) return r->eval;
    for (size_t i = 0; i < tow_params_count(r->params); i++) {
        if (strncmp(what, "param/", 6) == 0 && strcmp(tow_params_path(r->params, i), what + 6) == 0)
            return tow_params_array(r->params, i);
        if (strncmp(what, "grad/", 5) == 0 && strcmp(tow_params_path(r->params, i), what + 5) == 0)
            return r->arrays[2 + n_state + i];
    }
    for (size_t i = 0; i < n_state; i++)
        if (strncmp(what, "state/", 6) == 0 && strcmp(tow_params_path(r->state, i), what + 6) == 0)
            return r->arrays[2 + i];
    fail_msg("nothing is called %s", what);
    return NULL;
}

/* The difference that other orders of sums, and a rounding more or less within a formula, may make, relative to the
 * largest element. XLA sums cotangents of 16 bits in 16 bits. */
static double tolerance(const char *name, const setting *s, const char *what, tow_dtype found)
{
    double sums = strncmp(what, "grad/", 5) == 0 ? 2 : 1;
    if (strcmp(name, "attention") == 0) sums = 4; /* Flax rounds logits and weights between its four products */
    if (strncmp(name, "rnn", 3) == 0) sums *= 4;  /* roundings of four steps, each of which reads the one before */
    if (strcmp(what, "grad/key/bias") == 0)
        sums = 16; /* it is zero: a softmax ignores what all logits have in common */
    bool bf16 = s->x == TOW_BF16 || s->dtype == TOW_BF16 || found == TOW_BF16;
    bool f16 = s->x == TOW_F16 || s->dtype == TOW_F16 || s->param_dtype == TOW_F16 || found == TOW_F16;
    if (bf16) return sums * 0x1p-7;
    if (f16) return sums * 0x1p-10;
    if (strstr(name, "norm")) return 2e-5; /* in "wide", Flax takes statistics of the input in f32, here they are f64 */
    return found == TOW_F64 && s->dtype == 0 ? 1e-12 : 2e-5;
}

static void compare(FILE *file, const char *name, const setting *s, const char *what, const tow_array *array)
{
    tow_array *wide;
    OK(tow_array_convert(array, TOW_F64, &wide));
    double largest = 1, error = 0, expected;
    bool exact = strncmp(what, "param/", 6) == 0;
    for (int64_t i = 0; i < tow_type_element_count(tow_array_type(array)); i++) {
        assert_int_equal(fscanf(file, "%lf", &expected), 1);
        double found = ((const double *)tow_array_data(wide))[i], digits = 1e-5 * fabs(expected); /* as printed */
        if (exact && tow_array_type(array).dtype == TOW_F64) digits = 0;
        if (exact && tow_array_type(array).dtype == TOW_F32) digits = 1e-8 * fabs(expected);
        if (exact && !(fabs(expected - found) <= digits))
            fail_msg("%s %s %s[%d]: expected %.9g, found %.9g", name, s->name, what, (int)i, expected, found);
        largest = fmax(largest, fabs(expected));
        if (!(fabs(expected - found) <= error)) error = fabs(expected - found);
    }
    if (!(error <= tolerance(name, s, what, tow_array_type(array).dtype) * largest))
        fail_msg("%s %s %s: differs by %g, largest element %g", name, s->name, what, error, largest);
    tow_array_release(wide);
}

/* Types and initial values are equal, results close. */
static void test_golden(void **unused)
{
    (void)unused;
    FILE *file = fopen(TOW_TEST_DATA "/oracle/golden/flax_dtypes.txt", "r");
    assert_non_null(file);
    char name[64], of[32], what[128], dtype[8], shape[128], found[128], last[100] = "", now[100];
    int lines = 0;
    results r = {0};
    for (; fscanf(file, "%63s %31s %127s %7s %127s", name, of, what, dtype, shape) == 5; lines++) {
        const setting *s = setting_called(of);
        snprintf(now, sizeof now, "%s %s", name, of);
        if (strcmp(now, last) != 0) {
            release(&r);
            if (!with_case(name, s->x, s->dtype, s->param_dtype, compute, &r)) fail_msg("no case %s", name);
            strcpy(last, now);
        }
        tow_array *array = result_called(&r, what);
        tow_type type = tow_array_type(array);
        if (strcmp(tow_dtype_name(type.dtype), dtype) != 0 || strcmp(shape_text(type, found), shape) != 0)
            fail_msg("%s %s: expected %s %s, found %s %s", now, what, dtype, shape, tow_dtype_name(type.dtype), found);
        compare(file, name, s, what, array);
    }
    assert_true(feof(file));
    fclose(file);
    assert_int_equal(lines, 1828);
    release(&r);
}

/* ---- the defaults of a model ------------------------------------------------------------------------------------- */

static void expect_equal(const char *name, const results *a, const results *b)
{
    assert_int_equal(a->n, b->n);
    for (size_t i = 0; i < a->n; i++) {
        tow_type type = tow_array_type(a->arrays[i]);
        if (!tow_type_equal(type, tow_array_type(b->arrays[i])) ||
            memcmp(tow_array_data(a->arrays[i]), tow_array_data(b->arrays[i]), tow_type_bytes(type)))
            fail_msg("%s: result %zu is not equal", name, i);
    }
}

typedef struct precise {
    const setting *s;
    results *r;
    int wrapped; /* 1: in remat, 2: TOW_PRECISION twice, the inner one decides */
} precise;

static void compute_precise(void *user, const tow_module *model, tow_type type)
{
    const precise *p = user;
    tow_precision layer = {.module = {&tow_precision_class, sizeof(tow_precision)},
                           .inner = model,
                           .dtype = p->s->dtype,
                           .param_dtype = p->s->param_dtype};
    tow_remat remat = TOW_REMAT(&layer);
    tow_precision outer = TOW_PRECISION(&layer, .dtype = TOW_F64, .param_dtype = TOW_F64);
    if (p->wrapped == 2 && (!p->s->dtype || !p->s->param_dtype)) return; /* zero is what the outer one says */
    compute(p->r, p->wrapped == 0 ? &layer.module : p->wrapped == 1 ? &remat.module : &outer.module, type);
}

/* A TOW_PRECISION around a layer without options gives the bits of the layer with them: also in a remat, and in another
 * one. */
static void test_defaults(void **unused)
{
    (void)unused;
    const char *const names[] = {
        "dense",  "general",        "mlp",        "embed",      "layer_norm",    "rms_norm",
        "conv",   "conv_transpose", "batch_norm", "group_norm", "instance_norm", "prelu",
        "einsum", "attention",      "gated_mlp",  "positions",  "block",         "block_modern"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t k = 0; k < sizeof settings / sizeof *settings; k++)
            for (int wrapped = 0; wrapped < 3; wrapped++) {
                results a = {0}, b = {0};
                precise p = {&settings[k], &b, wrapped};
                assert_true(
                    with_case(names[i], settings[k].x, settings[k].dtype, settings[k].param_dtype, compute, &a));
                assert_true(with_case(names[i], settings[k].x, 0, 0, compute_precise, &p));
                if (b.n) expect_equal(names[i], &a, &b);
                release(&a);
                release(&b);
            }
}

/* A block adds branches of 16 bits to what comes in, which keeps its wider type: so a stack of them is a scan. */
static void test_block_types(void **unused)
{
    (void)unused;
    const struct {
        tow_dtype x;
        tow_dtype dtype, param_dtype;
        tow_dtype out;
    } cases[] = {
        {TOW_F32, TOW_BF16, 0, TOW_F32},      {TOW_BF16, TOW_BF16, 0, TOW_BF16}, {TOW_BF16, 0, 0, TOW_F32},
        {TOW_BF16, 0, TOW_BF16, TOW_BF16},    {TOW_F16, TOW_F16, 0, TOW_F16},    {TOW_F32, 0, TOW_F64, TOW_F64},
        {TOW_F64, TOW_F32, TOW_F16, TOW_F64},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow_transformer_block block =
            TOW_TRANSFORMER_BLOCK(.heads = 2, .dtype = cases[i].dtype, .param_dtype = cases[i].param_dtype);
        tow_scan stack = TOW_SCAN(&block, .length = 2);
        results r = {0};
        tow_type x = TYPE(cases[i].x, 2, 3, 4);
        compute(&r, cases[i].x == cases[i].out ? &stack.module : &block.module, x);
        assert_int_equal(tow_array_type(r.arrays[1]).dtype, cases[i].out);
        release(&r);
    }
}

/* One line for a whole model: parameters and gradients are f32, what flows is bf16, the result f32 again. A layer's own
 * option goes first. */
static void test_mixed_precision(void **unused)
{
    (void)unused;
    tow_dense first = TOW_DENSE(.features = 6), last = TOW_DENSE(.features = 2, .dtype = TOW_F32);
    tow_layer_norm norm = TOW_LAYER_NORM();
    tow_sequential inner = TOW_SEQUENTIAL(TOW_MODULE(&first), TOW_MODULE(&norm));
    tow_precision model = TOW_PRECISION(&inner, .dtype = TOW_BF16, .output_dtype = TOW_F32);
    tow_sequential own = TOW_SEQUENTIAL(TOW_MODULE(&first), TOW_MODULE(&norm), TOW_MODULE(&last));
    tow_precision own_model = TOW_PRECISION(&own, .dtype = TOW_BF16, .param_dtype = TOW_BF16);
    results r = {0};
    compute(&r, TOW_MODULE(&model), TYPE(TOW_F32, 4, 3));
    assert_int_equal(tow_array_type(r.arrays[1]).dtype, TOW_F32);
    for (size_t i = 2; i < r.n; i++) assert_int_equal(tow_array_type(r.arrays[i]).dtype, TOW_F32);
    const float *y = tow_array_data(r.arrays[1]);
    for (int i = 0; i < 24; i++) { /* numbers of bf16 */
        uint32_t bits;
        memcpy(&bits, &y[i], sizeof bits);
        assert_int_equal(bits & 0xFFFF, 0);
    }
    release(&r);
    compute(&r, TOW_MODULE(&own_model), TYPE(TOW_F32, 4, 3));
    assert_int_equal(tow_array_type(r.arrays[1]).dtype, TOW_F32);
    for (size_t i = 0; i < tow_params_count(r.params); i++)
        assert_int_equal(tow_array_type(tow_params_array(r.params, i)).dtype, TOW_BF16);
    release(&r);
}

/* A stack as a loop, whose parameters are rows of bf16 stacks, has the values of the unrolled one. */
static void test_scan(void **unused)
{
    (void)unused;
    tow_dense dense = TOW_DENSE(.features = 5, .param_dtype = TOW_BF16, .dtype = TOW_BF16);
    tow_remat remat = TOW_REMAT(&dense);
    tow_scan loop = TOW_SCAN(&remat, .length = 3), unrolled = TOW_SCAN(&remat, .length = 3, .unrolled = true);
    results a = {0}, b = {0};
    compute(&a, TOW_MODULE(&loop), TYPE(TOW_BF16, 2, 5));
    compute(&b, TOW_MODULE(&unrolled), TYPE(TOW_BF16, 2, 5));
    tow_type stack = tow_array_type(tow_params_find(a.params, "{}/kernel"));
    assert_true(stack.dtype == TOW_BF16 && stack.rank == 3 && stack.dims[0] == 3);
    assert_memory_equal(tow_array_data(tow_params_find(a.params, "{}/kernel")),
                        tow_array_data(tow_params_find(b.params, "0/kernel")), 50);
    assert_memory_equal(tow_array_data(a.arrays[1]), tow_array_data(b.arrays[1]), 20);
    release(&a);
    release(&b);
}

/* Wrappers that norm parameters compute in f32 and give parameters back in their type. */
static void test_normed_parameters(void **unused)
{
    (void)unused;
    for (int spectral = 0; spectral < 2; spectral++) {
        results f32 = {0}, half = {0};
        for (int i = 0; i < 2; i++) {
            tow_dense dense =
                TOW_DENSE(.features = 4, .kernel_init = tow_initializer_constant(0.25)); /* exact in bf16 */
            tow_weight_norm weight = TOW_WEIGHT_NORM(&dense);
            tow_spectral_norm norm = TOW_SPECTRAL_NORM(&dense, .n_steps = 3);
            const tow_module *inner = spectral ? &norm.module : &weight.module;
            tow_precision model = {.module = {&tow_precision_class, sizeof(tow_precision)},
                                   .inner = inner,
                                   .param_dtype = i ? TOW_BF16 : 0};
            compute(i ? &half : &f32, TOW_MODULE(&model), TYPE(i ? TOW_BF16 : TOW_F32, 3, 5));
        }
        assert_int_equal(tow_array_type(half.arrays[1]).dtype, TOW_BF16);
        tow_array *wide;
        OK(tow_array_convert(half.arrays[1], TOW_F32, &wide));
        for (int i = 0; i < 12; i++) {
            float expected = ((float *)tow_array_data(f32.arrays[1]))[i], found = ((float *)tow_array_data(wide))[i];
            if (!(fabsf(expected - found) <= 0x1p-6F * fmaxf(1, fabsf(expected))))
                fail_msg("%s[%d]: expected %g, found %g", spectral ? "SpectralNorm" : "WeightNorm", i, (double)expected,
                         (double)found);
        }
        tow_array_release(wide);
        release(&f32);
        release(&half);
    }
}

/* ---- layers of one's own ----------------------------------------------------------------------------------------- */

typedef struct scaled {
    tow_module module;
    tow_dtype dtype;
} scaled;
static void call_scaled(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    const scaled *m = (const scaled *)module;
    (void)n_in, (void)n_out;
    tow_value v[3] = {in[0], tow_param(s, "gain", 0, NULL, tow_initializer_constant(0.1))};
    tow_dtype dtype = tow_promote(s, m->dtype, 2, v);
    if (!tow_is_null(v[0])) assert_int_equal(tow_value_type(v[0]).dtype, dtype);
    out[0] = tow_mul(v[0], v[1]);
}
static const tow_module_class scaled_class = {"Scaled", call_scaled};

static void test_own_layer(void **unused)
{
    (void)unused;
    const struct {
        tow_dtype x;
        tow_dtype own, dtype, param_dtype;
        tow_dtype param, out;
    } cases[] = {
        {TOW_F32, 0, 0, 0, TOW_F32, TOW_F32},
        {TOW_BF16, 0, 0, 0, TOW_F32, TOW_F32},
        {TOW_BF16, 0, 0, TOW_BF16, TOW_BF16, TOW_BF16},
        {TOW_F32, 0, TOW_BF16, 0, TOW_F32, TOW_BF16},
        {TOW_F32, TOW_F64, TOW_BF16, TOW_F16, TOW_F16, TOW_F64},
        {TOW_F64, TOW_F32, TOW_BF16, TOW_F64, TOW_F64, TOW_F32},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scaled layer = {{&scaled_class}, cases[i].own};
        tow_precision model = TOW_PRECISION(&layer, .dtype = cases[i].dtype, .param_dtype = cases[i].param_dtype);
        results r = {0};
        compute(&r, TOW_MODULE(&model), TYPE(cases[i].x, 3));
        assert_int_equal(tow_array_type(tow_params_array(r.params, 0)).dtype, cases[i].param);
        assert_int_equal(tow_array_type(r.arrays[1]).dtype, cases[i].out);
        release(&r);
    }
    assert_int_equal(tow_promote_types(TOW_BF16, TOW_F16), TOW_F32);
    assert_int_equal(tow_promote_types(TOW_F16, TOW_F16), TOW_F16);
    assert_int_equal(tow_promote_types(TOW_F64, TOW_F16), TOW_F64);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static void expect_failure(const tow_module *model, tow_dtype x, tow_status status, const char *text)
{
    tow_type type = TYPE(x, 3, 5);
    tow_params *params;
    tow_status found = tow_model_init(ctx, model, 1, 1, &type, &params);
    if (found != status || !strstr(tow_context_error(ctx), text))
        fail_msg("expected \"%s\", found \"%s\"", text, tow_context_error(ctx));
    assert_null(params);
}

static void test_errors(void **unused)
{
    (void)unused;
    tow_dense wrong = TOW_DENSE(.features = 2, .dtype = TOW_I32), params = TOW_DENSE(.features = 2, .param_dtype = 99);
    tow_dense dense = TOW_DENSE(.features = 2);
    tow_layer_norm norm = TOW_LAYER_NORM(.dtype = (tow_dtype)-1);
    tow_precision around = TOW_PRECISION(&dense, .dtype = TOW_BOOL),
                  output = TOW_PRECISION(&dense, .output_dtype = TOW_U8);
    scaled own = {{&scaled_class}, TOW_I64};
    expect_failure(TOW_MODULE(&wrong), TOW_F32, TOW_INVALID_ARGUMENT, "Dense: .dtype = 3 (i32); expected TOW_F32");
    expect_failure(TOW_MODULE(&params), TOW_F32, TOW_INVALID_ARGUMENT, "Dense: .param_dtype = 99 (no element type)");
    expect_failure(TOW_MODULE(&norm), TOW_F32, TOW_INVALID_ARGUMENT, "LayerNorm: .dtype = -1");
    expect_failure(TOW_MODULE(&around), TOW_F32, TOW_INVALID_ARGUMENT, "Precision: .dtype = 5 (bool)");
    expect_failure(TOW_MODULE(&output), TOW_F32, TOW_INVALID_ARGUMENT, "Precision: .output_dtype = 9 (u8)");
    expect_failure(TOW_MODULE(&own), TOW_F32, TOW_INVALID_ARGUMENT, "layer: .dtype = 10 (i64)");
    expect_failure(TOW_MODULE(&dense), TOW_I32, TOW_TYPE_MISMATCH, "expected f32, f64, bf16 or f16 of rank 1");
    /* Parameters of one model given to the other. */
    tow_dense half = TOW_DENSE(.features = 2, .param_dtype = TOW_BF16);
    tow_type type = TYPE(TOW_F32, 3, 5);
    tow_params *given;
    tow_graph *graph;
    OK(tow_model_init(ctx, TOW_MODULE(&dense), 1, 1, &type, &given));
    assert_int_equal(tow_model_forward_graph(TOW_MODULE(&half), given, 1, &type, NULL, &graph), TOW_TYPE_MISMATCH);
    assert_non_null(strstr(tow_context_error(ctx),
                           "params/kernel: the layer asks for bf16[5,2], the parameter is f32[5,2]; "
                           "set .param_dtype"));
    tow_params_free(given);
}

static void test_failing_allocations(void **unused)
{
    (void)unused;
    for (long fail_at = 0;; fail_at++) {
        counting c;
        tow_context_options options = counting_options(&c, fail_at);
        tow_context *context = NULL;
        tow_params *params = NULL;
        tow_dense dense = TOW_DENSE(.features = 3);
        tow_precision model = TOW_PRECISION(&dense, .dtype = TOW_F16, .param_dtype = TOW_BF16, .output_dtype = TOW_F64);
        tow_type type = TYPE(TOW_F32, 2, 2);
        tow_status status = tow_context_create(&options, &context);
        if (!status) status = tow_model_init(context, TOW_MODULE(&model), 1, 1, &type, &params);
        assert_true(status == TOW_OK || status == TOW_OUT_OF_MEMORY);
        assert_true((status == TOW_OK) == (params != NULL));
        tow_params_free(params);
        tow_context_free(context);
        assert_int_equal(c.blocks, 0);
        if (status == TOW_OK) break;
    }
}

/* ---- sums of branches -------------------------------------------------------------------------------------------- */

/* A block adds branches of bf16 to what is f32 in f32, also where norms stand behind the sums, so that a stack of them
 * is a scan. */
static void test_blocks_keep_the_type_of_their_input(void **unused)
{
    (void)unused;
    for (int i = 0; i < 16; i++) {
        const bool half = i & 8;
        tow_transformer_block block = TOW_TRANSFORMER_BLOCK(.heads = 2, .mlp_features = 8, .post_norm = i & 1,
                                                            .rms_norm = i & 2, .causal = i & 4, .dtype = TOW_BF16);
        const tow_scan stack = TOW_SCAN(&block, .length = 3);
        const tow_named model = TOW_NAMED("blocks", &stack);
        const tow_type x = TYPE(half ? TOW_BF16 : TOW_F32, 2, 3, 4);
        tow_params *params = NULL;
        tow_graph *graph = NULL;
        OK(tow_model_init(ctx, TOW_MODULE(&model), 0, 1, &x, &params));
        OK(tow_model_forward_graph(TOW_MODULE(&model), params, 1, &x, NULL, &graph));
        assert_int_equal(tow_graph_output_type(graph, 0).dtype, x.dtype);
        tow_graph_release(graph);
        tow_params_free(params);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_block_types),
        cmocka_unit_test(test_mixed_precision),
        cmocka_unit_test(test_scan),
        cmocka_unit_test(test_normed_parameters),
        cmocka_unit_test(test_own_layer),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_blocks_keep_the_type_of_their_input),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
