/* Trials of engines (gemm_trial.h). The table of trials only grows: an entry is claimed, filled and then published,
 * and does not change any more. Threads that make the same trial at once make it twice, which does no harm. */
#include "src/kernels/products/gemm_trial.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "src/base/arithmetic.h"
#include "src/base/machine.h"
#include "src/kernels/products/gemm_own.h"

#ifdef TOW_HAVE_LIBXSMM
static const tow__gemm_engine *const for_small = &tow__gemm_xsmm;
#else
static const tow__gemm_engine *const for_small = NULL;
#endif
#ifdef TOW_HAVE_BLIS
static const tow__gemm_engine *const for_large = &tow__gemm_blis;
#else
static const tow__gemm_engine *const for_large = NULL;
#endif

enum {
    TRIALS = 512,         /* in a process; products of further shapes run on the own kernel */
    SPAN_BYTES = 2 << 20, /* of the arrays of a trial, at most */
    NUMBERS = 1024,       /* of which operands are made */
    ROUNDS = 5,           /* of timing, for products that take less than LONG */
    ROUNDS_LONG = 3,
    LONG = 20000, /* nanoseconds */
    LEAST = 3000, /* of what is timed at once */
    LINE = 64,
    FEW_ROWS = 16,   /* with which BLIS, which packs all of B, is never ahead of a vector kernel */
    PROOF_ROWS = 40, /* of a proof: several tiles of every kernel, and an edge */
    PROOF_COLUMNS = 72,
    TINY_COLUMNS = 8, /* whose sums underflow */
    SUMS = 64,        /* of a proof with ordinary numbers: two orders of two products round alike in most sums */
    LANES = 16,       /* of the longest vectors */
    MOST_PROOFS = 24
};

#define CLOSE 1.25

/* The shape that a trial depends on; the last two numbers in a contest alone. */
typedef struct shape {
    int64_t m, n, k, a_row, a_column, b_row, b_column, ldc;
    bool accumulate, packed, epilogue;
} shape;

typedef struct entry {
    atomic_bool done;
    shape shape;
    tow__gemm_trial trial;
    tow__gemm_contest contest;
} entry;

static entry entries[TRIALS];
static atomic_int claimed;
static atomic_llong spent; /* nanoseconds */

static bool is_large(const tow__gemm *g) { return (double)g->m * (double)g->n * (double)g->k > TOW__TRIAL_WORK; }

/* True if libxsmm is tried. A packed operand is the own kernel's. */
static bool suits_small(const tow__gemm *g)
{
    return for_small != NULL && !is_large(g) && g->k <= TOW__GEMM_KC && g->packed == NULL && for_small->applicable(g);
}

/* One of two axes runs through memory without gaps. */
static bool is_simple(int64_t rows, int64_t columns, int64_t row, int64_t column)
{
    return row == 1 || column == 1 || rows == 1 || columns == 1;
}

/* True if BLIS is tried. */
static bool suits_large(const tow__gemm *g)
{
    const bool has_vectors = tow__machine_here()->vector_bytes > 0;
    tow__gemm_code code;
    return for_large != NULL && (!has_vectors || (is_large(g) && g->m >= FEW_ROWS && g->n >= FEW_ROWS)) &&
           is_simple(g->m, g->k, g->a_row, g->a_column) && is_simple(g->k, g->n, g->b_row, g->b_column) &&
           for_large->applicable(g) && for_large->make(g, 0, &code);
}

static shape shape_of(const tow__gemm *g)
{
    const bool small = suits_small(g);
    return (shape){.m = g->m,
                   .n = g->n,
                   .k = g->k,
                   .a_row = g->a_row,
                   .a_column = g->a_column,
                   .b_row = g->b_row,
                   .b_column = g->b_column,
                   .ldc = g->ldc,
                   .accumulate = g->accumulate,
                   .packed = g->packed != NULL,
                   .epilogue = !small && g->epilogue != NULL};
}

static bool same(const shape *x, const shape *y)
{
    return x->m == y->m && x->n == y->n && x->k == y->k && x->a_row == y->a_row && x->a_column == y->a_column &&
           x->b_row == y->b_row && x->b_column == y->b_column && x->ldc == y->ldc && x->accumulate == y->accumulate &&
           x->packed == y->packed && x->epilogue == y->epilogue;
}

static const entry *find(const shape *s)
{
    const int all = atomic_load(&claimed), n = all < TRIALS ? all : TRIALS;
    for (int i = 0; i < n; i++)
        if (atomic_load(&entries[i].done) && same(&entries[i].shape, s)) return &entries[i];
    return NULL;
}

/* ---- operands ---------------------------------------------------------------------------------------------------- */

/* The arrays of a trial. */
typedef struct arrays {
    char *memory;
    size_t bytes;
    f32 *a, *b, *first, *second; /* second: C of the engine on trial */
    int64_t c_elements;
} arrays;

static int64_t span(int64_t rows, int64_t row, int64_t columns, int64_t column)
{
    return ((rows - 1) * row + (columns - 1) * column) * (int64_t)sizeof(f32) + (int64_t)sizeof(f32);
}

static size_t lines(int64_t bytes) { return (size_t)((bytes + LINE - 1) / LINE * LINE); }

static bool take_arrays(const tow__gemm *g, size_t scratch, arrays *x)
{
    const int64_t a = span(g->m, g->a_row, g->k, g->a_column), b = span(g->k, g->b_row, g->n, g->b_column);
    const int64_t c = span(g->m, g->ldc, g->n, 1);
    if (a > SPAN_BYTES || b > SPAN_BYTES || c > SPAN_BYTES) return false;
    x->bytes = lines(a) + lines(b) + 2 * lines(c) + scratch;
    if (x->bytes > SPAN_BYTES + scratch) return false;
    x->memory = mmap(NULL, x->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (x->memory == MAP_FAILED) return false;
    x->a = (f32 *)(void *)(x->memory + scratch);
    x->b = (f32 *)(void *)(x->memory + scratch + lines(a));
    x->first = (f32 *)(void *)(x->memory + scratch + lines(a) + lines(b));
    x->second = (f32 *)(void *)(x->memory + scratch + lines(a) + lines(b) + lines(c));
    x->c_elements = c / (int64_t)sizeof(f32);
    return true;
}

static uint32_t next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Numbers that operands repeat: in [-1, 1), or `hard` ones: of many sizes, subnormal ones, zeros of both signs, and
 * pairs that cancel. */
static void make_numbers(f32 *x, int64_t n, bool hard)
{
    uint32_t state = 1;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = next(&state), kind = hard ? bits & 15 : 15;
        x[i] = (f32)((int32_t)bits - (1 << 23)) * 0x1p-23f;
        if (kind < 2)
            x[i] = kind == 0 ? 0.0f : -0.0f;
        else if (kind < 4)
            x[i] *= 0x1p-130f;
        else if (kind < 6 && i > 0)
            x[i] = -x[i - 1];
        else if (kind < 11)
            x[i] *= (f32)(1 << (bits >> 4 & 15));
    }
}

/* [lines][length], `step` elements from line to line: each begins elsewhere among the numbers, the first at `start`.
 * numbers: [2][NUMBERS], twice the same. */
static void fill(f32 *x, int64_t n_lines, int64_t step, int64_t length, const f32 *numbers, int64_t start)
{
    for (int64_t i = 0; i < n_lines; i++)
        for (int64_t first = 0; first < length; first += NUMBERS)
            memcpy(x + i * step + first, numbers + (i * 331 + start) % NUMBERS,
                   (size_t)tow__min(NUMBERS, length - first) * sizeof(f32));
}

/* Row 0 of A and some columns of B: their products are so small that only the signs of zeros are left. */
static void make_tiny(const tow__gemm *g, const arrays *x)
{
    for (int64_t p = 0; p < g->k; p++) {
        x->a[p * g->a_column] *= 0x1p-110f;
        for (int64_t j = 0; j < tow__min(TINY_COLUMNS, g->n); j++) x->b[p * g->b_row + j * g->b_column] *= 0x1p-110f;
    }
}

/* start: where the first of the numbers is that they repeat. */
static void fill_operands(const tow__gemm *g, const arrays *x, bool hard, int64_t start)
{
    f32 numbers[2 * NUMBERS];
    make_numbers(numbers, NUMBERS, hard);
    memcpy(numbers + NUMBERS, numbers, sizeof numbers / 2);
    if (g->a_column == 1)
        fill(x->a, g->m, g->a_row, g->k, numbers, start);
    else
        fill(x->a, g->k, g->a_column, g->m, numbers, start);
    if (g->b_column == 1 || g->n == 1)
        fill(x->b, g->k, g->b_row, g->n, numbers, start + 7);
    else
        fill(x->b, g->n, g->b_column, g->k, numbers, start + 7);
    fill(x->first, 1, 0, x->c_elements, numbers, 0);
    fill(x->second, 1, 0, x->c_elements, numbers, 0);
    if (hard) make_tiny(g, x);
}

/* ---- one trial --------------------------------------------------------------------------------------------------- */

static bool is_equal_once(const tow__gemm *g, const tow__gemm_engine *engine, const arrays *x, bool hard, int64_t start)
{
    tow__gemm own = *g, other = *g;
    fill_operands(g, x, hard, start);
    own.c = x->first, own.code = NULL;
    other.c = x->second;
    tow__gemm_own.run(&own);
    engine->run(&other);
    return memcmp(x->first, x->second, (size_t)x->c_elements * sizeof(f32)) == 0;
}

/* Sums of the smallest tile in registers that an engine may cut C into: one row of what whole vectors leave of it. Such
 * tiles may be summed in another order than those beside them. */
static int64_t sums_of_least_tile(const tow__gemm *g)
{
    const int64_t left = g->n % LANES;
    return left > 0 ? left : LANES;
}

/* True if `engine` gives every bit that the own kernel gives, and writes nothing else: once with hard numbers, and with
 * ordinary ones until each tile has made SUMS sums, as a few sums may have equal bits whatever their order is. */
static bool is_equal(const tow__gemm *g, const tow__gemm_engine *engine, const arrays *x)
{
    const int64_t proofs = tow__min(tow__ceil_div(SUMS, sums_of_least_tile(g)), MOST_PROOFS);
    bool equal = is_equal_once(g, engine, x, true, 0);
    for (int64_t i = 0; i < proofs && equal; i++) equal = is_equal_once(g, engine, x, false, i * 37);
    return equal;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static double lesser(double x, double y) { return x < y ? x : y; }

static double time_of(const tow__gemm *g, const tow__gemm_engine *engine, int64_t times)
{
    const double start = now();
    for (int64_t i = 0; i < times; i++) engine->run(g);
    return (now() - start) / (double)times;
}

/* Nanoseconds of g on each engine, run in turn; each the best of some. */
static void compare_times(const tow__gemm *g, const tow__gemm_engine *engine, const arrays *x, double *own,
                          double *other)
{
    tow__gemm first = *g, second = *g;
    fill_operands(g, x, false, 0);
    first.c = second.c = x->first, first.code = NULL;
    const double once = lesser(time_of(&first, &tow__gemm_own, 1), time_of(&first, &tow__gemm_own, 1));
    const int64_t times = 1 + (int64_t)(LEAST / (once + 1));
    *own = once, *other = 1e18;
    for (int round = 0; round < (once < LONG ? ROUNDS : ROUNDS_LONG); round++) {
        *other = lesser(*other, time_of(&second, engine, times));
        *own = lesser(*own, time_of(&first, &tow__gemm_own, times));
    }
}

/* Tries each way in which `engine` may compute g, and keeps the best. */
static void try_engine(const tow__gemm *like, const tow__gemm_engine *engine, const arrays *x, tow__gemm_trial *t)
{
    tow__gemm_code code;
    tow__gemm g = *like;
    g.a = x->a, g.b = x->b, g.code = &code;
    g.scratch = x->memory;
    for (int way = 0; engine->make(&g, way, &code); way++) {
        double own = 0, other = 0;
        const bool equal = is_equal(&g, engine, x);
        const bool timed = equal && atomic_load(&spent) < TOW__TRIAL_NANOSECONDS;
        if (timed) compare_times(&g, engine, x, &own, &other);
        if (!equal || (t->proven && (!timed || other >= t->times.other))) {
            engine->unmake(&code);
            continue;
        }
        if (t->proven) engine->unmake(&t->code);
        t->proven = engine, t->code = code;
        t->times.other = other;
        if (timed && (t->times.own == 0 || own < t->times.own)) t->times.own = own;
    }
}

/* Effects of an engine on the other products of a program (prefetches, caches) may decide. */
static bool are_close(const tow__gemm_times *t) { return t->other < CLOSE * t->own && t->own < CLOSE * t->other; }

static void try_small(const tow__gemm *g, tow__gemm_trial *t, tow__gemm_contest *contest)
{
    arrays x;
    const double start = now();
    if (!take_arrays(g, lines((int64_t)tow__gemm_scratch(g, &tow__gemm_own)), &x)) return;
    try_engine(g, for_small, &x, t);
    munmap(x.memory, x.bytes);
    t->stands_in = t->proven != NULL &&
                   (t->times.other > 0 ? t->times.other <= t->times.own : g->m * g->n * g->k <= TOW__TRIAL_ALWAYS);
    if (t->proven != NULL && g->m * g->n * g->k > TOW__TRIAL_ALWAYS && (t->times.other == 0 || are_close(&t->times)))
        t->contest = t->code.contest = contest;
    atomic_fetch_add(&spent, (long long)(now() - start));
}

/* Some rows and columns of g, and as much of k that there are two blocks, the second one shorter. */
static tow__gemm proof_of(const tow__gemm *g)
{
    tow__gemm proof = *g;
    proof.m = tow__min(g->m, PROOF_ROWS), proof.n = tow__min(g->n, PROOF_COLUMNS);
    proof.kc = g->kc > 0 ? g->kc : tow__gemm_kc(g->k);
    proof.k = tow__min(g->k, proof.kc + proof.kc / 2 + 1);
    const bool rows_of_a = g->a_column == 1 || g->k == 1, rows_of_b = g->b_column == 1 || g->n == 1;
    proof.a_row = rows_of_a ? proof.k : 1, proof.a_column = rows_of_a ? 1 : proof.m;
    proof.b_row = rows_of_b ? proof.n : 1, proof.b_column = rows_of_b ? 1 : proof.k;
    proof.ldc = proof.n;
    return proof;
}

static void try_large(const tow__gemm *g, tow__gemm_trial *t, tow__gemm_contest *contest)
{
    arrays x;
    tow__gemm proof = proof_of(g);
    if (!take_arrays(&proof, lines((int64_t)tow__gemm_scratch(&proof, &tow__gemm_own)), &x)) return;
    proof.a = x.a, proof.b = x.b, proof.scratch = x.memory;
    if (is_equal(&proof, for_large, &x) && for_large->make(g, 0, &t->code)) {
        t->proven = for_large;
        t->contest = t->code.contest = contest;
    }
    munmap(x.memory, x.bytes);
}

const char *tow__gemm_untried(const tow__gemm *g)
{
    if (g->dtype != TOW_F32) return "not f32";
    if (tow__gemm_has_halves(g)) return "has operands or a result of 16 bits";
    if (g->m <= 0 || g->n <= 0 || g->k <= 0) return "empty";
    if (suits_small(g) || suits_large(g)) return NULL;
    if (is_large(g) && for_large == NULL) return "this build has no BLIS";
    if (is_large(g))
        return g->m < FEW_ROWS || g->n < FEW_ROWS ? "few rows or columns" : "strides that BLIS does not take";
    if (for_small == NULL) return "this build has no libxsmm";
    if (g->packed != NULL) return "has a packed operand";
    if (g->k > TOW__GEMM_KC) return "k has several blocks";
    return "instructions or strides that libxsmm does not take";
}

const tow__gemm_trial *tow__gemm_try(const tow__gemm *g)
{
    if (tow__gemm_untried(g) != NULL) return NULL;
    const shape s = shape_of(g);
    const entry *known = find(&s);
    if (known) return &known->trial;
    if (atomic_load(&claimed) >= TRIALS) return NULL;
    const int index = atomic_fetch_add(&claimed, 1);
    if (index >= TRIALS) return NULL;
    TOW__ARITHMETIC(false);
    entry *e = &entries[index];
    tow__gemm plain = *g;
    plain.epilogue = NULL, plain.next_b = NULL, plain.read_after = NULL, plain.packed = NULL, plain.choice = NULL;
    plain.code = NULL;
    e->shape = s;
    e->trial = (tow__gemm_trial){.proven = NULL};
    if (suits_small(g))
        try_small(&plain, &e->trial, &e->contest);
    else
        try_large(&plain, &e->trial, &e->contest);
    atomic_store(&e->done, true);
    return &e->trial;
}

static bool all_are_equal;

/* Every layout of both operands, written and added. */
static void prove_all(void)
{
    all_are_equal = true;
    TOW__ARITHMETIC(false);
    for (int i = 0; i < 8 && all_are_equal; i++) {
        const int64_t k = 2 * TOW__GEMM_KC - 5, n = PROOF_COLUMNS;
        tow__gemm g = {.dtype = TOW_F32, .threads = 1, .m = PROOF_ROWS, .n = n, .k = k, .ldc = n};
        tow__gemm_trial t = {.proven = NULL};
        tow__gemm_contest contest;
        g.a_row = i & 1 ? 1 : k, g.a_column = i & 1 ? PROOF_ROWS : 1;
        g.b_row = i & 2 ? 1 : n, g.b_column = i & 2 ? k : 1;
        g.accumulate = i & 4;
        g.kc = tow__gemm_kc(k);
        try_large(&g, &t, &contest);
        all_are_equal = t.proven != NULL;
    }
}

const tow__gemm_engine *tow__gemm_without_vectors(const tow__gemm *g)
{
    enum {
        WORTH_A_CALL = 1 << 15 /* multiply-adds for which a call of BLIS is worth it */
    };
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    tow__gemm_code code;
    if (for_large == NULL || tow__machine_here()->vector_bytes > 0 || g->dtype != TOW_F32) return NULL;
    if (tow__gemm_has_halves(g)) return NULL;
    if ((double)g->m * (double)g->n * (double)g->k < WORTH_A_CALL || !tow__gemm_may_stand_in(g->choice, for_large))
        return NULL;
    if (!for_large->applicable(g) || !for_large->make(g, 0, &code)) return NULL;
    pthread_once(&once, prove_all);
    return all_are_equal ? for_large : NULL;
}

tow__gemm_tally tow__gemm_count_trials(void)
{
    tow__gemm_tally tally = {0};
    const int all = atomic_load(&claimed), n = all < TRIALS ? all : TRIALS;
    for (int i = 0; i < n; i++) {
        tow__gemm_trial *t = &entries[i].trial;
        tow__gemm_times times;
        if (!atomic_load(&entries[i].done)) continue;
        const bool large = t->proven != NULL && t->proven == for_large;
        bool wins = t->stands_in;
        if (t->contest != NULL) {
            if (!tow__gemm_contest_times(t->contest, &times)) continue;
            wins = times.other <= times.own;
        }
        *(large ? wins ? &tally.large : &tally.large_own : wins ? &tally.small : &tally.small_own) += 1;
    }
    return tally;
}
