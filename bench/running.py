"""Runs the commands of rows, each in a process of its own, and notes what else the machine did meanwhile.

A run is the JSON object that a command prints, among it the shares of the CPUs that others and the hypervisor (steal) took
during the timed steps, with the load before it, and the rate of the calibration loop (bench_peak) right before it, over a tenth
of a second and in the best millisecond.
"""

import contextlib
import importlib.util
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
NEEDS = {"jax": ("jax", "flax", "optax"), "torch": ("torch",), "llama": ("xllamacpp", "gguf")}
KEEP_MEMORY = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776"  # freed memory stays in the process


# ---- commands --------------------------------------------------------------------------------------------------------------


def library_of(command):
    """jax, torch or llama by the end of a script's name; else a program of Tow."""
    last = command.split()[0].rpartition("_")[2]
    return last if last in NEEDS else "tow"


def missing(command):
    """What a command needs and cannot have, or None."""
    lacking = [module for module in NEEDS.get(library_of(command), ()) if importlib.util.find_spec(module) is None]
    return f"{', '.join(lacking)} not installed" if lacking else None


def is_compiled_torch(command):
    return library_of(command) == "torch" and ("--compile" in command or "--mode compile" in command)


def argv(command, args):
    name, *options = shlex.split(command)
    if library_of(command) == "tow":
        head = [args.programs / f"bench_{name}"]
    else:
        head = [sys.executable, ROOT / "bench" / "peers" / f"{name}.py"]
    timing = ["--steps", 3] if args.quick else ["--seconds", args.seconds]
    return list(map(str, [*head, *options, "--threads", args.threads, *timing]))


# ---- processes -------------------------------------------------------------------------------------------------------------


def start(line, command, args):
    """A process that leads a group of its own, so that it ends with the compilers and workers that it starts."""
    environment = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=args.cache)
    if args.keep_memory and library_of(command) != "tow":
        environment["GLIBC_TUNABLES"] = KEEP_MEMORY
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
                            start_new_session=True)


def end(process):
    """Ends what is left of the process's group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def read_result(process, out, errors):
    """The JSON object of a process that has ended, or {"error": ...}."""
    if process.returncode != 0:
        lines = errors.strip().splitlines() or ["no message"]
        named = [line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)]  # advice may follow it
        return {"error": f"exit status {process.returncode}: {(named or lines)[-1]}"}
    try:
        return json.loads(out.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return {"error": "its last line is no JSON object"}


def run_process(command, args, limit):
    """One process: its JSON object, or {"error": ...}."""
    try:
        process = start(argv(command, args), command, args)
    except OSError as error:
        return {"error": str(error)}
    try:
        out, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        return {"error": f"{'compile ' if is_compiled_torch(command) else ''}over {limit:.0f} s"}
    finally:
        end(process)
    return read_result(process, out, errors)


def run(command, args):
    """One run of a command, or {"error": ..., "excused": whether the comparison as a whole is still good}."""
    absent = missing(command)
    if absent:
        return {"error": absent, "excused": True}
    began, load, compiled = time.time(), os.getloadavg()[0], is_compiled_torch(command)
    calibration = run_process("peak", args, args.timeout)
    result = run_process(command, args, min(args.timeout, args.compile_timeout) if compiled else args.timeout)
    if "error" in result:
        return {"error": result["error"], "excused": compiled}
    result |= {"load": load, "calibration": calibration.get("calibration_gflops"),
               "calibration_best": calibration.get("calibration_best_gflops")}
    print(f"  {time.time() - began:6.1f} s  {command}", file=sys.stderr, flush=True)
    return result
