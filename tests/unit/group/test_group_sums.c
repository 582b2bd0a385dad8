/* Collectives between processes of this machine: the same bits for every number of them. Tests collective.c, group.c,
 * shared_memory.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/base/numbers.h"
#include "src/group/group.h"
#include "tests/unit/support/group_flight.h"

static tow_context *ctx;

static int setup(void **state)
{
    (void)state;
    return tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1), &ctx) == TOW_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    tow_context_free(ctx);
    return 0;
}

static void run(int count, int (*body)(tow_context *context, tow_group *group, void *user), void *user)
{
    if (tow_processes_run(ctx, &TOW_PROCESSES_OPTIONS(.count = count), body, user) != TOW_OK)
        fail_msg("%d processes: %s", count, tow_context_error(ctx));
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

static const int counts[] = {1, 2, 3, 4, 8};

typedef struct sum_case {
    tow_dtype dtype;
    int row_groups;
    int64_t n;
} sum_case;

/* Element i of row group g, whose sums depend on the order in floats. */
static void fill(const sum_case *s, int g, char *data)
{
    for (int64_t i = 0; i < s->n; i++) {
        const double scale = tow_dtype_is_float(s->dtype) && g % 3 == 0 ? 2048 : 1;
        const double v = (double)((g * 7919 + i * 104729) % 201 - 100) / (tow_dtype_is_float(s->dtype) ? 7 : 1);
        tow__store_element(s->dtype, data, i, v * scale);
    }
}

/* The tree by its definition, with the additions of element.c: exact in f64 for the small types, and rounded once. */
static void tree(const sum_case *s, int begin, int end, char *into)
{
    const size_t size = tow_dtype_size(s->dtype), bytes = (size_t)s->n * size;
    if (end - begin == 1) {
        fill(s, begin, into);
        return;
    }
    char *right = calloc(bytes + 1, 1);
    if (!right) abort();
    tree(s, begin, begin + (end - begin) / 2, into);
    tree(s, begin + (end - begin) / 2, end, right);
    for (int64_t i = 0; i < s->n; i++) {
        const tow__element a = tow__load_element(s->dtype, into, i), b = tow__load_element(s->dtype, right, i);
        if (tow_dtype_is_float(s->dtype)) {
            tow__store_element(s->dtype, into, i, a.f + b.f);
        } else {
            const uint64_t sum =
                (a.kind == TOW__A_SIGNED ? (uint64_t)a.i : a.u) + (b.kind == TOW__A_SIGNED ? (uint64_t)b.i : b.u);
            memcpy(into + (size_t)i * size, &sum, size); /* little-endian, as all machines that tests run on */
        }
    }
    free(right);
}

static int sum_body(tow_context *context, tow_group *group, void *user)
{
    const sum_case *s = user;
    const int rank = tow_group_rank(group), count = tow_group_count(group);
    const tow_type type = tow_make_type(s->dtype, 1, &s->n);
    const size_t bytes = tow_type_bytes(type), size = tow_dtype_size(s->dtype);
    tow_array *all = NULL, *share = NULL, *expected = NULL;
    int begin = 0, end = 0;
    int64_t offset = 0, length = 0;
    OK(tow_array_create(context, type, &all));
    OK(tow_array_create(context, type, &share));
    OK(tow_array_create(context, type, &expected));
    EXPECT(tow_group_rows(rank, count, s->row_groups, &begin, &end) == TOW_OK);
    tree(s, begin, end, tow_array_data(all));
    memcpy(tow_array_data(share), tow_array_data(all), bytes);
    tree(s, 0, s->row_groups, tow_array_data(expected));
    OK(tow_group_all_reduce(group, s->row_groups, all));
    EXPECT(memcmp(tow_array_data(all), tow_array_data(expected), bytes) == 0);
    OK(tow_group_reduce_scatter(group, s->row_groups, share));
    EXPECT(tow_group_share(rank, count, s->n, &offset, &length) == TOW_OK);
    const size_t from = (size_t)offset * size, of = (size_t)length * size;
    char *own = (char *)tow_array_data(share) + from;
    EXPECT(memcmp(own, (char *)tow_array_data(expected) + from, of) == 0);
    memset(tow_array_data(all), 0, bytes); /* nothing but the own share is sent */
    memcpy((char *)tow_array_data(all) + from, own, of);
    OK(tow_group_all_gather(group, all));
    EXPECT(memcmp(tow_array_data(all), tow_array_data(expected), bytes) == 0);
    tow_array_release(all);
    tow_array_release(share);
    tow_array_release(expected);
    return 0;
}

static void types(void **state)
{
    static const tow_dtype dtypes[] = {TOW_F32, TOW_F64, TOW_BF16, TOW_F16, TOW_I8,
                                       TOW_U8,  TOW_I32, TOW_U32,  TOW_I64, TOW_U64};
    (void)state;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
            run(counts[c], sum_body, &(sum_case){dtypes[d], 8, 201});
}

static void sizes(void **state)
{
    static const int64_t n[] = {0, 1, 15, 17, 40000};
    (void)state;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (size_t k = 0; k < sizeof n / sizeof *n; k++) run(counts[c], sum_body, &(sum_case){TOW_F32, 8, n[k]});
    run(2, sum_body, &(sum_case){TOW_F64, 2, TOW_MESSAGE_BYTES / 4 + 5}); /* messages in pieces */
    run(1, sum_body, &(sum_case){TOW_F32, 1, 9});
    run(2, sum_body, &(sum_case){TOW_F32, 2, 9});
}

/* The order matters for these numbers at all. */
static void order_is_exposed(void **state)
{
    (void)state;
    const sum_case s = {TOW_F32, 8, 201};
    float sum[201], chain[201] = {0}, one[201];
    int differ = 0;
    tree(&s, 0, 8, (char *)sum);
    for (int g = 0; g < 8; g++) {
        fill(&s, g, (char *)one);
        for (int i = 0; i < 201; i++) chain[i] += one[i];
    }
    for (int i = 0; i < 201; i++) differ += chain[i] != sum[i];
    assert_true(differ > 40);
}

static int refused_body(tow_context *context, tow_group *group, void *user)
{
    tow_array *array = NULL;
    (void)user;
    OK(tow_array_create(context, tow_make_type(TOW_F32, 1, (int64_t[]){4}), &array));
    EXPECT(tow_group_all_reduce(group, 6, array) == TOW_INVALID_ARGUMENT);
    EXPECT(strstr(tow_context_error(context), "power of two") && strstr(tow_context_error(context), "found 6"));
    EXPECT(tow_group_all_reduce(group, 2, array) == TOW_INVALID_ARGUMENT);
    EXPECT(tow_group_broadcast(group, 3, array) == TOW_INVALID_ARGUMENT);
    EXPECT(tow_group_broadcast(group, 0, NULL) == TOW_INVALID_ARGUMENT);
    tow_array_release(array);
    OK(tow_array_create(context, tow_make_type(TOW_BOOL, 1, (int64_t[]){4}), &array));
    EXPECT(tow_group_reduce_scatter(group, 4, array) == TOW_TYPE_MISMATCH);
    OK(tow_group_broadcast(group, 1, array)); /* bools are sent like anything else */
    tow_array_release(array);
    return 0;
}

static void refused(void **state)
{
    (void)state;
    run(3, refused_body, NULL);
}

/* ---- others ------------------------------------------------------------------------------------------------------ */

static int broadcast_body(tow_context *context, tow_group *group, void *user)
{
    (void)user;
    for (int root = 0; root < tow_group_count(group); root++)
        for (int64_t n = 0; n < 50000; n = 9 * n + 1) {
            tow_array *array = NULL;
            OK(tow_array_create(context, tow_make_type(TOW_I32, 1, &n), &array));
            int32_t *data = tow_array_data(array);
            for (int64_t i = 0; i < n; i++) data[i] = (int32_t)i * (tow_group_rank(group) + 1);
            OK(tow_group_broadcast(group, root, array));
            for (int64_t i = 0; i < n; i++) EXPECT(data[i] == (int32_t)i * (root + 1));
            tow_array_release(array);
            OK(tow_group_barrier(group));
        }
    return 0;
}

static void broadcasts(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) run(counts[c], broadcast_body, NULL);
}

static int nobody(tow_context *context, tow_group *group, void *user)
{
    (void)context, (void)group, (void)user;
    return 0;
}

/* NULL is the group of one: arrays stay as they are. */
static void group_of_one(void **state)
{
    (void)state;
    float one = 1;
    tow_array *array = NULL;
    assert_int_equal(tow_array_from_data(ctx, tow_make_type(TOW_F32, 0, NULL), &one, &array), TOW_OK);
    assert_int_equal(tow_group_rank(NULL), 0);
    assert_int_equal(tow_group_count(NULL), 1);
    assert_string_equal(tow_group_name(NULL), "data");
    assert_int_equal(tow_group_all_reduce(NULL, 8, array), TOW_OK);
    assert_int_equal(tow_group_reduce_scatter(NULL, 8, array), TOW_OK);
    assert_int_equal(tow_group_all_gather(NULL, array), TOW_OK);
    assert_int_equal(tow_group_broadcast(NULL, 0, array), TOW_OK);
    assert_int_equal(tow_group_barrier(NULL), TOW_OK);
    assert_int_equal(tow_group_check_same(NULL, 0, NULL), TOW_OK);
    assert_int_equal(tow__group_progress(NULL), TOW_OK);
    assert_true(*(float *)tow_array_data(array) == 1);
    tow__collective *c = (void *)array;
    assert_int_equal(tow__collective_create(ctx, NULL, &(tow__collective_options){.kind = TOW__ALL_REDUCE}, &c),
                     TOW_OK);
    assert_null(c);
    bool done = false;
    assert_int_equal(tow__collective_run(c, NULL, NULL), TOW_OK);
    assert_int_equal(tow__collective_test(c, &done), TOW_OK);
    assert_true(done && tow__collective_parts(c) == 1 && tow__collective_scratch(c) == 0);
    tow_group_set_where(NULL, NULL, NULL);
    tow_group_free(NULL);
    tow_array_release(array);
    assert_int_equal(tow_processes_run(ctx, NULL, nobody, NULL), TOW_OK); /* a group of one process */
}

/* ---- many at once ------------------------------------------------------------------------------------------------ */

static void many_in_flight(void **state)
{
    (void)state;
    for (size_t c = 1; c < sizeof counts / sizeof *counts; c++) run(counts[c], flight_body, NULL);
}

/* Ranks that own several subtrees bring an array for each: three ranks with 3, 3 and 2 of 8 groups. */
static int parts_body(tow_context *context, tow_group *group, void *user)
{
    static const int first[4] = {0, 3, 6, 8};
    const sum_case s = {TOW_F32, 8, 100};
    float parts[4][100], expected[100], scratch[200];
    tow__collective *c = NULL;
    tow__leaf leaves[4];
    (void)user;
    const int rank = tow_group_rank(group), n = tow__subtrees(rank, first[rank], first[rank + 1], 8, leaves);
    OK(tow__collective_create(
        context, group,
        &(tow__collective_options){
            .kind = TOW__ALL_REDUCE, .dtype = TOW_F32, .n = s.n, .row_groups = 8, .first_group = first},
        &c));
    EXPECT(tow__collective_parts(c) == n && n == (rank < 2 ? 2 : 1));
    EXPECT(tow__collective_scratch(c) <= sizeof scratch);
    for (int k = 0; k < n; k++) tree(&s, leaves[k].begin, leaves[k].end, (char *)parts[k]);
    tree(&s, 0, 8, (char *)expected);
    OK(tow__collective_run(c, (void *[]){parts[0], parts[1], parts[2], parts[3]}, scratch));
    EXPECT(memcmp(parts[0], expected, sizeof expected) == 0);
    tow__collective_free(c);
    return 0;
}

static void several_subtrees(void **state)
{
    (void)state;
    run(3, parts_body, NULL);
}

/* ---- a rank that is far ahead ------------------------------------------------------------------------------------ */

enum {
    BIG = 1 << 20, /* elements: each message has many times the bytes of a ring of shared memory */
    SMALL = 140,   /* gathers of a few elements, all of rank 0, which only sends them: more than it has rings */
    AHEAD = 124
};

/* Rank 0 is as many gathers ahead as it can be when ranks 1 and 2 go on. Rank 1 first waits for its oldest collective,
 * of which rank 0 then begins a message to rank 1. */
static int ahead_body(tow_context *context, tow_group *group, void *user)
{
    static float few[SMALL][8], many[BIG];
    atomic_int *is_ahead = user;
    const int rank = tow_group_rank(group);
    tow__collective *big, *small[SMALL];
    OK(tow__collective_create(context, group,
                              &(tow__collective_options){.kind = TOW__ALL_GATHER, .dtype = TOW_F32, .n = BIG}, &big));
    const tow__range_of own = tow__collective_share(big, BIG);
    for (int64_t i = 0; i < own.count; i++) many[own.offset + i] = 1;
    OK(tow__collective_start(big, (void *[]){many}, NULL));
    while ((rank == 1 || rank == 2) && !atomic_load(is_ahead)) usleep(100);
    if (rank == 1) OK(tow__collective_wait(big));
    for (int k = 0; k < SMALL; k++) {
        OK(tow__collective_create(
            context, group, &(tow__collective_options){.kind = TOW__ALL_GATHER, .dtype = TOW_F32, .n = 8}, &small[k]));
        if (rank == 0) few[k][5] = (float)k;
        OK(tow__collective_start(small[k], (void *[]){few[k]}, NULL));
        if (rank == 0 && k == AHEAD) atomic_store(is_ahead, 1);
    }
    OK(tow__collective_wait(big));
    for (int64_t i = 0; i < BIG; i += 1000) EXPECT(many[i] == 1);
    tow__collective_free(big);
    for (int k = 0; k < SMALL; k++) {
        OK(tow__collective_wait(small[k]));
        EXPECT(few[k][5] == (float)k);
        tow__collective_free(small[k]);
    }
    return 0;
}

static void a_rank_is_ahead(void **state)
{
    (void)state;
    atomic_int *is_ahead = mmap(NULL, sizeof *is_ahead, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(is_ahead != MAP_FAILED);
    if (tow_processes_run(ctx, &TOW_PROCESSES_OPTIONS(.count = 4, .watchdog = 5), ahead_body, is_ahead) != TOW_OK)
        fail_msg("%s", tow_context_error(ctx));
    munmap(is_ahead, sizeof *is_ahead);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(types),
                                       cmocka_unit_test(sizes),
                                       cmocka_unit_test(order_is_exposed),
                                       cmocka_unit_test(refused),
                                       cmocka_unit_test(broadcasts),
                                       cmocka_unit_test(group_of_one),
                                       cmocka_unit_test(many_in_flight),
                                       cmocka_unit_test(several_subtrees),
                                       cmocka_unit_test(a_rank_is_ahead)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
