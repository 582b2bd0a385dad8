/* Chooses the kernel that runs a primitive: the first in these tables that accepts the type. Vector kernels come first,
 * their plain C twins last. */
#include "src/kernels/kernel.h"

#include <string.h>

#include "src/kernels/elementwise/fused.h"
#include "src/kernels/tables.h"

static const tow__kernel_table *const tables[] = {
    &tow__kernels_argmax,
    &tow__kernels_attention,
    &tow__kernels_blocks,
    &tow__kernels_collective,
    &tow__kernels_conv,
    &tow__kernels_dot,
    &tow__kernels_dynamic,
    &tow__kernels_elementwise,
    &tow__kernels_fused,
    &tow__kernels_fused_product,
    &tow__kernels_fused_reduce,
    &tow__kernels_host,
    &tow__kernels_index,
    &tow__kernels_linear_cross_entropy,
    &tow__kernels_norm,
    &tow__kernels_pooling,
    &tow__kernels_quantized_dot,
    &tow__kernels_ragged,
    &tow__kernels_random,
    &tow__kernels_reduce,
    &tow__kernels_reduce_part,
    &tow__kernels_same_bits,
    &tow__kernels_softmax,
    &tow__kernels_sort,
    &tow__kernels_spill,
    &tow__kernels_steps,
    &tow__kernels_windows,
    /* from here on plain twins */
    &tow__reference_elementwise,
    &tow__reference_move,
    &tow__reference_reduce,
    &tow__reference_dot,
    &tow__reference_sort,
    &tow__reference_windows,
    &tow__reference_conv,
    &tow__reference_cumulative,
    &tow__reference_pooling,
    &tow__reference_quantized,
};
enum {
    TABLES = sizeof tables / sizeof tables[0],
    TWINS = 10
};

static const tow__kernel *find_from(int first, const char *primitive, tow__variant variant, tow_dtype dtype)
{
    for (int t = first; t < TABLES; t++) {
        for (size_t i = 0; i < tables[t]->count; i++) {
            const tow__kernel *kernel = &tables[t]->kernels[i];
            if (kernel->variant == variant && (kernel->dtypes >> dtype & 1) != 0 &&
                strcmp(kernel->primitive, primitive) == 0)
                return kernel;
        }
    }
    return NULL;
}

const tow__kernel *tow__kernel_find(const char *primitive, tow_dtype dtype)
{
    return find_from(0, primitive, TOW__PLAIN, dtype);
}

const tow__kernel *tow__kernel_variant(const char *primitive, tow__variant variant, tow_dtype dtype)
{
    return find_from(0, primitive, variant, dtype);
}

const tow__kernel *tow__kernel_reference(const char *primitive, tow_dtype dtype)
{
    return find_from(TABLES - TWINS, primitive, TOW__PLAIN, dtype);
}

const char *tow__function_name(tow__function function)
{
    static const char *const names[] = {
        "none",
#define X(name, types) #name,
        TOW__FUNCTION_LIST(X)
#undef X
    };
    return names[function];
}

static tow__tile pick(const tow__kernel_table *table, const tow__pick *picks, const tow__kernel *kernel,
                      const tow__kernel_call *call)
{
    for (size_t i = 0; i < table->count; i++)
        if (&table->kernels[i] == kernel) return picks[i](call);
    return NULL;
}

tow__tile tow__kernel_tile(const tow__kernel *kernel, const tow__kernel_call *call)
{
    tow__tile tile = pick(&tow__kernels_elementwise, tow__picks_elementwise, kernel, call);
    return tile ? tile : pick(&tow__reference_elementwise, tow__picks_reference, kernel, call);
}
