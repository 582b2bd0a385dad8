"""Writes golden/flax_axes.txt: variables of scans and vmaps stacked on other axes than 0, as Flax runs them with variable_axes. Lines
as in flax_lift.py. Flax has an axis for each collection; case "by_path", which has one for each path, is a run on axis 0 of which the
arrays are moved.

Run: python tests/oracle/flax_axes.py
"""

import os

import flax.linen as nn
import numpy as np

import flax_lift
from flax_lift import SPLIT, X3, Cell, Layer, case, scan, vmap


def axes(params, batch_stats=0, counters=0):
    return {"params": params, "batch_stats": batch_stats, "counters": counters}


ONE, END = axes(1), axes(-1, 1, -1)


def nested(outer, inner, first=nn.scan, second=nn.scan, lengths=(2, 3)):
    """A transform of a transform."""
    sizes = [{"length": n} if t is nn.scan else {} for t, n in zip((first, second), lengths)]
    of = second(Cell, variable_axes=inner, split_rngs=SPLIT, **sizes[1])
    return first(of, variable_axes=outer, split_rngs=SPLIT, **sizes[0])(name="stack")


CASES = {
    "one": case(lambda: scan(variable_axes=ONE), u=X3),
    "end": case(lambda: scan(variable_axes=END), u=X3),
    "negative": case(lambda: scan(variable_axes=axes(-2, -2)), u=X3),
    "statistics": case(lambda: scan(variable_axes=axes(0, 1))),
    "reverse": case(lambda: scan(variable_axes=END, reverse=True), u=X3),
    "unroll": case(lambda: scan(variable_axes=ONE, length=5, unroll=2), u=(5, 2, 4)),
    "remat": case(lambda: scan(nn.remat(Cell), variable_axes=ONE), u=X3),
    "carried": case(
        lambda: scan(variable_axes={"params": 1, "batch_stats": -1}, variable_carry="counters"),
        u=X3,
        start=lambda: scan(variable_axes=axes(1, -1)),
    ),
    "shared": case(
        lambda: scan(variable_axes={"batch_stats": 1, "counters": 0}, variable_broadcast="params", split_rngs={"params": False, "noise": True}),
        u=X3,
    ),
    "by_path": case(lambda: scan(), u=X3),
    "nested_1_0": case(lambda: nested(axes(1, 1), axes(0))),
    "nested_0_1": case(lambda: nested(axes(0), axes(1, 1))),
    "nested_1_1": case(lambda: nested(axes(1, 1), axes(1, 1))),
    "nested_end_1": case(lambda: nested(axes(-1, -1, -1), axes(1, 0))),
    "nested_1_end": case(lambda: nested(axes(1, 0, 1), axes(-1, -1))),
    "nested_end_end": case(lambda: nested(axes(-1, -2), axes(-1, 1))),
    "remat_scan": case(lambda: nn.remat_scan(Layer, lengths=(2, 3), variable_axes=axes(1, -1))(name="stack")),
    "remat_scan_end": case(lambda: nn.remat_scan(Layer, lengths=(2, 1, 2), variable_axes=axes(-1, 1))(name="stack")),
    "vmap": case(lambda: vmap(variable_axes=ONE), x=X3),
    "vmap_end": case(lambda: vmap(variable_axes=END), x=X3),
    "vmap_ensemble": case(lambda: vmap(variable_axes=axes(1, -1), in_axes=None, axis_size=3)),
    "vmap_of_scan": case(lambda: nested(axes(1, 1), axes(-1, 0), first=nn.vmap, lengths=(3, 2)), x=X3),
    "scan_of_vmap": case(lambda: nested(axes(-1, 0), axes(1, -1), second=nn.vmap, lengths=(2, 3)), x=X3),
}


PLACES = {"kernel": 1, "bias": -1, "mean": 1}


def move(line):
    """A line of a golden file with the layers of "by_path" where PLACES says."""
    name, what, shape, *words = line.split()
    axis = PLACES.get(what.split("/")[-1])
    if name != "by_path" or axis is None:
        return line
    array = np.moveaxis(np.array(words).reshape([int(n) for n in shape.split("x")]), 0, axis)
    return " ".join([name, what, "x".join(map(str, array.shape)), *array.reshape(-1)]) + "\n"


if __name__ == "__main__":
    flax_lift.CASES = CASES
    flax_lift.main("flax_axes.txt")
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "flax_axes.txt")
    with open(path, encoding="utf-8") as file:
        lines = [move(line) for line in file]
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(lines)
