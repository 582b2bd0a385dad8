/* Fuzz target: bytes as a GGUF file, mapped and read. Both ways give the same tensors or the same error, and take
 * memory in proportion to the file. Hyperparameters are read from its metadata. */
#include "tests/fuzz/fuzz.h"

/* Blocks of few bits become up to 7.2 times as large. */
enum {
    DECODED = 8
};

static void compare(const tow_tensors *a, const tow_tensors *b)
{
    if (tow_tensors_count(a) != tow_tensors_count(b)) fuzz_fail("read and mapped differ in count");
    for (size_t i = 0; i < tow_tensors_count(a); i++) {
        const tow_array *x = tow_tensors_at(a, i), *y = tow_tensors_at(b, i);
        if (!x || !y) fuzz_fail("a tensor that was read is missing");
        const tow_type type = tow_array_type(x);
        if (strcmp(tow_tensors_name(a, i), tow_tensors_name(b, i)) != 0) fuzz_fail("read and mapped differ in names");
        if (!tow_type_equal(type, tow_array_type(y))) fuzz_fail("read and mapped differ in types");
        if (memcmp(tow_array_data(x), tow_array_data(y), tow_type_bytes(type)) != 0)
            fuzz_fail("read and mapped differ in data");
        if (tow_tensors_find(a, tow_tensors_name(a, i)) != x) fuzz_fail("a tensor is not found by its name");
    }
}

/* Touches all that metadata point to. */
static size_t sum_of(tow_metadata_value value, int depth)
{
    size_t sum = (size_t)value.integer;
    if (depth > 8) fuzz_fail("arrays in arrays without end");
    if (value.type == TOW_METADATA_STRING) return strlen(value.text);
    for (size_t i = 0; value.type == TOW_METADATA_ARRAY && i < value.count; i++)
        sum += value.element == TOW_METADATA_STRING ? strlen(((const char *const *)value.elements)[i])
               : value.element == TOW_METADATA_ARRAY
                   ? sum_of(((const tow_metadata_value *)value.elements)[i], depth + 1)
                   : ((const unsigned char *)value.elements)[i];
    return sum;
}

static size_t touch_metadata(const tow_tensors *tensors)
{
    size_t sum = 0;
    const char *key;
    for (size_t i = 0; (key = tow_tensors_metadata_key(tensors, i)); i++)
        sum += sum_of(tow_tensors_metadata_value(tensors, key), 0);
    return sum;
}

int fuzz_target(const uint8_t *data, size_t size)
{
    tow_context *ctx = fuzz_context();
    tow_tensors *read = NULL, *mapped = NULL;
    tow_gguf_model model;
    fuzz_file(ctx, data, size);
    const tow_status status = tow_gguf_mmap(ctx, "input", &mapped);
    size_t bytes = 0;
    bool foreign = false;
    if (fuzz_succeeds(ctx, status)) {
        for (size_t i = 0; i < tow_tensors_count(mapped); i++) {
            if (tow_tensors_type(mapped, i).rank == -1)
                foreign = true;
            else
                bytes += tow_type_bytes(tow_tensors_type(mapped, i));
        }
        if (bytes > DECODED * size) fuzz_fail("%zu bytes of a file of %zu", bytes, size);
        if (touch_metadata(mapped) == SIZE_MAX) fuzz_fail("a sum that cannot be");
        fuzz_succeeds(ctx, tow_gguf_model_read(mapped, &model));
    }
    const tow_status also = tow_gguf_read(ctx, "input", &read);
    if (also != (status == TOW_OK && foreign ? TOW_UNSUPPORTED : status)) fuzz_fail("read and mapped differ in status");
    if (also == TOW_OK) compare(read, mapped);
    tow_tensors_free(read);
    tow_tensors_free(mapped);
    fuzz_end(ctx);
    return 0;
}
