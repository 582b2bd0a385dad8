"""Tokenizers of golden/tokenizers as GGUF files can say them: added tokens without options, and on characters the merges that
SentencePiece does, all pairs of tokens that make a token."""
import json
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parent / "golden" / "tokenizers"


def pairs(vocab, merges):
    """By the tokens' first merges, the longer left parts first."""
    made = dict.fromkeys("".join(merge if isinstance(merge, list) else merge.split(" ")) for merge in merges)
    return [[token[:at], token[at:]] for token in made for at in range(len(token) - 1, 0, -1) if token[:at] in vocab and token[at:] in vocab]


def plain(name):
    """The text of tokenizer.json."""
    root = json.loads((FOLDER / f"{name}.json").read_text())
    for token in root["added_tokens"]:
        token.update(normalized=False, single_word=False)
    if root["model"].get("byte_fallback"):
        root["model"]["merges"] = pairs(root["model"]["vocab"], root["model"]["merges"])
    return json.dumps(root)
