/* The inside of a loader. */
#ifndef TOW_SRC_DATA_LOADER_H
#define TOW_SRC_DATA_LOADER_H

#include <pthread.h>

#include "src/data/field.h"
#include "src/data/order.h"

/* A batch and what it is made in. */
typedef struct tow__batch_slot {
    tow_array **fields;  /* [n_fields] of whole batches */
    tow_array **outputs; /* [n_outputs] of the transform */
    tow_array **last;    /* [n_fields] views of the rows of the last batch of an epoch; NULL if it is a whole one */
    bool full;
    bool end; /* behind the last batch: there is none */
    bool is_last;
    tow__row_error error;
} tow__batch_slot;

struct tow_loader {
    tow_context *ctx;
    tow__arena memory; /* of slots and their lists */
    size_t n_fields, n_outputs;
    tow__field *fields;
    tow_type *output_types;
    int64_t rows;                 /* of an epoch, in this shard */
    int64_t split_first, split_n; /* places of the split in its order */
    bool split_in_order, shuffle; /* the split's places are the file's; epochs are shuffled */
    tow__order split_order;
    tow_row_order order;
    uint64_t seed, split_seed;
    double split_low, split_high;
    int64_t source_rows, batch, batches, last_rows; /* batches of an epoch; rows of the last one */
    int row_groups, first_group, end_group;         /* this rank reads groups [first_group, end_group) of a batch */
    int64_t shard, shards, epochs;
    tow_batch_function transform;
    void *user;
    void *scratch; /* of whoever fills slots */
    size_t scratch_bytes;

    uint64_t position;      /* batches given out */
    tow__batch_slot *slots; /* a ring: batch p is made in slot p mod n_slots */
    size_t n_slots;
    bool synchronous;

    /* The thread. All below, and .full of the slots, belong to the mutex. */
    bool initialized, started, stop;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_t thread;
    uint64_t next; /* batch that is made next */
    uint64_t held; /* batches before this one may be overwritten */
};

/* Rows [*first, *end) of a batch of so many rows are this rank's. */
void tow__loader_part(const tow_loader *loader, int64_t rows, int64_t *first, int64_t *end);
/* Makes batch `position` in `slot`, on any thread, one at a time. */
void tow__loader_fill(tow_loader *loader, uint64_t position, tow__batch_slot *slot);

/* The next batch's slot, full: made here or waited for. */
tow__batch_slot *tow__loader_take(tow_loader *loader);
/* Ends the thread; batches that were made ahead are forgotten. */
void tow__loader_stop(tow_loader *loader);
/* Mutex and condition. */
tow_status tow__loader_begin(tow_loader *loader);
void tow__loader_end(tow_loader *loader);

#endif
