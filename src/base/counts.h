/* Counts that callers choose, where no list of theirs stands behind them. Sums such as `n + 1` must not wrap, and what
 * is far beyond any use is better refused than allocated. */
#ifndef TOW_SRC_COUNTS_H
#define TOW_SRC_COUNTS_H

#include "src/base/base.h"

enum {
    TOW__MOST_VALUES = 1 << 20 /* that a function, a model or a batch may have */
};

/* TOW_INVALID_ARGUMENT for more. what: the option, as ".n_aux". */
static inline tow_status tow__check_count(tow_context *ctx, const char *function, const char *what, size_t count)
{
    if (count <= TOW__MOST_VALUES) return TOW_OK;
    return tow__fail(ctx, TOW_INVALID_ARGUMENT, "%s: %s: expected at most %d, found %zu", function, what,
                     (int)TOW__MOST_VALUES, count);
}

#endif
