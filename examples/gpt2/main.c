/* Loads a GPT-2 of Hugging Face, compares its logits, generates text with a cache, and fine-tunes it with LoRA. The result is
 * written for transformers. Without options it takes the tiny model that comes with Tow; `gpt2 --help` lists the options. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run.h"

int complain(const run *r)
{
    fprintf(stderr, "gpt2: %s\n", tow_context_error(r->context));
    return FAILURE;
}

static void read_run_options(int argc, char **argv, run *r)
{
    common_options *o = &r->options;
    *o = (common_options){.steps = 300, .learning_rate = 1e-2, .out = "out/gpt2"};
    r->prompt = "A layer is a struct. ";
    r->tokens = 60;
    r->temperature = 0.7;
    r->top_p = 1;
    r->repetition_penalty = 1;
    r->beams = 1;
    r->batch = 8;
    r->context_length = 64;
    r->rank = 8;
    const example_option table[] = {
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
        COMMON_OPTIONS(o),
        {0}};
    read_command_line(argc, argv, "gpt2", "Runs and fine-tunes a GPT-2 of Hugging Face.", table);
}

/* What was not given, of what comes with Tow. */
static int find_files(run *r)
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

static int load(run *r)
{
    const int64_t dims[] = {1, 1};
    const tow_type tokens = tow_make_type(TOW_I32, 2, dims);
    tow_mapping_report *report = NULL;
    if (!gpt2_read_config(r->directory, &r->config)) return BAD_OPTION;
    gpt2_make(&r->model, &r->config, false);
    gpt2_make(&r->decoder, &r->config, true);
    if (r->context_length > r->config.positions) r->context_length = r->config.positions;
    if (tow_tokenizer_read(r->context, r->directory, &r->tokenizer) != TOW_OK ||
        tow_mapping_read(r->context, "gpt2", &r->mapping) != TOW_OK ||
        tow_init(r->context, TOW_MODULE(&r->model), 0, 1, &tokens, &r->params) != TOW_OK ||
        tow_mapping_load_file(r->mapping, r->params, r->directory, &(tow_mapping_options){.convert = true}, &report) !=
            TOW_OK)
        return complain(r);
    printf("%s: %lld layers of %lld features, %lld parameters from %zu tensors\n", r->directory,
           (long long)r->config.layers, (long long)r->config.width, (long long)tow_params_elements(r->params),
           tow_mapping_report_count(report, TOW_MAPPED_TENSOR));
    tow_mapping_report_free(report);
    if (tow_tokenizer_vocabulary(r->tokenizer) <= r->config.vocabulary) return SUCCESS;
    fprintf(stderr, "gpt2: the tokenizer has %d tokens, the model %lld\n", (int)tow_tokenizer_vocabulary(r->tokenizer),
            (long long)r->config.vocabulary);
    return FAILURE;
}

static int work(run *r)
{
    const tow_context_options context = {.threads = (int)r->options.threads};
    int status = find_files(r);
    if (status != SUCCESS) return status;
    if (tow_context_create(&context, &r->context) != TOW_OK) return complain(r);
    catch_interrupts();
    status = load(r);
    if (status == SUCCESS && r->check) status = check_logits(r);
    if (status == SUCCESS) status = generate(r);
    if (status == SUCCESS && !r->no_training) status = tune(r);
    if (status == SUCCESS && !r->no_training) status = generate(r);
    return status == SUCCESS && interrupted() ? INTERRUPTED : status;
}

int main(int argc, char **argv)
{
    static run r;
    read_run_options(argc, argv, &r);
    int status = work(&r);
    status = finish_output("gpt2", status);
    tow_params_free(r.params);
    tow_mapping_free(r.mapping);
    tow_tokenizer_free(r.tokenizer);
    tow_context_destroy(r.context);
    return status;
}
