/* Concrete arrays.
 *
 *   array ── owner NULL, owned true:  data is its own block of aligned memory
 *         ── owned false:             data belongs to the caller (borrow)
 *         ── mapped > 0:              data is a mapping of that many bytes, which ends with the array
 *         ── owner set:               a view into `owner`, which stays alive as long as the view does
 */
#include <inttypes.h>
#include <sys/mman.h>

#include "src/base/arithmetic.h"
#include "src/base/base.h"
#include "src/base/dtypes.h"

struct tow_array {
    tow_context *ctx; /* held */
    tow_type type;
    void *data;
    tow_array *owner;
    atomic_size_t references; /* from all threads */
    bool owned;
    size_t mapped;
};

/* ---- life ------------------------------------------------------------------------------------------------------ */

static tow_status new_array(tow_context *ctx, tow_type type, tow_array **array)
{
    if (!tow__type_valid(type))
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "an array cannot have type %s: expected a rank of 0 to %d, dimensions of at least 0, and less "
                         "than 2^60 bytes (found rank %d)",
                         tow__type_name(type).text, TOW_MAX_RANK, (int)type.rank);
    tow_array *a = tow__alloc(ctx, 1, sizeof *a);
    if (!a) return TOW_OUT_OF_MEMORY;
    a->ctx = ctx;
    a->type = tow_make_type(type.dtype, type.rank, type.dims);
    atomic_init(&a->references, 1);
    tow__context_hold(ctx);
    *array = a;
    return TOW_OK;
}

tow_status tow_array_create(tow_context *context, tow_type type, tow_array **array)
{
    if (array) *array = NULL;
    if (!context || !array) return tow__missing(context, __func__, "a context and a place for the array");
    tow_status status = new_array(context, type, array);
    if (status != TOW_OK) return status;
    (*array)->data = tow__alloc_aligned(context, tow_type_bytes(type));
    if (!(*array)->data) {
        tow_array_release(*array);
        *array = NULL;
        return TOW_OUT_OF_MEMORY;
    }
    (*array)->owned = true;
    return TOW_OK;
}

tow_status tow_array_from_data(tow_context *context, tow_type type, const void *data, tow_array **array)
{
    if (array) *array = NULL;
    if (!context || !array) return tow__missing(context, __func__, "a context and a place for the array");
    if (!data && tow__type_valid(type) && tow_type_bytes(type) > 0)
        return tow__missing(context, __func__, "%zu bytes of data for an array of type %s", tow_type_bytes(type),
                            tow__type_name(type).text);
    tow_status status = tow_array_create(context, type, array);
    size_t bytes = status == TOW_OK ? tow_type_bytes(type) : 0;
    if (bytes > 0) memcpy((*array)->data, data, bytes);
    return status;
}

tow_status tow_array_borrow(tow_context *context, tow_type type, void *data, tow_array **array)
{
    if (array) *array = NULL;
    if (!context || !array) return tow__missing(context, __func__, "a context and a place for the array");
    tow_status status = new_array(context, type, array);
    if (status == TOW_OK && !data && tow_type_bytes(type) > 0) {
        tow_array_release(*array);
        *array = NULL;
        return tow__fail(context, TOW_INVALID_ARGUMENT,
                         "there is no memory to borrow: an array of type %s needs %zu bytes, found NULL",
                         tow__type_name(type).text, tow_type_bytes(type));
    }
    if (status == TOW_OK) (*array)->data = data;
    return status;
}

tow_status tow__array_of_mapping(tow_context *ctx, void *data, size_t bytes, tow_array **array)
{
    tow_status status = new_array(ctx, tow_make_type(TOW_BOOL, 1, (int64_t[]){(int64_t)bytes}), array);
    if (status != TOW_OK) return status;
    (*array)->data = data;
    (*array)->mapped = bytes;
    return TOW_OK;
}

tow_status tow__array_borrow(tow_context *ctx, tow_type type, tow_array **array)
{
    *array = NULL;
    return new_array(ctx, type, array);
}

void tow__array_point(tow_array *array, const void *data)
{
    union {
        const void *constant;
        void *data;
    } address = {data}; /* programs do not write inputs */
    array->data = address.data;
}

tow_status tow__array_view(tow_context *ctx, tow_array *owner, size_t offset, tow_type type, tow_array **view)
{
    tow_status status = new_array(ctx, type, view);
    if (status != TOW_OK) return status;
    (*view)->data = (char *)owner->data + offset;
    (*view)->owner = tow_array_retain(owner);
    return TOW_OK;
}

tow_status tow_array_share(tow_context *context, tow_array *array, tow_array **shared)
{
    if (shared) *shared = NULL;
    if (!context || !array || !shared)
        return tow__missing(context, __func__, "a context, an array and a place for the shared one");
    return tow__array_view(context, array, 0, array->type, shared);
}

tow_status tow__array_row(tow_context *ctx, tow_array *array, int64_t index, tow_array **row)
{
    tow_type type = array->type;
    *row = NULL;
    if (type.rank == 0 || index < 0 || index >= type.dims[0])
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "row %" PRId64 " of an array of type %s does not exist", index,
                         tow__type_name(type).text);
    type = tow_make_type(type.dtype, type.rank - 1, type.dims + 1);
    return tow__array_view(ctx, array, (size_t)index * tow_type_bytes(type), type, row);
}

tow_status tow_array_row(tow_array *array, int64_t index, tow_array **row)
{
    if (row) *row = NULL;
    if (!array || !row) return tow__missing(array ? array->ctx : NULL, __func__, "an array and a place for its row");
    return tow__array_row(array->ctx, array, index, row);
}

/* The type of as many numbers in elements of dtype: blocks lie along the last axis. */
static tow_status convert_type(tow_context *ctx, tow_dtype dtype, tow_type *type)
{
    const tow_type from = *type;
    const int held = tow_dtype_numbers(from.dtype), wanted = tow_dtype_numbers(dtype);
    type->dtype = dtype;
    if (held == wanted || wanted == 0) return TOW_OK;
    if (from.rank == 0 || (wanted > 1 && from.dims[from.rank - 1] % wanted != 0))
        return tow__fail(ctx, TOW_SHAPE_MISMATCH,
                         "%s holds blocks of %d numbers: expected a last axis that is a multiple of it, found %s; "
                         "append zeros to it, or keep the array as f16 or bf16",
                         tow_dtype_name(dtype), wanted, tow__type_name(from).text);
    int64_t *last = &type->dims[from.rank - 1];
    if (wanted > 1) *last /= wanted;
    if (held > 1 && __builtin_mul_overflow(*last, (int64_t)held, last)) *last = -1; /* refused where it is made */
    return TOW_OK;
}

tow_status tow_array_convert(const tow_array *array, tow_dtype dtype, tow_array **converted)
{
    if (converted) *converted = NULL;
    if (!array || !converted)
        return tow__missing(array ? array->ctx : NULL, __func__, "an array and a place for the converted one");
    TOW__ARITHMETIC(false);
    tow_type type = array->type;
    tow_status status = convert_type(array->ctx, dtype, &type);
    if (status == TOW_OK) status = tow_array_create(array->ctx, type, converted);
    if (status == TOW_OK)
        tow__convert_elements(dtype, (*converted)->data, array->type.dtype, array->data,
                              tow_type_element_count(type) * tow_dtype_numbers(dtype));
    return status;
}

tow_array *tow_array_retain(tow_array *array)
{
    if (array) atomic_fetch_add_explicit(&array->references, 1, memory_order_relaxed);
    return array;
}

/* All that other threads did with the array happens before its memory is freed. */
static bool drops_last(tow_array *array)
{
    return atomic_fetch_sub_explicit(&array->references, 1, memory_order_acq_rel) == 1;
}

void tow_array_release(tow_array *array)
{
    while (array && drops_last(array)) {
        tow_array *owner = array->owner;
        tow_context *ctx = array->ctx;
        if (array->owned) tow__free_aligned(ctx, array->data, tow_type_bytes(array->type));
        if (array->mapped > 0) munmap(array->data, array->mapped);
        tow__free(ctx, array, 1, sizeof *array);
        tow__context_drop(ctx);
        array = owner;
    }
}

tow_context *tow__array_context(const tow_array *array) { return array->ctx; }
tow_type tow_array_type(const tow_array *array) { return array->type; }
void *tow_array_data(const tow_array *array) { return array->data; }

/* ---- text ------------------------------------------------------------------------------------------------------ */

enum {
    EDGE = 3,
    SHORTENED = 10
}; /* an axis longer than SHORTENED shows EDGE elements at each end */

static void add_element(tow__string *s, tow_dtype dtype, const void *data, int64_t index)
{
    const tow__element e = tow__load_element(dtype, data, index);
    if (e.kind == TOW__A_FLOAT)
        tow__string_add(s, "%.*g",
                        dtype == TOW_F64                            ? 15
                        : dtype == TOW_F32 || tow__is_blocks(dtype) ? 7
                                                                    : tow__float_digits(dtype),
                        e.f);
    else if (e.kind == TOW__A_SIGNED)
        tow__string_add(s, "%" PRId64, e.i);
    else if (e.kind == TOW__AN_UNSIGNED)
        tow__string_add(s, "%" PRIu64, e.u);
    else
        tow__string_add(s, e.u ? "true" : "false");
}

static void add_axis(tow__string *s, tow_type type, int axis, const void *data, int64_t offset)
{
    if (axis == type.rank) {
        add_element(s, type.dtype, data, offset);
        return;
    }
    int64_t n = type.dims[axis], stride = 1;
    bool last = axis == type.rank - 1;
    for (int i = axis + 1; i < type.rank; i++) stride *= type.dims[i];
    tow__string_add(s, "[");
    for (int64_t i = 0; i < n; i++) {
        if (i > 0 && last) tow__string_add(s, " ");
        if (i > 0 && !last) tow__string_add(s, "\n%*s", axis + 1, "");
        if (n > SHORTENED && i == EDGE) {
            tow__string_add(s, "...");
            i = n - EDGE - 1;
        } else {
            add_axis(s, type, axis + 1, data, offset + i * stride);
        }
    }
    tow__string_add(s, "]");
}

/* Of blocks, the numbers in them. */
size_t tow_array_text(const tow_array *array, char *text, size_t size)
{
    TOW__ARITHMETIC(false);
    tow__string s;
    tow_type type = array->type;
    tow__string_init(&s, array->ctx);
    if (tow__is_blocks(type.dtype) && type.rank > 0) type.dims[type.rank - 1] *= tow_dtype_numbers(type.dtype);
    add_axis(&s, type, 0, array->data, 0);
    size_t length = tow__string_export(&s, text, size);
    tow__string_free(&s);
    return length;
}
