/* The subcommands convert-weights and tokenize. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/tool/tool.h"

/* ---- convert-weights --------------------------------------------------------------------------------------------- */

/* Prints the report, also where something is missing. */
static tow_status show_report(tool *t, const tow_weight_mapping_report *report)
{
    static const char *const names[TOW_FATE_COUNT] = {"tensors",  "parameters", "missing", "unused",
                                                      "optional", "ignored",    "tied"};
    if (!t->options.json) {
        char *text = tool_text_of((tool_text)tow_weight_mapping_report_text, report);
        if (!text) return tool_fail(t, TOW_OUT_OF_MEMORY, "out of memory");
        fputs(text, stdout);
        free(text);
        return TOW_OK;
    }
    json_t *root = json_object();
    for (int fate = 0; fate < TOW_FATE_COUNT; fate++) {
        json_t *list = json_array();
        const char *name;
        for (size_t i = 0; (name = tow_weight_mapping_report_name(report, (tow_weight_mapping_fate)fate, i)); i++)
            json_array_append_new(list, tool_json_text(name));
        json_object_set_new(root, names[fate], list);
    }
    return tool_show_json(t, root);
}

/* "NAME=SIZE", cut up where it stands. */
static tow_status read_axes(tool *t, tow_weight_mapping_axis *axes)
{
    const tool_options *o = &t->options;
    for (size_t i = 0; i < o->n_axis; i++) {
        char *equals = strchr(o->axis[i], '='), *end;
        errno = 0;
        const long long size = equals ? strtoll(equals + 1, &end, 10) : 0;
        if (!equals || equals == o->axis[i] || errno != 0 || end == equals + 1 || *end != '\0' || size <= 0)
            return tool_fail(t, TOW_INVALID_ARGUMENT, "--axis: expected NAME=SIZE, found '%.100s'", o->axis[i]);
        *equals = '\0';
        axes[i] = (tow_weight_mapping_axis){.name = o->axis[i], .size = size};
    }
    return TOW_OK;
}

static tow_status read_dtype(tool *t, tow_weight_mapping_options *options)
{
    if (!t->options.dtype) return TOW_OK;
    for (int d = 1; d < TOW_DTYPE_END; d++)
        if (tow_dtype_is_float((tow_dtype)d) && strcmp(tow_dtype_name((tow_dtype)d), t->options.dtype) == 0) {
            options->convert = true;
            options->dtype = (tow_dtype)d;
            return TOW_OK;
        }
    return tool_fail(t, TOW_INVALID_ARGUMENT, "--dtype: expected f32, f64, bf16 or f16, found '%.40s'",
                     t->options.dtype);
}

tow_status tool_convert_weights(tool *t)
{
    tool_options *o = &t->options;
    tow_weight_mapping_axis axes[TOOL_MAX_ARRAYS];
    tow_weight_mapping_options options =
        TOW_WEIGHT_MAPPING_OPTIONS(.partial = o->partial, .max_file_bytes = o->max_file_bytes, .n_axes = o->n_axis,
                                   .axes = axes);
    tow_weight_mapping *mapping = NULL;
    tow_weight_mapping_report *report = NULL;
    tow_status status = read_axes(t, axes);
    if (status == TOW_OK) status = read_dtype(t, &options);
    if (status == TOW_OK) status = tow_weight_mapping_read(t->context, o->mapping, &mapping);
    if (status == TOW_OK)
        status =
            tow_weight_mapping_convert_file(t->context, mapping, o->file, o->output[0], o->reverse, &options, &report);
    if (report) {
        const tow_status shown = show_report(t, report);
        if (status == TOW_OK) status = shown;
        fflush(stdout); /* before the error */
    }
    tow_weight_mapping_report_free(report);
    tow_weight_mapping_free(mapping);
    return status;
}

/* ---- tokenize ---------------------------------------------------------------------------------------------------- */

static tow_status show_tokens(tool *t, const tow_tokenizer *tokenizer, const tow_encoding *encoding)
{
    const tow_token *tokens = tow_encoding_tokens(encoding);
    const size_t count = tow_encoding_count(encoding);
    if (!t->options.json) {
        printf("%8s  %8s  %8s  token\n", "id", "begin", "end");
        for (size_t i = 0; i < count; i++)
            printf("%8d  %8zu  %8zu  %s\n", (int)tokens[i].id, tokens[i].begin, tokens[i].end,
                   tow_tokenizer_token(tokenizer, tokens[i].id));
        return TOW_OK;
    }
    json_t *ids = json_array();
    for (size_t i = 0; i < count; i++) json_array_append_new(ids, json_integer(tokens[i].id));
    return tool_show_json(t, ids);
}

tow_status tool_tokenize(tool *t)
{
    tow_tokenizer *tokenizer = NULL;
    tow_encoding *encoding = NULL;
    char *text = NULL;
    size_t length = 0;
    tow_status status = tool_read_text(t, true, &text, &length);
    if (status == TOW_OK) status = tow_tokenizer_read(t->context, t->options.tokenizer, &tokenizer);
    if (status == TOW_OK) status = tow_encoding_create(t->context, &encoding);
    if (status == TOW_OK) {
        status = tow_tokenizer_encode(tokenizer, text, length, NULL, encoding);
        if (status != TOW_OK) tool_fail(t, status, "%s", tow_context_error(t->context));
    }
    if (status == TOW_OK) status = show_tokens(t, tokenizer, encoding);
    tow_encoding_free(encoding);
    tow_tokenizer_free(tokenizer);
    free(text);
    return status;
}
