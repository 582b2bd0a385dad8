/* Updates by gradients that are a list with paths, as functions of models give them. */
#include "src/train/update.h"

tow_status tow_optimizer_update_params(tow_optimizer_state *state, const tow_params *gradients)
{
    if (!state || !gradients)
        return tow__missing(state ? state->ctx : NULL, __func__, "an optimizer and a list of gradients");
    const tow_params *params = state->params;
    for (uint32_t i = 0; i < params->names.count || i < gradients->names.count; i++) {
        const char *expected = tow_params_path(params, i), *found = tow_params_path(gradients, i);
        if (expected && found && strcmp(expected, found) == 0) continue;
        return tow__fail(
            state->ctx, TOW_INVALID_ARGUMENT,
            "tow_optimizer_update_params: gradient %u: expected that of %s, found %s; make optimizer and "
            "gradients of the same parameters, frozen ones marked before both (tow_params_freeze), a part of "
            "them taken by tow_params_select",
            i, expected ? expected : "no further parameter", found ? found : "none");
    }
    return tow_optimizer_update(state, tow_params_arrays(gradients));
}
