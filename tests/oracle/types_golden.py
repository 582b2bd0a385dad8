"""Writes tests/oracle/golden/types.txt: what JAX gives for element types bf16, f16, i8, u8, i64 and u64, for
tests/unit/ops/test_types_golden.c: every conversion, arithmetic on edge values, reductions, products with a preferred type, and
gradients under policies.

    pip install jax==0.10.2; JAX_PLATFORMS=cpu python tests/oracle/types_golden.py

Values are those of JAX's operations one by one, each rounded once (no jit around several). Lines of a case:
    case NAME STEPS                  results may be STEPS roundings off, in half units of their type's last place; 0: bits
    graph TEXT                       in one line
    in DTYPE RANK DIMS... HEX...     an input, and
    out DTYPE RANK DIMS... HEX...    a result: the bits of each element
    grad INPUT DTYPE RANK DIMS... HEX...   the gradient of the one result with respect to an input
"""
import fractions
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_default_matmul_precision", "highest")

TYPES = {"f32": jnp.float32, "f64": jnp.float64, "bf16": jnp.bfloat16, "f16": jnp.float16, "i32": jnp.int32, "u32": jnp.uint32,
         "i8": jnp.int8, "u8": jnp.uint8, "i64": jnp.int64, "u64": jnp.uint64, "bool": jnp.bool_}
HALVES, INTEGERS = ("bf16", "f16"), ("i32", "u32", "i8", "u8", "i64", "u64")
NAMES = {np.dtype(v): k for k, v in TYPES.items()}
lines = []


def array_text(x):
    x = np.asarray(x)
    name, size = NAMES[x.dtype], x.dtype.itemsize
    bits = x.reshape(-1).view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[size])
    return " ".join([name, str(x.ndim)] + [str(d) for d in x.shape] + [f"{int(b):x}" for b in bits])


def text(x):
    x = np.asarray(x)
    return NAMES[x.dtype] + "[" + ",".join(map(str, x.shape)) + "]"


def case(name, xs, equations, ys, steps=0, grads=()):
    """equations: (text of the primitive with parameters, operands) for each y in ys; a..: inputs."""
    names = "abcdef"[:len(xs)]
    graph = "{ lambda ; " + " ".join(f"{n}:{text(x)}" for n, x in zip(names, xs)) + " . let "
    outs = []
    for i, (equation, y) in enumerate(zip(equations, ys)):
        outs.append(f"y{i}")
        graph += f"y{i}:{text(y)} = {equation} "
    graph += "in (" + ", ".join(outs) + ") }"
    raw_case(name, graph, xs, ys, steps, grads)


def raw_case(name, graph, xs, ys, steps=0, grads=()):
    lines.append(f"case {name} {steps}")
    lines.append("graph " + " ".join(graph.split()))
    lines.extend("in " + array_text(x) for x in xs)
    lines.extend("out " + array_text(y) for y in ys)
    lines.extend(f"grad {i} " + array_text(g) for i, g in enumerate(grads))


# ---- conversions -------------------------------------------------------------------------------------------------------

HARD = [0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, 0.999, 127, 127.5, 128, -128, -128.5, -129, 255, 255.9, 256, 257, 65504, 65519, 65520,
        -65520, 1e5, 2**-14, 2**-15 * 1.001, 2**-24, 2**-25, 2**-25 * 1.01, 3 * 2**-25, 2.0**31 - 1, 2.0**31, -2.0**31, 2.0**32 - 1,
        2.0**32, 2.0**53 + 1, 2.0**63, -2.0**63, 2.0**64, 1.00390625, 1.01171875, 1 + 2**-8 + 2**-30, 3.38e38, 3.3961776e38, 1e300,
        1e-300, np.inf, -np.inf, np.nan]
WHOLE = [0, 1, -1, 2, 127, 128, -128, -129, 255, 256, 257, 2049, 2051, 65519, 65520, 2**24 + 1, 2**31 - 1, 2**31, -2**31, 2**32 - 1,
         2**53 + 1, 2**62 + 2**54, 2**62 + 2**54 + 1, 2**63 - 1, -2**63, 2**64 - 1]


def of_type(name):
    if name == "bool":
        return np.array([False, True])
    if name in INTEGERS:
        info = np.iinfo(TYPES[name])
        return np.array([w for w in WHOLE if info.min <= w <= info.max], TYPES[name])
    with np.errstate(all="ignore"):
        return np.array(HARD, np.float64).astype(TYPES[name])


def converted(x, t):
    """JAX's conversion; where that rounds twice (through f32, to bf16), the nearest of its result and the neighbours."""
    y = np.array(lax.convert_element_type(jnp.asarray(x), t))
    if t != jnp.bfloat16 or x.dtype.itemsize < 8:
        return y
    bits = y.view(np.uint16)
    for i, v in enumerate(x):
        if not np.isfinite(y[i].astype(np.float64)) or y[i] == 0:
            continue
        near = [int(bits[i]) + d for d in (-1, 0, 1)]
        values = [fractions.Fraction(float(np.array(b, np.uint16).view(jnp.bfloat16))) for b in near]
        exact = fractions.Fraction(float(v) if x.dtype.kind == "f" else int(v))
        bits[i] = min(zip(values, near), key=lambda c: (abs(c[0] - exact), c[1] & 1))[1]
    return y


for name in TYPES:
    x = of_type(name)
    case("convert_" + name, [x], [f"convert[dtype={to}] a" for to in TYPES], [converted(x, t) for t in TYPES.values()])

# ---- integers: every pair of edge values -------------------------------------------------------------------------------

for name in INTEGERS:
    info = np.iinfo(TYPES[name])
    edge = [info.min, info.max, 0, 1, 7, 100, info.bits - 1] + ([-1, -7, -100] if info.min < 0 else [info.max // 2 + 1, 13])
    a, b = (jnp.asarray(v) for v in np.meshgrid(np.array(edge, TYPES[name]), np.array(edge, TYPES[name])))
    binary = {"add": lax.add, "sub": lax.sub, "mul": lax.mul, "div": lax.div, "rem": lax.rem, "max": lax.max, "min": lax.min,
              "and": lax.bitwise_and, "or": lax.bitwise_or, "xor": lax.bitwise_xor, "shift_left": lax.shift_left,
              "shift_right": lax.shift_right_logical, "shift_right_arithmetic": lax.shift_right_arithmetic, "eq": lax.eq,
              "ne": lax.ne, "lt": lax.lt, "le": lax.le, "gt": lax.gt, "ge": lax.ge}
    unary = {"neg": lax.neg, "abs": lax.abs, "sign": lax.sign, "not": lax.bitwise_not, "population_count": lax.population_count,
             "clz": lax.clz, "integer_pow[exponent=3]": lambda v: lax.integer_pow(v, 3),
             "integer_pow[exponent=6]": lambda v: lax.integer_pow(v, 6)}
    if info.min == 0:
        del unary["neg"], unary["abs"]
    case("integers_" + name, [a, b], [f"{op} a b" for op in binary] + [f"{op} a" for op in unary],
         [f(a, b) for f in binary.values()] + [f(a) for f in unary.values()])
    n = a.shape[0]
    case("reduced_" + name, [a, b],
         ["reduce_sum[axes=(0)] a", "reduce_prod[axes=(1)] a", "reduce_max[axes=(0,1)] a", "reduce_min[axes=(1)] b",
          "reduce_and[axes=(0)] b", "reduce_or[axes=(1)] b", "argmax[axis=1] b", "cumsum[axis=1] b", "cumprod[axis=0] a",
          "cummax[axis=1 reverse=true] b", "cummin[axis=0] b", "rev[axes=(1)] a", "transpose[permutation=(1,0)] b", "clamp b a a",
          "sort[axis=1 num_keys=1] b",
          "reduce_window_sum[window=(2,3) strides=(1,2)] a", "reduce_window_max[window=(2,2)] b",
          "dot_general[lhs_contract=(1) rhs_contract=(0)] a b"],
         [jnp.sum(a, 0, dtype=a.dtype), jnp.prod(a, 1, dtype=a.dtype), jnp.max(a), jnp.min(b, 1),
          lax.reduce(b, np.array(-1).astype(b.dtype), lax.bitwise_and, (0,)), lax.reduce(b, np.array(0, b.dtype), lax.bitwise_or, (1,)),
          lax.argmax(b, 1, jnp.int32), lax.cumsum(b, 1), lax.cumprod(a, 0), lax.cummax(b, 1, reverse=True), lax.cummin(b, 0),
          lax.rev(a, (1,)), b.T, lax.clamp(b, a, a), lax.sort(b, dimension=1),
          lax.reduce_window(a, np.array(0, a.dtype), lax.add, (2, 3), (1, 2), "VALID"),
          lax.reduce_window(b, np.array(info.min, b.dtype), lax.max, (2, 2), (1, 1), "VALID"), lax.dot(a, b)])
    table, index = jnp.asarray(np.arange(12).reshape(4, 3) * 9 - (20 if info.min < 0 else 0), TYPES[name]), jnp.asarray([3, 0, 3], TYPES[name])
    updates = jnp.full((3, 3), info.max, TYPES[name])
    case("rows_" + name, [table, index, updates],
         ["gather a b", "index_add a b c", "scatter_add[rows=4] b c", "concatenate[axis=0] a c", f"iota[dtype={name} shape=(300) axis=0]"],
         [table[index], table.at[index].add(updates), jnp.zeros((4, 3), TYPES[name]).at[index].add(updates),
          jnp.concatenate([table, updates]), jnp.asarray(np.arange(300).astype(TYPES[name]))])

# ---- floats of 16 bits -------------------------------------------------------------------------------------------------

FINITE = [0, -0.0, 1, -1, 1.0078125, 0.1, -3.3, 7, 100.5, 1e-3, -250]
for name in HALVES:
    t = TYPES[name]
    edge = np.array(FINITE + [np.inf, -np.inf, np.nan], np.float64).astype(t)
    a, b = (jnp.asarray(v) for v in np.meshgrid(edge, edge))
    binary = {"add": lax.add, "sub": lax.sub, "mul": lax.mul, "div": lax.div, "max": lax.max, "min": lax.min, "rem": lax.rem,
              "nextafter": lax.nextafter, "eq": lax.eq, "ne": lax.ne, "lt": lax.lt, "le": lax.le, "gt": lax.gt, "ge": lax.ge}
    unary = {"neg": lax.neg, "abs": lax.abs, "sign": lax.sign, "floor": lax.floor, "ceil": lax.ceil, "integer_pow[exponent=2]": lax.square,
             "round": lambda v: lax.round(v, lax.RoundingMethod.TO_NEAREST_EVEN), "sqrt": lax.sqrt, "is_finite": lax.is_finite}
    case("exact_" + name, [a, b], [f"{op} a b" for op in binary] + [f"{op} a" for op in unary],
         [f(a, b) for f in binary.values()] + [f(a) for f in unary.values()])
    x = jnp.asarray(np.linspace(-4, 4, 81), t)
    # in f32: the parts of which JAX makes some of these round one by one
    near = {"exp": lax.exp, "log": lax.log, "tanh": lax.tanh, "sin": lax.sin, "cos": lax.cos, "logistic": lax.logistic, "erf": lax.erf,
            "expm1": lax.expm1, "rsqrt": lax.rsqrt, "log1p": lax.log1p, "atan": lax.atan, "cbrt": lax.cbrt, "sinh": lax.sinh}
    case("near_" + name, [x], [f"{op} a" for op in near], [f(x.astype(jnp.float32)).astype(t) for f in near.values()], steps=1)
    rows = jnp.asarray(np.r_[256, np.ones(256)].reshape(1, 257) * np.array([[1], [-0.3]]), t)
    case("sums_" + name, [rows, x],
         ["reduce_sum[axes=(1)] a", "reduce_sum[axes=(0)] a", "reduce_max[axes=(1)] a", "reduce_min[axes=(0,1)] a", "argmax[axis=0] b",
          "sort[axis=0 num_keys=1] b", "reduce_prod[axes=(0)] a"],
         [jnp.sum(rows, 1), jnp.sum(rows, 0), jnp.max(rows, 1), jnp.min(rows), lax.argmax(x, 0, jnp.int32), lax.sort(x),
          jnp.prod(rows, 0)])
    case("iota_" + name, [], [f"iota[dtype={name} shape=(3,700) axis=1]"], [lax.broadcasted_iota(t, (3, 700), 1)])

# ---- products ----------------------------------------------------------------------------------------------------------

DOT, CONV = "dot_general[lhs_contract=(1) rhs_contract=(0){}] a b", "conv_general_dilated[dimensions=\"NHWC,HWIO->NHWC\" feature_groups=1 batch_groups=1{}] a b"


def dot(a, b, t=None):
    return lax.dot(a, b, preferred_element_type=t)


def conv(a, b, t=None):
    return lax.conv_general_dilated(a, b, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"), preferred_element_type=t)


rng = np.random.default_rng(5)
for name, wider in (("bf16", ("f32", "f64")), ("f16", ("f32", "bf16")), ("i8", ("i32", "i64", "f32")), ("u8", ("u32",)),
                    ("i32", ("i64",)), ("u64", ()), ("f32", ("f64",))):
    whole = lambda *shape: jnp.asarray(rng.integers(0 if name[0] == "u" else -100, 100, shape), TYPES[name])  # sums are exact
    for kind, f, form, a, b in (("dot", dot, DOT, whole(3, 40), whole(40, 4)), ("conv", conv, CONV, whole(2, 5, 4, 3), whole(2, 3, 3, 2))):
        case(f"{kind}_{name}", [a, b], [form.format("")] + [form.format(f" preferred={w}") for w in wider],
             [f(a, b)] + [f(a, b, TYPES[w]) for w in wider])

# ---- gradients in 16 bits, under policies ------------------------------------------------------------------------------

BODY = """h:T[4,6] = dot_general[lhs_contract=(1) rhs_contract=(0)] a b
          k:T[4,6] = broadcast_in_dim[shape=(4,6) axes=(1)] c   m:T[4,6] = add h k   z:T[] = const[value=0.0]
          o:T[4,6] = broadcast_in_dim[shape=(4,6) axes=()] z    p:T[4,6] = max m o
          q:T[4,3] = dot_general[lhs_contract=(1) rhs_contract=(0)] p d"""


def mlp(a, b, c, d):
    q = lax.dot(lax.max(lax.dot(a, b) + c, jnp.zeros((4, 6), a.dtype)), d)
    return jnp.sum(q * q)


for name in HALVES:
    xs = [jnp.asarray(rng.uniform(-1, 1, s), TYPES[name]) for s in ((4, 5), (5, 6), (6,), (6, 3))]
    with jax.disable_jit():
        y, grads = mlp(*xs), jax.grad(mlp, (0, 1, 2, 3))(*xs)
    inputs = "a:T[4,5] b:T[5,6] c:T[6] d:T[6,3]"
    for policy in ("", "nothing", "dots", "everything"):
        if policy:
            body = f'q:T[4,3] = remat[policy="{policy}" differentiated=false body={{ lambda ; {inputs} . let {BODY} in (q) }}] a b c d'
        graph = f"{{ lambda ; {inputs} . let {body if policy else BODY} s:T[4,3] = mul q q l:T[] = reduce_sum[axes=(0,1)] s in (l) }}"
        raw_case(f"mlp_{name}_{policy or 'plain'}", graph.replace("T[", name + "["), xs, [y], 4, grads)

header = "# Written by tests/oracle/types_golden.py with JAX " + jax.__version__ + "\n"
(pathlib.Path(__file__).parent / "golden" / "types.txt").write_text(header + "\n".join(lines) + "\n")
