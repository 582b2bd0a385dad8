/* From stored rows to rows of a batch: bytes in order, i32 of 16 bits, scaling, another element type. */
#include "src/data/field.h"

#include "src/base/dtypes.h"
#include "src/io/io.h"

/* ---- checking options -------------------------------------------------------------------------------------------- */

static tow_status choose_type(tow_context *ctx, const tow_field *o, size_t index, tow__field *f)
{
    const tow_type row = o->source->row;
    f->row = row;
    if (!o->keep_type) f->row.dtype = o->dtype ? o->dtype : TOW_F32;
    if (tow_dtype_size(f->row.dtype) == 0)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "field %zu: expected " TOW__A_DTYPE ", found %d", index,
                         (int)f->row.dtype);
    if (!tow__file_converts(row.dtype, f->row.dtype) || (f->scaled && !tow_dtype_is_float(f->row.dtype)))
        return tow__fail(ctx, TOW_TYPE_MISMATCH, "field %zu: expected a float type for %s%s, found %s", index,
                         f->scaled ? "scaled " : "", tow__type_name(row).text, tow_dtype_name(f->row.dtype));
    if (o->reshape) {
        const tow_type shaped = tow_make_type(f->row.dtype, o->rank, o->dims);
        if (!tow__type_valid(shaped) || tow_type_element_count(shaped) != tow_type_element_count(row))
            return tow__fail(
                ctx, TOW_TYPE_MISMATCH, "field %zu: expected a shape of %lld elements for rows %s, found %s", index,
                (long long)tow_type_element_count(row), tow__type_name(row).text, tow__type_name(shaped).text);
        f->row = shaped;
    }
    if ((uint64_t)tow_type_element_count(row) >
        SIZE_MAX / (4 * sizeof(double))) /* scratch memory is counted in size_t */
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "field %zu: rows %s are larger than memory", index,
                         tow__type_name(row).text);
    if (f->row.rank == TOW_MAX_RANK)
        return tow__fail(ctx, TOW_TYPE_MISMATCH, "field %zu: expected rows of at most %d axes, found %s", index,
                         TOW_MAX_RANK - 1, tow__type_name(f->row).text);
    return TOW_OK;
}

static tow_status copy_features(tow_context *ctx, const tow_field *o, size_t index, tow__field *f)
{
    if (!o->subtract_each && !o->divide_each) return TOW_OK;
    const int64_t last = f->row.rank > 0 ? f->row.dims[f->row.rank - 1] : 1;
    if (o->n_features != (size_t)last)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "field %zu: expected numbers for the %lld elements of the last axis of rows %s, found %zu",
                         index, (long long)last, tow__type_name(f->row).text, o->n_features);
    if (last == 0) return TOW_OK;
    f->subtract_each = tow__alloc(ctx, o->n_features, 2 * sizeof(double));
    if (!f->subtract_each) return TOW_OUT_OF_MEMORY;
    f->divide_each = f->subtract_each + last;
    f->n_features = last;
    for (int64_t i = 0; i < last; i++) {
        f->subtract_each[i] = o->subtract_each ? o->subtract_each[i] : f->subtract;
        f->divide_each[i] = o->divide_each ? o->divide_each[i] : f->divide;
        if (f->divide_each[i] == 0)
            return tow__fail(ctx, TOW_INVALID_ARGUMENT, "field %zu: expected divisors other than 0, found one at %lld",
                             index, (long long)i);
    }
    return TOW_OK;
}

tow_status tow__field_create(tow_context *ctx, const tow_field *o, size_t index, tow__field *f)
{
    *f = (tow__field){0};
    if (!o->source || o->source->ctx != ctx)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "field %zu: expected a source of this context, found %s", index,
                         o->source ? "another context's" : "NULL");
    if (o->ahead < 0 || o->ahead > o->source->ahead)
        return tow__fail(
            ctx, TOW_INVALID_ARGUMENT,
            "field %zu: expected .ahead from 0 to %lld, for which the source's windows leave room, found %lld", index,
            (long long)o->source->ahead, (long long)o->ahead);
    f->source = tow_source_retain(o->source);
    f->ahead = o->ahead;
    f->subtract = o->subtract;
    f->divide = o->divide == 0 ? 1 : o->divide;
    f->scaled = f->subtract != 0 || f->divide != 1 || o->subtract_each || o->divide_each;
    f->elements = tow_type_element_count(o->source->row);
    tow_status status = choose_type(ctx, o, index, f);
    if (status == TOW_OK) status = copy_features(ctx, o, index, f);
    f->plain = !f->scaled && !f->source->narrow && !f->source->swapped && f->source->row.dtype == f->row.dtype;
    return status;
}

void tow__field_free(tow_context *ctx, tow__field *f)
{
    tow_source_release(f->source);
    tow__free(ctx, f->subtract_each, (size_t)f->n_features, 2 * sizeof(double));
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* The stored type, or f64 if the field is scaled. */
size_t tow__field_scratch(const tow__field *f)
{
    return f->plain ? 0 : (size_t)f->elements * (f->scaled ? 2 : 1) * sizeof(double);
}

static void scale(const tow__field *f, double *x)
{
    for (int64_t i = 0; i < f->elements; i++)
        x[i] = f->n_features > 0 ? (x[i] - f->subtract_each[i % f->n_features]) / f->divide_each[i % f->n_features]
                                 : (x[i] - f->subtract) / f->divide;
}

tow_status tow__field_read(const tow__field *f, size_t index, int64_t row, int64_t place, void *data, void *scratch,
                           tow__row_error *error)
{
    const tow_dtype from = f->source->row.dtype, to = f->row.dtype;
    void *target = (unsigned char *)data + (size_t)place * tow_type_bytes(f->row);
    if (f->plain) return tow__source_read(f->source, row, f->ahead, target, error);
    const tow_status status = tow__source_read(f->source, row, f->ahead, scratch, error);
    if (status != TOW_OK) return status;
    tow__source_widen(f->source, scratch, f->elements);
    if (f->scaled) {
        double *wide = (double *)scratch + f->elements;
        tow__convert_elements(TOW_F64, wide, from, scratch, f->elements);
        scale(f, wide);
        tow__convert_elements(to, target, TOW_F64, wide, f->elements);
        return TOW_OK;
    }
    const int64_t misfit = tow__file_convert(to, target, from, scratch, f->elements);
    if (misfit < 0) return TOW_OK;
    char number[24];
    tow__integer_text(from, scratch, misfit, number);
    return tow__row_fail(error, TOW_TYPE_MISMATCH,
                         "field %zu%s%s: expected integers that fit %s, found %s at element %lld of row %lld", index,
                         f->source->name[0] != '\0' ? ", " : "", f->source->name, tow_dtype_name(to), number,
                         (long long)misfit, (long long)row);
}
