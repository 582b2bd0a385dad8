/* Contexts, allocation, arenas, strings, types and arrays.
 * Tests alloc.c, arena.c, array.c, context.c, status.c, string.c, type.c, version.c. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "src/base/base.h"
#include "src/base/team.h"
#include "tests/unit/support/counting_allocator.h"

static tow_context *new_context(void)
{
    tow_context *ctx = NULL;
    assert_int_equal(tow_context_create(NULL, &ctx), TOW_OK);
    return ctx;
}

/* ---- context --------------------------------------------------------------------------------------------------- */

static void test_status_texts(void **state)
{
    (void)state;
    assert_string_equal(tow_status_text(TOW_OK), "ok");
    assert_string_equal(tow_status_text(TOW_SHAPE_MISMATCH), "shape mismatch");
    assert_string_equal(tow_status_text(TOW_INTERNAL_ERROR), "internal error");
    assert_string_equal(tow_status_text((tow_status)999), "unknown status");
    assert_string_equal(tow_status_text((tow_status)-1), "unknown status");
}

static void test_context(void **state)
{
    (void)state;
    tow_context *ctx = NULL;
    assert_int_equal(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = -1), &ctx), TOW_INVALID_ARGUMENT);
    assert_string_equal(tow_context_error(ctx), "option threads: expected 0 or more, found -1");
    assert_int_equal(tow_context_status(ctx), TOW_INVALID_ARGUMENT);
    tow_context_free(ctx);
    assert_non_null(strstr(tow_context_error(NULL), "out of memory"));
    assert_int_equal(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 3), &ctx), TOW_OK);
    const int cpus = tow__cpu_count(), threads = cpus < 3 ? cpus : 3;
    assert_int_equal(tow_context_thread_count(ctx), threads);
    assert_int_equal(tow_context_status(ctx), TOW_OK);
    assert_string_equal(tow_context_error(ctx), "");
    char text[1024], small[8], line[32];
    snprintf(line, sizeof line, "threads: %d\n", threads);
    size_t length = tow_context_describe(ctx, text, sizeof text);
    assert_int_equal(length, strlen(text));
    assert_non_null(strstr(text, line));
    assert_int_equal(tow_context_describe(ctx, small, sizeof small), length);
    assert_int_equal(strlen(small), sizeof small - 1);
    assert_int_equal(tow_context_describe(ctx, NULL, 0), length);
    tow_context_free(ctx);
    tow_context_free(NULL);
    ctx = new_context();
    assert_true(tow_context_thread_count(ctx) >= 1);
    tow_context_free(ctx);
}

static void test_errors(void **state)
{
    (void)state;
    tow_context *ctx = new_context();
    assert_int_equal(tow__fail(ctx, TOW_NOT_FOUND, "no %s", "thing"), TOW_NOT_FOUND);
    assert_int_equal(tow_context_status(ctx), TOW_NOT_FOUND);
    /* The old text may be part of the new one. */
    tow__fail(ctx, TOW_BAD_FORMAT, "line 3: %s", tow_context_error(ctx));
    assert_string_equal(tow_context_error(ctx), "line 3: no thing");
    char long_text[4000];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    tow__fail(ctx, TOW_BAD_FORMAT, "%s", long_text);
    assert_int_equal(strlen(tow_context_error(ctx)), sizeof ctx->error - 1);
    tow_context_clear_error(ctx);
    assert_int_equal(tow_context_status(ctx), TOW_OK);
    assert_string_equal(tow_context_error(ctx), "");
    tow_context_free(ctx);
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

static bool all_zero(const void *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (((const char *)data)[i] != 0) return false;
    return true;
}

static void test_allocation(void **state)
{
    (void)state;
    counting c;
    tow_context_options options = counting_options(&c, -1);
    tow_context *ctx;
    assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
    char *p = tow__alloc(ctx, 7, 3);
    assert_true(all_zero(p, 21));
    memset(p, 1, 21);
    p = tow__grow(ctx, p, 7, 100, 3);
    assert_int_equal(p[20], 1);
    assert_true(all_zero(p + 21, 279));
    tow__free(ctx, p, 100, 3);
    double *a = tow__alloc_aligned(ctx, 1000);
    assert_int_equal((uintptr_t)a % 64, 0);
    assert_true(all_zero(a, 1000));
    tow__free_aligned(ctx, a, 1000);
    p = tow__alloc(ctx, 0, 8);
    assert_non_null(p);
    tow__free(ctx, p, 0, 8);
    tow__free(ctx, NULL, 5, 8);
    long calls = c.calls;
    assert_null(tow__alloc(ctx, SIZE_MAX / 4, 8)); /* the product overflows */
    assert_int_equal(tow_context_status(ctx), TOW_OUT_OF_MEMORY);
    assert_int_equal(c.calls, calls);
    tow_context_free(ctx);
    assert_int_equal(c.blocks, 0);
    assert_int_equal(c.bytes, 0);
    assert_int_equal(c.wrong_sizes, 0);
}

static void test_failed_growth_keeps_the_block(void **state)
{
    (void)state;
    counting c;
    tow_context_options options = counting_options(&c, 2);
    tow_context *ctx;
    assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
    int *p = tow__alloc(ctx, 4, sizeof *p);
    p[3] = 42;
    assert_null(tow__grow(ctx, p, 4, 400, sizeof *p));
    assert_int_equal(p[3], 42);
    tow__free(ctx, p, 4, sizeof *p);
    tow_context_free(ctx);
    assert_int_equal(c.blocks, 0);
}

static void test_library_allocator_alignment(void **state)
{
    (void)state;
    tow_context *ctx = new_context();
    for (size_t bytes = 1; bytes < 5000; bytes = bytes * 3 + 1) {
        void *p = tow__alloc_aligned(ctx, bytes), *q = tow__alloc(ctx, bytes, 1);
        assert_int_equal((uintptr_t)p % 64, 0);
        assert_int_equal((uintptr_t)q % 16, 0);
        q = tow__grow(ctx, q, bytes, 3 * bytes, 1);
        assert_int_equal((uintptr_t)q % 16, 0);
        assert_true(all_zero(q, 3 * bytes));
        tow__free_aligned(ctx, p, bytes);
        tow__free(ctx, q, 3 * bytes, 1);
    }
    tow_context_free(ctx);
}

static void test_arena(void **state)
{
    (void)state;
    counting c;
    tow_context_options options = counting_options(&c, -1);
    tow_context *ctx;
    assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
    tow__arena arena;
    tow__arena_init(&arena, ctx);
    assert_non_null(tow__arena_alloc(&arena, 0, 8));
    unsigned char *pieces[600];
    for (size_t i = 0; i < 600; i++) {
        size_t size = i * 37 % 4000 + 1;
        pieces[i] = tow__arena_alloc(&arena, size, 1);
        assert_int_equal((uintptr_t)pieces[i] % 16, 0);
        assert_true(all_zero(pieces[i], size));
        memset(pieces[i], (int)(i % 251), size);
    }
    for (size_t i = 0; i < 600; i++) { /* no piece overlaps another */
        assert_int_equal(pieces[i][0], i % 251);
        assert_int_equal(pieces[i][i * 37 % 4000], i % 251);
    }
    assert_non_null(tow__arena_alloc(&arena, 1 << 20, 1)); /* larger than any block */
    assert_string_equal(tow__arena_string(&arena, "text"), "text");
    assert_null(tow__arena_string(&arena, NULL));
    assert_null(tow__arena_alloc(&arena, SIZE_MAX / 2, 4));
    assert_int_equal(tow_context_status(ctx), TOW_OUT_OF_MEMORY);
    tow__arena_free(&arena);
    assert_int_equal(c.blocks, 1);
    tow_context_free(ctx);
    assert_int_equal(c.wrong_sizes, 0);
}

static void test_string(void **state)
{
    (void)state;
    counting c;
    tow_context_options options = counting_options(&c, -1);
    tow_context *ctx;
    char text[8];
    assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
    tow__string s;
    tow__string_init(&s, ctx);
    assert_int_equal(tow__string_export(&s, text, sizeof text), 0);
    assert_string_equal(text, "");
    for (int i = 0; i < 1000; i++) tow__string_add(&s, "%d,", i % 10);
    assert_int_equal(s.length, 2000);
    assert_string_equal(s.text + 1990, "5,6,7,8,9,");
    assert_int_equal(tow__string_export(&s, text, sizeof text), 2000);
    assert_string_equal(text, "0,1,2,3");
    c.fail_at = c.calls;
    for (int i = 0; i < 4000; i++) tow__string_add(&s, "%d,", i % 10);
    assert_true(s.failed);
    assert_int_equal(strlen(s.text), s.length);
    tow__string_free(&s);
    tow_context_free(ctx);
    assert_int_equal(c.blocks, 0);
    assert_int_equal(c.wrong_sizes, 0);
}

/* ---- types ----------------------------------------------------------------------------------------------------- */

static void test_types(void **state)
{
    (void)state;
    char text[64];
    tow_type type = tow_make_type(TOW_F64, 2, (int64_t[]){3, 4});
    assert_int_equal(tow_type_text(type, text, sizeof text), 8);
    assert_string_equal(text, "f64[3,4]");
    assert_int_equal(tow_type_element_count(type), 12);
    assert_int_equal(tow_type_bytes(type), 96);
    assert_string_equal(tow__type_name(tow_make_type(TOW_BOOL, 0, NULL)).text, "bool[]");
    assert_int_equal(tow_type_bytes(tow_make_type(TOW_BOOL, 1, (int64_t[]){5})), 5);
    assert_true(tow_type_equal(type, tow_make_type(TOW_F64, 2, (int64_t[]){3, 4})));
    assert_false(tow_type_equal(type, tow_make_type(TOW_F64, 2, (int64_t[]){4, 3})));
    assert_false(tow_type_equal(type, tow_make_type(TOW_F32, 2, (int64_t[]){3, 4})));
    assert_false(tow_type_equal(type, tow_make_type(TOW_F64, 1, (int64_t[]){3})));
    assert_true(tow_dtype_is_float(TOW_F32) && tow_dtype_is_float(TOW_F64) && !tow_dtype_is_float(TOW_BOOL));
    int64_t widest[TOW_MAX_RANK];
    for (int i = 0; i < TOW_MAX_RANK; i++) widest[i] = INT64_MIN;
    assert_int_equal(strlen(tow__type_name(tow_make_type(TOW_U32, TOW_MAX_RANK, widest)).text) > 10, true);
}

static void test_type_validity(void **state)
{
    (void)state;
    assert_true(tow__type_valid(tow_make_type(TOW_F32, 2, (int64_t[]){0, 5})));
    assert_false(tow__type_valid(tow_make_type(TOW_F32, 1, (int64_t[]){-1})));
    assert_false(tow__type_valid(tow_make_type((tow_dtype)77, 0, NULL)));
    assert_false(tow__type_valid((tow_type){.dtype = TOW_F32, .rank = 9}));
    assert_false(tow__type_valid((tow_type){.dtype = TOW_F32, .rank = -1}));
    assert_false(tow__type_valid(tow_make_type(TOW_F32, 2, (int64_t[]){INT64_MAX, INT64_MAX})));
    assert_false(tow__type_valid(tow_make_type(TOW_F32, 3, (int64_t[]){0, INT64_MAX, INT64_MAX})));
}

/* ---- arrays ---------------------------------------------------------------------------------------------------- */

static void test_array_rows_keep_their_owner(void **state)
{
    (void)state;
    counting c;
    tow_context_options options = counting_options(&c, -1);
    tow_context *ctx;
    assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
    tow_array *a, *row, *element;
    const float data[6] = {1, 2, 3, 4, 5, 6};
    assert_int_equal(tow_array_from_data(ctx, tow_make_type(TOW_F32, 2, (int64_t[]){2, 3}), data, &a), TOW_OK);
    assert_int_equal((uintptr_t)tow_array_data(a) % 64, 0);
    assert_int_equal(tow_array_row(a, 1, &row), TOW_OK);
    tow_array_release(a);
    assert_int_equal(tow_array_row(row, 2, &element), TOW_OK);
    tow_array_release(row);
    assert_int_equal(tow_array_type(element).rank, 0);
    assert_true(*(float *)tow_array_data(element) == 6.0F);
    assert_int_equal(tow_array_row(element, 0, &row), TOW_INVALID_ARGUMENT);
    assert_null(row);
    tow_array_release(element);
    tow_array_release(NULL);
    assert_int_equal(c.blocks, 1);
    tow_context_free(ctx);
}

static void test_array_errors(void **state)
{
    (void)state;
    tow_context *ctx = new_context();
    tow_array *a;
    assert_int_equal(tow_array_create(ctx, tow_make_type(TOW_F32, 1, (int64_t[]){-3}), &a), TOW_INVALID_ARGUMENT);
    assert_null(a);
    assert_non_null(strstr(tow_context_error(ctx), "f32[-3]"));
    assert_int_equal(tow_array_create(ctx, (tow_type){.rank = 40}, &a), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_array_create(ctx, tow_make_type(TOW_F32, 2, (int64_t[]){2, 0}), &a), TOW_OK);
    tow_array *row;
    assert_int_equal(tow_array_row(a, 2, &row), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_array_row(a, -1, &row), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_array_row(a, 1, &row), TOW_OK);
    tow_array_release(row);
    tow_array_release(a);
    int32_t own[3] = {7, 8, 9};
    assert_int_equal(tow_array_borrow(ctx, tow_make_type(TOW_I32, 1, (int64_t[]){3}), own, &a), TOW_OK);
    assert_ptr_equal(tow_array_data(a), own);
    tow_array_release(a);
    assert_int_equal(tow_array_borrow(ctx, tow_make_type(TOW_I32, 1, (int64_t[]){3}), NULL, &a), TOW_INVALID_ARGUMENT);
    assert_null(a);
    tow_context_free(ctx);
}

static void expect_text(tow_context *ctx, tow_type type, const void *data, const char *expected)
{
    tow_array *a;
    char text[512];
    assert_int_equal(tow_array_from_data(ctx, type, data, &a), TOW_OK);
    assert_int_equal(tow_array_text(a, text, sizeof text), strlen(expected));
    assert_string_equal(text, expected);
    tow_array_release(a);
}

static void test_array_text(void **state)
{
    (void)state;
    tow_context *ctx = new_context();
    int32_t numbers[20];
    for (int i = 0; i < 20; i++) numbers[i] = i;
    expect_text(ctx, tow_make_type(TOW_F32, 0, NULL), &(float){0.5F}, "0.5");
    expect_text(ctx, tow_make_type(TOW_I32, 2, (int64_t[]){2, 3}), numbers, "[[0 1 2]\n [3 4 5]]");
    expect_text(ctx, tow_make_type(TOW_I32, 3, (int64_t[]){2, 2, 1}), numbers, "[[[0]\n  [1]]\n [[2]\n  [3]]]");
    expect_text(ctx, tow_make_type(TOW_I32, 1, (int64_t[]){20}), numbers, "[0 1 2 ... 17 18 19]");
    expect_text(ctx, tow_make_type(TOW_I32, 1, (int64_t[]){0}), numbers, "[]");
    expect_text(ctx, tow_make_type(TOW_BOOL, 1, (int64_t[]){2}), "\1\0", "[true false]");
    tow_context_free(ctx);
}

static void test_array_allocation_failures(void **state)
{
    (void)state;
    int succeeded = 0;
    for (long n = 0; n < 20 && !succeeded; n++) {
        counting c;
        tow_context_options options = counting_options(&c, n);
        tow_context *ctx;
        tow_array *a = NULL, *row = NULL;
        if (tow_context_create(&options, &ctx) != TOW_OK) {
            assert_int_equal(n, 0);
            continue;
        }
        tow_status status = tow_array_create(ctx, tow_make_type(TOW_F32, 1, (int64_t[]){4}), &a);
        if (status == TOW_OK) status = tow_array_row(a, 3, &row);
        assert_int_equal(status, tow_context_status(ctx));
        assert_true(status == TOW_OK || status == TOW_OUT_OF_MEMORY);
        succeeded = status == TOW_OK;
        tow_array_release(a);
        tow_array_release(row);
        tow_context_free(ctx);
        assert_int_equal(c.blocks, 0);
        assert_int_equal(c.wrong_sizes, 0);
    }
    assert_true(succeeded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_texts),
        cmocka_unit_test(test_context),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_allocation),
        cmocka_unit_test(test_failed_growth_keeps_the_block),
        cmocka_unit_test(test_library_allocator_alignment),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_string),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_type_validity),
        cmocka_unit_test(test_array_rows_keep_their_owner),
        cmocka_unit_test(test_array_errors),
        cmocka_unit_test(test_array_text),
        cmocka_unit_test(test_array_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
