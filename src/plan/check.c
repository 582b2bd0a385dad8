/* Re-simulates a plan without trusting its lifetimes: every value has a place in memory, writing a value destroys all
 * others whose bytes it touches, and whatever a step reads must still be there. Values are storages before joining, so
 * the check also sees a value that is overwritten in place too early. */
#include "src/plan/plan.h"

/* Where a storage lies: bytes [begin, end) of a space. Space 0 is the plan's arena, 1 what is never written; the others
 * are the caller's arrays and the rows and carries of a loop. */
typedef struct place {
    uint64_t space;
    size_t begin, end;
} place;

typedef struct checker {
    const tow_program *p;
    const tow__plan *plan;
    const tow__loop *loop; /* whose body `plan` is, or NULL */
    bool *valid;           /* [n_storages] the value is in memory */
} checker;

static place place_of(const checker *c, uint32_t storage)
{
    const tow__storage *s = &c->p->storages[tow__root(c->p, storage)];
    size_t bytes = c->p->storages[storage].bytes, begin = 0;
    uint64_t space = 1;
    if (s->kind == TOW__S_ARENA) {
        space = 0;
        begin = s->offset;
    } else if (s->kind != TOW__S_CONSTANT) {
        uint64_t kind = s->kind;
        bool blocks = c->loop && tow__by_blocks(c->loop);
        if (kind == TOW__S_ROW_OUT && blocks) { /* they may take the place of others */
            uint32_t root = tow__root(c->p, c->loop->ys[s->index].array.storage);
            for (uint32_t i = 0; i < c->loop->n_xs; i++)
                if (tow__root(c->p, c->loop->xs[i].array.storage) == root)
                    return (place){(uint64_t)(TOW__S_ROW_IN + 1) << 32 | i, 0, bytes};
        }
        if (kind == TOW__S_CARRY_OUT && c->loop && !c->loop->carry[s->index].alternates)
            kind = TOW__S_CARRY_IN; /* one buffer */
        space = (kind + 1) << 32 | s->index;
    }
    return (place){space, begin, begin + bytes};
}

static bool overlap(place a, place b) { return a.space == b.space && a.begin < b.end && b.begin < a.end; }

static tow_status wrong(const checker *c, uint32_t step, uint32_t storage, const char *what)
{
    const tow__storage *s = &c->p->storages[storage];
    return tow__fail(c->p->ctx, TOW_INTERNAL_ERROR,
                     "the plan is wrong at step %u (%s): storage %u (%zu bytes at offset %zu) %s; please report this",
                     step, c->plan->steps[step].base->name, storage, s->bytes,
                     c->p->storages[tow__root(c->p, storage)].offset, what);
}

static bool is_own(const checker *c, uint32_t storage)
{
    const tow__storage *s = &c->p->storages[storage];
    return s->plan == c->plan && s->kind != TOW__S_CONSTANT && s->bytes;
}

/* A result of the surrounding plan that a row region adds to block by block. */
static bool is_sum(const checker *c, uint32_t storage)
{
    return c->loop && c->loop->ordered && c->p->storages[storage].plan != c->plan;
}

/* Makes storage valid and destroys what shares bytes with it. */
static void write_storage(checker *c, uint32_t storage)
{
    place to = place_of(c, storage);
    for (uint32_t i = 0; i < c->p->n_storages; i++)
        if (c->valid[i] && is_own(c, i) && overlap(to, place_of(c, i))) c->valid[i] = false;
    c->valid[storage] = true;
}

/* A step may write what it reads only where its kernel allows that. */
static tow_status check_write(checker *c, uint32_t i, uint32_t storage, uint32_t output)
{
    const tow__step *step = &c->plan->steps[i];
    if (!c->p->storages[storage].bytes || is_sum(c, storage)) return TOW_OK;
    place to = place_of(c, storage);
    if (to.space == 0 && to.end > c->plan->bytes) return wrong(c, i, storage, "lies outside the arena");
    for (uint32_t j = 0; j < step->n_in; j++) {
        uint32_t s = step->in[j].storage;
        if (!is_own(c, s) || !overlap(to, place_of(c, s))) continue;
        bool same = place_of(c, s).begin == to.begin && place_of(c, s).end == to.end;
        uint32_t root = tow__root(c->p, s);
        if (!same || output == TOW__NONE || !tow__may_overwrite(c->p, step, output, root))
            return wrong(c, i, storage, "is written over an operand");
    }
    return TOW_OK;
}

/* All that one step writes: outputs, scratch, spare buffers. No two may overlap. */
static tow_status check_writes(checker *c, uint32_t i, uint32_t *written)
{
    const tow__step *step = &c->plan->steps[i];
    uint32_t n = 0;
    tow_status status;
    for (uint32_t j = 0; j < step->n_out; j++, n++) written[n] = step->out[j].storage;
    if (step->scratch != TOW__NONE) written[n++] = step->scratch;
    for (uint32_t j = 0; step->loop && j < step->loop->n_carry; j++)
        if (step->loop->carry[j].spare != TOW__NONE) written[n++] = step->loop->carry[j].spare;
    for (uint32_t j = 0; j < n; j++) {
        status = check_write(c, i, written[j], j < step->n_out ? j : TOW__NONE);
        if (status != TOW_OK) return status;
        for (uint32_t k = 0; k < j; k++)
            if (written[j] != written[k] && !is_sum(c, written[j]) && !is_sum(c, written[k]) &&
                overlap(place_of(c, written[j]), place_of(c, written[k])))
                return wrong(c, i, written[j], "overlaps another result of the step");
    }
    for (uint32_t j = 0; j < n; j++)
        if (!is_sum(c, written[j])) write_storage(c, written[j]);
    return TOW_OK;
}

static bool is_consumption(const tow__step *step) { return step->base == &tow__consume_p; }

/* The consumer overwrites an input of the program, or the row of it that the loop has at hand. */
static void consume(checker *c, const tow__step *step)
{
    const tow__consumption *params = step->params;
    if (step->n_in > 1) c->valid[step->in[1].storage] = false;
    for (uint32_t i = 0; i < c->p->n_storages; i++)
        if (c->p->storages[i].kind == TOW__S_INPUT && c->p->storages[i].index == params->consumer->input)
            c->valid[i] = false;
}

static tow_status check_plan(const tow_program *p, const tow__plan *plan, const tow__loop *loop, tow__arena *scratch);

static tow_status check_step(checker *c, uint32_t i, tow__arena *scratch)
{
    const tow__step *step = &c->plan->steps[i];
    tow_status status = TOW_OK;
    uint32_t *written =
        tow__arena_alloc(scratch, (size_t)step->n_out + 1 + (step->loop ? step->loop->n_carry : 0), sizeof *written);
    if (!written) return TOW_OUT_OF_MEMORY;
    const uint32_t n_read = is_consumption(step) ? 1 : step->n_in; /* it overwrites operand 1 */
    for (uint32_t j = 0; j < n_read; j++)
        if (is_own(c, step->in[j].storage) && !c->valid[step->in[j].storage])
            return wrong(c, i, step->in[j].storage, "is read but was not written, or was overwritten");
    for (uint32_t j = step->loop && step->loop->continues ? step->loop->n_ys : step->n_out; j < step->n_out; j++)
        if (is_own(c, step->out[j].storage) && !c->valid[step->out[j].storage])
            return wrong(c, i, step->out[j].storage, "is added to but was not written, or was overwritten");
    if (step->loop) TRY(check_plan(c->p, step->loop->body, step->loop, scratch));
    TRY(check_writes(c, i, written));
    if (is_consumption(step)) consume(c, step);
    for (uint32_t j = 0; step->loop && j < step->loop->body->n_steps; j++)
        if (is_consumption(&step->loop->body->steps[j])) consume(c, &step->loop->body->steps[j]);
done:
    return status;
}

/* What has been there before the first step: inputs, rows, carries. */
static bool is_given(tow__storage_kind kind)
{
    return kind == TOW__S_INPUT || kind == TOW__S_ROW_IN || kind == TOW__S_CARRY_IN;
}
/* What must be there after the last step. */
static bool is_due(tow__storage_kind kind)
{
    return kind == TOW__S_OUTPUT || kind == TOW__S_ROW_OUT || kind == TOW__S_CARRY_OUT;
}

static tow_status check_plan(const tow_program *p, const tow__plan *plan, const tow__loop *loop, tow__arena *scratch)
{
    checker c = {.p = p, .plan = plan, .loop = loop, .valid = tow__arena_alloc(scratch, p->n_storages, sizeof(bool))};
    if (!c.valid) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < p->n_storages; i++) c.valid[i] = is_own(&c, i) && is_given(p->storages[i].kind);
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        tow_status status = check_step(&c, i, scratch);
        if (status != TOW_OK) return status;
    }
    for (uint32_t i = 0; i < p->n_storages; i++)
        if (is_own(&c, i) && (is_due(p->storages[i].kind) || p->storages[i].kept) && p->storages[i].root == i &&
            !c.valid[i])
            return tow__fail(p->ctx, TOW_INTERNAL_ERROR,
                             "the plan is wrong: result %u of %s is not there after the last step; please report this",
                             p->storages[i].index, loop ? "a loop body" : "the program");
    return TOW_OK;
}

tow_status tow_program_check(const tow_program *p)
{
    if (!p) return tow__missing(NULL, __func__, "a program");
    tow__arena scratch;
    tow__arena_init(&scratch, p->ctx);
    tow_status status = check_plan(p, p->top, NULL, &scratch);
    tow__arena_free(&scratch);
    return status;
}
