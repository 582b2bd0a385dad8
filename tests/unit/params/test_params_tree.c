/* Lists of parameters as trees: patterns, parts and wholes, other paths, stacks, frozen entries, values of whole lists.
 * Tests params.c, params_table.c, params_tree.c, params_values.c, pattern.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "src/params/pattern.h"
#include "tests/unit/support/running_layer.h"

/* ---- patterns ---------------------------------------------------------------------------------------------------- */

static void patterns_match_whole_paths(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *path;
        bool matches;
    } cases[] = {
        {"a/b", "a/b", true},
        {"a/b", "a/bc", false},
        {"a/*", "a/b", true},
        {"a/*", "a/b/c", false},
        {"a/**", "a/b/c", true},
        {"a/**", "a", false},
        {"*", "", true},
        {"**", "", true},
        {"*/kernel", "x/y/kernel", false},
        {"**/kernel", "x/y/kernel", true},
        {"**/kernel", "kernel", false},
        {"**kernel", "kernel", true},
        {"blocks/*/mlp/**", "blocks/{}/mlp/up/kernel", true},
        {"blocks/*/mlp/**", "blocks/{}/attn/mlp/x", false},
        {"a*c*e", "abcde", true},
        {"a*c*e", "acce", true},
        {"a*c*e", "ac/e", false},
        {"**/b/*/d", "a/b/c/b/c/d", true},
        {"h_*x", "h_xyx", true},
        {"", "", true},
        {"", "a", false},
        {"a***", "a/b", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (tow_path_matches(cases[i].pattern, cases[i].path) != cases[i].matches)
            fail_msg("%s and %s", cases[i].pattern, cases[i].path);
    assert_false(tow_path_matches(NULL, "a"));
    assert_false(tow_path_matches("a", NULL));
}

static void stars_are_captured(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *replacement, *path, *expected;
    } cases[] = {
        {"h_*/attn/**", "blocks/$1/attention/$2", "h_11/attn/query/kernel", "blocks/11/attention/query/kernel"},
        {"**/b/*", "$2/$1", "a/b/c/b/d", "d/a/b/c"}, /* the first star takes as little as it can */
        {"*_*", "$2$1$$", "a_b_c", "b_ca$"},
        {"**x*", "$1|$2", "axbx", "a|bx"},
        {"**x*", "$1|$2", "ax/bx", "ax/b|"}, /* tried again with more: "*" takes no '/' */
        {"a", "$0/$0", "a", "a/a"},
        {"*/*/*/*/*/*/*/*/*/*", "$9$1", "a/b/c/d/e/f/g/h/i/j", "ia"},
        {"a*", "$1x", "a", "x"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow__string text;
        tow__string_init(&text, ctx);
        assert_true(tow__path_rewrite(cases[i].pattern, cases[i].replacement, cases[i].path, TOW_PARAM_OTHER, &text));
        assert_string_equal(text.text, cases[i].expected);
        tow__string_free(&text);
    }
    assert_int_equal(tow__pattern_stars("a/*/b/**/c*"), 3);
    assert_int_equal(tow__replacement_captures("a/$2/$1/$$"), 2);
    assert_int_equal(tow__replacement_captures("a$"), -1);
    assert_int_equal(tow__replacement_captures("$x"), -1);
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

/* A list of f32[2] arrays {i, 10 i}, i the position, of the given paths (NULL-terminated). */
static tow_params *list_of(tow_context *c, const char *const *paths)
{
    tow_array *arrays[16] = {0};
    size_t n = 0;
    tow_params *list = NULL;
    const int64_t two = 2;
    for (; paths[n]; n++) {
        const float data[2] = {(float)n, 10 * (float)n};
        if (tow_array_from_data(c, tow_make_type(TOW_F32, 1, &two), data, &arrays[n])) break;
    }
    if (!paths[n]) tow_params_from_arrays(c, n, paths, arrays, &list);
    for (size_t i = 0; i < n; i++) tow_array_release(arrays[i]);
    return list;
}

static const char *const model_paths[] = {
    "embed/table", "blocks/a/mlp/up", "blocks/a/attn/query", "blocks/b/mlp/up", "head/kernel", "blocks/b/mlp/down",
    NULL};

/* The list has exactly these paths, and arrays that begin with these numbers. */
static void expect_entries(const tow_params *list, size_t n, const char *const *paths, const float *first)
{
    if (tow_params_count(list) != n) fail_msg("%zu entries, expected %zu", tow_params_count(list), n);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(tow_params_path(list, i), paths[i]);
        assert_true(*(float *)tow_array_data(tow_params_array(list, i)) == first[i]);
    }
}
#define expect_list(list, ...)                                                                                         \
    expect_entries(list, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *),                                  \
                   (const char *const[]){__VA_ARGS__}, numbers)

static void selecting_and_splitting(void **state)
{
    (void)state;
    tow_params *all = list_of(ctx, model_paths), *selected = NULL, *rest = NULL, *again = NULL;
    OK(tow_params_select(all, TOW_NAMES("blocks/*/mlp/**", "head/*"), &selected));
    {
        const float numbers[] = {1, 3, 4, 5};
        expect_list(selected, "blocks/a/mlp/up", "blocks/b/mlp/up", "head/kernel", "blocks/b/mlp/down");
    }
    assert_ptr_equal(tow_params_find(selected, "head/kernel"), tow_params_find(all, "head/kernel"));
    tow_params_free(selected);
    OK(tow_params_split(all, TOW_NAMES("blocks/**"), &selected, &rest));
    {
        const float numbers[] = {0, 4};
        expect_list(rest, "embed/table", "head/kernel");
    }
    assert_int_equal(tow_params_count(selected), 4);
    OK(tow_params_merge(selected, rest, TOW_MERGE_DISTINCT, &again));
    assert_true(tow_params_equal(again, all));
    assert_false(tow_params_equal(again, selected));
    tow_params_free(again);
    tow_params_free(selected);
    tow_params_free(rest);
    expect_error(tow_params_select(all, TOW_NAMES("embed/*", "tail/*"), &selected), TOW_NOT_FOUND,
                 "tow_params_select: pattern \"tail/*\"", "embed/table");
    assert_null(selected);
    OK(tow_params_select(all, (const char *const[]){NULL}, &selected)); /* no pattern, no entry */
    assert_int_equal(tow_params_count(selected), 0);
    tow_params_free(selected);
    assert_int_equal(tow_params_element_count(all, TOW_NAMES("blocks/**")), 8);
    assert_int_equal(tow_params_element_count(all, NULL), 12);
    assert_int_equal(tow_params_element_count(all, TOW_NAMES("x")), 0);
    assert_int_equal(tow_params_select(NULL, TOW_NAMES("x"), &selected), TOW_INVALID_ARGUMENT);
    expect_error(tow_params_select(all, NULL, &selected), TOW_INVALID_ARGUMENT, "patterns");
    tow_params_free(all);
}

static void merging_has_a_policy_for_conflicts(void **state)
{
    (void)state;
    tow_params *a = list_of(ctx, TOW_NAMES("x", "y")), *b = list_of(ctx, TOW_NAMES("z", "x")), *merged = NULL;
    expect_error(tow_params_merge(a, b, TOW_MERGE_DISTINCT, &merged), TOW_INVALID_ARGUMENT, "x", "TOW_MERGE_FIRST");
    OK(tow_params_merge(a, b, TOW_MERGE_FIRST, &merged));
    {
        const float numbers[] = {0, 1, 0};
        expect_list(merged, "x", "y", "z");
    }
    tow_params_free(merged);
    OK(tow_params_merge(a, b, TOW_MERGE_SECOND, &merged));
    {
        const float numbers[] = {1, 1, 0};
        expect_list(merged, "x", "y", "z");
    }
    tow_params_free(merged);
    expect_error(tow_params_merge(a, b, (tow_merge)7, &merged), TOW_INVALID_ARGUMENT, "7");
    tow_params_free(a);
    tow_params_free(b);
}

static void renaming_by_rules(void **state)
{
    (void)state;
    tow_params *all = list_of(ctx, model_paths), *renamed = NULL;
    const tow_path_rule rules[] = {
        {"blocks/*/mlp/*", "layers/$1/ffn_$2"}, {"blocks/**", "layers/$1"}, {"head/*", "$1"}};
    OK(tow_params_rename(all, 3, rules, &renamed));
    {
        const float numbers[] = {0, 1, 2, 3, 4, 5};
        expect_list(renamed, "embed/table", "layers/a/ffn_up", "layers/a/attn/query", "layers/b/ffn_up", "kernel",
                    "layers/b/ffn_down");
    }
    tow_params_free(renamed);
    expect_error(tow_params_rename(all, 1, &(tow_path_rule){"blocks/*/mlp/**", "$1"}, &renamed), TOW_INVALID_ARGUMENT,
                 "blocks/b/mlp/down would be called b, as an entry before it");
    expect_error(tow_params_rename(all, 1, &(tow_path_rule){"head/*", "$1/$2"}, &renamed), TOW_INVALID_ARGUMENT, "$2",
                 "$1,");
    expect_error(tow_params_rename(all, 1, &(tow_path_rule){"head/*", "a//$1"}, &renamed), TOW_INVALID_ARGUMENT, "a//");
    expect_error(tow_params_rename(all, 1, &(tow_path_rule){"head/*", "{}/{}"}, &renamed), TOW_INVALID_ARGUMENT, "axes",
                 "f32[2]");
    expect_error(tow_params_rename(all, 1, &(tow_path_rule){"tail/*", "x"}, &renamed), TOW_NOT_FOUND, "tail/*");
    expect_error(tow_params_rename(all, 1, &(tow_path_rule){"head/*", NULL}, &renamed), TOW_INVALID_ARGUMENT, "rule 0");
    OK(tow_params_rename(all, 0, NULL, &renamed));
    assert_true(tow_params_equal(all, renamed));
    tow_params_free(renamed);
    tow_params_free(all);
}

static void subtrees_and_their_opposite(void **state)
{
    (void)state;
    tow_params *all = list_of(ctx, model_paths), *part = NULL, *whole = NULL;
    OK(tow_params_subtree(all, "blocks/b/mlp", &part));
    {
        const float numbers[] = {3, 5};
        expect_list(part, "up", "down");
    }
    OK(tow_params_under(part, "blocks/b/mlp", &whole));
    {
        const float numbers[] = {3, 5};
        expect_list(whole, "blocks/b/mlp/up", "blocks/b/mlp/down");
    }
    tow_params_free(part);
    tow_params_free(whole);
    OK(tow_params_subtree(all, "", &part));
    assert_true(tow_params_equal(all, part));
    tow_params_free(part);
    expect_error(tow_params_subtree(all, "block", &part), TOW_NOT_FOUND, "\"block\"", "blocks/a/mlp/up");
    expect_error(tow_params_subtree(all, "head/kernel", &part), TOW_NOT_FOUND, "head/kernel");
    expect_error(tow_params_under(all, "a//b", &part), TOW_INVALID_ARGUMENT, "a//b");
    expect_error(tow_params_under(all, "a/{}", &part), TOW_INVALID_ARGUMENT, "a/{}");
    tow_params_free(all);
}

/* ---- stacks ------------------------------------------------------------------------------------------------------ */

/* "blocks/{}/w" i32[2,3,2] and "blocks/{}/inner/{}/w" i32[2,3], counting up. */
static tow_params *stacked_list(tow_context *c)
{
    int32_t numbers[12];
    for (int i = 0; i < 12; i++) numbers[i] = i;
    tow_array *arrays[2] = {0};
    tow_params *list = NULL;
    if (!tow_array_from_data(c, TYPE(TOW_I32, 2, 3, 2), numbers, &arrays[0]) &&
        !tow_array_from_data(c, TYPE(TOW_I32, 2, 3), numbers, &arrays[1]))
        tow_params_from_arrays(c, 2, (const char *const[]){"blocks/{}/w", "blocks/{}/inner/{}/w"}, arrays, &list);
    tow_array_release(arrays[0]);
    tow_array_release(arrays[1]);
    return list;
}

static void stacks_come_apart_and_together(void **state)
{
    (void)state;
    tow_params *stacked = stacked_list(ctx), *layers = NULL, *outer = NULL, *again = NULL, *part = NULL;
    tow_array *layer;
    OK(tow_params_unstack(stacked, &layers));
    assert_int_equal(tow_params_count(layers), 2 + 6);
    assert_string_equal(tow_params_path(layers, 1), "blocks/1/w");
    assert_string_equal(tow_params_path(layers, 2), "blocks/0/inner/0/w");
    assert_string_equal(tow_params_path(layers, 7), "blocks/1/inner/2/w");
    assert_int_equal(*(int32_t *)tow_array_data(tow_params_array(layers, 7)), 5);
    const tow_type row = TYPE(TOW_I32, 3, 2);
    assert_true(tow_type_equal(tow_array_type(tow_params_array(layers, 0)), row));
    *(int32_t *)tow_array_data(tow_params_find(layers, "blocks/1/w")) = 77; /* a view */
    assert_int_equal(((int32_t *)tow_array_data(tow_params_find(stacked, "blocks/{}/w")))[6], 77);

    OK(tow_params_stack(layers, "blocks", 0, &outer));
    assert_string_equal(tow_params_path(outer, 1), "blocks/{}/inner/0/w");
    OK(tow_params_stack(outer, "blocks/{}/inner", 0, &again));
    assert_true(tow_params_equal(again, stacked));
    tow_params_free(again);
    tow_params_free(outer);

    OK(tow_params_subtree(stacked, "blocks/1", &part));
    assert_int_equal(tow_params_count(part), 2);
    assert_string_equal(tow_params_path(part, 1), "inner/{}/w");
    assert_int_equal(*(int32_t *)tow_array_data(tow_params_find(part, "inner/{}/w")), 3);
    tow_params_free(part);
    OK(tow_params_subtree(stacked, "blocks/1/inner/2", &part));
    assert_int_equal(*(int32_t *)tow_array_data(tow_params_find(part, "w")), 5);
    tow_params_free(part);
    OK(tow_params_subtree(stacked, "blocks", &part));
    assert_string_equal(tow_params_path(part, 0), "{}/w");
    tow_params_free(part);
    expect_error(tow_params_subtree(stacked, "blocks/2", &part), TOW_INVALID_ARGUMENT, "no such layer", "i32[2,3,2]");
    expect_error(tow_params_subtree(stacked, "blocks/01", &part), TOW_NOT_FOUND, "blocks/01");
    expect_error(tow_params_get(stacked, "blocks/01/w", &layer), TOW_NOT_FOUND, "blocks/01/w");
    expect_error(tow_params_subtree(stacked, "blocks/{}", &part), TOW_NOT_FOUND, "blocks/{}");
    expect_error(tow_params_subtree(stacked, "blocks/99999999999999999999", &part), TOW_INVALID_ARGUMENT, "layer");

    expect_error(tow_params_stack(stacked, "blocks", 0, &again), TOW_NOT_FOUND, "blocks/0/");
    tow_params *few = NULL;
    OK(tow_params_select(layers, TOW_NAMES("blocks/0/**", "blocks/1/inner/**"), &few));
    expect_error(tow_params_stack(few, "blocks", 0, &again), TOW_NOT_FOUND, "blocks/1/w: missing");
    tow_params_free(few);
    OK(tow_params_select(layers, TOW_NAMES("blocks/1/**"), &few));
    expect_error(tow_params_stack(few, "blocks", 0, &again), TOW_NOT_FOUND, "blocks/0/w: missing");
    tow_params_free(few);
    OK(tow_params_rename(layers, 1, &(tow_path_rule){"blocks/1/inner/1/w", "blocks/2/w"}, &few));
    expect_error(tow_params_stack(few, "blocks", 0, &again), TOW_TYPE_MISMATCH, "blocks/2/w", "i32[]", "i32[3,2]");
    tow_params_free(few);
    tow_params_free(layers);
    tow_params_free(stacked);
    tow_array *scalar = NULL;
    OK(tow_array_create(ctx, SCALAR(TOW_F32), &scalar));
    expect_error(tow_params_from_arrays(ctx, 1, (const char *const[]){"a/{}/b"}, &scalar, &few), TOW_INVALID_ARGUMENT,
                 "a/{}/b", "f32[]");
    tow_array_release(scalar);
}

/* ---- frozen ------------------------------------------------------------------------------------------------------ */

static void freezing_marks_entries(void **state)
{
    (void)state;
    tow_params *all = list_of(ctx, model_paths), *trainable = NULL, *part = NULL;
    OK(tow_params_freeze(all, TOW_NAMES("blocks/**"), true));
    OK(tow_params_freeze(all, TOW_NAMES("blocks/b/mlp/down"), false));
    OK(tow_params_trainable(all, &trainable));
    {
        const float numbers[] = {0, 4, 5};
        expect_list(trainable, "embed/table", "head/kernel", "blocks/b/mlp/down");
    }
    tow_params_free(trainable);
    OK(tow_params_subtree(all, "blocks/a", &part)); /* marks go with entries */
    assert_true(tow_params_is_frozen(part, 0) && !tow_params_is_frozen(part, 2) && !tow_params_is_frozen(all, 99));
    tow_params_free(part);
    expect_error(tow_params_freeze(all, TOW_NAMES("embed/*", "x"), true), TOW_NOT_FOUND, "\"x\"");
    assert_false(tow_params_is_frozen(all, 0));
    OK(tow_params_freeze(all, NULL, true));
    assert_true(tow_params_is_frozen(all, 0));
    tow_params_free(all);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static tow_status add_times(const char *path, size_t n, tow_array *const *arrays, tow_array *result, void *user)
{
    if (strcmp(path, "bad") == 0) return TOW_UNSUPPORTED;
    const double *factor = user;
    float *y = result ? tow_array_data(result) : NULL;
    for (size_t l = 0; y && l < n; l++)
        for (int i = 0; i < 2; i++) y[i] += (float)(l == 0 ? 1 : *factor) * ((float *)tow_array_data(arrays[l]))[i];
    return TOW_OK;
}

static void mapping_and_zipping(void **state)
{
    (void)state;
    double factor = 100;
    tow_params *a = list_of(ctx, TOW_NAMES("x", "y", "z")), *b = list_of(ctx, TOW_NAMES("z", "x", "y")), *sum = NULL;
    OK(tow_params_freeze(a, TOW_NAMES("y"), true));
    OK(tow_params_zip(2, (const tow_params *const[]){a, b}, add_times, &factor, &sum));
    {
        const float numbers[] = {0 + 100, 1 + 200, 2 + 0};
        expect_list(sum, "x", "y", "z");
    }
    assert_true(tow_params_is_frozen(sum, 1));
    tow_params_free(sum);
    OK(tow_params_map(a, add_times, NULL, &sum));
    assert_true(tow_params_equal(a, sum));
    tow_params_free(sum);
    OK(tow_params_map(a, add_times, &factor, NULL));
    tow_params *bad = list_of(ctx, TOW_NAMES("x", "bad"));
    expect_error(tow_params_map(bad, add_times, NULL, &sum), TOW_UNSUPPORTED, "tow_params_map: bad");
    expect_error(tow_params_map(bad, NULL, NULL, &sum), TOW_INVALID_ARGUMENT, "tow_params_map: expected parameters");
    expect_error(tow_params_zip(2, (const tow_params *const[]){a, bad}, add_times, NULL, &sum), TOW_NOT_FOUND, "y",
                 "list 1");
    expect_error(tow_params_zip(2, (const tow_params *const[]){a, NULL}, add_times, NULL, &sum), TOW_INVALID_ARGUMENT,
                 "list");
    assert_null(sum);
    tow_params_free(bad);
    tow_params_free(a);
    tow_params_free(b);
}

static void assigning_is_all_or_nothing(void **state)
{
    (void)state;
    tow_params *to = list_of(ctx, TOW_NAMES("x", "y", "z")), *from = list_of(ctx, TOW_NAMES("z", "y")), *copy = NULL;
    OK(tow_params_copy(to, &copy));
    OK(tow_params_assign(to, from));
    {
        const float numbers[] = {0, 1, 0};
        expect_list(to, "x", "y", "z");
    }
    {
        const float numbers[] = {0, 1, 2};
        expect_list(copy, "x", "y", "z");
    }
    tow_params *more = list_of(ctx, TOW_NAMES("a", "z", "w")), *other = stacked_list(ctx);
    expect_error(tow_params_assign(to, more), TOW_NOT_FOUND, "a:");
    expect_error(tow_params_assign(copy, other), TOW_NOT_FOUND, "blocks/{}/w");
    tow_params *typed = NULL;
    OK(tow_params_rename(other, 2, (tow_path_rule[]){{"blocks/{}/w", "x"}, {"blocks/{}/inner/{}/w", "y"}}, &typed));
    expect_error(tow_params_assign(to, typed), TOW_TYPE_MISMATCH, "x: expected f32[2], found i32[2,3,2]");
    tow_params_free(typed);
    tow_params_free(more);
    tow_params_free(other);
    tow_params_free(copy);
    tow_params_free(from);
    tow_params_free(to);
}

static void differences_are_reported(void **state)
{
    (void)state;
    tow_params *a = list_of(ctx, TOW_NAMES("x", "y", "z", "n")), *b = NULL, *c = list_of(ctx, TOW_NAMES("w"));
    OK(tow_params_copy(a, &b));
    assert_true(tow_params_equal(a, b));
    assert_int_equal(tow_params_compare_text(a, b, NULL, 0), 0);
    ((float *)tow_array_data(tow_params_find(b, "y")))[1] = 10.5f;
    ((float *)tow_array_data(tow_params_find(b, "z")))[0] = 5;
    tow_params *rest = NULL, *merged = NULL;
    OK(tow_params_select(b, TOW_NAMES("y", "z", "n"), &rest));
    OK(tow_params_merge(rest, c, TOW_MERGE_DISTINCT, &merged));
    tow_params_difference d = tow_params_compare(a, merged);
    assert_string_equal(d.where, "x");
    assert_true(d.only_a == 1 && d.only_b == 1 && d.types == 0 && d.arrays == 2 && d.elements == 2 && d.largest == 3);
    char text[512];
    tow_params_compare_text(a, merged, text, sizeof text);
    assert_string_equal(text, "x: only in the first, f32[2]\n"
                              "y: 1 of 2 elements differ, by 0.5 at most\n"
                              "z: 1 of 2 elements differ, by 3 at most\n"
                              "w: only in the second, f32[2]\n"
                              "1 only in the first, 1 only in the second, 0 of other types, 2 of other values (2 "
                              "elements, by 3 at most)\n");
    float *n = tow_array_data(tow_params_find(b, "n"));
    n[0] = NAN;
    assert_true(isinf(tow_params_compare(a, b).largest));
    ((float *)tow_array_data(tow_params_find(a, "n")))[0] = n[0]; /* the same NaN */
    assert_true(tow_params_compare(a, b).largest == 3);
    tow_params_free(merged);
    tow_params_free(rest);
    tow_params_free(a);
    tow_params_free(b);
    tow_params_free(c);
}

static void subtrees_are_counted(void **state)
{
    (void)state;
    tow_params *all = list_of(ctx, model_paths);
    char text[1024];
    tow_params_table(all, &TOW_TABLE_OPTIONS(.depth = 1), text, sizeof text);
    assert_string_equal(text, "subtree   entries          count            bytes\n"
                              "embed           1              2                8\n"
                              "blocks          4              8               32\n"
                              "head            1              2                8\n"
                              "total           6             12               48\n");
    tow_params_table(all, &TOW_TABLE_OPTIONS(.depth = 2), text, sizeof text);
    assert_non_null(strstr(text, "\nblocks/b            2              4               16\n"));
    assert_non_null(strstr(text, "\nembed/table "));
    tow_params_free(all);
}

/* ---- failing allocations ----------------------------------------------------------------------------------------- */

static tow_status use_lists(tow_context *c)
{
    tow_params *all = list_of(c, model_paths), *stacked = all ? stacked_list(c) : NULL, *made[10] = {0};
    tow_status status = stacked ? TOW_OK : TOW_OUT_OF_MEMORY;
    TRY(status);
    TRY(tow_params_split(all, TOW_NAMES("blocks/**"), &made[0], &made[1]));
    TRY(tow_params_merge(made[0], made[1], TOW_MERGE_FIRST, &made[2]));
    TRY(tow_params_rename(all, 1, &(tow_path_rule){"**", "a/$1"}, &made[3]));
    TRY(tow_params_subtree(stacked, "blocks/1", &made[4]));
    TRY(tow_params_under(all, "m", &made[5]));
    TRY(tow_params_unstack(stacked, &made[6]));
    TRY(tow_params_stack(made[6], "blocks", 0, &made[7]));
    TRY(tow_params_map(all, add_times, NULL, &made[8]));
    TRY(tow_params_copy(all, &made[9]));
    TRY(tow_params_assign(made[9], all));
    char text[1024];
    if (tow_params_compare_text(all, made[7], text, sizeof text) == 0) TRY(TOW_OUT_OF_MEMORY);
    if (tow_params_table(all, &TOW_TABLE_OPTIONS(.depth = 2), text, sizeof text) == 0) TRY(TOW_OUT_OF_MEMORY);
done:
    for (int i = 0; i < 10; i++) tow_params_free(made[i]);
    tow_params_free(stacked);
    tow_params_free(all);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    fail_in_turn(use_lists);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_match_whole_paths),
        cmocka_unit_test(stars_are_captured),
        cmocka_unit_test(selecting_and_splitting),
        cmocka_unit_test(merging_has_a_policy_for_conflicts),
        cmocka_unit_test(renaming_by_rules),
        cmocka_unit_test(subtrees_and_their_opposite),
        cmocka_unit_test(stacks_come_apart_and_together),
        cmocka_unit_test(freezing_marks_entries),
        cmocka_unit_test(mapping_and_zipping),
        cmocka_unit_test(assigning_is_all_or_nothing),
        cmocka_unit_test(differences_are_reported),
        cmocka_unit_test(subtrees_are_counted),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
