/* Choices and loops that the data decide against JAX (tests/oracle/control.py): values, and gradients under each
 * policy. Tests regions/cond*.c, regions/control*.c, regions/fori*.c, regions/loop*.c, regions/while*.c, loops.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/golden_cases.h"
#include "tests/unit/support/plain_context.h"

/* The functions of a case are recorded by name: F(name) { ... } gets trace, in, out and user, which is what the
 * function around it handed over: `outer`. */
#define F(name) static void name(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
#define UNUSED  (void)trace, (void)in, (void)user /* as not all functions need all */

static tow_value outer(void *user, int i) { return ((const tow_value *)user)[i]; }
static tow_value number(tow_value like, double x) { return tow_scalar(like.trace, tow_value_type(like).dtype, x); }
static tow_value sum(tow_value x) { return tow_reduce_sum(x, 0, NULL); }
static tow_value as_float(tow_value i, tow_value like) { return tow_convert(i, tow_value_type(like).dtype); }

/* ---- choices ----------------------------------------------------------------------------------------------------- */

/* user: x, w */
F(sin_product) { UNUSED, out[0] = tow_sin(tow_dot(outer(user, 0), outer(user, 1))); }
F(twice_exp) { UNUSED, out[0] = tow_mul_scalar(tow_exp(outer(user, 0)), 2); }
F(cos_product) { UNUSED, out[0] = tow_dot(tow_checkpoint_name(tow_cos(outer(user, 0)), "cosine"), outer(user, 1)); }
F(switch3)
{
    tow_value values[] = {in[1], in[2]};
    const tow_branch branches[] = {{sin_product, values}, {twice_exp, values}, {cos_product, values}};
    (void)user;
    tow_switch_function(trace, in[0], 3, branches, 0, NULL, 1, out);
}

F(product_first) { UNUSED, out[0] = tow_mul(outer(user, 1), outer(user, 2)), out[1] = outer(user, 1); }
F(quotient_first) { UNUSED, out[0] = tow_div(tow_tanh(outer(user, 1)), outer(user, 2)), out[1] = outer(user, 2); }
F(cond_number)
{
    (void)user;
    tow_cond_function(trace, in[0], product_first, quotient_first, (void *)in, 0, NULL, 2, out);
}

/* user: p, i, x, w */
F(inner_first) { UNUSED, out[0] = tow_dot(tow_sin(in[0]), outer(user, 3)); }
F(inner_second) { UNUSED, out[0] = tow_mul_scalar(in[0], 3); }
F(inner_third) { UNUSED, out[0] = tow_mul(tow_exp(tow_dot(in[0], outer(user, 3))), in[0]); }
F(choose_inner)
{
    const tow_branch branches[] = {{inner_first, user}, {inner_second, user}, {inner_third, user}};
    tow_value cosine = tow_cos(in[0]);
    tow_switch_function(trace, outer(user, 1), 3, branches, 1, &cosine, 1, out);
}
F(no_inner) { UNUSED, out[0] = tow_mul(tow_tanh(tow_dot(in[0], outer(user, 3))), in[0]); }
F(nested)
{
    (void)user;
    tow_cond_function(trace, in[0], choose_inner, no_inner, (void *)in, 1, &in[2], 1, out);
}

/* user: w, then h, x */
F(tanh_step) { UNUSED, out[0] = tow_tanh(tow_add(tow_mul(outer(user, 0), in[0]), in[1])); }
F(sin_step) { UNUSED, out[0] = tow_sub(tow_mul(tow_sin(in[0]), tow_exp(in[1])), in[0]); }
F(choosing_step)
{
    tow_value w[] = {outer(user, 0)}, positive = tow_gt(sum(in[0]), number(in[0], 0));
    tow_cond_function(trace, positive, tanh_step, sin_step, w, 2, in, 1, out);
    out[1] = tow_mul(out[0], in[0]);
}
F(cond_in_scan)
{
    tow_value ys = {0};
    (void)user;
    tow_scan_function(trace, choosing_step, (void *)in, NULL, 1, &in[1], 1, &in[2], 1, &out[0], &ys);
    out[1] = tow_reduce_sum(ys, 1, (int[]){0});
}

/* user: p, w, h */
F(sin_again) { UNUSED, out[0] = tow_sin(tow_mul(outer(user, 1), in[0])); }
F(three_times)
{
    const tow_scan_options options = TOW_SCAN_OPTIONS(.length = 3);
    tow_scan_function(trace, sin_again, user, &options, 1, in, 0, NULL, 0, out, NULL);
}
F(times_w) { UNUSED, out[0] = tow_mul(in[0], outer(user, 1)); }
F(scan_in_cond)
{
    (void)user;
    tow_cond_function(trace, in[0], three_times, times_w, (void *)in, 1, &in[2], 1, out);
}

/* ---- loops ------------------------------------------------------------------------------------------------------- */

/* user: w, x, bound */
F(sum_is_above) { UNUSED, out[0] = tow_gt(sum(in[0]), outer(user, 2)); }
F(sin_of_w) { UNUSED, out[0] = tow_checkpoint_name(tow_sin(tow_mul(outer(user, 0), in[0])), "wave"); }
F(while_sum)
{
    const tow_while_options options = TOW_WHILE_OPTIONS(.max_iterations = 9);
    (void)user;
    tow_while_function(trace, sum_is_above, sin_of_w, (void *)in, &options, 1, &in[1], out);
}

/* user: x, w, n; carry: i, flag, x, s */
F(tanh_product) { UNUSED, out[0] = tow_tanh(tow_dot(in[0], outer(user, 1))); }
F(half_more) { UNUSED, out[0] = tow_mul_scalar(in[0], 1.5); }
F(is_below_n) { UNUSED, out[0] = tow_lt(in[0], outer(user, 2)); }
F(mixed_step)
{
    tow_cond_function(trace, in[1], tanh_product, half_more, user, 1, &in[2], 1, &out[2]);
    out[0] = tow_add_scalar(in[0], 1);
    out[1] = tow_not(in[1]);
    out[3] = tow_add(in[3], tow_mul(out[2], as_float(in[0], in[3])));
}
F(while_mixed)
{
    const tow_while_options options = TOW_WHILE_OPTIONS(.max_iterations = 6);
    tow_value carry[] = {tow_scalar(trace, TOW_I32, 0), tow_scalar(trace, TOW_BOOL, 1), in[0], tow_zeros_like(in[0])};
    (void)user;
    tow_while_function(trace, is_below_n, mixed_step, (void *)in, &options, 4, carry, out);
}

F(is_wide)
{
    UNUSED;
    out[0] = tow_gt(tow_reduce_max(tow_abs(in[0]), 0, NULL), number(in[0], 0.5));
}
F(shrink) { UNUSED, out[0] = tow_mul(outer(user, 0), tow_sin(in[0])); }
F(shrinking_step)
{
    const tow_while_options options = TOW_WHILE_OPTIONS(.max_iterations = 7);
    tow_value start = tow_add(in[0], in[1]);
    tow_while_function(trace, is_wide, shrink, user, &options, 1, &start, out);
    out[1] = out[0];
}
F(while_in_scan)
{
    (void)user;
    tow_scan_function(trace, shrinking_step, (void *)in, NULL, 1, &in[1], 1, &in[2], 1, &out[0], &out[1]);
}

F(still_moves)
{
    UNUSED;
    out[0] = tow_gt(tow_reduce_max(tow_abs(tow_sub(in[0], in[1])), 0, NULL), number(in[0], 1e-3));
}
F(newton_step)
{
    UNUSED;
    out[0] = tow_mul_scalar(tow_add(in[0], tow_div(outer(user, 0), in[0])), 0.5);
    out[1] = in[0];
}
F(newton)
{
    const tow_while_options options = TOW_WHILE_OPTIONS(.max_iterations = 20);
    tow_value carry[] = {in[0], tow_zeros_like(in[0])}, last[2] = {{0}};
    (void)user;
    tow_while_function(trace, still_moves, newton_step, (void *)in, &options, 2, carry, last);
    out[0] = last[0];
}

/* user: y, k, t; carry: y, s, h */
F(is_before) { UNUSED, out[0] = tow_lt(in[1], outer(user, 2)); }
F(euler)
{
    UNUSED;
    out[0] = tow_add(in[0], tow_mul(in[2], tow_sub(tow_sin(in[0]), tow_mul(outer(user, 1), in[0]))));
    out[1] = tow_add(in[1], in[2]);
    out[2] = tow_mul_scalar(in[2], 0.9);
}
F(ode)
{
    const tow_while_options options = TOW_WHILE_OPTIONS(.max_iterations = 12);
    tow_value carry[] = {in[0], number(in[0], 0), number(in[0], 0.2)}, last[3] = {{0}};
    (void)user;
    tow_while_function(trace, is_before, euler, (void *)in, &options, 3, carry, last);
    out[0] = last[0], out[1] = last[1];
}

/* user: x, w; in: i, c */
F(counted_step)
{
    UNUSED;
    out[0] = tow_add(tow_sin(tow_mul(outer(user, 1), in[1])), tow_mul(as_float(in[0], in[1]), outer(user, 0)));
}
F(fori_static) { (void)user, tow_fori_function(trace, 2, 7, counted_step, (void *)in, NULL, 1, in, out); }
F(fori_none) { (void)user, tow_fori_function(trace, 3, 0, counted_step, (void *)in, NULL, 1, in, out); }
F(fori_dynamic)
{
    const tow_fori_options options = TOW_FORI_OPTIONS(.upper = in[0], .max_iterations = 8);
    (void)user;
    tow_fori_function(trace, 1, 0, counted_step, (void *)(in + 1), &options, 1, &in[1], out);
}

F(is_not_zero) { UNUSED, out[0] = tow_ne(in[1], number(in[1], 0)); }
F(euclid) { UNUSED, out[0] = in[1], out[1] = tow_rem(in[0], in[1]); }
F(gcd)
{
    tow_value last[2] = {{0}};
    (void)user;
    tow_while_function(trace, is_not_zero, euclid, NULL, NULL, 2, in, last);
    out[0] = last[0];
}

/* ---- rows of their own ------------------------------------------------------------------------------------------- */

F(root) { UNUSED, out[0] = tow_sqrt(in[0]); }
F(three_of) { UNUSED, out[0] = tow_mul_scalar(in[0], 3); }
F(one_cond) { (void)user, tow_cond_function(trace, in[0], root, three_of, NULL, 1, &in[1], 1, out); }
F(rows_of_cond) { (void)user, tow_vmap_function(trace, one_cond, NULL, NULL, 2, in, 1, out); }

/* user: w */
F(row_sin) { UNUSED, out[0] = tow_sin(tow_mul(in[0], outer(user, 0))); }
F(row_same) { UNUSED, out[0] = in[0]; }
F(row_exp) { UNUSED, out[0] = tow_exp(outer(user, 0)); }
F(one_switch)
{
    const tow_branch branches[] = {{row_sin, user}, {row_same, user}, {row_exp, user}};
    tow_switch_function(trace, in[0], 3, branches, 1, &in[1], 1, out);
}
F(rows_of_switch) { (void)user, tow_vmap_function(trace, one_switch, (void *)(in + 2), NULL, 2, in, 1, out); }

/* user: n; carry: i, x, w */
F(below_own) { UNUSED, out[0] = tow_lt(in[0], outer(user, 0)); }
F(own_step) { UNUSED, out[0] = tow_add_scalar(in[0], 1), out[1] = tow_sin(tow_mul(in[2], in[1])), out[2] = in[2]; }
F(one_while)
{
    const tow_while_options options = TOW_WHILE_OPTIONS(.max_iterations = 6);
    tow_value carry[] = {tow_scalar(trace, TOW_I32, 0), in[1], outer(user, 0)}, n[] = {in[0]}, last[3] = {{0}};
    tow_while_function(trace, below_own, own_step, n, &options, 3, carry, last);
    out[0] = last[1];
}
F(rows_of_while) { (void)user, tow_vmap_function(trace, one_while, (void *)(in + 2), NULL, 2, in, 1, out); }

/* ---- the tests --------------------------------------------------------------------------------------------------- */

#define FUNCTIONS(X)                                                                                                   \
    X(switch3, 1)                                                                                                      \
    X(cond_number, 2)                                                                                                  \
    X(nested, 1)                                                                                                       \
    X(cond_in_scan, 2)                                                                                                 \
    X(scan_in_cond, 1)                                                                                                 \
    X(while_sum, 1)                                                                                                    \
    X(while_mixed, 4)                                                                                                  \
    X(while_in_scan, 2)                                                                                                \
    X(newton, 1)                                                                                                       \
    X(ode, 2)                                                                                                          \
    X(fori_static, 1)                                                                                                  \
    X(fori_none, 1)                                                                                                    \
    X(fori_dynamic, 1)                                                                                                 \
    X(gcd, 1)                                                                                                          \
    X(rows_of_cond, 1)                                                                                                 \
    X(rows_of_switch, 1)                                                                                               \
    X(rows_of_while, 1)

/* The policy around every function, or NULL for none; which inputs a function has. */
static const tow_policy *policy;
static const tow_value *arguments;

#define X(name, n)                                                                                                     \
    F(in_##name) { (void)in, name(trace, arguments, out, user); }                                                      \
    F(record_##name)                                                                                                   \
    {                                                                                                                  \
        arguments = in;                                                                                                \
        if (policy)                                                                                                    \
            tow_remat_function(trace, in_##name, user, policy, 0, NULL, n, out);                                       \
        else                                                                                                           \
            name(trace, in, out, user);                                                                                \
    }
FUNCTIONS(X)
#undef X

static void check_under(const tow_policy *around)
{
#define X(name, n) {#name, record_##name, n},
    static const golden_function table[] = { FUNCTIONS(X) };
#undef X
    policy = around;
    check_golden_cases(ctx, TOW_TEST_DATA "/oracle/golden/control.txt", table, sizeof table / sizeof *table);
}

static void without_policy(void **state)
{
    (void)state;
    check_under(NULL);
}

static void under_nothing(void **state)
{
    (void)state;
    check_under(&(tow_policy){.kind = TOW_POLICY_NOTHING});
}

static void under_everything(void **state)
{
    (void)state;
    check_under(&(tow_policy){.kind = TOW_POLICY_EVERYTHING});
}

static void under_dots(void **state)
{
    (void)state;
    check_under(&(tow_policy){.kind = TOW_POLICY_DOTS});
}

static void under_dots_without_batch(void **state)
{
    (void)state;
    check_under(&(tow_policy){.kind = TOW_POLICY_DOTS_WITH_NO_BATCH_DIMS});
}

static void under_names(void **state)
{
    (void)state;
    check_under(&(tow_policy){.kind = TOW_POLICY_ANY_NAMES_BUT, .names = TOW_NAMES(NULL)});
}

/* user: the remainder of the second letter that is kept */
static tow_verdict by_letter(const tow_policy_query *query, void *user)
{
    return query->primitive[1] % 2 == *(const int *)user ? TOW_PREFER_SAVE : TOW_PREFER_RECOMPUTE;
}

static void under_functions(void **state)
{
    (void)state;
    for (int kept = 0; kept < 2; kept++)
        check_under(&(tow_policy){.kind = TOW_POLICY_CUSTOM, .decide = by_letter, .user = &kept});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_policy),           cmocka_unit_test(under_nothing),
        cmocka_unit_test(under_everything),         cmocka_unit_test(under_dots),
        cmocka_unit_test(under_dots_without_batch), cmocka_unit_test(under_names),
        cmocka_unit_test(under_functions),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
