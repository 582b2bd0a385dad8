"""The rules of jaxpr_to_tow.py for moves: shapes, slices, gather and scatter (see jaxpr_rules.py)."""
import numpy as np
from jax import lax

from jaxpr_graph import INTEGERS, NUMPY, Dtype
from jaxpr_rules import combined, index, rule


@rule("broadcast_in_dim")
def broadcast_in_dim(c):
    axes = tuple(c.p["broadcast_dimensions"])
    return [c.g.broadcast(c.x, c.type.shape, axes + (len(c.type.shape) - 1,) if c.is_key() else axes)]


@rule("reshape", "squeeze", "expand_dims")
def reshape(c):
    """lax.reshape takes the axes in an order of their own, if it has one."""
    x, order = c.x, c.p.get("dimensions") if c.name == "reshape" else None
    if order is not None:
        order = tuple(order)
        x = c.g.op("transpose", x.type.with_shape([x.type.shape[i] for i in order]), x, permutation=order)
    return [c.g.reshape(x, c.type.shape)]


@rule("transpose")
def transpose(c):
    order = tuple(c.p["permutation"])
    return [c.op("transpose", c.x, permutation=order + (len(order),) if c.is_key() else order)]


@rule("slice")
def slice_(c):
    start, limit = tuple(c.p["start_indices"]), tuple(c.p["limit_indices"])
    stride = tuple(c.p["strides"] or (1,) * len(start))
    if c.is_key():
        start, limit, stride = start + (0,), limit + (2,), stride + (1,)
    return [c.op("slice", c.x, start=start, limit=limit, stride=stride)]


@rule("split")
def split(c):
    axis, at, parts = c.p["axis"], 0, []
    shape = c.x.type.shape
    for t in c.types:
        start = [0] * len(shape)
        limit = list(shape)
        start[axis], limit[axis] = at, at + t.shape[axis]
        parts.append(c.g.op("slice", t, c.x, start=start, limit=limit, stride=[1] * len(shape)))
        at = limit[axis]
    return parts


@rule("stack")
def stack(c):
    axis = c.p["axis"]
    shape = c.type.shape[:axis] + (1,) + c.type.shape[axis + 1:]
    return [c.op("concatenate", *(c.g.reshape(x, shape) for x in c.xs), axis=axis)]


@rule("unstack")
def unstack(c):
    axis, shape = c.p["axis"], c.x.type.shape
    rows = []
    for i, t in enumerate(c.types):
        start, limit = [0] * len(shape), list(shape)
        start[axis], limit[axis] = i, i + 1
        row = c.g.op("slice", t.with_shape((*shape[:axis], 1, *shape[axis + 1:])), c.x, start=start, limit=limit, stride=[1] * len(shape))
        rows.append(c.g.reshape(row, t.shape))
    return rows


@rule("tile")
def tile(c):
    """One axis after the other: [all before it, it and all behind it], repeated r times: [before, r, behind]."""
    reps = tuple(c.p["reps"])
    x = c.g.reshape(c.x, (1,) * (len(reps) - len(c.x.type.shape)) + c.x.type.shape)
    for axis, n in enumerate(reps):
        if n != 1:
            shape = x.type.shape
            before, behind = (int(np.prod(part, dtype=np.int64)) for part in (shape[:axis], shape[axis:]))
            x = c.g.broadcast(c.g.reshape(x, (before, behind)), (before, n, behind), (0, 2))
            x = c.g.reshape(x, (*shape[:axis], n * shape[axis], *shape[axis + 1:]))
    return [x]


@rule("pad")
def pad(c):
    low, high, interior = zip(*c.p["padding_config"]) if c.p["padding_config"] else ((), (), ())
    return [c.op("pad", *c.xs, low=low, high=high, interior=interior)]


@rule("concatenate")
def concatenate(c):
    return [c.op("concatenate", *c.xs, axis=c.p["dimension"])]


@rule("rev")
def rev(c):
    return [c.op("rev", c.x, axes=c.p["dimensions"])]


@rule("iota")
def iota(c):
    return [c.op("iota", dtype=Dtype(c.type.dtype), shape=c.type.shape, axis=c.p["dimension"])]


@rule("empty", "empty2")
def empty(c):
    return [c.g.broadcast(c.g.scalar(0, c.type.dtype), c.type.shape)]


@rule("dynamic_slice")
def dynamic_slice(c):
    x, *starts = c.xs
    sizes = tuple(c.p["slice_sizes"])
    starts = [index(c, s) for s in starts]
    if c.is_key():
        sizes, starts = sizes + (2,), [*starts, c.g.scalar(0, "i32")]
    return [c.op("dynamic_slice", x, *starts, sizes=sizes)]


@rule("dynamic_update_slice")
def dynamic_update_slice(c):
    x, u, *starts = c.xs
    starts = [index(c, s) for s in starts]
    return [c.op("dynamic_update_slice", x, u, *starts)]


# ---- gather, scatter ----------------------------------------------------------------------------------------------------


def fill_value(dtype, given):
    if given is not None:
        return float(given)
    if dtype == "bool":
        return 1.0
    if dtype in INTEGERS:
        limits = np.iinfo(NUMPY[dtype])
        return float(limits.min if dtype[0] == "i" else limits.max)
    return float("nan")


@rule("gather")
def gather(c):
    d, mode = c.p["dimension_numbers"], c.p["mode"]
    c.require(not c.is_key(), "of typed keys")
    params = dict(offset_dims=d.offset_dims, collapsed_slice_dims=d.collapsed_slice_dims,
                  operand_batching_dims=d.operand_batching_dims,
                  start_indices_batching_dims=d.start_indices_batching_dims, start_index_map=d.start_index_map,
                  slice_sizes=c.p["slice_sizes"])
    if mode == lax.GatherScatterMode.CLIP:
        params["clip"] = True
    fill = mode == lax.GatherScatterMode.FILL_OR_DROP
    params["fill"] = fill
    params["fill_value"] = fill_value(c.type.dtype, c.p["fill_value"]) if fill else 0.0
    return [c.op("gather_general", c.x, index(c, c.xs[1], unsigned=True), **params)]


@rule("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max",
      "scatter_add", "scatter_sub", "scatter_mul", "scatter_min", "scatter_max")
def scatter(c):
    d, mode = c.p["dimension_numbers"], c.p["mode"]
    x, indices, u = c.xs
    how = c.name.replace("-", "_").removeprefix("scatter").removeprefix("_")
    if how == "" and c.p.get("update_jaxpr") is not None:  # scatter_apply has its function here
        u = applied(c, x, indices, u)
    if how == "sub":
        how, u = "add", c.g.op("neg", u.type, u)
    params = dict(update_window_dims=d.update_window_dims, inserted_window_dims=d.inserted_window_dims,
                  operand_batching_dims=d.operand_batching_dims,
                  scatter_indices_batching_dims=d.scatter_indices_batching_dims,
                  scatter_dims_to_operand_dims=d.scatter_dims_to_operand_dims,
                  clip=mode == lax.GatherScatterMode.CLIP, unique_indices=bool(c.p["unique_indices"]))
    return [c.short(c.op("scatter_general" + ("_" + how if how else ""), x, index(c, indices, unsigned=True), u, **params))]


def applied(c, x, indices, u):
    """The windows of x at the indices, through the function of a scatter, once each."""
    d, places = c.p["dimension_numbers"], int(np.prod(indices.type.shape[:-1], dtype=np.int64))
    c.require(places <= 1 or c.p["unique_indices"], "with a function, at indices that may be equal (unique_indices)")
    sizes = iter(u.type.shape[i] for i in sorted(d.update_window_dims))
    missing = {*d.inserted_window_dims, *d.operand_batching_dims}
    windows = c.g.op("gather_general", u.type, x, index(c, indices, unsigned=True), offset_dims=d.update_window_dims,
                     collapsed_slice_dims=d.inserted_window_dims, operand_batching_dims=d.operand_batching_dims,
                     start_indices_batching_dims=d.scatter_indices_batching_dims, start_index_map=d.scatter_dims_to_operand_dims,
                     slice_sizes=[1 if i in missing else next(sizes) for i in range(len(x.type.shape))], fill=False, fill_value=0.0)
    return combined(c, [windows], [u], c.p["update_jaxpr"], c.p["update_consts"])[0]
