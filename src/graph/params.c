/* Parameters of equations: copied, retained, compared and hashed by the primitive's table of fields. */
#include "src/base/hash.h"
#include "src/graph/builder.h"
#include "src/graph/policy.h"

static bool is_last(const tow__param *p) { return !p->name; }

static const void *field(const void *params, const tow__param *p) { return (const char *)params + p->offset; }

/* The pointer that a field of a pointer kind holds. */
static void *pointer_in(const void *params, const tow__param *p)
{
    void *pointer;
    memcpy(&pointer, field(params, p), sizeof pointer);
    return pointer;
}

/* The place of the nested graphs of a field, and their number: none of a field of another kind. */
static tow_graph **graphs_in(const void *params, const tow__param *p, uint32_t *n)
{
    union {
        const void *constant;
        tow_graph **graphs;
    } at = {field(params, p)};
    const tow__graphs *list = field(params, p);
    *n = p->kind == TOW__P_GRAPH ? 1 : p->kind == TOW__P_GRAPHS ? list->n : 0;
    return p->kind == TOW__P_GRAPHS ? list->v : at.graphs;
}

static tow_graph **nested_at(const tow_primitive *primitive, const void *params, uint32_t index)
{
    for (const tow__param *p = params ? primitive->params : NULL; p && !is_last(p); p++) {
        uint32_t n;
        tow_graph **graphs = graphs_in(params, p, &n);
        if (index < n) return &graphs[index];
        index -= n;
    }
    return NULL;
}

uint32_t tow__nested_count(const tow_primitive *primitive, const void *params)
{
    uint32_t count = 0, n;
    for (const tow__param *p = params ? primitive->params : NULL; p && !is_last(p); p++, count += n)
        graphs_in(params, p, &n);
    return count;
}

tow_graph *tow__nested(const tow_primitive *primitive, const void *params, uint32_t index)
{
    tow_graph **at = nested_at(primitive, params, index);
    return at ? *at : NULL;
}

void tow__set_nested(const tow_primitive *primitive, void *params, uint32_t index, tow_graph *graph)
{
    *nested_at(primitive, params, index) = graph;
}

const char *tow__missing_param(const tow_primitive *primitive, const void *params)
{
    for (const tow__param *p = params ? primitive->params : NULL; p && !is_last(p); p++) {
        uint32_t n;
        tow_graph **graphs = graphs_in(params, p, &n);
        if (p->kind == TOW__P_ARRAY && !pointer_in(params, p)) return p->name;
        for (uint32_t i = 0; i < n; i++)
            if (!graphs[i]) return p->name;
    }
    return NULL;
}

/* A list of graphs or types gets an array of its own. */
static bool copy_lists(tow__arena *arena, const tow_primitive *primitive, void *params)
{
    for (const tow__param *p = primitive->params; p && !is_last(p); p++) {
        if (p->kind == TOW__P_GRAPHS) {
            tow__graphs list;
            memcpy(&list, field(params, p), sizeof list);
            list.v = tow__arena_copy(arena, list.v, list.n, sizeof(tow_graph *));
            if (!list.v) return false;
            memcpy((char *)params + p->offset, &list, sizeof list);
        } else if (p->kind == TOW__P_TYPES) {
            tow__types list;
            memcpy(&list, field(params, p), sizeof list);
            list.v = tow__arena_copy(arena, list.v, list.n, sizeof *list.v);
            if (!list.v) return false;
            memcpy((char *)params + p->offset, &list, sizeof list);
        }
    }
    return true;
}

static bool copy_pointer(tow__arena *arena, const tow_primitive *primitive, const tow__param *p, void *params)
{
    const void *old = pointer_in(params, p), *new = old;
    if (p->kind == TOW__P_STRING) new = tow__arena_string(arena, old);
    if (p->kind == TOW__P_POLICY) new = tow__policy_copy(arena, old, tow__nested(primitive, params, 0));
    memcpy((char *)params + p->offset, &new, sizeof new);
    return !old || new;
}

bool tow__params_copy(tow__arena *arena, const tow_primitive *primitive, const void *params, const void **copy)
{
    *copy = NULL;
    if (primitive->params_size == 0 || !params) return true;
    void *own = tow__arena_copy(arena, params, 1, primitive->params_size);
    if (!own) return false;
    for (const tow__param *p = primitive->params; p && !is_last(p); p++)
        if ((p->kind == TOW__P_STRING || p->kind == TOW__P_POLICY) && !copy_pointer(arena, primitive, p, own))
            return false;
    *copy = own;
    return copy_lists(arena, primitive, own);
}

bool tow__params_own(tow_trace *t, const tow_primitive *primitive, const void *params, void **own)
{
    char *copy = *own = tow__trace_alloc(t, 1, primitive->params_size);
    if (!copy) return false;
    memcpy(copy, params, primitive->params_size);
    for (const tow__param *p = primitive->params; p && !is_last(p); p++) {
        if (p->kind != TOW__P_GRAPHS) continue;
        const tow__graphs *list = field(params, p);
        tow__graphs new = {.n = list->n, .v = tow__trace_alloc(t, list->n, sizeof *new.v)};
        if (!new.v) return false;
        memcpy(new.v, list->v, list->n * sizeof *new.v);
        memcpy(copy + p->offset, &new, sizeof new);
    }
    return true;
}

void tow__params_retain(const tow_primitive *primitive, const void *params)
{
    if (!params) return;
    for (uint32_t i = tow__nested_count(primitive, params); i-- > 0;)
        tow_graph_retain(tow__nested(primitive, params, i));
    for (const tow__param *p = primitive->params; p && !is_last(p); p++)
        if (p->kind == TOW__P_ARRAY) tow_array_retain(pointer_in(params, p));
}

void tow__params_release(const tow_primitive *primitive, const void *params)
{
    if (!params) return;
    for (uint32_t i = tow__nested_count(primitive, params); i-- > 0;)
        tow_graph_release(tow__nested(primitive, params, i));
    for (const tow__param *p = primitive->params; p && !is_last(p); p++)
        if (p->kind == TOW__P_ARRAY) tow_array_release(pointer_in(params, p));
}

/* ---- equality -------------------------------------------------------------------------------------------------- */

static bool ints_equal(const tow__ints *a, const tow__ints *b)
{
    if (a->n != b->n) return false;
    for (int32_t i = 0; i < a->n; i++)
        if (a->v[i] != b->v[i]) return false;
    return true;
}

/* Bit for bit: -0 differs from 0, and a NaN equals itself. */
static bool arrays_equal(const tow_array *a, const tow_array *b)
{
    if (a == b) return true;
    if (!a || !b || !tow_type_equal(tow_array_type(a), tow_array_type(b))) return false;
    return memcmp(tow_array_data(a), tow_array_data(b), tow_type_bytes(tow_array_type(a))) == 0;
}

static bool lists_equal(const tow__graphs *a, const tow__graphs *b)
{
    if (a->n != b->n) return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (!tow__graph_equal(a->v[i], b->v[i])) return false;
    return true;
}

static bool types_equal(const tow__types *a, const tow__types *b)
{
    if (a->n != b->n) return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (!tow_type_equal(a->v[i], b->v[i])) return false;
    return true;
}

static bool strings_equal(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

static bool fields_equal(const tow__param *p, const void *a, const void *b)
{
    const void *x = field(a, p), *y = field(b, p);
    switch (p->kind) {
    case TOW__P_INT:
    case TOW__P_PLAN:
    case TOW__P_OF_HALVES:
    case TOW__P_COUNT:
    case TOW__P_SUM_DTYPE:
        return memcmp(x, y, sizeof(int64_t)) == 0;
    case TOW__P_FLOAT:
    case TOW__P_AMOUNT:
        return memcmp(x, y, sizeof(double)) == 0;
    case TOW__P_BOOL:
        return *(const bool *)x == *(const bool *)y;
    case TOW__P_DTYPE:
        return *(const tow_dtype *)x == *(const tow_dtype *)y;
    case TOW__P_INTS:
        return ints_equal(x, y);
    case TOW__P_TYPES:
        return types_equal(x, y);
    case TOW__P_STRING:
        return strings_equal(pointer_in(a, p), pointer_in(b, p));
    case TOW__P_GRAPH:
        return tow__graph_equal(pointer_in(a, p), pointer_in(b, p));
    case TOW__P_GRAPHS:
        return lists_equal(x, y);
    case TOW__P_ARRAY:
        return arrays_equal(pointer_in(a, p), pointer_in(b, p));
    case TOW__P_POLICY:
        return tow__policy_equal(pointer_in(a, p), pointer_in(b, p));
    }
    return false;
}

bool tow__params_equal(const tow_primitive *primitive, const void *a, const void *b)
{
    if (a == b) return true;
    if (!a || !b) return false;
    for (const tow__param *p = primitive->params; p && !is_last(p); p++)
        if (!fields_equal(p, a, b)) return false;
    return true;
}

static bool vars_equal(uint32_t n, const uint32_t *a, const uint32_t *b)
{
    return n == 0 || memcmp(a, b, n * sizeof *a) == 0;
}

bool tow__graph_equal(const tow_graph *a, const tow_graph *b)
{
    if (a == b) return true;
    if (!a || !b || a->n_vars != b->n_vars || a->n_equations != b->n_equations) return false;
    if (a->n_inputs != b->n_inputs || a->n_outputs != b->n_outputs) return false;
    if (!vars_equal(a->n_inputs, a->inputs, b->inputs) || !vars_equal(a->n_outputs, a->outputs, b->outputs))
        return false;
    for (uint32_t v = 0; v < a->n_vars; v++)
        if (!tow_type_equal(a->vars[v].type, b->vars[v].type)) return false;
    for (uint32_t i = 0; i < a->n_equations; i++) {
        const tow__equation *x = &a->equations[i], *y = &b->equations[i];
        if (x->primitive != y->primitive || x->n_in != y->n_in || x->n_out != y->n_out) return false;
        if (!vars_equal(x->n_in, x->in, y->in) || !vars_equal(x->n_out, x->out, y->out)) return false;
        if (!tow__params_equal(x->primitive, x->params, y->params)) return false;
    }
    return true;
}

/* ---- hashing: what is equal has the same hash, and what differs hardly ever -------------------------------------- */

static uint64_t hash_type(uint64_t h, tow_type type)
{
    int64_t head[] = {(int64_t)type.dtype, type.rank};
    h = tow__hash(h, head, sizeof head);
    return tow__hash(h, type.dims, (size_t)type.rank * sizeof type.dims[0]);
}

static uint64_t hash_array(uint64_t h, const tow_array *a)
{
    if (!a) return h;
    return tow__hash(hash_type(h, tow_array_type(a)), tow_array_data(a), tow_type_bytes(tow_array_type(a)));
}

static uint64_t hash_vars(uint64_t h, uint32_t n, const uint32_t *vars)
{
    return tow__hash(tow__hash(h, &n, sizeof n), vars, n * sizeof *vars);
}

static uint64_t hash_graph(uint64_t h, const tow_graph *g)
{
    if (!g) return h;
    h = hash_vars(hash_vars(h, g->n_inputs, g->inputs), g->n_outputs, g->outputs);
    for (uint32_t v = 0; v < g->n_vars; v++) h = hash_type(h, g->vars[v].type);
    for (uint32_t i = 0; i < g->n_equations; i++) {
        const tow__equation *e = &g->equations[i];
        h = tow__params_hash(hash_vars(hash_vars(h, e->n_in, e->in), e->n_out, e->out), e->primitive, e->params);
    }
    return h;
}

static uint64_t hash_field(uint64_t h, const tow__param *p, const void *params)
{
    const void *x = field(params, p);
    const tow__ints *ints = x;
    const tow__graphs *list = x;
    const tow__types *types = x;
    const char *text;
    switch (p->kind) {
    case TOW__P_INT:
    case TOW__P_PLAN:
    case TOW__P_OF_HALVES:
    case TOW__P_COUNT:
    case TOW__P_SUM_DTYPE:
        return tow__hash(h, x, sizeof(int64_t));
    case TOW__P_FLOAT:
    case TOW__P_AMOUNT:
        return tow__hash(h, x, sizeof(double));
    case TOW__P_BOOL:
        return tow__hash(h, x, sizeof(bool));
    case TOW__P_DTYPE:
        return tow__hash(h, x, sizeof(tow_dtype));
    case TOW__P_INTS:
        return tow__hash(h, ints->v, (size_t)ints->n * sizeof ints->v[0]);
    case TOW__P_TYPES:
        for (uint32_t i = 0; i < types->n; i++) h = hash_type(h, types->v[i]);
        return h;
    case TOW__P_STRING:
        return (text = pointer_in(params, p)) ? tow__hash(h, text, strlen(text)) : h;
    case TOW__P_GRAPH:
        return hash_graph(h, pointer_in(params, p));
    case TOW__P_GRAPHS:
        for (uint32_t i = 0; i < list->n; i++) h = hash_graph(h, list->v[i]);
        return h;
    case TOW__P_ARRAY:
        return hash_array(h, pointer_in(params, p));
    case TOW__P_POLICY:
        return tow__policy_hash(h, pointer_in(params, p));
    }
    return h;
}

uint64_t tow__params_hash(uint64_t seed, const tow_primitive *primitive, const void *params)
{
    uint64_t h = tow__hash(seed, &primitive, sizeof primitive);
    for (const tow__param *p = params ? primitive->params : NULL; p && !is_last(p); p++) h = hash_field(h, p, params);
    return h;
}
