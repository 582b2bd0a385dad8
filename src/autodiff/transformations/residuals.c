/* The report of what crosses from forward to backward: which values, why they exist, and their bytes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/autodiff/policy_log.h"
#include "src/autodiff/transformations/differentiate.h"
#include "src/base/arithmetic.h"
#include "src/graph/region.h"
#include "src/ops/table.h"

/* A residual while the report is made: its place in the order of the report. */
typedef struct entry {
    uint32_t var;
    tow_residual item;
} entry;

static const char *argument_name(tow__arena *arena, const tow_graph *g, uint32_t index)
{
    if (g->input_names[index]) return tow__arena_string(arena, g->input_names[index]);
    char *text = tow__arena_alloc(arena, 32, 1);
    if (text) snprintf(text, 32, "at index %u", index);
    return text;
}

/* "the argument x" of the whole graph (`whole`); in the body of a loop, what its input is. */
static const char *input_text(tow__arena *arena, const tow_graph *whole, const tow__region_form *loop, uint32_t index)
{
    enum {
        ROOM = 64
    };
    if (!loop) {
        const char *name = argument_name(arena, whole, index);
        char *text = name ? tow__arena_alloc(arena, strlen(name) + ROOM, 1) : NULL;
        if (text) snprintf(text, strlen(name) + ROOM, "the argument %s", name);
        return text;
    }
    char *text = tow__arena_alloc(arena, ROOM, 1);
    const int64_t carry = (int64_t)index - loop->consts, x = carry - loop->carry;
    if (!text) return NULL;
    if (carry < 0)
        snprintf(text, ROOM, "a constant of the loop");
    else if (x < 0)
        snprintf(text, ROOM, "the carry at index %" PRId64, carry);
    else
        snprintf(text, ROOM, "the scanned input at index %" PRId64, x);
    return text;
}

/* "tanh (file.c:10)" */
static const char *equation_text(tow__arena *arena, const tow__equation *e)
{
    const bool named = e->primitive == &tow__name_p, constant = e->primitive->kind == TOW__SOURCE;
    const char *kind = named ? "the value named " : constant ? "a constant" : "";
    const char *name = named ? ((const tow__name_params *)e->params)->name : constant ? "" : e->primitive->name;
    const char *here = e->source.here ? e->source.here : "";
    size_t size = strlen(kind) + strlen(name) + strlen(here) + 4;
    char *text = tow__arena_alloc(arena, size, 1);
    if (text) snprintf(text, size, "%s%s%s%s%s", kind, name, *here ? " (" : "", here, *here ? ")" : "");
    return text;
}

/* The input behind a value and moves of it, or the first equation that is no move. */
static const char *value_text(tow__arena *arena, const tow_graph *whole, const tow_graph *g,
                              const tow__region_form *loop, uint32_t v)
{
    while (g->vars[v].equation != TOW__INPUT) {
        const tow__equation *e = &g->equations[g->vars[v].equation];
        if (e->primitive->kind != TOW__MOVE || e->n_in == 0) return equation_text(arena, e);
        v = e->in[0];
    }
    uint32_t index = 0;
    while (g->inputs[index] != v) index++;
    return input_text(arena, whole, loop, index);
}

/* The equation that makes value v of g, or NULL. */
static const tow__equation *maker_of(const tow_graph *g, uint32_t v)
{
    return g->vars[v].equation == TOW__INPUT ? NULL : &g->equations[g->vars[v].equation];
}

/* The value of which a loop writes one row into a carry (while_partial.c), in *var. False: it does not. */
static bool find_row(const tow_graph *body, uint32_t *var)
{
    const tow__equation *write = maker_of(body, *var);
    const bool writes = write && write->primitive == &tow__dynamic_update_slice_p;
    const tow__equation *reshape = writes ? maker_of(body, write->in[1]) : NULL;
    if (!reshape || reshape->n_in != 1) return false;
    *var = reshape->in[0];
    return true;
}

/* The value of the first branch that puts something into result `output`. False: it is made of several. */
static bool find_choice(const tow__equation *e, const tow__region_form *form, uint32_t output, const tow_graph **g,
                        uint32_t *var)
{
    for (uint32_t k = form->conditions; k < form->conditions + form->branches; k++) {
        *g = tow__nested(e->primitive, e->params, k);
        *var = (*g)->outputs[output];
        const tow__equation *made = maker_of(*g, *var);
        if (!made) return false;
        if (made->primitive != &tow__empty_p) return made->primitive != &tow__concatenate_p;
    }
    return false;
}

/* The value of a body behind result `output` of e: what a loop stacks, or what the first branch puts into a slot of a
 * choice. False: e has no bodies, or the value is made of several. form: becomes that of e. */
static bool look_inside(const tow__equation *e, uint32_t output, const tow_graph **g, uint32_t *var,
                        tow__region_form *form)
{
    if (!tow__region_of(e, form)) return false;
    if (form->branches > 1) return find_choice(e, form, output, g, var);
    *g = form->body;
    *var = (*g)->outputs[output];
    return !form->repeats || form->length != TOW__DATA_DECIDE || find_row(*g, var);
}

/* A region of which each branch has an answer of its own. */
static bool is_choice(const tow__equation *e)
{
    tow__region_form form;
    return tow__region_of(e, &form) && form.branches > 1;
}

/* The origin of the elements of a value that a move or a region makes: of a region, the value of its body, of the
 * innermost one. NULL if nothing can be said, or if memory ran out (*failed). */
static const char *origin_of(tow__arena *arena, const tow_graph *whole, const tow_graph *known, uint32_t var,
                             bool *failed)
{
    const tow__equation *e = &known->equations[known->vars[var].equation];
    tow__region_form form, *around = NULL;
    if (!tow__is_region(e)) {
        const char *text = value_text(arena, whole, known, NULL, e->in[0]);
        *failed |= !text;
        return text;
    }
    if (is_choice(e)) return NULL;
    while (tow__is_region(e) && !is_choice(e)) {
        if (!look_inside(e, known->vars[var].index, &known, &var, &form)) return NULL;
        around = form.repeats ? &form : NULL;
        if (known->vars[var].equation == TOW__INPUT) break;
        e = &known->equations[known->vars[var].equation];
    }
    if (known->vars[var].equation == TOW__INPUT && !around) return NULL;
    const char *text = value_text(arena, whole, known, around, var);
    *failed |= !text;
    return text;
}

/* The equation that explains a value: through regions, a residual is explained by the body's equation if that is a
 * name. Otherwise it is an output of the region, in the scope of that equation. */
static void explain(const tow_graph *g, uint32_t var, tow_residual *item)
{
    const tow__equation *e = &g->equations[g->vars[var].equation];
    const tow_graph *inside = g;
    tow__region_form form;
    item->kind = TOW_RESIDUAL_OUTPUT;
    item->what = e->primitive->name;
    item->here = e->source.here;
    item->scope = e->source.scope;
    while (tow__is_region(e) && look_inside(e, inside->vars[var].index, &inside, &var, &form)) {
        if (inside->vars[var].equation == TOW__INPUT) break;
        e = &inside->equations[inside->vars[var].equation];
    }
    if (e->primitive == &tow__name_p) {
        item->kind = TOW_RESIDUAL_NAMED;
        item->what = ((const tow__name_params *)e->params)->name;
        if (e->source.here) item->here = e->source.here;
        if (e->source.scope) item->scope = e->source.scope;
    } else if (e->primitive->kind == TOW__SOURCE) {
        item->kind = TOW_RESIDUAL_CONSTANT;
    } else if (e->source.scope) {
        item->scope = e->source.scope;
    }
}

static bool copy_texts(tow__arena *arena, tow_residual *item)
{
    const char *here = item->here, *scope = item->scope;
    item->what = tow__arena_string(arena, item->what);
    item->here = tow__arena_string(arena, here);
    item->scope = tow__arena_string(arena, scope);
    return item->what && (!here || item->here) && (!scope || item->scope);
}

/* Constants first, then arguments in order, then the rest in the order of the forward graph. */
static int by_order(const void *pa, const void *pb)
{
    static const int rank[] = {
        [TOW_RESIDUAL_CONSTANT] = 0, [TOW_RESIDUAL_ARGUMENT] = 1, [TOW_RESIDUAL_NAMED] = 2, [TOW_RESIDUAL_OUTPUT] = 2};
    const entry *a = pa, *b = pb;
    if (rank[a->item.kind] != rank[b->item.kind]) return rank[a->item.kind] - rank[b->item.kind];
    return (a->var > b->var) - (a->var < b->var);
}

static tow_status collect(const tow__parts *parts, tow__arena *arena, tow_residuals *out)
{
    const tow_graph *g = parts->g, *k = parts->split.known;
    size_t n_res = parts->split.n_residuals, n = 0;
    entry *entries = tow__arena_alloc(arena, parts->n_used + n_res, sizeof *entries);
    if (!entries) return TOW_OUT_OF_MEMORY;
    bool *seen = tow__arena_alloc(arena, k->n_vars, sizeof *seen);
    if (!seen) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        if (!parts->split.input_used[i]) continue;
        seen[k->inputs[i]] = true;
        entries[n++] = (entry){.var = i,
                               .item = {.type = g->vars[g->inputs[i]].type,
                                        .kind = TOW_RESIDUAL_ARGUMENT,
                                        .what = argument_name(arena, g, i)}};
    }
    for (size_t i = 0; i < n_res; i++) {
        uint32_t var = k->outputs[k->n_outputs - n_res + i];
        if (seen[var]) continue;
        seen[var] = true;
        entry *e = &entries[n++];
        e->var = var;
        e->item.type = k->vars[var].type;
        if (k->vars[var].equation != TOW__INPUT) {
            const tow__equation *made = &k->equations[k->vars[var].equation];
            explain(k, var, &e->item);
            const bool moves = made->primitive->kind == TOW__MOVE && made->n_in > 0;
            const bool stacks = tow__is_region(made) && e->item.kind == TOW_RESIDUAL_OUTPUT;
            bool failed = false;
            if (moves || stacks) e->item.of = origin_of(arena, g, k, var, &failed);
            if (failed) return TOW_OUT_OF_MEMORY;
            continue;
        }
        e->var = k->vars[var].index;
        e->item.kind = TOW_RESIDUAL_ARGUMENT;
        e->item.what = argument_name(arena, g, e->var);
    }
    qsort(entries, n, sizeof *entries, by_order);
    out->items = tow__arena_alloc(arena, n, sizeof *out->items);
    if (!out->items) return TOW_OUT_OF_MEMORY;
    out->count = n;
    for (size_t i = 0; i < n; i++) {
        tow_residual *item = &out->items[i];
        *item = entries[i].item;
        item->bytes = tow_type_bytes(item->type);
        out->bytes += item->bytes;
        if (item->kind == TOW_RESIDUAL_ARGUMENT) out->argument_bytes += item->bytes;
        if (!copy_texts(arena, item)) return TOW_OUT_OF_MEMORY;
    }
    return TOW_OK;
}

/* A function without a backward pass keeps nothing for it: there is an answer where tow_vjp has one. */
static tow_status check_backward(const tow__parts *parts)
{
    tow_graph *backward = NULL;
    tow_status status = tow__backward_graph(parts, &backward);
    tow_graph_release(backward);
    return status;
}

tow_status tow_saved_residuals(const tow_graph *graph, size_t n_wrt, const size_t *wrt, tow_residuals *residuals)
{
    if (residuals) *residuals = (tow_residuals){0};
    if (!graph || !residuals)
        return tow__missing(tow__context_of(graph), "saved_residuals", "a graph and a place for its residuals");
    TOW__ARITHMETIC(false);
    tow__parts parts = {0};
    tow_status status = TOW_OK;
    tow__arena *arena = tow__alloc(graph->ctx, 1, sizeof *arena);
    if (!arena) return TOW_OUT_OF_MEMORY;
    tow__arena_init(arena, graph->ctx);
    residuals->memory = arena;
    tow__policy_log log = {.arena = arena};
    TRY(tow__differentiate(graph, "saved_residuals", n_wrt, wrt, (tow__manner){.runs_once = true, .log = &log},
                           &parts));
    TRY(check_backward(&parts));
    TRY(collect(&parts, arena, residuals));
    status = tow__policy_notes(&log, &residuals->n_notes, &residuals->notes);
done:
    tow__parts_free(&parts);
    if (status != TOW_OK) tow_residuals_free(residuals);
    return status;
}

void tow_residuals_free(tow_residuals *residuals)
{
    if (!residuals || !residuals->memory) return;
    tow__arena_drop(residuals->memory);
    *residuals = (tow_residuals){0};
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

typedef struct sink {
    char *text;
    size_t size, length;
} sink;

__attribute__((format(printf, 2, 3))) static void put(sink *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t left = s->length < s->size ? s->size - s->length : 0;
    int n = vsnprintf(left ? s->text + s->length : NULL, left, format, args);
    va_end(args);
    if (n > 0) s->length += (size_t)n;
}

/* Names may be any text; a residual is one line. */
static void put_escaped(sink *s, const char *text)
{
    for (; *text; text++) put(s, "%s", tow__escape(*text).text);
}

static void put_residual(sink *s, const tow_residual *r)
{
    static const char *const origins[] = {[TOW_RESIDUAL_ARGUMENT] = "from the argument ",
                                          [TOW_RESIDUAL_CONSTANT] = "from a constant",
                                          [TOW_RESIDUAL_NAMED] = "named '",
                                          [TOW_RESIDUAL_OUTPUT] = "output of "};
    put(s, "%s %s", tow__type_name(r->type).text, origins[r->kind]);
    if (r->kind != TOW_RESIDUAL_CONSTANT) put_escaped(s, r->what);
    if (r->kind == TOW_RESIDUAL_NAMED) put(s, "'");
    if (r->of) {
        put(s, " of ");
        put_escaped(s, r->of);
    }
    if (r->here) put(s, " from %s", r->here);
    if (r->scope) {
        put(s, " (");
        put_escaped(s, r->scope);
        put(s, ")");
    }
    put(s, "  %zu bytes\n", r->bytes);
}

size_t tow_residuals_text(const tow_residuals *residuals, char *text, size_t size)
{
    sink s = {.text = text, .size = size};
    if (size) text[0] = 0;
    for (size_t i = 0; i < residuals->count; i++) put_residual(&s, &residuals->items[i]);
    for (size_t i = 0; i < residuals->n_notes; i++) put(&s, "%s\n", residuals->notes[i]);
    put(&s, "%zu residuals, %zu bytes, of which %zu in arguments\n", residuals->count, residuals->bytes,
        residuals->argument_bytes);
    return s.length;
}

/* ---- forward and backward side by side --------------------------------------------------------------------------- */

static tow_status text_of(const tow_graph *g, char **text, size_t *size)
{
    const size_t length = tow_graph_text(g, NULL, 0); /* 0: out of memory, as no graph's text is empty */
    *size = length + 1;
    *text = tow__alloc(g->ctx, *size, 1);
    return *text && length > 0 && tow_graph_text(g, *text, *size) == length ? TOW_OK : TOW_OUT_OF_MEMORY;
}

static size_t line_length(const char *text) { return strcspn(text, "\n"); }

tow_status tow_print_forward_backward(const tow_graph *graph, size_t n_wrt, const size_t *wrt, FILE *file)
{
    tow_graph *forward = NULL, *backward = NULL;
    char *left = NULL, *right = NULL, *report = NULL;
    size_t left_size = 0, right_size = 0, report_size = 0, width = 0;
    tow_residuals residuals = {0};
    tow_status status = TOW_OK;
    if (!graph || !file)
        return tow__missing(tow__context_of(graph), "print_forward_backward", "a graph and a file to print into");
    TRY(tow_vjp(graph, n_wrt, wrt, &forward, &backward));
    TRY(tow_saved_residuals(graph, n_wrt, wrt, &residuals));
    TRY(text_of(forward, &left, &left_size));
    TRY(text_of(backward, &right, &right_size));
    report_size = tow_residuals_text(&residuals, NULL, 0) + 1;
    TRY((report = tow__alloc(graph->ctx, report_size, 1)) ? TOW_OK : TOW_OUT_OF_MEMORY);
    if (tow_residuals_text(&residuals, report, report_size) + 1 != report_size) TRY(TOW_OUT_OF_MEMORY);
    for (const char *l = left; *l; l += line_length(l) + (l[line_length(l)] == '\n'))
        if (line_length(l) > width) width = line_length(l);
    fprintf(file, "%-*s | %s\n", (int)width, "forward", "backward");
    for (const char *l = left, *r = right; *l || *r;) {
        size_t nl = line_length(l), nr = line_length(r);
        fprintf(file, "%.*s%*s | %.*s\n", (int)nl, l, (int)(width - nl), "", (int)nr, r);
        l += nl + (l[nl] == '\n');
        r += nr + (r[nr] == '\n');
    }
    fprintf(file, "kept between them:\n%s", report);
    if (ferror(file)) status = tow__fail(graph->ctx, TOW_IO_ERROR, "print_forward_backward: writing failed");
done:
    tow__free(graph->ctx, left, left_size, 1);
    tow__free(graph->ctx, right, right_size, 1);
    tow__free(graph->ctx, report, report_size, 1);
    tow_residuals_free(&residuals);
    tow_graph_release(forward);
    tow_graph_release(backward);
    return status;
}
