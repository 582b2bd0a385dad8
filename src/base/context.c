/* Contexts: the allocator, the number of threads, and the text of the last error. Options are read in
 * src/kernels/context.c, because engines of products are among them. */
#include <stdio.h>
#include <stdlib.h>

#include "src/base/base.h"
#include "src/base/hash.h"
#include "src/base/team.h"

/* ---- the allocator of the C library ---------------------------------------------------------------------------- */

/* Blocks whose sizes are multiples of 64 are aligned to 64; realloc does not keep that, so such blocks are copied. */
static void *library_resize(void *pointer, size_t old_size, size_t size, void *user)
{
    (void)user;
    if (size == 0) {
        free(pointer);
        return NULL;
    }
    if (old_size % 64 != 0 || size % 64 != 0) return realloc(pointer, size);
    void *memory = aligned_alloc(64, size);
    if (memory && pointer) {
        memcpy(memory, pointer, old_size < size ? old_size : size);
        free(pointer);
    }
    return memory;
}

/* ---- creation -------------------------------------------------------------------------------------------------- */

enum {
    CONTEXT_BYTES = (sizeof(struct tow_context) + 63) / 64 * 64
};

tow_status tow__context_create(const tow_allocator *custom, int threads, const struct tow__gemm_choice *products,
                               size_t products_bytes, tow_context **context)
{
    const size_t bytes = CONTEXT_BYTES + products_bytes;
    tow_allocator allocator = custom ? *custom : (tow_allocator){.resize = library_resize};
    *context = NULL;
    if (threads == 0) threads = tow__cpu_count();
    tow_context *ctx = allocator.resize(NULL, 0, bytes, allocator.user);
    if (!ctx) return TOW_OUT_OF_MEMORY;
    memset(ctx, 0, sizeof *ctx);
    ctx->allocator = allocator;
    ctx->threads = threads < 1 ? 1 : threads;
    ctx->bytes = bytes;
    atomic_init(&ctx->holders, 1);
    atomic_init(&ctx->deadline, INT64_MAX);
    ctx->products = memcpy((char *)ctx + CONTEXT_BYTES, products, products_bytes);
    ctx->hash_seed = tow__hash_seed(ctx);
    tow__arena_init(&ctx->trace_memory, ctx);
    *context = ctx;
    return TOW_OK;
}

void tow__context_hold(tow_context *ctx) { atomic_fetch_add_explicit(&ctx->holders, 1, memory_order_relaxed); }

/* All that other holders did with the context happens before it is freed. */
void tow__context_drop(tow_context *ctx)
{
    if (atomic_fetch_sub_explicit(&ctx->holders, 1, memory_order_acq_rel) > 1) return;
    tow_allocator allocator = ctx->allocator;
    tow__arena_free(&ctx->trace_memory);
    allocator.resize(ctx, ctx->bytes, 0, allocator.user);
}

/* Graphs point to what was traced and defined, so that stays as long as they do. */
void tow_context_free(tow_context *context)
{
    if (!context) return;
    tow__crew_free(context, context->crew);
    context->crew = NULL;
    tow__context_drop(context);
}

/* ---- errors ---------------------------------------------------------------------------------------------------- */

const char *tow_context_error(const tow_context *context) { return context ? context->error : "out of memory"; }

tow_status tow_context_status(const tow_context *context) { return context->status; }

void tow_context_clear_error(tow_context *context)
{
    context->status = TOW_OK;
    context->error[0] = '\0';
}

/* The arguments may point into the old text, so the new one is made beside it. */
tow_status tow__fail_v(tow_context *ctx, tow_status status, const char *format, va_list args)
{
    char text[sizeof ctx->error];
    if (vsnprintf(text, sizeof text, format, args) < 0) text[0] = '\0';
    memcpy(ctx->error, text, strlen(text) + 1);
    ctx->status = status;
    return status;
}

tow_status tow__fail_of_caller(tow_context *ctx, tow_status status, const char *format, va_list args)
{
    if (status == TOW_OK || !tow__status_exists(status)) status = TOW_INVALID_ARGUMENT;
    if (!format || !format[0]) return tow__fail(ctx, status, "an error is reported without a text; give one");
    return tow__fail_v(ctx, status, format, args);
}

tow_status tow__fail(tow_context *ctx, tow_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tow__fail_v(ctx, status, format, args);
    va_end(args);
    return status;
}

tow_status tow__missing(tow_context *ctx, const char *function, const char *expected, ...)
{
    char text[256];
    if (!ctx) return TOW_INVALID_ARGUMENT;
    va_list args;
    va_start(args, expected);
    if (vsnprintf(text, sizeof text, expected, args) < 0) text[0] = '\0';
    va_end(args);
    return tow__fail(ctx, TOW_INVALID_ARGUMENT, "%s: expected %s, found NULL; pass what is missing", function, text);
}

int tow_context_thread_count(const tow_context *context) { return tow__team_size(context->threads); }
