/* Trains a classifier of handwritten digits with differential privacy. Each step clips the gradient of every image by
 * itself, adds them up, and adds noise, so that the result says little about any one image. After each epoch it
 * measures how well the held-out digits are read, and what the run has cost so far. `dpsgd --help` lists the
 * options. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/run.h"
#include "privacy.h"
#include "trainer.h"

typedef struct dpsgd_run {
    run base;
    int64_t batch; /* images of a step, on average */
    double noise, clip, delta;
    bool budget;
    digits_data data;
    trainer trainer;
    double *epsilons, *accuracies; /* after each epoch, and after the last step: the curve */
    size_t n_points, capacity;
} dpsgd_run;

static void read_options(int argc, char **argv, dpsgd_run *r)
{
    *r = (dpsgd_run){.base = {.program = "dpsgd",
                              .purpose = "Trains a classifier of handwritten digits with differential privacy.",
                              .options = {.steps = 150, .learning_rate = 1e-2, .out = "out/dpsgd"}},
                     .batch = 512,
                     .noise = 5,
                     .clip = 1,
                     .delta = 1e-4};
    const example_option own[] = {
        {"batch", "N", "Images per step, on average", OPTION_WHOLE, &r->batch, 1, 1 << 20},
        {"noise", "X", "Standard deviation of the noise, in units of --clip", OPTION_REAL, &r->noise, 0, 0},
        {"clip", "X", "The norm that the gradient of an image has at most", OPTION_REAL, &r->clip, 0, 0},
        {"delta", "X", "The probability with which epsilon may be exceeded", OPTION_REAL, &r->delta, 0, 0},
        {"budget", NULL, "Print the epsilon of such a run, and do not train", OPTION_FLAG, &r->budget, 0, 0},
        {0}};
    read_run_options(&r->base, argc, argv, own);
}

/* ---- what it costs ----------------------------------------------------------------------------------------------- */

static double epsilon_after(const dpsgd_run *r, int64_t steps)
{
    return dp_epsilon(r->trainer.rate, r->noise, steps, r->delta);
}

static int print_budget(const dpsgd_run *r)
{
    printf("each step takes an image with probability %.6f\n", r->trainer.rate);
    printf("epsilon %.4f after %lld steps, with delta %g\n", epsilon_after(r, r->base.options.steps),
           (long long)r->base.options.steps, r->delta);
    return SUCCESS;
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

static int prepare(dpsgd_run *r)
{
    if (open_run(&r->base) != SUCCESS) return FAILURE;
    if (!digits_read(r->base.context, &r->data)) return FAILURE;
    if (r->batch > r->data.training.n || !(r->delta < 1)) {
        fprintf(stderr, "dpsgd: expected --batch of at most %lld, the images for training, and --delta below 1\n",
                (long long)r->data.training.n);
        return BAD_OPTION;
    }
    const double rate = (double)r->batch / (double)r->data.training.n;
    const dp_privacy privacy = {.clip = r->clip, .noise = r->noise, .expected = (double)r->batch};
    if (r->budget) {
        r->trainer.rate = rate;
        return SUCCESS;
    }
    if (!make_directory("dpsgd", r->base.options.out)) return FAILURE;
    return trainer_create(r->base.context, &r->data, r->base.options.seed, rate, &privacy,
                          r->base.options.learning_rate, &r->trainer) == TOW_OK
               ? SUCCESS
               : complain(&r->base);
}

/* Adds a point to the curve. Prints a message and returns false without memory. */
static bool note(dpsgd_run *r, int64_t done, double accuracy)
{
    if (r->n_points == r->capacity) {
        size_t capacity = r->capacity ? 2 * r->capacity : 64;
        double *epsilons = realloc(r->epsilons, capacity * sizeof *epsilons);
        if (epsilons) r->epsilons = epsilons;
        double *accuracies = realloc(r->accuracies, capacity * sizeof *accuracies);
        if (accuracies) r->accuracies = accuracies;
        if (!epsilons || !accuracies) {
            fprintf(stderr, "dpsgd: out of memory\n");
            return false;
        }
        r->capacity = capacity;
    }
    r->epsilons[r->n_points] = epsilon_after(r, done);
    r->accuracies[r->n_points++] = accuracy;
    return true;
}

static int draw(const dpsgd_run *r)
{
    const tow_series curve = {.n = r->n_points, .x = r->epsilons, .y = r->accuracies};
    const tow_chart chart = TOW_CHART(.title = "What accuracy costs", .x_label = "epsilon",
                                      .y_label = "accuracy on held-out digits", .n_series = 1, .series = &curve);
    return write_chart(&r->base, "dpsgd.svg", &chart) ? complain(&r->base) : SUCCESS;
}

/* One update; after each epoch, and the last update, the accuracy on what is held out. */
static int step(dpsgd_run *r, int64_t done, progress *p)
{
    const int64_t per_epoch = r->data.training.n / r->batch;
    double loss, accuracy = NAN;
    if (trainer_step(&r->trainer, &loss) != TOW_OK) return complain(&r->base);
    if ((done + 1) % per_epoch == 0 || done + 1 == r->base.options.steps) {
        if (trainer_accuracy(&r->trainer, &accuracy) != TOW_OK) return complain(&r->base);
        if (!note(r, done + 1, accuracy)) return FAILURE;
    }
    return progress_step(p, done + 1, loss, accuracy) ? SUCCESS : FAILURE;
}

static int train(dpsgd_run *r)
{
    const common_options *o = &r->base.options;
    const progress_options shown = {.program = "dpsgd",
                                    .steps = o->steps,
                                    .unit = "images",
                                    .units_per_step = r->batch,
                                    .measure = "accuracy",
                                    .measure_key = "accuracy",
                                    .log = o->log};
    progress p;
    int64_t done = 0;
    int status = SUCCESS;
    double accuracy;
    if (!progress_start(&p, &shown)) return FAILURE;
    catch_interrupts();
    while (status == SUCCESS && !interrupted() && done < o->steps) status = step(r, done++, &p);
    if (!progress_end(&p) && status == SUCCESS) status = FAILURE;
    if (status != SUCCESS) return status;
    if (trainer_accuracy(&r->trainer, &accuracy) != TOW_OK) return complain(&r->base);
    printf("%.4f of the held-out digits are read after %lld steps, at epsilon %.4f with delta %g\n", accuracy,
           (long long)done, epsilon_after(r, done), r->delta);
    status = draw(r);
    return status == SUCCESS && interrupted() ? INTERRUPTED : status;
}

int main(int argc, char **argv)
{
    static dpsgd_run r;
    read_options(argc, argv, &r);
    int status = prepare(&r);
    if (status == SUCCESS) status = r.budget ? print_budget(&r) : train(&r);
    status = finish_output("dpsgd", status);
    free(r.epsilons);
    free(r.accuracies);
    trainer_free(&r.trainer);
    digits_free(&r.data);
    tow_context_free(r.base.context);
    return status;
}
