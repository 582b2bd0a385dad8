/* A cross-entropy whose derivative is taken in the same program: one step makes both, with the bits of two steps, for
 * any number of rows and classes, orientation of the weights, labels and threads; and two steps stay where the
 * cotangent waits for the loss. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/threaded_context.h"
#include "tow/tow.h"

typedef struct recipe {
    int64_t n, c, v;
    bool rows, waits; /* waits: the cotangent depends on the loss */
    tow_dtype dtype;
} recipe;

/* x [n, c], w, labels [n], weights [n] -> sum of weighted losses */
static void weighted(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    const recipe *r = user;
    tow_value loss = tow_linear_cross_entropy(in[0], in[1], r->rows, in[2]);
    out[0] = tow_reduce_sum(tow_mul(in[3], r->waits ? tow_square(loss) : loss), 0, NULL);
}

static tow_array *operand(tow_type type, uint32_t seed, int64_t classes)
{
    tow_array *x;
    OK(tow_array_create(ctx, type, &x));
    for (int64_t i = 0; i < tow_type_element_count(type); i++) {
        seed = seed * 1664525u + 1013904223u;
        double value = ((double)(seed >> 8) / (1 << 24) - 0.5) * 2;
        if (type.dtype == TOW_F32) ((float *)tow_array_data(x))[i] = (float)value;
        if (type.dtype == TOW_F64) ((double *)tow_array_data(x))[i] = value;
        if (type.dtype == TOW_I32) /* now and then no class */
            ((int32_t *)tow_array_data(x))[i] = seed % 29 == 0 ? -1 : (int32_t)((seed >> 8) % classes);
    }
    return x;
}

enum {
    OUTPUTS = 4, /* loss, dx, dw, dweights */
    WAYS = 4     /* of compiling: in two steps, in one, on more threads */
};

static size_t steps_named(const tow_program *p, const char *name)
{
    size_t length = tow_program_text(p, NULL, 0), n = 0;
    char *text = malloc(length + 1);
    assert_non_null(text);
    tow_program_text(p, text, length + 1);
    for (const char *at = text; (at = strstr(at, name)) != NULL; at += strlen(name)) n += at[strlen(name)] != '_';
    free(text);
    return n;
}

/* One step makes the logits once and a product for each of dx and dw; two make the logits twice. */
static void run(recipe r, const tow_graph *g, const tow_compile_options *options, tow_array *const *x, tow_array **y,
                size_t merged, size_t separate)
{
    tow_program *p;
    OK(tow_compile(ctx, g, options, &p));
    OK(tow_program_check(p));
    assert_int_equal(steps_named(p, "linear_cross_entropy_and_vjp"), merged);
    assert_int_equal(steps_named(p, "linear_cross_entropy_vjp"), separate);
    const int64_t product = 2 * r.n * r.c * r.v;
    assert_true(tow_program_memory_point(p).flops == (double)((merged ? 3 : 4) * product));
    for (size_t i = 0; i < OUTPUTS; i++) OK(tow_array_create(ctx, tow_graph_output_type(g, i), &y[i]));
    OK(tow_program_run(p, x, y));
    tow_program_free(p);
}

static void expect_same(recipe r)
{
    tow_type types[4] = {tow_make_type(r.dtype, 2, (int64_t[]){r.n, r.c}),
                         tow_make_type(r.dtype, 2, r.rows ? (int64_t[]){r.v, r.c} : (int64_t[]){r.c, r.v}),
                         tow_make_type(TOW_I32, 1, &r.n), tow_make_type(r.dtype, 1, &r.n)};
    tow_graph *loss, *gradient;
    tow_array *x[4], *y[WAYS][OUTPUTS];
    OK(tow_trace_function(ctx, weighted, &r, 4, types, NULL, 1, &loss));
    OK(tow_value_and_grad(loss, 3, (size_t[]){0, 1, 3}, false, &gradient));
    for (size_t i = 0; i < 4; i++) x[i] = operand(types[i], (uint32_t)i + 7, r.v);
    run(r, gradient, &TOW_COMPILE_OPTIONS(.threads = 1, .no_fusion = true), x, y[0], 0, 1);
    run(r, gradient, &TOW_COMPILE_OPTIONS(.threads = 1), x, y[1], !r.waits, r.waits);
    run(r, gradient, &TOW_COMPILE_OPTIONS(.threads = 2), x, y[2], !r.waits, r.waits);
    run(r, gradient, &TOW_COMPILE_OPTIONS(.threads = 5), x, y[3], !r.waits, r.waits);
    for (size_t i = 0; i < OUTPUTS; i++)
        for (int way = 1; way < WAYS; way++)
            if (memcmp(tow_array_data(y[0][i]), tow_array_data(y[way][i]), tow_type_bytes(tow_array_type(y[0][i]))) !=
                0)
                fail_msg("%lld rows, %lld features, %lld classes: output %zu differs, way %d", (long long)r.n,
                         (long long)r.c, (long long)r.v, i, way);
    for (int way = 0; way < WAYS; way++)
        for (size_t i = 0; i < OUTPUTS; i++) tow_array_release(y[way][i]);
    for (size_t i = 0; i < 4; i++) tow_array_release(x[i]);
    tow_graph_release(gradient);
    tow_graph_release(loss);
}

static void one_step_has_the_bits_of_two(void **state)
{
    (void)state;
    expect_same((recipe){3, 5, 1030, true, false, TOW_F32});
    expect_same((recipe){300, 7, 5000, true, false, TOW_F32});
    expect_same((recipe){300, 7, 5000, false, false, TOW_F64});
    expect_same((recipe){700, 3, 20000, true, false, TOW_F32}); /* three bands of rows, several panels */
    expect_same((recipe){700, 3, 20000, false, false, TOW_F32});
    for (int rows = 0; rows < 2; rows++) /* threads share the columns of dx */
        for (int f64 = 0; f64 < 2; f64++) {
            expect_same((recipe){200, 70, 1500, rows, false, f64 ? TOW_F64 : TOW_F32});
            expect_same((recipe){40, 100, 6000, rows, false, f64 ? TOW_F64 : TOW_F32});
        }
}

static void a_cotangent_that_waits_keeps_two_steps(void **state)
{
    (void)state;
    expect_same((recipe){30, 5, 1500, true, true, TOW_F32});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_step_has_the_bits_of_two),
        cmocka_unit_test(a_cotangent_that_waits_keeps_two_steps),
    };
    return cmocka_run_group_tests_name("losses", tests, setup, teardown);
}
