"""Small tokenizers that the package `tokenizers` trains, and what it makes of texts with them: golden/tokenizers.

snippets.txt      pieces of text of many languages, scripts and kinds, one a line, escaped as Python's unicode_escape
NAME.json         a tokenizer.json
vocab.json, merges.txt, vocab.txt   of gpt2 and bert_cased in other files
expected.txt      of every tokenizer: hashes of ids, offsets and decoded text for 1 MB of snippets, and small texts in full

By hand: python tests/oracle/tokenizers_golden.py
"""
import json
import pathlib
import random

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers)

HERE = pathlib.Path(__file__).parent
FOLDER = HERE / "golden" / "tokenizers"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

HAND = r"""The quick brown fox jumps over the lazy dog. It's 1,234.56 dollars, isn't it? They'LL've SHE'D I'M we'RE 'S 'T
Don't stop, can't won't shouldn't've y'all'd've rock 'n' roll; "quoted" (parenthesised) [bracketed] {braced} <tagged> & more...
Größe, Übermaß, Straße, ẞ, Fußgängerübergänge; Donaudampfschifffahrtsgesellschaftskapitän. Naïve façade, cœur, Noël, déjà vu
El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia; ¿verdad? ¡Sí! Ação, não, coração, pão, açaí
Zażółć gęślą jaźń. Příliš žluťoučký kůň. Árvíztűrő tükörfúrógép. Işık ılık süt içti, İstanbul'da IĞDIR
Tiếng Việt có dấu: ngôn ngữ, đường phố, người, những, thuở, nghĩa, Nguyễn Tất Thành
Η γρήγορη καφέ αλεπού πηδάει πάνω από το τεμπέλικο σκυλί. ΟΔΥΣΣΕΥΣ, Ὀδυσσεύς, ἄνδρα μοι ἔννεπε, μοῦσα
Съешь же ещё этих мягких французских булок, да выпей чаю. Щедрість, їжак, ґанок; ЁЛКА ёлка Й й
نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر ومغلف بجلد أزرق. ١٢٣٤٥ مُحَمَّد بِسْمِ
דג סקרן שט בים מאוכזב ולפתע מצא חברה. שָׁלוֹם עֲלֵיכֶם
ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश करने वाले विष्णुवतार भगवान श्रीराम। १२३
আমি বাংলায় গান গাই। தமிழ் மொழி மிகவும் பழமையானது. తెలుగు భాష, ಕನ್ನಡ, മലയാളം, ગુજરાતી
เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน ລາວ ភាសាខ្មែរ မြန်မာဘာသာ བོད་སྐད
我能吞下玻璃而不伤身体。中文分词是一个有趣的问题,数字123和英文word混排。「引號」、標點!㐀㐁 𠀀𠀁𪛕
いろはにほへと ちりぬるを わかよたれそ つねならむ。カタカナ、ｶﾀｶﾅ、ﾊﾞｶﾞ、漢字とかな混じり文。２０２４年１月
키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다. 한국어 띄어쓰기 각각 값
😀 😃 👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 🤣🥰🫠 🧑🏿‍🚀 ❤️ ✨ ☃ ♥ ⚡ 🪿🫨
∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, α ∧ ¬β = ¬(¬α ∨ β), 2H₂ + O₂ ⇌ 2H₂O, x² + y³ ≤ ½·π, ∑∏∫√∞≈≠ ⅷ Ⅻ ㊿ ①② ៥ ௧௨
def f(x: int) -> list[str]:\n    return [f"{x:>08d}" for _ in range(10**3)]  # comment\n\n\n\tif a != b and not (c <= d): pass
#include <stdio.h>\nint main(void) { printf("%d\\n", 0x7fff & ~mask << 3); return 0; } /* comment */ // another\r\n#define A(x) ((x) * 2)
SELECT id, COUNT(*) AS n FROM `users` WHERE name LIKE '%o\'brien%' AND age >= 18 GROUP BY id;\r\n<div class="a b">&nbsp;&#8212;</div>
https://example.com/path/to?query=1&other=two#fragment user.name+tag@mail.example.org C:\\Users\\me ../../etc/passwd --flag=value -x
   leading spaces and trailing   \n\n   \n \t \t\n\r\n\r\r\n    indented\n  \n
a\u00a0b\u2003c\u3000d\u2028e\u2029f\u0085g\u000bh\u000ci\u200bj\ufeffk\u00adl\u2060m\u200dn\u180eo
\u0000\u0001\u0002\u0007\u0008\u001b[31mred\u001b[0m\u007f\u0080\u009f\ufffd\ufffe\ue000\U000f0000
e\u0301 a\u0323\u0302 \u1ec7 o\u0308\u0323 q\u0323\u0307 q\u0307\u0323 \u212b \u00c5 A\u030a \u0958 \uac00\u11a8 \u1100\u1161\u11a8 \u0344 \ufb01 \u0130 i\u0307 \u01c4 \u1e9e
ＦＵＬＬｗｉｄｔｈ　！？（） ﬁﬂ ½ ™ © ® № ℡ … — – ‐ ‑ ‘single’ “double” „low“ ‹a› «b» ‰ § ¶ † • ′ ″
don\u2019t 'ſ 'S 'tis it'S THEY'VE 'Ve 'rE ''' 'll'LL'd 'x '1 ' s 'm.'
1 12 123 1234 12345 123456 1.5 1,000,000 3.14159e-10 0x1F 50% 100°C 1st 2nd ²³ ¾ ٣٤٥ 二十
aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
abababababababababababababababababababababababab loooooooooooooooooooooooooong wooooooord antidisestablishmentarianism
pneumonoultramicroscopicsilicovolcanoconiosispneumonoultramicroscopicsilicovolcanoconiosispneumonoultramicroscopicsilico
<|endoftext|> text<|endoftext|>text  <|im_start|>user\nHi<|im_end|> [CLS] [SEP] [MASK] word[MASK]word <s>a</s> <unk> <mask> <mask>x  <mask>  y
________ -------- ======== ******** ........ !!!!!!!! ???????? ,,,,,, ;;;; ~~~~ ^^^^ ```` $$$$ ++++ |||| @@@@ ####
\u0301\u0302\u0303 \u093e\u094d \u20e3 1\u20e3 \u0e33 \u0eb3 \u1e0a\u0323 \u2126 \u2000\u2001 \u0340\u0341\u0343 \u0374 \u037e \u0387 \u1f71
"""


def snippets():
    lines = [line.encode("ascii", "backslashreplace").decode("ascii") for line in HAND.splitlines()]
    texts = []
    for line in HAND.splitlines():
        parts = line.encode("latin-1", "backslashreplace").decode("unicode_escape") if "\\" in line else line
        texts.append(parts)
    rng = random.Random(1)
    blocks = [(0x20, 0x7f), (0xa0, 0x250), (0x300, 0x370), (0x370, 0x530), (0x590, 0x700), (0x900, 0xe00), (0xe00, 0x1100), (0x1100, 0x1200),
              (0x1680, 0x1700), (0x1e00, 0x2000), (0x2000, 0x2c00), (0x2e80, 0x3400), (0x4e00, 0x9fff), (0xa000, 0xabff), (0xac00, 0xd7a4),
              (0xf900, 0xfb00), (0xfe00, 0x10000), (0x10000, 0x11000), (0x1d400, 0x1d800), (0x1f300, 0x1fb00), (0x20000, 0x20100), (0xe0100, 0xe01f0)]
    for _ in range(60):
        a, b = rng.choice(blocks)
        texts.append("".join(chr(rng.randrange(a, b)) if rng.random() < 0.8 else rng.choice(" \n'1a.") for _ in range(rng.randrange(5, 40))))
    return texts


def long_text(texts, size):
    """As the test does it: snippets and separators chosen by a linear congruential generator."""
    parts, bytes_so_far, x = [], 0, 1
    separators = ["", " ", "\n", "  ", "\r\n\r\n"]
    while bytes_so_far < size:
        x = (x * 6364136223846793005 + 1442695040888963407) % 2**64
        parts.append(texts[(x >> 33) % len(texts)] + separators[(x >> 20) % 5])
        bytes_so_far += len(parts[-1].encode())
    return "".join(parts)


def fnv(values):
    h = 0xcbf29ce484222325
    for v in values:
        h = ((h ^ v) * 0x100000001b3) % 2**64
    return h


def byte_offsets(text):
    """Bytes before each character, and at the end."""
    at, out = 0, []
    for c in text:
        out.append(at)
        at += len(c.encode())
    return out + [at]


def train(tokenizer, trainer, texts):
    docs = [p.read_text() for p in sorted((HERE.parent.parent / "docs").glob("*.md"))][:6]
    tokenizer.train_from_iterator(texts + [line for d in docs for line in d.splitlines()], trainer)
    return tokenizer


def alphabet():
    return pre_tokenizers.ByteLevel.alphabet()


def make(texts):
    made = {}
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    train(t, trainers.BpeTrainer(vocab_size=1200, initial_alphabet=alphabet(), special_tokens=["<|endoftext|>"], show_progress=False), texts)
    made["gpt2"] = t

    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    train(t, trainers.BpeTrainer(vocab_size=1500, initial_alphabet=alphabet(), show_progress=False), texts)
    t.add_special_tokens(["<|begin_of_text|>", "<|im_start|>", "<|im_end|>"])
    begin = t.token_to_id("<|begin_of_text|>")
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1", special_tokens=[("<|begin_of_text|>", begin)])])
    made["llama3"] = t

    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3.replace("{1,3}", "")), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder, t.post_processor = decoders.ByteLevel(), processors.ByteLevel(trim_offsets=False)
    train(t, trainers.BpeTrainer(vocab_size=800, initial_alphabet=alphabet(), show_progress=False), texts)
    t.add_tokens([AddedToken("<|im_start|>", special=True, normalized=False), AddedToken("café", single_word=True), AddedToken("word")])
    made["qwen2"] = t

    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    train_with = Tokenizer(models.BPE(unk_token="<unk>"))
    train_with.pre_tokenizer = pre_tokenizers.Metaspace()
    fallback = [f"<0x{b:02X}>" for b in range(256)]
    train(train_with, trainers.BpeTrainer(vocab_size=1400, limit_alphabet=300, special_tokens=["<unk>", "<s>", "</s>"] + fallback,
                                          show_progress=False), texts)
    spec = json.loads(train_with.to_str())["model"]
    t = Tokenizer(models.BPE(spec["vocab"], [tuple(m) for m in spec["merges"]], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.add_special_tokens(["<unk>", "<s>", "</s>"])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    made["llama2"] = t

    t = Tokenizer.from_str(t.to_str())
    t.normalizer = None
    t.pre_tokenizer, t.decoder = pre_tokenizers.Metaspace(prepend_scheme="first", split=False), decoders.Sequence(
        [decoders.Metaspace(prepend_scheme="first"), decoders.ByteFallback(), decoders.Fuse()])
    made["metaspace"] = t
    t = Tokenizer.from_str(t.to_str())
    t.model = models.BPE(spec["vocab"], [tuple(m) for m in spec["merges"]], unk_token="<unk>", fuse_unk=False)
    t.pre_tokenizer, t.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    made["metaspace_split"] = t

    for name, lower in (("bert_uncased", True), ("bert_cased", False)):
        t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        t.normalizer, t.pre_tokenizer, t.decoder = normalizers.BertNormalizer(lowercase=lower), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
        train(t, trainers.WordPieceTrainer(vocab_size=1500, limit_alphabet=500, show_progress=False,
                                           special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]), texts)
        t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                         special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
        made[name] = t

    t = Tokenizer.from_str(made["gpt2"].to_str())
    t.add_special_tokens(["<s>", "</s>", AddedToken("<mask>", lstrip=True, special=True), AddedToken("[MASK]", rstrip=True, special=True)])
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    t.post_processor = processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")))
    made["roberta"] = t

    t = Tokenizer(models.BPE(unk_token="?", end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.Punctuation("merged_with_next")])
    train(t, trainers.BpeTrainer(vocab_size=900, limit_alphabet=200, special_tokens=["?"], end_of_word_suffix="</w>", show_progress=False), texts)
    made["words"] = t
    t = Tokenizer.from_str(t.to_str())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split("a", "merged_with_previous"),
                                               pre_tokenizers.Split("o", "contiguous"), pre_tokenizers.Split("ee", "removed"),
                                               pre_tokenizers.Digits()])
    made["pieces"] = t
    return made


def expectations(name, t, text, small):
    e = t.encode(text)
    at = byte_offsets(text)
    decoded = t.decode(e.ids).encode()
    lines = [f"long {name} {len(e.ids)} {fnv(e.ids):016x} {fnv(v for a, b in e.offsets for v in (at[a], at[b])):016x} "
             f"{len(decoded)} {fnv(decoded):016x}"]
    for s in small:
        e, at = t.encode(s), byte_offsets(s)
        tokens = " ".join(f"{i}:{at[a]}:{at[b]}" for i, (a, b) in zip(e.ids, e.offsets))
        lines.append(f"text {name} {s.encode().hex() or '-'} {t.decode(e.ids).encode().hex() or '-'} {t.decode(e.ids, skip_special_tokens=False).encode().hex() or '-'} {tokens}")
    e = t.encode("first it's", "second one")
    lines.append(f"pair {name} " + " ".join(f"{i}:{k}:{a}:{b}" for i, k, (a, b) in zip(e.ids, e.type_ids, e.offsets)))
    return lines


def main():
    texts = snippets()
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "snippets.txt").write_text("".join(s.encode("unicode_escape").decode("ascii") + "\n" for s in texts))
    text = long_text(texts, 1_000_000)
    small = ["", " ", "  ", "a", " a", "a ", "Hello  world's 123abc!?\n\n  x  ", "\n", "é", "e\u0301", "👍🏽", "x<mask> y", "[MASK]  b", "café cafés word",
             "<|im_start|>user\nhi<|im_end|>"] + [s[:40] for s in texts[:30]]
    lines = []
    for name, t in make(texts).items():
        t.save(str(FOLDER / f"{name}.json"), pretty=False)
        lines += expectations(name, t, text, small)
        print(lines[-len(small) - 2])
        if name == "gpt2":
            t.model.save(str(FOLDER))
        if name == "bert_cased":
            (FOLDER / "vocab.txt").write_text("".join(f"{token}\n" for token, _ in sorted(t.get_vocab().items(), key=lambda v: v[1])))
    (FOLDER / "expected.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
