/* Two products with a gelu between them, sum((gelu(x W1) W2)^2): value and gradients of x, W1 and W2.
 *
 *     ffn --batch 64 [--width 512] [--hidden 8192] [--checkpoint] [--memory-limit BYTES] */
#include "bench.h"

static void block(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_dot(tow_gelu(tow_dot(in[0], in[1])), in[2]);
    out[0] = tow_reduce_sum(tow_square(out[0]), 0, NULL);
}

static void checkpointed(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    tow_remat_function(trace, block, user, NULL, 3, in, 1, out);
}

int main(int argc, char **argv)
{
    bench b;
    int64_t batch = 64, width = 512, hidden = 8192, memory_limit = 0;
    bool checkpoint = false;
    const bench_option options[] = {{"batch", .number = &batch, .least = 1},
                                    {"width", .number = &width, .least = 1},
                                    {"hidden", .number = &hidden, .least = 1},
                                    {"checkpoint", .flag = &checkpoint},
                                    {"memory-limit", .number = &memory_limit, .most = INT64_MAX},
                                    {0}};
    bench_start(&b, "ffn", argc, argv, options);
    const tow_type types[] = {tow_make_type(TOW_F32, 2, (int64_t[]){batch, width}),
                              tow_make_type(TOW_F32, 2, (int64_t[]){width, hidden}),
                              tow_make_type(TOW_F32, 2, (int64_t[]){hidden, width})};
    bench_run_gradient(&b, &(bench_gradient){.loss = checkpoint ? checkpointed : block,
                                             .n_inputs = 3,
                                             .types = types,
                                             .scales = (const double[]){1.7, 0.087, 0.017},
                                             .n_wrt = 3,
                                             .wrt = (const size_t[]){0, 1, 2},
                                             .memory_limit = (size_t)memory_limit});
    return bench_finish(&b, 12.0 * (double)batch * (double)width * (double)hidden);
}
