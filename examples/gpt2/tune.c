/* Fine-tuning on a text, with LoRA or of all parameters; the model is written under Hugging Face's names. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/progress.h"
#include "run.h"

typedef struct tuning {
    gpt2_run *r;
    tow_lora lora;      /* around the model */
    tow_params *params; /* those of the file, whose arrays they are, and the updates of LoRA */
    tow_loader *loader;
    tow_model_function *losses;
    tow_clip_by_global_norm clip;
    tow_scale_by_adam adam;
    tow_scale_by_learning_rate rate;
    const tow_gradient_transform *transforms[3];
    tow_chain chain;
    tow_optimizer_state *optimizer;
    int64_t done;
    double *steps, *loss; /* [options.steps] of the picture */
} tuning;

static const char *const of_lora[] = {"**LoRA**", NULL};

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
static tow_array *read_tokens(gpt2_run *r)
{
    size_t length = 0;
    char *text = read_file(r->text, &length);
    tow_encoding *encoding = NULL;
    tow_array *array = NULL;
    if (!text) return NULL;
    if (tow_encoding_create(r->base.context, &encoding) == TOW_OK &&
        tow_tokenizer_encode(r->tokenizer, text, length, NULL, encoding) == TOW_OK) {
        const int64_t count = (int64_t)tow_encoding_count(encoding);
        const int32_t none = 0;
        const tow_type type = tow_make_type(TOW_I32, 1, &count);
        tow_array_from_data(r->base.context, type, count > 0 ? tow_encoding_ids(encoding) : &none, &array);
    }
    if (!array) complain(&r->base);
    tow_encoding_free(encoding);
    free(text);
    return array;
}

/* Windows at random places; labels are the tokens one place later. */
static int make_loader(tuning *t)
{
    gpt2_run *r = t->r;
    tow_array *tokens = read_tokens(r);
    tow_source *stream = NULL, *windows = NULL;
    int status = FAILURE;
    if (!tokens) return FAILURE;
    if (tow_source_array(r->base.context, tokens, &stream) == TOW_OK &&
        tow_source_windows(stream, r->context_length, 1, 1, &windows) == TOW_OK) {
        const tow_field fields[] = {{.source = windows, .keep_type = true},
                                    {.source = windows, .keep_type = true, .ahead = 1}};
        const tow_loader_options options = TOW_LOADER_OPTIONS(.n_fields = 2, .fields = fields, .batch = r->batch,
                                                              .seed = r->base.options.seed, .shuffle = true);
        if (tow_loader_create(r->base.context, &options, &t->loader) == TOW_OK) status = SUCCESS;
    }
    if (status != SUCCESS) complain(&r->base);
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

/* With LoRA the parameters of the file are frozen, and an update of low rank beside each kernel is trained. */
static tow_status make_params(tuning *t)
{
    gpt2_run *r = t->r;
    const tow_type tokens = tow_loader_type(t->loader, 0);
    tow_params *drawn = NULL;
    t->lora = TOW_LORA(&r->model, .rank = r->rank, .alpha = 2 * (double)r->rank);
    const tow_module *model = r->full ? TOW_MODULE(&r->model) : TOW_MODULE(&t->lora);
    tow_status status = tow_model_init(r->base.context, model, r->base.options.seed, 1, &tokens, &drawn);
    if (!status) status = tow_params_merge(r->params, drawn, TOW_MERGE_FIRST, &t->params);
    tow_params_free(drawn);
    if (status || r->full) return status;
    status = tow_params_freeze(t->params, NULL, true);
    return status ? status : tow_params_freeze(t->params, of_lora, false);
}

static tow_status make_optimizer(tuning *t)
{
    const common_options *o = &t->r->base.options;
    t->clip = TOW_CLIP_BY_GLOBAL_NORM(.max_norm = 1);
    t->adam = TOW_SCALE_BY_ADAM();
    t->rate = TOW_SCALE_BY_LEARNING_RATE(.schedule = tow_schedule_warmup_cosine(0, o->learning_rate, o->steps / 10,
                                                                                o->steps, 0));
    t->transforms[0] = TOW_GRADIENT_TRANSFORM(&t->clip);
    t->transforms[1] = TOW_GRADIENT_TRANSFORM(&t->adam);
    t->transforms[2] = TOW_GRADIENT_TRANSFORM(&t->rate);
    t->chain = (tow_chain){.base = {&tow_chain_class, sizeof(tow_chain)}, .transforms = t->transforms, .n = 3};
    return tow_optimizer_create(t->r->base.context, TOW_GRADIENT_TRANSFORM(&t->chain), t->params, NULL, &t->optimizer);
}

static int prepare(tuning *t)
{
    const gpt2_run *r = t->r;
    const tow_model_function_options options = TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 2, .loss = mean_loss);
    const tow_module *model = r->full ? TOW_MODULE(&r->model) : TOW_MODULE(&t->lora);
    tow_status status = make_params(t);
    if (!status) status = tow_model_function_create_value_and_grad(model, t->params, &options, &t->losses);
    if (!status) status = make_optimizer(t);
    return status ? complain(&r->base) : SUCCESS;
}

static int step(tuning *t, progress *p)
{
    const gpt2_run *r = t->r;
    tow_array *const *batch;
    tow_model_results results;
    tow_status status = tow_loader_next(t->loader, &batch);
    if (!status) status = tow_model_function_call(t->losses, &TOW_MODEL_ARGUMENTS(.inputs = batch), &results);
    if (!status) status = tow_optimizer_update_params(t->optimizer, results.gradients);
    if (status) return complain(&r->base);
    t->loss[t->done++] = results.loss;
    t->steps[t->done - 1] = (double)t->done;
    return progress_step(p, t->done, results.loss, NAN) ? SUCCESS : FAILURE;
}

static int train(tuning *t)
{
    const gpt2_run *r = t->r;
    const progress_options shown = {.program = "gpt2",
                                    .steps = r->base.options.steps,
                                    .unit = "tokens",
                                    .units_per_step = r->batch * r->context_length,
                                    .log = r->base.options.log};
    progress p;
    int status = SUCCESS;
    printf("training %lld parameters%s\n", (long long)tow_params_element_count(t->params, r->full ? NULL : of_lora),
           r->full ? "" : " of adapters; those of the model are frozen");
    if (!progress_start(&p, &shown)) return FAILURE;
    while (status == SUCCESS && !interrupted() && t->done < r->base.options.steps) status = step(t, &p);
    if (!progress_end(&p) && status == SUCCESS) status = FAILURE;
    if (status == SUCCESS && interrupted()) printf("stopped after step %lld\n", (long long)t->done);
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
    char *path = path_in("gpt2", t->r->base.options.out, "loss.svg");
    const tow_series series = {.name = NULL, .n = (size_t)t->done, .x = t->steps, .y = t->loss};
    const tow_chart chart =
        TOW_CHART(.title = t->r->full ? "Training GPT-2" : "Fine-tuning GPT-2 with LoRA", .x_label = "step",
                  .y_label = "loss", .n_series = 1, .series = &series, .smoothing = 0.8);
    const bool good = path && tow_chart_write(t->r->base.context, path, &chart) == TOW_OK;
    free(path);
    return good ? SUCCESS : complain(&t->r->base);
}

/* The model: weights under Hugging Face's names, config.json and tokenizer.json. */
static int export(tuning *t)
{
    gpt2_run *r = t->r;
    char *directory = path_in("gpt2", r->base.options.out, "model");
    char *path =
        directory && make_directory("gpt2", directory) ? path_in("gpt2", directory, "model.safetensors") : NULL;
    const tow_weight_mapping_options type =
        TOW_WEIGHT_MAPPING_OPTIONS(.convert = true, .dtype = r->bf16 ? TOW_BF16 : TOW_F32);
    int status = FAILURE;
    tow_status folded =
        t->r->full ? TOW_OK : tow_lora_merge(t->params, t->lora.alpha); /* into the arrays of r->params */
    if (path && !folded && tow_weight_mapping_save_file(r->mapping, r->params, path, &type, NULL) == TOW_OK) {
        status = copy_file(r->directory, directory, "config.json");
        if (status == SUCCESS) status = copy_file(r->directory, directory, "tokenizer.json");
        if (status == SUCCESS) printf("model for transformers: %s\n", directory);
    } else if (path) {
        complain(&r->base);
    }
    free(path);
    free(directory);
    return status;
}

int tune(gpt2_run *r)
{
    tuning t = {.r = r,
                .steps = calloc((size_t)r->base.options.steps, sizeof(double)),
                .loss = calloc((size_t)r->base.options.steps, sizeof(double))};
    int status = t.steps && t.loss && make_directory("gpt2", r->base.options.out) ? make_loader(&t) : FAILURE;
    if (status == SUCCESS) status = prepare(&t);
    if (status == SUCCESS) status = train(&t);
    if (status == SUCCESS) status = draw(&t);
    if (status == SUCCESS) status = export(&t);
    tow_optimizer_free(t.optimizer);
    tow_model_function_free(t.losses);
    tow_params_free(t.params);
    tow_loader_free(t.loader);
    free(t.steps);
    free(t.loss);
    return status;
}
