/* Convolutions, reductions over windows and cumulative operations against JAX: values and gradients, in f32 and f64.
 * The file is made by tests/oracle/windows_golden.py, which says what its lines mean. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/elements.h"
#include "tow/autodiff.h"
#include "tow/graph.h"
#include "tow/program.h"

enum {
    MOST = 4, /* inputs of a case, the weights included */
    LINE = 1 << 17
};

/* A case in one type: its inputs, then its results: the loss, the value, a gradient for each input but the last. */
typedef struct golden {
    tow_context *ctx;
    char text[LINE];
    double tolerance; /* units in the last place of numbers of size 1; 0: equal */
    size_t n_inputs, next;
    tow_array *results[MOST + 1];
} golden;

static tow_array *filled(tow_context *ctx, tow_type type, int64_t n, int64_t modulus, double scale)
{
    tow_array *x = NULL;
    assert_int_equal(tow_array_create(ctx, type, &x), TOW_OK);
    for (int64_t i = 0; i < tow_type_element_count(type); i++) {
        set_array_element(x, i, (double)((7919 * i + 104729 * n) % modulus - modulus / 2) / scale);
    }
    return x;
}

/* Types of floats: F[2,3] becomes f32[2,3] or f64[2,3]. */
static void write_types(char *text, const char *graph, const char *type)
{
    for (; *graph != '\0' && *graph != '\n'; graph++) {
        if (*graph == 'F' && graph[1] == '[')
            text += sprintf(text, "%s", type);
        else
            *text++ = *graph;
    }
    *text = '\0';
}

static void release(golden *g)
{
    for (size_t i = 0; i <= MOST; i++) {
        tow_array_release(g->results[i]);
        g->results[i] = NULL;
    }
}

/* line: what stands behind "case". */
static void run_case(golden *g, char *line, const char *type)
{
    tow_graph *graph = NULL, *gradient = NULL;
    tow_array *inputs[MOST];
    size_t wrt[MOST];
    int64_t modulus = strtoll(line, &line, 10);
    double scale = strtod(line, &line);
    release(g);
    g->tolerance = strtod(line, &line);
    g->next = 1;
    write_types(g->text, line, type);
    if (tow_graph_parse(g->ctx, g->text, &graph) != TOW_OK) fail_msg("%s: %s", g->text, tow_context_error(g->ctx));
    g->n_inputs = tow_graph_input_count(graph);
    assert_true(g->n_inputs <= MOST);
    for (size_t i = 0; i < g->n_inputs; i++) {
        inputs[i] = filled(g->ctx, tow_graph_input_type(graph, i), (int64_t)i, modulus, scale);
        wrt[i] = i;
    }
    if (tow_value_and_grad(graph, g->n_inputs - 1, wrt, true, &gradient) != TOW_OK ||
        tow_evaluate(gradient, inputs, g->results) != TOW_OK)
        fail_msg("%s: %s", g->text, tow_context_error(g->ctx));
    for (size_t i = 0; i < g->n_inputs; i++) tow_array_release(inputs[i]);
    tow_graph_release(gradient);
    tow_graph_release(graph);
}

static void check_line(golden *g, char *numbers)
{
    const tow_array *x = g->results[g->next];
    const double unit = tow_array_type(x).dtype == TOW_F32 ? 0x1p-23 : 0x1p-50;
    for (int64_t i = 0; i < tow_type_element_count(tow_array_type(x)); i++) {
        double expected = strtod(numbers, &numbers), found = array_element(x, i);
        if (!(fabs(found - expected) <= g->tolerance * unit * (1 + fabs(expected))))
            fail_msg("%s: result %zu, element %lld: expected %.17g, found %.17g", g->text, g->next, (long long)i,
                     expected, found);
    }
    while (*numbers == ' ') numbers++;
    if (*numbers != '\n' && *numbers != '\0')
        fail_msg("%s: result %zu has fewer elements than JAX's", g->text, g->next);
    g->next++;
}

static void values_and_gradients_are_those_of_jax(void **state)
{
    static golden g;
    static char line[LINE];
    (void)state;
    const char *const types[] = {"f32", "f64"};
    for (int t = 0; t < 2; t++) {
        size_t cases = 0;
        memset(&g, 0, sizeof g);
        assert_int_equal(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 2), &g.ctx), TOW_OK);
        FILE *file = fopen(TOW_TEST_DATA "/oracle/golden/windows.txt", "r");
        assert_non_null(file);
        while (fgets(line, sizeof line, file)) {
            if (strncmp(line, "case ", 5) != 0) {
                check_line(&g, line + 1);
                continue;
            }
            assert_true(cases == 0 || g.next == g.n_inputs + 1);
            run_case(&g, line + 5, types[t]);
            cases++;
        }
        assert_true(cases > 200 && g.next == g.n_inputs + 1);
        release(&g);
        fclose(file);
        tow_context_free(g.ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(values_and_gradients_are_those_of_jax)};
    return cmocka_run_group_tests_name("windows_golden", tests, NULL, NULL);
}
