/* custom_self: in a rule, the call whose rule it is. Graphs are finite, so a rule that calls its own function names the
 * call by how many rules further out it stands:
 *
 *   custom_jvp f [ rule: ... custom_self[level=0] is f ...
 *                        custom_jvp g [ rule: ... custom_self[level=0] is g, custom_self[level=1] is f ... ] ]
 *
 * Its value is that of its body. When differentiation records a rule, the call is put in its place, so the second
 * derivative meets the call again. A custom_self of other types than its call is its body and no more: batching leaves
 * such ones, which all rows share, so no tangent reaches them. So does one that stands outside of all rules. */
#include "src/autodiff/regions/custom.h"
#include "src/graph/builder.h"
#include "src/graph/region.h"
#include "src/ops/rules.h"

static tow_status custom_self_type(const tow__typing *ty)
{
    const tow__custom_self_params *p = ty->params;
    const tow_graph *g = p->body;
    tow_status status = tow__require_count(ty, g->n_inputs, g->n_outputs);
    if (status == TOW_OK && p->level < 0)
        status = tow__type_fail(ty, TOW_INVALID_ARGUMENT, "level is %lld, expected 0 or more", (long long)p->level);
    for (size_t i = 0; i < ty->n_in && status == TOW_OK; i++) {
        tow_type type = tow_graph_input_type(g, i);
        if (!tow_type_equal(type, ty->in[i]))
            status = tow__type_fail(ty, TOW_SHAPE_MISMATCH, "operand %zu must be %s as in the body, found %s", i,
                                    tow__type_name(type).text, tow__type_name(ty->in[i]).text);
    }
    for (size_t i = 0; i < ty->n_out && status == TOW_OK; i++) ty->out[i] = tow_graph_output_type(g, i);
    return status;
}

/* Is nested graph `index` of e a rule? */
static bool is_rule(const tow__equation *e, uint32_t index)
{
    tow__region_form form;
    return tow__region_of(e, &form) && index >= form.conditions + form.branches;
}

static bool is_self(const tow__equation *e, int64_t level)
{
    return e->primitive == &tow__custom_self_p && ((const tow__custom_self_params *)e->params)->level == level;
}

/* Does g, `level` rules inside of a call's rule, call that? */
static bool calls(const tow_graph *g, int64_t level)
{
    for (uint32_t i = 0; i < g->n_equations; i++) {
        const tow__equation *e = &g->equations[i];
        if (is_self(e, level)) return true;
        for (uint32_t k = 0, n = tow__nested_count(e->primitive, e->params); k < n; k++)
            if (calls(tow__nested(e->primitive, e->params, k), level + is_rule(e, k))) return true;
    }
    return false;
}

bool tow__calls_itself(const tow_graph *g) { return calls(g, 0); }

/* Has the equation the operands and results of the call? */
static bool fits(const tow_graph *g, const tow__equation *e, const tow_graph *body)
{
    bool same = e->n_in == body->n_inputs && e->n_out == body->n_outputs;
    for (uint32_t i = 0; i < e->n_in && same; i++)
        same = tow_type_equal(g->vars[e->in[i]].type, tow_graph_input_type(body, i));
    for (uint32_t i = 0; i < e->n_out && same; i++)
        same = tow_type_equal(g->vars[e->out[i]].type, tow_graph_output_type(body, i));
    return same;
}

/* A call, and how many rules further in the graph at hand stands than the call's own. */
typedef struct tying {
    const tow__equation *call;
    int64_t level;
} tying;

static tow_status tie(const tying *what, const tow_graph *g, tow_graph **result);

/* Nested graphs of e with the call in them, for own, whose places for graphs are empty. */
static tow_status tie_nested(const tying *what, const tow__equation *e, void *own)
{
    tow_status status = TOW_OK;
    for (uint32_t k = 0, n = tow__nested_count(e->primitive, e->params); k < n && status == TOW_OK; k++) {
        const tying inside = {what->call, what->level + is_rule(e, k)};
        tow_graph *tied = NULL;
        status = tie(&inside, tow__nested(e->primitive, e->params, k), &tied);
        tow__set_nested(e->primitive, own, k, tied);
    }
    return status;
}

static void record(tow_trace *t, const tow_graph *g, const tow__equation *e, tow_value *x, tow_value *y,
                   const void *user)
{
    const tying *what = user;
    const uint32_t n = tow__nested_count(e->primitive, e->params);
    tow__equation changed = *e;
    void *own;
    if (is_self(e, what->level) && fits(g, e, tow__nested(what->call->primitive, what->call->params, 0))) {
        changed.primitive = what->call->primitive;
        changed.params = what->call->params;
        tow__rebind(t, &changed, x, y);
        return;
    }
    if (n == 0) {
        tow__rebind(t, e, x, y);
        return;
    }
    if (!tow__params_own(t, e->primitive, e->params, &own)) return;
    for (uint32_t k = 0; k < n; k++) tow__set_nested(e->primitive, own, k, NULL);
    changed.params = own;
    if (tie_nested(what, e, own) == TOW_OK)
        tow__rebind(t, &changed, x, y);
    else
        tow__adopt_error(t);
    for (uint32_t k = 0; k < n; k++) tow_graph_release(tow__nested(e->primitive, own, k));
}

static tow_status tie(const tying *what, const tow_graph *g, tow_graph **result)
{
    *result = NULL;
    if (!calls(g, what->level)) {
        *result = tow__graph_share(g);
        return TOW_OK;
    }
    return tow__copy_by(g, record, what, result);
}

tow_status tow__tie(const tow__equation *e, const tow_graph *rule, tow_graph **result)
{
    return tie(&(tying){e, 0}, rule, result);
}

static void custom_self_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    tow__inline(t, ((const tow__custom_self_params *)e->params)->body, x, y);
}

TOW__PRIMITIVE(custom_self, TOW__COMPOSITE, tow__no_tiling, tow__element_cost, .inputs = -1, .outputs = -1,
               .type = custom_self_type, .region = &tow__value_region, .batch = tow__batch_custom_self,
               .decompose = custom_self_decompose,
               TOW__PARAMS(tow__custom_self_params, TOW__PARAM(tow__custom_self_params, name, TOW__P_STRING),
                           TOW__PARAM(tow__custom_self_params, level, TOW__P_COUNT),
                           TOW__PARAM(tow__custom_self_params, body, TOW__P_GRAPH)));
