/* The parts that targets of fuzzing share. A target is a function that is given any bytes: libFuzzer calls it (presets
 * fuzz and fuzz-fast), and replay.c calls it with the committed seeds in every build.
 *
 * A target ends the process (fuzz_fail) where a promise of the library is broken. The sanitizers, and libFuzzer's
 * limits on time and memory, find the rest. */
#ifndef TOW_TESTS_FUZZ_H
#define TOW_TESTS_FUZZ_H

#include "src/base/base.h"
#include "tow/tow.h"

/* The target, one for each program. The result is always 0. */
int fuzz_target(const uint8_t *data, size_t size);
/* Calls it, and fails where the processor was busy for too long. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    FUZZ_MOST_BYTES = 64 << 20, /* that a context may hold at once */
    /* Seconds of processor time for one input. The build that users have may take one; without optimization, with
     * sanitizers and on an emulated processor the same work takes up to ten times as long. */
#if defined(NDEBUG) && !defined(FUZZ_EMULATED)
    FUZZ_MOST_SECONDS = 1
#else
    FUZZ_MOST_SECONDS = 10
#endif
};

/* A context with one thread and no matrix unit, so that all machines do the same, on an allocator that fails the target
 * where the context holds more than FUZZ_MOST_BYTES. One at a time. */
tow_context *fuzz_context(void);
/* Destroys it, and fails the target if memory is left. */
void fuzz_end(tow_context *ctx);
/* Bytes that the context holds. */
size_t fuzz_bytes(void);

/* The same without a limit, for mutators: what they hold does not count. */
tow_context *fuzz_mutators_context(void);

/* From here on all paths name this file, which lives in memory, */
void fuzz_file(tow_context *ctx, const uint8_t *data, size_t size);
/* but this one, which names another. */
void fuzz_other_file(const char *path, const uint8_t *data, size_t size);

/* The bytes as a text, which free() frees. A zero byte ends it. */
char *fuzz_text(const uint8_t *data, size_t size);

/* The status of a call that may fail: then with a message, as the library promises. */
bool fuzz_succeeds(const tow_context *ctx, tow_status status);
/* The same for a call that may not fail. */
void fuzz_expect(const tow_context *ctx, tow_status status, const char *what);
__attribute__((format(printf, 1, 2), noreturn)) void fuzz_fail(const char *format, ...);

#endif
