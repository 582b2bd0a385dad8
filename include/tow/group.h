/* Groups of processes that compute one result together, on one machine or on many.
 *
 *     static int train(tow_context *context, tow_group *group, void *user)
 *     {
 *         ... each process sums the gradients of its row groups ...
 *         if (tow_group_all_reduce(group, 8, gradient) != TOW_OK) return 1;
 *         return 0;
 *     }
 *     tow_processes_run(context, &TOW_PROCESSES_OPTIONS(.count = 2), train, NULL);      two processes of this machine
 *     tow_mpi_create(context, NULL, NULL, &group);       those that mpirun has started, on any machines (tow/mpi.h)
 *
 * A process of a group has a rank, 0 to count - 1. All functions below that exchange something are collective: all
 * processes call them in the same order, with arrays of the same type. A group of NULL is the group of one, for which
 * they do nothing and cost nothing, so programs need no case of their own for it.
 *
 * Sums have the same bits for every number of processes. The rows of a batch are G groups of equally many rows, G a
 * power of two up to 65536, and every sum over them is the binary tree over these groups. A process owns neighbouring
 * groups that are a whole subtree (tow_group_rows) and brings the sum of that subtree; the processes add up the rest of
 * the tree. So bits depend on G alone. With G = 8 and three processes:
 *
 *                 sum
 *            /           \
 *         +                 +             rank 0 owns groups 0 to 3, rank 1 groups 4 and 5, rank 2 groups 6 and 7;
 *       /   \             /   \           the two lower sums of the left half are rank 0's own work
 *     +       +         +       +
 *    0 1     2 3       4 5     6 7
 *
 * docs/many-machines.md is the guide. */
#ifndef TOW_GROUP_H
#define TOW_GROUP_H

#include "tow/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tow_group tow_group;

/* ---- members ----------------------------------------------------------------------------------------------------- */

/* 0 and 1 for NULL. */
TOW_API int tow_group_rank(const tow_group *group);
TOW_API int tow_group_count(const tow_group *group);
/* The name of the options; "data" for NULL. */
TOW_API const char *tow_group_name(const tow_group *group);
/* Frees a group and what carries it, and waits for nobody. NULL is accepted. */
TOW_API void tow_group_free(tow_group *group);

/* Ends all processes of the group: writes "tow: rank R (host, process P): " and the message to standard error, and
 * exits with the status; one that would say success becomes 1: 0, and others whose lowest 8 bits, which are what a
 * system tells, are 0. Whoever fails while others wait in a collective calls this, or they wait for the
 * watchdog:
 *
 *     if (status) tow_group_abort(group, 1, "%s", tow_context_error(context));
 *
 * Does not return; NULL ends this process alone. */
#ifdef __GNUC__
__attribute__((format(printf, 3, 4), noreturn))
#endif
TOW_API void
tow_group_abort(tow_group *group, int exit_status, const char *format, ...);

/* Tells in a few words what this process is at: step, instruction, source line. The watchdog asks when nothing has
 * moved for too long, in the thread that waits. Written like snprintf. */
typedef void (*tow_group_where)(char *text, size_t size, void *user);
TOW_API void tow_group_set_where(tow_group *group, tow_group_where where, void *user);

/* One of the things in which all processes must agree: model, seed, version, options. */
typedef struct tow_group_fact {
    const char *name, *value;
} tow_group_fact;
/* Compares the facts of all processes, and refuses what differs: TOW_INVALID_ARGUMENT in all of them, with the first
 * name whose values differ, and the values of rank 0 and of the first rank with another one. The version of Tow is
 * compared in any case. To be called once at the start. */
TOW_API tow_status tow_group_check_same(tow_group *group, size_t n, const tow_group_fact *facts);

/* ---- shares ------------------------------------------------------------------------------------------------------ */

/* The row groups [begin, end) of a rank among `count` processes, if there are `row_groups` of them. These are a subtree
 * of the tree over all groups. TOW_INVALID_ARGUMENT, and nothing is written: row_groups is not a power of two, or less
 * than count, or there is no such rank. */
TOW_API tow_status tow_group_rows(int rank, int count, int row_groups, int *begin, int *end);
/* The share of a rank in `n` elements that `count` processes divide among themselves: elements [offset, offset +
 * length). Shares differ by less than 32 elements, or n / 2048, and are empty where n has too few. They do not
 * lie in the order of ranks: neighbours in the tree own the halves of what they add up together. TOW_INVALID_ARGUMENT
 * as above, or for n below 0. */
TOW_API tow_status tow_group_share(int rank, int count, int64_t n, int64_t *offset, int64_t *length);

/* ---- collectives ------------------------------------------------------------------------------------------------- */

/* `array` holds the sum of this rank's row groups, and becomes the sum of all: element by element, in the order of the
 * tree; floats of 16 bits are rounded after each addition, integers wrap. Errors: TOW_TYPE_MISMATCH for bool,
 * TOW_INVALID_ARGUMENT for row groups that tow_group_rows refuses, TOW_OUT_OF_MEMORY, TOW_IO_ERROR if processes cannot
 * be reached. */
TOW_API tow_status tow_group_all_reduce(tow_group *group, int row_groups, tow_array *array);
/* The same, but only the elements of this rank's share (tow_group_share) become the sum; others hold anything. */
TOW_API tow_status tow_group_reduce_scatter(tow_group *group, int row_groups, tow_array *array);
/* Each rank's share of `array` (tow_group_share) is sent to all others. */
TOW_API tow_status tow_group_all_gather(tow_group *group, tow_array *array);
/* `array` becomes that of rank `root`. */
TOW_API tow_status tow_group_broadcast(tow_group *group, int root, tow_array *array);
/* Returns when all processes have called it. */
TOW_API tow_status tow_group_barrier(tow_group *group);

/* ---- processes of this machine ----------------------------------------------------------------------------------- */

typedef struct tow_processes_options {
    size_t size TOW__SIZE(tow_processes_options); /* set by TOW_PROCESSES_OPTIONS */
    int count;                                    /* 1 to 64; 0: one */
    const char *name;                             /* as in tow_group_options */
    double watchdog;                              /* as in tow_group_options */
} tow_processes_options;
#define TOW_PROCESSES_OPTIONS(...) TOW__OPTIONS(tow_processes_options, __VA_ARGS__)

/* Runs `body` in `count` new processes (fork), which are a group over shared memory. Each has its copy of the context,
 * and of all else that this process has. Returns when all have ended: TOW_OK if `body` returned 0 in all of them, else
 * TOW_INTERRUPTED, with the first rank that failed and how it ended. When one ends otherwise, by a signal or with a
 * status that is not 0, the others are killed; they also end with the thread that calls this. Nothing stays behind: the
 * memory has no name. A context whose programs have run on threads runs them on one in the new processes, so call this
 * before. Needs Linux, else TOW_UNSUPPORTED. */
TOW_API tow_status tow_processes_run(tow_context *context, const tow_processes_options *options,
                                     int (*body)(tow_context *context, tow_group *group, void *user), void *user);

/* ---- what carries a group ---------------------------------------------------------------------------------------- */

/* A message to or from another rank. Messages between two ranks in one direction with one tag arrive in the order of
 * their lists, and both sides give the same number of bytes. */
typedef struct tow_message {
    int peer;     /* the other rank */
    bool sends;   /* to the peer, else from it */
    bool done;    /* set by `test` */
    void *data;   /* read or written in place; belongs to the exchange until the message is done */
    size_t bytes; /* 1 to TOW_MESSAGE_BYTES */
} tow_message;

enum {
    TOW_MESSAGE_BYTES = 1 << 22, /* a message has at most so many bytes, so that progress is seen */
    TOW_MESSAGE_TAGS = 1 << 15   /* tags are below; the last one is that of the watchdog */
};

/* Six functions carry a group: exchange, gather, broadcast and barrier begin something, and give a request; test moves
 * what it can and asks a request; abort ends all. All are called by one thread. A function that fails has called
 * tow_group_fail. */
typedef struct tow_group_functions {
    size_t size TOW__SIZE(tow_group_functions); /* set by TOW_GROUP_FUNCTIONS */
    int rank, count;
    /* Begins to move messages, which stay where they are until the request has ended. Exchanges with different tags do
     * not wait for each other. */
    tow_status (*exchange)(tow_message *messages, size_t n, int tag, void **request, void *user);
    /* Sends data + offsets[rank], bytes[rank] bytes, to all, and writes the others' there: at most INT_MAX bytes from
     * data on. `offsets` and `bytes` have `count` entries and stay, too. NULL: made of exchanges. */
    tow_status (*gather)(void *data, const size_t *offsets, const size_t *bytes, void **request, void *user);
    /* Sends at most INT_MAX bytes of `root` to all. NULL: made of exchanges. */
    tow_status (*broadcast)(void *data, size_t bytes, int root, void **request, void *user);
    /* A request that ends when all have begun it. NULL: made of exchanges. */
    tow_status (*barrier)(void **request, void *user);
    /* Moves what can be moved, of all requests; if nothing of this one could, waits at most so many seconds for it.
     * *left: how many of its messages are not done, for others 1 or 0. At 0 the request has ended and is no more. */
    tow_status (*test)(void *request, double seconds, size_t *left, void *user);
    /* Ends all processes with this exit status. Does not return. */
    void (*abort)(int exit_status, void *user);
    /* Frees `user` and drops requests that have not ended. NULL: there is nothing to free. */
    void (*free)(void *user);
    void *user;
} tow_group_functions;
#define TOW_GROUP_FUNCTIONS(...) TOW__OPTIONS(tow_group_functions, __VA_ARGS__)

typedef struct tow_group_options {
    size_t size TOW__SIZE(tow_group_options); /* set by TOW_GROUP_OPTIONS */
    const char *name;                         /* NULL: "data" */
    /* Seconds without any progress in a collective after which all processes say where they stand, and end; 0: 60,
     * INFINITY: never. Time in which a process does not run (stopped, or the machine is busy) counts little. */
    double watchdog;
} tow_group_options;
#define TOW_GROUP_OPTIONS(...) TOW__OPTIONS(tow_group_options, __VA_ARGS__)

/* Makes a group of what carries it, `functions`, which are copied; all processes do so together. `options` may be NULL.
 * functions->free is called in any case, at once if the group cannot be made. Errors: TOW_INVALID_ARGUMENT,
 * TOW_OUT_OF_MEMORY, and those of the functions. */
TOW_API tow_status tow_group_create(tow_context *context, const tow_group_functions *functions,
                                    const tow_group_options *options, tow_group **group);
/* A group whose other processes are not there, to say before anything is started what rank `rank` of `count` will hold
 * and send: training states and programs are planned as those of that rank, and can be asked (tow_train_get_bytes,
 * tow_program_get_exchange), and whatever would send or receive ends with TOW_UNSUPPORTED; comparisons with the others
 * succeed. name: as in tow_group_options. Errors: TOW_INVALID_ARGUMENT, TOW_OUT_OF_MEMORY. */
TOW_API tow_status tow_group_plan_only(tow_context *context, int rank, int count, const char *name, tow_group **group);
/* Bytes that this process has sent to others and received from them since the group was made: arrays, without headers
 * of the network. An array that the carrier itself gathers or broadcasts counts as sent to every other process once. */
typedef struct tow_group_bytes {
    uint64_t sent, received;
} tow_group_bytes;
TOW_API tow_group_bytes tow_group_get_bytes(const tow_group *group); /* NULL: zeros */
/* With this the functions report why they fail: sets the message of the context, and returns the status. */
#ifdef __GNUC__
__attribute__((format(printf, 3, 4)))
#endif
TOW_API tow_status
tow_group_fail(tow_context *context, tow_status status, const char *format, ...);

#ifdef __cplusplus
}
#endif
#endif
