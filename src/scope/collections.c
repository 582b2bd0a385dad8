/* Variables of the collections besides "params": declaring, reading and writing them, sowing values, and carrying both
 * out of the bodies of remat and scan.
 *
 *   frame of the model    state[v] = input of the graph
 *     frame of a scan     state[v] = row of the stack (or the carry, if the iterations share v)
 *       frame of a remat  state[v] = what the layer wrote
 *
 * While a model is initialised nothing is computed, so writes are checked and dropped: variables have their initial
 * values afterwards. */
#include <stdio.h>

#include "src/scope/initializers.h"
#include "src/scope/views.h"
#include "tow/autodiff.h"

/* ---- collections and paths --------------------------------------------------------------------------------------- */

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

static bool has_collection(const tow__store *store, const char *collection)
{
    for (uint32_t i = 0; i < store->list->names.count; i++)
        if (tow__path_in(store->list->names.names[i], collection)) return true;
    return false;
}

bool tow__collection_mutable(const tow__model *m, const char *collection)
{
    return tow__collection_listed(m->mutable_collections, collection) ||
           (tow__collection_listed(m->mutable_collections, TOW_EVERY_COLLECTION) &&
            has_collection(&m->state, collection));
}

bool tow_is_mutable(const tow_scope *scope, const char *collection)
{
    if (!collection) return false;
    if (scope->model->initialising)
        return strcmp(collection, "params") != 0 && strcmp(collection, "intermediates") != 0;
    return tow__collection_mutable(scope->model, collection);
}

/* The path of a variable, or NULL after an error; *resolved: how the scope sees it. */
const char *tow__checked_path(tow_scope *scope, const char *collection, const char *name, tow__resolved *resolved)
{
    if (tow__scope_failed(scope)) return NULL;
    const char *of_collection = tow__component_fault(collection), *fault = tow__component_fault(name);
    if (!of_collection && strcmp(collection, TOW_EVERY_COLLECTION) == 0) of_collection = "stands for all collections";
    if (of_collection || fault) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "variable \"%s\" of collection \"%s\": the %s %s; expected two names without '/'",
                       name ? name : "(null)", collection ? collection : "(null)",
                       of_collection ? "collection" : "name", of_collection ? of_collection : fault);
        return NULL;
    }
    if (strcmp(collection, "params") == 0) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "variable \"%s\": the collection \"params\" holds parameters, which no call changes; ask for "
                       "them with tow_param",
                       name);
        return NULL;
    }
    return tow__resolve(scope, collection, name, resolved) ? tow__entry_path(resolved->scope, collection, name) : NULL;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

bool tow__unreturned(const tow__model *m)
{
    return m->frame->unreturned || m->frame->body != tow__innermost_serial(m->trace);
}

void tow__frame_open(tow__model *m, tow__frame *frame)
{
    *frame = (tow__frame){.outer = m->frame,
                          .serial = ++m->frames,
                          .body = tow__innermost_serial(m->trace),
                          .unreturned = tow__unreturned(m),
                          .silent = m->frame && m->frame->silent};
    m->frame = frame;
}

/* what: done to the variable or value at `path`. */
bool tow__check_returned(tow_scope *scope, const char *path, const char *what)
{
    if (!tow__unreturned(scope->model)) return true;
    tow_scope_fail(
        scope, TOW_UNSUPPORTED,
        "%s: %s inside a function given to an operation (tow_remat_function, tow_scan_function, tow_cond_function, "
        "tow_while_function, tow_vmap_function, tow_call or the like), which hands out only its own outputs; make the "
        "value one of these (in a choice, of every branch; in a loop, a carry) and do it after the call, or use the "
        "layers TOW_REMAT, TOW_SCAN, TOW_COND, TOW_SWITCH and TOW_WHILE, which hand out variables as well",
        path, what);
    return false;
}

void tow__frame_close(tow__model *m) { m->frame = m->frame->outer; }

tow_value tow__variable_value(const tow__model *m, uint32_t index)
{
    const tow__frame *f = m->frame;
    while (!f->state || tow_is_null(f->state[index])) f = f->outer;
    return f->state[index];
}

void tow__variable_write(tow__model *m, uint32_t index, tow_value value)
{
    tow__frame *f = m->frame;
    size_t n = m->state.list->names.count;
    if (!f->state) f->state = tow__trace_alloc(m->trace, n, sizeof *f->state);
    if (!f->written) f->written = tow__trace_alloc(m->trace, n, sizeof *f->written);
    if (!f->state || !f->written) return;
    f->state[index] = value;
    f->written[index] = true;
}

/* ---- declaring and reading --------------------------------------------------------------------------------------- */

bool tow_has_variable(const tow_scope *scope, const char *collection, const char *name)
{
    if (tow__component_fault(collection) || tow__component_fault(name) || tow__scope_failed(scope)) return false;
    tow__resolved resolved;
    if (!tow__resolve(scope, collection, name, &resolved) || resolved.hidden) return false;
    const char *path = tow__entry_path(resolved.scope, collection, name);
    return path && tow__names_find(&scope->model->state.list->names, path) != TOW__NO_NAME;
}

/* Index of a variable that must be there, else TOW__NO_NAME after an error. */
static uint32_t find_variable(tow_scope *scope, const char *collection, const char *name, const char **path,
                              tow__resolved *resolved)
{
    tow__model *m = scope->model;
    *path = tow__checked_path(scope, collection, name, resolved);
    if (!*path || !tow__check_visible(scope, "", *path, resolved)) return TOW__NO_NAME;
    uint32_t index = tow__names_find(&m->state.list->names, *path);
    if (index == TOW__NO_NAME)
        tow__fail_missing(m, false, *path, "it");
    else if (!m->initialising)
        m->state.used[index] = true;
    return index;
}

tow_value tow__stored_variable(tow_scope *scope, const tow_variable_request *request)
{
    tow__model *m = scope->model;
    const char *path;
    tow__resolved resolved;
    if (!tow__request_of_any_type(request)) {
        path = tow__checked_path(scope, request->collection, request->name, &resolved);
        return path ? tow__store_request(scope, request, &resolved, path) : (tow_value){0};
    }
    uint32_t index = find_variable(scope, request->collection, request->name, &path, &resolved);
    if (index == TOW__NO_NAME) return (tow_value){0};
    if (m->initialising) return tow_full(m->trace, tow__seen_type(resolved.scope, m->state.list->types[index]), 0);
    return tow__variable_value(m, index);
}

tow_value tow_variable(tow_scope *scope, const char *collection, const char *name, tow_type type, tow_initializer init)
{
    tow__resolved resolved;
    if (!tow__checked_path(scope, collection, name, &resolved)) return (tow_value){0};
    if (tow_initializer_is_default(&init)) init = tow_init_zeros();
    if (!init.fill || type.rank < 0) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "variable \"%s\": found %s", name,
                       init.fill ? "a negative rank; expected a type such as tow_make_type(TOW_F32, 1, dims)"
                                 : "an initialiser with options but no function .fill; make it with "
                                   "tow_init_normal(0.02) or the like, or leave it zero");
        return (tow_value){0};
    }
    return tow__request(scope,
                        &(tow_variable_request){.collection = collection, .name = name, .type = type, .init = init});
}

tow_value tow_get_variable(tow_scope *scope, const char *collection, const char *name)
{
    tow__resolved resolved;
    if (!tow__checked_path(scope, collection, name, &resolved)) return (tow_value){0};
    return tow__request(scope, &(tow_variable_request){.collection = collection, .name = name, .type = {.rank = -1}});
}

/* ---- writing --------------------------------------------------------------------------------------------- */

void tow__store_variable(tow_scope *scope, const tow_variable_request *request, tow_value value)
{
    tow__model *m = scope->model;
    const char *collection = request->collection, *name = request->name, *path;
    tow__resolved resolved;
    uint32_t index = find_variable(scope, collection, name, &path, &resolved);
    if (index == TOW__NO_NAME || !tow__check_returned(scope, path, "the variable is written")) return;
    if (!tow_is_mutable(scope, collection)) {
        tow__params_fail(m, TOW_INVALID_ARGUMENT,
                         "%s: cannot be written, the collection \"%s\" is immutable in this call; name it in "
                         "tow_model_options.mutable_collections%s, or write only where tow_is_mutable(scope, \"%s\")",
                         path, collection,
                         m->deterministic ? ""
                                          : ", or set tow_model_options.deterministic for evaluation, in which "
                                            "BatchNorm and the like only read",
                         collection);
        return;
    }
    tow_type type = tow__seen_type(resolved.scope, m->state.list->types[index]), found = tow_value_type(value);
    if (tow_is_null(value) || !tow_type_equal(type, found)) {
        tow__params_fail(m, TOW_TYPE_MISMATCH, "%s: expected %s as its new value, found %s; a variable keeps its type",
                         path, tow__type_name(type).text,
                         tow_is_null(value) ? "the null value" : tow__type_name(found).text);
        return;
    }
    if (!m->initialising) tow__variable_write(m, index, value);
}

void tow_set_variable(tow_scope *scope, const char *collection, const char *name, tow_value value)
{
    tow__resolved resolved;
    if (!tow__checked_path(scope, collection, name, &resolved)) return;
    tow__request_write(
        scope, &(tow_variable_request){.collection = collection, .name = name, .type = tow_value_type(value)}, value);
}

/* ---- bodies of remat and scan ------------------------------------------------------------------------------------ */

/* The function's outputs, then what its frame wrote and sowed; NULL: out of memory. */
static tow_value *collect(tow__model *m, tow__recorded_body *b, size_t n_out, const tow_value *out)
{
    uint32_t n_state = m->state.list->names.count;
    size_t n_sown = 0;
    for (const tow__sown *s = b->frame.sown; s; s = s->next) ++n_sown;
    for (uint32_t i = 0; b->frame.written && i < n_state; i++) b->n_written += b->frame.written[i];
    b->n_out = n_out + b->n_written + n_sown;
    tow_value *all = tow__trace_alloc(m->trace, b->n_out, sizeof *all), *next = all ? all + n_out : NULL;
    b->written = tow__trace_alloc(m->trace, b->n_written, sizeof *b->written);
    if (!all || !b->written) return NULL;
    if (n_out) memcpy(all, out, n_out * sizeof *all);
    uint32_t *written = b->written;
    for (uint32_t i = 0; b->frame.written && i < n_state; i++) {
        if (!b->frame.written[i]) continue;
        *written++ = i;
        *next++ = b->frame.state[i];
    }
    for (const tow__sown *s = b->frame.sown; s; s = s->next) *next++ = s->value;
    return all;
}

bool tow__body_record(tow__model *m, tow_function function, void *user, size_t n_in, const tow_type *types,
                      size_t n_out, tow__recorded_body *b)
{
    tow_trace *t = m->trace;
    *b = (tow__recorded_body){0};
    tow_value *in = tow__trace_alloc(t, n_in, sizeof *in), *out = tow__trace_alloc(t, n_out, sizeof *out), *all = NULL;
    if (!in || !out || !tow__may_nest(t, 1)) return false;
    tow__frame_open(m, &b->frame);
    tow__push(t);
    b->frame.body = tow__innermost_serial(t);
    for (size_t i = 0; i < n_in; i++) in[i] = tow__input(t, types[i], NULL);
    if (!tow__failed(t)) function(t, in, out, user);
    tow__frame_close(m);
    if (!tow__failed(t)) all = collect(m, b, n_out, out);
    b->graph = tow__pop(t, all ? b->n_out : 0, all, &b->n_captures, &b->captures);
    return b->graph != NULL;
}

void tow__body_replay(tow_trace *t, const tow_value *in, tow_value *out, void *body)
{
    const tow__recorded_body *b = body;
    size_t n_in = tow_graph_inputs(b->graph) - b->n_captures;
    tow_value *all = tow__trace_alloc(t, b->n_captures + n_in, sizeof *all);
    if (!all) return;
    for (size_t i = 0; i < b->n_captures; i++) all[i] = tow__import(t, b->captures[i]);
    if (n_in) memcpy(all + b->n_captures, in, n_in * sizeof *all);
    tow__inline(t, b->graph, all, out);
}

void tow__body_commit(tow__model *m, const tow__recorded_body *b, const tow_value *values)
{
    for (size_t i = 0; i < b->n_written; i++) tow__variable_write(m, b->written[i], *values++);
    for (const tow__sown *s = b->frame.sown; s; s = s->next) tow__add_sown(m, s, *values++);
}

void tow__body_free(tow__recorded_body *b)
{
    tow_graph_release(b->graph);
    b->graph = NULL;
}
