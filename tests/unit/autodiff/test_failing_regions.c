/* Regions with bodies so large that what analyses them asks for memory several times, transformed with every allocation
 * failing in turn: each failure is reported and leaves nothing behind.
 * Tests regions/record.c, regions/remat.c, regions/types.c, regions/call.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/counting_allocator.h"
#include "tow/tow.h"

enum {
    LONG = 64 /* equations of a body */
};

/* "b:f32[2] = sin a c:f32[2] = sin b ...", the last value being b; in memory of the caller. */
static void append_chain(char *text, size_t size)
{
    for (int i = 0; i < LONG; i++) {
        const size_t n = strlen(text);
        snprintf(text + n, size - n, "v%d:f32[2] = sin %s%d ", i + 1, i == 0 ? "x" : "v", i);
    }
}

/* The text with its "..." replaced by the chain, once or more often. */
static char *filled(const char *form)
{
    static char text[1 << 17];
    text[0] = '\0';
    for (const char *dots; (dots = strstr(form, "...")); form = dots + 3) {
        const size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, "%.*s", (int)(dots - form), form);
        append_chain(text, sizeof text);
    }
    const size_t n = strlen(text);
    snprintf(text + n, sizeof text - n, "%s", form);
    return text;
}

static const char *const forms[] = {
    /* while: the condition is shared by all rows, or each row's own */
    "{ lambda ; x0:f32[2]. let i:i32[] = const[value=0] _:i32[] y:f32[2] = while[max_iterations=2 consts=0 "
    "condition={ lambda ; i:i32[] x0:f32[2]. let n:i32[] = const[value=2] p:bool[] = lt i n in (p) } "
    "body={ lambda ; i:i32[] x0:f32[2]. let ... o:i32[] = const[value=1] j:i32[] = add i o in (j, v64) }] i x0 "
    "s:f32[] = reduce_sum[axes=(0)] y in (s) }",
    "{ lambda ; x0:f32[2]. let y:f32[2] = while[max_iterations=2 consts=0 "
    "condition={ lambda ; x0:f32[2]. let s:f32[] = reduce_sum[axes=(0)] x0 k:f32[] = const[value=1] p:bool[] = gt s k "
    "in (p) } "
    "body={ lambda ; x0:f32[2]. let ... in (v64) }] x0 s:f32[] = reduce_sum[axes=(0)] y in (s) }",
    "{ lambda ; x0:f32[2]. let n:i32[] = const[value=2] y:f32[2] = fori[max_iterations=2 consts=0 reverse=false "
    "body={ lambda ; x0:f32[2] i:i32[]. let ... in (v64) }] n x0 s:f32[] = reduce_sum[axes=(0)] y in (s) }",
    "{ lambda ; x0:f32[2]. let y:f32[2] = scan[length=2 reverse=false consts=0 carry=1 "
    "body={ lambda ; x0:f32[2]. let ... in (v64) }] x0 s:f32[] = reduce_sum[axes=(0)] y in (s) }",
    "{ lambda ; x0:f32[2]. let p:bool[] = const[value=true] y:f32[2] = cond[branches=("
    "{ lambda ; x0:f32[2]. let ... in (v64) }, { lambda ; x0:f32[2]. let ... in (v3) })] p x0 "
    "s:f32[] = reduce_sum[axes=(0)] y in (s) }",
    "{ lambda ; x0:f32[2]. let y:f32[2] = remat[policy=\"names:h\" body={ lambda ; x0:f32[2]. let ... "
    "h:f32[2] = name[name=\"h\"] v64 in (h) }] x0 s:f32[] = reduce_sum[axes=(0)] y in (s) }",
};

static tow_status transform(const tow_graph *g, int kind)
{
    tow_graph *first = NULL, *second = NULL;
    tow_residuals residuals = {0};
    tow_status status = TOW_OK;
    if (kind == 0) status = tow_vmap(g, 2, NULL, NULL, &first);
    if (kind == 1) status = tow_linearize(g, 0, NULL, &first, &second);
    if (kind == 2) status = tow_saved_residuals(g, 0, NULL, &residuals);
    tow_residuals_free(&residuals);
    tow_graph_release(first);
    tow_graph_release(second);
    return status;
}

static void test_transforms(void **state)
{
    (void)state;
    counting count;
    const tow_context_options options = counting_options(&count, -1);
    tow_context *c;
    assert_int_equal(tow_context_create(&options, &c), TOW_OK);
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        tow_graph *g;
        if (tow_graph_parse(c, filled(forms[f]), &g) != TOW_OK) fail_msg("form %zu: %s", f, tow_context_error(c));
        for (int kind = 0; kind < 3; kind++) {
            if (transform(g, kind) != TOW_OK) fail_msg("form %zu: %s", f, tow_context_error(c));
            const long blocks = count.blocks;
            long n = 0;
            /* the first 150, among which analyses begin, then ever fewer */
            for (tow_status status = TOW_OUT_OF_MEMORY; status != TOW_OK; n += n < 150 ? 1 : n / 16) {
                count.calls = 0;
                count.fail_at = n;
                status = transform(g, kind);
                count.fail_at = -1;
                if ((status != TOW_OK && status != TOW_OUT_OF_MEMORY) || count.blocks != blocks)
                    fail_msg("form %zu, transformation %d, allocation %ld: %s, %ld blocks leak", f, kind, n,
                             tow_context_error(c), count.blocks - blocks);
            }
            assert_true(n > 30);
        }
        tow_graph_release(g);
    }
    tow_context_free(c);
    assert_int_equal(count.blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_transforms)};
    return cmocka_run_group_tests_name("failing_regions", tests, NULL, NULL);
}
