/* The passes of the compiler, in the order in which they run on one function.
 *
 *   graph ──distribute loops, sink, widen──> graph ──inline──> instructions on values ──rules, order──>
 *         ──lower──> instructions on views of storages ──rules, from the program into its loops──> instructions
 *         ──fuse, parallelize, tile, from the loops out to the program──> fewer, and loops over blocks
 *         ──alias, assign buffers──> offsets ──bind addresses──> calls
 *
 * The stage of a pass (pass.h) says in which order functions come to it. A body of a scan is a function of its own, and
 * so is the body of a tile group. Each runs all passes of a stage before the next function begins; inner functions are
 * first, except for the rules directly after `lower`, because what is constant outside, and how it lies in memory, is
 * known inside then. So the list is not the order in time. For a program P with a scan whose body is B, in which `tile`
 * makes a tile group with body T, time runs from top to bottom:
 *
 *   P   distribute-loops .. widen                 TOW__ON_GRAPH
 *   B   inline, eliminate-recomputation .. order  TOW__ON_VALUES     inner functions first
 *   P   inline, eliminate-recomputation .. order
 *   B   lower                                     TOW__LOWERING      inner functions first
 *   P   lower
 *   P   fold-constants .. pipeline-exchanges      TOW__OUTSIDE_IN    outer functions first
 *   B   fold-constants .. pipeline-exchanges
 *   B   fuse .. tile, which makes T               TOW__ON_VIEWS      inner functions first
 *   T   fuse-reductions .. assign-buffers
 *   B   (end of tile) fuse-reductions .. assign-buffers
 *   P   fuse .. assign-buffers
 *   P   bind-addresses                            TOW__ON_PROGRAM    once for all functions
 *
 * B is one instruction of P, with a finished arena, by the time that `fuse` looks at P.
 *
 * Passes that choose between two forms of a function compare their seconds on the machine for which the program is
 * planned (tow_program.machine: the one at hand, or TOW_MACHINE). All ask one function, so what one pass finds worth
 * its cost, another one measures alike:
 *
 *   base/machine.c     caches, vectors, rates ──────┐
 *   kernels/machine_rates.c    timings correct them │
 *                                                   v
 *   descriptors' cost ──> analysis/cost.c: tow__work_of, tow__seconds, tow__instruction_seconds, tow__equation_seconds
 *                              ^        ^        ^         ^          ^           ^
 *                              │        │        │         │          │           │
 *   distribute, fission, pretranspose ──┤        │         │          │           │   in the loop, or around it
 *   parallelize ───────────────┘        │        │         │          │           │   pieces, or instructions shared
 *   distribute-remainder ───────────────┘        │         │          │           │   the same, or one more round
 *   split-norm-gradient, tile ───────────────────┘         │          │           │   rows of a block; a loop, or calls
 *   fuse, fuse-reductions ─────────────────────────────────┘          │           │   one row program, or two calls
 *   report/print.c ───────────────────────────────────────────────────┘           │   time of instructions and programs
 *   recomputation of values, from equations ──────────────────────────────────────┘   time to make a value again
 *
 * The plan may depend on the machine, bits never do. Decisions by bytes (which values stay alive, what is
 * deferred, what is packed) do not ask it, and so they are the same everywhere.
 *
 * Rewrites of small patterns are rules (rules/rewrite.h) and run in the stage of their row like any other pass.
 *
 * To add a pass:
 *   1. an X in pass_list.h where it is to run, and a row in the table below: stage, function or rule, reason for the
 *      pass and for its place, and .leaves if it changes the form of functions;
 *   2. the function, in a file of the folder of its kind; a rule has a file in rules/ and an X in rules/rewrite.h;
 *   3. for a new file, a unit test: src/plan/FOLDER/NAME.c has tests/unit/plan/FOLDER/test_NAME.c, or a test whose head
 *      says "Tests NAME.c." (tests/structure checks it); a new include between folders is entered in
 *      tests/structure/arrows.txt;
 *   4. two programs in tests/graphs/plan, one that shows what the pass does and one that it leaves alone
 *      (plan/every_pass fails without them);
 *   5. nothing in tests/unit/plan/test_pipeline.c, which compares the bits with and without every pass that is not
 *      required.
 * `tow plan --passes` prints the list, `tow plan --dump-after PASS` each function after a pass. */
#include "src/base/arithmetic.h"
#include "src/kernels/products/dot.h"
#include "src/plan/fuse/fuse.h"
#include "src/plan/loop/loop.h"
#include "src/plan/lower/inline.h"
#include "src/plan/memory/memory.h"
#include "src/plan/pass.h"
#include "src/plan/remat/remat.h"
#include "src/plan/rules/rewrite.h"
#include "src/plan/tile/tile.h"

/* ---- passes as functions of one kind ----------------------------------------------------------------------------- */

static bool is_left_out(const tow_program *p, tow__pass_id id) { return p->left_out[id]; }

/* Room for one more graph that the program keeps, and which is compiled from here on. */
static bool reserve_graph(tow_program *p)
{
    tow_graph **kept =
        tow__extend(&p->memory, p->decompositions, p->n_decompositions, &p->decompositions_capacity, sizeof *kept);
    if (kept) p->decompositions = kept;
    return kept != NULL;
}

static tow_status distribute_loops(tow__function_state *s)
{
    tow_program *p = s->p;
    if (!reserve_graph(p)) return TOW_OUT_OF_MEMORY;
    const bool fissions = p->team.threads > 1 && p->machine.threads > 1 && !is_left_out(p, TOW__PASS_fission_loops);
    tow_status status = tow__distribute_loops(s->graph, &p->machine, fissions, &p->decompositions[p->n_decompositions]);
    if (status != TOW_OK) return status;
    s->graph = p->decompositions[p->n_decompositions++];
    return TOW_OK;
}

static tow_status sink_into_loops(tow__function_state *s)
{
    tow_program *p = s->p;
    if (p->calls_host) return TOW_OK; /* what a run has begun to replace it must be able to finish */
    if (!reserve_graph(p)) return TOW_OUT_OF_MEMORY;
    tow_status status = tow__sink_into_loops(s->graph, p->donors, &p->decompositions[p->n_decompositions]);
    if (status != TOW_OK) return status;
    s->graph = p->decompositions[p->n_decompositions++];
    return TOW_OK;
}

static tow_status widen(tow__function_state *s)
{
    tow_program *p = s->p;
    if (!reserve_graph(p)) return TOW_OUT_OF_MEMORY;
    tow_status status = tow__widen_graph(s->graph, &p->team, &p->decompositions[p->n_decompositions]);
    if (status != TOW_OK) return status;
    s->graph = p->decompositions[p->n_decompositions++];
    return TOW_OK;
}

static tow_status inline_calls(tow__function_state *s)
{
    return tow__inline_graph(s->p, s->scratch, s->graph, NULL, s->body);
}

static tow_status lower(tow__function_state *s) { return tow__lower_program(s->p, s->scratch); }

static tow_status eliminate_recomputation(tow__function_state *s)
{
    const bool wanted = s->p->memory_limit && (s->kind == TOW__TOP || s->body->is_gradient);
    return wanted ? tow__eliminate_recomputation(s->p, s->scratch, s->body) : TOW_OK;
}

static tow_status order(tow__function_state *s) { return tow__order(s->body, s->scratch); }

static bool is_parallel_scan(const tow__function_state *s)
{
    return s->kind == TOW__SCAN_BODY && s->loop->schedule != TOW__SEQUENTIAL;
}

static tow_status parallelize(tow__function_state *s)
{
    return s->kind == TOW__SCAN_BODY ? tow__parallelize_loop(s) : TOW_OK;
}

static tow_status fuse_reductions(tow__function_state *s)
{
    return is_parallel_scan(s) ? TOW_OK : tow__fuse_reductions(s);
}

static tow_status distribute_remainder(tow__function_state *s)
{
    return s->loop ? tow__distribute_remainder(s) : TOW_OK;
}

static tow_status choose_carry_buffers(tow__function_state *s)
{
    return s->loop ? tow__choose_carry_storage(s->p, s->loop) : tow__choose_donations(s);
}

static tow_status assign_buffers(tow__function_state *s) { return tow__assign_buffers(s->p, s->body, s->scratch); }
static tow_status bind_addresses(tow__function_state *s) { return tow__bind_addresses(s->p, s->scratch); }

/* ---- the list ---------------------------------------------------------------------------------------------------- */

#define PASS(id) [TOW__PASS_##id]

const tow__pass tow__passes[TOW__PASSES] = {
    PASS(distribute_loops) =
        {"distribute-loops", TOW__ON_GRAPH, distribute_loops, NULL, false,
         "Products in a scan that do not wait for its carry become one product over all iterations, "
         "before anything looks at bodies."},
    PASS(fission_loops) = {"fission-loops", TOW__ON_GRAPH, NULL, "distribute-loops", false,
                           "What the carries of a small scan do not wait for moves to a loop of its own over strips of "
                           "iterations, which threads share."},
    PASS(sink_into_loops) =
        {"sink-into-loops", TOW__ON_GRAPH, sink_into_loops, NULL, false,
         "Elementwise readers of the stacked results of a scan, which write in the place of donated inputs, move into "
         "its body, and nothing is stacked; after products and small loops have left scans, whose results are made "
         "elsewhere then."},
    PASS(widen) =
        {"widen", TOW__ON_GRAPH, widen, NULL, true,
         "Operations on floats of 16 bits without a kernel for them, and products that sum in another type, are "
         "computed in wider types between conversions; after the passes on loops, which look at products "
         "without these, and before kernels are looked for."},
    PASS(inline) =
        {"inline", TOW__ON_GRAPH, inline_calls, NULL, true,
         "Calls, remat bodies and composites without a kernel become instructions of their function; what remat makes "
         "again stands directly before its first reader.",
         .leaves = TOW__AS_VALUES},
    PASS(eliminate_recomputation) =
        {"eliminate-recomputation", TOW__ON_VALUES, eliminate_recomputation, NULL, false,
         "Within a memory limit, values of the forward pass serve where remat would make them again; "
         "first, so that what follows sees one maker of each."},
    PASS(pads_to_concatenate) = {"pads-to-concatenate", TOW__ON_VALUES, .rule = &tow__rule_pads_to_concatenate,
                                 .reason =
                                     "Sums of padded pieces, which gradients of slices are, become one concatenation; "
                                     "before lowering, which gives every pad and every partial sum memory."},
    PASS(group_products) =
        {"group-products", TOW__ON_VALUES, .rule = &tow__rule_group_products,
         .reason = "A sum over groups of rows, a tree of products and additions, becomes one product that keeps its "
                   "partial sums in a cache; before lowering, which gives every partial sum memory."},
    PASS(read_as_stored) =
        {"read-as-stored", TOW__ON_VALUES, .rule = &tow__rule_read_as_stored, .required = true,
         .reason = "Kernels that widen operands of 16 bits while they read them get these as they are stored, and no "
                   "array of f32 is made; after widening, and before passes that compare operands: those of a loss and "
                   "of its gradient are converted one by one."},
    PASS(fuse_loss_and_gradient) =
        {"fuse-loss-and-gradient", TOW__ON_VALUES, .rule = &tow__rule_fuse_loss_and_gradient,
         .reason = "A cross-entropy and its derivative share their logits; after recomputation is decided, which "
                   "may have joined the two."},
    PASS(iota_to_broadcast) =
        {"iota-to-broadcast", TOW__ON_VALUES, .rule = &tow__rule_iota_to_broadcast,
         .reason = "Numbers along one axis, repeated along the others, become a broadcast of one row of them; before "
                   "lowering, which makes a view of the broadcast."},
    PASS(order) =
        {"order", TOW__ON_VALUES, order, NULL, true,
         "Instructions that nothing needs are left out, the others run in an order in which recomputation is late; "
         "after all rewrites of values, which leave dead instructions, and before lowering, which keeps the order."},
    PASS(lower) = {"lower", TOW__LOWERING, lower, NULL, true,
                   "Moves become views, everything else gets a kernel and storages, scans become loops; after the "
                   "last pass that asks who uses a value, before the first that asks where it lies in memory."},
    PASS(fold_constants) = {"fold-constants", TOW__OUTSIDE_IN, .rule = &tow__rule_fold_constants,
                            .reason = "Small functions of constants are computed now; after lowering, which gives them "
                                      "kernels, and first of the rules on instructions, which look for constants."},
    PASS(divide_to_multiply) =
        {"divide-to-multiply", TOW__OUTSIDE_IN, .rule = &tow__rule_divide_to_multiply,
         .reason = "A division by a power of two becomes the multiplication by its inverse, which has the same "
                   "bits and is several times as fast; after folding, which makes constants."},
    PASS(outer_product_to_multiply) =
        {"outer-product-to-multiply", TOW__OUTSIDE_IN, .rule = &tow__rule_outer_product_to_multiply, .required = true,
         .reason = "A product that sums over one element becomes an elementwise product of repeated operands, "
                   "which can be fused; always, because engines of products may add -0 to 0."},
    PASS(pretranspose) =
        {"pretranspose", TOW__OUTSIDE_IN, .rule = &tow__rule_pretranspose,
         .reason = "Loop-invariant operands that products of few rows read transposed are transposed once, before "
                   "the outermost loop for which they are invariant; before that loop's own body is compiled, which "
                   "then reads the copy."},
    PASS(scan_to_reduction) =
        {"scan-to-reduction", TOW__OUTSIDE_IN, .rule = &tow__rule_scan_to_reduction,
         .reason = "A scan that only adds rows, or products of rows, to its carry becomes one kernel call; before "
                   "its body is looked at any further."},
    PASS(pipeline_exchanges) =
        {"pipeline-exchanges", TOW__OUTSIDE_IN, tow__pipeline_exchanges, NULL, false,
         "What a loop gathers begins to travel an iteration ahead, and sums that it stacks end an iteration later; "
         "elsewhere at most two gathers of inputs, and two sums of shares, are in flight; last of the passes from the "
         "outside in: the body has its instructions, and none is fused with others."},
    PASS(hasten_updates) =
        {"hasten-updates", TOW__ON_VIEWS, tow__hasten_updates, NULL, false,
         "What is written in the place of donated inputs is computed as soon as all others have read these; before "
         "fusion, which makes one pass of it, and before tiling, which decides by what is alive then."},
    PASS(fuse) =
        {"fuse", TOW__ON_VIEWS, tow__fuse, NULL, false,
         "Elementwise instructions become row programs, and epilogues of products; before loops are parallelized and "
         "tiled: both cut the rows of one instruction after the other, and decide by the cost of each."},
    PASS(accumulate_products) =
        {"accumulate-products", TOW__ON_VIEWS, .rule = &tow__rule_accumulate_products,
         .reason = "A product that a loop adds to its carry is added by its kernel, where the carry lies; after "
                   "fusion, which joins the two."},
    PASS(parallelize) =
        {"parallelize", TOW__ON_VIEWS, parallelize, NULL, false,
         "Threads take iterations of a scan without carries, or blocks of rows through all iterations; before tile, "
         "which leaves the body of such a scan as it is."},
    PASS(split_norm_gradient) =
        {"split-norm-gradient", TOW__ON_VIEWS, .rule = &tow__rule_split_norm_gradient,
         .reason = "The derivative of a norm by its input goes by rows and can be tiled, those by scale and bias "
                   "sum over rows: they become two instructions; directly before tile, and only in functions "
                   "that it may tile, because both read the operands."},
    PASS(tile) =
        {"tile", TOW__ON_VIEWS, tow__form_tile_groups, NULL, false,
         "Runs of instructions along which axis 0 passes through become loops over blocks of rows, which stay in the "
         "cache of a thread."},
    PASS(fuse_reductions) =
        {"fuse-reductions", TOW__ON_VIEWS, fuse_reductions, NULL, false,
         "A row program takes in reductions of what it makes; after tiling, in which reductions along rows go "
         "with their rows."},
    PASS(distribute_remainder) =
        {"distribute-remainder", TOW__ON_VIEWS, distribute_remainder, NULL, false,
         "Iterations that would leave threads without work are shared by all threads, instruction by "
         "instruction; the instructions are final here."},
    PASS(alias) = {"alias", TOW__ON_VIEWS, tow__alias_results, NULL, true,
                   "Storages get lifetimes, and results take over the memory of operands that die; after the last "
                   "pass that changes instructions, because both follow from their order."},
    PASS(choose_carry_buffers) =
        {"choose-carry-buffers", TOW__ON_VIEWS, choose_carry_buffers, NULL, true,
         "A carry whose old value is read after the new one is written has two buffers in turn, and an output that "
         "takes the place of an input waits in the arena; aliasing decides who overwrites what."},
    PASS(assign_buffers) =
        {"assign-buffers", TOW__ON_VIEWS, assign_buffers, NULL, true,
         "Storages get offsets in the arena of their function, which is one storage of the function around; after "
         "aliasing and carries have decided which of them share memory.",
         .leaves = TOW__AS_OFFSETS},
    PASS(bind_addresses) = {"bind-addresses", TOW__ON_PROGRAM, bind_addresses, NULL, true,
                            "Calls are prepared, and addresses that change between runs or iterations are listed; "
                            "last, because addresses need the offsets of all functions."},
};

tow__form tow__form_after(tow__pass_id id)
{
    static const tow__form of_stage[] = {
        [TOW__ON_GRAPH] = TOW__AS_GRAPH,   [TOW__ON_VALUES] = TOW__AS_VALUES, [TOW__LOWERING] = TOW__AS_VIEWS,
        [TOW__OUTSIDE_IN] = TOW__AS_VIEWS, [TOW__ON_VIEWS] = TOW__AS_VIEWS,   [TOW__ON_PROGRAM] = TOW__AS_OFFSETS,
    };
    const tow__pass *pass = &tow__passes[id];
    return pass->leaves != TOW__FORM_OF_STAGE ? pass->leaves : of_stage[pass->stage];
}

/* ---- running them ------------------------------------------------------------------------------------------------ */

static const char *function_name(const tow__function_state *s)
{
    return s->kind == TOW__TOP ? "the program" : s->kind == TOW__SCAN_BODY ? "the body of a scan" : "a tile group";
}

static tow_status dump(const tow__function_state *s, tow__pass_id id)
{
    tow__string text;
    if (!s->p->after_pass) return TOW_OK;
    tow__string_init(&text, s->p->ctx);
    tow__string_add_function(&text, s, tow__form_after(id));
    const bool failed = text.failed;
    if (!failed)
        s->p->after_pass(tow__passes[id].name, function_name(s), text.text ? text.text : "", s->p->after_pass_user);
    tow__string_free(&text);
    return failed ? TOW_OUT_OF_MEMORY : TOW_OK;
}

static tow_status verify(tow__function_state *s, tow__pass_id id)
{
    const char *name = tow__passes[id].name;
    const tow__form form = tow__form_after(id);
    if (!tow__checks_wanted() || form == TOW__AS_GRAPH) return TOW_OK; /* builders check graphs */
    if (form == TOW__AS_VALUES) return tow__verify_values(s->p->ctx, s->body, name);
    tow_status status = tow__verify_views(s->p, s->body, name);
    return status == TOW_OK ? tow__verify_analyses(s, name) : status;
}

tow_status tow__end_pass(tow__function_state *s, tow__pass_id id)
{
    tow_status status = verify(s, id);
    return status == TOW_OK ? dump(s, id) : status;
}

tow_status tow__run_passes(tow__function_state *s, tow__stage stage, tow__pass_id first)
{
    for (uint32_t id = first; id < TOW__PASSES; id++) {
        const tow__pass *pass = &tow__passes[id];
        if (pass->stage != stage || pass->within || is_left_out(s->p, id)) continue;
        tow_status status = pass->rule ? tow__apply_rule(s, pass->rule) : pass->run(s);
        if (status == TOW_OK) status = tow__end_pass(s, id);
        if (status != TOW_OK) return status;
    }
    tow__invalidate(s);
    return TOW_OK;
}

static tow__function_state body_of(const tow__function_state *s, tow__loop *loop)
{
    return (tow__function_state){
        .p = s->p, .scratch = s->scratch, .kind = TOW__SCAN_BODY, .body = loop->body, .loop = loop};
}

static tow_status run_outside_in(tow__function_state *s)
{
    tow_status status = tow__run_passes(s, TOW__OUTSIDE_IN, 0);
    for (uint32_t i = 0; i < s->body->n_insts && status == TOW_OK; i++) {
        if (!s->body->insts[i].loop) continue;
        tow__function_state inner = body_of(s, s->body->insts[i].loop);
        status = run_outside_in(&inner);
    }
    return status;
}

static tow_status run_inside_out(tow__function_state *s)
{
    tow_status status = TOW_OK;
    for (uint32_t i = 0; i < s->body->n_insts; i++) {
        if (!s->body->insts[i].loop) continue;
        tow__function_state inner = body_of(s, s->body->insts[i].loop);
        TRY(run_inside_out(&inner));
        TRY(tow__list_loop_reads(s->p, &s->body->insts[i], s->scratch));
    }
    TRY(tow__run_passes(s, TOW__ON_VIEWS, 0));
done:
    return status;
}

tow_status tow__run_view_passes(tow__function_state *s)
{
    tow_status status = run_outside_in(s);
    return status == TOW_OK ? run_inside_out(s) : status;
}

/* ---- leaving them out -------------------------------------------------------------------------------------------- */

/* The number of the pass with that name; TOW__PASSES: there is none. */
static uint32_t find_pass(const char *name)
{
    uint32_t id = 0;
    while (id < TOW__PASSES && strcmp(tow__passes[id].name, name) != 0) id++;
    return id;
}

static tow_status leave_out(tow_program *p, const char *name)
{
    uint32_t id = find_pass(name);
    if (id == TOW__PASSES)
        return tow__fail(p->ctx, TOW_INVALID_ARGUMENT,
                         "tow_compile: option without: expected names that tow_pass_name gives, found \"%s\"", name);
    if (tow__passes[id].required)
        return tow__fail(
            p->ctx, TOW_INVALID_ARGUMENT,
            "tow_compile: option without: expected passes that tow_pass_required is false for, found \"%s\"", name);
    p->left_out[id] = true;
    return TOW_OK;
}

tow_status tow__select_passes(tow_program *p, const tow_compile_options *options)
{
    tow_status status = TOW_OK;
    for (size_t i = 0; options->without && options->without[i] && status == TOW_OK; i++)
        status = leave_out(p, options->without[i]);
    p->left_out[TOW__PASS_fuse] |= options->no_fusion;
    p->left_out[TOW__PASS_fuse_reductions] |= options->no_fusion;
    p->left_out[TOW__PASS_fuse_loss_and_gradient] |= options->no_fusion;
    p->left_out[TOW__PASS_fission_loops] |= options->no_regions;
    p->left_out[TOW__PASS_parallelize] |= options->no_regions;
    p->left_out[TOW__PASS_tile] |= options->no_regions;
    p->after_pass = options->after_pass;
    p->after_pass_user = options->after_pass_user;
    return status;
}

const char *tow_pass_name(size_t index) { return index < TOW__PASSES ? tow__passes[index].name : NULL; }
const char *tow_pass_reason(size_t index) { return index < TOW__PASSES ? tow__passes[index].reason : NULL; }
const char *tow_pass_within(size_t index) { return index < TOW__PASSES ? tow__passes[index].within : NULL; }
bool tow_pass_required(size_t index) { return index < TOW__PASSES && tow__passes[index].required; }
