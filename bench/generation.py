"""Milliseconds per token of `chat` beside llama.cpp, in turns, on the same files with the same threads.

    python bench/generation_files.py DIRECTORY
    python bench/generation.py DIRECTORY build/release/bin/chat [--models gpt2 llama] [--types f32 f16 bf16 q8_0 q4_0]
                               [--threads 1 2] [--rounds 3] [--peers wheel native] [--library DIRECTORY]

Decoding is 64 tokens behind a prompt of 16, greedy, prefill a prompt of 512. Of the rounds, in which all run one after the other, the best
and the median are printed, and the ratios of the best ones. Peaks of resident bytes are those of the process that decodes. llama.cpp runs in
a process of its own, and which instruction sets it was built for is printed first:

wheel   the package xllamacpp as it comes, timed by itself
native  a library that was built on this machine, in the directory of --library (libllama.so), by way of the package llama-cpp-python, whose
        source distribution has llama.cpp in it; PYTHONPATH names the package if it is not installed:

    pip download --no-binary llama-cpp-python --no-deps llama-cpp-python && tar xf llama_cpp_python-*.tar.gz
    cmake -S llama_cpp_python-*/vendor/llama.cpp -B native -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_BUILD_COMMON=OFF \\
          -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_SERVER=OFF && cmake --build native --target llama
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

DECODED, PROMPT, PREFILL = 64, 16, 512

WHEEL = """
import json, resource, sys, xllamacpp
if len(sys.argv) == 1:
    print("RESULT", json.dumps(xllamacpp.get_system_info().strip()))
    sys.exit()
path, threads = sys.argv[1], int(sys.argv[2])
p = xllamacpp.CommonParams()
p.model.path, p.n_ctx, p.n_batch, p.n_ubatch, p.n_parallel = path, 1024, 512, 512, 1
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads
server = xllamacpp.Server(p)
def run(n, predict):
    out = server.handle_completions({"prompt": "a" * n, "n_predict": predict, "temperature": 0, "top_k": 1, "samplers": ["top_k"],
                                     "ignore_eos": True, "cache_prompt": False})
    out = out[1] if isinstance(out, tuple) else out
    return (json.loads(out) if isinstance(out, (str, bytes)) else out)["timings"]
decode, prefill = run(%d, %d), run(%d, 1)
print("RESULT", json.dumps([decode["predicted_per_token_ms"], prefill["prompt_ms"],
                            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
""" % (PROMPT, DECODED, PREFILL)

NATIVE = """
import ctypes, json, resource, sys, time
import numpy as np
import llama_cpp.llama_cpp as api
if len(sys.argv) == 1:
    print("RESULT", json.dumps(api.llama_print_system_info().decode().strip()))
    sys.exit()
path, threads = sys.argv[1], int(sys.argv[2])
api.llama_backend_init()
model = api.llama_model_load_from_file(path.encode(), api.llama_model_default_params())
options = api.llama_context_default_params()
options.n_ctx, options.n_batch, options.n_ubatch, options.n_threads, options.n_threads_batch = 1024, 512, 512, threads, threads
context = api.llama_init_from_model(model, options)
size = api.llama_vocab_n_tokens(api.llama_model_get_vocab(model))
def feed(tokens):
    array = (ctypes.c_int32 * len(tokens))(*tokens)
    if api.llama_decode(context, api.llama_batch_get_one(array, len(tokens))) != 0:
        sys.exit("llama_decode failed")
    return int(np.argmax(np.ctypeslib.as_array(api.llama_get_logits_ith(context, -1), (size,))))
def run(n, predict):
    api.llama_memory_clear(api.llama_get_memory(context), True)
    start = time.perf_counter()
    token = feed([64] * n)
    first = time.perf_counter()
    for _ in range(predict - 1):
        token = feed([token])
    return 1e3 * (first - start), 1e3 * (time.perf_counter() - first) / max(predict - 1, 1)
run(2, 2)  # the first run touches all weights
print("RESULT", json.dumps([run(%d, %d)[1], run(%d, 1)[0], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
""" % (PROMPT, DECODED, PREFILL)
PEERS = {"wheel": WHEEL, "native": NATIVE}


def ask_peer(code, *arguments):
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=False)
    found = re.search(r"^RESULT (.*)$", done.stdout, re.M)
    if done.returncode != 0 or not found:
        raise SystemExit(f"llama.cpp failed: {done.stderr[-2000:]}")
    return json.loads(found.group(1))


def run_peer(code, path, threads):
    decode, prefill, peak = ask_peer(code, path, threads)
    return decode, prefill, peak / 1024


def run_chat(chat, path, type_name, threads):
    def call(n, tokens):
        command = [chat, "--model", str(path), "--dtype", type_name, "--threads", str(threads), "--prompt", "a" * n, "--tokens", str(tokens),
                   "--context", "1024", "--greedy", "--ignore-end"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            raise SystemExit(f"{' '.join(command)}: {errors}")
        return errors, usage.ru_maxrss / 1024

    text, peak = call(PROMPT, DECODED)
    decode = float(re.search(r"answer: \d+ tokens, ([\d.]+) ms each", text).group(1))
    prefill = float(re.search(r"tokens in ([\d.]+) ms", call(PREFILL, 1)[0]).group(1))
    return decode, prefill, peak


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("chat")
    parser.add_argument("--models", nargs="+", default=["gpt2", "llama"])
    parser.add_argument("--types", nargs="+", default=["f32", "f16", "bf16", "q8_0", "q4_0"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), help="wheel, and native if there is a --library")
    parser.add_argument("--library", type=pathlib.Path, help="the directory of a libllama.so that was built on this machine")
    o = parser.parse_args()
    if o.peers is None:
        o.peers = ["wheel", "native"] if o.library else ["wheel"]
    if "native" in o.peers and not o.library:
        parser.error("--peers native needs --library")
    if o.library:
        os.environ["LLAMA_CPP_LIB_PATH"] = str(o.library.resolve())
    return o


def print_head(peers):
    columns = ["model", "type", "threads"]
    for what in ("decode, ms per token", "prefill of 512, ms"):
        columns += [f"{what}: Tow", *(c for name in peers for c in (name, "ratio"))]
    columns += ["peak MB: Tow", *peers]
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))


def cells_of(rounds):
    """rounds: for Tow and each peer (decode, prefill, peak) of each round."""
    best = [[min(column) for column in zip(*rows)] for rows in rounds]
    middle = [[statistics.median(column) for column in zip(*rows)] for rows in rounds]
    cells = []
    for k in range(2):
        for i, (fastest, median) in enumerate(zip(best, middle)):
            cells.append(f"{fastest[k]:.1f} ({median[k]:.1f})")
            if i > 0:
                cells.append(f"{best[0][k] / fastest[k]:.2f}")
    return cells + [f"{one[2]:.0f}" for one in best]


def main():
    o = parse()
    for name in o.peers:
        print(f"{name}: {ask_peer(PEERS[name])}")
    print_head(o.peers)
    for name in o.models:
        for type_name in o.types:
            for threads in o.threads:
                path = o.directory / f"{name}-{type_name}.gguf"
                rounds = [[] for _ in range(1 + len(o.peers))]
                for _ in range(o.rounds):
                    rounds[0].append(run_chat(o.chat, path, type_name, threads))
                    for i, peer in enumerate(o.peers):
                        rounds[1 + i].append(run_peer(PEERS[peer], path, threads))
                print(f"| {name} | {type_name} | {threads} | {' | '.join(cells_of(rounds))} |", flush=True)


if __name__ == "__main__":
    main()
