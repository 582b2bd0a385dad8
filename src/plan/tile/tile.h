/* Tile groups. */
#ifndef TOW_SRC_PLAN_TILE_H
#define TOW_SRC_PLAN_TILE_H

#include "src/plan/ir.h"

/* Joins instructions that work row by row into loops over blocks of rows. */
tow_status tow__form_tile_groups(tow__function_state *s);
/* Will the function be tiled, or do its products share rows and read weights too large for tiles? *status: whether
 * there was memory to find out. */
bool tow__works_by_rows(tow__function_state *s, tow_status *status);

#endif
