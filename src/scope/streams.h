/* Random keys of streams. */
#ifndef TOW_SRC_SCOPE_STREAMS_H
#define TOW_SRC_SCOPE_STREAMS_H

#include "src/scope/scope.h"

/* Key of draw `counter` of `scope` on the host: Flax's rule, with index[depth] the iterations of the scans around. */
tow__key tow__scope_key(const tow_scope *scope, tow__key root, const int64_t *index, uint32_t counter);

#endif
