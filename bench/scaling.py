#!/usr/bin/env python3
"""The tables of docs/scaling.md: what a step of GPT-2 is predicted to take on many machines.

    python3 bench/scaling.py --build build/release
    python3 bench/scaling.py --build build/release --machine '' --batch 1 --latency 50us --stage 2
    python3 bench/scaling.py --build build/release --bytes

Nothing is measured: bench_gpt2_graph writes graphs, which have shapes only, and `tow plan --processes` predicts. With an
empty --machine plans are for the machine at hand.
"""

import argparse
import json
import os
import subprocess
import tempfile

MODELS = [("124M", 12, 768, 12), ("1.5B", 48, 1600, 25), ("13B", 40, 5120, 40)]
SERVER = "l1=32K,l2=1M,l3=256M,vector=64,threads=64,f32=100,shared_rate=200"


def run(command, machine):
    environment = dict(os.environ)
    if machine:
        environment["TOW_MACHINE"] = machine
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


def bytes_text(n):
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if n < 1024 or unit == "TiB":
            return f"{n:.3g} {unit}" if n < 1000 else f"{n:.0f} {unit}"
        n /= 1024


def seconds_text(x):
    return f"{x:.3g} s" if x >= 1 else f"{x * 1e3:.3g} ms"


def write_graph(o, path, layers, width, heads):
    with open(path, "w") as file:
        file.write(run([f"{o.build}/bench/bench_gpt2_graph", "--layers", str(layers), "--width", str(width), "--heads",
                        str(heads), "--batch", str(o.batch)], ""))


def predict(o, path, n, stage, bandwidth):
    return json.loads(run([f"{o.build}/bin/tow", "plan", path, "--grad", "--json", "--processes", str(n), "--shard", stage,
                           "--bandwidth", bandwidth, "--latency", o.latency], o.machine))


def print_bytes(o, scratch):
    """Bytes of a process in each stage, activations and batch in a column of their own."""
    print("| model | machines | stage 0 | stages 1, 2 | stage 3 | activations, batch |\n|---|---|---|---|---|---|")
    for name, *sizes in MODELS:
        path = os.path.join(scratch, "graph.tow")
        write_graph(o, path, *sizes)
        for n in o.processes:
            held = [predict(o, path, n, str(stage), "10G")["bytes"] for stage in (0, 2, 3)]
            print(f"| {name} | {n} | " + " | ".join(bytes_text(h["all"] - h["rest"]) for h in held)
                  + f" | {bytes_text(held[0]['rest'])} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--machine", default=SERVER, help="TOW_MACHINE of each process; '': the machine at hand")
    parser.add_argument("--batch", type=int, default=8, help="sequences of 1024 tokens of each process")
    parser.add_argument("--latency", default="20us")
    parser.add_argument("--stage", default="3", help="none, 2 or 3")
    parser.add_argument("--processes", type=int, nargs="*", default=[8, 64, 512])
    parser.add_argument("--bandwidth", nargs="*", default=["10G", "25G", "100G"])
    parser.add_argument("--bytes", action="store_true", help="the bytes of a process in each stage, and no times")
    o = parser.parse_args()
    if o.bytes:
        with tempfile.TemporaryDirectory() as scratch:
            print_bytes(o, scratch)
        return
    print(f"Machine: {o.machine or 'at hand'}; {o.batch} x 1024 tokens for each, --shard {o.stage}, {o.latency}.\n")
    print("| model | machines | bytes of each | computation | " + " | ".join(f"{b}bit/s" for b in o.bandwidth)
          + " | waits at most 5 % from |")
    print("|---|---|---|---|" + "---|" * len(o.bandwidth) + "---|")
    with tempfile.TemporaryDirectory() as scratch:
        for name, layers, width, heads in MODELS:
            path = os.path.join(scratch, "graph.tow")
            write_graph(o, path, layers, width, heads)
            for n in o.processes:
                cells = []
                for bandwidth in o.bandwidth:
                    p = predict(o, path, n, o.stage, bandwidth)
                    cells.append(f"{seconds_text(p['seconds']['step'])}, {100 * p['efficiency']:.0f} %")
                enough = p["enough_bits_per_second"]
                least = f"{enough / 1e9:.3g} Gbit/s" if enough > 0 else "never"
                print(f"| {name} | {n} | {bytes_text(p['bytes']['all'])} | {seconds_text(p['seconds']['forward_backward'])} | "
                      + " | ".join(cells) + f" | {least} |")


if __name__ == "__main__":
    main()
