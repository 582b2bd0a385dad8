/* The name of one layer from the scope of an equation, which is recorded once for all layers of a stack.
 *
 *   scope                     loops entered (scope, iteration)   name
 *   "blocks/{}/mlp/hidden"    ("blocks", 7)                      "blocks/7/mlp/hidden"
 *   "blocks/{1+3}/attn"       ("blocks", 2)                      "blocks/7/attn"       layer stack, pattern of 3
 *   "blocks/{0+4,1}/attn"     ("blocks", 1) ("blocks", 3)        "blocks/7/attn"       remat_scan
 *   "members/{}/hidden"       -                                  "members/2/hidden"    vmap: rows of the result
 *   "head/solver"             ("head/solver", 5)                 "head/solver[5]"      a loop of the layer's own
 *
 * A component belongs to the loops whose own scope ends in front of it. If a region that was entered has another number
 * in the place of a component, as iterations have that are recorded one by one, its number counts. Numbers that stay
 * unknown stay as they are recorded. */
#include <inttypes.h>
#include <stdio.h>

#include "src/params/names.h"
#include "src/scope/scope.h"
#include "src/train/not_finite.h"

/* A component of the scope. */
typedef struct component {
    const char *text;
    size_t length;
    bool stack; /* it stands for layers, of which `layer` is meant; -1: unknown */
    tow__numbering numbering;
    int64_t layer;
} component;

typedef struct naming {
    component components[TOW__DEEPEST_SCOPE + 1];
    int n;
    const tow__entered *regions;
    int n_regions;
    bool used[TOW__DEEPEST_GRAPH]; /* a loop has given its number */
} naming;

static bool is_number(const component *c) { return c->length > 0 && strspn(c->text, "0123456789") == c->length; }

static component make_component(const char *text)
{
    component c = {.text = text, .length = strcspn(text, "/"), .layer = -1};
    c.stack = tow__numbering_read(text, c.length, &c.numbering);
    return c;
}

/* The next component of a scope; NULL behind the last one. */
static const char *next_component(const char *text, const component *c)
{
    return text[c->length] ? text + c->length + 1 : NULL;
}

/* The number of components of the scope of a region, if the equation's begins with them; else -1. With `replace`,
 * numbers of the region replace components that stand for more layers. */
static int common_components(naming *s, int region, bool replace)
{
    int n = 0;
    const char *at = s->regions[region].scope;
    for (; at && at[0]; n++) {
        const component c = make_component(at);
        component *own = &s->components[n];
        if (n == s->n) return -1;
        const bool equal = c.length == own->length && memcmp(c.text, own->text, c.length) == 0;
        if (!equal && !((c.stack || is_number(&c)) && (own->stack || is_number(own)))) return -1;
        if (!equal && replace && own->stack) *own = c;
        at = next_component(at, &c);
    }
    return n;
}

static void split(naming *s, const char *scope)
{
    for (const char *at = scope; at && at[0] && s->n <= TOW__DEEPEST_SCOPE; s->n++) {
        s->components[s->n] = make_component(at);
        at = next_component(at, &s->components[s->n]);
    }
    for (int k = 0; k < s->n_regions; k++)
        if (common_components(s, k, false) >= 0) common_components(s, k, true);
}

/* Is the region a loop that has given no number yet, and whose scope ends in front of component i? */
static bool stands_at(naming *s, int region, int i)
{
    return !s->used[region] && s->regions[region].iteration >= 0 && common_components(s, region, false) == i;
}

/* Components that belong to loops which were entered. anywhere: of loops whose place is unknown, the outermost one
 * left. */
static void number_loops(naming *s, bool anywhere)
{
    for (int i = 0; i < s->n; i++) {
        component *c = &s->components[i];
        int at[TOW_MAX_RANK], n = 0;
        int64_t index[TOW_MAX_RANK];
        if (!c->stack || c->layer >= 0) continue;
        for (int k = 0; k < s->n_regions && n < c->numbering.levels; k++)
            if (stands_at(s, k, anywhere && !s->regions[k].scope ? 0 : i)) at[n++] = k;
        if (n < c->numbering.levels) continue;
        for (int k = 0; k < n; k++) {
            s->used[at[k]] = true;
            index[k] = s->regions[at[k]].iteration;
        }
        c->layer = tow__numbering_layer(&c->numbering, index);
    }
}

static int64_t coordinate(const tow_type *type, int axis, int64_t element)
{
    for (int i = type->rank - 1; i > axis; i--) element /= type->dims[i];
    return element % type->dims[axis];
}

/* Components that are left are those of vmaps, if there are as many. */
static void number_rows(naming *s, const tow__row_axes *rows, const tow_type *type, int64_t element)
{
    int left = 0, at = 0;
    for (int i = 0; i < s->n; i++) left += s->components[i].stack && s->components[i].layer < 0;
    if (left != rows->n) return;
    for (int i = 0; i < s->n; i++) {
        component *c = &s->components[i];
        if (!c->stack || c->layer >= 0) continue;
        const int axis = rows->axis[at++];
        if (axis == TOW__ROWS_SHARED) c->layer = c->numbering.first;
        if (axis < 0 || axis >= type->rank || c->numbering.levels != 1) continue;
        const int64_t row = coordinate(type, axis, element);
        c->layer = tow__numbering_layer(&c->numbering, &row);
    }
}

/* "[5]" for each loop of a layer's own whose scope has i components, or with i = -1 for all that are left. */
static size_t write_own_loops(naming *s, int i, char *text, size_t size)
{
    size_t n = 0;
    for (int k = 0; k < s->n_regions && n + 24 < size; k++) {
        if (s->used[k] || s->regions[k].iteration < 0 || (i >= 0 && !stands_at(s, k, i))) continue;
        s->used[k] = true;
        n += (size_t)snprintf(text + n, size - n, "[%" PRId64 "]", s->regions[k].iteration);
    }
    return n;
}

void tow__write_layer_path(const tow__entered *regions, int n_regions, const tow__source *source, const tow_type *type,
                           int64_t element, char *text, size_t size)
{
    naming s = {.regions = regions, .n_regions = n_regions};
    size_t n = 0;
    split(&s, source->scope);
    number_loops(&s, false);
    number_loops(&s, true);
    number_rows(&s, &source->rows, type, element);
    text[0] = '\0';
    for (int i = 0; i < s.n; i++) {
        const component *c = &s.components[i];
        if (n + c->length + 26 > size) break;
        if (i > 0) text[n++] = '/';
        n += (size_t)(c->stack && c->layer >= 0 ? snprintf(text + n, size - n, "%" PRId64, c->layer)
                                                : snprintf(text + n, size - n, "%.*s", (int)c->length, c->text));
        n += write_own_loops(&s, i + 1, text + n, size - n);
    }
    write_own_loops(&s, -1, text + n, size - n);
}
