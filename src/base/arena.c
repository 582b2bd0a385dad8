/* Arenas: blocks of growing size, filled from the front and freed together. Memory is zeroed because blocks are.
 *
 * With the address sanitizer, what nobody asked for may not be touched: there is a gap behind each piece. */
#include "src/base/base.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define SANITIZED
#endif

#if defined(SANITIZED)
#include <sanitizer/asan_interface.h>
enum {
    GAP = 16
};
static void hide(const void *memory, size_t bytes) { ASAN_POISON_MEMORY_REGION(memory, bytes); }
static void show(const void *memory, size_t bytes) { ASAN_UNPOISON_MEMORY_REGION(memory, bytes); }
#else
enum {
    GAP = 0
};
static void hide(const void *memory, size_t bytes) { (void)memory, (void)bytes; }
static void show(const void *memory, size_t bytes) { (void)memory, (void)bytes; }
#endif

/*   head -> [ block | used ... free ] -> [ older block ] -> ...  */
struct tow__arena_block {
    tow__arena_block *next;
    size_t size, used; /* bytes after the header */
    size_t unused;     /* keeps the data 16-byte-aligned */
};

enum {
    FIRST_BLOCK = 1024 - sizeof(tow__arena_block),
    LARGEST_BLOCK = 64 * 1024 - sizeof(tow__arena_block)
};

void tow__arena_init(tow__arena *arena, tow_context *ctx) { *arena = (tow__arena){.ctx = ctx}; }

void tow__arena_free(tow__arena *arena)
{
    while (arena->head) {
        tow__arena_block *block = arena->head;
        arena->head = block->next;
        show(block + 1, block->size);
        tow__free(arena->ctx, block, 1, sizeof *block + block->size);
    }
}

void tow__arena_drop(tow__arena *arena)
{
    tow_context *ctx = arena->ctx;
    tow__arena_free(arena);
    tow__free(ctx, arena, 1, sizeof *arena);
}

static bool add_block(tow__arena *arena, size_t bytes)
{
    size_t size = arena->head ? 2 * arena->head->size : FIRST_BLOCK;
    if (size > LARGEST_BLOCK) size = LARGEST_BLOCK;
    if (size < bytes) size = bytes;
    tow__arena_block *block = tow__alloc(arena->ctx, 1, sizeof *block + size);
    if (!block) return false;
    *block = (tow__arena_block){.next = arena->head, .size = size};
    hide(block + 1, size);
    arena->head = block;
    return true;
}

void *tow__arena_alloc(tow__arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 4) {
        tow__fail(arena->ctx, TOW_OUT_OF_MEMORY, "out of memory: %zu x %zu bytes are too many", count, size);
        return NULL;
    }
    size_t taken = (bytes + 15) / 16 * 16 + GAP;
    tow__arena_block *block = arena->head;
    if (!block || block->size - block->used < taken) {
        if (!add_block(arena, taken)) return NULL;
        block = arena->head;
    }
    void *memory = (char *)(block + 1) + block->used;
    show(memory, bytes);
    block->used += taken;
    return memory;
}

void *tow__arena_copy(tow__arena *arena, const void *data, size_t count, size_t size)
{
    void *memory = tow__arena_alloc(arena, count, size);
    if (memory && count > 0 && size > 0) memcpy(memory, data, count * size);
    return memory;
}

const char *tow__arena_string(tow__arena *arena, const char *text)
{
    return text ? tow__arena_copy(arena, text, strlen(text) + 1, 1) : NULL;
}
