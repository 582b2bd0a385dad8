/* cond: one of several branches runs.
 *
 *   cond   (index, operands)         an index outside of the branches is clamped
 *
 * Its decomposition, which plans run, is for each branch a scan of at most one iteration (tow__scan_params.stops),
 * which writes its results over those of the scans before: a branch that does not run costs a comparison, and the
 * memory of one branch serves all. Rules are in cond_rules.c (forward mode, transpose), cond_partial.c and
 * batch_control.c. */
#include "src/autodiff/regions/control.h"
#include "src/autodiff/regions/types.h"

/* ---- types ------------------------------------------------------------------------------------------------------- */

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
    return tow__inputs_agree(ty, branch, what, 1, branch->n_inputs);
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

/* ---- decomposition ----------------------------------------------------------------------------------------------- */

static bool is_empty(const tow_graph *g, uint32_t var)
{
    return g->vars[var].equation != TOW__INPUT && g->equations[g->vars[var].equation].primitive == &tow__empty_p;
}

typedef struct choice {
    tow_trace *t;
    const tow__equation *e;
    const tow_value *x;
    tow_value *y;
    uint32_t *base; /* [n_out] the input of the branches that result i is before any branch runs, or TOW__INPUT */
} choice;

/* The value of each result before any branch runs: an operand, if some branch hands it through, so that it costs
 * nothing there. */
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

/* (operands, p, results that change) -> (p, those results). A result that begins as an operand is that operand when the
 * branch runs, and the branch reads it there: then the new value may take the place of the old one. */
static tow_status branch_body(const choice *c, const tow_graph *branch, tow_graph **result)
{
    tow_value *in, *out;
    tow_trace *t = tow__trace_begin_over(branch, &in, &out);
    if (!t) return TOW_OUT_OF_MEMORY;
    tow_value *all = tow__trace_alloc(t, (size_t)branch->n_outputs + 1, sizeof *all);
    size_t n = 1;
    for (uint32_t i = 0; i < branch->n_inputs; i++) in[i] = tow__input(t, tow_graph_input_type(branch, i), NULL);
    if (all) all[0] = tow__input(t, tow_make_type(TOW_BOOL, 0, NULL), NULL);
    for (uint32_t i = 0; i < branch->n_outputs; i++) {
        if (!is_changed(c, branch, i)) continue;
        const tow_value begins = tow__input(t, tow_graph_output_type(branch, i), NULL);
        if (c->base[i] != TOW__INPUT) in[c->base[i]] = begins;
    }
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

/* ---- descriptor -------------------------------------------------------------------------------------------------- */

static void cond_form(const tow__equation *e, tow__region_form *form)
{
    form->lead = 1;
    form->branches = ((const tow__cond_params *)e->params)->branches.n;
}

static const tow__region cond_region = {.form = cond_form, .split = tow__cond_split};

TOW__PRIMITIVE(cond, TOW__REGION, tow__no_tiling, tow__element_cost, .operands = "choice, x...", .inputs = -1,
               .outputs = -1, .type = cond_type, .region = &cond_region, .jvp = tow__cond_jvp,
               .transpose = tow__cond_transpose, .continues = true, .batch = tow__batch_cond,
               .decompose = cond_decompose,
               TOW__PARAMS(tow__cond_params, TOW__PARAM(tow__cond_params, branches, TOW__P_GRAPHS)));
