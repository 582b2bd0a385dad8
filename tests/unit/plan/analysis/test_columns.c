/* Columns by themselves: what is borrowed is blank, what is given back is blank again and lent once more, and columns
 * grow with the program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "src/plan/analysis/columns.h"
#include "src/plan/ir.h"
#include "tests/unit/support/plain_context.h"

/* A program of which only the number of storages counts. */
typedef struct fixture {
    tow_program p;
    tow__arena scratch;
} fixture;

static fixture begin(uint32_t storages)
{
    fixture f = {.p = {.ctx = ctx, .n_storages = storages, .storages_capacity = storages}};
    tow__arena_init(&f.scratch, ctx);
    return f;
}

static uint32_t *borrow(fixture *f, int blank)
{
    uint32_t *column = tow__borrow(&f->p, &f->scratch, sizeof *column, blank);
    assert_non_null(column);
    return column;
}

static void expect_all(const uint32_t *column, uint32_t n, uint32_t value)
{
    for (uint32_t i = 0; i < n; i++) assert_int_equal(column[i], value);
}

static void columns_are_blank(void **state)
{
    (void)state;
    fixture f = begin(5);
    expect_all(borrow(&f, 0), 5, 0);
    expect_all(borrow(&f, 0xff), 5, UINT32_MAX);
    tow__arena_free(&f.scratch);
}

/* Two that are out at the same time differ; one that is back is lent again, to those who want the same items only. */
static void columns_are_lent_again(void **state)
{
    (void)state;
    fixture f = begin(3);
    uint32_t *a = borrow(&f, 0), *b = borrow(&f, 0);
    assert_ptr_not_equal(a, b);
    tow__give_back(&f.p, a, NULL, 0, NULL);
    assert_ptr_not_equal(borrow(&f, 0xff), a);
    assert_ptr_not_equal(tow__borrow(&f.p, &f.scratch, sizeof(uint64_t), 0), a);
    assert_ptr_equal(borrow(&f, 0), a);
    tow__arena_free(&f.scratch);
}

/* Step 0 reads storage 1 and writes 2, step 1 reads 2 and writes 4. */
static void what_steps_name_is_blank_again(void **state)
{
    (void)state;
    fixture f = begin(6);
    tow__view views[] = {{.storage = 1}, {.storage = 2}, {.storage = 4}};
    const tow__instruction steps[] = {{.n_in = 1, .n_out = 1, .in = &views[0], .out = &views[1]},
                                      {.n_in = 1, .n_out = 1, .in = &views[1], .out = &views[2]}};
    uint32_t *column = borrow(&f, 0xff);
    column[1] = 10, column[2] = 20, column[4] = 40;
    tow__give_back(&f.p, column, steps, 2, NULL);
    assert_ptr_equal(borrow(&f, 0xff), column);
    expect_all(column, 6, UINT32_MAX);
    column[2] = 20, column[4] = 40;
    tow__give_back(&f.p, column, steps, 1, (uint32_t[]){1}); /* step 1 only */
    expect_all(column, 6, UINT32_MAX);
    tow__arena_free(&f.scratch);
}

static void one_item_is_blank_again(void **state)
{
    (void)state;
    fixture f = begin(3);
    uint32_t *column = borrow(&f, 0xff);
    column[0] = 7, column[1] = 8, column[2] = 9;
    tow__blank(&f.p, column, 1);
    assert_int_equal(column[0], 7);
    assert_int_equal(column[1], UINT32_MAX);
    assert_int_equal(column[2], 9);
    tow__arena_free(&f.scratch);
}

/* A column that was borrowed when there were 3 storages has room for 100 when there are so many. */
static void columns_grow(void **state)
{
    (void)state;
    fixture f = begin(3);
    tow__give_back(&f.p, borrow(&f, 0xff), NULL, 0, NULL);
    f.p.n_storages = 100, f.p.storages_capacity = 128;
    uint32_t *column = borrow(&f, 0xff);
    expect_all(column, 100, UINT32_MAX);
    for (uint32_t i = 0; i < 100; i++) column[i] = i;
    uint32_t *other = borrow(&f, 0);
    expect_all(other, 100, 0);
    for (uint32_t i = 0; i < 100; i++) assert_int_equal(column[i], i);
    tow__arena_free(&f.scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_blank),
        cmocka_unit_test(columns_are_lent_again),
        cmocka_unit_test(what_steps_name_is_blank_again),
        cmocka_unit_test(one_item_is_blank_again),
        cmocka_unit_test(columns_grow),
    };
    return cmocka_run_group_tests_name("columns", tests, setup, teardown);
}
