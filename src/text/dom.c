/* Parsing JSON to a tree. */
#include "src/text/dom.h"

#include "src/io/json.h"

#include <stdlib.h>

#include "src/base/locale.h"

enum {
    DEEPEST = 32
};

typedef struct parser {
    tow__dom *dom;
    tow__json json;
} parser;

static tow_status add_node(tow__dom *dom, const char *key, uint32_t *index)
{
    if (dom->count == dom->capacity) {
        const size_t capacity = dom->capacity ? 2 * dom->capacity : 64;
        if (capacity >= UINT32_MAX) return TOW_OUT_OF_MEMORY;
        tow__node *nodes = tow__grow(dom->ctx, dom->nodes, dom->capacity, capacity, sizeof *nodes);
        if (!nodes) return TOW_OUT_OF_MEMORY;
        dom->nodes = nodes;
        dom->capacity = capacity;
    }
    *index = (uint32_t)dom->count++;
    dom->nodes[*index] = (tow__node){.key = key};
    return TOW_OK;
}

static tow_status parse_value(parser *p, const char *key, int depth, uint32_t *index);

static tow_status parse_all(parser *p, uint32_t parent, char close, int depth)
{
    tow_status status = TOW_OK;
    uint32_t last = 0, index;
    bool more;
    for (size_t i = 0;; i++) {
        char *key = NULL;
        TRY(tow__json_next(&p->json, i, close, &more));
        if (!more) break;
        if (close == '}') {
            TRY(tow__json_string(&p->json, &key));
            TRY(tow__json_expect(&p->json, ':'));
        }
        TRY(parse_value(p, key, depth + 1, &index));
        *(last ? &p->dom->nodes[last].next : &p->dom->nodes[parent].first) = index;
        p->dom->nodes[parent].count++;
        last = index;
    }
done:
    return status;
}

static tow_status parse_value(parser *p, const char *key, int depth, uint32_t *index)
{
    tow_status status = TOW_OK;
    char *string;
    if (depth > DEEPEST) return tow__json_malformed(&p->json, "values nested at most 32 deep");
    TRY(add_node(p->dom, key, index));
    tow__node *node = &p->dom->nodes[*index];
    if (tow__json_accept(&p->json, '{')) {
        node->kind = TOW__NODE_OBJECT;
        return parse_all(p, *index, '}', depth);
    }
    if (tow__json_accept(&p->json, '[')) {
        node->kind = TOW__NODE_ARRAY;
        return parse_all(p, *index, ']', depth);
    }
    const char first = *p->json.at;
    if (first == '"') {
        node->kind = TOW__NODE_STRING;
        TRY(tow__json_string(&p->json, &string));
        node->string = string;
    } else if (tow__json_integer(&p->json, &node->integer)) {
        node->kind = TOW__NODE_NUMBER;
        node->integral = true;
        node->number = (double)node->integer;
    } else {
        const char *text = p->json.at;
        TRY(tow__json_skip(&p->json));
        node->kind = first == 't' || first == 'f' ? TOW__NODE_BOOL : first == 'n' ? TOW__NODE_NULL : TOW__NODE_NUMBER;
        node->boolean = first == 't';
        if (node->kind == TOW__NODE_NUMBER) node->number = strtod(text, NULL);
    }
done:
    return status;
}

tow_status tow__dom_parse(tow_context *ctx, const char *path, const char *text, size_t length, tow__dom *dom)
{
    uint32_t root;
    tow_status status = TOW_OK;
    *dom = (tow__dom){.ctx = ctx, .length = length};
    dom->text = tow__alloc(ctx, length + 1, 1);
    if (!dom->text) return TOW_OUT_OF_MEMORY;
    if (length > 0) memcpy(dom->text, text, length);
    parser p = {.dom = dom,
                .json = {.ctx = ctx,
                         .path = path,
                         .what = "the file",
                         .start = dom->text,
                         .at = dom->text,
                         .end = dom->text + length}};
    const tow__locale locale = tow__locale_enter();
    status = parse_value(&p, NULL, 0, &root);
    tow__locale_leave(locale);
    TRY(status);
    TRY(tow__json_end(&p.json));
done:
    return status;
}

void tow__dom_free(tow__dom *dom)
{
    if (dom->text) tow__free(dom->ctx, dom->text, dom->length + 1, 1);
    if (dom->nodes) tow__free(dom->ctx, dom->nodes, dom->capacity, sizeof *dom->nodes);
    *dom = (tow__dom){.ctx = dom->ctx};
}

const tow__node *tow__dom_first(const tow__dom *dom, const tow__node *node)
{
    return node && node->first ? &dom->nodes[node->first] : NULL;
}

const tow__node *tow__dom_next(const tow__dom *dom, const tow__node *node)
{
    return node->next ? &dom->nodes[node->next] : NULL;
}

const tow__node *tow__dom_member(const tow__dom *dom, const tow__node *object, const char *key)
{
    if (!object || object->kind != TOW__NODE_OBJECT) return NULL;
    for (const tow__node *n = tow__dom_first(dom, object); n; n = tow__dom_next(dom, n))
        if (strcmp(n->key, key) == 0) return n;
    return NULL;
}

const tow__node *tow__dom_get(const tow__dom *dom, const tow__node *object, const char *key)
{
    const tow__node *n = tow__dom_member(dom, object, key);
    return n && n->kind != TOW__NODE_NULL ? n : NULL;
}

const char *tow__dom_kind(const tow__node *node)
{
    static const char *const names[] = {"null", "true or false", "a number", "a string", "a list", "an object"};
    return names[node->kind];
}
