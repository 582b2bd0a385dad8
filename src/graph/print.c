/* The printer of the textual form (docs/textual-form.md). Every property of the graph that the reader needs is written;
 * sources are not. Values are named in the order in which they are printed, so that printing what was read gives the
 * same text. */
#include <inttypes.h>
#include <stdio.h>

#include "src/base/arithmetic.h"
#include "src/graph/text.h"

/* ---- parameters ------------------------------------------------------------------------------------------------ */

static void add_ints(tow__string *s, const tow__ints *ints)
{
    tow__string_add(s, "(");
    for (int32_t i = 0; i < ints->n; i++) tow__string_add(s, i > 0 ? ",%" PRId64 : "%" PRId64, ints->v[i]);
    tow__string_add(s, ")");
}

/* 2.0 where the equation's result says that it is a scalar of this dtype; else f32[2](1.0 2.0). */
TOW__OWN_FRAME static void add_array(tow__string *s, const tow_array *array, const tow_type *result)
{
    tow_type type = tow_array_type(array);
    const char *data = tow_array_data(array);
    size_t size = tow_dtype_size(type.dtype);
    bool bare = result && type.rank == 0 && tow_type_equal(type, *result);
    char text[TOW__SCALAR_BYTES];
    if (!bare) {
        tow__string_add_type(s, type);
        tow__string_add(s, "(");
    }
    for (int64_t i = 0, n = tow_type_element_count(type); i < n && !s->failed; i++) {
        tow__scalar_write(type.dtype, data + (size_t)i * size, text);
        tow__string_add(s, i > 0 ? " %s" : "%s", text);
    }
    if (!bare) tow__string_add(s, ")");
}

static void add_policy(tow__string *s, const tow_policy *policy)
{
    char small[256];
    size_t length = tow_policy_text(policy, small, sizeof small);
    if (length < sizeof small) {
        tow__string_add_quoted(s, small);
        return;
    }
    char *text = tow__alloc(s->ctx, length + 1, 1);
    if (!text) {
        s->failed = true;
        return;
    }
    tow_policy_text(policy, text, length + 1);
    tow__string_add_quoted(s, text);
    tow__free(s->ctx, text, length + 1, 1);
}

/* Each on a line of its own. */
static void add_graphs(tow__string *s, const tow__graphs *list, int indent)
{
    tow__string_add(s, "(");
    for (uint32_t i = 0; i < list->n; i++) {
        tow__string_add(s, "\n%*s", indent + 2, "");
        tow__graph_write(s, list->v[i], indent + 2);
    }
    tow__string_add(s, ")");
}

static void add_types(tow__string *s, const tow__types *list)
{
    tow__string_add(s, "(");
    for (uint32_t i = 0; i < list->n; i++) {
        if (i > 0) tow__string_add(s, ",");
        tow__string_add_type(s, list->v[i]);
    }
    tow__string_add(s, ")");
}

static bool is_nested(const tow__param *p) { return p->kind == TOW__P_GRAPH || p->kind == TOW__P_GRAPHS; }

static void add_param(tow__string *s, const tow__param *p, const void *params, const tow_type *result, int indent)
{
    const void *field = (const char *)params + p->offset, *pointer = NULL;
    char text[TOW__SCALAR_BYTES];
    if (p->kind >= TOW__P_STRING && p->kind != TOW__P_GRAPHS) memcpy(&pointer, field, sizeof pointer);
    tow__string_add(s, "%s=", p->name);
    switch (p->kind) {
    case TOW__P_PLAN: /* not printed */
    case TOW__P_OF_HALVES:
        break;
    case TOW__P_INT:
    case TOW__P_COUNT:
        tow__string_add(s, "%" PRId64, *(const int64_t *)field);
        break;
    case TOW__P_FLOAT:
    case TOW__P_AMOUNT:
        tow__scalar_write(TOW_F64, field, text);
        tow__string_add(s, "%s", text);
        break;
    case TOW__P_BOOL:
        tow__string_add(s, *(const bool *)field ? "true" : "false");
        break;
    case TOW__P_SUM_DTYPE:
        tow__string_add(s, "%s", tow_dtype_name((tow_dtype)(*(const int64_t *)field - 1)));
        break;
    case TOW__P_DTYPE:
        tow__string_add(s, "%s", tow_dtype_name(*(const tow_dtype *)field));
        break;
    case TOW__P_INTS:
        add_ints(s, field);
        break;
    case TOW__P_TYPES:
        add_types(s, field);
        break;
    case TOW__P_STRING:
        if (pointer)
            tow__string_add_quoted(s, pointer);
        else
            tow__string_add(s, "none");
        break;
    case TOW__P_GRAPH:
        tow__graph_write(s, pointer, indent);
        break;
    case TOW__P_GRAPHS:
        add_graphs(s, field, indent);
        break;
    case TOW__P_ARRAY:
        add_array(s, pointer, result);
        break;
    case TOW__P_POLICY:
        if (pointer)
            add_policy(s, pointer);
        else
            tow__string_add(s, "none");
        break;
    }
}

static bool is_printed(const tow__param *p, const void *params)
{
    const void *field = (const char *)params + p->offset;
    if (p->kind == TOW__P_COUNT || p->kind == TOW__P_SUM_DTYPE) return *(const int64_t *)field != 0;
    if (p->kind == TOW__P_AMOUNT) return *(const double *)field != 0;
    return !tow__is_of_plans(p->kind);
}

/* Nested graphs come last, each on lines of its own. */
static void add_params(tow__string *s, const tow__equation *e, const tow_type *result, int indent)
{
    const char *before = "[";
    if (!e->params) return;
    for (const tow__param *p = e->primitive->params; p && p->name; p++) {
        if (is_nested(p) || !is_printed(p, e->params)) continue;
        tow__string_add(s, "%s", before);
        add_param(s, p, e->params, result, indent);
        before = " ";
    }
    for (const tow__param *p = e->primitive->params; p && p->name; p++) {
        if (!is_nested(p)) continue;
        tow__string_add(s, "%s\n%*s", *before == '[' ? "[" : "", indent + 2, "");
        add_param(s, p, e->params, result, indent + 2);
        before = " ";
    }
    tow__string_add(s, *before == '[' ? "" : "]");
}

/* ---- graphs ---------------------------------------------------------------------------------------------------- */

static void add_name(tow__string *s, const char *before, uint32_t number)
{
    char text[TOW__NAME_BYTES];
    tow__name_write(number, text);
    tow__string_add(s, "%s%s", before, text);
}

static void add_equation(tow__string *s, const tow_graph *g, const tow__equation *e, const uint32_t *names, int indent)
{
    tow__string_add(s, "%*s", indent, "");
    for (uint32_t i = 0; i < e->n_out; i++) {
        add_name(s, i > 0 ? " " : "", names[e->out[i]]);
        tow__string_add(s, ":");
        tow__string_add_type(s, g->vars[e->out[i]].type);
    }
    tow__string_add(s, "%s= %s", e->n_out > 0 ? " " : "", e->primitive->name);
    add_params(s, e, e->n_out > 0 ? &g->vars[e->out[0]].type : NULL, indent);
    for (uint32_t i = 0; i < e->n_in; i++) add_name(s, " ", names[e->in[i]]);
    tow__string_add(s, "\n");
}

/* indent: of the line that the graph's text begins on. */
void tow__graph_write(tow__string *s, const tow_graph *g, int indent)
{
    uint32_t last = TOW__NAME_NONE;
    uint32_t *names = tow__alloc(s->ctx, g->n_vars, sizeof *names);
    if (!names) {
        s->failed = true;
        return;
    }
    tow__string_add(s, "{ lambda ;");
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        names[g->inputs[i]] = last = tow__name_after(last);
        add_name(s, " ", last);
        tow__string_add(s, ":");
        tow__string_add_type(s, g->vars[g->inputs[i]].type);
        if (g->input_names[i]) tow__string_add_quoted(s, g->input_names[i]);
    }
    tow__string_add(s, "%s. let\n", g->n_inputs > 0 ? "" : " ");
    for (uint32_t i = 0; i < g->n_equations && !s->failed; i++) {
        const tow__equation *e = &g->equations[i];
        for (uint32_t j = 0; j < e->n_out; j++) names[e->out[j]] = last = tow__name_after(last);
        add_equation(s, g, e, names, indent + 4);
    }
    tow__string_add(s, "%*sin (", indent + 2, "");
    for (uint32_t i = 0; i < g->n_outputs; i++) add_name(s, i > 0 ? ", " : "", names[g->outputs[i]]);
    tow__string_add(s, ") }");
    tow__free(s->ctx, names, g->n_vars, sizeof *names);
}

/* The whole text with a newline at its end; s->failed if memory ran out. */
static void write_text(tow__string *s, const tow_graph *g)
{
    TOW__ARITHMETIC(false);
    tow__locale locale = tow__locale_enter();
    tow__string_init(s, g->ctx);
    tow__graph_write(s, g, 0);
    tow__string_add(s, "\n");
    tow__locale_leave(locale);
}

size_t tow_graph_text(const tow_graph *graph, char *text, size_t size)
{
    tow__string s;
    write_text(&s, graph);
    if (s.failed) s.length = 0; /* a part of a graph would mislead; the context has the error */
    size_t length = tow__string_export(&s, text, size);
    tow__string_free(&s);
    return length;
}

tow_status tow_graph_print(const tow_graph *graph, FILE *file)
{
    if (!graph || !file) return tow__missing(tow__context_of(graph), __func__, "a graph and a file");
    tow__string s;
    write_text(&s, graph);
    tow_status status = s.failed ? TOW_OUT_OF_MEMORY : TOW_OK;
    if (status == TOW_OK && fwrite(s.text, 1, s.length, file) != s.length)
        status = tow__fail(graph->ctx, TOW_IO_ERROR, "a graph of %zu bytes could not be written", s.length);
    tow__string_free(&s);
    return status;
}
