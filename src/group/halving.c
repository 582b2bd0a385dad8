/* Transfers of recursive halving over any tree of leaves; see halving.h.
 *
 * From the root down, each node knows which ranges of its sum its leaves hold in the end ("held"). Before the exchange
 * at the node, a leaf of the left child must hold the left sum of these ranges, and of ranges that leaves of the right
 * child will hold, which it sends to them. So ranges of the right leaves are dealt out to the left leaves and the other
 * way round, which gives the ranges that are held in the children. */
#include "src/group/halving.h"

#include <stdlib.h>

/* ---- leaves ------------------------------------------------------------------------------------------------------ */

static int subtrees_in(int rank, int begin, int end, int low, int high, tow__leaf *leaves, int n)
{
    if (begin >= high || end <= low) return n;
    if (begin <= low && high <= end) {
        if (leaves) leaves[n] = (tow__leaf){low, high, rank};
        return n + 1;
    }
    const int middle = low + (high - low) / 2;
    n = subtrees_in(rank, begin, end, low, middle, leaves, n);
    return subtrees_in(rank, begin, end, middle, high, leaves, n);
}

int tow__subtrees(int rank, int begin, int end, int row_groups, tow__leaf *leaves)
{
    return subtrees_in(rank, begin, end, 0, row_groups, leaves, 0);
}

static tow_status find_leaves(tow__halving *s, int count, int row_groups, const int *first_group)
{
    int n = 0;
    for (int r = 0; r < count; r++) n += tow__subtrees(r, first_group[r], first_group[r + 1], row_groups, NULL);
    s->leaves = tow__alloc(s->ctx, (size_t)n, sizeof *s->leaves);
    if (!s->leaves) return TOW_OUT_OF_MEMORY;
    for (int r = 0; r < count; r++) {
        if (r == s->rank) s->own = s->n_leaves;
        s->n_leaves += tow__subtrees(r, first_group[r], first_group[r + 1], row_groups, s->leaves + s->n_leaves);
        if (r == s->rank) s->n_own = s->n_leaves - s->own;
    }
    return TOW_OK;
}

/* ---- lists of held ranges ---------------------------------------------------------------------------------------- */

typedef struct held {
    int leaf;
    tow__range_of range;
} held;

typedef struct held_list {
    tow_context *ctx;
    held *at;
    size_t n, capacity;
} held_list;

/* Ranges of a leaf that follow each other become one. */
static tow_status hold(held_list *list, int leaf, int64_t offset, int64_t count)
{
    if (count == 0) return TOW_OK;
    if (list->n > 0) {
        held *last = &list->at[list->n - 1];
        if (last->leaf == leaf && last->range.offset + last->range.count == offset) {
            last->range.count += count;
            return TOW_OK;
        }
    }
    if (list->n == list->capacity) {
        const size_t capacity = 2 * list->capacity + 8;
        held *grown = tow__grow(list->ctx, list->at, list->capacity, capacity, sizeof *list->at);
        if (!grown) return TOW_OUT_OF_MEMORY;
        list->at = grown;
        list->capacity = capacity;
    }
    list->at[list->n++] = (held){leaf, {offset, count}};
    return TOW_OK;
}

static void free_list(held_list *list)
{
    tow__free(list->ctx, list->at, list->capacity, sizeof *list->at);
    *list = (held_list){.ctx = list->ctx};
}

static int by_leaf_and_offset(const void *a, const void *b)
{
    const held *x = a, *y = b;
    if (x->leaf != y->leaf) return x->leaf < y->leaf ? -1 : 1;
    return (x->range.offset > y->range.offset) - (x->range.offset < y->range.offset);
}

/* By leaf, then from left to right, in as few ranges as there are. */
static void order(held_list *list)
{
    size_t n = 0;
    if (list->n == 0) return;
    qsort(list->at, list->n, sizeof *list->at, by_leaf_and_offset);
    for (size_t i = 1; i < list->n; i++) {
        held *last = &list->at[n], *next = &list->at[i];
        if (last->leaf == next->leaf && last->range.offset + last->range.count == next->range.offset)
            last->range.count += next->range.count;
        else
            list->at[++n] = *next;
    }
    list->n = n + 1;
}

/* ---- transfers --------------------------------------------------------------------------------------------------- */

static bool is_own(const tow__halving *s, int leaf) { return leaf >= s->own && leaf < s->own + s->n_own; }

static tow_status add_transfer(tow__halving *s, int level, int from, int to, int64_t offset, int64_t count)
{
    if (!is_own(s, from) && !is_own(s, to)) return TOW_OK;
    if (s->n > 0) {
        tow__transfer *last = &s->transfers[s->n - 1];
        if (last->level == level && last->from == from && last->to == to && last->offset + last->count == offset) {
            last->count += count;
            return TOW_OK;
        }
    }
    if (s->n == s->capacity) {
        const size_t capacity = 2 * s->capacity + 8;
        tow__transfer *grown = tow__grow(s->ctx, s->transfers, s->capacity, capacity, sizeof *s->transfers);
        if (!grown) return TOW_OUT_OF_MEMORY;
        s->transfers = grown;
        s->capacity = capacity;
    }
    s->transfers[s->n++] = (tow__transfer){level, from, to, offset, count};
    return TOW_OK;
}

/* Deals the ranges of leaves [from, from + n_from) out to the leaves [to, to + n_to), which hold them before the
 * exchange: to the leaf of the same place if there are equally many, else by quantiles of their elements. */
static tow_status deal(tow__halving *s, int level, const held_list *ranges, int from, int n_from, int to, int n_to,
                       held_list *dealt)
{
    enum {
        LINE = 16
    };
    int64_t total = 0, position = 0;
    tow_status status = TOW_OK;
    for (size_t i = 0; i < ranges->n; i++)
        if (ranges->at[i].leaf >= from && ranges->at[i].leaf < from + n_from) total += ranges->at[i].range.count;
    for (size_t i = 0; i < ranges->n; i++) {
        const held *h = &ranges->at[i];
        if (h->leaf < from || h->leaf >= from + n_from) continue;
        for (int64_t done = 0, part; done < h->range.count; done += part, position += part) {
            int k = h->leaf - from;
            part = h->range.count - done;
            if (n_from != n_to) {
                const int64_t each = (total / n_to + LINE - 1) / LINE * LINE;
                k = each > 0 && position / each < n_to ? (int)(position / each) : n_to - 1;
                if (k < n_to - 1 && part > (k + 1) * each - position) part = (k + 1) * each - position;
            }
            TRY(hold(dealt, to + k, h->range.offset + done, part));
            TRY(add_transfer(s, level, to + k, h->leaf, h->range.offset + done, part));
        }
    }
done:
    return status;
}

static tow_status keep(const held_list *ranges, int first, int n, held_list *kept)
{
    tow_status status = TOW_OK;
    for (size_t i = 0; i < ranges->n && !status; i++) {
        const held *h = &ranges->at[i];
        if (h->leaf >= first && h->leaf < first + n) status = hold(kept, h->leaf, h->range.offset, h->range.count);
    }
    return status;
}

/* The node over leaves [first, first + n), whose row groups end at `end`; only nodes above own leaves matter. */
static tow_status halve_at_node(tow__halving *s, int level, int first, int n, int begin, int end,
                                const held_list *ranges)
{
    if (n <= 1 || first >= s->own + s->n_own || first + n <= s->own) return TOW_OK;
    const int middle = begin + (end - begin) / 2;
    int left = 0;
    while (left < n && s->leaves[first + left].begin < middle) left++;
    held_list in_left = {.ctx = s->ctx}, in_right = {.ctx = s->ctx};
    tow_status status;
    TRY(keep(ranges, first, left, &in_left));
    TRY(keep(ranges, first + left, n - left, &in_right));
    TRY(deal(s, level, ranges, first + left, n - left, first, left, &in_left));
    TRY(deal(s, level, ranges, first, left, first + left, n - left, &in_right));
    order(&in_left);
    order(&in_right);
    TRY(halve_at_node(s, level + 1, first, left, begin, middle, &in_left));
    free_list(&in_left);
    TRY(halve_at_node(s, level + 1, first + left, n - left, middle, end, &in_right));
done:
    free_list(&in_left);
    free_list(&in_right);
    return status;
}

/* Deepest level first; within a level in the order in which both sides found them. */
static void order_levels(tow__halving *s, tow__transfer *sorted)
{
    int deepest = 0;
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->transfers[i].level > deepest) deepest = s->transfers[i].level;
    for (int level = deepest; level >= 0; level--)
        for (size_t i = 0; i < s->n; i++)
            if (s->transfers[i].level == level) sorted[n++] = s->transfers[i];
}

tow_status tow__halving_create(tow_context *ctx, int rank, int count, int row_groups, const int *first_group,
                               const tow__range_of *shares, tow__halving *halving)
{
    tow__halving s = {.ctx = ctx, .rank = rank, .share = shares[rank]};
    held_list ranges = {.ctx = ctx};
    tow_status status;
    TRY(find_leaves(&s, count, row_groups, first_group));
    for (int i = 0; i < s.n_leaves; i++) { /* the first leaf of a rank holds its share */
        const int owner = s.leaves[i].rank;
        if (i == 0 || s.leaves[i - 1].rank != owner) TRY(hold(&ranges, i, shares[owner].offset, shares[owner].count));
    }
    TRY(halve_at_node(&s, 0, 0, s.n_leaves, 0, row_groups, &ranges));
    if (s.n > 0) {
        tow__transfer *sorted = tow__alloc(ctx, s.n, sizeof *sorted);
        if (!sorted) status = TOW_OUT_OF_MEMORY;
        if (status) goto done;
        order_levels(&s, sorted);
        tow__free(ctx, s.transfers, s.capacity, sizeof *s.transfers);
        s.transfers = sorted;
        s.capacity = s.n;
    }
done:
    free_list(&ranges);
    if (status) tow__halving_free(&s);
    *halving = status ? (tow__halving){.ctx = ctx} : s;
    return status;
}

void tow__halving_free(tow__halving *s)
{
    if (!s->ctx) return;
    tow__free(s->ctx, s->leaves, (size_t)s->n_leaves, sizeof *s->leaves);
    tow__free(s->ctx, s->transfers, s->capacity, sizeof *s->transfers);
    *s = (tow__halving){.ctx = s->ctx};
}
