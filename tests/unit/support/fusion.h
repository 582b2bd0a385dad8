/* Runs of graphs fused and instruction by instruction, which must give the same bits. */
#ifndef TOW_TESTS_FUSION_H
#define TOW_TESTS_FUSION_H

#include <stdio.h>
#include <string.h>

#include "tests/unit/support/elements.h"
#include "tests/unit/support/pick.h"
#include "tests/unit/support/threaded_context.h"
#include "tow/graph.h"
#include "tow/program.h"

static inline tow_type matrix(int64_t rows, int64_t columns)
{
    return tow_make_type(TOW_F32, 2, (int64_t[]){rows, columns});
}

static inline tow_graph *trace(tow_function function, void *user, size_t n_in, const tow_type *types, size_t n_out)
{
    tow_graph *g = NULL;
    OK(tow_trace_function(ctx, function, user, n_in, types, NULL, n_out, &g));
    return g;
}

enum {
    MOST_ARRAYS = 8
};

static inline void fill(tow_array *x)
{
    tow_type type = tow_array_type(x);
    for (int64_t i = 0; i < tow_type_element_count(type); i++) {
        double value = (pick(4001) - 2000) * 1e-3;
        if (tow_dtype_is_float(type.dtype)) set_array_element(x, i, value);
    }
}

static inline size_t run(const tow_graph *g, const tow_compile_options *options, tow_array **x, tow_array **y)
{
    tow_program *p;
    OK(tow_compile(ctx, g, options, &p));
    OK(tow_program_check(p));
    for (size_t i = 0; i < tow_graph_output_count(g); i++)
        OK(tow_array_create(ctx, tow_graph_output_type(g, i), &y[i]));
    OK(tow_program_run(p, x, y));
    size_t arena = tow_program_get_bytes(p).lower_bound;
    tow_program_free(p);
    return arena;
}

/* Runs g in all ways; *fused, *separate: bytes that its arena needs at least. */
static inline void expect_same(const tow_graph *g, uint32_t number, size_t *fused, size_t *separate)
{
    tow_array *x[MOST_ARRAYS], *y[3][MOST_ARRAYS];
    for (size_t i = 0; i < tow_graph_input_count(g); i++) {
        OK(tow_array_create(ctx, tow_graph_input_type(g, i), &x[i]));
        fill(x[i]);
    }
    *separate = run(g, &TOW_COMPILE_OPTIONS(.threads = 1, .no_fusion = true), x, y[0]);
    *fused = run(g, &TOW_COMPILE_OPTIONS(.threads = 1), x, y[1]);
    run(g, &TOW_COMPILE_OPTIONS(.threads = 2), x, y[2]);
    for (size_t i = 0; i < tow_graph_output_count(g); i++) {
        size_t bytes = tow_type_bytes(tow_array_type(y[0][i]));
        for (int way = 1; way < 3; way++)
            if (memcmp(tow_array_data(y[0][i]), tow_array_data(y[way][i]), bytes) != 0) {
                static char text[1 << 16];
                tow_program *p;
                tow_graph_text(g, text, sizeof text);
                fprintf(stderr, "%s\n", text);
                OK(tow_compile(ctx, g, NULL, &p));
                tow_program_text(p, text, sizeof text);
                fail_msg("program %u, output %zu differs\n%s", number, i, text);
            }
        for (int way = 0; way < 3; way++) tow_array_release(y[way][i]);
    }
    for (size_t i = 0; i < tow_graph_input_count(g); i++) tow_array_release(x[i]);
}

/* The plan for one thread. */
static inline bool says(const tow_graph *g, const char *part)
{
    static char text[1 << 14];
    tow_program *p;
    OK(tow_compile(ctx, g, &TOW_COMPILE_OPTIONS(.threads = 1), &p));
    tow_program_text(p, text, sizeof text);
    tow_program_free(p);
    return strstr(text, part) != NULL;
}

#endif
