"""The tiny models of golden/weights as llama.cpp has them: golden/gguf/models/NAME.gguf, which tests/unit/weights/test_gguf_weights.c reads.

    python3 tests/oracle/gguf_models.py                      (made with gguf 0.19.0)
    python3 tests/oracle/gguf_models.py --check FOLDER       (llama.cpp's logits, from xllamacpp, of FOLDER/NAME.gguf beside torch's)

Names and arrangement are those of convert_hf_to_gguf.py: rows of queries and keys of Llama in pairs, norms of Gemma with 1 added,
linear layers of GPT-2 as [out, in]. mixed is llama with tokens in bf16, layers in f16 and an output in f32, and mixed.safetensors the logits
of these numbers in f64; unequal has one matrix in f16 alone; few_bits has tokens in Q8_0, layers in Q4_0 and an output in f16; kinds is
few_bits with some of its matrices in Q8_0, one of them in one layer. copied is gpt2 with tokens in F16 and, as output.weight, in F32, of which
copied.safetensors has the logits in f64. llama3 has rope_freqs.weight, by which the frequencies of rotary positions are divided.
"""
import json
import math
import pathlib
import sys
import tempfile

import numpy as np
import safetensors.numpy

GOLDEN = pathlib.Path(__file__).resolve().parent / "golden"
NAMES = ["llama", "qwen2", "qwen3", "gemma", "gemma2", "gpt2", "llama_biases", "llama3"]
LAYER = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm"}
GEMMA2 = {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
          "post_feedforward_layernorm": "post_ffw_norm"}
GPT2 = {"ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up",
        "mlp.c_proj": "ffn_down"}
TOP = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output", "wte": "token_embd", "wpe": "position_embd",
       "ln_f": "output_norm"}


def permute(x, heads):
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def tensors(name, config):
    for key, x in safetensors.numpy.load_file(GOLDEN / "weights" / name / "model.safetensors").items():
        key = key.removeprefix("model.").removeprefix("transformer.")
        stem, kind = key.rsplit(".", 1)
        if stem.startswith(("layers.", "h.")):
            _, layer, rest = stem.split(".", 2)
            table = GPT2 if name == "gpt2" else LAYER | GEMMA2 if name == "gemma2" else LAYER
            if rest not in table:
                continue  # masks
            stem = f"blk.{layer}.{table[rest]}"
            if name.startswith("llama") and rest in ("self_attn.q_proj", "self_attn.k_proj"):
                x = permute(x, config["num_attention_heads" if "q_proj" in rest else "num_key_value_heads"])
            if name == "gpt2" and kind == "weight" and "norm" not in stem:
                x = x.T
        else:
            if stem == "lm_head" and name in ("gpt2", "gemma", "gemma2", "qwen3", "llama3", "llama_biases"):
                continue
            stem = TOP[stem]
        if name.startswith("gemma") and stem.endswith("norm"):
            x = x + 1
        yield f"{stem}.{kind}", np.ascontiguousarray(x)


def rope_factors(c):
    """As convert_hf_to_gguf.py makes them, in f32."""
    rope = c["rope_parameters"]
    low, high, length = rope["low_freq_factor"], rope["high_freq_factor"], rope["original_max_position_embeddings"]
    frequencies = (rope["rope_theta"] ** (np.arange(0, c["head_dim"], 2, dtype=np.float32) / np.float32(c["head_dim"]))) ** np.float32(-1)
    factors = []
    for wavelength in 2 * math.pi / frequencies:
        smooth = (length / wavelength - low) / (high - low)
        factors.append(1 if wavelength < length / high else rope["factor"] if wavelength > length / low
                       else 1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(factors, dtype=np.float32)


def header(w, name, c):
    heads = c.get("num_attention_heads", c.get("n_head"))
    w.add_block_count(c.get("num_hidden_layers", c.get("n_layer")))
    w.add_context_length(c.get("max_position_embeddings", c.get("n_positions")))
    w.add_embedding_length(c.get("hidden_size", c.get("n_embd")))
    w.add_feed_forward_length(c.get("intermediate_size", 4 * c.get("n_embd", 0)))
    w.add_head_count(heads)
    if name == "gpt2":
        w.add_layer_norm_eps(c["layer_norm_epsilon"])
    else:
        w.add_head_count_kv(c["num_key_value_heads"])
        w.add_layer_norm_rms_eps(c["rms_norm_eps"])
        w.add_rope_freq_base(c["rope_parameters"]["rope_theta"])
        if "head_dim" in c:
            w.add_key_length(c["head_dim"])
            w.add_value_length(c["head_dim"])
    if name == "gemma2":
        w.add_attn_logit_softcapping(c["attn_logit_softcapping"])
        w.add_final_logit_softcapping(c["final_logit_softcapping"])
        w.add_sliding_window(c["sliding_window"])
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list([chr(ord("A") + i) for i in range(c["vocab_size"] - 1)] + ["ab"])
    w.add_token_types([1] * c["vocab_size"])
    w.add_token_merges(["a b"])
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)


def write():
    import gguf
    (GOLDEN / "gguf" / "models").mkdir(exist_ok=True, parents=True)
    for name in NAMES:
        config = json.loads((GOLDEN / "weights" / name / "config.json").read_text())
        w = gguf.GGUFWriter(GOLDEN / "gguf" / "models" / f"{name}.gguf", "llama" if name.startswith("llama") else name)
        header(w, name, config)
        for key, x in tensors(name, config):
            w.add_tensor(key, x)
        if name == "llama3":
            w.add_tensor("rope_freqs.weight", rope_factors(config))
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()


def write_types(name, config, weights, type_of):
    """Tensors of the types type_of(name); yields the numbers that they then are."""
    import gguf
    w = gguf.GGUFWriter(GOLDEN / "gguf" / "models" / f"{name}.gguf", "llama")
    header(w, "llama", config)
    for key, x in weights:
        dtype = gguf.GGMLQuantizationType[type_of(key)] if x.ndim > 1 else gguf.GGMLQuantizationType.F32
        data = gguf.quantize(x, dtype)
        w.add_tensor(key, data, raw_dtype=dtype)
        yield key, gguf.dequantize(data, dtype)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def mixed():
    import torch
    import transformers
    folder = GOLDEN / "weights" / "llama"
    config = json.loads((folder / "config.json").read_text())
    # Norms are kept in the type of their layer.
    weights = [(k, x.astype(np.float16).astype(np.float32) if "norm" in k else x) for k, x in tensors("llama", config)]
    stored = dict(write_types("mixed", config, weights,
                              lambda k: "BF16" if k.startswith("token") else "F32" if k.startswith("output") else "F16"))
    dict(write_types("unequal", config, weights, lambda k: "F16" if k == "blk.2.ffn_up.weight" else "F32"))
    model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
    for key, p in model.named_parameters():
        stem, kind = key.removeprefix("model.").rsplit(".", 1)
        layer = stem.split(".", 2)
        x = stored[f"{TOP[stem]}.{kind}" if len(layer) < 3 else f"blk.{layer[1]}.{LAYER[layer[2]]}.{kind}"]
        if "q_proj" in key or "k_proj" in key:
            heads = config["num_attention_heads" if "q_proj" in key else "num_key_value_heads"]
            x = x.reshape(heads, x.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(x.shape)
        p.data.copy_(torch.tensor(x))
    ids = safetensors.numpy.load_file(folder / "expected.safetensors")["input_ids"]
    with torch.no_grad():
        logits = model(torch.tensor(ids.astype(np.int64))).logits.float().numpy()
    safetensors.numpy.save_file({"logits": logits, "input_ids": ids}, GOLDEN / "gguf" / "models" / "mixed.safetensors")
    (GOLDEN / "gguf" / "models" / "mixed.safetensors").chmod(0o644)


def copied():
    """Converters of llama.cpp wrote the tokens of GPT-2 twice for long; the copy has a type of its own, and is what it multiplies with."""
    import gguf
    import torch
    import transformers
    folder = GOLDEN / "weights" / "gpt2"
    config = json.loads((folder / "config.json").read_text())
    w = gguf.GGUFWriter(GOLDEN / "gguf" / "models" / "copied.gguf", "gpt2")
    header(w, "gpt2", config)
    model = transformers.GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
    for key, x in tensors("gpt2", config):
        if key == "token_embd.weight":
            w.add_tensor("output.weight", x)
            x = x.astype(np.float16)
            model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
            model.transformer.wte.weight.data.copy_(torch.tensor(x.astype(np.float64)))
        w.add_tensor(key, x)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    ids = safetensors.numpy.load_file(folder / "expected.safetensors")["input_ids"]
    with torch.no_grad():
        logits = model(torch.tensor(ids.astype(np.int64))).logits.float().numpy()
    safetensors.numpy.save_file({"logits": logits, "input_ids": ids}, GOLDEN / "gguf" / "models" / "copied.safetensors")
    (GOLDEN / "gguf" / "models" / "copied.safetensors").chmod(0o644)


def few_bits_logits(w, ids):
    """In f64, but for activations in front of layers' matrices, which are integers of 8 bits times a scale for each 32; and how near to a
    tie of that rounding one is, in integers."""
    w = {k.removesuffix(".weight"): x.astype(np.float64) for k, x in w.items()}
    nearest = [1.0]

    def product(name, x):
        blocks = x.reshape(-1, 32)
        scale = (np.abs(blocks).max(-1, keepdims=True) / 127).astype(np.float32).astype(np.float64)
        codes = blocks / scale
        nearest[0] = min(nearest[0], np.abs(np.abs(codes - np.floor(codes)) - 0.5).min())
        return (np.round(codes) * scale).reshape(x.shape) @ w[name].T

    def norm(name, x):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w[name]

    def turn(x):  # [positions, heads, features], pairs side by side
        angles = (np.arange(len(ids))[:, None] * 10000.0 ** (-np.arange(8) / 8))[:, None]
        a, b = x[..., 0::2], x[..., 1::2]
        return np.stack([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1).reshape(x.shape)

    x = w["token_embd"][ids]
    for i in range(2):
        p = f"blk.{i}."
        y = norm(p + "attn_norm", x)
        q, k = (turn(product(p + n, y).reshape(len(ids), -1, 16)) for n in ("attn_q", "attn_k"))
        scores = np.einsum("thk,sgk->hts", q, k) / 4 + np.where(np.tri(len(ids)) > 0, 0, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        y = np.einsum("hts,sk->thk", scores / scores.sum(-1, keepdims=True), product(p + "attn_v", y)).reshape(x.shape)
        x = x + product(p + "attn_output", y)
        y = norm(p + "ffn_norm", x)
        gate = product(p + "ffn_gate", y)
        x = x + product(p + "ffn_down", gate / (1 + np.exp(-gate)) * product(p + "ffn_up", y))
    return (norm("output_norm", x) @ w["output"].T)[None], nearest[0]


def few_bits(model, type_of):
    rng = np.random.default_rng(5)
    d = 32
    config = dict(vocab_size=60, hidden_size=d, intermediate_size=d, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                  max_position_embeddings=32, rms_norm_eps=1e-5, rope_parameters={"rope_theta": 10000.0})
    shapes = {"token_embd.weight": (60, d), "output_norm.weight": (d,), "output.weight": (60, d)}
    for i in range(2):
        for name, rows in dict(attn_q=d, attn_k=d // 2, attn_v=d // 2, attn_output=d, ffn_gate=d, ffn_up=d, ffn_down=d).items():
            shapes[f"blk.{i}.{name}.weight"] = (rows, d)
        shapes |= {f"blk.{i}.attn_norm.weight": (d,), f"blk.{i}.ffn_norm.weight": (d,)}
    weights = [(k, rng.normal(len(s) == 1, 0.2, s).astype(np.float32)) for k, s in shapes.items()]
    stored = dict(write_types(model, config, weights, type_of))
    for seed in range(1000):  # until no activation is rounded one way or the other by an error of f32
        ids = np.random.default_rng(seed).integers(0, 60, (1, 4)).astype(np.int32)
        logits, nearest = few_bits_logits(stored, ids[0])
        if nearest > 5e-4:
            break
    safetensors.numpy.save_file({"logits": logits.astype(np.float32), "input_ids": ids}, GOLDEN / "gguf" / "models" / f"{model}.safetensors")
    (GOLDEN / "gguf" / "models" / f"{model}.safetensors").chmod(0o644)


def log_softmax(x):
    x = x - x.max()
    return x - np.log(np.exp(x).sum())


def check(folder):
    import xllamacpp
    worst = 0
    for name in NAMES:
        path = pathlib.Path(folder) / f"{name}.gguf"
        if not path.exists():
            continue
        expected = safetensors.numpy.load_file(GOLDEN / "weights" / name / "expected.safetensors")
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx = 32
        params.cpuparams.n_threads = 1
        params.warmup = False
        server = xllamacpp.Server(params)
        ids = expected["input_ids"][0].tolist()
        answer = server.handle_completions({"prompt": ids, "max_tokens": 1, "n_predict": 1, "n_probs": 60, "temperature": 1.0, "logprobs": 60})
        choice = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        found = np.full(60, -np.inf)
        for t in choice:
            found[t["id"]] = t["logprob"]
        wanted = log_softmax(expected["logits"][0, -1].astype(np.float64))
        error = np.abs(found - wanted)[np.isfinite(found)].max()
        print(f"{name}: {np.isfinite(found).sum()} tokens, largest difference of log probabilities {error:.2g}")
        worst = max(worst, error)
    return 0 if worst < float("inf") else 1


if __name__ == "__main__":
    if len(sys.argv) == 3:
        sys.exit(check(sys.argv[2]))
    write()
    mixed()
    copied()
    few_bits("few_bits", lambda k: "Q8_0" if k.startswith("token") else "F16" if k.startswith("output") else "Q4_0")
    few_bits("kinds", lambda k: "F16" if k.startswith("output") else "Q8_0" if "token" in k or "ffn_down" in k or k == "blk.1.attn_v.weight"
             else "Q4_0")
