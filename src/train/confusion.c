/* Confusion counts, and precision, recall and F1 of them. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "src/base/base.h"
#include "src/train/scores.h"
#include "tow/log.h"

struct tow_confusion {
    tow_context *ctx;
    int64_t classes;
    int64_t *counts; /* [classes, classes]: label, prediction */
};

tow_status tow_confusion_create(tow_context *context, int64_t classes, tow_confusion **confusion)
{
    if (confusion) *confusion = NULL;
    if (!context || !confusion) return tow__missing(context, __func__, "a context and a place for the counts");
    if (classes < 2 || classes > INT32_MAX)
        return tow__fail(context, TOW_INVALID_ARGUMENT,
                         "tow_confusion_create: expected 2 classes or more, found %" PRId64, classes);
    tow_confusion *c = tow__alloc(context, 1, sizeof *c);
    if (!c) return TOW_OUT_OF_MEMORY;
    *c = (tow_confusion){.ctx = context, .classes = classes};
    c->counts = tow__alloc(context, (size_t)(classes * classes), sizeof *c->counts);
    if (!c->counts) {
        tow_confusion_free(c);
        return TOW_OUT_OF_MEMORY;
    }
    *confusion = c;
    return TOW_OK;
}

void tow_confusion_free(tow_confusion *c)
{
    if (!c) return;
    if (c->counts) tow__free(c->ctx, c->counts, (size_t)(c->classes * c->classes), sizeof *c->counts);
    tow__free(c->ctx, c, 1, sizeof *c);
}

void tow_confusion_reset(tow_confusion *c)
{
    memset(c->counts, 0, (size_t)(c->classes * c->classes) * sizeof *c->counts);
}
int64_t tow_confusion_class_count(const tow_confusion *c) { return c->classes; }
const int64_t *tow_confusion_counts(const tow_confusion *c) { return c->counts; }

/* The class that a row predicts; -1: none, because a score is NaN. */
static int64_t prediction(const tow__scores *s, int64_t row)
{
    int64_t best = 0;
    if (s->plain) {
        const double value = tow__scores_value(s, row, 0);
        return value >= 0 && value < (double)s->classes && value == floor(value) ? (int64_t)value : -1;
    }
    for (int64_t i = 0; i < s->classes; i++) {
        const double value = tow__scores_value(s, row, i);
        if (isnan(value)) return -1;
        if (value > tow__scores_value(s, row, best)) best = i;
    }
    return best;
}

tow_status tow_confusion_add(tow_confusion *c, const tow_array *predictions, const tow_array *labels,
                             const tow_array *mask)
{
    tow__scores s = {.scores = predictions, .labels = labels, .mask = mask};
    if (!c) return tow__missing(NULL, __func__, "confusion counts");
    tow_status status = tow__scores_check(__func__, &s, c->classes);
    if (status != TOW_OK) return status;
    if (s.classes != c->classes)
        return tow__fail(c->ctx, TOW_SHAPE_MISMATCH,
                         "tow_confusion_add: expected scores of %" PRId64 " classes, found %s", c->classes,
                         tow__type_name(tow_array_type(predictions)).text);
    for (int pass = 0; pass < 2; pass++) /* nothing is added before everything was looked at */
        for (int64_t row = 0; row < s.rows; row++) {
            if (!tow__scores_counts(&s, row)) continue;
            const int64_t predicted = prediction(&s, row);
            if (predicted < 0)
                return tow__fail(c->ctx, TOW_INVALID_ARGUMENT,
                                 "tow_confusion_add: prediction %" PRId64 ": expected a class in [0, %" PRId64
                                 "), or scores without NaN, found %g",
                                 row, c->classes, s.plain ? tow__scores_value(&s, row, 0) : NAN);
            c->counts[tow__scores_label(&s, row) * c->classes + predicted] += pass;
        }
    return TOW_OK;
}

/* ---- what follows from the counts -------------------------------------------------------------------------------- */

static double ratio(int64_t a, int64_t b) { return b ? (double)a / (double)b : 0; }

tow_precision_recall tow_confusion_class(const tow_confusion *c, int64_t index)
{
    int64_t predicted = 0, support = 0;
    const int64_t n = c->classes;
    if (index < 0 || index >= n) return (tow_precision_recall){0};
    for (int64_t i = 0; i < n; i++) {
        predicted += c->counts[i * n + index];
        support += c->counts[index * n + i];
    }
    const int64_t both = c->counts[index * n + index];
    return (tow_precision_recall){.precision = ratio(both, predicted),
                                  .recall = ratio(both, support),
                                  .f1 = ratio(2 * both, predicted + support),
                                  .support = support};
}

static int64_t sum(const tow_confusion *c, bool diagonal)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < c->classes * c->classes; i++)
        sum += !diagonal || i % (c->classes + 1) == 0 ? c->counts[i] : 0;
    return sum;
}

double tow_confusion_accuracy(const tow_confusion *c)
{
    const int64_t total = sum(c, false);
    return total ? (double)sum(c, true) / (double)total : NAN;
}

tow_precision_recall tow_confusion_average(const tow_confusion *c, tow_class_average average)
{
    const int64_t total = sum(c, false);
    tow_precision_recall mean = {.support = total};
    if (average == TOW_MICRO) {
        mean.precision = mean.recall = mean.f1 = ratio(sum(c, true), total);
        return mean;
    }
    for (int64_t i = 0; i < c->classes; i++) {
        const tow_precision_recall x = tow_confusion_class(c, i);
        const double weight = average == TOW_WEIGHTED ? ratio(x.support, total) : 1 / (double)c->classes;
        mean.precision += weight * x.precision;
        mean.recall += weight * x.recall;
        mean.f1 += weight * x.f1;
    }
    return mean;
}

static void add_row(tow__string *s, const char *name, tow_precision_recall x)
{
    tow__string_add(s, "%12s %10.4f %10.4f %10.4f %10" PRId64 "\n", name, x.precision, x.recall, x.f1, x.support);
}

size_t tow_confusion_text(const tow_confusion *c, char *text, size_t size)
{
    tow__string s;
    char name[24];
    tow__string_init(&s, c->ctx);
    tow__string_add(&s, "%12s", "label\\as");
    for (int64_t i = 0; i < c->classes; i++) tow__string_add(&s, " %7" PRId64, i);
    for (int64_t i = 0; i < c->classes; i++) {
        tow__string_add(&s, "\n%12" PRId64, i);
        for (int64_t k = 0; k < c->classes; k++) tow__string_add(&s, " %7" PRId64, c->counts[i * c->classes + k]);
    }
    tow__string_add(&s, "\n\n%12s %10s %10s %10s %10s\n", "class", "precision", "recall", "f1", "support");
    for (int64_t i = 0; i < c->classes; i++) {
        snprintf(name, sizeof name, "%" PRId64, i);
        add_row(&s, name, tow_confusion_class(c, i));
    }
    add_row(&s, "macro", tow_confusion_average(c, TOW_MACRO));
    add_row(&s, "weighted", tow_confusion_average(c, TOW_WEIGHTED));
    tow__string_add(&s, "%12s %10.4f\n", "accuracy", tow_confusion_accuracy(c));
    const size_t length = tow__string_export(&s, text, size);
    tow__string_free(&s);
    return length;
}
