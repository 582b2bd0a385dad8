/* The error for a memory limit that no plan keeps: the least that is possible, and what it consists of, by kind and by
 * part of the model. */
#include <stdio.h>

#include "src/plan/remat/remat.h"
#include "src/plan/report/timeline.h"

enum {
    SHOWN = 5 /* parts of the arena */
};

static void add_inputs(tow__string *text, const tow_program *p, const tow__variants *v)
{
    size_t at = 0;
    if (!v->n_kinds) {
        tow__string_add(text, "inputs %zu", p->bytes.inputs);
        return;
    }
    for (size_t k = 0; k < v->n_kinds; k++) {
        size_t bytes = 0;
        for (size_t end = at + v->kinds[k].n; at < end && at < p->graph->n_inputs; at++)
            bytes += tow_type_bytes(p->graph->vars[p->graph->inputs[at]].type);
        if (bytes) tow__string_add(text, "%s%s %zu", text->length ? ", " : "", v->kinds[k].kind, bytes);
    }
}

/* The largest groups of the arena where most of it is alive, by kind and by part of the model. */
static void add_peak(tow__string *text, const tow__timeline *t)
{
    bool shown[TOW__LIVE_GROUPS] = {false};
    for (int n = 0; n < SHOWN; n++) {
        uint32_t best = t->n_groups;
        for (uint32_t i = 0; i < t->n_groups; i++)
            if (!shown[i] && t->groups[i].bytes[t->peak] > 0 &&
                (best == t->n_groups || t->groups[i].bytes[t->peak] > t->groups[best].bytes[t->peak]))
                best = i;
        if (best == t->n_groups) return;
        static const char *const kinds[] = {
#define X(symbol, text) text,
            TOW__LIVE_LIST(X)
#undef X
        };
        const tow__live_group *g = &t->groups[best];
        shown[best] = true;
        tow__string_add(text, "%s%s%s%.*s %lld", n ? ", " : "", kinds[g->kind], g->length ? " of " : "", (int)g->length,
                        g->length ? g->scope : "", (long long)g->bytes[t->peak]);
    }
}

tow_status tow__refuse_limit(const tow_program *p, const tow__variants *variants, size_t limit)
{
    tow__string inputs = {.ctx = p->ctx}, peak = {.ctx = p->ctx};
    tow__timeline t;
    tow_status status = tow__timeline_make(p, &t);
    if (status == TOW_OK) {
        add_inputs(&inputs, p, variants);
        if (t.n) add_peak(&peak, &t);
        const size_t least = p->bytes.inputs + p->bytes.outputs + p->bytes.constants + p->bytes.arena;
        status = inputs.failed || peak.failed
                     ? TOW_OUT_OF_MEMORY
                     : tow__fail(p->ctx, TOW_INVALID_ARGUMENT,
                                 "memory limit: expected at least %zu bytes, found %zu; the least that is possible is "
                                 "%s, outputs %zu, constants %zu, arena %zu (%s); raise the limit, or make the batch "
                                 "or the model smaller%s%s",
                                 least, limit, inputs.length ? inputs.text : "inputs 0", p->bytes.outputs,
                                 p->bytes.constants, p->bytes.arena, peak.length ? peak.text : "nothing",
                                 variants->note && *variants->note ? "\n" : "", variants->note ? variants->note : "");
    }
    tow__timeline_free(&t);
    tow__string_free(&inputs);
    tow__string_free(&peak);
    return status;
}
