/* Which steps compute rows independently, and how an operand takes part in that.
 *
 * A step splits along axis 0 if block b of its results, rows [b n / blocks, (b + 1) n / blocks), depends only on block
 * b of some operands (split) and on others as a whole. The table below says so for every primitive that can; all others
 * mix rows. What a kernel computes for a row has the same bits whether it is called for all rows or for a block. */
#include "src/plan/plan.h"

/* Fills split[n_in] as if the step were the only one; false: it mixes rows. Results are split, always. */
typedef bool (*row_rule)(const tow__step *step, bool *split);

static int64_t rows(const tow__view *x) { return x->type.rank ? x->type.dims[0] : 0; }

/* Elementwise: scalars are whole, everything else has the shape of the result. */
static bool split_elementwise(const tow__step *step, bool *split)
{
    for (uint32_t i = 0; i < step->n_in; i++) {
        split[i] = step->in[i].type.rank > 0;
        if (split[i] && rows(&step->in[i]) != rows(&step->out[0])) return false;
    }
    return true;
}

/* Rows of all operands that have as many as the result, over whatever axes follow. */
static bool split_all(const tow__step *step, bool *split)
{
    for (uint32_t i = 0; i < step->n_in; i++) {
        split[i] = true;
        if (rows(&step->in[i]) != rows(&step->out[0])) return false;
    }
    return true;
}

static bool split_first(const tow__step *step, bool *split)
{
    split[0] = true;
    return rows(&step->in[0]) == rows(&step->out[0]);
}

static bool split_norm(const tow__step *step, bool *split)
{
    return step->in[0].type.rank > 1 && split_first(step, split);
}

/* (x, scale [, mean], rstd, ct) -> dx; sums over rows are steps of their own (tow__part_sums). */
static bool split_norm_vjp(const tow__step *step, bool *split)
{
    if (((const tow__norm_ad_params *)step->params)->wrt != 1 || step->in[0].type.rank < 2) return false;
    for (uint32_t i = 0; i < step->n_in; i++) split[i] = i != 1;
    return true;
}

static bool split_along_axis(const tow__step *step, bool *split)
{
    return ((const tow__axis_params *)step->params)->axis != 0 && split_all(step, split);
}

static bool split_cumsum(const tow__step *step, bool *split)
{
    return ((const tow__cumsum_params *)step->params)->axis != 0 && split_first(step, split);
}

static bool split_reduction(const tow__step *step, bool *split)
{
    return !tow__ints_contain(&((const tow__axes_params *)step->params)->axes, 0) && split_first(step, split);
}

/* (q, k, v [, ...] [, mask]): sequences; a mask that all sequences share is whole */
static bool split_attention(const tow__step *step, bool *split)
{
    for (uint32_t i = 0; i < step->n_in; i++) {
        split[i] = rows(&step->in[i]) == rows(&step->out[0]);
        if (!split[i] && (i < 3 || rows(&step->in[i]) != 1)) return false;
    }
    return true;
}

/* Rows of the result are rows of the left operand, or axis 0 is a batch axis of both. What a fused epilogue reads
 * besides has the shape of the result. */
static bool split_dot(const tow__step *step, bool *split)
{
    const tow__dot_params *p = step->params;
    for (uint32_t i = 2; i < step->n_in; i++) {
        split[i] = step->in[i].type.rank > 0;
        if (split[i] && rows(&step->in[i]) != rows(&step->out[0])) return false;
    }
    if (p->lhs_batch.n) {
        split[0] = split[1] = true;
        return p->lhs_batch.v[0] == 0 && p->rhs_batch.v[0] == 0;
    }
    split[0] = true;
    return step->in[0].type.rank > 0 && !tow__ints_contain(&p->lhs_contract, 0);
}

/* (table, rows) */
static bool split_gather(const tow__step *step, bool *split)
{
    split[1] = true;
    return rows(&step->in[1]) == rows(&step->out[0]);
}

static bool split_pad(const tow__step *step, bool *split)
{
    const tow__pad_params *p = step->params;
    return p->low.v[0] == 0 && p->high.v[0] == 0 && p->interior.v[0] == 0 && split_first(step, split);
}

/* Beside the elementwise ones, which their kernels' flags tell. reduces: each row, or a part of it, becomes fewer
 * numbers or is compared with them, so that several steps in turn read whole rows. */
static const struct {
    const char *primitive;
    row_rule rule;
    bool reduces;
} rules[] = {
    {"argmax", split_along_axis, true},
    {"attention", split_attention, false},
    {"attention_vjp", split_attention, false},
    {"concatenate", split_along_axis, false},
    {"convert", split_elementwise, false},
    {"copy", split_elementwise, false},
    {"cumsum", split_cumsum, false},
    {"dot_general", split_dot, false},
    {"gather", split_gather, false},
    {"layer_norm", split_norm, true},
    {"layer_norm_vjp", split_norm_vjp, true},
    {"log_softmax", split_along_axis, true},
    {"logsumexp", split_along_axis, true},
    {"pad", split_pad, false},
    {"reduce_and", split_reduction, true},
    {"reduce_max", split_reduction, true},
    {"reduce_min", split_reduction, true},
    {"reduce_or", split_reduction, true},
    {"reduce_prod", split_reduction, true},
    {"reduce_sum", split_reduction, true},
    {"rms_norm", split_norm, true},
    {"rms_norm_vjp", split_norm_vjp, true},
    {"softmax", split_along_axis, true},
    {"softmax_cross_entropy", split_all, true},
    {"softmax_cross_entropy_vjp", split_all, true},
};

bool tow__step_reduces(const tow__step *step)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strcmp(rules[i].primitive, step->primitive) == 0) return rules[i].reduces;
    return false;
}

bool tow__step_splits(const tow__step *step, bool *split)
{
    for (uint32_t i = 0; i < step->n_in; i++) split[i] = false;
    if (!step->kernel || !step->n_out || rows(&step->out[0]) < 2) return false;
    for (uint32_t i = 1; i < step->n_out; i++)
        if (rows(&step->out[i]) != rows(&step->out[0])) return false;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strcmp(rules[i].primitive, step->primitive) == 0) return rules[i].rule(step, split);
    return (step->kernel->flags & TOW__IN_PLACE) && split_elementwise(step, split);
}

/* ---- blocks of rows ---------------------------------------------------------------------------------------------- */

bool tow__balanced(int64_t blocks, int64_t threads)
{
    int64_t rounds = (blocks + threads - 1) / threads;
    return 4 * blocks >= 3 * rounds * threads;
}

int64_t tow__inner_rows(const tow__step *step)
{
    const tow_type *x = &step->in[0].type;
    int64_t inner = x->rank > 1 ? x->dims[1] : 1, count = 1;
    if (strcmp(step->primitive, "dot_general") != 0) return inner;
    const tow__dot_params *p = step->params;
    for (int i = 1; i < x->rank; i++) count *= x->dims[i];
    for (int i = 0; i < p->lhs_contract.n; i++)
        count /= (x->dims[p->lhs_contract.v[i]] ? x->dims[p->lhs_contract.v[i]] : 1);
    return count;
}

bool tow__fits_blocks(const tow_program *p, const tow__view *x, int64_t n)
{
    const tow__storage *s = &p->storages[x->storage];
    int64_t size = (int64_t)tow_dtype_size(x->type.dtype);
    if (s->bytes == 0 || s->bytes % (size_t)(n * size) || x->type.dims[0] % n) return false;
    int64_t part = (int64_t)s->bytes / size / n, per_block = x->type.dims[0] / n;
    int64_t low = x->offset, high = x->offset;
    if (x->strides[0] * per_block != part) return false;
    for (int a = 0; a < x->type.rank; a++) {
        int64_t reach = ((a ? x->type.dims[a] : per_block) - 1) * x->strides[a];
        if (reach < 0)
            low += reach;
        else
            high += reach;
    }
    return low >= 0 && high < part;
}

bool tow__repeats(const tow__view *x) { return x->strides[0] == 0 && x->type.dims[0] > 1; }

/* ---- norms ------------------------------------------------------------------------------------------------------- */

static tow_status add_part(tow_program *p, tow__lowering *l, const tow__step *step, int64_t wrt, uint32_t first_out,
                           uint32_t n_out)
{
    tow__step *part = tow__add_step(l, step->primitive, step->n_in, n_out);
    tow__norm_ad_params *params = tow__arena_copy(&p->memory, step->params, 1, sizeof *params);
    if (!part || !params) return TOW_OUT_OF_MEMORY;
    params->wrt = wrt;
    part->kernel = step->kernel;
    part->params = params;
    part->backward = step->backward;
    part->source = step->source;
    memcpy(part->in, step->in, step->n_in * sizeof *part->in);
    memcpy(part->out, step->out + first_out, n_out * sizeof *part->out);
    return tow__add_scratch(l, part);
}

static bool is_norm_vjp(const tow__step *step)
{
    return strcmp(step->primitive, "layer_norm_vjp") == 0 || strcmp(step->primitive, "rms_norm_vjp") == 0;
}

tow_status tow__part_sums(tow_program *p, tow__plan *plan)
{
    tow__lowering l = {.p = p, .plan = plan, .scratch = &p->memory};
    tow_status status = TOW_OK;
    const tow__step *steps = plan->steps;
    uint32_t n = plan->n_steps;
    plan->steps = NULL;
    plan->n_steps = plan->steps_capacity = 0;
    for (uint32_t i = 0; i < n; i++) {
        int64_t wrt = is_norm_vjp(&steps[i]) ? ((const tow__norm_ad_params *)steps[i].params)->wrt : 0;
        if ((wrt & 1) && wrt != 1) {
            TRY(add_part(p, &l, &steps[i], 1, 0, 1));
            TRY(add_part(p, &l, &steps[i], wrt & ~(int64_t)1, 1, steps[i].n_out - 1));
        } else {
            TRY(tow__keep_step(p, plan, &steps[i]));
        }
    }
done:
    return status;
}
