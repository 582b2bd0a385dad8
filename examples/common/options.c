/* Command lines by glibc's argp, from tables. */
#include "options.h"

#include <errno.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tow/base.h>

enum {
    FIRST_KEY = 256,
    HELP_BYTES = 256
};

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

int64_t whole_number(struct argp_state *state, const char *name, const char *text, int64_t low, int64_t high)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < low || value > high)
        argp_error(state, "%s: expected a whole number from %lld to %lld, found '%s'", name, (long long)low,
                   (long long)high, text);
    return value;
}

uint64_t seed_number(struct argp_state *state, const char *name, const char *text)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0)
        argp_error(state, "%s: expected a whole number from 0 to 2^64-1, found '%s'", name, text);
    return value;
}

double positive_number(struct argp_state *state, const char *name, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value > 0 && value <= FLT_MAX))
        argp_error(state, "%s: expected a number above 0 and at most %g, found '%s'", name, (double)FLT_MAX, text);
    return value;
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static error_t parse(int key, char *text, struct argp_state *state)
{
    const example_option *table = state->input;
    if (key == ARGP_KEY_ARG) argp_error(state, "unexpected argument '%s'", text);
    if (key < FIRST_KEY || key >= FIRST_KEY + MOST_OPTIONS) return ARGP_ERR_UNKNOWN;
    const example_option *o = &table[key - FIRST_KEY];
    char name[64];
    snprintf(name, sizeof name, "--%s", o->name);
    switch (o->kind) {
    case OPTION_FLAG:
        *(bool *)o->value = true;
        break;
    case OPTION_WHOLE:
        *(int64_t *)o->value = whole_number(state, name, text, o->low, o->high);
        break;
    case OPTION_SEED:
        *(uint64_t *)o->value = seed_number(state, name, text);
        break;
    case OPTION_REAL:
        *(double *)o->value = positive_number(state, name, text);
        break;
    case OPTION_PATH:
        if (text[0] == '\0') argp_error(state, "%s: expected a path, found ''", name);
        *(const char **)o->value = text;
        break;
    case OPTION_TEXT:
        *(const char **)o->value = text;
        break;
    }
    return 0;
}

/* The help with the default behind it, where there is one. */
static void describe(const example_option *o, char text[HELP_BYTES])
{
    int64_t whole = o->kind == OPTION_WHOLE ? *(int64_t *)o->value : 0;
    const char *value = o->kind == OPTION_PATH || o->kind == OPTION_TEXT ? *(const char **)o->value : NULL;
    if (o->kind == OPTION_WHOLE && whole != 0)
        snprintf(text, HELP_BYTES, "%s (%lld)", o->help, (long long)whole);
    else if (o->kind == OPTION_SEED)
        snprintf(text, HELP_BYTES, "%s (%llu)", o->help, (unsigned long long)*(uint64_t *)o->value);
    else if (o->kind == OPTION_REAL)
        snprintf(text, HELP_BYTES, "%s (%g)", o->help, *(double *)o->value);
    else if (value)
        snprintf(text, HELP_BYTES, "%s (%s)", o->help, value);
    else
        snprintf(text, HELP_BYTES, "%s", o->help);
}

void read_command_line(int argc, char **argv, const char *program, const char *purpose, const example_option *table)
{
    struct argp_option rows[MOST_OPTIONS + 1] = {{0}};
    char help[MOST_OPTIONS][HELP_BYTES], version[64];
    for (int i = 0; i < MOST_OPTIONS && table[i].name; i++) {
        describe(&table[i], help[i]);
        rows[i] = (struct argp_option){table[i].name, FIRST_KEY + i, table[i].argument, 0, help[i], 0};
    }
    const struct argp argp = {.options = rows, .parser = parse, .doc = purpose};
    snprintf(version, sizeof version, "%s (Tow) %s", program, TOW_VERSION);
    argp_program_version = version;
    argp_err_exit_status = 2;
    if (argp_parse(&argp, argc, argv, 0, NULL, (void *)(uintptr_t)table) == 0) return;
    fprintf(stderr, "%s: out of memory\n", program); /* not a bad option: those end the program */
    exit(1);
}
