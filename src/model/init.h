/* Initial values, for who needs a part of them (model.c). */
#ifndef TOW_SRC_MODEL_INIT_H
#define TOW_SRC_MODEL_INIT_H

#include "tow/model.h"

/* The variables of tow_model_init_with alone: no parameter is drawn, nor takes memory. */
tow_status tow__model_init_state(tow_context *context, const tow_module *model, size_t n_inputs,
                                 const tow_type *input_types, tow_params **state);
/* tow_model_init_with; of parameters, drawn as they are, this process keeps its share (tow__params_keep_share). shards
 * NULL: all. */
tow_status tow__model_init_shares(tow_context *context, const tow_module *model, uint64_t seed, size_t n_inputs,
                                  const tow_type *input_types, const tow_model_options *options, tow_group *shards,
                                  tow_params **params, tow_params **state);

#endif
