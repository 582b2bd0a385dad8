/* Expressions of optimizers that become one op of a row program: each order of operands, with arrays and with single
 * numbers in the places that are often single numbers, has the bits of its parts.
 *
 * Tests row_program.c, kernels/elementwise/joined.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/fusion.h"
#include "tow/ops.h"

typedef enum kind {
    PRODUCT,      /* a b */
    THREE_LEFT,   /* (a b) c */
    THREE_RIGHT,  /* c (a b) */
    SQUARE_LEFT,  /* a^2 b */
    SQUARE_RIGHT, /* b a^2 */
    ROOT,         /* sqrt(a / b), and plus e */
    DIRECTION,    /* d / (sqrt(a / b) + e) */
    ADAM,         /* (a / b) / (sqrt(c / d) + e) */
    OVER_ROOT,    /* d / (sqrt(a) + e) */
    STEP,         /* a b + c, times d, plus e */
    KINDS
} kind;

typedef struct expression {
    kind kind;
    bool turned, turned_inside, turned_product; /* sums and products with operands the other way round */
} expression;

static tow_value sum(bool turned, tow_value x, tow_value y) { return turned ? tow_add(y, x) : tow_add(x, y); }
static tow_value product(bool turned, tow_value x, tow_value y) { return turned ? tow_mul(y, x) : tow_mul(x, y); }

/* in: a, b, c, d, e, of one shape or scalars. */
static void record(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const expression *x = user;
    const tow_type type = matrix(5, 400);
    tow_value v[5], root;
    (void)trace;
    for (int i = 0; i < 5; i++) v[i] = tow_broadcast_to(in[i], type.rank, type.dims);
    switch (x->kind) {
    case PRODUCT:
        *out = sum(x->turned, tow_mul(v[0], v[1]), tow_mul(v[3], v[4]));
        break;
    case THREE_LEFT:
    case THREE_RIGHT:
        *out = sum(x->turned, product(x->kind == THREE_RIGHT, tow_mul(v[0], v[1]), v[2]), tow_mul(v[3], v[4]));
        break;
    case SQUARE_LEFT:
    case SQUARE_RIGHT:
        *out = sum(x->turned, product(x->kind == SQUARE_RIGHT, tow_square(v[0]), v[1]), tow_mul(v[3], v[4]));
        break;
    case ROOT:
        root = tow_sqrt(tow_div(v[0], v[1]));
        *out = x->turned ? tow_add(root, v[4]) : root;
        break;
    case DIRECTION:
        *out = tow_div(v[3], tow_add(tow_sqrt(tow_div(v[0], v[1])), v[4]));
        break;
    case ADAM:
        *out = tow_div(tow_div(v[0], v[1]), tow_add(tow_sqrt(tow_div(v[2], v[3])), v[4]));
        break;
    case OVER_ROOT:
        *out = tow_div(v[3], tow_add(tow_sqrt(v[0]), v[4]));
        break;
    default:
        *out = sum(x->turned, product(x->turned_product, sum(x->turned_inside, tow_mul(v[0], v[1]), v[2]), v[3]), v[4]);
    }
}

static const char *const joined[KINDS] = {
    [PRODUCT] = "(mul + mul + add)",
    [THREE_LEFT] = "(mul + mul + mul + add)",
    [THREE_RIGHT] = "(mul + mul + mul + add)",
    [SQUARE_LEFT] = "(integer_pow + mul + mul + add)",
    [SQUARE_RIGHT] = "(integer_pow + mul + mul + add)",
    [ROOT] = "(div + sqrt",
    [DIRECTION] = "(div + sqrt + add + div)",
    [ADAM] = "(div + div + sqrt + add + div)",
    [OVER_ROOT] = "(sqrt + add + div)",
    [STEP] = "(mul + add + mul + add)",
};

/* Bits of what lies before the first product of two scalars, which would be computed by itself. */
static const unsigned scalars[KINDS] = {
    [PRODUCT] = 2 | 16, [THREE_LEFT] = 4 | 16, [THREE_RIGHT] = 4 | 16, [SQUARE_LEFT] = 2 | 16, [SQUARE_RIGHT] = 2 | 16,
    [ROOT] = 2 | 16,    [DIRECTION] = 2 | 16,  [ADAM] = 2 | 8 | 16,    [OVER_ROOT] = 16,       [STEP] = 2 | 8,
};

static void check(const expression *x, unsigned single)
{
    static char text[1 << 14];
    size_t fused, separate;
    tow_type types[5];
    tow_program *p;
    for (int i = 0; i < 5; i++) types[i] = single >> i & 1 ? tow_make_type(TOW_F32, 0, NULL) : matrix(5, 400);
    tow_graph *g = trace(record, (void *)x, 5, types, 1);
    expect_same(g, x->kind, &fused, &separate);
    OK(tow_compile(ctx, g, &TOW_COMPILE_OPTIONS(.threads = 1), &p));
    tow_program_text(p, text, sizeof text);
    if (!strstr(text, joined[x->kind])) fail_msg("kind %d, scalars %u: not joined:\n%s", x->kind, single, text);
    tow_program_free(p);
    tow_graph_release(g);
}

static void test_expressions(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++)
        for (int turned = 0; turned < 8; turned++) {
            const expression x = {(kind)k, turned & 1, turned & 2, turned & 4};
            const unsigned usual = scalars[k];
            if (turned > 1 && k != STEP) continue;
            check(&x, 0);
            check(&x, usual);
            check(&x, usual & (usual - 1)); /* one of them is an array */
            check(&x, 1);                   /* and another one a number */
        }
}

/* A number that a joined op reads where it lies, and another op in a tile. */
static void shared_number(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const tow_type type = matrix(5, 400);
    tow_value s = tow_broadcast_to(in[2], type.rank, type.dims);
    (void)trace, (void)user;
    out[0] = tow_add(tow_mul(in[0], s), tow_mul(in[1], s));
    out[1] = tow_max(in[0], s);
}

static void test_shared_number(void **state)
{
    (void)state;
    size_t fused, separate;
    tow_graph *g =
        trace(shared_number, NULL, 3, (tow_type[]){matrix(5, 400), matrix(5, 400), tow_make_type(TOW_F32, 0, NULL)}, 2);
    expect_same(g, 0, &fused, &separate);
    tow_graph_release(g);
}

/* Results that take the memory of operands, of which some are read after them: with donations the bits stay. */
static void chained(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_add(tow_mul_scalar(in[0], 0.9), tow_mul_scalar(in[1], 0.1));
    out[1] = tow_sub(in[1], tow_mul(in[0], in[2]));
    out[2] = tow_add(in[2], tow_mul_scalar(tow_add(out[0], tow_mul_scalar(in[2], 0.5)), -0.25));
}

static void test_in_place(void **state)
{
    (void)state;
    tow_array *x[3], *y[3], *own[3];
    tow_program *p;
    tow_graph *g = trace(chained, NULL, 3, (tow_type[]){matrix(7, 700), matrix(7, 700), matrix(7, 700)}, 3);
    for (int i = 0; i < 3; i++) {
        OK(tow_array_create(ctx, matrix(7, 700), &x[i]));
        OK(tow_array_create(ctx, matrix(7, 700), &own[i]));
        fill(x[i]);
        memcpy(tow_array_data(own[i]), tow_array_data(x[i]), tow_type_bytes(matrix(7, 700)));
    }
    run(g, &TOW_COMPILE_OPTIONS(.threads = 1, .no_fusion = true), x, y);
    const tow_donation donations[] = {{0, 0}, {1, 1}, {2, 2}};
    OK(tow_compile(ctx, g, &TOW_COMPILE_OPTIONS(.threads = 1, .donations = donations, .n_donations = 3), &p));
    OK(tow_program_run(p, own, (tow_array *[3]){NULL}));
    for (int i = 0; i < 3; i++) {
        assert_memory_equal(tow_array_data(own[i]), tow_array_data(y[i]), tow_type_bytes(matrix(7, 700)));
        tow_array_release(own[i]);
        tow_array_release(x[i]);
        tow_array_release(y[i]);
    }
    tow_program_free(p);
    tow_graph_release(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_expressions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shared_number, setup, teardown),
        cmocka_unit_test_setup_teardown(test_in_place, setup, teardown),
    };
    return cmocka_run_group_tests_name("joined", tests, NULL, NULL);
}
