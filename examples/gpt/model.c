/* A GPT in the words of Tow. */
#include "model.h"

/* tokens: i32 [batch, context] -> logits [batch, context, vocabulary];
 * tokens, labels: i32 [batch, context] -> loss [batch, context], without logits that exist as a whole */
static void gpt_call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                     tow_value *out)
{
    const gpt *m = (const gpt *)module;
    if (n_in < 1 || n_in > 2 || n_out != 1 || tow_value_type(in[0]).rank != 2) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "expected tokens [batch, context], labels or none, and one result");
        return;
    }
    int64_t context = tow_value_type(in[0]).dims[1];
    tow_value positions = tow_iota(tow_scope_trace(scope), tow_make_type(TOW_I32, 1, &context), 0); /* [context] */
    /* one after the other: C leaves open which argument of a call comes first, and parameters have the order of first
     * use */
    tow_value at = tow_apply(scope, "positions", &m->positions, positions);   /* [context, width] */
    tow_value x = tow_add(tow_apply(scope, "tokens", &m->tokens, in[0]), at); /* [batch, context, width] */
    x = tow_apply(scope, "blocks", &m->blocks, x);
    x = tow_apply(scope, "norm", &m->norm, x);
    out[0] = n_in == 1 ? tow_embed_attend(scope, "tokens", &m->tokens, x)
                       : tow_embed_cross_entropy(scope, "tokens", &m->tokens, x, in[1]);
}

static const tow_module_class gpt_class = {.name = "GPT", .call = gpt_call};

void gpt_make(gpt *m, const gpt_shape *shape)
{
    m->module.cls = &gpt_class;
    m->tokens = TOW_EMBED(.num_embeddings = shape->vocabulary, .features = shape->width);
    m->positions = TOW_EMBED(.num_embeddings = shape->context, .features = shape->width);
    m->block = TOW_TRANSFORMER_BLOCK(.heads = shape->heads, .causal = true);
    if (shape->policy) {
        m->cheap = TOW_REMAT(&m->block, .policy = *shape->policy);
        m->blocks = TOW_SCAN(&m->cheap, .length = shape->layers, .unrolled = shape->unrolled);
    } else {
        m->blocks = TOW_SCAN(&m->block, .length = shape->layers, .unrolled = shape->unrolled);
    }
    m->norm = TOW_LAYER_NORM();
    m->whole = TOW_PRECISION(m, .dtype = shape->dtype, .param_dtype = shape->param_dtype, .output_dtype = TOW_F32);
}

void gpt_loss(tow_trace *trace, const tow_value *losses, const tow_value *extra, tow_value *loss, tow_value *aux,
              void *user)
{
    (void)trace, (void)extra, (void)aux, (void)user;
    *loss = tow_mean(losses[0], 0, NULL);
}
