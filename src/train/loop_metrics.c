/* Metrics of a training loop by name: one row of a table for each kind says what it needs, adds and gives. */
#include "src/train/loop_metrics.h"

#include <math.h>
#include <stdio.h>

#include "src/base/dtypes.h"
#include "src/base/options.h"
#include "src/graph/primitive.h"
#include "src/group/agreement.h"

typedef struct metric_class {
    bool aux, labels; /* it reads an aux value, and labels among the inputs */
    /* sums: of this metric in row group 0; those of the next group are `step` further */
    tow_status (*add)(const tow_metric *m, tow__metric_sums *sums, size_t step, tow_train_state *s,
                      tow_array *const *inputs);
    double (*value)(const tow_metric *m, const tow__metric_sums *all, double loss);
} metric_class;

/* ---- kinds ------------------------------------------------------------------------------------------------------- */

/* Sums of b behind those of a; nothing is rounded if there are none of one of them. */
static void join(tow__metric_sums *a, const tow__metric_sums *b)
{
    if (a->mean.count == 0)
        a->mean = b->mean;
    else
        tow_statistics_merge(&a->mean, &b->mean);
    a->accuracy.correct += b->accuracy.correct;
    a->accuracy.total += b->accuracy.total;
}

/* Elements of the aux value that are of rows of one group, along `axis`, of `count` groups. */
static void add_group(const tow_array *values, int axis, int64_t group, int64_t count, tow_statistics *to)
{
    const tow_type type = tow_array_type(values);
    const int64_t rows = type.dims[axis] / count, first = group * rows;
    int64_t inner = 1;
    tow_statistics more = {0};
    for (int k = axis + 1; k < type.rank; k++) inner *= type.dims[k];
    for (int64_t i = 0, n = tow_type_element_count(type); i < n; i++) {
        const int64_t row = i / inner % type.dims[axis];
        if (row >= first && row < first + rows)
            tow_statistics_add(&more,
                               tow__load_element(type.dtype, tow_array_data((tow_array *)(uintptr_t)values), i).f);
    }
    tow_statistics_merge(to, &more);
}

/* Values without rows are of all rows already, and the same in all processes: rank 0 brings them. */
static tow_status add_mean(const tow_metric *m, tow__metric_sums *sums, size_t step, tow_train_state *s,
                           tow_array *const *inputs)
{
    const tow_array *values = tow_train_aux(s, m->aux);
    const int axis = s->row_groups > 1 ? s->last->aux_axes[m->aux] : TOW__WHOLE;
    (void)inputs;
    if (axis == TOW__WHOLE) return s->share.first == 0 ? tow_statistics_add_array(&sums->mean, values) : TOW_OK;
    for (int64_t g = 0; g < s->share.count; g++)
        add_group(values, axis, g, s->share.count, &sums[(size_t)(s->share.first + g) * step].mean);
    return TOW_OK;
}

static double mean_value(const tow_metric *m, const tow__metric_sums *all, double loss)
{
    (void)m, (void)loss;
    return all->mean.count > 0 ? all->mean.mean : NAN;
}

/* Scores of all micro-batches, [micro_batches, rows, ...], seen as those of the batch, [micro_batches rows, ...]. */
static tow_status scores_of_batch(tow_train_state *s, size_t aux, tow_array **scores)
{
    tow_array *array = tow_train_aux(s, aux);
    tow_type type = tow_array_type(array);
    *scores = tow_array_retain(array);
    if (s->micro_batches == 1 || type.rank < 2) return TOW_OK;
    const int64_t rows = type.dims[0] * type.dims[1];
    memmove(type.dims, type.dims + 1, (size_t)(type.rank - 1) * sizeof *type.dims);
    type.dims[0] = rows;
    type = tow_make_type(type.dtype, type.rank - 1, type.dims);
    tow_array_release(*scores);
    return tow__array_view(s->ctx, array, 0, type, scores);
}

/* Of whole numbers, whose order makes no difference. */
static tow_status add_accuracy(const tow_metric *m, tow__metric_sums *sums, size_t step, tow_train_state *s,
                               tow_array *const *inputs)
{
    tow_accuracy *own = &sums[(size_t)s->share.first * step].accuracy;
    tow_array *scores = NULL;
    const tow_accuracy_options options =
        TOW_ACCURACY_OPTIONS(.k = m->k, .threshold = m->threshold, .mask = m->masked ? inputs[m->mask] : NULL);
    tow_status status = scores_of_batch(s, m->aux, &scores);
    if (status == TOW_OK) status = tow_accuracy_add(own, scores, inputs[m->labels], &options);
    tow_array_release(scores);
    return status;
}

static double accuracy_value(const tow_metric *m, const tow__metric_sums *all, double loss)
{
    (void)m, (void)loss;
    return tow_accuracy_value(&all->accuracy);
}

static tow_status add_nothing(const tow_metric *m, tow__metric_sums *sums, size_t step, tow_train_state *s,
                              tow_array *const *inputs)
{
    (void)m, (void)sums, (void)step, (void)s, (void)inputs;
    return TOW_OK;
}

static double perplexity_value(const tow_metric *m, const tow__metric_sums *all, double loss)
{
    (void)m, (void)all;
    return exp(loss);
}

static tow_status add_own(const tow_metric *m, tow__metric_sums *sums, size_t step, tow_train_state *s,
                          tow_array *const *inputs)
{
    (void)sums, (void)step;
    return m->add(s, inputs, m->user);
}

static double own_value(const tow_metric *m, const tow__metric_sums *all, double loss)
{
    (void)all, (void)loss;
    return m->value(m->user);
}

static const metric_class classes[] = {
    [TOW_METRIC_MEAN] = {.aux = true, .add = add_mean, .value = mean_value},
    [TOW_METRIC_ACCURACY] = {.aux = true, .labels = true, .add = add_accuracy, .value = accuracy_value},
    [TOW_METRIC_PERPLEXITY] = {.add = add_nothing, .value = perplexity_value},
    [TOW_METRIC_FUNCTIONS] = {.add = add_own, .value = own_value},
};
enum {
    N_KINDS = sizeof classes / sizeof classes[0]
};

/* ---- all of them ------------------------------------------------------------------------------------------------- */

int tow__loop_metric(const tow_train_loop *l, const char *name)
{
    for (size_t i = 0; i < l->n_metrics; i++)
        if (strcmp(l->metrics[i].name, name) == 0) return (int)i;
    return -1;
}

static tow_status check_metric(const tow_train_state *s, const tow_train_loop *l, int i)
{
    const tow_metric *m = &l->metrics[i];
    const char *name = m->name ? m->name : "NULL";
    if (!m->name || strcmp(name, "loss") == 0 || tow__loop_metric(l, name) != i)
        return tow__fail(s->ctx, TOW_INVALID_ARGUMENT,
                         "tow_train_run: metric %d: expected a name of its own other than 'loss', found '%s'", i, name);
    if ((unsigned)m->kind >= N_KINDS)
        return tow__fail(s->ctx, TOW_INVALID_ARGUMENT, "tow_train_run: metric '%s': expected a kind below %d, found %d",
                         name, N_KINDS, (int)m->kind);
    if (classes[m->kind].aux && m->aux >= s->n_aux)
        return tow__fail(s->ctx, TOW_INVALID_ARGUMENT,
                         "tow_train_run: metric '%s': expected .aux below the %zu aux values of the loss function "
                         "(.n_aux), found %zu",
                         name, s->n_aux, m->aux);
    if (classes[m->kind].labels && (m->labels >= s->n_inputs || (m->masked && m->mask >= s->n_inputs)))
        return tow__fail(
            s->ctx, TOW_INVALID_ARGUMENT,
            "tow_train_run: metric '%s': expected .labels and .mask below the %zu arrays of a batch, found "
            "%zu and %zu",
            name, s->n_inputs, m->labels, m->mask);
    if (m->kind == TOW_METRIC_FUNCTIONS && (!m->begin || !m->add || !m->value))
        return tow__fail(s->ctx, TOW_INVALID_ARGUMENT,
                         "tow_train_run: metric '%s': expected .begin, .add and .value, found NULL", name);
    return TOW_OK;
}

tow_status tow__loop_metrics_check(const tow_train_state *s, const tow_train_loop *l)
{
    tow_status status = TOW_OK;
    if (l->n_metrics > TOW_MAX_METRICS || (l->n_metrics > 0 && !l->metrics))
        return tow__fail(s->ctx, TOW_INVALID_ARGUMENT,
                         "tow_train_run: expected .metrics of at most %d metrics, found %s%zu", TOW_MAX_METRICS,
                         l->metrics ? "" : "NULL and ", l->n_metrics);
    for (size_t i = 0; i < l->n_metrics; i++) TRY(check_metric(s, l, (int)i));
    if (l->watch && strcmp(l->watch, "loss") != 0 && tow__loop_metric(l, l->watch) < 0)
        return tow__fail(
            s->ctx, TOW_INVALID_ARGUMENT,
            "tow_train_run: expected .watch to be 'loss' or the name of one of the %zu metrics, found '%s'",
            l->n_metrics, l->watch);
done:
    return status;
}

tow_status tow__loop_metrics_create(const tow_train_state *s, const tow_train_loop *l, tow__loop_metrics *metrics)
{
    *metrics = (tow__loop_metrics){.n = l->n_metrics, .groups = s->row_groups};
    metrics->sums = tow__alloc(s->ctx, metrics->groups * metrics->n + 1, sizeof *metrics->sums);
    return metrics->sums ? TOW_OK : TOW_OUT_OF_MEMORY;
}

void tow__loop_metrics_free(const tow_train_state *s, tow__loop_metrics *metrics)
{
    if (metrics->sums) tow__free(s->ctx, metrics->sums, metrics->groups * metrics->n + 1, sizeof *metrics->sums);
    metrics->sums = NULL;
}

void tow__loop_metrics_begin(const tow_train_loop *l, tow__loop_metrics *metrics)
{
    memset(metrics->sums, 0, metrics->groups * metrics->n * sizeof *metrics->sums);
    for (size_t i = 0; i < l->n_metrics; i++)
        if (l->metrics[i].kind == TOW_METRIC_FUNCTIONS) l->metrics[i].begin(l->metrics[i].user);
}

tow_status tow__loop_metrics_add(const tow_train_loop *l, tow__loop_metrics *metrics, tow_train_state *s,
                                 tow_array *const *inputs)
{
    tow_status status = TOW_OK;
    for (size_t i = 0; i < l->n_metrics; i++)
        TRY(classes[l->metrics[i].kind].add(&l->metrics[i], &metrics->sums[i], metrics->n, s, inputs));
done:
    return status;
}

/* ---- over all processes ------------------------------------------------------------------------------------------ */

/* The sums of all row groups, of which each process has those of its own. */
static tow_status gather(tow__loop_metrics *metrics, const tow_train_state *s)
{
    tow_group *group = s->options.group;
    const size_t count = (size_t)tow_group_count(group), row = metrics->n * sizeof *metrics->sums;
    tow__range_of *shares = tow__alloc(s->ctx, count, sizeof *shares);
    tow__collective *c = NULL;
    tow_status status = shares ? TOW_OK : TOW_OUT_OF_MEMORY;
    for (size_t r = 0; r < count && status == TOW_OK; r++) {
        int begin = 0, end = 0;
        status = tow_group_rows((int)r, (int)count, (int)metrics->groups, &begin, &end);
        shares[r] = (tow__range_of){begin * (int64_t)row, (end - begin) * (int64_t)row};
    }
    status = tow__group_agree(s->ctx, group, status);
    if (status == TOW_OK)
        status = tow__collective_create(s->ctx, group,
                                        &(tow__collective_options){.kind = TOW__ALL_GATHER,
                                                                   .dtype = TOW_U8,
                                                                   .n = (int64_t)(metrics->groups * row),
                                                                   .shares = shares,
                                                                   .what = "metrics of an evaluation"},
                                        &c);
    if (status == TOW_OK) status = tow__collective_run(c, (void *[]){metrics->sums}, NULL);
    tow__collective_free(c);
    if (shares) tow__free(s->ctx, shares, count, sizeof *shares);
    return status;
}

/* Functions see the rows of one process. Their value must be that of all rows, or processes judge differently. */
static tow_status check_own_values(const tow_train_loop *l, const tow_train_state *s, const double *values)
{
    tow_status status = TOW_OK;
    for (size_t i = 0; i < l->n_metrics && status == TOW_OK; i++) {
        char name[160], value[40];
        if (l->metrics[i].kind != TOW_METRIC_FUNCTIONS) continue;
        snprintf(name, sizeof name, "the value of metric '%s', whose function is to sum over the group,",
                 l->metrics[i].name);
        snprintf(value, sizeof value, "%.17g", values[i]);
        const tow_group_fact fact = {name, isnan(values[i]) ? "NaN" : value};
        status = tow_group_check_same(s->options.group, 1, &fact);
    }
    return status;
}

tow_status tow__loop_metrics_values(const tow_train_loop *l, tow__loop_metrics *metrics, tow_train_state *s,
                                    double loss, double values[TOW_MAX_METRICS])
{
    const size_t n = metrics->n;
    tow_status status = tow__train_has_others(s) && n > 0 ? gather(metrics, s) : TOW_OK;
    if (status != TOW_OK) return status;
    for (size_t half = 1; half < metrics->groups; half *= 2)
        for (size_t g = 0; g + half < metrics->groups; g += 2 * half)
            for (size_t i = 0; i < n; i++) join(&metrics->sums[g * n + i], &metrics->sums[(g + half) * n + i]);
    for (size_t i = 0; i < n; i++)
        values[i] = classes[l->metrics[i].kind].value(&l->metrics[i], &metrics->sums[i], loss);
    return tow__train_has_others(s) ? check_own_values(l, s, values) : TOW_OK;
}

double tow_train_metric(const tow_train_progress *progress, const char *name)
{
    if (!progress || !name) return NAN;
    if (strcmp(name, "loss") == 0) return progress->evaluation;
    const tow_train_loop *loop = progress->loop;
    tow_train_loop own;
    if (!TOW__OPTIONS_TAKE(NULL, tow_train_loop, loop, &own)) return NAN;
    const int i = loop ? tow__loop_metric(loop, name) : -1;
    return i < 0 ? NAN : progress->metrics[i];
}
