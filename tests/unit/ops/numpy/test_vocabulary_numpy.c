/* tow/numpy.h against jax.numpy (tests/oracle/vocabulary_numpy.py), the order of products of einsum, and what is
 * refused. Tests ops/products/einsum.c, numpy.c, numpy_shapes.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/golden_cases.h"
#include "tests/unit/support/plain_context.h"

#define AXES(...)                                                                                                      \
    (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (const int[]) { __VA_ARGS__ }
#define SIZES(...)    ((const int64_t[]){__VA_ARGS__})
#define X0            in[0]
#define SCALAR(op, y) tow_##op##_scalar(in[0], y)

#define FUNCTIONS(X)                                                                                                   \
    X(einsum_attention, 1, tow_einsum("bthd,bshd->bhts", 2, in))                                                       \
    X(einsum_matmul, 1, tow_einsum("ij,jk", 2, in))                                                                    \
    X(einsum_implicit, 1, tow_einsum("ba", 1, in))                                                                     \
    X(einsum_trace, 1, tow_einsum("ii", 1, in))                                                                        \
    X(einsum_diagonal, 1, tow_einsum("ii->i", 1, in))                                                                  \
    X(einsum_diagonals, 1, tow_einsum("iij,jik->ki", 2, in))                                                           \
    X(einsum_outer, 1, tow_einsum("i,j->ij", 2, in))                                                                   \
    X(einsum_hadamard, 1, tow_einsum("ij,ji->ij", 2, in))                                                              \
    X(einsum_sums, 1, tow_einsum("ij,k->", 2, in))                                                                     \
    X(einsum_chain, 1, tow_einsum("ab,bc,cd,de->ae", 4, in))                                                           \
    X(einsum_star, 1, tow_einsum("ai,bi,ci->abc", 3, in))                                                              \
    X(einsum_dots, 1, tow_einsum("...ij,...jk->...ik", 2, in))                                                         \
    X(einsum_dots_implicit, 1, tow_einsum("i...,...", 2, in))                                                          \
    X(einsum_dots_sum, 1, tow_einsum("...i->...", 1, in))                                                              \
    X(einsum_scalars, 1, tow_einsum(",->", 2, in))                                                                     \
    X(einsum_spaces, 1, tow_einsum(" i j , j -> i ", 2, in))                                                           \
    X(einsum_capitals, 1, tow_einsum("aB,Bc", 2, in))                                                                  \
    X(einsum_empty, 1, tow_einsum("ij,jk->ik", 2, in))                                                                 \
    X(einsum_transposed, 1, tow_einsum("abc->cab", 1, in))                                                             \
    X(where, 1, tow_where(in[0], in[1], in[2]))                                                                        \
    X(clip, 1, tow_clip(in[0], in[1], in[2]))                                                                          \
    X(floor_divide, 1, tow_floor_divide(in[0], in[1]))                                                                 \
    X(mod, 1, tow_mod(in[0], in[1]))                                                                                   \
    X(logaddexp, 1, tow_logaddexp(in[0], in[1]))                                                                       \
    X(isnan, 1, tow_isnan(in[0]))                                                                                      \
    X(isinf, 1, tow_isinf(in[0]))                                                                                      \
    X(reciprocal, 1, tow_reciprocal(in[0]))                                                                            \
    X(scalars, 8, SCALAR(sub, 2), SCALAR(rsub, 2), SCALAR(div, 4), SCALAR(rdiv, 4), SCALAR(pow, 1.5),                  \
      SCALAR(rpow, 1.5), SCALAR(max, 1), SCALAR(min, 1))                                                               \
    X(compare_scalars, 6, SCALAR(eq, 1), SCALAR(ne, 1), SCALAR(lt, 1), SCALAR(le, 1), SCALAR(gt, 1), SCALAR(ge, 1))    \
    X(keepdims, 5, tow_reduce_sum_keepdims(X0, AXES(1)), tow_reduce_max_keepdims(X0, AXES(0, -1)),                     \
      tow_reduce_min_keepdims(X0, 0, NULL), tow_reduce_prod_keepdims(X0, AXES(2)), tow_mean_keepdims(X0, AXES(1, 2)))  \
    X(var, 1, tow_var(X0, AXES(1), 0, false))                                                                          \
    X(var_kept, 1, tow_var(X0, AXES(0, 2), 1, true))                                                                   \
    X(std, 1, tow_std(X0, 0, NULL, 0, false))                                                                          \
    X(norm, 1, tow_norm(X0, AXES(-1), true))                                                                           \
    X(norm_of_all, 1, tow_norm(X0, 0, NULL, false))                                                                    \
    X(stack, 1, tow_stack(2, in, 1))                                                                                   \
    X(stack_last, 1, tow_stack(2, in, -1))                                                                             \
    X(split, 2, tow_split(X0, 2, -1, out))                                                                             \
    X(split_at, 4, tow_split_at(X0, 3, SIZES(1, 1, 3), 1, out))                                                        \
    X(tile, 1, tow_tile(X0, 3, SIZES(2, 1, 3)))                                                                        \
    X(tile_last, 1, tow_tile(X0, 1, SIZES(2)))                                                                         \
    X(tile_none, 1, tow_tile(X0, 2, SIZES(0, 2)))                                                                      \
    X(repeat, 1, tow_repeat(X0, 3, -1))                                                                                \
    X(roll, 3, tow_roll(X0, 1, 0), tow_roll(X0, -5, 1), tow_roll(X0, 8, -1))                                           \
    X(axes, 4, tow_swapaxes(X0, 0, -1), tow_moveaxis(X0, 0, 1), tow_moveaxis(X0, -1, 0), tow_ravel(X0))                \
    X(triangles, 5, tow_tril(X0, 0), tow_tril(X0, -1), tow_triu(X0, 0), tow_triu(X0, 2), tow_tril(X0, 1))              \
    X(one_hot, 2, tow_one_hot(X0, 4, -1, TOW_F32), tow_one_hot(X0, 4, 0, TOW_I32))                                     \
    X(constants, 4, tow_eye(trace, TOW_F32, 3, 4, 1), tow_arange(trace, TOW_I32, -2, 3, 5),                            \
      tow_linspace(trace, TOW_F32, -1, 2, 7), tow_linspace(trace, TOW_F32, 0, 1, 1))                                   \
    X(take0, 1, tow_take(in[0], in[1], 0))                                                                             \
    X(take_middle, 1, tow_take(in[0], in[1], 1))                                                                       \
    X(take_last, 1, tow_take(in[0], in[1], -1))                                                                        \
    X(take_along, 1, tow_take_along_axis(in[0], in[1], -1))                                                            \
    X(take_along0, 1, tow_take_along_axis(in[0], in[1], 0))
GOLDEN_TESTS(FUNCTIONS, "vocabulary_numpy.txt")

/* ---- errors ------------------------------------------------------------------------------------------------------ */

#define OF(dtype, ...)                                                                                                 \
    tow_full(trace,                                                                                                    \
             tow_make_type(dtype, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__}), 0)
#define M34 OF(TOW_F32, 3, 4)
#define EINSUM(text, ...)                                                                                              \
    tow_einsum(text, sizeof((tow_value[]){__VA_ARGS__}) / sizeof(tow_value), (tow_value[]){__VA_ARGS__})

#define REFUSALS(X)                                                                                                    \
    X(no_spec, EINSUM(NULL, M34), "expected labels")                                                                   \
    X(sizes, EINSUM("ij,jk", M34, M34), "label j has size 4 and, in operand 1, f32[3,4], size 3")                      \
    X(too_few_labels, EINSUM("i->i", M34), "operand 0 has 1 labels for its 2 axes")                                    \
    X(too_many_labels, EINSUM("ijk->i", M34), "operand 0 has 3 labels for its 2 axes")                                 \
    X(too_few_operands, EINSUM("ij,jk->ik", M34), "labels for more than the 1 operands")                               \
    X(too_many_operands, EINSUM("ij->ij", M34, M34), "has labels for 1 operands, found 2")                             \
    X(unknown_label, EINSUM("ij->ik", M34), "label k of the result is in no operand")                                  \
    X(label_twice, EINSUM("ij->ii", M34), "label i of the result is there twice")                                      \
    X(digits, EINSUM("i1->i", M34), "found '1'")                                                                       \
    X(dots_twice, EINSUM("......->", M34), "found '.'")                                                                \
    X(no_arrow, EINSUM("ij-ij", M34), "expected \"->\"")                                                               \
    X(behind, EINSUM("ij->i,j", M34), "expected the end")                                                              \
    X(dots, EINSUM("...ijk->i", M34), "has fewer axes than labels")                                                    \
    X(types, EINSUM("ij,ij->i", M34, OF(TOW_F64, 3, 4)), "one element type")                                           \
    X(stack_types, tow_stack(2, (tow_value[]){M34, OF(TOW_F32, 4, 3)}, 0), "operands must have one type")              \
    X(split_5, tow_split(M34, 5, 1, (tow_value[5]){{0}}), "which 5 parts do not divide")                               \
    X(split_0, tow_split(M34, 0, 1, (tow_value[5]){{0}}), "which 0 parts do not divide")                               \
    X(split_back, tow_split_at(M34, 2, SIZES(3, 1), 1, (tow_value[5]){{0}}), "positions must increase")                \
    X(tile_less, tow_tile(M34, 1, SIZES(-1)), "expected a number of copies")                                           \
    X(tile_null, tow_tile(M34, 1, NULL), "expected how often")                                                         \
    X(repeat_much, tow_repeat(M34, INT64_MAX, 1), "are too many")                                                      \
    X(tril_vector, tow_tril(OF(TOW_F32, 3), 0), "expected a matrix")                                                   \
    X(one_hot_floats, tow_one_hot(M34, 3, -1, TOW_F32), "expected integer indices")                                    \
    X(linspace_ints, tow_linspace(trace, TOW_I32, 0, 1, 3), "expected a float type")                                   \
    X(take_floats, tow_take(M34, M34, 0), "indices must be integers")                                                  \
    X(take_shapes, tow_take_along_axis(M34, OF(TOW_I32, 2, 4), 1), "must have one rank")                               \
    X(half, tow_sub_scalar(OF(TOW_I32, 3), 0.5), "the constant 0.5 is not a number of type i32")
REFUSAL_TEST(REFUSALS, 0, NULL)

/* A matrix times a matrix times a vector: from the right, n^2 twice instead of n^3. */
static void products_from_the_right(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_einsum("ij,jk,k->i", 3, in);
}

static void einsum_picks_the_cheaper_order(void **state)
{
    (void)state;
    const tow_type types[] = {tow_make_type(TOW_F32, 2, SIZES(64, 64)), tow_make_type(TOW_F32, 2, SIZES(64, 64)),
                              tow_make_type(TOW_F32, 1, SIZES(64))};
    tow_graph *graph = NULL;
    char text[1024];
    OK(tow_trace_function(ctx, products_from_the_right, NULL, 3, types, NULL, 1, &graph));
    tow_graph_text(graph, text, sizeof text);
    assert_non_null(strstr(text, "f32[64] = dot_general"));
    assert_null(strstr(text, "f32[64,64] = dot_general"));
    tow_graph_release(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),
        cmocka_unit_test(failing_allocations),
        cmocka_unit_test(refusals),
        cmocka_unit_test(einsum_picks_the_cheaper_order),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
