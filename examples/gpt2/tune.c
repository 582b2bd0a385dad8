/* Fine-tuning on a text, with LoRA or of all parameters; the model is written under Hugging Face's names. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/progress.h"
#include "lora.h"
#include "run.h"

typedef struct tuning {
    run *r;
    tow_graph *losses;
    lora model;
    tow_loader *loader;
    tow_train_state *state;
    tow_array *inputs[GPT2_ARRAYS + 2]; /* the base, of LoRA; tokens, labels */
    size_t n_base;
    double *steps, *loss; /* [options.steps] of the picture */
} tuning;

/* ---- data -------------------------------------------------------------------------------------------------------- */

static char *read_file(const char *path, size_t *length)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    if (file && fseek(file, 0, SEEK_END) == 0) {
        const long size = ftell(file);
        text = size >= 0 ? malloc((size_t)size + 1) : NULL;
        rewind(file);
        *length = text ? fread(text, 1, (size_t)size, file) : 0;
    }
    if (file) fclose(file);
    if (!text) fprintf(stderr, "gpt2: cannot read %s\n", path);
    return text;
}

/* All tokens of the text, i32 [n]. */
static tow_array *read_tokens(run *r)
{
    size_t length = 0;
    char *text = read_file(r->text, &length);
    tow_encoding *encoding = NULL;
    tow_array *array = NULL;
    if (!text) return NULL;
    if (tow_encoding_create(r->context, &encoding) == TOW_OK &&
        tow_tokenizer_encode(r->tokenizer, text, length, NULL, encoding) == TOW_OK) {
        const int64_t count = (int64_t)tow_encoding_count(encoding);
        const int32_t none = 0;
        const tow_type type = tow_make_type(TOW_I32, 1, &count);
        tow_array_from_data(r->context, type, count > 0 ? tow_encoding_ids(encoding) : &none, &array);
    }
    if (!array) complain(r);
    tow_encoding_free(encoding);
    free(text);
    return array;
}

/* Windows at random places; labels are the tokens one place later. */
static int make_loader(tuning *t)
{
    run *r = t->r;
    tow_array *tokens = read_tokens(r);
    tow_source *stream = NULL, *windows = NULL;
    int status = FAILURE;
    if (!tokens) return FAILURE;
    if (tow_source_array(r->context, tokens, &stream) == TOW_OK &&
        tow_source_windows(stream, r->context_length, 1, 1, &windows) == TOW_OK) {
        const tow_field fields[] = {{.source = windows, .keep_type = true},
                                    {.source = windows, .keep_type = true, .ahead = 1}};
        const tow_loader_options options = {
            .n_fields = 2, .fields = fields, .batch = r->batch, .seed = r->options.seed, .shuffle = true};
        if (tow_loader_create(r->context, &options, &t->loader) == TOW_OK) status = SUCCESS;
    }
    if (status != SUCCESS) complain(r);
    tow_source_release(windows);
    tow_source_release(stream);
    tow_array_release(tokens);
    return status;
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

static void mean_loss(tow_trace *trace, const tow_value *losses, const tow_value *extra, tow_value *loss,
                      tow_value *aux, void *user)
{
    (void)trace, (void)extra, (void)aux, (void)user;
    *loss = tow_mean(losses[0], 0, NULL);
}

/* All parameters are trained: those of the file go into the training state. */
static tow_status start_full(tuning *t, tow_train_options *options, const tow_type *batch)
{
    run *r = t->r;
    options->n_inputs = 2;
    options->input_types = batch;
    const tow_status status = tow_train_create(r->context, TOW_MODULE(&r->model), options, &t->state);
    return status != TOW_OK ? status : tow_params_assign(tow_train_params(t->state), r->params);
}

/* The parameters of the file are inputs of a model whose parameters are the adapters. */
static tow_status start_lora(tuning *t, tow_train_options *options, const tow_type *batch)
{
    run *r = t->r;
    tow_type types[GPT2_ARRAYS + 2];
    const size_t n = tow_params_count(r->params);
    tow_status status = tow_forward(TOW_MODULE(&r->model), r->params, 2, batch, NULL, &t->losses);
    if (status != TOW_OK) return status;
    for (size_t i = 0; i < n; i++) types[i] = tow_array_type(t->inputs[i] = tow_params_array(r->params, i));
    types[n] = batch[0];
    types[n + 1] = batch[1];
    t->n_base = n;
    lora_make(&t->model, r->params, t->losses, r->rank, 2 * (double)r->rank);
    options->n_inputs = n + 2;
    options->input_types = types;
    return tow_train_create(r->context, TOW_MODULE(&t->model), options, &t->state);
}

static int make_state(tuning *t)
{
    run *r = t->r;
    const tow_type batch[2] = {tow_loader_type(t->loader, 0), tow_loader_type(t->loader, 1)};
    const int64_t steps = r->options.steps;
    tow_train_options options = {
        .optimizer = {.learning_rate = tow_schedule_warmup_cosine(0, r->options.learning_rate, steps / 10, steps, 0),
                      .clip_norm = 1},
        .seed = r->options.seed,
        .loss = mean_loss};
    return (r->full ? start_full : start_lora)(t, &options, batch) == TOW_OK ? SUCCESS : complain(r);
}

static int step(tuning *t, progress *p)
{
    run *r = t->r;
    tow_array *const *batch;
    const int64_t done = tow_train_step_number(t->state);
    double loss;
    if (tow_loader_next(t->loader, &batch) != TOW_OK) return complain(r);
    t->inputs[t->n_base] = batch[0];
    t->inputs[t->n_base + 1] = batch[1];
    if (tow_train_step(t->state, t->inputs, &loss) != TOW_OK) return complain(r);
    t->steps[done] = (double)(done + 1);
    t->loss[done] = loss;
    return progress_step(p, done + 1, loss, NAN) ? SUCCESS : FAILURE;
}

static int train(tuning *t)
{
    const run *r = t->r;
    const progress_options shown = {.program = "gpt2",
                                    .steps = r->options.steps,
                                    .unit = "tokens",
                                    .units_per_step = r->batch * r->context_length,
                                    .log = r->options.log};
    progress p;
    int status = SUCCESS;
    printf("training %lld parameters%s\n", (long long)tow_params_elements(tow_train_params(t->state)),
           r->full ? "" : " of adapters; those of the model are frozen");
    if (!progress_start(&p, &shown)) return FAILURE;
    while (status == SUCCESS && !interrupted() && tow_train_step_number(t->state) < r->options.steps)
        status = step(t, &p);
    if (!progress_end(&p) && status == SUCCESS) status = FAILURE;
    return status;
}

/* ---- what it leaves ---------------------------------------------------------------------------------------------- */

static int copy_file(const char *from_directory, const char *to_directory, const char *name)
{
    char *from = path_in("gpt2", from_directory, name), *to = path_in("gpt2", to_directory, name);
    size_t length = 0;
    char *text = from ? read_file(from, &length) : NULL;
    FILE *file = text && to ? fopen(to, "wb") : NULL;
    bool good = file && fwrite(text, 1, length, file) == length;
    if (file && fclose(file) != 0) good = false;
    if (text && !good) fprintf(stderr, "gpt2: cannot write %s\n", to ? to : name);
    free(text);
    free(from);
    free(to);
    return good ? SUCCESS : FAILURE;
}

static int draw(const tuning *t)
{
    char *path = path_in("gpt2", t->r->options.out, "loss.svg");
    const tow_series series = {.name = NULL, .n = (size_t)tow_train_step_number(t->state), .x = t->steps, .y = t->loss};
    const tow_chart chart = {.title = t->r->full ? "Training GPT-2" : "Fine-tuning GPT-2 with LoRA",
                             .x_label = "step",
                             .y_label = "loss",
                             .n_series = 1,
                             .series = &series,
                             .smoothing = 0.8};
    const bool good = path && tow_chart_write(path, &chart, t->r->context) == TOW_OK;
    free(path);
    return good ? SUCCESS : complain(t->r);
}

/* What was trained goes into the parameters of the model. */
static tow_status take_over(tuning *t)
{
    const tow_params *trained = tow_train_params(t->state);
    return t->r->full ? tow_params_assign(t->r->params, trained) : lora_merge(&t->model, trained);
}

/* The model: weights under Hugging Face's names, config.json and tokenizer.json. */
static int export(tuning *t)
{
    run *r = t->r;
    char *directory = path_in("gpt2", r->options.out, "model");
    char *path =
        directory && make_directory("gpt2", directory) ? path_in("gpt2", directory, "model.safetensors") : NULL;
    const tow_mapping_options type = {.convert = true, .dtype = r->bf16 ? TOW_BF16 : TOW_F32};
    int status = FAILURE;
    if (path && take_over(t) == TOW_OK && tow_mapping_save_file(r->mapping, r->params, path, &type, NULL) == TOW_OK) {
        status = copy_file(r->directory, directory, "config.json");
        if (status == SUCCESS) status = copy_file(r->directory, directory, "tokenizer.json");
        if (status == SUCCESS) printf("model for transformers: %s\n", directory);
    } else if (path) {
        complain(r);
    }
    free(path);
    free(directory);
    return status;
}

int tune(run *r)
{
    tuning t = {.r = r,
                .steps = calloc((size_t)r->options.steps, sizeof(double)),
                .loss = calloc((size_t)r->options.steps, sizeof(double))};
    int status = t.steps && t.loss && make_directory("gpt2", r->options.out) ? make_loader(&t) : FAILURE;
    if (status == SUCCESS) status = make_state(&t);
    if (status == SUCCESS) status = train(&t);
    if (status == SUCCESS) status = draw(&t);
    if (status == SUCCESS) status = export(&t);
    tow_train_free(t.state);
    tow_loader_free(t.loader);
    tow_graph_release(t.losses);
    free(t.steps);
    free(t.loss);
    return status;
}
