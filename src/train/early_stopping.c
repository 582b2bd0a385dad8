/* Early stopping: the rule of flax.training.early_stopping, and copies of the best. */
#include <inttypes.h>
#include <math.h>

#include "src/base/options.h"
#include "src/params/params.h"
#include "src/train/average.h"
#include "src/train/state.h"

enum {
    LISTS = 3 /* parameters, variables, averages */
};

struct tow_early_stopping {
    tow_train_state *state;
    tow_early_stopping_options options;
    double best;
    int64_t step, waited;
    bool any, stop;
    tow_params *copies[LISTS];
};

static tow_params *list_of(const tow_train_state *s, int i)
{
    return i == 0 ? s->kept : i == 1 ? s->variables : s->average ? tow__average_state(s->average) : NULL;
}

tow_status tow_early_stopping_create(tow_train_state *state, const tow_early_stopping_options *options,
                                     tow_early_stopping **stopping)
{
    if (stopping) *stopping = NULL;
    if (!state || !options || !stopping)
        return tow__missing(state ? state->ctx : NULL, __func__, "a state, options and a place for the result");
    tow_early_stopping_options own;
    if (!TOW__OPTIONS_TAKE(state->ctx, tow_early_stopping_options, options, &own)) return TOW_INVALID_ARGUMENT;
    if (options->patience < 0 || !(options->min_delta >= 0))
        return tow__fail(state->ctx, TOW_INVALID_ARGUMENT,
                         "early stopping: expected .patience and .min_delta of 0 or more, found %" PRId64 " and %g",
                         options->patience, options->min_delta);
    tow_early_stopping *e = tow__alloc(state->ctx, 1, sizeof *e);
    if (!e) return TOW_OUT_OF_MEMORY;
    *e = (tow_early_stopping){.state = state, .options = *options, .best = NAN};
    tow_status status = TOW_OK;
    for (int i = 0; i < LISTS && options->restore_best && status == TOW_OK; i++)
        if (list_of(state, i)) status = tow_params_zeros_like(list_of(state, i), &e->copies[i]);
    if (status == TOW_OK)
        *stopping = e;
    else
        tow_early_stopping_free(e);
    return status;
}

void tow_early_stopping_free(tow_early_stopping *e)
{
    if (!e) return;
    for (int i = 0; i < LISTS; i++) tow_params_free(e->copies[i]);
    tow__free(e->state->ctx, e, 1, sizeof *e);
}

/* Between lists of the same paths in the same order. */
static void copy_list(tow_params *to, const tow_params *from)
{
    for (size_t i = 0; to && i < tow_params_count(to); i++) {
        tow_array *x = tow_params_array(to, i);
        memcpy(tow_array_data(x), tow_array_data(tow_params_array(from, i)), tow_type_bytes(tow_array_type(x)));
    }
}

static bool is_better(const tow_early_stopping *e, double metric)
{
    if (isnan(metric)) return false;
    if (!e->any) return true;
    return (e->options.larger_is_better ? metric - e->best : e->best - metric) > e->options.min_delta;
}

bool tow__early_stopping_improves(const tow_early_stopping *e, double metric) { return is_better(e, metric); }

void tow__early_stopping_resume(tow_early_stopping *e, double best, int64_t step)
{
    e->any = true;
    e->best = best;
    e->step = step;
}

tow_status tow_early_stopping_update(tow_early_stopping *e, double metric, bool *improved, bool *stop)
{
    if (!e) return tow__missing(NULL, __func__, "what watches a metric");
    const bool better = is_better(e, metric);
    if (better) {
        e->any = true;
        e->best = metric;
        e->step = e->state->step;
        e->waited = 0;
        for (int i = 0; i < LISTS; i++) copy_list(e->copies[i], list_of(e->state, i));
    } else {
        e->stop = e->stop || e->waited >= e->options.patience;
        e->waited++;
    }
    if (improved) *improved = better;
    if (stop) *stop = e->stop;
    return TOW_OK;
}

double tow_early_stopping_best(const tow_early_stopping *e, int64_t *step)
{
    if (step) *step = e->step;
    return e->best;
}

tow_status tow_early_stopping_restore(tow_early_stopping *e)
{
    if (!e) return tow__missing(NULL, __func__, "what watches a metric");
    if (!e->options.restore_best || !e->any)
        return tow__fail(e->state->ctx, TOW_INVALID_ARGUMENT, "early stopping: there is no best state to restore; %s",
                         e->options.restore_best ? "no metric was better than nothing" : "set .restore_best");
    for (int i = 0; i < LISTS; i++)
        if (e->copies[i]) copy_list(list_of(e->state, i), e->copies[i]);
    if (e->state->average) tow__average_loaded(e->state->average, tow__average_count(e->state->average));
    return TOW_OK;
}
