/* dictionary [NAME]: prints the dictionary NAME for libFuzzer, or the names of all. That of graphs has all that the
 * tables of the library know: primitives, their parameters, element types. The printed dictionaries are committed,
 * because the builds that fuzz cannot run programs without libFuzzer; a test compares. */
#include <stdio.h>

#include "src/graph/policy.h"
#include "src/graph/primitive.h"
#include "src/io/tensors.h"

static void add(const char *word)
{
    putchar('"');
    for (const char *c = word; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\') putchar('\\');
        if ((unsigned char)*c < ' ' || (unsigned char)*c > '~')
            printf("\\x%02X", (unsigned)(unsigned char)*c);
        else
            putchar(*c);
    }
    puts("\"");
}

static void add_all(const char *const *words)
{
    for (; *words != NULL; words++) add(*words);
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

/* One example of a value; what a list or a number is, mutation finds out. */
static const char *const values[] = {
    [TOW__P_INT] = "1",
    [TOW__P_FLOAT] = "0.5",
    [TOW__P_AMOUNT] = "0.5",
    [TOW__P_BOOL] = "true",
    [TOW__P_COUNT] = "1",
    [TOW__P_DTYPE] = "i32",
    [TOW__P_INTS] = "(0,1)",
    [TOW__P_TYPES] = "(f32[2])",
    [TOW__P_STRING] = "\"a\"",
    [TOW__P_ARRAY] = "2.0",
    [TOW__P_POLICY] = "\"nothing\"",
    [TOW__P_GRAPH] = "{ lambda ; a:f32[]. let in (a) }",
    [TOW__P_GRAPHS] = "({ lambda ; a:f32[]. let in (a) } { lambda ; a:f32[]. let in (a) })",
};

/* A primitive with all its parameters, as they stand in a graph. */
static void add_primitive(const tow_primitive *primitive)
{
    char text[1024];
    size_t length = (size_t)snprintf(text, sizeof text, "%s", primitive->name);
    const char *before = "[";
    for (const tow__param *p = primitive->params; p != NULL && p->name != NULL; p++) {
        if (tow__is_of_plans(p->kind)) continue;
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%s=%s", before, p->name, values[p->kind]);
        before = " ";
    }
    snprintf(text + length, sizeof text - length, "%s", before[0] == ' ' ? "] " : " ");
    add(text);
}

static int graph(void)
{
    static const char *const words[] = {"{ lambda ; ",
                                        ". let ",
                                        "in (",
                                        ") }",
                                        "[]",
                                        "[0]",
                                        "[1]",
                                        "[2,3]",
                                        "f32[2](1.0 -2.0)",
                                        "none",
                                        "nan",
                                        "inf",
                                        "-inf",
                                        "nan:ffc00001",
                                        "1e-06",
                                        "-1",
                                        "9223372036854775807",
                                        "1152921504606846975",
                                        "\\x00",
                                        "#\n",
                                        NULL};
    add_all(words);
    for (int i = 1; i < TOW_DTYPE_END; i++) add(tow_dtype_name((tow_dtype)i));
    for (int i = TOW_Q8_0; i <= TOW_Q6_K; i++) add(tow_dtype_name((tow_dtype)i));
    for (size_t i = 0; i < tow__primitive_count; i++) add_primitive(tow__primitives[i]);
    return 0;
}

/* ---- policies ---------------------------------------------------------------------------------------------------- */

static const char *const spellings_of_jax[] = {"nothing_saveable",
                                               "everything_saveable",
                                               "dots_saveable",
                                               "checkpoint_dots",
                                               "dots_with_no_batch_dims_saveable",
                                               "checkpoint_dots_with_no_batch_dims",
                                               "save_only_these_names:a",
                                               "save_any_names_but_these:a",
                                               "save_anything_except_these_names:a",
                                               "save_from_both_policies(dots;nothing)",
                                               NULL};

/* Prints what every kind of policy prints, and other spellings. Returns 1 if one of them is not read. */
static int policy(void)
{
    static const char *const words[] = {"\"a b\"", "\\x0a", "\\\"", "\\\\", ":", ",", ";", "(", ")", NULL};
    static const tow_policy nothing = {.kind = TOW_POLICY_NOTHING};
    tow_context *ctx;
    int failed = 0;
    for (int kind = TOW_POLICY_NOTHING; kind < TOW_POLICY_CUSTOM; kind++) {
        const tow_policy p = {.kind = (tow_policy_kind)kind, .names = TOW_NAMES("a"), .a = &nothing, .b = &nothing};
        char text[256];
        tow_policy_text(&p, text, sizeof text);
        add(text);
    }
    if (tow_context_create(NULL, &ctx) != TOW_OK) return 1;
    for (const char *const *s = spellings_of_jax; *s != NULL; s++) {
        tow_policy *read = NULL;
        if (tow_policy_parse(ctx, *s, &read) != TOW_OK) failed = fprintf(stderr, "%s\n", tow_context_error(ctx)) > 0;
        tow_policy_free(read);
    }
    tow_context_free(ctx);
    add_all(spellings_of_jax);
    add_all(words);
    return failed;
}

/* ---- headers of files -------------------------------------------------------------------------------------------- */

static int safetensors(void)
{
    static const char *const words[] = {"{\"__metadata__\":{",
                                        "\"dtype\":\"F32\"",
                                        "\"shape\":[1,2]",
                                        "\"data_offsets\":[0,8]",
                                        "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}",
                                        "\"tow.xxh3\":\"",
                                        "\"tow.xxh3/",
                                        "\"0123456789abcdef\"",
                                        "F8_E4M3",
                                        "\\u0041",
                                        "\\ud83d\\ude00",
                                        "\\\"",
                                        "\\n",
                                        "9223372036854775807",
                                        "1152921504606846975",
                                        "params/",
                                        "state/",
                                        "adam/mu/",
                                        "adam/nu/",
                                        "\"format\":\"tow-train-state-1\"",
                                        "\"optimizer\":\"",
                                        "\"step\":\"",
                                        "\"seed\":\"",
                                        "\"data_position\":\"",
                                        "\"description\":\"\"",
                                        "18446744073709551615",
                                        "{\"weight_map\":{\"a\":\"shard\"}}",
                                        "\"metadata\":{\"total_size\":4}",
                                        "[true,false,null,-1.5e3]",
                                        NULL};
    add_all(words);
    for (int i = 1; i < TOW_DTYPE_END; i++) add(tow__safetensors_dtype((tow_dtype)i));
    return 0;
}

static const char *const npy_words[] = {"\x93NUMPY\x01",
                                        "\x93NUMPY\x02",
                                        "'descr': '<f4'",
                                        "'<f2'",
                                        "'<f8'",
                                        "'|i1'",
                                        "'<i4'",
                                        "'<i8'",
                                        "'|u1'",
                                        "'<u4'",
                                        "'<u8'",
                                        "'|b1'",
                                        "'<V2'",
                                        "'>f4'",
                                        "'>u8'",
                                        "'fortran_order': False",
                                        "True",
                                        "'shape': (2, 3)",
                                        "(1,)",
                                        "()",
                                        "9223372036854775807",
                                        "1152921504606846975",
                                        NULL};

static int npy(void)
{
    add_all(npy_words);
    return 0;
}

static int npz(void)
{
    static const char *const words[] = {"PK\x03\x04", "PK\x01\x02",       "PK\x05\x06", "PK\x06\x06",
                                        "PK\x06\x07", "PK\x07\x08",       ".npy",       "x.npy",
                                        "\xff\xff",   "\xff\xff\xff\xff", NULL};
    add_all(words);
    add_all(npy_words);
    return 0;
}

static int gguf(void)
{
    static const char *const words[] = {"GGUF\x03",
                                        "\x11general.alignment",
                                        "\x14general.architecture",
                                        "\x05llama",
                                        "llama.block_count",
                                        "llama.attention.head_count_kv",
                                        "token_embd.weight",
                                        "\x08",
                                        "\x09",
                                        "\x0c",
                                        "\x20",
                                        "\x40",
                                        "\xff\xff\xff\xff",
                                        "\xff\xff\xff\xff\xff\xff\xff\x7f",
                                        NULL};
    add_all(words);
    return 0;
}

static int data(void)
{
    static const char *const words[] = {"\x08\x01",     "\x08\x03", "\x0b\x02", "\x0e\x01", "\x01\x08", "\x1f\x8b",
                                        "\xef\xbb\xbf", "\"",       "\"\"",     ",\"",      "\"\n",     "\r\n",
                                        "a,b\n",        "1e9",      "nan",      "inf",      ";",        "-",
                                        "0x1p3",        NULL};
    add_all(words);
    return 0;
}

static int events(void)
{
    static const char *const words[] = {"\x2a\x0d", "\x0a\x0b", "\x0a\x01l", "\x15",     "\x10\x01", "\x09",
                                        "\x42\x08", "\x08\x01", "\x22\x04",  "\x2a\x04", "\x3a\x02", NULL};
    add_all(words);
    return 0;
}

/* Words of a text that is a list of tokens, pieces and steps in JSON (tokenizer.json). */
static int tokenizer(void)
{
    static const char *const words[] = {
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}",
        "\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0,\"##b\":1,\"[UNK]\":2}}",
        "\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0,\"ab\":1,\"<unk>\":2}}",
        "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-1.5],[\"ab\",-2]]}",
        "\"precompiled_charsmap\":\"",
        "\"delimiter\":\"a\"",
        "\"unk_token\":\"",
        "\"byte_fallback\":true",
        "\"<0x0A>\"",
        "\"fuse_unk\":true",
        "\"ignore_merges\":true",
        "\"continuing_subword_prefix\":\"##\"",
        "\"max_input_chars_per_word\":100",
        "\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true}]",
        "\"single_word\":true",
        "\"lstrip\":true",
        "\"rstrip\":true",
        "\"normalized\":true",
        "\"normalizer\":{\"type\":\"",
        "\"pre_tokenizer\":{\"type\":\"",
        "\"post_processor\":{\"type\":\"",
        "\"decoder\":{\"type\":\"",
        "\"normalizers\":[",
        "\"pretokenizers\":[",
        "\"decoders\":[",
        "\"processors\":[",
        "\"pattern\":{\"Regex\":\"\\\\p{L}+|\\\\s+(?!\\\\S)\"}",
        "\"pattern\":{\"String\":\" \"}",
        "\"behavior\":\"Isolated\"",
        "\"invert\":true",
        "\"prepend\":\"",
        "\"content\":\"",
        "\"add_prefix_space\":true",
        "\"prepend_scheme\":\"first\"",
        "\"replacement\":\"\xe2\x96\x81\"",
        "\"individual_digits\":true",
        "\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}}]",
        "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}",
        "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[3],\"tokens\":[\"<s>\"]}}",
        "\xc4\xa0",
        "\\u0120",
        "null",
        NULL};
    static const char *const kinds[] = {"Sequence",
                                        "BertNormalizer",
                                        "NFC",
                                        "NFD",
                                        "Lowercase",
                                        "StripAccents",
                                        "Strip",
                                        "Prepend",
                                        "Replace",
                                        "ByteLevel",
                                        "Metaspace",
                                        "Split",
                                        "Whitespace",
                                        "Digits",
                                        "Punctuation",
                                        "WhitespaceSplit",
                                        "Fuse",
                                        "ByteFallback",
                                        "WordPiece",
                                        "TemplateProcessing",
                                        "Removed",
                                        "Contiguous",
                                        "MergedWithNext",
                                        "MergedWithPrevious",
                                        "BertPreTokenizer",
                                        "CharDelimiterSplit",
                                        "Precompiled",
                                        "NFKC",
                                        "NFKD",
                                        "BertProcessing",
                                        "RobertaProcessing",
                                        NULL};
    add_all(words);
    add_all(kinds);
    return 0;
}

static int mapping(void)
{
    static const char *const words[] = {"p.{i}.w",   "q/{i}/x",   " -> ",     "{u,v}", "[a b]",   "[+(a b)]",
                                        "[(* h k)]", "[a (h 2)]", "prefix p", "tied ", "ignore ", "optional",
                                        " | ",       " = ",       "#",        "\n",    "*",       "{i}",
                                        "a.0 -> u",  "h",         "\r\n",     NULL};
    add_all(words);
    return 0;
}

static const struct {
    const char *name;
    int (*print)(void);
} dictionaries[] = {{"graph", graph},     {"policy", policy}, {"safetensors", safetensors}, {"npy", npy},
                    {"npz", npz},         {"data", data},     {"events", events},           {"tokenizer", tokenizer},
                    {"mapping", mapping}, {"gguf", gguf}};

int main(int argc, char **argv)
{
    const size_t count = sizeof dictionaries / sizeof dictionaries[0];
    for (size_t i = 0; i < count; i++) {
        if (argc == 1) puts(dictionaries[i].name);
        if (argc == 2 && strcmp(argv[1], dictionaries[i].name) == 0) return dictionaries[i].print();
    }
    if (argc == 1) return 0;
    fprintf(stderr, "usage: %s [NAME], with a NAME that it lists without one\n", argv[0]);
    return 2;
}
