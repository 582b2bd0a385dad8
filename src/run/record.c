/* Recording runs, and writing them as trace events: https://ui.perfetto.dev opens the file.
 *
 * All memory is taken when recording is switched on; a run only fills it. */
#include "src/run/record.h"
#include "src/base/arithmetic.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    MOST_EVENTS = 1 << 20 /* per thread; what comes later is counted, not kept */
};

/* Events of one run on one thread, at most. */
static double count_events(const tow__plan *plan, bool first_thread)
{
    double n = first_thread ? plan->n_insts : 0;
    for (uint32_t i = 0; i < plan->n_insts; i++) {
        const tow__loop *loop = plan->insts[i].loop;
        if (!loop) continue;
        bool spread = loop->body->copies > 0; /* its steps run on any thread */
        double blocks = loop->schedule == TOW__PARALLEL_ROWS ? (double)loop->blocks : 1;
        n += (double)loop->length * blocks * (spread ? loop->body->n_insts : count_events(loop->body, first_thread));
    }
    return n;
}

void tow__recording_free(tow__recording *r)
{
    if (!r) return;
    for (int i = 0; r->lanes && i < r->n_lanes; i++)
        tow__free(r->ctx, r->lanes[i].events, r->lanes[i].capacity, sizeof *r->lanes[i].events);
    tow__free(r->ctx, r->lanes, (size_t)r->n_lanes, sizeof *r->lanes);
    tow__free(r->ctx, r, 1, sizeof *r);
}

void tow__recording_reset(tow__recording *r)
{
    for (int i = 0; i < r->n_lanes; i++) r->lanes[i].n = r->lanes[i].dropped = 0;
    r->start = tow__record_now();
}

tow_status tow_program_record(tow_program *p, bool on)
{
    if (!p) return tow__missing(NULL, __func__, "a program");
    TOW__ARITHMETIC(false);
    if (on && p->recording) return TOW_OK;
    if (!on) {
        tow__recording_free(p->recording);
        p->recording = NULL;
        return TOW_OK;
    }
    tow__recording *r = tow__alloc(p->ctx, 1, sizeof *r);
    if (!r) return TOW_OUT_OF_MEMORY;
    r->ctx = p->ctx;
    r->n_lanes = p->team.threads > 1 ? p->team.threads : 1;
    r->lanes = tow__alloc(p->ctx, (size_t)r->n_lanes, sizeof *r->lanes);
    for (int i = 0; r->lanes && i < r->n_lanes; i++) {
        double n = count_events(p->top, i == 0);
        r->lanes[i].capacity = n < MOST_EVENTS ? (size_t)n + 1 : MOST_EVENTS;
        r->lanes[i].events = tow__alloc(p->ctx, r->lanes[i].capacity, sizeof *r->lanes[i].events);
        if (r->lanes[i].events) continue;
        r->lanes[i].capacity = 0;
        tow__recording_free(r);
        return TOW_OUT_OF_MEMORY;
    }
    if (!r->lanes) {
        tow__recording_free(r);
        return TOW_OUT_OF_MEMORY;
    }
    p->recording = r;
    return TOW_OK;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void write_string(FILE *file, const char *text)
{
    putc('"', file);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(file, "\\%c", *c);
        else if (*c < ' ')
            fprintf(file, "\\u%04x", *c);
        else
            putc(*c, file);
    }
    putc('"', file);
}

static void write_text(FILE *file, const char *key, const char *text)
{
    if (!text) return;
    fprintf(file, ",\"%s\":", key);
    write_string(file, text);
}

/* Read and written. */
static size_t inst_bytes(const tow__instruction *inst)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < inst->n_in; i++)
        if (!inst->packed || i != 1) bytes += tow_type_bytes(inst->in[i].type);
    for (uint32_t i = 0; i < inst->n_out; i++) bytes += tow_type_bytes(inst->out[i].type);
    return bytes;
}

/* Whether the step, somewhere in the plan, belongs to the backward part, itself or with a loop around it. */
static bool is_backward(const tow__plan *plan, const tow__instruction *inst, bool backward, bool *found)
{
    *found = inst >= plan->insts && inst < plan->insts + plan->n_insts;
    if (*found) return backward || inst->backward;
    for (uint32_t i = 0; i < plan->n_insts; i++) {
        const tow__instruction *outer = &plan->insts[i];
        if (!outer->loop) continue;
        bool result = is_backward(outer->loop->body, inst, backward || outer->backward, found);
        if (*found) return result;
    }
    return false;
}

static void write_event(FILE *file, const tow_program *p, int lane, const tow__event *event)
{
    const tow__recording *r = p->recording;
    const tow__instruction *inst = event->inst;
    const tow__loop *loop = inst->loop;
    bool found;
    const char *phase = is_backward(p->top, inst, false, &found) ? "backward" : "forward";
    fprintf(file, ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"cat\":\"%s\",\"name\":", lane,
            event->start - r->start, event->end - event->start, phase);
    write_string(file, inst->base->name);
    fprintf(file, ",\"args\":{\"phase\":\"%s\"", phase);
    write_text(file, "engine", !loop ? tow__engine_of(p, inst) : tow__by_blocks(loop) ? "region" : "loop");
    if (inst->source) write_text(file, "scope", inst->source->scope);
    if (inst->source) write_text(file, "source", inst->source->here);
    if (inst->n_out) write_text(file, "result", tow__type_name(inst->out[0].type).text);
    if (event->block >= 0) fprintf(file, ",\"block\":%" PRId64, event->block);
    if (loop) fprintf(file, ",\"iterations\":%" PRId64, loop->length);
    fprintf(file, ",\"bytes\":%zu", inst_bytes(inst));
    if (!loop) fprintf(file, ",\"flops\":%.0f", tow__flops(inst));
    fputs("}}", file);
}

tow_status tow_program_write_trace(const tow_program *p, FILE *file)
{
    if (!p || !file) return tow__missing(p ? p->ctx : NULL, __func__, "a program and a file to write");
    TOW__ARITHMETIC(false);
    const tow__recording *r = p->recording;
    if (!r || !r->lanes[0].n)
        return tow__fail(p->ctx, TOW_INVALID_ARGUMENT,
                         "tow_program_write_trace: no run was recorded; call tow_program_record, then run");
    size_t dropped = 0;
    for (int i = 0; i < r->n_lanes; i++) dropped += r->lanes[i].dropped;
    fprintf(file, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"threads\":%d,\"dropped\":%zu},\"traceEvents\":[\n",
            r->n_lanes, dropped);
    fputs("{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"tow\"}}", file);
    for (int i = 0; i < r->n_lanes; i++)
        fprintf(file,
                ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"thread %d\"}}", i,
                i);
    for (int i = 0; i < r->n_lanes; i++)
        for (size_t k = 0; k < r->lanes[i].n; k++) write_event(file, p, i, &r->lanes[i].events[k]);
    fputs("\n]}\n", file);
    return ferror(file) ? tow__fail(p->ctx, TOW_IO_ERROR, "tow_program_write_trace: cannot write the trace") : TOW_OK;
}
