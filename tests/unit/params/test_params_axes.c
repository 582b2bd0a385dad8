/* Lists whose layers are stacked on other axes than 0: single layers, stacks apart and together, files, parts, errors.
 * Tests params_axes.c, params_stack.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/lift_cell.h"
#include "tow/weights.h"

/* ---- lists ------------------------------------------------------------------------------------------------------- */

/* [i, j, k] is 100 i + 10 j + k of f32 [a, b, c]. */
static tow_array *digits(tow_context *c, int64_t a, int64_t b, int64_t d)
{
    tow_array *array = NULL;
    if (tow_array_create(c, TYPE(TOW_F32, a, b, d), &array)) return NULL;
    float *data = tow_array_data(array);
    for (int64_t i = 0; i < a; i++)
        for (int64_t j = 0; j < b; j++)
            for (int64_t k = 0; k < d; k++) *data++ = (float)(100 * i + 10 * j + k);
    return array;
}

/* "w" [2, 3, 4] stacked 3 times along axis 1, "inner" [2, 3, 4] with the inner scan's axis 0 in the outer one's last,
 * and "v". */
static const char *const paths[] = {"f/{@1}/w", "f/{@-1}/g/{}/v", "f/{}/u", "rest"};
static tow_params *make_list(tow_context *c)
{
    tow_array *arrays[] = {digits(c, 2, 3, 4), digits(c, 2, 5, 3), digits(c, 3, 1, 2), digits(c, 1, 1, 3)};
    tow_params *list = NULL;
    if (arrays[0] && arrays[1] && arrays[2] && arrays[3]) tow_params_from_arrays(c, 4, paths, arrays, &list);
    for (int i = 0; i < 4; i++) tow_array_release(arrays[i]);
    return list;
}

/* Elements of the array at `path`, which is released. */
static void expect_elements(const tow_params *list, const char *path, tow_type type, const float *expected)
{
    tow_array *array;
    OK(tow_params_get(list, path, &array));
    assert_true(tow_type_equal(tow_array_type(array), type));
    const float *found = tow_array_data(array);
    for (int64_t i = 0; i < tow_type_element_count(type); i++)
        if (found[i] != expected[i]) fail_msg("%s[%d]: expected %g, found %g", path, (int)i, expected[i], found[i]);
    tow_array_release(array);
}

static void single_layers(void **unused)
{
    (void)unused;
    tow_params *list = make_list(ctx), *part = NULL;
    const float second[] = {10, 11, 12, 13, 110, 111, 112, 113}, v[] = {102, 112, 122, 132, 142};
    expect_elements(list, "f/1/w", TYPE(TOW_F32, 2, 4), second);
    expect_elements(list, "f/2/g/1/v", TYPE(TOW_F32, 5), v);
    expect_elements(list, "f/2/u", TYPE(TOW_F32, 1, 2), (const float[]){200, 201});
    tow_array *layer;
    OK(tow_params_get(list, "f/1/w", &layer)); /* a copy */
    ((float *)tow_array_data(layer))[0] = 77;
    tow_array_release(layer);
    expect_elements(list, "f/1/w", TYPE(TOW_F32, 2, 4), second);
    expect_error(tow_params_get(list, "f/3/w", &layer), TOW_INVALID_ARGUMENT, "params/f/3/w: no such layer",
                 "f/{@1}/w is f32[2,3,4]");
    expect_error(tow_params_get(list, "f/{}/w", &layer), TOW_NOT_FOUND, "no such parameter", "f/{@1}/w");

    OK(tow_params_subtree(list, "f/2", &part));
    assert_int_equal(tow_params_count(part), 3);
    expect_elements(part, "w", TYPE(TOW_F32, 2, 4), (const float[]){20, 21, 22, 23, 120, 121, 122, 123});
    assert_string_equal(tow_params_path(part, 1), "g/{}/v");
    expect_elements(part, "g/1/v", TYPE(TOW_F32, 5), v);
    tow_params_free(part);
    OK(tow_params_subtree(list, "f/2/g/1", &part));
    expect_elements(part, "v", TYPE(TOW_F32, 5), v);
    tow_params_free(part);
    expect_error(tow_params_subtree(list, "f/3", &part), TOW_INVALID_ARGUMENT, "no such layer", "f32[2,3,4]");
    expect_error(tow_params_subtree(list, "f/{@1}", &part), TOW_NOT_FOUND, "matches no path");
    tow_params_free(list);
}

static void stacks_come_apart_and_together(void **unused)
{
    (void)unused;
    static const int axes[] = {0, 1, 2, -1, -2, -3};
    tow_params *list = make_list(ctx), *layers, *one, *again, *apart;
    OK(tow_params_unstack(list, &layers));
    assert_int_equal(tow_params_count(layers), 3 + 6 + 3 + 1);
    expect_elements(layers, "f/1/w", TYPE(TOW_F32, 2, 4), (const float[]){10, 11, 12, 13, 110, 111, 112, 113});
    expect_elements(layers, "f/2/g/1/v", TYPE(TOW_F32, 5), (const float[]){102, 112, 122, 132, 142});
    OK(tow_params_select(layers, TOW_NAMES("f/*/w"), &one));
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) {
        char path[32] = "f/{}/w";
        int64_t dims[3] = {2, 4};
        const int at = axes[i] < 0 ? axes[i] + 3 : axes[i];
        if (axes[i]) snprintf(path, sizeof path, "f/{@%d}/w", axes[i]);
        memmove(dims + at + 1, dims + at, (size_t)(2 - at) * sizeof *dims);
        dims[at] = 3;
        OK(tow_params_stack(one, "f", axes[i], &again));
        assert_string_equal(tow_params_path(again, 0), path);
        const tow_type type = tow_array_type(tow_params_array(again, 0));
        assert_true(tow_type_equal(type, tow_make_type(TOW_F32, 3, dims)));
        OK(tow_params_unstack(again, &apart));
        assert_true(tow_params_equal(apart, one));
        tow_params_free(apart);
        if (axes[i] == 1)
            assert_memory_equal(tow_array_data(tow_params_array(again, 0)), tow_array_data(tow_params_array(list, 0)),
                                96);
        tow_params_free(again);
    }
    expect_error(tow_params_stack(one, "f", 3, &again), TOW_INVALID_ARGUMENT, "f/0/w is f32[2,4]", "axis 3");
    expect_error(tow_params_stack(one, "f", -4, &again), TOW_INVALID_ARGUMENT, "axis -4");
    expect_error(tow_params_stack(one, "f", 100, &again), TOW_INVALID_ARGUMENT, "[-8, 8)");
    tow_params_free(one);

    OK(tow_params_select(layers, TOW_NAMES("f/*/g/**"), &one)); /* the inner scan of a stack, then the outer one */
    OK(tow_params_stack(one, "f", -1, &again));
    assert_string_equal(tow_params_path(again, 1), "f/{@-1}/g/1/v");
    OK(tow_params_stack(again, "f/{@-1}/g", 0, &apart));
    assert_string_equal(tow_params_path(apart, 0), paths[1]);
    assert_memory_equal(tow_array_data(tow_params_array(apart, 0)), tow_array_data(tow_params_array(list, 1)), 120);
    tow_params_free(apart);
    tow_params_free(again);
    tow_params_free(one);
    tow_params_free(layers);
    tow_params_free(list);
}

/* Names and values of files do not know the axis: what one list writes, another one with other axes reads. */
static void files_hold_layers(void **unused)
{
    (void)unused;
    static const char *const others[] = {"f/{@-1}/w", "f/{}/g/{@1}/v", "f/{@1}/u", "rest"};
    tow_params *list = make_list(ctx), *moved, *back, *first, *second;
    tow_array *arrays[4];
    const tow_type types[] = {TYPE(TOW_F32, 2, 4, 3), TYPE(TOW_F32, 3, 5, 2), TYPE(TOW_F32, 1, 3, 2),
                              TYPE(TOW_F32, 1, 1, 3)};
    for (int i = 0; i < 4; i++) OK(tow_array_create(ctx, types[i], &arrays[i]));
    OK(tow_params_from_arrays(ctx, 4, others, arrays, &moved));
    for (int i = 0; i < 4; i++) tow_array_release(arrays[i]);
    tow_tensors *tensors = tensors_of(list);
    assert_int_equal(tow_tensors_count(tensors), 13);
    OK(tow_params_from_tensors(moved, "", tensors));
    expect_same_list("moved", list, moved);
    OK(tow_params_unstack(list, &first));
    OK(tow_params_unstack(moved, &second));
    assert_true(tow_params_equal(first, second));
    OK(tow_params_zeros_like(list, &back));
    tow_tensors *of_moved = tensors_of(moved);
    OK(tow_params_from_tensors(back, "", of_moved));
    assert_true(tow_params_equal(list, back));
    assert_false(tow_params_equal(list, moved));
    expect_error(tow_params_assign(back, moved), TOW_NOT_FOUND, "f/{@-1}/w");

    tow_tensors *some; /* partial loading reads what is there */
    tow_load_report report;
    OK(tow_tensors_create(ctx, &some));
    OK(tow_tensors_add(some, "f/1/w", tow_tensors_find(tensors, "f/0/w")));
    expect_error(tow_params_from_tensors(moved, "", some), TOW_NOT_FOUND, "f/0/w: missing; expected f32[2,4]");
    OK(tow_params_from_tensors_with(moved, "", some, &TOW_LOAD_OPTIONS(.allow_missing = true, .report = &report)));
    assert_true(report.loaded == 1 && report.missing == 12);
    tow_load_report_free(&report);
    expect_elements(moved, "f/1/w", TYPE(TOW_F32, 2, 4), (const float[]){0, 1, 2, 3, 100, 101, 102, 103});
    expect_elements(moved, "f/2/w", TYPE(TOW_F32, 2, 4), (const float[]){20, 21, 22, 23, 120, 121, 122, 123});

    tow_weight_mapping *mapping; /* and so does loading by a mapping */
    OK(tow_weight_mapping_parse(ctx, "rules", "h.{i}.weight [a b] -> f/{i}/w [b a]\n", &mapping));
    tow_tensors *theirs;
    tow_array *weight = digits(ctx, 1, 4, 2);
    OK(tow_tensors_create(ctx, &theirs));
    tow_array *matrix;
    OK(tow_array_from_data(ctx, TYPE(TOW_F32, 4, 2), tow_array_data(weight), &matrix));
    OK(tow_tensors_add(theirs, "h.2.weight", matrix));
    OK(tow_weight_mapping_load(mapping, moved, theirs, &TOW_WEIGHT_MAPPING_OPTIONS(.partial = true), NULL));
    expect_elements(moved, "f/2/w", TYPE(TOW_F32, 2, 4), (const float[]){0, 10, 20, 30, 1, 11, 21, 31});
    expect_elements(moved, "f/1/w", TYPE(TOW_F32, 2, 4), (const float[]){0, 1, 2, 3, 100, 101, 102, 103});
    tow_weight_mapping_free(mapping);
    tow_array_release(weight);
    tow_array_release(matrix);
    tow_tensors_free(theirs);
    tow_tensors_free(some);
    tow_tensors_free(of_moved);
    tow_tensors_free(tensors);
    tow_params_free(first);
    tow_params_free(second);
    tow_params_free(back);
    tow_params_free(moved);
    tow_params_free(list);
}

static void parts_keep_their_axes(void **unused)
{
    (void)unused;
    tow_params *list = make_list(ctx), *some, *rest, *whole, *under, *renamed;
    OK(tow_params_split(list, TOW_NAMES("f/*/w", "f/**/v"), &some, &rest));
    OK(tow_params_merge(some, rest, TOW_MERGE_DISTINCT, &whole));
    assert_true(tow_params_equal(whole, list));
    OK(tow_params_under(some, "model", &under));
    expect_elements(under, "model/f/2/g/1/v", TYPE(TOW_F32, 5), (const float[]){102, 112, 122, 132, 142});
    OK(tow_params_rename(some, 1, &(tow_path_rule){"f/**", "blocks/$1"}, &renamed));
    assert_string_equal(tow_params_path(renamed, 0), "blocks/{@1}/w");
    tow_params_free(renamed);
    OK(tow_params_rename(list, 1, &(tow_path_rule){"rest", "r/{@-2}/w"},
                         &renamed)); /* the same array, read otherwise */
    expect_elements(renamed, "r/0/w", TYPE(TOW_F32, 1, 3), (const float[]){0, 1, 2});
    tow_params_free(renamed);
    expect_error(tow_params_rename(list, 1, &(tow_path_rule){"rest", "r/{@3}/w"}, &renamed), TOW_INVALID_ARGUMENT,
                 "would be called \"r/{@3}/w\"", "f32[1,1,3]");
    tow_array *array = digits(ctx, 2, 3, 4);
    expect_error(tow_params_from_arrays(ctx, 1, (const char *const[]){"a/{@3}/w"}, &array, &renamed),
                 TOW_INVALID_ARGUMENT, "a/{@3}/w", "f32[2,3,4]");
    expect_error(tow_params_from_arrays(ctx, 1, (const char *const[]){"a/{@-4}/w"}, &array, &renamed),
                 TOW_INVALID_ARGUMENT, "a/{@-4}/w");
    expect_error(tow_params_from_arrays(ctx, 1, (const char *const[]){"a/{}/b/{@2}/w"}, &array, &renamed),
                 TOW_INVALID_ARGUMENT, "a/{}/b/{@2}/w"); /* behind the outer axis there are two */
    static const char *const faults[] = {"a/{@9}/w", "a/{@-99999999999}/w", "a/{1+3@4}/w", "a/{0+2,1@2}/w"};
    for (int i = 0; i < 4; i++)
        expect_error(tow_params_from_arrays(ctx, 1, &faults[i], &array, &renamed), TOW_INVALID_ARGUMENT, faults[i]);
    static const char *const names[] = {"a/{@}/w", "a/{@-}/w", "a/{@x}/w", "a/{1@1}/w", "a/{@1@1}/w"}; /* no stacks */
    for (int i = 0; i < 5; i++) {
        OK(tow_params_from_arrays(ctx, 1, &names[i], &array, &renamed));
        tow_array *found;
        OK(tow_params_get(renamed, names[i], &found));
        assert_ptr_equal(found, array);
        tow_array_release(found);
        expect_error(tow_params_get(renamed, "a/1/w", &found), TOW_NOT_FOUND, names[i]);
        tow_params_free(renamed);
    }
    OK(tow_params_from_arrays(ctx, 1, (const char *const[]){"a/{0+2,1@1}/w"}, &array, &renamed)); /* layer 2 i + j */
    expect_elements(renamed, "a/3/w", TYPE(TOW_F32, 2), (const float[]){11, 111});
    tow_params_free(renamed);
    tow_array_release(array);
    tow_params_free(under);
    tow_params_free(whole);
    tow_params_free(some);
    tow_params_free(rest);
    tow_params_free(list);
}

/* ---- failing allocations ----------------------------------------------------------------------------------------- */

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        if ((status = (call))) goto done;                                                                              \
    } while (0)

static tow_status use_lists(tow_context *c)
{
    tow_params *made[6] = {make_list(c)};
    tow_tensors *tensors = NULL;
    tow_status status = made[0] ? TOW_OK : TOW_OUT_OF_MEMORY;
    tow_array *layer = NULL;
    TRY(status);
    TRY(tow_params_get(made[0], "f/1/w", &layer));
    TRY(tow_params_unstack(made[0], &made[1]));
    TRY(tow_params_stack(made[1], "f", -1, &made[2]));
    TRY(tow_params_subtree(made[0], "f/1", &made[3]));
    TRY(tow_tensors_create(c, &tensors));
    TRY(tow_params_to_tensors(made[0], "", tensors));
    TRY(tow_params_from_tensors(made[0], "", tensors));
done:
    for (int i = 0; i < 6; i++) tow_params_free(made[i]);
    tow_tensors_free(tensors);
    tow_array_release(layer);
    return status;
}

static void every_allocation_may_fail(void **unused)
{
    (void)unused;
    fail_in_turn(use_lists);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(single_layers),
        cmocka_unit_test(stacks_come_apart_and_together),
        cmocka_unit_test(files_hold_layers),
        cmocka_unit_test(parts_keep_their_axes),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
