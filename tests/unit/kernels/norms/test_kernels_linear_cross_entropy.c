/* linear_cross_entropy and its derivative against double precision: one and several tiles of classes and rows, one and
 * several panels, both orientations of the weights, in all layouts; and that no program has the logits of many rows at
 * once.
 * Tests linear_cross_entropy.c. */
#include "tests/unit/support/kernels.h"

#include <float.h>

#include "src/kernels/products/gemm_own.h"
#include "tow/tow.h"

typedef struct shape {
    int64_t b, t, c, v; /* x [b, t, c]: b t rows */
} shape;

static const shape shapes[] = {
    {2, 3, 4, 5}, {1, 1, 1, 1},   {1, 2, 3, 700},  {3, 100, 7, 1030},
    {0, 3, 2, 4}, {2, 2, 0, 600}, {4, 2060, 2, 5}, {1, 300, 2, 7000},
};
static const tow_dtype floats[] = {TOW_F32, TOW_F64};

typedef struct expected {
    double *loss, *lse, *dx, *dw;
} expected;

static double *zeros(int64_t n)
{
    double *x = take((size_t)n * sizeof *x + 8);
    for (int64_t i = 0; i < n; i++) x[i] = 0;
    return x;
}

static double weight(const shape *s, const tow__buffer *w, bool rows, int64_t c, int64_t v)
{
    return get(w, rows ? v * s->c + c : c * s->v + v);
}

static expected expect(const shape *s, bool rows, const tow__buffer *in)
{
    int64_t n = s->b * s->t;
    expected y = {zeros(n), zeros(n), zeros(n * s->c), zeros(s->v * s->c)};
    double *logits = zeros(s->v);
    for (int64_t r = 0; r < n; r++) {
        double top = -INFINITY, sum = 0;
        for (int64_t v = 0; v < s->v; v++) {
            logits[v] = 0;
            for (int64_t c = 0; c < s->c; c++) logits[v] += get(&in[0], r * s->c + c) * weight(s, &in[1], rows, c, v);
            top = fmax(top, logits[v]);
        }
        for (int64_t v = 0; v < s->v; v++) sum += exp(logits[v] - top);
        int64_t label = (int64_t)get(&in[2], r);
        bool inside = label >= 0 && label < s->v;
        y.lse[r] = top + log(sum);
        y.loss[r] = inside ? y.lse[r] - logits[label] : NAN;
        for (int64_t v = 0; v < s->v; v++) {
            double dl = (exp(logits[v] - y.lse[r]) - (v == label)) * get(&in[4], r);
            for (int64_t c = 0; c < s->c; c++) {
                y.dx[r * s->c + c] += dl * weight(s, &in[1], rows, c, v);
                y.dw[rows ? v * s->c + c : c * s->v + v] += dl * get(&in[0], r * s->c + c);
            }
        }
    }
    return y;
}

static void compare(const tow__buffer *got, const double *want, double tolerance, const char *what)
{
    int64_t count = count_of(got);
    for (int64_t i = 0; i < count; i++) assert_close(get(got, i), want[i], tolerance, what, i);
}

static void check(const shape *s, bool rows, tow_dtype dtype, layout how)
{
    int64_t w_dims[2] = {rows ? s->v : s->c, rows ? s->c : s->v};
    tow__buffer in[5] = {random_operand(dtype, SHAPE(s->b, s->t, s->c), how), random_operand(dtype, 2, w_dims, how),
                         make(TOW_I32, SHAPE(s->b, s->t), how == REPEATED ? ROW_MAJOR : how),
                         make(dtype, SHAPE(s->b, s->t), ROW_MAJOR), random_operand(dtype, SHAPE(s->b, s->t), how)};
    for (int64_t r = 0; r < s->b * s->t; r++)
        set(&in[2], r, r == 1 ? (double)s->v : r == 2 ? -1 : (double)(random_bits() % s->v));
    tow__buffer loss[2] = {make(dtype, SHAPE(s->b, s->t), ROW_MAJOR), in[3]}, grads[2];
    run_kernel(tow__kernel_find("linear_cross_entropy", dtype), 3, in, 2, loss,
               &(tow__linear_cross_entropy_params){rows});
    expected y = expect(s, rows, in);
    double tolerance = epsilon_of(dtype) * 64 * (double)(2 + s->c);
    compare(&loss[0], y.loss, tolerance, "loss");
    compare(&loss[1], y.lse, tolerance, "lse");
    for (int wrt = 1; wrt < 4; wrt++) {
        size_t n = 0;
        if (wrt & 1) grads[n++] = make(dtype, 3, in[0].dims, ROW_MAJOR);
        if (wrt & 2) grads[n++] = make(dtype, 2, w_dims, ROW_MAJOR);
        run_kernel(tow__kernel_find("linear_cross_entropy_vjp", dtype), 5, in, n, grads,
                   &(tow__linear_cross_entropy_ad_params){rows, wrt});
        n = 0;
        if (wrt & 1) compare(&grads[n++], y.dx, tolerance * (double)s->v, "dx");
        if (wrt & 2) compare(&grads[n], y.dw, tolerance * (double)(s->b * s->t), "dw");
    }
    release_all();
}

static void values_and_gradients(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int how = 0; how < LAYOUTS; how++)
            for (int rows = 0; rows < 2; rows++)
                if (i < 3 || how < (i < 6 ? 3 : 1)) check(&shapes[i], rows, floats[(how + rows) % 2], (layout)how);
}

/* Logits of 600 classes in two tiles, one of which is all -infinity or has an infinity. */
static void infinities(void **state)
{
    (void)state;
    tow__buffer in[3] = {make(TOW_F32, SHAPE(3, 1), ROW_MAJOR), make(TOW_F32, SHAPE(1, 600), ROW_MAJOR),
                         make(TOW_I32, SHAPE(3), ROW_MAJOR)},
                out[2] = {make(TOW_F32, SHAPE(3), ROW_MAJOR), make(TOW_F32, SHAPE(3), ROW_MAJOR)};
    for (int64_t v = 0; v < 600; v++) set(&in[1], v, v < 512 ? -INFINITY : -500);
    for (int64_t r = 0; r < 3; r++) {
        static const double x[3] = {1, -1, NAN};
        set(&in[0], r, x[r]);
        set(&in[2], r, 550);
    }
    run_kernel(tow__kernel_find("linear_cross_entropy", TOW_F32), 3, in, 2, out,
               &(tow__linear_cross_entropy_params){false});
    assert_close(get(&out[1], 0), log(88.0) - 500, 1e-4, "lse", 0);
    assert_close(get(&out[0], 0), log(88.0), 1e-4, "loss", 0);
    assert_true(get(&out[1], 1) == INFINITY && isnan(get(&out[1], 2)));
    release_all();
}

/* Panels of 512 rows, whose sums are cut in the middle, and a last one of 384, whose sums are one block: it needs more
 * room for what is packed. Instruction sets differ in what they pack, never in bits. */
static void last_panels_have_room(void **state)
{
    (void)state;
    static const tow__gemm_set sets[] = {TOW__GEMM_AUTO, TOW__GEMM_AVX2};
    enum {
        SETS = sizeof sets / sizeof sets[0]
    };
    const int64_t rows = 512 + 384, features = 65, classes = 5600;
    tow__buffer in[5] = {random_operand(TOW_F32, SHAPE(rows, features), ROW_MAJOR),
                         random_operand(TOW_F32, SHAPE(classes, features), ROW_MAJOR),
                         make(TOW_I32, SHAPE(rows), ROW_MAJOR), make(TOW_F32, SHAPE(rows), ROW_MAJOR),
                         random_operand(TOW_F32, SHAPE(rows), ROW_MAJOR)},
                dw[SETS];
    for (int64_t r = 0; r < rows; r++) {
        set(&in[2], r, (double)(r % classes));
        set(&in[3], r, 9);
    }
    for (int i = 0; i < SETS; i++) {
        tow__team team = {.threads = 1, .products = &(tow__gemm_choice){.engine = &tow__gemm_own, .set = (int)sets[i]}};
        const tow__kernel *kernel = tow__kernel_find("linear_cross_entropy_vjp", TOW_F32);
        dw[i] = make(TOW_F32, SHAPE(classes, features), ROW_MAJOR);
        tow__kernel_call call = {.n_in = 5,
                                 .n_out = 1,
                                 .in = in,
                                 .out = &dw[i],
                                 .params = &(tow__linear_cross_entropy_ad_params){true, 2},
                                 .team = &team};
        call.scratch = take(kernel->scratch(&call));
        kernel->run(&call);
        assert_equal_bits(&dw[0], &dw[i], "instruction sets");
    }
    release_all();
}

static void run_with_units(const char *name, size_t n_in, const tow__buffer *in, size_t n_out, tow__buffer *out,
                           const void *params)
{
    const tow__gemm_choice choice = {.matrix_unit = tow__gemm_amx_usable()};
    const tow__kernel *kernel = tow__kernel_find(name, TOW_F32);
    tow__team team = {.threads = 1, .products = &choice};
    tow__kernel_call call = {.n_in = n_in, .n_out = n_out, .in = in, .out = out, .params = params, .team = &team};
    call.scratch = take(kernel->scratch(&call) + 1);
    kernel->run(&call);
}

/* On every machine, operands of bf16 give the bits of the same numbers in f32, and rows those of any number of rows. */
static void bits_are_those_of_widened_rows(void **state)
{
    (void)state;
    enum {
        N = 160,
        FEW = 48,
        C = 160,
        V = 1030
    };
    const tow__linear_cross_entropy_ad_params both = {true, 3};
    tow__buffer in[5] = {random_operand(TOW_BF16, SHAPE(N, C), ROW_MAJOR),
                         random_operand(TOW_BF16, SHAPE(V, C), ROW_MAJOR), make(TOW_I32, SHAPE(N), ROW_MAJOR),
                         make(TOW_F32, SHAPE(N), ROW_MAJOR), random_operand(TOW_F32, SHAPE(N), ROW_MAJOR)},
                wide[5], few[3], results[3][4];
    memcpy(wide, in, sizeof in);
    for (int i = 0; i < 2; i++) {
        wide[i] = make(TOW_F32, 2, in[i].dims, ROW_MAJOR);
        for (int64_t j = 0; j < count_of(&in[i]); j++) set(&wide[i], j, get(&in[i], j));
    }
    for (int64_t r = 0; r < N; r++) set(&in[2], r, (double)(r % V));
    memcpy(few, in, sizeof few);
    few[0].dims[0] = few[2].dims[0] = FEW;
    for (int k = 0; k < 3; k++) {
        const int64_t n = k < 2 ? N : FEW;
        results[k][0] = make(TOW_F32, SHAPE(n), ROW_MAJOR), results[k][1] = make(TOW_F32, SHAPE(n), ROW_MAJOR);
        run_with_units("linear_cross_entropy", 3,
                       k == 0   ? in
                       : k == 1 ? wide
                                : few,
                       2, results[k], &(tow__linear_cross_entropy_params){true});
    }
    wide[3] = in[3] = results[0][1];
    for (int k = 0; k < 2; k++) {
        results[k][2] = make(TOW_F32, SHAPE(N, C), ROW_MAJOR), results[k][3] = make(TOW_F32, SHAPE(V, C), ROW_MAJOR);
        run_with_units("linear_cross_entropy_vjp", 5, k == 0 ? in : wide, 2, &results[k][2], &both);
    }
    for (int i = 0; i < 4; i++) assert_equal_bits(&results[0][i], &results[1][i], "bf16 and f32");
    for (int i = 0; i < 2; i++) {
        results[0][i].dims[0] = FEW;
        assert_equal_bits(&results[0][i], &results[2][i], "all rows and few");
    }
    release_all();
}

/* ---- blocks of classes ------------------------------------------------------------------------------------------ */

/* Losses and gradients that are made block by block, each with its part of the weights alone, have the bits of the
 * whole; and so has dx of some rows, however many there are. */
static void check_blocks(int64_t n, int64_t c, int64_t v)
{
    enum {
        MOST = 16
    };
    const int64_t block = tow__loss_block(v), blocks = (v + block - 1) / block, tiles = (v + 511) / 512;
    tow__buffer in[5] = {random_operand(TOW_F32, SHAPE(n, c), ROW_MAJOR),
                         random_operand(TOW_F32, SHAPE(v, c), ROW_MAJOR), make(TOW_I32, SHAPE(n), ROW_MAJOR),
                         make(TOW_F32, SHAPE(n), ROW_MAJOR), random_operand(TOW_F32, SHAPE(n), ROW_MAJOR)},
                loss[2] = {make(TOW_F32, SHAPE(n), ROW_MAJOR), in[3]},
                joined[2] = {make(TOW_F32, SHAPE(n), ROW_MAJOR), make(TOW_F32, SHAPE(n), ROW_MAJOR)},
                grads[2] = {make(TOW_F32, SHAPE(n, c), ROW_MAJOR), make(TOW_F32, SHAPE(v, c), ROW_MAJOR)},
                sum = make(TOW_F32, SHAPE(n, c), ROW_MAJOR), all = make(TOW_F32, SHAPE(v, c), ROW_MAJOR),
                parts = make(TOW_F32, SHAPE(n, tiles, 3), ROW_MAJOR);
    assert_true(blocks > 1 && blocks <= MOST);
    for (int64_t r = 0; r < n; r++) set(&in[2], r, r == 1 ? (double)v : r == 2 ? -1 : (double)(random_bits() % v));
    run_with_units("linear_cross_entropy", 3, in, 2, loss, &(tow__linear_cross_entropy_params){true});
    run_with_units("linear_cross_entropy_vjp", 5, in, 2, grads, &(tow__linear_cross_entropy_ad_params){true, 3, 0});
    for (int64_t k = 0; k < blocks; k++) {
        const int64_t first = k * block, count = v - first < block ? v - first : block, some = (count + 511) / 512;
        tow__buffer own[5],
            statistics = make(TOW_F32, SHAPE(n, some, 3), ROW_MAJOR),
            terms[2] = {make(TOW_F32, SHAPE(n, c), ROW_MAJOR), make(TOW_F32, SHAPE(count, c), ROW_MAJOR)};
        memcpy(own, in, sizeof own);
        own[1] = make(TOW_F32, SHAPE(count, c), ROW_MAJOR);
        own[2] = make(TOW_I32, SHAPE(n), ROW_MAJOR);
        for (int64_t i = 0; i < count * c; i++) set(&own[1], i, get(&in[1], first * c + i));
        for (int64_t r = 0; r < n; r++) set(&own[2], r, get(&in[2], r) - (double)first);
        run_with_units("linear_cross_entropy_parts", 3, own, 1, &statistics,
                       &(tow__linear_cross_entropy_parts_params){true, v});
        for (int64_t r = 0; r < n; r++)
            for (int64_t i = 0; i < some * 3; i++)
                set(&parts, (r * tiles + first / 512) * 3 + i, get(&statistics, r * some * 3 + i));
        run_with_units("linear_cross_entropy_vjp", 5, own, 2, terms,
                       &(tow__linear_cross_entropy_ad_params){true, 3, v});
        for (int64_t i = 0; i < n * c; i++) {
            const float term = (float)get(&terms[0], i);
            set(&sum, i, (double)(k == 0 ? term : (float)get(&sum, i) + term));
        }
        for (int64_t i = 0; i < count * c; i++) set(&all, first * c + i, get(&terms[1], i));
    }
    run_with_units("linear_cross_entropy_join", 2, (tow__buffer[]){parts, in[2]}, 2, joined, NULL);
    assert_equal_bits(&joined[0], &loss[0], "loss");
    assert_equal_bits(&joined[1], &loss[1], "lse");
    assert_equal_bits(&sum, &grads[0], "dx");
    assert_equal_bits(&all, &grads[1], "dw");
    tow__buffer few[5], dx = make(TOW_F32, SHAPE(n / 4, c), ROW_MAJOR);
    memcpy(few, in, sizeof few);
    few[0].dims[0] = few[2].dims[0] = few[3].dims[0] = few[4].dims[0] = grads[0].dims[0] = n / 4;
    run_with_units("linear_cross_entropy_vjp", 5, few, 1, &dx, &(tow__linear_cross_entropy_ad_params){true, 1, 0});
    assert_equal_bits(&dx, &grads[0], "dx of few rows");
    release_all();
}

static void blocks_have_the_bits_of_the_whole(void **state)
{
    (void)state;
    check_blocks(48, 12, 1300);
    check_blocks(300, 5, 7000);
    check_blocks(40, 9, 17000);
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

enum {
    TOKENS = 2048,
    WIDTH = 16,
    VOCABULARY = 50257
};

static void mean_loss(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_mean(tow_linear_cross_entropy(in[0], in[1], true, in[2]), 0, NULL);
}

static void logits_of_many_rows_exist_in_no_program(void **state)
{
    (void)state;
    static const struct {
        int64_t tokens;
        double most; /* of the bytes of all logits; beside those of some rows there are copies of operands */
    } cases[] = {{TOKENS, 0.25}, {512, 0.6}, {256, 0.6}, {100, 0.75}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tow_context *ctx = NULL;
        tow_graph *loss = NULL, *gradient = NULL;
        tow_program *program = NULL;
        tow_type types[3] = {tow_make_type(TOW_F32, 2, (int64_t[]){cases[i].tokens, WIDTH}),
                             tow_make_type(TOW_F32, 2, (int64_t[]){VOCABULARY, WIDTH}),
                             tow_make_type(TOW_I32, 1, (int64_t[]){cases[i].tokens})};
        double whole = (double)cases[i].tokens * VOCABULARY * sizeof(float);
        assert_int_equal(tow_context_create(NULL, &ctx), TOW_OK);
        assert_int_equal(tow_trace_function(ctx, mean_loss, NULL, 3, types, NULL, 1, &loss), TOW_OK);
        assert_int_equal(tow_value_and_grad(loss, 2, (size_t[]){0, 1}, false, &gradient), TOW_OK);
        assert_int_equal(tow_compile(ctx, gradient, &TOW_COMPILE_OPTIONS(.plan_only = true), &program), TOW_OK);
        assert_true((double)tow_program_get_bytes(program).arena < cases[i].most * whole);
        tow_program_free(program);
        tow_graph_release(gradient);
        tow_graph_release(loss);
        tow_context_free(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_and_gradients),
        cmocka_unit_test(infinities),
        cmocka_unit_test(last_panels_have_room),
        cmocka_unit_test(bits_are_those_of_widened_rows),
        cmocka_unit_test(blocks_have_the_bits_of_the_whole),
        cmocka_unit_test(logits_of_many_rows_exist_in_no_program),
    };
    return cmocka_run_group_tests_name("linear cross-entropy", tests, NULL, NULL);
}
