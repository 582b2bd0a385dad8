/* The subcommand primitives: the table of all primitives, as docs/primitives.md has it. It is made from the
 * descriptors. */
#include <stdio.h>

#include "src/graph/primitive.h"
#include "src/tool/tool.h"

static const char *const kinds[] = {
    [TOW__ELEMENTWISE] = "elementwise", [TOW__REDUCTION] = "reduction", [TOW__DOT] = "product",
    [TOW__CONVOLUTION] = "convolution", [TOW__MOVE] = "move",           [TOW__SOURCE] = "source",
    [TOW__RANDOM] = "random",           [TOW__NAME] = "name",           [TOW__REGION] = "region",
    [TOW__COMPOSITE] = "composite",
};

/* As docs/textual-form.md calls them. */
static const char *const values[] = {
    [TOW__P_INT] = "integer",   [TOW__P_COUNT] = "integer", [TOW__P_SUM_DTYPE] = "element type",
    [TOW__P_FLOAT] = "float",   [TOW__P_BOOL] = "flag",     [TOW__P_DTYPE] = "dtype",
    [TOW__P_INTS] = "integers", [TOW__P_STRING] = "string", [TOW__P_GRAPH] = "graph",
    [TOW__P_GRAPHS] = "graphs", [TOW__P_ARRAY] = "array",   [TOW__P_POLICY] = "policy",
    [TOW__P_TYPES] = "types",   [TOW__P_AMOUNT] = "amount",
};

static void print_operands(const tow_primitive *p)
{
    static const char *const usual[] = {"", "x", "x, y", "x, y, z", "x, y, z, w"};
    if (p->operands)
        printf("%s", p->operands);
    else
        printf("%s", p->inputs < 0 || p->inputs > 4 ? "x..." : usual[p->inputs]);
}

static void print_results(const tow_primitive *p)
{
    if (!p->output_names) {
        if (p->outputs < 0)
            printf("any number");
        else
            printf("%d", p->outputs);
        return;
    }
    for (const char *const *name = p->output_names; *name; name++)
        printf("%s%s", name == p->output_names ? "" : ", ", *name);
}

static void print_parameters(const tow_primitive *p)
{
    const char *before = "";
    for (const tow__param *param = p->params; param && param->name; param++) {
        if (tow__is_of_plans(param->kind)) continue;
        printf("%s`%s`: %s", before, param->name, values[param->kind]);
        before = ", ";
    }
}

static const char *derivative_of(const tow_primitive *p)
{
    if (p->kind == TOW__REGION) return "of its graph";
    if (p->jvp) return "rule";
    if (p->transpose) return "linear";
    return p->decompose ? "of its decomposition" : "zero";
}

void tool_print_primitives(void)
{
    printf("# Primitives\n\n"
           "What equations of graphs can be, made from the descriptors by `tow primitives`. Operands are separated by\n"
           "blanks in the textual form (textual-form.md, which also says how values of parameters are written);\n"
           "residuals.md says what derivatives keep. Of these, composites can be written in others.\n\n"
           "| primitive | kind | operands | results | parameters | derivative |\n"
           "|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < tow__primitive_count; i++) {
        const tow_primitive *p = tow__primitives[i];
        printf("| %s | %s | ", p->name, kinds[p->kind]);
        print_operands(p);
        printf(" | ");
        print_results(p);
        printf(" | ");
        print_parameters(p);
        printf(" | %s |\n", derivative_of(p));
    }
}
