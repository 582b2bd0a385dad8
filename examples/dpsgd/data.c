/* All digits of a part as one batch. */
#include "data.h"

#include <string.h>

#include "common/common.h"

static bool read_part(tow_context *context, double low, double high, digits_part *part)
{
    tow_array *const *batch = NULL;
    part->loader = digits_loader("dpsgd", context, 0, 1,
                                 TOW_LOADER_OPTIONS(.split = {.low = low, .high = high}, .no_thread = true));
    if (!part->loader) return false;
    if (tow_loader_next(part->loader, &batch) != TOW_OK) {
        report_error("dpsgd", context);
        return false;
    }
    part->images = batch[0];
    part->labels = batch[1];
    part->n = tow_array_type(batch[1]).dims[0];
    return true;
}

bool digits_read(tow_context *context, digits_data *data)
{
    *data = (digits_data){0};
    return read_part(context, 0, 0.8, &data->training) && read_part(context, 0.8, 1, &data->held_out);
}

void digits_free(digits_data *data)
{
    tow_loader_free(data->training.loader);
    tow_loader_free(data->held_out.loader);
}

void digits_copy(const digits_part *part, int64_t from, int64_t to, tow_array *images, tow_array *labels)
{
    const float *image = (const float *)tow_array_data(part->images) + from * DIGITS_PIXELS;
    memcpy((float *)tow_array_data(images) + to * DIGITS_PIXELS, image, DIGITS_PIXELS * sizeof *image);
    ((int32_t *)tow_array_data(labels))[to] = ((const int32_t *)tow_array_data(part->labels))[from];
}
