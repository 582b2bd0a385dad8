/* Added tokens, which are cut out of a text before anything else sees it: the longest one at the first place where one
 * is.
 *
 * An automaton (Aho and Corasick, "Efficient string matching", 1975) of the reversed tokens reads the text from its
 * end. At every place its state is the longest text from there on that is the end of a reversed token's beginning, and
 * the longest token that begins there is known. So a text takes time in proportion to its length, whatever the tokens
 * are. */
#include "src/text/tokenizer.h"

/* ---- the automaton ----------------------------------------------------------------------------------------------- */

static uint32_t next_state(tow__added_set *set, uint32_t state, unsigned char byte)
{
    for (;; set->steps++) {
        const uint32_t next = tow__trie_child(&set->trie, state, byte);
        if (next != 0 || state == 0) return next;
        state = set->fallback[state];
    }
}

/* The state to fall back to is the longest proper suffix that is a state, too; a state without a token of its own has
 * the longest token of that one. Both are known of all shorter states. */
static void link_states(tow__added_set *set)
{
    const tow__trie *t = &set->trie;
    for (uint32_t node = 0; node < t->count; node++)
        for (uint32_t child = t->children[node]; child < t->children[node + 1]; child++) {
            set->fallback[child] = node > 0 ? next_state(set, set->fallback[node], t->labels[child]) : 0;
            if (t->values[child] == TOW__NO_ID) t->values[child] = t->values[set->fallback[child]];
        }
    for (uint32_t child = t->children[0]; child < t->children[1]; child++) set->ends[t->labels[child]] = true;
}

tow_status tow__added_finish(tow_context *ctx, tow__added_set *set)
{
    set->ctx = ctx;
    if (set->count == 0) return TOW_OK;
    tow__trie_key *keys = tow__alloc(ctx, set->count, sizeof *keys);
    if (!keys) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < set->count; i++)
        keys[i] = (tow__trie_key){set->items[i].content, (uint32_t)set->items[i].length, (int32_t)i};
    tow_status status = tow__trie_build(ctx, set->count, keys, true, &set->trie);
    tow__free(ctx, keys, set->count, sizeof *keys);
    if (status != TOW_OK) return status;
    set->fallback = tow__alloc(ctx, set->trie.count, sizeof *set->fallback);
    if (!set->fallback) return TOW_OUT_OF_MEMORY;
    link_states(set);
    set->steps = 0;
    return TOW_OK;
}

void tow__added_free(tow__added_set *set)
{
    if (set->items) tow__free(set->ctx, set->items, set->capacity, sizeof *set->items);
    if (set->fallback) tow__free(set->ctx, set->fallback, set->trie.count, sizeof *set->fallback);
    if (set->found) tow__free(set->ctx, set->found, set->n_found, sizeof *set->found);
    tow__trie_free(&set->trie);
}

tow_status tow__added_push(tow_context *ctx, tow__added_set *set, tow__added added)
{
    set->ctx = ctx;
    if (set->count == set->capacity) {
        const size_t capacity = set->capacity ? 2 * set->capacity : 16;
        tow__added *items = tow__grow(ctx, set->items, set->capacity, capacity, sizeof *items);
        if (!items) return TOW_OUT_OF_MEMORY;
        set->items = items;
        set->capacity = capacity;
    }
    set->items[set->count++] = added;
    return TOW_OK;
}

/* Finds the longest token that begins at each place, last places first. */
static tow_status find_all(tow__added_set *set, const char *text, size_t length, size_t *count)
{
    uint32_t state = 0;
    *count = 0;
    for (size_t at = length; at > 0;) {
        const unsigned char byte = (unsigned char)text[--at];
        if (state == 0 && !set->ends[byte]) continue;
        state = next_state(set, state, byte);
        set->steps++;
        if (set->trie.values[state] == TOW__NO_ID) continue;
        if (*count == set->n_found) {
            const size_t capacity = set->n_found ? 2 * set->n_found : 64;
            tow__added_place *found = tow__grow(set->ctx, set->found, set->n_found, capacity, sizeof *found);
            if (!found) return TOW_OUT_OF_MEMORY;
            set->found = found;
            set->n_found = capacity;
        }
        set->found[(*count)++] = (tow__added_place){(uint32_t)at, (uint32_t)set->trie.values[state]};
    }
    return TOW_OK;
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

static size_t character_before(const char *text, size_t at)
{
    do at--;
    while (tow__utf8_continues(text[at]));
    return at;
}

static bool word_before(const char *text, size_t at)
{
    uint32_t c;
    if (at == 0) return false;
    tow__utf8_get(text + character_before(text, at), &c);
    return tow__classes(c) & TOW__WORD;
}

static bool word_at(const char *text, size_t at, size_t length)
{
    uint32_t c;
    if (at >= length) return false;
    tow__utf8_get(text + at, &c);
    return tow__classes(c) & TOW__WORD;
}

/* A match with the white space that belongs to it; if it takes what is in front of it, from `limit` on, where the token
 * before it ends. */
static tow__text_range widen(const tow__added *a, const char *text, size_t length, size_t at, size_t limit)
{
    size_t begin = at, end = at + a->length;
    uint32_t c;
    while (a->lstrip && begin > limit) {
        const size_t before = character_before(text, begin);
        tow__utf8_get(text + before, &c);
        if (!(tow__classes(c) & TOW__SPACE)) break;
        begin = before;
    }
    if (a->lstrip && begin < limit) begin = limit;
    while (a->rstrip && end < length) {
        const size_t next = end + (size_t)tow__utf8_get(text + end, &c);
        if (!(tow__classes(c) & TOW__SPACE)) break;
        end = next;
    }
    return (tow__text_range){(uint32_t)begin, (uint32_t)end};
}

tow_status tow__added_split(tow__added_set *set, const char *text, size_t length, tow__added_visitor visit, void *user)
{
    tow_status status = TOW_OK;
    size_t done = 0, next = 0, count = 0; /* next: where the next token may begin */
    if (set->count > 0) TRY(find_all(set, text, length, &count));
    while (count-- > 0) {
        const size_t at = set->found[count].at;
        const tow__added *a = &set->items[set->found[count].item];
        if (at < next) continue;
        next = at + a->length;
        if (a->single_word && (word_before(text, at) || word_at(text, next, length))) continue;
        const tow__text_range range = widen(a, text, length, at, done);
        if (range.begin >= range.end) continue; /* white space that the token before it took */
        if (range.begin > done) TRY(visit(user, done, range.begin, TOW__NO_ID));
        TRY(visit(user, range.begin, range.end, a->id));
        done = range.end;
    }
    if (done < length) TRY(visit(user, done, length, TOW__NO_ID));
done:
    return status;
}
