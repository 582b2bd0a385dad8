/* See shared_arena.h. */
#include "src/run/shared_arena.h"

tow_status tow_shared_arena_create(tow_context *context, tow_shared_arena **arena)
{
    if (arena) *arena = NULL;
    if (!context || !arena) return tow__missing(context, __func__, "a context and a place for the arena");
    tow_shared_arena *made = tow__alloc(context, 1, sizeof *made);
    if (!made) return TOW_OUT_OF_MEMORY;
    made->ctx = context;
    made->references = 1;
    *arena = made;
    return TOW_OK;
}

tow_shared_arena *tow__shared_arena_retain(tow_shared_arena *arena)
{
    if (arena) arena->references++;
    return arena;
}

void tow_shared_arena_release(tow_shared_arena *arena)
{
    if (!arena || --arena->references > 0) return;
    tow__free_aligned(arena->ctx, arena->memory, arena->bytes);
    tow__free(arena->ctx, arena, 1, sizeof *arena);
}

size_t tow_shared_arena_bytes(const tow_shared_arena *arena) { return arena ? arena->bytes : 0; }

tow_status tow__shared_arena_reserve(tow_shared_arena *arena, size_t bytes)
{
    if (bytes <= arena->bytes) return TOW_OK;
    if (atomic_load_explicit(&arena->busy, memory_order_relaxed))
        return tow__fail(
            arena->ctx, TOW_INVALID_ARGUMENT,
            "tow_compile: expected a .shared_arena in which no program runs, found one in use; compile the "
            "program before the run, or without the shared arena");
    char *memory = tow__alloc_raw(arena->ctx, bytes); /* every value is written before it is read */
    if (!memory) return TOW_OUT_OF_MEMORY;
    tow__free_aligned(arena->ctx, arena->memory, arena->bytes);
    arena->memory = memory;
    arena->bytes = bytes;
    return TOW_OK;
}
