/* Encoding of events. Fields of the protocol buffers that are used, by number:
 *   Event      1 wall_time double, 2 step int64, 3 file_version string, 5 summary Summary, 7 session_log SessionLog
 *   SessionLog 1 status enum (1: start)
 *   Summary    1 value, repeated: 1 tag string, 2 simple_value float, 4 image Image, 5 histo HistogramProto
 *   Image      1 height, 2 width, 3 colorspace (channels), 4 encoded_image_string
 *   HistogramProto  doubles 1 min, 2 max, 3 num, 4 sum, 5 sum_squares; packed doubles 6 bucket_limit, 7 bucket */
#include "src/log/events.h"

#include <math.h>

/* ---- CRC --------------------------------------------------------------------------------------------------------- */

/* Of each half of a byte. */
static const uint32_t crc_table[16] = {
    0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
    0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
};

uint32_t tow__crc32c(const void *data, size_t size)
{
    const unsigned char *bytes = data;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        crc = crc >> 4 ^ crc_table[crc & 15];
        crc = crc >> 4 ^ crc_table[crc & 15];
    }
    return ~crc;
}

uint32_t tow__masked_crc32c(const void *data, size_t size)
{
    const uint32_t crc = tow__crc32c(data, size);
    return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}

/* ---- protocol buffers -------------------------------------------------------------------------------------------- */

enum {
    VARINT = 0,
    DOUBLE = 1,
    BYTES = 2,
    FLOAT = 5
};

static void add_varint(tow__bytes *b, uint64_t number)
{
    unsigned char bytes[10];
    size_t n = 0;
    do {
        bytes[n++] = (unsigned char)((number & 127) | (number > 127 ? 128 : 0));
        number >>= 7;
    } while (number > 0);
    tow__bytes_add(b, bytes, n);
}

static void add_key(tow__bytes *b, unsigned field, unsigned wire) { add_varint(b, field << 3 | wire); }

static void add_number(tow__bytes *b, unsigned field, uint64_t number)
{
    add_key(b, field, VARINT);
    add_varint(b, number);
}

static void add_double(tow__bytes *b, unsigned field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    add_key(b, field, DOUBLE);
    tow__bytes_add_little(b, bits, 8);
}

static void add_bytes(tow__bytes *b, unsigned field, const void *data, size_t size)
{
    add_key(b, field, BYTES);
    add_varint(b, size);
    tow__bytes_add(b, data, size);
}

static void add_doubles(tow__bytes *b, unsigned field, const double *values, size_t n)
{
    add_bytes(b, field, values, n * sizeof *values); /* little-endian, as the machine */
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

/* A message inside of another one: bytes of its own, which `end` adds as the field and frees. */
static tow__bytes begin(const tow__bytes *outer)
{
    tow__bytes inner;
    tow__bytes_init(&inner, outer->ctx);
    return inner;
}

static void end(tow__bytes *outer, unsigned field, tow__bytes *inner)
{
    if (inner->failed) outer->failed = true;
    add_bytes(outer, field, inner->data, inner->size);
    tow__bytes_free(inner);
}

static tow__bytes begin_event(const tow__bytes *b, double time, int64_t step)
{
    tow__bytes event = begin(b);
    add_double(&event, 1, time);
    if (step != 0) add_number(&event, 2, (uint64_t)step);
    return event;
}

static void end_event(tow__bytes *b, tow__bytes *event)
{
    if (event->failed) b->failed = true;
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)event->size >> 8 * i);
    tow__bytes_add(b, length, sizeof length);
    tow__bytes_add_little(b, tow__masked_crc32c(length, sizeof length), 4);
    tow__bytes_add(b, event->data, event->size);
    tow__bytes_add_little(b, tow__masked_crc32c(event->data, event->size), 4);
    tow__bytes_free(event);
}

static void end_summary(tow__bytes *b, tow__bytes *event, tow__bytes *value)
{
    tow__bytes summary = begin(b);
    end(&summary, 1, value);
    end(event, 5, &summary);
    end_event(b, event);
}

static tow__bytes begin_value(const tow__bytes *b, const char *tag)
{
    tow__bytes value = begin(b);
    add_bytes(&value, 1, tag, strlen(tag));
    return value;
}

void tow__event_version(tow__bytes *b, double time)
{
    static const char version[] = "brain.Event:2";
    tow__bytes event = begin_event(b, time, 0);
    add_bytes(&event, 3, version, sizeof version - 1);
    end_event(b, &event);
}

void tow__event_start(tow__bytes *b, double time, int64_t step)
{
    tow__bytes event = begin_event(b, time, step), session = begin(b);
    add_number(&session, 1, 1);
    end(&event, 7, &session);
    end_event(b, &event);
}

void tow__event_number(tow__bytes *b, double time, int64_t step, const char *tag, double number)
{
    const float rounded = (float)number;
    uint32_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    tow__bytes event = begin_event(b, time, step), value = begin_value(b, tag);
    add_key(&value, 2, FLOAT);
    tow__bytes_add_little(&value, bits, 4);
    end_summary(b, &event, &value);
}

void tow__event_image(tow__bytes *b, double time, int64_t step, const char *tag, int64_t height, int64_t width,
                      int64_t channels, const void *png, size_t size)
{
    tow__bytes event = begin_event(b, time, step), value = begin_value(b, tag), image = begin(b);
    add_number(&image, 1, (uint64_t)height);
    add_number(&image, 2, (uint64_t)width);
    add_number(&image, 3, (uint64_t)channels);
    add_bytes(&image, 4, png, size);
    end(&value, 4, &image);
    end_summary(b, &event, &value);
}

/* ---- histograms -------------------------------------------------------------------------------------------------- */

tow__histogram tow__histogram_of(const double *values, int64_t n)
{
    tow__histogram h = {.least = INFINITY, .most = -INFINITY, .n = 1};
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(values[i])) continue;
        h.least = fmin(h.least, values[i]);
        h.most = fmax(h.most, values[i]);
        h.count += 1;
        h.sum += values[i];
        h.squares += values[i] * values[i];
    }
    if (h.count == 0) h.least = h.most = 0;
    h.n = h.most > h.least ? TOW__BUCKETS : 1;
    const double width = h.most / h.n - h.least / h.n; /* this way it does not overflow */
    for (int i = 0; i < h.n; i++) h.limits[i] = i == h.n - 1 ? h.most : h.least + width * (i + 1);
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(values[i])) continue;
        const double at = width > 0 ? (values[i] - h.least) / width : 0;
        h.counts[at < h.n ? (int)at : h.n - 1] += 1;
    }
    return h;
}

void tow__event_histogram(tow__bytes *b, double time, int64_t step, const char *tag, const tow__histogram *h)
{
    tow__bytes event = begin_event(b, time, step), value = begin_value(b, tag), histo = begin(b);
    add_double(&histo, 1, h->least);
    add_double(&histo, 2, h->most);
    add_double(&histo, 3, h->count);
    add_double(&histo, 4, h->sum);
    add_double(&histo, 5, h->squares);
    add_doubles(&histo, 6, h->limits, (size_t)h->n);
    add_doubles(&histo, 7, h->counts, (size_t)h->n);
    end(&value, 5, &histo);
    end_summary(b, &event, &value);
}
