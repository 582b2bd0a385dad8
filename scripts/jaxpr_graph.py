"""Graphs of Tow as jaxpr_to_tow.py builds them, and their text (docs/textual-form.md)."""
import itertools
import re

import ml_dtypes
import numpy as np


class Unsupported(Exception):
    """What cannot be converted, one per line."""


class Type:
    """dtype: one of DTYPES."""

    def __init__(self, dtype, shape):
        self.dtype, self.shape = dtype, tuple(int(n) for n in shape)

    def __eq__(self, other):
        return (self.dtype, self.shape) == (other.dtype, other.shape)

    def __hash__(self):
        return hash((self.dtype, self.shape))

    def __str__(self):
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    __repr__ = __str__

    def with_shape(self, shape):
        return Type(self.dtype, shape)

    @property
    def is_float(self):
        return self.dtype in FLOATS


# uint16, for which Tow has no type, is u32 with numbers below 2^16 (jaxpr_rules.py).
DTYPES = {"float32": "f32", "float64": "f64", "bfloat16": "bf16", "float16": "f16", "int8": "i8", "uint8": "u8", "int32": "i32",
          "uint32": "u32", "int64": "i64", "uint64": "u64", "bool": "bool", "uint16": "u32"}
NUMPY = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "i8": np.int8, "u8": np.uint8,
         "i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64, "bool": np.bool_}
FLOATS = ("f32", "f64", "bf16", "f16")
MOST_AXES = 8  # TOW_MAX_RANK
INTEGERS = ("i8", "u8", "i32", "u32", "i64", "u64")


def fitting(type):
    """The type, if Tow has so many axes."""
    if len(type.shape) > MOST_AXES:
        raise Unsupported(f"type {type} of {len(type.shape)} axes, where Tow has at most {MOST_AXES}")
    return type


def type_of(aval):
    """Keys of random numbers (key<fry>) are u32[..., 2]."""
    if not hasattr(aval, "shape"):
        raise Unsupported(f"type {aval}")
    if any(not isinstance(n, (int, np.integer)) for n in aval.shape):
        raise Unsupported(f"shape ({', '.join(map(str, aval.shape))}), which depends on a variable")
    if str(aval.dtype) == "key<fry>":
        return fitting(Type("u32", (*aval.shape, 2)))
    if str(aval.dtype) not in DTYPES:
        raise Unsupported(f"type {aval.dtype}")
    return fitting(Type(DTYPES[str(aval.dtype)], aval.shape))


class Value:
    def __init__(self, type):
        self.type = type


class Dtype(str):
    """A parameter that is an element type, written without quotes."""


class Equation:
    def __init__(self, primitive, results, operands, params):
        self.primitive, self.results, self.operands, self.params = primitive, results, operands, params

    def graphs(self):
        """The graphs nested in it."""
        return [g for p in self.params.values() for g in (p if isinstance(p, (list, tuple)) else [p]) if isinstance(g, Graph)]


def text_of(value, dtype):
    """One number as Tow reads it back, bit for bit (NaNs are the usual one)."""
    if dtype == "bool":
        return "true" if value else "false"
    if dtype in INTEGERS:
        return str(int(value))
    if dtype in ("bf16", "f16"):
        value = np.float32(value)  # whose digits are enough
    if np.isnan(value):
        return "nan"
    if np.isinf(value):
        return "inf" if value > 0 else "-inf"
    text = np.format_float_scientific(value, trim="0") if not 1e-4 <= abs(value) < 1e7 and value != 0 else \
        np.format_float_positional(value, trim="0")
    return text


def param_text(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Dtype):
        return str(value)
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t") + '"'
    if isinstance(value, (tuple, list, range)):
        return "(" + ",".join(str(int(n)) for n in value) + ")"
    if isinstance(value, float):
        return text_of(np.float64(value), "f64")
    return str(int(value))


class Graph:
    """inputs, equations, outputs, all of Values. captured: pairs of an input and the constant array that it stands for; the
    region that owns a nested graph puts these inputs first and passes the arrays as operands."""

    def __init__(self, inline_constants):
        self.inline_constants = inline_constants
        self.inputs, self.equations, self.outputs, self.captured, self.labels = [], [], [], [], None
        self.cache = {}

    def input(self, type):
        self.inputs.append(Value(type))
        return self.inputs[-1]

    def emit(self, primitive, types, operands, **params):
        results = [Value(fitting(t)) for t in types]
        self.equations.append(Equation(primitive, results, list(operands), params))
        return results

    def op(self, primitive, type, *operands, **params):
        return self.emit(primitive, [type], operands, **params)[0]

    def constant(self, array, type):
        """A number, broadcast if all elements are the same; a list of a few; or an array from the file."""
        array = self.converted(array, type)
        key = (str(type), array.tobytes())
        if key in self.cache:
            return self.cache[key]
        first = array.reshape(-1)[:1].tobytes()
        if array.ndim == 0:
            value = self.op("const", type, value=("number", array.reshape(1)))
        elif array.size > 0 and first * array.size == array.tobytes():
            value = self.broadcast(self.constant(array.reshape(-1)[0], type.with_shape(())), type.shape)
        elif array.size <= self.inline_constants:
            value = self.op("const", type, value=("array", array))
        else:
            value = Value(type)
            self.captured.append((value, array))
        self.cache[key] = value
        return value

    def converted(self, array, type):
        array = np.asarray(array)
        if type.dtype in INTEGERS and array.size and array.dtype.kind in "iu":
            limits = np.iinfo(NUMPY[type.dtype])
            if array.max() > limits.max or array.min() < limits.min:
                raise Unsupported(f"constant {array.reshape(-1)[0]} of type {array.dtype}, which does not fit into {type.dtype}")
        return array.astype(NUMPY[type.dtype]).reshape(type.shape)

    def scalar(self, number, dtype):
        return self.constant(np.asarray(number), Type(dtype, ()))

    def broadcast(self, x, shape, axes=()):
        """x repeated to `shape`; its axis i is axis axes[i] of the result."""
        if x.type.shape == tuple(shape):
            return x
        key = (x, tuple(shape), tuple(axes))
        if key not in self.cache:
            self.cache[key] = self.op("broadcast_in_dim", x.type.with_shape(shape), x, shape=tuple(shape), axes=tuple(axes))
        return self.cache[key]

    def stretch(self, x, shape):
        """x as an operand of an elementwise operation: of rank 0, or with axes of size 1 that repeat."""
        return self.broadcast(x, shape, tuple(range(len(x.type.shape))))

    def reshape(self, x, shape):
        return x if x.type.shape == tuple(shape) else self.op("reshape", x.type.with_shape(shape), x, shape=tuple(shape))

    def convert(self, x, dtype):
        return x if x.type.dtype == dtype else self.op("convert", Type(dtype, x.type.shape), x, dtype=Dtype(dtype))

    # ---- text ---------------------------------------------------------------------------------------------------------

    def happens(self, e):
        """Something is printed, here or in a nested graph."""
        return e.primitive == "debug_print" or any(g.happens(inner) for g in e.graphs() for inner in g.equations)

    def names(self):
        """The checkpoint names of values in the text of this graph and of those nested in it, rules of custom calls among them."""
        names = set()
        for e in self.needed()[0]:
            names |= {e.params["name"]} if e.primitive == "name" else set()
            names = names.union(*(g.names() for g in e.graphs()))
        return names

    def needed(self):
        """Equations whose results are read, or in which something is printed, in order."""
        alive, kept = set(self.outputs), []
        for e in reversed(self.equations):
            if any(r in alive for r in e.results) or self.happens(e):
                alive.update(e.operands)
                kept.append(e)
        return kept[::-1], alive

    def text(self, indent=0):
        equations, alive = self.needed()
        names, fresh = {}, names_in_order()
        for v in self.inputs:
            names[v] = next(fresh)
        pad = " " * (indent + 4)
        lines = []
        for e in equations:
            for r in e.results:
                names[r] = next(fresh) if r in alive else "_"
            results = "".join(f"{names[r]}:{r.type} " for r in e.results)
            operands = "".join(" " + names[x] for x in e.operands)
            lines.append(f"{pad}{results}= {e.primitive}{self.params(e, indent + 6)}{operands}")
        labels = self.labels or [None] * len(self.inputs)
        inputs = "".join(f" {names[v]}:{v.type}" + (param_text(s) if s else "") for v, s in zip(self.inputs, labels))
        body = "".join(line + "\n" for line in lines)
        return f"{{ lambda ;{inputs}. let\n{body}{' ' * (indent + 2)}in ({', '.join(names[v] for v in self.outputs)}) }}" + ("" if indent else "\n")

    def params(self, e, indent):
        plain, graphs = [], []
        for name, value in e.params.items():
            if isinstance(value, Graph):
                graphs.append(f"\n{' ' * indent}{name}={value.text(indent)}")
            elif isinstance(value, list) and value and isinstance(value[0], Graph):
                branches = "".join(f"\n{' ' * (indent + 2)}{g.text(indent + 2)}" for g in value)
                graphs.append(f"\n{' ' * indent}{name}=({branches})")
            elif isinstance(value, tuple) and value and value[0] == "number":
                plain.append(f"{name}={text_of(value[1][0], e.results[0].type.dtype)}")
            elif isinstance(value, tuple) and value and value[0] == "array":
                t = e.results[0].type
                plain.append(f"{name}={t}({' '.join(text_of(x, t.dtype) for x in value[1].reshape(-1))})")
            else:
                plain.append(f"{name}={param_text(value)}")
        return f"[{' '.join(plain)}{''.join(graphs)}]" if plain or graphs else ""


def names_in_order():
    """a, b, ..., z, aa, ab, ... as Tow prints them, without the words of the grammar."""
    for n in itertools.count(1):
        for letters in itertools.product("abcdefghijklmnopqrstuvwxyz", repeat=n):
            name = "".join(letters)
            if name not in ("in", "let", "lambda"):
                yield name


def policy_name(name):
    """A checkpoint name in the text of a policy: quoted unless it is a word."""
    if re.fullmatch(r'[^\s"\\:,;()\x00-\x1f]+', name):
        return name
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
