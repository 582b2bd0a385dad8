/* Walks the table of primitives: every one has cases, and every case passes all checks. With --coverage it only says
 * which primitives have no case, and which cases have no primitive. With --bits it prints hashes of results instead,
 * which are the same for every processor, compiler and preset. With names as arguments it runs only the cases of
 * those, with --part K N those of every Nth primitive from K on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/ops/batching.h"
#include "src/ops/tiling.h"
#include "tests/property/property.h"
#include "tests/unit/support/tried.h"

static const property_table *const tables[] = {
    &elementwise_cases, &integer_cases, &product_cases,   &reduction_cases, &move_cases,
    &random_cases,      &region_cases,  &composite_cases, &quantized_cases, &companion_cases,
    &indexing_cases,    &window_cases,  &custom_cases,    &host_cases,
};
enum {
    TABLES = sizeof tables / sizeof *tables
};

/* The case as it is, and in bf16. */
static int check_tiling_of_case(const property_case *c, tow_context *context, size_t *axes)
{
    property_case half = *c;
    half.floats = 1u << TOW_BF16;
    tow__check k = property_begin(context, c), in_16_bits = property_begin(context, &half);
    tow__check_tiling(&k, false, axes);
    tow__check_tiling(&in_16_bits, false, axes);
    return k.failures + in_16_bits.failures;
}

/* Tiling rules on all cases of a primitive. A rule that lets axes pass must have been asked about one. */
static int check_tiling(const tow_primitive *primitive, tow_context *context)
{
    size_t axes = 0;
    int failures = 0;
    for (size_t t = 0; t < TABLES; t++)
        for (size_t i = 0; i < tables[t]->count; i++)
            if (strcmp(tables[t]->cases[i].primitive, primitive->name) == 0)
                failures += check_tiling_of_case(&tables[t]->cases[i], context, &axes);
    if (primitive->tile != tow__no_tiling && axes == 0) {
        printf("  tiling: the rule lets no axis of any case pass; give it a case where it does\n");
        failures++;
    }
    if (failures) printf("FAILED: %s, tiling (%d)\n", primitive->name, failures);
    return failures;
}

/* Rules of sums, likewise. */
static int check_sums(const tow_primitive *primitive, tow_context *context)
{
    size_t axes = 0;
    int failures = 0;
    for (size_t t = 0; t < TABLES && primitive->sums; t++)
        for (size_t i = 0; i < tables[t]->count; i++) {
            if (strcmp(tables[t]->cases[i].primitive, primitive->name) != 0) continue;
            tow__check k = property_begin(context, &tables[t]->cases[i]);
            tow__check_sums(&k, false, &axes);
            failures += k.failures;
        }
    if (primitive->sums && axes == 0) {
        printf("  sums: the rule finds no axis in any case; give it a case where it does\n");
        failures++;
    }
    if (failures) printf("FAILED: %s, sums (%d)\n", primitive->name, failures);
    return failures;
}

/* Cumulative sums of a block are fewer than those of the whole, and logarithms of sums do not add up. */
static int wrong_sums_are_found(tow_context *context)
{
    static const tow__cumsum_params sum = {.axis = 1};
    static const tow__axis_params along = {.axis = 0};
    const property_case wrong[] = {
        {.primitive = "cumsum", .params = &sum, .n_in = 1, .in = {{TOW_F64, S2(4, 3)}}},
        {.primitive = "logsumexp", .params = &along, .n_in = 1, .in = {{TOW_F64, .rank = 1, .dims = {30}}}},
    };
    int failures = 0;
    printf("  (what does not add up here is meant to)\n");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tow__check k = property_begin(context, &wrong[i]);
        size_t axes = 0;
        tow__check_sums(&k, true, &axes);
        failures += k.failures == 0;
    }
    if (failures) printf("FAILED: a wrong rule of sums is not found\n");
    return failures;
}

/* A sum along axis 0 is not made of sums of blocks, and neither is a softmax. */
static int wrong_tiling_is_found(tow_context *context)
{
    static const tow__cumsum_params sum = {.axis = 0};
    static const tow__axis_params along = {.axis = 0};
    const property_case wrong[] = {
        {.primitive = "cumsum", .params = &sum, .n_in = 1, .in = {{TOW_F64, S2(4, 3)}}},
        {.primitive = "softmax", .params = &along, .n_in = 1, .in = {{TOW_F64, S2(4, 3)}}},
    };
    int failures = 0;
    printf("  (what differs here is meant to)\n");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tow__check k = property_begin(context, &wrong[i]);
        size_t axes = 0;
        tow__check_tiling(&k, true, &axes);
        failures += k.failures == 0;
    }
    if (failures) printf("FAILED: a wrong tiling rule is not found\n");
    return failures;
}

/* A sum along an axis is not the same along another one. context: with portable bits. */
static int wrong_batching_is_found(tow_context *context)
{
    static const tow__cumsum_params sum = {.axis = 0};
    const property_case wrong = {.primitive = "cumsum", .params = &sum, .n_in = 1, .in = {{TOW_F64, S2(4, 3)}}};
    tow__check k = property_begin(context, &wrong);
    tow__check_batching_rule(&k, tow__batch_elementwise);
    if (k.failures > 0) return 0;
    printf("FAILED: a wrong batching rule is not found\n");
    return 1;
}

/* Cases of `primitive`; context NULL: counts them, else checks them and adds to *failures. portable: a context with
 * portable bits. */
static size_t cases_of(const char *primitive, tow_context *context, tow_context *portable, int *failures)
{
    size_t count = 0;
    for (size_t t = 0; t < TABLES; t++)
        for (size_t i = 0; i < tables[t]->count; i++) {
            const property_case *c = &tables[t]->cases[i];
            if (strcmp(c->primitive, primitive) != 0) continue;
            count++;
            if (context == NULL) continue;
            const int failed = property_check(context, portable, c);
            if (failed > 0)
                printf("FAILED: %s%s%s (%d)\n", primitive, c->label ? ", " : "", c->label ? c->label : "", failed);
            *failures += failed;
        }
    return count;
}

static int coverage(void)
{
    int gaps = 0;
    for (size_t i = 0; i < tow__primitive_count; i++) {
        if (cases_of(tow__primitives[i]->name, NULL, NULL, NULL) > 0) continue;
        printf("primitive '%s' has no case: add one to a table in tests/property/cases_*.c\n",
               tow__primitives[i]->name);
        gaps++;
    }
    for (size_t i = 0; i < tow__primitive_count; i++) {
        if (tow__primitives[i]->tile && tow__primitives[i]->cost) continue;
        printf("primitive '%s' has no tiling rule or no cost: see TOW__PRIMITIVE in src/graph/primitive.h\n",
               tow__primitives[i]->name);
        gaps++;
    }
    for (size_t t = 0; t < TABLES; t++)
        for (size_t i = 0; i < tables[t]->count; i++) {
            const char *name = tables[t]->cases[i].primitive;
            if (tow__primitive_find(name, strlen(name)) != NULL) continue;
            printf("a case names the primitive '%s', which does not exist\n", name);
            gaps++;
        }
    return gaps == 0 ? 0 : 1;
}

/* Products, reductions and moves take nothing from the C library. */
static int bits(void)
{
    static const tow_context_options options = TOW_CONTEXT_OPTIONS(.portable_bits = true);
    tow_context *context = NULL;
    int failures = 0;
    if (tow_context_create(&options, &context) != TOW_OK) return 1;
    for (size_t t = 0; t < TABLES; t++)
        for (size_t i = 0; i < tables[t]->count; i++) {
            const bool plain = tables[t] == &product_cases || tables[t] == &reduction_cases || tables[t] == &move_cases;
            failures += property_bits(context, &tables[t]->cases[i], TOW_F32);
            if (plain) failures += property_bits(context, &tables[t]->cases[i], TOW_F64);
        }
    tow_context_free(context);
    return failures == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    static const tow_context_options options = TOW_CONTEXT_OPTIONS(.portable_bits = true);
    tow_context *context = NULL, *portable = NULL;
    int failures = 0;
    size_t cases = 0, parts = 1, part = 0;
    if (argc == 2 && strcmp(argv[1], "--coverage") == 0) return coverage();
    if (argc == 2 && strcmp(argv[1], "--bits") == 0) return bits();
    if (argc == 4 && strcmp(argv[1], "--part") == 0) {
        part = strtoul(argv[2], NULL, 10);
        parts = strtoul(argv[3], NULL, 10);
    }
    if (tow_context_create(NULL, &context) != TOW_OK || tow_context_create(&options, &portable) != TOW_OK) return 1;
    for (size_t i = 0; i < tow__primitive_count; i++) {
        bool wanted = argc == 1 || (parts > 1 && i % parts == part);
        for (int a = 1; a < argc; a++) wanted = wanted || strcmp(argv[a], tow__primitives[i]->name) == 0;
        if (!wanted) continue;
        cases += cases_of(tow__primitives[i]->name, context, portable, &failures);
        if (kernels_alone()) continue; /* rules do not depend on kernels */
        failures += check_tiling(tow__primitives[i], context);
        failures += check_sums(tow__primitives[i], context);
    }
    failures += wrong_tiling_is_found(context);
    failures += wrong_sums_are_found(context);
    failures += wrong_batching_is_found(portable);
    tow_context_free(context);
    tow_context_free(portable);
    printf("%zu cases, %d failures\n", cases, failures);
    return failures == 0 && cases > 0 ? 0 : 1;
}
