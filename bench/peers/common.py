"""What the peer programs share: command line, threads, timing by the rules of bench/bench.c, and the JSON object they print.

Import this before jax or torch: both count the CPUs that they may use when they start.
"""

import argparse
import json
import os
import re
import statistics
import time

TICK = 1 / os.sysconf("SC_CLK_TCK")


def arguments(**defaults):
    """Options --name VALUE by default values (False: a flag), and --threads, --steps, --seconds. Pins the process."""
    parser = argparse.ArgumentParser()
    for name, default in {**defaults, "threads": 0, "steps": 0, "seconds": 3}.items():
        option = "--" + name.replace("_", "-")
        if default is False:
            parser.add_argument(option, action="store_true")
        else:
            parser.add_argument(option, type=type(default), default=default)
    args = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    args.threads = min(args.threads or len(cpus), len(cpus))
    os.sched_setaffinity(0, cpus[: args.threads])
    return args


def resident(key):
    """Bytes of VmHWM (peak of resident memory) or VmRSS (now)."""
    for line in open("/proc/self/status"):
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    return 0


def cpu_ticks(text, cpus):
    """Ticks that these CPUs were busy, and ticks stolen from them, by the text of /proc/stat."""
    busy = stolen = 0
    for line in text.splitlines():
        name, *fields = line.split() or [""]
        if not re.fullmatch(r"cpu\d+", name) or int(name[3:]) not in cpus:
            continue
        user, nice, system, _, _, irq, softirq, steal = map(int, (fields + ["0"] * 8)[:8])
        busy, stolen = busy + user + nice + system + irq + softirq, stolen + steal
    return busy, stolen


def shares(before, after, own, seconds, cpus):
    """Shares of the CPUs that others and the hypervisor took, as in bench/watch.c: by ticks before and after, and seconds."""
    busy, stolen = ((b - a) * TICK for a, b in zip(before, after))
    total, error = max(seconds, TICK) * cpus, 2 * TICK * cpus
    return {"others": max(busy - own - error, 0) / total, "steal": max(stolen - error, 0) / total}


def watch():
    """A function that says what others did on the CPUs of this process since now."""
    def read():
        try:
            with open("/proc/stat") as file:
                return cpu_ticks(file.read(), cpus), time.process_time(), time.perf_counter()
        except OSError:
            return (0, 0), time.process_time(), time.perf_counter()

    def stop():
        now, own, seconds = read()
        return shares(start[0], now, own - start[1], seconds - start[2], len(cpus))

    cpus = os.sched_getaffinity(0)
    start = read()
    return stop


def measure(step, args, calls=1):
    """Two calls to warm up, then timed ones: --steps of them, else as many as fit --seconds, at least 5."""
    for _ in range(2):
        step()
    others = watch()
    seconds, end = [], time.perf_counter() + args.seconds
    while len(seconds) < (args.steps or 100000):
        start = time.perf_counter()
        if not args.steps and len(seconds) >= 5 and start > end:
            break
        step()
        seconds.append((time.perf_counter() - start) / calls)
    return {"steps": len(seconds), "median_seconds": statistics.median(seconds), "min_seconds": min(seconds)} | others()


def report(workload, library, args, **figures):
    """Prints the result; the options come first, as in Tow's programs."""
    print(json.dumps({"workload": workload, "library": library, **vars(args), **figures, "rss_peak": resident("VmHWM")}), flush=True)


def compile_jax(function, *values, donate=(), keep=False):
    """The compiled function and what XLA says about it. Seconds count tracing, lowering and compiling."""
    import jax

    start = time.perf_counter()
    compiled = jax.jit(function, donate_argnums=donate, keep_unused=keep).lower(*values).compile()
    seconds = time.perf_counter() - start
    memory = compiled.memory_analysis()
    planned = {"inputs": memory.argument_size_in_bytes, "outputs": memory.output_size_in_bytes,
               "temporary": memory.temp_size_in_bytes}
    return compiled, {"compile_seconds": seconds, "planned": planned, "rss_before": resident("VmRSS"),
                      "version": jax.__version__}


def compile_gradient(gradient, *values):
    """A step that returns the value of gradient(*values) = (value, gradients of all values), and its figures, as compile_jax.

    The gradients of a step are donated to the next one, which makes its own in their memory, as Tow makes them in arrays of the
    caller: otherwise every step would pay for fresh pages of all that it returns.
    """
    import jax

    compiled, figures = compile_jax(lambda last, *values: gradient(*values), values, *values, donate=(0,), keep=True)
    last = None

    def step():
        nonlocal last
        if last is None:
            last = jax.tree.map(jax.numpy.zeros_like, values)
        value, last = compiled(last, *values)
        jax.block_until_ready((value, last))
        return value

    return step, figures


def measure_results(function, args, *values):
    """Figures of function(*values); its results are donated to the next step, as in compile_gradient."""
    import jax

    last = jax.tree.map(lambda t: jax.numpy.zeros(t.shape, t.dtype), jax.eval_shape(function, *values))
    compiled, figures = compile_jax(lambda last, *rest: function(*rest), last, *values, donate=(0,), keep=True)

    def step():
        nonlocal last
        last = jax.block_until_ready(compiled(last, *values))

    return figures | measure(step, args)


def measure_training(model, optimizer, key, x, labels, args, only_compile=False):
    """Figures of training steps on one batch of a classifier: loss, gradients and update in one program, donated buffers."""
    import jax
    import optax

    def loss(params, x, labels):
        return optax.softmax_cross_entropy_with_integer_labels(model.apply(params, x), labels).mean()

    def train(params, slots, x, labels):
        value, gradients = jax.value_and_grad(loss)(params, x, labels)
        updates, slots = optimizer.update(gradients, slots, params)
        return optax.apply_updates(params, updates), slots, value

    def step():
        nonlocal params, slots, value
        params, slots, value = compiled(params, slots, x, labels)
        value.block_until_ready()

    params, value = jax.jit(model.init)(key, x), None
    slots = optimizer.init(params)
    compiled, figures = compile_jax(train, params, slots, x, labels, donate=(0, 1))
    return figures if only_compile else figures | measure(step, args) | {"loss": float(value)}


def start_torch(args):
    """The module, set to the threads asked for."""
    import torch

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    return torch
