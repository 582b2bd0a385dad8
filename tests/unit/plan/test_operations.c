/* Operations that only plans have: each is found by its name, costs what the primitive costs that it was made of, and
 * is tiled as that is, or not at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "src/kernels/elementwise/fused.h"
#include "src/plan/ir.h"

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

/* There are five: what else an instruction does is a field of it, no operation. Only a loss with its gradient
 * multiplies matrices. */
static void operations_are_few(void **state)
{
    (void)state;
    assert_int_equal(OPERATIONS, 5);
    for (size_t i = 0; i < OPERATIONS; i++)
        assert_int_equal(operations[i]->product,
                         operations[i] == &tow__linear_cross_entropy_and_vjp_p ? TOW__PLAIN_PRODUCT : TOW__NO_PRODUCT);
}

static const tow__row_epilogue epilogue;
static const tow__row_reductions reductions;
static const tow__addition adds, adds_in_order = {.in_order = true};
static const tow__sum_part part;

/* [4, 8] times [8, 3] takes 2 * 4 * 8 * 3 operations, whatever is added or done to it on the way. */
static void products_cost_products(void **state)
{
    (void)state;
    tow__dot_params params = {.lhs_contract = {1, {1}}, .rhs_contract = {1, {0}}};
    tow__view in[] = {whole(2, 4, 8), whole(2, 8, 3), whole(2, 4, 3)}, out = whole(2, 4, 3);
    tow__instruction inst = {
        .op = &tow__dot_general_p, .params = &params, .n_in = 3, .n_out = 1, .in = in, .out = &out};
    const tow__extras extras[] = {{.epilogue = &epilogue}, {.accumulation = &adds}, {.part = &part}};
    for (size_t i = 0; i < sizeof extras / sizeof *extras; i++) {
        int from[3];
        inst.extras = extras[i];
        const tow__operation o = tow__operation_of(&inst);
        assert_true(o.primitive->cost(&o).exact == 192);
        assert_true(o.primitive->tile(&o, 0, from)); /* rows of x and of what is read behind the product; all of w */
        assert_int_equal(from[0], 0);
        assert_int_equal(from[1], TOW__WHOLE);
        assert_int_equal(from[2], 0);
        assert_true(o.primitive->tile(&o, 1, from));
        assert_int_equal(from[0], TOW__WHOLE);
        assert_int_equal(from[1], 1);
        assert_int_equal(from[2], 1);
    }
}

/* Kernels of products that do more: every product can have an epilogue, and most can add. */
static void products_do_more(void **state)
{
    (void)state;
    const struct {
        const tow_primitive *op;
        bool epilogue, adds, adds_in_order, parts;
    } cases[] = {{&tow__dot_general_p, true, true, true, true},
                 {&tow__ragged_dot_p, true, true, false, false},
                 {&tow__ragged_dot_contract_p, true, true, false, false},
                 {&tow__conv_general_dilated_p, true, false, false, false},
                 {&tow__reduce_sum_p, false, false, true, true},
                 {&tow__tanh_p, false, false, false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow__instruction inst = {.op = cases[i].op};
        assert_true(tow__is_plain(&inst));
        assert_ptr_equal(tow__kernel_for(&inst, TOW_F32), tow__kernel_of(inst.op, TOW_F32));
        inst.extras = (tow__extras){.epilogue = &epilogue};
        assert_int_equal(tow__kernel_for(&inst, TOW_F32) != NULL, cases[i].epilogue);
        inst.extras = (tow__extras){.accumulation = &adds};
        assert_int_equal(tow__kernel_for(&inst, TOW_F32) != NULL, cases[i].adds);
        inst.extras = (tow__extras){.accumulation = &adds_in_order};
        assert_int_equal(tow__kernel_for(&inst, TOW_F32) != NULL, cases[i].adds_in_order);
        inst.extras = (tow__extras){.part = &part};
        assert_int_equal(tow__kernel_for(&inst, TOW_F32) != NULL, cases[i].parts);
        assert_false(tow__is_plain(&inst));
    }
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
        int from[1] = {TOW__WHOLE};
        bool goes = operations[i]->tile(&o, 0, from);
        tiled += goes;
        assert_int_equal(goes, operations[i] == &tow__fused_p || operations[i] == &tow__copy_p);
        if (goes) assert_int_equal(from[0], 0);
    }
    assert_int_equal(tiled, 2);
}

/* A sum may lie where one of its operands lies, to which it is added; other operands of sums are not written over. */
static void sums_write_over_what_they_are_added_to(void **state)
{
    (void)state;
    tow__instruction inst = {.op = &tow__dot_general_p};
    assert_int_equal(tow__aliasing_of(&inst), TOW__ALIAS_NONE); /* a product reads until its end */
    inst.extras.epilogue = &epilogue;
    assert_int_equal(tow__aliasing_of(&inst), TOW__ALIAS_NONE);
    inst.extras = (tow__extras){.accumulation = &adds};
    assert_int_equal(tow__aliasing_of(&inst), TOW__ALIAS_LAST); /* x, w, the matrix */
    inst.extras.accumulation = &adds_in_order;
    assert_int_equal(tow__aliasing_of(&inst), TOW__ALIAS_LAST);
    inst = (tow__instruction){.op = &tow__fused_p, .extras = {.reductions = &reductions}};
    assert_int_equal(tow__aliasing_of(&inst), TOW__ALIAS_EACH);
    inst = (tow__instruction){.op = &tow__reduce_sum_p, .extras = {.part = &part}};
    assert_int_equal(tow__aliasing_of(&inst), TOW__ALIAS_NONE);
    assert_int_equal(tow__copy_p.aliasing, TOW__ALIAS_NONE); /* a view has another order */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_are_found),
        cmocka_unit_test(products_cost_products),
        cmocka_unit_test(operations_are_few),
        cmocka_unit_test(products_do_more),
        cmocka_unit_test(losses_with_gradients_cost_three_products),
        cmocka_unit_test(tiling),
        cmocka_unit_test(sums_write_over_what_they_are_added_to),
    };
    return cmocka_run_group_tests_name("operations", tests, NULL, NULL);
}
