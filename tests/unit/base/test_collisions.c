/* Tables of names and of values: keys that somebody prepared, or that differ late, take no longer than others. Each
 * case is timed against the same work with harmless keys: where all keys meet in one slot, it takes a hundred times as
 * long. The least time of three is that of the work, whatever else the machine does. Tests hash.c, names.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "src/base/hash.h"
#include "src/base/names.h"
#include "src/graph/graph.h"
#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The least of three. */
static double least(double (*time)(const void *), const void *work)
{
    double best = time(work);
    for (int i = 1; i < 3; i++) {
        const double took = time(work);
        if (took < best) best = took;
    }
    return best;
}

/* Generous: what is quadratic is beyond it by far, and what is linear is not, even if others use the processor. */
static void expect_as_fast(double (*time)(const void *), const void *prepared_keys, const void *harmless_keys)
{
    const double harmless = least(time, harmless_keys), prepared = least(time, prepared_keys);
    if (prepared > 10 * harmless + 0.1)
        fail_msg("%.2f s for prepared keys, %.2f s for harmless ones", prepared, harmless);
}

/* ---- names that collide for FNV-1a ------------------------------------------------------------------------------- */

enum {
    STAGES = 15,
    PART = 5, /* characters of a stage */
    NAMES = 1 << STAGES,
    LENGTH = STAGES * PART,
    BITS = 20
};

/* Two parts of each stage, after which the hash is the same. */
typedef struct stages {
    char parts[STAGES][2][PART + 1];
} stages;

typedef struct fnv {
    uint64_t start, prime;
} fnv;
static const fnv wide = {UINT64_C(0xcbf29ce484222325), UINT64_C(0x100000001b3)}, narrow = {2166136261U, 16777619U};

static uint32_t low_bits(uint64_t h) { return (uint32_t)h & ((1U << BITS) - 1); }

static uint64_t append(fnv f, uint64_t h, const char *text)
{
    for (; *text; text++) h = (h ^ (unsigned char)*text) * f.prime;
    return h;
}

static void write_part(uint32_t n, char *text)
{
    for (int i = 0; i < PART; i++, n /= 16) text[i] = (char)('a' + n % 16);
    text[PART] = '\0';
}

/* Two parts after which the low bits of the hash are the same, stage by stage: 2^STAGES names with the same low
 * bits. */
static void find_parts(fnv f, stages *found)
{
    char(*parts)[2][PART + 1] = found->parts;
    uint32_t *seen = calloc(1U << BITS, sizeof *seen);
    uint64_t h = f.start;
    assert_non_null(seen);
    for (int s = 0; s < STAGES; s++) {
        memset(seen, 0, (size_t)sizeof *seen << BITS);
        for (uint32_t n = 1;; n++) {
            assert_true(n < 1U << (4 * PART));
            write_part(n, parts[s][1]);
            uint32_t *other = &seen[low_bits(append(f, h, parts[s][1]))];
            if (*other) write_part(*other, parts[s][0]);
            if (*other) break;
            *other = n;
        }
        h = append(f, h, parts[s][0]);
    }
    free(seen);
}

static void write_name(const stages *from, uint32_t n, char *name)
{
    for (int s = 0; s < STAGES; s++) memcpy(name + s * PART, from->parts[s][n >> s & 1], PART);
    name[LENGTH] = '\0';
}

/* As many names of that length that do not collide: the number stands in them. */
static void write_harmless(uint32_t n, char *name)
{
    memset(name, 'x', LENGTH);
    name[snprintf(name, LENGTH, "n%u", n)] = '_';
    name[LENGTH] = '\0';
}

/* Names of `colliding` stages; NULL: harmless ones. */
static double time_of_parse(const void *colliding)
{
    char *text = malloc((size_t)NAMES * (LENGTH + 40) + 100), name[LENGTH + 1];
    size_t at = (size_t)sprintf(text, "{ lambda ; x:f32[]. let\n");
    for (uint32_t n = 0; n < NAMES; n++) {
        colliding ? write_name(colliding, n, name) : write_harmless(n, name);
        at += (size_t)sprintf(text + at, "%s:f32[] = neg x\n", name);
    }
    sprintf(text + at, "in (x) }");
    tow_graph *g;
    double start = now();
    OK(tow_graph_parse(ctx, text, &g));
    double took = now() - start;
    assert_int_equal(tow_graph_equation_count(g), NAMES);
    tow_graph_release(g);
    free(text);
    return took;
}

static void test_names_of_values(void **state)
{
    (void)state;
    stages colliding;
    find_parts(wide, &colliding);
    char a[LENGTH + 1], b[LENGTH + 1];
    write_name(&colliding, 1, a), write_name(&colliding, NAMES - 1, b);
    assert_int_equal(low_bits(append(wide, wide.start, a)), low_bits(append(wide, wide.start, b)));
    expect_as_fast(time_of_parse, &colliding, NULL);
}

static double time_of_names(const void *colliding)
{
    tow__names names;
    char name[LENGTH + 1];
    double start = now();
    tow__names_init(&names, ctx);
    for (uint32_t n = 0; n < NAMES; n++) {
        colliding ? write_name(colliding, n, name) : write_harmless(n, name);
        assert_int_equal(tow__names_find(&names, name), TOW__NO_NAME);
        assert_int_equal(tow__names_add(&names, name), n);
    }
    tow__names_free(&names);
    return now() - start;
}

static void test_paths(void **state)
{
    (void)state;
    stages colliding;
    find_parts(narrow, &colliding);
    expect_as_fast(time_of_names, &colliding, NULL);
}

/* ---- values that differ late ------------------------------------------------------------------------------------- */

enum {
    CONSTANTS = 3000,
    ELEMENTS = 2048
};

typedef struct differing {
    int where;    /* the element */
    bool nested;  /* in the bodies of calls */
    bool chained; /* each call takes the result of the one before, and so differs by its operand */
} differing;

static void call_constant(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    out[0] = tow_add(in[0], tow_constant(t, user));
}

static void constants(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const differing *d = user;
    tow_type type = tow_make_type(TOW_I32, 1, (int64_t[]){ELEMENTS});
    for (int i = 0; i < CONSTANTS; i++) {
        tow_array *a;
        OK(tow_array_create(ctx, type, &a));
        ((int32_t *)tow_array_data(a))[d->where] = i;
        if (d->nested)
            tow_call_function(t, call_constant, a, "f", 1, d->chained && i ? &out[i - 1] : &in[0], 1, &out[i]);
        else
            out[i] = tow_constant(t, a);
        tow_array_release(a);
    }
}

/* Time of merging, in which no two are equal. */
static double time_of_cse(const void *how)
{
    differing d = *(const differing *)how;
    tow_graph *g, *merged;
    tow_type type = tow_make_type(TOW_I32, 1, (int64_t[]){ELEMENTS});
    OK(tow_trace_function(ctx, constants, &d, 1, &type, NULL, CONSTANTS, &g));
    double start = now();
    OK(tow_graph_cse(g, &merged));
    double took = now() - start;
    assert_int_equal(tow_graph_primitive_count(merged, "const"), CONSTANTS);
    tow_graph_release(merged);
    tow_graph_release(g);
    return took;
}

static void test_constants(void **state)
{
    (void)state;
    expect_as_fast(time_of_cse, &(differing){.where = ELEMENTS - 1}, &(differing){.where = 0});
}

/* Bodies with the same number of equations, and constants that differ in their first or last element, are compared
 * with bodies that are told apart by what they are called with. */
static void test_bodies(void **state)
{
    (void)state;
    const differing harmless = {.nested = true, .chained = true};
    expect_as_fast(time_of_cse, &(differing){.where = 0, .nested = true}, &harmless);
    expect_as_fast(time_of_cse, &(differing){.where = ELEMENTS - 1, .nested = true}, &harmless);
}

/* Contexts have seeds of their own, and results do not show them. */
static void test_seeds(void **state)
{
    (void)state;
    tow_context *other;
    assert_int_equal(tow_context_create(NULL, &other), TOW_OK);
    assert_int_not_equal(other->hash_seed, ctx->hash_seed);
    tow_context_free(other);
    assert_int_not_equal(tow__hash(1, "a", 1), tow__hash(2, "a", 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_of_values), cmocka_unit_test(test_paths), cmocka_unit_test(test_constants),
        cmocka_unit_test(test_bodies),          cmocka_unit_test(test_seeds),
    };
    return cmocka_run_group_tests_name("collisions", tests, setup, teardown);
}
