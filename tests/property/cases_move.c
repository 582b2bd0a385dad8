/* Primitives that rearrange elements. Most references say where each result element comes from.
 * Tests kernels/reference/move.c. */
#include "tests/property/property.h"

/* out[i] = in[0][source(i)]; the result's shape is `shape`. The source is found per coordinate by `from`. */
static void rearrange(const property_case *c, const double *x, double *y, const tow__ints *shape,
                      void (*from)(const property_case *c, const int64_t *at, int64_t *source))
{
    const property_input *in = &c->in[0];
    int64_t count = 1;
    for (int d = 0; d < shape->n; d++) count *= shape->v[d];
    for (int64_t i = 0; i < count; i++) {
        int64_t at[TOW_MAX_RANK] = {0}, source[TOW_MAX_RANK] = {0}, rest = i, position = 0;
        for (int d = shape->n - 1; d >= 0; rest /= shape->v[d--]) at[d] = rest % shape->v[d];
        from(c, at, source);
        for (int d = 0; d < in->rank; d++) position = position * in->dims[d] + source[d];
        y[i] = x[position];
    }
}

static void same_order(const property_case *c, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < property_count(&c->in[0]); i++) out[0][i] = in[0][i];
}

/* ---- broadcast_in_dim -------------------------------------------------------------------------------------------- */

static void from_broadcast(const property_case *c, const int64_t *at, int64_t *source)
{
    const tow__broadcast_params *p = c->params;
    for (int d = 0; d < p->axes.n; d++) source[d] = c->in[0].dims[d] == 1 ? 0 : at[p->axes.v[d]];
}
static void broadcast(const property_case *c, double *const *in, double *const *out)
{
    rearrange(c, in[0], out[0], &((const tow__broadcast_params *)c->params)->shape, from_broadcast);
}
static const tow__broadcast_params new_axes = {.shape = INTS(2, 3, 4), .axes = INTS(1)};
static const tow__broadcast_params stretched = {.shape = INTS(3, 5), .axes = INTS(0, 1)};
static const tow__broadcast_params both = {.shape = INTS(2, 3, 4), .axes = INTS(0, 2)};
static const tow__broadcast_params scalar = {.shape = INTS(2, 3)};

/* ---- transpose, slice, rev --------------------------------------------------------------------------------------- */

static void from_transpose(const property_case *c, const int64_t *at, int64_t *source)
{
    const tow__ints *permutation = &((const tow__transpose_params *)c->params)->permutation;
    for (int d = 0; d < permutation->n; d++) source[permutation->v[d]] = at[d];
}
static void transpose(const property_case *c, double *const *in, double *const *out)
{
    const tow__ints *permutation = &((const tow__transpose_params *)c->params)->permutation;
    tow__ints shape = {.n = permutation->n};
    for (int d = 0; d < shape.n; d++) shape.v[d] = c->in[0].dims[permutation->v[d]];
    rearrange(c, in[0], out[0], &shape, from_transpose);
}
static const tow__transpose_params swap = {INTS(1, 0)}, rotate = {INTS(2, 0, 1)}, heads = {INTS(0, 2, 1, 3)};

static void from_slice(const property_case *c, const int64_t *at, int64_t *source)
{
    const tow__slice_params *p = c->params;
    for (int d = 0; d < p->start.n; d++) source[d] = p->start.v[d] + at[d] * (p->stride.n == 0 ? 1 : p->stride.v[d]);
}
static void slice(const property_case *c, double *const *in, double *const *out)
{
    const tow__slice_params *p = c->params;
    tow__ints shape = {.n = p->start.n};
    for (int d = 0; d < shape.n; d++) {
        const int64_t stride = p->stride.n == 0 ? 1 : p->stride.v[d];
        shape.v[d] = (p->limit.v[d] - p->start.v[d] + stride - 1) / stride;
    }
    rearrange(c, in[0], out[0], &shape, from_slice);
}
static const tow__slice_params part = {.start = INTS(1, 0), .limit = INTS(3, 4), .stride = INTS(1, 1)};
static const tow__slice_params strided = {.start = INTS(0, 1), .limit = INTS(4, 7), .stride = INTS(2, 3)};
static const tow__slice_params nothing = {.start = INTS(2, 0), .limit = INTS(2, 4), .stride = INTS(1, 1)};

static void from_rev(const property_case *c, const int64_t *at, int64_t *source)
{
    const tow__ints *axes = &((const tow__axes_params *)c->params)->axes;
    for (int d = 0; d < c->in[0].rank; d++) {
        source[d] = at[d];
        for (int i = 0; i < axes->n; i++)
            if (axes->v[i] == d) source[d] = c->in[0].dims[d] - 1 - at[d];
    }
}
static void reversed(const property_case *c, double *const *in, double *const *out)
{
    tow__ints shape = {.n = c->in[0].rank};
    for (int d = 0; d < shape.n; d++) shape.v[d] = c->in[0].dims[d];
    rearrange(c, in[0], out[0], &shape, from_rev);
}
static const tow__axes_params rev_last = {INTS(1)}, rev_both = {INTS(0, 1)};

static const tow__shape_params flat = {INTS(12)}, cube = {INTS(2, 3, 2)}, to_scalar = {{.n = 0}};

/* ---- pad: x placed into an array of the padding value ------------------------------------------------------------ */

static void pad(const property_case *c, double *const *in, double *const *out)
{
    const tow__pad_params *p = c->params;
    const int64_t *dims = c->in[0].dims; /* rank 2 in all cases */
    int64_t size[2];
    for (int d = 0; d < 2; d++) size[d] = p->low.v[d] + p->high.v[d] + dims[d] + (dims[d] - 1) * p->interior.v[d];
    for (int64_t i = 0; i < size[0] * size[1]; i++) out[0][i] = in[1][0];
    for (int64_t i = 0; i < dims[0]; i++)
        for (int64_t j = 0; j < dims[1]; j++) {
            const int64_t row = p->low.v[0] + i * (p->interior.v[0] + 1),
                          column = p->low.v[1] + j * (p->interior.v[1] + 1);
            if (row >= 0 && row < size[0] && column >= 0 && column < size[1])
                out[0][row * size[1] + column] = in[0][i * dims[1] + j];
        }
}
static const tow__pad_params around = {.low = INTS(1, 2), .high = INTS(0, 1), .interior = INTS(0, 0)};
static const tow__pad_params between = {.low = INTS(0, 1), .high = INTS(2, 0), .interior = INTS(2, 1)};
static const tow__pad_params one_axis = {.low = INTS(0, 2), .high = INTS(0, 1), .interior = INTS(0, 1)};
static const tow__pad_params cut = {.low = INTS(-1, 1), .high = INTS(1, -2), .interior = INTS(0, 1)};

/* ---- concatenate ------------------------------------------------------------------------------------------------- */

static void concatenate(const property_case *c, double *const *in, double *const *out)
{
    const int64_t axis = ((const tow__axis_params *)c->params)->axis;
    const int64_t before = property_axis_of(&c->in[0], axis).before;
    double *to = out[0];
    for (int64_t i = 0; i < before; i++)
        for (size_t n = 0; n < c->n_in; n++) {
            const int64_t run = property_count(&c->in[n]) / before;
            for (int64_t k = 0; k < run; k++) *to++ = in[n][i * run + k];
        }
}
static const tow__axis_params axis0 = {0}, axis1 = {1};

/* ---- gather, scatter_add ----------------------------------------------------------------------------------------- */

static void gather(const property_case *c, double *const *in, double *const *out)
{
    const int64_t rows = c->in[0].dims[0], width = property_count(&c->in[0]) / rows;
    for (int64_t i = 0; i < property_count(&c->in[1]); i++) {
        const int64_t row = (int64_t)in[1][i] + (in[1][i] < 0 ? rows : 0);
        for (int64_t k = 0; k < width; k++) out[0][i * width + k] = in[0][row * width + k];
    }
}

/* zeros for rows outside */
static void gather_jvp(const property_case *c, double *const *in, double *const *out)
{
    const int64_t rows = c->in[0].dims[0], width = property_count(&c->in[0]) / rows;
    for (int64_t i = 0; i < property_count(&c->in[1]); i++) {
        const int64_t row = (int64_t)in[1][i] + (in[1][i] < 0 ? rows : 0);
        for (int64_t k = 0; k < width; k++) out[0][i * width + k] = row >= 0 && row < rows ? in[0][row * width + k] : 0;
    }
}

static void scatter(const property_case *c, double *const *in, double *const *out)
{
    const int64_t rows = ((const tow__rows_params *)c->params)->rows, n = property_count(&c->in[0]);
    const int64_t width = property_count(&c->in[1]) / n;
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = (int64_t)in[0][i] + (in[0][i] < 0 ? rows : 0);
        if (row < 0 || row >= rows) continue; /* dropped */
        for (int64_t k = 0; k < width; k++) out[0][row * width + k] += in[1][i * width + k];
    }
}

static void index_add(const property_case *c, double *const *in, double *const *out)
{
    const int64_t rows = c->in[0].dims[0], n = property_count(&c->in[1]), width = property_count(&c->in[2]) / n;
    for (int64_t i = 0; i < rows * width; i++) out[0][i] = in[0][i];
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = (int64_t)in[1][i] + (in[1][i] < 0 ? rows : 0);
        if (row < 0 || row >= rows) continue; /* dropped */
        for (int64_t k = 0; k < width; k++) out[0][row * width + k] += in[2][i * width + k];
    }
}
static const tow__rows_params four_rows = {4};

/* ---- dynamic slices: starts are clamped so that the window lies inside ------------------------------------------- */

static int64_t clamped(double start, int64_t size, int64_t window)
{
    const int64_t s = (int64_t)start;
    return s < 0 ? 0 : s > size - window ? size - window : s;
}

static void dynamic_slice(const property_case *c, double *const *in, double *const *out)
{
    const tow__ints *sizes = &((const tow__sizes_params *)c->params)->sizes;
    const int64_t *dims = c->in[0].dims;
    const int64_t row = clamped(in[1][0], dims[0], sizes->v[0]), column = clamped(in[2][0], dims[1], sizes->v[1]);
    for (int64_t i = 0; i < sizes->v[0]; i++)
        for (int64_t j = 0; j < sizes->v[1]; j++) out[0][i * sizes->v[1] + j] = in[0][(row + i) * dims[1] + column + j];
}

static void dynamic_update(const property_case *c, double *const *in, double *const *out)
{
    const int64_t *dims = c->in[0].dims, *window = c->in[1].dims;
    const int64_t row = clamped(in[2][0], dims[0], window[0]), column = clamped(in[3][0], dims[1], window[1]);
    same_order(c, in, out);
    for (int64_t i = 0; i < window[0]; i++)
        for (int64_t j = 0; j < window[1]; j++) out[0][(row + i) * dims[1] + column + j] = in[1][i * window[1] + j];
}
static const tow__sizes_params window = {INTS(2, 3)};

#define F .dtype = TOW_F64
#define AT(value)                                                                                                      \
    {                                                                                                                  \
        .dtype = TOW_I32, S0, .low = value, .high = value                                                              \
    }
#define MOVE(name, text, p, function, ...)                                                                             \
    {                                                                                                                  \
        .primitive = name, .label = text, .params = &p, .n_in = 1, .value = function, .in = { {__VA_ARGS__} }          \
    }

static const property_case cases[] = {
    MOVE("broadcast_in_dim", "new axes", new_axes, broadcast, F, S1(3)),
    MOVE("broadcast_in_dim", "stretched", stretched, broadcast, F, S2(3, 1)),
    MOVE("broadcast_in_dim", "new and stretched", both, broadcast, F, S2(2, 1)),
    MOVE("broadcast_in_dim", "scalar", scalar, broadcast, F, S0),
    MOVE("reshape", "flat", flat, same_order, F, S2(3, 4)),
    MOVE("reshape", "other axes", cube, same_order, F, S2(3, 4)),
    MOVE("reshape", "scalar", to_scalar, same_order, F, S2(1, 1)),
    MOVE("transpose", "matrix", swap, transpose, F, S2(3, 4)),
    MOVE("transpose", "rotation", rotate, transpose, F, S3(2, 3, 4)),
    MOVE("transpose", "heads", heads, transpose, F, S4(2, 3, 2, 4)),
    MOVE("transpose", "i32", swap, transpose, .dtype = TOW_I32, S2(3, 4), .low = -9, .high = 9),
    MOVE("slice", "part", part, slice, F, S2(4, 5)),
    MOVE("slice", "strided", strided, slice, F, S2(4, 8)),
    MOVE("slice", "nothing", nothing, slice, F, S2(4, 5)),
    MOVE("rev", "last axis", rev_last, reversed, F, S2(3, 4)),
    MOVE("rev", "both axes", rev_both, reversed, F, S2(3, 4)),
    {.primitive = "pad", .label = "around", .params = &around, .n_in = 2, .value = pad, .in = {{F, S2(2, 3)}, {F, S0}}},
    {.primitive = "pad",
     .label = "between",
     .params = &between,
     .n_in = 2,
     .value = pad,
     .in = {{F, S2(2, 3)}, {F, S0}}},
    {.primitive = "pad",
     .label = "one axis of two",
     .params = &one_axis,
     .n_in = 2,
     .value = pad,
     .in = {{F, S2(3, 2)}, {F, S0}}},
    {.primitive = "pad", .label = "negative", .params = &cut, .n_in = 2, .value = pad, .in = {{F, S2(3, 3)}, {F, S0}}},
    {.primitive = "concatenate",
     .label = "axis 0",
     .params = &axis0,
     .n_in = 3,
     .value = concatenate,
     .in = {{F, S2(2, 3)}, {F, S2(1, 3)}, {F, S2(0, 3)}}},
    {.primitive = "concatenate",
     .label = "axis 1",
     .params = &axis1,
     .n_in = 2,
     .value = concatenate,
     .in = {{F, S3(2, 3, 2)}, {F, S3(2, 1, 2)}}},
    {.primitive = "concatenate",
     .label = "one operand constant",
     .params = &axis1,
     .n_in = 2,
     .value = concatenate,
     .in = {{F, S2(2, 3)}, {F, S2(2, 2), .constant = true}}},
    {.primitive = "gather",
     .label = "rows, from the end as well",
     .n_in = 2,
     .value = gather,
     .in = {{F, S2(5, 3)}, {.dtype = TOW_I32, S2(2, 4), .low = -5, .high = 4}}},
    {.primitive = "gather", .label = "one row", .n_in = 2, .value = gather, .in = {{F, S2(5, 3)}, AT(2)}},
    {.primitive = "gather",
     .label = "u32 from a vector",
     .n_in = 2,
     .value = gather,
     .in = {{F, S1(6)}, {.dtype = TOW_U32, S1(9), .low = 0, .high = 5}}},
    {.primitive = "gather",
     .label = "a mask",
     .n_in = 2,
     .value = gather,
     .in = {{.dtype = TOW_BOOL, S2(5, 3)}, {.dtype = TOW_I32, S2(2, 4), .low = -5, .high = 4}}},
    {.primitive = "gather_jvp",
     .label = "rows outside are zeros",
     .n_in = 2,
     .value = gather_jvp,
     .in = {{F, S2(5, 3)}, {.dtype = TOW_I32, S2(4, 5), .low = -8, .high = 8}}},
    {.primitive = "gather_jvp",
     .label = "u32 from a vector",
     .n_in = 2,
     .value = gather_jvp,
     .in = {{F, S1(6)}, {.dtype = TOW_U32, S1(9), .low = 0, .high = 8}}},
    {.primitive = "scatter_add",
     .label = "repeated rows",
     .params = &four_rows,
     .n_in = 2,
     .value = scatter,
     .loose = 2,
     .in = {{.dtype = TOW_I32, S1(9), .low = -4, .high = 3}, {F, S2(9, 3)}}},
    {.primitive = "scatter_add",
     .label = "rows outside are dropped",
     .params = &four_rows,
     .n_in = 2,
     .value = scatter,
     .loose = 2,
     .in = {{.dtype = TOW_I32, S1(20), .low = -7, .high = 7}, {F, S1(20)}}},
    {.primitive = "index_add",
     .label = "repeated rows",
     .n_in = 3,
     .value = index_add,
     .loose = 2,
     .in = {{F, S2(4, 3)}, {.dtype = TOW_I32, S1(9), .low = -4, .high = 3}, {F, S2(9, 3)}}},
    {.primitive = "index_add",
     .label = "rows outside are dropped",
     .n_in = 3,
     .value = index_add,
     .loose = 2,
     .in = {{F, S1(4)}, {.dtype = TOW_I32, S1(20), .low = -7, .high = 7}, {F, S1(20)}}},
    {.primitive = "index_add",
     .label = "only the updates differentiated",
     .n_in = 3,
     .value = index_add,
     .loose = 2,
     .in = {{F, S2(4, 3), .constant = true}, {.dtype = TOW_U32, S1(5), .low = 0, .high = 3}, {F, S2(5, 3)}}},
    {.primitive = "dynamic_slice",
     .params = &window,
     .n_in = 3,
     .value = dynamic_slice,
     .in = {{F, S2(4, 5)}, AT(1), AT(2)}},
    {.primitive = "dynamic_slice",
     .label = "clamped",
     .params = &window,
     .n_in = 3,
     .value = dynamic_slice,
     .in = {{F, S2(4, 5)}, AT(9), AT(-3)}},
    {.primitive = "dynamic_update_slice",
     .n_in = 4,
     .value = dynamic_update,
     .in = {{F, S2(4, 5)}, {F, S2(2, 3)}, AT(1), AT(2)}},
    {.primitive = "dynamic_update_slice",
     .label = "clamped",
     .n_in = 4,
     .value = dynamic_update,
     .in = {{F, S2(4, 5)}, {F, S2(2, 3)}, AT(-1), AT(7)}},
    {.primitive = "dynamic_update_slice",
     .label = "only the update differentiated",
     .n_in = 4,
     .value = dynamic_update,
     .in = {{F, S2(4, 5), .constant = true}, {F, S2(2, 3)}, AT(1), AT(2)}},
};

const property_table move_cases = TABLE(cases);
