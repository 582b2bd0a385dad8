/* Nearest neighbors among the digits. */
#include "digits.h"

#include <math.h>
#include <stdio.h>

#include "common/common.h"
#include "common/digits.h"
#include "sample.h"

enum {
    PIXELS = SIDE * SIDE
};
static const double part = 0.8; /* of the digits is for training */

tow_loader *digits_open(tow_context *context, int64_t batch, uint64_t seed)
{
    return digits_loader(
        "diffusion", context, -1, 1,
        TOW_LOADER_OPTIONS(.batch = batch, .shuffle = true, .seed = seed, .split = {.low = 0, .high = part}));
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

static double distance(const float *a, const float *b)
{
    double sum = 0;
    for (int i = 0; i < PIXELS; i++) sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(sum);
}

/* The mean distance of n images to their nearest neighbors among the digits for training, and, with labels, how many
 * of them have the same one. */
static void compare(const char *what, tow_array *const *digits, int64_t n, const float *images, const int32_t *labels)
{
    const float *known = tow_array_data(digits[0]);
    const int32_t *known_labels = tow_array_data(digits[1]);
    int64_t n_known = tow_array_type(digits[0]).dims[0], same = 0;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double least = INFINITY;
        int32_t label = -1;
        for (int64_t j = 0; j < n_known; j++) {
            double d = distance(images + i * PIXELS, known + j * PIXELS);
            if (d < least) label = known_labels[j];
            if (d < least) least = d;
        }
        sum += least;
        same += labels && labels[i] == label;
    }
    printf("%-9s %3lld images, %.3f from the nearest digit on average", what, (long long)n, sum / (double)n);
    if (labels) printf(", which is the same digit for %.1f %%", 100 * (double)same / (double)n);
    putchar('\n');
}

bool digits_compare(tow_context *context, const tow_array *samples, uint64_t seed)
{
    static float noise[SAMPLES * PIXELS];
    static int32_t asked[SAMPLES];
    tow_loader *train = digits_loader("diffusion", context, -1, 1,
                                      TOW_LOADER_OPTIONS(.split = {.low = 0, .high = part}, .no_thread = true));
    tow_loader *test = train ? digits_loader("diffusion", context, -1, 1,
                                             TOW_LOADER_OPTIONS(.split = {.low = part, .high = 1}, .no_thread = true))
                             : NULL;
    tow_array *const *known = NULL, *const *held_out = NULL;
    bool ok = train && test && tow_loader_next(train, &known) == TOW_OK && tow_loader_next(test, &held_out) == TOW_OK;
    for (int i = 0; i < SAMPLES; i++) asked[i] = i / EACH;
    for (int i = 0; i < SAMPLES * PIXELS; i++) noise[i] = (float)(random_bits(seed, (uint64_t)i) >> 40) * 0x1p-23F - 1;
    if (ok) {
        compare("drawn:", known, SAMPLES, tow_array_data(samples), asked);
        compare("held out:", known, tow_array_type(held_out[0]).dims[0], tow_array_data(held_out[0]),
                tow_array_data(held_out[1]));
        compare("noise:", known, SAMPLES, noise, NULL);
    }
    tow_loader_free(train);
    tow_loader_free(test);
    return ok;
}
