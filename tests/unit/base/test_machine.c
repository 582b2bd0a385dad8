/* What is known of the machine. */
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
    const tow__machine server = {{32 << 10, 8, 64}, {1 << 20, 16, 64}, {0}, 64}, unknown = {.vector_bytes = 0};
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(machines_are_described),
    };
    return cmocka_run_group_tests_name("machine", tests, NULL, NULL);
}
