/* Views of plans: what instructions make of a view without a copy, which views are all of their storage, and what a
 * kernel gets of them.
 * Tests base/view.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "src/plan/analysis/view.h"
#include "src/plan/ir.h"

static tow_type f32(int rank, int64_t a, int64_t b) { return tow_make_type(TOW_F32, rank, (int64_t[]){a, b}); }

/* Elements 7 to 12 of storage 5 as [2, 3]; transposed, element [i][j] is what [j][i] was. */
static void transposes_are_views(void **state)
{
    (void)state;
    tow__transpose_params params = {{2, {1, 0}}};
    tow__instruction inst = {.op = &tow__transpose_p, .params = &params};
    tow__view x = tow__view_whole(5, f32(2, 2, 3)), y;
    x.offset = 7;
    assert_true(tow__view_of(&inst, &x, f32(2, 3, 2), &y));
    assert_int_equal(y.storage, 5);
    assert_int_equal(y.offset, 7);
    assert_true(tow_type_equal(y.type, f32(2, 3, 2)));
    assert_int_equal(y.strides[0], 1);
    assert_int_equal(y.strides[1], 3);
}

/* A row of three, repeated along a new axis 0: all four rows are the same. */
static void broadcasts_are_views(void **state)
{
    (void)state;
    tow__broadcast_params params = {{2, {4, 3}}, {1, {1}}};
    tow__instruction inst = {.op = &tow__broadcast_in_dim_p, .params = &params};
    tow__view x = tow__view_whole(0, f32(1, 3, 0)), y;
    assert_true(tow__view_of(&inst, &x, f32(2, 4, 3), &y));
    assert_int_equal(y.strides[0], 0);
    assert_int_equal(y.strides[1], 1);
}

static void functions_are_no_views(void **state)
{
    (void)state;
    tow__instruction inst = {.op = &tow__tanh_p};
    tow__view x = tow__view_whole(0, f32(2, 2, 3)), y;
    assert_false(tow__view_of(&inst, &x, x.type, &y));
}

/* A transposed array has no row-major view of another shape. */
static void some_reshapes_are_views(void **state)
{
    (void)state;
    tow__shape_params params = {{1, {6}}};
    tow__instruction inst = {.op = &tow__reshape_p, .params = &params};
    tow__view x = tow__view_whole(0, f32(2, 2, 3)), y;
    assert_true(tow__view_of(&inst, &x, f32(1, 6, 0), &y));
    assert_int_equal(y.strides[0], 1);
    x.strides[0] = 1, x.strides[1] = 2;
    assert_false(tow__view_of(&inst, &x, f32(1, 6, 0), &y));
}

static void whole_views(void **state)
{
    (void)state;
    tow__storage storage = {.bytes = 24};
    tow_program p = {.storages = &storage, .n_storages = 1};
    tow__view x = tow__view_whole(0, f32(2, 2, 3));
    assert_true(tow__is_whole(&p, &x));
    x.strides[0] = 1, x.strides[1] = 2;
    assert_false(tow__is_whole(&p, &x)); /* not row-major */
    x = tow__view_whole(0, f32(2, 1, 3));
    assert_false(tow__is_whole(&p, &x)); /* the first row only */
    storage.bytes = 12;
    assert_true(tow__is_whole(&p, &x));
    x.offset = 3;
    assert_false(tow__is_whole(&p, &x));
}

static void kernels_get_types_and_strides(void **state)
{
    (void)state;
    tow__view x = tow__view_whole(0, f32(2, 2, 3));
    x.strides[0] = -3;
    tow__buffer buffer = tow__view_buffer(&x);
    assert_null(buffer.data);
    assert_int_equal(buffer.dtype, TOW_F32);
    assert_int_equal(buffer.rank, 2);
    assert_int_equal(buffer.dims[0], 2);
    assert_int_equal(buffer.dims[1], 3);
    assert_int_equal(buffer.strides[0], -3);
    assert_int_equal(buffer.strides[1], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transposes_are_views),
        cmocka_unit_test(broadcasts_are_views),
        cmocka_unit_test(functions_are_no_views),
        cmocka_unit_test(some_reshapes_are_views),
        cmocka_unit_test(whole_views),
        cmocka_unit_test(kernels_get_types_and_strides),
    };
    return cmocka_run_group_tests_name("view", tests, NULL, NULL);
}
