/* Traces: a stack of builders, the values that users hold, and bind, the only way in.
 *
 *   values[id] = {depth, serial, var}        builders[depth] is the builder of the value, if the serial still fits;
 *                                            otherwise its body has been closed and the value has escaped
 *
 *   import of a value of depth 0 into depth 2 captures twice:   outer ──> capture in 1 ──> capture in 2
 *
 * The first error sticks: its status and text stay in the trace, operations do nothing from then on, and whoever ends
 * the trace gets them through the context.
 *
 * Values and callers may keep a trace that has ended. So what they point to stays where it is as long as the context,
 * and says that it has ended, until a later trace takes its place with a serial that no value has. */
#include <stdio.h>

#include "src/base/options.h"
#include "src/graph/builder.h"
#include "src/graph/policy.h"

typedef struct value_place {
    uint32_t depth, serial, var;
} value_place;

/* A recording. */
typedef struct recording {
    tow__arena arena;
    tow__vector builders; /* tow__builder, innermost last */
    tow__vector values;   /* value_place */
    uint32_t serials;     /* given out so far */
    uint32_t lost;        /* pushes after an error: popped without a body */
    tow__string scope;    /* "blocks/attn" */
    tow__vector scopes;   /* size_t: length of `scope` before each push */
    const tow__source *source;
    tow__phase phase;
    tow__iteration_scope iteration_scope;
    void *open_call;      /* of the custom calls whose functions are being traced, the innermost */
    tow__vector operands; /* uint32_t: vars of the operands being bound */
    tow__vector types;    /* tow_type: of operands, then of outputs */
    tow__named_policies policies;
    tow_status status;
    char error[sizeof((tow_context *)0)->error];
} recording;

/* The object that values point to. */
struct tow_trace {
    tow_context *ctx;
    recording *now;  /* NULL: it has ended */
    tow_trace *next; /* of those that have ended */
    uint32_t serial; /* which of the context's traces this is: values carry it, too; 0: it has ended */
};

static const tow_value null_value = {0};

tow_value tow__null_because(tow__null_cause cause) { return (tow_value){.id = (uint32_t)cause}; }

const char *tow__null_text(tow_value null, const char *otherwise)
{
#define OF_NONE(operation) "what " operation " makes of no values (it takes at least one)"
    static const char *const texts[] = {[TOW__NULL_CONCATENATE] = OF_NONE("tow_concatenate"),
                                        [TOW__NULL_STACK] = OF_NONE("tow_stack"),
                                        [TOW__NULL_EINSUM] = OF_NONE("tow_einsum"),
                                        [TOW__NULL_SORT] = OF_NONE("tow_sort_together")};
#undef OF_NONE
    return null.id < sizeof texts / sizeof *texts && texts[null.id] ? texts[null.id] : otherwise;
}

/* ---- errors ---------------------------------------------------------------------------------------------------- */

/* Takes what the context says, once. */
static void stick(tow_trace *t)
{
    if (t->now->status != TOW_OK) return;
    t->now->status = t->ctx->status != TOW_OK ? t->ctx->status : TOW_INTERNAL_ERROR;
    memcpy(t->now->error, t->ctx->error, sizeof t->now->error);
    if (!t->now->error[0]) /* whoever failed left no message, or something else has begun since */
        snprintf(t->now->error, sizeof t->now->error, "%s, without a message (please report this)",
                 tow_status_text(t->now->status));
}

bool tow__failed(const tow_trace *t) { return !t->now || t->now->status != TOW_OK; }

static const char *scope_text(const tow_trace *t) { return t->now->scope.length > 0 ? t->now->scope.text : NULL; }
const char *tow__get_scope(const tow_trace *t) { return scope_text(t); }

bool tow__records(const tow_trace *t, const char *here)
{
    if (t && !t->now)
        tow__fail(t->ctx, TOW_INVALID_ARGUMENT,
                  "%s%sa value of an earlier trace, which has ended, is used: values live as long as the call that "
                  "traces; make it again in this one",
                  here ? here : "", here ? ": " : "");
    return t && !tow__failed(t);
}

/* A scope as messages show it: of a long one the beginning and the end, so that there is room for what is wrong. */
typedef struct shown_scope {
    char text[512];
} shown_scope;

static shown_scope shown(const char *scope)
{
    shown_scope s = {""};
    size_t n = scope ? strlen(scope) : 0, part = (sizeof s.text - sizeof "...") / 2;
    if (n < sizeof s.text)
        memcpy(s.text, scope ? scope : "", n);
    else
        snprintf(s.text, sizeof s.text, "%.*s...%s", (int)part, scope, scope + n - part);
    return s;
}

void tow_trace_fail(tow_trace *trace, tow_status status, const char *format, ...)
{
    if (!tow__records(trace, NULL)) return;
    char text[sizeof trace->now->error];
    va_list args;
    va_start(args, format);
    status = tow__fail_of_caller(trace->ctx, status, format, args);
    va_end(args);
    memcpy(text, trace->ctx->error, sizeof text);
    const char *scope = scope_text(trace);
    tow__fail(trace->ctx, status, "%s%s%s", shown(scope).text, scope ? ": " : "", text);
    stick(trace);
}

bool tow__trace_options(tow_trace *t, const tow__struct_kind *kind, void *options, void *own)
{
    char text[320];
    const void *given;
    memcpy(&given, options, sizeof given);
    if (!given || tow__options_fault(kind, given, text, sizeof text) == 0)
        return tow__options_take(NULL, kind, options, own);
    if (t) tow_trace_fail(t, TOW_INVALID_ARGUMENT, "%s", text);
    return false;
}

/* Repeats the sticky error in the context: calls in between may have left their own. */
tow_status tow__report(tow_trace *t)
{
    return tow__failed(t) ? tow__fail(t->ctx, t->now->status, "%s", t->now->error) : TOW_OK;
}

void tow__adopt_error(tow_trace *t) { stick(t); }

/* ---- life ------------------------------------------------------------------------------------------------------ */

static tow__builder *builder_at(const tow_trace *t, uint32_t depth)
{
    return (tow__builder *)t->now->builders.data + depth;
}
static tow__builder *innermost(const tow_trace *t) { return builder_at(t, t->now->builders.count - 1); }

static bool add_builder(tow_trace *t)
{
    tow__builder *b = tow__vector_push(t->ctx, &t->now->builders, sizeof *b);
    if (!b) return false;
    if (tow__builder_init(b, t->ctx, ++t->now->serials)) return true;
    t->now->builders.count--;
    return false;
}

tow_trace *tow__trace_begin(tow_context *ctx)
{
    tow_context_clear_error(ctx);
    recording *now = tow__alloc(ctx, 1, sizeof *now);
    if (!now) return NULL;
    tow_trace *t = ctx->ended ? ctx->ended : tow__arena_alloc(&ctx->trace_memory, 1, sizeof *t);
    if (!t) {
        tow__free(ctx, now, 1, sizeof *now);
        return NULL;
    }
    ctx->ended = t->next;
    if (++ctx->traces == 0) ctx->traces = 1;
    *t = (tow_trace){.ctx = ctx, .now = now, .serial = ctx->traces};
    tow__arena_init(&now->arena, ctx);
    tow__string_init(&now->scope, ctx);
    if (add_builder(t)) return t;
    tow__trace_abandon(t);
    return NULL;
}

void tow__trace_abandon(tow_trace *t)
{
    if (!t) return;
    tow_context *ctx = t->ctx;
    recording *now = t->now;
    while (now->builders.count > 0) tow__builder_free(builder_at(t, --now->builders.count), ctx);
    tow__vector_free(ctx, &now->builders, sizeof(tow__builder));
    tow__vector_free(ctx, &now->values, sizeof(value_place));
    tow__vector_free(ctx, &now->scopes, sizeof(size_t));
    tow__vector_free(ctx, &now->operands, sizeof(uint32_t));
    tow__vector_free(ctx, &now->types, sizeof(tow_type));
    tow__string_free(&now->scope);
    tow__named_policies_free(&now->policies, ctx);
    tow__arena_free(&now->arena);
    tow__free(ctx, now, 1, sizeof *now);
    *t = (tow_trace){.ctx = ctx, .next = ctx->ended};
    ctx->ended = t;
}

void *tow__trace_alloc(tow_trace *t, size_t count, size_t size)
{
    void *memory = tow__arena_alloc(&t->now->arena, count, size);
    if (!memory) stick(t);
    return memory;
}

tow_trace *tow__trace_begin_over(const tow_graph *g, tow_value **in, tow_value **out)
{
    tow_trace *t = tow__trace_begin(g->ctx);
    if (!t) return NULL;
    *in = tow__trace_alloc(t, g->n_inputs, sizeof **in);
    *out = tow__trace_alloc(t, g->n_outputs, sizeof **out);
    if (*in && *out) return t;
    tow__trace_abandon(t);
    return NULL;
}

tow_context *tow_trace_context(tow_trace *trace) { return trace->ctx; }

void tow__set_source(tow_trace *t, const tow__source *source) { t->now->source = source; }

/* Has a pass said where equations come from? Graphs that were read have no lines and scopes, but phases. */
static bool has_source(const tow_trace *t) { return t->now->source && (t->now->source->here || t->now->source->scope); }

const tow__source *tow__get_source(const tow_trace *t) { return t->now->source; }

void tow__set_open_call(tow_trace *t, void *call) { t->now->open_call = call; }

void *tow__open_call(const tow_trace *t) { return t->now->open_call; }

void tow__set_iteration_scope(tow_trace *t, tow__iteration_scope rename)
{
    if (t->now) t->now->iteration_scope = rename;
}

tow__iteration_scope tow__get_iteration_scope(const tow_trace *t) { return t->now ? t->now->iteration_scope : NULL; }

tow__named_policies *tow__trace_policies(tow_trace *t) { return &t->now->policies; }

const tow__vector *tow__trace_equations(const tow_trace *t)
{
    return &((const tow__builder *)t->now->builders.data)->equations;
}

tow__arena *tow__trace_arena(tow_trace *t) { return &t->now->arena; }

uint32_t tow__innermost_serial(const tow_trace *t) { return innermost(t)->serial; }

uint32_t tow__recorded(const tow_trace *t) { return innermost(t)->equations.count; }

tow__phase tow__set_phase(tow_trace *t, tow__phase phase)
{
    const tow__phase before = t->now->phase;
    t->now->phase = phase;
    return before;
}

void tow__mark_forward(tow_trace *t)
{
    const tow__vector *equations = &innermost(t)->equations;
    for (uint32_t i = 0; i < equations->count; i++) ((tow__equation *)equations->data)[i].source.phase = TOW__FORWARD;
}

void tow__mark_rows(tow_trace *t, uint32_t first, const tow__equation *e, int axis)
{
    const tow__builder *b = innermost(t);
    const tow__row_axes *inner = &e->source.rows;
    if (inner->n >= TOW_MAX_RANK) return;
    for (uint32_t i = first; i < b->equations.count; i++) {
        tow__row_axes *rows = &((tow__equation *)b->equations.data)[i].source.rows;
        if (rows->n > inner->n) continue; /* a rule that batches what e is made of has marked it */
        *rows = (tow__row_axes){.n = (uint8_t)(inner->n + 1), .axis = {(int8_t)axis}};
        for (int k = 1; k < TOW_MAX_RANK && k <= inner->n; k++)
            rows->axis[k] = (int8_t)(inner->axis[k - 1] + (axis >= 0 && inner->axis[k - 1] >= axis));
    }
}

/* ---- scopes: after an error nothing is recorded any more, so names do not matter ------------------------------- */

void tow_trace_push_scope(tow_trace *trace, const char *name)
{
    if (!tow__records(trace, NULL)) return;
    if (!name) {
        tow_trace_fail(trace, TOW_INVALID_ARGUMENT, "tow_trace_push_scope: expected a name, found NULL; pass one");
        return;
    }
    size_t *length = tow__vector_push(trace->ctx, &trace->now->scopes, sizeof *length);
    if (length) {
        *length = trace->now->scope.length;
        tow__string_add(&trace->now->scope, "%s%s", trace->now->scope.length > 0 && name[0] ? "/" : "", name);
    }
    if (!length || trace->now->scope.failed) stick(trace);
}

void tow_trace_pop_scope(tow_trace *trace)
{
    if (!tow__records(trace, NULL)) return;
    if (trace->now->scopes.count == 0) {
        tow_trace_fail(trace, TOW_INVALID_ARGUMENT, "a scope is popped that was never pushed");
        return;
    }
    trace->now->scope.length = ((size_t *)trace->now->scopes.data)[--trace->now->scopes.count];
    if (trace->now->scope.text) trace->now->scope.text[trace->now->scope.length] = '\0';
}

/* ---- values ---------------------------------------------------------------------------------------------------- */

static tow_value new_value(tow_trace *t, uint32_t depth, uint32_t var, const char *here)
{
    value_place *place = tow__vector_push(t->ctx, &t->now->values, sizeof *place);
    if (!place) {
        stick(t);
        return null_value;
    }
    *place = (value_place){.depth = depth, .serial = builder_at(t, depth)->serial, .var = var};
    return (tow_value){.trace = t, .here = here, .id = t->now->values.count - 1, .serial = t->serial};
}

/* The builder in which a value lives, or NULL if its builder is gone. */
static const value_place *place_of(const tow_trace *t, uint32_t id)
{
    if (id >= t->now->values.count) return NULL;
    const value_place *place = (const value_place *)t->now->values.data + id;
    return place->depth < t->now->builders.count && builder_at(t, place->depth)->serial == place->serial ? place : NULL;
}

static tow_type type_of(const tow_trace *t, const value_place *place)
{
    return ((const tow__var *)builder_at(t, place->depth)->vars.data)[place->var].type;
}

tow_type tow_value_type(tow_value value)
{
    bool current = value.trace && value.serial == value.trace->serial;
    const value_place *place = current ? place_of(value.trace, value.id) : NULL;
    return place ? type_of(value.trace, place) : (tow_type){.dtype = TOW_F32};
}

tow_trace *tow_value_trace(tow_value value) { return value.trace; }

tow_value tow__input(tow_trace *t, tow_type type, const char *name)
{
    if (!t || tow__failed(t)) return null_value;
    if (!tow__type_valid(type)) {
        tow_trace_fail(t, TOW_INVALID_ARGUMENT, "input %u%s%s%s has the malformed type %s (rank %d)",
                       innermost(t)->inputs.count, name ? " (" : "", name ? name : "", name ? ")" : "",
                       tow__type_name(type).text, (int)type.rank);
        return null_value;
    }
    uint32_t var = tow__builder_var(innermost(t), type, TOW__INPUT, 0);
    if (var == TOW__INPUT || !tow__builder_input(innermost(t), var, name)) {
        stick(t);
        return null_value;
    }
    return new_value(t, t->now->builders.count - 1, var, NULL);
}

/* ---- closure conversion ---------------------------------------------------------------------------------------- */

/* Value `id` of depth-1 as a value of `depth`. False: out of memory. */
static bool capture_once(tow_trace *t, uint32_t depth, uint32_t *id)
{
    tow__builder *b = builder_at(t, depth);
    const tow__capture *known = tow__builder_find(b, *id);
    if (known) {
        *id = known->inner;
        return true;
    }
    uint32_t var = tow__builder_var(b, type_of(t, place_of(t, *id)), TOW__INPUT, 0);
    tow_value inner = var == TOW__INPUT ? null_value : new_value(t, depth, var, NULL);
    if (tow_is_null(inner)) return false;
    if (!tow__builder_capture(b, (tow__capture){.outer = *id, .inner = inner.id, .var = var})) return false;
    *id = inner.id;
    return true;
}

/* The place of the value v in the trace t; NULL after an error or for the null value. */
static const value_place *find_value(tow_trace *t, tow_value v)
{
    const char *why = NULL;
    const value_place *place = NULL;
    if (!tow__records(t, v.here) || tow_is_null(v)) return NULL;
    if (v.trace != t)
        why = "of another trace, or of one that has ended, is used: make it in this one, or pass it in as an input";
    else if (v.serial != t->serial)
        why = "of an earlier trace, which has ended, is used: values live as long as the call that traces; make it "
              "again in this one";
    else if (!(place = place_of(t, v.id)))
        why = "escaped from the body it was traced in (of a remat, scan or call): make it an output of that body and "
              "use the result";
    if (why) tow_trace_fail(t, TOW_INVALID_ARGUMENT, "%s%sa value %s", v.here ? v.here : "", v.here ? ": " : "", why);
    return place;
}

bool tow__is_current(tow_trace *t, tow_value v) { return find_value(t, v) != NULL; }

tow_value tow__import(tow_trace *t, tow_value v)
{
    const value_place *place = find_value(t, v);
    if (!place) return null_value;
    uint32_t id = v.id;
    for (uint32_t depth = place->depth + 1; depth < t->now->builders.count; depth++)
        if (!capture_once(t, depth, &id)) {
            stick(t);
            return null_value;
        }
    return (tow_value){.trace = t, .here = v.here, .id = id, .serial = t->serial};
}

bool tow__made_by(tow_trace *t, tow_value v, tow__equation *e, uint32_t *result)
{
    const value_place *place = find_value(t, v);
    if (!place || place->depth + 1 != t->now->builders.count) return false;
    const tow__builder *b = innermost(t);
    const tow__var *var = (const tow__var *)b->vars.data + place->var;
    if (var->equation == TOW__INPUT) return false;
    *e = ((const tow__equation *)b->equations.data)[var->equation];
    *result = var->index;
    return true;
}

tow_value tow__value_of(tow_trace *t, uint32_t var) { return new_value(t, t->now->builders.count - 1, var, NULL); }

static uint32_t var_of(const tow_trace *t, tow_value v) { return ((const value_place *)t->now->values.data)[v.id].var; }

/* ---- bind ------------------------------------------------------------------------------------------------------ */

/* The call that a type rule refused, with everything that is known about it. */
static void fail_bind(tow_trace *t, const tow_primitive *primitive, size_t n_in, const tow_type *in, tow__source source)
{
    enum {
        SHOWN = 8
    };
    tow__string s;
    tow_status status = t->ctx->status != TOW_OK ? t->ctx->status : TOW_INTERNAL_ERROR;
    tow__string_init(&s, t->ctx);
    if (source.here) tow__string_add(&s, "%s: ", source.here);
    if (source.scope) tow__string_add(&s, "%s: ", shown(source.scope).text);
    tow__string_add(&s, "%s(", primitive->name);
    for (size_t i = 0; i < n_in && i < SHOWN; i++) {
        if (i > 0) tow__string_add(&s, ", ");
        tow__string_add_type(&s, in[i]);
    }
    tow__string_add(&s, "%s): ", n_in > SHOWN ? ", ..." : "");
    if (!s.failed) tow__fail(t->ctx, status, "%s%s", s.text, t->ctx->error);
    tow__string_free(&s);
    stick(t);
}

/* Checks that hold for every primitive. */
static tow_status check_call(tow_context *ctx, const tow_primitive *primitive, const void *params, size_t n_in,
                             size_t n_out)
{
    if (primitive->inputs >= 0 && n_in != (size_t)primitive->inputs)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "expected %d operands, found %zu", primitive->inputs, n_in);
    if (primitive->outputs >= 0 && n_out != (size_t)primitive->outputs)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "expected %d results, found %zu", primitive->outputs, n_out);
    if (n_in > UINT32_MAX / 4 || n_out > UINT32_MAX / 4)
        return tow__fail(ctx, TOW_UNSUPPORTED, "%zu operands and %zu results are too many", n_in, n_out);
    if (primitive->params_size > 0 && !params)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "the parameters are missing");
    const char *missing = tow__missing_param(primitive, params);
    if (missing) return tow__fail(ctx, TOW_INVALID_ARGUMENT, "the parameter %s is missing", missing);
    return TOW_OK;
}

/* Blocks of few bits are for what moves elements, for regions, and for operations that are made for them. */
static tow_status check_blocks(tow_context *ctx, const tow_primitive *primitive, const char *what, size_t n,
                               const tow_type *types)
{
    if (primitive->takes_blocks || primitive->kind == TOW__REGION || primitive->kind == TOW__NAME) return TOW_OK;
    for (size_t i = 0; i < n; i++)
        if (tow__is_blocks(types[i].dtype))
            return tow__fail(
                ctx, TOW_TYPE_MISMATCH,
                "%s %zu is %s, whose elements are blocks of numbers, which it does not take: multiply with "
                "tow_quantized_dot, or make numbers of them with tow_dequantize",
                what, i, tow__type_name(types[i]).text);
    return TOW_OK;
}

static tow_status infer(tow_context *ctx, const tow_primitive *primitive, const void *params, size_t n_in,
                        const tow_type *in, size_t n_out, tow_type *out)
{
    tow_status status = check_call(ctx, primitive, params, n_in, n_out);
    if (status == TOW_OK) status = check_blocks(ctx, primitive, "operand", n_in, in);
    if (status != TOW_OK) return status;
    tow__typing ty = {ctx, primitive->name, params, n_in, in, n_out, out, primitive};
    status = primitive->type(&ty);
    if (status == TOW_OK) status = check_blocks(ctx, primitive, "result", n_out, out);
    for (size_t i = 0; status == TOW_OK && i < n_out; i++)
        if (!tow__type_valid(out[i]))
            return tow__fail(ctx, TOW_UNSUPPORTED, "result %zu of type %s is too large or malformed", i,
                             tow__type_name(out[i]).text);
    return status;
}

/* Makes room for n elements whose contents do not matter. */
static void *scratch(tow_trace *t, tow__vector *v, size_t n, size_t size)
{
    if (n > UINT32_MAX / 4) {
        tow__fail(t->ctx, TOW_UNSUPPORTED, "%zu operands and results are too many", n);
        return NULL;
    }
    while (v->capacity < n || !v->data) {
        v->count = v->capacity;
        if (!tow__vector_push(t->ctx, v, size)) return NULL;
    }
    return v->data;
}

static tow__source current_source(const tow_trace *t, size_t n_in, const tow_value *in)
{
    tow__source source = {.scope = scope_text(t)};
    if (has_source(t)) source = *t->now->source;
    for (size_t i = 0; i < n_in && !source.here && !has_source(t); i++) source.here = in[i].here;
    source.phase = t->now->source ? t->now->source->phase : TOW__FORWARD;
    source.mark = t->now->source ? t->now->source->mark : 0;
    source.why = t->now->source ? t->now->source->why : (tow__reason){0};
    if (!source.why.number) source.why.number = ++t->ctx->equations;
    if (t->now->phase > source.phase) source.phase = t->now->phase;
    return source;
}

tow_status tow__infer(tow_trace *t, const tow_primitive *primitive, const void *params, size_t n_in, const tow_type *in,
                      size_t n_out, tow_type *out)
{
    tow_status status = infer(t->ctx, primitive, params, n_in, in, n_out, out);
    if (status != TOW_OK) stick(t);
    return status;
}

static bool import_operands(tow_trace *t, size_t n_in, const tow_value *in, uint32_t *vars, tow_type *types)
{
    const tow__var *table;
    for (size_t i = 0; i < n_in; i++) {
        tow_value v = tow__import(t, in[i]);
        if (tow_is_null(v)) return false;
        table = innermost(t)->vars.data;
        vars[i] = var_of(t, v);
        types[i] = table[vars[i]].type;
    }
    return true;
}

void tow__bind(tow_trace *t, const tow_primitive *primitive, const void *params, size_t n_in, const tow_value *in,
               size_t n_out, tow_value *out)
{
    bool ready = tow__records(t, n_in > 0 ? in[0].here : NULL);
    for (size_t i = 0; ready && i < n_in; i++) ready = !tow_is_null(in[i]);
    uint32_t *operands = ready ? scratch(t, &t->now->operands, n_in, sizeof *operands) : NULL;
    tow_type *types = operands ? scratch(t, &t->now->types, n_in + n_out, sizeof *types) : NULL;
    if (ready && !types) stick(t);
    tow__source source = {0};
    const tow__equation *e = NULL;
    if (types && import_operands(t, n_in, in, operands, types)) {
        source = current_source(t, n_in, in);
        memset(types + n_in, 0, n_out * sizeof *types);
        if (infer(t->ctx, primitive, params, n_in, types, n_out, types + n_in) != TOW_OK)
            fail_bind(t, primitive, n_in, types, source);
        else if (!(e = tow__builder_equation(innermost(t), primitive, params, (uint32_t)n_in, operands, (uint32_t)n_out,
                                             types + n_in, &source)))
            stick(t);
    }
    /* Results carry the line of their operation on, so that compound operations need not hand it around. A line that a
     * pass has set may belong to a graph that is freed before the value is used. */
    const char *here = e && !has_source(t) ? source.here : NULL;
    uint32_t first = e && n_out > 0 ? e->out[0] : 0, depth = e ? t->now->builders.count - 1 : 0;
    for (size_t i = 0; i < n_out; i++) out[i] = e ? new_value(t, depth, first + (uint32_t)i, here) : null_value;
}

tow_value tow__bind1(tow_trace *t, const tow_primitive *primitive, const void *params, size_t n_in, const tow_value *in)
{
    tow_value out;
    tow__bind(t, primitive, params, n_in, in, 1, &out);
    return out;
}

/* ---- bodies ---------------------------------------------------------------------------------------------------- */

bool tow__may_nest(tow_trace *t, uint32_t depth)
{
    if (!tow__records(t, NULL)) return false;
    uint32_t level = t->now->builders.count + depth;
    if (level <= TOW__DEEPEST_GRAPH) return true;
    tow_trace_fail(
        t, TOW_UNSUPPORTED,
        "graphs (bodies of call, remat and scan) are nested %u levels deep; expected no more than %d levels: "
        "call the innermost functions without call and remat, or make one loop of several",
        level, TOW__DEEPEST_GRAPH);
    return false;
}

void tow__push(tow_trace *t)
{
    if (!t) return;
    if (tow__failed(t) || !add_builder(t)) {
        stick(t);
        t->now->lost++;
    }
}

/* Imports the outputs and closes the innermost builder, which is gone afterwards. NULL: the error sticks. */
static tow_graph *close_innermost(tow_trace *t, size_t n_outputs, const tow_value *outputs)
{
    uint32_t *vars = tow__failed(t) ? NULL : tow__trace_alloc(t, n_outputs, sizeof *vars);
    for (size_t i = 0; i < n_outputs && !tow__failed(t); i++) {
        tow_value v = tow__import(t, outputs[i]);
        if (!tow_is_null(v))
            vars[i] = var_of(t, v);
        else if (t->ctx->status != TOW_OK)
            stick(t); /* an operation failed and told the context only */
        else if (tow__null_text(outputs[i], NULL))
            tow_trace_fail(t, TOW_INVALID_ARGUMENT, "output %zu is %s", i, tow__null_text(outputs[i], NULL));
        else
            tow_trace_fail(
                t, TOW_INVALID_ARGUMENT,
                "output %zu was never written: assign outputs[%zu] in the traced function, and to no operation a "
                "value that was not initialized",
                i, i);
    }
    tow__builder *b = innermost(t);
    t->now->builders.count--;
    if (tow__failed(t)) {
        tow__builder_free(b, t->ctx);
        return NULL;
    }
    tow_graph *g = tow__builder_close(b, (uint32_t)n_outputs, vars);
    if (!g) stick(t);
    return g;
}

tow_graph *tow__pop(tow_trace *t, size_t n_outputs, const tow_value *outputs, size_t *n_captures, tow_value **captures)
{
    *n_captures = 0;
    *captures = NULL;
    if (!t) return NULL;
    if (t->now->lost > 0) {
        t->now->lost--;
        return NULL;
    }
    if (t->now->builders.count < 2) {
        tow_trace_fail(t, TOW_INTERNAL_ERROR, "a body is popped that was never pushed");
        return NULL;
    }
    /* Outputs may add captures, so they are imported first. */
    for (size_t i = 0; i < n_outputs; i++) tow__import(t, outputs[i]);
    uint32_t n = innermost(t)->captures.count;
    tow_value *outer = tow__failed(t) ? NULL : tow__trace_alloc(t, n, sizeof *outer);
    const tow__capture *from = innermost(t)->captures.data;
    for (uint32_t i = 0; outer && i < n; i++)
        outer[i] = (tow_value){.trace = t, .id = from[i].outer, .serial = t->serial};
    tow_graph *g = close_innermost(t, n_outputs, outputs);
    if (g) {
        *n_captures = n;
        *captures = outer;
    }
    return g;
}

void tow__check_policies(tow_trace *t)
{
    const tow__named_policy *wrong;
    if (tow__failed(t)) return;
    tow_status status = tow__policy_check_names(t, &wrong);
    if (status == TOW_OK) return;
    if (wrong->scope) tow__fail(t->ctx, status, "%s: %s", shown(wrong->scope).text, t->ctx->error);
    stick(t);
}

tow_status tow__trace_end(tow_trace *t, size_t n_outputs, const tow_value *outputs, bool dce, tow_graph **graph)
{
    *graph = NULL;
    if (t->now->builders.count != 1)
        tow_trace_fail(t, TOW_INTERNAL_ERROR, "%u bodies were pushed and not popped", t->now->builders.count - 1);
    tow__check_policies(t);
    tow_graph *g = tow__failed(t) ? NULL : close_innermost(t, n_outputs, outputs);
    tow_status status = tow__report(t);
    tow__trace_abandon(t);
    if (status != TOW_OK || !dce) {
        *graph = g;
        return status;
    }
    status = tow__dce(g, NULL, false, NULL, graph);
    tow_graph_release(g);
    return status;
}
