/* Shows what the compiler does on its way: the list of passes, and the program after them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/tool/tool.h"

static size_t find_pass(const char *name)
{
    size_t i = 0;
    while (tow_pass_name(i) && strcmp(tow_pass_name(i), name) != 0) i++;
    return i;
}

void tool_print_passes(void)
{
    for (size_t i = 0; tow_pass_name(i); i++) {
        const char *within = tow_pass_within(i);
        printf("%2zu  %s%s%s%s\n      %s\n", i + 1, tow_pass_name(i), within ? ", within " : "", within ? within : "",
               tow_pass_required(i) ? " (required)" : "", tow_pass_reason(i));
    }
}

/* ---- leaving out ------------------------------------------------------------------------------------------------- */

tow_status tool_read_without(tool *t, char *text, const char *names[TOOL_MAX_PASSES + 1])
{
    size_t n = 0;
    for (char *name = strtok(text, ","); name; name = strtok(NULL, ",")) {
        if (n == TOOL_MAX_PASSES)
            return tool_fail(t, TOW_INVALID_ARGUMENT, "--without: more than %d passes", TOOL_MAX_PASSES);
        names[n++] = name;
    }
    names[n] = NULL;
    return n > 0 ? TOW_OK
                 : tool_fail(t, TOW_INVALID_ARGUMENT, "--without: expected names that 'tow plan --passes' lists");
}

/* ---- dumps ------------------------------------------------------------------------------------------------------- */

static void note(tool_dumps *d, const char *pass, const char *function, const char *text, FILE *file)
{
    if (fprintf(file, "# after %s: %s\n%s\n", pass, function, text) < 0 && d->failure[0] == '\0')
        snprintf(d->failure, sizeof d->failure, "%s", strerror(errno));
}

/* NN-PASS-K.txt: the number of the pass in the list, and how often it has run; so files are sorted by pass. */
static void write_dump(tool_dumps *d, size_t index, const char *function, const char *text)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%02zu-%s-%zu.txt", d->directory, index + 1, tow_pass_name(index), ++d->runs[index]);
    FILE *file = fopen(path, "w");
    if (file) note(d, tow_pass_name(index), function, text, file);
    if ((!file || fclose(file) != 0) && d->failure[0] == '\0')
        snprintf(d->failure, sizeof d->failure, "%s: cannot write: %s", path, strerror(errno));
}

static void after_pass(const char *pass, const char *function, const char *text, void *user)
{
    tool_dumps *d = user;
    const size_t index = find_pass(pass);
    if (d->after && strcmp(d->after, pass) == 0) note(d, pass, function, text, stdout);
    if (d->directory && index < TOOL_MAX_PASSES) write_dump(d, index, function, text);
}

static bool is_left_out(const char *pass, const char *const *names)
{
    while (names && *names && strcmp(*names, pass) != 0) names++;
    return names && *names;
}

tow_status tool_begin_dumps(tool *t, tool_dumps *d, tow_compile_options *options)
{
    const tool_options *o = &t->options;
    *d = (tool_dumps){.after = o->dump_after, .directory = o->dump_directory};
    if (!d->after && !d->directory) return TOW_OK;
    const size_t index = d->after != NULL ? find_pass(d->after) : 0;
    if (!tow_pass_name(index))
        return tool_fail(t, TOW_INVALID_ARGUMENT,
                         "--dump-after: no pass '%s'; expected a name that 'tow plan --passes' lists", d->after);
    if (d->after && tow_pass_within(index))
        return tool_fail(t, TOW_INVALID_ARGUMENT,
                         "--dump-after: pass '%s' does its work within '%s'; dump after that one", d->after,
                         tow_pass_within(index));
    if (d->after && is_left_out(d->after, options->without))
        return tool_fail(t, TOW_INVALID_ARGUMENT,
                         "--dump-after: pass '%s' is left out by --without; dump after the pass before it", d->after);
    if (d->directory && mkdir(d->directory, 0777) != 0 && errno != EEXIST)
        return tool_fail(t, TOW_IO_ERROR, "--dump-dir: %s: cannot create: %s", d->directory, strerror(errno));
    options->after_pass = after_pass;
    options->after_pass_user = d;
    return TOW_OK;
}

tow_status tool_end_dumps(tool *t, const tool_dumps *d)
{
    return d->failure[0] == '\0' ? TOW_OK : tool_fail(t, TOW_IO_ERROR, "%s", d->failure);
}
