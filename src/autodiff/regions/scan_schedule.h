/* The known loop of a scheduled scan, as scan_partial.c asks for it. */
#ifndef TOW_SRC_SCAN_SCHEDULE_H
#define TOW_SRC_SCAN_SCHEDULE_H

#include "src/autodiff/regions/schedule.h"

/* The known body is part.known: (consts, carries, xs) -> (known outputs, residuals). Residuals that are carries as they
 * are when an iteration begins are states. */
typedef struct tow__scan_sweep {
    const tow__loop_split *l;
    const tow__scan_params *p;
    uint32_t n_consts, n_carry, n_residuals;
    uint32_t *carry_output; /* [n_carry] outputs of the known body that are known carries */
    uint32_t *stack_output; /* [n_stacks] outputs of which all rows are made: ys, then residuals */
    uint32_t n_outputs, n_stacks, n_ys;
    uint32_t *state;           /* [n_residuals] the known carry whose state it is, or TOW__INPUT */
    bool replays;              /* some residual is a state */
    const tow_value *operands; /* of the known body, in the known trace */
    tow_value *kept;           /* [n_carry] kept states [slots + 1, ...], in the known trace */
    tow__tier tier;            /* of which the first ones may be in a file */
} tow__scan_sweep;

/* False: no memory. */
bool tow__scan_sweep_begin(tow__scan_sweep *w, const tow__loop_split *l);
/* Binds the sweep and sets the known results of the scan. residuals: [n_residuals] those that are no states; all of
 * them if the split verifies. */
bool tow__scan_sweep_bind(tow__scan_sweep *w, tow_value *residuals);
/* Binds the replay in the unknown trace. rows: [n_residuals] stacks of those that are states; compared with those of
 * `residuals`, which the sweep has kept, if the split verifies. */
bool tow__scan_sweep_replay(const tow__scan_sweep *w, const tow_value *residuals, tow_value *rows);

#endif
