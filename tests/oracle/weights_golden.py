"""Tiny random models of Hugging Face's transformers, as files, with their logits: golden/weights/NAME.

gpt2, llama (grouped keys, rotary positions), llama_bf16 (in several files), bert (masked language model), qwen3 (norms of queries and
keys), gemma2 (four norms, capped logits, local and global layers), phi3 (joined projections), qwen2 (biases of queries, keys and
values), gemma, llama3 (scaled rotary positions, 32 of them), llama_biases (of all products of a layer). Logits are computed in double precision
from the values in the files. By hand: python tests/oracle/weights_golden.py [NAME...]
"""
import json
import pathlib
import shutil
import sys

import safetensors.numpy
import torch
import transformers

FOLDER = pathlib.Path(__file__).parent / "golden" / "weights"


def randomise(model, seed, scale=1.0):
    """Values of ordinary size everywhere, so that no bias is zero and no scale is one, about which they are."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * 0.2 + (scale if p.dim() == 1 and "norm" in name.lower() or ".ln_" in name and name.endswith("weight") else 0.0))


def save(name, model, ids, dtype=torch.float32, **options):
    if sys.argv[1:] and name not in sys.argv[1:]:
        return
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    model.to(dtype).save_pretrained(folder, **options)
    (folder / "generation_config.json").unlink(missing_ok=True)
    model = type(model).from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")  # tables are computed anew
    with torch.no_grad():
        logits = model.eval()(**{k: torch.tensor(v) for k, v in ids.items()}).logits
    arrays = {k: torch.tensor(v, dtype=torch.int32).numpy() for k, v in ids.items()}
    safetensors.numpy.save_file({"logits": logits.float().numpy(), **arrays}, folder / "expected.safetensors")


def main():
    torch.manual_seed(0)
    ids = torch.randint(0, 60, (2, 9), generator=torch.Generator().manual_seed(1)).tolist()
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=60, n_positions=12, n_embd=16, n_layer=2, n_head=4, attn_implementation="eager"))
    randomise(gpt2, 2)
    save("gpt2", gpt2, {"input_ids": ids})
    llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=60, hidden_size=16, intermediate_size=24, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32, rms_norm_eps=1e-5, attn_implementation="eager",
        rope_theta=10000.0))
    randomise(llama, 3)
    save("llama", llama, {"input_ids": ids})
    save("llama_bf16", llama, {"input_ids": ids}, torch.bfloat16, max_shard_size="4KB")
    bert = transformers.BertForMaskedLM(transformers.BertConfig(
        vocab_size=60, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32,
        max_position_embeddings=12, attn_implementation="eager"))
    randomise(bert, 4)
    types = [[0] * 5 + [1] * 4, [0] * 9]
    save("bert", bert, {"input_ids": ids, "token_type_ids": types})
    small = dict(vocab_size=60, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                 max_position_embeddings=32, attn_implementation="eager")
    qwen3 = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(
        **small, head_dim=8, rms_norm_eps=1e-6, rope_theta=1000000.0, tie_word_embeddings=True))
    randomise(qwen3, 5)
    save("qwen3", qwen3, {"input_ids": ids})
    gemma2 = transformers.Gemma2ForCausalLM(transformers.Gemma2Config(
        **small, head_dim=8, query_pre_attn_scalar=12, attn_logit_softcapping=2.0, final_logit_softcapping=3.0, sliding_window=4,
        rms_norm_eps=1e-6, pad_token_id=0, bos_token_id=1, eos_token_id=2))
    randomise(gemma2, 6, scale=0.0)
    save("gemma2", gemma2, {"input_ids": ids})
    qwen2 = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**small, rms_norm_eps=1e-6, tie_word_embeddings=False))
    randomise(qwen2, 8)
    save("qwen2", qwen2, {"input_ids": ids})
    gemma = transformers.GemmaForCausalLM(transformers.GemmaConfig(
        **small, head_dim=8, rms_norm_eps=1e-6, pad_token_id=0, bos_token_id=1, eos_token_id=2))
    randomise(gemma, 9, scale=0.0)
    save("gemma", gemma, {"input_ids": ids})
    phi3 = transformers.Phi3ForCausalLM(transformers.Phi3Config(
        **small, rms_norm_eps=1e-5, pad_token_id=0, bos_token_id=1, eos_token_id=2, original_max_position_embeddings=32))
    randomise(phi3, 7)
    save("phi3", phi3, {"input_ids": ids})
    llama3 = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        **small, head_dim=8, rms_norm_eps=1e-5, tie_word_embeddings=True, rope_parameters=dict(
            rope_type="llama3", rope_theta=500000.0, factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=8192)))
    randomise(llama3, 10)
    save("llama3", llama3, {"input_ids": torch.randint(0, 60, (1, 32), generator=torch.Generator().manual_seed(11)).tolist()})
    biases = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        **small, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=True, attention_bias=True, mlp_bias=True))
    randomise(biases, 12)
    save("llama_biases", biases, {"input_ids": ids})
    for config in FOLDER.glob("*/config.json"):  # without what changes with the version of transformers
        values = json.loads(config.read_text())
        values.pop("transformers_version", None)
        config.write_text(json.dumps(values, indent=1, sort_keys=True) + "\n")


main()
