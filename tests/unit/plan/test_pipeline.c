/* The list of passes: each that may be left out gives the same bits when it is, for all graphs of tests/graphs and
 * their gradients; names that are none are refused; dumps come after every pass. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/unit/support/graph_runs.h"
#include "tow/autodiff.h"

static size_t pass_count(void)
{
    size_t n = 0;
    while (tow_pass_name(n)) n++;
    return n;
}

static bool bits_are_equal(problem *p, char **x, char **y)
{
    bool same = true;
    for (size_t i = 0; i < tow_graph_output_count(p->graph); i++) {
        same = same && memcmp(x[i], y[i], bytes_of(p->outputs[i])) == 0;
        free(y[i]);
    }
    return same;
}

/* Runs the problem's graph with every pass left out, one at a time. */
static void leave_each_out(problem *p, const char *name, size_t limit)
{
    char *all[MOST_ARRAYS], *without[MOST_ARRAYS];
    tow_program *program = compile(p, TOW_COMPILE_OPTIONS(.threads = 2, .memory_limit = limit));
    run_to(p, program, all);
    tow_program_free(program);
    for (size_t i = 0; tow_pass_name(i); i++) {
        const char *const names[] = {tow_pass_name(i), NULL};
        if (tow_pass_required(i)) continue;
        program = compile(p, TOW_COMPILE_OPTIONS(.threads = 2, .memory_limit = limit, .without = names));
        run_to(p, program, without);
        tow_program_free(program);
        if (!bits_are_equal(p, all, without)) fail_msg("%s: other bits without pass %s", name, names[0]);
    }
    for (size_t i = 0; i < tow_graph_output_count(p->graph); i++) free(all[i]);
}

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

/* Graphs with more arrays than the problem holds are left to other tests. */
static bool is_small(const tow_graph *g)
{
    return tow_graph_input_count(g) <= MOST_ARRAYS && tow_graph_output_count(g) <= MOST_ARRAYS;
}

static size_t try_file(const char *path, bool gradient)
{
    problem p;
    tow_graph *graph = NULL, *value_and_gradient = NULL;
    size_t tried = 0;
    char *text = read_text(path);
    start_context(&p);
    tow_status status = tow_graph_parse(p.ctx, text, &graph);
    if (status == TOW_OK && gradient) status = tow_grad(graph, 0, NULL, true, &value_and_gradient);
    if (gradient) tow_graph_release(graph);
    tow_graph *chosen = gradient ? value_and_gradient : graph;
    if (status == TOW_OK && is_small(chosen)) {
        set_graph(&p, chosen, 2);
        leave_each_out(&p, path, 0);
        leave_each_out(&p, path, (size_t)1 << 40);
        tried = 1;
    } else if (status == TOW_OK) {
        tow_graph_release(chosen);
    }
    free(text);
    end(&p);
    return tried;
}

static void each_pass_left_out(void **state)
{
    (void)state;
    size_t graphs = 0, gradients = 0;
    DIR *directory = opendir(TOW_TEST_DATA "/graphs");
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        char path[512];
        const char *dot = strrchr(entry->d_name, '.');
        if (!dot || strcmp(dot, ".tow") != 0) continue;
        snprintf(path, sizeof path, "%s/graphs/%s", TOW_TEST_DATA, entry->d_name);
        graphs += try_file(path, false);
        gradients += try_file(path, true);
    }
    closedir(directory);
    assert_true(graphs >= 30 && gradients >= 20);
}

static const char network[] = "{ lambda ; x:f32[8,16] w:f32[16,16]. let\n"
                              "    y:f32[8,16] = dot_general[lhs_contract=(1) rhs_contract=(0)] x w\n"
                              "    z:f32[8,16] = tanh y\n"
                              "    r:f32[] = reduce_sum[axes=(0,1)] z\n"
                              "  in (r) }\n";

typedef struct dumps {
    size_t calls, texts;
    char last[64];
    bool in_order;
} dumps;

static size_t index_of(const char *pass)
{
    size_t i = 0;
    while (tow_pass_name(i) && strcmp(tow_pass_name(i), pass) != 0) i++;
    return i;
}

static void note(const char *pass, const char *function, const char *text, void *user)
{
    dumps *d = user;
    assert_true(index_of(pass) < pass_count());
    assert_true(strlen(function) > 0);
    d->calls++;
    d->texts += strlen(text) > 0;
    snprintf(d->last, sizeof d->last, "%s", pass);
}

static void dumps_follow_passes(void **state)
{
    (void)state;
    problem p;
    tow_graph *graph = NULL;
    dumps d = {0};
    start_context(&p);
    OK(&p, tow_graph_parse(p.ctx, network, &graph));
    set_graph(&p, graph, 2);
    tow_program_free(compile(&p, TOW_COMPILE_OPTIONS(.after_pass = note, .after_pass_user = &d)));
    size_t alone = 0;
    for (size_t i = 0; tow_pass_name(i); i++) alone += tow_pass_within(i) == NULL;
    assert_int_equal(d.calls, alone); /* one function, so each pass that runs by itself is seen once */
    assert_int_equal(d.texts, alone);
    assert_string_equal(d.last, tow_pass_name(pass_count() - 1));
    end(&p);
}

static void refuse(problem *p, const char *name, const char *expected)
{
    const char *const names[] = {name, NULL};
    tow_program *program = NULL;
    assert_int_equal(tow_compile(p->ctx, p->graph, &TOW_COMPILE_OPTIONS(.without = names), &program),
                     TOW_INVALID_ARGUMENT);
    assert_null(program);
    assert_non_null(strstr(tow_context_error(p->ctx), expected));
    tow_context_clear_error(p->ctx);
}

static void wrong_names_are_refused(void **state)
{
    (void)state;
    problem p;
    tow_graph *graph = NULL;
    start_context(&p);
    OK(&p, tow_graph_parse(p.ctx, network, &graph));
    set_graph(&p, graph, 2);
    refuse(&p, "fusion", "found \"fusion\"");
    refuse(&p, "", "found \"\"");
    refuse(&p, "lower", "tow_pass_required is false for, found \"lower\"");
    end(&p);
}

static void every_pass_has_its_words(void **state)
{
    (void)state;
    assert_true(pass_count() > 15);
    for (size_t i = 0; tow_pass_name(i); i++) {
        const char *reason = tow_pass_reason(i), *within = tow_pass_within(i);
        assert_true(reason && strlen(reason) > 20 && reason[strlen(reason) - 1] == '.');
        assert_int_equal(index_of(tow_pass_name(i)), i); /* no name twice */
        if (within) assert_true(index_of(within) < pass_count() && !tow_pass_within(index_of(within)));
    }
    assert_null(tow_pass_reason(pass_count()));
    assert_null(tow_pass_within(pass_count()));
    assert_false(tow_pass_required(pass_count()));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_pass_left_out),
        cmocka_unit_test(dumps_follow_passes),
        cmocka_unit_test(wrong_names_are_refused),
        cmocka_unit_test(every_pass_has_its_words),
    };
    return cmocka_run_group_tests_name("pipeline", tests, NULL, NULL);
}
