"""The rules of jaxpr_to_tow.py: how each JAX primitive becomes equations of Tow.

A rule takes a Call and returns the values of its results. TABLE has them by the name of the primitive. Elementwise operations,
products and reductions are here, moves in jaxpr_moves.py, random numbers in jaxpr_random.py, regions (remat, scan, while,
cond) in jaxpr_regions.py, custom rules in jaxpr_custom.py."""
import string

import jax
import numpy as np
from jax import lax
from jax.extend import core as jex

from jaxpr_graph import NUMPY, Dtype, Type, Unsupported

TABLE = {}


class Call:
    """One equation. conv: the converter. g: the graph to record in. xs: operands. types: of the results. p: parameters."""

    def __init__(self, conv, g, eqn, xs, types):
        self.conv, self.g, self.eqn, self.xs, self.types = conv, g, eqn, xs, types
        self.p, self.name = eqn.params, eqn.primitive.name

    @property
    def x(self):
        return self.xs[0]

    @property
    def type(self):
        return self.types[0]

    def op(self, primitive, *xs, **params):
        """One equation whose result has the type of this call's."""
        return self.g.op(primitive, self.type, *xs, **params)

    def full(self, xs=None):
        """Operands, repeated to the shape of the result."""
        return [self.g.stretch(x, self.type.shape) for x in (self.xs if xs is None else xs)]

    def is_key(self, i=0):
        return str(getattr(self.eqn.invars[i].aval, "dtype", "")) == "key<fry>"

    def is_short(self, var=None):
        """True if a variable (by default the result) is of JAX's uint16, which is u32 here, below 2^16."""
        return str(getattr((var or self.eqn.outvars[0]).aval, "dtype", "")) == "uint16"

    def short(self, y):
        """y, cut to 16 bits if the result is of uint16."""
        return self.g.op("and", y.type, y, self.g.broadcast(self.g.scalar(0xFFFF, "u32"), y.type.shape)) if self.is_short() else y

    def require(self, condition, what):
        if not condition:
            raise Unsupported(f"{self.name} {what}")


def rule(*names):
    def register(f):
        for name in names:
            TABLE[name] = f
        return f
    return register


def plain(x):
    """A constant or argument as a NumPy array; keys as u32."""
    if isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(x))
    return np.asarray(x)


def source(eqn):
    from jax._src import source_info_util
    try:
        frame = source_info_util.user_frame(getattr(eqn.source_info, "traceback", eqn.source_info))
        return f"{frame.file_name.rsplit('/', 1)[-1]}:{frame.start_line}" if frame else ""
    except Exception:  # source lines are not worth an error
        return ""


def index(c, x, unsigned=False):
    """Integers as indices of i32 (or u32, where that is taken). Those that do not fit are outside of every array, and so are
    the ends of the range."""
    if x.type.dtype not in ("i64", "u64", "u32"):
        return c.g.convert(x, "i32")
    if x.type.dtype == "u32" and unsigned:
        return x

    def bound(name, x, n):
        return c.g.op(name, x.type, x, c.g.broadcast(c.g.scalar(np.asarray(n, NUMPY[x.type.dtype]), x.type.dtype), x.type.shape))
    x = bound("min", x, 2**31 - 1)
    return c.g.convert(bound("max", x, -2**31) if x.type.dtype == "i64" else x, "i32")


# ---- elementwise --------------------------------------------------------------------------------------------------------

RENAMED = {"add_any": "add", "shift_right_logical": "shift_right", "regularized_incomplete_beta": "betainc"}
ELEMENTWISE = """abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp clz cos cosh digamma div eq erf erf_inv
    erfc exp exp2 expm1 floor ge gt igamma igamma_grad_a igammac
    is_finite le lgamma log log1p logistic lt mul ne neg nextafter not or population_count
    random_gamma_grad regularized_incomplete_beta rem rsqrt shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt sub tan tanh xor zeta""".split()
# Arithmetic on bools is logic.
BOOLEAN = {"add": "or", "add_any": "or", "mul": "and", "max": "or", "min": "and"}


@rule(*ELEMENTWISE, "max", "min")
def elementwise(c):
    name = RENAMED.get(c.name, c.name)
    if c.x.type.dtype == "bool":
        name = BOOLEAN.get(c.name, name)
    if c.is_short():
        c.require(name not in ("sign", "clz", "shift_right_arithmetic"), "of uint16")
        return [c.short(c.op(name, *c.full()))]
    return [c.op(name, *c.full())]


@rule("lt_to", "le_to", "eq_to")
def total_order(c):
    """Comparisons in the total order of floats (-0 below 0, NaNs by their sign at the ends): those of integers whose bits of
    magnitude are flipped where the sign is set."""
    def ordered(x):
        if not x.type.is_float:
            return x
        x = c.g.convert(x, "f32") if x.type.dtype in ("bf16", "f16") else x
        size = 64 if x.type.dtype == "f64" else 32
        bits = Type(f"i{size}", x.type.shape)

        def number(n):
            return c.g.broadcast(c.g.scalar(np.asarray(n, NUMPY[bits.dtype]), bits.dtype), bits.shape)
        x = c.g.op("bitcast", bits, x, dtype=Dtype(bits.dtype))
        sign = c.g.op("shift_right_arithmetic", bits, x, number(size - 1))
        return c.g.op("xor", bits, x, c.g.op("and", bits, sign, number(2**(size - 1) - 1)))
    return [c.op(c.name.removesuffix("_to"), *c.full([ordered(x) for x in c.xs]))]


@rule("square")
def square(c):
    return [c.short(c.op("integer_pow", c.x, exponent=2))]


@rule("integer_pow")
def integer_pow(c):
    return [c.short(c.op("integer_pow", c.x, exponent=c.p["y"]))]


@rule("pow")
def power(c):
    x, y = c.full()
    return [c.op("pow", x, c.g.convert(y, x.type.dtype))]


@rule("round")
def round_(c):
    if int(c.p["rounding_method"]) == int(lax.RoundingMethod.TO_NEAREST_EVEN):
        return [c.op("round", c.x)]
    # Away from zero: t = trunc x, and one further where |x - t| >= 1/2; exact.
    t, mask, half = trunc(c, c.x), Type("bool", c.type.shape), c.g.broadcast(c.g.scalar(0.5, c.type.dtype), c.type.shape)
    far = c.g.op("ge", mask, c.op("abs", c.op("sub", c.x, t)), half)
    return [c.op("select", far, c.op("add", t, c.op("sign", c.x)), t)]


def trunc(c, x):
    negative = c.g.op("lt", Type("bool", x.type.shape), x, c.g.broadcast(c.g.scalar(0, x.type.dtype), x.type.shape))
    return c.g.op("select", x.type, negative, c.g.op("ceil", x.type, x), c.g.op("floor", x.type, x))


@rule("polygamma")
def polygamma(c):
    order = c.eqn.invars[0]
    c.require(hasattr(order, "val"), "with an order that is not a number in the program")
    return [c.op("polygamma", c.xs[1], order=int(order.val))]


@rule("reduce_precision")
def reduce_precision(c):
    return [c.op("reduce_precision", c.x, exponent_bits=c.p["exponent_bits"], mantissa_bits=c.p["mantissa_bits"])]


@rule("select_n")
def select_n(c):
    which, *cases = c.xs
    if len(cases) == 1:
        return [cases[0]]
    if which.type.dtype == "bool":
        return [c.op("select", c.g.stretch(which, c.type.shape), *c.full(cases[:0:-1]), *c.full(cases[:1]))]
    cases, which, mask = c.full(cases), c.g.stretch(which, c.type.shape), Type("bool", c.type.shape)
    y = cases[-1]
    for i in reversed(range(len(cases) - 1)):  # what is below 0 counts as 0, what is above the last as the last
        bound = c.g.broadcast(c.g.scalar(i, which.type.dtype), c.type.shape)
        y = c.op("select", c.g.op("le", mask, which, bound), cases[i], y)
    return [y]


@rule("convert_element_type")
def convert(c):
    c.require(not (c.is_short() and c.x.type.is_float), "from a float to uint16")
    y = c.g.convert(c.x, c.type.dtype)
    return [y if c.is_short(c.eqn.invars[0]) or c.x.type.dtype in ("u8", "bool") else c.short(y)]


@rule("bitcast_convert_type")
def bitcast(c):
    if c.type.shape != c.x.type.shape:
        return [bitcast_parts(c, c.x)]
    if c.is_short(c.eqn.invars[0]):
        return [half_of_bits(c, c.x)]
    c.require(not c.is_short(), "to uint16")
    return [c.op("bitcast", c.x, dtype=Dtype(c.type.dtype))]


def bitcast_parts(c, x):
    """Numbers as several smaller ones, lowest bits first, or those as one: a last axis comes or goes."""
    small, large = sorted((np.dtype(NUMPY[t]).itemsize for t in (x.type.dtype, c.type.dtype)))
    c.require(small != 2 and large != 2, "between 16 bits and another size")  # uint16 is u32 here
    splits, part, whole = c.type.shape[:-1] == x.type.shape, f"u{8 * small}", f"u{8 * large}"
    shape = c.type.shape if splits else x.type.shape  # of the parts

    def shifted(name, x, by):
        return c.g.op(name, x.type, x, by)
    by = c.g.op("iota", Type(whole, shape), dtype=Dtype(whole), shape=shape, axis=len(shape) - 1)
    by = c.g.op("mul", by.type, by, c.g.broadcast(c.g.scalar(8 * small, whole), shape))
    words = c.g.op("bitcast", Type(whole if splits else part, x.type.shape), x, dtype=Dtype(whole if splits else part))
    if splits:
        words = shifted("shift_right", c.g.broadcast(words, shape, range(len(shape) - 1)), by)
        return c.op("bitcast", c.g.convert(words, part), dtype=Dtype(c.type.dtype))
    words = shifted("shift_left", c.g.convert(words, whole), by)
    words = c.g.op("reduce_or", Type(whole, shape[:-1]), words, axes=(len(shape) - 1,))
    return c.op("bitcast", words, dtype=Dtype(c.type.dtype))


def half_of_bits(c, x):
    """The bf16 or f16 whose bits are the lower ones of the u32 x, by way of the f32 of its value."""
    shape, u32, f32 = x.type.shape, Type("u32", x.type.shape), Type("f32", x.type.shape)

    def word(n):
        return c.g.broadcast(c.g.scalar(n, "u32"), shape)

    def op(name, *operands):
        return c.g.op(name, u32, *operands)

    def as_f32(bits):
        return c.g.op("bitcast", f32, bits, dtype=Dtype("f32"))
    if c.type.dtype == "bf16":
        return c.g.convert(as_f32(op("shift_left", x, word(16))), "bf16")
    c.require(c.type.dtype == "f16", f"from uint16 to {c.type.dtype}")
    sign = op("shift_left", op("and", x, word(0x8000)), word(16))
    magnitude = op("shift_left", op("and", x, word(0x7FFF)), word(13))  # 2^-112 of the value: the exponents' bases differ by 112
    scale = c.g.broadcast(c.g.scalar(np.float32(2.0**112), "f32"), shape)
    finite = c.g.op("bitcast", u32, c.g.op("mul", f32, as_f32(magnitude), scale), dtype=Dtype("u32"))
    special = c.g.op("ge", Type("bool", shape), magnitude, word(0x7C00 << 13))
    bits = op("select", special, op("or", magnitude, word(0x7F800000)), finite)
    return c.g.convert(as_f32(op("or", sign, bits)), "f16")


@rule("copy", "copy_p", "optimization_barrier", "sharding_constraint", "mesh_cast", "reshard", "pvary", "random_wrap", "random_unwrap",
      "device_put", "random_clone", "layout_constraint", "with_memory_space_constraint")
def same(c):
    return list(c.xs)[:len(c.types)]


@rule("stop_gradient")
def stop_gradient(c):
    return [c.op("stop_gradient", c.x)]


@rule("name")
def name(c):
    return [c.op("name", c.x, name=str(c.p["name"]))]


@rule("debug_callback")
def dropped(c):
    c.conv.warn(f"{c.name} is left out")
    return []


@rule("debug_print")
def debug_print(c):
    """Values in the places of the format, by their number or name; what a place says about digits is left out."""
    if c.p["static_args"] or not c.p["has_placeholders"]:
        return dropped(c)
    args, named = jax.tree.unflatten(c.p["in_tree"], c.xs)
    text, xs, n = "", [], 0
    for literal, field, _, _ in string.Formatter().parse(c.p["fmt"]):
        text += literal.replace("{", "{{").replace("}", "}}")
        if field is None:
            continue
        if field == "":
            field, n = str(n), n + 1
        if not (field.isdigit() and int(field) < len(args)) and field not in named:
            return dropped(c)
        xs.append(args[int(field)] if field.isdigit() else named[field])
        text += "{}"
    c.g.emit("debug_print", [], xs, format=text)
    return []


# ---- products, reductions -----------------------------------------------------------------------------------------------


def product(c, primitive, **params):
    """A product, summed in the type that JAX prefers: asked for, where Tow can sum the operands in it, else by converting them."""
    kind = c.type.dtype
    kinds = {x.type.dtype for x in c.xs}
    floats, signed = {"bf16", "f16", "f32", "f64"}, {"i8", "i32", "i64"}
    alike = any(kinds | {kind} <= group for group in (floats, signed, {"u8", "u32", "u64"}))
    if kinds != {kind} and len(kinds) == 1 and alike:
        return c.op(primitive, *c.xs, preferred=Dtype(kind), **params)
    return c.op(primitive, *(c.g.convert(x, kind) for x in c.xs), **params)


@rule("dot_general")
def dot_general(c):
    (lc, rc), (lb, rb) = c.p["dimension_numbers"]
    return [product(c, "dot_general", lhs_contract=lc, rhs_contract=rc, lhs_batch=lb, rhs_batch=rb)]


@rule("ragged_dot_general")
def ragged_dot(c):
    """Groups of the rows of x, with a matrix each, or contracted with those of y; without further axes."""
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = c.p["ragged_dot_dimension_numbers"].dot_dimension_numbers
    ragged, = c.p["ragged_dot_dimension_numbers"].lhs_ragged_dimensions
    x, y, sizes = c.xs
    kind = c.type.dtype
    c.require(kind in ("f32", "f64", "bf16", "f16"), f"of {kind}")
    c.require(not lhs_batch and not rhs_batch and len(x.type.shape) == 2 and len(lhs_contract) == 1 and len(sizes.type.shape) == 1,
              "with batch axes or several contracted ones")
    x, y, sizes = c.g.convert(x, kind), c.g.convert(y, kind), index(c, sizes)

    def ordered(x, order):
        shape = [x.type.shape[i] for i in order]
        return x if order == sorted(order) else c.g.op("transpose", x.type.with_shape(shape), x, permutation=order)
    x = ordered(x, [ragged, 1 - ragged])
    if ragged in lhs_contract:
        return [c.op("ragged_dot_contract", x, ordered(y, [rhs_contract[0], 1 - rhs_contract[0]]), sizes)]
    group, = c.p["ragged_dot_dimension_numbers"].rhs_group_dimensions
    free, = {0, 1, 2} - {group, rhs_contract[0]}
    return [c.op("ragged_dot", x, ordered(y, [group, rhs_contract[0], free]), sizes)]


def axes_text(spec, marks, spatial="WHD"):
    """ConvDimensionNumbers' (batch, feature, spatial...) as letters in the order of the axes."""
    n = len(spec) - 2
    letters = [""] * len(spec)
    names = {1: "W", 2: "HW", 3: "DHW"}.get(n, "")
    for axis, letter in zip(spec, marks + names):
        letters[axis] = letter
    return "".join(letters)


@rule("conv_general_dilated")
def conv(c):
    d = c.p["dimension_numbers"]
    c.require(1 <= len(d.lhs_spec) - 2 <= 3, f"with {len(d.lhs_spec) - 2} spatial axes")
    dimensions = f"{axes_text(d.lhs_spec, 'NC')},{axes_text(d.rhs_spec, 'OI')}->{axes_text(d.out_spec, 'NC')}"
    low, high = zip(*c.p["padding"])
    return [product(c, "conv_general_dilated", dimensions=dimensions, strides=c.p["window_strides"], low=low, high=high,
                    lhs_dilation=c.p["lhs_dilation"], rhs_dilation=c.p["rhs_dilation"],
                    feature_groups=c.p["feature_group_count"], batch_groups=c.p["batch_group_count"])]


@rule("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_xor")
def reduction(c):
    primitive = c.name
    if c.x.type.dtype == "bool":
        primitive = {"reduce_max": "reduce_or", "reduce_min": "reduce_and", "reduce_prod": "reduce_and"}.get(c.name, c.name)
    return [c.short(c.op(primitive, c.x, axes=c.p["axes"]))]


def one_operation(c):
    """The operation that a function of two numbers is, or None."""
    jaxpr = c.p["jaxpr"]
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    if len(jaxpr.eqns) != 1 or len(jaxpr.invars) != 2 or jaxpr.constvars:
        return None
    e, = jaxpr.eqns
    both = sorted(map(id, e.invars)) == sorted(map(id, jaxpr.invars))
    return e.primitive.name if both and list(e.outvars) == list(jaxpr.outvars) else None


def combined(c, xs, ys, jaxpr=None, consts=()):
    """The function of an equation, which is of numbers, on arrays element by element."""
    jaxpr, consts = (c.p["jaxpr"], c.p.get("consts", ())) if jaxpr is None else (jaxpr, consts)
    f = jex.jaxpr_as_fun(jaxpr if isinstance(jaxpr, jex.ClosedJaxpr) else jex.ClosedJaxpr(jaxpr, consts))
    shape = xs[0].type.shape
    for _ in shape:
        f = jax.vmap(f)
    avals = [jax.ShapeDtypeStruct(shape, v.aval.dtype) for v in c.eqn.invars[:len(xs)]]
    return c.conv.inline(c.g, jax.make_jaxpr(f)(*avals, *avals), [*xs, *ys])


@rule("reduce")
def general_reduction(c):
    """lax.reduce: with one operation, that of the reduction, and of it and the initial value. With any other function a tree of
    pairs of elements that are half of the axis apart, as in JAX's derivative."""
    n = len(c.xs) // 2
    xs, initial, axes = c.xs[:n], c.xs[n:], sorted(c.p["dimensions"])
    how = one_operation(c)
    if xs[0].type.dtype == "bool":
        how = BOOLEAN.get(how, how)
    if n == 1 and how in ("add", "mul", "max", "min", "and", "or", "xor"):
        name = "reduce_" + {"add": "sum", "mul": "prod"}.get(how, how)
        reduced = c.op(name, xs[0], axes=axes)
        return [c.short(c.op(how, reduced, c.g.broadcast(initial[0], c.type.shape)))]
    shape = xs[0].type.shape
    kept = [i for i in range(len(shape)) if i not in axes]
    rest = tuple(shape[i] for i in kept)
    size = int(np.prod([shape[i] for i in axes], dtype=np.int64))
    order = (*axes, *kept)
    rows = []
    for x in xs:
        x = c.g.op("transpose", x.type.with_shape([shape[i] for i in order]), x, permutation=order)
        rows.append(c.g.reshape(x, (size, *rest)))
    while size > 1:
        half = size // 2
        pairs = combined(c, [rows_of(c, x, 0, half) for x in rows], [rows_of(c, x, half, 2 * half) for x in rows])
        odd = [rows_of(c, x, 2 * half, size) for x in rows] if size % 2 else None
        size -= half
        rows = [c.g.op("concatenate", y.type.with_shape((size, *rest)), y, x, axis=0) for x, y in zip(odd, pairs)] if odd else pairs
    starts = [c.g.broadcast(x, rest) for x in initial]
    return combined(c, starts, [c.g.reshape(x, rest) for x in rows]) if size else starts


def rows_of(c, x, start, limit):
    shape = x.type.shape
    return c.g.op("slice", x.type.with_shape((limit - start, *shape[1:])), x, start=(start, *(0,) * (len(shape) - 1)),
                  limit=(limit, *shape[1:]), stride=(1,) * len(shape))


MOST_PLACES = 256  # of a window whose places are combined one by one


@rule("reduce_window")
def general_window(c):
    """lax.reduce_window with any function: the places of the window in turn, each a strided slice of the padded operand."""
    n = len(c.xs) // 2
    xs, initial, p = c.xs[:n], c.xs[n:], c.p
    window, strides, dilation = p["window_dimensions"], p["window_strides"], p["window_dilation"]
    places = list(np.ndindex(*window))
    c.require(len(places) <= MOST_PLACES, f"with a function of its own and a window of more than {MOST_PLACES} places")
    low, high = zip(*p["padding"]) if window else ((), ())
    padded = []
    for x, start in zip(xs, initial):
        shape = [max(d - 1, 0) * b + min(d, 1) + lo + hi for d, b, lo, hi in zip(x.type.shape, p["base_dilation"], low, high)]
        padded.append(c.g.op("pad", x.type.with_shape(shape), x, start, low=low, high=high, interior=[b - 1 for b in p["base_dilation"]]))
    out = c.types[0].shape
    found = [c.g.broadcast(x, out) for x in initial]
    for place in places if 0 not in out else ():
        first = [i * d for i, d in zip(place, dilation)]
        limit = [i + (m - 1) * s + 1 for i, m, s in zip(first, out, strides)]
        found = combined(c, found, [c.g.op("slice", x.type.with_shape(out), x, start=first, limit=limit, stride=strides) for x in padded])
    return found


@rule("argmax", "argmin")
def argmax(c):
    x = c.g.convert(c.x, "i32") if c.x.type.dtype == "bool" else c.x
    y = c.g.op(c.name, Type("i32", c.type.shape), x, axis=c.p["axes"][0])
    return [c.g.convert(y, c.type.dtype)]


@rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def cumulative(c):
    return [c.short(c.op(c.name, c.x, axis=c.p["axis"], reverse=bool(c.p["reverse"])))]


def window_params(c):
    low, high = zip(*c.p["padding"]) if c.p["padding"] else ((), ())
    return dict(window=c.p["window_dimensions"], strides=c.p["window_strides"], low=low, high=high,
                base_dilation=c.p.get("base_dilation", ()), window_dilation=c.p.get("window_dilation", ()))


@rule("reduce_window_sum", "reduce_window_max", "reduce_window_min")
def reduce_window(c):
    return [c.op(c.name, c.x, **window_params(c))]


@rule("select_and_gather_add", "select_and_scatter_add")
def select_window(c):
    prefer = str(c.p["select_prim"])
    return [c.op(c.name, *c.xs, **window_params(c), minimum=prefer == "le")]


@rule("sort")
def sort(c):
    return c.g.emit("sort", c.types, c.xs, axis=c.p["dimension"], num_keys=c.p["num_keys"])


@rule("top_k")
def top_k(c):
    axis = c.p.get("axis", len(c.x.type.shape) - 1)
    return largest(c, c.x, axis)


def largest(c, x, axis):
    """As many of the largest as the results have, and their places."""
    values, indices = c.g.emit("top_k", [c.types[0], Type("i32", c.types[1].shape)], [x], axis=axis, k=c.types[0].shape[axis])
    return [values, c.g.convert(indices, c.types[1].dtype)]


@rule("approx_top_k")
def approx_top_k(c):
    """The exact ones: any recall that was asked for is reached."""
    axis = c.p["reduction_dimension"] % len(c.x.type.shape)
    if c.p["is_max_k"]:
        return largest(c, c.x, axis)
    values, indices = largest(c, c.g.op("neg", c.x.type, c.x), axis)
    return [c.op("neg", values), indices]


import jaxpr_moves  # noqa: E402,F401  registers its rules here
import jaxpr_random  # noqa: E402,F401  and here
import jaxpr_regions  # noqa: E402,F401  and here
