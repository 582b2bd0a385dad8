/* Graphs of updates: running transforms on parameters and layers, one in another. */
#include <stdio.h>

#include "src/autodiff/sharding/sharding.h"
#include "src/train/recording.h"
#include "src/train/transforms.h"
#include "src/train/wide.h"
#include "tow/autodiff.h"
#include "tow/ops.h"
#include "tow/train.h"

/* ---- transforms of single parameters ----------------------------------------------------------------------------- */

/* Finds the axes of layers in a parameter, outermost first; returns their number. */
static int layer_axes(const tow_optimizer_state *o, uint32_t parameter, int *axes)
{
    return tow__path_axes(o->params->names.names[parameter], o->params->types[parameter].rank, axes);
}

/* The number of axes of layers that a value of the parameter has here. */
static int levels_of(const tow_update *u, uint32_t parameter)
{
    int axes[TOW_MAX_RANK];
    return layer_axes(u->o, parameter, axes);
}

/* A parameter's value with the axes of layers in front, and back. */
static tow_value move_layers(const tow_update *u, uint32_t parameter, tow_value x, bool to_front)
{
    int axes[TOW_MAX_RANK];
    const int n = layer_axes(u->o, parameter, axes);
    return to_front ? tow__axes_to_front(x, n, axes) : tow__axes_from_front(x, n, axes);
}

/* `each` on one layer. */
static tow_value transform_layer(tow_update *u, const tow_gradient_transform *transform, tow_value g, tow_value p)
{
    const tow_type expected = tow_value_type(g);
    tow_value result = transform->cls->each(u, transform, g, p);
    if (tow_is_null(result) || tow_type_equal(tow_value_type(result), expected)) return result;
    tow__update_fail(u, TOW_TYPE_MISMATCH, "expected a gradient of type %s, found %s", tow__type_name(expected).text,
                     tow__type_name(tow_value_type(result)).text);
    return (tow_value){0};
}

/* `each` on all layers of a stack. */
typedef struct stack {
    tow_update *u;
    const tow_gradient_transform *transform;
    const uint32_t *slots; /* of the transform and the parameter */
    size_t n_slots;
} stack;

static void transform_row(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const stack *s = user;
    tow_value *slots = tow__trace_alloc(trace, s->u->o->slot_names.count + 1, sizeof *slots);
    tow_update row = *s->u;
    row.trace = trace;
    if (!slots) return;
    memcpy(slots, s->u->slots, s->u->o->slot_names.count * sizeof *slots);
    for (size_t i = 0; i < s->n_slots; i++) slots[s->slots[i]] = in[2 + i];
    row.slots = slots;
    out[0] = transform_layer(&row, s->transform, in[0], in[1]);
    for (size_t i = 0; i < s->n_slots; i++) out[1 + i] = slots[s->slots[i]];
}

/* x [levels..., layer...] as [all of them, layer...], and back. */
static tow_value flatten(tow_value x, int levels)
{
    const tow_type type = tow_value_type(x);
    int64_t dims[TOW_MAX_RANK] = {1};
    for (int i = 0; i < levels; i++) dims[0] *= type.dims[i];
    for (int i = levels; i < type.rank; i++) dims[i - levels + 1] = type.dims[i];
    return levels == 1 ? x : tow_reshape(x, type.rank - levels + 1, dims);
}

static void transform_stack(tow_update *u, const tow_gradient_transform *transform, uint32_t i)
{
    const uint32_t n_all = u->o->slot_names.count;
    uint32_t *slots = tow__trace_alloc(u->trace, n_all + 1, sizeof *slots);
    tow_value *in = tow__trace_alloc(u->trace, n_all + 2, sizeof *in),
              *out = tow__trace_alloc(u->trace, n_all + 1, sizeof *out);
    if (!slots || !in || !out) return;
    stack s = {.u = u, .transform = transform, .slots = slots};
    const int levels = levels_of(u, i);
    const size_t owner = strlen(u->owner);
    for (uint32_t k = u->o->first_slot[i]; k != TOW__NO_NAME; k = u->o->slots[k].next) {
        const char *prefix = u->o->slots[k].prefix; /* "owner/name/" */
        if (strncmp(prefix, u->owner, owner) == 0 && prefix[owner] == '/' && strchr(prefix + owner + 1, '/')[1] == '\0')
            slots[s.n_slots++] = k;
    }
    in[0] = flatten(u->gradients[i], levels);
    in[1] = flatten(u->parameters[i], levels);
    for (size_t k = 0; k < s.n_slots; k++) in[2 + k] = flatten(u->slots[slots[k]], levels);
    tow_vmap_function(u->trace, transform_row, &s, NULL, 2 + s.n_slots, in, 1 + s.n_slots, out);
    const tow_type type = tow_value_type(u->gradients[i]);
    u->gradients[i] = levels == 1 ? out[0] : tow_reshape(out[0], type.rank, type.dims);
    for (size_t k = 0; k < s.n_slots; k++) {
        const tow_type slot = tow_value_type(u->slots[slots[k]]);
        u->slots[slots[k]] = levels == 1 ? out[1 + k] : tow_reshape(out[1 + k], slot.rank, slot.dims);
    }
}

static void transform_parameter(tow_update *one, const tow_gradient_transform *transform)
{
    const uint32_t i = one->parameter;
    const tow_type type = tow__layer_type(one->o, i);
    if (one->discovering)
        transform_layer(one, transform, tow_full(one->trace, type, 0), tow_full(one->trace, type, 0));
    else if (levels_of(one, i) == 0)
        one->gradients[i] = transform_layer(one, transform, one->gradients[i], one->parameters[i]);
    else
        transform_stack(one, transform, i);
}

static void add_pending(tow_update *u, uint32_t i, const tow_gradient_transform *transform, const tow__factor *factor)
{
    tow__pending *entry = tow__trace_alloc(u->trace, 1, sizeof *entry);
    uint32_t *which = tow__trace_alloc(u->trace, 1, sizeof *which);
    if (!entry || !which) return;
    *which = i;
    *entry = (tow__pending){.u = *u, .transform = transform};
    if (factor) entry->factor = *factor;
    entry->u.n = 1;
    entry->u.which = which;
    entry->u.parameter = i;
    if (u->last[i])
        u->last[i]->next = entry;
    else
        u->first[i] = entry;
    u->last[i] = entry;
}

void tow__update_settle(tow_update *u, uint32_t i)
{
    tow__pending *entry = u->first[i];
    u->first[i] = u->last[i] = NULL;
    for (; entry; entry = entry->next) {
        if (entry->transform) {
            transform_parameter(&entry->u, entry->transform);
        } else if (!u->discovering) {
            u->gradients[i] = tow__factor_apply(&entry->factor, u->gradients[i]);
        }
    }
}

void tow__update_scale(tow_update *u, size_t index, const tow__factor *factor)
{
    if (tow__update_has(u, index)) add_pending(u, u->which[index], NULL, factor);
}

/* ---- transforms in transforms ------------------------------------------------------------------------------------ */

/* The class's name, or "name_1", "name_2" where a composite has used it before. */
static const char *name_child(tow_update *u, const char *name)
{
    tow__used *entry = tow__trace_alloc(u->trace, 1, sizeof *entry);
    char number[24] = "";
    unsigned n = 0;
    if (!entry) return NULL;
    for (const tow__used *c = u->children; c; c = c->next) n += strcmp(c->name, name) == 0;
    *entry = (tow__used){u->children, name};
    u->children = entry;
    if (n) snprintf(number, sizeof number, "_%u", n);
    return tow__joined(u->trace, u->prefix, name, number);
}

static bool is_transform(tow_update *u, const tow_gradient_transform *t)
{
    if (t && t->cls && t->cls->name && !t->cls->each != !t->cls->all) return true;
    tow__update_fail(
        u, TOW_INVALID_ARGUMENT,
        "expected a transform whose class has a name and one of .each and .all, found %s; set .base = {&its_class}",
        t ? "another struct" : "NULL");
    return false;
}

/* Before a transform at work (NULL: at the end): false, reported, if gradients are of single examples and nothing makes
 * one of them. */
static bool check_aggregated(tow_update *u, const tow_gradient_transform_class *cls)
{
    const bool passes =
        cls && (cls == &tow_chain_class || cls->transparent || cls == &tow_differentially_private_aggregate_class);
    if (!*u->per_example || passes) return true;
    tow__update_fail(u, TOW_INVALID_ARGUMENT,
                     "%s: gradients are those of single examples (.examples); begin the chain with "
                     "TOW_DIFFERENTIALLY_PRIVATE_AGGREGATE",
                     cls ? cls->name : "the end of the optimizer");
    return false;
}

tow_value tow__example_gradients(tow_update *u, size_t index) { return u->gradients[u->which[index]]; }

void tow__set_aggregated(tow_update *u, size_t index, tow_value gradient)
{
    const uint32_t p = u->which[index];
    if (tow_is_null(gradient)) return;
    u->gradients[p] = move_layers(u, p, gradient, true);
    *u->per_example = false;
}

/* The transform as this library reads it: itself, or, if a program of another version made it, a copy that lives as
 * long as the state, since numbers are asked of it before every update. NULL: an error. */
static const tow_gradient_transform *read_transform(tow_update *u, const tow_gradient_transform *given)
{
    const tow_gradient_transform_class *cls = given->cls;
    const tow__struct_kind kind = {cls->name, cls->macro, cls->size};
    char text[320];
    if (!cls->macro || given->size == cls->size) return given;
    if (tow__struct_fault(&kind, given, given->size, text, sizeof text) > 0) {
        tow__update_fail(u, TOW_INVALID_ARGUMENT, "%s", text);
        return NULL;
    }
    for (const tow__read_transform *r = u->o->read; r; r = r->next)
        if (r->given == given) return r->own;
    tow__read_transform *r = tow__arena_alloc(&u->o->read_memory, 1, sizeof *r);
    tow_gradient_transform *own = tow__arena_alloc(&u->o->read_memory, 1, cls->size);
    if (!r || !own) {
        tow_trace_fail(u->trace, TOW_OUT_OF_MEMORY, "no memory for a copy of the transform %s", cls->name);
        return NULL;
    }
    tow__struct_copy(&kind, given, given->size, own);
    own->size = cls->size;
    *r = (tow__read_transform){u->o->read, given, own};
    u->o->read = r;
    return own;
}

static void run_on(tow_update *u, const tow_gradient_transform *transform, size_t n, const uint32_t *which)
{
    if (!is_transform(u, transform) || !check_aggregated(u, transform->cls)) return;
    transform = read_transform(u, transform);
    if (!transform) return;
    tow_update child = *u;
    if (transform->cls->transparent) {
        child.n = n;
        child.which = which;
        transform->cls->all(&child, transform);
        u->children = child.children;
        return;
    }
    const bool root = !u->owner;
    child.owner = name_child(u, transform->cls->name);
    if (!child.owner) return;
    child.prefix = root && transform->cls == &tow_chain_class ? "" : tow__joined(u->trace, child.owner, "/", "");
    child.children = NULL;
    child.n = n;
    child.which = which;
    child.parameter = TOW__NO_PARAMETER;
    child.class_name = transform->cls->name;
    if (!child.prefix) return;
    for (tow__injection *i = u->opening; i && !i->base; i = i->before) i->base = child.prefix;
    if (u->opening) child.injections = u->opening;
    child.opening = NULL;
    if (transform->cls->all)
        transform->cls->all(&child, transform);
    else
        for (size_t i = 0; i < n; i++) add_pending(&child, which[i], transform, NULL);
}

void tow_update_run(tow_update *u, const tow_gradient_transform *transform) { run_on(u, transform, u->n, u->which); }

void tow_update_run_with(tow_update *u, const tow_gradient_transform *transform, size_t n, const size_t *indices)
{
    uint32_t *which = tow__trace_alloc(u->trace, n + 1, sizeof *which);
    if (!which || (n > 0 && !indices)) return;
    for (size_t i = 0; i < n; i++) {
        if (!tow__update_has(u, indices[i])) return;
        which[i] = u->which[indices[i]];
        if (!transform) u->frozen[which[i]] = true;
    }
    if (transform) run_on(u, transform, n, which);
}

/* ---- transforms in wrappers -------------------------------------------------------------------------------------- */

static void inject_all(tow_update *u, const tow_gradient_transform *self)
{
    const tow_inject_hyperparams *o = (const tow_inject_hyperparams *)self;
    tow__injection *i = tow__trace_alloc(u->trace, 1, sizeof *i);
    if (!i) return;
    for (size_t k = 0; k < o->n; k++)
        if (!o->options || !o->options[k].name) {
            tow__update_fail(u, TOW_INVALID_ARGUMENT, "inject_hyperparams: expected %zu options with names, found %s",
                             o->n, o->options ? "one without" : "none");
            return;
        }
    *i = (tow__injection){.before = u->opening, .outer = u->opening ? u->opening : u->injections, .from = o};
    i->used = tow__trace_alloc(u->trace, o->n + 1, sizeof *i->used);
    i->all = *u->all_injections;
    if (!i->used) return;
    *u->all_injections = i;
    u->opening = i;
    tow_update_run(u, o->inner);
    u->opening = i->before;
}
const tow_gradient_transform_class tow_inject_hyperparams_class = {
    TOW__MADE_BY(TOW_INJECT_HYPERPARAMS, tow_inject_hyperparams), .name = "inject_hyperparams", .all = inject_all,
    .transparent = true};

static tow_value choose(tow_value condition, tow_value a, tow_value b)
{
    const tow_type type = tow_value_type(a);
    return tow_where(tow_broadcast_to(condition, type.rank, type.dims), a, b);
}

/* Settles the slots that the transform has written. before: their values before it. */
static void settle_slots(tow_update *u, const tow__inner_run *run, const tow_value *before)
{
    for (uint32_t k = 0; k < u->o->slot_names.count; k++) {
        tow_value new = u->slots[k];
        if (tow_is_null(new) || new.id == before[k].id) continue;
        if (!tow_is_null(run->keep)) new = choose(run->keep, new, before[k]);
        if (!tow_is_null(run->restart)) new = choose(run->restart, tow_full_like(new, u->o->slots[k].initial), new);
        u->slots[k] = new;
    }
}

void tow__update_run_inner(tow_update *u, const tow_gradient_transform *inner, const tow__inner_run *run)
{
    const uint32_t n_slots = u->discovering ? 0 : u->o->slot_names.count, n = u->o->params->names.count;
    tow_update child = *u;
    tow_value *before = tow__trace_alloc(u->trace, n_slots + 1, sizeof *before);
    tow_value *seen = tow__trace_alloc(u->trace, n + 1, sizeof *seen);
    if (!before || !seen) return;
    if (run->divisor || run->modulus) {
        if (u->steps.n == TOW__STEP_MAPS) {
            tow__update_fail(u, TOW_UNSUPPORTED, "expected at most %d wrappers that count in one another",
                             TOW__STEP_MAPS);
            return;
        }
        child.steps.divisors[child.steps.n] = run->divisor;
        child.steps.moduli[child.steps.n++] = run->modulus;
    }
    for (size_t i = 0; i < u->n; i++) tow__update_settle(u, u->which[i]);
    if (run->parameters) {
        memcpy(seen, u->parameters, n * sizeof *seen);
        for (size_t i = 0; i < u->n; i++) seen[u->which[i]] = run->parameters[i];
        child.parameters = seen;
    }
    memcpy(before, u->slots, n_slots * sizeof *before);
    tow_update_run(&child, inner);
    for (size_t i = 0; i < u->n; i++) tow__update_settle(u, u->which[i]);
    u->children = child.children;
    if (!u->discovering) settle_slots(u, run, before);
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

typedef struct recording {
    tow_optimizer_state *o;
    bool discovering;
} recording;

static bool begin(const recording *r, tow_trace *t, tow_update *u)
{
    const tow_optimizer_state *o = r->o;
    const uint32_t n = o->params->names.count;
    uint32_t *which = tow__trace_alloc(t, n + 1, sizeof *which);
    for (uint32_t i = 0; which && i < n; i++) which[i] = i;
    *u = (tow_update){.o = r->o,
                      .trace = t,
                      .discovering = r->discovering,
                      .prefix = "",
                      .n = n,
                      .which = which,
                      .parameter = TOW__NO_PARAMETER,
                      .parameters = tow__trace_alloc(t, n + 1, sizeof *u->parameters),
                      .gradients = tow__trace_alloc(t, n + 1, sizeof *u->gradients),
                      .frozen = tow__trace_alloc(t, n + 1, sizeof *u->frozen),
                      .first = tow__trace_alloc(t, n + 1, sizeof *u->first),
                      .last = tow__trace_alloc(t, n + 1, sizeof *u->last),
                      .slots = tow__trace_alloc(t, o->slot_names.count + 1, sizeof *u->slots),
                      .numbers = tow__trace_alloc(t, o->number_names.count + 1, sizeof *u->numbers),
                      .converted = tow__trace_alloc(t, o->number_names.count + 1, sizeof *u->converted),
                      .negated = tow__trace_alloc(t, o->number_names.count + 1, sizeof *u->negated),
                      .reports = tow__trace_alloc(t, o->report_names.count + 1, sizeof *u->reports)};
    return which && u->parameters && u->gradients && u->frozen && u->first && u->last && u->slots && u->numbers &&
           u->converted && u->negated && u->reports;
}

/* The value that is written for a parameter: its new one, or the direction of a search. */
static tow_value new_value(const tow_update *u, uint32_t p)
{
    if (u->discovering) return u->parameters[p];
    if (u->o->search) return u->frozen[p] ? tow_full_like(u->parameters[p], 0) : u->gradients[p];
    return u->frozen[p] ? u->parameters[p] : tow_add(u->parameters[p], u->gradients[p]);
}

/* An error for the first schedule whose option no transform has read. */
static void check_injections(tow_trace *t, const tow__injection *injections)
{
    for (const tow__injection *i = injections; i; i = i->all)
        for (size_t k = 0; k < i->from->n; k++)
            if (!i->used[k])
                tow_trace_fail(t, TOW_NOT_FOUND,
                               "optimizer: inject_hyperparams: no transform in it reads an option \"%s\"; options are "
                               "called as in the struct of the transform, in a chain \"adam/b1\"",
                               i->from->options[k].name);
}

static void record(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const recording *r = user;
    const tow_optimizer_state *o = r->o;
    tow__injection *injections = NULL;
    tow_update u;
    if (!begin(r, t, &u)) return;
    const tow_value *stored = in;
    in += u.n;
    bool per_example = o->examples > 0;
    u.per_example = &per_example;
    for (uint32_t i = 0; i < u.n; i++, in++) u.gradients[i] = per_example ? *in : move_layers(&u, i, *in, true);
    for (uint32_t i = 0; !r->discovering && i < o->slot_names.count; i++) u.slots[i] = *in++;
    for (uint32_t i = 0; !r->discovering && i < o->number_names.count; i++)
        u.negated[i] = tow_neg(u.converted[i] = tow_convert(u.numbers[i] = *in++, TOW_F32));
    for (uint32_t i = 0; i < u.n; i++) {
        u.parameters[i] = tow__update_widen(&u, i, move_layers(&u, i, stored[i], true));
        u.gradients[i] = tow__update_widen_gradient(&u, i, u.gradients[i]);
    }
    u.all_injections = &injections;
    run_on(&u, o->transform, u.n, u.which);
    check_aggregated(&u, NULL);
    if (tow__failed(t)) return;
    for (uint32_t i = 0; i < u.n; i++) {
        tow__update_settle(&u, i);
        *out++ = move_layers(&u, i, tow__update_narrow(&u, i, new_value(&u, i)), false);
    }
    if (r->discovering) check_injections(t, injections);
    for (uint32_t i = 0; !r->discovering && i < o->slot_names.count; i++) *out++ = u.slots[i];
    for (uint32_t i = 0; !r->discovering && i < o->report_names.count; i++) *out++ = u.reports[i];
}

/* ---- updates of shares ------------------------------------------------------------------------------------------- */

static tow_value flat_share(tow_value x, int64_t layers)
{
    const tow_type type = tow_value_type(x);
    return tow_reshape(x, 2, (int64_t[]){layers, type.dims[type.rank - 1]});
}

/* A share [levels..., n / N] as [layers, n / N], or back. */
static tow_value reshape_share(tow_value x, const tow_optimizer_state *o, uint32_t slot, bool back)
{
    const int64_t layers = o->slots[slot].layers;
    if (layers == 0) return x; /* a slot of another form; a number has no dimension */
    const tow_type kept = tow__slot_kept_type(o, slot);
    return back ? tow_reshape(x, kept.rank, kept.dims) : flat_share(x, layers);
}

/* The graph of the update of whole slots, recorded on shares. */
static void record_shares(tow_trace *t, const tow_value *in, tow_value *out, tow_optimizer_state *o)
{
    tow_graph *graph = NULL;
    if (tow__update_graph(o, &graph) != TOW_OK) {
        tow__adopt_error(t);
        return;
    }
    const size_t n = o->params->names.count, n_in = tow_graph_input_count(graph), n_out = tow_graph_output_count(graph);
    int64_t *layers_in = tow__trace_alloc(t, n_in + 1, sizeof *layers_in),
            *layers_out = tow__trace_alloc(t, n_out + 1, sizeof *layers_out);
    tow_value *x = tow__trace_alloc(t, n_in + 1, sizeof *x);
    if (layers_in && layers_out && x) {
        memcpy(x, in, n_in * sizeof *x);
        for (uint32_t i = 0; i < n; i++) layers_in[n + i] = tow__optimizer_layers(o, i);
        for (uint32_t i = 0; i < n && o->shard >= TOW_SHARD_PARAMETERS; i++) {
            layers_in[i] = layers_out[i] = tow__optimizer_layers(o, i);
            if (layers_in[i] > 0) x[i] = flat_share(x[i], layers_in[i]);
        }
        for (uint32_t i = 0; i < o->slot_names.count; i++) {
            layers_in[2 * n + i] = layers_out[n + i] = o->slots[i].layers;
            x[2 * n + i] = reshape_share(x[2 * n + i], o, i, false);
        }
        tow__sharding_inline(t, graph, &(tow__sharding){o->shards, layers_in, layers_out, false}, x, out);
        for (uint32_t i = 0; i < o->slot_names.count && !tow__failed(t); i++)
            out[n + i] = reshape_share(out[n + i], o, i, true);
        for (uint32_t i = 0; i < n && !tow__failed(t); i++) {
            const tow_type kept = tow_value_type(in[i]);
            if (layers_out[i] > 0) out[i] = tow_reshape(out[i], kept.rank, kept.dims);
        }
    }
    tow_graph_release(graph);
}

void tow__record_update(tow_trace *trace, const tow_value *in, tow_value *out, tow_optimizer_state *o)
{
    if (tow_group_count(o->shards) > 1)
        record_shares(trace, in, out, o);
    else
        record(trace, in, out, &(recording){.o = o});
}

static tow_status make_graph(recording r, tow_graph **graph)
{
    tow_optimizer_state *o = r.o;
    const uint32_t n = o->params->names.count;
    const size_t n_slots = r.discovering ? 0 : o->slot_names.count,
                 n_numbers = r.discovering ? 0 : o->number_names.count,
                 n_reports = r.discovering ? 0 : o->report_names.count, n_inputs = 2 * (size_t)n + n_slots + n_numbers;
    tow_type *types = tow__alloc(o->ctx, n_inputs + 1, sizeof *types), *type = types;
    if (!types) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < n; i++) *type++ = o->params->types[i];
    for (uint32_t i = 0; i < n; i++) *type++ = tow__gradient_type(o, i);
    for (size_t i = 0; i < n_slots; i++) *type++ = o->slots[i].type;
    for (size_t i = 0; i < n_numbers; i++) *type++ = tow_make_type(TOW_F64, 0, NULL);
    tow_status status = tow_trace_function(o->ctx, record, &r, n_inputs, types, NULL, n + n_slots + n_reports, graph);
    tow__free(o->ctx, types, n_inputs + 1, sizeof *types);
    return status;
}

tow_status tow__update_discover(tow_optimizer_state *o)
{
    tow_graph *graph = NULL;
    tow_status status = make_graph((recording){.o = o, .discovering = true}, &graph);
    tow_graph_release(graph);
    return status;
}

tow_status tow__update_graph(tow_optimizer_state *o, tow_graph **graph)
{
    return make_graph((recording){.o = o}, graph);
}
