/* The subcommand plot: logs of trainings as a chart. Logs are files of JSON lines, as gpt --log writes them, files of
 * TensorBoard events, or directories of such files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/tool/plot.h"

/* ---- which numbers ----------------------------------------------------------------------------------------------- */

/* True if --y has the name, or without it, if the name tells of a loss. */
static bool is_asked_for(const tool_options *o, const char *name)
{
    if (!o->y) return strstr(name, "loss") != NULL;
    for (const char *at = o->y; *at;) {
        const size_t length = strcspn(at, ",");
        if (strlen(name) == length && memcmp(at, name, length) == 0) return true;
        at += length + (at[length] == ',');
    }
    return false;
}

/* All names that the logs have, for a message. */
static void list_names(const tool_logs *logs, char *text, size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (size_t i = 0; i < logs->n_curves; i++) {
        bool again = false;
        for (size_t j = 0; j < i; j++) again |= strcmp(logs->curves[i].name, logs->curves[j].name) == 0;
        if (again || at >= size) continue;
        at += (size_t)snprintf(text + at, size - at, "%s%s", at > 0 ? ", " : "", logs->curves[i].name);
    }
}

/* ---- series ------------------------------------------------------------------------------------------------------ */

/* The label of a curve: what tells it apart from the others. */
static const char *label_of(const tool_curve *c, bool many_logs, bool many_names, char *text, size_t size)
{
    if (many_logs && many_names)
        snprintf(text, size, "%s: %s", c->log, c->name);
    else
        snprintf(text, size, "%s", many_logs ? c->log : c->name);
    return text;
}

typedef struct picture {
    tow_series *series; /* of the curves that are asked for */
    char (*labels)[512];
    size_t n;
    bool many_logs, many_names;
    const char *name; /* of the first one */
} picture;

static void choose(const tool *t, const tool_logs *logs, picture *p)
{
    const bool seconds = t->options.x && strcmp(t->options.x, "seconds") == 0;
    const tool_curve *first = NULL;
    for (size_t i = 0; i < logs->n_curves; i++) {
        const tool_curve *c = &logs->curves[i];
        if (!is_asked_for(&t->options, c->name)) continue;
        if (!first) first = c;
        p->many_logs |= strcmp(c->log, first->log) != 0;
        p->many_names |= strcmp(c->name, first->name) != 0;
    }
    if (first) p->name = first->name;
    for (size_t i = 0; i < logs->n_curves; i++) {
        const tool_curve *c = &logs->curves[i];
        if (!is_asked_for(&t->options, c->name)) continue;
        const char *label = label_of(c, p->many_logs, p->many_names, p->labels[p->n], sizeof p->labels[p->n]);
        p->series[p->n++] =
            (tow_series){.name = label, .n = c->n, .x = seconds ? c->seconds : c->steps, .y = c->values};
    }
}

static tow_status draw(tool *t, const tool_logs *logs)
{
    const tool_options *o = &t->options;
    picture p = {.series = calloc(logs->n_curves + 1, sizeof *p.series),
                 .labels = calloc(logs->n_curves + 1, sizeof *p.labels)};
    tow_status status =
        p.series && p.labels ? TOW_OK : tool_fail(t, TOW_OUT_OF_MEMORY, "out of memory for %zu curves", logs->n_curves);
    if (status == TOW_OK) choose(t, logs, &p);
    if (status == TOW_OK && p.n == 0) {
        char names[512];
        list_names(logs, names, sizeof names);
        status =
            tool_fail(t, TOW_NOT_FOUND, "no number %s%s; the logs have: %s", o->y ? "of --y " : "whose name has 'loss'",
                      o->y ? o->y : ", and no --y", names[0] != '\0' ? names : "none");
    }
    const tow_chart chart =
        TOW_CHART(.title = o->title, .x_label = o->x ? o->x : "step", .y_label = p.many_names ? NULL : p.name,
                  .n_series = p.n, .series = p.series, .smoothing = o->smooth, .log_y = o->log_y);
    const char *path = strcmp(o->output[0], "-") == 0 ? "/dev/stdout" : o->output[0];
    if (status == TOW_OK) status = tow_chart_write(t->context, path, &chart);
    free(p.series);
    free(p.labels);
    return status;
}

/* ---- the subcommand ---------------------------------------------------------------------------------------------- */

tow_status tool_plot(tool *t)
{
    tool_logs logs = {0};
    tow_status status = TOW_OK;
    for (size_t i = 0; i < t->options.n_files && status == TOW_OK; i++)
        status = tool_read_log(t, t->options.files[i], &logs);
    if (status == TOW_OK) status = draw(t, &logs);
    tool_free_logs(&logs);
    return status;
}
