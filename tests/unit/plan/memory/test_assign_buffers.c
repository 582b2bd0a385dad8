/* The memory of plans by itself: reshaped views against positions counted one by one, and offsets of intervals, of
 * which no two may meet both in time and in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "src/plan/ir.h"
#include "src/plan/memory/memory.h"
#include "tests/unit/support/pick.h"
#include "tests/unit/support/threaded_context.h"

/* ---- views ------------------------------------------------------------------------------------------------------- */

static int64_t address(const tow__view *x, int64_t i)
{
    int64_t offset = x->offset;
    for (int axis = x->type.rank - 1; axis >= 0; axis--) {
        offset += i % x->type.dims[axis] * x->strides[axis];
        i /= x->type.dims[axis];
    }
    return offset;
}

/* A random shape of `count` elements. */
static tow_type random_shape(int64_t count)
{
    int64_t dims[TOW_MAX_RANK];
    int rank = 0;
    while (rank < 5 && (count > 1 || pick(2))) {
        int64_t d = 1 + pick(6);
        if (rank == 4) d = count;
        if (count % d) continue;
        dims[rank++] = d;
        count /= d;
    }
    return tow_make_type(TOW_F32, rank, dims);
}

/* Element i of the reshaped view is element i of the view, or there is no such view; of contiguous ones there always
 * is. */
static void test_reshaped_views(void **state)
{
    (void)state;
    int views = 0, refused = 0;
    seed = 5;
    for (int round = 0; round < 20000; round++) {
        int64_t count = (int64_t[]){1, 12, 24, 36, 60}[pick(5)];
        tow__view x = tow__view_whole(0, random_shape(count)), y;
        bool contiguous = pick(4) == 0;
        for (int swaps = contiguous || x.type.rank < 2 ? 0 : pick(3); swaps > 0; swaps--) {
            int i = pick(x.type.rank), j = pick(x.type.rank);
            int64_t dim = x.type.dims[i], stride = x.strides[i];
            x.type.dims[i] = x.type.dims[j], x.strides[i] = x.strides[j];
            x.type.dims[j] = dim, x.strides[j] = stride;
        }
        if (!contiguous && x.type.rank && pick(2))
            x.strides[pick(x.type.rank)] *= pick(4) - 1; /* reversed, repeated, spread */
        bool viewed = tow__view_reshape(&x, random_shape(count), &y);
        views += viewed;
        refused += !viewed;
        assert_true(viewed || !contiguous);
        for (int64_t i = 0; viewed && i < count; i++) assert_int_equal(address(&y, i), address(&x, i));
    }
    assert_true(views > 1000 && refused > 1000);
}

/* ---- placement --------------------------------------------------------------------------------------------------- */

static void test_placement(void **state)
{
    (void)state;
    seed = 7;
    for (int round = 0; round < 300; round++) {
        tow__interval all[40];
        uint32_t n = 1 + (uint32_t)pick(40);
        size_t total, bound, sum = 0;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t first = (uint32_t)pick(30);
            size_t bytes = 64 * (size_t)(1 + pick(50));
            all[i] = (tow__interval){.first = first, .last = first + (uint32_t)pick(8), .bytes = bytes, .need = bytes};
            sum += bytes;
        }
        OK(tow__assign_offsets(ctx, all, n, 40, &total, &bound));
        assert_true(bound <= total && total <= sum);
        for (uint32_t i = 0; i < n; i++) {
            assert_true(all[i].offset % 64 == 0 && all[i].offset + all[i].bytes <= total);
            for (uint32_t j = 0; j < i; j++) {
                bool in_time = all[i].first <= all[j].last && all[j].first <= all[i].last;
                bool in_memory =
                    all[i].offset < all[j].offset + all[j].bytes && all[j].offset < all[i].offset + all[i].bytes;
                assert_false(in_time && in_memory);
            }
        }
    }
}

/* Sums that would wrap around are no memory to plan with. */
static void test_too_many_bytes(void **state)
{
    (void)state;
    size_t total, bound;
    tow__interval all[4];
    for (int i = 0; i < 4; i++)
        all[i] = (tow__interval){.last = 3, .bytes = SIZE_MAX / 2 / 64 * 64, .need = SIZE_MAX / 2 / 64 * 64};
    for (uint32_t n = 1; n <= 4; n++) {
        assert_int_equal(tow__assign_offsets(ctx, all, n, 4, &total, &bound), TOW_OUT_OF_MEMORY);
        assert_non_null(strstr(tow_context_error(ctx), "more than"));
        tow_context_clear_error(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_reshaped_views, setup, teardown),
        cmocka_unit_test_setup_teardown(test_placement, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_many_bytes, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
