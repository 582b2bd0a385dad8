/* Checkpoints: parameters, variables, optimiser slots and counters of a train state as one safetensors file.
 *
 * Metadata are texts: format, optimizer, step, seed, data_position, description. Loading reads the whole file into
 * arrays of its own, checks it, and only then copies into the state, so a file that is refused changes nothing. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "train/state.h"

static const char format[] = "tow-train-state-1";
static const char params_prefix[] = "params/";
static const char variables_prefix[] = "state/"; /* then the collection */

/* ---- saving ------------------------------------------------------------------------------------------------------ */

static tow_status set_number(tow_tensors *tensors, const char *key, uint64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, value);
    return tow_tensors_set_metadata(tensors, key, text);
}

tow_status tow_train_save(const tow_train_state *state, const char *path)
{
    if (state == NULL) return tow__missing(NULL, __func__, "a train state");
    tow_tensors *tensors = NULL;
    const tow_optimizer *optimizer = &state->updater.optimizer;
    tow_status status = tow_tensors_create(state->ctx, &tensors);
    if (status != TOW_OK) return status;
    TRY(tow_tensors_set_metadata(tensors, "format", format));
    TRY(tow_tensors_set_metadata(tensors, "optimizer", tow__optimizer_name(optimizer)));
    TRY(tow_tensors_set_metadata(tensors, "description", state->description));
    TRY(set_number(tensors, "step", (uint64_t)state->step));
    TRY(set_number(tensors, "seed", state->seed));
    TRY(set_number(tensors, "data_position", state->data_position));
    TRY(tow_params_to_tensors(state->params, params_prefix, tensors));
    TRY(tow_params_to_tensors(state->variables, variables_prefix, tensors));
    for (size_t i = 0; i < state->n_slots; i++)
        TRY(tow_params_to_tensors(state->slots[i], tow__optimizer_slot_prefix(optimizer, i), tensors));
    TRY(tow_safetensors_write(path, tensors));
done:
    tow_tensors_free(tensors);
    return status;
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

/* What a file says, before it is believed. */
typedef struct contents {
    tow_tensors *tensors;
    tow_params *params, *variables, *slots[TOW__MAX_SLOTS];
    uint64_t step, seed, data_position;
} contents;

static tow_status get_number(const tow_train_state *state, const char *path, const tow_tensors *tensors,
                             const char *key, uint64_t *value)
{
    const char *text = tow_tensors_metadata(tensors, key);
    char *end = NULL;
    errno = 0;
    if (text != NULL && text[0] >= '0' && text[0] <= '9') *value = strtoull(text, &end, 10);
    if (end != NULL && *end == '\0' && errno == 0) return TOW_OK;
    return tow__fail(state->ctx, TOW_BAD_FORMAT, "%s: expected a number as metadata '%s', found %s%.60s%s", path, key,
                     text ? "'" : "", text ? text : "none", text ? "'" : "");
}

static tow_status expect_text(const tow_train_state *state, const char *path, const tow_tensors *tensors,
                              const char *key, const char *expected, const char *advice)
{
    const char *text = tow_tensors_metadata(tensors, key);
    if (text != NULL && strcmp(text, expected) == 0) return TOW_OK;
    return tow__fail(state->ctx, TOW_BAD_FORMAT, "%s: expected a checkpoint with %s '%.200s', found %s%.200s%s; %s",
                     path, key, expected, text ? "'" : "", text ? text : "none", text ? "'" : "", advice);
}

static bool has_prefix(const char *name, const char *prefix) { return strncmp(name, prefix, strlen(prefix)) == 0; }

static tow_status check_names(const tow_train_state *state, const char *path, const tow_tensors *tensors)
{
    for (size_t i = 0; i < tow_tensors_count(tensors); i++) {
        const char *name = tow_tensors_name(tensors, i);
        bool known = has_prefix(name, params_prefix) || has_prefix(name, variables_prefix);
        for (size_t s = 0; s < state->n_slots; s++)
            known = known || has_prefix(name, tow__optimizer_slot_prefix(&state->updater.optimizer, s));
        if (!known)
            return tow__fail(
                state->ctx, TOW_BAD_FORMAT,
                "%s: tensor '%.200s' is neither a parameter (%s...) nor a variable (%s...) nor a slot of the "
                "optimizer %s",
                path, name, params_prefix, variables_prefix, tow__optimizer_name(&state->updater.optimizer));
    }
    return TOW_OK;
}

/* Reads arrays like those of `like`. Puts the path of the file before a message about parameters, which know only their
 * own paths. */
static tow_status read_params(const tow_train_state *state, const char *path, const char *prefix,
                              const tow_tensors *tensors, const tow_params *like, tow_params **params)
{
    tow_status status = tow_params_zeros_like(like, params);
    if (status != TOW_OK) return status;
    status = tow_params_from_tensors(*params, prefix, tensors);
    if (status == TOW_OK) return TOW_OK;
    char message[sizeof state->ctx->error];
    snprintf(message, sizeof message, "%s", tow_context_error(state->ctx));
    return tow__fail(state->ctx, status, "%s: %s", path, message);
}

static tow_status read_contents(const tow_train_state *state, const char *path, contents *file)
{
    tow_status status = TOW_OK;
    const tow_optimizer *optimizer = &state->updater.optimizer;
    TRY(tow_safetensors_read(state->ctx, path, &file->tensors));
    const tow_tensors *tensors = file->tensors;
    TRY(expect_text(state, path, tensors, "format", format, "is this a checkpoint of a training run?"));
    TRY(expect_text(state, path, tensors, "optimizer", tow__optimizer_name(optimizer),
                    "train with the same optimizer"));
    TRY(expect_text(state, path, tensors, "description", state->description, "resume with the same data and options"));
    TRY(get_number(state, path, tensors, "step", &file->step));
    TRY(get_number(state, path, tensors, "seed", &file->seed));
    TRY(get_number(state, path, tensors, "data_position", &file->data_position));
    if (file->step >= INT64_MAX) /* the next step counts one more */
        TRY(tow__fail(state->ctx, TOW_BAD_FORMAT, "%s: expected a step below 2^63 - 1, found %" PRIu64, path,
                      file->step));
    TRY(check_names(state, path, tensors));
    TRY(read_params(state, path, params_prefix, tensors, state->params, &file->params));
    TRY(read_params(state, path, variables_prefix, tensors, state->variables, &file->variables));
    for (size_t i = 0; i < state->n_slots; i++)
        TRY(read_params(state, path, tow__optimizer_slot_prefix(optimizer, i), tensors, state->params,
                        &file->slots[i]));
done:
    return status;
}

static void copy_params(tow_params *to, const tow_params *from)
{
    for (size_t i = 0; i < tow_params_count(from); i++) {
        tow_array *array = tow_params_array(from, i);
        memcpy(tow_array_data(tow_params_array(to, i)), tow_array_data(array), tow_type_bytes(tow_array_type(array)));
    }
}

tow_status tow_train_load(tow_train_state *state, const char *path)
{
    if (state == NULL) return tow__missing(NULL, __func__, "a train state");
    contents file = {0};
    tow_status status = read_contents(state, path, &file);
    if (status == TOW_OK) {
        copy_params(state->params, file.params);
        copy_params(state->variables, file.variables);
        for (size_t i = 0; i < state->n_slots; i++) copy_params(state->slots[i], file.slots[i]);
        state->step = (int64_t)file.step;
        state->seed = file.seed;
        state->data_position = file.data_position;
        state->gradient_norm = 0;
    }
    tow_tensors_free(file.tensors);
    tow_params_free(file.params);
    tow_params_free(file.variables);
    for (size_t i = 0; i < TOW__MAX_SLOTS; i++) tow_params_free(file.slots[i]);
    return status;
}
