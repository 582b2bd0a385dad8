/* Curves of memory limits as tables and pictures: ratios by hand, one mark for each policy, failures that leave the
 * file as it was. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/io_files.h"
#include "tow/tow.h"

static const tow_memory_point points[] = {{1000, 3, 4e6}, {1500, 2.5, 3e6}, {4000, 2, 2e6}};
static const tow_memory_mark marks[] = {{"nothing", {1200, 3, 4e6}}, {"dots", {4000, 2, 2e6}}};

static void tables(void **state)
{
    (void)state;
    static const char expected[] = "      bytes  of most  of least time     operations\n"
                                   "       1000    0.250          1.500        4000000\n"
                                   "       1500    0.375          1.250        3000000\n"
                                   "       4000    1.000          1.000        2000000\n"
                                   "\n"
                                   "      bytes  of most  of least time     operations  policy\n"
                                   "       1200    0.300          1.500        4000000  nothing\n"
                                   "       4000    1.000          1.000        2000000  dots\n";
    char text[sizeof expected + 8], cut[100];
    assert_int_equal(tow_memory_curve_text(3, points, 2, marks, text, sizeof text), sizeof expected - 1);
    assert_string_equal(text, expected);
    assert_int_equal(tow_memory_curve_text(3, points, 2, marks, NULL, 0), sizeof expected - 1);
    assert_int_equal(tow_memory_curve_text(3, points, 2, marks, cut, sizeof cut), sizeof expected - 1);
    assert_int_equal(strlen(cut), sizeof cut - 1);
    assert_memory_equal(cut, expected, sizeof cut - 1);
    assert_int_equal(tow_memory_curve_text(0, NULL, 0, NULL, text, sizeof text), 0);
}

static size_t count(const char *text, const char *part)
{
    size_t n = 0;
    for (; (text = strstr(text, part)); text++) n++;
    return n;
}

static void pictures(void **state)
{
    const fixture *f = *state;
    static unsigned char text[1 << 16];
    assert_int_equal(tow_memory_curve_draw(f->ctx, f->path, 3, points, 2, marks), TOW_OK);
    text[read_bytes(f->path, text, sizeof text - 1)] = 0;
    assert_int_equal(count((const char *)text, "<g class=\"mark\">"), 2);
    assert_int_equal(count((const char *)text, ">nothing</text>"), 1);
    assert_int_equal(count((const char *)text, ">dots</text>"), 1);
    assert_int_equal(count((const char *)text, "<circle "), 3);
    assert_int_equal(count((const char *)text, ">bytes</text>"), 1);
    assert_int_equal(tow_memory_curve_draw(f->ctx, f->path, 1, points, 0, NULL), TOW_OK);
    assert_int_equal(tow_memory_curve_draw(f->ctx, f->path, 0, NULL, 0, NULL), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_memory_curve_draw(f->ctx, "/dev/null/curve", 3, points, 0, NULL), TOW_IO_ERROR);
}

/* Every allocation may fail: an error, the old file, and nothing that is lost. */
static void pictures_without_memory(void **state)
{
    const fixture *f = *state;
    counting memory = {.fail_at = -1};
    char old[4] = "";
    for (int at = 0, failed = 1; failed; at++) {
        tow_context *ctx;
        const tow_context_options options = TOW_CONTEXT_OPTIONS(.allocator = {counting_resize, &memory}, .threads = 1);
        memory = (counting){.fail_at = -1};
        assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
        write_bytes(f->path, "old", 3);
        memory.fail_at = memory.calls + at;
        const tow_status status = tow_memory_curve_draw(ctx, f->path, 3, points, 2, marks);
        failed = status != TOW_OK;
        memory.fail_at = -1;
        if (failed) assert_int_equal(status, TOW_OUT_OF_MEMORY);
        if (failed) assert_int_equal(read_bytes(f->path, (unsigned char *)old, 4), 3);
        tow_context_free(ctx);
        assert_int_equal(memory.blocks, 0);
        assert_in_range(at, 0, 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tables, setup, teardown),
        cmocka_unit_test_setup_teardown(pictures, setup, teardown),
        cmocka_unit_test_setup_teardown(pictures_without_memory, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
