/* Facts about the machine: its caches and its instruction set. Decisions about speed follow from these facts
 * and from what is measured (src/kernels/products/gemm_tuning.h), never from the name of a vendor, and change no
 * bits. */
#ifndef TOW_SRC_MACHINE_H
#define TOW_SRC_MACHINE_H

#include <stddef.h>
#include <stdint.h>

/* A cache for data. */
typedef struct tow__cache {
    int64_t bytes;  /* 0: there is none, or nothing is known of it */
    int ways, line; /* line: bytes */
} tow__cache;

typedef struct tow__machine {
    tow__cache l1, l2, l3;
    int vector_bytes; /* of the widest instructions that Tow has kernels for; 0: none */
} tow__machine;

/* The machine at hand; asked once in a process. */
const tow__machine *tow__machine_here(void);
/* "L1 32 KiB 8-way, L2 512 KiB 8-way, L3 32 MiB 16-way"; written like snprintf. */
size_t tow__machine_describe(const tow__machine *machine, char *text, size_t size);

#endif
