/* Training does not depend on the axis on which layers are stacked: parameters, variables, slots, averages and
 * checkpoints have the bits of axis 0, whatever the optimizer does by layer.
 * Tests layer_path.c. */
#include "tests/unit/support/training.h"

enum {
    WIDTH = 4
};

#define LIST_OF(...)                                                                                                   \
    {                                                                                                                  \
        __VA_ARGS__, NULL                                                                                              \
    }

static const tow_clip_by_global_norm clip = {{&tow_clip_by_global_norm_class, sizeof(tow_clip_by_global_norm)}, 0.25};
static const tow_scale_by_adam adam = {.base = {&tow_scale_by_adam_class, sizeof(tow_scale_by_adam)}};
static const tow_scale_by_factored_rms factored = {
    .base = {&tow_scale_by_factored_rms_class, sizeof(tow_scale_by_factored_rms)}, .min_dim_size_to_factor = 2};
static const tow_clip_by_block_rms block_clip = {.base = {&tow_clip_by_block_rms_class, sizeof(tow_clip_by_block_rms)}};
static const tow_scale_by_param_block_rms block_rms = {
    .base = {&tow_scale_by_param_block_rms_class, sizeof(tow_scale_by_param_block_rms)}};
static const tow_scale_by_trust_ratio trust = {
    .base = {&tow_scale_by_trust_ratio_class, sizeof(tow_scale_by_trust_ratio)}};
static const tow_scale_by_muon muon = {.base = {&tow_scale_by_muon_class, sizeof(tow_scale_by_muon)}};
static const tow_add_decayed_weights decay = {
    {&tow_add_decayed_weights_class, sizeof(tow_add_decayed_weights)}, 0.1, false}; /* by rank */
static const tow_scale_by_learning_rate rate = {{&tow_scale_by_learning_rate_class, sizeof(tow_scale_by_learning_rate)},
                                                {.peak_value = 0.01}};

static const struct {
    const char *name;
    const tow_gradient_transform *transforms[5];
    bool of_all; /* needs all gradients */
} optimizers[] = {
    {"adamw", LIST_OF(&clip.base, &adam.base, &decay.base, &rate.base), true},
    {"lamb", LIST_OF(&adam.base, &decay.base, &trust.base, &rate.base), false},
    {"adafactor", LIST_OF(&factored.base, &block_clip.base, &block_rms.base, &rate.base), false},
    {"muon", LIST_OF(&muon.base, &decay.base, &rate.base), false},
};

/* A scan of scans: [2, 3] layers, each an MLP of matrices that are not square, and a running mean. */
typedef struct layers {
    tow_mlp mlp;
    tow_batch_norm norm;
    const tow_module *list[2];
    tow_sequential layer;
    tow_scan inner, outer;
} layers;

static const tow_module *make_layers(layers *l, const tow_lift_rule *outer, const tow_lift_rule *inner)
{
    l->mlp = TOW_MLP(.features = {6, WIDTH});
    l->norm = TOW_BATCH_NORM(.momentum = 0.5);
    l->list[0] = TOW_MODULE(&l->mlp);
    l->list[1] = TOW_MODULE(&l->norm);
    l->layer =
        (tow_sequential){.module = {&tow_sequential_class, sizeof(tow_sequential)}, .layers = l->list, .n_layers = 2};
    l->inner = TOW_SCAN(&l->layer, .length = 3, .variables = inner);
    l->outer = TOW_SCAN(&l->inner, .length = 2, .variables = outer);
    return TOW_MODULE(&l->outer);
}

static const tow_lift_rule first[] = {{"**", TOW_STACKED, 1}, {0}}, last[] = {{"**", TOW_STACKED, -1}, {0}},
                           kernels[] = {{"params/**/kernel", TOW_STACKED, 2}, {0}};
static const struct {
    const tow_lift_rule *outer, *inner;
} axes[] = {{first, first}, {last, NULL}, {NULL, last}, {last, first}, {NULL, kernels}, {kernels, last}};

/* The transforms of an optimizer: those of Muon for kernels only. */
typedef struct transforms {
    tow_chain chain;
    tow_partition_rule rules[2];
    tow_partition partition;
} transforms;

static const tow_gradient_transform *make_transforms(transforms *t, size_t which)
{
    t->chain = (tow_chain){.base = {&tow_chain_class, sizeof(tow_chain)}, .transforms = optimizers[which].transforms};
    while (t->chain.transforms[t->chain.n]) t->chain.n++;
    t->rules[0] = (tow_partition_rule){"**/kernel", &t->chain.base};
    t->rules[1] = (tow_partition_rule){"**", NULL};
    t->partition = (tow_partition){{&tow_partition_class, sizeof(tow_partition)}, t->rules, 2};
    return strcmp(optimizers[which].name, "muon") == 0 ? &t->partition.base : &t->chain.base;
}

static training train(const fixture *f, const tow_lift_rule *outer, const tow_lift_rule *inner,
                      const tow_gradient_transform *transform, bool early)
{
    layers l;
    return start(f->ctx, make_layers(&l, outer, inner), WIDTH, WIDTH,
                 TOW_TRAIN_OPTIONS(.transform = transform, .seed = 3,
                                   .average = early ? NULL : &TOW_AVERAGE_OPTIONS(.decay = 0.9), .check_finite = !early,
                                   .early_update = early));
}

/* Steps give files of the same bytes; and a run goes on from the file of the other one. */
static void checkpoints_do_not_know_the_axis(void **fixture_)
{
    fixture *f = *fixture_;
    for (size_t which = 0; which < sizeof optimizers / sizeof *optimizers; which++)
        for (int early = 0; early < 2; early++) {
            transforms t;
            const tow_gradient_transform *transform = make_transforms(&t, which);
            if (early && optimizers[which].of_all) continue;
            training plain = train(f, NULL, NULL, transform, early);
            save(f, &plain, f->b);
            step(&plain, 3);
            save(f, &plain, f->a);
            for (size_t k = 0; k < sizeof axes / sizeof *axes; k++) {
                training moved = train(f, axes[k].outer, axes[k].inner, transform, early);
                step(&moved, 3);
                save(f, &moved, f->b);
                assert_equal_files(f->a, f->b);
                stop(&moved);
            }
            step(&plain, 2);
            save(f, &plain, f->b);
            training moved = train(f, first, last, transform, early);
            assert_int_equal(tow_train_load(moved.state, f->a), TOW_OK);
            step(&moved, 2);
            save(f, &moved, f->a);
            assert_equal_files(f->a, f->b);
            if (!early) assert_true(tow_train_gradient_norm(moved.state) == tow_train_gradient_norm(plain.state));
            stop(&moved);
            stop(&plain);
        }
}

/* Slots have their layers in front; of parameters that differ in the axis only, no two can be told apart there. */
static void slots_have_layers_in_front(void **fixture_)
{
    fixture *f = *fixture_;
    transforms t;
    training moved = train(f, first, last, make_transforms(&t, 1), false);
    const tow_params *mu = tow_optimizer_slot(tow_train_optimizer(moved.state), 0);
    const tow_type kernel = tow_make_type(TOW_F32, 4, (int64_t[]){WIDTH, 2, 6, 3}),
                   slot = tow_make_type(TOW_F32, 4, (int64_t[]){2, 3, WIDTH, 6});
    tow_array *p = tow_params_find(tow_train_params(moved.state), "{@1}/{@-1}/layers_0/Dense_0/kernel");
    tow_array *m = tow_params_find(mu, "{}/{}/layers_0/Dense_0/kernel");
    assert_true(p && tow_type_equal(tow_array_type(p), kernel));
    assert_true(m && tow_type_equal(tow_array_type(m), slot));
    stop(&moved);

    tow_array *arrays[2] = {exact_fractions(f->ctx, 2, 2), exact_fractions(f->ctx, 2, 2)};
    tow_params *params = NULL;
    tow_optimizer_state *state;
    assert_int_equal(tow_params_from_arrays(f->ctx, 2, (const char *const[]){"a/{}/w", "a/{@1}/w"}, arrays, &params),
                     TOW_OK);
    assert_int_equal(tow_optimizer_create(f->ctx, &adam.base, params, NULL, &state), TOW_INVALID_ARGUMENT);
    assert_message(f, "a/{@1}/w: another parameter differs from it in the axis of layers only");
    tow_params_free(params);
    tow_array_release(arrays[0]);
    tow_array_release(arrays[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(checkpoints_do_not_know_the_axis, setup, teardown),
        cmocka_unit_test_setup_teardown(slots_have_layers_in_front, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
