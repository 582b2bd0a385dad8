/* Talks with a model of Hugging Face: GPT-2, Llama and those that are shaped like it. A prompt is gone on with; lines
 * of the standard input are a conversation, and the lines of a file are answered several at a time. `chat --help` lists
 * the options. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat.h"
#include "common/options.h"

int chat_complain(const chat *c) { return report_error("chat", c->context); }

int chat_complain_of_line(const chat *c, const char *file, int64_t number)
{
    fprintf(stderr, "chat: %s: line %lld: %s\n", file, (long long)number, tow_context_error(c->context));
    tow_context_clear_error(c->context);
    return FAILURE;
}

tow_sampling chat_sampling(const chat *c)
{
    return (tow_sampling){
        .temperature = c->greedy ? 0 : c->temperature, .top_k = c->top_k, .top_p = c->top_p < 1 ? c->top_p : 0};
}

static void read_options(int argc, char **argv, chat *c)
{
    *c = (chat){.tokens = 256,
                .temperature = 0.8,
                .top_k = 40,
                .top_p = 0.95,
                .repetition_penalty = 1,
                .rows = 4,
                .cache_dtype = "f32"};
    const example_option table[] = {
        {"model", "PATH", "A GGUF file, or a directory with config.json, weights and a tokenizer (the tiny GPT-2)",
         OPTION_PATH, (void *)&c->path, 0, 0},
        {"prompt", "TEXT", "Go on with this text; without it, lines of the standard input are a conversation",
         OPTION_TEXT, (void *)&c->prompt, 0, 0},
        {"prompts", "FILE", "Go on with each line of a file, several at a time", OPTION_PATH, (void *)&c->prompts, 0,
         0},
        {"rows", "N", "How many lines of --prompts at a time", OPTION_WHOLE, &c->rows, 1, 1024},
        {"layout", "NAME", "What stands around lines: plain, chatml, llama2, llama3, gemma", OPTION_TEXT,
         (void *)&c->layout, 0, 0},
        {"tokens", "N", "Most tokens of an answer", OPTION_WHOLE, &c->tokens, 1, 1 << 20},
        {"context", "N", "Positions of the cache (those of the model, at most 4096)", OPTION_WHOLE, &c->positions, 1,
         1 << 24},
        {"temperature", "X", "Of the draws", OPTION_REAL, &c->temperature, 0, 0},
        {"greedy", NULL, "Take the likeliest token", OPTION_FLAG, &c->greedy, 0, 0},
        {"top-k", "N", "Draw among so many tokens; 0: all", OPTION_WHOLE, &c->top_k, 0, 1 << 20},
        {"top-p", "X", "Draw among the likeliest tokens of this probability", OPTION_REAL, &c->top_p, 0, 0},
        {"repetition-penalty", "X", "Divide the logits of tokens that were there", OPTION_REAL, &c->repetition_penalty,
         0, 0},
        {"seed", "N", "Of the draws", OPTION_SEED, &c->seed, 0, 0},
        {"threads", "N", "Threads (as many as the CPUs that may be used)", OPTION_WHOLE, &c->threads, 1, 1024},
        {"dtype", "TYPE", "Of the weights in memory: f32, bf16, f16, q8_0 or q4_0 (those of a GGUF file, else f32)",
         OPTION_TEXT, (void *)&c->dtype, 0, 0},
        {"cache-dtype", "TYPE", "Of keys and values: f32, bf16, f16, q8_0 or q4_0", OPTION_TEXT,
         (void *)&c->cache_dtype, 0, 0},
        {"ignore-end", NULL, "Go on behind tokens that end an answer", OPTION_FLAG, &c->ignore_end, 0, 0},
        {"bare", NULL, "Print the text alone, without how fast it came", OPTION_FLAG, &c->bare, 0, 0},
        {"check", "FILE", "Compare logits with those of this file, and do nothing else", OPTION_PATH, (void *)&c->check,
         0, 0},
        {0}};
    read_command_line(argc, argv, "chat", "Generates text with a language model of Hugging Face.", table);
}

/* The model that comes with Tow, where none was named. */
static int find_model(chat *c)
{
    static char path[4096];
    if (c->path) return SUCCESS;
    find_shared("gpt2/config.json", path, sizeof path);
    if (!path[0]) {
        fprintf(stderr, "chat: share/tow/gpt2 is not there; name a model with --model\n");
        return FAILURE;
    }
    *strrchr(path, '/') = '\0';
    c->path = path;
    return SUCCESS;
}

static int work(chat *c)
{
    const tow_context_options options = TOW_CONTEXT_OPTIONS(.threads = (int)c->threads);
    if (c->prompt && c->prompts) {
        fprintf(stderr, "chat: --prompt and --prompts exclude one another\n");
        return BAD_OPTION;
    }
    if (c->layout && (c->prompt || c->prompts)) {
        fprintf(stderr, "chat: --layout is for conversations: --prompt and --prompts go on with a text as it is\n");
        return BAD_OPTION;
    }
    int status = find_model(c);
    if (status != SUCCESS) return status;
    if (tow_context_create(&options, &c->context) != TOW_OK) return chat_complain(c);
    chat_catch_interrupts(c->context);
    status = chat_load(c);
    if (status != SUCCESS) return status;
    if (c->check) return check_logits("chat", c->context, c->module, c->params, c->check);
    return c->prompts ? chat_serve(c) : chat_talk(c);
}

int main(int argc, char **argv)
{
    static chat c;
    read_options(argc, argv, &c);
    const int status = finish_output("chat", work(&c));
    chat_unload(&c);
    tow_context_free(c.context);
    return status;
}
