/* Printing for the command `tow`: arrays, graphs and errors, as text or JSON. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/dtypes.h"
#include "src/tool/tool.h"

size_t tool_graph_text(const void *graph, char *text, size_t size) { return tow_graph_text(graph, text, size); }
size_t tool_program_text(const void *program, char *text, size_t size) { return tow_program_text(program, text, size); }
size_t tool_reasons_text(const void *residuals, char *text, size_t size)
{
    return tow_residuals_reasons(residuals, text, size);
}
size_t tool_residuals_text(const void *residuals, char *text, size_t size)
{
    return tow_residuals_text(residuals, text, size);
}

char *tool_text_of(tool_text write, const void *object)
{
    const size_t length = write(object, NULL, 0);
    char *text = length > 0 ? malloc(length + 1) : NULL; /* nothing is written that is empty: memory ran out */
    if (text && write(object, text, length + 1) == length) return text;
    free(text);
    return NULL;
}

/* JSON is UTF-8; names of files and what they hold need not be. */
json_t *tool_json_text(const char *text)
{
    json_t *string = json_string(text);
    if (string) return string;
    char *plain = strdup(text);
    for (char *c = plain; plain && *c; c++)
        if ((unsigned char)*c >= 0x80) *c = '?';
    string = plain != NULL ? json_string(plain) : NULL;
    free(plain);
    return string;
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

/* Enough digits to read the very same value back. The sign of a NaN means nothing, and depends on the processor. */
static void show_number(double x, int digits)
{
    if (isnan(x))
        printf("nan");
    else
        printf("%.*g", digits, x);
}

/* Integers and bool as they are. */
static void show_element(const void *data, tow_dtype dtype, int64_t i)
{
    const tow__element e = tow__load_element(dtype, data, i);
    if (e.kind == TOW__A_FLOAT)
        show_number(e.f, tow__float_digits(dtype));
    else if (e.kind == TOW__A_SIGNED)
        printf("%" PRId64, e.i);
    else if (e.kind == TOW__AN_UNSIGNED)
        printf("%" PRIu64, e.u);
    else
        printf("%s", e.u != 0 ? "true" : "false");
}

enum {
    MOST_SHOWN = 1000, /* elements of an array that is printed in full */
    EDGE = 3           /* of larger ones, so many from both ends of each axis */
};

/* Brackets and elements of an array without elements are as many as its axes of other sizes say. */
static int64_t shown_in_full(tow_type type)
{
    int64_t count = 1;
    for (int a = 0; a < type.rank; a++) count *= type.dims[a] > 0 ? type.dims[a] : 1;
    return count;
}

/* The part of the array from element `first` on that axes `axis`.. span. */
static void show_nested(const void *data, const tow_type *type, int axis, int64_t first, bool whole)
{
    if (axis == type->rank) {
        show_element(data, type->dtype, first);
        return;
    }
    int64_t n = type->dims[axis], step = 1;
    for (int a = axis + 1; a < type->rank; a++) step *= type->dims[a];
    putchar('[');
    for (int64_t i = 0; i < n; i++) {
        if (i > 0) printf(", ");
        if (!whole && i == EDGE && n > 2 * EDGE) {
            printf("..., ");
            i = n - EDGE;
        }
        show_nested(data, type, axis + 1, first + i * step, whole);
    }
    putchar(']');
}

void tool_show_array(tow_array *array)
{
    const tow_type type = tow_array_type(array);
    char name[256];
    tow_type_text(type, name, sizeof name);
    printf("%s ", name);
    show_nested(tow_array_data(array), &type, 0, 0, shown_in_full(type) <= MOST_SHOWN);
    putchar('\n');
}

/* JSON has no NaN and no infinities: these become the strings "nan", "inf" and "-inf". */
static json_t *json_number(double x)
{
    if (isfinite(x)) return json_real(x);
    return json_string(isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
}

/* Integers of JSON have 64 bits and a sign: larger ones are reals. */
static json_t *json_element(const void *data, tow_dtype dtype, int64_t i)
{
    const tow__element e = tow__load_element(dtype, data, i);
    if (e.kind == TOW__A_FLOAT) return json_number(e.f);
    if (e.kind == TOW__A_BOOL) return json_boolean(e.u != 0);
    if (e.kind == TOW__AN_UNSIGNED && e.u > INT64_MAX) return json_real(e.f);
    return json_integer(e.kind == TOW__A_SIGNED ? e.i : (int64_t)e.u);
}

static json_t *json_nested(const void *data, const tow_type *type, int axis, int64_t *next)
{
    if (axis == type->rank) return json_element(data, type->dtype, (*next)++);
    json_t *list = json_array();
    for (int64_t i = 0; list && i < type->dims[axis]; i++) {
        if (json_array_append_new(list, json_nested(data, type, axis + 1, next)) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

json_t *tool_json_type(tow_type type)
{
    char name[256];
    tow_type_text(type, name, sizeof name);
    return json_string(name);
}

json_t *tool_json_array(tow_array *array)
{
    const tow_type type = tow_array_type(array);
    int64_t next = 0;
    if (tow_type_element_count(type) == 0) /* its rows would be empty lists, perhaps without end */
        return json_pack("{s:o, s:[]}", "type", tool_json_type(type), "data");
    return json_pack("{s:o, s:o}", "type", tool_json_type(type), "data",
                     json_nested(tow_array_data(array), &type, 0, &next));
}

json_t *tool_json_graph(const tow_graph *graph)
{
    json_t *inputs = json_array(), *outputs = json_array();
    bool failed = false;
    for (size_t i = 0; i < tow_graph_input_count(graph); i++) {
        const char *name = tow_graph_input_name(graph, i);
        json_t *input = json_pack("{s:o, s:o}", "name", name != NULL ? tool_json_text(name) : json_null(), "type",
                                  tool_json_type(tow_graph_input_type(graph, i)));
        failed |= json_array_append_new(inputs, input) != 0;
    }
    for (size_t i = 0; i < tow_graph_output_count(graph); i++)
        failed |= json_array_append_new(outputs, tool_json_type(tow_graph_output_type(graph, i))) != 0;
    char *text = tool_text_of(tool_graph_text, graph);
    json_t *result = NULL;
    if (!failed && text)
        result = json_pack("{s:O, s:O, s:I, s:o}", "inputs", inputs, "outputs", outputs, "equations",
                           (json_int_t)tow_graph_primitive_count(graph, NULL), "text", tool_json_text(text));
    free(text);
    json_decref(inputs);
    json_decref(outputs);
    return result;
}

tow_status tool_show_json(tool *t, json_t *value)
{
    if (!value) return tool_fail(t, TOW_OUT_OF_MEMORY, "out of memory");
    const int failed = json_dumpf(value, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(value);
    putchar('\n');
    return failed ? tool_fail(t, TOW_IO_ERROR, "cannot write JSON") : TOW_OK;
}

/* ---- errors ----------------------------------------------------------------------------------------------------- */

tow_status tool_fail(tool *t, tow_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(t->message, sizeof t->message, format, args);
    va_end(args);
    return status;
}

void tool_report(const tool *t, tow_status status)
{
    const char *message = t->message[0] != '\0' ? t->message : tow_context_error(t->context);
    const tool_options *o = &t->options; /* messages on logs, weights and tokenizers name their files */
    const bool named = o->n_files > 0 || o->mapping || o->architecture || (o->tokenizer && t->message[0] == '\0');
    const char *file = named ? "tow" : o->file;
    int line = 0, column = 0, length = 0;
    /* The parser says where: "line 3, column 9: ...". */
    if (sscanf(message, "line %d, column %d: %n", &line, &column, &length) == 2 && length > 0)
        message += length;
    else
        line = 0;
    if (t->options.json) {
        json_t *error = json_pack("{s:o, s:s, s:o}", "file", tool_json_text(file), "status", tow_status_text(status),
                                  "message", tool_json_text(message));
        if (error && line > 0) {
            json_object_set_new(error, "line", json_integer(line));
            json_object_set_new(error, "column", json_integer(column));
        }
        if (!error || json_dumpf(error, stderr, JSON_INDENT(2)) != 0) fprintf(stderr, "%s: %s", file, message);
        json_decref(error);
        fputc('\n', stderr);
    } else if (line > 0) {
        fprintf(stderr, "%s:%d:%d: %s\n", file, line, column, message);
    } else {
        fprintf(stderr, "%s: %s\n", file, message);
    }
}
