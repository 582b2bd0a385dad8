"""What the scripts vocabulary_*.py share: cases as tests/unit/support/golden_cases.h reads them."""
import os
import pathlib

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

jax.config.update("jax_enable_x64", True)
GOLDEN = pathlib.Path(__file__).resolve().parent / "golden"
NAMES = {np.dtype(d): name for d, name in [
    (np.float32, "f32"), (np.float64, "f64"), (ml_dtypes.bfloat16, "bf16"), (np.float16, "f16"), (np.int8, "i8"),
    (np.uint8, "u8"), (np.int32, "i32"), (np.uint32, "u32"), (np.int64, "i64"), (np.uint64, "u64"), (np.bool_, "bool")]}
# f32: a few units in the last place of 6e-8, of each of several roundings; f64 the same.
TOLERANCE = {np.dtype(np.float32): 2e-6, np.dtype(np.float64): 2e-14}


def number(v):
    return "-nan" if np.isnan(v) and np.signbit(v) else repr(float(v))


def text(x, wide=False):
    """wide: integers of 64 bits are meant; else they are counts and places, which are i32 in Tow."""
    x = np.asarray(x)
    if x.dtype == np.int64 and not wide:
        x = x.astype(np.int32)
    if x.dtype == np.uint64 and not wide:
        x = x.astype(np.uint32)
    values = [number(v) if jnp.issubdtype(x.dtype, jnp.floating) else str(int(v)) for v in x.reshape(-1)]
    return " ".join([NAMES[x.dtype], str(x.ndim), *map(str, x.shape), *values])


def weights(y):
    k = np.arange(y.size)
    return (((k * 7 + 3) % 11 - 5) * 0.25).reshape(y.shape).astype(y.dtype)


class File:
    def __init__(self, name, script):
        self.path = GOLDEN / name
        self.lines = [f"# made by tests/oracle/{script} with jax {jax.__version__}"]

    def case(self, name, function, *inputs, tolerance=None, loose=1, gradient=True, dtypes=(np.float32, np.float64),
             wide=False):
        """Floats of inputs are given as float64; the case is written for each of the dtypes (once without floats).
        tolerance: None for that of the type, times `loose`; 0 for bits. gradient: False, or True for all float inputs.
        wide: results of int64 and uint64 have these types in Tow, too."""
        inputs = [np.asarray(x) for x in inputs]
        inputs = [x.astype(np.int32) if x.dtype == np.int64 else x for x in inputs]
        floats = [i for i, x in enumerate(inputs) if x.dtype == np.float64]
        for dtype in dtypes if floats else dtypes[:1]:
            dtype = np.dtype(dtype)
            xs = [jnp.asarray(x.astype(dtype) if i in floats else x) for i, x in enumerate(inputs)]
            ys = function(*xs)
            ys = list(ys) if isinstance(ys, (tuple, list)) else [ys]
            limit = TOLERANCE[dtype] * loose if tolerance is None else tolerance
            self.lines.append(f"case {name} {limit!r}")
            self.lines += ["in " + text(x) for x in xs] + ["out " + text(y, wide) for y in ys]
            if gradient and floats and any(jnp.issubdtype(y.dtype, jnp.floating) for y in ys):
                def scalar(*xs):
                    ys = function(*xs)
                    ys = list(ys) if isinstance(ys, (tuple, list)) else [ys]
                    return sum(jnp.sum(y * weights(y)) for y in ys if jnp.issubdtype(y.dtype, jnp.floating))
                for i, g in zip(floats, jax.grad(scalar, argnums=tuple(floats))(*xs)):
                    self.lines.append(f"grad {i} {text(g)}")
            self.lines.append("end")

    def write(self):
        self.path.write_text("\n".join(self.lines) + "\n")
