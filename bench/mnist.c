/* A training step of the CNN of Flax's MNIST example on random digits: loss, gradients, and SGD with momentum.
 *
 *     mnist [--batch 128] [--no-pooling]
 *
 * conv 32 3x3, relu, mean of 2x2; conv 64 3x3, relu, mean of 2x2; dense 256, relu; dense 10. --no-pooling strides the
 * convolutions instead. Useful flops: those of the products, forward, for kernels and, but for the first layer, for
 * inputs. */
#include "models.h"

enum {
    SIDE = 28,
    CLASSES = 10
};

static tow_value relu(tow_scope *scope, tow_value x)
{
    (void)scope;
    return tow_relu(x);
}

static tow_value flatten(tow_scope *scope, tow_value x)
{
    (void)scope;
    return tow_reshape(x, 2, (int64_t[]){tow_value_type(x).dims[0], -1});
}

static void mean_cross_entropy(tow_trace *trace, const tow_value *outputs, const tow_value *extra, tow_value *loss,
                               tow_value *aux, void *user)
{
    (void)trace, (void)aux, (void)user;
    *loss = tow_mean(tow_softmax_cross_entropy(outputs[0], extra[0]), 1, (int[]){0});
}

/* Multiply-adds of the four layers for one image and one direction. */
static double layer_sum(bool pooling, double of_first)
{
    const double high = SIDE * SIDE, low = high / 4, least = high / 16;
    const double first = (pooling ? high : low) * 9 * 32, second = (pooling ? low : least) * 9 * 32 * 64;
    return of_first * first + 3 * (second + least * 64 * 256 + 256 * CLASSES);
}

int main(int argc, char **argv)
{
    bench b;
    bench_training t = {0};
    int64_t batch = 128;
    bool no_pooling = false;
    const bench_option options[] = {{"batch", .number = &batch, .least = 1}, {"no-pooling", .flag = &no_pooling}, {0}};
    bench_start(&b, "mnist", argc, argv, options);
    const int64_t stride = no_pooling ? 2 : 1;
    tow_conv first = TOW_CONV(.features = 32, .kernel_size = {3, 3}, .strides = {stride, stride});
    tow_conv second = TOW_CONV(.features = 64, .kernel_size = {3, 3}, .strides = {stride, stride});
    tow_pool pool = TOW_POOL(.kind = TOW_POOL_AVG, .window = {2, 2}, .strides = {2, 2});
    tow_dense hidden = TOW_DENSE(.features = 256), last = TOW_DENSE(.features = CLASSES);
    tow_function_layer active = TOW_FUNCTION(relu), flat = TOW_FUNCTION(flatten);
    tow_sequential with = TOW_SEQUENTIAL(TOW_MODULE(&first), TOW_MODULE(&active), TOW_MODULE(&pool),
                                         TOW_MODULE(&second), TOW_MODULE(&active), TOW_MODULE(&pool), TOW_MODULE(&flat),
                                         TOW_MODULE(&hidden), TOW_MODULE(&active), TOW_MODULE(&last));
    tow_sequential without =
        TOW_SEQUENTIAL(TOW_MODULE(&first), TOW_MODULE(&active), TOW_MODULE(&second), TOW_MODULE(&active),
                       TOW_MODULE(&flat), TOW_MODULE(&hidden), TOW_MODULE(&active), TOW_MODULE(&last));
    const tow_type images = tow_make_type(TOW_F32, 4, (int64_t[]){batch, SIDE, SIDE, 1});
    const tow_type labels = tow_make_type(TOW_I32, 1, &batch);
    const tow_train_options train =
        TOW_TRAIN_OPTIONS(.optimizer = {.kind = TOW_SGD, .learning_rate = tow_schedule_constant(0.01), .momentum = 0.9},
                          .n_inputs = 1, .input_types = &images, .n_extra = 1, .extra_types = &labels,
                          .loss = mean_cross_entropy);
    bench_create_training(&b, no_pooling ? TOW_MODULE(&without) : TOW_MODULE(&with), &train, &t);
    bench_set_program_bytes(&b, tow_train_program(t.state));
    bench_make_batch(&b, &t, 0, images, 1);
    bench_make_batch(&b, &t, 1, labels, CLASSES);
    bench_run_training(&b, &t);
    return bench_finish(&b, 2 * (double)batch * layer_sum(!no_pooling, 2));
}
