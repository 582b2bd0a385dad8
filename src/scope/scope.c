/* Scopes: children, error messages with the path, counters of random streams. */
#include "src/scope/scope.h"

#include <inttypes.h>
#include <stdio.h>

tow_trace *tow_scope_trace(tow_scope *scope) { return scope->model->trace; }
const char *tow_scope_path(const tow_scope *scope) { return scope->path; }
bool tow_scope_is_deterministic(const tow_scope *scope) { return scope->model->deterministic; }
bool tow_scope_is_initializing(const tow_scope *scope) { return scope->model->initializing; }
bool tow__scope_failed(const tow_scope *scope) { return tow__failed(scope->model->trace); }

void tow_scope_fail(tow_scope *scope, tow_status status, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tow_trace_fail(scope->model->trace, status, "%s", text); /* the trace puts the path in front */
}

void tow__params_fail(tow__model *model, tow_status status, const char *format, ...)
{
    if (tow__failed(model->trace)) return;
    va_list args;
    va_start(args, format);
    tow__fail_v(model->ctx, status, format, args);
    va_end(args);
    tow__adopt_error(model->trace);
}

bool tow__too_deep(tow_scope *scope, int depth)
{
    if (depth <= TOW__DEEPEST_SCOPE) return false;
    tow_scope_fail(
        scope, TOW_UNSUPPORTED,
        "layers are nested %d levels deep, and the limit is %d; does a layer contain itself? Call layers one "
        "after the other, or make a stack of them with TOW_SCAN",
        depth, TOW__DEEPEST_SCOPE);
    return true;
}

/* A copy of the scope with one more component, of which the trace does not hear. NULL: no memory. */
static tow_scope *make_child(tow_scope *scope, const char *name, size_t length)
{
    tow_trace *t = scope->model->trace;
    size_t prefix = strlen(scope->path), start = prefix + (prefix > 0);
    tow_scope *child = tow__trace_alloc(t, 1, sizeof *child);
    char *path = tow__trace_alloc(t, start + length + 1, 1);
    if (!child || !path) return NULL;
    snprintf(path, start + length + 1, "%s%s%.*s", scope->path, prefix ? "/" : "", (int)length, name);
    *child = (tow_scope){.model = scope->model,
                         .parent = scope,
                         .path = path,
                         .depth = scope->depth + 1,
                         .name = path + start,
                         .level = scope->level,
                         .view = scope->view,
                         .kept = scope->kept,
                         .lifted = scope->lifted,
                         .dtype = scope->dtype,
                         .param_dtype = scope->param_dtype,
                         .storage = scope->storage,
                         .fixed = -1};
    return child;
}

/* A copy of the scope with one more component. traced: what the trace adds to the scope of its equations, "" for
 * nothing. If it is too deep or there is no memory, the scope itself: the error sticks to the trace. */
static tow_scope *child_scope(tow_scope *scope, const char *name, const char *traced)
{
    if (tow__scope_failed(scope) || tow__too_deep(scope, scope->depth + 1)) return scope;
    tow_trace_push_scope(scope->model->trace, traced);
    tow_scope *child = make_child(scope, name, strlen(name));
    return child ? child : scope;
}

tow_scope *tow__scope_at(const tow_scope *from, const char *path, const char **name)
{
    tow_scope *scope = (tow_scope *)from;
    for (size_t n; scope && (n = strcspn(path, "/"), path[n]); path += n + 1) {
        if (n == 2 && strncmp(path, "..", 2) == 0) {
            while (scope->parent && (scope->transparent || scope->covered)) scope = scope->parent;
            scope = scope->parent;
        } else if (n == 0 || tow__too_deep(scope, scope->depth + 1)) {
            return NULL;
        } else {
            scope = make_child(scope, path, n);
        }
    }
    *name = path;
    return tow__component_fault(path) || strcmp(path, "..") == 0 ? NULL : scope;
}

tow_scope *tow_scope_begin(tow_scope *scope, const char *name)
{
    const char *fault = tow__component_fault(name);
    if (fault)
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "\"%s\" cannot name a child: it %s; expected one component without '/'", name ? name : "(null)",
                       fault);
    if (!name || !name[0]) name = "?";
    return child_scope(scope, name, name);
}

void tow_scope_end(tow_scope *child) { tow_trace_pop_scope(child->model->trace); }

bool tow__scope_numbering(const tow_scope *scope, tow__numbering *n)
{
    *n = (tow__numbering){0};
    int64_t strides[TOW_MAX_RANK]; /* innermost first */
    for (const tow_scope *s = scope; s && (s == scope || s->covered || s->transparent); s = s->parent) {
        if (s->transparent) continue;
        n->first += s->first + (s->fixed >= 0 ? s->stride * s->fixed : 0);
        if (s->iteration) strides[n->levels++] = s->stride;
        if (s->iteration) n->axis = s->axis;
    }
    for (int i = 0; i < n->levels; i++) n->strides[i] = strides[n->levels - 1 - i];
    return n->levels > 0;
}

tow_scope *tow__scope_iteration(tow_scope *scope, const tow__turn *turn)
{
    char name[TOW__NUMBERING_SIZE];
    tow_scope at = {
        .parent = scope, .first = turn->first, .stride = turn->stride, .fixed = turn->level ? -1 : turn->fixed};
    at.iteration = turn->level != NULL;
    tow__numbering numbering;
    if (tow__scope_numbering(&at, &numbering))
        tow__numbering_write(&numbering, name);
    else
        snprintf(name, sizeof name, "%" PRId64, numbering.first);
    tow_scope *child = child_scope(scope, name, turn->covered ? "" : name);
    if (child == scope) return scope;
    if (turn->covered) {
        child->path = scope->path;
        child->name = "";
    }
    child->covered = turn->covered;
    child->first = turn->first;
    child->stride = turn->stride;
    child->unit = turn->unit;
    child->iteration = at.iteration;
    child->fixed = at.fixed;
    child->flax_keys = turn->flax_keys;
    child->mapped = turn->mapped;
    child->lift = turn->lift;
    child->lifted = scope->lifted || turn->lift;
    if (turn->level) child->level = turn->level;
    return child;
}

tow_scope *tow__scope_lifted(tow_scope *scope, const tow__lift *lift, tow__repetition *repeated)
{
    tow_scope *here = tow__trace_alloc(scope->model->trace, 1, sizeof *here);
    if (!here) return scope;
    *here = *scope;
    here->parent = scope;
    here->iteration = here->covered = here->flax_keys = here->mapped = false;
    here->fixed = -1;
    here->transparent = here->lifted = true;
    here->lift = lift;
    here->repeated = repeated;
    return here;
}

/* ---- counters ---------------------------------------------------------------------------------------------------- */

uint32_t tow__scope_count(tow_scope *scope, const char *stream)
{
    tow__model *m = scope->model;
    size_t size = strlen(stream) + strlen(scope->path) + 2;
    char *name = tow__trace_alloc(m->trace, size, 1);
    if (!name) return 0;
    snprintf(name, size, "%s:%s", stream, scope->path);
    uint32_t index = tow__names_find(&m->counter_names, name);
    if (index == TOW__NO_NAME) {
        if (m->counter_names.count == m->counter_capacity) {
            uint32_t capacity = m->counter_capacity ? 2 * m->counter_capacity : 16;
            uint32_t *counters = tow__grow(m->ctx, m->counters, m->counter_capacity, capacity, sizeof *counters);
            if (!counters) goto no_memory;
            m->counters = counters;
            m->counter_capacity = capacity;
        }
        index = tow__names_add(&m->counter_names, name);
        if (index == TOW__NO_NAME) goto no_memory;
        m->counters[index] = 0;
    }
    return ++m->counters[index];
no_memory:
    tow_scope_fail(scope, TOW_OUT_OF_MEMORY, "no memory for the counter of stream \"%s\"", stream);
    return 0;
}

static void free_recipes(tow_context *ctx, tow__store *store)
{
    if (store->recipes) tow__free(ctx, store->recipes, store->recipe_capacity, sizeof *store->recipes);
    store->recipes = NULL;
}

void tow__model_free(tow__model *m)
{
    tow__names_free(&m->counter_names);
    tow__names_free(&m->sown_collections);
    if (m->counters) tow__free(m->ctx, m->counters, m->counter_capacity, sizeof *m->counters);
    m->counters = NULL;
    free_recipes(m->ctx, &m->params);
    free_recipes(m->ctx, &m->state);
    for (uint32_t i = 0; i < m->n_graphs; i++) tow_graph_release(m->graphs[i]);
    if (m->graphs) tow__free(m->ctx, m->graphs, m->n_graphs, sizeof(tow_graph *));
    m->n_graphs = 0;
    m->graphs = NULL;
}

/* ---- collections ------------------------------------------------------------------------------------------------- */

bool tow__collection_listed(const char *const *list, const char *collection)
{
    while (list && *list && strcmp(*list, collection) != 0) ++list;
    return list && *list;
}

bool tow__path_in(const char *path, const char *collection)
{
    size_t length = strlen(collection);
    return strncmp(path, collection, length) == 0 && path[length] == '/';
}
