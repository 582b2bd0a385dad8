/* Writes the graph of the loss of a GPT of any size, as text for the command tow. A graph has shapes only: parameters
 * are never made, so this needs no memory for them.
 *
 *     bench_gpt2_graph --layers 40 --width 5120 --heads 40 --batch 1 > gpt13b.tow
 *
 * Names and shapes of the parameters come from a small model of the same form, whose sizes are all different: each of
 * its sizes stands for one of the large model. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "examples/gpt/model.h"

enum {
    SIZES = 8
};

__attribute__((noreturn)) static void fail(const char *why)
{
    fprintf(stderr, "gpt2_graph: %s\n", why);
    exit(1);
}

static void check(const tow_context *context, tow_status status)
{
    if (status) fail(tow_context_error(context));
}

/* The sizes that axes of parameters have: vocabulary, context, layers, heads, features of a head, width, three times
 * the width (queries, keys and values), hidden features. */
static void list_sizes(const gpt_shape *shape, int64_t sizes[SIZES])
{
    const int64_t all[SIZES] = {shape->vocabulary,           shape->context, shape->layers,    shape->heads,
                                shape->width / shape->heads, shape->width,   3 * shape->width, 4 * shape->width};
    memcpy(sizes, all, sizeof all);
}

static tow_type scale_type(tow_type type, const int64_t from[SIZES], const int64_t to[SIZES])
{
    for (int32_t a = 0; a < type.rank; a++) {
        int k = 0;
        while (k < SIZES && from[k] != type.dims[a]) k++;
        if (k == SIZES && type.dims[a] != 1 && type.dims[a] != 3) fail("an axis of the small model stands for nothing");
        if (k < SIZES) type.dims[a] = to[k];
    }
    return type;
}

/* Memory that is addressed and never touched. */
static void *untouched(size_t bytes)
{
    void *data =
        mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) fail("no addresses for a parameter");
    return data;
}

/* The parameters of the model, which nobody may read. */
static tow_params *params_of(tow_context *context, const gpt_shape *shape)
{
    const gpt_shape small = {.vocabulary = 1009, .layers = 7, .width = 22, .heads = 2, .context = 13};
    const tow_type type = tow_make_type(TOW_I32, 2, (int64_t[]){1, small.context});
    int64_t from[SIZES], to[SIZES];
    gpt model;
    tow_params *params, *scaled;
    gpt_make(&model, &small);
    list_sizes(&small, from);
    list_sizes(shape, to);
    check(context, tow_model_init(context, TOW_MODULE(&model), 0, 1, &type, &params));
    const size_t n = tow_params_count(params);
    const char **paths = calloc(n, sizeof *paths);
    tow_array **arrays = calloc(n, sizeof *arrays);
    if (!paths || !arrays) fail("out of memory");
    for (size_t i = 0; i < n; i++) {
        const tow_type large = scale_type(tow_array_type(tow_params_array(params, i)), from, to);
        paths[i] = tow_params_path(params, i);
        check(context, tow_array_borrow(context, large, untouched(tow_type_bytes(large)), &arrays[i]));
    }
    check(context, tow_params_from_arrays(context, n, paths, arrays, &scaled));
    for (size_t i = 0; i < n; i++) tow_array_release(arrays[i]);
    tow_params_free(params);
    free(paths);
    free(arrays);
    return scaled;
}

static int64_t read_number(const char *text)
{
    char *end;
    const long long number = strtoll(text, &end, 10);
    if (*end || end == text || number < 1 || number > 1 << 24) fail("expected positive numbers");
    return number;
}

int main(int argc, char **argv)
{
    static const struct option names[] = {
        {"layers", required_argument, NULL, 0},     {"width", required_argument, NULL, 1},
        {"heads", required_argument, NULL, 2},      {"context", required_argument, NULL, 3},
        {"vocabulary", required_argument, NULL, 4}, {"batch", required_argument, NULL, 5},
        {"policy", required_argument, NULL, 6},     {0}};
    int64_t n[6] = {12, 768, 12, 1024, 50257, 8};
    const char *policy_text = NULL;
    for (int k; (k = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (k == '?') return 2;
        if (k == 6)
            policy_text = optarg;
        else
            n[k] = read_number(optarg);
    }
    tow_context *context = NULL;
    tow_policy *policy = NULL;
    tow_graph *graph = NULL;
    gpt model;
    if (optind < argc || n[1] % n[2] != 0) fail("expected options alone, and a --width that --heads divides");
    if (tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1), &context)) fail("no context");
    if (policy_text) check(context, tow_policy_parse(context, policy_text, &policy));
    const gpt_shape shape = {
        .vocabulary = n[4], .layers = n[0], .width = n[1], .heads = n[2], .context = n[3], .policy = policy};
    const tow_type type = tow_make_type(TOW_I32, 2, (int64_t[]){n[5], n[3]});
    tow_params *params = params_of(context, &shape);
    gpt_make(&model, &shape);
    check(context, tow_model_loss_graph(TOW_MODULE(&model), params, 2, (tow_type[]){type, type}, 0, NULL, gpt_loss,
                                        NULL, 0, NULL, &graph));
    check(context, tow_graph_print(graph, stdout));
    tow_graph_release(graph);
    tow_params_free(params);
    tow_policy_free(policy);
    tow_context_free(context);
    return 0;
}
