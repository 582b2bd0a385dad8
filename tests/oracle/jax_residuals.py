"""Prints the table of docs/residuals-beside-jax.md: what reverse mode keeps and runs, Tow beside JAX, for the programs of
jax_programs_cases.py. Needs JAX and the command `tow`.

    python tests/oracle/jax_residuals.py build/release/bin/tow > table.md

bytes: of residuals, arguments included, of the gradient with respect to all float inputs. JAX's come from
jax._src.ad_checkpoint.saved_residuals of the same function, without constants that are numbers. counts: dots, convolutions and
transcendental functions in forward and backward pass together, those in a scan times its length (a while or cond counts once on
either side): in JAX of the jaxpr of the gradient, after removal of dead code, and in Tow of `tow count`.
"""
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

import jax
import numpy as np
from jax._src import ad_checkpoint
from jax.interpreters import partial_eval as pe

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests" / "oracle")]
import jaxpr_to_tow  # noqa: E402
from jax_programs import is_float, with_loss  # noqa: E402

TRANSCENDENTAL = """acos acosh asin asinh atan atan2 atanh cbrt cos cosh digamma erf erf_inv erfc exp exp2 expm1 lgamma log log1p
    logistic polygamma pow rsqrt sin sinh sqrt tan tanh""".split()
KINDS = {"dot_general": "dots", "conv_general_dilated": "convolutions", **{name: "transcendental" for name in TRANSCENDENTAL}}
POLICIES = {"": None, "nothing": jax.checkpoint_policies.nothing_saveable, "dots": jax.checkpoint_policies.dots_saveable}


def counted(jaxpr, times=1):
    """How often each kind runs."""
    total = collections.Counter()
    for e in jaxpr.eqns:
        if e.primitive.name in KINDS:
            total[KINDS[e.primitive.name]] += times
        inner = times * e.params["length"] if e.primitive.name == "scan" else times
        for value in e.params.values():
            for body in value if isinstance(value, (tuple, list)) else [value]:
                body = getattr(body, "jaxpr", body)
                if hasattr(body, "eqns"):
                    total += counted(body, inner)
    return total


def of_jax(g, args, policy):
    leaves, tree = jax.tree_util.tree_flatten(args)
    floats = [i for i, x in enumerate(leaves) if is_float(x)]

    def loss(*leaves):
        return g(*jax.tree_util.tree_unflatten(tree, leaves))[0]
    if policy is not None:
        loss = jax.checkpoint(loss, policy=policy)
    kept = [a for a, _ in ad_checkpoint.saved_residuals(loss, *leaves)]
    size = sum(int(np.prod(a.shape, dtype=int)) * a.dtype.itemsize for a in kept if hasattr(a, "dtype"))
    closed = jax.make_jaxpr(jax.value_and_grad(loss, argnums=floats))(*leaves)
    jaxpr, _ = pe.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)
    return size, counted(jaxpr)


def of_tow(tow, g, args, policy, options):
    def loss(*args):
        return g(*args)[0]
    program = jaxpr_to_tow.convert(loss, *args, inline_constants=10**9, **options)
    with tempfile.NamedTemporaryFile("w", suffix=".tow") as file:
        file.write(program.text)
        file.flush()

        def ask(command):
            more = ["--policy", policy] if policy else []
            return json.loads(subprocess.run([tow, command, file.name, "--json", *more], check=True, capture_output=True, text=True).stdout)
        kept, counts = ask("residuals"), ask("count")
    total = collections.Counter()
    for row in counts:
        if row["primitive"] in KINDS:
            total[KINDS[row["primitive"]]] += row["forward"] + row["backward"]
    return kept["bytes"], total


# Why Tow keeps or runs more, by the beginning of the program's name. An excess without a reason is an error.
ARGUMENT = ("an argument that the backward pass of a branch reads is read where it lies, and counted; JAX copies it into an output of the "
            "forward cond, which another branch's residual of that shape shares")
REASONS = {"custom_cond": ARGUMENT, "custom_switch": ARGUMENT}
SHOWN = ("flax_", "diffusion", "ode_", "remat_", "scan_of_remat", "nn_dot_product", "optax_adam_", "optax_step_adam", "optax_step_lamb", "custom_", "rotary",
         "streamed", "state_space", "mixture", "variational", "normalising", "sinkhorn", "hidden", "physics", "adapted")


def reason(name):
    return next((why for start, why in REASONS.items() if name.startswith(start)), None)


def main():
    tow = sys.argv[1]
    from jax_programs_cases import CASES
    rows, below, same, above, unexplained = [], 0, 0, 0, []
    for name, (f, args, options) in CASES.items():
        if name.endswith("_f64") and name.removesuffix("_f64") in CASES or options.get("max_iterations"):
            continue  # a while loop has no reverse mode in JAX
        with jax.enable_x64(name.endswith("_f64")):
            g, _ = with_loss(f)
            for label, policy in POLICIES.items():
                size, theirs = of_jax(g, args, policy)
                ours, counts = of_tow(tow, g, args, label, {})
                below, same, above = below + (ours < size), same + (ours == size), above + (ours > size)
                excess = ours > size or any(counts[k] > theirs[k] for k in set(KINDS.values()))
                if excess and reason(name) is None:
                    unexplained.append(f"{name} {label}")
                if excess or name.startswith(SHOWN):
                    cells = [f"{counts[k]} / {theirs[k]}" for k in ("dots", "convolutions", "transcendental")]
                    rows.append(f"| {name} | {label or 'none'} | {ours} / {size} | {' | '.join(cells)} | {(reason(name) or '?') if excess else ''} |")
    print(f"Of {below + same + above} pairs of a program and a policy Tow keeps fewer bytes than JAX in {below}, as many in {same}, more in {above}.\n")
    print("| program | policy | bytes | dots | convolutions | transcendental | why more |\n|---|---|---:|---:|---:|---:|---|")
    print("\n".join(rows))
    print(f"without a reason: {', '.join(unexplained)}\n" if unexplained else "", end="", file=sys.stderr)
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
