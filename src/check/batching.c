/* Batching: a batched graph against the graph on each row, for every choice of batched operands that matters, with
 * batch axes in several places. On an engine with portable bits each row has the very same bits; so has the batched
 * gradient, and the batched tangent. Derivatives of the batched graph add up rows in another order, so those are
 * compared with a tolerance: the same numbers, but for rounding. */
#include <math.h>

#include "src/check/check.h"

#include "src/base/base.h"
#include "tow/autodiff.h"
#include "tow/ops.h"

enum {
    ROWS = 3,
    MOST = TOW__CHECK_ARRAYS,
    PLACES = 3 /* of batch axes: in front, behind the last axis, or another one for each array */
};

/* A graph of one row, and what its rows are given. */
typedef struct batching {
    tow__check *k;
    const char *what;
    tow_graph *graph;
    tow__check_values rows[ROWS]; /* of inputs */
    double tolerance;             /* 0: the same bits */
    double reordered;             /* for sums in another order */
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

/* The inputs of the batched graph, and where their batch axes are. */
static bool stack_rows(const batching *b, manner m, int *axes, tow__check_values *all)
{
    for (size_t i = 0; i < tow_graph_input_count(b->graph); i++) {
        const tow_type row = tow_graph_input_type(b->graph, i);
        const bool mapped = m.mask >> i & 1;
        axes[i] = mapped ? axis_of(row, i, m.place) : TOW_NOT_MAPPED;
        double *array = tow__check_array(all, tow_type_element_count(row) * (mapped ? m.size : 1));
        if (!array) return false;
        for (int64_t r = 0; mapped && r < m.size; r++)
            copy_row(row, axes[i], m.size, r, array, b->rows[r].arrays[i], false);
        if (!mapped) memcpy(array, b->rows[0].arrays[i], (size_t)all->counts[i] * sizeof(double));
    }
    return true;
}

/* The results of the graph for row r under this manner. */
static bool evaluate_row(const batching *b, manner m, int64_t r, tow__check_values *result)
{
    tow__check_values in = {.ctx = b->k->ctx, .n = tow_graph_input_count(b->graph)};
    for (size_t i = 0; i < in.n; i++) {
        const tow__check_values *from = &b->rows[m.mask >> i & 1 ? r : 0];
        in.arrays[i] = from->arrays[i];
        in.counts[i] = from->counts[i];
    }
    return tow__check_evaluate(b->k, b->graph, &in, result);
}

/* The first element that differs, or -1. tolerance 0: bits. */
static int64_t differs(const double *found, const double *expected, int64_t n, double tolerance)
{
    const double scale = tow__check_magnitude(expected, n);
    for (int64_t e = 0; e < n; e++) {
        if (isnan(found[e]) && isnan(expected[e])) continue;
        if (tolerance == 0 ? memcmp(&found[e], &expected[e], sizeof *found) != 0
                           : found[e] != expected[e] && !(fabs(found[e] - expected[e]) <= tolerance * (scale + 1e-3)))
            return e;
    }
    return -1;
}

/* ---- one manner -------------------------------------------------------------------------------------------------- */

/* Result i of the batched graph, against the one of row r. */
static void compare_row(const batching *b, manner m, int64_t r, size_t i, int axis, const tow__check_values *found,
                        const tow__check_values *expected, double tolerance)
{
    tow__check_values one = tow__check_no_values(b->k);
    double *row = tow__check_array(&one, expected->counts[i]);
    if (!row) {
        tow__check_fail(b->k, "%s", tow_context_error(b->k->ctx));
        return;
    }
    copy_row(tow_graph_output_type(b->graph, i), axis, m.size, r, found->arrays[i], row, true);
    const int64_t e = differs(row, expected->arrays[i], expected->counts[i], tolerance);
    if (e >= 0)
        tow__check_fail_at(b->k, i, e, expected->arrays[i][e], row[e],
                           "%s: operands %x, axes in place %d: row %lld of result %zu differs, element %lld: "
                           "expected %.17g, found %.17g",
                           b->what, m.mask, m.place, (long long)r, i, (long long)e, expected->arrays[i][e], row[e]);
    tow__check_free(&one);
}

/* batched: made of b->graph in this manner. */
static void compare_graph(const batching *b, manner m, const tow_graph *batched, const tow__check_values *all,
                          const int *out_axes, double tolerance)
{
    tow__check_values found = tow__check_no_values(b->k);
    const int before = b->k->failures;
    tow__check_text(b->k, batched, "batched graph");
    if (!tow__check_evaluate(b->k, batched, all, &found)) return;
    for (int64_t r = 0; r < m.size && b->k->failures == before; r++) {
        tow__check_values expected = tow__check_no_values(b->k);
        if (evaluate_row(b, m, r, &expected))
            for (size_t i = 0; i < expected.n && b->k->failures == before; i++)
                compare_row(b, m, r, i, out_axes[i], &found, &expected, tolerance);
        tow__check_free(&expected);
    }
    tow__check_free(&found);
}

static void choose_out_axes(const batching *b, manner m, int *axes)
{
    for (size_t i = 0; i < tow_graph_output_count(b->graph); i++)
        axes[i] = axis_of(tow_graph_output_type(b->graph, i), i + 1, m.place);
}

static void check_manner(const batching *b, manner m)
{
    int in_axes[MOST], out_axes[MOST];
    tow__check_values all = tow__check_no_values(b->k);
    tow_graph *batched = NULL;
    choose_out_axes(b, m, out_axes);
    if (!stack_rows(b, m, in_axes, &all) || tow_vmap(b->graph, m.size, in_axes, out_axes, &batched) != TOW_OK)
        tow__check_fail(b->k, "%s: operands %x, axes in place %d: %s", b->what, m.mask, m.place,
                        tow_context_error(b->k->ctx));
    else
        compare_graph(b, m, batched, &all, out_axes, b->tolerance);
    tow_graph_release(batched);
    tow__check_free(&all);
}

/* All operands in all places and numbers of rows, each alone, and all but each. */
static void check_manners(const batching *b)
{
    const size_t n = tow_graph_input_count(b->graph);
    const unsigned every = n < 32 ? (1u << n) - 1 : ~0u;
    if (n == 0) return;
    for (int place = 0; place < PLACES; place++) check_manner(b, (manner){ROWS, every, place});
    for (int64_t size = 0; size < 2; size++) check_manner(b, (manner){size, every, 0});
    for (size_t i = 0; i < n && n > 1; i++) {
        check_manner(b, (manner){ROWS, 1u << i, (int)(i % PLACES)});
        if (n > 2) check_manner(b, (manner){ROWS, every & ~(1u << i), (int)((i + 1) % PLACES)});
    }
}

/* ---- derivatives of the batched graph ---------------------------------------------------------------------------- */

/* jvp after vmap: tangents of rows, as vmap of jvp gives. b: of the jvp, made of `graph`. */
static void check_jvp_of_batched(const batching *b, const tow_graph *graph, manner m, const size_t *wrt, size_t n_wrt)
{
    int in_axes[MOST], out_axes[MOST];
    tow__check_values all = tow__check_no_values(b->k);
    tow_graph *batched = NULL, *jvp = NULL;
    choose_out_axes(b, m, out_axes);
    if (!stack_rows(b, m, in_axes, &all) || tow_vmap(graph, m.size, in_axes, out_axes, &batched) != TOW_OK ||
        tow_jvp(batched, n_wrt, wrt, &jvp) != TOW_OK)
        tow__check_fail(b->k, "jvp of vmap: %s", tow_context_error(b->k->ctx));
    else
        compare_graph(b, m, jvp, &all, out_axes, b->reordered / 10);
    tow_graph_release(batched);
    tow_graph_release(jvp);
    tow__check_free(&all);
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
    const tow_vmap_options options = TOW_VMAP_OPTIONS(.in_axes = s->in_axes);
    tow_vmap_function(trace, inline_row, user, &options, tow_graph_input_count(s->scalar), in, 1, out);
    out[0] = tow_reduce_sum(out[0], 0, NULL);
}

static tow_graph *sum_graph(const tow_graph *scalar, manner m, const int *in_axes)
{
    summed s = {scalar, in_axes};
    tow_type types[MOST];
    tow_graph *graph = NULL;
    const size_t n = tow_graph_input_count(scalar);
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

/* Gradient j: of a batched input its rows' gradients, of another one their sum. */
static void compare_sum(const batching *b, manner m, size_t j, tow_type type, int axis, const tow__check_values *found,
                        const tow__check_values *rows, size_t input)
{
    tow__check_values one = tow__check_no_values(b->k);
    double *expected = tow__check_array(&one, found->counts[j]);
    if (!expected) {
        tow__check_fail(b->k, "%s", tow_context_error(b->k->ctx));
        return;
    }
    for (int64_t r = 0; r < m.size; r++)
        if (axis != TOW_NOT_MAPPED)
            copy_row(type, axis, m.size, r, expected, rows[r].arrays[j], false);
        else
            for (int64_t e = 0; e < found->counts[j]; e++) expected[e] += rows[r].arrays[j][e];
    const int64_t e = differs(found->arrays[j], expected, found->counts[j], b->reordered);
    if (e >= 0)
        tow__check_fail_at(b->k, input, e, expected[e], found->arrays[j][e],
                           "gradient of vmap: operands %x, axes in place %d: that of input %zu differs, "
                           "element %lld: expected %.10g, found %.10g",
                           m.mask, m.place, input, (long long)e, expected[e], found->arrays[j][e]);
    tow__check_free(&one);
}

/* b: of the gradient of `scalar`. */
static void check_grad_of_batched(const batching *b, const tow_graph *scalar, manner m, const size_t *wrt, size_t n_wrt)
{
    int in_axes[MOST];
    tow__check_values all = tow__check_no_values(b->k), found = all, rows[ROWS] = {all, all, all};
    tow_graph *sum = NULL, *grad = NULL;
    bool runs = false;
    if (!stack_rows(b, m, in_axes, &all) || !(sum = sum_graph(scalar, m, in_axes)) ||
        tow_grad(sum, n_wrt, wrt, false, &grad) != TOW_OK)
        tow__check_fail(b->k, "gradient of vmap: %s", tow_context_error(b->k->ctx));
    else
        runs = tow__check_evaluate(b->k, grad, &all, &found);
    for (int64_t r = 0; runs && r < m.size; r++) runs = evaluate_row(b, m, r, &rows[r]);
    for (size_t j = 0; runs && j < n_wrt; j++)
        compare_sum(b, m, j, tow_graph_input_type(scalar, wrt[j]), in_axes[wrt[j]], &found, rows, wrt[j]);
    for (int r = 0; r < ROWS; r++) tow__check_free(&rows[r]);
    tow__check_free(&all);
    tow__check_free(&found);
    tow_graph_release(sum);
    tow_graph_release(grad);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* Draws what the inputs behind those of the case are: weights, or tangents. */
static bool draw_further(batching *b)
{
    for (int r = 0; r < ROWS; r++) {
        uint64_t state = 1000 + (uint64_t)r;
        for (size_t i = b->rows[r].n; i < tow_graph_input_count(b->graph); i++) {
            const int64_t count = tow_type_element_count(tow_graph_input_type(b->graph, i));
            double *array = tow__check_array(&b->rows[r], count);
            if (!array) return false;
            for (int64_t e = 0; e < count; e++) array[e] = tow__check_unit(&state);
        }
    }
    return true;
}

static bool begin(batching *b, tow__check *k, const char *what, tow_graph *graph, const tow__check_case *c,
                  tow_dtype floats)
{
    *b = (batching){.k = k,
                    .what = what,
                    .graph = graph,
                    .tolerance = k->rounds_apart ? floats == TOW_F64 ? 1e-11 : 1e-5 : 0,
                    .reordered = floats == TOW_F64 ? 1e-11 : 1e-5};
    k->done |= 1u << TOW_CHECK_BATCH;
    bool good = true;
    for (int r = 0; r < ROWS; r++) good = good && tow__check_draw(k, c, (uint64_t)r, &b->rows[r]);
    if (good && draw_further(b)) return true;
    tow__check_fail(k, "%s", tow_context_error(k->ctx));
    return false;
}

static void end(batching *b)
{
    for (int r = 0; r < ROWS; r++) tow__check_free(&b->rows[r]);
    tow_graph_release(b->graph);
}

/* derived: the jvp of graph, or the gradient of the scalar. */
static void check_derived(tow__check *k, tow_graph *derived, const tow_graph *from, bool is_jvp, tow_dtype floats,
                          const size_t *wrt, size_t n_wrt)
{
    batching b;
    const size_t n = k->c->n_in, inputs = tow_graph_input_count(derived);
    const int before = k->failures;
    const bool wide = floats == TOW_F64 || !tow__check_runs(k->c, TOW_F64);
    if (begin(&b, k, is_jvp ? "jvp" : "gradient", derived, k->c, floats)) check_manners(&b);
    for (size_t i = 0; wide && i <= n && k->failures == before; i++) {
        unsigned mask = i == n ? inputs < 32 ? (1u << inputs) - 1 : ~0u : 1u << i;
        for (size_t j = 0; is_jvp && j < n_wrt; j++) mask |= (mask >> wrt[j] & 1) << (n + j);
        const manner m = {ROWS, mask, (int)(i % 2)}; /* tangents have the axes of their primals */
        if (is_jvp)
            check_jvp_of_batched(&b, from, m, wrt, n_wrt);
        else
            check_grad_of_batched(&b, from, m, wrt, n_wrt);
    }
    end(&b);
}

static void check_derivatives(tow__check *k, tow_dtype floats, const size_t *wrt, size_t n_wrt)
{
    tow_graph *graph = tow__check_graph(k, k->c, floats), *scalar = tow__check_scalar_graph(k, k->c, floats);
    tow_graph *jvp = NULL, *grad = NULL;
    if (graph && scalar) {
        if ((!k->c->reverse_only && tow_jvp(graph, n_wrt, wrt, &jvp) != TOW_OK) ||
            tow_grad(scalar, n_wrt, wrt, false, &grad) != TOW_OK) {
            tow__check_fail(k, "%s", tow_context_error(k->ctx));
            tow_graph_release(jvp);
        } else {
            if (jvp) check_derived(k, jvp, graph, true, floats, wrt, n_wrt);
            check_derived(k, grad, scalar, false, floats, wrt, n_wrt);
        }
    }
    tow_graph_release(graph);
    tow_graph_release(scalar);
}

/* ---- the primitive with another rule ----------------------------------------------------------------------------- */

/* A case of a primitive whose descriptor is a copy with this rule; NULL: the default. */
typedef struct other_rule {
    tow__check_case c; /* first: it is what `build` gets */
    tow_primitive primitive;
} other_rule;

static void build_other(tow_trace *trace, const tow_value *in, tow_value *out, const tow__check_case *c)
{
    const other_rule *other = (const other_rule *)c;
    tow__bind(trace, &other->primitive, c->params, c->n_in, in, c->n_out == 0 ? 1 : c->n_out, out);
}

void tow__check_batching_rule(tow__check *k, void (*rule)(tow__batch *r))
{
    other_rule other = {.c = *k->c, .primitive = *tow__check_primitive(k->c)};
    const tow_dtype floats = tow__check_runs(k->c, TOW_F64) ? TOW_F64 : TOW_F32;
    batching b;
    other.c.build = build_other;
    other.primitive.batch = rule;
    tow_graph *graph = tow__check_graph(k, &other.c, floats);
    if (!graph) return;
    if (begin(&b, k, rule ? "another rule" : "the default", graph, &other.c, floats)) {
        if (other.primitive.decompose)
            b.tolerance = b.reordered; /* a decomposition rounds in other places than a kernel */
        check_manners(&b);
    }
    end(&b);
}

void tow__check_batching(tow__check *k)
{
    static const tow_dtype dtypes[] = {TOW_F64, TOW_F32, TOW_BF16, TOW_F16};
    const bool halves = tow__is_half(tow__check_widest(k->c)); /* too coarse for derivatives */
    size_t wrt[TOW__CHECK_IN];
    const tow__check_case *c = k->c;
    const size_t n_wrt = c->no_derivative || halves ? 0 : tow__check_differentiable(c, wrt);
    const tow_primitive *primitive = tow__check_primitive(c);
    k->kind = TOW_CHECK_BATCH;
    /* Companions of composites decompose by what the composite gave, which rows of other operands do not fit. */
    const bool companion = strstr(c->primitive, "_jvp") || strstr(c->primitive, "_vjp");
    if (!c->build && !c->defined && !halves && primitive->batch && !companion) tow__check_batching_rule(k, NULL);
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        batching b;
        if (!tow__check_runs(c, dtypes[d])) continue;
        const int before = k->failures;
        tow_graph *graph = tow__check_graph(k, c, dtypes[d]);
        if (!graph) return;
        const bool floats = tow__check_has_float_output(graph);
        if (begin(&b, k, tow_dtype_name(dtypes[d]), graph, c, dtypes[d])) check_manners(&b);
        end(&b);
        if (k->failures == before && floats && n_wrt > 0) check_derivatives(k, dtypes[d], wrt, n_wrt);
    }
}
