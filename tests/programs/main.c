/* random_programs: random programs in every construct that graphs have, each checked for what Tow promises. A program
 * that fails is shrunk and written as a .tow file, which begins with what is wrong and the command that repeats it.
 *
 *     random_programs [--first SEED] [--count N] [--most FAILURES] [--check NAME,...] [--output PREFIX] [--progress]
 *                     [--large]
 *         programs SEED, SEED + 1, ...; those that fail go to PREFIX_SEED.tow, else to the standard output; --large:
 *         fewer operations, on so many numbers that plans cut them in blocks for threads and caches
 *     random_programs --file FILE [--first SEED] [--check NAME,...]
 *         the program in FILE; SEED says which variants checks take
 *     random_programs --print --first SEED        prints a program and nothing else
 *
 * For tests of these tests: --fault NAME plants an operation that is wrong (fault.c) into every program, --break CHECK
 * makes a check go wrong in programs that contain a certain primitive, --keep shrinks nothing. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tests/programs/draw.h"
#include "tests/programs/fault.h"
#include "tests/programs/programs.h"
#include "tests/unit/support/flags.h"

typedef struct options {
    uint32_t first, count, most;
    const char *checks, *output, *file, *fault, *broken;
    bool progress, print, keep, large;
} options;

typedef struct totals {
    uint32_t programs, failures;
    uint64_t passed, undecided, equations;
} totals;

/* ---- one program ------------------------------------------------------------------------------------------------- */

static bool is_wanted(const options *o, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = o->checks; at && (at = strstr(at, name)) != NULL; at += length)
        if ((at == o->checks || at[-1] == ',') && (at[length] == ',' || at[length] == '\0')) return true;
    return o->checks == NULL;
}

/* A failure that is being shrunk: of one check, in bits or in something else, of a program that has a gradient or
 * not. */
typedef struct failure {
    trial trial;
    const check *check;
    bool bits, gradient;
    char message[MESSAGE], last[MESSAGE];
} failure;

static bool is_of_bits(const char *message) { return strstr(message, ", number ") != NULL; }

static bool has_gradient(const tow_graph *g)
{
    tow_graph *gradient = gradient_of(g);
    tow_graph_release(gradient);
    return gradient != NULL;
}

static bool still_fails(const tow_graph *g, void *user)
{
    failure *f = user;
    trial t = f->trial;
    if (f->gradient && !has_gradient(g)) return false;
    t.graph = g;
    t.message = f->last;
    if (f->check->run(&t) != FAILS || is_of_bits(f->last) != f->bits) return false;
    memcpy(f->message, f->last, sizeof f->message);
    return true;
}

/* Lines of a message as comments. */
static void print_comment(FILE *file, const char *text)
{
    fputs("# ", file);
    for (; *text; text++) fputs(*text == '\n' ? "\n# " : (char[]){*text, '\0'}, file);
    fputc('\n', file);
}

static void report(const options *o, const tow_graph *g, failure *f)
{
    char path[512] = "FILE";
    FILE *file = stdout;
    fprintf(stderr, "program %" PRIu32 ", %s: %s\n", f->trial.seed, f->check->name, f->message);
    tow_graph *small = tow_graph_retain((tow_graph *)(uintptr_t)g);
    if (!o->keep) small = shrink(small, still_fails, f);
    if (o->output) {
        snprintf(path, sizeof path, "%s_%" PRIu32 ".tow", o->output, f->trial.seed);
        if ((file = fopen(path, "w")) == NULL) file = stdout, perror(path);
    }
    fprintf(file, "# Program %" PRIu32 " fails the check %s (%s).\n", f->trial.seed, f->check->name, f->check->what);
    print_comment(file, f->message);
    fprintf(file, "# Repeat: random_programs --file %s --first %" PRIu32 " --check %s\n", path, f->trial.seed,
            f->check->name);
    fprintf(file, "# As drawn: random_programs --first %" PRIu32 " --count 1 --check %s\n", f->trial.seed,
            f->check->name);
    char *text = text_of(small);
    fputs(text, file);
    free(text);
    if (file == stdout)
        fflush(file);
    else
        fclose(file);
    tow_graph_release(small);
}

/* All checks; the first failure is reported. */
static void check_program(const options *o, const trial *given, totals *t)
{
    failure f = {.trial = *given};
    t->programs++;
    t->equations += tow_graph_primitive_count(given->graph, NULL);
    for (size_t i = 0; i < n_checks; i++) {
        if (!is_wanted(o, checks[i].name)) continue;
        f.trial.message = f.message;
        const verdict v = checks[i].run(&f.trial);
        t->passed += v == PASSES;
        t->undecided += v == UNDECIDED;
        if (v != FAILS) continue;
        f.check = &checks[i];
        f.bits = is_of_bits(f.message);
        f.gradient = has_gradient(given->graph);
        t->failures++;
        report(o, given->graph, &f);
        return;
    }
}

/* ---- many programs ----------------------------------------------------------------------------------------------- */

static tow_context *new_context(bool portable)
{
    tow_context *context = NULL;
    const tow_context_options two = TOW_CONTEXT_OPTIONS(.threads = 2, .portable_bits = portable);
    if (tow_context_create(&two, &context) == TOW_OK && define_faults(context)) return context;
    fprintf(stderr, "random_programs: %s\n", tow_context_error(context));
    exit(2);
}

static tow_graph *read_file(tow_context *context, const char *path)
{
    FILE *file = fopen(path, "rb");
    tow_graph *g = NULL;
    if (file == NULL) {
        perror(path);
        exit(2);
    }
    fseek(file, 0, SEEK_END);
    const long length = ftell(file);
    rewind(file);
    char *text = calloc((size_t)length + 1, 1);
    if (text == NULL || fread(text, 1, (size_t)length, file) != (size_t)length) abort();
    fclose(file);
    if (tow_graph_parse(context, text, &g) != TOW_OK) {
        fprintf(stderr, "%s: %s\n", path, tow_context_error(context));
        exit(2);
    }
    free(text);
    return g;
}

static void run_one(const options *o, uint32_t seed, trial *t, totals *all)
{
    tow_graph *g = o->file ? read_file(t->plain, o->file) : draw_program(t->plain, seed, o->fault, o->large);
    if (g == NULL) {
        fprintf(stderr, "program %" PRIu32 " cannot be drawn: %s\n", seed, tow_context_error(t->plain));
        all->failures++;
        return;
    }
    t->graph = g;
    t->seed = seed;
    if (o->print)
        tow_graph_print(g, stdout);
    else
        check_program(o, t, all);
    tow_graph_release(g);
}

static bool read_options(int argc, char **argv, options *o)
{
    const flag known[] = {{"--first", &o->first, NULL, NULL},       {"--count", &o->count, NULL, NULL},
                          {"--most", &o->most, NULL, NULL},         {"--check", NULL, &o->checks, NULL},
                          {"--output", NULL, &o->output, NULL},     {"--file", NULL, &o->file, NULL},
                          {"--fault", NULL, &o->fault, NULL},       {"--break", NULL, &o->broken, NULL},
                          {"--progress", NULL, NULL, &o->progress}, {"--print", NULL, NULL, &o->print},
                          {"--keep", NULL, NULL, &o->keep},         {"--large", NULL, NULL, &o->large}};
    if (!read_flags(argc, argv, sizeof known / sizeof *known, known)) return false;
    return !o->fault || is_fault(o->fault);
}

int main(int argc, char **argv)
{
    options o = {.count = 100, .most = 1};
    totals all = {0};
    if (!read_options(argc, argv, &o)) {
        fprintf(stderr, "random_programs: the head of tests/programs/main.c says what the arguments are\n");
        return 2;
    }
    if (o.file || o.print) o.count = 1;
    trial t = {.plain = new_context(false), .portable = new_context(true), .broken = o.broken};
    for (uint32_t i = 0; i < o.count && all.failures < o.most; i++) {
        run_one(&o, o.first + i, &t, &all);
        if (o.progress && (i + 1) % 100 == 0)
            fprintf(stderr, "%" PRIu32 " programs, %" PRIu32 " failures\n", i + 1, all.failures);
    }
    if (!o.print)
        printf("%" PRIu32 " programs from %" PRIu32 " on, %" PRIu64 " equations: %" PRIu32 " failures; %" PRIu64
               " checks passed, %" PRIu64 " undecided\n",
               all.programs, o.first, all.equations, all.failures, all.passed, all.undecided);
    tow_context_free(t.plain);
    tow_context_free(t.portable);
    return all.failures > 0;
}
