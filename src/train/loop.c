/* A training loop with callbacks: steps, evaluations, metrics, early stopping, checkpoints. It does nothing that a loop
 * of one's own could not do with public functions. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "src/base/clock.h"
#include "src/base/options.h"
#include "src/data/loader.h"
#include "src/train/loop_metrics.h"
#include "tow/log.h"

/* One run of a loop. */
typedef struct run {
    tow_train_state *state;
    const tow_train_loop *loop;
    tow_train_progress progress;
    tow_early_stopping *verdict; /* which evaluation is the best so far, and when to stop */
    tow__loop_metrics metrics;
    tow_array **inputs;
    double start;
    int64_t evaluated, saved; /* updates that there were at the last one */
    tow__collective *votes;   /* sums a vote over the processes; NULL: there are no others */
    int32_t vote;
    void *scratch;
} run;

static double now(void) { return 1e-9 * (double)tow__nanoseconds(); }

/* Rows of the first input, those of all processes: what a batch counts as. */
static int64_t rows_of(const run *r)
{
    tow_type type = r->state->n_inputs > 0 ? tow_array_type(r->inputs[0]) : tow_make_type(TOW_F32, 0, NULL);
    if (r->state->n_inputs > 0 && tow__train_all_rows(r->state, 0, &type) != TOW_OK) return 0; /* no step took it */
    return type.rank > 0 ? type.dims[0] : 1;
}

/* The weight of the loss of a batch: its own, the sum over micro-batches, or its rows. */
static double weight_of(const run *r)
{
    tow_statistics weights = {0};
    if (!r->state->options.weighted) return (double)rows_of(r);
    tow_statistics_add_array(&weights, tow_train_aux(r->state, 0));
    return weights.mean * (double)weights.count;
}

static void forget_inputs(run *r) { memset(r->inputs, 0, r->state->n_inputs * sizeof(tow_array *)); }

/* ---- all processes alike ----------------------------------------------------------------------------------------- */

/* The wish of one process becomes that of all: none takes a step that another one does not take. */
static tow_status agree(run *r, bool *wanted)
{
    if (!r->votes) return TOW_OK;
    r->vote = *wanted;
    const tow_status status = tow__collective_run(r->votes, (void *[]){&r->vote}, r->scratch);
    *wanted = r->vote != 0;
    return status;
}

/* Functions of the caller may have written the metric, by which all processes judge. */
static tow_status compare_metric(const run *r)
{
    char text[40];
    if (!r->votes) return TOW_OK;
    snprintf(text, sizeof text, "%.17g", r->progress.metric);
    const tow_group_fact fact = {"the metric behind .on_evaluation, which all processes must write alike,",
                                 isnan(r->progress.metric) ? "NaN" : text};
    return tow_group_check_same(r->state->options.group, 1, &fact);
}

static tow_status make_votes(run *r)
{
    const tow_train_state *s = r->state;
    const tow__collective_options options = {.kind = TOW__ALL_REDUCE,
                                             .dtype = TOW_I32,
                                             .n = 1,
                                             .row_groups = (int)s->row_groups,
                                             .what = "a vote about the end of the loop"};
    tow_status status = TOW_OK;
    if (!tow__train_has_others(s)) return TOW_OK;
    TRY(tow__collective_create(s->ctx, s->options.group, &options, &r->votes));
    r->scratch = tow__alloc(s->ctx, tow__collective_scratch(r->votes) + 1, 1);
    if (!r->scratch) status = TOW_OUT_OF_MEMORY;
done:
    return status;
}

static void free_votes(run *r)
{
    if (r->scratch) tow__free(r->state->ctx, r->scratch, tow__collective_scratch(r->votes) + 1, 1);
    tow__collective_free(r->votes);
}

/* The batches that a loader gives, from a position on. */
static void describe_loader(const tow_loader *loader, uint64_t position, char *text, size_t size)
{
    text[0] = '\0';
    if (!loader) return;
    const int n = snprintf(text, size, "%lld from batch %" PRIu64 " on", (long long)loader->batches, position);
    if (loader->epochs > 0 && n > 0)
        snprintf(text + n, size - (size_t)n, ", in each of %lld epochs", (long long)loader->epochs);
}

/* The processes take the same steps, evaluate and save at the same ones, and their loaders end together: none waits for
 * a step that another one has no batch for. */
static tow_status compare_loops(const run *r)
{
    const tow_train_loop *l = r->loop;
    char text[160];
    if (!r->votes) return TOW_OK;
    snprintf(text, sizeof text, "%s, %lld steps, evaluation%s every %lld, %s every %lld%s%s",
             l->loader ? ".loader" : ".batch", (long long)l->steps,
             l->evaluation_loader  ? " by .evaluation_loader"
             : l->evaluation_batch ? " by .evaluation_batch"
                                   : "",
             (long long)l->evaluate_every, l->path ? "saved" : "not saved", (long long)l->save_every,
             l->best_path ? ", the best saved" : "", l->early_stopping ? ", early stopping" : "");
    char batches[160], evaluations[80];
    describe_loader(l->loader, tow_train_data_position(r->state), batches, sizeof batches);
    describe_loader(l->evaluation_loader, 0, evaluations, sizeof evaluations);
    const tow_group_fact facts[] = {{"the loop of training", text},
                                    {"the number of batches of .loader", batches},
                                    {"the number of batches of .evaluation_loader", evaluations}};
    return tow_group_check_same(r->state->options.group, sizeof facts / sizeof *facts, facts);
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

static tow_status load_batch(run *r, tow_loader *loader, bool *end)
{
    tow_array *const *batch;
    const tow_status status = tow_loader_next(loader, &batch);
    if (status != TOW_OK) return status;
    *end = !batch;
    if (batch) memcpy(r->inputs, batch, r->state->n_inputs * sizeof *batch);
    return TOW_OK;
}

static tow_status next_batch(run *r, bool *end)
{
    const tow_train_loop *l = r->loop;
    forget_inputs(r);
    if (l->loader) return load_batch(r, l->loader, end);
    const tow_status status = l->batch(r->state, r->inputs, end, l->user);
    return status == TOW_OK ? agree(r, end) : status;
}

/* Batch `index` of an evaluation: one epoch of a loader. */
static tow_status evaluation_batch(run *r, int64_t index, bool *end)
{
    const tow_train_loop *l = r->loop;
    tow_status status = TOW_OK;
    forget_inputs(r);
    if (!l->evaluation_loader) {
        TRY(l->evaluation_batch(r->state, index, r->inputs, end, l->user));
        return agree(r, end);
    }
    *end = index == tow_loader_batch_count(l->evaluation_loader);
    if (index == 0) TRY(tow_loader_seek(l->evaluation_loader, 0));
    if (!*end) TRY(load_batch(r, l->evaluation_loader, end));
done:
    return status;
}

static bool evaluates(const tow_train_loop *l) { return l->evaluation_batch || l->evaluation_loader; }

/* ---- steps and evaluations --------------------------------------------------------------------------------------- */

static tow_status take_step(run *r, bool *end)
{
    const tow_train_loop *l = r->loop;
    tow_status status = TOW_OK;
    TRY(next_batch(r, end));
    if (*end) return TOW_OK;
    TRY(tow_train_step(r->state, r->inputs, &r->progress.loss));
    if (l->loader) tow_train_set_data_position(r->state, tow_loader_position(l->loader));
    r->progress.calls++;
    r->progress.examples += rows_of(r);
    r->progress.seconds = now() - r->start;
    if (l->on_step) TRY(l->on_step(&r->progress, l->user));
done:
    return status;
}

static tow_status run_evaluation(run *r, tow_weighted_mean *mean)
{
    const tow_train_loop *l = r->loop;
    tow_status status = TOW_OK;
    tow__loop_metrics_begin(l, &r->metrics);
    for (int64_t i = 0;; i++) {
        bool end = false;
        double loss;
        TRY(evaluation_batch(r, i, &end));
        if (end) break;
        TRY((l->evaluate_average ? tow_train_evaluate_average : tow_train_evaluate)(r->state, r->inputs, &loss));
        tow_weighted_mean_add(mean, loss, weight_of(r));
        TRY(tow__loop_metrics_add(l, &r->metrics, r->state, r->inputs));
        if (l->on_evaluation_batch) TRY(l->on_evaluation_batch(&r->progress, r->inputs, l->user));
    }
done:
    return status;
}

static const char *watched(const tow_train_loop *l) { return l->watch ? l->watch : "loss"; }

/* on_evaluation sees the verdict of this evaluation; if it writes another metric, that is judged instead. */
static tow_status judge(run *r)
{
    const tow_train_loop *l = r->loop;
    tow_train_progress *p = &r->progress;
    tow_status status = TOW_OK;
    bool stop = false;
    p->metric = tow_train_metric(p, watched(l));
    p->improved = tow__early_stopping_improves(r->verdict, p->metric);
    if (l->on_evaluation) TRY(l->on_evaluation(p, l->user));
    TRY(compare_metric(r));
    TRY(tow_early_stopping_update(r->verdict, p->metric, &p->improved, &stop));
    p->stop = p->stop || stop;
    if (p->improved && l->best_path) TRY(tow__train_save_best(r->state, l->best_path, watched(l), p->metric));
done:
    return status;
}

static tow_status evaluate(run *r)
{
    tow_weighted_mean mean = {0};
    tow_status status = TOW_OK;
    TRY(run_evaluation(r, &mean));
    r->evaluated = r->state->step;
    r->progress.evaluation = tow_weighted_mean_value(&mean);
    TRY(tow__loop_metrics_values(r->loop, &r->metrics, r->state, r->progress.evaluation, r->progress.metrics));
    r->progress.seconds = now() - r->start;
    TRY(judge(r));
done:
    return status;
}

static bool is_due(int64_t every, int64_t step, int64_t last) { return every > 0 && step != last && step % every == 0; }

static tow_status save(run *r)
{
    r->saved = r->state->step;
    return tow_train_save_all(r->state, r->state->options.group, r->loop->path);
}

static tow_status go_on(run *r)
{
    const tow_train_loop *l = r->loop;
    const tow_train_state *s = r->state;
    tow_status status = TOW_OK;
    for (bool end = false; !r->progress.stop && (l->steps == 0 || s->step < l->steps);) {
        TRY(take_step(r, &end));
        if (end) break;
        if (evaluates(l) && is_due(l->evaluate_every, s->step, r->evaluated)) TRY(evaluate(r));
        if (l->path && is_due(l->save_every, s->step, r->saved)) TRY(save(r));
        TRY(agree(r, &r->progress.stop));
    }
    if (evaluates(l) && r->evaluated != s->step) TRY(evaluate(r));
    if (l->early_stopping && l->early_stopping->restore_best && !isnan(tow_early_stopping_best(r->verdict, NULL))) {
        TRY(tow_early_stopping_restore(r->verdict));
        r->saved = -1;
    }
    if (l->path && r->saved != s->step) TRY(save(r));
done:
    return status;
}

/* ---- beginning --------------------------------------------------------------------------------------------------- */

static const char *what_is_wrong(const tow_train_state *s, const tow_train_loop *l)
{
    const bool judges = l->early_stopping || l->best_path || l->watch || l->n_metrics > 0;
    if (!l->batch == !l->loader) return "expected .batch or .loader, found both or none of them";
    if (l->evaluation_batch && l->evaluation_loader)
        return "expected .evaluation_batch or .evaluation_loader, found both";
    if (l->loader && l->loader == l->evaluation_loader)
        return "expected two loaders, found the same one as .loader and .evaluation_loader";
    if (l->steps < 0 || l->evaluate_every < 0 || l->save_every < 0)
        return "expected .steps, .evaluate_every and .save_every of 0 or more, found a negative number";
    if ((l->evaluate_every > 0 || l->on_evaluation || judges) && !evaluates(l))
        return "expected .evaluation_batch or .evaluation_loader with .evaluate_every, .on_evaluation, .metrics, "
               ".watch, "
               ".best_path and .early_stopping, found neither";
    if (evaluates(l) && !s->options.evaluation)
        return "expected a state that evaluates; make it with .evaluation = true";
    if (l->save_every > 0 && !l->path) return "expected .path with .save_every, found NULL";
    return NULL;
}

static tow_status check_loader(const tow_train_state *s, const tow_loader *loader, const char *name)
{
    const size_t n = loader ? tow_loader_array_count(loader) : s->n_inputs;
    if (n == s->n_inputs) return TOW_OK;
    return tow__fail(
        s->ctx, TOW_INVALID_ARGUMENT,
        "tow_train_run: expected .%s to give batches of %zu arrays, the inputs of the model and of the loss, "
        "found %zu",
        name, s->n_inputs, n);
}

static tow_status check(const tow_train_state *s, const tow_train_loop *l)
{
    tow_status status = TOW_OK;
    const char *wrong = what_is_wrong(s, l);
    if (wrong) return tow__fail(s->ctx, TOW_INVALID_ARGUMENT, "tow_train_run: %s", wrong);
    TRY(check_loader(s, l->loader, "loader"));
    TRY(check_loader(s, l->evaluation_loader, "evaluation_loader"));
    TRY(tow__loop_metrics_check(s, l));
done:
    return status;
}

/* A run that goes on knows the best of the runs before it, from the file that they wrote. */
static tow_status make_verdict(run *r)
{
    const tow_train_loop *l = r->loop;
    tow_early_stopping_options options = TOW_EARLY_STOPPING_OPTIONS(.patience = INT64_MAX);
    double best;
    int64_t step;
    tow_status status = TOW_OK;
    if (l->early_stopping) options = *l->early_stopping;
    options.larger_is_better = options.larger_is_better || l->larger_is_better;
    TRY(tow_early_stopping_create(r->state, &options, &r->verdict));
    if (!l->best_path || r->state->step == 0 || options.restore_best) return TOW_OK;
    TRY(tow__train_read_best(r->state, l->best_path, watched(l), &best, &step));
    if (!isnan(best)) tow__early_stopping_resume(r->verdict, best, step);
done:
    return status;
}

static tow_status begin(run *r)
{
    const tow_train_loop *l = r->loop;
    tow_status status = TOW_OK;
    r->inputs = tow__alloc(r->state->ctx, r->state->n_inputs + 1, sizeof *r->inputs);
    if (!r->inputs) return TOW_OUT_OF_MEMORY;
    for (int i = 0; i < TOW_MAX_METRICS; i++) r->progress.metrics[i] = NAN;
    TRY(make_votes(r));
    TRY(compare_loops(r));
    TRY(tow__loop_metrics_create(r->state, l, &r->metrics));
    if (l->loader) TRY(tow_loader_seek(l->loader, tow_train_data_position(r->state)));
    TRY(make_verdict(r));
done:
    return status;
}

tow_status tow_train_run(tow_train_state *state, const tow_train_loop *loop, tow_train_progress *last)
{
    if (!state || !loop) return tow__missing(state ? state->ctx : NULL, __func__, "a train state and a loop");
    tow_train_loop own;
    tow_early_stopping_options stopping;
    const tow_train_loop *given = loop;
    if (!TOW__OPTIONS_TAKE(state->ctx, tow_train_loop, loop, &own) ||
        !TOW__OPTIONS_TAKE(state->ctx, tow_early_stopping_options, own.early_stopping, &stopping))
        return TOW_INVALID_ARGUMENT;
    run r = {.state = state, .loop = loop, .start = now(), .evaluated = -1, .saved = -1};
    r.progress = (tow_train_progress){.state = state, .loop = given, .loss = NAN, .evaluation = NAN, .metric = NAN};
    tow_status status = check(state, loop);
    if (status != TOW_OK) return status;
    status = begin(&r);
    if (status == TOW_OK) status = go_on(&r);
    tow_early_stopping_free(r.verdict);
    tow__loop_metrics_free(state, &r.metrics);
    free_votes(&r);
    if (r.inputs) tow__free(state->ctx, r.inputs, state->n_inputs + 1, sizeof *r.inputs);
    if (last) *last = r.progress;
    return status;
}
