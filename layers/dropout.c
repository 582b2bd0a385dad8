/* Dropout: x / (1-rate) where kept, else 0. No parameters; one draw of its stream per call. */
#include "src/scope/layer.h"
#include "src/scope/tree.h"
#include "tow/layers.h"

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_dropout *m = (const tow_dropout *)module;
    int axes[TOW_MAX_RANK], n = 0;
    if (!tow__check_counts(scope, "Dropout", n_in, 1, 1, n_out) || !tow__check_float(scope, "Dropout", 0, in[0], 0) ||
        !tow__check_option(scope, "Dropout", m->rate >= 0 && m->rate <= 1, "rate", m->rate, "a number in [0, 1]") ||
        !tow__read_axes_of(scope, "Dropout", "broadcast_axes", tow_value_type(in[0]), m->n_broadcast_axes,
                           m->broadcast_axes, axes, &n))
        return;
    if (m->n_broadcast_axes == 0) n = 0;
    if (m->rate == 0 || m->deterministic || tow_scope_is_deterministic(scope)) {
        out[0] = in[0];
        return;
    }
    tow_value key = tow_make_rng(scope, m->stream ? m->stream : "dropout");
    out[0] = tow_dropout_with_key(in[0], key, m->rate, n, axes);
}

const tow_module_class tow_dropout_class = {
    TOW__MADE_BY(TOW_DROPOUT, tow_dropout), .name = "Dropout", .call = call,
    .layout = TOW__LAYOUT_OF(tow_dropout, TOW_MEMBER(tow_dropout, stream, TOW_MEMBER_TEXT))};
