/* Requests: each is cancelled by itself, or ended by its deadline; what comes late does nothing. */
#include "tests/unit/support/training.h"

#include <pthread.h>
#include <stdatomic.h>

#include "tests/unit/support/counting_allocator.h"
#include "tow/primitive.h"

/* ---- programs ---------------------------------------------------------------------------------------------------- */

/* A function of the caller's that counts its calls and, in one of them, cancels. */
typedef struct canceller {
    tow_context *ctx;
    int calls, at; /* the call that cancels; 0: none does */
    tow_request request;
} canceller;

static tow_status add_one(const tow_host_call *call)
{
    canceller *c = call->user;
    *(float *)call->outputs[0].data = *(const float *)call->inputs[0].data + 1;
    if (++c->calls == c->at) tow_request_cancel(c->ctx, c->request);
    return TOW_OK;
}

static void call_ten_times(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_host_function function = {.name = "add_one", .run = add_one, .user = user};
    const tow_type type = tow_make_type(TOW_F32, 0, NULL);
    out[0] = in[0];
    for (int i = 0; i < 10; i++) tow_call_host(t, &function, 1, &out[0], 1, &type, &out[0]);
}

static void increase(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_add_scalar(in[0], 1);
}
static void always(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    out[0] = tow_ge(in[0], tow_scalar(t, TOW_F32, 0));
}
static void endless(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_while_function(t, always, increase, user, NULL, 1, in, out);
}

/* A program f32 -> f32. */
typedef struct scalar_program {
    tow_program *program;
    tow_array *in, *out;
} scalar_program;

static scalar_program compile(tow_context *ctx, tow_function function, void *user)
{
    scalar_program p;
    tow_graph *graph;
    const tow_type type = tow_make_type(TOW_F32, 0, NULL);
    assert_int_equal(tow_trace_function(ctx, function, user, 1, &type, NULL, 1, &graph), TOW_OK);
    assert_int_equal(tow_compile(ctx, graph, NULL, &p.program), TOW_OK);
    tow_graph_release(graph);
    assert_int_equal(tow_array_create(ctx, type, &p.in), TOW_OK);
    assert_int_equal(tow_array_create(ctx, type, &p.out), TOW_OK);
    return p;
}

static tow_status run(const scalar_program *p) { return tow_program_run(p->program, &p->in, &p->out); }

static void drop(scalar_program *p)
{
    tow_program_free(p->program);
    tow_array_release(p->in);
    tow_array_release(p->out);
}

/* ---- cancelling -------------------------------------------------------------------------------------------------- */

static void a_request_is_cancelled_alone(void **state)
{
    const fixture *f = *state;
    scalar_program p = compile(f->ctx, increase, NULL);
    const tow_request first = tow_request_begin(f->ctx, INFINITY);
    assert_true(first != 0);
    assert_int_equal(run(&p), TOW_OK);
    tow_request_cancel(f->ctx, first);
    assert_true(tow_context_is_cancelled(f->ctx));
    assert_int_equal(run(&p), TOW_CANCELLED);
    assert_message(f, "tow_request_cancel");
    assert_message(f, "tow_request_end");
    assert_int_equal(run(&p), TOW_CANCELLED); /* until it ends */
    tow_request_end(f->ctx);
    assert_false(tow_context_is_cancelled(f->ctx));
    assert_int_equal(run(&p), TOW_OK);

    const tow_request second = tow_request_begin(f->ctx, INFINITY), third = tow_request_begin(f->ctx, INFINITY);
    assert_true(first < second && second < third);
    tow_request_cancel(f->ctx, first); /* they have ended */
    tow_request_cancel(f->ctx, second);
    tow_request_cancel(f->ctx, 0);
    tow_request_cancel(f->ctx, third + 1); /* it has not begun */
    assert_int_equal(run(&p), TOW_OK);
    tow_request_cancel(f->ctx, third);
    tow_request_cancel(f->ctx, second); /* does not undo it */
    assert_int_equal(run(&p), TOW_CANCELLED);
    assert_true(tow_request_begin(f->ctx, INFINITY) == third + 1);
    assert_int_equal(run(&p), TOW_OK);

    tow_context_cancel(f->ctx); /* cancels requests, too, and those to come */
    assert_int_equal(run(&p), TOW_CANCELLED);
    tow_request_begin(f->ctx, INFINITY);
    assert_int_equal(run(&p), TOW_CANCELLED);
    assert_message(f, "tow_context_cancel_reset");
    tow_context_cancel_reset(f->ctx);
    assert_int_equal(run(&p), TOW_OK);
    tow_request_end(f->ctx);
    tow_request_end(f->ctx);
    tow_request_cancel(f->ctx, 0); /* nothing is at hand */
    assert_int_equal(run(&p), TOW_OK);
    drop(&p);
}

/* In the midst of a program: the calls after that which cancels do not come. */
static void a_program_ends_where_it_is(void **state)
{
    const fixture *f = *state;
    canceller c = {.ctx = f->ctx};
    scalar_program p = compile(f->ctx, call_ten_times, &c);
    c.request = tow_request_begin(f->ctx, INFINITY);
    assert_int_equal(run(&p), TOW_OK);
    assert_int_equal(c.calls, 10);
    assert_true(*(float *)tow_array_data(p.out) == 10);
    c = (canceller){.ctx = f->ctx, .at = 4, .request = c.request};
    assert_int_equal(run(&p), TOW_CANCELLED);
    assert_int_equal(c.calls, 4);
    c.calls = 0; /* late, in the request that follows */
    tow_request_begin(f->ctx, INFINITY);
    assert_int_equal(run(&p), TOW_OK);
    assert_int_equal(c.calls, 10);
    tow_request_end(f->ctx);
    drop(&p);
}

static void without_a_context_nothing_happens(void **state)
{
    (void)state;
    assert_true(tow_request_begin(NULL, 1) == 0);
    tow_request_end(NULL);
    tow_request_cancel(NULL, 1);
}

/* ---- deadlines --------------------------------------------------------------------------------------------------- */

static void deadlines_end_programs(void **state)
{
    const fixture *f = *state;
    scalar_program p = compile(f->ctx, increase, NULL), q = compile(f->ctx, endless, NULL);
    const double passed[] = {0, -1, -INFINITY, NAN}, ahead[] = {3600, 1e18, INFINITY};
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) {
        tow_request_begin(f->ctx, passed[i]);
        assert_true(tow_context_is_cancelled(f->ctx));
        assert_int_equal(run(&p), TOW_CANCELLED);
        assert_message(f, "deadline");
    }
    for (size_t i = 0; i < sizeof ahead / sizeof *ahead; i++) {
        tow_request_begin(f->ctx, ahead[i]);
        assert_false(tow_context_is_cancelled(f->ctx));
        assert_int_equal(run(&p), TOW_OK);
    }
    tow_request_begin(f->ctx, 0.01);
    assert_int_equal(run(&q), TOW_CANCELLED); /* nothing else would end it */
    assert_message(f, "deadline");
    assert_int_equal(run(&p), TOW_CANCELLED);
    tow_request_end(f->ctx); /* and takes the deadline with it */
    assert_int_equal(run(&p), TOW_OK);
    drop(&p);
    drop(&q);
}

/* A step that the deadline ends has changed nothing. */
static void training_is_done_or_unchanged(void **state)
{
    const fixture *f = *state;
    tow_dense model = TOW_DENSE(.features = 2);
    const tow_standard_optimizer adam = {.kind = TOW_ADAMW, .learning_rate = {.peak_value = 0.125}};
    training t = start(f->ctx, TOW_MODULE(&model), 3, 2, TOW_TRAIN_OPTIONS(.optimizer = adam));
    tow_params *before = NULL;
    step(&t, 1);
    assert_int_equal(tow_params_copy(tow_train_params(t.state), &before), TOW_OK);
    tow_request_begin(f->ctx, 0);
    assert_int_equal(tow_train_step(t.state, t.batch, NULL), TOW_CANCELLED);
    assert_int_equal(tow_train_step_count(t.state), 1);
    assert_true(tow_params_equal(before, tow_train_params(t.state)));
    assert_int_equal(tow_optimizer_update(tow_train_optimizer(t.state), tow_params_arrays(before)),
                     TOW_INVALID_ARGUMENT);
    assert_message(f, "call tow_train_step");
    assert_true(tow_params_equal(before, tow_train_params(t.state)));
    tow_request_end(f->ctx);
    step(&t, 1);
    assert_int_equal(tow_train_step_count(t.state), 2);
    assert_false(tow_params_equal(before, tow_train_params(t.state)));
    tow_params_free(before);
    stop(&t);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

/* Cancels requests that have ended as fast as it can. */
typedef struct watchdog {
    tow_context *ctx;
    _Atomic(tow_request) late;
    atomic_bool ends;
    pthread_t thread;
} watchdog;

static void *watch(void *user)
{
    watchdog *w = user;
    while (!atomic_load(&w->ends)) tow_request_cancel(w->ctx, atomic_load(&w->late));
    return NULL;
}

static void late_watchdogs_do_nothing(void **state)
{
    const fixture *f = *state;
    enum {
        REQUESTS = 500
    };
    scalar_program p = compile(f->ctx, increase, NULL);
    watchdog w = {.ctx = f->ctx};
    assert_int_equal(pthread_create(&w.thread, NULL, watch, &w), 0);
    for (int i = 0; i < REQUESTS; i++) {
        const tow_request request = tow_request_begin(f->ctx, 3600);
        const tow_status status = run(&p);
        if (status != TOW_OK) fail_msg("request %d: %s", i, tow_context_error(f->ctx));
        tow_request_end(f->ctx);
        atomic_store(&w.late, request);
    }
    atomic_store(&w.ends, true);
    pthread_join(w.thread, NULL);
    drop(&p);
}

/* Another thread ends a program that nothing else would end. */
static void *cancel_it(void *user)
{
    watchdog *w = user;
    tow_request_cancel(w->ctx, atomic_load(&w->late));
    return NULL;
}

static void another_thread_cancels(void **state)
{
    const fixture *f = *state;
    scalar_program p = compile(f->ctx, endless, NULL);
    watchdog w = {.ctx = f->ctx};
    for (int i = 0; i < 3; i++) {
        atomic_store(&w.late, tow_request_begin(f->ctx, INFINITY));
        assert_int_equal(pthread_create(&w.thread, NULL, cancel_it, &w), 0);
        assert_int_equal(run(&p), TOW_CANCELLED);
        pthread_join(w.thread, NULL);
        tow_request_end(f->ctx);
    }
    drop(&p);
}

static void requests_allocate_nothing(void **state)
{
    (void)state;
    counting memory;
    const tow_context_options options = counting_options(&memory, -1);
    tow_context *ctx = NULL;
    assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
    scalar_program p = compile(ctx, increase, NULL);
    const long calls = memory.calls;
    const tow_request request = tow_request_begin(ctx, 3600);
    assert_int_equal(run(&p), TOW_OK);
    tow_request_cancel(ctx, request);
    assert_int_equal(run(&p), TOW_CANCELLED);
    tow_request_end(ctx);
    assert_int_equal(memory.calls, calls);
    drop(&p);
    tow_context_free(ctx);
    assert_int_equal(memory.blocks, 0);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_request_is_cancelled_alone),
        TEST(a_program_ends_where_it_is),
        TEST(without_a_context_nothing_happens),
        TEST(deadlines_end_programs),
        TEST(training_is_done_or_unchanged),
        TEST(late_watchdogs_do_nothing),
        TEST(another_thread_cancels),
        TEST(requests_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
