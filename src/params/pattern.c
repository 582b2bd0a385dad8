/* Patterns of paths. Each star takes as little text as it can. The last star seen is tried again with more text before
 * anything else is, so that the time is at most the product of the lengths. */
#include "src/params/pattern.h"

#include <string.h>

#include "tow/params.h"

/* The last star of one kind. */
typedef struct star {
    const char *behind; /* in the pattern; NULL: none seen */
    const char *taken;  /* behind the text that it has taken so far */
    int number;         /* which star of the pattern it is */
} star;

/* Star `number` has taken text up to `end`. */
static void capture(tow__path_captures *captures, int number, const char *begin, const char *end)
{
    if (!captures || number >= TOW__MAX_CAPTURES) return;
    if (begin) captures->begin[number] = begin;
    captures->end[number] = end;
}

bool tow__path_capture(const char *pattern, const char *path, tow__path_captures *captures)
{
    star single = {0}, twice = {0};
    int stars = 0;
    for (;;) {
        if (pattern[0] == '*') {
            star *s = pattern[1] == '*' ? &twice : &single;
            pattern += pattern[1] == '*' ? 2 : 1;
            *s = (star){pattern, path, stars};
            if (s == &twice) single.behind = NULL;
            capture(captures, stars++, path, path);
        } else if (*pattern == *path && *path) {
            pattern++, path++;
        } else if (*pattern == *path) {
            if (captures) captures->count = stars < TOW__MAX_CAPTURES ? stars : TOW__MAX_CAPTURES;
            return true;
        } else {
            star *s = single.behind && *single.taken && *single.taken != '/' ? &single : &twice;
            if (!s->behind || !*s->taken) return false;
            if (s == &twice) single.behind = NULL;
            pattern = s->behind;
            path = ++s->taken;
            stars = s->number + 1;
            capture(captures, s->number, NULL, path);
        }
    }
}

bool tow_path_matches(const char *pattern, const char *path)
{
    return pattern && path && tow__path_capture(pattern, path, NULL);
}

/* Behind a kind at the beginning of the pattern; "": nothing is there. NULL: it is another kind. */
static const char *behind_kind(const char *pattern, tow_param_kind kind)
{
    if (strncmp(pattern, "//", 2) != 0) return pattern;
    const size_t length = strcspn(pattern + 2, "/");
    const char *name = tow_param_kind_name(kind), *end = pattern + 2 + length;
    if (!name || strlen(name) != length || memcmp(name, pattern + 2, length) != 0) return NULL;
    return *end ? end + 1 : end;
}

bool tow__param_capture(const char *pattern, const char *path, tow_param_kind kind, tow__path_captures *captures)
{
    if (!pattern || !path) return false;
    const char *rest = behind_kind(pattern, kind);
    return rest && ((rest != pattern && !*rest) || tow__path_capture(rest, path, captures));
}

bool tow__param_matches(const char *pattern, const char *path, tow_param_kind kind)
{
    return tow__param_capture(pattern, path, kind, NULL);
}

int tow__pattern_stars(const char *pattern)
{
    int stars = 0;
    for (; *pattern; pattern += pattern[0] == '*' && pattern[1] == '*' ? 2 : 1) stars += *pattern == '*';
    return stars;
}

int tow__replacement_captures(const char *replacement)
{
    int largest = 0;
    for (const char *r = replacement; *r; r++) {
        if (*r != '$') continue;
        r++;
        if (*r == '$') continue;
        if (*r < '0' || *r > '9') return -1;
        if (*r - '0' > largest) largest = *r - '0';
    }
    return largest;
}

bool tow__path_rewrite(const char *pattern, const char *replacement, const char *path, tow_param_kind kind,
                       tow__string *text)
{
    tow__path_captures captures = {0};
    if (!tow__param_capture(pattern, path, kind, &captures)) return false;
    for (const char *r = replacement; *r; r++) {
        if (*r != '$') {
            tow__string_add(text, "%c", *r);
            continue;
        }
        const int k = *++r - '1';
        if (*r == '$')
            tow__string_add(text, "$");
        else if (k == -1)
            tow__string_add(text, "%s", path);
        else if (k >= 0 && k < captures.count)
            tow__string_add(text, "%.*s", (int)(captures.end[k] - captures.begin[k]), captures.begin[k]);
        if (!*r) break;
    }
    return true;
}
