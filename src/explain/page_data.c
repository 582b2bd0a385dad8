/* The data of the page about a plan (page.c), as JSON: functions, the program and the bodies of its loops, with their
 * instructions and with the blocks of their arenas.
 *
 *   function  {name, length, bytes, instructions: [...], blocks: [...], outer, at}
 *   block     {id, offset, bytes, first, last, kind, values: [...], function}
 *   value     {made, type, from, to, here, scope, line, rule, verdict, policy, readers: [...], residual}
 *
 * Seconds are picoseconds, whole numbers, so that no locale has a say. */
#include <inttypes.h>

#include "src/explain/explain.h"
#include "src/graph/policy.h"
#include "src/io/json.h"
#include "src/plan/analysis/cost.h"
#include "src/plan/report/report.h"
#include "src/plan/report/timeline.h"

typedef struct writer {
    tow__string *s;
    const tow_program *p;
    const tow__plan_value *values;
    tow__arena *scratch;
    const tow__body **functions; /* in the order in which they are written */
    uint32_t n_functions, capacity;
    const tow__page_residuals *residuals; /* or NULL */
} writer;

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

static void add_text(tow__string *s, const char *name, const char *text)
{
    if (!text) return;
    tow__string_add(s, ", \"%s\": ", name);
    tow__json_add_text(s, text);
}

int64_t tow__picoseconds(double seconds)
{
    const double ps = seconds * 1e12;
    return ps > -9e18 && ps < 9e18 ? (int64_t)(ps + (ps < 0 ? -0.5 : 0.5)) : ps < 0 ? INT64_MIN : INT64_MAX;
}

static void add_source(tow__string *s, const tow__source *source)
{
    if (!source) return;
    add_text(s, "here", source->here);
    add_text(s, "scope", source->scope);
    if (source->why.line) tow__string_add(s, ", \"line\": %u", source->why.line);
    if (source->why.rule) add_text(s, "rule", source->why.rule->name);
    if (source->phase == TOW__RECOMPUTED) tow__string_add(s, ", \"again\": true");
}

/* The number of a body among the functions of the page; it is written later. */
static uint32_t function_of(writer *w, const tow__body *body)
{
    const tow__body **grown =
        tow__extend(w->scratch, (void *)w->functions, w->n_functions, &w->capacity, sizeof *grown);
    w->s->failed |= !grown;
    if (!grown) return 0;
    w->functions = grown;
    w->functions[w->n_functions] = body;
    return w->n_functions++;
}

/* ---- instructions ------------------------------------------------------------------------------------------------ */

static const char *engine_name(const tow__body *body, const tow__instruction *inst)
{
    return !inst->loop ? tow__engine_of(body, inst) : tow__by_blocks(inst->loop) ? "tiles" : "loop";
}

static void add_operation(writer *w, const tow__instruction *inst)
{
    tow__string text;
    tow__string_init(&text, w->p->ctx);
    tow__string_add_operation(&text, inst);
    w->s->failed |= text.failed;
    tow__json_add_text(w->s, text.text ? text.text : "");
    tow__string_free(&text);
}

static void add_instruction(writer *w, const tow__body *body, uint32_t i)
{
    const tow__instruction *inst = &body->insts[i];
    tow__machine m = w->p->machine;
    if (body->copies) m.threads = 1;
    tow__string_add(w->s, "%s{\"text\": ", i ? ",\n" : "");
    add_operation(w, inst);
    add_text(w->s, "engine", engine_name(body, inst));
    if (inst->n_out) {
        tow__string_add(w->s, ", \"result\": \"");
        tow__string_add_type(w->s, inst->out[0].type);
        tow__string_add(w->s, "\"");
    }
    tow__string_add(w->s, ", \"backward\": %s, \"ps\": %" PRId64, inst->backward ? "true" : "false",
                    tow__picoseconds(tow__instruction_seconds(&m, inst)));
    add_source(w->s, inst->source);
    if (inst->loop)
        tow__string_add(w->s, ", \"function\": %u, \"iterations\": %" PRId64, function_of(w, inst->loop->body),
                        inst->loop->length);
    tow__string_add(w->s, "}");
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static bool reads(const writer *w, const tow__loop *loop, const tow__instruction *inst, uint32_t storage)
{
    for (uint32_t j = 0; j < inst->n_in; j++)
        if ((loop ? tow__outer_storage(w->p, loop, &inst->in[j]) : inst->in[j].storage) == storage) return true;
    return false;
}

static void add_reader(writer *w, const tow__instruction *inst, uint32_t at, bool *first)
{
    tow__string_add(w->s, "%s{\"at\": %u, \"text\": ", *first ? "" : ", ", at);
    *first = false;
    add_operation(w, inst);
    add_source(w->s, inst->source);
    tow__string_add(w->s, "}");
}

/* The instructions that read a value; of a loop those of its body. */
static void add_readers(writer *w, const tow__body *body, uint32_t storage)
{
    bool first = true;
    tow__string_add(w->s, ", \"readers\": [");
    for (uint32_t i = w->values[storage].from + 1; i <= w->values[storage].to && i < body->n_insts; i++) {
        const tow__instruction *inst = &body->insts[i];
        const tow__loop *loop = inst->loop;
        if (!reads(w, NULL, inst, storage)) continue;
        bool inside = false;
        for (uint32_t k = 0; loop && k < loop->body->n_insts; k++) {
            if (!reads(w, loop, &loop->body->insts[k], storage)) continue;
            add_reader(w, &loop->body->insts[k], i, &first);
            inside = true;
        }
        if (!inside) add_reader(w, inst, i, &first);
    }
    tow__string_add(w->s, "]");
}

static void add_verdict(writer *w, const tow__reason *why)
{
    if (!why->verdict) return;
    add_text(w->s, "verdict", tow__verdict_text((tow_verdict)(why->verdict - 1)));
    add_text(w->s, "policy", why->policy);
}

static void add_value(writer *w, const tow__body *body, uint32_t storage, bool first)
{
    const tow__plan_value *v = &w->values[storage];
    const tow__storage *x = &w->p->storages[storage];
    tow__string_add(w->s, "%s{\"made\": ", first ? "" : ",\n   ");
    tow__json_add_text(w->s, x->made ? x->made->name : "");
    tow__string_add(w->s, ", \"type\": \"");
    tow__string_add_type(w->s, tow_type_bytes(x->type) == x->bytes ? x->type : v->type);
    tow__string_add(w->s, "\", \"from\": %u, \"to\": %u", v->from, v->to);
    if (tow__is_residual(v)) tow__string_add(w->s, ", \"kept\": true");
    if (x->source) add_verdict(w, &x->source->why);
    add_source(w->s, x->source);
    for (size_t i = 0; w->residuals && i < w->residuals->n; i++)
        if (w->residuals->storage[i] == storage) tow__string_add(w->s, ", \"residual\": %zu", i);
    add_readers(w, body, storage);
    tow__string_add(w->s, "}");
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* The loop whose body has its arena in the block, or NULL; *scratch: only one instruction uses it. */
static const tow__loop *loop_of(const tow__body *body, uint32_t s, bool *scratch)
{
    for (uint32_t i = 0; i < body->n_insts; i++) {
        const tow__instruction *inst = &body->insts[i];
        *scratch = inst->scratch == s;
        if (inst->loop && (inst->loop->body->block == s || *scratch)) return inst->loop;
        if (*scratch) return NULL;
    }
    return NULL;
}

static const char *kind_of(const writer *w, const tow__body *body, uint32_t s, bool scratch)
{
    bool residual = false, backward = true;
    for (uint32_t t = tow__first_storage(body); t != TOW__NONE; t = w->p->storages[t].next) {
        if (tow__representative(w->p, t) != s || w->values[t].from == TOW__NONE) continue;
        residual |= tow__is_residual(&w->values[t]);
        backward &= w->values[t].backward;
    }
    return scratch ? "workspace" : residual ? "residual" : backward ? "backward" : "forward";
}

static void add_block(writer *w, const tow__body *body, uint32_t s, bool first)
{
    const tow__storage *x = &w->p->storages[s];
    bool scratch = false, any = false;
    const tow__loop *loop = loop_of(body, s, &scratch);
    tow__string_add(w->s, "%s{\"id\": %u, \"offset\": %zu, \"bytes\": %zu, \"first\": %u, \"last\": %u, \"kind\": ",
                    first ? "" : ",\n  ", s, body->arena_offset + x->offset, x->bytes, x->first, x->last);
    tow__json_add_text(w->s, loop ? "loop" : kind_of(w, body, s, scratch));
    for (uint32_t i = 0; loop && i < w->n_functions; i++)
        if (w->functions[i] == loop->body) tow__string_add(w->s, ", \"function\": %u", i);
    tow__string_add(w->s, ", \"values\": [");
    for (uint32_t t = tow__first_storage(body); t != TOW__NONE && !loop; t = w->p->storages[t].next) {
        if (tow__representative(w->p, t) != s || w->values[t].from == TOW__NONE) continue;
        add_value(w, body, t, !any);
        any = true;
    }
    tow__string_add(w->s, "]}");
}

static void add_function(writer *w, uint32_t number)
{
    const tow__body *body = w->functions[number];
    const tow__loop *loop = body->loop;
    bool any = false;
    tow__string_add(w->s, "%s{\"bytes\": %zu, \"need\": %zu, \"offset\": %zu", number ? ",\n" : "", body->bytes,
                    body->need, body->arena_offset);
    if (loop) {
        tow__string_add(w->s, ", \"iterations\": %" PRId64 ", \"copies\": %u", loop->length, body->copies);
        add_text(w->s, "schedule", tow__by_blocks(loop) ? "blocks of rows" : "iterations");
    }
    tow__string_add(w->s, ", \"instructions\": [");
    for (uint32_t i = 0; i < body->n_insts; i++) add_instruction(w, body, i);
    tow__string_add(w->s, "],\n \"blocks\": [");
    for (uint32_t s = tow__first_storage(body); s != TOW__NONE; s = w->p->storages[s].next) {
        if (!tow__in_arena(w->p, s)) continue;
        add_block(w, body, s, !any);
        any = true;
    }
    tow__string_add(w->s, "]}");
}

/* ---- residuals --------------------------------------------------------------------------------------------------- */

static void add_flag(tow__string *s, const char *name, bool flag)
{
    if (flag) tow__string_add(s, ", \"%s\": true", name);
}

static void add_place(tow__string *s, const char *here, const char *scope, uint32_t line, const char *rule)
{
    add_text(s, "here", here);
    add_text(s, "scope", scope);
    add_text(s, "rule", rule);
    if (line) tow__string_add(s, ", \"line\": %u", line);
}

/* again: it is made again, and not kept. */
static void add_residual(tow__string *s, const tow_residual *r, bool again, bool first)
{
    static const char *const kinds[] = {[TOW_RESIDUAL_ARGUMENT] = "argument",
                                        [TOW_RESIDUAL_CONSTANT] = "constant",
                                        [TOW_RESIDUAL_NAMED] = "named",
                                        [TOW_RESIDUAL_OUTPUT] = "output"};
    tow__string_add(s, "%s{\"kind\": \"%s\", \"type\": \"", first ? "" : ",\n", kinds[r->kind]);
    tow__string_add_type(s, r->type);
    tow__string_add(s, "\", \"bytes\": %zu, \"iterations\": %" PRId64 ", \"ps\": %" PRId64, r->bytes, r->iterations,
                    tow__picoseconds(r->seconds));
    add_text(s, "what", r->what);
    add_text(s, "of", r->of);
    add_place(s, r->here, r->scope, r->line, r->rule);
    if (r->policy || r->verdict == TOW_MUST_SAVE) add_text(s, "verdict", tow__verdict_text(r->verdict));
    add_text(s, "policy", r->policy);
    add_flag(s, "stored", r->plan.stored);
    add_flag(s, "outside", !again && r->policy && r->verdict < TOW_PREFER_SAVE);
    add_text(s, "held", r->plan.held);
    if (r->plan.tried)
        tow__string_add(s, ", \"tried\": true, \"bytes_more\": %" PRId64 ", \"ps_more\": %" PRId64, r->plan.bytes_more,
                        tow__picoseconds(r->plan.seconds_more));
    add_text(s, "instead", r->plan.instead);
    tow__string_add(s, ", \"readers\": [");
    for (size_t i = 0; i < r->n_readers; i++) {
        const tow_residual_reader *reader = &r->readers[i];
        tow__string_add(s, "%s{\"text\": ", i ? ", " : "");
        tow__json_add_text(s, reader->what);
        add_place(s, reader->here, reader->scope, reader->line, reader->rule);
        add_flag(s, "again", reader->again);
        tow__string_add(s, "}");
    }
    tow__string_add(s, "]}");
}

static void add_residuals(tow__string *s, const char *name, const tow_residual *items, size_t n, bool again)
{
    tow__string_add(s, ",\n\"%s\": [", name);
    for (size_t i = 0; i < n; i++) add_residual(s, &items[i], again, i == 0);
    tow__string_add(s, "]");
}

tow_status tow__add_page_plan(tow__string *s, const tow_program *p, const tow__page_residuals *residuals)
{
    tow__arena scratch;
    tow__arena_init(&scratch, p->ctx);
    writer w = {.s = s, .p = p, .scratch = &scratch, .residuals = residuals};
    w.values = tow__list_values(p, &scratch);
    s->failed |= !w.values;
    const tow_program_bytes *b = &p->bytes;
    tow__string_add(s,
                    "{\"limit\": %zu, \"inputs\": %zu, \"outputs\": %zu, \"constants\": %zu, \"arena\": %zu, "
                    "\"least\": %zu, \"kept\": %zu, \"file\": %zu, \"ps\": %" PRId64 ",\n\"functions\": [",
                    p->memory_limit == SIZE_MAX ? 0 : p->memory_limit, b->inputs, b->outputs, b->constants, b->arena,
                    b->lower_bound, b->residuals, b->file, tow__picoseconds(tow__body_seconds(&p->machine, p->top)));
    if (w.values) function_of(&w, p->top);
    for (uint32_t i = 0; i < w.n_functions && !s->failed; i++) add_function(&w, i);
    tow__string_add(s, "]");
    if (residuals) add_residuals(s, "residuals", residuals->list->items, residuals->list->count, false);
    if (residuals) add_residuals(s, "again", residuals->list->again, residuals->list->again_count, true);
    tow__string_add(s, "}");
    tow__arena_free(&scratch);
    return s->failed ? TOW_OUT_OF_MEMORY : TOW_OK;
}
