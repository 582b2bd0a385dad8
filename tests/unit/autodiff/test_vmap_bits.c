/* Rows of batched programs have the bits of the program on each row, with portable bits: over random programs, their
 * gradients under random policies, and all programs of tests/graphs; any inputs batched, along any axes. */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "src/graph/graph.h"
#include "tow/tow.h"

enum {
    ROWS = 3,
    PROGRAMS = 250,
    MOST_VALUES = 40,
    MOST_INPUTS = 24,
    MOST_BYTES = 1 << 20 /* of a program of tests/graphs that is run */
};

static tow_context *ctx;

static int setup(void **state)
{
    const tow_context_options options = {.portable_bits = true, .threads = 2};
    (void)state;
    return tow_context_create(&options, &ctx) == TOW_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    tow_context_destroy(ctx);
    return 0;
}

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TOW_OK) fail_msg("%s: %s", #call, tow_context_error(ctx));                                       \
    } while (0)

static uint32_t draw(uint32_t *random, uint32_t n)
{
    *random = *random * 1664525 + 1013904223;
    return (*random >> 16) % n;
}

/* ---- random programs --------------------------------------------------------------------------------------------- */

/* Values that a program has made so far; all are floats of one type. */
typedef struct program {
    uint32_t random;
    tow_trace *t;
    tow_value values[MOST_VALUES];
    int n;
    tow_value indices, key; /* i32[3], u32[2] */
} program;

static tow_value pick(program *p) { return p->values[draw(&p->random, (uint32_t)p->n)]; }

/* One of rank `least` or more; the first input if none is found. */
static tow_value pick_rank(program *p, int least)
{
    for (int i = 0; i < 8; i++) {
        tow_value v = pick(p);
        if (tow_value_type(v).rank >= least) return v;
    }
    return p->values[0];
}

static int pick_axis(program *p, tow_value v) { return (int)draw(&p->random, (uint32_t)tow_value_type(v).rank); }

static tow_value unary(program *p, tow_value x)
{
    switch (draw(&p->random, 9)) {
    case 0:
        return tow_tanh(x);
    case 1:
        return tow_exp(tow_neg(tow_square(x)));
    case 2:
        return tow_sin(x);
    case 3:
        return tow_relu(x);
    case 4:
        return tow_gelu(x, true);
    case 5:
        return tow_silu(x);
    case 6:
        return tow_checkpoint_name(tow_logistic(x), "named");
    case 7:
        return tow_mul_scalar(x, 0.75);
    default:
        return tow_sqrt(tow_add_scalar(tow_abs(x), 0.5));
    }
}

static tow_value binary(program *p, tow_value x, tow_value y)
{
    if (!tow_type_equal(tow_value_type(x), tow_value_type(y))) y = tow_rev(x, 0, NULL);
    if (tow_value_type(x).rank == 0) y = tow_cos(x);
    switch (draw(&p->random, 5)) {
    case 0:
        return tow_add(x, y);
    case 1:
        return tow_mul(x, y);
    case 2:
        return tow_sub(x, y);
    case 3:
        return tow_max(x, y);
    default:
        return tow_select(tow_gt(x, y), tow_tanh(x), y);
    }
}

/* Contracts the last axis of x with an axis of y of its size, if there is one. */
static tow_value product(program *p)
{
    tow_value x = pick_rank(p, 1), y = pick_rank(p, 1);
    tow_type a = tow_value_type(x), b = tow_value_type(y);
    for (int d = 0; d < b.rank; d++)
        if (b.dims[d] == a.dims[a.rank - 1] && a.rank + b.rank - 2 <= 3)
            return tow_dot_general(x, y,
                                   (tow_dot_dims){.n_contract = 1, .lhs_contract = {a.rank - 1}, .rhs_contract = {d}});
    tow_dot_dims square = {.n_contract = 1, .lhs_contract = {-1}, .rhs_contract = {-1}, .n_batch = a.rank - 1};
    for (int d = 0; d + 1 < a.rank; d++) square.lhs_batch[d] = square.rhs_batch[d] = d;
    return tow_dot_general(x, tow_cos(x), square);
}

static tow_value over_axis(program *p, tow_value x)
{
    int axis = pick_axis(p, x);
    switch (draw(&p->random, 8)) {
    case 0:
        return tow_reduce_sum(x, 1, &axis);
    case 1:
        return tow_reduce_max(x, 1, &axis);
    case 2:
        return tow_softmax(x, axis);
    case 3:
        return tow_log_softmax(x, axis);
    case 4:
        return tow_logsumexp(x, axis);
    case 5:
        return tow_cumsum(x, axis, draw(&p->random, 2));
    case 6:
        return tow_convert(tow_argmax(x, axis), tow_value_type(x).dtype);
    default:
        return tow_concatenate(2, (tow_value[]){x, tow_sin(x)}, axis);
    }
}

static tow_value move(program *p, tow_value x)
{
    tow_type type = tow_value_type(x);
    int64_t ones[TOW_MAX_RANK], zeros[TOW_MAX_RANK] = {0};
    for (int d = 0; d < TOW_MAX_RANK; d++) ones[d] = 1;
    int axis = pick_axis(p, x);
    switch (draw(&p->random, 6)) {
    case 0:
        return tow_transpose(x, 0, NULL);
    case 1:
        return tow_reshape(x, 1, (int64_t[]){-1});
    case 2:
        return tow_rev(x, 1, &axis);
    case 3:
        return tow_pad(x, tow_reduce_max(x, 0, NULL), zeros, ones, draw(&p->random, 2) ? ones : NULL);
    case 4:
        return tow_slice_axis(x, axis, 0, (type.dims[axis] + 1) / 2);
    default:
        return type.rank < 3 ? tow_expand_dims(x, axis) : x;
    }
}

/* An index of each row. */
static tow_value by_index(program *p, tow_value x)
{
    tow_type type = tow_value_type(x);
    tow_value first = tow_reshape(tow_slice_axis(p->indices, 0, 0, 1), 0, NULL), start[TOW_MAX_RANK];
    int64_t sizes[TOW_MAX_RANK];
    for (int d = 0; d < type.rank; d++) {
        start[d] = first;
        sizes[d] = d == 0 ? (type.dims[0] + 1) / 2 : type.dims[d];
    }
    switch (draw(&p->random, 4)) {
    case 0:
        return tow_dynamic_slice(x, start, sizes);
    case 1:
        return tow_dynamic_update_slice(x, tow_sin(tow_slice_axis(x, 0, 0, sizes[0])), start);
    case 2: { /* out of range is NaN: indices are brought inside */
        tow_value low = tow_full_like(p->indices, 0), high = tow_full_like(p->indices, (double)(type.dims[0] - 1));
        return tow_gather(x, tow_clamp(low, p->indices, high));
    }
    default:
        return type.dims[0] == 3 ? tow_scatter_add(p->indices, x, 4) : x;
    }
}

static tow_value norm(program *p, tow_value x)
{
    tow_type type = tow_value_type(x);
    tow_type features = tow_make_type(type.dtype, 1, &type.dims[type.rank - 1]);
    tow_value scale = tow_full(p->t, features, 1.5), bias = tow_full(p->t, features, 0.25);
    for (int i = 0; i < p->n; i++)
        if (tow_type_equal(tow_value_type(p->values[i]), features)) scale = bias = p->values[i];
    return draw(&p->random, 2) ? tow_normalize_layer(x, scale, bias, 1e-3) : tow_normalize_rms(x, scale, 1e-3);
}

static tow_value attend(program *p, tow_value x)
{
    tow_type type = tow_value_type(x);
    int64_t shape[4] = {1, tow_type_count(type) / type.dims[type.rank - 1], 1, type.dims[type.rank - 1]};
    tow_value q = tow_reshape(x, 4, shape);
    tow_attention_options options = {.causal = draw(&p->random, 2)};
    return tow_reshape(tow_attention(q, tow_sin(q), q, &options), type.rank, type.dims);
}

static void few_operations(program *p, int n);

/* The body of a region: some operations on its input and on outer values. */
static void body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    program inner = *(program *)user;
    inner.t = t;
    inner.values[inner.n++] = in[0];
    few_operations(&inner, 2);
    tow_value made = inner.values[inner.n - 1];
    int axes = tow_value_type(made).rank;
    if (axes > 0) made = tow_reduce_max(made, 0, NULL);
    out[0] = tow_tanh(tow_add(in[0], made));
    ((program *)user)->random = inner.random;
}

static void loop_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_value sum = tow_add(tow_mul(in[0], tow_cos(in[1])), tow_reduce_max(*(const tow_value *)user, 0, NULL));
    (void)t;
    out[0] = tow_tanh(sum);
    out[1] = tow_mul(sum, in[1]);
}

static tow_value region(program *p)
{
    tow_policy policies[] = {tow_nothing_saveable(), tow_dots_saveable(), tow_dots_with_no_batch_dims_saveable(),
                             tow_everything_saveable()};
    tow_value x = pick_rank(p, 2), out[2] = {{0}}, outer = pick(p);
    if (p->n > MOST_VALUES - 8) return x;
    switch (draw(&p->random, 4)) {
    case 0:
        tow_remat_function(p->t, body, p, &policies[draw(&p->random, 4)], 1, &x, 1, out);
        return out[0];
    case 1:
        tow_vmap_function(p->t, body, p, NULL, 1, &x, 1, out);
        return out[0];
    case 2:
        tow_call(p->t, body, p, "part", 1, &x, 1, out);
        return out[0];
    default: {
        tow_value carry = tow_reduce_sum(x, 1, (int[]){0});
        tow_scan_options options = {.reverse = draw(&p->random, 2)};
        tow_scan_function(p->t, loop_body, &outer, &options, 1, &carry, 1, &x, 1, out, out + 1);
        return draw(&p->random, 2) ? out[0] : out[1];
    }
    }
}

static tow_value operation(program *p)
{
    switch (draw(&p->random, 13)) {
    case 0:
    case 1:
        return unary(p, pick(p));
    case 2:
    case 3:
        return binary(p, pick(p), pick(p));
    case 4:
    case 5:
        return product(p);
    case 6:
    case 7:
        return over_axis(p, pick_rank(p, 1));
    case 8:
        return move(p, pick_rank(p, 1));
    case 9:
        return by_index(p, pick_rank(p, 1));
    case 10:
        return draw(&p->random, 2) ? norm(p, pick_rank(p, 1)) : attend(p, pick_rank(p, 1));
    case 11:
        return tow_dropout_with_key(pick_rank(p, 1), p->key, 0.25, 0, NULL);
    default:
        return region(p);
    }
}

static void few_operations(program *p, int n)
{
    for (int i = 0; i < n && p->n < MOST_VALUES - 2; i++) {
        tow_value v = operation(p);
        if (!tow_is_null(v) && tow_type_count(tow_value_type(v)) <= 400) p->values[p->n++] = v;
    }
}

static const int64_t shapes[][3] = {{3, 4}, {4, 5}, {4}, {2, 3, 4}, {3}};
static const int ranks[] = {2, 2, 1, 3, 1};
enum {
    FLOATS = 5
};

/* in: FLOATS float inputs, indices, key -> the loss, and if there is room the last two values */
static void record(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    program p = {.random = *(const uint32_t *)user, .t = t, .n = FLOATS, .indices = in[FLOATS], .key = in[FLOATS + 1]};
    memcpy(p.values, in, FLOATS * sizeof *in);
    few_operations(&p, 10);
    for (int i = FLOATS; i < p.n; i++) {
        tow_value mean = tow_mean(tow_square(p.values[i]), 0, NULL);
        out[0] = tow_is_null(out[0]) ? mean : tow_add(out[0], mean);
    }
    if (tow_is_null(out[0])) out[0] = tow_mean(in[0], 0, NULL);
}

static tow_graph *random_graph(uint32_t seed)
{
    tow_dtype dtype = seed % 4 == 3 ? TOW_F64 : TOW_F32;
    tow_type types[FLOATS + 2];
    tow_graph *g;
    for (int i = 0; i < FLOATS; i++) types[i] = tow_make_type(dtype, ranks[i], shapes[i]);
    types[FLOATS] = tow_make_type(TOW_I32, 1, (int64_t[]){3});
    types[FLOATS + 1] = tow_make_type(TOW_U32, 1, (int64_t[]){2});
    if (tow_trace_function(ctx, record, &seed, FLOATS + 2, types, NULL, 1, &g) != TOW_OK)
        fail_msg("seed %u: %s", seed, tow_context_error(ctx));
    return g;
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

static void fill(tow_array *array, uint32_t *random)
{
    tow_type type = tow_array_type(array);
    void *data = tow_array_data(array);
    for (int64_t i = 0; i < tow_type_count(type); i++) {
        int32_t x = (int32_t)draw(random, 256) - 128;
        if (type.dtype == TOW_F32)
            ((float *)data)[i] = (float)x / 77;
        else if (type.dtype == TOW_F64)
            ((double *)data)[i] = (double)x / 77;
        else if (type.dtype == TOW_BOOL)
            ((bool *)data)[i] = x < 0;
        else
            ((int32_t *)data)[i] = type.dtype == TOW_I32 ? x / 32 : (x + 128) / 32;
    }
}

/* Copies row r of `all`, whose batch axis is `axis`, to `row` or back. */
static void copy_row(tow_array *all, int axis, int64_t r, tow_array *row, bool back)
{
    tow_type type = tow_array_type(row), whole = tow_array_type(all);
    size_t size = tow_dtype_size(type.dtype), before = 1, after = 1;
    if (axis < 0) axis += whole.rank;
    for (int d = 0; d < type.rank; d++) *(d < axis ? &before : &after) *= (size_t)type.dims[d];
    for (size_t i = 0; i < before; i++) {
        char *x = (char *)tow_array_data(all) + (i * (size_t)whole.dims[axis] + (size_t)r) * after * size;
        char *y = (char *)tow_array_data(row) + i * after * size;
        memcpy(back ? x : y, back ? y : x, after * size);
    }
}

static bool same_bits(const tow_array *a, const tow_array *b)
{
    tow_type type = tow_array_type(a);
    for (int64_t i = 0; i < tow_type_count(type); i++) {
        const void *x = tow_array_data(a), *y = tow_array_data(b);
        size_t size = tow_dtype_size(type.dtype), at = (size_t)i * size;
        if (type.dtype == TOW_F32 && isnan(((const float *)x)[i]) && isnan(((const float *)y)[i])) continue;
        if (type.dtype == TOW_F64 && isnan(((const double *)x)[i]) && isnan(((const double *)y)[i])) continue;
        if (memcmp((const char *)x + at, (const char *)y + at, size) != 0) return false;
    }
    return true;
}

/* ---- the comparison ---------------------------------------------------------------------------------------------- */

typedef struct arrays {
    size_t n;
    tow_array *a[MOST_INPUTS];
} arrays;

static void release(arrays *list)
{
    for (size_t i = 0; i < list->n; i++) tow_array_release(list->a[i]);
    list->n = 0;
}

static void evaluate(const tow_graph *g, const arrays *in, arrays *out, const char *what)
{
    *out = (arrays){.n = tow_graph_outputs(g)};
    if (tow_evaluate(g, in->a, out->a) != TOW_OK) fail_msg("%s: %s", what, tow_context_error(ctx));
}

static int random_axis(uint32_t *random, tow_type row)
{
    return (int)draw(random, 2 * (uint32_t)row.rank + 2) - row.rank - 1;
}

/* Inputs of all rows, and of each row, for one choice of axes. */
static void make_inputs(const tow_graph *g, const int *axes, uint32_t *random, arrays *all, arrays rows[ROWS])
{
    size_t n = tow_graph_inputs(g);
    all->n = n;
    for (int r = 0; r < ROWS; r++) rows[r].n = n;
    for (size_t i = 0; i < n; i++) {
        tow_type row = tow_graph_input_type(g, i), whole = row;
        if (axes[i] != TOW_NOT_MAPPED) {
            int at = axes[i] < 0 ? axes[i] + row.rank + 1 : axes[i];
            for (int d = whole.rank++; d > at; d--) whole.dims[d] = whole.dims[d - 1];
            whole.dims[at] = ROWS;
        }
        OK(tow_array_create(ctx, whole, &all->a[i]));
        fill(all->a[i], random);
        for (int r = 0; r < ROWS; r++) {
            if (axes[i] == TOW_NOT_MAPPED) {
                rows[r].a[i] = tow_array_retain(all->a[i]);
                continue;
            }
            OK(tow_array_create(ctx, row, &rows[r].a[i]));
            copy_row(all->a[i], axes[i], r, rows[r].a[i], false);
        }
    }
}

static void compare(const tow_graph *g, uint32_t random, const char *what)
{
    int axes[2 * MOST_INPUTS], *out_axes = axes + MOST_INPUTS;
    size_t n = tow_graph_inputs(g), n_out = tow_graph_outputs(g), always = n ? draw(&random, (uint32_t)n) : 0;
    arrays all = {0}, rows[ROWS] = {{0}}, found, expected;
    tow_graph *batched = NULL;
    if (n == 0 || n > MOST_INPUTS || n_out > MOST_INPUTS) return;
    for (size_t i = 0; i < n; i++) {
        bool mapped = i == always || draw(&random, 2);
        axes[i] = mapped ? random_axis(&random, tow_graph_input_type(g, i)) : TOW_NOT_MAPPED;
    }
    for (size_t i = 0; i < n_out; i++) out_axes[i] = random_axis(&random, tow_graph_output_type(g, i));
    if (tow_vmap(g, ROWS, axes, out_axes, &batched) != TOW_OK) {
        if (strstr(tow_context_error(ctx), "would have rank 9")) return; /* stacks of loops nested deep */
        fail_msg("%s: %s", what, tow_context_error(ctx));
    }
    make_inputs(g, axes, &random, &all, rows);
    evaluate(batched, &all, &found, what);
    for (int r = 0; r < ROWS; r++) {
        evaluate(g, &rows[r], &expected, what);
        for (size_t i = 0; i < n_out; i++) {
            tow_array *row;
            OK(tow_array_create(ctx, tow_graph_output_type(g, i), &row));
            copy_row(found.a[i], out_axes[i], r, row, false);
            if (!same_bits(row, expected.a[i])) fail_msg("%s: row %d of output %zu has other bits", what, r, i);
            tow_array_release(row);
        }
        release(&expected);
        release(&rows[r]);
    }
    release(&all);
    release(&found);
    tow_graph_release(batched);
}

/* Also of its gradient, if it has one, outside and inside of a remat region. */
static void compare_all(const tow_graph *g, uint32_t random, const char *what)
{
    static const char *const policies[] = {NULL, "nothing", "dots", "dots_with_no_batch_dims", "any_names_but:other"};
    char text[256];
    tow_graph *region = NULL, *gradient;
    compare(g, random, what);
    const char *policy = policies[random % 5];
    if (policy) {
        tow_policy *p;
        OK(tow_policy_parse(ctx, policy, &p));
        if (tow_remat_whole(g, p, &region) != TOW_OK) region = NULL; /* it knows no such names */
        tow_policy_free(ctx, p);
    }
    if (tow_value_and_grad(region ? region : g, 0, NULL, true, &gradient) == TOW_OK) {
        snprintf(text, sizeof text, "%s, gradient under %s", what, region ? policy : "no policy");
        compare(gradient, random + 1, text);
        tow_graph_release(gradient);
    }
    tow_graph_release(region);
}

static void test_random_programs(void **state)
{
    (void)state;
    const char *first = getenv("TOW_TEST_SEED");
    uint32_t from = first ? (uint32_t)atoi(first) : 0, to = first ? from + 1 : PROGRAMS;
    for (uint32_t seed = from; seed < to; seed++) {
        char what[32];
        snprintf(what, sizeof what, "seed %u", seed);
        tow_graph *g = random_graph(seed);
        compare_all(g, seed * 977 + 5, what);
        tow_graph_release(g);
    }
}

/* ---- programs of tests/graphs ------------------------------------------------------------------------------------ */

static tow_graph *read_graph(const char *path)
{
    FILE *file = fopen(path, "rb");
    static char text[1 << 18];
    tow_graph *g = NULL;
    assert_non_null(file);
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    return tow_graph_parse(ctx, text, &g) == TOW_OK ? g : NULL; /* some are wrong on purpose */
}

static bool is_small(const tow_graph *g)
{
    size_t bytes = 0;
    for (size_t i = 0; i < tow_graph_inputs(g); i++) bytes += tow_type_bytes(tow_graph_input_type(g, i));
    for (size_t i = 0; i < tow_graph_outputs(g); i++) bytes += tow_type_bytes(tow_graph_output_type(g, i));
    return bytes <= MOST_BYTES;
}

static int compare_folder(const char *folder)
{
    DIR *d = opendir(folder);
    int count = 0;
    assert_non_null(d);
    for (struct dirent *f; (f = readdir(d));) {
        char path[1024];
        size_t n = strlen(f->d_name);
        if (n < 4 || strcmp(f->d_name + n - 4, ".tow") != 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, f->d_name);
        tow_graph *g = read_graph(path);
        if (g && is_small(g)) {
            compare_all(g, (uint32_t)count * 13 + 7, f->d_name);
            count++;
        }
        tow_graph_release(g);
    }
    closedir(d);
    return count;
}

static void test_programs_of_graphs(void **state)
{
    (void)state;
    assert_true(compare_folder(TOW_TEST_DATA "/graphs") > 40);
    assert_true(compare_folder(TOW_TEST_DATA "/graphs/plan") > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_programs),
        cmocka_unit_test(test_programs_of_graphs),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
