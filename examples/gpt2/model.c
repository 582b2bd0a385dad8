#include "model.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/common.h"

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static bool read_size(const json_t *root, const char *path, const char *name, int64_t otherwise, int64_t *size)
{
    const json_t *value = json_object_get(root, name);
    *size = json_is_integer(value) ? json_integer_value(value) : otherwise;
    if (*size > 0 && *size <= INT32_MAX) return true;
    fprintf(stderr, "gpt2: %s: expected a positive number as \"%s\"\n", path, name);
    return false;
}

/* Checks that the model is of the kind that this program knows; others would give other logits. */
static bool check_kind(const json_t *root, const char *path)
{
    static const struct {
        const char *name, *value;
    } texts[] = {{"model_type", "gpt2"}, {"activation_function", "gelu_new"}};
    for (size_t i = 0; i < 2; i++) {
        const char *value = json_string_value(json_object_get(root, texts[i].name));
        if (value ? strcmp(value, texts[i].value) == 0 : i > 0) continue;
        fprintf(stderr, "gpt2: %s: expected \"%s\" to be \"%s\", found %s\n", path, texts[i].name, texts[i].value,
                value ? value : "none");
        return false;
    }
    if (!json_is_true(json_object_get(root, "scale_attn_by_inverse_layer_idx")) &&
        !json_is_false(json_object_get(root, "tie_word_embeddings")))
        return true;
    fprintf(stderr, "gpt2: %s: untied embeddings and scales by layer are not known here\n", path);
    return false;
}

static bool read_sizes(const json_t *root, const char *path, gpt2_config *c)
{
    const double epsilon = json_number_value(json_object_get(root, "layer_norm_epsilon"));
    c->epsilon = epsilon > 0 ? epsilon : 1e-5;
    if (!check_kind(root, path) || !read_size(root, path, "vocab_size", 50257, &c->vocabulary) ||
        !read_size(root, path, "n_positions", 1024, &c->positions) ||
        !read_size(root, path, "n_embd", 768, &c->width) || !read_size(root, path, "n_layer", 12, &c->layers) ||
        !read_size(root, path, "n_head", 12, &c->heads) || !read_size(root, path, "n_inner", 4 * c->width, &c->hidden))
        return false;
    if (c->width % c->heads == 0) return true;
    fprintf(stderr, "gpt2: %s: %lld features do not divide into %lld heads\n", path, (long long)c->width,
            (long long)c->heads);
    return false;
}

bool gpt2_read_config(const char *directory, gpt2_config *config)
{
    json_error_t error;
    char *path = path_in("gpt2", directory, "config.json");
    json_t *root = path ? json_load_file(path, 0, &error) : NULL;
    if (path && !root) fprintf(stderr, "gpt2: %s: %s\n", path, error.text);
    const bool good = root && read_sizes(root, path, config);
    json_decref(root);
    free(path);
    return good;
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

/* tokens i32 [B, T] -> logits [B, T, V], of a model that decodes [B, 1, V]; tokens and labels i32 [B, T] -> losses [B,
 * T], without logits that exist as a whole. The children have the names that the mapping "gpt2" has. */
static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const gpt2 *m = (const gpt2 *)module;
    (void)n_out;
    tow_value x = tow_apply(scope, "tokens", &m->tokens, in[0]);
    x = tow_apply(scope, "positions", &m->positions, x);
    x = tow_apply(scope, "blocks", &m->blocks, x);
    if (m->block.decode) {
        const int64_t length = tow_value_type(x).dims[1];
        x = tow_slice_axis(x, 1, length - 1, length);
    }
    x = tow_apply(scope, "norm", &m->norm, x);
    out[0] = n_in == 1 ? tow_embed_attend(scope, "tokens", &m->tokens, x)
                       : tow_embed_cross_entropy(scope, "tokens", &m->tokens, x, in[1]);
}
static const tow_module_class gpt2_class = {.name = "GPT2", .call = call};

void gpt2_make(gpt2 *m, const gpt2_config *c, bool decode)
{
    m->module.cls = &gpt2_class;
    m->tokens = TOW_EMBED(.num_embeddings = c->vocabulary, .features = c->width);
    m->positions = TOW_LEARNED_POSITIONS(.max_length = c->positions, .decode = decode);
    m->block = TOW_TRANSFORMER_BLOCK(.heads = c->heads, .mlp_features = c->hidden, .causal = true,
                                     .epsilon = c->epsilon, .decode = decode, .cache_length = c->positions);
    m->blocks = TOW_SCAN(&m->block, .length = c->layers);
    m->norm = TOW_LAYER_NORM(.epsilon = c->epsilon);
}
