/* Drawing inputs, building the graph of a case and running graphs on arrays of double. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/property/property.h"
#include "tests/unit/support/elements.h"

/* ---- shapes ----------------------------------------------------------------------------------------------------- */

int64_t property_count(const property_input *in)
{
    int64_t count = 1;
    for (int d = 0; d < in->rank; d++) count *= in->dims[d];
    return count;
}

property_axis property_axis_of(const property_input *in, int64_t axis)
{
    property_axis result = {.before = 1, .size = in->dims[axis], .after = 1};
    for (int d = 0; d < in->rank; d++) {
        if (d < axis) result.before *= in->dims[d];
        if (d > axis) result.after *= in->dims[d];
    }
    return result;
}

/* ---- inputs ----------------------------------------------------------------------------------------------------- */

/* splitmix64 */
uint64_t property_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

double property_unit(uint64_t *state) { return (double)(property_random(state) >> 42) / (double)(1 << 21) - 1; }

static double *new_array(property_values *values, int64_t count)
{
    double *array = calloc((size_t)count + 1, sizeof *array);
    if (array == NULL) abort(); /* a test without memory has nothing to say */
    values->arrays[values->n] = array;
    values->counts[values->n++] = count;
    return array;
}

void property_free(property_values *values)
{
    for (size_t i = 0; i < values->n; i++) free(values->arrays[i]);
    values->n = 0;
}

static double draw(const property_input *in, uint64_t *state)
{
    const bool ranged = in->low != 0 || in->high != 0;
    if (tow_dtype_is_float(in->dtype)) {
        const double u = property_unit(state);
        return ranged ? (double)(float)(in->low + (in->high - in->low) * (u + 1) / 2) : u;
    }
    const double low = ranged ? in->low : 0, high = ranged ? in->high : in->dtype == TOW_BOOL ? 1 : 2;
    const uint64_t span = (uint64_t)(high - low) + 1;
    return low + (double)((property_random(state) >> 20) % span);
}

void property_draw(const property_case *c, property_values *values) { property_draw_row(c, 0, values); }

void property_draw_row(const property_case *c, uint64_t row, property_values *values)
{
    /* The stream depends on the case alone, so that adding cases changes no other. */
    uint64_t state = c->n_in + row * 7919;
    for (const char *p = c->primitive; *p != '\0'; p++) state = state * 31 + (unsigned char)*p;
    for (const char *p = c->label == NULL ? "" : c->label; *p != '\0'; p++) state = state * 31 + (unsigned char)*p;
    for (size_t i = 0; i < c->n_in; i++) {
        double *array = new_array(values, property_count(&c->in[i]));
        for (int64_t k = 0; k < values->counts[i]; k++) array[k] = draw(&c->in[i], &state);
    }
    if (c->prepare != NULL) c->prepare(c, values->arrays);
}

void property_draw_weights(const tow_graph *scalar, property_values *values)
{
    uint64_t state = 377;
    while (values->n < tow_graph_inputs(scalar)) {
        const int64_t count = tow_type_count(tow_graph_input_type(scalar, values->n));
        double *weights = new_array(values, count);
        for (int64_t k = 0; k < count; k++) weights[k] = property_unit(&state);
    }
}

/* ---- graphs
 * ----------------------------------------------------------------------------------------------------------- */

typedef struct building {
    const property_case *c;
    bool scalar;
} building;

static void record(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const building *b = user;
    const property_case *c = b->c;
    const size_t n_out = c->n_out == 0 ? 1 : c->n_out;
    tow_value y[MAX_OUT] = {{0}};
    if (c->build != NULL)
        c->build(trace, in, y, c);
    else
        tow__bind(trace, tow__primitive_find(c->primitive, strlen(c->primitive)), c->params, c->n_in, in, n_out, y);
    if (!b->scalar) {
        memcpy(out, y, (c->first_only ? 1 : n_out) * sizeof *y);
        return;
    }
    size_t weight = c->n_in;
    for (size_t i = 0; i < (c->first_only ? 1 : n_out); i++) {
        if (!tow_dtype_is_float(tow_value_type(y[i]).dtype)) continue;
        tow_value term = tow_reduce_sum(tow_mul(y[i], in[weight++]), 0, NULL);
        out[0] = tow_is_null(out[0]) ? term : tow_add(out[0], term);
    }
}

static tow_graph *build(tow_context *context, const property_case *c, tow_dtype floats, const tow_graph *plain)
{
    tow_type types[MAX_IN + MAX_OUT];
    size_t n = c->n_in;
    building b = {.c = c, .scalar = plain != NULL};
    tow_graph *graph = NULL;
    for (size_t i = 0; i < n; i++)
        types[i] = tow_make_type(c->in[i].dtype == TOW_F64 ? floats : c->in[i].dtype, c->in[i].rank, c->in[i].dims);
    for (size_t i = 0; plain != NULL && i < tow_graph_outputs(plain); i++) {
        const tow_type type = tow_graph_output_type(plain, i);
        if (tow_dtype_is_float(type.dtype)) types[n++] = type;
    }
    const size_t n_out = plain != NULL || c->first_only || c->n_out == 0 ? 1 : c->n_out;
    if (tow_trace_function(context, record, &b, n, types, NULL, n_out, &graph) == TOW_OK) return graph;
    printf("  cannot build: %s\n", tow_context_error(context));
    return NULL;
}

tow_graph *property_graph(tow_context *context, const property_case *c, tow_dtype floats)
{
    return build(context, c, floats, NULL);
}

tow_graph *property_scalar_graph(tow_context *context, const property_case *c, tow_dtype floats)
{
    tow_graph *plain = build(context, c, floats, NULL);
    tow_graph *result = plain == NULL ? NULL : build(context, c, floats, plain);
    tow_graph_release(plain);
    return result;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static void to_array(const double *from, tow_array *array)
{
    for (int64_t i = 0; i < tow_type_count(tow_array_type(array)); i++) set_array_element(array, i, from[i]);
}

static void from_array(const tow_array *array, double *to)
{
    for (int64_t i = 0; i < tow_type_count(tow_array_type(array)); i++) to[i] = array_element(array, i);
}

bool property_evaluate(const tow_graph *graph, const property_values *inputs, property_values *outputs)
{
    tow_context *context = tow_graph_context(graph);
    const size_t n_in = tow_graph_inputs(graph), n_out = tow_graph_outputs(graph);
    tow_array *in[2 * MAX_IN + 2 * MAX_OUT] = {NULL}, *out[2 * MAX_IN + 2 * MAX_OUT] = {NULL};
    tow_status status = TOW_OK;
    outputs->n = 0;
    if (n_in != inputs->n || n_in > sizeof in / sizeof *in || n_out > sizeof out / sizeof *out) {
        printf("  a graph of %zu inputs and %zu outputs is given %zu arrays\n", n_in, n_out, inputs->n);
        return false;
    }
    for (size_t i = 0; status == TOW_OK && i < n_in; i++) {
        status = tow_array_create(context, tow_graph_input_type(graph, i), &in[i]);
        if (status == TOW_OK) to_array(inputs->arrays[i], in[i]);
    }
    if (status == TOW_OK) status = tow_evaluate(graph, in, out);
    for (size_t i = 0; status == TOW_OK && i < n_out; i++)
        from_array(out[i], new_array(outputs, tow_type_count(tow_graph_output_type(graph, i))));
    for (size_t i = 0; i < n_in; i++) tow_array_release(in[i]);
    for (size_t i = 0; i < n_out; i++) tow_array_release(out[i]);
    if (status != TOW_OK) printf("  cannot run: %s\n", tow_context_error(context));
    return status == TOW_OK;
}
