/* Row regions: what they compute has the same bits as without them, for any number of threads; regions
 * are formed where they should be.
 *
 * Tests tile_groups.c, tiles.c, profitability.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "src/kernels/products/gemm.h"
#include "src/plan/ir.h"
#include "src/plan/report/timeline.h"
#include "tests/unit/support/failing_compiles.h"
#include "tests/unit/support/graph_runs.h"
#include "tow/autodiff.h"
#include "tow/graph.h"
#include "tow/program.h"

enum {
    LAYERS = 3,
    WEIGHTS = 4, /* inputs that are differentiated: embedding, two stacked matrices, stacked scale */
    STEPS = 3
};

/* A loop over residual blocks with a norm, attention-free, tied to an embedding, which is read before and after it. */
static const char model[] =
    "{ lambda ; e:f32[64,96]\"e\" w:f32[3,96,160]\"w\" v:f32[3,160,96]\"v\" g:f32[3,96]\"g\" rows:i32[8,64]\"rows\""
    " labels:i32[8,64]\"labels\". let\n"
    "    x:f32[8,64,96] = gather e rows\n"
    "    y:f32[8,64,96] = scan[length=3 reverse=false consts=0 carry=1\n"
    "      body={ lambda ; x:f32[8,64,96] w:f32[96,160] v:f32[160,96] g:f32[96]. let\n"
    "          n:f32[8,64,96] r:f32[8,64] = rms_norm[epsilon=1e-05] x g\n"
    "          h:f32[8,64,160] = dot_general[lhs_contract=(2) rhs_contract=(0) lhs_batch=() rhs_batch=()] n w\n"
    "          t:f32[8,64,160] = tanh h\n"
    "          o:f32[8,64,96] = dot_general[lhs_contract=(2) rhs_contract=(0) lhs_batch=() rhs_batch=()] t v\n"
    "          z:f32[8,64,96] = add x o\n"
    "        in (z) }] x w v g\n"
    "    l:f32[8,64,64] = dot_general[lhs_contract=(2) rhs_contract=(1) lhs_batch=() rhs_batch=()] y e\n"
    "    c:f32[8,64] s:f32[8,64] = softmax_cross_entropy l labels\n"
    "    sum:f32[] = reduce_sum[axes=(0,1)] c\n"
    "  in (sum) }";

/* Value and gradients of a model. */
static void begin_with(problem *p, const char *text)
{
    tow_graph *loss, *gradient;
    start_context(p);
    OK(p, tow_graph_parse(p->ctx, text, &loss));
    OK(p, tow_value_and_grad(loss, WEIGHTS, (size_t[]){0, 1, 2, 3}, false, &gradient));
    tow_graph_release(loss);
    set_graph(p, gradient, 0.3f);
}

static void begin(problem *p) { begin_with(p, model); }

static uint32_t count_regions(const tow__body *plan)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n_insts; i++) {
        const tow__loop *loop = plan->insts[i].loop;
        if (loop) n += (tow__is_parallel(loop->schedule) ? 1u : 0u) + count_regions(loop->body);
    }
    return n;
}

static void regions_change_no_bits(void **state)
{
    (void)state;
    static const tow_compile_options variants[] = {
        TOW_COMPILE_OPTIONS(.threads = 1, .no_regions = true),
        TOW_COMPILE_OPTIONS(.threads = 2, .no_regions = true),
        TOW_COMPILE_OPTIONS(.threads = 1),
        TOW_COMPILE_OPTIONS(.threads = 2),
    };
    problem p;
    char *first[1 + WEIGHTS], *again[1 + WEIGHTS];
    begin(&p);
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        tow_program *program = compile(&p, variants[v]);
        assert_int_equal(count_regions(program->top) > 1, !variants[v].no_regions);
        run_to(&p, program, v ? again : first);
        for (size_t i = 0; v && i <= WEIGHTS; i++) {
            assert_memory_equal(first[i], again[i], bytes_of(p.outputs[i]));
            free(again[i]);
        }
        tow_program_free(program);
    }
    for (size_t i = 0; i <= WEIGHTS; i++) free(first[i]);
    end(&p);
}

/* The model with five sequences instead of eight, and three times as long. */
static void begin_odd(problem *p)
{
    static const char even[] = "[8,64", odd[] = "[5,192";
    char text[2 * sizeof model];
    size_t n = 0;
    for (const char *c = model; *c; n++) {
        if (strncmp(c, even, sizeof even - 1) == 0) {
            memcpy(text + n, odd, sizeof odd - 1);
            n += sizeof odd - 2;
            c += sizeof even - 1;
        } else {
            text[n] = *c++;
        }
    }
    text[n] = 0;
    begin_with(p, text);
}

/* Regions of so many blocks of which all threads share so many. */
static uint32_t count_shared(const tow__body *plan, int64_t blocks, int64_t shared)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n_insts; i++) {
        const tow__loop *loop = plan->insts[i].loop;
        if (!loop) continue;
        n += tow__is_parallel(loop->schedule) && loop->length == blocks && loop->shared == shared;
        n += count_shared(loop->body, blocks, shared);
    }
    return n;
}

/* The fifth block would keep one of two threads busy: both work on it. */
static void last_blocks_are_shared(void **state)
{
    (void)state;
    problem p;
    char *alone[1 + WEIGHTS], *together[1 + WEIGHTS];
    begin_odd(&p);
    tow_program *one = compile(&p, TOW_COMPILE_OPTIONS(.threads = 1));
    assert_int_equal(count_shared(one->top, 5, 0), count_regions(one->top));
    run_to(&p, one, alone);
    tow_program_free(one);
    tow_program *two = compile(&p, TOW_COMPILE_OPTIONS(.threads = 2));
    if (two->team.threads == 2) {
        assert_true(count_shared(two->top, 5, 1) > 1);
        static char text[1 << 15]; /* the stack may be small */
        assert_in_range(tow_program_text(two, text, sizeof text), 1, sizeof text - 1);
        assert_non_null(strstr(text, "5 blocks, the last 1 by all threads"));
    }
    for (int recorded = 0; recorded < 2; recorded++) {
        OK(&p, tow_program_record(two, recorded));
        run_to(&p, two, together);
        for (size_t i = 0; i <= WEIGHTS; i++) {
            assert_memory_equal(alone[i], together[i], bytes_of(p.outputs[i]));
            free(together[i]);
        }
    }
    tow_program_free(two);
    for (size_t i = 0; i <= WEIGHTS; i++) free(alone[i]);
    expect_compile_survives(&p.count, p.ctx, p.graph, &TOW_COMPILE_OPTIONS(.threads = 2));
    end(&p);
}

/* Packed strips of x for all threads, which shared blocks need, take more than the body, whose values are all results.
 * */
static void shared_blocks_have_their_scratch(void **state)
{
    (void)state;
    static const char text[] =
        "{ lambda ; x:f32[5,128,512]\"x\" w:f32[512,1024]\"w\" v:f32[1024,512]\"v\". let\n"
        "    h:f32[5,128,1024] = dot_general[lhs_contract=(2) rhs_contract=(0) lhs_batch=() rhs_batch=()] x w\n"
        "    o:f32[5,128,512] = dot_general[lhs_contract=(2) rhs_contract=(0) lhs_batch=() rhs_batch=()] h v\n"
        "  in (h, o) }";
    problem p;
    tow_graph *g;
    char *alone[2], *together[2];
    start_context(&p);
    OK(&p, tow_graph_parse(p.ctx, text, &g));
    set_graph(&p, g, 0.3f);
    tow_program *program = compile(&p, TOW_COMPILE_OPTIONS(.threads = 1));
    run_to(&p, program, alone);
    tow_program_free(program);
    program = compile(&p, TOW_COMPILE_OPTIONS(.threads = 2));
    run_to(&p, program, together);
    for (int i = 0; i < 2; i++) {
        assert_memory_equal(alone[i], together[i], bytes_of(p.outputs[i]));
        free(alone[i]);
        free(together[i]);
    }
    for (uint32_t i = 0; i < program->top->n_insts; i++) {
        const tow__loop *loop = program->top->insts[i].loop;
        if (!loop || !loop->shared) continue;
        size_t bytes = program->storages[loop->body->block].bytes;
        assert_true(bytes >= loop->body->bytes + loop->body->scratch);
        assert_true(bytes >= loop->body->bytes * loop->body->copies);
        tow__timeline timeline;
        OK(&p, tow__timeline_make(program, TOW__LIVE_SHOWN, &timeline));
        assert_true((size_t)timeline.total[timeline.peak] >= bytes);
        tow__timeline_free(&timeline);
    }
    tow_program_bytes bytes = tow_program_get_bytes(program);
    assert_true(bytes.lower_bound <= bytes.arena);
    tow_program_free(program);
    end(&p);
}

/* A block of every value that only a region sees: less memory than whole values. */
static void regions_need_less_memory(void **state)
{
    (void)state;
    problem p;
    begin(&p);
    tow_graph *loss;
    tow_program *with, *without;
    OK(&p, tow_graph_parse(p.ctx, model, &loss));
    OK(&p, tow_compile(p.ctx, loss, &TOW_COMPILE_OPTIONS(.plan_only = true, .threads = 1), &with));
    OK(&p,
       tow_compile(p.ctx, loss, &TOW_COMPILE_OPTIONS(.plan_only = true, .threads = 1, .no_regions = true), &without));
    assert_true(tow_program_get_bytes(with).arena < tow_program_get_bytes(without).arena);
    assert_int_equal(tow_program_operation_count(with, "dot_general"),
                     tow_program_operation_count(without, "dot_general"));
    assert_int_equal(tow_program_operation_count(with, "tanh"), tow_program_operation_count(without, "tanh"));
    assert_int_equal(tow_program_run(with, p.inputs, p.outputs), TOW_INVALID_ARGUMENT);
    tow_program_free(with);
    tow_program_free(without);
    tow_graph_release(loss);
    end(&p);
}

/* A norm and a softmax written out, over `rows` rows: without products, blocks follow from bytes. */
static tow_graph *written_out(problem *p, int rows)
{
    char text[2048];
    int n = snprintf(text, sizeof text,
                     "{ lambda ; x:f32[%1$d,512]\"x\" g:f32[512]\"g\". let\n"
                     "    q:f32[%1$d,512] = mul x x\n"
                     "    s:f32[%1$d] = reduce_sum[axes=(1)] q\n"
                     "    r:f32[%1$d] = rsqrt s\n"
                     "    w:f32[%1$d,512] = broadcast_in_dim[shape=(%1$d,512) axes=(0)] r\n"
                     "    h:f32[%1$d,512] = broadcast_in_dim[shape=(%1$d,512) axes=(1)] g\n"
                     "    n:f32[%1$d,512] = mul x w\n"
                     "    y:f32[%1$d,512] = mul n h\n"
                     "    m:f32[%1$d] = reduce_max[axes=(1)] y\n"
                     "    v:f32[%1$d,512] = broadcast_in_dim[shape=(%1$d,512) axes=(0)] m\n"
                     "    d:f32[%1$d,512] = sub y v\n"
                     "    e:f32[%1$d,512] = exp d\n"
                     "    z:f32[%1$d] = reduce_sum[axes=(1)] e\n"
                     "    i:f32[%1$d,512] = broadcast_in_dim[shape=(%1$d,512) axes=(0)] z\n"
                     "    o:f32[%1$d,512] = div e i\n"
                     "  in (o) }",
                     rows);
    assert_true(n > 0 && (size_t)n < sizeof text);
    tow_graph *g;
    OK(p, tow_graph_parse(p->ctx, text, &g));
    return g;
}

static void reductions_of_rows_are_one_pass(void **state)
{
    (void)state;
    static const struct {
        int rows;
        bool region;
    } cases[] = {{1024, true}, {1000, true}, {1021, false}, {64, false}}; /* a prime; what is near anyway */
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        problem p;
        start_context(&p);
        set_graph(&p, written_out(&p, cases[c].rows), 1.0f);
        char *first, *again;
        for (int threads = 1; threads <= 2; threads++) {
            tow_program *whole = compile(&p, TOW_COMPILE_OPTIONS(.threads = threads, .no_regions = true));
            tow_program *program = compile(&p, TOW_COMPILE_OPTIONS(.threads = threads));
            assert_int_equal(count_regions(program->top), cases[c].region);
            if (cases[c].region) { /* all of it, and nothing of the size of x lies in memory */
                assert_int_equal(program->top->n_insts, 1);
                assert_true(tow_program_get_bytes(program).arena < bytes_of(p.inputs[0]) / 4);
            }
            run_to(&p, whole, &first);
            run_to(&p, program, &again);
            assert_memory_equal(first, again, bytes_of(p.outputs[0]));
            free(first);
            free(again);
            tow_program_free(whole);
            tow_program_free(program);
        }
        end(&p);
    }
}

/* Blocks of the only region of tanh(x w) v, where x has 4 x `rows` rows and w and v `width` x `width` elements; 1:
 * none. */
static int64_t blocks_of(problem *p, int rows, int width)
{
    char text[640];
    snprintf(text, sizeof text,
             "{ lambda ; x:f32[4,%d,%d]\"x\" w:f32[%d,%d]\"w\" v:f32[%d,%d]\"v\". let\n"
             "    h:f32[4,%d,%d] = dot_general[lhs_contract=(2) rhs_contract=(0) lhs_batch=() rhs_batch=()] x w\n"
             "    t:f32[4,%d,%d] = tanh h\n"
             "    o:f32[4,%d,%d] = dot_general[lhs_contract=(2) rhs_contract=(0) lhs_batch=() rhs_batch=()] t v\n"
             "  in (o) }",
             rows, width, width, width, width, width, rows, width, rows, width, rows, width);
    tow_graph *g;
    tow_program *program;
    OK(p, tow_graph_parse(p->ctx, text, &g));
    OK(p, tow_compile(p->ctx, g, &TOW_COMPILE_OPTIONS(.plan_only = true, .threads = 2), &program));
    int64_t blocks = 1;
    assert_true(count_regions(program->top) < 2);
    for (uint32_t i = 0; i < program->top->n_insts; i++)
        if (program->top->insts[i].loop) blocks = program->top->insts[i].loop->length;
    tow_program_free(program);
    tow_graph_release(g);
    return blocks;
}

/* Weights that do not fit the second cache are fetched again for each block: fewer blocks, or none for few rows. */
static void large_weights_meet_more_rows(void **state)
{
    (void)state;
    problem p;
    begin(&p);
    assert_int_equal(blocks_of(&p, 256, 128), 4);
    assert_int_equal(blocks_of(&p, 256, 1536), 2);
    assert_int_equal(blocks_of(&p, 64, 128), 2);
    assert_int_equal(blocks_of(&p, 64, 1536), 1);
    end(&p);
}

/* An operand that all blocks read is packed once: small columns, which get powers of two, and infinities, too. */
static void packed_weights_change_no_bits(void **state)
{
    (void)state;
    enum {
        IN = 256,
        OUT = 160
    };
    static const tow_compile_options variants[] = {TOW_COMPILE_OPTIONS(.threads = 1, .no_regions = true),
                                                   TOW_COMPILE_OPTIONS(.threads = 1),
                                                   TOW_COMPILE_OPTIONS(.threads = 2)};
    const char *text =
        "{ lambda ; x:f32[16,256,256]\"x\" w:f32[160,256]\"w\" b:f32[160]\"b\" v:f32[160,256]\"v\". let\n"
        "    h:f32[16,256,160] = dot_general[lhs_contract=(2) rhs_contract=(1) lhs_batch=() rhs_batch=()] x w\n"
        "    r:f32[16,256,160] = broadcast_in_dim[shape=(16,256,160) axes=(2)] b\n"
        "    s:f32[16,256,160] = add h r\n"
        "    t:f32[16,256,160] = tanh s\n"
        "    o:f32[16,256,256] = dot_general[lhs_contract=(2) rhs_contract=(0) lhs_batch=() rhs_batch=()] t v\n"
        "  in (o) }";
    problem p;
    begin(&p);
    tow_graph *g;
    OK(&p, tow_graph_parse(p.ctx, text, &g));
    tow_type types[] = {tow_make_type(TOW_F32, 3, (int64_t[]){16, 256, IN}),
                        tow_make_type(TOW_F32, 2, (int64_t[]){OUT, IN}), tow_make_type(TOW_F32, 1, (int64_t[]){OUT}),
                        tow_make_type(TOW_F32, 2, (int64_t[]){OUT, IN})};
    tow_array *in[4], *out[sizeof variants / sizeof *variants];
    for (size_t i = 0; i < 4; i++) {
        OK(&p, tow_array_create(p.ctx, types[i], &in[i]));
        float *x = tow_array_data(in[i]);
        for (int64_t j = 0; j < tow_type_element_count(types[i]); j++) x[j] = sinf((float)(j + 1) * (float)(i + 2));
    }
    float *w = tow_array_data(in[1]), *v = tow_array_data(in[3]);
    for (int64_t j = 0; j < IN; j++) w[3 * IN + j] *= 0x1p-60f;
    for (int64_t j = 0; j < OUT; j++) v[j * IN + 40] *= 0x1p50f;
    w[100 * IN + 7] = INFINITY;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        tow_program *program;
        OK(&p, tow_compile(p.ctx, g, &variants[i], &program));
        assert_int_equal(tow_program_operation_count(program, "pack_operand"), variants[i].no_regions ? 0 : 2);
        OK(&p, tow_array_create(p.ctx, types[0], &out[i]));
        OK(&p, tow_program_run(program, in, &out[i]));
        assert_memory_equal(tow_array_data(out[i]), tow_array_data(out[0]), tow_type_bytes(types[0]));
        tow_program_free(program);
    }
    expect_compile_survives(&p.count, p.ctx, g, &variants[1]);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) tow_array_release(out[i]);
    for (size_t i = 0; i < 4; i++) tow_array_release(in[i]);
    tow_graph_release(g);
    end(&p);
}

/* The memory of a plan for two threads, and the operands that it packs. */
typedef struct packing {
    size_t arena;
    uint64_t operands;
} packing;

static packing plan_on(const char *engine, const char *text)
{
    tow_context *ctx;
    tow_graph *g;
    tow_program *program;
    assert_int_equal(tow_context_create(&TOW_CONTEXT_OPTIONS(.engine = engine, .threads = 2), &ctx), TOW_OK);
    assert_int_equal(tow_graph_parse(ctx, text, &g), TOW_OK);
    assert_int_equal(tow_compile(ctx, g, &TOW_COMPILE_OPTIONS(.plan_only = true), &program), TOW_OK);
    packing x = {tow_program_get_bytes(program).arena, tow_program_operation_count(program, "pack_operand")};
    tow_program_free(program);
    tow_graph_release(g);
    tow_context_free(ctx);
    return x;
}

/* Bytes of the arena for `layers` products with weights of 512 x 512, one after the other. */
static size_t arena_of(int sequences, int layers, const char *engine)
{
    char text[32768];
    size_t n = (size_t)snprintf(text, sizeof text, "{ lambda ; x:f32[%d,128,512]\"x\"", sequences);
    for (int i = 0; i < layers; i++) n += (size_t)snprintf(text + n, sizeof text - n, " w%d:f32[512,512]\"w%d\"", i, i);
    n += (size_t)snprintf(text + n, sizeof text - n, ". let\n");
    for (int i = 0; i < layers; i++) {
        char from[16] = "x";
        if (i > 0) snprintf(from, sizeof from, "t%d", i - 1);
        n += (size_t)snprintf(text + n, sizeof text - n,
                              "    h%d:f32[%d,128,512] = dot_general[lhs_contract=(2) rhs_contract=(0) lhs_batch=() "
                              "rhs_batch=()] %s w%d\n    t%d:f32[%d,128,512] = tanh h%d\n",
                              i, sequences, from, i, i, sequences, i);
    }
    n += (size_t)snprintf(text + n, sizeof text - n, "  in (t%d) }", layers - 1);
    assert_true(n < sizeof text);
    return plan_on(engine, text).arena;
}

/* However many weights a region reads, packing adds a quarter of what two activations take, or 64 MiB, and what the
 * engine needs for each of two threads. Packed, all weights would take 73 MB, on the matrix unit 110 MB. */
static void packed_weights_need_limited_memory(void **state)
{
    (void)state;
    const int layers = 70;
    const size_t engine = 2 << 20, most = 64 << 20;
    for (int unit = 0; unit <= tow__gemm_amx_usable(); unit++) {
        for (int sequences = 64; sequences <= 1024; sequences *= 2) {
            size_t quarter = 2 * (size_t)sequences * 128 * 512 * sizeof(float) / 4;
            size_t with = arena_of(sequences, layers, unit ? "amx" : "own");
            size_t without = arena_of(sequences, layers, "reference"); /* packs nothing */
            assert_true(with > without + (1 << 20));
            assert_true(with <= without + (quarter < most ? quarter : most) + engine);
        }
    }
}

/* Operands that are packed in a body for `rows` rows of 256 elements, which itself needs no memory for values. */
static uint64_t packed_in_body(int64_t rows, const char *engine)
{
    char text[2048];
    const int n = (int)rows / 16;
    snprintf(
        text, sizeof text,
        "{ lambda ; x:f32[16,%d,256]\"x\" w:f32[4,256,256]\"w\". let\n"
        "    y:f32[16,%d,256] ys:f32[4,16,%d,256] = scan[length=4 reverse=false consts=0 carry=1\n"
        "      body={ lambda ; x:f32[16,%d,256] w:f32[256,256]. let\n"
        "          h:f32[16,%d,256] = dot_general[lhs_contract=(2) rhs_contract=(0) lhs_batch=() rhs_batch=()] x w\n"
        "          t:f32[16,%d,256] = tanh h\n"
        "        in (t, t) }] x w\n"
        "  in (y, ys) }",
        n, n, n, n, n, n);
    return plan_on(engine, text).operands;
}

/* The bytes of its loop's rows that a body reads and writes count as well: a weight, 1 KiB for a row of a result. A
 * quarter is to hold 4 bytes for each element of the weight (0.25 MiB), for the matrix unit 6 (0.38 MiB). */
static void weights_are_packed_in_loops(void **state)
{
    (void)state;
    assert_int_equal(packed_in_body(1024, "own"), 4); /* 0.31 MiB */
    assert_int_equal(packed_in_body(512, "own"), 0);  /* 0.19 MiB */
    if (!tow__gemm_amx_usable()) return;
    assert_int_equal(packed_in_body(2048, "amx"), 4); /* 0.56 MiB */
    assert_int_equal(packed_in_body(1024, "amx"), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_change_no_bits),           cmocka_unit_test(last_blocks_are_shared),
        cmocka_unit_test(shared_blocks_have_their_scratch), cmocka_unit_test(regions_need_less_memory),
        cmocka_unit_test(reductions_of_rows_are_one_pass),  cmocka_unit_test(large_weights_meet_more_rows),
        cmocka_unit_test(packed_weights_change_no_bits),    cmocka_unit_test(packed_weights_need_limited_memory),
        cmocka_unit_test(weights_are_packed_in_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
