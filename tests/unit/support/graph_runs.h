/* A graph with inputs that follow from their place, and runs of its programs whose outputs are kept to be compared.
 * A test program includes it once, after cmocka. */
#ifndef TOW_TESTS_GRAPH_RUNS_H
#define TOW_TESTS_GRAPH_RUNS_H

#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/elements.h"
#include "tow/graph.h"
#include "tow/program.h"

enum {
    MOST_ARRAYS = 8
};

typedef struct problem {
    counting count;
    tow_context *ctx;
    tow_graph *graph;
    tow_array *inputs[MOST_ARRAYS], *outputs[MOST_ARRAYS];
} problem;

#define OK(p, call)                                                                                                    \
    do {                                                                                                               \
        if ((call) != TOW_OK) fail_msg("%s: %s", #call, tow_context_error((p)->ctx));                                  \
    } while (0)

static inline size_t bytes_of(const tow_array *x) { return tow_type_bytes(tow_array_type(x)); }

static inline void start_context(problem *p)
{
    *p = (problem){.count.fail_at = -1};
    tow_context_options options =
        TOW_CONTEXT_OPTIONS(.allocator = {.resize = counting_resize, .user = &p->count}, .threads = 2);
    assert_int_equal(tow_context_create(&options, &p->ctx), TOW_OK);
}

/* p owns the graph from here on. Numbers are within scale / 2, integers at least 0 and below 64. */
static inline void set_graph(problem *p, tow_graph *graph, float scale)
{
    p->graph = graph;
    assert_true(tow_graph_input_count(graph) <= MOST_ARRAYS && tow_graph_output_count(graph) <= MOST_ARRAYS);
    uint32_t seed = 1;
    for (size_t i = 0; i < tow_graph_input_count(graph); i++) {
        OK(p, tow_array_create(p->ctx, tow_graph_input_type(graph, i), &p->inputs[i]));
        tow_type type = tow_array_type(p->inputs[i]);
        for (int64_t j = 0; j < tow_type_element_count(type); j++) {
            seed = seed * 1664525u + 1013904223u;
            const float value = ((float)(seed >> 8) / 16777216.0f - 0.5f) * scale;
            const bool whole = tow_dtype_is_integer(type.dtype);
            set_array_element(p->inputs[i], j, whole ? (double)((seed >> 16) % 64) : (double)value);
        }
    }
    for (size_t i = 0; i < tow_graph_output_count(graph); i++)
        OK(p, tow_array_create(p->ctx, tow_graph_output_type(graph, i), &p->outputs[i]));
}

static inline void end(problem *p)
{
    for (size_t i = 0; i < MOST_ARRAYS; i++) {
        tow_array_release(p->inputs[i]);
        tow_array_release(p->outputs[i]);
    }
    tow_graph_release(p->graph);
    tow_context_free(p->ctx);
    assert_int_equal(p->count.blocks, 0);
    assert_int_equal(p->count.wrong_sizes, 0);
}

static inline tow_program *compile(problem *p, tow_compile_options options)
{
    tow_program *program;
    OK(p, tow_compile(p->ctx, p->graph, &options, &program));
    OK(p, tow_program_check(program));
    return program;
}

/* The bytes of every output, which the caller frees. */
static inline void run_to(problem *p, tow_program *program, char **bytes)
{
    size_t n = tow_graph_output_count(p->graph);
    for (size_t i = 0; i < n; i++) memset(tow_array_data(p->outputs[i]), 0xff, bytes_of(p->outputs[i]));
    OK(p, tow_program_run(program, p->inputs, p->outputs));
    for (size_t i = 0; i < n; i++) {
        bytes[i] = malloc(bytes_of(p->outputs[i]));
        assert_non_null(bytes[i]);
        memcpy(bytes[i], tow_array_data(p->outputs[i]), bytes_of(p->outputs[i]));
    }
}

#endif
