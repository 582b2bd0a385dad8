/* Tile groups: the role of an instruction in a group, and the loop over blocks of rows that is built from the group. */
#include "src/plan/analysis/columns.h"
#include "src/plan/analysis/tiling.h"
#include "src/plan/analysis/view.h"
#include "src/plan/fuse/fuse.h"
#include "src/plan/lower/lower.h"
#include "src/plan/pass.h"
#include "src/plan/tile/tiler.h"

#include "src/kernels/products/dot.h"
#include "src/kernels/reductions/reduce.h"

/* ---- roles ------------------------------------------------------------------------------------------------------- */

static int64_t sum_depth(const tow__tiler *f, const tow__instruction *inst)
{
    tow__buffer in[2] = {tow__view_buffer(&inst->in[0]), tow__view_buffer(&inst->in[1])},
                out = tow__view_buffer(&inst->out[0]);
    return tow__dot_kc(
        &(tow__kernel_call){.n_in = 2, .n_out = 1, .in = in, .out = &out, .params = inst->params, .team = &f->p->team});
}

/* A product that contracts rows, alone or before other axes: dW = x^T dy. */
static bool sums(const tow__tiler *f, const tow__instruction *inst)
{
    if (!inst->kernel || !TOW__COMPUTES(inst, dot_general) || !tow__is_plain(inst) || inst->n_in != 2) return false;
    if (!tow__kernel_variant(inst->op->name, TOW__PART_OF_SUM, inst->out[0].type.dtype)) return false;
    const tow__dot_params *p = inst->params;
    f->from[0] = f->from[1] = 0;
    return p->lhs_contract.n && p->lhs_contract.v[0] == 0 && p->rhs_contract.v[0] == 0 && sum_depth(f, inst) &&
           tow__fits_tiles(f->p, &inst->in[0], 0, f->units) && tow__fits_tiles(f->p, &inst->in[1], 0, f->units);
}

/* A reduction over leading axes: db, or a loss. */
static bool reduces(const tow__tiler *f, const tow__instruction *inst)
{
    tow__extents e;
    if (!tow__is_reduction(f->p, inst) || !tow__find_extents(inst, &e) || e.outer != 1) return false;
    f->from[0] = 0;
    return tow__fits_tiles(f->p, &inst->in[0], 0, f->units);
}

static bool splits(const tow__tiler *f, const tow__instruction *inst)
{
    const uint32_t index = (uint32_t)(inst - f->insts);
    if (!f->tiling->is_tileable[index]) return false;
    if (inst->n_in) memcpy(f->from, f->tiling->from[index], inst->n_in * sizeof *f->from);
    for (uint32_t i = 0; i < inst->n_out; i++)
        if (!tow__fits_tiles(f->p, &inst->out[i], f->tiling->axis[index], f->units)) return false;
    for (uint32_t i = 0; i < inst->n_in; i++) {
        const tow__view *x = &inst->in[i];
        const int axis = f->from[i];
        if (axis == TOW__WHOLE) continue;
        if (tow__repeats_rows(x, axis) ? x->type.dims[axis] % f->units != 0 : !tow__fits_tiles(f->p, x, axis, f->units))
            return false;
    }
    return true;
}

tow__axis_role tow__axis_role_of(const tow__tiler *f, const tow__instruction *inst)
{
    if (splits(f, inst)) return TOW__PARALLEL_AXIS;
    if (f->ordered && sums(f, inst)) return TOW__CONTRACTS_AXIS;
    return f->ordered && reduces(f, inst) ? TOW__REDUCES_AXIS : TOW__NOT_TILEABLE;
}

tow__grain tow__sum_grain(const tow__tiler *f, const tow__instruction *inst)
{
    tow__extents e;
    if (tow__is_reduction(f->p, inst) && tow__find_extents(inst, &e))
        return (tow__grain){e.columns > 1 ? 1 : TOW__SEGMENT, e.elements / f->units};
    const tow__dot_params *p = inst->params;
    int64_t k = 1;
    for (int j = 0; j < p->lhs_contract.n; j++) k *= inst->in[0].type.dims[p->lhs_contract.v[j]];
    return (tow__grain){sum_depth(f, inst), k / f->units};
}

/* ---- building ---------------------------------------------------------------------------------------------------- */

typedef struct builder {
    tow__tiler *f;
    tow__lowering *outer;
    tow__loop *loop;
    tow__body *body;
    int64_t first, size;        /* units before the first block; units of a block */
    uint32_t *row_in, *row_out; /* [n_storages] the body's storage for a block, or TOW__NONE */
    bool *whole;                /* [n_storages] `wholes` lists the storage: all blocks read all of it */
    tow__view *wholes, *sums;
    uint32_t n_wholes, n_sums;
    size_t packed_bytes;
} builder;

static size_t block_bytes(const builder *b, uint32_t storage)
{
    return b->f->p->storages[storage].bytes / (size_t)b->f->units * (size_t)b->size;
}

/* The storage of x as [blocks, elements of a block]. */
static tow__view as_blocks(const builder *b, const tow__view *x)
{
    int64_t n = (int64_t)(block_bytes(b, x->storage) / tow_dtype_size(x->type.dtype));
    tow_type type = {.dtype = x->type.dtype, .rank = 2, .dims = {b->loop->length, n}};
    tow__view blocks = tow__view_whole(x->storage, type);
    blocks.offset = n / b->size * b->first;
    return blocks;
}

static uint32_t add_rows(builder *b, const tow__view *x, tow__storage_kind kind)
{
    uint32_t *n = kind == TOW__S_ROW_IN ? &b->loop->n_xs : &b->loop->n_ys;
    tow__rows *r = kind == TOW__S_ROW_IN ? &b->loop->xs[*n] : &b->loop->ys[*n];
    size_t bytes = block_bytes(b, x->storage);
    r->array = as_blocks(b, x);
    r->stride = (ptrdiff_t)bytes;
    r->row = tow__add_storage(b->f->p, b->body, kind, (*n)++, bytes);
    return r->row;
}

static bool internal(const builder *b, uint32_t s)
{
    const tow__storage *storage = &b->f->p->storages[s];
    return storage->kind == TOW__S_ARENA && b->f->reads_inside[s] == b->f->uses->reads[s];
}

/* The body's storage for block-sized result x: an arena block if no instruction outside reads x, else a row of ys. */
static uint32_t result_storage(builder *b, const tow__view *x)
{
    return b->row_out[x->storage] =
               internal(b, x->storage) ? tow__add_storage(b->f->p, b->body, TOW__S_ARENA, 0, block_bytes(b, x->storage))
                                       : add_rows(b, x, TOW__S_ROW_OUT);
}

static tow_status operand_view(builder *b, const tow__view *x, int axis, tow__view *y)
{
    tow__tiler *f = b->f;
    uint32_t s = x->storage;
    *y = *x;
    if (axis != TOW__WHOLE) y->type.dims[axis] = x->type.dims[axis] / f->units * b->size;
    if (axis != TOW__WHOLE && !tow__repeats_rows(x, axis)) {
        if (b->row_out[s] == TOW__NONE && b->row_in[s] == TOW__NONE) b->row_in[s] = add_rows(b, x, TOW__S_ROW_IN);
        y->storage = f->defined[s] == TOW__DEFINED_INSIDE ? b->row_out[s] : b->row_in[s];
        return y->storage == TOW__NONE ? TOW_OUT_OF_MEMORY : TOW_OK;
    }
    if (!b->whole[s] && f->p->storages[s].kind != TOW__S_CONSTANT) {
        b->whole[s] = true;
        b->wholes[b->n_wholes++] = *x;
    }
    return TOW_OK;
}

/* The product of one block, which is added to the product over all rows. */
static tow_status become_product_part(builder *b, const tow__instruction *inst, tow__instruction *part)
{
    tow__sum_part *sum = tow__arena_alloc(&b->f->p->memory, 1, sizeof *sum);
    if (!sum) return TOW_OUT_OF_MEMORY;
    *sum = (tow__sum_part){.row = b->loop->continues ? NULL : &b->loop->row, .depth = sum_depth(b->f, inst)};
    part->extras.part = sum;
    part->kernel = tow__kernel_for(part, inst->out[0].type.dtype);
    part->out[0] = b->sums[b->n_sums++] = inst->out[0];
    return TOW_OK;
}

/* The reduction of one block. The sum of a segment that goes on in the next block is stored outside the loop. */
static tow_status become_reduction_part(builder *b, uint32_t index, tow__instruction *part)
{
    tow__tiler *f = b->f;
    const tow__instruction *inst = &f->insts[index];
    tow_dtype dtype = inst->in[0].type.dtype;
    tow__sum_part *sum = tow__arena_alloc(&f->p->memory, 1, sizeof *sum);
    if (!sum) return TOW_OUT_OF_MEMORY;
    tow__extents e;
    tow__find_extents(inst, &e);
    *sum = (tow__sum_part){.row = &b->loop->row,
                           .reducer = tow__reducer_of(inst->kernel, dtype),
                           .elements = e.elements,
                           .before = e.elements / f->units * b->first};
    part->extras.part = sum;
    part->kernel = tow__kernel_for(part, dtype);
    part->out[0] = b->sums[b->n_sums++] = inst->out[0];
    if (e.columns == 1) return TOW_OK;
    tow_type type = {.dtype = dtype, .rank = 2, .dims = {TOW__LANES, e.columns}};
    if (f->lanes[index] == TOW__NONE)
        f->lanes[index] = tow__add_storage(f->p, f->body, TOW__S_ARENA, 0, tow_type_bytes(type));
    if (f->lanes[index] == TOW__NONE) return TOW_OUT_OF_MEMORY;
    part->n_out = 2;
    part->out[1] = b->sums[b->n_sums++] = tow__view_whole(f->lanes[index], type);
    return TOW_OK;
}

enum {
    PACKED_SHARE = 4, /* packed operands take 1/4 of the plan's peak without tile groups and a loop's rows, at most, */
    PACKED_BYTES = 64 << 20, /* and so many bytes, at most: tile groups need much less than that peak */
};

/* An operand that is packed once is written to memory; one that every block packs for itself goes to L2 each time. */
static bool packing_pays(const builder *b)
{
    const double *rates = b->f->p->machine.rates.bytes;
    return (double)b->loop->length / rates[TOW__IN_L2] >= 1 / rates[TOW__IN_MEMORY];
}

/* Packs operand 1 of a product, of which all blocks read the whole, once before the tile group instead of in every
 * block. packed->storage is TOW__NONE if the operand is not packed. */
static tow_status pack_whole(builder *b, const tow__instruction *inst, tow__view *packed)
{
    tow_program *p = b->f->p;
    packed->storage = TOW__NONE;
    const tow__extras *x = &inst->extras;
    bool product = TOW__COMPUTES(inst, dot_general) && !x->accumulation && !x->part;
    if (!inst->kernel || !product || !packing_pays(b)) return TOW_OK;
    tow__dot_pack_params *params = tow__arena_alloc(&p->memory, 1, sizeof *params);
    if (!params) return TOW_OUT_OF_MEMORY;
    tow__buffer in[2] = {tow__view_buffer(&inst->in[0]), tow__view_buffer(&inst->in[1])},
                out = tow__view_buffer(&inst->out[0]);
    tow__kernel_call call = {
        .n_in = 2, .n_out = 1, .in = in, .out = &out, .params = inst->params, .team = b->body->team};
    size_t bytes = tow__dot_packed(&call, params);
    size_t all = b->packed_bytes + bytes;
    if (bytes == 0 || all > (b->f->peak + b->f->rows) / PACKED_SHARE || all > PACKED_BYTES) return TOW_OK;
    b->packed_bytes = all;
    tow_type type = {.dtype = TOW_F32, .rank = 1, .dims = {(int64_t)(bytes / tow_dtype_size(TOW_F32))}};
    uint32_t s = tow__add_storage(p, b->f->body, TOW__S_ARENA, 0, bytes);
    tow__instruction *pack = tow__add_instruction(b->outer, &tow__pack_operand_p, 1, 1);
    if (s == TOW__NONE || !pack) return TOW_OUT_OF_MEMORY;
    pack->kernel = tow__kernel_of(pack->op, TOW_F32);
    pack->params = params;
    pack->backward = inst->backward;
    pack->source = inst->source;
    pack->in[0] = inst->in[1];
    pack->out[0] = *packed = b->wholes[b->n_wholes++] = tow__view_whole(s, type);
    return TOW_OK;
}

static tow_status add_tile_inst(builder *b, uint32_t index)
{
    tow__tiler *f = b->f;
    tow_status status = TOW_OK;
    const tow__instruction *inst = &f->insts[index];
    tow__lowering l = {.p = f->p, .body = b->body, .scratch = f->scratch};
    tow__axis_role part = tow__axis_role_of(f, inst);
    tow__view packed = {.storage = TOW__NONE};
    if (part == TOW__PARALLEL_AXIS && inst->n_in > 1 && f->from[1] == TOW__WHOLE) TRY(pack_whole(b, inst, &packed));
    uint32_t more = packed.storage != TOW__NONE;
    uint32_t lanes = part == TOW__REDUCES_AXIS; /* a second result, if there are columns */
    tow__instruction *copy = tow__add_instruction(&l, inst->op, inst->n_in + more, inst->n_out + lanes);
    if (!copy) return TOW_OUT_OF_MEMORY;
    copy->n_out = inst->n_out;
    copy->kernel = inst->kernel;
    copy->params = inst->params;
    copy->extras = inst->extras;
    copy->backward = inst->backward;
    copy->source = inst->source;
    for (uint32_t i = 0; i < inst->n_in; i++)
        TRY(operand_view(b, &inst->in[i], f->from[i], &copy->in[i < 2 ? i : i + more]));
    copy->packed = more;
    if (more) copy->in[2] = packed;
    if (part == TOW__CONTRACTS_AXIS) TRY(become_product_part(b, inst, copy));
    if (part == TOW__REDUCES_AXIS) TRY(become_reduction_part(b, index, copy));
    for (uint32_t i = 0; i < inst->n_out && part == TOW__PARALLEL_AXIS; i++) {
        copy->out[i] = inst->out[i];
        const int axis = f->tiling->axis[index];
        copy->out[i].type.dims[axis] = inst->out[i].type.dims[axis] / f->units * b->size;
        copy->out[i].storage = result_storage(b, &inst->out[i]);
        if (copy->out[i].storage == TOW__NONE) return TOW_OUT_OF_MEMORY;
    }
    status = tow__add_scratch(&l, copy);
done:
    return status;
}

static tow_status begin_tile_group(builder *b, int64_t blocks, bool continues)
{
    tow__tiler *f = b->f;
    size_t operands = 0, results = 0;
    bool mixed = false;
    for (uint32_t i = 0; i < f->n_inside; i++) {
        mixed |= f->insts[f->inside[i]].backward != f->insts[f->inside[0]].backward;
        operands += f->insts[f->inside[i]].n_in;
        results += f->insts[f->inside[i]].n_out;
    }
    tow__arena *memory = &f->p->memory;
    b->loop = tow__arena_alloc(memory, 1, sizeof *b->loop);
    b->body = tow__arena_alloc(memory, 1, sizeof *b->body);
    if (!b->loop || !b->body) return TOW_OUT_OF_MEMORY;
    *b->loop = (tow__loop){.length = blocks,
                           .schedule = f->ordered ? TOW__ORDERED_TILES : TOW__PARALLEL_TILES,
                           .continues = continues,
                           .mixed = mixed,
                           .body = b->body};
    b->loop->xs = tow__arena_alloc(memory, operands, sizeof *b->loop->xs);
    b->loop->ys = tow__arena_alloc(memory, results, sizeof *b->loop->ys);
    b->wholes = tow__arena_alloc(f->scratch, 2 * operands, sizeof *b->wholes);
    b->sums = tow__arena_alloc(f->scratch, 2 * results, sizeof *b->sums); /* with lanes */
    b->body->outer = f->body;
    b->body->loop = b->loop;
    b->body->team = f->ordered ? &f->p->team : &f->p->solo;
    b->body->copies = f->ordered ? 0 : (uint32_t)f->p->team.threads;
    b->body->block = tow__add_storage(f->p, f->body, TOW__S_ARENA, 0, 0);
    bool all = b->loop->xs && b->loop->ys && b->wholes && b->sums && b->body->block != TOW__NONE;
    return all ? TOW_OK : TOW_OUT_OF_MEMORY;
}

/* Adds the tile group to the surrounding function as an instruction: in = xs, then operands that are read as a whole;
 * out = ys, then sums. */
static tow_status add_tile_group_inst(builder *b, tow__lowering *l)
{
    const tow__loop *loop = b->loop;
    tow__instruction *inst =
        tow__add_instruction(l, &tow__tile_group_p, loop->n_xs + b->n_wholes, loop->n_ys + b->n_sums);
    if (!inst) return TOW_OUT_OF_MEMORY;
    inst->loop = b->loop;
    inst->scratch = b->body->block;
    inst->backward = b->f->insts[b->f->inside[0]].backward;
    for (uint32_t j = 0; j < loop->n_xs; j++) inst->in[j] = loop->xs[j].array;
    for (uint32_t j = 0; j < b->n_wholes; j++) inst->in[loop->n_xs + j] = b->wholes[j];
    for (uint32_t j = 0; j < loop->n_ys; j++) inst->out[j] = loop->ys[j].array;
    for (uint32_t j = 0; j < b->n_sums; j++) inst->out[loop->n_ys + j] = b->sums[j];
    return TOW_OK;
}

tow_status tow__build_tile_group(tow__tiler *f, tow__lowering *l, int64_t first, int64_t blocks, int64_t size,
                                 bool continues)
{
    tow_program *p = f->p;
    tow_status status = TOW_OK;
    builder b = {.f = f, .outer = l, .first = first, .size = size};
    b.row_in = tow__borrow(p, f->scratch, sizeof *b.row_in, 0xFF);
    b.row_out = tow__borrow(p, f->scratch, sizeof *b.row_out, 0xFF);
    b.whole = tow__borrow(p, f->scratch, sizeof *b.whole, 0);
    if (!b.row_in || !b.row_out || !b.whole) return TOW_OUT_OF_MEMORY;
    TRY(begin_tile_group(&b, blocks, continues));
    for (uint32_t i = 0; i < f->n_inside; i++) TRY(add_tile_inst(&b, f->inside[i]));
    const void *columns[] = {b.row_in, b.row_out, b.whole};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        tow__give_back(p, columns[i], f->insts, f->n_inside, f->inside);
    tow__function_state s = {.p = p, .scratch = f->scratch, .kind = TOW__TILE_BODY, .body = b.body, .loop = b.loop};
    TRY(tow__run_passes(&s, TOW__ON_VIEWS, TOW__PASS_tile + 1));
    TRY(add_tile_group_inst(&b, l));
done:
    return status;
}
