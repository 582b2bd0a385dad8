/* Tests what is known of the machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "src/base/machine.h"

static void machines_are_described(void **state)
{
    (void)state;
    char text[128], few[8];
    const tow__machine server = {.l1 = {32 << 10, 8, 64}, .l2 = {1 << 20, 16, 64}, .vector_bytes = 64};
    const tow__machine unknown = {.vector_bytes = 0};
    const size_t length = tow__machine_describe(&server, text, sizeof text);
    assert_string_equal(text, "L1 32 KiB 8-way, L2 1 MiB 16-way");
    assert_int_equal(length, strlen(text));
    assert_int_equal(tow__machine_describe(&server, few, sizeof few), length);
    tow__machine_describe(&unknown, text, sizeof text);
    assert_string_equal(text, "caches unknown");
    const tow__machine *here = tow__machine_here();
    assert_true(here->l1.bytes == 0 || (here->l1.bytes >= 4096 && here->l1.bytes <= 1 << 20));
    assert_true(here->l2.bytes == 0 || here->l2.bytes >= here->l1.bytes);
}

/* Two fused multiply-adds of 8 elements in a cycle of 3 GHz: 96 GFLOP/s; one function of each of 8; 48, 32 and 16
 * bytes. */
static void rates_follow_from_facts(void **state)
{
    (void)state;
    tow__machine m = {.vector_bytes = 32, .threads = 1};
    tow__rates r = tow__machine_nominal(&m);
    assert_true(r.f32 == 96e9 && r.f64 == 48e9 && r.functions == 24e9);
    assert_true(r.bytes[TOW__IN_L1] == 144e9 && r.bytes[TOW__IN_L2] == 96e9 && r.bytes[TOW__IN_L3] == 48e9);
    assert_true(r.bytes[TOW__IN_MEMORY] == 24e9 && r.shared == 24e9);
    m.vector_bytes = 0; /* vectors of 16 bytes, a product and a sum apart */
    m.threads = 16;
    r = tow__machine_nominal(&m);
    assert_true(r.f32 == 24e9 && r.bytes[TOW__IN_L2] == 48e9 && r.shared == 4 * 24e9);
}

/* A rate that is right within a factor of four stays as it is; others change by powers of 16. */
static void measured_rates_correct_nominal_ones(void **state)
{
    (void)state;
    assert_true(tow__machine_correct(100, 0) == 100);
    assert_true(tow__machine_correct(100, 26) == 100 && tow__machine_correct(100, 399) == 100);
    assert_true(tow__machine_correct(100, 24) == 6.25 && tow__machine_correct(100, 401) == 1600);
    assert_true(tow__machine_correct(100, 1) == 0.390625);
}

static void data_are_found_where_they_fit(void **state)
{
    (void)state;
    const tow__machine m = {.l1 = {32 << 10, 8, 64}, .l2 = {512 << 10, 8, 64}, .l3 = {32 << 20, 16, 64}};
    assert_int_equal(tow__machine_level(&m, 0), TOW__IN_L1);
    assert_int_equal(tow__machine_level(&m, 16 << 10), TOW__IN_L1);
    assert_int_equal(tow__machine_level(&m, (16 << 10) + 1), TOW__IN_L2);
    assert_int_equal(tow__machine_level(&m, (256 << 10) + 1), TOW__IN_L3);
    assert_int_equal(tow__machine_level(&m, 4 << 20), TOW__IN_L3);
    assert_int_equal(tow__machine_level(&m, (4 << 20) + 1), TOW__IN_MEMORY);
    const tow__machine without = {.l1 = {0}};
    assert_int_equal(tow__machine_level(&without, 1), TOW__IN_MEMORY);
}

static void machines_are_read(void **state)
{
    (void)state;
    tow__machine m;
    assert_true(tow__machine_read("l1=48K,l2=2M,l3=0,vector=64,threads=8,memory_rate=10,meeting=700", &m));
    assert_int_equal(m.l1.bytes, 48 << 10);
    assert_int_equal(m.l2.bytes, 2 << 20);
    assert_int_equal(m.l3.bytes, 0);
    assert_int_equal(m.vector_bytes, 64);
    assert_int_equal(m.threads, 8);
    assert_true(m.rates.f32 == 192e9 && m.rates.bytes[TOW__IN_MEMORY] == 10e9 && m.rates.shared == 48e9);
    assert_true(m.rates.meeting > 699e-9 && m.rates.meeting < 701e-9);
    assert_true(tow__machine_read("threads=3", &m)); /* the rest is that of the machine at hand */
    assert_int_equal(m.l1.bytes, tow__machine_here()->l1.bytes);
    assert_int_equal(m.threads, 3);
    static const char *const wrong[] = {"",
                                        "l1",
                                        "l1=",
                                        "l1=x",
                                        "l1=1,",
                                        "l1=1;l2=2",
                                        "l4=1",
                                        "l1=1KB",
                                        "l1=-1",
                                        "f32=0",
                                        "memory_rate=0",
                                        "f32=1K",
                                        "vector=2000",
                                        "l=1",
                                        "threads=5000",
                                        "l1=99999999999999999999",
                                        " l1=1",
                                        "l1=1, l2=2"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (tow__machine_read(wrong[i], &m)) fail_msg("\"%s\" is read", wrong[i]);
}

static void rates_are_described(void **state)
{
    (void)state;
    tow__machine m = {.vector_bytes = 32, .threads = 2};
    char text[256], few[8];
    m.rates = tow__machine_nominal(&m);
    const size_t length = tow__machine_describe_rates(&m, text, sizeof text);
    assert_string_equal(text, "f32 96, f64 48 GFLOP/s; L1 144, L2 96, L3 48, memory 24 GB/s by one thread, 24 by all; "
                              "threads meet in 5000 ns, a call takes 50 ns");
    assert_int_equal(length, strlen(text));
    assert_int_equal(tow__machine_describe_rates(&m, few, sizeof few), length);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(machines_are_described),
        cmocka_unit_test(rates_follow_from_facts),
        cmocka_unit_test(measured_rates_correct_nominal_ones),
        cmocka_unit_test(data_are_found_where_they_fit),
        cmocka_unit_test(machines_are_read),
        cmocka_unit_test(rates_are_described),
    };
    return cmocka_run_group_tests_name("machine", tests, NULL, NULL);
}
