/* plan --curve: the plans among which a memory limit chooses, and beside them those of the policies of JAX. */
#include <stdlib.h>
#include <string.h>

#include "src/graph/builder.h"
#include "src/graph/policy.h"
#include "src/graph/region.h"
#include "src/tool/tool.h"

enum {
    MOST_MARKS = 6
};

#define NOT_SLOWER 1.0005 /* as a ratio, to the digits of the table */

typedef struct curve {
    tow_memory_point *points;
    size_t n;
    tow_memory_mark marks[MOST_MARKS];
    size_t n_marks;
    char *names; /* "names:a,b" with all names of the graph; NULL: it has none */
} curve;

/* ---- limits ------------------------------------------------------------------------------------------------------ */

/* *point: of the plan without a limit. */
static tow_status plan_without_limit(tool *t, const tow_graph *graph, const tow_compile_options *options,
                                     tow_memory_point *point)
{
    tow_compile_options own = *options;
    tow_program *program = NULL;
    own.plan_only = true;
    own.verify = false;
    own.memory_limit = 0;
    own.after_pass = NULL;
    tow_status status = tow_compile(t->context, graph, &own, &program);
    if (status == TOW_OK) *point = tow_program_memory_point(program);
    tow_program_free(program);
    return status;
}

tow_status tool_limit_of(tool *t, const tow_graph *graph, const tow_compile_options *options, tool_limit limit,
                         size_t *bytes)
{
    tow_memory_point point;
    *bytes = limit.bytes;
    if (!(limit.percent > 0)) return TOW_OK;
    tow_status status = plan_without_limit(t, graph, options, &point);
    const double part = limit.percent / 100 * (double)point.bytes;
    if (status == TOW_OK) *bytes = part < 1 ? 1 : part < 9e18 ? (size_t)part : SIZE_MAX;
    return status;
}

/* ---- policies ---------------------------------------------------------------------------------------------------- */

/* A loop whose body is a region of the policy. */
static void record_loop(tow_trace *t, const tow__equation *e, const tow__region_form *form, const tow_policy *policy,
                        const tow_value *x, tow_value *y)
{
    void *params;
    tow_graph *body;
    if (!tow__params_own(t, e->primitive, e->params, &params)) return;
    for (uint32_t i = 0; i < tow__nested_count(e->primitive, e->params); i++)
        tow_graph_retain(tow__nested(e->primitive, params, i));
    const tow_status status = tow_remat_whole(form->body, policy, &body);
    tow_graph_release(tow__nested(e->primitive, params, form->conditions));
    tow__set_nested(e->primitive, params, form->conditions, body);
    if (status == TOW_OK)
        tow__bind(t, e->primitive, params, e->n_in, x, e->n_out, y);
    else
        tow__adopt_error(t);
    tow__release_owned(e->primitive, params);
}

static void record(tow_trace *t, const tow_graph *g, const tow__equation *e, tow_value *x, tow_value *y,
                   const void *user)
{
    tow__region_form form;
    (void)g;
    tow__set_source(t, &e->source);
    if (tow__region_of(e, &form) && form.repeats)
        record_loop(t, e, &form, user, x, y);
    else
        tow__rebind(t, e, x, y);
    tow__set_source(t, NULL);
}

/* Regions of the policy where one writes them first: around each iteration of the loops; without loops, around all. */
static tow_status add_regions(const tow_graph *graph, const tow_policy *policy, tow_graph **result)
{
    bool loops = false;
    tow__region_form form;
    for (uint32_t i = 0; i < graph->n_equations; i++)
        loops |= tow__region_of(&graph->equations[i], &form) && form.repeats;
    return loops ? tow__copy_by(graph, record, policy, result) : tow_remat_whole(graph, policy, result);
}

/* The plan of the gradient with regions of the policy, without a limit. */
static tow_status mark_policy(tool *t, const tow_graph *plain, const char *text, const tow_compile_options *options,
                              curve *c)
{
    tow_policy *policy = NULL;
    tow_graph *gradient = NULL;
    tow_memory_point point;
    tool wrapped = *t;
    wrapped.graph = NULL;
    wrapped.message[0] = '\0';
    tow_status status = tow_policy_parse(t->context, text, &policy);
    if (status == TOW_OK) status = add_regions(plain, policy, &wrapped.graph);
    if (status == TOW_OK) status = tool_differentiate(&wrapped, true, &gradient);
    if (status == TOW_OK) status = plan_without_limit(t, gradient, options, &point);
    if (status == TOW_OK) c->marks[c->n_marks++] = (tow_memory_mark){text, point};
    tow_graph_release(gradient);
    tow_graph_release(wrapped.graph);
    tow_policy_free(policy);
    return status;
}

/* "names:a,b"; names that the textual form would quote are left out. */
static tow_status find_names(tool *t, const tow_graph *graph, char **text)
{
    static const char begin[] = "names:";
    tow__names names;
    tow_status status = TOW_OK;
    size_t size = sizeof begin, n = 0;
    tow__names_init(&names, t->context);
    if (!tow__collect_names(&names, graph)) status = TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < names.count; i++) size += strlen(names.names[i]) + 1;
    if (status == TOW_OK && names.count > 0 && !(*text = malloc(size)))
        status = tool_fail(t, TOW_OUT_OF_MEMORY, "out of memory");
    if (*text) strcpy(*text, begin);
    for (size_t i = 0; *text && i < names.count; i++) {
        if (!tow__policy_name_is_word(names.names[i])) continue;
        if (n++ > 0) strcat(*text, ",");
        strcat(*text, names.names[i]);
    }
    if (n == 0) {
        free(*text);
        *text = NULL;
    }
    tow__names_free(&names);
    return status;
}

/* The plan without a limit, and those of the policies. gradient: of the graph under --policy. */
static tow_status mark_policies(tool *t, const tow_graph *gradient, const tow_compile_options *options, curve *c)
{
    static const char *const policies[] = {"everything", "nothing", "dots", "dots_with_no_batch_dims"};
    const tow_graph *plain = t->written ? t->written : t->graph;
    tow_memory_point point;
    tow_status status = find_names(t, plain, &c->names);
    if (status == TOW_OK) status = plan_without_limit(t, gradient, options, &point);
    if (status == TOW_OK) c->marks[c->n_marks++] = (tow_memory_mark){"no limit", point};
    for (size_t i = 0; i < sizeof policies / sizeof *policies && status == TOW_OK; i++)
        status = mark_policy(t, plain, policies[i], options, c);
    if (status == TOW_OK && c->names) status = mark_policy(t, plain, c->names, options, c);
    return status;
}

/* ---- showing ----------------------------------------------------------------------------------------------------- */

static json_t *json_point(const tow_memory_point *p, const char *name)
{
    json_t *item =
        json_pack("{s:I, s:f, s:f}", "bytes", (json_int_t)p->bytes, "seconds", p->seconds, "operations", p->flops);
    if (item && name && json_object_set_new(item, "policy", tool_json_text(name)) != 0) {
        json_decref(item);
        return NULL;
    }
    return item;
}

/* {"plans": [...], "policies": [...]}; NULL: out of memory. */
static json_t *json_curve(const curve *c)
{
    json_t *plans = json_array(), *policies = json_array();
    bool fine = plans && policies;
    for (size_t i = 0; i < c->n && fine; i++) fine = json_array_append_new(plans, json_point(&c->points[i], NULL)) == 0;
    for (size_t i = 0; i < c->n_marks && fine; i++)
        fine = json_array_append_new(policies, json_point(&c->marks[i].point, c->marks[i].name)) == 0;
    if (fine) return json_pack("{s:o, s:o}", "plans", plans, "policies", policies);
    json_decref(plans);
    json_decref(policies);
    return NULL;
}

static tow_status print_table(tool *t, const curve *c)
{
    const size_t size = tow_memory_curve_text(c->n, c->points, c->n_marks, c->marks, NULL, 0) + 1;
    char *text = malloc(size);
    if (!text) return tool_fail(t, TOW_OUT_OF_MEMORY, "out of memory");
    tow_memory_curve_text(c->n, c->points, c->n_marks, c->marks, text, size);
    fputs(text, stdout);
    free(text);
    if (c->n_marks > 0 && c->marks[0].point.seconds > NOT_SLOWER * c->points[c->n - 1].seconds)
        puts("\nno limit: the plan of the graph as it is written, without a search; a limit of as many bytes finds a "
             "faster one");
    return TOW_OK;
}

tow_status tool_show_curve(tool *t, const tow_graph *graph, const tow_compile_options *options)
{
    curve c = {0};
    tow_status status = tow_memory_curve(t->context, graph, options, 0, NULL, &c.n);
    if (status == TOW_OK && !(c.points = calloc(c.n, sizeof *c.points)))
        status = tool_fail(t, TOW_OUT_OF_MEMORY, "out of memory");
    if (status == TOW_OK) status = tow_memory_curve(t->context, graph, options, c.n, c.points, &c.n);
    if (status == TOW_OK && t->options.grad) status = mark_policies(t, graph, options, &c);
    if (status == TOW_OK && t->options.curve_file)
        status = tow_memory_curve_draw(t->context, t->options.curve_file, c.n, c.points, c.n_marks, c.marks);
    if (status == TOW_OK) status = t->options.json ? tool_show_json(t, json_curve(&c)) : print_table(t, &c);
    free(c.points);
    free(c.names);
    return status;
}
