/* Convolutions of two operands of bf16 on units for it, and on their emulations in plain C: element by element the
 * bits that conv.h defines, forward with strides, dilations and several tiles of taps, and as sums over positions, with
 * one and two threads.
 * Tests conv.c, conv_gathered.c, conv_sums.c. */
#include "tests/unit/support/bf16_units.h"
#include "tests/unit/support/kernels.h"

#include "src/base/window.h"
#include "src/kernels/products/gemm_bf16.h"

/* ---- engines ----------------------------------------------------------------------------------------------------- */

static const char *describe(void) { return "emulated"; }

typedef struct unit {
    tow__gemm_engine engine;
    const tow__gemm_bf16_version *version;
    float (*definition)(const float *a, const float *b, int64_t k);
} unit;

#define UNIT(name, chain)                                                                                              \
    {                                                                                                                  \
        {"unit",                                                                                                       \
         "unit",                                                                                                       \
         tow__gemm_bf16_fits,                                                                                          \
         NULL,                                                                                                         \
         describe,                                                                                                     \
         true,                                                                                                         \
         true,                                                                                                         \
         .halves = true,                                                                                               \
         .gains = tow__gemm_bf16_gains,                                                                                \
         .scratch = tow__gemm_bf16_scratch},                                                                           \
            &(name), chain                                                                                             \
    }
static unit units[] = {
#ifdef TOW__BF16_UNITS
    UNIT(tow__gemm_bf16_amx, by_matrix_unit),
    UNIT(tow__gemm_bf16_dots, by_dots),
#endif
    UNIT(tow__gemm_bf16_amx_emulated, by_matrix_unit),
    UNIT(tow__gemm_bf16_dots_emulated, by_dots),
};
enum {
    UNITS = sizeof units / sizeof units[0]
};

/* ---- cases ------------------------------------------------------------------------------------------------------- */

typedef struct conv_case {
    const char *dimensions; /* two spatial axes */
    int64_t lhs[4], rhs[4];
    tow__conv_params params;
    bool sums;
} conv_case;

#define AXES(a, b)                                                                                                     \
    {                                                                                                                  \
        2, { a, b }                                                                                                    \
    }
static const conv_case cases[] = {
    {"NHWC,HWIO->NHWC", {2, 7, 9, 20}, {3, 3, 20, 37}, {.low = AXES(1, 1), .high = AXES(1, 1)}, false},
    {"NHWC,HWIO->NHWC", {3, 9, 8, 16}, {3, 2, 16, 5}, {.strides = AXES(2, 1), .low = AXES(0, 1)}, false},
    {"NHWC,HWIO->NHWC", {1, 4, 5, 300}, {2, 2, 300, 20}, {.low = AXES(1, 0)}, false}, /* two tiles of taps */
    {"NHWC,HWIO->NHWC", {2, 4, 3, 40}, {3, 3, 40, 9}, {.lhs_dilation = AXES(2, 2), .low = AXES(1, 2)}, false},
    {"NHWC,HWIO->NHWC", {2, 24, 25, 40}, {1, 1, 40, 34}, {.low = AXES(0, 0)}, false},
    {"NCHW,OIHW->NCHW", {2, 12, 9, 8}, {17, 12, 3, 3}, {.low = AXES(1, 1), .high = AXES(1, 1)}, false},
    {"CHWN,IHWO->HWNC", {3, 9, 10, 20}, {3, 9, 10, 33}, {.low = AXES(1, 1), .high = AXES(1, 1)}, true},
    {"CHWN,IHWO->HWNC",
     {2, 16, 15, 70},
     {2, 8, 8, 12},
     {.low = AXES(0, 1), .high = AXES(1, 1), .rhs_dilation = AXES(2, 2)},
     true},
    {"CHWN,IHWO->HWNC", {1, 30, 40, 6}, {1, 30, 40, 7}, {.low = AXES(1, 1), .high = AXES(1, 1)}, true}, /* blocks */
};

/* A convolution with one index for each role of its axes. */
typedef struct conv {
    tow__conv_axes axes;
    tow__window_axis window[2];
    tow__buffer x, w, y;
} conv;

static double element_of(const tow__buffer *b, const int *axes, int64_t first, int64_t second, int64_t i, int64_t j)
{
    int64_t at[4], index = 0;
    at[axes[0]] = first, at[axes[1]] = second, at[axes[2]] = i, at[axes[3]] = j;
    for (int a = 0; a < 4; a++) index = index * b->dims[a] + at[a];
    return get(b, index);
}

/* The number that tap (or position) k of both axes meets in entry n and feature i of the left operand: 0 in padding. */
static float met(const conv *c, int64_t n, int64_t i, const int64_t *p, int64_t kh, int64_t kw)
{
    const int64_t h = tow__window_element(&c->window[0], p[0], kh), w = tow__window_element(&c->window[1], p[1], kw);
    return h < 0 || w < 0 ? 0 : (float)element_of(&c->x, c->axes.lhs, n, i, h, w);
}

static float weight(const conv *c, int64_t o, int64_t i, int64_t kh, int64_t kw)
{
    return (float)element_of(&c->w, c->axes.rhs, o, i, kh, kw);
}

/* ---- definitions ------------------------------------------------------------------------------------------------- */

enum {
    MOST = 2048
};

/* True if tap k of result p meets an element or padding, and no hole of a dilated operand. */
static bool is_met(const tow__window_axis *a, int64_t p, int64_t k)
{
    return (p * a->stride + k * a->window_dilation - a->low) % a->base_dilation == 0;
}

/* Tiles of as many taps as make about 1024 elements, each one chain. */
static float forward(const conv *c, const unit *u, int64_t n, int64_t o, const int64_t *p)
{
    const tow__window_axis *h = &c->window[0], *w = &c->window[1];
    const int64_t inputs = c->w.dims[c->axes.rhs[1]], all = h->window * w->window;
    const int64_t at_once = all < 1024 / inputs ? all : 1024 / inputs;
    static float a[MOST], b[MOST];
    float sum = 0;
    int64_t taps = 0, tiles = 0;
    for (int64_t k = 0; k <= all; k++) {
        if (taps == at_once || (k == all && taps > 0)) {
            const float tile = u->definition(a, b, taps * inputs);
            sum = tiles++ == 0 ? tile : sum + tile;
            taps = 0;
        }
        if (k == all || !is_met(h, p[0], k / w->window) || !is_met(w, p[1], k % w->window)) continue;
        for (int64_t i = 0; i < inputs; i++) {
            a[taps * inputs + i] = met(c, n, i, p, k / w->window, k % w->window);
            b[taps * inputs + i] = weight(c, o, i, k / w->window, k % w->window);
        }
        taps++;
    }
    return sum;
}

static int64_t shift_of(const tow__window_axis *a, int64_t p)
{
    const int64_t at = p * a->stride - a->low, d = a->window_dilation;
    return at >= 0 ? at / d : -((-at + d - 1) / d);
}

/* Blocks of rows of positions, with gaps as long as the results along w are apart, each one chain. */
static float summed(const conv *c, const unit *u, int64_t n, int64_t o, const int64_t *p)
{
    const tow__window_axis *h = &c->window[0], *w = &c->window[1];
    const int64_t pitch = w->window + shift_of(w, w->result - 1) - shift_of(w, 0);
    const int64_t some = 384 / pitch < h->window ? 384 / pitch : h->window;
    static float a[MOST], b[MOST];
    float sum = 0;
    int64_t blocks = 0;
    for (int64_t i = 0; i < c->w.dims[c->axes.rhs[1]]; i++)
        for (int64_t kh = 0; kh < h->window; kh += some) {
            const int64_t rows = some < h->window - kh ? some : h->window - kh;
            int64_t k = 0;
            for (int64_t r = 0; r < rows; r++)
                for (int64_t q = 0; q < (r + 1 < rows ? pitch : w->window); q++, k++) {
                    a[k] = q < w->window ? met(c, n, i, p, kh + r, q) : 0;
                    b[k] = q < w->window ? weight(c, o, i, kh + r, q) : 0;
                }
            const float block = u->definition(a, b, k);
            sum = blocks++ == 0 ? block : sum + block;
        }
    return sum;
}

static conv conv_of(const conv_case *from, layout how)
{
    conv c = {.x = random_operand(TOW_BF16, 4, from->lhs, how), .w = random_operand(TOW_BF16, 4, from->rhs, ROW_MAJOR)};
    int64_t dims[4];
    assert_true(tow__conv_axes_read(from->dimensions, &c.axes));
    dims[c.axes.out[0]] = from->lhs[c.axes.lhs[0]];
    dims[c.axes.out[1]] = from->rhs[c.axes.rhs[0]];
    for (int i = 0; i < 2; i++) {
        c.window[i] = tow__conv_axis(&from->params, &c.axes, i, from->lhs, from->rhs);
        assert_true(tow__window_result(&c.window[i]));
        dims[c.axes.out[2 + i]] = c.window[i].result;
    }
    c.y = make(TOW_F32, 4, dims, ROW_MAJOR);
    return c;
}

static void run_on(const unit *u, const conv_case *from, conv *c, int threads)
{
    const tow__gemm_choice choice = {.engine = &u->engine};
    tow__conv_params params = from->params;
    params.dimensions = from->dimensions;
    params.feature_groups = params.batch_groups = params.of_halves = 1;
    tow__team team;
    assert_int_equal(tow__team_create(the_kernel_context(), threads, &team), TOW_OK);
    team.products = &choice;
    const tow__buffer in[] = {c->x, c->w};
    const tow__kernel *kernel = tow__kernel_find("conv_general_dilated", TOW_F32);
    tow__kernel_call call = {.n_in = 2, .n_out = 1, .in = in, .out = &c->y, .params = &params, .team = &team};
    assert_string_equal(kernel->engine_of(&call), "unit");
    call.scratch = take(kernel->scratch(&call) + 1);
    kernel->run(&call);
}

static void bits_are_those_of_the_definition(void **state)
{
    (void)state;
    if (!tow__kernel_find("conv_general_dilated", TOW_F32)->halves) skip(); /* the plain kernel */
    for (int v = 0; v < (int)UNITS; v++) {
        unit *u = &units[v];
        if (!u->version->usable()) continue;
        u->engine.run = u->version->run;
        for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
            conv c = conv_of(&cases[k], k % 2 ? ROW_MAJOR : SPACED);
            run_on(u, &cases[k], &c, 1 + (int)k % 2);
            for (int64_t i = (int64_t)k; i < count_of(&c.y); i += 7) {
                int64_t at[4], rest = i;
                for (int a = 3; a >= 0; a--) at[a] = rest % c.y.dims[a], rest /= c.y.dims[a];
                const int64_t n = at[c.axes.out[0]], o = at[c.axes.out[1]];
                const int64_t p[] = {at[c.axes.out[2]], at[c.axes.out[3]]};
                const float want = (cases[k].sums ? summed : forward)(&c, u, n, o, p), got = (float)get(&c.y, i);
                if (memcmp(&want, &got, sizeof want) != 0 && !(want == 0 && got == 0))
                    fail_msg("%s, case %zu, element %lld on %s: %a, not %a", cases[k].dimensions, k, (long long)i,
                             u->version->text, (double)got, (double)want);
            }
            release_all();
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bits_are_those_of_the_definition)};
    return cmocka_run_group_tests_name("kernels_conv_units", tests, NULL, NULL);
}
