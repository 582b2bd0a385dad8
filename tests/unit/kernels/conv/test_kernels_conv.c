/* Fast kernels of convolutions against the plain one: in all layouts of operands, with one and two threads, and with
 * the same bits by all instruction sets, for shapes that reach every way of computing one: rows in place and copied,
 * blocks of rows and of columns, phases of a dilated operand, sums over positions, channels.
 * Tests conv*.c, kernels/patches.c, base/window.c. */
#include "tests/unit/support/kernels.h"

#include "src/base/window.h"
#include "src/kernels/products/gemm.h"

typedef struct conv_case {
    const char *dimensions;
    int rank;
    int64_t lhs[5], rhs[5];
    tow__ints strides, low, high, lhs_dilation, rhs_dilation;
    int64_t feature_groups, batch_groups;
} conv_case;

#define LIST(...)                                                                                                      \
    {                                                                                                                  \
        .n = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .v = { __VA_ARGS__ }                                  \
    }
#define IMAGES "NHWC,HWIO->NHWC", 4
#define LINES  "NWC,WIO->NWC", 3

static const conv_case cases[] = {
    {IMAGES, {2, 9, 17, 5}, {3, 3, 5, 37}, .low = LIST(1, 1), .high = LIST(1, 1)},
    {IMAGES, {1, 30, 31, 33}, {3, 3, 33, 66}, .low = LIST(1, 1), .high = LIST(1, 1)},
    {IMAGES, {2, 12, 13, 20}, {3, 3, 20, 32}, .strides = LIST(2, 2), .low = LIST(0, 1), .high = LIST(1, 1)},
    {IMAGES, {2, 24, 25, 40}, {1, 1, 40, 70}},
    {IMAGES, {1, 13, 14, 130}, {2, 2, 130, 30}, .rhs_dilation = LIST(2, 3)},
    {IMAGES, {1, 9, 8, 24}, {3, 3, 24, 20}, .lhs_dilation = LIST(2, 2), .low = LIST(1, 2), .high = LIST(2, 1)},
    {IMAGES,
     {1, 7, 6, 6},
     {4, 5, 6, 9},
     .strides = LIST(2, 3),
     .lhs_dilation = LIST(3, 2),
     .low = LIST(4, 5),
     .high = LIST(2, 3),
     .rhs_dilation = LIST(2, 2)},
    {IMAGES, {1, 9, 9, 4}, {3, 3, 2, 6}, .low = LIST(-1, 2), .high = LIST(1, -2), .feature_groups = 2},
    {IMAGES, {2, 5, 5, 7}, {8, 7, 7, 3}, .low = LIST(2, 2), .high = LIST(2, 2)},
    {IMAGES, {1, 2, 2, 3}, {2, 2, 3, 4}, .low = LIST(5, 5), .high = LIST(5, 5)},
    {LINES, {2, 1000, 8}, {4, 8, 16}, .low = LIST(3)},
    {LINES, {1, 60, 3}, {500, 3, 5}, .low = LIST(400), .high = LIST(100)},
    {LINES, {1, 50, 1}, {900, 1, 2}, .low = LIST(850), .high = LIST(10)},
    {LINES, {2, 40, 70}, {4, 1, 70}, .low = LIST(3), .feature_groups = 70},
    {LINES, {1, 30, 5}, {700, 1, 5}, .low = LIST(690), .high = LIST(10), .lhs_dilation = LIST(2), .feature_groups = 5},
    {IMAGES, {1, 9, 10, 133}, {3, 3, 1, 133}, .low = LIST(1, 1), .high = LIST(1, 1), .feature_groups = 133},
    {IMAGES, {1, 9, 10, 20}, {3, 3, 1, 20}, .strides = LIST(2, 1), .lhs_dilation = LIST(1, 2), .feature_groups = 20},
    /* gradients of kernels */
    {"CHWN,IHWO->HWNC", 4, {2, 9, 10, 70}, {2, 9, 10, 33}, .low = LIST(1, 1), .high = LIST(1, 1)},
    {"CHWN,IHWO->HWNC",
     4,
     {3, 16, 15, 5},
     {3, 8, 8, 40},
     .low = LIST(0, 1),
     .high = LIST(1, 1),
     .rhs_dilation = LIST(2, 2)},
    {"CHWN,IHWO->HWNC", 4, {1, 30, 40, 100}, {1, 30, 40, 8}, .low = LIST(2, 2), .high = LIST(2, 2)},
    {"CHWN,IHWO->HWNC", 4, {2, 9, 10, 70}, {2, 9, 10, 70}, .low = LIST(1, 1), .high = LIST(1, 1), .batch_groups = 70},
    {"CHWN,IHWO->HWNC",
     4,
     {2, 9, 10, 6},
     {2, 4, 5, 6},
     .low = LIST(1, 1),
     .rhs_dilation = LIST(2, 2),
     .batch_groups = 3},
    {"CWN,IWO->WNC", 3, {2, 500, 9}, {2, 500, 9}, .low = LIST(3), .batch_groups = 9},
    {"CWN,IWO->WNC", 3, {2, 500, 40}, {2, 500, 9}, .low = LIST(3)},
    {"CDHWN,IDHWO->DHWNC", 5, {2, 4, 5, 6, 9}, {2, 4, 5, 6, 7}, .low = LIST(1, 1, 1), .high = LIST(1, 1, 1)},
    {"NDHWC,DHWIO->NDHWC", 5, {2, 4, 5, 6, 9}, {2, 3, 3, 9, 7}, .strides = LIST(1, 2, 1), .low = LIST(1, 1, 1)},
    /* features first */
    {"NCHW,OIHW->NCHW", 4, {2, 5, 9, 8}, {7, 5, 3, 3}, .low = LIST(1, 1), .high = LIST(1, 1)},
    {"NCHW,OIHW->NCHW", 4, {2, 6, 9, 8}, {6, 1, 3, 3}, .low = LIST(1, 1), .high = LIST(1, 1), .feature_groups = 6},
    {"NCHW,OIHW->NCHW", 4, {2, 24, 30, 31}, {40, 24, 1, 1}},
    {"NCHW,OIHW->NCHW", 4, {1, 20, 500, 3}, {10, 10, 3, 3}, .low = LIST(1, 1), .high = LIST(1, 1), .feature_groups = 2},
    {"NCHW,IOHW->NCHW",
     4,
     {1, 9, 8, 9},
     {9, 20, 3, 3},
     .lhs_dilation = LIST(2, 2),
     .low = LIST(1, 2),
     .high = LIST(2, 1)},
    {"NCHW,OIHW->NCHW", 4, {1, 3, 2, 600}, {5, 3, 2, 2}, .low = LIST(4, 0), .high = LIST(3, 0)},
    {"NCW,OIW->NCW", 3, {2, 20, 100}, {20, 20, 3}, .low = LIST(2), .rhs_dilation = LIST(2)},
    {"NCDHW,OIDHW->NCDHW", 5, {2, 6, 4, 5, 6}, {9, 6, 2, 3, 3}, .strides = LIST(1, 1, 2), .low = LIST(1, 1, 1)},
    {"NCWH,OIWH->NCWH", 4, {2, 5, 9, 8}, {7, 5, 3, 3}, .low = LIST(1, 1), .high = LIST(1, 1)},
    {"CHWN,IHWO->CHWN", 4, {5, 9, 8, 3}, {5, 3, 3, 12}, .low = LIST(1, 1), .high = LIST(1, 1)},
    {"CNHW,IOHW->NCHW", 4, {5, 2, 9, 8}, {5, 7, 9, 8}, .low = LIST(1, 1), .high = LIST(1, 1)},
    /* narrow, or with short rows of the kernel: gathered */
    {IMAGES, {9, 2, 2, 70}, {3, 3, 70, 150}, .low = LIST(1, 1), .high = LIST(1, 1)},
    {IMAGES, {3, 30, 40, 3}, {7, 7, 3, 64}, .strides = LIST(2, 2), .low = LIST(3, 3), .high = LIST(3, 3)},
    {IMAGES, {5, 4, 4, 33}, {3, 3, 33, 40}, .lhs_dilation = LIST(2, 2), .low = LIST(1, 1), .high = LIST(2, 2)},
    {IMAGES,
     {2, 3, 3, 5},
     {3, 2, 5, 6},
     .strides = LIST(2, 2),
     .lhs_dilation = LIST(2, 4),
     .low = LIST(2, 1),
     .high = LIST(1, 3)},
    {IMAGES, {40, 7, 7, 65}, {1, 1, 65, 70}, .strides = LIST(2, 2)},
    {IMAGES, {30, 14, 14, 200}, {3, 3, 200, 64}, .low = LIST(1, 1), .high = LIST(1, 1)},
    {IMAGES, {2, 6, 6, 12}, {3, 3, 4, 30}, .low = LIST(1, 1), .high = LIST(1, 1), .feature_groups = 3},
    {"NCHW,OIHW->NCHW", 4, {3, 3, 16, 18}, {40, 3, 5, 5}, .strides = LIST(1, 2), .low = LIST(2, 2), .high = LIST(2, 2)},
    {"NHWC,OHWI->NCHW", 4, {3, 6, 5, 20}, {66, 3, 3, 20}, .rhs_dilation = LIST(2, 1), .low = LIST(2, 1)},
    {"NC,IO->NC", 2, {70, 40}, {40, 33}},
};

static tow__conv_params params_of(const conv_case *c)
{
    tow__conv_params p = {.dimensions = c->dimensions, .strides = c->strides, .low = c->low, .high = c->high};
    p.lhs_dilation = c->lhs_dilation;
    p.rhs_dilation = c->rhs_dilation;
    p.feature_groups = c->feature_groups > 0 ? c->feature_groups : 1;
    p.batch_groups = c->batch_groups > 0 ? c->batch_groups : 1;
    return p;
}

static tow__buffer result_of(tow_dtype dtype, const conv_case *c, const tow__conv_params *p)
{
    int64_t dims[TOW_MAX_RANK];
    tow__conv_axes axes;
    assert_true(tow__conv_axes_read(c->dimensions, &axes));
    dims[axes.out[0]] = c->lhs[axes.lhs[0]] / p->batch_groups;
    dims[axes.out[1]] = c->rhs[axes.rhs[0]];
    for (int i = 0; i < axes.spatial; i++) {
        tow__window_axis a = tow__conv_axis(p, &axes, i, c->lhs, c->rhs);
        assert_true(tow__window_result(&a));
        dims[axes.out[2 + i]] = a.result;
    }
    return make(dtype, c->rank, dims, ROW_MAJOR);
}

static void run_on_set(tow__gemm_set set, const tow__buffer *in, tow__buffer *out, const tow__conv_params *p)
{
    const tow__kernel *kernel = tow__kernel_find("conv_general_dilated", in[0].dtype);
    tow__gemm_choice choice = {.set = (int)set};
    tow__team team = {.threads = 1, .products = &choice};
    tow__kernel_call call = {.n_in = 2, .n_out = 1, .in = in, .out = out, .params = p, .team = &team};
    size_t bytes = kernel->scratch(&call);
    call.scratch = bytes > 0 ? take(bytes) : NULL;
    kernel->run(&call);
}

/* The rounding of k additions: the magnitudes of the terms, which are 1 on average, add up to about k. */
static void expect_close(const conv_case *c, const tow__buffer *found, const tow__buffer *expected)
{
    tow__conv_axes axes;
    double k = 1;
    assert_true(tow__conv_axes_read(c->dimensions, &axes));
    for (int i = 0; i < c->rank; i++) k *= i == axes.rhs[0] ? 1 : (double)c->rhs[i];
    for (int64_t i = 0; i < count_of(found); i++)
        assert_close(get(found, i), get(expected, i), epsilon_of(found->dtype) * 4 * (4 + 2 * k), c->dimensions, i);
}

/* About 10^8 multiplications or more, which plain C makes in a second. */
static bool is_large(const conv_case *c)
{
    tow__conv_axes axes;
    double terms = 1;
    assert_true(tow__conv_axes_read(c->dimensions, &axes));
    for (int i = 0; i < c->rank; i++) terms *= (double)c->lhs[i] * (double)c->rhs[i];
    return terms / (double)c->rhs[axes.rhs[1]] > 1e8;
}

static void kernels_agree(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const conv_case *c = &cases[k];
        const tow__conv_params p = params_of(c);
        for (int how = 0; how < 2 * LAYOUTS; how++) {
            if (is_large(c) ? how % LAYOUTS > 0 || k % SLOWDOWN > 0 : !is_tried(k, (size_t)how)) continue;
            const tow_dtype dtype = how < LAYOUTS ? TOW_F32 : TOW_F64;
            tow__buffer in[2] = {random_operand(dtype, c->rank, c->lhs, (layout)(how % LAYOUTS)),
                                 random_operand(dtype, c->rank, c->rhs, (layout)((how * 2 + 1) % LAYOUTS))};
            tow__buffer plain = result_of(dtype, c, &p), fast = result_of(dtype, c, &p),
                        other = result_of(dtype, c, &p);
            run_kernel(tow__kernel_reference("conv_general_dilated", dtype), 2, in, 1, &plain, &p);
            run_kernel(tow__kernel_find("conv_general_dilated", dtype), 2, in, 1, &fast, &p);
            expect_close(c, &fast, &plain);
            for (int set = TOW__GEMM_PLAIN; set <= TOW__GEMM_AVX512; set++) {
                run_on_set((tow__gemm_set)set, in, &other, &p);
                assert_equal_bits(&fast, &other, c->dimensions);
            }
            release_all();
        }
    }
}

/* ---- epilogues --------------------------------------------------------------------------------------------------- */

typedef struct epilogue_log {
    const tow__buffer *expected, *found;
    int *times; /* for each element of the result */
} epilogue_log;

/* Elements are complete when the epilogue gets them. */
static void note_strip(void *user, int64_t first, int64_t times, int64_t step, int64_t n)
{
    const epilogue_log *log = user;
    const size_t size = tow_dtype_size(log->found->dtype);
    for (int64_t i = 0; i < times; i++) {
        const int64_t at = first + i * step;
        assert_true(at >= 0 && at + n <= count_of(log->found));
        assert_memory_equal((const char *)log->found->data + (size_t)at * size,
                            (const char *)log->expected->data + (size_t)at * size, (size_t)n * size);
        for (int64_t j = 0; j < n; j++) log->times[at + j]++;
    }
}

static void run_with_epilogue(const tow__buffer *in, tow__buffer *out, const tow__conv_params *p, int threads,
                              const tow__epilogue *epilogue)
{
    tow__team team;
    assert_int_equal(tow__team_create(the_kernel_context(), threads, &team), TOW_OK);
    const tow__kernel *kernel = tow__kernel_find("conv_general_dilated", in[0].dtype);
    tow__kernel_call call = {.n_in = 2, .n_out = 1, .in = in, .out = out, .params = p, .team = &team};
    size_t bytes = kernel->scratch(&call);
    assert_true(kernel->runs_epilogue);
    call.scratch = bytes > 0 ? take(bytes) : NULL;
    call.epilogue = epilogue;
    kernel->run(&call);
}

/* Each element of a result goes through the epilogue once, with its final bits. */
static void epilogues_cover_results(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const conv_case *c = &cases[k];
        const tow__conv_params p = params_of(c);
        for (int threads = 1; threads <= 2; threads++) {
            const tow_dtype dtype = (k + (size_t)threads) % 3 == 0 ? TOW_F64 : TOW_F32;
            tow__buffer in[2] = {random_operand(dtype, c->rank, c->lhs, ROW_MAJOR),
                                 random_operand(dtype, c->rank, c->rhs, (layout)(k % LAYOUTS))};
            tow__buffer plain = result_of(dtype, c, &p), found = result_of(dtype, c, &p);
            run_kernel(tow__kernel_find("conv_general_dilated", dtype), 2, in, 1, &plain, &p);
            const size_t bytes = (size_t)count_of(&plain) * sizeof(int);
            epilogue_log log = {&plain, &found, take(bytes)};
            memset(log.times, 0, bytes);
            run_with_epilogue(in, &found, &p, threads, &(tow__epilogue){.run = note_strip, .user = &log});
            for (int64_t i = 0; i < count_of(&plain); i++)
                if (log.times[i] != 1)
                    fail_msg("%s, case %zu, element %lld: the epilogue ran %d times", c->dimensions, k, (long long)i,
                             log.times[i]);
            release_all();
        }
    }
}

/* ---- nothing to sum ---------------------------------------------------------------------------------------------- */

static const conv_case empty_cases[] = {
    {IMAGES, {2, 9, 17, 0}, {3, 3, 0, 37}},
    {IMAGES, {2, 9, 17, 5}, {3, 0, 5, 37}},
    {IMAGES, {2, 9, 0, 5}, {3, 3, 5, 37}, .low = LIST(1, 1), .high = LIST(1, 1)},
    {IMAGES, {0, 9, 17, 5}, {3, 3, 5, 37}},
    {"CHWN,IHWO->HWNC", 4, {0, 9, 10, 70}, {0, 9, 10, 33}, .low = LIST(1, 1), .high = LIST(1, 1)},
    {"CHWN,IHWO->HWNC", 4, {2, 9, 10, 70}, {2, 9, 10, 0}, .low = LIST(1, 1), .high = LIST(1, 1)},
    {LINES, {2, 40, 70}, {0, 1, 70}, .low = LIST(3), .feature_groups = 70},
    {"NC,IO->NC", 2, {70, 0}, {0, 33}},
};

/* Kernels have zeros for these, no scratch memory, and something to say about them. */
static void empty_sums_are_zeros(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof empty_cases / sizeof *empty_cases; k++) {
        const conv_case *c = &empty_cases[k];
        const tow__conv_params p = params_of(c);
        const tow__buffer in[2] = {random_operand(TOW_F32, c->rank, c->lhs, ROW_MAJOR),
                                   random_operand(TOW_F32, c->rank, c->rhs, ROW_MAJOR)};
        tow__buffer y = result_of(TOW_F32, c, &p);
        tow__team team = {.threads = 1};
        const tow__kernel_call call = {.n_in = 2, .n_out = 1, .in = in, .out = &y, .params = &p, .team = &team};
        const tow__kernel *kernel = tow__kernel_find("conv_general_dilated", TOW_F32);
        char text[100];
        assert_int_equal(kernel->scratch ? kernel->scratch(&call) : 0, 0);
        if (kernel->engine_of) assert_string_equal(kernel->engine_of(&call), "own");
        if (kernel->reason) assert_true(kernel->reason(&call, text, sizeof text) > 0);
        kernel->run(&call);
        for (int64_t i = 0; i < count_of(&y); i++) assert_true(get(&y, i) == 0);
        release_all();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(kernels_agree), cmocka_unit_test(epilogues_cover_results),
                                       cmocka_unit_test(empty_sums_are_zeros)};
    return cmocka_run_group_tests_name("kernels_conv", tests, NULL, NULL);
}
