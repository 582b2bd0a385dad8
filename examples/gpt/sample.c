/* Sampling: the forward program sees a window of the last tokens, and the logits at the last of them decide about the
 * next. */
#include "sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/common.h"

static const double temperature = 0.8;

/* The program and its arrays. */
typedef struct sampler {
    tow_program *program;
    tow_array **inputs; /* params..., tokens */
    tow_array *tokens;  /* i32 [1, window] */
    tow_array *logits;  /* [1, window, vocabulary] */
} sampler;

static void sampler_free(sampler *s)
{
    tow_program_free(s->program);
    tow_array_release(s->tokens);
    tow_array_release(s->logits);
    free(s->inputs);
}

static tow_status sampler_make(sampler *s, tow_context *context, const gpt *model, const tow_params *params,
                               int64_t window)
{
    tow_graph *graph = NULL;
    tow_type type = tow_make_type(TOW_I32, 2, (int64_t[]){1, window});
    size_t n = tow_params_count(params);
    tow_status status = tow_model_forward_graph(TOW_MODULE(&model->whole), params, 1, &type,
                                                &TOW_MODEL_OPTIONS(.deterministic = true), &graph);
    if (status == TOW_OK) status = tow_compile(context, graph, NULL, &s->program);
    if (status == TOW_OK) status = tow_array_create(context, type, &s->tokens);
    if (status == TOW_OK) status = tow_array_create(context, tow_graph_output_type(graph, 0), &s->logits);
    tow_graph_release(graph);
    if (status != TOW_OK) return status;
    s->inputs = malloc((n + 1) * sizeof(tow_array *));
    if (!s->inputs) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < n; i++) s->inputs[i] = tow_params_array(params, i);
    s->inputs[n] = s->tokens;
    return TOW_OK;
}

tow_status sample_text(tow_context *context, const gpt *model, const tow_params *params, const text *t, int64_t window,
                       uint64_t seed, int64_t count)
{
    sampler s = {0};
    tow_status status = sampler_make(&s, context, model, params, window);
    if (status == TOW_OK) {
        int32_t *tokens = tow_array_data(s.tokens);
        int64_t length = 1; /* the text begins after a line break, or after the first token if there is none */
        tokens[0] = t->token_of['\n'] >= 0 ? t->token_of['\n'] : 0;
        for (int64_t i = 0; i < count && status == TOW_OK; i++) {
            status = tow_program_run(s.program, s.inputs, &s.logits);
            if (status != TOW_OK) break;
            const float *logits = (const float *)tow_array_data(s.logits) + (length - 1) * t->vocabulary;
            int next =
                text_draw(logits, t->vocabulary, temperature, (double)(random_bits(seed, (uint64_t)i) >> 11) * 0x1p-53);
            putchar(t->bytes[next]);
            fflush(stdout);
            if (length == window) memmove(tokens, tokens + 1, (size_t)(--length) * sizeof *tokens);
            tokens[length++] = next;
        }
        putchar('\n');
    }
    sampler_free(&s);
    return status;
}
