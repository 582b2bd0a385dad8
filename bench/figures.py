"""The arithmetic of bench/compare: what the runs of a command say, when a row has settled, and the figures of a row.

runs: a list of JSON objects of one command, one for each process (bench/running.py). results: the runs of each command, or the
text of the error that it ended with.
"""

import statistics

DISTURBED = 0.05  # share of the CPUs taken by others and the hypervisor, or loss of the calibration loop, that counts
SLOWED = 0.1  # loss of the calibration loop against its best millisecond up to which the machine was quiet
QUIET = 0.05  # share of disturbed runs up to which the machine was quiet
CONTENDER = 1.25  # a command of a peer that takes longer than this times the best peer's is not repeated


# ---- one command -----------------------------------------------------------------------------------------------------------


def best_of(run, kind):
    """The best figure of one process: seconds of its best step, seconds to compile, or temporary bytes."""
    if kind == "temporary":
        return run["planned"]["temporary"]
    return run["compile_seconds" if kind == "compile_seconds" else "min_seconds"]


def median_of(run, kind):
    return run["median_seconds"] if kind == "seconds" else best_of(run, kind)


def summary(runs, kind):
    """Best figure of all processes, median of their medians, slowest best figure, and spread.

    The spread is how far the median of the processes' best figures lies above the best of all: near 0 as soon as most of the
    processes agree with the best one, and large if one lucky process, or one short quiet moment, made the result.
    """
    each = [best_of(run, kind) for run in runs]
    best = min(each)
    return {"rounds": len(runs), "best": best, "median": statistics.median(median_of(run, kind) for run in runs),
            "slowest": max(each), "spread": statistics.median(each) / best - 1 if best > 0 else 0.0}


def share(runs, limit):
    """The median over processes of the share of the limit that the same process measured; None where it measured none.

    peak: useful flops of the median step over the peak of multiply-adds that the threads sustained between steps, because a
    machine with neighbors reaches its best for an instant, but not for a step. memory: bytes that the work moves at least in the best
    step, over the bandwidth of copying arrays of that size.
    """
    shares = []
    for run in runs:
        if limit == "peak" and run.get("gflop") and run.get("sustained_gflops"):
            shares.append(run["gflop"] / run["median_seconds"] / run["sustained_gflops"])
        elif limit == "memory" and run.get("gbyte") and run.get("copy_gbytes"):
            shares.append(run["gbyte"] / run["min_seconds"] / run["copy_gbytes"])
    return statistics.median(shares) if shares else None


# ---- quiet -----------------------------------------------------------------------------------------------------------------


def all_runs(results):
    return [run for runs in results.values() if isinstance(runs, list) for run in runs]


def calibrations(results):
    return [run["calibration"] for run in all_runs(results) if run.get("calibration")]


def is_disturbed(run, best_calibration):
    """Did others or the hypervisor take a good part of the CPUs, or did the calibration loop find them slow?"""
    slow = run.get("calibration") is not None and run["calibration"] < (1 - DISTURBED) * best_calibration
    return slow or run.get("others", 0) + run.get("steal", 0) > DISTURBED


def conditions(results):
    """How quiet the machine was while all of the runs were made."""
    runs, speeds = all_runs(results), calibrations(results)
    best = max(speeds, default=0)
    disturbed = sum(is_disturbed(run, best) for run in runs)
    kinds = {kind: [run[kind] for run in runs if kind in run] for kind in ("load", "others", "steal")}
    figures = {kind: {"mean": statistics.fmean(found), "most": max(found)} for kind, found in kinds.items() if found}
    quiet = disturbed <= QUIET * len(runs)
    if speeds:
        burst = max([best] + [run["calibration_best"] for run in runs if run.get("calibration_best")])
        figures["calibration"] = {"least": min(speeds), "median": statistics.median(speeds), "most": best, "burst": burst}
        quiet = quiet and figures["calibration"]["median"] >= (1 - SLOWED) * burst
    return figures | {"runs": len(runs), "disturbed": disturbed, "quiet": quiet}


# ---- rows ------------------------------------------------------------------------------------------------------------------


def measured(commands, results):
    return [command for command in commands if isinstance(results.get(command), list)]


def contenders(row, results):
    """Tow's command and those of peers that may turn out to be the best one."""
    peers = measured((command for commands in row.peers.values() for command in commands), results)
    bests = {command: summary(results[command], row.value)["best"] for command in peers}
    near = [command for command, best in bests.items() if best <= CONTENDER * min(bests.values())]
    return measured([row.tow], results) + near


def is_settled(row, results, least, limit):
    """Has each contender at least so many runs, as many of them undisturbed, and a spread within the limit?

    Bytes are counted and not timed: one run settles them. Without a run of Tow there is nothing to settle.
    """
    if row.value == "temporary" or not measured([row.tow], results):
        return True
    best_calibration = max(calibrations(results), default=0)
    for command in contenders(row, results):
        runs = results[command]
        undisturbed = sum(not is_disturbed(run, best_calibration) for run in runs)
        if undisturbed < least or summary(runs, row.value)["spread"] > limit:
            return False
    return True


def evaluate(row, results):
    """The row as JSON: the summary of Tow's command and of each library's best one, ratios, share, and what is missing."""
    out = {"row": row.number, "name": row.name, "value": row.value, "limit": row.limit, "tow": None, "peers": {},
           "ratio": None, "ratio_of_medians": None, "spread": None, "share": None, "notes": [],
           "commands": [c for c in (row.tow, *sum(row.peers.values(), [])) if c in results]}
    own = results.get(row.tow)
    if isinstance(own, list):
        out["tow"] = summary(own, row.value)
        out["share"] = share(own, row.limit) if row.value == "seconds" else None
    else:
        out["notes"].append(f"{row.tow}: {own or 'not reached'}")
    for library, commands in row.peers.items():
        out["notes"] += [f"{c}: {results[c]}" for c in commands if isinstance(results.get(c), str)]
        found = [summary(results[c], row.value) for c in measured(commands, results)]
        out["peers"][library] = min(found, key=lambda one: one["best"], default=None)
        if not any(command in results for command in commands):
            out["notes"].append(f"{library}: left out of some rows, or not reached")
    peers = [peer for peer in out["peers"].values() if peer]
    if out["tow"] and not peers:
        out["notes"].append(f"row {row.number}: no peer to compare with")
    return out | compare(out["tow"], peers)


def compare(tow, peers):
    """Tow's time over the best peer's, of best steps and of medians, and the larger spread of the two commands."""
    if not tow or not peers:
        return {"spread": tow["spread"] if tow else None}
    best = min(peers, key=lambda one: one["best"])
    return {"ratio": tow["best"] / best["best"], "ratio_of_medians": tow["median"] / min(one["median"] for one in peers),
            "spread": max(tow["spread"], best["spread"])}


# ---- several measurements as one -------------------------------------------------------------------------------------------


def merge(pieces):
    """Runs of several measurements of one machine together, or ValueError that says what differs.

    pieces: (name, {"about": ..., "runs": ..., "errors": ...}). Those with runs of Tow are of one commit. A command that failed in
    one piece and ran in another has run.
    """
    results, versions = {}, {}
    own = [(name, piece) for name, piece in pieces if piece["about"]["peak_isa"]]
    for keys, compared in ((("cpu", "threads", "system"), pieces), (("commit",), own)):
        for key in keys:
            for name, piece in compared:
                (first, expected), found = (compared[0][0], compared[0][1]["about"][key]), piece["about"][key]
                if found != expected:
                    raise ValueError(f"{key} is {expected!r} in {first} and {found!r} in {name}")
    for name, piece in pieces:
        for library, version in piece["about"]["versions"].items():
            if versions.setdefault(library, version) != version:
                raise ValueError(f"{library} is {versions[library]} before {name} and {version} there")
        for command, runs in piece["runs"].items():
            earlier = results.get(command)
            results[command] = [*(earlier if isinstance(earlier, list) else []), *runs]
        for command, error in piece["errors"].items():
            results.setdefault(command, error)
    abouts = [piece["about"] for _, piece in own or pieces]
    return results, max(abouts, key=lambda about: about["peak_gflops"] or 0) | {"versions": versions}
