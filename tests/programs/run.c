/* Graphs as text, inputs, and runs. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tests/programs/programs.h"
#include "tests/unit/support/elements.h"
#include "tests/unit/support/machines.h"

verdict fail(trial *t, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(t->message, MESSAGE, format, list);
    va_end(list);
    return FAILS;
}

bool is_broken(const trial *t, const char *name, const char *primitive)
{
    return t->broken && strcmp(t->broken, name) == 0 && mentions(t->graph, primitive);
}

/* ---- choices ----------------------------------------------------------------------------------------------------- */

choices choices_of(const trial *t, uint32_t salt) { return (choices){.random = t->seed * 0x9e3779b97f4a7c15u + salt}; }

/* splitmix64 */
int choose(choices *c, int n)
{
    uint64_t z = c->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (int)((z ^ z >> 31) % (uint64_t)n);
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

char *text_of(const tow_graph *g)
{
    const size_t length = tow_graph_text(g, NULL, 0);
    char *text = malloc(length + 1);
    if (text == NULL) abort();
    tow_graph_text(g, text, length + 1);
    return text;
}

/* text with every `from` replaced; the old one is freed. */
static char *replaced(char *text, const char *from, const char *to)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, from)) != NULL; at += strlen(from)) n++;
    char *result = malloc(strlen(text) + n * strlen(to) + 1), *end = result;
    if (result == NULL) abort();
    for (const char *at = text; *at;) {
        const bool found = strncmp(at, from, strlen(from)) == 0;
        const size_t length = found ? strlen(to) : 1;
        memcpy(end, found ? to : at, length);
        end += length;
        at += found ? strlen(from) : 1;
    }
    *end = '\0';
    free(text);
    return result;
}

tow_graph *read_with(tow_context *context, const tow_graph *g, const char *from, const char *to)
{
    tow_graph *result = NULL;
    char *text = replaced(text_of(g), from, to);
    if (tow_graph_parse(context, text, &result) != TOW_OK) result = NULL;
    free(text);
    return result;
}

tow_graph *read_as_doubles(tow_context *context, const tow_graph *g) { return read_with(context, g, "f32", "f64"); }

tow_graph *gradient_of(const tow_graph *g)
{
    tow_graph *result = NULL;
    return tow_value_and_grad(g, 0, NULL, tow_graph_output_count(g) > 1, &result) == TOW_OK ? result : NULL;
}

bool mentions(const tow_graph *g, const char *primitive) { return tow_graph_primitive_count(g, primitive) > 0; }

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

static arrays room_for(size_t n)
{
    arrays a = {.n = n, .list = calloc(n + 1, sizeof *a.list)};
    if (a.list == NULL) abort();
    return a;
}

void release(arrays *a)
{
    for (size_t i = 0; i < a->n; i++) tow_array_release(a->list[i]);
    free(a->list);
    *a = (arrays){0};
}

/* Floats between -1.7 and 1.7 of which hardly any two are equal and none is 0, since there many functions have kinks;
 * integers around small indices. */
void fill(tow_array *array, choices *c)
{
    const tow_type type = tow_array_type(array);
    for (int64_t i = 0; i < tow_type_element_count(type); i++) {
        const int x = choose(c, 256) - 128;
        double number = (x + (2 * choose(c, 1 << 14) + 1) / 32768.0) / 77;
        if (type.dtype == TOW_BOOL) number = x < 0;
        if (type.dtype == TOW_I32) number = x / 30;
        if (type.dtype == TOW_U32) number = (x + 128) / 30;
        set_array_element(array, i, (double)(float)number);
    }
}

arrays inputs_of(const tow_graph *g, uint32_t seed)
{
    arrays in = room_for(tow_graph_input_count(g));
    choices c = {.random = seed * 0xd6e8feb86659fd93u};
    for (size_t i = 0; i < in.n; i++) {
        if (tow_array_create(tow_graph_context(g), tow_graph_input_type(g, i), &in.list[i]) != TOW_OK) abort();
        fill(in.list[i], &c);
    }
    return in;
}

bool all_finite(const arrays *a)
{
    for (size_t i = 0; i < a->n; i++)
        for (int64_t k = 0; k < tow_type_element_count(tow_array_type(a->list[i])); k++)
            if (!isfinite(array_element(a->list[i], k))) return false;
    return true;
}

static bool same_element(const tow_array *a, const tow_array *b, int64_t i)
{
    const size_t size = tow_dtype_size(tow_array_type(a).dtype);
    const char *x = tow_array_data(a), *y = tow_array_data(b);
    if (memcmp(x + (size_t)i * size, y + (size_t)i * size, size) == 0) return true;
    return tow_dtype_is_float(tow_array_type(a).dtype) && isnan(array_element(a, i)) && isnan(array_element(b, i));
}

bool same_bits(const arrays *a, const arrays *b, char *text)
{
    if (a->n != b->n) return snprintf(text, MESSAGE, "%zu and %zu results", a->n, b->n), false;
    for (size_t i = 0; i < a->n; i++) {
        const tow_type type = tow_array_type(a->list[i]);
        if (!tow_type_equal(type, tow_array_type(b->list[i])))
            return snprintf(text, MESSAGE, "result %zu has two types", i), false;
        for (int64_t k = 0; k < tow_type_element_count(type); k++)
            if (!same_element(a->list[i], b->list[i], k)) {
                snprintf(text, MESSAGE, "result %zu, number %lld: %.17g and %.17g", i, (long long)k,
                         array_element(a->list[i], k), array_element(b->list[i], k));
                return false;
            }
    }
    return true;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

bool run(const tow_graph *g, const how *h, const arrays *in, arrays *out)
{
    tow_context *context = tow_graph_context(g);
    const char *const without[] = {h->without, NULL};
    tow_compile_options options =
        TOW_COMPILE_OPTIONS(.threads = h->threads, .no_regions = h->no_regions, .no_fusion = h->no_fusion,
                            .without = without, .verify = h->verify);
    tow_program *program = NULL;
    tow_memory_point points[256];
    size_t n = 0;
    *out = room_for(tow_graph_output_count(g));
    given_machine_begin(h->machine);
    tow_status status = h->limit ? tow_memory_curve(context, g, &options, 256, points, &n) : TOW_OK;
    if (n > 0) options.memory_limit = points[(n - 1) * (size_t)h->limit / 1000].bytes;
    if (status == TOW_OK) status = tow_compile(context, g, &options, &program);
    given_machine_end();
    if (status == TOW_OK) status = tow_program_check(program);
    for (size_t i = 0; i < out->n && status == TOW_OK; i++)
        status = tow_array_create(context, tow_graph_output_type(g, i), &out->list[i]);
    if (status == TOW_OK) status = tow_program_run(program, in->list, out->list);
    tow_program_free(program);
    if (status != TOW_OK) release(out);
    return status == TOW_OK;
}
