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


for key in KEYS:
    exact = dict(tolerance=0, gradient=False)
    file.case("bits8", lambda k: random.bits(k, SHAPE, jnp.uint8), key, **exact)
    file.case("bits16", lambda k: random.bits(k, SHAPE, jnp.uint16).astype(jnp.uint32), key, **exact)
    file.case("bits32", lambda k: random.bits(k, SHAPE, jnp.uint32), key, **exact)
    file.case("bits64", lambda k: random.bits(k, SHAPE, jnp.uint64), key, wide=True, **exact)
    file.case("split", lambda k: random.split(k, 5), key, **exact)
    file.case("fold_in", lambda k: random.fold_in(k, 7), key, **exact)
    for dtype, name in ((jnp.float32, "f32"), (jnp.float64, "f64"), (jnp.bfloat16, "bf16"), (jnp.float16, "f16")):
        # of 16-bit floats a step of several roundings may go to the neighbour
        near = dict(tolerance={"f32": 1e-6, "f64": 1e-13, "bf16": 2**-7, "f16": 2**-10}[name], gradient=False)
        file.case("unit_" + name, lambda k, d=dtype: random.uniform(k, SHAPE, d), key, **exact)
        file.case("uniform_" + name, lambda k, d=dtype: random.uniform(k, SHAPE, d, -2, 3), key, **exact)
        file.case("uniform_odd_" + name, lambda k, d=dtype: random.uniform(k, SHAPE, d, 0.1, 0.73), key, **exact)
        file.case("normal_" + name, lambda k, d=dtype: random.normal(k, SHAPE, d), key,
                  **(near if name == "f64" else exact))
        # The inverse of erf multiplies the error of u.
        file.case("truncated_" + name, lambda k, d=dtype: random.truncated_normal(k, -2, 1, SHAPE, d), key,
                  **(near | dict(tolerance=4e-6) if name == "f32" else near))
        file.case("gumbel_" + name, lambda k, d=dtype: random.gumbel(k, SHAPE, d), key, **near)
        file.case("exponential_" + name, lambda k, d=dtype: random.exponential(k, SHAPE, d), key, **near)
        file.case("laplace_" + name, lambda k, d=dtype: random.laplace(k, SHAPE, d), key, **near)
    p = np.linspace(0, 1, 21).reshape(SHAPE)
    file.case("bernoulli", lambda k, p: random.bernoulli(k, p), key, p, **exact)
    for dtype, name in ((jnp.int32, "i32"), (jnp.uint32, "u32"), (jnp.int8, "i8"), (jnp.uint8, "u8"), (jnp.int64, "i64"),
                        (jnp.uint64, "u64")):
        file.case("randint10_" + name, lambda k, d=dtype: random.randint(k, SHAPE, 0, 10, d), key, wide=True, **exact)
        file.case("randint_none_" + name, lambda k, d=dtype: random.randint(k, SHAPE, 5, 5, d), key, wide=True, **exact)
    file.case("randint_signs", lambda k: random.randint(k, SHAPE, -5, 10**6, jnp.int32), key, **exact)
    file.case("randint_all", lambda k: random.randint(k, SHAPE, -2**31, 2**31, jnp.int32), key, **exact)
    file.case("randint_large", lambda k: random.randint(k, SHAPE, 3, 2**32 - 7, jnp.uint32), key, **exact)
    file.case("randint_all_i8", lambda k: random.randint(k, SHAPE, -128, 128, jnp.int8), key, **exact)
    file.case("randint_all_u8", lambda k: random.randint(k, SHAPE, 0, 256, jnp.uint8), key, **exact)
    file.case("randint_most_u8", lambda k: random.randint(k, SHAPE, 3, 255, jnp.uint8), key, **exact)
    file.case("randint_most_i64", lambda k: random.randint(k, SHAPE, -2**63, 2**63 - 1, jnp.int64), key, wide=True, **exact)
    file.case("randint_odd_i64", lambda k: random.randint(k, SHAPE, -1234567890123, 7654321098765, jnp.int64), key, wide=True, **exact)
    file.case("randint_most_u64", lambda k: random.randint(k, SHAPE, 1, 2**63 - 1, jnp.uint64), key, wide=True, **exact)
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
