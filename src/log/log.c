/* A log of a training: JSON lines, events, or both. */
#include "src/log/log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "src/base/locale.h"
#include "src/base/options.h"
#include "src/log/events.h"
#include "src/log/png.h"

/* ---- files ------------------------------------------------------------------------------------------------------- */

static tow_status cannot(tow_context *ctx, const char *path, const char *what)
{
    return tow__fail(ctx, TOW_IO_ERROR, "%s: cannot %s: %s", path, what, strerror(errno));
}

static tow_status append(tow_logger *log, int fd, const char *path, const void *data, size_t size)
{
    for (const char *at = data; size > 0;) {
        const ssize_t n = write(fd, at, size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return cannot(log->ctx, path, "write the log");
        at += n;
        size -= (size_t)n;
    }
    return TOW_OK;
}

/* ---- JSON lines -------------------------------------------------------------------------------------------------- */

enum {
    PIECE = 1 << 16
};

/* Reads "{"step": N" at the beginning of a line of a log; false if it is something else. */
static bool step_of_line(const char *line, long long *step)
{
    int at = 0;
    return sscanf(line, "{\"step\": %lld%n", step, &at) == 1 && at > 0;
}

/* Bytes of the file before the first line of a step after `first`, or of one that is not finished: a run that was
 * killed may have logged steps that its last checkpoint does not know. */
static tow_status bytes_to_keep(tow_logger *log, int64_t first, off_t *keep)
{
    char head[64], *piece = tow__alloc(log->ctx, PIECE, 1);
    size_t length = 0; /* of the line so far, of which `head` has the beginning */
    off_t at = 0;
    ssize_t n = 0;
    bool goes_on = true;
    if (!piece) return TOW_OUT_OF_MEMORY;
    *keep = 0;
    const int fd = open(log->lines_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) n = -1;
    while (fd >= 0 && goes_on && (n = pread(fd, piece, PIECE, at)) > 0) {
        for (ssize_t i = 0; i < n && goes_on; i++) {
            if (length < sizeof head - 1) head[length] = piece[i];
            length++;
            if (piece[i] != '\n') continue;
            long long step;
            head[length < sizeof head ? length : sizeof head - 1] = '\0';
            goes_on = step_of_line(head, &step) && step <= first;
            if (goes_on) *keep = at + i + 1;
            length = 0;
        }
        at += n;
    }
    const tow_status status = n < 0 ? cannot(log->ctx, log->lines_path, "read the log") : TOW_OK;
    if (fd >= 0) close(fd);
    tow__free(log->ctx, piece, PIECE, 1);
    return status;
}

static tow_status open_lines(tow_logger *log, int64_t first)
{
    off_t keep = 0;
    struct stat info;
    /* not for reading as well: whoever holds both ends of a pipe never learns that its reader is gone */
    log->lines = open(log->lines_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (log->lines < 0 || fstat(log->lines, &info) != 0) return cannot(log->ctx, log->lines_path, "write the log");
    if (!S_ISREG(info.st_mode)) return TOW_OK;
    tow_status status = first > 0 ? bytes_to_keep(log, first, &keep) : TOW_OK;
    if (status == TOW_OK && ftruncate(log->lines, keep) != 0) return cannot(log->ctx, log->lines_path, "write the log");
    return status;
}

static void add_json_string(tow__string *s, const char *text)
{
    tow__string_add(s, "\"");
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            tow__string_add(s, "\\%c", c);
        else if (c < ' ')
            tow__string_add(s, "\\u%04x", c);
        else
            tow__string_add(s, "%c", c);
    }
    tow__string_add(s, "\"");
}

/* JSON has no NaN and no infinities: they are null. */
static tow_status add_line(tow_logger *log, int64_t step, size_t n, const tow_log_number *numbers)
{
    tow__string s;
    tow__string_init(&s, log->ctx);
    const tow__locale locale = tow__locale_enter();
    tow__string_add(&s, "{\"step\": %lld", (long long)step);
    for (size_t i = 0; i < n; i++) {
        tow__string_add(&s, ", ");
        add_json_string(&s, numbers[i].name);
        tow__string_add(&s, isfinite(numbers[i].value) ? ": %.9g" : ": null", numbers[i].value);
    }
    tow__string_add(&s, "}\n");
    tow__locale_leave(locale);
    const tow_status status = s.failed ? TOW_OUT_OF_MEMORY : append(log, log->lines, log->lines_path, s.text, s.length);
    tow__string_free(&s);
    return status;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static double wall_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Makes the directory and those above it. */
static tow_status make_directories(tow_logger *log, const char *path)
{
    const size_t size = strlen(path) + 2;
    char *part = tow__alloc(log->ctx, size, 1);
    if (!part) return TOW_OUT_OF_MEMORY;
    memcpy(part, path, size - 2);
    part[size - 2] = '/';
    tow_status status = TOW_OK;
    for (char *at = strchr(part + 1, '/'); at && status == TOW_OK; at = strchr(at + 1, '/')) {
        *at = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST) status = cannot(log->ctx, part, "create the directory");
        *at = '/';
    }
    tow__free(log->ctx, part, size, 1);
    return status;
}

/* events.out.tfevents.SECONDS.HOST, with a number behind it if there is one of that name. */
static tow_status open_events(tow_logger *log, const char *directory, int64_t first)
{
    enum {
        MOST = 1000,
        NAME = 320
    };
    char host[65] = "localhost";
    tow_status status = make_directories(log, directory);
    if (status != TOW_OK) return status;
    if (gethostname(host, sizeof host) != 0 || host[0] == '\0') strcpy(host, "localhost");
    host[sizeof host - 1] = '\0';
    log->events_bytes = strlen(directory) + NAME;
    log->events_path = tow__alloc(log->ctx, log->events_bytes, 1);
    if (!log->events_path) return TOW_OUT_OF_MEMORY;
    const double now = wall_time();
    for (int i = 0; i < MOST && log->events < 0; i++) {
        const int n = snprintf(log->events_path, log->events_bytes, "%s/events.out.tfevents.%010lld.%s", directory,
                               (long long)now, host);
        if (i > 0) snprintf(log->events_path + n, log->events_bytes - (size_t)n, ".%d", i);
        log->events = open(log->events_path, O_CREAT | O_EXCL | O_WRONLY | O_APPEND | O_CLOEXEC, 0666);
        if (log->events < 0 && errno != EEXIST) break;
    }
    if (log->events < 0) return cannot(log->ctx, log->events_path, "write events");
    tow__event_version(&log->bytes, now);
    if (first > 0) tow__event_start(&log->bytes, now, first + 1);
    return TOW_OK;
}

/* Writes the records that were encoded. */
static tow_status write_events(tow_logger *log)
{
    tow_status status = log->bytes.failed
                            ? TOW_OUT_OF_MEMORY
                            : append(log, log->events, log->events_path, log->bytes.data, log->bytes.size);
    log->bytes.size = 0;
    log->bytes.failed = false;
    return status;
}

/* ---- the public functions ---------------------------------------------------------------------------------------- */

static tow_status open_files(tow_logger *log, const tow_logger_options *o)
{
    tow_status status = TOW_OK;
    if (o->lines) {
        log->lines_bytes = strlen(o->lines) + 1;
        log->lines_path = tow__alloc(log->ctx, log->lines_bytes, 1);
        if (!log->lines_path) return TOW_OUT_OF_MEMORY;
        memcpy(log->lines_path, o->lines, log->lines_bytes);
        TRY(open_lines(log, o->first));
    }
    if (o->events) {
        TRY(open_events(log, o->events, o->first));
        TRY(write_events(log));
    }
done:
    return status;
}

tow_status tow_logger_create(tow_context *context, const tow_logger_options *options, tow_logger **log)
{
    if (log) *log = NULL;
    if (!context || !options || !log)
        return tow__missing(context, __func__, "a context, options and a place for the log");
    tow_logger_options own;
    if (!TOW__OPTIONS_TAKE(context, tow_logger_options, options, &own)) return TOW_INVALID_ARGUMENT;
    if (options->first < 0)
        return tow__fail(context, TOW_INVALID_ARGUMENT, "expected .first of at least 0, found %lld",
                         (long long)options->first);
    tow_logger *l = tow__alloc(context, 1, sizeof *l);
    if (!l) return TOW_OUT_OF_MEMORY;
    *l = (tow_logger){.ctx = context, .lines = -1, .events = -1};
    tow__bytes_init(&l->bytes, context);
    const tow_status status = open_files(l, options);
    if (status == TOW_OK)
        *log = l;
    else
        (void)tow_logger_free(l);
    return status;
}

static tow_status check_names(tow_logger *log, size_t n, const tow_log_number *numbers)
{
    for (size_t i = 0; i < n; i++)
        if (!numbers[i].name || strcmp(numbers[i].name, "step") == 0)
            return tow__fail(log->ctx, TOW_INVALID_ARGUMENT,
                             "expected a name other than \"step\" for number %zu, found %s", i,
                             numbers[i].name ? "\"step\"" : "NULL");
    return TOW_OK;
}

tow_status tow_logger_numbers(tow_logger *log, int64_t step, size_t n, const tow_log_number *numbers)
{
    if (!log || (n > 0 && !numbers)) return tow__missing(log ? log->ctx : NULL, __func__, "a log and numbers");
    tow_status status = TOW_OK;
    TRY(check_names(log, n, numbers));
    if (log->lines >= 0) TRY(add_line(log, step, n, numbers));
    if (log->events < 0) return TOW_OK;
    const double now = wall_time();
    for (size_t i = 0; i < n; i++) tow__event_number(&log->bytes, now, step, numbers[i].name, numbers[i].value);
    TRY(write_events(log));
done:
    return status;
}

tow_status tow_logger_image(tow_logger *log, int64_t step, const char *name, const tow_array *pixels)
{
    if (!log || !name || !pixels) return tow__missing(log ? log->ctx : NULL, __func__, "a log, a name and pixels");
    int64_t height, width, channels;
    tow_status status = tow__png_shape(log->ctx, pixels, &height, &width, &channels);
    if (status != TOW_OK || log->events < 0) return status;
    tow__bytes png;
    tow__bytes_init(&png, log->ctx);
    TRY(tow__png_encode(log->ctx, pixels, &png));
    tow__event_image(&log->bytes, wall_time(), step, name, height, width, channels, png.data, png.size);
    TRY(write_events(log));
done:
    tow__bytes_free(&png);
    return status;
}

tow_status tow_logger_histogram(tow_logger *log, int64_t step, const char *name, const tow_array *values)
{
    if (!log || !name || !values) return tow__missing(log ? log->ctx : NULL, __func__, "a log, a name and values");
    if (log->events < 0) return TOW_OK;
    tow_array *wide = NULL;
    tow_status status = TOW_OK;
    TRY(tow_array_convert(values, TOW_F64, &wide));
    const tow__histogram h = tow__histogram_of(tow_array_data(wide), tow_type_element_count(tow_array_type(wide)));
    tow__event_histogram(&log->bytes, wall_time(), step, name, &h);
    TRY(write_events(log));
done:
    tow_array_release(wide);
    return status;
}

tow_status tow_logger_sync(tow_logger *log)
{
    if (!log) return tow__missing(NULL, __func__, "a log");
    /* pipes and terminals have nothing to sync: EINVAL */
    if (log->lines >= 0 && fsync(log->lines) != 0 && errno != EINVAL && errno != EROFS)
        return cannot(log->ctx, log->lines_path, "sync the log");
    if (log->events >= 0 && fsync(log->events) != 0) return cannot(log->ctx, log->events_path, "sync the log");
    return TOW_OK;
}

tow_status tow_logger_free(tow_logger *log)
{
    if (!log) return TOW_OK;
    tow_context *ctx = log->ctx;
    tow_status status = TOW_OK;
    if (log->lines >= 0 && close(log->lines) != 0) status = cannot(ctx, log->lines_path, "write the log");
    if (log->events >= 0 && close(log->events) != 0) status = cannot(ctx, log->events_path, "write the log");
    tow__bytes_free(&log->bytes);
    tow__free(ctx, log->lines_path, log->lines_bytes, 1);
    tow__free(ctx, log->events_path, log->events_bytes, 1);
    tow__free(ctx, log, 1, sizeof *log);
    return status;
}

const char *tow_logger_events_path(const tow_logger *log) { return log->events >= 0 ? log->events_path : NULL; }
