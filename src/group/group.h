/* Collectives inside the library: begun, tested and waited for, in memory of the caller, allocated once.
 *
 *   tow_group            the functions that carry it, collectives in flight, the watchdog           group.c
 *   row groups, shares   who owns which part of the tree, and of the elements                       shares.c
 *   tow__halving        who sends what to whom, level by level of the tree                         halving.c
 *   tow__collective      one collective, made once and run often: a plan's instruction is one       collective.c
 *   tow__watch           what happens when nothing moves                                            watchdog.c
 *   tow__shared_memory   carries a group of processes of one machine                                shared_memory.c
 *
 * Up to 64 collectives are in flight at once; the next one waits for the first. All ranks start them in the same
 * order; between starts and waits they may do what they like. Whoever waits for one moves all of them. */
#ifndef TOW_SRC_GROUP_GROUP_H
#define TOW_SRC_GROUP_GROUP_H

#include "src/base/base.h"
#include "src/group/halving.h"
#include "tow/group.h"

/* ---- one collective ---------------------------------------------------------------------------------------------- */

typedef enum tow__collective_kind {
    TOW__REDUCE_SCATTER, /* the caller's share becomes the sum, the rest of the first array anything */
    TOW__ALL_REDUCE,     /* the first array becomes the sum */
    TOW__ALL_GATHER,     /* shares of all ranks come together in the array */
    TOW__BROADCAST,      /* the array becomes that of the root */
    TOW__BARRIER
} tow__collective_kind;

/* The purpose of a collective; all ranks say the same. */
typedef struct tow__collective_options {
    tow__collective_kind kind;
    tow_dtype dtype; /* of sums; other kinds take any */
    int64_t n;       /* elements of the array, or of each layer */
    int64_t layers;  /* of the array, one behind the other, each with its shares; 0: 1. Not with a first_group of which
                      * a rank brings several arrays */
    /* Sums: the number of row groups, a power of two, and first_group[r] .. first_group[r + 1] those of rank r, for all
     * ranks; NULL: those of tow_group_rows. A rank whose groups are no subtree brings an array for each of the maximal
     * subtrees among them (tow__collective_parts), from left to right. */
    int row_groups;
    const int *first_group;
    /* Shares: elements shares[r].offset and so on of rank r; they cover the array. NULL: those of tow_group_share. */
    const tow__range_of *shares;
    int64_t unit;       /* of shares, if they are NULL: in these units; 0: that of n */
    tow__window window; /* if they are NULL: the array is a window of one of which each rank has its share */
    int root;
    const char *what; /* for messages: "gradient of blocks/0/kernel"; copied; NULL: the kind */
} tow__collective_options;

typedef struct tow__collective tow__collective;

enum {
    TOW__MOST_IN_FLIGHT = 64 /* two iterations of a layer's parameters, and of its gradients */
};

/* group may be NULL: then all below does nothing. Errors: TOW_INVALID_ARGUMENT, TOW_TYPE_MISMATCH, TOW_OUT_OF_MEMORY.
 * */
tow_status tow__collective_create(tow_context *ctx, tow_group *group, const tow__collective_options *options,
                                  tow__collective **collective);
void tow__collective_free(tow__collective *c); /* NULL is accepted; not in flight */
/* Arrays that start takes: 1, or for sums the number of this rank's subtrees. */
int tow__collective_parts(const tow__collective *c);
/* This rank's share of an array of n elements, or of each layer or of the window, if the collective has no list of
 * shares; NULL: all of them. */
tow__range_of tow__collective_share(const tow__collective *c, int64_t n);
/* Bytes of scratch memory that start takes; sums receive there what they add. */
size_t tow__collective_scratch(const tow__collective *c);
/* Bytes that this rank sends and receives in one run. */
size_t tow__collective_sent(const tow__collective *c);
size_t tow__collective_received(const tow__collective *c);
/* Exchanges that wait for each other, at least: levels of the tree. */
int tow__collective_rounds(const tow__collective *c);
/* Begins. The arrays and the scratch memory belong to the collective until it is done. Sums compute in the
 * floating-point modes of the thread that starts. */
tow_status tow__collective_start(tow__collective *c, void *const *arrays, void *scratch);
/* Moves what is in flight; *done: it has ended. */
tow_status tow__collective_test(tow__collective *c, bool *done);
tow_status tow__collective_wait(tow__collective *c);
/* Both. */
tow_status tow__collective_run(tow__collective *c, void *const *arrays, void *scratch);
/* Moves what is in flight, and waits for nothing: for a run of a program, between its instructions. */
tow_status tow__group_progress(tow_group *group);

/* ---- those of a program ------------------------------------------------------------------------------------------ */

enum {
    TOW__MOST_GROUPS = 8 /* over which the collectives of one program are */
};

typedef struct tow__collectives {
    tow_context *ctx;
    tow__collective **list; /* NULL: over the group of one */
    uint32_t n, capacity;
    tow_group *groups[TOW__MOST_GROUPS];
    int n_groups;
    int64_t moved; /* nanoseconds of the clock at the last progress between instructions */
} tow__collectives;

/* Takes the collective, also where there is an error. */
tow_status tow__collectives_add(tow__collectives *all, tow__collective *c, uint32_t *number);
/* Moves those in flight, between instructions, unless it has done so a moment ago. */
tow_status tow__collectives_progress(tow__collectives *all);
/* Waits for those in flight. */
tow_status tow__collectives_settle(const tow__collectives *all);
void tow__collectives_free(tow__collectives *all);
/* Of the list: what is summed, in which order. */
uint64_t tow__collectives_hash(const tow__collectives *all);

/* ---- a group ----------------------------------------------------------------------------------------------------- */

enum {
    TOW__HOST_BYTES = 64,
    TOW__REPORT_BYTES = 512
};

/* A rank's answer to the question where it stands. */
typedef struct tow__watch_report {
    char text[TOW__REPORT_BYTES];
} tow__watch_report;

/* The state of the watchdog. Time is counted in steps of a fraction of the limit, so that a process that did not run
 * for a while does not take that for a standstill. */
typedef struct tow__watch {
    int64_t limit, idle, last;  /* nanoseconds: allowed, without progress so far, the clock at the last look */
    tow__watch_report *reports; /* of ranks 0, 1, ..., with the own one, which is sent */
    tow_message *messages;      /* for each other rank a receive, then for each a send */
    void *receives, *sends;     /* requests; NULL: not begun, or all have come */
    bool begun;                 /* the receives */
} tow__watch;

struct tow_group {
    tow_context *ctx;
    tow_group *next; /* of the context */
    tow_group_functions carrier;
    char *name;
    char (*hosts)[TOW__HOST_BYTES]; /* of all ranks: "name, process 12" */
    tow__collective *flight;        /* in the order in which they began */
    uint32_t begun;                 /* collectives so far */
    bool plan_only;                 /* the others are not there */
    tow_group_bytes bytes;
    tow_group_where where;
    void *where_user;
    tow__watch watch;
};

/* The group of that name which was made last in the context; NULL: there is none. */
tow_group *tow__group_find(const tow_context *ctx, const char *name);

/* seconds: as in tow_group_options. */
tow_status tow__watch_init(tow_group *group, double seconds);
void tow__watch_free(tow_group *group);
/* Something has moved. */
void tow__watch_reset(tow_group *group);
/* Nothing has moved in a pass of the loop that waits for `c`. Ends all processes when that has lasted too long. */
void tow__watch_idle(tow_group *group, tow__collective *c);
/* Says which of the ranks a collective waits for, with what it is. */
size_t tow__collective_text(const tow__collective *c, char *text, size_t size);

/* into[i] += other[i] for i below n. The other array lies apart, and is the left operand of the sum or the right. */
void tow__add_elements(tow_dtype dtype, void *into, const void *other, bool other_is_left, int64_t n);

/* ---- shared memory ----------------------------------------------------------------------------------------------- */

typedef struct tow__board tow__board;
/* Memory that `count` processes share, from before they are forked on; NULL: there is none. */
tow__board *tow__board_create(int count);
void tow__board_free(tow__board *board);
/* The rank's function has returned 0: it has not ended otherwise. */
void tow__board_set_returned(tow__board *board, int rank);
bool tow__board_has_returned(const tow__board *board, int rank);
/* A rank's way to the others, in its own process. */
tow_status tow__board_join(tow_context *ctx, tow__board *board, int rank, tow_group_functions *functions);

#endif
