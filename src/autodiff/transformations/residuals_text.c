/* Lists of residuals as text: one line for each, or with all reasons. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "src/autodiff/transformations/residuals.h"

#define LEAST_SECONDS 5e-13 /* that are not zero with the digits that are shown */

typedef struct sink {
    char *text;
    size_t size, length;
} sink;

__attribute__((format(printf, 2, 3))) static void put(sink *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t left = s->length < s->size ? s->size - s->length : 0;
    int n = vsnprintf(left ? s->text + s->length : NULL, left, format, args);
    va_end(args);
    if (n > 0) s->length += (size_t)n;
}

/* Names may be any text; a residual is one line. */
static void put_escaped(sink *s, const char *text)
{
    for (; *text; text++) put(s, "%s", tow__escape(*text).text);
}

static void put_residual(sink *s, const tow_residual *r)
{
    static const char *const origins[] = {[TOW_RESIDUAL_ARGUMENT] = "from the argument ",
                                          [TOW_RESIDUAL_CONSTANT] = "from a constant",
                                          [TOW_RESIDUAL_NAMED] = "named '",
                                          [TOW_RESIDUAL_OUTPUT] = "output of "};
    put(s, "%s %s", tow__type_name(r->type).text, origins[r->kind]);
    if (r->kind != TOW_RESIDUAL_CONSTANT) put_escaped(s, r->what);
    if (r->kind == TOW_RESIDUAL_NAMED) put(s, "'");
    if (r->of) {
        put(s, " of ");
        put_escaped(s, r->of);
    }
    if (r->here) put(s, " from %s", r->here);
    if (r->scope) {
        put(s, " (");
        put_escaped(s, r->scope);
        put(s, ")");
    }
    put(s, "  %zu bytes\n", r->bytes);
}

static void put_total(sink *s, const tow_residuals *r)
{
    for (size_t i = 0; i < r->n_notes; i++) put(s, "%s\n", r->notes[i]);
    put(s, "%zu residuals, %zu bytes, of which %zu in arguments\n", r->count, r->bytes, r->argument_bytes);
}

size_t tow_residuals_text(const tow_residuals *residuals, char *text, size_t size)
{
    sink s = {.text = text, .size = size};
    if (size) text[0] = 0;
    for (size_t i = 0; i < residuals->count; i++) put_residual(&s, &residuals->items[i]);
    put_total(&s, residuals);
    return s.length;
}

/* ---- reasons ----------------------------------------------------------------------------------------------------- */

/* Four digits, whatever the locale is. */
static void put_seconds(sink *s, double seconds)
{
    static const char *const units[] = {"s", "ms", "us", "ns"};
    int unit = 0, decimals = 0;
    double x = seconds < 0 ? -seconds : seconds;
    for (; unit < 3 && x < 1; unit++) x *= 1000;
    int64_t scale = 1;
    while (decimals < 3 && x * (double)scale < 1000) scale *= 10, decimals++;
    const int64_t n = x * (double)scale < 9e18 ? (int64_t)(x * (double)scale + 0.5) : INT64_MAX;
    put(s, "%" PRId64, n / scale);
    if (decimals > 0) put(s, ".%0*" PRId64, decimals, n % scale);
    put(s, " %s", units[unit]);
}

/* "file.c:12 (blocks/mlp)" behind `before`; nothing where nothing is known. */
static void put_place(sink *s, const char *before, const char *here, const char *scope, uint32_t line)
{
    if (here) put(s, "%s%s", before, here);
    if (!here && line) put(s, "%sline %" PRIu32, before, line);
    if (!scope) return;
    put(s, "%s(", here || line ? " " : before);
    put_escaped(s, scope);
    put(s, ")");
}

static void put_why(sink *s, const tow_residual *r, bool again)
{
    static const char *const answers[] = {[TOW_MUST_RECOMPUTE] = "must recompute",
                                          [TOW_PREFER_RECOMPUTE] = "prefer recompute",
                                          [TOW_PREFER_SAVE] = "prefer save",
                                          [TOW_MUST_SAVE] = "must save"};
    if (r->rule) put(s, "    asked for    by the derivative rule of %s\n", r->rule);
    if (r->kind == TOW_RESIDUAL_ARGUMENT) {
        put(s, "    kept         as an argument, by the caller\n");
    } else if (!again && r->policy && r->verdict < TOW_PREFER_SAVE) {
        put(s, "    kept         as a result of its region, which is read outside of it (");
        put_escaped(s, r->policy);
        put(s, ": %s)\n", answers[r->verdict]);
    } else if (r->policy) {
        put(s, "    %s ", again ? "made again  " : "kept        ");
        put_escaped(s, r->policy);
        put(s, ": %s\n", answers[r->verdict]);
    } else if (!again && r->verdict == TOW_MUST_SAVE) {
        put(s, "    kept         as it might differ if it were made again\n");
    } else {
        put(s, again ? "    made again   by a region\n"
                     : "    kept         no policy was asked: all that is read is kept\n");
    }
}

static void put_readers(sink *s, const tow_residual *r)
{
    for (size_t i = 0; i < r->n_readers; i++) {
        const tow_residual_reader *reader = &r->readers[i];
        put(s, i ? "                 " : "    read by      ");
        put(s, "%s", reader->what);
        if (reader->rule && strcmp(reader->rule, reader->what) != 0) put(s, " of the rule of %s", reader->rule);
        if (reader->again) put(s, ", made again");
        put_place(s, " from ", reader->here, reader->scope, reader->line);
        put(s, "\n");
    }
}

static void put_plan(sink *s, const tow_residual *r, bool again)
{
    const tow_residual_plan *p = &r->plan;
    if (p->stored || (p->held && p->last > 0))
        put(s, "    in the plan  instructions %" PRIu32 " to %" PRIu32, p->first, p->last);
    if (p->stored)
        put(s, ", #%" PRIu32 " of %zu bytes at %zu\n", p->storage, p->bytes, p->offset);
    else if (p->held)
        put(s, "%s%s\n", p->last > 0 ? ", " : "    in the plan  ", p->held);
    if (r->seconds > 0) {
        put(s, "    to make      ");
        put_seconds(s, r->seconds);
        put(s, " by the model, from the operands of its operation\n");
    }
    if (!p->tried) return;
    if (p->bytes_more == 0 && fabs(p->seconds_more) < LEAST_SECONDS) {
        put(s, "    %s the plan is the same\n", again ? "if kept     " : "if not kept ");
        return;
    }
    put(s, "    %s arena %s%" PRId64 " bytes, time %c", again ? "if kept     " : "if not kept ",
        p->bytes_more < 0 ? "" : "+", p->bytes_more, p->seconds_more <= -LEAST_SECONDS ? '-' : '+');
    put_seconds(s, p->seconds_more);
    put(s, " by the model");
    if (p->instead) put(s, "; kept instead: ");
    if (p->instead) put_escaped(s, p->instead);
    put(s, "\n");
}

static void put_reasons(sink *s, const tow_residual *r, bool again)
{
    put_residual(s, r);
    if (!r->here && r->line) put(s, "    written      in line %" PRIu32 " of the text\n", r->line);
    if (r->iterations > 1)
        put(s, "    in a loop    %" PRId64 " iterations, %zu bytes each\n", r->iterations,
            r->bytes / (size_t)r->iterations);
    put_why(s, r, again);
    put_readers(s, r);
    put_plan(s, r, again);
}

size_t tow_residuals_reasons(const tow_residuals *residuals, char *text, size_t size)
{
    sink s = {.text = text, .size = size};
    size_t again = 0;
    if (size) text[0] = 0;
    for (size_t i = 0; i < residuals->count; i++) put_reasons(&s, &residuals->items[i], false);
    put_total(&s, residuals);
    for (size_t i = 0; i < residuals->again_count; i++) {
        if (i == 0) put(&s, "\nmade again by the backward pass:\n");
        put_reasons(&s, &residuals->again[i], true);
        again += residuals->again[i].bytes;
    }
    if (residuals->again_count) put(&s, "%zu values made again, %zu bytes\n", residuals->again_count, again);
    return s.length;
}
