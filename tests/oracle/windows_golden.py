"""Writes tests/oracle/golden/windows.txt: values and gradients of convolutions, reductions over windows, pooling and cumulative
operations as JAX has them, for tests/unit/ops/conv/test_windows_golden.c.

    pip install jax==0.10.2; python tests/oracle/windows_golden.py

Lines of a case:
    case MODULUS SCALE TOLERANCE GRAPH    input n has ((7919 i + 104729 n) mod MODULUS - MODULUS // 2) / SCALE; in the graph, F
                                          stands for f32 or f64; its last input weighs the result, for the gradients
    y NUMBERS                             the result
    d NUMBERS                             the gradient of the sum of result * weights, for each other input
Inputs are such that sums of products are exact in f32 as well, where the tolerance is 0.
"""
import itertools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(20240607)
lines = []


def filled(n, shape, modulus, scale):
    i = np.arange(np.prod(shape, dtype=int))
    return jnp.array(((7919 * i + 104729 * n) % modulus - modulus // 2) / scale, jnp.float64).reshape(shape)


def text(shape):
    return "F[" + ",".join(map(str, shape)) + "]"


def ints(values):
    return "(" + ",".join(str(int(v)) for v in values) + ")"


def numbers(x):
    return " ".join(np.format_float_positional(v, trim="-") if abs(v) < 1e6 else repr(float(v)) for v in np.ravel(x))


def case(function, equation, shapes, modulus, scale=8, tolerance=0.0):
    xs = [filled(n, s, modulus, scale) for n, s in enumerate(shapes)]
    y, back = jax.vjp(function, *xs)
    weights = filled(len(xs), y.shape, modulus, scale)
    names = "abc"[:len(xs)]
    inputs = " ".join(f"{n}:{text(s)}" for n, s in zip(names, shapes)) + f" t:{text(y.shape)}"
    body = f"y:{text(y.shape)} = {equation} {' '.join(names)}\nz:{text(y.shape)} = mul y t\n"
    body += f"l:F[] = reduce_sum[axes={ints(range(y.ndim))}] z" if y.ndim else "l:F[] = name[name=\"l\"] z"
    graph = f"{{ lambda ; {inputs}. let {body} in (l, y) }}".replace("\n", " ")
    lines.append(f"case {modulus} {scale} {tolerance} {graph}")
    lines.append(f"y {numbers(y)}")
    lines.extend(f"d {numbers(d)}" for d in back(weights))


def conv(lhs, rhs, labels, strides, low, high, lhs_dilation, rhs_dilation, groups, parts):
    left, kernel, out = labels
    equation = (f'conv_general_dilated[dimensions="{left},{kernel}->{out}" strides={ints(strides)} low={ints(low)} '
                f"high={ints(high)} lhs_dilation={ints(lhs_dilation)} rhs_dilation={ints(rhs_dilation)} "
                f"feature_groups={groups} batch_groups={parts}]")
    case(lambda x, w: lax.conv_general_dilated(
        x, w, strides, list(zip(low, high)), lhs_dilation, rhs_dilation, labels, groups, parts), equation, [lhs, rhs], 17)


def random_conv(spatial, grouped):
    letters = {0: "", 1: "W", 2: "HW", 3: "DHW"}[spatial]

    def shuffled(roles):
        order = rng.permutation(list(roles + letters)) if rng.random() < 0.6 else list(letters + roles)
        return "".join(order)
    labels = (shuffled("NC"), shuffled("OI"), shuffled("NC"))
    kernel_letters = [c for c in labels[1] if c not in "OI"]
    groups, parts = {"no": (1, 1), "features": (int(rng.integers(2, 4)), 1), "batch": (1, int(rng.integers(2, 4)))}[grouped]
    n, i, o = parts * int(rng.integers(1, 3)), int(rng.integers(1, 4)), groups * parts * int(rng.integers(1, 3))
    size = {c: int(rng.integers(1, 6 if spatial < 3 else 4)) for c in letters}
    window = {c: int(rng.integers(1, 4 if spatial < 3 else 3)) for c in letters}

    def per_axis(low, high, plain):
        return [int(rng.integers(low, high)) if rng.random() > plain else max(low, 1) if low > 0 else 0 for _ in letters]
    strides, ld, rd = per_axis(1, 4, 0.4), per_axis(1, 4, 0.6), per_axis(1, 3, 0.6)
    low, high = per_axis(-2, 4, 0.3), per_axis(-2, 4, 0.3)
    for k, c in enumerate(kernel_letters):  # a result that is not empty
        room = (size[c] - 1) * ld[k] + 1 + low[k] + high[k] - (window[c] - 1) * rd[k] - 1
        high[k] += max(0, -room)
    dims = {"N": n, "C": groups * i, "I": i, "O": o}
    conv([dims.get(c, size.get(c)) for c in labels[0]], [dims.get(c, window.get(c)) for c in labels[1]], labels,
         strides, low, high, ld, rd, groups, parts)


def convolutions():
    one, zero = [1, 1], [0, 0]
    last = ("NHWC", "HWIO", "NHWC")
    conv([2, 5, 4, 3], [3, 3, 3, 4], last, one, one, one, one, one, 1, 1)
    conv([1, 7, 7, 2], [3, 3, 2, 3], last, [2, 2], one, one, one, one, 1, 1)
    conv([1, 6, 6, 2], [3, 3, 2, 3], last, [2, 2], zero, one, one, one, 1, 1)
    conv([2, 3, 3, 5], [1, 1, 5, 7], last, one, zero, zero, one, one, 1, 1)
    conv([1, 4, 4, 3], [1, 1, 3, 2], last, [2, 2], zero, zero, one, one, 1, 1)
    conv([1, 5, 5, 6], [3, 3, 1, 6], last, one, one, one, one, one, 6, 1)
    conv([1, 5, 5, 6], [3, 3, 1, 12], last, [2, 2], one, one, one, one, 6, 1)
    conv([2, 8, 5], [4, 1, 5], ("NWC", "WIO", "NWC"), [1], [3], [0], [1], [1], 5, 1)
    conv([2, 8, 5], [4, 5, 6], ("NWC", "WIO", "NWC"), [1], [6], [0], [1], [2], 1, 1)
    conv([1, 2, 6, 6], [4, 2, 3, 3], ("NCHW", "OIHW", "NCHW"), one, one, one, one, one, 1, 1)
    conv([1, 3, 2, 2], [2, 2, 3, 2], ("NHWC", "HWOI", "NHWC"), one, one, one, [2, 2], one, 1, 1)
    conv([1, 3, 19, 34], [3, 3, 34, 33], last, one, one, one, one, one, 1, 1)
    for spatial, grouped in itertools.product(range(4), ["no", "features", "batch"]):
        for _ in range(5 if spatial else 2):
            random_conv(spatial, grouped)


def windows():
    operations = {"sum": (lax.add, 0.0), "max": (lax.max, -jnp.inf), "min": (lax.min, jnp.inf)}
    settings = [
        ([2, 6, 5, 3], [1, 2, 2, 1], [1, 2, 2, 1], [0] * 4, [0] * 4, [1] * 4, [1] * 4),
        ([2, 6, 5, 3], [1, 3, 3, 1], [1, 2, 1, 1], [0, 1, 1, 0], [0, 1, 0, 0], [1] * 4, [1] * 4),
        ([7], [3], [1], [1], [2], [1], [1]),
        ([6], [3], [3], [0], [0], [1], [1]),
        ([5, 4], [2, 3], [2, 1], [1, 0], [0, 2], [1, 1], [1, 1]),
        ([2, 3, 9, 4], [1, 1, 3, 2], [1, 1, 2, 2], [0] * 4, [0, 0, 1, 0], [1] * 4, [1] * 4),
        ([4, 5], [2, 2], [1, 1], [1, 1], [1, 1], [2, 3], [1, 1]),
        ([1, 4, 4, 2], [1, 4, 4, 1], [1, 1, 1, 1], [0] * 4, [0] * 4, [1] * 4, [1] * 4),
        ([6, 2], [2, 1], [1, 1], [-1, 0], [2, 0], [1, 1], [1, 1]),
    ]
    dilated = [([9, 3], [3, 1], [1, 1], [2, 0], [1, 0], [1, 1], [2, 1]), ([4, 6], [2, 3], [2, 1], [1, 0], [1, 1], [2, 1], [2, 2])]
    for name, (operation, identity) in operations.items():
        for shape, window, strides, low, high, base, dilation in settings + (dilated if name == "sum" else []):
            if name != "sum" and (max(base) > 1 or min(low) < 0):  # without a gradient in JAX
                continue
            equation = (f"reduce_window_{name}[window={ints(window)} strides={ints(strides)} low={ints(low)} high={ints(high)} "
                        f"base_dilation={ints(base)} window_dilation={ints(dilation)}]")
            for modulus in (17, 3):  # 3: many are equal
                case(lambda x: lax.reduce_window(x, identity, operation, window, strides, list(zip(low, high)), base, dilation),
                     equation, [shape], modulus)


def cumulative():
    for name, modulus, scale, tolerance in (("cumsum", 17, 8, 0.0), ("cumprod", 5, 1, 0.0), ("cummax", 17, 8, 0.0),
                                            ("cummax", 3, 1, 0.0), ("cummin", 17, 8, 0.0), ("cummin", 3, 1, 0.0),
                                            ("cumlogsumexp", 17, 8, 4.0)):
        for shape, axis in (([1], 0), ([2], 0), ([3], 0), ([7], 0), ([8], 0), ([2, 5, 3], 1), ([3, 4], 1), ([4, 2], 0), ([2, 0], 1)):
            for reverse in (False, True):
                case(lambda x: getattr(lax, name)(x, axis, reverse), f"{name}[axis={axis} reverse={str(reverse).lower()}]", [shape],
                     modulus, scale, tolerance)


def main():
    convolutions()
    windows()
    cumulative()
    path = pathlib.Path(__file__).parent / "golden" / "windows.txt"
    path.write_text("\n".join(line.rstrip() for line in lines) + "\n")
    print(len(lines), path.stat().st_size)


if __name__ == "__main__":
    main()
