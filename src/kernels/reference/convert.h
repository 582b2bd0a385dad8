/* Conversions between any two element types. */
#ifndef TOW_SRC_KERNELS_REFERENCE_CONVERT_H
#define TOW_SRC_KERNELS_REFERENCE_CONVERT_H

#include "src/kernels/strided.h"

tow__tile tow__convert_tile(tow_dtype from, tow_dtype to);

#endif
