/* Fuzz target: bytes as a .npz file. The arrays that are read take no more than deflate can have packed. */
#include "tests/fuzz/fuzz.h"

enum {
    DEFLATE_RATIO = 1032
};

int fuzz_target(const uint8_t *data, size_t size)
{
    tow_context *ctx = fuzz_context();
    tow_tensors *tensors = NULL;
    fuzz_file(ctx, data, size);
    const bool succeeds = fuzz_succeeds(ctx, tow_npz_read(ctx, "input", &tensors));
    if (succeeds != (tensors != NULL)) fuzz_fail("a status that does not agree with the tensors");
    size_t bytes = 0;
    for (size_t i = 0; succeeds && i < tow_tensors_count(tensors); i++) {
        const tow_array *array = tow_tensors_at(tensors, i);
        if (!array) { /* of a type that Tow does not read, which is an error of this member alone */
            if (tow_context_status(ctx) != TOW_UNSUPPORTED) fuzz_fail("a missing tensor without its reason");
            if (tow_tensors_type(tensors, i).rank != -1) fuzz_fail("a tensor that cannot be read has a type");
            continue;
        }
        bytes += tow_type_bytes(tow_array_type(array));
        if (tow_tensors_find(tensors, tow_tensors_name(tensors, i)) != array)
            fuzz_fail("a tensor is not found by its name");
    }
    if (bytes > (size + 1) * DEFLATE_RATIO) fuzz_fail("%zu bytes of a file of %zu", bytes, size);
    tow_tensors_free(tensors);
    fuzz_end(ctx);
    return 0;
}
