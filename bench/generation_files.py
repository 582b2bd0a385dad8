"""Models with random weights for measuring generation: the same numbers as a directory of Hugging Face's transformers and as GGUF.

    python bench/generation_files.py DIRECTORY [gpt2|llama ...]

gpt2 is GPT-2 of 124 million parameters; llama has 110 million, 12 layers of 768 features, 12 heads over 4 pairs of keys and values, 2048
hidden features, an own head. Each becomes DIRECTORY/NAME with config.json, model.safetensors and tokenizer.json, and
DIRECTORY/NAME-TYPE.gguf for f32, f16, bf16, q8_0 and q4_0. The tokenizer knows bytes: a text of so many letters has so many tokens.
"""
import json
import pathlib
import sys

import gguf
import numpy as np

TYPES = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16, "bf16": gguf.GGMLQuantizationType.BF16,
         "q8_0": gguf.GGMLQuantizationType.Q8_0, "q4_0": gguf.GGMLQuantizationType.Q4_0}
WIDTH, LAYERS, HEADS = 768, 12, 12
VOCABULARY = {"gpt2": 50257, "llama": 32000}
KV, HIDDEN = 4 * 64, {"gpt2": 3072, "llama": 2048}


def draw(rng, *dims):
    return (rng.standard_normal(dims, dtype=np.float32) * 0.02)


def ones(rng, *dims):
    return 1 + draw(rng, *dims)


def gpt2_tensors(rng):
    """(name of transformers, name of GGUF, array as transformers has it)"""
    yield "transformer.wte.weight", "token_embd.weight", draw(rng, VOCABULARY["gpt2"], WIDTH)
    yield "transformer.wpe.weight", "position_embd.weight", draw(rng, 1024, WIDTH)
    for i in range(LAYERS):
        for theirs, ours, n_in, n_out in (("attn.c_attn", "attn_qkv", WIDTH, 3 * WIDTH), ("attn.c_proj", "attn_output", WIDTH, WIDTH),
                                          ("mlp.c_fc", "ffn_up", WIDTH, 4 * WIDTH), ("mlp.c_proj", "ffn_down", 4 * WIDTH, WIDTH)):
            yield f"transformer.h.{i}.{theirs}.weight", f"blk.{i}.{ours}.weight", draw(rng, n_in, n_out)
            yield f"transformer.h.{i}.{theirs}.bias", f"blk.{i}.{ours}.bias", draw(rng, n_out)
        for theirs, ours in (("ln_1", "attn_norm"), ("ln_2", "ffn_norm")):
            yield f"transformer.h.{i}.{theirs}.weight", f"blk.{i}.{ours}.weight", ones(rng, WIDTH)
            yield f"transformer.h.{i}.{theirs}.bias", f"blk.{i}.{ours}.bias", draw(rng, WIDTH)
    yield "transformer.ln_f.weight", "output_norm.weight", ones(rng, WIDTH)
    yield "transformer.ln_f.bias", "output_norm.bias", draw(rng, WIDTH)


def llama_tensors(rng):
    hidden = HIDDEN["llama"]
    yield "model.embed_tokens.weight", "token_embd.weight", draw(rng, VOCABULARY["llama"], WIDTH)
    for i in range(LAYERS):
        for theirs, ours, n_in, n_out in (("self_attn.q_proj", "attn_q", WIDTH, WIDTH), ("self_attn.k_proj", "attn_k", WIDTH, KV),
                                          ("self_attn.v_proj", "attn_v", WIDTH, KV), ("self_attn.o_proj", "attn_output", WIDTH, WIDTH),
                                          ("mlp.gate_proj", "ffn_gate", WIDTH, hidden), ("mlp.up_proj", "ffn_up", WIDTH, hidden),
                                          ("mlp.down_proj", "ffn_down", hidden, WIDTH)):
            yield f"model.layers.{i}.{theirs}.weight", f"blk.{i}.{ours}.weight", draw(rng, n_out, n_in)
        for theirs, ours in (("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm")):
            yield f"model.layers.{i}.{theirs}.weight", f"blk.{i}.{ours}.weight", ones(rng, WIDTH)
    yield "model.norm.weight", "output_norm.weight", ones(rng, WIDTH)
    yield "lm_head.weight", "output.weight", draw(rng, VOCABULARY["llama"], WIDTH)


def tensors_of(name, rng):
    return (gpt2_tensors if name == "gpt2" else llama_tensors)(rng)


CONFIGS = {
    "gpt2": {"model_type": "gpt2", "vocab_size": VOCABULARY["gpt2"], "n_positions": 1024, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS,
             "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new"},
    "llama": {"model_type": "llama", "vocab_size": VOCABULARY["llama"], "max_position_embeddings": 2048, "hidden_size": WIDTH,
              "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": 4, "head_dim": 64,
              "intermediate_size": HIDDEN["llama"], "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False,
              "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
}


def byte_letters():
    """GPT-2's letters of the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, n = {}, 0
    for b in range(256):
        letters[b] = chr(b) if b in plain else chr(256 + n)
        n += b not in plain
    return [letters[b] for b in range(256)]


def vocabulary(name):
    """Bytes, one pair that merges (a list of none is no list in GGUF), and tokens that no text has."""
    letters = byte_letters()
    return [*letters, letters[0] + letters[0], *(f"<unused{i}>" for i in range(VOCABULARY[name] - 257))]


def write_tokenizer(folder, name):
    tokens = vocabulary(name)
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    folder.joinpath("tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": level,
        "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
                  "fuse_unk": False, "byte_fallback": False, "vocab": {t: i for i, t in enumerate(tokens)},
                  "merges": [f"{tokens[0]} {tokens[0]}"]}}))


def permuted(weight):
    """Rows of query and key as GGUF has them for Llama: pairs (i, i + 32) of a head become (2i, 2i + 1)."""
    return weight.reshape(-1, 2, 32, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(path, name, tensors, type_name):
    writer, config = gguf.GGUFWriter(path, name), CONFIGS[name]
    writer.add_context_length(config.get("n_positions", 2048))
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN[name])
    writer.add_head_count(HEADS)
    if name == "gpt2":
        writer.add_layer_norm_eps(1e-5)
    else:
        writer.add_head_count_kv(4)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_dimension_count(64)
        writer.add_rope_freq_base(10000.0)
        writer.add_vocab_size(VOCABULARY[name])
    tokens = vocabulary(name)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * 257 + [5] * (len(tokens) - 257))
    writer.add_token_merges([f"{tokens[0]} {tokens[0]}"])
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(256)
    for theirs, ours, array in tensors:
        if theirs.startswith("transformer.h.") and theirs.endswith(".weight") and array.ndim == 2:
            array = np.ascontiguousarray(array.T)
        if ours.endswith(("attn_q.weight", "attn_k.weight")):
            array = permuted(array)
        kind = TYPES[type_name] if array.ndim == 2 and ours != "position_embd.weight" else gguf.GGMLQuantizationType.F32
        data = array if kind == gguf.GGMLQuantizationType.F32 else gguf.quants.quantize(array, kind)
        writer.add_tensor(ours, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    directory = pathlib.Path(sys.argv[1])
    for name in sys.argv[2:] or CONFIGS:
        folder = directory / name
        folder.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(1)
        tensors = list(tensors_of(name, rng))
        import safetensors.numpy  # GGUF does without

        safetensors.numpy.save_file({theirs: array for theirs, _, array in tensors}, folder / "model.safetensors", {"format": "pt"})
        folder.joinpath("config.json").write_text(json.dumps(CONFIGS[name], indent=1) + "\n")
        write_tokenizer(folder, name)
        for type_name in TYPES:
            write_gguf(directory / f"{name}-{type_name}.gguf", name, tensors, type_name)


if __name__ == "__main__":
    main()
