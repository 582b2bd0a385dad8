/* Probabilities, scores, tables. */
#include "evaluate.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sets.h"

/* ---- life -------------------------------------------------------------------------------------------------------- */

tow_status evaluation_create(const char *program, tow_context *context, const ensemble *model, const tow_params *params,
                             int64_t unseen, uint64_t seed, evaluation *e)
{
    static const tow_model_options plain = TOW_MODEL_OPTIONS(.deterministic = true);
    const tow_model_function_options options = TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1, .model = &plain);
    *e = (evaluation){.program = program, .context = context, .members = model->members.axis_size};
    tow_status status = make_sets(program, context, unseen, seed, e->sets);
    for (int i = 0; i < N_SETS && !status; i++) {
        image_set *set = &e->sets[i];
        set->probabilities = calloc((size_t)((e->members + 1) * set->n * CLASSES) + 1, sizeof(double));
        set->disagreement = calloc((size_t)set->n + 1, sizeof(double));
        if (!set->probabilities || !set->disagreement) status = TOW_OUT_OF_MEMORY;
    }
    return status ? status : tow_model_function_create(TOW_MODULE(model), params, &options, &e->forward);
}

void evaluation_free(evaluation *e)
{
    tow_model_function_free(e->forward);
    for (int i = 0; i < N_SETS; i++) {
        tow_array_release(e->sets[i].images);
        tow_array_release(e->sets[i].labels);
        free(e->sets[i].probabilities);
        free(e->sets[i].disagreement);
    }
}

/* ---- what the members say ---------------------------------------------------------------------------------------- */

const double *probabilities_of(const evaluation *e, int set, int64_t who)
{
    return e->sets[set].probabilities + who * e->sets[set].n * CLASSES;
}

static tow_status check_finite(const evaluation *e, const float *logits, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (isfinite(logits[i])) continue;
        fprintf(stderr, "%s: what the members say is not finite; use a smaller --learning-rate\n", e->program);
        return TOW_CHECK_FAILED;
    }
    return TOW_OK;
}

/* p = exp(l - max) / sum exp(l - max) */
static void softmax(const float *logits, double *p)
{
    double largest = logits[0], sum = 0;
    for (int c = 1; c < CLASSES; c++) largest = fmax(largest, logits[c]);
    for (int c = 0; c < CLASSES; c++) sum += p[c] = exp(logits[c] - largest);
    for (int c = 0; c < CLASSES; c++) p[c] /= sum;
}

/* -sum p log p */
static double entropy(const double *p)
{
    double sum = 0;
    for (int c = 0; c < CLASSES; c++) sum -= p[c] > 0 ? p[c] * log(p[c]) : 0;
    return sum;
}

/* The mean of the members for one image, and how much the image says about which member answers: H(mean p) - mean H(p),
 * the mutual information of answer and member (Houlsby et al., 2011). */
static void judge(const evaluation *e, image_set *set, int64_t image)
{
    double *mean = set->probabilities + (e->members * set->n + image) * CLASSES, of_members = 0;
    memset(mean, 0, CLASSES * sizeof *mean);
    for (int64_t m = 0; m < e->members; m++) {
        const double *p = set->probabilities + (m * set->n + image) * CLASSES;
        for (int c = 0; c < CLASSES; c++) mean[c] += p[c] / (double)e->members;
        of_members += entropy(p) / (double)e->members;
    }
    set->disagreement[image] = fmax(0, entropy(mean) - of_members);
}

tow_status evaluate(evaluation *e, int index)
{
    image_set *set = &e->sets[index];
    tow_model_results results;
    if (set->n == 0) return TOW_OK;
    tow_status status = tow_model_function_call(e->forward, &TOW_MODEL_ARGUMENTS(.inputs = &set->images), &results);
    if (status) return status;
    const float *logits = tow_array_data(results.outputs[0]); /* [members, n, 10] */
    status = check_finite(e, logits, e->members * set->n * CLASSES);
    if (status) return status;
    for (int64_t i = 0; i < e->members * set->n; i++) softmax(logits + i * CLASSES, set->probabilities + i * CLASSES);
    for (int64_t i = 0; i < set->n; i++) judge(e, set, i);
    return TOW_OK;
}

/* ---- how right it is --------------------------------------------------------------------------------------------- */

int likeliest(const double *p)
{
    int best = 0;
    for (int c = 1; c < CLASSES; c++)
        if (p[c] > p[best]) best = c;
    return best;
}

void fill_bins(const double *p, const int32_t *labels, int64_t n, bin *bins)
{
    for (int64_t i = 0; i < n; i++, p += CLASSES) {
        const int answer = likeliest(p), at = (int)fmin(p[answer] * BINS, BINS - 1);
        bins[at].images++;
        bins[at].right += answer == labels[i];
        bins[at].confidence += p[answer];
    }
}

scores score(const double *p, const int32_t *labels, int64_t n)
{
    scores s = {0};
    bin bins[BINS] = {{0}};
    fill_bins(p, labels, n, bins);
    for (int64_t i = 0; i < n; i++) s.nll -= log(fmax(p[i * CLASSES + labels[i]], DBL_MIN)) / (double)n;
    for (int i = 0; i < BINS; i++) {
        s.accuracy += bins[i].right / (double)n;
        s.calibration += fabs(bins[i].right - bins[i].confidence) / (double)n;
    }
    return s;
}

double probability_larger(const double *a, int64_t n, const double *b, int64_t m)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++) sum += b[j] > a[i] ? 1 : b[j] == a[i] ? 0.5 : 0;
    return sum / (double)(n * m);
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static void print_scores(const char *who, const scores *s)
{
    printf("%-12s %9.2f %% %12.4f %19.4f\n", who, 100 * s->accuracy, s->nll, s->calibration);
}

/* The scores of each member, their mean, and those of the mean of the members. */
static void print_members(const evaluation *e, int index)
{
    const image_set *set = &e->sets[index];
    const int32_t *labels = tow_array_data(set->labels);
    scores mean = {0};
    printf("\n%lld digits, %s\n%-12s %11s %12s %19s\n", (long long)set->n, set->name, "", "accuracy", "-log p",
           "calibration error");
    for (int64_t m = 0; m < e->members; m++) {
        char who[32];
        const scores s = score(probabilities_of(e, index, m), labels, set->n);
        snprintf(who, sizeof who, "member %lld", (long long)m);
        print_scores(who, &s);
        mean.accuracy += s.accuracy / (double)e->members;
        mean.nll += s.nll / (double)e->members;
        mean.calibration += s.calibration / (double)e->members;
    }
    print_scores("a member", &mean);
    const scores together = score(probabilities_of(e, index, e->members), labels, set->n);
    print_scores("all together", &together);
}

static double mean_of(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] / (double)n;
    return sum;
}

/* Prints the disagreement of the members, kind by kind, and how well it tells the kind from held-out digits. */
static void print_disagreement(const evaluation *e)
{
    const image_set *known = &e->sets[HELD_OUT];
    printf("\n%-12s %8s %14s %34s\n", "", "images", "disagreement", "larger than for a held-out digit");
    for (int i = 0; i < N_SETS; i++) {
        const image_set *set = &e->sets[i];
        if (set->n == 0) continue;
        printf("%-12s %8lld %14.4f", set->name, (long long)set->n, mean_of(set->disagreement, set->n));
        if (i != HELD_OUT && known->n > 0)
            printf(" %32.1f %%", 100 * probability_larger(known->disagreement, known->n, set->disagreement, set->n));
        putchar('\n');
    }
    putchar('\n');
}

void evaluation_print(const evaluation *e)
{
    for (int i = HELD_OUT; i <= NOISY; i++)
        if (e->sets[i].n > 0) print_members(e, i);
    print_disagreement(e);
}
