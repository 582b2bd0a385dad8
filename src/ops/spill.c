/* Arrays of which the first rows are in a file (src/base/spill.h), for states that loops keep.
 *
 *   spill         () -> token i32[], staging [4, row...]
 *   spill_write   (x [n, row...], row, index i32[], token, staging) -> x with row `index`
 *   spill_read    (x [n, row...], index i32[], token, staging) -> row `index`
 *
 * Row i < file_rows is in the file, the others are row i - file_rows of x. The rows in the file belong to the latest x
 * alone, so these calls happen in the order in which they stand, and have no derivatives and no batches. */
#include "src/base/spill.h"
#include "src/base/params.h"
#include "src/ops/rules.h"

static bool always(const void *params)
{
    (void)params;
    return true;
}

static void refuse_jvp(tow__jvp *r)
{
    tow_trace_fail(r->t, TOW_UNSUPPORTED,
                   "%s%sstates that a loop keeps in a file have no derivative; keep them in memory for derivatives of "
                   "a gradient: .file_slots = 0",
                   r->e->source.scope ? r->e->source.scope : "", r->e->source.scope ? ": " : "");
}

static void refuse_batch(tow__batch *r)
{
    tow_trace_fail(r->t, TOW_UNSUPPORTED,
                   "%s%svmap of a gradient whose loop keeps states in a file; take the gradient of the vmap, or keep "
                   "them in memory: .file_slots = 0",
                   r->e->source.scope ? r->e->source.scope : "", r->e->source.scope ? ": " : "");
}

static tow_type rows_of(tow_type row, int64_t n)
{
    for (int d = row.rank++; d > 0; d--) row.dims[d] = row.dims[d - 1];
    row.dims[0] = n;
    return row;
}

/* ---- spill ------------------------------------------------------------------------------------------------------- */

static tow_status spill_type(const tow__typing *ty)
{
    const tow__spill_params *p = ty->params;
    const tow_type row = tow_make_type(p->dtype, p->shape.n, p->shape.v);
    tow_status status = tow__require_valid(ty, row);
    if (status != TOW_OK) return status;
    if (p->file_rows < 1 || p->file_rows > INT32_MAX || row.rank == TOW_MAX_RANK)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "expected 1 to 2^31 - 1 rows of at most %d axes, found %lld rows of %s", TOW_MAX_RANK - 1,
                              (long long)p->file_rows, tow__type_name(row).text);
    ty->out[0] = tow_make_type(TOW_I32, 0, NULL);
    ty->out[1] = rows_of(row, TOW__SPILL_STAGING);
    return tow__require_valid(ty, ty->out[1]);
}

TOW__PRIMITIVE(spill, TOW__COMPOSITE, tow__no_tiling, tow__element_cost, .inputs = 0, .outputs = 2, .type = spill_type,
               .effect = always, .host = true, .varies = true,
               TOW__PARAMS(tow__spill_params, TOW__PARAM(tow__spill_params, dtype, TOW__P_DTYPE),
                           TOW__PARAM(tow__spill_params, shape, TOW__P_INTS),
                           TOW__PARAM(tow__spill_params, file_rows, TOW__P_INT)));

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* x and staging have rows of one type, which *row becomes; index and token are i32[]. */
static tow_status rows_agree(const tow__typing *ty, size_t index, tow_type *row)
{
    const tow__spill_rows_params *p = ty->params;
    const tow_type x = ty->in[0];
    if (p->file_rows < 1)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "expected 1 row in the file or more, found %lld",
                              (long long)p->file_rows);
    if (x.rank == 0) return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "x needs a leading axis, found a scalar");
    *row = tow_make_type(x.dtype, x.rank - 1, x.dims + 1);
    const tow_type want[] = {tow_make_type(TOW_I32, 0, NULL), tow_make_type(TOW_I32, 0, NULL),
                             rows_of(*row, TOW__SPILL_STAGING)};
    for (size_t i = 0; i < 3; i++)
        if (!tow_type_equal(ty->in[index + i], want[i]))
            return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "operand %zu must be %s, found %s", index + i,
                                  tow__type_name(want[i]).text, tow__type_name(ty->in[index + i]).text);
    return TOW_OK;
}

static tow_status spill_write_type(const tow__typing *ty)
{
    tow_type row;
    const tow_status status = rows_agree(ty, 2, &row);
    if (status != TOW_OK) return status;
    if (!tow_type_equal(ty->in[1], row))
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "the row must be %s, found %s", tow__type_name(row).text,
                              tow__type_name(ty->in[1]).text);
    ty->out[0] = ty->in[0];
    return TOW_OK;
}

static tow_status spill_read_type(const tow__typing *ty) { return rows_agree(ty, 1, &ty->out[0]); }

TOW__PRIMITIVE(spill_write, TOW__COMPOSITE, tow__no_tiling, tow__element_cost, .aliasing = TOW__ALIAS_FIRST,
               .operands = "x, row, index, token, staging", .inputs = 5, .outputs = 1, .type = spill_write_type,
               .jvp = refuse_jvp, .batch = refuse_batch, .effect = always, .host = true,
               TOW__PARAMS(tow__spill_rows_params, TOW__PARAM(tow__spill_rows_params, file_rows, TOW__P_INT)));

TOW__PRIMITIVE(spill_read, TOW__COMPOSITE, tow__no_tiling, tow__element_cost, .operands = "x, index, token, staging",
               .inputs = 4, .outputs = 1, .type = spill_read_type, .jvp = refuse_jvp, .batch = refuse_batch,
               .effect = always, .host = true,
               TOW__PARAMS(tow__spill_rows_params, TOW__PARAM(tow__spill_rows_params, file_rows, TOW__P_INT)));
