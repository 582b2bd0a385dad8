/* The reader of parameters: [name=value ...] by the primitive's table. Lists, flags, strings, policies and
 * counts may be left out (empty, false, none, 0); other numbers, dtypes, arrays and graphs may not. */
#include <inttypes.h>

#include "src/base/dtypes.h"
#include "src/graph/policy.h"
#include "src/graph/reader.h"

/* ---- values ---------------------------------------------------------------------------------------------------- */

static bool read_ints(tow__reader *r, tow__ints *ints)
{
    if (!tow__reader_expect(r, '(')) return false;
    while (!tow__reader_accept(r, ')')) {
        if (ints->n > 0) tow__reader_accept(r, ',');
        if (ints->n == TOW_MAX_RANK)
            return tow__reader_fail(r, r->at, TOW_BAD_FORMAT, "expected at most %d numbers in a list", TOW_MAX_RANK);
        if (!tow__read_int(r, &ints->v[ints->n])) return false;
        ints->n++;
    }
    return true;
}

static bool read_bool(tow__reader *r, bool *value)
{
    tow__word w = tow__reader_peek_word(r);
    *value = tow__word_is(w, "true");
    if (!*value && !tow__word_is(w, "false")) return tow__reader_expected(r, "true or false");
    r->at += w.length;
    return true;
}

static bool read_dtype(tow__reader *r, tow_dtype *dtype)
{
    tow__word w = tow__reader_peek_word(r);
    for (int i = 1; i < TOW__DTYPE_LIMIT; i++)
        if (tow__word_is(w, tow_dtype_name((tow_dtype)i))) {
            *dtype = (tow_dtype)i;
            r->at += w.length;
            return true;
        }
    return tow__reader_expected(r, TOW__A_DTYPE_OR_BLOCKS);
}

static bool read_sum_dtype(tow__reader *r, int64_t *field)
{
    tow_dtype dtype = TOW_F32;
    if (!read_dtype(r, &dtype)) return false;
    *field = 1 + (int64_t)dtype;
    return true;
}

/* The dtype of a bare scalar is that of the equation's result, or what the spelling suggests. */
static tow_dtype bare_dtype(tow__reader *r, const tow_type *result)
{
    if (result) return result->dtype;
    tow__word w = tow__reader_peek_word(r);
    if (tow__word_is(w, "true") || tow__word_is(w, "false")) return TOW_BOOL;
    size_t n = strcspn(r->text + r->at, " \t\r\n])");
    for (size_t i = 0; i < n; i++)
        if (strchr(".enf", r->text[r->at + i])) return TOW_F32;
    return TOW_I32;
}

static bool read_elements(tow__reader *r, tow_array *array)
{
    tow_type type = tow_array_type(array);
    size_t size = tow_dtype_size(type.dtype);
    char *data = tow_array_data(array);
    for (int64_t i = 0, n = tow_type_element_count(type); i < n; i++) {
        if (tow__reader_peek(r) == ')')
            return tow__reader_fail(r, r->at, TOW_BAD_FORMAT, "expected %" PRId64 " elements for %s, found %" PRId64, n,
                                    tow__type_name(type).text, i);
        if (i > 0) tow__reader_accept(r, ',');
        if (!tow__read_scalar(r, type.dtype, data + (size_t)i * size)) return false;
    }
    return true;
}

static bool read_array(tow__reader *r, const tow_type *result, tow_array **array)
{
    tow_type type = {0};
    tow__reader_skip(r);
    size_t start = r->at;
    bool bare = tow__reader_peek_word(r).length == 0 || tow__reader_after_word(r) != '[';
    if (bare)
        type.dtype = bare_dtype(r, result);
    else if (!tow__read_type(r, &type) || !tow__reader_expect(r, '('))
        return false;
    /* Every element takes a character and a blank, so the text bounds what is allocated. */
    if (tow_type_element_count(type) > (int64_t)(r->length - r->at) / 2 + 1)
        return tow__reader_fail(r, start, TOW_BAD_FORMAT,
                                "expected %" PRId64 " elements for %s, found the end of the text",
                                tow_type_element_count(type), tow__type_name(type).text);
    if (tow_array_create(r->ctx, type, array) != TOW_OK) return tow__reader_wrap(r, start);
    return read_elements(r, *array) && (bare || tow__reader_expect(r, ')'));
}

static bool read_policy(tow__reader *r, tow_policy **policy)
{
    const char *text = NULL;
    tow__reader_skip(r);
    size_t start = r->at;
    if (!tow__read_string(r, &text)) return false;
    return tow_policy_parse(r->ctx, text, policy) == TOW_OK || tow__reader_wrap(r, start);
}

/* Graphs in parentheses. Those that have been read are the list's, even if a later one is wrong. */
static bool read_graphs(tow__reader *r, tow__graphs *list)
{
    tow__vector all = {0};
    bool fine = tow__reader_expect(r, '(');
    while (fine && !tow__reader_accept(r, ')')) {
        if (all.count > 0) tow__reader_accept(r, ',');
        tow_graph *graph = NULL, **at;
        if (!(fine = tow__read_nested(r, &graph))) break;
        if ((at = tow__vector_push(r->ctx, &all, sizeof *at)))
            *at = graph;
        else
            tow_graph_release(graph);
        if (!at) fine = tow__reader_wrap(r, r->at);
    }
    list->v = tow__trace_alloc(r->t, all.count, sizeof *list->v);
    for (uint32_t i = 0; i < all.count; i++) {
        tow_graph *graph = ((tow_graph **)all.data)[i];
        if (list->v)
            list->v[list->n++] = graph;
        else
            tow_graph_release(graph);
    }
    if (!list->v && fine) fine = tow__reader_wrap(r, r->at);
    tow__vector_free(r->ctx, &all, sizeof(tow_graph *));
    return fine;
}

/* Types in parentheses. */
static bool read_types(tow__reader *r, tow__types *list)
{
    tow__vector all = {0};
    bool fine = tow__reader_expect(r, '(');
    while (fine && !tow__reader_accept(r, ')')) {
        tow_type type, *at;
        if (all.count > 0) tow__reader_accept(r, ',');
        if (!(fine = tow__read_type(r, &type))) break;
        if ((at = tow__vector_push(r->ctx, &all, sizeof *at)))
            *at = type;
        else
            fine = tow__reader_wrap(r, r->at);
    }
    tow_type *types = fine ? tow__trace_alloc(r->t, all.count, sizeof *types) : NULL;
    if (fine && !types) fine = tow__reader_wrap(r, r->at);
    if (fine && all.count > 0) memcpy(types, all.data, all.count * sizeof *types);
    if (fine) *list = (tow__types){.n = all.count, .v = types};
    tow__vector_free(r->ctx, &all, sizeof(tow_type));
    return fine;
}

static bool read_value(tow__reader *r, const tow__param *p, const tow_type *result, char *params)
{
    void *field = params + p->offset;
    bool none =
        (p->kind == TOW__P_STRING || p->kind == TOW__P_POLICY) && tow__word_is(tow__reader_peek_word(r), "none");
    if (none) return tow__reader_keyword(r, "none");
    switch (p->kind) {
    case TOW__P_PLAN:
    case TOW__P_OF_HALVES:
        return false;
    case TOW__P_INT:
    case TOW__P_COUNT:
        return tow__read_int(r, field);
    case TOW__P_FLOAT:
    case TOW__P_AMOUNT:
        return tow__read_scalar(r, TOW_F64, field);
    case TOW__P_BOOL:
        return read_bool(r, field);
    case TOW__P_DTYPE:
        return read_dtype(r, field);
    case TOW__P_SUM_DTYPE:
        return read_sum_dtype(r, field);
    case TOW__P_INTS:
        return read_ints(r, field);
    case TOW__P_TYPES:
        return read_types(r, field);
    case TOW__P_STRING:
        return tow__read_string(r, field);
    case TOW__P_GRAPH:
        return tow__read_nested(r, field);
    case TOW__P_GRAPHS:
        return read_graphs(r, field);
    case TOW__P_ARRAY:
        return read_array(r, result, field);
    case TOW__P_POLICY:
        return read_policy(r, field);
    }
    return false;
}

/* ---- the list -------------------------------------------------------------------------------------------------- */

static bool unknown_param(tow__reader *r, size_t at, const tow_primitive *primitive, tow__word w)
{
    tow__string names;
    tow__string_init(&names, r->ctx);
    for (const tow__param *p = primitive->params; p && p->name; p++)
        if (!tow__is_of_plans(p->kind)) tow__string_add(&names, " %s", p->name);
    tow__reader_fail(r, at, TOW_BAD_FORMAT, "expected a parameter of %s (%s), found '%.*s'", primitive->name,
                     names.text && !names.failed ? names.text + 1 : "it has none", w.length > 40 ? 40 : (int)w.length,
                     w.text);
    tow__string_free(&names);
    return false;
}

static bool read_param(tow__reader *r, const tow_primitive *primitive, const tow_type *result, char *params,
                       uint64_t *seen)
{
    tow__word w;
    tow__reader_skip(r);
    size_t start = r->at;
    if (!tow__read_word(r, "a parameter or ']'", &w)) return false;
    for (int i = 0; primitive->params && primitive->params[i].name; i++) {
        const tow__param *p = &primitive->params[i];
        if (tow__is_of_plans(p->kind) || !tow__word_is(w, p->name)) continue;
        if (*seen >> i & 1)
            return tow__reader_fail(r, start, TOW_BAD_FORMAT, "the parameter %s is given twice", p->name);
        *seen |= UINT64_C(1) << i;
        return tow__reader_expect(r, '=') && read_value(r, p, result, params);
    }
    return unknown_param(r, start, primitive, w);
}

static bool may_be_left_out(tow__param_kind kind)
{
    return kind == TOW__P_INTS || kind == TOW__P_TYPES || kind == TOW__P_BOOL || kind == TOW__P_STRING ||
           kind == TOW__P_POLICY || tow__is_of_plans(kind) || kind == TOW__P_COUNT || kind == TOW__P_AMOUNT ||
           kind == TOW__P_SUM_DTYPE;
}

/* A policy that was read must fit the nested graph beside it. at: of the primitive. */
static bool check_policy(tow__reader *r, const tow_primitive *primitive, const char *params, size_t at)
{
    const tow_policy *policy = NULL;
    const tow_graph *body = NULL;
    for (const tow__param *p = primitive->params; p && p->name; p++) {
        if (p->kind == TOW__P_POLICY) memcpy(&policy, params + p->offset, sizeof policy);
    }
    body = tow__nested(primitive, params, 0);
    if (!policy) return true;
    return tow__policy_check(r->t, policy, body, at) == TOW_OK || tow__reader_wrap(r, at);
}

bool tow__read_params(tow__reader *r, const tow_primitive *primitive, const tow_type *result, void *params)
{
    uint64_t seen = 0;
    tow__reader_skip(r);
    size_t start = r->at;
    if (tow__reader_accept(r, '['))
        while (!tow__reader_accept(r, ']')) {
            if (seen != 0) tow__reader_accept(r, ',');
            if (!read_param(r, primitive, result, params, &seen)) return false;
        }
    for (int i = 0; primitive->params && primitive->params[i].name; i++)
        if (!(seen >> i & 1) && !may_be_left_out(primitive->params[i].kind))
            return tow__reader_fail(r, start, TOW_BAD_FORMAT, "expected the parameter %s of %s, found none",
                                    primitive->params[i].name, primitive->name);
    return check_policy(r, primitive, params, start);
}

void tow__free_read_params(const tow_primitive *primitive, void *params)
{
    for (const tow__param *p = params ? primitive->params : NULL; p && p->name; p++) {
        void *pointer;
        if (p->kind < TOW__P_STRING || p->kind == TOW__P_GRAPHS) continue;
        memcpy(&pointer, (char *)params + p->offset, sizeof pointer);
        if (p->kind == TOW__P_ARRAY) tow_array_release(pointer);
        if (p->kind == TOW__P_POLICY) tow_policy_free(pointer);
    }
    for (uint32_t i = tow__nested_count(primitive, params); i-- > 0;)
        tow_graph_release(tow__nested(primitive, params, i));
}
