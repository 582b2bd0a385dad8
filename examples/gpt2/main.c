/* Loads a GPT-2 of Hugging Face, compares its logits, generates text with a cache, and fine-tunes it with LoRA. The
 * result is written for transformers. Without options it takes the tiny model that comes with Tow; `gpt2 --help` lists
 * the options. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run.h"

static void read_options(int argc, char **argv, gpt2_run *r)
{
    *r = (gpt2_run){.base = {.program = "gpt2",
                             .purpose = "Runs and fine-tunes a GPT-2 of Hugging Face.",
                             .options = {.steps = 300, .learning_rate = 1e-2, .out = "out/gpt2"}},
                    .prompt = "A layer is a struct. ",
                    .tokens = 60,
                    .temperature = 0.7,
                    .top_p = 1,
                    .repetition_penalty = 1,
                    .beams = 1,
                    .batch = 8,
                    .context_length = 64,
                    .rank = 8};
    const example_option own[] = {
        {"model", "DIR", "config.json, model.safetensors and a tokenizer (the tiny model)", OPTION_PATH,
         (void *)&r->directory, 0, 0},
        {"check", "FILE", "Compare logits with those of this file (expected.safetensors of the model, if it is there)",
         OPTION_PATH, (void *)&r->check, 0, 0},
        {"prompt", "TEXT", "What generated text goes on with", OPTION_TEXT, (void *)&r->prompt, 0, 0},
        {"tokens", "N", "Tokens to generate", OPTION_WHOLE, &r->tokens, 1, 1 << 20},
        {"temperature", "X", "Of the draws", OPTION_REAL, &r->temperature, 0, 0},
        {"greedy", NULL, "Take the likeliest token", OPTION_FLAG, &r->greedy, 0, 0},
        {"top-k", "N", "Draw among so many tokens; 0: all", OPTION_WHOLE, &r->top_k, 0, 1 << 20},
        {"top-p", "X", "Draw among the likeliest tokens of this probability", OPTION_REAL, &r->top_p, 0, 0},
        {"repetition-penalty", "X", "Divide the logits of tokens that were there", OPTION_REAL, &r->repetition_penalty,
         0, 0},
        {"beams", "N", "Search with so many beams instead of drawing", OPTION_WHOLE, &r->beams, 1, 1024},
        {"until", "TEXT", "Stop when the generated text contains this", OPTION_TEXT, (void *)&r->until, 0, 0},
        {"no-training", NULL, "Do not fine-tune", OPTION_FLAG, &r->no_training, 0, 0},
        {"full", NULL, "Train all parameters instead of adapters", OPTION_FLAG, &r->full, 0, 0},
        {"bf16", NULL, "Write weights in bf16", OPTION_FLAG, &r->bf16, 0, 0},
        {"text", "FILE", "Text to fine-tune on (share/tow/tow.txt)", OPTION_PATH, (void *)&r->text, 0, 0},
        {"rank", "N", "Of the adapters", OPTION_WHOLE, &r->rank, 1, 1024},
        {"batch", "N", "Sequences per step", OPTION_WHOLE, &r->batch, 1, 1024},
        {"context", "N", "Tokens of a sequence", OPTION_WHOLE, &r->context_length, 1, 1 << 20},
        {0}};
    read_run_options(&r->base, argc, argv, own);
}

/* Finds the files that were not given among those that come with Tow. */
static int find_files(gpt2_run *r)
{
    static char model[4096], text[4096], check[4200];
    if (!r->directory) {
        find_shared("gpt2/config.json", model, sizeof model);
        if (!model[0]) {
            fprintf(stderr, "gpt2: share/tow/gpt2 is not there; name a model with --model\n");
            return FAILURE;
        }
        *strrchr(model, '/') = '\0';
        r->directory = model;
    }
    if (!r->text && !r->no_training) {
        find_shared("tow.txt", text, sizeof text);
        if (!text[0]) {
            fprintf(stderr, "gpt2: share/tow/tow.txt is not there; name a text with --text\n");
            return FAILURE;
        }
        r->text = text;
    }
    snprintf(check, sizeof check, "%s/expected.safetensors", r->directory);
    if (!r->check && access(check, R_OK) == 0) r->check = check;
    return SUCCESS;
}

static int load(gpt2_run *r)
{
    const int64_t dims[] = {1, 1};
    const tow_type tokens = tow_make_type(TOW_I32, 2, dims);
    tow_weight_mapping_report *report = NULL;
    if (!gpt2_read_config(r->directory, &r->config)) return BAD_OPTION;
    gpt2_make(&r->model, &r->config, false);
    gpt2_make(&r->decoder, &r->config, true);
    if (r->context_length > r->config.positions) r->context_length = r->config.positions;
    if (tow_tokenizer_read(r->base.context, r->directory, &r->tokenizer) != TOW_OK ||
        tow_weight_mapping_read(r->base.context, "gpt2", &r->mapping) != TOW_OK ||
        tow_model_init(r->base.context, TOW_MODULE(&r->model), 0, 1, &tokens, &r->params) != TOW_OK ||
        tow_weight_mapping_load_file(r->mapping, r->params, r->directory, &TOW_WEIGHT_MAPPING_OPTIONS(.convert = true),
                                     &report) != TOW_OK)
        return complain(&r->base);
    printf("%s: %lld layers of %lld features, %lld parameters from %zu tensors\n", r->directory,
           (long long)r->config.layers, (long long)r->config.width,
           (long long)tow_params_element_count(r->params, NULL),
           tow_weight_mapping_report_count(report, TOW_FATE_TENSOR));
    tow_weight_mapping_report_free(report);
    if (tow_tokenizer_vocabulary_count(r->tokenizer) <= r->config.vocabulary) return SUCCESS;
    fprintf(stderr, "gpt2: the tokenizer has %d tokens, the model %lld\n",
            (int)tow_tokenizer_vocabulary_count(r->tokenizer), (long long)r->config.vocabulary);
    return FAILURE;
}

static int work(gpt2_run *r)
{
    int status = find_files(r);
    if (status != SUCCESS) return status;
    if (open_run(&r->base) != SUCCESS) return FAILURE;
    catch_interrupts();
    status = load(r);
    if (status == SUCCESS && r->check)
        status = check_logits("gpt2", r->base.context, TOW_MODULE(&r->model), r->params, r->check);
    if (status == SUCCESS) status = generate(r);
    if (status == SUCCESS && !r->no_training) status = tune(r);
    if (status == SUCCESS && !r->no_training) status = generate(r);
    return status == SUCCESS && interrupted() ? INTERRUPTED : status;
}

int main(int argc, char **argv)
{
    static gpt2_run r;
    read_options(argc, argv, &r);
    int status = work(&r);
    status = finish_output("gpt2", status);
    tow_params_free(r.params);
    tow_weight_mapping_free(r.mapping);
    tow_tokenizer_free(r.tokenizer);
    tow_context_free(r.base.context);
    return status;
}
