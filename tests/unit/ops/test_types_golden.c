/* Element types against JAX: conversions, arithmetic on edge values, reductions, products with a preferred type,
 * gradients in 16 bits under policies. tests/oracle/types_golden.py says what is in the file. Tests wide.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/elements.h"
#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

enum {
    MOST = 32,         /* arrays of a case */
    WORD = 64,         /* bytes of a word */
    LONGEST = 16 << 10 /* and of a graph */
};

typedef struct golden {
    char name[WORD];
    double steps;
    tow_graph *graph;
    tow_array *in[MOST], *out[MOST], *grad[MOST];
    size_t n_in, n_out, wrt[MOST], n_grad;
} golden;

static void read_word(FILE *file, char word[WORD])
{
    if (fscanf(file, "%63s", word) != 1) fail_msg("types.txt ends early");
}

static tow_array *read_array(FILE *file)
{
    char word[WORD];
    tow_type type = {0};
    tow_array *array = NULL;
    read_word(file, word);
    while ((int)type.dtype < TOW_DTYPE_END && strcmp(word, tow_dtype_name(type.dtype)) != 0) type.dtype++;
    assert_int_equal(fscanf(file, "%d", &type.rank), 1);
    for (int d = 0; d < type.rank; d++) {
        read_word(file, word);
        type.dims[d] = strtoll(word, NULL, 10);
    }
    OK(tow_array_create(ctx, type, &array));
    const size_t size = tow_dtype_size(type.dtype);
    for (int64_t i = 0; i < tow_type_element_count(type); i++) {
        read_word(file, word);
        const uint64_t bits = strtoull(word, NULL, 16);
        const uint32_t bits32 = (uint32_t)bits;
        const uint16_t bits16 = (uint16_t)bits;
        const uint8_t bits8 = (uint8_t)bits;
        const void *from = size == 8   ? (const void *)&bits
                           : size == 4 ? (const void *)&bits32
                           : size == 2 ? (const void *)&bits16
                                       : &bits8;
        memcpy((char *)tow_array_data(array) + (size_t)i * size, from, size);
    }
    return array;
}

/* False at the end of the file. `word` is the one that begins the case, or what ended the last one. */
static bool read_case(FILE *file, char word[WORD], golden *g)
{
    static char text[LONGEST];
    *g = (golden){.n_in = 0};
    while (word[0] == '#' || word[0] == '\0') {
        if (word[0] == '#') assert_true(fscanf(file, "%*[^\n]") >= 0);
        read_word(file, word);
    }
    if (strcmp(word, "case") != 0) return false;
    read_word(file, g->name);
    read_word(file, word);
    g->steps = strtod(word, NULL);
    for (;;) {
        if (fscanf(file, "%63s", word) != 1) strcpy(word, "end");
        if (strcmp(word, "case") == 0 || strcmp(word, "end") == 0) return true;
        if (strcmp(word, "graph") == 0) {
            assert_non_null(fgets(text, sizeof text, file));
            OK(tow_graph_parse(ctx, text, &g->graph));
        } else if (strcmp(word, "in") == 0) {
            g->in[g->n_in++] = read_array(file);
        } else if (strcmp(word, "out") == 0) {
            g->out[g->n_out++] = read_array(file);
        } else {
            assert_string_equal(word, "grad");
            assert_int_equal(fscanf(file, "%zu", &g->wrt[g->n_grad]), 1);
            g->grad[g->n_grad++] = read_array(file);
        }
    }
}

static void release(size_t n, tow_array **arrays)
{
    for (size_t i = 0; i < n; i++) tow_array_release(arrays[i]);
}

/* Half a unit in the last place of 1. */
static double rounding(tow_dtype dtype)
{
    return dtype == TOW_BF16 ? 0x1p-8 : dtype == TOW_F16 ? 0x1p-11 : dtype == TOW_F32 ? 0x1p-24 : 0x1p-53;
}

static int failures;

/* The same bits, or numbers `steps` roundings apart, of the element or, for sums, of the largest; a NaN is a NaN. */
static void compare(const golden *g, const char *what, size_t k, tow_array *found, tow_array *expected)
{
    const tow_type type = tow_array_type(expected);
    const size_t size = tow_dtype_size(type.dtype);
    double most = 0;
    assert_true(tow_type_equal(tow_array_type(found), type));
    for (int64_t i = 0; g->n_grad > 0 && i < tow_type_element_count(type); i++)
        most = fmax(most, fabs(array_element(expected, i)));
    for (int64_t i = 0; i < tow_type_element_count(type); i++) {
        const char *a = (const char *)tow_array_data(found) + (size_t)i * size,
                   *b = (const char *)tow_array_data(expected) + (size_t)i * size;
        const double x = array_element(found, i), y = array_element(expected, i);
        if (memcmp(a, b, size) == 0 || (isnan(x) && isnan(y))) continue;
        if (g->steps > 0 && fabs(x - y) <= g->steps * rounding(type.dtype) * fmax(fabs(y), most)) continue;
        print_error("%s: %s %zu, element %d: expected %.9g, found %.9g\n", g->name, what, k, (int)i, y, x);
        failures++;
        return; /* one message per array */
    }
}

static void check_case(const golden *g)
{
    tow_array *out[MOST] = {NULL};
    OK(tow_evaluate(g->graph, g->in, out));
    for (size_t i = 0; i < g->n_out; i++) compare(g, "result", i, out[i], g->out[i]);
    release(g->n_out, out);
    if (g->n_grad == 0) return;
    tow_graph *grad = NULL;
    OK(tow_grad(g->graph, g->n_grad, g->wrt, false, &grad));
    OK(tow_evaluate(grad, g->in, out));
    for (size_t i = 0; i < g->n_grad; i++) compare(g, "gradient", i, out[i], g->grad[i]);
    release(g->n_grad, out);
    tow_graph_release(grad);
}

static void every_case(void **state)
{
    (void)state;
    FILE *file = fopen(TOW_TEST_DATA "/oracle/golden/types.txt", "r");
    char word[WORD] = "";
    golden g;
    int cases = 0;
    assert_non_null(file);
    for (; read_case(file, word, &g); cases++) {
        check_case(&g);
        release(g.n_in, g.in);
        release(g.n_out, g.out);
        release(g.n_grad, g.grad);
        tow_graph_release(g.graph);
    }
    assert_true(cases > 50);
    assert_int_equal(failures, 0);
    fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_case)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
