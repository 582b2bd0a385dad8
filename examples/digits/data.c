/* Opening the files of digits, and moving images. */
#include "data.h"

#include <stdio.h>
#include <string.h>

#include "common/common.h"
#include "model.h"

enum {
    WHITE = 16 /* the highest value of a pixel */
};
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

/* A tow_transform_function. */
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

static tow_status open_loader(tow_context *context, tow_source *images, tow_source *labels, bool training,
                              int64_t batch, uint64_t seed, tow_loader **loader)
{
    const tow_field fields[] = {
        {.source = images, .divide = WHITE, .reshape = true, .rank = 3, .dims = {SIDE, SIDE, 1}},
        {.source = labels, .dtype = TOW_I32}};
    const tow_loader_options train = {.fields = fields,
                                      .n_fields = 2,
                                      .batch = batch,
                                      .shuffle = true,
                                      .seed = seed,
                                      .split = {.low = 0, .high = part},
                                      .transform = move_images};
    tow_loader_options test = {
        .fields = fields, .n_fields = 2, .batch = 1, .split = {.low = part, .high = 1}, .no_thread = true};
    if (training) return tow_loader_create(context, &train, loader);
    tow_status status = tow_loader_create(context, &test, loader);
    if (status) return status;
    test.batch = tow_loader_rows(*loader);
    tow_loader_free(*loader);
    return tow_loader_create(context, &test, loader);
}

tow_loader *digits_open(tow_context *context, bool training, int64_t batch, uint64_t seed)
{
    char images_path[4096], labels_path[4096];
    tow_source *images = NULL, *labels = NULL;
    tow_loader *loader = NULL;
    find_shared("digits/images.npy", images_path, sizeof images_path);
    find_shared("digits/labels.npy", labels_path, sizeof labels_path);
    if (images_path[0] == '\0' || labels_path[0] == '\0') {
        fprintf(stderr, "digits: there is no share/tow/digits/images.npy beside the directory of this program\n");
        return NULL;
    }
    tow_status status = tow_source_npy(context, images_path, &images);
    if (!status) status = tow_source_npy(context, labels_path, &labels);
    if (!status) status = open_loader(context, images, labels, training, batch, seed, &loader);
    if (status) fprintf(stderr, "digits: %s\n", tow_context_error(context));
    tow_source_release(images);
    tow_source_release(labels);
    return loader;
}
