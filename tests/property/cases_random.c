/* Threefry 2x32 with 20 rounds, after Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011, and what is
 * drawn from it. Exact.
 * Tests kernels/random/random.c. */
#include "tests/property/property.h"

static uint32_t rotated(uint32_t x, int by) { return x << by | x >> (32 - by); }

static void threefry(uint32_t k0, uint32_t k1, uint32_t x[2])
{
    static const int rotations[8] = {13, 15, 26, 6, 17, 29, 16, 24};
    const uint32_t keys[3] = {k0, k1, k0 ^ k1 ^ 0x1BD11BDA};
    x[0] += keys[0];
    x[1] += keys[1];
    for (uint32_t round = 0; round < 20; round++) {
        x[0] += x[1];
        x[1] = rotated(x[1], rotations[round % 8]) ^ x[0];
        if (round % 4 != 3) continue;
        const uint32_t s = round / 4 + 1; /* inject the keys after every fourth round */
        x[0] += keys[s % 3];
        x[1] += keys[(s + 1) % 3] + s;
    }
}

static void hash(const property_case *c, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < property_count(&c->in[0]); i++) {
        uint32_t x[2] = {(uint32_t)in[2][i], (uint32_t)in[3][i]};
        threefry((uint32_t)in[0][i], (uint32_t)in[1][i], x);
        out[0][i] = x[0];
        out[1][i] = x[1];
    }
}

/* Known answers of the authors' own test vectors. */
static void known_zeros(const property_case *c, double *const *in, double *const *out)
{
    (void)c, (void)in;
    out[0][0] = 0x6b200159;
    out[1][0] = 0x99ba4efe;
}
static void known_ones(const property_case *c, double *const *in, double *const *out)
{
    (void)c, (void)in;
    out[0][0] = 0x1cb996fc;
    out[1][0] = 0xbb002be7;
}

/* Element i of a draw: the two words at counter (0, i), xor'ed. */
static uint32_t drawn(const double *key, int64_t i)
{
    uint32_t x[2] = {0, (uint32_t)i};
    threefry((uint32_t)key[0], (uint32_t)key[1], x);
    return x[0] ^ x[1];
}

static void bits(const property_case *c, double *const *in, double *const *out)
{
    const tow__ints *shape = &((const tow__shape_params *)c->params)->shape;
    int64_t count = 1;
    for (int d = 0; d < shape->n; d++) count *= shape->v[d];
    for (int64_t i = 0; i < count; i++) out[0][i] = drawn(in[0], i);
}

/* x / keep where the uniform number of 23 bits is below keep; x is [3, 8]; axes in `broadcast` share one draw. */
static void dropout(const property_case *c, double *const *in, double *const *out)
{
    const tow__dropout_params *p = c->params;
    const double keep = 1 - p->rate;
    for (int64_t i = 0; i < 24; i++) {
        const int64_t at = p->broadcast.n == 0 ? i : i % 8; /* one row for all if axis 0 is shared */
        const bool kept = keep == 1 || (keep > 0 && (double)(drawn(in[1], at) >> 9) / (1 << 23) < (double)(float)keep);
        out[0][i] = kept ? in[0][i] / keep : 0;
    }
}

/* "both 0" would mean the default range: a range that holds one integer. */
#define WORD(value)                                                                                                    \
    {                                                                                                                  \
        .dtype = TOW_U32, S0, .low = value, .high = value + 0.5                                                        \
    }
#define WORDS                                                                                                          \
    {                                                                                                                  \
        .dtype = TOW_U32, S1(6), .low = 0, .high = 4294967295.0                                                        \
    }
#define KEY                                                                                                            \
    {                                                                                                                  \
        .dtype = TOW_U32, S1(2), .low = 0, .high = 4294967295.0                                                        \
    }
#define X                                                                                                              \
    {                                                                                                                  \
        .dtype = TOW_F64, S2(3, 8), .low = 0.5, .high = 2                                                              \
    }

static const tow__shape_params shape = {INTS(3, 5)}, none = {INTS(0)}, one = {{.n = 0}};
static const tow__dropout_params half = {.rate = 0.5}, tenth = {.rate = 0.1},
                                 shared = {.rate = 0.5, .broadcast = INTS(0)};
static const tow__dropout_params never = {.rate = 0}, always = {.rate = 1};

static const property_case cases[] = {
    {.primitive = "threefry2x32", .n_in = 4, .n_out = 2, .value = hash, .in = {WORDS, WORDS, WORDS, WORDS}},
    {.primitive = "threefry2x32",
     .label = "known answer, zeros",
     .n_in = 4,
     .n_out = 2,
     .value = known_zeros,
     .in = {WORD(0), WORD(0), WORD(0), WORD(0)}},
    {.primitive = "threefry2x32",
     .label = "known answer, ones",
     .n_in = 4,
     .n_out = 2,
     .value = known_ones,
     .in = {WORD(4294967295.0), WORD(4294967295.0), WORD(4294967295.0), WORD(4294967295.0)}},
    {.primitive = "random_bits", .params = &shape, .n_in = 1, .value = bits, .in = {KEY}},
    {.primitive = "random_bits", .label = "scalar", .params = &one, .n_in = 1, .value = bits, .in = {KEY}},
    {.primitive = "random_bits", .label = "nothing", .params = &none, .n_in = 1, .value = bits, .in = {KEY}},
    {.primitive = "dropout", .label = "half", .params = &half, .n_in = 2, .value = dropout, .in = {X, KEY}},
    {.primitive = "dropout", .label = "a tenth", .params = &tenth, .n_in = 2, .value = dropout, .in = {X, KEY}},
    {.primitive = "dropout", .label = "shared draws", .params = &shared, .n_in = 2, .value = dropout, .in = {X, KEY}},
    {.primitive = "dropout", .label = "rate 0", .params = &never, .n_in = 2, .value = dropout, .in = {X, KEY}},
    {.primitive = "dropout", .label = "rate 1", .params = &always, .n_in = 2, .value = dropout, .in = {X, KEY}},
};

const property_table random_cases = TABLE(cases);
