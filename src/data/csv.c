/* CSV files (RFC 4180) as rows of numbers. The file is mapped and scanned once for where records begin; of one in EVERY
 * the place is remembered, so that row r is found by passing over fewer than EVERY records. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/locale.h"
#include "src/base/options.h"
#include "src/data/source.h"

enum {
    EVERY = 64,
    LONGEST = 255 /* bytes of a field that is read as a number or a word */
};

/* A place in the file: the next field begins at `at`, in line `line`. */
typedef struct cursor {
    const char *at, *end;
    int64_t line;
    char separator, comment; /* comment 0: none */
} cursor;

typedef struct field {
    const char *text;
    size_t length;
    bool quoted; /* between quotes, each of which stands there twice */
} field;

typedef enum found {
    FIELD,      /* another one of the record follows */
    LAST_FIELD, /* the cursor stands at the next record */
    OPEN_QUOTE,
    BEHIND_QUOTE
} found;

typedef struct csv_place {
    size_t offset; /* from the record of row 0 */
    int64_t line;
} csv_place;

typedef struct csv {
    tow_source source; /* this field comes first */
    tow_array *mapping;
    tow__arena memory; /* of columns, classes */
    cursor first;      /* the record of row 0 */
    csv_place *places; /* of rows 0, EVERY, ... */
    size_t n_places, capacity;
    int64_t fields;   /* of a record */
    int64_t n_chosen; /* columns of a row, */
    int *chosen;      /* in this order; NULL: all */
    bool integers, missing, decimal_comma;
    const char **classes;       /* NULL-terminated; NULL: numbers */
    const char **missing_words; /* NULL-terminated */
} csv;

/* The words that pandas.read_csv takes for a missing value by default, besides nothing. */
static const char *const usual_missing_words[] = {"#N/A",   "#N/A N/A", "#NA",  "-1.#IND", "-1.#QNAN", "-NaN", "-nan",
                                                  "1.#IND", "1.#QNAN",  "<NA>", "N/A",     "NA",       "NULL", "NaN",
                                                  "None",   "n/a",      "nan",  "null",    NULL};

/* ---- fields and records ------------------------------------------------------------------------------------------ */

/* Bytes of the end of a line at `at`; 0: none is there. */
static size_t line_end(const cursor *c, const char *at)
{
    if (at == c->end || (*at != '\n' && *at != '\r')) return 0;
    return *at == '\r' && at + 1 < c->end && at[1] == '\n' ? 2 : 1;
}

static const char *closing_quote(cursor *c, const char *at)
{
    for (; at < c->end; at++) {
        if (line_end(c, at) == 1) c->line++; /* of CR LF, the LF is counted */
        if (*at != '"') continue;
        if (at + 1 == c->end || at[1] != '"') return at;
        at++;
    }
    return NULL;
}

static bool starts_comment(const cursor *c) { return c->comment && c->at < c->end && *c->at == c->comment; }

static void skip_comment(cursor *c)
{
    while (c->at < c->end && line_end(c, c->at) == 0) c->at++;
}

/* Passes over what ends a field. */
static found end_field(cursor *c)
{
    if (c->at == c->end) return LAST_FIELD;
    if (*c->at == c->separator) {
        c->at++;
        return FIELD;
    }
    if (starts_comment(c)) skip_comment(c);
    if (c->at == c->end) return LAST_FIELD;
    const size_t n = line_end(c, c->at);
    if (n == 0) return BEHIND_QUOTE;
    c->at += n;
    c->line++;
    return LAST_FIELD;
}

static found next_field(cursor *c, field *f)
{
    f->quoted = c->at < c->end && *c->at == '"';
    if (f->quoted) {
        const char *close = closing_quote(c, c->at + 1);
        if (!close) return OPEN_QUOTE;
        f->text = c->at + 1;
        f->length = (size_t)(close - f->text);
        c->at = close + 1;
        return end_field(c);
    }
    f->text = c->at;
    while (c->at < c->end && *c->at != c->separator && line_end(c, c->at) == 0 && !starts_comment(c)) c->at++;
    f->length = (size_t)(c->at - f->text);
    return end_field(c);
}

/* Passes over a comment that has a line for itself, and spaces before it. */
static void skip_comment_line(cursor *c)
{
    cursor next = *c;
    while (next.comment && next.at < next.end && (*next.at == ' ' || *next.at == '\t')) next.at++;
    if (!starts_comment(&next)) return;
    skip_comment(&next);
    *c = next;
}

static void skip_empty_lines(cursor *c)
{
    for (skip_comment_line(c); c->at < c->end && line_end(c, c->at) > 0; skip_comment_line(c)) {
        c->at += line_end(c, c->at);
        c->line++;
    }
}

static tow_status bad_record(const csv *s, const cursor *c, int64_t line, found end, tow__row_error *error)
{
    return tow__row_fail(error, TOW_BAD_FORMAT, "%s: line %lld: expected %s", s->source.name,
                         (long long)(end == OPEN_QUOTE ? line : c->line),
                         end == OPEN_QUOTE
                             ? "a closing quote behind the field that begins with one, found the end of the file"
                             : "a separator or the end of the line behind a closing quote, found other text");
}

/* Passes over one record and counts its fields. */
static tow_status skip_record(const csv *s, cursor *c, int64_t *fields, tow__row_error *error)
{
    const int64_t line = c->line;
    found end = FIELD;
    for (*fields = 0; end == FIELD; (*fields)++) {
        field f;
        end = next_field(c, &f);
        if (end != FIELD && end != LAST_FIELD) return bad_record(s, c, line, end, error);
    }
    return TOW_OK;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* The text, without spaces around it or, between quotes, with quotes that stand there once; false if it is too long. */
static bool copy_text(const field *f, char text[LONGEST + 1])
{
    size_t n = 0, from = 0, to = f->length;
    while (!f->quoted && from < to && (f->text[from] == ' ' || f->text[from] == '\t')) from++;
    while (!f->quoted && to > from && (f->text[to - 1] == ' ' || f->text[to - 1] == '\t')) to--;
    for (size_t i = from; i < to; i++) {
        if (n == LONGEST) return false;
        text[n++] = f->text[i];
        if (f->quoted && f->text[i] == '"') i++;
    }
    text[n] = '\0';
    return true;
}

/* The place of the text in a NULL-terminated list, or -1. */
static int64_t find_word(const char *const *words, const char *text)
{
    for (size_t i = 0; words && words[i]; i++)
        if (strcmp(words[i], text) == 0) return (int64_t)i;
    return -1;
}

/* A number whose fraction follows a comma. */
static bool parse_decimal_comma(const char *text, double *real)
{
    char with_point[LONGEST + 1], *end;
    if (strchr(text, '.')) return false;
    memcpy(with_point, text, strlen(text) + 1);
    char *comma = strchr(with_point, ',');
    if (comma) *comma = '.';
    *real = strtod(with_point, &end);
    return end != with_point && *end == '\0';
}

static bool parse_number(const csv *s, const char *text, double *real, int64_t *whole)
{
    char *end;
    if (s->classes) {
        *whole = find_word(s->classes, text);
        *real = (double)*whole;
        return *whole >= 0;
    }
    if (s->missing && (text[0] == '\0' || find_word(s->missing_words, text) >= 0)) {
        *real = NAN;
        return true;
    }
    if (s->decimal_comma && !s->integers) return parse_decimal_comma(text, real);
    errno = 0;
    if (s->integers)
        *whole = strtoll(text, &end, 10);
    else
        *real = strtod(text, &end);
    return end != text && *end == '\0' && !(s->integers && errno == ERANGE);
}

static tow_status parse_field(const csv *s, const field *f, int64_t line, int64_t number, int64_t place, void *data,
                              tow__row_error *error)
{
    char text[LONGEST + 1];
    double real = 0;
    int64_t whole = 0;
    if (memchr(f->text, '\0', f->length))
        return tow__row_fail(error, TOW_BAD_FORMAT, "%s: line %lld, field %lld: expected text, found a zero byte",
                             s->source.name, (long long)line, (long long)number + 1);
    if (!copy_text(f, text))
        return tow__row_fail(error, TOW_BAD_FORMAT,
                             "%s: line %lld, field %lld: expected at most %d bytes of text, found %zu", s->source.name,
                             (long long)line, (long long)number + 1, LONGEST, f->length);
    if (!parse_number(s, text, &real, &whole))
        return tow__row_fail(error, TOW_BAD_FORMAT, "%s: line %lld, field %lld: expected %s, found '%.40s'",
                             s->source.name, (long long)line, (long long)number + 1,
                             s->classes    ? "one of the classes"
                             : s->integers ? "a whole number from -2^63 to below 2^63"
                                           : "a number",
                             text);
    if (s->integers)
        ((int64_t *)data)[place] = whole;
    else
        ((double *)data)[place] = real;
    return TOW_OK;
}

/* The record at the cursor as one row. A column may be chosen several times. */
static tow_status parse_record(const csv *s, cursor *c, void *data, tow__row_error *error)
{
    const int64_t line = c->line;
    tow_status status = TOW_OK;
    int64_t n = 0;
    for (found end = FIELD; end == FIELD; n++) {
        field f;
        const int64_t at = c->line;
        end = next_field(c, &f);
        if (end != FIELD && end != LAST_FIELD) return bad_record(s, c, line, end, error);
        if (!s->chosen && n < s->fields) TRY(parse_field(s, &f, at, n, n, data, error));
        for (int64_t i = 0; s->chosen && i < s->n_chosen; i++)
            if (s->chosen[i] == n) TRY(parse_field(s, &f, at, n, i, data, error));
    }
    if (n != s->fields)
        return tow__row_fail(error, TOW_BAD_FORMAT, "%s: line %lld: expected %lld fields, found %lld", s->source.name,
                             (long long)line, (long long)s->fields, (long long)n);
done:
    return status;
}

static tow_status read_rows(const tow_source *source, int64_t row, int64_t n_rows, void *data, tow__row_error *error)
{
    const csv *s = (const csv *)source;
    const size_t bytes = tow_type_bytes(source->row);
    cursor c = s->first;
    c.at += s->places[row / EVERY].offset;
    c.line = s->places[row / EVERY].line;
    tow_status status = TOW_OK;
    const tow__locale locale = tow__locale_enter();
    for (int64_t i = row % EVERY; i > 0; i--) {
        int64_t fields;
        skip_empty_lines(&c);
        TRY(skip_record(s, &c, &fields, error));
    }
    for (int64_t i = 0; i < n_rows; i++) {
        skip_empty_lines(&c);
        TRY(parse_record(s, &c, (unsigned char *)data + (size_t)i * bytes, error));
    }
done:
    tow__locale_leave(locale);
    return status;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void free_csv(tow_source *source)
{
    csv *s = (csv *)source;
    tow__free(source->ctx, s->places, s->capacity, sizeof *s->places);
    tow__arena_free(&s->memory);
    tow_array_release(s->mapping);
}

static const tow__source_class csv_class = {.read = read_rows, .free = free_csv};

static tow_status note_place(csv *s, const cursor *c)
{
    if (s->n_places == s->capacity) {
        const size_t capacity = 2 * s->capacity + 64;
        csv_place *places = tow__grow(s->source.ctx, s->places, s->capacity, capacity, sizeof *places);
        if (!places) return TOW_OUT_OF_MEMORY;
        s->places = places;
        s->capacity = capacity;
    }
    s->places[s->n_places++] = (csv_place){(size_t)(c->at - s->first.at), c->line};
    return TOW_OK;
}

static tow_status find_rows(csv *s, tow__row_error *error)
{
    tow_status status = TOW_OK;
    cursor c = s->first;
    for (skip_empty_lines(&c); c.at < c.end; skip_empty_lines(&c)) {
        const int64_t line = c.line;
        int64_t fields;
        if (s->source.rows % EVERY == 0) TRY(note_place(s, &c));
        TRY(skip_record(s, &c, &fields, error));
        if (s->fields == 0) s->fields = fields;
        if (fields != s->fields)
            TRY(tow__row_fail(error, TOW_BAD_FORMAT, "%s: line %lld: expected %lld fields, found %lld", s->source.name,
                              (long long)line, (long long)s->fields, (long long)fields));
        s->source.rows++;
    }
done:
    return status;
}

/* The number of the column with that name in the header, which begins at the cursor; -1: none. */
static int64_t find_name(cursor c, const char *name)
{
    found end = FIELD;
    for (int64_t n = 0; end == FIELD; n++) {
        field f;
        char text[LONGEST + 1];
        end = next_field(&c, &f);
        if (end != FIELD && end != LAST_FIELD) return -1;
        if (copy_text(&f, text) && strcmp(text, name) == 0) return n;
    }
    return -1;
}

static tow_status choose(csv *s, const tow_csv_options *o, cursor header)
{
    tow_context *ctx = s->source.ctx;
    s->n_chosen = o->n_columns > 0 ? (int64_t)o->n_columns : s->fields;
    if (o->n_columns == 0) return TOW_OK;
    s->chosen = tow__arena_alloc(&s->memory, o->n_columns, sizeof *s->chosen);
    if (!s->chosen) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < o->n_columns; i++) {
        const int64_t column = o->names ? find_name(header, o->names[i]) : o->columns[i];
        if (o->names && column < 0)
            return tow__fail(ctx, TOW_NOT_FOUND, "%s: there is no column '%s'; the header is '%.*s'", s->source.name,
                             o->names[i], (int)strcspn(header.at, "\r\n") < 200 ? (int)strcspn(header.at, "\r\n") : 200,
                             header.at);
        if (column < 0 || (column >= s->fields && s->source.rows > 0))
            return tow__fail(ctx, TOW_NOT_FOUND, "%s: expected a column from 0 to %lld, found %lld", s->source.name,
                             (long long)s->fields - 1, (long long)column);
        s->chosen[i] = (int)column;
    }
    return TOW_OK;
}

/* A copy of a NULL-terminated list; NULL stays NULL. */
static tow_status copy_words(csv *s, const char *const *words, const char ***copy)
{
    size_t n = 0;
    while (words && words[n]) n++;
    if (!words) return TOW_OK;
    *copy = tow__arena_alloc(&s->memory, n + 1, sizeof **copy);
    if (!*copy) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < n; i++) {
        (*copy)[i] = tow__arena_string(&s->memory, words[i]);
        if (!(*copy)[i]) return TOW_OUT_OF_MEMORY;
    }
    (*copy)[n] = NULL;
    return TOW_OK;
}

static char separator_of(const tow_csv_options *o)
{
    return o->separator ? o->separator : o->decimal == ',' ? ';' : ',';
}

/* True if the character can have a meaning between fields. */
static bool is_mark(char c) { return c != '"' && c != '\n' && c != '\r'; }

static tow_status check_options(tow_context *ctx, const tow_csv_options *o)
{
    const char separator = separator_of(o);
    if (o->n_columns > 0 && !o->columns == !o->names)
        return tow__missing(ctx, "tow_source_csv", "the numbers or the names of %zu columns", o->n_columns);
    if ((o->names && o->n_columns > 0 && !o->header) || (o->missing && (o->integers || o->classes)) ||
        !is_mark(separator) || !is_mark(o->comment) || o->comment == separator)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "expected .names together with .header, .missing without .integers and .classes, and a "
                         "separator and a start of comments that differ and are neither a quote nor the end of a line");
    if ((o->decimal && o->decimal != '.' && o->decimal != ',') || (o->decimal == ',' && separator == ','))
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "expected .decimal to be '.' or ',', and another separator than a comma with ',', found '%s' "
                         "and '%s'",
                         tow__escape(o->decimal).text, tow__escape(separator).text);
    if (o->missing_words && !o->missing)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "expected .missing_words together with .missing");
    return TOW_OK;
}

static tow_status open_csv(csv *s, const tow_csv_options *o, uint64_t size)
{
    tow_context *ctx = s->source.ctx;
    tow_status status = TOW_OK;
    tow__row_error error = {0};
    const char *text = s->mapping ? tow_array_data(s->mapping) : "";
    s->first = (cursor){text, text + size, 1, separator_of(o), o->comment};
    if (size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) s->first.at += 3; /* a byte order mark of UTF-8 */
    skip_empty_lines(&s->first);
    const cursor header = s->first;
    if (o->header && s->first.at < s->first.end) status = skip_record(s, &s->first, &s->fields, &error);
    if (status == TOW_OK) status = find_rows(s, &error);
    if (error.status != TOW_OK) return tow__fail(ctx, error.status, "%s", error.text);
    if (status != TOW_OK) return status;
    TRY(copy_words(s, o->classes, &s->classes));
    TRY(copy_words(s, o->missing_words ? o->missing_words : usual_missing_words, &s->missing_words));
    TRY(choose(s, o, header));
    s->integers = o->integers || o->classes;
    s->missing = o->missing;
    s->decimal_comma = o->decimal == ',';
    s->source.row = tow_make_type(s->integers ? TOW_I64 : TOW_F64, o->n_columns == 1 ? 0 : 1, &s->n_chosen);
    s->source.stored_size = 8;
done:
    return status;
}

tow_status tow_source_csv(tow_context *context, const char *path, const tow_csv_options *options, tow_source **source)
{
    static const tow_csv_options none = TOW_CSV_OPTIONS();
    if (source) *source = NULL;
    if (!context || !source) return tow__missing(context, __func__, "a context and a place for the source");
    tow_csv_options own;
    if (!TOW__OPTIONS_TAKE(context, tow_csv_options, options, &own)) return TOW_INVALID_ARGUMENT;
    const tow_csv_options *o = options ? options : &none;
    tow_array *mapping = NULL;
    uint64_t size = 0;
    tow_status status = check_options(context, o);
    if (status == TOW_OK) status = tow__source_map(context, path, &mapping, &size);
    if (status != TOW_OK) return status;
    tow_source *made = NULL;
    TRY(tow__source_create(context, sizeof(csv), &csv_class, path, &made));
    csv *s = (csv *)made;
    tow__arena_init(&s->memory, context);
    s->mapping = tow_array_retain(mapping);
    TRY(open_csv(s, o, size));
    *source = tow_source_retain(made);
done:
    tow_array_release(mapping);
    tow_source_release(made);
    return status;
}
