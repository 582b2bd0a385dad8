/* Row groups in loops: each block of rows is summed over all iterations, wherever regions, branches and other loops
 * stand on the way of the sum. Against sums that this file adds by hand, and against programs without row groups. Tests
 * rows/regions.c, rows/sums.c, rows/rows.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

enum {
    B = 16 /* rows of a batch, each a group */
};

static tow_graph *parse(const char *source)
{
    tow_graph *graph;
    OK(tow_graph_parse(ctx, source, &graph));
    return graph;
}

/* The binary tree over n numbers. */
static float tree(const float *x, int n) { return n == 1 ? x[0] : tree(x, n / 2) + tree(x + n / 2, n / 2); }

static const char add_in_loop[] =
    "{ lambda ; x:f32[5,16]. let\n"
    "    c:f32[] = const[value=0.0]\n"
    "    y:f32[] = scan[length=5 consts=0 carry=1 body={ lambda ; c:f32[] x:f32[16]. let\n"
    "        s:f32[] = reduce_sum[axes=(0)] x\n"
    "        d:f32[] = add c s\n"
    "      in (d) }] c x\n"
    "  in (y) }\n";

/* The carry passes through a region. */
static const char add_in_region[] =
    "{ lambda ; x:f32[5,16]. let\n"
    "    c:f32[] = const[value=0.0]\n"
    "    y:f32[] = scan[length=5 consts=0 carry=1 body={ lambda ; c:f32[] x:f32[16]. let\n"
    "        d:f32[] = remat[policy=\"nothing\" differentiated=true body={ lambda ; c:f32[] x:f32[16]. let\n"
    "            s:f32[] = reduce_sum[axes=(0)] x\n"
    "            d:f32[] = add c s\n"
    "          in (d) }] c x\n"
    "      in (d) }] c x\n"
    "  in (y) }\n";

/* The region gives what is added. */
static const char add_of_region[] =
    "{ lambda ; x:f32[5,16]. let\n"
    "    c:f32[] = const[value=0.0]\n"
    "    y:f32[] = scan[length=5 consts=0 carry=1 body={ lambda ; c:f32[] x:f32[16]. let\n"
    "        s:f32[] = remat[policy=\"nothing\" differentiated=true body={ lambda ; x:f32[16]. let\n"
    "            s:f32[] = reduce_sum[axes=(0)] x\n"
    "          in (s) }] x\n"
    "        d:f32[] = add c s\n"
    "      in (d) }] c x\n"
    "  in (y) }\n";

/* One loop goes on where another ends, and the last row is added behind both. */
static const char add_in_two_loops[] =
    "{ lambda ; x:f32[5,16]. let\n"
    "    c:f32[] = const[value=0.0]\n"
    "    a:f32[2,16] = slice[start=(0,0) limit=(2,16) stride=(1,1)] x\n"
    "    b:f32[3,16] = slice[start=(2,0) limit=(5,16) stride=(1,1)] x\n"
    "    y:f32[] = scan[length=2 consts=0 carry=1 body={ lambda ; c:f32[] x:f32[16]. let\n"
    "        s:f32[] = reduce_sum[axes=(0)] x\n"
    "        d:f32[] = add c s\n"
    "      in (d) }] c a\n"
    "    z:f32[] = scan[length=3 consts=0 carry=1 body={ lambda ; c:f32[] x:f32[16]. let\n"
    "        s:f32[] = reduce_sum[axes=(0)] x\n"
    "        d:f32[] = add s c\n"
    "      in (d) }] y b\n"
    "  in (z) }\n";

/* The greatest rows are added, which are no sums over rows. */
static const char add_greatest[] =
    "{ lambda ; x:f32[5,16]. let\n"
    "    c:f32[] = const[value=0.0]\n"
    "    y:f32[] = scan[length=5 consts=0 carry=1 body={ lambda ; c:f32[] x:f32[16]. let\n"
    "        s:f32[] = reduce_max[axes=(0)] x\n"
    "        d:f32[] = add c s\n"
    "      in (d) }] c x\n"
    "  in (y) }\n";

/* Programs of which a whole sum is needed somewhere, or of which a sum is made in a body of its own. */
static const char *const mixed_sums[] = {
    /* what is no sum over rows is added in front of a region */
    "{ lambda ; x:f32[5,16]. let\n"
    "    c:f32[] = const[value=0.0]\n"
    "    w:f32[] = const[value=3.0]\n"
    "    y:f32[] = scan[length=5 consts=1 carry=1 body={ lambda ; w:f32[] c:f32[] x:f32[16]. let\n"
    "        d:f32[] = add c w\n"
    "        e:f32[] = remat[policy=\"nothing\" differentiated=true body={ lambda ; c:f32[] x:f32[16]. let\n"
    "            s:f32[] = reduce_sum[axes=(0)] x\n"
    "            d:f32[] = add c s\n"
    "          in (d) }] d x\n"
    "      in (e) }] w c x\n"
    "  in (y) }\n",
    /* in front of a loop */
    "{ lambda ; x:f32[5,16]. let\n"
    "    c:f32[] = const[value=0.0]\n"
    "    w:f32[] = const[value=3.0]\n"
    "    y:f32[] = scan[length=5 consts=1 carry=1 body={ lambda ; w:f32[] c:f32[] x:f32[16]. let\n"
    "        d:f32[] = add w c\n"
    "        e:f32[] = scan[length=2 consts=1 carry=1 body={ lambda ; x:f32[16] c:f32[]. let\n"
    "            s:f32[] = reduce_sum[axes=(0)] x\n"
    "            d:f32[] = add c s\n"
    "          in (d) }] x d\n"
    "      in (e) }] w c x\n"
    "  in (y) }\n",
    /* in the first branch of a choice, and in the second one */
    "{ lambda ; x:f32[5,16]. let\n"
    "    c:f32[] = const[value=0.0]\n"
    "    w:f32[] = const[value=3.0]\n"
    "    i:i32[5] = const[value=i32[5](0 1 0 1 1)]\n"
    "    y:f32[] = scan[length=5 consts=1 carry=1 body={ lambda ; w:f32[] c:f32[] i:i32[] x:f32[16]. let\n"
    "        e:f32[] = cond[branches=({ lambda ; c:f32[] w:f32[] x:f32[16]. let\n"
    "            d:f32[] = add c w\n"
    "          in (d) },\n"
    "          { lambda ; c:f32[] w:f32[] x:f32[16]. let\n"
    "            s:f32[] = reduce_sum[axes=(0)] x\n"
    "            d:f32[] = add c s\n"
    "          in (d) })] i c w x\n"
    "      in (e) }] w c i x\n"
    "  in (y) }\n",
    "{ lambda ; x:f32[5,16]. let\n"
    "    c:f32[] = const[value=0.0]\n"
    "    w:f32[] = const[value=3.0]\n"
    "    i:i32[5] = const[value=i32[5](0 1 0 1 1)]\n"
    "    y:f32[] = scan[length=5 consts=1 carry=1 body={ lambda ; w:f32[] c:f32[] i:i32[] x:f32[16]. let\n"
    "        e:f32[] = cond[branches=({ lambda ; c:f32[] w:f32[] x:f32[16]. let\n"
    "            s:f32[] = reduce_sum[axes=(0)] x\n"
    "            d:f32[] = add c s\n"
    "          in (d) },\n"
    "          { lambda ; c:f32[] w:f32[] x:f32[16]. let\n"
    "            d:f32[] = add c w\n"
    "          in (d) })] i c w x\n"
    "      in (e) }] w c i x\n"
    "  in (y) }\n",
    /* two loops go on, one sum with blocks of the outer loop, and one with its own */
    "{ lambda ; x:f32[5,16]. let\n"
    "    c:f32[] = const[value=0.0]\n"
    "    y:f32[] v:f32[5] = scan[length=5 consts=0 carry=1 body={ lambda ; c:f32[] x:f32[16]. let\n"
    "        o:f32[] = const[value=0.0]\n"
    "        a:f32[] b:f32[] = scan[length=2 consts=1 carry=2 body={ lambda ; x:f32[16] c:f32[] d:f32[]. let\n"
    "            s:f32[] = reduce_sum[axes=(0)] x\n"
    "            t:f32[] = reduce_sum[axes=(0)] x\n"
    "            e:f32[] = add c s\n"
    "            f:f32[] = add d t\n"
    "          in (e, f) }] x c o\n"
    "        g:f32[] h:f32[] = scan[length=3 consts=1 carry=2 body={ lambda ; x:f32[16] c:f32[] d:f32[]. let\n"
    "            s:f32[] = reduce_sum[axes=(0)] x\n"
    "            t:f32[] = reduce_sum[axes=(0)] x\n"
    "            e:f32[] = add c s\n"
    "            f:f32[] = add d t\n"
    "          in (e, f) }] x a b\n"
    "      in (g, h) }] c x\n"
    "    u:f32[] = reduce_sum[axes=(0)] v\n"
    "    z:f32[] = sub y u\n"
    "    q:f32[] = add z y\n"
    "  in (q) }\n",
    /* a loop goes on, and adds something else */
    "{ lambda ; x:f32[5,16]. let\n"
    "    c:f32[] = const[value=0.0]\n"
    "    w:f32[] = const[value=3.0]\n"
    "    a:f32[] = scan[length=5 consts=0 carry=1 body={ lambda ; c:f32[] x:f32[16]. let\n"
    "        s:f32[] = reduce_sum[axes=(0)] x\n"
    "        d:f32[] = add c s\n"
    "      in (d) }] c x\n"
    "    y:f32[] = scan[length=5 consts=1 carry=1 body={ lambda ; w:f32[] c:f32[] x:f32[16]. let\n"
    "        s:f32[] = reduce_sum[axes=(0)] x\n"
    "        d:f32[] = add c s\n"
    "        e:f32[] = add d w\n"
    "      in (e) }] w a x\n"
    "  in (y) }\n",
    /* the sum is made in a function with a rule of its own */
    "{ lambda ; x:f32[5,16]. let\n"
    "    c:f32[] = const[value=0.0]\n"
    "    y:f32[] = scan[length=5 consts=0 carry=1 body={ lambda ; c:f32[] x:f32[16]. let\n"
    "        s:f32[] = custom_jvp[name=\"sum\" body={ lambda ; x:f32[16]. let\n"
    "            s:f32[] = reduce_sum[axes=(0)] x\n"
    "          in (s) } rule={ lambda ; x:f32[16] dx:f32[16]. let\n"
    "            s:f32[] = reduce_sum[axes=(0)] x\n"
    "            ds:f32[] = reduce_sum[axes=(0)] dx\n"
    "          in (s, ds) }] x\n"
    "        d:f32[] = add c s\n"
    "      in (d) }] c x\n"
    "  in (y) }\n"};

static float in_groups_of_one(const char *source, tow_array *x)
{
    static const int axes[1] = {1};
    tow_graph *graph = parse(source), *grouped_graph;
    tow_array *y;
    OK(tow_row_groups(graph, &TOW_ROW_GROUPS_OPTIONS(.groups = B, .in_axes = axes), &grouped_graph));
    OK(tow_graph_check(grouped_graph));
    OK(tow_evaluate(grouped_graph, &x, &y));
    const float result = *(const float *)tow_array_data(y);
    tow_array_release(y);
    tow_graph_release(graph);
    tow_graph_release(grouped_graph);
    return result;
}

/* Each row is added up over the iterations, and then the tree over rows; a maximum is that of all rows. */
static void test_sums_of_loops(void **state)
{
    (void)state;
    const char *const same[] = {add_in_loop, add_in_region, add_of_region, add_in_two_loops};
    tow_array *x;
    OK(tow_array_create(ctx, tow_make_type(TOW_F32, 2, (int64_t[]){5, B}), &x));
    float *rows = tow_array_data(x);
    for (int i = 0; i < 5 * B; i++) rows[i] = sinf(1.7F * (float)i);
    float sums_of_rows[B] = {0}, greatest = 0;
    for (int i = 0; i < 5; i++) {
        float most = rows[B * i];
        for (int r = 0; r < B; r++) sums_of_rows[r] += rows[B * i + r], most = fmaxf(most, rows[B * i + r]);
        greatest += most;
    }
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        const float found = in_groups_of_one(same[i], x), expected = tree(sums_of_rows, B);
        if (found != expected) fail_msg("loop %zu: expected %.9g, found %.9g", i, (double)expected, (double)found);
    }
    assert_true(in_groups_of_one(add_greatest, x) == greatest);
    for (size_t i = 0; i < sizeof mixed_sums / sizeof *mixed_sums; i++) {
        tow_graph *graph = parse(mixed_sums[i]);
        tow_array *y;
        OK(tow_evaluate(graph, &x, &y));
        const float expected = *(const float *)tow_array_data(y), found = in_groups_of_one(mixed_sums[i], x);
        if (!(fabsf(found - expected) <= 1e-4F)) /* rounding of up to 400 numbers below 1 */
            fail_msg("program %zu: expected %.9g, found %.9g", i, (double)expected, (double)found);
        tow_array_release(y);
        tow_graph_release(graph);
    }
    tow_array_release(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums_of_loops)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
