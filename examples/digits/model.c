/* The convolutional network in the words of Tow. */
#include "model.h"

/* Conv, BatchNorm, relu: x [batch, h, w, c] -> [batch, h, w, features] */
static tow_value block(tow_scope *scope, const char *name, const tow_conv *conv, const digits_model *m, tow_value x)
{
    tow_scope *child = tow_scope_begin(scope, name);
    x = tow_apply(child, "conv", conv, x);
    x = tow_relu(tow_apply(child, "norm", &m->norm, x));
    tow_scope_end(child);
    return x;
}

static void digits_call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    const digits_model *m = (const digits_model *)module;
    if (n_in != 1 || n_out != 1 || tow_value_type(in[0]).rank != 4) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "expected images [batch, height, width, 1] and one result");
        return;
    }
    tow_value x = block(scope, "block1", &m->conv1, m, in[0]); /* [batch, 8, 8, 32] */
    x = block(scope, "block2", &m->conv2, m, x);
    x = tow_apply(scope, "pool", &m->pool, x); /* [batch, 4, 4, 32] */
    x = block(scope, "block3", &m->conv3, m, x);
    x = tow_apply(scope, "pool", &m->pool, x); /* [batch, 2, 2, 64] */
    x = tow_reshape(x, 2, (int64_t[]){tow_value_type(x).dims[0], -1});
    x = tow_apply(scope, "dropout", &m->dropout, x);
    out[0] = tow_apply(scope, "head", &m->head, x);
}

static const tow_module_class digits_class = {.name = "Digits", .call = digits_call};

void digits_make(digits_model *m)
{
    m->module.cls = &digits_class;
    m->conv1 = TOW_CONV(.features = 32, .kernel_size = {3, 3}, .no_bias = true);
    m->conv2 = TOW_CONV(.features = 32, .kernel_size = {3, 3}, .no_bias = true);
    m->conv3 = TOW_CONV(.features = 64, .kernel_size = {3, 3}, .no_bias = true);
    m->norm = TOW_BATCH_NORM(.momentum = 0.9);
    m->pool = TOW_POOL(.kind = TOW_POOL_MAX, .window = {2, 2}, .strides = {2});
    m->dropout = TOW_DROPOUT(.rate = 0.25);
    m->head = TOW_DENSE(.features = CLASSES);
}

void digits_loss(tow_trace *trace, const tow_value *logits, const tow_value *labels, tow_value *loss, tow_value *aux,
                 void *user)
{
    (void)trace, (void)aux, (void)user;
    *loss = tow_mean(tow_softmax_cross_entropy(logits[0], labels[0]), 0, NULL);
}
