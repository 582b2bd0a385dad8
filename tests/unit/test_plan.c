/* Plans: random programs (views of views, scans of every kind, nested) against an interpreter written with plain loops;
 * hand-worked arena sizes; the plan checker on right and on damaged plans; no allocation while running; every
 * allocation failing in turn. The interpreter rounds where the program rounds, so results are equal, not close. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "src/plan/plan.h"
#include "tow/autodiff.h"
#include "tow/ops.h"
#include "tow/program.h"

/* ---- a context that counts and can refuse ------------------------------------------------------------------------ */

static struct {
    long calls, live, limit; /* limit < 0: none */
} memory;

static void *counting_resize(void *user, void *pointer, size_t old_size, size_t size)
{
    (void)user;
    if (size == 0) {
        memory.live -= pointer != NULL;
        free(pointer);
        return NULL;
    }
    memory.calls++;
    if (memory.limit >= 0 && memory.calls > memory.limit) return NULL;
    size_t alignment = old_size % 64 == 0 && size % 64 == 0 ? 64 : 16;
    void *fresh = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    if (!fresh) return NULL;
    if (pointer)
        memcpy(fresh, pointer, old_size < size ? old_size : size);
    else
        memory.live++;
    free(pointer);
    return fresh;
}

static tow_context *ctx;

static int setup(void **state)
{
    (void)state;
    memory.limit = -1;
    return tow_context_create(&(tow_context_options){.allocator = {.resize = counting_resize}, .threads = 2}, &ctx) ==
                   TOW_OK
               ? 0
               : -1;
}

static int teardown(void **state)
{
    (void)state;
    tow_context_destroy(ctx);
    return memory.live == 0 ? 0 : -1;
}

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TOW_OK) fail_msg("%s: %s", #call, tow_context_error(ctx));                                       \
    } while (0)

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

static uint32_t seed;
static int pick(int n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 8) % (uint32_t)n);
}

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
    tow_scan_options options = {.length = t->length, .has_length = true, .reverse = o->reverse};
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

static void expect_tape(tape *t, uint32_t number)
{
    static value in[8], expected[8]; /* large */
    tow_array *x[8], *y[8];
    tow_graph *g = trace_tape(t);
    tow_program *p = NULL;
    for (int i = 0; i < t->n_in; i++) {
        in[i].stacked = t->stacked[i];
        for (int c = 0; c < MOST_LENGTH * CELLS; c++) in[i].cells[c] = (float)(pick(200) - 100);
        OK(tow_array_from_data(ctx, tow_graph_input_type(g, (size_t)i), in[i].cells, &x[i]));
    }
    for (int i = 0; i < t->n_out; i++) OK(tow_array_create(ctx, tow_graph_output_type(g, (size_t)i), &y[i]));
    interpret(t, in, expected);
    OK(tow_compile(ctx, g, &(tow_compile_options){.no_fusion = number % 8 == 7}, &p));
    if (tow_program_check(p) != TOW_OK) fail_msg("tape %u: %s", number, tow_context_error(ctx));
    tow_program_bytes bytes = tow_program_get_bytes(p);
    assert_true(bytes.arena >= bytes.lower_bound);
    long before = memory.calls;
    for (int run = 0; run < 2; run++) {
        OK(tow_program_run(p, x, y));
        for (int i = 0; i < t->n_out; i++)
            if (!equal(tow_array_data(y[i]), expected[i].cells, tow_type_count(tow_array_type(y[i])))) {
                static char text[1 << 16];
                tow_graph_text(g, text, sizeof text);
                fprintf(stderr, "%s\n", text);
                tow_program_text(p, text, sizeof text);
                fail_msg("tape %u, output %d is wrong\n%s", number, i, text);
            }
    }
    assert_int_equal(memory.calls, before); /* running allocates nothing */
    for (int i = 0; i < t->n_in; i++) {     /* and leaves its inputs alone */
        assert_memory_equal(tow_array_data(x[i]), in[i].cells, tow_type_bytes(tow_array_type(x[i])));
        tow_array_release(x[i]);
    }
    for (int i = 0; i < t->n_out; i++) tow_array_release(y[i]);
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
        expect_tape(t, i);
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
        tow_program *p = NULL;
        OK(tow_compile(ctx, g, NULL, &p)); /* from now on the context has its workers */
        tow_program_free(p);
        long live = memory.live;
        tow_status status = TOW_OUT_OF_MEMORY;
        for (long limit = 0; status != TOW_OK; limit++) {
            memory.calls = 0;
            memory.limit = limit;
            status = tow_compile(ctx, g, NULL, &p);
            memory.limit = -1;
            if (status == TOW_OK) break;
            assert_int_equal(status, TOW_OUT_OF_MEMORY);
            assert_null(p);
            assert_int_equal(memory.live, live);
        }
        assert_true(memory.calls > 3);
        tow_program_free(p);
        assert_int_equal(memory.live, live);
        tow_graph_release(g);
        free_tape(t);
    }
}

/* ---- plans worked out by hand ------------------------------------------------------------------------------------ */

enum {
    SIZE = 1024 * sizeof(float)
}; /* of f32[1024] */

static const tow_compile_options separate = {.no_fusion = true};

static tow_program *compile(tow_function function, size_t n_in, const tow_type *types, size_t n_out,
                            const tow_compile_options *options)
{
    tow_graph *g;
    tow_program *p;
    OK(tow_trace_function(ctx, function, NULL, n_in, types, NULL, n_out, &g));
    OK(tow_compile(ctx, g, options, &p));
    tow_graph_release(g);
    OK(tow_program_check(p));
    return p;
}

/* arena: bytes if every instruction is a step; fused: if chains are one step */
static void expect_plan(tow_function function, size_t n_in, const tow_type *types, size_t n_out, size_t arena,
                        size_t fused, const char *counted, uint64_t count)
{
    for (int i = 0; i < 2; i++) {
        tow_program *p = compile(function, n_in, types, n_out, i ? NULL : &separate);
        assert_int_equal(tow_program_get_bytes(p).arena, i ? fused : arena);
        assert_int_equal(tow_program_get_bytes(p).lower_bound, i ? fused : arena);
        assert_int_equal(tow_program_count(p, counted), count);
        tow_program_free(p);
    }
}

static void chain(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = tow_neg(tow_exp(tow_sin(x[0])));
}

static void chain_to_sum(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = tow_reduce_sum(tow_exp(tow_sin(x[0])), 0, NULL);
}

static void three_alive(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    tow_value a = tow_sin(x[0]), b = tow_cos(x[0]), c = tow_exp(x[0]);
    tow_value ab = tow_mul(a, b); /* nothing dies here */
    y[0] = tow_reduce_sum(tow_add(ab, tow_mul(tow_sub(b, c), a)), 0, NULL);
}

static void same_twice(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = y[1] = tow_sin(x[0]);
    y[2] = x[0];
}

/* carry - x: one buffer, which is the result */
static void accumulate_body(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = tow_sub(x[0], x[1]);
}

static void accumulate(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)user;
    tow_scan_function(t, accumulate_body, NULL, NULL, 1, x, 1, x + 1, 0, y, NULL);
}

/* carry + x: one sum over all steps instead of a loop */
static void add_body(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = tow_add(x[0], x[1]);
}

static void add_up(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)user;
    tow_scan_function(t, add_body, NULL, NULL, 1, x, 1, x + 1, 0, y, NULL);
}

/* carry + sin(carry): sin(carry) is the only temporary, the new carry may overwrite the old one */
static void recur_body(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = tow_add(x[0], tow_sin(x[0]));
    y[1] = tow_neg(x[1]);
}

static void recur(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)user;
    tow_scan_function(t, recur_body, NULL, NULL, 1, x, 1, x + 1, 1, y, y + 1);
}

/* (a, b) -> (b, a): a needs a second buffer of 4 KiB, b does not */
static void swap_body(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = x[1];
    y[1] = x[0];
}

static void swap(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)user;
    tow_scan_options options = {.length = 7, .has_length = true};
    tow_scan_function(t, swap_body, NULL, &options, 2, x, 0, NULL, 0, y, NULL);
}

/* sin(carry), keeping every carry: it lives in the rows of ys, and only init is copied */
static void keep_body(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = tow_sin(x[0]);
    y[1] = x[0];
}

static void keep(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)user;
    tow_scan_options options = {.length = 7, .has_length = true};
    tow_scan_function(t, keep_body, NULL, &options, 1, x, 0, NULL, 1, y, y + 1);
}

static void test_hand_worked(void **state)
{
    (void)state;
    tow_type vector = f32(1, 1024, 0, 0), rows[] = {vector, f32(2, 6, 1024, 0)}, pair[] = {vector, vector};
    expect_plan(chain, 1, &vector, 1, 0, 0, NULL, 3);              /* all in the output */
    expect_plan(chain_to_sum, 1, &vector, 1, SIZE, SIZE, NULL, 3); /* exp overwrites sin */
    expect_plan(three_alive, 1, &vector, 1, 4 * SIZE, SIZE, NULL,
                8); /* a, b, c, and the first product; the sum's operand */
    expect_plan(same_twice, 1, &vector, 3, 0, 0, "copy", 2);
    expect_plan(accumulate, 2, rows, 1, 0, 0, "sub", 6);
    expect_plan(add_up, 2, rows, 1, 0, 0, NULL, 1);
    expect_plan(recur, 2, rows, 2, SIZE, 0, "copy", 0); /* sin(carry) exists as a tile only */
    expect_plan(swap, 2, pair, 2, SIZE, SIZE, "copy", 14);
    expect_plan(keep, 1, &vector, 2, 0, 0, NULL, 8);
}

/* (c, s) -> -c, keeping c and max(-c, s), where s is also the init value: the result must not take its memory */
static void shared_body(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t;
    const tow_value *s = user;
    y[0] = tow_neg(x[0]);
    y[1] = x[0];
    y[2] = tow_max(y[0], *s);
}

static void shared(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)user;
    tow_value s = tow_mul_scalar(x[0], 0.5), ys[2];
    tow_scan_options options = {.length = 3, .has_length = true};
    tow_scan_function(t, shared_body, &s, &options, 1, &s, 0, NULL, 2, y, ys);
    y[1] = ys[1];
}

static void test_shared_init(void **state)
{
    (void)state;
    tow_type vector = f32(1, 1024, 0, 0);
    tow_program *p = compile(shared, 1, &vector, 2, NULL);
    tow_array *x, *y[2];
    OK(tow_array_create(ctx, vector, &x));
    OK(tow_array_create(ctx, vector, &y[0]));
    OK(tow_array_create(ctx, f32(2, 3, 1024, 0), &y[1]));
    for (int i = 0; i < 1024; i++) ((float *)tow_array_data(x))[i] = (float)(i - 512);
    OK(tow_program_run(p, &x, y));
    for (int i = 0; i < 1024; i++) {
        float s = 0.5f * (float)(i - 512), most = s > -s ? s : -s;
        assert_true(((float *)tow_array_data(y[0]))[i] == -s);
        for (int row = 0; row < 3; row++)
            assert_true(((float *)tow_array_data(y[1]))[row * 1024 + i] == (row == 1 ? s : most));
    }
    tow_array_release(x);
    tow_array_release(y[0]);
    tow_array_release(y[1]);
    tow_program_free(p);
}

/* c -> c + x, keeping c before and after: one array of a row more than steps, unless a caller provides one of the two */
typedef struct stacks {
    bool reverse, handed_out;
} stacks;

static void stack_body(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = y[2] = y[3] = tow_add(x[0], x[1]);
    y[1] = x[0];
}

static void stack(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    const stacks *s = user;
    tow_scan_options options = {.reverse = s->reverse};
    tow_value ys[3];
    tow_scan_function(t, stack_body, NULL, &options, 1, x, 1, x + 1, 3, y, ys);
    y[1] = tow_sub(ys[0], tow_mul_scalar(ys[1], 2));
    y[2] = s->handed_out ? tow_reshape(ys[2], 1, (int64_t[]){6 * 1024}) : tow_reduce_sum(ys[2], 2, (int[]){0, 1});
}

static void expect_stacks(const stacks *s, size_t arena)
{
    tow_type in[] = {f32(1, 1024, 0, 0), f32(2, 6, 1024, 0)};
    tow_type out[] = {in[0], in[1], s->handed_out ? f32(1, 6 * 1024, 0, 0) : f32(0, 0, 0, 0)};
    tow_graph *g;
    tow_program *p;
    tow_array *x[2], *y[3];
    OK(tow_trace_function(ctx, stack, (void *)(uintptr_t)s, 2, in, NULL, 3, &g));
    OK(tow_compile(ctx, g, NULL, &p));
    assert_int_equal(tow_program_get_bytes(p).arena, arena);
    for (int i = 0; i < 2; i++) OK(tow_array_create(ctx, in[i], &x[i]));
    for (int i = 0; i < 3; i++) OK(tow_array_create(ctx, out[i], &y[i]));
    for (int i = 0; i < 1024; i++) ((float *)tow_array_data(x[0]))[i] = (float)i;
    for (int i = 0; i < 6 * 1024; i++) ((float *)tow_array_data(x[1]))[i] = (float)(1 + i / 1024);
    for (int run = 0; run < 2; run++) {
        OK(tow_program_run(p, x, y));
        double sum = 0;
        for (int i = 0; i < 1024; i++) {
            float before = (float)i;
            for (int k = 0; k < 6; k++) {
                int row = s->reverse ? 5 - k : k;
                float after = before + (float)(row + 1);
                assert_true(((float *)tow_array_data(y[1]))[row * 1024 + i] == before - 2 * after);
                if (s->handed_out) assert_true(((float *)tow_array_data(y[2]))[row * 1024 + i] == after);
                sum += after;
                before = after;
            }
            assert_true(((float *)tow_array_data(y[0]))[i] == before);
        }
        if (!s->handed_out) assert_float_equal(((float *)tow_array_data(y[2]))[0], sum, 8);
    }
    for (int i = 0; i < 2; i++) tow_array_release(x[i]);
    for (int i = 0; i < 3; i++) tow_array_release(y[i]);
    tow_program_free(p);
    tow_graph_release(g);
}

static void test_joined_stacks(void **state)
{
    (void)state;
    for (int reverse = 0; reverse < 2; reverse++) {
        expect_stacks(&(stacks){reverse, false}, 7 * SIZE);
        expect_stacks(&(stacks){reverse, true}, 7 * SIZE); /* before and after joined; after, once more, a copy */
    }
}

/* Empty arrays everywhere: as carry, rows, results and operands of a reduction. */
static void empty_body(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = tow_neg(x[0]);
    y[1] = tow_add(x[1], tow_reduce_sum(x[2], 0, NULL));
    y[2] = x[0];
    y[3] = tow_sin(x[2]);
}

static void empty(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)user;
    tow_scan_function(t, empty_body, NULL, NULL, 2, x, 1, x + 2, 2, y, y + 2);
    y[4] = tow_transpose(tow_exp(x[2]), 0, NULL);
}

static void test_empty_arrays(void **state)
{
    (void)state;
    tow_type types[] = {f32(1, 0, 0, 0), f32(0, 0, 0, 0), f32(2, 3, 0, 0)};
    tow_graph *g;
    OK(tow_trace_function(ctx, empty, NULL, 3, types, NULL, 5, &g));
    tow_array *x[3], *y[5];
    for (int i = 0; i < 3; i++) OK(tow_array_create(ctx, types[i], &x[i]));
    *(float *)tow_array_data(x[1]) = 2.5f;
    OK(tow_evaluate(g, x, y));
    assert_true(*(float *)tow_array_data(y[1]) == 2.5f);
    for (int i = 0; i < 3; i++) tow_array_release(x[i]);
    for (int i = 0; i < 5; i++) tow_array_release(y[i]);
    tow_graph_release(g);
}

/* ---- views ------------------------------------------------------------------------------------------------------- */

static int64_t address(const tow__view *x, int64_t i)
{
    int64_t offset = x->offset;
    for (int axis = x->type.rank - 1; axis >= 0; axis--) {
        offset += i % x->type.dims[axis] * x->strides[axis];
        i /= x->type.dims[axis];
    }
    return offset;
}

/* A random shape of `count` elements. */
static tow_type random_shape(int64_t count)
{
    int64_t dims[TOW_MAX_RANK];
    int rank = 0;
    while (rank < 5 && (count > 1 || pick(2))) {
        int64_t d = 1 + pick(6);
        if (rank == 4) d = count;
        if (count % d) continue;
        dims[rank++] = d;
        count /= d;
    }
    return tow_make_type(TOW_F32, rank, dims);
}

/* Element i of the reshaped view is element i of the view, or there is no such view; of contiguous ones there always
 * is. */
static void test_reshaped_views(void **state)
{
    (void)state;
    int views = 0, refused = 0;
    seed = 5;
    for (int round = 0; round < 20000; round++) {
        int64_t count = (int64_t[]){1, 12, 24, 36, 60}[pick(5)];
        tow__view x = tow__view_whole(0, random_shape(count)), y;
        bool contiguous = pick(4) == 0;
        for (int swaps = contiguous || x.type.rank < 2 ? 0 : pick(3); swaps > 0; swaps--) {
            int i = pick(x.type.rank), j = pick(x.type.rank);
            int64_t dim = x.type.dims[i], stride = x.strides[i];
            x.type.dims[i] = x.type.dims[j], x.strides[i] = x.strides[j];
            x.type.dims[j] = dim, x.strides[j] = stride;
        }
        if (!contiguous && x.type.rank && pick(2))
            x.strides[pick(x.type.rank)] *= pick(4) - 1; /* reversed, repeated, spread */
        bool viewed = tow__view_reshape(&x, random_shape(count), &y);
        views += viewed;
        refused += !viewed;
        assert_true(viewed || !contiguous);
        for (int64_t i = 0; viewed && i < count; i++) assert_int_equal(address(&y, i), address(&x, i));
    }
    assert_true(views > 1000 && refused > 1000);
}

/* ---- forward and backward ---------------------------------------------------------------------------------------- */

static void three_sines(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = tow_sin(tow_sin(tow_sin(x[0])));
}

static void sum_of_sines(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    tow_value sines;
    if (user)
        tow_remat_function(t, three_sines, NULL, user, 1, x, 1, &sines);
    else
        three_sines(t, x, &sines, NULL);
    y[0] = tow_reduce_sum(sines, 0, NULL);
}

static tow_program *gradient(tow_policy *policy, const tow_compile_options *options)
{
    tow_type vector = f32(1, 1024, 0, 0);
    tow_graph *g, *with_gradient;
    tow_program *p;
    OK(tow_trace_function(ctx, sum_of_sines, policy, 1, &vector, NULL, 1, &g));
    OK(tow_value_and_grad(g, 0, NULL, false, &with_gradient));
    OK(tow_compile(ctx, with_gradient, options, &p));
    OK(tow_program_check(p));
    tow_graph_release(g);
    tow_graph_release(with_gradient);
    return p;
}

static void test_recomputation_comes_late(void **state)
{
    (void)state;
    tow_program *p = gradient(NULL, &separate);
    assert_int_equal(tow_program_get_bytes(p).residuals,
                     2 * SIZE); /* cos of x, of sin x; that of sin sin x waits in the output */
    assert_int_equal(tow_program_count(p, "sin"), 3);
    tow_program_free(p);

    p = gradient(&tow_nothing_saveable(), &separate);
    assert_int_equal(tow_program_get_bytes(p).residuals, 0);
    assert_int_equal(tow_program_count(p, "sin"), 5);
    for (uint32_t i = 0; i < p->top->n_steps; i++) /* each coefficient directly before the product that reads it */
        if (strcmp(p->top->steps[i].primitive, "cos") == 0) assert_string_equal(p->top->steps[i + 1].primitive, "mul");
    tow_program_free(p);
    p = gradient(&tow_nothing_saveable(), NULL);
    assert_int_equal(tow_program_get_bytes(p).residuals, 0);
    assert_int_equal(tow_program_count(p, "sin"), 5);
    assert_int_equal(tow_program_count(p, "cos"), 3);

    char text[4096], start[16];
    size_t length = tow_program_text(p, text, sizeof text);
    assert_true(length < sizeof text && strlen(text) == length);
    assert_int_equal(tow_program_text(p, start, sizeof start), length);
    assert_true(strlen(start) == sizeof start - 1 && strncmp(start, text, sizeof start - 1) == 0);
    assert_non_null(strstr(text, "= fused(sin, sin, sin)(#0 f32[1024] input 0)"));
    tow_program_free(p);
}

/* ---- the checker sees damage ------------------------------------------------------------------------------------- */

static void test_checker(void **state)
{
    (void)state;
    tow_type vector = f32(1, 1024, 0, 0), rows[] = {vector, f32(2, 6, 1024, 0)};
    tow_program *p = compile(three_alive, 1, &vector, 1, &separate);
    uint32_t a = p->top->steps[0].out[0].storage, b = p->top->steps[1].out[0].storage;
    size_t offset = p->storages[a].offset;
    p->storages[a].offset = p->storages[b].offset; /* cos overwrites sin */
    assert_int_equal(tow_program_check(p), TOW_INTERNAL_ERROR);
    assert_non_null(strstr(tow_context_error(ctx), "overwritten"));
    p->storages[a].offset = offset;
    OK(tow_program_check(p));
    p->storages[a].offset = p->top->bytes - SIZE / 2;
    assert_int_equal(tow_program_check(p), TOW_INTERNAL_ERROR);
    p->storages[a].offset = offset;
    tow__step first = p->top->steps[0]; /* a step that comes too late */
    p->top->steps[0] = p->top->steps[3];
    p->top->steps[3] = first;
    assert_int_equal(tow_program_check(p), TOW_INTERNAL_ERROR);
    tow_program_free(p);

    p = compile(swap, 2, (tow_type[]){vector, vector}, 2, NULL);
    tow__loop *loop = p->top->steps[0].loop;
    assert_true(loop->carry[0].alternates);
    loop->carry[0].alternates = false; /* the first copy destroys what the second one reads */
    assert_int_equal(tow_program_check(p), TOW_INTERNAL_ERROR);
    tow_program_free(p);

    p = compile(recur, 2, rows, 2, &separate);
    p->top->steps[0].loop->body->n_steps--; /* the row of ys is not written */
    assert_int_equal(tow_program_check(p), TOW_INTERNAL_ERROR);
    tow_program_free(p);
}

/* ---- placement --------------------------------------------------------------------------------------------------- */

static void test_placement(void **state)
{
    (void)state;
    seed = 7;
    for (int round = 0; round < 300; round++) {
        tow__interval all[40];
        uint32_t n = 1 + (uint32_t)pick(40);
        size_t total, bound, sum = 0;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t first = (uint32_t)pick(30);
            size_t bytes = 64 * (size_t)(1 + pick(50));
            all[i] = (tow__interval){.first = first, .last = first + (uint32_t)pick(8), .bytes = bytes, .need = bytes};
            sum += bytes;
        }
        OK(tow__place(ctx, all, n, 40, &total, &bound));
        assert_true(bound <= total && total <= sum);
        for (uint32_t i = 0; i < n; i++) {
            assert_true(all[i].offset % 64 == 0 && all[i].offset + all[i].bytes <= total);
            for (uint32_t j = 0; j < i; j++) {
                bool in_time = all[i].first <= all[j].last && all[j].first <= all[i].last;
                bool in_memory =
                    all[i].offset < all[j].offset + all[j].bytes && all[j].offset < all[i].offset + all[i].bytes;
                assert_false(in_time && in_memory);
            }
        }
    }
}

/* ---- bad arrays -------------------------------------------------------------------------------------------------- */

static void test_bad_arrays(void **state)
{
    (void)state;
    tow_type vector = f32(1, 4, 0, 0);
    tow_graph *g;
    tow_program *p;
    tow_array *x, *wrong, *y;
    const char *name = "image";
    OK(tow_trace_function(ctx, chain, NULL, 1, &vector, &name, 1, &g));
    OK(tow_compile(ctx, g, NULL, &p));
    OK(tow_array_create(ctx, vector, &x));
    OK(tow_array_create(ctx, vector, &y));
    OK(tow_array_create(ctx, f32(2, 4, 5, 0), &wrong));
    assert_int_equal(tow_program_run(p, &wrong, &y), TOW_TYPE_MISMATCH);
    assert_non_null(strstr(tow_context_error(ctx), "input 0 image: expected f32[4], found f32[4,5]"));
    assert_int_equal(tow_program_run(p, &x, &wrong), TOW_TYPE_MISMATCH);
    assert_non_null(strstr(tow_context_error(ctx), "output 0: expected f32[4], found f32[4,5]"));
    assert_int_equal(tow_program_run(p, &(tow_array *){NULL}, &y), TOW_INVALID_ARGUMENT);
    OK(tow_program_run(p, &x, &y));
    tow_array_release(x);
    tow_array_release(y);
    tow_array_release(wrong);
    tow_program_free(p);
    tow_graph_release(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_hand_worked, setup, teardown),
        cmocka_unit_test_setup_teardown(test_random_programs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failing_allocations, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shared_init, setup, teardown),
        cmocka_unit_test_setup_teardown(test_joined_stacks, setup, teardown),
        cmocka_unit_test_setup_teardown(test_empty_arrays, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reshaped_views, setup, teardown),
        cmocka_unit_test_setup_teardown(test_recomputation_comes_late, setup, teardown),
        cmocka_unit_test_setup_teardown(test_checker, setup, teardown),
        cmocka_unit_test_setup_teardown(test_placement, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_arrays, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
