/* Origins of the carries of a scan, and the number of contributions to the cotangent of a value. */
#include <stdlib.h>

#include "src/autodiff/regions/scan_flow.h"
#include "src/graph/region.h"
#include "src/ops/rules.h"

void tow__scan_flow(const tow__scan_params *p, const bool *linear, tow__flow *flow)
{
    const tow_graph *g = p->body;
    uint32_t consts = (uint32_t)p->consts, carries = (uint32_t)p->carry;
    for (uint32_t k = 0; k < carries; k++) {
        uint32_t v = g->outputs[k];
        flow[k] = (tow__flow){.kind = TOW__FLOW_MADE, .index = v};
        if (g->vars[v].equation == TOW__INPUT) {
            uint32_t i = g->vars[v].index;
            bool carry = i >= consts && i < consts + carries;
            flow[k].kind = i < consts ? TOW__FLOW_CONSTANT : carry ? TOW__FLOW_CARRY : TOW__FLOW_ELEMENT;
            flow[k].index = carry ? i - consts : i;
        }
        if (linear && !linear[v]) flow[k].kind = TOW__FLOW_NONE;
    }
}

tow__flow tow__scan_final(const tow__scan_params *p, const tow__flow *flow, uint32_t carry)
{
    int64_t left = p->length;
    uint32_t delay = 0;
    for (; left > 0 && flow[carry].kind == TOW__FLOW_CARRY && delay < p->carry; left--, delay++)
        carry = flow[carry].index;
    if (left > 0 && flow[carry].kind != TOW__FLOW_CARRY)
        return (tow__flow){flow[carry].kind, flow[carry].index, flow[carry].kind == TOW__FLOW_CONSTANT ? 0 : delay};
    if (left > 0) { /* a ring of carries */
        int64_t round = 1;
        for (uint32_t k = flow[carry].index; k != carry; k = flow[k].index) round++;
        for (left %= round; left > 0; left--) carry = flow[carry].index;
    }
    return (tow__flow){.kind = TOW__FLOW_CARRY, .index = carry};
}

typedef struct placed_flow {
    tow__flow flow;
    uint32_t carry;
} placed_flow;

static int compare_flows(tow__flow a, tow__flow b)
{
    if (a.kind != b.kind) return a.kind < b.kind ? -1 : 1;
    if (a.index != b.index) return a.index < b.index ? -1 : 1;
    return (a.delay > b.delay) - (a.delay < b.delay);
}

static int by_flow(const void *a, const void *b)
{
    const placed_flow *x = a, *y = b;
    int order = compare_flows(x->flow, y->flow);
    return order ? order : (x->carry > y->carry) - (x->carry < y->carry);
}

void tow__forward_carries(tow_trace *t, const tow__scan_params *p, int64_t first, const tow_value *operands,
                          tow_value *results)
{
    tow__flow *flow = tow__trace_alloc(t, (size_t)p->carry, sizeof *flow);
    placed_flow *final = tow__trace_alloc(t, (size_t)p->carry, sizeof *final);
    size_t n = 0;
    if (!flow || !final) return;
    tow__scan_flow(p, NULL, flow);
    for (int64_t k = first; k < p->carry; k++)
        final[n++] = (placed_flow){tow__scan_final(p, flow, (uint32_t)k), (uint32_t)k};
    if (n > 0) qsort(final, n, sizeof *final, by_flow);
    for (size_t i = 0; i < n; i++) {
        tow__flow f = final[i].flow;
        uint32_t k = final[i].carry;
        if (f.kind == TOW__FLOW_CARRY) results[k] = operands[p->consts + f.index];
        if (f.kind == TOW__FLOW_CONSTANT) results[k] = operands[f.index];
        if (i > 0 && compare_flows(final[i - 1].flow, f) == 0) results[k] = results[final[i - 1].carry];
    }
}

tow_value tow__scan_row(tow_value x, int64_t i)
{
    tow_type type = tow_value_type(x);
    return tow_reshape(tow_slice_axis(x, 0, i, i + 1), type.rank - 1, type.dims + 1);
}

/* Contributions of operand i of equation e to the cotangent of its value. A region contributes what its body does,
 * and a loop contributes to a constant in every iteration. Of choices, and of loops whose iterations data decide, two
 * are assumed. */
static int operand_contributions(const tow__equation *e, uint32_t i)
{
    tow__region_form form;
    if (!tow__is_region(e) || !tow__region_of(e, &form)) return 1;
    if (form.branches > 1 || form.length == TOW__DATA_DECIDE) return 2;
    if (form.repeats && i >= form.lead + form.consts + form.carry) return 1;
    const uint32_t input = form.body->inputs[i - form.lead];
    int n = tow__contributions(form.body, input);
    for (uint32_t j = 0; j < form.body->n_outputs; j++)
        if (form.body->outputs[j] == input) n = 2;
    return form.repeats && i < form.lead + form.consts && form.length > 1 ? 2 * n : n;
}

int tow__contributions(const tow_graph *g, uint32_t var)
{
    int n = 0;
    for (uint32_t i = 0; i < g->n_equations && n < 2; i++)
        for (uint32_t j = 0; j < g->equations[i].n_in && n < 2; j++)
            if (g->equations[i].in[j] == var) n += operand_contributions(&g->equations[i], j);
    return n < 2 ? n : 2;
}
