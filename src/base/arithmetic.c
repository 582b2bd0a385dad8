/* Floating-point environments of x86-64 (SSE, and the x87 unit, on which the C library computes remainders), of
 * aarch64, and of other processors by way of fenv.h. */
#include "src/base/arithmetic.h"

#if defined(__x86_64__)

enum {
    SSE_DEFAULT = 0x1F80, /* all exceptions masked, none raised, round to nearest */
    SSE_FLUSH = 0x8040,   /* flush to zero, denormals are zeros */
    X87_DEFAULT = 0x037F, /* the same for x87, with 64 bits of precision */
    X87_MODES = 0x0F3F,   /* masks, precision and rounding; the other bits are reserved */
    X87_FLAGS = 0x3F
};

static unsigned x87_control(void)
{
    unsigned short control;
    __asm__ volatile("fnstcw %0" : "=m"(control));
    return control;
}

static void set_x87_control(unsigned control)
{
    unsigned short word = (unsigned short)control;
    __asm__ volatile("fldcw %0" : : "m"(word));
}

static unsigned x87_status(void)
{
    unsigned short status;
    __asm__ volatile("fnstsw %0" : "=m"(status));
    return status;
}

/* fegetenv and fesetenv take a hundred nanoseconds, so they are kept for threads whose x87 unit is in other modes than
 * those that threads begin with, and for flags that have changed. Flags that an application has raised before, as any
 * that prints a long double has, stay as they are: nothing traps in the default modes. */
void tow__arithmetic_enter(tow__arithmetic *outside, bool flush)
{
    outside->modes = __builtin_ia32_stmxcsr();
    outside->x87_control = x87_control() & X87_MODES;
    outside->x87_status = x87_status() & X87_FLAGS;
    if (outside->x87_control != (X87_DEFAULT & X87_MODES)) {
        fegetenv(&outside->other);
        __asm__ volatile("fnclex");
        set_x87_control(X87_DEFAULT);
    }
    __builtin_ia32_ldmxcsr(SSE_DEFAULT | (flush ? SSE_FLUSH : 0));
}

/* Takes back the flags that were raised since they were `status`. */
static void restore_x87_flags(unsigned status)
{
    fenv_t now;
    fegetenv(&now);
    now.__status_word = (unsigned short)((now.__status_word & ~(unsigned)X87_FLAGS) | status);
    fesetenv(&now);
}

void tow__arithmetic_leave(tow__arithmetic *outside)
{
    if (outside->x87_control != (X87_DEFAULT & X87_MODES))
        fesetenv(&outside->other);
    else if ((x87_status() & X87_FLAGS) != outside->x87_status)
        restore_x87_flags(outside->x87_status);
    __builtin_ia32_ldmxcsr(outside->modes);
}

unsigned long long tow__arithmetic_modes(void) { return __builtin_ia32_stmxcsr(); }
void tow__set_arithmetic_modes(unsigned long long modes)
{
    set_x87_control(X87_DEFAULT);
    __builtin_ia32_ldmxcsr((unsigned)modes);
}
bool tow__arithmetic_flushes(void) { return true; }

#elif defined(__aarch64__)

static const unsigned long long FPCR_FLUSH = 1ull << 24;

static unsigned long long fpcr(void)
{
    unsigned long long value;
    __asm__ volatile("mrs %0, fpcr" : "=r"(value));
    return value;
}

static void set_fpcr(unsigned long long value) { __asm__ volatile("msr fpcr, %0" : : "r"(value)); }

void tow__arithmetic_enter(tow__arithmetic *outside, bool flush)
{
    outside->fpcr = fpcr();
    __asm__ volatile("mrs %0, fpsr" : "=r"(outside->fpsr));
    set_fpcr(flush ? FPCR_FLUSH : 0);
}

void tow__arithmetic_leave(tow__arithmetic *outside)
{
    set_fpcr(outside->fpcr);
    __asm__ volatile("msr fpsr, %0" : : "r"(outside->fpsr));
}

unsigned long long tow__arithmetic_modes(void) { return fpcr(); }
void tow__set_arithmetic_modes(unsigned long long modes) { set_fpcr(modes); }
bool tow__arithmetic_flushes(void) { return true; }

#else

void tow__arithmetic_enter(tow__arithmetic *outside, bool flush)
{
    (void)flush;
    fegetenv(&outside->other);
    fesetenv(FE_DFL_ENV);
}

void tow__arithmetic_leave(tow__arithmetic *outside) { fesetenv(&outside->other); }

unsigned long long tow__arithmetic_modes(void) { return 0; }
void tow__set_arithmetic_modes(unsigned long long modes)
{
    (void)modes;
    fesetenv(FE_DFL_ENV);
}
bool tow__arithmetic_flushes(void) { return false; }

#endif
