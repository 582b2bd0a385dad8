"""Writes golden/generation.txt: what transformers' generate() makes of small models, which tests/unit/model/test_generation.c has as well.

Weights are a formula of their path in Tow (value below), so that there are no files of them. Each prompt is gone on with alone, in
double precision. A case is

    model sequences beams length_penalty early_stopping repetition presence frequency min_tokens limit
    n_ends ends... n_stops (n tokens...)...
    batch, then for each prompt: n tokens..., for "bart" its source: n tokens...
    then for each prompt and sequence: n tokens... log-probabilities... score

Run: python tests/oracle/generation_golden.py
"""

import os

import numpy as np
import torch
import transformers
from transformers import LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList

V, D, H, G, LAYERS, LENGTH, HIDDEN, SOURCE = 29, 16, 4, 2, 2, 40, 24, 6
PAD, START = 0, 2


# ---- weights -------------------------------------------------------------------------------------------------------------------------

def value(path, shape):
    """Hashes of the element's index and of the path in [-1, 1), times a factor that the path's end says."""
    salt = 2166136261
    for byte in path.encode():
        salt = (salt ^ byte) * 16777619 & 0xFFFFFFFF
    h = np.arange(int(np.prod(shape)), dtype=np.uint64) * np.uint64(2654435761) & np.uint64(0xFFFFFFFF)
    h ^= np.uint64(salt)
    h ^= h >> np.uint64(15)
    h = h * np.uint64(2246822519) & np.uint64(0xFFFFFFFF)
    h ^= h >> np.uint64(13)
    v = (h >> np.uint64(8)).astype(np.float64) / 2**23 - 1
    last = path.split("/")[-1]
    v = {"scale": 1 + 0.25 * v, "bias": 0.25 * v, "embedding": v, "kernel": 0.75 * v}[last]
    return v.reshape(shape)


def put(tensor, array):
    with torch.no_grad():
        assert tuple(tensor.shape) == array.shape, (tensor.shape, array.shape)
        tensor.copy_(torch.from_numpy(array))


def layers_of(path, shape):
    return value(path, (LAYERS, *shape))


def put_dense(linear, prefix, layer, n_in, n_out, heads=None, out_heads=None, bias=True):
    """A Linear [n_out, n_in] from a kernel of Tow, whose input or output is divided into heads."""
    shape = (*(out_heads or (n_in,)), *(heads or (n_out,)))
    put(linear.weight, layers_of(prefix + "/kernel", shape)[layer].reshape(n_in, n_out).T.copy())
    if bias:
        put(linear.bias, layers_of(prefix + "/bias", heads or (n_out,))[layer].reshape(-1))


def gpt2():
    config = transformers.GPT2Config(vocab_size=V, n_positions=LENGTH, n_embd=D, n_layer=LAYERS, n_head=H, n_inner=HIDDEN,
                                     bos_token_id=None, eos_token_id=None, pad_token_id=PAD)
    m = transformers.GPT2LMHeadModel(config).double()
    t = m.transformer
    put(t.wte.weight, value("tokens/embedding", (V, D)))
    put(t.wpe.weight, value("positions/embedding", (LENGTH, D)))
    for name, norm in (("norm", t.ln_f),):
        put(norm.weight, value(name + "/scale", (D,)))
        put(norm.bias, value(name + "/bias", (D,)))
    heads = (H, D // H)
    for i, b in enumerate(t.h):
        for name, norm in (("ln1", b.ln_1), ("ln2", b.ln_2)):
            put(norm.weight, layers_of(f"blocks/{{}}/{name}/scale", (D,))[i])
            put(norm.bias, layers_of(f"blocks/{{}}/{name}/bias", (D,))[i])
        qkv = [layers_of(f"blocks/{{}}/attn/{k}/kernel", (D, *heads))[i].reshape(D, D) for k in ("query", "key", "value")]
        put(b.attn.c_attn.weight, np.concatenate(qkv, 1))
        bias = [layers_of(f"blocks/{{}}/attn/{k}/bias", heads)[i].reshape(D) for k in ("query", "key", "value")]
        put(b.attn.c_attn.bias, np.concatenate(bias))
        put(b.attn.c_proj.weight, layers_of("blocks/{}/attn/out/kernel", (*heads, D))[i].reshape(D, D))
        put(b.attn.c_proj.bias, layers_of("blocks/{}/attn/out/bias", (D,))[i])
        put(b.mlp.c_fc.weight, layers_of("blocks/{}/mlp/up/kernel", (D, HIDDEN))[i])
        put(b.mlp.c_fc.bias, layers_of("blocks/{}/mlp/up/bias", (HIDDEN,))[i])
        put(b.mlp.c_proj.weight, layers_of("blocks/{}/mlp/down/kernel", (HIDDEN, D))[i])
        put(b.mlp.c_proj.bias, layers_of("blocks/{}/mlp/down/bias", (D,))[i])
    return m


def llama():
    config = transformers.LlamaConfig(vocab_size=V, hidden_size=D, intermediate_size=HIDDEN, num_hidden_layers=LAYERS,
                                      num_attention_heads=H, num_key_value_heads=G, max_position_embeddings=LENGTH, rms_norm_eps=1e-5,
                                      bos_token_id=None, eos_token_id=None, pad_token_id=PAD, tie_word_embeddings=False)
    m = transformers.LlamaForCausalLM(config).double()
    put(m.model.embed_tokens.weight, value("tokens/embedding", (V, D)))
    put(m.model.norm.weight, value("norm/scale", (D,)))
    put(m.lm_head.weight, value("logits/kernel", (D, V)).T.copy())
    for i, b in enumerate(m.model.layers):
        put(b.input_layernorm.weight, layers_of("blocks/{}/ln1/scale", (D,))[i])
        put(b.post_attention_layernorm.weight, layers_of("blocks/{}/ln2/scale", (D,))[i])
        for name, linear, n in (("query", b.self_attn.q_proj, H), ("key", b.self_attn.k_proj, G), ("value", b.self_attn.v_proj, G)):
            put_dense(linear, f"blocks/{{}}/attn/{name}", i, D, n * D // H, heads=(n, D // H), bias=False)
        put_dense(b.self_attn.o_proj, "blocks/{}/attn/out", i, D, D, out_heads=(H, D // H), bias=False)
        put_dense(b.mlp.gate_proj, "blocks/{}/mlp/gate", i, D, HIDDEN, bias=False)
        put_dense(b.mlp.up_proj, "blocks/{}/mlp/up", i, D, HIDDEN, bias=False)
        put_dense(b.mlp.down_proj, "blocks/{}/mlp/down", i, HIDDEN, D, bias=False)
    return m


def put_attention(attention, prefix, i):
    heads = (H, D // H)
    for name, linear in (("query", attention.q_proj), ("key", attention.k_proj), ("value", attention.v_proj)):
        put_dense(linear, f"{prefix}/{name}", i, D, D, heads=heads)
    put_dense(attention.out_proj, f"{prefix}/out", i, D, D, out_heads=heads)


def put_norm(norm, prefix, i):
    put(norm.weight, layers_of(prefix + "/scale", (D,))[i])
    put(norm.bias, layers_of(prefix + "/bias", (D,))[i])


def bart():
    config = transformers.BartConfig(vocab_size=V, d_model=D, encoder_layers=LAYERS, decoder_layers=LAYERS, encoder_attention_heads=H,
                                     decoder_attention_heads=H, encoder_ffn_dim=HIDDEN, decoder_ffn_dim=HIDDEN,
                                     max_position_embeddings=LENGTH, dropout=0, attention_dropout=0, bos_token_id=None,
                                     eos_token_id=None, pad_token_id=PAD, decoder_start_token_id=START, forced_eos_token_id=None)
    m = transformers.BartForConditionalGeneration(config).double()
    put(m.model.shared.weight, value("tokens/embedding", (V, D)))
    for side, part in (("source", m.model.encoder), ("target", m.model.decoder)):
        table = np.zeros((LENGTH + 2, D))  # whose first two rows are not used
        table[2:] = value(side + "_positions/embedding", (LENGTH, D))
        put(part.embed_positions.weight, table)
        put(part.layernorm_embedding.weight, value(side + "_norm/scale", (D,)))
        put(part.layernorm_embedding.bias, value(side + "_norm/bias", (D,)))
    for side, part in (("encoder", m.model.encoder), ("decoder", m.model.decoder)):
        for i, b in enumerate(part.layers):
            prefix = f"{side}/{{}}"
            put_attention(b.self_attn, prefix + "/attn", i)
            put_norm(b.self_attn_layer_norm, prefix + "/ln1", i)
            put_norm(b.final_layer_norm, prefix + "/ln2", i)
            put_dense(b.fc1, prefix + "/mlp/up", i, D, HIDDEN)
            put_dense(b.fc2, prefix + "/mlp/down", i, HIDDEN, D)
            if side == "decoder":
                put_attention(b.encoder_attn, prefix + "/cross", i)
                put_norm(b.encoder_attn_layer_norm, prefix + "/ln_cross", i)
    return m


# ---- what generate does not have -----------------------------------------------------------------------------------------------------

class Stops(StoppingCriteria):
    """Ends a sequence whose generated tokens end with one of the stop sequences."""

    def __init__(self, stops, prompt, least):
        self.stops, self.prompt, self.least = stops, prompt, least

    def __call__(self, input_ids, scores, **kwargs):
        rows = []
        for row in input_ids.tolist():
            new = row[self.prompt:]
            rows.append(len(new) >= self.least and any(len(s) <= len(new) and new[-len(s):] == list(s) for s in self.stops))
        return torch.tensor(rows)


class Counts(LogitsProcessor):
    """logits - frequency * count - presence * (count > 0), of generated tokens."""

    def __init__(self, presence, frequency, prompt):
        self.presence, self.frequency, self.prompt = presence, frequency, prompt

    def __call__(self, input_ids, scores):
        counts = torch.zeros_like(scores)
        new = input_ids[:, self.prompt:]
        counts.scatter_add_(1, new, torch.ones_like(new, dtype=scores.dtype))
        return scores - self.frequency * counts - self.presence * (counts > 0)


# ---- cases ---------------------------------------------------------------------------------------------------------------------------

PROMPTS = [[3, 1, 4, 1, 5, 9, 2], [6, 5, 3], [8], [9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6]]
SOURCES = [[5, 8, 9, 7, 11, 3], [14, 6, 7], [20, 21, 22, 23, 24], [12]]
USUAL = dict(sequences=1, beams=1, length_penalty=1.0, early=0, repetition=1.0, presence=0.0, frequency=0.0, least=0, limit=12, ends=(),
             stops=())
SETTINGS = [
    dict(),
    dict(repetition=1.3),
    dict(presence=1.5),
    dict(frequency=0.75, presence=0.25),
    dict(ends="two"),
    dict(ends="two", least=6),
    dict(stops="pair"),
    dict(stops="pair", least=9, ends="one"),
    dict(beams=3),
    dict(beams=4, sequences=3, ends="one"),
    dict(beams=4, sequences=4, ends="two", length_penalty=2.0),
    dict(beams=4, sequences=4, ends="two", length_penalty=-1.0, early=1),
    dict(beams=4, sequences=2, ends="two", length_penalty=0.0, early=2),
    dict(beams=3, sequences=3, ends="two", early=2, length_penalty=0.5),
    dict(beams=3, sequences=3, ends="two", early=1, least=5),
    dict(beams=3, sequences=2, ends="one", repetition=1.3),
    dict(beams=3, sequences=2, stops="pair", ends="one", early=1),
    dict(beams=2, sequences=2, ends="one", frequency=0.5, limit=9),
]


def ask(model, kind, prompt, source, s, ends, stops):
    """The sequences that generate makes of one prompt: new tokens and scores."""
    ids = torch.tensor([prompt])
    arguments = dict(max_new_tokens=s["limit"], num_beams=s["beams"], num_return_sequences=s["sequences"], do_sample=False,
                     return_dict_in_generate=True, output_scores=True, pad_token_id=PAD)
    if ends:
        arguments["eos_token_id"] = list(ends)
    if s["repetition"] != 1:
        arguments["repetition_penalty"] = s["repetition"]
    if s["least"] and ends:
        arguments["min_new_tokens"] = s["least"]
    if s["beams"] > 1:
        arguments.update(length_penalty=s["length_penalty"], early_stopping=[False, True, "never"][s["early"]])
    if stops:
        arguments["stopping_criteria"] = StoppingCriteriaList([Stops(stops, len(prompt), s["least"])])
    if s["presence"] or s["frequency"]:
        arguments["logits_processor"] = LogitsProcessorList([Counts(s["presence"], s["frequency"], len(prompt))])
    if kind == "bart":
        out = model.generate(torch.tensor([source]), decoder_input_ids=ids, **arguments)
    else:
        out = model.generate(ids, attention_mask=torch.ones_like(ids), **arguments)
    scores = out.sequences_scores.tolist() if s["beams"] > 1 else [0.0] * s["sequences"]
    results = []
    for row, score in zip(out.sequences.tolist(), scores):
        new = row[len(prompt):]
        results.append((cut(new, s, ends, stops), score))
    return results


def cut(new, s, ends, stops):
    """Without the padding behind the end."""
    for n in range(1, len(new) + 1):
        if new[n - 1] in ends or (n >= s["least"] and any(len(x) <= n and new[n - len(x):n] == list(x) for x in stops)):
            return new[:n]
    return new


def log_probabilities(model, kind, prompt, source, new):
    ids = torch.tensor([prompt + new[:-1]])
    with torch.no_grad():
        logits = (model(torch.tensor([source]), decoder_input_ids=ids) if kind == "bart" else model(ids)).logits[0]
    each = torch.log_softmax(logits, -1)[len(prompt) - 1:]
    return [each[i, token].item() for i, token in enumerate(new)]


def numbers(values, format="{}"):
    return " ".join([str(len(values))] + [format.format(v) for v in values])


def write_case(file, model, kind, settings, free):
    s = {**USUAL, **settings}
    prompts = [[START, 7, 7], [START], [START, 13], [START]] if kind == "bart" else PROMPTS
    ends = {"one": (free[0][4],), "two": (free[0][4], free[1][5]), (): ()}[s["ends"]]
    stops = (tuple(free[0][3:5]), tuple(free[3][5:8])) if s["stops"] else ()
    file.write(f"{kind} {s['sequences']} {s['beams']} {s['length_penalty']} {s['early']} {s['repetition']} {s['presence']} "
               f"{s['frequency']} {s['least']} {s['limit']}\n")
    file.write(numbers(ends) + f" {len(stops)} " + " ".join(numbers(x) for x in stops) + "\n")
    file.write(f"{len(prompts)} " + " ".join(numbers(p) + (" " + numbers(q) if kind == "bart" else "")
                                             for p, q in zip(prompts, SOURCES)) + "\n")
    for p, q in zip(prompts, SOURCES):
        for new, score in ask(model, kind, p, q, s, ends, stops):
            each = log_probabilities(model, kind, p, q, new)
            file.write(numbers(new) + " " + " ".join(f"{x:.5f}" for x in each) + f" {score:.5f}\n")


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "generation.txt")
    with open(path, "w", encoding="utf-8") as file:
        for kind, make in (("gpt2", gpt2), ("llama", llama), ("bart", bart)):
            model = make().eval()
            prompts = [[START, 7, 7], [START], [START, 13], [START]] if kind == "bart" else PROMPTS
            free = [ask(model, kind, p, q, USUAL, (), ())[0][0] for p, q in zip(prompts, SOURCES)]
            for settings in SETTINGS:
                write_case(file, model, kind, settings, free)


if __name__ == "__main__":
    main()
