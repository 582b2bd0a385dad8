/* Kernels of primitives that users of the library define: the call in the form of tow/kernel.h. */
#include "src/kernels/kernel.h"

static tow_kernel_call public_call(const tow__kernel_call *call)
{
    return (tow_kernel_call){.n_inputs = call->n_in,
                             .n_outputs = call->n_out,
                             .inputs = call->in,
                             .outputs = call->out,
                             .attributes = call->params,
                             .user = call->user,
                             .scratch = call->scratch,
                             .team = call->team};
}

static void run(const tow__kernel_call *call)
{
    const tow_kernel_call c = public_call(call);
    call->defined->run(&c);
}

static size_t scratch(const tow__kernel_call *call)
{
    const tow_kernel_call c = public_call(call);
    return call->defined->scratch ? call->defined->scratch(&c) : 0;
}

const tow__kernel tow__kernel_defined = {
    .primitive = "", .dtypes = UINT32_MAX, .run = run, .scratch = scratch, .engine = "user"};

/* ---- work on all threads ----------------------------------------------------------------------------------------- */

typedef struct ranges {
    int64_t count, blocks;
    void (*work)(int64_t begin, int64_t end, void *argument);
    void *argument;
} ranges;

static void run_range(void *user, int64_t block)
{
    const ranges *r = user;
    const int64_t size = r->count / r->blocks, rest = r->count % r->blocks;
    const int64_t begin = block * size + (block < rest ? block : rest);
    r->work(begin, begin + size + (block < rest), r->argument);
}

void tow_kernel_parallel(const tow_kernel_call *call, int64_t count,
                         void (*work)(int64_t begin, int64_t end, void *argument), void *argument)
{
    const tow__team *team = call->team;
    const int64_t threads = team ? team->threads : 1;
    ranges r = {.count = count, .blocks = threads < count ? threads : count, .work = work, .argument = argument};
    if (r.blocks > 1)
        tow__team_run(team, r.blocks, run_range, &r);
    else if (count > 0)
        work(0, count, argument);
}
