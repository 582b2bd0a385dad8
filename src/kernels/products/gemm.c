/* The engine table of matrix products and the rule that picks from it. An engine is added by a file of its own and one
 * line here. */
#include "src/kernels/products/gemm.h"
#include "src/kernels/products/gemm_trial.h"
#include "src/kernels/products/gemm_tuning.h"

#include <stdio.h>
#include <string.h>

/* In the order of preference. */
static const tow__gemm_engine *const engines[] = {
    &tow__gemm_amx,       &tow__gemm_dots, &tow__gemm_own,
#ifdef TOW_HAVE_BLIS
    &tow__gemm_blis,
#endif
#ifdef TOW_HAVE_LIBXSMM
    &tow__gemm_xsmm,
#endif
    &tow__gemm_reference,
};
enum {
    ENGINES = sizeof engines / sizeof engines[0]
};

const tow__gemm_engine *tow__gemm_at(int index) { return index < ENGINES ? engines[index] : NULL; }

/* "small ones by libxsmm 1.17 with the same bits (16x16x16 1.90, 64x64x64 1.13 times as fast)": what trials of some
 * sizes found for engines that stand in for the own kernel; "" if there are none. */
static void describe_small(const tow__gemm_choice *choice, char *text, size_t size)
{
    static const int sizes[] = {8, 16, 32, 64, 128};
    const char *name = NULL;
    char times[160] = "";
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int n = sizes[i];
        tow__gemm g = {.dtype = TOW_F32, .choice = choice, .m = n, .n = n, .k = n, .ldc = n};
        g.a_row = g.b_row = n, g.a_column = g.b_column = 1;
        const tow__gemm_trial *t = tow__gemm_try(&g);
        const size_t used = strlen(times);
        if (t == NULL || t->proven == NULL || !tow__gemm_may_stand_in(choice, t->proven)) continue;
        if (!t->stands_in || t->times.other == 0) continue;
        snprintf(times + used, sizeof times - used, "%s%dx%dx%d %.2f", name ? ", " : "", n, n, n,
                 t->times.own / t->times.other);
        name = t->proven->describe();
    }
    if (name) snprintf(text, size, ", small ones by %s with the same bits (%s times as fast)", name, times);
}

/* "large ones by BLIS or the own kernel, as the first runs say (so far 2 and 5 shapes)" */
static void describe_large(const tow__gemm_choice *choice, char *text, size_t size)
{
    const tow__gemm_engine *engine = tow__gemm_find("blis");
    if (engine == NULL || !tow__gemm_may_stand_in(choice, engine)) return;
    const tow__gemm_tally tally = tow__gemm_count_trials();
    snprintf(text, size, ", large ones by %s or the own kernel, as their first runs say (so far %d and %d shapes)",
             engine->describe(), tally.large, tally.large_own);
}

/* The engine of products whose operands are stored in bf16: a unit reads them as they are, others compute in f32. */
static void describe_halves(const tow__gemm *single, char *text, size_t size)
{
    tow__gemm g = *single;
    g.a_dtype = g.b_dtype = TOW_BF16;
    const tow__gemm_engine *engine = tow__gemm_choose(&g);
    const bool unit = engine == &tow__gemm_amx || engine == &tow__gemm_dots;
    snprintf(text, size, ", bf16 %s%s", unit ? "as it is stored by " : "widened to f32 by ", engine->describe());
}

size_t tow__gemm_describe(const tow__gemm_choice *choice, char *text, size_t size)
{
    tow__gemm single = {.dtype = TOW_F32, .choice = choice, .m = 256, .n = 256, .k = 256, .ldc = 256}, wide, tiny;
    char small[256] = "", large[192] = "", halves[128];
    single.a_row = single.b_row = 256;
    single.a_column = single.b_column = 1;
    wide = tiny = single;
    wide.dtype = TOW_F64;
    tiny.m = tiny.n = tiny.k = 16;
    const tow__gemm_engine *engine = tow__gemm_choose(&single);
    const bool own = tow__gemm_choose(&tiny) == &tow__gemm_own;
    if (own) describe_small(choice, small, sizeof small);
    if (own && engine == &tow__gemm_own) describe_large(choice, large, sizeof large);
    describe_halves(&single, halves, sizeof halves);
    const char *unit = engine == &tow__gemm_amx && own ? ", those below 2^22 multiply-adds by own kernel" : "";
    const char *why = choice->portable           ? "; bits are portable"
                      : choice->without != 0     ? "; without those that the caller leaves out"
                      : !choice->engine          ? ""
                      : choice->engine == engine ? "; chosen by the caller"
                                                 : "; the chosen engine cannot run here";
    int length = snprintf(text, size, "f32 by %s%s%s%s, f64 by %s%s%s", engine->describe(), unit, small, large,
                          tow__gemm_choose(&wide)->describe(), halves, why);
    return length < 0 ? 0 : (size_t)length;
}

/* The name of the engine of large products of operands that are stored so. */
static const char *unit_for(const tow__gemm_choice *choice, tow_dtype stored)
{
    const tow__gemm g = {.dtype = TOW_F32,
                         .a_dtype = stored,
                         .b_dtype = stored,
                         .choice = choice,
                         .m = 256,
                         .n = 256,
                         .k = 256,
                         .a_row = 256,
                         .a_column = 1,
                         .b_row = 256,
                         .b_column = 1,
                         .ldc = 256};
    return tow__gemm_choose(&g)->name;
}

size_t tow__gemm_describe_units(const tow__gemm_choice *choice, char *text, size_t size)
{
    const int length =
        snprintf(text, size, "%s for f32 and %s for bf16", unit_for(choice, 0), unit_for(choice, TOW_BF16));
    return length < 0 ? 0 : (size_t)length;
}

/* Describes the machine, and the tuning of large products to it. */
size_t tow__gemm_describe_machine(char *text, size_t size)
{
    char caches[128];
    const tow__gemm_timings t = tow__gemm_timings_here();
    const tow__gemm_tuning tuning = tow__gemm_tune(tow__machine_here(), &t);
    tow__machine_describe(tow__machine_here(), caches, sizeof caches);
    int length =
        t.direct == 0
            ? snprintf(text, size, "%s; large products not timed yet", caches)
            : snprintf(text, size, "%s; large products: packing A takes %.2f of the time (%s), B to L1 %.2f (%s)",
                       caches, t.packed / t.direct, tuning.packed_panels > 0 ? "done" : "not done", t.to_l1 / t.to_l2,
                       tuning.fetch == TOW__FETCH_TO_L1 ? "done" : "not done");
    return length < 0 ? 0 : (size_t)length;
}

const tow__gemm_engine *tow__gemm_find(const char *name)
{
    for (int i = 0; i < ENGINES; i++)
        if (strcmp(engines[i]->name, name) == 0) return engines[i];
    return NULL;
}

bool tow__gemm_read_choice(const char *text, tow__gemm_choice *choice)
{
    choice->without = 0;
    choice->engine = tow__gemm_find(text);
    if (choice->engine) return true;
    for (size_t length; *text == '-'; text += length + (text[length] == ',' && text[length + 1] == '-')) {
        int i = 0;
        length = strcspn(++text, ",");
        while (i < ENGINES - 1 && (strlen(engines[i]->name) != length || strncmp(engines[i]->name, text, length) != 0))
            i++;
        if (i == ENGINES - 1) return false;
        choice->without |= 1u << i;
        if (text[length] == '\0') return true;
    }
    return false;
}

bool tow__gemm_plain(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride)
{
    if (rows <= 1 && columns <= 1) return true;
    if (rows <= 1) return column_stride > 0;
    if (columns <= 1) return row_stride > 0;
    return (column_stride > 0 && row_stride >= columns * column_stride) ||
           (row_stride > 0 && column_stride >= rows * row_stride);
}

static bool is_applicable(const tow__gemm_engine *engine, const tow__gemm *g)
{
    return (engine->halves || !tow__gemm_has_halves(g)) && engine->applicable(g);
}

const tow__gemm_engine *tow__gemm_choose(const tow__gemm *g)
{
    if (g->choice && g->choice->portable)
        return is_applicable(&tow__gemm_own, g) ? &tow__gemm_own : &tow__gemm_reference;
    const tow__gemm_engine *forced = g->choice != NULL ? g->choice->engine : NULL;
    if (forced && is_applicable(forced, g)) return forced;
    const unsigned without = g->choice != NULL ? g->choice->without : 0;
    int i = 0;
    while ((without >> i & 1) || !engines[i]->cuts || engines[i]->needs_code || !is_applicable(engines[i], g) ||
           (engines[i]->gains != NULL && !engines[i]->gains(g)))
        i++; /* the last one can do everything */
    return engines[i];
}

bool tow__gemm_in_parts(const tow__gemm *g, const tow__gemm_engine *engine)
{
    return engine->in_parts && (engine == &tow__gemm_own || !tow__gemm_of_bf16(g));
}

bool tow__gemm_may_stand_in(const tow__gemm_choice *choice, const tow__gemm_engine *engine)
{
    if (choice == NULL) return true;
    for (int i = 0; i < ENGINES; i++)
        if (engines[i] == engine && (choice->without >> i & 1)) return false;
    return choice->engine != &tow__gemm_own && choice->set == TOW__GEMM_AUTO && choice->tuning == NULL;
}

/* The comparison of the engine of a trial with the own kernel. */
typedef enum finding {
    BEHIND,
    AHEAD, /* or there is a tie */
    OPEN   /* the first runs decide */
} finding;

static finding finding_of(const tow__gemm_trial *t, const tow__gemm_choice *choice)
{
    tow__gemm_times times = {0};
    if (choice != NULL && choice->times != NULL)
        times = *choice->times;
    else if (t->contest == NULL)
        return t->stands_in ? AHEAD : BEHIND;
    else if (!tow__gemm_contest_times(t->contest, &times))
        return OPEN;
    return times.other <= times.own ? AHEAD : BEHIND;
}

const tow__gemm_engine *tow__gemm_prepare(tow__gemm *g, const tow__gemm_engine *engine)
{
    const bool forced = engine != &tow__gemm_own;
    g->code = NULL;
    if (forced && !engine->needs_code) return engine;
    const tow__gemm_trial *t = tow__gemm_try(g);
    const tow__gemm_engine *found = t != NULL ? t->proven : NULL;
    if (found == NULL || (forced ? found != engine : !tow__gemm_may_stand_in(g->choice, found))) return engine;
    const finding it = forced ? AHEAD : finding_of(t, g->choice);
    const bool contested = t->contest != NULL && (g->choice == NULL || g->choice->times == NULL);
    if (it == BEHIND && !contested) return engine;
    g->code = &t->code; /* with a contest the code says which engine runs, also when it is decided */
    return it == AHEAD ? found : engine;
}

size_t tow__gemm_scratch(const tow__gemm *g, const tow__gemm_engine *engine)
{
    if (g->m == 0 || g->n == 0 || g->k == 0 || engine->scratch == NULL) return 0;
    return engine->scratch(g);
}

void tow__gemm_tune_for(const tow__gemm *g)
{
    if (g->n * g->k >= TOW__TUNED && (g->choice == NULL || g->choice->tuning == NULL)) tow__gemm_time();
}

size_t tow__gemm_packed(const tow__gemm *g, const tow__gemm_engine *engine)
{
    return engine->packed != NULL && g->n > 0 && g->k > 0 ? engine->packed(g) : 0;
}

void tow__gemm_pack(const tow__gemm *g, const tow__gemm_engine *engine)
{
    if (g->n > 0 && g->k > 0) engine->pack(g);
}

static void clear(const tow__gemm *g)
{
    const int64_t bytes = tow__gemm_c_bytes(g);
    for (int64_t i = 0; i < g->m; i++) memset((char *)g->c + i * g->ldc * bytes, 0, (size_t)(g->n * bytes));
}

/* C + 0: a zero becomes positive, as in any other sum with a product. */
static void add_zeros(const tow__gemm *g)
{
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            if (g->dtype == TOW_F32)
                ((f32 *)g->c)[i * g->ldc + j] += 0.0f;
            else
                ((double *)g->c)[i * g->ldc + j] += 0.0;
        }
}

void tow__gemm_epilogue_on_all(const tow__gemm *g)
{
    int64_t width = tow__min(g->n, TOW__GEMM_EPILOGUE_COLUMNS);
    int64_t height = TOW__GEMM_EPILOGUE_BYTES / (width * tow__gemm_c_bytes(g));
    for (int64_t row = 0; row < g->m; row += height)
        for (int64_t column = 0; column < g->n; column += width)
            g->epilogue(g->user, row, tow__min(height, g->m - row), column, tow__min(width, g->n - column));
}

void tow__epilogue_on_rectangle(void *place, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    const tow__epilogue_place *p = place;
    p->epilogue->run(p->epilogue->user, p->first + row * p->row + column, rows, p->row, columns);
}

typedef struct epilogue_job {
    const tow__epilogue *epilogue;
    int64_t count;
} epilogue_job;

static void epilogue_block(void *user, int64_t block)
{
    const epilogue_job *job = user;
    const int64_t start = block * TOW__BLOCK;
    job->epilogue->run(job->epilogue->user, start, 1, 0, tow__min(TOW__BLOCK, job->count - start));
}

void tow__epilogue_on_all(tow__team *team, const tow__epilogue *epilogue, int64_t count)
{
    epilogue_job job = {epilogue, count};
    tow__team_run(tow__team_for(team, (double)count), tow__ceil_div(count, TOW__BLOCK), epilogue_block, &job);
}

/* Engines that do not look whether the run is cancelled get rows in parts that take milliseconds. */
static void run_in_parts(const tow__gemm *g, const tow__gemm_engine *engine)
{
    enum {
        WORK = 1 << 26 /* multiply-adds of a part */
    };
    const int64_t of_row = tow__max(1, g->n * g->k);
    const int64_t rows = tow__ceil_div(tow__max(1, WORK / of_row), 64) * 64;
    tow__gemm part = *g;
    for (int64_t row = 0; row < g->m && !tow__cancelled(); row += rows) {
        part.m = tow__min(rows, g->m - row);
        part.a = (const char *)g->a + row * g->a_row * tow__gemm_a_bytes(g);
        part.c = (char *)g->c + row * g->ldc * tow__gemm_c_bytes(g);
        engine->run(&part);
    }
}

void tow__gemm_run(const tow__gemm *g, const tow__gemm_engine *engine)
{
    if (g->m == 0 || g->n == 0) return;
    if (!engine) engine = tow__gemm_choose(g);
    if (g->k > 0 && engine == &tow__gemm_own && g->code != NULL && g->code->contest != NULL) {
        tow__gemm_compete(g);
        return;
    }
    if (engine == &tow__gemm_own && g->code == NULL && tow__gemm_without_vectors(g) != NULL)
        engine = tow__gemm_without_vectors(g);
    if (g->k > 0 && engine->cuts && !engine->runs_epilogue)
        run_in_parts(g, engine);
    else if (g->k > 0)
        engine->run(g);
    else if (g->accumulate)
        add_zeros(g);
    else
        clear(g);
    if (g->epilogue && (g->k == 0 || !engine->runs_epilogue)) tow__gemm_epilogue_on_all(g);
}
