/* Reasons of what a plan holds: residuals (explain.c), and the page that shows a plan (page.c, with the data of
 * page_data.c). This folder knows differentiation and plans, which do not know each other. */
#ifndef TOW_SRC_EXPLAIN_H
#define TOW_SRC_EXPLAIN_H

#include "src/graph/variants.h"
#include "src/plan/report/values.h"
#include "tow/autodiff.h"

/* The residuals of a plan, and by their number in the list the storages that hold them; TOW__NONE: none does. */
typedef struct tow__page_residuals {
    const tow_residuals *list;
    const uint32_t *storage;
    size_t n;
} tow__page_residuals;

/* The origin of a program is that of its graph, or of the graph before its stacks were cut; NULL: nothing is known of
 * what it is the gradient of, or a step with the gradient of. */
static inline const tow__origin *tow__origin_of(const tow_program *p)
{
    return p->split.whole ? p->split.whole->origin : p->graph->origin;
}

/* explain.c: the residuals of a program whose graph has an origin, explained; places point into scratch. */
tow_status tow__explain(const tow_program *p, tow__arena *scratch, tow_residuals *list, tow__page_residuals *places);

/* Adds the plan as a JSON object. residuals may be NULL. */
tow_status tow__add_page_plan(tow__string *s, const tow_program *p, const tow__page_residuals *residuals);
/* Whole picoseconds; what is too large becomes the largest. */
int64_t tow__picoseconds(double seconds);

#endif
