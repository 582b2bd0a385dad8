/* vmap: axes and their errors, what is recorded (single products, regions that stay, carries that are batched), and
 * that a policy answers as it would without. Values of every primitive are in tests/property/batching.c. Tests batch.c,
 * regions/batch_control.c, transformations/jacobian.c, transformations/vmap.c, ops/batching.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

static tow_graph *parse(const char *source)
{
    tow_graph *graph;
    OK(tow_graph_parse(ctx, source, &graph));
    return graph;
}

/* The graph is batched and released. */
static tow_graph *batch(tow_graph *graph, int64_t size, const int *in_axes, const int *out_axes)
{
    tow_graph *result;
    OK(tow_vmap(graph, size, in_axes, out_axes, &result));
    OK(tow_graph_check(result));
    tow_graph_release(graph);
    return result;
}

static void expect_text(tow_graph *graph, const char *expected)
{
    char text[4096];
    assert_in_range(tow_graph_text(graph, text, sizeof text), 1, sizeof text - 1);
    assert_string_equal(text, expected);
    tow_graph_release(graph);
}

#define refuses(call, ...)                                                                                             \
    do {                                                                                                               \
        tow_context_clear_error(ctx);                                                                                  \
        if ((call) == TOW_OK) fail_msg("%s is accepted", #call);                                                       \
        for (const char *const *t = (const char *const[]){__VA_ARGS__, NULL}; *t; t++)                                 \
            if (!strstr(tow_context_error(ctx), *t)) fail_msg("\"%s\" is not in: %s", *t, tow_context_error(ctx));     \
    } while (0)

/* ---- what is recorded -------------------------------------------------------------------------------------------- */

static const char product[] = "{ lambda ; x:f32[2,3] w:f32[3,4]. let\n"
                              "    y:f32[2,4] = dot_general[lhs_contract=(1) rhs_contract=(0)] x w\n"
                              "  in (y) }\n";

static void test_products(void **state)
{
    (void)state;
    expect_text(
        batch(parse(product), 5, NULL, NULL),
        "{ lambda ; a:f32[5,2,3] b:f32[5,3,4]. let\n"
        "    c:f32[5,2,4] = dot_general[lhs_contract=(2) rhs_contract=(1) lhs_batch=(0) rhs_batch=(0) mapped=1] a "
        "b\n"
        "  in (c) }\n");
    expect_text(batch(parse(product), 5, (int[]){1, TOW_NOT_MAPPED}, (int[]){-2}),
                "{ lambda ; a:f32[2,5,3] b:f32[3,4]. let\n"
                "    c:f32[2,5,4] = dot_general[lhs_contract=(2) rhs_contract=(0) lhs_batch=() rhs_batch=()] a b\n"
                "  in (c) }\n");
    expect_text(batch(parse(product), 5, (int[]){TOW_NOT_MAPPED, -1}, (int[]){-1}),
                "{ lambda ; a:f32[2,3] b:f32[3,4,5]. let\n"
                "    c:f32[2,4,5] = dot_general[lhs_contract=(1) rhs_contract=(0) lhs_batch=() rhs_batch=()] a b\n"
                "  in (c) }\n");
}

/* Values that all rows share are computed once, and repeated only where it is asked for. */
static void test_shared(void **state)
{
    (void)state;
    const char *source = "{ lambda ; x:f32[3] y:f32[3]. let\n"
                         "    a:f32[3] = sin x\n"
                         "    b:f32[3] = mul a y\n"
                         "  in (a, b) }\n";
    expect_text(batch(parse(source), 4, (int[]){TOW_NOT_MAPPED, 0}, (int[]){TOW_NOT_MAPPED, 0}),
                "{ lambda ; a:f32[3] b:f32[4,3]. let\n"
                "    c:f32[3] = sin a\n"
                "    d:f32[4,3] = broadcast_in_dim[shape=(4,3) axes=(1)] c\n"
                "    e:f32[4,3] = mul d b\n"
                "  in (c, e) }\n");
    tow_graph *repeated = batch(parse(source), 4, (int[]){TOW_NOT_MAPPED, 0}, (int[]){1, 0});
    assert_int_equal(tow_graph_output_type(repeated, 0).dims[1], 4);
    assert_int_equal(tow_graph_primitive_count(repeated, "sin"), 1);
    tow_graph_release(repeated);
}

/* A carry that meets no batched value stays one for all rows. */
static void test_carries(void **state)
{
    (void)state;
    const char *source = "{ lambda ; n:f32[] x:f32[3] xs:f32[6,3]. let\n"
                         "    a:f32[] b:f32[3] c:f32[6,3] = scan[length=6 reverse=false consts=0 carry=2\n"
                         "      body={ lambda ; n:f32[] x:f32[3] e:f32[3]. let\n"
                         "          m:f32[] = sin n\n"
                         "          s:f32[3] = add x e\n"
                         "        in (m, s, s) }] n x xs\n"
                         "  in (a, b, c) }\n";
    tow_graph *g = batch(parse(source), 4, (int[]){TOW_NOT_MAPPED, TOW_NOT_MAPPED, 1}, (int[]){TOW_NOT_MAPPED, 0, 1});
    expect_text(g, "{ lambda ; a:f32[] b:f32[3] c:f32[6,4,3]. let\n"
                   "    d:f32[4,3] = broadcast_in_dim[shape=(4,3) axes=(1)] b\n"
                   "    e:f32[] f:f32[4,3] g:f32[6,4,3] = scan[length=6 reverse=false consts=0 carry=2\n"
                   "      body={ lambda ; a:f32[] b:f32[4,3] c:f32[4,3]. let\n"
                   "          d:f32[] = sin a\n"
                   "          e:f32[4,3] = add b c\n"
                   "        in (d, e, e) }] a d c\n"
                   "  in (e, f, g) }\n");
}

/* ---- policies ---------------------------------------------------------------------------------------------------- */

/* Products of the gradient of a sum, with and without vmap, under a policy: as many are made again. */
static size_t dots_of_gradient(const char *policy, const int *axes)
{
    char source[1024];
    snprintf(source, sizeof source,
             "{ lambda ; x:f32[2,4] w:f32[4,4]. let\n"
             "    y:f32[2,4] = remat[policy=\"%s\" differentiated=false\n"
             "      body={ lambda ; x:f32[2,4] w:f32[4,4]. let\n"
             "          a:f32[2,4] = dot_general[lhs_contract=(1) rhs_contract=(0)] x w\n"
             "          n:f32[2,4] = name[name=\"a\"] a\n"
             "          b:f32[2,4] = sin n\n"
             "          c:f32[2,4] = dot_general[lhs_contract=(1) rhs_contract=(0)] b w\n"
             "          d:f32[2,4] = sin c\n"
             "        in (d) }] x w\n"
             "  in (y) }\n",
             policy);
    tow_graph *g = parse(source), *forward, *backward;
    if (axes) g = batch(g, 3, axes, NULL);
    assert_int_equal(tow_graph_primitive_count(g, "remat"), 1);
    OK(tow_vjp(g, 0, NULL, &forward, &backward));
    size_t dots =
        tow_graph_primitive_count(forward, "dot_general") + tow_graph_primitive_count(backward, "dot_general");
    tow_graph_release(g);
    tow_graph_release(forward);
    tow_graph_release(backward);
    return dots;
}

static void test_policies(void **state)
{
    (void)state;
    static const char *const policies[] = {"nothing", "everything", "dots", "dots_with_no_batch_dims", "names:a"};
    static const size_t products[] = {8, 6, 6, 6, 7}; /* 2 forward, 4 backward, and those that are made again */
    static const int axes[][2] = {{0, 0}, {1, TOW_NOT_MAPPED}, {TOW_NOT_MAPPED, 2}};
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        assert_int_equal(dots_of_gradient(policies[p], NULL), products[p]);
        for (size_t a = 0; a < sizeof axes / sizeof *axes; a++)
            assert_int_equal(dots_of_gradient(policies[p], axes[a]), products[p]);
    }
}

/* ---- inside a trace ---------------------------------------------------------------------------------------------- */

/* x[i] * y, summed, plus an outer value that all rows share */
static void row(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace;
    out[0] = tow_add(tow_reduce_sum(tow_mul(in[0], in[1]), 0, NULL), *(const tow_value *)user);
}

/* in: x [4, 3], y [3, 5], shared [] -> [5, 4]: all rows of x with all columns of y */
static void rows_of_x(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const tow_vmap_options x_only = TOW_VMAP_OPTIONS(.in_axes = (int[]){0, TOW_NOT_MAPPED});
    tow_vmap_function(trace, row, user, &x_only, 2, in, 1, out);
}

static void all_pairs(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const tow_vmap_options y_only = TOW_VMAP_OPTIONS(.in_axes = (int[]){TOW_NOT_MAPPED, -1});
    (void)user;
    tow_vmap_function(trace, rows_of_x, (void *)(in + 2), &y_only, 2, in, 1, out);
}

static void test_nested(void **state)
{
    (void)state;
    const tow_type types[] = {tow_make_type(TOW_F32, 2, (int64_t[]){4, 3}),
                              tow_make_type(TOW_F32, 2, (int64_t[]){3, 5}), tow_make_type(TOW_F32, 0, NULL)};
    tow_graph *g;
    OK(tow_trace_function(ctx, all_pairs, NULL, 3, types, NULL, 1, &g));
    assert_int_equal(tow_graph_output_type(g, 0).dims[0], 5);
    assert_int_equal(tow_graph_output_type(g, 0).dims[1], 4);
    float x[12], y[15], shared = 0.5f;
    for (int i = 0; i < 12; i++) x[i] = (float)i;
    for (int i = 0; i < 15; i++) y[i] = (float)(i - 7);
    tow_array *in[3], *out[1] = {NULL};
    OK(tow_array_from_data(ctx, types[0], x, &in[0]));
    OK(tow_array_from_data(ctx, types[1], y, &in[1]));
    OK(tow_array_from_data(ctx, types[2], &shared, &in[2]));
    OK(tow_evaluate(g, in, out));
    for (int j = 0; j < 5; j++)
        for (int i = 0; i < 4; i++) {
            float sum = shared;
            for (int k = 0; k < 3; k++) sum += x[3 * i + k] * y[5 * k + j];
            assert_true(((float *)tow_array_data(out[0]))[4 * j + i] == sum);
        }
    for (int i = 0; i < 3; i++) tow_array_release(in[i]);
    tow_array_release(out[0]);
    tow_graph_release(g);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static void test_errors(void **state)
{
    (void)state;
    tow_graph *g = parse(product), *r;
    tow_graph *deep = parse("{ lambda ; x:f32[1,1,1,1,1,1,1,1]. let y:f32[] = reshape[shape=()] x in (y) }");
    tow_graph *wide =
        parse("{ lambda ; x:f32[]. let y:f32[1,1,1,1,1,1,1,1] = reshape[shape=(1,1,1,1,1,1,1,1)] x in (y) }");
    refuses(tow_vmap(g, -1, NULL, NULL, &r), "the size is -1, expected 0 or more");
    refuses(tow_vmap(g, 2, (int[]){3, 0}, NULL, &r), "input 0", "f32[2,3]", "no axis 3", "[-3, 3)", "TOW_NOT_MAPPED");
    refuses(tow_vmap(g, 2, (int[]){0, -4}, NULL, &r), "input 1", "no axis -4");
    refuses(tow_vmap(g, 2, NULL, (int[]){3}, &r), "output 0", "rank 3", "no axis 3");
    refuses(tow_vmap(g, 2, NULL, (int[]){TOW_NOT_MAPPED}, &r), "output 0 differs between rows", "f32[2,2,4]");
    refuses(tow_vmap(deep, 2, NULL, NULL, &r), "input 0", "rank 9");
    refuses(tow_vmap(wide, 2, NULL, NULL, &r), "result 0 of reshape", "rank 9");
    refuses(tow_vmap(g, INT64_MAX / 8, NULL, NULL, &r), "input 0");
    OK(tow_vmap(wide, 2, (int[]){TOW_NOT_MAPPED}, (int[]){TOW_NOT_MAPPED}, &r));
    tow_graph_release(r);
    tow_graph_release(g);
    tow_graph_release(deep);
    tow_graph_release(wide);
}

static void outer(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    tow_vmap_function(trace, row, (void *)(in + 2), user, 2, in, 1, out);
}

static void test_errors_in_a_trace(void **state)
{
    (void)state;
    const tow_type types[] = {tow_make_type(TOW_F32, 2, (int64_t[]){4, 3}),
                              tow_make_type(TOW_F32, 2, (int64_t[]){3, 4}), tow_make_type(TOW_F32, 0, NULL)};
    tow_graph *g;
    tow_vmap_options none = TOW_VMAP_OPTIONS(.in_axes = (int[]){TOW_NOT_MAPPED, TOW_NOT_MAPPED}),
                     five = TOW_VMAP_OPTIONS(.axis_size = 5), high = TOW_VMAP_OPTIONS();
    high.in_axes = (int[]){2, 0};
    tow_vmap_options negative = TOW_VMAP_OPTIONS(.axis_size = -3);
#define traced(options) tow_trace_function(ctx, outer, options, 3, types, NULL, 1, &g)
    refuses(traced(NULL), "input 1 is f32[3,4]", "axis 0 has 3 rows", "an earlier input has 4");
    refuses(traced(&five), "input 0", "has 4 rows", "the size in the options is 5");
    refuses(traced(&none), "no input is mapped");
    refuses(traced(&high), "input 0 is f32[4,3]", "no axis 2", "[-2, 2)");
    refuses(traced(&negative), "the size is -3");
    none.in_axes = (int[]){0, 1};
    OK(traced(&none));
    tow_graph_release(g);
#undef traced
}

/* ---- allocations that fail --------------------------------------------------------------------------------------- */

static const char loop[] = "{ lambda ; x:f32[3] w:f32[3]. let\n"
                           "    y:f32[3] z:f32[2,3] = scan[length=2 reverse=false consts=1 carry=1\n"
                           "      body={ lambda ; w:f32[3] x:f32[3]. let\n"
                           "          a:f32[3] = remat[policy=\"nothing\" differentiated=false\n"
                           "            body={ lambda ; x:f32[3] w:f32[3]. let\n"
                           "                b:f32[3] = mul x w\n"
                           "                c:f32[3] = sin b\n"
                           "              in (c) }] x w\n"
                           "        in (a, a) }] w x\n"
                           "    s:f32[] = reduce_sum[axes=(0)] y\n"
                           "  in (s) }\n";

static tow_status transform(const tow_graph *g, int kind, tow_graph **result)
{
    switch (kind) {
    case 0:
        return tow_vmap(g, 2, (int[]){1, TOW_NOT_MAPPED}, NULL, result);
    case 1:
        return tow_jacfwd(g, 0, NULL, result);
    case 2:
        return tow_jacrev(g, 0, NULL, result);
    case 3:
        return tow_hessian(g, 0, NULL, result);
    default:
        return tow_per_example_grad(g, 0, NULL, false, 2, (int[]){0, TOW_NOT_MAPPED}, result);
    }
}

static void test_failing_allocations(void **state)
{
    (void)state;
    counting count;
    const tow_context_options options = counting_options(&count, -1);
    tow_context *c;
    tow_graph *g, *r = NULL;
    assert_int_equal(tow_context_create(&options, &c), TOW_OK);
    assert_int_equal(tow_graph_parse(c, loop, &g), TOW_OK);
    for (int kind = 0; kind < 5; kind++) {
        assert_int_equal(transform(g, kind, &r), TOW_OK);
        assert_int_equal(tow_graph_check(r), TOW_OK);
        tow_graph_release(r);
        long blocks = count.blocks, n = 0;
        for (tow_status status = TOW_OUT_OF_MEMORY; status != TOW_OK; n++) {
            count.calls = 0;
            count.fail_at = n;
            status = transform(g, kind, &r);
            count.fail_at = -1;
            if (status == TOW_OK) break;
            if (status != TOW_OUT_OF_MEMORY || r || count.blocks != blocks)
                fail_msg("transformation %d, allocation %ld: %s, %ld blocks leak", kind, n, tow_context_error(c),
                         count.blocks - blocks);
        }
        assert_true(n > 3);
        tow_graph_release(r);
    }
    tow_graph_release(g);
    tow_context_free(c);
    assert_int_equal(count.blocks, 0);
}

/* ---- depth ------------------------------------------------------------------------------------------------------- */

static void append(char *text, size_t size, const char *what) { strncat(text, what, size - strlen(text) - 1); }

/* Regions nested in each other as deep as it goes: every second one a loop whose carry meets rows inside. */
static tow_graph *nested(int levels)
{
    static char text[1 << 15];
    text[0] = '\0';
    append(text, sizeof text, "{ lambda ; c:f32[2] x:f32[2]. let ");
    for (int i = 1; i < levels; i++)
        append(text, sizeof text,
               i % 2 ? "r:f32[2] = scan[length=2 reverse=false consts=0 carry=2 body={ lambda ; c:f32[2] x:f32[2]. let "
                     : "r:f32[2] = remat[policy=\"dots\" differentiated=false body={ lambda ; c:f32[2] x:f32[2]. let ");
    append(text, sizeof text, "r:f32[2] = mul c x ");
    for (int i = levels - 1; i > 0; i--) append(text, sizeof text, i % 2 ? "in (r, x) }] c x " : "in (r) }] c x ");
    append(text, sizeof text, "in (r) }");
    for (char *at = text; (at = strstr(at, "r:f32[2] = scan"));) { /* the second carry is not read */
        memmove(at + 17, at + 8, strlen(at + 8) + 1);
        memcpy(at, "r:f32[2] _:f32[2]", 17);
        at += 17;
    }
    return parse(text);
}

/* On a thread with a small stack, too. */
static void test_deep(void **state)
{
    (void)state;
    tow_graph *g = batch(nested(64), 3, (int[]){TOW_NOT_MAPPED, 0}, NULL), *gradient;
    assert_int_equal(tow_graph_primitive_count(g, "scan"), 32);
    assert_int_equal(tow_graph_primitive_count(g, "remat"), 31);
    OK(tow_jvp(g, 0, NULL, &gradient));
    tow_graph_release(gradient);
    tow_graph_release(g);
}

/* ---- Jacobians --------------------------------------------------------------------------------------------------- */

static void test_jacobian_errors(void **state)
{
    (void)state;
    tow_graph *g = parse(product), *r;
    tow_graph *integers = parse("{ lambda ; i:i32[2]. let j:i32[2] = add i i in (j) }");
    tow_graph *wide = parse("{ lambda ; x:f32[1,1,1,1,1]. let y:f32[1,1,1,1,1] = sin x in (y) }");
    const size_t two[] = {2}, twice[] = {0, 0};
    refuses(tow_jacfwd(g, 1, two, &r), "jacfwd", "input 2 of a graph with 2 inputs");
    refuses(tow_jacrev(g, 2, twice, &r), "jacrev", "must increase");
    refuses(tow_jacrev(integers, 0, NULL, &r), "none of the 1 inputs");
    refuses(tow_jacfwd(wide, 0, NULL, &r), "rank 10");
    refuses(tow_jacrev(wide, 0, NULL, &r), "rank 10");
    refuses(tow_hessian(g, 0, NULL, &r), "expected a float scalar");
    tow_graph_release(g);
    tow_graph_release(integers);
    tow_graph_release(wide);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_carries),
        cmocka_unit_test(test_policies),
        cmocka_unit_test(test_nested),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_errors_in_a_trace),
        cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_jacobian_errors),
        cmocka_unit_test(test_deep),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
