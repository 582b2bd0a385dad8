/* Helpers of the tests of collections: a layer with variables (as in tests/oracle/flax_collections.py), and comparing
 * lists of variables. One test program includes it once, after cmocka. */
#ifndef TOW_TESTS_RUNNING_LAYER_H
#define TOW_TESTS_RUNNING_LAYER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

#define TYPE(dtype, ...)                                                                                               \
    tow_make_type(dtype, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})
#define SCALAR(dtype) tow_make_type(dtype, 0, NULL)

/* The status, and every text in the message (NULL-terminated list). */
#define expect_error(found, status, ...) check_error(#found, found, status, (const char *const[]){__VA_ARGS__, NULL})
static inline void check_error(const char *call, tow_status found, tow_status expected, const char *const *texts)
{
    const char *message = tow_context_error(ctx);
    if (found != expected)
        fail_msg("%s: expected \"%s\", found \"%s\": %s", call, tow_status_text(expected), tow_status_text(found),
                 message);
    for (; *texts; texts++)
        if (!strstr(message, *texts)) fail_msg("%s: \"%s\" is not in: %s", call, *texts, message);
}

/* Subtracts a running mean of its inputs and counts its calls. */
typedef struct running {
    tow_module module;
    bool always;  /* writes even where it may not */
    double drops; /* rate of a dropout after the dense layer */
} running;

static void call_running(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                         tow_value *out)
{
    (void)n_in, (void)n_out;
    const running *m = (const running *)module;
    int64_t features = tow_value_type(in[0]).dims[1];
    tow_value mean = tow_variable(s, "batch_stats", "mean", TYPE(TOW_F32, features), tow_initializer_zeros());
    tow_value calls = tow_variable(s, "counters", "calls", SCALAR(TOW_I32), (tow_initializer){0});
    tow_dense dense = TOW_DENSE(.features = features);
    tow_dropout dropout = TOW_DROPOUT(.rate = m->drops);
    tow_value h = tow_apply(s, "dropout", &dropout, tow_apply(s, "dense", &dense, in[0]));
    h = tow_sub(h, tow_broadcast_to(mean, 2, tow_value_type(h).dims));
    tow_value shift = tow_mul_scalar(tow_convert(calls, TOW_F32), 0.125);
    out[0] = tow_tanh(tow_add(h, tow_broadcast_to(shift, 2, tow_value_type(h).dims)));
    tow_sow(s, "intermediates", "hidden", out[0]);
    tow_sow(s, "intermediates", "hidden", tow_mul_scalar(out[0], 2));
    if (m->always || tow_is_mutable(s, "batch_stats")) {
        tow_value now = tow_mean(in[0], 1, (int[]){0});
        tow_set_variable(s, "batch_stats", "mean", tow_add(tow_mul_scalar(mean, 0.75), tow_mul_scalar(now, 0.25)));
    }
    if (m->always || tow_is_mutable(s, "counters"))
        tow_set_variable(s, "counters", "calls", tow_add(calls, tow_full_like(calls, 1)));
}
static const tow_module_class running_class = {"running", call_running};
#define RUNNING(...) ((running){.module = {&running_class}, __VA_ARGS__})

/* A layer from a function. */
typedef struct bare {
    tow_module module;
} bare;

static const tow_type small = {.dtype = TOW_F32, .rank = 2, .dims = {2, 4}};

static inline tow_array *exact_fractions(tow_context *c, tow_type type)
{
    tow_array *array = NULL;
    if (tow_array_create(c, type, &array)) return NULL;
    float *data = tow_array_data(array);
    for (int64_t i = 0; i < tow_type_element_count(type); i++) data[i] = (float)((i * 7919) % 257 - 128) / 64;
    return array;
}

static inline tow_tensors *tensors_of(const tow_params *params)
{
    tow_tensors *tensors;
    OK(tow_tensors_create(ctx, &tensors));
    OK(tow_params_to_tensors(params, "", tensors));
    return tensors;
}

static inline void expect_same_tensors(const char *what, const tow_tensors *a, const tow_tensors *b)
{
    if (tow_tensors_count(a) != tow_tensors_count(b))
        fail_msg("%s: %zu tensors and %zu", what, tow_tensors_count(a), tow_tensors_count(b));
    for (size_t i = 0; i < tow_tensors_count(a); i++) {
        const char *name = tow_tensors_name(a, i);
        tow_array *x = tow_tensors_at(a, i), *y = tow_tensors_find(b, name);
        if (!y) fail_msg("%s: %s is missing", what, name);
        assert_true(tow_type_equal(tow_array_type(x), tow_array_type(y)));
        if (memcmp(tow_array_data(x), tow_array_data(y), tow_type_bytes(tow_array_type(x))) != 0)
            fail_msg("%s: %s differs", what, name);
    }
}

static inline void expect_same_list(const char *what, const tow_params *a, const tow_params *b)
{
    tow_tensors *x = tensors_of(a), *y = tensors_of(b);
    expect_same_tensors(what, x, y);
    tow_tensors_free(x);
    tow_tensors_free(y);
}

/* Every variable of one list gets the value that the other list has at its path. */
static inline void copy_matching(tow_params *to, const tow_params *from)
{
    for (size_t i = 0; i < tow_params_count(to); i++) {
        tow_array *source = tow_params_find(from, tow_params_path(to, i)), *target = tow_params_array(to, i);
        assert_non_null(source);
        memcpy(tow_array_data(target), tow_array_data(source), tow_type_bytes(tow_array_type(target)));
    }
}

static inline int32_t count_at(const tow_params *list, const char *path)
{
    tow_array *array;
    OK(tow_params_get(list, path, &array));
    int32_t count = *(int32_t *)tow_array_data(array);
    tow_array_release(array);
    return count;
}

/* ---- every allocation failing in turn ---------------------------------------------------------------------------- */

static inline void fail_in_turn(tow_status (*use)(tow_context *c))
{
    counting count;
    long n = 0;
    for (;; n += 1 + n / 200) {
        tow_context_options options = counting_options(&count, n);
        tow_context *c = NULL;
        tow_status status = tow_context_create(&options, &c);
        if (!status) status = use(c);
        bool failed = count.calls > n;
        if (status != (failed ? TOW_OUT_OF_MEMORY : TOW_OK))
            fail_msg("allocation %ld: %s: %s", n, tow_status_text(status), c ? tow_context_error(c) : "");
        tow_context_free(c);
        if (count.blocks != 0 || count.wrong_sizes != 0)
            fail_msg("allocation %ld: %ld blocks leak, %d wrong sizes", n, count.blocks, count.wrong_sizes);
        if (!failed) break;
    }
    assert_true(n > 200);
}

#endif
