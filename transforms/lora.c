/* LoRA: a layer around another one, whose kernels get updates of low rank: w + alpha/rank a b.
 *
 *   a [batch..., contracted..., rank]    b [batch..., rank, features...]    of a kernel [batch..., contracted...,
 *                                                                           features...]
 *
 * Layers that multiply with a kernel hand their product in, to which alpha/rank (x a) b is added. Others see the
 * sum. */
#include <math.h>
#include <stdio.h>

#include "src/params/pattern.h"
#include "src/scope/layer.h"
#include "src/scope/store.h"
#include "src/scope/tree.h"
#include "tow/module.h"
#include "tow/numpy.h"
#include "tow/transforms.h"
#include "transforms/view.h"

/* The operands of one call of the layer. */
typedef struct lora_call {
    const tow_lora *m;
    size_t matched; /* parameters that have updates */
} lora_call;

/* One of the patterns stands for the path of the parameter below the layer. */
static bool is_listed(const tow__scope_view *view, const tow_scope *scope, const tow_variable_request *request)
{
    const char *const *filter = ((const lora_call *)view->user)->m->filter;
    if (!tow__is_param(request)) return false;
    const tow_param_kind kind = tow__request_kind(request);
    if (!filter) return kind == TOW_PARAM_KERNEL;
    const char *path = tow__viewed_path(view, scope, request);
    for (; path && *filter; filter++)
        if (tow__param_matches(*filter, path, kind)) return true;
    return false;
}

static double factor_of(const tow_lora *m) { return m->alpha != 0 ? m->alpha / (double)m->rank : 1; }

/* a and b of a parameter, in the type of computation. */
static void factors(const tow__scope_view *view, tow_scope *scope, const tow_variable_request *request, int batch,
                    int contracted, tow_dtype compute, tow_value *a, tow_value *b)
{
    *a = *b = (tow_value){0};
    if (!tow__check_kept_once(view, scope, request, "LoRA")) return;
    lora_call *c = (lora_call *)view->user;
    const tow_type type = request->type;
    tow_type left = type, right = type;
    int in = batch + contracted;
    left.rank = in + 1;
    left.dims[in] = c->m->rank;
    right.rank = type.rank - contracted + 1;
    right.dims[batch] = c->m->rank;
    for (int i = in; i < type.rank; i++) right.dims[batch + 1 + i - in] = type.dims[i];
    c->matched++;
    tow_scope *beside = tow__open_beside(scope, "LoRA", request->name);
    const tow_initializer a_init = tow__init_or(c->m->a_init, tow_initializer_he_uniform()),
                          b_init = tow__init_or(c->m->b_init, tow_initializer_zeros());
    *a = tow__as(tow_param_with(beside, "a", left, TOW_PARAM_LOW_RANK, a_init), compute);
    *b = tow__as(tow_param_with(beside, "b", right, TOW_PARAM_LOW_RANK, b_init), compute);
    tow__close_beside(beside);
}

/* A letter that the product does not use. */
static char free_letter(const tow__product *p)
{
    char letter = 'Z';
    while (letter > 'A' && (strchr(p->x, letter) || strchr(p->param, letter) || strchr(p->y, letter))) letter--;
    return letter;
}

/* y + alpha/rank (x a) b */
static tow_value add_product(const tow__scope_view *view, tow_scope *scope, const tow_variable_request *request,
                             const tow__product *p, tow_value x)
{
    const tow_lora *m = ((const lora_call *)view->user)->m;
    char first[8 * TOW_MAX_RANK], second[8 * TOW_MAX_RANK], middle[2 * TOW_MAX_RANK + 4], r = free_letter(p);
    int in = p->batch + p->contracted, n = 0;
    tow_value y = tow__request_product(scope, request, p, x), a, b;
    if (tow_is_null(y)) return y;
    for (const char *c = p->y; *c; c++)
        if (!strchr(p->param + in, *c)) middle[n++] = *c;
    middle[n++] = r;
    middle[n] = '\0';
    snprintf(first, sizeof first, "%s,%.*s%c->%s", p->x, in, p->param, r, middle);
    snprintf(second, sizeof second, "%s,%.*s%c%s->%s", middle, p->batch, p->param, r, p->param + in, p->y);
    factors(view, scope, request, p->batch, p->contracted, p->compute, &a, &b);
    tow_value low = tow_einsum(first, 2, (tow_value[]){x, a});
    return tow_add(y, tow_einsum(second, 2, (tow_value[]){tow_mul_scalar(low, factor_of(m)), b}));
}

/* w + alpha/rank a b, `in` all axes but the last one */
static tow_value add_update(const tow__scope_view *view, tow_scope *scope, const tow_variable_request *request)
{
    const tow_lora *m = ((const lora_call *)view->user)->m;
    const tow_type type = request->type;
    tow_value value = tow__request(scope, request), a, b;
    if (tow_is_null(value)) return value;
    if (type.rank < 2) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "LoRA: the parameter \"%s\" is %s; expected parameters with inputs and features", request->name,
                       tow__type_name(type).text);
        return (tow_value){0};
    }
    factors(view, scope, request, 0, type.rank - 1, type.dtype, &a, &b);
    return tow_add(value, tow_mul_scalar(tow_dot(a, b), factor_of(m)));
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    lora_call c = {(const tow_lora *)module, 0};
    if (!tow__check_option(scope, "LoRA", c.m->rank > 0 && c.m->rank < TOW__SIZE_LIMIT, "rank", (double)c.m->rank,
                           "a positive number") ||
        !tow__check_option(scope, "LoRA", isfinite(c.m->alpha), "alpha", c.m->alpha, "a finite number"))
        return;
    const tow__scope_view view = {.takes = is_listed, .read = add_update, .product = add_product, .user = &c};
    tow__call_viewed(scope, c.m->inner, &view, n_in, in, n_out, out);
    if (c.matched > 0 || tow__scope_failed(scope)) return;
    tow_scope_fail(scope, TOW_NOT_FOUND,
                   "LoRA: no parameter of the layer matches .filter; expected patterns such as \"**/kernel\"");
}

const tow_module_class tow_lora_class = {TOW__MADE_BY(TOW_LORA, tow_lora), .name = "LoRA", .call = call,
                                         .layout =
                                             TOW__LAYOUT_OF(tow_lora, TOW_MEMBER(tow_lora, inner, TOW_MEMBER_LAYER),
                                                            TOW_MEMBER(tow_lora, filter, TOW_MEMBER_NAMES))};
