/* Reading the digits, holding some of them out, batches. */
#include "data.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/common.h"
#include "model.h"

enum {
    HELD_OUT = 5, /* one in so many */
    WHITE = 16    /* the highest value of a pixel */
};

/* Fisher and Yates: `order` becomes another permutation of itself. */
static void shuffle(int32_t *order, int64_t n, uint64_t seed)
{
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = (int64_t)(random_bits(seed, (uint64_t)i) % (uint64_t)(i + 1));
        int32_t other = order[i];
        order[i] = order[j];
        order[j] = other;
    }
}

bool digits_read(tow_context *context, uint64_t split, digits_data *d)
{
    char images[4096], labels[4096];
    *d = (digits_data){0};
    find_shared("digits/images.npy", images, sizeof images);
    find_shared("digits/labels.npy", labels, sizeof labels);
    if (images[0] == '\0' || tow_npy_read(context, images, &d->images) != TOW_OK ||
        tow_npy_read(context, labels, &d->labels) != TOW_OK) {
        fprintf(stderr, "digits: cannot read share/tow/digits/images.npy and labels.npy beside this program: %s\n",
                tow_context_error(context));
        return false;
    }
    d->n = tow_array_type(d->images).dims[0];
    d->n_train = d->n - d->n / HELD_OUT;
    d->order = malloc((size_t)d->n * sizeof *d->order);
    if (!d->order) {
        fprintf(stderr, "digits: out of memory\n");
        return false;
    }
    for (int64_t i = 0; i < d->n; i++) d->order[i] = (int32_t)i;
    shuffle(d->order, d->n, split);
    return true;
}

void digits_free(digits_data *d)
{
    tow_array_release(d->images);
    tow_array_release(d->labels);
    free(d->order);
}

/* Copies image `from` to place `to` of a batch, moved by (dy, dx). */
static void copy_image(const digits_data *d, int64_t from, int dy, int dx, int64_t to, tow_array *images,
                       tow_array *labels)
{
    const uint8_t *pixels = (const uint8_t *)tow_array_data(d->images) + from * SIDE * SIDE;
    float *at = (float *)tow_array_data(images) + to * SIDE * SIDE;
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            bool inside = y - dy >= 0 && y - dy < SIDE && x - dx >= 0 && x - dx < SIDE;
            at[y * SIDE + x] = inside ? (float)pixels[(y - dy) * SIDE + x - dx] / WHITE : 0;
        }
    ((int32_t *)tow_array_data(labels))[to] = ((const uint8_t *)tow_array_data(d->labels))[from];
}

void digits_batch(const digits_data *d, uint64_t seed, int64_t index, tow_array *images, tow_array *labels)
{
    static int32_t order[1 << 16];
    int64_t size = tow_array_type(labels).dims[0], per_epoch = d->n_train / size, epoch = index / per_epoch;
    for (int64_t i = 0; i < d->n_train; i++) order[i] = d->order[i];
    shuffle(order, d->n_train, random_bits(seed, (uint64_t)epoch));
    for (int64_t i = 0; i < size; i++) {
        uint64_t bits = random_bits(seed + 1, (uint64_t)(index * size + i));
        copy_image(d, order[index % per_epoch * size + i], (int)(bits % 3) - 1, (int)(bits / 3 % 3) - 1, i, images,
                   labels);
    }
}

void digits_held_out(const digits_data *d, tow_array *images, tow_array *labels)
{
    for (int64_t i = d->n_train; i < d->n; i++) copy_image(d, d->order[i], 0, 0, i - d->n_train, images, labels);
}
