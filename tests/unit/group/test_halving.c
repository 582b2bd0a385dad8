/* Transfers of sums and gatherings over trees of ranks. Tests halving.c, shares.c, add.c: all ranks are played by this
 * one process, level by level, with messages matched as a carrier matches them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "src/base/numbers.h"
#include "src/group/group.h"

enum {
    MOST_RANKS = 17,
    MOST_LEAVES = 80,
    MOST_ELEMENTS = 700
};

static tow_context *ctx;

static int setup(void **state)
{
    (void)state;
    return tow_context_create(NULL, &ctx) == TOW_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    tow_context_free(ctx);
    return 0;
}

static uint64_t random_state = 1;
static uint64_t draw(uint64_t below)
{
    random_state = random_state * 6364136223846793005U + 1442695040888963407U;
    return (random_state >> 33) % below;
}

/* A float of row group g whose sums depend on the order. */
static float value(int g, int64_t i) { return (float)((g * 7919 + i * 104729) % 1000 - 500) * (g % 3 ? 1e-3F : 1e4F); }

/* The tree over row groups [begin, end), by its definition. */
static float tree(int begin, int end, int64_t i)
{
    if (end - begin == 1) return value(begin, i);
    const int middle = begin + (end - begin) / 2;
    return tree(begin, middle, i) + tree(middle, end, i);
}

/* ---- a machine that plays all ranks ------------------------------------------------------------------------------ */

typedef struct played {
    int count, row_groups;
    int64_t n;
    int first_group[MOST_RANKS + 1];
    tow__range_of shares[MOST_RANKS];
    tow__halving halvings[MOST_RANKS];
    float leaves[MOST_LEAVES][MOST_ELEMENTS];
    float arrived[MOST_LEAVES][MOST_ELEMENTS]; /* of a level, at the leaf that receives */
} played;

static played p;

/* Transfer `nth` of the level from rank to rank, as one of both sees it; NULL: there is none. */
static const tow__transfer *message(int seen_by, int level, int from, int to, size_t nth)
{
    const tow__halving *s = &p.halvings[seen_by];
    for (size_t i = 0; i < s->n; i++) {
        const tow__transfer *t = &s->transfers[i];
        if (t->level == level && s->leaves[t->from].rank == from && s->leaves[t->to].rank == to && nth-- == 0) return t;
    }
    return NULL;
}

/* Both sides list the same messages in the same order. */
static void check_pairs(int level)
{
    for (int from = 0; from < p.count; from++)
        for (int to = 0; to < p.count; to++)
            for (size_t nth = 0;; nth++) {
                const tow__transfer *a = message(from, level, from, to, nth), *b = message(to, level, from, to, nth);
                if (!a && !b) break;
                assert_true(a && b);
                assert_memory_equal(a, b, sizeof *a);
                assert_true(a->count > 0);
            }
}

static void play_level(int level, bool gathers)
{
    for (int r = 0; r < p.count; r++) { /* all send what they have now */
        const tow__halving *s = &p.halvings[r];
        for (size_t i = 0; i < s->n; i++) {
            const tow__transfer *t = &s->transfers[i];
            const int from = gathers ? t->to : t->from, to = gathers ? t->from : t->to;
            if (t->level == level && s->leaves[to].rank == r)
                memcpy(p.arrived[to] + t->offset, p.leaves[from] + t->offset, (size_t)t->count * sizeof(float));
        }
    }
    for (int r = 0; r < p.count; r++) {
        const tow__halving *s = &p.halvings[r];
        for (size_t i = 0; i < s->n; i++) {
            const tow__transfer *t = &s->transfers[i];
            const int to = gathers ? t->from : t->to;
            if (t->level != level || s->leaves[to].rank != r) continue;
            float *own = p.leaves[to] + t->offset, *other = p.arrived[to] + t->offset;
            if (gathers)
                memcpy(own, other, (size_t)t->count * sizeof(float));
            else
                tow__add_elements(TOW_F32, own, other, t->from < t->to, t->count);
        }
    }
}

/* A sum whose shares are then gathered in all leaves. */
static void play(void)
{
    for (int r = 0; r < p.count; r++)
        assert_int_equal(tow__halving_create(ctx, r, p.count, p.row_groups, p.first_group, p.shares, &p.halvings[r]),
                         TOW_OK);
    const tow__halving *s = &p.halvings[0];
    for (int leaf = 0; leaf < s->n_leaves; leaf++)
        for (int64_t i = 0; i < p.n; i++) p.leaves[leaf][i] = tree(s->leaves[leaf].begin, s->leaves[leaf].end, i);
    for (int level = TOW__TREE_LEVELS - 1; level >= 0; level--) {
        check_pairs(level);
        play_level(level, false);
    }
    for (int r = 0; r < p.count; r++)
        for (int64_t i = p.shares[r].offset; i < p.shares[r].offset + p.shares[r].count; i++)
            if (p.leaves[p.halvings[r].own][i] != tree(0, p.row_groups, i))
                fail_msg("%d ranks, %d groups: element %d of rank %d", p.count, p.row_groups, (int)i, r);
    for (int level = 0; level < TOW__TREE_LEVELS; level++) play_level(level, true);
    for (int leaf = 0; leaf < s->n_leaves; leaf++)
        for (int64_t i = 0; i < p.n; i++) assert_true(p.leaves[leaf][i] == tree(0, p.row_groups, i));
}

static void stop(void)
{
    for (int r = 0; r < p.count; r++) tow__halving_free(&p.halvings[r]);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void sums_are_the_tree(void **state)
{
    static const int64_t sizes[] = {0, 1, 5, 16, 33, 700};
    (void)state;
    for (p.count = 1; p.count <= MOST_RANKS; p.count++)
        for (p.row_groups = 1; p.row_groups <= 64; p.row_groups *= 2)
            for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
                if (!tow__row_groups_valid(p.count, p.row_groups)) continue;
                p.n = sizes[k];
                tow__row_groups(p.count, p.row_groups, p.first_group);
                tow__shares(p.count, p.n, 0, p.shares);
                play();
                for (int r = 0; r < p.count; r++) assert_int_equal(p.halvings[r].n_own, 1);
                stop();
            }
}

/* Ranks own any neighbouring groups, and any shares that cover the array. */
static void any_groups_and_shares(void **state)
{
    (void)state;
    for (int trial = 0; trial < 150; trial++) {
        p.count = 1 + (int)draw(9);
        p.row_groups = 16 << draw(2);
        p.n = (int64_t)draw(MOST_ELEMENTS);
        p.first_group[0] = 0;
        int64_t offset = 0;
        for (int r = 0; r < p.count; r++) {
            const int most = p.row_groups - p.first_group[r] - (p.count - 1 - r);
            p.first_group[r + 1] = r == p.count - 1 ? p.row_groups : p.first_group[r] + 1 + (int)draw((uint64_t)most);
            const int64_t count = r == p.count - 1 ? p.n - offset : (int64_t)draw((uint64_t)(p.n - offset) + 1);
            p.shares[r] = (tow__range_of){offset, count};
            offset += count;
        }
        play();
        stop();
    }
}

/* For a power of two, a rank meets log2 others, each in one message to and one from it, and sends what a ring does. */
static void traffic(void **state)
{
    (void)state;
    for (p.count = 2; p.count <= 16; p.count *= 2) {
        p.row_groups = 16;
        p.n = 512;
        tow__row_groups(p.count, p.row_groups, p.first_group);
        tow__shares(p.count, p.n, 0, p.shares);
        play();
        for (int r = 0; r < p.count; r++) {
            const tow__halving *s = &p.halvings[r];
            int64_t sent = 0;
            int levels = 0;
            while (1 << levels < p.count) levels++;
            assert_int_equal(s->n, 2 * (size_t)levels);
            for (size_t i = 0; i < s->n; i++)
                if (s->leaves[s->transfers[i].from].rank == r) sent += s->transfers[i].count;
            assert_int_equal(sent, p.n - p.n / p.count);
            /* The first exchange is with the neighbour. */
            const tow__transfer *first = &s->transfers[0];
            assert_int_equal(first->from ^ first->to, 1);
        }
        stop();
    }
}

static void rows(void **state)
{
    static const int expected[4] = {0, 4, 6, 8}; /* three ranks, eight groups */
    (void)state;
    int begin = -1, end = -1, first[MOST_RANKS + 1];
    for (int r = 0; r < 3; r++) {
        assert_int_equal(tow_group_rows(r, 3, 8, &begin, &end), TOW_OK);
        assert_int_equal(begin, expected[r]);
        assert_int_equal(end, expected[r + 1]);
    }
    for (int count = 1; count <= MOST_RANKS; count++) {
        tow__row_groups(count, 64, first);
        for (int r = 0; r < count; r++) {
            assert_int_equal(tow_group_rows(r, count, 64, &begin, &end), TOW_OK);
            assert_int_equal(begin, first[r]);
            assert_int_equal(end, first[r + 1]);
        }
    }
    static const int wrong[][3] = {{0, 1, 3}, {0, 1, 0}, {0, 3, 2}, {3, 3, 8}, {-1, 3, 8}, {0, 0, 8}, {0, 1, 1 << 17}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(tow_group_rows(wrong[i][0], wrong[i][1], wrong[i][2], &begin, &end), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_group_rows(0, 1, 1, NULL, &end), TOW_INVALID_ARGUMENT);
}

static void shares(void **state)
{
    static const int64_t sizes[] = {0, 1, 15, 16, 17, 1000, 1 << 20, INT64_MAX / 16};
    (void)state;
    for (int count = 1; count <= MOST_RANKS; count++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            int64_t total = 0, least = INT64_MAX, most = 0, offset = 0, length = 0;
            bool begins_at_0 = sizes[k] == 0;
            for (int r = 0; r < count; r++) {
                assert_int_equal(tow_group_share(r, count, sizes[k], &offset, &length), TOW_OK);
                assert_true(offset >= 0 && length >= 0 && offset + length <= sizes[k]);
                begins_at_0 |= offset == 0;
                total += length;
                least = length < least ? length : least;
                most = length > most ? length : most;
            }
            assert_true(begins_at_0 && total == sizes[k]);
            assert_true(most - least < 32 || most - least < sizes[k] / 2048);
        }
    int64_t offset = 0, length = 0;
    assert_int_equal(tow_group_share(2, 2, 5, &offset, &length), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_group_share(0, 2, -5, &offset, &length), TOW_INVALID_ARGUMENT);
}

/* Elements that one addition of the type decides. */
static void additions(void **state)
{
    (void)state;
    float sum[3] = {1.5F, 1e8F, -0.0F};
    const float other[3] = {2.25F, 1, -0.0F};
    tow__add_elements(TOW_F32, sum, other, false, 3);
    assert_true(sum[0] == 3.75F && sum[1] == 1e8F);
    assert_true(tow__bits_of_f32(sum[2]) == 0x80000000U);
    tow__add_elements(TOW_F32, sum, other, true, 1);
    assert_true(sum[0] == 6);
    double d = 0.5;
    tow__add_elements(TOW_F64, &d, &(double){0.25}, true, 1);
    assert_true(d == 0.75);
    uint16_t small = 0x3B80; /* bf16: 1 and 2^-8, half a unit in the last place: to even */
    tow__add_elements(TOW_BF16, &small, &(uint16_t){0x3F80}, false, 1);
    assert_int_equal(small, 0x3F80);
    uint16_t one = 0x3C00; /* f16 */
    tow__add_elements(TOW_F16, &one, &(uint16_t){0x4000}, false, 1);
    assert_int_equal(one, 0x4200);
    int8_t i = 127;
    tow__add_elements(TOW_I8, &i, &(int8_t){1}, false, 1);
    assert_int_equal(i, -128);
    int32_t k = INT32_MAX;
    tow__add_elements(TOW_I32, &k, &(int32_t){2}, true, 1);
    assert_int_equal(k, INT32_MIN + 1);
    uint64_t u = UINT64_MAX;
    tow__add_elements(TOW_U64, &u, &(uint64_t){3}, false, 1);
    assert_int_equal(u, 2);
    tow__add_elements(TOW_F32, NULL, NULL, false, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_are_the_tree),
                                       cmocka_unit_test(any_groups_and_shares),
                                       cmocka_unit_test(traffic),
                                       cmocka_unit_test(rows),
                                       cmocka_unit_test(shares),
                                       cmocka_unit_test(additions)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
