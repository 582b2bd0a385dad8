/* Metrics beside nnx and numpy (tests/oracle/training_golden.py), over batches cut anyhow. Tests metrics.c,
 * confusion.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/support/running_layer.h"

enum {
    ROWS = 40,
    CLASSES = 5
};

/* The numbers of the line "metric NAME - ..."; how many there are. */
static int expected(const char *name, double numbers[4])
{
    char line[1 << 14], word[32], which[32];
    FILE *file = fopen(TOW_TEST_DATA "/oracle/golden/training.txt", "r");
    int n = -1;
    assert_non_null(file);
    while (n < 0 && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%31s %31s", word, which) != 2 || strcmp(word, "metric") != 0 || strcmp(which, name) != 0)
            continue;
        n = sscanf(strchr(line, '-') + 1, "%lf %lf %lf %lf", &numbers[0], &numbers[1], &numbers[2], &numbers[3]);
    }
    fclose(file);
    if (n < 1) fail_msg("no line for metric %s", name);
    return n;
}

static void check(const char *name, int at, double found)
{
    double numbers[4];
    assert_true(at < expected(name, numbers));
    if (!(fabs(found - numbers[at]) <= 1e-7))
        fail_msg("%s[%d]: expected %.9g, found %.9g", name, at, numbers[at], found);
}

/* Rows [first, first + n) of the scores, or one column of them, and of the labels. */
static tow_array *scores_of(int first, int n, bool one_column)
{
    tow_array *x;
    OK(tow_array_create(ctx, one_column ? TYPE(TOW_F32, n) : TYPE(TOW_F32, n, CLASSES), &x));
    float *data = tow_array_data(x);
    const int width = one_column ? 1 : CLASSES;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < width; k++)
            data[i * width + k] = (float)((7919 * ((first + i) * CLASSES + k)) % 257 - 128) / 64;
    return x;
}

static int label_of(int i) { return (i * i + i / 3) % CLASSES; }

static tow_array *labels_of(int first, int n, tow_dtype dtype, bool above_two)
{
    tow_array *x, *converted;
    OK(tow_array_create(ctx, TYPE(TOW_I32, n), &x));
    for (int i = 0; i < n; i++)
        ((int32_t *)tow_array_data(x))[i] = above_two ? label_of(first + i) > 2 : label_of(first + i);
    OK(tow_array_convert(x, dtype, &converted));
    tow_array_release(x);
    return converted;
}

static void accuracy_is_that_of_nnx(void **state)
{
    (void)state;
    static const char *const names[] = {"accuracy", "top1", "top2", "top3", "top5"};
    static const int64_t ks[] = {0, 1, 2, 3, 5};
    static const tow_dtype dtypes[] = {TOW_I32, TOW_U8, TOW_I64, TOW_U32, TOW_I8};
    for (size_t c = 0; c < 5; c++)
        for (int size = 1; size <= ROWS; size += 13) { /* batches of 1, 14, 27, 40 */
            tow_accuracy a = {0};
            for (int first = 0; first < ROWS; first += size) {
                const int n = first + size < ROWS ? size : ROWS - first;
                tow_array *scores = scores_of(first, n, false), *labels = labels_of(first, n, dtypes[c], false);
                OK(tow_accuracy_add(&a, scores, labels, &TOW_ACCURACY_OPTIONS(.k = ks[c])));
                tow_array_release(scores);
                tow_array_release(labels);
            }
            assert_int_equal(a.total, ROWS);
            check(names[c], 0, tow_accuracy_value(&a));
        }
    tow_accuracy a = {0};
    double numbers[4];
    tow_array *scores = scores_of(0, ROWS, true), *labels = labels_of(0, ROWS, TOW_BOOL, true);
    for (int i = 0; i < ROWS; i++)
        ((float *)tow_array_data(scores))[i] = (float)((7919 * i * CLASSES) % 257 - 128) / 64;
    OK(tow_accuracy_add(&a, scores, labels, &TOW_ACCURACY_OPTIONS(.threshold = 0.25)));
    expected("binary", numbers);
    assert_true(tow_accuracy_value(&a) == numbers[0]);
    assert_true(isnan(tow_accuracy_value(&(tow_accuracy){0})));
    tow_array_release(scores);
    tow_array_release(labels);
}

/* Equal scores: the first one is the largest; a row with a NaN is wrong; what is masked does not count and need not be
 * a class. */
static void ties_and_masks(void **state)
{
    (void)state;
    static const float numbers[] = {1, 1, 0, /**/ 1, 1, 0, /**/ NAN, 0, 0, /**/ 0, 0, 1, /**/ 0, 2, 1};
    static const int32_t classes[] = {0, 1, 0, -1, 2};
    static const bool counts[] = {true, true, true, false, true};
    tow_array *scores, *labels, *mask;
    OK(tow_array_from_data(ctx, TYPE(TOW_F32, 5, 3), numbers, &scores));
    OK(tow_array_from_data(ctx, TYPE(TOW_I32, 5), classes, &labels));
    OK(tow_array_from_data(ctx, TYPE(TOW_BOOL, 5), counts, &mask));
    tow_accuracy a = {0};
    expect_error(tow_accuracy_add(&a, scores, labels, NULL), TOW_INVALID_ARGUMENT,
                 "label 3: expected a class in [0, 3), found -1");
    assert_int_equal(a.total, 0);
    OK(tow_accuracy_add(&a, scores, labels, &TOW_ACCURACY_OPTIONS(.mask = mask)));
    assert_true(a.correct == 1 && a.total == 4);
    a = (tow_accuracy){0};
    OK(tow_accuracy_add(&a, scores, labels, &TOW_ACCURACY_OPTIONS(.mask = mask, .k = 2)));
    assert_true(a.correct == 3 && a.total == 4);
    tow_array_release(scores);
    tow_array_release(labels);
    tow_array_release(mask);
}

static void confusion_is_that_of_numpy(void **state)
{
    (void)state;
    static const char *const names[] = {"class0", "class1", "class2", "class3", "class4"};
    tow_confusion *c;
    char text[2000];
    OK(tow_confusion_create(ctx, CLASSES, &c));
    assert_true(isnan(tow_confusion_accuracy(c)));
    for (int twice = 0; twice < 2; twice++) {
        for (int first = 0; first < ROWS; first += 7) {
            const int n = first + 7 < ROWS ? 7 : ROWS - first;
            tow_array *scores = scores_of(first, n, false), *labels = labels_of(first, n, TOW_I32, false);
            OK(tow_confusion_add(c, scores, labels, NULL));
            tow_array_release(scores);
            tow_array_release(labels);
        }
        for (int i = 0; i < CLASSES; i++) {
            const tow_precision_recall x = tow_confusion_class(c, i);
            check(names[i], 0, x.precision);
            check(names[i], 1, x.recall);
            check(names[i], 2, x.f1);
            check(names[i], 3, (double)x.support);
        }
        const tow_precision_recall macro = tow_confusion_average(c, TOW_MACRO),
                                   weighted = tow_confusion_average(c, TOW_WEIGHTED),
                                   micro = tow_confusion_average(c, TOW_MICRO);
        check("macro", 0, macro.precision);
        check("macro", 1, macro.recall);
        check("macro", 2, macro.f1);
        check("weighted", 0, weighted.precision);
        check("weighted", 1, weighted.recall);
        check("weighted", 2, weighted.f1);
        check("accuracy", 0, micro.f1);
        check("accuracy", 0, tow_confusion_accuracy(c));
        assert_int_equal(macro.support, ROWS);
        tow_confusion_text(c, text, sizeof text);
        assert_non_null(strstr(text, "    weighted     0.4585     0.4500     0.4392         40"));
        tow_confusion_reset(c);
    }
    /* predicted classes in place of scores */
    static const int32_t predicted[] = {1, 1, 4};
    static const int32_t right[] = {1, 2, 4};
    tow_array *a, *b;
    OK(tow_array_from_data(ctx, TYPE(TOW_I32, 3), predicted, &a));
    OK(tow_array_from_data(ctx, TYPE(TOW_I32, 3), right, &b));
    OK(tow_confusion_add(c, a, b, NULL));
    const int64_t *counts = tow_confusion_counts(c);
    assert_true(counts[1 * CLASSES + 1] == 1 && counts[2 * CLASSES + 1] == 1 && counts[4 * CLASSES + 4] == 1);
    ((int32_t *)tow_array_data(a))[2] = 5;
    expect_error(tow_confusion_add(c, a, b, NULL), TOW_INVALID_ARGUMENT, "prediction 2: expected a class in [0, 5)",
                 "found 5");
    assert_true(counts[1 * CLASSES + 1] == 1 && counts[2 * CLASSES + 1] == 1);
    tow_array_release(a);
    tow_array_release(b);
    tow_confusion_free(c);
    tow_confusion_free(NULL);
}

static void statistics_are_those_of_nnx(void **state)
{
    (void)state;
    tow_statistics all = {0}, one_by_one = {0};
    for (int first = 0; first < ROWS; first += 5) {
        tow_array *x = scores_of(first, 5, false);
        OK(tow_statistics_add_array(&all, x));
        for (int i = 0; i < 5 * CLASSES; i++)
            tow_statistics_add(&one_by_one, (double)((const float *)tow_array_data(x))[i]);
        tow_array_release(x);
    }
    const tow_statistics *const both[] = {&all, &one_by_one};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(both[i]->count, ROWS * CLASSES);
        check("welford", 0, both[i]->mean);
        check("welford", 1, tow_statistics_deviation(both[i]));
        check("welford", 2, tow_statistics_error(both[i]));
    }
    /* large numbers whose squares are inexact: variance of {1e9, 1e9 + 1, 1e9 + 2} is 2/3 */
    tow_statistics far = {0};
    for (int i = 0; i < 3; i++) tow_statistics_add(&far, 1e9 + i);
    assert_true(fabs(tow_statistics_variance(&far) - 2.0 / 3) < 1e-12);
    assert_true(isnan(tow_statistics_variance(&(tow_statistics){0})));
    tow_weighted_mean mean = {0};
    assert_true(isnan(tow_weighted_mean_value(&mean)));
    tow_weighted_mean_add(&mean, log(8), 3);
    tow_weighted_mean_add(&mean, log(2), 1);
    tow_weighted_mean_add(&mean, NAN, 0); /* a batch whose tokens are all masked */
    assert_true(fabs(tow_weighted_mean_value(&mean) - 2.5 * log(2)) < 1e-15);
    assert_true(fabs(tow_perplexity(&mean) - pow(2, 2.5)) < 1e-14);
}

static void refused(void **state)
{
    (void)state;
    tow_array *scores = scores_of(0, 4, false), *labels = labels_of(0, 4, TOW_I32, false),
              *fewer = labels_of(0, 3, TOW_I32, false);
    tow_accuracy a = {0};
    tow_confusion *c;
    expect_error(tow_accuracy_add(&a, scores, fewer, NULL), TOW_SHAPE_MISMATCH, "i32[3], found f32[4,5]");
    expect_error(tow_accuracy_add(&a, scores, scores, NULL), TOW_TYPE_MISMATCH, "labels: expected integers, found f32");
    expect_error(tow_accuracy_add(&a, scores, labels, &TOW_ACCURACY_OPTIONS(.mask = labels)), TOW_TYPE_MISMATCH,
                 "mask: expected bool");
    assert_int_equal(tow_accuracy_add(&a, NULL, labels, NULL), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_accuracy_add(NULL, scores, labels, NULL), TOW_INVALID_ARGUMENT);
    expect_error(tow_confusion_create(ctx, 1, &c), TOW_INVALID_ARGUMENT, "expected 2 classes or more, found 1");
    OK(tow_confusion_create(ctx, 4, &c));
    expect_error(tow_confusion_add(c, scores, labels, NULL), TOW_SHAPE_MISMATCH, "expected scores of 4 classes");
    ((float *)tow_array_data(scores))[6] = NAN;
    tow_confusion_free(c);
    OK(tow_confusion_create(ctx, CLASSES, &c));
    expect_error(tow_confusion_add(c, scores, labels, NULL), TOW_INVALID_ARGUMENT, "prediction 1");
    assert_true(isnan(tow_confusion_accuracy(c)));
    tow_confusion_free(c);
    tow_array_release(scores);
    tow_array_release(labels);
    tow_array_release(fewer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(accuracy_is_that_of_nnx, setup, teardown),
        cmocka_unit_test_setup_teardown(ties_and_masks, setup, teardown),
        cmocka_unit_test_setup_teardown(confusion_is_that_of_numpy, setup, teardown),
        cmocka_unit_test_setup_teardown(statistics_are_those_of_nnx, setup, teardown),
        cmocka_unit_test_setup_teardown(refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
