/* The steps around the tokens of a text: they are cut to a length, tokens of a template are put around them, and others
 * are added to reach a length. */
#include <inttypes.h>

#include "src/base/options.h"
#include "src/text/tokenizer.h"

static tow_status check_text(tow_tokenizer *t, const char *text, size_t length)
{
    if (length >= INT32_MAX)
        return tow__fail(t->ctx, TOW_INVALID_ARGUMENT,
                         "tow_tokenizer_encode: expected a text of less than 2 GiB, found %zu bytes", length);
    for (size_t at = 0; at < length;) {
        int broken;
        if ((unsigned char)text[at] < 0x80) {
            at++;
            continue;
        }
        const int n = tow__utf8_check(text + at, length - at, &broken);
        if (n == 0)
            return tow__fail(t->ctx, TOW_INVALID_ARGUMENT,
                             "tow_tokenizer_encode: expected UTF-8, found the byte 0x%02x at byte %zu of the text",
                             (unsigned)(unsigned char)text[at], at);
        at += (size_t)n;
    }
    return TOW_OK;
}

/* ---- cutting ----------------------------------------------------------------------------------------------------- */

/* The longer one loses tokens first; then both have half of them, the longer one also the odd one. */
static void cut_longest(size_t most, size_t *first, size_t *second)
{
    size_t *shorter = *first > *second ? second : first, *longer = *first > *second ? first : second;
    if (*shorter > most)
        *longer = *shorter;
    else if (*shorter > most - *shorter)
        *longer = *shorter;
    else
        *longer = most - *shorter;
    if (*shorter + *longer > most) {
        *shorter = most / 2;
        *longer = *shorter + most % 2;
    }
}

/* The numbers of tokens of the texts that stay, if there are `most`. */
static tow_status cut(const tow_tokenizer *t, const tow_encode_options *o, size_t most, size_t counts[2])
{
    const size_t all = counts[0] + counts[1];
    size_t *only = &counts[o->truncation == TOW_TRUNCATE_SECOND];
    if (all <= most) return TOW_OK;
    if (o->truncation == TOW_TRUNCATE_LONGEST) {
        if (o->pair)
            cut_longest(most, &counts[0], &counts[1]);
        else
            counts[0] = most;
        return TOW_OK;
    }
    if (*only <= all - most && most > 0)
        return tow__fail(
            t->ctx, TOW_INVALID_ARGUMENT,
            "tow_tokenizer_encode: expected more than %zu tokens of the %s text, to leave %zu out, found %zu",
            all - most, only == counts ? "first" : "second", all - most, *only);
    *only = most > 0 ? *only - (all - most) : 0;
    if (most == 0) counts[0] = counts[1] = 0;
    return TOW_OK;
}

/* ---- the template ------------------------------------------------------------------------------------------------ */

/* A piece of the work: the texts, and, if they are cut, their tokens. */
typedef struct around {
    tow_tokenizer *t;
    const tow_encode_options *options;
    const char *texts[2];
    size_t lengths[2], counts[2];
    tow_encoding *tokens[2]; /* NULL: not cut */
    tow_encoding *to;
} around;

static tow_status put_text(const around *a, const tow__template_step *step)
{
    const int which = step->sequence;
    const size_t first = a->to->count;
    tow_status status = TOW_OK;
    if (a->tokens[which]) {
        const tow_encoding *from = a->tokens[which];
        const size_t skip = a->options->truncate_left ? from->count - a->counts[which] : 0;
        for (size_t i = 0; i < a->counts[which]; i++)
            TRY(tow__encoding_push(a->to, from->tokens[skip + i], &from->margins[skip + i]));
    } else {
        TRY(tow__encode_text(a->t, a->texts[which], a->lengths[which], a->to));
    }
    for (size_t i = first; i < a->to->count; i++) a->to->tokens[i].type = step->type;
    tow__trim_offsets(a->t, a->texts[which], a->to, first);
done:
    return status;
}

static tow_status put_all(const around *a, const tow__template *template)
{
    tow_status status = TOW_OK;
    for (int i = 0; i < template->n; i++) {
        const tow__template_step *step = &template->steps[i];
        if (step->sequence >= 0) TRY(put_text(a, step));
        for (int k = 0; k < step->n_ids && !a->options->no_special; k++)
            TRY(tow__encoding_push(a->to, (tow_token){.id = step->ids[k], .type = step->type, .special = true}, NULL));
    }
done:
    return status;
}

/* Encodes the texts and decides what stays of each. */
static tow_status cut_texts(around *a, const tow__template *template)
{
    const tow_encode_options *o = a->options;
    size_t special = 0;
    tow_status status = TOW_OK;
    for (int i = 0; i < template->n && !o->no_special; i++) special += (size_t) template->steps[i].n_ids;
    if (special > o->max_length)
        return tow__fail(
            a->t->ctx, TOW_INVALID_ARGUMENT,
            "tow_tokenizer_encode: expected .max_length of at least %zu, the tokens around a text, found %zu", special,
            o->max_length);
    for (int i = 0; i < 2; i++) {
        TRY(tow_encoding_create(a->t->ctx, &a->tokens[i]));
        TRY(tow__encode_text(a->t, a->texts[i], a->lengths[i], a->tokens[i]));
        a->counts[i] = a->tokens[i]->count;
    }
    TRY(cut(a->t, o, o->max_length - special, a->counts));
done:
    return status;
}

/* ---- padding ----------------------------------------------------------------------------------------------------- */

static tow_status pad(const tow_encode_options *o, tow_encoding *e)
{
    const size_t count = e->count;
    size_t length = o->pad_length > 0 ? o->pad_length : count;
    tow_status status = TOW_OK;
    if (o->pad_multiple > 0 && length % o->pad_multiple > 0) length += o->pad_multiple - length % o->pad_multiple;
    if (length <= count) return TOW_OK;
    while (e->count < length)
        TRY(tow__encoding_push(e, (tow_token){.id = o->pad_id, .type = o->pad_type, .special = true}, NULL));
    if (!o->pad_left || count == 0) return TOW_OK;
    const tow_token padding = e->tokens[count];
    memmove(e->tokens + length - count, e->tokens, count * sizeof *e->tokens);
    memmove(e->ids + length - count, e->ids, count * sizeof *e->ids);
    for (size_t i = 0; i < length - count; i++) {
        e->tokens[i] = padding;
        e->ids[i] = padding.id;
    }
done:
    return status;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static tow_status check_options(const tow_tokenizer *t, const tow_encode_options *o)
{
    if ((unsigned)o->truncation > TOW_TRUNCATE_SECOND)
        return tow__fail(t->ctx, TOW_INVALID_ARGUMENT, "tow_tokenizer_encode: expected a tow_truncation, found %d",
                         (int)o->truncation);
    if (o->pad_length >= INT32_MAX || o->pad_multiple >= INT32_MAX)
        return tow__fail(t->ctx, TOW_INVALID_ARGUMENT,
                         "tow_tokenizer_encode: expected .pad_length and .pad_multiple below 2^31");
    return TOW_OK;
}

tow_status tow_tokenizer_encode(tow_tokenizer *t, const char *text, size_t length, const tow_encode_options *options,
                                tow_encoding *encoding)
{
    static const tow_encode_options none;
    tow_encode_options own;
    if (t && !TOW__OPTIONS_TAKE(t->ctx, tow_encode_options, options, &own)) return TOW_INVALID_ARGUMENT;
    const tow_encode_options *o = options ? options : &none;
    if (!t || (!text && length > 0) || !encoding || (!o->pair && o->pair_length > 0))
        return tow__missing(t ? t->ctx : NULL, __func__, "a tokenizer, a text and an encoding");
    around a = {.t = t, .options = o, .texts = {text, o->pair}, .lengths = {length, o->pair_length}, .to = encoding};
    const tow__template *template = o->pair ? &t->pair : &t->single;
    tow_status status = TOW_OK;
    encoding->count = 0;
    TRY(check_options(t, o));
    for (int i = 0; i < 2; i++) TRY(check_text(t, a.texts[i], a.lengths[i]));
    if (o->max_length > 0) TRY(cut_texts(&a, template));
    TRY(put_all(&a, template));
    TRY(pad(o, encoding));
done:
    for (int i = 0; i < 2; i++) tow_encoding_free(a.tokens[i]);
    if (status != TOW_OK) encoding->count = 0;
    return status;
}

const tow_encode_options *tow_tokenizer_options(const tow_tokenizer *tokenizer)
{
    return tokenizer ? &tokenizer->options : NULL;
}
