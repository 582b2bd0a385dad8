/* Reading logs: JSON lines, events, directories of events. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/tool/plot.h"

enum {
    REPORTS = 5,          /* of lines, before only their number is told */
    MOST_FILES = 1 << 16, /* in a directory */
};

typedef struct source {
    tool *t;
    tool_logs *logs;
    const char *log, *path;    /* the argument, and the file */
    double first_time;         /* wall time of the first event; NAN: none yet */
    double last_seconds, gone; /* of the lines before, and of the runs before this one */
    long reports;
    bool failed; /* no memory */
} source;

/* ---- curves ------------------------------------------------------------------------------------------------------ */

static bool grow(double **list, size_t capacity)
{
    double *grown = realloc(*list, capacity * sizeof *grown);
    if (grown) *list = grown;
    return grown != NULL;
}

static tool_curve *find_curve(source *s, const char *name)
{
    tool_logs *logs = s->logs;
    for (size_t i = logs->n_curves; i-- > 0;)
        if (logs->curves[i].log == s->log && strcmp(logs->curves[i].name, name) == 0) return &logs->curves[i];
    if (logs->n_curves == logs->capacity) {
        const size_t capacity = 2 * logs->capacity + 16;
        tool_curve *grown = realloc(logs->curves, capacity * sizeof *grown);
        if (!grown) return NULL;
        logs->curves = grown;
        logs->capacity = capacity;
    }
    char *copy = strdup(name);
    if (!copy) return NULL;
    logs->curves[logs->n_curves] = (tool_curve){.name = copy, .log = s->log};
    return &logs->curves[logs->n_curves++];
}

static bool add_point(source *s, const char *name, double step, double seconds, double value)
{
    tool_curve *c = find_curve(s, name);
    if (c && c->n == c->capacity) {
        const size_t capacity = 2 * c->capacity + 256;
        if (!grow(&c->steps, capacity) || !grow(&c->seconds, capacity) || !grow(&c->values, capacity))
            c = NULL;
        else
            c->capacity = capacity;
    }
    s->failed = s->failed || !c;
    if (!c) return false;
    c->steps[c->n] = step;
    c->seconds[c->n] = seconds;
    c->values[c->n++] = value;
    return true;
}

void tool_free_logs(tool_logs *logs)
{
    for (size_t i = 0; i < logs->n_curves; i++) {
        free(logs->curves[i].name);
        free(logs->curves[i].steps);
        free(logs->curves[i].seconds);
        free(logs->curves[i].values);
    }
    free(logs->curves);
}

/* ---- JSON lines -------------------------------------------------------------------------------------------------- */

static void report(source *s, long line, const char *expected, const char *found)
{
    if (s->reports++ < REPORTS)
        fprintf(stderr, "tow: %s:%ld: expected %s, found '%.*s'; left out\n", s->path, line, expected,
                (int)strcspn(found, "\n") < 60 ? (int)strcspn(found, "\n") : 60, found);
}

/* Runs that go on after a checkpoint count their seconds anew. */
static double seconds_of(source *s, const json_t *line)
{
    const json_t *seconds = json_object_get(line, "seconds");
    if (!json_is_number(seconds)) return NAN;
    const double now = json_number_value(seconds);
    if (now < s->last_seconds) s->gone += s->last_seconds;
    s->last_seconds = now;
    return s->gone + now;
}

static void read_line(source *s, const char *text, long number)
{
    json_error_t error;
    json_t *line = json_loads(text, 0, &error);
    const json_t *step = json_object_get(line, "step");
    if (!json_is_number(step)) {
        report(s, number, "an object with a number \"step\"", text);
    } else {
        const double seconds = seconds_of(s, line);
        const char *name;
        json_t *value;
        json_object_foreach(line, name, value)
        {
            if (strcmp(name, "step") == 0 || (!json_is_number(value) && !json_is_null(value))) continue;
            if (!add_point(s, name, json_number_value(step), seconds,
                           json_is_null(value) ? NAN : json_number_value(value)))
                break;
        }
    }
    json_decref(line);
}

/* Lines from number `first` on. */
static tow_status read_lines(source *s, FILE *file, long first)
{
    char *text = NULL;
    size_t capacity = 0;
    errno = 0;
    for (long number = first; !s->failed && getline(&text, &capacity, file) >= 0; number++)
        if (text[strspn(text, " \t\r\n")] != '\0') read_line(s, text, number);
    free(text);
    if (s->reports > REPORTS) fprintf(stderr, "tow: %s: %ld more lines were left out\n", s->path, s->reports - REPORTS);
    return ferror(file) ? tool_fail(s->t, TOW_IO_ERROR, "%s: cannot read: %s", s->path, strerror(errno)) : TOW_OK;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static tow_status note(const tow_log_entry *entry, void *user)
{
    source *s = user;
    if (isnan(s->first_time)) s->first_time = entry->wall_time;
    const double seconds = entry->wall_time - s->first_time;
    return add_point(s, entry->name, (double)entry->step, seconds, entry->value) ? TOW_OK : TOW_OUT_OF_MEMORY;
}

/* Points before a record that is not whole are drawn. */
static tow_status read_events(source *s)
{
    const size_t before = s->logs->n_curves;
    const tow_status status = tow_events_read(s->t->context, s->path, note, s);
    if (status != TOW_BAD_FORMAT) return status;
    if (s->logs->n_curves == before && isnan(s->first_time))
        return tool_fail(s->t, TOW_BAD_FORMAT, "expected JSON lines or a file of events; %s",
                         tow_context_error(s->t->context));
    fprintf(stderr, "tow: %s; what follows is left out\n", tow_context_error(s->t->context));
    tow_context_clear_error(s->t->context);
    return TOW_OK;
}

/* ---- files and directories --------------------------------------------------------------------------------------- */

static tow_status read_file(source *s)
{
    const bool standard = strcmp(s->path, "-") == 0; /* lines alone: events are not read from a pipe */
    FILE *file = standard ? stdin : fopen(s->path, "rb");
    if (!file) return tool_fail(s->t, TOW_IO_ERROR, "%s: cannot open: %s", s->path, strerror(errno));
    int first = fgetc(file);
    long line = 1;
    for (; first == ' ' || first == '\n' || first == '\r' || first == '\t'; first = fgetc(file)) line += first == '\n';
    tow_status status = TOW_OK;
    const bool lines = first == '{' || first == EOF;
    if ((lines || standard) && first != EOF) ungetc(first, file);
    if (lines || standard) status = read_lines(s, file, line);
    if (!standard) fclose(file);
    if (!lines && !standard) status = read_events(s);
    return s->failed ? tool_fail(s->t, TOW_OUT_OF_MEMORY, "%s: out of memory", s->path) : status;
}

static int is_events(const struct dirent *entry) { return strstr(entry->d_name, "tfevents") != NULL; }

static tow_status read_directory(source *s, const char *directory)
{
    struct dirent **entries = NULL;
    const int n = scandir(directory, &entries, is_events, alphasort); /* their names begin with the time */
    tow_status status = TOW_OK;
    if (n < 0) return tool_fail(s->t, TOW_IO_ERROR, "%s: cannot read the directory: %s", directory, strerror(errno));
    if (n == 0) status = tool_fail(s->t, TOW_NOT_FOUND, "%s: there is no file of events (*tfevents*)", directory);
    for (int i = 0; i < n; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name);
        s->path = path;
        if (status == TOW_OK) status = read_file(s);
        free(entries[i]);
    }
    free(entries);
    return status;
}

tow_status tool_read_log(tool *t, const char *path, tool_logs *logs)
{
    source s = {.t = t, .logs = logs, .log = path, .path = path, .first_time = NAN};
    DIR *directory = opendir(path);
    if (!directory) return read_file(&s);
    closedir(directory);
    return read_directory(&s, path);
}
