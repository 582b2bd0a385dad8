/* The verifier on functions made by hand: it accepts what is well-formed up to the last byte, and names the pass, the
 * node or instruction and the fault of what is not. */
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

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

/* v1 = tanh v0 */
typedef struct function {
    tow__equation e;
    uint32_t in, out, order, makers[2];
    tow__node node;
    tow__flat f;
} function;

static void make_function(function *x)
{
    *x = (function){.e = {.primitive = &tow__tanh_p, .n_in = 1, .n_out = 1}, .out = 1, .makers = {TOW__INPUT, 0}};
    x->node = (tow__node){.e = &x->e, .in = &x->in, .out = &x->out};
    x->f = (tow__flat){
        .nodes = &x->node, .n_nodes = 1, .makers = x->makers, .n_values = 2, .order = &x->order, .n_order = 1};
}

static void nodes(void **state)
{
    (void)state;
    function x;
    make_function(&x);
    OK(tow__verify_nodes(ctx, &x.f, "order"));
    x.in = 2;
    expect_fault(tow__verify_nodes(ctx, &x.f, "order"),
                 "pass order left node 0 (tanh) with a wrong operand (please report this)");
    make_function(&x);
    x.out = TOW__NONE;
    expect_fault(tow__verify_nodes(ctx, &x.f, "order"),
                 "pass order left node 0 (tanh) with a wrong result (please report this)");
    make_function(&x);
    x.makers[1] = 1;
    expect_fault(tow__verify_nodes(ctx, &x.f, "inline"),
                 "pass inline left value 1 without a maker (please report this)");
    make_function(&x);
    x.order = 1;
    expect_fault(tow__verify_nodes(ctx, &x.f, "order"),
                 "pass order ordered a node that is not there (please report this)");
}

/* ---- instructions ------------------------------------------------------------------------------------------------ */

/* #1 f32[4,3] = tanh #0 f32[4,3], both of 48 bytes */
typedef struct body {
    tow__storage storages[2];
    tow__view in, out;
    tow__instruction step;
    tow__plan plan;
    tow_program p;
} body;

static void make_body(body *b)
{
    tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){4, 3});
    *b = (body){
        .storages = {{.kind = TOW__S_ARENA, .bytes = 48}, {.kind = TOW__S_ARENA, .bytes = 48, .representative = 1}},
        .in = tow__view_whole(0, type),
        .out = tow__view_whole(1, type)};
    b->step = (tow__instruction){.op = &tow__tanh_p,
                                 .base = &tow__tanh_p,
                                 .kernel = tow__kernel_of(&tow__tanh_p, TOW_F32),
                                 .n_in = 1,
                                 .n_out = 1,
                                 .in = &b->in,
                                 .out = &b->out};
    b->plan = (tow__plan){.insts = &b->step, .n_insts = 1};
    b->p = (tow_program){.ctx = ctx, .storages = b->storages, .n_storages = 2, .top = &b->plan};
    assert_non_null(b->step.kernel);
}

static tow_status verify(const body *b) { return tow__verify_body(&b->p, &b->plan, "fuse"); }

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
    b.step.op = NULL;
    expect_fault(verify(&b), "pass fuse left instruction 0 (tanh) without an operation (please report this)");
    b.step.base = NULL;
    expect_fault(verify(&b), "pass fuse left instruction 0 (no operation) without an operation (please report this)");
    make_body(&b);
    b.step.loop = &loop;
    expect_fault(verify(&b),
                 "pass fuse left instruction 0 (tanh) with both a kernel and a body, or neither (please report this)");
    b.step.kernel = NULL;
    OK(verify(&b));
    b.step.loop = NULL;
    expect_fault(verify(&b),
                 "pass fuse left instruction 0 (tanh) with both a kernel and a body, or neither (please report this)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes),
        cmocka_unit_test(views_inside),
        cmocka_unit_test(views_outside),
        cmocka_unit_test(operations),
    };
    return cmocka_run_group_tests_name("verify", tests, setup, teardown);
}
