/* The crew of a context: persistent threads that meet the caller by counters.
 *
 *   caller                                       worker
 *   writes job; ticket[t]++ for each worker      sees its ticket change, runs its range, remaining--
 *   runs range 0; waits for remaining == 0       waits for the next ticket
 *
 * Waiting is a short spin, then a futex. The side that sleeps says so before it looks at the counter a last time, the
 * other side changes the counter before it looks whether somebody sleeps; both are sequentially consistent, so no wake
 * is lost. Only workers that have a part in a job are told of it; the job is not touched until they all are done. */
#include "src/base/team.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/base/arithmetic.h"
#include "src/base/base.h"
#include "src/base/cancel.h"
#include "src/base/clock.h"

enum {
    LINE = 64,
    SPIN_NANOSECONDS = 100000, /* how long a waiting thread looks before it sleeps */
    KEEP_NANOSECONDS = 3000,   /* how long it keeps its CPU: the other side may be waiting for the same one */
    SPINS_PER_LOOK = 32,       /* pauses between looks at the clock */
    STACK = 512 << 10          /* bytes of a worker's, at least: libxsmm needs more than half of it */
};

typedef struct job {
    void (*body)(void *user, int64_t block, int thread);
    void *user;
    int64_t blocks;
    int threads;
    unsigned long long modes;        /* of the caller's arithmetic */
    tow__cancellation *cancellation; /* of the run that the caller works for */
} job;

typedef struct worker {
    _Alignas(LINE) atomic_uint ticket; /* changes with every job that has a part for this worker */
    atomic_uint asleep;
    tow__crew *crew;
    pthread_t thread;
    int index; /* 1, 2, ...: the caller is 0 */
} worker;

struct tow__crew {
    _Alignas(LINE) atomic_uint remaining; /* workers that have not finished the job */
    atomic_uint caller_asleep;
    _Alignas(LINE) atomic_bool busy;
    atomic_bool ending;
    job job;
    int started, capacity; /* workers */
    atomic_uint *alive;    /* a page of its own that reads 0 in a forked child; NULL: compare `process` instead */
    size_t page;
    pid_t process;
    worker workers[];
};

static _Thread_local int current_thread;

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Of the kernel's interface. Its headers (linux/futex.h) are not everywhere where a C library is. */
enum {
    WAIT_PRIVATE = 128,
    WAKE_PRIVATE = 129
};

static void futex_wait(atomic_uint *word, unsigned seen)
{
    syscall(SYS_futex, word, WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word) { syscall(SYS_futex, word, WAKE_PRIVATE, INT_MAX, NULL, NULL, 0); }

/* True once *word differs from `seen` (with `until_zero`: once it is 0); false if the spin has lasted long enough. */
static bool spin(atomic_uint *word, unsigned seen, bool until_zero, unsigned *value)
{
    int64_t start = 0;
    for (;;) {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            *value = atomic_load_explicit(word, memory_order_acquire);
            if (until_zero ? *value == 0 : *value != seen) return true;
            relax();
        }
        int64_t now = tow__nanoseconds();
        if (start == 0) start = now;
        if (now - start >= SPIN_NANOSECONDS) return false;
        if (now - start >= KEEP_NANOSECONDS) sched_yield();
    }
}

/* Until *word differs from `seen`; returns its value. */
static unsigned wait_for_change(atomic_uint *word, atomic_uint *asleep, unsigned seen)
{
    unsigned value;
    if (spin(word, seen, false, &value)) return value;
    atomic_store(asleep, 1);
    while ((value = atomic_load(word)) == seen) futex_wait(word, seen);
    atomic_store(asleep, 0);
    return value;
}

static void wait_for_zero(atomic_uint *word, atomic_uint *asleep)
{
    unsigned value;
    if (spin(word, 0, true, &value)) return;
    atomic_store(asleep, 1);
    while ((value = atomic_load(word)) != 0) futex_wait(word, value);
    atomic_store(asleep, 0);
}

/* ---- workers ----------------------------------------------------------------------------------------------------- */

static void run_range(const job *j, int thread)
{
    int64_t begin = thread * j->blocks / j->threads, end = (thread + 1) * j->blocks / j->threads;
    for (int64_t block = begin; block < end && !tow__cancelled(); block++) j->body(j->user, block, thread);
}

static void *work(void *argument)
{
    worker *w = argument;
    tow__crew *crew = w->crew;
    current_thread = w->index;
    for (unsigned ticket = 0;;) {
        ticket = wait_for_change(&w->ticket, &w->asleep, ticket);
        if (atomic_load(&crew->ending)) return NULL;
        tow__set_arithmetic_modes(crew->job.modes);
        tow__cancellation_enter(crew->job.cancellation);
        run_range(&crew->job, w->index);
        if (atomic_fetch_sub(&crew->remaining, 1) == 1 && atomic_load(&crew->caller_asleep))
            futex_wake(&crew->remaining);
    }
}

static void call(worker *w)
{
    atomic_fetch_add(&w->ticket, 1);
    if (atomic_load(&w->asleep)) futex_wake(&w->ticket);
}

/* Stacks as large as the system's default, which may be as small as the least one. */
static int create_thread(worker *w)
{
    pthread_attr_t attributes;
    size_t stack = 0;
    int error = pthread_attr_init(&attributes);
    if (error) return error;
    pthread_attr_getstacksize(&attributes, &stack);
    if (stack < STACK) error = pthread_attr_setstacksize(&attributes, STACK);
    if (!error) error = pthread_create(&w->thread, &attributes, work, w);
    pthread_attr_destroy(&attributes);
    return error;
}

/* Signals are for the threads of the application. */
static int start_worker(tow__crew *crew)
{
    worker *w = &crew->workers[crew->started];
    *w = (worker){.crew = crew, .index = crew->started + 1};
    sigset_t all, old;
    sigfillset(&all);
    int masked = pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = create_thread(w);
    if (masked == 0) pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error == 0) crew->started++;
    return error;
}

/* ---- the crew of a context --------------------------------------------------------------------------------------- */

static size_t crew_bytes(int capacity)
{
    size_t bytes = sizeof(tow__crew) + (size_t)capacity * sizeof(worker);
    return (bytes + LINE - 1) / LINE * LINE;
}

/* True if the page will read 0 in a forked child. Emulators of user programs answer every advice with success, also one
 * that does not exist, and take none. */
static bool wipes_on_fork(void *page, size_t bytes)
{
    return madvise(page, bytes, -1) != 0 && madvise(page, bytes, MADV_WIPEONFORK) == 0;
}

static tow__crew *make_crew(tow_context *ctx, int capacity)
{
    tow__crew *crew = tow__alloc_aligned(ctx, crew_bytes(capacity));
    if (!crew) return NULL;
    crew->capacity = capacity;
    crew->process = getpid();
    crew->page = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, crew->page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return crew;
    if (wipes_on_fork(page, crew->page)) {
        crew->alive = page;
        atomic_store(crew->alive, 1);
    } else {
        munmap(page, crew->page);
    }
    return crew;
}

/* False in a child of the process that started the workers: threads do not survive a fork. */
static bool has_workers(const tow__crew *crew)
{
    return crew->alive ? atomic_load_explicit(crew->alive, memory_order_relaxed) != 0 : crew->process == getpid();
}

tow_status tow__team_create(tow_context *ctx, int threads, tow__team *team)
{
    *team = (tow__team){.threads = tow__team_size(threads), .products = ctx->products};
    if (team->threads < 2) return TOW_OK;
    tow__crew *crew = ctx->crew;
    if (!crew && !(crew = ctx->crew = make_crew(ctx, tow__cpu_count() - 1))) return TOW_OUT_OF_MEMORY;
    if (crew->capacity < team->threads - 1) team->threads = crew->capacity + 1; /* the affinity mask has changed */
    while (has_workers(crew) && crew->started < team->threads - 1) {
        int error = start_worker(crew);
        if (error)
            return tow__fail(ctx, TOW_OUT_OF_MEMORY,
                             "expected %d threads, but the system started only %d: %s; set a "
                             "smaller number of threads in tow_context_options or tow_compile_options",
                             team->threads, crew->started + 1, strerror(error));
    }
    team->crew = crew;
    return TOW_OK;
}

void tow__crew_free(tow_context *ctx, tow__crew *crew)
{
    if (!crew) return;
    if (has_workers(crew)) {
        atomic_store(&crew->ending, true);
        for (int i = 0; i < crew->started; i++) call(&crew->workers[i]);
        for (int i = 0; i < crew->started; i++) pthread_join(crew->workers[i].thread, NULL);
    }
    if (crew->alive) munmap(crew->alive, crew->page);
    tow__free_aligned(ctx, crew, crew_bytes(crew->capacity));
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static void run_alone(const job *j)
{
    int outer = current_thread;
    current_thread = 0;
    run_range(j, 0);
    current_thread = outer;
}

static void run_on_crew(tow__crew *crew, const job *j)
{
    crew->job = *j;
    crew->job.modes = tow__arithmetic_modes();
    crew->job.cancellation = tow__cancellation_now();
    atomic_store_explicit(&crew->remaining, (unsigned)(j->threads - 1), memory_order_relaxed);
    for (int t = 1; t < j->threads; t++) call(&crew->workers[t - 1]);
    int outer = current_thread;
    current_thread = 0;
    run_range(&crew->job, 0);
    current_thread = outer;
    wait_for_zero(&crew->remaining, &crew->caller_asleep);
    atomic_store_explicit(&crew->busy, false, memory_order_release);
}

void tow__team_run_indexed(const tow__team *team, int64_t blocks, void (*body)(void *user, int64_t block, int thread),
                           void *user)
{
    job j = {body, user, blocks, 1};
    int threads = team != NULL && team->crew ? team->threads : 1;
    if (blocks < threads) threads = (int)blocks;
    if (threads < 2 || !has_workers(team->crew) ||
        atomic_exchange_explicit(&team->crew->busy, true, memory_order_acquire)) {
        run_alone(&j);
        return;
    }
    j.threads = threads;
    run_on_crew(team->crew, &j);
}

typedef struct plain {
    void (*body)(void *user, int64_t block);
    void *user;
} plain;

static void run_plain(void *user, int64_t block, int thread)
{
    (void)thread;
    const plain *p = user;
    p->body(p->user, block);
}

void tow__team_run(const tow__team *team, int64_t blocks, void (*body)(void *user, int64_t block), void *user)
{
    tow__team_run_indexed(team, blocks, run_plain, &(plain){body, user});
}

int tow__team_thread(void) { return current_thread; }

int tow__cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

int tow__team_size(int threads)
{
    int cpus = tow__cpu_count();
    return threads < cpus ? threads : cpus;
}
