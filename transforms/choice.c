/* cond and switch as layers: one of several layers runs, in the scope of the choice itself, so that nothing about their
 * parameters and random keys depends on the choice. Each layer is recorded aside in a frame of its own, in order, and
 * becomes a branch of the choice. Branches must have the same results, so each hands out what any of them writes or
 * sows:
 *
 *     branch:  outputs..., variables that some branch writes..., values that some branch sows...
 *
 * a branch that does not write a variable hands out the value that it had before, and zeros for what it does not
 * sow. */
#include <stdio.h>

#include "src/scope/tree.h"
#include "tow/control.h"
#include "tow/layers.h"
#include "tow/transforms.h"
#include "transforms/aside.h"

/* A call of a choice. */
typedef struct choice {
    bool is_cond;   /* .yes and .no, chosen by a predicate; else branches, by an index */
    const char *op; /* "cond" */
    tow_scope *scope;
    tow__aside aside;
    size_t n;
    const tow_module *const *layers; /* [n] */
    size_t n_in, n_out;
    const tow_value *in;        /* what the branches get */
    tow__recorded_body *bodies; /* [n] */
    tow__recorded_body all;     /* what any of them writes and sows; without a graph */
    size_t n_sown;
    tow_type *sown_types;
} choice;

/* One of its branches. */
typedef struct branch {
    const choice *c;
    size_t k;
} branch;

typedef struct label {
    char text[112];
} label;

/* ".yes (Dense)", "branch 2 (\"expert\")". */
static label label_of(const choice *c, size_t k)
{
    label l;
    const tow_module *layer = c->layers[k];
    const bool named = layer->cls == &tow_named_class;
    const char *name = named ? ((const tow_named *)layer)->name : layer->cls->name, *quote = named ? "\"" : "";
    if (c->is_cond)
        snprintf(l.text, sizeof l.text, "%s (%s%.64s%s)", k ? ".no" : ".yes", quote, name, quote);
    else
        snprintf(l.text, sizeof l.text, "branch %zu (%s%.64s%s)", k, quote, name, quote);
    return l;
}

/* ---- recording the branches -------------------------------------------------------------------------------------- */

static bool outputs_agree(const choice *c, size_t k)
{
    for (size_t i = 0; i < c->n_out; i++) {
        const tow_type want = tow_graph_output_type(c->bodies[0].graph, i),
                       have = tow_graph_output_type(c->bodies[k].graph, i);
        if (tow_type_equal(want, have)) continue;
        tow_scope_fail(
            c->scope, TOW_TYPE_MISMATCH,
            "%s: output %zu: expected %s, which is what %s gives, found %s from %s; all layers of a choice must "
            "give the same types: convert or reshape one of the two",
            c->op, i, tow__type_name(want).text, label_of(c, 0).text, tow__type_name(have).text, label_of(c, k).text);
        return false;
    }
    return true;
}

static bool record(choice *c)
{
    tow_trace *t = c->scope->model->trace;
    c->bodies = tow__trace_alloc(t, c->n, sizeof *c->bodies);
    if (!c->bodies) return false;
    for (size_t k = 0; k < c->n; k++)
        if (!tow__aside_record(&c->aside, c->layers[k], c->n_in, c->in, c->n_out, &c->bodies[k]) ||
            !outputs_agree(c, k))
            return false;
    return true;
}

/* ---- what the branches write and sow ----------------------------------------------------------------------------- */

/* *output: that of branch k which is the new value of a variable. False: it does not write it. */
static bool find_written(const choice *c, size_t k, uint32_t variable, size_t *output)
{
    const tow__recorded_body *b = &c->bodies[k];
    *output = c->n_out;
    for (size_t i = 0; i < b->n_written; i++, ++*output)
        if (b->written[i] == variable) return true;
    return false;
}

/* *output: that of branch k which is sown at this path. False: it sows nothing there. */
static bool find_sown(const choice *c, size_t k, const char *path, size_t *output)
{
    const tow__recorded_body *b = &c->bodies[k];
    *output = c->n_out + b->n_written;
    for (const tow__sown *s = b->frame.sown; s; s = s->next, ++*output)
        if (strcmp(s->path, path) == 0) return true;
    return false;
}

static void add_written(choice *c, uint32_t variable)
{
    for (size_t i = 0; i < c->all.n_written; i++)
        if (c->all.written[i] == variable) return;
    c->all.written[c->all.n_written++] = variable;
}

/* Adds what branch k sows, as output `output`. False: an error. */
static bool add_sown(choice *c, size_t k, const tow__sown *sown, size_t output, tow__sown ***end)
{
    const char *path = sown->path;
    const tow_type type = tow_graph_output_type(c->bodies[k].graph, output);
    size_t i = 0;
    for (const tow__sown *s = c->all.frame.sown; s; s = s->next, i++) {
        if (strcmp(s->path, path) != 0) continue;
        if (tow_type_equal(type, c->sown_types[i])) return true;
        tow__params_fail(c->scope->model, TOW_TYPE_MISMATCH,
                         "%s: expected %s as in an earlier layer of the %s, found %s in %s; sow values of one type, "
                         "or under different names",
                         path, tow__type_name(c->sown_types[i]).text, c->op, tow__type_name(type).text,
                         label_of(c, k).text);
        return false;
    }
    tow__sown *s = tow__trace_alloc(c->scope->model->trace, 1, sizeof *s);
    if (!s) return false;
    *s = *sown;
    s->next = NULL;
    **end = s;
    *end = &s->next;
    c->sown_types[c->n_sown++] = type;
    return true;
}

/* Everything that some branch writes or sows. */
static bool unite(choice *c)
{
    tow_trace *t = c->scope->model->trace;
    size_t n = 0;
    for (size_t k = 0; k < c->n; k++) n += c->bodies[k].n_out;
    c->all.written = tow__trace_alloc(t, n, sizeof *c->all.written);
    c->sown_types = tow__trace_alloc(t, n, sizeof *c->sown_types);
    if (!c->all.written || !c->sown_types) return false;
    tow__sown **end = &c->all.frame.sown;
    for (size_t k = 0; k < c->n; k++) {
        const tow__recorded_body *b = &c->bodies[k];
        size_t output = c->n_out + b->n_written;
        for (size_t i = 0; i < b->n_written; i++) add_written(c, b->written[i]);
        for (const tow__sown *s = b->frame.sown; s; s = s->next)
            if (!add_sown(c, k, s, output++, &end)) return false;
    }
    return true;
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

/* The value that a branch hands out in place of one that it does not sow: zeros, or of a reduced one what it was. */
static tow_value unsown(const choice *c, tow_trace *t, const tow__sown *sown, tow_type type)
{
    const tow__sown *before = sown->reduced ? tow__find_sown(c->scope->model, sown->path) : NULL;
    return before ? tow__import(t, before->value) : tow_full(t, type, sown->reduced ? sown->initial : 0);
}

/* A branch with the results that all have. */
static void replay(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const branch *b = user;
    const choice *c = b->c;
    tow__model *model = c->scope->model;
    tow_value *results = tow__trace_alloc(t, c->bodies[b->k].n_out, sizeof *results), *next = out + c->n_out;
    size_t output, i = 0;
    if (!results) return;
    tow__body_replay(t, in, results, &c->bodies[b->k]);
    if (c->n_out) memcpy(out, results, c->n_out * sizeof *out);
    for (size_t w = 0; w < c->all.n_written; w++)
        *next++ = find_written(c, b->k, c->all.written[w], &output)
                      ? results[output]
                      : tow__import(t, tow__variable_value(model, c->all.written[w]));
    for (const tow__sown *s = c->all.frame.sown; s; s = s->next, i++)
        *next++ = find_sown(c, b->k, s->path, &output) ? results[output] : unsown(c, t, s, c->sown_types[i]);
}

static void replay_yes(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    replay(t, in, out, &(branch){user, 0});
}

static void replay_no(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    replay(t, in, out, &(branch){user, 1});
}

static void bind(choice *c, tow_value index, tow_value *out)
{
    tow_trace *t = c->scope->model->trace;
    const size_t n_out = c->n_out + c->all.n_written + c->n_sown;
    tow_value *results = tow__trace_alloc(t, n_out, sizeof *results);
    branch *branches = tow__trace_alloc(t, c->n, sizeof *branches);
    tow_branch *functions = tow__trace_alloc(t, c->n, sizeof *functions);
    if (!results || !branches || !functions) return;
    for (size_t k = 0; k < c->n; k++) {
        branches[k] = (branch){c, k};
        functions[k] = (tow_branch){replay, &branches[k]};
    }
    if (c->is_cond)
        tow_cond_function(t, index, replay_yes, replay_no, c, c->n_in, c->in, n_out, results);
    else
        tow_switch_function(t, index, c->n, functions, c->n_in, c->in, n_out, results);
    if (c->n_out) memcpy(out, results, c->n_out * sizeof *out);
    if (!tow__failed(t)) tow__body_commit(c->scope->model, &c->all, results + c->n_out);
}

static void choose(choice *c, const tow_lift_rule *variables, const tow_lift_rule *streams, const tow_value *in,
                   tow_value *out)
{
    if (c->n_in == 0) {
        tow_scope_fail(c->scope, TOW_INVALID_ARGUMENT,
                       "%s: expected %s and then the inputs of the layers, found no input", c->op,
                       c->is_cond ? "a predicate (bool [])" : "an index (i32 [])");
        return;
    }
    if (!tow__aside_begin(&c->aside, c->scope, c->op, variables, streams)) return;
    c->in = in + 1;
    c->n_in--;
    if (record(c) && unite(c)) bind(c, in[0], out);
    tow__aside_end(&c->aside);
    for (size_t k = 0; c->bodies && k < c->n; k++) tow__body_free(&c->bodies[k]);
}

static void call_cond(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    const tow_cond *m = (const tow_cond *)module;
    choice c = {.is_cond = true, .op = "cond", .scope = scope, .n = 2, .n_in = n_in, .n_out = n_out};
    c.layers = (const tow_module *const[]){m->yes, m->no};
    if (m->yes && m->no)
        choose(&c, m->variables, m->streams, in, out);
    else
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "cond: .%s is NULL; expected a layer, TOW_MODULE(&layer)",
                       m->yes ? "no" : "yes");
}

static void call_switch(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    const tow_switch *m = (const tow_switch *)module;
    choice c = {.op = "switch", .scope = scope, .layers = m->branches, .n_in = n_in, .n_out = n_out};
    while (m->branches && m->branches[c.n]) c.n++;
    if (c.n > 0)
        choose(&c, m->variables, m->streams, in, out);
    else
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "switch: no .branches; expected TOW_LAYERS(TOW_MODULE(&first), ...)");
}

const tow_module_class tow_cond_class = {TOW__MADE_BY(TOW_COND, tow_cond), .name = "cond", .call = call_cond,
                                         .layout = TOW__LAYOUT_OF(tow_cond, TOW_MEMBER(tow_cond, yes, TOW_MEMBER_LAYER),
                                                                  TOW_MEMBER(tow_cond, no, TOW_MEMBER_LAYER),
                                                                  TOW_MEMBER(tow_cond, variables, TOW_MEMBER_RULES),
                                                                  TOW_MEMBER(tow_cond, streams, TOW_MEMBER_RULES))};
const tow_module_class tow_switch_class = {TOW__MADE_BY(TOW_SWITCH, tow_switch), .name = "switch", .call = call_switch,
                                           .layout = TOW__LAYOUT_OF(tow_switch,
                                                                    TOW_MEMBER(tow_switch, branches, TOW_MEMBER_LAYERS),
                                                                    TOW_MEMBER(tow_switch, variables, TOW_MEMBER_RULES),
                                                                    TOW_MEMBER(tow_switch, streams, TOW_MEMBER_RULES))};
