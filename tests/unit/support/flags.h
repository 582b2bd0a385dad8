/* Arguments of test programs: "--name number", "--name text", "--name". */
#ifndef TOW_TESTS_FLAGS_H
#define TOW_TESTS_FLAGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* One of the pointers is there. */
typedef struct flag {
    const char *name;
    uint32_t *number;
    const char **text;
    bool *truth;
} flag;

/* False: an argument is not known, or has no value. */
static inline bool read_flags(int argc, char **argv, size_t n, const flag *known)
{
    for (int i = 1; i < argc; i++) {
        size_t k = 0;
        while (k < n && strcmp(known[k].name, argv[i]) != 0) k++;
        if (k == n || (!known[k].truth && i + 1 == argc)) return false;
        if (known[k].truth)
            *known[k].truth = true;
        else if (known[k].text)
            *known[k].text = argv[++i];
        else
            *known[k].number = (uint32_t)strtoul(argv[++i], NULL, 10);
    }
    return true;
}

#endif
