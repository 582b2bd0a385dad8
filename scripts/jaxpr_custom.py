"""Rules of jaxpr_to_tow.py for calls with derivatives of their own: custom_jvp, custom_vjp, and samples of the gamma distribution.

JAX keeps their rules as Python functions, and traces them where something is differentiated. Here they are traced at once. A rule
that calls its own function again would never end: the calls whose rules are being traced stand in a list, and one that is in
it already becomes custom_self (docs/custom-rules.md). Two calls are the same if the Python function of the rule is, with what
JAX has wrapped around it, and the types are."""
import inspect

import jax
import numpy as np
from jax._src import custom_derivatives
from jax._src import linear_util
from jax._src.interpreters import ad
from jax.extend import core as jex
from jax.interpreters import partial_eval as pe

from jaxpr_graph import NUMPY, Type, Unsupported
from jaxpr_regions import closed, closures
from jaxpr_rules import rule

PLUMBING = ("_interleave_fun", "_handle_consts_in_bwd")  # what JAX wraps around a rule once more whenever it is traced
MOST_LEVELS = 3  # of rules of one function inside of each other that are not recognized as the same


class Untraceable(Exception):
    """Why JAX cannot trace a rule by itself: then it cannot be differentiated either, or once only."""


class CustomCall:
    """A call whose rules are being traced. captured: pairs (type, array) that all of its functions get, when they are known."""

    def __init__(self, key):
        self.key, self.captured, self.is_recursive = key, [], False


# ---- which call is it ---------------------------------------------------------------------------------------------------


def wrapped_functions(f, seen):
    """The WrappedFun in f and those in closures of its function, outermost first, down to the function of the user."""
    if id(f) in seen:
        return
    seen.add(id(f))
    if isinstance(f, linear_util.WrappedFun):
        yield f
        if not any(g.__name__ in ("_flatten_jvp", "_flatten_fwd") for g, _ in f.transforms):
            yield from wrapped_functions(f.f, seen)
    for value in inspect.getclosurevars(f).nonlocals.values() if inspect.isfunction(f) else ():
        if callable(value) or isinstance(value, linear_util.WrappedFun):
            yield from wrapped_functions(value, seen)


def comparable(x):
    """A parameter of a transformation by which calls are told apart, or None."""
    if isinstance(x, (tuple, list)):
        return tuple(comparable(y) for y in x) if type(x) in (tuple, list) else None
    if isinstance(x, (str, int, bool, type(None), jax.tree_util.PyTreeDef)):
        return x
    if hasattr(x, "val"):  # arguments that are not differentiated
        return comparable(x.val)
    if callable(x) and "transformation_with_aux" not in getattr(x, "__qualname__", ""):
        return id(x)
    return str(np.asarray(x).tolist()) if isinstance(x, (np.ndarray, np.generic, float)) else None


def call_key(fun, eqn):
    layers = list(wrapped_functions(fun, set()))
    transforms = tuple((g.__name__, comparable(tuple(p))) for w in layers for g, p in w.transforms
                       if g.__name__ not in PLUMBING)
    return (layers[-1].f, transforms, *((str(v.aval.dtype), v.aval.shape) for v in (*eqn.invars, *eqn.outvars)))


def closed_over(c, fun):
    """How many leading operands are values that the function closes over, of which the rule knows nothing. JAX makes
    ordinary operands of them when it traces a call once more."""
    layers = (inspect.getclosurevars(w.f).nonlocals for w in wrapped_functions(fun, set()) if inspect.isfunction(w.f))
    return c.p["num_consts"] + sum(v["num_consts"] for v in layers if "num_consts" in v and ("jvp_jaxpr_fun" in v or "fwd_jaxpr_thunk" in v))


def function_name(c):
    return getattr(closed(c.p["call_jaxpr"]).jaxpr.debug_info, "func_name", None) or "function"


def is_relu(key):
    f = jax.nn.relu
    while f is not None and not isinstance(f, jax.custom_jvp):
        f = getattr(f, "__wrapped__", None)
    return f is not None and key[0] is f.jvp


# ---- tracing the rules --------------------------------------------------------------------------------------------------


def has_tangent(aval):
    return aval.to_tangent_aval().dtype != jax.dtypes.float0


def structs(avals):
    return [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]


def traced(f, avals):
    """f as a closed jaxpr, without equations that no result needs."""
    try:
        jaxpr = jax.make_jaxpr(f)(*avals)
    except Exception as e:  # whatever the rule raises, as in convert()
        raise Untraceable(f"{type(e).__name__}: {next(iter(str(e).splitlines()), '').split('. ')[0]}") from e
    if any(isinstance(x, jax.core.Tracer) for x in jaxpr.consts):
        raise Untraceable("it closes over a value of the function that is traced around it")
    needed, _ = pe.dce_jaxpr(jaxpr.jaxpr, [True] * len(jaxpr.jaxpr.outvars), instantiate=True)
    return jex.ClosedJaxpr(needed, jaxpr.consts)


def no_tangent(aval, symbolic):
    if symbolic:
        return custom_derivatives.SymbolicZero(aval.to_tangent_aval())
    return np.zeros(aval.shape, jax.dtypes.float0)


def is_zero(x):
    return x is None or isinstance(x, (ad.Zero, custom_derivatives.SymbolicZero)) or getattr(x, "dtype", None) == jax.dtypes.float0


def linear_results(found, avals):
    """Those of tangents or cotangents that exist, zeros as arrays."""
    return [jax.numpy.zeros(a.shape, a.dtype) if is_zero(x) else x for x, a in zip(found, avals) if has_tangent(a)]


def jvp_rule(c, n_fixed):
    """(x, dx of the floats behind the closed-over values) -> (y, dy of the floats), as a closed jaxpr."""
    _, jvp = c.eqn.primitive.get_bind_params(c.p)["subfuns"]
    avals, outs = [v.aval for v in c.eqn.invars], [v.aval for v in c.eqn.outvars]
    moving = [i >= n_fixed and has_tangent(a) for i, a in enumerate(avals)]

    def of_floats(*args):
        xs, tangents = args[:len(avals)], iter(args[len(avals):])
        dxs = [next(tangents) if m else no_tangent(a, c.p["symbolic_zeros"]) for m, a in zip(moving, avals)]
        results = jvp.call_wrapped(*xs, *dxs)
        return [*results[:len(outs)], *linear_results(results[len(outs):], outs)]
    return traced(of_floats, [*structs(avals), *structs(a for a, m in zip(avals, moving) if m)])


def vjp_rules(c, n_fixed):
    """x -> (y, residuals), and (residuals, ct of the floats of y) -> ct of the floats behind the closed-over values."""
    _, fwd, bwd = c.eqn.primitive.get_bind_params(c.p)["subfuns"]
    avals, outs = [v.aval for v in c.eqn.invars], [v.aval for v in c.eqn.outvars]

    def forward(*xs):
        results = fwd.call_wrapped(*(y for i, x in enumerate(xs) for y in (x, i >= n_fixed and has_tangent(avals[i]))))
        n = len(results) - len(outs)
        computed = iter(results[:n])
        residuals = [next(computed) if i is None else xs[i] for i in c.p["out_trees"]()[2]]
        return [*results[n:], *residuals]
    fwd_jaxpr = traced(forward, structs(avals))
    residuals = structs(fwd_jaxpr.out_avals[len(outs):])

    def backward(*args):
        given = iter(args[len(residuals):])
        cts = [next(given) if has_tangent(a) else no_tangent(a, c.p["symbolic_zeros"]) for a in outs]
        return linear_results(bwd.call_wrapped(*args[:len(residuals)], *cts)[n_fixed:], avals[n_fixed:])
    return fwd_jaxpr, traced(backward, [*residuals, *structs(a for a in outs if has_tangent(a))])


# ---- conversion ---------------------------------------------------------------------------------------------------------


def graphs_of(c, call, trace):
    """The body and the rules, which capture the same constants, and the operands for these."""
    c.conv.calls.append(None)
    graphs = [c.conv.graph(closed(c.p["call_jaxpr"]))]
    n_captured = len(graphs[0].captured)
    c.conv.calls[-1] = call
    graphs += [c.conv.graph(jaxpr) for jaxpr in trace]
    c.conv.calls.pop()
    captured = closures(c, *graphs)
    unseen = call.is_recursive and len(captured) > n_captured and not call.captured
    return graphs, captured, unseen


def custom_self(c, call, level):
    """The call whose rule this is, with all constants that its functions capture."""
    call.is_recursive = True
    body = c.conv.graph(closed(c.p["call_jaxpr"]))
    operands = closures(c, body, first=call.captured) + c.xs
    return c.g.emit("custom_self", c.types, operands, name=function_name(c), **({"level": level} if level else {}), body=body)


def value_alone(c, why):
    c.conv.warn(f"the rule of {function_name(c)} is left out{why}: its value is differentiated")
    return c.conv.inline(c.g, closed(c.p["call_jaxpr"]), c.xs)


def custom_call(c, primitive, rule_function, trace):
    if not c.conv.custom_rules:
        return value_alone(c, "")
    key = call_key(c.p[rule_function], c.eqn)
    if primitive == "custom_jvp" and is_relu(key) and len(c.xs) == 1:  # Tow's primitive has the rule of JAX's function
        return [c.op("relu", c.x)]
    around = [call for call in c.conv.calls if call]
    for level, call in enumerate(reversed(around)):
        if call.key == key:
            return custom_self(c, call, level)
    if sum(call.key[0] is key[0] for call in around) >= MOST_LEVELS:
        return value_alone(c, f" {MOST_LEVELS} rules deep")
    n_fixed = closed_over(c, c.p[rule_function])
    try:
        call, traced = CustomCall(key), trace(c, n_fixed)
    except Untraceable as e:
        return value_alone(c, f" (JAX cannot trace it: {e})")
    graphs, captured, unseen = graphs_of(c, call, traced)
    if unseen:  # now that all constants are known, rules that call the function hand them on
        call.captured = [(v.type, array) for g in graphs for v, array in g.captured]
        graphs, captured, _ = graphs_of(c, call, traced)
    params = {"name": function_name(c)}
    params |= {"captured": len(captured)} if captured else {}
    params |= {"fixed": n_fixed} if n_fixed else {}
    names = ("body", "rule") if primitive == "custom_jvp" else ("body", "forward", "backward")
    return c.g.emit(primitive, c.types, captured + c.xs, **params, **dict(zip(names, graphs)))


@rule("custom_jvp_call")
def custom_jvp(c):
    return custom_call(c, "custom_jvp", "jvp_jaxpr_fun", lambda *args: [jvp_rule(*args)])


@rule("custom_vjp_call")
def custom_vjp(c):
    if "call_jaxpr" not in c.p:
        raise Unsupported(f"{c.name} of an older JAX")
    return custom_call(c, "custom_vjp", "fwd_jaxpr_thunk", vjp_rules)


@rule("random_gamma")
def random_gamma(c):
    """Samples of the gamma distribution: JAX's loops of rejections, which have the derivative of a sample by its shape, that of
    implicit differentiation."""
    key, a = c.eqn.invars
    sampler = traced(lambda key, a: c.eqn.primitive.impl(key, a, **c.p), structs([key.aval, a.aval]))
    bound, c.conv.max_iterations = c.conv.max_iterations, 0  # they end by themselves, and nothing in them is reversed
    body, with_rule = c.conv.graph(sampler), c.conv.empty_graph()
    xs = [with_rule.input(x.type) for x in c.xs]
    dx = with_rule.input(c.type)
    y, = c.conv.inline(with_rule, sampler, xs)
    c.conv.max_iterations = bound
    slope = gamma_slope(with_rule, xs[1], y, c.p["log_space"])
    with_rule.outputs = [y, with_rule.op("mul", c.type, dx, slope)]
    captured = closures(c, body, with_rule)
    params = {"captured": len(captured)} if captured else {}
    return c.g.emit("custom_jvp", c.types, captured + c.xs, name="random_gamma", **params, body=body, rule=with_rule)


def gamma_slope(g, a, y, log_space):
    """dy/da of a sample y, or of its logarithm, whose exponential is at least the smallest normal number."""
    if not log_space:
        return g.op("random_gamma_grad", y.type, a, y)
    x, zero = g.op("exp", y.type, y), g.broadcast(g.scalar(0, y.type.dtype), y.type.shape)
    least = g.broadcast(g.scalar(jax.numpy.finfo(NUMPY[y.type.dtype]).tiny, y.type.dtype), y.type.shape)
    x = g.op("select", y.type, g.op("eq", Type("bool", y.type.shape), x, zero), least, x)
    return g.op("div", y.type, g.op("random_gamma_grad", y.type, a, x), x)
