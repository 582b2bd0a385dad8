/* See trainer.h. A step takes every image with the same probability, independently of the others, as the accounting
 * demands; so the number of images differs from step to step, and they go through the program in chunks, of which the
 * last one is filled up with images that are not present. */
#include "trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK = 64 /* images whose gradients are made at once */
};

/* ---- the model --------------------------------------------------------------------------------------------------- */

static void cross_entropy(tow_trace *trace, const tow_value *outputs, const tow_value *labels, tow_value *loss,
                          tow_value *aux, void *user)
{
    (void)trace, (void)aux, (void)user;
    *loss = tow_softmax_cross_entropy(outputs[0], labels[0]);
}

static tow_type images_type(int64_t n) { return tow_make_type(TOW_F32, 2, (const int64_t[]){n, DIGITS_PIXELS}); }
static tow_type row_type(tow_dtype dtype, int64_t n) { return tow_make_type(dtype, 1, &n); }

/* Compiles the graph and drops it. */
static tow_status finish(trainer *t, tow_graph *graph, tow_program **program)
{
    tow_status status = tow_compile(t->context, graph, NULL, program);
    tow_graph_release(graph);
    return status;
}

/* (parameters..., sums..., images, labels, present) -> (loss, sums...) */
static tow_status make_sums(trainer *t)
{
    const tow_type image = row_type(TOW_F32, DIGITS_PIXELS), label = tow_make_type(TOW_I32, 0, NULL);
    size_t wrt[MAX_PARAMS];
    for (size_t i = 0; i < t->n_params; i++) wrt[i] = i;
    tow_graph *loss = NULL, *gradient = NULL, *sums = NULL;
    tow_status status = tow_model_loss_graph(TOW_MODULE(&t->model), t->params, 1, &image, 1, &label, cross_entropy,
                                             NULL, 0, NULL, &loss);
    if (!status) status = tow_value_and_grad(loss, t->n_params, wrt, false, &gradient);
    if (!status) status = dp_clipped_sums(t->context, gradient, t->params, CHUNK, &t->privacy, &sums);
    if (!status) status = finish(t, sums, &t->sums);
    tow_graph_release(gradient);
    tow_graph_release(loss);
    return status;
}

static tow_status make_programs(trainer *t)
{
    const tow_type held_out = images_type(t->data->held_out.n);
    tow_graph *graph = NULL;
    tow_status status = make_sums(t);
    if (!status) status = dp_noisy_means(t->context, t->params, &t->privacy, &graph);
    if (!status) status = finish(t, graph, &t->means);
    if (!status) status = dp_draws(t->context, t->data->training.n, &graph);
    if (!status) status = finish(t, graph, &t->draws);
    if (!status) status = tow_model_forward_graph(TOW_MODULE(&t->model), t->params, 1, &held_out, NULL, &graph);
    return status ? status : finish(t, graph, &t->forward);
}

/* ---- making and freeing ------------------------------------------------------------------------------------------ */

static tow_status make_arrays(trainer *t)
{
    const int64_t n_test = t->data->held_out.n;
    const struct {
        tow_array **array;
        tow_type type;
    } wanted[] = {{&t->key, row_type(TOW_U32, 2)},
                  {&t->draw, row_type(TOW_F32, t->data->training.n)},
                  {&t->images, images_type(CHUNK)},
                  {&t->labels, row_type(TOW_I32, CHUNK)},
                  {&t->present, row_type(TOW_F32, CHUNK)},
                  {&t->loss, tow_make_type(TOW_F32, 0, NULL)},
                  {&t->test_images, images_type(n_test)},
                  {&t->test_labels, row_type(TOW_I32, n_test)},
                  {&t->logits, tow_make_type(TOW_F32, 2, (const int64_t[]){n_test, DIGITS_CLASSES})}};
    tow_status status = TOW_OK;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted && !status; i++)
        status = tow_array_create(t->context, wanted[i].type, wanted[i].array);
    for (size_t i = 0; i < t->n_params && !status; i++) {
        tow_type type = tow_array_type(tow_params_array(t->params, i));
        status = tow_array_create(t->context, type, &t->sum[0][i]);
        if (!status) status = tow_array_create(t->context, type, &t->sum[1][i]);
        if (!status) status = tow_array_create(t->context, type, &t->mean[i]);
    }
    for (int64_t i = 0; i < n_test && !status; i++)
        digits_copy(&t->data->held_out, i, i, t->test_images, t->test_labels);
    return status;
}

tow_status trainer_create(tow_context *context, const digits_data *data, uint64_t seed, double rate,
                          const dp_privacy *privacy, double learning_rate, trainer *t)
{
    const tow_type images = images_type(CHUNK);
    *t = (trainer){.context = context, .data = data, .seed = seed, .rate = rate, .privacy = *privacy};
    t->model = (tow_mlp)TOW_MLP(.features = {128, DIGITS_CLASSES}, .activation = tow_tanh);
    t->adam = (tow_scale_by_adam)TOW_SCALE_BY_ADAM();
    t->learning_rate =
        (tow_scale_by_learning_rate)TOW_SCALE_BY_LEARNING_RATE(.schedule = tow_schedule_constant(learning_rate));
    t->transforms[0] = TOW_GRADIENT_TRANSFORM(&t->adam);
    t->transforms[1] = TOW_GRADIENT_TRANSFORM(&t->learning_rate);
    t->chain = (tow_chain){.base = {&tow_chain_class, sizeof(tow_chain)}, .transforms = t->transforms, .n = 2};
    tow_status status = tow_model_init(context, TOW_MODULE(&t->model), seed, 1, &images, &t->params);
    if (status) return status;
    t->n_params = tow_params_count(t->params);
    if (!status) status = make_programs(t);
    if (!status) status = make_arrays(t);
    return status ? status
                  : tow_optimizer_create(context, TOW_GRADIENT_TRANSFORM(&t->chain), t->params, NULL, &t->optimizer);
}

void trainer_free(trainer *t)
{
    tow_optimizer_free(t->optimizer);
    for (size_t i = 0; i < t->n_params; i++) {
        tow_array_release(t->sum[0][i]);
        tow_array_release(t->sum[1][i]);
        tow_array_release(t->mean[i]);
    }
    tow_array *const arrays[] = {t->key,  t->draw,        t->images,      t->labels, t->present,
                                 t->loss, t->test_images, t->test_labels, t->logits};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) tow_array_release(arrays[i]);
    tow_program_free(t->draws);
    tow_program_free(t->sums);
    tow_program_free(t->means);
    tow_program_free(t->forward);
    tow_params_free(t->params);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* The key of draw `which` of step `step`. */
static void set_key(trainer *t, int64_t step, uint32_t which)
{
    uint32_t root[2], of_step[2];
    tow_random_host_key(t->seed, root);
    tow_random_host_fold_in(root, (uint32_t)step, of_step);
    tow_random_host_fold_in(of_step, which, tow_array_data(t->key));
}

/* Adds the clipped gradients of the chunk to sum[0]. */
static tow_status add_chunk(trainer *t, double *loss)
{
    tow_array *inputs[2 * MAX_PARAMS + 3], *outputs[MAX_PARAMS + 1] = {t->loss};
    size_t n = t->n_params;
    for (size_t i = 0; i < n; i++) {
        inputs[i] = tow_params_array(t->params, i);
        inputs[n + i] = t->sum[0][i];
        outputs[1 + i] = t->sum[1][i];
    }
    inputs[2 * n] = t->images;
    inputs[2 * n + 1] = t->labels;
    inputs[2 * n + 2] = t->present;
    tow_status status = tow_program_run(t->sums, inputs, outputs);
    if (status) return status;
    *loss += (double)*(const float *)tow_array_data(t->loss);
    for (size_t i = 0; i < n; i++) {
        tow_array *before = t->sum[0][i];
        t->sum[0][i] = t->sum[1][i];
        t->sum[1][i] = before;
    }
    return TOW_OK;
}

/* Clipped gradients of all images that the draws choose, in chunks. */
static tow_status add_chosen(trainer *t, int64_t *chosen, double *loss)
{
    const float *draw = tow_array_data(t->draw);
    float *present = tow_array_data(t->present);
    tow_status status = TOW_OK;
    int64_t filled = 0;
    for (int64_t i = 0; i < t->data->training.n && !status; i++) {
        if (!((double)draw[i] < t->rate)) continue;
        present[filled] = 1;
        digits_copy(&t->data->training, i, filled++, t->images, t->labels);
        ++*chosen;
        if (filled < CHUNK) continue;
        status = add_chunk(t, loss);
        filled = 0;
    }
    if (filled == 0 || status) return status;
    memset(present + filled, 0, (size_t)(CHUNK - filled) * sizeof *present);
    return add_chunk(t, loss);
}

static tow_status update(trainer *t)
{
    tow_array *inputs[MAX_PARAMS + 1];
    for (size_t i = 0; i < t->n_params; i++) inputs[i] = t->sum[0][i];
    inputs[t->n_params] = t->key;
    tow_status status = tow_program_run(t->means, inputs, t->mean);
    return status ? status : tow_optimizer_update(t->optimizer, t->mean);
}

tow_status trainer_step(trainer *t, double *loss)
{
    int64_t step = tow_optimizer_step_count(t->optimizer), chosen = 0;
    double sum = 0;
    for (size_t i = 0; i < t->n_params; i++)
        memset(tow_array_data(t->sum[0][i]), 0, tow_type_bytes(tow_array_type(t->sum[0][i])));
    set_key(t, step, 0);
    tow_status status = tow_program_run(t->draws, &t->key, &t->draw);
    if (!status) status = add_chosen(t, &chosen, &sum);
    set_key(t, step, 1);
    *loss = sum / (double)chosen; /* NAN without images, whose update is noise alone */
    return status ? status : update(t);
}

tow_status trainer_accuracy(trainer *t, double *accuracy)
{
    tow_array *inputs[MAX_PARAMS + 1];
    for (size_t i = 0; i < t->n_params; i++) inputs[i] = tow_params_array(t->params, i);
    inputs[t->n_params] = t->test_images;
    tow_status status = tow_program_run(t->forward, inputs, &t->logits);
    int64_t n = tow_array_type(t->test_labels).dims[0], right = 0;
    for (int64_t i = 0; i < n && !status; i++) {
        const float *logits = (const float *)tow_array_data(t->logits) + i * DIGITS_CLASSES;
        int best = 0;
        for (int c = 1; c < DIGITS_CLASSES; c++)
            if (logits[c] > logits[best]) best = c;
        right += best == ((const int32_t *)tow_array_data(t->test_labels))[i];
    }
    *accuracy = (double)right / (double)n;
    return status;
}
