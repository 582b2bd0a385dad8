"""Writes tests/oracle/golden/jax: programs of JAX, Flax and Optax as Tow's text, with inputs, results and gradients as JAX computes
them, for tests/oracle/jax_programs.c. With names as arguments: only these.

    pip install jax==0.10.2 flax==0.12.8 optax==0.2.8; python tests/oracle/jax_programs.py [NAME...]

Each program is g(*args) = (loss, *results), the loss of its float results r with r_i (r_i / 2 + i / n + 1/4)
added up, so that every result has a gradient of its own. It is converted by scripts/jaxpr_to_tow.py. The arrays hold two rows: two draws of all inputs. Programs are in
jax_programs_cases.py.
"""
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_platforms", "cpu")
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests" / "oracle")]
import jaxpr_to_tow  # noqa: E402

GOLDEN = ROOT / "tests" / "oracle" / "golden" / "jax"
# With floats of 16 bits anywhere: four units in the last place of the largest number.
TOLERANCE = {"bfloat16": 2**-6, "float16": 2**-9, "float32": 1e-5, "float64": 1e-12}


def is_float(x):
    return jnp.issubdtype(jnp.asarray(x).dtype, jnp.floating)


def ramp(r):
    return (jnp.arange(r.size, dtype=r.dtype) / max(r.size, 1) + 0.25).reshape(r.shape)


def with_loss(f):
    """f with the loss of its results in front. Names of arguments stay those of f."""
    def g(*args):
        results = jax.tree_util.tree_leaves(f(*args))
        loss = sum(jnp.sum(r * (r * 0.5 + ramp(r))) for r in results if is_float(r))
        return (loss, *results)
    names = jaxpr_to_tow.argument_names(f, len(args_of(f)))
    return g, names


def args_of(f):
    import inspect
    return list(inspect.signature(f).parameters)


def drawn(tree, rng, low, high):
    """Arguments of the same types: floats from [low, high), integers as they are but shuffled."""
    def one(x):
        x = np.asarray(x)
        if is_float(x):
            return rng.uniform(low, high, x.shape).astype(x.dtype)
        return rng.permutation(x.reshape(-1)).reshape(x.shape)
    return jax.tree_util.tree_map(one, tree)


def gradients(g, leaves, tree, forward, compiled):
    """(results, gradients of the loss by index of the leaf). compiled: by XLA as a whole, which rounds fewer intermediate
    results of 16 bits than the program has; else one primitive after the other."""
    floats = [i for i, x in enumerate(leaves) if is_float(x)]

    def of_floats(*xs):
        full = list(leaves)
        for i, x in zip(floats, xs):
            full[i] = x
        loss, *rest = g(*jax.tree_util.tree_unflatten(tree, full))
        return loss, [loss, *rest]
    derive = jax.jacfwd if forward else jax.grad  # JAX has no reverse mode of while loops
    derived = derive(of_floats, argnums=tuple(range(len(floats))), has_aux=True)
    with jax.disable_jit(not compiled):
        grads, results = (jax.jit(derived) if compiled else derived)(*[jnp.asarray(leaves[i]) for i in floats])
    return results, dict(zip(floats, grads))


def write(name, f, args, low=-1.0, high=1.0, tolerance=None, reverse=False, **options):
    """reverse: JAX can reverse the while loops, which custom rules hide."""
    rng = np.random.default_rng(sum(map(ord, name)))
    g, arguments = with_loss(f)
    names = [jaxpr_to_tow.leaf_name(a, path) for a, tree in zip(arguments, args)
             for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
    closed = jax.make_jaxpr(g)(*args)
    program = jaxpr_to_tow.convert_jaxpr(closed, names, inline_constants=10**9, **options)
    coarsest = next(d for d in TOLERANCE if d in str(closed) or {"bfloat16": "bf16[", "float16": ":f16["}.get(d, d) in str(closed))
    rows = []
    for _ in range(2):
        leaves, tree = jax.tree_util.tree_flatten(tuple(drawn(args, rng, low, high)))
        forward = options.get("max_iterations", 0) > 0 and not reverse
        results, grads = gradients(g, leaves, tree, forward, coarsest not in ("bfloat16", "float16"))
        row = {n: np.asarray(x) for n, x in zip(names, leaves)}
        row.update((f"out.{i}", np.asarray(x)) for i, x in enumerate(results))
        row.update((f"grad.{names[i]}", np.asarray(x)) for i, x in grads.items())
        rows.append(row)
    for warning in program.warnings:
        print(f"{name}: {warning}")
    GOLDEN.mkdir(parents=True, exist_ok=True)
    head = f"# {f.__doc__ or name}: made by tests/oracle/jax_programs.py\n# tolerance: {tolerance or TOLERANCE[coarsest]:g}\n"
    (GOLDEN / f"{name}.tow").write_text(head + program.text)
    jaxpr_to_tow.save_safetensors(GOLDEN / f"{name}.safetensors", {k: np.stack([r[k] for r in rows]) for k in rows[0]})


def main():
    from jax_programs_cases import CASES
    wanted, failed = sys.argv[1:], []
    for name, (f, args, options) in CASES.items():
        if wanted and name not in wanted:
            continue
        with jax.enable_x64(name.endswith("_f64")):
            try:
                write(name, f, args() if callable(args) else args, **options)
            except jaxpr_to_tow.Unsupported as e:
                failed.append(name)
                print(f"{name}: cannot convert: {e}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
