/* NULL where a function needs a pointer: TOW_INVALID_ARGUMENT and a message that says what was expected, no crash, no
 * leak, nothing in the place of the result. Functions that have no context to tell return the status alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/counting_allocator.h"
#include "tow/tow.h"

static counting counts;
static tow_context *ctx;

static int setup(void **state)
{
    tow_context_options options = counting_options(&counts, -1);
    (void)state;
    return tow_context_create(&options, &ctx) == TOW_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    tow_context_free(ctx);
    return counts.blocks == 0 && counts.wrong_sizes == 0 ? 0 : -1;
}

/* The call is refused with a message that holds all of these texts; "" as the only one: without a message. */
#define refuses(call, ...)                                                                                             \
    do {                                                                                                               \
        tow_context_clear_error(ctx);                                                                                  \
        check_refused(#call, call, (const char *const[]){__VA_ARGS__, NULL});                                          \
    } while (0)
static void check_refused(const char *call, tow_status found, const char *const *texts)
{
    const char *message = tow_context_error(ctx);
    if (found != TOW_INVALID_ARGUMENT) fail_msg("%s: found \"%s\": %s", call, tow_status_text(found), message);
    if (!**texts && *message) fail_msg("%s: %s", call, message);
    for (; *texts; texts++)
        if (!strstr(message, *texts)) fail_msg("%s: \"%s\" is not in: %s", call, *texts, message);
}

/* The same, and NULL lies where the result would have been. */
#define refuses_into(place, call, ...)                                                                                 \
    do {                                                                                                               \
        (place) = (void *)&counts;                                                                                     \
        refuses(call, __VA_ARGS__);                                                                                    \
        if (place) fail_msg("%s: something lies in " #place, #call);                                                   \
    } while (0)

static tow_type vector(int64_t n) { return tow_make_type(TOW_F32, 1, &n); }

/* ---- arrays, files ----------------------------------------------------------------------------------------------- */

static void arrays(void **state)
{
    (void)state;
    float data[3] = {0};
    tow_array *array = NULL, *row = NULL;
    assert_int_equal(tow_context_create(NULL, NULL), TOW_INVALID_ARGUMENT);
    refuses_into(array, tow_array_create(NULL, vector(3), &array), "");
    refuses(tow_array_create(ctx, vector(3), NULL), "tow_array_create: expected a context and a place for the array");
    refuses_into(array, tow_array_create(ctx, tow_make_type(TOW_F32, 2, NULL), &array), "rank -1");
    refuses_into(array, tow_array_from_data(ctx, vector(3), NULL, &array), "12 bytes of data", "f32[3]", "found NULL");
    assert_null(array);
    refuses(tow_array_from_data(ctx, vector(3), data, NULL), "a place for the array");
    refuses_into(array, tow_array_borrow(NULL, vector(3), data, &array), "");
    refuses(tow_array_borrow(ctx, vector(3), data, NULL), "a place for the array");
    assert_int_equal(tow_array_from_data(ctx, vector(0), NULL, &array), TOW_OK); /* nothing to copy */
    refuses_into(row, tow_array_row(NULL, 0, &row), "");
    refuses(tow_array_row(array, 0, NULL), "a place for its row");
    tow_array_release(array);
}

/* A group of NULL is the group of one; what it is to exchange is needed all the same. */
static void groups(void **state)
{
    (void)state;
    const tow_group_functions functions = TOW_GROUP_FUNCTIONS(.count = 1);
    tow_group *group = NULL;
    refuses_into(group, tow_group_create(NULL, &functions, NULL, &group), "");
    refuses_into(group, tow_group_create(ctx, NULL, NULL, &group), "functions");
    refuses(tow_group_create(ctx, &functions, NULL, NULL), "a place for the group");
    refuses_into(group, tow_group_create(ctx, &functions, NULL, &group), ".exchange", "found NULL");
    refuses(tow_processes_run(ctx, NULL, NULL, NULL), "tow_processes_run: expected a context and a function");
    refuses(tow_processes_run(NULL, NULL, NULL, NULL), "");
    refuses(tow_group_all_reduce(NULL, 1, NULL), "");
    refuses(tow_group_rows(0, 1, 1, NULL, NULL), "");
    refuses(tow_group_share(0, 1, 1, NULL, NULL), "");
    refuses(tow_group_fail(NULL, TOW_OK, "nobody hears it"), "");
    refuses(tow_group_fail(ctx, TOW_OK, "%s", ""), "");
}

static void files(void **state)
{
    (void)state;
    tow_tensors *tensors = NULL;
    tow_array *array = NULL, *found = NULL;
    assert_int_equal(tow_array_create(ctx, vector(3), &array), TOW_OK);
    refuses(tow_tensors_create(ctx, NULL), "tow_tensors_create: expected");
    refuses_into(tensors, tow_tensors_create(NULL, &tensors), "");
    assert_int_equal(tow_tensors_create(ctx, &tensors), TOW_OK);
    refuses(tow_tensors_add(NULL, "a", array), "");
    refuses(tow_tensors_add(tensors, NULL, array), "found NULL");
    refuses(tow_tensors_add(tensors, "a", NULL), "found NULL");
    assert_int_equal(tow_tensors_add(tensors, "a", array), TOW_OK);
    assert_null(tow_tensors_find(tensors, NULL));
    refuses(tow_tensors_set_metadata(NULL, "key", "value"), "");
    refuses(tow_tensors_set_metadata(tensors, NULL, "value"), "found NULL");
    refuses(tow_tensors_set_metadata(tensors, "key", NULL), "found NULL");
    assert_int_equal(tow_tensors_set_metadata(tensors, "key", "value"), TOW_OK);
    assert_null(tow_tensors_metadata(tensors, NULL));
    refuses(tow_safetensors_write(NULL, tensors), "the path of a file to write");
    refuses(tow_safetensors_write("/nowhere", NULL), "");
    refuses(tow_safetensors_write_sharded(NULL, tensors, 1), "the path of a file to write");
    refuses(tow_safetensors_write_sharded("/nowhere", NULL, 1), "");
    refuses(tow_safetensors_write_all(NULL, NULL, tensors), "the path of a file to write");
    refuses(tow_safetensors_write_all(NULL, "/nowhere", NULL), "");
    refuses(tow_safetensors_check_all(NULL, NULL), "");
    refuses(tow_tensors_add_share(tensors, NULL, vector(3), NULL, array), "a name and an array");
    refuses(tow_tensors_add_share(tensors, "x", vector(3), NULL, NULL), "a name and an array");
    refuses(tow_tensors_add_share(NULL, "x", vector(3), NULL, array), "");
    refuses_into(found, tow_tensors_get_share(tensors, NULL, NULL, &found), "a name and a place");
    refuses(tow_tensors_get_share(tensors, "x", NULL, NULL), "a name and a place");
    refuses(tow_npz_write(NULL, tensors, false), "the path of a file to write");
    refuses(tow_npz_write("/nowhere", NULL, true), "");
    refuses(tow_gguf_write(NULL, tensors, NULL), "the path of a file to write");
    refuses(tow_gguf_write("/nowhere", NULL, NULL), "");
    refuses(tow_gguf_model_read(tensors, NULL), "tensors and a place");
    refuses(tow_gguf_model_read(NULL, NULL), "");
    refuses(tow_gguf_rope_factors(ctx, NULL, NULL), "a context, a model and a place for the array");
    refuses(tow_tensors_set_metadata_value(NULL, "key", (tow_metadata_value){.type = TOW_METADATA_BOOL}), "");
    refuses(tow_tensors_set_metadata_value(tensors, NULL, (tow_metadata_value){.type = TOW_METADATA_BOOL}),
            "found NULL");
    assert_int_equal(tow_tensors_metadata_value(tensors, NULL).type, TOW_METADATA_NONE);
    assert_null(tow_tensors_metadata_key(NULL, 0));
    assert_int_equal(tow_tensors_stored_dtype(NULL, 0), 0);
    refuses_into(found, tow_tensors_get(NULL, "a", &found), "");
    refuses_into(found, tow_tensors_get(tensors, NULL, &found), "expected tensors, a name and a place");
    refuses(tow_tensors_get(tensors, "a", NULL), "expected tensors, a name and a place");
    refuses_into(found, tow_tensors_get_with(NULL, "a", TOW_F32, &found), "");
    refuses_into(found, tow_tensors_get_with(tensors, NULL, TOW_F32, &found), "expected tensors, a name and a place");
    refuses(tow_tensors_get_with(tensors, "a", TOW_F32, NULL), "expected tensors, a name and a place");
    refuses(tow_npy_write(ctx, NULL, array), "the path of a file to write");
    refuses(tow_npy_write(ctx, "/nowhere", NULL), "tow_npy_write: expected a context and an array");
    refuses(tow_npy_write(NULL, "/nowhere", array), "");
    tow_tensors_free(tensors);
    tow_array_release(array);
    tensors = NULL;
    refuses_into(array, tow_npy_read_with(ctx, NULL, TOW_F32, &array), "the path of a file to read");
    refuses(tow_npy_read_with(ctx, "/nowhere", TOW_F32, NULL), "a place for the array");
    refuses_into(array, tow_npy_read_with(NULL, "/nowhere", TOW_F32, &array), "");
    refuses_into(tensors, tow_npz_read(ctx, NULL, &tensors), "the path of a file to read");
    refuses(tow_npz_read(ctx, "/nowhere", NULL), "a place for the tensors");
    refuses_into(tensors, tow_npz_read(NULL, "/nowhere", &tensors), "");
    refuses_into(array, tow_npy_read(ctx, NULL, &array), "the path of a file to read");
    refuses(tow_npy_read(ctx, "/nowhere", NULL), "a place for the array");
    refuses_into(array, tow_npy_read(NULL, "/nowhere", &array), "");
    refuses_into(array, tow_npy_mmap(ctx, NULL, &array), "the path of a file to read");
    refuses(tow_npy_mmap(ctx, "/nowhere", NULL), "a place for the array");
    refuses_into(array, tow_npy_mmap(NULL, "/nowhere", &array), "");
    refuses_into(tensors, tow_safetensors_mmap(ctx, NULL, &tensors), "the path of a file to read");
    refuses(tow_safetensors_mmap(ctx, "/nowhere", NULL), "a place for the tensors");
    refuses_into(tensors, tow_safetensors_mmap(NULL, "/nowhere", &tensors), "");
    refuses_into(tensors, tow_safetensors_read(ctx, NULL, &tensors), "the path of a file to read");
    refuses(tow_safetensors_read(ctx, "/nowhere", NULL), "a place for the tensors");
    refuses_into(tensors, tow_safetensors_read(NULL, "/nowhere", &tensors), "");
    refuses_into(tensors, tow_gguf_read(ctx, NULL, &tensors), "the path of a file to read");
    refuses(tow_gguf_read(ctx, "/nowhere", NULL), "a place for the tensors");
    refuses_into(tensors, tow_gguf_mmap(ctx, NULL, &tensors), "the path of a file to read");
    refuses(tow_gguf_mmap(ctx, "/nowhere", NULL), "a place for the tensors");
    refuses(tow_tokenizer_from_tensors(ctx, NULL, NULL), "tensors and a place for the tokenizer");
    refuses(tow_tokenizer_write_json(ctx, NULL, NULL), "a context, tensors and a path");
    refuses(tow_weight_mapping_dtypes(NULL, NULL, NULL, NULL), "");
    assert_null(tow_weight_dtypes_rules(NULL));
    refuses(tow_weight_mapping_translate_file(ctx, NULL, "a", NULL, "b", NULL, NULL), "two mappings and two paths");
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

static void identity(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = in[0];
}

typedef struct operation {
    tow_value (*record)(tow_trace *t, tow_value x, tow_value key);
    const char *message;
} operation;

#define OPERATION(name, ...)                                                                                           \
    static tow_value name(tow_trace *t, tow_value x, tow_value key)                                                    \
    {                                                                                                                  \
        tow_value y = {0};                                                                                             \
        (void)t, (void)x, (void)key, (void)y;                                                                          \
        __VA_ARGS__;                                                                                                   \
        return y;                                                                                                      \
    }
#define ONES ((int64_t[]){1, 1})
OPERATION(sum, y = tow_reduce_sum(x, 1, NULL))
OPERATION(mean, y = tow_mean(x, 2, NULL))
OPERATION(rev, y = tow_rev(x, 1, NULL))
OPERATION(broadcast, y = tow_broadcast_in_dim(x, 2, NULL, ((int[]){0, 1})))
OPERATION(broadcast_axes, y = tow_broadcast_in_dim(x, 2, ONES, NULL))
OPERATION(broadcast_to, y = tow_broadcast_to(x, 2, NULL))
OPERATION(reshape, y = tow_reshape(x, 2, NULL))
OPERATION(transpose, y = tow_transpose(x, 2, NULL))
OPERATION(slice_start, y = tow_slice(x, NULL, ONES, NULL))
OPERATION(slice_limit, y = tow_slice(x, ONES, NULL, NULL))
OPERATION(dynamic_start, y = tow_dynamic_slice(x, NULL, ONES))
OPERATION(dynamic_sizes, y = tow_dynamic_slice(x, ((tow_value[]){x, x}), NULL))
OPERATION(update, y = tow_dynamic_update_slice(x, x, NULL))
OPERATION(pad_low, y = tow_pad(x, tow_scalar(t, TOW_F32, 0), NULL, ONES, NULL))
OPERATION(pad_high, y = tow_pad(x, tow_scalar(t, TOW_F32, 0), ONES, NULL, NULL))
OPERATION(concatenate, y = tow_concatenate(2, NULL, 0))
OPERATION(bits, y = tow_random_bits(key, 1, NULL))
OPERATION(uniform, y = tow_random_uniform(key, 1, NULL, 0, 1))
OPERATION(normal, y = tow_random_normal(key, 1, NULL))
OPERATION(bernoulli, y = tow_random_bernoulli(key, 0.5, 1, NULL))
OPERATION(dropout, y = tow_dropout_with_key(x, key, 0.5, 1, NULL))
OPERATION(constant, y = tow_constant(t, NULL))
OPERATION(constant_data, y = tow_constant_data(t, tow_value_type(x), NULL))
OPERATION(full, y = tow_full(t, tow_make_type(TOW_F32, 1, NULL), 0))
OPERATION(iota, y = tow_iota(t, tow_make_type(TOW_F32, 1, NULL), 0))
OPERATION(name, y = tow_checkpoint_name(x, NULL))
OPERATION(push, tow_trace_push_scope(t, NULL))
OPERATION(remat, tow_remat_function(t, NULL, NULL, NULL, 1, &x, 1, &y))
OPERATION(remat_in, tow_remat_function(t, identity, NULL, NULL, 1, NULL, 1, &y))
OPERATION(remat_out, tow_remat_function(t, identity, NULL, NULL, 1, &x, 1, NULL))
OPERATION(call, tow_call_function(t, NULL, NULL, "f", 1, &x, 1, &y))
OPERATION(call_in, tow_call_function(t, identity, NULL, NULL, 1, NULL, 1, &y))
OPERATION(call_out, tow_call_function(t, identity, NULL, NULL, 1, &x, 1, NULL))
OPERATION(scan, tow_scan_function(t, NULL, NULL, NULL, 1, &x, 1, &x, 0, &y, NULL))
OPERATION(scan_carry, tow_scan_function(t, identity, NULL, NULL, 1, NULL, 1, &x, 0, &y, NULL))
OPERATION(scan_xs, tow_scan_function(t, identity, NULL, NULL, 1, &x, 1, NULL, 0, &y, NULL))
OPERATION(scan_carry_out, tow_scan_function(t, identity, NULL, NULL, 1, &x, 1, &x, 0, NULL, NULL))
OPERATION(scan_ys, tow_scan_function(t, identity, NULL, NULL, 1, &x, 1, &x, 1, &y, NULL))
OPERATION(inlined, tow_inline(t, NULL, &x, &y))
OPERATION(remat_graph, tow_remat_graph(t, NULL, NULL, &x, &y))

static void record(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    out[0] = ((const operation *)user)->record(t, in[0], in[1]);
}

static const char here[] = "test_null_arguments.c:";

static void operations(void **state)
{
    (void)state;
    static const operation all[] = {
        {sum, "reduce_sum: expected a list of axes, found NULL"},
        {mean, "expected a list of axes, found NULL"},
        {rev, "rev: expected a list of axes, found NULL"},
        {broadcast, "broadcast_in_dim: expected a shape, found NULL"},
        {broadcast_axes, "broadcast_in_dim: expected an axis for each axis of the operand, found NULL"},
        {broadcast_to, "broadcast_to: expected a shape, found NULL"},
        {reshape, "reshape: expected a shape, found NULL"},
        {transpose, "transpose: expected a permutation, found NULL"},
        {slice_start, "slice: expected start and limit"},
        {slice_limit, "slice: expected start and limit"},
        {dynamic_start, "dynamic_slice: expected start and size"},
        {dynamic_sizes, "dynamic_slice: expected start and size"},
        {update, "dynamic_update_slice: expected a start"},
        {pad_low, "pad: expected low and high"},
        {pad_high, "pad: expected low and high"},
        {concatenate, "output 0 is what tow_concatenate makes of no values"}, /* there is no trace to tell */
        {bits, "random_bits: expected a shape, found NULL"},
        {uniform, "expected a shape, found NULL"},
        {normal, "expected a shape, found NULL"},
        {bernoulli, "expected a shape, found NULL"},
        {dropout, "dropout: expected a list of axes, found NULL"},
        {constant, "value is missing"},
        {constant_data, "expected 16 bytes of data for an array of type f32[2,2], found NULL"},
        {full, "rank -1"},
        {iota, "iota"},
        {name, "checkpoint_name: expected a name"},
        {push, "tow_trace_push_scope: expected a name, found NULL"},
        {remat, "remat: expected a function, 1 inputs and places for 1 outputs, found NULL"},
        {remat_in, "remat: expected a function, 1 inputs"},
        {remat_out, "remat: expected a function, 1 inputs"},
        {call, "call: expected a function"},
        {call_in, "call: expected a function"},
        {call_out, "call: expected a function"},
        {scan, "scan: expected a function, 2 inputs and places for 1 outputs, found NULL"},
        {scan_carry, "scan: expected a function"},
        {scan_xs, "scan: expected a function"},
        {scan_carry_out, "scan: expected a function"},
        {scan_ys, "scan: expected a function, 2 inputs and places for 2 outputs, found NULL"},
        {inlined, "tow_inline: expected a graph"},
        {remat_graph, "tow_remat_graph: expected a graph"},
    };
    const tow_type types[] = {tow_make_type(TOW_F32, 2, (int64_t[]){2, 2}), tow_make_type(TOW_U32, 1, (int64_t[]){2})};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tow_graph *graph = NULL;
        operation one = all[i];
        refuses_into(graph, tow_trace_function(ctx, record, &one, 2, types, NULL, 1, &graph), all[i].message);
        assert_null(graph);
        bool of_operand = i < 15 || (i > 15 && i < 21); /* these know the line of the call */
        if (of_operand) assert_non_null(strstr(tow_context_error(ctx), here));
    }
    tow_value y = {.id = 7}; /* no trace: nothing happens, as in all operations */
    tow_remat_function(NULL, identity, NULL, NULL, 0, NULL, 1, &y);
    assert_int_equal(y.id, 0);
    tow_scan_function(NULL, identity, NULL, NULL, 0, NULL, 0, NULL, 0, NULL, NULL);
    tow_trace_push_scope(NULL, NULL);
}

/* ---- graphs, programs -------------------------------------------------------------------------------------------- */

static void graphs(void **state)
{
    (void)state;
    tow_type type = tow_make_type(TOW_F32, 0, NULL);
    tow_graph *graph = NULL, *a = NULL, *b = NULL;
    tow_residuals residuals = {0};
    tow_policy *policy = NULL;
    refuses_into(graph, tow_trace_function(NULL, identity, NULL, 1, &type, NULL, 1, &graph), "");
    refuses_into(graph, tow_trace_function(ctx, NULL, NULL, 1, &type, NULL, 1, &graph), "tow_trace_function: expected",
                 "a function");
    refuses(tow_trace_function(ctx, identity, NULL, 1, &type, NULL, 1, NULL), "a place for the graph");
    refuses_into(graph, tow_trace_function(ctx, identity, NULL, 1, NULL, NULL, 1, &graph),
                 "expected 1 input_types, found NULL");
    assert_int_equal(tow_trace_function(ctx, identity, NULL, 1, &type, (const char *[]){NULL}, 1, &graph), TOW_OK);
    refuses_into(a, tow_graph_parse(ctx, NULL, &a), "tow_graph_parse: expected a context, a text");
    refuses(tow_graph_parse(ctx, "", NULL), "a place for the graph");
    refuses_into(a, tow_graph_parse(NULL, "", &a), "");
    refuses(tow_graph_print(graph, NULL), "tow_graph_print: expected a graph and a file");
    refuses(tow_graph_print(NULL, stdout), "");
    refuses(tow_graph_check(NULL), "");
    refuses_into(a, tow_graph_dce(NULL, &a), "");
    refuses(tow_graph_dce(graph, NULL), "a place for the result");
    refuses_into(a, tow_graph_cse(NULL, &a), "");
    refuses(tow_graph_cse(graph, NULL), "a place for the result");
    refuses_into(a, tow_jvp(NULL, 0, NULL, &a), "");
    refuses(tow_jvp(graph, 0, NULL, NULL), "jvp: expected a graph and a place");
    refuses_into(a, tow_jvp(graph, 1, NULL, &a), "a list of 1 inputs");
    refuses(tow_linearize(NULL, 0, NULL, &a, &b), "");
    refuses_into(b, tow_linearize(graph, 0, NULL, NULL, &b), "linearize: expected");
    refuses_into(a, tow_vjp(graph, 0, NULL, &a, NULL), "vjp: expected");
    refuses_into(a, tow_grad(NULL, 0, NULL, false, &a), "");
    refuses(tow_grad(graph, 0, NULL, false, NULL), "grad: expected");
    refuses(tow_value_and_grad(graph, 0, NULL, false, NULL), "value_and_grad: expected");
    refuses_into(a, tow_vmap(NULL, 2, NULL, NULL, &a), "");
    refuses(tow_vmap(graph, 2, NULL, NULL, NULL), "tow_vmap: expected a graph and a place");
    refuses_into(a, tow_jacfwd(NULL, 0, NULL, &a), "");
    refuses(tow_jacfwd(graph, 0, NULL, NULL), "tow_jacfwd: expected a graph and a place");
    refuses(tow_jacrev(graph, 0, NULL, NULL), "tow_jacrev: expected a graph and a place");
    refuses(tow_hessian(graph, 0, NULL, NULL), "tow_hessian: expected a graph and a place");
    refuses(tow_per_example_grad(graph, 0, NULL, false, 2, NULL, NULL), "tow_per_example_grad: expected");
    refuses_into(a, tow_remat_whole(NULL, NULL, &a), "");
    refuses(tow_remat_whole(graph, NULL, NULL), "tow_remat_whole: expected");
    refuses(tow_saved_residuals(NULL, 0, NULL, &residuals), "");
    refuses(tow_saved_residuals(graph, 0, NULL, NULL), "saved_residuals: expected");
    refuses(tow_print_forward_backward(NULL, 0, NULL, stdout), "");
    refuses(tow_print_forward_backward(graph, 0, NULL, NULL), "a file to print into");
    refuses_into(policy, tow_policy_parse(ctx, NULL, &policy), "tow_policy_parse: expected");
    refuses(tow_policy_parse(ctx, "dots", NULL), "a place for the policy");
    refuses_into(policy, tow_policy_parse(NULL, "dots", &policy), "");
    assert_int_equal(tow_policy_decide(&tow_everything_saveable(), NULL), TOW_PREFER_RECOMPUTE);
    assert_null(a);
    assert_null(b);
    tow_graph_release(graph);
}

static void programs(void **state)
{
    (void)state;
    tow_type type = tow_make_type(TOW_F32, 0, NULL);
    tow_graph *graph = NULL;
    tow_program *program = NULL;
    tow_array *array = NULL, *none = NULL;
    tow_residuals residuals;
    assert_int_equal(tow_array_create(ctx, type, &array), TOW_OK);
    assert_int_equal(tow_trace_function(ctx, identity, NULL, 1, &type, NULL, 1, &graph), TOW_OK);
    refuses_into(program, tow_compile(NULL, graph, NULL, &program), "");
    refuses_into(program, tow_compile(ctx, NULL, NULL, &program), "tow_compile: expected a context, a graph");
    refuses(tow_compile(ctx, graph, NULL, NULL), "a place for the program");
    refuses_into(program, tow_compile(ctx, graph, &TOW_COMPILE_OPTIONS(.n_donations = 1), &program),
                 "donations is NULL");
    assert_null(program);
    assert_int_equal(tow_compile(ctx, graph, NULL, &program), TOW_OK);
    refuses(tow_program_run(NULL, &array, &array), "");
    refuses(tow_program_run(program, NULL, &array), "found NULL");
    refuses(tow_program_run(program, &array, NULL), "found NULL");
    refuses(tow_program_run(program, &none, &array), "input 0", "found NULL");
    refuses(tow_program_run(program, &array, &none), "output 0", "found NULL");
    refuses(tow_program_check(NULL), "");
    refuses(tow_program_record(NULL, true), "");
    refuses(tow_program_count(NULL, true), "");
    refuses(tow_program_write_trace(NULL, stdout), "");
    refuses(tow_program_write_trace(program, NULL), "a file to write");
    refuses(tow_program_write_html(NULL, NULL, "page.html"), "");
    refuses(tow_program_write_html(program, NULL, NULL), "the path of a file");
    refuses(tow_program_explain(NULL, &residuals), "");
    refuses(tow_program_explain(program, NULL), "a place for the residuals");
    refuses(tow_program_draw_memory(NULL, stdout), "");
    refuses(tow_program_draw_memory(program, NULL), "a file to draw into");
    refuses(tow_evaluate(NULL, &array, &none), "");
    refuses(tow_evaluate(graph, &array, NULL), "places for its outputs");
    refuses_into(none, tow_evaluate(graph, NULL, &none), "found NULL");
    assert_null(none);
    tow_program_free(program);
    tow_graph_release(graph);
    tow_array_release(array);
}

/* ---- layers ------------------------------------------------------------------------------------------------------ */

/* A layer that does one thing with its scope. */
typedef struct probe {
    tow_module module;
    void (*act)(tow_scope *scope, tow_value x);
} probe;
static void call_probe(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)n_in, (void)n_out;
    ((const probe *)module)->act(scope, in[0]);
    out[0] = in[0];
}
static const tow_module_class probe_class = {"Probe", call_probe};

static const tow_embed *const no_embed = NULL;
static const tow_dense dense = TOW_DENSE(.features = 2);
static const int64_t one = 1;

#define ACT(name, ...)                                                                                                 \
    static void name(tow_scope *s, tow_value x)                                                                        \
    {                                                                                                                  \
        (void)s, (void)x;                                                                                              \
        __VA_ARGS__;                                                                                                   \
    }
ACT(no_layer, tow_apply_module(s, "child", NULL, x))
ACT(no_child, tow_apply(s, NULL, &dense, x))
ACT(no_inputs, tow_value y; tow_apply_n(s, "child", &dense, 1, NULL, 1, &y))
ACT(no_outputs, tow_apply_n(s, "child", &dense, 1, &x, 1, NULL))
ACT(no_param, tow_param(s, NULL, 1, &one, tow_initializer_zeros()))
ACT(no_dims, tow_param(s, "w", 1, NULL, tow_initializer_zeros()))
ACT(no_init, tow_param(s, "w", 1, &one, (tow_initializer){0}))
ACT(no_collection, tow_variable(s, NULL, "v", vector(1), tow_initializer_zeros()))
ACT(no_variable, tow_variable(s, "state", NULL, vector(1), tow_initializer_zeros()))
ACT(no_variable_type, tow_variable(s, "state", "v", tow_make_type(TOW_F32, 1, NULL), tow_initializer_zeros()))
ACT(get_none, tow_get_variable(s, "state", NULL))
ACT(set_none, tow_set_variable(s, NULL, "v", x))
ACT(sow_none, tow_sow(s, NULL, "v", x))
ACT(no_stream, tow_make_rng(s, NULL))
ACT(no_scope, tow_scope_end(tow_scope_begin(s, NULL)))
ACT(no_table, tow_embed_attend(s, "table", no_embed, x))
ACT(no_entropy, tow_embed_cross_entropy(s, "table", no_embed, x, x))

static void asks(tow_scope *s, tow_value x)
{
    (void)x;
    assert_false(tow_has_rng(s, NULL));
    assert_false(tow_is_mutable(s, NULL));
    assert_false(tow_has_variable(s, NULL, "v"));
    assert_false(tow_has_variable(s, "state", NULL));
    tow_scope_fail(s, TOW_INVALID_ARGUMENT, "asked");
}

static void scopes(void **state)
{
    (void)state;
    static const struct {
        void (*act)(tow_scope *scope, tow_value x);
        const char *message;
    } all[] = {
        {no_layer, "child: expected a layer, found NULL"},
        {no_child, "cannot name a child"},
        {no_inputs, "child: Dense: expected 1 inputs and places for 1 outputs, found NULL"},
        {no_outputs, "child: Dense: expected 1 inputs and places for 1 outputs, found NULL"},
        {no_param, "parameter \"NULL\""},
        {no_dims, "found no dimensions"},
        {no_init, "found no initializer"},
        {no_collection, "collection \"(null)\""},
        {no_variable, "variable \"(null)\""},
        {no_variable_type, "variable \"v\""},
        {get_none, "variable \"(null)\""},
        {set_none, "collection \"(null)\""},
        {sow_none, "collection \"(null)\""},
        {no_stream, "random keys: expected the name of a stream, found NULL"},
        {no_scope, "cannot name a child"},
        {no_table, "table: Embed attend: expected a layer, found NULL"},
        {no_entropy, "table: Embed attend: expected a layer, found NULL"},
        {asks, "asked"},
    };
    tow_type type = vector(2);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tow_params *params = NULL;
        probe model = {{&probe_class}, all[i].act};
        refuses_into(params, tow_model_init(ctx, TOW_MODULE(&model), 0, 1, &type, &params), all[i].message);
        assert_null(params);
    }
}

static tow_status init(const tow_module *model)
{
    tow_type type = vector(2);
    tow_params *params = NULL;
    tow_status status = tow_model_init(ctx, model, 0, 1, &type, &params);
    tow_params_free(params);
    return status;
}

static void layers(void **state)
{
    (void)state;
    static const tow_module_class unnamed = {NULL, call_probe};
    const tow_module no_class = {NULL}, no_name = {&unnamed};
    tow_sequential gap = TOW_SEQUENTIAL(TOW_MODULE(&dense), NULL);
    tow_sequential no_list = {.module = {&tow_sequential_class, sizeof(tow_sequential)}, .n_layers = 2};
    tow_remat remat_of_none = {.module = {&tow_remat_class, sizeof(tow_remat)}};
    tow_scan scan_of_none = {.module = {&tow_scan_class, sizeof(tow_scan)}, .length = 3};
    tow_scan unrolled_none = {.module = {&tow_scan_class, sizeof(tow_scan)}, .length = 3, .unrolled = true};
    tow_activation_layer no_function = TOW_ACTIVATION(NULL);
    refuses(init(TOW_MODULE(&gap)), "layers_1: expected a layer, found NULL");
    refuses(init(TOW_MODULE(&no_list)), "Sequential: no layers");
    refuses(init(TOW_MODULE(&remat_of_none)), "expected a layer, found NULL");
    refuses(init(TOW_MODULE(&scan_of_none)), "expected a layer, found NULL");
    refuses(init(TOW_MODULE(&unrolled_none)), "0: expected a layer, found NULL");
    refuses(init(TOW_MODULE(&no_function)), "Activation: no function");
    refuses(init(&no_class), "the layer has no class");
    refuses(init(&no_name), "the layer has no class with a name");
    assert_true(tow_initializer_is_default(NULL));
}

/* ---- models, training -------------------------------------------------------------------------------------------- */

static void sum_loss(tow_trace *t, const tow_value *y, const tow_value *extra, tow_value *loss, tow_value *aux,
                     void *user)
{
    (void)t, (void)extra, (void)aux, (void)user;
    *loss = tow_reduce_sum(y[0], 0, NULL);
}

static void models(void **state)
{
    (void)state;
    tow_type type = vector(2);
    const tow_module *model = TOW_MODULE(&dense);
    tow_params *params = NULL, *zeros = NULL;
    tow_graph *graph = NULL;
    tow_array *array = NULL;
    tow_tensors *tensors = NULL;
    refuses_into(params, tow_model_init(NULL, model, 0, 1, &type, &params), "");
    refuses_into(params, tow_model_init(ctx, NULL, 0, 1, &type, &params),
                 "tow_model_init: expected a context, a model");
    refuses_into(params, tow_model_init(ctx, model, 0, 1, NULL, &params),
                 "tow_model_init: expected 1 input_types, found NULL");
    refuses(tow_model_init(ctx, model, 0, 1, &type, NULL), "a place for its parameters");
    assert_null(params);
    assert_int_equal(tow_model_init(ctx, model, 0, 1, &type, &params), TOW_OK);
    refuses_into(graph, tow_model_forward_graph(NULL, params, 1, &type, NULL, &graph),
                 "tow_model_forward_graph: expected a model");
    refuses_into(graph, tow_model_forward_graph(model, NULL, 1, &type, NULL, &graph), "");
    refuses_into(graph, tow_model_forward_graph(model, params, 1, NULL, NULL, &graph),
                 "expected 1 input_types and 0 extra_types, found NULL");
    refuses(tow_model_forward_graph(model, params, 1, &type, NULL, NULL), "a place for the graph");
    refuses_into(graph, tow_model_loss_graph(model, NULL, 1, &type, 0, NULL, NULL, NULL, 0, NULL, &graph), "");
    refuses_into(graph, tow_model_loss_graph(model, params, 1, &type, 0, NULL, NULL, NULL, 0, NULL, &graph),
                 "no loss function");
    refuses_into(graph, tow_model_loss_graph(model, params, 1, &type, 1, NULL, sum_loss, NULL, 0, NULL, &graph),
                 "1 extra_types, found NULL");
    refuses_into(graph, tow_model_loss_graph(NULL, params, 1, &type, 0, NULL, sum_loss, NULL, 0, NULL, &graph),
                 "tow_model_loss_graph: expected a model");
    assert_null(graph);
    assert_null(tow_params_find(params, NULL));
    refuses_into(array, tow_params_get(params, NULL, &array), "tow_params_get: expected parameters, a path");
    refuses(tow_params_get(params, "bias", NULL), "a place for the array");
    refuses_into(array, tow_params_get(NULL, "bias", &array), "");
    refuses_into(zeros, tow_params_gather(NULL, &zeros), "");
    refuses(tow_params_gather(params, NULL), "tow_params_gather: expected");
    refuses_into(zeros, tow_params_zeros_like(NULL, &zeros), "");
    refuses(tow_params_zeros_like(params, NULL), "tow_params_zeros_like: expected");
    assert_int_equal(tow_tensors_create(ctx, &tensors), TOW_OK);
    refuses(tow_params_to_tensors(NULL, "", tensors), "");
    refuses(tow_params_to_tensors(params, NULL, tensors), "tow_params_to_tensors: expected parameters, a prefix");
    refuses(tow_params_to_tensors(params, "", NULL), "a set of tensors");
    refuses(tow_params_from_tensors(NULL, "", tensors), "");
    refuses(tow_params_from_tensors(params, NULL, tensors), "tow_params_from_tensors: expected parameters, a prefix");
    refuses(tow_params_from_tensors(params, "", NULL), "a set of tensors");
    refuses(tow_params_from_tensors_with(NULL, "", tensors, NULL), "");
    refuses(tow_params_from_tensors_with(params, NULL, tensors, NULL), "expected parameters, a prefix");
    refuses(tow_params_from_tensors_with(params, "", NULL, NULL), "a set of tensors");
    refuses(tow_params_load(NULL, "", "/nowhere", NULL), "");
    refuses(tow_params_load(params, NULL, "/nowhere", NULL), "expected parameters, a prefix and the path");
    refuses(tow_params_load(params, "", NULL, NULL), "the path of a file");
    tow_tensors_free(tensors);
    tow_params_free(params);
}

static void training(void **state)
{
    (void)state;
    tow_type type = vector(2);
    const tow_module *model = TOW_MODULE(&dense);
    tow_train_options options = TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = tow_schedule_constant(1)},
                                                  .n_inputs = 1, .input_types = &type, .loss = sum_loss);
    tow_train_state *train = NULL;
    tow_array *array = NULL;
    double loss = 0;
    refuses_into(train, tow_train_create(NULL, model, &options, &train), "");
    refuses_into(train, tow_train_create(ctx, NULL, &options, &train), "expected a model");
    refuses_into(train, tow_train_create(ctx, model, NULL, &train), "expected a model and options");
    refuses(tow_train_create(ctx, model, &options, NULL), "a place for the train state");
    options.loss = NULL;
    refuses_into(train, tow_train_create(ctx, model, &options, &train), "a loss function, found NULL");
    options.loss = sum_loss;
    options.input_types = NULL;
    refuses_into(train, tow_train_create(ctx, model, &options, &train), "expected 1 input_types");
    options.input_types = &type;
    options.n_extra = 1;
    refuses_into(train, tow_train_create(ctx, model, &options, &train), "1 extra_types, found NULL");
    options.n_extra = 0;
    assert_null(train);
    assert_int_equal(tow_train_create(ctx, model, &options, &train), TOW_OK);
    refuses(tow_train_step(NULL, &array, &loss), "");
    refuses(tow_train_step(train, NULL, &loss), "expected a batch of 1 arrays, found NULL");
    refuses(tow_train_step(train, &array, &loss), "expected an array of type f32[2], found NULL");
    refuses(tow_train_step_with(NULL, &array, &loss, stdout), "");
    refuses(tow_train_step_with(train, &array, &loss, NULL), "a file for the trace");
    refuses(tow_train_evaluate(NULL, &array, &loss), "");
    refuses(tow_train_save(NULL, "/nowhere"), "");
    refuses(tow_train_save(train, NULL), "path");
    refuses(tow_train_load(NULL, "/nowhere"), "");
    refuses(tow_train_load(train, NULL), "path");
    assert_int_equal(tow_train_step_count(train), 0);
    tow_train_free(train);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(groups),   TEST(arrays), TEST(files),  TEST(operations), TEST(graphs),
        TEST(programs), TEST(scopes), TEST(layers), TEST(models),     TEST(training),
    };
    return cmocka_run_group_tests_name("null arguments", tests, NULL, NULL);
}
