/* Helpers of the tests of lifted transforms: the Cell of tests/oracle/flax_lift.py and what a model computes in two
 * calls. A test program includes it once, after cmocka. */
#ifndef TOW_TESTS_LIFT_CELL_H
#define TOW_TESTS_LIFT_CELL_H

#include <math.h>

#include "tests/unit/support/elements.h"
#include "tests/unit/support/running_layer.h"
#include "tests/unit/support/shape_text.h"

/* (x [, u]) -> (y, 2 y, key): a Dense, a running mean, a counter of calls, a random key. */
static inline void call_cell(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                             tow_value *out)
{
    (void)module;
    tow_type type = tow_value_type(in[0]);
    int64_t features = type.rank > 0 ? type.dims[type.rank - 1] : 1; /* rank 0: after an error */
    tow_value mean = tow_variable(s, "batch_stats", "mean", TYPE(TOW_F32, features), tow_initializer_zeros());
    tow_value calls = tow_variable(s, "counters", "calls", SCALAR(TOW_I32), (tow_initializer){0});
    tow_dense dense = TOW_DENSE(.features = features, .bias_init = tow_initializer_normal(0.5));
    tow_value h = tow_apply(s, "dense", &dense, in[0]);
    if (n_in > 1) h = tow_add(h, in[1]);
    tow_value key = tow_make_rng(s, "noise");
    h = tow_sub(h, tow_broadcast_to(mean, type.rank, type.dims));
    tow_value shift = tow_mul_scalar(tow_convert(calls, TOW_F32), 0.125);
    out[0] = tow_tanh(tow_add(h, tow_broadcast_to(shift, type.rank, type.dims)));
    if (n_out > 1) out[1] = tow_mul_scalar(out[0], 2);
    if (n_out > 2) out[2] = key;
    if (!tow_is_mutable(s, "batch_stats")) return;
    int axes[TOW_MAX_RANK];
    for (int i = 0; i < type.rank - 1; i++) axes[i] = i;
    tow_value now = tow_mean(in[0], type.rank - 1, axes);
    tow_set_variable(s, "batch_stats", "mean", tow_add(tow_mul_scalar(mean, 0.75), tow_mul_scalar(now, 0.25)));
    tow_set_variable(s, "counters", "calls", tow_add(calls, tow_full_like(calls, 1)));
}
static const tow_module_class cell_class = {"cell", call_cell};
static const bare cell = {{&cell_class}};

/* A layer under the name "stack". */
typedef struct stack {
    tow_module module;
    const tow_module *inner;
} stack;
static inline void call_stack(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                              tow_value *out)
{
    tow_apply_module_n(s, "stack", ((const stack *)module)->inner, n_in, in, n_out, out);
}
static const tow_module_class stack_class = {"stack", call_stack};
#define STACK(layer) ((stack){{&stack_class}, TOW_MODULE(layer)})

/* The sum of the float outputs, each times exact fractions; aux: the outputs. */
static inline void fraction_loss(tow_trace *t, const tow_value *outputs, const tow_value *extra, tow_value *loss,
                                 tow_value *aux, void *user)
{
    (void)extra;
    const size_t n = *(const size_t *)user;
    for (size_t i = 0; i < n; i++) {
        tow_type type = tow_value_type(outputs[i]);
        aux[i] = outputs[i];
        if (!tow_dtype_is_float(type.dtype)) continue;
        tow_array *weights = exact_fractions(ctx, type);
        tow_value w = tow_constant(t, weights), sum = tow_reduce_sum(tow_mul(outputs[i], w), 0, NULL);
        *loss = i == 0 ? sum : tow_add(*loss, sum);
        tow_array_release(weights);
    }
}

enum {
    LIFT_ARRAYS = 128
};

/* The results of the second of two calls; state: after it. */
typedef struct lift_run {
    tow_params *params, *state;
    size_t n_in, n_out;
    tow_array *outputs[4], *in_grads[2], *grads[LIFT_ARRAYS];
} lift_run;

static inline void free_lift_run(lift_run *r)
{
    for (size_t i = 0; i < 4; i++) tow_array_release(r->outputs[i]);
    for (size_t i = 0; i < 2; i++) tow_array_release(r->in_grads[i]);
    for (size_t i = 0; i < LIFT_ARRAYS; i++) tow_array_release(r->grads[i]);
    tow_params_free(r->params);
    tow_params_free(r->state);
    *r = (lift_run){0};
}

/* Inputs of exact fractions, seed 3, stream "noise" of PRNGKey(5). params, state: NULL, or taken as they are at the
 * start. */
static inline void run_lifted(lift_run *r, const tow_module *model, size_t n_in, const tow_type *types, size_t n_out,
                              const tow_model_options *more)
{
    static const char *const every[] = {TOW_EVERY_COLLECTION, NULL}, *const streams[] = {"noise", NULL};
    tow_model_options options = more ? *more : TOW_MODEL_OPTIONS();
    *r = (lift_run){.n_in = n_in, .n_out = n_out};
    options.n_outputs = n_out;
    options.streams = streams;
    OK(tow_model_init_with(ctx, model, 3, n_in, types, &options, &r->params, &r->state));
    const size_t n = tow_params_count(r->params), n_state = tow_params_count(r->state);
    options.state = r->state;
    options.mutable_collections = n_state ? every : NULL;
    tow_params *updates = NULL;
    options.updates = &updates;
    tow_graph *loss, *gradient;
    OK(tow_model_loss_graph(model, r->params, n_in, types, 0, NULL, fraction_loss, &n_out, n_out, &options, &loss));
    OK(tow_graph_check(loss));
    size_t wrt[LIFT_ARRAYS], n_wrt = 0;
    for (size_t i = 0; i < n; i++) wrt[n_wrt++] = i;
    for (size_t i = 0; i < n_in; i++) wrt[n_wrt++] = n + n_state + i;
    OK(tow_value_and_grad(loss, n_wrt, wrt, true, &gradient));
    OK(tow_graph_check(gradient));
    tow_program *program;
    OK(tow_compile(ctx, gradient, NULL, &program));
    tow_array *in[LIFT_ARRAYS], *out[LIFT_ARRAYS], *key, *x[2];
    assert_true(n + n_state + n_in + n_out + 2 <= LIFT_ARRAYS && tow_graph_output_count(gradient) <= LIFT_ARRAYS);
    OK(tow_array_from_data(ctx, TYPE(TOW_U32, 2), (uint32_t[]){0, 5}, &key));
    size_t at = 0;
    for (size_t i = 0; i < n; i++) in[at++] = tow_params_array(r->params, i);
    for (size_t i = 0; i < n_state; i++) in[at++] = tow_params_array(r->state, i);
    for (size_t i = 0; i < n_in; i++) in[at++] = x[i] = exact_fractions(ctx, types[i]);
    in[at++] = key;
    for (size_t i = 0; i < tow_graph_output_count(gradient); i++)
        OK(tow_array_create(ctx, tow_graph_output_type(gradient, i), &out[i]));
    for (int call = 0; call < 2; call++) {
        OK(tow_program_run(program, in, out));
        for (size_t i = 0; i < n_state; i++)
            memcpy(tow_array_data(in[n + i]), tow_array_data(out[1 + n_out + i]),
                   tow_type_bytes(tow_array_type(in[n + i])));
    }
    for (size_t i = 0; i < n_in; i++) tow_array_release(x[i]);
    tow_array_release(key);
    tow_array_release(out[0]);
    for (size_t i = 0; i < n_out; i++) r->outputs[i] = out[1 + i];
    for (size_t i = 0; i < n_state; i++) tow_array_release(out[1 + n_out + i]);
    for (size_t i = 0; i < n; i++) r->grads[i] = out[1 + n_out + n_state + i];
    for (size_t i = 0; i < n_in; i++) r->in_grads[i] = out[1 + n_out + n_state + n + i];
    tow_params_free(updates);
    tow_program_free(program);
    tow_graph_release(loss);
    tow_graph_release(gradient);
}

/* "stack/{}/dense/kernel" -> "stack/dense/kernel". */
static inline void without_iterations(const char *path, char *plain)
{
    for (size_t n; *path; path += n + (path[n] == '/')) {
        n = strcspn(path, "/");
        if (path[0] == '{') continue;
        memcpy(plain, path, n);
        plain += n;
        if (path[n]) *plain++ = '/';
    }
    *plain = 0;
}

static inline tow_array *array_at(const tow_params *list, const char *plain, size_t *index)
{
    char path[128];
    for (size_t i = 0; i < tow_params_count(list); i++) {
        without_iterations(tow_params_path(list, i), path);
        if (index) *index = i;
        if (strcmp(path, plain) == 0) return tow_params_array(list, i);
    }
    return NULL;
}

/* The array that a line of the golden file is about. */
static inline tow_array *lifted_result(const lift_run *r, const char *what)
{
    size_t index;
    if (strcmp(what, "output") == 0) return r->outputs[0];
    if (strcmp(what, "ys0") == 0) return r->outputs[1];
    if (strcmp(what, "keys") == 0) return r->outputs[2];
    if (strcmp(what, "input") == 0) return r->in_grads[0];
    if (strncmp(what, "param/", 6) == 0) return array_at(r->params, what + 6, NULL);
    if (strncmp(what, "state/", 6) == 0) return array_at(r->state, what + 6, NULL);
    return strncmp(what, "grad/", 5) == 0 && array_at(r->params, what + 5, &index) ? r->grads[index] : NULL;
}

/* The same parameters, variables, outputs and gradients, to the bit; gradients of parameters where both models hold
 * them alike. */
static inline void expect_same_lift(const char *what, const lift_run *a, const lift_run *b)
{
    expect_same_list(what, a->params, b->params);
    expect_same_list(what, a->state, b->state);
    for (size_t i = 0; i < a->n_out; i++)
        if (memcmp(tow_array_data(a->outputs[i]), tow_array_data(b->outputs[i]),
                   tow_type_bytes(tow_array_type(a->outputs[i]))))
            fail_msg("%s: output %zu", what, i);
    for (size_t i = 0; i < a->n_in; i++)
        if (memcmp(tow_array_data(a->in_grads[i]), tow_array_data(b->in_grads[i]),
                   tow_type_bytes(tow_array_type(a->in_grads[i]))))
            fail_msg("%s: gradient of input %zu", what, i);
    const size_t n = tow_params_count(a->params) == tow_params_count(b->params) ? tow_params_count(a->params) : 0;
    for (size_t i = 0; i < n; i++)
        if (memcmp(tow_array_data(a->grads[i]), tow_array_data(b->grads[i]),
                   tow_type_bytes(tow_array_type(a->grads[i]))))
            fail_msg("%s: gradient of %s", what, tow_params_path(a->params, i));
}

#endif
