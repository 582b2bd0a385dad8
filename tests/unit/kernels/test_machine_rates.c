/* Rates that are measured: once, within bounds that no machine exceeds; and how they correct those of facts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "src/kernels/machine_rates.h"

static void the_machine_is_measured_once(void **state)
{
    (void)state;
    const tow__measured_rates first = tow__measure_machine(), again = tow__measure_machine(),
                              known = tow__machine_rates_here();
    assert_true(first.f32 == again.f32 && first.l3 == again.l3 && first.memory == again.memory);
    assert_true(known.f32 == first.f32 && known.l3 == first.l3 && known.memory == first.memory);
    assert_true(first.f32 >= 0 && first.f32 < 1e13);
    assert_true(first.l3 >= 0 && first.l3 < 1e13);
    assert_true(first.memory >= 0 && first.memory < 1e13);
}

static void measured_rates_correct_what_is_like_them(void **state)
{
    (void)state;
    const tow__machine m = {.vector_bytes = 32, .threads = 2};
    tow__rates r = tow__correct_rates(&m, &(tow__measured_rates){.f32 = 90e9, .l3 = 60e9, .memory = 20e9});
    assert_true(r.f32 == 96e9 && r.bytes[TOW__IN_L3] == 48e9 && r.bytes[TOW__IN_MEMORY] == 24e9);
    r = tow__correct_rates(&m, &(tow__measured_rates){.f32 = 5e9, .l3 = 800e9, .memory = 1e9});
    assert_true(r.f32 == 6e9 && r.f64 == 3e9 && r.functions == 1.5e9);
    assert_true(r.bytes[TOW__IN_L1] == 2304e9 && r.bytes[TOW__IN_L2] == 1536e9 && r.bytes[TOW__IN_L3] == 768e9);
    assert_true(r.bytes[TOW__IN_MEMORY] == 1.5e9 && r.shared == 1.5e9);
    r = tow__correct_rates(&m, &(tow__measured_rates){.f32 = 0});
    assert_true(r.f32 == 96e9 && r.bytes[TOW__IN_MEMORY] == 24e9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_machine_is_measured_once),
        cmocka_unit_test(measured_rates_correct_what_is_like_them),
    };
    return cmocka_run_group_tests_name("machine_rates", tests, NULL, NULL);
}
