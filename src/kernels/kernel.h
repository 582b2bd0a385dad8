/* Kernels: functions over buffers in memory. They know no graphs; src/plan binds equations to them.
 *
 * Rules: operands may be strided (stride 0 repeats, negative strides allowed), outputs are row-major and contiguous.
 * If the primitive says so (tow__aliasing), an output may be the same memory as one same-shaped contiguous operand.
 * Results do not depend on the number of threads: work is split into blocks that depend on shapes alone. A kernel
 * allocates nothing: its scratch is part of the arena. */
#ifndef TOW_SRC_KERNEL_H
#define TOW_SRC_KERNEL_H

#include "src/base/cancel.h"
#include "src/base/team.h"
#include "src/kernels/functions.h"
#include "tow/base.h"
#include "tow/kernel.h"

typedef tow_buffer tow__buffer;

/* Memory that will be read. */
typedef struct tow__span {
    const void *data;
    size_t bytes;
} tow__span;

enum {
    TOW__SPANS = 3,            /* that a call may fetch for others */
    TOW__EPILOGUE_OPERANDS = 3 /* arrays that the epilogue of a product reads or writes */
};

/* The epilogue of a product. Called on strips of the result that are complete and in cache: elements first + i *
 * step .. first + i * step + n for i in [0, times) of the result, by row-major index; all elements once, in no
 * particular order, on any thread. */
typedef struct tow__epilogue {
    void (*run)(void *user, int64_t first, int64_t times, int64_t step, int64_t n);
    void *user;
    /* Arrays of the result's shape and element size, of which `run` reads or writes the same elements as of the result:
     * these may be prefetched while the product is computed. The last one is followed by NULL. */
    const void *operands[TOW__EPILOGUE_OPERANDS];
} tow__epilogue;

/* An addition adds the result to the last operand, in whose memory it may lie. The bits are those of the primitive
 * and an addition. */
typedef struct tow__addition {
    /* The primitive sums over the leading axis of its other operands: terms are added one by one, in the order of that
     * axis. Else the result is added as a whole. */
    bool in_order;
    bool reverse; /* the last element of the leading axis first */
} tow__addition;

/* A block of the elements that a product or a reduction sums. Blocks follow each other in order, and each joins what
 * the ones before it have made. The bits are those of the whole sum. */
typedef struct tow__sum_part {
    const int64_t *row; /* calls before this one in the loop over blocks; NULL: another loop has begun the sum */
    int64_t depth;      /* products: elements that are summed before they are added to the result (products/dot.h) */
    const struct tow__reducer *reducer; /* reductions: what they do (reductions/reduce.h), */
    int64_t elements;                   /* to so many elements in all blocks, */
    int64_t before;                     /* of which so many come before the first call of this loop */
} tow__sum_part;

/* Extras of an instruction are done beside its primitive. NULL: nothing of the kind. */
typedef struct tow__extras {
    const struct tow__row_epilogue *epilogue; /* elementwise/fused.h: a row program on finished strips of a product */
    const struct tow__row_reductions *reductions; /* elementwise/fused.h: sums of what a row program makes */
    const tow__addition *accumulation;
    const tow__sum_part *part;
} tow__extras;

/* The kernels of one primitive differ in which of these they do. */
typedef enum tow__variant {
    TOW__PLAIN,
    TOW__WITH_EPILOGUE,
    TOW__WITH_REDUCTIONS,
    TOW__ADDING,
    TOW__ADDING_IN_ORDER,
    TOW__PART_OF_SUM
} tow__variant;

static inline tow__variant tow__variant_of(const tow__extras *x)
{
    if (x->part) return TOW__PART_OF_SUM;
    if (x->accumulation) return x->accumulation->in_order ? TOW__ADDING_IN_ORDER : TOW__ADDING;
    return x->reductions ? TOW__WITH_REDUCTIONS : x->epilogue ? TOW__WITH_EPILOGUE : TOW__PLAIN;
}

typedef struct tow__kernel_call {
    size_t n_in, n_out;
    const tow__buffer *in, *out;
    const void *params; /* the primitive's parameter struct (src/base/params.h), or NULL */
    tow__extras extras; /* those of the kernel's variant */
    void *scratch;      /* 64-byte-aligned, as large as .scratch said */
    tow__team *team;
    const tow__epilogue *epilogue; /* of kernels that run one; NULL: none */
    /* For kernels that prefetch: where operand 1 of the next call will be (NULL: unknown), and what other instructions
     * read before it (no bytes: unknown). */
    const void *next_operand;
    tow__span read_next[TOW__SPANS];
    const void *state;         /* what .prepare made of this call; NULL: nothing, run prepares for itself */
    const tow_kernel *defined; /* of a primitive that a user of the library has defined, */
    void *user;                /* and what its functions get */
} tow__kernel_call;

/* The number of threads that may run the call. */
static inline int tow__threads(const tow__kernel_call *call) { return call->team != NULL ? call->team->threads : 1; }

/* The calling thread's part of scratch memory in which each has `bytes`; NULL if nobody needs any. */
static inline void *tow__scratch_of_thread(void *scratch, size_t bytes)
{
    return bytes > 0 ? (char *)scratch + (size_t)tow__team_thread() * bytes : NULL;
}

typedef struct tow__kernel {
    const char *primitive; /* name in the textual form */
    /* Bit set (1 << dtype) of accepted dtypes of the first float operand, else of operand 0 (sources: of the
     * result). */
    unsigned dtypes;
    void (*run)(const tow__kernel_call *call);
    size_t (*scratch)(const tow__kernel_call *call); /* bytes; data pointers are NULL here. NULL: none */
    const char *engine;                              /* "reference", "vector", ... for plans */
    /* Optional: what a run would work out again and again from shapes, strides, dtypes and params, done once when a
     * program is linked. Addresses move between runs, so the state holds none: they come from the buffers. */
    size_t state_bytes; /* 16-byte-aligned; lives as long as the program */
    void (*prepare)(const tow__kernel_call *call, void *state);
    /* Optional: what takes longer than linking may take, such as timings by which an engine is chosen. Called once,
     * before the first run of a program; changes no bits. */
    void (*tune)(const tow__kernel_call *call, void *state);
    const char *(*engine_of)(const tow__kernel_call *call); /* instead of `engine`, where that depends on shapes */
    /* Why it is that engine; written like snprintf. NULL: there is nothing to choose from. */
    size_t (*reason)(const tow__kernel_call *call, char *text, size_t size);
    /* Bit i: operand i of f32 may be stored in 16 bits, whatever the others are. It is widened piece by piece while it
     * is read, and the bits are those of the widened array (halves.h). */
    unsigned halves;
    bool runs_epilogue;     /* runs `epilogue` of a call itself; else who sets it does so after the call */
    bool prefetches;        /* fetches from `next_operand` and `read_next` of a call, where there may be nothing */
    tow__function function; /* of elementwise kernels */
    const struct tow__reducer *const *reducers; /* [dtype] of reductions (reductions/reduce.h); NULL: it is none */
    tow__variant variant;                       /* what it does beside the primitive */
    /* Of a variant: does it take a call on these shapes and strides, with the bits of the primitive and what follows?
     * Data pointers are NULL here. NULL: every call. */
    bool (*takes)(const tow__kernel_call *call);
} tow__kernel;

/* Runs what .defined of a call says. */
extern const tow__kernel tow__kernel_defined;

/* The kernel for a primitive, or NULL (then the plan decomposes it). dtype as above. */
const tow__kernel *tow__kernel_find(const char *primitive, tow_dtype dtype);
/* The same, for a kernel that does more. */
const tow__kernel *tow__kernel_variant(const char *primitive, tow__variant variant, tow_dtype dtype);

#endif
