/* Batches: which rows they hold, in which order, converted and scaled; epochs, splits, shards, resuming; the thread;
 * transforms. Tests loader.c, loader_create.c, order.c, prefetch.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "src/data/order.h"
#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/loaders.h"
#include "tests/unit/support/plain_context.h"
#include "tow/data.h"
#include "tow/random.h"

static void assert_message(const char *part)
{
    const char *text = tow_context_error(ctx);
    if (strstr(text, part) == NULL) fail_msg("expected a message with \"%s\", found \"%s\"", part, text);
}

/* ---- orders ------------------------------------------------------------------------------------------------------ */

static void permutations(void **state)
{
    (void)state;
    for (int64_t n = 1; n < 300; n++) {
        bool seen[300] = {false};
        const tow__order order = tow__order_make(n, 5, (uint64_t)n);
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = tow__order_at(&order, i);
            assert_in_range(at, 0, n - 1);
            assert_false(seen[at]);
            seen[at] = true;
        }
    }
    for (int64_t n = INT64_MAX; n > 1 << 20; n /= 1000) { /* also where no list of them would fit */
        const tow__order order = tow__order_make(n, 1, 2);
        for (int64_t i = 0; i < 100; i++) assert_in_range(tow__order_at(&order, n - 1 - i), 0, n - 1);
    }
}

/* All 24 orders of 4 rows come up equally often: 24,000 seeds give a chi-square of 23 degrees of freedom, of which one
 * in a million exceeds 73. */
static void permutations_are_uniform(void **state)
{
    (void)state;
    int counts[256] = {0};
    for (uint64_t seed = 0; seed < 24000; seed++) {
        const tow__order order = tow__order_make(4, seed, 0);
        int code = 0;
        for (int64_t i = 0; i < 4; i++) code = 4 * code + (int)tow__order_at(&order, i);
        counts[code]++;
    }
    double chi = 0;
    int kinds = 0;
    for (int i = 0; i < 256; i++) {
        kinds += counts[i] > 0;
        if (counts[i] > 0) chi += (counts[i] - 1000.0) * (counts[i] - 1000.0) / 1000;
    }
    assert_int_equal(kinds, 24);
    assert_true(chi < 73);
}

/* ---- rows of epochs ---------------------------------------------------------------------------------------------- */

static void epochs_hold_every_row_once(void **state)
{
    (void)state;
    tow_source *source = pairs(ctx, 23);
    tow_loader *loader =
        loader_of(source, TOW_LOADER_OPTIONS(.batch = 5, .shuffle = true, .keep_last = true, .epochs = 3, .seed = 4));
    uint8_t order[3][32], rows[64];
    assert_int_equal(tow_loader_batch_count(loader), 5);
    assert_int_equal(tow_loader_row_count(loader), 23);
    for (int epoch = 0; epoch < 3; epoch++) {
        bool seen[23] = {false};
        int n = 0;
        for (int b = 0; b < 5; b++) {
            const int64_t found = next_rows(loader, rows);
            assert_int_equal(found, b < 4 ? 5 : 3);
            for (int64_t i = 0; i < found; i++) {
                assert_int_equal(tow_loader_row(loader, (uint64_t)epoch, n), rows[i]);
                assert_false(seen[rows[i]]);
                seen[rows[i]] = true;
                order[epoch][n++] = rows[i];
            }
        }
        assert_int_equal(n, 23);
    }
    assert_memory_not_equal(order[0], order[1], 23);
    assert_memory_not_equal(order[1], order[2], 23);
    for (int i = 0; i < 3; i++) assert_int_equal(next_rows(loader, rows), -1); /* and goes on saying so */
    assert_int_equal(tow_loader_position(loader), 15);
    tow_loader_free(loader);
    loader = loader_of(source, TOW_LOADER_OPTIONS(.batch = 5));
    for (int b = 0; b < 9; b++) { /* in the order of the file, without the last 3, without end */
        assert_int_equal(next_rows(loader, rows), 5);
        for (int i = 0; i < 5; i++) assert_int_equal(rows[i], b % 4 * 5 + i);
    }
    tow_loader_free(loader);
    tow_source_release(source);
}

/* The same batches whatever is made ahead, from wherever one goes on. */
static void position_is_all_there_is(void **state)
{
    (void)state;
    enum {
        BATCHES = 40
    };
    tow_source *source = pairs(ctx, 50);
    uint8_t expected[BATCHES][64] = {{0}}, rows[64];
    tow_loader_options options =
        TOW_LOADER_OPTIONS(.batch = 8, .shuffle = true, .seed = 9, .no_thread = true, .keep_last = true);
    tow_loader *loader = loader_of(source, options);
    for (int i = 0; i < BATCHES; i++) next_rows(loader, expected[i]);
    tow_loader_free(loader);
    options.no_thread = false;
    for (options.prefetch = 0; options.prefetch < 6; options.prefetch++) {
        loader = loader_of(source, options);
        for (int i = 0; i < BATCHES; i++) {
            const int64_t n = next_rows(loader, rows);
            assert_memory_equal(rows, expected[i], (size_t)n);
            assert_int_equal(tow_loader_position(loader), i + 1);
        }
        for (int i = 0; i < BATCHES; i++) { /* jumps, while batches are being made */
            const int to = i * 17 % BATCHES;
            OK(tow_loader_seek(loader, (uint64_t)to));
            const int64_t n = next_rows(loader, rows);
            assert_memory_equal(rows, expected[to], (size_t)n);
        }
        tow_loader_free(loader);
    }
    tow_source_release(source);
}

static void seeking(void **state)
{
    (void)state;
    uint8_t rows[64];
    tow_source *source = pairs(ctx, 10);
    tow_loader *loader = loader_of(source, TOW_LOADER_OPTIONS(.batch = 3, .epochs = 2));
    OK(tow_loader_seek(loader, 6));
    assert_int_equal(next_rows(loader, rows), -1);
    OK(tow_loader_seek(loader, 5));
    assert_int_equal(next_rows(loader, rows), 3);
    assert_int_equal(rows[0], 6);
    assert_int_equal(tow_loader_seek(loader, 7), TOW_INVALID_ARGUMENT);
    assert_message("expected a position from 0 to 6");
    assert_int_equal(tow_loader_seek(loader, UINT64_MAX), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_loader_position(loader), 6);
    tow_loader_free(loader);
    loader = loader_of(source, TOW_LOADER_OPTIONS(.batch = 3, .shuffle = true));
    OK(tow_loader_seek(loader, UINT64_MAX - 1)); /* far epochs cost nothing */
    assert_int_equal(next_rows(loader, rows), 3);
    tow_loader_free(loader);
    tow_source_release(source);
}

static void splits(void **state)
{
    (void)state;
    tow_source *source = pairs(ctx, 101);
    for (int kind = 0; kind < 2; kind++) {
        int seen[101] = {0};
        const double bounds[] = {0, 0.33, 0.8, 1};
        int64_t rows = 0;
        for (int part = 0; part < 3; part++) {
            tow_loader *loader =
                loader_of(source, TOW_LOADER_OPTIONS(.batch = 1, .shuffle = true,
                                                     .split = {bounds[part], bounds[part + 1], 7, kind == 1}));
            const int64_t n = tow_loader_row_count(loader);
            for (int64_t i = 0; i < n; i++) {
                const int64_t row = tow_loader_row(loader, 3, i);
                seen[row]++;
                if (kind == 1) assert_in_range(row, rows, rows + n - 1);
            }
            rows += n;
            tow_loader_free(loader);
        }
        assert_int_equal(rows, 101);
        for (int i = 0; i < 101; i++) assert_int_equal(seen[i], 1);
    }
    tow_source_release(source);
}

/* Ranks have equally many rows, none in common, and together those of a loader with batches as large as all of
 * theirs. */
static void shards(void **state)
{
    (void)state;
    enum {
        RANKS = 3,
        BATCH = 4
    };
    tow_source *source = pairs(ctx, 50);
    uint8_t rows[64];
    tow_loader *whole = loader_of(source, TOW_LOADER_OPTIONS(.batch = RANKS * BATCH, .shuffle = true, .seed = 2)),
               *part[RANKS];
    for (int r = 0; r < RANKS; r++)
        part[r] = loader_of(
            source, TOW_LOADER_OPTIONS(.batch = BATCH, .shuffle = true, .seed = 2, .shard = r, .shards = RANKS));
    for (int b = 0; b < 8; b++) {
        bool seen[50] = {false};
        assert_int_equal(next_rows(whole, rows), RANKS * BATCH);
        for (int i = 0; i < RANKS * BATCH; i++) seen[rows[i]] = true;
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(next_rows(part[r], rows), BATCH);
            for (int i = 0; i < BATCH; i++) {
                assert_true(seen[rows[i]]);
                seen[rows[i]] = false;
            }
        }
    }
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(tow_loader_row_count(part[r]), 16);
        tow_loader_free(part[r]);
    }
    tow_loader_free(whole);
    tow_source_release(source);
}

/* Lane j of a batch goes on where it ended in the batch before; labels are one token ahead. */
static void lanes_of_a_stream(void **state)
{
    (void)state;
    int32_t text[64];
    for (int i = 0; i < 64; i++) text[i] = i;
    tow_array *array;
    tow_source *stream, *windows;
    tow_loader *loader;
    tow_array *const *batch;
    OK(tow_array_from_data(ctx, tow_make_type(TOW_I32, 1, (int64_t[]){64}), text, &array));
    OK(tow_source_array(ctx, array, &stream));
    OK(tow_source_windows(stream, 5, 5, 1, &windows)); /* 12 of them */
    const tow_field fields[] = {{.source = windows, .dtype = TOW_I32},
                                {.source = windows, .dtype = TOW_I32, .ahead = 1}};
    OK(tow_loader_create(
        ctx, &TOW_LOADER_OPTIONS(.fields = fields, .n_fields = 2, .batch = 2, .order = TOW_ORDER_LANES), &loader));
    assert_int_equal(tow_loader_batch_count(loader), 6);
    for (int b = 0; b < 12; b++) {
        OK(tow_loader_next(loader, &batch));
        for (int lane = 0; lane < 2; lane++)
            for (int i = 0; i < 5; i++) {
                const int expected = 30 * lane + b % 6 * 5 + i;
                assert_int_equal(((int32_t *)tow_array_data(batch[0]))[5 * lane + i], expected);
                assert_int_equal(((int32_t *)tow_array_data(batch[1]))[5 * lane + i], expected + 1);
            }
    }
    tow_loader_free(loader);
    tow_field wrong = fields[1];
    wrong.ahead = 2;
    assert_int_equal(tow_loader_create(ctx, &TOW_LOADER_OPTIONS(.fields = &wrong, .n_fields = 1, .batch = 2), &loader),
                     TOW_INVALID_ARGUMENT);
    assert_message("expected .ahead from 0 to 1");
    tow_source_release(windows);
    tow_source_release(stream);
    tow_array_release(array);
}

/* ---- elements ---------------------------------------------------------------------------------------------------- */

static void scaling(void **state)
{
    (void)state;
    tow_source *source = pairs(ctx, 256);
    const double means[] = {100, 3}, deviations[] = {7, 0.3};
    const tow_field fields[] = {
        {.source = source, .divide = 255},
        {.source = source, .dtype = TOW_F64, .n_features = 2, .subtract_each = means, .divide_each = deviations},
        {.source = source, .dtype = TOW_I32, .reshape = true, .rank = 2, .dims = {2, 1}},
        {.source = source, .dtype = TOW_BF16, .subtract = 128}};
    tow_loader *loader;
    tow_array *const *batch;
    OK(tow_loader_create(ctx, &TOW_LOADER_OPTIONS(.fields = fields, .n_fields = 4, .batch = 256), &loader));
    assert_int_equal(tow_loader_array_count(loader), 4);
    assert_true(tow_type_equal(tow_loader_type(loader, 2), tow_make_type(TOW_I32, 3, (int64_t[]){256, 2, 1})));
    OK(tow_loader_next(loader, &batch));
    for (int i = 0; i < 256; i++) {
        assert_true(((float *)tow_array_data(batch[0]))[2 * i] == (float)i / 255.0F); /* as NumPy's x / float32(255) */
        assert_true(((double *)tow_array_data(batch[1]))[2 * i] == (i - 100.0) / 7);
        assert_true(((double *)tow_array_data(batch[1]))[2 * i + 1] == (255 - i - 3.0) / 0.3);
        assert_int_equal(((int32_t *)tow_array_data(batch[2]))[2 * i], i);
    }
    assert_int_equal(((uint16_t *)tow_array_data(batch[3]))[2 * 129], 0x3f80); /* 1 */
    tow_loader_free(loader);
    tow_source_release(source);
}

static void wrong_options(void **state)
{
    (void)state;
    tow_source *source = pairs(ctx, 10), *other = pairs(ctx, 9);
    const double one = 1;
    const tow_field good = {.source = source};
    const struct {
        tow_field fields[2];
        tow_loader_options o;
        tow_status status;
        const char *message;
    } cases[] = {
        {{good}, {.batch = 0}, TOW_INVALID_ARGUMENT, ".batch of at least 1"},
        {{good}, {.batch = 11}, TOW_INVALID_ARGUMENT, "expected at least a batch of 11 rows, found 10 rows"},
        {{good}, {.batch = 1, .shard = 2, .shards = 2}, TOW_INVALID_ARGUMENT, ".shard from 0 to below"},
        {{good}, {.batch = 8, .rank = 2, .ranks = 2, .row_groups = 2}, TOW_INVALID_ARGUMENT, ".rank from 0 to below"},
        {{good}, {.batch = 8, .rank = 1, .row_groups = 2}, TOW_INVALID_ARGUMENT, ".rank from 0 to below"},
        {{good}, {.batch = 8, .ranks = 2}, TOW_INVALID_ARGUMENT, "a power of two from .ranks to 65536, found 0 for 2"},
        {{good}, {.batch = 8, .ranks = 3, .row_groups = 2}, TOW_INVALID_ARGUMENT, "a power of two from .ranks"},
        {{good}, {.batch = 6, .row_groups = 4}, TOW_INVALID_ARGUMENT, "found 4 of 6 rows"},
        {{good}, {.batch = 1, .split = {.low = 0.5, .high = 0.2}}, TOW_INVALID_ARGUMENT, "0 <= low < high <= 1"},
        {{good}, {.batch = 1, .split = {.low = NAN, .high = 1}}, TOW_INVALID_ARGUMENT, "0 <= low < high <= 1"},
        {{good}, {.batch = 1, .epochs = -1}, TOW_INVALID_ARGUMENT, ".epochs"},
        {{good}, {.batch = 1, .epochs = INT64_MAX}, TOW_INVALID_ARGUMENT, "fewer than 2^63 batches"},
        {{good}, {.batch = 1, .prefetch = -1}, TOW_INVALID_ARGUMENT, ".prefetch"},
        {{good}, {.batch = 1, .order = TOW_ORDER_LANES, .shuffle = true}, TOW_INVALID_ARGUMENT, "without .shuffle"},
        {{good}, {.batch = 1, .n_outputs = 1}, TOW_INVALID_ARGUMENT, ".output_types together with .on_batch"},
        {{good, {.source = other}}, {.batch = 1}, TOW_INVALID_ARGUMENT, "found 10 in field 0 and 9 in field 1"},
        {{good, {0}}, {.batch = 1}, TOW_INVALID_ARGUMENT, "field 1: expected a source of this context, found NULL"},
        {{{.source = source, .dtype = (tow_dtype)99}},
         {.batch = 1},
         TOW_INVALID_ARGUMENT,
         "field 0: expected an element type"},
        {{{.source = source, .dtype = TOW_I32, .divide = 2}},
         {.batch = 1},
         TOW_TYPE_MISMATCH,
         "field 0: expected a float type for scaled"},
        {{{.source = source, .n_features = 1, .divide_each = &one}},
         {.batch = 1},
         TOW_INVALID_ARGUMENT,
         "numbers for the 2 elements"},
        {{{.source = source, .reshape = true, .rank = 1, .dims = {3}}},
         {.batch = 1},
         TOW_TYPE_MISMATCH,
         "a shape of 2 elements"},
        {{{.source = source, .ahead = 1}}, {.batch = 1}, TOW_INVALID_ARGUMENT, ".ahead from 0 to 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow_loader_options o = cases[i].o;
        o.size = sizeof o;
        tow_loader *loader;
        o.fields = cases[i].fields;
        o.n_fields = strstr(cases[i].message, "field 1") != NULL ? 2 : 1;
        assert_int_equal(tow_loader_create(ctx, &o, &loader), cases[i].status);
        assert_message(cases[i].message);
        assert_null(loader);
    }
    tow_loader *loader;
    assert_int_equal(tow_loader_create(ctx, &TOW_LOADER_OPTIONS(.batch = 1), &loader), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_loader_create(NULL, NULL, &loader), TOW_INVALID_ARGUMENT);
    tow_loader_free(NULL);
    tow_source_release(NULL);
    tow_source_release(source);
    tow_source_release(other);
}

/* ---- transforms and errors --------------------------------------------------------------------------------------- */

/* Key and first row of each batch as u32[batch, 3]. */
static tow_status note_key(const tow_batch *batch)
{
    const tow_type type = tow_array_type(batch->inputs[0]);
    for (int64_t i = 0; i < type.dims[0]; i++) {
        uint32_t *to = (uint32_t *)tow_array_data(batch->outputs[0]) + 3 * i;
        to[0] = batch->key[0];
        to[1] = batch->key[1];
        to[2] = ((const uint8_t *)tow_array_data(batch->inputs[0]))[2 * i];
    }
    return TOW_OK;
}

static void transforms_make_other_types(void **state)
{
    (void)state;
    tow_source *source = pairs(ctx, 12);
    const tow_type type = tow_make_type(TOW_U32, 2, (int64_t[]){4, 3});
    tow_loader *loader =
        loader_of(source, TOW_LOADER_OPTIONS(.batch = 4, .seed = 11, .shard = 1, .shards = 2, .on_batch = note_key,
                                             .n_outputs = 1, .output_types = &type));
    assert_true(tow_type_equal(tow_loader_type(loader, 0), type));
    for (uint32_t b = 0; b < 5; b++) {
        uint32_t key[2];
        tow_array *const *batch;
        OK(tow_loader_next(loader, &batch));
        tow_random_host_key(11, key);
        tow_random_host_fold_in(key, 1, key);
        tow_random_host_fold_in(key, b, key); /* an epoch is one batch */
        tow_random_host_fold_in(key, 0, key);
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t *found = (const uint32_t *)tow_array_data(batch[0]) + 3 * i;
            assert_true(found[0] == key[0] && found[1] == key[1] && found[2] == 1 + 2 * i);
        }
    }
    tow_loader_free(loader);
    tow_source_release(source);
}

typedef struct faults {
    int64_t row;    /* that cannot be read; -1: none */
    uint64_t batch; /* that the transform refuses */
    int left;       /* so often */
} faults;

static tow_status faulty_row(int64_t row, void *data, char *error, size_t size, void *user)
{
    faults *w = user;
    *(uint8_t *)data = (uint8_t)row;
    ((uint8_t *)data)[1] = (uint8_t)(255 - row);
    if (row != w->row || w->left-- <= 0) return TOW_OK;
    snprintf(error, size, "disk %d", 7);
    return TOW_IO_ERROR;
}

static tow_status faulty_transform(const tow_batch *batch)
{
    faults *w = batch->user;
    if (batch->position != w->batch || w->left-- <= 0) return TOW_OK;
    snprintf(batch->error, batch->error_size, "no");
    return TOW_UNSUPPORTED;
}

/* Errors reach the caller in order, with the number of the batch; the next call tries again. */
static void errors_reach_the_caller(void **state)
{
    (void)state;
    uint8_t rows[64];
    tow_array *const *batch;
    for (int prefetch = 0; prefetch < 4; prefetch++) {
        faults w = {.row = 9, .batch = 5, .left = 2};
        tow_source *source;
        OK(tow_source_function(ctx, 40, tow_make_type(TOW_U8, 1, (int64_t[]){2}), faulty_row, &w, &source));
        tow_loader *loader =
            loader_of(source, TOW_LOADER_OPTIONS(.batch = 4, .prefetch = prefetch, .no_thread = prefetch == 0,
                                                 .on_batch = faulty_transform, .user = &w));
        for (int i = 0; i < 2; i++) assert_int_equal(next_rows(loader, rows), 4);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(tow_loader_next(loader, &batch), TOW_IO_ERROR);
            assert_null(batch);
            assert_message("batch 2: row 9: disk 7");
        }
        w.left = 1; /* no thread runs after an error */
        w.row = -1;
        for (int i = 2; i < 5; i++) {
            assert_int_equal(next_rows(loader, rows), 4);
            assert_int_equal(rows[0], 4 * i);
        }
        assert_int_equal(tow_loader_next(loader, &batch), TOW_UNSUPPORTED);
        assert_message("batch 5: the transform: no");
        assert_int_equal(next_rows(loader, rows), 4);
        assert_int_equal(rows[0], 20);
        tow_loader_free(loader);
        tow_source_release(source);
    }
    tow_source *source = pairs(ctx, 200);
    const tow_field field = {.source = source, .dtype = TOW_I8};
    tow_loader *loader;
    OK(tow_loader_create(ctx, &TOW_LOADER_OPTIONS(.fields = &field, .n_fields = 1, .batch = 1), &loader));
    assert_int_equal(tow_loader_next(loader, &batch), TOW_TYPE_MISMATCH);
    assert_message("expected integers that fit i8, found 255 at element 1 of row 0");
    tow_loader_free(loader);
    tow_source_release(source);
}

/* A loader that is freed while its thread is at work. */
static void freed_early(void **state)
{
    (void)state;
    tow_source *source = pairs(ctx, 200);
    for (int i = 0; i < 50; i++) {
        uint8_t rows[64];
        tow_loader *loader = loader_of(source, TOW_LOADER_OPTIONS(.batch = 8, .prefetch = 1 + i % 7, .shuffle = true));
        for (int j = 0; j < i % 4; j++) next_rows(loader, rows);
        tow_loader_free(loader);
    }
    tow_source_release(source);
}

static void description(void **state)
{
    (void)state;
    char text[256];
    tow_source *source = pairs(ctx, 100);
    tow_loader *loader = loader_of(source, TOW_LOADER_OPTIONS(.batch = 8, .shuffle = true, .seed = 3, .shard = 1,
                                                              .shards = 2, .split = {.low = 0, .high = 0.8}));
    const size_t n = tow_loader_describe(loader, text, sizeof text);
    assert_string_equal(text, "40 rows of 100 (split 0 to 0.8 seed 0), batch 8, shuffled, seed 3, shard 1 of 2");
    assert_int_equal(n, strlen(text));
    assert_int_equal(tow_loader_describe(loader, NULL, 0), n);
    tow_loader_free(loader);
    tow_source_release(source);
}

static void failing_allocations(void **state)
{
    (void)state;
    tow_status status = TOW_OUT_OF_MEMORY;
    const double two[] = {2, 2};
    const tow_type type = tow_make_type(TOW_U32, 2, (int64_t[]){4, 3});
    for (long i = 0; status != TOW_OK; i++) {
        counting c;
        const tow_context_options options = counting_options(&c, -1);
        tow_context *context;
        tow_loader *loader;
        tow_array *const *batch;
        assert_int_equal(tow_context_create(&options, &context), TOW_OK);
        tow_source *source = pairs(context, 10);
        const tow_field fields[] = {{.source = source, .keep_type = true},
                                    {.source = source, .n_features = 2, .divide_each = two}};
        c.fail_at = c.calls + i;
        status = tow_loader_create(context,
                                   &TOW_LOADER_OPTIONS(.fields = fields, .n_fields = 2, .batch = 4,
                                                       .on_batch = note_key, .n_outputs = 1, .output_types = &type),
                                   &loader);
        assert_true(status == TOW_OK ? loader != NULL : status == TOW_OUT_OF_MEMORY && loader == NULL);
        if (status == TOW_OK) {
            c.fail_at = c.calls; /* batches take no memory */
            for (int b = 0; b < 5; b++) assert_int_equal(tow_loader_next(loader, &batch), TOW_OK);
        }
        tow_loader_free(loader);
        tow_source_release(source);
        tow_context_free(context);
        assert_int_equal(c.blocks, 0);
        assert_int_equal(c.wrong_sizes, 0);
        assert_true(i < 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permutations),
        cmocka_unit_test(permutations_are_uniform),
        cmocka_unit_test(epochs_hold_every_row_once),
        cmocka_unit_test(position_is_all_there_is),
        cmocka_unit_test(seeking),
        cmocka_unit_test(splits),
        cmocka_unit_test(shards),
        cmocka_unit_test(lanes_of_a_stream),
        cmocka_unit_test(scaling),
        cmocka_unit_test(wrong_options),
        cmocka_unit_test(transforms_make_other_types),
        cmocka_unit_test(errors_reach_the_caller),
        cmocka_unit_test(freed_early),
        cmocka_unit_test(description),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
