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

/* Forward, logits and what they weigh of v; backward, logits again, the cotangents of probabilities, and a product for
 * each gradient. q [B, T, H, D], k [B, S, G, D], v [B, S, G, E] */
static double attention_work(const tow__step *step, bool backward)
{
    const int64_t *q = step->in[0].type.dims, *v = step->in[2].type.dims;
    double d = (double)q[3], e = (double)v[3], width = d + e;
    bool causal;
    if (backward) {
        const tow__attention_ad_params *p = step->params;
        causal = p->causal;
        width += (p->wrt & 1 ? d : 0) + (p->wrt & 2 ? d : 0) + (p->wrt & 4 ? e : 0);
    } else {
        causal = ((const tow__attention_params *)step->params)->causal;
    }
    return 2 * width * (double)(q[0] * q[2]) * pairs(q[1], v[1], causal);
}

/* x [..., C] and w of C times V elements: logits, and a product for each gradient. */
static double linear_cross_entropy_work(const tow__step *step, uint32_t gradients)
{
    const tow_type *x = &step->in[0].type;
    double features = (double)x->dims[x->rank - 1];
    return features > 0 ? 2 * count(&step->in[0]) * (count(&step->in[1]) / features) * (1 + gradients) : 0;
}

double tow__step_work(const tow__step *step)
{
    const char *name = step->primitive;
    if (strcmp(name, "dot_general") == 0) return dot_work(step);
    if (strcmp(name, "attention") == 0) return attention_work(step, false);
    if (strcmp(name, "attention_vjp") == 0) return attention_work(step, true);
    if (strcmp(name, "linear_cross_entropy") == 0) return linear_cross_entropy_work(step, 0);
    if (strcmp(name, "linear_cross_entropy_vjp") == 0) return linear_cross_entropy_work(step, step->n_out);
    if (strcmp(name, "linear_cross_entropy_and_vjp") == 0) return linear_cross_entropy_work(step, step->n_out - 2);
    if (strcmp(name, "index_add") == 0) return PER_ELEMENT * 3 * count(&step->in[2]); /* updates, what they change */
    double elements = 0;
    for (uint32_t i = 0; i < step->n_in; i++) elements += count(&step->in[i]);
    for (uint32_t i = 0; i < step->n_out; i++) elements += count(&step->out[i]);
    return PER_ELEMENT * elements;
}
