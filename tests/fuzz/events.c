/* Fuzz target: bytes as a file of events, or, behind a first byte that is odd, as the data of one record with true
 * checksums. */
#include "src/log/events.h"
#include "tests/fuzz/fuzz.h"
#include "tow/log.h"

static tow_status count(const tow_log_entry *entry, void *user)
{
    if (!entry->name) fuzz_fail("a number without a name");
    return ++*(size_t *)user > 0 ? TOW_OK : TOW_UNSUPPORTED;
}

int fuzz_target(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    tow_context *ctx = fuzz_context();
    size_t numbers = 0;
    tow__bytes b;
    tow__bytes_init(&b, ctx);
    if (data[0] % 2 == 1) {
        unsigned char length[8];
        for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)(size - 1) >> 8 * i);
        tow__bytes_add(&b, length, sizeof length);
        tow__bytes_add_little(&b, tow__masked_crc32c(length, sizeof length), 4);
        tow__bytes_add(&b, data + 1, size - 1);
        tow__bytes_add_little(&b, tow__masked_crc32c(data + 1, size - 1), 4);
    } else {
        tow__bytes_add(&b, data + 1, size - 1);
    }
    fuzz_file(ctx, b.data, b.size);
    (void)fuzz_succeeds(ctx, tow_events_read(ctx, "input", count, &numbers));
    if (numbers > size) fuzz_fail("%zu numbers of %zu bytes", numbers, size);
    tow__bytes_free(&b);
    fuzz_end(ctx);
    return 0;
}
