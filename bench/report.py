"""The tables of bench/compare, in Markdown, and the document that they go into."""

import sys

BEGIN, END = "<!-- bench/compare: begin -->", "<!-- bench/compare: end -->"
LIBRARIES = ("JAX", "PyTorch", "PyTorch compile", "llama.cpp")


def show(value, kind):
    if value is None:
        return ""
    if kind == "temporary":
        return f"{value / 2**20:.1f} MiB"
    for unit, scale, limit in (("us", 1e6, 1e-3), ("ms", 1e3, 10)):
        if value < limit:
            return f"{value * scale:.3g} {unit}" if value * scale < 100 else f"{value * scale:.0f} {unit}"
    return f"{value:.1f} s"


def percent(value):
    return "" if value is None else f"{100 * value:.0f} %"


def best_cell(row, library):
    """The best figure of a library, or nothing where the row has no command for it."""
    if library == "Tow":
        found = row["tow"]
    elif library in row["peers"]:
        found = row["peers"][library]
    else:
        return ""
    return show(found["best"], row["value"]) if found else "not measured"


def columns_of(rows):
    """llama.cpp has a column where a row needs it, the others always."""
    return [name for name in LIBRARIES if name != "llama.cpp" or any(name in row["peers"] for row in rows)]


def table(rows):
    libraries = columns_of(rows)
    lines = [f"| # | workload | Tow | {' | '.join(libraries)} | Tow / best peer | of medians | spread | share of the peak |",
             "|---|---|---|---" + "|---" * len(libraries) + "|---|---|---|"]
    for row in rows:
        itself = row["peers"].get("Tow")
        name = row["name"] + (f" ({show(itself['best'], row['value'])})" if itself else "")
        ratios = [f"{row[key]:.3g}" if row[key] is not None else "" for key in ("ratio", "ratio_of_medians")]
        limit = " of memory's" if row["limit"] == "memory" and row["share"] is not None else ""
        cells = [row["row"], name, *(best_cell(row, library) for library in ("Tow", *libraries)), *ratios,
                 "" if row["value"] == "temporary" else percent(row["spread"]), percent(row["share"]) + limit]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def commands_table(rows, summarize):
    """Every command once: the rows that name it, and summarize(command, value) of its runs."""
    numbers, values = {}, {}
    for row in rows:
        for command in row["commands"]:
            numbers.setdefault(command, []).append(row["row"])
            if values.get(command, "temporary") == "temporary":
                values[command] = row["value"]
    lines = ["| rows | command | rounds | best | median | spread |", "|---|---|---|---|---|---|"]
    for command, value in values.items():
        found = summarize(command, value)
        if found:
            rows_of = ", ".join(map(str, sorted(set(numbers[command]))))
            lines.append(f"| {rows_of} | `{command}` | {found['rounds']} | {show(found['best'], value)} | "
                         f"{show(found['median'], value)} | {'' if value == 'temporary' else percent(found['spread'])} |")
    return "\n".join(lines)


def quiet_sentence(quiet):
    """Whether the machine was quiet, with what that is judged by, and the load, which also counts processes that only wait."""
    if not quiet["runs"]:
        return "Nothing has run."
    verdict = "The machine was quiet" if quiet["quiet"] else "**The machine was not quiet**"
    parts = [f"{quiet['disturbed']} of {quiet['runs']} processes were disturbed"]
    for kind, name in (("others", "other processes took"), ("steal", "the hypervisor took")):
        if kind in quiet:
            mean, most = (100 * quiet[kind][key] for key in ("mean", "most"))
            parts.append(f"{name} {mean:.1f} % of the CPUs during timed steps (at most {most:.0f} %)")
    speeds = quiet.get("calibration")
    if speeds:
        parts.append(f"the calibration loop ran at {speeds['least']:.0f} to {speeds['most']:.0f} GFLOP/s, in the median at "
                     f"{speeds['median']:.0f}, and in its best millisecond at {speeds['burst']:.0f}")
    if "load" in quiet:
        parts.append(f"the load was {quiet['load']['mean']:.1f} (at most {quiet['load']['most']:.1f})")
    return f"{verdict}: {'; '.join(parts)}."


def document(rows, about, quiet, unsettled, summarize):
    """All that is printed, and what --write puts into a document."""
    versions = ", ".join(f"{name} {version}" for name, version in sorted(about["versions"].items()))
    peak = f"{about['peak_gflops']:.0f} GFLOP/s ({about['peak_isa']})" if about["peak_gflops"] else "not measured"
    lines = [f"{about['cpu']}, {about['threads']} threads, {about['memory_gib']} GiB; FMA peak of these threads {peak}. "
             f"{about['system']}; {versions or 'no peers'}; Tow at {about['commit']}, {about['date']}. "
             f"Command: `{about['command']}`.", "", quiet_sentence(quiet)]
    if unsettled:
        lines += ["", "Rows that did not settle (spread over the limit, or too few undisturbed processes): "
                  + ", ".join(map(str, unsettled)) + "."]
    lines += ["", table(rows)]
    notes = sorted({note for row in rows for note in row["notes"]})
    if notes:
        lines += ["", "Not measured:", "", *(f"- {note}" for note in notes)]
    lines += ["", "The commands (`gpt ...` is `build/release/bench/bench_gpt ...`, `gpt_jax ...` is "
              "`bench/peers/gpt_jax.py ...`):", "", commands_table(rows, summarize)]
    return "\n".join(lines)


def around_table(path):
    """What stands before and after the marks of a document."""
    try:
        text = path.read_text()
        path.open("a").close()
    except OSError as error:
        sys.exit(f"bench/compare: {path}: {error.strerror}")
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        sys.exit(f"bench/compare: {path}: expected the marks {BEGIN} and {END}, in this order, once each")
    return text.split(BEGIN)[0], text.split(END)[1]
