"""Prints src/text/unicode_tables.inc: what tokenizers must know of Unicode.

    python scripts/unicode_tables.py >src/text/unicode_tables.inc

Classes of characters, lower case and decompositions are those that the package `tokenizers` has, asked about every code point:
its parts come from libraries with tables of several versions of Unicode (letters and numbers of 16 or 17, punctuation of 8), and
token ids depend on them.
"""
import unicodedata

import regex

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def matching(regex):
    """The code points that a class of a regular expression has."""
    rest = pre_tokenizers.Split(Regex(f"(?:{regex})+"), "removed")
    found = set()
    for i in range(0, len(POINTS), 4096):
        text = "".join(map(chr, POINTS[i:i + 4096]))
        kept = set()
        for _, (a, b) in rest.pre_tokenize_str(text):
            kept.update(range(a, b))
        found.update(ord(c) for k, c in enumerate(text) if k not in kept)
    return found


def normalized(normalizer):
    return {c: normalizer.normalize_str(chr(c)) for c in POINTS}


def bert(**options):
    return normalizers.BertNormalizer(**{"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False,
                                         **options})


clean = normalized(bert(clean_text=True))
splits, words = pre_tokenizers.BertPreTokenizer(), pre_tokenizers.Whitespace()
# In the order of the bits in unicode.h.
CLASSES = {
    "LETTER": matching(r"\p{L}"),
    "NUMBER": matching(r"\p{N}"),
    "SPACE": matching(r"\s"),
    "WORD": {c for c in POINTS if len(words.pre_tokenize_str(f"a{chr(c)}a")) == 1 and not chr(c).isspace()},
    "CONTROL": {c for c, t in clean.items() if t == ""},
    "BLANK": {c for c, t in clean.items() if t == " "},
    "PUNCTUATION": {c for c in POINTS if len(splits.pre_tokenize_str(f"a{chr(c)}a")) == 3},
    "CHINESE": {c for c, t in normalized(bert(handle_chinese_chars=True)).items() if t != chr(c)},
    "ACCENT": {c for c, t in normalized(bert(strip_accents=True)).items() if t == ""},
    "MARK": {c for c, t in normalized(normalizers.StripAccents()).items() if t == ""},
}


def rows(name, kind, values, per_line):
    print(f"const {kind} {name}[128] = {{" if name.startswith("tow__") else f"static const {kind} {name}[] = {{")
    for i in range(0, len(values), per_line):
        print("    " + " ".join(f"{v}," for v in values[i:i + per_line]))
    print("};\n")


def print_classes():
    names = list(CLASSES)
    bits = [0] * 0x110000
    for n, name in enumerate(names):
        for c in CLASSES[name]:
            bits[c] |= 1 << n
    runs = [(c, bits[c]) for c in range(0x110000) if c == 0 or bits[c] != bits[c - 1]]
    rows("tow__ascii_classes", "uint16_t", [hex(b) for b in bits[:128]], 16)
    print("/* From this code point on these classes: code << 12 | classes. */")
    rows("class_runs", "uint64_t", [f"{hex(c << 12 | b)}" for c, b in runs], 12)
    print("/* The run that code point 256 i is in. */")
    index, run = [], 0
    for block in range(0x110000 // 256):
        while run + 1 < len(runs) and runs[run + 1][0] <= block * 256:
            run += 1
        index.append(run)
    limit = 0x30000 // 256  # from here on the runs are long
    rows("class_index", "uint16_t", index[:limit], 24)


def print_lower():
    lower = {c: t for c, t in normalized(normalizers.Lowercase()).items() if t != chr(c)}
    runs = []  # first, last, step, difference
    for c in sorted(c for c in lower if len(lower[c]) == 1):
        d = ord(lower[c]) - c
        if runs and runs[-1][3] == d and runs[-1][0] == runs[-1][1] and c - runs[-1][1] in (1, 2):
            runs[-1][1], runs[-1][2] = c, c - runs[-1][1]
        elif runs and runs[-1][3] == d and c - runs[-1][1] == runs[-1][2] and runs[-1][0] != runs[-1][1]:
            runs[-1][1] = c
        else:
            runs.append([c, c, 1, d])
    assert [c for c in lower if len(lower[c]) > 1] == [0x130]
    print("/* Lower case: every `step`-th code point from first to last, plus the difference. (U+0130 becomes two.) */")
    print("static const struct {\n    uint32_t first, last;\n    int32_t step, difference;\n} lower_runs[] = {")
    for i in range(0, len(runs), 5):
        print("    " + " ".join(f"{{{hex(a)}, {hex(b)}, {s}, {d}}}," for a, b, s, d in runs[i:i + 5]))
    print("};\n")


def print_graphemes():
    """Classes of grapheme clusters, by the module regex: of Unicode 16 or 17, which differ in characters of late scripts alone."""
    names = ["CR", "LF", "Control", "Extend", "ZWJ", "SpacingMark", "Prepend", "L", "V", "T", "LV", "LVT", "Regional_Indicator"]
    classes = [0] * 0x110000
    text = "".join(map(chr, POINTS))
    for value, name in enumerate(names, 1):
        for m in regex.finditer(rf"\p{{Grapheme_Cluster_Break={name}}}", text):
            classes[ord(m[0])] = value
    for m in regex.finditer(r"\p{Extended_Pictographic}", text):
        assert classes[ord(m[0])] == 0
        classes[ord(m[0])] = 14
    for value, name in enumerate(("Consonant", "Linker", "Extend"), 1):
        for m in regex.finditer(rf"\p{{Indic_Conjunct_Break={name}}}", text):
            classes[ord(m[0])] |= value << 4
    for c in range(0xAC00, 0xD7A4):  # LV and LVT follow a rule
        assert classes[c] == (11 if (c - 0xAC00) % 28 == 0 else 12)
        classes[c] = 12
    runs = [(c, classes[c]) for c in range(0x110000) if c == 0 or classes[c] != classes[c - 1]]
    print("\n/* Classes of grapheme clusters from this code point on: code << 8 | class; Hangul syllables are all LVT here. */")
    rows("grapheme_runs", "uint32_t", [hex(c << 8 | k) for c, k in runs], 14)


def combining_classes():
    """Marks change places with those of a lower class: a mark of every class tells that of the others."""
    nfd = normalizers.NFD().normalize_str
    known = {unicodedata.combining(chr(c)): chr(c) for c in reversed(POINTS) if unicodedata.combining(chr(c)) and unicodedata.decomposition(chr(c)) == ""}
    classes, lowest = [0] * 0x110000, min(known)
    for c in POINTS[0x300:]:
        some = nfd(chr(c) + known[lowest]) != chr(c) + known[lowest]
        behind = some and [k for k in sorted(known) if known[k] != chr(c) and nfd(chr(c) + known[k]) == known[k] + chr(c)]
        if behind:  # classes lower than its own
            higher = [k for k in sorted(known) if k > behind[-1]]
            classes[c] = higher[0]
        elif nfd(f"{known[max(known)]}{chr(c)}") == chr(c) + known[max(known)]:
            classes[c] = lowest
    return classes


def print_decompositions():
    hangul = range(0xAC00, 0xD7A4)
    nfd = {c: t for c, t in normalized(normalizers.NFD()).items() if t != chr(c) and c not in hangul}
    nfkd = {c: t for c, t in normalized(normalizers.NFKD()).items() if c not in hangul and t != nfd.get(c, chr(c))}
    print("/* Canonical decompositions, without those of Hangul syllables, and those for compatibility that are others:")
    print(" * code << 20 | begin << 5 | count of code points. */")
    pool = ""

    def find(text):  # a place in the pool, which is extended
        nonlocal pool
        if text not in pool:
            pool += text
        return pool.index(text)

    for name, table in (("decompositions", nfd), ("compatible_decompositions", nfkd)):
        assert all(0 < len(t) < 19 for t in table.values())
        rows(name, "uint64_t", [hex(c << 20 | find(table[c]) << 5 | len(table[c])) for c in sorted(table)], 10)
    assert len(pool) < 1 << 15
    rows("decomposed", "uint32_t", [hex(ord(c)) for c in pool], 16)
    classes = combining_classes()
    runs = [(c, classes[c]) for c in range(0x110000) if c == 0 or classes[c] != classes[c - 1]]
    print("/* Canonical combining classes from this code point on: code << 8 | class. */")
    rows("combining_runs", "uint32_t", [hex(c << 8 | k) for c, k in runs], 14)
    pairs = []
    nfc = normalizers.NFC().normalize_str
    for c, text in sorted(nfd.items()):
        first = nfc(text[:-1])
        if nfc(text) == chr(c) and len(first) == 1:
            pairs.append((ord(first), ord(text[-1]), c))
    print("/* Canonical compositions: first, second, both in one. */")
    print("static const uint32_t compositions[][3] = {")
    pairs.sort()
    for i in range(0, len(pairs), 5):
        print("    " + " ".join(f"{{{hex(a)}, {hex(b)}, {hex(c)}}}," for a, b, c in pairs[i:i + 5]))
    print("};")


print(f"/* Printed by scripts/unicode_tables.py with tokenizers {tokenizers.__version__}. */\n")
print_classes()
print_lower()
print_decompositions()
print_graphemes()
