/* One recording of an update: what the functions that transforms call (update.c) share with those that run transforms
 * and make graphs (update_graph.c). */
#ifndef TOW_SRC_TRAIN_RECORDING_H
#define TOW_SRC_TRAIN_RECORDING_H

#include "src/graph/graph.h"
#include "src/train/norms.h"
#include "src/train/update.h"

/* Class names that a composite has used so far. */
typedef struct tow__used {
    struct tow__used *next;
    const char *name;
} tow__used;

/* Work that is still to be done on the gradient of a parameter. It is done when somebody asks for the gradient, or at
 * the end, so that all that concerns a parameter is recorded in one place and the compiler makes one pass of it. */
typedef struct tow__pending tow__pending;

/* Schedules of options, in the transforms that stand in their wrapper. */
typedef struct tow__injection {
    const struct tow__injection *outer;  /* whose options count next */
    struct tow__injection *before, *all; /* the wrapper around this one; another one of the recording */
    const tow_inject_hyperparams *from;
    const char *base; /* "optimizer/adam/": before the names of options */
    bool *used;       /* [from->n] */
} tow__injection;

/* One transform on some parameters. Arrays of values are shared by all transforms of a recording. */
struct tow_update {
    tow_optimizer_state *o;
    tow_trace *trace;
    bool discovering;
    const char *class_name; /* of the transform at work */
    const char *owner;      /* name of the transform; NULL: none is at work */
    const char *prefix;     /* of the names of transforms that it runs */
    tow__used *children;
    size_t n; /* parameters that it sees */
    const uint32_t *which;
    uint32_t parameter;                /* in `each`; else TOW__NO_PARAMETER */
    tow_value *parameters, *gradients; /* [parameters of the state] */
    tow__pending **first, **last;      /* likewise; NULL: nothing */
    bool *frozen;                      /* likewise */
    tow_value *slots;                  /* [slots], once they are known */
    tow_value *numbers;                /* [numbers] f64[] */
    tow_value *converted;              /* [numbers] f32[] */
    tow_value *negated;                /* [numbers] f32[], likewise */
    tow_value *reports;
    const tow__injection *injections; /* around the transform at work, innermost first */
    tow__injection *opening;          /* of the wrapper that runs the next transform; NULL: none */
    tow__injection **all_injections;
    tow__step_map steps; /* that numbers count */
    bool *per_example;   /* gradients are still those of single examples */
    bool exact;          /* slots are kept as they are, whatever .slot_bits says */
    bool nonnegative;    /* the slot that is asked for has no negative numbers */
};

struct tow__pending {
    tow__pending *next;
    tow_update u;                            /* for the one parameter */
    const tow_gradient_transform *transform; /* NULL: multiply by the factor */
    tow__factor factor;                      /* of scalars */
};

/* a, b and c one after the other, as long-lived as the trace; NULL: out of memory. */
const char *tow__joined(tow_trace *trace, const char *a, const char *b, const char *c);
/* The error of the transform that is at work, with the path of its parameter. */
__attribute__((format(printf, 3, 4))) void tow__update_fail(tow_update *update, tow_status status, const char *format,
                                                            ...);
/* Is there a parameter `index`? If not, that is the trace's error. */
bool tow__update_has(tow_update *update, size_t index);
/* The slot of this name, of the transform and the parameter; NULL: there is none yet. */
const tow__slot *tow__find_slot(tow_update *update, const char *name);
/* The type of one layer of a parameter. */
tow_type tow__layer_type(const tow_optimizer_state *state, uint32_t parameter);
/* Does what is still to be done to the gradient of a parameter. */
void tow__update_settle(tow_update *update, uint32_t parameter);

#endif
