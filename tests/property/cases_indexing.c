/* Sorting, searching, and gather and scatter in general form.
 * Tests kernels/reference/sort.c, kernels/sorting/sort.c. */
#include <math.h>
#include <string.h>

#include "tests/property/property.h"

/* ---- sorting ----------------------------------------------------------------------------------------------------- */

/* Selection by counting: element i of a row goes behind all that are less, and behind equal ones before it. */
static int64_t rank_of(const double *row, int64_t n, int64_t step, int64_t i, bool descending)
{
    int64_t rank = 0;
    for (int64_t j = 0; j < n; j++) {
        const double a = row[j * step], b = row[i * step];
        rank += (descending ? a > b : a < b) || (a == b && j < i);
    }
    return rank;
}

/* Operand 0 is the key. */
static void sorted(const property_case *c, double *const *in, double *const *out)
{
    const property_axis a = property_axis_of(&c->in[0], ((const tow__sort_params *)c->params)->axis);
    for (int64_t b = 0; b < a.before; b++)
        for (int64_t k = 0; k < a.after; k++)
            for (int64_t i = 0; i < a.size; i++) {
                const int64_t first = b * a.size * a.after + k;
                const int64_t to = first + rank_of(in[0] + first, a.size, a.after, i, false) * a.after;
                for (size_t operand = 0; operand < c->n_in; operand++)
                    out[operand][to] = in[operand][first + i * a.after];
            }
}

/* Two keys: 3 key0 + key1 for keys of {0, 1, 2}. */
static void sorted_by_two(const property_case *c, double *const *in, double *const *out)
{
    double key[16];
    const int64_t n = property_count(&c->in[0]);
    for (int64_t i = 0; i < n; i++) key[i] = 3 * in[0][i] + in[1][i];
    for (int64_t i = 0; i < n; i++)
        for (size_t operand = 0; operand < 3; operand++) out[operand][rank_of(key, n, 1, i, false)] = in[operand][i];
}

static void largest(const property_case *c, double *const *in, double *const *out)
{
    const tow__top_k_params *p = c->params;
    const property_axis a = property_axis_of(&c->in[0], p->axis);
    for (int64_t b = 0; b < a.before; b++)
        for (int64_t k = 0; k < a.after; k++)
            for (int64_t i = 0; i < a.size; i++) {
                const double *row = in[0] + b * a.size * a.after + k;
                const int64_t rank = rank_of(row, a.size, a.after, i, true);
                if (rank >= p->k) continue;
                out[0][(b * p->k + rank) * a.after + k] = row[i * a.after];
                out[1][(b * p->k + rank) * a.after + k] = (double)i;
            }
}

static void sort_first(const property_case *c, double *const *in)
{
    const int64_t n = property_count(&c->in[0]);
    for (int64_t i = 1; i < n; i++)
        for (int64_t j = i; j > 0 && in[0][j - 1] > in[0][j]; j--) {
            const double x = in[0][j];
            in[0][j] = in[0][j - 1];
            in[0][j - 1] = x;
        }
}

static void places(const property_case *c, double *const *in, double *const *out)
{
    const bool right = ((const tow__searchsorted_params *)c->params)->right;
    for (int64_t i = 0; i < property_count(&c->in[1]); i++) {
        out[0][i] = 0;
        for (int64_t j = 0; j < property_count(&c->in[0]); j++)
            out[0][i] += right ? in[0][j] <= in[1][i] : in[0][j] < in[1][i];
    }
}

static void first_minimum(const property_case *c, double *const *in, double *const *out)
{
    const property_axis a = property_axis_of(&c->in[0], ((const tow__axis_params *)c->params)->axis);
    for (int64_t b = 0; b < a.before; b++)
        for (int64_t k = 0; k < a.after; k++)
            for (int64_t i = a.size - 1; i >= 0; i--) {
                const double *row = in[0] + b * a.size * a.after + k;
                if (rank_of(row, a.size, a.after, i, false) == 0) out[0][b * a.after + k] = (double)i;
            }
}

/* ---- gather ------------------------------------------------------------------------------------------------------ */

static int64_t clamp(double at, int64_t most) { return at < 0 ? 0 : at > (double)most ? most : (int64_t)at; }

/* x [4,3], indices [5,1] -> columns [4,5] */
static void columns(const property_case *c, double *const *in, double *const *out)
{
    (void)c;
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 5; j++) out[0][i * 5 + j] = in[0][i * 3 + (int)in[1][j]];
}

/* x [4,5], indices [3,2] -> windows [3,2,2], moved inside */
static void squares(const property_case *c, double *const *in, double *const *out)
{
    (void)c;
    for (int b = 0; b < 3; b++)
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 2; j++)
                out[0][(b * 2 + i) * 2 + j] = in[0][(clamp(in[1][b * 2], 2) + i) * 5 + clamp(in[1][b * 2 + 1], 3) + j];
}

/* x [3,5], indices [3,4,1] -> [3,4]; 7 outside */
static void along_rows(const property_case *c, double *const *in, double *const *out)
{
    (void)c;
    for (int r = 0; r < 3; r++)
        for (int k = 0; k < 4; k++) {
            const double at = in[1][r * 4 + k];
            out[0][r * 4 + k] = at < 0 || at > 4 ? 7 : in[0][r * 5 + (int)at];
        }
}

/* x [2,4,3], indices [6,1] -> [2,6,3] */
static void middle(const property_case *c, double *const *in, double *const *out)
{
    (void)c;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 6; j++)
            for (int k = 0; k < 3; k++) out[0][(i * 6 + j) * 3 + k] = in[0][(i * 4 + (int)in[1][j]) * 3 + k];
}

/* ---- scatter: x [5,3], indices [4,1], updates [4,3] -------------------------------------------------------------- */

static void put(double *x, double u) { *x = u; }
static void plus(double *x, double u) { *x += u; }
static void times(double *x, double u) { *x *= u; }
static void least(double *x, double u) { *x = fmin(*x, u); }
static void most(double *x, double u) { *x = fmax(*x, u); }

static void scatter(const property_case *c, double *const *in, double *const *out, void (*apply)(double *, double))
{
    memcpy(out[0], in[0], 15 * sizeof(double));
    for (int b = 0; b < 4; b++) {
        const double at = ((const tow__scatter_params *)c->params)->clip ? (double)clamp(in[1][b], 4) : in[1][b];
        if (at < 0 || at > 4) continue;
        for (int k = 0; k < 3; k++) apply(&out[0][(int)at * 3 + k], in[2][b * 3 + k]);
    }
}
#define SCATTER(name, function)                                                                                        \
    static void name(const property_case *c, double *const *in, double *const *out) { scatter(c, in, out, function); }
SCATTER(scatter_set, put)
SCATTER(scatter_add, plus)
SCATTER(scatter_mul, times)
SCATTER(scatter_min, least)
SCATTER(scatter_max, most)

/* x [3,5], indices [3,2,1], updates [3,2], along each row */
static void add_along_rows(const property_case *c, double *const *in, double *const *out)
{
    (void)c;
    memcpy(out[0], in[0], 15 * sizeof(double));
    for (int r = 0; r < 3; r++)
        for (int k = 0; k < 2; k++) out[0][r * 5 + (int)in[1][r * 2 + k]] += in[2][r * 2 + k];
}

static void distinct(const property_case *c, double *const *in)
{
    (void)c;
    static const double rows[] = {3, 0, 4, 1};
    memcpy(in[1], rows, sizeof rows);
}

/* ---- cases ------------------------------------------------------------------------------------------------------- */

static const tow__sort_params by_last = {.axis = 1, .num_keys = 1}, by_first = {.axis = 0, .num_keys = 1},
                              by_two = {.axis = 0, .num_keys = 2};
static const tow__top_k_params three = {.axis = 1, .k = 3}, two_of_first = {.axis = 0, .k = 2},
                               all = {.axis = 0, .k = 9}, none = {.axis = 0, .k = 0};
static const tow__searchsorted_params left = {false}, right = {true};
static const tow__axis_params along_0 = {0}, along_1 = {1};
static const tow__gather_params take_columns = {
    .offset_dims = INTS(0), .collapsed_slice_dims = INTS(1), .start_index_map = INTS(1), .slice_sizes = INTS(4, 1)};
static const tow__gather_params take_squares = {
    .offset_dims = INTS(1, 2), .start_index_map = INTS(0, 1), .slice_sizes = INTS(2, 2), .clip = true};
static const tow__gather_params take_along = {.collapsed_slice_dims = INTS(1),
                                              .operand_batching_dims = INTS(0),
                                              .start_indices_batching_dims = INTS(0),
                                              .start_index_map = INTS(1),
                                              .slice_sizes = INTS(1, 1),
                                              .fill = true,
                                              .fill_value = 7};
static const tow__gather_params take_middle = {.offset_dims = INTS(0, 2),
                                               .collapsed_slice_dims = INTS(1),
                                               .start_index_map = INTS(1),
                                               .slice_sizes = INTS(2, 1, 3)};
#define ROWS .update_window_dims = INTS(1), .inserted_window_dims = INTS(0), .scatter_dims_to_operand_dims = INTS(0)
static const tow__scatter_params rows = {ROWS}, rows_clipped = {ROWS, .clip = true},
                                 rows_unique = {ROWS, .unique_indices = true};
static const tow__scatter_params each_row = {.inserted_window_dims = INTS(1),
                                             .operand_batching_dims = INTS(0),
                                             .scatter_indices_batching_dims = INTS(0),
                                             .scatter_dims_to_operand_dims = INTS(1)};

#define MATRIX                                                                                                         \
    {                                                                                                                  \
        .dtype = TOW_F64, S2(4, 5)                                                                                     \
    }
#define TIED                                                                                                           \
    {                                                                                                                  \
        .dtype = TOW_I32, S1(9)                                                                                        \
    }
#define INDICES(...)                                                                                                   \
    {                                                                                                                  \
        .dtype = TOW_I32, __VA_ARGS__                                                                                  \
    }
#define UPDATES                                                                                                        \
    {.dtype = TOW_F64, S2(5, 3)}, {.dtype = TOW_I32, S2(4, 1), .low = -1, .high = 5}, { .dtype = TOW_F64, S2(4, 3) }

static const property_case cases[] = {
    {.primitive = "sort", .label = "rows", .params = &by_last, .n_in = 1, .value = sorted, .in = {MATRIX}},
    {.primitive = "sort", .label = "columns", .params = &by_first, .n_in = 1, .value = sorted, .in = {MATRIX}},
    {.primitive = "sort",
     .label = "long",
     .params = &by_last,
     .n_in = 1,
     .value = sorted,
     .no_derivative = true,
     .in = {{.dtype = TOW_F64, S2(3, 300)}}},
    {.primitive = "sort",
     .label = "a key with ties and two values",
     .params = &by_first,
     .n_in = 3,
     .n_out = 3,
     .value = sorted,
     .in = {TIED, {.dtype = TOW_F64, S1(9)}, {.dtype = TOW_U32, S1(9)}}},
    {.primitive = "sort",
     .label = "two keys",
     .params = &by_two,
     .n_in = 3,
     .n_out = 3,
     .value = sorted_by_two,
     .in = {TIED, TIED, {.dtype = TOW_F64, S1(9)}}},
    {.primitive = "sort",
     .label = "no elements",
     .params = &by_last,
     .n_in = 1,
     .value = sorted,
     .in = {{.dtype = TOW_F64, S2(3, 0)}}},
    {.primitive = "sort",
     .label = "bool",
     .params = &by_first,
     .n_in = 1,
     .value = sorted,
     .in = {{.dtype = TOW_BOOL, S1(40)}}},
    {.primitive = "top_k", .params = &three, .n_in = 1, .n_out = 2, .value = largest, .in = {MATRIX}},
    {.primitive = "top_k",
     .label = "of columns",
     .params = &two_of_first,
     .n_in = 1,
     .n_out = 2,
     .value = largest,
     .in = {MATRIX}},
    {.primitive = "top_k",
     .label = "all of many ties",
     .params = &all,
     .n_in = 1,
     .n_out = 2,
     .value = largest,
     .in = {TIED}},
    {.primitive = "top_k", .label = "none", .params = &none, .n_in = 1, .n_out = 2, .value = largest, .in = {MATRIX}},
    {.primitive = "searchsorted",
     .label = "left",
     .params = &left,
     .n_in = 2,
     .value = places,
     .prepare = sort_first,
     .in = {TIED, INDICES(S2(3, 4), .low = -1, .high = 3)}},
    {.primitive = "searchsorted",
     .label = "right",
     .params = &right,
     .n_in = 2,
     .value = places,
     .prepare = sort_first,
     .in = {TIED, INDICES(S2(3, 4), .low = -1, .high = 3)}},
    {.primitive = "searchsorted",
     .label = "floats",
     .params = &left,
     .n_in = 2,
     .value = places,
     .prepare = sort_first,
     .in = {{.dtype = TOW_F64, S1(20)}, {.dtype = TOW_F64, S1(30)}}},
    {.primitive = "argmin", .params = &along_1, .n_in = 1, .value = first_minimum, .in = {MATRIX}},
    {.primitive = "argmin",
     .label = "of many ties",
     .params = &along_0,
     .n_in = 1,
     .value = first_minimum,
     .in = {INDICES(S2(9, 3))}},
    {.primitive = "gather_general",
     .label = "columns",
     .params = &take_columns,
     .n_in = 2,
     .value = columns,
     .in = {{.dtype = TOW_F64, S2(4, 3)}, INDICES(S2(5, 1))}},
    {.primitive = "gather_general",
     .label = "windows, clipped",
     .params = &take_squares,
     .n_in = 2,
     .value = squares,
     .in = {MATRIX, INDICES(S2(3, 2), .low = -2, .high = 6)}},
    {.primitive = "gather_general",
     .label = "along rows, filled",
     .params = &take_along,
     .n_in = 2,
     .value = along_rows,
     .in = {{.dtype = TOW_F64, S2(3, 5)}, INDICES(S3(3, 4, 1), .low = -1, .high = 5)}},
    {.primitive = "gather_general",
     .label = "along the middle axis",
     .params = &take_middle,
     .n_in = 2,
     .value = middle,
     .in = {{.dtype = TOW_F64, S3(2, 4, 3)}, INDICES(S2(6, 1), .low = 0, .high = 3)}},
    {.primitive = "scatter_general", .params = &rows, .n_in = 3, .value = scatter_set, .in = {UPDATES}},
    {.primitive = "scatter_general",
     .label = "clipped",
     .params = &rows_clipped,
     .n_in = 3,
     .value = scatter_set,
     .in = {UPDATES}},
    {.primitive = "scatter_general",
     .label = "unique",
     .params = &rows_unique,
     .n_in = 3,
     .value = scatter_set,
     .prepare = distinct,
     .in = {UPDATES}},
    {.primitive = "scatter_general_add", .params = &rows, .n_in = 3, .value = scatter_add, .in = {UPDATES}},
    {.primitive = "scatter_general_add",
     .label = "along rows",
     .params = &each_row,
     .n_in = 3,
     .value = add_along_rows,
     .in = {{.dtype = TOW_F64, S2(3, 5)}, INDICES(S3(3, 2, 1), .low = 0, .high = 4), {.dtype = TOW_F64, S2(3, 2)}}},
    {.primitive = "scatter_general_mul",
     .params = &rows_unique,
     .n_in = 3,
     .value = scatter_mul,
     .prepare = distinct,
     .in = {UPDATES}},
    {.primitive = "scatter_general_mul",
     .label = "constant factors, not unique",
     .params = &rows,
     .n_in = 3,
     .value = scatter_mul,
     .in = {{.dtype = TOW_F64, S2(5, 3)},
            {.dtype = TOW_I32, S2(4, 1), .low = -1, .high = 5},
            {.dtype = TOW_F64, S2(4, 3), .constant = true}}},
    {.primitive = "scatter_general_min", .params = &rows, .n_in = 3, .value = scatter_min, .in = {UPDATES}},
    {.primitive = "scatter_general_max",
     .label = "clipped",
     .params = &rows_clipped,
     .n_in = 3,
     .value = scatter_max,
     .in = {UPDATES}},
};

const property_table indexing_cases = TABLE(cases);
