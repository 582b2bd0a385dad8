/* Shared inside the library: errors, allocation, arenas, string buffers. Implements nothing that knows graphs. */
#ifndef TOW_SRC_BASE_H
#define TOW_SRC_BASE_H

#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include "src/base/team.h"
#include "tow/base.h"

struct tow__file_calls;
struct tow__spill_calls;
typedef struct tow__arena_block tow__arena_block;
typedef struct tow__arena {
    tow_context *ctx;
    tow__arena_block *head;
} tow__arena;

struct tow_context {
    tow_allocator allocator;
    atomic_size_t holders; /* the caller until it destroys the context, and each array and graph made from it */
    int threads;
    bool portable; /* bits: the option */
    bool verifies; /* gradients that are made compare what they make again: the option, or .verify of what is made */
    const struct tow__gemm_choice *products; /* what computes them (src/kernels/products/gemm.h), behind the context */
    size_t bytes;                            /* of the context and what is behind it */
    tow__crew *crew;                         /* worker threads, NULL until a program has use for them */
    uint32_t traces;                         /* begun so far */
    uint32_t equations;                      /* written so far */
    tow__arena trace_memory;         /* what values point to, also when their traces have ended; and what is defined */
    struct tow_trace *ended;         /* of it, what the next traces take */
    struct tow__definition *defined; /* primitives of users (src/ops/define.c), the last one first */
    struct tow__host *hosts;         /* functions that programs call (src/base/host.h) */
    struct tow_group *groups;        /* of processes, made in it and not freed (src/group/group.h) */
    void (*debug_write)(const char *text, size_t length, void *user); /* of debug_print; NULL: standard output */
    void *debug_user;
    atomic_int cancelled;         /* somebody asked (src/base/cancel.h) */
    tow_request requests;         /* begun so far */
    _Atomic(tow_request) request; /* the one at hand; 0: none */
    _Atomic(tow_request) cancelled_request;
    _Atomic(int64_t) deadline; /* of the request at hand, nanoseconds of CLOCK_MONOTONIC; INT64_MAX: none */
    uint64_t hash_seed;        /* of tables (src/base/hash.h) */
    /* Of src/io. NULL: the system's; tests put failing ones here. */
    const struct tow__file_calls *file_calls;
    const struct tow__spill_calls *spill_calls; /* of src/base/spill.c, likewise */
    const char *scratch_folder;                 /* the option, behind trace_memory; NULL: none */
    tow_status status; /* of the last failure; the first one of a trace sticks there */
    char error[2048];
};

/* A context. custom NULL: the C library's allocator; threads 0: as many as there are CPUs; products: so many bytes,
 * copied.
 * Error: TOW_OUT_OF_MEMORY. */
tow_status tow__context_create(const tow_allocator *custom, int threads, const struct tow__gemm_choice *products,
                               size_t products_bytes, tow_context **context);

/* One holder more, from any thread that has one. An object that is freed through a context holds it, so that destroying
 * it first is safe: the last holder frees the memory, through the allocator, which outlives them all. */
void tow__context_hold(tow_context *ctx);
void tow__context_drop(tow_context *ctx);

/* Do gradients that are made from here on compare what they make again? Returns what was before. */
static inline bool tow__verify_gradients(tow_context *ctx, bool on)
{
    const bool before = ctx->verifies;
    ctx->verifies = on;
    return before;
}

/* One of the list in tow/base.h. */
bool tow__status_exists(tow_status status);
/* Sets status and text and returns status, so that `return tow__fail(...)` reads well. */
__attribute__((format(printf, 3, 4))) tow_status tow__fail(tow_context *ctx, tow_status status, const char *format,
                                                           ...);
tow_status tow__fail_v(tow_context *ctx, tow_status status, const char *format, va_list args);
/* The same for functions with which callers report errors of their own: a status that says no error, or that does not
 * exist, is TOW_INVALID_ARGUMENT, and a text that is missing says so. */
tow_status tow__fail_of_caller(tow_context *ctx, tow_status status, const char *format, va_list args);
/* Public functions look once, at their entrance, whether they got the pointers that they need. If not, this is
 * TOW_INVALID_ARGUMENT with "function: expected ..., found NULL"; without a context there is no place for the text. */
__attribute__((format(printf, 3, 4))) tow_status tow__missing(tow_context *ctx, const char *function,
                                                              const char *expected, ...);

/* malloc/realloc/free through the context. NULL (with TOW_OUT_OF_MEMORY set in ctx) on failure or overflow.
 * tow__alloc gives zeroed memory. Sizes are rounded up internally; alignment is 16, or 64 for tow__alloc_aligned. */
void *tow__alloc(tow_context *ctx, size_t count, size_t size);
void *tow__grow(tow_context *ctx, void *pointer, size_t old_count, size_t new_count, size_t size);
void tow__free(tow_context *ctx, void *pointer, size_t count, size_t size);
void *tow__alloc_aligned(tow_context *ctx, size_t bytes); /* 64-byte-aligned, zeroed */
void *tow__alloc_raw(tow_context *ctx, size_t bytes);     /* 64-byte-aligned, as it comes */
void tow__free_aligned(tow_context *ctx, void *pointer, size_t bytes);

/* For helpers of functions that recurse into nested graphs: inlined, their frames would be part of every level's. */
#define TOW__OWN_FRAME __attribute__((noinline))

/* Jump to the cleanup label `done` with `status` set. Needs `tow_status status = TOW_OK;` in scope. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        if ((status = (call)) != TOW_OK) goto done;                                                                    \
    } while (0)

/* ---- arena: memory that is freed as a whole ---------------------------------------------------------------------- */
void tow__arena_init(tow__arena *arena, tow_context *ctx);
void tow__arena_free(tow__arena *arena);
void tow__arena_drop(tow__arena *arena); /* frees an arena that was itself allocated by tow__alloc */
/* Zeroed, 16-byte-aligned; NULL with the error set in ctx. size 0 gives a valid pointer. */
void *tow__arena_alloc(tow__arena *arena, size_t count, size_t size);
void *tow__arena_copy(tow__arena *arena, const void *data, size_t count, size_t size);
const char *tow__arena_string(tow__arena *arena, const char *text); /* NULL stays NULL */

/* ---- string buffer ----------------------------------------------------------------------------------------------- */
/* Grows as needed; after an allocation failure it stays valid and `failed` is set. */
typedef struct tow__string {
    tow_context *ctx;
    char *text; /* NUL-terminated once something was added, else NULL */
    size_t length, capacity;
    bool failed;
} tow__string;

void tow__string_init(tow__string *s, tow_context *ctx);
void tow__string_free(tow__string *s);
__attribute__((format(printf, 2, 3))) void tow__string_add(tow__string *s, const char *format, ...);
void tow__string_add_type(tow__string *s, tow_type type); /* f32[3,4] */
/* "text", with escapes as below. */
void tow__string_add_quoted(tow__string *s, const char *text);
/* Hands the text out like snprintf: copies what fits, returns the full length. */
size_t tow__string_export(const tow__string *s, char *text, size_t size);

/* A character as it stands between quotes: itself, \" \\ or \xHH. */
typedef struct tow__escaped {
    char text[5];
} tow__escaped;
tow__escaped tow__escape(char c);
/* Reads such a character, or \n or \t, from a text that ends with NUL. Returns what stands behind it, or NULL where
 * none of them stands. */
const char *tow__unescape(const char *text, char *c);
/* The escapes that are expected then. */
#define TOW__ESCAPES "one of \\\" \\\\ \\n \\t \\xHH (not \\x00)"

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

/* An array over `bytes` bytes at `data`, a mapping (mmap) that the array owns from now on and unmaps when its last
 * reference goes. Of type bool[bytes], to take views of; on an error the mapping still belongs to the caller. */
tow_status tow__array_of_mapping(tow_context *ctx, void *data, size_t bytes, tow_array **array);
/* An array without memory of its own; tow__array_point lets it stand for memory of somebody else, as an input. */
tow_status tow__array_borrow(tow_context *ctx, tow_type type, tow_array **array);
void tow__array_point(tow_array *array, const void *data);
/* An array of `ctx` and of `type` that shares the storage of `owner`, of any context, from byte `offset` on and keeps
 * it alive. */
tow_status tow__array_view(tow_context *ctx, tow_array *owner, size_t offset, tow_type type, tow_array **view);
/* As tow_array_row, with memory and messages of `ctx`. */
tow_status tow__array_row(tow_context *ctx, tow_array *array, int64_t index, tow_array **row);

tow_context *tow__array_context(const tow_array *array);

/* A type's text in a static-lifetime-free way: tow__type_name(type).text inside one full expression. */
typedef struct tow__type_text {
    char text[160];
} tow__type_text;
tow__type_text tow__type_name(tow_type type);

/* True if type is well-formed (rank, dtype, non-negative dims, size fits). */
bool tow__type_valid(tow_type type);

#endif
