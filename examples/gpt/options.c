/* The command line, by glibc's argp: one table of options, and one table that says which numbers are allowed. */
#include "options.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/common.h"
#include "common/options.h"
#include "processes.h"

#ifndef GPT_INSTALLED_TEXT
#define GPT_INSTALLED_TEXT "/usr/local/share/tow/tow.txt"
#endif
#define GPT_PACKAGED_TEXT "/usr/share/tow/tow.txt"

enum {
    TEXT = 256,
    LAYERS,
    WIDTH,
    HEADS,
    CONTEXT,
    BATCH,
    STEPS,
    POLICY,
    SCAN,
    NO_SCAN,
    SEED,
    THREADS,
    LEARNING_RATE,
    WARMUP,
    CHECKPOINT,
    RESUME,
    SAVE_EVERY,
    EVAL_EVERY,
    LOG,
    TENSORBOARD,
    PLAN,
    MEMORY,
    HTML,
    GRAPH,
    CURVE,
    TRACE,
    RESIDUALS,
    WHY,
    SAMPLE,
    NO_SAMPLE,
    EARLY_UPDATE,
    MEMORY_LIMIT,
    VERIFY,
    MICRO_BATCHES,
    ROW_GROUPS,
    PROCESSES,
    SHARD,
    WATCHDOG,
    RANK,
    BANDWIDTH,
    LATENCY,
    INSTRUCTIONS,
    DTYPE,
    PARAM_DTYPE,
    MASTER,
    STOCHASTIC_ROUNDING,
    SLOT_BITS
};

static const struct argp_option table[] = {
    {0, 0, 0, 0, "What to train:", 1},
    {"text", TEXT, "FILE", 0,
     "Train on this file; each byte value that occurs is a token (default: Tow's own sources and documents)", 1},
    {"layers", LAYERS, "N", 0, "Transformer blocks (6)", 1},
    {"width", WIDTH, "N", 0, "Features per position, a multiple of the heads (128)", 1},
    {"heads", HEADS, "N", 0, "Attention heads (4)", 1},
    {"context", CONTEXT, "N", 0, "Positions that a prediction may look back on (128)", 1},
    {"seed", SEED, "N", 0, "Of parameters, batches and sampled text (0)", 1},
    {0, 0, 0, 0, "How to train:", 2},
    {"batch", BATCH, "N", 0, "Sequences per step (8)", 2},
    {"micro-batches", MICRO_BATCHES, "N", 0, "Parts of a batch that go through the model one after the other (1)", 2},
    {"row-groups", ROW_GROUPS, "N", 0,
     "Blocks of sequences, a power of two, over which sums over the batch are binary trees (those of the "
     "checkpoint that is resumed, else as many as --processes): the same losses to the last bit for all "
     "--micro-batches that divide it, and for any number of processes",
     2},
    {"processes", PROCESSES, "N", 0,
     "Processes of this machine that share the rows of a batch (1), at most --row-groups; on several machines, mpirun "
     "starts them. With --steps 0 none is started: this one says what one of so many will hold and send",
     2},
    {"shard", SHARD, "STAGE", 0,
     "Of 0, nothing (the default), 1 or 2, the state of the optimizer and gradients, and 3, parameters as well, each "
     "process keeps its share",
     2},
    {"watchdog", WATCHDOG, "SECONDS", 0,
     "Time in which nothing moves between processes, after which all say where they stand and end (60)", 2},
    {"steps", STEPS, "N", 0,
     "Updates in all, those before --resume included (500); 0: plan and report, and train nothing", 2},
    {"learning-rate", LEARNING_RATE, "X", 0, "Peak of the schedule (0.002)", 2},
    {"warmup", WARMUP, "N", 0, "Steps of warm-up (a tenth of all, at most 100)", 2},
    {"threads", THREADS, "N", 0, "(as many as the CPUs that may be used)", 2},
    {"dtype", DTYPE, "TYPE", 0,
     "What layers compute in and give: f32, bf16, f16 (f32). f16 scales the loss, and leaves out steps whose gradients "
     "overflow",
     2},
    {"param-dtype", PARAM_DTYPE, "TYPE", 0, "What parameters are stored in (f32)", 2},
    {"master", MASTER, 0, 0, "Keep parameters of 16 bits in f32 in the optimizer, too", 2},
    {"stochastic-rounding", STOCHASTIC_ROUNDING, 0, 0, "Round updates of parameters of 16 bits up or down at random",
     2},
    {"slot-bits", SLOT_BITS, "N", 0, "8: moments of the optimizer in 8 bits", 2},
    {0, 0, 0, 0, "What to keep in memory between forward and backward:", 3},
    {"policy", POLICY, "POLICY", 0,
     "Wrap each block in remat with this policy: everything, nothing, dots, dots_with_no_batch_dims, names:a,b, ... "
     "(none: no remat)",
     3},
    {"scan", SCAN, 0, 0, "One loop over stacked blocks (default)", 3},
    {"no-scan", NO_SCAN, 0, 0, "Blocks one by one; the same losses to the last bit", 3},
    {"early-update", EARLY_UPDATE, 0, 0,
     "Update parameters inside the backward pass, so that whole gradients never exist; without clipping", 3},
    {"memory-limit", MEMORY_LIMIT, "BYTES", 0,
     "The fastest step that takes no more than so many bytes, parameters, optimizer and batch included: 512M, 1.5G, or "
     "50% of the bytes without a limit",
     3},
    {"verify", VERIFY, 0, 0,
     "Compare what a step makes again with what it made first, bit by bit; takes the memory of both", 3},
    {0, 0, 0, 0, "Checkpoints:", 4},
    {"checkpoint", CHECKPOINT, "DIR", 0, "Save to DIR/checkpoint.safetensors; Ctrl-C saves, too", 4},
    {"resume", RESUME, 0, 0, "Go on from the checkpoint in DIR, if there is one", 4},
    {"save-every", SAVE_EVERY, "N", 0,
     "Steps between checkpoints (100); 0: only at the end. After a save that fails training goes on, and the next save "
     "tries again; only if the last one fails is the exit status 1",
     4},
    {0, 0, 0, 0, "Reports:", 5},
    {"eval-every", EVAL_EVERY, "N", 0, "Steps between measurements of the validation loss (50); 0: never", 5},
    {"log", LOG, "FILE", 0, "One line of JSON per step", 5},
    {"tensorboard", TENSORBOARD, "DIR", 0,
     "The same numbers as events for TensorBoard, in a new file of this directory", 5},
    {"plan", PLAN, "FILE", 0,
     "The planned bytes by kind as JSON; the peak, all that training holds while a step runs, is the sum of all but "
     "gradients, which are within residuals and workspace",
     5},
    {"rank", RANK, "R", 0, "With --processes and --steps 0: the process of which that is said (0)", 5},
    {"bandwidth", BANDWIDTH, "BITS", 0,
     "That a process sends in a second while it receives as many, for the time of a step by the model: 25G (10G)", 5},
    {"latency", LATENCY, "TIME", 0, "Of a message, for the same: 20us (20us), 1ms", 5},
    {"memory", MEMORY, "FILE", 0, "A picture of what is alive in the step's program over its schedule, as SVG", 5},
    {"html", HTML, "FILE", 0, "The same as a page for a browser, in which a click says why a block of memory is there",
     5},
    {"graph", GRAPH, "FILE", 0, "The graph of the loss as text, for the command tow: what is kept, and why", 5},
    {"curve", CURVE, "FILE", 0,
     "The steps among which --memory-limit chooses, bytes against modelled time, and those of JAX's policies for each "
     "block: a table, and a picture as SVG",
     5},
    {"trace", TRACE, "FILE", 0, "When each instruction of the second step ran, for Perfetto", 5},
    {"residuals", RESIDUALS, 0, 0, "List the values that are kept between forward and backward", 5},
    {"why", WHY, 0, 0,
     "The same with reasons, and the values that are made again: where they are made and read, who decided, what they "
     "cost, and what would change if it were otherwise",
     5},
    {"instructions", INSTRUCTIONS, 0, 0,
     "List the instructions of a step with the memory that each uses, as tow plan does", 5},
    {"sample", SAMPLE, "N", 0, "Characters of text to write after training (400)", 5},
    {"no-sample", NO_SAMPLE, 0, 0, "Write none", 5},
    {0},
};

/* Options whose value is a whole number: where it goes and what is allowed. */
typedef struct number {
    int key;
    const char *name;
    size_t field; /* of an int64_t */
    int64_t low, high;
} number;

#define NUMBER(key, name, field, low, high)                                                                            \
    {                                                                                                                  \
        key, name, offsetof(options, field), low, high                                                                 \
    }
static const number numbers[] = {
    NUMBER(LAYERS, "--layers", layers, 1, 100000),
    NUMBER(WIDTH, "--width", width, 1, 1 << 20),
    NUMBER(HEADS, "--heads", heads, 1, 1 << 16),
    NUMBER(CONTEXT, "--context", context, 1, 1 << 20),
    NUMBER(BATCH, "--batch", batch, 1, 1 << 20),
    NUMBER(MICRO_BATCHES, "--micro-batches", micro_batches, 1, 1 << 20),
    NUMBER(ROW_GROUPS, "--row-groups", row_groups, 1, 1 << 20),
    NUMBER(PROCESSES, "--processes", processes, 1, 65536),
    NUMBER(RANK, "--rank", rank, 0, 65535),
    NUMBER(SHARD, "--shard", shard, 0, 3),
    NUMBER(WATCHDOG, "--watchdog", watchdog, 1, 1000000),
    NUMBER(STEPS, "--steps", steps, 0, INT32_MAX),
    NUMBER(SLOT_BITS, "--slot-bits", slot_bits, 0, 64),
    NUMBER(WARMUP, "--warmup", warmup, 0, INT32_MAX),
    NUMBER(SAVE_EVERY, "--save-every", save_every, 0, INT32_MAX),
    NUMBER(EVAL_EVERY, "--eval-every", eval_every, 0, INT32_MAX),
    NUMBER(SAMPLE, "--sample", sample, 0, 1 << 24),
};
enum {
    N_NUMBERS = sizeof numbers / sizeof numbers[0]
};

/* A positive number of bytes, which may end with K, M or G, or of percent. False: it is neither. */
static bool parse_limit(const char *text, options *o)
{
    static const char units[] = "KMG%";
    char *end;
    errno = 0;
    const double count = text[0] >= '0' && text[0] <= '9' ? strtod(text, &end) : 0;
    if (errno != 0 || !(count > 0) || strpbrk(text, "eExX")) return false;
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (*end && (!unit || end[1])) return false;
    o->memory_limit = 0;
    o->limit_percent = unit && *unit == '%' ? count : 0;
    if (o->limit_percent > 0) return true;
    const double bytes = ldexp(count, unit ? 10 * (int)(unit - units + 1) : 0);
    if (bytes < 1 || bytes >= 9e18) return false;
    o->memory_limit = (size_t)bytes;
    return true;
}

/* A unit behind a number, and how many of the basic one it is. */
typedef struct unit {
    const char *name;
    double times;
} unit;

static double number_with_unit(struct argp_state *state, const char *name, const char *text, const unit *units,
                               const char *example)
{
    char *end;
    const double count = text[0] >= '0' && text[0] <= '9' ? strtod(text, &end) : 0;
    for (const unit *u = units; count > 0 && u->name; u++)
        if (strcmp(end, u->name) == 0 && isfinite(count * u->times)) return count * u->times;
    argp_error(state, "%s: expected a positive number with a unit, as %s, found '%s'", name, example, text);
    return 0;
}

/* Bits become bytes. */
static double read_bandwidth(struct argp_state *state, const char *text)
{
    static const unit units[] = {{"K", 125}, {"M", 125e3}, {"G", 125e6}, {"T", 125e9}, {NULL, 0}};
    return number_with_unit(state, "--bandwidth", text, units, "25G or 100M");
}

static double read_latency(struct argp_state *state, const char *text)
{
    static const unit units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {NULL, 0}};
    return number_with_unit(state, "--latency", text, units, "20us or 1ms");
}

/* Reads the name of a type of floats. */
static tow_dtype float_type(struct argp_state *state, const char *name, const char *value)
{
    static const tow_dtype dtypes[] = {TOW_F32, TOW_BF16, TOW_F16};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(value, tow_dtype_name(dtypes[i])) == 0) return dtypes[i];
    argp_error(state, "%s: expected f32, bf16 or f16, found '%s'", name, value);
    return TOW_F32;
}

static void check_together(struct argp_state *state, const options *o)
{
    if (o->master && o->stochastic_rounding)
        argp_error(state, "--master rounds to nearest: leave one of --master and --stochastic-rounding out");
    if (o->slot_bits != 0 && o->slot_bits != 8)
        argp_error(state, "--slot-bits: expected 8, or 0 for f32, found %lld", (long long)o->slot_bits);
    if (o->width % o->heads != 0)
        argp_error(state, "--width %lld is no multiple of --heads %lld", (long long)o->width, (long long)o->heads);
    if (o->save_every >= 0 && !o->checkpoint) argp_error(state, "--save-every needs --checkpoint DIR to say where to");
    if (o->resume && !o->checkpoint) argp_error(state, "--resume needs --checkpoint DIR to say from where");
    if (o->row_groups > 0 && o->processes > o->row_groups)
        argp_error(state,
                   "--processes %lld needs --row-groups of at least as many, a power of two; each process has the "
                   "sequences of some of them",
                   (long long)o->processes);
    if (o->processes > 64 && o->steps > 0)
        argp_error(state,
                   "--processes %lld: this machine runs 64 at most; mpirun starts more, and with --steps 0 they are "
                   "planned and not started",
                   (long long)o->processes);
    if (o->rank > 0 && (o->steps > 0 || o->rank >= o->processes))
        argp_error(state, "--rank %lld needs --steps 0 and --processes of more than that", (long long)o->rank);
    if (o->processes > 1 && o->steps == 0 && o->checkpoint)
        argp_error(state, "--processes with --steps 0 starts none of them, so leave --checkpoint out");
    if (o->processes > 1 && started_by_mpi())
        argp_error(state, "--processes is for programs that mpirun has not started; leave it out");
    if (o->warmup > 0 && o->warmup >= o->steps)
        argp_error(state, "--warmup %lld leaves nothing of --steps %lld", (long long)o->warmup, (long long)o->steps);
}

static error_t parse(int key, char *value, struct argp_state *state)
{
    options *o = state->input;
    for (size_t i = 0; i < N_NUMBERS; i++) {
        if (numbers[i].key != key) continue;
        int64_t *field = (int64_t *)(void *)((char *)o + numbers[i].field);
        *field = whole_number(state, numbers[i].name, value, numbers[i].low, numbers[i].high);
        return 0;
    }
    switch (key) {
    case TEXT:
        o->text = value;
        break;
    case POLICY:
        o->policy = strcmp(value, "none") == 0 ? NULL : value;
        break;
    case SCAN:
        o->unrolled = false;
        break;
    case NO_SCAN:
        o->unrolled = true;
        break;
    case SEED:
        o->seed = seed_number(state, "--seed", value);
        break;
    case THREADS:
        o->threads = (int)whole_number(state, "--threads", value, 1, 1024);
        break;
    case LEARNING_RATE:
        o->learning_rate = positive_number(state, "--learning-rate", value);
        break;
    case BANDWIDTH:
        o->bandwidth = read_bandwidth(state, value);
        break;
    case LATENCY:
        o->latency = read_latency(state, value);
        break;
    case CHECKPOINT:
        o->checkpoint = value;
        break;
    case RESUME:
        o->resume = true;
        break;
    case LOG:
        o->log = value;
        break;
    case TENSORBOARD:
        o->tensorboard = value;
        break;
    case PLAN:
        o->plan = value;
        break;
    case MEMORY:
        o->memory = value;
        break;
    case HTML:
        o->html = value;
        break;
    case GRAPH:
        o->graph = value;
        break;
    case CURVE:
        o->curve = value;
        break;
    case TRACE:
        o->trace = value;
        break;
    case RESIDUALS:
        o->residuals = true;
        break;
    case EARLY_UPDATE:
        o->early_update = true;
        break;
    case MEMORY_LIMIT:
        if (!parse_limit(value, o))
            argp_error(
                state,
                "--memory-limit: expected a positive number of bytes, as 1000000, 512M or 1.5G, or a part of the "
                "bytes without a limit, as 50%%, found '%s'",
                value);
        break;
    case DTYPE:
        o->dtype = float_type(state, "--dtype", value);
        break;
    case PARAM_DTYPE:
        o->param_dtype = float_type(state, "--param-dtype", value);
        break;
    case MASTER:
        o->master = true;
        break;
    case STOCHASTIC_ROUNDING:
        o->stochastic_rounding = true;
        break;
    case WHY:
        o->why = true;
        break;
    case INSTRUCTIONS:
        o->instructions = true;
        break;
    case VERIFY:
        o->verify = true;
        break;
    case NO_SAMPLE:
        o->sample = 0;
        break;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument '%s'", value);
        break;
    case ARGP_KEY_END:
        check_together(state, o);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* Tow's own sources and documents: in share/tow beside the directory of this program, in the build directory as in the
 * installed tree. If that directory is not known (without /proc), they are where this build or a package installs
 * them. */
static void find_default_text(options *o)
{
    char *path = o->default_text;
    find_shared("tow.txt", path, sizeof o->default_text);
    if (path[0] != '\0') return;
    strcpy(path, access(GPT_INSTALLED_TEXT, R_OK) == 0 ? GPT_INSTALLED_TEXT : GPT_PACKAGED_TEXT);
}

void read_options(int argc, char **argv, options *o)
{
    static const struct argp argp = {
        .options = table,
        .parser = parse,
        .doc = "Trains a character-level GPT: a loop over Transformer blocks, differentiated and compiled by Tow."};
    *o = (options){.layers = 6,
                   .width = 128,
                   .heads = 4,
                   .context = 128,
                   .batch = 8,
                   .micro_batches = 1,
                   .processes = 1,
                   .watchdog = 60,
                   .bandwidth = 1.25e9,
                   .latency = 20e-6,
                   .dtype = TOW_F32,
                   .param_dtype = TOW_F32,
                   .steps = 500,
                   .learning_rate = 2e-3,
                   .warmup = -1,
                   .save_every = -1,
                   .eval_every = 50,
                   .sample = 400};
    find_default_text(o);
    o->text = o->default_text;
    argp_program_version = "gpt (Tow) " TOW_VERSION;
    argp_err_exit_status = 2;
    if (argp_parse(&argp, argc, argv, 0, NULL, o) != 0) { /* not a bad option: those end the program */
        fprintf(stderr, "gpt: out of memory\n");
        exit(1);
    }
    if (o->threads == 0 && o->processes > 1) {
        const int each = usable_cpus() / (int)o->processes;
        o->threads = each > 0 ? each : 1;
    }
    if (o->save_every < 0) o->save_every = 100;
    if (o->warmup < 0) o->warmup = o->steps / 10 < 100 ? o->steps / 10 : 100;
}
