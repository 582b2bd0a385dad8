/* Records a training step: loss and gradients of the batch or of its micro-batches, whether they are finite, and the
 * update of everything that is kept.
 *
 *   n micro-batches:   scan (sums = -0..., variables) over the parts of the batch: sums += gradients
 *                      gradients = sums / n
 *   where a step may be left out:   kept = cond(all is well, update(kept), kept)
 *
 * -0 is what every number is added to without a change, 0 included, so the first sum has the bits of the first
 * gradients. */
#include "src/train/step_graph.h"

#include "src/autodiff/sharding/sharding.h"
#include "src/graph/graph.h"
#include "src/train/average.h"
#include "src/train/loss_scale.h"
#include "tow/autodiff.h"
#include "tow/control.h"
#include "tow/numpy.h"

/* ---- the layout -------------------------------------------------------------------------------------------------- */

bool tow__step_is_conditional(const tow_train_state *s)
{
    const tow_train_options *o = &s->options;
    return o->check_finite || o->skip_not_finite || (o->weighted && (!o->early_update || s->micro_batches > 1));
}

tow__step_layout tow__step_layout_of(const tow_train_state *s)
{
    const tow_train_options *o = &s->options;
    tow__step_layout l = {0};
    size_t in = s->n_kept, out = s->n_kept;
    l.batch = in, in += s->n_inputs;
    l.keys = in, in += s->n_streams;
    l.numbers = in, in += s->optimizer->number_names.count;
    if (s->average) l.weight = in++;
    if (o->skip_not_finite) l.skips = in++;
    l.n_inputs = in;
    l.loss = out++;
    l.aux = out, out += s->n_aux;
    if (o->check_finite) l.norm = out++, l.finite = out++;
    if (o->skip_not_finite) l.all_finite = out++;
    l.n_outputs = out;
    return l;
}

typedef struct recording {
    tow_train_state *s;
    const tow_graph *gradient;
    const tow_type *types, *micro_types;
    tow__step_layout layout;
    const tow_value *in;
} recording;

static const tow_value *kept_params(const recording *r) { return r->in; }
static const tow_value *kept_variables(const recording *r)
{
    return r->in + r->s->n_params + r->s->optimizer->slot_names.count;
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

/* The results of the forward and the backward pass, of a micro-batch or of all. Null: not wanted. */
typedef struct passes {
    tow_value loss, norm, finite;
    tow_value *aux, *variables, *gradients;
    tow_value weights, losses; /* f64[]: sums of the weights, and of the losses with their weights */
} passes;

static bool alloc_passes(tow_trace *t, const tow_train_state *s, passes *p)
{
    *p = (passes){.aux = tow__trace_alloc(t, s->n_aux + 1, sizeof *p->aux),
                  .variables = tow__trace_alloc(t, s->n_variables + 1, sizeof *p->variables),
                  .gradients = tow__trace_alloc(t, s->n_params + 1, sizeof *p->gradients)};
    return p->aux && p->variables && p->gradients;
}

/* The weight of what has this aux value 0: f64. */
static tow_value weight_of(const tow_value *aux) { return tow_convert(aux[0], TOW_F64); }

static bool shares_gradients(const tow_train_state *s)
{
    return s->options.shard >= TOW_SHARD_GRADIENTS && tow__train_has_others(s);
}

/* Numbers of layers, for the shares among n values of which those of parameters begin at `first`; NULL: no memory. */
static int64_t *list_layers(const tow_train_state *s, tow_trace *t, size_t n, size_t first)
{
    int64_t *layers = tow__trace_alloc(t, n + 1, sizeof *layers);
    for (size_t i = 0; layers && i < s->n_params; i++)
        layers[first + i] = tow__optimizer_layers(s->optimizer, (uint32_t)i);
    return layers;
}

/* Values of parameters that are shares as [layers, n / N]. */
static void reshape_shares(const tow_train_state *s, tow_value *values)
{
    for (size_t i = 0; i < s->n_params && tow__train_shares_params(s); i++) {
        const int64_t layers = tow__optimizer_layers(s->optimizer, (uint32_t)i);
        const tow_type kept = s->kept->types[i];
        if (layers == 0) continue;
        values[i] = tow_reshape(values[i], 2, (int64_t[]){layers, kept.dims[kept.rank - 1]});
    }
}

typedef struct on_shares {
    const tow_train_state *s;
    const tow_graph *graph;
} on_shares;

static void record_on_shares(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const on_shares *o = user;
    const size_t n_in = tow_graph_input_count(o->graph);
    tow_value *x = tow__trace_alloc(t, n_in + 1, sizeof *x);
    if (!x) return;
    memcpy(x, in, n_in * sizeof *x);
    reshape_shares(o->s, x);
    tow_inline(t, o->graph, x, out);
}

tow_status tow__train_on_shares(const tow_train_state *s, tow_graph **graph)
{
    const size_t n = tow_graph_input_count(*graph);
    tow_graph *made = NULL;
    tow_type *types = tow__alloc(s->ctx, n + 1, sizeof *types);
    if (!types) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < n; i++) types[i] = i < s->n_params ? s->kept->types[i] : tow_graph_input_type(*graph, i);
    on_shares o = {s, *graph};
    const tow_status status =
        tow_trace_function(s->ctx, record_on_shares, &o, n, types, NULL, tow_graph_output_count(*graph), &made);
    tow__free(s->ctx, types, n + 1, sizeof *types);
    if (status != TOW_OK) return status;
    tow_graph_release(*graph);
    *graph = made;
    return TOW_OK;
}

static void record_norm(const tow_train_state *s, tow_trace *t, const tow_value *gradients, tow_value *norm,
                        tow_value *finite)
{
    tow_graph *graph = NULL;
    tow_value out[2] = {{0}, {0}};
    if (!shares_gradients(s)) {
        tow__record_norm(t, s->params, s->row_groups > 1, gradients, norm, finite);
        return;
    }
    const int64_t *layers = list_layers(s, t, s->n_params, 0), none[2] = {0, 0};
    if (tow__norm_graph(s->ctx, s->params, &graph) != TOW_OK)
        tow__adopt_error(t);
    else if (layers)
        tow__sharding_inline(t, graph, &(tow__sharding){s->options.group, layers, none, false}, gradients, out);
    tow_graph_release(graph);
    *norm = out[0];
    *finite = out[1];
}

/* Of one micro-batch: batch and keys are its own. */
static bool record_passes(const recording *r, tow_trace *t, const tow_value *variables, const tow_value *batch,
                          const tow_value *keys, passes *p)
{
    const tow_train_state *s = r->s;
    const size_t n_in = tow_graph_input_count(r->gradient), n_out = tow_graph_output_count(r->gradient);
    tow_value *in = tow__trace_alloc(t, n_in + 1, sizeof *in), *out = tow__trace_alloc(t, n_out + 1, sizeof *out),
              *x = in;
    if (!in || !out || !alloc_passes(t, s, p)) return false;
    for (size_t i = 0; i < s->n_params; i++) *x++ = kept_params(r)[i];
    for (size_t i = 0; i < s->n_variables; i++) *x++ = variables[i];
    for (size_t i = 0; i < s->n_inputs; i++) *x++ = batch[i];
    for (size_t i = 0; i < s->n_streams; i++) *x++ = keys[i];
    if (s->optimizer->loss_scale > 0) *x++ = tow__step_scale(s, r->in + r->layout.numbers);
    reshape_shares(s, in);
    tow_inline(t, r->gradient, in, out);
    p->loss = *out++;
    for (size_t i = 0; i < s->n_aux; i++) p->aux[i] = *out++;
    for (size_t i = 0; i < s->n_variables; i++) p->variables[i] = *out++;
    for (size_t i = 0; i < s->n_params; i++) p->gradients[i] = *out++;
    if (s->options.check_finite) record_norm(s, t, p->gradients, &p->norm, &p->finite);
    return true;
}

/* Adds a micro-batch to the sums of weights and losses. */
static void add_weight(const tow_train_state *s, passes *sums, const passes *part)
{
    const tow_value weight = s->options.weighted ? weight_of(part->aux) : tow_full_like(sums->weights, 1);
    const tow_value loss = tow_mul(weight, tow_convert(part->loss, TOW_F64)), zero = tow_zeros_like(weight);
    sums->weights = tow_add(sums->weights, weight);
    sums->losses = tow_add(sums->losses, tow_where(tow_ne(weight, zero), loss, zero));
}

/* ---- micro-batches ----------------------------------------------------------------------------------------------- */

static bool is_cut(const recording *r, size_t input) { return !tow_type_equal(r->types[input], r->micro_types[input]); }

/* x [n m, ...] as [n, m, ...], or flatter where there is no axis left, ... */
static tow_value cut(tow_value x, tow_type micro_type, size_t n)
{
    const int rank = micro_type.rank < TOW_MAX_RANK ? micro_type.rank : 1;
    int64_t dims[TOW_MAX_RANK + 1] = {(int64_t)n, tow_type_element_count(micro_type)};
    for (int i = 0; i < rank && rank == micro_type.rank; i++) dims[1 + i] = micro_type.dims[i];
    return tow_reshape(x, rank + 1, dims);
}

/* ... of which this is a row. */
static tow_value part_of(tow_value x, tow_type micro_type)
{
    return micro_type.rank < TOW_MAX_RANK ? x : tow_reshape(x, micro_type.rank, micro_type.dims);
}

/* carry: sums of gradients, variables, then weights and losses, f64[]. xs: inputs that are cut, keys. ys: loss, aux,
 * norm and finite. */
static void record_part(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const recording *r = user;
    const tow_train_state *s = r->s;
    const tow_value *sums = in, *variables = sums + s->n_params, *totals = variables + s->n_variables, *xs = totals + 2;
    tow_value *batch = tow__trace_alloc(t, s->n_inputs + 1, sizeof *batch);
    passes part, all = {.weights = totals[0], .losses = totals[1]};
    if (!batch) return;
    for (size_t i = 0; i < s->n_inputs; i++)
        batch[i] = is_cut(r, i) ? part_of(*xs++, r->micro_types[i]) : r->in[r->layout.batch + i];
    if (!record_passes(r, t, variables, batch, xs, &part)) return;
    const tow_value weight = s->options.weighted ? weight_of(part.aux) : (tow_value){0};
    for (size_t i = 0; i < s->n_params; i++)
        *out++ = tow_add(sums[i], tow__gradient_term(part.gradients[i], tow_value_type(sums[i]).dtype, weight));
    for (size_t i = 0; i < s->n_variables; i++) *out++ = part.variables[i];
    add_weight(s, &all, &part);
    *out++ = all.weights;
    *out++ = all.losses;
    *out++ = part.loss;
    for (size_t i = 0; i < s->n_aux; i++) *out++ = part.aux[i];
    if (!s->options.check_finite) return;
    *out++ = part.norm;
    *out++ = part.finite;
}

static bool record_micro_batches(const recording *r, tow_trace *t, passes *p)
{
    const tow_train_state *s = r->s;
    const size_t n_carry = s->n_params + s->n_variables + 2, n_ys = 1 + s->n_aux + (s->options.check_finite ? 2 : 0);
    tow_value *in = tow__trace_alloc(t, n_carry + s->n_inputs + s->n_streams + 1, sizeof *in), *x = in,
              *out = tow__trace_alloc(t, n_carry + n_ys + 1, sizeof *out);
    if (!in || !out || !alloc_passes(t, s, p)) return false;
    for (size_t i = 0; i < s->n_params; i++) *x++ = tow_full(t, tow__gradient_sum_type(s->params->types[i]), -0.0);
    for (size_t i = 0; i < s->n_variables; i++) *x++ = kept_variables(r)[i];
    for (size_t i = 0; i < 2; i++) *x++ = tow_scalar(t, TOW_F64, 0);
    for (size_t i = 0; i < s->n_inputs; i++)
        if (is_cut(r, i)) *x++ = cut(r->in[r->layout.batch + i], r->micro_types[i], s->micro_batches);
    for (size_t i = 0; i < s->n_streams; i++) *x++ = r->in[r->layout.keys + i];
    tow_scan_function(t, record_part, (void *)(uintptr_t)r, &TOW_SCAN_OPTIONS(.length = (int64_t)s->micro_batches),
                      n_carry, in, (size_t)(x - in) - n_carry, in + n_carry, n_ys, out, out + n_carry);
    p->weights = out[n_carry - 2];
    p->losses = out[n_carry - 1];
    const tow_value weights = s->options.weighted ? p->weights : (tow_value){0};
    for (size_t i = 0; i < s->n_params; i++)
        p->gradients[i] = tow__gradient_mean(out[i], s->micro_batches, weights, s->params->types[i].dtype);
    memcpy(p->variables, out + s->n_params, s->n_variables * sizeof *out);
    p->loss = out[n_carry];
    memcpy(p->aux, out + n_carry + 1, s->n_aux * sizeof *out);
    if (!s->options.check_finite) return true;
    p->norm = out[n_carry + n_ys - 2];
    p->finite = out[n_carry + n_ys - 1];
    return true;
}

static bool record_batch(const recording *r, tow_trace *t, passes *p)
{
    if (r->s->micro_batches > 1) return record_micro_batches(r, t, p);
    if (!record_passes(r, t, kept_variables(r), r->in + r->layout.batch, r->in + r->layout.keys, p)) return false;
    p->weights = p->losses = tow_scalar(t, TOW_F64, 0);
    add_weight(r->s, p, p);
    return true;
}

/* ---- is all well? ------------------------------------------------------------------------------------------------ */

static tow_value all_of(tow_value x) { return tow_value_type(x).rank > 0 ? tow_reduce_and(x, 0, NULL) : x; }

/* Micro-batches that are finite, that count for nothing, or whose update is left out for what is in their gradients. */
static tow_value parts_are_well(const recording *r, const passes *p)
{
    const tow_train_options *o = &r->s->options;
    tow_value well = tow_and(p->finite, tow_is_finite(p->loss));
    if (o->skip_not_finite) {
        const tow_type type = tow_value_type(p->finite);
        const tow_value skips = tow_broadcast_to(r->in[r->layout.skips], type.rank, type.dims);
        well = tow_or(well, tow_and(tow_not(p->finite), skips));
    }
    if (o->weighted) well = tow_or(well, tow_eq_scalar(weight_of(p->aux), 0));
    return all_of(well);
}

/* A batch weighs something, and no micro-batch less than nothing. */
static tow_value weights_are_well(const tow_train_state *s, const passes *p)
{
    const tow_value each = weight_of(p->aux), well = tow_gt_scalar(p->weights, 0);
    if (s->micro_batches == 1) return well;
    return tow_and(well, all_of(tow_and(tow_ge_scalar(each, 0), tow_is_finite(each))));
}

/* all_finite: of the mean gradients, with .skip_not_finite. */
static tow_value is_well(const recording *r, tow_trace *t, const passes *p, tow_value all_finite)
{
    const tow_train_options *o = &r->s->options;
    tow_value well = tow_scalar(t, TOW_BOOL, 1);
    if (o->check_finite) well = tow_and(well, parts_are_well(r, p));
    if (o->weighted) well = tow_and(well, weights_are_well(r->s, p));
    if (o->skip_not_finite) well = tow_and(well, tow_or(all_finite, tow_not(r->in[r->layout.skips])));
    return well;
}

/* ---- the update -------------------------------------------------------------------------------------------------- */

typedef struct updating {
    const recording *r;
    const passes *p;
    const tow_value *numbers;
} updating;

static void hand_through(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const updating *u = user;
    (void)t;
    memcpy(out, in, u->r->s->n_kept * sizeof *out);
}

/* kept... -> kept... */
static void record_kept(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const updating *u = user;
    const tow_train_state *s = u->r->s;
    const tow_optimizer_state *o = s->optimizer;
    const size_t n = s->n_params, n_slots = o->slot_names.count, n_numbers = o->number_names.count,
                 n_reports = o->report_names.count;
    tow_array *const *averages;
    const size_t n_averages = s->average ? tow__average_arrays(s->average, &averages) : 0;
    tow_value *x = tow__trace_alloc(t, 2 * n + n_slots + n_numbers + 1, sizeof *x),
              *y = tow__trace_alloc(t, n + n_slots + n_reports + 1, sizeof *y);
    if (!x || !y) return;
    memcpy(x, in, n * sizeof *x);
    memcpy(x + n, u->p->gradients, n * sizeof *x);
    memcpy(x + 2 * n, in + n, n_slots * sizeof *x);
    memcpy(x + 2 * n + n_slots, u->numbers, n_numbers * sizeof *x);
    tow__record_update(t, x, y, s->optimizer);
    memcpy(out, y, (n + n_slots) * sizeof *y);
    memcpy(out + n + n_slots, u->p->variables, s->n_variables * sizeof *out);
    const size_t first = n + n_slots + s->n_variables;
    if (s->average) tow__record_average(s->average, in + first, y, u->r->in[u->r->layout.weight], out + first);
    memcpy(out + first + n_averages, y + n + n_slots, n_reports * sizeof *y);
}

/* The optimizer's numbers; the loss, which is one of them, is known by now. */
static const tow_value *list_numbers(const recording *r, tow_trace *t, const passes *p)
{
    const tow_optimizer_state *o = r->s->optimizer;
    tow_value *numbers = tow__trace_alloc(t, (size_t)o->number_names.count + 1, sizeof *numbers);
    for (uint32_t i = 0; numbers && i < o->number_names.count; i++)
        numbers[i] = tow__number_is_loss(o, i) ? tow_div(p->losses, p->weights) : r->in[r->layout.numbers + i];
    return numbers;
}

static void record_step(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    recording *r = user;
    const tow_train_state *s = r->s;
    const tow__step_layout *l = &r->layout;
    passes p;
    tow_value norm = {0}, all_finite = {0};
    r->in = in;
    if (!record_batch(r, t, &p)) return;
    if (l->all_finite && l->finite && s->micro_batches == 1)
        all_finite = p.finite;
    else if (l->all_finite)
        record_norm(s, t, p.gradients, &norm, &all_finite);
    updating u = {r, &p, list_numbers(r, t, &p)};
    if (!u.numbers) return;
    if (tow__step_is_conditional(s))
        tow_cond_function(t, is_well(r, t, &p, all_finite), record_kept, hand_through, &u, s->n_kept, in, s->n_kept,
                          out);
    else
        record_kept(t, in, out, &u);
    out[l->loss] = p.loss;
    memcpy(out + l->aux, p.aux, s->n_aux * sizeof *out);
    if (l->norm) out[l->norm] = p.norm;
    if (l->finite) out[l->finite] = p.finite;
    if (l->all_finite) out[l->all_finite] = all_finite;
}

/* ---- the graph --------------------------------------------------------------------------------------------------- */

static void name_inputs(const tow_train_state *s, const tow__step_layout *l, const tow_graph *gradient,
                        const char **names)
{
    const tow__names *slots = &s->optimizer->slot_names;
    const size_t n = s->n_params + s->n_variables;
    for (size_t i = 0; i < s->n_params; i++) names[i] = tow_graph_input_name(gradient, i);
    for (size_t i = 0; i < slots->count; i++) names[s->n_params + i] = slots->names[i];
    for (size_t i = 0; i < s->n_variables; i++)
        names[s->n_params + slots->count + i] = tow_graph_input_name(gradient, s->n_params + i);
    for (size_t i = 0; i < s->n_inputs; i++) names[l->batch + i] = tow_graph_input_name(gradient, n + i);
    for (uint32_t i = 0; i < s->optimizer->number_names.count; i++)
        names[l->numbers + i] = s->optimizer->number_names.names[i];
}

tow_status tow__step_graph(tow_train_state *s, const tow_graph *gradient, const tow_type *types,
                           const tow_type *micro_types, tow_graph **graph)
{
    recording r = {
        .s = s, .gradient = gradient, .types = types, .micro_types = micro_types, .layout = tow__step_layout_of(s)};
    const tow__step_layout *l = &r.layout;
    tow_type *in = tow__alloc(s->ctx, l->n_inputs, sizeof *in);
    const char **names = tow__alloc(s->ctx, l->n_inputs, sizeof *names);
    tow_status status = in && names ? TOW_OK : TOW_OUT_OF_MEMORY;
    for (size_t i = 0; status == TOW_OK && i < l->n_inputs; i++)
        in[i] = i >= l->batch && i < l->keys ? types[i - l->batch] : tow_array_type(s->inputs[i]);
    if (status == TOW_OK) name_inputs(s, l, gradient, names);
    if (status == TOW_OK)
        status = tow_trace_function(s->ctx, record_step, &r, l->n_inputs, in, names, l->n_outputs, graph);
    if (in) tow__free(s->ctx, in, l->n_inputs, sizeof *in);
    if (names) tow__free(s->ctx, names, l->n_inputs, sizeof *names);
    return status;
}
