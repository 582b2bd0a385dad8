/* X(id) for every pass, in the order in which they run; src/plan/pipeline.c says what each of them is. */
#ifndef TOW_SRC_PLAN_PASS_LIST_H
#define TOW_SRC_PLAN_PASS_LIST_H

#define TOW__PASS_LIST(X)                                                                                              \
    X(distribute_loops)                                                                                                \
    X(fission_loops)                                                                                                   \
    X(sink_into_loops)                                                                                                 \
    X(widen)                                                                                                           \
    X(inline)                                                                                                          \
    X(eliminate_recomputation)                                                                                         \
    X(pads_to_concatenate)                                                                                             \
    X(group_products)                                                                                                  \
    X(read_as_stored)                                                                                                  \
    X(fuse_loss_and_gradient)                                                                                          \
    X(iota_to_broadcast)                                                                                               \
    X(order)                                                                                                           \
    X(lower)                                                                                                           \
    X(fold_constants)                                                                                                  \
    X(divide_to_multiply)                                                                                              \
    X(outer_product_to_multiply)                                                                                       \
    X(pretranspose)                                                                                                    \
    X(scan_to_reduction)                                                                                               \
    X(pipeline_exchanges)                                                                                              \
    X(hasten_updates)                                                                                                  \
    X(fuse)                                                                                                            \
    X(accumulate_products)                                                                                             \
    X(parallelize)                                                                                                     \
    X(split_norm_gradient)                                                                                             \
    X(tile)                                                                                                            \
    X(fuse_reductions)                                                                                                 \
    X(distribute_remainder)                                                                                            \
    X(alias)                                                                                                           \
    X(choose_carry_buffers)                                                                                            \
    X(assign_buffers)                                                                                                  \
    X(bind_addresses)

typedef enum tow__pass_id {
#define X(id) TOW__PASS_##id,
    TOW__PASS_LIST(X)
#undef X
    TOW__PASSES
} tow__pass_id;

#endif
