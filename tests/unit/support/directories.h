/* Directories of tests. */
#ifndef TOW_TESTS_DIRECTORIES_H
#define TOW_TESTS_DIRECTORIES_H

#include <stdio.h>
#include <stdlib.h>

/* Removes a directory, whose path has no quotes, with all that is in it; 0: it is gone. */
static inline int remove_directory(const char *path)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    return system(command);
}

#endif
