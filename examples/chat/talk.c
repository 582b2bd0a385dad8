/* One conversation: the prompt, or line after line, each answered with a text that shows as it comes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chat.h"

typedef struct conversation {
    chat *c;
    tow_generator *generator;
    chat_stream stream;
    int32_t *tokens; /* [c->tokens] of the answer */
    int32_t pending; /* the last token of the answer before, which was not fed yet; -1: none */
    double begin, first, last;
    bool failed; /* the text could not be made */
} conversation;

static bool is_end(const chat *c, int32_t token)
{
    for (size_t i = 0; i < c->config.n_ends; i++)
        if (c->config.ends[i] == token) return true;
    return false;
}

static void show(conversation *t, char *text)
{
    if (text) fputs(text, stdout);
    if (text && text[0]) fflush(stdout);
    t->failed = t->failed || !text;
    free(text);
}

static bool on_token(int64_t index, const int32_t *tokens, void *user)
{
    conversation *t = user;
    t->last = seconds_now();
    if (index == 0) t->first = t->last;
    if (t->c->ignore_end || !is_end(t->c, tokens[0])) show(t, chat_stream_add(&t->stream, tokens[0]));
    return !t->failed;
}

static void print_rates(const conversation *t, int64_t prompt, int64_t count)
{
    const double decode = t->last - t->first;
    fprintf(stderr, "[prompt: %lld tokens in %.1f ms, %.1f tokens/s", (long long)prompt, 1e3 * (t->first - t->begin),
            (double)prompt / (t->first - t->begin));
    if (count > 1)
        fprintf(stderr, "; answer: %lld tokens, %.2f ms each, %.1f tokens/s", (long long)count,
                1e3 * decode / (double)(count - 1), (double)(count - 1) / decode);
    fprintf(stderr, "]\n");
}

/* Feeds the tokens and shows what follows. */
static int answer(conversation *t, const int32_t *prompt, int64_t n)
{
    chat *c = t->c;
    const int64_t room = tow_generator_length(t->generator) - tow_generator_position(t->generator) - n + 1;
    int64_t counts = 0;
    if (room < 1) {
        fprintf(stderr,
                "chat: %lld tokens do not fit behind the %lld of the context of %lld; give a longer --context\n",
                (long long)n, (long long)tow_generator_position(t->generator),
                (long long)tow_generator_length(t->generator));
        return FAILURE;
    }
    if (tow_generator_prepare(t->generator, n) != TOW_OK) return chat_complain(c);
    if (!chat_stream_begin(&t->stream, prompt, n)) return fprintf(stderr, "chat: out of memory\n"), FAILURE;
    t->begin = t->first = t->last = seconds_now();
    chat_answer_begins();
    const tow_status status = tow_generate_with(
        t->generator, &TOW_GENERATION(.n = n, .prompts = prompt, .limit = room < c->tokens ? room : c->tokens,
                                      .tokens = t->tokens, .counts = &counts));
    const bool stopped = chat_answer_ends();
    show(t, chat_stream_end(&t->stream));
    printf("%s", stopped ? " ...\n" : "\n");
    fflush(stdout);
    if (status != TOW_OK && !(stopped && status == TOW_CANCELLED)) return chat_complain(c);
    if (t->failed) return fprintf(stderr, "chat: out of memory\n"), FAILURE;
    if (counts > 0) t->pending = t->tokens[counts - 1]; /* else nothing was fed: what was pending is so still */
    if (!c->bare) print_rates(t, n, counts);
    return stopped ? INTERRUPTED : SUCCESS;
}

/* The text as tokens, behind what the answer before has left; then the answer. */
static int say(conversation *t, const char *text, bool first)
{
    int64_t n = 0;
    int32_t *ids = chat_encode(t->c, text, first, &n);
    if (!ids) return FAILURE;
    const bool joined = t->pending >= 0;
    if (n == 0 && !joined) n = 1; /* the token 0: a model needs something to go on with */
    if (joined) {                 /* there is room for one more */
        memmove(ids + 1, ids, (size_t)n * sizeof *ids);
        ids[0] = t->pending;
    }
    const int status = answer(t, ids, n + joined);
    free(ids);
    return status;
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static char *join(const char *a, const char *b, const char *c)
{
    const size_t size = strlen(a) + strlen(b) + strlen(c) + 1;
    char *text = malloc(size);
    if (text) snprintf(text, size, "%s%s%s", a, b, c);
    return text;
}

/* One line of the user. The layout of the first one begins the conversation, that of later ones ends the answer, unless
 * the model has done so. */
static int say_line(conversation *t, const chat_layout *layout, const char *line)
{
    const bool first = tow_generator_position(t->generator) == 0;
    const bool ended = layout->end && t->pending >= 0 && t->pending == tow_tokenizer_id(t->c->tokenizer, layout->end);
    const char *next = ended ? layout->next + strlen(layout->end) : layout->next;
    char *head = join(first ? layout->first : next, layout->before, line);
    char *text = head ? join(head, layout->after, "") : NULL;
    const int status = text ? say(t, text, first) : (fprintf(stderr, "chat: out of memory\n"), FAILURE);
    free(head);
    free(text);
    return status;
}

static int converse(conversation *t, const chat_layout *layout)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    int status = SUCCESS;
    bool refused = false;
    int64_t number = 0;
    const bool terminal = isatty(STDIN_FILENO);
    while ((status == SUCCESS || status == INTERRUPTED)) {
        if (terminal) fputs("> ", stdout), fflush(stdout);
        if ((length = getline(&line, &size, stdin)) < 0) break;
        number++;
        while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r')) line[--length] = '\0';
        if (length == 0) continue;
        if (!chat_takes_line(t->c, "standard input", number, line, (size_t)length)) {
            refused = true;
            continue;
        }
        status = say_line(t, layout, line);
    }
    free(line);
    if (status == INTERRUPTED) status = SUCCESS;
    return status == SUCCESS && refused ? FAILURE : status;
}

/* ---- the generator ----------------------------------------------------------------------------------------------- */

/* The token that ends answers by the layout is one more. */
static int add_end(chat *c, const chat_layout *layout)
{
    if (!layout->end) return SUCCESS;
    const int32_t id = tow_tokenizer_id(c->tokenizer, layout->end);
    if (id >= 0) c->config.ends[c->config.n_ends++] = id;
    if (id >= 0) return SUCCESS;
    fprintf(stderr, "chat: --layout %s: the tokenizer has no token %s\n", layout->name, layout->end);
    return FAILURE;
}

int chat_talk(chat *c)
{
    const chat_layout *layout = chat_find_layout(c->layout);
    if (!layout) return BAD_OPTION;
    int status = add_end(c, layout);
    if (status != SUCCESS) return status;
    conversation t = {.c = c, .stream = {.tokenizer = c->tokenizer}, .pending = -1};
    const tow_generator_options options =
        TOW_GENERATOR_OPTIONS(.sampling = chat_sampling(c), .seed = c->seed,
                              .repetition_penalty = c->repetition_penalty, .ends = c->config.ends,
                              .n_ends = c->ignore_end ? 0 : c->config.n_ends, .on_token = on_token, .user = &t);
    t.tokens = calloc((size_t)c->tokens, sizeof *t.tokens);
    if (!t.tokens)
        status = (fprintf(stderr, "chat: out of memory\n"), FAILURE);
    else if (tow_generator_create(c->context, c->module, c->params, &options, &t.generator) != TOW_OK)
        status = chat_complain(c);
    else
        status = c->prompt ? say(&t, c->prompt, true) : converse(&t, layout);
    tow_generator_free(t.generator);
    chat_stream_free(&t.stream);
    free(t.tokens);
    return status;
}
