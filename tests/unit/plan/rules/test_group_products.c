/* Trees of products over groups of rows become one product, which has their bits, on every engine and for all shapes of
 * tiles; what is no such tree is left alone. Tests group_products.c, kernels/products/grouped.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tow/graph.h"
#include "tow/program.h"

/* The gradient of a weight [m, n] from `groups` groups of k rows. */
typedef struct example {
    int m, n, k, groups;
    const char *operand; /* "x" [rows, m]; "a": rows are in steps, of which each group has `k`, and two in each */
    bool epilogue;
} example;

static const example examples[] = {
    {200, 200, 3, 2, "x", false},  {200, 201, 2, 4, "x", true},   {33, 1100, 5, 8, "x", false},
    {1100, 33, 4, 16, "x", true},  {390, 1500, 3, 4, "x", true},  {1500, 390, 2, 4, "x", false},
    {150, 300, 400, 2, "x", true}, {150, 300, 390, 4, "x", true}, {256, 256, 128, 4, "x", false},
    {200, 200, 3, 4, "a", true},
};

typedef struct text {
    char data[1 << 14];
    size_t length;
} text;

__attribute__((format(printf, 2, 3))) static void say(text *t, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    t->length += (size_t)vsnprintf(t->data + t->length, sizeof t->data - t->length, format, arguments);
    va_end(arguments);
    assert_true(t->length < sizeof t->data);
}

/* Products of all blocks, then the binary tree of additions. The last value is y. */
static void say_tree(text *t, const example *x, bool chain)
{
    const bool steps = *x->operand == 'a';
    const char *rest = steps ? "2," : "", *start = steps ? "0,0" : "0", *one = steps ? "1,1" : "1";
    const char *contract = steps ? "0,1" : "0";
    for (int g = 0; g < x->groups; g++) {
        const int first = g * x->k, end = first + x->k;
        for (int side = 0; side < 2; side++) {
            const int n = side ? x->n : x->m;
            say(t, "    s%d%d:f32[%d,%s%d] = slice[start=(%d,%s) limit=(%d,%s%d) stride=(1,%s)] %s\n", side, g, x->k,
                rest, n, first, start, end, rest, n, one, side ? "dy" : "x");
        }
        say(t, "    d%d:f32[%d,%d] = dot_general[lhs_contract=(%s) rhs_contract=(%s)] s0%d s1%d\n", g, x->m, x->n,
            contract, contract, g, g);
    }
    for (int size = 1; size < x->groups && !chain; size *= 2)
        for (int g = 0; g < x->groups; g += 2 * size)
            say(t, "    %s%d:f32[%d,%d] = add %s%d %s%d\n", 2 * size == x->groups ? "y" : "t", size * 1000 + g, x->m,
                x->n, size > 1 ? "t" : "d", (size > 1 ? size / 2 * 1000 : 0) + g, size > 1 ? "t" : "d",
                (size > 1 ? size / 2 * 1000 : 0) + g + size);
    for (int g = 1; g < x->groups && chain; g++)
        say(t, "    %s%d:f32[%d,%d] = add %s%d d%d\n", g + 1 == x->groups ? "y" : "t",
            x->groups / 2 * 1000 + (g + 1 == x->groups ? 0 : g), x->m, x->n, g == 1 ? "d" : "t",
            g == 1 ? 0 : x->groups / 2 * 1000 + g - 1, g);
}

static tow_graph *graph_of(const example *x, bool chain)
{
    static text t;
    const char *rest = *x->operand == 'a' ? "2," : "";
    tow_graph *g;
    t.length = 0;
    say(&t, "{ lambda ; x:f32[%d,%s%d]\"x\" dy:f32[%d,%s%d]\"dy\". let\n", x->k * x->groups, rest, x->m,
        x->k * x->groups, rest, x->n);
    say_tree(&t, x, chain);
    if (x->epilogue) say(&t, "    z:f32[%d,%d] = tanh y%d\n", x->m, x->n, x->groups / 2 * 1000);
    if (x->epilogue)
        say(&t, "  in (z) }");
    else
        say(&t, "  in (y%d) }", x->groups / 2 * 1000);
    OK(tow_graph_parse(ctx, t.data, &g));
    return g;
}

static tow_array *numbers(const tow_graph *g, size_t input)
{
    tow_array *array;
    OK(tow_array_create(ctx, tow_graph_input_type(g, input), &array));
    float *v = tow_array_data(array);
    const int64_t n = tow_type_element_count(tow_array_type(array));
    for (int64_t i = 0; i < n; i++) v[i] = (float)((i * 7919 + (int64_t)input * 31) % 2003 - 1001) / 997.0f;
    return array;
}

/* The result; *products: of the program. */
static tow_array *result(const tow_graph *g, const char *const *without, uint64_t *products)
{
    tow_program *p;
    tow_array *in[2] = {numbers(g, 0), numbers(g, 1)}, *y;
    OK(tow_compile(ctx, g, &TOW_COMPILE_OPTIONS(.without = without), &p));
    OK(tow_program_check(p));
    OK(tow_array_create(ctx, tow_graph_output_type(g, 0), &y));
    OK(tow_program_run(p, in, &y));
    *products = tow_program_operation_count(p, "dot_general");
    tow_program_free(p);
    tow_array_release(in[0]);
    tow_array_release(in[1]);
    return y;
}

static void expect_same(const example *x)
{
    static const char *const without[] = {"group-products", NULL};
    uint64_t one, all;
    tow_graph *g = graph_of(x, false);
    tow_array *y = result(g, NULL, &one), *expected = result(g, without, &all);
    assert_int_equal(one, 1);
    assert_int_equal(all, x->groups);
    if (memcmp(tow_array_data(y), tow_array_data(expected), tow_type_bytes(tow_array_type(y))) != 0)
        fail_msg("%d groups of %d rows, [%d,%d]: bits differ", x->groups, x->k, x->m, x->n);
    tow_array_release(y);
    tow_array_release(expected);
    tow_graph_release(g);
}

static void bits(void **state)
{
    static const char *const engines[] = {NULL, "own", "reference", "blis"};
    tow_context *plain = ctx;
    (void)state;
    for (int threads = 1; threads <= 2; threads++)
        for (size_t e = 0; e < sizeof engines / sizeof *engines; e++) {
            if (tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = threads, .engine = engines[e]), &ctx) != TOW_OK)
                continue; /* this build has no such engine */
            for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
                if (e == 0 || i % 3 == (size_t)threads) expect_same(&examples[i]);
            tow_context_free(ctx);
        }
    ctx = plain;
}

/* Slices of threads: more than there are blocks of columns, and some whose tiles are larger than those of the whole. */
static void slices(void **state)
{
    static const int threads[] = {2, 3, 16};
    static const example large[] = {{384, 384, 128, 2, "x", false},
                                    {800, 800, 32, 4, "x", true},
                                    {640, 640, 32, 4, "x", false},
                                    {512, 1280, 16, 4, "x", false}};
    tow_context *plain = ctx;
    (void)state;
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
        OK(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = threads[t]), &ctx));
        for (size_t i = 0; i < sizeof large / sizeof *large; i++) expect_same(&large[i]);
        tow_context_free(ctx);
        ctx = plain;
    }
}

static void expect_left_alone(const example *x, bool chain)
{
    uint64_t products;
    tow_graph *g = graph_of(x, chain);
    tow_array_release(result(g, NULL, &products));
    if (products != (uint64_t)x->groups) fail_msg("%d groups became %d products", x->groups, (int)products);
    tow_graph_release(g);
}

static void others(void **state)
{
    (void)state;
    expect_left_alone(&(example){200, 200, 3, 4, "x", false}, true); /* a chain of additions */
    expect_left_alone(&(example){20, 20, 3, 4, "x", false}, false);  /* partial sums of which stay in a cache */
}

/* Blocks that are no whole, or stand in another order. */
static void blocks(void **state)
{
    static const int starts[][2] = {{2, 0}, {0, 0}, {2, 4}, {0, 2}};
    (void)state;
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        static text t;
        uint64_t found;
        tow_graph *g;
        t.length = 0;
        say(&t, "{ lambda ; x:f32[6,200]\"x\" dy:f32[6,200]\"dy\". let\n");
        for (int b = 0; b < 2; b++) {
            for (int side = 0; side < 2; side++)
                say(&t, "    s%d%d:f32[2,200] = slice[start=(%d,0) limit=(%d,200) stride=(1,1)] %s\n", side, b,
                    starts[i][b], starts[i][b] + 2, side ? "dy" : "x");
            say(&t, "    d%d:f32[200,200] = dot_general[lhs_contract=(0) rhs_contract=(0)] s0%d s1%d\n", b, b, b);
        }
        say(&t, "    y:f32[200,200] = add d0 d1\n  in (y) }");
        OK(tow_graph_parse(ctx, t.data, &g));
        tow_array_release(result(g, NULL, &found));
        assert_int_equal(found, 2);
        tow_graph_release(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits),
        cmocka_unit_test(slices),
        cmocka_unit_test(others),
        cmocka_unit_test(blocks),
    };
    return cmocka_run_group_tests_name("group_products", tests, setup, teardown);
}
