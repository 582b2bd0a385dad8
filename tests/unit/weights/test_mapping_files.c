/* Files by mappings: damaged and rewritten ones, large arrays, missing arguments, failing allocations.
 * Tests copy.c, load_save.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/mappings.h"

/* Damaged data change nothing, and tensors that nobody asks for are not read. */
static void damaged_files(void **state)
{
    fixture *f = *state;
    unsigned char bytes[4096];
    tow_weight_mapping *m = parse(f, "a -> b\nignore c\n");
    tow_tensors *set = make_tensors(f->ctx, 2, (const named[]){{"a", TYPE(TOW_F32, 2)}, {"c", TYPE(TOW_F32, 2)}});
    tow_params *params = make_params(f->ctx, 1, &(named){"b", TYPE(TOW_F32, 2)});
    ((float *)tow_array_data(tow_params_array(params, 0)))[0] = 7;
    OK(tow_safetensors_write(f->path, set));
    const size_t size = read_bytes(f->path, bytes, sizeof bytes);
    bytes[size - 9] ^= 1; /* of a */
    write_bytes(f->path, bytes, size);
    expect(f, tow_weight_mapping_load_file(m, params, f->path, NULL, NULL), TOW_BAD_FORMAT,
           "tensor 'a': the data have the checksum");
    FLOATS(tow_params_find(params, "b"), 7, 1);
    bytes[size - 9] ^= 1;
    bytes[size - 1] ^= 1; /* of c */
    write_bytes(f->path, bytes, size);
    OK(tow_weight_mapping_load_file(m, params, f->path, NULL, NULL));
    FLOATS(tow_params_find(params, "b"), 0, 1);
    expect(f, tow_weight_mapping_load_file(m, params, f->directory, NULL, NULL), TOW_IO_ERROR,
           "/model.safetensors: cannot open");
    tow_tensors_free(set);
    tow_params_free(params);
    tow_weight_mapping_free(m);
}

static void files_are_rewritten_without_a_model(void **state)
{
    fixture *f = *state;
    char other[128], back[128];
    tow_weight_mapping *m =
        parse(f, "w.{i} [(h k) d] -> l/{i}/k [d h k]\nqkv [d (* x)] -> {q,k,v} [d x]\ntied t = w.0\nignore mask");
    const tow_weight_mapping_axis two = {"h", 2}, three = {"h", 3}, none = {"h", 0};
    const tow_weight_mapping_options good = TOW_WEIGHT_MAPPING_OPTIONS(.n_axes = 1, .axes = &two, .max_file_bytes = 64),
                                     odd = TOW_WEIGHT_MAPPING_OPTIONS(.n_axes = 1, .axes = &three),
                                     bad = TOW_WEIGHT_MAPPING_OPTIONS(.n_axes = 1, .axes = &none);
    tow_tensors *set = make_tensors(
                    f->ctx, 3,
                    (const named[]){{"w.0", TYPE(TOW_F32, 4, 3)}, {"qkv", TYPE(TOW_F32, 2, 6)}, {"mask", ONE}}),
                *read;
    OK(tow_tensors_add(set, "t", tow_tensors_at(set, 0)));
    OK(tow_safetensors_write(f->path, set));
    snprintf(other, sizeof other, "%s/model.safetensors", f->directory);
    snprintf(back, sizeof back, "%s/back", f->directory);
    expect(f, tow_weight_mapping_convert_file(f->ctx, m, f->path, other, false, NULL, NULL), TOW_INVALID_ARGUMENT,
           "w.0: the shapes do not tell the size of the axis");
    expect(f, tow_weight_mapping_convert_file(f->ctx, m, f->path, other, false, &odd, NULL), TOW_INVALID_ARGUMENT,
           "w.0: the shapes do not tell");
    expect(f, tow_weight_mapping_convert_file(f->ctx, m, f->path, other, false, &bad, NULL), TOW_INVALID_ARGUMENT,
           "positive sizes");
    OK(tow_weight_mapping_convert_file(f->ctx, m, f->path, other, false, &good, NULL));
    OK(tow_safetensors_read(f->ctx, other, &read));
    assert_int_equal(tow_tensors_count(read), 4);
    const tow_array *kernel = tow_tensors_find(read, "l/0/k");
    assert_true(tow_type_equal(tow_array_type(kernel), TYPE(TOW_F32, 3, 2, 2)));
    FLOATS(kernel, 0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11);
    FLOATS(tow_tensors_find(read, "v"), 16, 17, 22, 23);
    tow_tensors_free(read);
    OK(tow_weight_mapping_convert_file(f->ctx, m, f->directory, back, true, NULL, NULL)); /* of several files */
    OK(tow_safetensors_read(f->ctx, back, &read));
    assert_int_equal(tow_tensors_count(read), 2);
    for (size_t i = 0; i < 2; i++)
        assert_array(tow_tensors_find(read, tow_tensors_name(set, i)), tow_tensors_type(set, i),
                     tow_array_data(tow_tensors_at(set, i)));
    tow_tensors_free(read);
    tow_tensors_free(set);
    tow_weight_mapping_free(m);
}

/* Many elements, more than a piece of the copy, and layouts whose loops do not merge. */
static void large_arrays(void **state)
{
    fixture *f = *state;
    enum {
        D = 37,
        H = 5,
        K = 23
    };
    tow_weight_mapping *m = parse(f, "a [(k h) d] -> b [h d k]\n");
    tow_tensors *set = make_tensors(f->ctx, 1, &(named){"a", TYPE(TOW_F32, K * H, D)}), *back;
    tow_array *array = NULL;
    tow_params *params;
    OK(tow_array_create(f->ctx, TYPE(TOW_F64, H, D, K), &array));
    OK(tow_params_from_arrays(f->ctx, 1, (const char *const[]){"b"}, &array, &params));
    OK(tow_weight_mapping_load(m, params, set, &TOW_WEIGHT_MAPPING_OPTIONS(.convert = true), NULL));
    for (int h = 0, i = 0; h < H; h++)
        for (int d = 0; d < D; d++)
            for (int k = 0; k < K; k++, i++) assert_true(((double *)tow_array_data(array))[i] == (k * H + h) * D + d);
    OK(tow_weight_mapping_save_file(m, params, f->path, &TOW_WEIGHT_MAPPING_OPTIONS(.convert = true), NULL));
    OK(tow_safetensors_read(f->ctx, f->path, &back));
    assert_array(tow_tensors_find(back, "a"), tow_tensors_type(set, 0), tow_array_data(tow_tensors_at(set, 0)));
    tow_tensors_free(back);
    tow_tensors_free(set);
    tow_params_free(params);
    tow_array_release(array);
    tow_weight_mapping_free(m);
}

static void missing_arguments(void **state)
{
    fixture *f = *state;
    tow_weight_mapping *m = parse(f, "a -> b"), *none;
    tow_tensors *set = make_tensors(f->ctx, 1, &(named){"a", TYPE(TOW_F32, 1)});
    tow_params *params = make_params(f->ctx, 1, &(named){"b", TYPE(TOW_F32, 1)});
    tow_weight_mapping_report *report = (tow_weight_mapping_report *)set;
    expect(f, tow_weight_mapping_parse(f->ctx, NULL, "a -> b", &none), TOW_INVALID_ARGUMENT,
           "expected a context, a name, a text");
    expect(f, tow_weight_mapping_parse(f->ctx, "rules", NULL, &none), TOW_INVALID_ARGUMENT, "found NULL");
    assert_null(none);
    expect(f, tow_weight_mapping_parse(NULL, "rules", "a -> b", &none), TOW_INVALID_ARGUMENT, NULL);
    expect(f, tow_weight_mapping_read(f->ctx, NULL, &none), TOW_INVALID_ARGUMENT, "expected a context, a path");
    expect(f, tow_weight_mapping_load(NULL, params, set, NULL, &report), TOW_INVALID_ARGUMENT,
           "a mapping, parameters and a set");
    assert_null(report);
    expect(f, tow_weight_mapping_load(m, NULL, set, NULL, NULL), TOW_INVALID_ARGUMENT, NULL);
    expect(f, tow_weight_mapping_load(m, params, NULL, NULL, NULL), TOW_INVALID_ARGUMENT, NULL);
    expect(f, tow_weight_mapping_load_file(m, params, NULL, NULL, NULL), TOW_INVALID_ARGUMENT, "the path of a file");
    expect(f, tow_weight_mapping_save_file(m, params, NULL, NULL, NULL), TOW_INVALID_ARGUMENT, "the path of a file");
    expect(f, tow_weight_mapping_convert_file(f->ctx, m, "a", NULL, false, NULL, NULL), TOW_INVALID_ARGUMENT,
           "two paths");
    expect(f, tow_weight_mapping_load(m, params, set, &TOW_WEIGHT_MAPPING_OPTIONS(.n_axes = 1), NULL),
           TOW_INVALID_ARGUMENT, "1 .axes");
    tow_weight_mapping_free(NULL);
    tow_weight_mapping_report_free(NULL);
    tow_tensors_free(set);
    tow_params_free(params);
    tow_weight_mapping_free(m);
}

static tow_status everything(tow_context *ctx, const char *from, const char *to)
{
    tow_weight_mapping *m = NULL;
    tow_weight_mapping_report *report = NULL;
    tow_array *array = NULL;
    tow_params *params = NULL;
    char text[256];
    tow_status status = tow_weight_mapping_parse(ctx, "rules", "prefix p.\np.a [* x] -> b/{q,k} [x]\n", &m);
    if (status == TOW_OK) status = tow_array_create(ctx, TYPE(TOW_F64, 3), &array);
    if (status == TOW_OK)
        status =
            tow_params_from_arrays(ctx, 2, (const char *const[]){"b/q", "b/k"}, (tow_array *[]){array, array}, &params);
    if (status == TOW_OK)
        status = tow_weight_mapping_load_file(m, params, from, &TOW_WEIGHT_MAPPING_OPTIONS(.convert = true), &report);
    if (status == TOW_OK && tow_weight_mapping_report_text(report, text, sizeof text) == 0) status = TOW_OUT_OF_MEMORY;
    tow_weight_mapping_report_free(report);
    if (status == TOW_OK)
        status = tow_weight_mapping_save_file(m, params, to, &TOW_WEIGHT_MAPPING_OPTIONS(.max_file_bytes = 1), NULL);
    if (status == TOW_OK) status = tow_weight_mapping_convert_file(ctx, m, from, to, false, NULL, NULL);
    tow_params_free(params);
    tow_array_release(array);
    tow_weight_mapping_free(m);
    return status;
}

static void allocations_fail_in_turn(void **state)
{
    fixture *f = *state;
    char to[128];
    tow_tensors *set = make_tensors(f->ctx, 1, &(named){"a", TYPE(TOW_F32, 2, 3)});
    snprintf(to, sizeof to, "%s/model.safetensors", f->directory);
    OK(tow_safetensors_write(f->path, set));
    tow_tensors_free(set);
    tow_status status = TOW_OUT_OF_MEMORY;
    for (long n = 0; status != TOW_OK; n++) {
        counting c;
        const tow_context_options options = counting_options(&c, n);
        tow_context *ctx;
        status = tow_context_create(&options, &ctx);
        if (status == TOW_OK) status = everything(ctx, f->path, to);
        if (status != TOW_OK && status != TOW_OUT_OF_MEMORY) fail_msg("allocation %ld: %s", n, tow_context_error(ctx));
        tow_context_free(ctx);
        assert_int_equal(c.blocks, 0);
        assert_int_equal(c.wrong_sizes, 0);
    }
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(damaged_files),
        TEST(files_are_rewritten_without_a_model),
        TEST(large_arrays),
        TEST(missing_arguments),
        TEST(allocations_fail_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
