/* unit_tests NAME: runs tests/unit/test_NAME.c, whose main is called unit_test_NAME here. Without a name: lists them. */
#include <stdio.h>
#include <string.h>

#define UNIT_TEST(name) int unit_test_##name(void);
#include "unit_tests.inc"
#undef UNIT_TEST

static const struct {
    const char *name;
    int (*run)(void);
} tests[] = {
#define UNIT_TEST(name) {#name, unit_test_##name},
#include "unit_tests.inc"
};

int main(int argc, char **argv)
{
    const size_t n = sizeof tests / sizeof *tests;
    for (size_t i = 0; i < n; i++) {
        if (argc < 2)
            puts(tests[i].name);
        else if (strcmp(argv[1], tests[i].name) == 0)
            return tests[i].run();
    }
    if (argc < 2) return 0;
    fprintf(stderr, "unit_tests: there is no test '%s'; without a name all are listed\n", argv[1]);
    return 2;
}
