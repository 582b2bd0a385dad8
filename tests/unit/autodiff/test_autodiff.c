/* Tests what reverse mode keeps and repeats: counts of primitives in linear and backward programs, and residual lists.
 * The expectations are those of JAX where the rules agree, and worked out by hand from the rules of docs/residuals.md
 * where Tow keeps less.
 * Tests flatten.c, jvp.c, partial.c, transpose.c, transformations/residuals.c, transformations/vjp.c. */
#include "tests/unit/support/residual_texts.h"

/* ---- sin(sin x) -------------------------------------------------------------------------------------------------- */

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

/* ---- names ------------------------------------------------------------------------------------------------------- */

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
    tow_residuals_free(&r);
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
    /* z, w; u = 2 * 2, on which the policy does not insist, is made again from numbers */
    expect_list_count(tow_save_anything_except_these_names("y"), 2);
    expect_list_count(tow_save_anything_except_these_names("y", "z", "w"), 0);
    tow_policy p = tow_save_only_these_names("y"), q = tow_save_only_these_names("z");
    expect_list_count(tow_save_either(&p, &q), 2);
    expect_list_count(tow_save_both(&p, &q), 0);
    expect_list_count(tow_save_not(&p), 2);
    tow_policy everything = tow_everything_saveable();
    expect_list_count(tow_save_except_names(&everything, "y", "w"), 1); /* z */
}

/* A misspelled name would change what is kept without a word: it is an error, at any depth of the policy. */
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

/* ---- the examples of the checkpointing notebook ------------------------------------------------------------------ */

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
    tow_residuals_free(&r);
    tow_graph_release(g);
    expect_residuals(trace_predict(&f2), 0, NULL, FOUR_ARGUMENTS "; f32[5] sin; f32[6] sin");
    expect_residuals(remat(trace_predict(&f), &dots), 0, NULL,
                     FOUR_ARGUMENTS "; f32[5] dot_general; f32[6] dot_general; f32[7] dot_general");
    expect_residuals(remat(trace_predict(&f4), &a), 0, NULL, FOUR_ARGUMENTS "; f32[5] 'a'");
    expect_counts(remat(trace_predict(&f4), &a), true, 0, NULL, "sin 1, cos 3, dot_general 9");
    expect_counts(remat(trace_predict(&f4), &ab), true, 0, NULL, "sin 0, cos 3, dot_general 9");
    expect_counts(remat(trace_predict(&f4), &dots), true, 0, NULL, "sin 2, cos 3, dot_general 6");
}

/* Names with a line break, quotes and a control character: still one line each. */
static void test_names_in_the_report(void **state)
{
    (void)state;
    predict f = {.name = {"two\nlines", "a \"b\"", "\001"}};
    tow_policy all = tow_save_only_these_names("two\nlines", "a \"b\"", "\001");
    tow_graph *g = remat(trace_predict(&f), &all);
    tow_residuals r;
    char text[1024];
    OK(tow_saved_residuals(g, 0, NULL, &r));
    tow_residuals_text(&r, text, sizeof text);
    assert_non_null(strstr(text, "named 'two\\x0alines' "));
    assert_non_null(strstr(text, "named 'a \\\"b\\\"' "));
    size_t lines = 0;
    for (const char *c = text; *c; c++) lines += *c == '\n';
    assert_int_equal(lines, r.count + 1);
    tow_residuals_free(&r);
    tow_graph_release(g);
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
    /* a square keeps its operand (sub), where JAX keeps twice the operand (mul): the same bytes, and often there
     * anyway */
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

/* ---- dots -------------------------------------------------------------------------------------------------------- */

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

/* ---- recursive checkpointing ------------------------------------------------------------------------------------- */

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
        tow_residuals_free(&r);
        tow_graph_release(g);
    }
    assert_int_equal(before, 6); /* 32 functions: x, one sin per level, two cos */
}

/* ---- nested remats ----------------------------------------------------------------------------------------------- */

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

/* ---- constants --------------------------------------------------------------------------------------------------- */

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

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static void test_errors(void **state)
{
    (void)state;
    tow_type vector = f32(1, 3, 0, 0), integer = tow_make_type(TOW_I32, 0, NULL);
    tow_graph *g = trace(sin_sin, NULL, 1, &vector, NULL, 1), *result;
    size_t beyond = 1;
    assert_int_equal(tow_grad(g, 0, NULL, false, &result), TOW_SHAPE_MISMATCH);
    assert_non_null(strstr(tow_context_error(ctx), "f32[3]"));
    assert_int_equal(tow_vjp(g, 1, &beyond, &result, &result), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_vjp(g, 1, NULL, &result, &result), TOW_INVALID_ARGUMENT);
    assert_non_null(strstr(tow_context_error(ctx), "vjp: expected a list of 1 inputs"));
    assert_int_equal(tow_jvp(g, 1, NULL, &result), TOW_INVALID_ARGUMENT);
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
        tow_policy_free(policy);
    }
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
        cmocka_unit_test(test_names_in_the_report),
        cmocka_unit_test(test_dots),
        cmocka_unit_test(test_recursive),
        cmocka_unit_test(test_nested),
        cmocka_unit_test(test_directly_nested),
        cmocka_unit_test(test_constants_are_repeated),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
