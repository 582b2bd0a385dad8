/* Walks through a graph with the axis along which each value has the rows of a batch: see rows.h. An equation passes
 * rows on (its tiling rule says so), sums over them (its rule of sums), is made of equations that do (its
 * decomposition), or is an error. */
#include "src/autodiff/rows/rows.h"
#include "src/ops/rules.h"

/* ---- rules that descriptors do not have -------------------------------------------------------------------------- */

enum {
    WRT_X = 1 /* bit 0 of the parameter `wrt` of derivatives of composites, result 0 of which is dx */
};

/* (x [..., C], w, labels, ...): rows of everything but w */
static bool loss_rows(const tow__operation *o, int axis, int *from)
{
    if (axis + 1 >= o->in[0].type.rank) return false;
    for (uint32_t i = 0; i < o->n_in; i++) from[i] = i == 1 ? TOW__WHOLE : axis;
    return true;
}

static int64_t loss_wrt(const tow__operation *o)
{
    return ((const tow__linear_cross_entropy_ad_params *)o->params)->wrt;
}

static bool loss_vjp_rows(const tow__operation *o, int axis, int *from)
{
    return loss_wrt(o) == WRT_X && loss_rows(o, axis, from);
}

static bool loss_vjp_sums(const tow__operation *o, uint32_t i, int axis, int *from)
{
    return i != 1 && !(loss_wrt(o) & WRT_X) && loss_rows(o, axis, from);
}

/* (parts [..., tiles, 3], labels [...]) */
static bool join_rows(const tow__operation *o, int axis, int *from)
{
    if (axis >= o->in[1].type.rank) return false;
    from[0] = from[1] = axis;
    return true;
}

/* All blocks draw what is drawn for the whole batch. */
static bool dropout_rows(const tow__operation *o, int axis, int *from)
{
    (void)o;
    from[0] = axis;
    return true;
}

/* Values that are made again are compared row by row. */
static bool same_rows(const tow__operation *o, int axis, int *from)
{
    for (uint32_t i = 0; i < o->n_in; i++) from[i] = axis;
    return true;
}

/* Plans do not tile these, or not by these rules. whole: only where all blocks are at hand. */
static const struct {
    const tow_primitive *primitive;
    tow__tiling_rule tile;
    tow__sum_rule sums;
    bool whole;
} others[] = {{&tow__linear_cross_entropy_p, loss_rows, NULL, false},
              {&tow__linear_cross_entropy_vjp_p, loss_vjp_rows, loss_vjp_sums, false},
              {&tow__linear_cross_entropy_parts_p, loss_rows, NULL, false},
              {&tow__linear_cross_entropy_join_p, join_rows, NULL, false},
              {&tow__same_bits_p, same_rows, NULL, false},
              {&tow__dropout_p, dropout_rows, NULL, true}};

static void find_rules(const tow_primitive *p, const tow__row_blocks *b, tow__tiling_rule *tile, tow__sum_rule *sums)
{
    *tile = p->tile;
    *sums = p->sums;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (others[i].primitive != p || (others[i].whole && tow__is_part(b))) continue;
        *tile = others[i].tile;
        *sums = others[i].sums;
    }
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

void tow__rows_fail(tow_trace *t, const tow__equation *e, const char *why)
{
    const tow__source *s = &e->source;
    tow_trace_fail(t, TOW_UNSUPPORTED,
                   "%s%s%s%s%s %s; sum or compare rows with operations that take them in order, "
                   "keep the batch in front, or leave .row_groups at 1",
                   s->here ? s->here : "", s->here ? ": " : "", s->scope ? s->scope : "", s->scope ? ": " : "",
                   e->primitive->name, why);
}

/* ---- equations --------------------------------------------------------------------------------------------------- */

tow_type tow__rows_type(const tow__row_blocks *b, tow_type type, int axis)
{
    if (axis != TOW__WHOLE) type.dims[axis] = tow__rows_of_part(b, type.dims[axis]);
    return type;
}

static bool alloc_equation(const tow__row_walk *w, const tow__equation *e, tow__row_equation *r)
{
    const size_t in = (size_t)e->n_in + 1, out = (size_t)e->n_out + 1;
    tow__view *views = tow__trace_alloc(w->t, in + out, sizeof *views);
    *r = (tow__row_equation){.e = e,
                             .x = tow__trace_alloc(w->t, in, sizeof *r->x),
                             .at = tow__trace_alloc(w->t, in, sizeof *r->at),
                             .from = tow__trace_alloc(w->t, in, sizeof *r->from),
                             .in = tow__trace_alloc(w->t, in, sizeof *r->in),
                             .out = tow__trace_alloc(w->t, out, sizeof *r->out),
                             .o = {e->params, e->n_in, e->n_out, views, views + in, e->primitive}};
    if (!views || !r->x || !r->at || !r->from || !r->in || !r->out) return false;
    for (uint32_t i = 0; i < e->n_in; i++) views[i] = tow__view_whole(0, w->g->vars[e->in[i]].type);
    for (uint32_t i = 0; i < e->n_out; i++) views[in + i] = tow__view_whole(0, w->g->vars[e->out[i]].type);
    for (uint32_t i = 0; i < e->n_in; i++) {
        r->x[i] = w->values[e->in[i]];
        r->at[i] = r->x[i].axis;
    }
    return true;
}

static void blank(const tow__row_equation *r)
{
    for (uint32_t i = 0; i < r->e->n_in; i++) r->from[i] = TOW__WHOLE;
}

/* Does the rule ask for the axes that have the rows? Other operands may be cut anywhere. */
static bool agrees(const tow__row_equation *r)
{
    for (uint32_t i = 0; i < r->e->n_in; i++) {
        if (r->at[i] != TOW__WHOLE && r->from[i] != r->at[i]) return false;
        if (r->from[i] >= r->o.in[i].type.rank) return false;
    }
    return true;
}

/* Sets the operands, those without rows cut to the blocks at hand where the rule needs that. */
static void take_operands(const tow__row_walk *w, const tow__row_equation *r)
{
    for (uint32_t i = 0; i < r->e->n_in; i++) {
        const bool cut = r->from[i] != TOW__WHOLE && r->at[i] == TOW__WHOLE;
        r->in[i] = cut ? tow__rows_cut(w, r->e->in[i], r->from[i]) : r->x[i].value;
    }
}

static void set_results(const tow__row_equation *r, int axis, const tow_primitive *sum, tow__row_value *y)
{
    for (uint32_t k = 0; k < r->e->n_out; k++) y[k] = (tow__row_value){.value = r->out[k], .axis = axis, .sum = sum};
}

bool *tow__rows_late_outputs(const tow__row_walk *w, const tow__equation *e, const tow_graph *g)
{
    uint32_t *uses = w->late ? tow__trace_alloc(w->t, (size_t)g->n_vars + 1, sizeof *uses) : NULL;
    bool *late = tow__trace_alloc(w->t, (size_t)g->n_vars + 1, sizeof *late);
    if (!late || (w->late && !uses)) return NULL;
    if (uses) tow__rows_count_uses(g, uses);
    for (uint32_t i = 0; w->late && i < e->n_out; i++)
        if (w->late[e->out[i]]) tow__rows_mark_late(g, uses, g->outputs[i], late);
    return late;
}

void tow__rows_complete(const tow__row_walk *w, tow__row_value *y)
{
    if (!w->blocks->group || !y->sum || y->late || tow__failed(w->t)) return;
    y->value = tow__rows_of_all(w->t, w->blocks->group, w->blocks->groups, y->sum, y->value);
    y->sum = NULL;
}

enum {
    SMALL = 1024, /* elements of a sum that travels with others: an exchange takes about as long for one and for all */
    BUCKET = 16 * SMALL, /* elements of all that travel together, at most, */
    MOST_SUMS = 64       /* and their number */
};

/* In loops each sum travels by itself, beside another iteration. */
static bool is_small(const tow__row_walk *w, const tow__row_value *y)
{
    if (w->nested || !w->blocks->group || !y->sum || y->late || tow__failed(w->t)) return false;
    const tow_type type = tow_value_type(y->value);
    return type.dtype == TOW_F32 && tow_type_element_count(type) <= SMALL;
}

/* Ends the sums of an equation, but for those that are turned around first, and small ones, which wait for others. */
static void complete_results(const tow__row_walk *w, const tow__equation *e, tow__row_value *y)
{
    for (uint32_t k = 0; k < e->n_out; k++) {
        if (y[k].sum == &tow__add_p && w->turned && w->turned[e->out[k]]) continue;
        y[k].waits = y[k].sum == &tow__add_p && is_small(w, &y[k]);
        if (!y[k].waits) tow__rows_complete(w, &y[k]);
    }
}

/* A product of fewer rows has the bits of the whole with the sizes of the whole. */
static void keep_sizes(const tow__row_walk *w, const tow__row_equation *r, void *params)
{
    if (r->e->primitive != &tow__dot_general_p || !tow__is_part(w->blocks)) return;
    tow__dot_params *p = params;
    int64_t *sizes[2] = {&p->rows, &p->columns};
    for (int side = 0; side < 2; side++) {
        const tow_type *x = &r->o.in[side].type;
        const tow__ints *contract = side ? &p->rhs_contract : &p->lhs_contract,
                        *batch = side ? &p->rhs_batch : &p->lhs_batch;
        int64_t n = 1;
        for (int a = 0; a < x->rank; a++)
            if (!tow__ints_contain(contract, a) && !tow__ints_contain(batch, a)) n *= x->dims[a];
        if (*sizes[side] == 0) *sizes[side] = n;
    }
}

static void bind_local(const tow__row_walk *w, const tow__row_equation *r, const void *params)
{
    const tow__equation *e = r->e;
    take_operands(w, r);
    if (!tow__failed(w->t)) tow__bind(w->t, e->primitive, params, e->n_in, r->in, e->n_out, r->out);
}

/* A copy of the parameters; NULL: there are none. */
static bool own_params(const tow__row_walk *w, const tow__row_equation *r, void **params)
{
    *params = NULL;
    return !r->e->params || tow__params_own(w->t, r->e->primitive, r->e->params, params);
}

/* A move: false if the equation is none. */
static bool record_move(const tow__row_walk *w, const tow__row_equation *r, tow__row_value *y)
{
    void *params;
    int axis;
    if (!own_params(w, r, &params)) return true;
    if (!tow__rows_move(r, w->blocks, &axis, params)) return false;
    if (axis == TOW__WHOLE) {
        tow__rows_fail(w->t, r->e, "mixes rows of the batch that belong to different row groups");
        return true;
    }
    bind_local(w, r, params);
    set_results(r, axis, NULL, y);
    return true;
}

static bool has_extent(const tow__row_equation *r, int64_t groups, int axis)
{
    for (uint32_t k = 0; k < r->e->n_out; k++) {
        const tow_type *type = &r->o.out[k].type;
        if (axis >= type->rank || type->dims[axis] != r->o.out[0].type.dims[axis]) return false;
    }
    return r->o.out[0].type.dims[axis] % groups == 0;
}

/* An axis of the results has the rows. */
static bool record_rows(const tow__row_walk *w, const tow__row_equation *r, tow__tiling_rule tile, tow__row_value *y)
{
    void *params;
    for (int axis = 0; r->e->n_out > 0 && axis < r->o.out[0].type.rank; axis++) {
        blank(r);
        if (!has_extent(r, w->blocks->groups, axis) || !tile(&r->o, axis, r->from) || !agrees(r)) continue;
        if (!own_params(w, r, &params)) return true;
        keep_sizes(w, r, params);
        bind_local(w, r, params);
        set_results(r, axis, NULL, y);
        return true;
    }
    return false;
}

/* Is a result a sum that is recorded later? */
static bool is_late(const tow__row_walk *w, const tow__equation *e)
{
    bool late = false;
    for (uint32_t k = 0; w->late && k < e->n_out; k++) late |= w->late[e->out[k]];
    return late && tow__rows_joining(e->primitive) == &tow__add_p;
}

void tow__rows_end_late(const tow__row_walk *w, tow__row_value *x)
{
    if (!x->late || tow__failed(w->t)) return;
    x->value = tow__rows_late_total(w->t, x->late, w->blocks);
    x->late = NULL;
    tow__rows_complete(w, x);
}

static void record_later(const tow__row_walk *w, const tow__row_equation *r, tow__row_value *y)
{
    if (!tow__failed(w->t)) tow__rows_later(w->t, r, w->blocks, y);
    for (uint32_t k = 0; k < r->e->n_out; k++)
        if (!w->late[r->e->out[k]]) tow__rows_end_late(w, &y[k]);
}

/* The results are sums over the rows. */
static bool record_sum(const tow__row_walk *w, const tow__row_equation *r, tow__sum_rule sums, tow__row_value *y)
{
    for (uint32_t i = 0; sums && i < r->e->n_in; i++) {
        if (r->at[i] == TOW__WHOLE) continue;
        blank(r);
        if (!sums(&r->o, i, r->at[i], r->from) || !agrees(r)) return false;
        take_operands(w, r);
        if (is_late(w, r->e)) {
            record_later(w, r, y);
            return true;
        }
        if (!tow__failed(w->t)) tow__rows_sum(w->t, r, w->blocks, r->out);
        set_results(r, TOW__WHOLE, tow__rows_joining(r->e->primitive), y);
        complete_results(w, r->e, y);
        return true;
    }
    return false;
}

static void record_equation(const tow__row_walk *w, const tow__equation *e, tow__row_value *y);

/* ---- derivatives of composites: dx has rows, others are sums over rows ------------------------------------------- */

/* The parameter `wrt` in a copy of the parameters; NULL: there is none. */
static int64_t *wrt_of(const tow_primitive *p, void *params)
{
    for (const tow__param *field = p->params; field && field->name; field++)
        if (strcmp(field->name, "wrt") == 0) return (int64_t *)(void *)((char *)params + field->offset);
    return NULL;
}

/* One equation for dx and one for the others. False: the equation is already one of these. */
static bool record_apart(const tow__row_walk *w, const tow__equation *e, tow__row_value *y)
{
    void *params[2];
    for (int i = 0; i < 2; i++)
        if (!e->params || !tow__params_own(w->t, e->primitive, e->params, &params[i])) return tow__failed(w->t);
    int64_t *first = wrt_of(e->primitive, params[0]), *rest = wrt_of(e->primitive, params[1]);
    if (!first || !(*first & WRT_X) || *first == WRT_X) return false;
    *first = WRT_X;
    *rest &= ~(int64_t)WRT_X;
    tow__equation *parts = tow__trace_alloc(w->t, 2, sizeof *parts);
    if (!parts) return true;
    parts[0] = parts[1] = *e;
    parts[0].params = params[0], parts[0].n_out = 1;
    parts[1].params = params[1], parts[1].n_out--, parts[1].out++;
    record_equation(w, &parts[0], y);
    record_equation(w, &parts[1], y + 1);
    return true;
}

/* The derivatives of a loss for the rows of one block: dx and dw of the same logits. The kernel gives both the bits
 * that each has by itself. */
static bool record_loss_of_block(const tow__row_walk *w, const tow__row_equation *r, tow__row_value *y)
{
    const tow__equation *e = r->e;
    if (e->primitive != &tow__linear_cross_entropy_vjp_p || e->n_out != 2 || w->blocks->count != 1) return false;
    blank(r);
    if (r->at[0] == TOW__WHOLE || (w->late && w->late[e->out[1]]) || !loss_rows(&r->o, r->at[0], r->from) || !agrees(r))
        return false;
    bind_local(w, r, e->params);
    y[0] = (tow__row_value){.value = r->out[0], .axis = r->at[0]};
    y[1] = (tow__row_value){.value = r->out[1], .axis = TOW__WHOLE, .sum = &tow__add_p};
    complete_results(w, e, y);
    return true;
}

/* ---- decompositions ---------------------------------------------------------------------------------------------- */

static bool record_parts(const tow__row_walk *w, const tow__row_equation *r, tow__row_value *y)
{
    const tow__equation *e = r->e;
    tow_type *types = tow__trace_alloc(w->t, (size_t)e->n_in + 1, sizeof *types);
    if (!e->primitive->decompose || !types) return types == NULL;
    for (uint32_t i = 0; i < e->n_in; i++) types[i] = r->o.in[i].type;
    tow_graph *g = tow__decomposition(w->t, e, types);
    tow__row_walk *inner = g ? tow__rows_begin(w->t, g, w->blocks) : NULL;
    if (inner) {
        inner->nested = w->nested;
        inner->late = tow__rows_late_outputs(w, e, g);
        for (uint32_t i = 0; i < g->n_inputs; i++) inner->values[g->inputs[i]] = r->x[i];
        tow__rows_walk(inner);
        for (uint32_t i = 0; i < g->n_outputs; i++) y[i] = inner->values[g->outputs[i]];
        for (uint32_t i = 0; i < g->n_outputs && !tow__failed(w->t); i++) /* equations of g end with it */
            if (y[i].late) y[i] = tow__rows_given(w->t, tow__rows_blocks(w->t, y[i].late, w->blocks));
    }
    tow_graph_release(g);
    return true;
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

/* Sums stay sums. */
static bool is_shared_move(const tow_primitive *p)
{
    return p == &tow__reshape_p || p == &tow__transpose_p || p == &tow__same_bits_p;
}

/* All operands are the same for all rows. */
static void record_shared(const tow__row_walk *w, const tow__row_equation *r, tow__row_value *y)
{
    for (uint32_t i = 0; i < r->e->n_in; i++) r->in[i] = r->x[i].value;
    tow__rebind(w->t, r->e, r->in, r->out);
    set_results(r, TOW__WHOLE, is_shared_move(r->e->primitive) ? r->x[0].sum : NULL, y);
    complete_results(w, r->e, y);
}

/* Operands that only a whole batch has: sums over rows, and what depends on them. */
static bool reads_sums(const tow__row_walk *w, const tow__row_equation *r)
{
    bool any = false;
    for (uint32_t i = 0; i < r->e->n_in; i++) any |= r->x[i].unknown || r->x[i].sum;
    return any && tow__waits_for_others(w->blocks);
}

static void leave_unknown(const tow__row_walk *w, const tow__row_equation *r, bool rows, tow__row_value *y)
{
    if (rows || w->nested)
        tow__rows_fail(
            w->t, r->e,
            "reads a sum over all rows of the batch, of which a part has only some: in a loop, compute what depends "
            "on parameters alone in front of it and pass that in, or leave .micro_batches at 1");
    for (uint32_t k = 0; k < r->e->n_out; k++) y[k] = (tow__row_value){.axis = TOW__WHOLE, .unknown = true};
}

/* index_add(x, indices, updates): x + the sum of the rows with an index, ... */
static bool record_index_add(const tow__row_walk *w, const tow__row_equation *r, tow__row_value *y)
{
    if (r->e->primitive != &tow__index_add_p || tow__has_rows(&r->x[0])) return false;
    tow__equation *e = tow__trace_alloc(w->t, 1, sizeof *e);
    tow__rows_params *params = tow__trace_alloc(w->t, 1, sizeof *params);
    tow__row_value sum = {.axis = TOW__WHOLE};
    if (!e || !params) return true;
    params->rows = r->o.in[0].type.dims[0];
    *e = *r->e;
    e->primitive = &tow__scatter_add_p;
    e->params = params;
    e->in++, e->n_in--;
    record_equation(w, e, &sum);
    tow__rows_complete(w, &sum);
    if (tow__failed(w->t)) return true;
    if (!tow__waits_for_others(w->blocks)) {
        *y = (tow__row_value){.value = tow_add(r->x[0].value, sum.value), .axis = TOW__WHOLE};
    } else {
        leave_unknown(w, r, false, y);
        y->addend = sum.value;
    }
    return true;
}

/* accumulator + a late sum: block by block. */
static void accumulate(const tow__row_walk *w, const tow__row_equation *r, tow__row_value *y)
{
    const int a = r->x[0].blocks ? 0 : 1;
    const int64_t n = w->blocks->count;
    const tow__row_value *term = &r->x[1 - a];
    const bool indexed = r->e->primitive == &tow__index_add_p;
    *y = (tow__row_value){.axis = TOW__WHOLE, .blocks = tow__trace_alloc(w->t, (size_t)n, sizeof(tow_value))};
    if (!y->blocks) return;
    memcpy(y->blocks, r->x[a].blocks, (size_t)n * sizeof *y->blocks);
    y->unknown = r->x[a].unknown || (indexed ? !tow__has_rows(&r->x[1]) || r->x[1].axis != r->x[2].axis : !term->late);
    if (y->unknown) return;
    r->from[0] = TOW__WHOLE;
    for (uint32_t i = 1; i < r->e->n_in; i++) r->from[i] = r->at[i];
    take_operands(w, r);
    for (int64_t k = 0; k < n && !tow__failed(w->t); k++) {
        tow_value in[3];
        if (indexed)
            for (uint32_t i = 1; i < 3; i++) in[i] = tow__rows_slice(r->in[i], r->at[i], n, k);
        else
            in[1 - a] = tow__rows_block(w->t, term->late, w->blocks, k);
        in[a] = r->x[a].blocks[k];
        tow__set_source(w->t, &r->e->source);
        if (!tow__failed(w->t)) tow__rebind(w->t, r->e, in, &y->blocks[k]);
    }
}

/* Operands of a region that goes on with the blocks of late sums; others are ended. False: it goes on with none. */
static bool go_on(const tow__row_walk *w, const tow__row_equation *r, tow__row_value *x)
{
    bool any = false;
    uint32_t k;
    memcpy(x, r->x, r->e->n_in * sizeof *x);
    for (uint32_t i = 0; i < r->e->n_in && !tow__failed(w->t); i++) {
        any |= x[i].blocks != NULL;
        if (!x[i].late) continue;
        if (tow__rows_goes_on(w, r->e, i, &k)) {
            x[i].blocks = tow__rows_blocks(w->t, x[i].late, w->blocks);
            x[i].late = NULL;
            any = true;
        } else {
            tow__rows_end_late(w, &x[i]);
        }
    }
    return any;
}

/* A loop adds to late sums before it, and so does a region to accumulators. False: there are none, or a loop adds
 * something else to a late sum, for which it needs the whole one. */
static bool record_further(const tow__row_walk *w, const tow__row_equation *r, tow__row_value *y)
{
    uint32_t k;
    tow__row_equation with = *r;
    with.x = tow__trace_alloc(w->t, (size_t)r->e->n_in + 1, sizeof *with.x);
    if (!with.x) return true;
    if (!tow__is_region(r->e) || !go_on(w, r, with.x)) return false;
    if (!tow__failed(w->t)) tow__rows_region(w, &with, y);
    for (uint32_t i = 0; i < r->e->n_in && !tow__failed(w->t); i++)
        if (r->x[i].late && tow__rows_goes_on(w, r->e, i, &k) && y[k].unknown) return false;
    for (uint32_t i = 0; i < r->e->n_in && !tow__failed(w->t); i++) {
        if (!r->x[i].late || !tow__rows_goes_on(w, r->e, i, &k)) continue;
        y[k] = tow__rows_given(w->t, y[k].blocks);
        if (!w->late[r->e->out[k]]) tow__rows_end_late(w, &y[k]);
    }
    return true;
}

/* A move of a late sum, or the sum of two, is late as well. Else late operands are ended. */
static bool record_late(const tow__row_walk *w, const tow__row_equation *r, tow__row_value *y)
{
    const tow__equation *e = r->e;
    const bool moves = tow__rows_moves_late(w->g, e);
    const bool adds = e->primitive == &tow__add_p && r->x[0].late && r->x[1].late;
    if ((moves && r->x[0].late) || adds) {
        *y = tow__rows_later_of(w->t, e, r->x[0].late, adds ? r->x[1].late : NULL);
        return true;
    }
    if (record_further(w, r, y)) return true;
    for (uint32_t i = 0; i < e->n_in; i++) tow__rows_end_late(w, &r->x[i]);
    return false;
}

static void record_with_rows(const tow__row_walk *w, const tow__row_equation *r, tow__row_value *y)
{
    tow__tiling_rule tile;
    tow__sum_rule sums;
    find_rules(r->e->primitive, w->blocks, &tile, &sums);
    if (tow__is_region(r->e))
        tow__rows_region(w, r, y);
    else if (!record_move(w, r, y) && !record_rows(w, r, tile, y) && !record_sum(w, r, sums, y) &&
             !record_loss_of_block(w, r, y) && !record_apart(w, r->e, y) && !record_parts(w, r, y))
        tow__rows_fail(w->t, r->e, "mixes rows of the batch, or does with them what has no rule for row groups");
}

static void record_equation(const tow__row_walk *w, const tow__equation *e, tow__row_value *y)
{
    tow__row_equation r;
    bool rows = false, blocks = false;
    for (uint32_t k = 0; k < e->n_out; k++) y[k] = (tow__row_value){.axis = TOW__WHOLE};
    if (!alloc_equation(w, e, &r)) return;
    for (uint32_t i = 0; i < e->n_in; i++) {
        rows |= tow__has_rows(&r.x[i]);
        blocks |= r.x[i].blocks != NULL;
    }
    if (blocks && !tow__is_region(e))
        accumulate(w, &r, y);
    else if (record_late(w, &r, y))
        return;
    else if (blocks)
        tow__rows_region(w, &r, y);
    else if (rows && record_index_add(w, &r, y))
        return;
    else if (reads_sums(w, &r) && !(is_shared_move(e->primitive) && r.x[0].sum))
        leave_unknown(w, &r, rows, y);
    else if (rows)
        record_with_rows(w, &r, y);
    else
        record_shared(w, &r, y);
}

/* Values that are turned around, and nothing else: so are the parts of a sum of which processes keep their shares,
 * because a share of the sum has other elements than one of what is turned around. NULL: no memory. */
static const bool *find_turned(tow_trace *t, const tow_graph *g)
{
    uint32_t *readers = tow__trace_alloc(t, (size_t)g->n_vars + 1, sizeof *readers);
    bool *turned = tow__trace_alloc(t, (size_t)g->n_vars + 1, sizeof *turned);
    if (!readers || !turned) return NULL;
    for (uint32_t i = 0; i < g->n_outputs; i++) readers[g->outputs[i]]++;
    for (uint32_t i = 0; i < g->n_equations; i++) {
        const tow__equation *e = &g->equations[i];
        for (uint32_t j = 0; j < e->n_in; j++)
            readers[e->in[j]]++, turned[e->in[j]] = e->primitive == &tow__transpose_p;
    }
    for (uint32_t v = 0; v < g->n_vars; v++) turned[v] = turned[v] && readers[v] == 1;
    return turned;
}

tow__row_walk *tow__rows_begin(tow_trace *t, const tow_graph *g, const tow__row_blocks *blocks)
{
    tow__row_walk *w = tow__trace_alloc(t, 1, sizeof *w);
    if (!w) return NULL;
    *w = (tow__row_walk){.t = t, .g = g, .blocks = blocks};
    w->values = tow__trace_alloc(t, (size_t)g->n_vars + 1, sizeof *w->values);
    if (blocks->scatters) w->turned = find_turned(t, g);
    return w->values && (w->turned || !blocks->scatters) ? w : NULL;
}

/* Small sums that become those over all processes in one exchange, with the tree of each element as by itself. */
typedef struct bucket {
    uint32_t vars[MOST_SUMS], n;
    int64_t elements;
    const tow__source *source; /* of the last one */
} bucket;

static void end_bucket(const tow__row_walk *w, bucket *b)
{
    tow_value parts[MOST_SUMS];
    int64_t at = 0;
    if (b->n == 0 || tow__failed(w->t)) return;
    tow__set_source(w->t, b->source);
    for (uint32_t i = 0; i < b->n; i++) {
        const tow_value x = w->values[b->vars[i]].value;
        parts[i] = b->n == 1 ? x : tow_reshape(x, 1, (int64_t[]){tow_type_element_count(tow_value_type(x))});
    }
    const tow_value all = tow__rows_of_all(w->t, w->blocks->group, w->blocks->groups, &tow__add_p,
                                           b->n == 1 ? parts[0] : tow_concatenate(b->n, parts, 0));
    for (uint32_t i = 0; i < b->n && !tow__failed(w->t); i++) {
        tow__row_value *y = &w->values[b->vars[i]];
        const tow_type type = tow_value_type(y->value);
        const int64_t end = at + tow_type_element_count(type);
        y->value = b->n == 1 ? all : tow_reshape(tow_slice_axis(all, 0, at, end), type.rank, type.dims);
        y->sum = NULL;
        y->waits = false;
        at = end;
    }
    tow__set_source(w->t, NULL);
    b->n = 0;
    b->elements = 0;
}

/* Does the equation read one of the sums that wait? */
static bool reads_waiting(const tow__row_walk *w, const tow__equation *e)
{
    for (uint32_t i = 0; i < e->n_in; i++)
        if (w->values[e->in[i]].waits) return true;
    return false;
}

static void set_values(const tow__row_walk *w, const tow__equation *e, const tow__row_value *y, bucket *b)
{
    for (uint32_t k = 0; k < e->n_out; k++) {
        w->values[e->out[k]] = y[k];
        if (!y[k].waits || tow__failed(w->t)) continue;
        const int64_t n = tow_type_element_count(tow_value_type(y[k].value));
        if (b->n == MOST_SUMS || b->elements + n > BUCKET) end_bucket(w, b);
        b->vars[b->n++] = e->out[k];
        b->elements += n;
        b->source = &e->source;
    }
}

/* Marks sums that a loop goes on with. */
static void mark_chains(tow__row_walk *w)
{
    uint32_t *uses = tow__trace_alloc(w->t, (size_t)w->g->n_vars + 1, sizeof *uses);
    bool *late = tow__trace_alloc(w->t, (size_t)w->g->n_vars + 1, sizeof *late);
    uint32_t k;
    if (!uses || !late) return;
    tow__rows_count_uses(w->g, uses);
    if (w->late) memcpy(late, w->late, w->g->n_vars * sizeof *late);
    for (uint32_t i = 0; i < w->g->n_equations; i++) {
        const tow__equation *e = &w->g->equations[i];
        for (uint32_t j = 0; tow__is_region(e) && j < e->n_in; j++)
            if (tow__rows_goes_on(w, e, j, &k)) tow__rows_mark_late(w->g, uses, e->in[j], late);
    }
    w->late = late;
}

void tow__rows_walk(tow__row_walk *w)
{
    mark_chains(w);
    size_t widest = 1;
    bucket b = {.n = 0};
    for (uint32_t i = 0; i < w->g->n_equations; i++)
        if (w->g->equations[i].n_out > widest) widest = w->g->equations[i].n_out;
    tow__row_value *y = tow__trace_alloc(w->t, widest, sizeof *y);
    for (uint32_t i = 0; y && i < w->g->n_equations && !tow__failed(w->t); i++) {
        const tow__equation *e = &w->g->equations[i];
        if (reads_waiting(w, e)) end_bucket(w, &b);
        tow__set_source(w->t, &e->source);
        record_equation(w, e, y);
        tow__set_source(w->t, NULL);
        set_values(w, e, y, &b);
    }
    end_bucket(w, &b);
}
