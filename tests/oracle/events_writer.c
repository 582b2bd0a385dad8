/* events_writer DIRECTORY: writes events that tensorboard_test.py reads back. */
#include <stdio.h>

#include "tow/tow.h"

static tow_status write_all(tow_context *context, tow_logger *log)
{
    uint8_t pixels[5][4][3];
    float values[1000];
    tow_array *picture = NULL, *weights = NULL;
    for (int i = 0; i < 60; i++) ((uint8_t *)pixels)[i] = (uint8_t)(4 * i);
    for (int i = 0; i < 1000; i++) values[i] = (float)(i * i % 997) / 100 - 3;
    tow_status status = TOW_OK;
    for (int step = 1; step <= 3 && !status; step++) {
        const tow_log_number numbers[] = {{"loss", 2.0 / step}, {"train/accuracy", 0.1 * step}};
        status = tow_logger_numbers(log, step, 2, numbers);
    }
    if (!status)
        status = tow_array_from_data(context, tow_make_type(TOW_U8, 3, (int64_t[]){5, 4, 3}), pixels, &picture);
    if (!status) status = tow_array_from_data(context, tow_make_type(TOW_F32, 1, (int64_t[]){1000}), values, &weights);
    if (!status) status = tow_logger_image(log, 3, "picture", picture);
    if (!status) status = tow_logger_histogram(log, 3, "weights", weights);
    tow_array_release(picture);
    tow_array_release(weights);
    return status;
}

/* A run of three steps, and one that goes on after its second one. */
int main(int argc, char **argv)
{
    tow_context *context = NULL;
    tow_logger *log = NULL, *resumed = NULL;
    if (argc != 2) return 2;
    tow_status status = tow_context_create(NULL, &context);
    if (!status) status = tow_logger_create(context, &TOW_LOGGER_OPTIONS(.events = argv[1]), &log);
    if (!status) status = write_all(context, log);
    if (!status) status = tow_logger_create(context, &TOW_LOGGER_OPTIONS(.events = argv[1], .first = 2), &resumed);
    if (!status) status = tow_logger_numbers(resumed, 3, 1, (tow_log_number[]){{"loss", 7}});
    if (status) fprintf(stderr, "%s\n", tow_context_error(context));
    (void)tow_logger_free(log);
    (void)tow_logger_free(resumed);
    tow_context_free(context);
    return status == TOW_OK ? 0 : 1;
}
