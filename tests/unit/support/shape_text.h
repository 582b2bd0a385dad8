/* Shapes as the scripts of tests/oracle write them in golden files. */
#ifndef TOW_TESTS_SHAPE_TEXT_H
#define TOW_TESTS_SHAPE_TEXT_H

#include <stdio.h>
#include <string.h>

#include "tow/base.h"

/* "4x8"; "scalar" for rank 0. */
static inline const char *shape_text(tow_type type, char text[128])
{
    strcpy(text, type.rank == 0 ? "scalar" : "");
    for (int i = 0; i < type.rank; i++) sprintf(text + strlen(text), i ? "x%lld" : "%lld", (long long)type.dims[i]);
    return text;
}

#endif
