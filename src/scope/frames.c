/* Frames: the values that parameters and variables have in the bodies that are being traced, and what is sown in them.
 *
 *   frame of the model    state[v] = input of the graph
 *     frame of a scan     state[v] = row of the stack (or the carry, if the iterations share v)
 *       frame of a remat  state[v] = what the layer wrote
 */
#include "src/scope/frames.h"

#include "tow/autodiff.h"

/* ---- frames ------------------------------------------------------------------------------------------------------ */

bool tow__unreturned(const tow__model *m)
{
    return m->frame->unreturned || m->frame->body != tow__innermost_serial(m->trace);
}

void tow__frame_open(tow__model *m, tow__frame *frame)
{
    *frame = (tow__frame){.outer = m->frame,
                          .serial = ++m->frames,
                          .body = tow__innermost_serial(m->trace),
                          .unreturned = tow__unreturned(m),
                          .silent = m->frame && m->frame->silent};
    m->frame = frame;
}

void tow__frame_close(tow__model *m) { m->frame = m->frame->outer; }

/* what: done to the variable or value at `path`. */
bool tow__check_returned(tow_scope *scope, const char *path, const char *what)
{
    if (!tow__unreturned(scope->model)) return true;
    tow_scope_fail(
        scope, TOW_UNSUPPORTED,
        "%s: %s inside a function given to an operation (tow_remat_function, tow_scan_function, tow_cond_function, "
        "tow_while_function, tow_vmap_function, tow_call_function or the like), which hands out only its own outputs; "
        "make the "
        "value one of these (in a choice, of every branch; in a loop, a carry) and do it after the call, or use the "
        "layers TOW_REMAT, TOW_SCAN, TOW_COND, TOW_SWITCH and TOW_WHILE, which hand out variables as well",
        path, what);
    return false;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

tow_value tow__param_value(const tow__model *model, uint32_t index)
{
    const tow__frame *f = model->frame;
    while (!f->params || tow_is_null(f->params[index])) f = f->outer;
    return f->params[index];
}

tow_value tow__variable_value(const tow__model *m, uint32_t index)
{
    const tow__frame *f = m->frame;
    while (!f->state || tow_is_null(f->state[index])) f = f->outer;
    return f->state[index];
}

void tow__variable_write(tow__model *m, uint32_t index, tow_value value)
{
    tow__frame *f = m->frame;
    size_t n = m->state.list->names.count;
    if (!f->state) f->state = tow__trace_alloc(m->trace, n, sizeof *f->state);
    if (!f->written) f->written = tow__trace_alloc(m->trace, n, sizeof *f->written);
    if (!f->state || !f->written) return;
    f->state[index] = value;
    f->written[index] = true;
}

/* ---- what is sown ------------------------------------------------------------------------------------------------ */

static tow__sown *find_here(const tow__frame *f, const char *path)
{
    tow__sown *s = f->sown;
    while (s && strcmp(s->path, path) != 0) s = s->next;
    return s;
}

const tow__sown *tow__find_sown(const tow__model *m, const char *path)
{
    const tow__sown *s = NULL;
    for (const tow__frame *f = m->frame; f && !s; f = f->outer) s = find_here(f, path);
    return s;
}

void tow__add_sown(tow__model *m, const tow__sown *like, tow_value value)
{
    tow__sown *s = like->reduced ? find_here(m->frame, like->path) : NULL, **end = &m->frame->sown;
    if (s) {
        s->value = value;
        return;
    }
    s = tow__trace_alloc(m->trace, 1, sizeof *s);
    if (!s) return;
    while (*end) end = &(*end)->next;
    *s = *like;
    s->next = NULL;
    s->value = value;
    *end = s;
}

/* ---- bodies of remat and scan ------------------------------------------------------------------------------------ */

/* The function's outputs, then what its frame wrote and sowed; NULL: out of memory. */
static tow_value *collect(tow__model *m, tow__recorded_body *b, size_t n_out, const tow_value *out)
{
    uint32_t n_state = m->state.list->names.count;
    size_t n_sown = 0;
    for (const tow__sown *s = b->frame.sown; s; s = s->next) ++n_sown;
    for (uint32_t i = 0; b->frame.written && i < n_state; i++) b->n_written += b->frame.written[i];
    b->n_out = n_out + b->n_written + n_sown;
    tow_value *all = tow__trace_alloc(m->trace, b->n_out, sizeof *all), *next = all ? all + n_out : NULL;
    b->written = tow__trace_alloc(m->trace, b->n_written, sizeof *b->written);
    if (!all || !b->written) return NULL;
    if (n_out) memcpy(all, out, n_out * sizeof *all);
    uint32_t *written = b->written;
    for (uint32_t i = 0; b->frame.written && i < n_state; i++) {
        if (!b->frame.written[i]) continue;
        *written++ = i;
        *next++ = b->frame.state[i];
    }
    for (const tow__sown *s = b->frame.sown; s; s = s->next) *next++ = s->value;
    return all;
}

bool tow__body_record(tow__model *m, tow_function function, void *user, size_t n_in, const tow_type *types,
                      size_t n_out, tow__recorded_body *b)
{
    tow_trace *t = m->trace;
    *b = (tow__recorded_body){0};
    tow_value *in = tow__trace_alloc(t, n_in, sizeof *in), *out = tow__trace_alloc(t, n_out, sizeof *out), *all = NULL;
    if (!in || !out || !tow__may_nest(t, 1)) return false;
    tow__frame_open(m, &b->frame);
    tow__push(t);
    b->frame.body = tow__innermost_serial(t);
    for (size_t i = 0; i < n_in; i++) in[i] = tow__input(t, types[i], NULL);
    if (!tow__failed(t)) function(t, in, out, user);
    tow__frame_close(m);
    if (!tow__failed(t)) all = collect(m, b, n_out, out);
    b->graph = tow__pop(t, all ? b->n_out : 0, all, &b->n_captures, &b->captures);
    return b->graph != NULL;
}

void tow__body_replay(tow_trace *t, const tow_value *in, tow_value *out, void *body)
{
    const tow__recorded_body *b = body;
    size_t n_in = tow_graph_input_count(b->graph) - b->n_captures;
    tow_value *all = tow__trace_alloc(t, b->n_captures + n_in, sizeof *all);
    if (!all) return;
    for (size_t i = 0; i < b->n_captures; i++) all[i] = tow__import(t, b->captures[i]);
    if (n_in) memcpy(all + b->n_captures, in, n_in * sizeof *all);
    tow__inline(t, b->graph, all, out);
}

void tow__body_commit(tow__model *m, const tow__recorded_body *b, const tow_value *values)
{
    for (size_t i = 0; i < b->n_written; i++) tow__variable_write(m, b->written[i], *values++);
    for (const tow__sown *s = b->frame.sown; s; s = s->next) tow__add_sown(m, s, *values++);
}

void tow__body_free(tow__recorded_body *b)
{
    tow_graph_release(b->graph);
    b->graph = NULL;
}
