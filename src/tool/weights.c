/* The subcommands convert-weights and tokenize. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/tool/gguf.h"

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

static tow_status read_type(tool *t, tow_gguf_type *type)
{
    static const char *const names[] = {
        [TOW_GGUF_F32] = "f32",   [TOW_GGUF_F16] = "f16",   [TOW_GGUF_BF16] = "bf16",
        [TOW_GGUF_Q8_0] = "q8_0", [TOW_GGUF_Q4_0] = "q4_0",
    };
    *type = TOW_GGUF_AS_IT_IS;
    if (!t->options.type) return TOW_OK;
    for (size_t i = TOW_GGUF_F32; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], t->options.type) == 0) {
            *type = (tow_gguf_type)i;
            return TOW_OK;
        }
    return tool_fail(t, TOW_INVALID_ARGUMENT, "--type: expected f32, f16, bf16, q8_0 or q4_0, found '%.40s'",
                     t->options.type);
}

/* ---- convert-weights --architecture ------------------------------------------------------------------------------ */

static const tool_architecture architectures[] = {
    {"gemma", "gemma", "gguf-gemma"}, {"gemma2", "gemma2", "gguf-gemma2"}, {"gpt2", "gpt2", "gguf-gpt2"},
    {"llama", "llama", "gguf-llama"}, {"qwen2", "llama", "gguf-qwen2"},    {"qwen3", "qwen3", "gguf-qwen3"},
};

tow_status tool_find_architecture(tool *t, const char *name, const tool_architecture **architecture)
{
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        if (strcmp(architectures[i].name, name) == 0) {
            *architecture = &architectures[i];
            return TOW_OK;
        }
    return tool_fail(t, TOW_NOT_FOUND,
                     "--architecture: expected auto, gemma, gemma2, gpt2, llama, qwen2 or qwen3, found '%.60s'", name);
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* The directory of the weights, without slashes at its end. */
static tow_status find_directory(tool *t, char *directory, size_t size)
{
    const char *file = t->options.file, *slash = strrchr(file, '/');
    int length = !ends_with(file, ".safetensors") && !ends_with(file, ".json") ? (int)strlen(file)
                 : slash                                                       ? (int)(slash - file)
                                                                               : 0;
    while (length > 1 && file[length - 1] == '/') length--;
    if (length >= (int)size - 2) return tool_fail(t, TOW_INVALID_ARGUMENT, "the path of the weights is too long");
    snprintf(directory, size, "%.*s", length > 0 ? length : 1, length > 0 ? file : slash ? "/" : ".");
    return TOW_OK;
}

/* Both mappings, and the sizes that shapes do not tell, of which there are two. */
static tow_status translate(tool *t, const tool_architecture *a, const tow_gguf_model *model, bool from_gguf,
                            const char *output, tow_weight_mapping_options *options, tow_weight_mapping_report **report)
{
    const tow_weight_mapping_axis axes[] = {{"k", model->head_width}, {"p", model->head_width / 2}};
    tow_weight_mapping *from = NULL, *to = NULL;
    if (model->head_width < 2)
        return tool_fail(t, TOW_BAD_FORMAT, "%s: no number of heads and features of attention is said",
                         t->options.file);
    options->n_axes = 2;
    options->axes = axes;
    tow_status status = tow_weight_mapping_read(t->context, from_gguf ? a->gguf : a->theirs, &from);
    if (status == TOW_OK) status = tow_weight_mapping_read(t->context, from_gguf ? a->theirs : a->gguf, &to);
    if (status == TOW_OK)
        status = tow_weight_mapping_translate_file(t->context, from, t->options.file, to, output, options, report);
    tow_weight_mapping_free(from);
    tow_weight_mapping_free(to);
    return status;
}

/* Tensors of GGUF files that are no weights, but options. */
static const char *const ignored[] = {"rope_freqs.weight", NULL};

/* The file of weights: what -o says, or model.safetensors in the directory that it names, which is made. */
static tow_status find_output(tool *t, const char *directory, char *path, size_t size)
{
    const int length = directory ? snprintf(path, size, "%s/model.safetensors", directory)
                                 : snprintf(path, size, "%s", t->options.output[0]);
    if (length < 0 || length >= (int)size) return tool_fail(t, TOW_INVALID_ARGUMENT, "-o: the path is too long");
    if (!directory || mkdir(directory, 0777) == 0 || errno == EEXIST) return TOW_OK;
    return tool_fail(t, TOW_IO_ERROR, "%s: cannot make this directory: %s", directory, strerror(errno));
}

/* Weights alone, or a directory with all that transformers reads. */
static tow_status write_transformers(tool *t, tool_transformers *f, tow_weight_mapping_options *options,
                                     tow_weight_mapping_report **report)
{
    const char *directory = ends_with(t->options.output[0], ".safetensors") ? NULL : t->options.output[0];
    const bool scaled = strcmp(f->model->rope_scaling, "llama3") == 0;
    char path[4096];
    tow_status status = TOW_OK;
    if (scaled && !directory)
        return tool_fail(t, TOW_INVALID_ARGUMENT,
                         "%s: rope_freqs.weight is no weight in transformers but a part of config.json; give -o a "
                         "directory, into which both are written",
                         t->options.file);
    options->ignored = scaled ? ignored : NULL;
    if (directory && options->max_file_bytes == 0) options->max_file_bytes = UINT64_MAX; /* removes files of old sets */
    if (directory) status = tool_transformers_begin(t, f);
    if (status == TOW_OK) status = find_output(t, directory, path, sizeof path);
    if (status == TOW_OK && directory) status = tool_transformers_set_aside(t, directory);
    if (status == TOW_OK) {
        status = translate(t, f->architecture, f->model, true, path, options, report);
        if (directory) tool_transformers_put_back(directory, status != TOW_OK);
    }
    if (status == TOW_OK && directory) status = tool_transformers_write(t, f, directory);
    tool_transformers_end(f);
    return status;
}

static tow_status find_architecture(tool *t, const char *name, tool_transformers *f)
{
    const char *own = f->model->architecture;
    const tool_architecture *known;
    const tow_status status = tool_find_architecture(t, strcmp(name, "auto") == 0 ? own : name, &f->architecture);
    if (status != TOW_OK || strcmp(f->architecture->name, own) == 0) return status;
    if (tool_find_architecture(t, own, &known) == TOW_OK)
        return tool_fail(t, TOW_INVALID_ARGUMENT, "--architecture: expected %s or auto, as %s says, found %s", own,
                         t->options.file, name);
    t->message[0] = '\0'; /* another name of a kind that is known */
    return TOW_OK;
}

static tow_status from_gguf(tool *t, tow_weight_mapping_options *options, tow_weight_mapping_report **report)
{
    const char *name = t->options.architecture;
    tow_tensors *tensors = NULL;
    tow_gguf_model model = {.architecture = NULL};
    tool_transformers f = {.model = &model};
    if (ends_with(t->options.output[0], ".gguf"))
        return tool_fail(t, TOW_INVALID_ARGUMENT,
                         "-o: expected a directory, or a name that ends with .safetensors, as %s is GGUF",
                         t->options.file);
    if (t->options.type)
        return tool_fail(t, TOW_INVALID_ARGUMENT,
                         "--type: expected an -o that ends with .gguf; --dtype is the type of floats in safetensors");
    tow_status status = tow_gguf_mmap(t->context, t->options.file, &tensors);
    if (status == TOW_OK) status = tow_gguf_model_read(tensors, &model);
    f.tensors = tensors;
    if (status == TOW_OK) status = find_architecture(t, name, &f);
    if (status == TOW_OK) status = write_transformers(t, &f, options, report);
    tow_tensors_free(tensors);
    return status;
}

static tow_status to_gguf(tool *t, tow_weight_mapping_options *options, tow_weight_mapping_report **report)
{
    char directory[2048];
    tool_gguf g = {.tool = t, .directory = directory, .type = options->gguf_type};
    if (!ends_with(t->options.output[0], ".gguf"))
        return tool_fail(t, TOW_INVALID_ARGUMENT, "-o: expected a name that ends with .gguf, as %s is not GGUF",
                         t->options.file);
    if (t->options.dtype)
        return tool_fail(
            t, TOW_INVALID_ARGUMENT,
            "--dtype: expected an -o that does not end with .gguf; --type is the type of matrices in GGUF");
    if (g.type == TOW_GGUF_AS_IT_IS) g.type = options->gguf_type = TOW_GGUF_F32;
    tow_status status = find_directory(t, directory, sizeof directory);
    if (status == TOW_OK) status = tow_tensors_create(t->context, &g.metadata);
    if (status == TOW_OK) status = tool_gguf_begin(&g, t->options.architecture);
    options->metadata = g.metadata;
    if (status == TOW_OK) status = translate(t, g.architecture, &g.model, false, t->options.output[0], options, report);
    tow_tensors_free(g.metadata);
    return status;
}

static tow_status convert_architecture(tool *t, tow_weight_mapping_options *options, tow_weight_mapping_report **report)
{
    return ends_with(t->options.file, ".gguf") ? from_gguf(t, options, report) : to_gguf(t, options, report);
}

/* ---- convert-weights --mapping ----------------------------------------------------------------------------------- */

static tow_status convert_by_mapping(tool *t, tow_weight_mapping_options *options, tow_weight_mapping_report **report)
{
    const tool_options *o = &t->options;
    tow_weight_mapping *mapping = NULL;
    if (o->type && !ends_with(o->output[0], ".gguf"))
        return tool_fail(t, TOW_INVALID_ARGUMENT,
                         "--type: expected an -o that ends with .gguf; --dtype is the type of floats in safetensors");
    tow_status status = tow_weight_mapping_read(t->context, o->mapping, &mapping);
    if (status == TOW_OK)
        status =
            tow_weight_mapping_convert_file(t->context, mapping, o->file, o->output[0], o->reverse, options, report);
    tow_weight_mapping_free(mapping);
    return status;
}

tow_status tool_convert_weights(tool *t)
{
    tool_options *o = &t->options;
    tow_weight_mapping_axis axes[TOOL_MAX_ARRAYS];
    tow_weight_mapping_options options =
        TOW_WEIGHT_MAPPING_OPTIONS(.partial = o->partial, .max_file_bytes = o->max_file_bytes, .n_axes = o->n_axis,
                                   .axes = axes);
    tow_weight_mapping_report *report = NULL;
    tow_status status = read_axes(t, axes);
    if (status == TOW_OK) status = read_dtype(t, &options);
    if (status == TOW_OK) status = read_type(t, &options.gguf_type);
    if (status == TOW_OK) status = (o->architecture ? convert_architecture : convert_by_mapping)(t, &options, &report);
    if (report) {
        const tow_status shown = show_report(t, report);
        if (status == TOW_OK) status = shown;
        fflush(stdout); /* before the error */
    }
    tow_weight_mapping_report_free(report);
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
