"""What `tow convert-weights --architecture` writes, read by llama.cpp: gguf_test.py TOW. Exit status 77: gguf or xllamacpp is missing.

Each tiny model of golden/weights becomes a GGUF file, with the tokenizer of gguf_models.py, and has torch's logits there; then
safetensors again, with the same numbers. A wider model is written in all types, and has the logits of a model in f64 whose weights are
those of the file. Tokenizers that go from tokenizer.json to GGUF and back cut strings as llama.cpp does. Weights in blocks are multiplied with activations that llama.cpp rounds to 8 bits, 32 at a time: how far that moves the
logits is computed here, and llama.cpp's may be twice as far away, because near ties it rounds to the other side.
"""
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unicodedata
import urllib.request

import plain_tokenizers

try:
    import gguf
    import numpy as np
    import safetensors.numpy
    import xllamacpp
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

GOLDEN = pathlib.Path(__file__).resolve().parent / "golden"
NAMES = ["llama", "llama3", "llama_biases", "qwen2", "qwen3", "gemma", "gemma2", "gpt2"]


def tokenizer(count):
    """Characters from A on, and one merge."""
    vocab = {chr(ord("A") + i): i for i in range(count - 1)} | {"ab": count - 1}
    return {"version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "vocab": vocab, "merges": [["a", "b"]]}}


def convert(tow, *arguments):
    subprocess.run([tow, "convert-weights", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def log_probabilities(path, ids, count):
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = 64
    params.cpuparams.n_threads = 1
    params.warmup = False
    server = xllamacpp.Server(params)
    answer = server.handle_completions({"prompt": ids, "max_tokens": 1, "temperature": 1.0, "logprobs": count})
    top = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    found = np.full(count, np.nan)
    for t in top:
        found[t["id"]] = t["logprob"]
    return found


def log_softmax(x):
    x = x - x.max()
    return x - np.log(np.exp(x).sum())


def scale_queries(source):
    """llama.cpp has no number for query_pre_attn_scalar, which is the head's width there: the weights of queries make up for it."""
    config = json.loads((source / "config.json").read_text())
    weights = safetensors.numpy.load_file(source / "model.safetensors")
    factor = np.float32(np.sqrt(config["head_dim"] / config["query_pre_attn_scalar"]))
    weights = {k: w * factor if "q_proj" in k else w for k, w in weights.items()}
    safetensors.numpy.save_file(weights, source / "model.safetensors")
    (source / "config.json").write_text(json.dumps(config | {"query_pre_attn_scalar": config["head_dim"]}))


def tiny(tow, folder, name):
    source = folder / name
    shutil.copytree(GOLDEN / "weights" / name, source)
    if name == "gemma2":
        scale_queries(source)
    if name == "llama3":  # all positions of the model are asked for, and llama.cpp wants one more
        (source / "config.json").write_text((source / "config.json").read_text().replace('"max_position_embeddings": 32', '"max_position_embeddings": 64'))
    (source / "tokenizer.json").write_text(json.dumps(tokenizer(60)))
    convert(tow, source, "--architecture", "auto", "-o", folder / f"{name}.gguf")
    convert(tow, folder / f"{name}.gguf", "--architecture", "auto", "-o", folder / f"{name}_back")
    before, after = (safetensors.numpy.load_file(p / "model.safetensors") for p in (source, folder / f"{name}_back"))
    for key, x in after.items():
        original = before.get(key, before.get(key.removeprefix("transformer.")))
        tolerance = 2**-22 if name.startswith("gemma") and "norm" in key else 0
        assert np.abs(original - x).max() <= tolerance, (name, key)
    expected = safetensors.numpy.load_file(source / "expected.safetensors")
    found = log_probabilities(folder / f"{name}.gguf", expected["input_ids"][0].tolist(), 60)
    error = np.abs(found - log_softmax(expected["logits"][0, -1].astype(np.float64))).max()
    print(f"{name}: log probabilities differ from torch's by {error:.2g}")
    assert error < 0.004, name  # llama.cpp keeps keys and values in f16


def rounded(x):
    """Activations in 8 bits as llama.cpp has them: blocks of 32 with a scale of f16."""
    blocks = x.reshape(-1, 32)
    scale = (np.abs(blocks).max(-1, keepdims=True) / 127).astype(np.float32)
    numbers = np.round(np.divide(blocks, scale, out=np.zeros_like(blocks), where=scale != 0))
    return (numbers * scale.astype(np.float16).astype(np.float64)).reshape(x.shape)


def llama(weights, ids, heads, kv_heads, activations):
    """Log probabilities behind ids, in f64; products are made of activations(x)."""
    w = {k: x.astype(np.float64) for k, x in weights.items()}

    def product(name, x):
        return activations(x) @ w[name + ".weight"].T

    def norm(name, x):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w[name + ".weight"]

    def split(x, n):  # [heads, positions, features], turned
        return x.reshape(len(ids), n, -1).swapaxes(0, 1)

    def turn(x):
        half = x.shape[-1] // 2
        angles = np.arange(len(ids))[:, None] * 10000.0 ** (-np.arange(half) / half)
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1)

    x = w["model.embed_tokens.weight"][ids]
    mask = np.where(np.tri(len(ids)) > 0, 0, -np.inf)
    for i in range(2):
        p = f"model.layers.{i}."
        y = norm(p + "input_layernorm", x)
        q = turn(split(product(p + "self_attn.q_proj", y), heads))
        k, v = turn(split(product(p + "self_attn.k_proj", y), kv_heads)), split(product(p + "self_attn.v_proj", y), kv_heads)
        k, v = (np.repeat(z, heads // kv_heads, 0) for z in (k, v))
        scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1]) + mask
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        y = (scores / scores.sum(-1, keepdims=True) @ v).swapaxes(0, 1).reshape(x.shape)
        x = x + product(p + "self_attn.o_proj", y)
        y = norm(p + "post_attention_layernorm", x)
        gate = product(p + "mlp.gate_proj", y)
        x = x + product(p + "mlp.down_proj", gate / (1 + np.exp(-gate)) * product(p + "mlp.up_proj", y))
    return log_softmax(product("lm_head", norm("model.norm", x)[-1:])[0])


def as_stored(weights, type):
    """The numbers that a file of this type has."""
    dtype = gguf.GGMLQuantizationType[type.upper()]
    return {k: gguf.dequantize(gguf.quantize(w.astype(np.float32), dtype), dtype) if w.ndim > 1 else w for k, w in weights.items()}


def types(tow, folder):
    rng = np.random.default_rng(0)
    source = folder / "wide"
    source.mkdir()
    d, h, v = 64, 128, 60
    shapes = {"model.embed_tokens.weight": (v, d), "model.norm.weight": (d,), "lm_head.weight": (v, d)}
    for i in range(2):
        p = f"model.layers.{i}."
        shapes |= {p + "input_layernorm.weight": (d,), p + "post_attention_layernorm.weight": (d,), p + "self_attn.q_proj.weight": (d, d),
                   p + "self_attn.k_proj.weight": (d // 2, d), p + "self_attn.v_proj.weight": (d // 2, d),
                   p + "self_attn.o_proj.weight": (d, d), p + "mlp.gate_proj.weight": (h, d), p + "mlp.up_proj.weight": (h, d),
                   p + "mlp.down_proj.weight": (d, h)}
    weights = {k: (rng.normal(1 if len(s) == 1 else 0, 0.1, s)).astype(np.float32) for k, s in shapes.items()}
    safetensors.numpy.save_file(weights, source / "model.safetensors")
    (source / "config.json").write_text(json.dumps(dict(
        model_type="llama", hidden_size=d, intermediate_size=h, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=10000.0, vocab_size=v, bos_token_id=1, eos_token_id=2)))
    (source / "tokenizer.json").write_text(json.dumps(tokenizer(v)))
    ids = rng.integers(3, v, 20).tolist()
    for type in ("f32", "f16", "bf16", "q8_0", "q4_0"):
        path = folder / f"wide_{type}.gguf"
        convert(tow, source, "--architecture", "llama", "--type", type, "-o", path)
        for t in gguf.GGUFReader(path).tensors:
            assert t.tensor_type.name.lower() == (type if len(t.shape) > 1 else "f32"), t
            if t.name == "blk.0.attn_q.weight" and type in ("q8_0", "q4_0"):  # as the package quantizes the same rows
                x = weights["model.layers.0.self_attn.q_proj.weight"].reshape(4, 2, 8, d).swapaxes(1, 2).reshape(d, d)
                assert (t.data == gguf.quantize(x, t.tensor_type)).all()
        stored = as_stored(weights, type)
        exact = llama(stored, ids, 4, 2, lambda x: x)
        most = 0.004  # keys and values in f16
        if type in ("q8_0", "q4_0"):
            most += 2 * np.abs(llama(stored, ids, 4, 2, rounded) - exact).max()
        elif type != "f32":  # llama.cpp's activations are numbers of the weights' type
            most += 2 * np.abs(llama(stored, ids, 4, 2, lambda x: as_stored({"x": x}, type)["x"].astype(np.float64)) - exact).max()
        error = np.abs(log_probabilities(path, ids, v) - exact).max()
        print(f"{type}: log probabilities differ by {error:.2g}, at most {most:.2g}")
        assert error < most, type


def metaspace(text):
    """Llama's tokenizer as transformers writes it today: a space in front of a text that begins with none."""
    space = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
    return json.dumps(json.loads(text) | {"normalizer": None, "pre_tokenizer": space})


def cut(tow, folder, name, change=lambda text: text):
    """The tokenizer that a directory gets of a GGUF file, beside llama.cpp's of that file."""
    try:
        import tokenizers
    except ImportError:
        return
    source = pathlib.Path(tempfile.mkdtemp(dir=folder))
    (source / "tokenizer.json").write_text(change(plain_tokenizers.plain(name)))
    count, d = tokenizers.Tokenizer.from_file(str(source / "tokenizer.json")).get_vocab_size(), 32
    names = {"input_layernorm": (d,), "post_attention_layernorm": (d,)} | {
        n: (d, d) for n in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
                            "mlp.down_proj")}
    weights = {"model.embed_tokens.weight": np.ones((count, d), np.float32), "model.norm.weight": np.ones(d, np.float32)}
    weights |= {f"model.layers.0.{n}.weight": np.ones(shape, np.float32) for n, shape in names.items()}
    safetensors.numpy.save_file(weights, source / "model.safetensors")
    (source / "config.json").write_text(json.dumps(dict(
        model_type="llama", hidden_size=d, intermediate_size=d, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
        max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=10000.0, vocab_size=count, tie_word_embeddings=True)))
    convert(tow, source, "--architecture", "auto", "-o", source / "tokens.gguf")
    convert(tow, source / "tokens.gguf", "--architecture", "auto", "-o", source / "tokens")
    written = tokenizers.Tokenizer.from_file(str(source / "tokens" / "tokenizer.json"))
    params = xllamacpp.CommonParams()
    params.model.path = str(source / "tokens.gguf")
    params.n_ctx = 64
    params.warmup = False
    server = xllamacpp.Server(params)
    rng = random.Random(2)
    words = (GOLDEN / "tokenizers" / "snippets.txt").read_bytes().decode("unicode_escape").split()
    for _ in range(250):
        text = rng.choice(["", " ", "<s>", "<s> "]) + rng.choice([" ", "<s>", "</s>  "]).join(rng.choice(words) for _ in range(rng.randrange(1, 6)))
        text = unicodedata.normalize("NFC", text)  # as Qwen 2's tokenizer does, and llama.cpp does not
        body = json.dumps({"content": text, "add_special": False, "parse_special": True}).encode()
        request = urllib.request.Request(server.listening_address + "/tokenize", body, {"Content-Type": "application/json"})
        found = json.load(urllib.request.urlopen(request))["tokens"]
        ids = written.encode(text, add_special_tokens=False).ids
        assert ids == found, (name, text, ids, found)
    print(f"{name}: 250 strings have llama.cpp's ids")


def main():
    tow = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name in NAMES:
            tiny(tow, folder, name)
        types(tow, folder)
        for name in ("gpt2", "llama2", "llama3", "qwen2"):
            cut(tow, folder, name)
        cut(tow, folder, "llama2", metaspace)
    print("what tow wrote is right")


main()
