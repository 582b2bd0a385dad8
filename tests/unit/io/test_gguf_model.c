/* Hyperparameters of models in GGUF files, and how their rotary positions are scaled.
 * Tests gguf_model.c, gguf_rope.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <unistd.h>

#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/io_files.h"
#include "tow/gguf.h"

/* ---- hyperparameters --------------------------------------------------------------------------------------------- */

static void hyperparameters(void **state)
{
    fixture *f = *state;
    tow_tensors *t;
    tow_gguf_model m;
    assert_int_equal(tow_tensors_create(f->ctx, &t), TOW_OK);
    assert_int_equal(tow_gguf_model_read(t, &m), TOW_NOT_FOUND);
    assert_int_equal(tow_tensors_set_metadata(t, "general.architecture", "qwen2"), TOW_OK);
    static const struct {
        const char *key;
        int64_t value;
    } counts[] = {{"qwen2.block_count", 24},
                  {"qwen2.embedding_length", 896},
                  {"qwen2.feed_forward_length", 4864},
                  {"qwen2.attention.head_count", 14},
                  {"qwen2.context_length", 32768}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        assert_int_equal(tow_tensors_set_metadata_value(t, counts[i].key, integer(TOW_METADATA_U32, counts[i].value)),
                         TOW_OK);
    assert_int_equal(tow_gguf_model_read(t, &m), TOW_OK);
    assert_int_equal(m.layers, 24);
    assert_int_equal(m.heads, 14);
    assert_int_equal(m.kv_heads, 14);
    assert_int_equal(m.head_width, 64);
    assert_int_equal(m.rope_width, 64);
    assert_int_equal(m.context, 32768);
    assert_true(m.rope_base == 10000 && m.norm_epsilon == 0);
    assert_int_equal(tow_tensors_set_metadata_value(t, "qwen2.attention.head_count_kv", integer(TOW_METADATA_U32, 2)),
                     TOW_OK);
    assert_int_equal(tow_tensors_set_metadata_value(t, "qwen2.attention.layer_norm_rms_epsilon",
                                                    (tow_metadata_value){.type = TOW_METADATA_F32, .number = 1e-6}),
                     TOW_OK);
    assert_int_equal(tow_gguf_model_read(t, &m), TOW_OK);
    assert_int_equal(m.kv_heads, 2);
    assert_true(m.norm_epsilon == (double)1e-6F);
    assert_int_equal(tow_tensors_set_metadata_value(t, "qwen2.attention.head_count_kv", integer(TOW_METADATA_I32, 3)),
                     TOW_OK);
    assert_int_equal(tow_gguf_model_read(t, &m), TOW_BAD_FORMAT);
    assert_message(f, "'qwen2.attention.head_count_kv': expected a number that divides");
    assert_int_equal(tow_tensors_set_metadata(t, "qwen2.block_count", "many"), TOW_OK);
    assert_int_equal(tow_gguf_model_read(t, &m), TOW_BAD_FORMAT);
    assert_message(f, "'qwen2.block_count': expected one integer");
    tow_tensors_free(t);
}

/* Numbers of the wrong type and size, those that would be left out, and other layers than the tensors are of. */
static void hyperparameters_refused(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *key;
        tow_metadata_value value;
        tow_status status;
        const char *message;
    } wrong[] = {
        {"llama.attn_logit_softcapping",
         {.type = TOW_METADATA_F32, .number = NAN},
         TOW_BAD_FORMAT,
         "expected one number"},
        {"llama.final_logit_softcapping",
         {.type = TOW_METADATA_F32, .number = -5},
         TOW_BAD_FORMAT,
         "expected one number"},
        {"llama.attention.sliding_window",
         {.type = TOW_METADATA_F32, .number = 1e30},
         TOW_BAD_FORMAT,
         "expected one int"},
        {"llama.rope.dimension_count",
         {.type = TOW_METADATA_U32, .integer = 4},
         TOW_UNSUPPORTED,
         "expected 8, the feat"},
        {"llama.rope.scaling.attn_factor",
         {.type = TOW_METADATA_F32, .number = 2},
         TOW_UNSUPPORTED,
         "expected 1, found 2"},
        {"llama.block_count",
         {.type = TOW_METADATA_U32, .integer = 1},
         TOW_BAD_FORMAT,
         "expected 2, the layers of which"},
        {"llama.block_count",
         {.type = TOW_METADATA_U32, .integer = 2000000000},
         TOW_BAD_FORMAT,
         "expected 2, the layers"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tow_tensors *t;
        tow_gguf_model m;
        tow_array *array = array_of(f, tow_make_type(TOW_F32, 0, NULL), &(float){1});
        assert_int_equal(tow_tensors_create(f->ctx, &t), TOW_OK);
        assert_int_equal(tow_tensors_add(t, "blk.1.attn_norm.weight", array), TOW_OK);
        tow_array_release(array);
        assert_int_equal(tow_tensors_set_metadata(t, "general.architecture", "llama"), TOW_OK);
        assert_int_equal(tow_tensors_set_metadata_value(t, "llama.block_count", integer(TOW_METADATA_U32, 2)), TOW_OK);
        assert_int_equal(tow_tensors_set_metadata_value(t, "llama.attention.key_length", integer(TOW_METADATA_U32, 8)),
                         TOW_OK);
        assert_int_equal(tow_gguf_model_read(t, &m), TOW_OK);
        assert_int_equal(tow_tensors_set_metadata_value(t, wrong[i].key, wrong[i].value), TOW_OK);
        assert_int_equal(tow_gguf_model_read(t, &m), wrong[i].status);
        assert_message(f, wrong[i].key);
        assert_message(f, wrong[i].message);
        tow_tensors_free(t);
    }
}

/* ---- scaled positions -------------------------------------------------------------------------------------------- */

static void set_factors(tow_tensors **t, const fixture *f, tow_type type, const void *data)
{
    tow_array *array;
    tow_tensors_free(*t);
    assert_int_equal(tow_tensors_create(f->ctx, t), TOW_OK);
    assert_int_equal(tow_tensors_set_metadata(*t, "general.architecture", "llama"), TOW_OK);
    assert_int_equal(tow_tensors_set_metadata_value(*t, "llama.attention.key_length", integer(TOW_METADATA_U32, 16)),
                     TOW_OK);
    assert_int_equal(tow_array_from_data(f->ctx, type, data, &array), TOW_OK);
    assert_int_equal(tow_tensors_add(*t, "rope_freqs.weight", array), TOW_OK);
    tow_array_release(array);
}

/* Of a file by llama.cpp's formula (tests/oracle/gguf_models.py). */
static void factors_of_llama(void **state)
{
    fixture *f = *state;
    tow_tensors *t;
    tow_gguf_model m;
    tow_array *factors;
    assert_int_equal(tow_gguf_read(f->ctx, TOW_TEST_DATA "/oracle/golden/gguf/models/llama3.gguf", &t), TOW_OK);
    assert_int_equal(tow_gguf_model_read(t, &m), TOW_OK);
    assert_string_equal(m.rope_scaling, "llama3");
    assert_true(m.rope_factor == 32 && m.rope_low == 1 && m.rope_high == 4 && m.rope_length == 8192);
    assert_int_equal(tow_gguf_rope_factors(f->ctx, &m, &factors), TOW_OK);
    const tow_array *wanted = tow_tensors_find(t, "rope_freqs.weight");
    assert_true(tow_type_equal(tow_array_type(factors), tow_array_type(wanted)));
    for (int64_t i = 0; i < m.rope_width / 2; i++) {
        const float a = ((float *)tow_array_data(factors))[i], b = ((float *)tow_array_data(wanted))[i];
        assert_true(fabsf(a - b) <= 4e-6F * b); /* the file's were computed in f32 */
    }
    tow_array_release(factors);
    tow_tensors_free(t);
}

/* Any scaling of this kind has a description that gives its factors. */
static void factors_are_explained(void **state)
{
    fixture *f = *state;
    static const struct {
        double factor, low, high, length;
    } scalings[] = {{8, 1, 4, 8192}, {32, 1, 4, 8192}, {3, 1, 4, 4096}, {16, 0.5, 20, 1000}, {2, 1, 1.5, 100}};
    for (size_t i = 0; i < sizeof scalings / sizeof *scalings; i++) {
        tow_gguf_model m = {.rope_scaling = "llama3",
                            .rope_width = 16,
                            .rope_base = 10000,
                            .rope_factor = scalings[i].factor,
                            .rope_low = scalings[i].low,
                            .rope_high = scalings[i].high,
                            .rope_length = scalings[i].length},
                       found;
        tow_array *wanted, *again;
        tow_tensors *t = NULL;
        assert_int_equal(tow_gguf_rope_factors(f->ctx, &m, &wanted), TOW_OK);
        set_factors(&t, f, tow_array_type(wanted), tow_array_data(wanted));
        if (tow_gguf_model_read(t, &found) != TOW_OK) fail_msg("%s", tow_context_error(f->ctx));
        assert_string_equal(found.rope_scaling, "llama3");
        if (i < 2) assert_true(found.rope_factor == m.rope_factor && found.rope_high == 4);
        assert_int_equal(tow_gguf_rope_factors(f->ctx, &found, &again), TOW_OK);
        for (int64_t k = 0; k < 8; k++) {
            const float a = ((float *)tow_array_data(again))[k], b = ((float *)tow_array_data(wanted))[k];
            assert_true(fabsf(a - b) <= 1e-5F * b);
        }
        tow_array_release(wanted);
        tow_array_release(again);
        tow_tensors_free(t);
    }
}

static void factors_refused(void **state)
{
    fixture *f = *state;
    const float nan[8] = {__builtin_nanf("")}, other[8] = {1, 2, 1, 2, 1, 2, 1, 2},
                ones[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    const int32_t integers[8] = {1};
    const int64_t eight = 8, nine = 9;
    tow_tensors *t = NULL;
    tow_gguf_model m;
    tow_array *factors;
    set_factors(&t, f, tow_make_type(TOW_F32, 1, &eight), nan);
    assert_int_equal(tow_gguf_model_read(t, &m), TOW_UNSUPPORTED);
    assert_message(f, "expected the factors of Llama 3");
    set_factors(&t, f, tow_make_type(TOW_F32, 1, &eight), other);
    assert_int_equal(tow_gguf_model_read(t, &m), TOW_UNSUPPORTED);
    set_factors(&t, f, tow_make_type(TOW_F32, 1, &nine), ones);
    assert_int_equal(tow_gguf_model_read(t, &m), TOW_BAD_FORMAT);
    assert_message(f, "rope_freqs.weight: expected f32[8]");
    set_factors(&t, f, tow_make_type(TOW_I32, 1, &eight), integers);
    assert_int_equal(tow_gguf_model_read(t, &m), TOW_BAD_FORMAT);
    set_factors(&t, f, tow_make_type(TOW_F32, 1, &eight), ones); /* no scaling: a factor of 1 */
    assert_int_equal(tow_gguf_model_read(t, &m), TOW_OK);
    assert_true(m.rope_factor == 1);
    assert_int_equal(tow_tensors_set_metadata(t, "llama.rope.scaling.type", "yarn"), TOW_OK);
    assert_int_equal(tow_gguf_model_read(t, &m), TOW_UNSUPPORTED);
    assert_message(f, "expected no rope.scaling.type beside it, found yarn");
    assert_int_equal(tow_tensors_set_metadata_value(t, "llama.rope.scaling.type", integer(TOW_METADATA_U32, 1)),
                     TOW_OK);
    assert_int_equal(tow_gguf_model_read(t, &m), TOW_BAD_FORMAT);
    m = (tow_gguf_model){.rope_scaling = "none", .rope_width = 16};
    assert_int_equal(tow_gguf_rope_factors(f->ctx, &m, &factors), TOW_INVALID_ARGUMENT);
    assert_message(f, "expected llama3 as rope_scaling");
    assert_null(factors);
    tow_tensors_free(t);
}

/* A factor without a type is linear scaling, as llama.cpp has it. */
static void linear_scaling(void **state)
{
    fixture *f = *state;
    tow_tensors *t;
    tow_gguf_model m;
    assert_int_equal(tow_tensors_create(f->ctx, &t), TOW_OK);
    assert_int_equal(tow_tensors_set_metadata(t, "general.architecture", "llama"), TOW_OK);
    assert_int_equal(tow_gguf_model_read(t, &m), TOW_OK);
    assert_string_equal(m.rope_scaling, "none");
    assert_int_equal(tow_tensors_set_metadata_value(t, "llama.rope.scaling.factor",
                                                    (tow_metadata_value){.type = TOW_METADATA_F32, .number = 4}),
                     TOW_OK);
    assert_int_equal(tow_gguf_model_read(t, &m), TOW_OK);
    assert_string_equal(m.rope_scaling, "linear");
    assert_true(m.rope_factor == 4);
    assert_int_equal(tow_tensors_set_metadata(t, "llama.rope.scaling.type", "none"), TOW_OK);
    assert_int_equal(tow_gguf_model_read(t, &m), TOW_OK);
    assert_true(m.rope_factor == 1);
    tow_tensors_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(hyperparameters),       TEST(hyperparameters_refused), TEST(factors_of_llama),
        TEST(factors_are_explained), TEST(factors_refused),         TEST(linear_scaling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
