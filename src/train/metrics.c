/* Means, accuracy, and what all metrics over scores check. */
#include "tow/log.h"

#include <inttypes.h>
#include <math.h>

#include "src/base/base.h"
#include "src/base/dtypes.h"
#include "src/base/options.h"
#include "src/train/scores.h"

/* ---- means ------------------------------------------------------------------------------------------------------- */

void tow_statistics_add(tow_statistics *s, double value)
{
    const double distance = value - s->mean;
    s->count++;
    s->mean += distance / (double)s->count;
    s->squares += distance * (value - s->mean);
}

tow_status tow_statistics_add_array(tow_statistics *s, const tow_array *values)
{
    if (!s || !values) return tow__missing(NULL, __func__, "statistics and an array");
    const tow_type type = tow_array_type(values);
    tow_statistics more = {0};
    for (int64_t i = 0; i < tow_type_element_count(type); i++)
        tow_statistics_add(&more, tow__load_element(type.dtype, tow_array_data(values), i).f);
    tow_statistics_merge(s, &more);
    return TOW_OK;
}

void tow_statistics_merge(tow_statistics *s, const tow_statistics *other)
{
    if (other->count == 0) return;
    const double n = (double)s->count, m = (double)other->count, distance = other->mean - s->mean;
    s->count += other->count;
    s->mean += distance * m / (n + m);
    s->squares += other->squares + distance * distance * n * m / (n + m);
}

double tow_statistics_variance(const tow_statistics *s) { return s->count ? s->squares / (double)s->count : NAN; }
double tow_statistics_deviation(const tow_statistics *s) { return sqrt(tow_statistics_variance(s)); }
double tow_statistics_error(const tow_statistics *s)
{
    return s->count ? tow_statistics_deviation(s) / sqrt((double)s->count) : NAN;
}

void tow_weighted_mean_add(tow_weighted_mean *m, double value, double weight)
{
    if (weight == 0) return; /* a batch without examples, whose mean is no number */
    m->sum += value * weight;
    m->weight += weight;
}

double tow_weighted_mean_value(const tow_weighted_mean *m) { return m->weight == 0 ? NAN : m->sum / m->weight; }
double tow_perplexity(const tow_weighted_mean *m) { return exp(tow_weighted_mean_value(m)); }

/* ---- rows of scores ---------------------------------------------------------------------------------------------- */

static bool same_dims(tow_type a, tow_type b, int rank)
{
    for (int i = 0; i < rank; i++)
        if (a.dims[i] != b.dims[i]) return false;
    return true;
}

static tow_status check_types(tow_context *ctx, const char *function, const tow__scores *s)
{
    const tow_type labels = tow_array_type(s->labels);
    if (!tow_dtype_is_integer(labels.dtype) && labels.dtype != TOW_BOOL)
        return tow__fail(ctx, TOW_TYPE_MISMATCH, "%s: labels: expected integers, found %s", function,
                         tow__type_name(labels).text);
    if (!s->mask) return TOW_OK;
    const tow_type mask = tow_array_type(s->mask);
    if (mask.dtype != TOW_BOOL)
        return tow__fail(ctx, TOW_TYPE_MISMATCH, "%s: mask: expected bool, found %s", function,
                         tow__type_name(mask).text);
    if (mask.rank != labels.rank || !same_dims(mask, labels, labels.rank))
        return tow__fail(ctx, TOW_SHAPE_MISMATCH, "%s: mask: expected the shape of the labels, %s, found %s", function,
                         tow__type_name(labels).text, tow__type_name(mask).text);
    return TOW_OK;
}

static tow_status check_shapes(tow_context *ctx, const char *function, tow__scores *s, int64_t classes)
{
    const tow_type scores = tow_array_type(s->scores), labels = tow_array_type(s->labels);
    const bool floats = tow_dtype_is_float(scores.dtype);
    s->rows = tow_type_element_count(labels);
    s->plain = scores.rank == labels.rank && same_dims(scores, labels, labels.rank);
    const bool by_class = floats && scores.rank == labels.rank + 1 && same_dims(scores, labels, labels.rank);
    s->classes = by_class ? scores.dims[scores.rank - 1] : classes;
    if (!s->plain && !by_class)
        return tow__fail(ctx, TOW_SHAPE_MISMATCH,
                         "%s: expected float scores [..., classes] or predictions of the labels' shape, %s, found %s",
                         function, tow__type_name(labels).text, tow__type_name(scores).text);
    return TOW_OK;
}

tow_status tow__scores_check(const char *function, tow__scores *s, int64_t classes)
{
    if (!s->scores || !s->labels) return tow__missing(NULL, function, "scores and labels");
    tow_context *ctx = tow__array_context(s->labels);
    tow_status status = check_types(ctx, function, s);
    if (status == TOW_OK) status = check_shapes(ctx, function, s, classes);
    for (int64_t row = 0; row < s->rows && status == TOW_OK; row++) {
        const int64_t label = tow__scores_label(s, row);
        if (tow__scores_counts(s, row) && (label < 0 || label >= s->classes))
            status = tow__fail(ctx, TOW_INVALID_ARGUMENT,
                               "%s: label %" PRId64 ": expected a class in [0, %" PRId64 "), found %" PRId64
                               "; mask examples that have none",
                               function, row, s->classes, label);
    }
    return status;
}

bool tow__scores_counts(const tow__scores *s, int64_t row)
{
    return !s->mask || ((const bool *)tow_array_data(s->mask))[row];
}

int64_t tow__scores_label(const tow__scores *s, int64_t row)
{
    const tow__element x = tow__load_element(tow_array_type(s->labels).dtype, tow_array_data(s->labels), row);
    if (x.kind == TOW__A_SIGNED) return x.i;
    return x.u > INT64_MAX ? INT64_MAX : (int64_t)x.u;
}

double tow__scores_value(const tow__scores *s, int64_t row, int64_t index)
{
    const int64_t width = s->plain ? 1 : s->classes;
    return tow__load_element(tow_array_type(s->scores).dtype, tow_array_data(s->scores), row * width + index).f;
}

int64_t tow__scores_rank(const tow__scores *s, int64_t row)
{
    const int64_t label = tow__scores_label(s, row);
    const double own = tow__scores_value(s, row, label);
    int64_t before = 0;
    for (int64_t i = 0; i < s->classes; i++) {
        const double other = tow__scores_value(s, row, i);
        if (isnan(other)) return s->classes;
        before += other > own || (other == own && i < label);
    }
    return before;
}

/* ---- accuracy ---------------------------------------------------------------------------------------------------- */

tow_status tow_accuracy_add(tow_accuracy *a, const tow_array *scores, const tow_array *labels,
                            const tow_accuracy_options *options)
{
    tow_accuracy_options o = TOW_ACCURACY_OPTIONS();
    if (!TOW__OPTIONS_TAKE(NULL, tow_accuracy_options, options, &o)) return TOW_INVALID_ARGUMENT;
    tow__scores s = {.scores = scores, .labels = labels, .mask = o.mask};
    if (!a) return tow__missing(NULL, __func__, "an accuracy");
    tow_status status = tow__scores_check(__func__, &s, 2);
    if (status != TOW_OK) return status;
    const int64_t k = o.k > 0 ? o.k : 1;
    for (int64_t row = 0; row < s.rows; row++) {
        if (!tow__scores_counts(&s, row)) continue;
        const double value = s.plain ? tow__scores_value(&s, row, 0) : 0;
        a->total++;
        if (s.plain)
            a->correct += !isnan(value) && (value > o.threshold) == (tow__scores_label(&s, row) == 1);
        else
            a->correct += tow__scores_rank(&s, row) < k;
    }
    return TOW_OK;
}

double tow_accuracy_value(const tow_accuracy *a) { return a->total ? (double)a->correct / (double)a->total : NAN; }
