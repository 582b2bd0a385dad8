/* A plan as text: one line per instruction with engine, operands, results, what is freed, and the bytes alive while it
 * runs; behind products why the engine is theirs.
 *
 *   number  engine     instruction                                                     live      time
 *      0  reference  #3 f32[8,4] @0 = sin(#0 f32[8,4] input 0)                         128  0.071 us  free #3
 *
 * The time is that of the cost model (analysis/cost.h), for one run of the instruction; "0.071 us, took 0.080" where
 * the last run of the program was recorded. */
#include <inttypes.h>

#include "src/base/arithmetic.h"
#include "src/kernels/elementwise/joined.h"
#include "src/ops/collective.h"
#include "src/plan/analysis/cost.h"
#include "src/plan/analysis/view.h"
#include "src/plan/fuse/fuse.h"
#include "src/plan/pass.h"
#include "src/plan/report/report.h"
#include "src/run/record.h"

static const char *kind_name(tow__storage_kind kind)
{
    static const char *const names[] = {
#define X(symbol, text) [symbol] = text,
        TOW__STORAGE_LIST(X)
#undef X
    };
    return names[kind];
}

/* #7 f32[2,3] @640, with +offset and strides where the view is not the whole storage */
static void add_view(tow__string *s, const tow_program *p, const tow__view *x, bool placed)
{
    uint32_t root = tow__representative(p, x->storage);
    const tow__storage *storage = &p->storages[root];
    tow__string_add(s, "#%u ", root);
    tow__string_add_type(s, x->type);
    if (storage->kind == TOW__S_ARENA && placed)
        tow__string_add(s, " @%zu", storage->body->arena_offset + storage->offset);
    else if (storage->kind == TOW__S_ARENA)
        ; /* it has no place yet */
    else if (storage->kind == TOW__S_CONSTANT)
        tow__string_add(s, " %s", kind_name(storage->kind));
    else
        tow__string_add(s, " %s %u", kind_name(storage->kind), storage->index);
    if (x->offset) tow__string_add(s, "+%" PRId64, x->offset);
    if (tow__view_contiguous(x)) return;
    for (int i = 0; i < x->type.rank; i++) tow__string_add(s, "%s%" PRId64, i ? "," : " strides ", x->strides[i]);
}

/* live[i]: bytes alive while instruction i of the plan runs. NULL: out of memory. */
static size_t *live_bytes(tow__arena *scratch, const tow_program *p, const tow__body *body)
{
    size_t *live = tow__arena_alloc(scratch, (size_t)body->n_insts + 1, sizeof *live);
    if (!live) return NULL;
    for (uint32_t s = tow__first_storage(body); s != TOW__NONE; s = p->storages[s].next) {
        const tow__storage *x = &p->storages[s];
        if (tow__in_arena(p, s)) tow__add_alive(live, x->first, x->last, tow__round_up(x->bytes));
    }
    tow__sum_alive(live, body->n_insts);
    return live;
}

/* A text that is being written, and memory for what it takes to write it. */
typedef struct printer {
    tow__string s;
    tow__arena scratch;
    bool placed; /* storages have places, which are printed with lifetimes and what is alive */
} printer;

static void add_plan(printer *out, const tow_program *p, const tow__body *body, int depth);

static const char *const carry_storage_names[] = {
    [TOW__CARRY_IN_PLACE] = "in place",
    [TOW__CARRY_ALTERNATES] = "alternates",
    [TOW__CARRY_IN_ROWS] = "in rows of ys",
    [TOW__CARRY_IN_ALL_ROWS] = "in rows of ys",
};

static void add_loop(printer *out, const tow_program *p, const tow__loop *loop, int depth)
{
    tow__string *s = &out->s;
    if (tow__is_parallel(loop->schedule))
        tow__string_add(s, "%*s       %" PRId64 " blocks", 4 * depth, "", loop->length);
    else if (loop->schedule == TOW__ORDERED_TILES)
        tow__string_add(s, "%*s       %" PRId64 " blocks in order", 4 * depth, "", loop->length);
    else if (loop->stops && loop->length == INT64_MAX)
        tow__string_add(s, "%*s       as long as carry 0 is true", 4 * depth, "");
    else if (loop->stops)
        tow__string_add(s, "%*s       at most %" PRId64 " iteration%s", 4 * depth, "", loop->length,
                        loop->length == 1 ? "" : "s");
    else
        tow__string_add(s, "%*s       length %" PRId64 "%s", 4 * depth, "", loop->length,
                        loop->reverse ? " reverse" : "");
    if (loop->shared) tow__string_add(s, ", the last %" PRId64 " by all threads", loop->shared);
    if (loop->schedule == TOW__PARALLEL_ROWS)
        tow__string_add(s, " for each of %" PRId64 " blocks of rows", loop->blocks);
    if (loop->body->copies)
        tow__string_add(s, ", %zu bytes @%zu for each of %u threads", loop->body->bytes, loop->body->arena_offset,
                        loop->body->copies);
    else
        tow__string_add(s, ", body block %zu bytes @%zu", loop->body->bytes, loop->body->arena_offset);
    for (uint32_t j = 0; j < loop->n_carry; j++) {
        const tow__carry *c = &loop->carry[j];
        tow__string_add(s, ", carry %u %s%s", j, carry_storage_names[c->storage], c->copies ? " from a copy" : "");
    }
    tow__string_add(s, "\n");
    add_plan(out, p, loop->body, depth + 1);
}

/* fused(add, mul, tanh), fused(mul, reduce_sum), dot_general(add) */
static void add_parts(tow__string *s, const tow__instruction *inst)
{
    const tow__fused *program = tow__row_program_of(inst);
    for (uint32_t i = 0; i < program->n_ops; i++) {
        tow__function functions[TOW__JOINED_FUNCTIONS];
        uint32_t n = tow__op_functions(&program->ops[i], functions);
        for (uint32_t j = 0; j < n; j++)
            tow__string_add(s, "%s%s", j ? " + " : i ? ", " : "", tow__function_name(functions[j]));
    }
    const tow__row_reductions *p = inst->extras.reductions;
    for (uint32_t r = 0; p && r < p->n_reductions; r++) tow__string_add(s, ", %s", p->reductions[r].name);
}

void tow__string_add_operation(tow__string *s, const tow__instruction *inst)
{
    tow__string_add(s, "%s", inst->op->name);
    if (!tow__row_program_of(inst)) return;
    tow__string_add(s, "(");
    add_parts(s, inst);
    tow__string_add(s, ")");
}

/* "  own kernel: few rows or columns" */
static void add_reason(tow__string *s, const tow__body *body, const tow__instruction *inst)
{
    char text[TOW__REASON];
    if (tow__reason_of(body, inst, text)) tow__string_add(s, "  %s", text);
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

/* Microseconds with three digits, whatever the locale is. */
static void add_microseconds(tow__string *s, double us)
{
    int decimals = 0;
    int64_t scale = 1;
    while (decimals < 3 && us * (double)scale < 100) scale *= 10, decimals++;
    const int64_t n = us * (double)scale < 9e18 ? (int64_t)(us * (double)scale + 0.5) : INT64_MAX;
    tow__string_add(s, "%" PRId64, n / scale);
    if (decimals > 0) tow__string_add(s, ".%0*" PRId64, decimals, n % scale);
}

/* Microseconds of a call of the instruction in the last run, on average; 0: it was not recorded. */
static double recorded(const tow_program *p, const tow__instruction *inst)
{
    const tow__recording *r = p->executable.recording;
    double sum = 0;
    size_t n = 0;
    for (int i = 0; r && i < r->n_lanes; i++)
        for (size_t k = 0; k < r->lanes[i].n; k++) {
            const tow__event *event = &r->lanes[i].events[k];
            if (event->origin != inst) continue;
            sum += event->end - event->start;
            n++;
        }
    return n > 0 ? sum / (double)n : 0;
}

/* One thread runs the instructions of a body of which each thread has a copy. */
static void add_time(tow__string *s, const tow_program *p, const tow__body *body, const tow__instruction *inst)
{
    tow__machine m = p->machine;
    if (body->copies) m.threads = 1;
    tow__string_add(s, "  ");
    add_microseconds(s, 1e6 * tow__instruction_seconds(&m, inst));
    tow__string_add(s, " us");
    const double took = recorded(p, inst);
    if (took <= 0) return;
    tow__string_add(s, ", took ");
    add_microseconds(s, took);
}

/* "; 12.3 us by the cost model, took 15.1" */
static void add_seconds(tow__string *s, const tow_program *p)
{
    const tow__recording *r = p->executable.recording;
    double end = 0;
    tow__string_add(s, "; ");
    add_microseconds(s, 1e6 * tow__body_seconds(&p->machine, p->top));
    tow__string_add(s, " us by the cost model");
    for (int i = 0; r && i < r->n_lanes; i++)
        for (size_t k = 0; k < r->lanes[i].n; k++)
            if (r->lanes[i].events[k].end - r->start > end) end = r->lanes[i].events[k].end - r->start;
    if (end > 0) tow__string_add(s, ", took ");
    if (end > 0) add_microseconds(s, end);
}

/* ---- instructions ------------------------------------------------------------------------------------------------ */

/* " + #4 f32[8,8] in order": what the result is added to, and in parts. */
static void add_sum(printer *out, const tow_program *p, const tow__instruction *inst)
{
    const tow__addition *sum = inst->extras.accumulation;
    if (sum) {
        tow__string_add(&out->s, " + ");
        add_view(&out->s, p, &inst->in[inst->n_in - 1], out->placed);
        if (sum->in_order) tow__string_add(&out->s, sum->reverse ? " in reverse order" : " in order");
    }
    if (inst->extras.part) tow__string_add(&out->s, " of a block");
}

static void add_inst(printer *out, const tow_program *p, const tow__body *body, uint32_t i, size_t live, int depth)
{
    tow__string *s = &out->s;
    const tow__instruction *inst = &body->insts[i];
    tow__string_add(s, "%*s%5u%s %-10s ", 4 * depth, "", i, inst->backward ? "b" : " ",
                    !inst->loop                  ? tow__engine_of(body, inst)
                    : tow__by_blocks(inst->loop) ? "tiles"
                                                 : "loop");
    for (uint32_t j = 0; j < inst->n_out; j++) {
        if (j) tow__string_add(s, ", ");
        add_view(s, p, &inst->out[j], out->placed);
    }
    tow__string_add(s, " = ");
    tow__string_add_operation(s, inst);
    tow__string_add(s, "(");
    const uint32_t n_in = inst->n_in - (inst->extras.accumulation != NULL);
    for (uint32_t j = 0; j < n_in; j++) {
        if (j) tow__string_add(s, ", ");
        add_view(s, p, &inst->in[j], out->placed);
    }
    tow__string_add(s, ")");
    add_sum(out, p, inst);
    if (!out->placed) {
        add_reason(s, body, inst);
        tow__string_add(s, "\n");
        if (inst->loop) add_loop(out, p, inst->loop, depth);
        return;
    }
    if (!inst->loop && inst->scratch != TOW__NONE) {
        const tow__storage *scratch = &p->storages[inst->scratch];
        tow__string_add(s, " scratch %zu @%zu", scratch->bytes, scratch->body->arena_offset + scratch->offset);
    }
    tow__string_add(s, "  live %zu", live);
    add_time(s, p, body, inst);
    for (uint32_t j = inst->dead_begin; j < inst->dead_end; j++)
        tow__string_add(s, "%s#%u", j > inst->dead_begin ? " " : "  free ", body->dead[j]);
    if (inst->deferred || (inst->shift < 0 && tow__awaits_collective(inst->op)))
        tow__string_add(s, "  ends in the next iteration");
    else if (inst->shift < 0)
        tow__string_add(s, "  for the iteration before");
    if (inst->shift > 0) tow__string_add(s, "  begins an iteration ahead");
    add_reason(s, body, inst);
    tow__string_add(s, "\n");
    if (inst->loop) add_loop(out, p, inst->loop, depth);
}

static void add_plan(printer *out, const tow_program *p, const tow__body *body, int depth)
{
    const size_t *live = out->placed ? live_bytes(&out->scratch, p, body) : NULL;
    out->s.failed |= out->placed && !live;
    for (uint32_t i = 0; i < body->n_insts && !out->s.failed; i++) add_inst(out, p, body, i, live ? live[i] : 0, depth);
}

/* Data decide what runs: bytes are upper bounds, which the largest branches reach. */
static bool stops_anywhere(const tow__body *body)
{
    for (uint32_t i = 0; i < body->n_insts; i++) {
        const tow__loop *loop = body->insts[i].loop;
        if (loop && (loop->stops || stops_anywhere(loop->body))) return true;
    }
    return false;
}

static void add_kept_products(tow__string *s, const tow_program *p)
{
    if (p->choice.products == 0 && !p->choice.all) return;
    tow__string_add(s, "remat would repeat %" PRIu32 " products of the forward pass; %" PRIu32 " are kept",
                    p->n_repeated, p->choice.all ? p->n_repeated : p->choice.products);
    if (p->memory_limit < SIZE_MAX) tow__string_add(s, " within the limit of %zu bytes", p->memory_limit);
    tow__string_add(s, "%s\n", p->choice.all ? ", and so is everything else" : "");
}

size_t tow_program_text(const tow_program *p, char *text, size_t size)
{
    TOW__ARITHMETIC(false);
    printer out = {.placed = true};
    const bool stops = stops_anywhere(p->top);
    tow__string_init(&out.s, p->ctx);
    tow__arena_init(&out.scratch, p->ctx);
    add_plan(&out, p, p->top, 0);
    tow__arena_free(&out.scratch);
    tow__string_add(&out.s,
                    "inputs %zu, outputs %zu, constants %zu, arena %zu (at least %zu), residuals %zu bytes; %s%" PRIu64
                    "%s",
                    p->bytes.inputs, p->bytes.outputs, p->bytes.constants, p->bytes.arena, p->bytes.lower_bound,
                    p->bytes.residuals, stops ? "bytes are upper bounds; " : "", tow_program_operation_count(p, NULL),
                    stops ? " operations if each branch and body runs once" : " operations per run");
    add_seconds(&out.s, p);
    tow__string_add(&out.s, "\n");
    if (p->bytes.file > 0) tow__string_add(&out.s, "states of loops in a file: %zu bytes\n", p->bytes.file);
    add_kept_products(&out.s, p);
    if (p->choice.interleaved)
        tow__string_add(&out.s, "blocks of rows may go through the forward and the backward pass in turn\n");
    if (p->verifies)
        tow__string_add(&out.s, "%" PRIu64 " values that are made again are compared with the kept ones\n",
                        tow_program_operation_count(p, "same_bits"));
    if (p->executable.counting)
        tow__string_add(&out.s,
                        "planned for a run: %" PRIu64 " operations, %.0f flops; counted in runs: %" PRIu64
                        " operations, %.0f flops\n",
                        tow_program_operation_count(p, NULL), tow_program_flops(p, NULL), tow_program_counted(p, NULL),
                        tow_program_counted_flops(p, NULL));
    if (p->limit_note) tow__string_add(&out.s, "%s", p->limit_note);
    if (out.s.failed) out.s.length = 0; /* a part of a plan would mislead; the context has the error */
    size_t length = tow__string_export(&out.s, text, size);
    tow__string_free(&out.s);
    return length;
}

/* ---- functions between passes ------------------------------------------------------------------------------------ */

static void add_values(tow__string *s, const tow__body *f, const uint32_t *values, uint32_t n, bool types)
{
    for (uint32_t i = 0; i < n; i++) {
        tow__string_add(s, "%s%%%u", i ? ", " : "", values[i]);
        if (types) tow__string_add(s, " ");
        if (types) tow__string_add_type(s, f->types[values[i]]);
    }
}

/* %4 f32[8] = mul(%1, %3); in the order in which they stand. */
static void add_insts(tow__string *s, const tow__body *f)
{
    tow__string_add(s, "inputs ");
    add_values(s, f, f->inputs, f->n_inputs, true);
    tow__string_add(s, "\n");
    for (uint32_t i = 0; i < f->n_insts; i++) {
        const tow__instruction *inst = &f->insts[i];
        tow__string_add(s, "%s%s ", inst->backward ? "b" : " ", inst->late ? "late" : "    ");
        add_values(s, f, inst->results, inst->n_out, true);
        tow__string_add(s, " = %s(", inst->op->name);
        add_values(s, f, inst->operands, inst->n_in, false);
        tow__string_add(s, ")\n");
    }
    tow__string_add(s, "outputs ");
    add_values(s, f, f->outputs, f->n_outputs, false);
    tow__string_add(s, "\n");
}

static void add_graph(tow__string *s, const tow_graph *g)
{
    size_t length = tow_graph_text(g, NULL, 0);
    char *text = tow__alloc(g->ctx, length + 1, 1);
    s->failed |= !text;
    if (!text) return;
    tow_graph_text(g, text, length + 1);
    tow__string_add(s, "%s", text);
    tow__free(g->ctx, text, length + 1, 1);
}

static void add_body(tow__string *s, const tow__function_state *f, bool placed)
{
    printer out = {.s = *s, .placed = placed};
    tow__arena_init(&out.scratch, f->p->ctx);
    add_plan(&out, f->p, f->body, 0);
    tow__arena_free(&out.scratch);
    *s = out.s;
}

void tow__string_add_function(tow__string *text, const tow__function_state *f, tow__form form)
{
    if (form == TOW__AS_GRAPH)
        add_graph(text, f->graph);
    else if (form == TOW__AS_VALUES)
        add_insts(text, f->body);
    else
        add_body(text, f, form == TOW__AS_OFFSETS);
}
