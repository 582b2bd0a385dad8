/* Opening the two files of digits. */
#include "digits.h"

#include <stdio.h>

#include "common.h"

enum {
    MOST = 16 /* the highest value of a pixel, which is white */
};

static tow_status open_file(tow_context *context, const char *name, tow_source **source)
{
    char path[4096];
    find_shared(name, path, sizeof path);
    return tow_source_npy(context, path[0] != '\0' ? path : name, source);
}

static tow_status open_loader(tow_context *context, tow_loader_options *options, tow_loader **loader)
{
    const bool whole = options->batch == 0;
    if (whole) options->batch = 1;
    tow_status status = tow_loader_create(context, options, loader);
    if (status || !whole) return status;
    options->batch = tow_loader_row_count(*loader);
    tow_loader_free(*loader);
    return tow_loader_create(context, options, loader);
}

tow_loader *digits_loader(const char *program, tow_context *context, double black, double white,
                          tow_loader_options options)
{
    tow_source *images = NULL, *labels = NULL;
    tow_loader *loader = NULL;
    double slope = MOST / (white - black);
    tow_status status = open_file(context, "digits/images.npy", &images);
    if (!status) status = open_file(context, "digits/labels.npy", &labels);
    const tow_field fields[] = {{.source = images,
                                 .subtract = -black * slope, /* (x + black slope) / slope = black + x / slope */
                                 .divide = slope,
                                 .reshape = true,
                                 .rank = 3,
                                 .dims = {DIGITS_SIDE, DIGITS_SIDE, 1}},
                                {.source = labels, .dtype = TOW_I32}};
    options.fields = fields;
    options.n_fields = 2;
    if (!status) status = open_loader(context, &options, &loader);
    if (status) fprintf(stderr, "%s: the digits of share/tow: %s\n", program, tow_context_error(context));
    tow_source_release(images);
    tow_source_release(labels);
    return loader;
}
