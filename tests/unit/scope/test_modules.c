/* Scopes, parameters and lifted transforms: wrapping a layer in remat and scan, in any order, changes neither names nor
 * values nor random streams nor a bit of loss and gradients; files of scanned and unrolled models are the same; errors
 * name the path.
 * Tests layers/dropout.c, layers/embed.c, model/model.c, transforms/remat.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tow/attention.h"
#include "tow/autodiff.h"
#include "tow/model.h"
#include "tow/transforms.h"

#define TYPE(dtype, ...)                                                                                               \
    tow_make_type(dtype, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})

/* ---- a model: embedding, a stack that is wrapped in one of many ways, norm, tied output -------------------------- */

typedef struct gpt {
    tow_module module;
    tow_embed tokens;
    const tow_module *blocks;
    tow_layer_norm norm;
} gpt;

static void call_gpt(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                     tow_value *out)
{
    (void)n_in, (void)n_out;
    const gpt *m = (const gpt *)module;
    tow_value x = tow_apply(s, "tokens", &m->tokens, in[0]);
    x = tow_apply_module(s, "blocks", m->blocks, x);
    x = tow_apply(s, "norm", &m->norm, x);
    out[0] = tow_embed_attend(s, "tokens", &m->tokens, x);
}
static const tow_module_class gpt_class = {"gpt", call_gpt};

static gpt make_gpt(const tow_module *blocks)
{
    return (gpt){{&gpt_class}, TOW_EMBED(.num_embeddings = 11, .features = 8), blocks, TOW_LAYER_NORM()};
}

static void mean_cross_entropy(tow_trace *t, const tow_value *outputs, const tow_value *extra, tow_value *loss,
                               tow_value *aux, void *user)
{
    (void)t, (void)aux, (void)user;
    *loss = tow_mean(tow_softmax_cross_entropy(outputs[0], extra[0]), 0, NULL);
}

/* Tensors by per-layer names: the common form of scanned and unrolled. */
static tow_tensors *tensors_of(const tow_params *params)
{
    tow_tensors *tensors;
    OK(tow_tensors_create(ctx, &tensors));
    OK(tow_params_to_tensors(params, "", tensors));
    return tensors;
}

static void expect_same_tensors(const char *what, const tow_tensors *a, const tow_tensors *b)
{
    if (tow_tensors_count(a) != tow_tensors_count(b))
        fail_msg("%s: %zu tensors and %zu", what, tow_tensors_count(a), tow_tensors_count(b));
    for (size_t i = 0; i < tow_tensors_count(a); i++) {
        const char *name = tow_tensors_name(a, i);
        tow_array *x = tow_tensors_at(a, i), *y = tow_tensors_find(b, name);
        if (!y) fail_msg("%s: %s is missing", what, name);
        assert_true(tow_type_equal(tow_array_type(x), tow_array_type(y)));
        if (memcmp(tow_array_data(x), tow_array_data(y), tow_type_bytes(tow_array_type(x))) != 0)
            fail_msg("%s: %s differs", what, name);
    }
}

/* Parameters, loss and gradients of one variant of the model. */
typedef struct run {
    tow_params *params;
    tow_tensors *values, *gradients;
    float loss;
} run;

enum {
    BATCH = 2,
    TIME = 5
};

static run run_model(const tow_module *blocks, const char *const *streams, uint32_t stream_seed)
{
    run r;
    gpt model = make_gpt(blocks);
    tow_type tokens = TYPE(TOW_I32, BATCH, TIME), key_type = TYPE(TOW_U32, 2);
    tow_model_options options = TOW_MODEL_OPTIONS(.streams = streams);
    OK(tow_model_init(ctx, TOW_MODULE(&model), 5, 1, &tokens, &r.params));
    tow_graph *loss, *gradient;
    OK(tow_model_loss_graph(TOW_MODULE(&model), r.params, 1, &tokens, 1, &tokens, mean_cross_entropy, NULL, 0, &options,
                            &loss));
    OK(tow_graph_check(loss));
    size_t n = tow_params_count(r.params), wrt[128];
    for (size_t i = 0; i < n; i++) wrt[i] = i;
    OK(tow_value_and_grad(loss, n, wrt, false, &gradient));
    OK(tow_graph_check(gradient));
    tow_array *in[128], *out[128];
    for (size_t i = 0; i < n; i++) in[i] = tow_params_array(r.params, i);
    int32_t data[BATCH * TIME], labels[BATCH * TIME];
    for (int i = 0; i < BATCH * TIME; i++) data[i] = (i * 7 + 3) % 11, labels[i] = (i * 5 + 1) % 11;
    OK(tow_array_from_data(ctx, tokens, data, &in[n]));
    OK(tow_array_from_data(ctx, tokens, labels, &in[n + 1]));
    OK(tow_array_from_data(ctx, key_type, (uint32_t[]){0, stream_seed}, &in[n + 2]));
    OK(tow_evaluate(gradient, in, out));
    r.loss = *(float *)tow_array_data(out[0]);
    tow_params *as_params;
    OK(tow_params_zeros_like(r.params, &as_params));
    for (size_t i = 0; i < n; i++)
        memcpy(tow_array_data(tow_params_array(as_params, i)), tow_array_data(out[1 + i]),
               tow_type_bytes(tow_array_type(out[1 + i])));
    r.values = tensors_of(r.params);
    r.gradients = tensors_of(as_params);
    tow_params_free(as_params);
    for (size_t i = 0; i <= n; i++) tow_array_release(out[i]);
    for (size_t i = n; i < n + 3; i++) tow_array_release(in[i]);
    tow_graph_release(loss);
    tow_graph_release(gradient);
    return r;
}

static void free_run(run *r)
{
    tow_params_free(r->params);
    tow_tensors_free(r->values);
    tow_tensors_free(r->gradients);
}

static void expect_same_run(const char *what, const run *a, const run *b)
{
    expect_same_tensors(what, a->values, b->values);
    if (memcmp(&a->loss, &b->loss, sizeof a->loss) != 0)
        fail_msg("%s: loss %.9g and %.9g", what, (double)a->loss, (double)b->loss);
    expect_same_tensors(what, a->gradients, b->gradients);
}

static const char *const with_dropout[] = {"dropout", NULL};

/* Every policy, wrapping and order of wrapping against the plain unrolled stack. */
static void expect_wrapping_is_invisible(tow_transformer_block block, const char *const *streams)
{
    tow_scan plain = TOW_SCAN(&block, .length = 3, .unrolled = true);
    run reference = run_model(TOW_MODULE(&plain), streams, 9);
    assert_true(reference.loss > 1 && reference.loss < 10);

    const tow_policy dots = tow_dots_saveable();
    const struct {
        const char *name;
        tow_policy policy;
    } policies[] = {{"nothing", tow_nothing_saveable()},
                    {"everything", tow_everything_saveable()},
                    {"dots", dots},
                    {"dots_with_no_batch_dims", tow_dots_with_no_batch_dims_saveable()},
                    {"names", tow_save_only_these_names("attn_out", "mlp_pre")},
                    {"any but", tow_save_any_names_but_these("query")},
                    {"anything except", tow_save_anything_except_these_names("mlp_act")},
                    {"dots except", tow_save_except_names(&dots, "mlp_out")}};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        tow_remat inner = TOW_REMAT(&block, .policy = policies[i].policy);
        tow_scan scanned = TOW_SCAN(&block, .length = 3), scan_remat = TOW_SCAN(&inner, .length = 3);
        tow_scan loop_remat = TOW_SCAN(&inner, .length = 3, .unrolled = true);
        tow_remat remat_scan = TOW_REMAT(&scanned, .policy = policies[i].policy);
        tow_remat both = TOW_REMAT(&scan_remat, .policy = policies[i].policy);
        tow_remat twice = TOW_REMAT(&inner);
        tow_scan scan_twice = TOW_SCAN(&twice, .length = 3);
        const struct {
            const char *name;
            const tow_module *module;
        } wrappings[] = {{"scan", TOW_MODULE(&scanned)},
                         {"scan(remat)", TOW_MODULE(&scan_remat)},
                         {"unrolled remat", TOW_MODULE(&loop_remat)},
                         {"remat(scan)", TOW_MODULE(&remat_scan)},
                         {"remat(scan(remat))", TOW_MODULE(&both)},
                         {"scan(remat(remat))", TOW_MODULE(&scan_twice)}};
        for (size_t k = 0; k < sizeof wrappings / sizeof *wrappings; k++) {
            if (i > 0 && k == 0) continue; /* has no policy */
            char what[96];
            snprintf(what, sizeof what, "%s, %s", wrappings[k].name, policies[i].name);
            run r = run_model(wrappings[k].module, streams, 9);
            expect_same_run(what, &reference, &r);
            free_run(&r);
        }
    }
    free_run(&reference);
}

static void test_wrapping_is_invisible(void **state)
{
    (void)state;
    expect_wrapping_is_invisible(TOW_TRANSFORMER_BLOCK(.heads = 2, .mlp_features = 12, .causal = true), NULL);
}

static void test_wrapping_is_invisible_to_dropout(void **state)
{
    (void)state;
    expect_wrapping_is_invisible(TOW_TRANSFORMER_BLOCK(.heads = 2, .kv_heads = 1, .mlp_features = 12, .causal = true,
                                                       .dropout_rate = 0.25, .attn_dropout_rate = 0.25,
                                                       .rms_norm = true),
                                 with_dropout);
}

static void test_random_streams(void **state)
{
    (void)state;
    tow_transformer_block block = TOW_TRANSFORMER_BLOCK(.heads = 2, .dropout_rate = 0.5);
    tow_scan scanned = TOW_SCAN(&block, .length = 2);
    run a = run_model(TOW_MODULE(&scanned), with_dropout, 1), b = run_model(TOW_MODULE(&scanned), with_dropout, 2);
    assert_true(a.loss != b.loss); /* another key, another mask */
    free_run(&b);
    tow_scan flax = TOW_SCAN(&block, .length = 2, .keys = TOW_KEYS_FLAX);
    tow_scan flax_unrolled = TOW_SCAN(&block, .length = 2, .keys = TOW_KEYS_FLAX, .unrolled = true);
    run c = run_model(TOW_MODULE(&flax), with_dropout, 1), d = run_model(TOW_MODULE(&flax_unrolled), with_dropout, 1);
    expect_same_run("keys of Flax", &c, &d);
    assert_true(a.loss != c.loss);
    free_run(&a);
    free_run(&c);
    free_run(&d);
}

/* ---- dropout of a scan of scans, value by value ------------------------------------------------------------------ */

/* Appends its mask: carry [8], y [8]. */
static void call_masks(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    tow_dropout dropout = TOW_DROPOUT(.rate = 0.5);
    out[0] = in[0];
    out[1] = tow_apply(s, "drop", &dropout, in[0]);
}
static const tow_module_class masks_class = {"masks", call_masks};

static tow_array *evaluate_masks(const tow_module *model)
{
    tow_params *params;
    tow_type type = TYPE(TOW_F32, 32);
    tow_model_options options = TOW_MODEL_OPTIONS(.streams = with_dropout, .n_outputs = 2);
    OK(tow_model_init_with(ctx, model, 0, 1, &type, &options, &params, NULL));
    assert_int_equal(tow_params_count(params), 0);
    tow_graph *g;
    OK(tow_model_forward_graph(model, params, 1, &type, &options, &g));
    tow_array *in[2], *out[2];
    OK(tow_array_create(ctx, type, &in[0]));
    for (int i = 0; i < 32; i++) ((float *)tow_array_data(in[0]))[i] = 1;
    OK(tow_array_from_data(ctx, TYPE(TOW_U32, 2), (uint32_t[]){0, 77}, &in[1]));
    OK(tow_evaluate(g, in, out));
    tow_array_release(in[0]);
    tow_array_release(in[1]);
    tow_array_release(out[0]);
    tow_graph_release(g);
    tow_params_free(params);
    return out[1];
}

static void test_masks_of_nested_scans(void **state)
{
    (void)state;
    struct {
        tow_module module;
    } masks = {{&masks_class}};
    float kept[12 * 12][32];
    for (int unrolled = 0; unrolled < 4; unrolled++) { /* 12 iterations: indices 1, 11 and 11, 1 must not coincide */
        tow_scan inner = TOW_SCAN(&masks, .length = 12, .unrolled = unrolled & 1);
        tow_remat between = TOW_REMAT(&inner);
        tow_scan outer = TOW_SCAN(&between, .length = 12, .unrolled = unrolled >> 1);
        tow_array *array = evaluate_masks(TOW_MODULE(&outer));
        assert_true(tow_type_equal(tow_array_type(array), TYPE(TOW_F32, 12, 12, 32)));
        if (unrolled == 0)
            memcpy(kept, tow_array_data(array), sizeof kept);
        else
            assert_memory_equal(kept, tow_array_data(array), sizeof kept);
        tow_array_release(array);
    }
    for (int i = 0; i < 144; i++)
        for (int j = 0; j < i; j++) assert_memory_not_equal(kept[i], kept[j], sizeof kept[i]);
}

/* ---- xs, ys, broadcast inputs, reverse --------------------------------------------------------------------------- */

/* carry, broadcast b, x -> carry' = tanh(dense(carry)) * b + x, y = carry' * 2 */
static void call_step(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    (void)module, (void)n_out;
    assert_int_equal(n_in, 3);
    tow_dense dense = TOW_DENSE(.features = 4);
    out[0] = tow_add(tow_mul(tow_tanh(tow_apply(s, "dense", &dense, in[0])), in[1]), in[2]);
    out[1] = tow_mul_scalar(out[0], 2);
}
static const tow_module_class step_class = {"step", call_step};

static void run_steps(const tow_scan *scan, float carry[4], float ys[3][4])
{
    tow_type types[] = {TYPE(TOW_F32, 4), TYPE(TOW_F32, 4), TYPE(TOW_F32, 3, 4)};
    tow_model_options options = TOW_MODEL_OPTIONS(.n_outputs = 2);
    tow_params *params;
    OK(tow_model_init_with(ctx, TOW_MODULE(scan), 1, 3, types, &options, &params, NULL));
    tow_graph *g;
    OK(tow_model_forward_graph(TOW_MODULE(scan), params, 3, types, &options, &g));
    tow_array *in[16], *out[2];
    size_t n = tow_params_count(params);
    for (size_t i = 0; i < n; i++) in[i] = tow_params_array(params, i);
    for (size_t k = 0; k < 3; k++) {
        OK(tow_array_create(ctx, types[k], &in[n + k]));
        for (int64_t i = 0; i < tow_type_element_count(types[k]); i++)
            ((float *)tow_array_data(in[n + k]))[i] = (float)(i + 1) / 8;
    }
    OK(tow_evaluate(g, in, out));
    memcpy(carry, tow_array_data(out[0]), 4 * sizeof(float));
    memcpy(ys, tow_array_data(out[1]), 12 * sizeof(float));
    for (size_t k = 0; k < 3; k++) tow_array_release(in[n + k]);
    tow_array_release(out[0]);
    tow_array_release(out[1]);
    tow_graph_release(g);
    tow_params_free(params);
}

static void test_scan_inputs_and_outputs(void **state)
{
    (void)state;
    struct {
        tow_module module;
    } step = {{&step_class}};
    for (int reverse = 0; reverse < 2; reverse++) {
        tow_scan scanned = TOW_SCAN(&step, .n_broadcast = 1, .reverse = reverse); /* length from xs */
        tow_scan unrolled = TOW_SCAN(&step, .length = 3, .n_broadcast = 1, .reverse = reverse, .unrolled = true);
        float carry[2][4], ys[2][3][4];
        run_steps(&scanned, carry[0], ys[0]);
        run_steps(&unrolled, carry[1], ys[1]);
        assert_memory_equal(carry[0], carry[1], sizeof carry[0]);
        assert_memory_equal(ys[0], ys[1], sizeof ys[0]);
        for (int i = 0; i < 4; i++) assert_true(ys[0][reverse ? 0 : 2][i] == 2 * carry[0][i]); /* the last step's */
    }
}

/* ---- parameters: names, tables, files ---------------------------------------------------------------------------- */

static tow_params *init_gpt(const tow_module *blocks)
{
    gpt model = make_gpt(blocks);
    tow_type tokens = TYPE(TOW_I32, BATCH, TIME);
    tow_params *params;
    OK(tow_model_init(ctx, TOW_MODULE(&model), 5, 1, &tokens, &params));
    return params;
}

static void test_names_and_table(void **state)
{
    (void)state;
    tow_transformer_block block = TOW_TRANSFORMER_BLOCK(.heads = 2, .mlp_features = 12);
    tow_remat remat = TOW_REMAT(&block);
    tow_scan scanned = TOW_SCAN(&remat, .length = 3), unrolled = TOW_SCAN(&block, .length = 3, .unrolled = true);
    tow_params *params = init_gpt(TOW_MODULE(&scanned)), *flat = init_gpt(TOW_MODULE(&unrolled));
    assert_int_equal(tow_params_count(params), 3 + 16);
    assert_int_equal(tow_params_count(flat), 3 + 3 * 16);
    assert_string_equal(tow_params_path(params, 0), "tokens/embedding");
    assert_string_equal(tow_params_path(params, 3), "blocks/{}/attn/query/kernel");
    assert_string_equal(tow_params_path(flat, 3), "blocks/0/attn/query/kernel");
    assert_null(tow_params_path(params, 19));
    assert_true(tow_type_equal(tow_array_type(tow_params_array(params, 3)), TYPE(TOW_F32, 3, 8, 2, 4)));
    assert_true(tow_params_element_count(params, NULL) == 88 + 16 + 3 * (4 * 72 + 32 + 108 + 104));
    assert_true(tow_params_element_count(params, NULL) == tow_params_element_count(flat, NULL));
    assert_ptr_equal(tow_params_find(params, "norm/scale"), tow_params_array(params, 17));
    assert_null(tow_params_find(params, "blocks/1/attn/query/kernel"));
    tow_array *row;
    OK(tow_params_get(params, "blocks/1/attn/query/kernel", &row));
    assert_memory_equal(tow_array_data(row), tow_array_data(tow_params_find(flat, "blocks/1/attn/query/kernel")),
                        64 * sizeof(float));
    tow_array_release(row);
    assert_int_equal(tow_params_get(params, "blocks/3/attn/query/kernel", &row), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_params_get(params, "blocks/1/attn/quiry/kernel", &row), TOW_NOT_FOUND);
    assert_non_null(strstr(tow_context_error(ctx), "tokens/embedding"));
    char table[4096];
    assert_true(tow_params_table(params, NULL, table, sizeof table) < sizeof table);
    assert_non_null(strstr(table, "blocks/{}/attn/query/kernel"));
    assert_non_null(strstr(table, "f32[3,8,2,4]"));
    assert_non_null(strstr(table, "total"));
    tow_params_free(params);
    tow_params_free(flat);
}

static void test_files_of_scanned_and_unrolled_are_the_same(void **state)
{
    (void)state;
    tow_transformer_block block = TOW_TRANSFORMER_BLOCK(.heads = 2);
    tow_scan inner = TOW_SCAN(&block, .length = 2), inner_unrolled = TOW_SCAN(&block, .length = 2, .unrolled = true);
    tow_scan nested = TOW_SCAN(&inner, .length = 3), half = TOW_SCAN(&inner_unrolled, .length = 3);
    tow_scan other_half = TOW_SCAN(&inner, .length = 3, .unrolled = true);
    tow_scan unrolled = TOW_SCAN(&inner_unrolled, .length = 3, .unrolled = true);
    const tow_scan *variants[] = {&nested, &half, &other_half, &unrolled};
    for (int from = 0; from < 4; from++)
        for (int to = 0; to < 4; to++) {
            tow_params *source = init_gpt(TOW_MODULE(variants[from])), *target = init_gpt(TOW_MODULE(variants[to])),
                       *zeros;
            OK(tow_params_zeros_like(target, &zeros));
            tow_tensors *written, *expected = tensors_of(target), *read;
            OK(tow_tensors_create(ctx, &written));
            OK(tow_params_to_tensors(source, "params/", written));
            OK(tow_params_from_tensors(zeros, "params/", written));
            read = tensors_of(zeros);
            expect_same_tensors("read", expected, read);
            tow_tensors_free(written);
            tow_tensors_free(expected);
            tow_tensors_free(read);
            tow_params_free(source);
            tow_params_free(target);
            tow_params_free(zeros);
        }
}

/* Tensors made from parameters are a snapshot: neither reading other values into the parameters nor a change of the
 * parameters by hand changes them, in stacked layers either. */
static void test_tensors_of_parameters_do_not_change(void **state)
{
    (void)state;
    tow_transformer_block block = TOW_TRANSFORMER_BLOCK(.heads = 2);
    tow_scan stack = TOW_SCAN(&block, .length = 3);
    tow_params *params = init_gpt(TOW_MODULE(&stack)), *same = init_gpt(TOW_MODULE(&stack)), *zeros;
    OK(tow_params_zeros_like(params, &zeros));
    tow_tensors *snapshot = tensors_of(params), *expected = tensors_of(same), *nothing = tensors_of(zeros);
    OK(tow_params_from_tensors(params, "", nothing));
    expect_same_tensors("snapshot", expected, snapshot);
    OK(tow_params_from_tensors(params, "", snapshot));
    for (size_t i = 0; i < tow_params_count(params); i++) {
        tow_array *array = tow_params_array(params, i);
        memset(tow_array_data(array), 0x11, tow_type_bytes(tow_array_type(array)));
    }
    expect_same_tensors("snapshot", expected, snapshot);
    tow_params_free(params); /* a snapshot outlives its parameters */
    expect_same_tensors("snapshot", expected, snapshot);
    tow_tensors_free(snapshot);
    tow_tensors_free(expected);
    tow_tensors_free(nothing);
    tow_params_free(same);
    tow_params_free(zeros);
}

static void test_reading_checks_names_and_types(void **state)
{
    (void)state;
    tow_dense small = TOW_DENSE(.features = 3), large = TOW_DENSE(.features = 4),
              bare = TOW_DENSE(.features = 3, .no_bias = true);
    tow_type type = TYPE(TOW_F32, 2, 5);
    tow_params *a, *b, *c;
    OK(tow_model_init(ctx, TOW_MODULE(&small), 0, 1, &type, &a));
    OK(tow_model_init(ctx, TOW_MODULE(&large), 0, 1, &type, &b));
    OK(tow_model_init(ctx, TOW_MODULE(&bare), 0, 1, &type, &c));
    tow_tensors *of_a = tensors_of(a), *of_c = tensors_of(c);
    float before = *(float *)tow_array_data(tow_params_array(b, 0));
    assert_int_equal(tow_params_from_tensors(b, "", of_a), TOW_TYPE_MISMATCH);
    assert_non_null(strstr(tow_context_error(ctx), "kernel: expected f32[5,4], found f32[5,3]"));
    assert_true(before == *(float *)tow_array_data(tow_params_array(b, 0)));
    assert_int_equal(tow_params_from_tensors(a, "", of_c), TOW_NOT_FOUND);
    assert_non_null(strstr(tow_context_error(ctx), "bias: missing"));
    assert_int_equal(tow_params_from_tensors(c, "", of_a), TOW_NOT_FOUND);
    assert_non_null(strstr(tow_context_error(ctx), "bias: f32[3] in the file"));
    tow_tensors_free(of_a);
    tow_tensors_free(of_c);
    tow_params_free(a);
    tow_params_free(b);
    tow_params_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrapping_is_invisible),
        cmocka_unit_test(test_wrapping_is_invisible_to_dropout),
        cmocka_unit_test(test_random_streams),
        cmocka_unit_test(test_masks_of_nested_scans),
        cmocka_unit_test(test_scan_inputs_and_outputs),
        cmocka_unit_test(test_names_and_table),
        cmocka_unit_test(test_files_of_scanned_and_unrolled_are_the_same),
        cmocka_unit_test(test_tensors_of_parameters_do_not_change),
        cmocka_unit_test(test_reading_checks_names_and_types),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
