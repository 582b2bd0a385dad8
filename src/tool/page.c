/* plan --html: the page of a plan, or of two side by side. */
#include <string.h>

#include "src/tool/tool.h"

/* Reads another graph in the way of the first, and gives it in *graph, or its gradient. */
static tow_status load_other(tool *t, const char *path, tow_graph **graph)
{
    tool other = *t;
    other.graph = other.written = NULL;
    other.options.file = path;
    other.message[0] = '\0';
    tow_status status = tool_load(&other);
    if (status == TOW_OK && t->options.grad)
        status = tool_differentiate(&other, true, graph);
    else if (status == TOW_OK)
        *graph = tow_graph_retain(other.graph);
    tow_graph_release(other.graph);
    tow_graph_release(other.written);
    if (status == TOW_OK) return status;
    return tool_fail(t, status, "--against %s: %s", path,
                     *other.message ? other.message : tow_context_error(t->context));
}

/* The plan of --against: within another limit, without one, or of another file. */
static tow_status plan_other(tool *t, const tow_graph *graph, const tow_compile_options *options, tow_program **program)
{
    const char *against = t->options.against;
    tow_compile_options other = *options;
    tow_graph *read = NULL;
    tow_status status = TOW_OK;
    other.plan_only = true;
    other.after_pass = NULL;
    tool_limit limit = {0};
    if (strcmp(against, "none") == 0 || tool_read_limit(against, &limit))
        status = tool_limit_of(t, graph, options, limit, &other.memory_limit);
    else
        status = load_other(t, against, &read);
    if (status == TOW_OK) status = tow_compile(t->context, read ? read : graph, &other, program);
    tow_graph_release(read);
    return status;
}

tow_status tool_write_page(tool *t, const tow_graph *graph, const tow_compile_options *options,
                           const tow_program *program)
{
    tow_program *against = NULL;
    tow_status status = t->options.against ? plan_other(t, graph, options, &against) : TOW_OK;
    if (status == TOW_OK) status = tow_program_write_html(program, against, t->options.html);
    tow_program_free(against);
    return status;
}
