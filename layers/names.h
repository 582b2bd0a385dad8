/* Names as components of paths. */
#ifndef TOW_LAYERS_NAMES_H
#define TOW_LAYERS_NAMES_H

#include "src/base/names.h"

/* A component that stands for the layers of a stack, one for each index of an axis of its array, or of several axes:
 *     "{}"        layers 0, 1, 2, ...
 *     "{1+6}"     layers 1, 7, 13, ...
 *     "{0+3,1}"   layer 3 i + j at [i, j]: scans inside each other that count on */
typedef struct tow__numbering {
    int levels;
    int64_t first, strides[TOW_MAX_RANK];
} tow__numbering;
/* False: it is another component. */
bool tow__numbering_read(const char *component, size_t length, tow__numbering *numbering);
/* The layer at index[0..levels), and the index of a layer; false: the layer is none of these. */
int64_t tow__numbering_layer(const tow__numbering *numbering, const int64_t *index);
bool tow__numbering_index(const tow__numbering *numbering, int64_t layer, int64_t *index);
/* Writes the component; returns its length. Places for 24 * (levels + 1) characters suffice. */
size_t tow__numbering_write(const tow__numbering *numbering, char *text);

/* Why `name` cannot be one component of a path; NULL: it can. Paths are names of tensors in files, so a component is what
 * such a file can hold, and what can be told from its neighbours and from an iteration. */
const char *tow__component_fault(const char *name);

#endif
