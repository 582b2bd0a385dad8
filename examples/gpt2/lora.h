/* Fine-tuning with LoRA: to the frozen kernel W of every product of the blocks [in, out] a product A B of small rank is added,
 *
 *     W' = W + (alpha / rank) A B,   A [in, rank], B [rank, out],   B = 0 at first
 *
 * (Hu et al., "LoRA: low-rank adaptation of large language models", 2021). The parameters of this model are A and B; those of
 * GPT-2 are its inputs, so they get neither gradients nor slots of the optimiser. */
#ifndef GPT2_LORA_H
#define GPT2_LORA_H

#include "model.h"

typedef struct lora {
    tow_module module;
    const tow_params *base;
    const tow_graph *losses; /* (base..., tokens, labels) -> losses [B, T] */
    int64_t rank;
    double scale; /* alpha / rank */
} lora;

void lora_make(lora *model, const tow_params *base, const tow_graph *losses, int64_t rank, double alpha);
/* Adds the products to the kernels of the base. */
tow_status lora_merge(const lora *model, const tow_params *adapters);

#endif
