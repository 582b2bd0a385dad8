/* Pictures of the ensemble. */
#ifndef ENSEMBLE_PICTURES_H
#define ENSEMBLE_PICTURES_H

#include "evaluate.h"

/* votes.png: images about which the members agree most and least, with what each of them says. calibration.svg: how
 * often answers are right over how sure they are. disagreement.svg: the part of each kind of images about which the
 * members disagree more than so much. Prints a message of `program` without memory. */
tow_status draw_pictures(const char *program, const evaluation *e, const char *directory);

#endif
