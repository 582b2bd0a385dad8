/* What is printed is read as the same graph: of a case, of it in regions with policies of every kind and in a loop, and of
 * all that differentiation makes of these. Printed again it has the same text, and it gives the same bits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/property/property.h"

#define FAIL(count, ...) (printf("  round trip: "), printf(__VA_ARGS__), printf("\n"), (count)++)

/* ---- one graph --------------------------------------------------------------------------------------------------- */

static char *text_of(const tow_graph *g)
{
    const size_t size = tow_graph_text(g, NULL, 0) + 1;
    char *text = malloc(size);
    if (text == NULL) abort();
    tow_graph_text(g, text, size);
    return text;
}

static int same_bits(const tow_graph *a, const tow_graph *b, const property_values *inputs, const char *what)
{
    property_values x = {0}, y = {0};
    int failures = 0;
    if (!property_evaluate(a, inputs, &x) || !property_evaluate(b, inputs, &y)) FAIL(failures, "%s does not run", what);
    for (size_t i = 0; i < x.n && failures == 0; i++)
        if (x.counts[i] != y.counts[i] || memcmp(x.arrays[i], y.arrays[i], (size_t)x.counts[i] * sizeof(double)) != 0)
            FAIL(failures, "%s: result %zu has other bits", what, i);
    property_free(&x);
    property_free(&y);
    return failures;
}

/* inputs NULL: the graph is not run. */
static int check_one(const tow_graph *g, const property_values *inputs, const char *what)
{
    int failures = 0;
    tow_graph *read = NULL;
    char *text = text_of(g), *again = NULL;
    if (tow_graph_parse(tow_graph_context(g), text, &read) != TOW_OK)
        FAIL(failures, "%s: %s in\n%s", what, tow_context_error(tow_graph_context(g)), text);
    else if (strcmp(again = text_of(read), text) != 0)
        FAIL(failures, "%s is printed as\n%s\nand then as\n%s", what, text, again);
    else if (inputs != NULL)
        failures += same_bits(g, read, inputs, what);
    tow_graph_release(read);
    free(text);
    free(again);
    return failures;
}

/* ---- what is made of a graph ------------------------------------------------------------------------------------- */

/* Gradient 0 where outputs are not scalars. Everything that has the inputs of g is run. */
static int check_derived(const tow_graph *g, bool scalar, bool forward_mode, size_t n_wrt, const size_t *wrt,
                         const property_values *inputs, const char *what)
{
    tow_graph *made[7] = {NULL};
    int failures = check_one(g, inputs, what);
    tow_status status = forward_mode ? tow_jvp(g, n_wrt, wrt, &made[0]) : TOW_OK;
    if (status == TOW_OK && forward_mode) status = tow_linearize(g, n_wrt, wrt, &made[1], &made[2]);
    if (status == TOW_OK) status = tow_vjp(g, n_wrt, wrt, &made[3], &made[4]);
    if (status == TOW_OK && scalar) status = tow_grad(g, n_wrt, wrt, false, &made[5]);
    if (status == TOW_OK && scalar) status = tow_jvp(made[5], n_wrt, wrt, &made[6]);
    if (status != TOW_OK) FAIL(failures, "%s: %s", what, tow_context_error(tow_graph_context(g)));
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        const bool same_inputs = i == 1 || i == 3 || i == 5;
        if (made[i] != NULL) failures += check_one(made[i], same_inputs ? inputs : NULL, what);
        tow_graph_release(made[i]);
    }
    return failures;
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
    const size_t n = tow_graph_inputs(r->g);
    tow_value x[2 * MAX_IN + MAX_OUT];
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
    const size_t n_in = tow_graph_inputs(r->g), n_out = tow_graph_outputs(r->g);
    if (r->policy != NULL)
        tow_remat_function(t, inside, user, r->policy, n_in, in, n_out, out);
    else
        tow_scan_function(t, iteration, &b, &(tow_scan_options){.length = 2}, 0, NULL, 0, NULL, n_out, NULL, out);
}

static tow_graph *in_region(const tow_graph *g, size_t named, const tow_policy *policy)
{
    tow_type types[2 * MAX_IN + MAX_OUT];
    region r = {g, named, policy};
    tow_graph *result = NULL;
    for (size_t i = 0; i < tow_graph_inputs(g); i++) types[i] = tow_graph_input_type(g, i);
    if (tow_trace_function(tow_graph_context(g), around, &r, tow_graph_inputs(g), types, NULL, tow_graph_outputs(g),
                           &result) != TOW_OK)
        printf("  round trip: %s\n", tow_context_error(tow_graph_context(g)));
    return result;
}

static bool has_float_output(tow_context *context, const property_case *c)
{
    tow_graph *g = property_graph(context, c, TOW_F32);
    bool any = false;
    for (size_t i = 0; g != NULL && i < tow_graph_outputs(g); i++)
        any = any || tow_dtype_is_float(tow_graph_output_type(g, i).dtype);
    tow_graph_release(g);
    return any;
}

int property_check_round_trips(tow_context *context, const property_case *c)
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
    size_t wrt[MAX_IN];
    const size_t n_wrt = c->no_derivative ? 0 : property_differentiable(c, wrt);
    if (n_wrt == 0 || !has_float_output(context, c)) return 0;
    int failures = 0;
    property_values inputs = {0};
    tow_graph *g = property_scalar_graph(context, c, TOW_F32);
    if (g == NULL) return 1;
    property_draw(c, &inputs);
    property_draw_weights(g, &inputs);
    failures += check_derived(g, true, !c->reverse_only, n_wrt, wrt, &inputs, "the case");
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        char what[200] = "a loop";
        if (policies[i] != NULL) tow_policy_text(policies[i], what, sizeof what);
        tow_graph *r = in_region(g, wrt[0], policies[i]);
        failures += r == NULL ? 1 : check_derived(r, policies[i] != NULL, !c->reverse_only, n_wrt, wrt, &inputs, what);
        tow_graph_release(r);
    }
    tow_graph_release(g);
    property_free(&inputs);
    return failures;
}
