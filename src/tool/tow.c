/* tow: check, print, run and differentiate graphs in textual form. This file reads the command line and dispatches. */
#include <argp.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/tool/tool.h"

/* Commands, as bits: which options go with which. */
enum {
    CHECK = 1,
    PRINT = 2,
    RUN = 4,
    GRAD = 8,
    RESIDUALS = 16,
    COUNT = 32,
    PLAN = 64,
    VMAP = 128,
    ANY = 255,
    PRIMITIVES = 256, /* no file, no options */
    PLOT = 512,       /* logs instead of a graph */
    CONVERT = 1024,   /* weights */
    TOKENIZE = 2048,  /* a text */
    NO_GRAPH = PRIMITIVES | PLOT | CONVERT | TOKENIZE
};

static const struct command {
    const char *name;
    unsigned bit;
    tow_status (*run)(tool *t);
    const char *files; /* as --help writes them */
    const char *about;
} commands[] = {
    {"check", CHECK, tool_check, "FILE", "types and invariants of the graph"},
    {"print", PRINT, tool_print, "FILE", "the graph in its stable form"},
    {"run", RUN, tool_run, "FILE", "its results on given inputs"},
    {"grad", GRAD, tool_grad, "FILE", "the graph of its gradient, or with --run the gradient"},
    {"residuals", RESIDUALS, tool_residuals, "FILE", "what reverse mode keeps from forward for backward"},
    {"count", COUNT, tool_count, "FILE", "how often each primitive runs, forward and backward"},
    {"plan", PLAN, tool_plan, "FILE", "instructions and memory of the compiled graph"},
    {"vmap", VMAP, tool_vmap, "FILE", "the graph of many rows, or with --run its results"},
    {"plot", PLOT, tool_plot, "FILE...",
     "curves of logs of trainings: files of JSON lines or of TensorBoard's events, or directories of these"},
    {"convert-weights", CONVERT, tool_convert_weights, "FILE",
     "weights of another program as Tow's, or back, by --mapping; or safetensors as GGUF, or back, by --architecture"},
    {"tokenize", TOKENIZE, tool_tokenize, "FILE", "a text as tokens of --tokenizer"},
    {"primitives", PRIMITIVES, NULL, "", "all primitives with their operands, results and parameters; takes no file"},
};
enum {
    COMMAND_COUNT = sizeof commands / sizeof *commands
};

enum {
    KEY_INPUTS = 256,
    KEY_OUTPUTS,
    KEY_RANDOM,
    KEY_VALUE,
    KEY_RUN,
    KEY_GRAD,
    KEY_JVP,
    KEY_JACFWD,
    KEY_JACREV,
    KEY_HESSIAN,
    KEY_SPLIT,
    KEY_SIZE,
    KEY_IN_AXES,
    KEY_OUT_AXES,
    KEY_DCE,
    KEY_CSE,
    KEY_JSON,
    KEY_VERIFY,
    KEY_LIMIT,
    KEY_CURVE,
    KEY_MEMORY,
    KEY_HTML,
    KEY_AGAINST,
    KEY_WHY,
    KEY_PASSES,
    KEY_DUMP_AFTER,
    KEY_DUMP_DIR,
    KEY_WITHOUT,
    KEY_PROCESSES,
    KEY_BANDWIDTH,
    KEY_LATENCY,
    KEY_SHARD,
    KEY_SLOTS,
    KEY_COMPUTE,
    KEY_TRACE,
    KEY_X,
    KEY_Y,
    KEY_SMOOTH,
    KEY_LOG_Y,
    KEY_TITLE,
    KEY_MAPPING,
    KEY_REVERSE,
    KEY_AXIS,
    KEY_DTYPE,
    KEY_MAX_FILE_BYTES,
    KEY_PARTIAL,
    KEY_TOKENIZER,
    KEY_ARCHITECTURE,
    KEY_TYPE
};

static const struct argp_option argp_options[] = {
    {"input", 'i', "[NAME=]FILE|VALUE", 0,
     "An input of the graph: a .npy file, or a JSON number or list; a single number fills the array. Without NAME: the "
     "next input without one",
     1},
    {"inputs", KEY_INPUTS, "FILE", 0, "Inputs by name (or index) from a safetensors file, its index, or a .npz file",
     1},
    {"random-inputs", KEY_RANDOM, "SEED", 0,
     "Draw the inputs that are not given: floats from [-1, 1), integers from {0, 1}", 1},
    {"output", 'o', "FILE", 0,
     "Write the next result to a .npy file; plot: draw to this file, as SVG; convert-weights: write to this file", 1},
    {"outputs", KEY_OUTPUTS, "FILE", 0, "Write all results to a safetensors file, or to FILE.npz, named 0, 1, ...", 1},
    {"wrt", 'w', "I,J,...", 0,
     "Inputs to differentiate with respect to, by index or name; results come in the order of the inputs (grad, plan, "
     "vmap: the first input; else all float inputs)",
     2},
    {"policy", 'p', "POLICY", 0,
     "Put the whole graph into one remat region: nothing, everything, dots_saveable, names:a,b, ...", 2},
    {"value", KEY_VALUE, NULL, 0, "grad, vmap --grad: value and gradient", 2},
    {"run", KEY_RUN, NULL, 0,
     "grad, vmap: run the graph instead of printing it; plan: run it, and print what each instruction took, and what "
     "was "
     "done",
     2},
    {"jvp", KEY_JVP, NULL, 0, "grad: forward mode instead, (x..., dx...) -> (y..., dy...)", 2},
    {"jacfwd", KEY_JACFWD, NULL, 0, "grad: Jacobians of all results instead, by forward mode", 2},
    {"jacrev", KEY_JACREV, NULL, 0, "grad: Jacobians of all results instead, by reverse mode", 2},
    {"hessian", KEY_HESSIAN, NULL, 0, "grad: second derivatives of the one result instead", 2},
    {"split", KEY_SPLIT, NULL, 0, "grad: forward graph, residuals and backward graph side by side", 2},
    {"grad", KEY_GRAD, NULL, 0, "plan: of the value and gradient; vmap: of the gradient", 2},
    {"size", KEY_SIZE, "N", 0, "vmap: the number of rows", 2},
    {"in-axes", KEY_IN_AXES, "AXIS,...", 0,
     "vmap: for each input the axis that counts rows, or 'none': all rows share it; one stands for all (0)", 2},
    {"out-axes", KEY_OUT_AXES, "AXIS,...", 0,
     "vmap: for each result the axis along which rows are stacked, or 'none' (0)", 2},
    {"verify", KEY_VERIFY, NULL, 0,
     "grad, vmap, plan: compare what the gradient makes again with what it made first, bit by bit", 2},
    {"memory-limit", KEY_LIMIT, "BYTES", 0,
     "plan, residuals --why: the fastest plan that takes no more than so many bytes, inputs and outputs "
     "included (512K, 64M, 1.5G, or 50% of the bytes without a limit)",
     2},
    {"curve", KEY_CURVE, "FILE", OPTION_ARG_OPTIONAL,
     "plan: the plans among which a memory limit chooses, and with --grad those of JAX's policies: bytes, seconds by "
     "the model, operations; with a FILE, a picture of them as SVG, too",
     2},
    {"memory", KEY_MEMORY, "FILE", 0, "plan: draw live bytes over the schedule, as SVG", 2},
    {"html", KEY_HTML, "FILE", 0,
     "plan: write a page for a browser in which one sees what is in memory when, and clicks it to read why", 2},
    {"against", KEY_AGAINST, "BYTES|none|FILE", 0,
     "plan --html: beside it the plan within another memory limit, without one, or of another graph", 2},
    {"why", KEY_WHY, NULL, 0,
     "residuals: of each why it is kept, who reads it, where it is in the plan of the gradient, what it takes to make "
     "it again, and what would change if it were not kept",
     2},
    {"passes", KEY_PASSES, NULL, 0, "plan: print the passes of the compiler and their reasons instead; needs no file",
     2},
    {"dump-after", KEY_DUMP_AFTER, "PASS", 0,
     "plan: print the functions of the program as they are after a pass instead of the plan", 2},
    {"dump-dir", KEY_DUMP_DIR, "DIR", 0,
     "plan: write them after each pass, to files NN-PASS-K.txt: number of the pass, K-th function that it ran on", 2},
    {"without", KEY_WITHOUT, "PASS,...", 0, "plan: leave out passes", 2},
    {"processes", KEY_PROCESSES, "N", 0,
     "plan: what a step, so its gradient (--grad), takes if so many processes share it, each with a batch as large as "
     "that of the graph: bytes, and seconds by a model",
     2},
    {"shard", KEY_SHARD, "STAGE", 0,
     "plan --processes: what is split among them: none or 0 nothing (none), 1 or 2 slots of the optimizer, gradients "
     "and the work of the update, 3 parameters, too",
     2},
    {"bandwidth", KEY_BANDWIDTH, "BITS", 0,
     "plan --processes: bits that a process sends in a second while it receives as many (10G)", 2},
    {"latency", KEY_LATENCY, "TIME", 0, "plan --processes: of a message: 20us (20us), 1ms", 2},
    {"slots", KEY_SLOTS, "N", 0, "plan --processes: arrays that the optimizer keeps for each parameter (2)", 2},
    {"compute", KEY_COMPUTE, "TIME", 0,
     "plan --processes: measured time of the forward and backward pass, instead of the model's: 1.5s, 300ms", 2},
    {"trace", KEY_TRACE, "FILE", 0, "run, and with --run: write when each instruction ran, for Perfetto", 2},
    {"y", KEY_Y, "NAME,...", 0, "plot: the numbers to draw (those whose name has 'loss')", 2},
    {"x", KEY_X, "step|seconds", 0, "plot: what they are drawn over (step)", 2},
    {"smooth", KEY_SMOOTH, "X", 0,
     "plot: moving average with this weight of the past, from 0 to below 1, in front of the numbers themselves", 2},
    {"log-y", KEY_LOG_Y, NULL, 0, "plot: a logarithmic scale", 2},
    {"title", KEY_TITLE, "TEXT", 0, "plot: a title above the chart", 2},
    {"mapping", KEY_MAPPING, "NAME|FILE", 0,
     "convert-weights: rules of names and shapes: a table, such as llama or gguf-llama, or a file (tow/weights.h)", 2},
    {"architecture", KEY_ARCHITECTURE, "NAME", 0,
     "convert-weights: instead of a mapping, from safetensors of transformers, beside which config.json and "
     "tokenizer.json are, to GGUF, or from GGUF to such a directory: gemma, gemma2, gpt2, llama, qwen2, qwen3, or "
     "auto, as the files say",
     2},
    {"type", KEY_TYPE, "TYPE", 0, "convert-weights: matrices in a GGUF file as f32, f16, bf16, q8_0 or q4_0", 2},
    {"reverse", KEY_REVERSE, NULL, 0, "convert-weights: from Tow's names to those of the other program", 2},
    {"axis", KEY_AXIS, "NAME=SIZE", 0, "convert-weights: the size of an axis of rules that shapes do not tell", 2},
    {"dtype", KEY_DTYPE, "TYPE", 0, "convert-weights: write floats as f32, f64, bf16 or f16", 2},
    {"max-file-bytes", KEY_MAX_FILE_BYTES, "N", 0,
     "convert-weights: at most so many bytes of data in one file; several have an index", 2},
    {"partial", KEY_PARTIAL, NULL, 0, "convert-weights: leave out what no rule mentions", 2},
    {"tokenizer", KEY_TOKENIZER, "DIR|FILE", 0,
     "tokenize: tokenizer.json, vocab.txt, a GGUF file, or a directory with the first two", 2},
    {"dce", KEY_DCE, NULL, 0, "Drop equations that no result needs first", 3},
    {"cse", KEY_CSE, NULL, 0, "Merge equal equations first", 3},
    {"json", KEY_JSON, NULL, 0, "Print JSON", 3},
    {"threads", 't', "N", 0, "Threads to run on", 3},
    {0},
};

/* The commands that an option goes with. */
static const struct {
    int key;
    unsigned commands;
} applies[] = {
    {'i', RUN | GRAD | VMAP | PLAN},
    {KEY_INPUTS, RUN | GRAD | VMAP | PLAN},
    {KEY_RANDOM, RUN | GRAD | VMAP | PLAN},
    {'o', RUN | GRAD | VMAP | PLOT | CONVERT},
    {KEY_OUTPUTS, RUN | GRAD | VMAP},
    {'w', GRAD | RESIDUALS | COUNT | PLAN | VMAP},
    {'p', ANY},
    {KEY_VALUE, GRAD | VMAP},
    {KEY_RUN, GRAD | VMAP | PLAN},
    {KEY_JVP, GRAD},
    {KEY_SPLIT, GRAD},
    {KEY_GRAD, PLAN | VMAP},
    {KEY_JACFWD, GRAD},
    {KEY_JACREV, GRAD},
    {KEY_HESSIAN, GRAD},
    {KEY_SIZE, VMAP},
    {KEY_IN_AXES, VMAP},
    {KEY_OUT_AXES, VMAP},
    {KEY_VERIFY, GRAD | VMAP | PLAN},
    {KEY_LIMIT, PLAN | RESIDUALS},
    {KEY_CURVE, PLAN},
    {KEY_MEMORY, PLAN},
    {KEY_HTML, PLAN},
    {KEY_AGAINST, PLAN},
    {KEY_WHY, RESIDUALS},
    {KEY_DUMP_AFTER, PLAN},
    {KEY_DUMP_DIR, PLAN},
    {KEY_WITHOUT, PLAN},
    {KEY_PROCESSES, PLAN},
    {KEY_BANDWIDTH, PLAN},
    {KEY_LATENCY, PLAN},
    {KEY_SHARD, PLAN},
    {KEY_SLOTS, PLAN},
    {KEY_COMPUTE, PLAN},
    {KEY_TRACE, RUN | GRAD | VMAP},
    {KEY_X, PLOT},
    {KEY_Y, PLOT},
    {KEY_SMOOTH, PLOT},
    {KEY_LOG_Y, PLOT},
    {KEY_TITLE, PLOT},
    {KEY_MAPPING, CONVERT},
    {KEY_ARCHITECTURE, CONVERT},
    {KEY_TYPE, CONVERT},
    {KEY_REVERSE, CONVERT},
    {KEY_AXIS, CONVERT},
    {KEY_DTYPE, CONVERT},
    {KEY_MAX_FILE_BYTES, CONVERT},
    {KEY_PARTIAL, CONVERT},
    {KEY_TOKENIZER, TOKENIZE},
    {KEY_DCE, ANY},
    {KEY_CSE, ANY},
    {KEY_JSON, ANY | CONVERT | TOKENIZE},
    {'t', ANY},
};
enum {
    APPLIES_COUNT = sizeof applies / sizeof *applies
};

/* --wrt as it was written: names can only be looked up once the graph is there. */
typedef struct command_line {
    tool *t;
    const char *wrt;
} command_line;

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

static unsigned long long read_number(const char *text, const char *what, struct argp_state *state)
{
    char *end;
    errno = 0;
    const unsigned long long number = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || text[0] == '-')
        argp_error(state, "%s: expected a non-negative whole number, found '%s'", what, text);
    return number;
}

/* Digits behind a point, whatever the locale is; 0 if there are none. */
static double read_fraction(const char **at)
{
    double fraction = 0, digit = 1;
    if (**at != '.') return 0;
    for (++*at; **at >= '0' && **at <= '9'; ++*at) fraction += (digit /= 10) * (**at - '0');
    return fraction;
}

bool tool_read_limit(const char *text, tool_limit *limit)
{
    static const char units[] = "KMG%";
    char *end;
    errno = 0;
    *limit = (tool_limit){0};
    if (text[0] < '0' || text[0] > '9') return false;
    const unsigned long long number = strtoull(text, &end, 10);
    const char *rest = end;
    const double fraction = read_fraction(&rest);
    const char *unit = *rest ? strchr(units, *rest) : NULL;
    if (errno != 0 || (*rest && (!unit || rest[1]))) return false;
    if (unit && *unit == '%') {
        limit->percent = (double)number + fraction;
        return limit->percent > 0 && limit->percent < 1e6;
    }
    const int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    if (number > SIZE_MAX >> shift >> 1) return false;
    limit->bytes = ((size_t)number << shift) + (size_t)(fraction * (double)(UINT64_C(1) << shift));
    return limit->bytes > 0;
}

static tool_limit read_limit(const char *text, const char *what, struct argp_state *state)
{
    tool_limit limit;
    if (!tool_read_limit(text, &limit))
        argp_error(state,
                   "%s: expected a positive number of bytes, as 1000000, 64M or 1.5G, or a part of the bytes without a "
                   "limit, as 50%%, found '%s'",
                   what, text);
    return limit;
}

/* A positive number with a unit of a table that ends with NULL; the first unit is that of a number without one. */
static double read_amount(const char *text, const char *what, const char *const *units, const double *factors,
                          struct argp_state *state)
{
    char *end;
    const double number = strtod(text, &end);
    size_t k = 0;
    while (units[k] && strcmp(units[k], end) != 0) k++;
    if (end == text || !units[k] || !(number > 0) || !(number * factors[k] < 1e18))
        argp_error(state, "%s: expected a positive number%s, found '%s'", what,
                   units[1][0] == 'K' ? ", as 25G or 100M" : " with a unit, as 20us, 1.5ms or 2s", text);
    return number * factors[k];
}

static double read_bits(const char *text, const char *what, struct argp_state *state)
{
    static const char *const units[] = {"", "K", "M", "G", "T", NULL};
    static const double factors[] = {1, 1e3, 1e6, 1e9, 1e12};
    return read_amount(text, what, units, factors, state);
}

static double read_time(const char *text, const char *what, struct argp_state *state)
{
    static const char *const units[] = {"s", "ms", "us", "ns", NULL};
    static const double factors[] = {1, 1e-3, 1e-6, 1e-9};
    return read_amount(text, what, units, factors, state);
}

/* A whole number from least to most. */
static int read_count(const char *text, const char *what, int least, int most, struct argp_state *state)
{
    const unsigned long long number = read_number(text, what, state);
    if (number < (unsigned)least || number > (unsigned)most)
        argp_error(state, "%s: expected %d to %d, found %llu", what, least, most, number);
    return (int)number;
}

static void add(struct argp_state *state, const char **list, size_t *n, const char *what, const char *item)
{
    if (*n == TOOL_MAX_ARRAYS) argp_error(state, "more than %d times %s", TOOL_MAX_ARRAYS, what);
    list[(*n)++] = item;
}

static void check_line(struct argp_state *state, const tool_options *o, bool wrt)
{
    const struct command *command = o->command ? find_command(o->command) : NULL;
    const bool needs_file = !command || command->bit != PRIMITIVES;
    if (!command || needs_file == !o->file)
        argp_error(state, needs_file ? "expected a command and a file" : "'primitives' takes no file");
    for (size_t i = 0; i < APPLIES_COUNT; i++) {
        if ((o->given & UINT64_C(1) << i) == 0 || (applies[i].commands & command->bit) != 0) continue;
        for (const struct argp_option *option = argp_options; option->name; option++)
            if (option->key == applies[i].key)
                argp_error(state, "--%s does not go with '%s'", option->name, command->name);
    }
    if (o->split && (o->run || o->value)) argp_error(state, "--split does not go with --run or --value");
    const int instead = o->jvp + o->jacfwd + o->jacrev + o->hessian;
    if (instead > 1 || (instead == 1 && (o->value || o->split)))
        argp_error(state, "--jvp, --jacfwd, --jacrev, --hessian, --value and --split do not go with each other");
    if (command->bit == VMAP && !o->grad && (o->value || wrt))
        argp_error(state, "--value and --wrt of 'vmap' need --grad");
    const bool arrays = o->n_input > 0 || o->n_output > 0 || o->inputs || o->outputs || o->random_inputs;
    const bool shown = (command->bit & (GRAD | VMAP | PLAN)) != 0 && !o->run;
    if (command->bit == PLOT && o->n_output != 1)
        argp_error(state, "'plot' needs one -o FILE.svg to draw to, found %zu", o->n_output);
    if (command->bit == CONVERT && (o->n_output != 1 || (!o->mapping && !o->architecture)))
        argp_error(state, "'convert-weights' needs a --mapping or an --architecture, and one -o FILE to write to");
    if (o->architecture && (o->mapping || o->reverse || o->n_axis > 0))
        argp_error(state, "--architecture does not go with --mapping, --reverse and --axis");
    if (command->bit == TOKENIZE && !o->tokenizer) argp_error(state, "'tokenize' needs a --tokenizer");
    if (o->x && strcmp(o->x, "step") != 0 && strcmp(o->x, "seconds") != 0)
        argp_error(state, "--x: expected step or seconds, found '%s'", o->x);
    if (!o->processes &&
        (o->stage != TOOL_NO_STAGE || o->slots >= 0 || o->bandwidth > 0 || o->latency > 0 || o->compute > 0))
        argp_error(state, "--shard, --bandwidth, --latency, --slots and --compute need --processes");
    if (o->processes && (o->curve || o->run)) argp_error(state, "--processes does not go with --curve and --run");
    if (o->against && !o->html) argp_error(state, "--against needs --html");
    if ((o->memory_limit.bytes || o->memory_limit.percent > 0) && command->bit == RESIDUALS && !o->why)
        argp_error(state, "--memory-limit of 'residuals' needs --why");
    if (shown && arrays) argp_error(state, "inputs and outputs of '%s' need --run", command->name);
    if (shown && o->trace) argp_error(state, "--trace of '%s' needs --run", command->name);
}

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    command_line *line = state->input;
    tool_options *o = &line->t->options;
    for (size_t i = 0; i < APPLIES_COUNT; i++)
        if (applies[i].key == key) o->given |= UINT64_C(1) << i;
    switch (key) {
    case 'i':
        add(state, o->input, &o->n_input, "--input", argument);
        break;
    case 'o':
        add(state, o->output, &o->n_output, "--output", argument);
        break;
    case KEY_INPUTS:
        o->inputs = argument;
        break;
    case KEY_OUTPUTS:
        o->outputs = argument;
        break;
    case KEY_RANDOM:
        o->random_inputs = true;
        o->seed = read_number(argument, "--random-inputs", state);
        break;
    case 'w':
        line->wrt = argument;
        break;
    case 'p':
        o->policy = argument;
        break;
    case KEY_VALUE:
        o->value = true;
        break;
    case KEY_RUN:
        o->run = true;
        break;
    case KEY_GRAD:
        o->grad = true;
        break;
    case KEY_JVP:
        o->jvp = true;
        break;
    case KEY_JACFWD:
        o->jacfwd = true;
        break;
    case KEY_JACREV:
        o->jacrev = true;
        break;
    case KEY_HESSIAN:
        o->hessian = true;
        break;
    case KEY_SIZE:
        o->size = argument;
        break;
    case KEY_IN_AXES:
        o->in_axes = argument;
        break;
    case KEY_OUT_AXES:
        o->out_axes = argument;
        break;
    case KEY_SPLIT:
        o->split = true;
        break;
    case KEY_VERIFY:
        o->verify = true;
        break;
    case KEY_LIMIT:
        o->memory_limit = read_limit(argument, "--memory-limit", state);
        break;
    case KEY_CURVE:
        o->curve = true;
        o->curve_file = argument;
        break;
    case KEY_MEMORY:
        o->memory = argument;
        break;
    case KEY_HTML:
        o->html = argument;
        break;
    case KEY_AGAINST:
        o->against = argument;
        break;
    case KEY_WHY:
        o->why = true;
        break;
    case KEY_PASSES:
        tool_print_passes();
        exit(TOOL_OK);
    case KEY_DUMP_AFTER:
        o->dump_after = argument;
        break;
    case KEY_DUMP_DIR:
        o->dump_directory = argument;
        break;
    case KEY_WITHOUT:
        o->without = argument;
        break;
    case KEY_PROCESSES:
        o->processes = read_count(argument, "--processes", 1, 65536, state);
        o->grad = true; /* processes exchange gradients */
        break;
    case KEY_BANDWIDTH:
        o->bandwidth = read_bits(argument, "--bandwidth", state);
        break;
    case KEY_LATENCY:
        o->latency = read_time(argument, "--latency", state);
        break;
    case KEY_SHARD:
        o->stage = strcmp(argument, "none") == 0 ? 0 : read_count(argument, "--shard", 0, 3, state);
        if (o->stage == 0) o->stage = TOOL_NO_STAGE;
        break;
    case KEY_SLOTS:
        o->slots = read_count(argument, "--slots", 0, 16, state);
        break;
    case KEY_COMPUTE:
        o->compute = read_time(argument, "--compute", state);
        break;
    case KEY_TRACE:
        o->trace = argument;
        break;
    case KEY_X:
        o->x = argument;
        break;
    case KEY_Y:
        o->y = argument;
        break;
    case KEY_SMOOTH: {
        char *end;
        o->smooth = strtod(argument, &end);
        if (end == argument || *end != '\0' || !(o->smooth >= 0 && o->smooth < 1))
            argp_error(state, "--smooth: expected a number from 0 to below 1, found '%s'", argument);
        break;
    }
    case KEY_LOG_Y:
        o->log_y = true;
        break;
    case KEY_TITLE:
        o->title = argument;
        break;
    case KEY_MAPPING:
        o->mapping = argument;
        break;
    case KEY_ARCHITECTURE:
        o->architecture = argument;
        break;
    case KEY_TYPE:
        o->type = argument;
        break;
    case KEY_REVERSE:
        o->reverse = true;
        break;
    case KEY_AXIS:
        if (o->n_axis == TOOL_MAX_ARRAYS) argp_error(state, "more than %d times --axis", TOOL_MAX_ARRAYS);
        o->axis[o->n_axis++] = argument;
        break;
    case KEY_DTYPE:
        o->dtype = argument;
        break;
    case KEY_MAX_FILE_BYTES:
        o->max_file_bytes = read_number(argument, "--max-file-bytes", state);
        break;
    case KEY_PARTIAL:
        o->partial = true;
        break;
    case KEY_TOKENIZER:
        o->tokenizer = argument;
        break;
    case KEY_DCE:
        o->dce = true;
        break;
    case KEY_CSE:
        o->cse = true;
        break;
    case KEY_JSON:
        o->json = true;
        break;
    case 't': {
        const unsigned long long threads = read_number(argument, "--threads", state);
        if (threads == 0 || threads > 1024) argp_error(state, "--threads: expected 1 to 1024, found %llu", threads);
        o->threads = (int)threads;
        break;
    }
    case ARGP_KEY_ARG:
        if (!o->command) {
            if (!find_command(argument)) argp_error(state, "unknown command '%s'", argument);
            o->command = argument;
        } else if (find_command(o->command)->bit == PLOT) {
            add(state, o->files, &o->n_files, "a log", argument);
            o->file = o->files[0];
        } else if (!o->file) {
            o->file = argument;
        } else {
            argp_error(state, "one file at a time: '%s' is too many", argument);
        }
        break;
    case ARGP_KEY_END:
        check_line(state, o, line->wrt != NULL);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* --wrt "0,w,3": indices or names, each once; the library wants them in increasing order. */
static tow_status read_wrt(tool *t, const char *text)
{
    tool_options *o = &t->options;
    const size_t n = tow_graph_input_count(t->graph);
    bool *chosen = calloc(n + 1, sizeof *chosen);
    tow_status status = !chosen ? tool_fail(t, TOW_OUT_OF_MEMORY, "out of memory") : TOW_OK;
    while (status == TOW_OK) {
        const size_t length = strcspn(text, ",");
        size_t index = n;
        for (size_t i = 0; i < n; i++) {
            const char *name = tow_graph_input_name(t->graph, i);
            char number[24];
            snprintf(number, sizeof number, "%zu", i);
            const bool named = name != NULL && strlen(name) == length && memcmp(name, text, length) == 0;
            if (named || (strlen(number) == length && memcmp(number, text, length) == 0)) index = i;
        }
        if (index == n)
            status = tool_fail(t, TOW_INVALID_ARGUMENT, "--wrt: no input '%.*s': expected a name or an index below %zu",
                               (int)length, text, n);
        else if (chosen[index])
            status = tool_fail(t, TOW_INVALID_ARGUMENT, "--wrt: input '%.*s' is given twice", (int)length, text);
        else
            chosen[index] = true;
        if (text[length] == '\0') break;
        text += length + 1;
    }
    for (size_t i = 0; status == TOW_OK && i < n; i++) {
        if (!chosen[i]) continue;
        if (o->n_wrt == TOOL_MAX_ARRAYS)
            status = tool_fail(t, TOW_INVALID_ARGUMENT, "--wrt: more than %d inputs", TOOL_MAX_ARRAYS);
        else
            o->wrt[o->n_wrt++] = i;
    }
    free(chosen);
    return status;
}

/* ---- help -------------------------------------------------------------------------------------------------------- */

static const char about[] = "Checks, prints, runs, differentiates and batches graphs in textual form.\vCommands:";
static const char exit_status[] =
    "FILE - reads standard input. Exit status: 0 fine, 1 a bad graph, input or file, 2 a bad command line.";

/* For argp: the list of commands behind the options. */
static char *list_commands(int key, const char *text, void *input)
{
    (void)input;
    if (key != ARGP_KEY_HELP_POST_DOC || !text) return (char *)(uintptr_t)text;
    char *list = NULL;
    size_t size;
    FILE *file = open_memstream(&list, &size);
    if (!file) return (char *)(uintptr_t)text;
    fprintf(file, "%s\n", text);
    for (size_t i = 0; i < COMMAND_COUNT; i++) fprintf(file, "  %-9s  %s\n", commands[i].name, commands[i].about);
    fprintf(file, "Options of one command: tow COMMAND --help. %s", exit_status);
    fclose(file);
    return list;
}

/* The command before or behind which the command line asks for help; NULL: it does not, or without a command. */
static const struct command *help_of(int argc, char **argv)
{
    const struct command *command = NULL;
    bool asks = false;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        asks = asks || strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-?") == 0;
        if (!command) command = find_command(argv[i]);
    }
    return asks ? command : NULL;
}

static bool goes_with(const struct argp_option *option, const struct command *command)
{
    if (option->key == KEY_PASSES) return command->bit == PLAN;
    for (size_t i = 0; i < APPLIES_COUNT; i++)
        if (applies[i].key == option->key) return (applies[i].commands & command->bit) != 0;
    return false;
}

/* The options of one command alone. */
static int print_help(const struct command *command)
{
    struct argp_option options[sizeof argp_options / sizeof *argp_options] = {{0}};
    size_t n = 0;
    for (const struct argp_option *option = argp_options; option->name; option++)
        if (goes_with(option, command)) options[n++] = *option;
    char name[40], text[400];
    snprintf(name, sizeof name, "tow %s", command->name);
    snprintf(text, sizeof text, "Prints %s.\v%s", command->about, exit_status);
    /* argp of the GNU C library loses two bytes where a list of options is there but empty. */
    const struct argp argp = {n > 0 ? options : NULL, NULL, command->files, text, NULL, NULL, NULL};
    argp_help(&argp, stdout, ARGP_HELP_SHORT_USAGE | ARGP_HELP_LONG | ARGP_HELP_DOC, name);
    return fflush(stdout) == 0 && !ferror(stdout) ? TOOL_OK : TOOL_FAILED;
}

int main(int argc, char **argv)
{
    static const struct argp argp = {argp_options, parse_option, "COMMAND FILE...", about, NULL, list_commands, NULL};
    tool t = {.options = {.stage = TOOL_NO_STAGE, .slots = -1}};
    command_line line = {.t = &t};
    argp_program_version = "tow " TOW_VERSION;
    argp_err_exit_status = TOOL_USAGE;
    const struct command *asked = help_of(argc, argv);
    if (asked) return print_help(asked);
    if (argp_parse(&argp, argc, argv, 0, NULL, &line) != 0) { /* a bad command line has ended the program already */
        fputs("tow: out of memory\n", stderr);
        return TOOL_FAILED;
    }

    if (!t.options.file) {
        tool_print_primitives();
        if (fflush(stdout) == 0 && !ferror(stdout)) return TOOL_OK;
        fprintf(stderr, "tow: cannot write the output: %s\n", strerror(errno));
        return TOOL_FAILED;
    }
    const bool compares = t.options.verify && strcmp(t.options.command, "plan") != 0; /* which compiles so itself */
    const tow_context_options options = TOW_CONTEXT_OPTIONS(.threads = t.options.threads, .verify = compares);
    tow_status status = tow_context_create(&options, &t.context);
    if (status != TOW_OK) {
        fprintf(stderr, "tow: %s\n", tow_context_error(t.context));
        tow_context_free(t.context);
        return TOOL_FAILED;
    }
    if ((find_command(t.options.command)->bit & NO_GRAPH) == 0) status = tool_load(&t);
    if (status == TOW_OK && line.wrt) status = read_wrt(&t, line.wrt);
    if (status == TOW_OK) status = find_command(t.options.command)->run(&t);
    if (status != TOW_OK) tool_report(&t, status);
    if (status == TOW_OK && (fflush(stdout) != 0 || ferror(stdout))) {
        fprintf(stderr, "tow: cannot write the output: %s\n", strerror(errno));
        status = TOW_IO_ERROR;
    }
    tow_graph_release(t.graph);
    tow_graph_release(t.written);
    tow_context_free(t.context);
    return status == TOW_OK ? TOOL_OK : TOOL_FAILED;
}
