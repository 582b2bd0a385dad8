/* Structs of other versions of the headers: options (support/struct_sizes.h says what is promised). Layers and gradient
 * transforms are in test_struct_sizes_layers.c. The lists of all structs that say their size, and of all functions that
 * take one, come from the headers (structs.awk), so none can be forgotten. Tests base/options.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/struct_sizes.h"
#include "tow/tow.h"

/* ---- functions that take options --------------------------------------------------------------------------------- */

static tow_value squared(tow_value x) { return tow_mul(x, x); }
static void square_of(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = squared(in[0]);
}
static void never(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)in, (void)user;
    out[0] = tow_convert(tow_scalar(trace, TOW_F32, 0), TOW_BOOL);
}
static void second(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = in[1];
}
static void rule_of_square(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = squared(in[0]);
    out[1] = tow_mul(in[0], in[1]);
}

/* Functions that record: NAME(trace, x f32[4, 3], image f32[1, 4, 4, 2], heads f32[1, 4, 2, 8], options) -> result. */
typedef struct operands {
    tow_value x, image, heads;
} operands;
#define RECORD(name, type, ...)                                                                                        \
    static tow_value record_##name(tow_trace *t, const operands *o, const void *given)                                 \
    {                                                                                                                  \
        const type *options = given;                                                                                   \
        tow_value y = {0};                                                                                             \
        (void)t, (void)o;                                                                                              \
        __VA_ARGS__;                                                                                                   \
        return y;                                                                                                      \
    }
RECORD(tow_scan_function, tow_scan_options,
       tow_scan_function(t, square_of, NULL, options, 0, NULL, 1, &o->x, 1, NULL, &y))
RECORD(tow_vmap_function, tow_vmap_options, tow_vmap_function(t, square_of, NULL, options, 1, &o->x, 1, &y))
RECORD(tow_while_function, tow_while_options, tow_while_function(t, never, square_of, NULL, options, 1, &o->x, &y))
RECORD(tow_fori_function, tow_fori_options, tow_fori_function(t, 0, 2, second, NULL, options, 1, &o->x, &y))
RECORD(tow_custom_jvp_function, tow_custom_options,
       tow_custom_jvp_function(t, square_of, rule_of_square, NULL, options, 1, &o->x, 1, &y))
RECORD(tow_custom_vjp_function, tow_custom_options,
       tow_custom_vjp_function(t, square_of, square_of, square_of, NULL, options, 1, &o->x, 0, 1, &y))
RECORD(tow_conv_general_dilated, tow_conv_options, y = tow_conv_general_dilated(o->image, o->image, options))
RECORD(tow_conv_general_dilated_with, tow_conv_options,
       y = tow_conv_general_dilated_with(o->image, o->image, options, TOW_F32))
RECORD(tow_reduce_window_sum, tow_window_options, y = tow_reduce_window_sum(o->x, options))
RECORD(tow_reduce_window_max, tow_window_options, y = tow_reduce_window_max(o->x, options))
RECORD(tow_reduce_window_min, tow_window_options, y = tow_reduce_window_min(o->x, options))
RECORD(tow_max_pool, tow_pool_options, y = tow_max_pool(o->image, options))
RECORD(tow_min_pool, tow_pool_options, y = tow_min_pool(o->image, options))
RECORD(tow_avg_pool, tow_pool_options, y = tow_avg_pool(o->image, options))
RECORD(tow_attention, tow_attention_options, y = tow_attention(o->heads, o->heads, o->heads, options))
RECORD(tow_apply_rope, tow_rope, y = tow_apply_rope(o->heads, (tow_value){0}, options))

typedef struct recording {
    tow_value (*record)(tow_trace *trace, const operands *operands, const void *given);
    const void *given;
} recording;

static void record(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const recording *r = user;
    const operands o = {in[0], in[1], in[2]};
    out[0] = r->record(trace, &o, r->given);
}

static outcome call_recording(const void *given, void *user)
{
    recording r = *(const recording *)user;
    const tow_type types[] = {w.type, tow_make_type(TOW_F32, 4, (int64_t[]){1, 4, 4, 2}),
                              tow_make_type(TOW_F32, 4, (int64_t[]){1, 4, 2, 8})};
    tow_graph *graph = NULL;
    r.given = given;
    const tow_status status = tow_trace_function(w.ctx, record, &r, 3, types, NULL, 1, &graph);
    tow_graph_release(graph);
    return come_to(status);
}

/* Layers of one's own, which call functions that take another layer. */
typedef struct reader {
    tow_module module;
    const void *given;
    bool attends;
} reader;
static void call_reader(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    const reader *r = (const reader *)module;
    (void)n_in, (void)n_out;
    if (r->attends)
        out[0] = tow_embed_attend(scope, "embed", r->given, in[0]);
    else
        out[0] = tow_embed_cross_entropy(scope, "embed", r->given, in[0], in[0]);
}
static const tow_module_class reader_class = {.name = "Reader", .call = call_reader};

static tow_status read_embed(const void *given, bool attends)
{
    const reader r = {.module = {.cls = &reader_class}, .given = given, .attends = attends};
    tow_params *params = NULL;
    const tow_status status = tow_model_init(w.ctx, TOW_MODULE(&r), 0, 1, &w.type, &params);
    tow_params_free(params);
    return status;
}

/* Functions that give a status; `place` is freed, if something lies there. */
#define CALL(name, type, ...)                                                                                          \
    static tow_status call_##name(const void *given)                                                                   \
    {                                                                                                                  \
        const type *options = given;                                                                                   \
        __VA_ARGS__;                                                                                                   \
    }
#define MAKES(name, type, object, release, ...)                                                                        \
    CALL(name, type, object *place = NULL; const tow_status status = __VA_ARGS__; release(place); return status)

MAKES(tow_context_create, tow_context_options, tow_context, tow_context_free, tow_context_create(options, &place))
CALL(tow_context_options_check, tow_context_options, char text[400];
     return tow_context_options_check(options, text, sizeof text) ? TOW_INVALID_ARGUMENT : TOW_OK)
CALL(tow_embed_attend, tow_embed, return read_embed(options, true))
CALL(tow_embed_cross_entropy, tow_embed, return read_embed(options, false))
CALL(tow_primitive_check, tow_check_options, return tow_primitive_check(w.ctx, w.primitive, 0, NULL, options, NULL))
MAKES(tow_source_raw, tow_raw_options, tow_source, tow_source_release,
      tow_source_raw(w.ctx, "/dev/null/none", options, &place))
MAKES(tow_source_csv, tow_csv_options, tow_source, tow_source_release,
      tow_source_csv(w.ctx, "/dev/null/none", options, &place))
MAKES(tow_loader_create, tow_loader_options, tow_loader, tow_loader_free, tow_loader_create(w.ctx, options, &place))
MAKES(tow_generator_create, tow_generator_options, tow_generator, tow_generator_free,
      tow_generator_create(w.ctx, TOW_MODULE(&w.dense), w.params, options, &place))
MAKES(tow_batcher_create, tow_generator_options, tow_batcher, tow_batcher_free,
      tow_batcher_create(w.ctx, TOW_MODULE(&w.dense), w.params, options, &place))
CALL(tow_batcher_add, tow_batch_request, return tow_batcher_add(w.batcher, options, NULL))
CALL(tow_generate_with, tow_generation, return tow_generate_with(w.generator, options))
MAKES(tow_logger_create, tow_logger_options, tow_logger, (void)tow_logger_free,
      tow_logger_create(w.ctx, options, &place))
MAKES(tow_image_grid, tow_grid_options, tow_array, tow_array_release, tow_image_grid(w.ctx, w.x, options, &place))
CALL(tow_chart_write, tow_chart, return tow_chart_write(w.ctx, "/dev/null/none", options))
CALL(tow_accuracy_add, tow_accuracy_options, tow_accuracy accuracy = {0};
     return tow_accuracy_add(&accuracy, w.x, w.x, options))
MAKES(tow_model_init_with, tow_model_options, tow_params, tow_params_free,
      tow_model_init_with(w.ctx, TOW_MODULE(&w.dense), 0, 1, &w.type, options, &place, NULL))
MAKES(tow_model_forward_graph, tow_model_options, tow_graph, tow_graph_release,
      tow_model_forward_graph(TOW_MODULE(&w.dense), w.params, 1, &w.type, options, &place))
MAKES(tow_model_loss_graph, tow_model_options, tow_graph, tow_graph_release,
      tow_model_loss_graph(TOW_MODULE(&w.dense), w.params, 1, &w.type, 0, NULL, mean_squared_error, NULL, 0, options,
                           &place))
MAKES(tow_model_function_create, tow_model_function_options, tow_model_function, tow_model_function_free,
      tow_model_function_create(TOW_MODULE(&w.dense), w.params, options, &place))
MAKES(tow_model_function_create_value_and_grad, tow_model_function_options, tow_model_function, tow_model_function_free,
      tow_model_function_create_value_and_grad(TOW_MODULE(&w.dense), w.params, options, &place))
CALL(tow_model_function_call, tow_model_arguments, tow_model_results results;
     return tow_model_function_call(w.function, options, &results))
MAKES(tow_model_summary_create, tow_model_options, tow_model_summary, tow_model_summary_free,
      tow_model_summary_create(TOW_MODULE(&w.dense), w.params, 1, &w.type, options, &place))
CALL(tow_params_table, tow_table_options,
     return tow_params_table(w.params, options, NULL, 0) ? TOW_OK : tow_context_status(w.ctx))
CALL(tow_model_summary_text, tow_summary_text_options,
     return tow_model_summary_text(w.summary, options, NULL, 0) ? TOW_OK : tow_context_status(w.ctx))
MAKES(tow_program_cache_create, tow_program_cache_options, tow_program_cache, tow_program_cache_free,
      tow_program_cache_create(w.ctx, options, &place))
MAKES(tow_optimizer_create, tow_optimizer_options, tow_optimizer_state, tow_optimizer_free,
      tow_optimizer_create(w.ctx, TOW_GRADIENT_TRANSFORM(&w.rate), w.params, options, &place))
static tow_status no_loss(double *loss, tow_array *const *gradients, void *user)
{
    (void)user, (void)loss, (void)gradients;
    return TOW_NOT_FOUND;
}
CALL(tow_optimizer_line_search, tow_line_search_options, tow_line_search_result result;
     return tow_optimizer_line_search(w.optimizer, options, no_loss, NULL, &result))
MAKES(tow_schedule_free_params, tow_schedule_free, tow_params, tow_params_free,
      tow_schedule_free_params(w.optimizer, options, &place))
MAKES(tow_step_create, tow_step_options, tow_step, tow_step_free,
      tow_step_create(w.optimizer, w.params, w.graph, options, &place))
CALL(tow_params_from_tensors_with, tow_load_options,
     return tow_params_from_tensors_with(w.params, "", w.tensors, options))
CALL(tow_gguf_write, tow_gguf_write_options, return tow_gguf_write("/dev/null/none", w.tensors, options))
CALL(tow_params_load, tow_load_options, return tow_params_load(w.params, "", "/dev/null/none", options))
MAKES(tow_compile, tow_compile_options, tow_program, tow_program_free, tow_compile(w.ctx, w.graph, options, &place))
MAKES(tow_row_groups, tow_row_groups_options, tow_graph, tow_graph_release, tow_row_groups(w.graph, options, &place))
CALL(tow_memory_curve, tow_compile_options, tow_memory_point points[2]; size_t n;
     return tow_memory_curve(w.ctx, w.graph, options, 2, points, &n))
MAKES(tow_tokenizer_encode, tow_encode_options, tow_encoding, tow_encoding_free,
      tow_encoding_create(w.ctx, &place) ? TOW_OUT_OF_MEMORY
                                         : tow_tokenizer_encode(w.tokenizer, "ab", 2, options, place))
MAKES(tow_average_create, tow_average_options, tow_average, tow_average_free,
      tow_average_create(w.ctx, w.params, options, &place))
MAKES(tow_train_create, tow_train_options, tow_train_state, tow_train_free,
      tow_train_create(w.ctx, TOW_MODULE(&w.dense), options, &place))
MAKES(tow_early_stopping_create, tow_early_stopping_options, tow_early_stopping, tow_early_stopping_free,
      tow_early_stopping_create(w.training, options, &place))
CALL(tow_train_run, tow_train_loop, return tow_train_run(w.training, options, NULL))
MAKES(tow_weight_mapping_load, tow_weight_mapping_options, tow_weight_mapping_report, tow_weight_mapping_report_free,
      tow_weight_mapping_load(w.mapping, w.params, w.tensors, options, &place))
MAKES(tow_weight_mapping_load_file, tow_weight_mapping_options, tow_weight_mapping_report,
      tow_weight_mapping_report_free,
      tow_weight_mapping_load_file(w.mapping, w.params, "/dev/null/none", options, &place))
MAKES(tow_weight_mapping_dtypes, tow_weight_mapping_options, tow_weight_dtypes, tow_weight_dtypes_free,
      tow_weight_mapping_dtypes(w.mapping, "/dev/null/none", options, &place))
MAKES(tow_weight_mapping_save_file, tow_weight_mapping_options, tow_weight_mapping_report,
      tow_weight_mapping_report_free,
      tow_weight_mapping_save_file(w.mapping, w.params, "/dev/null/none", options, &place))
MAKES(tow_weight_mapping_convert_file, tow_weight_mapping_options, tow_weight_mapping_report,
      tow_weight_mapping_report_free,
      tow_weight_mapping_convert_file(w.ctx, w.mapping, "/dev/null/none", "/dev/null/out", false, options, &place))
MAKES(tow_weight_mapping_translate_file, tow_weight_mapping_options, tow_weight_mapping_report,
      tow_weight_mapping_report_free,
      tow_weight_mapping_translate_file(w.ctx, w.mapping, "/dev/null/none", w.mapping, "/dev/null/out", options,
                                        &place))

static outcome call_status(const void *given, void *user)
{
    return come_to((*(tow_status(**)(const void *))user)(given));
}

/* Values with which a call goes further than without any. */
static const tow_scan_options scan_values = TOW_SCAN_OPTIONS(.reverse = true);
static const tow_context_options context_values = TOW_CONTEXT_OPTIONS(.threads = 1);
static const tow_pool_options pool_values = TOW_POOL_OPTIONS(.spatial = 2, .window = {2, 2});
static const tow_window_options window_values = TOW_WINDOW_OPTIONS(.window = {2, 2});

/* A group of one process, whose functions are not called. */
static tow_status no_exchange(tow_message *messages, size_t n, int tag, void **request, void *user)
{
    (void)messages, (void)n, (void)tag, (void)request, (void)user;
    return TOW_INTERNAL_ERROR;
}
static tow_status no_test(void *request, double seconds, size_t *left, void *user)
{
    (void)request, (void)seconds, (void)left, (void)user;
    return TOW_INTERNAL_ERROR;
}
static void no_abort(int exit_status, void *user) { (void)exit_status, (void)user; }
static const tow_group_functions group_values =
    TOW_GROUP_FUNCTIONS(.count = 1, .exchange = no_exchange, .test = no_test, .abort = no_abort);
static tow_status call_group_functions(const void *given)
{
    tow_group *group = NULL;
    const tow_status status = tow_group_create(w.ctx, given, NULL, &group);
    tow_group_free(group);
    return status;
}
static tow_status call_group_options(const void *given)
{
    tow_group *group = NULL;
    const tow_status status = tow_group_create(w.ctx, &group_values, given, &group);
    tow_group_free(group);
    return status;
}
static int run_nothing(tow_context *context, tow_group *group, void *user)
{
    (void)context, (void)group, (void)user;
    return 0;
}
CALL(tow_processes_run, tow_processes_options, return tow_processes_run(w.ctx, options, run_nothing, NULL))

static const tow_average_options average_values = TOW_AVERAGE_OPTIONS(.decay = 0.5);
static const tow_embed embed_values = {
    .module = {&tow_embed_class, sizeof(tow_embed)}, .num_embeddings = 5, .features = 3};
static const tow_rope rope_values = {.module = {&tow_rope_class, sizeof(tow_rope)}};

/* A function that takes options: how the test calls it. */
typedef struct taker {
    const char *name;
    tow_value (*record)(tow_trace *trace, const operands *operands, const void *given);
    tow_status (*call)(const void *given);
    const void *values; /* NULL: zeros */
    const char *type;   /* of the struct, for a function that takes several; NULL: any */
} taker;
#define RECORDS(name, ...)                                                                                             \
    {                                                                                                                  \
#name, record_##name, NULL, __VA_ARGS__                                                                        \
    }
#define CALLS(name, ...)                                                                                               \
    {                                                                                                                  \
#name, NULL, call_##name, __VA_ARGS__                                                                          \
    }
static const taker takers[] = {RECORDS(tow_scan_function, &scan_values),
                               RECORDS(tow_vmap_function, NULL),
                               RECORDS(tow_while_function, NULL),
                               RECORDS(tow_fori_function, NULL),
                               RECORDS(tow_custom_jvp_function, NULL),
                               RECORDS(tow_custom_vjp_function, NULL),
                               RECORDS(tow_conv_general_dilated, NULL),
                               RECORDS(tow_conv_general_dilated_with, NULL),
                               RECORDS(tow_reduce_window_sum, &window_values),
                               RECORDS(tow_reduce_window_max, &window_values),
                               RECORDS(tow_reduce_window_min, &window_values),
                               RECORDS(tow_max_pool, &pool_values),
                               RECORDS(tow_min_pool, &pool_values),
                               RECORDS(tow_avg_pool, &pool_values),
                               RECORDS(tow_attention, NULL),
                               RECORDS(tow_apply_rope, &rope_values),
                               CALLS(tow_context_create, &context_values),
                               CALLS(tow_context_options_check, &context_values),
                               CALLS(tow_primitive_check, NULL),
                               CALLS(tow_source_raw, NULL),
                               CALLS(tow_source_csv, NULL),
                               CALLS(tow_loader_create, NULL),
                               CALLS(tow_generator_create, NULL),
                               CALLS(tow_batcher_create, NULL),
                               CALLS(tow_batcher_add, NULL),
                               CALLS(tow_generate_with, NULL),
                               CALLS(tow_embed_attend, &embed_values),
                               CALLS(tow_embed_cross_entropy, &embed_values),
                               CALLS(tow_logger_create, NULL),
                               CALLS(tow_image_grid, NULL),
                               CALLS(tow_chart_write, NULL),
                               CALLS(tow_accuracy_add, NULL),
                               CALLS(tow_model_init_with, NULL),
                               CALLS(tow_model_forward_graph, NULL),
                               CALLS(tow_model_loss_graph, NULL),
                               CALLS(tow_model_function_create, NULL),
                               CALLS(tow_model_function_create_value_and_grad, NULL),
                               CALLS(tow_model_function_call, NULL),
                               CALLS(tow_model_summary_create, NULL),
                               CALLS(tow_params_table, NULL),
                               CALLS(tow_model_summary_text, NULL),
                               CALLS(tow_program_cache_create, NULL),
                               CALLS(tow_optimizer_create, NULL),
                               CALLS(tow_optimizer_line_search, NULL),
                               CALLS(tow_schedule_free_params, NULL),
                               CALLS(tow_step_create, NULL),
                               CALLS(tow_params_from_tensors_with, NULL),
                               CALLS(tow_params_load, NULL),
                               CALLS(tow_gguf_write, NULL),
                               CALLS(tow_compile, NULL),
                               CALLS(tow_row_groups, NULL),
                               CALLS(tow_memory_curve, NULL),
                               {"tow_group_create", NULL, call_group_functions, &group_values, "tow_group_functions"},
                               {"tow_group_create", NULL, call_group_options, NULL, "tow_group_options"},
                               CALLS(tow_processes_run, NULL),
                               CALLS(tow_tokenizer_encode, NULL),
                               CALLS(tow_average_create, &average_values),
                               CALLS(tow_train_create, NULL),
                               CALLS(tow_early_stopping_create, NULL),
                               CALLS(tow_train_run, NULL),
                               CALLS(tow_weight_mapping_load, NULL),
                               CALLS(tow_weight_mapping_load_file, NULL),
                               CALLS(tow_weight_mapping_save_file, NULL),
                               CALLS(tow_weight_mapping_convert_file, NULL),
                               CALLS(tow_weight_mapping_translate_file, NULL),
                               CALLS(tow_weight_mapping_dtypes, NULL)};

static const described *described_as(const char *type)
{
    for (size_t i = 0; i < sizeof structs / sizeof *structs; i++)
        if (strcmp(structs[i].s.name, type) == 0) return &structs[i];
    return NULL;
}

static void check_function(const char *function, const char *type)
{
    const described *d = described_as(type);
    for (size_t i = 0; i < sizeof takers / sizeof *takers; i++) {
        if (strcmp(takers[i].name, function) != 0) continue;
        if (takers[i].type && strcmp(takers[i].type, type) != 0) continue;
        sized s = d->s;
        recording r = {takers[i].record, NULL};
        if (takers[i].values) s.values = takers[i].values;
        if (takers[i].record)
            check_sizes(&s, call_recording, &r);
        else
            check_sizes(&s, call_status, (void *)(uintptr_t)&takers[i].call);
        return;
    }
    fail_msg("%s takes %s: add it to the table", function, type);
}

static void functions_read_other_versions(void **state)
{
    (void)state;
#define OPTIONS(type, macro, last)
#define LAYER(type, macro, class, last)
#define TRANSFORM(type, macro, class, last)
#define FUNCTION(function, type) check_function(#function, #type);
#include "structs.inc"
#undef FUNCTION
}

/* No such struct is a member of another one, or returned by value: it could not grow there. */
static void structs_can_grow(void **state)
{
    (void)state;
#undef WITHIN
#define FUNCTION(function, type)
#define WITHIN(outer, type) fail_msg("%s is a member of %s, or what it returns; make it a pointer", #type, #outer);
#include "structs.inc"
#undef FUNCTION
#undef WITHIN
#define WITHIN(outer, type)
}

/* Every struct of options is taken by a function, or is a member of another one that is. */
static void structs_are_taken(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof structs / sizeof *structs; i++) {
        bool taken = structs[i].layer || structs[i].transform;
#define FUNCTION(function, type) taken = taken || strcmp(structs[i].s.name, #type) == 0;
#include "structs.inc"
#undef FUNCTION
        if (!taken) fail_msg("no function takes %s", structs[i].s.name);
    }
}

/* ---- options in options ------------------------------------------------------------------------------------------ */

/* Structs of options that others point to, by a function that takes those. */
static tow_status call_model_of_function(const void *given)
{
    const tow_model_function_options o = TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1, .model = given);
    return call_tow_model_function_create(&o);
}
static tow_status call_compile_of_function(const void *given)
{
    const tow_model_function_options o = TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1, .compile = given);
    return call_tow_model_function_create(&o);
}
static tow_status call_compile_of_generator(const void *given)
{
    return call_tow_generator_create(&TOW_GENERATOR_OPTIONS(.compile = given));
}
static tow_train_options training_options(void)
{
    return TOW_TRAIN_OPTIONS(.n_inputs = 1, .input_types = &w.type, .n_extra = 1, .extra_types = &w.type,
                             .loss = mean_squared_error);
}
static tow_status call_model_of_training(const void *given)
{
    tow_train_options o = training_options();
    o.model = given;
    return call_tow_train_create(&o);
}
static tow_status call_average_of_training(const void *given)
{
    tow_train_options o = training_options();
    o.average = given;
    return call_tow_train_create(&o);
}
static tow_status call_early_stopping_of_loop(const void *given)
{
    return call_tow_train_run(&TOW_TRAIN_LOOP(.early_stopping = given));
}

static void nested_options_are_read(void **state)
{
    static const struct {
        const char *type;
        tow_status (*call)(const void *given);
        const void *values;
    } nested[] = {{"tow_model_options", call_model_of_function, NULL},
                  {"tow_compile_options", call_compile_of_function, NULL},
                  {"tow_compile_options", call_compile_of_generator, NULL},
                  {"tow_model_options", call_model_of_training, NULL},
                  {"tow_average_options", call_average_of_training, &average_values},
                  {"tow_early_stopping_options", call_early_stopping_of_loop, NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof nested / sizeof *nested; i++) {
        sized s = described_as(nested[i].type)->s;
        if (nested[i].values) s.values = nested[i].values;
        check_sizes(&s, call_status, (void *)(uintptr_t)&nested[i].call);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(functions_read_other_versions),
                                       cmocka_unit_test(structs_are_taken), cmocka_unit_test(structs_can_grow),
                                       cmocka_unit_test(nested_options_are_read)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
