#!/usr/bin/env python3
"""Draws a trace (gpt --trace, tow run --trace) as SVG, and prints where the time goes.

    bench/draw_trace.py trace.json[.gz] [trace.svg]

One lane per thread over the whole run, then the same for a piece of the forward and of the backward pass. Blocks of regions
run on one thread each; the threads share every other instruction, which is drawn on all lanes. The table adds up time on all
threads by kind of instruction; "idle" is what is left of the run.
"""

import gzip
import json
import sys
from html import escape

KINDS = {  # kind: color, how names of instructions begin
    "products": ("#4c78a8", ("dot_general", "pack_operand")),
    "attention": ("#e45756", ("attention",)),
    "loss": ("#b279a2", ("linear_cross_entropy", "softmax_cross_entropy")),
    "norms": ("#54a24b", ("layer_norm", "rms_norm", "norm")),
    "optimizer": ("#f58518", ()),  # told by its source
    "other": ("#9d9d9d", ("",)),
}
RATED = ("dot_general", "attention", "linear_cross_entropy")  # their flops are exact
LEFT, WIDTH, LANE, GAP = 90, 1200, 28, 6


def kind_of(event):
    if "src/train/" in event["args"].get("source", ""):  # updates are chains of elementwise operations
        return "optimizer"
    return next(kind for kind, (_, starts) in KINDS.items() if event["name"].startswith(starts))


def read(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
        trace = json.load(file)
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    if not events:
        sys.exit(f"{path}: expected a trace with instructions, found none")
    threads = list(range(trace["otherData"]["threads"]))
    begin = min(e["ts"] for e in events)
    shares = []
    for event in events:
        if event["name"] in ("tile_group", "scan"):  # told by what runs in them
            continue
        event["ts"] -= begin
        event["args"]["flops"] = event["args"].get("flops", 0)
        alone = "block" in event["args"] or len(threads) == 1
        if not alone:
            event["args"]["flops"] /= len(threads)
        shares += [event] if alone else [event | {"tid": thread} for thread in threads]
    return shares, threads


def table(events, threads, seconds):
    lines = [("kind", "calls", "ms on all threads", "share", "GFLOP/s per thread")]
    busy = 0
    for kind in KINDS:
        mine = [e for e in events if kind_of(e) == kind]
        time = sum(e["dur"] for e in mine) * 1e-6
        busy += time
        flops = sum(e["args"]["flops"] for e in mine if e["name"].startswith(RATED))
        if mine:
            rate = f"{flops / time * 1e-9:.0f}" if flops and time else ""
            lines.append((kind, str(len(mine)), f"{time * 1e3:.1f}", f"{100 * time / (threads * seconds):.1f} %", rate))
    idle = threads * seconds - busy
    lines.append(("idle", "", f"{idle * 1e3:.1f}", f"{100 * idle / (threads * seconds):.1f} %", ""))
    for line in lines:
        print("| " + " | ".join(line) + " |")
        if line is lines[0]:
            print("|" + "---|" * len(line))


def lanes(events, threads, first, last, top, title):
    """The instructions of [first, last) microseconds."""
    scale = WIDTH / (last - first)
    parts = [f'<text x="{LEFT}" y="{top - 8}">{escape(title)}: {first / 1e3:.1f} to {last / 1e3:.1f} ms</text>']
    for thread in threads:
        y = top + threads.index(thread) * (LANE + GAP)
        parts.append(f'<text x="{LEFT - 8}" y="{y + LANE / 2 + 4}" text-anchor="end">thread {thread}</text>')
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{WIDTH}" height="{LANE}" fill="#f4f4f4"/>')
        for e in events:
            begin, end = max(e["ts"], first), min(e["ts"] + e["dur"], last)
            if e["tid"] != thread or end <= begin:
                continue
            color, width = KINDS[kind_of(e)][0], max((end - begin) * scale, 0.2)
            name = escape(f'{e["name"]} {e["args"].get("scope", "")} {e["dur"]:.0f} us')
            hint = f"<title>{name}</title>" if width > 3 else ""
            parts.append(f'<rect x="{LEFT + (begin - first) * scale:.1f}" y="{y}" width="{width:.1f}" height="{LANE}" '
                         f'fill="{color}">{hint}</rect>')
    return parts


def draw(events, threads, path):
    end = max(e["ts"] + e["dur"] for e in events)
    turn = max((e["ts"] + e["dur"] for e in events if e["cat"] == "forward"), default=0)
    views = [("The whole run", 0, end)]
    if turn > 0:
        views.append(("Part of the forward pass", turn * 0.45, turn * 0.6))
    if turn < end:
        views.append(("Part of the backward pass", turn + (end - turn) * 0.45, turn + (end - turn) * 0.55))
    height = len(threads) * (LANE + GAP) + 40
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 30}" height="{len(views) * height + 60}" '
             'font-family="sans-serif" font-size="12">', '<rect width="100%" height="100%" fill="white"/>']
    for i, view in enumerate(views):
        parts += lanes(events, threads, view[1], view[2], 40 + i * height, view[0])
    for i, (kind, (color, _)) in enumerate(KINDS.items()):
        x, y = LEFT + i * 130, len(views) * height + 34
        parts.append(f'<rect x="{x}" y="{y - 11}" width="14" height="14" fill="{color}"/><text x="{x + 20}" y="{y}">{kind}</text>')
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(parts + ["</svg>", ""]))


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    try:
        events, threads = read(sys.argv[1])
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"{sys.argv[1]}: expected a trace that a program of Tow wrote: {error}")
    table(events, len(threads), max(e["ts"] + e["dur"] for e in events) * 1e-6)
    if len(sys.argv) == 3:
        draw(events, threads, sys.argv[2])


main()
