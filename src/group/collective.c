/* One collective: what it sends and receives is found when it is made; a run is a walk through the levels of its
 * schedules, an exchange for each.
 *
 *   reduce-scatter   levels of the sum, deepest first; what arrives in scratch memory is added to the own array
 *   all-reduce       the same, then the levels of the gathering, from the root to the leaves
 *   all-gather       the gathering alone, or the carrier's
 *
 * A collective of the carrier (gather, broadcast, barrier) begins in `start`, so that all ranks begin them in one
 * order; later steps are exchanges, whose tags tell them apart. */
#include <limits.h>
#include <stdio.h>

#include "src/base/arithmetic.h"
#include "src/base/clock.h"
#include "src/base/dtypes.h"
#include "src/base/hash.h"
#include "src/group/group.h"

/* The use of a message: elements that are added to others, or nothing more. */
typedef struct arrival {
    char *into;
    int64_t n;     /* to add; 0: none, or added */
    bool own_left; /* the own operand is the left one */
} arrival;

typedef enum phase {
    SUM,
    GATHER,
    CARRIED, /* one request of the carrier, or an exchange with all others */
    DONE
} phase;

struct tow__collective {
    tow_context *ctx;
    tow_group *group;
    tow__collective_kind kind;
    tow_dtype dtype;
    int64_t n; /* elements of a layer */
    int64_t unit;
    tow__window window;
    size_t layers, size; /* size: of an element */
    int count;           /* ranks of the group, which may be freed before */
    int root, parts;
    char *what;
    tow__halving sum, gathering; /* the gathering's leaves are ranks */
    bool by_carrier;
    size_t *offsets, *bytes; /* of shares, for the carrier */
    size_t scratch_bytes, sent, received;
    tow_message *messages;
    arrival *arrivals;
    char *ones; /* what barriers send and receive, a byte for each rank and one more */
    size_t capacity;
    /* of a run */
    tow__collective *next; /* in flight */
    bool flies;
    uint32_t number;
    phase phase;
    size_t step;  /* transfers that are done, of the phase's schedule */
    size_t n_now; /* messages of the exchange at hand */
    void *request;
    size_t left;
    unsigned long long modes;
    char **arrays, *scratch;
};

static const char *const kinds[] = {[TOW__REDUCE_SCATTER] = "reduce_scatter",
                                    [TOW__ALL_REDUCE] = "all_reduce",
                                    [TOW__ALL_GATHER] = "all_gather",
                                    [TOW__BROADCAST] = "broadcast",
                                    [TOW__BARRIER] = "barrier"};

static bool sums(tow__collective_kind kind) { return kind == TOW__REDUCE_SCATTER || kind == TOW__ALL_REDUCE; }

/* ---- making ------------------------------------------------------------------------------------------------------ */

static int power_of_two(int n)
{
    int power = 1;
    while (power < n) power *= 2;
    return power;
}

static tow_status check_options(tow_context *ctx, const tow_group *group, const tow__collective_options *o)
{
    const int count = group->carrier.count;
    if (o->n < 0 || o->layers < 0 || (uint64_t)o->n > PTRDIFF_MAX / 8 / (uint64_t)(o->layers ? o->layers : 1))
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "%s: expected a number of elements, found %lld", kinds[o->kind],
                         (long long)o->n);
    if (o->kind == TOW__BROADCAST && (o->root < 0 || o->root >= count))
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "broadcast: expected a root from 0 to %d, found %d", count - 1,
                         o->root);
    if (!sums(o->kind)) return TOW_OK;
    if (!tow__dtype_in(o->dtype, TOW__NUMBERS))
        return tow__fail(ctx, TOW_TYPE_MISMATCH, "%s: expected numbers, found %s; convert them before", kinds[o->kind],
                         tow_dtype_name(o->dtype));
    if (!tow__row_groups_valid(count, o->row_groups))
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "%s: expected a number of row groups that is a power of two, at least the number of "
                         "processes, %d, and at most %d, found %d",
                         kinds[o->kind], count, TOW__MOST_ROW_GROUPS, o->row_groups);
    for (int r = 0; o->first_group && r < count; r++)
        if (o->first_group[r] >= o->first_group[r + 1])
            return tow__fail(ctx, TOW_INVALID_ARGUMENT, "%s: expected at least one row group for rank %d, found %d",
                             kinds[o->kind], r, o->first_group[r + 1] - o->first_group[r]);
    return TOW_OK;
}

/* A transfer belongs to a rank's messages if the other leaf is another rank's. */
static bool is_message(const tow__halving *s, const tow__transfer *t)
{
    return s->leaves[t->from].rank != s->leaves[t->to].rank;
}

static size_t chunks(size_t bytes) { return (bytes + TOW_MESSAGE_BYTES - 1) / TOW_MESSAGE_BYTES; }

/* The end of the level that begins with transfer i, in one direction or the other. */
static size_t level_end(const tow__halving *s, size_t i)
{
    size_t end = i;
    while (end < s->n && s->transfers[end].level == s->transfers[i].level) end++;
    return end;
}

/* Bytes, messages of the largest level, and of sums, which are not mirrored, the scratch memory of that level. */
static void measure(tow__collective *c, const tow__halving *s, bool mirrored)
{
    for (size_t i = 0, end; i < s->n; i = end) {
        size_t messages = 0, scratch = 0;
        end = level_end(s, i);
        for (size_t j = i; j < end; j++) {
            const tow__transfer *t = &s->transfers[j];
            const size_t bytes = (size_t)t->count * c->size;
            if (!is_message(s, t)) continue;
            messages += chunks(bytes) * c->layers;
            if ((s->leaves[t->from].rank == s->rank) != mirrored)
                c->sent += bytes * c->layers;
            else
                c->received += bytes * c->layers;
            if (s->leaves[t->to].rank == s->rank && !mirrored) scratch += bytes * c->layers;
        }
        if (messages > c->capacity) c->capacity = messages;
        if (scratch > c->scratch_bytes) c->scratch_bytes = scratch;
    }
}

static tow_status make_sum(tow__collective *c, const tow__collective_options *o, const tow__range_of *shares)
{
    const int count = c->group->carrier.count;
    const size_t entries = (size_t)count + 1;
    int *own = NULL;
    tow_status status = TOW_OK;
    if (!o->first_group) {
        own = tow__alloc(c->ctx, entries, sizeof *own);
        if (!own) return TOW_OUT_OF_MEMORY;
        tow__row_groups(count, o->row_groups, own);
    }
    status = tow__halving_create(c->ctx, c->group->carrier.rank, count, o->row_groups, own ? own : o->first_group,
                                 shares, &c->sum);
    tow__free(c->ctx, own, own ? entries : 0, sizeof *own);
    c->parts = c->sum.n_own;
    measure(c, &c->sum, false);
    return status;
}

static tow_status make_gathering(tow__collective *c, const tow__range_of *shares)
{
    const int count = c->group->carrier.count;
    const size_t entries = (size_t)count + 1;
    int *first = tow__alloc(c->ctx, entries, sizeof *first);
    if (!first) return TOW_OUT_OF_MEMORY;
    tow__row_groups(count, power_of_two(count), first);
    const tow_status status =
        tow__halving_create(c->ctx, c->group->carrier.rank, count, power_of_two(count), first, shares, &c->gathering);
    tow__free(c->ctx, first, entries, sizeof *first);
    measure(c, &c->gathering, true);
    return status;
}

/* The carrier gathers if it can, and if its offsets fit. */
static tow_status make_carried_gather(tow__collective *c, const tow__range_of *shares)
{
    const size_t count = (size_t)c->group->carrier.count;
    c->by_carrier = true;
    c->offsets = tow__alloc(c->ctx, count, sizeof *c->offsets);
    c->bytes = tow__alloc(c->ctx, count, sizeof *c->bytes);
    if (!c->offsets || !c->bytes) return TOW_OUT_OF_MEMORY;
    for (size_t r = 0; r < count; r++) {
        c->offsets[r] = (size_t)shares[r].offset * c->size;
        c->bytes[r] = (size_t)shares[r].count * c->size;
        c->received += c->bytes[r];
    }
    const size_t own = c->bytes[c->group->carrier.rank];
    c->received -= own;
    c->sent = own * (count - 1);
    return TOW_OK;
}

static tow_status make_shares(tow__collective *c, const tow__collective_options *o)
{
    const tow_group_functions *carrier = &c->group->carrier;
    const size_t count = (size_t)carrier->count;
    tow__range_of *shares = tow__alloc(c->ctx, count, sizeof *shares);
    tow_status status = TOW_OK;
    if (!shares) return TOW_OUT_OF_MEMORY;
    if (o->shares)
        memcpy(shares, o->shares, count * sizeof *shares);
    else
        for (int r = 0; r < carrier->count; r++)
            shares[r] = tow__share_in_window(r, carrier->count, o->n, o->unit, o->window);
    const bool small = (uint64_t)o->n * c->size <= INT_MAX;
    if (sums(o->kind)) status = make_sum(c, o, shares);
    if (!status && o->kind == TOW__ALL_GATHER && carrier->gather && small && c->layers == 1)
        status = make_carried_gather(c, shares);
    else if (!status && o->kind != TOW__REDUCE_SCATTER)
        status = make_gathering(c, shares);
    tow__free(c->ctx, shares, count, sizeof *shares);
    return status;
}

static tow_status make(tow__collective *c, const tow__collective_options *o)
{
    const tow_group_functions *carrier = &c->group->carrier;
    const size_t others = (size_t)carrier->count - 1, total = (size_t)o->n * c->layers * c->size;
    tow_status status = TOW_OK;
    if (o->kind == TOW__BROADCAST) {
        c->by_carrier = carrier->broadcast && total <= INT_MAX;
        c->capacity = c->by_carrier ? 0 : others * chunks(total);
        *(carrier->rank == o->root ? &c->sent : &c->received) = total * (carrier->rank == o->root ? others : 1);
    } else if (o->kind == TOW__BARRIER) {
        c->by_carrier = carrier->barrier;
        c->capacity = c->by_carrier ? 0 : 2 * others;
        c->ones = tow__alloc(c->ctx, others + 2, 1);
        if (!c->ones) return TOW_OUT_OF_MEMORY;
    } else {
        status = make_shares(c, o);
    }
    if (status || c->capacity == 0) return status;
    c->messages = tow__alloc(c->ctx, c->capacity, sizeof *c->messages);
    c->arrivals = tow__alloc(c->ctx, c->capacity, sizeof *c->arrivals);
    return c->messages && c->arrivals ? TOW_OK : TOW_OUT_OF_MEMORY;
}

tow_status tow__collective_create(tow_context *ctx, tow_group *group, const tow__collective_options *o,
                                  tow__collective **collective)
{
    *collective = NULL;
    if (!group) return TOW_OK;
    tow_status status = check_options(ctx, group, o);
    if (status) return status;
    tow__collective *c = tow__alloc(ctx, 1, sizeof *c);
    if (!c) return TOW_OUT_OF_MEMORY;
    *c = (tow__collective){.ctx = ctx,
                           .group = group,
                           .kind = o->kind,
                           .dtype = o->dtype,
                           .n = o->n,
                           .unit = o->unit,
                           .window = o->window,
                           .layers = o->layers > 0 ? (size_t)o->layers : 1,
                           .size = tow_dtype_size(o->dtype),
                           .count = group->carrier.count,
                           .root = o->root,
                           .parts = 1,
                           .phase = DONE};
    if (c->size == 0) c->size = 1;
    const char *what = o->what ? o->what : kinds[o->kind];
    c->what = tow__alloc(ctx, strlen(what) + 1, 1);
    if (!c->what) status = TOW_OUT_OF_MEMORY;
    if (!status) {
        memcpy(c->what, what, strlen(what) + 1);
        status = make(c, o);
    }
    const size_t parts = (size_t)(c->parts > 0 ? c->parts : 1);
    if (!status && !(c->arrays = tow__alloc(ctx, parts, sizeof *c->arrays))) status = TOW_OUT_OF_MEMORY;
    if (status)
        tow__collective_free(c);
    else
        *collective = c;
    return status;
}

void tow__collective_free(tow__collective *c)
{
    if (!c) return;
    const size_t count = (size_t)c->count;
    if (c->arrays) tow__free(c->ctx, c->arrays, (size_t)c->parts, sizeof *c->arrays);
    if (c->what) tow__free(c->ctx, c->what, strlen(c->what) + 1, 1);
    if (c->offsets) tow__free(c->ctx, c->offsets, count, sizeof *c->offsets);
    if (c->bytes) tow__free(c->ctx, c->bytes, count, sizeof *c->bytes);
    if (c->messages) tow__free(c->ctx, c->messages, c->capacity, sizeof *c->messages);
    if (c->arrivals) tow__free(c->ctx, c->arrivals, c->capacity, sizeof *c->arrivals);
    if (c->ones) tow__free(c->ctx, c->ones, count + 1, 1);
    tow__halving_free(&c->sum);
    tow__halving_free(&c->gathering);
    tow__free(c->ctx, c, 1, sizeof *c);
}

tow__range_of tow__collective_share(const tow__collective *c, int64_t n)
{
    return c ? tow__share_in_window(c->group->carrier.rank, c->count, n, c->unit, c->window) : (tow__range_of){0, n};
}

int tow__collective_parts(const tow__collective *c) { return c ? c->parts : 1; }
size_t tow__collective_scratch(const tow__collective *c) { return c ? c->scratch_bytes : 0; }
size_t tow__collective_sent(const tow__collective *c) { return c ? c->sent : 0; }
size_t tow__collective_received(const tow__collective *c) { return c ? c->received : 0; }

int tow__collective_rounds(const tow__collective *c)
{
    int rounds = 0;
    while (c && (1 << rounds) < c->count) rounds++;
    return c && c->kind == TOW__ALL_REDUCE ? 2 * rounds : rounds;
}

/* ---- messages of a level ----------------------------------------------------------------------------------------- */

static void add_message(tow__collective *c, tow_message message, arrival what)
{
    const size_t total = message.bytes;
    char *data = message.data;
    *(message.sends ? &c->group->bytes.sent : &c->group->bytes.received) += total;
    for (size_t at = 0; at < total; at += TOW_MESSAGE_BYTES) {
        message.data = data + at;
        message.bytes = total - at < TOW_MESSAGE_BYTES ? total - at : TOW_MESSAGE_BYTES;
        arrival part = what;
        if (part.n > 0) {
            part.into += at;
            part.n = (int64_t)(message.bytes / c->size);
        }
        c->messages[c->n_now] = message;
        c->arrivals[c->n_now++] = part;
    }
}

static void add_now(tow__collective *c, void *into, const void *other, bool other_is_left, int64_t n)
{
    const unsigned long long modes = tow__arithmetic_modes();
    if (modes != c->modes) tow__set_arithmetic_modes(c->modes);
    tow__add_elements(c->dtype, into, other, other_is_left, n);
    if (modes != c->modes) tow__set_arithmetic_modes(modes);
}

/* Halving: sends the left or right sum of what others will hold, and receives that of what is held here. at: the first
 * byte of a layer. Returns the bytes of scratch memory that are taken now. */
static size_t sum_layer(tow__collective *c, const tow__transfer *t, size_t at, size_t scratch)
{
    const tow__halving *s = &c->sum;
    const int from = s->leaves[t->from].rank, to = s->leaves[t->to].rank;
    const size_t offset = at + (size_t)t->offset * c->size, bytes = (size_t)t->count * c->size;
    if (from == to) {
        add_now(c, c->arrays[t->to - s->own] + offset, c->arrays[t->from - s->own] + offset, t->from < t->to, t->count);
    } else if (from == s->rank) {
        add_message(c, (tow_message){to, true, false, c->arrays[t->from - s->own] + offset, bytes}, (arrival){0});
    } else {
        const arrival a = {c->arrays[t->to - s->own] + offset, t->count, t->to < t->from};
        add_message(c, (tow_message){from, false, false, c->scratch + scratch, bytes}, a);
        scratch += bytes;
    }
    return scratch;
}

static void sum_level(tow__collective *c, size_t begin, size_t end)
{
    size_t scratch = 0;
    for (size_t i = begin; i < end; i++)
        for (size_t l = 0; l < c->layers; l++)
            scratch = sum_layer(c, &c->sum.transfers[i], l * (size_t)c->n * c->size, scratch);
}

/* The way back: who received sends what has become of it. */
static void gather_level(tow__collective *c, size_t begin, size_t end)
{
    const tow__halving *s = &c->gathering;
    for (size_t i = begin; i < end; i++) {
        const tow__transfer *t = &s->transfers[i];
        const bool sends = s->leaves[t->to].rank == s->rank;
        const int peer = s->leaves[sends ? t->from : t->to].rank;
        for (size_t l = 0; l < c->layers; l++) {
            char *data = c->arrays[0] + (l * (size_t)c->n + (size_t)t->offset) * c->size;
            add_message(c, (tow_message){peer, sends, false, data, (size_t)t->count * c->size}, (arrival){0});
        }
    }
}

static void exchange_with_all(tow__collective *c)
{
    const int rank = c->group->carrier.rank, count = c->group->carrier.count;
    for (int r = 0; r < count; r++) {
        if (r == rank) continue;
        if (c->kind == TOW__BARRIER) {
            add_message(c, (tow_message){r, true, false, c->ones + count, 1}, (arrival){0});
            add_message(c, (tow_message){r, false, false, c->ones + r, 1}, (arrival){0});
        } else if (rank == c->root || r == c->root) {
            add_message(c, (tow_message){r, rank == c->root, false, c->arrays[0], (size_t)c->n * c->size},
                        (arrival){0});
        }
    }
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

/* Tags repeat after a thousand collectives, when those of the same tag have long ended. */
static int tag_of(const tow__collective *c, int level)
{
    enum {
        PERIOD = 1000
    };
    return (int)(c->number % PERIOD) * 2 * TOW__TREE_LEVELS + (c->phase == GATHER ? TOW__TREE_LEVELS : 0) + level;
}

/* Begins the exchange of the next level that has messages; at the end of all, the phase is DONE. */
static tow_status begin_step(tow__collective *c)
{
    const tow_group_functions *carrier = &c->group->carrier;
    int level = 0;
    c->n_now = 0;
    while (c->phase != DONE && c->n_now == 0) {
        if (c->phase == SUM && c->step < c->sum.n) {
            const size_t end = level_end(&c->sum, c->step);
            level = c->sum.transfers[c->step].level;
            sum_level(c, c->step, end);
            c->step = end;
        } else if (c->phase == SUM) {
            c->phase = c->kind == TOW__ALL_REDUCE ? GATHER : DONE;
            c->step = 0;
        } else if (c->phase == GATHER && c->step < c->gathering.n) {
            const size_t end = c->gathering.n - c->step;
            size_t begin = end - 1;
            level = c->gathering.transfers[begin].level;
            while (begin > 0 && c->gathering.transfers[begin - 1].level == level) begin--;
            gather_level(c, begin, end);
            c->step += end - begin;
        } else {
            c->phase = DONE;
        }
    }
    c->left = c->n_now;
    return c->n_now > 0 ? carrier->exchange(c->messages, c->n_now, tag_of(c, level), &c->request, carrier->user)
                        : TOW_OK;
}

/* The only step of what the carrier does, or of an exchange with all. */
static tow_status begin_carried(tow__collective *c)
{
    const tow_group_functions *carrier = &c->group->carrier;
    const size_t total = (size_t)c->n * c->size;
    c->phase = CARRIED;
    c->n_now = 0;
    c->left = 1;
    if (c->by_carrier) {
        c->group->bytes.sent += c->sent;
        c->group->bytes.received += c->received;
    }
    if (c->kind == TOW__ALL_GATHER)
        return carrier->gather(c->arrays[0], c->offsets, c->bytes, &c->request, carrier->user);
    if (c->kind == TOW__BROADCAST && c->by_carrier)
        return carrier->broadcast(c->arrays[0], total, c->root, &c->request, carrier->user);
    if (c->kind == TOW__BARRIER && c->by_carrier) return carrier->barrier(&c->request, carrier->user);
    exchange_with_all(c);
    c->left = c->n_now;
    if (c->n_now == 0) c->phase = DONE;
    return c->n_now > 0 ? carrier->exchange(c->messages, c->n_now, tag_of(c, 0), &c->request, carrier->user) : TOW_OK;
}

static void add_arrived(tow__collective *c)
{
    for (size_t i = 0; i < c->n_now; i++) {
        arrival *a = &c->arrivals[i];
        if (a->n == 0 || !c->messages[i].done) continue;
        add_now(c, a->into, c->messages[i].data, !a->own_left, a->n);
        a->n = 0;
    }
}

static void land(tow__collective *c)
{
    tow__collective **at = &c->group->flight;
    while (*at && *at != c) at = &(*at)->next;
    if (*at) *at = c->next;
    c->flies = false;
}

/* Moves it as far as it goes; *moved is set if anything has happened. */
static tow_status advance(tow__collective *c, double seconds, bool *moved)
{
    const tow_group_functions *carrier = &c->group->carrier;
    tow_status status = TOW_OK;
    while (c->phase != DONE) {
        const size_t before = c->left;
        if ((status = carrier->test(c->request, seconds, &c->left, carrier->user)) != TOW_OK) break;
        if (c->left == before) break;
        *moved = true;
        if (c->phase == SUM) add_arrived(c);
        if (c->left > 0) continue;
        c->request = NULL;
        if (c->phase == CARRIED)
            c->phase = DONE;
        else if ((status = begin_step(c)) != TOW_OK)
            break;
    }
    if (status || c->phase == DONE) land(c);
    return status;
}

static bool is_full(const tow_group *group)
{
    int n = 0;
    for (const tow__collective *c = group->flight; c; c = c->next) n++;
    return n >= TOW__MOST_IN_FLIGHT;
}

tow_status tow__collective_start(tow__collective *c, void *const *arrays, void *scratch)
{
    if (!c) return TOW_OK;
    if (c->flies) return tow__fail(c->ctx, TOW_INTERNAL_ERROR, "%s: it has not ended yet", c->what);
    tow__collective **last = &c->group->flight;
    bool moved = false;
    while (is_full(c->group)) {
        const tow_status status = tow__collective_wait(c->group->flight);
        if (status) return status;
    }
    for (int i = 0; arrays && i < c->parts; i++) c->arrays[i] = arrays[i];
    c->scratch = scratch;
    c->modes = tow__arithmetic_modes();
    c->number = c->group->begun++;
    c->step = 0;
    c->request = NULL;
    c->flies = true;
    c->next = NULL;
    while (*last) last = &(*last)->next;
    *last = c;
    const bool carried = c->by_carrier || c->kind == TOW__BROADCAST || c->kind == TOW__BARRIER;
    c->phase = sums(c->kind) ? SUM : GATHER;
    if (c->group->carrier.count == 1 || (c->n == 0 && c->kind != TOW__BARRIER)) {
        c->phase = DONE;
        land(c);
        return TOW_OK;
    }
    const tow_status status = carried ? begin_carried(c) : begin_step(c);
    if (status) land(c);
    return status ? status : advance(c, 0, &moved);
}

static tow_status move_others(const tow_group *group, const tow__collective *but, bool *moved)
{
    tow_status status = TOW_OK;
    for (tow__collective *c = group->flight, *next; c && !status; c = next) {
        next = c->next;
        if (c != but) status = advance(c, 0, moved);
    }
    return status;
}

tow_status tow__group_progress(tow_group *group)
{
    bool moved = false;
    return group ? move_others(group, NULL, &moved) : TOW_OK;
}

tow_status tow__collective_test(tow__collective *c, bool *done)
{
    const tow_status status = c ? tow__group_progress(c->group) : TOW_OK;
    *done = !c || !c->flies;
    return status;
}

tow_status tow__collective_wait(tow__collective *c)
{
    static const double patience = 1e-3, patience_with_others = 1e-4;
    tow_status status = TOW_OK;
    if (!c || !c->flies) return TOW_OK;
    tow__watch_reset(c->group);
    while (c->flies && !status) {
        bool moved = false;
        status = move_others(c->group, c, &moved);
        if (!status && c->flies)
            status = advance(c,
                             moved                               ? 0
                             : c->group->flight == c && !c->next ? patience
                                                                 : patience_with_others,
                             &moved);
        if (moved)
            tow__watch_reset(c->group);
        else if (c->flies && !status)
            tow__watch_idle(c->group, c);
    }
    return status;
}

tow_status tow__collective_run(tow__collective *c, void *const *arrays, void *scratch)
{
    const tow_status status = tow__collective_start(c, arrays, scratch);
    return status ? status : tow__collective_wait(c);
}

/* ---- those of a program ------------------------------------------------------------------------------------------ */

static bool add_group(tow__collectives *all, tow_group *group)
{
    for (int i = 0; i < all->n_groups; i++)
        if (all->groups[i] == group) return true;
    if (all->n_groups == TOW__MOST_GROUPS) return false;
    all->groups[all->n_groups++] = group;
    return true;
}

tow_status tow__collectives_add(tow__collectives *all, tow__collective *c, uint32_t *number)
{
    if (all->n == all->capacity) {
        const uint32_t capacity = 2 * all->capacity + 8;
        tow__collective **list = tow__grow(all->ctx, all->list, all->capacity, capacity, sizeof(tow__collective *));
        if (!list) {
            tow__collective_free(c);
            return TOW_OUT_OF_MEMORY;
        }
        all->list = list;
        all->capacity = capacity;
    }
    *number = all->n;
    all->list[all->n++] = c;
    if (!c || add_group(all, c->group)) return TOW_OK;
    return tow__fail(all->ctx, TOW_UNSUPPORTED, "a program with sums over more than %d groups of processes",
                     TOW__MOST_GROUPS);
}

tow_status tow__collectives_progress(tow__collectives *all)
{
    enum {
        MOMENT = 50000 /* nanoseconds; a look at what is in flight takes a few thousand */
    };
    tow_status status = TOW_OK;
    bool any = false;
    for (int i = 0; i < all->n_groups; i++) any |= all->groups[i]->flight != NULL;
    if (!any) return TOW_OK;
    const int64_t now = tow__nanoseconds();
    if (now - all->moved < MOMENT) return TOW_OK;
    all->moved = now;
    for (int i = 0; i < all->n_groups && !status; i++) status = tow__group_progress(all->groups[i]);
    return status;
}

tow_status tow__collectives_settle(const tow__collectives *all)
{
    tow_status status = TOW_OK;
    for (uint32_t i = 0; i < all->n && status == TOW_OK; i++) status = tow__collective_wait(all->list[i]);
    return status;
}

uint64_t tow__collectives_hash(const tow__collectives *all)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < all->n; i++) {
        const tow__collective *c = all->list[i];
        if (!c) continue;
        const int64_t facts[] = {(int64_t)c->kind, (int64_t)c->dtype, c->n, (int64_t)c->layers, c->root};
        hash = tow__hash(hash, facts, sizeof facts);
        hash = tow__hash(hash, c->group->name, strlen(c->group->name));
    }
    return hash;
}

void tow__collectives_free(tow__collectives *all)
{
    for (uint32_t i = 0; i < all->n; i++) tow__collective_free(all->list[i]);
    if (all->list) tow__free(all->ctx, all->list, all->capacity, sizeof(tow__collective *));
    *all = (tow__collectives){.ctx = all->ctx};
}

/* ---- where it stands --------------------------------------------------------------------------------------------- */

/* Ranks whose messages have not come, or, if all have, to which messages have not gone. */
static bool is_missing(const tow__collective *c, int rank, bool sends)
{
    for (size_t i = 0; i < c->n_now; i++)
        if (c->messages[i].peer == rank && c->messages[i].sends == sends && !c->messages[i].done) return true;
    return false;
}

size_t tow__collective_text(const tow__collective *c, char *text, size_t size)
{
    size_t length = 0, missing = 0;
    int n = snprintf(text, size, "%s (collective %u)", c->what, (unsigned)c->number);
    if (n > 0) length = (size_t)n;
    for (int sends = 0; sends < 2 && missing == 0; sends++)
        for (int r = 0; r < c->group->carrier.count && length < size; r++) {
            if (!is_missing(c, r, sends != 0)) continue;
            n = snprintf(text + length, size - length, "%s %d",
                         missing++ ? ","
                         : sends   ? ", sends to"
                                   : ", waits for",
                         r);
            if (n > 0) length += (size_t)n;
        }
    return length;
}
