/* Compiling with every allocation failing in turn. */
#ifndef TOW_TESTS_FAILING_COMPILES_H
#define TOW_TESTS_FAILING_COMPILES_H

#include "tests/unit/support/counting_allocator.h"
#include "tow/program.h"

/* ctx was made with the allocator `count`. Each failure is reported and leaves nothing behind. */
static void expect_compile_survives(counting *count, tow_context *ctx, const tow_graph *g,
                                    const tow_compile_options *options)
{
    tow_program *program;
    assert_int_equal(tow_compile(ctx, g, options, &program), TOW_OK); /* starts the context's threads, which stay */
    tow_program_free(program);
    long blocks = count->blocks, n = 0;
    tow_status status = TOW_OUT_OF_MEMORY;
    for (; status != TOW_OK; n++) {
        count->calls = 0;
        count->fail_at = n;
        status = tow_compile(ctx, g, options, &program);
        count->fail_at = -1;
        if (status == TOW_OK) break;
        assert_int_equal(status, TOW_OUT_OF_MEMORY);
        assert_null(program);
        assert_int_equal(count->blocks, blocks);
    }
    assert_true(n > 3);
    tow_program_free(program);
    assert_int_equal(count->blocks, blocks);
}

#endif
