/* Shared by the files of src/ops: type rules of whole families, and helpers for writing rules and public operations.
 *
 * Public operations check only what they need to build parameters (axes in range, counts); everything about types is
 * the type rule's business, so that graphs that are parsed meet the same messages as graphs that are traced. */
#ifndef TOW_SRC_RULES_H
#define TOW_SRC_RULES_H

#include "src/graph/primitive.h"
#include "src/ops/batching.h"
#include "src/ops/table.h"
#include "src/ops/tiling.h"
#include "tow/ops.h"

/* ---- values ------------------------------------------------------------------------------------------------------ */

static inline tow_value tow__null(void) { return (tow_value){0}; }
/* True if one of n values is null: then an operation has nothing to do. */
bool tow__any_null(size_t n, const tow_value *x);
/* The result of an operation on operands of which one is null: the first one that says why it is (tow__null_because),
 * of which the trace of another operand, if there is one, hears. */
tow_value tow__null_of(const char *op, size_t n, const tow_value *x);
/* The same of an operation on x alone, that fails: a null value. */
static inline tow_value tow__null_from(tow_value x) { return tow_is_null(x) ? x : tow__null(); }
tow_dtype tow__dtype(tow_value x);
/* Zeros of `type` in the trace t; they are constants, so no policy keeps them. */
tow_value tow__zeros(tow_trace *t, tow_type type);
/* The sum of two tangents or cotangents, null = zero. */
tow_value tow__add_or(tow_value a, tow_value b);
/* dx if present, else zeros like x. */
tow_value tow__or_zeros(tow_value dx, tow_value x);

/* Sticks an error of operation `op` to the trace, with the source line that x carries. Returns the null value. */
__attribute__((format(printf, 4, 5))) tow_value tow__op_fail(tow_value x, const char *op, tow_status status,
                                                             const char *format, ...);
/* True if the caller gave the arrays that the operation needs; else an error with what is missing. */
bool tow__given(tow_value x, const char *op, bool given, const char *expected);
/* Binds one primitive on operands of which none is null, else gives the null value. */
tow_value tow__op1(const tow_primitive *p, tow_value x);
tow_value tow__op(const tow_primitive *p, const void *params, size_t n, const tow_value *x);

/* The shape that n shapes broadcast to by NumPy's rule; false if they do not. dtype is that of types[0]. */
bool tow__broadcast_type(size_t n, const tow_type *types, tow_type *result);

/* axis in [-rank, rank) made non-negative in *result; else an error and false. */
bool tow__normal_axis(tow_value x, const char *op, int axis, int rank, int64_t *result);
/* All of n axes, sorted, distinct; n 0: all axes of x. */
bool tow__normal_axes(tow_value x, const char *op, int n, const int *axes, tow__ints *result);
tow__ints tow__ints_of(int n, const int64_t *v);

/* Indices in a type in which places can be computed: those of 8 bits as i32. */
tow_value tow__index_words(tow_value indices);

/* x with the axes that a reduction removed put back: x [kept dims] -> type's shape, repeated along `axes`. */
tow_value tow__unreduce(tow_value x, tow_type type, tow__ints axes);
/* `x` reduced over one axis (0 <= axis < rank) by the sum. */
tow_value tow__sum_axis(tow_value x, int64_t axis);

/* ---- type rules -------------------------------------------------------------------------------------------------- */

/* Operand i's dtype must be in the set (src/base/dtypes.h). */
tow_status tow__require_dtype(const tow__typing *ty, size_t i, unsigned set);
/* Operands first .. n_in-1 must have the type of operand `first`. */
tow_status tow__require_same(const tow__typing *ty, size_t first);
/* The element type of a product of these operands: operand 0's, or the one that is preferred (1 + dtype), which must be
 * of its kind and no narrower. */
tow_status tow__product_dtype(const tow__typing *ty, int64_t preferred, tow_dtype *dtype);
tow_status tow__require_rank(const tow__typing *ty, size_t i, int rank);
tow_status tow__require_count(const tow__typing *ty, size_t n_in, size_t n_out);
/* 0 <= axis < rank of operand 0. */
tow_status tow__require_axis(const tow__typing *ty, int64_t axis);
/* Sorted, distinct axes of operand 0. */
tow_status tow__require_axes(const tow__typing *ty, const tow__ints *axes);
/* The result must be a well-formed type (size fits). */
tow_status tow__require_valid(const tow__typing *ty, tow_type type);
__attribute__((format(printf, 3, 4))) tow_status tow__type_fail(const tow__typing *ty, tow_status status,
                                                                const char *format, ...);

/* One or more operands of one type -> the same type. */
tow_status tow__type_same_float(const tow__typing *ty);
tow_status tow__type_same_number(const tow__typing *ty);
tow_status tow__type_same_bits(const tow__typing *ty);
tow_status tow__type_same_integer(const tow__typing *ty);
tow_status tow__type_same_any(const tow__typing *ty);
/* Two operands of one type -> bool. */
tow_status tow__type_compare(const tow__typing *ty);
/* Float operand and `axis` -> the same type. */
tow_status tow__type_axis_float(const tow__typing *ty);
/* Parameters tow__axis_params; an i32 index along the axis, which has elements. */
tow_status tow__type_argmax(const tow__typing *ty);

/* `type` without the sorted axes. */
tow_type tow__without_axes(tow_type type, const tow__ints *axes);

/* ---- differentiation --------------------------------------------------------------------------------------------- */

/* Binds the primal equation as it is. */
void tow__jvp_primal(tow__jvp *r);
/* Rules linear_in: at most one operand depends on tangents; none but the first one does. */
bool tow__linear_in_one(const tow__equation *e, const bool *depends);
bool tow__linear_in_first(const tow__equation *e, const bool *depends);
/* None of the first n operands depends on tangents: of what is linear in the tangents behind them. */
bool tow__linear_behind(const tow__equation *e, const bool *depends, size_t n);
/* True if outputs 1.. have readers. */
bool tow__uses_residual_outputs(const tow__jvp *r);

enum {
    TOW__PAIR_RESIDUALS = 8, /* of a fused pair, */
    TOW__PAIR_WRT = 3        /* and the operands that it differentiates, at most */
};

/* The transpose of NAME_jvp, whose operands are `residuals` values and the tangents of those operands of NAME that the
 * bits of *wrt name, is NAME_vjp: binds `vjp` on the residuals and the cotangent. *wrt is a field of `params`, which
 * are the equation's; it becomes those whose cotangents are wanted. */
void tow__transpose_to_vjp(tow__transpose *r, const tow_primitive *vjp, void *params, int64_t *wrt, size_t residuals);

/* ---- parameter tables -------------------------------------------------------------------------------------------- */

/* TOW__PRIMITIVE for what computes element by element. */
#define TOW__ELEMENTWISE_PRIMITIVE(name_, ...)                                                                         \
    TOW__PRIMITIVE(name_, TOW__ELEMENTWISE, tow__tile_elementwise, tow__element_cost, .aliasing = TOW__ALIAS_ANY,      \
                   .batch = tow__batch_elementwise, __VA_ARGS__)

/* The same for what a few cycles compute. */
#define TOW__ARITHMETIC_PRIMITIVE(name_, ...) TOW__ELEMENTWISE_PRIMITIVE(name_, .arithmetic = true, __VA_ARGS__)

#define TOW__PARAM(struct_type, field, field_kind)                                                                     \
    {                                                                                                                  \
        .name = #field, .kind = field_kind, .offset = offsetof(struct_type, field)                                     \
    }
#define TOW__PARAMS(struct_type, ...)                                                                                  \
    .params_size = sizeof(struct_type), .params = (const tow__param[])                                                 \
    {                                                                                                                  \
        __VA_ARGS__, { 0 }                                                                                             \
    }

#endif
