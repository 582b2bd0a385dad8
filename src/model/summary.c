/* Summaries of models: one tracing that lists the layers, whose equations carry the paths of their layers from the
 * forward to the backward pass. Flops and kept values are those of the whole model's graphs, found by these paths. */
#include "src/model/summary.h"

#include <math.h>

#include "src/base/arithmetic.h"
#include "src/model/flops.h"
#include "src/scope/tree.h"
#include "tow/autodiff.h"

void tow_model_summary_free(tow_model_summary *s)
{
    if (!s) return;
    tow_context *ctx = s->ctx;
    tow__call_log_free(&s->log);
    tow__string_free(&s->scratch);
    tow__arena_free(&s->arena);
    tow__free(ctx, s, 1, sizeof *s);
}

/* ---- layers by path ---------------------------------------------------------------------------------------------- */

/* The layer with the longest path that `path` is (unless `around`), or is below; the model if there is none. */
static uint32_t find_layer(tow_model_summary *s, const char *path, bool around)
{
    tow__string *prefix = &s->scratch;
    if (!path[0]) return 0;
    prefix->length = 0;
    tow__string_add(prefix, "%s", path);
    if (prefix->failed) return 0;
    for (;; around = false) {
        const uint32_t layer = around ? TOW__NO_NAME : tow__names_find(&s->log.paths, prefix->text);
        char *end = strrchr(prefix->text, '/');
        if (layer != TOW__NO_NAME) return layer;
        if (!end) return 0;
        *end = '\0';
    }
}

/* From a layer to the one around it; false at the model. */
static bool outwards(const tow_model_summary *s, uint32_t *layer)
{
    if (*layer == 0) return false;
    *layer = s->parents[*layer];
    return true;
}

static int components(const char *path)
{
    int n = path[0] != '\0';
    for (; *path; path++) n += *path == '/';
    return n;
}

/* Does component a [n] of a layer's path stand for component b [m] of a scope? That of a loop, "{}", stands for
 * iterations that have a name of their own where its body is recorded more than once: "{1+2}", "7"
 * (tow__iteration_scope). */
static bool stands_for(const char *a, size_t n, const char *b, size_t m)
{
    tow__numbering numbering;
    int64_t number;
    if (n == m && memcmp(a, b, n) == 0) return true;
    return n == 2 && memcmp(a, "{}", 2) == 0 &&
           (tow__numbering_read(b, m, &numbering) || tow__number_read(b, m, &number));
}

/* The components of a layer's path that is `scope` or lies around it, 0 if it does neither. */
static int components_around(const char *layer, const char *scope)
{
    for (int n = 1;; n++) {
        const size_t a = strcspn(layer, "/"), b = strcspn(scope, "/");
        if (!stands_for(layer, a, scope, b)) return 0;
        if (!layer[a]) return n;
        if (!scope[b]) return 0;
        layer += a + 1;
        scope += b + 1;
    }
}

/* Are there components by which iterations can be called? */
static bool names_iterations(const char *scope)
{
    for (;; scope++) {
        const size_t b = strcspn(scope, "/");
        int64_t number;
        if ((scope[0] == '{' && b > 2) || tow__number_read(scope, b, &number)) return true;
        scope += b;
        if (!*scope) return false;
    }
}

/* The innermost layer that `scope` is in. */
static uint32_t layer_of(tow_model_summary *s, const char *scope)
{
    uint32_t layer = find_layer(s, scope, false);
    if (!names_iterations(scope)) return layer;
    int most = layer > 0 ? components(s->log.layers[layer].path) : 0;
    for (uint32_t i = 1; i < s->count; i++) {
        const int n = components_around(s->log.layers[i].path, scope);
        if (n > most) layer = i, most = n;
    }
    return layer;
}

static tow_status list_layers(tow_model_summary *s)
{
    s->count = s->log.paths.count;
    s->layers = tow__arena_alloc(&s->arena, s->count + 1U, sizeof *s->layers);
    s->parents = tow__arena_alloc(&s->arena, s->count + 1U, sizeof *s->parents);
    if (!s->layers || !s->parents) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < s->count; i++) {
        const tow__called *l = &s->log.layers[i];
        s->parents[i] = i == 0 ? 0 : find_layer(s, l->path, true);
        s->layers[i] = (tow_layer_summary){.path = l->path,
                                           .name = l->name,
                                           .depth = components(l->path),
                                           .calls = l->calls,
                                           .n_inputs = l->n_in,
                                           .n_outputs = l->n_out,
                                           .inputs = l->in,
                                           .outputs = l->out};
    }
    return s->scratch.failed ? TOW_OUT_OF_MEMORY : TOW_OK;
}

/* ---- parameters and variables ------------------------------------------------------------------------------------ */

/* Adds entry i of a list to the layer that it belongs to, and to all around it. */
static tow_status own(tow_model_summary *s, const tow_params *list, uint32_t i, bool variable)
{
    tow__owned *o = &s->owned[s->n_owned++];
    const char *path = list->names.names[i], *below = variable ? path + strcspn(path, "/") + 1 : path;
    *o = (tow__owned){.path = tow__arena_string(&s->arena, path),
                      .type = list->types[i],
                      .kind = list->kinds[i],
                      .variable = variable};
    if (!o->path) return TOW_OUT_OF_MEMORY;
    const size_t size = strlen(below) + 1;
    char *plain = tow__alloc(s->ctx, size, 1); /* as layers are called */
    if (!plain) return TOW_OUT_OF_MEMORY;
    tow__path_plain(below, plain);
    o->layer = layer_of(s, plain);
    tow__free(s->ctx, plain, size, 1);
    uint32_t layer = o->layer;
    if (!variable)
        s->layers[layer].own_parameters += tow_type_element_count(o->type) * tow_dtype_numbers(o->type.dtype);
    do {
        tow_layer_summary *l = &s->layers[layer];
        if (variable) {
            l->variable_bytes += tow_type_bytes(o->type);
        } else {
            l->parameters += tow_type_element_count(o->type) * tow_dtype_numbers(o->type.dtype);
            l->parameter_bytes += tow_type_bytes(o->type);
        }
    } while (outwards(s, &layer));
    return TOW_OK;
}

static tow_status list_owned(tow_model_summary *s, const tow_params *params, const tow_model_options *options)
{
    const tow_params *state = options ? options->state : NULL;
    const char *at = options && options->at ? options->at : "";
    const size_t n = (size_t)params->names.count + (state ? state->names.count : 0);
    s->owned = tow__arena_alloc(&s->arena, n + 1, sizeof *s->owned);
    tow_status status = s->owned ? TOW_OK : TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < params->names.count && !status; i++)
        if (tow__path_below(params->names.names[i], at)) status = own(s, params, i, false);
    for (uint32_t i = 0; state && i < state->names.count && !status; i++) {
        const char *path = state->names.names[i];
        if (tow__path_below(path + strcspn(path, "/") + 1, at)) status = own(s, state, i, true);
    }
    return status;
}

/* ---- flops ------------------------------------------------------------------------------------------------------- */

typedef struct tally {
    tow_model_summary *summary;
    bool backward;
} tally;

static void add_flops(void *user, const char *scope, double flops)
{
    const tally *t = user;
    uint32_t layer = layer_of(t->summary, scope); /* the model's own: what no layer did */
    do {
        tow_layer_summary *l = &t->summary->layers[layer];
        *(t->backward ? &l->backward_flops : &l->flops) += flops;
    } while (outwards(t->summary, &layer));
}

/* ---- the backward pass ------------------------------------------------------------------------------------------- */

/* Parameters and inputs of the model that are floats: inputs of the graph in increasing order. */
static size_t list_wrt(const tow_graph *g, size_t n_params, size_t first_input, size_t n_inputs, size_t *wrt)
{
    size_t n = 0;
    for (size_t i = 0; i < tow_graph_input_count(g); i++)
        if ((i < n_params || (i >= first_input && i < first_input + n_inputs)) &&
            tow_dtype_is_float(tow_graph_input_type(g, i).dtype))
            wrt[n++] = i;
    return n;
}

/* "the argument x", "tanh", "the value named h". */
static const char *kept_text(tow__arena *arena, const tow_residual *r)
{
    const char *kind = r->kind == TOW_RESIDUAL_NAMED ? "the value named " : "", *what = r->what ? r->what : "";
    const char *of = r->of ? " of " : "", *source = r->of ? r->of : "";
    const size_t size = strlen(kind) + strlen(what) + strlen(of) + strlen(source) + 1;
    char *text = tow__arena_alloc(arena, size, 1), *at = text;
    if (!text) return NULL;
    for (int i = 0; i < 4; i++) {
        const char *part = i == 0 ? kind : i == 1 ? what : i == 2 ? of : source;
        memcpy(at, part, strlen(part));
        at += strlen(part);
    }
    return text;
}

static tow_status list_kept(tow_model_summary *s, const tow_graph *g, size_t n_wrt, const size_t *wrt)
{
    tow_residuals residuals = {0};
    tow_status status = TOW_OK;
    TRY(tow_saved_residuals(g, n_wrt, wrt, &residuals));
    s->kept = tow__arena_alloc(&s->arena, residuals.count + 1, sizeof *s->kept);
    if (!s->kept) TRY(TOW_OUT_OF_MEMORY);
    for (size_t i = 0; i < residuals.count; i++) {
        const tow_residual *r = &residuals.items[i];
        if (r->kind == TOW_RESIDUAL_ARGUMENT || r->kind == TOW_RESIDUAL_CONSTANT) continue; /* alive anyway */
        tow__kept *k = &s->kept[s->n_kept++];
        *k = (tow__kept){.what = kept_text(&s->arena, r),
                         .here = tow__arena_string(&s->arena, r->here),
                         .type = r->type,
                         .bytes = r->bytes,
                         .layer = layer_of(s, r->scope ? r->scope : "")};
        if (!k->what || (r->here && !k->here)) TRY(TOW_OUT_OF_MEMORY);
        uint32_t layer = k->layer;
        do s->layers[layer].kept_bytes += k->bytes;
        while (outwards(s, &layer));
    }
done:
    tow_residuals_free(&residuals);
    return status;
}

/* Figures of the backward pass, or why there are none. */
static tow_status measure_backward(tow_model_summary *s, const tow_graph *g, size_t n_wrt, const size_t *wrt)
{
    tow_graph *forward = NULL, *backward = NULL;
    tow_status status = TOW_INVALID_ARGUMENT;
    if (n_wrt > 0) status = tow_vjp(g, n_wrt, wrt, &forward, &backward);
    if (!status) status = tow__count_flops(backward, add_flops, &(tally){s, true});
    if (!status) status = list_kept(s, g, n_wrt, wrt);
    tow_graph_release(forward);
    tow_graph_release(backward);
    if (status == TOW_OK || status == TOW_OUT_OF_MEMORY) return status;
    s->no_gradient = tow__arena_string(&s->arena, n_wrt > 0 ? tow_context_error(s->ctx)
                                                            : "nothing in it is a float to differentiate");
    for (uint32_t i = 0; i < s->count; i++) s->layers[i].backward_flops = NAN;
    tow_context_clear_error(s->ctx);
    return s->no_gradient ? TOW_OK : TOW_OUT_OF_MEMORY;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static tow_status measure(tow_model_summary *s, const tow_module *model, const tow_params *params, size_t n_inputs,
                          const tow_type *input_types, const tow_model_options *options)
{
    tow_graph *graph = NULL;
    size_t *wrt = NULL;
    const size_t n_params = params->names.count;
    const size_t n_state = options && options->state ? options->state->names.count : 0;
    tow_model_options plain = options ? *options : TOW_MODEL_OPTIONS();
    tow_status status = TOW_OK;
    plain.updates = NULL;
    TRY(tow__forward_logged(model, params, n_inputs, input_types, &plain, &s->log, &graph));
    TRY(list_layers(s));
    TRY(list_owned(s, params, options));
    TRY(tow__count_flops(graph, add_flops, &(tally){s, false}));
    wrt = tow__arena_alloc(&s->arena, tow_graph_input_count(graph) + 1, sizeof *wrt);
    if (!wrt) TRY(TOW_OUT_OF_MEMORY);
    TRY(measure_backward(s, graph, list_wrt(graph, n_params, n_params + n_state, n_inputs, wrt), wrt));
    if (s->scratch.failed) TRY(TOW_OUT_OF_MEMORY);
done:
    tow_graph_release(graph);
    return status;
}

TOW__OWN_FRAME tow_status tow_model_summary_create(const tow_module *model, const tow_params *params, size_t n_inputs,
                                                   const tow_type *input_types, const tow_model_options *options,
                                                   tow_model_summary **summary)
{
    if (summary) *summary = NULL;
    if (!model || !params || !summary || (!input_types && n_inputs > 0))
        return tow__missing(params ? params->ctx : NULL, __func__,
                            "a model, its parameters, types of its inputs and a place for the summary");
    tow_context *ctx = params->ctx;
    tow_model_options own;
    if (!TOW__OPTIONS_TAKE(ctx, tow_model_options, options, &own)) return TOW_INVALID_ARGUMENT;
    if (!tow__check_stack(ctx, __func__, model, TOW__CALLERS_FRAME)) return tow_context_status(ctx);
    TOW__ARITHMETIC(false);
    tow_model_summary *s = tow__alloc(ctx, 1, sizeof *s);
    if (!s) return TOW_OUT_OF_MEMORY;
    s->ctx = ctx;
    tow__arena_init(&s->arena, ctx);
    tow__string_init(&s->scratch, ctx);
    s->log = (tow__call_log){.ctx = ctx, .arena = &s->arena};
    tow__names_init(&s->log.paths, ctx);
    tow_status status = measure(s, model, params, n_inputs, input_types, options);
    if (status)
        tow_model_summary_free(s);
    else
        *summary = s;
    return status;
}

size_t tow_model_summary_layer_count(const tow_model_summary *s) { return s->count; }
tow_layer_summary tow_model_summary_layer(const tow_model_summary *s, size_t index)
{
    return index < s->count ? s->layers[index] : (tow_layer_summary){0};
}
const char *tow_model_summary_no_gradient(const tow_model_summary *s) { return s->no_gradient; }
