/* Optimizers in the making: what recording an update shares with the state that runs it.
 *
 * The transform is recorded twice. The first time finds out which slots, numbers and reports it wants, and throws the
 * trace away; then the slots get arrays; the second recording has them as inputs. A transform of single parameters
 * (`each`) is recorded on one layer of a stack, which vmap makes the whole of. If the axes of layers are not the
 * leading ones of a parameter, they are brought there for the transform, and so are those of slots wherever they are
 * kept. */
#ifndef TOW_SRC_TRAIN_UPDATE_H
#define TOW_SRC_TRAIN_UPDATE_H

#include "src/base/names.h"
#include "src/graph/frontiers.h"
#include "src/params/params.h"
#include "src/train/gather.h"
#include "tow/optimizer.h"

enum {
    TOW__NO_PARAMETER = UINT32_MAX /* a slot of the transform itself */
};

/* Slot i of the state: slot_names.names[i] is "owner/name/path of the parameter". */
typedef struct tow__slot {
    char *prefix; /* "owner/name/" */
    size_t prefix_size;
    uint32_t parameter;
    uint32_t next;  /* slot of the same parameter, or TOW__NO_NAME */
    tow_type type;  /* of all layers, also where there is a share of them */
    int64_t layers; /* of which each process has its share; 0: all have the whole */
    double initial;
    tow_array *array; /* belongs to its group */
} tow__slot;

/* The count of finished updates of a transform inside of others: s <- (s / divisor) % modulus, outermost first; 0: not
 * divided, all. */
enum {
    TOW__STEP_MAPS = 4
};
typedef struct tow__step_map {
    int n;
    int64_t divisors[TOW__STEP_MAPS], moduli[TOW__STEP_MAPS];
} tow__step_map;

/* Number i of the state: number_names.names[i] is "owner/name". */
typedef struct tow__number {
    tow__step_map steps;
    tow_schedule schedule;
    double (*function)(int64_t step, const void *self); /* NULL: the schedule */
    const void *self;
    double fixed; /* NAN: not fixed */
} tow__number;

/* Slots of one prefix: names and arrays as in a list of parameters. */
typedef struct tow__slot_group {
    const char *prefix;
    tow_params *list;
} tow__slot_group;

/* A transform that a program of another version made, as this library reads it. */
typedef struct tow__read_transform {
    struct tow__read_transform *next;
    const tow_gradient_transform *given, *own;
} tow__read_transform;

struct tow_optimizer_state {
    tow_context *ctx;
    tow__arena read_memory; /* of the list below */
    tow__read_transform *read;
    const tow_gradient_transform *transform;
    tow_params *params; /* those that are not frozen; arrays shared with the caller's list */
    int64_t step;
    tow__names slot_names, number_names, report_names;
    tow__slot *slots;
    tow__number *numbers;
    uint32_t slots_capacity, numbers_capacity;
    uint32_t *first_slot; /* [parameters] or TOW__NO_NAME */
    tow__slot_group *groups;
    uint32_t n_groups;
    tow_array **number_arrays, **report_arrays;
    tow_graph *graph;
    tow_shared_arena *shared_arena; /* of the program, which holds it; NULL: one of its own */
    tow_program *program;           /* NULL: it belongs to a training state, whose program updates */
    tow_array **inputs, **outputs;  /* of the program */
    tow__gathering *gathering;      /* of several calls' gradients; NULL: each call updates */
    double weight;                  /* of the gradients that come, if they are weighted */
    size_t skip_not_finite;         /* updates in a row; 0: none is skipped */
    tow__norm *norm;                /* then */
    int64_t skipped_in_a_row, skipped;
    int64_t examples;                               /* gradients are of so many; 0: of the parameters' types */
    bool master, stochastic_rounding;               /* of parameters of 16 bits (wide.h) */
    int slot_bits;                                  /* of slots; 0: as they are asked for */
    int64_t slot_bits_least;                        /* elements of a layer */
    uint64_t seed;                                  /* of the roundings */
    double loss_scale;                              /* that gradients have; 0: they have none */
    uint64_t loss_scale_period, loss_scale_updates; /* finite ones in a row */
    struct tow__search *search;                     /* the program makes directions; NULL: new parameters */
    const char *loss_taker;                         /* the class of a transform that takes the loss; NULL: none does */
    double loss, loss_sum;                          /* of this update; of the calls since the last one */
    double loss_weight;
    const tow_params *kept;   /* of a training state: its parameters, or shares of them; NULL: `params` */
    tow_group *shards;        /* processes that share slots, each updating its shares; NULL: this one has all */
    int shard;                /* what they share, TOW_SHARD_SLOTS, ... */
    bool by_lines;            /* norms of all gradients are sums of lines, which have the same bits for any shares */
    tow__frontiers frontiers; /* of steps of one's own within a memory limit */
};

/* The type of a gradient that is given. */
tow_type tow__gradient_type(const tow_optimizer_state *state, uint32_t parameter);
/* Arrays and programs of line searches (line_search.c). */
tow_status tow__search_create(tow_optimizer_state *state);
void tow__search_free(struct tow__search *search);
/* The arrays into which the program writes the directions. */
tow_array *const *tow__search_directions(const struct tow__search *search);
/* Runs the program with these gradients. */
tow_status tow__optimizer_run(tow_optimizer_state *state, tow_array *const *gradients, double loss);
/* tow_optimizer_create. of_state: a training state updates, in the program of its steps, and so there is no program;
 * NULL: there is one. */
typedef struct tow__optimizer_of_state {
    tow_group *shards;      /* processes that share slots; or NULL */
    int shard;              /* what they share */
    bool by_lines;          /* norms of all gradients */
    const tow_params *kept; /* the state's parameters, or shares of them */
} tow__optimizer_of_state;
tow_status tow__optimizer_create(tow_context *context, const tow_gradient_transform *transform,
                                 const tow_params *params, const tow_optimizer_options *options,
                                 const tow__optimizer_of_state *of_state, tow_optimizer_state **state);
/* The layers of the shares of a parameter and of its gradient, where these may be shared; 0: each process has the
 * whole, since its layers are not in front, or there are no others. */
int64_t tow__optimizer_layers(const tow_optimizer_state *state, uint32_t parameter);
/* The number of layers of entry i, whose axes of layers are in front; 0: it has no elements. */
int64_t tow__layers_of(const tow_params *params, uint32_t i);
/* The type of slot i as it is kept: a share has the axes of layers, and one of elements. */
tow_type tow__slot_kept_type(const tow_optimizer_state *state, uint32_t slot);
/* Finds the slots, numbers and reports that the transform wants for these parameters. */
tow_status tow__update_discover(tow_optimizer_state *state);
/* The graph (parameters, gradients, slots, numbers) -> (parameters, slots, reports). */
tow_status tow__update_graph(tow_optimizer_state *state, tow_graph **graph);
/* Records what that graph does. */
void tow__record_update(tow_trace *trace, const tow_value *in, tow_value *out, tow_optimizer_state *state);
/* Is the number the loss of the step, which tow_update_loss gives? */
bool tow__number_is_loss(const tow_optimizer_state *state, uint32_t number);

bool tow__optimizer_reports(const tow_optimizer_state *state, const char *name);
/* As before the first update: reports are 0. */
void tow__optimizer_forget_reports(tow_optimizer_state *state);
/* Bytes of programs, numbers and reports. */
size_t tow__optimizer_workspace(const tow_optimizer_state *state);
/* Sets the numbers of the step that comes. */
void tow__optimizer_begin(tow_optimizer_state *state);
/* A number as it will be in the step behind so many updates. */
double tow__optimizer_number_at(const tow_optimizer_state *state, uint32_t number, int64_t step);

#endif
