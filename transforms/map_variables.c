/* map_variables: a layer around another one, which sees its parameters and variables through functions of the user.
 *
 *   trans_in       seen = trans_in(stored)
 *   trans_out      stored = trans_out(seen): the type that is stored, the initial value, and what is stored of a new
 *                  value
 *   make           seen = make(scope), of other requests */
#include <stdio.h>

#include "src/params/pattern.h"
#include "src/scope/initializers.h"
#include "src/scope/store.h"
#include "src/scope/tree.h"
#include "tow/graph.h"
#include "transforms/view.h"

/* The operands of one call of the layer. */
typedef struct map_call {
    const tow_map_variables *m;
    bool *used; /* per pattern: it matched something */
} map_call;

static const char *const params_alone[] = {"params", NULL};

static const char *const *patterns_of(const tow_map_variables *m) { return m->variables ? m->variables : params_alone; }

/* "collection/path" */
static const char *full_path(const tow__scope_view *view, const tow_scope *scope, const tow_variable_request *request)
{
    const char *path = tow__viewed_path(view, scope, request);
    if (!path) return NULL;
    size_t size = strlen(request->collection) + strlen(path) + 2;
    char *text = tow__trace_alloc(scope->model->trace, size, 1);
    if (text) snprintf(text, size, "%s/%s", request->collection, path);
    return text;
}

static bool takes(const tow__scope_view *view, const tow_scope *scope, const tow_variable_request *request)
{
    const map_call *c = view->user;
    const char *path = full_path(view, scope, request), *const *patterns = patterns_of(c->m);
    const tow_param_kind kind = tow__is_param(request) ? tow__request_kind(request) : TOW_PARAM_DEFAULT;
    bool found = false;
    for (size_t i = 0; path && patterns[i]; i++) {
        if (!strchr(patterns[i], '/') ? !tow_path_matches(patterns[i], request->collection)
                                      : !tow__param_matches(patterns[i], path, kind))
            continue;
        found = c->used[i] = true;
    }
    return found;
}

/* ---- what is stored ---------------------------------------------------------------------------------------------- */

/* trans_out for one request, while it is recorded. */
typedef struct inverse {
    const tow_map_variables *m;
    const tow_variable_request *asked;
} inverse;

static void record_inverse(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const inverse *i = user;
    (void)trace;
    out[0] = i->m->trans_out(in[0], i->asked, i->m->user);
}

/* The request as the functions get it, with texts that live as long as the trace. */
static bool copy_request(const tow__scope_view *view, const tow_scope *scope, const tow_variable_request *request,
                         tow_variable_request *copy)
{
    const char *path = tow__viewed_path(view, scope, request);
    size_t n = strlen(request->collection) + 1;
    char *collection = tow__trace_alloc(scope->model->trace, n, 1);
    if (!path || !collection) return false;
    *copy = *request;
    copy->collection = memcpy(collection, request->collection, n);
    copy->path = path;
    copy->name = path + strlen(path) - strlen(request->name);
    return true;
}

/* trans_out as a graph, which the caller releases. NULL: reported. */
static tow_graph *trace_inverse(tow_scope *scope, const tow_map_variables *m, const tow_variable_request *asked)
{
    tow_context *ctx = scope->model->ctx;
    tow_graph *graph = NULL;
    inverse i = {m, asked};
    tow_status status = tow_trace_function(ctx, record_inverse, &i, 1, &asked->type, NULL, 1, &graph);
    if (!status) return graph;
    char text[sizeof ctx->error];
    memcpy(text, ctx->error, sizeof text);
    tow_scope_fail(scope, status, "map_variables: .trans_out of \"%s\" (%s): %.600s", asked->name,
                   tow__type_name(asked->type).text, text);
    return NULL;
}

/* Initial values are drawn when the layer and what it points to may be gone: by the graph, which the model keeps. */
static bool map_initial_value(tow__model *model, tow_graph *graph, tow_variable_request *stored, tow_type seen)
{
    tow__mapped_draw *draw = tow__trace_alloc(model->trace, 1, sizeof *draw);
    tow_graph **graphs =
        draw ? tow__grow(model->ctx, model->graphs, model->n_graphs, model->n_graphs + 1, sizeof *graphs) : NULL;
    if (!graphs) {
        tow_trace_fail(model->trace, TOW_OUT_OF_MEMORY, "map_variables: no memory for an initial value");
        return false;
    }
    model->graphs = graphs;
    graphs[model->n_graphs++] = tow_graph_retain(graph);
    *draw = (tow__mapped_draw){seen, stored->init, graph};
    stored->init = tow__init_mapped(draw);
    return true;
}

/* The request to make outside. */
static bool stored_request(tow_scope *scope, const tow_map_variables *m, const tow_variable_request *asked,
                           tow_variable_request *stored)
{
    *stored = *asked;
    if (!m->trans_out || tow__request_of_any_type(asked)) return true;
    tow_graph *graph = trace_inverse(scope, m, asked);
    if (!graph) return false;
    stored->type = tow_graph_output_type(graph, 0);
    if (!tow_type_equal(stored->type, asked->type)) stored->blocks = 0, stored->summed = 0; /* it is no such weight */
    bool fine = !scope->model->initializing || map_initial_value(scope->model, graph, stored, asked->type);
    tow_graph_release(graph);
    return fine;
}

/* ---- the view ---------------------------------------------------------------------------------------------------- */

/* The value that the layer sees must have the type that it asks for. */
static tow_value checked(tow_scope *scope, const tow_map_variables *m, const tow_variable_request *asked,
                         tow_value seen)
{
    if (tow__scope_failed(scope)) return (tow_value){0};
    if (!tow_is_null(seen) && !tow__is_current(scope->model->trace, seen)) return (tow_value){0};
    tow_type found = tow_value_type(seen);
    if (!tow_is_null(seen) && (tow__request_of_any_type(asked) || tow_type_equal(found, asked->type))) return seen;
    tow_scope_fail(
        scope, TOW_TYPE_MISMATCH,
        "map_variables: the layer asks for \"%s\" of type %s, and .%s gave %s; return a value of the type that the "
        "layer asks for%s",
        asked->name, tow__type_name(asked->type).text, m->make ? "make" : "trans_in",
        tow_is_null(seen) ? "the null value" : tow__type_name(found).text,
        m->make || m->trans_out ? "" : ", or give .trans_out if another type is stored");
    return (tow_value){0};
}

static tow_value read_mapped(const tow__scope_view *view, tow_scope *outside, const tow_variable_request *request)
{
    const tow_map_variables *m = ((const map_call *)view->user)->m;
    tow_variable_request asked, stored;
    if (!copy_request(view, outside, request, &asked)) return (tow_value){0};
    if (m->make) {
        if (tow__request_of_any_type(&asked)) {
            tow_scope_fail(
                outside, TOW_INVALID_ARGUMENT,
                "map_variables: the layer asks for \"%s\" of %s without a type, which .make must know; declare it "
                "with tow_variable",
                asked.name, asked.collection);
            return (tow_value){0};
        }
        return checked(outside, m, &asked, m->make(outside, &asked, m->user));
    }
    if (!stored_request(outside, m, &asked, &stored)) return (tow_value){0};
    tow_value value = tow__request(outside, &stored);
    if (tow_is_null(value)) return value;
    tow_variable_request seen = asked;
    if (tow__request_of_any_type(&asked)) seen.type = tow_value_type(value);
    return checked(outside, m, &asked, m->trans_in ? m->trans_in(value, &seen, m->user) : value);
}

static void write_mapped(const tow__scope_view *view, tow_scope *outside, const tow_variable_request *request,
                         tow_value value)
{
    const tow_map_variables *m = ((const map_call *)view->user)->m;
    tow_variable_request asked;
    if (!copy_request(view, outside, request, &asked)) return;
    if (!m->trans_out) {
        tow_scope_fail(outside, TOW_INVALID_ARGUMENT,
                       "map_variables: the layer writes \"%s\" of %s, which it sees through .%s; %s the variable out "
                       "of .variables",
                       asked.name, asked.collection, m->make ? "make" : "trans_in",
                       m->make ? "make it by .trans_in and .trans_out, or leave"
                               : "give .trans_out, which says what to store, or leave");
        return;
    }
    if (tow_is_null(value) || !tow__is_current(outside->model->trace, value)) {
        tow__request_write(outside, &asked, value); /* reports it */
        return;
    }
    value = m->trans_out(value, &asked, m->user);
    asked.type = tow_value_type(value);
    tow__request_write(outside, &asked, value);
}

static void check_used(tow_scope *scope, const map_call *c)
{
    const char *const *patterns = patterns_of(c->m);
    for (size_t i = 0; patterns[i] && !tow__scope_failed(scope); i++)
        if (!c->used[i])
            tow_scope_fail(
                scope, TOW_NOT_FOUND,
                "map_variables: .variables: \"%s\" matches nothing that the layer asks for; expected a collection "
                "(\"params\"), or a pattern of collection/path below this layer (\"params/**kernel\")",
                patterns[i]);
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_map_variables *m = (const tow_map_variables *)module;
    size_t n = 0;
    if (m->make ? m->trans_in || m->trans_out : !m->trans_in && !m->trans_out) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "map_variables: found %s; give .trans_in, .trans_out or both, or .make alone",
                       m->make ? ".make beside another function" : "no function");
        return;
    }
    while (patterns_of(m)[n]) n++;
    if (n == 0) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "map_variables: .variables has no pattern; give one, or NULL for \"params\"");
        return;
    }
    map_call *c = tow__trace_alloc(scope->model->trace, 1, sizeof *c);
    bool *used = tow__trace_alloc(scope->model->trace, n + 1, sizeof *used);
    if (!c || !used) return;
    *c = (map_call){m, used};
    const tow__scope_view view = {
        .takes = takes, .read = read_mapped, .write = write_mapped, .of_kept = true, .user = c};
    tow__call_viewed(scope, m->inner, &view, n_in, in, n_out, out);
    check_used(scope, c);
}

const tow_module_class tow_map_variables_class = {
    TOW__MADE_BY(TOW_MAP_VARIABLES, tow_map_variables), .name = "map_variables", .call = call,
    .layout = TOW__LAYOUT_OF(tow_map_variables, TOW_MEMBER(tow_map_variables, inner, TOW_MEMBER_LAYER),
                             TOW_MEMBER(tow_map_variables, variables, TOW_MEMBER_NAMES))};
