#!/usr/bin/env python3
"""Converts a JAX function to the textual form of Tow (docs/from-jax.md). Needs JAX; nothing in Tow needs this script.

    python scripts/jaxpr_to_tow.py MODULE:FUNCTION --args 'f32[8,4]' 'f32[4]' -o program.tow --constants program.safetensors
    python scripts/jaxpr_to_tow.py MODULE:FUNCTION --args MODULE:EXAMPLE --grad -o gradient.tow

As a module:

    program = jaxpr_to_tow.convert(function, *args)      # args: arrays, jax.ShapeDtypeStruct, or trees of them
    program.text, program.constants, program.warnings

How: the jaxpr of the function, without equations that no result needs, is walked equation by equation. jit is inlined;
remat, scan, while and cond become regions of Tow. A constant of more than `inline_constants` elements becomes an input of the
program, named const.0, const.1, ..., and an array in the safetensors file. Nested graphs of Tow are closed, so constants in
them become operands of their region. Rules for single primitives are in jaxpr_rules.py, jaxpr_moves.py and jaxpr_random.py,
those of regions in jaxpr_regions.py, those of custom_jvp and custom_vjp in jaxpr_custom.py.

What cannot be converted is collected over the whole program, and named, each once: `Unsupported`, or exit status 1.
"""
import argparse
import ast
import importlib
import inspect
import os
import pathlib
import re
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex
from jax.interpreters import partial_eval as pe

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import jaxpr_rules as rules  # noqa: E402
from jaxpr_graph import NUMPY, Graph, Type, Unsupported, type_of  # noqa: E402,F401


class Program:
    """text: the graph. inputs: its input names, those of constants last. constants: {name: array}. warnings: what is
    not exactly as in JAX. arguments: the leaves of the example arguments by name (arrays only)."""

    def __init__(self, graph, names, constants, warnings, arguments):
        self.graph, self.inputs, self.constants, self.warnings, self.arguments = graph, names, constants, warnings, arguments
        self.text = graph.text()


class Converter:
    def __init__(self, inline_constants, max_iterations, custom_rules):
        self.inline_constants, self.max_iterations, self.custom_rules = inline_constants, max_iterations, custom_rules
        self.problems, self.warnings = {}, {}  # what: where it is first
        self.calls = []  # custom calls whose rules are being converted (jaxpr_custom.py)
        self.generators = 0  # calls of rng_uniform
        self.place = ""  # of the equation at hand, or of the innermost one around it that has one

    def problem(self, what):
        self.problems.setdefault(what, self.place)

    def warn(self, what):
        self.warnings.setdefault(what, len(self.warnings))

    def type_of(self, aval):
        try:
            return type_of(aval)
        except Unsupported as e:
            self.problem(str(e))
            return Type("f32", [n if isinstance(n, int) else 1 for n in aval.shape])  # so that the rest is looked at, too

    def empty_graph(self):
        return Graph(self.inline_constants)

    def graph(self, closed):
        """The closed jaxpr as a graph of its own; its captured constants are in graph.captured."""
        g = self.empty_graph()
        xs = [g.input(self.type_of(v.aval)) for v in closed.jaxpr.invars]
        g.outputs = self.inline(g, closed, xs)
        return g

    def inline(self, g, closed, xs):
        """Records the equations of a closed jaxpr in g; the values of its results."""
        jaxpr, env = closed.jaxpr, {}

        def read(v):
            return g.constant(np.asarray(v.val), self.type_of(v.aval)) if isinstance(v, jex.Literal) else env[v]

        for v, c in zip(jaxpr.constvars, closed.consts):
            env[v] = g.constant(rules.plain(c), self.type_of(v.aval))
        env.update(zip(jaxpr.invars, xs))
        for e in jaxpr.eqns:
            ys = self.equation(g, e, [read(v) for v in e.invars])
            env.update((v, y) for v, y in zip(e.outvars, ys))
        return [read(v) for v in jaxpr.outvars]

    def equation(self, g, e, xs):
        name, around = e.primitive.name, self.place
        self.place = rules.source(e) or around
        rule = rules.TABLE.get(name)
        types = [self.type_of(v.aval) for v in e.outvars]
        try:
            if rule is None:
                raise Unsupported(f"primitive {name}")
            ys = rule(rules.Call(self, g, e, xs, types))
            for y, t in zip(ys, types):
                assert y.type == t, f"{name} has {y.type} where JAX has {t}"
        except Unsupported as problem:
            self.problem(str(problem))
            ys = [g.op("unsupported", t) for t in types]
        except Exception:
            if not self.problems:
                raise
            # else a consequence of what was not converted
            ys = [g.op("unsupported", t) for t in types]
        self.place = around
        return ys


def leaf_name(argument, path):
    """x, x/layers/0/kernel: the name of an argument and the keys on the way to its leaf."""
    keys = [str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", k)))) for k in path]
    return "/".join([argument, *keys])


def argument_names(fun, n):
    try:
        names = [p.name for p in inspect.signature(fun).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    except (TypeError, ValueError):
        names = []
    return names + [f"arg{i}" for i in range(len(names), n)]


def input_names(fun, args, kwargs):
    named = list(zip(argument_names(fun, len(args)), args)) + sorted(kwargs.items())
    return [leaf_name(a, path) for a, tree in named for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


def convert_jaxpr(closed, names=None, *, inline_constants=64, max_iterations=0, custom_rules=True):
    """A ClosedJaxpr as a Program. names: one for each input, or None."""
    jaxpr, _ = pe.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)
    closed = jex.ClosedJaxpr(jaxpr, closed.consts)
    c = Converter(inline_constants, max_iterations, custom_rules)
    g = c.graph(closed)
    names = list(names) if names else [f"arg{i}" for i in range(len(g.inputs))]
    constants = {f"const.{i}": value for i, (_, value) in enumerate(g.captured)}
    g.inputs += [v for v, _ in g.captured]
    if c.problems:
        raise Unsupported("\n".join(what + (f" (first at {place})" if place else "") for what, place in c.problems.items()))
    g.labels = names + list(constants)
    return Program(g, g.labels, constants, list(c.warnings), {})


def narrowed(fun, args, kwargs):
    """What JAX, as it is set, makes narrower of the arguments: pairs of its words and whether only a type was given."""
    for name, x in zip(input_names(fun, args, kwargs), jax.tree_util.tree_leaves((args, dict(sorted(kwargs.items()))))):
        dtype = getattr(x, "dtype", None)
        if dtype is None or jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
            continue
        taken = jax.dtypes.canonicalize_dtype(dtype)
        if taken != dtype:
            what = f"argument {name} is of {np.dtype(dtype)}, which JAX takes as {taken} without jax_enable_x64 (--x64)"
            yield what, isinstance(x, jax.ShapeDtypeStruct)


class Noise:
    """Warnings of Python while it is entered: those of arithmetic and of users' libraries are kept, each once, as lines."""

    def __enter__(self):
        self.lines, self.catch = [], warnings.catch_warnings(record=True)
        self.found = self.catch.__enter__()
        for category in (RuntimeWarning, UserWarning):
            warnings.simplefilter("always", category)
        return self

    def __exit__(self, *error):
        self.catch.__exit__(*error)
        for w in self.found:
            if not issubclass(w.category, (RuntimeWarning, UserWarning)):
                warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
                continue
            inside = any(part in ("jax", "numpy") for part in pathlib.PurePath(w.filename).parts) or __file__ == w.filename
            line = next(iter(str(w.message).splitlines()), w.category.__name__)
            line += "" if inside else f" ({pathlib.PurePath(w.filename).name}:{w.lineno})"
            if line not in self.lines:
                self.lines.append(line)


def convert(fun, *args, inline_constants=64, max_iterations=0, custom_rules=True, **kwargs):
    """The Program of fun(*args, **kwargs). Arguments are arrays, jax.ShapeDtypeStruct, or trees of them; their leaves are
    the inputs, named by argument and path. Results are the leaves of the result. inline_constants: constants up to so many
    elements stand in the text. max_iterations: bound of every while loop, so that reverse mode can differentiate it (0: none).
    custom_rules: keep custom_jvp and custom_vjp with their rules; otherwise their value is differentiated, with a warning.
    Raises Unsupported with all that cannot be converted. A type of 64 bits that JAX would make narrower cannot; arrays that it
    makes narrower, and what Python warns of meanwhile, are in the program's warnings."""
    names, narrow = input_names(fun, args, kwargs), list(narrowed(fun, args, kwargs))
    if any(is_type for _, is_type in narrow):
        raise Unsupported("\n".join(what for what, is_type in narrow if is_type))
    with Noise() as noise:
        try:
            closed = jax.make_jaxpr(fun)(*args, **kwargs)
        except Exception as e:  # whatever the function raises: JAX has no type of its own for what it cannot trace
            message = next(iter(str(e).splitlines()), "")
            raise Unsupported(f"JAX cannot trace the function: {type(e).__name__}: {message}") from e
        program = convert_jaxpr(closed, names, inline_constants=inline_constants, max_iterations=max_iterations,
                                custom_rules=custom_rules)
    program.warnings = [what for what, _ in narrow] + program.warnings + noise.lines
    leaves = jax.tree_util.tree_leaves((args, dict(sorted(kwargs.items()))))
    program.arguments = {n: narrow_array(x) for n, x in zip(names, leaves) if not isinstance(x, jax.ShapeDtypeStruct)}
    return program


def narrow_array(x):
    """An argument as an array of the type that its input has."""
    x = rules.plain(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a number that is too large: narrowed() has said so
        return x.astype(jax.dtypes.canonicalize_dtype(x.dtype))


# ---- files ------------------------------------------------------------------------------------------------------------


def save_safetensors(path, arrays):
    """{name: array} as a safetensors file, without the package of that name."""
    import json
    codes = {str(np.dtype(t)): name.upper() for name, t in NUMPY.items()}
    header, offset, blobs = {}, 0, []
    for name, x in sorted(arrays.items(), key=lambda item: (-np.asarray(item[1]).itemsize, item[0])):
        x = np.asarray(x)
        x = x.astype(np.uint32) if x.dtype == np.uint16 else x
        blob = np.ascontiguousarray(x).tobytes()
        header[name] = {"dtype": codes[str(x.dtype)], "shape": list(x.shape), "data_offsets": [offset, offset + len(blob)]}
        offset += len(blob)
        blobs.append(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))


# ---- command line -----------------------------------------------------------------------------------------------------

def argument(text):
    """f32[8,4], a Python literal, FILE.npy, or MODULE:NAME (a value, or a function that makes it)."""
    if match := re.fullmatch(rf"({'|'.join(NUMPY)})\[([\d, ]*)\]", text):
        shape = tuple(int(n) for n in match[2].replace(" ", "").split(",") if n)
        return jax.ShapeDtypeStruct(shape, NUMPY[match[1]])
    if text.endswith(".npy"):
        return np.load(text)
    if re.fullmatch(r"[\w.]+:[\w.]+", text):
        value = lookup(text)
        return value() if callable(value) else value
    try:
        return jax.tree_util.tree_map(literal, ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError):
        raise ValueError(f"argument {text!r}: expected a type ({', '.join(NUMPY)}, as f32[8,4]), a Python literal, FILE.npy, or "
                         "MODULE:NAME") from None


class TooLarge(Exception):
    """A number on the command line that its type does not hold."""


def literal(number):
    """A number of Python as JAX takes it, if its type can hold it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            x = jnp.asarray(number)
        except OverflowError:
            x = None
    if x is None or (isinstance(number, float) and np.isinf(x) and not np.isinf(number)):
        kind = jax.dtypes.canonicalize_dtype(np.int64 if isinstance(number, int) else np.float64)
        more = "" if jax.config.jax_enable_x64 else "; --x64 takes numbers of 64 bits"
        raise TooLarge(f"argument {number!r} does not fit into {kind}{more}")
    return x


def lookup(text):
    module, _, name = text.partition(":")
    value = importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value


def main():
    parser = argparse.ArgumentParser(description="Converts a JAX function to the textual form of Tow.",
                                     epilog="Exit status: 0 fine, 1 something cannot be converted (all of it is named), 2 a bad command line.")
    parser.add_argument("function", metavar="MODULE:FUNCTION")
    parser.add_argument("--args", nargs="*", default=[], metavar="ARG",
                        help="f32[8,4], a Python literal, FILE.npy, or MODULE:NAME (a value or a function that makes it)")
    parser.add_argument("-o", "--output", metavar="FILE", help="the text (standard output)")
    parser.add_argument("--constants", metavar="FILE", help="safetensors file of constants that are not in the text")
    parser.add_argument("--with-inputs", action="store_true", help="put the arguments that are arrays into the same file")
    parser.add_argument("--inline-constants", type=int, default=64, metavar="N", help="constants of up to N elements stand in the text (64)")
    parser.add_argument("--max-iterations", type=int, default=0, metavar="N", help="bound of while loops, for reverse mode")
    parser.add_argument("--no-custom-rules", action="store_true", help="differentiate custom_jvp and custom_vjp functions as they are written")
    parser.add_argument("--x64", action="store_true", help="jax_enable_x64: arguments and numbers of 64 bits")
    o = parser.parse_args()
    if o.x64:
        jax.config.update("jax_enable_x64", True)
    sys.path.insert(0, os.getcwd())
    try:
        fun, args = lookup(o.function), [argument(a) for a in o.args]
    except (ImportError, AttributeError, OSError, ValueError, SyntaxError, TooLarge) as e:
        parser.error(str(e))
    try:
        program = convert(fun, *args, inline_constants=o.inline_constants, max_iterations=o.max_iterations,
                          custom_rules=not o.no_custom_rules)
    except Unsupported as e:
        print("".join(f"jaxpr_to_tow: cannot convert: {line}\n" for line in str(e).splitlines()), file=sys.stderr, end="")
        return 1
    for warning in program.warnings:
        print(f"jaxpr_to_tow: warning: {warning}", file=sys.stderr)
    arrays = {**program.constants, **(program.arguments if o.with_inputs else {})}
    if program.constants and not o.constants:
        print(f"jaxpr_to_tow: {len(program.constants)} constants are inputs of the program ({', '.join(program.constants)}): "
              "--constants FILE writes them", file=sys.stderr)
    if o.constants:
        save_safetensors(o.constants, arrays)
    if o.output:
        pathlib.Path(o.output).write_text(program.text)
    else:
        print(program.text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
