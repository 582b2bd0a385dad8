"""Writes golden/flax_dtypes.txt: layers of include/tow/layers.h with dtype and param_dtype as Flax computes them, one line each:

    case setting what dtype shape values...

setting: types of the input, .dtype and .param_dtype (SETTINGS). what: param/PATH (initial values of PRNGKey(3)), output, and the
gradients of sum(output * weights): input, grad/PATH. With variables: state/PATH after that call, and eval, the output with these
and use_running_average. Run: python tests/oracle/flax_dtypes.py
"""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from flax_models import inputs, shape_text

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_default_matmul_precision", "highest")
F32, F64, BF16, F16 = jnp.float32, jnp.float64, jnp.bfloat16, jnp.float16
NAMES = {"float32": "f32", "float64": "f64", "bfloat16": "bf16", "float16": "f16"}
SETTINGS = {
    "mixed": (F32, BF16, F32),
    "mixed_f16": (F32, F16, F32),
    "stored": (BF16, None, BF16),
    "stored_f16": (F16, None, F16),
    "promoted": (BF16, None, F32),
    "crossed": (BF16, None, F16),
    "wide": (F32, None, F64),
    "narrow": (F64, F32, BF16),
}
INIT = nn.initializers


class MLP(nn.Module):
    types: dict

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(7, **self.types)(x))
        return nn.Dense(4, **self.types)(x)


class RNN(nn.RNN):
    """Begins with the cell's own carry, which is of param_dtype, where a scan takes it. Where the cell returns another type than that,
    a scan refuses: then it begins with zeros of the type that is returned."""

    carries: int = 1

    def __call__(self, x):
        cell = self.cell
        dtype = cell.dtype or jnp.promote_types(x.dtype, cell.param_dtype)
        if not (isinstance(cell, nn.SimpleCell) and not cell.residual):
            dtype = jnp.promote_types(dtype, cell.param_dtype)
            if dtype == cell.param_dtype:
                return super().__call__(x)
        shape = (x.shape[0], *x.shape[2:-1], cell.features)
        carry = (jnp.zeros(shape, dtype),) * self.carries
        return super().__call__(x, initial_carry=carry if self.carries > 1 else carry[0])


# Flax draws orthogonal kernels of 32 bits and more only.
RECURRENT = {"recurrent_kernel_init": INIT.he_normal(), "bias_init": INIT.normal(0.3)}
CASES = {
    "rnn_simple": (lambda t: RNN(nn.SimpleCell(4, **RECURRENT, **t)), (2, 4, 3)),
    "rnn_residual": (lambda t: RNN(nn.SimpleCell(4, residual=True, **RECURRENT, **t)), (2, 4, 3)),
    "rnn_lstm": (lambda t: RNN(nn.LSTMCell(4, **RECURRENT, **t), carries=2), (2, 4, 3)),
    "rnn_optimized": (lambda t: RNN(nn.OptimizedLSTMCell(4, **RECURRENT, **t), carries=2), (2, 4, 3)),
    "rnn_gru": (lambda t: RNN(nn.GRUCell(4, **RECURRENT, **t)), (2, 4, 3)),
    "rnn_mgu": (lambda t: RNN(nn.MGUCell(4, recurrent_kernel_init=INIT.he_normal(), **t)), (2, 4, 3)),
    "rnn_conv": (lambda t: RNN(nn.ConvLSTMCell(3, (3,), **t), carries=2), (2, 3, 4, 2)),
    "dense": (lambda t: nn.Dense(6, **t), (3, 5)),
    "dense_drawn": (lambda t: nn.Dense(6, kernel_init=INIT.normal(0.3), bias_init=INIT.uniform(0.5), **t), (3, 5)),
    "dense_plain": (lambda t: nn.Dense(6, use_bias=False, kernel_init=INIT.he_uniform(), **t), (3, 5)),
    "general": (lambda t: nn.DenseGeneral((3, 2), axis=(-1,), batch_dims=(0,), **t), (2, 4, 5)),
    "mlp": (lambda t: MLP(t), (3, 5)),
    "embed": (lambda t: nn.Embed(5, 4, **t), None),
    "layer_norm": (lambda t: nn.LayerNorm(use_fast_variance=False, **t), (3, 9)),
    "layer_norm_bare": (lambda t: nn.LayerNorm(use_fast_variance=False, use_scale=False, use_bias=False, **t), (3, 9)),
    "rms_norm": (lambda t: nn.RMSNorm(scale_init=INIT.normal(0.5), **t), (3, 9)),
    "conv": (lambda t: nn.Conv(4, (3, 3), **t), (2, 5, 4, 3)),
    "conv_circular": (lambda t: nn.Conv(4, (3,), padding="CIRCULAR", bias_init=INIT.normal(0.5), **t), (2, 6, 3)),
    "conv_transpose": (lambda t: nn.ConvTranspose(3, (3,), strides=(2,), **t), (2, 4, 2)),
    "batch_norm": (lambda t: nn.BatchNorm(use_fast_variance=False, **t), (6, 5)),
    "group_norm": (lambda t: nn.GroupNorm(num_groups=2, use_fast_variance=False, **t), (2, 4, 6)),
    "instance_norm": (lambda t: nn.InstanceNorm(use_fast_variance=False, bias_init=INIT.normal(0.5), **t), (2, 5, 3)),
    "prelu": (lambda t: nn.PReLU(param_dtype=t["param_dtype"], negative_slope_init=0.3), (3, 5)),
    "attention": (lambda t: nn.MultiHeadDotProductAttention(2, **t), (2, 5, 8)),
    "einsum": (lambda t: nn.Einsum((5, 2, 4), "bd,dhk->bhk", bias_init=INIT.normal(0.5), **t), (3, 5)),
}


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "flax_dtypes.txt")
    with open(path, "w", encoding="utf-8") as file:

        def write(case, setting, what, value):
            value = np.asarray(value)
            digits = {8: 17, 4: 9, 2: 6}[value.itemsize]
            text = " ".join(f"{float(v):.{digits}g}" for v in value.reshape(-1))
            file.write(f"{case} {setting} {what} {NAMES[str(value.dtype)]} {shape_text(value)} {text}\n")

        def write_tree(case, setting, prefix, tree):
            for key, value in flax.traverse_util.flatten_dict(tree, sep="/").items():
                write(case, setting, f"{prefix}/{key}", value)

        for setting, (of_x, dtype, param_dtype) in SETTINGS.items():
            for case, (make, shape) in CASES.items():
                if case == "prelu" and dtype is not None:
                    continue  # Flax's has no dtype
                model = make({"dtype": dtype, "param_dtype": param_dtype})
                x = inputs(*shape).astype(of_x) if shape else jnp.array([[0, 4, 2], [1, 4, 3]], jnp.int32)
                train = {"use_running_average": False} if case == "batch_norm" else {}
                state = dict(model.init(jax.random.PRNGKey(3), x, **train))
                params = state.pop("params", {})
                write_tree(case, setting, "param", params)

                def loss(p, x):
                    y, new = model.apply({"params": p, **state}, x, mutable=list(state), **train)
                    wide = y.astype(jnp.promote_types(y.dtype, jnp.float32))
                    return jnp.sum(wide * inputs(*y.shape).astype(wide.dtype)), (y, new)

                argnums = (0, 1) if shape else (0,)
                (_, (y, new)), gradients = jax.value_and_grad(loss, argnums=argnums, has_aux=True)(params, x)
                write(case, setting, "output", y)
                if shape:
                    write(case, setting, "input", gradients[1])
                write_tree(case, setting, "grad", gradients[0])
                if state:
                    new = jax.tree.map(lambda v: v.astype(jnp.float32), dict(new))
                    write_tree(case, setting, "state", new)
                    write(case, setting, "eval", model.apply({"params": params, **new}, x, use_running_average=True))


if __name__ == "__main__":
    main()
