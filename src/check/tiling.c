/* Tiling rules: where a rule says that an axis passes through, blocks along it, computed one after the other from
 * blocks of the operands, have the bits of the whole. Each case runs in its own shape and in a larger one, with blocks
 * of several sizes. Rules of sums: where a rule says that the results are sums over an axis of an operand, those for
 * its blocks, joined, are those for all of it. */
#include "src/check/check.h"

#include <math.h>

#include "src/base/base.h"
#include "src/kernels/products/dot.h"
#include "src/plan/operations.h"
#include "tow/autodiff.h"

/* A primitive on operands of these types, by itself. */
typedef struct single {
    tow__check *k;
    const tow_primitive *primitive;
    const void *params;
    size_t n_in, n_out;
    tow_type in[TOW__CHECK_IN];
} single;

static void record(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const single *s = user;
    tow__bind(trace, s->primitive, s->params, s->n_in, in, s->n_out, out);
}

static tow_graph *graph_of(single *s)
{
    tow_graph *graph = NULL;
    if (tow_trace_function(s->k->ctx, record, s, s->n_in, s->in, NULL, s->n_out, &graph) == TOW_OK) return graph;
    return NULL;
}

/* Elements [begin, begin + n) along `axis`, copied from (or, if `back`, to) an array of all. */
static void copy_block(tow_type whole, int axis, int64_t begin, int64_t n, double *all, double *block, bool back)
{
    int64_t before = 1, after = 1;
    for (int a = 0; a < whole.rank; a++) *(a < axis ? &before : &after) *= a == axis ? 1 : whole.dims[a];
    for (int64_t i = 0; i < before; i++) {
        double *x = all + (i * whole.dims[axis] + begin) * after, *y = block + i * n * after;
        memcpy(back ? x : y, back ? y : x, (size_t)(n * after) * sizeof *x);
    }
}

static int64_t smallest(int64_t a, int64_t b) { return a < b ? a : b; }

/* The answer of the rule about `axis` of the results; false: it does not pass through. */
static bool ask(const single *s, const tow_graph *graph, int axis, int *from)
{
    tow__view in[TOW__CHECK_IN], out[TOW__CHECK_OUT];
    for (size_t i = 0; i < s->n_in; i++) in[i] = tow__view_whole(0, s->in[i]);
    for (size_t i = 0; i < s->n_out; i++) out[i] = tow__view_whole(0, tow_graph_output_type(graph, i));
    const tow__operation o = {s->params, (uint32_t)s->n_in, (uint32_t)s->n_out, in, out, s->primitive};
    return s->primitive->tile(&o, axis, from);
}

/* The operands of a block, whose types are those of `block`. */
static bool cut(const single *s, const single *block, const int *from, int64_t begin, int64_t n,
                const tow__check_values *x, tow__check_values *in)
{
    for (size_t i = 0; i < s->n_in; i++) {
        double *array = tow__check_array(in, tow_type_element_count(block->in[i]));
        if (!array) return false;
        if (from[i] == TOW__WHOLE)
            memcpy(array, x->arrays[i], (size_t)in->counts[i] * sizeof(double));
        else
            copy_block(s->in[i], from[i], begin, n, x->arrays[i], array, false);
    }
    return true;
}

/* One block, written to its place in `tiled`. */
static bool run_block(const tow_graph *graph, const single *s, const int *from, int axis, int64_t begin, int64_t n,
                      const tow__check_values *x, tow__check_values *tiled)
{
    single block = *s;
    tow__check_values in = tow__check_no_values(s->k), out = in;
    for (size_t i = 0; i < s->n_in; i++)
        if (from[i] != TOW__WHOLE) block.in[i].dims[from[i]] = n;
    tow_graph *g = cut(s, &block, from, begin, n, x, &in) ? graph_of(&block) : NULL;
    if (!g) tow__check_fail(s->k, "a block cannot be built: %s", tow_context_error(s->k->ctx));
    const bool done = g && tow__check_evaluate(s->k, g, &in, &out);
    for (size_t i = 0; done && i < s->n_out; i++)
        copy_block(tow_graph_output_type(graph, i), axis, begin, n, tiled->arrays[i], out.arrays[i], true);
    tow_graph_release(g);
    tow__check_free(&in);
    tow__check_free(&out);
    return done;
}

/* Do blocks of `size` give the bits of the whole? */
static bool blocks_agree(const tow_graph *graph, const single *s, const int *from, int axis, int64_t size,
                         const tow__check_values *x, const tow__check_values *whole)
{
    tow__check_values tiled = tow__check_no_values(s->k);
    const int64_t extent = tow_graph_output_type(graph, 0).dims[axis];
    bool good = true;
    for (size_t i = 0; i < whole->n && good; i++) good = tow__check_array(&tiled, whole->counts[i]);
    if (!good) tow__check_fail(s->k, "%s", tow_context_error(s->k->ctx));
    for (int64_t begin = 0; begin < extent && good; begin += size)
        good = run_block(graph, s, from, axis, begin, smallest(size, extent - begin), x, &tiled);
    for (size_t i = 0; i < whole->n && good; i++) {
        const int64_t e = tow__check_difference(s->k, tiled.arrays[i], whole->arrays[i], whole->counts[i]);
        if (e < 0) continue;
        good = false;
        tow__check_fail_at(s->k, i, e, whole->arrays[i][e], tiled.arrays[i][e],
                           "blocks of %lld along axis %d, of %lld elements, differ from the whole: result %zu, "
                           "element %lld: expected %.17g, found %.17g",
                           (long long)size, axis, (long long)extent, i, (long long)e, whole->arrays[i][e],
                           tiled.arrays[i][e]);
    }
    tow__check_free(&tiled);
    return good;
}

static void check_axis(const tow_graph *graph, const single *s, const int *from, int axis, const tow__check_values *x,
                       const tow__check_values *whole)
{
    const int64_t extent = tow_graph_output_type(graph, 0).dims[axis], sizes[] = {1, 3, (extent + 1) / 2};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] < extent && !blocks_agree(graph, s, from, axis, sizes[i], x, whole)) return;
}

/* claim: takes the first axis for one that passes through, whatever the rule says. */
static void check_axes(const single *s, const tow_graph *graph, const tow__check_values *x, bool claim, size_t *axes)
{
    tow__check_values whole = tow__check_no_values(s->k);
    const tow_type type = tow_graph_output_type(graph, 0);
    if (!tow__check_evaluate(s->k, graph, x, &whole)) return;
    for (int axis = 0; axis < (claim ? 1 : type.rank); axis++) {
        int from[TOW__CHECK_IN] = {0};
        if (type.dims[axis] < 2 || (!claim && !ask(s, graph, axis, from))) continue;
        ++*axes;
        s->k->done |= 1u << TOW_CHECK_TILING;
        check_axis(graph, s, from, axis, x, &whole);
    }
    tow__check_free(&whole);
}

/* ---- rules of sums ----------------------------------------------------------------------------------------------- */

/* The results for each block of `size` along the axis of operand i, one behind the other in `parts`. */
static bool run_parts(const single *s, const int *from, uint32_t i, int64_t size, const tow__check_values *x,
                      const tow__check_values *whole, tow__check_values *parts)
{
    const int64_t extent = s->in[i].dims[from[i]];
    bool good = true;
    for (size_t r = 0; r < whole->n && good; r++)
        good = tow__check_array(parts, whole->counts[r] * ((extent + size - 1) / size));
    for (int64_t begin = 0; begin < extent && good; begin += size) {
        single block = *s;
        tow__check_values in = tow__check_no_values(s->k), out = in;
        const int64_t n = smallest(size, extent - begin);
        for (size_t j = 0; j < s->n_in; j++)
            if (from[j] != TOW__WHOLE) block.in[j].dims[from[j]] = n;
        tow_graph *g = cut(s, &block, from, begin, n, x, &in) ? graph_of(&block) : NULL;
        good = g && tow__check_evaluate(s->k, g, &in, &out);
        if (!good) tow__check_fail(s->k, "a part of a sum cannot be made: %s", tow_context_error(s->k->ctx));
        for (size_t r = 0; good && r < whole->n; r++) good = out.counts[r] == whole->counts[r];
        if (!good) tow__check_fail(s->k, "a part of a sum over axis %d of operand %u is smaller", from[i], i);
        for (size_t r = 0; good && r < whole->n; r++)
            memcpy(parts->arrays[r] + begin / size * whole->counts[r], out.arrays[r],
                   (size_t)whole->counts[r] * sizeof(double));
        tow_graph_release(g);
        tow__check_free(&in);
        tow__check_free(&out);
    }
    return good;
}

/* Joins the parts of result r as their elements are joined: by the reduction itself, or by addition. */
static bool join_parts(const single *s, size_t r, tow_type type, int64_t n, const tow__check_values *parts,
                       tow__check_values *sum)
{
    const tow__axes_params axes = {.axes = {.n = 1}};
    single join = {.k = s->k,
                   .primitive = s->primitive->kind == TOW__REDUCTION ? s->primitive : &tow__reduce_sum_p,
                   .params = &axes,
                   .n_in = 1,
                   .n_out = 1};
    tow__check_values in = tow__check_no_values(s->k);
    join.in[0] = (tow_type){.dtype = type.dtype, .rank = type.rank + 1, .dims = {n}};
    for (int a = 0; a < type.rank; a++) join.in[0].dims[a + 1] = type.dims[a];
    tow_graph *g = tow__check_array(&in, tow_type_element_count(join.in[0])) ? graph_of(&join) : NULL;
    if (g) memcpy(in.arrays[0], parts->arrays[r], (size_t)tow_type_element_count(join.in[0]) * sizeof(double));
    const bool good = g && tow__check_evaluate(s->k, g, &in, sum);
    if (!good) tow__check_fail(s->k, "parts of a sum cannot be joined: %s", tow_context_error(s->k->ctx));
    tow_graph_release(g);
    tow__check_free(&in);
    return good;
}

/* Sums in another order differ by roundings: some hundreds of terms of size 1 in f32. */
static bool near(double a, double b) { return a == b || fabs(a - b) <= 1e-4 * (1 + fabs(b)); }

static void check_sum(const single *s, const tow_graph *graph, const int *from, uint32_t i, int64_t size,
                      const tow__check_values *x, const tow__check_values *whole)
{
    const int64_t extent = s->in[i].dims[from[i]], n = (extent + size - 1) / size;
    tow__check_values parts = tow__check_no_values(s->k);
    bool good = run_parts(s, from, i, size, x, whole, &parts);
    for (size_t r = 0; r < whole->n && good; r++) {
        tow__check_values sum = tow__check_no_values(s->k);
        good = join_parts(s, r, tow_graph_output_type(graph, r), n, &parts, &sum);
        for (int64_t e = 0; good && e < whole->counts[r]; e++) {
            if (near(sum.arrays[0][e], whole->arrays[r][e])) continue;
            good = false;
            tow__check_fail(s->k, "parts of %lld along axis %d of operand %u do not add up: expected %.9g, found %.9g",
                            (long long)size, from[i], i, whole->arrays[r][e], sum.arrays[0][e]);
        }
        tow__check_free(&sum);
    }
    tow__check_free(&parts);
}

/* claim: an axis of the first operand is taken for one of a sum, whatever the rule says. */
static void check_sums(const single *s, const tow_graph *graph, const tow__check_values *x, bool claim, size_t *axes)
{
    tow__check_values whole = tow__check_no_values(s->k);
    tow__view in[TOW__CHECK_IN], out[TOW__CHECK_OUT];
    const tow__operation o = {s->params, (uint32_t)s->n_in, (uint32_t)s->n_out, in, out, s->primitive};
    if (!claim && !s->primitive->sums) return;
    if (!tow__check_evaluate(s->k, graph, x, &whole)) return;
    for (size_t i = 0; i < s->n_in; i++) in[i] = tow__view_whole(0, s->in[i]);
    for (size_t i = 0; i < s->n_out; i++) out[i] = tow__view_whole(0, tow_graph_output_type(graph, i));
    for (uint32_t i = 0; i < s->n_in; i++)
        for (int axis = 0; axis < s->in[i].rank; axis++) {
            int from[TOW__CHECK_IN];
            for (size_t j = 0; j < s->n_in; j++) from[j] = claim ? axis : TOW__WHOLE;
            if (s->in[i].dims[axis] < 2 || (!claim && !s->primitive->sums(&o, i, axis, from))) continue;
            ++*axes;
            check_sum(s, graph, from, i, (s->in[i].dims[axis] + 2) / 3, x, &whole);
        }
    tow__check_free(&whole);
}

/* ---- cases ------------------------------------------------------------------------------------------------------- */

/* Compares the graph, run on these inputs, with what a rule says about it. */
typedef void (*comparison)(const single *s, const tow_graph *graph, const tow__check_values *x, bool claim,
                           size_t *axes);

/* The case with every axis `factor` times as long, unless its parameters do not fit that. */
static void check_scaled(tow__check *k, int64_t factor, tow_dtype floats, comparison compare, bool claim, size_t *axes)
{
    const tow__check_case *c = k->c;
    tow__check_case scaled = *c;
    tow__dot_params dot;
    single s = {.k = k,
                .primitive = tow__check_primitive(c),
                .params = c->params,
                .n_in = c->n_in,
                .n_out = c->n_out ? c->n_out : 1};
    for (size_t i = 0; i < c->n_in; i++) {
        tow__check_input *in = &scaled.in[i];
        for (int a = 0; a < in->rank; a++) in->dims[a] *= in->dims[a] > 1 ? factor : 1;
        s.in[i] = tow__check_input_type(&scaled, i, floats);
    }
    if (s.primitive->kind == TOW__DOT) {
        dot = *(const tow__dot_params *)c->params;
        tow__dot_sizes(&dot, s.in[0], s.in[1]);
        s.params = &dot;
    }
    tow_graph *graph = graph_of(&s);
    tow__check_values x = {0};
    if (!graph && factor == 1) tow__check_fail(k, "%s", tow_context_error(k->ctx));
    tow_context_clear_error(k->ctx);
    if (!graph) return;
    if (factor > 1) scaled.prepare = NULL; /* it knows the shapes of the case; bits compare on any operands */
    if (tow__check_draw(k, &scaled, 0, &x))
        compare(&s, graph, &x, claim, axes);
    else
        tow__check_fail(k, "%s", tow_context_error(k->ctx));
    tow__check_free(&x);
    tow_graph_release(graph);
}

static void check_cases(tow__check *k, uint32_t types, comparison compare, bool claim, size_t *axes)
{
    const int64_t larger = k->c->in[0].rank > 2 ? 5 : 9;
    k->kind = TOW_CHECK_TILING;
    if (k->c->build) return;
    for (int floats = 1; floats < TOW_DTYPE_END; floats++) {
        if (!tow__dtype_in((tow_dtype)floats, types) || !tow__check_runs(k->c, (tow_dtype)floats)) continue;
        if (!claim) check_scaled(k, 1, (tow_dtype)floats, compare, claim, axes);
        if (!k->c->fixed) check_scaled(k, larger, (tow_dtype)floats, compare, claim, axes);
        if (claim) return;
    }
}

void tow__check_tiling(tow__check *k, bool claim, size_t *axes)
{
    check_cases(k, TOW__FLOATS, check_axes, claim, axes);
}

void tow__check_sums(tow__check *k, bool claim, size_t *axes)
{
    check_cases(k, 1u << TOW_F32 | 1u << TOW_F64, check_sums, claim, axes);
}
