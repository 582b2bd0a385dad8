/* Regions: calls, remat under random policies, vmap, scans, choices, loops that the data end, rules of their own. Their
 * bodies are drawn likewise, over all values outside and the inputs of the body. */
#include "tests/programs/draw.h"

/* ---- bodies ------------------------------------------------------------------------------------------------------ */

/* The user pointer of a traced body: the drawing around it, whose choices go on in the body. */
typedef struct body {
    drawing *outer;
    int n_in, n_operations;
    bool named; /* the first operation names its input "h" */
} body;

/* The drawing inside: all values outside, then the inputs. */
static drawing enter(const body *b, tow_trace *t, const tow_value *in)
{
    drawing d = *b->outer;
    d.t = t;
    d.depth--;
    for (int i = 0; i < b->n_in && d.n < MOST_VALUES; i++) d.values[d.n++] = in[i];
    if (b->named) add_value(&d, tow_checkpoint_name(tow_sin(in[0]), "h"));
    return d;
}

static void leave(const body *b, const drawing *d)
{
    b->outer->random = d->random;
    b->outer->fault = d->fault;
}

/* The latest float that was made inside, brought to a type. */
static tow_value latest(const drawing *d, tow_type type)
{
    int i = d->n;
    while (i-- > 1)
        if (tow_value_type(d->values[i]).dtype == type.dtype) break;
    return fitted(d->values[i], type);
}

/* x -> tanh(x + what was made of it): the type of x, and moderate */
static void keep_type(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const body *b = user;
    drawing d = enter(b, t, in);
    draw_operations(&d, b->n_operations);
    out[0] = tow_tanh(tow_add(in[0], latest(&d, tow_value_type(in[0]))));
    leave(b, &d);
}

/* The same, and another value as it is. */
static void two_results(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const body *b = user;
    drawing d = enter(b, t, in);
    draw_operations(&d, b->n_operations);
    out[0] = tow_sin(tow_add(in[0], latest(&d, tow_value_type(in[0]))));
    out[1] = d.values[d.n - 1];
    leave(b, &d);
}

static body begin_body(drawing *d, int n_in)
{
    return (body){.outer = d, .n_in = n_in, .n_operations = 1 + draw(d, 4)};
}

/* ---- regions that run once --------------------------------------------------------------------------------------- */

static tow_value draw_remat(drawing *d)
{
    tow_value x = draw_float(d), out[2] = {{0}};
    const tow_policy dots = tow_dots_saveable(), names = tow_save_only_these_names("h");
    const tow_policy policies[] = {tow_nothing_saveable(),
                                   tow_nothing_saveable(),
                                   tow_dots_saveable(),
                                   tow_dots_with_no_batch_dims_saveable(),
                                   tow_everything_saveable(),
                                   tow_save_not(&dots),
                                   tow_save_only_these_names("h"),
                                   tow_save_any_names_but_these("h"),
                                   tow_save_anything_except_these_names("h"),
                                   tow_save_either(&dots, &names),
                                   tow_save_except_names(&dots, "h")};
    const int which = draw(d, sizeof policies / sizeof *policies);
    body b = begin_body(d, 1);
    b.named = which > 5;
    if (draw(d, 2)) {
        tow_remat_function(d->t, keep_type, &b, &policies[which], 1, &x, 1, out);
        return out[0];
    }
    tow_remat_function(d->t, two_results, &b, &policies[which], 1, &x, 2, out);
    add_value(d, out[1]);
    return out[0];
}

static tow_value draw_call(drawing *d)
{
    tow_value x = draw_float(d), out[2] = {{0}};
    body b = begin_body(d, 1);
    tow_call_function(d->t, two_results, &b, "part", 1, &x, 2, out);
    add_value(d, out[1]);
    return out[0];
}

/* Over any axis of one value, and of another if it has an axis of that size. */
static tow_value draw_vmap(drawing *d)
{
    tow_value x[] = {draw_ranked(d, 1), draw_ranked(d, 1)}, out[1] = {{0}};
    if (tow_value_type(x[0]).rank == 0) return tow_sin(x[0]);
    int in_axes[2] = {draw_axis(d, x[0]), TOW_NOT_MAPPED}, out_axes[1] = {draw(d, tow_value_type(x[0]).rank)};
    for (int i = 0; i < tow_value_type(x[1]).rank; i++)
        if (size_of(x[1], i) == size_of(x[0], in_axes[0])) in_axes[1] = i;
    body b = begin_body(d, 2);
    const tow_vmap_options options = TOW_VMAP_OPTIONS(.in_axes = in_axes, .out_axes = out_axes);
    tow_vmap_function(d->t, keep_type, &b, &options, 2, x, 1, out);
    return out[0];
}

/* ---- scans and fori ---------------------------------------------------------------------------------------------- */

/* (carry, counter, x) -> (carry, counter, y) */
static void scan_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const body *b = user;
    drawing d = enter(b, t, in);
    draw_operations(&d, b->n_operations);
    out[0] = tow_tanh(tow_add(in[0], latest(&d, tow_value_type(in[0]))));
    out[1] = tow_add_scalar(in[1], 1);
    out[2] = draw(&d, 2) ? out[0] : d.values[d.n - 1];
    leave(b, &d);
}

static tow_value draw_scan(drawing *d)
{
    tow_value x = draw_ranked(d, 1), out[2] = {{0}}, ys[1] = {{0}};
    if (tow_value_type(x).rank == 0) return tow_sin(x);
    tow_value carry[] = {draw_float(d), tow_scalar(d->t, TOW_I32, 0)};
    body b = begin_body(d, 3);
    const tow_scan_options options = TOW_SCAN_OPTIONS(.reverse = draw(d, 2), .unroll = draw(d, 2) ? 0 : draw(d, 4));
    tow_scan_function(d->t, scan_body, &b, &options, 2, carry, 1, &x, 1, out, ys);
    add_value(d, out[0]);
    return ys[0];
}

/* i, carry -> carry */
static void fori_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const body *b = user;
    drawing d = enter(b, t, in);
    draw_operations(&d, b->n_operations);
    tow_value i = tow_convert(in[0], tow_value_type(in[1]).dtype);
    out[0] = tow_tanh(tow_add(tow_mul(in[1], tow_cos(i)), latest(&d, tow_value_type(in[1]))));
    leave(b, &d);
}

static tow_value draw_fori(drawing *d)
{
    tow_value x = draw_float(d), out[1] = {{0}};
    body b = begin_body(d, 2);
    tow_fori_options options = TOW_FORI_OPTIONS();
    if (draw(d, 2)) options = TOW_FORI_OPTIONS(.upper = draw_index(d), .max_iterations = 1 + draw(d, 3));
    tow_fori_function(d->t, 0, draw(d, 4), fori_body, &b, &options, 1, &x, out);
    return out[0];
}

tow_value draw_region(drawing *d)
{
    if (d->depth == 0 || d->n > MOST_VALUES - 12) return draw_unary(d);
    switch (draw(d, 8)) {
    case 0:
    case 1:
    case 2:
        return draw_remat(d);
    case 3:
        return draw_call(d);
    case 4:
        return draw_vmap(d);
    case 5:
        return draw_fori(d);
    default:
        return draw_scan(d);
    }
}

/* ---- choices and loops that data end ----------------------------------------------------------------------------- */

static void plain_branch(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_sin(in[0]);
}

static tow_value draw_cond(drawing *d)
{
    tow_value x = draw_float(d), out[1] = {{0}}, b = draw_of(d, TOW_BOOL);
    if (tow_value_type(b).rank > 0) b = tow_reduce_or(b, 0, NULL);
    body first = begin_body(d, 1);
    tow_cond_function(d->t, b, keep_type, draw(d, 2) ? keep_type : plain_branch, &first, 1, &x, 1, out);
    return out[0];
}

static tow_value draw_switch(drawing *d)
{
    tow_value x = draw_float(d), out[1] = {{0}};
    body bodies[3];
    for (int i = 0; i < 3; i++) bodies[i] = begin_body(d, 1), bodies[i].n_operations = draw(d, 3);
    const tow_branch branches[] = {
        {keep_type, &bodies[0]}, {plain_branch, NULL}, {keep_type, &bodies[1]}, {keep_type, &bodies[2]}};
    tow_switch_function(d->t, draw_index(d), 1 + (size_t)draw(d, 4), branches, 1, &x, 1, out);
    return out[0];
}

/* i < 5 and the sum of x is below 4 */
static void while_condition(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_and(tow_lt_scalar(in[0], 5), tow_lt_scalar(tow_reduce_sum(in[1], 0, NULL), 4));
}

static void while_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    fori_body(t, in, out + 1, user);
    out[0] = tow_add_scalar(in[0], 1);
}

/* Doubles until there are 20; no derivative. */
static void counting_condition(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_lt_scalar(in[0], 20);
}

static void counting_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_add_scalar(tow_add(in[0], in[0]), 1);
}

static tow_value draw_while(drawing *d)
{
    tow_value carry[] = {tow_scalar(d->t, TOW_I32, 0), draw_float(d)};
    if (draw(d, 6) == 0) {
        tow_value count = tow_max_scalar(draw_index(d), 0);
        tow_while_function(d->t, counting_condition, counting_body, NULL, NULL, 1, &count, &count);
        return count;
    }
    body b = begin_body(d, 2);
    const tow_while_options options = TOW_WHILE_OPTIONS(.max_iterations = 1 + draw(d, 4));
    tow_while_function(d->t, while_condition, while_body, &b, &options, 2, carry, carry);
    return draw(d, 4) ? carry[1] : carry[0];
}

tow_value draw_control(drawing *d)
{
    if (d->depth == 0 || d->n > MOST_VALUES - 12) return draw_unary(d);
    switch (draw(d, 3)) {
    case 0:
        return draw_cond(d);
    case 1:
        return draw_switch(d);
    default:
        return draw_while(d);
    }
}

/* ---- rules of their own ------------------------------------------------------------------------------------------ */

/* log(1 + exp x) */
static void softplus(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_log1p(tow_exp(in[0]));
}

/* dy = logistic(x) dx */
static void softplus_rule(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    softplus(t, in, out, user);
    out[1] = tow_mul(tow_logistic(in[0]), in[1]);
}

/* x sin w, with residuals of which one has a name */
static void wave(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_mul(in[0], tow_sin(in[1]));
}

static void wave_forward(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    wave(t, in, out, user);
    out[1] = in[0];
    out[2] = tow_checkpoint_name(tow_sin(in[1]), "a");
    out[3] = tow_cos(in[1]);
}

/* ct sin w, and ct x cos w */
static void wave_backward(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_mul(in[3], in[1]);
    out[1] = tow_mul(in[3], tow_mul(in[0], in[2]));
}

/* x w for matrices: y = x w, with dx = ct w^T, dw = x^T ct */
static void matrix(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_dot(in[0], in[1]);
}

static void matrix_forward(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    matrix(t, in, out, user);
    out[1] = in[0];
    out[2] = in[1];
}

static void matrix_backward(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_dot(in[2], tow_transpose(in[1], 0, NULL));
    out[1] = tow_dot(tow_transpose(in[0], 0, NULL), in[2]);
}

static void matrix_rule(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    matrix(t, in, out, user);
    out[1] = tow_add(tow_dot(in[2], in[1]), tow_dot(in[0], in[3]));
}

tow_value draw_custom(drawing *d)
{
    tow_value x = draw_float(d), y = {0}, two[2] = {x, tow_mul_scalar(x, 0.5)};
    switch (draw(d, 4)) {
    case 0:
        tow_custom_jvp_function(d->t, softplus, softplus_rule, NULL, NULL, 1, &x, 1, &y);
        return y;
    case 1:
        tow_custom_vjp_function(d->t, wave, wave_forward, wave_backward, NULL, NULL, 2, two, 3, 1, &y);
        return y;
    default:
        x = draw_ranked(d, 2);
        if (tow_value_type(x).rank != 2) return tow_sin(x);
        two[0] = x;
        two[1] = tow_transpose(tow_sin(x), 0, NULL);
        if (draw(d, 2))
            tow_custom_vjp_function(d->t, matrix, matrix_forward, matrix_backward, NULL, NULL, 2, two, 2, 1, &y);
        else
            tow_custom_jvp_function(d->t, matrix, matrix_rule, NULL, NULL, 2, two, 1, &y);
        return y;
    }
}
