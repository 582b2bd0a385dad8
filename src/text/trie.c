/* Tries over bytes. Nodes are numbered level by level, so that the children of a node follow one another, in the order
 * of their bytes, and those of the next node follow them:
 *
 *     node        0   1   2   3   4        keys "ab" (7), "ad" (8), "c" (9)
 *     label       -   a   c   b   d
 *     children    1   3   5   5   5   5    of node i: children[i] to children[i + 1]
 *     value       -   -   9   7   8
 *
 * A node takes 9 bytes, whatever the keys are. */
#include <stdlib.h>

#include "src/text/tokenizer.h"

/* The keys that a node has below it. */
typedef struct below {
    uint32_t first, last;
} below;

static unsigned char byte_of(const tow__trie_key *key, size_t i, bool reversed)
{
    return (unsigned char)key->text[reversed ? key->length - 1 - i : i];
}

/* Equal keys in the order of their values. */
static int compare(const tow__trie_key *a, const tow__trie_key *b, bool reversed)
{
    const size_t shorter = a->length < b->length ? a->length : b->length;
    for (size_t i = 0; i < shorter; i++) {
        const int difference = byte_of(a, i, reversed) - byte_of(b, i, reversed);
        if (difference != 0) return difference;
    }
    if (a->length != b->length) return a->length < b->length ? -1 : 1;
    return a->value < b->value ? -1 : a->value > b->value;
}

static int forwards(const void *a, const void *b) { return compare(a, b, false); }
static int backwards(const void *a, const void *b) { return compare(a, b, true); }

/* Nodes of the trie: each key adds those behind what it has in common with the key before it. */
static size_t count_nodes(size_t count, const tow__trie_key *keys, bool reversed)
{
    size_t n = 1;
    for (size_t k = 0; k < count; k++) {
        size_t same = 0;
        while (k > 0 && same < keys[k].length && same < keys[k - 1].length &&
               byte_of(&keys[k], same, reversed) == byte_of(&keys[k - 1], same, reversed))
            same++;
        n += keys[k].length - same;
    }
    return n;
}

/* Adds the children of a node at this depth, *n of which there are so far. */
static void add_children(tow__trie *t, uint32_t node, size_t depth, const tow__trie_key *keys, bool reversed,
                         below *ranges, size_t *n)
{
    uint32_t k = ranges[node].first;
    t->children[node] = (uint32_t)*n;
    if (k < ranges[node].last && keys[k].length == depth) t->values[node] = keys[k].value;
    while (k < ranges[node].last && keys[k].length == depth) k++; /* equal keys: the first one counts */
    while (k < ranges[node].last) {
        const unsigned char label = byte_of(&keys[k], depth, reversed);
        const uint32_t first = k;
        while (k < ranges[node].last && byte_of(&keys[k], depth, reversed) == label) k++;
        t->labels[*n] = label;
        t->values[*n] = TOW__NO_ID;
        ranges[(*n)++] = (below){first, k};
    }
}

tow_status tow__trie_build(tow_context *ctx, size_t count, tow__trie_key *keys, bool reversed, tow__trie *t)
{
    *t = (tow__trie){.ctx = ctx};
    if (count > 1) qsort(keys, count, sizeof *keys, reversed ? backwards : forwards);
    t->count = count_nodes(count, keys, reversed);
    if (t->count >= UINT32_MAX)
        return tow__fail(ctx, TOW_OUT_OF_MEMORY, "the tokens have %zu bytes; expected less than 4 GiB", t->count);
    t->children = tow__alloc(ctx, t->count + 1, sizeof *t->children);
    t->labels = tow__alloc(ctx, t->count, sizeof *t->labels);
    t->values = tow__alloc(ctx, t->count, sizeof *t->values);
    below *ranges = tow__alloc(ctx, t->count, sizeof *ranges);
    if (t->children && t->labels && t->values && ranges) {
        size_t n = 1, level = 1, depth = 0; /* level: the first node of the next depth */
        ranges[0] = (below){0, (uint32_t)count};
        t->values[0] = TOW__NO_ID;
        for (uint32_t node = 0; node < t->count; node++) {
            if (node == level) {
                depth++;
                level = n;
            }
            add_children(t, node, depth, keys, reversed, ranges, &n);
        }
        t->children[t->count] = (uint32_t)n;
    }
    const bool failed = !t->children || !t->labels || !t->values || !ranges;
    if (ranges) tow__free(ctx, ranges, t->count, sizeof *ranges);
    if (failed) tow__trie_free(t);
    return failed ? TOW_OUT_OF_MEMORY : TOW_OK;
}

void tow__trie_free(tow__trie *t)
{
    if (t->children) tow__free(t->ctx, t->children, t->count + 1, sizeof *t->children);
    if (t->labels) tow__free(t->ctx, t->labels, t->count, sizeof *t->labels);
    if (t->values) tow__free(t->ctx, t->values, t->count, sizeof *t->values);
    *t = (tow__trie){.ctx = t->ctx};
}

uint32_t tow__trie_child(const tow__trie *t, uint32_t node, unsigned char label)
{
    uint32_t low = t->children[node], high = t->children[node + 1];
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (t->labels[middle] == label) return middle;
        if (t->labels[middle] < label)
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}
