/* Functions in several versions, one per instruction set. */
#ifndef TOW_SRC_CLONES_H
#define TOW_SRC_CLONES_H

/* One version of the function per instruction set, chosen when the program starts. Contraction is off and fused
 * multiply-adds are written out, so all versions give the same bits. */
#if defined(__x86_64__) && defined(__GNUC__) && defined(__OPTIMIZE__) && (!defined(__clang__) || __clang_major__ >= 19)
#define TOW__HAVE_CLONES
#define TOW__CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define TOW__CLONES
#endif

#endif
