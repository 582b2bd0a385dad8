/* Type rules of the primitives that hold nested graphs, and of the name tag. Differentiation knows these four by their
 * address (src/autodiff): they have no rules of their own here. */
#include "src/ops/region.h"
#include "src/graph/region.h"
#include "src/ops/rules.h"

static tow_status name_type(const tow__typing *ty)
{
    const tow__name_params *p = ty->params;
    if (!p->name || !*p->name)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "a checkpoint name must not be empty; give the value a name that "
                              "policies can refer to");
    ty->out[0] = ty->in[0];
    return TOW_OK;
}

/* Operands must be what the body's inputs are; results are what its outputs are. */
static tow_status body_type(const tow__typing *ty, const tow_graph *body)
{
    if (!body) return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "it has no body");
    tow_status status = tow__require_count(ty, body->n_inputs, body->n_outputs);
    if (status != TOW_OK) return status;
    for (size_t i = 0; i < ty->n_in; i++) {
        tow_type want = tow_graph_input_type(body, i);
        if (!tow_type_equal(ty->in[i], want))
            return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "operand %zu must be %s as input %zu of the body, found %s",
                                  i, tow__type_name(want).text, i, tow__type_name(ty->in[i]).text);
    }
    for (size_t i = 0; i < ty->n_out; i++) ty->out[i] = tow_graph_output_type(body, i);
    return TOW_OK;
}

static tow_status call_type(const tow__typing *ty)
{
    return body_type(ty, ((const tow__call_params *)ty->params)->body);
}

static bool lacks_function(const tow_policy *p)
{
    return p && ((p->kind == TOW_POLICY_CUSTOM && !p->decide) || lacks_function(p->a) || lacks_function(p->b));
}

static tow_status remat_type(const tow__typing *ty)
{
    if (lacks_function(((const tow__remat_params *)ty->params)->policy))
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "a custom policy has no function; give tow_policy_custom one");
    return body_type(ty, ((const tow__remat_params *)ty->params)->body);
}

/* Counts of scan agree: operands consts, carry, xs; results carry, ys. */
static tow_status scan_counts(const tow__typing *ty, const tow__scan_params *p)
{
    if (!p->body) return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "it has no body");
    tow_status status = tow__require_count(ty, p->body->n_inputs, p->body->n_outputs);
    if (status != TOW_OK) return status;
    if (p->consts < 0 || p->carry < 0 || (uint64_t)p->consts > ty->n_in ||
        (uint64_t)p->carry > ty->n_in - (uint64_t)p->consts || (uint64_t)p->carry > ty->n_out)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "%lld consts and %lld carries do not fit a body with %zu inputs and "
                              "%zu outputs",
                              (long long)p->consts, (long long)p->carry, ty->n_in, ty->n_out);
    if (p->length < 0)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "length must not be negative, found %lld",
                              (long long)p->length);
    return TOW_OK;
}

/* scan(consts, carry, xs [length, ...]) -> carry, ys [length, ...] */
static tow_status scan_type(const tow__typing *ty)
{
    const tow__scan_params *p = ty->params;
    tow_status status = scan_counts(ty, p);
    if (status != TOW_OK) return status;
    size_t xs = (size_t)(p->consts + p->carry), carry = (size_t)p->carry;
    for (size_t i = 0; i < ty->n_in; i++) {
        tow_type have = ty->in[i], want = tow_graph_input_type(p->body, i);
        if (i >= xs) {
            if (have.rank == 0)
                return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                                      "operand %zu is scanned over and needs a leading axis, found %s", i,
                                      tow__type_name(have).text);
            if (have.dims[0] != p->length)
                return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                                      "operand %zu is scanned over: its leading axis must be the length "
                                      "%lld, found %s",
                                      i, (long long)p->length, tow__type_name(have).text);
            have = tow_make_type(have.dtype, have.rank - 1, have.dims + 1);
        }
        if (!tow_type_equal(have, want))
            return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "%s %zu of the body must be %s, found %s",
                                  i >= xs ? "the element of operand" : "operand", i, tow__type_name(want).text,
                                  tow__type_name(have).text);
    }
    for (size_t i = 0; i < ty->n_out; i++) {
        ty->out[i] = tow_graph_output_type(p->body, i);
        if (i < carry) {
            tow_type want = ty->in[(size_t)p->consts + i];
            if (!tow_type_equal(ty->out[i], want))
                return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                                      "carry %zu starts as %s but the body returns %s; a carry must "
                                      "keep its type: convert or reshape one of the two",
                                      i, tow__type_name(want).text, tow__type_name(ty->out[i]).text);
            continue;
        }
        if (ty->out[i].rank == TOW_MAX_RANK)
            return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                                  "output %zu of the body is %s: stacking it would need rank %d; reshape "
                                  "it to a smaller rank",
                                  i, tow__type_name(ty->out[i]).text, TOW_MAX_RANK + 1);
        for (int d = ty->out[i].rank++; d > 0; d--) ty->out[i].dims[d] = ty->out[i].dims[d - 1];
        ty->out[i].dims[0] = p->length;
        if ((status = tow__require_valid(ty, ty->out[i])) != TOW_OK) return status;
    }
    return TOW_OK;
}

TOW__PRIMITIVE(name, TOW__NAME, tow__no_tiling, tow__element_cost, .inputs = 1, .outputs = 1, .type = name_type,
               .batch = tow__batch_elementwise,
               TOW__PARAMS(tow__name_params, TOW__PARAM(tow__name_params, name, TOW__P_STRING)));

/* One body, which runs once. */
static void body_form(const tow__equation *e, tow__region_form *form) { (void)e, (void)form; }

static const tow__region body_region = {.form = body_form};

static void scan_form(const tow__equation *e, tow__region_form *form)
{
    const tow__scan_params *p = e->params;
    form->repeats = true;
    form->consts = (uint32_t)p->consts;
    form->carry = (uint32_t)p->carry;
    form->reverse = p->reverse;
    form->stops = p->stops;
    form->length = p->length;
}

static void scan_resize(void *params, int64_t consts, int64_t carry)
{
    tow__scan_params *p = params;
    p->consts = consts;
    p->carry = carry;
}

static const tow__region scan_region = {.form = scan_form, .resize = scan_resize};

TOW__PRIMITIVE(call, TOW__REGION, tow__no_tiling, tow__element_cost, .inputs = -1, .outputs = -1, .type = call_type,
               .region = &body_region,
               TOW__PARAMS(tow__call_params, TOW__PARAM(tow__call_params, name, TOW__P_STRING),
                           TOW__PARAM(tow__call_params, body, TOW__P_GRAPH)));

TOW__PRIMITIVE(remat, TOW__REGION, tow__no_tiling, tow__element_cost, .inputs = -1, .outputs = -1, .type = remat_type,
               .region = &body_region,
               TOW__PARAMS(tow__remat_params, TOW__PARAM(tow__remat_params, policy, TOW__P_POLICY),
                           TOW__PARAM(tow__remat_params, differentiated, TOW__P_BOOL),
                           TOW__PARAM(tow__remat_params, body, TOW__P_GRAPH)));

TOW__PRIMITIVE(scan, TOW__REGION, tow__no_tiling, tow__element_cost, .operands = "consts..., carry..., xs...",
               .inputs = -1, .outputs = -1, .type = scan_type, .region = &scan_region,
               TOW__PARAMS(tow__scan_params, TOW__PARAM(tow__scan_params, length, TOW__P_INT),
                           TOW__PARAM(tow__scan_params, reverse, TOW__P_BOOL),
                           TOW__PARAM(tow__scan_params, consts, TOW__P_INT),
                           TOW__PARAM(tow__scan_params, carry, TOW__P_INT),
                           TOW__PARAM(tow__scan_params, stops, TOW__P_PLAN),
                           TOW__PARAM(tow__scan_params, body, TOW__P_GRAPH)));
