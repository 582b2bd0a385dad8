/* The exchange of a program with other processes: its collectives, and a run by the cost model beside a network.
 *
 *   processor   | inst | start a | inst | start b | inst | wait a ....... | inst | wait b |
 *   network              | a ................... | b ........... |
 *
 * The network moves one collective after the other. A wait ends when its collective has; what the processor does until
 * then hides it. Iterations of a loop are gone through one by one, as what one of them starts may end in the next. */
#include "src/ops/collective.h"
#include "src/plan/analysis/cost.h"
#include "src/plan/report/report.h"

/* ---- collectives ------------------------------------------------------------------------------------------------- */

/* Is there a collective in the body, or in a loop within? */
static bool exchanges(const tow__body *body)
{
    for (uint32_t i = 0; i < body->n_insts; i++) {
        const tow__instruction *inst = &body->insts[i];
        if (inst->loop ? exchanges(inst->loop->body) : tow__starts_collective(inst->op)) return true;
    }
    return false;
}

/* The collective of a start; NULL: it is over the group of one, or there is no memory. Free it. */
static tow__collective *collective_of(const tow_program *p, const tow__instruction *inst)
{
    tow__collective *c = NULL;
    if (tow__collective_of_start(p->ctx, inst->op, inst->params, inst->in[0].type, NULL, &c) != TOW_OK) return NULL;
    return c;
}

static int64_t iterations(const tow__loop *loop) { return loop->length > 0 ? loop->length : 1; }

/* Runs of an instruction in one run of its loop, where it may work for another iteration (shift). */
static int64_t runs_in(const tow__loop *loop, const tow__instruction *inst)
{
    return loop && inst->shift > 0 ? iterations(loop) - 1 : loop ? iterations(loop) : 1;
}

static uint32_t buffer_of_start(const tow_program *p, const tow__instruction *inst)
{
    return tow__representative(p, inst->out[1].storage);
}

/* The buffer of the start that a wait belongs to. A carry is one that an earlier iteration has begun, or, `first`, what
 * was begun in front of the loop. */
static uint32_t buffer_of_wait(const tow_program *p, const tow__instruction *inst, bool first)
{
    const tow__storage *s = &p->storages[inst->in[1].storage];
    if (s->kind != TOW__S_CARRY_IN || !s->body->loop) return tow__representative(p, inst->in[1].storage);
    const tow__carry *c = &s->body->loop->carry[s->index];
    return tow__representative(p, first ? c->init.storage : c->out);
}

/* Does what instruction `start` begins travel while another iteration runs? */
static bool travels_on(const tow_program *p, const tow__body *body, uint32_t start)
{
    const uint32_t buffer = buffer_of_start(p, &body->insts[start]);
    if (body->insts[start].shift != 0) return true;
    for (uint32_t i = 0; i < body->n_insts; i++) {
        const tow__instruction *inst = &body->insts[i];
        if (!inst->loop && tow__awaits_collective(inst->op) && buffer_of_wait(p, inst, false) == buffer)
            return inst->deferred || inst->shift != 0;
    }
    return false;
}

static const char *kind_of_start(const tow__instruction *inst)
{
    return TOW__COMPUTES(inst, all_gather_start)   ? "all_gather"
           : TOW__COMPUTES(inst, all_reduce_start) ? "all_reduce"
                                                   : "reduce_scatter";
}

typedef struct search {
    const tow_program *p;
    size_t index; /* collectives until the one that is looked for */
    tow_program_collective *found;
} search;

/* Does it gather what an update has made, in place of a donated input? */
static bool is_of_update(const tow_program *p, const tow__instruction *inst)
{
    const tow__storage *whole = &p->storages[tow__representative(p, inst->out[0].storage)];
    return TOW__COMPUTES(inst, all_gather_start) && whole->kind == TOW__S_OUTPUT &&
           p->donors[whole->index] != TOW__NONE;
}

static bool describe(search *s, const tow__body *body, uint32_t i, bool backward, int64_t runs)
{
    const tow__instruction *inst = &body->insts[i];
    tow__collective *c = collective_of(s->p, inst);
    if (!c) return false;
    if (s->index-- > 0) {
        tow__collective_free(c);
        return false;
    }
    *s->found = (tow_program_collective){.kind = kind_of_start(inst),
                                         .scope = inst->source ? inst->source->scope : NULL,
                                         .pass = is_of_update(s->p, inst) ? "update"
                                                 : backward               ? "backward"
                                                                          : "forward",
                                         .type = inst->out[0].type,
                                         .length = body->loop ? body->loop->length : 0,
                                         .runs = runs,
                                         .deferred = travels_on(s->p, body, i),
                                         .sent = tow__collective_sent(c),
                                         .received = tow__collective_received(c)};
    tow__collective_free(c);
    return true;
}

static bool find(search *s, const tow__body *body, bool backward, int64_t runs)
{
    for (uint32_t i = 0; i < body->n_insts; i++) {
        const tow__instruction *inst = &body->insts[i];
        const bool now = backward || inst->backward;
        const int64_t often = runs * runs_in(body->loop, inst);
        if (inst->loop ? find(s, inst->loop->body, now, often)
                       : tow__starts_collective(inst->op) && describe(s, body, i, now, often))
            return true;
    }
    return false;
}

bool tow_program_get_collective(const tow_program *p, size_t index, tow_program_collective *collective)
{
    *collective = (tow_program_collective){.kind = ""};
    search s = {.p = p, .index = index, .found = collective};
    return p != NULL && find(&s, p->top, false, 1);
}

/* ---- a run beside a network -------------------------------------------------------------------------------------- */

/* The collective that a start begins; found once, as loops run it often. */
typedef struct cost {
    const tow__instruction *start;
    uint64_t sent, received;
    int rounds; /* 0: it is over the group of one */
} cost;

typedef struct flight {
    uint32_t buffer;
    bool gathers;
    double end;
} flight;

typedef struct run {
    const tow_program *p;
    tow__arena memory;
    double bandwidth, latency;
    double now, net; /* seconds; when the network has moved all that was started */
    cost *costs;
    flight *flights; /* in the order of their starts */
    uint32_t n_costs, costs_capacity, n_flights, flights_capacity;
    tow_program_exchange *sum;
} run;

static const cost *cost_of(run *r, const tow__instruction *inst)
{
    for (uint32_t i = 0; i < r->n_costs; i++)
        if (r->costs[i].start == inst) return &r->costs[i];
    r->costs = tow__extend(&r->memory, r->costs, r->n_costs, &r->costs_capacity, sizeof *r->costs);
    if (!r->costs) return NULL;
    tow__collective *c = collective_of(r->p, inst);
    r->costs[r->n_costs] = (cost){.start = inst,
                                  .sent = tow__collective_sent(c),
                                  .received = tow__collective_received(c),
                                  .rounds = c ? tow__collective_rounds(c) : 0};
    tow__collective_free(c);
    return &r->costs[r->n_costs++];
}

static void end_flight(run *r, uint32_t k)
{
    const double waits = r->flights[k].end - r->now;
    if (waits > 0) {
        r->sum->waiting += waits;
        r->now += waits;
    }
    r->n_flights--;
    for (; k < r->n_flights; k++) r->flights[k] = r->flights[k + 1];
}

/* Those that have ended by themselves stay until somebody waits for them: their buffers do so, too. */
static void count_flights(run *r)
{
    int64_t gathers = 0;
    for (uint32_t k = 0; k < r->n_flights; k++) gathers += r->flights[k].gathers;
    const int64_t sums = (int64_t)r->n_flights - gathers;
    if (gathers > r->sum->gathers_in_flight) r->sum->gathers_in_flight = gathers;
    if (sums > r->sum->sums_in_flight) r->sum->sums_in_flight = sums;
}

/* The first flight in this buffer; r->n_flights: there is none. */
static uint32_t find_flight(const run *r, uint32_t buffer)
{
    uint32_t k = 0;
    while (k < r->n_flights && r->flights[k].buffer != buffer) k++;
    return k;
}

/* An exchange for the next iteration has two buffers, of which the other one may be in flight. */
static void make_room(run *r, const tow__instruction *inst, uint32_t buffer)
{
    const uint32_t most = inst->shift > 0 ? 2 : 1;
    uint32_t n = 0;
    for (uint32_t k = 0; k < r->n_flights; k++) n += r->flights[k].buffer == buffer;
    if (n >= most) end_flight(r, find_flight(r, buffer));
}

static bool begin_flight(run *r, const tow__instruction *inst)
{
    const cost *c = cost_of(r, inst);
    if (!c) return false;
    if (c->rounds == 0) return true;
    const bool gathers = TOW__COMPUTES(inst, all_gather_start);
    const uint32_t buffer = buffer_of_start(r->p, inst);
    const uint64_t bytes = c->sent > c->received ? c->sent : c->received;
    const double seconds = r->bandwidth > 0 ? c->rounds * r->latency + (double)bytes / r->bandwidth : 0;
    make_room(r, inst, buffer);
    if (r->n_flights == TOW__MOST_IN_FLIGHT) end_flight(r, 0);
    r->flights = tow__extend(&r->memory, r->flights, r->n_flights, &r->flights_capacity, sizeof *r->flights);
    if (!r->flights) return false;
    r->net = (r->net > r->now ? r->net : r->now) + seconds;
    r->flights[r->n_flights++] = (flight){buffer, gathers, r->net};
    r->sum->communication += seconds;
    r->sum->sent += c->sent;
    r->sum->received += c->received;
    ++*(gathers ? &r->sum->gathers : &r->sum->sums);
    count_flights(r);
    return true;
}

static void await_flight(run *r, const tow__instruction *inst)
{
    if (inst->deferred) return;
    uint32_t k = find_flight(r, buffer_of_wait(r->p, inst, true));
    if (k == r->n_flights) k = find_flight(r, buffer_of_wait(r->p, inst, false));
    if (k < r->n_flights) end_flight(r, k);
}

static bool run_loop(run *r, const tow__loop *loop);

static bool run_inst(run *r, const tow__instruction *inst)
{
    if (inst->loop && exchanges(inst->loop->body)) return run_loop(r, inst->loop);
    const bool starts = !inst->loop && tow__starts_collective(inst->op);
    if (!inst->loop && tow__awaits_collective(inst->op)) await_flight(r, inst);
    if (starts && !begin_flight(r, inst)) return false;
    r->now += tow__instruction_seconds(&r->p->machine, inst);
    return true;
}

/* As src/run/run.c runs it: what works for another iteration has none in the first one or in the last one, and the end
 * of the loop does what is left. */
static bool run_loop(run *r, const tow__loop *loop)
{
    const tow__body *body = loop->body;
    bool settles = false, drains = false;
    for (uint32_t k = 0; k < body->n_insts; k++) {
        settles |= body->insts[k].deferred;
        drains |= body->insts[k].shift < 0;
    }
    for (int64_t i = 0; i < iterations(loop) + drains; i++)
        for (uint32_t k = 0; k < body->n_insts; k++) {
            const int64_t meant = i + body->insts[k].shift;
            if (meant >= 0 && meant < iterations(loop) && !run_inst(r, &body->insts[k])) return false;
        }
    while (settles && r->n_flights > 0) end_flight(r, 0);
    return true;
}

static bool run_top(run *r)
{
    for (uint32_t i = 0; i < r->p->top->n_insts; i++)
        if (!run_inst(r, &r->p->top->insts[i])) return false;
    return true;
}

tow_program_exchange tow_program_get_exchange(const tow_program *p, double bandwidth, double latency)
{
    tow_program_exchange sum = {0};
    if (!p) return sum;
    run r = {.p = p, .bandwidth = bandwidth, .latency = latency, .sum = &sum};
    if (!exchanges(p->top)) {
        sum.seconds = tow_program_seconds(p);
        return sum;
    }
    tow__arena_init(&r.memory, p->ctx);
    const bool whole = run_top(&r);
    while (whole && r.n_flights > 0) end_flight(&r, 0);
    sum.seconds = r.now;
    tow__arena_free(&r.memory);
    return whole ? sum : (tow_program_exchange){0};
}
