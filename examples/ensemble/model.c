/* The ensemble in the words of Tow. */
#include "model.h"

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const ensemble *m = (const ensemble *)module;
    if (n_in != 1 || n_out != 1 || tow_value_type(in[0]).rank != 4) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "expected images [batch, 8, 8, 1] and one result");
        return;
    }
    tow_value x = tow_reshape(in[0], 2, (int64_t[]){tow_value_type(in[0]).dims[0], PIXELS});
    out[0] = tow_apply(scope, "members", &m->members, x);
}

static const tow_module_class ensemble_class = {.name = "Ensemble", .call = call};

void ensemble_make(ensemble *m, int64_t members, int64_t width)
{
    static const int same_images[] = {TOW_NOT_MAPPED};
    m->module.cls = &ensemble_class;
    m->member = TOW_MLP(.features = {width, width, CLASSES});
    m->members = TOW_VMAP(&m->member, .axis_size = members, .in_axes = same_images);
}

void ensemble_loss(tow_trace *trace, const tow_value *logits, const tow_value *labels, tow_value *loss, tow_value *aux,
                   void *user)
{
    (void)trace, (void)aux;
    const tow_type type = tow_value_type(logits[0]);
    tow_value label = tow_broadcast_to(labels[0], 2, type.dims);                 /* [members, batch] */
    tow_value losses = tow_softmax_cross_entropy(logits[0], label);              /* [members, batch] */
    tow_value unlike = tow_ne_scalar(labels[0], (double)*(const int64_t *)user); /* [batch] */
    tow_value counts = tow_convert(unlike, type.dtype);
    tow_value n = tow_max_scalar(tow_reduce_sum(counts, 0, NULL), 1);
    *loss = tow_div(tow_reduce_sum(tow_mul(losses, counts), 0, NULL), n);
}
