/* The error for a memory limit that no plan keeps: the least that is possible, and what it consists of, once by kind
 * and once by layer. Both add up to it.
 *
 *   by kind     inputs (parameters, slots, ...), outputs, constants, and the arena: what is alive at the peak
 *   by layer    the same bytes by scope. Layers begin as the first component of their paths ("blocks"); one that takes
 *               more than half of all is shown by its parts ("blocks/mlp"), as long as it has any. */
#include "src/plan/remat/remat.h"
#include "src/plan/report/timeline.h"

enum {
    SHOWN = 4,  /* layers, besides the others together */
    DEEPEST = 5 /* components of a path */
};

static const char *const live_kinds[] = {
#define X(symbol, text) text,
    TOW__LIVE_LIST(X)
#undef X
};

/* Bytes of one kind in one place of the model. */
typedef struct part {
    const char *path;
    size_t length, shown; /* of the path; of its first components, by which parts make a layer. 0: of no layer */
    uint32_t kind;        /* of inputs, then of live values */
    uint32_t layer;       /* the first part that has the same layer */
    size_t bytes;
} part;

typedef struct parts {
    const tow_program *p;
    const tow__variants *v;
    const tow__timeline *t;
    part *list;
    uint32_t n, n_input_kinds;
} parts;

static const char *kind_name(const parts *x, uint32_t kind)
{
    if (kind >= x->n_input_kinds) return live_kinds[kind - x->n_input_kinds];
    return x->v->n_kinds ? x->v->kinds[kind].kind : "inputs";
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

/* Length of the path up to its next component behind `shown`; `shown`: there is none. */
static size_t next_component(const part *x, size_t shown)
{
    size_t end = shown + (shown > 0 && shown < x->length);
    while (end < x->length && x->path[end] != '/') end++;
    return end;
}

/* Adds the bytes at a path, of which the last component is left out if it names an array. */
static void add_part(parts *x, uint32_t kind, size_t bytes, const char *path, size_t length, bool is_array)
{
    part *new = &x->list[x->n++];
    while (is_array && length > 0 && path[--length] != '/') {}
    *new = (part){.path = path, .length = length, .kind = kind, .bytes = bytes};
    new->shown = next_component(new, 0);
}

/* The path of an input of a graph of which only names are known: "blocks/mlp/kernel" of "params/blocks/mlp/kernel". */
static const char *path_by_name(const tow_graph *g, uint32_t input)
{
    const char *behind = g->input_names[input] ? strchr(g->input_names[input], '/') : NULL;
    return behind ? behind + 1 : NULL;
}

static void list_inputs(parts *x)
{
    const tow_graph *g = x->p->graph;
    uint32_t kind = 0;
    for (size_t at = 0, first = 0; at < g->n_inputs; at++) {
        const size_t bytes = tow_type_bytes(g->vars[g->inputs[at]].type);
        const size_t i = x->p->split.whole ? x->p->split.inputs[at].array : at; /* of the caller */
        const char *path = NULL;
        while (kind + 1 < x->v->n_kinds && i - first >= x->v->kinds[kind].n) first += x->v->kinds[kind++].n;
        if (!x->v->n_kinds)
            path = path_by_name(g, (uint32_t)at);
        else if (x->v->kinds[kind].path)
            path = x->v->kinds[kind].path(x->v->user, i - first);
        add_part(x, kind, bytes, path, path ? strlen(path) : 0, true);
    }
}

static tow_status list_parts(parts *x, tow__arena *arena)
{
    const tow__timeline *t = x->t;
    x->n_input_kinds = x->v->n_kinds ? (uint32_t)x->v->n_kinds : 1;
    x->list = tow__arena_alloc(arena, (size_t)x->p->graph->n_inputs + t->n_groups + 1, sizeof *x->list);
    if (!x->list) return TOW_OUT_OF_MEMORY;
    list_inputs(x);
    for (uint32_t i = 0; t->n && i < t->n_groups; i++) {
        const tow__live_group *g = &t->groups[i];
        add_part(x, x->n_input_kinds + (uint32_t)g->kind, (size_t)g->bytes[t->peak], g->scope, g->length, false);
    }
    return TOW_OK;
}

/* ---- by kind ----------------------------------------------------------------------------------------------------- */

/* kinds first to end - 1 that have bytes, in parts of the layer (TOW__NONE: in all). Returns their sum. */
static size_t add_kinds(tow__string *text, const parts *x, uint32_t layer, uint32_t first, uint32_t end)
{
    size_t sum = 0;
    for (uint32_t kind = first; kind < end; kind++) {
        size_t bytes = 0;
        for (uint32_t i = 0; i < x->n; i++)
            if (x->list[i].kind == kind && (layer == TOW__NONE || x->list[i].layer == layer)) bytes += x->list[i].bytes;
        if (bytes) tow__string_add(text, "%s%s %zu", sum ? ", " : "", kind_name(x, kind), bytes);
        sum += bytes;
    }
    return sum;
}

static void add_all_kinds(tow__string *text, const parts *x)
{
    const tow_program_bytes *b = &x->p->bytes;
    const size_t inputs = add_kinds(text, x, TOW__NONE, 0, x->n_input_kinds);
    tow__string_add(text, "%soutputs %zu, constants %zu, arena %zu", inputs ? ", " : "", b->outputs, b->constants,
                    b->arena);
    if (b->arena == 0) return;
    tow__string_add(text, " (");
    const size_t alive = add_kinds(text, x, TOW__NONE, x->n_input_kinds, x->n_input_kinds + (uint32_t)TOW__LIVE_KINDS);
    if (alive < b->arena || !alive) tow__string_add(text, "%sunused %zu", alive ? ", " : "", b->arena - alive);
    tow__string_add(text, ")");
}

/* ---- by layer ---------------------------------------------------------------------------------------------------- */

static bool same_layer(const part *a, const part *b)
{
    return a->shown == b->shown && (a->shown == 0 || memcmp(a->path, b->path, a->shown) == 0);
}

static void find_layers(parts *x)
{
    for (uint32_t i = 0; i < x->n; i++) {
        uint32_t first = 0;
        while (!same_layer(&x->list[first], &x->list[i])) first++;
        x->list[i].layer = first;
    }
}

static size_t layer_bytes(const parts *x, uint32_t layer)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < x->n; i++)
        if (x->list[i].layer == layer) bytes += x->list[i].bytes;
    return bytes;
}

/* The layer with the most bytes that was not shown; TOW__NONE: there is none. */
static uint32_t largest_layer(const parts *x, const uint32_t *shown, uint32_t n_shown)
{
    uint32_t best = TOW__NONE;
    size_t most = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        bool is_new = x->list[i].layer == i && x->list[i].shown > 0;
        for (uint32_t k = 0; k < n_shown; k++) is_new &= shown[k] != i;
        const size_t bytes = is_new ? layer_bytes(x, i) : 0;
        if (bytes > most) best = i, most = bytes;
    }
    return best;
}

/* Parts of a layer with more than half of all bytes become layers; false: there is none, or it has no parts. */
static bool divide(parts *x, size_t all)
{
    const uint32_t layer = largest_layer(x, NULL, 0);
    bool any = false;
    if (layer == TOW__NONE || layer_bytes(x, layer) <= all / 2) return false;
    for (uint32_t i = 0; i < x->n; i++) {
        part *a = &x->list[i];
        if (a->layer != layer) continue;
        const size_t next = next_component(a, a->shown);
        any |= next > a->shown;
        a->shown = next;
    }
    find_layers(x);
    return any;
}

/* Nothing if no part is of a layer. */
static void add_layers(tow__string *text, parts *x, size_t all)
{
    uint32_t shown[SHOWN], n = 0;
    size_t sum = 0, in_layers = 0;
    find_layers(x);
    for (int depth = 1; depth < DEEPEST && divide(x, all);) depth++;
    for (uint32_t i = 0; i < x->n; i++) in_layers += x->list[i].shown > 0 ? x->list[i].bytes : 0;
    if (in_layers == 0) return;
    tow__string_add(text, "\nby layer: ");
    while (n < SHOWN && (shown[n] = largest_layer(x, shown, n)) != TOW__NONE) {
        const part *a = &x->list[shown[n]];
        const size_t bytes = layer_bytes(x, shown[n]);
        tow__string_add(text, "%s%.*s %zu (", n ? ", " : "", (int)a->shown, a->path, bytes);
        add_kinds(text, x, shown[n], 0, x->n_input_kinds + (uint32_t)TOW__LIVE_KINDS);
        tow__string_add(text, ")");
        sum += bytes;
        n++;
    }
    if (in_layers > sum) tow__string_add(text, ", others %zu", in_layers - sum);
    tow__string_add(text, ", in no layer %zu", all - in_layers);
}

tow_status tow__refuse_limit(const tow_program *p, const tow__variants *variants, size_t limit)
{
    tow__string kinds = {.ctx = p->ctx}, layers = {.ctx = p->ctx};
    tow__timeline t;
    parts x = {.p = p, .v = variants, .t = &t};
    const char *note = variants->note ? variants->note : "";
    tow_status status = tow__timeline_make(p, TOW__LIVE_GROUPS, &t);
    if (status == TOW_OK) status = list_parts(&x, &t.memory);
    if (status == TOW_OK) {
        const size_t least = p->bytes.inputs + p->bytes.outputs + p->bytes.constants + p->bytes.arena;
        add_all_kinds(&kinds, &x);
        add_layers(&layers, &x, least);
        status = kinds.failed || layers.failed
                     ? TOW_OUT_OF_MEMORY
                     : tow__fail(p->ctx, TOW_INVALID_ARGUMENT,
                                 "memory limit: expected at least %zu bytes, found %zu; the least that is possible is "
                                 "%s; raise the limit, or make the batch or the model smaller%s%s%s",
                                 least, limit, kinds.text, layers.length ? layers.text : "", *note ? "\n" : "", note);
    }
    tow__timeline_free(&t);
    tow__string_free(&kinds);
    tow__string_free(&layers);
    return status;
}
