/* Single-precision attention: every instruction set that this CPU has gives the same bits, forward and backward, and
 * the bits of a sequence do not depend on the others in the batch. Operands of 16 bits have the bits of f32, or those
 * of a unit for bf16 and its emulation. Double precision: products as the context says.
 * Tests attention*.c. */
#include "tests/unit/support/kernels.h"
#include "tests/unit/support/tried.h"

#include "src/kernels/attention/attention.h"
#include "tow/program.h"

typedef struct shape {
    int64_t b, t, s, h, g, d, e;
    bool causal, masked;
    layout keys;
    int64_t window;
    double cap;
    bool biased, shifted; /* by S / 2 + 7 i - 3 in sequence i */
} shape;

static const shape shapes[] = {
    {1, 1, 1, 1, 1, 1, 1, false, false, SPACED},
    {1, 70, 70, 2, 1, 64, 64, true, false, SPACED},
    {1, 70, 67, 2, 1, 20, 33, false, true, SPACED},
    {2, 33, 140, 1, 1, 32, 16, true, true, SPACED},
    {1, 200, 90, 1, 1, 48, 80, true, false, SPACED},
    {1, 2, 5000, 1, 1, 16, 8, true, false, SPACED},
    {2, 150, 150, 2, 1, 48, 112, true, false, ROW_MAJOR}, /* keys in place */
    {1, 100, 256, 2, 2, 160, 48, false, true, ROW_MAJOR},
    {2, 90, 90, 1, 1, 16, 16, true, false, SPACED, 20}, /* strips that begin far behind key 0 */
    {1, 6, 2200, 1, 1, 16, 20, true, true, SPACED, 2100, 1.5, true},
    {2, 66, 60, 2, 1, 24, 16, false, false, ROW_MAJOR, 5, 0.5, true, true},
    {2, 3, 400, 4, 2, 32, 32, true, false, SPACED, 0, 0, false, true}, /* a cache of 400 rows */
    {2, 1, 400, 2, 2, 32, 20, true, false, SPACED, 64, 0, false, true},
};

typedef struct operands {
    tow__buffer q, k, v, mask, bias, offset, out, lse, ct, grads[3];
} operands;

static operands make_operands_of(const shape *c, tow_dtype dtype)
{
    operands x = {.q = random_operand(dtype, SHAPE(c->b, c->t, c->h, c->d), ROW_MAJOR),
                  .k = random_operand(dtype, SHAPE(c->b, c->s, c->g, c->d), c->keys),
                  .v = random_operand(dtype, SHAPE(c->b, c->s, c->g, c->e), ROW_MAJOR),
                  .mask = random_operand(TOW_BOOL, SHAPE(c->b, 1, c->t, c->s), ROW_MAJOR),
                  .bias = random_operand(dtype, SHAPE(c->b, c->h, 1, c->s), ROW_MAJOR),
                  .offset = make(TOW_I32, SHAPE(c->b), ROW_MAJOR),
                  .out = make(dtype, SHAPE(c->b, c->t, c->h, c->e), ROW_MAJOR),
                  .lse = make(TOW_F32, SHAPE(c->b, c->h, c->t), ROW_MAJOR),
                  .ct = random_operand(dtype, SHAPE(c->b, c->t, c->h, c->e), ROW_MAJOR)};
    for (int i = 0; i < c->b; i++) ((int32_t *)x.offset.data)[i] = 7 * i - 3 + (int32_t)(c->s / 2);
    x.grads[0] = make(dtype, SHAPE(c->b, c->t, c->h, c->d), ROW_MAJOR);
    x.grads[1] = make(dtype, SHAPE(c->b, c->s, c->g, c->d), ROW_MAJOR);
    x.grads[2] = make(dtype, SHAPE(c->b, c->s, c->g, c->e), ROW_MAJOR);
    return x;
}

static operands make_operands(const shape *c) { return make_operands_of(c, TOW_F32); }

static tow__heads heads_of(const tow__buffer *x)
{
    return (tow__heads){x->data, x->dtype, x->dims[3], x->strides[0], x->strides[1], x->strides[2], x->strides[3]};
}

static tow__attention_job job_of(const shape *c, const operands *x, bool backward)
{
    return (tow__attention_job){.dtype = TOW_F32,
                                .result = x->q.dtype,
                                .causal = c->causal,
                                .backward = backward,
                                .scale = 0.3,
                                .cap = c->cap,
                                .window = c->window,
                                .batches = c->b,
                                .t = c->t,
                                .s = c->s,
                                .heads = c->h,
                                .groups = c->g,
                                .strips = tow__ceil_div(c->t, TOW__STRIP),
                                .q = heads_of(&x->q),
                                .k = heads_of(&x->k),
                                .v = heads_of(&x->v),
                                .o = heads_of(&x->out),
                                .ct = heads_of(&x->ct),
                                .lse = x->lse,
                                .mask = c->masked ? &x->mask : NULL,
                                .bias = c->biased ? &x->bias : NULL,
                                .offset = c->shifted ? &x->offset : NULL,
                                .out = x->out.data,
                                .lse_out = x->lse.data,
                                .dq = x->grads[0].data,
                                .dk = x->grads[1].data,
                                .dv = x->grads[2].data};
}

/* Memory of a job, behind which nobody may write. */
static char *memory_of(const tow__attention_code *code, const tow__attention_job *job)
{
    return take(code->bytes(job) + 64);
}
static void assert_within(const tow__attention_code *code, const tow__attention_job *job, const char *memory)
{
    for (size_t i = 0; i < 64; i++) assert_int_equal((unsigned char)memory[code->bytes(job) + i], 0xA5);
}

static void run_forward(const tow__attention_code *code, const shape *c, const operands *x,
                        const tow__gemm_bf16_version *unit)
{
    tow__attention_job job = job_of(c, x, false);
    job.unit = unit;
    char *memory = memory_of(code, &job);
    for (int64_t i = 0; i < c->b * c->h; i++) code->forward(&job, i / c->h, i % c->h, 0, job.strips, memory);
    assert_within(code, &job, memory);
}

/* wrt: bits of the queries, the keys and the values. */
static void run_backward(const tow__attention_code *code, const shape *c, const operands *x,
                         const tow__gemm_bf16_version *unit, int wrt)
{
    tow__attention_job job = job_of(c, x, true);
    job.unit = unit;
    if (!(wrt & 1)) job.dq = NULL;
    if (!(wrt & 2)) job.dk = NULL;
    if (!(wrt & 4)) job.dv = NULL;
    char *memory = memory_of(code, &job);
    for (int64_t i = 0; i < c->b * c->g; i++) code->backward(&job, i / c->g, i % c->g, memory);
    assert_within(code, &job, memory);
}

static void run_all(const tow__attention_code *code, const shape *c, const operands *x)
{
    run_forward(code, c, x, NULL);
    run_backward(code, c, x, NULL, 7);
}

/* Plain C, whose multiply-adds are calls, computes the smaller ones. */
static bool is_small(const shape *c) { return c->b * c->h * c->t * c->s * (c->d + c->e) < 700000; }

static void instruction_sets_agree(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const shape *c = &shapes[i];
        if (SLOWDOWN > 1 && i % 3 > 0) continue;
        operands x = make_operands(c), y = x;
        y.out = make(TOW_F32, 4, x.out.dims, ROW_MAJOR);
        y.lse = make(TOW_F32, 3, x.lse.dims, ROW_MAJOR);
        for (int j = 0; j < 3; j++) y.grads[j] = make(TOW_F32, 4, x.grads[j].dims, ROW_MAJOR);
        run_all(tow__attention_f32(0), c, &x);
        for (int choice = 1; tow__attention_f32(choice) != NULL; choice++) {
            if (tow__attention_f32(choice + 1) == NULL && !is_small(c)) break;
            run_all(tow__attention_f32(choice), c, &y);
            assert_equal_bits(&x.out, &y.out, "out");
            assert_equal_bits(&x.lse, &y.lse, "lse");
            for (int j = 0; j < 3; j++) assert_equal_bits(&x.grads[j], &y.grads[j], "gradient");
        }
        release_all();
    }
}

/* The last sequence alone, as a block of a region has it. */
static void sequences_are_independent(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        shape c = shapes[i], one = c;
        if (SLOWDOWN > 1 && i % 3 != 1) continue;
        operands x = make_operands(&c), last = x;
        run_all(tow__attention_f32(0), &c, &x);
        one.b = 1;
        tow__buffer *views[] = {&last.q,      &last.k,   &last.v,  &last.mask, &last.bias,
                                &last.offset, &last.out, &last.ct, &last.lse};
        for (size_t j = 0; j < sizeof views / sizeof *views; j++) {
            views[j]->data =
                (char *)views[j]->data + (size_t)((c.b - 1) * views[j]->strides[0]) * tow_dtype_size(views[j]->dtype);
            views[j]->dims[0] = 1;
        }
        const tow__buffer results[2] = {last.out, last.lse};
        tow__buffer *own[2] = {&last.out, &last.lse};
        for (int j = 0; j < 2; j++) own[j]->data = take((size_t)count_of(own[j]) * sizeof(float));
        for (int j = 0; j < 3; j++) {
            last.grads[j] = x.grads[j];
            last.grads[j].dims[0] = 1;
            last.grads[j].data = take((size_t)count_of(&last.grads[j]) * sizeof(float));
        }
        run_all(tow__attention_f32(0), &one, &last);
        for (int j = 0; j < 2; j++) assert_equal_bits(&results[j], own[j], j ? "lse" : "out");
        for (int j = 0; j < 3; j++) {
            tow__buffer want = x.grads[j];
            want.data = (float *)want.data + (c.b - 1) * want.strides[0];
            want.dims[0] = 1;
            assert_equal_bits(&want, &last.grads[j], "gradient");
        }
        release_all();
    }
}

/* Keys that a query does not see do not matter, however many cuts the keys of the last queries have. */
static void later_keys_do_not_matter(void **state)
{
    (void)state;
    shape all = {1, 2100, 2100, 1, 1, 16, 16, true, false, ROW_MAJOR},
          first = {1, 2040, 2040, 1, 1, 16, 16, true, false, ROW_MAJOR};
    operands x = make_operands(&all), y = x;
    tow__buffer *operands_of_y[] = {&y.q, &y.k, &y.v, &y.out, &y.ct};
    for (size_t i = 0; i < 5; i++) operands_of_y[i]->dims[1] = first.t;
    y.out = make(TOW_F32, 4, y.out.dims, ROW_MAJOR);
    y.lse = make(TOW_F32, SHAPE(1, 1, first.t), ROW_MAJOR);
    y.grads[0] = make(TOW_F32, 4, y.q.dims, ROW_MAJOR);
    run_all(tow__attention_f32(0), &all, &x);
    run_all(tow__attention_f32(0), &first, &y);
    x.out.dims[1] = x.grads[0].dims[1] = x.lse.dims[2] = first.t;
    assert_equal_bits(&x.out, &y.out, "out");
    assert_equal_bits(&x.lse, &y.lse, "lse");
    assert_equal_bits(&x.grads[0], &y.grads[0], "gradient of queries");
    release_all();
}

/* One query and one key, whose log-sum-exp is the logit: -(1 + 2^-29) + (1 + 2^-30)^2, of which 2^-60 is left where
 * products are not rounded before they are added, as in the own kernel and BLIS, and nothing in the reference. */
static void double_precision_takes_the_products_of_the_context(void **state)
{
    (void)state;
    static const tow_context_options options[] = {
        TOW_CONTEXT_OPTIONS(.portable_bits = true), TOW_CONTEXT_OPTIONS(.engine = "reference"),
        TOW_CONTEXT_OPTIONS(.engine = "-blis"), TOW_CONTEXT_OPTIONS(.engine = "-own,-blis")};
    const char *text = "{ lambda ; q:f64[1,1,1,2]\"q\" k:f64[1,1,1,2]\"k\" v:f64[1,1,1,1]\"v\". let\n"
                       "    out:f64[1,1,1,1] lse:f64[1,1,1] = attention[causal=false scale=1.0] q k v\n"
                       "  in (lse) }";
    double q[2] = {1, 1 + 0x1p-30}, k[2] = {-(1 + 0x1p-29), 1 + 0x1p-30}, v[1] = {1};
    double *const data[3] = {q, k, v};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        tow_context *ctx = NULL;
        tow_graph *graph = NULL;
        tow_array *in[3] = {NULL}, *out = NULL;
        if (i > 1 && tow_context_options_check(&options[i], NULL, 0) > 0) continue; /* there is no BLIS */
        assert_int_equal(tow_context_create(&options[i], &ctx), TOW_OK);
        assert_int_equal(tow_graph_parse(ctx, text, &graph), TOW_OK);
        for (size_t j = 0; j < 3; j++)
            assert_int_equal(tow_array_borrow(ctx, tow_graph_input_type(graph, j), data[j], &in[j]), TOW_OK);
        assert_int_equal(tow_evaluate(graph, in, &out), TOW_OK);
        assert_true(*(const double *)tow_array_data(out) == (i % 2 ? 0 : 0x1p-60));
        for (size_t j = 0; j < 3; j++) tow_array_release(in[j]);
        tow_array_release(out);
        tow_graph_release(graph);
        tow_context_free(ctx);
    }
}

/* ---- operands of 16 bits ----------------------------------------------------------------------------------------- */

/* The same numbers as f32. */
static tow__buffer widened(const tow__buffer *x)
{
    tow__buffer y = make(TOW_F32, x->rank, x->dims, ROW_MAJOR);
    for (int64_t i = 0; i < count_of(x); i++) set(&y, i, get(x, i));
    return y;
}

static operands widened_operands(const shape *c, const operands *x)
{
    operands y = make_operands(c);
    y.q = widened(&x->q), y.k = widened(&x->k), y.v = widened(&x->v);
    y.mask = x->mask, y.bias = widened(&x->bias), y.ct = widened(&x->ct);
    return y;
}

static void assert_rounded(const tow__buffer *wide, const tow__buffer *half, const char *what)
{
    tow__buffer want = make(half->dtype, half->rank, half->dims, ROW_MAJOR);
    for (int64_t i = 0; i < count_of(half); i++) set(&want, i, get(wide, i));
    assert_equal_bits(&want, half, what);
}

static const char *const gradients[] = {"dq", "dk", "dv"};

static void check_halves(const shape *c, tow_dtype dtype, int wrt)
{
    const tow__attention_code *code = tow__attention_f32(0);
    operands x = make_operands_of(c, dtype), y = widened_operands(c, &x);
    run_forward(code, c, &x, NULL);
    run_forward(code, c, &y, NULL);
    assert_rounded(&y.out, &x.out, "out");
    assert_equal_bits(&y.lse, &x.lse, "lse");
    y.out = widened(&x.out); /* the backward pass reads what was kept */
    run_backward(code, c, &x, NULL, wrt);
    run_backward(code, c, &y, NULL, wrt);
    for (int i = 0; i < 3; i++)
        if (wrt >> i & 1) assert_rounded(&y.grads[i], &x.grads[i], gradients[i]);
    release_all();
}

/* The bits of f32 on the same numbers, each result rounded once. */
static void halves_are_read_and_written_as_stored(void **state)
{
    static const size_t some[] = {0, 1, 2, 4, 6, 8, 10, 12};
    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        check_halves(&shapes[some[i]], TOW_BF16, i % 3 ? 7 : 1 + (int)i % 7);
        check_halves(&shapes[some[i]], TOW_F16, i % 2 ? 7 : 6);
    }
}

/* ---- units for bf16 ---------------------------------------------------------------------------------------------- */

/* With the loops of plain C around emulated units, and of the best instruction set around units that are there. */
typedef struct pair {
    const tow__gemm_bf16_version *emulated, *unit;
} pair;

static const pair pairs[] = {
#ifdef TOW__BF16_UNITS
    {&tow__gemm_bf16_amx_emulated, &tow__gemm_bf16_amx},
    {&tow__gemm_bf16_dots_emulated, &tow__gemm_bf16_dots},
#else
    {&tow__gemm_bf16_amx_emulated, &tow__gemm_bf16_amx_emulated},
    {&tow__gemm_bf16_dots_emulated, &tow__gemm_bf16_dots_emulated},
#endif
};

static const tow__attention_code *plain_code(void)
{
    int choice = 0;
    while (tow__attention_f32(choice + 1) != NULL) choice++;
    return tow__attention_f32(choice);
}

static const shape for_units[] = {
    {1, 66, 66, 2, 1, 64, 32, true, false, SPACED},
    {1, 70, 67, 2, 1, 40, 33, false, true, SPACED},
    {2, 33, 70, 1, 1, 32, 16, true, true, ROW_MAJOR},
    {1, 68, 68, 1, 1, 32, 48, true, false, SPACED, 20},
    {1, 66, 40, 1, 1, 36, 16, false, false, ROW_MAJOR, 5, 0.5, true, true},
    {1, 3, 2100, 1, 1, 32, 16, true, false, ROW_MAJOR},
};

static operands with_own_results(const operands *x)
{
    operands y = *x;
    y.out = make(x->out.dtype, 4, x->out.dims, ROW_MAJOR);
    y.lse = make(TOW_F32, 3, x->lse.dims, ROW_MAJOR);
    for (int j = 0; j < 3; j++) y.grads[j] = make(x->out.dtype, 4, x->grads[j].dims, ROW_MAJOR);
    return y;
}

static void units_have_the_bits_of_their_emulations(void **state)
{
    (void)state;
    for (size_t i = 0; i <= sizeof for_units / sizeof *for_units; i++) {
        const shape *c = &for_units[i > 0 ? i - 1 : 0];
        const pair *p = &pairs[i % 2];
        if (SLOWDOWN > 1 && i % 3 > 0) continue;
        operands x = make_operands_of(c, TOW_BF16), y = with_own_results(&x);
        const bool there = p->unit->usable();
        run_forward(plain_code(), c, &x, p->emulated);
        run_backward(plain_code(), c, &x, p->emulated, 7);
        run_forward(tow__attention_f32(0), c, &y, there ? p->unit : p->emulated);
        run_backward(tow__attention_f32(0), c, &y, there ? p->unit : p->emulated, 7);
        assert_equal_bits(&x.out, &y.out, "out");
        assert_equal_bits(&x.lse, &y.lse, "lse");
        for (int j = 0; j < 3; j++) assert_equal_bits(&x.grads[j], &y.grads[j], gradients[j]);
        release_all();
    }
}

/* The root of the mean square of the differences is at most 2^-8 of that of the numbers: probabilities and cotangents
 * of logits have 8 bits, and so have the results, whose errors are less than half of that each. */
static void assert_near(const tow__buffer *want, const tow__buffer *got, const char *what)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < count_of(want); i++) {
        const double x = get(want, i), y = get(got, i);
        difference += (x - y) * (x - y), size += x * x;
    }
    if (!(difference <= size * 0x1p-16)) fail_msg("%s: %g of %g", what, sqrt(difference), sqrt(size));
}

static void units_are_near_f32(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof for_units / sizeof *for_units; i++) {
        const shape *c = &for_units[i];
        const tow__attention_code *code = tow__attention_f32(0);
        const tow__gemm_bf16_version *unit = pairs[0].unit->usable() ? pairs[0].unit : pairs[0].emulated;
        operands x = make_operands_of(c, TOW_BF16), y = widened_operands(c, &x);
        run_forward(code, c, &x, unit);
        run_forward(code, c, &y, NULL);
        assert_near(&y.out, &x.out, "out");
        y.out = widened(&x.out);
        run_backward(code, c, &x, unit, 7);
        run_backward(code, c, &y, NULL, 7);
        for (int j = 0; j < 3; j++) assert_near(&y.grads[j], &x.grads[j], gradients[j]);
        release_all();
    }
}

static void units_make_each_gradient_alone(void **state)
{
    const shape *c = &for_units[3];
    const int step = SLOWDOWN > 1 ? 3 : 1;
    (void)state;
    for (int wrt = 1; wrt < 7; wrt += step) {
        operands x = make_operands_of(c, TOW_BF16), y;
        run_forward(tow__attention_f32(0), c, &x, pairs[0].emulated);
        y = with_own_results(&x);
        y.out = x.out, y.lse = x.lse;
        run_backward(tow__attention_f32(0), c, &x, pairs[0].emulated, 7);
        run_backward(tow__attention_f32(0), c, &y, pairs[0].emulated, wrt);
        for (int j = 0; j < 3; j++)
            if (wrt >> j & 1) assert_equal_bits(&x.grads[j], &y.grads[j], gradients[j]);
        release_all();
    }
}

static const tow__gemm_bf16_version *unit_of(int64_t t, int64_t s, int64_t d, tow_dtype dtype,
                                             const tow__gemm_choice *choice)
{
    tow__attention_job job = {.t = t, .s = s, .products = choice};
    job.q = job.k = job.v = (tow__heads){.dtype = dtype, .width = d};
    return tow__attention_unit(&job);
}

/* Not by portable bits, for other types, nor for a few queries, keys or features. */
static void the_rule_gives_units_bf16(void **state)
{
    const tow__gemm_choice unit = {.matrix_unit = true}, portable = {.matrix_unit = true, .portable = true};
    (void)state;
#ifdef TOW__BF16_UNITS
    assert_ptr_equal(unit_of(256, 256, 64, TOW_BF16, &unit), &tow__gemm_bf16_amx);
    assert_ptr_equal(unit_of(256, 256, 64, TOW_BF16, &(tow__gemm_choice){.dots = true}), &tow__gemm_bf16_dots);
#endif
    assert_null(unit_of(256, 256, 64, TOW_BF16, &portable));
    assert_null(unit_of(256, 256, 64, TOW_BF16, NULL));
    assert_null(unit_of(256, 256, 64, TOW_F16, &unit));
    assert_null(unit_of(256, 256, 64, TOW_F32, &unit));
    assert_null(unit_of(1, 256, 64, TOW_BF16, &unit));
    assert_null(unit_of(256, 8, 64, TOW_BF16, &unit));
    assert_null(unit_of(256, 256, 16, TOW_BF16, &unit));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(instruction_sets_agree),
                                       cmocka_unit_test(halves_are_read_and_written_as_stored),
                                       cmocka_unit_test(units_have_the_bits_of_their_emulations),
                                       cmocka_unit_test(units_are_near_f32),
                                       cmocka_unit_test(units_make_each_gradient_alone),
                                       cmocka_unit_test(the_rule_gives_units_bf16),
                                       cmocka_unit_test(sequences_are_independent),
                                       cmocka_unit_test(later_keys_do_not_matter),
                                       cmocka_unit_test(double_precision_takes_the_products_of_the_context)};
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
