"""The functions of tow/random.h.

    python3 tests/oracle/vocabulary_random.py        (needs jax; made with jax 0.10.2)
"""
import jax
import jax.numpy as jnp
import numpy as np
from golden_cases import File

random = jax.random
file = File("vocabulary_random.txt", "vocabulary_random.py")
KEYS = [np.array([0, 0], np.uint32), np.array([0x12345678, 0x9ABCDEF0], np.uint32)]
SHAPE = (3, 7)


def words(bits):
    """u64 -> the two words of each"""
    return np.stack([np.asarray(bits) >> 32, np.asarray(bits) & 0xFFFFFFFF], -1).astype(np.uint32)


for key in KEYS:
    exact = dict(tolerance=0, gradient=False)
    file.case("bits8", lambda k: random.bits(k, SHAPE, jnp.uint8).astype(jnp.uint32), key, **exact)
    file.case("bits16", lambda k: random.bits(k, SHAPE, jnp.uint16).astype(jnp.uint32), key, **exact)
    file.case("bits32", lambda k: random.bits(k, SHAPE, jnp.uint32), key, **exact)
    file.case("bits64", lambda k: words(random.bits(k, SHAPE, jnp.uint64)), key, **exact)
    file.case("split", lambda k: random.split(k, 5), key, **exact)
    file.case("fold_in", lambda k: random.fold_in(k, 7), key, **exact)
    for dtype, name in ((jnp.float32, "f32"), (jnp.float64, "f64")):
        near = dict(tolerance=1e-6 if name == "f32" else 1e-13, gradient=False)
        file.case("unit_" + name, lambda k, d=dtype: random.uniform(k, SHAPE, d), key, **exact)
        file.case("uniform_" + name, lambda k, d=dtype: random.uniform(k, SHAPE, d, -2, 3), key, **exact)
        file.case("uniform_odd_" + name, lambda k, d=dtype: random.uniform(k, SHAPE, d, 0.1, 0.73), key, **exact)
        file.case("normal_" + name, lambda k, d=dtype: random.normal(k, SHAPE, d), key,
                  **(exact if name == "f32" else near))
        # The inverse of erf multiplies the error of u.
        file.case("truncated_" + name, lambda k, d=dtype: random.truncated_normal(k, -2, 1, SHAPE, d), key,
                  tolerance=4e-6 if name == "f32" else 1e-13, gradient=False)
        file.case("gumbel_" + name, lambda k, d=dtype: random.gumbel(k, SHAPE, d), key, **near)
        file.case("exponential_" + name, lambda k, d=dtype: random.exponential(k, SHAPE, d), key, **near)
        file.case("laplace_" + name, lambda k, d=dtype: random.laplace(k, SHAPE, d), key, **near)
    p = np.linspace(0, 1, 21).reshape(SHAPE)
    file.case("bernoulli", lambda k, p: random.bernoulli(k, p), key, p, **exact)
    for dtype, name in ((jnp.int32, "i32"), (jnp.uint32, "u32")):
        file.case("randint10_" + name, lambda k, d=dtype: random.randint(k, SHAPE, 0, 10, d), key, **exact)
        file.case("randint_none_" + name, lambda k, d=dtype: random.randint(k, SHAPE, 5, 5, d), key, **exact)
    file.case("randint_signs", lambda k: random.randint(k, SHAPE, -5, 10**6, jnp.int32), key, **exact)
    file.case("randint_all", lambda k: random.randint(k, SHAPE, -2**31, 2**31, jnp.int32), key, **exact)
    file.case("randint_large", lambda k: random.randint(k, SHAPE, 3, 2**32 - 7, jnp.uint32), key, **exact)
    logits = np.log(np.array([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]]))
    file.case("categorical", lambda k, l: random.categorical(k, l), key, logits, **exact)
    file.case("categorical_many", lambda k, l: random.categorical(k, l, shape=(6, 2)), key, logits, **exact)
    file.case("categorical_first", lambda k, l: random.categorical(k, l, axis=0), key, logits, **exact)
    for n in (0, 1, 4, 10, 2000):
        file.case(f"permutation{n}", lambda k, n=n: random.permutation(k, n), key, **exact)
    x = np.arange(12.0).reshape(3, 4)
    file.case("shuffle", lambda k, x: random.permutation(k, x, axis=1), key, x)
    file.case("shuffle_each", lambda k, x: random.permutation(k, x, axis=1, independent=True), key, x)
    file.case("shuffle_vector", lambda k, x: random.permutation(k, x), key, np.arange(9.0))
    with jax.enable_x64(False):  # which draws places of 64 bits
        file.case("choice", lambda k: random.choice(k, 10, SHAPE), key, **exact)
    file.case("choice_once", lambda k: random.choice(k, 10, (2, 3), replace=False), key, **exact)
    weights = np.array([0.1, 0.2, 0.3, 0.4])
    file.case("choice_by", lambda k, p: random.choice(k, 4, SHAPE, p=p), key, weights, **exact)
    file.case("choice_by_once", lambda k, p: random.choice(k, 4, (3,), replace=False, p=p), key, weights, **exact)
file.write()
