/* Row groups: sums over the rows of a batch as binary trees. Against sums that this file adds by hand, and one hash of
 * losses and parameters for all micro-batches, threads, policies of remat, and ways to write layers. Tests rows/rows.c,
 * rows/moves.c, rows/cut.c, rows/sums.c, rows/regions.c, rows/part.c, rows/conversions.c, rows/micro_batches.c,
 * transformations/row_groups.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "src/autodiff/rows/part.h"
#include "tests/unit/support/plain_context.h"
#include "tests/unit/support/row_models.h"
#include "tow/tow.h"

enum {
    MOST = 64
};

static tow_graph *parse(const char *source)
{
    tow_graph *graph;
    OK(tow_graph_parse(ctx, source, &graph));
    return graph;
}

static tow_graph *grouped(const tow_graph *graph, int64_t groups, const int *axes)
{
    tow_graph *result;
    OK(tow_row_groups(graph, &TOW_ROW_GROUPS_OPTIONS(.groups = groups, .in_axes = axes), &result));
    OK(tow_graph_check(result));
    return result;
}

static void expect_equal(const char *what, const tow_array *found, const float *expected)
{
    const int64_t n = tow_type_element_count(tow_array_type(found));
    const float *data = tow_array_data(found);
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&data[i], &expected[i], sizeof *data) != 0)
            fail_msg("%s: element %lld: expected %.9g, found %.9g", what, (long long)i, (double)expected[i],
                     (double)data[i]);
}

/* ---- sums by hand ------------------------------------------------------------------------------------------------ */

/* The binary tree over n numbers, each `stride` behind the one before. */
static float tree(const float *x, int64_t n, int64_t stride)
{
    return n == 1 ? x[0] : tree(x, n / 2, stride) + tree(x + n / 2 * stride, n / 2, stride);
}

static const char sums[] = "{ lambda ; x:f32[16,3] y:f32[16,5]. let\n"
                           "    a:f32[3] = reduce_sum[axes=(0)] x\n"
                           "    b:f32[3,5] = dot_general[lhs_contract=(0) rhs_contract=(0)] x y\n"
                           "    c:f32[] = reduce_sum[axes=(0,1)] y\n"
                           "    d:f32[3] = reduce_max[axes=(0)] x\n"
                           "  in (a, b, c, d) }\n";

/* With one row in each group, the arithmetic is here alone. */
static void test_sums_of_single_rows(void **state)
{
    (void)state;
    tow_graph *graph = parse(sums), *rows = grouped(graph, B, NULL);
    tow_array *in[2] = {random_array(ctx, F32(B, 3)), random_array(ctx, F32(B, 5))}, *out[4];
    const float *x = tow_array_data(in[0]), *y = tow_array_data(in[1]);
    float a[3], b[15], products[B], whole[B], most[3];
    OK(tow_evaluate(rows, in, out));
    for (int i = 0; i < 3; i++) {
        a[i] = tree(x + i, B, 3);
        most[i] = x[i];
        for (int r = 1; r < B; r++) most[i] = x[3 * r + i] > most[i] ? x[3 * r + i] : most[i];
        for (int j = 0; j < 5; j++) {
            for (int r = 0; r < B; r++) products[r] = x[3 * r + i] * y[5 * r + j];
            b[5 * i + j] = tree(products, B, 1);
        }
    }
    expect_equal("reduce_sum", out[0], a);
    expect_equal("dot_general", out[1], b);
    expect_equal("reduce_max", out[3], most);
    tow_array *row[2], *sum[4];
    OK(tow_array_create(ctx, F32(B, 3), &row[0]));
    memset(tow_array_data(row[0]), 0, B * 3 * sizeof(float));
    OK(tow_array_create(ctx, F32(B, 5), &row[1]));
    for (int r = 0; r < B; r++) { /* the sum of one row, as an ungrouped program makes it */
        memset(tow_array_data(row[1]), 0, B * 5 * sizeof(float));
        memcpy(tow_array_data(row[1]), y + 5 * r, 5 * sizeof(float));
        OK(tow_evaluate(graph, row, sum));
        whole[r] = *(const float *)tow_array_data(sum[2]);
        for (int k = 0; k < 4; k++) tow_array_release(sum[k]);
    }
    const float c = tree(whole, B, 1);
    assert_true(memcmp(&c, tow_array_data(out[2]), sizeof c) == 0);
    for (int k = 0; k < 2; k++) tow_array_release(in[k]), tow_array_release(row[k]);
    for (int k = 0; k < 4; k++) tow_array_release(out[k]);
    tow_graph_release(rows);
    tow_graph_release(graph);
}

/* Updates of one index meet in the order of rows, within a group; then the tree. */
static void test_sums_by_index(void **state)
{
    (void)state;
    tow_graph *graph =
        parse("{ lambda ; i:i32[16] u:f32[16,2]. let y:f32[1000,2] = scatter_add[rows=1000] i u in (y) }\n");
    tow_graph *rows = grouped(graph, 4, NULL);
    tow_array *in[2] = {random_array(ctx, tow_make_type(TOW_I32, 1, (int64_t[]){B})), random_array(ctx, F32(B, 2))},
              *out;
    int32_t *indices = tow_array_data(in[0]);
    float *updates = tow_array_data(in[1]);
    static float expected[1000][2], each[4][1000][2];
    for (int c = 0; c < 2; c++) { /* these cancel in their group, if they meet there */
        updates[2 * 2 + c] = 1e8F;
        updates[2 * 3 + c] = -1e8F;
    }
    for (int r = 0; r < B; r++) {
        indices[r] = indices[r] * 90 + (r == 5 ? 1000 : 0); /* one is outside */
        if (r % 4 == 2) indices[r] = 930;
        if (r % 4 == 3) indices[r] = 930 - 1000; /* the same row, from the end */
        const int row = indices[r] < 0 ? indices[r] + 1000 : indices[r];
        if (row >= 1000) continue;
        for (int c = 0; c < 2; c++) each[r / 4][row][c] += updates[2 * r + c];
    }
    for (int i = 0; i < 1000; i++)
        for (int c = 0; c < 2; c++) expected[i][c] = tree(&each[0][i][c], 4, 2000);
    OK(tow_evaluate(rows, in, &out));
    expect_equal("scatter_add", out, &expected[0][0]);
    tow_array_release(out);
    for (int k = 0; k < 2; k++) tow_array_release(in[k]);
    tow_graph_release(rows);
    tow_graph_release(graph);
}

/* x W1 -> tanh -> W2 -> half the sum of squares over n, by rows. */
static void loss_of(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    tow_value h = tow_tanh(tow_add(tow_matmul(in[3], in[0]), in[1]));
    tow_value d = tow_sub(tow_matmul(h, in[2]), in[4]);
    out[0] = tow_mul_scalar(tow_reduce_sum(tow_square(d), 0, NULL), 1.0 / *(const double *)user);
}

static tow_graph *gradient_for(int64_t rows)
{
    const tow_type types[5] = {F32(3, 20), F32(20), F32(20, 2), F32(rows, 3), F32(rows, 2)};
    const double n = 2.0 * B;
    tow_graph *loss, *gradient;
    OK(tow_trace_function(ctx, loss_of, (void *)(uintptr_t)&n, 5, types, NULL, 1, &loss));
    OK(tow_value_and_grad(loss, 3, (size_t[]){0, 1, 2}, false, &gradient));
    tow_graph_release(loss);
    return gradient;
}

static const int mlp_axes[5] = {TOW_NOT_MAPPED, TOW_NOT_MAPPED, TOW_NOT_MAPPED, 0, 0};

/* Gradients of each group by a program of its own, without groups, added here. */
static void test_gradients_of_groups(void **state)
{
    (void)state;
    static const int64_t sizes[4] = {1, 60, 20, 40};
    tow_graph *whole = gradient_for(B);
    tow_array *in[5] = {random_array(ctx, F32(3, 20)), random_array(ctx, F32(20)), random_array(ctx, F32(20, 2)),
                        random_array(ctx, F32(B, 3)), random_array(ctx, F32(B, 2))};
    for (int groups = 2; groups <= 8; groups *= 2) {
        tow_graph *rows = grouped(whole, groups, mlp_axes), *part = gradient_for(B / groups);
        float made[4][8][60];
        tow_array *out[4];
        for (int k = 0; k < groups; k++) {
            tow_array *own[5] = {in[0], in[1], in[2]};
            for (int i = 3; i < 5; i++) {
                const int64_t columns = i == 3 ? 3 : 2, n = B / groups * columns;
                OK(tow_array_create(ctx, F32(B / groups, columns), &own[i]));
                memcpy(tow_array_data(own[i]), (const float *)tow_array_data(in[i]) + k * n, (size_t)n * sizeof(float));
            }
            OK(tow_evaluate(part, own, out));
            for (int o = 0; o < 4; o++) {
                memcpy(made[o][k], tow_array_data(out[o]), (size_t)sizes[o] * sizeof(float));
                tow_array_release(out[o]);
            }
            for (int i = 3; i < 5; i++) tow_array_release(own[i]);
        }
        OK(tow_evaluate(rows, in, out));
        for (int o = 0; o < 4; o++) {
            float expected[60];
            for (int64_t i = 0; i < sizes[o]; i++) expected[i] = tree(&made[o][0][i], groups, 60);
            expect_equal("gradient", out[o], expected);
            tow_array_release(out[o]);
        }
        tow_graph_release(part);
        tow_graph_release(rows);
    }
    for (int i = 0; i < 5; i++) tow_array_release(in[i]);
    tow_graph_release(whole);
}

/* The gradient of a convolution of images, of four features in two groups, with respect to its kernel. */
static tow_graph *grouped_convolution(int images)
{
    char source[400];
    snprintf(source, sizeof source,
             "{ lambda ; x:f32[%d,5,4] ct:f32[%d,3,6]. let\n"
             "    dk:f32[3,2,6] = conv_general_dilated[dimensions=\"CWN,IWO->WNC\" strides=(1) low=(0) high=(0)\n"
             "      lhs_dilation=(1) rhs_dilation=(1) feature_groups=1 batch_groups=2] x ct\n"
             "  in (dk) }\n",
             images, images);
    return parse(source);
}

/* Gradients of each group of images by a program of its own, added here, and that of all images but for rounding. */
static void test_grouped_convolutions(void **state)
{
    (void)state;
    enum {
        KERNEL = 3 * 2 * 6
    };
    const int64_t sizes[2] = {5 * 4, 3 * 6};
    tow_graph *whole = grouped_convolution(B);
    tow_array *in[2] = {random_array(ctx, F32(B, 5, 4)), random_array(ctx, F32(B, 3, 6))}, *all, *out;
    OK(tow_evaluate(whole, in, &all));
    for (int groups = 2; groups <= B; groups *= 2) {
        tow_graph *rows = grouped(whole, groups, NULL), *part = grouped_convolution(B / groups);
        float made[B][KERNEL], expected[KERNEL];
        for (int k = 0; k < groups; k++) {
            tow_array *own[2];
            for (int i = 0; i < 2; i++) {
                const int64_t n = B / groups * sizes[i];
                OK(tow_array_create(ctx, i ? F32(B / groups, 3, 6) : F32(B / groups, 5, 4), &own[i]));
                memcpy(tow_array_data(own[i]), (const float *)tow_array_data(in[i]) + k * n, (size_t)n * sizeof(float));
            }
            OK(tow_evaluate(part, own, &out));
            memcpy(made[k], tow_array_data(out), sizeof made[k]);
            tow_array_release(out);
            for (int i = 0; i < 2; i++) tow_array_release(own[i]);
        }
        OK(tow_evaluate(rows, in, &out));
        for (int i = 0; i < KERNEL; i++) {
            expected[i] = tree(&made[0][i], groups, KERNEL);
            assert_float_equal(expected[i], ((const float *)tow_array_data(all))[i], 1e-5F);
        }
        expect_equal("gradient of a kernel", out, expected);
        tow_array_release(out);
        tow_graph_release(part);
        tow_graph_release(rows);
    }
    for (int i = 0; i < 2; i++) tow_array_release(in[i]);
    tow_array_release(all);
    tow_graph_release(whole);
}

/* ---- parts, one after the other ---------------------------------------------------------------------------------- */

/* Row outputs and sums of the parts of a gradient, joined here, against the whole. */
static void check_parts(const tow_graph *gradient, const int *axes, tow_array *const *in, int64_t groups)
{
    const size_t n_in = tow_graph_input_count(gradient), n_out = tow_graph_output_count(gradient);
    tow_graph *whole = grouped(gradient, groups, axes);
    tow_array *expected[MOST], *local[MOST], *out[4][MOST], *rest[MOST], *found[MOST];
    OK(tow_evaluate(whole, in, expected));
    for (int64_t n = 1; n <= 4; n *= 2) {
        tow__row_part p;
        OK(tow__row_part_create(gradient, groups, groups / n, axes, &p));
        assert_int_equal(p.n_rows, 0);
        for (int64_t k = 0; k < n; k++) {
            for (size_t i = 0; i < n_in; i++) {
                local[i] = tow_array_retain(in[i]);
                if (axes[i] == TOW_NOT_MAPPED) continue;
                tow_array_release(local[i]);
                OK(tow_array_create(ctx, tow_graph_input_type(p.part, i), &local[i]));
                const size_t bytes = tow_type_bytes(tow_array_type(local[i]));
                memcpy(tow_array_data(local[i]), (const char *)tow_array_data(in[i]) + (size_t)k * bytes, bytes);
            }
            OK(tow_array_create(ctx, tow_make_type(TOW_I32, 0, NULL), &local[n_in]));
            *(int32_t *)tow_array_data(local[n_in]) = (int32_t)(k * groups / n);
            OK(tow_evaluate(p.part, local, out[k]));
            for (size_t i = 0; i <= n_in; i++) tow_array_release(local[i]);
        }
        size_t m = 0;
        for (size_t i = 0; i < n_in; i++)
            if (axes[i] == TOW_NOT_MAPPED) rest[m++] = in[i];
        for (uint32_t s = 0; s < p.n_sums; s++) {
            float *sum = tow_array_data(out[0][s]);
            const int64_t size = tow_type_element_count(tow_array_type(out[0][s]));
            for (int64_t i = 0; i < size; i++) {
                float each[4];
                for (int64_t k = 0; k < n; k++) each[k] = ((const float *)tow_array_data(out[k][s]))[i];
                sum[i] = tree(each, n, 1);
            }
            rest[m++] = out[0][s];
        }
        OK(tow_evaluate(p.rest, rest, found));
        for (size_t o = 0; o < n_out; o++) {
            expect_equal("output", found[o], tow_array_data(expected[o]));
            tow_array_release(found[o]);
        }
        for (int64_t k = 0; k < n; k++)
            for (uint32_t s = 0; s < p.n_sums; s++) tow_array_release(out[k][s]);
        tow__row_part_free(&p);
    }
    for (size_t o = 0; o < n_out; o++) tow_array_release(expected[o]);
    tow_graph_release(whole);
}

static void test_parts_of_mlp(void **state)
{
    (void)state;
    tow_graph *gradient = gradient_for(B);
    tow_array *in[5] = {random_array(ctx, F32(3, 20)), random_array(ctx, F32(20)), random_array(ctx, F32(20, 2)),
                        random_array(ctx, F32(B, 3)), random_array(ctx, F32(B, 2))};
    check_parts(gradient, mlp_axes, in, 4);
    check_parts(gradient, mlp_axes, in, 8);
    for (int i = 0; i < 5; i++) tow_array_release(in[i]);
    tow_graph_release(gradient);
}

/* One branch sums over rows where the other one gives zeros, as gradients of a choice of layers do; but no other
 * value. */
static void test_parts_of_a_choice(void **state)
{
    (void)state;
    static const int axes[3] = {TOW_NOT_MAPPED, TOW_NOT_MAPPED, 0};
    tow_graph *graph = parse("{ lambda ; i:i32[] w:f32[3] x:f32[16,3]. let\n"
                             "    a:f32[3] b:f32[3] = cond[branches=(\n"
                             "      { lambda ; w:f32[3] x:f32[16,3]. let\n"
                             "          a:f32[3] = reduce_sum[axes=(0)] x\n"
                             "          o:f32[] = const[value=f32[](0)]\n"
                             "          z:f32[3] = broadcast_in_dim[shape=(3) axes=()] o\n"
                             "        in (a, z) }\n"
                             "      { lambda ; w:f32[3] x:f32[16,3]. let\n"
                             "          a:f32[3] = reduce_sum[axes=(0)] x\n"
                             "          o:f32[] = const[value=f32[](0)]\n"
                             "          z:f32[3] = broadcast_in_dim[shape=(3) axes=()] o\n"
                             "        in (z, a) })] i w x\n"
                             "  in (a, b) }\n");
    tow_array *in[3] = {random_array(ctx, tow_make_type(TOW_I32, 0, NULL)), random_array(ctx, F32(3)),
                        random_array(ctx, F32(B, 3))};
    for (int32_t i = 0; i < 2; i++) {
        *(int32_t *)tow_array_data(in[0]) = i;
        check_parts(graph, axes, in, 8);
    }
    tow_graph_release(graph);
    graph = parse("{ lambda ; i:i32[] w:f32[3] x:f32[16,3]. let\n"
                  "    a:f32[3] = cond[branches=(\n"
                  "      { lambda ; w:f32[3] x:f32[16,3]. let a:f32[3] = reduce_sum[axes=(0)] x in (a) }\n"
                  "      { lambda ; w:f32[3] x:f32[16,3]. let a:f32[3] = neg w in (a) })] i w x\n"
                  "  in (a) }\n");
    tow__row_part p;
    assert_int_not_equal(tow__row_part_create(graph, 8, 2, axes, &p), TOW_OK);
    assert_non_null(strstr(tow_context_error(ctx), "chooses between a sum over rows"));
    tow__row_part_free(&p);
    for (int i = 0; i < 3; i++) tow_array_release(in[i]);
    tow_graph_release(graph);
}

/* Random numbers and numbers of rows, of the whole batch, are made for the rows of a part alone. */
static void test_draws_of_parts(void **state)
{
    (void)state;
    tow_graph *graph = parse("{ lambda ; x:u32[16,3] key:u32[2]. let\n"
                             "    bits:u32[16,3] = random_bits[shape=(16,3)] key\n"
                             "    row:u32[16,3] = iota[dtype=u32 shape=(16,3) axis=0]\n"
                             "    a:u32[16,3] = xor x bits\n"
                             "    b:u32[16,3] = xor a row\n"
                             "  in (b) }\n");
    static const int axes[2] = {0, TOW_NOT_MAPPED};
    static const int64_t key_dims[1] = {2}, dims[2] = {B, 3}, few[2] = {B / 4, 3};
    tow_array *in[3], *whole, *found;
    char text[4096];
    tow__row_part p;
    OK(tow_array_create(ctx, tow_make_type(TOW_U32, 2, dims), &in[0]));
    OK(tow_array_create(ctx, tow_make_type(TOW_U32, 1, key_dims), &in[1]));
    OK(tow_array_create(ctx, tow_make_type(TOW_I32, 0, NULL), &in[2]));
    memset(tow_array_data(in[0]), 0, B * 3 * sizeof(uint32_t));
    memcpy(tow_array_data(in[1]), (uint32_t[]){7, 11}, 2 * sizeof(uint32_t));
    OK(tow_evaluate(graph, in, &whole));
    tow_array_release(in[0]);
    OK(tow_array_create(ctx, tow_make_type(TOW_U32, 2, few), &in[0]));
    memset(tow_array_data(in[0]), 0, B / 4 * 3 * sizeof(uint32_t));
    OK(tow__row_part_create(graph, 8, 2, axes, &p));
    assert_in_range(tow_graph_text(p.part, text, sizeof text), 1, sizeof text - 1);
    assert_null(strstr(text, "[16,3]"));
    assert_null(strstr(text, "[48]"));
    for (int k = 0; k < 4; k++) {
        *(int32_t *)tow_array_data(in[2]) = 2 * k;
        OK(tow_evaluate(p.part, in, &found));
        assert_memory_equal(tow_array_data(found), (const uint32_t *)tow_array_data(whole) + k * B / 4 * 3,
                            B / 4 * 3 * sizeof(uint32_t));
        tow_array_release(found);
    }
    for (int i = 0; i < 3; i++) tow_array_release(in[i]);
    tow_array_release(whole);
    tow__row_part_free(&p);
    tow_graph_release(graph);
}

/* ---- training: one hash ------------------------------------------------------------------------------------------ */

/* One number for all that came out; 0: the settings are refused, with a message. */
static uint64_t train_alone(int kind, const setting *s, char *message, size_t size)
{
    tow_context *own;
    trained result;
    OK(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = s->threads), &own));
    const tow_status status = train(own, NULL, kind, ROW_GROUPS, s, &result);
    if (status) snprintf(message, size, "%s", tow_context_error(own));
    tow_context_free(own);
    return status ? 0 : hash(14695981039346656037u, &result, sizeof result);
}

static void expect_one_hash(int kind, const setting *settings, size_t n)
{
    char message[600] = "";
    const uint64_t first = train_alone(kind, &settings[0], message, sizeof message);
    if (first == 0) fail_msg("model %d: %s", kind, message);
    for (size_t i = 1; i < n; i++) {
        const uint64_t h = train_alone(kind, &settings[i], message, sizeof message);
        if (h == 0) fail_msg("model %d, setting %zu: %s", kind, i, message);
        if (h != first)
            fail_msg("model %d, setting %zu: expected hash %llx, found %llx", kind, i, (unsigned long long)first,
                     (unsigned long long)h);
    }
}

static void test_one_hash(void **state)
{
    (void)state;
    static const setting settings[] = {{1, 0, 1, false, NULL},
                                       {2, 0, 1, false, NULL},
                                       {4, 0, 2, false, NULL},
                                       {8, 0, 1, false, NULL},
                                       {1, 0, 2, false, NULL}};
    expect_one_hash(MLP, settings, 5);
    expect_one_hash(CONV, settings, 5);
    expect_one_hash(LSTM, settings, 5);
    expect_one_hash(EMBED, settings, 5);
    expect_one_hash(GROUPED, settings, 5);
    expect_one_hash(LOOP, settings, 5);
}

/* Gradients of parameters that all iterations share pass through regions, and from loop to loop, by blocks of rows. */
static void test_one_hash_of_loops(void **state)
{
    (void)state;
    const tow_policy nothing = tow_nothing_saveable();
    static const int kinds[] = {LSTM, LOOP};
    for (int dtype = 0; dtype < 2; dtype++)
        for (int k = 0; k < 2; k++) {
            const setting plain = {.micro_batches = 1, .threads = 1, .dtype = dtype && kinds[k] == LSTM ? TOW_BF16 : 0};
            setting settings[] = {plain, plain, plain, plain, plain, plain};
            settings[1].policy = settings[2].policy = &nothing;
            settings[2].micro_batches = 4;
            settings[3].memory_limit = 1000000;
            settings[4].unroll = 2; /* a last iteration, or a last one alone, has no turn */
            settings[5].unroll = 2, settings[5].micro_batches = 8, settings[5].policy = &nothing;
            expect_one_hash(kinds[k], settings, 6);
        }
}

static void test_one_hash_of_gpt(void **state)
{
    (void)state;
    const tow_policy nothing = tow_nothing_saveable();
    const setting settings[] = {{1, 0, 1, false, NULL},     {1, 0, 1, true, NULL},      {8, 0, 1, false, NULL},
                                {8, 0, 1, true, NULL},      {2, 0, 2, true, &nothing},  {4, 0, 1, false, &nothing},
                                {1, 0, 1, false, &nothing}, {1, 600000, 1, false, NULL}};
    expect_one_hash(GPT, settings, 8);
}

/* Loops of the backward pass convert gradients of the parameters of all layers. */
static void test_one_hash_of_mixed_gpt(void **state)
{
    (void)state;
    const tow_policy nothing = tow_nothing_saveable();
    for (int f16 = 0; f16 < 2; f16++) {
        const tow_dtype dtype = f16 ? TOW_F16 : TOW_BF16;
        const setting settings[] = {{.micro_batches = 1, .threads = 1, .dtype = dtype},
                                    {.micro_batches = 8, .threads = 1, .dtype = dtype},
                                    {.micro_batches = 4, .threads = 2, .policy = &nothing, .dtype = dtype}};
        expect_one_hash(GPT, settings, 3);
    }
}

/* Steps of a function of one's own. */
static void test_step(void **state)
{
    (void)state;
    const tow_mlp mlp = TOW_MLP(.features = {8, 3});
    const tow_type types[2] = {F32(B, 5), tow_make_type(TOW_I32, 1, (int64_t[]){B})};
    const tow_scale_by_learning_rate rate = TOW_SCALE_BY_LEARNING_RATE(.schedule = tow_schedule_constant(0.1));
    tow_params *params[2];
    tow_array *batch[2] = {random_array(ctx, types[0]), random_array(ctx, types[1])}, *out[3];
    for (int i = 0; i < B; i++) ((int32_t *)tow_array_data(batch[1]))[i] %= 3;
    OK(tow_array_create(ctx, tow_make_type(TOW_F32, 0, NULL), &out[0]));
    OK(tow_array_create(ctx, F32(B), &out[1]));
    OK(tow_array_create(ctx, tow_make_type(TOW_F32, 0, NULL), &out[2]));
    for (int k = 0; k < 2; k++) {
        const int axes[] = {TOW_NOT_MAPPED, TOW_NOT_MAPPED, TOW_NOT_MAPPED, TOW_NOT_MAPPED, 0, 0};
        const tow_row_groups_options groups =
            TOW_ROW_GROUPS_OPTIONS(.groups = 8, .micro_batches = k ? 4 : 1, .in_axes = axes);
        tow_graph *loss;
        tow_optimizer_state *optimizer;
        tow_step *step;
        OK(tow_model_init(ctx, TOW_MODULE(&mlp), 0, 1, types, &params[k]));
        assert_int_equal(tow_params_count(params[k]), 4);
        OK(tow_model_loss_graph(TOW_MODULE(&mlp), params[k], 1, types, 1, types + 1, loss_function, NULL, 2, NULL,
                                &loss));
        OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&rate), params[k], NULL, &optimizer));
        OK(tow_step_create(optimizer, params[k], loss, &TOW_STEP_OPTIONS(.row_groups = &groups), &step));
        for (int i = 0; i < 3; i++) OK(tow_step_run(step, batch, out));
        tow_step_free(step);
        tow_optimizer_free(optimizer);
        tow_graph_release(loss);
    }
    assert_true(tow_params_equal(params[0], params[1]));
    for (int k = 0; k < 2; k++) {
        tow_params_free(params[k]);
        tow_array_release(batch[k]);
    }
    for (int k = 0; k < 3; k++) tow_array_release(out[k]);
}

/* Statistics of a batch are sums over all rows. */
static void test_statistics(void **state)
{
    (void)state;
    static const setting settings[] = {{1, 0, 1, false, NULL}, {1, 0, 2, false, NULL}, {2, 0, 1, false, NULL}};
    char message[600] = "";
    expect_one_hash(NORMALIZED, settings, 2);
    assert_int_equal(train_alone(NORMALIZED, &settings[2], message, sizeof message), 0);
    assert_non_null(strstr(message, "reads a sum over all rows"));
    assert_non_null(strstr(message, "norm"));
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

#define refuses(call, ...)                                                                                             \
    do {                                                                                                               \
        tow_context_clear_error(ctx);                                                                                  \
        if ((call) == TOW_OK) fail_msg("%s is accepted", #call);                                                       \
        for (const char *const *t = (const char *const[]){__VA_ARGS__, NULL}; *t; t++)                                 \
            if (!strstr(tow_context_error(ctx), *t)) fail_msg("\"%s\" is not in: %s", *t, tow_context_error(ctx));     \
    } while (0)

static void expect_mixed(const char *source, const char *what)
{
    tow_graph *graph = parse(source), *result;
    refuses(tow_row_groups(graph, &TOW_ROW_GROUPS_OPTIONS(.groups = 2), &result), what, "row");
    assert_null(result);
    tow_graph_release(graph);
}

static void test_errors(void **state)
{
    (void)state;
    tow_graph *graph = parse(sums), *result;
    refuses(tow_row_groups(graph, &TOW_ROW_GROUPS_OPTIONS(.groups = 3), &result), "power of two", "3");
    refuses(tow_row_groups(graph, &TOW_ROW_GROUPS_OPTIONS(.groups = 32), &result), "input 0", "f32[16,3]", "32 groups");
    refuses(tow_row_groups(graph, &TOW_ROW_GROUPS_OPTIONS(.groups = 2, .in_axes = (int[]){2, 0}), &result),
            "no axis 2");
    refuses(tow_row_groups(graph, &TOW_ROW_GROUPS_OPTIONS(.groups = 2, .micro_batches = 4), &result), "micro-batches");
    tow_graph_release(graph);
    expect_mixed("{ lambda ; x:f32[4,3]. let y:f32[1,3] = slice[start=(0,0) limit=(1,3) stride=(1,1)] x in (y) }\n",
                 "slice");
    expect_mixed("{ lambda ; x:f32[4,3]. let y:f32[4,3] = rev[axes=(0)] x in (y) }\n", "rev");
    expect_mixed("{ lambda ; x:f32[4,3]. let y:f32[4,3] = cumsum[axis=0 reverse=false] x in (y) }\n", "cumsum");
    expect_mixed("{ lambda ; x:f32[4,3]. let\n"
                 "    y:f32[4,4] = dot_general[lhs_contract=(1) rhs_contract=(1)] x x\n"
                 "  in (y) }\n",
                 "dot_general");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_of_single_rows),
        cmocka_unit_test(test_gradients_of_groups),
        cmocka_unit_test(test_sums_by_index),
        cmocka_unit_test(test_step),
        cmocka_unit_test(test_grouped_convolutions),
        cmocka_unit_test(test_draws_of_parts),
        cmocka_unit_test(test_parts_of_mlp),
        cmocka_unit_test(test_parts_of_a_choice),
        cmocka_unit_test(test_one_hash),
        cmocka_unit_test(test_one_hash_of_loops),
        cmocka_unit_test(test_one_hash_of_gpt),
        cmocka_unit_test(test_one_hash_of_mixed_gpt),
        cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
