/* The bar, the lines and the log. */
#include "progress.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum {
    BAR = 24,      /* columns, at most */
    LEAST_BAR = 8, /* a shorter one says too little */
    LINE = 256,    /* bytes of the text beside it, at most */
    COLUMNS = 80,  /* of a terminal that does not say how many it has */
    LINE_EVERY = 20
};

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- log --------------------------------------------------------------------------------------------------------- */

static bool log_failed(const progress *p)
{
    fprintf(stderr, "gpt: %s: cannot write the log: %s\n", p->log_path, strerror(errno));
    return false;
}

/* Opens the log for appending and cuts it before the first line of a step after `first`, or an unfinished line: a run
 * that was killed may have logged steps that its last checkpoint does not know. */
static bool open_log(progress *p)
{
    p->log = fopen(p->log_path, p->first > 0 ? "a+" : "w");
    if (!p->log) return log_failed(p);
    long keep = 0;
    char *line = NULL;
    size_t capacity = 0;
    if (p->first > 0) rewind(p->log);
    while (p->first > 0) {
        ssize_t length = getline(&line, &capacity, p->log);
        long long step;
        if (length < 0 || line[length - 1] != '\n' || sscanf(line, "{\"step\": %lld", &step) != 1 || step > p->first)
            break;
        keep += length;
    }
    free(line);
    fflush(p->log);
    if (p->first > 0 && ftruncate(fileno(p->log), keep) != 0) return log_failed(p);
    return fseek(p->log, 0, SEEK_END) == 0 || errno == ESPIPE || log_failed(p); /* a pipe is always at its end */
}

/* JSON has no NaN and no infinities: they are null. */
static void log_number(FILE *log, const char *key, double value)
{
    if (isfinite(value))
        fprintf(log, ", \"%s\": %.9g", key, value);
    else
        fprintf(log, ", \"%s\": null", key);
}

static bool log_step(progress *p, int64_t step, double loss, double val_loss, double now, double rate)
{
    fprintf(p->log, "{\"step\": %lld", (long long)step);
    log_number(p->log, "loss", loss);
    if (!isnan(val_loss)) log_number(p->log, "val_loss", val_loss);
    log_number(p->log, "seconds", now - p->start);
    log_number(p->log, "tokens_per_second", rate);
    fputs("}\n", p->log);
    return (fflush(p->log) == 0 && !ferror(p->log)) || log_failed(p);
}

/* ---- screen ------------------------------------------------------------------------------------------------------ */

static void format_duration(double seconds, char *text, size_t size)
{
    long s = (long)(seconds + 0.5);
    if (s >= 3600)
        snprintf(text, size, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, size, "%ld:%02ld", s / 60, s % 60);
}

/* Columns of the terminal now: its window may change while the program runs. */
static size_t terminal_columns(void)
{
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : COLUMNS;
}

/* Items of the text, in the order in which they are shown. */
enum {
    AT,
    LOSS,
    VAL,
    RATE,
    LEFT,
    N_ITEMS
};

/* Joins those that fit into `columns`; those that say least are left out first, the rate for the sake of a bar as well, and what
 * is cut is the last resort. */
static void join_items(char items[N_ITEMS][64], size_t columns, char line[LINE])
{
    static const int dispensable[] = {RATE, LEFT, VAL, LOSS};
    size_t length = 0;
    for (int i = 0; i < N_ITEMS; i++) length += strlen(items[i]);
    for (size_t i = 0; i < sizeof dispensable / sizeof *dispensable; i++) {
        if (length + (dispensable[i] == RATE ? LEAST_BAR + 3 : 0) <= columns) break;
        length -= strlen(items[dispensable[i]]);
        items[dispensable[i]][0] = '\0';
    }
    line[0] = '\0';
    for (int i = 0; i < N_ITEMS; i++) strcat(line, items[i]);
    if (columns < (size_t)LINE) line[columns] = '\0';
}

/* A bar as wide as there is room for beside the text. The last column stays free: some terminals begin a new line when
 * it is written. */
static void show_bar(const progress *p, int64_t step, char items[N_ITEMS][64])
{
    char bar[BAR + 1], line[LINE];
    size_t columns = terminal_columns() - 1;
    join_items(items, columns, line);
    size_t room = columns - strlen(line), width = room < 3 ? 0 : room - 3;
    if (width > BAR) width = BAR;
    memset(bar, '.', BAR);
    memset(bar, '#', (size_t)((double)step * (double)width / (double)p->steps));
    bar[width] = '\0';
    if (width >= LEAST_BAR)
        printf("\r\033[K[%s] %s", bar, line);
    else
        printf("\r\033[K%s", line);
}

static void show(const progress *p, int64_t step, double loss, double now)
{
    char items[N_ITEMS][64] = {{0}}, left[32];
    double mean_rate = (double)((step - p->first) * p->tokens_per_step) / (now - p->start);
    format_duration((double)((p->steps - step) * p->tokens_per_step) / mean_rate, left, sizeof left);
    snprintf(items[AT], sizeof items[AT], "%lld/%lld", (long long)step, (long long)p->steps);
    snprintf(items[LOSS], sizeof items[LOSS], "  loss %.4f", loss);
    if (!isnan(p->val_loss)) snprintf(items[VAL], sizeof items[VAL], "  val %.4f", p->val_loss);
    snprintf(items[RATE], sizeof items[RATE], "  %.0f tokens/s", mean_rate);
    snprintf(items[LEFT], sizeof items[LEFT], "  %s left", left);
    if (p->terminal)
        show_bar(p, step, items);
    else
        printf("step %s%s%s%s%s\n", items[AT], items[LOSS], items[VAL], items[RATE], items[LEFT]);
    fflush(stdout);
}

bool progress_start(progress *p, int64_t first, int64_t steps, int64_t tokens_per_step, const char *log_path)
{
    *p = (progress){.terminal = isatty(STDOUT_FILENO) == 1,
                    .first = first,
                    .steps = steps,
                    .tokens_per_step = tokens_per_step,
                    .val_loss = NAN,
                    .log_path = log_path};
    p->start = p->last = seconds_now();
    return !log_path || open_log(p);
}

bool progress_step(progress *p, int64_t step, double loss, double val_loss)
{
    double now = seconds_now(), rate = (double)p->tokens_per_step / (now - p->last);
    bool measured = !isnan(val_loss);
    if (measured) p->val_loss = val_loss;
    bool due = p->terminal ? now - p->last_shown > 0.1 : measured || step % LINE_EVERY == 0 || step == 1;
    if (due || step == p->steps) {
        show(p, step, loss, now);
        p->last_shown = now;
    }
    bool ok = !p->log || log_step(p, step, loss, val_loss, now, rate);
    p->last = now;
    return ok;
}

bool progress_end(progress *p)
{
    if (p->terminal && p->last_shown > 0) putchar('\n');
    if (!p->log) return true;
    FILE *log = p->log;
    p->log = NULL;
    return fclose(log) == 0 || log_failed(p);
}
