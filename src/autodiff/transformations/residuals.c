/* The report of what crosses from forward to backward: which values, why they exist, and their bytes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/autodiff/policy_log.h"
#include "src/autodiff/transformations/residuals.h"
#include "src/base/arithmetic.h"
#include "src/graph/region.h"
#include "src/ops/table.h"

/* A residual while the report is made: its place in the order of the report. */
typedef struct entry {
    uint32_t var;
    tow_residual item;
    tow__residual_key key;
    const tow_graph *inside; /* the graph of the equation that explains it, of the innermost body */
    const tow__equation *maker;
    tow__readers readers;
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

/* The equation that makes the value which e names; e itself if it is no name, or names an input. */
static const tow__equation *behind_names(const tow_graph *g, const tow__equation *e)
{
    while (e->primitive == &tow__name_p && maker_of(g, e->in[0])) e = maker_of(g, e->in[0]);
    return e;
}

/* The equation that explains a value: through regions, a residual is explained by the body's equation if that is a
 * name. Otherwise it is an output of the region, in the scope of that equation. */
static void explain(const tow_graph *g, uint32_t var, entry *result)
{
    tow_residual *item = &result->item;
    const tow__equation *e = &g->equations[g->vars[var].equation];
    const tow_graph *inside = g;
    tow__region_form form;
    item->kind = TOW_RESIDUAL_OUTPUT;
    item->what = e->primitive->name;
    item->here = e->source.here;
    item->scope = e->source.scope;
    item->iterations = 1;
    result->inside = g;
    result->key.row = g->vars[var].type;
    for (uint32_t output; tow__is_region(e);) {
        output = inside->vars[var].index;
        if (!look_inside(e, output, &inside, &var, &form)) break;
        if (form.repeats && output >= form.carry && form.length > 0)
            item->iterations = tow__iterations_in(item->iterations, form.length);
        if (inside->vars[var].equation == TOW__INPUT) break;
        e = &inside->equations[inside->vars[var].equation];
        result->inside = inside;
        result->key.row = inside->vars[var].type;
    }
    result->maker = behind_names(result->inside, e);
    result->key.number = result->maker->source.why.number;
    result->key.made = result->maker->primitive;
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
    item->line = e->source.why.line;
    item->policy = e->source.why.policy;
    item->verdict = e->source.why.verdict ? (tow_verdict)(e->source.why.verdict - 1) : TOW_PREFER_SAVE;
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

/* Collecting: residuals by value of the known graph, with the inputs of the backward pass that they are. */
typedef struct collector {
    const tow__parts *parts;
    const tow_graph *backward;
    const tow__price *price;
    tow__arena *arena;
    entry *entries;
    size_t n;
    tow__operand_lists *operands;
    uint32_t *entry_of; /* [known->n_vars] 1 + the entry of a value */
} collector;

/* The entry of a residual that an equation makes. False: out of memory. */
static bool add_made(collector *c, uint32_t var)
{
    const tow_graph *k = c->parts->split.known;
    const tow__equation *made = &k->equations[k->vars[var].equation];
    entry *e = &c->entries[c->n++];
    bool failed = false;
    *e = (entry){.var = var, .item.type = k->vars[var].type, .readers = {.arena = c->arena, .operands = &c->operands}};
    explain(k, var, e);
    const bool moves = made->primitive->kind == TOW__MOVE && made->n_in > 0;
    const bool stacks = tow__is_region(made) && e->item.kind == TOW_RESIDUAL_OUTPUT;
    if (moves || stacks) e->item.of = origin_of(c->arena, c->parts->g, k, var, &failed);
    if (c->price && !e->maker->primitive->region) /* of a carry, what leads to it is made again */
        e->item.seconds = (double)e->item.iterations * c->price->seconds(c->price, e->inside, e->maker);
    return !failed;
}

static void add_argument(collector *c, uint32_t index)
{
    const tow_graph *g = c->parts->g;
    c->entries[c->n++] = (entry){.var = index,
                                 .item = {.type = g->vars[g->inputs[index]].type,
                                          .kind = TOW_RESIDUAL_ARGUMENT,
                                          .iterations = 1,
                                          .verdict = TOW_PREFER_SAVE,
                                          .what = argument_name(c->arena, g, index)},
                                 .readers = {.arena = c->arena, .operands = &c->operands}};
}

/* Value var of the known graph is input number `input` of the backward pass. */
static bool add_residual(collector *c, uint32_t var, uint32_t input)
{
    const tow_graph *k = c->parts->split.known;
    if (!c->entry_of[var]) {
        if (k->vars[var].equation == TOW__INPUT)
            add_argument(c, k->vars[var].index);
        else if (!add_made(c, var))
            return false;
        c->entry_of[var] = (uint32_t)c->n;
    }
    entry *e = &c->entries[c->entry_of[var] - 1];
    tow__find_readers(&e->readers, c->backward, input);
    return !e->readers.failed;
}

static tow_status collect(collector *c)
{
    const tow__parts *parts = c->parts;
    const tow_graph *g = parts->g, *k = parts->split.known;
    const uint32_t n_res = parts->split.n_residuals;
    uint32_t input = 0;
    c->entries = tow__arena_alloc(c->arena, parts->n_used + n_res, sizeof *c->entries);
    c->entry_of = tow__arena_alloc(c->arena, k->n_vars, sizeof *c->entry_of);
    if (!c->entries || !c->entry_of) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (parts->split.input_used[i] && !add_residual(c, k->inputs[i], input++)) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < n_res; i++)
        if (!add_residual(c, k->outputs[k->n_outputs - n_res + i], input++)) return TOW_OUT_OF_MEMORY;
    return TOW_OK;
}

/* The rule that asks for a value is that of a reader that is not made again, else of one that a rule added, as cos for
 * sin; an operation that was written and is made again reads its operands for its own readers. */
static const char *asking_rule(const tow__readers *readers)
{
    const char *added = NULL;
    for (size_t i = 0; i < readers->n; i++) {
        const tow_residual_reader *r = &readers->items[i];
        if (!r->again && r->rule) return r->rule;
        if (!added && r->rule && strcmp(r->rule, r->what) != 0) added = r->rule;
    }
    return added;
}

static bool copy_text(tow__arena *arena, const char **text)
{
    const char *from = *text;
    *text = tow__arena_string(arena, from);
    return !from || *text;
}

/* Texts of the graphs, which are freed, become those of the list. */
static bool copy_texts(tow__arena *arena, tow_residual *item)
{
    bool fine = copy_text(arena, &item->what) && copy_text(arena, &item->here) && copy_text(arena, &item->scope) &&
                copy_text(arena, &item->rule) && copy_text(arena, &item->policy) && item->what;
    tow_residual_reader *readers = tow__arena_copy(arena, item->readers, item->n_readers, sizeof *readers);
    fine = fine && readers;
    for (size_t i = 0; fine && i < item->n_readers; i++) {
        tow_residual_reader *r = &readers[i];
        fine = copy_text(arena, &r->what) && copy_text(arena, &r->rule) && copy_text(arena, &r->here) &&
               copy_text(arena, &r->scope);
    }
    item->readers = readers;
    return fine;
}

static tow_status write_list(collector *c, tow__residuals_memory *memory, tow_residuals *out)
{
    qsort(c->entries, c->n, sizeof *c->entries, by_order);
    out->items = tow__arena_alloc(c->arena, c->n, sizeof *out->items);
    memory->keys = tow__arena_alloc(c->arena, c->n, sizeof *memory->keys);
    if (!out->items || !memory->keys) return TOW_OUT_OF_MEMORY;
    out->count = c->n;
    for (size_t i = 0; i < c->n; i++) {
        tow_residual *item = &c->entries[i].item;
        item->bytes = tow_type_bytes(item->type);
        item->rule = asking_rule(&c->entries[i].readers);
        item->readers = c->entries[i].readers.items;
        item->n_readers = c->entries[i].readers.n;
        out->bytes += item->bytes;
        if (item->kind == TOW_RESIDUAL_ARGUMENT) out->argument_bytes += item->bytes;
        if (!copy_texts(c->arena, item)) return TOW_OUT_OF_MEMORY;
        out->items[i] = *item;
        memory->keys[i] = c->entries[i].key;
    }
    return TOW_OK;
}

static tow_status write_again(collector *c, tow__residuals_memory *memory, tow_residuals *out)
{
    tow__again_list list = {.arena = c->arena, .operands = &c->operands, .price = c->price};
    if (!tow__find_made_again(&list, c->backward)) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < list.n; i++)
        if (!copy_texts(c->arena, &list.items[i])) return TOW_OUT_OF_MEMORY;
    out->again = list.items;
    out->again_count = list.n;
    memory->again_keys = list.keys;
    return TOW_OK;
}

tow_status tow__list_residuals(const tow_graph *graph, size_t n_wrt, const size_t *wrt, bool first,
                               const tow__price *price, tow_residuals *residuals)
{
    tow__parts parts = {0};
    tow_graph *backward = NULL, *alone = NULL;
    tow__residuals_memory *memory = NULL;
    tow_status status = TOW_OK;
    *residuals = (tow_residuals){0};
    if (first && graph->n_outputs > 1) {
        bool *used = tow__alloc(graph->ctx, graph->n_outputs, sizeof *used);
        if (!used) return TOW_OUT_OF_MEMORY;
        used[0] = true;
        status = tow__dce(graph, used, false, NULL, &alone);
        tow__free(graph->ctx, used, graph->n_outputs, sizeof *used);
        if (status != TOW_OK) return status;
        graph = alone;
    }
    memory = tow__alloc(graph->ctx, 1, sizeof *memory);
    TRY(memory ? TOW_OK : TOW_OUT_OF_MEMORY);
    tow__arena_init(&memory->arena, graph->ctx);
    residuals->memory = memory;
    tow__policy_log log = {.arena = &memory->arena};
    TRY(tow__differentiate(graph, "saved_residuals", n_wrt, wrt, (tow__manner){.runs_once = true, .log = &log},
                           &parts));
    /* A function without a backward pass keeps nothing for it: there is an answer where tow_vjp has one. */
    TRY(tow__backward_graph(&parts, &backward));
    collector c = {.parts = &parts, .backward = backward, .price = price, .arena = &memory->arena};
    TRY(collect(&c));
    TRY(write_list(&c, memory, residuals));
    TRY(write_again(&c, memory, residuals));
    status = tow__policy_notes(&log, &residuals->n_notes, &residuals->notes);
done:
    tow__parts_free(&parts);
    if (status != TOW_OK) tow_residuals_free(residuals);
    tow_graph_release(backward);
    tow_graph_release(alone);
    return status;
}

tow_status tow_saved_residuals(const tow_graph *graph, size_t n_wrt, const size_t *wrt, tow_residuals *residuals)
{
    if (residuals) *residuals = (tow_residuals){0};
    if (!graph || !residuals)
        return tow__missing(tow__context_of(graph), "saved_residuals", "a graph and a place for its residuals");
    TOW__ARITHMETIC(false);
    return tow__list_residuals(graph, n_wrt, wrt, false, NULL, residuals);
}

void tow_residuals_free(tow_residuals *residuals)
{
    if (!residuals || !residuals->memory) return;
    tow__residuals_memory *memory = residuals->memory;
    tow_context *ctx = memory->arena.ctx;
    tow__arena_free(&memory->arena);
    tow__free(ctx, memory, 1, sizeof *memory);
    *residuals = (tow_residuals){0};
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
