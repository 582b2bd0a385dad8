// The first program of README.md in C++17 with tow/tow.hpp: objects free themselves, errors are exceptions. From C++20
// on options can be written as in C: tow::dense({.features = 32}).
#include <cmath>
#include <cstdio>
#include <tow/tow.hpp>

// Mean squared error of the model's result y[0] against the labels.
static void squared_error(tow_trace *, const tow_value *y, const tow_value *labels, tow_value *loss, tow_value *,
                          void *)
{
    *loss = tow_mean(tow_square(tow_sub(y[0], labels[0])), 0, nullptr);
}

int main()
try {
    // Four hidden layers as one loop, in which backward recomputes all but the products.
    tow::mlp_options width;
    width.features[0] = 32;
    width.activation = tow_tanh;
    width.activate_last = true;
    tow_mlp hidden = tow::mlp(width);
    tow_remat cheap = tow::remat(hidden);
    cheap.policy = tow_dots_saveable();
    tow_scan stack = tow::scan(cheap);
    stack.length = 4;
    tow::sequential model; // a vector of layers
    model.add(tow::dense()).features = 32;
    model.add(stack);
    model.add(tow::dense()).features = 1;

    std::vector<float> x(64), y(64); // y = sin(3x)
    for (std::size_t i = 0; i < x.size(); i++) {
        x[i] = static_cast<float>(i) / 32 - 1;
        y[i] = std::sin(3 * x[i]);
    }
    tow_type type = tow::type<float>({64, 1});
    tow_train_options options = {};
    options.optimizer.learning_rate = tow_schedule_constant(1e-3);
    options.loss = squared_error;
    options.n_inputs = options.n_extra = 1;
    options.input_types = options.extra_types = &type;

    const tow::context context;
    const std::vector<tow::array> batch = {tow::array(context, {64, 1}, x), tow::array(context, {64, 1}, y)};
    tow::train_state state(context, model, options);
    for (int step = 0; step <= 500; step++) {
        const double loss = state.step(batch);
        if (step % 100 == 0) std::printf("step %3d  loss %.6f\n", step, loss);
    }
} catch (const tow::error &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return e.status();
}
