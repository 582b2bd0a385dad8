/* Predictions of the members and of their mean for images, their accuracy, and the disagreement of the members. */
#ifndef ENSEMBLE_EVALUATE_H
#define ENSEMBLE_EVALUATE_H

#include "model.h"

enum {
    BINS = 10 /* of confidence, from 0 to 1 */
};

/* Images of one kind, and what was said of them. */
typedef struct image_set {
    const char *name;
    int64_t n;
    tow_array *images, *labels; /* f32 [n, 8, 8, 1], i32 [n] */
    double *probabilities;      /* [members + 1, n, 10]: of the members, then their mean */
    double *disagreement;       /* [n] */
} image_set;

/* The digits that were held out, the same with noise, turned by half and by a quarter, and those that show the digit
 * that training did not see, of which there may be none. */
enum {
    HELD_OUT,
    NOISY,
    UPSIDE_DOWN,
    LYING,
    UNSEEN,
    N_SETS
};

typedef struct evaluation {
    const char *program; /* in messages */
    tow_context *context;
    tow_model_function *forward;
    int64_t members;
    image_set sets[N_SETS];
} evaluation;

/* Scores of probabilities [n, 10]. */
typedef struct scores {
    double accuracy;
    double nll;         /* mean of -log p(label), in nats */
    double calibration; /* mean |accuracy - confidence| over bins of the confidence, weighted by their images */
} scores;

/* Of one bin of the confidence. */
typedef struct bin {
    double images, right, confidence; /* sums */
} bin;

/* The parameters may change later; they live as long as the evaluation, as the model does. unseen: a digit, or -1.
 * Prints a message of `program` where files are not there. */
tow_status evaluation_create(const char *program, tow_context *context, const ensemble *model, const tow_params *params,
                             int64_t unseen, uint64_t seed, evaluation *e);
void evaluation_free(evaluation *e);
/* Asks the members about a set, as the parameters are now. Prints a message and returns TOW_CHECK_FAILED for answers
 * that are not finite. */
tow_status evaluate(evaluation *e, int set);
/* The probabilities of member `who` for the images of a set, or, for who = members, their mean: [n, 10]. */
const double *probabilities_of(const evaluation *e, int set, int64_t who);

int likeliest(const double *p); /* of CLASSES probabilities */
/* Adds n predictions to bins[BINS]. */
void fill_bins(const double *p, const int32_t *labels, int64_t n, bin *bins);
scores score(const double *p, const int32_t *labels, int64_t n);
/* The probability that a number of b is larger than one of a, equal ones counted half. */
double probability_larger(const double *a, int64_t n, const double *b, int64_t m);

/* Tables of all that, after every set has been evaluated. */
void evaluation_print(const evaluation *e);

#endif
