/* Initial values of parameters in blocks of few bits: those that a parameter of f32 has, quantized. */
#include "src/base/blocks.h"

#include "src/scope/initializers.h"

/* Only says whose initializer it is; calls go through tow__initialize_blocks. */
static tow_status fill_turned(tow_context *ctx, const tow_initializer *self, tow_type type, const uint32_t key[2],
                              float *data)
{
    (void)self, (void)type, (void)key, (void)data;
    return tow__fail(ctx, TOW_INTERNAL_ERROR, "a kernel in blocks has a type of blocks");
}

tow_initializer tow__init_turned(const tow__turned_draw *draw)
{
    return (tow_initializer){.fill = fill_turned, .user = draw};
}

const tow__turned_draw *tow__turned_draw_of(const tow_initializer *init)
{
    return init->fill == fill_turned ? init->user : NULL;
}

tow_status tow__initialize_blocks(tow_context *ctx, const tow_initializer *init, tow_type type, const uint32_t key[2],
                                  void *data)
{
    const tow__turned_draw *turned = tow__turned_draw_of(init);
    tow_type numbers = type;
    numbers.dtype = TOW_F32;
    if (type.rank > 0) numbers.dims[type.rank - 1] *= tow_dtype_numbers(type.dtype);
    tow_initializer own = turned ? turned->init : *init;
    own.compiled = own.compiled || init->compiled;
    tow_array *drawn = NULL;
    tow_status status = tow_array_create(ctx, turned ? turned->type : numbers, &drawn);
    if (!status) status = tow__initialize(ctx, &own, tow_array_type(drawn), key, tow_array_data(drawn));
    const int64_t n = tow_type_element_count(type);
    if (!status && turned)
        tow__quantize_columns(type.dtype, type.dims[0], n / (type.dims[0] ? type.dims[0] : 1), tow_array_data(drawn),
                              data);
    else if (!status)
        tow__quantize_blocks(type.dtype, n, tow_array_data(drawn), data);
    tow_array_release(drawn);
    return status;
}
