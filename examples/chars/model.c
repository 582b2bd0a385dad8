/* The layers, and the carry between calls. */
#include "model.h"

#include <stdio.h>

/* One GRU over x [batch, time, in], which goes on where the call before ended: [batch, time, width]. A variable has no
 * gradient, so that gradients end at the first element of x. */
static tow_value stateful(tow_scope *scope, const chars *m, tow_value x)
{
    const tow_type type = tow_value_type(x);
    const int64_t dims[] = {type.dims[0], m->cell.features};
    tow_value h = tow_variable(scope, "carry", "h", tow_make_type(type.dtype, 2, dims), tow_initializer_zeros());
    tow_value out[2];
    tow_apply_n(scope, "rnn", &m->rnn, 2, ((tow_value[]){h, x}), 2, out);
    if (tow_is_mutable(scope, "carry")) tow_set_variable(scope, "carry", "h", out[0]);
    return out[1];
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const chars *m = (const chars *)module;
    if (n_in < 1 || n_in > 2 || n_out != 1 || tow_value_type(in[0]).rank != 2) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "expected tokens [batch, time], labels or none, and one result");
        return;
    }
    tow_value x = tow_apply(scope, "tokens", &m->tokens, in[0]);
    for (int64_t i = 0; i < m->layers && !tow_is_null(x); i++) {
        char name[16];
        snprintf(name, sizeof name, "gru_%d", (int)i);
        tow_scope *layer = tow_scope_begin(scope, name);
        x = stateful(layer, m, x);
        tow_scope_end(layer);
    }
    tow_value logits = tow_apply(scope, "head", &m->head, x);
    out[0] = n_in == 1 ? logits : tow_softmax_cross_entropy(logits, in[1]);
}

static const tow_module_class chars_class = {.name = "Chars", .call = call};

void chars_make(chars *m, int64_t vocabulary, int64_t width, int64_t layers)
{
    m->module.cls = &chars_class;
    m->tokens = TOW_EMBED(.num_embeddings = vocabulary, .features = width);
    m->cell = TOW_GRU_CELL(.features = width);
    m->rnn = TOW_RNN(&m->cell, .in_place = true);
    m->head = TOW_DENSE(.features = vocabulary);
    m->layers = layers;
}

void chars_loss(tow_trace *trace, const tow_value *losses, const tow_value *extra, tow_value *loss, tow_value *aux,
                void *user)
{
    (void)trace, (void)extra, (void)aux, (void)user;
    *loss = tow_mean(losses[0], 0, NULL);
}
