/* Patterns of paths, with the texts that their stars stand for. tow_path_matches is in tow/params.h. */
#ifndef TOW_SRC_PARAMS_PATTERN_H
#define TOW_SRC_PARAMS_PATTERN_H

#include "src/base/base.h"
#include "tow/params.h"

enum {
    TOW__MAX_CAPTURES = 9 /* "$1" to "$9" */
};

/* Star i stands for the text from begin[i] up to end[i] in the path. */
typedef struct tow__path_captures {
    int count;
    const char *begin[TOW__MAX_CAPTURES], *end[TOW__MAX_CAPTURES];
} tow__path_captures;

/* As tow_path_matches. captures may be NULL; it is filled if the path matches. */
bool tow__path_capture(const char *pattern, const char *path, tow__path_captures *captures);
/* The same of a parameter of this kind: the pattern may begin with "//" and the name of a kind. */
bool tow__param_capture(const char *pattern, const char *path, tow_param_kind kind, tow__path_captures *captures);
bool tow__param_matches(const char *pattern, const char *path, tow_param_kind kind);
/* The number of stars of a pattern; two side by side are one. */
int tow__pattern_stars(const char *pattern);
/* The largest k of the "$k" in a replacement, 0 without any; -1 for a '$' before anything but a digit or another
 * '$'. */
int tow__replacement_captures(const char *replacement);
/* Adds the replacement to `text`, with "$k" as the text of star k, "$0" as the whole path and "$$" as '$'. False, and
 * nothing is added, if the parameter does not match. */
bool tow__path_rewrite(const char *pattern, const char *replacement, const char *path, tow_param_kind kind,
                       tow__string *text);

#endif
