/* Rows of batched programs have the bits of the program on each row, with portable bits: all programs of tests/graphs
 * and their gradients under policies; any inputs batched, along any axes. tests/programs does so over random
 * programs. */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "src/graph/graph.h"
#include "tests/unit/support/elements.h"
#include "tests/unit/support/rows.h"
#include "tow/tow.h"

enum {
    ROWS = 3,
    MOST_INPUTS = 24,
    MOST_BYTES = 1 << 20 /* of a program of tests/graphs that is run */
};

static tow_context *ctx;

static int setup(void **state)
{
    const tow_context_options options = TOW_CONTEXT_OPTIONS(.portable_bits = true, .threads = 2);
    (void)state;
    return tow_context_create(&options, &ctx) == TOW_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    tow_context_free(ctx);
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

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

static void fill(tow_array *array, uint32_t *random)
{
    tow_type type = tow_array_type(array);
    const bool is_unsigned = type.dtype == TOW_U8 || type.dtype == TOW_U32 || type.dtype == TOW_U64;
    for (int64_t i = 0; i < tow_type_element_count(type); i++) {
        const int32_t x = (int32_t)draw(random, 256) - 128;
        double value = is_unsigned ? (x + 128) / 32 : x / 32;
        if (tow_dtype_is_float(type.dtype)) value = (double)x / 77;
        if (type.dtype == TOW_BOOL) value = x < 0;
        set_array_element(array, i, value);
    }
}

static bool same_bits(const tow_array *a, const tow_array *b)
{
    tow_type type = tow_array_type(a);
    for (int64_t i = 0; i < tow_type_element_count(type); i++) {
        const void *x = tow_array_data(a), *y = tow_array_data(b);
        size_t size = tow_dtype_size(type.dtype), at = (size_t)i * size;
        if (isnan(array_element(a, i)) && isnan(array_element(b, i))) continue;
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
    *out = (arrays){.n = tow_graph_output_count(g)};
    if (tow_evaluate(g, in->a, out->a) != TOW_OK) fail_msg("%s: %s", what, tow_context_error(ctx));
}

static int random_axis(uint32_t *random, tow_type row)
{
    return (int)draw(random, 2 * (uint32_t)row.rank + 2) - row.rank - 1;
}

/* Inputs of all rows, and of each row, for one choice of axes. */
static void make_inputs(const tow_graph *g, const int *axes, uint32_t *random, arrays *all, arrays rows[ROWS])
{
    size_t n = tow_graph_input_count(g);
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
    size_t n = tow_graph_input_count(g), n_out = tow_graph_output_count(g), always = n ? draw(&random, (uint32_t)n) : 0;
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
        if (strstr(tow_context_error(ctx), "over processes has no rows"))
            return; /* an exchange of one process's part */
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
    char text[512];
    tow_graph *region = NULL, *gradient;
    compare(g, random, what);
    const char *policy = policies[random % 5];
    if (policy) {
        tow_policy *p;
        OK(tow_policy_parse(ctx, policy, &p));
        if (tow_remat_whole(g, p, &region) != TOW_OK) region = NULL; /* it knows no such names */
        tow_policy_free(p);
    }
    if (tow_value_and_grad(region ? region : g, 0, NULL, true, &gradient) == TOW_OK) {
        snprintf(text, sizeof text, "%s, gradient under %s", what, region ? policy : "no policy");
        compare(gradient, random + 1, text);
        tow_graph_release(gradient);
    }
    tow_graph_release(region);
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
    for (size_t i = 0; i < tow_graph_input_count(g); i++) bytes += tow_type_bytes(tow_graph_input_type(g, i));
    for (size_t i = 0; i < tow_graph_output_count(g); i++) bytes += tow_type_bytes(tow_graph_output_type(g, i));
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
        cmocka_unit_test(test_programs_of_graphs),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
