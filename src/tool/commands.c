/* The subcommands of `tow`: each takes the loaded graph and shows one view of it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/tool/tool.h"

/* ---- loading ---------------------------------------------------------------------------------------------------- */

enum {
    LIMIT = 1 << 30 /* bytes of a graph: a device that never ends must not fill the memory */
};

tow_status tool_read_text(tool *t, bool zeros, char **text, size_t *size)
{
    const char *path = t->options.file;
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    if (!file) return tool_fail(t, TOW_IO_ERROR, "cannot open: %s", strerror(errno));
    size_t length = 0, capacity = 1 << 16;
    char *buffer = malloc(capacity);
    while (buffer) {
        const size_t got = fread(buffer + length, 1, capacity - length - 1, file);
        length += got;
        if (got == 0) break;
        if (capacity - length > 1) continue;
        if (capacity >= LIMIT || (!zeros && memchr(buffer, '\0', length))) break;
        char *larger = realloc(buffer, capacity * 2);
        if (!larger) {
            free(buffer);
            buffer = NULL;
        } else {
            buffer = larger;
            capacity *= 2;
        }
    }
    tow_status status = TOW_OK;
    if (!buffer)
        status = tool_fail(t, TOW_OUT_OF_MEMORY, "out of memory");
    else if (ferror(file))
        status = tool_fail(t, TOW_IO_ERROR, "cannot read: %s", strerror(errno));
    else if (!zeros && memchr(buffer, '\0', length))
        status = tool_fail(t, TOW_BAD_FORMAT, "holds a zero byte: expected a graph in textual form");
    else if (length + 1 >= LIMIT)
        status = tool_fail(t, TOW_BAD_FORMAT, "expected less than 1 GiB of text, found more; is this the right file?");
    if (file != stdin) fclose(file);
    if (status != TOW_OK) {
        free(buffer);
        return status;
    }
    buffer[length] = '\0';
    *text = buffer;
    *size = length;
    return TOW_OK;
}

/* Replaces t->graph by what a pass makes of it. */
static tow_status apply(tool *t, tow_status (*pass)(const tow_graph *graph, tow_graph **result))
{
    tow_graph *result = NULL;
    const tow_status status = pass(t->graph, &result);
    if (status != TOW_OK) return status;
    tow_graph_release(t->graph);
    t->graph = result;
    return TOW_OK;
}

static tow_status apply_policy(tool *t)
{
    tow_policy *policy = NULL;
    tow_graph *result = NULL;
    t->written = tow_graph_retain(t->graph);
    tow_status status = tow_policy_parse(t->context, t->options.policy, &policy);
    if (status != TOW_OK)
        return tool_fail(t, status, "--policy %s: %s", t->options.policy, tow_context_error(t->context));
    status = tow_remat_whole(t->graph, policy, &result);
    tow_policy_free(policy);
    if (status != TOW_OK) return status;
    tow_graph_release(t->graph);
    t->graph = result;
    return TOW_OK;
}

tow_status tool_load(tool *t)
{
    char *text = NULL;
    size_t length;
    tow_status status = tool_read_text(t, false, &text, &length);
    if (status == TOW_OK) status = tow_graph_parse(t->context, text, &t->graph);
    free(text);
    if (status == TOW_OK) status = tow_graph_check(t->graph);
    if (status == TOW_OK && t->options.dce) status = apply(t, tow_graph_dce);
    if (status == TOW_OK && t->options.cse) status = apply(t, tow_graph_cse);
    if (status == TOW_OK && t->options.policy) status = apply_policy(t);
    return status;
}

/* ---- check, print, run ------------------------------------------------------------------------------------------- */

/* --input NAME=... and files of arrays could not tell such inputs apart. */
static tow_status check_names(tool *t)
{
    for (size_t i = 0; i < tow_graph_input_count(t->graph); i++) {
        const char *name = tow_graph_input_name(t->graph, i);
        for (size_t j = 0; name && j < i; j++) {
            const char *other = tow_graph_input_name(t->graph, j);
            if (other && strcmp(name, other) == 0)
                return tool_fail(t, TOW_INVALID_ARGUMENT,
                                 "inputs %zu and %zu have the same name \"%s\"; give each its own", j, i, name);
        }
    }
    return TOW_OK;
}

tow_status tool_check(tool *t)
{
    const size_t inputs = tow_graph_input_count(t->graph), outputs = tow_graph_output_count(t->graph);
    const size_t equations = tow_graph_primitive_count(t->graph, NULL);
    tow_status status = check_names(t);
    if (status != TOW_OK) return status;
    if (t->options.json)
        return tool_show_json(t, json_pack("{s:b, s:I, s:I, s:I}", "ok", 1, "inputs", (json_int_t)inputs, "outputs",
                                           (json_int_t)outputs, "equations", (json_int_t)equations));
    printf("ok: %zu inputs, %zu outputs, %zu equations\n", inputs, outputs, equations);
    return TOW_OK;
}

tow_status tool_show_graph(tool *t, const tow_graph *graph)
{
    return t->options.json ? tool_show_json(t, tool_json_graph(graph)) : tow_graph_print(graph, stdout);
}

tow_status tool_print(tool *t) { return tool_show_graph(t, t->graph); }

/* Writes what `write` makes of the program to a file. */
static tow_status write_file(tool *t, const char *path, tow_status (*write)(const tow_program *program, FILE *file),
                             const tow_program *program)
{
    FILE *file = fopen(path, "w");
    if (!file) return tool_fail(t, TOW_IO_ERROR, "%s: cannot write: %s", path, strerror(errno));
    tow_status status = write(program, file);
    if (fclose(file) != 0 && status == TOW_OK)
        status = tool_fail(t, TOW_IO_ERROR, "%s: cannot write: %s", path, strerror(errno));
    return status;
}

/* Runs twice: the first run touches fresh memory, the second one is recorded. */
static tow_status run_recorded(tool *t, tow_program *program, const tow_graph *graph, tow_array *const *inputs,
                               tow_array **outputs)
{
    tow_status status = TOW_OK;
    for (size_t i = 0; status == TOW_OK && i < tow_graph_output_count(graph); i++)
        status = tow_array_create(t->context, tow_graph_output_type(graph, i), &outputs[i]);
    if (status == TOW_OK) status = tow_program_run(program, inputs, outputs);
    if (status == TOW_OK) status = tow_program_record(program, true);
    if (status == TOW_OK) status = tow_program_count(program, true);
    if (status == TOW_OK) status = tow_program_run(program, inputs, outputs);
    return status;
}

static tow_status evaluate_traced(tool *t, const tow_graph *graph, tow_array *const *inputs, tow_array **outputs)
{
    tow_program *program = NULL;
    tow_status status = tow_compile(t->context, graph, NULL, &program);
    if (status == TOW_OK) status = run_recorded(t, program, graph, inputs, outputs);
    if (status == TOW_OK) status = write_file(t, t->options.trace, tow_program_write_trace, program);
    tow_program_free(program);
    return status;
}

static tow_status show_outputs(tool *t, size_t n, tow_array *const *outputs)
{
    if (!t->options.json) {
        for (size_t i = 0; i < n; i++) tool_show_array(outputs[i]);
        return TOW_OK;
    }
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++) {
        if (json_array_append_new(list, tool_json_array(outputs[i])) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return tool_show_json(t, list);
}

tow_status tool_evaluate(tool *t, const tow_graph *graph)
{
    const size_t n_in = tow_graph_input_count(graph), n_out = tow_graph_output_count(graph);
    tow_array **inputs = calloc(n_in + 1, sizeof *inputs), **outputs = calloc(n_out + 1, sizeof *outputs);
    tow_status status = TOW_OK;
    if (!inputs || !outputs) status = tool_fail(t, TOW_OUT_OF_MEMORY, "out of memory");
    if (status == TOW_OK) status = tool_read_inputs(t, graph, inputs);
    if (status == TOW_OK)
        status = t->options.trace ? evaluate_traced(t, graph, inputs, outputs) : tow_evaluate(graph, inputs, outputs);
    if (status == TOW_OK && (t->options.n_output > 0 || t->options.outputs))
        status = tool_write_outputs(t, n_out, outputs);
    else if (status == TOW_OK)
        status = show_outputs(t, n_out, outputs);
    for (size_t i = 0; inputs && i < n_in; i++) tow_array_release(inputs[i]);
    for (size_t i = 0; outputs && i < n_out; i++) tow_array_release(outputs[i]);
    free(inputs);
    free(outputs);
    return status;
}

tow_status tool_run(tool *t) { return tool_evaluate(t, t->graph); }

/* ---- derivatives ------------------------------------------------------------------------------------------------- */

/* The first result of the graph is the loss; further ones are auxiliary and come out as they are. */
tow_status tool_differentiate(tool *t, bool value, tow_graph **result)
{
    const tool_options *o = &t->options;
    const bool has_aux = tow_graph_output_count(t->graph) > 1;
    if (o->jvp) return tow_jvp(t->graph, o->n_wrt, o->wrt, result);
    static const size_t first = 0; /* the default of jax.grad, where the library's is all float inputs */
    const size_t n_wrt = o->n_wrt > 0 ? o->n_wrt : 1, *wrt = o->n_wrt > 0 ? o->wrt : &first;
    if (o->jacfwd) return tow_jacfwd(t->graph, n_wrt, wrt, result);
    if (o->jacrev) return tow_jacrev(t->graph, n_wrt, wrt, result);
    if (o->hessian) return tow_hessian(t->graph, n_wrt, wrt, result);
    return value ? tow_value_and_grad(t->graph, n_wrt, wrt, has_aux, result)
                 : tow_grad(t->graph, n_wrt, wrt, has_aux, result);
}

tow_status tool_grad(tool *t)
{
    const tool_options *o = &t->options;
    tow_graph *gradient = NULL;
    if (o->split && !o->json) return tow_print_forward_backward(t->graph, o->n_wrt, o->wrt, stdout);
    if (o->split) {
        tow_graph *forward = NULL, *backward = NULL;
        tow_status status = tow_vjp(t->graph, o->n_wrt, o->wrt, &forward, &backward);
        if (status == TOW_OK)
            status = tool_show_json(
                t, json_pack("{s:o, s:o}", "forward", tool_json_graph(forward), "backward", tool_json_graph(backward)));
        tow_graph_release(forward);
        tow_graph_release(backward);
        return status;
    }
    tow_status status = tool_differentiate(t, o->value, &gradient);
    if (status == TOW_OK) status = o->run ? tool_evaluate(t, gradient) : tool_show_graph(t, gradient);
    tow_graph_release(gradient);
    return status;
}

/* ---- count, plan ------------------------------------------------------------------------------------------------- */

/* Counts of one primitive in the compiled forward and backward graphs, loops counted by their length. */
static tow_status show_counts(tool *t, const tow_program *forward, const tow_program *backward)
{
    json_t *list = t->options.json ? json_array() : NULL;
    bool failed = t->options.json && !list;
    if (!t->options.json) printf("%-28s %10s %10s\n", "primitive", "forward", "backward");
    for (size_t i = 0;; i++) {
        const char *name = tow_primitive_name(i); /* NULL, after the last, counts all */
        const uint64_t f = tow_program_operation_count(forward, name), b = tow_program_operation_count(backward, name);
        if (t->options.json && (f > 0 || b > 0 || !name))
            failed |= json_array_append_new(list, json_pack("{s:s, s:I, s:I}", "primitive", !name ? "total" : name,
                                                            "forward", (json_int_t)f, "backward", (json_int_t)b)) != 0;
        else if (f > 0 || b > 0 || !name)
            printf("%-28s %10llu %10llu\n", !name ? "total" : name, (unsigned long long)f, (unsigned long long)b);
        if (!name) break;
    }
    if (!t->options.json) return TOW_OK;
    if (failed) {
        json_decref(list);
        list = NULL;
    }
    return tool_show_json(t, list);
}

tow_status tool_count(tool *t)
{
    tow_graph *forward = NULL, *backward = NULL;
    tow_program *run_forward = NULL, *run_backward = NULL;
    const tow_compile_options plan = TOW_COMPILE_OPTIONS(.plan_only = true);
    tow_status status = tow_vjp(t->graph, t->options.n_wrt, t->options.wrt, &forward, &backward);
    if (status == TOW_OK) status = tow_compile(t->context, forward, &plan, &run_forward);
    if (status == TOW_OK) status = tow_compile(t->context, backward, &plan, &run_backward);
    if (status == TOW_OK) status = show_counts(t, run_forward, run_backward);
    tow_program_free(run_forward);
    tow_program_free(run_backward);
    tow_graph_release(forward);
    tow_graph_release(backward);
    return status;
}

/* [{"instruction", "engine", "result", "backward", "reason"}]; NULL: out of memory. */
static json_t *json_engines(const tow_program *program)
{
    json_t *list = json_array();
    tow_program_engine e;
    for (size_t i = 0; list && tow_program_get_engine(program, i, &e); i++) {
        json_t *item =
            json_pack("{s:o, s:s, s:o, s:b, s:o}", "instruction", tool_json_text(e.instruction), "engine", e.engine,
                      "result", tool_json_type(e.result), "backward", e.backward, "reason", tool_json_text(e.reason));
        if (json_array_append_new(list, item) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

static json_t *json_plan(const tow_program *program)
{
    const tow_program_bytes bytes = tow_program_get_bytes(program);
    char *text = tool_text_of(tool_program_text, program);
    json_t *result = !text ? NULL
                           : json_pack("{s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I}, s:I, s:o, s:o}", "bytes", "inputs",
                                       (json_int_t)bytes.inputs, "outputs", (json_int_t)bytes.outputs, "arena",
                                       (json_int_t)bytes.arena, "lower_bound", (json_int_t)bytes.lower_bound,
                                       "residuals", (json_int_t)bytes.residuals, "constants",
                                       (json_int_t)bytes.constants, "file", (json_int_t)bytes.file, "instructions",
                                       (json_int_t)tow_program_operation_count(program, NULL), "engines",
                                       json_engines(program), "text", tool_json_text(text));
    free(text);
    return result;
}

/* plan --run: what instructions took is printed beside what the cost model says. */
static tow_status run_plan(tool *t, tow_program *program, const tow_graph *graph)
{
    const size_t n_in = tow_graph_input_count(graph), n_out = tow_graph_output_count(graph);
    tow_array **inputs = calloc(n_in + 1, sizeof *inputs), **outputs = calloc(n_out + 1, sizeof *outputs);
    tow_status status = TOW_OK;
    if (!inputs || !outputs) status = tool_fail(t, TOW_OUT_OF_MEMORY, "out of memory");
    if (status == TOW_OK) status = tool_read_inputs(t, graph, inputs);
    if (status == TOW_OK) status = run_recorded(t, program, graph, inputs, outputs);
    for (size_t i = 0; inputs && i < n_in; i++) tow_array_release(inputs[i]);
    for (size_t i = 0; outputs && i < n_out; i++) tow_array_release(outputs[i]);
    free(inputs);
    free(outputs);
    return status;
}

tow_status tool_plan(tool *t)
{
    tow_graph *graph = tow_graph_retain(t->graph);
    tow_program *program = NULL;
    tow_status status = TOW_OK;
    if (t->options.grad) {
        tow_graph_release(graph);
        graph = NULL;
        if (t->options.processes) status = tool_choose_floats(t);
        if (status == TOW_OK) status = tool_differentiate(t, true, &graph);
    }
    const char *without[TOOL_MAX_PASSES + 1] = {NULL};
    tool_dumps dumps;
    tow_compile_options options =
        TOW_COMPILE_OPTIONS(.plan_only = !t->options.run, .without = without, .verify = t->options.verify);
    if (status == TOW_OK && t->options.without) status = tool_read_without(t, t->options.without, without);
    if (status == TOW_OK) status = tool_limit_of(t, graph, &options, t->options.memory_limit, &options.memory_limit);
    if (status == TOW_OK && t->options.curve) {
        status = tool_show_curve(t, graph, &options);
        tow_graph_release(graph);
        return status;
    }
    if (status == TOW_OK) status = tool_begin_dumps(t, &dumps, &options);
    if (status == TOW_OK) status = tow_compile(t->context, graph, &options, &program);
    if (status == TOW_OK) status = tool_end_dumps(t, &dumps);
    if (status == TOW_OK) status = tow_program_check(program);
    if (status == TOW_OK && t->options.run) status = run_plan(t, program, graph);
    if (status == TOW_OK && t->options.memory)
        status = write_file(t, t->options.memory, tow_program_draw_memory, program);
    if (status == TOW_OK && t->options.html) status = tool_write_page(t, graph, &options, program);
    if (status == TOW_OK && t->options.processes) {
        status = tool_scale(t, graph, program);
    } else if (status == TOW_OK && t->options.json) {
        status = tool_show_json(t, json_plan(program));
    } else if (status == TOW_OK && !t->options.dump_after) {
        char *text = tool_text_of(tool_program_text, program);
        if (!text) status = tool_fail(t, TOW_OUT_OF_MEMORY, "out of memory");
        if (text) fputs(text, stdout);
        free(text);
    }
    tow_program_free(program);
    tow_graph_release(graph);
    return status;
}
