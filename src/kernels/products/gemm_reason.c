/* Why a product runs on its engine, in words for plans. It follows the rule (gemm.h) and what its trial found
 * (gemm_trial.h). */
#include <stdio.h>

#include "src/kernels/products/gemm.h"
#include "src/kernels/products/gemm_trial.h"

/* The place where the caller has decided; NULL: the rule does. */
static const char *asked_for(const tow__gemm *g, const tow__gemm_engine *engine)
{
    const tow__gemm_choice *choice = g->choice;
    if (choice == NULL || choice->engine == NULL) return NULL;
    if (choice->engine != engine) return "the forced engine cannot run it";
    if (engine->needs_code && g->code == NULL) return "forced, but not proven: the own kernel does its work";
    return "forced by TOW_ENGINE or an option";
}

/* Why the own kernel runs a product without a look at times: there is no trial, or no engine has its bits; NULL: times
 * decide. */
static const char *not_replaced(const tow__gemm *g, const tow__gemm_trial *t, const char *unprepared)
{
    if (unprepared != NULL) return unprepared;
    if (tow__gemm_untried(g) != NULL) return tow__gemm_untried(g);
    if (t == NULL) return "room for trials is full";
    if (t->proven == NULL) return "no code of another engine is proven to have its bits";
    return tow__gemm_may_stand_in(g->choice, t->proven) ? NULL : "the engine with its bits is left out";
}

static int explain_trial(const tow__gemm_trial *t, const tow__gemm_choice *choice, bool chosen, const char *label,
                         char *text, size_t size)
{
    const char *other = t->proven->label;
    tow__gemm_times times = t->times;
    const bool open = t->contest != NULL && !tow__gemm_contest_times(t->contest, &times);
    if (choice != NULL && choice->times != NULL)
        times = *choice->times;
    else if (open)
        return snprintf(text, size, "%s: the first runs time it and %s, which has its bits", label, other);
    const bool timed = times.own > 0 && times.other > 0;
    if (chosen && timed)
        return snprintf(text, size, "%s: bits of the own kernel, %.2f times as fast here", label,
                        times.own / times.other);
    if (chosen) return snprintf(text, size, "%s: bits of the own kernel, small, not timed", label);
    if (!timed) return snprintf(text, size, "%s: not small, and not timed against %s", label, other);
    return snprintf(text, size, "%s: timed ahead of %s, %.2f times as fast here", label, other,
                    times.other / times.own);
}

size_t tow__gemm_explain(tow__gemm *g, const tow__gemm_engine *engine, const char *unprepared, char *text, size_t size)
{
    const tow__gemm_engine *asked = engine;
    if (unprepared == NULL) engine = tow__gemm_prepare(g, engine);
    const bool unit = engine == &tow__gemm_amx, rest = engine == &tow__gemm_reference;
    const bool own = asked == &tow__gemm_own;
    const tow__gemm_trial *t = own && unprepared == NULL ? tow__gemm_try(g) : NULL;
    const char *why = asked_for(g, engine);
    if (why == NULL)
        why = tow__gemm_of_bf16(g) && !own && !rest ? "bf16, as it is stored"
              : unit && tow__gemm_has_halves(g)     ? "large, as it is stored, with the bits of f32"
              : unit                                ? "large, of f32"
              : rest                                ? "no other engine runs it"
              : own                                 ? not_replaced(g, t, unprepared)
                                                    : "the others are left out";
    const int length = why != NULL ? snprintf(text, size, "%s: %s", engine->label, why)
                                   : explain_trial(t, g->choice, engine != &tow__gemm_own, engine->label, text, size);
    return length < 0 ? 0 : (size_t)length;
}
