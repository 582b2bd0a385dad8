/* Two loaders of digits, and moving images. */
#include "data.h"

#include <string.h>

#include "common/common.h"
#include "common/digits.h"
#include "model.h"

static const double part = 0.8; /* of the digits is for training */

/* pixels: f32 [SIDE, SIDE] */
static void move_image(float *pixels, int dy, int dx)
{
    float moved[SIDE][SIDE] = {{0}};
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++)
            if (y + dy >= 0 && y + dy < SIDE && x + dx >= 0 && x + dx < SIDE)
                moved[y + dy][x + dx] = pixels[y * SIDE + x];
    memcpy(pixels, moved, sizeof moved);
}

/* A tow_batch_function: moves half of the images by up to a pixel in both directions. */
static tow_status move_images(const tow_batch *batch)
{
    float *pixels = tow_array_data(batch->inputs[0]);
    int64_t n = tow_array_type(batch->inputs[0]).dims[0];
    uint64_t key = (uint64_t)batch->key[0] << 32 | batch->key[1];
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = random_bits(key, (uint64_t)i);
        if (bits >> 63) move_image(pixels + i * SIDE * SIDE, (int)(bits % 3) - 1, (int)(bits / 3 % 3) - 1);
    }
    return TOW_OK;
}

tow_loader *digits_open(tow_context *context, bool training, int64_t batch, uint64_t seed)
{
    const tow_loader_options train = TOW_LOADER_OPTIONS(.batch = batch, .shuffle = true, .seed = seed,
                                                        .split = {.low = 0, .high = part}, .on_batch = move_images);
    const tow_loader_options test = TOW_LOADER_OPTIONS(.split = {.low = part, .high = 1}, .no_thread = true);
    return digits_loader("digits", context, 0, 1, training ? train : test);
}
