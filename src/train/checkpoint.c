/* Checkpoints: parameters, variables, optimizer slots, averages and counters of a train state as one safetensors file.
 *
 * Metadata are texts: format, optimizer, step, seed, data_position, row_groups, description. Loading compares what the
 * header says with the state, then reads the data once to compare their checksums, and only then reads them again,
 * straight into the state's arrays: so a file that is refused changes nothing, and no second copy of anything is in
 * memory. Should the second reading fail, because the disk fails or somebody writes to the file at that moment, the
 * state is torn: it takes no step and cannot be saved until a load succeeds. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "src/base/locale.h"
#include "src/group/agreement.h"
#include "src/io/tensors.h"
#include "src/params/params.h"
#include "src/train/average.h"
#include "src/train/state.h"

static const char format[] = "tow-train-state-1";
static const char params_prefix[] = "params/";
static const char variables_prefix[] = "state/"; /* then the collection */
static const char average_prefix[] = "average/";
static const char loss_scale_key[] = "loss_scale", loss_scale_updates_key[] = "loss_scale_updates";
static const char row_groups_key[] = "row_groups";
static const char best_name_key[] = "metric", best_value_key[] = "metric_value"; /* of the best so far */

/* ---- saving ------------------------------------------------------------------------------------------------------ */

static tow_status set_number(tow_tensors *tensors, const char *key, uint64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, value);
    return tow_tensors_set_metadata(tensors, key, text);
}

/* Updates that were left out: only where some were, so that other files stay as they are. */
static tow_status save_skipped(const tow_train_state *state, tow_tensors *tensors)
{
    int64_t in_a_row;
    const int64_t skipped = tow_optimizer_skipped_count(state->optimizer, &in_a_row);
    tow_status status = TOW_OK;
    if (skipped == 0 && in_a_row == 0) return TOW_OK;
    TRY(set_number(tensors, "skipped", (uint64_t)skipped));
    TRY(set_number(tensors, "skipped_in_a_row", (uint64_t)in_a_row));
done:
    return status;
}

static tow_status set_real(tow_tensors *tensors, const char *key, double value)
{
    char text[32];
    const tow__locale locale = tow__locale_enter();
    snprintf(text, sizeof text, "%.17g", value);
    tow__locale_leave(locale);
    return tow_tensors_set_metadata(tensors, key, text);
}

static tow_status save_loss_scale(const tow_optimizer_state *optimizer, tow_tensors *tensors)
{
    tow_status status = TOW_OK;
    if (optimizer->loss_scale == 0) return TOW_OK;
    TRY(set_real(tensors, loss_scale_key, optimizer->loss_scale));
    TRY(set_number(tensors, loss_scale_updates_key, optimizer->loss_scale_updates));
done:
    return status;
}

/* Everything but what only a best checkpoint has. */
static tow_status fill(const tow_train_state *state, tow_tensors *tensors)
{
    tow_status status = TOW_OK;
    TRY(tow_tensors_set_metadata(tensors, "format", format));
    TRY(tow_tensors_set_metadata(tensors, "optimizer", state->optimizer_name));
    TRY(tow_tensors_set_metadata(tensors, "description", state->description));
    TRY(set_number(tensors, "step", (uint64_t)state->step));
    TRY(set_number(tensors, "seed", state->seed));
    TRY(set_number(tensors, "data_position", state->data_position));
    TRY(set_number(tensors, row_groups_key, state->row_groups));
    TRY(tow__params_share(state->kept, params_prefix, tensors));
    TRY(tow__params_share(state->variables, variables_prefix, tensors));
    for (size_t i = 0; i < tow_optimizer_slot_count(state->optimizer); i++)
        TRY(tow__params_share(tow_optimizer_slot(state->optimizer, i), tow_optimizer_slot_prefix(state->optimizer, i),
                              tensors));
    if (state->average) {
        TRY(set_number(tensors, "average_updates", (uint64_t)tow__average_count(state->average)));
        TRY(tow__params_share(tow__average_state(state->average), average_prefix, tensors));
    }
    TRY(save_skipped(state, tensors));
    TRY(save_loss_scale(state->optimizer, tensors));
done:
    return status;
}

static tow_status set_best(tow_tensors *tensors, const char *name, double metric)
{
    tow_status status = TOW_OK;
    if (!name) return TOW_OK;
    TRY(tow_tensors_set_metadata(tensors, best_name_key, name));
    TRY(set_real(tensors, best_value_key, metric));
done:
    return status;
}

/* The tensors and metadata of a state, if it can be saved. */
static tow_status collect(const tow_train_state *state, const tow_group *group, const char *function, const char *name,
                          double metric, tow_tensors **tensors)
{
    tow_status status = TOW_OK;
    if (state->torn) return tow__train_torn(state, function);
    if (tow_group_count(state->optimizer->shards) > 1 && group != state->options.group)
        return tow__fail(state->ctx, TOW_INVALID_ARGUMENT,
                         "%s: this process has its share of the state alone (.shard = %d); call tow_train_save_all in "
                         "all processes, with the group of the options",
                         function, state->options.shard);
    TRY(tow_tensors_create(state->ctx, tensors));
    TRY(fill(state, *tensors));
    TRY(set_best(*tensors, name, metric));
done:
    return status;
}

/* All processes of the group together; NULL: this one alone. */
static tow_status save(const tow_train_state *state, tow_group *group, const char *function, const char *path,
                       const char *name, double metric)
{
    tow_tensors *tensors = NULL;
    tow_status status = TOW_OK;
    TRY(tow__group_agree(state->ctx, group, collect(state, group, function, name, metric, &tensors)));
    TRY(tow_safetensors_write_all(group, path, tensors));
done:
    tow_tensors_free(tensors);
    return status;
}

tow_status tow_train_save(const tow_train_state *state, const char *path)
{
    if (!state) return tow__missing(NULL, __func__, "a train state");
    return save(state, NULL, __func__, path, NULL, 0);
}

tow_status tow_train_save_all(const tow_train_state *state, tow_group *group, const char *path)
{
    if (!state) return tow__missing(NULL, __func__, "a train state");
    return save(state, group, __func__, path, NULL, 0);
}

tow_status tow__train_save_best(const tow_train_state *state, const char *path, const char *name, double metric)
{
    return save(state, state->options.group, "tow_train_run", path, name, metric);
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

/* The contents of a file, before they are believed. */
typedef struct contents {
    tow_tensors *tensors; /* whose data are in the file */
    tow__loading loading;
    uint64_t step, seed, data_position;
    uint64_t skipped, skipped_in_a_row;
    double loss_scale; /* 0: the file has none */
    uint64_t loss_scale_updates;
    bool has_average;
    uint64_t average_updates;
} contents;

static tow_status get_number(tow_context *ctx, const char *path, const tow_tensors *tensors, const char *key,
                             uint64_t *value)
{
    const char *text = tow_tensors_metadata(tensors, key);
    char *end = NULL;
    errno = 0;
    if (text && text[0] >= '0' && text[0] <= '9') *value = strtoull(text, &end, 10);
    if (end && *end == '\0' && errno == 0) return TOW_OK;
    return tow__fail(ctx, TOW_BAD_FORMAT, "%s: expected a number as metadata '%s', found %s%.60s%s", path, key,
                     text ? "'" : "", text ? text : "none", text ? "'" : "");
}

static tow_status expect_text(tow_context *ctx, const char *path, const tow_tensors *tensors, const char *key,
                              const char *expected, const char *advice)
{
    const char *text = tow_tensors_metadata(tensors, key);
    if (text && strcmp(text, expected) == 0) return TOW_OK;
    return tow__fail(ctx, TOW_BAD_FORMAT, "%s: expected a checkpoint with %s '%.200s', found %s%.200s%s; %s", path, key,
                     expected, text ? "'" : "", text ? text : "none", text ? "'" : "", advice);
}

static tow_status expect_format(tow_context *ctx, const char *path, const tow_tensors *tensors)
{
    return expect_text(ctx, path, tensors, "format", format, "is this a checkpoint of a training run?");
}

/* A number that older files do not have: then 0. */
static tow_status get_optional(tow_context *ctx, const char *path, const tow_tensors *tensors, const char *key,
                               uint64_t *value)
{
    *value = 0;
    return tow_tensors_metadata(tensors, key) ? get_number(ctx, path, tensors, key, value) : TOW_OK;
}

/* A scale that the file has counts if the state scales losses. */
static tow_status get_loss_scale(const tow_train_state *state, const char *path, contents *file)
{
    tow_status status = TOW_OK;
    const char *text = tow_tensors_metadata(file->tensors, loss_scale_key);
    char *end = NULL;
    int exponent;
    if (!text || state->optimizer->loss_scale == 0) return TOW_OK;
    const tow__locale locale = tow__locale_enter();
    file->loss_scale = strtod(text, &end);
    tow__locale_leave(locale);
    if (end == text || *end != '\0' || !(file->loss_scale >= 1 && file->loss_scale <= 0x1p126) ||
        frexp(file->loss_scale, &exponent) != 0.5)
        return tow__fail(state->ctx, TOW_BAD_FORMAT,
                         "%s: expected a power of two from 1 to 2^126 as metadata '%s', found '%.60s'", path,
                         loss_scale_key, text);
    TRY(get_number(state->ctx, path, file->tensors, loss_scale_updates_key, &file->loss_scale_updates));
done:
    return status;
}

/* Another number of row groups is another order of sums, and so another run. Older files do not say theirs. */
static tow_status check_row_groups(const tow_train_state *state, const char *path, const tow_tensors *tensors)
{
    uint64_t found;
    tow_status status = TOW_OK;
    TRY(get_optional(state->ctx, path, tensors, row_groups_key, &found));
    if (found == 0 || found == state->row_groups || state->options.other_row_groups) return TOW_OK;
    return tow__fail(state->ctx, TOW_BAD_FORMAT,
                     "%s: expected a checkpoint that was trained with .row_groups = %zu, found %" PRIu64
                     ", whose sums over the batch are made in another order; go on with .row_groups = %" PRIu64
                     " (tow_train_saved_row_groups), or set .other_row_groups to go on with other bits",
                     path, state->row_groups, found, found);
done:
    return status;
}

/* Averages that the file has are read if the state wants some. */
static tow_status check_average(const tow_train_state *state, const char *path, contents *file)
{
    tow_status status = TOW_OK;
    const char *text = tow_tensors_metadata(file->tensors, "average_updates");
    if (!state->average || !text) return TOW_OK;
    TRY(get_number(state->ctx, path, file->tensors, "average_updates", &file->average_updates));
    TRY(tow__loading_add(&file->loading, tow__average_state(state->average), average_prefix, path));
    file->has_average = true;
done:
    return status;
}

static bool is_unwanted_average(const tow_train_state *state, const char *name)
{
    return !state->average && strncmp(name, average_prefix, sizeof average_prefix - 1) == 0;
}

/* No tensor is left over. Names with the prefix of parameters, variables or slots were looked at before. */
static tow_status check_names(const tow_train_state *state, const char *path, const contents *file)
{
    for (size_t i = 0; i < file->tensors->count; i++)
        if (!file->loading.wanted[i] && !is_unwanted_average(state, file->tensors->items[i].name))
            return tow__fail(state->ctx, TOW_BAD_FORMAT,
                             "%s: tensor '%.200s' is neither a parameter (%s...) nor a variable (%s...) nor an average "
                             "(%s...) nor a "
                             "slot of the optimizer %s",
                             path, file->tensors->items[i].name, params_prefix, variables_prefix, average_prefix,
                             state->optimizer_name);
    return TOW_OK;
}

static tow_status check_contents(const tow_train_state *state, const char *path, contents *file)
{
    tow_context *ctx = state->ctx;
    tow_status status = TOW_OK;
    TRY(tow__safetensors_open(ctx, path, &file->tensors));
    const tow_tensors *tensors = file->tensors;
    TRY(expect_format(ctx, path, tensors));
    TRY(expect_text(ctx, path, tensors, "optimizer", state->optimizer_name, "train with the same optimizer"));
    TRY(expect_text(ctx, path, tensors, "description", state->description, "resume with the same data and options"));
    TRY(get_number(ctx, path, tensors, "step", &file->step));
    TRY(get_number(ctx, path, tensors, "seed", &file->seed));
    TRY(get_number(ctx, path, tensors, "data_position", &file->data_position));
    TRY(check_row_groups(state, path, tensors));
    TRY(get_optional(ctx, path, tensors, "skipped", &file->skipped));
    TRY(get_optional(ctx, path, tensors, "skipped_in_a_row", &file->skipped_in_a_row));
    TRY(get_loss_scale(state, path, file));
    if (file->step >= INT64_MAX) /* the next step counts one more */
        TRY(tow__fail(ctx, TOW_BAD_FORMAT, "%s: expected a step below 2^63 - 1, found %" PRIu64, path, file->step));
    TRY(tow__loading_create(ctx, tensors, &file->loading));
    TRY(tow__loading_add(&file->loading, state->kept, params_prefix, path));
    TRY(tow__loading_add(&file->loading, state->variables, variables_prefix, path));
    for (size_t i = 0; i < tow_optimizer_slot_count(state->optimizer); i++)
        TRY(tow__loading_add(&file->loading, tow_optimizer_slot(state->optimizer, i),
                             tow_optimizer_slot_prefix(state->optimizer, i), path));
    TRY(check_average(state, path, file));
    TRY(check_names(state, path, file));
    TRY(tow__loading_check(&file->loading));
done:
    return status;
}

tow_status tow__train_read_best(const tow_train_state *state, const char *path, const char *name, double *metric,
                                int64_t *step)
{
    tow_tensors *tensors = NULL;
    uint64_t of_file = 0;
    tow_status status = TOW_OK;
    *metric = NAN;
    if (access(path, F_OK) != 0) return TOW_OK;
    TRY(tow__safetensors_open(state->ctx, path, &tensors));
    const char *found = tow_tensors_metadata(tensors, best_name_key),
               *text = tow_tensors_metadata(tensors, best_value_key);
    if (!found || !text || strcmp(found, name) != 0) goto done;
    TRY(get_number(state->ctx, path, tensors, "step", &of_file));
    if (of_file > (uint64_t)state->step) goto done; /* of another run, which went further */
    const tow__locale locale = tow__locale_enter();
    *metric = strtod(text, NULL);
    tow__locale_leave(locale);
    *step = (int64_t)of_file;
done:
    tow_tensors_free(tensors);
    return status;
}

tow_status tow_train_saved_row_groups(tow_context *context, const char *path, size_t *row_groups)
{
    tow_tensors *tensors = NULL;
    uint64_t found = 0;
    tow_status status = TOW_OK;
    if (!context || !path || !row_groups)
        return tow__missing(context, __func__, "a context, the path of a checkpoint and a place for the number");
    *row_groups = 0;
    TRY(tow__safetensors_open(context, path, &tensors));
    TRY(expect_format(context, path, tensors));
    TRY(get_optional(context, path, tensors, row_groups_key, &found));
    *row_groups = (size_t)found;
done:
    tow_tensors_free(tensors);
    return status;
}

tow_status tow__train_torn(const tow_train_state *state, const char *function)
{
    return tow__fail(
        state->ctx, TOW_INVALID_ARGUMENT,
        "%s: tow_train_load failed while it read data that it had checked, so the state is a mixture; load "
        "a checkpoint first",
        function);
}

tow_status tow_train_load(tow_train_state *state, const char *path)
{
    if (!state) return tow__missing(NULL, __func__, "a train state");
    contents file = {0};
    tow_status status = TOW_OK;
    TRY(check_contents(state, path, &file));
    state->torn = true;
    TRY(tow__loading_run(&file.loading));
    state->torn = false;
    state->step = (int64_t)file.step;
    state->seed = file.seed;
    state->data_position = file.data_position;
    tow__optimizer_forget_reports(state->optimizer);
    tow_optimizer_forget_gradients(state->optimizer);
    state->optimizer->seed = file.seed;
    if (file.loss_scale > 0) {
        state->optimizer->loss_scale = file.loss_scale;
        state->optimizer->loss_scale_updates = file.loss_scale_updates;
    }
    state->optimizer->skipped = (int64_t)(file.skipped & INT64_MAX);
    state->optimizer->skipped_in_a_row = (int64_t)(file.skipped_in_a_row & INT64_MAX);
    state->gradient_norm = 0;
    if (file.has_average)
        tow__average_loaded(state->average, (int64_t)(file.average_updates & INT64_MAX));
    else if (state->average)
        tow__average_restart(state->average); /* the file is of a run without: averages begin here */
done:
    tow__loading_free(&file.loading);
    tow_tensors_free(file.tensors);
    return status;
}
