/* Recording an update: what transforms call, and the graphs that come of it. */
#include "train/update.h"

#include "train/transforms.h"

#include <math.h>
#include <stdio.h>

#include "src/graph/graph.h"
#include "tow/autodiff.h"
#include "tow/ops.h"

/* Class names that a composite has used so far. */
typedef struct used {
    struct used *next;
    const char *name;
} used;

/* What is still to be done to the gradient of a parameter. It is done when somebody asks for the gradient, or at the end, so
 * that all that concerns a parameter is recorded in one place and the compiler makes one pass of it. */
typedef struct pending pending;

/* One transform on some parameters. Arrays of values are shared by all transforms of a recording. */
struct tow_update {
    tow_optimizer_state *o;
    tow_trace *trace;
    bool discovering;
    bool one_by_one;
    bool rows;          /* parameters are rows of the outermost stack */
    const char *owner;  /* name of the transform; NULL: none is at work */
    const char *prefix; /* of the names of transforms that it runs */
    used *children;
    size_t n; /* parameters that it sees */
    const uint32_t *which;
    uint32_t parameter;                /* in `each`; else TOW__NO_PARAMETER */
    tow_value *parameters, *gradients; /* [parameters of the state] */
    pending **first, **last;           /* likewise; NULL: nothing */
    bool *frozen;                      /* likewise */
    tow_value *slots;                  /* [slots], once they are known */
    tow_value *numbers;                /* [numbers] f64[] */
    tow_value *converted;              /* [numbers] f32[] */
    tow_value *negated;                /* [numbers] f32[], likewise */
    tow_value *reports;
};

struct pending {
    pending *next;
    tow_update u;                            /* for the one parameter */
    const tow_gradient_transform *transform; /* NULL: */
    tow_value factor;                        /* a scalar */
};

static const char *join(tow_trace *t, const char *a, const char *b, const char *c)
{
    const size_t size = strlen(a) + strlen(b) + strlen(c) + 1;
    char *text = tow__trace_alloc(t, size, 1);
    if (text) snprintf(text, size, "%s%s%s", a, b, c);
    return text;
}

tow_trace *tow_update_trace(tow_update *u) { return u->trace; }

static const char *path_of(const tow_update *u, uint32_t parameter)
{
    return parameter == TOW__NO_PARAMETER ? "value" : u->o->params->names.names[parameter];
}

static int levels_of(const tow_update *u, uint32_t parameter)
{
    const int levels = tow__path_levels(u->o->params->names.names[parameter]);
    return u->rows && levels > 0 ? levels - 1 : levels;
}

/* The type of one layer. */
static tow_type layer_type(const tow_optimizer_state *o, uint32_t parameter)
{
    const tow_type type = o->params->types[parameter];
    const int levels = tow__path_levels(o->params->names.names[parameter]);
    return tow_make_type(type.dtype, type.rank - levels, type.dims + levels);
}

static __attribute__((format(printf, 3, 4))) void fail(tow_update *u, tow_status status, const char *format, ...)
{
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const char *path = u->parameter == TOW__NO_PARAMETER ? NULL : path_of(u, u->parameter);
    tow_trace_fail(u->trace, status, "optimizer: %s%s%s: %s", u->owner ? u->owner : "", path ? " of parameter " : "",
                   path ? path : "", text);
}

/* ---- slots ------------------------------------------------------------------------------------------------------- */

/* "owner/name/path"; *prefix_size: of "owner/name/". */
static const char *slot_key(tow_update *u, const char *name, size_t *prefix_size)
{
    const char *prefix = join(u->trace, u->owner, "/", name);
    if (!prefix) return NULL;
    if (prefix_size) *prefix_size = strlen(prefix) + 1;
    return join(u->trace, prefix, "/", path_of(u, u->parameter));
}

/* The types of slots of a whole stack: the layers' axes in front. */
static tow_type stacked_type(const tow_update *u, tow_type type)
{
    if (u->parameter == TOW__NO_PARAMETER) return type;
    const tow_type whole = u->o->params->types[u->parameter];
    const int levels = tow__path_levels(path_of(u, u->parameter));
    int64_t dims[TOW_MAX_RANK];
    if (levels + type.rank > TOW_MAX_RANK) return tow_make_type(type.dtype, -1, NULL);
    for (int i = 0; i < levels; i++) dims[i] = whole.dims[i];
    for (int i = 0; i < type.rank; i++) dims[levels + i] = type.dims[i];
    return tow_make_type(type.dtype, levels + type.rank, dims);
}

static bool reserve_slot(tow_optimizer_state *o)
{
    const uint32_t capacity = o->slots_capacity ? 2 * o->slots_capacity : 16;
    if (o->slot_names.count < o->slots_capacity) return true;
    tow__slot *slots = tow__alloc(o->ctx, capacity, sizeof *slots);
    if (!slots) return false;
    if (o->slots) {
        memcpy(slots, o->slots, o->slots_capacity * sizeof *slots);
        tow__free(o->ctx, o->slots, o->slots_capacity, sizeof *slots);
    }
    o->slots = slots;
    o->slots_capacity = capacity;
    return true;
}

static void add_slot(tow_update *u, const char *key, size_t prefix_size, tow_type type, double value)
{
    tow_optimizer_state *o = u->o;
    if (!reserve_slot(o)) {
        fail(u, TOW_OUT_OF_MEMORY, "out of memory");
        return;
    }
    tow__slot *s = &o->slots[o->slot_names.count];
    *s = (tow__slot){.prefix = tow__alloc(o->ctx, prefix_size + 1, 1),
                     .prefix_size = prefix_size + 1,
                     .parameter = u->parameter,
                     .next = TOW__NO_NAME,
                     .type = stacked_type(u, type),
                     .initial = value};
    if (!s->prefix) {
        fail(u, TOW_OUT_OF_MEMORY, "out of memory");
        return;
    }
    memcpy(s->prefix, key, prefix_size);
    const uint32_t index = tow__names_add(&o->slot_names, key);
    if (index == TOW__NO_NAME) {
        tow__free(o->ctx, s->prefix, s->prefix_size, 1);
        fail(u, TOW_OUT_OF_MEMORY, "out of memory");
        return;
    }
    if (u->parameter == TOW__NO_PARAMETER) return;
    s->next = o->first_slot[u->parameter];
    o->first_slot[u->parameter] = index;
}

static tow_value new_slot(tow_update *u, const char *key, size_t prefix_size, const char *name, tow_type type,
                          double value)
{
    if (!u->discovering) {
        fail(u, TOW_INVALID_ARGUMENT,
             "slot '%s' was not asked for when the transform was recorded first; ask for the same slots every time",
             name);
        return (tow_value){0};
    }
    if (u->parameter == TOW__NO_PARAMETER && u->one_by_one) {
        fail(u, TOW_UNSUPPORTED,
             "slot '%s' belongs to all parameters together, which are updated one by one here; make them all at once",
             name);
        return (tow_value){0};
    }
    add_slot(u, key, prefix_size, type, value);
    return tow_full(u->trace, type, value);
}

tow_value tow_slot_of(tow_update *u, const char *name, tow_type type, double value)
{
    size_t prefix_size;
    const char *key = name ? slot_key(u, name, &prefix_size) : NULL;
    if (!key) return (tow_value){0};
    const uint32_t index = tow__names_find(&u->o->slot_names, key);
    if (index == TOW__NO_NAME) return new_slot(u, key, prefix_size, name, type, value);
    const tow__slot *s = &u->o->slots[index];
    if (!tow_type_equal(s->type, stacked_type(u, type))) {
        fail(u, TOW_TYPE_MISMATCH, "slot '%s' is %s for all layers, but is asked for as %s; ask for one type", name,
             tow__type_name(s->type).text, tow__type_name(stacked_type(u, type)).text);
        return (tow_value){0};
    }
    return u->discovering ? tow_full(u->trace, type, value) : u->slots[index];
}

tow_value tow_slot(tow_update *u, const char *name)
{
    const tow_type type =
        u->parameter == TOW__NO_PARAMETER ? tow_make_type(TOW_F32, 0, NULL) : layer_type(u->o, u->parameter);
    return tow_slot_of(u, name, type, 0);
}

void tow_set_slot(tow_update *u, const char *name, tow_value value)
{
    const char *key = name ? slot_key(u, name, NULL) : NULL;
    if (!key || tow_is_null(value)) return;
    const uint32_t index = tow__names_find(&u->o->slot_names, key);
    if (index == TOW__NO_NAME) {
        fail(u, TOW_NOT_FOUND, "slot '%s' is written, but was not asked for; call tow_slot first", name);
        return;
    }
    const tow_type type = stacked_type(u, tow_value_type(value));
    if (!tow_type_equal(u->o->slots[index].type, type)) {
        fail(u, TOW_TYPE_MISMATCH,
             "slot '%s': expected a new value of the type that it has, %s for all layers, found %s", name,
             tow__type_name(u->o->slots[index].type).text, tow__type_name(type).text);
        return;
    }
    if (!u->discovering) u->slots[index] = value;
}

/* ---- numbers and reports ----------------------------------------------------------------------------------------- */

static bool reserve_number(tow_optimizer_state *o)
{
    const uint32_t capacity = o->numbers_capacity ? 2 * o->numbers_capacity : 8;
    if (o->number_names.count < o->numbers_capacity) return true;
    tow__number *numbers = tow__alloc(o->ctx, capacity, sizeof *numbers);
    if (!numbers) return false;
    if (o->numbers) {
        memcpy(numbers, o->numbers, o->numbers_capacity * sizeof *numbers);
        tow__free(o->ctx, o->numbers, o->numbers_capacity, sizeof *numbers);
    }
    o->numbers = numbers;
    o->numbers_capacity = capacity;
    return true;
}

static bool add_number(tow_update *u, const char *key, tow__number number)
{
    tow_optimizer_state *o = u->o;
    if (reserve_number(o)) {
        o->numbers[o->number_names.count] = number;
        if (tow__names_add(&o->number_names, key) != TOW__NO_NAME) return true;
    }
    fail(u, TOW_OUT_OF_MEMORY, "out of memory");
    return false;
}

/* The number's input. As f32 it was converted before anything else, once for all parameters: what is computed in between would
 * keep the passes over a parameter apart. */
static tow_value read_number(tow_update *u, uint32_t index, tow_dtype dtype)
{
    if (dtype == TOW_F64) return u->numbers[index];
    return dtype == TOW_F32 ? u->converted[index] : tow_convert(u->numbers[index], dtype);
}

static tow_value number(tow_update *u, const char *name, tow__number wanted, tow_dtype dtype)
{
    const char *key = name ? join(u->trace, u->owner, "/", name) : NULL;
    if (!key) return (tow_value){0};
    const uint32_t index = tow__names_find(&u->o->number_names, key);
    if (u->discovering) {
        if (index == TOW__NO_NAME && !add_number(u, key, wanted)) return (tow_value){0};
        return tow_scalar(u->trace, dtype, 1);
    }
    if (index != TOW__NO_NAME) return read_number(u, index, dtype);
    fail(u, TOW_INVALID_ARGUMENT,
         "number '%s' was not asked for when the transform was recorded first; ask for the same numbers every time",
         name);
    return (tow_value){0};
}

tow_value tow_update_number(tow_update *u, const char *name, const tow_schedule *schedule, tow_dtype dtype)
{
    if (!schedule) {
        fail(u, TOW_INVALID_ARGUMENT, "expected a schedule for number '%s', found NULL", name ? name : "");
        return (tow_value){0};
    }
    return number(u, name, (tow__number){.schedule = *schedule, .fixed = NAN}, dtype);
}

tow_value tow__update_negated(tow_update *u, const char *name, const tow_schedule *schedule, tow_dtype dtype)
{
    tow_value value = tow_update_number(u, name, schedule, dtype);
    if (u->discovering || dtype != TOW_F32 || tow_is_null(value)) return tow_neg(value);
    return u->negated[tow__names_find(&u->o->number_names, join(u->trace, u->owner, "/", name))];
}

tow_value tow_update_function(tow_update *u, const char *name, double (*function)(const void *self, int64_t step),
                              const void *self, tow_dtype dtype)
{
    if (!function) {
        fail(u, TOW_INVALID_ARGUMENT, "expected a function for number '%s', found NULL", name ? name : "");
        return (tow_value){0};
    }
    return number(u, name, (tow__number){.function = function, .self = self, .fixed = NAN}, dtype);
}

void tow_update_report(tow_update *u, const char *name, tow_value value)
{
    const char *key = name ? join(u->trace, u->owner, "/", name) : NULL;
    if (!key || tow_is_null(value)) return;
    const tow_type type = tow_value_type(value);
    uint32_t index = tow__names_find(&u->o->report_names, key);
    if (type.rank != 0 || !tow_dtype_is_float(type.dtype) || u->parameter != TOW__NO_PARAMETER) {
        fail(u, TOW_INVALID_ARGUMENT, "report '%s': expected a float scalar, reported by `all`, found %s", name,
             tow__type_name(type).text);
        return;
    }
    if (u->discovering && index == TOW__NO_NAME) {
        if (tow__names_add(&u->o->report_names, key) == TOW__NO_NAME) fail(u, TOW_OUT_OF_MEMORY, "out of memory");
        return;
    }
    if (index == TOW__NO_NAME)
        fail(u, TOW_INVALID_ARGUMENT,
             "report '%s' was not there when the transform was recorded first; report the same "
             "every time",
             name);
    else if (!u->discovering)
        u->reports[index] = tow_convert(value, TOW_F64);
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

size_t tow_update_count(const tow_update *u) { return u->n; }

const char *tow_update_path(const tow_update *u, size_t index)
{
    return index < u->n ? path_of(u, u->which[index]) : NULL;
}

static bool has(tow_update *u, size_t index)
{
    if (index < u->n) return true;
    fail(u, TOW_INVALID_ARGUMENT, "expected one of %zu parameters, found number %zu", u->n, index);
    return false;
}

tow_value tow_update_parameter(tow_update *u, size_t index)
{
    return has(u, index) ? u->parameters[u->which[index]] : (tow_value){0};
}

static void settle(tow_update *u, uint32_t i);

tow_value tow_update_gradient(tow_update *u, size_t index)
{
    if (!has(u, index)) return (tow_value){0};
    settle(u, u->which[index]);
    return u->gradients[u->which[index]];
}

void tow_update_set_gradient(tow_update *u, size_t index, tow_value gradient)
{
    if (!has(u, index) || tow_is_null(gradient)) return;
    settle(u, u->which[index]);
    const tow_type expected = tow_value_type(u->gradients[u->which[index]]), found = tow_value_type(gradient);
    if (tow_type_equal(expected, found))
        u->gradients[u->which[index]] = gradient;
    else
        fail(u, TOW_TYPE_MISMATCH, "the gradient of %s: expected %s, found %s", path_of(u, u->which[index]),
             tow__type_name(expected).text, tow__type_name(found).text);
}

/* ---- transforms of single parameters ----------------------------------------------------------------------------- */

/* `each` on one layer. */
static tow_value transform_layer(tow_update *u, const tow_gradient_transform *transform, tow_value g, tow_value p)
{
    const tow_type expected = tow_value_type(g);
    tow_value result = transform->cls->each(u, transform, g, p);
    if (tow_is_null(result) || tow_type_equal(tow_value_type(result), expected)) return result;
    fail(u, TOW_TYPE_MISMATCH, "expected a gradient of type %s, found %s", tow__type_name(expected).text,
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
        const char *prefix = u->o->slots[k].prefix;
        const char *slash = strrchr(prefix, '/'); /* the last character */
        while (slash > prefix && slash[-1] != '/') slash--;
        if ((size_t)(slash - prefix) == owner + 1 && memcmp(prefix, u->owner, owner) == 0) slots[s.n_slots++] = k;
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
    const tow_type type = layer_type(one->o, i);
    if (one->discovering)
        transform_layer(one, transform, tow_full(one->trace, type, 0), tow_full(one->trace, type, 0));
    else if (levels_of(one, i) == 0)
        one->gradients[i] = transform_layer(one, transform, one->gradients[i], one->parameters[i]);
    else
        transform_stack(one, transform, i);
}

static void add_pending(tow_update *u, uint32_t i, const tow_gradient_transform *transform, tow_value factor)
{
    pending *entry = tow__trace_alloc(u->trace, 1, sizeof *entry);
    uint32_t *which = tow__trace_alloc(u->trace, 1, sizeof *which);
    if (!entry || !which) return;
    *which = i;
    *entry = (pending){.u = *u, .transform = transform, .factor = factor};
    entry->u.n = 1;
    entry->u.which = which;
    entry->u.parameter = i;
    if (u->last[i])
        u->last[i]->next = entry;
    else
        u->first[i] = entry;
    u->last[i] = entry;
}

/* Does what is still to be done to a gradient. */
static void settle(tow_update *u, uint32_t i)
{
    pending *entry = u->first[i];
    u->first[i] = u->last[i] = NULL;
    for (; entry; entry = entry->next) {
        if (entry->transform) {
            transform_parameter(&entry->u, entry->transform);
        } else if (!u->discovering) {
            const tow_type type = tow_value_type(u->gradients[i]);
            u->gradients[i] = tow_mul(u->gradients[i], tow_broadcast_to(entry->factor, type.rank, type.dims));
        }
    }
}

void tow__update_scale(tow_update *u, size_t index, tow_value factor)
{
    if (has(u, index)) add_pending(u, u->which[index], NULL, factor);
}

/* ---- transforms in transforms ------------------------------------------------------------------------------------ */

/* The class's name, or "name_1", "name_2" where a composite has used it before. */
static const char *name_child(tow_update *u, const char *name)
{
    used *entry = tow__trace_alloc(u->trace, 1, sizeof *entry);
    char number[24] = "";
    unsigned n = 0;
    if (!entry) return NULL;
    for (const used *c = u->children; c; c = c->next) n += strcmp(c->name, name) == 0;
    *entry = (used){u->children, name};
    u->children = entry;
    if (n) snprintf(number, sizeof number, "_%u", n);
    return join(u->trace, u->prefix, name, number);
}

static bool is_transform(tow_update *u, const tow_gradient_transform *t)
{
    if (!t || !t->cls || !t->cls->name || !t->cls->each == !t->cls->all) {
        fail(
            u, TOW_INVALID_ARGUMENT,
            "expected a transform whose class has a name and one of .each and .all, found %s; set .base = {&its_class}",
            t ? "another struct" : "NULL");
        return false;
    }
    if (!u->one_by_one || !t->cls->all || t->cls->separate) return true;
    fail(
        u, TOW_UNSUPPORTED,
        "%s needs all parameters together, but they are updated one by one here (early_update); update them at the end "
        "of the step",
        t->cls->name);
    return false;
}

static void run_on(tow_update *u, const tow_gradient_transform *transform, size_t n, const uint32_t *which)
{
    if (!is_transform(u, transform)) return;
    tow_update child = *u;
    const bool root = !u->owner;
    child.owner = name_child(u, transform->cls->name);
    if (!child.owner) return;
    child.prefix = root && transform->cls == &tow_chain_class ? "" : join(u->trace, child.owner, "/", "");
    child.children = NULL;
    child.n = n;
    child.which = which;
    child.parameter = TOW__NO_PARAMETER;
    if (!child.prefix) return;
    if (transform->cls->all)
        transform->cls->all(&child, transform);
    else
        for (size_t i = 0; i < n; i++) add_pending(&child, which[i], transform, (tow_value){0});
}

void tow_update_run(tow_update *u, const tow_gradient_transform *transform) { run_on(u, transform, u->n, u->which); }

void tow_update_run_on(tow_update *u, const tow_gradient_transform *transform, size_t n, const size_t *indices)
{
    uint32_t *which = tow__trace_alloc(u->trace, n + 1, sizeof *which);
    if (!which || (n > 0 && !indices)) return;
    for (size_t i = 0; i < n; i++) {
        if (!has(u, indices[i])) return;
        which[i] = u->which[indices[i]];
        if (!transform) u->frozen[which[i]] = true;
    }
    if (transform) run_on(u, transform, n, which);
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

typedef struct recording {
    tow_optimizer_state *o;
    size_t n;
    const uint32_t *which;
    bool discovering, one_by_one;
} recording;

/* A slot of one of these parameters, or of the transform itself? */
static bool takes_part(const recording *r, const tow__slot *s)
{
    if (r->n == r->o->params->names.count) return true;
    for (size_t i = 0; i < r->n; i++)
        if (r->which[i] == s->parameter) return true;
    return false;
}

static bool begin(const recording *r, tow_trace *t, tow_update *u)
{
    const tow_optimizer_state *o = r->o;
    const uint32_t n = o->params->names.count;
    *u = (tow_update){.o = r->o,
                      .trace = t,
                      .discovering = r->discovering,
                      .one_by_one = r->one_by_one,
                      .rows = r->one_by_one,
                      .prefix = "",
                      .n = r->n,
                      .which = r->which,
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
    return u->parameters && u->gradients && u->frozen && u->first && u->last && u->slots && u->numbers &&
           u->converted && u->negated && u->reports;
}

static void record(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const recording *r = user;
    tow_update u;
    size_t k = 0;
    if (!begin(r, t, &u)) return;
    for (size_t i = 0; i < r->n; i++) u.parameters[r->which[i]] = in[k++];
    for (size_t i = 0; i < r->n; i++) u.gradients[r->which[i]] = in[k++];
    for (uint32_t i = 0; !r->discovering && i < r->o->slot_names.count; i++)
        if (takes_part(r, &r->o->slots[i])) u.slots[i] = in[k++];
    for (uint32_t i = 0; !r->discovering && i < r->o->number_names.count; i++)
        u.negated[i] = tow_neg(u.converted[i] = tow_convert(u.numbers[i] = in[k++], TOW_F32));
    run_on(&u, r->o->transform, r->n, r->which);
    k = 0;
    for (size_t i = 0; i < r->n; i++) {
        const uint32_t p = r->which[i];
        settle(&u, p);
        out[k++] = u.frozen[p] || r->discovering ? u.parameters[p] : tow_add(u.parameters[p], u.gradients[p]);
    }
    for (uint32_t i = 0; !r->discovering && i < r->o->slot_names.count; i++)
        if (takes_part(r, &r->o->slots[i])) out[k++] = u.slots[i];
    for (uint32_t i = 0; !r->discovering && !r->one_by_one && i < r->o->report_names.count; i++)
        out[k++] = u.reports[i];
}

/* A row of the outermost stack. */
static tow_type row_type(tow_type type, int levels)
{
    return levels > 0 ? tow_make_type(type.dtype, type.rank - 1, type.dims + 1) : type;
}

static tow_status make_graph(const recording *r, tow_graph **graph)
{
    tow_optimizer_state *o = r->o;
    const size_t most = 2 * r->n + o->slot_names.count + o->number_names.count + 1;
    tow_type *types = tow__alloc(o->ctx, most, sizeof *types);
    if (!types) return TOW_OUT_OF_MEMORY;
    size_t n = 0, n_slots = 0;
    for (int twice = 0; twice < 2; twice++)
        for (size_t i = 0; i < r->n; i++) {
            const int levels = tow__path_levels(o->params->names.names[r->which[i]]);
            types[n++] = row_type(o->params->types[r->which[i]], r->one_by_one && !r->discovering ? levels : 0);
        }
    for (uint32_t i = 0; !r->discovering && i < o->slot_names.count; i++) {
        const tow__slot *s = &o->slots[i];
        if (!takes_part(r, s)) continue;
        const int levels =
            s->parameter == TOW__NO_PARAMETER ? 0 : tow__path_levels(o->params->names.names[s->parameter]);
        types[n++] = row_type(s->type, r->one_by_one ? levels : 0);
        n_slots++;
    }
    for (uint32_t i = 0; !r->discovering && i < o->number_names.count; i++)
        types[n++] = tow_make_type(TOW_F64, 0, NULL);
    const size_t n_reports = r->discovering || r->one_by_one ? 0 : o->report_names.count;
    recording copy = *r;
    tow_status status = tow_trace_function(o->ctx, record, &copy, n, types, NULL, r->n + n_slots + n_reports, graph);
    tow__free(o->ctx, types, most, sizeof *types);
    return status;
}

/* Calls make_graph with all parameters. */
static tow_status make_whole(tow_optimizer_state *o, bool discovering, bool one_by_one, tow_graph **graph)
{
    const uint32_t n = o->params->names.count;
    uint32_t *which = tow__alloc(o->ctx, (size_t)n + 1, sizeof *which);
    if (!which) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < n; i++) which[i] = i;
    const recording r = {o, n, which, discovering, one_by_one};
    tow_status status = make_graph(&r, graph);
    tow__free(o->ctx, which, (size_t)n + 1, sizeof *which);
    return status;
}

tow_status tow__update_discover(tow_optimizer_state *o, bool one_by_one)
{
    tow_graph *graph = NULL;
    tow_status status = make_whole(o, true, one_by_one, &graph);
    tow_graph_release(graph);
    return status;
}

tow_status tow__update_graph(tow_optimizer_state *o, tow_graph **graph) { return make_whole(o, false, false, graph); }

tow_status tow__update_row_graph(tow_optimizer_state *o, uint32_t parameter, tow_graph **graph)
{
    const recording r = {o, 1, &parameter, false, true};
    return make_graph(&r, graph);
}
