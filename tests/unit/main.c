/* unit_tests NAME: runs tests/unit/FOLDER/test_NAME.c, whose main is called unit_test_NAME here. Without a name: lists
 * them.
 *
 * Environment: TOW_TEST_ONE_CPU: the test may use one CPU only. TOW_TEST_STACK: it runs on a thread with a stack of so
 * many bytes. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
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

static int use_one_cpu(void)
{
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 2;
    size_t cpu = 0;
    while (!CPU_ISSET(cpu, &allowed)) cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return sched_setaffinity(0, sizeof one, &one) == 0 ? 0 : 2;
}

typedef struct started {
    int (*run)(void);
    int result;
} started;

static void *run_started(void *user)
{
    started *s = user;
    s->result = s->run();
    return NULL;
}

static int run_on_stack(int (*run)(void), size_t bytes)
{
    started s = {run, 2};
    pthread_attr_t attributes;
    pthread_t thread;
    if (pthread_attr_init(&attributes) != 0 || pthread_attr_setstacksize(&attributes, bytes) != 0 ||
        pthread_create(&thread, &attributes, run_started, &s) != 0)
        perror("unit_tests: a thread with a small stack");
    else
        pthread_join(thread, NULL);
    return s.result;
}

static int run_test(int (*run)(void))
{
    const char *stack = getenv("TOW_TEST_STACK");
    if (getenv("TOW_TEST_ONE_CPU") != NULL && use_one_cpu() != 0) return 2;
    return stack != NULL ? run_on_stack(run, strtoul(stack, NULL, 10)) : run();
}

int main(int argc, char **argv)
{
    const size_t n = sizeof tests / sizeof *tests;
    for (size_t i = 0; i < n; i++) {
        if (argc < 2)
            puts(tests[i].name);
        else if (strcmp(argv[1], tests[i].name) == 0)
            return run_test(tests[i].run);
    }
    if (argc < 2) return 0;
    fprintf(stderr, "unit_tests: there is no test '%s'; without a name all are listed\n", argv[1]);
    return 2;
}
