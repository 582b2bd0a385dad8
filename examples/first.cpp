// The first program of README.md in C++17: options are assigned after a layer is made, for C++ has no compound literals.
#include <array>
#include <cmath>
#include <cstdio>
#include <tow/tow.h>

// Mean squared error of the model's result y[0] against the labels.
static void squared_error(tow_trace *, const tow_value *y, const tow_value *labels, tow_value *loss, tow_value *, void *)
{
    *loss = tow_mean(tow_square(tow_sub(y[0], labels[0])), 0, nullptr);
}

int main()
{
    // Four hidden layers as one loop, in which backward recomputes all but the products.
    tow_dense first = TOW_DENSE(), last = TOW_DENSE();
    first.features = 32;
    last.features = 1;
    tow_mlp hidden = TOW_MLP();
    hidden.features[0] = 32;
    hidden.activation = tow_tanh;
    hidden.activate_last = true;
    tow_remat cheap = TOW_REMAT(&hidden);
    cheap.policy = tow_dots_saveable();
    tow_scan stack = TOW_SCAN(&cheap);
    stack.length = 4;
    const tow_module *layers[] = {TOW_MODULE(&first), TOW_MODULE(&stack), TOW_MODULE(&last)};
    tow_sequential model = TOW_SEQUENTIAL_OF(layers);

    std::array<float, 64> x, y; // y = sin(3x)
    for (std::size_t i = 0; i < x.size(); i++) {
        x[i] = static_cast<float>(i) / 32 - 1;
        y[i] = std::sin(3 * x[i]);
    }
    const int64_t shape[] = {64, 1};
    tow_type type = tow_make_type(TOW_F32, 2, shape);
    tow_train_options options = {};
    options.optimizer.learning_rate = tow_schedule_constant(1e-3);
    options.loss = squared_error;
    options.n_inputs = options.n_extra = 1;
    options.input_types = options.extra_types = &type;
    tow_context *context = nullptr;
    tow_train_state *state = nullptr;
    tow_array *batch[2] = {nullptr, nullptr};
    double loss = 0;
    tow_status status = tow_context_create(nullptr, &context);
    if (!status) status = tow_array_from_data(context, type, x.data(), &batch[0]);
    if (!status) status = tow_array_from_data(context, type, y.data(), &batch[1]);
    if (!status) status = tow_train_create(context, TOW_MODULE(&model), &options, &state);
    for (int step = 0; !status && step <= 500; step++) {
        status = tow_train_step(state, batch, &loss);
        if (step % 100 == 0) std::printf("step %3d  loss %.6f\n", step, loss);
    }
    if (status) std::fprintf(stderr, "%s\n", tow_context_error(context));
    tow_train_free(state);
    tow_array_release(batch[0]);
    tow_array_release(batch[1]);
    tow_context_destroy(context);
    return status;
}
