"""Writes golden/flax_lift_more.txt: transforms inside each other around a BatchNorm, RNNs under vmap, variables that rows share, and
layers that are not all alike written out by hand. The lines are those of flax_lift.py; layers written out have their numbers in their
paths. Run: python tests/oracle/flax_lift_more.py
"""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import flax.linen as nn
import flax_lift
import jax
import jax.numpy as jnp
from flax_lift import ALL, SPLIT, X3, Cell, case, scan, vmap


class Norm(nn.Module):
    """A Dense and a BatchNorm over the batch axis."""

    @nn.compact
    def __call__(self, x):
        h = nn.Dense(x.shape[-1], name="dense", bias_init=nn.initializers.normal(0.5))(x)
        h = nn.BatchNorm(use_running_average=False, momentum=0.75, epsilon=0.1, use_fast_variance=False, name="norm")(h)
        y = jnp.tanh(h) + x
        return y, (2 * y, self.make_rng("noise"))


class Gru(nn.Module):
    """An RNN over the second last axis."""

    @nn.compact
    def __call__(self, x):
        y = nn.RNN(nn.GRUCell(x.shape[-1]), name="rnn", unroll=2)(x)
        return y, (2 * y, self.make_rng("noise"))


class Lstm(nn.Module):
    """An RNN with lengths from the last element to the first."""

    @nn.compact
    def __call__(self, x):
        rnn = nn.RNN(nn.OptimizedLSTMCell(x.shape[-1]), name="rnn", reverse=True, keep_order=True)
        y = rnn(x, seq_lengths=jnp.array([x.shape[-2], 0]))
        return y, (2 * y, self.make_rng("noise"))


class Other(nn.Module):
    @nn.compact
    def __call__(self, x):
        y = Mlp(name="mlp")(x)
        return y, (3 * y, self.make_rng("noise"))


class Mlp(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = nn.relu(nn.Dense(6)(x))
        return nn.Dense(4)(h)


def by_hand(*layers):
    class Written(nn.Module):
        @nn.compact
        def __call__(self, x):
            ys = []
            for i, layer in enumerate(layers):
                x, y = layer(name=str(i))(x)
                ys.append(y)
            return x, jax.tree.map(lambda *rows: jnp.stack(rows), *ys)

    return Written(name="stack")


def lifted(transform, cell, **options):
    return transform(cell, variable_axes=ALL, split_rngs=SPLIT, **options)


C, O, R = Cell, Other, nn.remat(Cell)
CASES = {
    "remat_of_vmap": case(lambda: nn.remat(lifted(nn.vmap, Cell))(name="stack"), x=X3),
    "norm": case(lambda: Norm(name="stack"), x=(5, 4)),
    "norm_vmap": case(lambda: vmap(Norm), x=(3, 5, 4)),
    "norm_vmap_ensemble": case(lambda: vmap(Norm, in_axes=None, axis_size=3), x=(5, 4)),
    "norm_vmap_shared": case(
        lambda: vmap(Norm, variable_axes=ALL | {"params": None}, split_rngs={"params": False, "noise": True}, in_axes=1, out_axes=(1, 0)), x=(5, 3, 4)
    ),
    "norm_remat_of_vmap": case(lambda: nn.remat(lifted(nn.vmap, Norm))(name="stack"), x=(3, 5, 4)),
    "norm_vmap_of_remat": case(lambda: vmap(nn.remat(Norm)), x=(3, 5, 4)),
    "norm_scan_of_vmap": case(lambda: scan(lifted(nn.vmap, Norm), length=2), x=(3, 5, 4)),
    "norm_vmap_of_scan": case(lambda: vmap(lifted(nn.scan, Norm, length=2)), x=(3, 5, 4)),
    "norm_scan_remat_vmap": case(lambda: scan(nn.remat(lifted(nn.vmap, Norm)), length=2), x=(3, 5, 4)),
    "norm_vmap_scan_remat": case(lambda: vmap(lifted(nn.scan, nn.remat(Norm), length=2)), x=(3, 5, 4)),
    "rnn_vmap": case(lambda: vmap(Gru), x=(3, 2, 5, 4)),
    "rnn_vmap_shared": case(lambda: vmap(Gru, variable_axes=ALL | {"params": None}, split_rngs={"params": False, "noise": True}), x=(3, 2, 5, 4)),
    "rnn_vmap_lengths": case(lambda: vmap(Lstm), x=(3, 2, 5, 4)),
    "rnn_vmap_remat": case(lambda: vmap(nn.remat(Lstm)), x=(2, 2, 3, 4)),
    "vmap_shared_counters": case(lambda: vmap(variable_axes=ALL | {"counters": None}), x=X3),
    "written_8": case(lambda: by_hand(C, C, O, C, C, O, C, C)),
    "written_remat": case(lambda: by_hand(R, O, R, O, R)),
    "written_ends": case(lambda: by_hand(O, C, O, C, O, C, O, C)),
}


if __name__ == "__main__":
    flax_lift.CASES = CASES
    flax_lift.main("flax_lift_more.txt")
