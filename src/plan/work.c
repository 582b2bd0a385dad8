/* Floating-point operations of a step: what its products multiply and add, exactly, and a guess for everything else. */
#include "src/plan/plan.h"

enum {
    PER_ELEMENT = 8 /* of what moves or computes single elements */
};

static double count(const tow__view *x) { return (double)tow_type_count(x->type); }

static double dot_work(const tow__step *step)
{
    const tow__dot_params *p = step->params;
    double depth = 1;
    for (int i = 0; i < p->lhs_contract.n; i++) depth *= (double)step->in[0].type.dims[p->lhs_contract.v[i]];
    return 2 * depth * count(&step->out[0]);
}

/* Pairs of a query and a key that it may see, in one head; a mask, which is not known here, may hide more. */
static double pairs(int64_t queries, int64_t keys, bool causal)
{
    if (!causal) return (double)queries * (double)keys;
    double seeing = (double)(queries < keys ? queries : keys); /* the last one sees all keys, each before it one less */
    return seeing * (double)keys - seeing * (seeing - 1) / 2;
}

/* features: those of a head that products sum or make, all together. q [B, T, H, D], k [B, S, G, D], v [B, S, G, E] */
static double attention_products(const tow__step *step, bool causal, double features)
{
    const int64_t *q = step->in[0].type.dims, *v = step->in[2].type.dims;
    return 2 * features * (double)(q[0] * q[2]) * pairs(q[1], v[1], causal);
}

/* Logits, and what they weigh of v. */
static double attention_work(const tow__step *step)
{
    double d = (double)step->in[0].type.dims[3], e = (double)step->in[2].type.dims[3];
    return attention_products(step, ((const tow__attention_params *)step->params)->causal, d + e);
}

/* Logits again, the cotangents of probabilities, and a product for each gradient. */
static double attention_vjp_work(const tow__step *step)
{
    const tow__attention_ad_params *p = step->params;
    double d = (double)step->in[0].type.dims[3], e = (double)step->in[2].type.dims[3];
    double gradients = (p->wrt & 1 ? d : 0) + (p->wrt & 2 ? d : 0) + (p->wrt & 4 ? e : 0);
    return attention_products(step, p->causal, d + e + gradients);
}

/* x [..., C] and w of C times V elements: logits, and a product for each gradient. */
static double losses(const tow__step *step, uint32_t gradients)
{
    const tow_type *x = &step->in[0].type;
    double features = (double)x->dims[x->rank - 1];
    return features > 0 ? 2 * count(&step->in[0]) * (count(&step->in[1]) / features) * (1 + gradients) : 0;
}

static double loss_work(const tow__step *step) { return losses(step, 0); }
static double loss_vjp_work(const tow__step *step) { return losses(step, step->n_out); }
/* Results: loss, log-sum-exp, gradients. */
static double loss_and_vjp_work(const tow__step *step) { return losses(step, step->n_out - 2); }

/* Updates, and what they change, read and written. */
static double index_add_work(const tow__step *step) { return PER_ELEMENT * 3 * count(&step->in[2]); }

static const struct {
    const char *primitive;
    double (*work)(const tow__step *step);
} works[] = {
    {"dot_general", dot_work},
    {"attention", attention_work},
    {"attention_vjp", attention_vjp_work},
    {"linear_cross_entropy", loss_work},
    {"linear_cross_entropy_vjp", loss_vjp_work},
    {"linear_cross_entropy_and_vjp", loss_and_vjp_work},
    {"index_add", index_add_work},
};

double tow__step_work(const tow__step *step)
{
    for (size_t i = 0; i < sizeof works / sizeof works[0]; i++)
        if (strcmp(works[i].primitive, step->primitive) == 0) return works[i].work(step);
    double elements = 0;
    for (uint32_t i = 0; i < step->n_in; i++) elements += count(&step->in[i]);
    for (uint32_t i = 0; i < step->n_out; i++) elements += count(&step->out[i]);
    return PER_ELEMENT * elements;
}
