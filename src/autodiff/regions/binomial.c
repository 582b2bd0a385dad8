/* Arithmetic of binomial schedules.
 *
 *   reach(s, t) = C(s + t, t)    iterations that can be reversed with s kept states, each running forward at most t
 *                                times before it runs beside its derivative
 *   steps(n, s) = n + t n - C(s + t, t - 1)    forward iterations for n, with the least t for which reach(s, t) >= n
 *
 * A. Griewank, A. Walther: Algorithm 799: Revolve, ACM Transactions on Mathematical Software 26 (2000). First advances
 * m attain the minimum if n - reach(s - 1, t) <= m <= n - reach(s - 1, t - 1) and reach(s, t - 2) <=
 * m <= reach(s, t - 1); the smallest one is taken. */
#include "src/autodiff/regions/schedule.h"

/* C(a + b, b), at most `most`. */
static int64_t choose_at_most(int64_t a, int64_t b, int64_t most)
{
    if (a > b) return choose_at_most(b, a, most);
    int64_t c = 1;
    for (int64_t k = 1; k <= a && c < most; k++) c = c * (b + k) / k; /* C(b + k, k) <= most (b + k) fits */
    return c < most ? c : most;
}

int64_t tow__binomial_reach(int64_t slots, int64_t repetitions, int64_t most)
{
    return choose_at_most(slots, repetitions, most);
}

int64_t tow__binomial_repetitions(int64_t n, int64_t slots)
{
    int64_t t = 0;
    if (slots == 1) return n - 1;
    while (tow__binomial_reach(slots, t, n) < n) t++;
    return t;
}

int64_t tow__binomial_split(int64_t n, int64_t slots)
{
    const int64_t t = tow__binomial_repetitions(n, slots), m = n - tow__binomial_reach(slots - 1, t, n);
    const int64_t least = tow__binomial_reach(slots, t > 2 ? t - 2 : 0, n);
    return m > least ? m : least;
}

int64_t tow__binomial_steps(int64_t n, int64_t slots)
{
    const int64_t t = n > 0 ? tow__binomial_repetitions(n, slots) : 0;
    return t == 0 ? n : n + t * n - choose_at_most(slots + 1, t - 1, INT64_MAX / (slots + t));
}

void tow__binomial_positions(int64_t n, int64_t slots, int32_t *positions)
{
    int64_t position = 0;
    for (int64_t s = 0; s < slots; s++) {
        positions[s] = (int32_t)position;
        if (s + 1 < slots) position += tow__binomial_split(n - position, slots - s);
    }
    positions[slots] = (int32_t)(n - 1);
}
