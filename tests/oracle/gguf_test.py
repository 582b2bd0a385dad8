"""What `tow convert-weights --architecture` writes, read by llama.cpp: gguf_test.py TOW. Exit status 77: gguf or xllamacpp is missing.

Each tiny model of golden/weights becomes a GGUF file, with the tokenizer of gguf_models.py, and has torch's logits there; then
safetensors again, with the same numbers. A wider model is written in all types, whose logits are near those of f32.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

try:
    import gguf
    import numpy as np
    import safetensors.numpy
    import xllamacpp
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

GOLDEN = pathlib.Path(__file__).resolve().parent / "golden"
NAMES = ["llama", "qwen2", "qwen3", "gemma", "gemma2", "gpt2"]


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


def tiny(tow, folder, name):
    source = folder / name
    shutil.copytree(GOLDEN / "weights" / name, source)
    (source / "tokenizer.json").write_text(json.dumps(tokenizer(60)))
    convert(tow, source, "--architecture", "auto", "-o", folder / f"{name}.gguf")
    convert(tow, folder / f"{name}.gguf", "--architecture", "auto", "-o", folder / f"{name}.safetensors")
    before, after = (safetensors.numpy.load_file(p) for p in (source / "model.safetensors", folder / f"{name}.safetensors"))
    for key, x in after.items():
        original = before.get(key, before.get(key.removeprefix("transformer.")))
        tolerance = 2**-22 if name.startswith("gemma") and "norm" in key else 0
        assert np.abs(original - x).max() <= tolerance, (name, key)
    expected = safetensors.numpy.load_file(source / "expected.safetensors")
    found = log_probabilities(folder / f"{name}.gguf", expected["input_ids"][0].tolist(), 60)
    error = np.abs(found - log_softmax(expected["logits"][0, -1].astype(np.float64))).max()
    print(f"{name}: log probabilities differ from torch's by {error:.2g}")
    # llama.cpp keeps keys and values in f16; and it has no number for Gemma 2's query_pre_attn_scalar, which is the head's width there
    assert error < (0.3 if name == "gemma2" else 0.004), name


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
    results = {}
    for type in ("f32", "f16", "bf16", "q8_0", "q4_0"):
        path = folder / f"wide_{type}.gguf"
        convert(tow, source, "--architecture", "llama", "--type", type, "-o", path)
        for t in gguf.GGUFReader(path).tensors:
            assert t.tensor_type.name.lower() == (type if len(t.shape) > 1 else "f32"), t
            if t.name == "blk.0.attn_q.weight" and type in ("q8_0", "q4_0"):  # as the package quantizes the same rows
                x = weights["model.layers.0.self_attn.q_proj.weight"].reshape(4, 2, 8, d).swapaxes(1, 2).reshape(d, d)
                assert (t.data == gguf.quantize(x, t.tensor_type)).all()
        results[type] = log_probabilities(path, ids, v)
    for type, most in (("f16", 0.01), ("bf16", 0.05), ("q8_0", 0.15), ("q4_0", 1.0)):
        error = np.abs(results[type] - results["f32"]).max()
        print(f"{type}: log probabilities differ from f32's by {error:.2g}")
        assert error < most, type


def main():
    tow = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name in NAMES:
            tiny(tow, folder, name)
        types(tow, folder)
    print("what tow wrote is right")


main()
