/* cond, switch, while and fori as operations that C functions record.
 *
 * Each function is traced by itself, then recorded again over the outer values that any of them captures, so that all
 * branches, and the condition and the body of a loop, have the same inputs. */
#include "src/autodiff/regions/record.h"
#include "tow/control.h"
#include "tow/ops.h"

/* Functions that share their inputs: captured values, then explicit ones. */
typedef struct closure {
    tow_trace *t;
    size_t n, n_explicit;
    tow__captures outer;
    tow__traced_body *bodies; /* [n] (outer, explicit) -> outputs */
    tow_value *operands;      /* outer values, then the explicit ones */
} closure;

static void free_closure(closure *c)
{
    for (size_t k = 0; c->bodies && k < c->n; k++) tow_graph_release(c->bodies[k].graph);
}

/* False: no memory. */
static bool begin_closure(closure *c, tow_trace *t, size_t n, size_t n_explicit)
{
    *c = (closure){.t = t, .n = n, .n_explicit = n_explicit};
    c->bodies = tow__trace_alloc(t, n, sizeof *c->bodies);
    return c->bodies != NULL;
}

static bool close_closure(closure *c, const tow_value *explicit_in)
{
    bool fine = tow__unite_captures(c->t, c->n, c->bodies, &c->outer);
    for (size_t k = 0; k < c->n && fine; k++) fine = tow__capture_all(c->t, &c->outer, &c->bodies[k]);
    if (fine) c->operands = tow__join(c->t, c->outer.n, c->outer.values, c->n_explicit, explicit_in);
    return fine && c->operands;
}

/* ---- cond, switch ------------------------------------------------------------------------------------------------ */

/* Branch k as users know it. */
static void branch_name(char text[40], const char *op, size_t k)
{
    if (op[0] == 'c')
        snprintf(text, 40, "%s", k ? "if_true" : "if_false");
    else
        snprintf(text, 40, "branch %zu", k);
}

static bool outputs_agree(const closure *c, const char *op)
{
    for (size_t k = 1; k < c->n; k++)
        for (size_t i = 0; i < c->bodies[0].graph->n_outputs; i++) {
            tow_type want = tow_graph_output_type(c->bodies[0].graph, i),
                     have = tow_graph_output_type(c->bodies[k].graph, i);
            char first[40], second[40];
            if (tow_type_equal(want, have)) continue;
            branch_name(first, op, 0);
            branch_name(second, op, k);
            tow_trace_fail(c->t, TOW_TYPE_MISMATCH,
                           "%s: output %zu is %s in %s and %s in %s; all branches must return the same types: convert "
                           "or reshape one of the two",
                           op, i, tow__type_name(want).text, first, tow__type_name(have).text, second);
            return false;
        }
    return true;
}

/* Output i is in every branch what output j < i is, or for j = i the same input. */
static bool is_same(const closure *c, size_t i, size_t j)
{
    uint32_t index = c->bodies[0].graph->vars[c->bodies[0].graph->outputs[i]].index;
    for (size_t k = 0; k < c->n; k++) {
        const tow_graph *g = c->bodies[k].graph;
        const tow__var *v = &g->vars[g->outputs[i]];
        if (j < i ? g->outputs[i] != g->outputs[j] : v->equation != TOW__INPUT || v->index != index) return false;
    }
    return true;
}

/* The way in which a choice gives an output. */
typedef struct chosen_output {
    bool kept;    /* the choice has it */
    size_t same;  /* else: the earlier output that it is, or itself */
    size_t input; /* else: the operand that it is */
} chosen_output;

/* Removes from all branches the outputs that the choice does not have. */
static bool drop_outputs(closure *c, const bool *kept)
{
    for (size_t k = 0; k < c->n; k++) {
        tow_graph *reduced;
        if (tow__dce(c->bodies[k].graph, kept, false, NULL, &reduced) != TOW_OK) {
            tow__adopt_error(c->t);
            return false;
        }
        tow_graph_release(c->bodies[k].graph);
        c->bodies[k].graph = reduced;
    }
    return true;
}

/* Binds the choice. Outputs that are one input, or an earlier output, in all branches bypass it. */
static void bind_choice(closure *c, tow_value index, size_t n_out, tow_value *out)
{
    tow_trace *t = c->t;
    size_t n_in = c->outer.n + c->n_explicit, n_kept = 0;
    chosen_output *to = tow__trace_alloc(t, n_out, sizeof *to);
    bool *kept = tow__trace_alloc(t, n_out, sizeof *kept);
    tow_value *results = tow__trace_alloc(t, n_out, sizeof *results);
    tow_value *operands = tow__join(t, 1, &index, n_in, c->operands);
    tow_graph **graphs = tow__trace_alloc(t, c->n, sizeof(tow_graph *));
    if (!to || !kept || !results || !operands || !graphs) return;
    for (size_t i = 0; i < n_out; i++) {
        const tow_graph *first = c->bodies[0].graph;
        while (to[i].same < i && !is_same(c, i, to[i].same)) to[i].same++;
        to[i].kept = kept[i] = to[i].same == i && !is_same(c, i, i);
        to[i].input = first->vars[first->outputs[i]].index;
        n_kept += kept[i];
    }
    if (n_kept < n_out && !drop_outputs(c, kept)) return;
    for (size_t k = 0; k < c->n; k++) graphs[k] = c->bodies[k].graph;
    tow__cond_params params = {.branches = {.n = (uint32_t)c->n, .v = graphs}};
    bool happens = n_kept > 0;
    for (size_t k = 0; k < c->n; k++) happens |= graphs[k]->has_effects;
    if (happens) tow__bind(t, &tow__cond_p, &params, n_in + 1, operands, n_kept, results);
    for (size_t i = 0, next = 0; i < n_out; i++)
        out[i] = to[i].kept ? results[next++] : to[i].same < i ? out[to[i].same] : c->operands[to[i].input];
}

static void choose(tow_trace *t, const char *op, tow_value index, size_t n, const tow_branch *branches, size_t n_in,
                   const tow_value *operands, size_t n_out, tow_value *outputs)
{
    closure c;
    tow_type *types = tow__types_of(t, n_in, operands);
    if (types && begin_closure(&c, t, n, n_in)) {
        bool fine = true;
        for (size_t k = 0; k < n && fine; k++)
            fine = tow__trace_body(t, branches[k].function, branches[k].user, n_in, types, n_out, &c.bodies[k]);
        if (fine && close_closure(&c, operands) && outputs_agree(&c, op)) bind_choice(&c, index, n_out, outputs);
        free_closure(&c);
    }
}

/* bool [] of a number: whether it is not 0; the null value after an error. */
static tow_value truth_of(tow_value predicate)
{
    tow_type type = tow_value_type(predicate);
    if (type.rank != 0) {
        tow_trace_fail(predicate.trace, TOW_SHAPE_MISMATCH,
                       "cond: the predicate must be a scalar, found %s; reduce it (tow_reduce_and, tow_reduce_or), or "
                       "choose element by element with tow_where",
                       tow__type_name(type).text);
        return (tow_value){0};
    }
    return type.dtype == TOW_BOOL ? predicate : tow_convert(predicate, TOW_BOOL);
}

void tow_cond_function(tow_trace *trace, tow_value predicate, tow_function if_true, tow_function if_false, void *user,
                       size_t n_inputs, const tow_value *inputs, size_t n_outputs, tow_value *outputs)
{
    const tow_value *operands =
        tow__operands_of(trace, "cond", if_true && if_false, (tow__listed){n_inputs, inputs},
                         (tow__listed){1, &predicate}, (tow__listed){n_outputs, outputs}, (tow__listed){0});
    const tow_branch branches[] = {{if_false, user}, {if_true, user}};
    tow__clear(n_outputs, outputs);
    tow_value index = operands ? truth_of(operands[n_inputs]) : (tow_value){0};
    if (!tow_is_null(index)) choose(trace, "cond", index, 2, branches, n_inputs, operands, n_outputs, outputs);
}

/* i32 []; the null value after an error. */
static tow_value index_of(tow_value index)
{
    tow_type type = tow_value_type(index);
    if (type.rank == 0 && tow_dtype_is_integer(type.dtype)) return tow_convert(index, TOW_I32);
    tow_trace_fail(index.trace, type.rank ? TOW_SHAPE_MISMATCH : TOW_TYPE_MISMATCH,
                   "switch: the index must be an integer scalar (i32[], say), found %s; convert it with tow_convert",
                   tow__type_name(type).text);
    return (tow_value){0};
}

static bool are_given(size_t n, const tow_branch *branches)
{
    for (size_t k = 0; k < n && branches; k++)
        if (!branches[k].function) return false;
    return branches != NULL;
}

void tow_switch_function(tow_trace *trace, tow_value index, size_t n_branches, const tow_branch *branches,
                         size_t n_inputs, const tow_value *inputs, size_t n_outputs, tow_value *outputs)
{
    if (tow__records(trace, NULL) && n_branches == 0)
        tow_trace_fail(trace, TOW_INVALID_ARGUMENT, "switch: expected one branch or more, found 0");
    const tow_value *operands =
        tow__operands_of(trace, "switch", are_given(n_branches, branches), (tow__listed){n_inputs, inputs},
                         (tow__listed){1, &index}, (tow__listed){n_outputs, outputs}, (tow__listed){0});
    tow__clear(n_outputs, outputs);
    tow_value number = operands ? index_of(operands[n_inputs]) : (tow_value){0};
    if (tow_is_null(number)) return;
    if (n_branches > 1) {
        choose(trace, "switch", number, n_branches, branches, n_inputs, operands, n_outputs, outputs);
        return;
    }
    tow_value *out = tow__guarded_alloc(trace, n_outputs);
    if (!out) return;
    tow__run_function(trace, branches[0].function, branches[0].user, operands, n_outputs, out);
    for (size_t i = 0; i < n_outputs && !tow__failed(trace); i++)
        if (tow_is_null(out[i]))
            tow_trace_fail(trace, TOW_INVALID_ARGUMENT, "output %zu of %zu %s%s", i, n_outputs,
                           tow__null_text(out[i], NULL) ? "is " : "",
                           tow__null_text(out[i], "was never written by the traced function"));
    if (n_outputs && !tow__failed(trace)) memcpy(outputs, out, n_outputs * sizeof *out);
}

/* ---- while ------------------------------------------------------------------------------------------------------- */

enum {
    CONDITION,
    BODY
};

static bool condition_is_fine(const closure *c, const char *op)
{
    tow_type type = tow_graph_output_type(c->bodies[CONDITION].graph, 0);
    if (type.rank == 0 && type.dtype == TOW_BOOL) return true;
    tow_trace_fail(c->t, TOW_TYPE_MISMATCH, "%s: the condition must write one value of type bool[], found %s", op,
                   tow__type_name(type).text);
    return false;
}

/* A carry that the body hands on as it is never changes. */
static bool is_handed_on(const closure *c, size_t carry)
{
    const tow_graph *g = c->bodies[BODY].graph;
    return g->outputs[carry] == g->inputs[c->outer.n + carry];
}

/* Graph k with the carries that the body hands on as further constants: (outer, handed on, carry). */
static tow_status separate_constants(closure *c, size_t k, tow_graph **result)
{
    const tow_graph *g = c->bodies[k].graph;
    tow_value *in, *out;
    tow_trace *t = tow__trace_begin_over(g, &in, &out);
    if (!t) return TOW_OUT_OF_MEMORY;
    for (int handed = 1; handed >= 0; handed--)
        for (size_t i = 0; i < g->n_inputs; i++) {
            bool constant = i < c->outer.n || is_handed_on(c, i - c->outer.n);
            if (constant == (bool)handed) in[i] = tow__input(t, tow_graph_input_type(g, i), NULL);
        }
    tow__inline(t, g, in, out);
    size_t n = 0;
    for (size_t i = 0; i < g->n_outputs; i++)
        if (k == CONDITION || !is_handed_on(c, i)) out[n++] = out[i];
    return tow__trace_end(t, n, out, false, result);
}

/* The bounds of a loop: on its iterations, and on the states that reverse mode keeps. */
typedef struct bounds {
    int64_t max_iterations, slots, file_slots;
} bounds;

static void bind_while(closure *c, bounds b, tow_value *results)
{
    size_t n = 0, n_in = c->outer.n + c->n_explicit, n_out = 0;
    tow_value *in = tow__trace_alloc(c->t, n_in, sizeof *in), *out = tow__trace_alloc(c->t, n_in, sizeof *out);
    tow__while_params params = {.max_iterations = b.max_iterations, .slots = b.slots, .file_slots = b.file_slots};
    if (!in || !out) return;
    for (int handed = 1; handed >= 0; handed--) {
        for (size_t i = 0; i < n_in; i++)
            if ((i < c->outer.n || is_handed_on(c, i - c->outer.n)) == (bool)handed) in[n++] = c->operands[i];
        if (handed) params.consts = (int64_t)n;
    }
    n_out = n_in - (size_t)params.consts;
    if (n_out > 0 && (separate_constants(c, CONDITION, &params.condition) != TOW_OK ||
                      separate_constants(c, BODY, &params.body) != TOW_OK))
        tow__adopt_error(c->t);
    else if (n_out > 0)
        tow__bind(c->t, &tow__while_p, &params, n_in, in, n_out, out);
    for (size_t i = 0, next = 0; i < c->n_explicit; i++)
        results[i] = is_handed_on(c, i) ? c->operands[c->outer.n + i] : out[next++];
    tow_graph_release(params.condition);
    tow_graph_release(params.body);
}

/* False: a bound or a schedule that such a loop cannot have, which is reported. */
static bool read_bounds(tow_trace *t, const char *op, int64_t max_iterations, const tow_scan_schedule *s, bounds *b)
{
    *b = (bounds){.max_iterations = max_iterations, .slots = s->slots, .file_slots = s->file_slots};
    const bool bounded = max_iterations >= 0 && max_iterations <= INT32_MAX;
    const bool in_range = s->slots >= 0 && s->file_slots >= 0 && s->slots <= INT32_MAX / 2 &&
                          s->file_slots <= INT32_MAX / 2 && (s->slots > 0 || s->file_slots == 0);
    const bool kept = in_range && s->every == 0 && s->levels == 0;
    if (!bounded)
        tow_trace_fail(t, TOW_INVALID_ARGUMENT,
                       "%s: max_iterations is %lld, expected a number from 0 (no bound) to 2^31 - 1", op,
                       (long long)max_iterations);
    else if (!kept)
        tow_trace_fail(t, TOW_INVALID_ARGUMENT,
                       "%s: the schedule has .every %lld, .levels %lld, .slots %lld and .file_slots %lld: expected "
                       ".slots alone, or with .file_slots, from 0 to 2^30, because the number of iterations is not "
                       "known before the loop ends",
                       op, (long long)s->every, (long long)s->levels, (long long)s->slots, (long long)s->file_slots);
    return bounded && kept;
}

static void repeat(tow_trace *t, const char *op, tow_branch condition, tow_branch body, bounds b, size_t n_carry,
                   const tow_value *carry, tow_value *carry_out)
{
    closure c;
    tow_type *types = tow__types_of(t, n_carry, carry);
    tow_value *results = tow__trace_alloc(t, n_carry, sizeof *results);
    if (!types || !results || !begin_closure(&c, t, 2, n_carry)) return;
    bool fine = tow__trace_body(t, condition.function, condition.user, n_carry, types, 1, &c.bodies[CONDITION]) &&
                tow__trace_body(t, body.function, body.user, n_carry, types, n_carry, &c.bodies[BODY]) &&
                close_closure(&c, carry) && condition_is_fine(&c, op) &&
                tow__carries_agree(t, op, c.bodies[BODY].graph, n_carry, carry);
    if (fine) {
        bind_while(&c, b, results);
        if (n_carry) memcpy(carry_out, results, n_carry * sizeof *results);
    }
    free_closure(&c);
}

void tow_while_function(tow_trace *trace, tow_function condition, tow_function body, void *user,
                        const tow_while_options *options, size_t n_carry, const tow_value *carry, tow_value *carry_out)
{
    const tow_value *operands = tow__operands_of(trace, "while", condition && body, (tow__listed){n_carry, carry},
                                                 (tow__listed){0}, (tow__listed){n_carry, carry_out}, (tow__listed){0});
    tow__clear(n_carry, carry_out);
    tow_while_options own;
    if (!TOW__TRACE_OPTIONS(trace, tow_while_options, options, &own)) return;
    const tow_while_options none = {0};
    if (!options) options = &none;
    bounds b;
    if (operands && read_bounds(trace, "while", options->max_iterations, &options->schedule, &b))
        repeat(trace, "while", (tow_branch){condition, user}, (tow_branch){body, user}, b, n_carry, operands,
               carry_out);
}

/* ---- fori -------------------------------------------------------------------------------------------------------- */

typedef struct counting {
    tow_branch body;
    size_t n_carry;
    tow_value upper;
} counting;

/* (carry, i) -> carry */
static void scan_step(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const counting *c = user;
    tow_value *all = tow__join(t, 1, &in[c->n_carry], c->n_carry, in);
    if (all) c->body.function(t, all, out, c->body.user);
}

static void below(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    out[0] = tow_lt(in[0], ((const counting *)user)->upper);
}

/* (i, carry) -> (i + 1, carry) */
static void count_up(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const counting *c = user;
    (void)t;
    out[0] = tow_add_scalar(in[0], 1);
    c->body.function(t, in, out + 1, c->body.user);
}

static bool numbers_are_fine(tow_trace *t, int64_t lower, int64_t upper)
{
    if (lower >= INT32_MIN && lower <= INT32_MAX && upper >= INT32_MIN && upper <= INT32_MAX) return true;
    tow_trace_fail(t, TOW_INVALID_ARGUMENT, "fori: the bounds are %lld and %lld, expected numbers that i32 holds",
                   (long long)lower, (long long)upper);
    return false;
}

static void fori_scan(tow_trace *t, int64_t lower, int64_t upper, const tow_fori_options *given, counting *c,
                      const tow_value *carry, tow_value *out)
{
    int64_t n = upper > lower ? upper - lower : 0;
    tow_scan_options options = TOW_SCAN_OPTIONS(.length = n, .has_length = true);
    if (given) options.schedule = given->schedule;
    tow_value i = tow_iota(t, tow_make_type(TOW_I32, 1, &n), 0);
    if (lower != 0) i = tow_add_scalar(i, (double)lower);
    tow_scan_function(t, scan_step, c, &options, c->n_carry, carry, 1, &i, 0, out, NULL);
}

/* A bound as a value of the type that the other one has. */
static tow_value bound_of(tow_trace *t, tow_value given, tow_value other, int64_t number)
{
    if (!tow_is_null(given)) return given;
    return tow_scalar(t, tow_value_type(other).dtype, (double)number);
}

static bool bounds_are_fine(tow_trace *t, tow_value lower, tow_value upper)
{
    tow_type a = tow_value_type(lower), b = tow_value_type(upper);
    bool fine = a.rank == 0 && tow_dtype_is_integer(a.dtype) && tow_type_equal(a, b);
    if (!fine && !tow__failed(t))
        tow_trace_fail(t, TOW_TYPE_MISMATCH,
                       "fori: the bounds are %s and %s, expected integer scalars of one type (i32[], say)",
                       tow__type_name(a).text, tow__type_name(b).text);
    return fine;
}

void tow_fori_function(tow_trace *trace, int64_t lower, int64_t upper, tow_function body, void *user,
                       const tow_fori_options *options, size_t n_carry, const tow_value *carry, tow_value *carry_out)
{
    const tow_value *operands = tow__operands_of(trace, "fori", body != NULL, (tow__listed){n_carry, carry},
                                                 (tow__listed){0}, (tow__listed){n_carry, carry_out}, (tow__listed){0});
    counting c = {.body = {body, user}, .n_carry = n_carry};
    tow__clear(n_carry, carry_out);
    if (!operands) return;
    tow_fori_options own;
    if (!TOW__TRACE_OPTIONS(trace, tow_fori_options, options, &own)) return;
    bool dynamic = options && (!tow_is_null(options->lower) || !tow_is_null(options->upper));
    if (!numbers_are_fine(trace, lower, upper)) return;
    if (!dynamic) {
        fori_scan(trace, lower, upper, options, &c, operands, carry_out);
        return;
    }
    tow_value first = bound_of(trace, options->lower, options->upper, lower);
    c.upper = bound_of(trace, options->upper, options->lower, upper);
    if (!bounds_are_fine(trace, first, c.upper)) return;
    tow_value *all = tow__join(trace, 1, &first, n_carry, operands);
    tow_value *last = tow__trace_alloc(trace, n_carry + 1, sizeof *last);
    if (!all || !last) return;
    bounds b;
    if (!read_bounds(trace, "fori", options->max_iterations, &options->schedule, &b)) return;
    repeat(trace, "fori", (tow_branch){below, &c}, (tow_branch){count_up, &c}, b, n_carry + 1, all, last);
    if (n_carry) memcpy(carry_out, last + 1, n_carry * sizeof *last);
}
