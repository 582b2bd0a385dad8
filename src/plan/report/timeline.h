/* Live bytes of a program over its schedule, by kind and part of the model. */
#ifndef TOW_SRC_PLAN_TIMELINE_H
#define TOW_SRC_PLAN_TIMELINE_H

#include "src/plan/ir.h"

/* X(symbol, text in pictures): what memory of the arena holds. */
#define TOW__LIVE_LIST(X)                                                                                              \
    X(TOW__LIVE_RESIDUAL, "residual") /* made by the forward pass, read by the backward pass */                        \
    X(TOW__LIVE_FORWARD, "forward")                                                                                    \
    X(TOW__LIVE_BACKWARD, "backward")                                                                                  \
    X(TOW__LIVE_GRADIENT, "gradient")   /* made by the backward pass, read last by an update in place */               \
    X(TOW__LIVE_EXCHANGE, "exchange")   /* gathered from other processes, or where sums of others arrive */            \
    X(TOW__LIVE_WORKSPACE, "workspace") /* scratch of one instruction */

typedef enum tow__live_kind {
#define X(symbol, text) symbol,
    TOW__LIVE_LIST(X)
#undef X
    TOW__LIVE_KINDS
} tow__live_kind;

enum {
    TOW__LIVE_GROUPS = 256, /* at most while they are looked for */
    TOW__LIVE_SHOWN = 20    /* at most in the end */
};

/* Values of one kind whose scopes begin with `scope`, its first `length` characters; length 0: all of the kind. */
typedef struct tow__live_group {
    tow__live_kind kind;
    const char *scope;
    size_t length;
    int64_t *bytes; /* [n] */
} tow__live_group;

/* A place in the schedule: one instruction. Loops are written out if that does not take too many places, else their
 * first iteration stands for all; a tile group stands for all of its blocks. */
typedef struct tow__place_in_time {
    const tow__instruction *inst;
    bool backward;
    bool begins; /* first instruction of an iteration */
} tow__place_in_time;

typedef struct tow__timeline {
    const tow_program *p;
    tow__arena memory;
    uint32_t n;
    tow__place_in_time *places; /* [n] */
    tow__live_group groups[TOW__LIVE_GROUPS];
    uint32_t n_groups;
    int64_t *total; /* [n] bytes of the arena */
    uint32_t peak;  /* place of the largest total */
} tow__timeline;

/* most: groups in the end, at most. Free the timeline in any case. */
tow_status tow__timeline_make(const tow_program *p, uint32_t most, tow__timeline *t);
void tow__timeline_free(tow__timeline *t);
/* Most bytes of each kind that are alive at once. Error: TOW_OUT_OF_MEMORY. */
tow_status tow__live_bytes(const tow_program *p, size_t bytes[TOW__LIVE_KINDS]);

#endif
