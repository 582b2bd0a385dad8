/* Random bits as vector code.
 *
 * Bits. They are those of threefry2x32 (math.h) on the index of each element, in integers: the same as JAX's, whatever
 * the threads or the instruction set.
 *
 * Engines. TOW__CLONES compiles the loop once per instruction set, and the loader picks the version. */
#include "src/kernels/math.h"
#include "src/kernels/tables.h"

typedef struct bits_job {
    u32 key[2], *out;
    int64_t count;
} bits_job;

/* bits[i] = a ^ b with (a, b) = threefry(key; i >> 32, i): JAX's partitionable layout. The indices first .. first + n
 * share their upper halves. */
TOW__CLONES static void bits_run(int64_t n, u32 k0, u32 k1, uint64_t first, u32 *out)
{
    const u32 high = (u32)(first >> 32), low = (u32)first;
    TOW__VECTORIZE
    for (int64_t i = 0; i < n; i++) {
        u32 a = high, b = low + (u32)i;
        tow__threefry2x32(k0, k1, &a, &b);
        out[i] = a ^ b;
    }
}

_Static_assert(((int64_t)1 << 32) % TOW__BLOCK == 0, "no block crosses a change of the upper halves");

static void bits_block(void *user, int64_t block)
{
    const bits_job *job = user;
    int64_t start = block * TOW__BLOCK;
    bits_run(tow__min(TOW__BLOCK, job->count - start), job->key[0], job->key[1], (uint64_t)start, job->out + start);
}

static void run_random_bits(const tow__kernel_call *call)
{
    bits_job job = {.out = call->out[0].data, .count = tow__buffer_count(&call->out[0])};
    tow__strided key = tow__strided_buffer(&call->in[0]);
    tow__strided_read(&key, 0, 2, job.key);
    tow__team_run(call->team, tow__ceil_div(job.count, TOW__BLOCK), bits_block, &job);
}

static const tow__kernel kernels[] = {
    {.primitive = "random_bits", .dtypes = 1 << TOW_U32, .run = run_random_bits, .engine = "vector"},
};
const tow__kernel_table tow__kernels_random = {kernels, sizeof kernels / sizeof kernels[0]};
