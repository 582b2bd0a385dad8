/* Fuzz target: bytes as the text of a graph. A graph that is read is checked, printed and read back, cleaned,
 * differentiated, batched, planned, and run if the plan says that a run is short and small. */
#include <stdlib.h>

#include "src/base/xxh3.h"
#include "src/plan/analysis/tiling.h"
#include "src/plan/ir.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/support/elements.h"

/* A run may do so many operations and hold so many bytes, as its plan has them before it begins: a hundredth of a
 * second without sanitizers. Graphs that are larger than EQUATIONS are not compiled. */
enum {
    WORK = 1 << 20,
    BYTES = 1 << 20,
    STEP_WORK = 256, /* of each call of a kernel and each iteration of a loop, whatever they compute */
    EQUATIONS = 2000
};

/* ---- text -------------------------------------------------------------------------------------------------------- */

static char *print(const tow_graph *graph)
{
    const size_t length = tow_graph_text(graph, NULL, 0);
    char *text = malloc(length + 1);
    if (text == NULL) fuzz_fail("no memory");
    if (tow_graph_text(graph, text, length + 1) != length) fuzz_fail("two lengths of one text");
    return text;
}

/* A printed graph reads back as itself. */
static void check_text(tow_context *ctx, const tow_graph *graph)
{
    tow_graph *again = NULL;
    char *text = print(graph);
    fuzz_expect(ctx, tow_graph_parse(ctx, text, &again), text);
    char *second = print(again);
    if (strcmp(text, second) != 0) fuzz_fail("%s\nreads back as\n%s", text, second);
    free(text);
    free(second);
    tow_graph_release(again);
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static double plan_work(const tow__body *plan)
{
    double work = 0;
    for (uint32_t i = 0; i < plan->n_insts; i++) {
        const tow__instruction *step = &plan->insts[i];
        const tow__loop *loop = step->loop;
        work += STEP_WORK;
        work += loop != NULL ? (double)loop->length * (STEP_WORK + plan_work(loop->body)) : tow__flops(step);
    }
    return work;
}

static bool is_short(const tow_program *program)
{
    const tow_program_bytes bytes = tow_program_get_bytes(program);
    const size_t sizes[] = {bytes.inputs, bytes.outputs, bytes.arena, bytes.constants};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i] > BYTES) return false;
    return plan_work(program->top) <= WORK;
}

/* Small numbers, of both signs where there are signs: indices within arrays and beyond them. */
static void fill(tow_array *array, uint32_t *random)
{
    const tow_type type = tow_array_type(array);
    for (int64_t i = 0; i < tow_type_element_count(type); i++) {
        *random = *random * 1664525 + 1013904223;
        const int32_t x = (int32_t)(*random >> 24) - 128;
        double value = x / 16;
        if (tow_dtype_is_float(type.dtype)) value = (double)x / 64;
        const bool is_unsigned = type.dtype == TOW_U8 || type.dtype == TOW_U32 || type.dtype == TOW_U64;
        if (is_unsigned) value = (x + 128) / 16;
        if (type.dtype == TOW_BOOL) value = x < 0;
        set_array_element(array, i, value);
    }
}

static void run(tow_context *ctx, tow_program *program)
{
    const size_t n_in = program->graph->n_inputs, n_out = program->graph->n_outputs;
    tow_array **arrays = calloc(n_in + n_out + 1, sizeof *arrays);
    uint32_t random = 0;
    if (arrays == NULL) fuzz_fail("no memory");
    for (size_t i = 0; i < n_in + n_out; i++) {
        const tow_type type =
            i < n_in ? tow_graph_input_type(program->graph, i) : tow_graph_output_type(program->graph, i - n_in);
        fuzz_expect(ctx, tow_array_create(ctx, type, &arrays[i]), "an array of the run");
        if (i < n_in) fill(arrays[i], &random);
    }
    fuzz_expect(ctx, tow_program_run(program, arrays, arrays + n_in), "a run");
    for (size_t i = 0; i < n_in + n_out; i++) tow_array_release(arrays[i]);
    free(arrays);
}

static void compile(tow_context *ctx, const tow_graph *graph, tow_compile_options options)
{
    tow_program *program = NULL;
    if (tow_graph_primitive_count(graph, NULL) > EQUATIONS) return;
    options.plan_only = true;
    const bool fine = fuzz_succeeds(ctx, tow_compile(ctx, graph, &options, &program));
    if (fine) fuzz_expect(ctx, tow_program_check(program), "the plan's check");
    const bool runs = fine && is_short(program);
    if (fine) (void)tow_program_text(program, NULL, 0);
    tow_program_free(program);
    program = NULL;
    options.plan_only = false;
    if (!runs) return;
    fuzz_expect(ctx, tow_compile(ctx, graph, &options, &program), "compiling what was planned");
    run(ctx, program);
    tow_program_free(program);
}

/* ---- derivatives ------------------------------------------------------------------------------------------------- */

/* Takes `result`, if there is one. */
static void try_result(tow_context *ctx, tow_status status, tow_graph *result, tow_compile_options options)
{
    if (!fuzz_succeeds(ctx, status)) return;
    fuzz_expect(ctx, tow_graph_check(result), "the check of what a pass made");
    compile(ctx, result, options);
    tow_graph_release(result);
}

static void differentiate(tow_context *ctx, const tow_graph *graph, uint64_t choice, tow_compile_options options)
{
    tow_graph *result = NULL, *backward = NULL;
    tow_residuals residuals = {0};
    const bool scalar = tow_graph_output_count(graph) > 0 && tow_graph_output_type(graph, 0).rank == 0;
    if (choice % 4 == 0) {
        const tow_status status = tow_jvp(graph, 0, NULL, &result);
        try_result(ctx, status, result, options);
    } else if (scalar) {
        const tow_status status = tow_value_and_grad(graph, 0, NULL, true, &result);
        try_result(ctx, status, result, options);
    } else {
        const tow_status status = tow_vjp(graph, 0, NULL, &result, &backward);
        try_result(ctx, status, backward, options);
        tow_graph_release(result);
    }
    if (choice % 8 == 1 && fuzz_succeeds(ctx, tow_saved_residuals(graph, 0, NULL, &residuals)))
        (void)tow_residuals_text(&residuals, NULL, 0);
    tow_residuals_free(&residuals);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* The graph of 0 to 3 rows, with batch axes anywhere, or beyond what inputs have. */
static void batch(tow_context *ctx, const tow_graph *graph, uint64_t choice, tow_compile_options options)
{
    const size_t n_in = tow_graph_input_count(graph), n_out = tow_graph_output_count(graph);
    int *axes = calloc(n_in + n_out + 1, sizeof *axes);
    tow_graph *result = NULL;
    uint32_t random = (uint32_t)(choice >> 8);
    if (axes == NULL) fuzz_fail("no memory");
    for (size_t i = 0; i < n_in + n_out; i++) {
        const tow_type row = i < n_in ? tow_graph_input_type(graph, i) : tow_graph_output_type(graph, i - n_in);
        random = random * 1664525 + 1013904223;
        const int axis = (int)((random >> 16) % (2 * (uint32_t)row.rank + 3)) - row.rank - 1;
        const bool beyond = axis > row.rank && (random >> 8) % 16 != 0; /* mostly that: an error ends all */
        axes[i] = !beyond ? axis : i < n_in ? TOW_NOT_MAPPED : 0;
    }
    const tow_status status = tow_vmap(graph, (int64_t)(choice % 4), axes, axes + n_in, &result);
    if (status == TOW_OK) check_text(ctx, result);
    try_result(ctx, status, result, options);
    free(axes);
}

/* ---- the target -------------------------------------------------------------------------------------------------- */

static void try_graph(tow_context *ctx, const tow_graph *graph, uint64_t choice)
{
    /* The options that are tried besides the default depend on the text, so that one input always does the same. */
    const tow_compile_options options =
        TOW_COMPILE_OPTIONS(.no_fusion = (choice >> 8) % 8 == 0, .no_regions = (choice >> 16) % 8 == 0,
                            .memory_limit = (choice >> 24) % 8 == 0 ? SIZE_MAX : 0);
    tow_graph *result = NULL;
    fuzz_expect(ctx, tow_graph_check(graph), "the check of what was read");
    check_text(ctx, graph);
    tow_status status = choice & 1 ? tow_graph_dce(graph, &result) : tow_graph_cse(graph, &result);
    fuzz_expect(ctx, status, "cleaning");
    fuzz_expect(ctx, tow_graph_check(result), "the check of what was cleaned");
    tow_graph_release(result);
    compile(ctx, graph, options);
    differentiate(ctx, graph, choice >> 32, options);
    batch(ctx, graph, choice >> 40, options);
}

int fuzz_target(const uint8_t *data, size_t size)
{
    tow_context *ctx = fuzz_context();
    tow_graph *graph = NULL;
    char *text = fuzz_text(data, size);
    if (fuzz_succeeds(ctx, tow_graph_parse(ctx, text, &graph))) try_graph(ctx, graph, XXH3_64bits(text, strlen(text)));
    tow_graph_release(graph);
    free(text);
    fuzz_end(ctx);
    return 0;
}
