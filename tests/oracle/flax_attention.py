"""Writes golden/flax_attention.txt: attention, positions, feed-forward layers and blocks, in the form of flax_catalogue.py.

Flax's own layers where Flax has the option; else modules with the same children, whose formulas are written out in JAX: grouped heads,
windows, caps, gates and RoPE. Run: python tests/oracle/flax_attention.py
"""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.linen.attention import dot_product_attention

from flax_catalogue import File, function, layer, mask_of, write_flax


def fractions(first, *shape):
    """What test_attention.c has for constants: flax_models.inputs from element `first` on."""
    i = jnp.arange(first, first + int(np.prod(shape)), dtype=jnp.int32)
    return (((i * 7919) % 257 - 128).astype(jnp.float32) / 64).reshape(shape)


def memory(*shape):
    return fractions(1000, *shape)


def bias(*shape):
    return fractions(2000, *shape)


def positions(*shape):
    return (jnp.arange(int(np.prod(shape)), dtype=jnp.int32) * 5 % 11).reshape(shape)


# ---- RoPE ---------------------------------------------------------------------------------------------------------------


def frequencies(d, theta=10000.0, scaling=None, factor=1.0, low=1.0, high=4.0, original=8192.0):
    """transformers' modeling_rope_utils: default, linear, llama3; NTK-aware with a constant factor."""
    if scaling == "ntk":
        theta *= factor ** (d / (d - 2))
    f = 1.0 / theta ** (np.arange(0, d, 2, dtype=np.float64) / d)
    if scaling == "linear":
        f = f / factor
    if scaling == "llama3":
        wavelength = 2 * np.pi / f
        scaled = np.where(wavelength > original / low, f / factor, f)
        smooth = (original / wavelength - low) / (high - low)
        smoothed = (1 - smooth) * scaled / factor + smooth * scaled
        medium = ~(wavelength < original / high) & ~(wavelength > original / low)
        f = np.where(medium, smoothed, scaled)
    return f


def rope(x, at=None, features=None, interleaved=False, **options):
    """x [..., T, H, D]"""
    d = features or x.shape[-1]
    at = jnp.arange(x.shape[-3]) if at is None else at
    angle = at[..., None, None].astype(x.dtype) * jnp.asarray(frequencies(d, **options), x.dtype)
    y, rest = x[..., :d], x[..., d:]
    if interleaved:
        a, b = y[..., 0::2], y[..., 1::2]
        angle = jnp.repeat(angle, 2, -1)
        other = jnp.stack([-b, a], -1).reshape(y.shape)
    else:
        a, b = jnp.split(y, 2, -1)
        angle = jnp.concatenate([angle, angle], -1)
        other = jnp.concatenate([-b, a], -1)
    return jnp.concatenate([y * jnp.cos(angle) + other * jnp.sin(angle), rest], -1)


# ---- attention, written out ----------------------------------------------------------------------------------------------


class Attention(nn.Module):
    heads: int
    kv_heads: int = 0
    qkv: int = 0
    out: int = 0
    causal: bool = False
    window: int = 0
    cap: float = 0
    scale: float = 0
    norm: Any = None
    gates: bool = False
    rope: Any = None
    qkv_bias: bool = True
    out_bias: bool = True

    @nn.compact
    def __call__(self, x, kv=None, mask=None, bias=None, at=None):
        same, kv = kv is None, x if kv is None else kv
        groups, width = self.kv_heads or self.heads, (self.qkv or x.shape[-1]) // self.heads
        dense = partial(nn.DenseGeneral, use_bias=self.qkv_bias)
        q = dense((self.heads, width), name="query")(x)
        k = dense((groups, width), name="key")(kv)
        v = dense((groups, width), name="value")(kv)
        if self.norm:
            q, k = self.norm(name="query_ln")(q), self.norm(name="key_ln")(k)
        if self.rope is not None:
            q, k = rope(q, at, **self.rope), rope(k, at if same else None, **self.rope)
        k, v = jnp.repeat(k, self.heads // groups, 2), jnp.repeat(v, self.heads // groups, 2)
        logits = jnp.einsum("bthd,bshd->bhts", q * (self.scale or float(1 / np.sqrt(width))), k)
        if self.cap:
            logits = self.cap * jnp.tanh(logits / self.cap)
        if bias is not None:
            logits = logits + bias.astype(x.dtype)
        T, S = logits.shape[2:]
        distance = jnp.arange(T)[:, None] + (S - T) - jnp.arange(S)
        visible = jnp.ones((T, S), bool)
        if self.causal:
            visible &= distance >= 0
        if self.window:
            visible &= jnp.abs(distance) < self.window
        visible = visible if mask is None else visible & mask
        weights = jax.nn.softmax(jnp.where(visible, logits, jnp.finfo(x.dtype).min), -1)
        y = jnp.einsum("bhts,bshd->bthd", weights, v)
        if self.gates:
            y = y * jax.nn.sigmoid(nn.Dense(self.heads, use_bias=self.qkv_bias, name="gate")(x))[..., None]
        return nn.DenseGeneral(self.out or x.shape[-1], axis=(-2, -1), use_bias=self.out_bias, name="out")(y)


def attention(*args, kv=None, mask=None, bias=None, at=None, **options):
    """Inputs after x are constants."""

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            extra = None if kv is None else kv.astype(x.dtype)
            return Attention(*args, **options, name="layer")(x, extra, mask, bias, at)

    return Model()


def flax_attention(heads, kv=None, v=None, mask=None, bias=None, **options):
    class Model(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            if bias is not None:
                options["attention_fn"] = lambda q, k, v, mask=None: dot_product_attention(q, k, v, bias.astype(q.dtype), mask)
            inputs = (x, *(y.astype(x.dtype) for y in (kv, v) if y is not None))
            return nn.MultiHeadDotProductAttention(heads, name="layer", **options)(*inputs, mask=mask)

    return Model()


# ---- feed-forward layers, positions, blocks ------------------------------------------------------------------------------


class Gated(nn.Module):
    features: int
    activation: Any = nn.silu
    out: int = 0
    use_bias: bool = True

    @nn.compact
    def __call__(self, x):
        dense = partial(nn.Dense, use_bias=self.use_bias)
        y = self.activation(dense(self.features, name="gate")(x)) * dense(self.features, name="up")(x)
        return dense(self.out or x.shape[-1], name="down")(y)


class Plain(nn.Module):
    features: int
    activation: Any
    use_bias: bool = True

    @nn.compact
    def __call__(self, x):
        y = self.activation(nn.Dense(self.features, use_bias=self.use_bias, name="up")(x))
        return nn.Dense(x.shape[-1], use_bias=self.use_bias, name="down")(y)


class Learned(nn.Module):
    length: int
    at: Any = None

    @nn.compact
    def __call__(self, x, train):
        at = jnp.arange(x.shape[1]) if self.at is None else self.at
        return x + nn.Embed(self.length, x.shape[-1], name="layer", dtype=x.dtype)(at)


def sinusoidal(x, timescale=10000.0, halves=False, at=None):
    at = jnp.arange(x.shape[1]) if at is None else at
    D = x.shape[-1]
    f = np.exp(np.arange((D + 1) // 2) * (-2 * np.log(timescale) / D))
    angle = at[..., None].astype(x.dtype) * jnp.asarray(f, x.dtype)
    if halves:
        return x + jnp.concatenate([jnp.sin(angle), jnp.cos(angle)[..., : D // 2]], -1)
    return x + jnp.stack([jnp.sin(angle), jnp.cos(angle)], -1).reshape(*angle.shape[:-1], -1)[..., :D]


class Block(nn.Module):
    heads: int
    features: int
    options: Any = None
    norm: Any = partial(nn.LayerNorm, use_fast_variance=False)
    mlp: Any = None
    post: bool = False
    branch_norms: bool = False
    parallel: bool = False
    shared: bool = False
    cross: Any = None

    @nn.compact
    def __call__(self, x, kv=None, mask=None, cross_mask=None, bias=None):
        def attend(h):
            return Attention(self.heads, name="attn", **(self.options or {}))(h, None, mask, bias)

        def look(h):
            return Attention(self.heads, name="cross", **(self.cross or {}))(h, kv, cross_mask)

        def feed(h):
            return (self.mlp or partial(Plain, activation=partial(nn.gelu, approximate=True)))(self.features, name="mlp")(h)

        def branch(f, name, h):
            y = f(h)
            return self.norm(name="post_" + name)(y) if self.branch_norms else y

        def residual(f, name, x):
            if self.post:
                return self.norm(name=name)(x + branch(f, name, x))
            return x + branch(f, name, self.norm(name=name)(x))

        if self.parallel:
            h = self.norm(name="ln1")(x)
            g = h if self.shared else self.norm(name="ln2")(x)
            return x + branch(attend, "ln1", h) + branch(feed, "ln2", g)
        x = residual(attend, "ln1", x)
        if self.cross is not None:
            x = residual(look, "ln_cross", x)
        return residual(feed, "ln2", x)


def block(*args, kv=None, mask=None, cross_mask=None, bias=None, **options):
    class Model(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            extra = None if kv is None else kv.astype(x.dtype)
            return Block(*args, **options, name="layer")(x, extra, mask, cross_mask, bias)

    return Model()


LLAMA3 = {"theta": 500.0, "scaling": "llama3", "factor": 8.0, "low": 1.0, "high": 4.0, "original": 64.0}
RMS = nn.RMSNorm
X = (2, 5, 8)
CASES = {
    "qk_norm": (flax_attention(2, normalize_qk=True), X),
    "bias": (flax_attention(2, bias=bias(1, 2, 5, 5)), X),
    "bias_mask": (flax_attention(4, bias=bias(2, 1, 1, 5), mask=mask_of((1, 4, 5, 5))), X),
    "cross": (flax_attention(2, kv=memory(2, 3, 6), mask=mask_of((2, 1, 1, 3)), qkv_features=12, out_features=5), (2, 4, 8)),
    "values": (flax_attention(2, kv=memory(2, 3, 6), v=bias(2, 3, 5)), (2, 4, 8)),
    "values_mask": (flax_attention(4, kv=memory(2, 3, 8), v=bias(2, 3, 8), mask=mask_of((4, 3))), (2, 4, 8)),
    "batches": (flax_attention(2, kv=memory(2, 3, 5, 6), mask=mask_of((3, 1, 4, 5)), bias=bias(2, 1, 2, 1, 5)), (2, 3, 4, 8)),
    "batches_self": (flax_attention(2, out_features=3, mask=mask_of((2, 1, 1, 3, 3))), (2, 2, 3, 4)),
    "no_batch": (flax_attention(2, mask=mask_of((1, 5, 5)), bias=bias(2, 5, 5), normalize_qk=True), (5, 8)),
    "window": (attention(2, causal=True, window=3), X),
    "window_both": (attention(2, window=2), (2, 7, 8)),
    "window_cross": (attention(4, kv_heads=2, kv=memory(2, 6, 8), causal=True, window=2), (2, 4, 8)),
    "window_one": (attention(2, causal=True, window=1), X),
    "window_mask": (attention(2, window=4, mask=mask_of((1, 1, 7, 7))), (1, 7, 8)),
    "cap": (attention(2, cap=1.5, scale=0.7), X),
    "cap_causal": (attention(4, kv_heads=1, cap=2.0, causal=True), X),
    "cap_bias_mask": (attention(2, cap=0.5, bias=bias(2, 2, 5, 1), mask=mask_of((2, 2, 5, 5))), X),
    "gates": (attention(4, kv_heads=2, gates=True), X),
    "no_qkv_bias": (attention(2, qkv_bias=False, gates=True), X),
    "no_out_bias": (attention(2, out_bias=False), X),
    "rope_rms": (attention(2, causal=True, norm=RMS, rope={}), X),
    "rope_cross": (attention(2, kv=memory(2, 3, 8), rope={"theta": 100.0}), X),
    "rope_positions": (attention(2, at=positions(2, 5), rope={}), X),
    "rope_row": (attention(2, at=positions(5), rope={"interleaved": True}), X),
    "everything": (
        attention(4, 2, 16, 6, causal=True, window=4, cap=3.0, scale=0.4, norm=RMS, gates=True, rope=LLAMA3, qkv_bias=False, bias=bias(1, 4, 6, 6), mask=mask_of((2, 1, 6, 6))),
        (2, 6, 8),
    ),
    "rope": (function(rope), (2, 6, 3, 8)),
    "rope_interleaved": (function(partial(rope, interleaved=True, theta=50.0)), (2, 6, 3, 8)),
    "rope_partial": (function(partial(rope, features=4)), (2, 6, 3, 10)),
    "rope_partial_interleaved": (function(partial(rope, features=6, interleaved=True)), (6, 2, 7)),
    "rope_linear": (function(partial(rope, scaling="linear", factor=4.0)), (2, 6, 1, 8)),
    "rope_ntk": (function(partial(rope, scaling="ntk", factor=4.0)), (2, 6, 1, 8)),
    "rope_llama3": (function(partial(rope, **LLAMA3)), (1, 9, 1, 16)),
    "rope_batch": (function(partial(rope, at=positions(2, 4))), (2, 4, 1, 6)),
    "learned": (Learned(7), (2, 5, 4)),
    "learned_positions": (Learned(11, positions(2, 5)), (2, 5, 4)),
    "sinusoidal": (function(sinusoidal), (2, 5, 6)),
    "sinusoidal_odd": (function(partial(sinusoidal, timescale=100.0)), (2, 5, 7)),
    "sinusoidal_halves": (function(partial(sinusoidal, halves=True, at=positions(2, 5))), (2, 5, 7)),
    "swiglu": (layer(lambda name: Gated(6, name=name)), (3, 4)),
    "geglu": (layer(lambda name: Gated(6, partial(nn.gelu, approximate=False), 5, name=name)), (2, 3, 4)),
    "glu": (layer(lambda name: Gated(6, nn.sigmoid, use_bias=False, name=name)), (3, 4)),
    "post_norm": (block(2, 16, post=True, norm=partial(nn.LayerNorm, epsilon=1e-12, use_fast_variance=False), mlp=partial(Plain, activation=partial(nn.gelu, approximate=False)), mask=mask_of((2, 1, 1, 5))), X),
    "parallel": (block(2, 16, parallel=True, options={"causal": True, "rope": {"features": 2}}), X),
    "parallel_shared": (block(2, 16, parallel=True, shared=True, options={"causal": True, "rope": {"interleaved": True}}), X),
    "llama": (
        block(4, 12, norm=partial(RMS, epsilon=1e-5), mlp=partial(Gated, use_bias=False), options={"kv_heads": 2, "causal": True, "qkv_bias": False, "out_bias": False, "rope": LLAMA3}),
        X,
    ),
    "gemma": (
        block(
            2, 12, norm=RMS, branch_norms=True, mlp=partial(Gated, activation=partial(nn.gelu, approximate=True), use_bias=False),
            options={"qkv": 16, "causal": True, "cap": 5.0, "window": 3, "qkv_bias": False, "out_bias": False, "rope": {}, "norm": RMS},
        ),
        X,
    ),
    "decoder": (block(2, 16, options={"causal": True}, cross={}, kv=memory(2, 3, 6), mask=mask_of((2, 1, 1, 5)), cross_mask=mask_of((2, 1, 1, 3))), X),
    "decoder_post": (block(2, 16, post=True, options={"causal": True}, cross={}, kv=memory(2, 3, 8), bias=bias(1, 2, 5, 5)), X),
}
DOUBLE = "values batches no_batch qk_norm bias_mask cross window_cross cap_bias_mask rope_rms everything rope_interleaved learned sinusoidal_halves geglu post_norm parallel llama gemma decoder_post".split()


def main():
    file = File("flax_attention.txt")
    for dtype in ("f32", "f64"):
        for name, (model, shape) in CASES.items():
            if dtype == "f32" or name in DOUBLE:
                write_flax(file, name, model, shape, dtype)


if __name__ == "__main__":
    main()
