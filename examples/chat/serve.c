/* Many prompts: each line of a file is a request; .rows of them are in one running batch, which they join and leave. A
 * line that cannot be answered is named, and the others are answered. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat.h"

typedef struct server server;

typedef struct line {
    server *server;
    int64_t number; /* in the file, from 1 on */
    char *text;
    char *answer;
    size_t length, room;
    chat_stream stream;
    bool ended;
    tow_status status;
} line;

struct server {
    chat *c;
    tow_batcher *batcher;
    line *lines;
    int64_t n, shown; /* lines that were printed */
    int64_t requests, prompts, tokens;
    bool failed;  /* memory is missing */
    bool refused; /* a line was not answered */
};

/* The line is answered, or not: then the status says why. */
static void end_line(line *l, tow_status status)
{
    l->ended = true;
    l->status = status;
    l->server->refused = l->server->refused || (status != TOW_OK && status != TOW_CANCELLED);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static bool add_line(server *s, int64_t number, const char *text, size_t length)
{
    if ((s->n & (s->n - 1)) == 0) { /* powers of two */
        line *lines = realloc(s->lines, (size_t)(s->n ? 2 * s->n : 1) * sizeof *lines);
        if (!lines) return false;
        s->lines = lines;
    }
    line *l = &s->lines[s->n++];
    *l = (line){.server = s, .number = number, .text = strdup(text), .stream = {.tokenizer = s->c->tokenizer}};
    if (!chat_takes_line(s->c, s->c->prompts, number, text, length)) end_line(l, TOW_INVALID_ARGUMENT);
    return l->text != NULL;
}

static int read_lines(server *s, const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t size = 0;
    ssize_t length;
    int64_t number = 0;
    bool good = true;
    if (!file) return fprintf(stderr, "chat: cannot read %s\n", path), FAILURE;
    while (good && (length = getline(&text, &size, file)) >= 0) {
        while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == '\r')) text[--length] = '\0';
        number++;
        good = length == 0 || add_line(s, number, text, (size_t)length);
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
    line *l = user;
    server *s = l->server;
    (void)id;
    s->tokens++;
    for (size_t i = 0; i < s->c->config.n_ends && !s->c->ignore_end; i++)
        if (s->c->config.ends[i] == token) return true;
    append(s, l, chat_stream_add(&l->stream, token));
    return !s->failed;
}

/* Prints lines in their order: those whose predecessors have ended, too, or all. */
static void show_lines(server *s, bool all)
{
    for (; s->shown < s->n && (all || s->lines[s->shown].ended); s->shown++) {
        const line *l = &s->lines[s->shown];
        const bool whole = l->ended && l->status == TOW_OK;
        printf("> %s\n%s%s\n", l->text, l->answer ? l->answer : "", whole ? "" : " ...");
    }
    fflush(stdout);
}

static void on_end(int64_t id, tow_status status, tow_ending ending, int64_t count, void *user)
{
    line *l = user;
    server *s = l->server;
    (void)id, (void)ending, (void)count;
    append(s, l, chat_stream_end(&l->stream));
    end_line(l, status);
    if (status != TOW_OK && status != TOW_CANCELLED) chat_complain_of_line(s->c, s->c->prompts, l->number);
    show_lines(s, false);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static int add_prompt(line *l, const int32_t *ids, int64_t n)
{
    server *s = l->server;
    chat *c = s->c;
    const int64_t room = c->options.context - n + 1;
    if (room < 1) {
        fprintf(stderr,
                "chat: %s: line %lld: a prompt of %lld tokens does not fit in the context of %lld; give a longer "
                "--context\n",
                c->prompts, (long long)l->number, (long long)n, (long long)c->options.context);
        end_line(l, TOW_INVALID_ARGUMENT);
        return SUCCESS;
    }
    const tow_batch_request request =
        TOW_BATCH_REQUEST(.n = n, .prompt = ids, .limit = room < c->tokens ? room : c->tokens, .seed = c->seed,
                          .on_token = on_token, .on_end = on_end, .user = l);
    if (!chat_stream_begin(&l->stream, ids, n)) return fprintf(stderr, "chat: out of memory\n"), FAILURE;
    if (tow_batcher_add(s->batcher, &request, NULL) != TOW_OK) return chat_complain(c);
    s->prompts += n;
    s->requests++;
    return SUCCESS;
}

static int add_requests(server *s)
{
    int status = SUCCESS;
    for (int64_t i = 0; i < s->n && status == SUCCESS; i++) {
        int64_t n = 0;
        if (s->lines[i].ended) continue;
        int32_t *ids = chat_encode(s->c, s->lines[i].text, true, &n);
        status = ids ? add_prompt(&s->lines[i], ids, n > 0 ? n : 1) : FAILURE;
        free(ids);
    }
    return status;
}

static int run(server *s)
{
    int64_t left = s->requests, steps = 0;
    tow_status status = TOW_OK;
    const double begin = seconds_now();
    chat_answer_begins();
    for (; left > 0 && status == TOW_OK && !s->failed; steps++) status = tow_batcher_step(s->batcher, &left);
    const bool stopped = chat_answer_ends();
    for (int64_t i = 0; i < s->n; i++)
        if (!s->lines[i].ended) append(s, &s->lines[i], chat_stream_end(&s->lines[i].stream));
    show_lines(s, true);
    if (status != TOW_OK && !stopped) return chat_complain(s->c);
    if (s->failed) return fprintf(stderr, "chat: out of memory\n"), FAILURE;
    const double seconds = seconds_now() - begin;
    if (!s->c->bare)
        fprintf(stderr,
                "[%lld requests, %lld at a time: %lld tokens of prompts and %lld of answers in %lld steps, %.2f s, "
                "%.1f tokens/s]\n",
                (long long)s->requests, (long long)s->c->rows, (long long)s->prompts, (long long)s->tokens,
                (long long)steps, seconds, (double)s->tokens / seconds);
    return stopped ? INTERRUPTED : s->refused ? FAILURE : SUCCESS;
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
