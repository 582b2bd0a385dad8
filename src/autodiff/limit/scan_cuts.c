/* May a scan be cut into runs, and its iterations be grouped, with the same bits?
 *
 * Gradients have the bits of the iterations written out: the cotangent of a value is summed over its readers, the last
 * one first. The readers of a value in iterations are the same ones in every cut. Two readers are not:
 *
 *   rows of ys      The array of all rows is made after the last iteration, that of a run after the run, before later
 *                   runs read the values that its last iteration hands on. So its rows come too late in the sum of a
 *                   value that they share with a carry: such a row is read from the carry (scan_runs.c). Rows that
 *                   share their value with a constant, or with carries of several iterations, have no other reader.
 *   operands that   The transpose of a scan joins values that have several names in it (scan_normal.c). A slice of xs
 *   coincide        is a name of its own, of which the next run does not know what it is a slice of.
 *
 * Regions around groups of iterations add the rows of ys behind the group, so groups have no rows of carried values. */
#include "src/autodiff/limit/limit.h"
#include "src/autodiff/regions/scan_flow.h"
#include "src/graph/region.h"
#include "src/ops/table.h"

static bool is_float(const tow_graph *g, uint32_t var) { return tow_dtype_is_float(g->vars[var].type.dtype); }

/* Are results i and k of the region one value, whatever branch runs? */
static bool is_one_result(const tow__equation *e, const tow__region_form *form, uint32_t i, uint32_t k)
{
    for (uint32_t n = 0; n < form->branches; n++) {
        const tow_graph *branch = tow__nested(e->primitive, e->params, form->conditions + n);
        if (branch->outputs[i] != branch->outputs[k]) return false;
    }
    return true;
}

/* The first name of a value: a region may give one more than once. */
static uint32_t first_name(const tow_graph *g, uint32_t var)
{
    tow__region_form form;
    const tow__equation *e = g->vars[var].equation == TOW__INPUT ? NULL : &g->equations[g->vars[var].equation];
    if (!e || !tow__is_region(e) || !tow__region_of(e, &form) || form.repeats) return var;
    uint32_t i = 0, k = 0;
    while (e->out[k] != var) k++;
    while (!is_one_result(e, &form, i, k)) i++;
    return e->out[i];
}

/* The first carry that is var after an iteration; the number of carries: there is none. */
static uint32_t carry_of(const tow__scan_params *p, uint32_t var)
{
    uint32_t k = 0;
    while (k < (uint32_t)p->carry && first_name(p->body, p->body->outputs[k]) != first_name(p->body, var)) k++;
    return k;
}

/* ---- operands ---------------------------------------------------------------------------------------------------- */

/* Does var follow from an input of the graph? What does not has no cotangent. */
static bool follows_from_input(const tow_graph *g, uint32_t var)
{
    const uint32_t made = g->vars[var].equation;
    if (made == TOW__INPUT) return true;
    for (uint32_t i = 0; i < g->equations[made].n_in; i++)
        if (follows_from_input(g, g->equations[made].in[i])) return true;
    return false;
}

/* Views of a value are other names of it. */
static uint32_t behind_views(const tow_graph *g, uint32_t var)
{
    uint32_t made = g->vars[var].equation;
    while (made != TOW__INPUT && g->equations[made].primitive->view && g->equations[made].n_in == 1) {
        var = g->equations[made].in[0];
        made = g->vars[var].equation;
    }
    return var;
}

static bool operands_coincide(const tow_graph *g, const tow__equation *e)
{
    for (uint32_t i = 0; i < e->n_in; i++)
        for (uint32_t j = 0; j < i; j++)
            if (e->in[i] == e->in[j] && is_float(g, e->in[i]) && follows_from_input(g, behind_views(g, e->in[i])))
                return true;
    return false;
}

/* ---- carries ----------------------------------------------------------------------------------------------------- */

/* Does a carry take its value from a constant, from another carry in a ring, or from the value of another carry? */
static const char *why_carries(const tow__scan_params *p, const tow__flow *flow)
{
    for (uint32_t k = 0; k < (uint32_t)p->carry; k++) {
        if (!is_float(p->body, p->body->outputs[k])) continue;
        if (flow[k].kind == TOW__FLOW_CONSTANT) return "a carry becomes a constant";
        if (flow[k].kind != TOW__FLOW_CARRY && carry_of(p, p->body->outputs[k]) != k)
            return "two carries hold one value";
        uint32_t at = k, steps = 0;
        while (flow[at].kind == TOW__FLOW_CARRY && steps++ < (uint32_t)p->carry) at = flow[at].index;
        if (flow[at].kind == TOW__FLOW_CARRY) return "carries change places";
        for (uint32_t j = 0; j < k; j++)
            if (flow[k].kind == TOW__FLOW_CARRY && flow[j].kind == TOW__FLOW_CARRY && flow[j].index == flow[k].index)
                return "two carries hold one value";
    }
    return NULL;
}

/* Does another carry take over the value of carry k? */
static bool is_handed_on(const tow__scan_params *p, const tow__flow *flow, uint32_t k)
{
    for (uint32_t j = 0; j < (uint32_t)p->carry; j++)
        if (flow[j].kind == TOW__FLOW_CARRY && flow[j].index == k) return true;
    return false;
}

/* ---- rows of ys -------------------------------------------------------------------------------------------------- */

/* The carry whose value before or after an iteration is row y; the number of carries: there is none. */
static uint32_t carry_of_row(const tow__scan_params *p, uint32_t y)
{
    const tow_graph *body = p->body;
    const uint32_t var = body->outputs[y], after = carry_of(p, var);
    if (after < (uint32_t)p->carry || body->vars[var].equation != TOW__INPUT) return after;
    const uint32_t input = body->vars[var].index;
    const bool is_carry = input >= (uint32_t)p->consts && input < (uint32_t)(p->consts + p->carry);
    return is_carry ? input - (uint32_t)p->consts : (uint32_t)p->carry;
}

static const char *why_rows(const tow__scan_params *p, const tow__flow *flow, uint32_t n_out)
{
    const tow_graph *body = p->body;
    for (uint32_t y = (uint32_t)p->carry; y < n_out; y++) {
        const tow__var *v = &body->vars[body->outputs[y]];
        if (!tow_dtype_is_float(v->type.dtype)) continue;
        if (v->equation == TOW__INPUT && v->index < (uint32_t)p->consts) return "rows of a result hold a constant";
        const uint32_t k = carry_of_row(p, y);
        if (k == (uint32_t)p->carry) continue;
        if (is_handed_on(p, flow, k) || flow[k].kind == TOW__FLOW_CARRY)
            return "rows of a result hold the value of carries of several iterations";
        for (uint32_t z = (uint32_t)p->carry; z < y; z++)
            if (is_float(body, body->outputs[z]) && carry_of_row(p, z) == k)
                return "rows of two results hold the value of one carry";
    }
    return NULL;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

tow_status tow__scan_cuts(const tow_graph *g, const tow__equation *e, tow__cuts *cuts)
{
    const tow__scan_params *p = e->params;
    tow__flow *flow = tow__alloc(g->ctx, (size_t)p->carry + 1, sizeof *flow);
    *cuts = (tow__cuts){0};
    if (!flow) return TOW_OUT_OF_MEMORY;
    tow__scan_flow(p, NULL, flow);
    cuts->why_not = why_carries(p, flow);
    if (!cuts->why_not) cuts->why_not = why_rows(p, flow, e->n_out);
    if (!cuts->why_not && operands_coincide(g, e)) cuts->why_not = "one value is two of its operands";
    cuts->groups = !cuts->why_not;
    for (uint32_t k = 0; k < (uint32_t)p->carry; k++) cuts->groups &= flow[k].kind != TOW__FLOW_CARRY;
    for (uint32_t y = (uint32_t)p->carry; y < e->n_out; y++)
        cuts->groups &= !is_float(p->body, p->body->outputs[y]) || carry_of_row(p, y) == (uint32_t)p->carry;
    tow__free(g->ctx, flow, (size_t)p->carry + 1, sizeof *flow);
    return TOW_OK;
}

/* Does the reader contribute to the cotangent of an operand once? Those do whose tangent has one term for each. */
static bool contributes_once(const tow_primitive *p)
{
    return p->transpose && p->kind != TOW__REGION && (!p->jvp || p == &tow__mul_p || p == &tow__dot_general_p);
}

/* Is there one contribution of the body to the cotangent of var? With that of a row there are two then, whose order
 * does not matter. */
static bool has_one_contribution(const tow_graph *g, uint32_t var)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_equations; i++)
        for (uint32_t j = 0; j < g->equations[i].n_in; j++)
            if (g->equations[i].in[j] == var) n += contributes_once(g->equations[i].primitive) ? 1 : 2;
    for (uint32_t i = 0; i < g->n_outputs; i++) n += g->outputs[i] == var;
    return n < 2;
}

uint32_t tow__row_in_carry(const tow__scan_params *p, uint32_t y)
{
    const uint32_t k = is_float(p->body, p->body->outputs[y]) ? carry_of(p, p->body->outputs[y]) : (uint32_t)p->carry;
    if (k == (uint32_t)p->carry || has_one_contribution(p->body, p->body->inputs[(uint32_t)p->consts + k]))
        return (uint32_t)p->carry;
    return k;
}
