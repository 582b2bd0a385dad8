"""Further tokenizers, and what the package `tokenizers` makes of texts with them: golden/tokenizers.

t5, albert, xlmr.json, level.json   Unigram with maps of characters and with bytes, WordLevel, as models of these names configure them
more.txt                            of each as in expected.txt
random.txt                          of small random tokenizers: "config JSON", then "text" lines

By hand: python tests/oracle/tokenizers_more.py CHARSMAP, where CHARSMAP is a file with the precompiled_charsmap, in base 64, that
SentencePiece makes of RULES (--normalization_rule_tsv).
"""
import base64
import collections
import json
import math
import random
import sys

import tokenizers_golden as golden
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

# What characters become, in hexadecimal: full width, lower case, composition, removal, one to three, keys with a common beginning.
RULES = [("FF21", "41"), ("0041", "0061"), ("0065 0301", "00E9"), ("0009", "0020"), ("000D 000A", "000A"), ("00AD", ""), ("FB01", "66 69"),
         ("FDFA", "635 644 649 20 627 644 644 647"), ("0061 0301", "E1"), ("00A9", "28 63 29"), ("200D", ""), ("0300", ""),
         ("2026", "2E 2E 2E"), ("1100 0301", "41"), ("3000", "20"), ("200B", ""), ("0301 0301", "0301")]


def unigram(texts, size, fallback=False):
    """The most frequent pieces of words, whose scores are the logarithms of how often they are there."""
    counts = collections.Counter()
    for word in " ".join(texts).split():
        word = "▁" + word
        counts.update(word[i:k] for i in range(len(word)) for k in range(i + 1, min(i + 6, len(word)) + 1))
    total = sum(counts.values())
    vocab = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    vocab += [(token, round(math.log(n / total), 4)) for token, n in sorted(counts.items(), key=lambda v: (-v[1], v[0]))[:size]]
    if fallback:
        vocab += [(f"<0x{b:02X}>", -20.0 - b) for b in range(256)]
    return models.Unigram(vocab, 3, fallback)


def make(texts, charsmap):
    made, precompiled = {}, normalizers.Precompiled(base64.b64decode(charsmap))
    t = Tokenizer(unigram(texts, 900))
    t.normalizer, t.pre_tokenizer, t.decoder = precompiled, pre_tokenizers.Metaspace(), decoders.Metaspace()
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)])
    t.add_special_tokens(["<pad>", "</s>", "<unk>", "<extra_id_0>"])
    made["t5"] = t
    t = Tokenizer(unigram(texts, 700))
    t.normalizer = normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(),
                                         normalizers.StripAccents(), normalizers.Lowercase(), precompiled])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    t.decoder = decoders.Metaspace()
    t.add_special_tokens(["[MASK]"])
    made["albert"] = t
    t = Tokenizer(unigram(texts, 800, fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Strip(left=False)])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="first")])
    t.decoder = decoders.Sequence([decoders.Metaspace(), decoders.ByteFallback(), decoders.Fuse()])
    t.add_special_tokens(["<s>", "</s>", "<mask>"])
    made["xlmr"] = t
    t = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    t.normalizer = normalizers.NFKD()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.CharDelimiterSplit(" "), pre_tokenizers.Punctuation("removed"),
                                               pre_tokenizers.Digits(), pre_tokenizers.WhitespaceSplit()])
    golden.train(t, trainers.WordLevelTrainer(vocab_size=600, special_tokens=["[UNK]"], show_progress=False), texts)
    made["level"] = t
    return made


# ---- random tokenizers ---------------------------------------------------------------------------------------------------------------

POOLS = ["ab  c\n\t", "ab", "ABÀéÅİßſ", "e\u0301\u0300\u0323\u0327\u0345\u0355\u0344\u0308", "가각각힣ᆫ한", "ﬁ①½㌀ﷺＡｶﾞ…™", "中文。、「ñ", "👍🏽❤️👩\u200d🚀",
         "a1b2٣² 12.", ".,!?-_()", "▁ ▁a", "<s>ab", "\u212b\u1e0a\u0323\ufb2c\u0958\U0001d160", "a\u0301\u0300\u0301\u00ad\u200d", "\r\n\r\t©\u200d©"]
CONTENTS = ["<s>", "ab", "a", "AB", "é", "e\u0301", " b", "  ", "b ", "xy", "▁a", "1", "a b"]
BEHAVIOURS = ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


def random_text(r):
    pools = [r.choice(POOLS) for _ in range(r.choice([1, 2, 3]))]
    return "".join(r.choice(["ab", "<s>", "  ", "e\u0301\u0355"]) if r.random() < 0.1 else r.choice(r.choice(pools)) for _ in range(r.choice([2, 5, 12])))


def random_normalizer(r, charsmap):
    kind = r.choice(["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "BertNormalizer", "Prepend", "Replace", "Strip", "Precompiled"])
    step = {"type": kind}
    if kind == "BertNormalizer":
        step |= {k: r.random() < 0.5 for k in ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")}
    elif kind == "Prepend":
        step |= {"prepend": r.choice(["▁", "ab"])}
    elif kind == "Replace":
        step |= {"pattern": {"String": r.choice([" ", "  ", "a", "ab", "▁", "e\u0301"])}, "content": r.choice(["", "▁", " ", "xy", "é"])}
    elif kind == "Strip":
        step |= {"strip_left": r.random() < 0.5, "strip_right": r.random() < 0.5}
    elif kind == "Precompiled":
        step |= {"precompiled_charsmap": charsmap}
    return step


def random_splitter(r):
    kind = r.choice(["Split", "BertPreTokenizer", "Whitespace", "WhitespaceSplit", "Digits", "Punctuation", "Metaspace", "CharDelimiterSplit"])
    step = {"type": kind}
    if kind == "Split":
        step |= {"pattern": {"String": r.choice([" ", "a", "ab", "▁", "1"])}, "behavior": r.choice(BEHAVIOURS), "invert": r.random() < 0.3}
    elif kind == "Digits":
        step |= {"individual_digits": r.random() < 0.5}
    elif kind == "Punctuation":
        step |= {"behavior": r.choice(BEHAVIOURS)}
    elif kind == "Metaspace":
        step |= {"replacement": "▁", "prepend_scheme": r.choice(["always", "first", "never"]), "split": r.random() < 0.6}
    elif kind == "CharDelimiterSplit":
        step |= {"delimiter": r.choice([" ", "a", "▁"])}
    return step


def random_model(r):
    words = [w for w in ["a", "b", "ab", "aba", "1", "e", "é", ".", " ", "▁", "▁a", "▁ab", "x", "\u0301", "bb", "中", "c", "##b", "##a", "##ab", "##1"] if r.random() < 0.7]
    kind = r.choice(["BPE", "WordPiece", "WordLevel", "Unigram"])
    if kind == "BPE":
        chars = ["<unk>"] + [w for w in words if len(w) == 1]
        merges = [[a, b] for a, b in [("a", "b"), ("b", "a"), ("▁", "a"), ("e", "\u0301")] if a in chars and b in chars]
        vocab = {w: i for i, w in enumerate(chars + [a + b for a, b in merges])}
        return {"type": kind, "unk_token": "<unk>", "fuse_unk": r.random() < 0.5, "vocab": vocab, "merges": merges}
    if kind == "Unigram":
        return {"type": kind, "unk_id": 0, "byte_fallback": False, "vocab": [["<unk>", 0.0]] + [[w, -round(9 * r.random(), r.choice([0, 3]))] for w in words]}
    model = {"type": kind, "unk_token": "<unk>", "vocab": {w: i for i, w in enumerate(["<unk>"] + words)}}
    return model | ({"continuing_subword_prefix": "##", "max_input_chars_per_word": 100} if kind == "WordPiece" else {})


def random_config(r, charsmap):
    model = random_model(r)
    vocab = [w for w, _ in model["vocab"]] if model["type"] == "Unigram" else list(model["vocab"])
    added, free = [], len(vocab)
    for content in r.sample(CONTENTS, r.choice([0, 0, 1, 2])):
        flags = {k: r.random() < 0.3 for k in ("single_word", "lstrip", "rstrip", "normalized", "special")}
        added.append({"id": vocab.index(content) if content in vocab else free, "content": content} | flags)
        free += content not in vocab
    steps = [random_normalizer(r, charsmap) for _ in range(r.choice([0, 1, 1, 2]))]
    splitters = [random_splitter(r) for _ in range(r.choice([0, 1, 1, 2]))]
    return {"version": "1.0", "added_tokens": added, "normalizer": {"type": "Sequence", "normalizers": steps} if steps else None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": splitters} if splitters else None,
            "post_processor": {"type": "ByteLevel", "add_prefix_space": r.random() < 0.5, "trim_offsets": r.random() < 0.8, "use_regex": True},
            "decoder": r.choice([None, {"type": "WordPiece", "prefix": "##", "cleanup": True}]), "model": model}


def text_line(name, t, s):
    e, at = t.encode(s), golden.byte_offsets(s)
    tokens = " ".join(f"{i}:{at[a]}:{at[b]}" for i, (a, b) in zip(e.ids, e.offsets))
    return (f"text {name} {s.encode().hex() or '-'} {t.decode(e.ids).encode().hex() or '-'} "
            f"{t.decode(e.ids, skip_special_tokens=False).encode().hex() or '-'} {tokens}")


def main():
    charsmap = open(sys.argv[1]).read().strip()
    texts = golden.snippets()
    text = golden.long_text(texts, 1_000_000)
    small = ["", " ", "  ", "a", " a", "a ", "Hello  world's 123abc!?\n\n  x  ", "e\u0301 a\u0301", "👍🏽", "x<mask> y", "[MASK]  b", "``a''", "<extra_id_0>b"]
    lines = []
    for name, t in make(texts, charsmap).items():
        t.save(str(golden.FOLDER / f"{name}.json"), pretty=False)
        lines += golden.expectations(name, t, text, small + [s[:40] for s in texts[:30]])
        print(lines[-len(small) - 32])
    (golden.FOLDER / "more.txt").write_text("\n".join(lines) + "\n")
    lines = []
    for seed in range(160):
        r = random.Random(seed)
        config = json.dumps(random_config(r, charsmap), ensure_ascii=False, separators=(",", ":"))
        t = Tokenizer.from_str(config)
        normal = [t.normalizer.normalize_str(a["content"]) if a["normalized"] and t.normalizer else a["content"] for a in json.loads(config)["added_tokens"]]
        if "" in normal or len(set(normal)) < len(normal):  # refused here; found in any order there
            continue
        lines += [f"config {config}"] + [text_line("-", t, random_text(r)) for _ in range(5)]
    (golden.FOLDER / "random.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
