"""The models of test_modules.c in Flax, shared by the scripts that write golden files.

Needs: pip install jax==0.10.2 flax==0.12.8 (CPU).
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp


def inputs(*shape):
    """Exact fractions that C computes as well: ((7919 i) mod 257 - 128) / 64."""
    n = 1
    for d in shape:
        n *= d
    i = jnp.arange(n, dtype=jnp.int32)
    return (((i * 7919) % 257 - 128).astype(jnp.float32) / 64).reshape(shape)


def shape_text(array):
    """4x8; a scalar has no axes: "scalar"."""
    return "x".join(map(str, array.shape)) or "scalar"


class MLP(nn.Module):
    features: tuple

    @nn.compact
    def __call__(self, x):
        for i, f in enumerate(self.features):
            x = nn.Dense(f)(x)
            if i + 1 < len(self.features):
                x = nn.relu(x)
        return x


class UpDown(nn.Module):
    features: int

    @nn.compact
    def __call__(self, x):
        d = x.shape[-1]
        x = nn.Dense(self.features, name="up")(x)
        return nn.Dense(d, name="down")(nn.gelu(x, approximate=True))


class Block(nn.Module):
    heads: int
    features: int
    causal: bool = True

    @nn.compact
    def __call__(self, x):
        mask = nn.make_causal_mask(x[..., 0]) if self.causal else None
        h = nn.LayerNorm(name="ln1")(x)
        x = x + nn.MultiHeadDotProductAttention(self.heads, name="attn")(h, h, mask=mask)
        return x + UpDown(self.features, name="mlp")(nn.LayerNorm(name="ln2", use_fast_variance=False)(x))


class Embedding(nn.Module):
    vocabulary: int
    features: int

    @nn.compact
    def __call__(self, ids):
        return nn.Embed(self.vocabulary, self.features, name="tokens")(ids)


class Rematted(nn.Module):
    heads: int
    features: int

    @nn.compact
    def __call__(self, x):
        return nn.remat(Block)(self.heads, self.features, name="block")(x)


class Scanned(nn.Module):
    """A scan, or scans of scans, of a Dense layer, the outermost first in `lengths`; all have the name `stack`."""

    lengths: tuple
    bias: bool = True
    kernel_init: Callable = nn.initializers.lecun_normal()

    @nn.compact
    def __call__(self, x):
        return stacked(self.lengths, nn.Dense(x.shape[-1], use_bias=self.bias, kernel_init=self.kernel_init, name="stack"), x)


def stacked(lengths, layer, x):
    """`layer` in scans, the outermost first in `lengths`."""

    def body(layer, carry, _):
        return layer(carry), None

    for length in reversed(lengths):
        body = nn.scan(body, variable_axes={"params": 0}, split_rngs={"params": True}, length=length)
    return body(layer, x, None)[0]


class Lookup(nn.Module):
    """x plus a row of a table, whose name begins with a digit."""

    @nn.compact
    def __call__(self, x):
        return x + nn.Embed(11, x.shape[-1], name="3x3")(jnp.zeros(x.shape[:-1], jnp.int32))


class Lookups(nn.Module):
    """A scan whose name ends with a digit, of a layer whose child's name begins with one, or of the layer's remat."""

    remat: bool = False

    @nn.compact
    def __call__(self, x):
        return stacked((3,), (nn.remat(Lookup) if self.remat else Lookup)(name="stack_1"), x)


class Branches(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3, name="1")(nn.Dense(3, name="3x3")(x))


class Digits(nn.Module):
    """Names that end and begin with digits, without a scan."""

    @nn.compact
    def __call__(self, x):
        return Branches(name="2")(Branches(name="block_1")(x))


class First(nn.Module):
    """A parameter before the children, so that counters are seen to be per scope."""

    @nn.compact
    def __call__(self, x):
        gain = self.param("gain", nn.initializers.normal(0.5), (x.shape[-1], 3))
        shift = self.param("shift", nn.initializers.uniform(2.0), (3,))
        return nn.Dense(5, name="after")(x @ gain + shift)
