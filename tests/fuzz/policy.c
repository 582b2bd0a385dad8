/* Fuzz target: bytes as the text of a policy. A policy that is read is printed, reads back as the same, and decides. */
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"

static char *print(const tow_policy *policy)
{
    const size_t length = tow_policy_text(policy, NULL, 0);
    char *text = malloc(length + 1);
    if (text == NULL) fuzz_fail("no memory");
    if (tow_policy_text(policy, text, length + 1) != length) fuzz_fail("two lengths of one text");
    return text;
}

static void check_policy(tow_context *ctx, const tow_policy *policy)
{
    const tow_policy_query queries[] = {{.primitive = "sin", .n_inputs = 0},
                                        {.primitive = "name", .name = "a"},
                                        {.primitive = "dot_general", .is_dot = true},
                                        {.primitive = "attention", .is_dot = true, .has_batch_dims = true}};
    tow_policy *again = NULL;
    char *text = print(policy);
    fuzz_expect(ctx, tow_policy_parse(ctx, text, &again), text);
    char *second = print(again);
    if (strcmp(text, second) != 0) fuzz_fail("'%s' reads back as '%s'", text, second);
    for (size_t i = 0; i < sizeof queries / sizeof queries[0]; i++) {
        const tow_verdict verdict = tow_policy_decide(policy, &queries[i]);
        if (verdict > TOW_MUST_SAVE || verdict != tow_policy_decide(again, &queries[i]))
            fuzz_fail("'%s' decides %d about query %zu, and differently when read back", text, (int)verdict, i);
    }
    free(text);
    free(second);
    tow_policy_free(again);
}

int fuzz_target(const uint8_t *data, size_t size)
{
    tow_context *ctx = fuzz_context();
    tow_policy *policy = NULL;
    char *text = fuzz_text(data, size);
    if (fuzz_succeeds(ctx, tow_policy_parse(ctx, text, &policy))) check_policy(ctx, policy);
    tow_policy_free(policy);
    free(text);
    fuzz_end(ctx);
    return 0;
}
