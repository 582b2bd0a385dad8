/* Sorting rows of numbers: the values, or with --gradient the sum of the squares of the sorted values times their
 * place, with its gradient, which undoes the order.
 *
 *     sort --rows 1 --length 1048576 [--gradient] */
#include "bench.h"

static void sorted(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_sort(in[0], 1, false);
}

static void loss(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const tow_type *type = user;
    tow_value weights = tow_arange(trace, TOW_F32, 0, 1.0 / (double)type->dims[1], type->dims[1]);
    out[0] = tow_reduce_sum(tow_mul(tow_square(tow_sort(in[0], 1, false)), weights), 0, NULL);
}

int main(int argc, char **argv)
{
    bench b;
    int64_t rows = 1, length = 1 << 20;
    bool gradient = false;
    const bench_option options[] = {{"rows", .number = &rows, .least = 1},
                                    {"length", .number = &length, .least = 1},
                                    {"gradient", .flag = &gradient},
                                    {0}};
    bench_start(&b, "sort", argc, argv, options);
    tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){rows, length});
    bench_run_gradient(&b, &(bench_gradient){.loss = gradient ? loss : sorted,
                                             .user = &type,
                                             .n_inputs = 1,
                                             .types = &type,
                                             .scales = (const double[]){1},
                                             .n_wrt = gradient,
                                             .wrt = (const size_t[]){0}});
    return bench_finish(&b, 0);
}
