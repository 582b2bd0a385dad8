/* The model: an embedding, blocks, a norm, and the product with the table of tokens or with a head. The children have
 * the names that the mappings of weights have. */
#include "model.h"

#include <math.h>
#include <stdio.h>

/* Layers that are not all alike: "blocks/0", "blocks/1", ..., as a scan names its iterations. */
static tow_value apply_in_turn(tow_scope *scope, const chat_model *m, tow_value x)
{
    tow_scope *blocks = tow_scope_begin(scope, "blocks");
    for (int64_t i = 0; i < m->config->layers; i++) {
        char name[24];
        snprintf(name, sizeof name, "%lld", (long long)i);
        x = tow_apply(blocks, name, i % 2 == 0 && m->config->local_window > 0 ? &m->local : &m->block, x);
    }
    tow_scope_end(blocks);
    return x;
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const chat_model *m = (const chat_model *)module;
    const chat_config *c = m->config;
    (void)n_in, (void)n_out;
    tow_value x = tow_apply(scope, "tokens", &m->tokens, in[0]);
    if (c->scaled_tokens) x = tow_mul_scalar(x, sqrt((double)c->width));
    if (c->learned_positions) x = tow_apply(scope, "positions", &m->positions, x);
    x = c->local_window > 0 || c->layer_by_layer ? apply_in_turn(scope, m, x)
                                                 : tow_apply(scope, "blocks", &m->blocks, x);
    if (m->decodes) { /* the logits of one position are asked for */
        const int64_t length = tow_value_type(x).dims[1];
        x = tow_slice_axis(x, 1, length - 1, length);
    }
    x = tow_apply_module(scope, "norm", c->block.rms_norm ? &m->rms_norm.module : &m->layer_norm.module, x);
    x = c->tied ? tow_embed_attend(scope, "tokens", &m->tokens, x) : tow_apply(scope, "head", &m->head, x);
    if (c->logit_cap > 0) x = tow_mul_scalar(tow_tanh(tow_mul_scalar(x, 1 / c->logit_cap)), c->logit_cap);
    out[0] = x;
}
static const tow_module_class chat_class = {.name = "Decoder", .call = call};

static tow_value add_one(tow_value stored, const tow_variable_request *asked, const void *user)
{
    (void)asked, (void)user;
    return tow_add_scalar(stored, 1.0);
}

const tow_module *chat_make_model(chat_model *m, const chat_config *c, const chat_model_options *o)
{
    static const char *const scales[] = {"params/**scale", NULL};
    const tow_initializer zeros = tow_initializer_zeros(); /* of weights that are loaded: drawing them takes seconds */
    *m = (chat_model){.module.cls = &chat_class, .config = c, .decodes = o->context > 0};
    m->tokens = TOW_EMBED(.num_embeddings = c->vocabulary, .features = c->width, .embedding_init = zeros);
    m->positions = TOW_LEARNED_POSITIONS(.max_length = c->positions, .decode = m->decodes, .embedding_init = zeros);
    m->block = c->block;
    m->block.kernel_init = zeros;
    m->block.decode = m->decodes;
    m->block.cache_length = o->context;
    m->block.cache_dtype = o->cache_dtype;
    m->local = m->block;
    m->local.window = c->local_window;
    m->blocks = TOW_SCAN(&m->block, .length = c->layers);
    m->layer_norm = TOW_LAYER_NORM(.epsilon = c->epsilon);
    m->rms_norm = TOW_RMS_NORM(.epsilon = c->epsilon);
    m->head = TOW_DENSE(.features = c->vocabulary, .no_bias = true, .kernel_init = zeros);
    m->one_plus = TOW_MAP_VARIABLES(m, .variables = scales, .trans_in = add_one);
    m->precision = TOW_PRECISION(m, .dtype = TOW_F32, .param_dtype = o->dtype, .param_dtypes = o->dtypes);
    if (c->one_plus) m->precision.inner = &m->one_plus.module;
    return &m->precision.module;
}
