/* Mappings in memory: long texts of rules take a few times their bytes, as strangers write them, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/counting_allocator.h"
#include "tow/weights.h"

enum {
    LINES = 200000,
    MOST =
        20 /* times the text: a rule has 40 bytes, each of its names 24 at least, and lists double when they are full */
};

static void long_texts(void **state)
{
    static const char *const lines[] = {"ignore abc\n",
                                        "abc -> def\n",
                                        "tied abc = def\n",
                                        "a|b|c -> d optional\n",
                                        "abc [(x y) z] -> def [z x y]\n",
                                        "abc [x (* y)] -> {d,e,f} [x y]\n"};
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        const size_t length = strlen(lines[i]);
        char *text = malloc(LINES * length + 1);
        counting c;
        tow_context *ctx;
        tow_weight_mapping *mapping;
        assert_non_null(text);
        for (size_t k = 0; k < LINES; k++) memcpy(text + k * length, lines[i], length);
        text[LINES * length] = '\0';
        const tow_context_options options = counting_options(&c, -1);
        assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
        const size_t before = c.bytes;
        c.peak = 0;
        assert_int_equal(tow_weight_mapping_parse(ctx, "rules", text, &mapping), TOW_OK);
        if (c.peak - before > MOST * LINES * length)
            fail_msg("'%s' takes %.1f times its bytes", lines[i], (double)(c.peak - before) / (double)(LINES * length));
        tow_weight_mapping_free(mapping);
        assert_int_equal(c.bytes, before);
        tow_context_free(ctx);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(long_texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
