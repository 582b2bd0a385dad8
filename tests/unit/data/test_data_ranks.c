/* Parts of a batch: processes read their own rows of it, and no others. Tests loader.c, loader_create.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "tests/unit/support/loaders.h"
#include "tests/unit/support/plain_context.h"
#include "tow/data.h"
#include "tow/random.h"

static const int rank_counts[] = {1, 2, 3, 4, 8};

enum {
    GROUPS = 8,
    MOST_RANKS = 8
};

/* The rows of the next batch as the ranks read them, one after the other; -1: the end for all of them. */
static int64_t next_of_ranks(tow_loader *const *part, int ranks, uint8_t rows[64])
{
    int64_t n = 0;
    int ended = 0;
    for (int r = 0; r < ranks; r++) {
        const int64_t found = next_rows(part[r], rows + n);
        ended += found < 0;
        if (found > 0) n += found;
        assert_int_equal(tow_loader_position(part[r]), tow_loader_position(part[0]));
    }
    if (ended > 0) assert_int_equal(ended, ranks);
    return ended > 0 ? -1 : n;
}

/* The rows that ranks read of each batch, one after the other, are the batch of one process. The number of ranks
 * changes after every few batches, at the position where the ranks before left off. */
static void read_by_ranks(tow_source *source, tow_loader_options options, uint64_t change_every)
{
    tow_loader *whole = loader_of(source, options), *part[MOST_RANKS] = {NULL};
    char of_whole[200], of_part[200];
    uint8_t rows[64], expected[64];
    size_t next = 0;
    int ranks = 0;
    tow_loader_describe(whole, of_whole, sizeof of_whole);
    for (int64_t n = 0; n >= 0;) {
        const uint64_t position = tow_loader_position(whole);
        if (position % change_every == 0) {
            for (int r = 0; r < ranks; r++) tow_loader_free(part[r]);
            ranks = rank_counts[next++ % 5];
            for (int r = 0; r < ranks; r++) {
                options.rank = r;
                options.ranks = ranks;
                options.row_groups = GROUPS;
                part[r] = loader_of(source, options);
                OK(tow_loader_seek(part[r], position));
                tow_loader_describe(part[r], of_part, sizeof of_part);
                assert_string_equal(of_part, of_whole);
                assert_int_equal(tow_loader_row_count(part[r]), tow_loader_row_count(whole));
                assert_int_equal(tow_loader_batch_count(part[r]), tow_loader_batch_count(whole));
            }
        }
        n = next_rows(whole, expected);
        assert_int_equal(next_of_ranks(part, ranks, rows), n);
        if (n > 0) assert_memory_equal(rows, expected, (size_t)n);
        if (tow_loader_position(whole) >= 40) break; /* without end */
    }
    for (int r = 0; r < ranks; r++) tow_loader_free(part[r]);
    tow_loader_free(whole);
}

static void ranks_read_the_batch_of_one(void **state)
{
    (void)state;
    for (int64_t n = 75; n <= 82; n += 7) { /* a last batch of 11 rows, and one of 2, of which some ranks have none */
        tow_source *source = pairs(ctx, n);
        for (uint64_t change = 1; change <= 7; change += 3) {
            read_by_ranks(source,
                          TOW_LOADER_OPTIONS(.batch = 16, .shuffle = true, .seed = 4, .keep_last = true, .epochs = 3),
                          change);
            read_by_ranks(source, TOW_LOADER_OPTIONS(.batch = 16, .shuffle = true, .seed = 5), change);
            read_by_ranks(source, TOW_LOADER_OPTIONS(.batch = 8, .order = TOW_ORDER_LANES, .epochs = 2), change);
            read_by_ranks(source,
                          TOW_LOADER_OPTIONS(.batch = 8, .keep_last = true, .epochs = 2, .no_thread = true,
                                             .split = {.low = 0.1, .high = 0.7, .seed = 3}),
                          change);
        }
        tow_source_release(source);
    }
}

/* A text of which a process reads only its windows: rows are counted. */
static tow_status count_row(int64_t row, void *data, char *error, size_t error_size, void *user)
{
    int *reads = user;
    (void)error, (void)error_size;
    reads[row]++;
    *(uint8_t *)data = (uint8_t)row;
    return TOW_OK;
}

static void ranks_read_no_more_than_their_rows(void **state)
{
    (void)state;
    int reads[64] = {0};
    tow_source *tokens = NULL, *windows = NULL;
    tow_loader *loader = NULL;
    tow_array *const *batch;
    int64_t first, rows;
    OK(tow_source_function(ctx, 64, tow_make_type(TOW_U8, 0, NULL), count_row, reads, &tokens));
    OK(tow_source_windows(tokens, 2, 2, 1, &windows)); /* tokens 2 i, 2 i + 1, and one more for labels */
    const tow_field fields[] = {{.source = windows, .dtype = TOW_I32},
                                {.source = windows, .dtype = TOW_I32, .ahead = 1}};
    OK(tow_loader_create(ctx,
                         &TOW_LOADER_OPTIONS(.fields = fields, .n_fields = 2, .batch = 8, .no_thread = true, .rank = 1,
                                             .ranks = 3, .row_groups = 8),
                         &loader));
    tow_loader_part(loader, &first, &rows); /* of 8 row groups rank 1 of 3 has 4 and 5 */
    assert_true(first == 4 && rows == 2);
    assert_true(tow_type_equal(tow_loader_type(loader, 1), tow_make_type(TOW_I32, 2, (int64_t[]){2, 2})));
    OK(tow_loader_next(loader, &batch));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(((const int32_t *)tow_array_data(batch[0]))[i], 8 + i);
        assert_int_equal(((const int32_t *)tow_array_data(batch[1]))[i], 9 + i);
    }
    for (int i = 0; i < 64; i++) assert_int_equal(reads[i] > 0, i >= 8 && i <= 12);
    tow_loader_free(loader);
    tow_source_release(windows);
    tow_source_release(tokens);
}

/* Random numbers of a row, drawn with its place in the whole batch. */
static tow_status draw_rows(const tow_batch *batch)
{
    const tow_type type = tow_array_type(batch->inputs[0]);
    uint8_t *data = tow_array_data(batch->inputs[0]);
    for (int64_t i = 0; i < type.dims[0]; i++) {
        uint32_t key[2];
        tow_random_host_fold_in(batch->key, (uint32_t)(batch->first_row + i), key);
        data[2 * i] = (uint8_t)(key[0] + (uint32_t)batch->whole_rows);
        data[2 * i + 1] = (uint8_t)(255 - data[2 * i]);
    }
    return TOW_OK;
}

static void transforms_draw_by_the_row_of_the_batch(void **state)
{
    (void)state;
    tow_source *source = pairs(ctx, 75);
    read_by_ranks(source,
                  TOW_LOADER_OPTIONS(.batch = 16, .shuffle = true, .keep_last = true, .epochs = 2, .seed = 9,
                                     .on_batch = draw_rows),
                  2);
    tow_source_release(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_read_the_batch_of_one),
        cmocka_unit_test(ranks_read_no_more_than_their_rows),
        cmocka_unit_test(transforms_draw_by_the_row_of_the_batch),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
