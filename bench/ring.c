/* The gradient of a long loop of small iterations in f64: a ring of coupled oscillators (Kuramoto, 1975), integrated by
 * Heun's method,
 *     x' = w + k (sin(x of the left neighbor - x) + sin(x of the right one - x)),
 * with respect to k, w and the first x of the sum of the last cosines.
 *
 *     ring --iterations 40000 --width 256 --slots 398
 *
 * --slots S, --every K and --levels L are schedules; without any the loop keeps what each iteration computes.
 * --file-slots F beside --slots keeps states in a file, too; --online is a while, whose iterations are not known. */
#include "bench.h"

typedef struct task {
    int64_t iterations, slots, every, levels, file_slots;
    bool online;
    tow_value k, w;
} task;

static tow_value slope(const task *t, tow_value x)
{
    tow_value left = tow_sin(tow_sub(tow_roll(x, 1, 0), x)), right = tow_sin(tow_sub(tow_roll(x, -1, 0), x));
    return tow_add(t->w, tow_mul(t->k, tow_add(left, right)));
}

static void step(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const task *t = user;
    const double h = 0.01;
    (void)trace;
    tow_value k1 = slope(t, in[0]), k2 = slope(t, tow_add(in[0], tow_mul_scalar(k1, h)));
    out[0] = tow_add(in[0], tow_mul_scalar(tow_add(k1, k2), h / 2));
}

/* in: number of the iteration, x */
static void goes_on(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const task *t = user;
    out[0] = tow_lt(in[0], tow_scalar(trace, TOW_I32, (double)t->iterations));
}

static void counted_step(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    step(trace, in + 1, out + 1, user);
    out[0] = tow_add_scalar(in[0], 1);
}

/* in: k [], w [width], x [width] */
static void loss(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    task *t = user;
    const tow_scan_schedule schedule = {
        .slots = t->slots, .every = t->every, .levels = t->levels, .file_slots = t->file_slots};
    const tow_scan_options options = TOW_SCAN_OPTIONS(.length = t->iterations, .schedule = schedule);
    const tow_while_options unknown = TOW_WHILE_OPTIONS(.schedule = schedule);
    tow_value last[2] = {tow_scalar(trace, TOW_I32, 0), in[2]};
    t->k = in[0], t->w = in[1];
    if (t->online)
        tow_while_function(trace, goes_on, counted_step, t, &unknown, 2, last, last);
    else
        tow_scan_function(trace, step, t, &options, 1, &in[2], 0, NULL, 0, &last[1], NULL);
    out[0] = tow_reduce_sum(tow_cos(last[1]), 0, NULL);
}

int main(int argc, char **argv)
{
    bench b;
    task t = {.iterations = 40000};
    int64_t width = 256;
    const bench_option options[] = {{"iterations", .number = &t.iterations, .least = 1},
                                    {"width", .number = &width, .least = 2},
                                    {"slots", .number = &t.slots},
                                    {"every", .number = &t.every},
                                    {"levels", .number = &t.levels},
                                    {"file-slots", .number = &t.file_slots},
                                    {"online", .flag = &t.online},
                                    {0}};
    bench_start(&b, "ring", argc, argv, options);
    const tow_type row = tow_make_type(TOW_F64, 1, &width), types[] = {tow_make_type(TOW_F64, 0, NULL), row, row};
    bench_run_gradient(&b, &(bench_gradient){.loss = loss,
                                             .user = &t,
                                             .n_inputs = 3,
                                             .types = types,
                                             .scales = (const double[]){1, 1, 1},
                                             .n_wrt = 3,
                                             .wrt = (const size_t[]){0, 1, 2}});
    return bench_finish(&b, 0);
}
