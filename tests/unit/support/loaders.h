/* Loaders of small arrays whose rows can be recognized, for tests of batches. */
#ifndef TOW_TESTS_LOADERS_H
#define TOW_TESTS_LOADERS_H

#include "tests/unit/support/plain_context.h"
#include "tow/data.h"

/* Rows u8[2]: row i is (i, 255 - i). */
static inline tow_source *pairs(tow_context *context, int64_t n)
{
    tow_array *array = NULL;
    tow_source *source = NULL;
    if (tow_array_create(context, tow_make_type(TOW_U8, 2, (int64_t[]){n, 2}), &array) != TOW_OK) return NULL;
    uint8_t *data = tow_array_data(array);
    for (int64_t i = 0; i < n; i++) {
        data[2 * i] = (uint8_t)i;
        data[2 * i + 1] = (uint8_t)(255 - i);
    }
    (void)tow_source_array(context, array, &source);
    tow_array_release(array);
    return source;
}

static inline tow_loader *loader_of(tow_source *source, tow_loader_options options)
{
    const tow_field field = {.source = source, .keep_type = true};
    tow_loader *loader;
    options.fields = &field;
    options.n_fields = 1;
    OK(tow_loader_create(ctx, &options, &loader));
    return loader;
}

/* First elements of the next batch: so many. -1: the end. */
static inline int64_t next_rows(tow_loader *loader, uint8_t rows[64])
{
    tow_array *const *batch;
    OK(tow_loader_next(loader, &batch));
    if (!batch) return -1;
    const tow_type type = tow_array_type(batch[0]);
    const uint8_t *data = tow_array_data(batch[0]);
    for (int64_t i = 0; i < type.dims[0]; i++) {
        rows[i] = data[2 * i];
        assert_int_equal(data[2 * i + 1], 255 - rows[i]);
    }
    return type.dims[0];
}

#endif
