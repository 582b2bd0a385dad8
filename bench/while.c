/* A while loop of small iterations: x = (x + tanh(x w)) / 2 until x has settled or the iterations are done, forward.
 *
 *     while --iterations 1000 --batch 8 --width 32
 *
 * The condition reads what the body made, so that no iteration is known to run before the last one has ended. */
#include "bench.h"

typedef struct task {
    int64_t iterations;
    tow_value w;
} task;

/* carry: i [], x [batch, width] */
static void goes_on(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const task *t = user;
    tow_value limit = tow_full(trace, tow_make_type(TOW_I32, 0, NULL), (double)t->iterations);
    tow_value moving =
        tow_gt(tow_reduce_max(tow_abs(in[1]), 0, NULL), tow_full(trace, tow_make_type(TOW_F32, 0, NULL), 1e-30));
    out[0] = tow_and(tow_lt(in[0], limit), moving);
}

static void body(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const task *t = user;
    (void)trace;
    out[0] = tow_add_scalar(in[0], 1);
    out[1] = tow_mul_scalar(tow_add(in[1], tow_tanh(tow_dot(in[1], t->w))), 0.5);
}

static void loop(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    task *t = user;
    tow_value carry[2] = {tow_full(trace, tow_make_type(TOW_I32, 0, NULL), 0), in[0]}, last[2];
    t->w = in[1];
    tow_while_function(trace, goes_on, body, t, NULL, 2, carry, last);
    out[0] = tow_reduce_sum(tow_square(last[1]), 0, NULL);
}

int main(int argc, char **argv)
{
    bench b;
    task t = {.iterations = 1000};
    int64_t batch = 8, width = 32;
    const bench_option options[] = {{"iterations", .number = &t.iterations, .least = 1},
                                    {"batch", .number = &batch, .least = 1},
                                    {"width", .number = &width, .least = 1},
                                    {0}};
    bench_start(&b, "while", argc, argv, options);
    const tow_type types[] = {tow_make_type(TOW_F32, 2, (int64_t[]){batch, width}),
                              tow_make_type(TOW_F32, 2, (int64_t[]){width, width})};
    bench_run_gradient(
        &b,
        &(bench_gradient){.loss = loop, .user = &t, .n_inputs = 2, .types = types, .scales = (const double[]){1, 0.5}});
    return bench_finish(&b, 2.0 * (double)t.iterations * (double)(batch * width * width));
}
