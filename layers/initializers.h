/* Calling initialisers, whatever the element type of what they fill. */
#ifndef TOW_LAYERS_INITIALIZERS_H
#define TOW_LAYERS_INITIALIZERS_H

#include "src/base/base.h"
#include "tow/initializers.h"

/* Fills one parameter, or one layer's row of a stack, of any element type. Errors leave a message, without a path. */
tow_status tow__initialize(tow_context *ctx, const tow_initializer *init, tow_type type, const uint32_t key[2],
                           void *data);

/* Of tow_init_orthogonal and tow_init_delta_orthogonal (orthogonal.c): a: scale; axis: column_axis. */
tow_status tow__fill_orthogonal(tow_context *ctx, const tow_initializer *self, tow_type type, const uint32_t key[2],
                                void *data);
tow_status tow__fill_delta_orthogonal(tow_context *ctx, const tow_initializer *self, tow_type type,
                                      const uint32_t key[2], void *data);

#endif
