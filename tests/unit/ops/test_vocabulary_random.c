/* tow/random.h against jax.random (tests/oracle/vocabulary_random.py), keys on the host, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/golden_cases.h"
#include "tests/unit/support/plain_context.h"

#define FUNCTION(name, expression)                                                                                     \
    static void record_##name(tow_trace *trace, const tow_value *in, tow_value *out, void *user)                       \
    {                                                                                                                  \
        (void)trace, (void)in, (void)user;                                                                             \
        out[0] = expression;                                                                                           \
    }
#define SHAPE      ((const int64_t[]){3, 7})
#define KEY        in[0]
#define OF(dtype)  tow_make_type(dtype, 2, SHAPE)
#define NO_WEIGHTS ((tow_value){0})
#define DIMS(...)  ((const int64_t[]){__VA_ARGS__})

#define DRAWS(X, name, dtype)                                                                                          \
    X(unit_##name, tow_random_uniform_of(KEY, OF(dtype), 0, 1))                                                        \
    X(uniform_##name, tow_random_uniform_of(KEY, OF(dtype), -2, 3))                                                    \
    X(uniform_odd_##name, tow_random_uniform_of(KEY, OF(dtype), 0.1, 0.73))                                            \
    X(normal_##name, tow_random_normal_of(KEY, OF(dtype)))                                                             \
    X(truncated_##name, tow_random_truncated_normal(KEY, OF(dtype), -2, 1))                                            \
    X(gumbel_##name, tow_random_gumbel(KEY, OF(dtype)))                                                                \
    X(exponential_##name, tow_random_exponential(KEY, OF(dtype)))                                                      \
    X(laplace_##name, tow_random_laplace(KEY, OF(dtype)))
#define FUNCTIONS(X)                                                                                                   \
    X(bits8, tow_random_bits_of(KEY, 8, 2, SHAPE))                                                                     \
    X(bits16, tow_random_bits_of(KEY, 16, 2, SHAPE))                                                                   \
    X(bits32, tow_random_bits_of(KEY, 32, 2, SHAPE))                                                                   \
    X(bits64, tow_random_bits_of(KEY, 64, 2, SHAPE))                                                                   \
    X(split, tow_random_split(KEY, 5))                                                                                 \
    X(fold_in, tow_random_fold_in(KEY, tow_scalar(trace, TOW_U32, 7)))                                                 \
    DRAWS(X, f32, TOW_F32)                                                                                             \
    DRAWS(X, f64, TOW_F64)                                                                                             \
    X(bernoulli, tow_random_bernoulli_of(KEY, in[1]))                                                                  \
    X(randint10_i32, tow_random_randint(KEY, OF(TOW_I32), 0, 10))                                                      \
    X(randint10_u32, tow_random_randint(KEY, OF(TOW_U32), 0, 10))                                                      \
    X(randint_none_i32, tow_random_randint(KEY, OF(TOW_I32), 5, 5))                                                    \
    X(randint_none_u32, tow_random_randint(KEY, OF(TOW_U32), 5, 5))                                                    \
    X(randint_signs, tow_random_randint(KEY, OF(TOW_I32), -5, 1000000))                                                \
    X(randint_all, tow_random_randint(KEY, OF(TOW_I32), INT32_MIN, (int64_t)INT32_MAX + 1))                            \
    X(randint_large, tow_random_randint(KEY, OF(TOW_U32), 3, (int64_t)UINT32_MAX - 6))                                 \
    X(categorical, tow_random_categorical(KEY, in[1], -1, 0, NULL))                                                    \
    X(categorical_many, tow_random_categorical(KEY, in[1], 1, 1, DIMS(6)))                                             \
    X(categorical_first, tow_random_categorical(KEY, in[1], 0, 0, NULL))                                               \
    X(permutation0, tow_random_permutation(KEY, 0))                                                                    \
    X(permutation1, tow_random_permutation(KEY, 1))                                                                    \
    X(permutation4, tow_random_permutation(KEY, 4))                                                                    \
    X(permutation10, tow_random_permutation(KEY, 10))                                                                  \
    X(permutation2000, tow_random_permutation(KEY, 2000))                                                              \
    X(shuffle, tow_random_shuffle(KEY, in[1], 1, false))                                                               \
    X(shuffle_each, tow_random_shuffle(KEY, in[1], -1, true))                                                          \
    X(shuffle_vector, tow_random_shuffle(KEY, in[1], 0, false))                                                        \
    X(choice, tow_random_choice(KEY, 10, 2, SHAPE, true, NO_WEIGHTS))                                                  \
    X(choice_once, tow_random_choice(KEY, 10, 2, DIMS(2, 3), false, NO_WEIGHTS))                                       \
    X(choice_by, tow_random_choice(KEY, 4, 2, SHAPE, true, in[1]))                                                     \
    X(choice_by_once, tow_random_choice(KEY, 4, 1, DIMS(3), false, in[1]))
FUNCTIONS(FUNCTION)

static void golden(void **state)
{
    (void)state;
#define X(name, expression) {#name, record_##name, 1},
    static const golden_function table[] = { FUNCTIONS(X) };
#undef X
    check_golden_cases(ctx, TOW_TEST_DATA "/oracle/golden/vocabulary_random.txt", table, sizeof table / sizeof *table);
}

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
    X(width, tow_random_bits_of(KEY, 7, 2, SHAPE), "expected 8, 16, 32 or 64 bits, found 7")                           \
    X(no_key, tow_random_permutation(in[1], 3), "expected a random key u32[2], found f32[4]")                          \
    X(no_shape, tow_random_bits_of(KEY, 64, 2, NULL), "expected a shape")                                              \
    X(rank, tow_random_bits_of(KEY, 64, 9, DIMS(1, 1, 1, 1, 1, 1, 1, 1, 1)), "expected a shape")                       \
    X(integers, tow_random_normal_of(KEY, OF(TOW_I32)), "it draws f32 or f64, found i32[3,7]")                         \
    X(floats, tow_random_randint(KEY, OF(TOW_F32), 0, 3), "it draws i32 or u32, found f32[3,7]")                       \
    X(bounds, tow_random_randint(KEY, OF(TOW_U32), -1, 3), "must be in [0, 4294967295]")                               \
    X(negative, tow_random_permutation(KEY, -1), "found -1")                                                           \
    X(nothing, tow_random_choice(KEY, 0, 2, SHAPE, true, NO_WEIGHTS), "cannot draw i32[3,7] from 0 places")            \
    X(too_many, tow_random_choice(KEY, 20, 2, SHAPE, false, NO_WEIGHTS), "without repetition")                         \
    X(weights, tow_random_choice(KEY, 5, 2, SHAPE, true, in[1]), "expected the probabilities of 5 places")             \
    X(prefix, tow_random_categorical(KEY, in[1], 0, 1, NULL), "expected axes in front")                                \
    X(axis, tow_random_categorical(KEY, in[1], 1, 0, NULL), "axis 1 is outside [-1, 1)")
#define X(name, expression, says) FUNCTION(refuse_##name, expression)
REFUSALS(X)
#undef X

static void refusals(void **state)
{
    (void)state;
#define X(name, expression, says) {record_refuse_##name, #name, says},
    static const struct {
        tow_function record;
        const char *name, *says;
    } cases[] = { REFUSALS(X) };
#undef X
    const tow_type types[] = {tow_make_type(TOW_U32, 1, DIMS(2)), tow_make_type(TOW_F32, 1, DIMS(4))};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow_graph *graph = NULL;
        tow_context_clear_error(ctx);
        assert_int_not_equal(tow_trace_function(ctx, cases[i].record, NULL, 2, types, NULL, 1, &graph), TOW_OK);
        if (!strstr(tow_context_error(ctx), cases[i].says))
            fail_msg("%s: expected '%s', found '%s'", cases[i].name, cases[i].says, tow_context_error(ctx));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),
        cmocka_unit_test(keys_on_the_host),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
