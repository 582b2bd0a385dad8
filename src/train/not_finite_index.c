/* Names what an equation looked up outside of its table, which makes NaN: an index of a table, a label of the
 * classes. */
#include <stdio.h>
#include <string.h>

#include "src/base/dtypes.h"
#include "src/base/params.h"
#include "src/graph/primitive.h"
#include "src/train/not_finite.h"

/* The operand that the equation looks up: in[operand], integers, of which those below -from_end or from `rows` on are
 * outside. */
typedef struct lookup {
    const char *what;
    uint32_t operand;
    int64_t rows, from_end;
} lookup;

/* An integer of any type; what is larger than any table is INT64_MAX. */
static int64_t integer_at(const tow_array *x, int64_t i)
{
    const tow__element e = tow__load_element(tow_array_type(x).dtype, tow_array_data(x), i);
    return e.kind == TOW__A_SIGNED ? e.i : e.u > INT64_MAX ? INT64_MAX : (int64_t)e.u;
}

static bool note_first(const lookup *k, tow_array *const *in, int64_t first, int64_t stride, tow_not_finite *found)
{
    const tow_type type = tow_array_type(in[k->operand]);
    for (int64_t i = first; i < tow_type_element_count(type); i += stride) {
        const int64_t value = integer_at(in[k->operand], i);
        if (value >= -k->from_end && value < k->rows) continue;
        snprintf(found->outside, sizeof found->outside, "%s", k->what);
        found->outside_value = value;
        found->outside_at = i;
        found->outside_limit = k->rows;
        return true;
    }
    return false;
}

/* Rows of a table; negative indices count from its end. */
static void search_rows(const tow__equation *e, tow_array *const *in, tow_not_finite *found)
{
    const int64_t rows = tow_array_type(in[0]).dims[0];
    (void)e;
    note_first(&(lookup){"index", 1, rows, rows}, in, 0, 1, found);
}

/* Windows, whose starts lie in [0, size - size of the window]. */
static void search_windows(const tow__equation *e, tow_array *const *in, tow_not_finite *found)
{
    const tow__gather_params *p = e->params;
    const int n = p->start_index_map.n;
    for (int i = 0; i < n && p->fill; i++) {
        const int64_t axis = p->start_index_map.v[i];
        const int64_t rows = tow_array_type(in[0]).dims[axis] - p->slice_sizes.v[axis] + 1;
        if (note_first(&(lookup){"index", 1, rows, 0}, in, i, n, found)) return;
    }
}

static void search_labels(const tow__equation *e, tow_array *const *in, tow_not_finite *found)
{
    const tow_type logits = tow_array_type(in[0]);
    (void)e;
    note_first(&(lookup){"label", 1, logits.dims[logits.rank - 1], 0}, in, 0, 1, found);
}

static void search_labels_of_product(const tow__equation *e, tow_array *const *in, tow_not_finite *found)
{
    const tow__linear_cross_entropy_params *p = e->params;
    note_first(&(lookup){"label", 2, tow_array_type(in[1]).dims[p->rows ? 0 : 1], 0}, in, 0, 1, found);
}

static const struct {
    const char *primitive;
    void (*search)(const tow__equation *e, tow_array *const *in, tow_not_finite *found);
} lookups[] = {{"gather", search_rows},
               {"gather_general", search_windows},
               {"softmax_cross_entropy", search_labels},
               {"linear_cross_entropy", search_labels_of_product}};

void tow__note_outside(const tow__equation *e, tow_array *const *in, tow_not_finite *found)
{
    for (size_t i = 0; i < sizeof lookups / sizeof *lookups; i++)
        if (strcmp(lookups[i].primitive, e->primitive->name) == 0) lookups[i].search(e, in, found);
}

size_t tow__outside_text(const tow_not_finite *found, char *text, size_t size)
{
    if (!found->outside[0]) return (size_t)snprintf(text, size, "%s", "");
    return (size_t)snprintf(text, size, "%s %lld, expected 0 to %lld; ", found->outside,
                            (long long)found->outside_value, (long long)found->outside_limit - 1);
}
