/* The page about a plan: one file that loads nothing, whole or as it was, whatever names are in it. A browser opens it
 * in tests/tool/page.py.
 * Tests page.c, page_data.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "src/plan/ir.h"
#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/directories.h"
#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

#define HOSTILE "</script><script>alert(1)</script><!--&\"'\\"

static char directory[] = "/tmp/tow_page_XXXXXX", path[64];

static int begin(void **state)
{
    if (!mkdtemp(directory)) return -1;
    snprintf(path, sizeof path, "%s/page.html", directory);
    return setup(state);
}

static int end(void **state)
{
    teardown(state);
    return remove_directory(directory);
}

static void layers(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_value x = in[0];
    for (int i = 0; i < 3; i++) {
        tow_trace_push_scope(t, user ? user : "layer");
        x = tow_checkpoint_name(tow_sin(tow_tanh(tow_dot(x, in[1]))), user ? user : "y");
        tow_trace_pop_scope(t);
    }
    out[0] = tow_reduce_sum(x, 2, (int[]){0, 1});
}

/* Every value in an array of its own. */
static tow_program *compile(tow_context *c, const char *name)
{
    const int64_t dims[] = {64, 64};
    const tow_type types[] = {tow_make_type(TOW_F32, 2, dims), tow_make_type(TOW_F32, 2, dims)};
    tow_graph *loss, *gradient;
    tow_program *p;
    OK(tow_trace_function(c, layers, (void *)(uintptr_t)name, 2, types, NULL, 1, &loss));
    OK(tow_value_and_grad(loss, 0, NULL, false, &gradient));
    OK(tow_compile(c, gradient, &TOW_COMPILE_OPTIONS(.plan_only = true, .no_regions = true), &p));
    tow_graph_release(gradient);
    tow_graph_release(loss);
    return p;
}

static char *read_page(void)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    const size_t size = (size_t)ftell(file);
    rewind(file);
    char *text = calloc(size + 1, 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, size, file), size);
    fclose(file);
    return text;
}

/* The data of the page. */
static json_t *data_of(const char *page)
{
    static const char open[] = "<script type=\"application/json\" id=\"data\">";
    const char *at = strstr(page, open);
    assert_non_null(at);
    at += sizeof open - 1;
    json_error_t error;
    json_t *data = json_loadb(at, (size_t)(strstr(at, "</script>") - at), 0, &error);
    if (!data) fail_msg("line %d: %s", error.line, error.text);
    return data;
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++) n++;
    return n;
}

/* Blocks are those of the arena; at each instruction those in use take no more than the plan says, and once as much. */
static void data_are_those_of_the_plan(void **state)
{
    (void)state;
    tow_program *p = compile(ctx, NULL);
    OK(tow_program_write_html(p, NULL, path));
    char *page = read_page();
    json_t *data = data_of(page), *plan = json_array_get(json_object_get(data, "plans"), 0), *block, *value;
    json_t *top = json_array_get(json_object_get(plan, "functions"), 0);
    assert_int_equal(json_integer_value(json_object_get(plan, "arena")), p->bytes.arena);
    assert_int_equal(json_array_size(json_object_get(top, "instructions")), p->top->n_insts);
    size_t i, k, most = 0, kept = 0, *live = calloc(p->top->n_insts, sizeof *live);
    assert_non_null(live);
    json_array_foreach(json_object_get(top, "blocks"), i, block)
    {
        const size_t bytes = (size_t)json_integer_value(json_object_get(block, "bytes"));
        assert_true((size_t)json_integer_value(json_object_get(block, "offset")) + bytes <= p->bytes.arena);
        for (json_int_t at = json_integer_value(json_object_get(block, "first"));
             at <= json_integer_value(json_object_get(block, "last")); at++)
            live[at] += tow__round_up(bytes);
        json_array_foreach(json_object_get(block, "values"), k, value)
        {
            if (!json_is_true(json_object_get(value, "kept"))) continue;
            assert_string_equal(json_string_value(json_object_get(value, "scope")), "layer");
            assert_true(json_array_size(json_object_get(value, "readers")) > 0);
            kept++;
        }
    }
    for (i = 0; i < p->top->n_insts; i++) most = live[i] > most ? live[i] : most;
    assert_int_equal(most, p->bytes.lower_bound);
    assert_true(kept >= 4); /* tanh and cos of two layers; what the last one needs may be made where it is read */
    assert_true(json_array_size(json_object_get(plan, "residuals")) >= kept);
    free(live);
    json_decref(data);
    free(page);
    tow_program_free(p);
}

/* Names end no script and begin no element; they come out as they were. */
static void names_are_text(void **state)
{
    (void)state;
    tow_program *p = compile(ctx, NULL), *hostile = compile(ctx, HOSTILE);
    OK(tow_program_write_html(p, NULL, path));
    char *page = read_page();
    const size_t tags = count(page, "<"), scripts = count(page, "<script");
    free(page);
    OK(tow_program_write_html(hostile, NULL, path));
    page = read_page();
    assert_int_equal(count(page, "<"), tags);
    assert_int_equal(count(page, "<script"), scripts);
    assert_null(strstr(page, "src="));
    assert_null(strstr(page, "href="));
    assert_null(strstr(page, "https:"));
    assert_int_equal(count(page, "http:"), 1); /* the name of SVG's elements */
    json_t *data = data_of(page), *item;
    bool found = false;
    size_t i;
    json_array_foreach(json_object_get(json_array_get(json_object_get(data, "plans"), 0), "residuals"), i, item)
        found |= strcmp(json_string_value(json_object_get(item, "what")), HOSTILE) == 0;
    assert_true(found);
    json_decref(data);
    free(page);
    tow_program_free(hostile);
    tow_program_free(p);
}

static void two_plans_are_side_by_side(void **state)
{
    (void)state;
    tow_program *p = compile(ctx, NULL), *other = compile(ctx, "other");
    OK(tow_program_write_html(p, other, path));
    char *page = read_page();
    json_t *data = data_of(page);
    assert_int_equal(json_array_size(json_object_get(data, "plans")), 2);
    json_decref(data);
    free(page);
    tow_program_free(other);
    tow_program_free(p);
}

/* A program without a gradient has no residuals, and without instructions no blocks. */
static void small_programs_have_pages(void **state)
{
    (void)state;
    static const char *const texts[] = {"{ lambda ; x:f32[8]. let y:f32[8] = sin x in (y) }",
                                        "{ lambda ; x:f32[8]. let in (x) }", "{ lambda ; . let in () }"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        tow_graph *g;
        tow_program *p;
        OK(tow_graph_parse(ctx, texts[i], &g));
        OK(tow_compile(ctx, g, NULL, &p));
        OK(tow_program_write_html(p, NULL, path));
        char *page = read_page();
        json_t *data = data_of(page);
        assert_null(json_object_get(json_array_get(json_object_get(data, "plans"), 0), "residuals"));
        json_decref(data);
        free(page);
        tow_program_free(p);
        tow_graph_release(g);
    }
}

/* A page that cannot be written leaves the one that was there, and no other file. */
static void failures_leave_the_old_page(void **state)
{
    (void)state;
    counting counter;
    const tow_context_options options = counting_options(&counter, -1);
    tow_context *c;
    assert_int_equal(tow_context_create(&options, &c), TOW_OK);
    tow_program *p = compile(c, NULL);
    assert_int_equal(tow_program_write_html(p, NULL, path), TOW_OK);
    char *before = read_page();
    const long blocks = counter.blocks;
    tow_status status = TOW_OUT_OF_MEMORY;
    for (long n = 0; status != TOW_OK; n += n < 60 ? 1 : 1 + n / 16) {
        counter.calls = 0;
        counter.fail_at = n;
        status = tow_program_write_html(p, NULL, path);
        counter.fail_at = -1;
        if ((status != TOW_OK && status != TOW_OUT_OF_MEMORY) || counter.blocks != blocks)
            fail_msg("allocation %ld: %s, %ld blocks leak", n, tow_context_error(c), counter.blocks - blocks);
        char *after = read_page();
        assert_string_equal(after, before);
        free(after);
    }
    char command[128];
    snprintf(command, sizeof command, "test \"$(ls '%s')\" = page.html", directory);
    assert_int_equal(system(command), 0);
    char nowhere[96];
    snprintf(nowhere, sizeof nowhere, "%s/nowhere/page.html", directory);
    assert_int_equal(tow_program_write_html(p, NULL, nowhere), TOW_IO_ERROR);
    assert_non_null(strstr(tow_context_error(c), "nowhere/page.html"));
    free(before);
    tow_program_free(p);
    tow_context_free(c);
    assert_int_equal(counter.blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(data_are_those_of_the_plan), cmocka_unit_test(names_are_text),
                                       cmocka_unit_test(two_plans_are_side_by_side),
                                       cmocka_unit_test(small_programs_have_pages),
                                       cmocka_unit_test(failures_leave_the_old_page)};
    return cmocka_run_group_tests_name("page", tests, begin, end);
}
