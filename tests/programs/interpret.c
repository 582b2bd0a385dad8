/* An interpreter of graphs: each equation is computed as a program of its own, and regions run here, in C. All that it
 * shares with plans are the kernels: it knows neither schedules nor memory, so whatever a plan does beyond calling
 * kernels one after the other shows as a difference. */
#include <stdlib.h>
#include <string.h>

#include "src/graph/primitive.h"
#include "tests/programs/programs.h"
#include "tests/unit/support/elements.h"

typedef bool (*interpretation)(const tow__equation *e, const arrays *in, arrays *out);

static arrays list_of(size_t n)
{
    arrays a = {.n = n, .list = calloc(n + 1, sizeof *a.list)};
    if (a.list == NULL) abort();
    return a;
}

static void put(arrays *to, size_t at, tow_array *x)
{
    tow_array *kept = tow_array_retain(x);
    tow_array_release(to->list[at]);
    to->list[at] = kept;
}

static arrays part_of(const arrays *from, size_t first, size_t n)
{
    arrays part = list_of(n);
    for (size_t i = 0; i < n; i++) put(&part, i, from->list[first + i]);
    return part;
}

/* ---- regions ----------------------------------------------------------------------------------------------------- */

static const tow_graph *body_of(const tow__equation *e, uint32_t index)
{
    return tow__nested(e->primitive, e->params, index);
}

/* Nested graph 0 on the operands: call, remat, custom_jvp, custom_vjp. */
static bool run_body(const tow__equation *e, const arrays *in, arrays *out)
{
    return interpret(body_of(e, 0), in, out);
}

static bool run_cond(const tow__equation *e, const arrays *in, arrays *out)
{
    const int last = (int)tow__nested_count(e->primitive, e->params) - 1;
    const double index = array_element(in->list[0], 0);
    arrays operands = part_of(in, 1, in->n - 1);
    const bool good = interpret(body_of(e, index <= 0      ? 0
                                           : index >= last ? (uint32_t)last
                                                           : (uint32_t)index),
                                &operands, out);
    release(&operands);
    return good;
}

/* out = body of (consts, carry): the carries in `state` become the results. */
static bool iterate(const tow_graph *body, arrays *state, size_t consts, size_t carries, arrays *out)
{
    if (!interpret(body, state, out)) return false;
    for (size_t i = 0; i < carries; i++) put(state, consts + i, out->list[i]);
    return true;
}

static bool run_while(const tow__equation *e, const arrays *in, arrays *out)
{
    const tow__while_params *p = e->params;
    const size_t consts = (size_t)p->consts, carries = e->n_out;
    arrays state = part_of(in, 0, in->n), made = {0}, holds = {0};
    bool good = true;
    for (int64_t i = 0; good && (p->max_iterations == 0 || i < p->max_iterations); i++) {
        good = interpret(p->condition, &state, &holds);
        const bool more = good && array_element(holds.list[0], 0) != 0;
        release(&holds);
        if (!more) break;
        good = iterate(p->body, &state, consts, carries, &made);
        release(&made);
    }
    if (good) *out = part_of(&state, consts, carries);
    release(&state);
    return good;
}

static tow_array *number(tow_context *context, int32_t i)
{
    tow_array *a = NULL;
    if (tow_array_from_data(context, tow_make_type(TOW_I32, 0, NULL), &i, &a) != TOW_OK) abort();
    return a;
}

static bool run_fori(const tow__equation *e, const arrays *in, arrays *out)
{
    const tow__fori_params *p = e->params;
    const size_t consts = (size_t)p->consts, carries = e->n_out;
    const int64_t count = (int64_t)array_element(in->list[0], 0);
    arrays state = list_of(in->n), made = {0};
    bool good = true;
    for (size_t i = 1; i < in->n; i++) put(&state, i - 1, in->list[i]);
    for (int64_t k = 0; k < count && good; k++) {
        tow_array *i = number(p->body->ctx, (int32_t)(p->reverse ? count - 1 - k : k));
        put(&state, in->n - 1, i);
        tow_array_release(i);
        good = iterate(p->body, &state, consts, carries, &made);
        release(&made);
    }
    if (good) *out = part_of(&state, consts, carries);
    release(&state);
    return good;
}

/* Row i of xs, copied: views of rows are for kernels that say so. */
static tow_array *row_of(tow_context *context, tow_array *xs, int64_t i)
{
    tow_type type = tow_array_type(xs);
    tow_array *row = NULL;
    type.rank--;
    memmove(type.dims, type.dims + 1, (size_t)type.rank * sizeof *type.dims);
    if (tow_array_create(context, type, &row) != TOW_OK) abort();
    memcpy(tow_array_data(row), (char *)tow_array_data(xs) + (size_t)i * tow_type_bytes(type), tow_type_bytes(type));
    return row;
}

static bool run_scan(const tow__equation *e, const arrays *in, arrays *out)
{
    const tow__scan_params *p = e->params;
    const size_t consts = (size_t)p->consts, carries = (size_t)p->carry;
    arrays state = part_of(in, 0, in->n), made = {0};
    bool good = true;
    *out = list_of(e->n_out);
    for (size_t i = carries; i < out->n; i++) {
        tow_type type = tow_graph_output_type(p->body, i);
        for (int d = type.rank++; d > 0; d--) type.dims[d] = type.dims[d - 1];
        type.dims[0] = p->length;
        if (tow_array_create(p->body->ctx, type, &out->list[i]) != TOW_OK) abort();
    }
    for (int64_t k = 0; k < p->length && good; k++) {
        const int64_t row = p->reverse ? p->length - 1 - k : k;
        for (size_t i = consts + carries; i < in->n; i++) {
            tow_array *x = row_of(p->body->ctx, in->list[i], row);
            put(&state, i, x);
            tow_array_release(x);
        }
        good = iterate(p->body, &state, consts, carries, &made);
        for (size_t i = carries; i < out->n && good; i++) {
            const size_t bytes = tow_type_bytes(tow_array_type(made.list[i]));
            memcpy((char *)tow_array_data(out->list[i]) + (size_t)row * bytes, tow_array_data(made.list[i]), bytes);
        }
        release(&made);
    }
    for (size_t i = 0; i < carries && good; i++) put(out, i, state.list[consts + i]);
    release(&state);
    if (!good) release(out);
    return good;
}

static const struct {
    const char *name;
    interpretation run;
} regions[] = {
    {"call", run_body}, {"remat", run_body}, {"custom_jvp", run_body}, {"custom_vjp", run_body},
    {"cond", run_cond}, {"scan", run_scan},  {"while", run_while},     {"fori", run_fori},
};

/* ---- equations --------------------------------------------------------------------------------------------------- */

/* The equation as a graph of its own. */
static bool run_alone(tow_context *context, const tow__equation *e, const arrays *in, arrays *out)
{
    tow_trace *t = tow__trace_begin(context);
    tow_value *x = t ? tow__trace_alloc(t, e->n_in, sizeof *x) : NULL;
    tow_value *y = t ? tow__trace_alloc(t, e->n_out, sizeof *y) : NULL;
    tow_graph *g = NULL;
    if (x == NULL || y == NULL) abort();
    for (uint32_t i = 0; i < e->n_in; i++) x[i] = tow__input(t, tow_array_type(in->list[i]), NULL);
    tow__rebind(t, e, x, y);
    if (tow__trace_end(t, e->n_out, y, false, &g) != TOW_OK) return false;
    const how h = {.threads = 1};
    const bool good = run(g, &h, in, out);
    tow_graph_release(g);
    return good;
}

static bool run_equation(tow_context *context, const tow__equation *e, const arrays *in, arrays *out)
{
    for (size_t i = 0; i < sizeof regions / sizeof *regions; i++)
        if (strcmp(regions[i].name, e->primitive->name) == 0) return regions[i].run(e, in, out);
    return run_alone(context, e, in, out);
}

bool interpret(const tow_graph *g, const arrays *in, arrays *out)
{
    arrays values = list_of(g->n_vars), x, y = {0};
    bool good = true;
    for (uint32_t i = 0; i < g->n_inputs; i++) put(&values, g->inputs[i], in->list[i]);
    for (uint32_t i = 0; i < g->n_equations && good; i++) {
        const tow__equation *e = &g->equations[i];
        x = list_of(e->n_in);
        for (uint32_t k = 0; k < e->n_in; k++) put(&x, k, values.list[e->in[k]]);
        good = run_equation(g->ctx, e, &x, &y);
        for (uint32_t k = 0; k < e->n_out && good; k++) put(&values, e->out[k], y.list[k]);
        release(&x);
        if (good) release(&y);
    }
    *out = list_of(good ? g->n_outputs : 0);
    for (uint32_t i = 0; i < g->n_outputs && good; i++) put(out, i, values.list[g->outputs[i]]);
    release(&values);
    return good;
}
