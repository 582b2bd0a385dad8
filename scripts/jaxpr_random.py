"""The rules of jaxpr_to_tow.py for random numbers (see jaxpr_rules.py). Keys are u32[..., 2]."""
import numpy as np

from jaxpr_graph import Dtype, Type, Unsupported
from jaxpr_rules import rule


def key_words(g, keys, shape):
    """The two words of each key, repeated to keys' shape + shape."""
    lead = keys.type.shape[:-1]
    words = []
    for i in (0, 1):
        word = g.op("slice", keys.type.with_shape((*lead, 1)), keys, start=(0,) * len(lead) + (i,), limit=(*lead, i + 1),
                    stride=(1,) * (len(lead) + 1))
        word = g.reshape(word, lead)
        words.append(g.broadcast(word, (*lead, *shape), tuple(range(len(lead)))))
    return words


def drawn(g, keys, shape):
    """Threefry of each key at the counters 0, 1, ... of an array of this shape: two words."""
    n, lead = int(np.prod(shape, dtype=np.int64)), keys.type.shape[:-1]
    if n >= 2**32:
        raise Unsupported("2^32 or more random numbers from one key")
    counter = g.op("iota", Type("u32", (n,)), dtype=Dtype("u32"), shape=(n,), axis=0)
    counter = g.broadcast(g.reshape(counter, shape), (*lead, *shape), tuple(range(len(lead), len(lead) + len(shape))))
    zero = g.broadcast(g.scalar(0, "u32"), counter.type.shape)
    return g.emit("threefry2x32", [counter.type] * 2, [*key_words(g, keys, shape), zero, counter])


def paired(g, a, b):
    """The keys of words a and b."""
    shape = a.type.shape
    a, b = (g.reshape(x, (*shape, 1)) for x in (a, b))
    return g.op("concatenate", a.type.with_shape((*shape, 2)), a, b, axis=len(shape))


@rule("random_seed")
def random_seed(c):
    low = c.g.convert(c.x, "u32")
    return [paired(c.g, c.g.broadcast(c.g.scalar(0, "u32"), low.type.shape), low)]


@rule("random_split")
def random_split(c):
    return [paired(c.g, *drawn(c.g, c.x, tuple(c.p["shape"])))]


@rule("random_fold_in")
def random_fold_in(c):
    keys, data = c.xs
    data = c.g.convert(data, "u32")
    lead = c.type.shape[:-1]
    words = key_words(c.g, keys, ())
    words = [c.g.broadcast(w, lead) for w in words]
    zero = c.g.broadcast(c.g.scalar(0, "u32"), lead)
    return [paired(c.g, *c.g.emit("threefry2x32", [data.type.with_shape(lead)] * 2, [*words, zero, c.g.broadcast(data, lead)]))]


@rule("rng_uniform")
def rng_uniform(c):
    """Numbers of a generator that JAX keeps to itself, one for the whole program: here those of a key of their own."""
    c.conv.warn("rng_uniform has no key: every run, every iteration and every row of vmap draws the same numbers here")
    low, high = (c.g.broadcast(x, c.type.shape) for x in c.xs)
    c.conv.generators += 1
    kind, shape = c.type.dtype, c.type.shape
    wide = kind in ("f64", "i64", "u64")
    key = c.g.constant(np.array([0x726E67, c.conv.generators], np.uint32), Type("u32", (2,)))
    bits = drawn(c.g, key, shape)
    if not c.type.is_float:  # low + bits % (high - low), of unsigned numbers
        word = Type("u64" if wide else "u32", shape)
        low, high = (c.g.convert(x, word.dtype) for x in (low, high))
        bits = joined_words(c.g, *bits) if wide else bits[0]
        y = c.g.op("add", word, low, c.g.op("rem", word, bits, c.g.op("sub", word, high, low)))
        return [c.short(c.g.convert(y, kind))]
    # in [0, 1): as many bits as the mantissa has
    real, mantissa = Type("f64" if wide else "f32", shape), {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}[kind]
    bits = joined_words(c.g, *bits) if wide else bits[0]

    def number(n, dtype):
        return c.g.broadcast(c.g.scalar(n, dtype), shape)
    bits = c.g.op("shift_right", bits.type, bits, number((64 if wide else 32) - mantissa, bits.type.dtype))
    unit = c.g.op("mul", real, c.g.convert(bits, real.dtype), number(2.0**-mantissa, real.dtype))
    return [c.op("add", c.op("mul", c.g.convert(unit, kind), c.op("sub", high, low)), low)]


def joined_words(g, a, b):
    """u64 of two words of u32, a above b."""
    a, b = (g.convert(w, "u64") for w in (a, b))
    return g.op("or", a.type, g.op("shift_left", a.type, a, g.broadcast(g.scalar(32, "u64"), a.type.shape)), b)


@rule("random_bits")
def random_bits(c):
    width, words = c.p["bit_width"], Type("u32", c.type.shape)
    if width == 64:
        return [joined_words(c.g, *drawn(c.g, c.x, tuple(c.p["shape"])))]
    if len(c.x.type.shape) == 1:
        bits = c.g.op("random_bits", words, c.x, shape=c.p["shape"])
    else:
        bits = c.g.op("xor", words, *drawn(c.g, c.x, tuple(c.p["shape"])))
    return [c.g.convert(bits, "u8") if width == 8 else c.short(bits)]


@rule("threefry2x32")
def threefry(c):
    return c.g.emit("threefry2x32", c.types, c.full())
