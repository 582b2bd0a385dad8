"""What `tow convert-weights` writes is read by the packages safetensors and transformers, and gives the logits of the models; directories that
are made of GGUF files, too, whose tokenizers give the ids of those that the files were made of.

    python tests/oracle/weights_test.py TOW

Status 77, skipped, without these packages.
"""
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import plain_tokenizers

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import numpy
    import safetensors
    import safetensors.numpy
    import tokenizers
    import torch
    import transformers
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

TOW = sys.argv[1]
GOLDEN = pathlib.Path(__file__).parent / "golden" / "weights"


def convert(*arguments):
    run = subprocess.run([TOW, "convert-weights", *map(str, arguments)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


def check(name, table, scratch, dtype):
    ours, folder = scratch / f"{name}.safetensors", scratch / name
    folder.mkdir()
    convert(GOLDEN / name, "-o", ours, "--mapping", table, "--axis", "k=4")
    with safetensors.safe_open(ours, "numpy" if dtype == "f32" else "pt") as file:
        for key in ("tokens/embedding", "blocks/0/attn/query/kernel", "blocks/0/attn/out/kernel"):
            assert key in file.keys(), (key, list(file.keys()))
        assert tuple(file.get_tensor("blocks/0/attn/query/kernel").shape) == (16, 4, 4)
    convert(ours, "-o", folder / "model.safetensors", "--mapping", table, "--reverse", "--max-file-bytes", 4000, "--dtype", dtype)
    files = sorted(p.name for p in folder.iterdir())
    assert len(files) > 3 and "model.safetensors.index.json" in files, files
    shutil.copy(GOLDEN / name / "config.json", folder)
    expected = safetensors.numpy.load_file(GOLDEN / name / "expected.safetensors")
    kind = {"gpt2": transformers.GPT2LMHeadModel, "llama": transformers.LlamaForCausalLM, "bert": transformers.BertForMaskedLM}[table]
    model, info = kind.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    ids = {k: torch.tensor(v) for k, v in expected.items() if k != "logits"}
    with torch.no_grad():
        found = model.eval()(**ids).logits.float().numpy()
    assert numpy.abs(found - expected["logits"]).max() <= 1e-6, numpy.abs(found - expected["logits"]).max()
    print(f"{name}: {len(files)} files, logits are equal")


def check_gguf(name, scratch):
    """config.json and weights of a GGUF file."""
    folder = scratch / f"gguf_{name}"
    convert(GOLDEN.parent / "gguf" / "models" / f"{name}.gguf", "--architecture", "auto", "-o", folder)
    config = transformers.AutoConfig.from_pretrained(folder)
    expected = safetensors.numpy.load_file(GOLDEN / name / "expected.safetensors")
    if name == "gemma2":  # GGUF has no number for it
        config.query_pre_attn_scalar = transformers.AutoConfig.from_pretrained(GOLDEN / name).query_pre_attn_scalar
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float64, attn_implementation="eager",
                                                                    output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    with torch.no_grad():
        found = model.eval()(torch.tensor(expected["input_ids"])).logits.float().numpy()
    error = numpy.abs(found - expected["logits"]).max()
    assert error <= 1e-5, (name, error)
    transformers.AutoTokenizer.from_pretrained(folder)
    print(f"{name}: a directory of a GGUF file, logits differ by {error:.2g}")


def texts(count):
    """Words, numbers, spaces and characters of many languages, in any order."""
    rng = random.Random(1)
    words = (GOLDEN.parent / "tokenizers" / "snippets.txt").read_bytes().decode("unicode_escape").split()
    others = ["  ", "\n", "\t", "123", "4567", "'s", "don't", "\u00e9", "e\u0301", "\u4f60\u597d", "\U0001f600", "\u2581", "...", "<|x|>"]
    return ["".join(rng.choice([rng.choice(words) + " ", rng.choice(words), rng.choice(others)]) for _ in range(rng.randrange(8)))
            for _ in range(count)]


def grow(folder, count):
    """Gives the model a row for each of as many tokens."""
    weights = safetensors.numpy.load_file(folder / "model.safetensors")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = numpy.resize(weights[name], (count, weights[name].shape[1]))
    safetensors.numpy.save_file(weights, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": count}))


def check_tokenizer(name, scratch):
    """tokenizer.json of a GGUF file, whose metadata are made of another one."""
    source, folder = scratch / f"tokens_{name}", scratch / f"tokens_{name}_back"
    shutil.copytree(GOLDEN / "llama", source)
    (source / "tokenizer.json").write_text(plain_tokenizers.plain(name))
    grow(source, tokenizers.Tokenizer.from_file(str(source / "tokenizer.json")).get_vocab_size())
    convert(source, "--architecture", "auto", "-o", scratch / f"{name}.gguf")
    convert(scratch / f"{name}.gguf", "--architecture", "auto", "-o", folder)
    before, after = (tokenizers.Tokenizer.from_file(str(d / "tokenizer.json")) for d in (source, folder))
    whole = transformers.AutoTokenizer.from_pretrained(folder)
    strings = texts(1000)
    for text in strings:
        ids = before.encode(text).ids
        assert after.encode(text).ids == ids and whole(text)["input_ids"] == ids, (name, text, ids, after.encode(text).ids)
        assert after.decode(ids) == before.decode(ids), (name, text)
    print(f"{name}: {len(strings)} strings have the same ids and texts")


with tempfile.TemporaryDirectory() as directory:
    for name in ("llama", "llama3", "qwen2", "qwen3", "gemma", "gemma2", "gpt2"):
        check_gguf(name, pathlib.Path(directory))
    for name in ("gpt2", "llama2", "llama3", "qwen2"):
        check_tokenizer(name, pathlib.Path(directory))
    for name, table, dtype in (("gpt2", "gpt2", "f32"), ("llama", "llama", "f32"), ("llama_bf16", "llama", "bf16"), ("bert", "bert", "f32")):
        check(name, table, pathlib.Path(directory), dtype)
