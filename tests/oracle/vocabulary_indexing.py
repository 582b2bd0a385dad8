"""Sorting, searching, gather and scatter.

    python3 tests/oracle/vocabulary_indexing.py        (needs jax; made with jax 0.10.2)
"""
import jax
import jax.numpy as jnp
import numpy as np
from golden_cases import File

lax = jax.lax
INF, NAN = np.inf, np.nan
file = File("vocabulary_indexing.txt", "vocabulary_indexing.py")
rng = np.random.default_rng(7)
x = rng.permutation(np.arange(24) - 11.5).reshape(4, 6) / 4
cube = rng.permutation(np.arange(24) - 11.5).reshape(2, 3, 4) / 4
special = np.array([1.0, NAN, -0.0, INF, 0.0, -INF, -NAN, 0.0, -1.0, 1.0])
ties = np.array([2.0, 2.0, 1.0, 3.0, 2.0])
ints = np.array([[5, -3, 2**31 - 1], [-2**31, 5, 5]], np.int32)
words = np.array([[5, 2**32 - 1, 0], [2**31, 5, 5]], np.uint32)
empty = np.zeros((3, 0))

# ---- sort
for axis in (0, 1):
    file.case(f"sort{axis}", lambda x, axis=axis: jnp.sort(x, axis=axis), x)
    file.case(f"sort_down{axis}", lambda x, axis=axis: jnp.sort(x, axis=axis, descending=True), x)
    file.case(f"argsort{axis}", lambda x, axis=axis: jnp.argsort(x, axis=axis), x, gradient=False)
    file.case(f"argsort_down{axis}", lambda x, axis=axis: jnp.argsort(x, axis=axis, descending=True), x, gradient=False)
file.case("sort1", lambda x: jnp.sort(x, axis=1), ints)
file.case("sort1", lambda x: jnp.sort(x, axis=1), words)
file.case("sort1", lambda x: jnp.sort(x, axis=1), empty)
file.case("sort_middle", lambda x: jnp.sort(x, axis=-2), cube)
for data in (special, ties):
    file.case("sort0", lambda x: jnp.sort(x), data, tolerance=0)
    file.case("sort_down0", lambda x: jnp.sort(x, descending=True), data, tolerance=0)
    file.case("argsort0", lambda x: jnp.argsort(x), data, gradient=False)
    file.case("argsort_down0", lambda x: jnp.argsort(x, descending=True), data, gradient=False)
key = np.array([[1, 0, 1, 2, 0, 1]] * 4, np.int32)
file.case("sort_pairs", lambda k, x: lax.sort((k, x), dimension=1, num_keys=1), key, x)
file.case("sort_by_two", lambda k, x: lax.sort((k, x), dimension=1, num_keys=2), key, x)
long = rng.integers(0, 50, 700).astype(np.float64)
file.case("argsort0", lambda x: jnp.argsort(x), long, gradient=False)

# ---- top_k, argmin, searchsorted
file.case("top_3", lambda x: lax.top_k(x, 3), x)
file.case("top_3", lambda x: lax.top_k(x, 3), special, tolerance=0)
file.case("top_3", lambda x: lax.top_k(x, 3), ties)
file.case("top_3", lambda x: lax.top_k(x, 3), ints)
file.case("top_3", lambda x: lax.top_k(x, 3), words)
file.case("top_2_of_columns", lambda x: [y.T for y in lax.top_k(x.T, 2)], x)
file.case("top_10", lambda x: lax.top_k(x, 10), special, tolerance=0)
for data in (special, ties, ints[0], words[1]):
    file.case("argmin", lambda x: jnp.argmin(x), data, gradient=False)
file.case("argmin1", lambda x: jnp.argmin(x, axis=1), x, gradient=False)
shelf = np.array([-1.0, 0.0, 0.0, 2.0, 3.0, NAN, NAN])
wanted = np.array([[-2.0, -0.0, 2.0, 2.5], [NAN, INF, 3.0, -INF]])
for side in ("left", "right"):
    file.case("searchsorted_" + side, lambda a, v, side=side: jnp.searchsorted(a, v, side=side), shelf, wanted,
              gradient=False)
    file.case("searchsorted_" + side, lambda a, v, side=side: jnp.searchsorted(a, v, side=side), np.zeros(0), wanted,
              gradient=False)
    file.case("searchsorted_" + side, lambda a, v, side=side: jnp.searchsorted(a, v, side=side),
              np.array([1, 3, 3, 7], np.int32), np.array([0, 3, 9], np.int32))

# ---- gather
MODES = {"in_bounds": "promise_in_bounds", "clip": "clip", "fill": "fill"}
table = (np.arange(30.0) - 14.5).reshape(5, 6) / 4
rows = np.array([[3], [0], [3], [4]], np.int32)
wild = np.array([[3], [5], [-1], [2**31 - 1], [-2**31]], np.int32)


def gather(x, i, sizes, mode, **dims):
    return lax.gather(x, i, lax.GatherDimensionNumbers(**dims), sizes, mode=mode)


for name, mode in MODES.items():
    indices = rows if name == "in_bounds" else wild
    windows = np.array([[1, 2], [3, 4], [0, 0]], np.int32)
    if name != "in_bounds":
        windows = np.array([[1, 2], [4, 4], [-3, 9], [0, -1]], np.int32)
    file.case("gather_rows_" + name, lambda x, i, m=mode: gather(
        x, i, (1, 6), m, offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,)), table, indices)
    file.case("gather_windows_" + name, lambda x, i, m=mode: gather(
        x, i, (2, 2), m, offset_dims=(0, 2), collapsed_slice_dims=(), start_index_map=(0, 1)), table, windows)
    file.case("gather_swapped_" + name, lambda x, i, m=mode: gather(
        x, i, (1, 1), m, offset_dims=(), collapsed_slice_dims=(0, 1), start_index_map=(1, 0)), table,
        np.minimum(windows, 4) if name == "in_bounds" else windows)
    file.case("gather_ints_" + name, lambda x, i, m=mode: gather(
        x, i, (1, 3), m, offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,)), ints,
        rows % 2 if name == "in_bounds" else wild)
batched = np.array([[[4], [0]], [[2], [2]], [[5], [1]], [[0], [3]], [[1], [5]]], np.int32)
file.case("gather_batched", lambda x, i: gather(
    x, i, (1, 2), "clip", offset_dims=(2,), collapsed_slice_dims=(), operand_batching_dims=(0,),
    start_indices_batching_dims=(0,), start_index_map=(1,)), table, batched)
file.case("gather_rows_fill", lambda x, i: gather(
    x, i, (1, 6), "fill", offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,)), table,
    np.array([[3], [2**32 - 1]], np.uint32))
file.case("gather_rows_clip", lambda x, i: gather(
    x, i, (1, 6), "clip", offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,)), table,
    np.zeros((0, 1), np.int32))

# ---- scatter
KINDS = {"set": lax.scatter, "add": lax.scatter_add, "mul": lax.scatter_mul, "min": lax.scatter_min,
         "max": lax.scatter_max}


def scatter(kind, x, i, u, mode, unique, **dims):
    return KINDS[kind](x, i, u, lax.ScatterDimensionNumbers(**dims), mode=mode, unique_indices=unique)


updates = rng.permutation(np.arange(24) - 11.0).reshape(4, 6) / 4
some = np.array([[3], [5], [3], [-1]], np.int32)
for kind in KINDS:
    unique = kind == "mul"
    for mode in ("clip", "fill"):
        places = np.array([[3], [5], [0], [-1]], np.int32) if unique and mode == "fill" else some
        # JAX reads min and max back without the mode, so that its gradient is NaN where clip moves a window: not compared.
        gradient = mode == "fill" or kind in ("set", "add")
        file.case(f"scatter_rows_{kind}_{mode}", lambda x, i, u, k=kind, m=mode, q=unique and mode == "fill": scatter(
            k, x, i, u, m, q, update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)),
            table, places, updates, gradient=gradient, loose=4)
    overlap = np.array([[0, 1], [1, 2], [3, 4], [4, 1]], np.int32)
    if unique:
        overlap = np.array([[0, 1], [2, 2], [3, 4], [4, 1]], np.int32)
    block = rng.permutation(np.arange(16) - 7.75).reshape(2, 4, 2) / 2
    file.case(f"scatter_windows_{kind}", lambda x, i, u, k=kind, q=unique: scatter(
        k, x, i, u, "fill", q, update_window_dims=(0, 2), inserted_window_dims=(), scatter_dims_to_operand_dims=(0, 1)),
        table, overlap, block, loose=4)
    file.case(f"scatter_batched_{kind}", lambda x, i, u, k=kind, q=unique: scatter(
        k, x, i, u, "clip", q, update_window_dims=(), inserted_window_dims=(1,), operand_batching_dims=(0,),
        scatter_indices_batching_dims=(0,), scatter_dims_to_operand_dims=(1,)),
        table, batched if not unique else np.array([[[4], [0]], [[2], [3]], [[5], [1]], [[0], [3]], [[1], [5]]], np.int32),
        rng.permutation(np.arange(10) - 4.75).reshape(5, 2), loose=4)
# Ties: the cotangent is shared by the element, if it is the result, and the updates that equal it.
for kind in ("min", "max"):
    file.case(f"scatter_cells_{kind}", lambda x, i, u, k=kind: scatter(
        k, x, i, u, "fill", False, update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)),
        np.array([1.0, 2.0, 3.0, NAN]), np.array([[0], [0], [1], [1], [1], [2], [3], [9]], np.int32),
        np.array([1.0, 1.0, 5.0, 5.0, -5.0, 3.0, 0.0, 1.0]), loose=4)
file.case("scatter_cells_set", lambda x, i, u: scatter(
    "set", x, i, u, "fill", False, update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)),
    np.array([1.0, 2.0, 3.0]), np.array([[2], [0], [2], [2]], np.int32), np.array([4.0, 5.0, 6.0, 7.0]))
file.case("scatter_cells_add", lambda x, i, u: scatter(
    "add", x, i, u, "fill", False, update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)),
    np.array([1, 2**31 - 1, 3], np.int32), np.array([[2], [1], [2], [1]], np.int32), np.array([4, 5, 6, 7], np.int32))
file.write()
