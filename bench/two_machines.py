#!/usr/bin/env python3
"""Time that traces of bench/two_machines.sh (RATE.STAGE.ROUND) spend on exchanges, beside the prediction of `tow plan`."""

import argparse
import json
import os
import subprocess

PAYLOAD = 1448 / 1514  # of a packet, which the rate of a card counts with its headers


def read(path):
    """Seconds of the step, and those in starts and waits and at the ends of loops."""
    with open(path) as file:
        events = [e for e in json.load(file)["traceEvents"] if e["ph"] == "X" and e["tid"] == 0]
    events.sort(key=lambda e: (e["ts"], -e["dur"]))
    end = max(e["ts"] + e["dur"] for e in events)
    waits = sum(e["dur"] for e in events if e["name"].endswith(("_start", "_wait")))
    for i, loop in enumerate(events):  # behind its last instruction, a loop waits for its last sums
        stop, last = loop["ts"] + loop["dur"], 0
        for e in events[i + 1:]:
            if e["ts"] >= stop:
                break
            last = max(last, e["ts"] + e["dur"])
        if last > 0:
            waits += stop - last
    return (end - events[0]["ts"]) * 1e-6, waits * 1e-6


def predict(o, rate, stage, compute):
    command = [o.tow, "plan", "--grad", "--json", "--processes", "2", "--latency", o.latency, "--bandwidth", f"{float(rate) * PAYLOAD:.6g}M",
               "--shard", stage if stage != "0" else "none", "--compute", f"{compute * 1e3}ms", o.graph]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tow", required=True)
    parser.add_argument("--graph", required=True)
    parser.add_argument("--latency", default="100us")
    parser.add_argument("traces", nargs="+")
    o = parser.parse_args()
    best = {}
    for path in o.traces:
        rate, stage, _ = os.path.basename(path).split(".")
        step, waits = read(path)
        if (rate, stage) not in best or waits < best[rate, stage][1]:
            best[rate, stage] = step, waits
    print("| Mbit/s | stage | computes | exchanges | waits needed | waits | predicted | measured | ratio | hidden |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for (rate, stage), (step, waits) in sorted(best.items(), key=lambda x: (-int(x[0][0]), x[0][1])):
        p = predict(o, rate, stage, step - waits)
        p = predict(o, rate, stage, step - waits - p["update"])
        hidden = (p["communication"] - waits) / max(1e-9, p["communication"] - p["exposed"])
        print(f"| {rate} | {stage} | {1e3 * (step - waits):.0f} ms | {1e3 * p['communication']:.0f} ms | "
              f"{1e3 * p['exposed']:.0f} ms | {1e3 * waits:.0f} ms | {1e3 * p['step']:.0f} ms | {1e3 * step:.0f} ms | "
              f"{step / p['step']:.2f} | {100 * hidden:.0f} % |")


if __name__ == "__main__":
    main()
