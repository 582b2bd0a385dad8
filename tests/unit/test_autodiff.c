/* What reverse mode keeps and repeats: counts of primitives in linear and backward programs, and residual lists. The
 * expectations are those of JAX where the rules agree, and worked out by hand from the rules of docs/residuals.md where
 * Tow keeps less. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tow/autodiff.h"
#include "tow/ops.h"

static tow_context *ctx;

static int setup(void **state)
{
    (void)state;
    return tow_context_create(NULL, &ctx) == TOW_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    tow_context_destroy(ctx);
    return 0;
}

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TOW_OK) fail_msg("%s: %s", #call, tow_context_error(ctx));                                       \
    } while (0)

static tow_type f32(int rank, int64_t a, int64_t b, int64_t c)
{
    int64_t dims[] = {a, b, c};
    return tow_make_type(TOW_F32, rank, dims);
}
#define SCALAR f32(0, 0, 0, 0)

static tow_graph *trace(tow_function function, void *user, size_t n_in, const tow_type *types, const char *const *names,
                        size_t n_out)
{
    tow_graph *g;
    OK(tow_trace_function(ctx, function, user, n_in, types, names, n_out, &g));
    return g;
}

/* f inside remat(policy), with named arguments as f. */
static tow_graph *remat(tow_graph *g, const tow_policy *policy)
{
    tow_graph *r;
    OK(tow_remat_whole(g, policy, &r));
    tow_graph_release(g);
    return r;
}

/* Occurrences of each primitive in the linear (or backward) program: "sin 1, cos 2". Frees g. */
static void expect_counts(tow_graph *g, bool vjp, size_t n_wrt, const size_t *wrt, const char *expected)
{
    tow_graph *forward, *second;
    OK((vjp ? tow_vjp : tow_linearize)(g, n_wrt, wrt, &forward, &second));
    char found[256] = "", name[32];
    for (const char *p = expected; *p;) {
        int length, count, used;
        assert_int_equal(sscanf(p, "%31[a-z_]%n %d%n", name, &length, &count, &used), 2);
        size_t n = strlen(found);
        snprintf(found + n, sizeof found - n, "%s%s %zu", n ? ", " : "", name, tow_graph_count(second, name));
        p += used;
        if (*p) p += 2;
    }
    if (strcmp(found, expected) != 0) {
        fprintf(stderr, "program:\n");
        tow_graph_print(second, stderr);
    }
    assert_string_equal(found, expected);
    tow_graph_release(forward);
    tow_graph_release(second);
    tow_graph_release(g);
}

/* The residual list in short form: "f32[5,4] W1; f32[5] sin; f32[5] 'a'". Frees g. */
static void expect_residuals(tow_graph *g, size_t n_wrt, const size_t *wrt, const char *expected)
{
    tow_residuals r;
    OK(tow_saved_residuals(g, n_wrt, wrt, &r));
    char found[1024] = "";
    for (size_t i = 0; i < r.count; i++) {
        char type[64];
        size_t n = strlen(found);
        const char *quote = r.items[i].kind == TOW_RESIDUAL_NAMED ? "'" : "";
        tow_type_text(r.items[i].type, type, sizeof type);
        snprintf(found + n, sizeof found - n, "%s%s %s%s%s", i ? "; " : "", type, quote,
                 r.items[i].kind == TOW_RESIDUAL_CONSTANT ? "constant" : r.items[i].what, quote);
    }
    assert_string_equal(found, expected);
    tow_residuals_free(ctx, &r);
    tow_graph_release(g);
}

/* ---- sin(sin x) ------------------------------------------------------------------------------------------------------------- */

static void sin_sin(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_sin(tow_sin(in[0]));
}

/* n times a function of one argument */
typedef struct chain {
    int n;
    tow_value (*f)(tow_value);
} chain;

static void run_chain(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const chain *c = user;
    (void)t;
    out[0] = in[0];
    for (int i = 0; i < c->n; i++) out[0] = c->f(out[0]);
}

static tow_verdict only_cos(const tow_policy_query *q, void *user)
{
    ++*(int *)user;
    return strcmp(q->primitive, "cos") == 0 ? TOW_PREFER_SAVE : TOW_PREFER_RECOMPUTE;
}

static void test_sin_sin(void **state)
{
    (void)state;
    tow_type x = SCALAR;
    int asked = 0;
    tow_policy everything = tow_everything_saveable(), custom = tow_policy_custom(only_cos, &asked);
    expect_counts(trace(sin_sin, NULL, 1, &x, NULL, 1), false, 0, NULL, "sin 0, cos 0");
    expect_counts(remat(trace(sin_sin, NULL, 1, &x, NULL, 1), NULL), false, 0, NULL, "sin 1, cos 2");
    expect_counts(remat(trace(sin_sin, NULL, 1, &x, NULL, 1), &everything), false, 0, NULL, "sin 0, cos 0");
    expect_counts(remat(trace(sin_sin, NULL, 1, &x, NULL, 1), &custom), false, 0, NULL, "sin 0, cos 0");
    assert_true(asked >= 4);
    expect_residuals(trace(sin_sin, NULL, 1, &x, NULL, 1), 0, NULL, "f32[] cos; f32[] cos");
    expect_residuals(remat(trace(sin_sin, NULL, 1, &x, NULL, 1), NULL), 0, NULL, "f32[] at index 0");
}

static void test_policy_without_function(void **state)
{
    (void)state;
    tow_type x = SCALAR;
    tow_policy none = tow_policy_custom(NULL, NULL), dots = tow_dots_saveable(), nested = tow_save_either(&dots, &none);
    const tow_policy *policies[] = {&none, &nested};
    for (size_t i = 0; i < 2; i++) {
        tow_graph *g = trace(sin_sin, NULL, 1, &x, NULL, 1), *result = NULL;
        assert_int_equal(tow_remat_whole(g, policies[i], &result), TOW_INVALID_ARGUMENT);
        assert_null(result);
        assert_non_null(strstr(tow_context_error(ctx), "a custom policy has no function"));
        tow_graph_release(g);
    }
}

static void test_own_output(void **state) /* exp and tanh read their own output: one repetition under a remat */
{
    (void)state;
    tow_type x = SCALAR;
    chain one_exp = {1, tow_exp}, one_tanh = {1, tow_tanh};
    expect_counts(remat(trace(run_chain, &one_exp, 1, &x, NULL, 1), NULL), false, 0, NULL, "exp 1");
    expect_counts(remat(trace(run_chain, &one_tanh, 1, &x, NULL, 1), NULL), false, 0, NULL, "tanh 1");
    expect_residuals(trace(run_chain, &one_exp, 1, &x, NULL, 1), 0, NULL, "f32[] exp");
}

static void add_one(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_add_scalar(in[0], 1);
}

static void test_nothing_needed(void **state)
{
    (void)state;
    tow_type x = SCALAR;
    expect_residuals(remat(trace(add_one, NULL, 1, &x, NULL, 1), NULL), 0, NULL, "");
}

/* ---- names --------------------------------------------------------------------------------------------------------------------- */

static void named_sins(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    tow_value y = tow_checkpoint_name(tow_sin(in[0]), "sin");
    out[0] = tow_checkpoint_name(tow_sin(tow_mul(y, y)), "sin");
}

static void test_named_sins(void **state)
{
    (void)state;
    tow_type x = SCALAR;
    tow_policy only = tow_save_only_these_names("sin"), everything = tow_everything_saveable();
    expect_counts(remat(trace(named_sins, NULL, 1, &x, NULL, 1), &everything), false, 0, NULL, "sin 0, cos 0");
    expect_counts(remat(trace(named_sins, NULL, 1, &x, NULL, 1), NULL), false, 0, NULL, "sin 1, cos 2");
    expect_counts(remat(trace(named_sins, NULL, 1, &x, NULL, 1), &only), false, 0, NULL, "sin 0, cos 2");
    expect_residuals(remat(trace(named_sins, NULL, 1, &x, NULL, 1), &only), 0, NULL, "f32[] at index 0; f32[] 'sin'");
}

/* (((x*y)*z)*w)*u with y, z, w named products of constants */
static void lists(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_value two = tow_scalar(t, TOW_F32, 2);
    tow_value y = tow_checkpoint_name(tow_mul(two, two), "y"), z = tow_checkpoint_name(tow_mul(two, two), "z");
    tow_value w = tow_checkpoint_name(tow_mul(two, two), "w"), u = tow_mul(two, two);
    out[0] = tow_mul(tow_mul(tow_mul(tow_mul(in[0], y), z), w), u);
}

static void expect_list_count(tow_policy policy, size_t expected)
{
    tow_type x = SCALAR;
    tow_graph *g = remat(trace(lists, NULL, 1, &x, NULL, 1), &policy);
    tow_residuals r;
    OK(tow_saved_residuals(g, 0, NULL, &r));
    assert_int_equal(r.count, expected);
    tow_residuals_free(ctx, &r);
    tow_graph_release(g);
}

static void test_name_lists(void **state)
{
    (void)state;
    expect_list_count(tow_save_only_these_names("y", "z", "w"), 3);
    expect_list_count(tow_save_only_these_names("z", "w"), 2);
    expect_list_count(tow_save_only_these_names("w"), 1);
    expect_list_count(tow_nothing_saveable(), 0);
    expect_list_count(tow_save_any_names_but_these("y", "z", "w"), 0);
    expect_list_count(tow_save_any_names_but_these("z", "w"), 1);
    expect_list_count(tow_save_any_names_but_these("w"), 2);
    expect_list_count((tow_policy){.kind = TOW_POLICY_ANY_NAMES_BUT}, 3);
    expect_list_count(tow_save_anything_except_these_names("y"), 3); /* z, w, u */
    expect_list_count(tow_save_anything_except_these_names("y", "z", "w"), 1);
    tow_policy p = tow_save_only_these_names("y"), q = tow_save_only_these_names("z");
    expect_list_count(tow_save_either(&p, &q), 2);
    expect_list_count(tow_save_both(&p, &q), 0);
    expect_list_count(tow_save_not(&p), 3);
    tow_policy everything = tow_everything_saveable();
    expect_list_count(tow_save_except_names(&everything, "y", "w"), 2);
}

/* A misspelt name would change what is kept without a word: it is an error, at any depth of the policy. */
static void test_unknown_names(void **state)
{
    (void)state;
    tow_type x = SCALAR;
    tow_policy wrong = tow_save_only_these_names("y", "Z"), inverse = tow_save_not(&wrong);
    tow_policy dots = tow_dots_saveable();
    const tow_policy policies[] = {wrong,
                                   inverse,
                                   tow_save_either(&dots, &inverse),
                                   tow_save_except_names(&dots, "Z"),
                                   tow_save_any_names_but_these("Z"),
                                   tow_save_anything_except_these_names("Z")};
    tow_graph *g = trace(lists, NULL, 1, &x, NULL, 1), *result;
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        assert_int_equal(tow_remat_whole(g, &policies[i], &result), TOW_NOT_FOUND);
        assert_null(result);
        assert_non_null(strstr(tow_context_error(ctx), "\"Z\""));
        assert_non_null(strstr(tow_context_error(ctx), "expected one of: y, z, w"));
    }
    tow_graph_release(g);
}

/* h = name(tanh(W x)); out = W h: the name serves tanh's own rule as well, so nothing is repeated. */
static void tanh_named(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_dot(in[0], tow_checkpoint_name(tow_tanh(tow_dot(in[0], in[1])), "h"));
}

static void test_name_serves_every_reader(void **state)
{
    (void)state;
    tow_type types[] = {f32(2, 4, 4, 0), f32(1, 4, 0, 0)};
    const char *names[] = {"W", "x"};
    tow_policy only = tow_save_only_these_names("h");
    expect_residuals(remat(trace(tanh_named, NULL, 2, types, names, 1), &only), 0, NULL,
                     "f32[4,4] W; f32[4] x; f32[4] 'h'");
    expect_counts(remat(trace(tanh_named, NULL, 2, types, names, 1), &only), true, 0, NULL, "tanh 0, dot_general 4");
}

/* ---- the examples of the checkpointing notebook --------------------------------------------------------------------------------------- */

typedef struct predict {
    bool blocks;         /* each layer in a remat of its own */
    const char *name[3]; /* of layer outputs */
} predict;

static void layer(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_sin(tow_dot(in[0], in[1]));
}

static void predict3(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const predict *p = user;
    tow_value x = in[3];
    for (int i = 0; i < 3; i++) {
        tow_value operands[] = {in[i], x};
        if (p->blocks)
            tow_remat_function(t, layer, NULL, NULL, 2, operands, 1, &x);
        else
            layer(t, operands, &x, NULL);
        if (p->name[i]) x = tow_checkpoint_name(x, p->name[i]);
    }
    out[0] = x;
}

static tow_graph *trace_predict(predict *p)
{
    tow_type types[] = {f32(2, 5, 4, 0), f32(2, 6, 5, 0), f32(2, 7, 6, 0), f32(1, 4, 0, 0)};
    const char *names[] = {"W1", "W2", "W3", "x"};
    return trace(predict3, p, 4, types, names, 1);
}

#define FOUR_ARGUMENTS "f32[5,4] W1; f32[6,5] W2; f32[7,6] W3; f32[4] x"

static void test_notebook(void **state)
{
    (void)state;
    predict f = {0}, f2 = {.blocks = true}, f4 = {.name = {"a", "b", "c"}};
    tow_policy dots = tow_dots_with_no_batch_dims_saveable(), a = tow_save_only_these_names("a");
    tow_policy ab = tow_save_only_these_names("a", "b");
    /* the order inside a layer is that of the derivative rule of sin: cos beside sin */
    tow_graph *g = trace_predict(&f);
    tow_residuals r;
    OK(tow_saved_residuals(g, 0, NULL, &r));
    assert_int_equal(r.count, 9);
    tow_residuals_free(ctx, &r);
    tow_graph_release(g);
    expect_residuals(trace_predict(&f2), 0, NULL, FOUR_ARGUMENTS "; f32[5] sin; f32[6] sin");
    expect_residuals(remat(trace_predict(&f), &dots), 0, NULL,
                     FOUR_ARGUMENTS "; f32[5] dot_general; f32[6] dot_general; f32[7] dot_general");
    expect_residuals(remat(trace_predict(&f4), &a), 0, NULL, FOUR_ARGUMENTS "; f32[5] 'a'");
    expect_counts(remat(trace_predict(&f4), &a), true, 0, NULL, "sin 1, cos 3, dot_general 9");
    expect_counts(remat(trace_predict(&f4), &ab), true, 0, NULL, "sin 0, cos 3, dot_general 9");
    expect_counts(remat(trace_predict(&f4), &dots), true, 0, NULL, "sin 2, cos 3, dot_general 6");
}

static void halve(tow_trace *t, const tow_value *in, tow_value *out, void *user);

/* in: params[0..2], x, y -> sum of squares of predict(params, x) - y; user: names of the layers' outputs, or NULL */
static void notebook_loss(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const char *const *name = user;
    tow_value x = in[3];
    for (int i = 0; i < 2; i++) {
        tow_value operands[] = {in[i], x};
        layer(t, operands, &x, NULL);
        if (name) x = tow_checkpoint_name(x, name[i]);
    }
    out[0] = tow_reduce_sum(tow_square(tow_sub(tow_dot(in[2], x), in[4])), 0, NULL);
}

static void test_notebook_loss(void **state)
{
    (void)state;
    static const char *layers[] = {"layer0_output", "layer1_output"},
                      *names[] = {"params[0]", "params[1]", "params[2]", "x", "y"};
    tow_type types[] = {f32(2, 4, 4, 0), f32(2, 4, 4, 0), f32(2, 4, 4, 0), f32(1, 4, 0, 0), f32(1, 4, 0, 0)};
    tow_policy dots = tow_dots_with_no_batch_dims_saveable(), but = tow_save_any_names_but_these("layer1_output");
    const char *arguments = "f32[4,4] params[0]; f32[4,4] params[1]; f32[4,4] params[2]; f32[4] x; ";
    char expected[512];
    /* a square keeps its operand (sub), where JAX keeps twice the operand (mul): the same bytes, and often there anyway */
#define LOSS(user) trace(notebook_loss, user, 5, types, names, 1)
    snprintf(expected, sizeof expected, "%s%s", arguments,
             "f32[4] sin; f32[4] cos; f32[4] sin; f32[4] cos; f32[4] sub");
    expect_residuals(LOSS(NULL), 0, NULL, expected);
    snprintf(expected, sizeof expected, "%s%s", arguments,
             "f32[4] y; f32[4] dot_general; f32[4] dot_general; f32[4] dot_general");
    expect_residuals(remat(LOSS(NULL), &dots), 0, NULL, expected);
    snprintf(expected, sizeof expected, "%s%s", arguments,
             "f32[4] cos; f32[4] 'layer0_output'; f32[4] cos; f32[4] 'layer1_output'; f32[4] sub");
    expect_residuals(LOSS(layers), 0, NULL, expected);
    /* a fresh trace keeps the named value that is not excluded */
    snprintf(expected, sizeof expected, "%s%s", arguments, "f32[4] y; f32[4] 'layer0_output'");
    expect_residuals(remat(LOSS(layers), &but), 0, NULL, expected);
#undef LOSS
}

static void test_notebook_chains(void **state)
{
    (void)state;
    tow_type x = SCALAR;
    const char *names[] = {"x"};
    for (int n = 8; n <= 16; n *= 2) {
        chain c = {n, tow_sin};
        char expected[512] = "";
        for (int i = 0; i < n; i++) strcat(expected, i ? "; f32[] cos" : "f32[] cos");
        expect_residuals(trace(run_chain, &c, 1, &x, names, 1), 0, NULL, expected);
    }
    chain eight = {8, tow_sin}, sixteen = {16, tow_sin};
    expect_residuals(trace(halve, &eight, 1, &x, names, 1), 0, NULL, "f32[] x; f32[] sin; f32[] cos; f32[] cos");
    expect_residuals(trace(halve, &sixteen, 1, &x, names, 1), 0, NULL,
                     "f32[] x; f32[] sin; f32[] sin; f32[] cos; f32[] cos");
}

/* ---- dots -------------------------------------------------------------------------------------------------------------------------- */

static void dots3(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = in[0];
    for (int i = 0; i < 3; i++) out[0] = tow_sin(tow_matmul(out[0], out[0]));
}

static void test_dots(void **state)
{
    (void)state;
    tow_type flat = f32(2, 2, 2, 0), batched = f32(3, 3, 2, 2);
    tow_policy dots = tow_dots_saveable(), no_batch = tow_dots_with_no_batch_dims_saveable();
    expect_counts(remat(trace(dots3, NULL, 1, &flat, NULL, 1), &dots), false, 0, NULL, "sin 2, dot_general 6");
    expect_counts(remat(trace(dots3, NULL, 1, &flat, NULL, 1), &no_batch), false, 0, NULL, "sin 2, dot_general 6");
    expect_counts(remat(trace(dots3, NULL, 1, &batched, NULL, 1), &no_batch), false, 0, NULL, "sin 2, dot_general 9");
    expect_counts(remat(trace(dots3, NULL, 1, &batched, NULL, 1), &dots), false, 0, NULL, "sin 2, dot_general 6");
}

/* ---- recursive checkpointing ------------------------------------------------------------------------------------------------------------ */

/* n functions, composed by halving: f1(remat(f2)(x)) */
static void halve(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const chain *c = user;
    if (c->n == 1) {
        out[0] = c->f(in[0]);
        return;
    }
    chain first = {c->n / 2, c->f}, second = {c->n - c->n / 2, c->f};
    tow_value middle;
    if (c->n == 2)
        halve(t, in, &middle, &first);
    else
        tow_remat_function(t, halve, &first, NULL, 1, in, 1, &middle);
    halve(t, &middle, out, &second);
}

static void test_recursive(void **state)
{
    (void)state;
    tow_type x = SCALAR;
    const struct {
        int n;
        const char *backward_exp, *backward_sin;
    } cases[] = {{4, "exp 2", "sin 1, cos 2"},
                 {8, "exp 8", "sin 5, cos 6"},
                 {16, "exp 24", "sin 17, cos 14"},
                 {32, "exp 64", "sin 49, cos 30"}};
    size_t before = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        chain e = {cases[i].n, tow_exp}, s = {cases[i].n, tow_sin};
        if (i < 3) expect_counts(trace(halve, &e, 1, &x, NULL, 1), true, 0, NULL, cases[i].backward_exp);
        if (i > 0) expect_counts(trace(halve, &s, 1, &x, NULL, 1), true, 0, NULL, cases[i].backward_sin);
        tow_graph *g = trace(halve, &s, 1, &x, NULL, 1);
        tow_residuals r;
        OK(tow_saved_residuals(g, 0, NULL, &r));
        if (i > 0) assert_int_equal(r.count, before + 1); /* one more for twice the depth */
        before = r.count;
        tow_residuals_free(ctx, &r);
        tow_graph_release(g);
    }
    assert_int_equal(before, 6); /* 32 functions: x, one sin per level, two cos */
}

/* ---- nested remats --------------------------------------------------------------------------------------------------------------------------- */

typedef struct nested {
    const tow_policy *inner;
} nested;

static void inner_sin(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_checkpoint_name(tow_sin(in[0]), "a");
}

static void outer_sin(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const nested *n = user;
    tow_value c = tow_cos(in[0]), y;
    tow_remat_function(t, inner_sin, NULL, n->inner, 1, &c, 1, &y);
    out[0] = tow_sin(y);
}

static void test_nested(void **state)
{
    (void)state;
    tow_type x = SCALAR;
    const char *names[] = {"x"};
    tow_policy a = tow_save_only_these_names("a");
    nested none = {NULL}, only = {&a};
    expect_residuals(remat(trace(outer_sin, &none, 1, &x, names, 1), NULL), 0, NULL, "f32[] x");
    expect_counts(remat(trace(outer_sin, &none, 1, &x, names, 1), NULL), true, 0, NULL, "sin 2, cos 3");
    expect_residuals(remat(trace(outer_sin, &only, 1, &x, names, 1), NULL), 0, NULL, "f32[] x");
    expect_counts(remat(trace(outer_sin, &only, 1, &x, names, 1), NULL), true, 0, NULL, "sin 2, cos 3");
    expect_residuals(remat(trace(outer_sin, &none, 1, &x, names, 1), &a), 0, NULL, "f32[] x; f32[] 'a'");
    expect_counts(remat(trace(outer_sin, &none, 1, &x, names, 1), &a), true, 0, NULL, "sin 1, cos 3");
    expect_counts(remat(trace(outer_sin, &only, 1, &x, names, 1), &a), true, 0, NULL, "sin 1, cos 3");
    expect_counts(trace(outer_sin, &only, 1, &x, names, 1), true, 0, NULL, "sin 0, cos 1");
}

static void test_directly_nested(void **state)
{
    (void)state;
    tow_type x = SCALAR;
    chain two = {2, tow_exp};
    expect_counts(remat(remat(remat(trace(run_chain, &two, 1, &x, NULL, 1), NULL), NULL), NULL), true, 0, NULL,
                  "exp 2");
}

/* ---- constants ---------------------------------------------------------------------------------------------------------------------------------- */

static void zeros_times(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    out[0] = tow_mul(tow_zeros_like(in[0]), user ? tow_sin(in[0]) : in[0]);
}

static void test_constants_are_repeated(void **state)
{
    (void)state;
    tow_type x = f32(1, 3, 0, 0);
    expect_residuals(remat(trace(zeros_times, NULL, 1, &x, NULL, 1), NULL), 0, NULL, "");
    expect_residuals(remat(trace(zeros_times, ctx, 1, &x, NULL, 1), NULL), 0, NULL, "f32[3] at index 0");
}

/* ---- scan ------------------------------------------------------------------------------------------------------------------------------------------- */

typedef struct rnn {
    bool remat_body, remat_scan, name;
    const tow_policy *body_policy, *scan_policy;
} rnn;

/* in: h, x, Wh, Wx */
static void rnn_step(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    tow_value pre = tow_add(tow_dot(in[0], in[2]), tow_dot(in[1], in[3]));
    if (((const rnn *)user)->name) pre = tow_checkpoint_name(pre, "pre");
    out[0] = tow_tanh(pre);
    out[1] = out[0];
}

typedef struct rnn_scope {
    rnn *options;
    tow_value wh, wx;
} rnn_scope;

static void rnn_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    rnn_scope *s = user;
    tow_value operands[] = {in[0], in[1], s->wh, s->wx};
    if (s->options->remat_body)
        tow_remat_function(t, rnn_step, s->options, s->options->body_policy, 4, operands, 2, out);
    else
        rnn_step(t, operands, out, s->options);
}

/* in: Wh, Wx, h0, xs -> final h, hs */
static void rnn_loop(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    rnn_scope s = {user, in[0], in[1]};
    tow_scan_function(t, rnn_body, &s, NULL, 1, &in[2], 1, &in[3], 1, &out[0], &out[1]);
}

static tow_graph *trace_rnn(rnn *options)
{
    tow_type types[] = {f32(2, 4, 4, 0), f32(2, 3, 4, 0), f32(1, 4, 0, 0), f32(2, 7, 3, 0)};
    const char *names[] = {"Wh", "Wx", "h0", "xs"};
    tow_graph *g = trace(rnn_loop, options, 4, types, names, 2);
    return options->remat_scan ? remat(g, options->scan_policy) : g;
}

static void test_rnn(void **state)
{
    (void)state;
    tow_policy dots = tow_dots_saveable(), pre = tow_save_only_these_names("pre");
    rnn plain = {0}, body = {.remat_body = true}, body_dots = {.remat_body = true, .body_policy = &dots};
    rnn body_pre = {.remat_body = true, .body_policy = &pre, .name = true}, outside = {.remat_scan = true};
    rnn outside_dots = {.remat_scan = true, .scan_policy = &dots}, both = {.remat_body = true, .remat_scan = true};
    /* plain: JAX keeps 1 - tanh as well; Tow's rule of tanh keeps one array, which is the ys array itself */
    expect_counts(trace_rnn(&plain), true, 0, NULL, "tanh 0, dot_general 4");
    expect_residuals(trace_rnn(&body), 0, NULL, "f32[4,4] Wh; f32[3,4] Wx; f32[7,3] xs; f32[7,4] scan");
    expect_counts(trace_rnn(&body), true, 0, NULL, "tanh 1, dot_general 6");
    expect_residuals(trace_rnn(&body_dots), 0, NULL,
                     "f32[4,4] Wh; f32[3,4] Wx; f32[7,3] xs; f32[7,4] scan; f32[7,4] scan; f32[7,4] scan");
    expect_counts(trace_rnn(&body_dots), true, 0, NULL, "tanh 1, dot_general 4");
    expect_residuals(trace_rnn(&body_pre), 0, NULL,
                     "f32[4,4] Wh; f32[3,4] Wx; f32[7,3] xs; f32[7,4] scan; f32[7,4] 'pre'");
    expect_counts(trace_rnn(&body_pre), true, 0, NULL, "tanh 1, dot_general 4");
    expect_residuals(trace_rnn(&outside), 0, NULL, "f32[4,4] Wh; f32[3,4] Wx; f32[4] h0; f32[7,3] xs");
    expect_counts(trace_rnn(&outside), true, 0, NULL, "tanh 1, dot_general 6");
    expect_residuals(trace_rnn(&outside_dots), 0, NULL,
                     "f32[4,4] Wh; f32[3,4] Wx; f32[4] h0; f32[7,3] xs; f32[7,4] scan; f32[7,4] scan");
    expect_counts(trace_rnn(&outside_dots), true, 0, NULL, "tanh 1, dot_general 4");
    expect_residuals(trace_rnn(&both), 0, NULL, "f32[4,4] Wh; f32[3,4] Wx; f32[4] h0; f32[7,3] xs");
    expect_counts(trace_rnn(&both), true, 0, NULL, "tanh 2, dot_general 8");
}

/* everything_saveable around a scan keeps what no checkpoint keeps, and runs no second forward loop. */
static void test_everything_around_scan(void **state)
{
    (void)state;
    tow_policy everything = tow_everything_saveable();
    rnn plain = {0}, wrapped = {.remat_scan = true, .scan_policy = &everything};
    tow_graph *a = trace_rnn(&plain), *b = trace_rnn(&wrapped);
    tow_residuals ra, rb;
    OK(tow_saved_residuals(a, 0, NULL, &ra));
    OK(tow_saved_residuals(b, 0, NULL, &rb));
    assert_int_equal(ra.bytes, rb.bytes);
    tow_residuals_free(ctx, &ra);
    tow_residuals_free(ctx, &rb);
    tow_graph_release(a);
    expect_counts(b, true, 0, NULL, "tanh 0, dot_general 4, scan 1");
}

/* A value that depends on constants of the loop alone leaves the loop and is kept once. */
typedef struct hoisting {
    tow_value w;
} hoisting;

static void hoist_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    out[0] = tow_dot(tow_sin(((hoisting *)user)->w), in[0]);
}

static void hoist_loop(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    hoisting h = {in[0]};
    tow_scan_options options = {.length = 9, .has_length = true};
    tow_scan_function(t, hoist_body, &h, &options, 1, &in[1], 0, NULL, 0, out, NULL);
}

static void test_hoisting(void **state)
{
    (void)state;
    tow_type types[] = {f32(2, 4, 4, 0), f32(1, 4, 0, 0)};
    const char *names[] = {"W", "c"};
    expect_residuals(trace(hoist_loop, NULL, 2, types, names, 1), 0, NULL, "f32[4,4] sin; f32[4,4] cos; f32[9,4] scan");
}

/* scan(remat(scan)) of 4 by 4 sins keeps 4 numbers, the plain loop 16. */
typedef struct lengths {
    int64_t n[2];
    int depth;
    bool remat;
} lengths;

static void sin_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_sin(in[0]);
}

static void inner_loop(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_scan_options options = {.length = 4, .has_length = true};
    tow_scan_function(t, sin_body, NULL, &options, 1, in, 0, NULL, 0, out, NULL);
}

static void outer_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_remat_function(t, inner_loop, NULL, NULL, 1, in, 1, out);
}

static void outer_loop(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_scan_options options = {.length = 4, .has_length = true};
    tow_scan_function(t, outer_body, NULL, &options, 1, in, 0, NULL, 0, out, NULL);
}

static void test_sqrt_nesting(void **state)
{
    (void)state;
    tow_type x = SCALAR;
    expect_residuals(trace(outer_loop, NULL, 1, &x, NULL, 1), 0, NULL, "f32[4] scan");
}

/* ---- three products per step ------------------------------------------------------------------------------------------------------------ */

typedef struct three {
    const tow_policy *body, *whole;
    tow_value w;
} three;

static void three_step(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = in[0];
    for (int i = 0; i < 3; i++) out[0] = tow_sin(tow_dot(out[0], in[1]));
}

static void three_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    three *o = user;
    tow_value operands[] = {in[0], o->w};
    if (o->body)
        tow_remat_function(t, three_step, NULL, o->body, 2, operands, 1, out);
    else
        three_step(t, operands, out, NULL);
}

static void three_loop(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    three *o = user;
    tow_scan_options options = {.length = 2, .has_length = true};
    o->w = in[0];
    tow_scan_function(t, three_body, o, &options, 1, &in[1], 0, NULL, 0, out, NULL);
}

static void test_dots_and_scan(void **state)
{
    (void)state;
    tow_type types[] = {f32(2, 5, 5, 0), f32(1, 5, 0, 0)};
    size_t w = 0;
    tow_policy dots = tow_dots_saveable();
    three inside = {.body = &dots}, outside = {0};
    expect_counts(trace(three_loop, &inside, 2, types, NULL, 1), true, 1, &w, "sin 2, cos 3, dot_general 6");
    expect_counts(remat(trace(three_loop, &outside, 2, types, NULL, 1), &dots), true, 1, &w,
                  "sin 3, cos 3, dot_general 6");
}

/* ---- errors ------------------------------------------------------------------------------------------------------------------------------------------ */

static void test_errors(void **state)
{
    (void)state;
    tow_type vector = f32(1, 3, 0, 0), integer = tow_make_type(TOW_I32, 0, NULL);
    tow_graph *g = trace(sin_sin, NULL, 1, &vector, NULL, 1), *result;
    size_t beyond = 1;
    assert_int_equal(tow_grad(g, 0, NULL, false, &result), TOW_SHAPE_MISMATCH);
    assert_non_null(strstr(tow_context_error(ctx), "f32[3]"));
    assert_int_equal(tow_vjp(g, 1, &beyond, &result, &result), TOW_INVALID_ARGUMENT);
    tow_graph_release(g);
    g = trace(run_chain, &(chain){0}, 1, &integer, NULL, 1);
    size_t zero = 0;
    assert_int_equal(tow_jvp(g, 1, &zero, &result), TOW_TYPE_MISMATCH);
    tow_graph_release(g);
    tow_policy *policy;
    const char *bad[] = {"",      "dot",        "names",        "names:a,", "either(dots)", "either(dots;nothing",
                         "not()", "dots extra", "except(dots;a"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(tow_policy_parse(ctx, bad[i], &policy), TOW_BAD_FORMAT);
        assert_non_null(strstr(tow_context_error(ctx), "column"));
    }
    const char *good[] = {"nothing",
                          "everything",
                          "dots",
                          "dots_with_no_batch_dims",
                          "names:a,b",
                          "any_names_but:a",
                          "anything_except:x_1",
                          "either(dots;names:a)",
                          "both(dots;not(names:a))",
                          "except(everything;a,b)"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char text[64];
        OK(tow_policy_parse(ctx, good[i], &policy));
        tow_policy_text(policy, text, sizeof text);
        assert_string_equal(text, good[i]);
        tow_policy_free(ctx, policy);
    }
}

/* ---- every allocation failing in turn -------------------------------------------------------------------------------------------------------------- */

typedef struct ration {
    long left;  /* allocations that still succeed; < 0: all */
    long alive; /* bytes */
    bool once;  /* one allocation fails, those behind it succeed again */
} ration;

static void *rationed(void *user, void *pointer, size_t old_size, size_t size)
{
    ration *r = user;
    if (size > 0 && r->left == 0) {
        if (r->once) r->left = -1;
        return NULL;
    }
    if (size > 0 && r->left > 0) r->left--;
    r->alive += (long)size - (long)old_size;
    if (size == 0) {
        free(pointer);
        return NULL;
    }
    if (!pointer && size % 64 == 0) return aligned_alloc(64, size);
    return realloc(pointer, size);
}

static tow_status differentiate_everything(tow_context *c)
{
    tow_type types[] = {f32(2, 4, 4, 0), f32(2, 3, 4, 0), f32(1, 4, 0, 0), f32(2, 7, 3, 0)};
    tow_policy pre = tow_save_only_these_names("pre");
    rnn options = {.remat_body = true, .name = true};
    tow_graph *g = NULL, *whole = NULL, *first = NULL, *second = NULL;
    tow_residuals residuals = {0};
    tow_status status = tow_trace_function(c, rnn_loop, &options, 4, types, NULL, 2, &g);
    if (status == TOW_OK) status = tow_remat_whole(g, &pre, &whole);
    if (status == TOW_OK) status = tow_saved_residuals(whole, 0, NULL, &residuals);
    if (status == TOW_OK) status = tow_vjp(whole, 0, NULL, &first, &second);
    tow_residuals_free(c, &residuals);
    tow_graph_release(g);
    tow_graph_release(whole);
    tow_graph_release(first);
    tow_graph_release(second);
    return status;
}

static void expect_failures(bool once)
{
    ration r = {.left = -1, .once = once};
    tow_context_options options = {.allocator = {rationed, &r}};
    tow_context *c;
    assert_int_equal(tow_context_create(&options, &c), TOW_OK);
    long base = r.alive;
    tow_status status = TOW_OUT_OF_MEMORY;
    for (long n = 0; status != TOW_OK; n += 1 + n / 40) { /* every one at first, then a growing sample */
        r.left = n;
        status = differentiate_everything(c);
        assert_int_equal(r.alive, base);
        assert_true(status == TOW_OK || status == TOW_OUT_OF_MEMORY);
        if (status == TOW_OUT_OF_MEMORY) assert_int_equal(tow_context_status(c), TOW_OUT_OF_MEMORY);
        assert_true(n < 1000000);
    }
    r.left = -1;
    tow_context_destroy(c);
    assert_int_equal(r.alive, 0);
}

static void test_allocation_failures(void **state)
{
    (void)state;
    expect_failures(false);
    expect_failures(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sin_sin),
        cmocka_unit_test(test_policy_without_function),
        cmocka_unit_test(test_own_output),
        cmocka_unit_test(test_nothing_needed),
        cmocka_unit_test(test_named_sins),
        cmocka_unit_test(test_name_lists),
        cmocka_unit_test(test_unknown_names),
        cmocka_unit_test(test_name_serves_every_reader),
        cmocka_unit_test(test_notebook),
        cmocka_unit_test(test_notebook_loss),
        cmocka_unit_test(test_notebook_chains),
        cmocka_unit_test(test_dots),
        cmocka_unit_test(test_recursive),
        cmocka_unit_test(test_nested),
        cmocka_unit_test(test_directly_nested),
        cmocka_unit_test(test_constants_are_repeated),
        cmocka_unit_test(test_rnn),
        cmocka_unit_test(test_everything_around_scan),
        cmocka_unit_test(test_hoisting),
        cmocka_unit_test(test_sqrt_nesting),
        cmocka_unit_test(test_dots_and_scan),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
