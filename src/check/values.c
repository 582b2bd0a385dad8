/* Drawing inputs, building the graph of a case and running graphs on arrays of double. */
#include "src/check/check.h"

#include "src/base/base.h"
#include "src/base/dtypes.h"
#include "tow/autodiff.h"
#include "tow/ops.h"
#include "tow/program.h"

/* ---- failures ---------------------------------------------------------------------------------------------------- */

static void report(tow__check *k, tow_check_failure failure, const char *format, va_list args)
{
    char text[sizeof k->ctx->error];
    if (vsnprintf(text, sizeof text, format, args) < 0) text[0] = '\0';
    failure.primitive = k->c->primitive;
    failure.label = k->c->label;
    failure.index = k->index;
    failure.kind = k->kind;
    failure.text = text;
    k->failures++;
    if (k->report) k->report(&failure, k->user);
}

void tow__check_fail(tow__check *k, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report(k, (tow_check_failure){.element = -1}, format, args);
    va_end(args);
}

void tow__check_fail_at(tow__check *k, size_t result, int64_t element, double expected, double found,
                        const char *format, ...)
{
    const tow_check_failure failure = {.result = result, .element = element, .expected = expected, .found = found};
    va_list args;
    va_start(args, format);
    report(k, failure, format, args);
    va_end(args);
}

/* ---- cases ------------------------------------------------------------------------------------------------------- */

const tow_primitive *tow__check_primitive(const tow__check_case *c)
{
    return c->defined ? c->defined : tow__primitive_find(c->primitive, strlen(c->primitive));
}

int64_t tow__check_count(const tow__check_input *in)
{
    int64_t count = 1;
    for (int d = 0; d < in->rank; d++) count *= in->dims[d];
    return count;
}

bool tow__check_runs(const tow__check_case *c, tow_dtype floats)
{
    return c->floats == 0 ? floats == TOW_F32 || floats == TOW_F64 : c->floats >> floats & 1;
}

tow_dtype tow__check_widest(const tow__check_case *c)
{
    static const tow_dtype dtypes[] = {TOW_F64, TOW_F32, TOW_BF16, TOW_F16};
    size_t i = 0;
    while (i < 3 && !tow__check_runs(c, dtypes[i])) i++;
    return dtypes[i];
}

tow_type tow__check_input_type(const tow__check_case *c, size_t i, tow_dtype floats)
{
    const tow__check_input *in = &c->in[i];
    if (in->statistic) floats = tow__wide(floats);
    return tow_make_type(in->dtype == TOW_F64 ? floats : in->dtype, in->rank, in->dims);
}

size_t tow__check_differentiable(const tow__check_case *c, size_t wrt[TOW__CHECK_IN])
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_in; i++)
        if (c->in[i].dtype == TOW_F64 && !c->in[i].constant) wrt[n++] = i;
    return n;
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

uint64_t tow__check_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

double tow__check_unit(uint64_t *state) { return (double)(tow__check_random(state) >> 42) / (double)(1 << 21) - 1; }

tow__check_values tow__check_no_values(const tow__check *k) { return (tow__check_values){.ctx = k->ctx}; }

double *tow__check_array(tow__check_values *values, int64_t count)
{
    double *array = tow__alloc(values->ctx, (size_t)count + 1, sizeof *array);
    if (!array) return NULL;
    values->arrays[values->n] = array;
    values->counts[values->n++] = count;
    return array;
}

void tow__check_free(tow__check_values *values)
{
    for (size_t i = 0; i < values->n; i++)
        tow__free(values->ctx, values->arrays[i], (size_t)values->counts[i] + 1, sizeof(double));
    values->n = 0;
}

bool tow__check_copy(const tow__check_values *from, tow__check_values *values)
{
    for (size_t i = 0; i < from->n; i++) {
        double *array = tow__check_array(values, from->counts[i]);
        if (!array) return false;
        memcpy(array, from->arrays[i], (size_t)from->counts[i] * sizeof *array);
    }
    return true;
}

bool tow__check_random_like(const tow__check_values *like, const size_t *which, size_t n, uint64_t seed,
                            tow__check_values *values)
{
    for (size_t j = 0; j < n; j++) {
        double *array = tow__check_array(values, like->counts[which[j]]);
        if (!array) return false;
        for (int64_t e = 0; e < like->counts[which[j]]; e++) array[e] = tow__check_unit(&seed);
    }
    return true;
}

static double draw(const tow__check_input *in, uint64_t *state)
{
    const bool ranged = in->low != 0 || in->high != 0;
    if (tow_dtype_is_float(in->dtype)) {
        const double u = tow__check_unit(state);
        return ranged ? (double)(float)(in->low + (in->high - in->low) * (u + 1) / 2) : u;
    }
    const double low = ranged ? in->low : 0, high = ranged ? in->high : in->dtype == TOW_BOOL ? 1 : 2;
    const uint64_t span = (uint64_t)(high - low) + 1;
    return low + (double)((tow__check_random(state) >> 20) % span);
}

bool tow__check_draw(tow__check *k, const tow__check_case *c, uint64_t row, tow__check_values *values)
{
    /* The stream depends on the case alone, so that adding cases changes no other. */
    uint64_t state = c->n_in + row * 7919;
    values->ctx = k->ctx;
    for (const char *p = c->primitive; *p != '\0'; p++) state = state * 31 + (unsigned char)*p;
    for (const char *p = c->label ? c->label : ""; *p != '\0'; p++) state = state * 31 + (unsigned char)*p;
    for (size_t i = 0; i < c->n_in; i++) {
        double *array = tow__check_array(values, tow__check_count(&c->in[i]));
        if (!array) return false;
        for (int64_t e = 0; e < values->counts[i]; e++) array[e] = draw(&c->in[i], &state);
    }
    if (c->prepare) c->prepare(c, values->arrays);
    return true;
}

bool tow__check_draw_weights(const tow_graph *scalar, tow__check_values *values)
{
    uint64_t state = 377;
    while (values->n < tow_graph_input_count(scalar)) {
        const int64_t count = tow_type_element_count(tow_graph_input_type(scalar, values->n));
        double *weights = tow__check_array(values, count);
        if (!weights) return false;
        for (int64_t e = 0; e < count; e++) weights[e] = tow__check_unit(&state);
    }
    return true;
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

typedef struct building {
    const tow__check_case *c;
    bool scalar;
} building;

static void record(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const building *b = user;
    const tow__check_case *c = b->c;
    const size_t n_out = c->n_out == 0 ? 1 : c->n_out;
    tow_value y[TOW__CHECK_OUT] = {{0}};
    if (c->build)
        c->build(trace, in, y, c);
    else
        tow__bind(trace, tow__check_primitive(c), c->params, c->n_in, in, n_out, y);
    if (!b->scalar) {
        memcpy(out, y, (c->first_only ? 1 : n_out) * sizeof *y);
        return;
    }
    size_t weight = c->n_in;
    for (size_t i = 0; i < (c->first_only ? 1 : n_out); i++) {
        if (!tow_dtype_is_float(tow_value_type(y[i]).dtype)) continue;
        tow_value term = tow_reduce_sum(tow_mul(y[i], in[weight++]), 0, NULL);
        out[0] = tow_is_null(out[0]) ? term : tow_add(out[0], tow_convert(term, tow_value_type(out[0]).dtype));
    }
}

static tow_graph *build(tow__check *k, const tow__check_case *c, tow_dtype floats, const tow_graph *plain)
{
    tow_type types[TOW__CHECK_IN + TOW__CHECK_OUT];
    size_t n = c->n_in;
    building b = {.c = c, .scalar = plain != NULL};
    tow_graph *graph = NULL;
    for (size_t i = 0; i < n; i++) types[i] = tow__check_input_type(c, i, floats);
    for (size_t i = 0; plain && i < tow_graph_output_count(plain); i++) {
        const tow_type type = tow_graph_output_type(plain, i);
        if (tow_dtype_is_float(type.dtype)) types[n++] = type;
    }
    const size_t n_out = plain || c->first_only || c->n_out == 0 ? 1 : c->n_out;
    if (tow_trace_function(k->ctx, record, &b, n, types, NULL, n_out, &graph) == TOW_OK) return graph;
    tow__check_fail(k, "cannot build: %s", tow_context_error(k->ctx));
    return NULL;
}

tow_graph *tow__check_graph(tow__check *k, const tow__check_case *c, tow_dtype floats)
{
    return build(k, c, floats, NULL);
}

tow_graph *tow__check_scalar_graph(tow__check *k, const tow__check_case *c, tow_dtype floats)
{
    tow_graph *plain = build(k, c, floats, NULL);
    tow_graph *result = plain ? build(k, c, floats, plain) : NULL;
    tow_graph_release(plain);
    return result;
}

bool tow__check_has_float_output(const tow_graph *graph)
{
    for (size_t i = 0; graph && i < tow_graph_output_count(graph); i++)
        if (tow_dtype_is_float(tow_graph_output_type(graph, i).dtype)) return true;
    return false;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

void tow__check_to_elements(const double *from, tow_type type, void *to)
{
    tow__convert_elements(type.dtype, to, TOW_F64, from, tow_type_element_count(type));
}

void tow__check_from_elements(const void *from, tow_type type, double *to)
{
    tow__convert_elements(TOW_F64, to, type.dtype, from, tow_type_element_count(type));
}

static tow_status run(const tow_graph *graph, const tow__check_values *inputs, tow__check_values *outputs,
                      tow_array **in, tow_array **out)
{
    tow_context *ctx = tow_graph_context(graph);
    tow_status status = TOW_OK;
    for (size_t i = 0; i < inputs->n; i++) {
        TRY(tow_array_create(ctx, tow_graph_input_type(graph, i), &in[i]));
        tow__check_to_elements(inputs->arrays[i], tow_array_type(in[i]), tow_array_data(in[i]));
    }
    TRY(tow_evaluate(graph, in, out));
    for (size_t i = 0; i < tow_graph_output_count(graph); i++) {
        double *array = tow__check_array(outputs, tow_type_element_count(tow_graph_output_type(graph, i)));
        if (!array) return TOW_OUT_OF_MEMORY;
        tow__check_from_elements(tow_array_data(out[i]), tow_array_type(out[i]), array);
    }
done:
    return status;
}

bool tow__check_evaluate(tow__check *k, const tow_graph *graph, const tow__check_values *inputs,
                         tow__check_values *outputs)
{
    const size_t n_in = tow_graph_input_count(graph), n_out = tow_graph_output_count(graph);
    tow_array *in[TOW__CHECK_ARRAYS] = {NULL}, *out[TOW__CHECK_ARRAYS] = {NULL};
    *outputs = tow__check_no_values(k);
    if (n_in != inputs->n || n_in > TOW__CHECK_ARRAYS || n_out > TOW__CHECK_ARRAYS) {
        tow__check_fail(k, "a graph of %zu inputs and %zu outputs is given %zu arrays", n_in, n_out, inputs->n);
        return false;
    }
    const tow_status status = run(graph, inputs, outputs, in, out);
    for (size_t i = 0; i < n_in; i++) tow_array_release(in[i]);
    for (size_t i = 0; i < n_out; i++) tow_array_release(out[i]);
    if (status != TOW_OK) tow__check_fail(k, "cannot run: %s", tow_context_error(k->ctx));
    return status == TOW_OK;
}
