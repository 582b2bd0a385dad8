/* A training loop with callbacks: steps, evaluations, early stopping, checkpoints. It does nothing that a loop of one's own
 * could not do with public functions. */
#include <inttypes.h>
#include <math.h>
#include <time.h>

#include "tow/metrics.h"
#include "train/state.h"

/* One run of a loop. */
typedef struct run {
    tow_train_state *state;
    const tow_train_loop *loop;
    tow_train_progress progress;
    tow_early_stopping *stopping; /* NULL: none */
    tow_array **inputs;
    double start;
    int64_t evaluated, saved; /* updates that there were at the last one */
} run;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Rows of the first input: what a batch counts as. */
static int64_t rows_of(const run *r)
{
    const tow_type type = r->state->n_inputs > 0 ? tow_array_type(r->inputs[0]) : tow_make_type(TOW_F32, 0, NULL);
    return type.rank > 0 ? type.dims[0] : 1;
}

static void forget_inputs(run *r) { memset(r->inputs, 0, r->state->n_inputs * sizeof(tow_array *)); }

static tow_status take_step(run *r, bool *end)
{
    tow_status status = TOW_OK;
    forget_inputs(r);
    TRY(r->loop->batch(r->loop->user, r->state, r->inputs, end));
    if (*end) return TOW_OK;
    TRY(tow_train_step(r->state, r->inputs, &r->progress.loss));
    r->progress.calls++;
    r->progress.examples += rows_of(r);
    r->progress.seconds = now() - r->start;
    if (r->loop->on_step) TRY(r->loop->on_step(r->loop->user, &r->progress));
done:
    return status;
}

static tow_status run_evaluation(run *r, tow_weighted_mean *mean)
{
    const tow_train_loop *l = r->loop;
    tow_status status = TOW_OK;
    for (int64_t i = 0;; i++) {
        bool end = false;
        double loss;
        forget_inputs(r);
        TRY(l->evaluation_batch(l->user, r->state, i, r->inputs, &end));
        if (end) break;
        TRY((l->evaluate_average ? tow_train_evaluate_average : tow_train_evaluate)(r->state, r->inputs, &loss));
        tow_weighted_mean_add(mean, loss, (double)rows_of(r));
        if (l->on_evaluation_batch) TRY(l->on_evaluation_batch(l->user, &r->progress, r->inputs));
    }
done:
    return status;
}

static tow_status evaluate(run *r)
{
    const tow_train_loop *l = r->loop;
    tow_weighted_mean mean = {0};
    tow_status status = TOW_OK;
    bool stop = false;
    TRY(run_evaluation(r, &mean));
    r->evaluated = r->state->step;
    r->progress.evaluation = r->progress.metric = tow_weighted_mean_value(&mean);
    r->progress.seconds = now() - r->start;
    if (l->on_evaluation) TRY(l->on_evaluation(l->user, &r->progress));
    if (r->stopping) TRY(tow_early_stopping_update(r->stopping, r->progress.metric, &r->progress.improved, &stop));
    r->progress.stop = r->progress.stop || stop;
done:
    return status;
}

static bool is_due(int64_t every, int64_t step, int64_t last) { return every > 0 && step != last && step % every == 0; }

static tow_status save(run *r)
{
    r->saved = r->state->step;
    return tow_train_save(r->state, r->loop->path);
}

static tow_status go_on(run *r)
{
    const tow_train_loop *l = r->loop;
    const tow_train_state *s = r->state;
    tow_status status = TOW_OK;
    for (bool end = false; !r->progress.stop && (l->steps == 0 || s->step < l->steps);) {
        TRY(take_step(r, &end));
        if (end) break;
        if (l->evaluation_batch && is_due(l->evaluate_every, s->step, r->evaluated)) TRY(evaluate(r));
        if (l->path && is_due(l->save_every, s->step, r->saved)) TRY(save(r));
    }
    if (l->evaluation_batch && r->evaluated != s->step) TRY(evaluate(r));
    if (r->stopping && l->early_stopping->restore_best && !isnan(tow_early_stopping_best(r->stopping, NULL))) {
        TRY(tow_early_stopping_restore(r->stopping));
        r->saved = -1;
    }
    if (l->path && r->saved != s->step) TRY(save(r));
done:
    return status;
}

static tow_status check(const tow_train_state *s, const tow_train_loop *l)
{
    const char *wrong = NULL;
    if (!l->batch)
        wrong = "expected .batch, found NULL";
    else if (l->steps < 0 || l->evaluate_every < 0 || l->save_every < 0)
        wrong = "expected .steps, .evaluate_every and .save_every of 0 or more, found a negative number";
    else if ((l->evaluate_every > 0 || l->early_stopping || l->on_evaluation) && !l->evaluation_batch)
        wrong = "expected .evaluation_batch with .evaluate_every, .on_evaluation and .early_stopping, found NULL";
    else if (l->evaluation_batch && !s->options.evaluation)
        wrong = "expected a state that evaluates; make it with .evaluation = true";
    else if (l->save_every > 0 && !l->path)
        wrong = "expected .path with .save_every, found NULL";
    return wrong ? tow__fail(s->ctx, TOW_INVALID_ARGUMENT, "tow_train_run: %s", wrong) : TOW_OK;
}

tow_status tow_train_run(tow_train_state *state, const tow_train_loop *loop, tow_train_progress *last)
{
    if (!state || !loop) return tow__missing(state ? state->ctx : NULL, __func__, "a train state and a loop");
    run r = {.state = state, .loop = loop, .start = now(), .evaluated = -1, .saved = -1};
    r.progress = (tow_train_progress){.state = state, .loss = NAN, .evaluation = NAN, .metric = NAN};
    tow_status status = check(state, loop);
    if (status != TOW_OK) return status;
    r.inputs = tow__alloc(state->ctx, state->n_inputs + 1, sizeof *r.inputs);
    if (!r.inputs) return TOW_OUT_OF_MEMORY;
    if (loop->early_stopping) status = tow_early_stopping_create(state, loop->early_stopping, &r.stopping);
    if (status == TOW_OK) status = go_on(&r);
    tow_early_stopping_free(r.stopping);
    tow__free(state->ctx, r.inputs, state->n_inputs + 1, sizeof *r.inputs);
    if (last) *last = r.progress;
    return status;
}
