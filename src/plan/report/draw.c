/* The picture of a program's memory: live bytes over the schedule as stacked areas in SVG.
 *
 *     bytes |            ____most live
 *           |        ___/       \__      residuals, forward, backward, gradients, workspace: one hue per
 *           |    ___/              \     kind, one shade per part of the model
 *           |___/___________________\__
 *           |  outputs, inputs         |  held by the caller
 *            forward      | backward */
#include <math.h>

#include "src/base/arithmetic.h"
#include "src/plan/report/timeline.h"

enum {
    LEFT = 90,
    TOP = 64,
    WIDTH = 900,
    HEIGHT = 440,
    LEGEND = LEFT + WIDTH + 24,
    LEGEND_WIDTH = 330, /* at least */
    LETTER = 7,         /* width of a letter, at most */
    LINE_HEIGHT = 20,
    BELOW = 76, /* room for the text under the areas */
    SHADES = 6
};

static const char *const kind_names[] = {
#define X(symbol, text) text,
    TOW__LIVE_LIST(X)
#undef X
};

/* 0xRRGGBB, from dark to light. */
static const unsigned colors[TOW__LIVE_KINDS][SHADES] = {
    [TOW__LIVE_RESIDUAL] = {0x1f4e8c, 0x2f6db5, 0x4f8fd0, 0x79afe0, 0xa3caec, 0xc9e1f5},
    [TOW__LIVE_FORWARD] = {0x1d6b3a, 0x2f8f52, 0x55ad72, 0x82c698, 0xaedcbc, 0xd3eedb},
    [TOW__LIVE_BACKWARD] = {0xa34a0c, 0xc9651a, 0xe08740, 0xecaa72, 0xf4caa4, 0xfae3cf},
    [TOW__LIVE_GRADIENT] = {0x8c1f4b, 0xb52f68, 0xd04f86, 0xe079a6, 0xeca3c4, 0xf5c9dc},
    [TOW__LIVE_EXCHANGE] = {0x0b6e6e, 0x148a8a, 0x3ba6a6, 0x6cc0c0, 0x9fd8d8, 0xcdecec},
    [TOW__LIVE_WORKSPACE] = {0x5b3f87, 0x7a5ca8, 0x997fc3, 0xb7a3d6, 0xd2c5e6, 0xe8e1f2},
};
enum {
    INPUTS_COLOR = 0xb8b8b8,
    OUTPUTS_COLOR = 0xd4d4d4
};

typedef struct picture {
    tow__string s;
    const tow__timeline *t;
    uint32_t columns;
    uint32_t *place;  /* [columns] place in the schedule */
    int64_t *floor;   /* [columns] bytes below the group that is drawn next */
    double most;      /* bytes at the upper edge */
    int64_t *largest; /* [groups] the group's own peak in bytes */
    uint32_t line;    /* next line of the legend */
    int width, height;
    const char *unit;
    double unit_bytes;
} picture;

/* ---- scales ------------------------------------------------------------------------------------------------------ */

static double x_of(const picture *d, double column) { return LEFT + WIDTH * column / d->columns; }
static double y_of(const picture *d, double bytes) { return TOP + HEIGHT * (1 - bytes / d->most); }

static void choose_unit(picture *d)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    size_t i = 0;
    d->unit_bytes = 1;
    for (; i < 4 && d->most >= 2 * 1024 * d->unit_bytes; i++) d->unit_bytes *= 1024;
    d->unit = units[i];
}

/* Distance of the scale's marks: 1, 2 or 5 times a power of ten, so that 4 to 10 distances make `most`. */
static double tick(double most)
{
    double step = pow(10, floor(log10(most / 4)));
    if (most / (5 * step) >= 4) return 5 * step;
    return most / (2 * step) >= 4 ? 2 * step : step;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static void add_escaped(tow__string *s, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        const char c = text[i];
        const char *entity = c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&quot;" : NULL;
        if (entity)
            tow__string_add(s, "%s", entity);
        else
            tow__string_add(s, "%c", (unsigned char)c < ' ' ? '?' : c);
    }
}

/* "residual: blocks/attn"; without a scope, "residual", or "residual: elsewhere" if the kind has other groups. */
static void add_group_name(picture *d, const tow__live_group *g)
{
    bool others = false;
    for (uint32_t i = 0; i < d->t->n_groups; i++) others |= d->t->groups[i].kind == g->kind && &d->t->groups[i] != g;
    tow__string_add(&d->s, "%s%s", kind_names[g->kind], g->length ? ": " : others ? ": elsewhere" : "");
    add_escaped(&d->s, g->scope, g->length);
}

/* Numbers much smaller than the unit, such as the size of a loss, are printed in bytes. */
static void add_bytes(picture *d, double bytes)
{
    bool small = bytes > 0 && bytes < d->unit_bytes / 1000;
    tow__string_add(&d->s, "%.4g %s", bytes / (small ? 1 : d->unit_bytes), small ? "bytes" : d->unit);
}

/* Interpolates the shades of the table if there are more groups than shades, so that each of `n` groups has its own. */
static unsigned color_of(tow__live_kind kind, uint32_t i, uint32_t n)
{
    const double at = n > SHADES ? (double)i * (SHADES - 1) / (n - 1) : i;
    const unsigned low = (unsigned)at, high = low + 1 < SHADES ? low + 1 : low;
    unsigned color = 0;
    for (int shift = 0; shift < 24; shift += 8) {
        const double a = colors[kind][low] >> shift & 255, b = colors[kind][high] >> shift & 255;
        color |= (unsigned)(a + (b - a) * (at - low) + 0.5) << shift;
    }
    return color;
}

static void begin_text(picture *d, double x, double y, const char *anchor)
{
    tow__string_add(&d->s, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
}

static void end_text(picture *d) { tow__string_add(&d->s, "</text>\n"); }

/* ---- parts of the picture ---------------------------------------------------------------------------------------- */

static void add_head(picture *d)
{
    const tow_program_bytes *b = &d->t->p->bytes;
    tow__string_add(
        &d->s,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
        "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
        d->width, d->height, d->width, d->height);
    tow__string_add(&d->s, "<text x=\"%d\" y=\"24\" font-size=\"16\">Live bytes over the schedule</text>\n", LEFT);
    begin_text(d, LEFT, 44, "start");
    tow__string_add(&d->s, "inputs ");
    add_bytes(d, (double)b->inputs);
    tow__string_add(&d->s, ", outputs ");
    add_bytes(d, (double)b->outputs);
    tow__string_add(&d->s, ", arena ");
    add_bytes(d, (double)b->arena);
    tow__string_add(&d->s, " (at least ");
    add_bytes(d, (double)b->lower_bound);
    tow__string_add(&d->s, "), residuals ");
    add_bytes(d, (double)b->residuals);
    end_text(d);
}

static void add_axes(picture *d)
{
    double step = tick(d->most / d->unit_bytes) * d->unit_bytes;
    for (double bytes = 0; bytes <= d->most; bytes += step) {
        tow__string_add(&d->s, "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\"/>\n", LEFT, y_of(d, bytes), LEFT + WIDTH);
        begin_text(d, LEFT - 6, y_of(d, bytes) + 4, "end");
        add_bytes(d, bytes);
        end_text(d);
    }
}

/* Shades and names the forward and the backward pass, and marks where iterations begin. */
static void add_phases(picture *d)
{
    const tow__timeline *t = d->t;
    uint32_t from = 0, iterations = 0;
    for (uint32_t c = 1; c <= d->columns; c++) {
        bool backward = t->places[d->place[from]].backward;
        if (c < d->columns && t->places[d->place[c]].backward == backward) continue;
        if (backward)
            tow__string_add(&d->s, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"#f7f2ec\"/>\n",
                            x_of(d, from), TOP, x_of(d, c) - x_of(d, from), HEIGHT);
        if (c - from > d->columns / 12) {
            begin_text(d, (x_of(d, from) + x_of(d, c)) / 2, TOP + HEIGHT + 32, "middle");
            tow__string_add(&d->s, "%s", backward ? "backward" : "forward");
            end_text(d);
        }
        from = c;
    }
    for (uint32_t i = 0; i < t->n; i++) iterations += t->places[i].begins;
    for (uint32_t i = 0; iterations <= 128 && i < t->n; i++)
        if (t->places[i].begins)
            tow__string_add(&d->s, "<path d=\"M%.1f %dv8\" stroke=\"#888\"/>\n", LEFT + WIDTH * (double)i / t->n,
                            TOP + HEIGHT);
    begin_text(d, LEFT + WIDTH / 2.0, TOP + HEIGHT + 54, "middle");
    tow__string_add(&d->s, "%u instructions in order%s", t->n, iterations ? "; ticks: iterations of loops" : "");
    end_text(d);
}

static void begin_path(picture *d, unsigned color) { tow__string_add(&d->s, "<path fill=\"#%06x\" d=\"", color); }

/* Draws the corners of an area's upper edge; `bytes` NULL: of its lower edge, from right to left. */
static void add_edge(picture *d, const int64_t *bytes)
{
    double last = -1;
    for (uint32_t i = 0; i < d->columns; i++) {
        uint32_t c = bytes ? i : d->columns - 1 - i;
        double y = y_of(d, (double)(d->floor[c] + (bytes ? bytes[d->place[c]] : 0)));
        double x = x_of(d, bytes ? c : c + 1);
        if (i == 0) tow__string_add(&d->s, "%c%.2f %.2f", bytes ? 'M' : 'L', x, y);
        if (i > 0 && fabs(y - last) > 0.005) tow__string_add(&d->s, "H%.2fV%.2f", x, y);
        last = y;
    }
    tow__string_add(&d->s, "H%.2f", bytes ? x_of(d, d->columns) : x_of(d, 0));
}

static void add_area(picture *d, const tow__live_group *g, unsigned color)
{
    begin_path(d, color);
    add_edge(d, g->bytes);
    add_edge(d, NULL);
    tow__string_add(&d->s, "Z\"><title>");
    add_group_name(d, g);
    tow__string_add(&d->s, "</title></path>\n");
    for (uint32_t c = 0; c < d->columns; c++) d->floor[c] += g->bytes[d->place[c]];
}

static void begin_legend_line(picture *d, unsigned color)
{
    double y = TOP + 14 + (double)LINE_HEIGHT * d->line++;
    tow__string_add(&d->s, "<rect x=\"%d\" y=\"%.1f\" width=\"14\" height=\"14\" fill=\"#%06x\"/>\n", LEGEND, y - 11,
                    color);
    begin_text(d, LEGEND + LINE_HEIGHT, y, "start");
}

/* Draws memory that the caller holds, as an area of constant height. */
static void add_held(picture *d, const char *what, size_t bytes, unsigned color)
{
    double low = (double)d->floor[0];
    if (bytes == 0) return;
    tow__string_add(
        &d->s, "<rect x=\"%d\" y=\"%.2f\" width=\"%d\" height=\"%.2f\" fill=\"#%06x\"><title>%s</title></rect>\n", LEFT,
        y_of(d, low + (double)bytes), WIDTH, y_of(d, low) - y_of(d, low + (double)bytes), color, what);
    for (uint32_t c = 0; c < d->columns; c++) d->floor[c] += (int64_t)bytes;
    begin_legend_line(d, color);
    tow__string_add(&d->s, "%s, held by the caller: ", what);
    add_bytes(d, (double)bytes);
    end_text(d);
}

/* Adds the bytes of a group at the program's peak, or the group's own peak if it has no bytes there. */
static void add_group_bytes(picture *d, uint32_t group)
{
    const int64_t bytes = d->t->groups[group].bytes[d->t->peak];
    tow__string_add(&d->s, bytes ? ", at the mark " : ", at most ");
    add_bytes(d, (double)(bytes ? bytes : d->largest[group]));
    if (bytes == 0) tow__string_add(&d->s, ", not at the mark");
}

static void add_groups(picture *d)
{
    const tow__timeline *t = d->t;
    for (uint32_t i = 0, first = 0, end = 0; i < t->n_groups; i++) {
        const tow__live_group *g = &t->groups[i];
        if (i == end) /* the groups of one kind are neighbors */
            for (first = i; end < t->n_groups && t->groups[end].kind == g->kind;) end++;
        const unsigned color = color_of(g->kind, i - first, end - first);
        if (d->largest[i] == 0) continue;
        add_area(d, g, color);
        begin_legend_line(d, color);
        add_group_name(d, g);
        add_group_bytes(d, i);
        end_text(d);
    }
}

/* Marks the peak of live bytes, and tells how many bytes the plan reserves. */
static void add_mark(picture *d)
{
    const tow__timeline *t = d->t;
    const tow_program_bytes *b = &t->p->bytes;
    const tow__place_in_time *place = &t->places[t->peak];
    double held = (double)(b->inputs + b->outputs), bytes = held + (double)t->total[t->peak];
    double x = LEFT + WIDTH * ((double)t->peak + 0.5) / t->n, y = y_of(d, bytes),
           reserved = y_of(d, held + (double)b->arena);
    tow__string_add(&d->s, "<path d=\"M%d %.1fH%d\" stroke=\"#666\" stroke-dasharray=\"2 3\"/>\n", LEFT, reserved,
                    LEFT + WIDTH);
    tow__string_add(&d->s,
                    "<path d=\"M%.1f %.1fV%d\" stroke=\"#c00\" stroke-dasharray=\"5 3\"/>\n"
                    "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"#c00\"/>\n",
                    x, y, TOP + HEIGHT, x, y);
    begin_text(d, x < LEFT + WIDTH / 2.0 ? x + 8 : x - 8, y - 8, x < LEFT + WIDTH / 2.0 ? "start" : "end");
    tow__string_add(&d->s, "most live ");
    add_bytes(d, bytes);
    if (place->inst) {
        const char *scope = place->inst->source ? place->inst->source->scope : NULL;
        tow__string_add(&d->s, ": %s %s%s", place->backward ? "backward" : "forward", place->inst->op->name,
                        scope ? " in " : "");
        add_escaped(&d->s, scope, scope ? strlen(scope) : 0);
    }
    end_text(d);
}

/* ---- the picture ------------------------------------------------------------------------------------------------- */

/* Chooses for each column the place with most live bytes among the places that it stands for. */
static tow_status choose_columns(picture *d, tow__timeline *t)
{
    d->columns = t->n < WIDTH ? t->n : WIDTH;
    d->place = tow__arena_alloc(&t->memory, d->columns, sizeof *d->place);
    d->floor = tow__arena_alloc(&t->memory, d->columns, sizeof *d->floor);
    if (!d->place || !d->floor) return TOW_OUT_OF_MEMORY;
    for (uint32_t c = 0; c < d->columns; c++) {
        uint32_t end = (uint32_t)((uint64_t)(c + 1) * t->n / d->columns);
        d->place[c] = (uint32_t)((uint64_t)c * t->n / d->columns);
        for (uint32_t i = d->place[c]; i < end; i++)
            if (t->total[i] > t->total[d->place[c]]) d->place[c] = i;
    }
    return TOW_OK;
}

/* Finds the peak of each group, and the size of a picture that has room for the legend. */
static tow_status measure(picture *d, tow__timeline *t)
{
    static const char longest[] = "workspace: elsewhere, at most 1234 bytes, not at the mark";
    size_t letters = 0;
    d->largest = tow__arena_alloc(&t->memory, t->n_groups, sizeof *d->largest);
    if (!d->largest) return TOW_OUT_OF_MEMORY;
    for (uint32_t g = 0; g < t->n_groups; g++) {
        for (uint32_t i = 0; i < t->n; i++)
            if (t->groups[g].bytes[i] > d->largest[g]) d->largest[g] = t->groups[g].bytes[i];
        if (t->groups[g].length > letters) letters = t->groups[g].length;
    }
    const int text = (int)(letters + sizeof longest) * LETTER, legend = LINE_HEIGHT * (2 + (int)t->n_groups);
    d->width = LEGEND + (text > LEGEND_WIDTH ? text : LEGEND_WIDTH);
    d->height = TOP + BELOW + (legend > HEIGHT ? legend : HEIGHT);
    return TOW_OK;
}

tow_status tow_program_draw_memory(const tow_program *p, FILE *file)
{
    if (!p || !file) return tow__missing(p ? p->ctx : NULL, __func__, "a program and a file to draw into");
    TOW__ARITHMETIC(false);
    tow__timeline t;
    picture d = {.t = &t};
    tow__string_init(&d.s, p->ctx);
    tow_status status = TOW_OK;
    TRY(tow__timeline_make(p, TOW__LIVE_SHOWN, &t));
    TRY(choose_columns(&d, &t));
    TRY(measure(&d, &t));
    d.most = 1.08 * (double)(p->bytes.inputs + p->bytes.outputs + p->bytes.arena) + 1;
    choose_unit(&d);
    add_head(&d);
    add_phases(&d);
    add_axes(&d);
    add_held(&d, "inputs", p->bytes.inputs, INPUTS_COLOR);
    add_held(&d, "outputs", p->bytes.outputs, OUTPUTS_COLOR);
    add_groups(&d);
    add_mark(&d);
    tow__string_add(&d.s, "</svg>\n");
    if (d.s.failed)
        status = TOW_OUT_OF_MEMORY;
    else if (fputs(d.s.text, file) < 0)
        status = tow__fail(p->ctx, TOW_IO_ERROR, "tow_program_draw_memory: cannot write the picture");
done:
    tow__string_free(&d.s);
    tow__timeline_free(&t);
    return status;
}
