/* LoRA: fine-tuning with low-rank updates of kernels that stay as they are (Hu et al., "LoRA: Low-Rank Adaptation of
 * Large Language Models", 2021). docs/attention.md shows a whole program. */
#ifndef TOW_LORA_H
#define TOW_LORA_H

#include "tow/params.h"
#include "tow/transforms.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- LoRA: a layer whose kernels get updates of low rank --------------------------------------------------------- */
/* The layer `inner`, which sees its kernels as w + alpha/rank a b. Beside a parameter "kernel" stand "LoRA/kernel/a"
 * [in..., rank] and "LoRA/kernel/b" [rank, out...]; b is zeros at first, so that the outputs are those of `inner`.
 * Dense, DenseGeneral and Einsum (whose kernel has its contracted axes first) compute x w + alpha/rank (x a) b without
 * making a b; other layers see the sum, where `in` is all axes but the last one. Names and initial values of `inner` do
 * not change: its parameters load as before. These two calls train the factors alone:
 *     tow_params_freeze(params, NULL, true);
 *     tow_params_freeze(params, TOW_NAMES("**LoRA**"), false);
 * Error: TOW_NOT_FOUND if no parameter matches the filter. */
typedef struct tow_lora {
    tow_module module;
    const tow_module *inner;
    int64_t rank; /* positive */
    double alpha; /* 0: rank */
    const char *const *
        /* patterns (tow_path_matches) of paths below this layer, NULL-terminated; NULL: all kernels
         * (TOW_PARAM_KERNEL) */
        filter;
    tow_initializer a_init; /* he_uniform, as in flax.nnx.LoRA */
    tow_initializer b_init; /* zeros */
} tow_lora;
#define TOW_LORA(...) TOW__WRAPPER(tow_lora, __VA_ARGS__)

TOW_API extern const tow_module_class tow_lora_class;

/* For each "LoRA/kernel/a" and "b" among the parameters, kernel + alpha/rank a b in the array of the kernel (alpha 0:
 * rank, which is that of a). Then `inner` alone gives what the LoRA gave; a and b stay in the list, from which
 * tow_params_split takes them.
 * Stacked layers of scans are folded in together. Errors: TOW_NOT_FOUND without any, or for one whose kernel or b is
 * missing; TOW_SHAPE_MISMATCH; TOW_INVALID_ARGUMENT for an alpha that is not finite. After an error nothing has
 * changed. */
TOW_API tow_status tow_lora_merge(tow_params *params, double alpha);
/* The opposite: kernel - alpha/rank a b. The kernels are what they were before up to rounding; for their very bits,
 * keep a copy. */
TOW_API tow_status tow_lora_unmerge(tow_params *params, double alpha);

#ifdef __cplusplus
}
#endif
#endif
