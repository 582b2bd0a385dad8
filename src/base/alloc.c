/* Allocation through the context's allocator.
 *
 * Every size that reaches the allocator is rounded up (16 bytes, or 64 for aligned memory), and the same rounded size
 * is given back when memory is resized or freed, so that an allocator may rely on it. Sizes are checked for overflow
 * here and nowhere else. */
#include <sys/mman.h>

#include "src/base/base.h"

enum {
    HUGE_PAGE = 2 << 20
};

static bool rounded_bytes(size_t count, size_t size, size_t unit, size_t *bytes)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total) || total > SIZE_MAX / 2) return false;
    *bytes = total == 0 ? unit : (total + unit - 1) / unit * unit;
    return true;
}

static void *out_of_memory(tow_context *ctx, size_t count, size_t size)
{
    if (size <= 1)
        tow__fail(ctx, TOW_OUT_OF_MEMORY, "out of memory: %zu bytes are not available", count);
    else
        tow__fail(ctx, TOW_OUT_OF_MEMORY, "out of memory: %zu x %zu bytes are not available", count, size);
    return NULL;
}

/* Large blocks ask for huge pages before anybody touches them: fewer faults, fewer TLB misses. Only a hint. */
static void advise(char *memory, size_t bytes)
{
    size_t skip = (HUGE_PAGE - (uintptr_t)memory % HUGE_PAGE) % HUGE_PAGE;
    if (bytes >= 2 * HUGE_PAGE) (void)madvise(memory + skip, bytes - skip, MADV_HUGEPAGE);
}

static void *allocate(tow_context *ctx, size_t count, size_t size, size_t unit, bool zero)
{
    size_t bytes;
    if (!rounded_bytes(count, size, unit, &bytes)) return out_of_memory(ctx, count, size);
    void *memory = ctx->allocator.resize(NULL, 0, bytes, ctx->allocator.user);
    if (!memory) return out_of_memory(ctx, count, size);
    advise(memory, bytes);
    return zero ? memset(memory, 0, bytes) : memory;
}

static void give_back(tow_context *ctx, void *pointer, size_t count, size_t size, size_t unit)
{
    size_t bytes;
    if (pointer && rounded_bytes(count, size, unit, &bytes))
        ctx->allocator.resize(pointer, bytes, 0, ctx->allocator.user);
}

void *tow__alloc(tow_context *ctx, size_t count, size_t size) { return allocate(ctx, count, size, 16, true); }

void tow__free(tow_context *ctx, void *pointer, size_t count, size_t size) { give_back(ctx, pointer, count, size, 16); }

void *tow__alloc_aligned(tow_context *ctx, size_t bytes) { return allocate(ctx, bytes, 1, 64, true); }

void *tow__alloc_raw(tow_context *ctx, size_t bytes) { return allocate(ctx, bytes, 1, 64, false); }

void tow__free_aligned(tow_context *ctx, void *pointer, size_t bytes) { give_back(ctx, pointer, bytes, 1, 64); }

/* On failure the old block stays as it was. New elements are zero. */
void *tow__grow(tow_context *ctx, void *pointer, size_t old_count, size_t new_count, size_t size)
{
    if (!pointer) return tow__alloc(ctx, new_count, size);
    size_t old_bytes, new_bytes;
    if (!rounded_bytes(old_count, size, 16, &old_bytes) || !rounded_bytes(new_count, size, 16, &new_bytes))
        return out_of_memory(ctx, new_count, size);
    char *memory = pointer;
    if (old_bytes != new_bytes) {
        memory = ctx->allocator.resize(pointer, old_bytes, new_bytes, ctx->allocator.user);
        if (!memory) return out_of_memory(ctx, new_count, size);
    }
    if (new_count > old_count) memset(memory + old_count * size, 0, new_bytes - old_count * size);
    return memory;
}
