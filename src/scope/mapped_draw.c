/* An initializer of parameters that are stored otherwise than layers see them: what a graph makes of the draw of the
 * layer's own initializer, of the type that the layer asks for. So the initial values are those of the layer, whatever
 * is stored. */
#include <string.h>

#include "src/scope/initializers.h"
#include "tow/program.h"

static tow_status fill(tow_context *ctx, const tow_initializer *self, tow_type type, const uint32_t key[2], void *data)
{
    const tow__mapped_draw *draw = self->user;
    tow_initializer init = draw->init;
    init.compiled = init.compiled || self->compiled;
    tow_array *drawn = NULL, *found = NULL;
    tow_status status = tow_array_create(ctx, draw->type, &drawn);
    if (!status) status = tow__initialize(ctx, &init, draw->type, key, tow_array_data(drawn));
    if (!status) status = tow_evaluate(draw->graph, &drawn, &found);
    if (!status) memcpy(data, tow_array_data(found), tow_type_bytes(type));
    tow_array_release(drawn);
    tow_array_release(found);
    return status;
}

static tow_status fill_f32(tow_context *ctx, const tow_initializer *self, tow_type type, const uint32_t key[2],
                           float *data)
{
    return fill(ctx, self, type, key, data);
}

tow_initializer tow__init_mapped(const tow__mapped_draw *draw)
{
    return (tow_initializer){.fill = fill_f32, .fill_as = fill, .user = draw};
}

const tow__mapped_draw *tow__mapped_draw_of(const tow_initializer *init)
{
    return init->fill == fill_f32 ? init->user : NULL;
}
