/* Bidirectional: an RNN over the sequence and another one over its reversal, whose results are put together. */
#include "src/scope/calls.h"
#include "src/scope/layer.h"
#include "src/scope/tree.h"
#include "transforms/rnn.h"

/* Carries of a RNN; 0: its cell does not say. */
static size_t carries(const tow_rnn *rnn)
{
    const tow_module *cell = tow__bare_cell(rnn->inner);
    return cell && cell->cls && cell->cls->cell ? cell->cls->cell->n_carry : 0;
}

/* The number of carries of each RNN; of cells that do not say, what is left, in halves. False, reported: wrong
 * counts. */
static bool read_counts(tow_scope *scope, const tow_bidirectional *m, const tow_rnn *const *rnn, size_t n_in,
                        size_t n_out, size_t *n, bool *given)
{
    size_t own = 1 + (size_t)m->lengths, most = n_in > n_out ? n_in - own : n_out - 1;
    for (int i = 0; i < 2; i++) n[i] = carries(rnn[i]);
    if (n_in >= own && n_out >= 1) {
        for (int i = 0; i < 2; i++)
            if (n[i] == 0) n[i] = n[1 - i] == 0 ? most / 2 : most > n[1 - i] ? most - n[1 - i] : 0;
        *given = n_in > own;
        if ((n_in == own || n_in == own + n[0] + n[1]) && (n_out == 1 || n_out == 1 + n[0] + n[1])) return true;
    }
    tow_scope_fail(
        scope, TOW_INVALID_ARGUMENT,
        "Bidirectional: expected %zu inputs (x%s), or %zu with the carries of both RNNs before x, and 1 output (y) or "
        "%zu (carries, y), found %zu and %zu",
        own, m->lengths ? ", lengths" : "", own + n[0] + n[1], 1 + n[0] + n[1], n_in, n_out);
    return false;
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    static const char *const names[] = {"forward_rnn", "backward_rnn"};
    const tow_bidirectional *m = (const tow_bidirectional *)module;
    const tow_rnn *rnn[] = {m->forward_rnn, m->backward_rnn ? m->backward_rnn : m->forward_rnn};
    size_t n[2], own = 1 + (size_t)m->lengths;
    bool given = false;
    if (!rnn[0] || rnn[0]->module.cls != &tow_rnn_class || rnn[1]->module.cls != &tow_rnn_class) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "Bidirectional: expected RNNs made with TOW_RNN(&cell) in .forward_rnn and .backward_rnn");
        return;
    }
    for (int i = 0; i < 2; i++) {
        rnn[i] = (const tow_rnn *)tow__read_layer(scope, &rnn[i]->module);
        if (!rnn[i]) return;
    }
    if (!read_counts(scope, m, rnn, n_in, n_out, n, &given)) return;
    tow_trace *t = tow_scope_trace(scope);
    size_t most = n[0] > n[1] ? n[0] : n[1];
    tow_value *inputs = tow__trace_alloc(t, most + own, sizeof *inputs);
    tow_value *outputs = tow__trace_alloc(t, most + 1, sizeof *outputs), y[2] = {0};
    if (!inputs || !outputs) return;
    for (size_t i = 0, first = 0; i < 2; first += n[i++]) {
        size_t n_given = given ? n[i] : 0, n_wanted = n_out > 1 ? n[i] : 0;
        tow_rnn one = *rnn[i];
        one.time_major = m->time_major;
        one.lengths = m->lengths;
        one.reverse = one.keep_order = i == 1;
        if (n_given) memcpy(inputs, in + first, n_given * sizeof *inputs);
        memcpy(inputs + n_given, in + n_in - own, own * sizeof *inputs);
        tow_apply_n(scope, names[m->shared ? 0 : i], &one, n_given + own, inputs, n_wanted + 1, outputs);
        if (n_wanted) memcpy(out + first, outputs, n_wanted * sizeof *out);
        y[i] = outputs[n_wanted];
    }
    if (tow__scope_failed(scope)) return;
    out[n_out - 1] = m->merge ? m->merge(y[0], y[1]) : tow_concatenate(2, y, tow_value_type(y[0]).rank - 1);
}

const tow_module_class tow_bidirectional_class = {
    TOW__MADE_BY(TOW_BIDIRECTIONAL, tow_bidirectional), .name = "Bidirectional", .call = call,
    .layout = TOW__LAYOUT_OF(tow_bidirectional, TOW_MEMBER(tow_bidirectional, forward_rnn, TOW_MEMBER_LAYER),
                             TOW_MEMBER(tow_bidirectional, backward_rnn, TOW_MEMBER_LAYER))};
