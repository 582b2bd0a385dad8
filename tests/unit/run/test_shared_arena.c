/* Shared arenas: programs that share an arena have the bits of programs that do not, whenever it moves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/threaded_context.h"
#include "tow/primitive.h"
#include "tow/tow.h"

#define F32(...)                                                                                                       \
    {                                                                                                                  \
        .dtype = TOW_F32, .rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), .dims = { __VA_ARGS__ }   \
    }

/* ---- programs of many kinds -------------------------------------------------------------------------------------- */

static void layers(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    tow_value h = tow_tanh(tow_matmul(in[0], in[1]));
    h = tow_softmax(tow_matmul(h, in[1]), -1);
    out[0] = tow_reduce_sum(tow_mul(h, in[0]), 0, NULL);
}

static void cell(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_tanh(tow_add(tow_matmul(in[0], in[1]), in[2]));
    out[1] = in[1];
    out[2] = tow_sin(out[0]);
}
static void recurrence(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_value carry[2], ys;
    tow_scan_function(t, cell, user, NULL, 2, in, 1, &in[2], 1, carry, &ys);
    out[0] = tow_reduce_sum(tow_mul(ys, ys), 0, NULL);
}

static void more(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    out[0] = tow_lt(tow_reduce_max(in[0], 0, NULL), tow_scalar(t, TOW_F32, 40));
}
static void grow(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_add(tow_mul_scalar(in[0], 1.25), tow_sort(in[0], 0, true));
}
static void until_large(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_value start = tow_add_scalar(tow_square(in[0]), 1);
    tow_while_function(t, more, grow, user, NULL, 1, &start, out);
    out[0] = tow_cumsum(tow_exp(tow_neg(out[0])), 0, false);
}

typedef struct kind {
    const char *name;
    tow_function function;
    bool gradient;
    size_t n_inputs;
    tow_type types[3];
} kind;

/* From small arenas to large ones and back, so that memory moves under programs that have run. */
static const kind kinds[] = {
    {"until_large", until_large, false, 1, {F32(33)}},
    {"layers", layers, false, 2, {F32(7, 12), F32(12, 12)}},
    {"gradient of layers", layers, true, 2, {F32(130, 24), F32(24, 24)}},
    {"recurrence", recurrence, false, 3, {F32(9, 16), F32(16, 16), F32(6, 9, 16)}},
    {"gradient of a recurrence", recurrence, true, 3, {F32(64, 16), F32(16, 16), F32(20, 64, 16)}},
    {"large layers", layers, true, 2, {F32(2048, 48), F32(48, 48)}},
    {"small layers", layers, true, 2, {F32(3, 8), F32(8, 8)}},
};
enum {
    KINDS = sizeof kinds / sizeof *kinds
};

typedef struct compiled {
    tow_graph *graph;
    tow_program *program;
    tow_array *in[3], *out[4];
    size_t n_in, n_out;
} compiled;

static compiled compile(const kind *k, tow_shared_arena *arena)
{
    compiled c = {.n_in = k->n_inputs};
    tow_graph *g;
    OK(tow_trace_function(ctx, k->function, NULL, k->n_inputs, k->types, NULL, 1, &g));
    if (k->gradient)
        OK(tow_value_and_grad(g, k->n_inputs, (const size_t[]){0, 1, 2}, false, &c.graph));
    else
        c.graph = tow_graph_retain(g);
    tow_graph_release(g);
    OK(tow_compile(ctx, c.graph, &TOW_COMPILE_OPTIONS(.shared_arena = arena), &c.program));
    c.n_out = tow_graph_output_count(c.graph);
    for (size_t i = 0; i < c.n_in; i++) {
        OK(tow_array_create(ctx, k->types[i], &c.in[i]));
        float *data = tow_array_data(c.in[i]);
        for (int64_t j = 0; j < tow_type_element_count(k->types[i]); j++) data[j] = (float)(j * 7919 % 257 - 128) / 512;
    }
    for (size_t i = 0; i < c.n_out; i++) OK(tow_array_create(ctx, tow_graph_output_type(c.graph, i), &c.out[i]));
    return c;
}

static void drop(compiled *c)
{
    tow_program_free(c->program);
    tow_graph_release(c->graph);
    for (size_t i = 0; i < c->n_in; i++) tow_array_release(c->in[i]);
    for (size_t i = 0; i < c->n_out; i++) tow_array_release(c->out[i]);
}

static void expect_same(const char *name, compiled *a, const compiled *b)
{
    for (size_t i = 0; i < a->n_out; i++) {
        const size_t bytes = tow_type_bytes(tow_array_type(a->out[i]));
        memset(tow_array_data(a->out[i]), 0xFF, bytes);
    }
    OK(tow_program_run(a->program, a->in, a->out));
    for (size_t i = 0; i < a->n_out; i++)
        if (memcmp(tow_array_data(a->out[i]), tow_array_data(b->out[i]), tow_type_bytes(tow_array_type(a->out[i]))))
            fail_msg("%s: output %zu has other bits", name, i);
}

static size_t in_lines(size_t bytes) { return bytes ? (bytes + 63) / 64 * 64 : 64; }

static void bits_are_those_of_arenas_of_their_own(void **state)
{
    (void)state;
    tow_shared_arena *arena;
    compiled own[KINDS], shared[KINDS];
    size_t largest = 0;
    OK(tow_shared_arena_create(ctx, &arena));
    assert_int_equal(tow_shared_arena_bytes(arena), 0);
    for (int i = 0; i < KINDS; i++) {
        own[i] = compile(&kinds[i], NULL);
        OK(tow_program_run(own[i].program, own[i].in, own[i].out));
        shared[i] = compile(&kinds[i], arena);
        const size_t bytes = tow_program_get_bytes(shared[i].program).arena;
        assert_int_equal(bytes, tow_program_get_bytes(own[i].program).arena);
        if (in_lines(bytes) > largest) largest = in_lines(bytes);
        assert_int_equal(tow_shared_arena_bytes(arena), largest);
        for (int j = 0; j <= i; j++) expect_same(kinds[j].name, &shared[j], &own[j]);
    }
    const long calls = memory.calls;
    for (int i = 0; i < 3 * KINDS; i++) expect_same(kinds[i % KINDS].name, &shared[i % KINDS], &own[i % KINDS]);
    for (int i = 3 * KINDS; i-- > 0;)
        expect_same(kinds[i * i % KINDS].name, &shared[i * i % KINDS], &own[i * i % KINDS]);
    assert_int_equal(memory.calls, calls); /* nothing is allocated in a run, nor where it moves */
    tow_shared_arena_release(arena);       /* programs keep it */
    expect_same(kinds[0].name, &shared[0], &own[0]);
    for (int i = 0; i < KINDS; i++) {
        drop(&own[i]);
        drop(&shared[i]);
    }
}

/* A program that is only planned has no memory, in a shared arena either. */
static void plans_take_no_memory(void **state)
{
    (void)state;
    tow_shared_arena *arena;
    tow_program *program;
    compiled c = compile(&kinds[2], NULL);
    OK(tow_shared_arena_create(ctx, &arena));
    OK(tow_compile(ctx, c.graph, &TOW_COMPILE_OPTIONS(.shared_arena = arena, .plan_only = true), &program));
    assert_int_equal(tow_shared_arena_bytes(arena), 0);
    assert_int_equal(tow_shared_arena_bytes(NULL), 0);
    tow_program_free(program);
    tow_shared_arena_release(arena);
    tow_shared_arena_release(NULL);
    drop(&c);
}

/* ---- memory that runs out ---------------------------------------------------------------------------------------- */

/* A program that cannot be compiled leaves the shared arena and the programs in it as they were. */
static void failed_growth_changes_nothing(void **state)
{
    (void)state;
    tow_shared_arena *arena;
    OK(tow_shared_arena_create(ctx, &arena));
    compiled own = compile(&kinds[1], NULL), small = compile(&kinds[1], arena), large = compile(&kinds[2], NULL);
    OK(tow_program_run(own.program, own.in, own.out));
    const size_t bytes = tow_shared_arena_bytes(arena);
    const long blocks = memory.blocks;
    tow_program *program = NULL;
    tow_status status = TOW_OUT_OF_MEMORY;
    for (long n = 0; status != TOW_OK; n += 1 + n / 20) {
        memory.fail_at = memory.calls + n;
        status = tow_compile(ctx, large.graph, &TOW_COMPILE_OPTIONS(.shared_arena = arena), &program);
        memory.fail_at = -1;
        if (status == TOW_OK) break;
        assert_int_equal(status, TOW_OUT_OF_MEMORY);
        assert_int_equal(memory.blocks, blocks);
        if (tow_shared_arena_bytes(arena) == bytes) expect_same("small", &small, &own);
    }
    assert_true(tow_shared_arena_bytes(arena) > bytes);
    expect_same("small", &small, &own);
    tow_program_free(program);
    drop(&own);
    drop(&small);
    drop(&large);
    tow_shared_arena_release(arena);
}

/* ---- programs within programs ------------------------------------------------------------------------------------ */

/* A function of the caller's that runs `inner`, and compiles `larger` with the shared arena that is in use. */
typedef struct nested {
    compiled *inner, *larger;
    tow_shared_arena *arena;
    tow_status ran, made;
} nested;

static tow_status run_inner(const tow_host_call *call)
{
    nested *n = call->user;
    tow_program *program = NULL;
    n->ran = tow_program_run(n->inner->program, n->inner->in, n->inner->out);
    n->made = tow_compile(ctx, n->larger->graph, &TOW_COMPILE_OPTIONS(.shared_arena = n->arena), &program);
    tow_program_free(program);
    memcpy(call->outputs[0].data, call->inputs[0].data, 4 * sizeof(float));
    return TOW_OK;
}

static void outer(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_host_function function = {.name = "run_inner", .run = run_inner, .user = user};
    const tow_type type = F32(4);
    tow_value x = tow_sin(in[0]), y;
    tow_call_host(t, &function, 1, &x, 1, &type, &y);
    out[0] = tow_add(x, tow_cos(y));
}

static void a_program_within_another_is_refused(void **state)
{
    (void)state;
    tow_shared_arena *arena;
    OK(tow_shared_arena_create(ctx, &arena));
    compiled inner = compile(&kinds[0], arena), larger = compile(&kinds[2], NULL);
    nested n = {&inner, &larger, arena, TOW_OK, TOW_OK};
    const kind k = {"outer", outer, false, 1, {F32(4)}};
    tow_graph *graph;
    tow_program *program;
    OK(tow_trace_function(ctx, k.function, &n, 1, k.types, NULL, 1, &graph));
    OK(tow_compile(ctx, graph, &TOW_COMPILE_OPTIONS(.shared_arena = arena), &program));
    const size_t bytes = tow_shared_arena_bytes(arena);
    tow_array *x, *y;
    OK(tow_array_from_data(ctx, k.types[0], (float[]){0, 0, 0, 0}, &x));
    OK(tow_array_create(ctx, k.types[0], &y));
    OK(tow_program_run(program, &x, &y));
    assert_int_equal(n.ran, TOW_INVALID_ARGUMENT);
    assert_int_equal(n.made, TOW_INVALID_ARGUMENT);
    assert_non_null(strstr(tow_context_error(ctx), ".shared_arena in which no program runs"));
    assert_memory_equal(tow_array_data(y), ((float[]){1, 1, 1, 1}), 16);
    assert_int_equal(tow_shared_arena_bytes(arena), bytes);
    OK(tow_program_run(inner.program, inner.in, inner.out)); /* afterwards it runs */
    tow_program_free(program);
    tow_graph_release(graph);
    tow_array_release(x);
    tow_array_release(y);
    drop(&inner);
    drop(&larger);
    tow_shared_arena_release(arena);
}

/* ---- who shares -------------------------------------------------------------------------------------------------- */

/* Sixteen sizes of batches: the memory of the largest. */
static void a_model_function_has_one_arena(void **state)
{
    (void)state;
    enum {
        SIZES = 16
    };
    const tow_mlp model = TOW_MLP(.features = {64, 64, 8});
    const tow_type one = F32(1, 32);
    tow_params *params = NULL;
    tow_model_function *f = NULL;
    OK(tow_model_init(ctx, TOW_MODULE(&model), 0, 1, &one, &params));
    OK(tow_model_function_create(TOW_MODULE(&model), params, &TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1, .limit = SIZES),
                                 &f));
    assert_int_equal(tow_model_function_arena_bytes(f), 0);
    for (int64_t n = 1; n <= SIZES; n++) {
        const tow_type type = F32(16 * n, 32);
        OK(tow_model_function_prepare(f, &type, NULL));
    }
    size_t sum = 0, largest = 0;
    for (size_t i = 0; i < SIZES; i++) {
        const size_t bytes = in_lines(tow_program_get_bytes(tow_model_function_program(f, i).program).arena);
        sum += bytes;
        if (bytes > largest) largest = bytes;
    }
    assert_true(sum > 8 * largest);
    assert_int_equal(tow_model_function_arena_bytes(f), largest);
    assert_int_equal(tow_model_function_arena_bytes(NULL), 0);
    tow_model_function_free(f);
    tow_params_free(params);
}

static void squares(tow_trace *trace, const tow_value *out, const tow_value *extra, tow_value *loss, tow_value *aux,
                    void *user)
{
    (void)trace, (void)aux, (void)user;
    *loss = tow_mean(tow_square(tow_sub(out[0], extra[0])), 0, NULL);
}

static tow_array *batch_of(int64_t rows, int64_t columns)
{
    tow_array *array = NULL;
    OK(tow_array_create(ctx, tow_make_type(TOW_F32, 2, (int64_t[]){rows, columns}), &array));
    return array;
}

/* A state over batches of 64, then of 16 and 256 rows: its bytes are those of its largest programs, once. */
static void a_training_state_has_one_arena(void **state)
{
    (void)state;
    const tow_mlp model = TOW_MLP(.features = {64, 8});
    const tow_type types[2] = {F32(64, 32), F32(64, 8)};
    const tow_train_options options =
        TOW_TRAIN_OPTIONS(.optimizer = {.kind = TOW_SGD, .learning_rate = {.peak_value = 0.125}}, .n_inputs = 1,
                          .input_types = &types[0], .n_extra = 1, .extra_types = &types[1], .loss = squares,
                          .evaluation = true, .other_shapes = 2);
    tow_train_state *s = NULL;
    size_t largest = 0, parts = 0;
    const int64_t rows[] = {64, 16, 256};
    OK(tow_train_create(ctx, TOW_MODULE(&model), &options, &s));
    for (int i = 0; i < 3; i++) {
        tow_array *batch[2] = {batch_of(rows[i], 32), batch_of(rows[i], 8)};
        OK(tow_train_step(s, batch, NULL));
        const tow_program_bytes b = tow_program_get_bytes(tow_train_program(s));
        if (b.arena > largest) largest = b.arena;
        OK(tow_train_evaluate(s, batch, NULL));
        tow_array_release(batch[0]);
        tow_array_release(batch[1]);
    }
    const tow_train_bytes b = tow_train_get_bytes(s);
    parts = b.parameters + b.optimizer + b.variables + b.residuals + b.workspace + b.evaluation + b.batch;
    assert_int_equal(b.total, parts);
    assert_true(b.residuals + b.workspace >= largest && b.residuals + b.workspace < largest + largest / 4);
    assert_true(b.evaluation < 1024); /* losses: the arena of the steps is large enough */
    tow_train_free(s);
}

/* The optimizer computes where the programs do that make its gradients. */
static void optimizers_share(void **state)
{
    (void)state;
    const tow_dense model = TOW_DENSE(.features = 24, .no_bias = true);
    const tow_type type = F32(4, 24);
    const tow_scale_by_muon muon = TOW_SCALE_BY_MUON();
    tow_params *params[2] = {NULL}, *gradients = NULL;
    tow_optimizer_state *o[2] = {NULL};
    tow_shared_arena *arena;
    OK(tow_shared_arena_create(ctx, &arena));
    compiled other = compile(&kinds[5], arena);
    for (int i = 0; i < 2; i++) {
        OK(tow_model_init(ctx, TOW_MODULE(&model), 3, 1, &type, &params[i]));
        OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&muon), params[i],
                                &TOW_OPTIMIZER_OPTIONS(.shared_arena = i ? arena : NULL), &o[i]));
    }
    OK(tow_params_copy(params[0], &gradients));
    const long calls = memory.calls;
    for (int i = 0; i < 3; i++) {
        OK(tow_optimizer_update(o[0], tow_params_arrays(gradients)));
        OK(tow_program_run(other.program, other.in, other.out));
        OK(tow_optimizer_update(o[1], tow_params_arrays(gradients)));
    }
    assert_int_equal(memory.calls, calls);
    assert_true(tow_params_equal(params[0], params[1]) && !tow_params_equal(params[0], gradients));
    for (int i = 0; i < 2; i++) {
        tow_optimizer_free(o[i]);
        tow_params_free(params[i]);
    }
    tow_params_free(gradients);
    drop(&other);
    tow_shared_arena_release(arena);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(bits_are_those_of_arenas_of_their_own),
        TEST(plans_take_no_memory),
        TEST(failed_growth_changes_nothing),
        TEST(a_program_within_another_is_refused),
        TEST(a_model_function_has_one_arena),
        TEST(a_training_state_has_one_arena),
        TEST(optimizers_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
