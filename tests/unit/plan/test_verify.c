/* The verifier on functions made by hand: it accepts what is well-formed up to the last byte, and names the pass, the
 * instruction and the fault of what is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "src/plan/pass.h"
#include "tests/unit/support/plain_context.h"

static void expect_fault(tow_status status, const char *message)
{
    assert_int_equal(status, TOW_INTERNAL_ERROR);
    assert_string_equal(tow_context_error(ctx), message);
    tow_context_clear_error(ctx);
}

/* ---- instructions on values -------------------------------------------------------------------------------------- */

/* v1 = tanh v0; v2 = tanh v1 */
typedef struct function {
    uint32_t values[3], makers[3];
    bool delivered[3];
    tow__instruction insts[2];
    tow__body body;
} function;

static void make_function(function *x)
{
    *x = (function){.values = {0, 1, 2}, .makers = {TOW__INPUT, 0, 1}};
    for (int i = 0; i < 2; i++)
        x->insts[i] = (tow__instruction){.op = &tow__tanh_p,
                                         .n_in = 1,
                                         .n_out = 1,
                                         .operands = &x->values[i],
                                         .results = &x->values[i + 1]};
    x->body = (tow__body){.insts = x->insts, .n_insts = 2, .makers = x->makers, .n_values = 3};
}

static void on_values(void **state)
{
    (void)state;
    function x;
    make_function(&x);
    OK(tow__verify_values(ctx, &x.body, "order"));
    x.values[0] = 3;
    expect_fault(tow__verify_values(ctx, &x.body, "order"),
                 "pass order left instruction 0 (tanh) with a wrong operand (please report this)");
    make_function(&x);
    x.values[2] = TOW__NONE;
    expect_fault(tow__verify_values(ctx, &x.body, "order"),
                 "pass order left instruction 1 (tanh) with a wrong result (please report this)");
    make_function(&x);
    x.makers[1] = 2;
    expect_fault(tow__verify_values(ctx, &x.body, "inline"),
                 "pass inline left value 1 without a maker (please report this)");
}

/* Before they are ordered, instructions may stand in any order. */
static void in_order(void **state)
{
    (void)state;
    function x;
    make_function(&x);
    tow__instruction first = x.insts[0];
    x.insts[0] = x.insts[1];
    x.insts[1] = first;
    x.makers[1] = 1;
    x.makers[2] = 0;
    OK(tow__verify_values(ctx, &x.body, "inline"));
    x.body.delivered = x.delivered;
    expect_fault(tow__verify_values(ctx, &x.body, "order"),
                 "pass order left instruction 0 (tanh) before what makes its operands (please report this)");
    make_function(&x);
    x.body.delivered = x.delivered;
    OK(tow__verify_values(ctx, &x.body, "order"));
}

/* ---- instructions on views --------------------------------------------------------------------------------------- */

/* #1 f32[4,3] = tanh #0 f32[4,3], both of 48 bytes */
typedef struct body {
    tow__storage storages[2];
    tow__view in, out;
    tow__instruction inst;
    tow__body function;
    tow_program p;
} body;

static void make_body(body *b)
{
    tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){4, 3});
    *b = (body){
        .storages = {{.kind = TOW__S_ARENA, .bytes = 48}, {.kind = TOW__S_ARENA, .bytes = 48, .representative = 1}},
        .in = tow__view_whole(0, type),
        .out = tow__view_whole(1, type)};
    b->inst = (tow__instruction){.op = &tow__tanh_p,
                                 .kernel = tow__kernel_of(&tow__tanh_p, TOW_F32),
                                 .n_in = 1,
                                 .n_out = 1,
                                 .in = &b->in,
                                 .out = &b->out};
    b->function = (tow__body){.insts = &b->inst, .n_insts = 1};
    b->p = (tow_program){.ctx = ctx, .storages = b->storages, .n_storages = 2, .top = &b->function};
    assert_non_null(b->inst.kernel);
}

static tow_status verify(const body *b) { return tow__verify_views(&b->p, &b->function, "fuse"); }

static const char reads_outside[] =
    "pass fuse left instruction 0 (tanh) reading outside of a storage (please report this)";
static const char writes_outside[] =
    "pass fuse left instruction 0 (tanh) writing outside of a storage (please report this)";

/* Elements 0 to 11 are there, whatever the order in which a view goes through them. */
static void views_inside(void **state)
{
    (void)state;
    body b;
    make_body(&b);
    OK(verify(&b));
    b.in.offset = 9, b.in.strides[0] = -3; /* rows in reverse: 9 10 11, 6 7 8, ... 0 1 2 */
    OK(verify(&b));
    b.in.offset = 11, b.in.strides[0] = 0, b.in.strides[1] = -5; /* 11 6 1 four times */
    OK(verify(&b));
    make_body(&b);
    b.in.type.dims[0] = 0, b.in.offset = 1000; /* no elements */
    OK(verify(&b));
    make_body(&b);
    b.storages[0].kind = TOW__S_ROW_IN, b.in.strides[0] = 100; /* a row with gaps of the array around the loop */
    OK(verify(&b));
}

static void views_outside(void **state)
{
    (void)state;
    body b;
    make_body(&b);
    b.in.offset = 1; /* up to element 12 */
    expect_fault(verify(&b), reads_outside);
    b.in.offset = -1;
    expect_fault(verify(&b), reads_outside);
    b.in.offset = 8, b.in.strides[0] = -3; /* down to element -1 */
    expect_fault(verify(&b), reads_outside);
    make_body(&b);
    b.in.type.dtype = TOW_F64; /* 96 bytes */
    expect_fault(verify(&b), reads_outside);
    make_body(&b);
    b.in.storage = 2; /* there is none */
    expect_fault(verify(&b), reads_outside);
    make_body(&b);
    b.storages[1].bytes = 47;
    expect_fault(verify(&b), writes_outside);
}

static void operations(void **state)
{
    (void)state;
    body b;
    tow__loop loop = {.length = 1};
    make_body(&b);
    b.inst.op = NULL;
    expect_fault(verify(&b), "pass fuse left instruction 0 (no operation) without an operation (please report this)");
    make_body(&b);
    b.inst.loop = &loop;
    expect_fault(verify(&b),
                 "pass fuse left instruction 0 (tanh) with both a kernel and a body, or neither (please report this)");
    b.inst.kernel = NULL;
    OK(verify(&b));
    b.inst.loop = NULL;
    expect_fault(verify(&b),
                 "pass fuse left instruction 0 (tanh) with both a kernel and a body, or neither (please report this)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_values),     cmocka_unit_test(in_order),   cmocka_unit_test(views_inside),
        cmocka_unit_test(views_outside), cmocka_unit_test(operations),
    };
    return cmocka_run_group_tests_name("verify", tests, setup, teardown);
}
