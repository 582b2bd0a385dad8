/* Element types inside the library: the sets that they form, and single elements, where speed does not matter.
 * TOW_DTYPE_LIST has the types themselves, src/base/numbers.h what they are in C. */
#ifndef TOW_SRC_DTYPES_H
#define TOW_SRC_DTYPES_H

#include "tow/base.h"

enum { /* sets of dtypes: 1 << dtype */
    TOW__HALVES = 1 << TOW_BF16 | 1 << TOW_F16,
    TOW__WIDE_FLOATS = 1 << TOW_F32 | 1 << TOW_F64, /* those that there are arithmetic instructions for */
    TOW__FLOATS = TOW__WIDE_FLOATS | TOW__HALVES,
    TOW__SIGNED = 1 << TOW_I32 | 1 << TOW_I8 | 1 << TOW_I64,
    TOW__UNSIGNED = 1 << TOW_U32 | 1 << TOW_U8 | 1 << TOW_U64,
    TOW__INTEGERS = TOW__SIGNED | TOW__UNSIGNED,
    TOW__NUMBERS = TOW__FLOATS | TOW__INTEGERS,
    TOW__WIDE_NUMBERS = TOW__WIDE_FLOATS | TOW__INTEGERS,
    TOW__WORDS = TOW__WIDE_FLOATS | 1 << TOW_I32 | 1 << TOW_U32, /* numbers that vector kernels are written for */
    TOW__BITS = TOW__INTEGERS | 1 << TOW_BOOL,
    TOW__ANY = TOW__NUMBERS | 1 << TOW_BOOL,
    TOW__BLOCKS = 1 << TOW_Q8_0 | 1 << TOW_Q4_0 | 1 << TOW_Q4_K | 1 << TOW_Q6_K, /* of several numbers (blocks.h) */
    TOW__ANY_OR_BLOCKS = TOW__ANY | TOW__BLOCKS
};
_Static_assert(TOW__ANY == (1 << TOW_DTYPE_END) - 2, "every type of numbers is in one of the sets");
_Static_assert((int)TOW_Q4_0 == 25 && (int)TOW_DTYPE_END <= (int)TOW_Q8_0, "numbers of types never change");
enum {
    TOW__DTYPE_LIMIT = TOW_Q6_K + 1 /* of tables and loops over all types, blocks included */
};

/* False for what is no type. */
static inline bool tow__dtype_in(tow_dtype dtype, unsigned set)
{
    return (unsigned)dtype < TOW__DTYPE_LIMIT && (set >> dtype & 1) != 0;
}
static inline bool tow__is_blocks(tow_dtype dtype) { return tow__dtype_in(dtype, TOW__BLOCKS); }
static inline bool tow__is_half(tow_dtype dtype) { return tow__dtype_in(dtype, TOW__HALVES); }

/* The text that a reader expects in place of an element type. */
#define TOW__NAME_OF_DTYPE(symbol, name, size) " " name
#define TOW__A_DTYPE                           "an element type (one of" TOW_DTYPE_LIST(TOW__NAME_OF_DTYPE) ")"
#define TOW__A_DTYPE_OR_BLOCKS                                                                                         \
    "an element type (one of" TOW_DTYPE_LIST(TOW__NAME_OF_DTYPE) TOW_BLOCK_DTYPE_LIST(TOW__NAME_OF_DTYPE) ")"

/* The type in which values of this type are computed and summed: f32 for floats of 16 bits, else the type itself. */
static inline tow_dtype tow__wide(tow_dtype dtype) { return tow__is_half(dtype) ? TOW_F32 : dtype; }

/* ---- single elements (element.c) --------------------------------------------------------------------------------- */

/* An element by what kind of number it is. */
typedef struct tow__element {
    enum {
        TOW__A_FLOAT,
        TOW__A_SIGNED,
        TOW__AN_UNSIGNED,
        TOW__A_BOOL
    } kind;
    double f;   /* the value of a float, and of the others the nearest number */
    int64_t i;  /* of signed ones */
    uint64_t u; /* of unsigned ones and bools */
} tow__element;
/* Of blocks, `index` counts the numbers in them. */
tow__element tow__load_element(tow_dtype dtype, const void *data, int64_t index);
/* The element nearest to `value` as convert finds it. */
void tow__store_element(tow_dtype dtype, void *data, int64_t index, double value);
/* True if `value` is a number of the type: any for floats, a whole one in range for integers, 0 or 1 for bool. */
bool tow__dtype_holds(tow_dtype dtype, double value);
/* Elements [0, n) of `from` as another type; n numbers, whole blocks, if one of the types is of blocks. */
void tow__convert_elements(tow_dtype to_dtype, void *to, tow_dtype from_dtype, const void *from, int64_t n);
/* The number of decimal digits that tell all numbers of a float type apart. */
int tow__float_digits(tow_dtype dtype);

#endif
