/* tow/random.h against jax.random (tests/oracle/vocabulary_random.py), keys on the host, and what is refused.
 * Tests random.c, random_draws.c, random_host.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/golden_cases.h"
#include "tests/unit/support/plain_context.h"

#define SHAPE      ((const int64_t[]){3, 7})
#define KEY        in[0]
#define OF(dtype)  tow_make_type(dtype, 2, SHAPE)
#define NO_WEIGHTS ((tow_value){0})
#define DIMS(...)  ((const int64_t[]){__VA_ARGS__})

#define DRAWS(X, name, dtype)                                                                                          \
    X(unit_##name, 1, tow_random_uniform_with(KEY, OF(dtype), 0, 1))                                                   \
    X(uniform_##name, 1, tow_random_uniform_with(KEY, OF(dtype), -2, 3))                                               \
    X(uniform_odd_##name, 1, tow_random_uniform_with(KEY, OF(dtype), 0.1, 0.73))                                       \
    X(normal_##name, 1, tow_random_normal_with(KEY, OF(dtype)))                                                        \
    X(truncated_##name, 1, tow_random_truncated_normal(KEY, OF(dtype), -2, 1))                                         \
    X(gumbel_##name, 1, tow_random_gumbel(KEY, OF(dtype)))                                                             \
    X(exponential_##name, 1, tow_random_exponential(KEY, OF(dtype)))                                                   \
    X(laplace_##name, 1, tow_random_laplace(KEY, OF(dtype)))
#define FUNCTIONS(X)                                                                                                   \
    X(bits8, 1, tow_random_bits_with(KEY, 8, 2, SHAPE))                                                                \
    X(bits16, 1, tow_random_bits_with(KEY, 16, 2, SHAPE))                                                              \
    X(bits32, 1, tow_random_bits_with(KEY, 32, 2, SHAPE))                                                              \
    X(bits64, 1, tow_random_bits_with(KEY, 64, 2, SHAPE))                                                              \
    X(split, 1, tow_random_split(KEY, 5))                                                                              \
    X(fold_in, 1, tow_random_fold_in(KEY, tow_scalar(trace, TOW_U32, 7)))                                              \
    DRAWS(X, f32, TOW_F32)                                                                                             \
    DRAWS(X, bf16, TOW_BF16)                                                                                           \
    DRAWS(X, f16, TOW_F16)                                                                                             \
    DRAWS(X, f64, TOW_F64)                                                                                             \
    X(bernoulli, 1, tow_random_bernoulli_with(KEY, in[1]))                                                             \
    X(randint10_i32, 1, tow_random_randint(KEY, OF(TOW_I32), 0, 10))                                                   \
    X(randint_none_i32, 1, tow_random_randint(KEY, OF(TOW_I32), 5, 5))                                                 \
    X(randint10_u32, 1, tow_random_randint(KEY, OF(TOW_U32), 0, 10))                                                   \
    X(randint_none_u32, 1, tow_random_randint(KEY, OF(TOW_U32), 5, 5))                                                 \
    X(randint10_i8, 1, tow_random_randint(KEY, OF(TOW_I8), 0, 10))                                                     \
    X(randint_none_i8, 1, tow_random_randint(KEY, OF(TOW_I8), 5, 5))                                                   \
    X(randint10_u8, 1, tow_random_randint(KEY, OF(TOW_U8), 0, 10))                                                     \
    X(randint_none_u8, 1, tow_random_randint(KEY, OF(TOW_U8), 5, 5))                                                   \
    X(randint10_i64, 1, tow_random_randint(KEY, OF(TOW_I64), 0, 10))                                                   \
    X(randint_none_i64, 1, tow_random_randint(KEY, OF(TOW_I64), 5, 5))                                                 \
    X(randint10_u64, 1, tow_random_randint(KEY, OF(TOW_U64), 0, 10))                                                   \
    X(randint_none_u64, 1, tow_random_randint(KEY, OF(TOW_U64), 5, 5))                                                 \
    X(randint_all_i8, 1, tow_random_randint(KEY, OF(TOW_I8), INT8_MIN, INT8_MAX + 1))                                  \
    X(randint_all_u8, 1, tow_random_randint(KEY, OF(TOW_U8), 0, UINT8_MAX + 1))                                        \
    X(randint_most_u8, 1, tow_random_randint(KEY, OF(TOW_U8), 3, UINT8_MAX))                                           \
    X(randint_most_i64, 1, tow_random_randint(KEY, OF(TOW_I64), INT64_MIN, INT64_MAX))                                 \
    X(randint_odd_i64, 1, tow_random_randint(KEY, OF(TOW_I64), -INT64_C(1234567890123), INT64_C(7654321098765)))       \
    X(randint_most_u64, 1, tow_random_randint(KEY, OF(TOW_U64), 1, INT64_MAX))                                         \
    X(randint_signs, 1, tow_random_randint(KEY, OF(TOW_I32), -5, 1000000))                                             \
    X(randint_all, 1, tow_random_randint(KEY, OF(TOW_I32), INT32_MIN, (int64_t)INT32_MAX + 1))                         \
    X(randint_large, 1, tow_random_randint(KEY, OF(TOW_U32), 3, (int64_t)UINT32_MAX - 6))                              \
    X(categorical, 1, tow_random_categorical(KEY, in[1], -1, 0, NULL))                                                 \
    X(categorical_many, 1, tow_random_categorical(KEY, in[1], 1, 1, DIMS(6)))                                          \
    X(categorical_first, 1, tow_random_categorical(KEY, in[1], 0, 0, NULL))                                            \
    X(permutation0, 1, tow_random_permutation(KEY, 0))                                                                 \
    X(permutation1, 1, tow_random_permutation(KEY, 1))                                                                 \
    X(permutation4, 1, tow_random_permutation(KEY, 4))                                                                 \
    X(permutation10, 1, tow_random_permutation(KEY, 10))                                                               \
    X(permutation2000, 1, tow_random_permutation(KEY, 2000))                                                           \
    X(shuffle, 1, tow_random_shuffle(KEY, in[1], 1, false))                                                            \
    X(shuffle_each, 1, tow_random_shuffle(KEY, in[1], -1, true))                                                       \
    X(shuffle_vector, 1, tow_random_shuffle(KEY, in[1], 0, false))                                                     \
    X(choice, 1, tow_random_choice(KEY, 10, 2, SHAPE, true, NO_WEIGHTS))                                               \
    X(choice_once, 1, tow_random_choice(KEY, 10, 2, DIMS(2, 3), false, NO_WEIGHTS))                                    \
    X(choice_by, 1, tow_random_choice(KEY, 4, 2, SHAPE, true, in[1]))                                                  \
    X(choice_by_once, 1, tow_random_choice(KEY, 4, 1, DIMS(3), false, in[1]))
GOLDEN_TESTS(FUNCTIONS, "vocabulary_random.txt")

/* jax.random.split(PRNGKey(0)) and fold_in(PRNGKey(0), 7). */
static void keys_on_the_host(void **state)
{
    (void)state;
    uint32_t key[2], folded[2], keys[2][2];
    tow_random_host_key(((uint64_t)5 << 32) + 42, key);
    assert_int_equal(key[0], 0);
    assert_int_equal(key[1], 42);
    tow_random_host_key(0, key);
    tow_random_host_split(key, 2, keys[0]);
    tow_random_host_fold_in(key, 7, folded);
    const uint32_t expected[2][2] = {{1797259609u, 2579123966u}, {928981903u, 3453687069u}};
    assert_memory_equal(keys, expected, sizeof keys);
    assert_int_equal(folded[0], 2716826189u);
    assert_int_equal(folded[1], 292468403u);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

#define REFUSALS(X)                                                                                                    \
    X(width, tow_random_bits_with(KEY, 7, 2, SHAPE), "expected 8, 16, 32 or 64 bits, found 7")                         \
    X(no_key, tow_random_permutation(in[1], 3), "expected a random key u32[2], found f32[4]")                          \
    X(no_shape, tow_random_bits_with(KEY, 64, 2, NULL), "expected a shape")                                            \
    X(rank, tow_random_bits_with(KEY, 64, 9, DIMS(1, 1, 1, 1, 1, 1, 1, 1, 1)), "expected a shape")                     \
    X(integers, tow_random_normal_with(KEY, OF(TOW_I32)), "it draws floats, found i32[3,7]")                           \
    X(floats, tow_random_randint(KEY, OF(TOW_F32), 0, 3), "it draws integers, found f32[3,7]")                         \
    X(bounds, tow_random_randint(KEY, OF(TOW_U32), -1, 3), "must be in [0, 4294967295]")                               \
    X(bounds_i8, tow_random_randint(KEY, OF(TOW_I8), 0, 129), "must be in [-128, 127] and at most one more")           \
    X(bounds_u64, tow_random_randint(KEY, OF(TOW_U64), -1, 3), "must be in [0, 9223372036854775807], found -1")        \
    X(negative, tow_random_permutation(KEY, -1), "found -1")                                                           \
    X(nothing, tow_random_choice(KEY, 0, 2, SHAPE, true, NO_WEIGHTS), "cannot draw i32[3,7] from 0 places")            \
    X(too_many, tow_random_choice(KEY, 20, 2, SHAPE, false, NO_WEIGHTS), "without repetition")                         \
    X(weights, tow_random_choice(KEY, 5, 2, SHAPE, true, in[1]), "expected the probabilities of 5 places")             \
    X(prefix, tow_random_categorical(KEY, in[1], 0, 1, NULL), "expected axes in front")                                \
    X(axis, tow_random_categorical(KEY, in[1], 1, 0, NULL), "axis 1 is outside [-1, 1)")
static const tow_type refused_types[] = {{TOW_U32, 1, {2}}, {TOW_F32, 1, {4}}};
REFUSAL_TEST(REFUSALS, sizeof refused_types / sizeof *refused_types, refused_types)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),
        cmocka_unit_test(failing_allocations),
        cmocka_unit_test(keys_on_the_host),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
