/* Writes a recorded run as trace events: https://ui.perfetto.dev opens the file. */
#include <inttypes.h>
#include <stdio.h>

#include "src/base/arithmetic.h"
#include "src/plan/analysis/tiling.h"
#include "src/plan/ir.h"
#include "src/plan/report/report.h"
#include "src/run/record.h"

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

/* The body in which an instruction is, somewhere in the plan, and whether it belongs to the backward pass, itself or
 * with a loop around it. *backward: of the loops around. NULL: it is elsewhere. */
static const tow__body *find_body(const tow__body *body, const tow__instruction *inst, bool *backward)
{
    if (inst >= body->insts && inst < body->insts + body->n_insts) {
        *backward |= inst->backward;
        return body;
    }
    for (uint32_t i = 0; i < body->n_insts; i++) {
        const tow__instruction *outer = &body->insts[i];
        if (!outer->loop) continue;
        bool within = *backward || outer->backward;
        const tow__body *found = find_body(outer->loop->body, inst, &within);
        if (found == NULL) continue;
        *backward = within;
        return found;
    }
    return NULL;
}

static void write_event(FILE *file, const tow_program *p, int lane, const tow__event *event)
{
    const tow__recording *r = p->executable.recording;
    const tow__instruction *inst = event->origin;
    const tow__loop *loop = inst->loop;
    bool backward = false;
    const tow__body *body = find_body(p->top, inst, &backward);
    const char *phase = backward ? "backward" : "forward";
    fprintf(file, ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"cat\":\"%s\",\"name\":", lane,
            event->start - r->start, event->end - event->start, phase);
    write_string(file, inst->op->name);
    fprintf(file, ",\"args\":{\"phase\":\"%s\"", phase);
    write_text(file, "engine", !loop ? tow__engine_of(body, inst) : tow__by_blocks(loop) ? "tiles" : "loop");
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
    const tow__recording *r = p->executable.recording;
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
