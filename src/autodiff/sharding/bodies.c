/* Bodies of regions on shares: see sharding.h. Rows of a loop's operands and results are shares, each of the layers of
 * one iteration; carries and constants are whole. A region that runs once takes and gives shares as they are. */
#include "src/autodiff/loops.h"
#include "src/autodiff/sharding/sharding.h"
#include "tow/ops.h"

typedef enum region_kind {
    OTHER, /* all operands and results are whole */
    ONCE,
    LOOP
} region_kind;

static region_kind kind_of(const tow__equation *e, tow__region_form *form)
{
    if (!tow__is_region(e) || !tow__region_of(e, form)) return OTHER;
    if (form->conditions > 0 || form->branches != 1 || tow__nested_count(e->primitive, e->params) != 1) return OTHER;
    if (!form->repeats) return form->lead == 0 ? ONCE : OTHER;
    return form->counts || form->stops || form->slots > 0 || form->length < 1 ? OTHER : LOOP;
}

/* Layers of one iteration of a loop. */
static int64_t layers_of_row(const tow_graph *g, uint32_t var, const tow__region_form *form, int64_t layers)
{
    const tow_type *type = &g->vars[var].type;
    return type->rank > 0 && type->dims[0] == form->length && layers % form->length == 0 ? layers / form->length : 0;
}

int64_t tow__sharding_enters(const tow_graph *g, const tow__equation *e, uint32_t i, int64_t layers)
{
    tow__region_form form;
    const region_kind kind = kind_of(e, &form);
    if (kind == ONCE) return layers;
    if (kind == OTHER || i < form.lead + form.consts + form.carry) return 0;
    return layers_of_row(g, e->in[i], &form, layers);
}

int64_t tow__sharding_leaves(const tow_graph *g, const tow__equation *e, uint32_t k, int64_t layers)
{
    tow__region_form form;
    const region_kind kind = kind_of(e, &form);
    if (kind == ONCE) return layers;
    if (kind == OTHER || k < form.carry) return 0;
    return layers_of_row(g, e->out[k], &form, layers);
}

typedef struct body {
    const tow_graph *g;
    tow__sharding s;
    int64_t *in, *out; /* layers of shares */
    bool any;
} body;

static bool find_shares(tow_trace *t, const tow_graph *g, const tow__equation *e, const tow__region_form *form,
                        const tow__sharded_value *values, body *b)
{
    b->g = form->body;
    b->in = tow__trace_alloc(t, (size_t)e->n_in + 1, sizeof *b->in);
    b->out = tow__trace_alloc(t, (size_t)e->n_out + 1, sizeof *b->out);
    if (!b->in || !b->out) return false;
    for (uint32_t i = form->lead; i < e->n_in; i++) {
        const tow__sharded_value *x = &values[e->in[i]];
        if (x->is_share && !x->wants_whole) b->in[i - form->lead] = tow__sharding_enters(g, e, i, x->layers);
        b->any |= b->in[i - form->lead] > 0;
    }
    for (uint32_t k = 0; k < e->n_out; k++) {
        const tow__sharded_value *y = &values[e->out[k]];
        if (tow__wants_share_alone(y) && !tow__is_window(y->window))
            b->out[k] = tow__sharding_leaves(g, e, k, y->layers);
        b->any |= b->out[k] > 0;
    }
    b->s.in = b->in;
    b->s.out = b->out;
    return true;
}

/* A share [layers, n / N] as rows of a loop, [length, layers of one, n / N], and back. */
static tow_value as_rows(tow_value x, const tow__region_form *form)
{
    const tow_type type = tow_value_type(x);
    if (!form->repeats) return x;
    return tow_reshape(x, 3, (int64_t[]){form->length, type.dims[0] / form->length, type.dims[1]});
}

static tow_value as_layers(tow_value x, const tow__region_form *form)
{
    const tow_type type = tow_value_type(x);
    if (!form->repeats) return x;
    return tow_reshape(x, 2, (int64_t[]){type.dims[0] * type.dims[1], type.dims[2]});
}

static void bind(tow_trace *t, const tow__equation *e, const tow__region_form *form, tow_graph *g, const tow_value *in,
                 tow_value *out)
{
    void *params;
    if (!form->repeats) {
        if (!tow__params_own(t, e->primitive, e->params, &params)) return;
        tow__set_nested(e->primitive, params, form->conditions, g);
        tow__bind(t, e->primitive, params, e->n_in, in, e->n_out, out);
        return;
    }
    uint32_t *place = tow__trace_alloc(t, (size_t)g->n_inputs + 1, sizeof *place);
    if (!place) return;
    for (uint32_t i = 0; i < g->n_inputs; i++) place[i] = i;
    tow__loop_bind(t, e, g, form->consts, form->carry, place, e->n_in, in, out);
}

bool tow__sharding_region(tow_trace *t, const tow_graph *g, const tow__equation *e, const tow__sharding *s,
                          tow__sharded_value *values)
{
    tow__region_form form;
    tow_graph *on_shares = NULL;
    const region_kind kind = kind_of(e, &form);
    body b = {.s = {.group = s->group, .nested = kind == LOOP}};
    if (kind == OTHER) return false;
    tow_value *in = tow__trace_alloc(t, (size_t)e->n_in + e->n_out + 1, sizeof *in), *out = in + e->n_in;
    if (!in || !find_shares(t, g, e, &form, values, &b)) return true;
    if (!b.any) return false;
    if (tow__sharding_graph(b.g, &b.s, &on_shares) != TOW_OK) {
        tow__adopt_error(t);
        return true;
    }
    for (uint32_t i = 0; i < e->n_in; i++) {
        const bool share = i >= form.lead && b.in[i - form.lead] > 0;
        in[i] = share ? as_rows(values[e->in[i]].share, &form) : values[e->in[i]].whole;
    }
    if (!tow__failed(t)) bind(t, e, &form, on_shares, in, out);
    for (uint32_t k = 0; k < e->n_out && !tow__failed(t); k++)
        if (b.out[k] > 0)
            values[e->out[k]].share = as_layers(out[k], &form);
        else
            values[e->out[k]].whole = out[k];
    tow_graph_release(on_shares);
    return true;
}
