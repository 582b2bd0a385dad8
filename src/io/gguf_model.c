/* The hyperparameters of a language model among the metadata of its GGUF file. */
#include <inttypes.h>
#include <stdio.h>

#include "src/io/gguf.h"

typedef struct reader {
    const tow_tensors *tensors;
    const char *architecture;
    char key[256]; /* that was read last */
} reader;

static tow_status refuse(const reader *r, const char *expected)
{
    return tow__fail(r->tensors->ctx, TOW_BAD_FORMAT, "metadata '%s': expected %s", r->key, expected);
}

static tow_metadata_value find(reader *r, const char *name)
{
    snprintf(r->key, sizeof r->key, "%.100s.%s", r->architecture, name);
    return tow_tensors_metadata_value(r->tensors, r->key);
}

static bool is_number(tow_metadata_type type)
{
    return type != TOW_METADATA_NONE && type != TOW_METADATA_STRING && type != TOW_METADATA_ARRAY &&
           type != TOW_METADATA_BOOL;
}

/* A number of layers, heads, elements: below 2^31. */
static tow_status read_count(reader *r, const char *name, int64_t standard, int64_t *count)
{
    const tow_metadata_value value = find(r, name);
    *count = standard;
    if (value.type == TOW_METADATA_NONE) return TOW_OK;
    if (!is_number(value.type) || value.type == TOW_METADATA_F32 || value.type == TOW_METADATA_F64 ||
        value.integer < 0 || value.integer > INT32_MAX)
        return refuse(r, "one integer, 0 to 2^31 - 1");
    *count = value.integer;
    return TOW_OK;
}

static tow_status read_real(reader *r, const char *name, double standard, double *real)
{
    const tow_metadata_value value = find(r, name);
    *real = standard;
    if (value.type == TOW_METADATA_NONE) return TOW_OK;
    if (!is_number(value.type) || !(value.number >= 0 && value.number < 1e30))
        return refuse(r, "one number, 0 or above");
    *real = value.number;
    return TOW_OK;
}

/* Of the embedding, or of the tokenizer. */
static int64_t count_vocabulary(const tow_tensors *t)
{
    const ptrdiff_t index = tow__tensors_lookup(t, "token_embd.weight");
    const tow_metadata_value tokens = tow_tensors_metadata_value(t, "tokenizer.ggml.tokens");
    if (index >= 0 && t->items[index].type.rank == 2) return t->items[index].type.dims[0];
    return tokens.type == TOW_METADATA_ARRAY && tokens.count <= INT32_MAX ? (int64_t)tokens.count : 0;
}

/* The number of layers of which there are tensors "blk.0." and so on; 0: no name tells. */
static int64_t count_layers(const tow_tensors *t)
{
    int64_t layers = 0;
    for (size_t i = 0; i < t->count; i++) {
        const char *name = t->items[i].name;
        int64_t layer = 0;
        if (strncmp(name, "blk.", 4) != 0) continue;
        for (name += 4; *name >= '0' && *name <= '9' && layer < INT32_MAX; name++) layer = 10 * layer + *name - '0';
        if (*name == '.' && layer >= layers) layers = layer + 1;
    }
    return layers;
}

static tow_status read_layers(reader *r, tow_gguf_model *m)
{
    const tow_status status = read_count(r, "block_count", 0, &m->layers);
    const int64_t found = count_layers(r->tensors);
    if (status != TOW_OK || found == 0 || find(r, "block_count").type == TOW_METADATA_NONE || m->layers == found)
        return status;
    return tow__fail(r->tensors->ctx, TOW_BAD_FORMAT,
                     "metadata '%s': expected %" PRId64 ", the layers of which the file has tensors, found %" PRId64,
                     r->key, found, m->layers);
}

/* Numbers without a place in tow_gguf_model, which callers read of the metadata as they are. */
static tow_status check_others(reader *r)
{
    tow_status status = TOW_OK;
    int64_t window;
    double cap;
    TRY(read_real(r, "attn_logit_softcapping", 0, &cap));
    TRY(read_real(r, "final_logit_softcapping", 0, &cap));
    if (find(r, "attention.sliding_window").type != TOW_METADATA_ARRAY)
        TRY(read_count(r, "attention.sliding_window", 0, &window));
done:
    return status;
}

static tow_status read_model(const tow_tensors *tensors, tow_gguf_model *model)
{
    tow_status status = TOW_OK;
    tow_gguf_model m = {.architecture = tow_tensors_metadata(tensors, "general.architecture")};
    reader r = {.tensors = tensors, .architecture = m.architecture};
    if (!m.architecture)
        return tow__fail(tensors->ctx, TOW_NOT_FOUND,
                         "metadata 'general.architecture': there is none; a GGUF file of a model names its kind");
    TRY(read_layers(&r, &m));
    TRY(read_count(&r, "embedding_length", 0, &m.width));
    TRY(read_count(&r, "feed_forward_length", 0, &m.hidden));
    TRY(read_count(&r, "context_length", 0, &m.context));
    TRY(read_count(&r, "vocab_size", count_vocabulary(tensors), &m.vocabulary));
    TRY(read_count(&r, "attention.head_count", 0, &m.heads));
    if (m.heads > m.width) TRY(refuse(&r, "at most as many heads as embedding_length says"));
    TRY(read_count(&r, "attention.head_count_kv", m.heads, &m.kv_heads));
    if (m.kv_heads > 0 ? m.heads % m.kv_heads != 0 : m.heads > 0)
        TRY(refuse(&r, "a number that divides attention.head_count"));
    TRY(read_count(&r, "attention.key_length", m.heads > 0 ? m.width / m.heads : 0, &m.head_width));
    TRY(read_count(&r, "rope.dimension_count", m.head_width, &m.rope_width));
    TRY(read_real(&r, "rope.freq_base", 10000, &m.rope_base));
    TRY(read_real(&r, "attention.layer_norm_epsilon", 0, &m.norm_epsilon));
    TRY(read_real(&r, "attention.layer_norm_rms_epsilon", m.norm_epsilon, &m.norm_epsilon));
    TRY(read_real(&r, "rope.scale_linear", 1, &m.rope_factor)); /* of older files */
    TRY(read_real(&r, "rope.scaling.factor", m.rope_factor, &m.rope_factor));
    TRY(read_real(&r, "rope.scaling.original_context_length", 8192, &m.rope_length));
    TRY(tow__gguf_read_rope(tensors, &m));
    TRY(check_others(&r));
    *model = m;
done:
    return status;
}

tow_status tow_gguf_model_read(const tow_tensors *tensors, tow_gguf_model *model)
{
    if (!tensors || !model)
        return tow__missing(tensors ? tensors->ctx : NULL, __func__, "tensors and a place for the model");
    *model = (tow_gguf_model){.architecture = NULL};
    const tow_status status = read_model(tensors, model);
    if (status == TOW_OK || tensors->n_files == 0) return status;
    return tow__fail(tensors->ctx, status, "%s: %s", tensors->files[0].path, tow_context_error(tensors->ctx));
}
