/* Held-out digits, and what becomes of them. */
#include "sets.h"

#include <math.h>
#include <string.h>

#include "common/common.h"
#include "common/digits.h"

static const double part = 0.8;      /* of the digits is for training */
static const double deviation = 0.3; /* of the noise; black is 0 and white is 1 */

tow_loader *open_training(const char *program, tow_context *context, int64_t batch, uint64_t seed)
{
    return digits_loader(
        program, context, 0, 1,
        TOW_LOADER_OPTIONS(.batch = batch, .shuffle = true, .seed = seed, .split = {.low = 0, .high = part}));
}

/* ---- what becomes of an image: f32 [SIDE, SIDE] ------------------------------------------------------------------ */

static void add_noise(float *pixels, uint64_t seed, int64_t image)
{
    for (int i = 0; i < PIXELS; i++) {
        double x = pixels[i] + deviation * random_normal(seed, (uint64_t)(image * PIXELS + i));
        pixels[i] = (float)fmax(0, fmin(1, x));
    }
}

/* By a quarter, against the clock. */
static void lay_down(float *pixels, uint64_t seed, int64_t image)
{
    float turned[PIXELS];
    (void)seed, (void)image;
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) turned[(SIDE - 1 - x) * SIDE + y] = pixels[y * SIDE + x];
    memcpy(pixels, turned, sizeof turned);
}

static void turn_over(float *pixels, uint64_t seed, int64_t image)
{
    for (int quarter = 0; quarter < 2; quarter++) lay_down(pixels, seed, image);
}

/* ---- the sets ---------------------------------------------------------------------------------------------------- */

/* The images that show `digit`, or those that do not. */
static tow_status select_digit(tow_context *context, tow_array *const *from, int64_t digit, bool shown, image_set *set)
{
    const float *images = tow_array_data(from[0]);
    const int32_t *labels = tow_array_data(from[1]);
    const int64_t all = tow_array_type(from[1]).dims[0];
    for (int64_t i = 0; i < all; i++) set->n += (labels[i] == digit) == shown;
    if (set->n == 0) return TOW_OK;
    const tow_type types[] = {tow_make_type(TOW_F32, 4, (int64_t[]){set->n, SIDE, SIDE, 1}),
                              tow_make_type(TOW_I32, 1, &set->n)};
    tow_status status = tow_array_create(context, types[0], &set->images);
    if (!status) status = tow_array_create(context, types[1], &set->labels);
    for (int64_t i = 0, to = 0; i < all && !status; i++) {
        if ((labels[i] == digit) != shown) continue;
        memcpy((float *)tow_array_data(set->images) + to * PIXELS, images + i * PIXELS, PIXELS * sizeof *images);
        ((int32_t *)tow_array_data(set->labels))[to++] = labels[i];
    }
    return status;
}

static tow_status change(tow_context *context, const image_set *from, void (*function)(float *, uint64_t, int64_t),
                         uint64_t seed, image_set *set)
{
    set->n = from->n;
    set->labels = tow_array_retain(from->labels);
    tow_status status =
        tow_array_from_data(context, tow_array_type(from->images), tow_array_data(from->images), &set->images);
    for (int64_t i = 0; i < set->n && !status; i++)
        function((float *)tow_array_data(set->images) + i * PIXELS, seed, i);
    return status;
}

tow_status make_sets(const char *program, tow_context *context, int64_t unseen, uint64_t seed, image_set *sets)
{
    static const char *const names[N_SETS] = {"held out", "with noise", "upside down", "lying", "never seen"};
    tow_loader *loader =
        digits_loader(program, context, 0, 1, TOW_LOADER_OPTIONS(.split = {.low = part, .high = 1}, .no_thread = true));
    tow_array *const *held_out = NULL;
    tow_status status = loader ? tow_loader_next(loader, &held_out) : tow_context_status(context);
    for (int i = 0; i < N_SETS; i++) sets[i].name = names[i];
    if (!status) status = select_digit(context, held_out, unseen, false, &sets[HELD_OUT]);
    if (!status) status = select_digit(context, held_out, unseen, true, &sets[UNSEEN]);
    if (!status) status = change(context, &sets[HELD_OUT], add_noise, seed, &sets[NOISY]);
    if (!status) status = change(context, &sets[HELD_OUT], turn_over, seed, &sets[UPSIDE_DOWN]);
    if (!status) status = change(context, &sets[HELD_OUT], lay_down, seed, &sets[LYING]);
    tow_loader_free(loader);
    return status;
}
