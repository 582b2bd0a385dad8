/* Graphs as objects: references, accessors, counting. */
#include "src/graph/builder.h"
#include "src/graph/variants.h"

tow_graph *tow_graph_retain(tow_graph *graph)
{
    if (graph) atomic_fetch_add_explicit(&graph->references, 1, memory_order_relaxed);
    return graph;
}

tow_graph *tow__graph_share(const tow_graph *g) { return tow_graph_retain((tow_graph *)(uintptr_t)g); }

void tow_graph_release(tow_graph *graph)
{
    if (!graph || atomic_fetch_sub_explicit(&graph->references, 1, memory_order_acq_rel) > 1) return;
    tow_context *ctx = graph->ctx;
    if (graph->origin) {
        tow__frontiers_free(graph->origin->frontiers);
        tow_graph_release(graph->origin->loss);
    }
    for (uint32_t i = 0; i < graph->n_equations; i++)
        tow__params_release(graph->equations[i].primitive, graph->equations[i].params);
    tow__arena_free(&graph->arena);
    tow__free(ctx, graph, 1, sizeof *graph);
    tow__context_drop(ctx);
}

tow_context *tow_graph_context(const tow_graph *graph) { return graph->ctx; }
size_t tow_graph_input_count(const tow_graph *graph) { return graph->n_inputs; }
size_t tow_graph_output_count(const tow_graph *graph) { return graph->n_outputs; }
size_t tow_graph_equation_count(const tow_graph *graph) { return graph->n_equations; }

tow_type tow_graph_input_type(const tow_graph *graph, size_t index)
{
    return index < graph->n_inputs ? graph->vars[graph->inputs[index]].type : (tow_type){.dtype = TOW_F32};
}

tow_type tow_graph_output_type(const tow_graph *graph, size_t index)
{
    return index < graph->n_outputs ? graph->vars[graph->outputs[index]].type : (tow_type){.dtype = TOW_F32};
}

const char *tow_graph_input_name(const tow_graph *graph, size_t index)
{
    return index < graph->n_inputs ? graph->input_names[index] : NULL;
}

size_t tow_graph_primitive_count(const tow_graph *graph, const char *primitive)
{
    size_t count = 0;
    for (uint32_t i = 0; i < graph->n_equations; i++) {
        const tow__equation *e = &graph->equations[i];
        if (!primitive || strcmp(primitive, e->primitive->name) == 0) count++;
        for (uint32_t j = 0, n = tow__nested_count(e->primitive, e->params); j < n; j++)
            count += tow_graph_primitive_count(tow__nested(e->primitive, e->params, j), primitive);
    }
    return count;
}
