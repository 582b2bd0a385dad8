/* Carries a group of processes of one machine over memory that they share. Its functions are exchange, test and abort;
 * everything else is made of exchanges.
 *
 * For each ordered pair of ranks there are a few channels. The messages of one exchange from one rank to another are a
 * stream of bytes through a channel that the sender takes for it and marks with the tag; the receiver finds the channel
 * by the tag, and gives it back when it has read all. Exchanges with different tags therefore do not wait for each
 * other.
 *
 * A sender that waits for nobody may be far ahead of a receiver that waits for its oldest collective, so channels must
 * not run out: in the first half of them an exchange has ended for the sender when all is written, in the second half
 * when the receiver has read it. The second half then has a channel for each collective that the sender has in flight.
 *
 *   channel   tag + 1, or 0: free | bytes written so far | bytes read so far | ring
 *
 * The sender alone writes `written`, the receiver alone `read`. Each rank has a bell, a counter that others increase
 * when they have moved something for it, and on which it sleeps. No lock is held by anybody, so a process that is
 * killed leaves the others as they are. */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/group/group.h"

enum {
    REPORTS = 2,                  /* exchanges of the watchdog, beside collectives in flight */
    UNREAD = TOW__MOST_IN_FLIGHT, /* channels of an ordered pair whose exchanges may have ended for the sender */
    CHANNELS = UNREAD + TOW__MOST_IN_FLIGHT + REPORTS,
    RING = 1 << 16,
    SMALL_RING = 1 << 13, /* with many ranks */
    FEW = 8,
    LINE = 64,
    SPINS = 50,       /* in front of sleeping, where other processes may want the processor */
    MORE_SPINS = 2000 /* where each has one: waking up takes as long as several rings of bytes */
};

typedef struct bell {
    _Alignas(LINE) atomic_uint rung;
    atomic_uint sleeps;
    atomic_uint returned; /* the function of the rank */
} bell;

typedef struct channel {
    _Alignas(LINE) atomic_uint tag; /* + 1; 0: free */
    _Alignas(LINE) _Atomic(uint64_t) written;
    _Alignas(LINE) _Atomic(uint64_t) read;
} channel;

struct tow__board {
    size_t bytes, ring;
    int count;
    bell *bells;       /* [count] */
    channel *channels; /* [from][to][CHANNELS] */
    char *rings;       /* likewise, ring bytes each */
};

tow__board *tow__board_create(int count)
{
    const size_t n = (size_t)count, ring = count > FEW ? SMALL_RING : RING, lines = n * n * CHANNELS;
    const size_t head = (sizeof(tow__board) + LINE - 1) / LINE * LINE;
    const size_t bytes = head + n * sizeof(bell) + lines * (sizeof(channel) + ring);
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    tow__board *b = (tow__board *)(void *)memory;
    *b = (tow__board){.bytes = bytes, .ring = ring, .count = count};
    b->bells = (bell *)(void *)(memory + head);
    b->channels = (channel *)(void *)(memory + head + n * sizeof(bell));
    b->rings = memory + head + n * sizeof(bell) + lines * sizeof(channel);
    return b;
}

void tow__board_free(tow__board *b)
{
    if (b) munmap(b, b->bytes);
}

void tow__board_set_returned(tow__board *board, int rank) { atomic_store(&board->bells[rank].returned, 1); }
bool tow__board_has_returned(const tow__board *board, int rank) { return atomic_load(&board->bells[rank].returned); }

/* ---- a rank ------------------------------------------------------------------------------------------------------ */

/* An exchange. There are as many as collectives fly at once, so that no exchange has to allocate. */
typedef struct request {
    struct request *next;
    bool used;
    tow_message *messages;
    size_t n, left;
    int tag;
    size_t *moved;     /* bytes of the message at hand, [sends][peer] */
    size_t *at;        /* the message at hand, n: none, [sends][peer] */
    channel **channel; /* likewise; NULL: none yet */
} request;

typedef struct shared_memory {
    tow_context *ctx;
    tow__board *board;
    int rank, spins;
    request *requests;
} shared_memory;

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Of the kernel's interface, as in team.c, between processes. */
enum {
    WAIT_SHARED = 0,
    WAKE_SHARED = 1
};

static void ring_bell(bell *b)
{
    atomic_fetch_add(&b->rung, 1);
    if (atomic_load(&b->sleeps)) syscall(SYS_futex, &b->rung, WAKE_SHARED, 1, NULL, NULL, 0);
}

/* Until somebody rings, at most so long. */
static void sleep_on(bell *b, unsigned seen, int spins, double seconds)
{
    const struct timespec most = {.tv_sec = (time_t)seconds,
                                  .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    for (int i = 0; i < spins; i++) {
        if (atomic_load(&b->rung) != seen) return;
        relax();
    }
    atomic_store(&b->sleeps, 1);
    syscall(SYS_futex, &b->rung, WAIT_SHARED, seen, &most, NULL, 0);
    atomic_store(&b->sleeps, 0);
}

/* ---- moving bytes ------------------------------------------------------------------------------------------------ */

static size_t stream_of(const shared_memory *m, bool sends, int peer)
{
    return (sends ? (size_t)m->board->count : 0) + (size_t)peer;
}

static channel *channels_between(const tow__board *b, int from, int to)
{
    return b->channels + ((size_t)from * (size_t)b->count + (size_t)to) * CHANNELS;
}

static char *ring_of(const tow__board *b, const channel *c) { return b->rings + (size_t)(c - b->channels) * b->ring; }

/* A free channel for the sender, the one with the tag for the receiver; NULL: there is none now. */
static channel *find_channel(const shared_memory *m, const request *r, bool sends, int peer)
{
    channel *c = sends ? channels_between(m->board, m->rank, peer) : channels_between(m->board, peer, m->rank);
    const unsigned wanted = sends ? 0 : (unsigned)r->tag + 1;
    for (int i = 0; i < CHANNELS; i++)
        if (atomic_load_explicit(&c[i].tag, memory_order_acquire) == wanted) {
            if (sends) atomic_store_explicit(&c[i].tag, (unsigned)r->tag + 1, memory_order_release);
            return &c[i];
        }
    return NULL;
}

static size_t write_ring(const tow__board *b, channel *c, const char *data, size_t bytes)
{
    char *ring = ring_of(b, c);
    const uint64_t written = atomic_load_explicit(&c->written, memory_order_relaxed);
    const size_t room = b->ring - (size_t)(written - atomic_load_explicit(&c->read, memory_order_acquire));
    const size_t n = bytes < room ? bytes : room, at = (size_t)(written % b->ring);
    const size_t first = n < b->ring - at ? n : b->ring - at;
    memcpy(ring + at, data, first);
    memcpy(ring, data + first, n - first);
    atomic_store_explicit(&c->written, written + n, memory_order_release);
    return n;
}

static size_t read_ring(const tow__board *b, channel *c, char *data, size_t bytes)
{
    const char *ring = ring_of(b, c);
    const uint64_t read = atomic_load_explicit(&c->read, memory_order_relaxed);
    const size_t there = (size_t)(atomic_load_explicit(&c->written, memory_order_acquire) - read);
    const size_t n = bytes < there ? bytes : there, at = (size_t)(read % b->ring);
    const size_t first = n < b->ring - at ? n : b->ring - at;
    memcpy(data, ring + at, first);
    memcpy(data + first, ring, n - first);
    atomic_store_explicit(&c->read, read + n, memory_order_release);
    return n;
}

/* The next message of the stream behind message i. */
static size_t next_message(const request *r, size_t i, bool sends, int peer)
{
    for (; i < r->n; i++)
        if (r->messages[i].peer == peer && r->messages[i].sends == sends) break;
    return i;
}

/* All of the stream is written: may the sender forget it? A channel that the receiver gave back has another tag. */
static bool may_leave(const shared_memory *m, const request *r, const channel *c, int peer)
{
    return c - channels_between(m->board, m->rank, peer) < UNREAD ||
           atomic_load_explicit(&c->tag, memory_order_acquire) != (unsigned)r->tag + 1;
}

/* Moves what the ring takes or has of a message. True if all of it was moved, now or before. */
static bool move_message(const shared_memory *m, const tow_message *message, channel *c, size_t *moved, bool *any)
{
    while (*moved < message->bytes) {
        char *data = (char *)message->data + *moved;
        const size_t rest = message->bytes - *moved;
        const size_t n = message->sends ? write_ring(m->board, c, data, rest) : read_ring(m->board, c, data, rest);
        if (n == 0) return false;
        *any = true;
        *moved += n;
    }
    return true;
}

/* Moves what the ring takes or has of a stream. */
static bool move_stream(shared_memory *m, request *r, bool sends, int peer)
{
    const size_t stream = stream_of(m, sends, peer);
    bool moved = false;
    while (r->at[stream] < r->n) {
        tow_message *message = &r->messages[r->at[stream]];
        if (!r->channel[stream] && !(r->channel[stream] = find_channel(m, r, sends, peer))) break;
        channel *c = r->channel[stream];
        if (!move_message(m, message, c, &r->moved[stream], &moved)) break;
        const size_t next = next_message(r, r->at[stream] + 1, sends, peer);
        if (sends && next == r->n && !may_leave(m, r, c, peer)) break;
        message->done = true;
        r->left--;
        r->moved[stream] = 0;
        r->at[stream] = next;
        if (r->at[stream] == r->n && !sends) { /* all has been read */
            atomic_store_explicit(&c->written, 0, memory_order_relaxed);
            atomic_store_explicit(&c->read, 0, memory_order_relaxed);
            atomic_store_explicit(&c->tag, 0, memory_order_release);
        }
    }
    if (moved) ring_bell(&m->board->bells[peer]);
    return moved;
}

static bool move_request(shared_memory *m, request *r)
{
    bool moved = false;
    for (int i = 1; i < m->board->count; i++) { /* ranks do not all begin with the same one */
        const int peer = (m->rank + i) % m->board->count;
        moved |= move_stream(m, r, true, peer);
        moved |= move_stream(m, r, false, peer);
    }
    return moved;
}

static bool move_all(shared_memory *m)
{
    bool moved = false;
    for (request *r = m->requests; r; r = r->next)
        if (r->used && r->left > 0) moved |= move_request(m, r);
    return moved;
}

/* ---- the functions ----------------------------------------------------------------------------------------------- */

static void free_request(shared_memory *m, request *r)
{
    const size_t streams = 2 * (size_t)m->board->count;
    if (r->moved) tow__free(m->ctx, r->moved, streams, sizeof *r->moved);
    if (r->at) tow__free(m->ctx, r->at, streams, sizeof *r->at);
    if (r->channel) tow__free(m->ctx, r->channel, streams, sizeof *r->channel);
    tow__free(m->ctx, r, 1, sizeof *r);
}

static request *new_request(shared_memory *m)
{
    const size_t streams = 2 * (size_t)m->board->count;
    request *r = tow__alloc(m->ctx, 1, sizeof *r);
    if (!r) return NULL;
    r->moved = tow__alloc(m->ctx, streams, sizeof *r->moved);
    r->at = tow__alloc(m->ctx, streams, sizeof *r->at);
    r->channel = tow__alloc(m->ctx, streams, sizeof *r->channel);
    if (!r->moved || !r->at || !r->channel) {
        free_request(m, r);
        return NULL;
    }
    r->next = m->requests;
    m->requests = r;
    return r;
}

static request *unused_request(shared_memory *m)
{
    request *r = m->requests;
    while (r && r->used) r = r->next;
    return r ? r : new_request(m);
}

static tow_status exchange(tow_message *messages, size_t n, int tag, void **started, void *user)
{
    shared_memory *m = user;
    request *r = unused_request(m);
    if (!r) return TOW_OUT_OF_MEMORY;
    r->used = true;
    r->messages = messages;
    r->n = r->left = n;
    r->tag = tag;
    for (int sends = 0; sends < 2; sends++)
        for (int peer = 0; peer < m->board->count; peer++) {
            const size_t stream = stream_of(m, sends != 0, peer);
            r->moved[stream] = 0;
            r->channel[stream] = NULL;
            r->at[stream] = next_message(r, 0, sends != 0, peer);
        }
    move_request(m, r);
    *started = r;
    return TOW_OK;
}

static tow_status test(void *started, double seconds, size_t *left, void *user)
{
    shared_memory *m = user;
    request *r = started;
    bell *own = &m->board->bells[m->rank];
    const unsigned seen = atomic_load(&own->rung);
    if (!move_all(m) && seconds > 0 && r->left > 0) {
        sleep_on(own, seen, m->spins, seconds);
        move_all(m);
    }
    *left = r->left;
    if (r->left == 0) r->used = false;
    return TOW_OK;
}

/* The process that started this one ends the others. */
static void end(int exit_status, void *user)
{
    (void)user;
    _exit(exit_status);
}

static void leave(void *user)
{
    shared_memory *m = user;
    for (request *r = m->requests, *next; r; r = next) {
        next = r->next;
        free_request(m, r);
    }
    tow__free(m->ctx, m, 1, sizeof *m);
}

tow_status tow__board_join(tow_context *ctx, tow__board *board, int rank, tow_group_functions *functions)
{
    shared_memory *m = tow__alloc(ctx, 1, sizeof *m);
    if (!m) return TOW_OUT_OF_MEMORY;
    *m = (shared_memory){.ctx = ctx, .board = board, .rank = rank};
    m->spins = board->count <= tow__cpu_count() ? MORE_SPINS : SPINS;
    for (int i = 0; i < TOW__MOST_IN_FLIGHT + REPORTS; i++)
        if (!new_request(m)) {
            leave(m);
            return TOW_OUT_OF_MEMORY;
        }
    *functions = (tow_group_functions){.size = sizeof *functions,
                                       .rank = rank,
                                       .count = board->count,
                                       .exchange = exchange,
                                       .test = test,
                                       .abort = end,
                                       .free = leave,
                                       .user = m};
    return TOW_OK;
}
