"""The training step of examples/gpt in JAX + Flax: the same layers, loss and optimiser, jitted, buffers donated.

    python bench/peers/gpt_flax.py --text FILE --mode scan_remat [--layers 6 --width 384 --heads 6 --context 256 --batch 8]

Modes: plain, remat, remat_dots, scan, scan_remat, scan_remat_dots (dots: dots_with_no_batch_dims_saveable).
Prints one line of JSON: median and best seconds per step, seconds to trace and compile, bytes that XLA plans (arguments,
which include parameters and optimiser state, and temporaries), and resident bytes before the first step.
Needs jax, flax, optax.
"""

import argparse
import json
import os
import resource
import statistics
import time

parser = argparse.ArgumentParser()
parser.add_argument("--text", required=True)
parser.add_argument("--mode", default="plain",
                    choices=["plain", "remat", "remat_dots", "scan", "scan_remat", "scan_remat_dots"])
for name, default in (("layers", 6), ("width", 384), ("heads", 6), ("context", 256), ("batch", 8), ("steps", 12), ("threads", 2)):
    parser.add_argument(f"--{name}", type=int, default=default)
args = parser.parse_args()
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.threads])  # XLA starts one thread per CPU that it sees

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

SCAN = args.mode.startswith("scan")


class Block(nn.Module):
    """x + attn(ln1(x)), then x + mlp(ln2(x)); returns a pair under scan."""

    @nn.compact
    def __call__(self, x, _=None):
        mask = nn.make_causal_mask(jnp.ones(x.shape[:2]))
        h = nn.LayerNorm(name="ln1")(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=args.heads, name="attn")(h, mask=mask)
        h = nn.LayerNorm(name="ln2")(x)
        h = nn.gelu(nn.Dense(4 * args.width, name="up")(h))
        x = x + nn.Dense(args.width, name="down")(h)
        return (x, None) if SCAN else x


class GPT(nn.Module):
    vocabulary: int

    @nn.compact
    def __call__(self, tokens):
        embed = nn.Embed(self.vocabulary, args.width, name="tokens")
        x = embed(tokens) + nn.Embed(args.context, args.width, name="positions")(jnp.arange(tokens.shape[1]))
        block = Block
        if "remat" in args.mode:
            policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable if "dots" in args.mode else None
            block = nn.remat(Block, policy=policy, prevent_cse=not SCAN)
        if SCAN:
            x, _ = nn.scan(block, variable_axes={"params": 0}, split_rngs={"params": True}, length=args.layers)(name="blocks")(x, None)
        else:
            for i in range(args.layers):
                x = block(name=f"blocks_{i}")(x)
        return embed.attend(nn.LayerNorm(name="norm")(x))


def read_tokens(path):
    data = np.fromfile(path, np.uint8)
    return np.unique(data, return_inverse=True)


def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()


def main():
    vocabulary, data = read_tokens(args.text)
    rng = np.random.default_rng(0)

    def batch():
        starts = rng.integers(0, len(data) - args.context - 1, args.batch)
        windows = np.stack([data[s : s + args.context + 1] for s in starts]).astype(np.int32)
        return windows[:, :-1], windows[:, 1:]

    model = GPT(len(vocabulary))
    tokens, labels = batch()
    params = jax.jit(model.init)(jax.random.PRNGKey(0), tokens)
    tx = optax.chain(optax.clip_by_global_norm(1.0),
                     optax.adamw(2e-3, b2=0.99, weight_decay=0.1, mask=lambda p: jax.tree.map(lambda a: a.ndim >= 2, p)))
    state = tx.init(params)

    def loss(p, x, y):
        return optax.softmax_cross_entropy_with_integer_labels(model.apply(p, x), y).mean()

    def step(p, s, x, y):
        value, grads = jax.value_and_grad(loss)(p, x, y)
        updates, s = tx.update(grads, s, p)
        return optax.apply_updates(p, updates), s, value

    start = time.perf_counter()
    compiled = jax.jit(step, donate_argnums=(0, 1)).lower(params, state, tokens, labels).compile()
    compile_seconds = time.perf_counter() - start
    memory = compiled.memory_analysis()
    before = resident()
    seconds = []
    for _ in range(args.steps):
        tokens, labels = batch()
        start = time.perf_counter()
        params, state, value = compiled(params, state, tokens, labels)
        value.block_until_ready()
        seconds.append(time.perf_counter() - start)
    seconds = seconds[2:] or seconds
    print(json.dumps({
        "mode": args.mode, "median_seconds": statistics.median(seconds), "best_seconds": min(seconds),
        "compile_seconds": compile_seconds, "planned_bytes": memory.argument_size_in_bytes + memory.temp_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes, "resident_before": before, "loss": float(value)}))


main()
