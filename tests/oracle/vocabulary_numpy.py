"""The functions of tow/numpy.h.

    python3 tests/oracle/vocabulary_numpy.py        (needs jax; made with jax 0.10.2)
"""
import jax
import jax.numpy as jnp
import numpy as np
from golden_cases import File

INF, NAN = np.inf, np.nan
file = File("vocabulary_numpy.txt", "vocabulary_numpy.py")
rng = np.random.default_rng(11)


def draw(*shape):
    return rng.integers(-16, 17, shape) / 8.0


a, b, c = draw(2, 3, 4), draw(2, 5, 4), draw(3, 4)
EINSUMS = {
    "attention": ("bthd,bshd->bhts", [draw(2, 3, 2, 4), draw(2, 5, 2, 4)]),
    "matmul": ("ij,jk", [draw(3, 4), draw(4, 5)]),
    "implicit": ("ba", [draw(3, 4)]),
    "trace": ("ii", [draw(4, 4)]),
    "diagonal": ("ii->i", [draw(4, 4)]),
    "diagonals": ("iij,jik->ki", [draw(3, 3, 4), draw(4, 3, 2)]),
    "outer": ("i,j->ij", [draw(3), draw(4)]),
    "hadamard": ("ij,ji->ij", [draw(3, 4), draw(4, 3)]),
    "sums": ("ij,k->", [draw(3, 4), draw(5)]),
    "chain": ("ab,bc,cd,de->ae", [draw(2, 7), draw(7, 3), draw(3, 8), draw(8, 2)]),
    "star": ("ai,bi,ci->abc", [draw(2, 5), draw(3, 5), draw(4, 5)]),
    "dots": ("...ij,...jk->...ik", [draw(2, 1, 3, 4), draw(5, 4, 2)]),
    "dots_implicit": ("i...,...", [draw(3, 4), draw(4)]),
    "dots_sum": ("...i->...", [draw(2, 3, 4)]),
    "scalars": (",->", [draw(), draw()]),
    "spaces": (" i j , j -> i ", [draw(3, 4), draw(4)]),
    "capitals": ("aB,Bc", [draw(2, 3), draw(3, 4)]),
    "empty": ("ij,jk->ik", [np.zeros((3, 0)), np.zeros((0, 2))]),
    "transposed": ("abc->cab", [draw(2, 3, 4)]),
}
for name, (spec, xs) in EINSUMS.items():
    file.case("einsum_" + name, lambda *xs, s=spec: jnp.einsum(s, *xs), *xs, loose=16)
file.case("einsum_matmul", lambda x, y: jnp.einsum("ij,jk", x, y), np.arange(6, dtype=np.int32).reshape(2, 3),
          np.arange(12, dtype=np.int32).reshape(3, 4))

x = draw(3, 4)
file.case("where", lambda p, x, y: jnp.where(p, x, y), x > 0, x, np.float64(2.0))
file.case("clip", lambda x, lo, hi: jnp.clip(x, lo, hi), x, np.float64(-0.5), np.float64(1.0))
up = np.array([7.5, -7.5, 7.0, -7.0, 0.0, 6.0, -6.0])
down = np.array([2.0, 2.0, -2.0, -2.0, 3.0, 3.0, 4.0])
file.case("floor_divide", jnp.floor_divide, up, down, gradient=False)
file.case("mod", jnp.mod, up, down)
i = np.array([7, -7, 7, -7, 5, -5, 0, -2**31], np.int32)
j = np.array([2, 2, -2, -2, 0, 0, 0, -1], np.int32)
file.case("floor_divide", jnp.floor_divide, i, j)
file.case("mod", jnp.mod, i, j)
file.case("floor_divide", jnp.floor_divide, i.astype(np.uint32), np.abs(j).astype(np.uint32))
file.case("mod", jnp.mod, i.astype(np.uint32), np.abs(j).astype(np.uint32))
file.case("logaddexp", jnp.logaddexp, np.array([0.0, 1.0, -200.0, 3.0]), np.array([0.0, -2.0, 500.0, 3.0]), loose=4)
special = np.array([0.0, 1.0, INF, -INF, NAN])
file.case("isnan", jnp.isnan, special)
file.case("isinf", jnp.isinf, special)
file.case("reciprocal", jnp.reciprocal, draw(5) + 4)
file.case("scalars", lambda x: (x - 2, 2 - x, x / 4, 4 / x, x ** 1.5, 1.5 ** x, jnp.maximum(x, 1), jnp.minimum(x, 1)),
          np.array([0.5, 1.5, 3.0]), loose=8, gradient=False)
file.case("compare_scalars", lambda x: (x == 1, x != 1, x < 1, x <= 1, x > 1, x >= 1), np.array([0, 1, 2], np.int32))

cube = rng.permutation(np.arange(24) - 11.5).reshape(2, 3, 4) / 8
file.case("keepdims", lambda x: (jnp.sum(x, 1, keepdims=True), jnp.max(x, (0, 2), keepdims=True),
                                 jnp.min(x, keepdims=True), jnp.prod(x, -1, keepdims=True),
                                 jnp.mean(x, (1, 2), keepdims=True)), cube, loose=8)
file.case("var", lambda x: jnp.var(x, axis=1), cube, loose=4)
file.case("var_kept", lambda x: jnp.var(x, axis=(0, 2), ddof=1, keepdims=True), cube, loose=4)
file.case("std", lambda x: jnp.std(x), cube, loose=4)
file.case("norm", lambda x: jnp.linalg.norm(x, axis=-1, keepdims=True), cube, loose=4)
file.case("norm_of_all", lambda x: jnp.sqrt(jnp.sum(x * x)), cube, loose=4)

file.case("stack", lambda x, y: jnp.stack([x, y], axis=1), x, -x)
file.case("stack_last", lambda x, y: jnp.stack([x, y], axis=-1), x, -x)
file.case("split", lambda x: jnp.split(x, 2, axis=-1), x)
file.case("split_at", lambda x: jnp.split(x, [1, 1, 3], axis=1), x)
file.case("tile", lambda x: jnp.tile(x, (2, 1, 3)), x)
file.case("tile_last", lambda x: jnp.tile(x, 2), x)
file.case("tile_none", lambda x: jnp.tile(x, (0, 2)), x)
file.case("repeat", lambda x: jnp.repeat(x, 3, axis=-1), x)
file.case("roll", lambda x: (jnp.roll(x, 1, axis=0), jnp.roll(x, -5, axis=1), jnp.roll(x, 8, axis=1)), x)
file.case("axes", lambda x: (jnp.swapaxes(x, 0, -1), jnp.moveaxis(x, 0, 1), jnp.moveaxis(x, -1, 0), jnp.ravel(x)), cube)
file.case("triangles", lambda x: (jnp.tril(x), jnp.tril(x, -1), jnp.triu(x), jnp.triu(x, 2), jnp.tril(x, 1)), cube)
file.case("one_hot", lambda i: (jax.nn.one_hot(i, 4, dtype=jnp.float32), jax.nn.one_hot(i, 4, dtype=jnp.int32, axis=0)),
          np.array([[0, 3], [4, -1]], np.int32))
file.case("constants", lambda i: (jnp.eye(3, 4, 1, dtype=jnp.float32), jnp.arange(5, dtype=jnp.int32) * 3 - 2,
                                  jnp.linspace(-1, 2, 7, dtype=jnp.float32), jnp.linspace(0, 1, 1, dtype=jnp.float32)),
          np.int32(0))
at = np.array([[0, -1], [3, 9]], np.int32)
file.case("take0", lambda x, i: jnp.take(x, i, axis=0), draw(4, 3), at)
file.case("take_middle", lambda x, i: jnp.take(x, i, axis=1), draw(2, 4, 3), at)
file.case("take_last", lambda x, i: jnp.take(x, i, axis=-1), draw(2, 4), at.astype(np.uint32) % 5)
file.case("take_last", lambda x, i: jnp.take(x, i, axis=-1), np.arange(8, dtype=np.int32).reshape(2, 4), at)
file.case("take_along", lambda x, i: jnp.take_along_axis(x, i, axis=-1), draw(2, 4), np.array([[1, -1, 5], [0, 0, 2]], np.int32))
file.case("take_along0", lambda x, i: jnp.take_along_axis(x, i, axis=0), draw(4, 3), np.array([[1], [-2]], np.int32))
file.write()
