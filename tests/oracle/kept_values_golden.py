#!/usr/bin/env python3
"""Writes golden/kept_values.txt: the least time to make values again within limits of kept bytes, for thirty losses.

    TOW_KEPT_VALUES=losses.txt build/release/tests/unit_tests kept_values
    python3 tests/oracle/kept_values_golden.py losses.txt tests/oracle/golden/kept_values.txt        (package highspy)

An integer program for each loss and limit, solved by HiGHS. Equation v runs again (again[v]), or what the backward pass reads of it
is kept: what its derivative rule makes (own[v]) and its results (result[v]).

    minimise     sum of nanoseconds[v] again[v]
    such that    sum of own_bytes[v] own[v] + result_bytes[v] result[v] <= limit
                 again[v] + own[v] >= 1       if its derivative rule makes something
                 again[v] + result[v] >= 1    if the backward pass reads its results
                 again[v] + result[v] >= again[w]     for each reader w of v
                 again[v] + own[v] <= 1, again[v] + result[v] <= 1, and own[v] = result[v] = 0 if nothing of it may be kept

A line "loss NUMBER LIMITS", then lines "BYTES NANOSECONDS"."""
import sys

import highspy

LIMITS = 9


def read(path):
    losses = []
    for line in open(path):
        words = line.split()
        if words[0] == "graph":
            losses.append([])
            continue
        own, result, time, needed, free, n = int(words[0]), int(words[1]), float(words[2]), int(words[3]), int(words[4]), int(words[5])
        losses[-1].append({"own": own, "result": result, "time": time, "needed": needed, "free": free, "reads": [int(w) for w in words[6:6 + n]]})
    return losses


def solve(loss, limit):
    h = highspy.Highs()
    h.setOptionValue("output_flag", False)
    again = [h.addBinary() for _ in loss]
    own = [h.addBinary() for _ in loss]
    result = [h.addBinary() for _ in loss]
    for v, e in enumerate(loss):
        if e["own"]:
            h.addConstr(again[v] + own[v] >= 1)
        if e["needed"]:
            h.addConstr(again[v] + result[v] >= 1)
        h.addConstr(again[v] + own[v] <= 1)
        h.addConstr(again[v] + result[v] <= 1)
        if not e["free"]:
            h.addConstr(own[v] + result[v] <= 0)
        for u in set(e["reads"]):
            h.addConstr(again[u] + result[u] - again[v] >= 0)
    kept = [(e["own"], own[v]) for v, e in enumerate(loss) if e["own"]] + [(e["result"], result[v]) for v, e in enumerate(loss)]
    h.addConstr(sum(bytes * var for bytes, var in kept) <= limit)
    h.minimize(sum(e["time"] * again[v] for v, e in enumerate(loss) if e["time"] > 0))
    if h.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        sys.exit(f"no optimum: {h.getModelStatus()}")
    return h.getInfo().objective_function_value


def main():
    out = open(sys.argv[2], "w")  # HiGHS prints its banner to standard output
    for number, loss in enumerate(read(sys.argv[1])):
        most = sum(e["own"] + e["result"] * e["needed"] for e in loss)
        print("loss", number, LIMITS, file=out)
        for i in range(LIMITS):
            limit = most * i // (LIMITS - 1)
            print(limit, f"{max(0, solve(loss, limit)):.6f}", file=out)


if __name__ == "__main__":
    main()
