/* A table of tokens that also makes the logits, of which each process has its share: rows are gathered in blocks, for
 * lookups and for the loss, and their gradients are scattered so. Losses and parameters have the bits of one process
 * that has all, for every number of processes, micro-batches and element type, and no process ever has the whole table.
 * Tests autodiff/sharding/blocks.c, ops/losses/linear_cross_entropy.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "src/autodiff/sharding/sharding.h"
#include "src/base/params.h"
#include "src/group/halving.h"
#include "tests/unit/support/plain_context.h"
#include "tests/unit/support/table_training.h"

/* ---- processes --------------------------------------------------------------------------------------------------- */

static int work_and_compare(tow_context *context, tow_group *group, void *user)
{
    const job *j = user;
    job found = *j;
    if (work(context, group, &found) != TOW_OK) tow_group_abort(group, 1, "%s", tow_context_error(context));
    const bool same = memcmp(found.losses, j->losses, sizeof found.losses) == 0 && found.numbers == j->numbers;
    if (!same)
        fprintf(stderr, "rank %d of %d: losses %.9g %.9g, expected %.9g %.9g\n", tow_group_rank(group),
                tow_group_count(group), found.losses[0], found.losses[1], j->losses[0], j->losses[1]);
    return !same;
}

/* In one stage, of `count` processes, with the numbers that j has of one process. */
static void compare_processes(job *j, int count, int stage)
{
    tow_context *own;
    const table_setting *s = &j->s;
    j->stage = stage;
    OK(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = s->threads), &own));
    if (tow_processes_run(own, &TOW_PROCESSES_OPTIONS(.count = count), work_and_compare, j) != TOW_OK)
        fail_msg("%d processes, stage %d, reader %d, [%d, %d], %s of %s, %s%s, %zu micro-batches, %zu groups: %s",
                 count, stage, s->reader, (int)s->vocabulary, (int)s->features, tow_dtype_name(s->dtype),
                 tow_dtype_name(s->param_dtype), s->unrolled ? "unrolled" : "loops", s->in_bytes ? ", 8 bits" : "",
                 s->micro_batches, s->row_groups, tow_context_error(own));
    tow_context_free(own);
}

static job begin_job(const table_setting *s)
{
    job j = {.s = *s};
    j.s.micro_batches = 1;
    OK(work(ctx, NULL, &j));
    assert_true(j.losses[0] > 0 && j.losses[STEPS - 1] > 0 && j.losses[STEPS - 1] < 20);
    j.s = *s;
    return j;
}

static void test_counts(void **state)
{
    (void)state;
    job j = begin_job(&plain);
    for (int count = 1; count <= 8; count++) compare_processes(&j, count, TOW_SHARD_PARAMETERS);
    compare_processes(&j, 3, TOW_SHARD_NOTHING);
    compare_processes(&j, 3, TOW_SHARD_GRADIENTS);
}

/* Every reader, in loops and unrolled, with and without micro-batches. */
static void test_readers(void **state)
{
    (void)state;
    for (int reader = 0; reader < READERS; reader++)
        for (int unrolled = 0; unrolled <= (reader == STACKED); unrolled++) {
            table_setting s = plain;
            s.reader = reader;
            s.unrolled = unrolled;
            job j = begin_job(&s);
            compare_processes(&j, 3, TOW_SHARD_PARAMETERS);
            j.s.micro_batches = 4;
            compare_processes(&j, 2, TOW_SHARD_PARAMETERS);
        }
}

/* Computed in f32 or in 16 bits, of parameters of either, with slots of 8 bits. */
static void test_types(void **state)
{
    (void)state;
    static const tow_dtype types[][2] = {
        {TOW_BF16, TOW_F32}, {TOW_BF16, TOW_BF16}, {TOW_F16, TOW_F32}, {TOW_F16, TOW_F16}, {TOW_F32, TOW_F32}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        table_setting s = plain;
        s.dtype = types[i][0], s.param_dtype = types[i][1];
        s.in_bytes = i % 2 == 0;
        s.micro_batches = i % 3 == 0 ? 2 : 1;
        job j = begin_job(&s);
        compare_processes(&j, i == 0 ? 4 : 2, TOW_SHARD_PARAMETERS);
    }
}

static int below(int n)
{
    draw();
    return (int)(drawn >> 16) % n;
}

/* Drawn settings. */
static void test_drawn(void **state)
{
    (void)state;
    static const tow_dtype types[] = {TOW_F32, TOW_F32, TOW_BF16, TOW_F16};
    uint32_t seed = 17;
    for (int i = 0; i < 4; i++) {
        drawn = seed;
        const int groups = 1 << (1 + below(4)), count = 2 + below(groups < 8 ? groups - 1 : 7);
        const table_setting s = {.vocabulary = 1025 + below(4000),
                                 .features = 2 * (1 + below(9)),
                                 .reader = below(READERS),
                                 .dtype = types[below(4)],
                                 .param_dtype = types[below(4)],
                                 .unrolled = below(2),
                                 .in_bytes = below(3) == 0,
                                 .micro_batches = (size_t)1 << below(3),
                                 .row_groups = (size_t)groups,
                                 .threads = 1 + below(2)};
        seed = drawn;
        table_setting fits = s;
        if (s.reader == UNTIED) fits.vocabulary = 1300;
        while (fits.micro_batches > 1 && groups % ((int)fits.micro_batches * 4) != 0) fits.micro_batches /= 2;
        job j = begin_job(&fits);
        compare_processes(&j, count, TOW_SHARD_PARAMETERS);
    }
}

/* ---- graphs that read blocks ------------------------------------------------------------------------------------- */

/* A graph of a table [V, C], indices and labels [n]. */
typedef struct lookup {
    int64_t vocabulary, features, n;
    tow_dtype table, indices, computed;
    bool loss; /* of a product with the table, of the rows; else the rows themselves */
    bool all;  /* of each row, not their mean */
} lookup;

static void look_up(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const lookup *l = user;
    const tow_value table = l->table == l->computed ? in[0] : tow_convert(in[0], l->computed);
    const tow_value rows = tow_gather(table, in[1]);
    (void)t;
    const tow_value y = l->loss ? tow_linear_cross_entropy(tow_tanh(rows), table, true, in[2]) : rows;
    out[0] = l->all ? y : tow_mean(tow_convert(l->loss ? y : tow_mul(y, y), TOW_F32), 0, NULL);
}

static void store_index(tow_array *indices, int64_t i, int64_t x)
{
    void *data = tow_array_data(indices);
    const tow_dtype dtype = tow_array_type(indices).dtype;
    if (tow_dtype_size(dtype) == 1) ((int8_t *)data)[i] = (int8_t)x;
    if (tow_dtype_size(dtype) == 4) ((int32_t *)data)[i] = (int32_t)x;
    if (tow_dtype_size(dtype) == 8) ((int64_t *)data)[i] = x;
}

/* Rows from both ends, some of them none if there is no loss of them, which would be NaN. */
static tow_array *draw_indices(const lookup *l)
{
    tow_array *indices = NULL;
    OK(tow_array_create(ctx, tow_make_type(l->indices, 1, &l->n), &indices));
    const bool is_signed = l->indices == TOW_I8 || l->indices == TOW_I32 || l->indices == TOW_I64;
    for (int64_t i = 0; i < l->n; i++) {
        const int64_t place = below(3) ? below((int)l->vocabulary) : l->vocabulary - 1;
        int64_t x = is_signed && below(3) == 0 ? place - l->vocabulary : place;
        if (!l->loss && below(8) == 0) x = is_signed && below(2) ? -l->vocabulary - 1 : l->vocabulary;
        store_index(indices, i, tow_dtype_size(l->indices) == 1 ? x % 100 : x);
    }
    return indices;
}

static bool same_numbers(const tow_array *a, const tow_array *b)
{
    const tow_type type = tow_array_type(a);
    assert_true(tow_type_equal(type, tow_array_type(b)));
    if (type.dtype != TOW_F32) return memcmp(tow_array_data(a), tow_array_data(b), tow_type_bytes(type)) == 0;
    const float *x = tow_array_data(a), *y = tow_array_data(b);
    for (int64_t i = 0; i < tow_type_element_count(type); i++)
        if (memcmp(&x[i], &y[i], sizeof *x) != 0 && (x[i] == x[i] || y[i] == y[i])) return false;
    return true;
}

/* The graph and the same in blocks give the same numbers. */
static void compare_graphs(tow_graph *g, tow_array **in, const lookup *l)
{
    tow_group *group;
    tow_graph *blocks;
    tow_array *expected[3] = {NULL}, *found[3] = {NULL};
    const size_t n = tow_graph_output_count(g);
    OK(tow_group_plan_only(ctx, 0, 3, NULL, &group));
    const tow__sharding s = {.group = group, .in = (int64_t[]){1, 0, 0}, .out = (int64_t[]){0, 1, 0}};
    OK(tow__sharding_blocks(g, &s, &blocks));
    assert_ptr_not_equal(g, blocks);
    OK(tow_evaluate(g, in, expected));
    OK(tow_evaluate(blocks, in, found));
    for (size_t i = 0; i < n; i++) {
        if (!same_numbers(expected[i], found[i]))
            fail_msg("output %zu of [%d, %d] %s of %s, %d indices %s%s", i, (int)l->vocabulary, (int)l->features,
                     tow_dtype_name(l->computed), tow_dtype_name(l->table), (int)l->n, tow_dtype_name(l->indices),
                     l->loss ? ", loss" : "");
        tow_array_release(expected[i]), tow_array_release(found[i]);
    }
    tow_graph_release(blocks);
    tow_group_free(group);
}

static void check_lookup(lookup *l)
{
    const tow_type types[] = {tow_make_type(l->table, 2, (int64_t[]){l->vocabulary, l->features}),
                              tow_make_type(l->indices, 1, &l->n), tow_make_type(TOW_I32, 1, &l->n)};
    tow_graph *g = NULL, *gradient = NULL;
    tow_array *numbers = random_array(ctx, tow_make_type(TOW_F32, 2, types[0].dims)), *in[3] = {NULL};
    OK(tow_array_convert(numbers, l->table, &in[0]));
    in[1] = draw_indices(l);
    OK(tow_array_create(ctx, types[2], &in[2]));
    for (int64_t i = 0; i < l->n; i++) /* one of them, or none */
        ((int32_t *)tow_array_data(in[2]))[i] =
            below(9) ? below((int)l->vocabulary) : (int)l->vocabulary * below(2) - 1;
    OK(tow_trace_function(ctx, look_up, l, 3, types, NULL, 1, &g));
    OK(tow_value_and_grad(g, 1, (size_t[]){0}, false, &gradient));
    compare_graphs(gradient, in, l);
    tow_graph_release(gradient);
    tow_graph_release(g);
    l->all = true;
    OK(tow_trace_function(ctx, look_up, l, 3, types, NULL, 1, &g));
    compare_graphs(g, in, l);
    tow_graph_release(g);
    tow_array_release(numbers);
    for (int i = 0; i < 3; i++) tow_array_release(in[i]);
}

static void test_graphs(void **state)
{
    (void)state;
    static const tow_dtype floats[] = {TOW_F32, TOW_F32, TOW_BF16, TOW_F16},
                           integers[] = {TOW_I32, TOW_I64, TOW_I8, TOW_U8, TOW_U32};
    uint32_t seed = 3;
    for (int i = 0; i < 20; i++) {
        drawn = seed;
        lookup l = {.vocabulary = 1025 + below(5000),
                    .features = 1 + below(20),
                    .n = 1 + below(40),
                    .table = floats[below(4)],
                    .indices = integers[i % 5],
                    .computed = floats[below(4)],
                    .loss = below(2)};
        check_lookup(&l);
        seed = drawn;
    }
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* Blocks of the table are gathered for lookups, for the loss, and for its gradients; two sums of each are scattered.
 * A process has two of them at once: four buffers that begin with a number. */
static void test_bytes(void **state)
{
    (void)state;
    const int64_t rows = tow__loss_block(VOCABULARY), blocks = (VOCABULARY + rows - 1) / rows;
    assert_int_equal(rows, 512);
    for (int count = 2; count <= 8; count += 3) {
        const job j = {.s = plain, .stage = TOW_SHARD_PARAMETERS};
        tow_train_state *made;
        tow_group *group;
        tow_program_collective c;
        int64_t gathers = 0, sums = 0;
        OK(tow_group_plan_only(ctx, 0, count, NULL, &group));
        OK(create(ctx, group, &j, &made));
        const tow_program *step = tow_train_program(made);
        for (size_t i = 0; tow_program_get_collective(step, i, &c); i++) {
            const int64_t n = tow_type_element_count(c.type);
            assert_true(n <= rows * FEATURES);
            const bool block = n == rows * FEATURES || n == VOCABULARY % rows * FEATURES;
            *(strcmp(c.kind, "all_gather") == 0 ? &gathers : &sums) += block ? c.runs : 0;
        }
        assert_int_equal(gathers, 3 * blocks);
        assert_int_equal(sums, 2 * blocks);
        assert_true(tow_train_get_bytes(made).exchange <=
                    (size_t)(3 * rows * FEATURES) * sizeof(float) + 4 * FEATURES * FEATURES * sizeof(float) + 1024);
        tow_train_free(made);
        tow_group_free(group);
    }
}

/* ---- windows ----------------------------------------------------------------------------------------------------- */

/* The shares of a window are those of the whole that are in it. */
static void test_windows(void **state)
{
    (void)state;
    enum {
        N = 1000
    };
    for (int count = 1; count <= 7; count += 2)
        for (int64_t first = 0; first < N; first += 173) {
            const int64_t n = first + 200 < N ? 200 : N - first;
            int64_t sum = 0;
            for (int r = 0; r < count; r++) {
                const tow__range_of all = tow__share_of(r, count, N, 0);
                const tow__range_of own = tow__share_in_window(r, count, n, 0, (tow__window){first, N});
                for (int64_t i = 0; i < n; i++) {
                    const bool in_share = first + i >= all.offset && first + i < all.offset + all.count;
                    assert_int_equal(in_share, i >= own.offset && i < own.offset + own.count);
                }
                sum += own.count;
            }
            assert_int_equal(sum, n);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows), cmocka_unit_test(test_graphs),  cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_counts),  cmocka_unit_test(test_readers), cmocka_unit_test(test_types),
        cmocka_unit_test(test_drawn),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
