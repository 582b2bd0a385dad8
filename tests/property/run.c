/* All checks of src/check on a case, with the failures printed. */
#include <stdio.h>

#include "tests/property/property.h"
#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/tried.h"

int64_t property_count(const property_input *in) { return tow__check_count(in); }

property_axis property_axis_of(const property_input *in, int64_t axis)
{
    property_axis result = {.before = 1, .size = in->dims[axis], .after = 1};
    for (int d = 0; d < in->rank; d++) {
        if (d < axis) result.before *= in->dims[d];
        if (d > axis) result.after *= in->dims[d];
    }
    return result;
}

static void print(const tow_check_failure *failure, void *user)
{
    (void)user;
    printf("  %s: %s\n", tow_check_name(failure->kind), failure->text);
}

tow__check property_begin(tow_context *context, const property_case *c)
{
    return (tow__check){.ctx = context, .c = c, .report = print};
}

/* In a context of its own, whose allocator checks what it is told. */
static int check_failing(const property_case *c)
{
    if (kernels_alone()) return 0; /* kernels allocate nothing */
    counting count;
    const tow_context_options options = counting_options(&count, -1);
    tow_context *context = NULL;
    if (tow_context_create(&options, &context) != TOW_OK) return 1;
    tow__check k = property_begin(context, c);
    k.nowhere = fopen("/dev/null", "w");
    tow__check_failing(&k);
    if (k.nowhere) fclose(k.nowhere);
    tow_context_free(context);
    return k.failures + (count.blocks != 0) + (count.wrong_sizes != 0);
}

/* Compares with what one rounding gives, and checks the same ways through other code: rows and failing allocations. */
static int check_halves(tow_context *context, tow_context *portable, const property_case *c)
{
    int failures = 0;
    for (int floats = 1; floats < TOW_DTYPE_END; floats++) {
        if (!tow__is_half((tow_dtype)floats)) continue;
        property_case half = *c;
        half.floats = 1u << floats;
        tow__check k = property_begin(context, &half), rows = property_begin(portable, &half);
        property_check_halves(&k, (tow_dtype)floats);
        failures += k.failures;
        if (floats != TOW_BF16) continue;
        tow__check_batching(&rows);
        failures += rows.failures + check_failing(&half);
    }
    return failures;
}

int property_check(tow_context *context, tow_context *portable, const property_case *c)
{
    tow__check k = property_begin(context, c), rows = property_begin(portable, c);
    tow__check_values x = {0};
    tow_context_clear_error(context);
    if (!tow__check_draw(&k, c, 0, &x)) return 1;
    tow__check_value(&k, TOW_F64, &x);
    tow__check_value(&k, TOW_F32, &x);
    if (k.failures == 0) tow__check_derivatives(&k, &x);
    tow__check_free(&x);
    if (!kernels_alone()) tow__check_round_trips(&k);
    tow__check_batching(&rows);
    return k.failures + rows.failures + check_failing(c) + check_halves(context, portable, c);
}
