/* Functions that transforms call while an update is recorded: slots, numbers, reports, parameters and gradients. */
#include "src/train/update.h"

#include <math.h>
#include <stdio.h>

#include "src/train/recording.h"
#include "src/train/slots_in_bytes.h"
#include "src/train/transforms.h"
#include "src/train/wide.h"
#include "tow/ops.h"

const char *tow__joined(tow_trace *t, const char *a, const char *b, const char *c)
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

tow_type tow__layer_type(const tow_optimizer_state *o, uint32_t parameter)
{
    const char *path = o->params->names.names[parameter];
    const tow_type type = tow__type_in_front(path, tow__update_type(o, parameter));
    const int levels = tow__path_levels(path);
    return tow_make_type(type.dtype, type.rank - levels, type.dims + levels);
}

void tow__update_fail(tow_update *u, tow_status status, const char *format, ...)
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
    const char *prefix = tow__joined(u->trace, u->owner, "/", name);
    if (!prefix) return NULL;
    if (prefix_size) *prefix_size = strlen(prefix) + 1;
    return tow__joined(u->trace, prefix, "/", path_of(u, u->parameter));
}

/* The types of slots of a whole stack: the layers' axes in front. */
static tow_type stacked_type(const tow_update *u, tow_type type)
{
    if (u->parameter == TOW__NO_PARAMETER) return type;
    const char *path = path_of(u, u->parameter);
    const tow_type whole = tow__type_in_front(path, u->o->params->types[u->parameter]);
    const int levels = tow__path_levels(path);
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
        tow__update_fail(u, TOW_OUT_OF_MEMORY, "out of memory");
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
        tow__update_fail(u, TOW_OUT_OF_MEMORY, "out of memory");
        return;
    }
    memcpy(s->prefix, key, prefix_size);
    const uint32_t index = tow__names_add(&o->slot_names, key);
    if (index == TOW__NO_NAME) {
        tow__free(o->ctx, s->prefix, s->prefix_size, 1);
        tow__update_fail(u, TOW_OUT_OF_MEMORY, "out of memory");
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
        tow__update_fail(
            u, TOW_INVALID_ARGUMENT,
            "slot '%s' was not asked for when the transform was recorded first; ask for the same slots every time",
            name);
        return (tow_value){0};
    }
    add_slot(u, key, prefix_size, type, value);
    return tow_full(u->trace, type, value);
}

tow_value tow_slot_with(tow_update *u, const char *name, tow_type type, double value)
{
    size_t prefix_size;
    if (tow__slot_in_bytes(u, type, value)) return tow__slot_from_bytes(u, name, type);
    const char *key = name ? slot_key(u, name, &prefix_size) : NULL;
    if (!key) return (tow_value){0};
    const uint32_t index = tow__names_find(&u->o->slot_names, key);
    if (index == TOW__NO_NAME) return new_slot(u, key, prefix_size, name, type, value);
    const tow__slot *s = &u->o->slots[index];
    if (!tow_type_equal(s->type, stacked_type(u, type))) {
        tow__update_fail(u, TOW_TYPE_MISMATCH,
                         "slot '%s' is %s for all layers, but is asked for as %s; ask for one type", name,
                         tow__type_name(s->type).text, tow__type_name(stacked_type(u, type)).text);
        return (tow_value){0};
    }
    return u->discovering ? tow_full(u->trace, type, value) : u->slots[index];
}

tow_value tow_slot(tow_update *u, const char *name)
{
    const tow_type type =
        u->parameter == TOW__NO_PARAMETER ? tow_make_type(TOW_F32, 0, NULL) : tow__layer_type(u->o, u->parameter);
    return tow_slot_with(u, name, type, 0);
}

tow_value tow__slot_of_squares(tow_update *u, const char *name)
{
    tow_update own = *u;
    own.nonnegative = true;
    return tow_slot(&own, name);
}

const tow__slot *tow__find_slot(tow_update *u, const char *name)
{
    const char *key = name ? slot_key(u, name, NULL) : NULL;
    const uint32_t index = key ? tow__names_find(&u->o->slot_names, key) : TOW__NO_NAME;
    return index == TOW__NO_NAME ? NULL : &u->o->slots[index];
}

void tow_set_slot(tow_update *u, const char *name, tow_value value)
{
    if (!tow_is_null(value) && tow__slot_to_bytes(u, name, value)) return;
    const char *key = name ? slot_key(u, name, NULL) : NULL;
    if (!key || tow_is_null(value)) return;
    const uint32_t index = tow__names_find(&u->o->slot_names, key);
    if (index == TOW__NO_NAME) {
        tow__update_fail(u, TOW_NOT_FOUND, "slot '%s' is written, but was not asked for; call tow_slot first", name);
        return;
    }
    const tow_type type = stacked_type(u, tow_value_type(value));
    if (!tow_type_equal(u->o->slots[index].type, type)) {
        tow__update_fail(u, TOW_TYPE_MISMATCH,
                         "slot '%s': expected a new value of the type that it has, %s for all layers, found %s", name,
                         tow__type_name(u->o->slots[index].type).text, tow__type_name(type).text);
        return;
    }
    if (!u->discovering) u->slots[index] = value;
}

/* Slots of parameters in `all`, where stacks of layers are whole. */
static tow_update of_parameter(const tow_update *u, size_t index)
{
    tow_update one = *u;
    one.parameter = u->which[index];
    one.exact = true; /* copies of parameters */
    return one;
}

tow_value tow__parameter_slot(tow_update *u, size_t index, const char *name)
{
    tow_update one = of_parameter(u, index);
    tow_value slot = tow_slot(&one, name);
    return u->discovering && !tow_is_null(slot) ? tow_full_like(u->parameters[one.parameter], 0) : slot;
}

void tow__set_parameter_slot(tow_update *u, size_t index, const char *name, tow_value value)
{
    tow_update one = of_parameter(u, index);
    const char *key = slot_key(&one, name, NULL);
    const uint32_t slot = key ? tow__names_find(&u->o->slot_names, key) : TOW__NO_NAME;
    if (slot != TOW__NO_NAME && !u->discovering && !tow_is_null(value)) u->slots[slot] = value;
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
    tow__update_fail(u, TOW_OUT_OF_MEMORY, "out of memory");
    return false;
}

/* The number's input. As f32 it was converted before anything else, once for all parameters: what is computed in
 * between would keep the passes over a parameter apart. */
static tow_value read_number(tow_update *u, uint32_t index, tow_dtype dtype)
{
    if (dtype == TOW_F64) return u->numbers[index];
    return dtype == TOW_F32 ? u->converted[index] : tow_convert(u->numbers[index], dtype);
}

static tow_value number(tow_update *u, const char *name, tow__number wanted, tow_dtype dtype)
{
    wanted.steps = u->steps;
    const char *key = name ? tow__joined(u->trace, u->owner, "/", name) : NULL;
    if (!key) return (tow_value){0};
    const uint32_t index = tow__names_find(&u->o->number_names, key);
    if (u->discovering) {
        if (index == TOW__NO_NAME && !add_number(u, key, wanted)) return (tow_value){0};
        return tow_scalar(u->trace, dtype, 1);
    }
    if (index != TOW__NO_NAME) return read_number(u, index, dtype);
    tow__update_fail(
        u, TOW_INVALID_ARGUMENT,
        "number '%s' was not asked for when the transform was recorded first; ask for the same numbers every time",
        name);
    return (tow_value){0};
}

tow_value tow_update_number(tow_update *u, const char *name, const tow_schedule *schedule, tow_dtype dtype)
{
    if (!schedule) {
        tow__update_fail(u, TOW_INVALID_ARGUMENT, "expected a schedule for number '%s', found NULL", name ? name : "");
        return (tow_value){0};
    }
    if (!tow__schedule_complete(schedule)) {
        tow__update_fail(u, TOW_INVALID_ARGUMENT,
                         "expected a schedule for number '%s', found one of an unknown kind, with NaN, or without its "
                         "function or arrays",
                         name ? name : "");
        return (tow_value){0};
    }
    return number(u, name, (tow__number){.schedule = *schedule, .fixed = NAN}, dtype);
}

bool tow__update_is_first(const tow_update *u) { return u->discovering && u->n == u->o->params->names.count; }

tow_value tow__update_negated(tow_update *u, const char *name, const tow_schedule *schedule, tow_dtype dtype)
{
    tow_value value = tow_update_number(u, name, schedule, dtype);
    if (u->discovering || dtype != TOW_F32 || tow_is_null(value)) return tow_neg(value);
    const char *key = tow__joined(u->trace, u->owner, "/", name);
    return key ? u->negated[tow__names_find(&u->o->number_names, key)] : (tow_value){0};
}

tow_value tow_update_function(tow_update *u, const char *name, double (*function)(int64_t step, const void *self),
                              const void *self, tow_dtype dtype)
{
    if (!function) {
        tow__update_fail(u, TOW_INVALID_ARGUMENT, "expected a function for number '%s', found NULL", name ? name : "");
        return (tow_value){0};
    }
    return number(u, name, (tow__number){.function = function, .self = self, .fixed = NAN}, dtype);
}

static double loss_of(int64_t step, const void *state)
{
    (void)step;
    return ((const tow_optimizer_state *)state)->loss;
}

bool tow__number_is_loss(const tow_optimizer_state *o, uint32_t number)
{
    return o->numbers[number].function == loss_of;
}

tow_value tow_update_loss(tow_update *u)
{
    if (u->parameter != TOW__NO_PARAMETER) {
        tow__update_fail(u, TOW_UNSUPPORTED, "it takes the loss, which is there in `all` only");
        return (tow_value){0};
    }
    if (u->discovering) u->o->loss_taker = u->class_name;
    return tow_update_function(u, "loss", loss_of, u->o, TOW_F64);
}

void tow_update_report(tow_update *u, const char *name, tow_value value)
{
    const char *key = name ? tow__joined(u->trace, u->owner, "/", name) : NULL;
    if (!key || tow_is_null(value)) return;
    const tow_type type = tow_value_type(value);
    uint32_t index = tow__names_find(&u->o->report_names, key);
    if (type.rank != 0 || !tow_dtype_is_float(type.dtype) || u->parameter != TOW__NO_PARAMETER) {
        tow__update_fail(u, TOW_INVALID_ARGUMENT, "report '%s': expected a float scalar, reported by `all`, found %s",
                         name, tow__type_name(type).text);
        return;
    }
    if (u->discovering && index == TOW__NO_NAME) {
        if (tow__names_add(&u->o->report_names, key) == TOW__NO_NAME)
            tow__update_fail(u, TOW_OUT_OF_MEMORY, "out of memory");
        return;
    }
    if (index == TOW__NO_NAME)
        tow__update_fail(u, TOW_INVALID_ARGUMENT,
                         "report '%s' was not there when the transform was recorded first; report the same "
                         "every time",
                         name);
    else if (!u->discovering)
        u->reports[index] = tow_convert(value, TOW_F64);
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

size_t tow_update_parameter_count(const tow_update *u) { return u->n; }

const char *tow_update_path(const tow_update *u, size_t index)
{
    return index < u->n ? path_of(u, u->which[index]) : NULL;
}

tow_param_kind tow_update_kind(const tow_update *u, size_t index)
{
    return index < u->n ? u->o->params->kinds[u->which[index]] : TOW_PARAM_OTHER;
}

bool tow__update_has(tow_update *u, size_t index)
{
    if (index < u->n) return true;
    tow__update_fail(u, TOW_INVALID_ARGUMENT, "expected one of %zu parameters, found number %zu", u->n, index);
    return false;
}

tow_value tow_update_parameter(tow_update *u, size_t index)
{
    return tow__update_has(u, index) ? u->parameters[u->which[index]] : (tow_value){0};
}

tow_value tow_update_gradient(tow_update *u, size_t index)
{
    if (!tow__update_has(u, index)) return (tow_value){0};
    tow__update_settle(u, u->which[index]);
    return u->gradients[u->which[index]];
}

void tow_update_set_gradient(tow_update *u, size_t index, tow_value gradient)
{
    if (!tow__update_has(u, index) || tow_is_null(gradient)) return;
    tow__update_settle(u, u->which[index]);
    const tow_type expected = tow_value_type(u->gradients[u->which[index]]), found = tow_value_type(gradient);
    if (tow_type_equal(expected, found))
        u->gradients[u->which[index]] = gradient;
    else
        tow__update_fail(u, TOW_TYPE_MISMATCH, "the gradient of %s: expected %s, found %s", path_of(u, u->which[index]),
                         tow__type_name(expected).text, tow__type_name(found).text);
}
