/* Fusion: random programs give the same bits fused and instruction by instruction, on one thread and on two, in no more
 * memory; worked examples become the steps that they should.
 *
 * Tests fuse.c, row_program.c, kernels/elementwise/fused.c, kernels/products/fused_product.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "src/kernels/elementwise/joined.h"
#include "src/plan/fuse/fuse.h"
#include "src/plan/ir.h"
#include "tests/unit/support/fusion.h"
#include "tow/autodiff.h"
#include "tow/graph.h"
#include "tow/ops.h"
#include "tow/program.h"

/* ---- random programs on matrices [rows, columns] ----------------------------------------------------------------- */

typedef struct recipe {
    uint32_t number;
    int ops, n_out;
    int64_t rows, columns;
} recipe;

static tow_value broadcast(tow_value x, const recipe *r)
{
    return tow_broadcast_to(x, 2, (int64_t[]){r->rows, r->columns});
}

/* A view of x in another order or shape, or part of x repeated. */
static tow_value rearranged(tow_value x, const recipe *r)
{
    switch (pick(5)) {
    case 0:
        return tow_rev(x, 1, (int[]){pick(2)});
    case 1:
        return broadcast(tow_slice_axis(x, 0, 0, 1), r);
    case 2:
        return broadcast(tow_slice_axis(x, 1, r->columns - 1, r->columns), r);
    case 3:
        if (r->rows == r->columns) return tow_transpose(x, 0, NULL);
        return tow_rev(x, 2, (int[]){0, 1});
    default: /* through another shape: elements are where they were */
        x = tow_reshape(x, 1, (int64_t[]){-1});
        x = pick(2) ? tow_neg(x) : x;
        return tow_reshape(x, 2, (int64_t[]){r->rows, r->columns});
    }
}

static tow_value unary(tow_value x)
{
    switch (pick(9)) {
    case 0:
        return tow_neg(x);
    case 1:
        return tow_tanh(x);
    case 2:
        return tow_mul_scalar(x, 0.625);
    case 3:
        return tow_abs(x);
    case 4:
        return (pick(2) ? tow_gelu(x) : tow_gelu_erf(x));
    case 5:
        return tow_add_scalar(x, -0.25);
    case 6:
        return tow_relu(x);
    case 7:
        return tow_convert(tow_convert(tow_mul_scalar(x, 7), TOW_I32), tow_value_type(x).dtype);
    default:
        return tow_logistic(x);
    }
}

static tow_value binary(tow_value x, tow_value y)
{
    switch (pick(5)) {
    case 0:
        return tow_add(x, y);
    case 1:
        return tow_sub(x, y);
    case 2:
        return tow_mul(tow_tanh(x), y);
    case 3:
        return tow_max(x, y);
    default:
        return tow_where(tow_lt(x, y), x, tow_neg(y));
    }
}

/* Over columns, rows or both. */
static tow_value reduced(tow_value x)
{
    const int n = 1 + (pick(3) == 0), first = n == 2 ? 0 : pick(2);
    switch (pick(3)) {
    case 0:
        return tow_reduce_max(x, n, (int[]){first, 1});
    case 1:
        return tow_reduce_min(x, n, (int[]){first, 1});
    default:
        return tow_reduce_sum(x, n, (int[]){first, 1});
    }
}

/* inputs: matrix, matrix, row, column, square weights */
static void record(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const recipe *r = user;
    tow_value v[64] = {in[0], in[1]};
    int n = 2;
    (void)t;
    seed = r->number * 2654435761u + 3;
    while (n < r->ops + 2) {
        tow_value x = v[pick(3) ? n - 1 : pick(n)], y = v[pick(2) ? n - 1 - pick(n < 3 ? n : 3) : pick(n)];
        switch (pick(12)) {
        case 0:
            v[n++] = rearranged(x, r);
            break;
        case 1:
            v[n++] = tow_add(x, broadcast(in[2], r));
            break;
        case 2:
            v[n++] = tow_mul(broadcast(in[3], r), x);
            break;
        case 3:
            v[n++] = tow_mul_scalar(tow_matmul(tow_tanh(x), in[4]), 0.125);
            break;
        case 4:
            v[n++] = tow_sub(x, broadcast(tow_expand_dims(tow_mean(x, 1, (int[]){1}), 1), r));
            break;
        case 5:
            v[n++] = tow_softmax(x, 1);
            break;
        case 6:
        case 7:
        case 8:
            v[n++] = unary(x);
            break;
        default:
            v[n++] = binary(x, y);
            break;
        }
    }
    for (int i = 0; i < r->n_out; i++) {
        out[i] = v[n - 1 - pick(n < 6 ? n : 6)];
        if (pick(2)) out[i] = reduced(out[i]);
    }
}

static void test_random_programs(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 1}, {3, 5}, {24, 24}, {5, 300}, {70, 20}, {300, 130}, {2, 1100}, {64, 64}};
    size_t fused_total = 0, separate_total = 0;
    for (uint32_t number = 0; number < 400; number++) {
        const int64_t *shape = shapes[number % 8];
        recipe r = {number, 3 + (int)(number / 8 % 20), 1 + (int)(number / 16 % 4), shape[0], shape[1]};
        tow_dtype dtype = number % 5 == 4 ? TOW_F64 : TOW_F32;
        tow_type types[] = {tow_make_type(dtype, 2, shape), tow_make_type(dtype, 2, shape),
                            tow_make_type(dtype, 1, &shape[1]), tow_make_type(dtype, 2, (int64_t[]){shape[0], 1}),
                            tow_make_type(dtype, 2, (int64_t[]){shape[1], shape[1]})};
        tow_graph *g = trace(record, &r, 5, types, (size_t)r.n_out);
        size_t fused, separate;
        expect_same(g, number, &fused, &separate);
        fused_total += fused;
        separate_total += separate;
        tow_graph_release(g);
    }
    print_message("bytes alive at once: %zu fused, %zu separate\n", fused_total, separate_total);
    assert_true(fused_total < separate_total * 9 / 10);
}

/* ---- worked examples --------------------------------------------------------------------------------------------- */

typedef struct plan_summary {
    uint32_t steps, fused, products; /* steps in all; programs; products with a program */
    size_t arena;
} plan_summary;

static void count_steps(const tow__body *plan, plan_summary *s)
{
    for (uint32_t i = 0; i < plan->n_insts; i++) {
        const tow__instruction *step = &plan->insts[i];
        if (step->loop) {
            count_steps(step->loop->body, s);
            continue;
        }
        s->steps++;
        s->fused += step->op == &tow__fused_p && !step->extras.reductions;
        s->products += step->op == &tow__dot_general_p && tow__row_program_of(step);
    }
}

static plan_summary summarize(tow_function function, size_t n_in, const tow_type *types, size_t n_out)
{
    tow_graph *g = trace(function, NULL, n_in, types, n_out);
    size_t fused, separate;
    expect_same(g, 0, &fused, &separate);
    tow_program *p;
    OK(tow_compile(ctx, g, NULL, &p));
    plan_summary s = {.arena = tow_program_get_bytes(p).arena};
    count_steps(p->top, &s);
    tow_program_free(p);
    tow_graph_release(g);
    return s;
}

static void adam(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    tow_value p = x[0], m = x[1], v = tow_abs(x[2]), g = x[3];
    y[1] = tow_add(tow_mul_scalar(g, 0.1), tow_mul_scalar(m, 0.9));
    y[2] = tow_add(tow_mul_scalar(tow_square(g), 0.001), tow_mul_scalar(v, 0.999));
    y[0] = tow_sub(p, tow_mul_scalar(tow_div(y[1], tow_add_scalar(tow_sqrt(y[2]), 1e-8)), 0.001));
}

static void dense(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = tow_gelu(tow_add(tow_matmul(x[0], x[1]), x[2]));
}

/* The backward pass needs what the activation read. */
static void dense_kept(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[1] = tow_add(tow_matmul(x[0], x[1]), x[2]);
    y[0] = tow_tanh(y[1]);
}

/* The plain product is read as well, and as a whole. */
static void product_kept(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    tow_value product = tow_matmul(x[0], x[1]);
    y[0] = tow_tanh(product);
    y[1] = tow_reduce_sum(product, 1, (int[]){0});
}

/* The product reads what the same chain made: the chain cannot follow it. */
static void around(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    tow_value a = tow_tanh(x[0]);
    y[0] = tow_add(a, tow_matmul(a, x[1]));
}

/* Two results in the memory of operands that die, each read by both. */
static void crossed(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    tow_value a = tow_cumsum(x[0], 0, false), b = tow_cumsum(x[1], 0, false);
    tow_value c = tow_sub(a, b), d = tow_add(tow_mul(a, tow_tanh(b)), b);
    y[0] = tow_cumsum(c, 0, true);
    y[1] = tow_cumsum(d, 0, true);
}

static void long_chain(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = x[0];
    for (int i = 0; i < 200; i++) y[0] = i % 2 ? tow_tanh(y[0]) : tow_mul_scalar(y[0], 1.5);
}

static void test_worked_examples(void **state)
{
    (void)state;
    tow_type m = matrix(300, 200), w = matrix(200, 200), row = tow_make_type(TOW_F32, 1, (int64_t[]){200});
    size_t bytes = 300 * 200 * sizeof(float);
    plan_summary s = summarize(adam, 4, (tow_type[]){m, m, m, m}, 3);
    assert_true(s.steps == 1 && s.fused == 1 && s.arena == 0);
    s = summarize(dense, 3, (tow_type[]){m, w, row}, 1);
    assert_true(s.steps == 1 && s.products == 1);
    s = summarize(dense_kept, 3, (tow_type[]){m, w, row}, 2);
    assert_true(s.steps == 1 && s.products == 1);
    s = summarize(product_kept, 2, (tow_type[]){m, w}, 2);
    assert_true(s.steps == 2 && s.products == 1);
    s = summarize(around, 2, (tow_type[]){m, w}, 1);
    assert_true(s.steps == 2 && s.products == 1);
    s = summarize(crossed, 2, (tow_type[]){m, m}, 2);
    assert_true(s.steps == 5 && s.fused == 1);
    assert_true(s.arena >= 2 * bytes && s.arena < 3 * bytes); /* a and b, overwritten by c and d */
    s = summarize(long_chain, 1, &m, 1);
    assert_true(s.steps == s.fused && s.fused > 1 && s.fused < 8);
}

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

typedef struct pair {
    int first, second, place;
} pair;
static const char *const arithmetic[] = {"add", "sub", "mul", "neg"};

static tow_value apply(int which, tow_value x, tow_value y)
{
    return which == 0 ? tow_add(x, y) : which == 1 ? tow_sub(x, y) : which == 2 ? tow_mul(x, y) : tow_neg(x);
}

static void paired(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t;
    const pair *p = user;
    tow_value inner = apply(p->first, x[0], x[1]);
    y[0] = p->place ? apply(p->second, x[2], inner) : apply(p->second, inner, x[2]);
}

/* The value between them is read again: no pair. */
static void shared(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    tow_value a = tow_mul(x[0], x[1]);
    y[0] = tow_mul(tow_add(a, x[2]), tow_tanh(a));
}

/* An operand of the first is overwritten before the second runs, or would be: bits tell. */
static void crowded(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    tow_value a = tow_tanh(x[0]), b = tow_exp(x[1]), product = tow_mul(a, b), c = tow_tanh(x[2]), d = tow_exp(c);
    for (int i = 0; i < 4; i++) c = tow_tanh(tow_sub(d, c));
    y[0] = tow_sub(c, product);
}

static void test_pairs(void **state)
{
    (void)state;
    for (int dtype = TOW_F32; dtype <= TOW_F64; dtype++) {
        tow_type m = tow_make_type((tow_dtype)dtype, 2, (int64_t[]){37, 130}), types[] = {m, m, m};
        size_t fused, separate;
        for (int k = 0; k < 4 * 3 * 2; k++) {
            pair p = {k % 4, k / 4 % 3, k / 12};
            char name[32];
            snprintf(name, sizeof name, "(%s + %s)(", arithmetic[p.first], arithmetic[p.second]);
            tow_graph *g = trace(paired, &p, 3, types, 1);
            expect_same(g, (uint32_t)k, &fused, &separate);
            assert_int_equal(says(g, name), dtype == TOW_F32);
            tow_program *program;
            OK(tow_compile(ctx, g, NULL, &program));
            assert_int_equal(tow_program_operation_count(program, NULL), 2);
            assert_int_equal(tow_program_operation_count(program, arithmetic[p.first]), 1 + (p.first == p.second));
            tow_program_free(program);
            tow_graph_release(g);
        }
        tow_graph *g = trace(shared, NULL, 3, types, 1);
        expect_same(g, 100, &fused, &separate);
        assert_false(says(g, "mul + add"));
        tow_graph_release(g);
        g = trace(crowded, NULL, 3, types, 1);
        expect_same(g, 101, &fused, &separate);
        tow_graph_release(g);
    }
}

/* ---- a row for all rows ------------------------------------------------------------------------------------------ */

enum {
    FUNCTIONS = 4
};
static const char *const functions[FUNCTIONS] = {"tanh", "logistic", "silu", "relu"};
static tow_value function_of(int which, tow_value x)
{
    return which == 0 ? tow_tanh(x) : which == 1 ? tow_logistic(x) : which == 2 ? tow_silu(x) : tow_relu(x);
}

/* in: x [m, k], w [k, n], bias [n], mask [n]; with the product, or with x for it where k = n */
static void biased(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t;
    const int which = *(const int *)user % FUNCTIONS, product = *(const int *)user / FUNCTIONS;
    tow_value z = product ? tow_dot(x[0], x[1]) : x[0];
    y[0] = tow_mul(function_of(which, tow_add(z, x[2])), x[3]);
}

/* Rows that fill no tile, tiles exactly, a part of one, or more than the columns that a product hands on at a time. */
static void test_rows_in_common(void **state)
{
    (void)state;
    static const int64_t widths[] = {1, 2, 7, 64, 100, 127, 128, 129, 200, 250, 255, 256, 300};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        for (int k = 0; k < 2 * FUNCTIONS; k++) {
            const int64_t n = widths[i], depth = k / FUNCTIONS ? 33 : n;
            size_t fused, separate;
            tow_type row = tow_make_type(TOW_F32, 1, &n);
            tow_type types[] = {tow_make_type(TOW_F32, 2, (int64_t[]){91, depth}),
                                tow_make_type(TOW_F32, 2, (int64_t[]){depth, n}), row, row};
            tow_graph *g = trace(biased, &k, 4, types, 1);
            char name[32];
            snprintf(name, sizeof name, "add + %s", functions[k % FUNCTIONS]);
            expect_same(g, (uint32_t)(i * 10) + (uint32_t)k, &fused, &separate);
            assert_true(says(g, name));
            tow_graph_release(g);
        }
    }
}

/* ---- activations and slopes -------------------------------------------------------------------------------------- */

/* Between the two is nothing, or ops that take and give back temporaries, and read the first result. */
static tow_graph *with_slope(const char *dtype, const char *first, const char *second, const char *of, int between)
{
    char text[4096];
    tow_graph *g = NULL;
    size_t n = (size_t)snprintf(text, sizeof text,
                                "{ lambda ; a:%s[37,130]\"a\" b:%s[37,130]\"b\". let\n"
                                "    x:%s[37,130] = add a b\n    z:%s[37,130] = mul a b\n    u:%s[37,130] = %s x\n"
                                "    r0:%s[37,130] = sub u x\n",
                                dtype, dtype, dtype, dtype, dtype, first, dtype);
    for (int i = 0; i < between; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "    r%d:%s[37,130] = tanh r%d\n", i + 1, dtype, i);
    n += (size_t)snprintf(text + n, sizeof text - n,
                          "    v:%s[37,130] = %s %s\n    q:%s[37,130] = add r%d u\n  in (u, v, q) }", dtype, second, of,
                          dtype, between);
    assert_true(n < sizeof text);
    OK(tow_graph_parse(ctx, text, &g));
    return g;
}

static void test_slopes(void **state)
{
    (void)state;
    static const struct {
        const char *value, *slope, *text;
    } f[] = {{"gelu[approximate=true]", "gelu_grad[approximate=true]", "gelu + gelu_grad"},
             {"gelu[approximate=false]", "gelu_grad[approximate=false]", "gelu + gelu_grad"}};
    size_t fused, separate;
    for (int k = 0; k < 2 * 2 * 2 * 3; k++) {
        const int which = k % 2, turned = k / 2 % 2, doubled = k / 4 % 2, between = k / 8;
        tow_graph *g = with_slope(doubled ? "f64" : "f32", turned ? f[which].slope : f[which].value,
                                  turned ? f[which].value : f[which].slope, "x", between);
        expect_same(g, (uint32_t)k, &fused, &separate);
        assert_int_equal(says(g, f[which].text), !doubled);
        tow_program *program;
        OK(tow_compile(ctx, g, NULL, &program));
        assert_int_equal(tow_program_operation_count(program, "gelu"), 1);
        assert_int_equal(tow_program_operation_count(program, "gelu_grad"), 1);
        assert_int_equal(tow_program_operation_count(program, NULL), 5 + between);
        tow_program_free(program);
        tow_graph_release(g);
    }
    tow_graph *g = with_slope("f32", f[0].value, f[0].slope, "z", 0); /* of something else */
    expect_same(g, 50, &fused, &separate);
    assert_false(says(g, f[0].text));
    tow_graph_release(g);
    g = with_slope("f32", f[0].value, f[1].slope, "x", 0); /* of another function */
    expect_same(g, 51, &fused, &separate);
    assert_false(says(g, f[0].text));
    tow_graph_release(g);
}

static tow__fused_op op_of(tow__function function, uint8_t in, uint8_t out)
{
    static const tow__gelu_params params = {true};
    return (tow__fused_op){
        .function = function, .params = &params, .dtype = TOW_F32, .n_in = 1, .n_out = 1, .in = {in}, .out = {out}};
}

/* Values 0 and 1 are operands, 2 and 3 results, the others temporaries. The slope moves to its function only over ops
 * that leave alone what it reads and makes. */
static void test_slopes_in_the_way(void **state)
{
    (void)state;
    const struct {
        tow__fused_op ops[3];
        bool joins;
    } cases[] = {
        {{op_of(TOW__FN_gelu, 0, 2), op_of(TOW__FN_tanh, 1, 4), op_of(TOW__FN_gelu_grad, 0, 3)}, true},
        {{op_of(TOW__FN_gelu_grad, 0, 3), op_of(TOW__FN_tanh, 1, 4), op_of(TOW__FN_gelu, 0, 2)}, true},
        {{op_of(TOW__FN_gelu, 4, 2), op_of(TOW__FN_tanh, 1, 5), op_of(TOW__FN_gelu_grad, 4, 4)},
         true}, /* takes the place of x */
        {{op_of(TOW__FN_gelu, 0, 3), op_of(TOW__FN_tanh, 1, 4), op_of(TOW__FN_gelu_grad, 0, 3)},
         false}, /* overwrites the value */
        {{op_of(TOW__FN_gelu, 0, 2), op_of(TOW__FN_tanh, 3, 4), op_of(TOW__FN_gelu_grad, 0, 3)},
         false}, /* reads what it will make */
        {{op_of(TOW__FN_gelu, 0, 2), op_of(TOW__FN_tanh, 1, 3), op_of(TOW__FN_gelu_grad, 0, 3)},
         false}, /* makes the same */
        {{op_of(TOW__FN_gelu, 4, 2), op_of(TOW__FN_tanh, 1, 4), op_of(TOW__FN_gelu_grad, 4, 3)},
         false}, /* makes what it reads */
        {{op_of(TOW__FN_gelu, 4, 4), op_of(TOW__FN_tanh, 1, 5), op_of(TOW__FN_gelu_grad, 4, 3)},
         false}, /* so does the function */
        {{op_of(TOW__FN_gelu, 0, 2), op_of(TOW__FN_tanh, 1, 4), op_of(TOW__FN_gelu_grad, 1, 3)}, false},
        {{op_of(TOW__FN_gelu, 0, 2), op_of(TOW__FN_tanh, 1, 4), op_of(TOW__FN_silu_grad, 0, 3)}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow__fused_op ops[3];
        memcpy(ops, cases[i].ops, sizeof ops);
        assert_int_equal(tow__join_ops(ops, 3, 4, (bool[TOW__FUSED_VALUES]){false}), cases[i].joins ? 2 : 3);
        if (!cases[i].joins) continue;
        const tow__fused_op *value = &cases[i].ops[i == 1 ? 2 : 0], *slope = &cases[i].ops[i == 1 ? 0 : 2];
        assert_true(ops[0].n_out == 2 && ops[0].in[0] == value->in[0]);
        assert_true(ops[0].out[0] == value->out[0] && ops[0].out[1] == slope->out[0]);
        assert_int_equal(ops[1].function, TOW__FN_tanh);
    }
}

/* ---- sums over the steps of a scan ------------------------------------------------------------------------------- */

typedef enum sum_kind {
    ADDS,        /* the product's kernel adds to the carry where it lies */
    READ_LATER,  /* it adds to a copy: the old carry is read after it */
    TURNED,      /* rows of x are columns */
    KEPT,        /* from here on it does not: others read the product: */
    KEPT_INSIDE, /* in the same step only */
    NEGATED,
    SCALED,
    SQUARED,
    TWICE
} sum_kind;

typedef struct sum {
    int64_t rows; /* of x and y in a step */
    sum_kind kind;
} sum;

/* in: sum [70, 50], x [rows, 70], y [rows, 50] */
static void sum_step(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    const sum *s = user;
    tow_value c = in[0],
              p = tow_dot_general(in[1], in[2], (tow_dot_dims){.n_contract = 1, .lhs_contract = {s->kind == TURNED}});
    out[1] = tow_reduce_sum(in[2], 1, (int[]){1});
    if (s->kind == KEPT) out[1] = p;
    if (s->kind == KEPT_INSIDE) out[1] = tow_reduce_sum(p, 1, (int[]){0});
    if (s->kind == NEGATED) p = tow_neg(p);
    if (s->kind == SCALED) p = tow_mul(p, c);
    if (s->kind == SQUARED) c = tow_mul(c, c);
    if (s->kind == TWICE) c = tow_sub(c, p), p = in[0];
    out[0] = s->rows % 2 ? tow_add(p, c) : tow_add(c, p);
    if (s->kind == READ_LATER) out[1] = tow_reduce_sum(in[0], 1, (int[]){0});
}

static void sum_scan(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_scan_function(t, sum_step, user, NULL, 1, in, 2, in + 1, 1, out, out + 1);
}

static void count_adding(const tow__body *plan, int *adding, int *alternating)
{
    for (uint32_t i = 0; i < plan->n_insts; i++) {
        const tow__instruction *step = &plan->insts[i];
        if (step->kernel) *adding += step->kernel->variant == TOW__ADDING;
        if (!step->loop) continue;
        for (uint32_t j = 0; j < step->loop->n_carry; j++)
            *alternating += step->loop->carry[j].storage != TOW__CARRY_IN_PLACE;
        count_adding(step->loop->body, adding, alternating);
    }
}

static void test_sums(void **state)
{
    (void)state;
    static const sum sums[] = {{64, ADDS},   {101, ADDS},       {384, ADDS},    {101, READ_LATER}, {90, TURNED},
                               {99, KEPT},   {64, KEPT_INSIDE}, {100, NEGATED}, {70, SCALED},      {101, SQUARED},
                               {101, TWICE}, {1000, ADDS},      {0, KEPT},      {1, ADDS}};
    for (uint32_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        sum s = sums[i];
        const int64_t x[] = {5, s.kind == TURNED ? 70 : s.rows, s.kind == TURNED ? s.rows : 70};
        tow_graph *g = trace(sum_scan, &s, 3,
                             (tow_type[]){tow_make_type(TOW_F32, 2, (int64_t[]){70, 50}), tow_make_type(TOW_F32, 3, x),
                                          tow_make_type(TOW_F32, 3, (int64_t[]){5, s.rows, 50})},
                             2);
        size_t fused, separate;
        tow_program *p;
        int adding = 0, alternating = 0;
        expect_same(g, i, &fused, &separate);
        OK(tow_compile(ctx, g, &TOW_COMPILE_OPTIONS(.threads = 2, .plan_only = true), &p));
        count_adding(p->top, &adding, &alternating);
        const bool one_block = s.rows >= 64 && s.rows <= 384; /* with fewer rows the sum leaves the scan */
        assert_int_equal(adding, s.kind <= TURNED && one_block);
        if (s.kind == ADDS) assert_int_equal(alternating, s.rows > 384);
        if (s.kind == READ_LATER) assert_int_equal(alternating, 1);
        tow_program_free(p);
        tow_graph_release(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_random_programs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_worked_examples, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pairs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rows_in_common, setup, teardown),
        cmocka_unit_test_setup_teardown(test_slopes, setup, teardown),
        cmocka_unit_test(test_slopes_in_the_way),
        cmocka_unit_test_setup_teardown(test_sums, setup, teardown),
    };
    return cmocka_run_group_tests_name("fusion", tests, NULL, NULL);
}
