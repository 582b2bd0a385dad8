/* Primitives with a nested graph, and the name tag. Bodies mix linear, nonlinear and constant parts.
 * Tests ops/elementwise/checkpoint_name.c. */
#include <math.h>
#include <string.h>

#include "tests/property/property.h"

/* ---- name -------------------------------------------------------------------------------------------------------- */

static const tow__name_params tag = {"hidden"};

static double same(double x) { return x; }

/* ---- call, remat: sin(x y) + x, with y from outside of the body -------------------------------------------------- */

static void body(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const tow_value *outer = user;
    (void)trace;
    out[0] = tow_add(tow_sin(tow_mul(in[0], *outer)), in[0]);
}

static void record_call(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    tow_value y = in[1];
    (void)c;
    tow_call_function(trace, body, &y, "wave", 1, in, 1, out);
}

/* label is the policy in textual form */
static void record_remat(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    tow_value y = in[1];
    tow_policy *policy = NULL;
    if (tow_policy_parse(tow_trace_context(trace), c->label, &policy) != TOW_OK) return;
    tow_remat_function(trace, body, &y, policy, 1, in, 1, out);
    tow_policy_free(policy);
}

static void wave(const property_case *c, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < property_count(&c->in[0]); i++) out[0][i] = sin(in[0][i] * in[1][i]) + in[0][i];
}

/* ---- scan: h <- tanh(w h + x), y = h h --------------------------------------------------------------------------- */

enum {
    WIDTH = 3
};

static void step(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const tow_value *w = user;
    (void)trace;
    out[0] = tow_tanh(tow_add(tow_mul(*w, in[0]), in[1]));
    out[1] = tow_square(out[0]);
}

/* in: w [3], h [3], xs [length, 3]; label "reverse..." turns the loop round, "... slots" keeps two states, "... blocks"
 * those of nested blocks */
static void record_scan(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    tow_value w = in[0];
    const bool slots = c->label && strstr(c->label, "slots"), blocks = c->label && strstr(c->label, "blocks");
    const tow_scan_options options = TOW_SCAN_OPTIONS(.reverse = c->label != NULL && c->label[0] == 'r',
                                                      .schedule = {.slots = slots ? 2 : 0, .levels = blocks ? 2 : 0});
    tow_scan_function(trace, step, &w, &options, 1, &in[1], 1, &in[2], 1, &out[0], &out[1]);
}

static void recurrence(const property_case *c, double *const *in, double *const *out)
{
    const int64_t length = c->in[2].dims[0];
    for (int64_t k = 0; k < WIDTH; k++) out[0][k] = in[1][k];
    for (int64_t n = 0; n < length; n++) {
        const int64_t i = c->label != NULL && c->label[0] == 'r' ? length - 1 - n : n;
        for (int64_t k = 0; k < WIDTH; k++) {
            out[0][k] = tanh(in[0][k] * out[0][k] + in[2][i * WIDTH + k]);
            out[1][i * WIDTH + k] = out[0][k] * out[0][k];
        }
    }
}

/* ---- replay: the states with which iterations of that loop begin, from the first one ----------------------------- */

/* (w, h, x) -> h */
static void record_replay(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    tow__replay_params params = {
        .length = c->in[2].dims[0], .reverse = c->label != NULL, .consts = 1, .carry = 1, .slots = 2};
    tow_trace *inner = tow__trace_begin(tow_trace_context(trace));
    if (!inner) {
        tow__adopt_error(trace);
        return;
    }
    tow_value v[3], y[2];
    for (int i = 0; i < 3; i++) v[i] = tow__input(inner, tow_value_type(in[0]), NULL);
    step(inner, v + 1, y, &v[0]);
    if (tow__trace_end(inner, 1, y, false, &params.body) == TOW_OK)
        tow__bind(trace, tow__primitive_find("replay", 6), &params, 3, in, 1, out);
    else
        tow__adopt_error(trace);
    tow_graph_release(params.body);
}

static void states(const property_case *c, double *const *in, double *const *out)
{
    const int64_t length = c->in[2].dims[0];
    for (int64_t k = 0; k < WIDTH; k++) {
        double h = in[1][k];
        for (int64_t n = 0; n < length; n++) {
            const int64_t i = c->label ? length - 1 - n : n;
            out[0][i * WIDTH + k] = h;
            h = tanh(in[0][k] * h + in[2][i * WIDTH + k]);
        }
    }
}

/* ---- replay_while: k <- k h for three iterations of h <- tanh(w h), whose first state is kept -------------------- */

/* (w, h) -> h */
static void step_without_x(tow_trace *trace, const tow_value *in, tow_value *out)
{
    (void)trace;
    out[0] = tow_tanh(tow_mul(in[0], in[1]));
}

/* in: w [3], kept [2, 3], k [3] */
static void record_replay_while(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    tow__replay_while_params params = {.consts = 1, .states = 1, .slots = 2, .max_iterations = 9};
    (void)c;
    tow_trace *advance = tow__trace_begin(tow_trace_context(trace)), *body = tow__trace_begin(tow_trace_context(trace));
    tow_value v[3], y;
    for (int i = 0; advance && i < 2; i++) v[i] = tow__input(advance, tow_value_type(in[0]), NULL);
    if (advance) step_without_x(advance, v, &y);
    bool fine = advance && tow__trace_end(advance, 1, &y, false, &params.advance) == TOW_OK;
    for (int i = 0; body && i < 3; i++) v[i] = tow__input(body, tow_value_type(in[0]), NULL);
    if (body) y = tow_mul(v[2], v[1]);
    fine &= body && tow__trace_end(body, 1, &y, false, &params.body) == TOW_OK;
    const int64_t slots = 2;
    const tow_value none = tow_scalar(trace, TOW_I32, 0);
    const tow_value positions = tow_full(trace, tow_make_type(TOW_I32, 1, &slots), 0);
    const tow_value operands[] = {tow_scalar(trace, TOW_I32, 3), none, positions, in[1], in[0], in[2]};
    if (fine)
        tow__bind(trace, tow__primitive_find("replay_while", 12), &params, 6, operands, 1, out);
    else
        tow__adopt_error(trace);
    tow_graph_release(params.advance);
    tow_graph_release(params.body);
}

static void product_of_states(const property_case *c, double *const *in, double *const *out)
{
    (void)c;
    for (int64_t k = 0; k < WIDTH; k++) {
        double h = in[1][k];
        out[0][k] = in[2][k];
        for (int i = 0; i < 3; i++) out[0][k] *= h, h = tanh(in[0][k] * h);
    }
}

/* No xs and no ys: x <- w x, four times, inside a remat region. */
static void multiply(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace;
    out[0] = tow_mul(in[0], *(const tow_value *)user);
}

static void four_times(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const tow_scan_options options = TOW_SCAN_OPTIONS(.length = 4, .has_length = true);
    tow_scan_function(trace, multiply, user, &options, 1, in, 0, NULL, 0, out, NULL);
}

static void record_power(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    tow_value w = in[0];
    (void)c;
    tow_remat_function(trace, four_times, &w, NULL, 1, &in[1], 1, out);
}

static void fourth_power(const property_case *c, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < property_count(&c->in[0]); i++) out[0][i] = pow(in[0][i], 4) * in[1][i];
}

/* ---- cond: three branches of x and an outer y -------------------------------------------------------------------- */

static void branch_sin(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace;
    out[0] = tow_sin(tow_mul(in[0], *(const tow_value *)user));
    out[1] = in[0];
}

static void branch_exp(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_exp(in[0]);
    out[1] = tow_square(out[0]);
}

static void branch_constant(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace;
    out[0] = *(const tow_value *)user;
    out[1] = tow_full_like(in[0], 3);
}

/* in: index, x, y */
static void record_switch(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    tow_value y = in[2];
    const tow_branch branches[] = {{branch_sin, &y}, {branch_exp, NULL}, {branch_constant, &y}};
    (void)c;
    tow_switch_function(trace, in[0], 3, branches, 1, &in[1], 2, out);
}

static void chosen(const property_case *c, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < property_count(&c->in[1]); i++) {
        const double x = in[1][i], y = in[2][i], first[] = {sin(x * y), exp(x), y}, second[] = {x, exp(2 * x), 3};
        const int k = in[0][0] < 0 ? 0 : in[0][0] > 2 ? 2 : (int)in[0][0];
        out[0][i] = first[k];
        out[1][i] = second[k];
    }
}

/* in: predicate, x, y */
static void record_cond(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    tow_value y = in[2];
    (void)c;
    tow_cond_function(trace, in[0], branch_sin, branch_constant, &y, 1, &in[1], 2, out);
}

static void chosen_of_two(const property_case *c, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < property_count(&c->in[1]); i++) {
        out[0][i] = in[0][0] != 0 ? sin(in[1][i] * in[2][i]) : in[2][i];
        out[1][i] = in[0][0] != 0 ? in[1][i] : 3;
    }
}

/* ---- while: x <- sin(w x) as long as a counter is below n; fori: the same with a count --------------------------- */

enum {
    BOUND = 5
};

static void is_below(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const tow_value *outer = user;
    (void)trace;
    out[0] = tow_lt(in[0], outer[1]);
}

static void wave_step(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const tow_value *outer = user;
    (void)trace;
    out[0] = tow_add_scalar(in[0], 1);
    out[1] = tow_sin(tow_mul(outer[0], in[1]));
}

/* in: n, w, x */
static void record_while(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    tow_value outer[] = {in[1], in[0]}, carry[] = {tow_scalar(trace, TOW_I32, 0), in[2]}, last[2];
    const tow_while_options options = TOW_WHILE_OPTIONS(.max_iterations = BOUND);
    (void)c;
    tow_while_function(trace, is_below, wave_step, outer, &options, 2, carry, last);
    out[0] = last[1];
}

static void repeated(const property_case *c, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < property_count(&c->in[2]); i++) {
        out[0][i] = in[2][i];
        for (int n = 0; n < in[0][0] && n < BOUND; n++) out[0][i] = sin(in[1][i] * out[0][i]);
    }
}

/* (w, x, i) -> sin(w x) */
static void record_fori(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    const bool reverse = c->label && c->label[0] == 'r';
    tow__fori_params params = {.reverse = reverse, .consts = 1, .max_iterations = BOUND};
    const tow_type types[] = {tow_value_type(in[1]), tow_value_type(in[2]), tow_make_type(TOW_I32, 0, NULL)};
    tow_trace *inner = tow__trace_begin(tow_trace_context(trace));
    if (!inner) {
        tow__adopt_error(trace);
        return;
    }
    tow_value v[3], y;
    for (int i = 0; i < 3; i++) v[i] = tow__input(inner, types[i], NULL);
    y = tow_sin(tow_mul(v[0], v[1]));
    if (tow__trace_end(inner, 1, &y, false, &params.body) == TOW_OK)
        tow__bind(trace, tow__primitive_find("fori", 4), &params, 3, in, 1, out);
    else
        tow__adopt_error(trace);
    tow_graph_release(params.body);
}

/* ---- empty: what is not read may be anything --------------------------------------------------------------------- */

static void record_empty(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    tow_type type = tow_value_type(in[0]);
    const tow__empty_params params = {.dtype = type.dtype, .shape = {.n = type.rank, .v = {type.dims[0]}}};
    tow_value unread = tow__bind1(trace, tow__primitive_find("empty", 5), &params, 0, NULL);
    (void)c;
    out[0] = tow_where(tow_scalar(trace, TOW_BOOL, 0), unread, in[0]);
}

#define V(n)                                                                                                           \
    {                                                                                                                  \
        .dtype = TOW_F64, S1(n)                                                                                        \
    }
#define REMAT(policy)                                                                                                  \
    {                                                                                                                  \
        .primitive = "remat", .label = policy, .n_in = 2, .build = record_remat, .value = wave, .loose = 2, .in = {    \
            V(5),                                                                                                      \
            V(5)                                                                                                       \
        }                                                                                                              \
    }
#define SCAN(text, length)                                                                                             \
    {                                                                                                                  \
        .primitive = "scan", .label = text, .n_in = 3, .n_out = 2, .build = record_scan, .value = recurrence,          \
        .loose = 4, .in = {                                                                                            \
            V(WIDTH),                                                                                                  \
            V(WIDTH),                                                                                                  \
            {.dtype = TOW_F64, S2(length, WIDTH)}                                                                      \
        }                                                                                                              \
    }

#define CHOICE(primitive_, text, build_, value_, index)                                                                \
    {                                                                                                                  \
        .primitive = primitive_, .label = text, .n_in = 3, .n_out = 2, .build = build_, .value = value_, .in = {       \
            index,                                                                                                     \
            V(5),                                                                                                      \
            V(5)                                                                                                       \
        }                                                                                                              \
    }
#define REPEAT(primitive_, text, build_, count)                                                                        \
    {                                                                                                                  \
        .primitive = primitive_, .label = text, .n_in = 3, .build = build_, .value = repeated, .loose = 4, .in = {     \
            {.dtype = TOW_I32, S0, .low = count, .high = count},                                                       \
            V(4),                                                                                                      \
            V(4)                                                                                                       \
        }                                                                                                              \
    }
#define INDEX(n)                                                                                                       \
    {                                                                                                                  \
        .dtype = TOW_I32, S0, .low = n, .high = n                                                                      \
    }

static const property_case cases[] = {
    CHOICE("cond", "first", record_switch, chosen, INDEX(-5)),
    CHOICE("cond", "second", record_switch, chosen, INDEX(1)),
    CHOICE("cond", "third", record_switch, chosen, INDEX(7)),
    CHOICE("cond", "predicate, drawn", record_cond, chosen_of_two, ((property_input){.dtype = TOW_BOOL, S0})),
    CHOICE("cond", "predicate, another draw", record_cond, chosen_of_two, ((property_input){.dtype = TOW_BOOL, S0})),
    REPEAT("while", "some iterations", record_while, 3),
    REPEAT("while", "one iteration", record_while, 1),
    REPEAT("while", "no iteration", record_while, -1),
    REPEAT("while", "all iterations that are allowed", record_while, 9),
    REPEAT("fori", NULL, record_fori, 4),
    REPEAT("fori", "reverse", record_fori, 2),
    REPEAT("fori", "no iteration", record_fori, -3),
    {.primitive = "empty", .n_in = 1, .build = record_empty, .unary = same, .in = {V(5)}},
    {.primitive = "name", .params = &tag, .n_in = 1, .unary = same, .in = {V(5)}},
    {.primitive = "call", .n_in = 2, .build = record_call, .value = wave, .loose = 2, .in = {V(5), V(5)}},
    REMAT("nothing"),
    REMAT("everything"),
    REMAT("dots"),
    REMAT("not(nothing)"),
    SCAN(NULL, 4),
    SCAN("reverse", 4),
    SCAN("one step", 1),
    SCAN("no step", 0),
    SCAN("reverse, one step", 1),
    SCAN("two slots", 5),
    SCAN("reverse, two slots", 5),
    SCAN("blocks", 5),
    {.primitive = "replay",
     .n_in = 3,
     .build = record_replay,
     .value = states,
     .loose = 4,
     .in = {V(WIDTH), {.dtype = TOW_F64, S2(3, WIDTH)}, {.dtype = TOW_F64, S2(4, WIDTH)}}},
    {.primitive = "replay",
     .label = "reverse",
     .n_in = 3,
     .build = record_replay,
     .value = states,
     .loose = 4,
     .in = {V(WIDTH), {.dtype = TOW_F64, S2(3, WIDTH)}, {.dtype = TOW_F64, S2(4, WIDTH)}}},
    {.primitive = "replay_while",
     .n_in = 3,
     .build = record_replay_while,
     .value = product_of_states,
     .loose = 4,
     .in = {V(WIDTH), {.dtype = TOW_F64, S2(2, WIDTH)}, V(WIDTH)}},
    {.primitive = "scan",
     .label = "inputs constant but the weight",
     .n_in = 3,
     .n_out = 2,
     .build = record_scan,
     .value = recurrence,
     .loose = 4,
     .in = {V(WIDTH),
            {.dtype = TOW_F64, S1(WIDTH), .constant = true},
            {.dtype = TOW_F64, S2(3, WIDTH), .constant = true}}},
    {.primitive = "scan",
     .label = "without xs and ys, under remat",
     .n_in = 2,
     .build = record_power,
     .value = fourth_power,
     .loose = 4,
     .in = {V(3), V(3)}},
};

const property_table region_cases = TABLE(cases);
