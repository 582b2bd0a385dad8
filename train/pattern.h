/* Patterns of paths of parameters. */
#ifndef TOW_TRAIN_PATTERN_H
#define TOW_TRAIN_PATTERN_H

#include <stdbool.h>

/* "*" stands for any text without '/', "**" for any text, everything else for itself. */
bool tow__path_matches(const char *pattern, const char *path);

#endif
