/* Reading event files: the numbers of their records. */
#include <inttypes.h>

#include "src/io/io.h"
#include "src/log/events.h"
#include "tow/log.h"

enum {
    DT_FLOAT = 1,
    DT_DOUBLE = 2
};

/* ---- protocol buffers -------------------------------------------------------------------------------------------- */

/* Bytes of a message that were not read yet. */
typedef struct message {
    const unsigned char *at, *end;
} message;

typedef struct field {
    uint64_t number;
    unsigned wire;
    uint64_t bits;   /* of numbers */
    message content; /* of bytes */
} field;

static bool read_varint(message *m, uint64_t *number)
{
    *number = 0;
    for (int shift = 0; shift < 70 && m->at < m->end; shift += 7) {
        const unsigned char byte = *m->at++;
        if (shift < 64) *number |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return true;
    }
    return false;
}

static bool read_fixed(message *m, size_t size, uint64_t *bits)
{
    if ((size_t)(m->end - m->at) < size) return false;
    *bits = 0;
    for (size_t i = 0; i < size; i++) *bits |= (uint64_t)m->at[i] << 8 * i;
    m->at += size;
    return true;
}

/* The next field; false at the end and, with *bad set, where there is none. */
static bool next_field(message *m, field *f, bool *bad)
{
    uint64_t key, size;
    if (m->at == m->end) return false;
    *bad = true;
    if (!read_varint(m, &key)) return false;
    f->number = key >> 3;
    f->wire = key & 7;
    switch (f->wire) {
    case 0:
        *bad = !read_varint(m, &f->bits);
        break;
    case 1:
        *bad = !read_fixed(m, 8, &f->bits);
        break;
    case 2:
        if (!read_varint(m, &size) || size > (uint64_t)(m->end - m->at)) return false;
        f->content = (message){m->at, m->at + size};
        m->at += size;
        *bad = false;
        break;
    case 5:
        *bad = !read_fixed(m, 4, &f->bits);
        break;
    default:
        break;
    }
    return !*bad;
}

static double float_of(uint64_t bits)
{
    const uint32_t low = (uint32_t)bits;
    float value;
    memcpy(&value, &low, sizeof value);
    return value;
}

static double double_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

/* TensorProto: 1 dtype, 4 tensor_content, 5 float_val, 6 double_val. True if it is one float or double. */
static bool read_tensor(message m, double *value, bool *bad)
{
    field f;
    uint64_t dtype = 0;
    int found = 0;
    message content = {0};
    while (next_field(&m, &f, bad)) {
        if (f.number == 1 && f.wire == 0) dtype = f.bits;
        if (f.number == 4 && f.wire == 2) content = f.content;
        if (f.number == 5 && f.wire == 5) found++, *value = float_of(f.bits);
        if (f.number == 6 && f.wire == 1) found++, *value = double_of(f.bits);
        if ((f.number == 5 || f.number == 6) && f.wire == 2) content = f.content; /* packed */
    }
    if (*bad || found > 0) return !*bad && found == 1;
    uint64_t bits;
    const size_t size = dtype == DT_FLOAT ? 4 : dtype == DT_DOUBLE ? 8 : 0;
    if (size == 0 || (size_t)(content.end - content.at) != size || !read_fixed(&content, size, &bits)) return false;
    *value = size == 4 ? float_of(bits) : double_of(bits);
    return true;
}

/* The description of one value of a summary that a visitor gets. */
static tow_status read_value(message m, tow_log_entry *entry, tow_log_visitor visit, void *user, bool *bad)
{
    char name[1024] = "";
    bool is_number = false;
    field f;
    while (next_field(&m, &f, bad)) {
        if (f.number == 1 && f.wire == 2) {
            const size_t length = (size_t)(f.content.end - f.content.at);
            const size_t n = length < sizeof name - 1 ? length : sizeof name - 1;
            memcpy(name, f.content.at, n);
            name[n] = '\0';
        }
        if (f.number == 2 && f.wire == 5) is_number = true, entry->value = float_of(f.bits);
        if (f.number == 8 && f.wire == 2 && read_tensor(f.content, &entry->value, bad)) is_number = true;
        if (*bad) break;
    }
    entry->name = name;
    return *bad || !is_number ? TOW_OK : visit(entry, user);
}

/* One event: time and step first, wherever they stand; then the values. */
static tow_status read_event(message event, tow_log_visitor visit, void *user, bool *bad)
{
    tow_log_entry entry = {0};
    field f, value;
    tow_status status = TOW_OK;
    for (message m = event; next_field(&m, &f, bad);) {
        if (f.number == 1 && f.wire == 1) entry.wall_time = double_of(f.bits);
        if (f.number == 2 && f.wire == 0) entry.step = (int64_t)f.bits;
    }
    for (message m = event; !*bad && status == TOW_OK && next_field(&m, &f, bad);) {
        if (f.number != 5 || f.wire != 2) continue;
        while (!*bad && status == TOW_OK && next_field(&f.content, &value, bad))
            if (value.number == 1 && value.wire == 2) status = read_value(value.content, &entry, visit, user, bad);
    }
    return status;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

typedef struct reader {
    tow__input_file file;
    uint64_t at;     /* of the record that comes next */
    int64_t records; /* read so far */
    unsigned char *data;
    size_t capacity;
} reader;

static tow_status damaged(const reader *r, const char *what)
{
    return tow__fail(r->file.ctx, TOW_BAD_FORMAT, "%s: record %" PRId64 " at byte %" PRIu64 ": %s", r->file.path,
                     r->records + 1, r->at, what);
}

static uint32_t little(const unsigned char *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* The data of the next record, `size` bytes. */
static tow_status next_record(reader *r, size_t *size)
{
    unsigned char head[TOW__RECORD_HEAD];
    const uint64_t left = r->file.size - r->at;
    tow_status status = TOW_OK;
    if (left < sizeof head) return damaged(r, "expected 12 bytes of a record's head, found the end of the file");
    TRY(tow__input_read(&r->file, r->at, head, sizeof head));
    if (little(head + 8) != tow__masked_crc32c(head, 8))
        return damaged(r, "its length has another CRC; the file is damaged, or no event file");
    const uint64_t length = little(head) | (uint64_t)little(head + 4) << 32;
    if (left - sizeof head < TOW__RECORD_TAIL || length > left - sizeof head - TOW__RECORD_TAIL)
        return damaged(r, "it is longer than what is left of the file; it is being written, or was cut off");
    *size = (size_t)length + TOW__RECORD_TAIL;
    if (*size > r->capacity) {
        unsigned char *grown = tow__grow(r->file.ctx, r->data, r->capacity, *size, 1);
        if (!grown) return TOW_OUT_OF_MEMORY;
        r->data = grown;
        r->capacity = *size;
    }
    TRY(tow__input_read(&r->file, r->at + sizeof head, r->data, *size));
    *size = (size_t)length;
    if (little(r->data + length) != tow__masked_crc32c(r->data, *size))
        return damaged(r, "its data have another CRC; the file is damaged");
done:
    return status;
}

tow_status tow_events_read(tow_context *context, const char *path, tow_log_visitor visit, void *user)
{
    if (!context || !visit) return tow__missing(context, __func__, "a context and a visitor");
    reader r = {0};
    tow_status status = tow__input_open(context, path, &r.file);
    if (status != TOW_OK) return status;
    while (r.at < r.file.size) {
        size_t size = 0;
        bool bad = false;
        TRY(next_record(&r, &size));
        TRY(read_event((message){r.data, r.data + size}, visit, user, &bad));
        if (bad) TRY(damaged(&r, "expected an event as a protocol buffer, found other bytes"));
        r.at += TOW__RECORD_HEAD + size + TOW__RECORD_TAIL;
        r.records++;
    }
done:
    tow__free(context, r.data, r.capacity, 1);
    tow__input_close(&r.file);
    return status;
}
