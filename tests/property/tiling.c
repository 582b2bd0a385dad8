/* Tiling rules: where a rule says that an axis passes through, blocks along it, computed one after the other from blocks of
 * the operands, have the bits of the whole. Each case runs in its own shape and in a larger one, with blocks of several
 * sizes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/kernels/products/dot.h"
#include "src/plan/operations.h"
#include "tests/property/property.h"

/* A primitive on operands of these types, by itself. */
typedef struct single {
    const tow_primitive *primitive;
    const void *params;
    size_t n_in, n_out;
    tow_type in[MAX_IN];
} single;

static void record(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const single *s = user;
    tow__bind(trace, s->primitive, s->params, s->n_in, in, s->n_out, out);
}

static tow_graph *graph_of(tow_context *context, const single *s)
{
    tow_graph *graph = NULL;
    if (tow_trace_function(context, record, (void *)s, s->n_in, s->in, NULL, s->n_out, &graph) == TOW_OK) return graph;
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

/* What the rule says about `axis` of the results; false: it does not pass through. */
static bool ask(const single *s, const tow_graph *graph, int axis, int *from)
{
    tow__view in[MAX_IN], out[MAX_OUT];
    for (size_t i = 0; i < s->n_in; i++) in[i] = tow__view_whole(0, s->in[i]);
    for (size_t i = 0; i < s->n_out; i++) out[i] = tow__view_whole(0, tow_graph_output_type(graph, i));
    const tow__operation o = {s->params, (uint32_t)s->n_in, (uint32_t)s->n_out, in, out};
    return s->primitive->tile(&o, axis, from);
}

/* One block, written to its place in `tiled`. */
static bool run_block(const tow_graph *graph, const single *s, const int *from, int axis, int64_t begin, int64_t n,
                      const property_values *x, property_values *tiled)
{
    single block = *s;
    property_values in = {0}, out = {0};
    for (size_t i = 0; i < s->n_in; i++) {
        if (from[i] != TOW__WHOLE) block.in[i].dims[from[i]] = n;
        in.counts[i] = tow_type_count(block.in[i]);
        in.arrays[i] = calloc((size_t)in.counts[i] + 1, sizeof(double));
        if (!in.arrays[i]) abort();
        in.n++;
        if (from[i] == TOW__WHOLE)
            memcpy(in.arrays[i], x->arrays[i], (size_t)in.counts[i] * sizeof(double));
        else
            copy_block(s->in[i], from[i], begin, n, x->arrays[i], in.arrays[i], false);
    }
    tow_graph *g = graph_of(tow_graph_context(graph), &block);
    const bool done = g && property_evaluate(g, &in, &out);
    for (size_t k = 0; done && k < s->n_out; k++)
        copy_block(tow_graph_output_type(graph, k), axis, begin, n, tiled->arrays[k], out.arrays[k], true);
    if (!g) printf("  a block cannot be built: %s\n", tow_context_error(tow_graph_context(graph)));
    tow_graph_release(g);
    property_free(&in);
    property_free(&out);
    return done;
}

/* Do blocks of `size` give the bits of the whole? */
static bool blocks_agree(const tow_graph *graph, const single *s, const int *from, int axis, int64_t size,
                         const property_values *x, const property_values *whole)
{
    property_values tiled = {0};
    const int64_t extent = tow_graph_output_type(graph, 0).dims[axis];
    bool same = true;
    for (size_t k = 0; k < whole->n; k++) {
        tiled.arrays[k] = calloc((size_t)whole->counts[k] + 1, sizeof(double));
        if (!tiled.arrays[k]) abort();
        tiled.n++;
    }
    for (int64_t begin = 0; begin < extent && same; begin += size)
        same = run_block(graph, s, from, axis, begin, smallest(size, extent - begin), x, &tiled);
    for (size_t k = 0; k < whole->n; k++)
        same = same && memcmp(tiled.arrays[k], whole->arrays[k], (size_t)whole->counts[k] * sizeof(double)) == 0;
    property_free(&tiled);
    return same;
}

static bool axis_agrees(const tow_graph *graph, const single *s, const int *from, int axis, const property_values *x,
                        const property_values *whole)
{
    const int64_t extent = tow_graph_output_type(graph, 0).dims[axis], sizes[] = {1, 3, (extent + 1) / 2};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] < extent && !blocks_agree(graph, s, from, axis, sizes[i], x, whole)) {
            printf("  tiling: blocks of %lld along axis %d, of %lld elements, differ from the whole\n",
                   (long long)sizes[i], axis, (long long)extent);
            return false;
        }
    return true;
}

/* claim: takes the first axis for one that passes through, whatever the rule says. */
static int check_axes(const single *s, const tow_graph *graph, const property_values *x, bool claim, size_t *axes)
{
    property_values whole = {0};
    int failures = 0;
    const tow_type type = tow_graph_output_type(graph, 0);
    if (!property_evaluate(graph, x, &whole)) return 1;
    for (int axis = 0; axis < (claim ? 1 : type.rank); axis++) {
        int from[MAX_IN] = {0};
        if (type.dims[axis] < 2 || (!claim && !ask(s, graph, axis, from))) continue;
        ++*axes;
        failures += !axis_agrees(graph, s, from, axis, x, &whole);
    }
    property_free(&whole);
    return failures;
}

/* The case with every axis `factor` times as long, unless its parameters do not fit that. */
static int check_scaled(tow_context *context, const property_case *c, int64_t factor, tow_dtype floats, bool claim,
                        size_t *axes)
{
    property_case scaled = *c;
    tow__dot_params dot;
    single s = {.primitive = tow__primitive_find(c->primitive, strlen(c->primitive)),
                .params = c->params,
                .n_in = c->n_in,
                .n_out = c->n_out ? c->n_out : 1};
    for (size_t i = 0; i < c->n_in; i++) {
        property_input *in = &scaled.in[i];
        for (int a = 0; a < in->rank; a++) in->dims[a] *= in->dims[a] > 1 ? factor : 1;
        s.in[i] = tow_make_type(in->dtype == TOW_F64 ? floats : in->dtype, in->rank, in->dims);
    }
    if (s.primitive->kind == TOW__DOT) {
        dot = *(const tow__dot_params *)c->params;
        tow__dot_sizes(&dot, s.in[0], s.in[1]);
        s.params = &dot;
    }
    tow_graph *graph = graph_of(context, &s);
    property_values x = {0};
    int failures = 0;
    tow_context_clear_error(context);
    if (!graph) return factor == 1;
    if (factor > 1) scaled.prepare = NULL; /* it knows the shapes of the case; bits compare on any operands */
    property_draw(&scaled, &x);
    failures = check_axes(&s, graph, &x, claim, axes);
    property_free(&x);
    tow_graph_release(graph);
    return failures;
}

int property_check_tiling(tow_context *context, const property_case *c, size_t *axes)
{
    const int64_t larger = c->in[0].rank > 2 ? 5 : 9;
    int failures = 0;
    if (c->build) return 0;
    for (int floats = TOW_F32; floats <= TOW_F64; floats++) {
        failures += check_scaled(context, c, 1, (tow_dtype)floats, false, axes);
        failures += check_scaled(context, c, larger, (tow_dtype)floats, false, axes);
    }
    return failures;
}

bool property_finds_wrong_tiling(tow_context *context, const property_case *c)
{
    size_t axes = 0;
    return check_scaled(context, c, 9, TOW_F32, true, &axes) > 0;
}
