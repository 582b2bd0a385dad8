/* The machine as plans and kernels see it: its caches, its instruction set, and how fast it is. Decisions about speed
 * follow from these facts, never from the name of a vendor, and change no bits.
 *
 * Rates follow from the facts: of a processor at 3 GHz, two fused multiply-adds of full vectors a cycle, and so many
 * bytes a cycle from each level of memory. Without vectors that Tow has kernels for, timings
 * (src/kernels/machine_rates.c) correct a rate in powers of 16, so a rate that is right within a factor of four stays
 * as it is: all processes on one machine plan alike, busy or not. A machine that is given (TOW_MACHINE) is taken as it
 * is. */
#ifndef TOW_SRC_MACHINE_H
#define TOW_SRC_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A cache for data. */
typedef struct tow__cache {
    int64_t bytes;  /* 0: there is none, or nothing is known of it */
    int ways, line; /* line: bytes */
} tow__cache;

/* The levels of memory in which data lie when an instruction begins, the nearest first. */
typedef enum tow__memory_level {
    TOW__IN_L1,
    TOW__IN_L2,
    TOW__IN_L3,
    TOW__IN_MEMORY,
    TOW__LEVELS
} tow__memory_level;

/* The speed of one thread. */
typedef struct tow__rates {
    double f32, f64;           /* floating-point operations of products, per second */
    double functions;          /* cheap functions of f32 elements (a sum, a maximum), per second */
    double bytes[TOW__LEVELS]; /* read or written, per second */
    double shared;             /* bytes of memory per second of all threads together */
    double meeting;            /* seconds until all threads have begun a piece of work, and met again behind it */
    double call;               /* seconds that the call of a kernel takes besides its work */
} tow__rates;

typedef struct tow__machine {
    tow__cache l1, l2, l3;
    int vector_bytes; /* of the widest instructions that Tow has kernels for; 0: none */
    int threads;      /* that plans reckon with; 0: as many as the program runs on */
    tow__rates rates;
} tow__machine;

/* The machine at hand; asked once in a process. Its rates follow from the facts. */
const tow__machine *tow__machine_here(void);
/* The rates that follow from caches, vectors and threads. */
tow__rates tow__machine_nominal(const tow__machine *machine);
/* A rate, or a time, in the light of what was measured: `nominal` times a power of 16. measured 0: nothing was. */
double tow__machine_correct(double nominal, double measured);
/* The level of memory in which data of so many bytes are found again, among others: half of L1 or L2, an eighth of
 * L3. */
tow__memory_level tow__machine_level(const tow__machine *machine, double bytes);
/* Reads "KEY=NUMBER,...": l1, l2, l3 (bytes, or with K, M or G behind the number), vector (bytes), threads; f32, f64,
 * functions (10^9 per second and thread), l1_rate, l2_rate, l3_rate, memory_rate, shared_rate (10^9 bytes per second),
 * meeting, overhead (nanoseconds). Facts that are not given are those of the machine at hand, rates follow from the
 * facts. False: the text is none of this. */
bool tow__machine_read(const char *text, tow__machine *machine);
/* The machine of the environment variable TOW_MACHINE; false: it is not set, or wrong. */
bool tow__machine_given(tow__machine *machine);
/* "L1 32 KiB 8-way, L2 512 KiB 8-way, L3 32 MiB 16-way"; written like snprintf. */
size_t tow__machine_describe(const tow__machine *machine, char *text, size_t size);
/* "f32 96, f64 48 GFLOP/s; L1 144, L2 96, L3 48, memory 24 GB/s by one thread, 24 by all; ..."; written like
 * snprintf. */
size_t tow__machine_describe_rates(const tow__machine *machine, char *text, size_t size);

#endif
