/* Sorting, searching, gather and scatter against JAX (tests/oracle/vocabulary_indexing.py), and what is refused.
 * Tests gather_general.c, scatter_general.c, sort.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/golden_cases.h"
#include "tests/unit/support/plain_context.h"

/* ---- gathers and scatters of the script -------------------------------------------------------------------------- */

#define GATHER(sizes, mode, ...) tow_gather_general(in[0], in[1], &(tow_gather_dims){__VA_ARGS__}, sizes, mode, NULL)
#define SCATTER(kind, mode, unique, ...)                                                                               \
    tow_scatter_general(kind, in[0], in[1], in[2], &(tow_scatter_dims){__VA_ARGS__}, mode, unique)
#define SIZES(...) ((const int64_t[]){__VA_ARGS__})
#define ROWS_OF_X  .n_offset = 1, .offset_dims = {1}, .n_collapsed = 1, .n_index = 1
#define WINDOWS    .n_offset = 2, .offset_dims = {0, 2}, .n_index = 2, .start_index_map = {0, 1}
#define SWAPPED    .n_collapsed = 2, .collapsed_slice_dims = {0, 1}, .n_index = 2, .start_index_map = {1, 0}
#define BATCHED    .n_offset = 1, .offset_dims = {2}, .n_batching = 1, .n_index = 1, .start_index_map = {1}
#define TO_ROWS    .n_window = 1, .update_window_dims = {1}, .n_inserted = 1, .n_index = 1
#define TO_WINDOWS .n_window = 2, .update_window_dims = {0, 2}, .n_index = 2, .scatter_dims_to_operand_dims = {0, 1}
#define TO_CELLS   .n_inserted = 1, .n_index = 1
#define TO_BATCHES                                                                                                     \
    .n_inserted = 1, .inserted_window_dims = {1}, .n_batching = 1, .n_index = 1, .scatter_dims_to_operand_dims = {1}

#define GATHERS(X, name, mode)                                                                                         \
    X(gather_rows_##name, 1, GATHER(SIZES(1, 6), mode, ROWS_OF_X))                                                     \
    X(gather_windows_##name, 1, GATHER(SIZES(2, 2), mode, WINDOWS))                                                    \
    X(gather_swapped_##name, 1, GATHER(SIZES(1, 1), mode, SWAPPED))                                                    \
    X(gather_ints_##name, 1, GATHER(SIZES(1, 3), mode, ROWS_OF_X))
#define SCATTERS(X, name, kind, unique)                                                                                \
    X(scatter_rows_##name##_clip, 1, SCATTER(kind, TOW_INDEX_CLIP, false, TO_ROWS))                                    \
    X(scatter_rows_##name##_fill, 1, SCATTER(kind, TOW_INDEX_FILL, unique, TO_ROWS))                                   \
    X(scatter_windows_##name, 1, SCATTER(kind, TOW_INDEX_IN_BOUNDS, unique, TO_WINDOWS))                               \
    X(scatter_batched_##name, 1, SCATTER(kind, TOW_INDEX_CLIP, unique, TO_BATCHES))

#define FUNCTIONS(X)                                                                                                   \
    X(sort0, 1, tow_sort(in[0], 0, false))                                                                             \
    X(sort1, 1, tow_sort(in[0], -1, false))                                                                            \
    X(sort_down0, 1, tow_sort(in[0], 0, true))                                                                         \
    X(sort_down1, 1, tow_sort(in[0], 1, true))                                                                         \
    X(sort_middle, 1, tow_sort(in[0], -2, false))                                                                      \
    X(argsort0, 1, tow_argsort(in[0], 0, false))                                                                       \
    X(argsort1, 1, tow_argsort(in[0], 1, false))                                                                       \
    X(argsort_down0, 1, tow_argsort(in[0], 0, true))                                                                   \
    X(argsort_down1, 1, tow_argsort(in[0], -1, true))                                                                  \
    X(sort_pairs, 2, tow_sort_together(2, in, 1, 1, out))                                                              \
    X(sort_by_two, 2, tow_sort_together(2, in, 2, -1, out))                                                            \
    X(top_3, 2, tow_top_k(in[0], 3, -1, &out[0], &out[1]))                                                             \
    X(top_10, 2, tow_top_k(in[0], 10, 0, &out[0], &out[1]))                                                            \
    X(top_2_of_columns, 2, tow_top_k(in[0], 2, 0, &out[0], &out[1]))                                                   \
    X(argmin, 1, tow_argmin(in[0], 0))                                                                                 \
    X(argmin1, 1, tow_argmin(in[0], 1))                                                                                \
    X(searchsorted_left, 1, tow_searchsorted(in[0], in[1], false))                                                     \
    X(searchsorted_right, 1, tow_searchsorted(in[0], in[1], true))                                                     \
    GATHERS(X, in_bounds, TOW_INDEX_IN_BOUNDS)                                                                         \
    GATHERS(X, clip, TOW_INDEX_CLIP)                                                                                   \
    GATHERS(X, fill, TOW_INDEX_FILL)                                                                                   \
    X(gather_batched, 1, GATHER(SIZES(1, 2), TOW_INDEX_CLIP, BATCHED))                                                 \
    SCATTERS(X, set, TOW_SCATTER_SET, false)                                                                           \
    SCATTERS(X, add, TOW_SCATTER_ADD, false)                                                                           \
    SCATTERS(X, mul, TOW_SCATTER_MUL, true)                                                                            \
    SCATTERS(X, min, TOW_SCATTER_MIN, false)                                                                           \
    SCATTERS(X, max, TOW_SCATTER_MAX, false)                                                                           \
    X(scatter_cells_set, 1, SCATTER(TOW_SCATTER_SET, TOW_INDEX_FILL, false, TO_CELLS))                                 \
    X(scatter_cells_add, 1, SCATTER(TOW_SCATTER_ADD, TOW_INDEX_FILL, false, TO_CELLS))                                 \
    X(scatter_cells_min, 1, SCATTER(TOW_SCATTER_MIN, TOW_INDEX_FILL, false, TO_CELLS))                                 \
    X(scatter_cells_max, 1, SCATTER(TOW_SCATTER_MAX, TOW_INDEX_FILL, false, TO_CELLS))
GOLDEN_TESTS(FUNCTIONS, "vocabulary_indexing.txt")

/* ---- errors ------------------------------------------------------------------------------------------------------ */

#define OF(dtype, ...)                                                                                                 \
    tow_full(trace,                                                                                                    \
             tow_make_type(dtype, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__}), 0)
#define X56 OF(TOW_F32, 5, 6)
#define AT  OF(TOW_I32, 4, 1)
#define DIMS(...)                                                                                                      \
    &(tow_gather_dims) { __VA_ARGS__ }
#define TAKE(x, at, sizes, mode, ...) tow_gather_general(x, at, DIMS(__VA_ARGS__), sizes, mode, NULL)
#define PUT(u, ...)                                                                                                    \
    tow_scatter_general(TOW_SCATTER_ADD, X56, AT, u, &(tow_scatter_dims){__VA_ARGS__}, TOW_INDEX_FILL, false)

#define REFUSALS(X)                                                                                                    \
    X(sort_axis, tow_sort(X56, 2, false), "axis 2 is outside [-2, 2)")                                                 \
    X(sort_scalar, tow_sort(tow_scalar(trace, TOW_F32, 1), 0, false), "axis 0 is outside [0, 0)")                      \
    X(sort_keys, tow_sort_together(1, (tow_value[]){X56}, 2, 0, out), "num_keys must be in [1, 1], found 2")           \
    X(sort_no_keys, tow_sort_together(1, (tow_value[]){X56}, 0, 0, out), "num_keys must be in [1, 1], found 0")        \
    X(sort_shapes, tow_sort_together(2, (tow_value[]){X56, AT}, 1, 0, (tow_value[2]){{0}}), "must have one shape")     \
    X(top_7_of_6, tow_top_k(X56, 7, -1, NULL, NULL), "k must be in [0, 6], the size of axis 1, found 7")               \
    X(top_of_bools, tow_top_k(OF(TOW_BOOL, 3), 1, 0, NULL, NULL), "operand 0 must be of type f32, f64, i32, u32")      \
    X(argmin_empty, tow_argmin(OF(TOW_F32, 0), 0), "must have 1 to 2^31 - 1 elements")                                 \
    X(search_matrix, tow_searchsorted(X56, X56, false), "operand 0 must have rank 1")                                  \
    X(search_types, tow_searchsorted(OF(TOW_F32, 3), OF(TOW_I32, 3), false), "one element type")                       \
    X(gather_null, tow_gather_general(X56, AT, NULL, SIZES(1, 6), TOW_INDEX_CLIP, NULL), "expected dimension numbers") \
    X(gather_floats, TAKE(X56, X56, SIZES(1, 6), TOW_INDEX_CLIP, ROWS_OF_X), "operand 1 must be of type i32, u32")     \
    X(gather_vectors, TAKE(X56, OF(TOW_I32, 4, 2), SIZES(1, 6), TOW_INDEX_CLIP, ROWS_OF_X), "need so many axes")       \
    X(gather_sizes, TAKE(X56, AT, SIZES(1, 7), TOW_INDEX_CLIP, ROWS_OF_X), "a slice of size 7 does not fit")           \
    X(gather_collapsed, TAKE(X56, AT, SIZES(2, 6), TOW_INDEX_CLIP, ROWS_OF_X), "its slice size must be 1, found 2")    \
    X(gather_offset,                                                                                                   \
      TAKE(X56, AT, SIZES(1, 6), TOW_INDEX_CLIP, .n_offset = 1, .offset_dims = {2}, .n_collapsed = 1, .n_index = 1),   \
      "offset_dims: axis 2 is outside [0, 2)")                                                                         \
    X(gather_axes, TAKE(X56, AT, SIZES(1, 6), TOW_INDEX_CLIP, .n_collapsed = 1, .n_index = 1),                         \
      "must be in the window")                                                                                         \
    X(gather_batching,                                                                                                 \
      TAKE(X56, OF(TOW_I32, 4, 1), SIZES(1, 1), TOW_INDEX_CLIP, .n_batching = 1, .n_collapsed = 1,                     \
           .collapsed_slice_dims = {1}, .n_index = 1, .start_index_map = {1}),                                         \
      "equal sizes")                                                                                                   \
    X(gather_mode, TAKE(X56, AT, SIZES(1, 6), (tow_index_mode)9, ROWS_OF_X), "a mode of tow_index_mode")               \
    X(gather_too_many, TAKE(X56, AT, SIZES(1, 6), TOW_INDEX_CLIP, .n_offset = 9), "expected 0 to 8 axes")              \
    X(gather_fill,                                                                                                     \
      tow_gather_general(OF(TOW_I32, 5, 6), AT, DIMS(ROWS_OF_X), SIZES(1, 6), TOW_INDEX_FILL, &(double){0.5}),         \
      "fill_value 0.5 is not a number of type i32")                                                                    \
    X(scatter_shape, PUT(OF(TOW_F32, 3, 6), TO_ROWS), "both must have one size")                                       \
    X(scatter_window, PUT(OF(TOW_F32, 4, 7), TO_ROWS), "does not fit into axis 1")                                     \
    X(scatter_rank, PUT(OF(TOW_F32, 4), TO_ROWS), "operand 2 must have rank 2")                                        \
    X(scatter_types, PUT(OF(TOW_F64, 4, 6), TO_ROWS), "one element type")                                              \
    X(scatter_twice,                                                                                                   \
      PUT(OF(TOW_F32, 4, 6), .n_window = 1, .update_window_dims = {1}, .n_inserted = 1, .n_index = 1, .n_batching = 0, \
          .scatter_dims_to_operand_dims = {2}),                                                                        \
      "axis 2 is outside [0, 2)")
REFUSAL_TEST(REFUSALS, 0, NULL)

static void shared_product(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    tow_value y =
        tow_scatter_general(TOW_SCATTER_MUL, in[0], in[1], in[2], &(tow_scatter_dims){TO_ROWS}, TOW_INDEX_FILL, false);
    out[0] = tow_reduce_sum(y, 0, NULL);
}

static void products_need_unique_indices(void **state)
{
    (void)state;
    const tow_type types[] = {tow_make_type(TOW_F32, 2, SIZES(5, 6)), tow_make_type(TOW_I32, 2, SIZES(4, 1)),
                              tow_make_type(TOW_F32, 2, SIZES(4, 6))};
    tow_graph *graph = NULL, *gradient = NULL;
    const size_t x = 0, updates = 2;
    OK(tow_trace_function(ctx, shared_product, NULL, 3, types, NULL, 1, &graph));
    OK(tow_grad(graph, 1, &x, false, &gradient));
    tow_graph_release(gradient);
    gradient = NULL;
    assert_int_equal(tow_grad(graph, 1, &updates, false, &gradient), TOW_UNSUPPORTED);
    assert_non_null(strstr(tow_context_error(ctx), "needs unique_indices"));
    tow_graph_release(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),
        cmocka_unit_test(failing_allocations),
        cmocka_unit_test(refusals),
        cmocka_unit_test(products_need_unique_indices),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
