/* Rows of arrays in a file: what loops keep of their states beyond what fits into memory (.file_slots of a schedule).
 *
 * A program has one file, which has no name, and one thread that reads and writes it beside the work:
 *
 *   file       | rows of region 0 | rows of region 1 | ...         a region for each array
 *   region     token, staging: [write, write, read, read] rows of memory
 *   jobs       done in the order in which they were begun, so that a row that was written can be read
 *
 * A write copies the row into a staging row and returns. A read takes the row from a staging row, if it is there, and
 * begins to read the row before it, which is the next one that a loop asks for. */
#ifndef TOW_SRC_SPILL_H
#define TOW_SRC_SPILL_H

#include <pthread.h>
#include <sys/types.h>

#include "src/base/base.h"

enum {
    TOW__SPILL_WRITES = 2,
    TOW__SPILL_STAGING = 4 /* rows: to write, then read ones */
};

/* The system calls, which tests replace. open: a file in this folder that nobody else sees; -1 and errno. */
typedef struct tow__spill_calls {
    int (*open)(const char *folder);
    ssize_t (*pread)(int fd, void *data, size_t count, off_t offset);
    ssize_t (*pwrite)(int fd, const void *data, size_t count, off_t offset);
} tow__spill_calls;

typedef struct tow__spill_region tow__spill_region;

typedef struct tow__spill_job {
    struct tow__spill_job *next;
    tow__spill_region *region;
    char *data;
    int64_t row; /* -1: the staging row holds none */
    bool writes, pending;
} tow__spill_job;

struct tow__spill_region {
    tow__spill_region *next;
    int64_t offset, rows; /* in the file; how many */
    size_t row_bytes;
    int32_t token; /* of what it holds; 0: nothing */
    tow__spill_job jobs[TOW__SPILL_STAGING];
    int next_write;
};

typedef struct tow__spill {
    tow_context *ctx;
    tow__spill_region *regions;
    int64_t bytes; /* of all regions */
    int fd;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_t thread;
    bool initialized, started, stops;
    tow__spill_job *first, *last; /* pending */
    int error;                    /* errno of a job of this run, or 0; -1: the file was shorter than what was written */
    bool failed_write;            /* it was a write */
} tow__spill;

/* Adds the bytes of so many rows of a region to those of all. False: a file cannot have so many. */
bool tow__spill_count(int64_t rows, size_t row_bytes, int64_t *bytes);
/* Adds a region of so many rows, which tow__spill_count has found to fit. */
void tow__spill_add(tow__spill *s, tow__spill_region *region, int64_t rows, size_t row_bytes);
/* Before a run: nothing is held. */
void tow__spill_reset(tow__spill *s);
/* After a run: nothing is pending, and the file takes no room. */
void tow__spill_settle(tow__spill *s);
void tow__spill_end(tow__spill *s);

/* The region holds nothing yet from here on, but a new token. staging: TOW__SPILL_STAGING rows. */
tow_status tow__spill_begin(tow__spill *s, tow__spill_region *region, char *staging);
/* The region with this token and these staging rows; NULL, with an error: there is none in this program. */
tow__spill_region *tow__spill_find(tow__spill *s, int32_t token, const char *staging);
/* Room for a row that tow__spill_write writes. */
char *tow__spill_room(tow__spill *s, tow__spill_region *region);
tow_status tow__spill_write(tow__spill *s, tow__spill_region *region, int64_t row);
/* *data: the row, until the next call. */
tow_status tow__spill_read(tow__spill *s, tow__spill_region *region, int64_t row, const char **data);
/* Begins to read a row that will be asked for. */
void tow__spill_prefetch(tow__spill *s, tow__spill_region *region, int64_t row);

#endif
