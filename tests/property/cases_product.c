/* dot_general: every placement of batch and contracted axes against one plain loop over all index pairs.
 * Tests ops/products/dot.c, kernels/reference/dot.c, kernels/reference/gemm.c. */
#include "tests/property/property.h"

/* Index of element `position` of shape dims along `axis`. */
static int64_t coordinate(const property_input *x, int64_t position, int64_t axis)
{
    const property_axis a = property_axis_of(x, axis);
    return position / a.after % a.size;
}

static bool contains(const tow__ints *ints, int64_t axis)
{
    for (int i = 0; i < ints->n; i++)
        if (ints->v[i] == axis) return true;
    return false;
}

/* Adds x[i] y[j] to the result wherever batch and contracted coordinates agree. */
static void dot(const property_case *c, double *const *in, double *const *out)
{
    const tow__dot_params *p = c->params;
    const property_input *x = &c->in[0], *y = &c->in[1];
    for (int64_t i = 0; i < property_count(x); i++)
        for (int64_t j = 0; j < property_count(y); j++) {
            bool agree = true;
            int64_t at = 0;
            for (int k = 0; k < p->lhs_contract.n; k++)
                agree = agree && coordinate(x, i, p->lhs_contract.v[k]) == coordinate(y, j, p->rhs_contract.v[k]);
            for (int k = 0; k < p->lhs_batch.n; k++) {
                agree = agree && coordinate(x, i, p->lhs_batch.v[k]) == coordinate(y, j, p->rhs_batch.v[k]);
                at = at * x->dims[p->lhs_batch.v[k]] + coordinate(x, i, p->lhs_batch.v[k]);
            }
            for (int d = 0; d < x->rank; d++)
                if (!contains(&p->lhs_contract, d) && !contains(&p->lhs_batch, d))
                    at = at * x->dims[d] + coordinate(x, i, d);
            for (int d = 0; d < y->rank; d++)
                if (!contains(&p->rhs_contract, d) && !contains(&p->rhs_batch, d))
                    at = at * y->dims[d] + coordinate(y, j, d);
            if (agree) out[0][at] += in[0][i] * in[1][j];
        }
}

/* The group of row i, of sizes that are not negative; -1 behind the last one. */
static int64_t group_of(const property_case *c, const double *sizes, int64_t row)
{
    double end = 0;
    for (int64_t i = 0; i < c->in[2].dims[0]; i++)
        if ((double)row < (end += sizes[i] > 0 ? sizes[i] : 0)) return i;
    return -1;
}

static void ragged(const property_case *c, double *const *in, double *const *out)
{
    const int64_t m = c->in[0].dims[0], k = c->in[0].dims[1], n = c->in[1].dims[2];
    for (int64_t i = 0; i < m * n; i++) {
        const int64_t group = group_of(c, in[2], i / n);
        out[0][i] = 0;
        for (int64_t p = 0; p < k && group >= 0; p++)
            out[0][i] += in[0][i / n * k + p] * in[1][(group * k + p) * n + i % n];
    }
}

static void ragged_contract(const property_case *c, double *const *in, double *const *out)
{
    const int64_t m = c->in[0].dims[0], k = c->in[0].dims[1], n = c->in[1].dims[1], g = c->in[2].dims[0];
    for (int64_t i = 0; i < g * k * n; i++) {
        out[0][i] = 0;
        for (int64_t row = 0; row < m; row++)
            if (group_of(c, in[2], row) == i / n / k) out[0][i] += in[0][row * k + i / n % k] * in[1][row * n + i % n];
    }
}

static const tow__dot_params matrix = {.lhs_contract = INTS(1), .rhs_contract = INTS(0)};
static const tow__dot_params transposed_both = {.lhs_contract = INTS(0), .rhs_contract = INTS(1)};
static const tow__dot_params transposed_right = {.lhs_contract = INTS(1), .rhs_contract = INTS(1)};
static const tow__dot_params vector = {.lhs_contract = INTS(0), .rhs_contract = INTS(0)};
static const tow__dot_params outer = {.lhs_contract = {.n = 0}};
static const tow__dot_params batched = {
    .lhs_batch = INTS(0), .rhs_batch = INTS(0), .lhs_contract = INTS(2), .rhs_contract = INTS(1)};
static const tow__dot_params heads = {/* q [B, T, H, D], k [B, S, H, D] -> [B, H, T, S] */
                                      .lhs_batch = INTS(0, 2),
                                      .rhs_batch = INTS(0, 2),
                                      .lhs_contract = INTS(3),
                                      .rhs_contract = INTS(3)};
static const tow__dot_params two = {.lhs_contract = INTS(0, 2), .rhs_contract = INTS(1, 0)};
static const tow__dot_params swapped_batch = {
    .lhs_batch = INTS(1, 0), .rhs_batch = INTS(0, 2), .lhs_contract = INTS(2), .rhs_contract = INTS(1)};

#define DOT(text, p, ...)                                                                                              \
    {                                                                                                                  \
        .primitive = "dot_general", .label = text, .params = &p, .n_in = 2, .value = dot, .loose = 2, .in = {          \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
#define RAGGED(name, text, function, ...)                                                                              \
    {                                                                                                                  \
        .primitive = name, .label = text, .n_in = 3, .value = function, .loose = 2, .in = { __VA_ARGS__ }              \
    }
#define F .dtype = TOW_F64

static const property_case cases[] = {
    DOT("[m,k] [k,n]", matrix, {F, S2(3, 4)}, {F, S2(4, 5)}),
    DOT("[m,k] [k]", matrix, {F, S2(3, 4)}, {F, S1(4)}),
    DOT("[b,t,k] [k,n] through axis 1", matrix, {F, S3(2, 4, 3)}, {F, S2(4, 5)}),
    DOT("[k,m] [n,k]", transposed_both, {F, S2(4, 3)}, {F, S2(5, 4)}),
    DOT("[m,k] [n,k]", transposed_right, {F, S2(3, 4)}, {F, S2(5, 4)}),
    DOT("[k] [k]", vector, {F, S1(7)}, {F, S1(7)}),
    DOT("[k,m] [k,n]", vector, {F, S2(4, 3)}, {F, S2(4, 5)}),
    DOT("outer", outer, {F, S1(3)}, {F, S2(2, 2)}),
    DOT("scalars", outer, {F, S0}, {F, S0}),
    DOT("batched", batched, {F, S3(2, 3, 4)}, {F, S3(2, 4, 5)}),
    DOT("heads", heads, {F, S4(2, 3, 2, 4)}, {F, S4(2, 5, 2, 4)}),
    DOT("two contracted axes", two, {F, S3(3, 2, 4)}, {F, S3(4, 3, 2)}),
    DOT("batch axes in another order", swapped_batch, {F, S3(2, 3, 4)}, {F, S3(3, 4, 2)}),
    DOT("nothing to sum", matrix, {F, S2(3, 0)}, {F, S2(0, 2)}),
    RAGGED("ragged_dot", "rows behind the last group", ragged, {F, S2(9, 3)}, {F, S3(4, 3, 2)},
           {.dtype = TOW_I32, S1(4), .low = 0, .high = 2}),
    RAGGED("ragged_dot", "more rows than there are, sizes below 0", ragged, {F, S2(5, 3)}, {F, S3(3, 3, 2)},
           {.dtype = TOW_I32, S1(3), .low = -2, .high = 5}),
    RAGGED("ragged_dot", "no groups", ragged, {F, S2(5, 3)}, {F, S3(0, 3, 2)}, {.dtype = TOW_I32, S1(0)}),
    RAGGED("ragged_dot", "nothing to sum", ragged, {F, S2(5, 0)}, {F, S3(2, 0, 2)}, {.dtype = TOW_I32, S1(2)}),
    RAGGED("ragged_dot_contract", "rows behind the last group", ragged_contract, {F, S2(9, 3)}, {F, S2(9, 2)},
           {.dtype = TOW_I32, S1(4), .low = 0, .high = 2}),
    RAGGED("ragged_dot_contract", "more rows than there are, sizes below 0", ragged_contract, {F, S2(5, 3)},
           {F, S2(5, 2)}, {.dtype = TOW_I32, S1(3), .low = -2, .high = 5}),
    RAGGED("ragged_dot_contract", "no rows", ragged_contract, {F, S2(0, 3)}, {F, S2(0, 2)}, {.dtype = TOW_I32, S1(2)}),
    {.primitive = "ragged_dot",
     .label = "several blocks",
     .n_in = 3,
     .value = ragged,
     .loose = 8,
     .no_derivative = true,
     .in = {{F, S2(300, 40)}, {F, S3(3, 40, 17)}, {.dtype = TOW_I32, S1(3), .low = 60, .high = 140}}},
    {.primitive = "ragged_dot_contract",
     .label = "several blocks",
     .n_in = 3,
     .value = ragged_contract,
     .loose = 8,
     .no_derivative = true,
     .in = {{F, S2(200, 150)}, {F, S2(200, 9)}, {.dtype = TOW_I32, S1(3), .low = 30, .high = 90}}},
    {.primitive = "dot_general",
     .label = "beyond one panel",
     .params = &matrix,
     .n_in = 2,
     .value = dot,
     .loose = 8,
     .no_derivative = true,
     .in = {{F, S2(37, 129)}, {F, S2(129, 19)}}},
};

const property_table product_cases = TABLE(cases);
