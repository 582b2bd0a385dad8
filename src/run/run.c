/* Runs a program: a loop over prepared calls. Nothing is allocated or looked up. */
#include "src/base/arithmetic.h"
#include "src/run/program.h"
#include "src/run/record.h"

static void run_loop(tow__executable *x, tow__executable_loop *loop);

static inline void move_base(const tow__executable *x, uint32_t base, char *address)
{
    const tow__base *b = &x->bases[base];
    for (uint32_t i = b->begin; i < b->end; i++) *x->relocations[i].where = address + x->relocations[i].offset;
}

static int64_t row_of(const tow__executable_loop *loop, int64_t i) { return loop->reverse ? loop->length - 1 - i : i; }

/* ---- carries ----------------------------------------------------------------------------------------------------- */

/* Row of the ys that stack the carry as it enters. */
static char *entering_row(const tow__executable_loop *loop, const tow__executable_carry *c, int64_t i)
{
    const tow__executable_rows *ys = &loop->ys[c->rows];
    return ys->data + row_of(loop, i) * ys->stride;
}

/* The buffer that receives the new value in iteration i. i = -1 selects the buffer that receives the copied initial
 * value. */
static char *carry_buffer(const tow__executable_loop *loop, const tow__executable_carry *c, int64_t i)
{
    const int64_t left = loop->length - 1 - i;
    switch (c->storage) {
    case TOW__CARRY_IN_PLACE:
        return c->result;
    case TOW__CARRY_ALTERNATES:
        if (loop->stops || c->ahead) return c->spare && i % 2 == 0 ? c->spare : c->result;
        return left % 2 ? c->spare : c->result;
    case TOW__CARRY_IN_ROWS:
        return left > 0 ? entering_row(loop, c, i + 1) : c->result;
    case TOW__CARRY_IN_ALL_ROWS:
        return entering_row(loop, c, i + 1);
    }
    return NULL;
}

static void copy_initial_value(const tow__executable *x, const tow__executable_loop *loop, tow__executable_carry *c)
{
    c->copy_out.data = carry_buffer(loop, c, -1);
    tow__kernel_call call = {.n_in = 1, .n_out = 1, .in = &c->copy_in, .out = &c->copy_out, .team = x->team};
    x->copy->run(&call);
}

/* The place of the carry as it enters iteration i. */
static inline char *entering_value(const tow__executable_loop *loop, const tow__executable_carry *c, int64_t i)
{
    return i == 0 && !c->copies ? c->init : carry_buffer(loop, c, i - 1);
}

static inline void move_carry(const tow__executable *x, const tow__executable_loop *loop,
                              const tow__executable_carry *c, int64_t i, int64_t block, uint32_t thread)
{
    if (i >= 2 && c->storage == TOW__CARRY_IN_PLACE) return; /* nothing moves any more */
    move_base(x, c->in + thread, entering_value(loop, c, i) + block * c->part);
    move_base(x, c->out + thread, carry_buffer(loop, c, i) + block * c->part);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

#ifdef NDEBUG
static inline void poison_freed(const tow__code *code, uint32_t i) { (void)code, (void)i; }
#else
/* Freed ranges become NaN, so that a wrong lifetime shows in the results. */
static void poison_freed(const tow__code *code, uint32_t i)
{
    for (uint32_t k = code->freed_begin[i]; k < code->freed_begin[i + 1]; k++)
        memset(code->arena + code->freed[k].offset, 0xFF, code->freed[k].bytes);
}
#endif

/* Runs call i of a list; call->loop must be NULL if the thread is one of several. block: of rows, or the iteration, for
 * recordings; -1: none. */
static inline void run_call(tow__executable *x, const tow__code *code, uint32_t i, int64_t block, int thread)
{
    const tow__call *call = &code->calls[i];
    const double start = x->recording ? tow__record_now() : 0;
    if (x->counting) code->calls[i].runs++;
    if (call->loop)
        run_loop(x, call->loop);
    else
        call->kernel->run(&call->arguments);
    if (x->recording) tow__record(x->recording, thread, call->origin, block, start);
    poison_freed(code, i);
}

/* Between instructions of the thread of the caller, sums over processes move on. */
static void move_collectives(tow__executable *x)
{
    if (x->collectives.n_groups == 0) return;
    const tow_status status = tow__collectives_progress(&x->collectives);
    if (status != TOW_OK && x->failure == TOW_OK) x->failure = status;
}

/* A host function may end the run; it runs on the thread of the caller, and no other one is at work then. */
static void run_code(tow__executable *x, const tow__code *code, int64_t block, int thread)
{
    for (uint32_t i = 0; i < code->n && x->failure == TOW_OK; i++) {
        run_call(x, code, i, block, thread);
        if (block < 0) move_collectives(x);
    }
}

/* Iteration i of a loop whose calls may work for other iterations; i = length: those for the last one that have not run
 * yet. */
static void run_shifted(tow__executable *x, const tow__code *code, int64_t i, int64_t length)
{
    for (uint32_t k = 0; k < code->n && x->failure == TOW_OK; k++) {
        const int64_t meant = i + code->calls[k].shift;
        if (meant < 0 || meant >= length) continue;
        run_call(x, code, k, -1, 0);
        move_collectives(x);
    }
}

/* ---- loops ------------------------------------------------------------------------------------------------------- */

/* Rows and carries for iteration i; of a block of rows, for the code of a thread. */
static inline void begin_iteration(const tow__executable *x, const tow__executable_loop *loop, int64_t i, int64_t block,
                                   uint32_t thread)
{
    const int64_t row = row_of(loop, i);
    for (uint32_t j = 0; j < loop->n_xs; j++) {
        const tow__executable_rows *r = &loop->xs[j];
        move_base(x, r->base + thread, r->data + row * r->stride + block * r->part);
    }
    for (uint32_t j = 0; j < loop->n_ys; j++) {
        const tow__executable_rows *r = &loop->ys[j];
        if (r->base != TOW__NONE) move_base(x, r->base + thread, r->data + row * r->stride + block * r->part);
    }
    for (uint32_t j = 0; j < loop->n_carry; j++) move_carry(x, loop, &loop->carry[j], i, block, thread);
}

/* Shared by the threads of a parallel loop. */
typedef struct parallel_run {
    tow__executable *x;
    const tow__executable_loop *loop;
} parallel_run;

/* An iteration that depends on no other. */
static void run_iteration(void *user, int64_t iteration, int thread)
{
    const parallel_run *r = user;
    begin_iteration(r->x, r->loop, iteration, 0, (uint32_t)thread);
    run_code(r->x, &r->loop->codes[thread], iteration, thread);
}

/* A block of rows, through all iterations. */
static void run_rows(void *user, int64_t block, int thread)
{
    const parallel_run *r = user;
    for (int64_t i = 0; i < r->loop->length && !tow__cancelled(); i++) {
        begin_iteration(r->x, r->loop, i, block, (uint32_t)thread);
        run_code(r->x, &r->loop->codes[thread], block, thread);
    }
}

static bool goes_on(const tow__executable_loop *loop, int64_t i)
{
    const char *flag = loop->flag ? loop->flag : entering_value(loop, &loop->carry[0], i);
    return i < loop->length && *flag;
}

/* Nobody knows which iteration is the last one: a carry whose last value is elsewhere is copied into its result. */
static void run_until_it_stops(tow__executable *x, tow__executable_loop *loop)
{
    int64_t i = 0;
    for (; x->failure == TOW_OK && !tow__cancelled() && goes_on(loop, i); i++) {
        begin_iteration(x, loop, i, 0, 0);
        run_code(x, &loop->codes[0], -1, 0);
    }
    for (uint32_t j = 0; j < loop->n_carry; j++) {
        tow__executable_carry *c = &loop->carry[j];
        tow__buffer last = c->copy_out;
        last.data = entering_value(loop, c, i);
        c->copy_out.data = c->result;
        tow__kernel_call call = {.n_in = 1, .n_out = 1, .in = &last, .out = &c->copy_out, .team = x->team};
        if (last.data != c->result) x->copy->run(&call);
    }
}

static void run_loop(tow__executable *x, tow__executable_loop *loop)
{
    parallel_run parallel = {x, loop};
    if (tow__is_parallel(loop->schedule)) {
        int64_t apart = loop->length - loop->shared;
        tow__team_run_indexed(x->team, apart, run_iteration, &parallel);
        for (int64_t i = apart; i < loop->length; i++) {
            begin_iteration(x, loop, i, 0, 0);
            run_code(x, &loop->together, -1, 0);
        }
        return;
    }
    for (uint32_t j = 0; j < loop->n_carry; j++)
        if (loop->carry[j].copies) copy_initial_value(x, loop, &loop->carry[j]);
    if (loop->schedule == TOW__PARALLEL_ROWS) {
        tow__team_run_indexed(x->team, loop->blocks, run_rows, &parallel);
        return;
    }
    if (loop->stops) {
        run_until_it_stops(x, loop);
        return;
    }
    for (int64_t i = 0; i < loop->length + loop->drains && x->failure == TOW_OK && !tow__cancelled(); i++) {
        *loop->row = row_of(loop, i);
        begin_iteration(x, loop, i, 0, 0);
        if (loop->shifts)
            run_shifted(x, &loop->codes[0], i, loop->length);
        else
            run_code(x, &loop->codes[0], -1, 0);
    }
    if (loop->settles && x->failure == TOW_OK) x->failure = tow__collectives_settle(&x->collectives);
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

/* Kernels choose engines for the code and for the loops in it. */
static void tune_code(const tow__code *code)
{
    for (uint32_t i = 0; i < code->n; i++) {
        const tow__call *call = &code->calls[i];
        if (call->loop != NULL) {
            for (uint32_t j = 0; j < call->loop->n_codes; j++) tune_code(&call->loop->codes[j]);
            tune_code(&call->loop->together);
        } else if (call->kernel->tune != NULL) {
            call->kernel->tune(&call->arguments, (void *)(uintptr_t)call->arguments.state);
        }
    }
}

/* Calls of the program itself. From first_lasting on nothing can cancel them. */
static void run_calls(tow__executable *x)
{
    for (uint32_t i = 0; i < x->code.n && x->failure == TOW_OK && !tow__cancelled(); i++) {
        if (i == x->first_lasting) tow__cancellation_shield();
        run_call(x, &x->code, i, -1, 0);
        move_collectives(x);
    }
}

static tow_status run_all(tow__executable *x)
{
    TOW__ARITHMETIC(x->flush_subnormals);
    const bool shielded = tow__cancellation_shielded(); /* within a run that goes to its end */
    x->failure = TOW_OK;
    tow__cancellation_begin(&x->cancellation, shielded ? NULL : x->ctx);
    tow__spill_reset(&x->spill);
    tow__cancellation *before = shielded ? tow__cancellation_now() : tow__cancellation_enter(&x->cancellation);
    run_calls(x);
    tow__spill_settle(&x->spill);
    (void)tow__collectives_settle(&x->collectives); /* after a failure: their memory is that of the program */
    tow__cancellation_enter(before);
    const int reason = atomic_load_explicit(&x->cancellation.seen, memory_order_relaxed);
    if (x->failure != TOW_OK || reason == TOW__GOES_ON) return x->failure;
    return tow__fail_cancelled(x->ctx, (tow__cancel_reason)reason, "the program", "its outputs hold anything");
}

static tow_status check_array(const tow__executable *x, const char *what, size_t index, const tow__argument *expected,
                              const tow_array *array)
{
    const char *name = expected->name;
    if (expected->absent) return TOW_OK;
    if (!array)
        return tow__fail(x->ctx, TOW_INVALID_ARGUMENT,
                         "%s %zu%s%s: expected an array of type %s, found NULL; pass an array", what, index,
                         name ? " " : "", name ? name : "", tow__type_name(expected->type).text);
    if (tow_type_equal(tow_array_type(array), expected->type)) return TOW_OK;
    return tow__fail(x->ctx, TOW_TYPE_MISMATCH, "%s %zu%s%s: expected %s, found %s; pass an array of the expected type",
                     what, index, name ? " " : "", name ? name : "", tow__type_name(expected->type).text,
                     tow__type_name(tow_array_type(array)).text);
}

/* The arena is where the shared one is now. */
static tow_status enter_arena(tow__executable *x)
{
    if (!x->shared_arena) return TOW_OK;
    if (!tow__shared_arena_enter(x->shared_arena))
        return tow__fail(
            x->ctx, TOW_INVALID_ARGUMENT,
            "tow_program_run: expected that no other program of its shared arena runs, found one that does; "
            "give programs that run within others a shared arena of their own");
    if (x->arena == x->shared_arena->memory) return TOW_OK;
    x->arena = x->shared_arena->memory;
    move_base(x, x->arena_base, x->arena);
    return TOW_OK;
}

static void *port_data(tow_array *const *arrays, const tow__port *port)
{
    return (char *)tow_array_data(arrays[port->array]) + port->offset;
}

tow_status tow__execute(tow__executable *x, tow_array *const *inputs, tow_array *const *outputs)
{
    tow_status status = TOW_OK;
    if (!x->arena)
        return tow__fail(x->ctx, TOW_INVALID_ARGUMENT,
                         "tow_program_run: the program was compiled with .plan_only and has no memory; compile it "
                         "without");
    if ((!inputs && x->n_inputs) || (!outputs && x->n_outputs))
        return tow__fail(x->ctx, TOW_INVALID_ARGUMENT, "tow_program_run: expected %u inputs and %u outputs, found NULL",
                         x->n_inputs, x->n_outputs);
    for (uint32_t i = 0; i < x->n_inputs; i++) TRY(check_array(x, "input", i, &x->inputs[i], inputs[i]));
    for (uint32_t i = 0; i < x->n_outputs; i++) TRY(check_array(x, "output", i, &x->outputs[i], outputs[i]));
    TRY(enter_arena(x));
    for (uint32_t i = 0; i < x->n_ports_in; i++) move_base(x, i, port_data(inputs, &x->ports[i]));
    for (uint32_t i = x->n_ports_in; i < x->n_ports_in + x->n_ports_out; i++)
        if (!x->outputs[x->ports[i].array].absent) move_base(x, i, port_data(outputs, &x->ports[i]));
#ifndef NDEBUG
    memset(x->arena, 0xFF, x->arena_size);
#endif
    if (!x->tuned) tune_code(&x->code);
    x->tuned = true;
    if (x->recording) tow__recording_reset(x->recording);
    status = run_all(x);
    if (x->shared_arena) tow__shared_arena_leave(x->shared_arena);
done:
    return status;
}
