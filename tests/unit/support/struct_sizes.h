/* Structs of other versions of the headers. Whatever a call with a struct of today's size does, it does likewise, with
 * the same status and message,
 *   - with a struct of an earlier program, which ends before the last option, in front of memory that cannot be read;
 *   - with a struct of a later program, which is longer, as long as what is added is zero.
 * A struct of a later program with a further option set, one that says no size, and one that says nonsense are refused
 * with its name and that of its macro. One test program includes it once, after cmocka. */
#ifndef TOW_TESTS_STRUCT_SIZES_H
#define TOW_TESTS_STRUCT_SIZES_H

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tow/tow.h"

enum {
    LONGER = 24,   /* bytes that a later program's struct has more */
    LARGEST = 4096 /* no struct is larger */
};

/* ---- structs that end where memory ends -------------------------------------------------------------------------- */

static unsigned char *pages; /* two: the second one cannot be read */
static size_t page;

/* A copy of `size` bytes of a struct of `known`, with zeros behind those, right in front of the second page. */
static inline void *at_the_end(const void *from, size_t known, size_t size)
{
    unsigned char *place = pages + page - size;
    memset(pages, 0xa5, page);
    memset(place, 0, size);
    memcpy(place, from, size < known ? size : known);
    return place;
}

/* A struct, and a call that reads it. */
typedef struct sized {
    const char *name, *macro;
    size_t size, last;  /* of the struct; the offset of the last option */
    size_t place;       /* of the member that has the size */
    const void *values; /* that the call takes */
} sized;

/* The outcome of a call. */
typedef struct outcome {
    tow_status status;
    char message[600];
} outcome;

typedef outcome (*call_function)(const void *given, void *user);

static inline void *with_size(const sized *s, size_t bytes, size_t says)
{
    unsigned char *made = at_the_end(s->values, s->size, bytes);
    memcpy(made + s->place, &says, sizeof says);
    return made;
}

/* The call refuses the struct, with its name if it has a message, and with that of the macro. */
static inline void check_refused(const sized *s, const char *what, const void *given, call_function call, void *user)
{
    const outcome o = call(given, user);
    if (o.status != TOW_INVALID_ARGUMENT)
        fail_msg("%s, %s: found \"%s\": %s", s->name, what, tow_status_text(o.status), o.message);
    if (o.message[0] && !strstr(o.message, s->macro)) fail_msg("%s, %s: no macro in: %s", s->name, what, o.message);
}

static inline void check_same(const sized *s, const char *what, const outcome *expected, const void *given,
                              call_function call, void *user)
{
    const outcome o = call(given, user);
    if (o.status != expected->status || strcmp(o.message, expected->message) != 0)
        fail_msg("%s, %s: found %s: %s; with today's struct %s: %s", s->name, what, tow_status_text(o.status),
                 o.message, tow_status_text(expected->status), expected->message);
}

/* All that other versions can give to the call. */
static inline void check_sizes(const sized *s, call_function call, void *user)
{
    static const size_t nonsense[] = {1, 7, 12, LARGEST * LARGEST, SIZE_MAX, SIZE_MAX - 7};
    const outcome today = call(with_size(s, s->size, s->size), user);
    if (strstr(today.message, "(...)")) fail_msg("%s: today's struct is refused: %s", s->name, today.message);
    const size_t earlier = s->last / sizeof(size_t) * sizeof(size_t);
    if (earlier > s->place) check_same(s, "an earlier program", &today, with_size(s, earlier, earlier), call, user);
    check_same(s, "a later program", &today, with_size(s, s->size + LONGER, s->size + LONGER), call, user);
    for (size_t byte = s->size; byte < s->size + LONGER; byte += LONGER - 1) {
        unsigned char *later = with_size(s, s->size + LONGER, s->size + LONGER);
        later[byte] = 1;
        check_refused(s, "a later option", later, call, user);
    }
    check_refused(s, "no size", with_size(s, s->size, 0), call, user);
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++)
        check_refused(s, "nonsense", with_size(s, s->size, nonsense[i]), call, user);
}

/* ---- what calls need --------------------------------------------------------------------------------------------- */

static struct world {
    tow_context *ctx;
    tow_dense dense;
    tow_type type; /* of x, f32[4, 3] */
    tow_array *x;
    tow_params *params;
    tow_graph *graph; /* (params, x, labels) -> loss */
    tow_tensors *tensors;
    tow_tokenizer *tokenizer;
    tow_weight_mapping *mapping;
    tow_train_state *training;
    tow_optimizer_state *optimizer;
    tow_scale rate;
    tow_model_function *function;
    tow_model_summary *summary;
    tow_generator *generator;
    tow_batcher *batcher;
    const tow_primitive *primitive;
} w;

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TOW_OK) fail_msg("%s: %s", #call, tow_context_error(w.ctx));                                     \
    } while (0)

static const char tokenizer_text[] =
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a "
    "b\"]}}";

/* An operation of one's own, to be checked in no case. */
static inline tow_status type_of_copy(const tow_primitive_rule *rule, const tow_type *inputs, tow_type *outputs)
{
    (void)rule;
    outputs[0] = inputs[0];
    return TOW_OK;
}
static inline void run_copy(const tow_kernel_call *call) { (void)call; }

static inline void mean_squared_error(tow_trace *trace, const tow_value *out, const tow_value *extra, tow_value *loss,
                                      tow_value *aux, void *user)
{
    (void)trace, (void)aux, (void)user;
    *loss = tow_mean(tow_square(tow_sub(out[0], extra[0])), 0, NULL);
}

static inline void make_generator(void)
{
    static tow_embed embed;
    static tow_multi_head_attention attention;
    static tow_sequential model;
    static const tow_module *layers[2] = {&embed.module, &attention.module};
    tow_params *params = NULL, *cache = NULL;
    const tow_type tokens = tow_make_type(TOW_I32, 2, (int64_t[]){1, 1});
    embed = TOW_EMBED(.num_embeddings = 4, .features = 4);
    attention = TOW_MULTI_HEAD_ATTENTION(.heads = 1, .decode = true, .cache_length = 8);
    model = TOW_SEQUENTIAL_OF(layers);
    OK(tow_model_init_with(w.ctx, TOW_MODULE(&model), 0, 1, &tokens, NULL, &params, &cache));
    OK(tow_generator_create(w.ctx, TOW_MODULE(&model), params, NULL, &w.generator));
    OK(tow_batcher_create(w.ctx, TOW_MODULE(&model), params, NULL, &w.batcher));
    tow_params_free(params);
    tow_params_free(cache);
}

static inline int setup(void **state)
{
    (void)state;
    page = (size_t)sysconf(_SC_PAGESIZE);
    pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + page, page, PROT_NONE) != 0) return -1;
    OK(tow_context_create(NULL, &w.ctx));
    w.dense = TOW_DENSE(.features = 2);
    w.type = tow_make_type(TOW_F32, 2, (int64_t[]){4, 3});
    const tow_type labels = tow_make_type(TOW_F32, 2, (int64_t[]){4, 2});
    const tow_module *dense = TOW_MODULE(&w.dense);
    OK(tow_array_create(w.ctx, w.type, &w.x));
    OK(tow_model_init(w.ctx, dense, 1, 1, &w.type, &w.params));
    OK(tow_model_loss_graph(dense, w.params, 1, &w.type, 1, &labels, mean_squared_error, NULL, 0, NULL, &w.graph));
    OK(tow_train_create(w.ctx, dense,
                        &TOW_TRAIN_OPTIONS(.n_inputs = 1, .input_types = &w.type, .n_extra = 1, .extra_types = &labels,
                                           .loss = mean_squared_error),
                        &w.training));
    OK(tow_tensors_create(w.ctx, &w.tensors));
    OK(tow_tokenizer_parse(w.ctx, "t", tokenizer_text, strlen(tokenizer_text), &w.tokenizer));
    OK(tow_weight_mapping_read(w.ctx, "gpt2", &w.mapping));
    w.rate = TOW_SCALE(.factor = -1);
    OK(tow_optimizer_create(w.ctx, TOW_GRADIENT_TRANSFORM(&w.rate), w.params,
                            &TOW_OPTIMIZER_OPTIONS(.line_search = true), &w.optimizer));
    OK(tow_model_function_create(dense, w.params, &TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1), &w.function));
    OK(tow_model_summary_create(dense, w.params, 1, &w.type, NULL, &w.summary));
    OK(tow_primitive_define(
        w.ctx,
        &(tow_primitive_definition){
            .name = "copy", .n_inputs = 1, .n_outputs = 1, .type = type_of_copy, .kernel = {.run = run_copy}},
        &w.primitive));
    make_generator();
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    tow_model_summary_free(w.summary);
    tow_model_function_free(w.function);
    tow_optimizer_free(w.optimizer);
    tow_weight_mapping_free(w.mapping);
    tow_tokenizer_free(w.tokenizer);
    tow_tensors_free(w.tensors);
    tow_graph_release(w.graph);
    tow_params_free(w.params);
    tow_train_free(w.training);
    tow_generator_free(w.generator);
    tow_batcher_free(w.batcher);
    tow_array_release(w.x);
    tow_context_free(w.ctx);
    munmap(pages, 2 * page);
    return 0;
}

/* Calls that give a status. The context has the message of those that fail. */
static inline outcome come_to(tow_status status)
{
    outcome o = {.status = status};
    if (status != TOW_OK) snprintf(o.message, sizeof o.message, "%s", tow_context_error(w.ctx));
    tow_context_clear_error(w.ctx);
    return o;
}

static const unsigned char zeros[LARGEST];

/* The properties of a struct by the headers. */
typedef struct described {
    sized s;
    const tow_module_class *layer;
    const tow_gradient_transform_class *transform;
} described;
#define OPTIONS(type, macro, last) {{#type, #macro, sizeof(type), offsetof(type, last), 0, zeros}, NULL, NULL},
#define LAYER(type, macro, class, last)                                                                                \
    {{#type, #macro, sizeof(type), offsetof(type, last), offsetof(tow_module, size), zeros}, &class, NULL},
#define TRANSFORM(type, macro, class, last)                                                                            \
    {{#type, #macro, sizeof(type), offsetof(type, last), offsetof(tow_gradient_transform, size), zeros}, NULL, &class},
#define FUNCTION(function, type)
#define WITHIN(outer, type)
static const described structs[] = {
#include "structs.inc"
};
#undef OPTIONS
#undef LAYER
#undef TRANSFORM
#undef FUNCTION

#endif
