/* Finds where the first NaN or infinity comes up: an interpreter that runs a graph equation by equation and looks at
 * every result.
 *
 * An equation is to blame if it makes a NaN of operands without one, or an infinity of finite operands. So an infinity
 * that a mask brings in as a constant is not what is looked for. A region (scan, remat, cond, ...) is run as a whole
 * first; only one that is to blame is entered, and of a loop only the iteration that is. Values are freed after their
 * last reader, so that no more is in memory than the graph needs. */
#include "src/train/not_finite.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/arithmetic.h"
#include "src/base/dtypes.h"
#include "src/graph/region.h"
#include "tow/program.h"

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

typedef tow__not_finite_counts counts;

/* Elements of `size` bytes whose exponent is all ones, and of these those with a mantissa. */
static void count_bits(const void *data, int64_t n, size_t size, uint64_t exponent, uint64_t mantissa, counts *c)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = size == 8   ? ((const uint64_t *)data)[i]
                        : size == 4 ? ((const uint32_t *)data)[i]
                                    : ((const uint16_t *)data)[i];
        if ((bits & exponent) != exponent) continue;
        const bool nan = (bits & mantissa) != 0;
        if (nan ? c->nans == 0 : c->nans + c->infinities == 0) c->first = i;
        if (nan || c->nans == 0) c->last = i;
        c->nans += nan;
        c->infinities += !nan;
    }
}

counts tow__count_not_finite(const tow_array *x)
{
    const tow_type type = tow_array_type(x);
    counts c = {0};
    static const struct {
        tow_dtype dtype;
        uint64_t exponent, mantissa;
    } formats[] = {{TOW_F32, 0x7f800000, 0x7fffff},
                   {TOW_F64, 0x7ff0000000000000, 0xfffffffffffff},
                   {TOW_BF16, 0x7f80, 0x7f},
                   {TOW_F16, 0x7c00, 0x3ff}};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].dtype == type.dtype)
            count_bits(tow_array_data(x), tow_type_element_count(type), tow_dtype_size(type.dtype), formats[i].exponent,
                       formats[i].mantissa, &c);
    return c;
}

static bool is_finite(const tow_array *x)
{
    const counts c = tow__count_not_finite(x);
    return c.nans + c.infinities == 0;
}

static counts count_all(tow_array *const *arrays, size_t n)
{
    counts sum = {0};
    for (size_t i = 0; i < n; i++) {
        const counts c = tow__count_not_finite(arrays[i]);
        sum.nans += c.nans;
        sum.infinities += c.infinities;
    }
    return sum;
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

typedef struct finder {
    tow_context *ctx;
    tow_not_finite nan, infinity; /* where the first ones came up */
    tow__entered regions[TOW__DEEPEST_GRAPH];
    int depth; /* regions that are entered */
    bool backward;
} finder;

/* Does this make what has not been found yet? */
static bool is_to_blame(const finder *f, counts operands, counts results)
{
    if (operands.nans == 0 && results.nans > 0 && !f->nan.found) return true;
    return operands.nans + operands.infinities == 0 && results.infinities > 0 && !f->infinity.found;
}

/* The name under which a checkpoint policy knows output i of the equation, or NULL. */
static const char *name_of(const tow_graph *g, const tow__equation *e, uint32_t i)
{
    for (const tow__equation *reader = e; reader < g->equations + g->n_equations; reader++)
        for (uint32_t k = 0; k < reader->n_in; k++)
            if (reader->primitive->kind == TOW__NAME && reader->in[k] == e->out[i])
                return ((const tow__name_params *)reader->params)->name;
    return e->primitive->kind == TOW__NAME ? ((const tow__name_params *)e->params)->name : NULL;
}

static void copy_text(char *to, size_t size, const char *from) { snprintf(to, size, "%s", from ? from : ""); }

void tow__note_not_finite(tow_not_finite *found, const tow_array *x)
{
    const counts c = tow__count_not_finite(x);
    found->found = true;
    found->type = tow_array_type(x);
    found->nans = c.nans;
    found->infinities = c.infinities;
    found->first = c.first;
}

/* The source, without axes of rows that are not known to be those of result `type`: a derivative has the source of what
 * it is the derivative of, and the shape of its result only where shapes stay. */
static tow__source source_of(const finder *f, const tow_graph *g, const tow__equation *e, const tow_type *type)
{
    tow__source source = e->source;
    for (uint32_t i = 0; i < e->n_in && f->backward; i++) {
        const tow_type operand = g->vars[e->in[i]].type;
        if (operand.rank > 0 && !tow_type_equal(operand, *type))
            memset(source.rows.axis, TOW__ROWS_UNKNOWN, sizeof source.rows.axis);
    }
    return source;
}

static void note(const finder *f, tow_not_finite *found, const tow_graph *g, const tow__equation *e,
                 tow_array *const *in, tow_array *const *results)
{
    uint32_t i = 0;
    while (i + 1 < e->n_out && is_finite(results[i])) i++;
    *found = (tow_not_finite){.backward = f->backward, .input = -1};
    tow__note_not_finite(found, results[i]);
    copy_text(found->primitive, sizeof found->primitive, e->primitive->name);
    copy_text(found->source, sizeof found->source, e->source.here);
    copy_text(found->name, sizeof found->name, name_of(g, e, i));
    const tow__source source = source_of(f, g, e, &found->type);
    tow__write_layer_path(f->regions, f->depth, &source, &found->type, found->first, found->path, sizeof found->path);
    tow__note_outside(e, in, found);
}

static void blame(finder *f, const tow_graph *g, const tow__equation *e, counts operands, tow_array *const *in,
                  tow_array *const *results)
{
    const counts c = count_all(results, e->n_out);
    if (!is_to_blame(f, operands, c)) return;
    if (c.nans > 0 && operands.nans == 0 && !f->nan.found) note(f, &f->nan, g, e, in, results);
    if (c.infinities > 0 && operands.nans + operands.infinities == 0 && !f->infinity.found)
        note(f, &f->infinity, g, e, in, results);
}

/* ---- equations as programs --------------------------------------------------------------------------------------- */

static void release(tow_context *ctx, tow_array **list, size_t n)
{
    for (size_t i = 0; list && i < n; i++) tow_array_release(list[i]);
    if (list) tow__free(ctx, list, n + 1, sizeof *list);
}

static void put(tow_array **place, tow_array *x)
{
    tow_array_retain(x);
    tow_array_release(*place);
    *place = x;
}

static tow_status run_alone(tow_context *ctx, const tow__equation *e, tow_array *const *in, tow_array **out)
{
    tow_graph *g = NULL;
    tow_trace *t = tow__trace_begin(ctx);
    tow_value *x = t ? tow__trace_alloc(t, (size_t)e->n_in + 1, sizeof *x) : NULL;
    tow_value *y = t ? tow__trace_alloc(t, (size_t)e->n_out + 1, sizeof *y) : NULL;
    if (!x || !y) {
        tow__trace_abandon(t);
        return TOW_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < e->n_in; i++) x[i] = tow__input(t, tow_array_type(in[i]), NULL);
    tow__rebind(t, e, x, y);
    tow_status status = tow__trace_end(t, e->n_out, y, false, &g);
    if (status == TOW_OK) status = tow_evaluate(g, in, out);
    tow_graph_release(g);
    return status;
}

/* ---- regions ----------------------------------------------------------------------------------------------------- */

static tow_status search(finder *f, const tow_graph *g, tow_array *const *in);

/* Searches a graph of the region e. */
static tow_status enter(finder *f, const tow__equation *e, int64_t iteration, const tow_graph *g, tow_array *const *in)
{
    f->regions[f->depth++] = (tow__entered){e->source.scope, iteration};
    const tow_status status = search(f, g, in);
    f->depth--;
    return status;
}

/* Iterations of a body (consts, carry, x) -> (carry, y): `state` is its operands, of which the carries change. */
typedef struct loop {
    const tow__equation *e;
    const tow_graph *body;
    size_t consts, carries;
    tow_array **state;
} loop;

/* Runs an iteration; one that is to blame is searched. */
static tow_status iterate(finder *f, loop *l, int64_t iteration, bool *done)
{
    const size_t n_in = tow_graph_input_count(l->body), n_out = tow_graph_output_count(l->body);
    tow_array **out = tow__alloc(f->ctx, n_out + 1, sizeof *out);
    if (!out) return TOW_OUT_OF_MEMORY;
    tow_status status = tow_evaluate(l->body, l->state, out);
    if (status == TOW_OK && is_to_blame(f, count_all(l->state, n_in), count_all(out, n_out))) {
        status = enter(f, l->e, iteration, l->body, l->state);
        *done = f->nan.found;
    }
    for (size_t i = 0; i < l->carries && status == TOW_OK; i++) put(&l->state[l->consts + i], out[i]);
    release(f->ctx, out, n_out);
    return status;
}

/* The number of iterations, unless a condition ends the loop before: the operand in front of a loop is its count. */
static int64_t count_iterations(const tow__region_form *form, tow_array *const *in)
{
    if (form->length != TOW__DATA_DECIDE) return form->length;
    if (form->lead > 0) return *(const int32_t *)tow_array_data(in[0]);
    return form->most > 0 ? form->most : INT64_MAX;
}

/* Puts the rows of iteration `number` and the number itself into the state. operands: those of the body. */
static tow_status set_rows(finder *f, loop *l, const tow__region_form *form, tow_array *const *operands, size_t n,
                           int64_t number)
{
    tow_status status = TOW_OK;
    for (size_t i = l->consts + l->carries; i < n && status == TOW_OK; i++) {
        tow_array_release(l->state[i]);
        l->state[i] = NULL;
        status = tow__array_row(f->ctx, operands[i], number, &l->state[i]);
    }
    if (form->counts && status == TOW_OK) *(int32_t *)tow_array_data(l->state[n]) = (int32_t)number;
    return status;
}

/* Does one more iteration begin? */
static tow_status evaluate_conditions(const loop *l, const tow__region_form *form, bool *begins)
{
    tow_status status = TOW_OK;
    *begins = true;
    for (uint32_t k = 0; k < form->conditions && status == TOW_OK; k++) {
        tow_array *holds = NULL;
        status = tow_evaluate(tow__nested(l->e->primitive, l->e->params, k), l->state, &holds);
        *begins &= status == TOW_OK && *(const bool *)tow_array_data(holds);
        tow_array_release(holds);
    }
    return status;
}

static tow_status search_loop(finder *f, const tow__equation *e, const tow__region_form *form, tow_array *const *in)
{
    const size_t n = e->n_in - form->lead, room = n + form->counts;
    const int64_t iterations = count_iterations(form, in);
    loop l = {e, form->body, form->consts, form->carry, tow__alloc(f->ctx, room + 1, sizeof(tow_array *))};
    tow_status status = l.state ? TOW_OK : TOW_OUT_OF_MEMORY;
    bool done = false, begins = true;
    for (size_t i = 0; i < n && l.state; i++) l.state[i] = tow_array_retain(in[form->lead + i]);
    if (status == TOW_OK && form->counts)
        status = tow_array_create(f->ctx, tow_make_type(TOW_I32, 0, NULL), &l.state[n]);
    for (int64_t k = 0; k < iterations && status == TOW_OK && begins && !done; k++) {
        const int64_t number = form->reverse ? iterations - 1 - k : k;
        status = set_rows(f, &l, form, in + form->lead, n, number);
        if (status == TOW_OK) status = evaluate_conditions(&l, form, &begins);
        if (status == TOW_OK && begins) status = iterate(f, &l, number, &done);
    }
    release(f->ctx, l.state, room);
    return status;
}

/* The branch that runs: an index outside of them is clamped. */
static const tow_graph *find_branch(const tow__equation *e, const tow__region_form *form, tow_array *const *in)
{
    if (form->branches == 1) return form->body;
    const int64_t last = (int64_t)form->branches - 1;
    const bool two = tow_array_type(in[0]).dtype == TOW_BOOL;
    const int64_t index = two ? *(const bool *)tow_array_data(in[0]) : *(const int32_t *)tow_array_data(in[0]);
    const int64_t branch = index < 0 ? 0 : index > last ? last : index;
    return tow__nested(e->primitive, e->params, form->conditions + (uint32_t)branch);
}

static tow_status search_region(finder *f, const tow__equation *e, tow_array *const *in)
{
    tow__region_form form;
    if (!tow__region_of(e, &form)) return TOW_OK;
    if (form.repeats) return search_loop(f, e, &form, in);
    return enter(f, e, -1, find_branch(e, &form, in), in + form.lead);
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

static tow_status run_equation(finder *f, const tow_graph *g, const tow__equation *e, tow_array *const *in,
                               tow_array **out)
{
    tow_status status = run_alone(f->ctx, e, in, out);
    if (status != TOW_OK) return status;
    const counts operands = count_all(in, e->n_in);
    if (!is_to_blame(f, operands, count_all(out, e->n_out))) return TOW_OK;
    status = search_region(f, e, in);
    if (e->n_in > 0) blame(f, g, e, operands, in, out);
    return status;
}

/* Frees values that equation i is the last one to read. */
static void forget(const tow_graph *g, uint32_t i, const uint32_t *last_reader, tow_array **values)
{
    const tow__equation *e = &g->equations[i];
    for (uint32_t k = 0; k < e->n_in; k++) {
        if (last_reader[e->in[k]] != i) continue;
        tow_array_release(values[e->in[k]]);
        values[e->in[k]] = NULL;
    }
}

static tow_status search_in(finder *f, const tow_graph *g, tow_array **values, const uint32_t *last_reader)
{
    tow_status status = TOW_OK;
    const bool outermost = f->depth == 0 && !f->backward;
    for (uint32_t i = 0; i < g->n_equations && status == TOW_OK && !f->nan.found; i++) {
        const tow__equation *e = &g->equations[i];
        if (e->n_out == 0) continue; /* what prints and checks has done so */
        if (outermost && e->source.phase != TOW__FORWARD) f->backward = true;
        tow_array **in = tow__alloc(f->ctx, (size_t)e->n_in + 1, sizeof *in);
        tow_array **out = tow__alloc(f->ctx, (size_t)e->n_out + 1, sizeof *out);
        for (uint32_t k = 0; in && k < e->n_in; k++) in[k] = tow_array_retain(values[e->in[k]]);
        status = in && out ? run_equation(f, g, e, in, out) : TOW_OUT_OF_MEMORY;
        for (uint32_t k = 0; out && k < e->n_out; k++) put(&values[e->out[k]], out[k]);
        release(f->ctx, in, e->n_in);
        release(f->ctx, out, e->n_out);
        forget(g, i, last_reader, values);
    }
    return status;
}

/* Goes through the equations until the first NaN is found. */
static tow_status search(finder *f, const tow_graph *g, tow_array *const *in)
{
    const size_t n = g->n_vars;
    tow_array **values = tow__alloc(f->ctx, n + 1, sizeof *values);
    uint32_t *last_reader = tow__alloc(f->ctx, n + 1, sizeof *last_reader);
    tow_status status = values && last_reader ? TOW_OK : TOW_OUT_OF_MEMORY;
    if (status == TOW_OK) {
        for (uint32_t i = 0; i < g->n_inputs; i++) put(&values[g->inputs[i]], in[i]);
        for (uint32_t i = 0; i < g->n_equations; i++)
            for (uint32_t k = 0; k < g->equations[i].n_in; k++) last_reader[g->equations[i].in[k]] = i;
        status = search_in(f, g, values, last_reader);
    }
    release(f->ctx, values, n);
    if (last_reader) tow__free(f->ctx, last_reader, n + 1, sizeof *last_reader);
    return status;
}

static tow_status check_inputs(const tow_graph *g, tow_array *const *inputs)
{
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const tow_type expected = tow_graph_input_type(g, i);
        if (inputs && inputs[i] && tow_type_equal(expected, tow_array_type(inputs[i]))) continue;
        return tow__fail(g->ctx, inputs && inputs[i] ? TOW_TYPE_MISMATCH : TOW_INVALID_ARGUMENT,
                         "tow_find_not_finite: input %u: expected %s, found %s", i, tow__type_name(expected).text,
                         inputs && inputs[i] ? tow__type_name(tow_array_type(inputs[i])).text : "NULL");
    }
    return TOW_OK;
}

tow_status tow_find_not_finite(const tow_graph *graph, tow_array *const *inputs, tow_not_finite *found)
{
    if (!graph || !found) return tow__missing(tow__context_of(graph), __func__, "a graph and a place for the result");
    *found = (tow_not_finite){.input = -1};
    tow_status status = check_inputs(graph, inputs);
    if (status == TOW_OK) status = tow__find_not_finite_input(graph, inputs, found);
    if (status != TOW_OK || found->found) return status;
    finder *f = tow__alloc(graph->ctx, 1, sizeof *f);
    if (!f) return TOW_OUT_OF_MEMORY;
    f->ctx = graph->ctx;
    TOW__ARITHMETIC(true);
    status = search(f, graph, inputs);
    if (status == TOW_OK) *found = f->nan.found ? f->nan : f->infinity;
    tow__free(f->ctx, f, 1, sizeof *f);
    return status;
}
