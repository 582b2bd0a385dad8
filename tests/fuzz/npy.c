/* Fuzz target: bytes as a .npy file, read and mapped. Both ways give the same array or the same error. */
#include "tests/fuzz/fuzz.h"

int fuzz_target(const uint8_t *data, size_t size)
{
    tow_context *ctx = fuzz_context();
    tow_array *read = NULL, *mapped = NULL;
    fuzz_file(ctx, data, size);
    const tow_status status = tow_npy_read(ctx, "input", &read);
    const bool succeeds = fuzz_succeeds(ctx, status);
    if (tow_npy_mmap(ctx, "input", &mapped) != status) fuzz_fail("read and mapped differ in status");
    if (succeeds) {
        const tow_type type = tow_array_type(read);
        if (!tow_type_equal(type, tow_array_type(mapped))) fuzz_fail("read and mapped differ in type");
        if (tow_type_bytes(type) > size) fuzz_fail("%zu bytes of a file of %zu", tow_type_bytes(type), size);
        if (memcmp(tow_array_data(read), tow_array_data(mapped), tow_type_bytes(type)) != 0)
            fuzz_fail("read and mapped differ in data");
    }
    tow_array_release(read);
    tow_array_release(mapped);
    fuzz_end(ctx);
    return 0;
}
