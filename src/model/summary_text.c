/* Summaries of models as a table and as JSON. */
#include <inttypes.h>
#include <math.h>

#include "src/base/options.h"
#include "src/io/json.h"
#include "src/model/summary.h"

/* ---- the table --------------------------------------------------------------------------------------------------- */

enum {
    COLUMNS = 9
};
static const char *const heads[COLUMNS] = {"path",  "layer", "inputs",   "outputs", "parameters",
                                           "bytes", "flops", "backward", "kept"};

static void add_types(tow__string *s, size_t n, const tow_type *types)
{
    for (size_t i = 0; i < n; i++) tow__string_add(s, "%s%s", i ? ", " : "", tow__type_name(types[i]).text);
}

/* A layer is in the table if it is not deeper than the limit (0: none). */
static bool is_shown(const tow_model_summary *s, uint32_t layer, int depth)
{
    return depth <= 0 || s->layers[layer].depth <= depth || layer == 0;
}

/* Elements and bytes of the parameters that are counted in a row: those of no row below it. */
typedef struct row {
    int64_t elements;
    size_t bytes;
} row;

/* Fills rows[count]. */
static void count_rows(const tow_model_summary *s, int depth, row *rows)
{
    for (size_t i = 0; i < s->n_owned; i++) {
        const tow__owned *o = &s->owned[i];
        uint32_t layer = o->layer;
        while (!is_shown(s, layer, depth)) layer = s->parents[layer];
        if (o->variable) continue;
        rows[layer].elements += tow_type_element_count(o->type) * tow_dtype_numbers(o->type.dtype);
        rows[layer].bytes += tow_type_bytes(o->type);
    }
}

static void add_number(tow__string *s, double number)
{
    if (isnan(number))
        tow__string_add(s, "-");
    else
        tow__string_add(s, "%.0f", number);
}

/* The text of one cell. layer = count: the last row. */
static void add_cell(tow__string *t, const tow_model_summary *s, uint32_t layer, int column, const row *rows)
{
    const bool total = layer == s->count;
    const tow_layer_summary *l = &s->layers[total ? 0 : layer];
    switch (column) {
    case 0:
        tow__string_add(t, "%s", total ? "total" : l->path[0] ? l->path : "(model)");
        break;
    case 1:
        if (!total) tow__string_add(t, "%s", l->name);
        if (!total && l->calls > 1) tow__string_add(t, " x%zu", l->calls);
        break;
    case 2:
        if (!total) add_types(t, l->n_inputs, l->inputs);
        break;
    case 3:
        if (!total) add_types(t, l->n_outputs, l->outputs);
        break;
    case 4:
        tow__string_add(t, "%" PRId64, total ? l->parameters : rows[layer].elements);
        break;
    case 5:
        tow__string_add(t, "%zu", total ? l->parameter_bytes : rows[layer].bytes);
        break;
    case 6:
        add_number(t, l->flops);
        break;
    case 7:
        add_number(t, l->backward_flops);
        break;
    default:
        if (s->no_gradient)
            tow__string_add(t, "-");
        else
            tow__string_add(t, "%zu", l->kept_bytes);
    }
}

/* Characters, not bytes: paths are UTF-8. */
static int width_of(const tow__string *cell)
{
    int width = 0;
    for (const char *c = cell->text ? cell->text : ""; *c; c++) width += ((unsigned char)*c & 0xc0) != 0x80;
    return width;
}

/* The cell's text in *cell, which is used again and again. */
static void make_cell(tow__string *cell, const tow_model_summary *s, uint32_t layer, int column, const row *rows)
{
    cell->length = 0;
    if (cell->text) cell->text[0] = '\0';
    add_cell(cell, s, layer, column, rows);
}

static void add_padded(tow__string *t, const char *text, int length, int width, bool right, bool last)
{
    const int blanks = width > length ? width - length : 0;
    tow__string_add(t, "%*s%s", right ? blanks : 0, "", text);
    tow__string_add(t, "%*s", last ? 0 : (right ? 0 : blanks) + 2, "");
}

static void add_kept(tow__string *t, const tow_model_summary *s)
{
    tow__string_add(t, "\nkept for the backward pass\n");
    for (uint32_t layer = 0; layer < s->count; layer++)
        for (size_t i = 0; i < s->n_kept; i++) {
            const tow__kept *k = &s->kept[i];
            if (k->layer != layer) continue;
            const char *path = s->layers[layer].path;
            tow__string_add(t, "  %s: %s, %zu bytes: %s%s%s%s\n", path[0] ? path : "(model)",
                            tow__type_name(k->type).text, k->bytes, k->what, k->here ? " (" : "",
                            k->here ? k->here : "", k->here ? ")" : "");
        }
}

size_t tow_model_summary_text(const tow_model_summary *s, const tow_summary_text_options *options, char *text,
                              size_t size)
{
    tow_summary_text_options own;
    if (size > 0) text[0] = '\0';
    if (!TOW__OPTIONS_TAKE(s->ctx, tow_summary_text_options, options, &own)) return 0;
    const int depth = options ? options->depth : 0;
    tow__string t, cell;
    int widths[COLUMNS];
    row *rows = tow__alloc(s->ctx, s->count, sizeof *rows);
    if (!rows) return 0;
    count_rows(s, depth, rows);
    tow__string_init(&t, s->ctx);
    tow__string_init(&cell, s->ctx);
    for (int c = 0; c < COLUMNS; c++) {
        widths[c] = (int)strlen(heads[c]);
        for (uint32_t i = 0; i <= s->count; i++) {
            if (i < s->count && !is_shown(s, i, depth)) continue;
            make_cell(&cell, s, i, c, rows);
            if (width_of(&cell) > widths[c]) widths[c] = width_of(&cell);
        }
        add_padded(&t, heads[c], (int)strlen(heads[c]), widths[c], c >= 4, c + 1 == COLUMNS);
    }
    tow__string_add(&t, "\n");
    for (uint32_t i = 0; i <= s->count; i++) {
        if (i < s->count && !is_shown(s, i, depth)) continue;
        for (int c = 0; c < COLUMNS; c++) {
            make_cell(&cell, s, i, c, rows);
            add_padded(&t, cell.text ? cell.text : "", width_of(&cell), widths[c], c >= 4, c + 1 == COLUMNS);
        }
        tow__string_add(&t, "\n");
    }
    if (s->no_gradient) tow__string_add(&t, "no backward pass: %s\n", s->no_gradient);
    if (options && options->kept && !s->no_gradient) add_kept(&t, s);
    t.failed = t.failed || cell.failed;
    tow__string_free(&cell);
    tow__free(s->ctx, rows, s->count, sizeof *rows);
    return tow__string_hand_out(&t, text, size);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void add_json_types(tow__string *t, const char *key, size_t n, const tow_type *types)
{
    tow__string_add(t, ", \"%s\": [", key);
    for (size_t i = 0; i < n; i++) tow__string_add(t, "%s\"%s\"", i ? ", " : "", tow__type_name(types[i]).text);
    tow__string_add(t, "]");
}

static void add_json_owned(tow__string *t, const tow_model_summary *s, uint32_t layer, bool variables)
{
    bool first = true;
    tow__string_add(t, ", \"%s\": [", variables ? "variables" : "parameters");
    for (size_t i = 0; i < s->n_owned; i++) {
        const tow__owned *o = &s->owned[i];
        if (o->layer != layer || o->variable != variables) continue;
        tow__string_add(t, "%s{\"path\": ", first ? "" : ", ");
        tow__json_add_text(t, o->path);
        if (!variables) tow__string_add(t, ", \"kind\": \"%s\"", tow_param_kind_name(o->kind));
        tow__string_add(t, ", \"type\": \"%s\", \"count\": %" PRId64 ", \"bytes\": %zu}", tow__type_name(o->type).text,
                        tow_type_element_count(o->type) * tow_dtype_numbers(o->type.dtype), tow_type_bytes(o->type));
        first = false;
    }
    tow__string_add(t, "]");
}

static void add_json_kept(tow__string *t, const tow_model_summary *s, uint32_t layer)
{
    bool first = true;
    tow__string_add(t, ", \"kept\": [");
    for (size_t i = 0; i < s->n_kept; i++) {
        const tow__kept *k = &s->kept[i];
        if (k->layer != layer) continue;
        tow__string_add(t, "%s{\"type\": \"%s\", \"bytes\": %zu, \"what\": ", first ? "" : ", ",
                        tow__type_name(k->type).text, k->bytes);
        tow__json_add_text(t, k->what);
        if (k->here) tow__string_add(t, ", \"here\": ");
        if (k->here) tow__json_add_text(t, k->here);
        tow__string_add(t, "}");
        first = false;
    }
    tow__string_add(t, "]");
}

/* The numbers of a layer with all below it; null where there is no backward pass. */
static void add_json_sums(tow__string *t, const tow_model_summary *s, const tow_layer_summary *l)
{
    tow__string_add(
        t, "\"parameter_count\": %" PRId64 ", \"parameter_bytes\": %zu, \"variable_bytes\": %zu, \"flops\": %.0f",
        l->parameters, l->parameter_bytes, l->variable_bytes, l->flops);
    if (s->no_gradient)
        tow__string_add(t, ", \"backward_flops\": null, \"kept_bytes\": null");
    else
        tow__string_add(t, ", \"backward_flops\": %.0f, \"kept_bytes\": %zu", l->backward_flops, l->kept_bytes);
}

size_t tow_model_summary_json(const tow_model_summary *s, char *text, size_t size)
{
    tow__string t;
    tow__string_init(&t, s->ctx);
    tow__string_add(&t, "{\"layers\": [\n");
    for (uint32_t i = 0; i < s->count; i++) {
        const tow_layer_summary *l = &s->layers[i];
        tow__string_add(&t, "  {\"path\": ");
        tow__json_add_text(&t, l->path);
        tow__string_add(&t, ", \"layer\": ");
        tow__json_add_text(&t, l->name);
        tow__string_add(&t, ", \"calls\": %zu", l->calls);
        add_json_types(&t, "inputs", l->n_inputs, l->inputs);
        add_json_types(&t, "outputs", l->n_outputs, l->outputs);
        add_json_owned(&t, s, i, false);
        add_json_owned(&t, s, i, true);
        tow__string_add(&t, ", \"own_parameter_count\": %" PRId64 ", ", l->own_parameters);
        add_json_sums(&t, s, l);
        add_json_kept(&t, s, i);
        tow__string_add(&t, "}%s\n", i + 1 < s->count ? "," : "");
    }
    tow__string_add(&t, "], \"total\": {");
    add_json_sums(&t, s, &s->layers[0]);
    tow__string_add(&t, "}");
    if (s->no_gradient) tow__string_add(&t, ", \"no_gradient\": ");
    if (s->no_gradient) tow__json_add_text(&t, s->no_gradient);
    tow__string_add(&t, "}\n");
    return tow__string_hand_out(&t, text, size);
}
