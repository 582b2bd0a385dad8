/* Slots in 8 bits (slots_in_bytes.h). */
#include "src/train/slots_in_bytes.h"

#include "src/base/params.h"
#include "src/train/transforms.h"
#include "tow/ops.h"

enum {
    BLOCK = 256,
    USUAL_LEAST = 4096 /* elements, as in bitsandbytes: biases and scales stay as they are */
};

bool tow__slot_in_bytes(const tow_update *u, tow_type type, double value)
{
    const tow_optimizer_state *o = u->o;
    if (o->slot_bits == 0 || u->exact || u->parameter == TOW__NO_PARAMETER || value != 0) return false;
    const int64_t least = o->slot_bits_least ? o->slot_bits_least : USUAL_LEAST;
    return type.dtype == TOW_F32 && tow_type_equal(type, tow__layer_type(o, u->parameter)) &&
           tow_type_element_count(type) >= least;
}

/* The slots of codes and sizes, as they are kept. */
typedef struct pair {
    tow_value codes, sizes;
    const char *sizes_name;
} pair;

static int64_t blocks_of(tow_type type) { return (tow_type_element_count(type) + BLOCK - 1) / BLOCK; }

/* Codes begin as those of 0. */
static bool find_pair(tow_update *u, const char *name, tow_type type, pair *p)
{
    const int64_t dims[2] = {blocks_of(type), BLOCK};
    tow_update exact = *u;
    exact.exact = true;
    p->sizes_name = tow__joined(u->trace, name, "_sizes", "");
    if (!p->sizes_name) return false;
    p->codes = tow_slot_with(&exact, name, tow_make_type(TOW_U8, 2, dims), u->nonnegative ? 0 : TOW__DYNAMIC_ZERO);
    p->sizes = tow_slot_with(&exact, p->sizes_name, tow_make_type(TOW_F32, 1, dims), 0);
    return !tow_is_null(p->codes) && !tow_is_null(p->sizes);
}

tow_value tow__slot_from_bytes(tow_update *u, const char *name, tow_type type)
{
    pair p;
    const int64_t n = tow_type_element_count(type), padded = blocks_of(type) * BLOCK;
    if (!name || !find_pair(u, name, type, &p)) return (tow_value){0};
    tow_value x = tow_reshape(tow_dequantize_dynamic(p.codes, p.sizes, u->nonnegative), 1, &padded);
    if (padded > n) x = tow_slice_axis(x, 0, 0, n);
    return tow_reshape(x, type.rank, type.dims);
}

bool tow__slot_to_bytes(tow_update *u, const char *name, tow_value value)
{
    const tow__slot *slot = tow__find_slot(u, name);
    if (!slot || slot->type.dtype != TOW_U8 || tow_value_type(value).dtype != TOW_F32) return false;
    const tow_type type = tow_value_type(value);
    const int64_t n = tow_type_element_count(type), dims[2] = {blocks_of(type), BLOCK}, rest = dims[0] * BLOCK - n;
    const char *sizes_name = tow__joined(u->trace, name, "_sizes", "");
    tow_value parts[2] = {tow_reshape(value, 1, &n)}, codes, sizes;
    if (!sizes_name) return true;
    if (rest > 0) {
        parts[1] = tow_full(u->trace, tow_make_type(TOW_F32, 1, &rest), 0);
        parts[0] = tow_concatenate(2, parts, 0);
    }
    tow_quantize_dynamic(tow_reshape(parts[0], 2, dims), slot->initial == 0, &codes, &sizes);
    tow_set_slot(u, name, codes);
    tow_set_slot(u, sizes_name, sizes);
    return true;
}
