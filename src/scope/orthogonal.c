/* Orthogonal initializers: Q of a normal matrix A = Q R, columns multiplied by the signs of R's diagonal, which makes
 * all orthonormal Q equally likely (F. Mezzadri, How to generate random matrices from the classical compact groups,
 * 2007).
 *
 * Householder's QR in f64. Columns of A are contiguous, so that a reflection is a dot product and an addition for each
 * column. Column k holds v_k (v_k[k] stored too) on and below the diagonal after its step:
 *
 *   H_k = I - tau_k v_k v_k',   R = H_n .. H_1 A,   Q = H_1 .. H_n I. */
#include <math.h>

#include "src/base/clones.h"
#include "src/base/dtypes.h"
#include "src/scope/draws.h"
#include "src/scope/initializers.h"

enum {
    LANES = 8 /* sums side by side, so that loops become vectors; the same on all machines */
};

/* x'y and y += a x over n elements. */
static inline __attribute__((always_inline)) double dot(int64_t n, const double *x, const double *y)
{
    double sums[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) sums[k] += x[i + k] * y[i + k];
    for (; i < n; i++) sums[0] += x[i] * y[i];
    for (int k = 0; k < LANES; k++) sum += sums[k];
    return sum;
}
static inline __attribute__((always_inline)) void add_scaled(int64_t n, double a, const double *x, double *y)
{
    for (int64_t i = 0; i < n; i++) y[i] += a * x[i];
}

/* columns[0..count), each of `rows` elements: H applied to those from `first` on. */
TOW__CLONES
static void reflect(int64_t rows, const double *v, double tau, int64_t first, int64_t count, double *columns,
                    int64_t start)
{
    for (int64_t j = first; j < count; j++) {
        double *column = columns + j * rows + start;
        add_scaled(rows - start, -tau * dot(rows - start, v + start, column), v + start, column);
    }
}

/* a: [n][m], m >= n, the columns of A. q likewise: Q with the signs. taus, signs: [n]. */
static void factor(int64_t m, int64_t n, double *a, double *q, double *taus, double *signs)
{
    for (int64_t k = 0; k < n; k++) {
        double *v = a + k * m, norm = 0, beta;
        norm = sqrt(dot(m - k, v + k, v + k));
        /* H x = -sign(x_0) |x| e_0 has no cancellation; that number is R's diagonal */
        beta = v[k] < 0 ? norm : -norm;
        signs[k] = beta < 0 ? -1 : 1;
        taus[k] = 0;
        if (norm == 0) continue; /* a column of zeros: H = I */
        v[k] -= beta;
        taus[k] = 2 / dot(m - k, v + k, v + k);
        reflect(m, v, taus[k], k + 1, n, a, k);
    }
    for (int64_t k = 0; k < n; k++) q[k * m + k] = 1;
    for (int64_t k = n - 1; k >= 0; k--) reflect(m, a + k * m, taus[k], k, n, q, k);
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < m; i++) q[k * m + i] *= signs[k];
}

/* z [m][n]: normal draws of the type, as f64; JAX draws no floats of 16 bits here, they are drawn as f32. */
static tow_status draw_columns(tow_context *ctx, tow_dtype dtype, const uint32_t key[2], int64_t m, int64_t n,
                               double *a)
{
    tow_dtype drawn = tow__wide(dtype);
    size_t bytes = tow_dtype_size(drawn);
    void *z = tow__alloc(ctx, (size_t)(m * n), bytes);
    if (!z) return TOW_OUT_OF_MEMORY;
    tow__draws draws = {.distribution = TOW_NORMAL, .key = key, .scale = 1};
    tow__draw(&draws, drawn, 0, m * n, z);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            a[j * m + i] = drawn == TOW_F64 ? ((double *)z)[i * n + j] : (double)((float *)z)[i * n + j];
    tow__free(ctx, z, (size_t)(m * n), bytes);
    return TOW_OK;
}

/* Writes element (row, column) of the matrix, axis `axis` of which are columns, where it stands in the parameter. */
static void store(tow_type type, int axis, double scale, int64_t rows, const double *q, bool wide, void *data)
{
    int64_t columns = type.dims[axis], inner = 1;
    for (int i = axis + 1; i < type.rank; i++) inner *= type.dims[i];
    for (int64_t row = 0; row < rows; row++)
        for (int64_t column = 0; column < columns; column++) {
            double x = wide ? q[row * columns + column] : q[column * rows + row];
            int64_t at = (row / inner * columns + column) * inner + row % inner;
            tow__store_element(type.dtype, data, at, tow__as_float(type.dtype, scale) * tow__as_float(type.dtype, x));
        }
}

/* type: of rank 2 or more; axis: of it, not negative. */
static tow_status fill_matrix(tow_context *ctx, tow_type type, int axis, double scale, const uint32_t key[2],
                              void *data)
{
    int64_t count = tow_type_element_count(type), columns = type.dims[axis];
    if (count == 0) return TOW_OK;
    int64_t rows = count / columns, m = rows > columns ? rows : columns, n = rows > columns ? columns : rows;
    size_t size = (size_t)(2 * count + 2 * n);
    double *a = tow__alloc(ctx, size, sizeof *a);
    if (!a) return TOW_OUT_OF_MEMORY;
    tow_status status = draw_columns(ctx, type.dtype, key, m, n, a);
    if (!status) {
        factor(m, n, a, a + count, a + 2 * count, a + 2 * count + n);
        store(type, axis, scale, rows, a + count, rows < columns, data);
    }
    tow__free(ctx, a, size, sizeof *a);
    return status;
}

/* The axis `column_axis` of a type, or -1 after an error. */
static int column_axis(tow_context *ctx, const char *what, tow_type type, const tow_initializer *self)
{
    int axis = self->axis < 0 ? self->axis + type.rank : self->axis;
    if (!isfinite(self->a)) {
        tow__fail(ctx, TOW_INVALID_ARGUMENT, "%s: expected a finite scale, found %g", what, self->a);
        return -1;
    }
    if (axis >= 0 && axis < type.rank) return axis;
    tow__fail(ctx, TOW_INVALID_ARGUMENT, "%s: column_axis %d; expected an axis of %s", what, self->axis,
              tow__type_name(type).text);
    return -1;
}

tow_status tow__fill_orthogonal(tow_context *ctx, const tow_initializer *self, tow_type type, const uint32_t key[2],
                                void *data)
{
    if (type.rank < 2)
        return tow__fail(ctx, TOW_SHAPE_MISMATCH,
                         "orthogonal: expected a shape of rank 2 or more, found %s; use another initializer",
                         tow__type_name(type).text);
    int axis = column_axis(ctx, "orthogonal", type, self);
    return axis < 0 ? TOW_INVALID_ARGUMENT : fill_matrix(ctx, type, axis, self->a, key, data);
}

tow_status tow__fill_delta_orthogonal(tow_context *ctx, const tow_initializer *self, tow_type type,
                                      const uint32_t key[2], void *data)
{
    if (type.rank < 3 || type.rank > 5)
        return tow__fail(ctx, TOW_SHAPE_MISMATCH,
                         "delta orthogonal: expected a kernel [spatial..., in, features] of rank 3 to 5, found %s",
                         tow__type_name(type).text);
    tow_type tap = tow_make_type(type.dtype, 2, &type.dims[type.rank - 2]);
    if (tap.dims[0] > tap.dims[1])
        return tow__fail(ctx, TOW_SHAPE_MISMATCH, "delta orthogonal: expected no more inputs than features, found %s",
                         tow__type_name(type).text);
    int axis = column_axis(ctx, "delta orthogonal", tap, self);
    if (axis < 0) return TOW_INVALID_ARGUMENT;
    int64_t middle = 0;
    for (int i = 0; i < type.rank - 2; i++) {
        if (type.dims[i] == 0) return TOW_OK;
        middle = middle * type.dims[i] + (type.dims[i] - 1) / 2;
    }
    memset(data, 0, tow_type_bytes(type));
    return fill_matrix(ctx, tap, axis, self->a, key, (char *)data + (size_t)middle * tow_type_bytes(tap));
}
