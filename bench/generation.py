"""Milliseconds per token of `chat` beside llama.cpp, in turns, on the same files with the same threads.

    python bench/generation_files.py DIRECTORY
    python bench/generation.py DIRECTORY build/release/bin/chat [--models gpt2 llama] [--types f32 f16 bf16 q8_0 q4_0]
                               [--threads 1 2] [--rounds 3]

Decoding is 64 tokens behind a prompt of 16, greedy, prefill a prompt of 512. Of the rounds, in which both run one after the other, the best
and the median are printed, and the ratio of the best ones. llama.cpp comes from the wheel xllamacpp, in a process of its own; which
instruction sets it was built for is printed first. Peaks of resident bytes are those of the process that decodes.
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

PEER = """
import json, resource, sys, xllamacpp
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


def run_peer(path, threads):
    out = subprocess.run([sys.executable, "-c", PEER, str(path), str(threads)], capture_output=True, text=True, check=True).stdout
    decode, prefill, peak = json.loads(re.search(r"^RESULT (.*)$", out, re.M).group(1))
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("chat")
    parser.add_argument("--models", nargs="+", default=["gpt2", "llama"])
    parser.add_argument("--types", nargs="+", default=["f32", "f16", "bf16", "q8_0", "q4_0"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-peer", action="store_true")
    o = parser.parse_args()
    if not o.no_peer:
        import xllamacpp
        print(xllamacpp.get_system_info().strip())
    print("| model | type | threads | decode, ms per token: Tow | llama.cpp | ratio | prefill of 512, ms: Tow | llama.cpp | ratio | "
          "peak MB: Tow | llama.cpp |\n|---|---|---|---|---|---|---|---|---|---|---|")
    for name in o.models:
        for type_name in o.types:
            for threads in o.threads:
                path = o.directory / f"{name}-{type_name}.gguf"
                ours, theirs = [], []
                for _ in range(o.rounds):
                    ours.append(run_chat(o.chat, path, type_name, threads))
                    theirs.append(run_peer(path, threads) if not o.no_peer else (float("nan"),) * 3)
                best = [[min(column) for column in zip(*rows)] for rows in (ours, theirs)]
                middle = [[statistics.median(column) for column in zip(*rows)] for rows in (ours, theirs)]
                cells = []
                for k in range(2):
                    cells += [f"{best[0][k]:.1f} ({middle[0][k]:.1f})", f"{best[1][k]:.1f} ({middle[1][k]:.1f})",
                              f"{best[0][k] / best[1][k]:.2f}"]
                print(f"| {name} | {type_name} | {threads} | {' | '.join(cells)} | {best[0][2]:.0f} | {best[1][2]:.0f} |", flush=True)


if __name__ == "__main__":
    main()
