/* Engines that stand in for the own kernel, and its tuning: all bits stay, whatever is chosen. Tests
 * products/gemm_*.c. */
#include "src/kernels/products/gemm_trial.h"
#include "src/kernels/products/gemm_tuning.h"
#include "tests/unit/support/gemm_products.h"

static bool has_library(void) { return tow__gemm_find("xsmm") != NULL && tow__machine_here()->vector_bytes > 0; }

static bool has_blis_kernels(void) /* of those with fused multiply-adds */
{
#if defined(__aarch64__)
    return true;
#else
    return tow__machine_here()->vector_bytes > 0;
#endif
}

static void count_finished_strips(void *user, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    (void)user, (void)row, (void)rows, (void)column, (void)columns;
}

/* Numbers of many sizes, zeros of both signs, subnormal ones. */
static void make_hard(tow__buffer *x)
{
    float *data = x->data;
    const int64_t n = count_of(x);
    for (int64_t i = 0; i < n; i++) {
        if (i % 11 == 3) data[i] = i % 2 ? 0.0f : -0.0f;
        if (i % 13 == 5) data[i] *= 0x1p-128f;
        if (i % 17 == 7) data[i] *= 0x1p20f;
        if (i % 19 == 9 && i > 0) data[i] = -data[i - 1];
    }
}

typedef struct problem {
    tow__gemm g;
    tow__buffer a, b, c;
} problem;

/* transposed bits: 1 A, 2 B; `more` columns behind those of C and B */
static problem make_problem(int64_t m, int64_t n, int64_t k, unsigned transposed, int64_t more)
{
    problem p;
    p.a = random_operand(TOW_F32, SHAPE(m, k), transposed & 1 ? COLUMN_MAJOR : ROW_MAJOR);
    p.b = random_operand(TOW_F32, SHAPE(k, n + more), transposed & 2 ? COLUMN_MAJOR : ROW_MAJOR);
    p.c = random_operand(TOW_F32, SHAPE(m, n + more), ROW_MAJOR);
    make_hard(&p.a), make_hard(&p.b);
    p.g = product_of(&p.a, &p.b, &p.c);
    p.g.n = n;
    return p;
}

static size_t bytes_of(const problem *p) { return (size_t)count_of(&p->c) * sizeof(float); }

/* C, with what the engine made for the product, or without: as for cuts of it. */
static void *run_on(const problem *p, const tow__gemm_engine *engine, const struct tow__gemm_code *code)
{
    void *c = take(bytes_of(p));
    tow__gemm g = p->g;
    memcpy(c, p->c.data, bytes_of(p));
    g.c = c, g.code = code;
    g.scratch = take(tow__gemm_scratch(&g, &tow__gemm_own) + 1);
    tow__gemm_run(&g, engine);
    return c;
}

static int check_engines(int64_t m, int64_t n, int64_t k, unsigned transposed, bool accumulate, int64_t more)
{
    static const char *const names[] = {"own", "xsmm"};
    int others = 0;
    problem p = make_problem(m, n, k, transposed, more);
    p.g.accumulate = accumulate;
    const void *want = run_on(&p, &tow__gemm_own, NULL);
    for (size_t e = 0; e < sizeof names / sizeof *names; e++) {
        const tow__gemm_engine *engine = tow__gemm_find(names[e]);
        if (engine == NULL || !engine->applicable(&p.g)) continue;
        const tow__gemm_choice choice = {.engine = e > 0 ? engine : NULL};
        p.g.choice = &choice;
        const tow__gemm_engine *found = tow__gemm_prepare(&p.g, engine);
        others += p.g.code != NULL;
        assert_memory_equal(run_on(&p, found, p.g.code), want, bytes_of(&p));
        if (m > 3 && n > 3) { /* a cut, for which there is no code */
            problem cut = p;
            cut.g.m = m - 1, cut.g.n = n - 2;
            assert_memory_equal(run_on(&cut, found, p.g.code), run_on(&cut, &tow__gemm_own, NULL), bytes_of(&p));
        }
        p.g.code = NULL;
    }
    release_all();
    return others;
}

static void engines_that_stand_in_keep_bits(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1},    {4, 32, 8},   {4, 32, 32},   {5, 9, 300},  {7, 13, 100},
                                       {64, 64, 64}, {49, 65, 33}, {16, 128, 48}, {100, 17, 5}, {33, 130, 384},
                                       {97, 1, 20},  {1, 96, 40},  {12, 200, 385}};
    int others = 0;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (unsigned transposed = 0; transposed < 4; transposed++)
            for (int variant = 0; variant < 4; variant++)
                others +=
                    check_engines(sizes[s][0], sizes[s][1], sizes[s][2], transposed, variant & 1, variant & 2 ? 5 : 0);
    /* If there is a library, it computes nearly all of those that are not transposed and have one block of k. */
    if (has_library()) assert_true(others > 40);
}

/* An engine that sums in another order is found out in products of few sums, too, many of which round alike. */
static void proofs_of_tiny_products_hold(void **state)
{
    (void)state;
    enum {
        DRAWS = 40
    };
    for (int64_t shape = 0; shape < 18; shape++)
        for (unsigned transposed = 0; transposed < 4; transposed++)
            for (int draw = 0; draw < DRAWS; draw++)
                check_engines(1 + shape % 3, 1 + shape / 3 % 3, 2 + shape / 9, transposed, false, 0);
    /* Columns that whole vectors leave are a tile of their own. */
    for (int64_t left = 1; left <= 3; left++)
        for (int draw = 0; draw < DRAWS; draw++) check_engines(1, 128 + left, 130, 0, false, 0);
}

/* With blocks of k as long as the own kernel's, BLIS has its bits, whatever the rows, columns and strides. */
static void blis_keeps_bits(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1},     {6, 16, 4},   {40, 72, 577}, {33, 130, 384}, {97, 50, 385},
                                       {60, 70, 800}, {17, 1, 900}, {1, 65, 400},  {169, 49, 20},  {13, 29, 1200}};
    const tow__gemm_engine *blis = tow__gemm_find("blis");
    if (blis == NULL || !has_blis_kernels()) skip();
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (unsigned transposed = 0; transposed < 4; transposed++)
            for (int variant = 0; variant < 4; variant++) {
                problem p = make_problem(sizes[s][0], sizes[s][1], sizes[s][2], transposed, variant & 2 ? 5 : 0);
                p.g.accumulate = variant & 1;
                assert_memory_equal(run_on(&p, blis, NULL), run_on(&p, &tow__gemm_own, NULL), bytes_of(&p));
                release_all();
            }
}

/* Large products: BLIS is proven on a part, the first runs go to both engines in turn, and their times decide. */
static void first_runs_decide_large_products(void **state)
{
    (void)state;
    problem p = make_problem(200, 180, 410, 0, 0);
    const void *want = run_on(&p, &tow__gemm_own, NULL);
    const tow__gemm_trial *t = tow__gemm_try(&p.g);
    assert_int_equal(t != NULL && t->proven != NULL, tow__gemm_find("blis") != NULL && has_blis_kernels());
    if (t == NULL || t->proven == NULL) {
        release_all();
        skip();
    }
    tow__gemm_times times;
    assert_ptr_equal(t->proven, tow__gemm_find("blis"));
    for (int i = 0; i < TOW__CONTEST_RUNS; i++) {
        tow__gemm g = p.g;
        assert_false(tow__gemm_contest_times(t->contest, &times));
        assert_ptr_equal(tow__gemm_prepare(&g, &tow__gemm_own), &tow__gemm_own);
        assert_non_null(g.code);
        p.g.m = 200;
        assert_memory_equal(run_on(&p, &tow__gemm_own, g.code), want, bytes_of(&p));
        p.g.m = 20; /* a small part counts for nothing */
        (void)run_on(&p, &tow__gemm_own, g.code);
        p.g.m = 200;
    }
    assert_true(tow__gemm_contest_times(t->contest, &times));
    assert_true(times.own > 0 && times.other > 0);
    const tow__gemm_engine *found = tow__gemm_prepare(&p.g, &tow__gemm_own);
    assert_ptr_equal(found, times.other <= times.own ? t->proven : &tow__gemm_own);
    assert_memory_equal(run_on(&p, found, p.g.code), want, bytes_of(&p));
    release_all();
}

/* Products with a packed operand and with an epilogue are compared with these, each by itself. */
static void contests_are_of_calls(void **state)
{
    (void)state;
    tow__gemm g = {.dtype = TOW_F32, .m = 256, .n = 300, .k = 100, .a_row = 100, .a_column = 1, .b_row = 300};
    g.b_column = 1, g.ldc = 300;
    if (tow__gemm_find("blis") == NULL || !has_blis_kernels()) skip();
    const tow__gemm_trial *plain = tow__gemm_try(&g);
    g.packed = &g;
    const tow__gemm_trial *packed = tow__gemm_try(&g);
    g.packed = NULL, g.epilogue = count_finished_strips;
    const tow__gemm_trial *finished = tow__gemm_try(&g);
    assert_true(plain != NULL && packed != NULL && finished != NULL);
    assert_true(plain != packed && packed != finished && finished != plain);
}

/* On processors without a vector kernel of the library's, BLIS runs products that nobody prepares, too. */
static void without_vectors_blis_runs_all(void **state)
{
    (void)state;
    tow__gemm g = {.dtype = TOW_F32, .m = 64, .n = 64, .k = 64, .a_row = 64, .a_column = 1, .b_row = 64, .b_column = 1};
    const bool expected =
        tow__gemm_find("blis") != NULL && has_blis_kernels() && tow__machine_here()->vector_bytes == 0;
    g.ldc = 64;
    assert_ptr_equal(tow__gemm_without_vectors(&g), expected ? tow__gemm_find("blis") : NULL);
    g.choice = &(tow__gemm_choice){.engine = &tow__gemm_own};
    assert_null(tow__gemm_without_vectors(&g));
    g.choice = NULL, g.m = 1, g.n = 8; /* small */
    assert_null(tow__gemm_without_vectors(&g));
    g.m = g.n = 64, g.dtype = TOW_F64;
    assert_null(tow__gemm_without_vectors(&g));
}

/* The library runs where it is chosen by the rule, and never where the own kernel is asked for. */
static void the_rule_follows_the_trial(void **state)
{
    (void)state;
    problem p = make_problem(64, 64, 64, 0, 0);
    const tow__gemm_trial *t = tow__gemm_try(&p.g);
    assert_true(t != NULL || !has_library());
    assert_ptr_equal(t, tow__gemm_try(&p.g)); /* made once */
    const tow__gemm_engine *chosen = t != NULL && t->stands_in ? t->proven : &tow__gemm_own;
    const tow__gemm_engine *found = tow__gemm_prepare(&p.g, &tow__gemm_own);
    assert_ptr_equal(found, chosen);
    if (t && t->times.own > 0) assert_int_equal(t->stands_in, t->times.other <= t->times.own);
    static const tow__gemm_tuning tuning = {.rows = 2};
    const tow__gemm_choice choices[] = {{.engine = &tow__gemm_own}, {.set = TOW__GEMM_PLAIN}, {.tuning = &tuning}};
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        p.g.choice = &choices[i];
        assert_ptr_equal(tow__gemm_prepare(&p.g, &tow__gemm_own), &tow__gemm_own);
        assert_null(p.g.code);
    }
    tow__gemm_choice without = {0};
    assert_true(tow__gemm_find("xsmm") == NULL || tow__gemm_read_choice("-xsmm", &without));
    if (tow__gemm_find("xsmm")) {
        p.g.choice = &without;
        assert_ptr_equal(tow__gemm_prepare(&p.g, &tow__gemm_own), &tow__gemm_own);
    }
    p.g.choice = NULL;
    release_all();
}

static void check_reason(tow__gemm g, const tow__gemm_choice *choice, const tow__gemm_engine *engine, const char *want)
{
    char text[160], few[8];
    g.choice = choice;
    const size_t length = tow__gemm_explain(&g, engine, NULL, text, sizeof text);
    assert_string_equal(text, want);
    assert_int_equal(length, strlen(want));
    assert_int_equal(tow__gemm_explain(&g, engine, NULL, few, sizeof few), length);
}

/* Reasons that begin with the engine; NULL: the own kernel. */
static void check_reason_of(tow__gemm g, const tow__gemm_choice *choice, const tow__gemm_engine *engine,
                            const tow__gemm_engine *runs, const char *rest)
{
    char want[160];
    snprintf(want, sizeof want, "%s%s", runs != NULL ? runs->label : "own kernel", rest);
    check_reason(g, choice, engine, want);
}

/* If times of a trial are given, they decide, and the reason says them. */
static void reasons_are_what_trials_found(void **state)
{
    (void)state;
    static const tow__gemm_times ahead = {.own = 130, .other = 100}, behind = {.own = 100, .other = 125}, none = {0};
    const tow__gemm_choice faster = {.times = &ahead}, slower = {.times = &behind}, untimed = {.times = &none},
                           own = {.engine = &tow__gemm_own};
    problem p = make_problem(64, 64, 64, 0, 0);
    const tow__gemm_engine *engine = &tow__gemm_own, *library = tow__gemm_find("xsmm");
    check_reason(p.g, &own, engine, "own kernel: forced by TOW_ENGINE or an option");
    const tow__gemm_trial *t = tow__gemm_try(&p.g);
    if (t != NULL && t->proven != NULL) {
        const tow__gemm_engine *other = t->proven; /* libxsmm, or BLIS where there is no vector kernel */
        tow__gemm_choice without = {.times = &ahead}, forced = {.engine = other};
        assert_true(tow__gemm_read_choice(other == library ? "-xsmm" : "-blis", &without));
        check_reason_of(p.g, &faster, engine, other, ": bits of the own kernel, 1.30 times as fast here");
        check_reason_of(p.g, &slower, engine, NULL,
                        other == library ? ": timed ahead of libxsmm, 1.25 times as fast here"
                                         : ": timed ahead of BLIS, 1.25 times as fast here");
        check_reason_of(p.g, &untimed, engine, other, ": bits of the own kernel, small, not timed");
        check_reason(p.g, &without, engine, "own kernel: the engine with its bits is left out");
        check_reason_of(p.g, &forced, other, other, ": forced by TOW_ENGINE or an option");
    }
    const bool tried = library != NULL;
    p.g.k = 400;
    if (tow__machine_here()->vector_bytes > 0)
        check_reason(p.g, NULL, engine,
                     tried ? "own kernel: k has several blocks" : "own kernel: this build has no libxsmm");
    p.g.m = p.g.n = p.g.b_row = p.g.ldc = 1 << 12, p.g.k = 64;
    if (tow__gemm_find("blis") == NULL) {
        check_reason(p.g, NULL, engine, "own kernel: this build has no BLIS");
    } else if (has_blis_kernels()) {
        check_reason(p.g, NULL, engine, "own kernel: the first runs time it and BLIS, which has its bits");
        check_reason(p.g, &faster, engine, "BLIS: bits of the own kernel, 1.30 times as fast here");
        check_reason(p.g, &slower, engine, "own kernel: timed ahead of BLIS, 1.25 times as fast here");
    }
    release_all();
}

/* dot_general of x [m, k] and y [k, n], linked and run on a team that has the choice. The reason of its engine begins
 * with `reason`. */
static void check_linked(const tow__buffer *in, const tow__buffer *want, const tow__gemm_choice *choice, int threads,
                         const char *reason)
{
    const tow__kernel *kernel = tow__kernel_find("dot_general", TOW_F32);
    const tow__dot_params p = {.lhs_contract = {1, {1}}, .rhs_contract = {1, {0}}};
    tow__buffer out = make(TOW_F32, 2, want->dims, ROW_MAJOR);
    tow__team team;
    char text[160];
    assert_int_equal(tow__team_create(the_kernel_context(), threads, &team), TOW_OK);
    team.products = choice;
    tow__kernel_call call = {.n_in = 2, .n_out = 1, .in = in, .out = &out, .params = &p, .team = &team};
    void *at = take(kernel->state_bytes);
    call.scratch = take(kernel->scratch(&call) + 1);
    kernel->prepare(&call, at);
    kernel->tune(&call, at);
    kernel->reason(&call, text, sizeof text);
    if (strncmp(text, reason, strlen(reason)) != 0) fail_msg("found \"%s\", expected \"%s\"", text, reason);
    call.state = at;
    kernel->run(&call);
    assert_equal_bits(&out, want, text);
}

/* Whatever a trial finds, and for any number of threads, a linked product has the bits of the own kernel. */
static void linked_products_keep_bits(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{8, 8, 8},      {100, 17, 5},  {128, 96, 64},
                                       {33, 320, 100}, {64, 64, 500}, {200, 180, 410}};
    static const tow__gemm_times ahead = {.own = 2, .other = 1}, behind = {.own = 1, .other = 2};
    const tow__gemm_choice faster = {.times = &ahead}, slower = {.times = &behind}, own = {.engine = &tow__gemm_own};
    int others = 0;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        problem p = make_problem(sizes[s][0], sizes[s][1], sizes[s][2], 0, 0);
        const tow__buffer in[2] = {p.a, p.b};
        tow__buffer want = make(TOW_F32, 2, p.c.dims, ROW_MAJOR);
        memcpy(want.data, run_on(&p, &tow__gemm_own, NULL), bytes_of(&p));
        for (int threads = 1; threads <= 2; threads++) {
            check_linked(in, &want, &own, threads, "own kernel: forced");
            check_linked(in, &want, &slower, threads, "own kernel: ");
            /* One thread multiplies all of it. */
            const tow__gemm_trial *t = threads == 1 ? tow__gemm_try(&p.g) : NULL;
            const bool proven = t != NULL && t->proven != NULL;
            others += proven;
            char reason[80] = "";
            if (proven)
                snprintf(reason, sizeof reason, "%s: bits of the own kernel, 2.00 times as fast here",
                         t->proven->label);
            else if (threads == 1)
                strcpy(reason, "own kernel: ");
            check_linked(in, &want, &faster, threads, reason);
        }
        release_all();
    }
    if (has_library()) assert_true(others >= 3); /* of the four with one block of k */
}

/* Packing, tiles, blocks of rows, order of loops and prefetches: none of them changes a bit. */
static void tuning_keeps_bits(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{100, 200, 100}, {30, 500, 400}, {197, 97, 33}, {64, 300, 10}, {3, 70, 50}};
    static const tow__gemm_tuning tunings[] = {{.packed_panels = 1},
                                               {.packed_panels = 1000},
                                               {.rows = 1},
                                               {.rows = 3, .fetch = TOW__FETCH_TO_L1},
                                               {.rows = 5, .packed_panels = 2},
                                               {.block = 16, .packed_panels = 1},
                                               {.block = 7},
                                               {.thin = 1},
                                               {.thin = 1000, .block = 64},
                                               {.fetch = TOW__FETCH_NOTHING}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (unsigned transposed = 0; transposed < 4; transposed++) {
            for (int accumulate = 0; accumulate < 2; accumulate++) {
                problem p = make_problem(sizes[s][0], sizes[s][1], sizes[s][2], transposed, 0);
                p.g.accumulate = accumulate;
                const void *want = run_on(&p, &tow__gemm_own, NULL);
                for (size_t i = 0; i < sizeof tunings / sizeof *tunings; i++)
                    for (int set = TOW__GEMM_AUTO; set <= TOW__GEMM_AVX2; set++) {
                        const tow__gemm_choice choice = {.tuning = &tunings[i], .set = set};
                        p.g.choice = &choice;
                        assert_memory_equal(run_on(&p, &tow__gemm_own, NULL), want, bytes_of(&p));
                    }
                release_all();
            }
        }
    }
}

/* The known and the measured properties of a machine decide, not who made it. The timings of the first are like those
 * of a Cascade Lake server, where packing A makes products with 384 columns 1.27 times as fast. */
static void tuning_follows_the_machine(void **state)
{
    (void)state;
    const tow__machine server = {
        .l1 = {32 << 10, 8, 64}, .l2 = {1 << 20, 16, 64}, .l3 = {32 << 20, 11, 64}, .vector_bytes = 64};
    const tow__machine small = {.l1 = {32 << 10, 8, 64},
                                .l2 = {256 << 10, 4, 64},
                                .l3 = {6 << 20, 12, 64},
                                .vector_bytes = 32},
                       unknown = {.vector_bytes = 32};
    tow__gemm_tuning t = tow__gemm_tune(&server, &(tow__gemm_timings){608, 480, 300, 310});
    assert_int_equal(t.packed_panels, 4);
    assert_int_equal(t.fetch, TOW__FETCH_TO_L2);
    assert_true(t.block >= 448); /* all rows that the kernel for AVX-512 takes at a time: 11/16 of 1 MiB */
    t = tow__gemm_tune(&small, &(tow__gemm_timings){500, 495, 300, 280});
    assert_int_equal(t.packed_panels, 8); /* a tie */
    assert_int_equal(t.fetch, TOW__FETCH_TO_L1);
    assert_in_range(t.block, 96, 117); /* rows of 384 elements in 11/16 of 256 KiB */
    t = tow__gemm_tune(&small, &(tow__gemm_timings){500, 520, 300, 300});
    assert_int_equal(t.packed_panels, 0); /* as without timings */
    assert_int_equal(t.fetch, TOW__FETCH_TO_L2);
    t = tow__gemm_tune(&unknown, &(tow__gemm_timings){0});
    assert_int_equal(t.packed_panels, 0);
    assert_int_equal(t.block, 0);
    assert_int_equal(t.fetch, TOW__FETCH_TO_L2);
}

/* Timings are made once, and only for products that have large operands. */
static void timings_are_made_once(void **state)
{
    (void)state;
    tow__gemm_time();
    const tow__gemm_timings first = tow__gemm_timings_here();
    tow__gemm_time();
    const tow__gemm_timings again = tow__gemm_timings_here();
    assert_memory_equal(&first, &again, sizeof first);
    assert_int_equal(first.direct > 0 && first.packed > 0 && first.to_l1 > 0 && first.to_l2 > 0,
                     tow__machine_here()->vector_bytes > 0);
    const tow__gemm small = {.dtype = TOW_F32, .m = 64, .n = 64, .k = 64};
    assert_int_equal(tow__gemm_tuning_of(&small)->packed_panels, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines_that_stand_in_keep_bits),
        cmocka_unit_test(blis_keeps_bits),
        cmocka_unit_test(first_runs_decide_large_products),
        cmocka_unit_test(contests_are_of_calls),
        cmocka_unit_test(without_vectors_blis_runs_all),
        cmocka_unit_test(the_rule_follows_the_trial),
        cmocka_unit_test(reasons_are_what_trials_found),
        cmocka_unit_test(linked_products_keep_bits),
        cmocka_unit_test(tuning_keeps_bits),
        cmocka_unit_test(tuning_follows_the_machine),
        cmocka_unit_test(timings_are_made_once),
        cmocka_unit_test(proofs_of_tiny_products_hold),
    };
    return cmocka_run_group_tests_name("trials of engines", tests, NULL, NULL);
}
