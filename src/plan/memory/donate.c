/* Donated inputs: outputs that are written where an input lies, from run to run what carries are from iteration to
 * iteration.
 *
 * Output i with donor j has a storage of kind TOW__S_OUTPUT, whose address is that of input j. It stays there if the
 * last read of the input comes before its first write, or is an instruction that may overwrite what it reads.
 * Otherwise the value moves to the arena, where it is alive until a copy at the end of the program. */
#include "src/plan/analysis/view.h"
#include "src/plan/ir.h"
#include "src/plan/lower/lower.h"
#include "src/plan/memory/memory.h"
#include "src/plan/pass.h"

/* ---- options ----------------------------------------------------------------------------------------------------- */

/* Has an earlier donation taken the input? */
static bool is_taken(const tow_program *p, size_t input)
{
    for (uint32_t i = 0; i < p->graph->n_outputs; i++)
        if (p->donors[i] == input) return true;
    return false;
}

static tow_status set_donor(tow_program *p, size_t index, const tow_donation *d)
{
    const tow_graph *g = p->graph;
    if (d->output >= g->n_outputs || d->input >= g->n_inputs)
        return tow__fail(p->ctx, TOW_INVALID_ARGUMENT,
                         "tow_compile: donation %zu: expected one of %u outputs and one of %u inputs, found output %zu "
                         "and input %zu",
                         index, g->n_outputs, g->n_inputs, d->output, d->input);
    if (p->donors[d->output] != TOW__NONE)
        return tow__fail(p->ctx, TOW_INVALID_ARGUMENT,
                         "tow_compile: donation %zu: output %zu goes to another input already; name every output "
                         "once",
                         index, d->output);
    if (is_taken(p, d->input))
        return tow__fail(p->ctx, TOW_INVALID_ARGUMENT,
                         "tow_compile: donation %zu: input %zu is overwritten by another output; donate every "
                         "input once",
                         index, d->input);
    const tow_type from = g->vars[g->outputs[d->output]].type, to = g->vars[g->inputs[d->input]].type;
    if (!tow_type_equal(from, to))
        return tow__fail(p->ctx, TOW_TYPE_MISMATCH,
                         "tow_compile: donation %zu: expected an output and an input of one type, found %s and %s; "
                         "donate an input of the output's type",
                         index, tow__type_name(from).text, tow__type_name(to).text);
    p->donors[d->output] = (uint32_t)d->input;
    return TOW_OK;
}

tow_status tow__set_donors(tow_program *p, const tow_compile_options *options)
{
    tow_status status = TOW_OK;
    p->donors = tow__arena_alloc(&p->memory, p->graph->n_outputs, sizeof *p->donors);
    if (!p->donors) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < p->graph->n_outputs; i++) p->donors[i] = TOW__NONE;
    if (options && options->n_donations > 0 && !options->donations)
        return tow__fail(p->ctx, TOW_INVALID_ARGUMENT,
                         "tow_compile: n_donations is %zu, but donations is NULL; pass an array of so many",
                         options->n_donations);
    for (size_t i = 0; options && i < options->n_donations; i++) TRY(set_donor(p, i, &options->donations[i]));
done:
    return status;
}

/* ---- the copy at the end ----------------------------------------------------------------------------------------- */

/* Storage `out` of an output moves to the arena; a copy at the end brings it to where the input lies. */
static tow_status copy_at_end(tow__function_state *s, uint32_t out, tow_type type)
{
    tow_program *p = s->p;
    tow__instruction copy = {.op = &tow__copy_p,
                             .kernel = p->copy,
                             .n_in = 1,
                             .n_out = 1,
                             .scratch = TOW__NONE,
                             .in = tow__arena_alloc(&p->memory, 1, sizeof *copy.in),
                             .out = tow__arena_alloc(&p->memory, 1, sizeof *copy.out)};
    if (!copy.in || !copy.out) return TOW_OUT_OF_MEMORY;
    uint32_t end = s->body->n_insts,
             place = tow__add_storage(p, s->body, TOW__S_OUTPUT, p->storages[out].index, p->storages[out].bytes);
    if (place == TOW__NONE) return TOW_OUT_OF_MEMORY;
    copy.in[0] = tow__view_whole(out, type);
    copy.out[0] = tow__view_whole(place, type);
    copy.backward = end > 0 && s->body->insts[end - 1].backward;
    p->storages[place].first = p->storages[place].last = end;
    p->storages[out].kind = TOW__S_ARENA;
    p->storages[out].last = end;
    tow__invalidate(s);
    return tow__append_instruction(p, s->body, &copy);
}

tow_status tow__choose_donations(tow__function_state *s)
{
    tow_program *p = s->p;
    const uint32_t n = p->n_storages; /* without those that are added here */
    for (uint32_t o = 0; o < n; o++) {
        const tow__storage *out = &p->storages[o];
        if (out->kind != TOW__S_OUTPUT || out->first == TOW__NONE || out->body != s->body) continue;
        const uint32_t in = p->donors[out->index]; /* the storages of inputs come first */
        if (in == TOW__NONE || !tow__written_while_read(p, s->body, in, o)) continue;
        tow_status status = copy_at_end(s, o, p->graph->vars[p->graph->outputs[out->index]].type);
        if (status != TOW_OK) return status;
    }
    return TOW_OK;
}

/* ---- from where on a run goes to its end ----------------------------------------------------------------------- */

uint32_t tow__first_lasting(const tow_program *p)
{
    const tow__body *top = p->top;
    uint32_t first = top->n_insts;
    for (uint32_t i = 0; i < p->n_storages; i++) {
        const tow__storage *s = &p->storages[i];
        if (s->kind != TOW__S_OUTPUT || s->body != top || p->donors[s->index] == TOW__NONE) continue;
        const tow__storage *memory = &p->storages[tow__representative(p, i)];
        if (memory->first < first) first = memory->first;
    }
    return first;
}
