/* Pictures of memory and traces of runs: what they say agrees with the plan, SVG and JSON are well-formed whatever the
 * names in them, recording changes no result, and every allocation may fail.
 *
 * Tests draw.c, timeline.c, trace.c, run/record.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "src/plan/report/timeline.h"
#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/threaded_context.h"
#include "tow/autodiff.h"
#include "tow/ops.h"
#include "tow/program.h"

enum {
    LENGTH = 5,
    WIDTH = 48
};

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static const char odd_name[] = "a<b>&\"c\"\\d";

/* in: x, w */
static void layer(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_trace_push_scope(trace, odd_name);
    out[0] = tow_tanh(tow_dot(in[0], in[1]));
    tow_trace_pop_scope(trace);
}

static void layer_in_remat(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    tow_remat_function(trace, layer, user, NULL, 2, in, 1, out);
}

/* in: x [WIDTH, WIDTH], ws [LENGTH, WIDTH, WIDTH]; user: whether layers are in remat */
static void scan_loss(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    bool remat = *(const bool *)user;
    tow_value y;
    tow_trace_push_scope(trace, "layers");
    tow_scan_function(trace, remat ? layer_in_remat : layer, NULL, NULL, 1, in, 1, in + 1, 0, &y, NULL);
    tow_trace_pop_scope(trace);
    out[0] = tow_reduce_sum(tow_mul(y, y), 0, NULL);
}

static tow_graph *gradient_of_scan(tow_context *context, bool remat)
{
    const tow_type types[] = {tow_make_type(TOW_F32, 2, (int64_t[]){WIDTH, WIDTH}),
                              tow_make_type(TOW_F32, 3, (int64_t[]){LENGTH, WIDTH, WIDTH})};
    tow_graph *loss = NULL, *gradient = NULL;
    if (tow_trace_function(context, scan_loss, &remat, 2, types, NULL, 1, &loss) == TOW_OK)
        (void)tow_value_and_grad(loss, 2, (const size_t[]){0, 1}, false, &gradient);
    tow_graph_release(loss);
    return gradient;
}

static tow_program *compile(bool remat, int threads, tow_graph **graph)
{
    tow_program *program = NULL;
    *graph = gradient_of_scan(ctx, remat);
    assert_non_null(*graph);
    OK(tow_compile(ctx, *graph, &TOW_COMPILE_OPTIONS(.threads = threads), &program));
    return program;
}

/* The loops over layers: one forward and one backward, of which the second is divided where threads share the work. */
static uint32_t loops_of(const tow_program *p, int threads)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->top->n_insts; i++)
        n += p->top->insts[i].loop && p->top->insts[i].loop->length == LENGTH;
    if (threads == 1) assert_int_equal(n, 2);
    assert_in_range(n, 2, 3);
    return n;
}

typedef struct arrays {
    size_t n_in, n_out;
    tow_array *in[4], *out[4];
} arrays;

static arrays make_arrays(const tow_graph *graph)
{
    arrays a = {.n_in = tow_graph_input_count(graph), .n_out = tow_graph_output_count(graph)};
    uint32_t state = 1;
    for (size_t i = 0; i < a.n_in; i++) {
        OK(tow_array_create(ctx, tow_graph_input_type(graph, i), &a.in[i]));
        float *data = tow_array_data(a.in[i]);
        for (int64_t k = 0; k < tow_type_element_count(tow_array_type(a.in[i])); k++) {
            state = state * 1664525u + 1013904223u;
            data[k] = 0.4f * ((float)(state >> 8) / 16777216.0f - 0.5f);
        }
    }
    for (size_t i = 0; i < a.n_out; i++) OK(tow_array_create(ctx, tow_graph_output_type(graph, i), &a.out[i]));
    return a;
}

static void free_arrays(arrays *a)
{
    for (size_t i = 0; i < a->n_in; i++) tow_array_release(a->in[i]);
    for (size_t i = 0; i < a->n_out; i++) tow_array_release(a->out[i]);
}

/* All that was written to a temporary file, NUL-terminated; the caller frees it. */
static char *read_back(FILE *file)
{
    long size = ftell(file);
    char *text = malloc((size_t)size + 1);
    rewind(file);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)size, file), size);
    text[size] = '\0';
    fclose(file);
    return text;
}

/* ---- the timeline ------------------------------------------------------------------------------------------------ */

/* The bytes alive at the peak are the lower bound that placement works out in its own way, and residuals live at the
 * border between forward and backward. */
static void check_timeline(tow_program *p, int threads)
{
    tow__timeline t;
    OK(tow__timeline_make(p, TOW__LIVE_SHOWN, &t));
    assert_int_equal(t.total[t.peak], p->bytes.lower_bound);
    uint32_t border = 0;
    while (border < t.n && !t.places[border].backward) border++;
    assert_in_range(border, 1, t.n - 1);
    for (uint32_t i = border; i < t.n; i++) assert_true(t.places[i].backward);
    int64_t residuals = 0, begins = 0;
    for (uint32_t g = 0; g < t.n_groups; g++)
        if (t.groups[g].kind == TOW__LIVE_RESIDUAL) residuals += t.groups[g].bytes[border];
    assert_true(residuals >= (int64_t)p->bytes.residuals);
    for (uint32_t i = 0; i < t.n; i++) {
        int64_t sum = 0;
        for (uint32_t g = 0; g < t.n_groups; g++) sum += t.groups[g].bytes[i];
        assert_int_equal(sum, t.total[i]);
        begins += t.places[i].begins;
        assert_non_null(t.places[i].inst);
    }
    assert_int_equal(begins, loops_of(p, threads) * LENGTH); /* each iteration of all loops */
    tow__timeline_free(&t);
}

static void timeline_agrees_with_plan(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        tow_graph *graph;
        tow_program *p = compile(how % 2, 1 + how / 2, &graph);
        check_timeline(p, 1 + how / 2);
        tow_program_free(p);
        tow_graph_release(graph);
    }
}

/* y = x.x and z = y.x meet in step 1, y and z in step 2, which writes the caller's array: 2 * 16 KiB and the scratch of
 * a product. */
static void three_products(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    tow_value y = tow_dot(in[0], in[0]), z = tow_dot(y, in[0]);
    out[0] = tow_dot(y, z);
}

static void timeline_by_hand(void **state)
{
    (void)state;
    const tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){64, 64});
    tow_graph *graph = NULL;
    tow_program *p = NULL;
    tow__timeline t;
    OK(tow_trace_function(ctx, three_products, NULL, 1, &type, NULL, 1, &graph));
    OK(tow_compile(ctx, graph, &TOW_COMPILE_OPTIONS(.threads = 1), &p));
    OK(tow__timeline_make(p, TOW__LIVE_SHOWN, &t));
    const int64_t expected[] = {1 << 14, 1 << 15, 1 << 15};
    assert_int_equal(t.n, 3);
    for (uint32_t g = 0; g < t.n_groups; g++) assert_int_not_equal(t.groups[g].kind, TOW__LIVE_BACKWARD);
    for (uint32_t i = 0; i < t.n; i++)
        for (uint32_t g = 0; g < t.n_groups; g++)
            if (t.groups[g].kind == TOW__LIVE_FORWARD) assert_int_equal(t.groups[g].bytes[i], expected[i]);
    tow__timeline_free(&t);
    tow_program_free(p);
    tow_graph_release(graph);
}

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

static bool is_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == ':'; }

/* Skips an entity, which must be one of the five. */
static const char *skip_entity(const char *c)
{
    static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"};
    for (size_t i = 0; i < sizeof entities / sizeof *entities; i++)
        if (strncmp(c, entities[i], strlen(entities[i])) == 0) return c + strlen(entities[i]);
    fail_msg("not an entity: %.20s", c);
    return NULL;
}

/* A tag from behind '<' to behind '>'; *closed: it ends with "/>". */
static const char *skip_tag(const char *c, bool *closed)
{
    while (is_name(*c)) c++;
    while (*c == ' ') {
        const char *name = ++c;
        while (is_name(*c) || (*c >= '0' && *c <= '9')) c++;
        if (c == name || c[0] != '=' || c[1] != '"') fail_msg("malformed attribute: %.40s", name);
        for (c += 2; *c != '"';) {
            if (*c == '\0' || *c == '<') fail_msg("malformed value: %.40s", name);
            c = *c == '&' ? skip_entity(c) : c + 1;
        }
        c++;
    }
    *closed = *c == '/';
    c += *closed;
    if (*c != '>') fail_msg("malformed tag: %.40s", c);
    return c + 1;
}

/* Well-formed XML of one element, without comments and declarations. */
static void check_xml(const char *c)
{
    const char *open[16];
    int depth = 0;
    bool closed, seen = false;
    for (; *c; seen = true) {
        if (*c == '&') {
            c = skip_entity(c);
        } else if (*c != '<') {
            assert_true(*c != '>' && ((depth > 0 && (unsigned char)*c >= ' ') || *c == '\n'));
            c++;
        } else if (c[1] == '/') {
            assert_true(depth > 0);
            const char *name = open[--depth];
            size_t length = 0;
            while (is_name(name[length])) length++;
            if (strncmp(c + 2, name, length) != 0 || c[2 + length] != '>') fail_msg("%.20s closes %.20s", c, name);
            c += length + 3;
        } else {
            assert_true(depth > 0 || !seen); /* one root */
            assert_true(depth < 16);
            open[depth++] = c + 1;
            c = skip_tag(c + 1, &closed);
            depth -= closed;
        }
    }
    assert_true(seen && depth == 0);
}

static void pictures_are_well_formed(void **state)
{
    (void)state;
    for (int remat = 0; remat < 2; remat++) {
        tow_graph *graph;
        tow_program *p = compile(remat, 2, &graph);
        FILE *file = tmpfile();
        OK(tow_program_draw_memory(p, file));
        char *text = read_back(file), most[64];
        check_xml(text);
        assert_int_equal(strncmp(text, "<svg ", 5), 0);
        snprintf(most, sizeof most,
                 ">most live %.4g KiB: ", (double)(p->bytes.inputs + p->bytes.outputs + p->bytes.lower_bound) / 1024);
        assert_non_null(strstr(text, most));
        assert_non_null(strstr(text, "layers/a&lt;b&gt;&amp;&quot;c&quot;\\d"));
        free(text);
        tow_program_free(p);
        tow_graph_release(graph);
    }
}

/* in: x [WIDTH, WIDTH]: MANY scopes, each with a value of its own */
enum {
    MANY = 12
};
static void many_parts(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_value y[MANY], x = in[0];
    for (int i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof name, "part%d", i);
        tow_trace_push_scope(trace, name);
        x = y[i] = tow_dot(x, in[0]);
        tow_trace_pop_scope(trace);
    }
    out[0] = y[0];
    for (int i = 1; i < MANY; i++) out[0] = tow_add(out[0], y[i]);
}

/* Without inputs, and a part whose value is gone early. */
static void small_parts(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)in, (void)user;
    const tow_type large = tow_make_type(TOW_F32, 2, (int64_t[]){WIDTH, WIDTH});
    const tow_value key = tow_random_key(trace, 1);
    tow_trace_push_scope(trace, "early");
    tow_value x = tow_dot(tow_random_uniform(key, 1, large.dims, -1, 1), tow_random_uniform(key, 2, large.dims, -1, 1));
    tow_trace_pop_scope(trace);
    tow_trace_push_scope(trace, "late");
    x = tow_reduce_sum(x, 0, NULL);
    const tow_value full = tow_mul(tow_random_uniform(key, 2, large.dims, -1, 1), x);
    out[0] = tow_reduce_sum(tow_dot(full, full), 0, NULL);
    tow_trace_pop_scope(trace);
}

static char *picture_of(tow_function function, size_t n_inputs)
{
    const tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){WIDTH, WIDTH});
    tow_graph *graph = NULL;
    tow_program *p = NULL;
    FILE *file = tmpfile();
    OK(tow_trace_function(ctx, function, NULL, n_inputs, &type, NULL, 1, &graph));
    OK(tow_compile(ctx, graph, &TOW_COMPILE_OPTIONS(.threads = 1), &p));
    OK(tow_program_draw_memory(p, file));
    tow_program_free(p);
    tow_graph_release(graph);
    char *text = read_back(file);
    check_xml(text);
    return text;
}

/* Lines of the legend: a square of 14 and a text behind it. Their colors differ, none says 0, and they are inside of
 * the picture. Returns how many there are. */
static int check_legend(const char *text)
{
    static const char square[] = "width=\"14\" height=\"14\" fill=\"#";
    char colors[64][8];
    int n = 0, width, height;
    assert_int_equal(sscanf(strstr(text, " width=\""), " width=\"%d\" height=\"%d\"", &width, &height), 2);
    for (const char *c = text; (c = strstr(c, square)) != NULL; n++) {
        double x, y;
        c += sizeof square - 1;
        assert_in_range(n, 0, 63);
        memcpy(colors[n], c, 6);
        for (int i = 0; i < n; i++) assert_memory_not_equal(colors[i], colors[n], 6);
        const char *line = strstr(c, "<text"), *letters = strchr(line, '>') + 1, *end = strchr(letters, '<');
        assert_int_equal(sscanf(line, "<text x=\"%lf\" y=\"%lf\"", &x, &y), 2);
        assert_true(y < height && x + 6.5 * (double)(end - letters) < width);
        for (const char *zero = letters; (zero = strstr(zero, " 0 ")) != NULL && zero < end; zero++)
            fail_msg("nothing: %.*s", (int)(end - letters), letters);
    }
    return n;
}

static void legends_tell_lines_apart(void **state)
{
    (void)state;
    char *many = picture_of(many_parts, 1), *small = picture_of(small_parts, 0);
    assert_true(check_legend(many) >
                MANY); /* the last part's value is the output; inputs and outputs have a line each */
    assert_non_null(strstr(many, ">forward: part10, "));
    assert_true(check_legend(small) > 0);
    assert_null(strstr(small, ">inputs, held by the caller"));
    assert_non_null(strstr(small, ">outputs, held by the caller: "));
    assert_non_null(strstr(small, ", not at the mark"));
    free(many);
    free(small);
}

static void unwritable_files_are_errors(void **state)
{
    (void)state;
    tow_graph *graph;
    tow_program *p = compile(false, 2, &graph);
    arrays a = make_arrays(graph);
    OK(tow_program_record(p, true));
    OK(tow_program_run(p, a.in, a.out));
    FILE *file = fopen("/dev/full", "w");
    if (file == NULL) skip();
    setvbuf(file, NULL, _IONBF, 0);
    assert_int_equal(tow_program_draw_memory(p, file), TOW_IO_ERROR);
    clearerr(file);
    assert_int_equal(tow_program_write_trace(p, file), TOW_IO_ERROR);
    fclose(file);
    free_arrays(&a);
    tow_program_free(p);
    tow_graph_release(graph);
}

/* ---- traces ------------------------------------------------------------------------------------------------------ */

static double number(const json_t *event, const char *key) { return json_number_value(json_object_get(event, key)); }

static const char *argument(const json_t *event, const char *key)
{
    return json_string_value(json_object_get(json_object_get(event, "args"), key));
}

/* Steps that one run makes, loops counted by their length, the blocks of a region as one. */
static uint64_t count_runs(const tow__body *plan)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < plan->n_insts; i++) {
        const tow__loop *loop = plan->insts[i].loop;
        n += !loop || !tow__is_parallel(loop->schedule);
        if (loop) n += (tow__is_parallel(loop->schedule) ? 1 : (uint64_t)loop->length) * count_runs(loop->body);
    }
    return n;
}

/* Every instruction of the run is there once, inside the run, in order, with its arguments. */
static void check_trace(const tow_program *p, const char *text)
{
    json_error_t error;
    json_t *trace = json_loads(text, 0, &error);
    if (trace == NULL) fail_msg("line %d: %s", error.line, error.text);
    const json_t *events = json_object_get(trace, "traceEvents");
    uint64_t instructions = 0, loops = 0, odd = 0, backward = 0;
    assert_int_equal(json_integer_value(json_object_get(json_object_get(trace, "otherData"), "dropped")), 0);
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        if (strcmp(json_string_value(json_object_get(event, "ph")), "M") == 0) continue;
        assert_true(number(event, "ts") >= 0 && number(event, "dur") >= 0 &&
                    number(event, "tid") < p->team.threads + 1);
        assert_non_null(argument(event, "result"));
        const char *engine = argument(event, "engine");
        bool loop = strcmp(engine, "loop") == 0;
        loops += loop;
        instructions += strcmp(engine, "tiles") != 0 && number(json_object_get(event, "args"), "block") == 0;
        odd += argument(event, "scope") && strstr(argument(event, "scope"), odd_name) != NULL;
        backward += strcmp(argument(event, "phase"), "backward") == 0;
        if (loop) assert_int_equal(number(json_object_get(event, "args"), "iterations"), LENGTH);
        if (!loop) assert_true(number(json_object_get(event, "args"), "bytes") > 0);
    }
    assert_int_equal(instructions, count_runs(p->top));
    assert_int_equal(loops, loops_of(p, 2));
    assert_true(odd >= 4 * LENGTH); /* a product and a tanh forward, two products backward */
    assert_true(backward > 2 * LENGTH);
    json_decref(trace);
}

static void traces_tell_every_instruction(void **state)
{
    (void)state;
    for (int remat = 0; remat < 2; remat++) {
        tow_graph *graph;
        tow_program *p = compile(remat, 2, &graph);
        arrays plain = make_arrays(graph), traced = make_arrays(graph);
        OK(tow_program_run(p, plain.in, plain.out));
        FILE *file = tmpfile();
        assert_int_equal(tow_program_write_trace(p, file), TOW_INVALID_ARGUMENT);
        OK(tow_program_record(p, true));
        assert_int_equal(tow_program_write_trace(p, file), TOW_INVALID_ARGUMENT);
        for (int i = 0; i < 2; i++) OK(tow_program_run(p, traced.in, traced.out)); /* the last one counts */
        OK(tow_program_write_trace(p, file));
        char *text = read_back(file);
        check_trace(p, text);
        for (size_t i = 0; i < plain.n_out; i++)
            assert_memory_equal(tow_array_data(plain.out[i]), tow_array_data(traced.out[i]),
                                tow_type_bytes(tow_array_type(plain.out[i])));
        OK(tow_program_record(p, false));
        assert_int_equal(tow_program_write_trace(p, stderr), TOW_INVALID_ARGUMENT);
        free(text);
        free_arrays(&plain);
        free_arrays(&traced);
        tow_program_free(p);
        tow_graph_release(graph);
    }
}

/* ---- flops ------------------------------------------------------------------------------------------------------- */

enum {
    BATCH = 2,
    QUERIES = 7,
    HEADS = 4,
    GROUPS = 2,
    FEATURES = 3,
    VALUES = 5,
    ROWS = 6,
    INNER = 8,
    CLASSES = 1500
};

/* in: q, k, v, x, w, labels; user: whether attention is causal */
static void two_losses(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace;
    const tow_attention_options options = TOW_ATTENTION_OPTIONS(.causal = *(const bool *)user);
    out[0] = tow_add(tow_reduce_sum(tow_attention(in[0], in[1], in[2], &options), 0, NULL),
                     tow_reduce_sum(tow_linear_cross_entropy(in[3], in[4], true, in[5]), 0, NULL));
}

/* Flops of all instructions whose names begin like this. */
static double flops_of(const json_t *events, const char *name)
{
    double flops = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        if (strncmp(json_string_value(json_object_get(event, "name")), name, strlen(name)) == 0)
            flops += number(json_object_get(event, "args"), "flops");
    }
    return flops;
}

/* Two for each multiply-add: of every pair of a query and a key that it sees, one by one. */
static double attention_flops(bool causal, int keys, int features, int values)
{
    double flops = 0;
    for (int i = 0; i < BATCH * HEADS * QUERIES; i++)
        for (int j = 0; j < keys; j++)
            if (!causal || j <= i % QUERIES + keys - QUERIES) flops += 2 * (features * FEATURES + values * VALUES);
    return flops;
}

static void check_flops(bool causal, int keys, size_t n, const size_t *wrt, double expected_attention,
                        double expected_loss)
{
    const tow_type types[] = {tow_make_type(TOW_F32, 4, (int64_t[]){BATCH, QUERIES, HEADS, FEATURES}),
                              tow_make_type(TOW_F32, 4, (int64_t[]){BATCH, keys, GROUPS, FEATURES}),
                              tow_make_type(TOW_F32, 4, (int64_t[]){BATCH, keys, GROUPS, VALUES}),
                              tow_make_type(TOW_F32, 2, (int64_t[]){ROWS, INNER}),
                              tow_make_type(TOW_F32, 2, (int64_t[]){CLASSES, INNER}),
                              tow_make_type(TOW_I32, 1, (int64_t[]){ROWS})};
    tow_graph *loss = NULL, *gradient = NULL;
    tow_program *p = NULL;
    tow_array *in[6], *out[6];
    OK(tow_trace_function(ctx, two_losses, &causal, 6, types, NULL, 1, &loss));
    OK(tow_value_and_grad(loss, n, wrt, false, &gradient));
    OK(tow_compile(ctx, gradient, NULL, &p));
    for (size_t i = 0; i < 6; i++) {
        OK(tow_array_create(ctx, types[i], &in[i]));
        memset(tow_array_data(in[i]), 0, tow_type_bytes(types[i]));
    }
    for (size_t i = 0; i <= n; i++) OK(tow_array_create(ctx, tow_graph_output_type(gradient, i), &out[i]));
    OK(tow_program_record(p, true));
    OK(tow_program_run(p, in, out));
    FILE *file = tmpfile();
    OK(tow_program_write_trace(p, file));
    char *text = read_back(file);
    json_t *trace = json_loads(text, 0, NULL);
    const json_t *events = json_object_get(trace, "traceEvents");
    assert_true(flops_of(events, "attention") == expected_attention);
    assert_true(flops_of(events, "linear_cross_entropy") == expected_loss);
    json_decref(trace);
    free(text);
    for (size_t i = 0; i < 6; i++) tow_array_release(in[i]);
    for (size_t i = 0; i <= n; i++) tow_array_release(out[i]);
    tow_program_free(p);
    tow_graph_release(gradient);
    tow_graph_release(loss);
}

/* Forward: logits (features), their sums (values). Backward: both again, and a product for each gradient. */
static void products_inside_instructions_count(void **state)
{
    (void)state;
    const double logits = 2.0 * ROWS * INNER * CLASSES;
    for (int k = 0; k < 4; k++) {
        const bool causal = k % 2;
        const int keys = k / 2 ? QUERIES + 2 : QUERIES - 3; /* the first queries see none */
        check_flops(causal, keys, 5, (const size_t[]){0, 1, 2, 3, 4}, attention_flops(causal, keys, 4, 3), 3 * logits);
        check_flops(causal, keys, 2, (const size_t[]){2, 3}, attention_flops(causal, keys, 2, 3), 2 * logits);
        check_flops(causal, keys, 1, (const size_t[]){1}, attention_flops(causal, keys, 3, 2), logits);
    }
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* Products read weights as the own kernel wants them, here of as many elements in whole panels, and not as they were
 * given. */
static void packed_weights_are_read_once(void **state)
{
    (void)state;
    enum {
        SEQUENCES = 16,
        TOKENS = 256,
        IN = 256,
        OUT = 160
    };
    const tow_type types[] = {tow_make_type(TOW_F32, 3, (int64_t[]){SEQUENCES, TOKENS, IN}),
                              tow_make_type(TOW_F32, 2, (int64_t[]){OUT, IN})};
    const char *products =
        "{ lambda ; x:f32[16,256,256]\"x\" w:f32[160,256]\"w\". let\n"
        "    h:f32[16,256,160] = dot_general[lhs_contract=(2) rhs_contract=(1) lhs_batch=() rhs_batch=()] x w\n"
        "    t:f32[16,256,160] = tanh h\n"
        "    o:f32[16,256,256] = dot_general[lhs_contract=(2) rhs_contract=(0) lhs_batch=() rhs_batch=()] t w\n"
        "  in (o) }";
    tow_context *own = NULL;
    tow_graph *graph = NULL;
    tow_program *p = NULL;
    tow_array *in[2], *out;
    assert_int_equal(tow_context_create(&TOW_CONTEXT_OPTIONS(.engine = "own", .threads = 1), &own), TOW_OK);
    assert_int_equal(tow_graph_parse(own, products, &graph), TOW_OK);
    assert_int_equal(tow_compile(own, graph, NULL, &p), TOW_OK);
    assert_int_equal(tow_program_operation_count(p, "pack_operand"), 2);
    for (size_t i = 0; i < 2; i++) assert_int_equal(tow_array_create(own, types[i], &in[i]), TOW_OK);
    assert_int_equal(tow_array_create(own, types[0], &out), TOW_OK);
    assert_int_equal(tow_program_record(p, true), TOW_OK);
    assert_int_equal(tow_program_run(p, in, &out), TOW_OK);
    FILE *file = tmpfile();
    assert_int_equal(tow_program_write_trace(p, file), TOW_OK);
    char *text = read_back(file);
    json_t *trace = json_loads(text, 0, NULL);
    const json_t *events = json_object_get(trace, "traceEvents");
    double bytes = 0, calls = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        if (!argument(event, "result") || json_object_get(json_object_get(event, "args"), "block") == NULL) continue;
        bytes += number(json_object_get(event, "args"), "bytes");
        calls++;
    }
    assert_true(calls > 2); /* two for each block */
    assert_true(bytes == 4 * (2 * SEQUENCES * TOKENS * (IN + OUT) + calls * OUT * IN));
    json_decref(trace);
    free(text);
    for (size_t i = 0; i < 2; i++) tow_array_release(in[i]);
    tow_array_release(out);
    tow_program_free(p);
    tow_graph_release(graph);
    tow_context_free(own);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Draws and switches recording on with the allocation number `at` refused; false once none is left to refuse. */
static bool refuse(long at)
{
    counting c;
    tow_context_options options = counting_options(&c, -1);
    tow_context *own = NULL;
    tow_program *p = NULL;
    assert_int_equal(tow_context_create(&options, &own), TOW_OK);
    tow_graph *graph = gradient_of_scan(own, true);
    assert_non_null(graph);
    assert_int_equal(tow_compile(own, graph, NULL, &p), TOW_OK);
    long blocks = c.blocks;
    c.calls = 0;
    c.fail_at = at;
    FILE *file = tmpfile();
    tow_status drawn = tow_program_draw_memory(p, file);
    fclose(file);
    assert_int_equal(c.blocks, blocks);
    tow_status recorded = drawn == TOW_OK ? tow_program_record(p, true) : drawn;
    if (recorded != TOW_OK) {
        assert_int_equal(recorded, TOW_OUT_OF_MEMORY);
        assert_int_equal(c.blocks, blocks);
    }
    tow_program_free(p);
    tow_graph_release(graph);
    tow_context_free(own);
    assert_int_equal(c.blocks, 0);
    assert_int_equal(c.wrong_sizes, 0);
    return recorded != TOW_OK;
}

static void allocations_may_fail(void **state)
{
    (void)state;
    long at = 0;
    while (refuse(at)) at++;
    assert_true(at > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timeline_agrees_with_plan),
        cmocka_unit_test(timeline_by_hand),
        cmocka_unit_test(pictures_are_well_formed),
        cmocka_unit_test(legends_tell_lines_apart),
        cmocka_unit_test(unwritable_files_are_errors),
        cmocka_unit_test(traces_tell_every_instruction),
        cmocka_unit_test(products_inside_instructions_count),
        cmocka_unit_test(packed_weights_are_read_once),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
