/* Contexts: the allocator, the number of threads, and the text of the last error. */
#include <stdio.h>
#include <stdlib.h>

#include "src/base/base.h"
#include "src/base/team.h"
#include "src/kernels/gemm.h"

/* ---- the allocator of the C library ---------------------------------------------------------------------------- */

/* Blocks whose sizes are multiples of 64 are aligned to 64; realloc does not keep that, so such blocks are copied. */
static void *library_resize(void *user, void *pointer, size_t old_size, size_t size)
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

/* What is said of engines, or NULL. */
static const char *engine_name(const tow_context_options *options)
{
    if (options && options->engine) return options->engine;
    const char *name = options && options->portable_bits ? NULL : getenv("TOW_ENGINE");
    return name && *name ? name : NULL;
}

static size_t refuse_engine(const char *name, bool option, char *text, size_t size)
{
    char names[128] = "";
    for (int i = 0; tow__gemm_at(i); i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s\"%s\"", i ? ", " : "", tow__gemm_at(i)->name);
    }
    int length = snprintf(text, size,
                          "%s: expected an engine of this build, one of %s, or, with minus signs and commas, those to "
                          "leave out, which cannot be \"reference\"; found \"%s\"",
                          option ? "option engine" : "environment variable TOW_ENGINE", names, name);
    return length < 0 ? 0 : (size_t)length;
}

size_t tow_context_options_check(const tow_context_options *options, char *text, size_t size)
{
    const char *name = engine_name(options);
    int length = 0;
    if (size > 0) text[0] = '\0';
    if (name && !tow__gemm_read_choice(name, &(tow__gemm_choice){0}))
        return refuse_engine(name, options && options->engine, text, size);
    if (options && options->threads < 0)
        length = snprintf(text, size, "option threads: expected 0 or more, found %d", options->threads);
    else if (options && options->portable_bits && name && strcmp(name, "own") != 0)
        length = snprintf(text, size,
                          "option engine: expected \"own\" or NULL together with portable_bits, found \"%s\"", name);
    return length < 0 ? 0 : (size_t)length;
}

tow_status tow_context_create(const tow_context_options *options, tow_context **context)
{
    *context = NULL;
    tow_allocator allocator = {.resize = library_resize};
    if (options && options->allocator.resize) allocator = options->allocator;
    int threads = options ? options->threads : 0;
    if (tow_context_options_check(options, NULL, 0) > 0) return TOW_INVALID_ARGUMENT;
    if (threads == 0) threads = tow__cpu_count();
    tow_context *ctx = allocator.resize(allocator.user, NULL, 0, CONTEXT_BYTES);
    if (!ctx) return TOW_OUT_OF_MEMORY;
    memset(ctx, 0, sizeof *ctx);
    ctx->allocator = allocator;
    ctx->threads = threads < 1 ? 1 : threads;
    if (engine_name(options)) (void)tow__gemm_read_choice(engine_name(options), &ctx->products);
    ctx->products.portable = options && options->portable_bits;
    ctx->products.matrix_unit = tow__gemm_amx_usable();
    *context = ctx;
    return TOW_OK;
}

void tow_context_destroy(tow_context *context)
{
    if (!context) return;
    tow_allocator allocator = context->allocator;
    tow__crew_free(context, context->crew);
    allocator.resize(allocator.user, context, CONTEXT_BYTES, 0);
}

/* ---- errors ---------------------------------------------------------------------------------------------------- */

const char *tow_context_error(const tow_context *context) { return context->error; }
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

tow_status tow__fail(tow_context *ctx, tow_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tow__fail_v(ctx, status, format, args);
    va_end(args);
    return status;
}

/* ---- description ----------------------------------------------------------------------------------------------- */

int tow_context_threads(const tow_context *context) { return tow__team_size(context->threads); }

#if defined(__x86_64__)
static void cpu_features(char *text, size_t size)
{
    __builtin_cpu_init();
    snprintf(text, size, "x86-64%s%s%s%s", __builtin_cpu_supports("avx2") ? " avx2" : "",
             __builtin_cpu_supports("fma") ? " fma" : "", tow__has_avx512() ? " avx512f" : "",
             tow__has_avx512() && __builtin_cpu_supports("avx512vnni") ? " avx512vnni" : "");
}
#else
static void cpu_features(char *text, size_t size) { snprintf(text, size, "generic"); }
#endif

size_t tow_context_describe(const tow_context *context, char *text, size_t size)
{
    char features[128], products[256];
    cpu_features(features, sizeof features);
    tow__gemm_describe(&context->products, products, sizeof products);
    int length = snprintf(text, size, "cpu: %s, %d CPUs\nthreads: %d\nproducts: %s\n", features, tow__cpu_count(),
                          tow_context_threads(context), products);
    return length < 0 ? 0 : (size_t)length;
}
