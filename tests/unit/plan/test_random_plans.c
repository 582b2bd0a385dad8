/* Plans of random programs (views of views, scans of every kind, nested) against an interpreter written with plain
 * loops; no allocation while running; every allocation failing in turn. The interpreter rounds where the program
 * rounds, so results are equal, not close. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/failing_compiles.h"
#include "tests/unit/support/pick.h"
#include "tests/unit/support/threaded_context.h"
#include "tow/autodiff.h"
#include "tow/ops.h"
#include "tow/program.h"

static tow_type f32(int rank, int64_t a, int64_t b, int64_t c)
{
    return tow_make_type(TOW_F32, rank, (int64_t[]){a, b, c});
}

/* ---- tapes: random programs on matrices [N, N] and stacks of them [length, N, N] --------------------------------- */

/* more cells than a tile of an elementwise kernel, which would hide a wrong overwrite */
enum {
    N = 23,
    CELLS = N * N,
    MOST_LENGTH = 5,
    MOST = 24,
    MOST_SUB = 4
};

typedef enum kind {
    NEG,
    ADD,
    SUB,
    MAX,
    HALF,
    TRANSPOSE,
    REV_ROWS,
    REV_FIRST,
    ROW,
    FLAT,
    REDUCE,
    CUT,
    NAME,
    SCAN,
    KINDS
} kind;

typedef struct value {
    bool stacked;
    float cells[MOST_LENGTH * CELLS];
} value;

typedef struct op {
    kind kind;
    int a, b;
    /* SCAN: the body's inputs are the carries, rows of xs, and all values of the surrounding tape */
    struct tape *body;
    int n_carry, n_xs, n_ys, init[3], xs[3];
    bool reverse;
} op;

typedef struct tape {
    int length, n_in, n_ops, n_values, n_out;
    bool stacked[2 * MOST + 8];
    op ops[MOST];
    int first[MOST]; /* value number of the op's first result */
    int out[8];
} tape;

/* A value of the wanted kind, preferably a recent one; -1 if there is none. */
static int pick_value(const tape *t, bool stacked)
{
    for (int tries = 0; tries < 30; tries++) {
        int v = pick(2) ? t->n_values - 1 - pick(t->n_values < 4 ? t->n_values : 4) : pick(t->n_values);
        if (t->stacked[v] == stacked) return v;
    }
    return -1;
}

static tape *make_tape(int length, int n_in, const bool *stacked, int n_ops, int depth);

static bool make_scan(tape *t, op *o, int depth)
{
    bool inputs[2 * MOST + 8 + 6];
    int n = 0;
    o->n_carry = pick(4);
    o->n_xs = pick(3);
    o->n_ys = pick(4);
    if (o->n_carry + o->n_ys == 0) o->n_ys = 1;
    for (int i = 0; i < o->n_carry; i++, n++) {
        bool s = pick(4) == 0;
        if ((o->init[i] = pick_value(t, s)) < 0 && (o->init[i] = pick_value(t, s = !s)) < 0) return false;
        inputs[n] = s;
    }
    for (int i = 0; i < o->n_xs; i++, n++) {
        if ((o->xs[i] = pick_value(t, true)) < 0) return false;
        inputs[n] = false;
    }
    for (int i = 0; i < t->n_values; i++) inputs[n++] = t->stacked[i];
    if (n > MOST) return false;
    o->reverse = pick(2);
    o->body = make_tape(t->length, n, inputs, 1 + pick(6), depth - 1);
    o->body->n_out = o->n_carry + o->n_ys;
    for (int i = 0; i < o->body->n_out; i++) {
        bool s = i < o->n_carry && inputs[i];
        int v = pick(3) == 0 ? pick(o->n_carry + o->n_xs + 1) : pick_value(o->body, s);
        if (v < 0 || o->body->stacked[v] != s) v = pick_value(o->body, s);
        if (v < 0) return false; /* the caller drops the op; the body is freed there */
        o->body->out[i] = v;
    }
    return true;
}

static void free_tape(tape *t)
{
    for (int i = 0; i < t->n_ops; i++)
        if (t->ops[i].body) free_tape(t->ops[i].body);
    free(t);
}

static tape *make_tape(int length, int n_in, const bool *stacked, int n_ops, int depth)
{
    tape *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->length = length;
    t->n_in = t->n_values = n_in;
    memcpy(t->stacked, stacked, (size_t)n_in * sizeof *stacked);
    while (t->n_ops < n_ops) {
        op o = {.kind = depth > 0 && pick(5) == 0 ? SCAN : (kind)pick(SCAN)};
        bool s = pick(4) == 0;
        if (o.kind == REDUCE || o.kind == CUT) s = true;
        if (o.kind == ROW) s = false;
        o.a = pick_value(t, s);
        o.b = pick_value(t, s);
        if (o.kind != SCAN && (o.a < 0 || o.b < 0)) continue;
        if ((o.kind == REDUCE || o.kind == CUT) && length == 0) continue;
        if (o.kind == SCAN && !make_scan(t, &o, depth)) {
            if (o.body) free_tape(o.body);
            continue;
        }
        t->first[t->n_ops] = t->n_values;
        int n = o.kind == SCAN ? o.n_carry + o.n_ys : 1;
        if (t->n_values + n >= 2 * MOST) {
            if (o.body) free_tape(o.body);
            break;
        }
        for (int i = 0; i < n; i++) {
            bool result = o.kind == SCAN                        ? (i < o.n_carry ? t->stacked[o.init[i]] : true)
                          : (o.kind == REDUCE || o.kind == CUT) ? false
                                                                : s;
            t->stacked[t->n_values++] = result;
        }
        t->ops[t->n_ops++] = o;
    }
    return t;
}

/* ---- the interpreter --------------------------------------------------------------------------------------------- */

static void interpret(const tape *t, const value *in, value *out);

static float *cell(value *v, int m, int i, int j) { return &v->cells[(m * N + i) * N + j]; }
static float at(const value *v, int m, int i, int j) { return v->cells[(m * N + i) * N + j]; }

static void interpret_op(const op *o, int length, const value *v, value *y)
{
    const value *a = &v[o->a], *b = &v[o->b];
    int count = a->stacked ? length : 1;
    y->stacked = a->stacked && o->kind != REDUCE && o->kind != CUT;
    for (int m = 0; m < count; m++)
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) {
                float x = at(a, m, i, j), z = at(b, m, i, j), *to = cell(y, m, i, j);
                switch (o->kind) {
                case NEG:
                    *to = -x;
                    break;
                case ADD:
                    *to = 0.5f * (x + z);
                    break;
                case SUB:
                    *to = 0.5f * (x - z);
                    break;
                case MAX:
                    *to = x > z ? x : z;
                    break;
                case HALF:
                    *to = 0.5f * x;
                    break;
                case TRANSPOSE:
                    *to = at(a, m, j, i);
                    break;
                case REV_ROWS:
                    *to = at(a, m, N - 1 - i, j);
                    break;
                case REV_FIRST:
                    *to = a->stacked ? at(a, length - 1 - m, i, j) : at(a, m, N - 1 - i, j);
                    break;
                case ROW:
                    *to = at(a, m, 1, j);
                    break;
                case FLAT:
                    *to = at(a, m, N - 1 - i, N - 1 - j);
                    break;
                case REDUCE:
                    *cell(y, 0, i, j) = m == 0 || x > at(y, 0, i, j) ? x : at(y, 0, i, j);
                    break;
                case CUT:
                    *cell(y, 0, i, j) = at(a, length - 1, i, j);
                    break;
                default:
                    *to = x;
                    break;
                }
            }
}

static void interpret_scan(const op *o, const tape *t, const value *v, int n_values, value *y)
{
    value *in = calloc((size_t)(o->n_carry + o->n_xs + n_values), sizeof *in), *out = calloc(8, sizeof *out);
    assert_true(in && out);
    for (int c = 0; c < o->n_carry; c++) in[c] = v[o->init[c]];
    for (int i = 0; i < n_values; i++) in[o->n_carry + o->n_xs + i] = v[i];
    for (int s = 0; s < o->n_ys; s++) y[o->n_carry + s].stacked = true;
    for (int step = 0; step < t->length; step++) {
        int row = o->reverse ? t->length - 1 - step : step;
        for (int x = 0; x < o->n_xs; x++) {
            in[o->n_carry + x].stacked = false;
            memcpy(in[o->n_carry + x].cells, &v[o->xs[x]].cells[row * CELLS], CELLS * sizeof(float));
        }
        interpret(o->body, in, out);
        for (int c = 0; c < o->n_carry; c++) in[c] = out[c];
        for (int s = 0; s < o->n_ys; s++)
            memcpy(&y[o->n_carry + s].cells[row * CELLS], out[o->n_carry + s].cells, CELLS * sizeof(float));
    }
    for (int c = 0; c < o->n_carry; c++) y[c] = in[c];
    free(in);
    free(out);
}

static void interpret(const tape *t, const value *in, value *out)
{
    value *v = calloc((size_t)t->n_values + 1, sizeof *v);
    assert_non_null(v);
    memcpy(v, in, (size_t)t->n_in * sizeof *in);
    for (int i = 0; i < t->n_ops; i++) {
        if (t->ops[i].kind == SCAN)
            interpret_scan(&t->ops[i], t, v, t->first[i], &v[t->first[i]]);
        else
            interpret_op(&t->ops[i], t->length, v, &v[t->first[i]]);
    }
    for (int i = 0; i < t->n_out; i++) out[i] = v[t->out[i]];
    free(v);
}

/* ---- the same, traced -------------------------------------------------------------------------------------------- */

typedef struct frame {
    const tape *t;
    const tow_value *outer; /* values of the surrounding tape */
    int n_outer;
} frame;

static void record(tow_trace *trace, const tow_value *inputs, tow_value *outputs, void *user);

static tow_value record_op(const op *o, bool stacked, int length, const tow_value *v)
{
    tow_value a = v[o->a], b = v[o->b];
    int first = stacked ? 1 : 0;
    switch (o->kind) {
    case NEG:
        return tow_neg(a);
    case ADD:
        return tow_mul_scalar(tow_add(a, b), 0.5); /* halved: values stay bounded */
    case SUB:
        return tow_mul_scalar(tow_sub(a, b), 0.5);
    case MAX:
        return tow_max(a, b);
    case HALF:
        return tow_mul_scalar(a, 0.5);
    case TRANSPOSE:
        return stacked ? tow_transpose(a, 3, (int[]){0, 2, 1}) : tow_transpose(a, 2, (int[]){1, 0});
    case REV_ROWS:
        return tow_rev(a, 1, &first);
    case REV_FIRST:
        return tow_rev(a, 1, (int[]){0});
    case ROW:
        return tow_broadcast_to(tow_slice(a, (int64_t[]){1, 0}, (int64_t[]){2, N}, NULL), 2, (int64_t[]){N, N});
    case FLAT: /* all axes reversed, through one axis: a reshape of a view */
        return stacked
                   ? tow_reshape(tow_rev(tow_reshape(a, 2, (int64_t[]){length, CELLS}), 1, (int[]){1}), 3,
                                 (int64_t[]){length, N, N})
                   : tow_reshape(tow_rev(tow_reshape(a, 1, (int64_t[]){CELLS}), 1, (int[]){0}), 2, (int64_t[]){N, N});
    case REDUCE:
        return tow_reduce_max(a, 1, (int[]){0});
    case CUT:
        return tow_reshape(tow_slice_axis(a, 0, length - 1, length), 2, (int64_t[]){N, N});
    default:
        return tow_checkpoint_name(a, "named");
    }
}

static void record_scan(tow_trace *trace, const op *o, const tape *t, const tow_value *v, int n_values, tow_value *y)
{
    tow_value carry[3], xs[3];
    frame body = {.t = o->body, .outer = v, .n_outer = n_values};
    for (int i = 0; i < o->n_carry; i++) carry[i] = v[o->init[i]];
    for (int i = 0; i < o->n_xs; i++) xs[i] = v[o->xs[i]];
    tow_scan_options options = TOW_SCAN_OPTIONS(.length = t->length, .has_length = true, .reverse = o->reverse);
    tow_scan_function(trace, record, &body, &options, (size_t)o->n_carry, carry, (size_t)o->n_xs, xs, (size_t)o->n_ys,
                      y, y + o->n_carry);
}

static void record(tow_trace *trace, const tow_value *inputs, tow_value *outputs, void *user)
{
    const frame *f = user;
    const tape *t = f->t;
    tow_value v[2 * MOST + 8];
    int n_explicit = t->n_in - f->n_outer;
    for (int i = 0; i < n_explicit; i++) v[i] = inputs[i];
    for (int i = 0; i < f->n_outer; i++) v[n_explicit + i] = f->outer[i];
    for (int i = 0; i < t->n_ops; i++) {
        const op *o = &t->ops[i];
        if (o->kind == SCAN)
            record_scan(trace, o, t, v, t->first[i], &v[t->first[i]]);
        else
            v[t->first[i]] = record_op(o, t->stacked[o->a], t->length, v);
    }
    for (int i = 0; i < t->n_out; i++) outputs[i] = v[t->out[i]];
}

/* ---- running a tape through a program ---------------------------------------------------------------------------- */

static tow_graph *trace_tape(tape *t)
{
    tow_type types[8];
    for (int i = 0; i < t->n_in; i++) types[i] = t->stacked[i] ? f32(3, t->length, N, N) : f32(2, N, N, 0);
    tow_graph *g = NULL;
    OK(tow_trace_function(ctx, record, &(frame){.t = t}, (size_t)t->n_in, types, NULL, (size_t)t->n_out, &g));
    return g;
}

static bool equal(const float *x, const float *y, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!(x[i] == y[i])) return false;
    return true;
}

/* Donates inputs to outputs of the same type, as many as chance wants. donor: [n_out] the input of each output, or
 * -1. */
static size_t pick_donations(const tape *t, bool donates, tow_donation *donations, int *donor)
{
    bool taken[8] = {false};
    size_t n = 0;
    for (int i = 0; i < t->n_out; i++) {
        donor[i] = -1;
        int j = pick(t->n_in);
        if (!donates || taken[j] || t->stacked[j] != t->stacked[t->out[i]]) continue;
        taken[donor[i] = j] = true;
        donations[n++] = (tow_donation){(size_t)i, (size_t)j};
    }
    return n;
}

static void fail_tape(uint32_t number, int output, const tow_graph *g, const tow_program *p)
{
    static char text[1 << 16];
    tow_graph_text(g, text, sizeof text);
    fprintf(stderr, "%s\n", text);
    tow_program_text(p, text, sizeof text);
    fail_msg("tape %u, output %d is wrong\n%s", number, output, text);
}

static void expect_tape(tape *t, uint32_t number, bool donates)
{
    static value in[8], expected[8]; /* large */
    tow_array *x[8], *y[8];
    tow_donation donations[8];
    int donor[8];
    bool overwritten[8] = {false};
    tow_graph *g = trace_tape(t);
    tow_program *p = NULL;
    for (int i = 0; i < t->n_in; i++) {
        in[i].stacked = t->stacked[i];
        for (int c = 0; c < MOST_LENGTH * CELLS; c++) in[i].cells[c] = (float)(pick(200) - 100);
        OK(tow_array_create(ctx, tow_graph_input_type(g, (size_t)i), &x[i]));
    }
    interpret(t, in, expected);
    tow_compile_options options = TOW_COMPILE_OPTIONS(.no_fusion = number % 8 == 7, .donations = donations);
    options.n_donations = pick_donations(t, donates, donations, donor);
    for (int i = 0; i < t->n_out; i++) {
        OK(donor[i] >= 0 ? TOW_OK : tow_array_create(ctx, tow_graph_output_type(g, (size_t)i), &y[i]));
        if (donor[i] < 0) continue;
        overwritten[donor[i]] = true;
        y[i] = number % 2 ? NULL : x[donor[i]];
    }
    OK(tow_compile(ctx, g, &options, &p));
    if (tow_program_check(p) != TOW_OK) fail_msg("tape %u: %s", number, tow_context_error(ctx));
    tow_program_bytes bytes = tow_program_get_bytes(p);
    assert_true(bytes.arena >= bytes.lower_bound);
    long before = memory.calls;
    for (int run = 0; run < 2; run++) {
        for (int i = 0; i < t->n_in; i++)
            memcpy(tow_array_data(x[i]), in[i].cells, tow_type_bytes(tow_array_type(x[i])));
        OK(tow_program_run(p, x, y));
        for (int i = 0; i < t->n_out; i++) {
            tow_array *result = donor[i] >= 0 ? x[donor[i]] : y[i];
            if (!equal(tow_array_data(result), expected[i].cells, tow_type_element_count(tow_array_type(result))))
                fail_tape(number, i, g, p);
        }
    }
    assert_int_equal(memory.calls, before); /* running allocates nothing */
    for (int i = 0; i < t->n_in; i++) {     /* and leaves its inputs alone */
        if (!overwritten[i])
            assert_memory_equal(tow_array_data(x[i]), in[i].cells, tow_type_bytes(tow_array_type(x[i])));
        tow_array_release(x[i]);
    }
    for (int i = 0; i < t->n_out; i++)
        if (donor[i] < 0) tow_array_release(y[i]);
    tow_program_free(p);
    tow_graph_release(g);
}

static tape *random_tape(uint32_t number, int depth)
{
    seed = number * 2654435761u + 1;
    bool stacked[] = {false, false, true, true};
    tape *t = make_tape(pick(6) == 0 ? pick(2) : pick(MOST_LENGTH + 1), 4, stacked, 3 + pick(8), depth);
    t->n_out = 1 + pick(4);
    for (int i = 0; i < t->n_out; i++)
        t->out[i] = pick(4) ? t->n_values - 1 - pick(t->n_values < 5 ? t->n_values : 5) : pick(t->n_values);
    return t;
}

static void test_random_programs(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 1000; i++) {
        tape *t = random_tape(i, (int)(i % 4));
        expect_tape(t, i, false);
        free_tape(t);
    }
}

/* Outputs in place of inputs: the same values, whatever reads the inputs when. */
static void test_random_donations(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 1000; i++) {
        tape *t = random_tape(i + 1000, (int)(i % 4));
        expect_tape(t, i, true);
        free_tape(t);
    }
}

/* ---- every allocation fails in turn ------------------------------------------------------------------------------ */

static void test_failing_allocations(void **state)
{
    (void)state;
    for (uint32_t i = 3; i < 100; i += 16) {
        tape *t = random_tape(i, 3);
        tow_graph *g = trace_tape(t);
        expect_compile_survives(&memory, ctx, g, NULL);
        tow_graph_release(g);
        free_tape(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_random_programs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_random_donations, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failing_allocations, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
