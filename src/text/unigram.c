/* Unigram: of all ways to cut a word into tokens the one whose scores, logarithms of probabilities, have the largest
 * sum (Kudo, "Subword regularization", 2018, section 3.2, by Viterbi's algorithm). A character of which there is no
 * token is unknown, for 10 less than the smallest score; unknown characters that follow one another are one token, or,
 * with byte_fallback, tokens of their bytes. */
#include "src/text/tokenizer.h"

static const double unknown_penalty = 10.0;

/* The best way to the end of a token. */
typedef struct tow__unigram_node {
    double score;
    uint32_t begin; /* of the last token; UINT32_MAX: no way */
    int32_t id;
} tow__unigram_node;

void tow__unigram_free(tow_context *ctx, tow__unigram *u)
{
    tow__trie_free(&u->trie);
    if (u->scores) tow__free(ctx, u->scores, u->n_scores, sizeof *u->scores);
    if (u->nodes) tow__free(ctx, u->nodes, u->n_nodes, sizeof *u->nodes);
}

static bool reserve(tow__unigram *u, size_t n, tow__pieces *pieces)
{
    if (n <= u->n_nodes) return true;
    size_t capacity = u->n_nodes ? u->n_nodes : 64;
    while (capacity < n) capacity *= 2;
    tow__unigram_node *nodes = tow__alloc(pieces->ctx, capacity, sizeof *nodes);
    if (!nodes) {
        pieces->failed = true;
        return false;
    }
    if (u->nodes) tow__free(pieces->ctx, u->nodes, u->n_nodes, sizeof *u->nodes);
    u->nodes = nodes;
    u->n_nodes = capacity;
    return true;
}

/* The first of two equal ways stays. */
static void offer(tow__unigram_node *node, double score, size_t begin, int32_t id)
{
    if (node->begin != UINT32_MAX && !(score > node->score)) return;
    *node = (tow__unigram_node){score, (uint32_t)begin, id};
}

/* Ways to the ends of tokens that begin at `at`. False if the character is unknown and there is no token for that. */
static bool extend(const tow__unigram *u, const char *word, size_t length, size_t at, size_t next)
{
    const double score = u->nodes[at].score;
    bool known = false;
    uint32_t node = 0;
    for (size_t i = at; i < length; i++) {
        node = tow__trie_child(&u->trie, node, (unsigned char)word[i]);
        if (node == 0) break;
        const int32_t id = u->trie.values[node];
        if (id == TOW__NO_ID) continue;
        offer(&u->nodes[i + 1], score + u->scores[id], at, id);
        known = known || i + 1 == next;
    }
    if (known) return true;
    offer(&u->nodes[next], score + (u->smallest - unknown_penalty), at, u->unk);
    return u->unk != TOW__NO_ID || u->nodes[next].id != TOW__NO_ID;
}

/* Unknown text: a token if the vocabulary has it, else its bytes or the unknown token. */
static void add_unknown(const tow__unigram *u, const tow__vocabulary *v, const char *word, size_t begin, size_t end,
                        tow__pieces *pieces)
{
    const int32_t id = tow__vocabulary_find_model(v, word + begin, end - begin);
    bool bytes = u->byte_fallback && id == TOW__NO_ID;
    for (size_t i = begin; i < end && bytes; i++) bytes = u->bytes[(unsigned char)word[i]] != TOW__NO_ID;
    if (!bytes) tow__pieces_add(pieces, id != TOW__NO_ID ? id : u->unk, begin, end);
    for (size_t i = end; i > begin && bytes; i--) /* backwards, as all pieces are so far */
        tow__pieces_add(pieces, u->bytes[(unsigned char)word[i - 1]], begin, end);
}

static void reverse(tow__pieces *pieces)
{
    for (size_t i = 0, k = pieces->count; i + 1 < k; i++) {
        const tow__piece piece = pieces->items[i];
        pieces->items[i] = pieces->items[--k];
        pieces->items[k] = piece;
    }
}

void tow__unigram_word(tow__unigram *u, const tow__vocabulary *v, const char *word, size_t length, tow__pieces *pieces)
{
    uint32_t c;
    if (!reserve(u, length + 1, pieces)) return;
    for (size_t i = 0; i <= length; i++) u->nodes[i] = (tow__unigram_node){0, UINT32_MAX, TOW__NO_ID};
    for (size_t at = 0, next; at < length; at = next) {
        next = at + (size_t)tow__utf8_get(word + at, &c);
        if (!extend(u, word, length, at, next)) {
            pieces->unknown = true;
            return;
        }
    }
    for (size_t end = length, begin; end > 0; end = begin) {
        const int32_t id = u->nodes[end].id;
        begin = u->nodes[end].begin;
        while (id == u->unk && begin > 0 && u->nodes[begin].id == u->unk) begin = u->nodes[begin].begin;
        if (id == u->unk)
            add_unknown(u, v, word, begin, end, pieces);
        else
            tow__pieces_add(pieces, id, begin, end);
    }
    reverse(pieces);
}
