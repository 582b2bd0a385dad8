/* Primitives that users of the library define: a descriptor whose rules call the functions of the definition.
 * Descriptors are a list that belongs to the context. */
#include "tow/primitive.h"

#include <ctype.h>
#include <stdarg.h>

#include "src/ops/rules.h"

typedef struct tow__definition {
    tow_primitive primitive;
    tow_primitive_definition definition;
    struct tow__definition *next;
} tow__definition;

static tow_primitive_rule rule_of(tow_context *ctx, const tow_primitive *p, const void *params)
{
    return (tow_primitive_rule){.context = ctx, .attributes = params, .user = p->definition->user};
}

/* ---- rules ------------------------------------------------------------------------------------------------------- */

static tow_status defined_type(const tow__typing *ty)
{
    const tow_primitive_rule rule = rule_of(ty->ctx, ty->primitive, ty->params);
    tow_context_clear_error(ty->ctx);
    tow_status status = ty->primitive->definition->type(&rule, ty->in, ty->out);
    if (status != TOW_OK && ty->ctx->status == TOW_OK) tow__fail(ty->ctx, status, "its type rule refuses the operands");
    return status;
}

tow_status tow_primitive_fail(const tow_primitive_rule *rule, tow_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    status = tow__fail_of_caller(rule->context, status, format, args);
    va_end(args);
    return status;
}

static void defined_jvp(tow__jvp *r)
{
    const tow_primitive *p = r->e->primitive;
    const tow_primitive_rule rule = rule_of(tow_trace_context(r->t), p, r->e->params);
    p->definition->jvp(r->t, &rule, r->x, r->dx, r->y, r->dy);
    for (uint32_t i = 0; i < r->e->n_out && !tow__failed(r->t); i++)
        if (tow_is_null(r->y[i]))
            tow_trace_fail(r->t, TOW_INVALID_ARGUMENT, "%s: its jvp never wrote result %u", p->name, i);
        else if (!tow_is_null(r->dy[i]) && !tow_type_equal(tow_value_type(r->y[i]), tow_value_type(r->dy[i])))
            tow_trace_fail(r->t, TOW_SHAPE_MISMATCH, "%s: the tangent of result %u must be %s, its jvp gives %s",
                           p->name, i, tow__type_name(tow_value_type(r->y[i])).text,
                           tow__type_name(tow_value_type(r->dy[i])).text);
}

/* Of primitives without anything that says what their derivative is. */
static void missing_jvp(tow__jvp *r)
{
    tow_trace_fail(r->t, TOW_UNSUPPORTED,
                   "%s has no derivative: define it with jvp, with linear and transpose, with a decomposition, or with "
                   "no_derivative if it is zero",
                   r->e->primitive->name);
}

static void zero_jvp(tow__jvp *r) { tow__jvp_primal(r); }

static void defined_transpose(tow__transpose *r)
{
    const tow_primitive *p = r->e->primitive;
    const tow_primitive_rule rule = rule_of(tow_trace_context(r->t), p, r->e->params);
    p->definition->transpose(r->t, &rule, r->in_types, r->linear, r->x, r->ct, r->dx);
    for (uint32_t i = 0; i < r->e->n_in && !tow__failed(r->t); i++)
        if (r->linear[i] && !tow_is_null(r->dx[i]) && !tow_type_equal(tow_value_type(r->dx[i]), r->in_types[i]))
            tow_trace_fail(r->t, TOW_SHAPE_MISMATCH,
                           "%s: the cotangent of operand %u must be %s, its transpose gives %s", p->name, i,
                           tow__type_name(r->in_types[i]).text, tow__type_name(tow_value_type(r->dx[i])).text);
}

static void defined_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    const tow_primitive_rule rule = rule_of(tow_trace_context(t), e->primitive, e->params);
    e->primitive->definition->decompose(t, &rule, x, y);
}

static void defined_batch(tow__batch *r)
{
    const tow_primitive *p = r->e->primitive;
    const tow_primitive_rule rule = rule_of(tow_trace_context(r->t), p, r->e->params);
    tow_value x[TOW_PRIMITIVE_MAX], y[TOW_PRIMITIVE_MAX] = {{0}};
    int axes[TOW_PRIMITIVE_MAX], y_axes[TOW_PRIMITIVE_MAX] = {0};
    for (uint32_t i = 0; i < r->e->n_in; i++) {
        x[i] = r->x[i].value;
        axes[i] = r->x[i].axis == TOW__UNBATCHED ? TOW_NOT_MAPPED : r->x[i].axis;
    }
    p->definition->batch(r->t, &rule, r->size, x, axes, y, y_axes);
    for (uint32_t i = 0; i < r->e->n_out && !tow__failed(r->t); i++) {
        tow_type type = tow_value_type(y[i]);
        bool fits = y_axes[i] >= 0 && y_axes[i] <= r->out[i].rank;
        if (tow_is_null(y[i]) || !fits || !tow_type_equal(type, tow__with_axis(r->out[i], y_axes[i], r->size)))
            tow_trace_fail(
                r->t, TOW_SHAPE_MISMATCH,
                "%s: its batching rule must write result %u as %s with an axis of %lld rows, and say where that is",
                p->name, i, tow__type_name(r->out[i]).text, (long long)r->size);
        r->y[i] = (tow__mapped){.value = y[i], .axis = y_axes[i]};
    }
}

/* Without a rule, reports count what the decomposition does; without that, there is but the guess. */
static tow__op_cost defined_cost(const tow__operation *o)
{
    const tow_primitive *p = o->primitive;
    tow_type in[TOW_PRIMITIVE_MAX], out[TOW_PRIMITIVE_MAX];
    if (!p->definition->cost) {
        const double guess = tow__element_cost(o).estimate;
        return (tow__op_cost){p->decompose ? TOW__COST_OF_PARTS : guess, guess};
    }
    const tow_primitive_rule rule = rule_of(NULL, p, o->params);
    for (uint32_t i = 0; i < o->n_in; i++) in[i] = o->in[i].type;
    for (uint32_t i = 0; i < o->n_out; i++) out[i] = o->out[i].type;
    return tow__exact_cost(p->definition->cost(&rule, in, out));
}

/* ---- definitions ------------------------------------------------------------------------------------------------- */

const tow_primitive *tow__primitive_defined(const tow_context *ctx, const char *name, size_t length)
{
    for (const tow__definition *d = ctx->defined; d; d = d->next)
        if (strlen(d->primitive.name) == length && memcmp(d->primitive.name, name, length) == 0) return &d->primitive;
    return NULL;
}

const tow_primitive *tow_primitive_find(tow_context *context, const char *name)
{
    return context && name ? tow__primitive_defined(context, name, strlen(name)) : NULL;
}

static bool is_word(const char *name)
{
    if (!name || !isalpha((unsigned char)*name)) return false;
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && *name != '_') return false;
    return true;
}

__attribute__((format(printf, 3, 4))) static tow_status refuse(tow_context *ctx, const char *name, const char *format,
                                                               ...)
{
    va_list args;
    va_start(args, format);
    tow__fail_v(ctx, TOW_INVALID_ARGUMENT, format, args);
    va_end(args);
    return tow__fail(ctx, TOW_INVALID_ARGUMENT, "tow_primitive_define, %s: %s", name, ctx->error);
}

static const struct {
    tow__param_kind kind;
    size_t size;
} fields[] = {[TOW_ATTRIBUTE_INT] = {TOW__P_INT, sizeof(int64_t)},
              [TOW_ATTRIBUTE_FLOAT] = {TOW__P_FLOAT, sizeof(double)},
              [TOW_ATTRIBUTE_BOOL] = {TOW__P_BOOL, sizeof(bool)},
              [TOW_ATTRIBUTE_DTYPE] = {TOW__P_DTYPE, sizeof(tow_dtype)}};

static tow_status check_attributes(tow_context *ctx, const tow_primitive_definition *d)
{
    if (d->n_attributes > TOW_PRIMITIVE_MAX || (d->n_attributes > 0 && !d->attributes))
        return refuse(ctx, d->name, "expected at most %d attributes in a list, found %zu%s", TOW_PRIMITIVE_MAX,
                      d->n_attributes, d->attributes ? "" : " and no list");
    for (size_t i = 0; i < d->n_attributes; i++) {
        const tow_attribute *p = &d->attributes[i];
        if (!is_word(p->name)) return refuse(ctx, d->name, "parameter %zu needs a name of letters, digits and _", i);
        if ((unsigned)p->kind > TOW_ATTRIBUTE_DTYPE)
            return refuse(ctx, d->name, "parameter %s has no known kind", p->name);
        if (p->offset > d->attributes_size || d->attributes_size - p->offset < fields[p->kind].size)
            return refuse(ctx, d->name, "attribute %s is not within the %zu bytes of the attributes", p->name,
                          d->attributes_size);
        for (size_t j = 0; j < i; j++)
            if (strcmp(p->name, d->attributes[j].name) == 0)
                return refuse(ctx, d->name, "two attributes have the name %s", p->name);
    }
    return TOW_OK;
}

static tow_status check_definition(tow_context *ctx, const tow_primitive_definition *d)
{
    if (!is_word(d->name))
        return refuse(ctx, d->name ? d->name : "(no name)",
                      "expected a name of letters, digits and _, beginning with a letter");
    size_t length = strlen(d->name);
    if (tow__primitive_find(d->name, length) || tow__primitive_defined(ctx, d->name, length))
        return refuse(ctx, d->name, "there is a primitive of this name; choose another one");
    if (d->n_inputs < 1 || d->n_inputs > TOW_PRIMITIVE_MAX || d->n_outputs < 1 || d->n_outputs > TOW_PRIMITIVE_MAX)
        return refuse(ctx, d->name, "expected 1 to %d operands and results, found %zu and %zu", TOW_PRIMITIVE_MAX,
                      d->n_inputs, d->n_outputs);
    if (!d->type) return refuse(ctx, d->name, "expected a type rule, found NULL");
    if (!d->kernel.run && !d->decompose)
        return refuse(ctx, d->name, "expected a kernel or a decomposition, found neither");
    if (d->reference.run && !d->kernel.run)
        return refuse(ctx, d->name,
                      "expected a kernel beside the reference, found none; make the reference the kernel");
    if ((d->kernel.scratch && !d->kernel.run) || (d->reference.scratch && !d->reference.run))
        return refuse(ctx, d->name, "expected a function that uses the scratch memory, found run = NULL");
    if (d->varies && d->tiling != TOW_TILING_NONE)
        return refuse(ctx, d->name,
                      "expected no tiling of what varies: blocks have the bits of the whole; leave out one of the two");
    if (d->linear && !d->transpose)
        return refuse(ctx, d->name, "linear and transpose belong together: give both, or jvp and transpose, or none");
    if (d->transpose && !d->linear && !d->jvp)
        return refuse(ctx, d->name, "a transpose needs linear or a jvp, which records what is transposed");
    if ((d->jvp != NULL) + d->linear + d->no_derivative > 1)
        return refuse(ctx, d->name, "expected one of jvp, linear and no_derivative, found several");
    if ((unsigned)d->tiling > TOW_TILING_ROWS || (unsigned)d->dot > TOW_BATCHED_DOT)
        return refuse(ctx, d->name, "tiling or dot is not one of their values");
    return check_attributes(ctx, d);
}

/* The attributes as the table of a descriptor, which ends with an empty entry. */
static const tow__param *table_of(tow__arena *arena, const tow_primitive_definition *d)
{
    tow__param *table = tow__arena_alloc(arena, d->n_attributes + 1, sizeof *table);
    for (size_t i = 0; table && i < d->n_attributes; i++) {
        const tow_attribute *p = &d->attributes[i];
        table[i] =
            (tow__param){.name = tow__arena_string(arena, p->name), .kind = fields[p->kind].kind, .offset = p->offset};
        if (!table[i].name) return NULL;
    }
    return table;
}

static void (*jvp_of(const tow_primitive_definition *d))(tow__jvp *)
{
    if (d->jvp) return defined_jvp;
    if (d->no_derivative) return zero_jvp;
    return d->linear || d->decompose ? NULL : missing_jvp;
}

static tow_primitive descriptor_of(const tow_primitive_definition *d, const tow__param *table)
{
    static const tow__tiling_rule tilings[] = {[TOW_TILING_NONE] = tow__no_tiling,
                                               [TOW_TILING_ELEMENTWISE] = tow__tile_elementwise,
                                               [TOW_TILING_ROWS] = tow__tile_rows};
    static const tow__product_kind products[] = {
        [TOW_PLAIN_DOT] = TOW__PLAIN_PRODUCT, [TOW_BATCHED_DOT] = TOW__BATCHED_PRODUCT};
    return (tow_primitive){.name = d->name,
                           .inputs = (int)d->n_inputs,
                           .outputs = (int)d->n_outputs,
                           .kind = TOW__COMPOSITE,
                           .tile = tilings[d->tiling],
                           .cost = defined_cost,
                           .linear = d->linear,
                           .varies = d->varies,
                           .product = products[d->dot],
                           .params_size = d->n_attributes > 0 ? d->attributes_size : 0,
                           .params = d->n_attributes > 0 ? table : NULL,
                           .type = defined_type,
                           .jvp = jvp_of(d),
                           .transpose = d->transpose ? defined_transpose : NULL,
                           .batch = d->batch ? defined_batch : NULL,
                           .decompose = d->decompose ? defined_decompose : NULL};
}

tow_status tow_primitive_define(tow_context *context, const tow_primitive_definition *definition,
                                const tow_primitive **primitive)
{
    if (primitive) *primitive = NULL;
    if (!context || !definition || !primitive)
        return tow__missing(context, __func__, "a context, a definition and a place for the primitive");
    tow_status status = check_definition(context, definition);
    if (status != TOW_OK) return status;
    tow__arena *arena = &context->trace_memory;
    tow__definition *d = tow__arena_alloc(arena, 1, sizeof *d);
    const tow__param *table = d ? table_of(arena, definition) : NULL;
    if (!table) return TOW_OUT_OF_MEMORY;
    d->definition = *definition;
    d->definition.attributes = NULL; /* the caller's list; the table has what it said */
    d->definition.name = tow__arena_string(arena, definition->name);
    if (!d->definition.name) return TOW_OUT_OF_MEMORY;
    if (context->portable && definition->reference.run) d->definition.kernel = definition->reference;
    d->primitive = descriptor_of(&d->definition, table);
    d->primitive.definition = &d->definition;
    d->next = context->defined;
    context->defined = d;
    *primitive = &d->primitive;
    return TOW_OK;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

void tow_primitive_call(tow_trace *trace, const tow_primitive *primitive, const void *attributes, const tow_value *x,
                        tow_value *y)
{
    if (!tow__records(trace, NULL)) return;
    if (!primitive || !x || !y || (primitive->params_size > 0 && !attributes)) {
        tow_trace_fail(
            trace, TOW_INVALID_ARGUMENT,
            "tow_primitive_call%s%s: expected a primitive, its attributes, operands and places for results, found "
            "NULL; pass what is missing",
            primitive ? ", " : "", primitive ? primitive->name : "");
        return;
    }
    if (tow__primitive_defined(tow_trace_context(trace), primitive->name, strlen(primitive->name)) != primitive) {
        tow_trace_fail(trace, TOW_INVALID_ARGUMENT,
                       "tow_primitive_call: %s was defined in another context; define it in this one", primitive->name);
        return;
    }
    tow__bind(trace, primitive, attributes, primitive->definition->n_inputs, x, primitive->definition->n_outputs, y);
}
