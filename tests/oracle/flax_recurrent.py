"""Writes golden/flax_recurrent.txt: recurrent cells, RNN and Bidirectional as Flax computes them, one line each:

    case dtype what shape values...

what: param/PATH (initial values of PRNGKey(3)), output/K, and the gradients of sum over K of sum(output K * weights K): input/K,
grad/PATH. Input K counts all arrays that the model gets, carries first; its elements are fractions from number 100 K on, as those
of the weights are. Dropout has the key PRNGKey(7). lengths are given in LENGTHS. Run: python tests/oracle/flax_recurrent.py
"""

import functools

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp

from flax_catalogue import File

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_default_matmul_precision", "highest")
SEED = 3
INIT = nn.initializers


def fractions(shape, first, dtype):
    n = 1
    for d in shape:
        n *= d
    i = jnp.arange(n, dtype=jnp.int32) + first
    return (((i * 7919) % 257 - 128).astype(dtype) / 64).reshape(shape)


class Cell(nn.Module):
    """The cell as a child "cell", called with its carry and x."""

    make: callable

    @nn.compact
    def __call__(self, *inputs):
        *carry, x = inputs
        carry, y = self.make(name="cell")(carry[0] if len(carry) == 1 else tuple(carry), x)
        return (*carry, y) if isinstance(carry, tuple) else (carry, y)


def flat(tree):
    return tuple(jax.tree.leaves(tree))


class Rnn(nn.Module):
    """A layer that is given x and maybe a carry and lengths."""

    rnn: nn.Module
    carries: int = 0
    lengths: tuple = ()
    returns: bool = False

    def __call__(self, *inputs):
        *carry, x = inputs
        options = {}
        if carry:
            carry = carry[0] if len(carry) == 1 else tuple(carry)
            if isinstance(self.rnn, nn.Bidirectional):
                half = len(inputs) // 2
                carry = (inputs[0], inputs[1]) if half == 1 else (tuple(inputs[:half]), tuple(inputs[half : 2 * half]))
            options["initial_carry"] = carry
        if self.lengths:
            options["seq_lengths"] = jnp.array(self.lengths)
        out = self.rnn(x, return_carry=self.returns, **options)
        return flat(out) if self.returns else (out,)


class Compact(nn.Module):
    """The cell belongs to the module that makes the RNN."""

    @nn.compact
    def __call__(self, x):
        return (nn.RNN(nn.GRUCell(3))(x),)


class Stacked(nn.Module):
    layers: tuple

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return (x,)


class DropCell(nn.RNNCellBase):
    """A cell that draws: h' = dropout(tanh(W x + b + h))."""

    @nn.compact
    def __call__(self, h, x):
        h = nn.tanh(nn.Dense(4, name="input")(x) + h)
        h = nn.Dropout(0.5, deterministic=False, name="drop")(h)
        return h, h

    def initialize_carry(self, rng, shape):
        return jnp.zeros((*shape[:-1], 4), jnp.float32)

    num_feature_axes = 1


def cell(kind, *args, **options):
    return Cell(functools.partial(kind, *args, **options))


def rnn(cell_of, *, carries=0, lengths=(), returns=False, **options):
    return Rnn(nn.RNN(cell_of, **options), carries, lengths, returns)


def bidirectional(a, b, *, carries=0, lengths=(), returns=False, **options):
    return Rnn(nn.Bidirectional(nn.RNN(a), nn.RNN(b), **options), carries, lengths, returns)


H, X = (2, 4), (2, 3)
CASES = {
    "simple": (cell(nn.SimpleCell, 4), H, X),
    "simple_residual": (cell(nn.SimpleCell, 4, residual=True, activation_fn=nn.relu), H, X),
    "simple_init": (cell(nn.SimpleCell, 4, kernel_init=INIT.normal(0.5), recurrent_kernel_init=INIT.he_normal(), bias_init=INIT.uniform(0.3)), H, X),
    "lstm": (cell(nn.LSTMCell, 4), H, H, X),
    "lstm_batches": (cell(nn.LSTMCell, 4), (2, 3, 4), (2, 3, 4), (2, 3, 5)),
    "lstm_no_batch": (cell(nn.LSTMCell, 4), (4,), (4,), (3,)),
    "lstm_init": (cell(nn.LSTMCell, 4, kernel_init=INIT.normal(0.5), recurrent_kernel_init=INIT.he_normal(), bias_init=INIT.uniform(0.3)), H, H, X),
    "lstm_functions": (cell(nn.LSTMCell, 4, gate_fn=nn.tanh, activation_fn=nn.relu), H, H, X),
    "optimized_lstm": (cell(nn.OptimizedLSTMCell, 4), H, H, X),
    "optimized_lstm_init": (cell(nn.OptimizedLSTMCell, 4, bias_init=INIT.uniform(0.3), recurrent_kernel_init=INIT.he_normal()), H, H, X),
    "gru": (cell(nn.GRUCell, 4), H, X),
    "gru_init": (cell(nn.GRUCell, 4, bias_init=INIT.uniform(0.3), recurrent_kernel_init=INIT.he_normal()), H, X),
    "gru_functions": (cell(nn.GRUCell, 4, gate_fn=nn.tanh, activation_fn=nn.relu), H, X),
    "mgu": (cell(nn.MGUCell, 4), H, X),
    "mgu_no_reset": (cell(nn.MGUCell, 4, reset_gate=False), H, X),
    "mgu_init": (cell(nn.MGUCell, 4, forget_bias_init=INIT.uniform(0.3), activation_bias_init=INIT.normal(0.2), recurrent_kernel_init=INIT.he_normal()), H, X),
    "conv_lstm": (cell(nn.ConvLSTMCell, 3, (3, 2)), (2, 4, 5, 3), (2, 4, 5, 3), (2, 4, 5, 2)),
    "conv_lstm_1d": (cell(nn.ConvLSTMCell, 3, (4,), use_bias=False), (2, 6, 3), (2, 6, 3), (2, 6, 2)),
    "rnn_simple": (rnn(nn.SimpleCell(4)), (2, 5, 3)),
    "rnn_lstm": (rnn(nn.LSTMCell(4), returns=True), (2, 5, 3)),
    "rnn_lstm_carry": (rnn(nn.LSTMCell(4), carries=2, returns=True), H, H, (2, 5, 3)),
    "rnn_lstm_drawn": (rnn(nn.LSTMCell(4, carry_init=INIT.normal(1.0)), returns=True), (2, 5, 3)),
    "rnn_optimized": (rnn(nn.OptimizedLSTMCell(4)), (2, 5, 3)),
    "rnn_gru": (rnn(nn.GRUCell(4), carries=1, returns=True), H, (2, 5, 3)),
    "rnn_gru_drawn": (rnn(nn.GRUCell(4, carry_init=INIT.uniform(0.5))), (2, 5, 3)),
    "rnn_mgu": (rnn(nn.MGUCell(4)), (2, 5, 3)),
    "rnn_conv": (rnn(nn.ConvLSTMCell(2, (3,)), returns=True), (2, 3, 4, 3)),
    "rnn_time_major": (rnn(nn.LSTMCell(4), time_major=True, returns=True), (5, 2, 3)),
    "rnn_batches": (rnn(nn.LSTMCell(4), returns=True), (2, 3, 5, 2)),
    "rnn_no_batch": (rnn(nn.GRUCell(4), returns=True), (5, 3)),
    "rnn_reverse": (rnn(nn.GRUCell(4), reverse=True, returns=True), (2, 5, 3)),
    "rnn_keep_order": (rnn(nn.GRUCell(4), reverse=True, keep_order=True, returns=True), (2, 5, 3)),
    "rnn_keep_order_only": (rnn(nn.GRUCell(4), keep_order=True), (2, 5, 3)),
    "rnn_lengths": (rnn(nn.LSTMCell(4), lengths=(5, 2, 0), returns=True), (3, 5, 3)),
    "rnn_lengths_reverse": (rnn(nn.LSTMCell(4), lengths=(4, 0, 3), reverse=True, returns=True), (3, 5, 3)),
    "rnn_lengths_keep_order": (rnn(nn.GRUCell(4), lengths=(4, 1, 3), carries=1, reverse=True, keep_order=True, returns=True), (3, 4), (3, 5, 3)),
    "rnn_lengths_time_major": (rnn(nn.GRUCell(4), lengths=(4, 1), time_major=True, reverse=True, returns=True), (5, 2, 3)),
    "rnn_lengths_outside": (rnn(nn.GRUCell(4), lengths=(7, -1, -9), reverse=True, returns=True), (3, 5, 3)),
    "rnn_lengths_conv": (rnn(nn.ConvLSTMCell(2, (3,)), lengths=(1, 3), reverse=True, returns=True), (2, 3, 4, 3)),
    "rnn_lengths_ends": (rnn(nn.LSTMCell(4), lengths=(5, 0, 1), returns=True), (3, 5, 3)),
    "rnn_lengths_ends_reverse": (rnn(nn.GRUCell(4), lengths=(5, 0, 1), reverse=True, returns=True), (3, 5, 3)),
    "rnn_lengths_ends_keep_order": (rnn(nn.MGUCell(4), lengths=(0, 5, 0), reverse=True, keep_order=True, returns=True), (3, 5, 3)),
    "rnn_unroll": (rnn(nn.LSTMCell(4), unroll=2, reverse=True, returns=True), (2, 5, 3)),
    "rnn_unroll_lengths": (rnn(nn.GRUCell(4), unroll=3, lengths=(2, 6), returns=True), (2, 6, 3)),
    "rnn_compact": (Compact(), (2, 5, 3)),
    "rnn_dropout": (rnn(DropCell(), returns=True, split_rngs={"params": False, "dropout": True}), (2, 5, 3)),
    "rnn_dropout_shared": (rnn(DropCell(), returns=True, split_rngs={"params": False, "dropout": False}), (2, 5, 3)),
    "bidirectional": (bidirectional(nn.LSTMCell(3), nn.LSTMCell(3)), (2, 5, 3)),
    "bidirectional_mixed": (bidirectional(nn.LSTMCell(3), nn.GRUCell(2), returns=True), (2, 5, 3)),
    "bidirectional_carry": (bidirectional(nn.GRUCell(4), nn.GRUCell(4), carries=2, returns=True), H, H, (2, 5, 3)),
    "bidirectional_lengths": (bidirectional(nn.GRUCell(3), nn.GRUCell(3), lengths=(4, 0, 2), returns=True), (3, 5, 3)),
    "bidirectional_sum": (bidirectional(nn.GRUCell(3), nn.GRUCell(3), merge_fn=lambda a, b: a + b, time_major=True), (5, 2, 3)),
    "stacked": (Stacked((nn.RNN(nn.LSTMCell(4)), nn.Bidirectional(nn.RNN(nn.GRUCell(2)), nn.RNN(nn.GRUCell(2))), nn.RNN(nn.MGUCell(3)))), (2, 5, 3)),
}
# Without a given carry Flax begins with float32, which double precision does not accept.
DOUBLE = "simple lstm optimized_lstm gru mgu mgu_no_reset conv_lstm rnn_lstm_carry rnn_gru rnn_lengths_keep_order bidirectional_carry".split()
# JAX drops the gradient of what an index outside reads, whose value is that of the last element.
VALUES_ONLY = ["rnn_lengths_outside"]


def write(file, name, model, shapes, dtype):
    inputs = [fractions(s, 100 * k, dtype) for k, s in enumerate(shapes)]
    rngs = {"dropout": jax.random.PRNGKey(7)}
    text = "f32" if dtype == jnp.float32 else "f64"
    params = model.init({"params": jax.random.PRNGKey(SEED), **rngs}, *inputs).get("params", {})
    file.write_tree(name, text, "param", params)

    def loss(p, x):
        y = model.apply({"params": p}, *x, rngs=rngs)
        return sum(jnp.sum(v * fractions(v.shape, 100 * k, v.dtype)) for k, v in enumerate(y)), y

    (_, y), (dp, dx) = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(params, inputs)
    for k, v in enumerate(y):
        assert v.dtype == dtype, name
        file.write(name, text, f"output/{k}", v)
    if name in VALUES_ONLY:
        return
    for k, v in enumerate(dx):
        file.write(name, text, f"input/{k}", v)
    file.write_tree(name, text, "grad", dp)


def main():
    file = File("flax_recurrent.txt")
    for dtype in (jnp.float32, jnp.float64):
        for name, (model, *shapes) in CASES.items():
            if dtype == jnp.float32 or name in DOUBLE:
                with jax.enable_x64("dropout" not in name):  # with it dropout compares draws in double precision
                    write(file, name, model, shapes, dtype)


if __name__ == "__main__":
    main()
