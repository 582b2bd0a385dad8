/* Fuzz target: bytes as a safetensors file, or as the index of a file "shard", read and mapped. Both ways give the same
 * tensors or the same error, but that damaged data of a mapped file are found later. */
#include "tests/fuzz/fuzz.h"

/* A tensor "a" of one f32. */
static const char shard[] = "\x38\0\0\0\0\0\0\0"
                            "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}  "
                            "\0\0\x80\x3f";

static void compare(const tow_tensors *a, const tow_tensors *b)
{
    if (tow_tensors_count(a) != tow_tensors_count(b)) fuzz_fail("read and mapped differ in count");
    for (size_t i = 0; i < tow_tensors_count(a); i++) {
        const tow_array *x = tow_tensors_at(a, i), *y = tow_tensors_at(b, i);
        const tow_type type = tow_array_type(x);
        if (strcmp(tow_tensors_name(a, i), tow_tensors_name(b, i)) != 0) fuzz_fail("read and mapped differ in names");
        if (!tow_type_equal(type, tow_array_type(y))) fuzz_fail("read and mapped differ in types");
        if (memcmp(tow_array_data(x), tow_array_data(y), tow_type_bytes(type)) != 0)
            fuzz_fail("read and mapped differ in data");
        if (tow_tensors_find(a, tow_tensors_name(a, i)) != x) fuzz_fail("a tensor is not found by its name");
    }
}

/* Asks for all tensors; frees them if one is damaged. */
static tow_status touch(tow_context *ctx, tow_tensors **tensors)
{
    tow_status status = TOW_OK;
    for (size_t i = 0; status == TOW_OK && i < tow_tensors_count(*tensors); i++)
        if (!tow_tensors_at(*tensors, i)) status = tow_context_status(ctx);
    if (status == TOW_OK) return TOW_OK;
    tow_tensors_free(*tensors);
    *tensors = NULL;
    return status;
}

int fuzz_target(const uint8_t *data, size_t size)
{
    tow_context *ctx = fuzz_context();
    tow_tensors *read = NULL, *mapped = NULL;
    fuzz_file(ctx, data, size);
    fuzz_other_file("shard", (const uint8_t *)shard, sizeof shard - 1);
    const tow_status status = tow_safetensors_read(ctx, "input", &read);
    const bool succeeds = fuzz_succeeds(ctx, status);
    tow_status later = tow_safetensors_mmap(ctx, "input", &mapped);
    if (later == TOW_OK) later = touch(ctx, &mapped);
    if (later != status) fuzz_fail("read and mapped differ in status");
    if (succeeds) compare(read, mapped);
    tow_tensors_free(read);
    tow_tensors_free(mapped);
    fuzz_end(ctx);
    return 0;
}
