/* Tables of parameters, bytes and residuals. */
#include "report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void report_parameters(const tow_train_state *state)
{
    const tow_params *params = tow_train_params(state);
    size_t size = tow_params_table(params, NULL, NULL, 0) + 1;
    char *text = malloc(size);
    if (!text) return;
    tow_params_table(params, NULL, text, size);
    puts(text);
    free(text);
}

/* The kinds of bytes of a plan: where they are and what they are called. */
typedef struct kind {
    const char *key, *what;
    size_t field;
} kind;

static const kind kinds[] = {
    {"parameters", "parameters", offsetof(tow_train_bytes, parameters)},
    {"optimizer", "optimizer", offsetof(tow_train_bytes, optimizer)},
    {"batch", "batch", offsetof(tow_train_bytes, batch)},
    {"residuals", "residuals", offsetof(tow_train_bytes, residuals)},
    {"workspace", "workspace", offsetof(tow_train_bytes, workspace)},
    {"gradients", "of these, gradients", offsetof(tow_train_bytes, gradients)},
    {"exchange", "of these, exchange", offsetof(tow_train_bytes, exchange)},
    {"evaluation", "evaluation program", offsetof(tow_train_bytes, evaluation)},
    {"peak", "peak", offsetof(tow_train_bytes, total)},
};
enum {
    N_KINDS = sizeof kinds / sizeof kinds[0]
};

static size_t bytes_of(const tow_train_bytes *bytes, size_t index)
{
    return *(const size_t *)(const void *)((const char *)bytes + kinds[index].field);
}

/* Prints the bytes of each slot of the optimizer: ": adam/mu/ 1024, adam/nu/ 1024". */
static void report_slots(const tow_optimizer_state *optimizer)
{
    for (size_t i = 0; i < tow_optimizer_slot_count(optimizer); i++) {
        const tow_params *slot = tow_optimizer_slot(optimizer, i);
        size_t bytes = 0;
        for (size_t j = 0; j < tow_params_count(slot); j++)
            bytes += tow_type_bytes(tow_array_type(tow_params_array(slot, j)));
        printf("%s %s %zu", i == 0 ? ":" : ",", tow_optimizer_slot_prefix(optimizer, i), bytes);
    }
}

void report_plan(const tow_train_state *state)
{
    tow_train_bytes bytes = tow_train_get_bytes(state);
    puts("planned memory");
    for (size_t i = 0; i < N_KINDS; i++) {
        printf("  %-20s %14zu bytes  %9.2f MiB", kinds[i].what, bytes_of(&bytes, i),
               (double)bytes_of(&bytes, i) / (1 << 20));
        if (kinds[i].field == offsetof(tow_train_bytes, optimizer)) report_slots(tow_train_optimizer(state));
        if (kinds[i].field == offsetof(tow_train_bytes, gradients) ||
            kinds[i].field == offsetof(tow_train_bytes, exchange))
            printf(", at most at once");
        putchar('\n');
    }
}

/* ---- what processes exchange ------------------------------------------------------------------------------------- */

/* Collectives of one kind in one loop, of one pass. */
typedef struct exchanged {
    tow_program_collective first;
    long long runs;
    unsigned long long sent, received;
} exchanged;

enum {
    MOST_LINES = 64
};

static bool is_same_line(const tow_program_collective *a, const tow_program_collective *b)
{
    return strcmp(a->kind, b->kind) == 0 && strcmp(a->pass, b->pass) == 0 && a->length == b->length &&
           a->deferred == b->deferred;
}

/* Returns the number of lines; what is beyond the most is added to the last one. */
static size_t add_up(const tow_program *step, exchanged lines[MOST_LINES])
{
    tow_program_collective c;
    size_t n = 0;
    for (size_t i = 0; tow_program_get_collective(step, i, &c); i++) {
        size_t k = 0;
        while (k < n && k < MOST_LINES - 1 && !is_same_line(&lines[k].first, &c)) k++;
        if (k == n) lines[n++] = (exchanged){.first = c};
        lines[k].runs += (long long)c.runs;
        lines[k].sent += (unsigned long long)(c.sent * (uint64_t)c.runs);
        lines[k].received += (unsigned long long)(c.received * (uint64_t)c.runs);
    }
    return n;
}

static double hidden_share(const tow_program_exchange *x)
{
    return x->communication > 0 ? 1 - x->waiting / x->communication : 1;
}

void report_exchange(const tow_train_state *state, const tow_group *group, double bandwidth, double latency)
{
    const tow_program_exchange x = tow_program_get_exchange(tow_train_program(state), bandwidth, latency);
    exchanged lines[MOST_LINES];
    const size_t n = add_up(tow_train_program(state), lines);
    printf("exchange of a step, rank %d of %d\n", tow_group_rank(group), tow_group_count(group));
    for (size_t i = 0; i < n; i++) {
        char where[64] = "outside of loops";
        const tow_program_collective *c = &lines[i].first;
        if (c->length > 0)
            snprintf(where, sizeof where, "loop of %lld%s", (long long)c->length,
                     c->deferred ? ", beside another iteration" : "");
        printf("  %-14s  %-8s  %-40s %6lld  sent %14llu  received %14llu bytes\n", c->kind, c->pass, where,
               lines[i].runs, lines[i].sent, lines[i].received);
    }
    printf("  all: sent %llu, received %llu bytes; at most %lld gathers and %lld sums in flight\n",
           (unsigned long long)x.sent, (unsigned long long)x.received, (long long)x.gathers_in_flight,
           (long long)x.sums_in_flight);
    printf("  by the model, at %.3g Gbit/s and %.3g us: a step %.4g s, communication %.4g s, of which %.1f %% are "
           "hidden\n",
           bandwidth * 8e-9, latency * 1e6, x.seconds, x.communication, 100 * hidden_share(&x));
}

/* ", "exchanged": {...}", or nothing for a process that trains alone. */
static bool write_exchange(const tow_train_state *state, FILE *file, double bandwidth, double latency)
{
    const tow_program *step = tow_train_program(state);
    const tow_program_exchange x = tow_program_get_exchange(step, bandwidth, latency);
    tow_program_collective c;
    if (x.sums + x.gathers == 0) return true;
    fprintf(file, ", \"exchanged\": {\"sent\": %llu, \"received\": %llu, \"gathers_in_flight\": %lld, ",
            (unsigned long long)x.sent, (unsigned long long)x.received, (long long)x.gathers_in_flight);
    fprintf(file, "\"seconds\": %g, \"communication\": %g, \"hidden\": %g, \"collectives\": [", x.seconds,
            x.communication, hidden_share(&x));
    for (size_t i = 0; tow_program_get_collective(step, i, &c); i++)
        fprintf(file,
                "%s{\"kind\": \"%s\", \"scope\": \"%s\", \"pass\": \"%s\", \"loop\": %lld, \"runs\": %lld, "
                "\"bytes\": %zu, \"sent\": %llu, \"received\": %llu}",
                i ? ", " : "", c.kind, c.scope ? c.scope : "", c.pass, (long long)c.length, (long long)c.runs,
                tow_type_bytes(c.type), (unsigned long long)c.sent, (unsigned long long)c.received);
    return fputs("]}", file) >= 0;
}

/* ---- files and lists --------------------------------------------------------------------------------------------- */

void report_limit(const tow_train_state *state, size_t limit)
{
    const tow_train_bytes bytes = tow_train_get_bytes(state);
    const tow_memory_point now = tow_program_memory_point(tow_train_program(state)),
                           free_of_it = tow_program_unlimited_point(tow_train_program(state));
    printf("  memory limit         %14zu bytes: %zu are taken, evaluation is not counted; without a limit %zu, ", limit,
           bytes.total - bytes.evaluation, free_of_it.bytes);
    printf("modelled time %.3f of that\n", now.seconds / free_of_it.seconds);
}

unsigned long long count_compared(const tow_train_state *state)
{
    return (unsigned long long)tow_program_operation_count(tow_train_program(state), "same_bits");
}

bool write_plan(const tow_train_state *state, const char *path, double bandwidth, double latency)
{
    tow_train_bytes bytes = tow_train_get_bytes(state);
    FILE *file = fopen(path, "w");
    bool ok = file != NULL;
    for (size_t i = 0; ok && i < N_KINDS; i++)
        ok = fprintf(file, "%s\"%s\": %zu", i == 0 ? "{" : ", ", kinds[i].key, bytes_of(&bytes, i)) > 0;
    ok = ok && write_exchange(state, file, bandwidth, latency) && fputs("}\n", file) >= 0;
    if (file && fclose(file) != 0) ok = false;
    if (!ok) fprintf(stderr, "gpt: %s: cannot write the plan: %s\n", path, strerror(errno));
    return ok;
}

bool report_instructions(const tow_train_state *state)
{
    const tow_program *step = tow_train_program(state);
    const size_t size = tow_program_text(step, NULL, 0) + 1;
    char *text = malloc(size);
    if (!text || size == 1) {
        free(text);
        fputs("gpt: out of memory\n", stderr);
        return false;
    }
    tow_program_text(step, text, size);
    printf("instructions of a step\n%s\n", text);
    free(text);
    return true;
}

bool write_memory(const tow_train_state *state, const char *path)
{
    FILE *file = fopen(path, "w");
    bool ok = file != NULL && tow_program_draw_memory(tow_train_program(state), file) == TOW_OK;
    if (file && fclose(file) != 0) ok = false;
    if (!ok) fprintf(stderr, "gpt: %s: cannot draw the memory: %s\n", path, strerror(errno));
    return ok;
}

bool write_graph(const tow_train_state *state, const char *path)
{
    FILE *file = fopen(path, "w");
    bool ok = file != NULL && tow_graph_print(tow_train_loss_graph(state), file) == TOW_OK;
    if (file && fclose(file) != 0) ok = false;
    if (!ok) fprintf(stderr, "gpt: %s: cannot write the graph: %s\n", path, strerror(errno));
    return ok;
}

/* The residuals that differentiation keeps; within a limit, or with reasons, those of the plan. */
static tow_status list_residuals(const tow_train_state *state, bool of_plan, tow_residuals *residuals)
{
    if (of_plan) return tow_program_explain(tow_train_program(state), residuals);
    const size_t n = tow_params_count(tow_train_params(state));
    size_t *wrt = malloc((n + 1) * sizeof *wrt);
    if (!wrt) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < n; i++) wrt[i] = i;
    const tow_status status = tow_saved_residuals(tow_train_loss_graph(state), n, wrt, residuals);
    free(wrt);
    return status;
}

/* Parameters and inputs, and rows of stacked ones, are there anyway. */
static bool is_argument(const tow_residual *r)
{
    const bool part = r->kind == TOW_RESIDUAL_OUTPUT && r->of && strncmp(r->of, "the argument ", 13) == 0;
    return r->kind == TOW_RESIDUAL_ARGUMENT || (part && r->plan.planned && !r->plan.stored);
}

static size_t bytes_again(const tow_residuals *residuals)
{
    size_t bytes = 0;
    for (size_t i = 0; i < residuals->again_count; i++) bytes += residuals->again[i].bytes;
    return bytes;
}

tow_status report_residuals(const tow_train_state *state, bool within, bool why)
{
    tow_residuals residuals;
    const tow_status status = list_residuals(state, within || why, &residuals);
    if (status != TOW_OK) return status;
    /* one line for all arguments */
    tow_residuals made = residuals;
    made.count = made.bytes = made.argument_bytes = 0;
    for (size_t i = 0; i < residuals.count; i++) {
        if (is_argument(&residuals.items[i])) continue;
        made.bytes += residuals.items[i].bytes;
        made.items[made.count++] = residuals.items[i];
    }
    size_t (*const write)(const tow_residuals *, char *, size_t) = why ? tow_residuals_reasons : tow_residuals_text;
    const size_t size = write(&made, NULL, 0) + 1;
    char *text = malloc(size);
    if (text) {
        write(&made, text, size);
        printf("residuals of a step%s\n%s", within ? " within the memory limit" : "", text);
        if (within && !why)
            printf("made again: %zu values, %zu bytes (--why lists them)\n", residuals.again_count,
                   bytes_again(&residuals));
        printf("and %zu arguments, %zu bytes: parameters and inputs, which are kept anyway\n\n",
               residuals.count - made.count, residuals.bytes - made.bytes);
        free(text);
    }
    tow_residuals_free(&residuals);
    return TOW_OK;
}

/* marks[0]: the plan without a limit. */
void report_plans(size_t n, const tow_memory_point *points, size_t n_marks, const tow_memory_mark *marks)
{
    const size_t size = tow_memory_curve_text(n, points, n_marks, marks, NULL, 0) + 1;
    char *text = malloc(size);
    if (!text) return;
    tow_memory_curve_text(n, points, n_marks, marks, text, size);
    printf("plans of a step\n%s\n", text);
    free(text);
    if (marks[0].point.seconds > 1.0005 * points[n - 1].seconds)
        puts("no limit: the step as it is written, without a search; a limit of as many bytes finds a faster one\n");
}
