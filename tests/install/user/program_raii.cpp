// A small program of a user of tow/tow.hpp, C++17 to C++23: layers with options, a vector of layers, objects and
// errors.
#include <cmath>
#include <cstdio>
#include <tow/tow.hpp>

static int failed;
static void expect(bool good, const char *what)
{
    if (good) return;
    std::fprintf(stderr, "%s\n", what);
    failed = 1;
}

static void squared_error(tow_trace *, const tow_value *y, const tow_value *labels, tow_value *loss, tow_value *,
                          void *)
{
    *loss = tow_mean(tow_square(tow_sub(y[0], labels[0])), 0, nullptr);
}

// Options arrive where the struct of C has them.
static void layers()
{
    tow::scan_options four;
    four.length = 4;
    tow::remat_options dots;
    dots.policy = tow_dots_saveable();
    tow::conv_options o;
    o.features = 3;
    o.kernel_size[1] = 5;
    o.padding = TOW_CONV_VALID;
    o.param_dtype = TOW_F64;
    const tow_conv conv = tow::conv(o);
    expect(conv.module.cls == &tow_conv_class && conv.features == 3 && conv.kernel_size[0] == 0 &&
               conv.kernel_size[1] == 5 && conv.padding == TOW_CONV_VALID && conv.groups == 0 &&
               conv.param_dtype == TOW_F64,
           "tow::conv loses options");
    const tow_remat remat = tow::remat(conv, dots);
    const tow_scan scan = tow::scan(remat, four);
    expect(scan.inner == &remat.module && scan.length == 4 && remat.inner == &conv.module &&
               remat.module.cls == &tow_remat_class,
           "tow::scan and tow::remat lose options");
    tow::precision_options p;
    p.output_dtype = TOW_F64;
    expect(tow::precision(scan, p).output_dtype == TOW_F64, "tow::precision loses options");
#if __cplusplus >= 202002L
    const tow_mlp mlp =
        tow::mlp({.features = {32, 8}, .activation = tow_tanh, .activate_last = true, .param_dtype = TOW_F64});
    expect(mlp.module.cls == &tow_mlp_class && mlp.features[1] == 8 && mlp.features[2] == 0 &&
               mlp.activation == tow_tanh && mlp.activate_last && !mlp.no_bias && mlp.param_dtype == TOW_F64,
           "tow::mlp loses options");
    expect(tow::scan(mlp, {.length = 3}).length == 3, "tow::scan loses its length");
#endif
}

static tow::sequential *make_model() // a model that leaves the function which makes it
{
    auto *model = new tow::sequential;
    for (int i = 0; i < 3; i++) {
        model->add(tow::dense()).features = 8;
        model->add(tow::activation(tow_tanh));
    }
    model->add(tow::dense()).features = 1;
    return model;
}

static void training(const tow::context &context)
{
    const std::unique_ptr<tow::sequential> model(make_model());
    expect(model->size() == 7, "seven layers");
    std::vector<float> x(32), y(32);
    for (std::size_t i = 0; i < x.size(); i++) {
        x[i] = static_cast<float>(i) / 16 - 1;
        y[i] = std::sin(3 * x[i]);
    }
    const std::vector<tow::array> batch = {tow::array(context, {32, 1}, x), tow::array(context, {32, 1}, y)};
    tow_type types[] = {batch[0].type(), batch[1].type()};
    tow_train_options options = {};
    options.optimizer.learning_rate = tow_schedule_constant(1e-2);
    options.loss = squared_error;
    options.n_inputs = options.n_extra = 1;
    options.evaluation = true;
    options.input_types = types;
    options.extra_types = types + 1;
    tow::train_state state(context, *model, options);
    const double first = state.evaluate(batch);
    double last = first;
    for (int i = 0; i < 200; i++) last = state.step(batch);
    expect(last < first / 10, "training learns nothing");
    const tow::params params = tow::init(context, *model, 0, {types[0]});
    expect(tow_params_count(params.get()) == 8, "eight parameters");
}

static void errors(const tow::context &context)
{
    tow_status status = TOW_OK;
    try {
        const tow::array bad(context, tow::type<float>({-1}));
    } catch (const tow::error &e) {
        status = e.status();
        expect(std::string(e.what()) == tow_context_error(context) && *e.what() != '\0',
               "an error without its message");
    }
    expect(status == TOW_INVALID_ARGUMENT, "a negative dimension is accepted");
    status = TOW_OK;
    try {
        const tow::array bad(context, {3}, std::vector<float>{1, 2});
    } catch (const tow::error &e) {
        status = e.status();
    }
    expect(status == TOW_SHAPE_MISMATCH, "two values for three elements are accepted");
    status = TOW_OK;
    try {
        tow::array(context, tow::type<std::int32_t>({2})).data<float>();
    } catch (const tow::error &e) {
        status = e.status();
    }
    expect(status == TOW_TYPE_MISMATCH, "integers are given as floats");
    status = TOW_OK;
    try {
        tow_context_options options = {};
        options.threads = -1;
        const tow::context none(options);
    } catch (const tow::error &e) {
        status = e.status();
    }
    expect(status == TOW_INVALID_ARGUMENT, "-1 threads are accepted");
}

static void sine(tow_trace *, const tow_value *in, tow_value *out, void *) { out[0] = tow_sin(in[0]); }

static void graphs(const tow::context &context)
{
    const tow_type scalar = tow::type<double>({});
    tow::graph graph, gradient;
    tow::check(tow_trace_function(context, sine, nullptr, 1, &scalar, nullptr, 1, graph.put()), context);
    tow::check(tow_grad(graph.get(), 0, nullptr, false, gradient.put()), context);
    const double half = 0.5;
    const tow::array x(context, scalar, &half);
    const auto results = tow::evaluate(context, gradient, {x});
    expect(results.size() == 1 && std::fabs(results[0].to_vector<double>()[0] - std::cos(half)) < 1e-15,
           "cos(0.5) is wrong");
    tow::array copy = x, moved = std::move(copy);
    expect(moved.get() == x.get() && !copy && x.text().find("0.5") != std::string::npos, "copies share their elements");
    tow::graph other = std::move(graph);
    expect(other && !graph, "a graph moves");
}

int main()
{
    try {
        const tow::context context;
        layers();
        training(context);
        errors(context);
        graphs(context);
    } catch (const tow::error &e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
    return failed;
}
