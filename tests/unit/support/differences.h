/* Derivatives in f64 against central differences whose error is measured. Programs that random_models prints contain a
 * copy of this file.
 *
 * For a direction v, D(h) = (f(x + h v) - f(x - h v)) / 2h is taken at h and h/2. If f has three derivatives
 * between, D(h) - D(h/2) is three times the error of D(h/2) to leading order, and (4 D(h/2) - D(h)) / 3 has an error of
 * h^4 only, so the whole of |D(h) - D(h/2)| covers it. Rounding of f is measured: fourth differences of f at steps so
 * small that f is linear there consist of rounding alone, which divided by h is what it does to D. If the sum of
 * both is not small beside the derivative (a kink between the points, or noise), the direction says nothing, and h goes
 * down. */
#ifndef TOW_TESTS_DIFFERENCES_H
#define TOW_TESTS_DIFFERENCES_H

#include <math.h>

typedef enum finding {
    AGREES,
    UNDECIDED_BY_DIFFERENCES,
    WRONG
} finding;

/* f(x + h v), by h. */
typedef struct line {
    double (*f)(void *user, double h);
    void *user;
} ray;

static double central(const ray *l, double h) { return (l->f(l->user, h) - l->f(l->user, -h)) / (2 * h); }

/* The effect of rounding on f near x. A fourth difference of independent errors e has the size sqrt(70) e. Not less
 * than a few units of the numbers that f and the gradient are made of, which are about 1 even where all of them
 * cancel. */
static double rounding(const ray *l)
{
    const double weights[] = {1, -4, 6, -4, 1};
    double sum = 0, f = 0;
    for (int i = 0; i < 5; i++) sum += weights[i] * (f = l->f(l->user, (i - 2) * 1e-9));
    return fmax(fabs(sum) / 8, 4 * 0x1p-53 * fmax(1, fabs(f)));
}

/* derivative: along v, as it was computed; size: of the gradient that it comes from. */
static finding compare_derivative(const ray *l, double h, double derivative, double size, double *expected)
{
    const double a = central(l, h), b = central(l, h / 2);
    *expected = (4 * b - a) / 3;
    const double error = fabs(a - b) + 20 * rounding(l) / h;
    if (!(error < 1e-4 * (1e-3 + fabs(*expected) + size))) return UNDECIDED_BY_DIFFERENCES;
    return fabs(derivative - *expected) <= error ? AGREES : WRONG;
}

#endif
