/* Mappings: their text, shapes, what is missing and unused, element types. test_mapping_files.c has their files.
 * Tests axes.c, link.c, names.c, parse.c, report.c, tables.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/mappings.h"

/* ---- text -------------------------------------------------------------------------------------------------------- */

static void bad_texts(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "rules: expected rules, found none"},
        {"# nothing\n\n", "expected rules, found none"},
        {"prefix a.\n", "expected rules, found none"},
        {"a", "rules:1: expected '->' and the path of a parameter, found 'end of line'"},
        {"\n\na b", "rules:3: expected '->' and the path of a parameter, found 'b'"},
        {"a ->", "rules:1: expected the path of a parameter, found 'end of line'"},
        {"-> b", "expected '->'"},
        {"a | -> b", "expected '->'"},
        {"a -> b c", "expected end of line, found 'c'"},
        {"a -> b optional c", "expected end of line, found 'c'"},
        {"a|b|c|d|e -> f", "at most 4 names"},
        {"a.{i} -> b", "'{i}' of 'a.{i}' is not in 'b'"},
        {"a -> b/{i}", "'{i}' of 'b/{i}' is not in 'a'"},
        {"a.{i} | b.{j} -> c/{i}", "is not in"},
        {"a.{i}.{i} -> b/{i}", "'{i}' is twice"},
        {"a.{ -> b", "expected {name} in 'a.{', found '{'"},
        {"a.{} -> b", "expected {name}"},
        {"a.{1} -> b", "expected {name}"},
        {"a} -> b", "'}' without '{'"},
        {"a.{i.{j} -> b", "expected {name}"},
        {"a.{a}{b}{c}{d}{e} -> b", "at most 4 numbers"},
        {"a.* -> b", "only names to ignore may have one"},
        {"a -> {b,c}", "expected one '*' or '+' among the axes of the tensor, which 2 parameters make, found 0"},
        {"a [x] -> {b,c} [x]", "expected one '*' or '+'"},
        {"a [+(* x)] -> {b,c} [x]",
         "expected one '*' or '+' among the axes of the tensor, which 2 parameters make, found 2"},
        {"a [* x] -> b [x]", "'*' and '+' are for several parameters, found one"},
        {"a [* x] -> {b,b} [x]", "'b' is there twice"},
        {"a [* x] -> {b,} [x]", "expected a name before '}'"},
        {"a [* x] -> {a,b,c,d,e,f,g,h,i} [x]", "at most 8 parameters of one tensor"},
        {"a [x] -> b", "expected axes [...] on both sides"},
        {"a -> b [x]", "expected axes [...] on both sides"},
        {"a [x -> b [x]", "expected the name of an axis, found '-> b"},
        {"a [x] -> b [x", "expected ']', found end of line"},
        {"a [x y] -> b [x]", "the axis 'y' is not among those of the parameter"},
        {"a [x] -> b [x y]", "the axis 'y' of the parameter is not among those of the tensor"},
        {"a [x x] -> b [x]", "the axis 'x' is twice among those of the tensor"},
        {"a [x y] -> b [(x x) y]", "the axis 'x' is twice among those of the parameter"},
        {"a [(x y] -> b [x y]", "expected the name of an axis, found ']"},
        {"a [()] -> b []", "expected the name of an axis, found ')"},
        {"a [2] -> b [2]", "expected the name of an axis, found '2"},
        {"a [x] -> {b,c} [* x]", "expected the name of an axis, found '*"},
        {"a [* *] -> {b,c} []", "'*' is there twice"},
        {"a [+x +y] -> {b,c} [x y]", "'+' is there twice"},
        {"a [a b c d e f g h i] -> b []", "at most 8 axes"},
        {"ignore", "expected the name of a tensor to ignore"},
        {"ignore a b", "expected end of line, found 'b'"},
        {"prefix", "expected the beginning of names"},
        {"tied a", "expected '=' and the tensor that it is a copy of"},
        {"tied a =", "expected the tensor that it is a copy of"},
        {"tied a = b.{i}", "is not in 'a'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow_weight_mapping *m;
        expect(f, tow_weight_mapping_parse(f->ctx, "rules", cases[i].text, &m), TOW_BAD_FORMAT, cases[i].message);
        assert_null(m);
    }
}

static void tables_are_there(void **state)
{
    fixture *f = *state;
    static const char *const names[] = {"bert",      "gemma",      "gemma2",     "gguf-gemma", "gguf-gemma2",
                                        "gguf-gpt2", "gguf-llama", "gguf-qwen2", "gguf-qwen3", "gpt2",
                                        "llama",     "phi3",       "qwen3"};
    tow_weight_mapping *m;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_string_equal(tow_weight_mapping_table_name(i), names[i]);
        assert_non_null(strstr(tow_weight_mapping_table_text(i), " -> "));
        OK(tow_weight_mapping_read(f->ctx, names[i], &m));
        tow_weight_mapping_free(m);
    }
    assert_null(tow_weight_mapping_table_name(sizeof names / sizeof *names));
    assert_null(tow_weight_mapping_table_text(sizeof names / sizeof *names));
    expect(f, tow_weight_mapping_read(f->ctx, "gpt3", &m), TOW_NOT_FOUND,
           "gpt3: no such mapping; there are bert gemma gemma2 gguf-gemma gguf-gemma2 gguf-gpt2");
    expect(f, tow_weight_mapping_read(f->ctx, "./gpt2", &m), TOW_IO_ERROR, "./gpt2: cannot open");
    write_bytes(f->path, "a -> b\n\nx\n", 10);
    expect(f, tow_weight_mapping_read(f->ctx, f->path, &m), TOW_BAD_FORMAT, "/file:3: expected '->'");
    write_bytes(f->path, "a -> b\0", 7);
    expect(f, tow_weight_mapping_read(f->ctx, f->path, &m), TOW_BAD_FORMAT, "a zero byte");
    write_bytes(f->path, "a -> b # and\r\n", 14);
    OK(tow_weight_mapping_read(f->ctx, f->path, &m));
    tow_weight_mapping_free(m);
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

/* Loads tensor "a" into parameters, gives them to `check`, and expects writing to give the tensor again. */
static const tow_weight_mapping_options sizes =
    TOW_WEIGHT_MAPPING_OPTIONS(.n_axes = 1, .axes = &(const tow_weight_mapping_axis){"y", 3});
static void both_ways(const fixture *f, const char *rule, tow_type theirs, size_t n, const named *ours,
                      void (*check)(const tow_params *params))
{
    tow_weight_mapping *m = parse(f, rule);
    tow_tensors *set = make_tensors(f->ctx, 1, &(named){"a", theirs}), *back;
    tow_params *params = make_params(f->ctx, n, ours);
    OK(tow_weight_mapping_load(m, params, set, &sizes, NULL));
    check(params);
    OK(tow_weight_mapping_save_file(m, params, f->path, &sizes, NULL));
    OK(tow_safetensors_read(f->ctx, f->path, &back));
    assert_int_equal(tow_tensors_count(back), 1);
    assert_array(tow_tensors_find(back, "a"), theirs, tow_array_data(tow_tensors_at(set, 0)));
    tow_tensors_free(back);
    tow_tensors_free(set);
    tow_params_free(params);
    tow_weight_mapping_free(m);
}

static void check_plain(const tow_params *p) { FLOATS(tow_params_find(p, "b"), 0, 1, 2, 3, 4, 5); }
static void check_transposed(const tow_params *p) { FLOATS(tow_params_find(p, "b"), 0, 3, 1, 4, 2, 5); }
static void check_heads(const tow_params *p) /* a[h k][d], h = 2, k = 1, d = 3 -> [d h k] */
{
    FLOATS(tow_params_find(p, "b"), 0, 3, 1, 4, 2, 5);
}
static void check_joined(const tow_params *p) /* a[d][(* h k)], d = 2, three parts, h = 2, k = 1 */
{
    FLOATS(tow_params_find(p, "x/q"), 0, 1, 6, 7);
    FLOATS(tow_params_find(p, "x/k"), 2, 3, 8, 9);
    FLOATS(tow_params_find(p, "x/v"), 4, 5, 10, 11);
}
static void check_interleaved(const tow_params *p) /* a[(h * k)], h = 2, k = 2 */
{
    FLOATS(tow_params_find(p, "q"), 0, 1, 4, 5);
    FLOATS(tow_params_find(p, "k"), 2, 3, 6, 7);
}
static void check_unequal(const tow_params *p) /* a[+(h k)][d]: q has h = 2, k = 1, then k has h = 1 */
{
    FLOATS(tow_params_find(p, "q"), 0, 2, 1, 3);
    FLOATS(tow_params_find(p, "k"), 4, 5);
}
static void check_unequal_inner(const tow_params *p) /* a[d][+h], d = 2, h = 1 and 2 */
{
    FLOATS(tow_params_find(p, "q"), 0, 3);
    FLOATS(tow_params_find(p, "k"), 1, 2, 4, 5);
}
static void check_nothing(const tow_params *p) { assert_non_null(p); }

static void shapes(void **state)
{
    fixture *f = *state;
    const tow_type six = TYPE(TOW_F32, 2, 3);
    both_ways(f, "a -> b", six, 1, &(named){"b", six}, check_plain);
    both_ways(f, "a [x y] -> b [y x]", six, 1, &(named){"b", TYPE(TOW_F32, 3, 2)}, check_transposed);
    both_ways(f, "a [x y] -> b [(x y)]", six, 1, &(named){"b", TYPE(TOW_F32, 6)}, check_plain);
    both_ways(f, "a [x 1 y 1] -> b [1 x y]", TYPE(TOW_F32, 2, 1, 3, 1), 1, &(named){"b", TYPE(TOW_F32, 1, 2, 3)},
              check_plain);
    both_ways(f, "a [( h   k )\td] -> b [d h k]", TYPE(TOW_F32, 2, 3), 1, &(named){"b", TYPE(TOW_F32, 3, 2, 1)},
              check_heads);
    both_ways(f, "a [] -> b [1]", tow_make_type(TOW_F32, 0, NULL), 1, &(named){"b", TYPE(TOW_F32, 1)}, check_nothing);
    both_ways(f, "a [x y] -> b [y x]", TYPE(TOW_F32, 0, 3), 1, &(named){"b", TYPE(TOW_F32, 3, 0)}, check_nothing);
    const tow_type head = TYPE(TOW_F32, 2, 2, 1);
    both_ways(f, "a [d (* h k)] -> x/{q,k,v} [d h k]", TYPE(TOW_F32, 2, 6), 3,
              (const named[]){{"x/v", head}, {"x/q", head}, {"x/k", head}}, check_joined);
    both_ways(f, "a [(h * k)] -> {q,k} [h k]", TYPE(TOW_F32, 8), 2,
              (const named[]){{"q", TYPE(TOW_F32, 2, 2)}, {"k", TYPE(TOW_F32, 2, 2)}}, check_interleaved);
    both_ways(f, "a [+(h k) d] -> {q,k} [d h k]", TYPE(TOW_F32, 3, 2), 2,
              (const named[]){{"q", TYPE(TOW_F32, 2, 2, 1)}, {"k", TYPE(TOW_F32, 2, 1, 1)}}, check_unequal);
    both_ways(f, "a [d +h] -> {q,k} [d h]", TYPE(TOW_F32, 2, 3), 2,
              (const named[]){{"q", TYPE(TOW_F32, 2, 1)}, {"k", TYPE(TOW_F32, 2, 2)}}, check_unequal_inner);
}

static void wrong_shapes(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *rule, *message;
        int64_t rank, dims[3];
    } cases[] = {
        {"a -> b", "a: expected the shape of the parameter, f32[2,3], found f32[3,2] (rules:1)", 2, {3, 2}},
        {"a -> b", "found f32[6]", 1, {6}},
        {"a [x y] -> b [y x]", "a: expected a tensor of 3 on axis 0, found f32[2,3] (rules:1)", 2, {2, 3}},
        {"a [x y] -> b [y x]", "expected 2 axes of the tensor, as the rule says, found f32[6]", 1, {6}},
        {"a [x] -> b [x]", "expected 1 axes of the parameter, as the rule says, found f32[2,3]", 1, {6}},
        {"a [(h x) y] -> b [y (h x)]", "the shapes do not tell the size of the axis", 2, {3, 2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow_weight_mapping *m = parse(f, cases[i].rule);
        const tow_type type = tow_make_type(TOW_F32, (int)cases[i].rank, cases[i].dims);
        tow_tensors *set = make_tensors(f->ctx, 1, &(named){"a", type});
        tow_params *params = make_params(f->ctx, 1, &(named){"b", TYPE(TOW_F32, 2, 3)});
        const tow_status status = tow_weight_mapping_load(m, params, set, NULL, NULL);
        assert_true(status == TOW_SHAPE_MISMATCH || status == TOW_INVALID_ARGUMENT);
        assert_message(f, cases[i].message);
        FLOATS(tow_params_find(params, "b"), 0, 1, 2, 3, 4, 5);
        tow_tensors_free(set);
        tow_params_free(params);
        tow_weight_mapping_free(m);
    }
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* Checks what the report says about tensors and parameters that are all f32[1]. */
static void expect_report(const fixture *f, const char *rules, const char *const *tensors, const char *const *paths,
                          bool partial, tow_status status, const char *message, const char *text)
{
    named left[8], right[8];
    size_t n_left = 0, n_right = 0;
    for (; tensors[n_left]; n_left++) left[n_left] = (named){tensors[n_left], ONE};
    for (; paths[n_right]; n_right++) right[n_right] = (named){paths[n_right], ONE};
    tow_weight_mapping *m = parse(f, rules);
    tow_tensors *set = make_tensors(f->ctx, n_left, left);
    tow_params *params = make_params(f->ctx, n_right, right);
    tow_weight_mapping_report *report;
    char found[1024];
    expect(f, tow_weight_mapping_load(m, params, set, &TOW_WEIGHT_MAPPING_OPTIONS(.partial = partial), &report), status,
           message);
    if (text) {
        assert_non_null(report);
        const size_t length = tow_weight_mapping_report_text(report, found, sizeof found);
        assert_int_equal(length, strlen(found));
        assert_string_equal(found, text);
    } else {
        assert_null(report);
    }
    tow_weight_mapping_report_free(report);
    tow_tensors_free(set);
    tow_params_free(params);
    tow_weight_mapping_free(m);
}
#define LIST(...)                                                                                                      \
    (const char *const[]) { __VA_ARGS__, NULL }

static void names(void **state)
{
    fixture *f = *state;
    expect_report(f, "prefix p.\np.h.{i}.w -> blocks/{i}/k", LIST("p.h.0.w", "p.h.10.w"),
                  LIST("blocks/10/k", "blocks/0/k"), false, TOW_OK, NULL,
                  "tensors mapped     2\nparameters mapped  2\nmissing            0\nunused             0\n");
    expect_report(f, "prefix p.\np.h.{i}.w -> blocks/{i}/k", LIST("h.7.w"), LIST("blocks/7/k"), false, TOW_OK, NULL,
                  "tensors mapped     1\nparameters mapped  1\nmissing            0\nunused             0\n");
    expect_report(f, "h.{i}.w -> blocks/{i}/k", LIST("h.7.w", "h.x.w", "h.07.w", "h..w"), LIST("blocks/7/k", "c"),
                  false, TOW_NOT_FOUND,
                  "1 parameter has no tensor (c), 3 tensors have no parameter (h.x.w, h.07.w, h..w); use",
                  "tensors mapped     1\nparameters mapped  1\nmissing            1\n  c\nunused             3\n  "
                  "h.x.w\n  h.07.w\n  h..w\n");
    expect_report(f, "h.{i}.w -> blocks/{i}/k", LIST("h.7.w", "x"), LIST("blocks/7/k", "c"), true, TOW_OK, NULL,
                  "tensors mapped     1\nparameters mapped  1\nmissing            1\n  c\nunused             1\n  x\n");
    expect_report(f, "ignore *.mask.*\nignore m*n*\nw -> k", LIST("a.b.mask.c", "w", "mn", "mxxnyn"), LIST("k"), false,
                  TOW_OK, NULL,
                  "tensors mapped     1\nparameters mapped  1\nmissing            0\nunused             0\nignored     "
                  "       3\n");
    expect_report(f, "w -> k\nv -> l optional\nu -> m optional", LIST("w", "u"), LIST("k", "l"), false, TOW_OK, NULL,
                  "tensors mapped     1\nparameters mapped  1\nmissing            0\nunused             0\n"
                  "optional, left out 2\n  u\n  l\n");
    expect_report(f, "w | gamma -> k", LIST("gamma"), LIST("k"), false, TOW_OK, NULL,
                  "tensors mapped     1\nparameters mapped  1\nmissing            0\nunused             0\n");
    expect_report(f, "w | gamma -> k", LIST("w", "gamma"), LIST("k"), false, TOW_INVALID_ARGUMENT,
                  "gamma: 'w' is the parameter k already", NULL);
    expect_report(f, "a [* x] -> {b,c} [x]", LIST("a"), LIST("b"), true, TOW_NOT_FOUND,
                  "a: it is made of 2 parameters, of which the model has 1 only (rules:1)",
                  "tensors mapped     0\nparameters mapped  0\nmissing            0\nunused             0\n");
    expect_report(f, "tied t = w\nw -> k", LIST("w", "t"), LIST("k"), false, TOW_INVALID_ARGUMENT,
                  "t: expected a copy of w, found other values", NULL);
    expect_report(f, "tied t = w\nw -> k", LIST("t"), LIST("k"), false, TOW_NOT_FOUND,
                  "t: it is a copy of 'w', which is not there",
                  "tensors mapped     0\nparameters mapped  0\nmissing            0\nunused             0\n");
    expect_report(f, "w -> k", LIST("v"), LIST("k"), true, TOW_OK, NULL,
                  "tensors mapped     0\nparameters mapped  0\nmissing            1\n  k\nunused             1\n  v\n");
}

static void tied_copies_are_compared(void **state)
{
    fixture *f = *state;
    tow_weight_mapping *m = parse(f, "prefix p.\ntied t = p.w\np.w -> k");
    tow_tensors *set = make_tensors(f->ctx, 1, &(named){"w", ONE});
    tow_params *params = make_params(f->ctx, 1, &(named){"k", ONE});
    tow_weight_mapping_report *report;
    assert_int_equal(tow_tensors_add(set, "t", tow_tensors_at(set, 0)), TOW_OK);
    OK(tow_weight_mapping_load(m, params, set, NULL, &report));
    assert_int_equal(tow_weight_mapping_report_count(report, TOW_TIED), 1);
    assert_string_equal(tow_weight_mapping_report_name(report, TOW_TIED, 0), "t");
    assert_null(tow_weight_mapping_report_name(report, TOW_TIED, 1));
    tow_weight_mapping_report_free(report);
    OK(tow_weight_mapping_save_file(m, params, f->path, NULL, NULL));
    tow_tensors_free(set);
    OK(tow_safetensors_read(f->ctx, f->path, &set));
    assert_int_equal(tow_tensors_count(set), 1);
    assert_string_equal(tow_tensors_name(set, 0), "p.w");
    assert_string_equal(tow_tensors_metadata(set, "format"), "pt");
    tow_tensors_free(set);
    tow_params_free(params);
    tow_weight_mapping_free(m);
}

/* Only parameters below a prefix are loaded and written; layers of a stack are rows of one array. */
/* A tensor of a rule is a copy where the model does not have the rule's parameter: some tied models have been written
 * with their output projection. */
static void copies_of_tensors_with_a_rule(void **state)
{
    const fixture *f = *state;
    static const char rules[] = "a -> x\nb -> y\ntied b = a\n";
    const named both[] = {{"a", TYPE(TOW_F32, 2)}, {"b", TYPE(TOW_F32, 2)}}, ours[] = {{"x", TYPE(TOW_F32, 2)}},
                two[] = {{"x", TYPE(TOW_F32, 2)}, {"y", TYPE(TOW_F32, 2)}};
    tow_weight_mapping *m = parse(f, rules);
    tow_tensors *set = make_tensors(f->ctx, 2, both);
    tow_params *params = make_params(f->ctx, 1, ours), *separate = make_params(f->ctx, 2, two);
    tow_weight_mapping_report *report;
    OK(tow_weight_mapping_load(m, separate, set, NULL, NULL));
    FLOATS(tow_params_find(separate, "y"), 2, 3);
    expect(f, tow_weight_mapping_load(m, params, set, NULL, NULL), TOW_INVALID_ARGUMENT, "expected a copy of a");
    memcpy(tow_array_data(tow_tensors_find(set, "b")), tow_array_data(tow_tensors_find(set, "a")), 2 * sizeof(float));
    OK(tow_weight_mapping_load(m, params, set, NULL, &report));
    assert_string_equal(tow_weight_mapping_report_name(report, TOW_TIED, 0), "b");
    assert_int_equal(tow_weight_mapping_report_count(report, TOW_FATE_UNUSED), 0);
    tow_weight_mapping_report_free(report);
    tow_params_free(params);
    tow_params_free(separate);
    tow_tensors_free(set);
    tow_weight_mapping_free(m);
}

/* A tensor that no rule asks for may be of a type that Tow does not have. */
static void foreign_tensors(void **state)
{
    const fixture *f = *state;
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                                 "\"b\":{\"dtype\":\"F8_E5M2\",\"shape\":[4],\"data_offsets\":[4,8]}}";
    const named ours[] = {{"x", TYPE(TOW_F32, 1)}}, both[] = {{"x", TYPE(TOW_F32, 1)}, {"y", TYPE(TOW_F32, 4)}};
    unsigned char bytes[sizeof header + 15] = {sizeof header - 1};
    memcpy(bytes + 8, header, sizeof header - 1);
    write_bytes(f->path, bytes, 8 + sizeof header - 1 + 8);
    tow_params *params = make_params(f->ctx, 1, ours), *wanted = make_params(f->ctx, 2, both);
    ((float *)tow_array_data(tow_params_find(params, "x")))[0] = 7;
    tow_weight_mapping *m = parse(f, "a -> x\nb -> y\n"), *ignores = parse(f, "a -> x\nignore b\n");
    OK(tow_weight_mapping_load_file(ignores, params, f->path, NULL, NULL));
    FLOATS(tow_params_find(params, "x"), 0);
    OK(tow_weight_mapping_load_file(m, params, f->path, &TOW_WEIGHT_MAPPING_OPTIONS(.partial = true), NULL));
    expect(f, tow_weight_mapping_load_file(m, wanted, f->path, &TOW_WEIGHT_MAPPING_OPTIONS(.convert = true), NULL),
           TOW_UNSUPPORTED, "found F8_E5M2");
    expect(f, tow_weight_mapping_convert_file(f->ctx, m, f->path, f->path, false, NULL, NULL), TOW_UNSUPPORTED,
           "found F8_E5M2");
    tow_load_report report;
    char text[256];
    const tow_load_options some =
        TOW_LOAD_OPTIONS(.allow_missing = true, .allow_mismatch = true, .allow_unused = true, .report = &report);
    tow_params *named_so = make_params(f->ctx, 1, (const named[]){{"b", TYPE(TOW_F32, 4)}});
    expect(f, tow_params_load(named_so, "", f->path, &TOW_LOAD_OPTIONS(.allow_unused = true)), TOW_UNSUPPORTED,
           "F8_E5M2");
    OK(tow_params_load(named_so, "", f->path, &some));
    tow_load_report_text(&report, text, sizeof text);
    assert_non_null(strstr(text, "b: expected f32[4], found what Tow cannot read"));
    tow_load_report_free(&report);
    tow_params_free(named_so);
    tow_params_free(params);
    tow_params_free(wanted);
    tow_weight_mapping_free(m);
    tow_weight_mapping_free(ignores);
}

static void a_part_of_a_model(void **state)
{
    fixture *f = *state;
    tow_weight_mapping *m = parse(f, "h.{i}.w [o i] -> blocks/{i}/k [i o]\n");
    const tow_weight_mapping_options options = TOW_WEIGHT_MAPPING_OPTIONS(.prefix = "encoder/");
    tow_tensors *set =
        make_tensors(f->ctx, 2, (const named[]){{"h.1.w", TYPE(TOW_F32, 2, 2)}, {"h.0.w", TYPE(TOW_F32, 2, 2)}});
    tow_params *params = make_params(
        f->ctx, 2,
        (const named[]){{"encoder/blocks/{}/k", TYPE(TOW_F32, 2, 2, 2)}, {"blocks/0/k", TYPE(TOW_F32, 2, 2)}});
    OK(tow_weight_mapping_load(m, params, set, &options, NULL));
    FLOATS(tow_params_find(params, "encoder/blocks/{}/k"), 4, 6, 5, 7, 0, 2, 1, 3);
    FLOATS(tow_params_find(params, "blocks/0/k"), 8, 9, 10, 11);
    OK(tow_weight_mapping_save_file(m, params, f->path, &options, NULL));
    tow_tensors *back;
    OK(tow_safetensors_read(f->ctx, f->path, &back));
    assert_int_equal(tow_tensors_count(back), 2);
    for (size_t i = 0; i < 2; i++)
        assert_array(tow_tensors_find(back, tow_tensors_name(set, i)), TYPE(TOW_F32, 2, 2),
                     tow_array_data(tow_tensors_at(set, i)));
    expect(f, tow_weight_mapping_save_file(m, params, f->path, NULL, NULL), TOW_NOT_FOUND, NULL);
    assert_message(f, "2 parameters have no rule (encoder/blocks/0/k, encoder/blocks/1/k); use");
    tow_tensors_free(back);
    tow_tensors_free(set);
    tow_params_free(params);
    tow_weight_mapping_free(m);
}

/* ---- element types ----------------------------------------------------------------------------------------------- */

static void element_types(void **state)
{
    fixture *f = *state;
    tow_weight_mapping *m = parse(f, "a [x y] -> b [y x]\n");
    tow_params *params = make_params(f->ctx, 1, &(named){"b", TYPE(TOW_F32, 2, 1)}), *integers;
    tow_tensors *set, *back;
    static const uint16_t halves[2] = {0x3f80, 0xc000};
    static const int64_t large[2] = {1, 1 << 20};
    tow_array *array = array_of(f, TYPE(TOW_BF16, 1, 2), halves), *small;
    OK(tow_tensors_create(f->ctx, &set));
    OK(tow_tensors_add(set, "a", array));
    tow_array_release(array);
    expect(f, tow_weight_mapping_load(m, params, set, NULL, NULL), TOW_TYPE_MISMATCH,
           "a: expected f32, found bf16; to convert it, load it with .convert (rules:1)");
    FLOATS(tow_params_find(params, "b"), 0, 1);
    OK(tow_weight_mapping_load(m, params, set, &TOW_WEIGHT_MAPPING_OPTIONS(.convert = true), NULL));
    FLOATS(tow_params_find(params, "b"), 1, -2);
    OK(tow_weight_mapping_save_file(m, params, f->path, &TOW_WEIGHT_MAPPING_OPTIONS(.convert = true, .dtype = TOW_BF16),
                                    NULL));
    OK(tow_safetensors_read(f->ctx, f->path, &back));
    assert_array(tow_tensors_find(back, "a"), TYPE(TOW_BF16, 1, 2), halves);
    tow_tensors_free(back);
    expect(f,
           tow_weight_mapping_save_file(m, params, f->path,
                                        &TOW_WEIGHT_MAPPING_OPTIONS(.convert = true, .dtype = (tow_dtype)99), NULL),
           TOW_INVALID_ARGUMENT, "expected an element type as .dtype, found 99");
    tow_tensors_free(set);
    /* integers that do not fit are found before anything is copied */
    OK(tow_tensors_create(f->ctx, &set));
    array = array_of(f, TYPE(TOW_I64, 1, 2), large);
    OK(tow_tensors_add(set, "a", array));
    tow_array_release(array);
    small = array_of(f, TYPE(TOW_I8, 2, 1), "\1\2");
    OK(tow_params_from_arrays(f->ctx, 1, (const char *const[]){"b"}, &small, &integers));
    expect(f, tow_weight_mapping_load(m, integers, set, &TOW_WEIGHT_MAPPING_OPTIONS(.convert = true), NULL),
           TOW_TYPE_MISMATCH, "found 1048576 at element 1");
    assert_memory_equal(tow_array_data(small), "\1\2", 2);
    tow_array_release(small);
    tow_tensors_free(set);
    tow_params_free(integers);
    tow_params_free(params);
    tow_weight_mapping_free(m);
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(bad_texts),
        TEST(tables_are_there),
        TEST(shapes),
        TEST(wrong_shapes),
        TEST(names),
        TEST(tied_copies_are_compared),
        TEST(copies_of_tensors_with_a_rule),
        TEST(foreign_tensors),
        TEST(a_part_of_a_model),
        TEST(element_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
