/* Models of Hugging Face's transformers (tests/oracle/weights_golden.py): loaded by the library's tables, their logits
 * are those of torch, and what is written has the bytes that were read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tests/unit/support/io_files.h"
#include "tow/tow.h"

#define FILES TOW_TEST_DATA "/oracle/golden/weights/"
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TOW_OK) fail_msg("%s: %s", #call, tow_context_error(f->ctx));                                    \
    } while (0)

enum {
    VOCABULARY = 60,
    WIDTH = 16
};

/* ---- models ------------------------------------------------------------------------------------------------------ */

/* The children that the tables name. */
typedef struct model {
    tow_module module;
    tow_embed tokens, positions, types;
    tow_transformer_block block;
    tow_scan blocks;
    tow_layer_norm norm, head_norm;
    tow_rms_norm rms_norm;
    tow_dense head;
} model;

/* i32 [B, T] -> [B, T, VOCABULARY] */
static void call_gpt2(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    const model *m = (const model *)module;
    (void)n_in, (void)n_out;
    int64_t length = tow_value_type(in[0]).dims[1];
    tow_value x = tow_apply(s, "tokens", &m->tokens, in[0]);
    tow_value at = tow_iota(tow_scope_trace(s), tow_make_type(TOW_I32, 1, &length), 0);
    x = tow_add(x, tow_apply(s, "positions", &m->positions, at));
    x = tow_apply(s, "norm", &m->norm, tow_apply(s, "blocks", &m->blocks, x));
    out[0] = tow_embed_attend(s, "tokens", &m->tokens, x);
}
static const tow_module_class gpt2_class = {.name = "GPT2", .call = call_gpt2};

static void make_gpt2(model *m)
{
    m->module.cls = &gpt2_class;
    m->tokens = TOW_EMBED(.num_embeddings = VOCABULARY, .features = WIDTH);
    m->positions = TOW_EMBED(.num_embeddings = 12, .features = WIDTH);
    m->block = TOW_TRANSFORMER_BLOCK(.heads = 4, .causal = true, .epsilon = 1e-5);
    m->blocks = TOW_SCAN(&m->block, .length = 2);
    m->norm = TOW_LAYER_NORM(.epsilon = 1e-5);
}

/* The same; RoPE in the blocks, and an output projection of its own. */
static void call_llama(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    const model *m = (const model *)module;
    (void)n_in, (void)n_out;
    tow_value x = tow_apply(s, "blocks", &m->blocks, tow_apply(s, "tokens", &m->tokens, in[0]));
    out[0] = tow_apply(s, "head", &m->head, tow_apply(s, "norm", &m->rms_norm, x));
}
static const tow_module_class llama_class = {.name = "Llama", .call = call_llama};

static void make_llama(model *m)
{
    m->module.cls = &llama_class;
    m->tokens = TOW_EMBED(.num_embeddings = VOCABULARY, .features = WIDTH);
    m->block = TOW_TRANSFORMER_BLOCK(.heads = 4, .kv_heads = 2, .mlp_features = 24, .causal = true, .no_bias = true,
                                     .rms_norm = true, .epsilon = 1e-5, .gated = true, .rope = true);
    m->blocks = TOW_SCAN(&m->block, .length = 3);
    m->rms_norm = TOW_RMS_NORM(.epsilon = 1e-5);
    m->head = TOW_DENSE(.features = VOCABULARY, .no_bias = true);
}

/* Tokens and their types, i32 [B, T] -> the logits of a masked language model. */
static void call_bert(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    const model *m = (const model *)module;
    (void)n_in, (void)n_out;
    int64_t length = tow_value_type(in[0]).dims[1];
    tow_value x = tow_apply(s, "tokens", &m->tokens, in[0]);
    tow_value at = tow_iota(tow_scope_trace(s), tow_make_type(TOW_I32, 1, &length), 0);
    x = tow_add(x, tow_apply(s, "positions", &m->positions, at));
    x = tow_add(x, tow_apply(s, "types", &m->types, in[1]));
    x = tow_apply(s, "blocks", &m->blocks, tow_apply(s, "norm", &m->norm, x));
    tow_scope *head = tow_scope_begin(s, "head");
    x = tow_apply(head, "norm", &m->head_norm, tow_gelu_erf(tow_apply(head, "dense", &m->head, x)));
    tow_value bias = tow_param(head, "bias", 1, (int64_t[]){VOCABULARY}, tow_initializer_zeros());
    tow_scope_end(head);
    out[0] = tow_add(tow_embed_attend(s, "tokens", &m->tokens, x), bias);
}
static const tow_module_class bert_class = {.name = "BERT", .call = call_bert};

static void make_bert(model *m)
{
    m->module.cls = &bert_class;
    m->tokens = TOW_EMBED(.num_embeddings = VOCABULARY, .features = WIDTH);
    m->positions = TOW_EMBED(.num_embeddings = 12, .features = WIDTH);
    m->types = TOW_EMBED(.num_embeddings = 2, .features = WIDTH);
    m->block = TOW_TRANSFORMER_BLOCK(.heads = 4, .mlp_features = 32, .post_norm = true, .epsilon = 1e-12,
                                     .activation = tow_gelu_erf);
    m->blocks = TOW_SCAN(&m->block, .length = 2);
    m->norm = TOW_LAYER_NORM(.epsilon = 1e-12);
    m->head = TOW_DENSE(.features = WIDTH);
    m->head_norm = TOW_LAYER_NORM(.epsilon = 1e-12);
}

/* The same as Llama with the tokens as output projection. */
static void call_qwen3(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    const model *m = (const model *)module;
    (void)n_in, (void)n_out;
    tow_value x = tow_apply(s, "blocks", &m->blocks, tow_apply(s, "tokens", &m->tokens, in[0]));
    out[0] = tow_embed_attend(s, "tokens", &m->tokens, tow_apply(s, "norm", &m->rms_norm, x));
}
static const tow_module_class qwen3_class = {.name = "Qwen3", .call = call_qwen3};

static void make_qwen3(model *m)
{
    m->module.cls = &qwen3_class;
    m->tokens = TOW_EMBED(.num_embeddings = VOCABULARY, .features = WIDTH);
    m->block = TOW_TRANSFORMER_BLOCK(.heads = 4, .kv_heads = 2, .qkv_features = 4 * 8, .mlp_features = 24,
                                     .causal = true, .no_bias = true, .rms_norm = true, .epsilon = 1e-6, .gated = true,
                                     .qk_norm = TOW_QK_RMS_NORM, .rope = true, .rope_options = {.theta = 1e6});
    m->blocks = TOW_SCAN(&m->block, .length = 2);
    m->rms_norm = TOW_RMS_NORM(.epsilon = 1e-6);
}

/* Two blocks, the first of which sees 4 positions; norms multiply by 1 + what is stored. */
typedef struct gemma2_model {
    tow_module module;
    tow_embed tokens;
    tow_transformer_block local, global;
    tow_rms_norm norm;
} gemma2_model;

static void call_gemma2(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    const gemma2_model *m = (const gemma2_model *)module;
    (void)n_in, (void)n_out;
    tow_value x = tow_mul_scalar(tow_apply(s, "tokens", &m->tokens, in[0]), 4.0); /* the root of WIDTH */
    tow_scope *blocks = tow_scope_begin(s, "blocks");
    x = tow_apply(blocks, "0", &m->local, x);
    x = tow_apply(blocks, "1", &m->global, x);
    tow_scope_end(blocks);
    x = tow_embed_attend(s, "tokens", &m->tokens, tow_apply(s, "norm", &m->norm, x));
    out[0] = tow_mul_scalar(tow_tanh(tow_mul_scalar(x, 1.0 / 3.0)), 3.0);
}
static const tow_module_class gemma2_class = {.name = "Gemma2", .call = call_gemma2};

static tow_value one_plus(tow_value stored, const tow_variable_request *asked, const void *user)
{
    (void)asked, (void)user;
    return tow_add_scalar(stored, 1.0);
}

static void make_gemma2(gemma2_model *m)
{
    m->module.cls = &gemma2_class;
    m->tokens = TOW_EMBED(.num_embeddings = VOCABULARY, .features = WIDTH);
    m->global =
        TOW_TRANSFORMER_BLOCK(.heads = 4, .kv_heads = 2, .qkv_features = 4 * 8, .mlp_features = 24, .causal = true,
                              .no_bias = true, .rms_norm = true, .epsilon = 1e-6, .branch_norms = true, .gated = true,
                              .activation = tow_gelu, .scale = 1 / sqrt(12), .logit_cap = 2, .rope = true);
    m->local = m->global;
    m->local.window = 4;
    m->norm = TOW_RMS_NORM(.epsilon = 1e-6);
}

/* ---- what all have in common ------------------------------------------------------------------------------------- */

static tow_params *init(const fixture *f, const tow_module *m, size_t n, const tow_type *types)
{
    tow_params *params = NULL;
    OK(tow_model_init(f->ctx, m, 1, n, types, &params));
    for (size_t i = 0; i < tow_params_count(params); i++) /* so that what is not loaded shows */
        memset(tow_array_data(tow_params_array(params, i)), 0xff,
               tow_type_bytes(tow_array_type(tow_params_array(params, i))));
    return params;
}

/* The logits, in the order of the golden file. */
static tow_array *run(const fixture *f, const tow_module *m, const tow_params *params, size_t n, tow_array *const *ids,
                      const tow_type *types)
{
    tow_graph *graph = NULL;
    tow_program *program = NULL;
    tow_array *inputs[64], *logits = NULL;
    size_t count = tow_params_count(params);
    OK(tow_model_forward_graph(m, params, n, types, NULL, &graph));
    OK(tow_compile(f->ctx, graph, NULL, &program));
    for (size_t i = 0; i < count; i++) inputs[i] = tow_params_array(params, i);
    for (size_t i = 0; i < n; i++) inputs[count + i] = ids[i];
    OK(tow_array_create(f->ctx, tow_graph_output_type(graph, 0), &logits));
    OK(tow_program_run(program, inputs, &logits));
    tow_program_free(program);
    tow_graph_release(graph);
    return logits;
}

/* Sums of 64 products of numbers around 1, in f32: errors of some 1e-6 of the largest logits; mistakes are of the size
 * of the logits. */
static void expect_logits(const tow_array *found, const tow_array *want)
{
    const tow_type type = tow_array_type(want);
    assert_true(tow_type_equal(tow_array_type(found), type));
    const float *x = tow_array_data(found), *y = tow_array_data(want);
    for (int64_t i = 0; i < tow_type_element_count(type); i++)
        if (!(fabsf(x[i] - y[i]) <= 1e-5f))
            fail_msg("logit %d: %.8g, expected %.8g", (int)i, (double)x[i], (double)y[i]);
}

static void expect_same_tensors(const tow_tensors *found, const tow_tensors *want)
{
    assert_int_equal(tow_tensors_count(found), tow_tensors_count(want));
    for (size_t i = 0; i < tow_tensors_count(want); i++)
        assert_array(tow_tensors_find(found, tow_tensors_name(want, i)), tow_tensors_type(want, i),
                     tow_array_data(tow_tensors_at(want, i)));
}

/* dtype: of the file. */
static void check(const fixture *f, const char *table, const char *folder, const tow_module *m, size_t n,
                  const char *const *names, tow_dtype dtype)
{
    char path[256], ours[128];
    tow_weight_mapping *mapping = NULL;
    tow_tensors *expected = NULL, *theirs = NULL, *back = NULL;
    tow_type types[2];
    tow_array *ids[2];
    const tow_weight_mapping_options options =
        TOW_WEIGHT_MAPPING_OPTIONS(.convert = dtype != TOW_F32, .dtype = dtype, .max_file_bytes = 3000);
    OK(tow_weight_mapping_read(f->ctx, table, &mapping));
    snprintf(path, sizeof path, FILES "%s/expected.safetensors", folder);
    OK(tow_safetensors_read(f->ctx, path, &expected));
    for (size_t i = 0; i < n; i++) {
        ids[i] = tow_tensors_find(expected, names[i]);
        types[i] = tow_array_type(ids[i]);
    }
    tow_params *params = init(f, m, n, types);
    snprintf(path, sizeof path, FILES "%s", folder);
    if (dtype != TOW_F32)
        assert_int_equal(tow_weight_mapping_load_file(mapping, params, path, NULL, NULL), TOW_TYPE_MISMATCH);
    OK(tow_weight_mapping_load_file(mapping, params, path, &options, NULL));
    tow_array *logits = run(f, m, params, n, ids, types);
    expect_logits(logits, tow_tensors_find(expected, "logits"));
    snprintf(ours, sizeof ours, "%s/model.safetensors", f->directory);
    OK(tow_weight_mapping_save_file(mapping, params, ours, &options, NULL));
    OK(tow_safetensors_read(f->ctx, ours, &back));
    snprintf(path, sizeof path, FILES "%s/model.safetensors", folder);
    OK(tow_safetensors_read(f->ctx, path, &theirs));
    expect_same_tensors(back, theirs);
    tow_tensors_free(back);
    tow_tensors_free(theirs);
    tow_array_release(logits);
    tow_params_free(params);
    tow_tensors_free(expected);
    tow_weight_mapping_free(mapping);
}

static void gpt2(void **state)
{
    model m;
    make_gpt2(&m);
    check(*state, "gpt2", "gpt2", &m.module, 1, (const char *const[]){"input_ids"}, TOW_F32);
    m.blocks.unrolled = true;
    check(*state, "gpt2", "gpt2", &m.module, 1, (const char *const[]){"input_ids"}, TOW_F32);
}

static void llama(void **state)
{
    model m;
    make_llama(&m);
    check(*state, "llama", "llama", &m.module, 1, (const char *const[]){"input_ids"}, TOW_F32);
}

/* Several files, of bf16: the logits are those of the rounded weights. */
static void llama_of_bf16(void **state)
{
    model m;
    make_llama(&m);
    check(*state, "llama", "llama_bf16", &m.module, 1, (const char *const[]){"input_ids"}, TOW_BF16);
}

static void bert(void **state)
{
    model m;
    make_bert(&m);
    check(*state, "bert", "bert", &m.module, 2, (const char *const[]){"input_ids", "token_type_ids"}, TOW_F32);
}

static void qwen3(void **state)
{
    model m;
    make_qwen3(&m);
    check(*state, "qwen3", "qwen3", &m.module, 1, (const char *const[]){"input_ids"}, TOW_F32);
    m.blocks.unrolled = true;
    check(*state, "qwen3", "qwen3", &m.module, 1, (const char *const[]){"input_ids"}, TOW_F32);
}

static void gemma2(void **state)
{
    gemma2_model m;
    make_gemma2(&m);
    const tow_map_variables mapped =
        TOW_MAP_VARIABLES(&m, .variables = (const char *const[]){"params/**scale", NULL}, .trans_in = one_plus);
    check(*state, "gemma2", "gemma2", &mapped.module, 1, (const char *const[]){"input_ids"}, TOW_F32);
}

/* Query, key and value in one tensor, gate and up in another. */
static void phi3(void **state)
{
    model m;
    make_llama(&m);
    m.blocks.length = 2;
    check(*state, "phi3", "phi3", &m.module, 1, (const char *const[]){"input_ids"}, TOW_F32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(gpt2), TEST(llama), TEST(llama_of_bf16), TEST(bert), TEST(qwen3), TEST(gemma2), TEST(phi3),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
