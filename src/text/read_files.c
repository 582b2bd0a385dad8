/* Tokenizers in other files: GPT-2's vocab.json and merges.txt, BERT's vocab.txt, GGUF; and directories. */
#include <errno.h>
#include <sys/stat.h>

#include "src/io/file_calls.h"
#include "src/io/gguf.h"
#include "src/text/read.h"

enum {
    MOST_BYTES = 1 << 30 /* of a file */
};

/* A whole file with a zero byte behind it. */
typedef struct file_text {
    tow_context *ctx;
    char *text;
    size_t length;
} file_text;

static tow_status read_text(tow_context *ctx, const char *path, file_text *f)
{
    tow__input_file file;
    tow_status status = TOW_OK;
    *f = (file_text){.ctx = ctx};
    TRY(tow__input_open(ctx, path, &file));
    if (file.size > MOST_BYTES) TRY(tow__fail(ctx, TOW_BAD_FORMAT, "%s: expected a file of at most 1 GiB", path));
    f->length = (size_t)file.size;
    f->text = tow__alloc(ctx, f->length + 1, 1);
    if (!f->text) TRY(TOW_OUT_OF_MEMORY);
    TRY(tow__input_read(&file, 0, f->text, f->length));
done:
    tow__input_close(&file);
    return status;
}

static void free_text(file_text *f)
{
    if (f->text) tow__free(f->ctx, f->text, f->length + 1, 1);
    f->text = NULL;
}

/* The next line without its end, a zero byte in place of that; NULL behind the last one. */
static char *next_line(char **at, size_t *length)
{
    char *line = *at, *stop = strchr(line, '\n');
    if (!*line) return NULL;
    *at = stop ? stop + 1 : line + strlen(line);
    if (stop) *stop = '\0';
    *length = strlen(line);
    if (*length > 0 && line[*length - 1] == '\r') line[--*length] = '\0';
    return line;
}

static tow_status check_whole(const char *path, const file_text *f)
{
    for (size_t at = 0; at < f->length;) {
        int broken;
        const int n = f->text[at] ? tow__utf8_check(f->text + at, f->length - at, &broken) : 0;
        if (n == 0)
            return tow__fail(f->ctx, TOW_BAD_FORMAT, "%s: expected a text in UTF-8, found the byte 0x%02x at byte %zu",
                             path, (unsigned)(unsigned char)f->text[at], at);
        at += (size_t)n;
    }
    return TOW_OK;
}

/* ---- GPT-2 ------------------------------------------------------------------------------------------------------- */

static tow_status read_merges(tow__token_reader *r, const char *path, file_text *f)
{
    uint32_t rank = 0;
    tow_status status = TOW_OK;
    size_t lines = 1, length;
    char *at = f->text;
    r->path = path;
    TRY(check_whole(path, f));
    for (const char *c = f->text; (c = strchr(c, '\n')); c++) lines++;
    TRY(tow__bpe_create(r->ctx, lines, &r->t->bpe));
    for (const char *line; (line = next_line(&at, &length));) {
        const char *space = strchr(line, ' ');
        if (length == 0 || strncmp(line, "#version", 8) == 0) continue;
        if (!space || strchr(space + 1, ' '))
            TRY(tow__refuse(r, TOW_BAD_FORMAT, "expected two tokens, found '%.100s'", line));
        TRY(tow__add_merge(r, line, (size_t)(space - line), space + 1, strlen(space + 1), rank++));
    }
done:
    return status;
}

static tow_status read_vocabulary(tow__token_reader *r)
{
    const tow__node *root = &r->dom.nodes[0];
    tow_status status = TOW_OK;
    if (root->kind != TOW__NODE_OBJECT) return tow__refuse(r, TOW_BAD_FORMAT, "expected an object of tokens and ids");
    for (const tow__node *n = tow__dom_first(&r->dom, root); n; n = tow__dom_next(&r->dom, n)) {
        if (n->kind != TOW__NODE_NUMBER || !n->integral || n->integer < 0 || n->integer > INT32_MAX)
            return tow__refuse(r, TOW_BAD_FORMAT, "expected an id of the token '%.100s'", n->key);
        status = tow__vocabulary_add(&r->t->vocabulary, n->key, strlen(n->key), (int32_t)n->integer);
        if (status == TOW_BAD_FORMAT) return tow__refuse(r, status, "%.400s", tow_context_error(r->ctx));
        TRY(status);
    }
done:
    return status;
}

tow_status tow_tokenizer_read_bpe(tow_context *context, const char *vocab_json, const char *merges_txt,
                                  tow_tokenizer **tokenizer)
{
    if (tokenizer) *tokenizer = NULL;
    if (!context || !vocab_json || !merges_txt || !tokenizer)
        return tow__missing(context, __func__, "a context, two paths and a place for the tokenizer");
    tow__token_reader r = {.ctx = context, .path = vocab_json, .dom.ctx = context};
    file_text vocabulary = {.ctx = context}, merges = {.ctx = context};
    const tow__added special = {.normalized = false};
    tow_status status = TOW_OK;
    TRY(read_text(context, vocab_json, &vocabulary));
    TRY(read_text(context, merges_txt, &merges));
    TRY(tow__dom_parse(context, vocab_json, vocabulary.text, vocabulary.length, &r.dom));
    TRY(tow__tokenizer_create(context, &r.t));
    r.t->byte_level = r.t->bpe.byte_level = true;
    r.t->splits[r.t->n_splits++] = (tow__splitter){.kind = TOW__SPLIT_GPT2};
    r.t->decoders[r.t->n_decoders++] = (tow__text_decoder){.kind = TOW__DECODE_BYTE_LEVEL};
    TRY(read_vocabulary(&r));
    tow__find_bytes(&r);
    TRY(read_merges(&r, merges_txt, &merges));
    if (tow_tokenizer_id(r.t, "<|endoftext|>") >= 0) TRY(tow__add_added(&r, "<|endoftext|>", 0, true, &special));
    TRY(tow__tokenizer_finish(&r));
done:
    free_text(&vocabulary);
    free_text(&merges);
    tow__dom_free(&r.dom);
    if (status == TOW_OK)
        *tokenizer = r.t;
    else
        tow_tokenizer_free(r.t);
    return status;
}

/* ---- BERT -------------------------------------------------------------------------------------------------------- */

static tow_status read_lines(tow__token_reader *r, file_text *f)
{
    int32_t id = 0;
    size_t length;
    tow_status status = TOW_OK;
    char *at = f->text;
    TRY(check_whole(r->path, f));
    for (const char *line; (line = next_line(&at, &length)); id++) {
        status = tow__vocabulary_add(&r->t->vocabulary, line, length, id);
        if (status == TOW_BAD_FORMAT)
            return tow__refuse(r, status, "line %d: %.400s", (int)id + 1, tow_context_error(r->ctx));
        TRY(status);
    }
done:
    return status;
}

/* [CLS] A [SEP] B [SEP], and special tokens that are found in texts. */
static tow_status add_bert_specials(tow__token_reader *r)
{
    static const char *const names[] = {"[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"};
    const tow__added special = {.normalized = false};
    tow_tokenizer *t = r->t;
    tow_status status = TOW_OK;
    for (size_t i = 0; i < 5; i++)
        if (tow_tokenizer_id(t, names[i]) >= 0) TRY(tow__add_added(r, names[i], 0, true, &special));
    const int32_t cls = tow_tokenizer_id(t, "[CLS]"), sep = tow_tokenizer_id(t, "[SEP]");
    if (cls < 0 || sep < 0) return TOW_OK;
    const tow__template_step before = {.sequence = -1, .n_ids = 1, .ids = {cls}};
    const tow__template_step after = {.sequence = -1, .n_ids = 1, .ids = {sep}},
                             last = {.sequence = -1, .type = 1, .n_ids = 1, .ids = {sep}};
    t->single = (tow__template){.n = 3, .steps = {before, {.sequence = 0}, after}};
    t->pair = (tow__template){.n = 5, .steps = {before, {.sequence = 0}, after, {.sequence = 1, .type = 1}, last}};
    t->has_template = true;
done:
    return status;
}

tow_status tow_tokenizer_read_wordpiece(tow_context *context, const char *vocab_txt, bool lowercase,
                                        tow_tokenizer **tokenizer)
{
    if (tokenizer) *tokenizer = NULL;
    if (!context || !vocab_txt || !tokenizer)
        return tow__missing(context, __func__, "a context, a path and a place for the tokenizer");
    tow__token_reader r = {.ctx = context, .path = vocab_txt};
    file_text file = {.ctx = context};
    tow_status status = TOW_OK;
    TRY(read_text(context, vocab_txt, &file));
    TRY(tow__tokenizer_create(context, &r.t));
    tow_tokenizer *t = r.t;
    t->model = TOW__WORDPIECE;
    t->wordpiece.prefix = "##";
    t->wordpiece.max_characters = 100;
    t->normals[t->n_normals++] = (tow__normal){
        .kind = TOW__BERT_NORMAL, .clean = true, .chinese = true, .accents = lowercase, .lower = lowercase};
    t->splits[t->n_splits++] = (tow__splitter){.kind = TOW__SPLIT_BERT};
    t->decoders[t->n_decoders++] =
        (tow__text_decoder){.kind = TOW__DECODE_WORDPIECE, .from = "##", .to = "", .cleanup = true};
    TRY(read_lines(&r, &file));
    t->wordpiece.unk = tow_tokenizer_id(t, "[UNK]");
    if (t->wordpiece.unk < 0)
        TRY(tow__refuse(&r, TOW_BAD_FORMAT, "expected a line [UNK], the unknown token, found none"));
    TRY(add_bert_specials(&r));
    TRY(tow__tokenizer_finish(&r));
done:
    free_text(&file);
    if (status == TOW_OK)
        *tokenizer = r.t;
    else
        tow_tokenizer_free(r.t);
    return status;
}

/* ---- any of them ------------------------------------------------------------------------------------------------- */

static tow_status read_json(tow_context *ctx, const char *path, tow_tokenizer **tokenizer)
{
    file_text file;
    tow_status status = read_text(ctx, path, &file);
    if (status == TOW_OK) status = tow_tokenizer_parse(ctx, path, file.text, file.length, tokenizer);
    free_text(&file);
    return status;
}

/* "DIRECTORY/NAME" in *path; false if there is no such file. */
static bool find_file(tow_context *ctx, int directory, const char *base, const char *name, tow__string *path)
{
    struct stat info;
    int result;
    tow__string_free(path);
    tow__string_init(path, ctx);
    tow__string_add(path, "%.*s%s", directory, base, name);
    if (path->failed) return false;
    TOW__RETRY(result, tow__calls(ctx)->stat(path->text, &info));
    return result == 0;
}

/* Reads what tokenizer_config.json says about lower case; true if it says nothing. */
static tow_status lowers(tow_context *ctx, const char *path, bool *lower)
{
    file_text file;
    tow__token_reader r = {.ctx = ctx, .path = path, .dom.ctx = ctx};
    tow_status status = TOW_OK;
    TRY(read_text(ctx, path, &file));
    TRY(tow__dom_parse(ctx, path, file.text, file.length, &r.dom));
    *lower = tow__take_bool(&r, &r.dom.nodes[0], "do_lower_case", true);
    TRY(r.wrong);
done:
    tow__dom_free(&r.dom);
    free_text(&file);
    return status;
}

static tow_status read_beside(tow_context *ctx, int n, const char *base, tow_tokenizer **tokenizer)
{
    tow__string path, other;
    tow_status status;
    tow__string_init(&path, ctx);
    tow__string_init(&other, ctx);
    if (find_file(ctx, n, base, "tokenizer.json", &path)) {
        status = read_json(ctx, path.text, tokenizer);
    } else if (find_file(ctx, n, base, "vocab.json", &path) && find_file(ctx, n, base, "merges.txt", &other)) {
        status = tow_tokenizer_read_bpe(ctx, path.text, other.text, tokenizer);
    } else if (find_file(ctx, n, base, "vocab.txt", &path)) {
        bool lower = true;
        status = find_file(ctx, n, base, "tokenizer_config.json", &other) ? lowers(ctx, other.text, &lower) : TOW_OK;
        if (status == TOW_OK) status = tow_tokenizer_read_wordpiece(ctx, path.text, lower, tokenizer);
    } else {
        status =
            path.failed || other.failed
                ? TOW_OUT_OF_MEMORY
                : tow__fail(
                      ctx, TOW_IO_ERROR,
                      "%.*s: expected tokenizer.json, vocab.json with merges.txt, or vocab.txt, found none of them", n,
                      base);
    }
    tow__string_free(&path);
    tow__string_free(&other);
    return status;
}

static tow_status read_gguf(tow_context *ctx, const char *path, tow_tokenizer **tokenizer)
{
    tow_tensors *tensors;
    tow_status status = tow_gguf_mmap(ctx, path, &tensors);
    if (status != TOW_OK) return status;
    status = tow_tokenizer_from_tensors(ctx, tensors, tokenizer);
    tow_tensors_free(tensors);
    return status;
}

static bool is_called(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    return strcmp(slash ? slash + 1 : path, name) == 0;
}

tow_status tow_tokenizer_read(tow_context *context, const char *path, tow_tokenizer **tokenizer)
{
    if (tokenizer) *tokenizer = NULL;
    if (!context || !path || !tokenizer)
        return tow__missing(context, __func__, "a context, a path and a place for the tokenizer");
    struct stat info;
    int result;
    TOW__RETRY(result, tow__calls(context)->stat(path, &info));
    if (result == 0 && S_ISDIR(info.st_mode)) {
        tow__string directory;
        tow__string_init(&directory, context);
        tow__string_add(&directory, "%s/", path);
        const tow_status status = directory.failed
                                      ? TOW_OUT_OF_MEMORY
                                      : read_beside(context, (int)directory.length, directory.text, tokenizer);
        tow__string_free(&directory);
        return status;
    }
    const char *slash = strrchr(path, '/');
    const int directory = slash ? (int)(slash - path) + 1 : 0;
    if (is_called(path, "vocab.json") || is_called(path, "merges.txt") || is_called(path, "vocab.txt")) {
        if (!is_called(path, "vocab.txt")) return read_beside(context, directory, path, tokenizer);
        return tow_tokenizer_read_wordpiece(context, path, true, tokenizer);
    }
    bool is_gguf;
    const tow_status status = tow__gguf_recognize(context, path, &is_gguf);
    return status != TOW_OK ? status : (is_gguf ? read_gguf : read_json)(context, path, tokenizer);
}
