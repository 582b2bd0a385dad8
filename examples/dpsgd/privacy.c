/* See privacy.h. The Renyi divergence of order a of one step is, for whole a,
 *     log(sum over k of binomial(a, k) (1-q)^(a-k) q^k exp((k^2 - k) / (2 noise^2))) / (a - 1)
 * (Mironov, Talwar and Zhang, 2019, equation 6); those of steps add up; and a total r of order a gives
 *     epsilon = r + log(1 - 1/a) - log(delta a) / (a - 1)
 * (Canonne, Kamath and Steinke, 2020, proposition 12), of which the smallest over all orders counts. */
#include "privacy.h"

#include <math.h>

enum {
    LARGEST_ORDER = 512
};

/* log(exp(a) + exp(b)) */
static double log_add(double a, double b)
{
    double high = fmax(a, b), low = fmin(a, b);
    return low == -INFINITY ? high : high + log1p(exp(low - high));
}

static double log_binomial(int n, int k) { return lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0); }

static double step_divergence(int order, double rate, double noise)
{
    if (rate == 1) return order / (2 * noise * noise);
    double sum = -INFINITY;
    for (int k = 0; k <= order; k++)
        sum = log_add(sum, log_binomial(order, k) + (order - k) * log1p(-rate) + k * log(rate) +
                               ((double)k * k - k) / (2 * noise * noise));
    return sum / (order - 1);
}

double dp_epsilon(double rate, double noise, int64_t steps, double delta)
{
    if (steps == 0) return 0;
    if (noise == 0) return INFINITY;
    double best = INFINITY;
    for (int order = 2; order <= LARGEST_ORDER; order++) {
        double total = (double)steps * step_divergence(order, rate, noise);
        best = fmin(best, total + log1p(-1.0 / order) - log(delta * order) / (order - 1));
    }
    return fmax(best, 0);
}
