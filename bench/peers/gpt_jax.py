"""A GPT training step in JAX + Flax: loss, gradients and AdamW in one jitted program with donated buffers.

    gpt_jax.py --mode plain | remat | dots | scan | scan_remat | scan_dots [sizes as for bench/gpt]
"""

from common import arguments, measure_training, report

args = arguments(layers=6, width=384, heads=6, context=256, batch=8, vocabulary=65, mode="plain", only_compile=False)

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

modes = ("plain", "remat", "dots", "scan", "scan_remat", "scan_dots")
if args.mode not in modes:
    raise SystemExit(f"gpt_jax: unknown --mode '{args.mode}': expected one of {', '.join(modes)}")
scan = args.mode.startswith("scan")


class Block(nn.Module):
    """x [batch, context, width]; one product makes query, key and value. Returns a pair under scan."""

    @nn.compact
    def __call__(self, x, _=None):
        split = (*x.shape[:2], args.heads, args.width // args.heads)
        query, key, value = jnp.split(nn.Dense(3 * args.width, name="qkv")(nn.LayerNorm(name="ln1")(x)), 3, -1)
        causal = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))[None, None]
        heads = nn.dot_product_attention(query.reshape(split), key.reshape(split), value.reshape(split), mask=causal)
        x = x + nn.Dense(args.width, name="out")(heads.reshape(x.shape))
        hidden = nn.gelu(nn.Dense(4 * args.width, name="up")(nn.LayerNorm(name="ln2")(x)))
        x = x + nn.Dense(args.width, name="down")(hidden)
        return (x, None) if scan else x


class GPT(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        embed = nn.Embed(args.vocabulary, args.width, name="tokens")
        x = embed(tokens) + nn.Embed(args.context, args.width, name="positions")(jnp.arange(args.context))
        block = Block
        if "remat" in args.mode or "dots" in args.mode:
            policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable if "dots" in args.mode else None
            block = nn.remat(Block, policy=policy, prevent_cse=not scan)
        if scan:
            stack = nn.scan(block, variable_axes={"params": 0}, split_rngs={"params": True}, length=args.layers)
            x, _ = stack(name="blocks")(x, None)
        else:
            for i in range(args.layers):
                x = block(name=f"blocks_{i}")(x)
        return embed.attend(nn.LayerNorm(name="norm")(x))


model = GPT()
optimizer = optax.adamw(3e-4, weight_decay=0.01)
keys = jax.random.split(jax.random.PRNGKey(0), 3)
tokens, labels = (jax.random.randint(key, (args.batch, args.context), 0, args.vocabulary) for key in keys[:2])
figures = measure_training(model, optimizer, keys[2], tokens, labels, args, args.only_compile)
report("gpt", "jax", args, **figures)
