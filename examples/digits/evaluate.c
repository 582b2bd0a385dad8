/* Accuracy, confusion, pictures. */
#include "evaluate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/common.h"

enum {
    ZOOM = 8
};

/* ---- the program ------------------------------------------------------------------------------------------------- */

static tow_status compile(evaluation *e, const tow_module *model, const tow_train_state *state)
{
    const tow_params *params = tow_train_params(state), *variables = tow_train_variables(state);
    const tow_model_options options = TOW_MODEL_OPTIONS(.deterministic = true, .state = variables);
    const tow_type images = tow_array_type(e->images);
    const size_t n_params = tow_params_count(params), n_variables = tow_params_count(variables);
    tow_graph *graph = NULL;
    tow_status status = tow_model_forward_graph(model, params, 1, &images, &options, &graph);
    if (!status) status = tow_compile(e->context, graph, NULL, &e->program);
    tow_graph_release(graph);
    if (status) return status;
    e->inputs = malloc((n_params + n_variables + 1) * sizeof(tow_array *));
    if (!e->inputs) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < n_params; i++) e->inputs[e->n_inputs++] = tow_params_array(params, i);
    for (size_t i = 0; i < n_variables; i++) e->inputs[e->n_inputs++] = tow_params_array(variables, i);
    e->inputs[e->n_inputs++] = e->images;
    return TOW_OK;
}

tow_status evaluation_create(tow_context *context, tow_loader *held_out, const tow_module *model,
                             const tow_train_state *state, evaluation *e)
{
    *e = (evaluation){.context = context, .n = tow_loader_row_count(held_out)};
    tow_array *const *batch;
    tow_status status = tow_loader_next(held_out, &batch);
    if (!status) status = tow_array_create(context, tow_make_type(TOW_F32, 2, (int64_t[]){e->n, CLASSES}), &e->logits);
    if (status) return status;
    e->images = batch[0];
    e->labels = batch[1];
    return compile(e, model, state);
}

void evaluation_free(evaluation *e)
{
    tow_program_free(e->program);
    free(e->inputs);
    tow_array_release(e->logits);
    free(e->steps);
    free(e->accuracies);
}

/* ---- accuracy and confusion -------------------------------------------------------------------------------------- */

static int label_of(const evaluation *e, int64_t i) { return (int)((const int32_t *)tow_array_data(e->labels))[i]; }

static int prediction_of(const evaluation *e, int64_t i)
{
    const float *logits = (const float *)tow_array_data(e->logits) + i * CLASSES;
    int best = 0;
    for (int c = 1; c < CLASSES; c++)
        if (logits[c] > logits[best]) best = c;
    return best;
}

tow_status evaluate(evaluation *e)
{
    tow_status status = tow_program_run(e->program, e->inputs, &e->logits);
    int64_t right = 0;
    memset(e->confusion, 0, sizeof e->confusion);
    for (int64_t i = 0; i < e->n; i++) {
        e->confusion[label_of(e, i)][prediction_of(e, i)]++;
        right += label_of(e, i) == prediction_of(e, i);
    }
    e->accuracy = (double)right / (double)e->n;
    return status;
}

bool evaluation_note(evaluation *e, int64_t step)
{
    if (e->n_points == e->capacity) {
        const size_t capacity = 2 * e->capacity + 16;
        double *steps = realloc(e->steps, capacity * sizeof *steps);
        if (steps) e->steps = steps;
        double *accuracies = realloc(e->accuracies, capacity * sizeof *accuracies);
        if (accuracies) e->accuracies = accuracies;
        if (!steps || !accuracies) {
            fprintf(stderr, "digits: out of memory\n");
            return false;
        }
        e->capacity = capacity;
    }
    e->steps[e->n_points] = (double)step;
    e->accuracies[e->n_points++] = e->accuracy;
    return true;
}

void evaluation_print(const evaluation *e)
{
    printf("\naccuracy on %lld held-out digits: %.2f %%\n\nlabel    read as\n      ", (long long)e->n,
           100 * e->accuracy);
    for (int c = 0; c < CLASSES; c++) printf("%4d", c);
    putchar('\n');
    for (int label = 0; label < CLASSES; label++) {
        printf("%5d ", label);
        for (int c = 0; c < CLASSES; c++)
            if (e->confusion[label][c] > 0)
                printf("%4lld", (long long)e->confusion[label][c]);
            else
                fputs("   .", stdout);
        putchar('\n');
    }
    putchar('\n');
}

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

static tow_status write_grid(tow_context *context, tow_array *images, const tow_grid_options *options,
                             const char *directory, const char *name)
{
    tow_array *pixels = NULL;
    char *path = path_in("digits", directory, name);
    tow_status status = path ? tow_image_grid(context, images, options, &pixels) : TOW_OUT_OF_MEMORY;
    if (!status) status = tow_png_write(context, path, pixels);
    tow_array_release(pixels);
    free(path);
    return status;
}

/* The images that are misread, if any are. */
static tow_status draw_misread(const evaluation *e, const char *directory)
{
    const float *from = tow_array_data(e->images);
    int64_t n = 0, dims[] = {0, SIDE, SIDE};
    for (int64_t i = 0; i < e->n; i++) dims[0] += label_of(e, i) != prediction_of(e, i);
    if (dims[0] == 0) return TOW_OK;
    tow_array *images = NULL;
    tow_status status = tow_array_create(e->context, tow_make_type(TOW_F32, 3, dims), &images);
    for (int64_t i = 0; i < e->n && !status; i++) {
        if (label_of(e, i) == prediction_of(e, i)) continue;
        printf("misread %lld: a %d as a %d\n", (long long)n + 1, label_of(e, i), prediction_of(e, i));
        memcpy((float *)tow_array_data(images) + n++ * SIDE * SIDE, from + i * SIDE * SIDE, SIDE * SIDE * sizeof *from);
    }
    const tow_grid_options grid = TOW_GRID_OPTIONS(.columns = 10, .zoom = ZOOM, .ground = 96);
    if (!status) status = write_grid(e->context, images, &grid, directory, "misread.png");
    tow_array_release(images);
    return status;
}

/* The kernel [3, 3, 1, 32] of the first convolution as 32 images; gray is zero. */
static tow_status draw_filters(const evaluation *e, const tow_train_state *state, const char *directory)
{
    const tow_array *kernel = tow_params_find(tow_train_params(state), "block1/conv/kernel");
    if (!kernel) return TOW_NOT_FOUND;
    const tow_type type = tow_array_type(kernel);
    const int64_t area = type.dims[0] * type.dims[1], features = type.dims[3];
    const float *from = tow_array_data(kernel);
    tow_array *images = NULL;
    tow_status status = tow_array_create(
        e->context, tow_make_type(TOW_F32, 3, (int64_t[]){features, type.dims[0], type.dims[1]}), &images);
    if (status) return status;
    for (int64_t i = 0; i < area; i++)
        for (int64_t f = 0; f < features; f++) ((float *)tow_array_data(images))[f * area + i] = from[i * features + f];
    const tow_grid_options grid =
        TOW_GRID_OPTIONS(.columns = 8, .zoom = 2 * ZOOM, .gap = ZOOM, .low = -1, .high = 1, .ground = 255);
    status = write_grid(e->context, images, &grid, directory, "filters.png");
    tow_array_release(images);
    return status;
}

tow_status evaluation_draw(const evaluation *e, const tow_train_state *state, const char *directory)
{
    const tow_series curve = {.n = e->n_points, .x = e->steps, .y = e->accuracies};
    const tow_chart chart =
        TOW_CHART(.title = "Accuracy on held-out digits", .x_label = "step", .n_series = 1, .series = &curve);
    char *path = path_in("digits", directory, "accuracy.svg");
    tow_status status = path ? tow_chart_write(e->context, path, &chart) : TOW_OUT_OF_MEMORY;
    free(path);
    if (!status) status = draw_misread(e, directory);
    return status ? status : draw_filters(e, state, directory);
}
