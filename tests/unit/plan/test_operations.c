/* Operations that only plans have: each is found by its name, costs what the primitive costs that it was made of, and
 * is tiled as that is, or not at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "src/plan/operations.h"

static const tow_primitive *const operations[] = {
#define X(name, what) &tow__##name##_p,
    TOW__OPERATION_LIST(X)
#undef X
};

static const char *const names[] = {
#define X(name, what) #name,
    TOW__OPERATION_LIST(X)
#undef X
};

enum {
    OPERATIONS = sizeof operations / sizeof *operations
};

static void operations_are_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < OPERATIONS; i++) {
        assert_ptr_equal(tow__operation_find(names[i]), operations[i]);
        assert_null(tow__primitive_find(names[i], strlen(names[i]))); /* no graph has it */
    }
    assert_ptr_equal(tow__operation_find("dot_general"), &tow__dot_general_p);
    assert_null(tow__operation_find("fuse"));
    assert_null(tow__operation_find("fused_"));
    assert_null(tow__operation_find(""));
}

static tow__view whole(int rank, int64_t a, int64_t b)
{
    return tow__view_whole(0, tow_make_type(TOW_F32, rank, (int64_t[]){a, b}));
}

/* [4, 8] times [8, 3] takes 2 * 4 * 8 * 3 operations, whatever is added or done to it on the way. */
static void products_cost_products(void **state)
{
    (void)state;
    tow__dot_params params = {.lhs_contract = {1, {1}}, .rhs_contract = {1, {0}}};
    tow__view in[] = {whole(2, 4, 8), whole(2, 8, 3), whole(2, 4, 3)}, out = whole(2, 4, 3);
    const tow__operation o = {&params, 3, 1, in, &out};
    const tow_primitive *const products[] = {&tow__fused_dot_general_p, &tow__dot_general_add_p,
                                             &tow__dot_general_part_p};
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        int from[3];
        assert_int_equal(products[i]->product, TOW__PLAIN_PRODUCT);
        assert_true(products[i]->cost(&o).exact == 192);
        assert_true(products[i]->tile(&o, 0, from)); /* rows of x and of what is read behind the product; all of w */
        assert_int_equal(from[0], 0);
        assert_int_equal(from[1], TOW__WHOLE);
        assert_int_equal(from[2], 0);
        assert_true(products[i]->tile(&o, 1, from));
        assert_int_equal(from[0], TOW__WHOLE);
        assert_int_equal(from[1], 1);
        assert_int_equal(from[2], 1);
    }
}

/* [4, 5, 8] with a kernel of [3, 8, 2] takes 2 * 4 * 5 * 3 * 8 * 2 operations, and goes by batch entries or
 * features. */
static void convolutions_cost_convolutions(void **state)
{
    (void)state;
    tow__conv_params params = {.dimensions = "NWC,WIO->NWC", .low = {1, {1}}, .high = {1, {1}}, .feature_groups = 1};
    params.batch_groups = 1;
    const tow_type result = tow_make_type(TOW_F32, 3, (int64_t[]){4, 5, 2});
    tow__view in[] = {tow__view_whole(0, tow_make_type(TOW_F32, 3, (int64_t[]){4, 5, 8})),
                      tow__view_whole(0, tow_make_type(TOW_F32, 3, (int64_t[]){3, 8, 2})), tow__view_whole(0, result)};
    tow__view out = tow__view_whole(0, result);
    const tow__operation o = {&params, 3, 1, in, &out};
    const tow_primitive *conv = &tow__fused_conv_general_dilated_p;
    int from[3];
    assert_ptr_equal(tow__with_epilogue(&tow__conv_general_dilated_p), conv);
    assert_int_not_equal(conv->product, TOW__NO_PRODUCT);
    assert_true(conv->cost(&o).exact == 1920);
    assert_true(conv->tile(&o, 0, from));
    assert_int_equal(from[0], 0);
    assert_int_equal(from[1], TOW__WHOLE);
    assert_int_equal(from[2], 0);
    assert_true(conv->tile(&o, 2, from));
    assert_int_equal(from[0], TOW__WHOLE);
    assert_int_equal(from[1], 2);
    assert_int_equal(from[2], 2);
    assert_false(conv->tile(&o, 1, from));
}

/* x [4, 8] and w [8, 5] give logits, 2 * 4 * 8 * 5 operations, and each of dx and dw takes as many again. Loss and
 * log-sum-exp are results as well, but no products. */
static void losses_with_gradients_cost_three_products(void **state)
{
    (void)state;
    tow__view in[] = {whole(2, 4, 8), whole(2, 8, 5), whole(1, 4, 0), whole(1, 4, 0)};
    tow__view out[] = {whole(1, 4, 0), whole(1, 4, 0), whole(2, 4, 8), whole(2, 8, 5)};
    const tow_primitive *both = &tow__linear_cross_entropy_and_vjp_p;
    tow__linear_cross_entropy_ad_params params = {.wrt = 3};
    assert_true(both->cost(&(tow__operation){&params, 4, 4, in, out}).exact == 3 * 320);
    assert_true(both->cost(&(tow__operation){&params, 4, 3, in, out}).exact == 2 * 320); /* dx alone */
}

/* Row programs and copies go by rows; what is a loop or a part of one does not. */
static void tiling(void **state)
{
    (void)state;
    tow__view in = whole(2, 4, 3), out = whole(2, 4, 3);
    const tow__operation o = {NULL, 1, 1, &in, &out};
    size_t tiled = 0;
    for (size_t i = 0; i < OPERATIONS; i++) {
        if (operations[i]->kind == TOW__DOT || operations[i]->kind == TOW__CONVOLUTION) continue;
        int from[1] = {TOW__WHOLE};
        bool goes = operations[i]->tile(&o, 0, from);
        tiled += goes;
        assert_int_equal(goes, operations[i] == &tow__fused_p || operations[i] == &tow__copy_p);
        if (goes) assert_int_equal(from[0], 0);
    }
    assert_int_equal(tiled, 2);
}

/* What only adds to a carry may do so where that lies; what is added is not written over. */
static void sums_write_over_their_carry(void **state)
{
    (void)state;
    assert_int_equal(tow__dot_general_add_p.aliasing, TOW__ALIAS_LAST); /* x, w, the matrix */
    assert_int_equal(tow__sum_rows_p.aliasing, TOW__ALIAS_FIRST);       /* the carry, rows */
    assert_int_equal(tow__sum_dots_p.aliasing, TOW__ALIAS_FIRST);
    assert_int_equal(tow__fused_dot_general_p.aliasing, TOW__ALIAS_NONE); /* the product reads until its end */
    assert_int_equal(tow__copy_p.aliasing, TOW__ALIAS_NONE);              /* a view has another order */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_are_found),
        cmocka_unit_test(products_cost_products),
        cmocka_unit_test(convolutions_cost_convolutions),
        cmocka_unit_test(losses_with_gradients_cost_three_products),
        cmocka_unit_test(tiling),
        cmocka_unit_test(sums_write_over_their_carry),
    };
    return cmocka_run_group_tests_name("operations", tests, NULL, NULL);
}
