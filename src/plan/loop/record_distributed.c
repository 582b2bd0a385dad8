/* Records a distributed scan (loop/distribute.c): the products before it, the remainder of its body, and the sums and
 * products after it.
 *
 * Results of the products before the loop, and rows that are stacked for the sums after it, may be much larger than the
 * caches. Then the loop is cut into strips whose rows fit into L2 (loop/strip_mine.c): the scan becomes a scan over
 * strips. The body of a strip makes the products of its iterations, runs the iterations, and adds to the sums. Each
 * strip continues the sums of the previous one, in the order of the iterations, so no bits change. */
#include "src/kernels/products/dot.h"
#include "src/plan/loop/distribute.h"
#include "tow/ops.h"

/* ---- equations --------------------------------------------------------------------------------------------------- */

/* The same product for the rows of all iterations: [iterations, rows of x, columns of w]. */
static tow_value product_of_all(tow_trace *t, const tow__equation *e, tow_value x, tow_value w)
{
    tow__dot_params p = *(const tow__dot_params *)e->params;
    if (p.rows == 0) tow__dot_sizes(&p, tow__row_type(tow_value_type(x)), tow_value_type(w));
    for (int i = 0; i < p.lhs_contract.n; i++) p.lhs_contract.v[i]++;
    return tow__bind1(t, e->primitive, &p, 2, (tow_value[]){x, w});
}

static tow_value sums_of_all(tow_trace *t, const tow__equation *e, tow_value x)
{
    tow__axes_params p = *(const tow__axes_params *)e->params;
    for (int i = 0; i < p.axes.n; i++) p.axes.v[i]++;
    return tow__bind1(t, e->primitive, &p, 1, &x);
}

/* A scan around one sum: sum' = sum + dot(x, y), or sum + x. */
static tow_value sum_over_iterations(tow_trace *t, const tow__distribution *s, const tow__equation *scan,
                                     const tow__loop_sum *k, tow_value init, uint32_t n, const tow_value *xs)
{
    tow_value x[2], none = {0}, out, *captures;
    size_t n_captures;
    tow__push(t);
    tow_value old = tow__input(t, tow_value_type(init), NULL);
    for (uint32_t i = 0; i < n; i++) x[i] = tow__input(t, tow__row_type(tow_value_type(xs[i])), NULL);
    tow_value d = n == 2 ? tow__bind1(t, k->e->primitive, k->e->params, 2, x) : x[0];
    bool first = k->add->in[0] == s->body->inputs[s->consts + k->carry];
    out = tow__bind1(t, k->add->primitive, NULL, 2, (tow_value[]){first ? old : d, first ? d : old});
    tow_graph *body = tow__pop(t, 1, &out, &n_captures, &captures);
    if (!body) return none;
    tow__scan_params p = {.body = body, .length = s->params->length, .reverse = s->params->reverse, .carry = 1};
    tow__bind(t, scan->primitive, &p, 1 + n, (tow_value[]){init, xs[0], xs[n - 1]}, 1, &out);
    tow_graph_release(body);
    return out;
}

/* The body of the remainder. products: types of the rows that are made before the loop, in order. stacks: vars that are
 * stacked for use after the loop, in order. */
static tow_graph *record_body(tow_trace *t, const tow__distribution *s, const tow_type *products, uint32_t n_stacks,
                              const uint32_t *stacks, tow_value *values, tow_value *outputs)
{
    const tow_graph *g = s->body;
    tow_value *captures;
    size_t n_captures;
    uint32_t n = 0, next = 0;
    tow__push(t);
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        bool summed = i >= s->consts && i < s->consts + s->carry && s->summed[i - s->consts];
        if (!summed) values[g->inputs[i]] = tow__input(t, tow__type_of(s, g->inputs[i]), g->input_names[i]);
    }
    for (uint32_t i = 0; i < g->n_equations; i++) {
        const tow__equation *e = &g->equations[i];
        if (s->fates[i] == TOW__BEFORE_LOOP) values[e->out[0]] = tow__input(t, products[next++], NULL);
        if (s->fates[i] == TOW__IN_LOOP && !tow__rebind_among(t, e, values)) break;
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        if (tow__leaves_loop(s, i)) continue;
        outputs[n++] = values[g->outputs[i]];
    }
    for (uint32_t i = 0; i < n_stacks; i++) outputs[n++] = values[stacks[i]];
    return tow__pop(t, n, outputs, &n_captures, &captures);
}

/* Values that stand for vars of the body while the scan is recorded anew. */
typedef struct remainder {
    tow_value *rows;    /* [n_vars] rows of all iterations, where they are known outside the loop */
    tow_value *results; /* results of the original scan */
} remainder;

static bool record_scan(tow_trace *t, const tow__distribution *s, const tow__equation *scan, const tow_value *operands,
                        remainder *r)
{
    const tow_graph *g = s->body;
    uint32_t n_in = 0, n_out = 0, n_products = 0, n_stacks = 0;
    uint32_t most_in = g->n_inputs + g->n_equations, most_out = g->n_outputs + g->n_vars;
    tow_value *in = tow__trace_alloc(t, most_in, sizeof *in), *out = tow__trace_alloc(t, most_out, sizeof *out);
    tow_value *values = tow__trace_alloc(t, g->n_vars, sizeof *values);
    tow_type *products = tow__trace_alloc(t, g->n_equations, sizeof *products);
    uint32_t *stacks = tow__trace_alloc(t, g->n_vars, sizeof *stacks);
    if (!in || !out || !values || !products || !stacks) return false;
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        bool summed = i >= s->consts && i < s->consts + s->carry && s->summed[i - s->consts];
        if (!summed) in[n_in++] = operands[i];
    }
    for (uint32_t i = 0; i < g->n_equations; i++) {
        const tow__equation *e = &g->equations[i];
        if (s->fates[i] != TOW__BEFORE_LOOP) continue;
        tow__set_source(t, &e->source);
        in[n_in] = product_of_all(t, e, r->rows[e->in[0]], operands[g->vars[e->in[1]].index]);
        products[n_products++] = tow__type_of(s, e->out[0]);
        r->rows[e->out[0]] = in[n_in++];
    }
    for (uint32_t v = 0; v < g->n_vars; v++)
        if (s->stacked[v] && !r->rows[v].trace && !tow__is_output(s, v)) stacks[n_stacks++] = v;
    tow__scan_params p = *s->params;
    p.carry -= s->n_sums;
    p.body = record_body(t, s, products, n_stacks, stacks, values, out);
    if (!p.body) return false;
    tow__set_source(t, &scan->source);
    tow__bind(t, scan->primitive, &p, n_in, in, p.body->n_outputs, out);
    tow_graph_release(p.body);
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        if (tow__leaves_loop(s, i)) continue;
        if (i >= s->carry) r->rows[g->outputs[i]] = out[n_out];
        r->results[i] = out[n_out++];
    }
    for (uint32_t i = 0; i < n_stacks; i++) r->rows[stacks[i]] = out[n_out++];
    return true;
}

/* Records the remainder of the scan, and the products and sums that moved before and after it. */
static void record_whole(tow_trace *t, const tow__distribution *s, const tow__equation *scan, const tow_value *operands,
                         tow_value *results)
{
    const tow_graph *g = s->body;
    remainder r = {.rows = tow__trace_alloc(t, g->n_vars, sizeof *r.rows), .results = results};
    if (!r.rows) return;
    for (uint32_t i = s->consts + s->carry; i < g->n_inputs; i++) r.rows[g->inputs[i]] = operands[i];
    if (!record_scan(t, s, scan, operands, &r)) return;
    for (uint32_t k = 0; k < s->n_sums; k++) {
        const tow__loop_sum *m = &s->sums[k];
        bool product = m->e->n_in == 2;
        tow__set_source(t, &m->e->source);
        tow_value xs[2] = {r.rows[m->e->in[0]], r.rows[m->e->in[m->e->n_in - 1]]};
        if (!product) xs[0] = sums_of_all(t, m->e, xs[0]);
        results[m->carry] = sum_over_iterations(t, s, scan, m, operands[s->consts + m->carry], product ? 2 : 1, xs);
    }
    for (uint32_t i = s->carry; i < g->n_outputs; i++) {
        const tow__equation *e = tow__maker(s, g->outputs[i]);
        if (!tow__leaves_loop(s, i)) continue;
        tow__set_source(t, &e->source);
        if (!r.rows[e->out[0]].trace)
            r.rows[e->out[0]] = product_of_all(t, e, r.rows[e->in[0]], operands[g->vars[e->in[1]].index]);
        results[i] = r.rows[e->out[0]];
    }
}

/* ---- strips ------------------------------------------------------------------------------------------------------ */

/* Bytes per iteration of rows that are made before the loop, or stacked for equations after it. */
static size_t bytes_outside(const tow__distribution *s)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < s->body->n_equations; i++)
        if (s->fates[i] == TOW__BEFORE_LOOP) bytes += tow_type_bytes(tow__type_of(s, s->body->equations[i].out[0]));
    for (uint32_t v = 0; v < s->body->n_vars; v++)
        if (s->stacked[v] && !tow__is_output(s, v)) bytes += tow_type_bytes(tow__type_of(s, v));
    return bytes;
}

/* Iterations of a strip, whose rows L2 holds; all of them if the scan stays whole: the rows of all iterations stay in a
 * cache, or no strip that divides the length fills a quarter of L2. */
static int64_t choose_strip(const tow__distribution *s)
{
    const int64_t length = s->params->length, bytes = (int64_t)bytes_outside(s), l2 = s->machine->l2.bytes;
    if (!tow__can_strip_mine(s->params) || bytes == 0 || bytes > l2) return length;
    if (tow__machine_level(s->machine, (double)bytes * (double)length) != TOW__IN_MEMORY) return length;
    const int64_t most = l2 / bytes;
    for (int64_t strip = most; 4 * strip * bytes >= l2 && most - strip <= TOW__MOST_TRIED; strip--)
        if (length % strip == 0) return strip;
    return length;
}

static void record_strip(tow_trace *t, const tow__equation *scan, const tow__scan_params *strip, const void *user,
                         const tow_value *operands, tow_value *results)
{
    tow__distribution part = *(const tow__distribution *)user;
    part.params = strip;
    record_whole(t, &part, scan, operands, results);
}

void tow__record_distributed(tow_trace *t, const tow__distribution *s, const tow__equation *scan,
                             const tow_value *operands, tow_value *results)
{
    tow__record_strips(t, scan, s->params, choose_strip(s), record_strip, s, operands, results);
}
