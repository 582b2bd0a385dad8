/* Errors, tracing, printing: the parts of a program that are not its point. */
#include "seed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void must(tow_context *context, tow_status status)
{
    if (status == TOW_OK) return;
    fprintf(stderr, "error: %s\n", tow_context_error(context));
    exit(1);
}

void show_version(const char *program, int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "--version") != 0) return;
    printf("%s (Tow) %s\n", program, TOW_VERSION);
    exit(0);
}

tow_context *open_context(void)
{
    tow_context *context = NULL;
    tow_status status = tow_context_create(NULL, &context);
    must(context, status);
    return context;
}

tow_graph *trace(tow_context *context, tow_function function, void *user, size_t n, const tow_type *types,
                 const char *const *names, size_t n_outputs)
{
    tow_graph *graph = NULL;
    must(context, tow_trace_function(context, function, user, n, types, names, n_outputs, &graph));
    return graph;
}

void print_residuals(const char *title, const tow_graph *graph)
{
    tow_context *context = tow_graph_context(graph);
    tow_residuals residuals;
    must(context, tow_saved_residuals(graph, 0, NULL, &residuals));
    size_t size = tow_residuals_text(&residuals, NULL, 0) + 1;
    char *text = malloc(size);
    if (!text) must(NULL, TOW_OUT_OF_MEMORY);
    tow_residuals_text(&residuals, text, size);
    printf("# %s\n%s\n", title, text);
    free(text);
    tow_residuals_free(&residuals);
}

tow_array *read_f32(tow_context *context, const char *path)
{
    tow_array *array = NULL, *result = NULL;
    must(context, tow_npy_read(context, path, &array));
    tow_type type = tow_array_type(array);
    if (type.dtype == TOW_F32) return array;
    if (type.dtype == TOW_BOOL) {
        fprintf(stderr, "error: %s: expected an array of numbers, found booleans; convert it with astype first\n",
                path);
        exit(1);
    }
    const void *from = tow_array_data(array);
    tow_dtype dtype = type.dtype;
    type.dtype = TOW_F32;
    must(context, tow_array_create(context, type, &result));
    float *to = tow_array_data(result);
    for (int64_t i = 0; i < tow_type_element_count(type); i++)
        to[i] = dtype == TOW_F64   ? (float)((const double *)from)[i]
                : dtype == TOW_I32 ? (float)((const int32_t *)from)[i]
                                   : (float)((const uint32_t *)from)[i];
    tow_array_release(array);
    return result;
}

double scalar_of(const tow_array *array)
{
    const void *data = tow_array_data(array);
    return tow_array_type(array).dtype == TOW_F64 ? *(const double *)data : (double)*(const float *)data;
}

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int64_t number_option(const char *program, const char *name, const char *text, int64_t low, int64_t high)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end != text && *end == '\0' && errno == 0 && value >= low && value <= high) return value;
    fprintf(stderr, "%s: %s: expected a whole number from %lld to %lld, found '%s'\n", program, name, (long long)low,
            (long long)high, text);
    exit(2);
}
