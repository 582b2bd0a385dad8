/* The analyses of a function as objects: made on demand, kept, dropped, compared with fresh ones. */
#include "src/plan/analysis/analysis.h"

#include "src/plan/pass.h"

const tow__uses *tow__get_uses(tow__function_state *s)
{
    if (!s->analyses.uses) s->analyses.uses = tow__find_uses(s->p, s->body, s->scratch);
    return s->analyses.uses;
}

const tow__liveness *tow__get_liveness(tow__function_state *s)
{
    if (!s->analyses.liveness) s->analyses.liveness = tow__find_liveness(s->p, s->body, s->scratch);
    return s->analyses.liveness;
}

const tow__cost *tow__get_cost(tow__function_state *s)
{
    if (!s->analyses.cost) s->analyses.cost = tow__find_cost(s->p, s->body, s->scratch);
    return s->analyses.cost;
}

const tow__tiling *tow__get_tiling(tow__function_state *s)
{
    if (!s->analyses.tiling) s->analyses.tiling = tow__find_tiling(s->body, s->scratch);
    return s->analyses.tiling;
}

void tow__invalidate(tow__function_state *s)
{
    if (s->analyses.uses) tow__free_uses(s->p, s->analyses.uses);
    s->analyses = (tow__analyses){0};
}

/* ---- comparison with fresh ones ---------------------------------------------------------------------------------- */

static bool same_uses(const tow__uses *a, const tow__uses *b)
{
    if (a->n_named != b->n_named) return false;
    for (uint32_t i = 0; i < a->n_named; i++) {
        const uint32_t s = a->named[i];
        if (s != b->named[i] || a->producer[s] != b->producer[s] || a->last_reader[s] != b->last_reader[s] ||
            a->reads[s] != b->reads[s])
            return false;
    }
    return true;
}

static bool same_liveness(const tow__liveness *a, const tow__liveness *b)
{
    if (a->n != b->n || a->peak != b->peak) return false;
    for (uint32_t i = 0; i < a->n; i++) {
        const tow__live_range *x = &a->ranges[i], *y = &b->ranges[i];
        if (x->storage != y->storage || x->first != y->first || x->last != y->last || x->is_result != y->is_result)
            return false;
    }
    return true;
}

static bool same_cost(const tow__cost *a, const tow__cost *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (a->seconds[i] != b->seconds[i]) return false;
    return a->total == b->total;
}

static bool same_tiling(const tow__tiling *a, const tow__tiling *b, const tow__body *body)
{
    for (uint32_t i = 0; i < body->n_insts; i++) {
        if (a->is_tileable[i] != b->is_tileable[i] || a->axis[i] != b->axis[i]) return false;
        for (uint32_t j = 0; j < body->insts[i].n_in; j++)
            if (a->from[i][j] != b->from[i][j]) return false;
    }
    return true;
}

/* The name of an analysis that is kept and wrong; NULL: there is none. *status: was there memory to find out? */
static const char *find_wrong(const tow__analyses *kept, tow__function_state *fresh, tow_status *status)
{
    const tow__body *body = fresh->body;
    *status = TOW_OUT_OF_MEMORY;
    if (kept->uses && !tow__get_uses(fresh)) return NULL;
    if (kept->liveness && !tow__get_liveness(fresh)) return NULL;
    if (kept->cost && !tow__get_cost(fresh)) return NULL;
    if (kept->tiling && !tow__get_tiling(fresh)) return NULL;
    *status = TOW_OK;
    if (kept->uses && !same_uses(kept->uses, fresh->analyses.uses)) return "uses";
    if (kept->liveness && !same_liveness(kept->liveness, fresh->analyses.liveness)) return "liveness";
    if (kept->cost && !same_cost(kept->cost, fresh->analyses.cost, body->n_insts)) return "cost";
    if (kept->tiling && !same_tiling(kept->tiling, fresh->analyses.tiling, body)) return "tiling";
    return NULL;
}

tow_status tow__verify_analyses(tow__function_state *s, const char *pass)
{
    tow__function_state fresh = {.p = s->p, .scratch = s->scratch, .kind = s->kind, .body = s->body, .loop = s->loop};
    tow_status status;
    const char *wrong = find_wrong(&s->analyses, &fresh, &status);
    tow__invalidate(&fresh);
    if (!wrong) return status;
    return tow__fail(s->p->ctx, TOW_INTERNAL_ERROR,
                     "pass %s changed instructions and left the %s of what was there before (please report this)", pass,
                     wrong);
}
