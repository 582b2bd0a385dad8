/* Control flow: cond, while, fori, and empty.
 *
 *   cond   (index, operands)         one of several branches; an index outside of them is clamped
 *   while  (consts, carry)           body as long as condition holds, at most max_iterations times
 *   fori   (count, consts, carry)    body for i = 0 .. count - 1, or the other way round; what differentiation makes of
 *                                    a while whose iterations are known
 *   empty  ()                        an array whose elements are never read before something is written over them
 *
 * Their decompositions are what plans run: scans that stop (tow__scan_params.stops).
 *
 *   while    p = condition(carry);  scan (p, carry) -> (condition(carry'), carry') until p is false
 *   cond     for each branch a scan of at most one iteration, which writes its results over those of the scans before:
 *            a branch that does not run costs a comparison, and the memory of one branch serves all
 */
#include "src/ops/control.h"
#include "src/graph/region.h"
#include "src/ops/region.h"
#include "src/ops/rules.h"

/* ---- types ------------------------------------------------------------------------------------------------------- */

/* Input i of a body must be what operand i + lead is. */
static tow_status inputs_agree(const tow__typing *ty, const tow_graph *body, const char *what, size_t lead, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        tow_type want = tow_graph_input_type(body, i), have = ty->in[i + lead];
        if (!tow_type_equal(want, have))
            return tow__type_fail(ty, TOW_TYPE_MISMATCH, "operand %zu must be %s as input %zu of %s, found %s",
                                  i + lead, tow__type_name(want).text, i, what, tow__type_name(have).text);
    }
    return TOW_OK;
}

/* Results of a body that are carries must be what its inputs from `first` on are. */
static tow_status carries_agree(const tow__typing *ty, const tow_graph *body, size_t first)
{
    for (size_t i = 0; i < body->n_outputs; i++) {
        tow_type want = tow_graph_input_type(body, first + i), have = tow_graph_output_type(body, i);
        if (!tow_type_equal(want, have))
            return tow__type_fail(ty, TOW_TYPE_MISMATCH,
                                  "carry %zu starts as %s but the body returns %s; a carry must keep its type: convert "
                                  "or reshape one of the two",
                                  i, tow__type_name(want).text, tow__type_name(have).text);
        ty->out[i] = have;
    }
    return TOW_OK;
}

static tow_status branch_type(const tow__typing *ty, const tow_graph *first, const tow_graph *branch, size_t k)
{
    if (branch->n_inputs != ty->n_in - 1 || branch->n_outputs != ty->n_out)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "branch %zu has %u inputs and %u outputs, expected %zu and %zu, as there are operands "
                              "behind the index and results",
                              k, branch->n_inputs, branch->n_outputs, ty->n_in - 1, ty->n_out);
    for (size_t i = 0; i < ty->n_out; i++) {
        tow_type want = tow_graph_output_type(first, i), have = tow_graph_output_type(branch, i);
        if (!tow_type_equal(want, have))
            return tow__type_fail(
                ty, TOW_TYPE_MISMATCH,
                "output %zu is %s in branch 0 and %s in branch %zu; all branches must return the same "
                "types: convert or reshape one of the two",
                i, tow__type_name(want).text, tow__type_name(have).text, k);
    }
    char what[40];
    snprintf(what, sizeof what, "branch %zu", k);
    return inputs_agree(ty, branch, what, 1, branch->n_inputs);
}

static tow_status cond_type(const tow__typing *ty)
{
    const tow__cond_params *p = ty->params;
    if (p->branches.n == 0) return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "it has no branch; give it one or more");
    if (ty->n_in == 0) return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "expected an index as operand 0, found nothing");
    if (ty->in[0].rank != 0 || (ty->in[0].dtype != TOW_I32 && ty->in[0].dtype != TOW_BOOL))
        return tow__type_fail(ty, TOW_TYPE_MISMATCH, "the index must be i32[] or bool[], found %s",
                              tow__type_name(ty->in[0]).text);
    if (ty->in[0].dtype == TOW_BOOL && p->branches.n != 2)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "an index of type bool[] chooses between 2 branches (false, true), found %u branches",
                              p->branches.n);
    for (uint32_t k = 0; k < p->branches.n; k++) {
        tow_status status = branch_type(ty, p->branches.v[0], p->branches.v[k], k);
        if (status != TOW_OK) return status;
    }
    for (size_t i = 0; i < ty->n_out; i++) ty->out[i] = tow_graph_output_type(p->branches.v[0], i);
    return TOW_OK;
}

static tow_status counts_fit(const tow__typing *ty, int64_t consts, int64_t max_iterations, size_t lead)
{
    if (consts < 0 || (uint64_t)consts + lead + ty->n_out != ty->n_in)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "%lld consts do not fit %zu operands and %zu results",
                              (long long)consts, ty->n_in, ty->n_out);
    if (max_iterations < 0)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "max_iterations must not be negative, found %lld",
                              (long long)max_iterations);
    return TOW_OK;
}

static tow_status while_type(const tow__typing *ty)
{
    const tow__while_params *p = ty->params;
    tow_status status = tow__require_count(ty, p->body->n_inputs, p->body->n_outputs);
    if (status == TOW_OK) status = counts_fit(ty, p->consts, p->max_iterations, 0);
    if (status != TOW_OK) return status;
    tow_type found = tow_graph_output_type(p->condition, 0);
    if (p->condition->n_inputs != ty->n_in || p->condition->n_outputs != 1)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "the condition has %u inputs and %u outputs, expected the %zu inputs of the body and 1 "
                              "output",
                              p->condition->n_inputs, p->condition->n_outputs, ty->n_in);
    if (found.rank != 0 || found.dtype != TOW_BOOL)
        return tow__type_fail(ty, TOW_TYPE_MISMATCH, "the condition must give bool[], found %s",
                              tow__type_name(found).text);
    status = inputs_agree(ty, p->condition, "the condition", 0, ty->n_in);
    if (status == TOW_OK) status = inputs_agree(ty, p->body, "the body", 0, ty->n_in);
    return status == TOW_OK ? carries_agree(ty, p->body, (size_t)p->consts) : status;
}

static tow_status fori_type(const tow__typing *ty)
{
    const tow__fori_params *p = ty->params;
    tow_status status = tow__require_count(ty, p->body->n_inputs, p->body->n_outputs);
    if (status == TOW_OK) status = counts_fit(ty, p->consts, p->max_iterations, 1);
    if (status != TOW_OK) return status;
    tow_type i32 = tow_make_type(TOW_I32, 0, NULL);
    if (!tow_type_equal(ty->in[0], i32))
        return tow__type_fail(ty, TOW_TYPE_MISMATCH, "the count must be i32[], found %s",
                              tow__type_name(ty->in[0]).text);
    if (!tow_type_equal(tow_graph_input_type(p->body, ty->n_in - 1), i32))
        return tow__type_fail(ty, TOW_TYPE_MISMATCH, "the last input of the body counts iterations: it must be i32[]");
    status = inputs_agree(ty, p->body, "the body", 1, ty->n_in - 1);
    return status == TOW_OK ? carries_agree(ty, p->body, (size_t)p->consts) : status;
}

/* ---- empty ------------------------------------------------------------------------------------------------------- */

static tow_status empty_type(const tow__typing *ty)
{
    const tow__empty_params *p = ty->params;
    ty->out[0] = tow_make_type(p->dtype, p->shape.n, p->shape.v);
    return tow__require_valid(ty, ty->out[0]);
}

static bool is_empty(const tow_graph *g, uint32_t var)
{
    return g->vars[var].equation != TOW__INPUT && g->equations[g->vars[var].equation].primitive == &tow__empty_p;
}

/* ---- decompositions ---------------------------------------------------------------------------------------------- */

typedef struct choice {
    tow_trace *t;
    const tow__equation *e;
    const tow_value *x;
    tow_value *y;
    uint32_t *base; /* [n_out] the input of the branches that result i is before any branch runs, or TOW__INPUT */
} choice;

/* What a result is before any branch runs: an operand, if some branch hands it through, so that it costs nothing there. */
static void begin_results(choice *c)
{
    const tow__graphs *branches = &((const tow__cond_params *)c->e->params)->branches;
    for (uint32_t i = 0; i < c->e->n_out; i++) {
        c->base[i] = TOW__INPUT;
        for (uint32_t k = 0; k < branches->n && c->base[i] == TOW__INPUT; k++) {
            const tow__var *v = &branches->v[k]->vars[branches->v[k]->outputs[i]];
            if (v->equation == TOW__INPUT) c->base[i] = v->index;
        }
        tow_type type = tow_graph_output_type(branches->v[0], i);
        tow__empty_params p = {.dtype = type.dtype, .shape = tow__ints_of(type.rank, type.dims)};
        c->y[i] = c->base[i] != TOW__INPUT ? c->x[1 + c->base[i]] : tow__bind1(c->t, &tow__empty_p, &p, 0, NULL);
    }
}

static bool is_changed(const choice *c, const tow_graph *branch, uint32_t i)
{
    const tow__var *v = &branch->vars[branch->outputs[i]];
    if (v->equation == TOW__INPUT) return v->index != c->base[i];
    return !is_empty(branch, branch->outputs[i]);
}

/* (operands, p, results that change) -> (p, those results) */
static tow_status branch_body(const choice *c, const tow_graph *branch, tow_graph **result)
{
    tow_value *in, *out;
    tow_trace *t = tow__trace_begin_over(branch, &in, &out);
    if (!t) return TOW_OUT_OF_MEMORY;
    tow_value *all = tow__trace_alloc(t, (size_t)branch->n_outputs + 1, sizeof *all);
    size_t n = 1;
    for (uint32_t i = 0; i < branch->n_inputs; i++) in[i] = tow__input(t, tow_graph_input_type(branch, i), NULL);
    if (all) all[0] = tow__input(t, tow_make_type(TOW_BOOL, 0, NULL), NULL);
    for (uint32_t i = 0; i < branch->n_outputs; i++)
        if (is_changed(c, branch, i)) tow__input(t, tow_graph_output_type(branch, i), NULL);
    tow__inline(t, branch, in, out);
    for (uint32_t i = 0; all && i < branch->n_outputs; i++)
        if (is_changed(c, branch, i)) all[n++] = out[i];
    return tow__trace_end(t, all ? n : 0, all, false, result);
}

/* Branch k if p: the results become its own. */
static void run_branch(choice *c, const tow_graph *branch, tow_value p)
{
    uint32_t n_in = branch->n_inputs, n_out = branch->n_outputs;
    tow_value *in = tow__trace_alloc(c->t, (size_t)n_in + n_out + 1, sizeof *in);
    tow_value *out = tow__trace_alloc(c->t, (size_t)n_out + 1, sizeof *out);
    tow_graph *body = NULL;
    if (!in || !out) return;
    if (branch_body(c, branch, &body) != TOW_OK) {
        tow__adopt_error(c->t);
        return;
    }
    size_t n = n_in;
    memcpy(in, c->x + 1, n_in * sizeof *in);
    in[n++] = p;
    for (uint32_t i = 0; i < n_out; i++)
        if (is_changed(c, branch, i)) in[n++] = c->y[i];
    tow__scan_params params = {.body = body, .length = 1, .consts = n_in, .carry = (int64_t)(n - n_in), .stops = 1};
    if (n - n_in > 1 || branch->has_effects) tow__bind(c->t, &tow__scan_p, &params, n, in, n - n_in, out);
    tow_graph_release(body);
    n = 1;
    for (uint32_t i = 0; i < n_out; i++)
        if (is_changed(c, branch, i)) c->y[i] = out[n++];
}

static void cond_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    const tow__graphs *branches = &((const tow__cond_params *)e->params)->branches;
    choice c = {.t = t, .e = e, .x = x, .y = y, .base = tow__trace_alloc(t, e->n_out, sizeof *c.base)};
    bool flag = tow_value_type(x[0]).dtype == TOW_BOOL;
    if (!c.base) return;
    begin_results(&c);
    for (uint32_t k = 0; k < branches->n && !tow__failed(t); k++) {
        tow_value here, number = flag ? x[0] : tow_scalar(t, TOW_I32, k);
        if (flag)
            here = k ? x[0] : tow_not(x[0]);
        else if (branches->n == 1)
            here = tow_scalar(t, TOW_BOOL, 1);
        else
            here = k == 0 ? tow_le(x[0], number) : k + 1 == branches->n ? tow_ge(x[0], number) : tow_eq(x[0], number);
        run_branch(&c, branches->v[k], here);
    }
}

/* (consts, p, carry) -> (condition(carry'), carry') */
static tow_status while_body(const tow__while_params *p, tow_graph **result)
{
    const tow_graph *g = p->body;
    tow_value *in, *out;
    tow_trace *t = tow__trace_begin_over(g, &in, &out);
    if (!t) return TOW_OUT_OF_MEMORY;
    tow_value *all = tow__trace_alloc(t, (size_t)g->n_outputs + 1, sizeof *all);
    for (uint32_t i = 0; i < p->consts; i++) in[i] = tow__input(t, tow_graph_input_type(g, i), NULL);
    tow__input(t, tow_make_type(TOW_BOOL, 0, NULL), NULL);
    for (uint32_t i = (uint32_t)p->consts; i < g->n_inputs; i++)
        in[i] = tow__input(t, tow_graph_input_type(g, i), NULL);
    tow__inline(t, g, in, out);
    if (all) {
        memcpy(in + p->consts, out, g->n_outputs * sizeof *in);
        memcpy(all + 1, out, g->n_outputs * sizeof *all);
        tow__inline(t, p->condition, in, all);
    }
    return tow__trace_end(t, all ? (size_t)g->n_outputs + 1 : 0, all, false, result);
}

static void while_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    const tow__while_params *p = e->params;
    tow__scan_params params = {.length = p->max_iterations ? p->max_iterations : INT64_MAX,
                               .consts = p->consts,
                               .carry = (int64_t)e->n_out + 1,
                               .stops = 1};
    tow_value *in = tow__trace_alloc(t, (size_t)e->n_in + 1, sizeof *in);
    tow_value *out = tow__trace_alloc(t, (size_t)e->n_out + 1, sizeof *out);
    if (!in || !out) return;
    memcpy(in, x, (size_t)p->consts * sizeof *in);
    memcpy(in + p->consts + 1, x + p->consts, e->n_out * sizeof *in);
    tow__inline(t, p->condition, x, in + p->consts);
    if (while_body(p, &params.body) != TOW_OK) {
        tow__adopt_error(t);
        return;
    }
    tow__bind(t, &tow__scan_p, &params, (size_t)e->n_in + 1, in, (size_t)e->n_out + 1, out);
    tow_graph_release(params.body);
    memcpy(y, out + 1, e->n_out * sizeof *y);
}

/* (count, consts, i, carry): i < count forward, i > 0 in reverse */
static tow_status fori_condition(const tow__fori_params *p, tow_graph **result)
{
    tow_trace *t = tow__trace_begin(p->body->ctx);
    if (!t) return TOW_OUT_OF_MEMORY;
    tow_type i32 = tow_make_type(TOW_I32, 0, NULL);
    tow_value count = tow__input(t, i32, NULL), i = {0};
    for (uint32_t k = 0; k + 1 < p->body->n_inputs; k++) {
        if (k == p->consts) i = tow__input(t, i32, NULL);
        tow__input(t, tow_graph_input_type(p->body, k), NULL);
    }
    if (p->consts + 1 == p->body->n_inputs) i = tow__input(t, i32, NULL);
    tow_value holds = p->reverse ? tow_gt(i, tow_scalar(t, TOW_I32, 0)) : tow_lt(i, count);
    return tow__trace_end(t, 1, &holds, false, result);
}

/* (count, consts, i, carry) -> (next i, carry) */
static tow_status fori_body(const tow__fori_params *p, tow_graph **result)
{
    const tow_graph *g = p->body;
    tow_value *in, *out;
    tow_trace *t = tow__trace_begin_over(g, &in, &out);
    if (!t) return TOW_OUT_OF_MEMORY;
    tow_type i32 = tow_make_type(TOW_I32, 0, NULL);
    tow_value *all = tow__trace_alloc(t, (size_t)g->n_outputs + 1, sizeof *all);
    tow__input(t, i32, NULL);
    for (uint32_t k = 0; k < p->consts; k++) in[k] = tow__input(t, tow_graph_input_type(g, k), NULL);
    tow_value i = tow__input(t, i32, NULL), next = tow_add_scalar(i, p->reverse ? -1 : 1);
    for (uint32_t k = (uint32_t)p->consts; k + 1 < g->n_inputs; k++)
        in[k] = tow__input(t, tow_graph_input_type(g, k), NULL);
    in[g->n_inputs - 1] = p->reverse ? next : i;
    tow__inline(t, g, in, out);
    if (all) all[0] = next;
    if (all) memcpy(all + 1, out, g->n_outputs * sizeof *all);
    return tow__trace_end(t, all ? (size_t)g->n_outputs + 1 : 0, all, false, result);
}

static void fori_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    const tow__fori_params *p = e->params;
    tow__while_params params = {.consts = p->consts + 1, .max_iterations = p->max_iterations};
    tow_value *in = tow__trace_alloc(t, (size_t)e->n_in + 1, sizeof *in);
    tow_value *out = tow__trace_alloc(t, (size_t)e->n_out + 1, sizeof *out);
    if (!in || !out) return;
    size_t lead = (size_t)p->consts + 1;
    memcpy(in, x, lead * sizeof *in);
    in[lead] = p->reverse ? x[0] : tow_scalar(t, TOW_I32, 0);
    memcpy(in + lead + 1, x + lead, e->n_out * sizeof *in);
    if (fori_condition(p, &params.condition) == TOW_OK && fori_body(p, &params.body) == TOW_OK)
        tow__bind(t, &tow__while_p, &params, (size_t)e->n_in + 1, in, (size_t)e->n_out + 1, out);
    else
        tow__adopt_error(t);
    tow_graph_release(params.condition);
    tow_graph_release(params.body);
    memcpy(y, out + 1, e->n_out * sizeof *y);
}

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

static void cond_form(const tow__equation *e, tow__region_form *form)
{
    form->lead = 1;
    form->branches = ((const tow__cond_params *)e->params)->branches.n;
}

static void while_form(const tow__equation *e, tow__region_form *form)
{
    const tow__while_params *p = e->params;
    form->repeats = true;
    form->conditions = 1;
    form->consts = (uint32_t)p->consts;
    form->carry = e->n_out;
    form->length = TOW__DATA_DECIDE;
    form->most = p->max_iterations;
}

static void while_resize(void *params, int64_t consts, int64_t carry)
{
    (void)carry;
    ((tow__while_params *)params)->consts = consts;
}

static void fori_form(const tow__equation *e, tow__region_form *form)
{
    const tow__fori_params *p = e->params;
    form->lead = 1;
    form->repeats = form->counts = true;
    form->consts = (uint32_t)p->consts;
    form->carry = e->n_out;
    form->reverse = p->reverse;
    form->length = TOW__DATA_DECIDE;
    form->most = p->max_iterations;
}

static void fori_resize(void *params, int64_t consts, int64_t carry)
{
    (void)carry;
    ((tow__fori_params *)params)->consts = consts;
}

static const tow__region cond_region = {.form = cond_form};
static const tow__region while_region = {.form = while_form, .resize = while_resize};
static const tow__region fori_region = {.form = fori_form, .resize = fori_resize};

TOW__PRIMITIVE(cond, TOW__REGION, tow__no_tiling, tow__element_cost, .operands = "choice, x...", .inputs = -1,
               .outputs = -1, .type = cond_type, .region = &cond_region, .decompose = cond_decompose,
               TOW__PARAMS(tow__cond_params, TOW__PARAM(tow__cond_params, branches, TOW__P_GRAPHS)));

TOW__PRIMITIVE(while, TOW__REGION, tow__no_tiling, tow__element_cost, .operands = "consts..., carry...", .inputs = -1,
               .outputs = -1, .type = while_type, .region = &while_region, .decompose = while_decompose,
               TOW__PARAMS(tow__while_params, TOW__PARAM(tow__while_params, max_iterations, TOW__P_INT),
                           TOW__PARAM(tow__while_params, consts, TOW__P_INT),
                           TOW__PARAM(tow__while_params, condition, TOW__P_GRAPH),
                           TOW__PARAM(tow__while_params, body, TOW__P_GRAPH)));

TOW__PRIMITIVE(fori, TOW__REGION, tow__no_tiling, tow__element_cost, .operands = "count, consts..., carry...",
               .inputs = -1, .outputs = -1, .type = fori_type, .region = &fori_region, .decompose = fori_decompose,
               TOW__PARAMS(tow__fori_params, TOW__PARAM(tow__fori_params, max_iterations, TOW__P_INT),
                           TOW__PARAM(tow__fori_params, reverse, TOW__P_BOOL),
                           TOW__PARAM(tow__fori_params, consts, TOW__P_INT),
                           TOW__PARAM(tow__fori_params, body, TOW__P_GRAPH)));

TOW__PRIMITIVE(empty, TOW__SOURCE, tow__no_tiling, tow__element_cost, .inputs = 0, .outputs = 1, .type = empty_type,
               TOW__PARAMS(tow__empty_params, TOW__PARAM(tow__empty_params, dtype, TOW__P_DTYPE),
                           TOW__PARAM(tow__empty_params, shape, TOW__P_INTS)));
