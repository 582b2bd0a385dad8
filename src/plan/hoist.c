/* Takes out of scans what does not have to wait for the step before.
 *
 *   scan: carry, xs                        products before the scan       u = dot(xs, w), all steps at once
 *     u = dot(x, w)                        scan: the rest
 *     carry' = f(carry, u)         ──>       carry' = f(carry, u)         u is a row of xs
 *     sum' = sum + dot(x, carry)             ys: carry                    what a sum needs is stacked
 *     y = dot(carry', w)                   products after the scan        y = dot(stacked carry', w)
 *                                          scan: sum' = sum + dot(x, c)   nothing but the sum: one kernel (steps.c)
 *
 * A sum is a carry that nothing reads but its own addition: gradients of shared parameters are of this kind.
 *
 * No bits change: an element of a product or of a sum over an axis depends on its own row alone (gemm.h), and sums are
 * added up in the order of the steps. What moves is decided by shapes alone. It costs memory for the rows of all steps,
 * so only products move that are slow inside: those of few rows per step. */
#include "src/plan/plan.h"

enum {
    FEW_ROWS = 64,  /* per step: with more, a product in the loop is as fast as outside */
    WIDENS_BY = 8,  /* a product is not moved if its result has so many times more elements than its rows have */
    MOST_STEPS = 16 /* sums and products of one scan that are looked at */
};

/* What becomes of an equation of the body. */
typedef enum fate {
    STAYS,
    BEFORE, /* its result is a row of one product over all steps */
    GONE,   /* part of a sum, or replaced by one product after the loop */
    AFTER
} fate;

typedef struct sum {
    uint32_t carry;               /* index */
    const tow__equation *add, *e; /* sum' = sum + e(...) */
} sum;

typedef struct split {
    const tow__scan_params *params;
    const tow_graph *body;
    uint32_t consts, carry, n_ys;
    uint32_t *uses; /* [n_vars] readers; outputs count */
    fate *fates;    /* [n_equations] */
    bool *stacked;  /* [n_vars] what is computed in the loop and needed after it */
    bool *summed;   /* [carry] */
    sum sums[MOST_STEPS];
    uint32_t n_sums;
    bool changes;
} split;

/* ---- what may move ----------------------------------------------------------------------------------------------- */

static bool is(const tow__equation *e, const char *name) { return strcmp(e->primitive->name, name) == 0; }

static const tow__equation *maker(const split *s, uint32_t var)
{
    uint32_t e = s->body->vars[var].equation;
    return e == TOW__INPUT ? NULL : &s->body->equations[e];
}

static bool is_input(const split *s, uint32_t var, uint32_t first, uint32_t limit)
{
    const tow__var *v = &s->body->vars[var];
    return v->equation == TOW__INPUT && v->index >= first && v->index < limit;
}

static bool is_const(const split *s, uint32_t var) { return is_input(s, var, 0, s->consts); }
static bool is_row(const split *s, uint32_t var) { return is_input(s, var, s->consts + s->carry, s->body->n_inputs); }

static tow_type type_of(const split *s, uint32_t var) { return s->body->vars[var].type; }

/* A product x w of few rows x with a constant of the loop that can be made for all steps at once. */
static bool widens(const split *s, const tow__equation *e)
{
    if (!is(e, "dot_general") || !is_const(s, e->in[1])) return false;
    const tow__dot_params *p = e->params;
    tow_type x = type_of(s, e->in[0]), y = type_of(s, e->out[0]);
    if (p->lhs_batch.n > 0 || x.rank == TOW_MAX_RANK || y.rank == TOW_MAX_RANK) return false;
    int64_t depth = 1;
    for (int i = 0; i < p->lhs_contract.n; i++) depth *= x.dims[p->lhs_contract.v[i]];
    if (depth < 2 || tow_type_count(x) == 0) return false;
    return tow_type_count(x) / depth < FEW_ROWS && tow_type_count(y) < WIDENS_BY * tow_type_count(x);
}

/* A product of two matrices (or vectors) that differ from step to step, summed over few rows. */
static bool is_outer_product(const split *s, const tow__equation *e)
{
    if (!is(e, "dot_general") || is_const(s, e->in[0]) || is_const(s, e->in[1])) return false;
    const tow__dot_params *p = e->params;
    tow_type x = type_of(s, e->in[0]), y = type_of(s, e->in[1]);
    int contracted = p->lhs_contract.n;
    if (p->lhs_batch.n > 0 || contracted > 1 || x.rank != contracted + 1 || y.rank != x.rank) return false;
    int64_t rows = contracted > 0 ? x.dims[p->lhs_contract.v[0]] : 1;
    return rows < FEW_ROWS && tow_type_count(type_of(s, e->out[0])) > 0;
}

/* Equation e is sum' = sum + d for a carry that nobody else reads; returns d's maker, which nobody else reads either. */
static const tow__equation *summand(const split *s, uint32_t j)
{
    uint32_t old = s->body->inputs[s->consts + j], new = s->body->outputs[j];
    const tow__equation *add = maker(s, new);
    if (!add || !is(add, "add") || s->uses[old] != 1 || s->uses[new] != 1) return NULL;
    if (add->in[0] != old && add->in[1] != old) return NULL;
    if (!tow_dtype_is_float(type_of(s, old).dtype)) return NULL;
    uint32_t d = add->in[0] == old ? add->in[1] : add->in[0];
    return s->uses[d] == 1 ? maker(s, d) : NULL;
}

static void need(split *s, uint32_t var)
{
    if (!is_row(s, var)) s->stacked[var] = true;
}

static void move_sum(split *s, uint32_t j, const tow__equation *e)
{
    if (s->n_sums == MOST_STEPS) return;
    const tow__equation *add = maker(s, s->body->outputs[j]);
    s->sums[s->n_sums++] = (sum){j, add, e};
    s->summed[j] = s->changes = true;
    s->fates[add - s->body->equations] = s->fates[e - s->body->equations] = GONE;
    for (uint32_t i = 0; i < e->n_in; i++) need(s, e->in[i]);
}

static bool is_output(const split *s, uint32_t var)
{
    for (uint32_t i = s->carry; i < s->body->n_outputs; i++)
        if (s->body->outputs[i] == var) return true;
    return false;
}

/* Whether the rows of a var are known after the loop anyway. */
static bool is_at_hand(const split *s, uint32_t var) { return s->stacked[var] || is_row(s, var) || is_output(s, var); }

/* Result i of the scan is a carry that became a sum, or ys that are a product outside. */
static bool leaves(const split *s, uint32_t i)
{
    if (i < s->carry) return s->summed[i];
    const tow__equation *e = maker(s, s->body->outputs[i]);
    return e && s->fates[e - s->body->equations] != STAYS;
}

static void decide(split *s)
{
    const tow_graph *g = s->body;
    for (uint32_t i = 0; i < g->n_equations; i++)
        if (widens(s, &g->equations[i]) && is_row(s, g->equations[i].in[0])) {
            s->fates[i] = BEFORE;
            s->changes = true;
        }
    for (uint32_t j = 0; j < s->carry; j++) {
        const tow__equation *e = summand(s, j);
        if (e && is_outer_product(s, e)) move_sum(s, j, e);
    }
    for (uint32_t j = 0; j < s->carry; j++) { /* sums over rows that are kept for a product anyway */
        const tow__equation *e = s->summed[j] ? NULL : summand(s, j);
        if (e && is(e, "reduce_sum") && type_of(s, e->in[0]).rank < TOW_MAX_RANK && is_at_hand(s, e->in[0]))
            move_sum(s, j, e);
    }
    for (uint32_t i = 0; i < g->n_equations; i++) {
        const tow__equation *e = &g->equations[i];
        if (s->fates[i] != STAYS || !widens(s, e) || !is_at_hand(s, e->in[0])) continue;
        if (s->uses[e->out[0]] != 1 || !is_output(s, e->out[0])) continue;
        s->fates[i] = AFTER;
        s->changes = true;
        need(s, e->in[0]);
    }
}

static tow_status analyse(tow__arena *arena, const tow__scan_params *params, const tow_graph *body, split *s)
{
    *s = (split){.params = params, .body = body, .consts = (uint32_t)params->consts, .carry = (uint32_t)params->carry};
    s->n_ys = body->n_outputs - s->carry;
    s->uses = tow__arena_alloc(arena, body->n_vars, sizeof *s->uses);
    s->fates = tow__arena_alloc(arena, body->n_equations, sizeof *s->fates);
    s->stacked = tow__arena_alloc(arena, body->n_vars, sizeof *s->stacked);
    s->summed = tow__arena_alloc(arena, s->carry, sizeof *s->summed);
    if (!s->uses || !s->fates || !s->stacked || !s->summed) return TOW_OUT_OF_MEMORY;
    if (params->length < 2) return TOW_OK;
    for (uint32_t i = 0; i < body->n_equations; i++)
        for (uint32_t j = 0; j < body->equations[i].n_in; j++) s->uses[body->equations[i].in[j]]++;
    for (uint32_t i = 0; i < body->n_outputs; i++) s->uses[body->outputs[i]]++;
    decide(s);
    return TOW_OK;
}

/* ---- recording anew ---------------------------------------------------------------------------------------------- */

/* The same product for the rows of all steps: [steps, rows of x, columns of w]. */
static tow_value product_of_all(tow_trace *t, const tow__equation *e, tow_value x, tow_value w)
{
    tow__dot_params p = *(const tow__dot_params *)e->params;
    for (int i = 0; i < p.lhs_contract.n; i++) p.lhs_contract.v[i]++;
    return tow__bind1(t, e->primitive, &p, 2, (tow_value[]){x, w});
}

static tow_value sums_of_all(tow_trace *t, const tow__equation *e, tow_value x)
{
    tow__axes_params p = *(const tow__axes_params *)e->params;
    for (int i = 0; i < p.axes.n; i++) p.axes.v[i]++;
    return tow__bind1(t, e->primitive, &p, 1, &x);
}

static tow_type row_type(tow_type type) { return tow_make_type(type.dtype, type.rank - 1, type.dims + 1); }

/* A scan around one sum: sum' = sum + dot(x, y), or sum + x. */
static tow_value sum_over_steps(tow_trace *t, const split *s, const tow__equation *scan, const sum *k, tow_value init,
                                uint32_t n, const tow_value *xs)
{
    tow_value x[2], none = {0}, out, *captures;
    size_t n_captures;
    tow__push(t);
    tow_value old = tow__input(t, tow_value_type(init), NULL);
    for (uint32_t i = 0; i < n; i++) x[i] = tow__input(t, row_type(tow_value_type(xs[i])), NULL);
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

/* The body without what leaves it. products: rows of what is made before, in order. stacks: receives what is needed
 * afterwards, in order. */
static tow_graph *record_body(tow_trace *t, const split *s, const tow_type *products, uint32_t n_stacks,
                              const uint32_t *stacks, tow_value *values, tow_value *outputs)
{
    const tow_graph *g = s->body;
    tow_value *captures;
    size_t n_captures;
    uint32_t n = 0, next = 0;
    tow__push(t);
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        bool summed = i >= s->consts && i < s->consts + s->carry && s->summed[i - s->consts];
        if (!summed) values[g->inputs[i]] = tow__input(t, type_of(s, g->inputs[i]), g->input_names[i]);
    }
    for (uint32_t i = 0; i < g->n_equations; i++) {
        const tow__equation *e = &g->equations[i];
        if (s->fates[i] == BEFORE) values[e->out[0]] = tow__input(t, products[next++], NULL);
        if (s->fates[i] != STAYS) continue;
        tow_value *operands = tow__trace_alloc(t, (size_t)e->n_in + e->n_out, sizeof *operands);
        if (!operands) break;
        for (uint32_t j = 0; j < e->n_in; j++) operands[j] = values[e->in[j]];
        tow__set_source(t, &e->source);
        tow__rebind(t, e, operands, operands + e->n_in);
        for (uint32_t j = 0; j < e->n_out; j++) values[e->out[j]] = operands[e->n_in + j];
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        if (leaves(s, i)) continue;
        outputs[n++] = values[g->outputs[i]];
    }
    for (uint32_t i = 0; i < n_stacks; i++) outputs[n++] = values[stacks[i]];
    return tow__pop(t, n, outputs, &n_captures, &captures);
}

/* The scan itself on new operands; results by role. */
typedef struct remainder {
    tow_value *rows;    /* [n_vars] all rows of vars of the body that are known outside */
    tow_value *results; /* of the scan that was */
} remainder;

static bool record_scan(tow_trace *t, const split *s, const tow__equation *scan, const tow_value *operands,
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
        if (s->fates[i] != BEFORE) continue;
        tow__set_source(t, &e->source);
        in[n_in] = product_of_all(t, e, r->rows[e->in[0]], operands[g->vars[e->in[1]].index]);
        products[n_products++] = type_of(s, e->out[0]);
        r->rows[e->out[0]] = in[n_in++];
    }
    for (uint32_t v = 0; v < g->n_vars; v++)
        if (s->stacked[v] && !r->rows[v].trace && !is_output(s, v)) stacks[n_stacks++] = v;
    tow__scan_params p = *s->params;
    p.carry -= s->n_sums;
    p.body = record_body(t, s, products, n_stacks, stacks, values, out);
    if (!p.body) return false;
    tow__set_source(t, &scan->source);
    tow__bind(t, scan->primitive, &p, n_in, in, p.body->n_outputs, out);
    tow_graph_release(p.body);
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        if (leaves(s, i)) continue;
        if (i >= s->carry) r->rows[g->outputs[i]] = out[n_out];
        r->results[i] = out[n_out++];
    }
    for (uint32_t i = 0; i < n_stacks; i++) r->rows[stacks[i]] = out[n_out++];
    return true;
}

/* Records scan `e`, whose body has been split, on `operands`. */
static void record_split(tow_trace *t, const split *s, const tow__equation *scan, const tow_value *operands,
                         tow_value *results)
{
    const tow_graph *g = s->body;
    remainder r = {.rows = tow__trace_alloc(t, g->n_vars, sizeof *r.rows), .results = results};
    if (!r.rows) return;
    for (uint32_t i = s->consts + s->carry; i < g->n_inputs; i++) r.rows[g->inputs[i]] = operands[i];
    if (!record_scan(t, s, scan, operands, &r)) return;
    for (uint32_t k = 0; k < s->n_sums; k++) {
        const sum *m = &s->sums[k];
        bool product = m->e->n_in == 2;
        tow__set_source(t, &m->e->source);
        tow_value xs[2] = {r.rows[m->e->in[0]], r.rows[m->e->in[m->e->n_in - 1]]};
        if (!product) xs[0] = sums_of_all(t, m->e, xs[0]);
        results[m->carry] = sum_over_steps(t, s, scan, m, operands[s->consts + m->carry], product ? 2 : 1, xs);
    }
    for (uint32_t i = s->carry; i < g->n_outputs; i++) {
        const tow__equation *e = maker(s, g->outputs[i]);
        if (!leaves(s, i)) continue;
        tow__set_source(t, &e->source);
        if (!r.rows[e->out[0]].trace)
            r.rows[e->out[0]] = product_of_all(t, e, r.rows[e->in[0]], operands[g->vars[e->in[1]].index]);
        results[i] = r.rows[e->out[0]];
    }
}

/* ---- graphs ------------------------------------------------------------------------------------------------------- */

static tow_status record_region(tow__arena *arena, tow_trace *t, const tow__equation *e, const tow_value *operands,
                                tow_value *results)
{
    union {
        tow__scan_params scan;
        tow__remat_params remat;
        tow__call_params call;
    } p;
    memcpy(&p, e->params, e->primitive->params_size);
    tow_graph **body = is(e, "scan") ? &p.scan.body : is(e, "remat") ? &p.remat.body : &p.call.body;
    tow_graph *inner = NULL;
    split s = {0};
    tow_status status = tow__hoist(*body, &inner);
    if (status != TOW_OK) return status;
    *body = inner;
    if (is(e, "scan")) status = analyse(arena, &p.scan, inner, &s);
    if (status == TOW_OK && s.changes)
        record_split(t, &s, e, operands, results);
    else if (status == TOW_OK)
        tow__bind(t, e->primitive, &p, e->n_in, operands, e->n_out, results);
    tow_graph_release(inner);
    return status;
}

static bool is_region(const tow__equation *e) { return is(e, "scan") || is(e, "remat") || is(e, "call"); }

static tow_status record_graph(tow__arena *arena, const tow_graph *g, tow_trace *t, tow_value *values,
                               uint32_t *n_forward)
{
    tow_status status = TOW_OK;
    for (uint32_t i = 0; i < g->n_inputs; i++)
        values[g->inputs[i]] = tow__input(t, g->vars[g->inputs[i]].type, g->input_names[i]);
    for (uint32_t i = 0; i < g->n_equations && status == TOW_OK; i++) {
        const tow__equation *e = &g->equations[i];
        tow_value *operands = tow__arena_alloc(arena, (size_t)e->n_in + e->n_out, sizeof *operands);
        if (!operands) return TOW_OUT_OF_MEMORY;
        for (uint32_t j = 0; j < e->n_in; j++) operands[j] = values[e->in[j]];
        tow__set_source(t, &e->source);
        if (is_region(e))
            status = record_region(arena, t, e, operands, operands + e->n_in);
        else
            tow__rebind(t, e, operands, operands + e->n_in);
        for (uint32_t j = 0; j < e->n_out; j++) values[e->out[j]] = operands[e->n_in + j];
        if (i + 1 == g->forward_equations) *n_forward = tow__recorded(t);
    }
    tow__set_source(t, NULL);
    return status;
}

/* False if nothing would move out of any scan in g. */
static tow_status find_changes(tow__arena *arena, const tow_graph *g, bool *changes)
{
    tow_status status = TOW_OK;
    for (uint32_t i = 0; i < g->n_equations && status == TOW_OK && !*changes; i++) {
        const tow__equation *e = &g->equations[i];
        if (!is_region(e)) continue;
        const tow_graph *body = is(e, "scan")    ? ((const tow__scan_params *)e->params)->body
                                : is(e, "remat") ? ((const tow__remat_params *)e->params)->body
                                                 : ((const tow__call_params *)e->params)->body;
        split s = {0};
        if (is(e, "scan")) status = analyse(arena, e->params, body, &s);
        *changes = s.changes;
        if (status == TOW_OK && !*changes) status = find_changes(arena, body, changes);
    }
    return status;
}

tow_status tow__hoist(const tow_graph *g, tow_graph **result)
{
    bool changes = false;
    tow__arena arena;
    tow__arena_init(&arena, g->ctx);
    tow_trace *t = NULL;
    tow_graph *all = NULL;
    tow_status status = TOW_OK;
    uint32_t n_forward = 0;
    *result = NULL;
    TRY(find_changes(&arena, g, &changes));
    if (!changes) {
        union {
            const tow_graph *constant;
            tow_graph *counted;
        } same = {g};
        *result = tow_graph_retain(same.counted);
        goto done;
    }
    tow_value *values = tow__arena_alloc(&arena, (size_t)g->n_vars + g->n_outputs, sizeof *values);
    t = values ? tow__trace_begin(g->ctx) : NULL;
    status = t ? TOW_OK : TOW_OUT_OF_MEMORY;
    TRY(status);
    TRY(record_graph(&arena, g, t, values, &n_forward));
    for (uint32_t i = 0; i < g->n_outputs; i++) values[g->n_vars + i] = values[g->outputs[i]];
    status = tow__trace_end(t, g->n_outputs, values + g->n_vars, false, &all);
    t = NULL;
    TRY(status);
    all->forward_equations = n_forward;
    TRY(tow__dce(all, NULL, false, NULL, result)); /* xs that only a product outside reads still */
    TRY(tow__verify(*result, "hoisting out of scans"));
done:
    tow__trace_abandon(t);
    tow_graph_release(all);
    tow__arena_free(&arena);
    if (status != TOW_OK) {
        tow_graph_release(*result);
        *result = NULL;
    }
    return status;
}
