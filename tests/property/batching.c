/* Batching: a batched graph against the graph on each row, for every choice of batched operands that matters, with batch
 * axes in several places. On an engine with portable bits each row has the very same bits; so has the batched gradient,
 * and the batched tangent. Derivatives of the batched graph add up rows in another order, so those are compared with a
 * tolerance: the same numbers, but for rounding. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/property/property.h"

#define FAIL(count, ...) (printf("  "), printf(__VA_ARGS__), printf("\n"), (count)++)

enum {
    ROWS = 3,
    MOST = 2 * MAX_IN + 2 * MAX_OUT,
    PLACES = 3 /* of batch axes: in front, behind the last axis, or another one for each array */
};

/* A graph of one row, and what its rows are given. */
typedef struct batching {
    const char *what;
    tow_graph *graph;
    property_values rows[ROWS]; /* of inputs */
    double tolerance;           /* 0: the same bits */
} batching;

/* One way to batch it. */
typedef struct manner {
    int64_t size;
    unsigned mask; /* bit i: input i is batched; others are that of row 0 */
    int place;
} manner;

/* ---- arrays of all rows ------------------------------------------------------------------------------------------ */

static int axis_of(tow_type row, size_t i, int place)
{
    return place == 0 ? 0 : place == 1 ? -1 : (int)((i + 1) % ((size_t)row.rank + 1));
}

/* Copies row `r` to its place in an array of all rows, whose batch axis is at `axis`, or, if `back`, from there. */
static void copy_row(tow_type row, int axis, int64_t size, int64_t r, double *all, double *one, bool back)
{
    int64_t before = 1, after = 1;
    if (axis < 0) axis += row.rank + 1;
    for (int d = 0; d < row.rank; d++) *(d < axis ? &before : &after) *= row.dims[d];
    for (int64_t i = 0; i < before; i++) {
        double *x = all + (i * size + r) * after, *y = one + i * after;
        memcpy(back ? y : x, back ? x : y, (size_t)after * sizeof *x);
    }
}

static double *new_array(int64_t count)
{
    double *array = calloc((size_t)count + 1, sizeof *array);
    if (array == NULL) abort();
    return array;
}

/* The inputs of the batched graph, and where their batch axes are. */
static property_values stack_rows(const batching *b, manner m, int *axes)
{
    property_values all = {.n = tow_graph_inputs(b->graph)};
    for (size_t i = 0; i < all.n; i++) {
        const tow_type row = tow_graph_input_type(b->graph, i);
        const bool mapped = m.mask >> i & 1;
        axes[i] = mapped ? axis_of(row, i, m.place) : TOW_NOT_MAPPED;
        all.counts[i] = tow_type_count(row) * (mapped ? m.size : 1);
        all.arrays[i] = new_array(all.counts[i]);
        for (int64_t r = 0; mapped && r < m.size; r++)
            copy_row(row, axes[i], m.size, r, all.arrays[i], b->rows[r].arrays[i], false);
        if (!mapped) memcpy(all.arrays[i], b->rows[0].arrays[i], (size_t)all.counts[i] * sizeof(double));
    }
    return all;
}

/* What the graph gives for row r under this manner. */
static bool evaluate_row(const batching *b, manner m, int64_t r, property_values *result)
{
    property_values in = {.n = tow_graph_inputs(b->graph)};
    for (size_t i = 0; i < in.n; i++) {
        const property_values *from = &b->rows[m.mask >> i & 1 ? r : 0];
        in.arrays[i] = from->arrays[i];
        in.counts[i] = from->counts[i];
    }
    return property_evaluate(b->graph, &in, result);
}

/* tolerance 0: bits. */
static bool same(const double *found, const double *expected, int64_t n, double tolerance)
{
    double scale = 0;
    for (int64_t k = 0; k < n; k++)
        if (isfinite(expected[k]) && fabs(expected[k]) > scale) scale = fabs(expected[k]);
    for (int64_t k = 0; k < n; k++) {
        if (isnan(found[k]) && isnan(expected[k])) continue;
        if (tolerance == 0 ? memcmp(&found[k], &expected[k], sizeof *found) != 0
                           : found[k] != expected[k] && !(fabs(found[k] - expected[k]) <= tolerance * (scale + 1e-3)))
            return false;
    }
    return true;
}

/* ---- one manner -------------------------------------------------------------------------------------------------- */

static int compare_rows(const batching *b, manner m, const int *axes, const property_values *found, double tolerance)
{
    int failures = 0;
    for (int64_t r = 0; r < m.size && failures == 0; r++) {
        property_values expected = {0};
        if (!evaluate_row(b, m, r, &expected))
            FAIL(failures, "batching, %s: row %lld does not run", b->what, (long long)r);
        for (size_t i = 0; i < expected.n && failures == 0; i++) {
            double *row = new_array(expected.counts[i]);
            copy_row(tow_graph_output_type(b->graph, i), axes[i], m.size, r, found->arrays[i], row, true);
            if (!same(row, expected.arrays[i], expected.counts[i], tolerance))
                FAIL(failures, "batching, %s: operands %x, axes in place %d: row %lld of result %zu differs", b->what,
                     m.mask, m.place, (long long)r, i);
            free(row);
        }
        property_free(&expected);
    }
    return failures;
}

/* batched: made of b->graph in this manner. */
static int compare_graph(const batching *b, manner m, const tow_graph *batched, const property_values *all,
                         const int *out_axes, double tolerance)
{
    property_values found = {0};
    int failures = property_check_text(batched, "batched graph");
    if (!property_evaluate(batched, all, &found))
        FAIL(failures, "batching, %s: does not run", b->what);
    else
        failures += compare_rows(b, m, out_axes, &found, tolerance);
    property_free(&found);
    return failures;
}

static void choose_out_axes(const batching *b, manner m, int *axes)
{
    for (size_t i = 0; i < tow_graph_outputs(b->graph); i++)
        axes[i] = axis_of(tow_graph_output_type(b->graph, i), i + 1, m.place);
}

/* tow_vmap of the graph, and, of what was differentiated before, `after` of the batched function. */
static int check_manner(const batching *b, manner m)
{
    int in_axes[MOST], out_axes[MOST], failures = 0;
    property_values all = stack_rows(b, m, in_axes);
    tow_graph *batched = NULL;
    choose_out_axes(b, m, out_axes);
    if (tow_vmap(b->graph, m.size, in_axes, out_axes, &batched) != TOW_OK)
        FAIL(failures, "batching, %s: operands %x, axes in place %d: %s", b->what, m.mask, m.place,
             tow_context_error(tow_graph_context(b->graph)));
    else
        failures += compare_graph(b, m, batched, &all, out_axes, b->tolerance);
    tow_graph_release(batched);
    property_free(&all);
    return failures;
}

/* All operands in all places and numbers of rows, each alone, and all but each. */
static int check_manners(const batching *b)
{
    const size_t n = tow_graph_inputs(b->graph);
    const unsigned every = (1u << n) - 1;
    int failures = 0;
    if (n == 0) return 0;
    for (int place = 0; place < PLACES; place++) failures += check_manner(b, (manner){ROWS, every, place});
    for (int64_t size = 0; size < 2; size++) failures += check_manner(b, (manner){size, every, 0});
    for (size_t i = 0; i < n && n > 1; i++) {
        failures += check_manner(b, (manner){ROWS, 1u << i, (int)(i % PLACES)});
        if (n > 2) failures += check_manner(b, (manner){ROWS, every & ~(1u << i), (int)((i + 1) % PLACES)});
    }
    return failures;
}

/* ---- derivatives of the batched graph ---------------------------------------------------------------------------- */

/* jvp after vmap: tangents of rows, as vmap of jvp gives. b: of the jvp, made of `graph`. */
static int check_jvp_of_batched(const batching *b, const tow_graph *graph, manner m, const size_t *wrt, size_t n_wrt)
{
    int in_axes[MOST], out_axes[MOST], failures = 0;
    property_values all = stack_rows(b, m, in_axes);
    tow_graph *batched = NULL, *jvp = NULL;
    choose_out_axes(b, m, out_axes);
    if (tow_vmap(graph, m.size, in_axes, out_axes, &batched) != TOW_OK || tow_jvp(batched, n_wrt, wrt, &jvp) != TOW_OK)
        FAIL(failures, "batching, jvp of vmap: %s", tow_context_error(tow_graph_context(graph)));
    else
        failures += compare_graph(b, m, jvp, &all, out_axes, 1e-12);
    tow_graph_release(batched);
    tow_graph_release(jvp);
    property_free(&all);
    return failures;
}

/* The sum over all rows of a graph with one output. */
typedef struct summed {
    const tow_graph *scalar;
    const int *in_axes;
} summed;

static void inline_row(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    tow_inline(trace, ((const summed *)user)->scalar, in, out);
}

static void sum_rows(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const summed *s = user;
    const tow_vmap_options options = {.in_axes = s->in_axes};
    tow_vmap_function(trace, inline_row, user, &options, tow_graph_inputs(s->scalar), in, 1, out);
    out[0] = tow_reduce_sum(out[0], 0, NULL);
}

static tow_graph *sum_graph(const tow_graph *scalar, manner m, const int *in_axes)
{
    summed s = {scalar, in_axes};
    tow_type types[MOST];
    tow_graph *graph = NULL;
    const size_t n = tow_graph_inputs(scalar);
    for (size_t i = 0; i < n; i++) {
        types[i] = tow_graph_input_type(scalar, i);
        if (in_axes[i] == TOW_NOT_MAPPED) continue;
        const int at = in_axes[i] < 0 ? in_axes[i] + types[i].rank + 1 : in_axes[i];
        for (int d = types[i].rank++; d > at; d--) types[i].dims[d] = types[i].dims[d - 1];
        types[i].dims[at] = m.size;
    }
    tow_trace_function(tow_graph_context(scalar), sum_rows, &s, n, types, NULL, 1, &graph);
    return graph;
}

/* Gradient of that sum: of a batched input its rows' gradients, of another one their sum. b: of the gradient of `scalar`. */
static int check_grad_of_batched(const batching *b, const tow_graph *scalar, manner m, const size_t *wrt, size_t n_wrt)
{
    int in_axes[MOST], failures = 0;
    property_values all = stack_rows(b, m, in_axes), found = {0}, rows[ROWS] = {{0}};
    tow_graph *sum = sum_graph(scalar, m, in_axes), *grad = NULL;
    bool runs =
        sum != NULL && tow_grad(sum, n_wrt, wrt, false, &grad) == TOW_OK && property_evaluate(grad, &all, &found);
    for (int64_t r = 0; runs && r < m.size; r++) runs = evaluate_row(b, m, r, &rows[r]);
    if (!runs) FAIL(failures, "batching, gradient of vmap: %s", tow_context_error(tow_graph_context(scalar)));
    for (size_t j = 0; runs && j < n_wrt; j++) {
        const bool mapped = in_axes[wrt[j]] != TOW_NOT_MAPPED;
        double *expected = new_array(found.counts[j]);
        for (int64_t r = 0; r < m.size; r++)
            if (mapped)
                copy_row(tow_graph_input_type(scalar, wrt[j]), in_axes[wrt[j]], m.size, r, expected, rows[r].arrays[j],
                         false);
            else
                for (int64_t k = 0; k < found.counts[j]; k++) expected[k] += rows[r].arrays[j][k];
        if (!same(found.arrays[j], expected, found.counts[j], 1e-11))
            FAIL(failures, "batching, gradient of vmap: operands %x, axes in place %d: that of input %zu differs",
                 m.mask, m.place, wrt[j]);
        free(expected);
    }
    for (int r = 0; r < ROWS; r++) property_free(&rows[r]);
    property_free(&all);
    property_free(&found);
    tow_graph_release(sum);
    tow_graph_release(grad);
    return failures;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* Draws what the inputs behind those of the case are: weights, or tangents. */
static void draw_further(batching *b)
{
    for (int r = 0; r < ROWS; r++) {
        uint64_t state = 1000 + (uint64_t)r;
        for (size_t i = b->rows[r].n; i < tow_graph_inputs(b->graph); i++) {
            const int64_t count = tow_type_count(tow_graph_input_type(b->graph, i));
            b->rows[r].counts[i] = count;
            b->rows[r].arrays[i] = new_array(count);
            for (int64_t k = 0; k < count; k++) b->rows[r].arrays[i][k] = property_unit(&state);
            b->rows[r].n = i + 1;
        }
    }
}

static void begin(batching *b, const char *what, tow_graph *graph, const property_case *c)
{
    *b = (batching){.what = what, .graph = graph};
    for (int r = 0; r < ROWS; r++) property_draw_row(c, (uint64_t)r, &b->rows[r]);
    draw_further(b);
}

static void end(batching *b)
{
    for (int r = 0; r < ROWS; r++) property_free(&b->rows[r]);
    tow_graph_release(b->graph);
}

static int check_derivatives(tow_context *context, const property_case *c, tow_dtype floats, const size_t *wrt,
                             size_t n_wrt)
{
    tow_graph *graph = property_graph(context, c, floats), *scalar = property_scalar_graph(context, c, floats);
    tow_graph *jvp = NULL, *grad = NULL;
    int failures = 0;
    batching b;
    if (graph == NULL || scalar == NULL || (!c->reverse_only && tow_jvp(graph, n_wrt, wrt, &jvp) != TOW_OK) ||
        tow_grad(scalar, n_wrt, wrt, false, &grad) != TOW_OK)
        FAIL(failures, "batching: %s", tow_context_error(context));
    for (int kind = c->reverse_only; failures == 0 && kind < 2; kind++) {
        begin(&b, kind == 0 ? "jvp" : "gradient", tow_graph_retain(kind == 0 ? jvp : grad), c);
        failures += check_manners(&b);
        const size_t n = c->n_in;
        for (size_t i = 0; floats == TOW_F64 && i <= n && failures == 0; i++) {
            unsigned mask = i == n ? (1u << tow_graph_inputs(b.graph)) - 1 : 1u << i;
            for (size_t j = 0; kind == 0 && j < n_wrt; j++) mask |= (mask >> wrt[j] & 1) << (n + j);
            const manner m = {ROWS, mask, (int)(i % 2)}; /* tangents have the axes of their primals */
            failures += kind == 0 ? check_jvp_of_batched(&b, graph, m, wrt, n_wrt)
                                  : check_grad_of_batched(&b, scalar, m, wrt, n_wrt);
        }
        end(&b);
    }
    tow_graph_release(graph);
    tow_graph_release(scalar);
    tow_graph_release(jvp);
    tow_graph_release(grad);
    return failures;
}

/* ---- the primitive with another rule ----------------------------------------------------------------------------- */

/* A case of a primitive whose descriptor is a copy with this rule; NULL: the default. */
typedef struct other_rule {
    property_case c; /* first: it is what `build` gets */
    tow_primitive primitive;
} other_rule;

static void build_other(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    const other_rule *other = (const other_rule *)c;
    tow__bind(trace, &other->primitive, c->params, c->n_in, in, c->n_out == 0 ? 1 : c->n_out, out);
}

static int check_other_rule(tow_context *context, const property_case *c, void (*rule)(tow__batch *r))
{
    other_rule other = {.c = *c, .primitive = *tow__primitive_find(c->primitive, strlen(c->primitive))};
    batching b;
    other.c.build = build_other;
    other.primitive.batch = rule;
    tow_graph *graph = property_graph(context, &other.c, TOW_F64);
    if (graph == NULL) return 1;
    begin(&b, rule == NULL ? "the default" : "another rule", graph, &other.c);
    if (other.primitive.decompose != NULL)
        b.tolerance = 1e-11; /* a decomposition rounds in other places than a kernel */
    const int failures = check_manners(&b);
    end(&b);
    return failures;
}

bool property_finds_wrong_batching(tow_context *context, const property_case *c, void (*rule)(tow__batch *r))
{
    return check_other_rule(context, c, rule) > 0;
}

int property_check_batching(tow_context *context, const property_case *c)
{
    static const tow_dtype dtypes[] = {TOW_F64, TOW_F32};
    size_t wrt[MAX_IN];
    const size_t n_wrt = c->no_derivative ? 0 : property_differentiable(c, wrt);
    const tow_primitive *primitive = tow__primitive_find(c->primitive, strlen(c->primitive));
    int failures = 0;
    /* Companions of composites decompose by what the composite gave, which rows of other operands do not fit. */
    const bool companion = strstr(c->primitive, "_jvp") != NULL || strstr(c->primitive, "_vjp") != NULL;
    if (c->build == NULL && primitive->batch != NULL && !companion) failures += check_other_rule(context, c, NULL);
    for (size_t d = 0; d < 2; d++) {
        batching b;
        tow_graph *graph = property_graph(context, c, dtypes[d]);
        if (graph == NULL) return failures + 1;
        bool floats = false;
        for (size_t i = 0; i < tow_graph_outputs(graph); i++)
            floats = floats || tow_dtype_is_float(tow_graph_output_type(graph, i).dtype);
        begin(&b, tow_dtype_name(dtypes[d]), graph, c);
        failures += check_manners(&b);
        end(&b);
        if (failures == 0 && floats && n_wrt > 0) failures += check_derivatives(context, c, dtypes[d], wrt, n_wrt);
    }
    return failures;
}
