"""Rules of jaxpr_to_tow.py for equations that hold functions: jit, remat, scan, while, cond. Those of custom_jvp and custom_vjp
are in jaxpr_custom.py."""
from jax.extend import core as jex

from jaxpr_graph import Unsupported, policy_name
from jaxpr_rules import index as integer
from jaxpr_rules import rule


def closed(jaxpr):
    return jaxpr if isinstance(jaxpr, jex.ClosedJaxpr) else jex.ClosedJaxpr(jaxpr, [])


def closures(c, *graphs, first=()):
    """Gives all graphs the captured constants of each as first inputs, those in `first` (type, array) before others; the
    operands for them."""
    values, seen = [], {(str(t), array.tobytes()): (t, array) for t, array in first}
    for g in graphs:
        for v, array in g.captured:
            seen.setdefault((str(v.type), array.tobytes()), (v.type, array))
    for g in graphs:
        own = {(str(v.type), array.tobytes()): v for v, array in g.captured}
        inputs = g.inputs
        g.inputs = []
        g.inputs = [own[k] if k in own else g.input(t) for k, (t, _) in seen.items()]
        g.inputs += inputs
    for t, array in seen.values():
        values.append(c.g.constant(array, t))
    return values


@rule("jit", "pjit", "core_call", "closed_call", "core_closed_call", "composite", "custom_vmap_call")
def call(c):
    body = next(c.p[k] for k in ("jaxpr", "call_jaxpr", "call") if c.p.get(k) is not None)
    return c.conv.inline(c.g, closed(body), c.xs)


# ---- remat --------------------------------------------------------------------------------------------------------------

PLAIN_POLICIES = {"everything_saveable": "everything", "nothing_saveable": "nothing", "dots_saveable": "dots",
                  "checkpoint_dots": "dots", "dots_with_no_batch_dims_saveable": "dots_with_no_batch_dims",
                  "checkpoint_dots_with_no_batch_dims": "dots_with_no_batch_dims"}


def policy_text(policy, warn, present):
    """The policy of jax.checkpoint in Tow's words. Policies of the user are Python functions and have none. Tow refuses names
    that no value in the region has (not in `present`), JAX does not: they are left out."""
    def names_text(kind, names):
        for name in sorted(set(names) - present):
            warn(f"the policy of a remat has the name {name!r}, which no value in the region has")
        names = sorted(set(names) & present)
        return f"{kind}:{','.join(map(policy_name, names))}" if names else None

    if policy is None:
        return "nothing"
    kind = type(policy).__name__
    if kind == "DotsSaveable":
        return "dots_with_no_batch_dims" if policy.only_if_no_batch_dims else "dots"
    if kind == "SaveOnlyTheseNames":
        return names_text("names", policy.saveable_names) or "nothing"
    if kind == "SaveAnyNamesButThese":
        return names_text("any_names_but", next(iter(vars(policy).values()))) or (
            f"names:{','.join(map(policy_name, sorted(present)))}" if present else "nothing")
    name = getattr(policy, "__qualname__", kind)
    inside = inspect_closure(policy)
    if name in PLAIN_POLICIES:
        return PLAIN_POLICIES[name]
    if name.startswith("save_anything_except_these_names"):
        warn("save_anything_except_these_names saves everything, as it does in JAX, which forgets the names")
        return "everything"
    if name.startswith("save_from_both_policies"):
        return f"either({policy_text(inside['policy_1'], warn, present)};{policy_text(inside['policy_2'], warn, present)})"
    if name.startswith("offload_dot_with_no_batch_dims"):
        warn("a policy that moves residuals to the host keeps them in memory here")
        return "dots_with_no_batch_dims"
    if name.startswith("save_and_offload_only_these_names"):
        warn("a policy that moves residuals to the host keeps them in memory here")
        return names_text("names", {*inside["names_which_can_be_saved"], *inside["names_which_can_be_offloaded"]}) or "nothing"
    raise Unsupported(f"remat with the policy {name}")


def inspect_closure(f):
    code, cells = getattr(f, "__code__", None), getattr(f, "__closure__", None)
    return {n: c.cell_contents for n, c in zip(code.co_freevars, cells)} if code and cells else {}


@rule("checkpoint", "remat2", "remat")
def remat(c):
    body = c.conv.graph(closed(c.p["jaxpr"]))
    operands = closures(c, body) + c.xs
    policy = policy_text(c.p["policy"], c.conv.warn, body.names())
    return c.g.emit("remat", c.types, operands, policy=policy, body=body)


# ---- loops and choices --------------------------------------------------------------------------------------------------


@rule("scan")
def scan(c):
    body = c.conv.graph(closed(c.p["jaxpr"]))
    more = closures(c, body)
    return c.g.emit("scan", c.types, more + c.xs, length=c.p["length"], reverse=bool(c.p["reverse"]),
                    consts=c.p["num_consts"] + len(more), carry=c.p["num_carry"], body=body)


@rule("while")
def while_(c):
    """Both graphs see the constants of both: those of the condition, then those of the body. A condition for each row, which vmap
    makes, becomes: as long as it holds for some row, rows for which it does not hold stay as they are."""
    n_condition, n_body = c.p["cond_nconsts"], c.p["body_nconsts"]
    n_consts = n_condition + n_body

    def of_carry(g):
        inputs = [g.input(x.type) for x in c.xs]
        return inputs[:n_condition], inputs[n_condition:n_consts], inputs[n_consts:]
    condition, body = c.conv.empty_graph(), c.conv.empty_graph()
    consts, _, carry = of_carry(condition)
    holds, = c.conv.inline(condition, closed(c.p["cond_jaxpr"]), consts + carry)
    rows = holds.type.shape
    condition.outputs = [condition.op("reduce_or", holds.type.with_shape(()), holds, axes=range(len(rows))) if rows else holds]
    first, consts, carry = of_carry(body)
    body.outputs = c.conv.inline(body, closed(c.p["body_jaxpr"]), consts + carry)
    if rows:
        holds, = c.conv.inline(body, closed(c.p["cond_jaxpr"]), first + carry)
        body.outputs = [body.op("select", y.type, body.broadcast(holds, y.type.shape, range(len(rows))), y, x)
                        for x, y in zip(carry, body.outputs)]
    more = closures(c, condition, body)
    return c.g.emit("while", c.types, more + c.xs, consts=n_consts + len(more), max_iterations=c.conv.max_iterations,
                    condition=condition, body=body)


def chosen_platform(platforms):
    """The number of the entry that is for Tow: that of the processor, else the default."""
    for i, names in enumerate(platforms):
        if names is None or "cpu" in names:
            return i
    raise Unsupported(f"code for the platforms {', '.join(sorted({n for names in platforms for n in names}))} alone")


@rule("platform_index")
def platform_index(c):
    return [c.g.constant(chosen_platform(c.p["platforms"]), c.type)]


@rule("cond")
def cond(c):
    index, *operands = c.xs
    if c.p.get("branches_platforms") is not None:
        return c.conv.inline(c.g, closed(c.p["branches"][chosen_platform(c.p["branches_platforms"])]), operands)
    branches = [c.conv.graph(closed(b)) for b in c.p["branches"]]
    more = closures(c, *branches)
    if len(branches) == 1:
        return c.conv.inline(c.g, closed(c.p["branches"][0]), operands)
    return c.g.emit("cond", c.types, [integer(c, index), *more, *operands], branches=branches)


import jaxpr_custom  # noqa: E402,F401  registers its rules here
