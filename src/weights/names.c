/* Patterns of names: {i} is a number without leading zeros, "*" any text, everything else itself. */
#include "src/weights/mapping.h"

/* Length of {i} at `pattern`, or 0. */
static size_t placeholder(const char *pattern)
{
    const size_t length = pattern[0] == '{' ? strcspn(pattern, "}") : 0;
    return length > 0 && pattern[length] == '}' ? length + 1 : 0;
}

static size_t number_length(const char *name)
{
    const size_t digits = strspn(name, "0123456789");
    return digits > 1 && name[0] == '0' ? 1 : digits;
}

bool tow__pattern_matches(const char *pattern, const char *name, bool stars, tow__numbers *numbers)
{
    const char *star = NULL, *resume = NULL; /* the last "*", and where its text may end next */
    int n_star = 0;
    numbers->n = 0;
    for (;;) {
        const size_t hole = placeholder(pattern), digits = hole > 0 ? number_length(name) : 0;
        if (hole > 0 && digits > 0 && numbers->n < TOW__MAX_NUMBERS) {
            numbers->names[numbers->n] = pattern + 1;
            numbers->digits[numbers->n] = name;
            numbers->lengths[numbers->n++] = (int)digits;
            pattern += hole;
            name += digits;
        } else if (stars && *pattern == '*') {
            star = ++pattern;
            resume = name;
            n_star = numbers->n;
        } else if (hole == 0 && *pattern == *name && *name) {
            pattern++;
            name++;
        } else if (!*pattern && !*name) {
            return true;
        } else {
            if (!star || !*resume) return false;
            pattern = star;
            name = ++resume;
            numbers->n = n_star;
        }
    }
}

/* Two names of {i}, which end with '}'. */
static bool same_hole(const char *a, const char *b)
{
    const size_t length = strcspn(a, "}");
    return strncmp(a, b, length) == 0 && b[length] == '}';
}

void tow__pattern_expand(const char *pattern, const tow__numbers *numbers, tow__string *name)
{
    while (*pattern) {
        const size_t hole = placeholder(pattern), plain = strcspn(pattern + 1, "{") + 1;
        if (hole == 0) {
            tow__string_add(name, "%.*s", (int)plain, pattern);
            pattern += plain;
            continue;
        }
        for (int i = 0; i < numbers->n; i++)
            if (same_hole(pattern + 1, numbers->names[i])) {
                tow__string_add(name, "%.*s", numbers->lengths[i], numbers->digits[i]);
                break;
            }
        pattern += hole;
    }
}

/* The pattern as it is, or without one of the prefixes. */
static bool matches_tensor(const tow_weight_mapping *m, const char *pattern, const char *name, bool stars,
                           tow__numbers *numbers)
{
    if (tow__pattern_matches(pattern, name, stars, numbers)) return true;
    for (size_t i = 0; i < m->n_prefixes; i++) {
        const size_t length = strlen(m->prefixes[i]);
        if (strncmp(pattern, m->prefixes[i], length) == 0 &&
            tow__pattern_matches(pattern + length, name, stars, numbers))
            return true;
    }
    return false;
}

const tow__tensor_rule *tow__mapping_rule(const tow_weight_mapping *m, const char *name, tow__numbers *numbers)
{
    for (size_t r = 0; r < m->n_rules; r++)
        for (int i = 0; i < m->rules[r].n_theirs; i++)
            if (matches_tensor(m, m->rules[r].theirs[i], name, m->rules[r].kind == TOW__RULE_IGNORE, numbers))
                return &m->rules[r];
    return NULL;
}

const tow__tensor_rule *tow__mapping_tied(const tow_weight_mapping *m, const char *name, tow__numbers *numbers)
{
    for (size_t r = 0; r < m->n_rules; r++)
        for (int i = 0; m->rules[r].kind == TOW__RULE_TIED && i < m->rules[r].n_theirs; i++)
            if (matches_tensor(m, m->rules[r].theirs[i], name, false, numbers)) return &m->rules[r];
    return NULL;
}

const tow__tensor_rule *tow__mapping_rule_of_path(const tow_weight_mapping *m, const char *path, int *part,
                                                  tow__numbers *numbers)
{
    for (size_t r = 0; r < m->n_rules; r++)
        for (int i = 0; m->rules[r].kind == TOW__RULE_MAP && i < m->rules[r].n_ours; i++)
            if (tow__pattern_matches(m->rules[r].ours[i], path, false, numbers)) {
                *part = i;
                return &m->rules[r];
            }
    return NULL;
}
