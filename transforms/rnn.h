/* Shared by RNN and Bidirectional. */
#ifndef TOW_TRANSFORMS_RNN_H
#define TOW_TRANSFORMS_RNN_H

#include "tow/recurrent.h"

/* The layer in the remats around it. */
const tow_module *tow__bare_cell(const tow_module *module);

#endif
