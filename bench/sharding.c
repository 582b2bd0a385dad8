/* Bytes of one of N processes that train a GPT together, in each stage of sharding: planned by this process alone,
 * which starts no other and trains nothing.
 *
 *     bench_sharding                                                      GPT-2 of 124 million parameters
 *     bench_sharding --layers 4 --width 256 --heads 4 --processes 2,3
 *
 * It prints the table of docs/many-machines.md, in megabytes. The column "1 / N and two rows" is the promise: 1 / N of
 * parameters, gradients and slots that a stage shares, the others whole, and two iterations' rows of parameters and of
 * gradients where those are shared. "together" is what the plan takes for them. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/model.h"

__attribute__((noreturn)) static void fail(const char *why)
{
    fprintf(stderr, "sharding: %s\n", why);
    exit(1);
}

typedef struct setup {
    gpt_shape shape;
    int64_t batch, row_groups;
    int count, stage, rank;
} setup;

typedef struct counted {
    tow_train_bytes bytes;
    double parameters, rows; /* of the whole model, and of one iteration of its loop */
} counted;

static counted count_bytes(const setup *s)
{
    tow_context *context = NULL;
    tow_group *group = NULL;
    tow_train_state *state = NULL;
    gpt model;
    counted c = {.rows = 0};
    const tow_type type = tow_make_type(TOW_I32, 2, (int64_t[]){s->batch, s->shape.context});
    if (tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1), &context)) fail("no context");
    if (tow_group_plan_only(context, s->rank, s->count, NULL, &group)) fail(tow_context_error(context));
    gpt_make(&model, &s->shape);
    const tow_train_options options =
        TOW_TRAIN_OPTIONS(.optimizer = {.kind = TOW_ADAMW,
                                        .learning_rate = tow_schedule_constant(1e-3),
                                        .weight_decay = 0.1,
                                        .clip_norm = 1},
                          .n_inputs = 2, .input_types = (tow_type[]){type, type}, .loss = gpt_loss,
                          .row_groups = (size_t)s->row_groups, .group = group, .shard = s->stage);
    if (tow_train_create(context, TOW_MODULE(&model.whole), &options, &state)) fail(tow_context_error(context));
    c.bytes = tow_train_get_bytes(state);
    const tow_graph *loss = tow_train_loss_graph(state);
    for (size_t i = 0; i < tow_params_count(tow_train_params(state)); i++) {
        const tow_type whole = tow_graph_input_type(loss, i);
        c.parameters += (double)tow_type_bytes(whole);
        if (strstr(tow_graph_input_name(loss, i), "blocks"))
            c.rows += (double)tow_type_bytes(whole) / (double)s->shape.layers;
    }
    tow_train_free(state);
    tow_group_free(group);
    tow_context_free(context);
    return c;
}

static double promised(const counted *c, const setup *s)
{
    double sum = 0;
    const double shares[3] = {s->stage >= 3, s->stage >= 1, s->stage >= 1}, times[3] = {1, 1, 2};
    for (int k = 0; k < 3; k++) sum += times[k] * c->parameters * (shares[k] > 0 ? 1.0 / s->count : 1);
    return sum + (s->count > 1 ? 2 * c->rows * (shares[0] + shares[1]) : 0);
}

static void print_line(const setup *s)
{
    static const double mega = 1e-6;
    static const char *const names[] = {"0", "1", "1, 2", "3"}; /* 1 and 2 are one */
    const counted c = count_bytes(s);
    const double held =
        (double)c.bytes.parameters + (double)c.bytes.gradients + (double)c.bytes.optimizer + (double)c.bytes.exchange;
    printf("| %d | %s | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f |\n", s->count, names[s->stage],
           mega * (double)c.bytes.parameters, mega * (double)c.bytes.gradients, mega * (double)c.bytes.optimizer,
           mega * (double)c.bytes.exchange, mega * held, mega * promised(&c, s), mega * (double)c.bytes.total,
           mega * (double)c.bytes.sent);
    fflush(stdout);
}

static int64_t read_number(const char *text)
{
    char *end;
    const long long number = strtoll(text, &end, 10);
    if ((*end && *end != ',') || end == text || number < 1 || number > 1 << 24) fail("expected positive numbers");
    return number;
}

int main(int argc, char **argv)
{
    static const struct option names[] = {
        {"layers", required_argument, NULL, 0},     {"width", required_argument, NULL, 1},
        {"heads", required_argument, NULL, 2},      {"context", required_argument, NULL, 3},
        {"vocabulary", required_argument, NULL, 4}, {"batch", required_argument, NULL, 5},
        {"processes", required_argument, NULL, 6},  {0}};
    int64_t n[6] = {12, 768, 12, 1024, 50257, 8};
    const char *processes = "1,2,4,8";
    for (int k; (k = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (k == '?') return 2;
        if (k == 6)
            processes = optarg;
        else
            n[k] = read_number(optarg);
    }
    if (optind < argc || n[1] % n[2] != 0) fail("expected options alone, and a --width that --heads divides");
    setup s = {.shape = {.vocabulary = n[4], .layers = n[0], .width = n[1], .heads = n[2], .context = n[3]},
               .batch = n[5],
               .row_groups = n[5]};
    printf(
        "| processes | stage | parameters | gradients | slots | gathered, arriving | together | 1 / N and two rows | "
        "all of a process | sent in a step |\n|---|---|---|---|---|---|---|---|---|---|\n");
    for (const char *at = processes; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        s.count = (int)read_number(at);
        for (s.stage = 0; s.stage <= (s.count > 1 ? TOW_SHARD_PARAMETERS : 0); s.stage++)
            if (s.stage != TOW_SHARD_SLOTS) print_line(&s);
    }
    return 0;
}
