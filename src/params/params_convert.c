/* Values of a list as the types of another one: floats as floats, and weights to and from blocks of few bits, which are
 * turned unless they are tables. */
#include "src/base/arithmetic.h"
#include "src/base/blocks.h"
#include "src/params/params.h"

/* The weights of an entry in blocks, and those of the same entry in floats. */
typedef struct shapes {
    int64_t layers, rows, blocks; /* in blocks: [layers..., rows, blocks of 32] */
    bool turned;                  /* in floats: [layers..., 32 blocks, rows], else [layers..., rows, 32 blocks] */
} shapes;

static int64_t product(int first, int end, const int64_t *dims)
{
    int64_t p = 1;
    for (int i = first; i < end; i++) p *= dims[i];
    return p;
}

/* The axes of the floats behind those of layers are `a` numbers and then `b`, each any number of axes. */
static bool splits(tow_type floats, int levels, int64_t a, int64_t b)
{
    for (int i = levels; i <= floats.rank; i++)
        if (product(levels, i, floats.dims) == a && product(i, floats.rank, floats.dims) == b) return true;
    return false;
}

static bool find_shapes(const char *path, tow_param_kind kind, tow_type blocks, tow_type floats, shapes *s)
{
    const int levels = tow__path_levels(path);
    if (blocks.rank != levels + 2 || floats.rank < levels || !tow__path_in_front(path, blocks.rank)) return false;
    for (int i = 0; i < levels; i++)
        if (blocks.dims[i] != floats.dims[i]) return false;
    s->layers = product(0, levels, blocks.dims);
    s->rows = blocks.dims[levels];
    s->blocks = blocks.dims[levels + 1];
    s->turned = kind != TOW_PARAM_EMBEDDING;
    const int64_t numbers = s->blocks * tow_dtype_numbers(blocks.dtype);
    return s->turned ? splits(floats, levels, numbers, s->rows) : splits(floats, levels, s->rows, numbers);
}

/* Refuses entries of which one cannot be made of the other. */
static tow_status check(const tow_params *to, uint32_t k, const tow_params *from, uint32_t i)
{
    const char *path = to->names.names[k];
    const tow_type wanted = to->types[k], found = from->types[i];
    shapes s;
    if (tow_type_equal(wanted, found)) return TOW_OK;
    const bool makes = tow__is_blocks(wanted.dtype), reads = tow__is_blocks(found.dtype);
    if (makes != reads && tow_dtype_is_float(makes ? found.dtype : wanted.dtype)) {
        if (find_shapes(path, to->kinds[k], makes ? wanted : found, makes ? found : wanted, &s)) return TOW_OK;
        return tow__fail(to->ctx, TOW_SHAPE_MISMATCH,
                         "tow_params_convert: %s: %s and %s are not the same weight in blocks and in floats: expected "
                         "layers, outputs and blocks of %d inputs here, the same layers, inputs and outputs there%s",
                         path, tow__type_name(wanted).text, tow__type_name(found).text,
                         tow_dtype_numbers(makes ? wanted.dtype : found.dtype),
                         to->kinds[k] == TOW_PARAM_EMBEDDING ? ", or rows of a table in both" : "");
    }
    const tow_type same = tow_make_type(wanted.dtype, found.rank, found.dims);
    if (!makes && !reads && tow_dtype_is_float(wanted.dtype) && tow_dtype_is_float(found.dtype) &&
        tow_type_equal(wanted, same))
        return TOW_OK;
    return tow__fail(to->ctx, TOW_TYPE_MISMATCH, "tow_params_convert: %s: expected %s, found %s", path,
                     tow__type_name(wanted).text, tow__type_name(found).text);
}

/* One layer: floats of f32. */
static void convert_layer(const shapes *s, bool makes, tow_dtype dtype, char *blocks, f32 *floats)
{
    if (makes && s->turned)
        tow__quantize_columns(dtype, s->rows, s->blocks, floats, blocks);
    else if (makes)
        tow__quantize_blocks(dtype, s->rows * s->blocks, floats, blocks);
    else if (s->turned)
        tow__dequantize_columns(dtype, s->rows, s->blocks, blocks, floats);
    else
        tow__dequantize_blocks(dtype, s->rows * s->blocks, blocks, floats);
}

/* Other floats than f32 go by way of f32, a layer at a time. */
static tow_status convert_blocks(const tow_params *to, uint32_t k, const tow_params *from, uint32_t i)
{
    const bool makes = tow__is_blocks(to->types[k].dtype);
    const tow_type blocks = makes ? to->types[k] : from->types[i], floats = makes ? from->types[i] : to->types[k];
    char *packed = tow_array_data(makes ? to->arrays[k] : from->arrays[i]);
    char *plain = tow_array_data(makes ? from->arrays[i] : to->arrays[k]);
    shapes s;
    find_shapes(to->names.names[k], to->kinds[k], blocks, floats, &s);
    const int64_t n = s.rows * s.blocks, numbers = n * tow_dtype_numbers(blocks.dtype);
    f32 *wide = NULL;
    if (floats.dtype != TOW_F32 && !(wide = tow__alloc(to->ctx, (size_t)numbers, sizeof *wide)))
        return TOW_OUT_OF_MEMORY;
    for (int64_t layer = 0; layer < s.layers; layer++) {
        char *at = plain + (size_t)(layer * numbers) * tow_dtype_size(floats.dtype);
        if (wide && makes) tow__convert_elements(TOW_F32, wide, floats.dtype, at, numbers);
        convert_layer(&s, makes, blocks.dtype, packed + (size_t)(layer * n) * tow_dtype_size(blocks.dtype),
                      wide ? wide : (f32 *)(void *)at);
        if (wide && !makes) tow__convert_elements(floats.dtype, at, TOW_F32, wide, numbers);
    }
    if (wide) tow__free(to->ctx, wide, (size_t)numbers, sizeof *wide);
    return TOW_OK;
}

static tow_status convert(const tow_params *to, uint32_t k, const tow_params *from, uint32_t i)
{
    const tow_type wanted = to->types[k], found = from->types[i];
    if (tow_type_element_count(wanted) == 0) return TOW_OK;
    if (wanted.dtype != found.dtype && (tow__is_blocks(wanted.dtype) || tow__is_blocks(found.dtype)))
        return convert_blocks(to, k, from, i);
    if (tow_array_data(to->arrays[k]) != tow_array_data(from->arrays[i]))
        tow__convert_elements(wanted.dtype, tow_array_data(to->arrays[k]), found.dtype, tow_array_data(from->arrays[i]),
                              tow_type_element_count(found) * tow_dtype_numbers(found.dtype));
    return TOW_OK;
}

tow_status tow_params_convert(tow_params *to, const tow_params *from)
{
    if (!to || !from) return tow__missing(to ? to->ctx : NULL, __func__, "two lists");
    tow_status status = TOW_OK;
    TOW__ARITHMETIC(false);
    for (uint32_t k = 0; k < to->names.count && !status; k++) {
        const uint32_t i = tow__params_index(from, to->names.names[k], k);
        if (i == TOW__NO_NAME)
            return tow__fail(to->ctx, TOW_NOT_FOUND,
                             "tow_params_convert: %s: the list that is converted has no such path", to->names.names[k]);
        status = check(to, k, from, i);
    }
    for (uint32_t k = 0; k < to->names.count && !status; k++)
        status = convert(to, k, from, tow__params_index(from, to->names.names[k], k));
    return status;
}
