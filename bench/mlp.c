/* One call of value and gradient of a tiny MLP, 8 -> 32 -> 32 -> 4 on a batch of 4: what a call costs beside its work.
 *
 *     mlp [--batch 4] */
#include "models.h"

enum {
    CALLS = 200, /* per timing */
    FEATURES = 8
};

int main(int argc, char **argv)
{
    bench b;
    int64_t batch = 4;
    const bench_option options[] = {{"batch", .number = &batch, .least = 1}, {0}};
    bench_start(&b, "mlp", argc, argv, options);
    tow_mlp model = TOW_MLP(.features = {32, 32, 4});
    tow_type x = tow_make_type(TOW_F32, 2, (int64_t[]){batch, FEATURES});
    bench_run_model(&b, TOW_MODULE(&model), x, false, CALLS);
    return bench_finish(&b, 6.0 * (double)batch * (FEATURES * 32 + 32 * 32 + 32 * 4));
}
