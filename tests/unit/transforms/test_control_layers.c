/* Tests aside.c, choice.c, while.c, scope/calls.c: cond, switch and while together with the other transforms, with what
 * is sown and captured, and with what reports on models. Everything that promises the same bits is compared bit for
 * bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/control_layers.h"

#define A(layer)   TOW_MODULE(&TOW_NAMED("a", layer))
#define B(layer)   TOW_MODULE(&TOW_NAMED("b", layer))
#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

static const tow_lift_rule *const carried =
    (const tow_lift_rule[]){{"counters", TOW_CARRIED}, {"batch_stats", TOW_CARRIED}, {NULL, TOW_STACKED}};
static const tow_type predicate = {.dtype = TOW_BOOL}, number = {.dtype = TOW_I32};

/* ---- one call with arrays ---------------------------------------------------------------------------------------- */

typedef struct called {
    tow_params *params, *state;
    tow_model_function *function;
    tow_model_results results;
} called;

static tow_status call_model(called *c, const tow_module *layer, size_t n_in, tow_array *const *in, size_t n_out,
                             tow_model_options options)
{
    const stack model = {{&stack_class}, layer};
    tow_type types[8];
    for (size_t i = 0; i < n_in; i++) types[i] = tow_array_type(in[i]);
    *c = (called){0};
    options.n_outputs = n_out;
    tow_status status = tow_model_init_with(ctx, TOW_MODULE(&model), 3, n_in, types, &options, &c->params, &c->state);
    options.state = c->state;
    const tow_model_function_options function = TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = n_in, .model = &options);
    if (!status) status = tow_model_function_create(TOW_MODULE(&model), c->params, &function, &c->function);
    if (!status) status = tow_model_function_call(c->function, &TOW_MODEL_ARGUMENTS(.inputs = in), &c->results);
    return status;
}

static void free_called(called *c)
{
    tow_model_function_free(c->function);
    tow_params_free(c->params);
    tow_params_free(c->state);
}

/* A predicate, or an index, and x [2, 4]. */
static void make_inputs(tow_type type, int32_t value, tow_array *in[2])
{
    const bool truth = value != 0;
    OK(tow_array_from_data(ctx, type, type.dtype == TOW_BOOL ? (const void *)&truth : (const void *)&value, &in[0]));
    in[1] = exact_fractions(ctx, small);
}

static void free_inputs(tow_array *in[2])
{
    tow_array_release(in[0]);
    tow_array_release(in[1]);
}

static void expect_scaled(const tow_params *list, const char *path, const tow_array *x, float by)
{
    tow_array *found = tow_params_find(list, path);
    if (!found) fail_msg("%s was not sown", path);
    const float *values = tow_array_data(found), *from = tow_array_data((tow_array *)x);
    for (int i = 0; i < 8; i++)
        if (values[i] != by * from[i])
            fail_msg("%s[%d]: expected %g, found %g", path, i, (double)(by * from[i]), (double)values[i]);
}

/* ---- sown and captured values ------------------------------------------------------------------------------------ */

/* x times a factor, which is sown. */
typedef struct times {
    tow_module module;
    double factor;
    bool twice;
} times;
static void call_times(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    const times *m = (const times *)module;
    (void)n_in, (void)n_out;
    out[0] = tow_mul_scalar(in[0], m->factor);
    tow_sow(s, TOW_INTERMEDIATES, "seen", out[0]);
    if (m->twice) tow_sow(s, TOW_INTERMEDIATES, "seen", tow_mul_scalar(in[0], -m->factor));
}
static const tow_module_class times_class = {"times", call_times};
#define TIMES(...)  (&(times){{&times_class}, __VA_ARGS__})
#define SCALED(...) TOW_MODULE(TIMES(__VA_ARGS__))

/* Both branches sow "seen/0", which is that of the one that ran; only the second one sows "seen/1". */
static void test_sown_in_branches(void **unused)
{
    (void)unused;
    const tow_switch choice = TOW_SWITCH(.branches = TOW_LAYERS(SCALED(2), SCALED(4, true), A(TIMES(8))));
    for (int32_t k = 0; k < 3; k++) {
        tow_array *in[2];
        called c;
        make_inputs(number, k, in);
        OK(call_model(&c, TOW_MODULE(&choice), 2, in, 1,
                      TOW_MODEL_OPTIONS(.mutable_collections = NAMES(TOW_INTERMEDIATES))));
        assert_int_equal(tow_params_count(c.results.sown), 3);
        expect_scaled(c.results.sown, "intermediates/stack/seen/0", in[1], k == 0 ? 2 : k == 1 ? 4 : 0);
        expect_scaled(c.results.sown, "intermediates/stack/seen/1", in[1], k == 1 ? -4 : 0);
        expect_scaled(c.results.sown, "intermediates/stack/a/seen/0", in[1], k == 2 ? 8 : 0);
        free_called(&c);
        free_inputs(in);
    }
}

/* By path: of the branch that has it, of both under one path, and of the layer around. */
static void test_captured_in_branches(void **unused)
{
    (void)unused;
    const tow_cond choice = TOW_COND(.yes = A(TIMES(2)), .no = B(TIMES(4))),
                   direct = TOW_COND(.yes = SCALED(2), .no = SCALED(4));
    for (int truth = 0; truth < 2; truth++) {
        tow_array *in[2];
        called c;
        make_inputs(predicate, truth, in);
        OK(call_model(&c, TOW_MODULE(&choice), 2, in, 1, TOW_MODEL_OPTIONS(.capture = NAMES("stack/a", "stack/b"))));
        expect_scaled(c.results.sown, "intermediates/stack/a/__call__/0", in[1], truth ? 2 : 0);
        expect_scaled(c.results.sown, "intermediates/stack/b/__call__/0", in[1], truth ? 0 : 4);
        free_called(&c);
        OK(call_model(&c, TOW_MODULE(&direct), 2, in, 1, TOW_MODEL_OPTIONS(.capture = NAMES("stack"))));
        assert_int_equal(tow_params_count(c.results.sown), 2); /* "seen" as well, of both under one path */
        expect_scaled(c.results.sown, "intermediates/stack/__call__/0", in[1], truth ? 2 : 4);
        free_called(&c);
        free_inputs(in);
    }
}

/* x, i -> 2 x, i + 1, as long as i < limit */
typedef struct doubling {
    tow_module module;
    int limit;
} doubling;
static void call_doubling(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                          tow_value *out)
{
    const tow_module *twice = SCALED(2);
    (void)module, (void)n_in, (void)n_out;
    out[0] = tow_apply_module(s, "twice", twice, in[1]);
    out[1] = out[0];
    out[0] = tow_add_scalar(in[0], 1);
}
static void call_below(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)n_in, (void)n_out;
    tow_apply_module(s, "asked", SCALED(3), in[1]); /* sows, which is lost */
    out[0] = tow_lt(in[0], tow_scalar(in[0].trace, TOW_I32, ((const doubling *)module)->limit));
}
static const tow_module_class doubling_class = {"doubling", call_doubling}, below_class = {"below", call_below};

static void test_sown_in_loops(void **unused)
{
    (void)unused;
    for (int n = 0; n < 4; n++)
        for (int bound = 0; bound < 2; bound++) {
            const tow_while loop =
                TOW_WHILE(.condition = &((doubling){{&below_class}, n}).module, .n_carry = 2,
                          .body = &((doubling){{&doubling_class}, 0}).module, .max_iterations = bound ? 8 : 0);
            tow_array *in[2];
            called c;
            make_inputs(number, 0, in);
            OK(call_model(&c, TOW_MODULE(&loop), 2, in, 2,
                          TOW_MODEL_OPTIONS(.mutable_collections = NAMES(TOW_INTERMEDIATES))));
            assert_int_equal(tow_params_count(c.results.sown), 1);
            expect_scaled(c.results.sown, "intermediates/stack/twice/seen/0", in[1], n ? (float)(1 << n) : 0);
            free_called(&c);
            OK(call_model(&c, TOW_MODULE(&loop), 2, in, 2, TOW_MODEL_OPTIONS(.capture = NAMES("**/twice"))));
            expect_scaled(c.results.sown, "intermediates/stack/twice/__call__/0", in[1], n ? (float)(1 << n) : 0);
            free_called(&c);
            expect_error(call_model(&c, TOW_MODULE(&loop), 2, in, 2, TOW_MODEL_OPTIONS(.capture = NAMES("**/asked"))),
                         TOW_UNSUPPORTED, "\"**/asked\"", "stack/asked", "condition of a while");
            free_called(&c);
            free_inputs(in);
        }
}

/* ---- reverse and forward mode ------------------------------------------------------------------------------------ */

/* Without a bound reverse mode is an error that names the layer; forward mode gives what it gives with one. */
static void test_unbounded(void **unused)
{
    (void)unused;
    tow_graph *graphs[2], *jvp[2], *gradient = NULL;
    tow_params *params = NULL;
    tow_array *out[2][2];
    size_t n_in = 0;
    for (int bound = 0; bound < 2; bound++) {
        const tow_while loop = TOW_WHILE(.condition = CONDITION(BY_NUMBER), .body = BODY(BY_NUMBER, .plain = true),
                                         .n_carry = 4, .max_iterations = bound ? 9 : 0);
        const looper model = LOOPER(&loop);
        tow_model_options options = TOW_MODEL_OPTIONS(.streams = NAMES("noise"));
        tow_params_free(params);
        OK(tow_model_init_with(ctx, TOW_MODULE(&STACK(&model)), 3, 1, &small, &options, &params, NULL));
        OK(tow_model_forward_graph(TOW_MODULE(&STACK(&model)), params, 1, &small, &options, &graphs[bound]));
        OK(tow_jvp(graphs[bound], 3, (size_t[]){0, 1, 2}, &jvp[bound]));
    }
    tow_status status = tow_vjp(graphs[0], 1, (size_t[]){1}, &gradient, &(tow_graph *){NULL});
    expect_error(status, TOW_UNSUPPORTED, "stack", "while", "max_iterations");
    n_in = tow_graph_input_count(jvp[0]);
    assert_int_equal(n_in, 7);
    tow_array *all[7];
    for (size_t i = 0; i < n_in; i++) {
        const tow_type type = tow_graph_input_type(jvp[0], i);
        if (type.dtype == TOW_U32)
            OK(tow_array_from_data(ctx, type, (uint32_t[]){0, 5}, &all[i]));
        else
            all[i] = exact_fractions(ctx, type);
    }
    for (int bound = 0; bound < 2; bound++) OK(tow_evaluate(jvp[bound], all, out[bound]));
    for (int i = 0; i < 2; i++) assert_memory_equal(tow_array_data(out[0][i]), tow_array_data(out[1][i]), 32);
    for (size_t i = 0; i < n_in; i++) tow_array_release(all[i]);
    for (int i = 0; i < 2; i++) {
        tow_array_release(out[0][i]), tow_array_release(out[1][i]);
        tow_graph_release(graphs[i]), tow_graph_release(jvp[i]);
    }
    tow_params_free(params);
}

/* ---- the same bits ----------------------------------------------------------------------------------------------- */

/* A choice between a loop and a choice, with everything that these have. */
static void test_policies(void **unused)
{
    (void)unused;
    const tow_policy policies[] = {tow_nothing_saveable(), tow_everything_saveable(), tow_dots_saveable(),
                                   tow_dots_with_no_batch_dims_saveable()};
    const tow_while loop = TOW_WHILE(.condition = CONDITION(BY_COUNTER), .body = BODY(BY_COUNTER), .n_carry = 4,
                                     .max_iterations = 11, .variables = carried);
    const looper looping = LOOPER(&loop);
    const tow_cond inner = TOW_COND(.yes = A(&negated), .no = B(&cell));
    const chooser either = CHOOSER(&inner, 1);
    const tow_switch choice = TOW_SWITCH(.branches = TOW_LAYERS(B(&cell), A(&looping), A(&either)));
    const chooser model = CHOOSER(&choice);
    lift_run plain, other;
    run_lifted(&plain, TOW_MODULE(&STACK(&model)), 1, &small, 3, NULL);
    for (int p = 0; p < 4; p++) {
        const tow_remat around = TOW_REMAT(&model, .policy = policies[p]);
        const tow_remat loop_remat = TOW_REMAT(&looping, .policy = policies[p]);
        const tow_switch inside = TOW_SWITCH(.branches = TOW_LAYERS(B(&cell), A(&loop_remat), A(&either)));
        const chooser within = CHOOSER(&inside);
        run_lifted(&other, TOW_MODULE(&STACK(&around)), 1, &small, 3, NULL);
        expect_same_lift("remat around", &plain, &other);
        free_lift_run(&other);
        run_lifted(&other, TOW_MODULE(&STACK(&within)), 1, &small, 3, NULL);
        expect_same_lift("remat within", &plain, &other);
        free_lift_run(&other);
    }
    free_lift_run(&plain);
}

/* Loops over layers with a choice and a loop in each: as one loop, written out, as a layer stack, with remat. */
static void test_stacks(void **unused)
{
    (void)unused;
    const tow_while loop = TOW_WHILE(.condition = CONDITION(BY_KEY), .body = BODY(BY_KEY), .n_carry = 4,
                                     .max_iterations = 6, .variables = carried);
    const looper looping = LOOPER(&loop);
    const tow_switch choice = TOW_SWITCH(.branches = TOW_LAYERS(A(&cell), A(&looping), B(&negated)));
    const chooser model = CHOOSER(&choice);
    const tow_remat remat = TOW_REMAT(&model);
    const tow_lift_rule *rules = TOW_RULES({"steps", TOW_CARRIED});
    lift_run runs[5];
    const tow_scan scans[] = {TOW_SCAN(&model, .length = 3, .variables = rules),
                              TOW_SCAN(&model, .length = 3, .variables = rules, .unrolled = true),
                              TOW_SCAN(&remat, .length = 3, .variables = rules)};
    const tow_layer_stack stacks[] = {
        TOW_LAYER_STACK(.length = 3, .pattern = TOW_LAYERS(TOW_MODULE(&model)), .variables = rules),
        TOW_LAYER_STACK(.pattern = TOW_LAYERS(TOW_MODULE(&model), TOW_MODULE(&remat)),
                        .last = TOW_LAYERS(TOW_MODULE(&model)), .length = 3, .variables = rules)};
    for (int i = 0; i < 3; i++) run_lifted(&runs[i], TOW_MODULE(&STACK(&scans[i])), 1, &small, 1, NULL);
    for (int i = 0; i < 2; i++) run_lifted(&runs[3 + i], TOW_MODULE(&STACK(&stacks[i])), 1, &small, 1, NULL);
    assert_non_null(tow_params_find(runs[0].params, "stack/{}/choice/a/cell/dense/kernel"));
    for (int i = 1; i < 5; i++) {
        expect_same_list("stack", runs[0].params, runs[i].params);
        expect_same_list("stack", runs[0].state, runs[i].state);
        assert_memory_equal(tow_array_data(runs[0].outputs[0]), tow_array_data(runs[i].outputs[0]), 32);
        assert_memory_equal(tow_array_data(runs[0].in_grads[0]), tow_array_data(runs[i].in_grads[0]), 32);
    }
    for (int i = 0; i < 5; i++) free_lift_run(&runs[i]);
}

/* Rows at once are rows one after the other, where each has a predicate and a number of iterations of its own. */
static void test_rows(void **unused)
{
    (void)unused;
    const tow_type x3 = TYPE(TOW_F32, 3, 2, 4);
    const tow_while loop = TOW_WHILE(.condition = CONDITION(BY_SIGN), .body = BODY(BY_SIGN), .n_carry = 4,
                                     .max_iterations = 4, .variables = carried);
    const looper looping = LOOPER(&loop);
    const tow_cond choice = TOW_COND(.yes = A(&looping), .no = B(&cell));
    const chooser model = CHOOSER(&choice, .by_sign = true);
    const tow_vmap_layer rows = TOW_VMAP(&model), one_by_one = TOW_VMAP(&model, .unrolled = true),
                         shared = TOW_VMAP(&model, .variables = TOW_RULES({"params", TOW_SHARED}));
    lift_run a, b;
    run_lifted(&a, TOW_MODULE(&STACK(&rows)), 1, &x3, 3, NULL);
    run_lifted(&b, TOW_MODULE(&STACK(&one_by_one)), 1, &x3, 3, NULL);
    expect_same_list("rows", a.params, b.params);
    for (int i = 0; i < 3; i++)
        for (int64_t k = 0; k < tow_type_element_count(tow_array_type(a.outputs[i])); k++)
            assert_true(fabs(array_element(a.outputs[i], k) - array_element(b.outputs[i], k)) <= 1e-5);
    for (int64_t k = 0; k < 24; k++)
        assert_true(fabs(array_element(a.in_grads[0], k) - array_element(b.in_grads[0], k)) <= 1e-4);
    expect_same_list("counters of rows", a.state, b.state);
    free_lift_run(&a);
    free_lift_run(&b);
    run_lifted(&a, TOW_MODULE(&STACK(&shared)), 1, &x3, 3, NULL);
    assert_non_null(tow_params_find(a.params, "stack/choice/a/cell/dense/kernel"));
    free_lift_run(&a);
}

/* ---- other layers around ----------------------------------------------------------------------------------------- */

static tow_status run_first(const tow_module *layer, int32_t truth, called *c)
{
    tow_array *in[2];
    make_inputs(predicate, truth, in);
    tow_status status = call_model(c, layer, 2, in, 1, TOW_MODEL_OPTIONS(.mutable_collections = NULL));
    free_inputs(in);
    return status;
}

/* Layers that see parameters in their own way: the branch that runs has the parameters, and gives the values, that it
 * has alone. */
static void test_views(void **unused)
{
    (void)unused;
    const tow_dense dense = TOW_DENSE(.features = 4, .bias_init = tow_initializer_normal(0.5));
    const tow_cond choice = TOW_COND(.yes = A(&dense), .no = B(&dense));
    const tow_weight_norm normed = TOW_WEIGHT_NORM(&choice);
    const tow_lora lora = TOW_LORA(&choice, .rank = 2);
    const tow_precision half = TOW_PRECISION(&choice, .dtype = TOW_BF16, .param_dtype = TOW_F64);
    const tow_module *const layers[] = {TOW_MODULE(&normed), TOW_MODULE(&lora), TOW_MODULE(&half)};
    for (int i = 0; i < 3; i++)
        for (int truth = 0; truth < 2; truth++) {
            const tow_named named = {
                {&tow_named_class, sizeof(tow_named)}, .name = truth ? "a" : "b", .inner = TOW_MODULE(&dense)};
            const tow_weight_norm normed_alone = TOW_WEIGHT_NORM(&named);
            const tow_lora lora_alone = TOW_LORA(&named, .rank = 2);
            const tow_precision half_alone = TOW_PRECISION(&named, .dtype = TOW_BF16, .param_dtype = TOW_F64);
            const tow_module *const alone[] = {TOW_MODULE(&normed_alone), TOW_MODULE(&lora_alone),
                                               TOW_MODULE(&half_alone)};
            called both, one;
            tow_array *in[2];
            OK(run_first(layers[i], truth, &both));
            make_inputs(predicate, truth, in);
            OK(call_model(&one, alone[i], 1, &in[1], 1, TOW_MODEL_OPTIONS(.mutable_collections = NULL)));
            free_inputs(in);
            assert_int_equal(tow_params_count(both.params), 2 * tow_params_count(one.params));
            for (size_t k = 0; k < tow_params_count(one.params); k++)
                assert_non_null(tow_params_find(both.params, tow_params_path(one.params, k)));
            const tow_type type = tow_array_type(one.results.outputs[0]);
            assert_true(tow_type_equal(type, tow_array_type(both.results.outputs[0])));
            assert_memory_equal(tow_array_data(one.results.outputs[0]), tow_array_data(both.results.outputs[0]),
                                tow_type_bytes(type));
            free_called(&both);
            free_called(&one);
        }
}

static void call_half(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    const tow_dense dense = TOW_DENSE(.features = 4);
    out[0] = tow_mul_scalar(tow_apply(s, "a", &dense, in[0]), 0.5);
}

/* Two functions of one layer as branches: they share its parameters. */
static void test_methods(void **unused)
{
    (void)unused;
    const tow_dense dense = TOW_DENSE(.features = 4);
    const tow_sequential one = TOW_SEQUENTIAL(A(&dense));
    const tow_method half = TOW_METHOD(&one, .function = call_half);
    const tow_cond choice = TOW_COND(.yes = TOW_MODULE(&one), .no = TOW_MODULE(&half));
    called whole, halved;
    OK(run_first(TOW_MODULE(&choice), 1, &whole));
    OK(run_first(TOW_MODULE(&choice), 0, &halved));
    assert_int_equal(tow_params_count(whole.params), 2);
    const float *y = tow_array_data(whole.results.outputs[0]), *h = tow_array_data(halved.results.outputs[0]);
    for (int i = 0; i < 8; i++) assert_true(y[i] != 0 && h[i] == 0.5f * y[i]);
    free_called(&whole);
    free_called(&halved);
}

/* SpectralNorm writes its vectors in the branch that runs, and keeps those of the other one. */
static void test_spectral_norm(void **unused)
{
    (void)unused;
    const tow_dense dense = TOW_DENSE(.features = 4);
    const tow_cond choice = TOW_COND(.yes = A(&dense), .no = B(&dense));
    const tow_spectral_norm normed = TOW_SPECTRAL_NORM(&choice);
    for (int truth = 0; truth < 2; truth++) {
        tow_array *in[2];
        called c;
        make_inputs(predicate, truth, in);
        OK(call_model(&c, TOW_MODULE(&normed), 2, in, 1,
                      TOW_MODEL_OPTIONS(.mutable_collections = NAMES("batch_stats"))));
        for (size_t i = 0; i < tow_params_count(c.state); i++) {
            const char *path = tow_params_path(c.state, i);
            tow_array *before = tow_params_array(c.state, i), *after = tow_params_find(c.results.updates, path);
            const bool ran = (strstr(path, "/a/") != NULL) == (truth != 0);
            if ((memcmp(tow_array_data(before), tow_array_data(after), tow_type_bytes(tow_array_type(before))) != 0) !=
                ran)
                fail_msg("%s, truth %d", path, truth);
        }
        free_called(&c);
        free_inputs(in);
    }
}

/* ---- other shapes, types and places ------------------------------------------------------------------------------ */

/* x -> (x, true): of one branch, in which a scan, a vmap and a choice stand. */
static tow_value nest(tow_scope *scope, tow_value x)
{
    const tow_dense dense = TOW_DENSE(.features = 4);
    const tow_cond inner = TOW_COND(.yes = A(&dense), .no = B(&dense));
    const chooser choose = CHOOSER(&inner, .by_sign = true);
    const tow_scan scan = TOW_SCAN(&choose, .length = 2);
    const int64_t *dims = tow_value_type(x).dims;
    const tow_vmap_layer rows = TOW_VMAP(&scan);
    tow_value pieces = tow_reshape(x, 3, (int64_t[]){dims[0] / 2, 2, dims[1]});
    return tow_reshape(tow_apply(scope, "rows", &rows, pieces), 2, dims);
}

/* f64, and no rows at all, through a choice with other transforms in a branch and through a loop without iterations. */
static void test_odd_types(void **unused)
{
    (void)unused;
    const tow_function_layer nested = TOW_FUNCTION(nest);
    const tow_cond choice = TOW_COND(.yes = A(&nested), .no = B(TIMES(2)));
    const tow_precision model = TOW_PRECISION(&choice, .dtype = TOW_F64, .param_dtype = TOW_F64);
    for (int64_t rows = 0; rows <= 4; rows += 4)
        for (int truth = 0; truth < 2; truth++) {
            const tow_type types[] = {predicate, TYPE(TOW_F64, rows, 4)};
            tow_array *in[2];
            called c;
            const bool yes = truth;
            double data[16];
            for (int i = 0; i < 16; i++) data[i] = (i % 5 - 2) * 0.25;
            OK(tow_array_from_data(ctx, types[0], &yes, &in[0]));
            OK(tow_array_from_data(ctx, types[1], data, &in[1]));
            OK(call_model(&c, TOW_MODULE(&model), 2, in, 1, TOW_MODEL_OPTIONS(.mutable_collections = NULL)));
            assert_true(tow_type_equal(tow_array_type(c.results.outputs[0]), types[1]));
            const double *y = tow_array_data(c.results.outputs[0]);
            for (int i = 0; i < 4 * (int)rows && !truth; i++) assert_true(y[i] == 2 * data[i]);
            free_called(&c);
            free_inputs(in);
        }
    const tow_while loop = TOW_WHILE(.condition = CONDITION(BY_NONE), .body = BODY(BY_NONE, .plain = true),
                                     .n_carry = 4, .max_iterations = 3);
    const looper looping = LOOPER(&loop);
    const tow_type none = TYPE(TOW_F32, 0, 4);
    lift_run r;
    run_lifted(&r, TOW_MODULE(&STACK(&looping)), 1, &none, 3, NULL);
    assert_true(tow_type_equal(tow_array_type(r.outputs[0]), none));
    free_lift_run(&r);
}

/* ---- reports ----------------------------------------------------------------------------------------------------- */

static tow_layer_summary layer_at(const tow_model_summary *summary, const char *path)
{
    size_t i = 0;
    while (i < tow_model_summary_layer_count(summary) && strcmp(tow_model_summary_layer(summary, i).path, path) != 0)
        i++;
    if (i == tow_model_summary_layer_count(summary)) fail_msg("no layer %s", path);
    return tow_model_summary_layer(summary, i);
}

/* Rows for the layers of all branches; flops of the one that has most; of all iterations that a bound allows. */
static void test_summary(void **unused)
{
    (void)unused;
    const tow_dense small_layer = TOW_DENSE(.features = 4);
    const tow_mlp large = TOW_MLP(.features = {16, 4});
    const tow_cond choice = TOW_COND(.yes = TOW_MODULE(&large), .no = A(&small_layer));
    const tow_remat cheap = TOW_REMAT(&choice);
    const tow_type types[] = {predicate, small};
    tow_params *params = NULL;
    tow_model_summary *summary;
    OK(tow_model_init(ctx, TOW_MODULE(&STACK(&cheap)), 3, 2, types, &params));
    OK(tow_model_summary_create(TOW_MODULE(&STACK(&cheap)), params, 2, types, NULL, &summary));
    assert_string_equal(layer_at(summary, "stack").name, "remat(cond(MLP, Named))");
    assert_int_equal(layer_at(summary, "stack/a").parameters, 20);
    assert_int_equal(layer_at(summary, "stack").parameters, 20 + 4 * 16 + 16 + 16 * 4 + 4);
    assert_true(layer_at(summary, "stack/a").flops == 0);
    assert_true(layer_at(summary, "stack/Dense_1").flops == 2 * (2 * 16 * 4 + 4));
    assert_true(layer_at(summary, "stack").flops > 0);
    tow_model_summary_free(summary);
    tow_params_free(params);
    for (int bound = 0; bound < 2; bound++) {
        const tow_while loop = TOW_WHILE(.condition = CONDITION(BY_NUMBER), .body = BODY(BY_NUMBER, .plain = true),
                                         .n_carry = 4, .max_iterations = bound ? 9 : 0);
        const tow_type carries[] = {small, small, TYPE(TOW_U32, 2), number};
        tow_model_options options = TOW_MODEL_OPTIONS(.n_outputs = 4, .streams = NAMES("noise"));
        OK(tow_model_init_with(ctx, TOW_MODULE(&STACK(&loop)), 3, 4, carries, &options, &params, NULL));
        OK(tow_model_summary_create(TOW_MODULE(&STACK(&loop)), params, 4, carries, &options, &summary));
        assert_string_equal(layer_at(summary, "stack").name, "while(limit, looped)");
        assert_true(layer_at(summary, "stack/cell").flops == (bound ? 9 : 1) * 2 * (2 * 4 * 4 + 4));
        assert_true(bound || strstr(tow_model_summary_no_gradient(summary), "max_iterations"));
        tow_model_summary_free(summary);
        tow_params_free(params);
    }
}

/* Scans with the keys of Flax trace their layers twice, which a summary does not show. */
static void test_summary_of_flax_keys(void **unused)
{
    (void)unused;
    const tow_dense dense = TOW_DENSE(.features = 4);
    const tow_cond choice = TOW_COND(.yes = A(&dense), .no = A(&dense));
    const chooser by_sign = CHOOSER(&choice, .by_sign = true);
    const tow_remat_scan deep = TOW_REMAT_SCAN(&by_sign, .lengths = {2, 3}, .keys = TOW_KEYS_FLAX);
    tow_params *params = NULL, *state = NULL;
    tow_model_summary *summary;
    OK(tow_model_init_with(ctx, TOW_MODULE(&STACK(&deep)), 3, 1, &small, NULL, &params, &state));
    const tow_model_options options = TOW_MODEL_OPTIONS(.state = state);
    OK(tow_model_summary_create(TOW_MODULE(&STACK(&deep)), params, 1, &small, &options, &summary));
    assert_string_equal(layer_at(summary, "stack").name, "remat_scan(remat(remat_scan))");
    assert_int_equal(tow_model_summary_layer_count(summary),
                     5); /* the model, the stack, its iteration, the choice, "a" */
    assert_string_equal(tow_model_summary_layer(summary, 2).name, "chooser");
    assert_int_equal(tow_model_summary_layer(summary, 2).calls, 1);
    assert_string_equal(tow_model_summary_layer(summary, 3).name, "cond(Named, Named)");
    assert_int_equal(tow_model_summary_layer(summary, 4).calls, 2);
    tow_model_summary_free(summary);
    tow_params_free(params);
    tow_params_free(state);
}

static tow_value logarithm(tow_scope *scope, tow_value x)
{
    (void)scope;
    return tow_log(x);
}

/* The layer of a branch, or of a body, that makes the first NaN. */
static void test_not_finite(void **unused)
{
    (void)unused;
    const tow_function_layer log_layer = TOW_FUNCTION(logarithm);
    const tow_cond choice = TOW_COND(.yes = A(&log_layer), .no = B(TIMES(2)));
    const tow_type types[] = {predicate, small};
    for (int truth = 0; truth < 2; truth++) {
        tow_params *params = NULL;
        tow_graph *graph;
        tow_array *in[2];
        tow_not_finite found;
        char text[800];
        OK(tow_model_init(ctx, TOW_MODULE(&STACK(&choice)), 3, 2, types, &params));
        OK(tow_model_forward_graph(TOW_MODULE(&STACK(&choice)), params, 2, types, NULL, &graph));
        make_inputs(predicate, truth, in);
        OK(tow_find_not_finite(graph, in, &found));
        tow_not_finite_text(&found, text, sizeof text);
        if (truth && !strstr(text, "log of layer 'stack/a'")) fail_msg("found: %s", text);
        if (!truth && strstr(text, "layer")) fail_msg("found: %s", text);
        free_inputs(in);
        tow_graph_release(graph);
        tow_params_free(params);
    }
}

/* A part of a model that is a choice has, alone, the parameters and values that it has in the whole; names in files are
 * plain. */
static void test_part_and_names(void **unused)
{
    (void)unused;
    const tow_dense dense = TOW_DENSE(.features = 4);
    const tow_cond choice = TOW_COND(.yes = A(&dense), .no = B(&dense));
    const tow_type types[] = {predicate, small};
    tow_params *params = NULL;
    tow_graph *whole, *part;
    OK(tow_model_init(ctx, TOW_MODULE(&STACK(&choice)), 3, 2, types, &params));
    OK(tow_model_forward_graph(TOW_MODULE(&STACK(&choice)), params, 2, types, NULL, &whole));
    OK(tow_model_forward_graph(TOW_MODULE(&choice), params, 2, types, &TOW_MODEL_OPTIONS(.at = "stack"), &part));
    tow_tensors *tensors = tensors_of(params);
    assert_int_equal(tow_tensors_count(tensors), 4);
    assert_non_null(tow_tensors_find(tensors, "stack/b/kernel"));
    tow_array *in[6], *choices[2], *a, *b;
    make_inputs(predicate, 0, choices);
    for (size_t i = 0; i < 4; i++) in[i] = tow_params_array(params, i);
    in[4] = choices[0], in[5] = choices[1];
    OK(tow_evaluate(whole, in, &a));
    OK(tow_evaluate(part, in, &b));
    assert_memory_equal(tow_array_data(a), tow_array_data(b), 32);
    tow_array_release(a), tow_array_release(b);
    free_inputs(choices);
    tow_tensors_free(tensors);
    tow_graph_release(whole), tow_graph_release(part);
    tow_params_free(params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sown_in_branches),
        cmocka_unit_test(test_captured_in_branches),
        cmocka_unit_test(test_sown_in_loops),
        cmocka_unit_test(test_unbounded),
        cmocka_unit_test(test_policies),
        cmocka_unit_test(test_stacks),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_spectral_norm),
        cmocka_unit_test(test_odd_types),
        cmocka_unit_test(test_summary),
        cmocka_unit_test(test_summary_of_flax_keys),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_part_and_names),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
