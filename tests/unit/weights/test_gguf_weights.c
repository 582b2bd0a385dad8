/* Weights in GGUF files: the models of tests/oracle/gguf_models.py, of which llama.cpp makes torch's logits, give the
 * parameters that transformers' files give; each is translated to the other; parameters in place of the mapped file.
 * Tests translate.c, load_save.c, weights/dtypes.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "src/base/base.h"
#include "src/io/file_calls.h"
#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/io_files.h"
#include "tow/tow.h"

#define GOLDEN TOW_TEST_DATA "/oracle/golden/"
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TOW_OK) fail_msg("%s: %s", #call, tow_context_error(f->ctx));                                    \
    } while (0)

/* A model: the tables of its names on both sides, the features of a head, the tolerance of norms with 1 added. */
typedef struct kind {
    const char *name, *theirs, *gguf;
    int64_t head;
    float tolerance;
} kind;
static const kind kinds[] = {
    {"llama_biases", "llama", "gguf-llama", 4, 0}, {"llama", "llama", "gguf-llama", 4, 0},
    {"qwen2", "llama", "gguf-qwen2", 4, 0},        {"qwen3", "qwen3", "gguf-qwen3", 8, 0},
    {"gemma", "gemma", "gguf-gemma", 8, 0x1p-23F}, {"gemma2", "gemma2", "gguf-gemma2", 8, 0x1p-23F},
    {"gpt2", "gpt2", "gguf-gpt2", 4, 0},
};
enum {
    N_KINDS = sizeof kinds / sizeof *kinds
};

typedef struct paths {
    char folder[256], gguf[256], a[128], b[128];
} paths;

static paths paths_of(const fixture *f, const kind *k)
{
    paths p;
    snprintf(p.folder, sizeof p.folder, GOLDEN "weights/%s", k->name);
    snprintf(p.gguf, sizeof p.gguf, GOLDEN "gguf/models/%s.gguf", k->name);
    snprintf(p.a, sizeof p.a, "%s/a.gguf", f->directory);
    snprintf(p.b, sizeof p.b, "%s/b.safetensors", f->directory);
    return p;
}

static tow_weight_mapping *mapping_of(const fixture *f, const char *name)
{
    tow_weight_mapping *m;
    OK(tow_weight_mapping_read(f->ctx, name, &m));
    return m;
}

static tow_tensors *open_set(const fixture *f, const char *path)
{
    tow_tensors *t;
    const size_t length = strlen(path);
    const bool gguf = strcmp(path + length - 5, ".gguf") == 0;
    OK((gguf ? tow_gguf_read : tow_safetensors_read)(f->ctx, path, &t));
    return t;
}

/* Same names, shapes, and elements, apart from the norms of Gemma. */
static void assert_same(const fixture *f, const char *path, const char *wanted_path, float tolerance)
{
    tow_tensors *found = open_set(f, path), *wanted = open_set(f, wanted_path);
    assert_int_equal(tow_tensors_count(found), tow_tensors_count(wanted));
    for (size_t i = 0; i < tow_tensors_count(wanted); i++) {
        const char *name = tow_tensors_name(wanted, i);
        const tow_array *x = tow_tensors_find(found, name), *y = tow_tensors_at(wanted, i);
        if (!x) fail_msg("%s: no %s", path, name);
        assert_true(tow_type_equal(tow_array_type(x), tow_array_type(y)));
        const float *a = tow_array_data(x), *b = tow_array_data(y);
        const float most = tow_array_type(x).rank == 1 ? tolerance : 0;
        for (int64_t j = 0; j < tow_type_element_count(tow_array_type(x)); j++)
            if (!(fabsf(a[j] - b[j]) <= most)) fail_msg("%s: %s[%d]: %g, expected %g", path, name, (int)j, a[j], b[j]);
    }
    tow_tensors_free(found);
    tow_tensors_free(wanted);
}

static tow_weight_mapping_options with_axes(const kind *k, tow_weight_mapping_axis axes[2])
{
    axes[0] = (tow_weight_mapping_axis){"k", k->head};
    axes[1] = (tow_weight_mapping_axis){"p", k->head / 2};
    return TOW_WEIGHT_MAPPING_OPTIONS(.n_axes = 2, .axes = axes);
}

/* Both files become the same parameters. */
static void the_same_parameters(void **state)
{
    fixture *f = *state;
    for (size_t i = 0; i < N_KINDS; i++) {
        const kind *k = &kinds[i];
        const paths p = paths_of(f, k);
        tow_weight_mapping_axis axes[2];
        const tow_weight_mapping_options options = with_axes(k, axes);
        tow_weight_mapping *theirs = mapping_of(f, k->theirs), *gguf = mapping_of(f, k->gguf);
        char other[128];
        snprintf(other, sizeof other, "%s/c.safetensors", f->directory);
        OK(tow_weight_mapping_convert_file(f->ctx, theirs, p.folder, p.b, false, &options, NULL));
        OK(tow_weight_mapping_convert_file(f->ctx, gguf, p.gguf, other, false, &options, NULL));
        assert_same(f, other, p.b, k->tolerance);
        tow_weight_mapping_free(theirs);
        tow_weight_mapping_free(gguf);
    }
}

/* The file of transformers becomes that of llama.cpp, which llama.cpp has been seen to read, and back. */
static void translated(void **state)
{
    fixture *f = *state;
    for (size_t i = 0; i < N_KINDS; i++) {
        const kind *k = &kinds[i];
        const paths p = paths_of(f, k);
        char model[300];
        tow_weight_mapping_axis axes[2];
        tow_weight_mapping_options options = with_axes(k, axes);
        tow_weight_mapping *theirs = mapping_of(f, k->theirs), *gguf = mapping_of(f, k->gguf);
        tow_tensors *metadata, *written;
        OK(tow_tensors_create(f->ctx, &metadata));
        OK(tow_tensors_set_metadata(metadata, "general.architecture", k->name));
        options.metadata = metadata;
        OK(tow_weight_mapping_translate_file(f->ctx, theirs, p.folder, gguf, p.a, &options, NULL));
        assert_same(f, p.a, p.gguf, 0);
        OK(tow_gguf_mmap(f->ctx, p.a, &written));
        assert_string_equal(tow_tensors_metadata(written, "general.architecture"), k->name);
        tow_tensors_free(written);
        options.metadata = NULL;
        OK(tow_weight_mapping_translate_file(f->ctx, gguf, p.a, theirs, p.b, &options, NULL));
        snprintf(model, sizeof model, "%s/model.safetensors", p.folder);
        assert_same(f, p.b, model, k->tolerance);
        tow_tensors_free(metadata);
        tow_weight_mapping_free(theirs);
        tow_weight_mapping_free(gguf);
    }
}

/* A tensor that is no parameter comes from the set of metadata, and is left out where the options say so. */
static void scaled_positions(void **state)
{
    fixture *f = *state;
    const kind k = {"llama3", "llama", "gguf-llama", 8, 0};
    const paths p = paths_of(f, &k);
    tow_weight_mapping_axis axes[2];
    tow_weight_mapping_options options = with_axes(&k, axes);
    tow_weight_mapping *theirs = mapping_of(f, k.theirs), *gguf = mapping_of(f, k.gguf);
    tow_tensors *golden = open_set(f, p.gguf), *more;
    tow_array *factors;
    char model[300];
    OK(tow_tensors_get(golden, "rope_freqs.weight", &factors));
    OK(tow_tensors_create(f->ctx, &more));
    OK(tow_tensors_add(more, "rope_freqs.weight", factors));
    options.metadata = more;
    OK(tow_weight_mapping_translate_file(f->ctx, theirs, p.folder, gguf, p.a, &options, NULL));
    assert_same(f, p.a, p.gguf, 0);
    options.metadata = NULL;
    options.ignored = TOW_NAMES("output.weight", "rope_freqs.weight");
    OK(tow_weight_mapping_translate_file(f->ctx, gguf, p.a, theirs, p.b, &options, NULL));
    snprintf(model, sizeof model, "%s/model.safetensors", p.folder);
    assert_same(f, p.b, model, 0);
    options.ignored = NULL;
    options.metadata = more;
    OK(tow_tensors_add(more, "token_embd.weight", factors));
    assert_int_equal(tow_weight_mapping_translate_file(f->ctx, theirs, p.folder, gguf, p.a, &options, NULL),
                     TOW_INVALID_ARGUMENT);
    assert_message(f, "token_embd.weight: the set that .metadata is has a tensor of this name");
    tow_array_release(factors);
    tow_tensors_free(more);
    tow_tensors_free(golden);
    tow_weight_mapping_free(theirs);
    tow_weight_mapping_free(gguf);
}

/* Rules of the types of tensors: one for all layers, or for each where one matrix differs. */
static void types_of_files(void **state)
{
    fixture *f = *state;
    static const tow_dtype_rule expected[] = {
        {"tokens/embedding", TOW_Q8_0},           {"head/kernel", TOW_F16},
        {"blocks/*/ln1/scale", TOW_F32},          {"blocks/*/attn/query/kernel", TOW_Q4_0},
        {"blocks/0/attn/value/kernel", TOW_Q4_0}, {"blocks/1/attn/value/kernel", TOW_Q8_0},
        {"blocks/*/mlp/down/kernel", TOW_Q8_0},   {"blocks/*/mlp/up/kernel", TOW_Q4_0}};
    tow_weight_mapping *m = mapping_of(f, "gguf-llama");
    tow_weight_dtypes *dtypes;
    size_t count = 0;
    OK(tow_weight_mapping_dtypes(m, GOLDEN "gguf/models/kinds.gguf", NULL, &dtypes));
    assert_true(tow_weight_dtypes_by_layer(dtypes));
    const tow_dtype_rule *rules = tow_weight_dtypes_rules(dtypes);
    while (rules[count].pattern) count++;
    assert_int_equal(count, 3 + 9 + 1);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        size_t k = 0;
        while (k < count && strcmp(rules[k].pattern, expected[i].pattern) != 0) k++;
        if (k == count) fail_msg("no rule of %s", expected[i].pattern);
        assert_int_equal(rules[k].dtype, expected[i].dtype);
    }
    tow_weight_dtypes_free(dtypes);
    OK(tow_weight_mapping_dtypes(m, GOLDEN "gguf/models/few_bits.gguf", &TOW_WEIGHT_MAPPING_OPTIONS(.prefix = "model/"),
                                 &dtypes));
    assert_false(tow_weight_dtypes_by_layer(dtypes));
    assert_string_equal(tow_weight_dtypes_rules(dtypes)[0].pattern, "model/tokens/embedding");
    tow_weight_dtypes_free(dtypes);
    assert_int_equal(tow_weight_mapping_dtypes(m, "/nowhere.gguf", NULL, &dtypes), TOW_IO_ERROR);
    assert_null(dtypes);
    tow_weight_dtypes_free(NULL);
    tow_weight_mapping_free(m);
}

/* Files of GPT-2 and Gemma have a copy of the tokens, which is left out where it is equal. A head of another type
 * (tests/oracle/gguf_models.py) is a parameter, which transformers' GPT-2 does not have. */
static void copies_of_tokens(void **state)
{
    fixture *f = *state;
    for (size_t i = 4; i < N_KINDS; i++) { /* gemma, gemma2, gpt2 */
        const kind *k = &kinds[i];
        const paths p = paths_of(f, k);
        char wanted[128];
        snprintf(wanted, sizeof wanted, "%s/c.safetensors", f->directory);
        tow_weight_mapping_axis axes[2];
        const tow_weight_mapping_options options = with_axes(k, axes);
        tow_weight_mapping *theirs = mapping_of(f, k->theirs), *gguf = mapping_of(f, k->gguf);
        tow_tensors *set = open_set(f, p.gguf);
        OK(tow_tensors_add(set, "output.weight", (tow_array *)tow_tensors_find(set, "token_embd.weight")));
        OK(tow_gguf_write(p.a, set, NULL));
        OK(tow_weight_mapping_translate_file(f->ctx, gguf, p.gguf, theirs, wanted, &options, NULL));
        OK(tow_weight_mapping_translate_file(f->ctx, gguf, p.a, theirs, p.b, &options, NULL));
        assert_same(f, p.b, wanted, 0);
        if (i == N_KINDS - 1) {
            const tow_status status = tow_weight_mapping_translate_file(f->ctx, gguf, GOLDEN "gguf/models/copied.gguf",
                                                                        theirs, p.b, &options, NULL);
            assert_int_equal(status, TOW_NOT_FOUND);
            assert_message(f, "head/kernel");
        }
        tow_tensors_free(set);
        tow_weight_mapping_free(theirs);
        tow_weight_mapping_free(gguf);
    }
}

static void refused(void **state)
{
    fixture *f = *state;
    const paths p = paths_of(f, &kinds[0]);
    tow_weight_mapping_axis axes[2];
    tow_weight_mapping_options options = with_axes(&kinds[0], axes);
    tow_weight_mapping *theirs = mapping_of(f, "llama"), *gguf = mapping_of(f, "gguf-llama"),
                       *other = mapping_of(f, "gguf-gemma"), *bad;
    tow_weight_mapping_report *report = NULL;
    assert_int_equal(tow_weight_mapping_translate_file(f->ctx, other, p.folder, gguf, p.a, &options, &report),
                     TOW_NOT_FOUND);
    assert_non_null(report);
    tow_weight_mapping_report_free(report);
    assert_int_equal(tow_weight_mapping_translate_file(f->ctx, theirs, p.folder, other, p.a, &options, NULL),
                     TOW_NOT_FOUND);
    options.max_file_bytes = 100;
    assert_int_equal(tow_weight_mapping_translate_file(f->ctx, theirs, p.folder, gguf, p.a, &options, NULL),
                     TOW_UNSUPPORTED);
    assert_message(f, "a GGUF file is one file");
    options.max_file_bytes = 0; /* scaled positions are not left out unseen */
    assert_int_equal(
        tow_weight_mapping_translate_file(f->ctx, gguf, GOLDEN "gguf/models/llama3.gguf", theirs, p.b, &options, NULL),
        TOW_NOT_FOUND);
    assert_message(f, "rope_freqs.weight");
    tow_weight_mapping_free(theirs);
    tow_weight_mapping_free(gguf);
    tow_weight_mapping_free(other);
    static const struct {
        const char *text, *message;
    } rules[] = {{"a [(h x=0)] -> b [h x]", "expected the size of the axis 'x', 1 to 2^20 - 1"},
                 {"a [(h x=9999999)] -> b [h x]", "expected the size of the axis 'x'"},
                 {"a -> b plus", "expected a number behind 'plus'"},
                 {"a -> b plus one", "expected a number behind 'plus', found 'one'"},
                 {"a -> b plus 1e999", "expected a number behind 'plus'"}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        assert_int_equal(tow_weight_mapping_parse(f->ctx, "rules", rules[i].text, &bad), TOW_BAD_FORMAT);
        assert_message(f, rules[i].message);
    }
}

/* ---- in place ---------------------------------------------------------------------------------------------------- */

enum {
    N = 1 << 19, /* elements of a parameter */
    COLUMNS = N / 256,
    LITTLE = 1 << 18 /* bytes beside them */
};

static uint64_t dropped; /* bytes of pages given back */
static void count_drop(void *data, size_t bytes)
{
    (void)data;
    dropped += bytes;
}

/* Two parameters, of which the file has "same" in order, and the other transposed. */
static tow_params *make_params(tow_context *ctx)
{
    static const char *const names[] = {"same", "other"};
    tow_array *arrays[2];
    tow_params *params;
    for (int i = 0; i < 2; i++)
        assert_int_equal(tow_array_create(ctx,
                                          tow_make_type(TOW_F32, 2, (int64_t[]){i ? COLUMNS : 256, i ? 256 : COLUMNS}),
                                          &arrays[i]),
                         TOW_OK);
    assert_int_equal(tow_params_from_arrays(ctx, 2, names, arrays, &params), TOW_OK);
    for (int i = 0; i < 2; i++) tow_array_release(arrays[i]);
    return params;
}

static void write_file(const fixture *f, const char *path)
{
    tow_tensors *t;
    tow_array *array;
    OK(tow_tensors_create(f->ctx, &t));
    OK(tow_array_create(f->ctx, tow_make_type(TOW_F32, 2, (int64_t[]){256, COLUMNS}), &array));
    for (int i = 0; i < N; i++) ((float *)tow_array_data(array))[i] = (float)i;
    OK(tow_tensors_add(t, "t.same", array));
    OK(tow_tensors_add(t, "t.other", array));
    OK(strstr(path, ".gguf") ? tow_gguf_write(path, t, NULL) : tow_safetensors_write(path, t));
    tow_array_release(array);
    tow_tensors_free(t);
}

/* A parameter in place takes no memory, the other one its own, once: pages that were copied are given back. */
static void in_place(void **state)
{
    fixture *f = *state;
    static const char rules[] = "t.same -> same\nt.other [a b] -> other [b a]\n";
    static const char *const names[] = {"a.gguf", "b.safetensors"};
    for (int way = 0; way < 4; way++) {
        counting c;
        tow_context_options options = counting_options(&c, -1);
        tow__file_calls calls = tow__system_file_calls;
        tow_context *ctx;
        tow_weight_mapping *m;
        char path[128];
        const bool place = way < 2;
        snprintf(path, sizeof path, "%s/%s", f->directory, names[way % 2]);
        write_file(f, path);
        assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
        calls.drop = count_drop;
        ctx->file_calls = &calls;
        assert_int_equal(tow_weight_mapping_parse(ctx, "rules", rules, &m), TOW_OK);
        tow_params *params = make_params(ctx);
        const size_t before = c.bytes;
        c.peak = before;
        dropped = 0;
        const tow_status status =
            tow_weight_mapping_load_file(m, params, path, &TOW_WEIGHT_MAPPING_OPTIONS(.in_place = place), NULL);
        if (status != TOW_OK) fail_msg("%s", tow_context_error(ctx));
        /* never more than the parameters that were there, and a header */
        assert_true(c.peak - before < LITTLE);
        if (place)
            assert_true(before - c.bytes > N * sizeof(float) - LITTLE); /* the array of "same" is gone */
        else
            assert_true(before - c.bytes < LITTLE || c.bytes - before < LITTLE);
        assert_true(dropped >= (place ? 1u : 2u) * N * sizeof(float));
        const float *same = tow_array_data(tow_params_find(params, "same")),
                    *other = tow_array_data(tow_params_find(params, "other"));
        for (int i = 0; i < N; i++) {
            assert_true(same[i] == (float)i);
            assert_true(other[i % COLUMNS * 256 + i / COLUMNS] == (float)i);
        }
        ((float *)tow_array_data(tow_params_find(params, "same")))[0] = 7; /* of memory alone */
        tow_params *again = make_params(ctx);
        assert_int_equal(tow_weight_mapping_load_file(m, again, path, NULL, NULL), TOW_OK);
        assert_true(*(float *)tow_array_data(tow_params_find(again, "same")) == 0);
        tow_params_free(again);
        tow_params_free(params);
        tow_weight_mapping_free(m);
        tow_context_free(ctx);
        assert_int_equal(c.blocks, 0);
    }
}

/* Blocks of few bits become the parameters' floats: one tensor at a time. */
static void of_few_bits(void **state)
{
    fixture *f = *state;
    static const char rules[] = "t.same -> same\nt.other [a b] -> other [b a]\n";
    counting c;
    tow_context_options options = counting_options(&c, -1);
    tow_context *ctx;
    tow_weight_mapping *m;
    tow_tensors *t;
    char path[128];
    snprintf(path, sizeof path, "%s/a.gguf", f->directory);
    write_file(f, path);
    t = open_set(f, path);
    OK(tow_gguf_write(path, t, &TOW_GGUF_WRITE_OPTIONS(.type = TOW_GGUF_Q8_0)));
    tow_tensors_free(t);
    assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
    assert_int_equal(tow_weight_mapping_parse(ctx, "rules", rules, &m), TOW_OK);
    tow_params *params = make_params(ctx);
    const size_t before = c.bytes;
    c.peak = before;
    const tow_status status =
        tow_weight_mapping_load_file(m, params, path, &TOW_WEIGHT_MAPPING_OPTIONS(.in_place = true), NULL);
    if (status != TOW_OK) fail_msg("%s", tow_context_error(ctx));
    assert_true(c.peak - before < N * sizeof(float) + LITTLE);
    const float *same = tow_array_data(tow_params_find(params, "same")),
                *other = tow_array_data(tow_params_find(params, "other"));
    for (int i = 0; i < N; i++) {
        const float most = (float)(i / 32 * 32 + 31); /* of the block; a scale is off by 2^-11 of itself */
        assert_true(fabsf(same[i] - (float)i) <= most / 254 + most * 0x1p-11F);
        assert_true(other[i % COLUMNS * 256 + i / COLUMNS] == same[i]);
    }
    tow_params_free(params);
    tow_weight_mapping_free(m);
    tow_context_free(ctx);
    assert_int_equal(c.blocks, 0);
}

/* ---- parameters in blocks ---------------------------------------------------------------------------------------- */

enum {
    HEADS = 3,
    HEAD = 4 /* features of a head */
};

/* Writes queries, keys and values of HEADS heads as one tensor of a GGUF file, queries in Llama's pairs, an embedding,
 * and a projection: each with numbers that tell rows apart, of so many columns for a block. */
static void write_blocks(const fixture *f, const char *path, tow_dtype dtype, int64_t block)
{
    static const struct {
        const char *name;
        int64_t rows, blocks;
    } tensors[] = {
        {"qkv.weight", 3 * HEADS * HEAD, 2}, {"q.weight", HEADS * HEAD, 2}, {"e.weight", 5, 2}, {"o.weight", 8, 1}};
    tow_tensors *t;
    OK(tow_tensors_create(f->ctx, &t));
    for (size_t i = 0; i < 4; i++) {
        const int64_t columns = tensors[i].blocks * block;
        tow_array *numbers, *array;
        OK(tow_array_create(f->ctx, tow_make_type(TOW_F32, 2, (int64_t[]){tensors[i].rows, columns}), &numbers));
        for (int64_t j = 0; j < tensors[i].rows * columns; j++)
            ((float *)tow_array_data(numbers))[j] = (float)(j / columns + 1) * (float)(j % 7 - 3);
        OK(tow_array_convert(numbers, dtype, &array));
        OK(tow_tensors_add(t, tensors[i].name, array));
        tow_array_release(array), tow_array_release(numbers);
    }
    OK(tow_gguf_write(path, t, NULL));
    tow_tensors_free(t);
}

static const char block_rules[] = "qkv.weight [(* h k) d] -> {a,b,c}/kernel [d h k]\n"
                                  "q.weight [(h p x=2) d] -> q/kernel [d h (x p)]\n"
                                  "e.weight -> e/embedding\n"
                                  "o.weight [d (h k)] -> o/kernel [h k d]\n";
enum {
    N_BLOCKS = 6
};

static tow_params *make_block_params(tow_context *ctx, tow_dtype dtype)
{
    static const char *const names[] = {"a/kernel", "b/kernel", "c/kernel", "q/kernel", "e/embedding", "o/kernel"};
    static const int64_t dims[N_BLOCKS][2] = {
        {HEADS * HEAD, 2}, {HEADS * HEAD, 2}, {HEADS * HEAD, 2}, {HEADS * HEAD, 2}, {5, 2}, {8, 1}};
    tow_array *arrays[N_BLOCKS];
    tow_params *params;
    for (int i = 0; i < N_BLOCKS; i++)
        assert_int_equal(tow_array_create(ctx, tow_make_type(dtype, 2, dims[i]), &arrays[i]), TOW_OK);
    assert_int_equal(tow_params_from_arrays(ctx, N_BLOCKS, names, arrays, &params), TOW_OK);
    for (int i = 0; i < N_BLOCKS; i++) tow_array_release(arrays[i]);
    return params;
}

/* Rows of a parameter are those of a tensor, untouched. */
static void assert_rows(const tow_params *params, const char *path, const tow_array *tensor, int64_t first,
                        const int *order)
{
    const tow_array *array = tow_params_find(params, path);
    const tow_type type = tow_array_type(array);
    const size_t row = (size_t)type.dims[1] * tow_dtype_size(type.dtype);
    for (int64_t i = 0; i < type.dims[0]; i++) {
        const int64_t from = first + (order ? order[i] : i);
        if (memcmp((char *)tow_array_data(array) + (size_t)i * row, (char *)tow_array_data(tensor) + (size_t)from * row,
                   row) != 0)
            fail_msg("%s: row %d is not row %d", path, (int)i, (int)from);
    }
}

/* Parameters in blocks get those of the file, row by row, in place where the rows follow one another; of other floats
 * blocks are made. */
static void into_blocks(void **state)
{
    fixture *f = *state;
    static const int pairs[HEADS * HEAD] = {0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11}; /* halves of a head in pairs */
    static const tow_weight_mapping_axis axes[] = {{"p", HEAD / 2}};
    static const tow_dtype dtypes[] = {TOW_Q8_0, TOW_Q4_0, TOW_Q4_K, TOW_Q6_K};
    char path[128], wide[128];
    tow_weight_mapping *m;
    OK(tow_weight_mapping_parse(f->ctx, "rules", block_rules, &m));
    snprintf(path, sizeof path, "%s/a.gguf", f->directory);
    snprintf(wide, sizeof wide, "%s/wide.gguf", f->directory);
    for (int way = 0; way < 12; way++) {
        const tow_dtype dtype = dtypes[way / 3];
        const bool place = way % 3 == 1, made = way % 3 == 2;
        tow_tensors *t;
        tow_array *qkv, *q, *e, *o;
        write_blocks(f, wide, TOW_F32, tow_dtype_numbers(dtype));
        write_blocks(f, path, dtype, tow_dtype_numbers(dtype));
        OK(tow_gguf_mmap(f->ctx, path, &t));
        OK(tow_tensors_get_with(t, "qkv.weight", dtype, &qkv));
        OK(tow_tensors_get_with(t, "q.weight", dtype, &q));
        OK(tow_tensors_get_with(t, "e.weight", dtype, &e));
        OK(tow_tensors_get_with(t, "o.weight", dtype, &o));
        tow_params *params = make_block_params(f->ctx, dtype);
        const void *before = tow_array_data(tow_params_find(params, "b/kernel"));
        const void *turned = tow_array_data(tow_params_find(params, "q/kernel"));
        tow_weight_mapping_options options =
            TOW_WEIGHT_MAPPING_OPTIONS(.in_place = place, .convert = made, .n_axes = 1, .axes = axes);
        OK(tow_weight_mapping_load_file(m, params, made ? wide : path, &options, NULL));
        assert_rows(params, "a/kernel", qkv, 0, NULL);
        assert_rows(params, "b/kernel", qkv, HEADS * HEAD, NULL);
        assert_rows(params, "c/kernel", qkv, 2 * HEADS * HEAD, NULL);
        assert_rows(params, "q/kernel", q, 0, pairs);
        assert_rows(params, "e/embedding", e, 0, NULL);
        assert_rows(params, "o/kernel", o, 0, NULL);
        assert_true((tow_array_data(tow_params_find(params, "b/kernel")) != before) == place);
        assert_true(tow_array_data(tow_params_find(params, "q/kernel")) == turned);
        tow_params_free(params);
        tow_array_release(qkv);
        tow_array_release(q);
        tow_array_release(e);
        tow_array_release(o);
        tow_tensors_free(t);
    }
    write_blocks(f, wide, TOW_F32, 32);
    tow_params *params = make_block_params(f->ctx, TOW_Q8_0);
    tow_weight_mapping_options options = TOW_WEIGHT_MAPPING_OPTIONS(.n_axes = 1, .axes = axes);
    assert_int_equal(tow_weight_mapping_load_file(m, params, wide, &options, NULL), TOW_TYPE_MISMATCH);
    assert_message(f, "expected q8_0, found f32; to convert it, load it with .convert");
    options.convert = true;
    options.n_axes = 0;
    assert_int_equal(tow_weight_mapping_load_file(m, params, wide, &options, NULL), TOW_INVALID_ARGUMENT);
    assert_message(f, "the shapes do not tell the size of the axis");
    tow_params_free(params);
    tow_weight_mapping_free(m);
}

static void allocations_fail_in_turn(void **state)
{
    fixture *f = *state;
    const kind *k = &kinds[0];
    const paths p = paths_of(f, k);
    tow_weight_mapping_axis axes[2];
    const tow_weight_mapping_options options = with_axes(k, axes);
    for (long fail_at = 0, step = 1;; fail_at += step, step += step / 8) {
        counting c;
        tow_context_options context_options = counting_options(&c, fail_at);
        tow_context *ctx;
        tow_weight_mapping *theirs = NULL, *gguf = NULL;
        tow_weight_dtypes *dtypes = NULL;
        if (tow_context_create(&context_options, &ctx) != TOW_OK) continue;
        tow_status status = tow_weight_mapping_read(ctx, k->theirs, &theirs);
        if (status == TOW_OK) status = tow_weight_mapping_read(ctx, k->gguf, &gguf);
        if (status == TOW_OK)
            status = tow_weight_mapping_translate_file(ctx, theirs, p.folder, gguf, p.a, &options, NULL);
        if (status == TOW_OK) status = tow_weight_mapping_dtypes(gguf, p.gguf, NULL, &dtypes);
        tow_weight_dtypes_free(dtypes);
        tow_weight_mapping_free(theirs);
        tow_weight_mapping_free(gguf);
        tow_context_free(ctx);
        assert_int_equal(c.blocks, 0);
        assert_true(status == TOW_OK || status == TOW_OUT_OF_MEMORY);
        if (status == TOW_OK) break;
    }
}

/* Resident bytes of the mappings of a file. */
static size_t resident(const char *path)
{
    char line[512];
    size_t sum = 0, bytes;
    bool inside = false;
    FILE *file = fopen("/proc/self/smaps", "r");
    if (!file) return 0;
    while (fgets(line, sizeof line, file)) {
        if (strchr(line, '-') && strchr(line, '-') < strchr(line, ' ')) inside = strstr(line, path) != NULL;
        if (inside && sscanf(line, "Rss: %zu kB", &bytes) == 1) sum += bytes * 1024;
    }
    fclose(file);
    return sum;
}

/* After loading, and after all elements were read, the file's pages that memory holds are those of the parameters in
 * place, and some around them: how many one fault brings is the system's choice. */
static void resident_bytes(void **state)
{
    fixture *f = *state;
    static const char rules[] = "t.same -> same\nt.other [a b] -> other [b a]\n";
    char path[128];
    tow_weight_mapping *m;
    float sum = 0;
    snprintf(path, sizeof path, "%s/a.gguf", f->directory);
    write_file(f, path);
    OK(tow_weight_mapping_parse(f->ctx, "rules", rules, &m));
    tow_params *params = make_params(f->ctx);
    OK(tow_weight_mapping_load_file(m, params, path, &TOW_WEIGHT_MAPPING_OPTIONS(.in_place = true), NULL));
    for (int i = 0; i < N; i++) sum += ((float *)tow_array_data(tow_params_find(params, "same")))[i];
    assert_true(sum > 0);
    assert_true(resident(path) <= N * sizeof(float) * 3 / 2); /* of two parameters */
    tow_params_free(params);
    tow_weight_mapping_free(m);
}

/* A file that is cut off is refused when it is opened, whatever part is missing. */
static void cut_off(void **state)
{
    fixture *f = *state;
    static unsigned char bytes[2 * N * sizeof(float) + 4096];
    char path[128];
    tow_tensors *t;
    for (int way = 0; way < 2; way++) {
        snprintf(path, sizeof path, "%s/%s", f->directory, way ? "b.safetensors" : "a.gguf");
        write_file(f, path);
        const size_t size = read_bytes(path, bytes, sizeof bytes);
        for (size_t cut = 1; cut < size; cut *= 4) {
            write_bytes(path, bytes, size - cut);
            assert_int_equal((way ? tow_safetensors_mmap : tow_gguf_mmap)(f->ctx, path, &t), TOW_BAD_FORMAT);
            assert_null(t);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_same_parameters),
        TEST(translated),
        TEST(scaled_positions),
        TEST(types_of_files),
        TEST(copies_of_tokens),
        TEST(refused),
        TEST(in_place),
        TEST(resident_bytes),
        TEST(cut_off),
        TEST(of_few_bits),
        TEST(into_blocks),
        TEST(allocations_fail_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
