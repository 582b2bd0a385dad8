/* Smaller programs, as long as they fail. An edit goes to one equation, by its number in the program, nested ones
 * counted, and the rest of the program is recorded again around it; sizes are changed in the text. A text that is no
 * program after an edit was none. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "src/graph/builder.h"
#include "tests/programs/programs.h"

/* The ways to edit the equation. */
typedef enum edit_kind {
    CONSTANTS, /* results are constants; also those of `span` equations in all */
    OPERAND,   /* the result is operand `which`, if it has its type */
    EARLIER,   /* the result is value `which` of those with its type that are there */
    INLINE,    /* a region is its nested graph `which`, run once */
    SHORTER,   /* a scan has one iteration */
    POLICY,    /* the policy is `nothing` */
    KINDS
} edit_kind;

static const int most_which[KINDS] = {1, 3, 3, 4, 1, 1};

typedef struct edit {
    edit_kind kind;
    int which;
    uint32_t target, span;
    uint32_t next; /* the number of the equation at hand */
    bool done;     /* there was something to do */
} edit;

/* ---- one equation ------------------------------------------------------------------------------------------------ */

static tow_value constant_of(tow_trace *t, tow_type type)
{
    return tow_full(t, type, tow_dtype_is_float(type.dtype) ? 0.25 : 1);
}

/* values: of the graph, as far as they are recorded. Null: nothing fits. */
static tow_value earlier(const tow_graph *g, const tow_value *values, const tow__equation *e, int which)
{
    for (uint32_t v = 0; v < g->n_vars; v++)
        if (!tow_is_null(values[v]) && tow_type_equal(g->vars[v].type, g->vars[e->out[0]].type) && which-- == 0)
            return values[v];
    return (tow_value){0};
}

/* x[..., from row 0] as the body of a scan sees it, and back. */
static tow_value first_row(tow_value x)
{
    const tow_type type = tow_value_type(x);
    return tow_reshape(tow_slice_axis(x, 0, 0, 1), type.rank - 1, type.dims + 1);
}

static tow_value in_all_rows(tow_value row, tow_type all) { return tow_broadcast_to(row, all.rank, all.dims); }

/* The nested graph run once. False: there is none, or it does not run on what is there. */
static bool inline_nested(tow_trace *t, const tow_graph *g, const tow__equation *e, int which, const tow_value *x,
                          tow_value *y)
{
    const char *name = e->primitive->name;
    const uint32_t n = tow__nested_count(e->primitive, e->params);
    const bool choice = strcmp(name, "cond") == 0, loop = strcmp(name, "while") == 0, scan = strcmp(name, "scan") == 0;
    if (strcmp(name, "fori") == 0 || (uint32_t)which >= n || (which > 0 && !choice)) return false;
    const tow_graph *body = tow__nested(e->primitive, e->params, loop ? 1 : (uint32_t)which);
    tow_value *in = tow__trace_alloc(t, e->n_in, sizeof *in);
    if (in == NULL) abort();
    for (uint32_t i = choice; i < e->n_in; i++) in[i - choice] = x[i];
    const tow__scan_params *p = e->params;
    if (scan && p->length == 0) return false;
    for (uint32_t i = scan ? (uint32_t)(p->consts + p->carry) : e->n_in; i < e->n_in; i++) in[i] = first_row(x[i]);
    tow_inline(t, body, in, y);
    for (uint32_t i = scan ? (uint32_t)p->carry : e->n_out; i < e->n_out; i++)
        y[i] = in_all_rows(y[i], g->vars[e->out[i]].type);
    return true;
}

static bool shorten(tow_trace *t, const tow_graph *g, const tow__equation *e, const tow_value *x, tow_value *y)
{
    const tow__scan_params *old = e->params;
    if (strcmp(e->primitive->name, "scan") != 0 || old->length < 2) return false;
    tow__scan_params p = *old;
    tow_value *in = tow__trace_alloc(t, e->n_in, sizeof *in);
    if (in == NULL) abort();
    for (uint32_t i = 0; i < e->n_in; i++) in[i] = i < p.consts + p.carry ? x[i] : tow_slice_axis(x[i], 0, 0, 1);
    p.length = 1;
    tow__bind(t, e->primitive, &p, e->n_in, in, e->n_out, y);
    for (uint32_t i = (uint32_t)p.carry; i < e->n_out; i++)
        y[i] = in_all_rows(first_row(y[i]), g->vars[e->out[i]].type);
    return true;
}

static bool forget_policy(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    if (strcmp(e->primitive->name, "remat") != 0) return false;
    tow__remat_params p = *(const tow__remat_params *)e->params;
    if (p.policy == NULL || p.policy->kind == TOW_POLICY_NOTHING) return false;
    p.policy = NULL;
    tow__bind(t, e->primitive, &p, e->n_in, x, e->n_out, y);
    return true;
}

/* Records what the edit makes of equation e on operands x. False: there is nothing to do. */
static bool replace(tow_trace *t, const tow_graph *g, const tow__equation *e, const edit *by, const tow_value *values,
                    const tow_value *x, tow_value *y)
{
    const tow_type type = g->vars[e->out[0]].type;
    switch (by->kind) {
    case CONSTANTS:
        if (strcmp(e->primitive->name, "const") == 0 || strcmp(e->primitive->name, "broadcast_in_dim") == 0)
            return false;
        for (uint32_t i = 0; i < e->n_out; i++) y[i] = constant_of(t, g->vars[e->out[i]].type);
        return true;
    case OPERAND:
        if (e->n_out > 1 || (uint32_t)by->which >= e->n_in || !tow_type_equal(tow_value_type(x[by->which]), type))
            return false;
        y[0] = x[by->which];
        return true;
    case EARLIER:
        if (e->n_out > 1 || e->n_in == 0) return false;
        y[0] = earlier(g, values, e, by->which);
        return !tow_is_null(y[0]);
    case INLINE:
        return inline_nested(t, g, e, by->which, x, y);
    case SHORTER:
        return shorten(t, g, e, x, y);
    default:
        return forget_policy(t, e, x, y);
    }
}

/* ---- the program around it --------------------------------------------------------------------------------------- */

static tow_graph *edited(const tow_graph *g, edit *by);

static uint32_t count_nested(const tow__equation *e);

static uint32_t count_all(const tow_graph *g)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_equations; i++) n += 1 + count_nested(&g->equations[i]);
    return n;
}

static uint32_t count_nested(const tow__equation *e)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < tow__nested_count(e->primitive, e->params); k++)
        n += count_all(tow__nested(e->primitive, e->params, k));
    return n;
}

/* The equation again, with the edit in one of its nested graphs. */
static bool rebind_edited(tow_trace *t, const tow__equation *e, edit *by, const tow_value *x, tow_value *y)
{
    void *params;
    const uint32_t n = tow__nested_count(e->primitive, e->params);
    tow_graph *made[16] = {NULL};
    bool good = n <= 16 && tow__params_own(t, e->primitive, e->params, &params);
    for (uint32_t k = 0; k < n && good; k++) {
        made[k] = edited(tow__nested(e->primitive, e->params, k), by);
        good = made[k] != NULL;
        if (good) tow__set_nested(e->primitive, params, k, made[k]);
    }
    if (good) tow__bind(t, e->primitive, params, e->n_in, x, e->n_out, y);
    for (uint32_t k = 0; k < n && k < 16; k++) tow_graph_release(made[k]);
    return good;
}

static bool record_equation(tow_trace *t, const tow_graph *g, const tow__equation *e, edit *by, tow_value *values)
{
    tow_value *x = tow__trace_alloc(t, (size_t)e->n_in + 1, sizeof *x);
    tow_value *y = tow__trace_alloc(t, (size_t)e->n_out + 1, sizeof *y);
    const uint32_t number = by->next++, inside = count_nested(e);
    if (x == NULL || y == NULL) abort();
    for (uint32_t i = 0; i < e->n_in; i++) x[i] = values[e->in[i]];
    bool here = number >= by->target && number < by->target + by->span, good = true;
    if (here) here = replace(t, g, e, by, values, x, y);
    by->done = by->done || here;
    if (here || inside == 0 || by->target + by->span <= by->next || by->target >= by->next + inside) {
        by->next += inside;
        if (!here) tow__rebind(t, e, x, y);
    } else {
        good = rebind_edited(t, e, by, x, y);
    }
    for (uint32_t i = 0; i < e->n_out; i++) values[e->out[i]] = y[i];
    return good;
}

/* NULL: it cannot be edited so. */
static tow_graph *edited(const tow_graph *g, edit *by)
{
    tow_graph *result = NULL;
    tow_trace *t = tow__trace_begin(g->ctx);
    tow_value *values = t ? tow__trace_alloc(t, g->n_vars, sizeof *values) : NULL;
    tow_value *out = t ? tow__trace_alloc(t, g->n_outputs, sizeof *out) : NULL;
    bool good = true;
    if (values == NULL || out == NULL) abort();
    for (uint32_t i = 0; i < g->n_inputs; i++)
        values[g->inputs[i]] = tow__input(t, tow_graph_input_type(g, i), tow_graph_input_name(g, i));
    for (uint32_t i = 0; i < g->n_equations && good; i++) good = record_equation(t, g, &g->equations[i], by, values);
    for (uint32_t i = 0; i < g->n_outputs; i++) out[i] = values[g->outputs[i]];
    if (!good) return tow__trace_abandon(t), NULL;
    return tow__trace_end(t, g->n_outputs, out, false, &result) == TOW_OK ? result : NULL;
}

/* ---- inputs, outputs, sizes -------------------------------------------------------------------------------------- */

/* Without output i > 0, or, from n_outputs on, without the inputs that nobody reads. NULL: there is nothing to do. */
static tow_graph *without(const tow_graph *g, uint32_t i)
{
    bool *used = calloc(g->n_outputs + 1, sizeof *used);
    tow_graph *result = NULL;
    if (used == NULL) abort();
    for (uint32_t k = 0; k < g->n_outputs; k++) used[k] = k == 0 || k != i;
    if (i == 0 || tow__dce(g, used, i >= g->n_outputs, NULL, &result) != TOW_OK) result = NULL;
    free(used);
    if (result && i >= g->n_outputs && result->n_inputs == g->n_inputs) {
        tow_graph_release(result);
        result = NULL;
    }
    return result;
}

/* Every whole number `from` in the text becomes `to`. */
static tow_graph *resized(const tow_graph *g, int from, int to)
{
    char *text = text_of(g), *result = malloc(2 * strlen(text) + 1), *end = result;
    tow_graph *made = NULL;
    bool any = false;
    if (result == NULL) abort();
    for (const char *at = text; *at;) {
        const char *number = at;
        while (isalnum((unsigned char)*at) || *at == '.' || *at == '_' || *at == '-' || *at == '+') at++;
        const bool found = at > number && strspn(number, "0123456789") == (size_t)(at - number) && atoi(number) == from;
        if (at == number) at++;
        end += found ? sprintf(end, "%d", to) : (memcpy(end, number, (size_t)(at - number)), (int)(at - number));
        any = any || found;
    }
    *end = '\0';
    if (any && tow_graph_parse(g->ctx, result, &made) != TOW_OK) made = NULL;
    free(text);
    free(result);
    return made;
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

typedef struct search {
    tow_graph *g;
    bool (*fails)(const tow_graph *g, void *user);
    void *user;
    bool any;
} search;

/* Takes `candidate`: it becomes the program if it fails. */
static bool try_graph(search *s, tow_graph *candidate)
{
    tow_graph *clean = NULL;
    if (candidate == NULL) return false;
    const bool good = tow_graph_dce(candidate, &clean) == TOW_OK && s->fails(clean, s->user);
    tow_graph_release(candidate);
    if (!good) return tow_graph_release(clean), false;
    tow_graph_release(s->g);
    s->g = clean;
    return s->any = true;
}

static bool try_edit(search *s, edit e)
{
    tow_graph *candidate = edited(s->g, &e);
    if (candidate && e.done) return try_graph(s, candidate);
    tow_graph_release(candidate);
    return false;
}

/* Constants in place of many equations at once, from the last ones on; then of fewer. */
static void remove_spans(search *s)
{
    for (uint32_t span = count_all(s->g) / 2; span > 0; span /= 2)
        for (uint32_t n = count_all(s->g), at = n; at > 0;) {
            at = at > span ? at - span : 0;
            if (try_edit(s, (edit){.kind = CONSTANTS, .target = at, .span = span}) && at > count_all(s->g))
                at = count_all(s->g);
        }
}

static void edit_equations(search *s)
{
    for (int kind = OPERAND; kind < KINDS; kind++)
        for (uint32_t at = count_all(s->g); at-- > 0;)
            for (int which = 0; which < most_which[kind] && at < count_all(s->g); which++)
                if (try_edit(s, (edit){.kind = (edit_kind)kind, .which = which, .target = at, .span = 1})) which = -1;
}

static void change_sizes(search *s)
{
    for (int from = 2; from < 40; from++)
        for (int to = 1; to < from && to < 4; to++)
            if (try_graph(s, resized(s->g, from, to))) break;
}

tow_graph *shrink(tow_graph *g, bool (*fails)(const tow_graph *g, void *user), void *user)
{
    search s = {g, fails, user, true};
    for (int round = 0; round < 6 && s.any; round++) {
        s.any = false;
        remove_spans(&s);
        for (uint32_t i = s.g->n_outputs; i > 0; i--) try_graph(&s, without(s.g, i));
        edit_equations(&s);
        change_sizes(&s);
        try_graph(&s, without(s.g, s.g->n_outputs));
    }
    return s.g;
}
