/* Collections besides "params": what a call reads of the variables it wrote, a cache over several calls, types and
 * initial values, tables.
 * Tests frames.c, store.c, variables.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tests/unit/support/running_layer.h"

/* Reads what it wrote; writes twice: the last value counts. */
static void call_twice(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    assert_true(tow_has_variable(s, "a", "v") == !tow_scope_is_initializing(s));
    tow_value v = tow_variable(s, "a", "v", SCALAR(TOW_F32), tow_initializer_constant(3));
    assert_true(tow_has_variable(s, "a", "v"));
    assert_false(tow_has_variable(s, "b", "v"));
    if (tow_is_mutable(s, "a")) {
        tow_set_variable(s, "a", "v", tow_add_scalar(v, 1));
        tow_set_variable(s, "a", "v", tow_mul_scalar(tow_get_variable(s, "a", "v"), 10));
    }
    tow_value read = tow_get_variable(s, "a", "v");
    out[0] = tow_add(in[0], tow_broadcast_to(read, 2, tow_value_type(in[0]).dims));
}
static const tow_module_class twice_class = {"twice", call_twice};

static void test_a_call_reads_what_it_wrote(void **state)
{
    (void)state;
    bare layer = {{&twice_class}};
    tow_remat remat = TOW_REMAT(&layer);
    const tow_module *models[] = {TOW_MODULE(&layer), TOW_MODULE(&remat)};
    tow_type x = TYPE(TOW_F32, 1, 1);
    for (int m = 0; m < 2; m++)
        for (int writes = 0; writes < 2; writes++) {
            tow_params *params, *variables, *updates;
            OK(tow_model_init_with(ctx, models[m], 0, 1, &x, NULL, &params, &variables));
            tow_model_options options = TOW_MODEL_OPTIONS(.state = variables, .updates = &updates);
            const char *const names[] = {"a", NULL};
            if (writes) options.mutable_collections = names;
            tow_graph *g;
            OK(tow_model_forward_graph(models[m], params, 1, &x, &options, &g));
            assert_int_equal(tow_params_count(updates), writes);
            tow_array *in[2] = {tow_params_array(variables, 0)}, *out[2];
            OK(tow_array_create(ctx, x, &in[1]));
            OK(tow_evaluate(g, in, out));
            float expected = writes ? 40 : 3;
            assert_true(*(float *)tow_array_data(out[0]) == expected);
            if (writes) assert_true(*(float *)tow_array_data(out[1]) == expected);
            for (int i = 0; i <= writes; i++) tow_array_release(out[i]);
            tow_array_release(in[1]);
            tow_graph_release(g);
            tow_params_free(params);
            tow_params_free(variables);
            tow_params_free(updates);
        }
}

/* ---- a cache: one position per call ------------------------------------------------------------------------------ */

/* Initialized with all positions [T, D]; called with one [1, D]: the mean of all rows so far. */
static void call_cache(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    if (tow_scope_is_initializing(s)) {
        tow_variable(s, "cache", "rows", tow_value_type(in[0]), tow_initializer_zeros());
        tow_variable(s, "cache", "index", SCALAR(TOW_I32), tow_initializer_zeros());
        out[0] = in[0];
        return;
    }
    tow_value rows = tow_get_variable(s, "cache", "rows"), index = tow_get_variable(s, "cache", "index");
    tow_type type = tow_value_type(rows);
    tow_value here = tow_eq(tow_iota(tow_scope_trace(s), TYPE(TOW_I32, type.dims[0], type.dims[1]), 0),
                            tow_broadcast_to(index, 2, type.dims));
    rows = tow_where(here, tow_broadcast_to(in[0], 2, type.dims), rows);
    index = tow_add(index, tow_full_like(index, 1));
    tow_set_variable(s, "cache", "rows", rows);
    tow_set_variable(s, "cache", "index", index);
    tow_value sum = tow_expand_dims(tow_reduce_sum(rows, 1, (int[]){0}), 0);
    out[0] = tow_div(sum, tow_broadcast_to(tow_convert(index, TOW_F32), 2, tow_value_type(sum).dims));
}
static const tow_module_class cache_class = {"cache", call_cache};

static void test_cache(void **state)
{
    (void)state;
    bare cache = {{&cache_class}};
    tow_scan model = TOW_SCAN(&cache, .length = 2);
    tow_type whole = TYPE(TOW_F32, 4, 1), one = TYPE(TOW_F32, 1, 1);
    tow_params *params, *variables, *updates;
    OK(tow_model_init_with(ctx, TOW_MODULE(&model), 0, 1, &whole, NULL, &params, &variables));
    assert_true(tow_type_equal(tow_array_type(tow_params_find(variables, "cache/{}/rows")), TYPE(TOW_F32, 2, 4, 1)));
    tow_model_options options =
        TOW_MODEL_OPTIONS(.state = variables, .mutable_collections = (const char *const[]){"cache", NULL},
                          .updates = &updates);
    tow_graph *g;
    tow_program *program;
    OK(tow_model_forward_graph(TOW_MODULE(&model), params, 1, &one, &options, &g));
    OK(tow_compile(ctx, g, NULL, &program));
    static const float tokens[4] = {4, 8, -6, 2};
    tow_array *x, *y;
    OK(tow_array_create(ctx, one, &x));
    OK(tow_array_create(ctx, one, &y));
    for (int i = 0; i < 4; i++) {
        *(float *)tow_array_data(x) = tokens[i];
        tow_array *in[] = {tow_params_array(variables, 0), tow_params_array(variables, 1), x},
                  *out[] = {y, tow_params_array(updates, 0), tow_params_array(updates, 1)};
        OK(tow_program_run(program, in, out));
        copy_matching(variables, updates);
        /* means 4, 6, 2, 2 after one layer; means of these after two: 4, 5, 4, 3.5 */
        static const float second[4] = {4, 5, 4, 3.5F};
        assert_true(fabsf(*(float *)tow_array_data(y) - second[i]) < 1e-6F);
        assert_int_equal(count_at(variables, "cache/1/index"), i + 1);
    }
    tow_array_release(x);
    tow_array_release(y);
    tow_program_free(program);
    tow_graph_release(g);
    tow_params_free(params);
    tow_params_free(variables);
    tow_params_free(updates);
}

/* ---- types and initial values ------------------------------------------------------------------------------------ */

static void call_types(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    tow_variable(s, "all", "f64", TYPE(TOW_F64, 2), tow_initializer_constant(0.5));
    tow_variable(s, "all", "i32", TYPE(TOW_I32, 2), tow_initializer_constant(-3));
    tow_variable(s, "all", "u32", TYPE(TOW_U32, 2), tow_initializer_constant(7));
    tow_variable(s, "all", "bool", TYPE(TOW_BOOL, 2), tow_initializer_ones());
    tow_variable(s, "all", "drawn", TYPE(TOW_F32, 2), tow_initializer_normal(1));
    tow_param(s, "drawn_too", 1, (int64_t[]){2}, tow_initializer_normal(1));
    out[0] = in[0];
}
static const tow_module_class types_class = {"types", call_types};

static void test_types_and_initial_values(void **state)
{
    (void)state;
    bare types = {{&types_class}};
    tow_scan loop = TOW_SCAN(&types, .length = 2), unrolled = TOW_SCAN(&types, .length = 2, .unrolled = true);
    tow_type x = TYPE(TOW_F32, 1, 1);
    tow_params *params[2], *variables[2];
    OK(tow_model_init_with(ctx, TOW_MODULE(&loop), 4, 1, &x, NULL, &params[0], &variables[0]));
    OK(tow_model_init_with(ctx, TOW_MODULE(&unrolled), 4, 1, &x, NULL, &params[1], &variables[1]));
    expect_same_list("params", params[0], params[1]);
    expect_same_list("variables", variables[0], variables[1]);
    assert_true(((double *)tow_array_data(tow_params_find(variables[0], "all/{}/f64")))[3] == 0.5);
    assert_int_equal(((int32_t *)tow_array_data(tow_params_find(variables[0], "all/{}/i32")))[3], -3);
    assert_int_equal(((uint32_t *)tow_array_data(tow_params_find(variables[0], "all/{}/u32")))[3], 7);
    assert_int_equal(((uint8_t *)tow_array_data(tow_params_find(variables[0], "all/{}/bool")))[3], 1);
    const float *drawn = tow_array_data(tow_params_find(variables[0], "all/{}/drawn"));
    assert_true(drawn[0] != drawn[2] && drawn[0] != 0); /* every layer its own */
    for (int i = 0; i < 2; i++) {
        tow_params_free(params[i]);
        tow_params_free(variables[i]);
    }
}

static void test_table(void **state)
{
    (void)state;
    running layer = RUNNING();
    tow_scan model = TOW_SCAN(&layer, .length = 3);
    tow_type x = TYPE(TOW_F32, 2, 4);
    tow_params *params, *variables;
    OK(tow_model_init_with(ctx, TOW_MODULE(&model), 0, 1, &x, NULL, &params, &variables));
    char text[2048];
    assert_true(tow_params_table(params, &TOW_TABLE_OPTIONS(.state = variables), text, sizeof text) < sizeof text);
    assert_string_equal(text,
                        "path                        type                 kind               count            bytes\n"
                        "params/{}/dense/kernel      f32[3,4,4]           kernel                48              192\n"
                        "params/{}/dense/bias        f32[3,4]             bias                  12               48\n"
                        "total params                                                           60              240\n"
                        "batch_stats/{}/mean         f32[3,4]                                   12               48\n"
                        "total batch_stats                                                      12               48\n"
                        "counters/{}/calls           i32[3]                                      3               12\n"
                        "total counters                                                          3               12\n"
                        "total                                                                  75              300\n");
    const tow_table_options subtrees = TOW_TABLE_OPTIONS(.state = variables, .depth = 1);
    assert_true(tow_params_table(params, &subtrees, text, sizeof text) < sizeof text);
    assert_string_equal(text, "subtree          entries          count            bytes\n"
                              "params/{}              2             60              240\n"
                              "batch_stats/{}         1             12               48\n"
                              "counters/{}            1              3               12\n"
                              "total                  4             75              300\n");
    tow_params_free(params);
    tow_params_free(variables);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_call_reads_what_it_wrote),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_types_and_initial_values),
        cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
