/* Patterns of paths. The last star seen is tried again with more text before anything else is, so that the time is at most
 * the product of the lengths. */
#include "tow/params.h"

bool tow_path_matches(const char *pattern, const char *path)
{
    if (!pattern || !path) return false;
    const char *single = NULL, *single_at = NULL; /* behind the last "*", and the text that it has not taken yet */
    const char *twice = NULL, *twice_at = NULL;   /* the same of the last "**" */
    for (;;) {
        if (pattern[0] == '*' && pattern[1] == '*') {
            twice = pattern += 2;
            twice_at = path;
            single = NULL;
        } else if (pattern[0] == '*') {
            single = ++pattern;
            single_at = path;
        } else if (*pattern == *path && *path) {
            pattern++, path++;
        } else if (*pattern == *path) {
            return true;
        } else if (single && *single_at && *single_at != '/') {
            pattern = single;
            path = ++single_at;
        } else if (twice && *twice_at) {
            pattern = twice;
            path = ++twice_at;
            single = NULL;
        } else {
            return false;
        }
    }
}
