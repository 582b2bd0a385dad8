"""Tokenizers as GGUF files have them: golden/gguf/tokenizers, which tests/unit/text/test_gguf_tokenizer.c reads.

    python3 tests/oracle/gguf_tokenizers.py        (made with gguf 0.19.0, sentencepiece 0.2.3)

gpt2, llama3 and qwen2 are those of golden/tokenizers; the test compares them with their tokenizer.json. spm is a model that sentencepiece
makes of the snippets there (BPE, bytes for rare characters), and spm.txt the ids that it gives each of them, which are in hexadecimal digits.
"""
import json
import pathlib
import tempfile

import gguf
import sentencepiece

GOLDEN = pathlib.Path(__file__).resolve().parent / "golden"
FOLDER = GOLDEN / "gguf" / "tokenizers"
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def of_json(name, pre):
    root = json.loads((GOLDEN / "tokenizers" / f"{name}.json").read_text())
    ids = {i: (t, NORMAL) for t, i in root["model"]["vocab"].items()}
    for a in root["added_tokens"]:
        ids[a["id"]] = (a["content"], CONTROL if a["special"] else USER)
    tokens = [ids[i] for i in range(len(ids))]
    merges = [m if isinstance(m, str) else " ".join(m) for m in root["model"]["merges"]]
    w = gguf.GGUFWriter(FOLDER / f"{name}.gguf", "llama")
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(pre)
    w.add_token_list([t for t, _ in tokens])
    w.add_token_types([k for _, k in tokens])
    w.add_token_merges(merges)
    begins = [t["SpecialToken"]["id"] for t in ((root.get("post_processor") or {}).get("single") or []) if "SpecialToken" in t]
    for p in (root.get("post_processor") or {}).get("processors", []):
        begins += [t["SpecialToken"]["id"] for t in p.get("single", []) if "SpecialToken" in t]
    if begins:
        w.add_bos_token_id(next(i for i, (t, _) in ids.items() if t == begins[0]))
    w.add_add_bos_token(bool(begins))
    finish(w)


def spm():
    snippets = [s.encode().decode("unicode_escape").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
                for s in (GOLDEN / "tokenizers" / "snippets.txt").read_text().splitlines()]
    snippets = [s for s in snippets if s and not any(t in s for t in ("\0", "\u2581", "<s>", "</s>", "<unk>"))]
    with tempfile.TemporaryDirectory() as folder:
        prefix = f"{folder}/spm"
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([s.replace("\n", " ") for s in snippets if max(s) < "\u0250"]), model_prefix=prefix, model_type="bpe", vocab_size=800,
            byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, character_coverage=0.98,
            minloglevel=2)
        m = sentencepiece.SentencePieceProcessor(model_file=prefix + ".model")
    kinds = [UNKNOWN if m.is_unknown(i) else CONTROL if m.is_control(i) else BYTE if m.is_byte(i) else NORMAL for i in range(len(m))]
    w = gguf.GGUFWriter(FOLDER / "spm.gguf", "llama")
    w.add_tokenizer_model("llama")
    w.add_tokenizer_pre("default")
    w.add_token_list([m.id_to_piece(i) for i in range(len(m))])
    w.add_token_scores([m.get_score(i) for i in range(len(m))])
    w.add_token_types(kinds)
    w.add_bos_token_id(m.bos_id())
    w.add_eos_token_id(m.eos_id())
    w.add_unk_token_id(m.unk_id())
    finish(w)
    with open(FOLDER / "spm.txt", "w") as out:
        for s in snippets:
            print(s.encode().hex(), *([m.bos_id()] + m.encode(s)), file=out)


FOLDER.mkdir(exist_ok=True, parents=True)
of_json("gpt2", "gpt-2")
of_json("llama3", "llama-bpe")
of_json("qwen2", "qwen2")
spm()
