/* sort, top_k, searchsorted, gather_general and the scatters: the fast kernels against their plain twins, bit for bit,
 * in all layouts and for so many elements that threads share them.
 * Tests index.c, windows.c. */
#include "tests/unit/support/kernels.h"

/* Numbers with ties, zeros of both signs, infinities and NaNs. */
static double odd_number(void)
{
    static const double odd[] = {0.0, -0.0, (double)INFINITY, -(double)INFINITY, (double)NAN, 1};
    const uint32_t bits = random_bits();
    return bits % 4 ? floor(random_unit() * 50) : odd[bits / 4 % 6];
}

static tow__buffer operand(tow_dtype dtype, int rank, const int64_t *dims, layout how)
{
    tow__buffer b = make(dtype, rank, dims, how);
    for (int64_t i = 0; i < count_of(&b); i++) {
        const double x = odd_number();
        const bool is_float = dtype == TOW_F32 || dtype == TOW_F64;
        set(&b, i, is_float ? x : isfinite(x) ? (dtype == TOW_I32 ? x : fabs(x)) : 7);
    }
    return b;
}

static tow__buffer places(int rank, const int64_t *dims, int64_t low, int64_t high, layout how)
{
    tow__buffer b = make(TOW_I32, rank, dims, how);
    for (int64_t i = 0; i < count_of(&b); i++) set(&b, i, (double)(low + random_bits() % (uint32_t)(high - low + 1)));
    return b;
}

/* Runs the kernel on one thread and on two and its twin; results must have the same bits. */
static void expect_twins(const char *name, size_t n_in, const tow__buffer *in, size_t n_out, const tow__buffer *out,
                         const void *params)
{
    tow__buffer found[4], wanted[4];
    for (size_t i = 0; i < n_out; i++) {
        found[i] = make(out[i].dtype, out[i].rank, out[i].dims, ROW_MAJOR);
        wanted[i] = make(out[i].dtype, out[i].rank, out[i].dims, ROW_MAJOR);
    }
    run_kernel(tow__kernel_find(name, in[0].dtype), n_in, in, n_out, found, params);
    run_once(tow__kernel_reference(name, in[0].dtype), n_in, in, n_out, wanted, params, 1);
    for (size_t i = 0; i < n_out; i++) assert_equal_bits(&found[i], &wanted[i], name);
}

static void sorts(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{3, 700, 2}, {40, 24, 1}, {1, 1, 3}, {5, 0, 2}, {2, 40000, 1}};
    for (size_t t = 0; t < 5; t++)
        for (size_t s = 0; s < 5; s++)
            for (layout how = ROW_MAJOR; how < LAYOUTS; how++) {
                const tow__sort_params p = {.axis = 1, .num_keys = 1 + (int64_t)(s % 2)};
                const tow__buffer in[] = {operand(all_dtypes[t], 3, shapes[s], how),
                                          operand(all_dtypes[(t + 3) % 5], 3, shapes[s], how),
                                          operand(TOW_F32, 3, shapes[s], ROW_MAJOR)};
                expect_twins("sort", 3, in, 3, in, &p);
                if (all_dtypes[t] != TOW_BOOL && shapes[s][1] > 0) {
                    const tow__top_k_params k = {.axis = 1, .k = (shapes[s][1] + 1) / 2};
                    tow__buffer out[2] = {in[0], in[0]};
                    out[0].dims[1] = out[1].dims[1] = k.k;
                    out[1].dtype = TOW_I32;
                    expect_twins("top_k", 1, in, 2, out, &k);
                }
                release_all();
            }
}

static void windows(void **state)
{
    (void)state;
    static const char *const scatters[] = {"scatter_general", "scatter_general_add", "scatter_general_mul",
                                           "scatter_general_min", "scatter_general_max"};
    static const int64_t x_dims[] = {6, 9, 200}, at_dims[] = {5, 6, 40, 2}, few_dims[] = {1, 6, 3, 2};
    for (size_t t = 0; t < 5; t++)
        for (layout how = ROW_MAJOR; how < REPEATED; how++)
            for (int clip = 0; clip < 2; clip++)
                for (int few = 0; few < 2; few++) {
                    /* axis 0 is a batching axis; windows are 2 by 30 in the others */
                    const tow__gather_params g = {.offset_dims = {2, {0, 3}},
                                                  .operand_batching_dims = {1, {0}},
                                                  .start_indices_batching_dims = {1, {1}},
                                                  .start_index_map = {2, {2, 1}},
                                                  .slice_sizes = {3, {1, 2, 30}},
                                                  .clip = clip,
                                                  .fill = !clip,
                                                  .fill_value = 1};
                    const tow__scatter_params p = {.update_window_dims = g.offset_dims,
                                                   .operand_batching_dims = g.operand_batching_dims,
                                                   .scatter_indices_batching_dims = g.start_indices_batching_dims,
                                                   .scatter_dims_to_operand_dims = g.start_index_map,
                                                   .clip = clip};
                    const int64_t *at = few ? few_dims : at_dims, u_dims[] = {2, at[0], 6, 30, at[2]};
                    const tow__buffer in[] = {operand(all_dtypes[t], 3, x_dims, how), places(4, at, -2, 180, how),
                                              operand(all_dtypes[t], 5, u_dims, how)};
                    expect_twins("gather_general", 2, in, 1, &in[2], &g);
                    /* Sums and products of finite numbers: which NaN infinities leave is the compiler's choice. */
                    const tow__buffer finite[] = {random_operand(all_dtypes[t], 3, x_dims, how), in[1],
                                                  random_operand(all_dtypes[t], 5, u_dims, how)};
                    for (size_t k = 0; k < 5; k++) {
                        const tow__buffer *operands = k == 1 || k == 2 ? finite : in;
                        if (k == 0 || all_dtypes[t] != TOW_BOOL) expect_twins(scatters[k], 3, operands, 1, in, &p);
                    }
                    release_all();
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sorts),
        cmocka_unit_test(windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
