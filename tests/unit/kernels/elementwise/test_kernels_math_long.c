/* long-test: the vector functions of one variable on one in 251 of all floats, or on every float (several minutes per
 * function) if TOW_EVERY_FLOAT is set. */
#include "tests/unit/support/vector_math.h"

static void one_in_many(void **state)
{
    (void)state;
    uint64_t stride = getenv("TOW_EVERY_FLOAT") ? 1 : 251;
    for (int f = 0; f < VECTOR_FUNCTIONS; f++) expect_bounds(&vector_functions[f], 0, stride);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_in_many),
    };
    return cmocka_run_group_tests_name("vector functions, most floats", tests, NULL, NULL);
}
