/* The bar, the lines and the log. */
#include "progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common.h"

enum {
    BAR = 24,      /* columns, at most */
    LEAST_BAR = 8, /* a shorter one says too little */
    LINE = 256,    /* bytes of the text beside it, at most */
    COLUMNS = 80,  /* of a terminal that does not say how many it has */
    LINE_EVERY = 20
};

/* ---- log --------------------------------------------------------------------------------------------------------- */

static bool log_failed(const progress *p)
{
    report_error(p->options.program, p->context);
    return false;
}

static bool open_log(progress *p)
{
    const progress_options *o = &p->options;
    const tow_context_options one = TOW_CONTEXT_OPTIONS(.threads = 1);
    const tow_logger_options log = TOW_LOGGER_OPTIONS(.lines = o->log, .events = o->events, .first = o->first);
    return (tow_context_create(&one, &p->context) == TOW_OK &&
            tow_logger_create(p->context, &log, &p->log) == TOW_OK) ||
           log_failed(p);
}

static bool log_step(progress *p, int64_t step, double loss, double measured, double now, double rate)
{
    char key[64];
    tow_log_number numbers[4] = {{"loss", loss}};
    size_t n = 1;
    snprintf(key, sizeof key, "%.40s_per_second", p->options.unit);
    if (!isnan(measured)) numbers[n++] = (tow_log_number){p->options.measure_key, measured};
    numbers[n++] = (tow_log_number){"seconds", now - p->start};
    numbers[n++] = (tow_log_number){key, rate};
    return tow_logger_numbers(p->log, step, n, numbers) == TOW_OK || log_failed(p);
}

static bool close_log(progress *p)
{
    bool ok = tow_logger_free(p->log) == TOW_OK || log_failed(p);
    tow_context_free(p->context);
    p->log = NULL;
    p->context = NULL;
    return ok;
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
    MEASURE,
    RATE,
    LEFT,
    N_ITEMS
};

/* Joins those that fit into `columns`; those that say least are left out first, the rate for the sake of a bar as well,
 * and what is cut is the last resort. */
static void join_items(char items[N_ITEMS][64], size_t columns, char line[LINE])
{
    static const int dispensable[] = {RATE, LEFT, MEASURE, LOSS};
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
    memset(bar, '#', (size_t)((double)step * (double)width / (double)p->options.steps));
    bar[width] = '\0';
    if (width >= LEAST_BAR)
        printf("\r\033[K[%s] %s", bar, line);
    else
        printf("\r\033[K%s", line);
}

static void show(const progress *p, int64_t step, double loss, double now)
{
    const progress_options *o = &p->options;
    char items[N_ITEMS][64] = {{0}}, left[32];
    double steps_per_second = (double)(step - o->first) / (now - p->start);
    format_duration((double)(o->steps - step) / steps_per_second, left, sizeof left);
    snprintf(items[AT], sizeof items[AT], "%lld/%lld", (long long)step, (long long)o->steps);
    snprintf(items[LOSS], sizeof items[LOSS], "  loss %.4f", loss);
    if (!isnan(p->measured)) snprintf(items[MEASURE], sizeof items[MEASURE], "  %.40s %.4f", o->measure, p->measured);
    snprintf(items[RATE], sizeof items[RATE], "  %.0f %.40s/s", steps_per_second * (double)o->units_per_step, o->unit);
    snprintf(items[LEFT], sizeof items[LEFT], "  %s left", left);
    if (p->terminal)
        show_bar(p, step, items);
    else
        printf("step %s%s%s%s%s\n", items[AT], items[LOSS], items[MEASURE], items[RATE], items[LEFT]);
    fflush(stdout);
}

static bool diverged(const progress *p, int64_t step)
{
    if (p->terminal && p->last_shown > 0) putchar('\n'); /* ends the line of the bar */
    fflush(stdout);
    fprintf(stderr, "%s: the loss of step %lld is not finite; use a smaller --learning-rate\n", p->options.program,
            (long long)step);
    return false;
}

bool progress_start(progress *p, const progress_options *options)
{
    *p = (progress){.options = *options, .terminal = isatty(STDOUT_FILENO) == 1, .measured = NAN};
    progress_options *o = &p->options;
    if (!o->unit) o->unit = "steps";
    if (!o->units_per_step) o->units_per_step = 1;
    if (!o->measure) o->measure = "val";
    if (!o->measure_key) o->measure_key = "val_loss";
    p->start = p->last = seconds_now();
    if ((!o->log && !o->events) || open_log(p)) return true;
    close_log(p);
    return false;
}

bool progress_step(progress *p, int64_t step, double loss, double measured)
{
    const progress_options *o = &p->options;
    double now = seconds_now(), rate = (double)o->units_per_step / (now - p->last);
    bool fresh = !isnan(measured);
    if (fresh) p->measured = measured;
    bool due = p->terminal ? now - p->last_shown > 0.1 : fresh || step % LINE_EVERY == 0 || step == 1;
    if (due || step == o->steps) {
        show(p, step, loss, now);
        p->last_shown = now;
    }
    bool ok = !p->log || log_step(p, step, loss, measured, now, rate);
    p->last = now;
    return ok && (isfinite(loss) || diverged(p, step));
}

bool progress_end(progress *p)
{
    if (p->terminal && p->last_shown > 0) putchar('\n');
    return close_log(p);
}
