/* Processes of which a test reads what they print. One test program includes it once, after cmocka and
 * plain_context.h. */
#ifndef TOW_TESTS_PRINTING_PROCESSES_H
#define TOW_TESTS_PRINTING_PROCESSES_H

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/support/plain_context.h"
#include "tow/group.h"

static char printed[1 << 16]; /* by the processes */

/* Runs processes, all of which end, and reads what they print to standard error. */
static inline tow_status run(int count, double watchdog,
                             int (*body)(tow_context *context, tow_group *group, void *user), void *user)
{
    tow_context *own;
    FILE *file = tmpfile();
    assert_non_null(file);
    OK(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1), &own));
    fflush(stderr);
    const int kept = dup(STDERR_FILENO);
    assert_true(kept >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    const tow_status status =
        tow_processes_run(own, &TOW_PROCESSES_OPTIONS(.count = count, .watchdog = watchdog), body, user);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    close(kept);
    rewind(file);
    printed[fread(printed, 1, sizeof printed - 1, file)] = '\0';
    fclose(file);
    tow_context_free(own);
    return status;
}

static inline void expect_printed(const char *part)
{
    if (!strstr(printed, part)) fail_msg("'%s' is not in: %s", part, printed);
}

#endif
