/* plan --processes: what a step takes when several processes share it, by a model. The plan of one process's gradient
 * says when each gradient is there; a network that sends one thing after the other takes it from there.
 *
 *   none             computation  | forward | backward ......... |            | update of all |
 *                    network                    both both both ... both
 *   stages 1, 2      computation  | forward | backward ......... |          | update |
 *                    network                    sum  sum  sum ...  sum       gather gather ...
 *   stage 3          computation  | forward ........... | backward ............... | update |
 *                    network      gather gather gather ... gather sum gather sum ... sum
 *
 * A sum (reduce-scatter) and a gather of b bytes among N processes take ceil(log2 N) rounds, each of one latency, and
 * send b (N - 1) / N bytes: recursive halving (src/group/halving.c). docs/scaling.md says what the model leaves out. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/tool/tool.h"

enum {
    MOST_PIECES = 1 << 20
};

/* Gradients that are there at the same time, or the rows of them that one iteration of a loop makes, and the parameters
 * that they are of. */
typedef struct piece {
    double ready; /* seconds after the step has begun */
    double bytes;
    double n; /* of arrays, each of which is summed and gathered by itself */
} piece;

/* A step of one process, as its plan has it. */
typedef struct step {
    double forward, whole;    /* seconds, without the update */
    double parameters;        /* bytes, as those of gradients */
    double rest;              /* bytes of inputs and outputs that are neither */
    double arena;             /* bytes */
    double iteration, single; /* bytes of the parameters of one iteration of a loop, of the largest one outside */
    piece *pieces;            /* by time */
    size_t n, n_arrays;
} step;

typedef struct network {
    double bandwidth, latency; /* bytes in a second, each way; seconds of a message */
    int processes, stage;
} network;

/* The prediction. */
typedef struct prediction {
    double update, communication, exposed, seconds; /* of a step */
    double summed, gathered;                        /* bytes that a process sends */
    size_t sums, gathers;                           /* collectives */
} prediction;

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
    const piece *x = a, *y = b;
    return (x->ready > y->ready) - (x->ready < y->ready);
}

/* Arrays of one time become one piece. */
static void join_pieces(step *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (n > 0 && s->pieces[i].ready <= s->pieces[n - 1].ready * (1 + 1e-9)) {
            s->pieces[n - 1].bytes += s->pieces[i].bytes;
            s->pieces[n - 1].n += s->pieces[i].n;
        } else {
            s->pieces[n++] = s->pieces[i];
        }
    }
    s->n = n;
}

/* The gradients of the outputs behind the first `before`. */
static tow_status list_pieces(tool *t, const tow_graph *gradient, const tow_program *program, size_t before, step *s)
{
    const size_t n = tow_graph_output_count(gradient);
    double total = 0;
    for (size_t i = before; i < n; i++) total += fmax(1, (double)tow_program_output_time(program, i).pieces);
    if (total > MOST_PIECES) return tool_fail(t, TOW_UNSUPPORTED, "--processes: more than %d gradients", MOST_PIECES);
    s->pieces = calloc((size_t)total + 1, sizeof *s->pieces);
    if (!s->pieces) return tool_fail(t, TOW_OUT_OF_MEMORY, "out of memory");
    for (size_t i = before; i < n; i++) {
        const tow_output_time time = tow_program_output_time(program, i);
        const int64_t pieces = time.pieces > 1 ? time.pieces : 1;
        const double bytes = (double)tow_type_bytes(tow_graph_output_type(gradient, i));
        s->parameters += bytes;
        if (pieces > 1)
            s->iteration += bytes / (double)pieces;
        else if (bytes > s->single)
            s->single = bytes;
        for (int64_t k = 0; k < pieces; k++) {
            const double part = pieces > 1 ? (double)k / (double)(pieces - 1) : 1;
            s->pieces[s->n++] =
                (piece){.ready = time.first + (time.last - time.first) * part, .bytes = bytes / (double)pieces, .n = 1};
        }
    }
    s->n_arrays = s->n;
    qsort(s->pieces, s->n, sizeof *s->pieces, by_time);
    join_pieces(s);
    return TOW_OK;
}

static tow_status seconds_of(tool *t, const tow_graph *graph, double *seconds)
{
    tow_program *program = NULL;
    const tow_status status = tow_compile(t->context, graph, &TOW_COMPILE_OPTIONS(.plan_only = true), &program);
    if (!status) *seconds = tow_program_seconds(program);
    tow_program_free(program);
    return status;
}

static tow_status read_step(tool *t, const tow_graph *gradient, const tow_program *program, step *s)
{
    const tow_program_bytes bytes = tow_program_get_bytes(program);
    *s = (step){.whole = tow_program_seconds(program)};
    tow_status status = seconds_of(t, t->graph, &s->forward);
    if (!status) status = list_pieces(t, gradient, program, tow_graph_output_count(t->graph), s);
    if (status) return status;
    s->arena = (double)bytes.arena;
    s->rest = fmax(0, (double)bytes.inputs + (double)bytes.outputs + (double)bytes.constants - 2 * s->parameters);
    s->forward = fmin(s->forward, s->whole);
    if (t->options.compute > 0) { /* what was measured, in place of the model's */
        const double scale = t->options.compute / s->whole;
        s->forward *= scale;
        s->whole *= scale;
        for (size_t i = 0; i < s->n; i++) s->pieces[i].ready *= scale;
    }
    return TOW_OK;
}

/* AdamW: (w, g, m, v) -> (w, m, v). */
static void record_update(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[1] = tow_add(tow_mul_scalar(in[2], 0.9), tow_mul_scalar(in[1], 0.1));
    out[2] = tow_add(tow_mul_scalar(in[3], 0.99), tow_mul_scalar(tow_square(in[1]), 0.01));
    const tow_value by = tow_div(out[1], tow_add_scalar(tow_sqrt(out[2]), 1e-8));
    out[0] = tow_sub(in[0], tow_mul_scalar(tow_add(by, tow_mul_scalar(in[0], 0.1)), 1e-3));
}

/* Seconds of an update of so many bytes of parameters. */
static tow_status update_seconds(tool *t, double bytes, double *seconds)
{
    const int64_t n = (int64_t)ceil(bytes / 4);
    const tow_type type = tow_make_type(TOW_F32, 1, &n);
    tow_graph *graph = NULL;
    tow_status status =
        tow_trace_function(t->context, record_update, NULL, 4, (tow_type[]){type, type, type, type}, NULL, 3, &graph);
    if (!status) status = seconds_of(t, graph, seconds);
    tow_graph_release(graph);
    return status;
}

/* ---- the network ------------------------------------------------------------------------------------------------- */

static double share_sent(const network *w) { return 1 - 1.0 / w->processes; }

/* Of the sums of a piece, and of its gathers. */
static double collective_seconds(const network *w, const piece *p)
{
    return p->n * ceil(log2(w->processes)) * w->latency + p->bytes * share_sent(w) / w->bandwidth;
}

/* Sums are gathered at once (all-reduce), and every process updates all. Seconds until all is done. */
static double gather_sums(const step *s, const network *w, double update)
{
    double net = 0;
    for (size_t i = 0; i < s->n; i++) net = fmax(net, s->pieces[i].ready) + 2 * collective_seconds(w, &s->pieces[i]);
    return fmax(net, s->whole) + update;
}

/* Sums follow gradients, and gathers follow updates. Seconds until all is done. */
static double gather_after_update(const step *s, const network *w, double update)
{
    double net = 0;
    for (size_t i = 0; i < s->n; i++) net = fmax(net, s->pieces[i].ready) + collective_seconds(w, &s->pieces[i]);
    double now = fmax(net, s->whole);
    net = now;
    for (size_t i = 0; i < s->n; i++) {
        now += update * s->pieces[i].bytes / s->parameters;
        net = fmax(net, now) + collective_seconds(w, &s->pieces[i]);
    }
    return fmax(net, now);
}

/* When piece i is ready, within the backward pass. */
static double ready_in_backward(const step *s, size_t i)
{
    return i == s->n - 1 ? s->whole : fmin(fmax(s->pieces[i].ready, s->forward), s->whole);
}

/* Parameters are gathered before they are read, in the forward pass and once more in the backward pass: those of the
 * next piece while this one is computed. The forward pass reads them in the order opposite to that of gradients, and
 * takes time for a piece as the backward pass does. */
static double gather_before_use(const step *s, const network *w, double update)
{
    const double ratio = s->whole > s->forward ? s->forward / (s->whole - s->forward) : 0;
    double net = 0, now = 0, begun = 0;
    for (size_t i = s->n; i-- > 0;) {
        const double before = i > 0 ? ready_in_backward(s, i - 1) : s->forward;
        net = fmax(net, begun) + collective_seconds(w, &s->pieces[i]);
        begun = fmax(now, net);
        now = begun + (ready_in_backward(s, i) - before) * ratio;
    }
    for (size_t i = 0; i < s->n; i++) {
        const double before = i > 0 ? ready_in_backward(s, i - 1) : s->forward;
        net = fmax(net, begun) + collective_seconds(w, &s->pieces[i]);
        begun = fmax(now, net);
        if (i > 0) net = fmax(net, now) + collective_seconds(w, &s->pieces[i - 1]); /* the sum of the piece before */
        now = begun + ready_in_backward(s, i) - before;
    }
    return fmax(net, now) + collective_seconds(w, &s->pieces[s->n - 1]) + update;
}

static prediction predict(const step *s, const network *w, double update)
{
    const bool gathers_twice = w->stage == 3;
    const double once = s->parameters * share_sent(w);
    prediction p = {.update = update, .seconds = s->whole + update};
    if (w->processes == 1) return p;
    p.sums = s->n_arrays;
    p.gathers = gathers_twice ? 2 * s->n_arrays : s->n_arrays;
    p.summed = once;
    p.gathered = gathers_twice ? 2 * once : once;
    for (size_t i = 0; i < s->n; i++) p.communication += (gathers_twice ? 3 : 2) * collective_seconds(w, &s->pieces[i]);
    p.seconds = w->stage == TOOL_NO_STAGE ? gather_sums(s, w, update)
                : gathers_twice           ? gather_before_use(s, w, update)
                                          : gather_after_update(s, w, update);
    p.exposed = fmax(0, p.seconds - (s->whole + update));
    return p;
}

/* The least bandwidth with which at most a twentieth of a step waits; 0: none is enough. */
static double enough_bandwidth(const step *s, network w, double update)
{
    double low = 1e3, high = 1e15; /* bytes in a second */
    w.bandwidth = high;
    if (predict(s, &w, update).exposed > (s->whole + update) / 20) return 0;
    while (high / low > 1.001) {
        w.bandwidth = sqrt(low * high);
        if (predict(s, &w, update).exposed > (s->whole + update) / 20)
            low = w.bandwidth;
        else
            high = w.bandwidth;
    }
    return high;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

typedef struct held {
    double parameters, gradients, slots, gathered, rest;
} held;

/* Bytes of a process: what a stage splits has its share, and two pieces that are on their way. */
static held bytes_held(const step *s, int processes, int stage, int64_t slots)
{
    const double n = processes, on_the_way = 2 * fmax(s->iteration, 0) + s->single;
    held h = {.parameters = s->parameters,
              .gradients = s->parameters,
              .slots = (double)slots * s->parameters,
              .rest = s->arena + s->rest};
    if (stage >= 1) h.slots /= n;
    if (stage >= 1) h.gradients /= n;
    if (stage >= 3) h.parameters /= n;
    if (stage >= 1 && processes > 1) h.gathered = fmin(on_the_way, s->parameters) * (stage == 3 ? 2 : 1);
    return h;
}

static double sum_held(const held *h) { return h->parameters + h->gradients + h->slots + h->gathered + h->rest; }

/* ---- printing ---------------------------------------------------------------------------------------------------- */

static const char *bytes_text(double bytes, char text[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int k = 0;
    for (; bytes >= 1024 && k < 4; k++) bytes /= 1024;
    snprintf(text, 32, "%.*f %s", k == 0 ? 0 : bytes < 10 ? 2 : bytes < 100 ? 1 : 0, bytes, units[k]);
    return text;
}

static const char *seconds_text(double seconds, char text[32])
{
    const double x = seconds >= 1 ? seconds : seconds >= 1e-3 ? seconds * 1e3 : seconds * 1e6;
    snprintf(text, 32, "%.3g %s", x, seconds >= 1 ? "s" : seconds >= 1e-3 ? "ms" : "us");
    return text;
}

static void print_held(const char *what, double alone, double here)
{
    char a[32], b[32];
    printf("%-32s %12s %12s\n", what, bytes_text(alone, a), bytes_text(here, b));
}

static void print(const tool_options *o, const step *s, const network *w, const prediction *p, const prediction *alone,
                  double enough)
{
    char a[32], b[32], c[32];
    const held one = bytes_held(s, 1, 0, o->slots), here = bytes_held(s, w->processes, w->stage, o->slots);
    char stage[24] = "nothing split";
    if (w->stage != TOOL_NO_STAGE) snprintf(stage, sizeof stage, "stage %d", w->stage);
    printf("%d processes, %s, %.3g Gbit/s, %s; computation by %s, not measured\n\n", w->processes, stage,
           w->bandwidth * 8e-9, seconds_text(w->latency, a), o->compute > 0 ? "--compute" : "the cost model");
    printf("%-32s %12s %12s\n", "bytes of a process", "one alone", "each of all");
    print_held("parameters", one.parameters, here.parameters);
    print_held("gradients", one.gradients, here.gradients);
    print_held("optimizer", one.slots, here.slots);
    print_held("sums and gathers on their way", one.gathered, here.gathered);
    print_held("activations, batch", one.rest, here.rest);
    print_held("all", sum_held(&one), sum_held(&here));
    printf("\n%-32s %12s %12s\n", "sent by a process in a step", "bytes", "collectives");
    printf("%-32s %12s %12zu\n", "sums of gradients", bytes_text(p->summed, a), p->sums);
    printf("%-32s %12s %12zu\n", "gathers of parameters", bytes_text(p->gathered, a), p->gathers);
    printf("\n%-32s %12s\n", "forward and backward pass", seconds_text(s->whole, a));
    printf("%-32s %12s\n", w->stage == TOOL_NO_STAGE ? "update" : "update of the share", seconds_text(p->update, a));
    printf("%-32s %12s, of which %s (%.1f %%) are hidden\n", "communication", seconds_text(p->communication, a),
           seconds_text(fmax(0, p->communication - p->exposed), b),
           p->communication > 0 ? 100 * fmax(0, 1 - p->exposed / p->communication) : 100);
    printf("%-32s %12s\n", "a step", seconds_text(p->seconds, a));
    printf("%-32s %12s\n", "a step of one process alone", seconds_text(alone->seconds, b));
    printf("%-32s %11.1f%%\n", "efficiency", 100 * alone->seconds / p->seconds);
    if (w->processes == 1) return;
    if (enough > 0)
        printf("\nAt most a twentieth of a step waits for the network from %.3g Gbit/s on.\n", enough * 8e-9);
    else
        printf("\nMore than a twentieth of a step waits for the network at any bandwidth: %s of latency.\n",
               seconds_text((double)(p->sums + p->gathers) * ceil(log2(w->processes)) * w->latency, c));
}

static json_t *json_of(const tool_options *o, const step *s, const network *w, const prediction *p,
                       const prediction *alone, double enough)
{
    const held h = bytes_held(s, w->processes, w->stage, o->slots);
    return json_pack("{s:i, s:i, s:f, s:f, s:{s:f, s:f, s:f, s:f, s:f, s:f}, s:{s:f, s:f}, s:{s:I, s:I}, s:{s:f, s:f, "
                     "s:f, s:f, s:f, "
                     "s:f, s:f}, s:f, s:f}",
                     "processes", w->processes, "stage", w->stage, "bits_per_second", 8 * w->bandwidth, "latency",
                     w->latency, "bytes", "parameters", h.parameters, "gradients", h.gradients, "optimizer", h.slots,
                     "on_the_way", h.gathered, "rest", h.rest, "all", sum_held(&h), "sent", "sums", p->summed,
                     "gathers", p->gathered, "collectives", "sums", (json_int_t)p->sums, "gathers",
                     (json_int_t)p->gathers, "seconds", "forward", s->forward, "forward_backward", s->whole, "update",
                     p->update, "communication", p->communication, "exposed", p->exposed, "step", p->seconds, "alone",
                     alone->seconds, "efficiency", alone->seconds / p->seconds, "enough_bits_per_second", 8 * enough);
}

tow_status tool_choose_floats(tool *t)
{
    tool_options *o = &t->options;
    const size_t n = tow_graph_input_count(t->graph);
    for (size_t i = 0, given = o->n_wrt; given == 0 && i < n; i++) {
        if (!tow_dtype_is_float(tow_graph_input_type(t->graph, i).dtype)) continue;
        if (o->n_wrt == TOOL_MAX_ARRAYS)
            return tool_fail(t, TOW_INVALID_ARGUMENT, "--processes: more than %d float inputs; choose with --wrt",
                             TOOL_MAX_ARRAYS);
        o->wrt[o->n_wrt++] = i;
    }
    return TOW_OK;
}

tow_status tool_scale(tool *t, const tow_graph *gradient, const tow_program *program)
{
    tool_options *o = &t->options;
    if (o->slots < 0) o->slots = 2;
    const network w = {.bandwidth = (o->bandwidth > 0 ? o->bandwidth : 10e9) / 8,
                       .latency = o->latency > 0 ? o->latency : 20e-6,
                       .processes = o->processes,
                       .stage = o->stage};
    double update = 0, update_alone = 0;
    step s = {0};
    tow_status status = read_step(t, gradient, program, &s);
    if (!status) status = update_seconds(t, s.parameters, &update_alone);
    if (!status) status = update_seconds(t, s.parameters / (w.stage == TOOL_NO_STAGE ? 1 : w.processes), &update);
    if (!status) {
        const prediction alone = predict(&s, &(network){.processes = 1}, update_alone), p = predict(&s, &w, update);
        const double enough = w.processes > 1 ? enough_bandwidth(&s, w, update) : 0;
        if (o->json)
            status = tool_show_json(t, json_of(o, &s, &w, &p, &alone, enough));
        else
            print(o, &s, &w, &p, &alone, enough);
    }
    free(s.pieces);
    return status;
}
