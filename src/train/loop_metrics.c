/* Metrics of a training loop by name: one row of a table for each kind says what it needs, adds and gives. */
#include "src/train/loop_metrics.h"
#include "src/base/options.h"

#include <math.h>

typedef struct metric_class {
    bool aux, labels; /* it reads an aux value, and labels among the inputs */
    tow_status (*add)(const tow_metric *m, tow__loop_metrics *sums, int i, tow_train_state *s,
                      tow_array *const *inputs);
    double (*value)(const tow_metric *m, const tow__loop_metrics *sums, int i, double loss);
} metric_class;

/* ---- kinds ------------------------------------------------------------------------------------------------------- */

static tow_status add_mean(const tow_metric *m, tow__loop_metrics *sums, int i, tow_train_state *s,
                           tow_array *const *inputs)
{
    (void)inputs;
    return tow_statistics_add_array(&sums->mean[i], tow_train_aux(s, m->aux));
}

static double mean_value(const tow_metric *m, const tow__loop_metrics *sums, int i, double loss)
{
    (void)m, (void)loss;
    return sums->mean[i].count > 0 ? sums->mean[i].mean : NAN;
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

static tow_status add_accuracy(const tow_metric *m, tow__loop_metrics *sums, int i, tow_train_state *s,
                               tow_array *const *inputs)
{
    tow_array *scores = NULL;
    const tow_accuracy_options options =
        TOW_ACCURACY_OPTIONS(.k = m->k, .threshold = m->threshold, .mask = m->masked ? inputs[m->mask] : NULL);
    tow_status status = scores_of_batch(s, m->aux, &scores);
    if (status == TOW_OK) status = tow_accuracy_add(&sums->accuracy[i], scores, inputs[m->labels], &options);
    tow_array_release(scores);
    return status;
}

static double accuracy_value(const tow_metric *m, const tow__loop_metrics *sums, int i, double loss)
{
    (void)m, (void)loss;
    return tow_accuracy_value(&sums->accuracy[i]);
}

static tow_status add_nothing(const tow_metric *m, tow__loop_metrics *sums, int i, tow_train_state *s,
                              tow_array *const *inputs)
{
    (void)m, (void)sums, (void)i, (void)s, (void)inputs;
    return TOW_OK;
}

static double perplexity_value(const tow_metric *m, const tow__loop_metrics *sums, int i, double loss)
{
    (void)m, (void)sums, (void)i;
    return exp(loss);
}

static tow_status add_own(const tow_metric *m, tow__loop_metrics *sums, int i, tow_train_state *s,
                          tow_array *const *inputs)
{
    (void)sums, (void)i;
    return m->add(s, inputs, m->user);
}

static double own_value(const tow_metric *m, const tow__loop_metrics *sums, int i, double loss)
{
    (void)sums, (void)i, (void)loss;
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

void tow__loop_metrics_begin(const tow_train_loop *l, tow__loop_metrics *sums)
{
    *sums = (tow__loop_metrics){.accuracy = {{0}}};
    for (size_t i = 0; i < l->n_metrics; i++)
        if (l->metrics[i].kind == TOW_METRIC_FUNCTIONS) l->metrics[i].begin(l->metrics[i].user);
}

tow_status tow__loop_metrics_add(const tow_train_loop *l, tow__loop_metrics *sums, tow_train_state *s,
                                 tow_array *const *inputs)
{
    tow_status status = TOW_OK;
    for (size_t i = 0; i < l->n_metrics; i++)
        TRY(classes[l->metrics[i].kind].add(&l->metrics[i], sums, (int)i, s, inputs));
done:
    return status;
}

void tow__loop_metrics_values(const tow_train_loop *l, const tow__loop_metrics *sums, double loss,
                              double values[TOW_MAX_METRICS])
{
    for (size_t i = 0; i < l->n_metrics; i++)
        values[i] = classes[l->metrics[i].kind].value(&l->metrics[i], sums, (int)i, loss);
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
