/* Columns: arrays with an item for each storage, which passes borrow. */
#ifndef TOW_SRC_PLAN_COLUMNS_H
#define TOW_SRC_PLAN_COLUMNS_H

#include "src/plan/ir.h"

/* An array with an item of so many bytes for each storage that there is, every byte `blank`. Give it back in the end,
 * unless the program is given up. NULL: out of memory. */
void *tow__borrow(tow_program *p, tow__arena *scratch, size_t size, int blank);
/* Makes one item blank again. */
void tow__blank(const tow_program *p, const void *column, uint32_t storage);
/* All items that are not blank belong to storages that instructions[which[0]], ..., instructions[which[n - 1]] read or
 * write. which NULL: the first n instructions. */
void tow__give_back(tow_program *p, const void *column, const tow__instruction *insts, uint32_t n,
                    const uint32_t *which);
/* All items that are not blank belong to these storages. */
void tow__give_back_named(tow_program *p, const void *column, const uint32_t *storages, uint32_t n);

#endif
