/* The types of tensors in GGUF files. */
#include "src/io/gguf.h"

static const tow__gguf_dtype dtypes[] = {
    [0] = {"F32", 1, 4, TOW_F32, TOW__STORED_PLAIN},
    [1] = {"F16", 1, 2, TOW_F16, TOW__STORED_PLAIN},
    [2] = {"Q4_0", 32, 18, TOW_F32, TOW__STORED_Q4_0},
    [3] = {"Q4_1", 32, 20},
    [6] = {"Q5_0", 32, 22},
    [7] = {"Q5_1", 32, 24},
    [8] = {"Q8_0", 32, 34, TOW_F32, TOW__STORED_Q8_0},
    [9] = {"Q8_1", 32, 40},
    [10] = {"Q2_K", 256, 84},
    [11] = {"Q3_K", 256, 110},
    [12] = {"Q4_K", 256, 144, TOW_F32, TOW__STORED_Q4_K},
    [13] = {"Q5_K", 256, 176},
    [14] = {"Q6_K", 256, 210, TOW_F32, TOW__STORED_Q6_K},
    [15] = {"Q8_K", 256, 292},
    [16] = {"IQ2_XXS", 256, 66},
    [17] = {"IQ2_XS", 256, 74},
    [18] = {"IQ3_XXS", 256, 98},
    [19] = {"IQ1_S", 256, 50},
    [20] = {"IQ4_NL", 32, 18},
    [21] = {"IQ3_S", 256, 110},
    [22] = {"IQ2_S", 256, 82},
    [23] = {"IQ4_XS", 256, 136},
    [24] = {"I8", 1, 1, TOW_I8, TOW__STORED_PLAIN},
    [25] = {"I16", 1, 2, TOW_I32, TOW__STORED_I16},
    [26] = {"I32", 1, 4, TOW_I32, TOW__STORED_PLAIN},
    [27] = {"I64", 1, 8, TOW_I64, TOW__STORED_PLAIN},
    [28] = {"F64", 1, 8, TOW_F64, TOW__STORED_PLAIN},
    [29] = {"IQ1_M", 256, 56},
    [30] = {"BF16", 1, 2, TOW_BF16, TOW__STORED_PLAIN},
    [34] = {"TQ1_0", 256, 54},
    [35] = {"TQ2_0", 256, 66},
    [39] = {"MXFP4", 32, 17},
    [40] = {"NVFP4", 64, 36},
    [41] = {"Q1_0", 128, 18},
};
enum {
    N_DTYPES = sizeof dtypes / sizeof dtypes[0]
};

const tow__gguf_dtype *tow__gguf_dtype_of(uint32_t number)
{
    return number < N_DTYPES && dtypes[number].name ? &dtypes[number] : NULL;
}

uint32_t tow__gguf_number_of(tow_dtype dtype, int stored)
{
    for (uint32_t i = 0; i < N_DTYPES; i++)
        if (dtypes[i].tow == (int)dtype && dtypes[i].stored == stored) return i;
    return UINT32_MAX;
}
