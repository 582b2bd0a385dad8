/* Fuzz target: bytes as a safetensors file, read and mapped. Both ways give the same tensors or the same error. */
#include "tests/fuzz/fuzz.h"

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

int fuzz_target(const uint8_t *data, size_t size)
{
    tow_context *ctx = fuzz_context();
    tow_tensors *read = NULL, *mapped = NULL;
    fuzz_file(ctx, data, size);
    const tow_status status = tow_safetensors_read(ctx, "input", &read);
    const bool succeeds = fuzz_succeeds(ctx, status);
    if (tow_safetensors_map(ctx, "input", &mapped) != status) fuzz_fail("read and mapped differ in status");
    if (succeeds) compare(read, mapped);
    tow_tensors_free(read);
    tow_tensors_free(mapped);
    fuzz_end(ctx);
    return 0;
}
