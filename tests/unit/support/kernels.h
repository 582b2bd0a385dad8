/* Helpers of the tests of kernels: operands in many layouts, running a kernel with 1 and with 2 threads, and element
 * access in double precision. */
#ifndef TOW_TESTS_UNIT_KERNELS_H
#define TOW_TESTS_UNIT_KERNELS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/params.h"
#include "src/kernels/kernel.h"
#include "src/kernels/tables.h"
#include "tests/unit/support/elements.h"
#include "tests/unit/support/tried.h"

/* The ways in which an operand lies in memory. */
typedef enum layout {
    ROW_MAJOR,
    COLUMN_MAJOR,
    SPACED,
    REVERSED,
    REPEATED,
    LAYOUTS
} layout;

static void *allocated[256];
static size_t allocations;
static uint64_t random_state = 1;

static inline void *take(size_t bytes)
{
    assert_true(allocations < sizeof allocated / sizeof allocated[0]);
    void *memory = aligned_alloc(64, (bytes + 127) / 64 * 64);
    assert_non_null(memory);
    memset(memory, 0xA5, (bytes + 127) / 64 * 64);
    return allocated[allocations++] = memory;
}

static inline void release_all(void)
{
    while (allocations > 0) free(allocated[--allocations]);
}

static inline uint32_t random_bits(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) ^ (uint32_t)(random_state >> 20);
}
/* A unit in the last place of a float of this magnitude. */
static inline double ulp_of(double magnitude)
{
    int exponent;
    frexp(magnitude, &exponent);
    return ldexp(1, exponent - 24 < -149 ? -149 : exponent - 24);
}

/* In [-1, 1). */
static inline double random_unit(void) { return (double)random_bits() / 2147483648.0 - 1; }

static inline int64_t count_of(const tow__buffer *b)
{
    int64_t count = 1;
    for (int i = 0; i < b->rank; i++) count *= b->dims[i];
    return count;
}

static inline int64_t offset_of_element(const tow__buffer *b, int64_t index)
{
    int64_t offset = 0;
    for (int i = b->rank - 1; i >= 0; i--) {
        offset += index % b->dims[i] * b->strides[i];
        index /= b->dims[i];
    }
    return offset;
}

static inline double get(const tow__buffer *b, int64_t index)
{
    return element_get(b->dtype, b->data, offset_of_element(b, index));
}

static inline void set(const tow__buffer *b, int64_t index, double value)
{
    element_set(b->dtype, b->data, offset_of_element(b, index), value);
}

/* An operand of the given shape whose memory is filled with 0xA5 bytes. REPEATED repeats along axis 0. */
static inline tow__buffer make(tow_dtype dtype, int rank, const int64_t *dims, layout how)
{
    tow__buffer b = {.dtype = dtype, .rank = rank};
    int64_t step = 1, before = 0;
    for (int j = 0; j < rank; j++) {
        int i = how == COLUMN_MAJOR ? j : rank - 1 - j;
        b.dims[i] = dims[i];
        b.strides[i] = how == SPACED ? step * 2 + (j > 0) : step;
        step = (how == SPACED ? b.strides[i] : step) * (dims[i] > 0 ? dims[i] : 1);
    }
    char *memory = take((size_t)(step * 2 + 16) * tow_dtype_size(dtype));
    if (how == REPEATED && rank > 0) b.strides[0] = 0;
    if (how == REVERSED) {
        for (int i = 0; i < rank; i++) {
            if (dims[i] > 0) before += (dims[i] - 1) * b.strides[i];
            b.strides[i] = -b.strides[i];
        }
    }
    b.data = memory + (size_t)before * tow_dtype_size(dtype);
    return b;
}

#define SHAPE(...)                                                                                                     \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) { __VA_ARGS__ }

/* Floats in [-scale, scale), integers in [-9, 9] or [0, 9], bools. */
static inline void fill(const tow__buffer *b, double scale)
{
    int64_t count = count_of(b);
    for (int64_t i = 0; i < count; i++) {
        double value = random_unit() * scale;
        if (b->dtype == TOW_I32) value = (double)(random_bits() % 19) - 9;
        if (b->dtype == TOW_U32) value = (double)(random_bits() % 10);
        if (b->dtype == TOW_BOOL) value = (double)(random_bits() % 2);
        set(b, i, value);
    }
}

static inline tow__buffer random_operand(tow_dtype dtype, int rank, const int64_t *dims, layout how)
{
    tow__buffer b = make(dtype, rank, dims, how);
    fill(&b, 2);
    return b;
}

/* One for all runs of a program: a context for each would start a thread for each, of which emulators free little. */
static tow_context *kernel_context;

static void destroy_kernel_context(void) { tow_context_free(kernel_context); }

static inline tow_context *the_kernel_context(void)
{
    if (!kernel_context) {
        assert_int_equal(tow_context_create(NULL, &kernel_context), TOW_OK);
        atexit(destroy_kernel_context);
    }
    return kernel_context;
}

static inline void run_more(const tow__kernel *kernel, size_t n_in, const tow__buffer *in, size_t n_out,
                            tow__buffer *out, const void *params, const tow__extras *extras, int threads)
{
    tow__team team;
    assert_int_equal(tow__team_create(the_kernel_context(), threads, &team), TOW_OK);
    tow__buffer blank[16];
    assert_true(n_in <= 12 && n_out <= 4);
    /* scratch is asked for before there are addresses */
    if (n_in > 0) memcpy(blank, in, n_in * sizeof *in);
    memcpy(blank + 12, out, n_out * sizeof *out);
    for (int i = 0; i < 16; i++) blank[i].data = NULL;
    tow__kernel_call call = {
        .n_in = n_in, .n_out = n_out, .in = blank, .out = blank + 12, .params = params, .team = &team};
    if (extras != NULL) call.extras = *extras;
    size_t bytes = kernel->scratch != NULL ? kernel->scratch(&call) : 0;
    call.scratch = bytes > 0 ? take(bytes + 64) : NULL;
    call.in = in;
    call.out = out;
    kernel->run(&call);
    /* nothing was written behind the scratch memory */
    for (size_t i = 0; i < 64 && bytes > 0; i++) assert_int_equal(((unsigned char *)call.scratch)[bytes + i], 0xA5);
}

static inline void run_once(const tow__kernel *kernel, size_t n_in, const tow__buffer *in, size_t n_out,
                            tow__buffer *out, const void *params, int threads)
{
    run_more(kernel, n_in, in, n_out, out, params, NULL, threads);
}

/* Runs with 1 and with 2 threads into outputs filled with garbage; the bits must be equal. */
static inline void run_kernel(const tow__kernel *kernel, size_t n_in, const tow__buffer *in, size_t n_out,
                              tow__buffer *out, const void *params)
{
    tow__buffer second[4];
    assert_non_null(kernel);
    for (size_t i = 0; i < n_out; i++) second[i] = make(out[i].dtype, out[i].rank, out[i].dims, ROW_MAJOR);
    run_once(kernel, n_in, in, n_out, out, params, 1);
    run_once(kernel, n_in, in, n_out, second, params, 2);
    for (size_t i = 0; i < n_out; i++) {
        size_t bytes = (size_t)count_of(&out[i]) * tow_dtype_size(out[i].dtype);
        assert_memory_equal(out[i].data, second[i].data, bytes);
        /* nothing was written behind the results */
        for (size_t j = 0; j < 16; j++) assert_int_equal(((unsigned char *)second[i].data)[bytes + j], 0xA5);
    }
}

static inline double epsilon_of(tow_dtype dtype)
{
    return dtype == TOW_F64 ? 2.220446049250313e-16 : 1.1920928955078125e-07;
}

/* |got - want| <= tolerance, or both NaN, or equal infinities. */
static inline void assert_close(double got, double want, double tolerance, const char *what, int64_t index)
{
    if ((isnan(got) && isnan(want)) || got == want) return;
    if (fabs(got - want) <= tolerance) return;
    fail_msg("%s, element %lld: got %.9g, expected %.9g, tolerance %.3g", what, (long long)index, got, want, tolerance);
}

static const tow_dtype all_dtypes[] = {TOW_F32, TOW_F64, TOW_I32, TOW_U32, TOW_BOOL};

static inline bool accepts(const char *name, tow_dtype dtype) { return tow__kernel_find(name, dtype) != NULL; }

/* Rounds to the type; integers wrap (and processors differ in what a number beyond 64 bits becomes). */
static inline double as_type(double x, tow_dtype dtype)
{
    const int64_t wrapped = dtype == TOW_I32 || dtype == TOW_U32 ? (int64_t)fmod(x, 4294967296.0) : 0;
    if (dtype == TOW_F32) return (double)(float)x;
    if (dtype == TOW_I32) return (double)(int32_t)(uint32_t)wrapped;
    if (dtype == TOW_U32) return (double)(uint32_t)wrapped;
    return x;
}

static inline void assert_equal_bits(const tow__buffer *a, const tow__buffer *b, const char *what)
{
    if (memcmp(a->data, b->data, (size_t)count_of(a) * tow_dtype_size(a->dtype)) != 0)
        fail_msg("%s: bits differ", what);
}

#endif
