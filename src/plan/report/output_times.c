/* When outputs are there: seconds of the cost model (analysis/cost.h) from the beginning of a run. */
#include "src/plan/analysis/cost.h"
#include "src/plan/report/report.h"

/* The instruction that writes (a part of) an output, and when it runs. */
typedef struct written {
    double begin, end;
    int64_t rows; /* it is a loop that writes so many rows one after the other; 1: it writes all at its end */
} written;

/* Is the view in the memory of output `index` of the graph? */
static bool is_in_output(const tow_program *p, const tow__view *x, size_t index)
{
    const tow__storage *s = &p->storages[tow__representative(p, x->storage)];
    if (s->kind != TOW__S_OUTPUT) return false;
    return (p->split.whole ? p->split.outputs[s->index].array : s->index) == index;
}

/* Rows of a loop whose iterations run one after the other; results of others are there when the loop has ended. */
static int64_t rows_of(const tow__instruction *inst, uint32_t result)
{
    const tow__loop *loop = inst->loop;
    if (!loop || loop->schedule != TOW__SEQUENTIAL || loop->length < 1) return 1;
    return result >= loop->n_carry ? loop->length : 1;
}

static void add(tow_output_time *time, const written *w)
{
    const double first = w->begin + (w->end - w->begin) / (double)w->rows;
    if (time->pieces == 0 || first < time->first) time->first = first;
    if (w->end > time->last) time->last = w->end;
    if (w->rows > 1)
        time->pieces = time->pieces > 1 ? time->pieces + w->rows : w->rows;
    else if (time->pieces == 0)
        time->pieces = 1;
}

double tow_program_seconds(const tow_program *program)
{
    return program ? tow__body_seconds(&program->machine, program->top) : 0;
}

tow_output_time tow_program_output_time(const tow_program *program, size_t index)
{
    tow_output_time time = {0};
    double now = 0;
    for (uint32_t i = 0; program && i < program->top->n_insts; i++) {
        const tow__instruction *inst = &program->top->insts[i];
        const double end = now + tow__instruction_seconds(&program->machine, inst);
        for (uint32_t k = 0; k < inst->n_out; k++)
            if (is_in_output(program, &inst->out[k], index))
                add(&time, &(written){.begin = now, .end = end, .rows = rows_of(inst, k)});
        now = end;
    }
    if (time.pieces == 1) time.first = time.last;
    return time;
}
