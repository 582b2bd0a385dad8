/* Logs: the bytes of events against the specification, JSON lines, resuming, reading back, damaged files.
 * Tests bytes.c, events.c, events_read.c, log.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <unistd.h>

#include "src/log/events.h"
#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/io_files.h"
#include "tow/log.h"

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TOW_OK) fail_msg("%s: %s", #call, tow_context_error(f->ctx));                                    \
    } while (0)

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static void checksums(void **state)
{
    (void)state;
    assert_int_equal(tow__crc32c("123456789", 9), 0xe3069283); /* the check value of CRC-32C */
    assert_int_equal(tow__masked_crc32c("123456789", 9), 0xc78ab0e5);
    assert_int_equal(tow__crc32c("", 0), 0);
}

/* An event that TensorFlow's own code encodes like this: loss 1.5 at step 3, time 100. */
static void golden_event(void **state)
{
    fixture *f = *state;
    static const unsigned char event[] = {0x09, 0,    0,    0,    0,   0,   0,   0x59, 0x40, 0x10, 0x03, 0x2a, 0x0d,
                                          0x0a, 0x0b, 0x0a, 0x04, 'l', 'o', 's', 's',  0x15, 0,    0,    0xc0, 0x3f};
    static const unsigned char length[8] = {sizeof event};
    tow__bytes b;
    tow__bytes_init(&b, f->ctx);
    tow__event_number(&b, 100, 3, "loss", 1.5);
    assert_int_equal(b.size, 12 + sizeof event + 4);
    assert_memory_equal(b.data, length, 8);
    const uint32_t head = tow__masked_crc32c(length, 8), tail = tow__masked_crc32c(event, sizeof event);
    assert_memory_equal(b.data + 8, &head, 4);
    assert_memory_equal(b.data + 12, event, sizeof event);
    assert_memory_equal(b.data + 12 + sizeof event, &tail, 4);
    tow__bytes_free(&b);
}

static void histograms(void **state)
{
    (void)state;
    double values[] = {0, 15, 30, NAN, 29.5, INFINITY};
    tow__histogram h = tow__histogram_of(values, 6);
    assert_int_equal(h.n, 30);
    assert_true(h.least == 0 && h.most == 30 && h.count == 4 && h.sum == 74.5 && h.squares == 225 + 900 + 29.5 * 29.5);
    assert_true(h.counts[0] == 1 && h.counts[15] == 1 && h.counts[29] == 2 && h.limits[0] == 1 && h.limits[29] == 30);
    h = tow__histogram_of((double[]){3, 3}, 2);
    assert_true(h.n == 1 && h.counts[0] == 2 && h.limits[0] == 3);
    h = tow__histogram_of(values, 0);
    assert_true(h.n == 1 && h.count == 0 && h.least == 0);
    h = tow__histogram_of((double[]){-1e308, 1e308}, 2);
    assert_true(h.counts[0] == 1 && h.counts[29] == 1 && isfinite(h.limits[3]));
}

/* ---- JSON lines -------------------------------------------------------------------------------------------------- */

static void assert_lines(const fixture *f, const char *expected)
{
    char text[4096];
    text[read_bytes(f->path, (unsigned char *)text, sizeof text - 1)] = '\0';
    assert_string_equal(text, expected);
}

static void lines(void **state)
{
    fixture *f = *state;
    tow_logger *log;
    OK(tow_logger_create(f->ctx, &TOW_LOGGER_OPTIONS(.lines = f->path), &log));
    OK(tow_logger_numbers(log, 1, 2, (tow_log_number[]){{"loss", 2.5}, {"odd \"name\"\n", NAN}}));
    OK(tow_logger_numbers(log, 2, 1, (tow_log_number[]){{"loss", 1.0 / 3}}));
    OK(tow_logger_numbers(log, 3, 0, NULL));
    assert_int_equal(tow_logger_numbers(log, 4, 1, (tow_log_number[]){{"step", 1}}), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_logger_numbers(log, 4, 1, (tow_log_number[]){{NULL, 1}}), TOW_INVALID_ARGUMENT);
    assert_null(tow_logger_events_path(log));
    OK(tow_logger_sync(log));
    OK(tow_logger_free(log));
    const char *const first = "{\"step\": 1, \"loss\": 2.5, \"odd \\\"name\\\"\\u000a\": null}\n";
    char expected[256];
    snprintf(expected, sizeof expected, "%s{\"step\": 2, \"loss\": 0.333333333}\n{\"step\": 3}\n", first);
    assert_lines(f, expected);
    /* a run that goes on after step 1 cuts off what follows, and what is not a whole line of a step */
    OK(tow_logger_create(f->ctx, &TOW_LOGGER_OPTIONS(.lines = f->path, .first = 1), &log));
    OK(tow_logger_free(log));
    assert_lines(f, first);
    for (const char *const *tail =
             (const char *const[]){"{\"step\": 1, \"los", "nonsense\n", "{\"step\": 2}\n{\"step\": 1}\n", "", NULL};
         *tail; tail++) {
        snprintf(expected, sizeof expected, "%s%s", first, *tail);
        write_bytes(f->path, expected, strlen(expected));
        OK(tow_logger_create(f->ctx, &TOW_LOGGER_OPTIONS(.lines = f->path, .first = 1), &log));
        OK(tow_logger_numbers(log, 2, 0, NULL));
        OK(tow_logger_free(log));
        snprintf(expected, sizeof expected, "%s{\"step\": 2}\n", first);
        assert_lines(f, expected);
    }
    OK(tow_logger_create(f->ctx, &TOW_LOGGER_OPTIONS(.lines = f->path), &log)); /* a new run begins anew */
    OK(tow_logger_free(log));
    assert_lines(f, "");
    assert_int_equal(tow_logger_create(f->ctx, &TOW_LOGGER_OPTIONS(.lines = f->directory), &log), TOW_IO_ERROR);
    assert_message(f, "cannot write the log: Is a directory");
    assert_int_equal(tow_logger_create(f->ctx, &TOW_LOGGER_OPTIONS(.first = -1), &log), TOW_INVALID_ARGUMENT);
    OK(tow_logger_create(f->ctx, &TOW_LOGGER_OPTIONS(.lines = "/dev/full"), &log));
    assert_int_equal(tow_logger_numbers(log, 1, 0, NULL), TOW_IO_ERROR);
    assert_message(f, "/dev/full: cannot write the log: No space left");
    OK(tow_logger_free(log));
    OK(tow_logger_free(NULL));
    /* a pipe whose reader is gone says so */
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[1]);
    if (access(path, W_OK) != 0) skip();
    OK(tow_logger_create(f->ctx, &TOW_LOGGER_OPTIONS(.lines = path, .first = 3), &log));
    OK(tow_logger_numbers(log, 4, 0, NULL));
    char text[16] = "";
    assert_int_equal(read(ends[0], text, sizeof text - 1), 12);
    assert_string_equal(text, "{\"step\": 4}\n");
    void (*old)(int) = signal(SIGPIPE, SIG_IGN);
    close(ends[0]);
    assert_int_equal(tow_logger_numbers(log, 5, 0, NULL), TOW_IO_ERROR);
    signal(SIGPIPE, old);
    close(ends[1]);
    OK(tow_logger_free(log));
}

/* ---- files of events --------------------------------------------------------------------------------------------- */

typedef struct found {
    int n;
    tow_log_entry entries[16];
    char names[16][32];
} found;

static tow_status note(const tow_log_entry *entry, void *user)
{
    found *all = user;
    if (all->n == 16) return TOW_UNSUPPORTED;
    all->entries[all->n] = *entry;
    snprintf(all->names[all->n++], 32, "%.31s", entry->name);
    return TOW_OK;
}

static void events(void **state)
{
    fixture *f = *state;
    char directory[128], path[512];
    tow_logger *log, *second;
    found all = {0};
    snprintf(directory, sizeof directory, "%s/runs/first", f->directory);
    OK(tow_logger_create(f->ctx, &TOW_LOGGER_OPTIONS(.lines = f->path, .events = directory), &log));
    OK(tow_logger_create(f->ctx, &TOW_LOGGER_OPTIONS(.events = directory, .first = 2),
                         &second)); /* another file, in the same second */
    assert_string_not_equal(tow_logger_events_path(log), tow_logger_events_path(second));
    snprintf(path, sizeof path, "%s", tow_logger_events_path(log));
    tow_array *pixels = array_of(f, tow_make_type(TOW_U8, 2, (int64_t[]){1, 2}), "ab");
    tow_array *values = array_of(f, tow_make_type(TOW_I32, 1, (int64_t[]){3}), (int32_t[]){1, 2, 3});
    OK(tow_logger_numbers(log, 1, 2, (tow_log_number[]){{"loss", 1.5}, {"train/accuracy", 0.1}}));
    OK(tow_logger_image(log, 1, "picture", pixels));
    OK(tow_logger_histogram(log, 1, "weights", values));
    OK(tow_logger_numbers(log, -2, 1, (tow_log_number[]){{"loss", INFINITY}}));
    assert_int_equal(tow_logger_image(log, 1, "values", values), TOW_TYPE_MISMATCH);
    tow_array_release(values);
    tow_array_release(pixels);
    OK(tow_logger_sync(log));
    OK(tow_logger_free(log));
    OK(tow_logger_free(second));
    OK(tow_events_read(f->ctx, path, note, &all));
    assert_int_equal(all.n, 3);
    assert_true(all.entries[0].step == 1 && all.entries[0].value == 1.5 && all.entries[0].wall_time > 1.7e9);
    assert_string_equal(all.names[1], "train/accuracy");
    assert_true(all.entries[1].value == 0.1F);
    assert_true(all.entries[2].step == -2 && isinf(all.entries[2].value));
    write_bytes(f->path, "", 0);
    snprintf(directory, sizeof directory, "%s/below", f->path);
    assert_int_equal(tow_logger_create(f->ctx, &TOW_LOGGER_OPTIONS(.events = directory), &log), TOW_IO_ERROR);
    assert_message(f, "cannot create the directory");
}

static tow_status read_events(tow_context *ctx, const char *path, void **result)
{
    static int any;
    found all = {0};
    const tow_status status = tow_events_read(ctx, path, note, &all);
    *result = status == TOW_OK ? &any : NULL;
    return status;
}

/* Every flipped bit is found, and every truncation but that between two records. */
static void damaged_events(void **state)
{
    fixture *f = *state;
    unsigned char bad[256];
    tow__bytes b;
    tow__bytes_init(&b, f->ctx);
    tow__event_version(&b, 1);
    const size_t whole = b.size;
    tow__event_number(&b, 100, 3, "loss", 1.5);
    for (size_t n = 0; n <= b.size; n++) {
        void *result;
        write_bytes(f->path, b.data, n);
        const tow_status status = read_events(f->ctx, f->path, &result);
        assert_int_equal(status, n == 0 || n == whole || n == b.size ? TOW_OK : TOW_BAD_FORMAT);
        if (status != TOW_OK) assert_message(f, n < whole ? "record 1 at byte 0" : "record 2 at byte ");
    }
    for (size_t bit = 0; bit < 8 * b.size; bit++) {
        void *result;
        memcpy(bad, b.data, b.size);
        bad[bit / 8] = (unsigned char)(bad[bit / 8] ^ 1 << bit % 8);
        write_bytes(f->path, bad, b.size);
        assert_int_equal(read_events(f->ctx, f->path, &result), TOW_BAD_FORMAT);
    }
    tow__bytes_free(&b);
}

/* A record with true CRCs around any bytes. */
static void write_record(const fixture *f, const void *data, size_t size)
{
    tow__bytes b;
    unsigned char length[8] = {(unsigned char)size};
    tow__bytes_init(&b, f->ctx);
    tow__bytes_add(&b, length, 8);
    tow__bytes_add_little(&b, tow__masked_crc32c(length, 8), 4);
    tow__bytes_add(&b, data, size);
    tow__bytes_add_little(&b, tow__masked_crc32c(data, size), 4);
    write_bytes(f->path, b.data, b.size);
    tow__bytes_free(&b);
}

static void other_writers(void **state)
{
    fixture *f = *state;
    found all = {0};
    /* step 5, a summary with tag "l" and a tensor: dtype 1 (float), tensor_content 2.0; then one of float_val 0.5,
     * packed */
    static const unsigned char tensor[] = {0x10, 5,   0x2a, 28, 0x0a, 13, 0x0a, 1,    'l',  0x42, 8,
                                           0x08, 1,   0x22, 4,  0,    0,  0,    0x40, 0x0a, 11,   0x0a,
                                           1,    'm', 0x42, 6,  0x2a, 4,  0,    0,    0,    0x3f};
    write_record(f, tensor, sizeof tensor);
    OK(tow_events_read(f->ctx, f->path, note, &all));
    assert_int_equal(all.n, 1); /* the second one has no dtype */
    assert_true(all.entries[0].value == 2 && all.entries[0].step == 5);
    assert_string_equal(all.names[0], "l");
    static const unsigned char *const bad[] = {(const unsigned char *)"\x2a\x05\x0a", (const unsigned char *)"\x0f\x01",
                                               (const unsigned char *)"\x80\x80\x80",
                                               (const unsigned char *)"\x09\x01\x02"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_record(f, bad[i], strlen((const char *)bad[i]));
        assert_int_equal(tow_events_read(f->ctx, f->path, note, &all), TOW_BAD_FORMAT);
        assert_message(f, "expected an event as a protocol buffer");
    }
}

/* ---- failing allocations ----------------------------------------------------------------------------------------- */

static tow_status log_all(tow_context *ctx, const fixture *f, const tow_array *pixels, tow_logger **log)
{
    found all = {0};
    tow_status status =
        tow_logger_create(ctx, &TOW_LOGGER_OPTIONS(.lines = f->path, .events = f->directory, .first = 1), log);
    if (status == TOW_OK) status = tow_logger_numbers(*log, 2, 1, (tow_log_number[]){{"loss", 1}});
    if (status == TOW_OK) status = tow_logger_image(*log, 2, "image", pixels);
    if (status == TOW_OK) status = tow_logger_histogram(*log, 2, "histogram", pixels);
    return status == TOW_OK ? tow_events_read(ctx, tow_logger_events_path(*log), note, &all) : status;
}

static void failing_allocations(void **state)
{
    fixture *f = *state;
    tow_status status = TOW_OUT_OF_MEMORY;
    for (long i = 0; status != TOW_OK; i++) {
        counting c;
        const tow_context_options options = counting_options(&c, -1);
        tow_context *ctx;
        tow_array *pixels;
        tow_logger *log = NULL;
        assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
        assert_int_equal(tow_array_create(ctx, tow_make_type(TOW_U8, 2, (int64_t[]){4, 4}), &pixels), TOW_OK);
        c.fail_at = c.calls + i;
        status = log_all(ctx, f, pixels, &log);
        assert_true(status == TOW_OK || status == TOW_OUT_OF_MEMORY);
        assert_int_equal(tow_logger_free(log), TOW_OK);
        tow_array_release(pixels);
        tow_context_free(ctx);
        assert_int_equal(c.blocks, 0);
        assert_int_equal(c.wrong_sizes, 0);
        assert_true(i < 300);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(checksums), TEST(golden_event),   TEST(histograms),    TEST(lines),
        TEST(events),    TEST(damaged_events), TEST(other_writers), TEST(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
