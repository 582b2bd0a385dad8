/* The printed text is read as the same graph: of a case, of it in regions with policies of every kind and in a loop,
 * and of all that differentiation makes of these. Printed again it has the same text, and it gives the same bits.
 * Gradients have the same bits under every policy. */
#include "src/check/check.h"

#include "src/base/base.h"
#include "tow/autodiff.h"
#include "tow/ops.h"

/* ---- one graph --------------------------------------------------------------------------------------------------- */

static char *text_of(tow__check *k, const tow_graph *g, size_t *size)
{
    *size = tow_graph_text(g, NULL, 0) + 1;
    char *text = tow__alloc(k->ctx, *size, 1);
    if (text)
        tow_graph_text(g, text, *size);
    else
        tow__check_fail(k, "%s", tow_context_error(k->ctx));
    return text;
}

static void same_bits(tow__check *k, const tow_graph *a, const tow_graph *b, const tow__check_values *inputs,
                      const char *what)
{
    tow__check_values x = tow__check_no_values(k), y = x;
    bool same = tow__check_evaluate(k, a, inputs, &x) && tow__check_evaluate(k, b, inputs, &y);
    for (size_t i = 0; i < x.n && same; i++) {
        same = x.counts[i] == y.counts[i] && tow__check_difference(k, x.arrays[i], y.arrays[i], x.counts[i]) < 0;
        if (!same) tow__check_fail(k, "%s: result %zu has other bits", what, i);
    }
    tow__check_free(&x);
    tow__check_free(&y);
}

/* inputs NULL: the graph is not run. */
static void check_one(tow__check *k, const tow_graph *g, const tow__check_values *inputs, const char *what)
{
    tow_graph *read = NULL;
    size_t size, size_again = 0;
    char *text = text_of(k, g, &size), *again = NULL;
    if (!text) return;
    if (tow_graph_parse(k->ctx, text, &read) != TOW_OK) {
        tow__check_fail(k, "%s: %s in\n%s", what, tow_context_error(k->ctx), text);
    } else if ((again = text_of(k, read, &size_again))) {
        if (strcmp(again, text) != 0)
            tow__check_fail(k, "%s is printed as\n%s\nand then as\n%s", what, text, again);
        else if (inputs)
            same_bits(k, g, read, inputs, what);
    }
    tow_graph_release(read);
    tow__free(k->ctx, text, size, 1);
    tow__free(k->ctx, again, size_again, 1);
}

/* ---- what is made of a graph ------------------------------------------------------------------------------------- */

/* gradient: what it is without a region, or is to become. */
static void compare_gradient(tow__check *k, const tow_graph *grad, const tow__check_values *inputs,
                             tow__check_values *gradient, const char *what)
{
    tow__check_values found = tow__check_no_values(k);
    if (!tow__check_evaluate(k, grad, inputs, &found)) return;
    if (gradient->n == 0) {
        *gradient = found;
        return;
    }
    for (size_t i = 0; i < found.n; i++) {
        const int64_t e = tow__check_difference(k, found.arrays[i], gradient->arrays[i], found.counts[i]);
        if (e < 0) continue;
        tow__check_fail_at(k, i, e, gradient->arrays[i][e], found.arrays[i][e],
                           "under the policy %s, gradient %zu has other bits than without: element %lld: expected "
                           "%.17g, found %.17g",
                           what, i, (long long)e, gradient->arrays[i][e], found.arrays[i][e]);
        break;
    }
    tow__check_free(&found);
}

/* Gradient 0 where outputs are not scalars. Everything that has the inputs of g is run. */
static void check_derived(tow__check *k, const tow_graph *g, bool scalar, const size_t *wrt, size_t n_wrt,
                          const tow__check_values *inputs, tow__check_values *gradient, const char *what)
{
    const bool forward_mode = !k->c->reverse_only;
    tow_graph *made[7] = {NULL};
    check_one(k, g, inputs, what);
    tow_status status = forward_mode ? tow_jvp(g, n_wrt, wrt, &made[0]) : TOW_OK;
    if (status == TOW_OK && forward_mode) status = tow_linearize(g, n_wrt, wrt, &made[1], &made[2]);
    if (status == TOW_OK) status = tow_vjp(g, n_wrt, wrt, &made[3], &made[4]);
    if (status == TOW_OK && scalar) status = tow_grad(g, n_wrt, wrt, false, &made[5]);
    if (status == TOW_OK && scalar && !k->first_order) status = tow_jvp(made[5], n_wrt, wrt, &made[6]);
    if (status != TOW_OK) tow__check_fail(k, "%s: %s", what, tow_context_error(k->ctx));
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        const bool same_inputs = i == 1 || i == 3 || i == 5;
        if (made[i]) check_one(k, made[i], same_inputs ? inputs : NULL, what);
    }
    if (made[5]) compare_gradient(k, made[5], inputs, gradient, what);
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) tow_graph_release(made[i]);
}

/* ---- regions ----------------------------------------------------------------------------------------------------- */

typedef struct region {
    const tow_graph *g;
    size_t named;             /* the input that gets the name "n" inside */
    const tow_policy *policy; /* NULL: a loop instead, with the outputs of all iterations */
} region;

static void inside(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const region *r = user;
    const size_t n = tow_graph_input_count(r->g);
    tow_value x[TOW__CHECK_ARRAYS];
    for (size_t i = 0; i < n; i++) x[i] = i == r->named ? tow_checkpoint_name(in[i], "n") : in[i];
    tow_inline(t, r->g, x, out);
}

typedef struct body {
    const region *r;
    const tow_value *in;
} body;

static void iteration(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const body *b = user;
    (void)in;
    inside(t, b->in, out, (void *)b->r);
}

static void around(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const region *r = user;
    body b = {r, in};
    const size_t n_in = tow_graph_input_count(r->g), n_out = tow_graph_output_count(r->g);
    if (r->policy != NULL)
        tow_remat_function(t, inside, user, r->policy, n_in, in, n_out, out);
    else
        tow_scan_function(t, iteration, &b, &TOW_SCAN_OPTIONS(.length = 2), 0, NULL, 0, NULL, n_out, NULL, out);
}

static tow_graph *in_region(tow__check *k, const tow_graph *g, size_t named, const tow_policy *policy)
{
    tow_type types[TOW__CHECK_ARRAYS];
    region r = {g, named, policy};
    tow_graph *result = NULL;
    for (size_t i = 0; i < tow_graph_input_count(g); i++) types[i] = tow_graph_input_type(g, i);
    if (tow_trace_function(k->ctx, around, &r, tow_graph_input_count(g), types, NULL, tow_graph_output_count(g),
                           &result) != TOW_OK)
        tow__check_fail(k, "%s", tow_context_error(k->ctx));
    return result;
}

static bool has_float_output(tow__check *k, tow_dtype floats)
{
    tow_graph *g = tow__check_graph(k, k->c, floats);
    const bool any = tow__check_has_float_output(g);
    tow_graph_release(g);
    return any;
}

void tow__check_round_trips(tow__check *k)
{
    const tow_policy *const policies[] = {
        &tow_nothing_saveable(),
        &tow_everything_saveable(),
        &tow_dots_saveable(),
        &tow_dots_with_no_batch_dims_saveable(),
        &tow_save_only_these_names("n"),
        &tow_save_any_names_but_these("n"),
        &tow_save_anything_except_these_names("n"),
        &tow_save_either(&tow_dots_saveable(), &tow_save_only_these_names("n")),
        &tow_save_both(&tow_save_not(&tow_save_only_these_names("n")), &tow_everything_saveable()),
        &tow_save_except_names(&tow_everything_saveable(), "n"),
        NULL,
    };
    size_t wrt[TOW__CHECK_IN];
    const size_t n_wrt = k->c->no_derivative ? 0 : tow__check_differentiable(k->c, wrt);
    const tow_dtype floats = tow__check_runs(k->c, TOW_F32) ? TOW_F32 : TOW_F64;
    k->kind = TOW_CHECK_TEXT;
    if (n_wrt == 0 || !has_float_output(k, floats)) return;
    tow__check_values inputs = {0}, gradient = tow__check_no_values(k);
    tow_graph *g = tow__check_scalar_graph(k, k->c, floats);
    if (!g) return;
    if (!tow__check_draw(k, k->c, 0, &inputs) || !tow__check_draw_weights(g, &inputs)) {
        tow__check_fail(k, "%s", tow_context_error(k->ctx));
        goto done;
    }
    check_derived(k, g, true, wrt, n_wrt, &inputs, &gradient, "the case");
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        char what[200] = "a loop";
        if (policies[i]) tow_policy_text(policies[i], what, sizeof what);
        tow_graph *r = in_region(k, g, wrt[0], policies[i]);
        if (r) check_derived(k, r, policies[i] != NULL, wrt, n_wrt, &inputs, &gradient, what);
        tow_graph_release(r);
    }
done:
    tow_graph_release(g);
    tow__check_free(&inputs);
    tow__check_free(&gradient);
}
