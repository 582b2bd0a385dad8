/* Inputs and outputs of `tow run` and `tow grad --run`: .npy, safetensors, JSON values, random numbers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/dtypes.h"
#include "src/tool/tool.h"

/* ---- JSON values ------------------------------------------------------------------------------------------------ */

/* True for what --input takes as a value and not as the name of a file: a number, a list, true or false. */
static bool is_value(const char *text)
{
    if (text[0] == '[' || strcmp(text, "true") == 0 || strcmp(text, "false") == 0) return true;
    char *end;
    strtod(text, &end);
    return end != text && *end == '\0';
}

/* Elements of JSON numbers must be numbers of the type. */
static bool set_element(void *data, tow_dtype dtype, int64_t i, double x)
{
    if (!tow__dtype_holds(dtype, x)) return false;
    tow__store_element(dtype, data, i, x);
    return !tow_dtype_is_float(dtype) || isfinite(tow__load_element(dtype, data, i).f);
}

/* The same for whole numbers, which have 64 bits. */
static bool set_integer(void *data, tow_dtype dtype, int64_t i, int64_t x)
{
    if (!tow_dtype_is_integer(dtype) || !tow__dtype_holds(dtype, (double)x))
        return set_element(data, dtype, i, (double)x);
    char *at = (char *)data + i * (int64_t)tow_dtype_size(dtype);
    tow__convert_elements(dtype, at, TOW_I64, &x, 1);
    return true;
}

/* Fills data from nested lists that have the type's shape. */
static bool fill(const json_t *value, const tow_type *type, int axis, void *data, int64_t *next)
{
    if (axis < type->rank) {
        if (!json_is_array(value) || (int64_t)json_array_size(value) != type->dims[axis]) return false;
        for (size_t i = 0; i < json_array_size(value); i++)
            if (!fill(json_array_get(value, i), type, axis + 1, data, next)) return false;
        return true;
    }
    if (!json_is_number(value) && !json_is_boolean(value)) return false;
    const int64_t i = (*next)++;
    if (json_is_integer(value)) return set_integer(data, type->dtype, i, json_integer_value(value));
    return set_element(data, type->dtype, i, json_is_boolean(value) ? json_is_true(value) : json_real_value(value));
}

static tow_status array_from_value(tool *t, const char *text, tow_type type, const char *what, tow_array **array)
{
    json_error_t error;
    char name[256];
    tow_type_text(type, name, sizeof name);
    json_t *value = json_loads(text, JSON_DECODE_ANY, &error);
    if (!value && error.text[0] == '\0') return tool_fail(t, TOW_OUT_OF_MEMORY, "out of memory");
    if (!value) return tool_fail(t, TOW_BAD_FORMAT, "input %.200s: '%.200s' is not JSON: %s", what, text, error.text);
    tow_status status = tow_array_create(t->context, type, array);
    if (status == TOW_OK) {
        const bool everywhere = !json_is_array(value);
        tow_type element = tow_make_type(type.dtype, 0, NULL);
        int64_t next = 0;
        bool good = true;
        if (!everywhere)
            good = fill(value, &type, 0, tow_array_data(*array), &next);
        else
            while (good && next < tow_type_element_count(type))
                good = fill(value, &element, 0, tow_array_data(*array), &next);
        if (!good)
            status = tool_fail(t, TOW_SHAPE_MISMATCH,
                               "input %.200s: expected %s as nested lists (or one number for all), found '%.200s'",
                               what, name, text);
    }
    json_decref(value);
    return status;
}

/* ---- random inputs ----------------------------------------------------------------------------------------------- */

/* splitmix64: one well-mixed number per call. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static tow_status array_from_random(tool *t, tow_type type, uint64_t *state, tow_array **array)
{
    const tow_status status = tow_array_create(t->context, type, array);
    for (int64_t i = 0; status == TOW_OK && i < tow_type_element_count(type); i++) {
        const uint64_t bits = next_random(state);
        const double unit = (double)(bits >> 40) / (double)(1 << 24); /* exact in f32 */
        set_element(tow_array_data(*array), type.dtype, i,
                    tow_dtype_is_float(type.dtype) ? 2 * unit - 1 : (double)(bits >> 63));
    }
    return status;
}

/* ---- which array is which input ---------------------------------------------------------------------------------- */

/* Text of input i in messages and in safetensors: its name, else its index. */
static const char *input_label(const tow_graph *graph, size_t i, char number[24])
{
    const char *name = tow_graph_input_name(graph, i);
    if (name) return name;
    snprintf(number, 24, "%zu", i);
    return number;
}

/* "NAME=rest": the input called NAME (or with that index), and the rest; without a known name the next free input. */
static size_t find_input(const tow_graph *graph, tow_array *const *inputs, const char *argument, const char **rest)
{
    const size_t n = tow_graph_input_count(graph);
    const char *equals = strchr(argument, '=');
    *rest = argument;
    for (size_t i = 0; equals && i < n; i++) {
        char number[24];
        const char *label = input_label(graph, i, number);
        if (strlen(label) != (size_t)(equals - argument) || memcmp(label, argument, strlen(label)) != 0) continue;
        *rest = equals + 1;
        return i;
    }
    for (size_t i = 0; i < n; i++)
        if (!inputs[i]) return i;
    return n;
}

static bool are_integers(tow_dtype a, tow_dtype b) { return tow_dtype_is_integer(a) && tow_dtype_is_integer(b); }

static bool ends_with(const char *text, const char *suffix)
{
    const size_t length = strlen(text), tail = strlen(suffix);
    return length >= tail && strcmp(text + length - tail, suffix) == 0;
}

/* Integers, which NumPy saves with 64 bits, become those of the input, if they fit. */
static tow_status read_npy(tool *t, const char *path, tow_dtype dtype, tow_array **array)
{
    const tow_status status = tow_npy_mmap(t->context, path, array);
    if (status != TOW_OK || tow_array_type(*array).dtype == dtype || !are_integers(tow_array_type(*array).dtype, dtype))
        return status;
    tow_array_release(*array);
    return tow_npy_read_with(t->context, path, dtype, array);
}

static tow_status read_one(tool *t, const tow_graph *graph, const char *argument, tow_array **inputs)
{
    const char *rest;
    const size_t i = find_input(graph, inputs, argument, &rest);
    char number[24];
    if (i == tow_graph_input_count(graph))
        return tool_fail(t, TOW_INVALID_ARGUMENT, "the graph has %zu inputs: --input %.200s is too many", i, argument);
    if (inputs[i]) return tool_fail(t, TOW_INVALID_ARGUMENT, "input %s is given twice", input_label(graph, i, number));
    if (is_value(rest))
        return array_from_value(t, rest, tow_graph_input_type(graph, i), input_label(graph, i, number), &inputs[i]);
    const char *equals = strchr(rest, '=');
    if (rest == argument && equals && access(rest, F_OK) != 0)
        return tool_fail(t, TOW_NOT_FOUND,
                         "--input %.200s: no input is called '%.*s', and there is no file of that whole name; "
                         "input %zu is called '%.200s'",
                         argument, equals - rest > 200 ? 200 : (int)(equals - rest), rest, i,
                         input_label(graph, i, number));
    return read_npy(t, rest, tow_graph_input_type(graph, i).dtype, &inputs[i]);
}

static tow_status read_set(tool *t, const tow_graph *graph, tow_array **inputs)
{
    tow_tensors *tensors = NULL;
    const char *path = t->options.inputs;
    tow_status status = (ends_with(path, ".npz") ? tow_npz_read : tow_safetensors_mmap)(t->context, path, &tensors);
    for (size_t i = 0; status == TOW_OK && i < tow_graph_input_count(graph); i++) {
        char number[24];
        const char *label = input_label(graph, i, number);
        const tow_dtype dtype = tow_graph_input_type(graph, i).dtype;
        if (inputs[i]) continue;
        status = tow_tensors_get(tensors, label, &inputs[i]);
        if (status == TOW_NOT_FOUND) { /* it may be asked for otherwise */
            tow_context_clear_error(t->context);
            status = TOW_OK;
        } else if (status == TOW_OK && are_integers(tow_array_type(inputs[i]).dtype, dtype)) {
            tow_array_release(inputs[i]);
            status = tow_tensors_get_with(tensors, label, dtype, &inputs[i]);
        }
    }
    tow_tensors_free(tensors);
    return status;
}

tow_status tool_read_inputs(tool *t, const tow_graph *graph, tow_array **inputs)
{
    const tool_options *o = &t->options;
    uint64_t state = o->seed;
    tow_status status = TOW_OK;
    for (size_t i = 0; status == TOW_OK && i < o->n_input; i++) status = read_one(t, graph, o->input[i], inputs);
    if (status == TOW_OK && o->inputs) status = read_set(t, graph, inputs);
    for (size_t i = 0; status == TOW_OK && i < tow_graph_input_count(graph); i++) {
        const tow_type type = tow_graph_input_type(graph, i);
        char number[24], expected[256], found[256];
        const char *label = input_label(graph, i, number);
        tow_type_text(type, expected, sizeof expected);
        if (!inputs[i] && o->random_inputs) {
            status = array_from_random(t, type, &state, &inputs[i]);
        } else if (!inputs[i]) {
            status = tool_fail(t, TOW_NOT_FOUND, "input %s (%s) is not given: use --input, --inputs or --random-inputs",
                               label, expected);
        } else if (!tow_type_equal(tow_array_type(inputs[i]), type)) {
            tow_type_text(tow_array_type(inputs[i]), found, sizeof found);
            status = tool_fail(t, TOW_TYPE_MISMATCH, "input %s: expected %s, found %s", label, expected, found);
        }
    }
    return status;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

tow_status tool_write_outputs(tool *t, size_t n, tow_array *const *outputs)
{
    const tool_options *o = &t->options;
    tow_status status = TOW_OK;
    if (o->n_output > n)
        return tool_fail(t, TOW_INVALID_ARGUMENT, "%zu results, but --output is given %zu times", n, o->n_output);
    for (size_t i = 0; status == TOW_OK && i < o->n_output; i++)
        status = tow_npy_write(t->context, o->output[i], outputs[i]);
    if (status != TOW_OK || !o->outputs) return status;
    tow_tensors *tensors = NULL;
    status = tow_tensors_create(t->context, &tensors);
    for (size_t i = 0; status == TOW_OK && i < n; i++) {
        char name[24];
        snprintf(name, sizeof name, "%zu", i);
        status = tow_tensors_add(tensors, name, outputs[i]);
    }
    if (status == TOW_OK)
        status = ends_with(o->outputs, ".npz") ? tow_npz_write(o->outputs, tensors, false)
                                               : tow_safetensors_write(o->outputs, tensors);
    tow_tensors_free(tensors);
    return status;
}
