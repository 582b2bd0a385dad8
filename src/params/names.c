/* See names.h. */
#include "src/params/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/io/json.h"

/* Digits at *at, behind which it is then. */
static bool read_number(const char **at, int64_t *number)
{
    const size_t digits = strspn(*at, "0123456789");
    *number = digits > 0 && digits < 19 ? strtoll(*at, NULL, 10) : 0;
    *at += digits;
    return digits > 0 && digits < 19;
}

/* "@1" or "@-1" at *at, or nothing. Numbers that are no axis of any array are axes that an array does not have. */
static bool read_axis(const char **at, int *axis)
{
    int64_t number;
    if (**at != '@') return true;
    const bool negative = *++*at == '-';
    *at += negative;
    if (!read_number(at, &number)) return false;
    if (number > 2 * TOW_MAX_RANK) number = 2 * TOW_MAX_RANK;
    *axis = negative ? -(int)number : (int)number;
    return true;
}

bool tow__numbering_read(const char *component, size_t length, tow__numbering *n)
{
    *n = (tow__numbering){.levels = 1, .strides = {1}};
    if (length < 2 || component[0] != '{' || component[length - 1] != '}') return false;
    if (length == 2) return true;
    const char *at = component + 1;
    if (*at == '@') return read_axis(&at, &n->axis) && at == component + length - 1;
    if (!read_number(&at, &n->first) || *at != '+') return false;
    n->levels = 0;
    do {
        at++;
        if (n->levels == TOW_MAX_RANK || !read_number(&at, &n->strides[n->levels]) || n->strides[n->levels] == 0)
            return false;
        n->levels++;
    } while (*at == ',');
    return read_axis(&at, &n->axis) && at == component + length - 1;
}

bool tow__number_read(const char *component, size_t length, int64_t *number)
{
    const size_t digits = strspn(component, "0123456789");
    *number = digits > 0 ? strtoll(component, NULL, 10) : 0;
    return digits > 0 && digits == length && (length == 1 || component[0] != '0');
}

int64_t tow__numbering_layer(const tow__numbering *n, const int64_t *index)
{
    int64_t layer = n->first;
    for (int i = 0; i < n->levels; i++) layer += n->strides[i] * index[i];
    return layer;
}

bool tow__numbering_index(const tow__numbering *n, int64_t layer, int64_t *index)
{
    layer -= n->first;
    for (int i = 0; i < n->levels && layer >= 0; i++) {
        index[i] = layer / n->strides[i];
        layer %= n->strides[i];
    }
    return layer == 0;
}

size_t tow__numbering_write(const tow__numbering *n, char *text)
{
    int length = sprintf(text, "{");
    if (n->levels != 1 || n->first != 0 || n->strides[0] != 1) {
        length += sprintf(text + length, "%" PRId64, n->first);
        for (int i = 0; i < n->levels; i++)
            length += sprintf(text + length, "%c%" PRId64, i ? ',' : '+', n->strides[i]);
    }
    if (n->axis != 0) length += sprintf(text + length, "@%d", n->axis);
    return (size_t)(length + sprintf(text + length, "}"));
}

bool tow__numbering_alike(const tow__numbering *a, const tow__numbering *b)
{
    if (a->levels != b->levels || a->first != b->first) return false;
    for (int i = 0; i < a->levels; i++)
        if (a->strides[i] != b->strides[i]) return false;
    return true;
}

/* ---- paths ------------------------------------------------------------------------------------------------------- */

void tow__path_plain(const char *path, char *plain)
{
    for (;;) {
        tow__numbering numbering;
        const size_t length = strcspn(path, "/");
        if (tow__numbering_read(path, length, &numbering)) {
            numbering.axis = 0;
            plain += tow__numbering_write(&numbering, plain);
        } else {
            memcpy(plain, path, length);
            plain += length;
        }
        *plain = path[length];
        if (!*plain) return;
        plain++;
        path += length + 1;
    }
}

bool tow__path_of_iterations(const char *path, const char *around, int64_t number, int64_t every, char *renamed)
{
    const size_t above = strlen(around);
    if (strncmp(path, around, above) != 0) return false;
    const char *at = path + above;
    if (above > 0 && *at++ != '/') return false;
    if (strncmp(at, "{}", 2) != 0 || (at[2] && at[2] != '/')) return false;
    const tow__numbering numbering = {.levels = 1, .first = number, .strides = {every}};
    memcpy(renamed, path, (size_t)(at - path));
    renamed += at - path;
    renamed += every ? (int)tow__numbering_write(&numbering, renamed) : sprintf(renamed, "%" PRId64, number);
    strcpy(renamed, at + 2);
    return true;
}

bool tow__paths_alike(const char *a, const char *b)
{
    for (;;) {
        tow__numbering first, second;
        const size_t n = strcspn(a, "/"), m = strcspn(b, "/");
        const bool numbered = tow__numbering_read(a, n, &first) && tow__numbering_read(b, m, &second);
        if (numbered ? !tow__numbering_alike(&first, &second) : n != m || memcmp(a, b, n) != 0) return false;
        if (!a[n] || !b[m]) return a[n] == b[m];
        a += n + 1;
        b += m + 1;
    }
}

/* The axes as the numberings say, outermost first, at most `most` of them; returns how many there are. */
static int list_axes(const char *path, int most, int *axes)
{
    int levels = 0;
    for (;;) {
        tow__numbering numbering;
        const size_t length = strcspn(path, "/");
        if (tow__numbering_read(path, length, &numbering))
            for (int i = 0; i < numbering.levels; i++, levels++)
                if (levels < most) axes[levels] = numbering.axis;
        if (!path[length]) return levels;
        path += length + 1;
    }
}

int tow__path_levels(const char *path) { return list_axes(path, 0, NULL); }

int tow__path_axes(const char *path, int rank, int *axes)
{
    int named[TOW_MAX_RANK], left[TOW_MAX_RANK]; /* left: axes that are not taken out yet */
    const int levels = list_axes(path, TOW_MAX_RANK, named);
    if (levels > rank) return -1;
    for (int i = 0; i < rank; i++) left[i] = i;
    for (int l = 0; l < levels; l++) {
        const int at = tow__axis_at(named[l], rank - l);
        if (at < 0) return -1;
        axes[l] = left[at];
        memmove(left + at, left + at + 1, (size_t)(rank - l - at - 1) * sizeof *left);
    }
    return levels;
}

const char *tow__component_fault(const char *name)
{
    if (!name || !name[0]) return "is empty";
    if (strchr(name, '/')) return "has a '/', which separates components";
    tow__numbering numbering;
    if (tow__numbering_read(name, strlen(name), &numbering)) return "stands for the iterations of a scan";
    if (strcmp(name, "__metadata__") == 0) return "is reserved in safetensors files";
    if (!tow__is_utf8(name)) return "is not UTF-8, as names in safetensors files are";
    return NULL;
}
