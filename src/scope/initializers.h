/* Calling initializers, whatever the element type of what they fill. */
#ifndef TOW_SRC_SCOPE_INITIALIZERS_H
#define TOW_SRC_SCOPE_INITIALIZERS_H

#include "src/base/base.h"
#include "tow/graph.h"
#include "tow/module.h"

/* Fills one parameter, or one layer's row of a stack, of any element type. Errors leave a message, without a path. */
tow_status tow__initialize(tow_context *ctx, const tow_initializer *init, tow_type type, const uint32_t key[2],
                           void *data);

/* Elements [first, first + count) of that, in memory of as many; without the whole where elements are made one by one:
 * constants, draws, variance scaling. */
tow_status tow__initialize_part(tow_context *ctx, const tow_initializer *init, tow_type type, const uint32_t key[2],
                                int64_t first, int64_t count, void *data);

/* False: a constant, for which variables take no key. */
bool tow__init_draws(const tow_initializer *init);

/* The values that a graph of one input makes of a draw of another initializer (mapped_draw.c). */
typedef struct tow__mapped_draw {
    tow_type type; /* of the draw */
    tow_initializer init;
    const tow_graph *graph;
} tow__mapped_draw;
/* *draw and its graph live as long as the initializer. */
tow_initializer tow__init_mapped(const tow__mapped_draw *draw);
/* The draw of such an initializer, or NULL. */
const tow__mapped_draw *tow__mapped_draw_of(const tow_initializer *init);

/* Parameters in blocks of few bits (blocks.c): numbers are drawn as f32 and quantized. */
tow_status tow__initialize_blocks(tow_context *ctx, const tow_initializer *init, tow_type type, const uint32_t key[2],
                                  void *data);
/* The draw of a kernel f32 [inputs..., features...] whose weight is stored turned, [outputs, inputs] in blocks. */
typedef struct tow__turned_draw {
    tow_type type; /* of the draw */
    tow_initializer init;
} tow__turned_draw;
/* *draw lives as long as the initializer. */
tow_initializer tow__init_turned(const tow__turned_draw *draw);
/* The draw of such an initializer, or NULL. */
const tow__turned_draw *tow__turned_draw_of(const tow_initializer *init);

/* Of tow_initializer_orthogonal and tow_initializer_delta_orthogonal (orthogonal.c): a: scale; axis: column_axis. */
tow_status tow__fill_orthogonal(tow_context *ctx, const tow_initializer *self, tow_type type, const uint32_t key[2],
                                void *data);
tow_status tow__fill_delta_orthogonal(tow_context *ctx, const tow_initializer *self, tow_type type,
                                      const uint32_t key[2], void *data);

#endif
