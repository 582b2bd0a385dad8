/* Many prompts: each line of a file is a request; .rows of them are in one running batch, which they join and leave. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat.h"

typedef struct line {
    char *text; /* of the file */
    char *answer;
    size_t length, room;
    chat_stream stream;
    bool ended;
    tow_status status;
} line;

typedef struct server {
    chat *c;
    tow_batcher *batcher;
    line *lines;
    int64_t n, shown; /* lines that were printed */
    int64_t prompts, tokens;
    bool failed;
} server;

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static bool add_line(server *s, const char *text)
{
    if ((s->n & (s->n - 1)) == 0) { /* powers of two */
        line *lines = realloc(s->lines, (size_t)(s->n ? 2 * s->n : 1) * sizeof *lines);
        if (!lines) return false;
        s->lines = lines;
    }
    s->lines[s->n] = (line){.text = strdup(text), .stream = {.tokenizer = s->c->tokenizer}};
    return s->lines[s->n++].text != NULL;
}

static int read_lines(server *s, const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t size = 0;
    ssize_t length;
    bool good = true;
    if (!file) return fprintf(stderr, "chat: cannot read %s\n", path), FAILURE;
    while (good && (length = getline(&text, &size, file)) >= 0) {
        while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == '\r')) text[--length] = '\0';
        good = length == 0 || add_line(s, text);
    }
    if (!good) fprintf(stderr, "chat: out of memory\n");
    if (ferror(file)) fprintf(stderr, "chat: cannot read %s\n", path), good = false;
    free(text);
    fclose(file);
    return good ? SUCCESS : FAILURE;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* Appends a text, which it frees. */
static void append(server *s, line *l, char *text)
{
    const size_t length = text ? strlen(text) : 0;
    if (text && l->length + length + 1 > l->room) {
        const size_t room = 2 * (l->length + length) + 64;
        char *answer = realloc(l->answer, room);
        if (answer) l->answer = answer, l->room = room;
    }
    if (text && l->length + length + 1 <= l->room) {
        memcpy(l->answer + l->length, text, length + 1);
        l->length += length;
    } else {
        s->failed = true;
    }
    free(text);
}

static bool on_token(int64_t id, int32_t token, void *user)
{
    server *s = user;
    s->tokens++;
    for (size_t i = 0; i < s->c->config.n_ends && !s->c->ignore_end; i++)
        if (s->c->config.ends[i] == token) return true;
    append(s, &s->lines[id], chat_stream_add(&s->lines[id].stream, token));
    return !s->failed;
}

static void on_end(int64_t id, tow_status status, tow_ending ending, int64_t count, void *user)
{
    server *s = user;
    line *l = &s->lines[id];
    (void)ending, (void)count;
    append(s, l, chat_stream_end(&l->stream));
    l->ended = true;
    l->status = status;
    for (; s->shown < s->n && s->lines[s->shown].ended; s->shown++) {
        const line *next = &s->lines[s->shown];
        printf("> %s\n%s%s\n", next->text, next->answer ? next->answer : "", next->status == TOW_OK ? "" : " ...");
    }
    fflush(stdout);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static int add_requests(server *s)
{
    chat *c = s->c;
    for (int64_t i = 0; i < s->n; i++) {
        int64_t n = 0;
        int32_t *ids = chat_encode(c, s->lines[i].text, true, &n);
        if (!ids) return FAILURE;
        if (n == 0) n = 1;
        const int64_t room = c->options.context - n + 1;
        s->prompts += n;
        const tow_batch_request request =
            TOW_BATCH_REQUEST(.n = n, .prompt = ids, .limit = room < c->tokens ? room : c->tokens, .seed = c->seed,
                              .on_token = on_token, .on_end = on_end, .user = s);
        const tow_status status = tow_batcher_add(s->batcher, &request, NULL);
        free(ids);
        if (status != TOW_OK) return chat_complain(c);
    }
    return SUCCESS;
}

static int run(server *s)
{
    int64_t left = s->n, steps = 0;
    tow_status status = TOW_OK;
    const double begin = seconds_now();
    chat_answer_begins();
    for (; left > 0 && status == TOW_OK && !s->failed; steps++) status = tow_batcher_step(s->batcher, &left);
    const bool stopped = chat_answer_ends();
    if (status != TOW_OK && !stopped) return chat_complain(s->c);
    if (s->failed) return fprintf(stderr, "chat: out of memory\n"), FAILURE;
    const double seconds = seconds_now() - begin;
    if (!s->c->bare)
        fprintf(stderr,
                "[%lld requests, %lld at a time: %lld tokens of prompts and %lld of answers in %lld steps, %.2f s, "
                "%.1f tokens/s]\n",
                (long long)s->n, (long long)s->c->rows, (long long)s->prompts, (long long)s->tokens, (long long)steps,
                seconds, (double)s->tokens / seconds);
    return stopped ? INTERRUPTED : SUCCESS;
}

int chat_serve(chat *c)
{
    server s = {.c = c};
    const tow_generator_options options =
        TOW_GENERATOR_OPTIONS(.batch = c->rows, .sampling = chat_sampling(c),
                              .repetition_penalty = c->repetition_penalty, .ends = c->config.ends,
                              .n_ends = c->ignore_end ? 0 : c->config.n_ends);
    int status = read_lines(&s, c->prompts);
    if (status == SUCCESS && tow_batcher_create(c->context, c->module, c->params, &options, &s.batcher) != TOW_OK)
        status = chat_complain(c);
    if (status == SUCCESS) status = add_requests(&s);
    if (status == SUCCESS) status = run(&s);
    tow_batcher_free(s.batcher);
    for (int64_t i = 0; i < s.n; i++) {
        free(s.lines[i].text);
        free(s.lines[i].answer);
        chat_stream_free(&s.lines[i].stream);
    }
    free(s.lines);
    return status;
}
