/* Trials of engines (gemm_trial.h). The table of trials only grows: an entry is claimed, filled and then published,
 * and does not change any more. Threads that make the same trial at once make it twice, which does no harm. */
#include "src/kernels/products/gemm_trial.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "src/base/arithmetic.h"
#include "src/kernels/products/gemm_own.h"

#ifdef TOW_HAVE_LIBXSMM
#include <sys/mman.h>

enum {
    TRIALS = 512,         /* in a process; products of further shapes run on the own kernel */
    SPAN_BYTES = 2 << 20, /* of the arrays of a trial, at most */
    NUMBERS = 1024,       /* of which operands are made */
    ROUNDS = 5,           /* of timing, for products that take less than LONG */
    ROUNDS_LONG = 2,
    LONG = 20000, /* nanoseconds */
    LEAST = 3000, /* of what is timed at once */
    LINE = 64
};

/* What a trial depends on. */
typedef struct shape {
    int64_t m, n, k, a_row, a_column, b_row, b_column, ldc;
    bool accumulate;
} shape;

typedef struct entry {
    atomic_bool done;
    shape shape;
    tow__gemm_trial trial;
} entry;

static entry entries[TRIALS];
static atomic_int claimed;
static atomic_llong spent; /* nanoseconds */

static shape shape_of(const tow__gemm *g)
{
    return (shape){g->m, g->n, g->k, g->a_row, g->a_column, g->b_row, g->b_column, g->ldc, g->accumulate};
}

static bool same(const shape *x, const shape *y)
{
    return x->m == y->m && x->n == y->n && x->k == y->k && x->a_row == y->a_row && x->a_column == y->a_column &&
           x->b_row == y->b_row && x->b_column == y->b_column && x->ldc == y->ldc && x->accumulate == y->accumulate;
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

static void fill_operands(const tow__gemm *g, const arrays *x, bool hard)
{
    f32 numbers[2 * NUMBERS];
    make_numbers(numbers, NUMBERS, hard);
    memcpy(numbers + NUMBERS, numbers, sizeof numbers / 2);
    if (g->a_column == 1)
        fill(x->a, g->m, g->a_row, g->k, numbers, 0);
    else
        fill(x->a, g->k, g->a_column, g->m, numbers, 0);
    fill(x->b, g->k, g->b_row, g->n, numbers, 7);
    fill(x->first, 1, 0, x->c_elements, numbers, 0);
    if (hard) fill(x->second, 1, 0, x->c_elements, numbers, 0);
}

/* ---- one trial --------------------------------------------------------------------------------------------------- */

/* True if `engine` gives every bit that the own kernel gives, and writes nothing else. */
static bool is_equal(const tow__gemm *g, const tow__gemm_engine *engine, const arrays *x)
{
    tow__gemm own = *g, other = *g;
    fill_operands(g, x, true);
    own.c = x->first, own.code = NULL;
    other.c = x->second;
    tow__gemm_own.run(&own);
    engine->run(&other);
    return memcmp(x->first, x->second, (size_t)x->c_elements * sizeof(f32)) == 0;
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
    fill_operands(g, x, false);
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

static void run_trial(const tow__gemm *g, tow__gemm_trial *t)
{
    arrays x;
    const double start = now();
    *t = (tow__gemm_trial){.engine = NULL};
    if (!take_arrays(g, lines((int64_t)tow__gemm_scratch(g, &tow__gemm_own)), &x)) return;
    try_engine(g, &tow__gemm_xsmm, &x, t);
    munmap(x.memory, x.bytes);
    const bool faster = t->times.other > 0 ? t->times.other <= t->times.own : g->m * g->n * g->k <= TOW__TRIAL_ALWAYS;
    if (t->proven && faster) t->engine = t->proven;
    atomic_fetch_add(&spent, (long long)(now() - start));
}

const char *tow__gemm_untried(const tow__gemm *g)
{
    if (g->dtype != TOW_F32) return "not f32";
    if (g->m <= 0 || g->n <= 0 || g->k <= 0) return "empty";
    if (g->k > TOW__GEMM_KC) return "k has several blocks";
    if (g->m > TOW__TRIAL_WORK || g->n > TOW__TRIAL_WORK ||
        (double)g->m * (double)g->n * (double)g->k > TOW__TRIAL_WORK)
        return "larger than a trial";
    return tow__gemm_xsmm.applicable(g) ? NULL : "instructions or strides that libxsmm does not take";
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
    tow__gemm plain = *g;
    plain.epilogue = NULL, plain.next_b = NULL, plain.read_after = NULL, plain.packed = NULL, plain.choice = NULL;
    entries[index].shape = s;
    run_trial(&plain, &entries[index].trial);
    atomic_store(&entries[index].done, true);
    return &entries[index].trial;
}
#else
const tow__gemm_trial *tow__gemm_try(const tow__gemm *g)
{
    (void)g;
    return NULL;
}

const char *tow__gemm_untried(const tow__gemm *g)
{
    (void)g;
    return "this build has no libxsmm";
}
#endif
