/* With portable bits, row i of a batched program has the bits of the program on row i: any inputs batched, along any
 * axes; the program itself, its gradient, and its gradient in a region under a policy. */
#include <stdlib.h>
#include <string.h>

#include "tests/programs/programs.h"
#include "tests/unit/support/rows.h"

enum {
    MOST_ROWS = 3,
    MOST_INPUTS = 40
};

/* One choice of which inputs and outputs have rows where. */
typedef struct rows {
    int count;
    int in_axes[MOST_INPUTS], out_axes[MOST_INPUTS];
} rows;

static int some_axis(choices *c, tow_type row) { return choose(c, 2 * row.rank + 2) - row.rank - 1; }

static rows choose_rows(choices *c, const tow_graph *g)
{
    rows r = {.count = 1 + choose(c, MOST_ROWS)};
    const size_t n = tow_graph_input_count(g), always = (size_t)choose(c, (int)n);
    for (size_t i = 0; i < n; i++) {
        const int axis = some_axis(c, tow_graph_input_type(g, i));
        r.in_axes[i] = choose(c, 2) || i == always ? axis : TOW_NOT_MAPPED;
    }
    for (size_t i = 0; i < tow_graph_output_count(g); i++) r.out_axes[i] = some_axis(c, tow_graph_output_type(g, i));
    return r;
}

static tow_array *new_array(tow_context *context, tow_type type)
{
    tow_array *a = NULL;
    if (tow_array_create(context, type, &a) != TOW_OK) abort();
    return a;
}

/* all: inputs of all rows, made of those of each row; rows share what is not mapped. */
static arrays join_rows(const tow_graph *g, const rows *r, const arrays *each)
{
    arrays all = {.n = tow_graph_input_count(g)};
    if ((all.list = calloc(all.n + 1, sizeof *all.list)) == NULL) abort();
    for (size_t i = 0; i < all.n; i++) {
        tow_type whole = tow_graph_input_type(g, i);
        if (r->in_axes[i] == TOW_NOT_MAPPED) {
            all.list[i] = tow_array_retain(each[0].list[i]);
            continue;
        }
        const int at = r->in_axes[i] < 0 ? r->in_axes[i] + whole.rank + 1 : r->in_axes[i];
        for (int d = whole.rank++; d > at; d--) whole.dims[d] = whole.dims[d - 1];
        whole.dims[at] = r->count;
        all.list[i] = new_array(tow_graph_context(g), whole);
        for (int k = 0; k < r->count; k++) copy_row(all.list[i], at, k, each[k].list[i], true);
    }
    return all;
}

static void share_unmapped(const rows *r, arrays *each)
{
    for (int k = 1; k < r->count; k++)
        for (size_t i = 0; i < each[0].n; i++) {
            if (r->in_axes[i] != TOW_NOT_MAPPED) continue;
            tow_array_release(each[k].list[i]);
            each[k].list[i] = tow_array_retain(each[0].list[i]);
        }
}

/* Checks that row k of all results has the bits of the program on that row. */
static verdict compare_row(trial *t, const char *what, const tow_graph *g, const rows *r, int k, const arrays *all,
                           const arrays *in)
{
    char text[MESSAGE];
    arrays expected = {0}, found = {0};
    const how h = {.threads = 1 + k % 2};
    if (!run(g, &h, in, &expected)) return fail(t, "%s: %s", what, tow_context_error(t->portable));
    found = (arrays){.n = expected.n, .list = calloc(expected.n + 1, sizeof *found.list)};
    if (found.list == NULL) abort();
    for (size_t i = 0; i < found.n; i++) {
        found.list[i] = new_array(t->portable, tow_graph_output_type(g, i));
        copy_row(all->list[i], r->out_axes[i], k, found.list[i], false);
    }
    verdict v = PASSES;
    if (!same_bits(&expected, &found, text)) v = fail(t, "%s, row %d of %d: %s", what, k, r->count, text);
    release(&expected);
    release(&found);
    return v;
}

static verdict compare_rows(trial *t, const char *what, const tow_graph *g, const rows *r)
{
    tow_graph *batched = NULL;
    arrays each[MOST_ROWS] = {{0}}, found = {0};
    if (tow_vmap(g, r->count, r->in_axes, r->out_axes, &batched) != TOW_OK) {
        const bool deep = strstr(tow_context_error(t->portable), "would have rank 9") != NULL;
        return deep ? UNDECIDED : fail(t, "%s: %s", what, tow_context_error(t->portable));
    }
    for (int k = 0; k < r->count; k++) each[k] = inputs_of(g, t->seed + (uint32_t)k);
    share_unmapped(r, each);
    arrays all = join_rows(g, r, each);
    const how h = {.threads = 2};
    verdict v = PASSES;
    if (!run(batched, &h, &all, &found)) v = fail(t, "%s: %s", what, tow_context_error(t->portable));
    for (int k = 0; k < r->count && v == PASSES; k++) v = compare_row(t, what, g, r, k, &found, &each[k]);
    for (int k = 0; k < r->count; k++) release(&each[k]);
    release(&all);
    release(&found);
    tow_graph_release(batched);
    return v;
}

static verdict compare_function(trial *t, const char *what, const tow_graph *g, uint32_t salt)
{
    choices c = choices_of(t, salt);
    if (tow_graph_input_count(g) == 0 || tow_graph_input_count(g) > MOST_INPUTS ||
        tow_graph_output_count(g) > MOST_INPUTS)
        return UNDECIDED;
    const rows r = choose_rows(&c, g);
    return compare_rows(t, what, g, &r);
}

verdict check_rows(trial *t)
{
    static const char *const texts[] = {"nothing", "dots", "dots_with_no_batch_dims", "everything",
                                        "any_names_but:other"};
    tow_graph *g = read_with(t->portable, t->graph, "\n", "\n"), *region = NULL, *gradient;
    tow_policy *policy = NULL;
    if (!g) return fail(t, "with portable bits: %s", tow_context_error(t->portable));
    verdict v = compare_function(t, "value", g, 3);
    if (t->seed % 2 && tow_policy_parse(t->portable, texts[t->seed / 2 % 5], &policy) == TOW_OK) {
        if (tow_remat_whole(g, policy, &region) != TOW_OK) region = NULL; /* it has no names */
        tow_policy_free(policy);
    }
    if (v != FAILS && (gradient = gradient_of(region ? region : g)) != NULL) {
        v = compare_function(t, region ? "gradient in a region" : "gradient", gradient, 4);
        tow_graph_release(gradient);
    }
    tow_graph_release(region);
    tow_graph_release(g);
    return v;
}
