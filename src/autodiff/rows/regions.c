/* Bodies of regions: see rows.h. A body gets the axes of its operands; a part has one operand more, the number of its
 * first block.
 *
 *   loops    a carry has rows along an axis if it starts so or the body makes it so, a fixpoint over the body. A carry
 *            to which each iteration adds a sum over rows, the gradient of a weight that all iterations share, becomes
 *            one for each block: the tree is over blocks of (sums over iterations) */
#include "src/autodiff/loops.h"
#include "src/autodiff/rows/rows.h"
#include "src/base/dtypes.h"
#include "src/ops/rules.h"
#include "tow/numpy.h"
#include "tow/ops.h"

enum {
    AS_IT_FALLS = TOW__WHOLE - 1
};

typedef struct body {
    const tow__row_walk *outer;
    const tow_graph *g;
    int *axes, *out_axes;       /* of inputs; of outputs, AS_IT_FALLS at first where nothing is asked for */
    bool *accumulator;          /* [n_inputs] has a value for each block */
    bool *unknown;              /* [n_inputs] an accumulator to which something else was added */
    bool *passes;               /* [n_outputs] an accumulator, with what the body adds */
    const bool *late;           /* [n_vars] sums that accumulators add */
    const tow_primitive **sums; /* [n_outputs] of a part: over its rows alone, and what joins two of them */
    bool *fixed;                /* [n_outputs] a branch gives something else, which is no zeros */
    bool *blockwise;            /* [n_outputs] of a body that runs once: a late sum, which leaves as its blocks */
    uint32_t n_carry;           /* outputs that are carries */
    bool *broken;               /* [n_outputs] of an accumulator: something else is added */
} body;

static bool alloc_body(const tow__row_walk *w, const tow_graph *g, body *b)
{
    const size_t in = (size_t)g->n_inputs + 1, out = (size_t)g->n_outputs + 1;
    *b = (body){.outer = w,
                .g = g,
                .axes = tow__trace_alloc(w->t, in, sizeof *b->axes),
                .out_axes = tow__trace_alloc(w->t, out, sizeof *b->out_axes),
                .sums = tow__trace_alloc(w->t, out, sizeof *b->sums),
                .fixed = tow__trace_alloc(w->t, out, sizeof *b->fixed),
                .accumulator = tow__trace_alloc(w->t, in, sizeof *b->accumulator),
                .unknown = tow__trace_alloc(w->t, in, sizeof *b->unknown),
                .passes = tow__trace_alloc(w->t, out, sizeof *b->passes),
                .blockwise = tow__trace_alloc(w->t, out, sizeof *b->blockwise),
                .broken = tow__trace_alloc(w->t, out, sizeof *b->broken)};
    if (!b->axes || !b->out_axes || !b->sums || !b->fixed || !b->blockwise || !b->broken || !b->accumulator ||
        !b->unknown || !b->passes)
        return false;
    for (uint32_t i = 0; i < g->n_inputs; i++) b->axes[i] = TOW__WHOLE;
    for (uint32_t i = 0; i < g->n_outputs; i++) b->out_axes[i] = AS_IT_FALLS;
    return true;
}

static const tow__equation *maker_of(const tow_graph *g, uint32_t var)
{
    return g->vars[var].equation == TOW__INPUT ? NULL : &g->equations[g->vars[var].equation];
}

/* ---- recording a body -------------------------------------------------------------------------------------------- */

static void add_inputs(const body *b, tow__row_walk *w)
{
    for (uint32_t i = 0; i < b->g->n_inputs; i++) {
        const tow_type type = b->g->vars[b->g->inputs[i]].type;
        tow__row_value *x = &w->values[b->g->inputs[i]];
        *x = (tow__row_value){.axis = b->axes[i]};
        if (!b->accumulator[i]) {
            x->value = tow__input(w->t, tow__rows_type(w->blocks, type, x->axis), b->g->input_names[i]);
            continue;
        }
        x->unknown = b->unknown[i];
        x->blocks = tow__trace_alloc(w->t, (size_t)w->blocks->count, sizeof *x->blocks);
        for (int64_t k = 0; x->blocks && k < w->blocks->count; k++) x->blocks[k] = tow__input(w->t, type, NULL);
    }
}

/* Is the value zeros? */
static bool is_zeros(tow_trace *t, tow_value x)
{
    tow__equation e;
    uint32_t result;
    if (!tow__made_by(t, x, &e, &result)) return false;
    if (e.primitive == &tow__broadcast_in_dim_p) return is_zeros(t, tow__value_of(t, e.in[0]));
    if (e.primitive != &tow__const_p) return false;
    const tow_array *array = ((const tow__const_params *)e.params)->value;
    const tow_type type = tow_array_type(array);
    return type.rank == 0 && tow_dtype_is_float(type.dtype) &&
           tow__load_element(type.dtype, tow_array_data(array), 0).f == 0;
}

static void forget_sums(const body *b)
{
    memset(b->sums, 0, b->g->n_outputs * sizeof(const tow_primitive *));
    memset(b->fixed, 0, b->g->n_outputs * sizeof *b->fixed);
    memset(b->broken, 0, b->g->n_outputs * sizeof *b->broken);
}

/* Notes what output i is: a sum if any branch gives one. */
static void note_sum(const body *b, const tow__row_walk *w, uint32_t i)
{
    const tow__row_value *y = &w->values[b->g->outputs[i]];
    if (y->sum && tow__waits_for_others(w->blocks) && (i < b->n_carry || (b->sums[i] && b->sums[i] != y->sum)))
        tow__rows_fail(w->t, maker_of(b->g, b->g->outputs[i]),
                       "makes a sum over all rows that the next iteration reads, of which a part has only some");
    if (y->sum)
        b->sums[i] = y->sum;
    else if (!tow_is_null(y->value))
        b->fixed[i] |= !is_zeros(w->t, y->value);
}

/* Appends output i to out; returns how many values it is. */
static size_t add_output(const body *b, tow__row_walk *w, uint32_t i, tow_value *out)
{
    const uint32_t var = b->g->outputs[i];
    tow__row_value *y = &w->values[var];
    b->blockwise[i] = b->blockwise[i] && (y->late || (!tow_is_null(y->value) && is_zeros(w->t, y->value)));
    if (b->blockwise[i]) {
        for (int64_t k = 0; k < w->blocks->count; k++)
            out[k] = y->late ? tow__rows_block(w->t, y->late, w->blocks, k) : y->value;
        b->out_axes[i] = TOW__WHOLE;
        return (size_t)w->blocks->count;
    }
    tow__rows_end_late(w, y);
    b->passes[i] = y->blocks != NULL;
    if (y->blocks) {
        memcpy(out, y->blocks, (size_t)w->blocks->count * sizeof *out);
        b->out_axes[i] = TOW__WHOLE;
        b->broken[i] |= y->unknown;
        return (size_t)w->blocks->count;
    }
    *out = y->value;
    if (b->out_axes[i] == AS_IT_FALLS)
        b->out_axes[i] = y->axis;
    else if (y->axis == TOW__WHOLE && b->out_axes[i] != TOW__WHOLE)
        *out = tow__rows_cut(w, var, b->out_axes[i]);
    else if (y->axis != b->out_axes[i])
        b->out_axes[i] = y->axis;
    note_sum(b, w, i);
    return 1;
}

static tow_status record_body(const body *b, tow_graph **result)
{
    const int64_t count = b->outer->blocks->count;
    tow__row_blocks blocks = *b->outer->blocks;
    tow_trace *t = tow__trace_begin(b->g->ctx);
    *result = NULL;
    if (!t) return TOW_OUT_OF_MEMORY;
    if (tow__is_part(&blocks)) blocks.first = tow__input(t, tow_make_type(TOW_I32, 0, NULL), NULL);
    tow__row_walk *w = tow__rows_begin(t, b->g, &blocks);
    tow_value *out = tow__trace_alloc(t, (size_t)(b->g->n_outputs + 1) * (size_t)count, sizeof *out);
    size_t n = 0;
    if (w && out) {
        w->nested = true;
        w->late = b->late;
        add_inputs(b, w);
        tow__rows_walk(w);
        for (uint32_t i = 0; i < b->g->n_outputs && !tow__failed(t); i++) n += add_output(b, w, i, out + n);
    }
    return tow__trace_end(t, n, out, true, result);
}

/* The axes of the operands from `first` on, of which the inputs of a body have the rows. */
static void take_axes(const body *b, const tow__row_equation *r, uint32_t first)
{
    for (uint32_t i = first; i < r->e->n_in; i++) b->axes[i - first] = r->x[i].axis;
}

/* The operands: lead, number of the first block, the others. Returns how many. */
static uint32_t list_operands(const tow__row_walk *w, const tow__row_equation *r, uint32_t lead, tow_value *in)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < lead; i++) in[n++] = r->x[i].value;
    if (tow__is_part(w->blocks)) in[n++] = w->blocks->first;
    return n;
}

static void set_results(const body *b, tow_value *out, uint32_t n, tow__row_value *y)
{
    const tow__row_walk *w = b->outer;
    for (uint32_t i = 0; i < n; i++) {
        const bool blocks = b->passes[i] || b->blockwise[i];
        if (b->passes[i])
            y[i] = (tow__row_value){.axis = TOW__WHOLE, .blocks = out, .unknown = b->broken[i]};
        else if (b->blockwise[i])
            y[i] = tow__rows_given(w->t, out);
        else
            y[i] = (tow__row_value){.value = *out, .axis = b->out_axes[i], .sum = b->sums[i]};
        out += blocks ? w->blocks->count : 1;
    }
}

/* ---- accumulators ------------------------------------------------------------------------------------------------ */

/* Values of a graph on their way from an input to what is added up with it. */
typedef struct way {
    tow_trace *t;
    const tow_graph *g;
    const uint32_t *uses; /* [n_vars] readers, outputs counted */
    const bool *begins;   /* [n_vars] inputs that are such beginnings; NULL: `input` alone */
    uint32_t input;
} way;

static bool leads_to(const way *w, uint32_t var);

/* Does output k of a body lead to its input i? A condition may not read it. */
static bool body_passes_on(tow_trace *t, const tow_graph *g, bool condition, uint32_t i, uint32_t k)
{
    uint32_t *uses = tow__trace_alloc(t, (size_t)g->n_vars + 1, sizeof *uses);
    if (!uses) return false;
    tow__rows_count_uses(g, uses);
    const way w = {.t = t, .g = g, .uses = uses, .input = g->inputs[i]};
    return condition ? uses[w.input] == 0 : leads_to(&w, g->outputs[k]);
}

/* Does result k of a region lead to its operand i, in all bodies that may run? */
static bool passes_on(tow_trace *t, const tow__equation *e, uint32_t i, uint32_t k)
{
    tow__region_form form;
    bool passes = tow__region_of(e, &form) && tow__is_region(e) && i >= form.lead;
    if (passes && form.repeats) passes = k < form.carry && i == form.lead + form.consts + k;
    for (uint32_t c = 0; passes && c < form.conditions + form.branches; c++)
        passes = body_passes_on(t, tow__nested(e->primitive, e->params, c), c < form.conditions, i - form.lead, k);
    return passes;
}

/* The operand of the maker of var that leads to the input; -1: none. */
static int64_t side_of(const way *w, uint32_t var)
{
    const tow__equation *e = maker_of(w->g, var);
    uint32_t k = 0;
    const bool adds = e && e->primitive == &tow__add_p, adds_rows = e && e->primitive == &tow__index_add_p;
    if (!e || !(adds || adds_rows || tow__is_region(e))) return -1;
    while (e->out[k] != var) k++;
    for (uint32_t i = 0; i < (adds_rows ? 1 : e->n_in); i++)
        if (leads_to(w, e->in[i]) && (adds || adds_rows || passes_on(w->t, e, i, k))) return i;
    return -1;
}

static bool is_beginning(const way *w, uint32_t var) { return w->begins ? w->begins[var] : var == w->input; }

/* Is var the input plus terms, and nothing else reads the sums between? */
static bool leads_to(const way *w, uint32_t var)
{
    if (w->uses[var] != 1) return false;
    return is_beginning(w, var) || side_of(w, var) >= 0;
}

/* The terms are sums that are recorded where they are added. */
static void mark_terms(const way *w, uint32_t var, bool *late)
{
    while (!is_beginning(w, var)) {
        const tow__equation *e = maker_of(w->g, var);
        const uint32_t side = (uint32_t)side_of(w, var);
        if (e->primitive == &tow__add_p) tow__rows_mark_late(w->g, w->uses, e->in[1 - side], late);
        var = e->in[side];
    }
}

/* Marks what the body adds to accumulators. False: no memory. */
static bool mark_added(const body *b, bool *late)
{
    const tow_graph *g = b->g;
    uint32_t *uses = tow__trace_alloc(b->outer->t, (size_t)g->n_vars + 1, sizeof *uses);
    bool *begins = tow__trace_alloc(b->outer->t, (size_t)g->n_vars + 1, sizeof *begins);
    if (!uses || !begins) return false;
    tow__rows_count_uses(g, uses);
    for (uint32_t i = 0; i < g->n_inputs; i++) begins[g->inputs[i]] = b->accumulator[i];
    const way w = {.t = b->outer->t, .g = g, .uses = uses, .begins = begins};
    for (uint32_t k = 0; k < g->n_outputs; k++)
        if (leads_to(&w, g->outputs[k])) mark_terms(&w, g->outputs[k], late);
    return true;
}

/* ---- bodies that run once ---------------------------------------------------------------------------------------- */

/* All branches, whose results have rows along the same axes. */
static bool record_branches(body *b, const tow__row_equation *r, uint32_t first, uint32_t n, tow_graph **graphs)
{
    bool again = true;
    while (again) {
        again = false;
        forget_sums(b);
        for (uint32_t k = 0; k < n; k++) {
            b->g = tow__nested(r->e->primitive, r->e->params, first + k);
            bool *late = tow__rows_late_outputs(b->outer, r->e, b->g);
            if (!late || !mark_added(b, late)) return false;
            b->late = late;
            tow_graph_release(graphs[k]);
            graphs[k] = NULL;
            int *asked = tow__trace_alloc(b->outer->t, (size_t)b->g->n_outputs + 1, sizeof *asked);
            bool *blockwise = tow__trace_alloc(b->outer->t, (size_t)b->g->n_outputs + 1, sizeof *blockwise);
            if (!asked || !blockwise) return false;
            memcpy(asked, b->out_axes, b->g->n_outputs * sizeof *asked);
            memcpy(blockwise, b->blockwise, b->g->n_outputs * sizeof *blockwise);
            if (record_body(b, &graphs[k]) != TOW_OK) {
                tow__adopt_error(b->outer->t);
                return false;
            }
            for (uint32_t i = 0; i < b->g->n_outputs; i++) {
                again |= blockwise[i] != b->blockwise[i]; /* this branch gives no late sum */
                if (asked[i] == AS_IT_FALLS || asked[i] == b->out_axes[i]) continue;
                if (asked[i] != TOW__WHOLE) {
                    tow__rows_fail(b->outer->t, r->e, "has branches whose results have the rows along different axes");
                    return false;
                }
                again = true; /* an earlier branch has to give rows, too */
            }
        }
    }
    for (uint32_t i = 0; i < b->g->n_outputs; i++)
        if (b->sums[i] && b->fixed[i] && tow__waits_for_others(b->outer->blocks))
            tow__rows_fail(b->outer->t, r->e,
                           "chooses between a sum over rows, of which a part has only some, and another value");
    return true;
}

static void run_once(const tow__row_walk *w, const tow__row_equation *r, const tow__region_form *form,
                     tow__row_value *y)
{
    const tow__equation *e = r->e;
    body b;
    void *params;
    const size_t count = (size_t)w->blocks->count;
    tow_value *in = tow__trace_alloc(w->t, (size_t)e->n_in * count + 1, sizeof *in);
    tow_graph **graphs = tow__trace_alloc(w->t, form->branches, sizeof *graphs);
    tow_value *out = tow__trace_alloc(w->t, (size_t)e->n_out * count + 1, sizeof *out);
    if (!in || !graphs || !out || !alloc_body(w, form->body, &b)) return;
    if (!tow__params_own(w->t, e->primitive, e->params, &params)) return;
    for (uint32_t i = 0; i < form->lead; i++)
        if (tow__has_rows(&r->x[i])) tow__rows_fail(w->t, e, "chooses by a row of the batch");
    take_axes(&b, r, form->lead);
    for (uint32_t i = 0; w->late && i < e->n_out; i++) b.blockwise[i] = w->late[e->out[i]];
    for (uint32_t i = form->lead; i < e->n_in; i++) {
        b.accumulator[i - form->lead] = r->x[i].blocks != NULL;
        b.unknown[i - form->lead] = r->x[i].blocks && r->x[i].unknown;
    }
    if (!tow__failed(w->t) && record_branches(&b, r, form->conditions, form->branches, graphs)) {
        uint32_t n = list_operands(w, r, form->lead, in);
        for (uint32_t i = form->lead; i < e->n_in; i++)
            for (size_t k = 0; k < (r->x[i].blocks ? count : 1); k++)
                in[n++] = r->x[i].blocks ? r->x[i].blocks[k] : r->x[i].value;
        for (uint32_t k = 0; k < form->branches; k++)
            tow__set_nested(e->primitive, params, form->conditions + k, graphs[k]);
        tow__bind(w->t, e->primitive, params, n, in, graphs[0]->n_outputs, out);
        if (!tow__failed(w->t)) set_results(&b, out, e->n_out, y);
    }
    for (uint32_t k = 0; k < form->branches; k++) tow_graph_release(graphs[k]);
}

/* ---- loops ------------------------------------------------------------------------------------------------------- */

typedef struct loop {
    const tow__row_walk *w;
    const tow__row_equation *r;
    tow__region_form form;
    body b;
    bool *late;
} loop;

static const tow__row_value *init_of(const loop *l, uint32_t j) { return &l->r->x[l->form.lead + l->form.consts + j]; }

/* Is carry j to have a value for each block? */
static bool is_accumulator(const loop *l, uint32_t j)
{
    const tow_graph *g = l->b.g;
    const uint32_t i = l->form.consts + j;
    if (init_of(l, j)->blocks) return true;
    return init_of(l, j)->axis == TOW__WHOLE && g->outputs[j] != g->inputs[i] &&
           passes_on(l->w->t, l->r->e, l->form.lead + i, j);
}

static bool begin_loop(const tow__row_walk *w, const tow__row_equation *r, loop *l)
{
    *l = (loop){.w = w, .r = r};
    tow__region_of(r->e, &l->form);
    if (!alloc_body(w, l->form.body, &l->b)) return false;
    l->late = tow__trace_alloc(w->t, (size_t)l->b.g->n_vars + 1, sizeof *l->late);
    if (!l->late) return false;
    l->b.n_carry = l->form.carry;
    l->b.late = l->late;
    for (uint32_t j = 0; j < l->form.carry; j++) {
        l->b.accumulator[l->form.consts + j] = is_accumulator(l, j);
        l->b.unknown[l->form.consts + j] = init_of(l, j)->blocks && init_of(l, j)->unknown;
    }
    return true;
}

/* The axes of the inputs of the body; false: an error. */
static bool enter(const loop *l)
{
    const uint32_t rows = l->form.lead + l->form.consts + l->form.carry;
    take_axes(&l->b, l->r, l->form.lead);
    for (uint32_t i = rows; i < l->r->e->n_in; i++) {
        if (l->r->x[i].axis == 0) tow__rows_fail(l->w->t, l->r->e, "loops over the rows of the batch");
        if (l->r->x[i].axis > 0) l->b.axes[i - l->form.lead]--;
    }
    for (uint32_t i = 0; i < l->form.lead; i++)
        if (tow__has_rows(&l->r->x[i])) tow__rows_fail(l->w->t, l->r->e, "repeats as a row of the batch says");
    return !tow__failed(l->w->t);
}

static void mark_late(const loop *l)
{
    memset(l->late, 0, l->b.g->n_vars * sizeof *l->late);
    mark_added(&l->b, l->late);
}

/* Once the body is known: do carries leave as they enter? */
static bool carries_stay(const loop *l)
{
    bool stay = true;
    for (uint32_t j = 0; j < l->form.carry && !tow__failed(l->w->t); j++) {
        int *in = &l->b.axes[l->form.consts + j];
        const int out = l->b.out_axes[j];
        if (l->b.accumulator[l->form.consts + j] && l->b.broken[j] && !init_of(l, j)->blocks) {
            l->b.accumulator[l->form.consts + j] = false;
            stay = false;
        } else if (out != *in) {
            if (*in != TOW__WHOLE) tow__rows_fail(l->w->t, l->r->e, "has a carry whose rows change their axis");
            *in = out;
            stay = false;
        }
    }
    return stay;
}

static tow_graph *find_body(const loop *l)
{
    tow_graph *g = NULL;
    for (bool stay = false; !stay && !tow__failed(l->w->t);) {
        tow_graph_release(g);
        g = NULL;
        forget_sums(&l->b);
        mark_late(l);
        for (uint32_t j = 0; j < l->b.g->n_outputs; j++) l->b.out_axes[j] = AS_IT_FALLS;
        for (uint32_t j = 0; j < l->form.carry; j++)
            if (l->b.axes[l->form.consts + j] != TOW__WHOLE) l->b.out_axes[j] = l->b.axes[l->form.consts + j];
        if (record_body(&l->b, &g) != TOW_OK)
            tow__adopt_error(l->w->t);
        else
            stay = carries_stay(l);
    }
    if (!tow__failed(l->w->t)) return g;
    tow_graph_release(g);
    return NULL;
}

/* The operands of the new loop, and where the inputs of the body have gone. */
static uint32_t list_inputs(const loop *l, tow_value *in, uint32_t *place)
{
    const int64_t count = l->w->blocks->count;
    const uint32_t lead = l->form.lead, carry = lead + l->form.consts, rows = carry + l->form.carry;
    uint32_t n = list_operands(l->w, l->r, lead, in);
    for (uint32_t i = lead; i < l->r->e->n_in; i++) {
        const tow__row_value *x = &l->r->x[i];
        place[i - lead] = n - lead;
        if (l->b.accumulator[i - lead]) {
            place[i - lead] = TOW__INPUT;
            for (int64_t k = 0; k < count; k++)
                in[n++] = x->blocks ? x->blocks[k] : tow_full(l->w->t, l->r->o.in[i].type, -0.0);
        } else if (i >= carry && i < rows && l->b.axes[i - lead] != x->axis) {
            in[n++] = tow__rows_cut(l->w, l->r->e->in[i], l->b.axes[i - lead]);
        } else {
            in[n++] = x->value;
        }
    }
    if (l->form.counts) place[l->r->e->n_in - lead] = n - lead;
    return n;
}

/* The final value of a carry that has an accumulator for each block. */
static tow__row_value total_of(const loop *l, uint32_t j, tow_value *blocks)
{
    const tow__row_value *init = init_of(l, j);
    if (init->blocks) return (tow__row_value){.axis = TOW__WHOLE, .blocks = blocks, .unknown = l->b.broken[j]};
    if (l->w->late && l->w->late[l->r->e->out[j]] && is_zeros(l->w->t, init->value))
        return tow__rows_given(l->w->t, blocks);
    tow__row_value y = {.value = tow__rows_tree(l->w->blocks->count, blocks), .axis = TOW__WHOLE, .sum = &tow__add_p};
    tow__rows_complete(l->w, &y);
    if (is_zeros(l->w->t, init->value)) return y;
    if (!tow__waits_for_others(l->w->blocks)) {
        y.value = tow_add(init->value, y.value);
        y.sum = NULL;
    } else if (l->w->nested) {
        tow__rows_fail(l->w->t, l->r->e, "adds sums over rows to a value, inside a region");
    } else {
        y = (tow__row_value){.axis = TOW__WHOLE, .unknown = true};
    }
    return y;
}

static void bind_loop(const loop *l, tow_graph *g, tow__row_value *y)
{
    const uint32_t count = (uint32_t)l->w->blocks->count;
    uint32_t accumulators = 0;
    for (uint32_t j = 0; j < l->form.carry; j++) accumulators += l->b.accumulator[l->form.consts + j];
    const size_t most = (size_t)l->r->e->n_in + 2 + (size_t)accumulators * count;
    tow_value *in = tow__trace_alloc(l->w->t, most, sizeof *in);
    tow_value *out = tow__trace_alloc(l->w->t, (size_t)g->n_outputs + 1, sizeof *out), *next = out;
    uint32_t *place = tow__trace_alloc(l->w->t, (size_t)l->b.g->n_inputs + 1, sizeof *place);
    if (!in || !out || !place) return;
    const uint32_t n = list_inputs(l, in, place), carry = l->form.carry + accumulators * (count - 1);
    const uint32_t consts = l->form.consts + tow__is_part(l->w->blocks);
    if (tow__failed(l->w->t)) return;
    tow__loop_bind(l->w->t, l->r->e, g, consts, carry, place, n, in, out);
    for (uint32_t j = 0; j < l->r->e->n_out && !tow__failed(l->w->t); j++) {
        int axis = l->b.out_axes[j];
        if (j < l->form.carry && l->b.accumulator[l->form.consts + j]) {
            y[j] = total_of(l, j, next);
            next += count;
            continue;
        }
        if (j >= l->form.carry && axis != TOW__WHOLE) axis++;
        y[j] = (tow__row_value){.value = *next++, .axis = axis, .sum = l->b.sums[j]};
    }
}

bool tow__rows_goes_on(const tow__row_walk *w, const tow__equation *e, uint32_t i, uint32_t *k)
{
    tow__region_form form;
    if (!tow__is_region(e) || !tow__region_of(e, &form) || !form.repeats) return false;
    const uint32_t first = form.lead + form.consts;
    *k = i - first;
    return i >= first && *k < form.carry && passes_on(w->t, e, i, *k);
}

void tow__rows_region(const tow__row_walk *w, const tow__row_equation *r, tow__row_value *y)
{
    tow__region_form form;
    tow__region_of(r->e, &form);
    if (!form.repeats) {
        run_once(w, r, &form, y);
        return;
    }
    loop l;
    if (!begin_loop(w, r, &l) || !enter(&l)) return;
    tow_graph *g = find_body(&l);
    if (g) bind_loop(&l, g, y);
    tow_graph_release(g);
}
