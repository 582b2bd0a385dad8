/* The check of linear.h. */
#include "src/autodiff/linear.h"

#include <stdarg.h>
#include <stdio.h>

#include "src/autodiff/reach.h"

__attribute__((format(printf, 3, 4))) static bool refuse(tow__nonlinear *found, const tow__equation *e,
                                                         const char *format, ...)
{
    const char *here = e->source.here ? e->source.here : "";
    const int n = snprintf(found->text, sizeof found->text, "%.160s%s", here, *here ? ": " : "");
    va_list args;
    va_start(args, format);
    if (n >= 0 && vsnprintf(found->text + n, sizeof found->text - (size_t)n, format, args) < 0) found->text[0] = '\0';
    va_end(args);
    return false;
}

/* The first operand that depends on tangents and is an integer or a bool, or TOW__INPUT. */
static uint32_t discrete_operand(const tow_graph *g, const tow__equation *e, const bool *depends)
{
    for (uint32_t i = 0; i < e->n_in; i++)
        if (depends[e->in[i]] && !tow_dtype_is_float(g->vars[e->in[i]].type.dtype)) return i;
    return TOW__INPUT;
}

/* An integer or a bool has no tangent: who made the first one of tangents is not linear. That is an equation before e,
 * unless the value comes from outside of the body. */
static bool refuse_discrete(const tow_graph *g, const tow__equation *e, const bool *depends, tow__nonlinear *found)
{
    for (uint32_t i; (i = discrete_operand(g, e, depends)) != TOW__INPUT;) {
        const uint32_t made = g->vars[e->in[i]].equation;
        if (made == TOW__INPUT) break;
        e = &g->equations[made];
    }
    return refuse(found, e, "%s is applied to a tangent and is not linear", e->primitive->name);
}

/* "operand 1, which depends", "operands 0 and 1, which depend": of the operands those that depend on tangents. */
static const char *dependent_text(const tow__equation *e, const bool *depends, char *text, size_t size)
{
    uint32_t first = TOW__INPUT, last = 0, n = 0;
    for (uint32_t i = 0; i < e->n_in; i++) {
        if (!depends[e->in[i]]) continue;
        if (first == TOW__INPUT) first = i;
        last = i;
        n++;
    }
    if (n < 2)
        snprintf(text, size, "operand %u, which depends", first);
    else
        snprintf(text, size, "operands %u %s %u, which depend", first, n == 2 ? "and" : "to", last);
    return text;
}

bool tow__is_linear(const tow_graph *g, const tow__equation *e, const bool *depends, tow__nonlinear *found)
{
    const tow_primitive *p = e->primitive;
    char text[64];
    if (discrete_operand(g, e, depends) != TOW__INPUT) return refuse_discrete(g, e, depends, found);
    if (!p->transpose) return refuse(found, e, "%s is applied to a tangent and is not linear", p->name);
    if (p->linear_in && !p->linear_in(e, depends))
        return refuse(found, e, "%s is not linear in %s on tangents", p->name,
                      dependent_text(e, depends, text, sizeof text));
    return true;
}

/* ---- a whole graph ----------------------------------------------------------------------------------------------- */

/* Equations that depend on tangents, in g and in the bodies that the walk has reached. False: found. */
static bool all_linear(const tow__reach *r, tow__nonlinear *found)
{
    for (; r; r = r->next) {
        for (uint32_t i = 0; i < r->g->n_equations; i++) {
            const tow__equation *e = &r->g->equations[i];
            bool any = false;
            for (uint32_t j = 0; j < e->n_in; j++) any |= r->var[e->in[j]];
            if (any && !tow__is_linear(r->g, e, r->var, found)) return false;
            if (!all_linear(r->body[i], found)) return false;
        }
    }
    return true;
}

tow_status tow__check_linear(const tow_graph *g, const char *caller, const bool *linear_inputs)
{
    tow__arena arena;
    tow__nonlinear found;
    tow__arena_init(&arena, g->ctx);
    const tow__reach_walk walk = {.ctx = g->ctx, .arena = &arena};
    tow__reach *reach = tow__reach_begin(&walk, g);
    tow_status status = reach ? tow__reach_spread(&walk, reach, linear_inputs) : TOW_OUT_OF_MEMORY;
    if (status == TOW_OK && !all_linear(reach, &found))
        status = tow__fail(g->ctx, TOW_UNSUPPORTED,
                           "%s: %s, so there is no linear function to give; make the rule that records it linear in "
                           "its tangents, or use jvp",
                           caller, found.text);
    tow__arena_free(&arena);
    return status;
}
