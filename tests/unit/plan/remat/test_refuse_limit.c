/* The error of a memory limit that no plan keeps: its bytes by kind and its bytes by layer both add up to the least
 * that is possible, and so do the kinds of each layer; gradients and slots stand with the layer of their parameter.
 *
 * Tests refuse_limit.c. */
#include "tests/unit/support/training.h"

/* The number behind the first occurrence of `what` from `text` on. */
static size_t number_behind(const char *text, const char *what)
{
    const char *at = strstr(text, what);
    if (!at) fail_msg("expected \"%s\" in \"%s\"", what, text);
    return strtoull(at + strlen(what), NULL, 10);
}

static bool ends_item(char c) { return c == ',' || c == ')' || c == '(' || c == ';' || c == '\n' || c == '\0'; }

/* The sum of the last numbers of the items from `text` on, "name 12, other name 3 (...), ...", up to `end` or a ')'.
 * Items in parentheses add up to the item before them. *after: behind the last item. */
static size_t sum_of_items(const char *text, char end, const char **after)
{
    size_t sum = 0;
    while (*text != end && *text != ')' && *text) {
        while (!ends_item(*text)) text++;
        const char *number = text;
        while (number[-1] == ' ') number--;
        while (number[-1] >= '0' && number[-1] <= '9') number--;
        const size_t bytes = strtoull(number, NULL, 10);
        sum += bytes;
        if (*text == '(') {
            const size_t inner = sum_of_items(text + 1, ')', &text);
            assert_int_equal(inner, bytes);
            text++;
        }
        if (*text == ',') text++;
    }
    *after = text;
    return sum;
}

/* Both lists of the message, or the first where there are no layers, add up to the least. Returns it. */
static size_t expect_sums(const char *message, bool has_layers)
{
    const size_t least = number_behind(message, "expected at least ");
    const char *kinds = strstr(message, "the least that is possible is "), *layers = strstr(message, "\nby layer: "),
               *after;
    assert_non_null(kinds);
    assert_true(has_layers == (layers != NULL));
    assert_int_equal(sum_of_items(kinds + strlen("the least that is possible is "), ';', &after), least);
    assert_int_equal(*after, ';');
    if (has_layers) assert_int_equal(sum_of_items(layers + strlen("\nby layer: "), '\n', &after), least);
    return least;
}

/* The message for a state over the model within one byte, which lives until the next error. */
static const char *message_of(const fixture *f, const tow_module *model, int64_t in, tow_train_options options)
{
    tow_type types[] = {tow_make_type(TOW_F32, 2, (int64_t[]){64, in}), tow_make_type(TOW_F32, 2, (int64_t[]){64, 4})};
    tow_train_state *s;
    options.optimizer = usual;
    options.n_inputs = options.n_extra = 1;
    options.input_types = &types[0];
    options.extra_types = &types[1];
    options.loss = mean_squared_error;
    options.memory_limit = 1;
    assert_int_equal(tow_train_create(f->ctx, model, &options, &s), TOW_INVALID_ARGUMENT);
    return tow_context_error(f->ctx);
}

enum {
    WIDTH = 32,
    LAYERS = 6,
    KERNEL = 4 * WIDTH * WIDTH,
    BIAS = 4 * WIDTH
};

/* All layers of a scan are one place, its parameters with twice their bytes of slots; "layers" is too large and is
 * shown by its parts. */
static void bytes_of_a_scan(void **fixture_)
{
    tow_dense first = TOW_DENSE(.features = WIDTH), up = first, down = first, last = TOW_DENSE(.features = 4);
    tow_activation_layer gelu = TOW_ACTIVATION(tow_gelu);
    tow_sequential block =
        TOW_SEQUENTIAL(TOW_MODULE(&TOW_NAMED("up", &up)), TOW_MODULE(&gelu), TOW_MODULE(&TOW_NAMED("down", &down)));
    tow_scan layers = TOW_SCAN(&block, .length = LAYERS);
    tow_sequential model = TOW_SEQUENTIAL(TOW_MODULE(&first), TOW_MODULE(&TOW_NAMED("layers", &layers)),
                                          TOW_MODULE(&TOW_NAMED("head", &last)));
    const char *message = message_of(*fixture_, TOW_MODULE(&model), WIDTH, TOW_TRAIN_OPTIONS());
    const size_t all = (2 * LAYERS + 1) * (KERNEL + BIAS) + 4 * WIDTH * 4 + 4 * 4;
    expect_sums(message, true);
    assert_int_equal(number_behind(message, " parameters "), all);
    assert_int_equal(number_behind(message, " slots "), 2 * all);
    assert_int_equal(number_behind(message, " inputs "), 64 * (WIDTH + 4) * 4);
    const char *by_layer = strstr(message, "\nby layer: ");
    static const char *const parts[] = {"layers/{}/up ", "layers/{}/down "};
    for (int i = 0; i < 2; i++) {
        const char *part = strstr(by_layer, parts[i]);
        assert_non_null(part);
        assert_int_equal(number_behind(part, "(parameters "), LAYERS * (KERNEL + BIAS));
        assert_int_equal(number_behind(part, " slots "), 2 * LAYERS * (KERNEL + BIAS));
    }
}

/* Layers one by one, with variables, averages, reports and micro-batches. */
static void bytes_of_all_kinds(void **fixture_)
{
    tow_dense first = TOW_DENSE(.features = WIDTH), last = TOW_DENSE(.features = 4);
    tow_batch_norm norm = TOW_BATCH_NORM();
    tow_sequential model = TOW_SEQUENTIAL(TOW_MODULE(&TOW_NAMED("first", &first)),
                                          TOW_MODULE(&TOW_NAMED("norm", &norm)), TOW_MODULE(&TOW_NAMED("last", &last)));
    const tow_average_options average = TOW_AVERAGE_OPTIONS(.decay = 0.9);
    const size_t in_norm = 2 * BIAS, in_last = 4 * WIDTH * 4 + 4 * 4, all = KERNEL + BIAS + in_norm + in_last;
    for (size_t n = 1; n <= 4; n += 3) {
        const char *message = message_of(*fixture_, TOW_MODULE(&model), WIDTH,
                                         TOW_TRAIN_OPTIONS(.average = &average, .micro_batches = n));
        expect_sums(message, true);
        assert_int_equal(number_behind(message, " parameters "), all);
        assert_int_equal(number_behind(message, " slots "), 2 * all);
        assert_int_equal(number_behind(message, " variables "), in_norm);
        assert_int_equal(number_behind(message, " averages "), all);
        assert_int_equal(number_behind(message, " reports "), 8);
        const char *part = strstr(strstr(message, "\nby layer: "), "norm ");
        assert_non_null(part);
        assert_int_equal(number_behind(part, "(parameters "), in_norm);
        assert_int_equal(number_behind(part, " slots "), 2 * in_norm);
        assert_int_equal(number_behind(part, " variables "), in_norm);
        assert_int_equal(number_behind(part, " averages "), in_norm);
    }
}

/* At least the gradient of the last kernel waits for the norm of all gradients. */
static void gradients_are_a_kind(void **fixture_)
{
    tow_mlp model = TOW_MLP(.features = {WIDTH, WIDTH, WIDTH, 4});
    const char *message = message_of(*fixture_, TOW_MODULE(&model), WIDTH, TOW_TRAIN_OPTIONS());
    expect_sums(message, true);
    assert_true(number_behind(message, " gradient ") >= KERNEL);
}

/* A gradient of a graph without names has inputs, outputs and an arena. */
static void square(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_reduce_sum(tow_exp(tow_sin(tow_exp(in[0]))), 0, NULL);
}

static void bytes_of_a_gradient(void **fixture_)
{
    const fixture *f = *fixture_;
    const tow_type type = tow_make_type(TOW_F32, 1, (int64_t[]){256});
    tow_graph *loss, *gradient;
    tow_program *p;
    assert_int_equal(tow_trace_function(f->ctx, square, NULL, 1, &type, NULL, 1, &loss), TOW_OK);
    assert_int_equal(tow_grad(loss, 1, (const size_t[]){0}, false, &gradient), TOW_OK);
    assert_int_equal(tow_compile(f->ctx, gradient, &TOW_COMPILE_OPTIONS(.memory_limit = 1), &p), TOW_INVALID_ARGUMENT);
    const size_t least = expect_sums(tow_context_error(f->ctx), false);
    assert_true(least >= 2 * 1024);
    assert_message(f, "the least that is possible is inputs 1024, outputs 1024, constants ");
    tow_graph_release(gradient);
    tow_graph_release(loss);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bytes_of_a_scan, setup, teardown),
        cmocka_unit_test_setup_teardown(bytes_of_all_kinds, setup, teardown),
        cmocka_unit_test_setup_teardown(gradients_are_a_kind, setup, teardown),
        cmocka_unit_test_setup_teardown(bytes_of_a_gradient, setup, teardown),
    };
    return cmocka_run_group_tests_name("refuse_limit", tests, NULL, NULL);
}
