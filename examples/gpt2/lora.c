#include "lora.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Kernels of all layers in one array: query, key, value [L, D, H, Dh]; out [L, H, Dh, D]; up and down [L, in, out]. */
typedef struct adapted {
    char name[64]; /* of the scope that A and B are in */
    int64_t L, in, out;
} adapted;

static bool is_adapted(const char *path, tow_type type, adapted *a)
{
    char layer[8], part[32], rest[8];
    if (sscanf(path, "blocks/{}/%7[a-z]/%31[a-z]/%7s", layer, part, rest) != 3 || strcmp(rest, "kernel") != 0)
        return false;
    const int inputs = strcmp(part, "out") == 0 ? 2 : 1;
    snprintf(a->name, sizeof a->name, "%s.%s", layer, part);
    a->L = type.dims[0];
    a->in = a->out = 1;
    for (int i = 1; i < type.rank; i++) *(i <= inputs ? &a->in : &a->out) *= type.dims[i];
    return true;
}

/* base [L, ...] -> base + scale A B */
static tow_value adapt(tow_scope *scope, const lora *m, const adapted *a, tow_value base)
{
    const tow_type type = tow_value_type(base);
    tow_scope *here = tow_scope_begin(scope, a->name);
    tow_value A = tow_param(here, "a", 3, (int64_t[]){a->L, a->in, m->rank}, tow_init_normal(1 / sqrt((double)a->in)));
    tow_value B = tow_param(here, "b", 3, (int64_t[]){a->L, m->rank, a->out}, tow_init_zeros());
    tow_scope_end(here);
    tow_value product = tow_dot_general(A, B,
                                        (tow_dot_dims){.n_batch = 1,
                                                       .lhs_batch = {0},
                                                       .rhs_batch = {0},
                                                       .n_contract = 1,
                                                       .lhs_contract = {2},
                                                       .rhs_contract = {1}}); /* [L, in, out] */
    return tow_add(base, tow_mul_scalar(tow_reshape(product, type.rank, type.dims), m->scale));
}

/* base..., tokens, labels -> losses [B, T] */
static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const lora *m = (const lora *)module;
    tow_value values[GPT2_ARRAYS + 2];
    (void)n_out;
    for (size_t i = 0; i < n_in; i++) {
        adapted a;
        const char *path = tow_params_path(m->base, i); /* NULL behind the base */
        values[i] = path && is_adapted(path, tow_value_type(in[i]), &a) ? adapt(scope, m, &a, in[i]) : in[i];
    }
    tow_inline(tow_scope_trace(scope), m->losses, values, out);
}
static const tow_module_class lora_class = {.name = "LoRA", .call = call};

void lora_make(lora *m, const tow_params *base, const tow_graph *losses, int64_t rank, double alpha)
{
    *m = (lora){.module.cls = &lora_class, .base = base, .losses = losses, .rank = rank, .scale = alpha / (double)rank};
}

/* W [in, out] += scale A [in, rank] B [rank, out] */
static void add_product(const adapted *a, int64_t rank, double scale, const float *A, const float *B, float *W)
{
    for (int64_t i = 0; i < a->in; i++)
        for (int64_t r = 0; r < rank; r++)
            for (int64_t o = 0; o < a->out; o++)
                W[i * a->out + o] += (float)scale * A[i * rank + r] * B[r * a->out + o];
}

tow_status lora_merge(const lora *m, const tow_params *adapters)
{
    for (size_t i = 0; i < tow_params_count(m->base); i++) {
        tow_array *array = tow_params_array(m->base, i), *A, *B;
        adapted a;
        char path[80];
        if (!is_adapted(tow_params_path(m->base, i), tow_array_type(array), &a)) continue;
        snprintf(path, sizeof path, "%s/a", a.name);
        A = tow_params_find(adapters, path);
        snprintf(path, sizeof path, "%s/b", a.name);
        B = tow_params_find(adapters, path);
        if (!A || !B) return TOW_NOT_FOUND;
        for (int64_t l = 0; l < a.L; l++)
            add_product(&a, m->rank, m->scale, (float *)tow_array_data(A) + l * a.in * m->rank,
                        (float *)tow_array_data(B) + l * m->rank * a.out,
                        (float *)tow_array_data(array) + l * a.in * a.out);
    }
    return TOW_OK;
}
