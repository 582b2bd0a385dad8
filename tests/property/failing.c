/* Allocations failing in turn, the first forty and then ever fewer, while a case is differentiated, batched,
 * compiled and printed. What ran out of memory says so, leaves nothing behind, and works the next time. */
#include <stdio.h>

#include "tests/property/property.h"
#include "tests/unit/support/counting_allocator.h"

static tow_status differentiate_and_compile(const tow_graph *graph, bool differentiable, bool forward_mode)
{
    tow_graph *jvp = NULL, *forward = NULL, *backward = NULL, *batched = NULL;
    tow_program *program = NULL;
    tow_status status = TOW_OK;
    if (differentiable && forward_mode) status = tow_jvp(graph, 0, NULL, &jvp);
    if (status == TOW_OK && differentiable) status = tow_vjp(graph, 0, NULL, &forward, &backward);
    if (status == TOW_OK && tow_graph_inputs(graph) > 0) status = tow_vmap(graph, 2, NULL, NULL, &batched);
    if (status == TOW_OK)
        status = tow_compile(tow_graph_context(graph), graph, &(tow_compile_options){.plan_only = true}, &program);
    FILE *nowhere = fopen("/dev/null", "w");
    if (status == TOW_OK && differentiable && nowhere != NULL)
        status = tow_print_forward_backward(graph, 0, NULL, nowhere);
    if (nowhere != NULL) fclose(nowhere);
    tow_program_free(program);
    tow_graph_release(jvp);
    tow_graph_release(forward);
    tow_graph_release(backward);
    tow_graph_release(batched);
    return status;
}

/* The allocation with number n, which fails, was reported and left nothing behind. */
static bool survives(counting *count, const tow_graph *graph, bool differentiable, bool forward_mode, long n)
{
    tow_context *context = tow_graph_context(graph);
    const long blocks = count->blocks;
    tow_context_clear_error(context);
    count->calls = 0;
    count->fail_at = n;
    const tow_status status = differentiate_and_compile(graph, differentiable, forward_mode);
    count->fail_at = -1;
    if (status == TOW_OUT_OF_MEMORY && count->blocks == blocks && tow_context_error(context)[0] != '\0') return true;
    printf("allocation %ld fails: %s, '%s', %ld blocks leak\n", n, tow_status_text(status), tow_context_error(context),
           count->blocks - blocks);
    return false;
}

int property_check_failing(const property_case *c)
{
    counting count;
    const tow_context_options options = counting_options(&count, -1);
    tow_context *context = NULL;
    if (tow_context_create(&options, &context) != TOW_OK) return 1;
    tow_graph *graph = property_graph(context, c, TOW_F64);
    int failures = graph == NULL;
    if (graph != NULL) {
        const bool forward_mode = !c->reverse_only;
        bool differentiable = false;
        for (size_t i = 0; i < tow_graph_inputs(graph); i++)
            differentiable = differentiable || tow_dtype_is_float(tow_graph_input_type(graph, i).dtype);
        count.calls = 0;
        const tow_status expected = differentiate_and_compile(graph, differentiable, forward_mode);
        const long calls = count.calls;
        for (long n = 0; n < calls && failures == 0; n += 1 + n / 40) /* every one at first, then a growing sample */
            failures += !survives(&count, graph, differentiable, forward_mode, n);
        failures += differentiate_and_compile(graph, differentiable, forward_mode) != expected;
    }
    tow_graph_release(graph);
    tow_context_destroy(context);
    return failures + (count.blocks != 0);
}
