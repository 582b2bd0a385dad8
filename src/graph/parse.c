/* The reader of the textual form: graphs and equations. Everything is recorded through bind, so a graph that was read
 * has been checked by the rules of its primitives. Nested graphs see none of the names around them. */
#include <inttypes.h>

#include "src/base/arithmetic.h"
#include "src/base/hash.h"
#include "src/graph/policy.h"
#include "src/graph/reader.h"

/* ---- names of one graph ---------------------------------------------------------------------------------------- */

typedef struct symbol {
    tow__word name; /* length 0: free */
    tow_value value;
} symbol;

typedef struct symbols {
    symbol *slots; /* open addressing, at most half full */
    size_t n_slots, count;
    uint64_t seed;
} symbols;

static symbol *find_symbol(const symbols *s, tow__word name)
{
    size_t i = (size_t)tow__hash(s->seed, name.text, name.length) & (s->n_slots - 1);
    for (; s->slots[i].name.length > 0; i = (i + 1) & (s->n_slots - 1))
        if (s->slots[i].name.length == name.length && memcmp(s->slots[i].name.text, name.text, name.length) == 0) break;
    return &s->slots[i];
}

static bool grow_symbols(tow__reader *r, symbols *s)
{
    symbols new = {.n_slots = s->n_slots ? 2 * s->n_slots : 32, .count = s->count, .seed = s->seed};
    new.slots = tow__alloc(r->ctx, new.n_slots, sizeof *new.slots);
    if (!new.slots) return tow__reader_wrap(r, r->at);
    for (size_t i = 0; i < s->n_slots; i++)
        if (s->slots[i].name.length > 0) *find_symbol(&new, s->slots[i].name) = s->slots[i];
    tow__free(r->ctx, s->slots, s->n_slots, sizeof *s->slots);
    *s = new;
    return true;
}

static int shown(tow__word w) { return w.length > 40 ? 40 : (int)w.length; }

static bool define(tow__reader *r, symbols *s, tow__word name, tow_value value)
{
    size_t at = (size_t)(name.text - r->text);
    if (tow__word_is(name, "_")) return true;
    if (2 * (s->count + 1) > s->n_slots && !grow_symbols(r, s)) return false;
    symbol *slot = find_symbol(s, name);
    if (slot->name.length > 0)
        return tow__reader_fail(r, at, TOW_BAD_FORMAT, "the name '%.*s' is defined twice in this graph", shown(name),
                                name.text);
    *slot = (symbol){name, value};
    s->count++;
    return true;
}

static bool look_up(tow__reader *r, const symbols *s, tow_value *value)
{
    tow__word name;
    if (!tow__read_word(r, "the name of a value", &name)) return false;
    const symbol *found = s->n_slots > 0 ? find_symbol(s, name) : NULL;
    if (!found || found->name.length == 0)
        return tow__reader_fail(
            r, (size_t)(name.text - r->text), TOW_BAD_FORMAT,
            "the name '%.*s' is not defined in this graph (graphs are closed: what a nested graph uses is "
            "an input of it)",
            shown(name), name.text);
    *value = found->value;
    return true;
}

/* ---- hints ----------------------------------------------------------------------------------------------------- */

size_t tow__word_distance(tow__word w, const char *candidate)
{
    enum {
        LONGEST = 48
    };
    size_t row[LONGEST + 1], n = strlen(candidate);
    if (w.length > LONGEST || n > LONGEST) return SIZE_MAX;
    for (size_t j = 0; j <= n; j++) row[j] = j;
    for (size_t i = 1; i <= w.length; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t best = diagonal + (w.text[i - 1] != candidate[j - 1]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[n];
}

TOW__OWN_FRAME static bool unknown_primitive(tow__reader *r, tow__word w)
{
    const char *nearest = NULL;
    size_t least = SIZE_MAX, at = (size_t)(w.text - r->text);
    for (size_t i = 0; i < tow__primitive_count; i++) {
        size_t d = tow__word_distance(w, tow__primitives[i]->name);
        if (d < least) least = d, nearest = tow__primitives[i]->name;
    }
    if (nearest && least <= 1 + w.length / 3)
        return tow__reader_fail(r, at, TOW_NOT_FOUND, "expected a primitive, found '%.*s': did you mean %s?", shown(w),
                                w.text, nearest);
    return tow__reader_fail(r, at, TOW_NOT_FOUND, "expected a primitive, found '%.*s'", shown(w), w.text);
}

/* ---- equations ------------------------------------------------------------------------------------------------- */

typedef struct declared {
    tow__word name;
    tow_type type;
} declared;

typedef struct equation {
    const tow_primitive *primitive;
    void *params;
    tow__vector results;  /* declared */
    tow__vector operands; /* tow_value */
    size_t at;            /* of the primitive */
} equation;

/* name:type ... = */
TOW__OWN_FRAME static bool read_results(tow__reader *r, equation *e)
{
    while (!tow__reader_accept(r, '=')) {
        declared d;
        if (!tow__read_word(r, e->results.count ? "a result or '='" : "an equation or 'in'", &d.name)) return false;
        if (!tow__reader_expect(r, ':') || !tow__read_type(r, &d.type)) return false;
        declared *new = tow__vector_push(r->ctx, &e->results, sizeof *new);
        if (!new) return tow__reader_wrap(r, r->at);
        *new = d;
    }
    return true;
}

static bool at_end_of_equations(tow__reader *r)
{
    return tow__word_is(tow__reader_peek_word(r), "in") && tow__reader_after_word(r) == '(';
}

/* Operands are words up to the next equation, which begins with "name:" or "=". */
TOW__OWN_FRAME static bool read_operands(tow__reader *r, const symbols *s, equation *e)
{
    while (tow__reader_peek_word(r).length > 0 && tow__reader_after_word(r) != ':' && !at_end_of_equations(r)) {
        tow_value v;
        if (!look_up(r, s, &v)) return false;
        tow_value *new = tow__vector_push(r->ctx, &e->operands, sizeof *new);
        if (!new) return tow__reader_wrap(r, r->at);
        *new = v;
    }
    return true;
}

static bool check_result(tow__reader *r, const declared *d, size_t index, tow_value value)
{
    tow_type found = tow_value_type(value);
    if (tow_type_equal(found, d->type)) return true;
    return tow__reader_fail(r, (size_t)(d->name.text - r->text), TOW_TYPE_MISMATCH,
                            "result %zu is declared as %s, but the operation yields %s", index,
                            tow__type_name(d->type).text, tow__type_name(found).text);
}

TOW__OWN_FRAME static bool record(tow__reader *r, symbols *s, equation *e)
{
    uint32_t n = e->results.count;
    const declared *d = e->results.data;
    tow_value *out = tow__trace_alloc(r->t, n, sizeof *out);
    tow__set_source(r->t, &(tow__source){.why.line = tow__reader_line(r, e->at)});
    if (out) tow__bind(r->t, e->primitive, e->params, e->operands.count, e->operands.data, n, out);
    tow__set_source(r->t, NULL);
    if (!out || tow__failed(r->t)) return tow__reader_wrap(r, e->at);
    for (uint32_t i = 0; i < n; i++)
        if (!check_result(r, &d[i], i, out[i]) || !define(r, s, d[i].name, out[i])) return false;
    return true;
}

static bool read_call(tow__reader *r, symbols *s, equation *e)
{
    tow__word name;
    if (!read_results(r, e) || !tow__read_word(r, "a primitive", &name)) return false;
    e->at = (size_t)(name.text - r->text);
    e->primitive = tow__primitive_find(name.text, name.length);
    if (!e->primitive) e->primitive = tow__primitive_defined(r->ctx, name.text, name.length);
    if (!e->primitive) return unknown_primitive(r, name);
    if (e->primitive->params_size > 0 && !(e->params = tow__trace_alloc(r->t, 1, e->primitive->params_size)))
        return tow__reader_wrap(r, e->at);
    const declared *first = e->results.data;
    return tow__read_params(r, e->primitive, first ? &first->type : NULL, e->params) && read_operands(r, s, e) &&
           record(r, s, e);
}

static bool read_equation(tow__reader *r, symbols *s)
{
    equation e = {0};
    bool fine = read_call(r, s, &e);
    if (e.primitive) tow__free_read_params(e.primitive, e.params);
    tow__vector_free(r->ctx, &e.results, sizeof(declared));
    tow__vector_free(r->ctx, &e.operands, sizeof(tow_value));
    return fine;
}

/* ---- graphs ---------------------------------------------------------------------------------------------------- */

TOW__OWN_FRAME static bool read_inputs(tow__reader *r, symbols *s)
{
    while (!tow__reader_accept(r, '.')) {
        tow__word name;
        tow_type type;
        const char *label = NULL;
        if (!tow__read_word(r, "an input or '.'", &name) || !tow__reader_expect(r, ':') || !tow__read_type(r, &type))
            return false;
        if (tow__reader_peek(r) == '"' && !tow__read_string(r, &label)) return false;
        tow_value v = tow__input(r->t, type, label);
        if (tow_is_null(v)) return tow__reader_wrap(r, (size_t)(name.text - r->text));
        if (!define(r, s, name, v)) return false;
    }
    return true;
}

TOW__OWN_FRAME static bool read_outputs(tow__reader *r, const symbols *s, tow__vector *outputs)
{
    if (!tow__reader_keyword(r, "in") || !tow__reader_expect(r, '(')) return false;
    while (!tow__reader_accept(r, ')')) {
        tow_value v;
        if (outputs->count > 0 && !tow__reader_expect(r, ',')) return false;
        if (!look_up(r, s, &v)) return false;
        tow_value *new = tow__vector_push(r->ctx, outputs, sizeof *new);
        if (!new) return tow__reader_wrap(r, r->at);
        *new = v;
    }
    return tow__reader_expect(r, '}');
}

static bool read_equations(tow__reader *r, symbols *s)
{
    if (!tow__reader_keyword(r, "let")) return false;
    while (!at_end_of_equations(r))
        if (!read_equation(r, s)) return false;
    return true;
}

/* { lambda ; inputs. let equations in (outputs) } into the innermost builder. */
static bool read_body(tow__reader *r, tow__vector *outputs)
{
    symbols s = {.seed = r->ctx->hash_seed};
    bool fine = tow__reader_expect(r, '{') && tow__reader_keyword(r, "lambda") && tow__reader_expect(r, ';') &&
                read_inputs(r, &s) && read_equations(r, &s) && read_outputs(r, &s, outputs);
    tow__free(r->ctx, s.slots, s.n_slots, sizeof *s.slots);
    return fine;
}

bool tow__read_nested(tow__reader *r, tow_graph **graph)
{
    tow__vector outputs = {0};
    size_t n_captures, start = r->at;
    tow_value *captures;
    if (!tow__may_nest(r->t, 1)) return tow__reader_wrap(r, start);
    tow__push(r->t);
    bool fine = tow__failed(r->t) ? tow__reader_wrap(r, start) : read_body(r, &outputs);
    if (fine && !(*graph = tow__pop(r->t, outputs.count, outputs.data, &n_captures, &captures)))
        fine = tow__reader_wrap(r, start);
    tow__vector_free(r->ctx, &outputs, sizeof(tow_value));
    return fine;
}

tow_status tow_graph_parse(tow_context *context, const char *text, tow_graph **graph)
{
    if (graph) *graph = NULL;
    if (!context || !text || !graph)
        return tow__missing(context, __func__, "a context, a text and a place for the graph");
    TOW__ARITHMETIC(false);
    tow__reader r = {.ctx = context, .text = text, .length = strlen(text), .t = tow__trace_begin(context)};
    tow__vector outputs = {0};
    if (!r.t) return TOW_OUT_OF_MEMORY;
    tow__locale locale = tow__locale_enter();
    bool fine = read_body(&r, &outputs);
    if (fine && tow__reader_peek(&r) != '\0') fine = tow__reader_expected(&r, "the end of the text");
    const tow__named_policy *wrong;
    if (fine && tow__policy_check_names(r.t, &wrong) != TOW_OK) fine = tow__reader_wrap(&r, wrong->at);
    tow__locale_leave(locale);
    if (fine)
        r.status = tow__trace_end(r.t, outputs.count, outputs.data, false, graph);
    else
        tow__trace_abandon(r.t);
    tow__vector_free(context, &outputs, sizeof(tow_value));
    return r.status;
}
