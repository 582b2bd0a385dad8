/* tow vmap: the graph of one row, or with --grad its gradient, as the graph of all rows. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "src/tool/tool.h"

/* "0,none,-1": an axis for each of n, or `none`; one alone stands for all. text NULL: axis 0. */
static tow_status read_axes(tool *t, const char *option, const char *text, size_t n, int *axes)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) axes[i] = 0;
    while (text != NULL) {
        const size_t length = strcspn(text, ",");
        const bool none = length == 4 && memcmp(text, "none", 4) == 0;
        char *end = NULL;
        errno = 0;
        const long axis = none ? 0 : strtol(text, &end, 10);
        if (!none && (errno != 0 || length == 0 || end != text + length || axis < -INT_MAX || axis > INT_MAX))
            return tool_fail(t, TOW_INVALID_ARGUMENT, "%s: expected an axis or 'none', found '%.*s'", option,
                             (int)length, text);
        if (count < n) axes[count] = none ? TOW_NOT_MAPPED : (int)axis;
        count++;
        text = text[length] == ',' ? text + length + 1 : NULL;
    }
    for (size_t i = 1; count == 1 && i < n; i++) axes[i] = axes[0];
    if (count <= 1 || count == n) return TOW_OK;
    return tool_fail(t, TOW_INVALID_ARGUMENT, "%s: expected %zu axes, or one for all, found %zu", option, n, count);
}

static tow_status read_size(tool *t, int64_t *size)
{
    char *end;
    if (t->options.size == NULL)
        return tool_fail(t, TOW_INVALID_ARGUMENT,
                         "vmap: expected --size, the number of rows; a graph has the types of one");
    errno = 0;
    *size = strtoll(t->options.size, &end, 10);
    if (errno == 0 && end != t->options.size && *end == '\0' && *size >= 0) return TOW_OK;
    return tool_fail(t, TOW_INVALID_ARGUMENT, "--size: expected a number of rows, 0 or more, found '%s'",
                     t->options.size);
}

static tow_status batch(tool *t, const tow_graph *graph, tow_graph **result)
{
    const size_t n_in = tow_graph_input_count(graph), n_out = tow_graph_output_count(graph);
    int *axes = calloc(n_in + n_out + 1, sizeof *axes);
    int64_t size = 0;
    tow_status status = axes == NULL ? tool_fail(t, TOW_OUT_OF_MEMORY, "out of memory") : read_size(t, &size);
    if (status == TOW_OK) status = read_axes(t, "--in-axes", t->options.in_axes, n_in, axes);
    if (status == TOW_OK) status = read_axes(t, "--out-axes", t->options.out_axes, n_out, axes + n_in);
    if (status == TOW_OK) status = tow_vmap(graph, size, axes, axes + n_in, result);
    free(axes);
    return status;
}

tow_status tool_vmap(tool *t)
{
    tow_graph *row = tow_graph_retain(t->graph), *all = NULL;
    tow_status status = TOW_OK;
    if (t->options.grad) {
        tow_graph_release(row);
        row = NULL;
        status = tool_differentiate(t, t->options.value, &row);
    }
    if (status == TOW_OK) status = batch(t, row, &all);
    if (status == TOW_OK) status = t->options.run ? tool_evaluate(t, all) : tool_show_graph(t, all);
    tow_graph_release(row);
    tow_graph_release(all);
    return status;
}
