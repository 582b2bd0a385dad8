/* The subcommand residuals: what reverse mode keeps, and with --why the reasons. */
#include <stdlib.h>

#include "src/tool/tool.h"

static const char *const residual_kinds[] = {
    [TOW_RESIDUAL_ARGUMENT] = "argument",
    [TOW_RESIDUAL_CONSTANT] = "constant",
    [TOW_RESIDUAL_NAMED] = "named",
    [TOW_RESIDUAL_OUTPUT] = "output",
};

static const char *const verdicts[] = {
    [TOW_MUST_RECOMPUTE] = "must recompute",
    [TOW_PREFER_RECOMPUTE] = "prefer recompute",
    [TOW_PREFER_SAVE] = "prefer save",
    [TOW_MUST_SAVE] = "must save",
};

static json_t *text_or_null(const char *text) { return text != NULL ? tool_json_text(text) : json_null(); }

static json_t *number_or_null(bool known, int64_t number)
{
    return known ? json_integer((json_int_t)number) : json_null();
}

static json_t *json_residual(const tow_residual *r)
{
    return json_pack("{s:o, s:s, s:o, s:o, s:o, s:o, s:I}", "type", tool_json_type(r->type), "kind",
                     residual_kinds[r->kind], "what", tool_json_text(r->what), "of", text_or_null(r->of), "here",
                     text_or_null(r->here), "scope", text_or_null(r->scope), "bytes", (json_int_t)r->bytes);
}

static json_t *json_readers(const tow_residual *r)
{
    json_t *list = json_array();
    bool failed = !list;
    for (size_t i = 0; i < r->n_readers; i++) {
        const tow_residual_reader *reader = &r->readers[i];
        failed |= json_array_append_new(
                      list, json_pack("{s:o, s:o, s:o, s:o, s:o, s:b}", "what", tool_json_text(reader->what), "rule",
                                      text_or_null(reader->rule), "here", text_or_null(reader->here), "scope",
                                      text_or_null(reader->scope), "line",
                                      number_or_null(reader->line > 0, reader->line), "again", reader->again)) != 0;
    }
    if (!failed) return list;
    json_decref(list);
    return NULL;
}

static json_t *json_place(const tow_residual_plan *p)
{
    if (!p->planned) return json_null();
    json_t *place =
        json_pack("{s:b, s:s?, s:o, s:o, s:o, s:o, s:o}", "stored", p->stored, "held", p->held, "storage",
                  number_or_null(p->stored, p->storage), "offset", number_or_null(p->stored, (int64_t)p->offset),
                  "bytes", number_or_null(p->stored, (int64_t)p->bytes), "first", number_or_null(p->stored, p->first),
                  "last", number_or_null(p->stored, p->last));
    if (place && p->tried)
        json_object_set_new(place, "otherwise",
                            json_pack("{s:I, s:f, s:o}", "bytes_more", (json_int_t)p->bytes_more, "seconds_more",
                                      p->seconds_more, "instead", text_or_null(p->instead)));
    return place;
}

/* With the fields of --why. */
static json_t *json_reasons(const tow_residual *r)
{
    json_t *item = json_residual(r);
    json_t *more = json_pack("{s:o, s:I, s:o, s:o, s:s?, s:o, s:f, s:o}", "line", number_or_null(r->line > 0, r->line),
                             "iterations", (json_int_t)r->iterations, "rule", text_or_null(r->rule), "policy",
                             text_or_null(r->policy), "answer",
                             r->policy || r->verdict == TOW_MUST_SAVE ? verdicts[r->verdict] : NULL, "readers",
                             json_readers(r), "seconds", r->seconds, "plan", json_place(&r->plan));
    if (item && more && json_object_update(item, more) == 0) {
        json_decref(more);
        return item;
    }
    json_decref(item);
    json_decref(more);
    return NULL;
}

static json_t *json_list(const tow_residual *items, size_t n, bool why)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++) {
        if (json_array_append_new(list, why ? json_reasons(&items[i]) : json_residual(&items[i])) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

static json_t *json_notes(const tow_residuals *r)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < r->n_notes; i++) {
        if (json_array_append_new(list, tool_json_text(r->notes[i])) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

static json_t *json_residuals(const tow_residuals *r, bool why)
{
    json_t *result =
        json_pack("{s:o, s:I, s:I, s:o}", "residuals", json_list(r->items, r->count, why), "bytes",
                  (json_int_t)r->bytes, "argument_bytes", (json_int_t)r->argument_bytes, "notes", json_notes(r));
    if (result && why) json_object_set_new(result, "made_again", json_list(r->again, r->again_count, true));
    return result;
}

static tow_status show(tool *t, const tow_residuals *residuals)
{
    if (t->options.json) return tool_show_json(t, json_residuals(residuals, t->options.why));
    char *text = tool_text_of(t->options.why ? tool_reasons_text : tool_residuals_text, residuals);
    if (!text) return tool_fail(t, TOW_OUT_OF_MEMORY, "out of memory");
    fputs(text, stdout);
    free(text);
    return TOW_OK;
}

/* Is the first result a loss, of which there is a gradient and its plan? */
static bool has_loss(const tow_graph *graph)
{
    if (tow_graph_output_count(graph) == 0) return false;
    const tow_type type = tow_graph_output_type(graph, 0);
    return type.rank == 0 && tow_dtype_is_float(type.dtype);
}

/* With the plan of the gradient, as --memory-limit has it. */
static tow_status explain(tool *t, tow_residuals *residuals)
{
    tow_compile_options options = TOW_COMPILE_OPTIONS(.plan_only = true);
    tow_graph *gradient = NULL;
    tow_program *program = NULL;
    tow_status status =
        tow_value_and_grad(t->graph, t->options.n_wrt, t->options.wrt, tow_graph_output_count(t->graph) > 1, &gradient);
    if (status == TOW_OK) status = tool_limit_of(t, gradient, &options, t->options.memory_limit, &options.memory_limit);
    if (status == TOW_OK) status = tow_compile(t->context, gradient, &options, &program);
    if (status == TOW_OK) status = tow_program_explain(program, residuals);
    tow_program_free(program);
    tow_graph_release(gradient);
    return status;
}

tow_status tool_residuals(tool *t)
{
    tow_residuals residuals = {0};
    tow_status status;
    const bool limited = t->options.memory_limit.bytes > 0 || t->options.memory_limit.percent > 0;
    if (limited && !has_loss(t->graph))
        return tool_fail(t, TOW_INVALID_ARGUMENT,
                         "--memory-limit: expected a float scalar as first result, whose gradient is planned");
    if (t->options.why && has_loss(t->graph))
        status = explain(t, &residuals);
    else
        status = tow_saved_residuals(t->graph, t->options.n_wrt, t->options.wrt, &residuals);
    if (status == TOW_OK) status = show(t, &residuals);
    tow_residuals_free(&residuals);
    return status;
}
