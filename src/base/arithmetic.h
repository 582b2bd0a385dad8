/* The floating-point environment in which Tow computes, whatever the application has set: round to nearest, no
 * exception traps, and subnormal numbers are taken as zeros only where a program says so. Results would else depend on
 * the modes of the calling thread, and the kernels raise exceptions that mean nothing: vector code computes lanes that
 * it then drops. */
#ifndef TOW_SRC_ARITHMETIC_H
#define TOW_SRC_ARITHMETIC_H

#include <fenv.h>
#include <stdbool.h>

/* The environment of the calling thread outside of Tow: modes, masks and exception flags. */
typedef struct tow__arithmetic {
    fenv_t other; /* x86-64: of the x87 unit, and only if that was not in its default modes */
    unsigned modes, x87_control, x87_status;
    unsigned long long fpcr, fpsr;
} tow__arithmetic;

/* Tow's environment until the end of the block. Every public function begins with this that computes, or calls a
 * compiler pass, in floating point; blocks nest. */
#define TOW__ARITHMETIC(flush_subnormals)                                                                              \
    __attribute__((cleanup(tow__arithmetic_leave))) tow__arithmetic outside_;                                          \
    tow__arithmetic_enter(&outside_, flush_subnormals)
void tow__arithmetic_enter(tow__arithmetic *outside, bool flush_subnormals);
void tow__arithmetic_leave(tow__arithmetic *outside);

/* Modes that workers take over from the thread that hands out a job, which has entered. */
unsigned long long tow__arithmetic_modes(void);
void tow__set_arithmetic_modes(unsigned long long modes);
/* True if `flush_subnormals` has an effect on this processor. */
bool tow__arithmetic_flushes(void);

#endif
