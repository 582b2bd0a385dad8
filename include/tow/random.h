/* Random numbers inside programs: pure functions of explicit keys u32[2], equal to jax.random with threefry 2x32 and
 * its partitionable layout. Bits, keys, integers, permutations and uniform numbers are equal bit for bit; what goes
 * through logarithms and the like agrees to the accuracy of those. One key draws at most 2^32 numbers and is used once:
 * split it (tow_random_split), or fold a number in (tow_random_fold_in). ops.h has the draws of f32 that layers use:
 * tow_random_bits, tow_random_uniform, tow_random_normal, tow_random_bernoulli. */
#ifndef TOW_RANDOM_H
#define TOW_RANDOM_H

#include "tow/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- keys on the host, to be given to programs as inputs --------------------------------------------------------- */

/* jax.random.PRNGKey: the low 32 bits of the seed. */
TOW_API void tow_random_host_key(uint64_t seed, uint32_t key[2]);
/* jax.random.fold_in. `result` may be `key`. */
TOW_API void tow_random_host_fold_in(const uint32_t key[2], uint32_t data, uint32_t result[2]);
/* jax.random.split: n keys, result: [n][2]. */
TOW_API void tow_random_host_split(const uint32_t key[2], uint32_t n, uint32_t *result);

/* ---- bits -------------------------------------------------------------------------------------------------------- */

/* width 8: u8[shape], 32: u32, 64: u64; 16: u32[shape] below 2^16, as there is no type of unsigned integers of 16
 * bits. */
TOW_API tow_value tow_random_bits_with(tow_value key, int width, int rank, const int64_t *shape);

/* ---- draws of `type`, of any float type unless said otherwise ---------------------------------------------------- */

/* From [low, high). */
TOW_API tow_value tow_random_uniform_with(tow_value key, tow_type type, double low, double high);
TOW_API tow_value tow_random_normal_with(tow_value key, tow_type type);
/* Normal numbers between low and high. */
TOW_API tow_value tow_random_truncated_normal(tow_value key, tow_type type, double low, double high);
/* bool of p's shape: true with the probabilities p (floats). */
TOW_API tow_value tow_random_bernoulli_with(tow_value key, tow_value p);
TOW_API tow_value tow_random_gumbel(tow_value key, tow_type type);
TOW_API tow_value tow_random_exponential(tow_value key, tow_type type);
TOW_API tow_value tow_random_laplace(tow_value key, tow_type type);
/* Whole numbers from [low, high) of any integer type; low everywhere if high <= low. Both bounds are numbers of the
 * type, and `high` may be one more (but no more than INT64_MAX). */
TOW_API tow_value tow_random_randint(tow_value key, tow_type type, int64_t low, int64_t high);
/* i32: places along the axis of the logits (floats), drawn with the probabilities softmax(logits). The axis vanishes;
 * the result has the axes `prefix` in front, over which draws are independent (rank 0: none). */
TOW_API tow_value tow_random_categorical(tow_value key, tow_value logits, int axis, int prefix_rank,
                                         const int64_t *prefix);

/* ---- orders ------------------------------------------------------------------------------------------------------ */

/* i32[n]: 0 .. n-1 in random order. */
TOW_API tow_value tow_random_permutation(tow_value key, int64_t n);
/* x in random order along the axis: all rows in one order, or each in its own if `independent`. */
TOW_API tow_value tow_random_shuffle(tow_value key, tow_value x, int axis, bool independent);
/* i32[shape]: places of [0, n), drawn with the probabilities p (floats [n]; null value: equal ones), again and again
 * or, without `replace`, each at most once. */
TOW_API tow_value tow_random_choice(tow_value key, int64_t n, int rank, const int64_t *shape, bool replace,
                                    tow_value p);

/* ---- the macros that add the source line (ops_lines.h) ----------------------------------------------------------- */
#ifndef TOW_NO_SOURCE_LINES
/* clang-format off */
#define tow_random_bits_with(x, ...) tow_random_bits_with(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_random_uniform_with(x, ...) tow_random_uniform_with(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_random_normal_with(x, ...) tow_random_normal_with(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_random_truncated_normal(x, ...) tow_random_truncated_normal(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_random_bernoulli_with(x, ...) tow_random_bernoulli_with(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_random_gumbel(x, ...) tow_random_gumbel(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_random_exponential(x, ...) tow_random_exponential(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_random_laplace(x, ...) tow_random_laplace(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_random_randint(x, ...) tow_random_randint(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_random_categorical(x, ...) tow_random_categorical(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_random_permutation(x, ...) tow_random_permutation(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_random_shuffle(x, ...) tow_random_shuffle(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_random_choice(x, ...) tow_random_choice(tow_at((x), TOW_HERE), __VA_ARGS__)
/* clang-format on */
#endif

#ifdef __cplusplus
}
#endif
#endif
