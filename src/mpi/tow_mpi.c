/* Carries a group over MPI. This file is the whole of libtow_mpi: it knows the public headers alone, so that it can be
 * compiled with any MPI, together with a program.
 *
 * Everything is begun without waiting and moved by MPI_Testsome, in one thread. Memory is sent from where it lies and
 * received where it is to lie. Requests of MPI stay allocated for the next exchange. */
#if !defined(_GNU_SOURCE) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L /* nanosleep, sched_yield, setenv */
#endif

#include "tow/mpi.h"

#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SPINS = 100,     /* tests in a row before others get the processor */
    LOOKS = 8,       /* Open MPI looks at sockets in every eighth test alone */
    PATIENCE = 20000 /* tests without any result before this process sleeps between them */
};

/* Something that exchange, gather, broadcast or barrier has begun. */
typedef struct request {
    struct request *next;
    bool used;
    tow_message *messages; /* of an exchange; NULL: a collective of MPI, whose request is the first */
    size_t n, left, capacity;
    MPI_Request *requests;
    int *indices;          /* of those that a test has found done */
    MPI_Status *statuses;  /* likewise */
    int *counts, *offsets; /* of a gather, for all ranks */
} request;

typedef struct carrier {
    tow_context *context;
    MPI_Comm comm;
    int rank, count;
    bool began; /* MPI: then it ends it */
    request *requests;
    int idle; /* tests without a result */
} carrier;

static tow_status fail(const carrier *c, int error, const char *what)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;
    if (MPI_Error_string(error, text, &length) != MPI_SUCCESS) text[0] = '\0';
    return tow_group_fail(c->context, TOW_IO_ERROR, "MPI: %s: %s", what, text);
}

static tow_status no_memory(const carrier *c)
{
    return tow_group_fail(c->context, TOW_OUT_OF_MEMORY, "out of memory for requests of MPI");
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static void free_request(request *r)
{
    free(r->requests);
    free(r->indices);
    free(r->statuses);
    free(r->counts);
    free(r->offsets);
    free(r);
}

/* Room for n requests of MPI. */
static bool reserve(request *r, size_t n)
{
    if (n <= r->capacity) return true;
    MPI_Request *requests = realloc(r->requests, n * sizeof *requests);
    if (requests) r->requests = requests;
    int *indices = realloc(r->indices, n * sizeof *indices);
    if (indices) r->indices = indices;
    MPI_Status *statuses = realloc(r->statuses, n * sizeof *statuses);
    if (statuses) r->statuses = statuses;
    if (!requests || !indices || !statuses) return false;
    r->capacity = n;
    return true;
}

/* A request that is not used, for n requests of MPI, all of which are null. */
static request *take(carrier *c, size_t n)
{
    request *r = c->requests;
    while (r && r->used) r = r->next;
    if (!r) {
        if (!(r = calloc(1, sizeof *r))) return NULL;
        r->next = c->requests;
        c->requests = r;
    }
    if (!reserve(r, n)) return NULL;
    for (size_t i = 0; i < n; i++) r->requests[i] = MPI_REQUEST_NULL;
    r->messages = NULL;
    r->n = r->left = n;
    return r;
}

/* The end of all functions that begin something. */
static tow_status begun(const carrier *c, request *r, int error, const char *what, void **started)
{
    if (error != MPI_SUCCESS) return fail(c, error, what);
    r->used = true;
    *started = r;
    return TOW_OK;
}

/* ---- the functions ----------------------------------------------------------------------------------------------- */

static tow_status exchange(tow_message *messages, size_t n, int tag, void **started, void *user)
{
    carrier *c = user;
    request *r = n <= INT_MAX ? take(c, n) : NULL;
    int error = MPI_SUCCESS;
    if (!r) return no_memory(c);
    r->messages = messages;
    for (size_t i = 0; i < n && error == MPI_SUCCESS; i++) { /* receives first: then nothing has to be kept for them */
        const tow_message *m = &messages[i];
        if (!m->sends) error = MPI_Irecv(m->data, (int)m->bytes, MPI_BYTE, m->peer, tag, c->comm, &r->requests[i]);
    }
    for (size_t i = 0; i < n && error == MPI_SUCCESS; i++) {
        const tow_message *m = &messages[i];
        if (m->sends) error = MPI_Isend(m->data, (int)m->bytes, MPI_BYTE, m->peer, tag, c->comm, &r->requests[i]);
    }
    return begun(c, r, error, "an exchange cannot begin", started);
}

static tow_status gather(void *data, const size_t *offsets, const size_t *bytes, void **started, void *user)
{
    carrier *c = user;
    const size_t count = (size_t)c->count;
    request *r = take(c, 1);
    if (!r) return no_memory(c);
    if (!r->counts) r->counts = malloc(count * sizeof *r->counts);
    if (!r->offsets) r->offsets = malloc(count * sizeof *r->offsets);
    if (!r->counts || !r->offsets) return no_memory(c);
    for (size_t i = 0; i < count; i++) {
        r->counts[i] = (int)bytes[i];
        r->offsets[i] = (int)offsets[i];
    }
    const int error = MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, r->counts, r->offsets, MPI_BYTE,
                                      c->comm, &r->requests[0]);
    return begun(c, r, error, "a gather cannot begin", started);
}

static tow_status broadcast(void *data, size_t bytes, int root, void **started, void *user)
{
    carrier *c = user;
    request *r = take(c, 1);
    if (!r) return no_memory(c);
    return begun(c, r, MPI_Ibcast(data, (int)bytes, MPI_BYTE, root, c->comm, &r->requests[0]),
                 "a broadcast cannot begin", started);
}

static tow_status barrier(void **started, void *user)
{
    carrier *c = user;
    request *r = take(c, 1);
    if (!r) return no_memory(c);
    return begun(c, r, MPI_Ibarrier(c->comm, &r->requests[0]), "a barrier cannot begin", started);
}

/* Notes what is done. */
static tow_status look(carrier *c, request *r, bool *any)
{
    int n = 0;
    const int error = MPI_Testsome((int)r->n, r->requests, &n, r->indices, r->statuses);
    if (error != MPI_SUCCESS) return fail(c, error, "an exchange failed");
    *any = n != MPI_UNDEFINED && n > 0;
    for (int i = 0; *any && i < n; i++) {
        if (r->messages) r->messages[r->indices[i]].done = true;
        r->left--;
    }
    return TOW_OK;
}

static tow_status test(void *started, double seconds, size_t *left, void *user)
{
    carrier *c = user;
    request *r = started;
    const double end = seconds > 0 ? MPI_Wtime() + seconds : 0;
    bool any = false;
    int used = 0;
    for (const request *q = c->requests; q; q = q->next) used += q->used;
    tow_status status = look(c, r, &any);
    for (int i = used; !status && !any && i < LOOKS; i += used) status = look(c, r, &any);
    for (int spins = 0; !status && !any && seconds > 0 && MPI_Wtime() < end; spins++) {
        if (spins > SPINS) sched_yield();
        if (++c->idle > PATIENCE) nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        status = look(c, r, &any);
    }
    if (any) c->idle = 0;
    *left = r->left;
    if (!status && r->left == 0) r->used = false;
    return status;
}

static void end(int exit_status, void *user)
{
    const carrier *c = user;
    MPI_Abort(c->comm, exit_status);
    _Exit(exit_status);
}

/* Messages that nobody has sent are not received any more; collectives of MPI cannot be cancelled, and are not in
 * flight but after errors. */
static void leave(void *user)
{
    carrier *c = user;
    for (request *r = c->requests, *next; r; r = next) {
        next = r->next;
        for (size_t i = 0; r->used && r->messages && i < r->n; i++) {
            if (r->requests[i] == MPI_REQUEST_NULL) continue;
            MPI_Cancel(&r->requests[i]);
            MPI_Request_free(&r->requests[i]);
        }
        free_request(r);
    }
    if (c->comm != MPI_COMM_NULL) MPI_Comm_free(&c->comm);
    if (c->began) MPI_Finalize();
    free(c);
}

/* ---- making a group ---------------------------------------------------------------------------------------------- */

/* Begins MPI, or sees that it can be used. */
static tow_status begin_mpi(carrier *c)
{
    int is_begun = 0, has_ended = 0, level = MPI_THREAD_SINGLE, is_main = 0;
    MPI_Initialized(&is_begun);
    MPI_Finalized(&has_ended);
    if (has_ended)
        return tow_group_fail(c->context, TOW_UNSUPPORTED,
                              "MPI has ended in this process, and cannot begin again; make the group before");
    if (!is_begun) {
        /* With "put", Open MPI asks the other side for the bytes of a message behind those that it sends itself: two
         * processes that exchange take turns then, at half of the network's rate. Other MPIs do not know this. */
        setenv("OMPI_MCA_btl_tcp_flags", "send,inplace", 0);
        const int error = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
        if (error != MPI_SUCCESS) return fail(c, error, "it cannot begin");
        c->began = true;
    }
    MPI_Query_thread(&level);
    MPI_Is_thread_main(&is_main);
    if (level < MPI_THREAD_FUNNELED)
        return tow_group_fail(c->context, TOW_UNSUPPORTED,
                              "this MPI runs without threads; begin it with MPI_Init_thread and MPI_THREAD_FUNNELED");
    if (!is_main)
        return tow_group_fail(c->context, TOW_UNSUPPORTED, "expected the thread that began MPI, found another one");
    return TOW_OK;
}

static tow_status join(carrier *c, const void *communicator)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    if (communicator) memcpy(&comm, communicator, sizeof comm);
    int error = MPI_Comm_dup(comm, &c->comm);
    if (error == MPI_SUCCESS) error = MPI_Comm_set_errhandler(c->comm, MPI_ERRORS_RETURN);
    if (error == MPI_SUCCESS) error = MPI_Comm_rank(c->comm, &c->rank);
    if (error == MPI_SUCCESS) error = MPI_Comm_size(c->comm, &c->count);
    return error == MPI_SUCCESS ? TOW_OK : fail(c, error, "the communicator cannot be duplicated");
}

tow_status tow_mpi_create(tow_context *context, const void *communicator, const tow_group_options *options,
                          tow_group **group)
{
    if (group) *group = NULL;
    if (!context || !group)
        return tow_group_fail(context, TOW_INVALID_ARGUMENT,
                              "tow_mpi_create: expected a context and a place for the group, found NULL");
    carrier *c = malloc(sizeof *c);
    if (!c) return tow_group_fail(context, TOW_OUT_OF_MEMORY, "out of memory for a group over MPI");
    *c = (carrier){.context = context, .comm = MPI_COMM_NULL};
    tow_status status = begin_mpi(c);
    if (!status) status = join(c, communicator);
    if (status) {
        leave(c);
        return status;
    }
    return tow_group_create(context,
                            &TOW_GROUP_FUNCTIONS(.rank = c->rank, .count = c->count, .exchange = exchange,
                                                 .gather = gather, .broadcast = broadcast, .barrier = barrier,
                                                 .test = test, .abort = end, .free = leave, .user = c),
                            options, group);
}

size_t tow_mpi_version(char *text, size_t size)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "";
    int length = 0;
    MPI_Get_library_version(version, &length);
    length = (int)strcspn(version, "\n"); /* that of MPICH goes on with how it was built */
    if (text && size > 0) {
        const size_t n = (size_t)length < size ? (size_t)length : size - 1;
        memcpy(text, version, n);
        text[n] = '\0';
    }
    return (size_t)length;
}
