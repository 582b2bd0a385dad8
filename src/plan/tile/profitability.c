/* Profitability of a tile group that contains no matrix product: it must save more seconds of memory traffic than it
 * adds.
 *
 * It saves the traffic of values that several of its instructions read, and of values that no other instruction reads.
 * It adds the traffic of a result whose only reader is a reduction over rows: the tile group stores the result. Outside
 * of it, the reduction would join the instruction that makes the result (fuse/fuse_reductions.c). */
#include "src/kernels/reductions/reduce.h"
#include "src/plan/analysis/columns.h"
#include "src/plan/tile/tiler.h"

static bool is_reduction(const tow__instruction *inst)
{
    return inst->n_in == 1 && tow__reducer_of(inst->kernel, inst->in[0].type.dtype);
}

/* The use of a storage by the instructions of the tile group. */
typedef struct use {
    uint32_t readers; /* instructions that read it, except reductions */
    bool reduced;     /* a reduction reads it, which could join the instruction that makes it */
} use;

static use *find_uses(const tow__tiler *f)
{
    use *uses = tow__borrow(f->p, f->scratch, sizeof *uses, 0);
    for (uint32_t i = 0; uses && i < f->n_inside; i++) {
        const tow__instruction *inst = &f->insts[f->inside[i]];
        for (uint32_t j = 0; j < inst->n_in; j++) {
            uint32_t s = inst->in[j].storage;
            bool again = false;
            for (uint32_t k = 0; k < j; k++) again |= inst->in[k].storage == s;
            uses[s].readers += !again && !is_reduction(inst);
            uses[s].reduced |= is_reduction(inst);
        }
    }
    return uses;
}

/* Seconds of reading or writing the whole of a storage where data of its size are found. */
static double seconds_of(const tow__tiler *f, uint32_t storage)
{
    return tow__moving_seconds(&f->p->machine, (double)f->p->storages[storage].bytes);
}

/* Seconds of writing and reading that are left out because the instruction is in the tile group. */
static double saved_by(const tow__tiler *f, const use *uses, const tow__instruction *inst)
{
    double saved = 0, stored = 0;
    bool joined = false;
    for (uint32_t k = 0; k < inst->n_out; k++) {
        uint32_t s = inst->out[k].storage;
        const use *u = &uses[s];
        const double once = seconds_of(f, s);
        saved += once * u->readers;
        if (u->readers > 0 && f->reads_inside[s] == f->uses->reads[s]) saved += once;
        joined |= u->reduced;
        bool waits = f->uses->reads[s] == 1 && f->reads_inside[s] == 0;
        waits = waits && is_reduction(&f->insts[f->uses->last_reader[s]]);
        if (waits && f->p->storages[s].kind == TOW__S_ARENA && 2 * once > stored) stored = 2 * once;
    }
    return joined ? saved : saved - stored;
}

tow_status tow__is_profitable(const tow__tiler *f, bool *profitable)
{
    use *uses = find_uses(f);
    double saved = 0;
    if (!uses) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < f->n_inside; i++) saved += saved_by(f, uses, &f->insts[f->inside[i]]);
    for (uint32_t i = 0; i < f->n_inside; i++) { /* values from outside are read once */
        const tow__instruction *inst = &f->insts[f->inside[i]];
        for (uint32_t j = 0; j < inst->n_in; j++) {
            use *u = &uses[inst->in[j].storage];
            const uint32_t readers = u->readers + u->reduced;
            if (f->defined[inst->in[j].storage] != TOW__DEFINED_INSIDE && readers > 1)
                saved += (readers - 1) * seconds_of(f, inst->in[j].storage);
            *u = (use){0};
        }
    }
    *profitable = saved >= 0;
    tow__give_back(f->p, uses, f->insts, f->n_inside, f->inside);
    return TOW_OK;
}
