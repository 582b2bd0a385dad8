/* Shared arenas: one arena for programs that never run at once (tow/program.h).
 *
 *   shared arena ── memory ◄── bound ── program A       A has run last, so its calls point into `memory`
 *                       ◄── ....──── program B       bound to older memory, or to none: moves when it runs
 *
 * Nothing lives in an arena between runs, so programs may overwrite each other's, and memory that has become too small
 * is replaced. A program notices when it runs, and moves the base of its arena: some stores, no memory is taken. */
#ifndef TOW_SRC_RUN_SHARED_ARENA_H
#define TOW_SRC_RUN_SHARED_ARENA_H

#include "src/base/base.h"
#include "tow/program.h"

struct tow_shared_arena {
    tow_context *ctx;
    size_t references; /* the caller's and one for each program */
    char *memory;
    size_t bytes;
    atomic_bool busy; /* a program runs in it */
};

/* One reference more; NULL stays NULL. */
tow_shared_arena *tow__shared_arena_retain(tow_shared_arena *arena);
/* Sees to it that there are so many bytes. Errors: TOW_OUT_OF_MEMORY; TOW_INVALID_ARGUMENT while a program runs in it.
 * The memory is as before then. */
tow_status tow__shared_arena_reserve(tow_shared_arena *arena, size_t bytes);

/* The program that runs in it from here on is alone: false if there is one already. */
static inline bool tow__shared_arena_enter(tow_shared_arena *arena)
{
    return !atomic_exchange_explicit(&arena->busy, true, memory_order_acquire);
}
static inline void tow__shared_arena_leave(tow_shared_arena *arena)
{
    atomic_store_explicit(&arena->busy, false, memory_order_release);
}

#endif
