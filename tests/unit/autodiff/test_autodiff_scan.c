/* Tests what reverse mode keeps and repeats of loops: counts of primitives and residual lists. The expectations are
 * those of JAX where the rules agree, and worked out by hand from the rules of docs/residuals.md where Tow keeps less.
 * Tests regions/scan*.c. */
#include "tests/unit/support/residual_texts.h"

/* ---- scan -------------------------------------------------------------------------------------------------------- */

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
    tow_residuals_free(&ra);
    tow_residuals_free(&rb);
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
    tow_scan_options options = TOW_SCAN_OPTIONS(.length = 9, .has_length = true);
    tow_scan_function(t, hoist_body, &h, &options, 1, &in[1], 0, NULL, 0, out, NULL);
}

static void test_hoisting(void **state)
{
    (void)state;
    tow_type types[] = {f32(2, 4, 4, 0), f32(1, 4, 0, 0)};
    const char *names[] = {"W", "c"};
    expect_residuals(trace(hoist_loop, NULL, 2, types, names, 1), 0, NULL, "f32[4,4] sin; f32[4,4] cos; f32[9,4] scan");
}

/* The same with W as a carry that the body hands on: it never changes, so it is a constant, and what depends on it is
 * kept once. Expected: what JAX keeps, without the cosine, which is made of W, kept for the last product. */
static void handed_step(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_dot(tow_sin(in[0]), in[1]);
}

static void handed_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    out[0] = in[0];
    if (user)
        tow_remat_function(t, handed_step, NULL, NULL, 2, in, 1, &out[1]);
    else
        handed_step(t, in, &out[1], NULL);
}

/* in: W, c. The final W is read as well. */
static void handed_loop(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_scan_options options = TOW_SCAN_OPTIONS(.length = 9, .has_length = true);
    tow_value last[2];
    tow_scan_function(t, handed_body, user, &options, 2, in, 0, NULL, 0, last, NULL);
    out[0] = tow_dot(last[0], last[1]);
}

static void test_handed_on(void **state)
{
    (void)state;
    tow_type types[] = {f32(2, 4, 4, 0), f32(1, 4, 0, 0)};
    const char *names[] = {"W", "c"};
    expect_residuals(trace(handed_loop, NULL, 2, types, names, 1), 0, NULL,
                     "f32[4,4] W; f32[4,4] sin; f32[4] scan; f32[9,4] scan");
    expect_residuals(trace(handed_loop, &(bool){true}, 2, types, names, 1), 0, NULL,
                     "f32[4,4] W; f32[4] scan; f32[9,4] scan");
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
    tow_scan_options options = TOW_SCAN_OPTIONS(.length = 4, .has_length = true);
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
    tow_scan_options options = TOW_SCAN_OPTIONS(.length = 4, .has_length = true);
    tow_scan_function(t, outer_body, NULL, &options, 1, in, 0, NULL, 0, out, NULL);
}

static void test_sqrt_nesting(void **state)
{
    (void)state;
    tow_type x = SCALAR;
    expect_residuals(trace(outer_loop, NULL, 1, &x, NULL, 1), 0, NULL, "f32[4] scan");
}

/* ---- three products per step ------------------------------------------------------------------------------------- */

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
    tow_scan_options options = TOW_SCAN_OPTIONS(.length = 2, .has_length = true);
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

/* ---- every allocation failing in turn ---------------------------------------------------------------------------- */

typedef struct ration {
    long left;  /* allocations that still succeed; < 0: all */
    long alive; /* bytes */
    bool once;  /* one allocation fails, those behind it succeed again */
} ration;

static void *rationed(void *pointer, size_t old_size, size_t size, void *user)
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

/* The values that the loop keeps have no room for another axis. */
static const char full_rank[] =
    "{ lambda ; x:f32[1,1,1,1,1,1,1,2]. let\n"
    "    y:f32[1,1,1,1,1,1,1,2] = scan[length=3 reverse=false consts=0 carry=1\n"
    "      body={ lambda ; h:f32[1,1,1,1,1,1,1,2]. let a:f32[1,1,1,1,1,1,1,2] = tanh h in (a) }] x\n"
    "  in (y) }\n";

static tow_status differentiate_full_rank(tow_context *c)
{
    tow_graph *g = NULL, *forward = NULL, *backward = NULL;
    tow_status status = tow_graph_parse(c, full_rank, &g);
    if (status == TOW_OK) status = tow_vjp(g, 0, NULL, &forward, &backward);
    tow_graph_release(g);
    tow_graph_release(forward);
    tow_graph_release(backward);
    return status;
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
    if (status == TOW_OK) status = differentiate_full_rank(c);
    tow_residuals_free(&residuals);
    tow_graph_release(g);
    tow_graph_release(whole);
    tow_graph_release(first);
    tow_graph_release(second);
    return status;
}

static void expect_failures(bool once)
{
    ration r = {.left = -1, .once = once};
    tow_context_options options = TOW_CONTEXT_OPTIONS(.allocator = {rationed, &r});
    tow_context *c;
    assert_int_equal(tow_context_create(&options, &c), TOW_OK);
    assert_int_equal(differentiate_everything(c), TOW_OK); /* after which the context has what it keeps of traces */
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
    tow_context_free(c);
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
        cmocka_unit_test(test_rnn),
        cmocka_unit_test(test_everything_around_scan),
        cmocka_unit_test(test_hoisting),
        cmocka_unit_test(test_sqrt_nesting),
        cmocka_unit_test(test_dots_and_scan),
        cmocka_unit_test(test_handed_on),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
