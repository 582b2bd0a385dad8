/* Post-processors of tokenizer.json: templates of the tokens around a text or two, and whether offsets are trimmed. */
#include "src/text/read.h"

/* The ids of a special token of a template. */
static tow_status special_ids(const tow__token_reader *r, const tow__node *node, const char *name,
                              tow__template_step *step)
{
    const tow__node *token = tow__dom_get(&r->dom, tow__dom_get(&r->dom, node, "special_tokens"), name);
    const tow__node *ids = tow__dom_get(&r->dom, token, "ids");
    if (!ids || ids->kind != TOW__NODE_ARRAY || ids->count > 4)
        return tow__refuse(r, TOW_BAD_FORMAT, "the template names '%.100s', which has no ids", name);
    for (const tow__node *n = tow__dom_first(&r->dom, ids); n; n = tow__dom_next(&r->dom, n)) {
        if (n->kind != TOW__NODE_NUMBER || !n->integral || n->integer < 0 || n->integer > INT32_MAX ||
            !tow_tokenizer_token(r->t, (int32_t)n->integer))
            return tow__refuse(r, TOW_BAD_FORMAT, "the template has an id of '%.100s' that is not in the vocabulary",
                               name);
        step->ids[step->n_ids++] = (int32_t)n->integer;
    }
    return TOW_OK;
}

static tow_status read_template(tow__token_reader *r, const tow__node *node, const char *key, tow__template *template)
{
    const tow__node *list = tow__dom_get(&r->dom, node, key);
    tow_status status = TOW_OK;
    *template = (tow__template){.n = 0};
    if (!list || list->kind != TOW__NODE_ARRAY)
        return tow__refuse(r, TOW_UNSUPPORTED, "expected the template \"%s\" to be a list", key);
    for (const tow__node *n = tow__dom_first(&r->dom, list); n; n = tow__dom_next(&r->dom, n)) {
        TRY(tow__count_step(r, template->n, "template"));
        tow__template_step *step = &template->steps[template->n++];
        const tow__node *token = tow__dom_get(&r->dom, n, "SpecialToken"),
                        *sequence = tow__dom_get(&r->dom, n, "Sequence");
        const char *name = tow__take_string(r, token ? token : sequence, "id", NULL);
        if (!name)
            return tow__refuse(r, TOW_BAD_FORMAT, "expected a SpecialToken or a Sequence with an id in the template");
        const int64_t type = tow__take_integer(r, token ? token : sequence, "type_id", 0);
        TRY(r->wrong);
        if (type < 0 || type > INT32_MAX || (!token && strcmp(name, "A") != 0 && strcmp(name, "B") != 0))
            return tow__refuse(r, TOW_BAD_FORMAT,
                               "expected the texts A and B, and types from 0 to below 2^31, in the template");
        *step = (tow__template_step){.sequence = token ? -1 : strcmp(name, "B") == 0, .type = (int32_t)type};
        if (token) TRY(special_ids(r, node, name, step));
    }
done:
    return status;
}

static tow_status process_template(tow__token_reader *r, const tow__node *node, const tow__part *p)
{
    tow_status status = TOW_OK;
    (void)p;
    TRY(read_template(r, node, "single", &r->t->single));
    TRY(read_template(r, node, "pair", &r->t->pair));
    for (int i = 0; i < r->t->single.n; i++)
        if (r->t->single.steps[i].sequence == 1)
            return tow__refuse(r, TOW_BAD_FORMAT, "the template of a single text has a second one");
    r->t->has_template = true;
done:
    return status;
}

static void trim(tow__token_reader *r, const tow__node *node)
{
    r->t->trim_offsets = tow__take_bool(r, node, "trim_offsets", true);
    r->t->trims_prefix_space = tow__take_bool(r, node, "add_prefix_space", true);
}

static tow_status process_bytes(tow__token_reader *r, const tow__node *node, const tow__part *p)
{
    (void)p;
    trim(r, node);
    return TOW_OK;
}

/* A pair ["[SEP]", 102]. */
static tow_status pair_id(const tow__token_reader *r, const tow__node *node, const char *key, int32_t *id)
{
    const tow__node *first = tow__dom_first(&r->dom, tow__dom_get(&r->dom, node, key));
    const tow__node *second = first ? tow__dom_next(&r->dom, first) : NULL;
    if (second && first->kind == TOW__NODE_STRING && second->kind == TOW__NODE_NUMBER && second->integral &&
        second->integer >= 0 && second->integer <= INT32_MAX && tow_tokenizer_token(r->t, (int32_t)second->integer)) {
        *id = (int32_t)second->integer;
        return TOW_OK;
    }
    return tow__refuse(r, TOW_BAD_FORMAT, "expected \"%s\" to be a token and its id", key);
}

/* BERT: cls A sep, and B sep of type 1. RoBERTa: cls A sep, and sep B sep, all of type 0. */
static tow_status process_bert(tow__token_reader *r, const tow__node *node, const tow__part *p)
{
    const bool roberta = p->kind;
    tow_tokenizer *t = r->t;
    int32_t cls = TOW__NO_ID, sep = TOW__NO_ID;
    tow_status status = TOW_OK;
    TRY(pair_id(r, node, "cls", &cls));
    TRY(pair_id(r, node, "sep", &sep));
    const tow__template_step before = {.sequence = -1, .n_ids = 1, .ids = {cls}};
    tow__template_step after = {.sequence = -1, .n_ids = 1, .ids = {sep}};
    t->single = (tow__template){.n = 3, .steps = {before, {.sequence = 0}, after}};
    t->pair = t->single;
    if (roberta) t->pair.steps[t->pair.n++] = after;
    after.type = roberta ? 0 : 1;
    t->pair.steps[t->pair.n++] = (tow__template_step){.sequence = 1, .type = after.type};
    t->pair.steps[t->pair.n++] = after;
    t->has_template = true;
    if (roberta) trim(r, node);
done:
    return status;
}

tow_status tow__read_processor(tow__token_reader *r, const tow__node *node)
{
    static const tow__part parts[] = {
        {"Sequence", .list = "processors"},     {"TemplateProcessing", process_template, 0},
        {"ByteLevel", process_bytes, 0},        {"BertProcessing", process_bert, 0},
        {"RobertaProcessing", process_bert, 1}, {0},
    };
    return tow__read_part(r, node, parts, "post_processor", 0);
}
