/* Sizes of windows and the spelling of dimension numbers; see window.h. */
#include "src/base/window.h"

#include <string.h>

static const int64_t limit = INT64_C(1) << TOW__WINDOW_BITS;

int64_t tow__dilated(int64_t n, int64_t dilation) { return n > 0 ? (n - 1) * dilation + 1 : 0; }

static bool fits(int64_t n, int64_t dilation)
{
    int64_t product;
    return n >= 0 && n < limit && dilation >= 1 && dilation < limit && !__builtin_mul_overflow(n, dilation, &product) &&
           product < limit;
}

bool tow__window_result(tow__window_axis *a)
{
    a->result = 0;
    if (!fits(a->size, a->base_dilation) || !fits(a->window, a->window_dilation)) return false;
    if (a->stride < 1 || a->stride >= limit) return false;
    if (a->low <= -limit || a->low >= limit || a->high <= -limit || a->high >= limit) return false;
    int64_t room = a->low + a->high + tow__dilated(a->size, a->base_dilation);
    room -= tow__dilated(a->window, a->window_dilation);
    if (room >= 0) a->result = room / a->stride + 1;
    return true;
}

void tow__window_pad_same(tow__window_axis *a, bool lower)
{
    int64_t results = (a->size + a->stride - 1) / a->stride;
    int64_t total = (results - 1) * a->stride + tow__dilated(a->window, a->window_dilation) - a->size;
    if (total < 0) total = 0;
    a->low = lower ? total - total / 2 : total / 2;
    a->high = total - a->low;
}

__extension__ typedef __int128 wide;

static int64_t divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

/* The k in [0, m) with a k = 1 modulo m, for a and m without common divisors. */
static int64_t inverse(int64_t a, int64_t m)
{
    int64_t r0 = m, r1 = a % m, k0 = 0, k1 = 1 % m;
    while (r1 != 0) {
        int64_t q = r0 / r1, r = r0 - q * r1, k = k0 - q * k1;
        r0 = r1, r1 = r, k0 = k1, k1 = k;
    }
    return k0 < 0 ? k0 + m : k0;
}

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

tow__taps tow__window_first_tap(const tow__window_axis *a, int64_t p)
{
    const int64_t start = p * a->stride - a->low;
    tow__taps t = {.step = 1, .element = start, .element_step = a->window_dilation};
    if (a->base_dilation == 1) return t;
    /* start + k * window_dilation is to be a multiple of base_dilation */
    if (a->window_dilation == 1) { /* of a gradient */
        const int64_t rest = start % a->base_dilation;
        t.step = a->base_dilation;
        t.first = rest > 0 ? t.step - rest : -rest;
        t.element = (t.first + start) / a->base_dilation;
        return t;
    }
    const int64_t common = divisor(a->base_dilation, a->window_dilation);
    if (start % common != 0) return (tow__taps){.step = 0};
    t.step = a->base_dilation / common;
    t.element_step = a->window_dilation / common;
    int64_t target = -(start / common) % t.step;
    if (target < 0) target += t.step;
    t.first = (int64_t)((wide)target * inverse(t.element_step, t.step) % t.step);
    t.element = (int64_t)(((wide)t.first * a->window_dilation + start) / a->base_dilation);
    return t;
}

tow__taps tow__window_taps(const tow__window_axis *a, int64_t p)
{
    tow__taps t = tow__window_first_tap(a, p);
    if (t.step == 0) return t;
    if (t.element < 0) {
        int64_t skipped = -floor_div(t.element, t.element_step);
        t.first += skipped * t.step;
        t.element += skipped * t.element_step;
    }
    int64_t by_window = t.first < a->window ? (a->window - 1 - t.first) / t.step + 1 : 0;
    int64_t by_size = t.element < a->size ? (a->size - 1 - t.element) / t.element_step + 1 : 0;
    t.count = by_window < by_size ? by_window : by_size;
    return t;
}

tow__window_axis tow__window_axis_of(const tow__window_params *p, int i, int64_t size)
{
    return (tow__window_axis){.size = size,
                              .window = tow__entry(&p->window, i, 1),
                              .stride = tow__entry(&p->strides, i, 1),
                              .low = tow__entry(&p->low, i, 0),
                              .high = tow__entry(&p->high, i, 0),
                              .base_dilation = tow__entry(&p->base_dilation, i, 1),
                              .window_dilation = tow__entry(&p->window_dilation, i, 1)};
}

/* ---- dimension numbers ------------------------------------------------------------------------------------------- */

static bool is_label(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

/* The labels up to `end`, distinct; 0: they are not. */
static int read_labels(const char **text, char end, char labels[TOW_MAX_RANK])
{
    int n = 0;
    for (; is_label(**text); ++*text) {
        if (n == TOW_MAX_RANK || memchr(labels, **text, (size_t)n) != NULL) return 0;
        labels[n++] = **text;
    }
    if (**text != end) return 0;
    *text += end != '\0';
    return n;
}

static int place(const char *labels, int n, char label)
{
    const char *at = memchr(labels, label, (size_t)n);
    return at != NULL ? (int)(at - labels) : -1;
}

/* Places of `batch`, `feature` and of the spatial labels. */
static bool find_roles(const char *labels, int n, char batch, char feature, const char *spatial, int *axes)
{
    axes[0] = place(labels, n, batch);
    axes[1] = place(labels, n, feature);
    for (int i = 0; i < n - 2; i++) axes[2 + i] = place(labels, n, spatial[i]);
    for (int i = 0; i < n; i++)
        if (axes[i] < 0) return false;
    return true;
}

bool tow__conv_axes_read(const char *text, tow__conv_axes *axes)
{
    char lhs[TOW_MAX_RANK], rhs[TOW_MAX_RANK], out[TOW_MAX_RANK], spatial[TOW_MAX_RANK] = {0};
    if (text == NULL) return false;
    int n = read_labels(&text, ',', lhs), n_rhs = read_labels(&text, '-', rhs), found = 0;
    if (*text++ != '>') return false;
    int n_out = read_labels(&text, '\0', out);
    if (n < 2 || n_rhs != n || n_out != n) return false;
    *axes = (tow__conv_axes){.spatial = n - 2};
    for (int i = 0; i < n; i++)
        if (rhs[i] != 'O' && rhs[i] != 'I' && found < n - 2) spatial[found++] = rhs[i];
    return find_roles(lhs, n, 'N', 'C', spatial, axes->lhs) && find_roles(rhs, n, 'O', 'I', spatial, axes->rhs) &&
           find_roles(out, n, 'N', 'C', spatial, axes->out);
}

void tow__conv_axes_write(const tow__conv_axes *axes, char text[TOW__CONV_TEXT])
{
    static const char *const names[] = {"", "W", "HW", "DHW"};
    const char *spatial = axes->spatial <= 3 ? names[axes->spatial] : "012345";
    const int *arrays[] = {axes->lhs, axes->rhs, axes->out};
    static const char *const ends[] = {",", "->", ""}, roles[][3] = {"NC", "OI", "NC"};
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < 2 + axes->spatial; i++) text[arrays[k][i]] = i < 2 ? roles[k][i] : spatial[i - 2];
        text += 2 + axes->spatial;
        strcpy(text, ends[k]);
        text += strlen(ends[k]);
    }
}

tow__conv_axes tow__conv_axes_last(int spatial)
{
    tow__conv_axes axes = {.spatial = spatial};
    axes.lhs[1] = axes.out[1] = spatial + 1;
    axes.rhs[0] = spatial + 1;
    axes.rhs[1] = spatial;
    for (int i = 0; i < spatial; i++) {
        axes.lhs[2 + i] = axes.out[2 + i] = 1 + i;
        axes.rhs[2 + i] = i;
    }
    return axes;
}

tow__window_axis tow__conv_axis(const tow__conv_params *p, const tow__conv_axes *axes, int i, const int64_t *lhs,
                                const int64_t *rhs)
{
    return (tow__window_axis){.size = lhs[axes->lhs[2 + i]],
                              .window = rhs[axes->rhs[2 + i]],
                              .stride = tow__entry(&p->strides, i, 1),
                              .low = tow__entry(&p->low, i, 0),
                              .high = tow__entry(&p->high, i, 0),
                              .base_dilation = tow__entry(&p->lhs_dilation, i, 1),
                              .window_dilation = tow__entry(&p->rhs_dilation, i, 1)};
}
