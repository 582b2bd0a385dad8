/* Contexts as the caller makes them: the options, which say what computes products, and the description. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/base.h"
#include "src/base/clones.h"
#include "src/base/options.h"
#include "src/kernels/machine_rates.h"
#include "src/kernels/products/gemm.h"
#include "src/kernels/products/gemm_bf16.h"

/* The engine that the options name, or NULL. */
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

/* TOW_MACHINE, where it says no machine; else NULL. */
static const char *wrong_machine(void)
{
    const char *text = getenv("TOW_MACHINE");
    return text && *text && !tow__machine_read(text, &(tow__machine){.threads = 0}) ? text : NULL;
}

static size_t refuse_machine(const char *found, char *text, size_t size)
{
    int length = snprintf(
        text, size,
        "environment variable TOW_MACHINE: expected KEY=NUMBER,... with whole numbers and keys l1, l2, l3, vector, "
        "threads, f32, f64, functions, l1_rate, l2_rate, l3_rate, memory_rate, shared_rate, meeting, overhead, for "
        "instance \"l1=32K,l2=512K,l3=32M,vector=32\"; found \"%s\"",
        found);
    return length < 0 ? 0 : (size_t)length;
}

/* TOW_INSTRUCTIONS, where it says neither of the two; else NULL. */
static const char *wrong_instructions(void)
{
    const char *text = getenv("TOW_INSTRUCTIONS");
    return text && *text && strcmp(text, "avx2") != 0 && strcmp(text, "avx512") != 0 ? text : NULL;
}

static size_t refuse_instructions(const char *found, char *text, size_t size)
{
    int length = snprintf(text, size,
                          "environment variable TOW_INSTRUCTIONS: expected avx2 or avx512, the widest vectors that "
                          "kernels may use where the processor has them; found \"%s\"",
                          found);
    return length < 0 ? 0 : (size_t)length;
}

/* Why options as this library knows them are refused. */
static size_t check_options(const tow_context_options *options, char *text, size_t size)
{
    const char *name = engine_name(options);
    int length = 0;
    if (name && !tow__gemm_read_choice(name, &(tow__gemm_choice){0}))
        return refuse_engine(name, options->engine, text, size);
    if (wrong_machine()) return refuse_machine(wrong_machine(), text, size);
    if (wrong_instructions()) return refuse_instructions(wrong_instructions(), text, size);
    if (options->threads < 0)
        length = snprintf(text, size, "option threads: expected 0 or more, found %d", options->threads);
    else if (options->portable_bits && name && strcmp(name, "own") != 0)
        length = snprintf(text, size,
                          "option engine: expected \"own\" or NULL together with portable_bits, found \"%s\"", name);
    return length < 0 ? 0 : (size_t)length;
}

/* Writes to `own` what is given, which may be NULL, and to text why that is refused. */
static size_t read_options(const tow_context_options *given, tow_context_options *own, char *text, size_t size)
{
    *own = TOW_CONTEXT_OPTIONS();
    if (size > 0) text[0] = '\0';
    if (given) {
        const tow__struct_kind *kind = TOW__STRUCT_KIND(tow_context_options);
        const size_t fault = tow__options_fault(kind, given, text, size);
        if (fault > 0) return fault;
        tow__options_copy(kind, given, own);
    }
    return check_options(own, text, size);
}

size_t tow_context_options_check(const tow_context_options *options, char *text, size_t size)
{
    tow_context_options own;
    return read_options(options, &own, text, size);
}

tow_status tow_context_create(const tow_context_options *options, tow_context **context)
{
    tow_context_options own;
    char why[sizeof(*context)->error];
    if (!context) return TOW_INVALID_ARGUMENT;
    const bool refused = read_options(options, &own, why, sizeof why) > 0;
    tow__gemm_choice products = {0};
    if (engine_name(&own) && !refused) (void)tow__gemm_read_choice(engine_name(&own), &products);
    products.portable = own.portable_bits;
    products.matrix_unit = tow__gemm_amx_usable();
    products.dots = tow__gemm_bf16_dots_gain();
    tow_status status = tow__context_create(own.allocator.resize ? &own.allocator : NULL, refused ? 0 : own.threads,
                                            &products, sizeof products, context);
    if (status == TOW_OK) (*context)->portable = products.portable, (*context)->verifies = own.verify;
    if (status == TOW_OK && own.scratch_folder) {
        (*context)->scratch_folder = tow__arena_string(&(*context)->trace_memory, own.scratch_folder);
        if (!(*context)->scratch_folder) return TOW_OUT_OF_MEMORY;
    }
    if (status != TOW_OK || !refused) return status;
    return tow__fail(*context, TOW_INVALID_ARGUMENT, "%s", why);
}

/* ---- description ----------------------------------------------------------------------------------------------- */

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

/* The machine that plans reckon with: "given: ...", or with what was measured behind it. */
static void describe_plans(const tow_context *context, char *text, size_t size)
{
    const tow__measured_rates t = tow__machine_rates_here();
    tow__machine m;
    const bool given = tow__machine_given(&m);
    if (!given) m = *tow__machine_here();
    if (m.threads == 0) m.threads = tow_context_thread_count(context);
    if (!given) m.rates = tow__correct_rates(&m, &t);
    size_t used = (size_t)snprintf(text, size, "%s", given ? "given: " : "");
    used += tow__machine_describe_rates(&m, text + used, size - used);
    if (!given && t.memory > 0 && used < size)
        snprintf(text + used, size - used, "; measured: f32 %.0f GFLOP/s, L3 %.0f, memory %.0f GB/s", t.f32 / 1e9,
                 t.l3 / 1e9, t.memory / 1e9);
}

size_t tow_context_describe(const tow_context *context, char *text, size_t size)
{
    char features[128], products[768], machine[256], plans[320];
    describe_plans(context, plans, sizeof plans);
    cpu_features(features, sizeof features);
    tow__gemm_describe(context->products, products, sizeof products);
    tow__gemm_describe_machine(machine, sizeof machine);
    int length = snprintf(text, size, "cpu: %s, %d CPUs\nthreads: %d\nproducts: %s\nmachine: %s\nplans: %s\n", features,
                          tow__cpu_count(), tow_context_thread_count(context), products, machine, plans);
    return length < 0 ? 0 : (size_t)length;
}
