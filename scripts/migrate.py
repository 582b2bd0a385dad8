#!/usr/bin/env python3
"""Carries sources that use Tow 0.1 over to the names of this version.

    scripts/migrate.py FILE_OR_DIRECTORY...     edits files in place and prints the names of those that it changed
    scripts/migrate.py --table                  prints migrate.tsv as the table in CHANGELOG.md

In directories it takes the files that git tracks, or else all, if they are C, C++, Markdown, scripts or build files. It
looks at whole words, so names in strings change as well if they are names of functions, and nothing else in strings. Running
it twice does no harm: what it writes is nothing that it looks for. What no script can do is in CHANGELOG.md, and the
compiler reports it."""
import os
import re
import subprocess
import sys

ENDINGS = (".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".inc", ".in", ".md", ".py", ".sh", ".txt", ".cmake", ".1")
CPLUSPLUS = (".cc", ".cpp", ".cxx", ".hpp")
TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "migrate.tsv")


def read_table():
    """Lists of (old, new): words, calls and option structs."""
    words, calls, structs = {}, {}, {}
    for line in open(TABLE, encoding="utf-8"):
        line = line.rstrip("\n")
        if not line or line.startswith("#"):
            continue
        old, new = line.split("\t")
        if old.endswith("{}"):
            structs[old[:-2]] = new
        elif "(" in old:
            name, arguments = old[:-1].split("(")
            calls.setdefault(name, []).append((arguments.split(", "), new))
        else:
            words[old] = new
    return words, calls, structs


def skip_text(text, at):
    """The position behind the string, character or comment that begins at `at`, or `at` if none does."""
    if text.startswith("/*", at):
        end = text.find("*/", at + 2)
        return len(text) if end < 0 else end + 2
    if text.startswith("//", at):
        end = text.find("\n", at)
        return len(text) if end < 0 else end
    if text[at] == '"' or text[at] == "'":
        end = at + 1
        while end < len(text) and text[end] != text[at] and text[end] != "\n":
            end += 2 if text[end] == "\\" else 1
        return end + 1
    return at


def parts_between(text, at):
    """The parts between commas of the bracket that opens at `at`, and the position behind it; None if it never closes."""
    begin, depth, parts = at + 1, 0, []
    while at < len(text):
        behind = skip_text(text, at)
        if behind != at:
            at = behind
            continue
        c = text[at]
        if c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth == 0:
                parts.append(text[begin:at])
                return parts, at + 1
        elif c == "," and depth == 1:
            parts.append(text[begin:at])
            begin = at + 1
        at += 1
    return None


def is_context(argument):
    return re.search(r"(^|[^a-z])(context|ctx|c)(\b|_|\.|->|$)", argument.strip()) is not None


def is_declaration(argument):
    return re.match(r"\s*(const|struct|bool|int|size_t|double|char|uint\w+|int\w+|tow_\w+)\s+[*\w]", argument) is not None


def match(pattern, arguments):
    """What the $ of a pattern stand for, or None."""
    found = {}
    if len(pattern) != len(arguments):
        return None
    for expected, argument in zip(pattern, arguments):
        argument = argument.strip()
        if expected == "$context" and is_context(argument) and not is_context(arguments[0]):
            found[expected] = argument
        elif expected.startswith("$") and expected != "$context":
            found[expected] = argument
        elif expected != argument:
            return None
    return found


def change_calls(text, calls):
    """Applies patterns of calls, the last call of the text first, so that calls in arguments are done."""
    places = [m for name in calls for m in re.finditer(r"\b" + name + r"\(", text)]
    for place in sorted(places, key=lambda m: -m.start()):
        between = parts_between(text, place.end() - 1)
        if between is None or any(is_declaration(a) for a in between[0]):
            continue
        for pattern, new in calls[place.group()[:-1]]:
            found = match(pattern, between[0])
            if found is not None:
                new = re.sub(r"\$\w+", lambda m: found[m.group()], new)
                text = text[: place.start()] + new + text[between[1] :]
                break
    return text


def as_call(macro, body):
    body = body.rstrip() if re.match(r"\s*\n\s*\* ", body) else body.strip()  # the lines of a comment stay lines
    if body.endswith(","):
        body = body[:-1]
    if macro == "TOW_VMAP_OPTIONS":  # whose member .size became another one
        body = re.sub(r"\.(has_)?size = ", r".\1axis_size = ", body)
    return macro + "(" + ("" if body == "0" else body) + ")"


def braces(text, at, macro, array):
    """The initialiser at `at` with its macro, and its end in the old text; None if it stays."""
    between = parts_between(text, at)
    if between is None or "\n#" in text[at : between[1]]:
        return None
    if not array:
        return as_call(macro, text[at + 1 : between[1] - 1]), between[1]
    elements = []
    for part in between[0]:
        inner = re.match(r"(\s*(?:\[[^]]*\] = )?){(.*)}(\s*)$", part, re.S)
        if part.strip() and not inner:
            return None
        elements.append(inner.group(1) + as_call(macro, inner.group(2)) + inner.group(3) if inner else part)
    return "{" + ",".join(elements) + "}", between[1]


def change_structs(text, structs):
    """Makes initialisers of option structs calls of their macros."""
    names = "|".join(structs)
    literal = re.compile(r"\((?:const )?(" + names + r")(\[\])?\)\s*\{")
    declared = re.compile(r"\b(" + names + r") (\w+)(\[\w*\])? = \{")
    further = re.compile(r"\s*,\s*(\w+)(\[\w*\])? = \{")
    at = 0
    while True:
        found = literal.search(text, at), declared.search(text, at)
        found = min((m for m in found if m), key=lambda m: m.start(), default=None)
        if found is None:
            return text
        macro, array = structs[found.group(1)], found.group(2 if found.re is literal else 3)
        done = braces(text, found.end() - 1, macro, array)
        at = found.end()
        if done is None:
            continue
        keep = found.start() if found.re is literal and not array else found.end() - 1
        text, at = text[:keep] + done[0] + text[done[1] :], keep + len(macro)
        end = keep + len(done[0])
        while found.re is declared:  # tow_x a = {...}, b = {...};
            more = further.match(text, end)
            done = more and braces(text, more.end() - 1, macro, more.group(2))
            if not done:
                break
            text = text[: more.end() - 1] + done[0] + text[done[1] :]
            end = more.end() - 1 + len(done[0])


def change_members(text):
    """Members that have another name, or are written otherwise, where the text around them says whose they are."""
    text = re.sub(r"\b(rule|call)->parameters\b", r"\1->attributes", text)
    if re.search(r"\btow_(primitive_definition|check_case)\b", text):
        text = re.sub(r"\.parameters = ", ".attributes = ", text)
    text = re.sub(r"\.n_parameters = ", ".n_attributes = ", text)
    text = re.sub(r"\.parameters_size = ", ".attributes_size = ", text)

    def sized(struct):  # of a layer or a transform that is initialised without its macro
        name = struct.group(1)
        layer = name + "_layer" if name in ("tow_function", "tow_activation") else name
        return "{&%s_class, sizeof(%s)}" % (name, layer)

    text = re.sub(r"\{&(tow_\w+)_class\}", sized, text)
    text = re.sub(r"\.average = \{(\.decay = [^{}]*)\}", r".average = &TOW_AVERAGE_OPTIONS(\1)", text)

    def rules(shared):
        names = re.findall(r'"(?:[^"\\]|\\.)*"', shared.group(1))
        return ".variables = TOW_RULES(%s)" % ", ".join(
            "{%s, %s}" % (n, "TOW_SHARED" if n == '"params"' else "TOW_CARRIED") for n in names
        )

    return re.sub(r'\.shared_collections = TOW_NAMES\(((?:\s*"[^"]*",?)+)\)', rules, text)


def change_includes(text, words):
    """Headers that are parts of others now; of equal lines that stand together one stays."""
    lines, together, changed = [], set(), False
    for line in text.split("\n"):
        found = re.match(r'(\s*#\s*include\s*["<])(tow/\w+\.h)([">].*)', line)
        new = found.group(1) + words.get(found.group(2), found.group(2)) + found.group(3) if found else line
        changed = changed or new != line
        if not re.match(r"\s*#\s*include\b", new):
            together = set()
        elif changed and new in together:
            continue
        together.add(new)
        lines.append(new)
    return "\n".join(lines)


def migrate(text, tables, cplusplus=False):
    words, calls, structs = tables
    text = change_calls(text, calls)
    text = re.sub(r"(?<![\w])(?:tow|TOW)_\w+", lambda m: words.get(m.group(), m.group()), text)
    text = change_includes(text, words)
    if not cplusplus:
        text = change_structs(text, structs)
    return change_members(text)


def files_of(paths):
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        tracked = subprocess.run(["git", "-C", path, "ls-files", "-z"], capture_output=True)
        if tracked.returncode == 0 and tracked.stdout:
            names = [os.path.join(path, n) for n in tracked.stdout.decode().split("\0") if n]
        else:
            names = [os.path.join(d, n) for d, _, files in os.walk(path) for n in files]
        yield from (n for n in names if n.endswith(ENDINGS) and os.path.isfile(n) and not os.path.islink(n))


def print_table():
    print("| was | is |\n|---|---|")
    for line in open(TABLE, encoding="utf-8"):
        if line.startswith("# ") or not line.strip():
            continue
        old, new = line.rstrip("\n").split("\t")
        if old.endswith("{}"):
            old, new = "`%s o = {...}`" % old[:-2], "`%s o = %s(...)`" % (old[:-2], new)
            print("| %s | %s |" % (old, new))
        else:
            print("| `%s` | `%s` |" % (old, new))


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    if sys.argv[1] == "--table":
        return print_table()
    tables = read_table()
    for name in files_of(sys.argv[1:]):
        with open(name, encoding="utf-8", errors="surrogateescape", newline="") as file:
            before = file.read()
        after = migrate(before, tables, name.endswith(CPLUSPLUS))
        if after != before:
            with open(name, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
                file.write(after)
            print(name)


if __name__ == "__main__":
    main()
