/* Names as components of paths. */
#ifndef TOW_SRC_PARAMS_NAMES_H
#define TOW_SRC_PARAMS_NAMES_H

#include "src/base/names.h"

/* A component that stands for the layers of a stack, one for each index of an axis of its array, or of several axes:
 *     "{}"        layers 0, 1, 2, ...
 *     "{1+6}"     layers 1, 7, 13, ...
 *     "{0+3,1}"   layer 3 i + j at [i, j]: scans inside each other that count on
 *     "{@1}", "{1+6@-1}"   the same, where the array has the axis at 1, or as its last one
 *
 * Axes of layers are put in from the innermost one outwards, and .axis is the place in the array that then results,
 * from its end if negative. So the outermost one is taken out first, and what stands behind its component in the path
 * describes the rest. */
typedef struct tow__numbering {
    int levels, axis;
    int64_t first, strides[TOW_MAX_RANK];
} tow__numbering;
/* False: it is another component. */
bool tow__numbering_read(const char *component, size_t length, tow__numbering *numbering);
/* The number of one layer: digits, and no zero before others; INT64_MAX if it is larger. False: it is another
 * component. */
bool tow__number_read(const char *component, size_t length, int64_t *number);
/* The layer at index[0..levels), and the index of a layer; false: the layer is none of these. */
int64_t tow__numbering_layer(const tow__numbering *numbering, const int64_t *index);
bool tow__numbering_index(const tow__numbering *numbering, int64_t layer, int64_t *index);
/* Writes the component; returns its length. Places for TOW__NUMBERING_SIZE characters suffice. */
enum {
    TOW__NUMBERING_SIZE = 24 * (TOW_MAX_RANK + 2)
};
size_t tow__numbering_write(const tow__numbering *numbering, char *text);
/* The same layers; the axes may differ. */
bool tow__numbering_alike(const tow__numbering *a, const tow__numbering *b);
/* Copies `path` to `plain`, which may be shorter than it, without the axes in its numberings: as scopes are called. */
void tow__path_plain(const char *path, char *plain);
/* Writes `path` with layers number, number + every, ... in place of the iterations "{}" that stand behind the path
 * `around`, or, if `every` is 0, with that one: "blocks/{}/attn" becomes "blocks/{1+2}/attn", "blocks/1/attn". False:
 * it is below no iteration of `around`, and nothing is written. Places for strlen(path) + TOW__NUMBERING_SIZE
 * characters suffice. */
bool tow__path_of_iterations(const char *path, const char *around, int64_t number, int64_t every, char *renamed);
/* The paths differ in these axes at most. */
bool tow__paths_alike(const char *a, const char *b);

/* The number of axes of an array that are of layers: those of the numberings in its path. */
int tow__path_levels(const char *path);
/* The places of these among `rank` axes, outermost first, in axes[0..levels). Returns levels; -1: one of them is out of
 * range. */
int tow__path_axes(const char *path, int rank, int *axes);
/* `axis` of `rank` axes, counted from the end if it is negative; -1: out of range. */
static inline int tow__axis_at(int axis, int rank)
{
    const int at = axis < 0 ? axis + rank : axis;
    return at >= 0 && at < rank ? at : -1;
}

/* Why `name` cannot be one component of a path; NULL: it can. Paths are names of tensors in files, so a component is
 * what such a file can hold, and what can be told from its neighbors and from an iteration. */
const char *tow__component_fault(const char *name);

#endif
