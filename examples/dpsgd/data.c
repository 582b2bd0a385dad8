/* Reading the digits, holding some of them out. */
#include "data.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/common.h"

enum {
    HELD_OUT = 5 /* one in so many */
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
        fprintf(stderr, "dpsgd: cannot read share/tow/digits/images.npy and labels.npy beside this program: %s\n",
                tow_context_error(context));
        return false;
    }
    d->n = tow_array_type(d->images).dims[0];
    d->n_train = d->n - d->n / HELD_OUT;
    d->order = malloc((size_t)d->n * sizeof *d->order);
    if (!d->order) {
        fprintf(stderr, "dpsgd: out of memory\n");
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
