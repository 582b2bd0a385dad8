/* Shared by the two files of the partial evaluation of cond: cond_partial.c and cond_slots.c. */
#ifndef TOW_SRC_AUTODIFF_COND_PARTIAL_H
#define TOW_SRC_AUTODIFF_COND_PARTIAL_H

#include "src/autodiff/partial.h"

/* The place of residual r of a branch in the unknown choice. */
typedef struct tow__slot_of {
    bool is_result;              /* known result `index` of the known choice, else slot `index` */
    const tow__equation *source; /* not NULL: a constant */
    bool joined;                 /* the slot holds several residuals: this one from element `start` on */
    uint32_t index;
    int64_t start;
    bool placed;
} tow__slot_of;

typedef struct tow__choice {
    tow__split *s;
    const tow__equation *e;
    const tow__graphs *branches;
    uint32_t n_in, n_out; /* of the branches */
    bool *unknown;        /* [n_in] */
    bool *out_unknown;    /* [n_out] in any branch */
    bool *staged;         /* [n_out] the unknown choice has it */
    bool *forced;         /* [n_out] it has it whatever policies say inside: unknown in any branch, or saved in some */
    bool *used;           /* [n_in] an operand of the unknown choice */
    tow__partial *parts;  /* [branches] */
    tow__slot_of **slots; /* [branches][residuals] */
    tow_type *types;      /* [n_slots] */
    uint32_t n_slots, n_known;
} tow__choice;

/* The type of residual r of a branch. */
tow_type tow__slot_residual_type(const tow__partial *p, uint32_t r);
/* Fills slots and types from parts. False: no memory. */
bool tow__place_residuals(tow__choice *c);
/* True if a branch takes known result `index` as a residual. */
bool tow__is_slot_residual(const tow__choice *c, uint32_t index);

#endif
