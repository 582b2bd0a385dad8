"""Writes golden/flax_catalogue.txt: the layers of include/tow/layers.h as Flax computes them, one line each:

    case dtype what shape values...

dtype: of the input (parameters are f32). what: param/PATH (initial values of PRNGKey(3)), output, and the gradients of
sum(output * weights): input, grad/PATH. With variables: start/PATH (initial values that are drawn), state/PATH after that call,
and eval, the output with these and use_running_average. Inputs and weights are exact fractions. Layers that Flax does not have are written in PyTorch (adaptive
pooling) and NumPy (space to depth). Run: python tests/oracle/flax_catalogue.py
"""

import os

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import torch

from flax_models import MLP, Block, inputs, shape_text

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_default_matmul_precision", "highest")
SEED = 3
INIT = nn.initializers
PLAIN = {}


def mask_of(shape):
    return (jnp.arange(np.prod(shape)) % 3 != 0).reshape(shape)


def norm(kind, mask=None, **options):
    """A norm, in two passes unless told otherwise, called with a mask of this shape."""

    class Normed(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            extra = {} if mask is None else {"mask": mask_of(mask)}
            if kind is nn.BatchNorm:
                extra["use_running_average"] = not train or options.get("use_running_average", False)
            rest = {"use_fast_variance": False} | {k: v for k, v in options.items() if k != "use_running_average"}
            layer = kind(name="layer", **rest)
            return layer(x, **extra)

    return Normed()


def layer(make):
    class Plain(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            return make(name="layer")(x)

    return Plain()


def conv(*args, **options):
    return layer(lambda name: nn.Conv(*args, **options, name=name))


def conv_local(*args, **options):
    return layer(lambda name: nn.ConvLocal(*args, **options, name=name))


def conv_transpose(*args, **options):
    return layer(lambda name: nn.ConvTranspose(*args, **options, name=name))


def einsum(shape, spec, **options):
    return layer(lambda name: nn.Einsum(shape, spec, **options, name=name))


def with_plain(model, inner):
    """Flax stores normalised parameters in init. Here those of the layer itself are stored: PLAIN has it."""
    PLAIN[id(model)] = (model, layer(inner))
    return model


def weight_norm(inner, **options):
    """TOW_WEIGHT_NORM: `inner` is called "layer", and scales stand beside what they scale."""

    class Normed(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            return nn.WeightNorm(inner(name="layer"), name="wrapper", **options)(x)

    return with_plain(Normed(), inner)


def spectral_norm(inner, **options):
    class Normed(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            return nn.SpectralNorm(inner(name="layer"), name="wrapper", **options)(x, update_stats=train)

    return with_plain(Normed(), inner)


def our_path(path):
    """wrapper/layer/a/kernel/scale -> layer/a/WeightNorm/kernel/scale"""
    *scope, parameter, what = path.split("/")
    if scope[:1] != ["wrapper"]:
        return path
    kind = "WeightNorm" if what == "scale" else "SpectralNorm"
    return "/".join([*scope[1:], kind, parameter, what])


class Draw(nn.Module):
    """A normal draw of the scope at a path."""

    names: tuple
    shape: tuple

    @nn.compact
    def __call__(self):
        if self.names:
            return Draw(self.names[1:], self.shape, name=self.names[0])()
        return self.param("u", INIT.normal(1.0), self.shape, jnp.float32)


def draw(path, shape):
    *scope, _ = path.split("/")
    tree = Draw(tuple(scope), shape).init(jax.random.PRNGKey(SEED))["params"]
    return flax.traverse_util.flatten_dict(tree, sep="/")[path]


def function(f):
    class Function(nn.Module):
        def __call__(self, x, train):
            return f(x)

    return Function()


def space_to_depth(x, b, c):
    n, h, w, f = x.shape
    return x.reshape(n, h // b, b, w // c, c, f).transpose(0, 1, 3, 2, 4, 5).reshape(n, h // b, w // c, b * c * f)


def depth_to_space(x, b, c):
    n, h, w, f = x.shape
    return x.reshape(n, h, w, b, c, f // (b * c)).transpose(0, 1, 3, 2, 4, 5).reshape(n, h * b, w * c, f // (b * c))


CASES = {
    "dense": (layer(lambda name: nn.Dense(6, name=name)), (3, 5)),
    "general": (layer(lambda name: nn.DenseGeneral((3, 2), axis=(-1,), batch_dims=(0,), name=name)), (2, 4, 5)),
    "general_order": (layer(lambda name: nn.DenseGeneral((3, 2), axis=(-1, 1), name=name)), (2, 4, 4)),
    "general_batch_order": (layer(lambda name: nn.DenseGeneral(5, axis=(-1, 2), batch_dims=(0,), name=name)), (2, 3, 4, 4)),
    "mlp": (layer(lambda name: MLP((7, 6, 4), name=name)), (3, 5)),
    "layer_norm": (layer(lambda name: nn.LayerNorm(use_fast_variance=False, name=name)), (3, 9)),
    "rms_norm": (layer(lambda name: nn.RMSNorm(name=name)), (3, 9)),
    "attention": (layer(lambda name: nn.MultiHeadDotProductAttention(2, name=name)), (2, 5, 8)),
    "block": (layer(lambda name: Block(2, 16, name=name)), (2, 5, 8)),
    "block_open": (layer(lambda name: Block(4, 12, causal=False, name=name)), (1, 4, 8)),
    "conv": (conv(5, (3, 3)), (2, 6, 5, 3)),
    "conv_1d": (conv(4, (3,), use_bias=False), (2, 7, 3)),
    "conv_3d": (conv(2, (2, 3, 2), strides=(1, 2, 1)), (1, 3, 4, 3, 2)),
    "conv_valid_strides": (conv(4, (3, 2), strides=(2, 1), padding="VALID"), (2, 7, 5, 3)),
    "conv_same_lower": (conv(3, (4,), padding="SAME_LOWER", strides=2), (2, 7, 2)),
    "conv_causal": (conv(3, (3,), padding="CAUSAL", kernel_dilation=2), (2, 8, 2)),
    "conv_circular": (conv(3, (4, 3), padding="CIRCULAR"), (2, 5, 4, 2)),
    "conv_circular_far": (conv(2, (7,), padding="CIRCULAR", kernel_dilation=2, strides=2), (1, 4, 2)),
    "conv_reflect": (conv(3, (4, 3), padding="REFLECT", strides=2), (1, 5, 6, 2)),
    "conv_reflect_far": (conv(2, (8,), padding="REFLECT"), (1, 3, 2)),
    "conv_explicit": (conv(3, (3, 2), padding=((2, 0), (-1, 3)), kernel_dilation=(1, 2)), (2, 5, 6, 2)),
    "conv_input_dilation": (conv(3, (3,), padding=((1, 2),), input_dilation=3), (2, 4, 2)),
    "conv_groups": (conv(6, (3,), feature_group_count=2), (2, 5, 4)),
    "conv_depthwise": (conv(6, (3, 3), feature_group_count=3), (1, 4, 4, 3)),
    "conv_batches": (conv(2, (3,)), (2, 2, 5, 3)),
    "conv_no_batch": (conv(2, (3, 3)), (5, 4, 3)),
    "conv_init": (conv(3, (3,), kernel_init=INIT.normal(0.5), bias_init=INIT.uniform(0.3)), (2, 5, 2)),
    "conv_mask": (conv(3, (3,), mask=mask_of((3, 2, 3))), (2, 5, 2)),
    "conv_large_kernel": (conv(3, (5,), padding="VALID"), (2, 3, 2)),
    "conv_local": (conv_local(4, (3, 2)), (2, 4, 5, 3)),
    "conv_local_strides": (conv_local(3, (3,), strides=2, kernel_dilation=2, padding=((2, 1),), use_bias=False), (2, 7, 2)),
    "conv_local_dilated": (conv_local(2, (2, 3), padding=((0, 2), (1, -1)), input_dilation=(2, 1)), (1, 3, 4, 2)),
    "conv_local_circular": (conv_local(2, (4,), padding="CIRCULAR", bias_init=INIT.normal(1.0)), (3, 5, 2)),
    "conv_local_causal": (conv_local(2, (3,), padding="CAUSAL"), (5, 3)),
    "conv_local_mask": (conv_local(3, (2,), padding="VALID", mask=mask_of((4, 4, 3))), (2, 5, 2)),
    "conv_local_3d": (conv_local(2, (1, 2, 2), strides=(2, 1, 2)), (1, 2, 3, 2, 3, 2)),
    "conv_transpose": (conv_transpose(3, (3, 3), strides=(2, 2)), (1, 3, 4, 2)),
    "conv_transpose_valid": (conv_transpose(3, (4,), strides=(3,), padding="VALID"), (2, 4, 2)),
    "conv_transpose_short": (conv_transpose(2, (2,), strides=(3,)), (2, 3, 2)),
    "conv_transpose_circular": (conv_transpose(2, (4, 3), strides=(2, 1), padding="CIRCULAR"), (1, 3, 4, 2)),
    "conv_transpose_flipped": (conv_transpose(3, (4,), strides=(2,), transpose_kernel=True), (2, 4, 2)),
    "conv_transpose_flipped_circular": (conv_transpose(3, (4,), strides=(2,), padding="CIRCULAR", transpose_kernel=True), (2, 3, 2)),
    "conv_transpose_explicit": (conv_transpose(2, (3,), strides=(2,), padding=((1, 2),), kernel_dilation=(2,)), (2, 4, 2)),
    "conv_transpose_no_batch": (conv_transpose(2, (3,), use_bias=False), (4, 3)),
    "pool_max": (function(lambda x: nn.max_pool(x, (2, 3), (2, 1), "SAME")), (2, 5, 6, 2)),
    "pool_avg": (function(lambda x: nn.avg_pool(x, (3,), (2,), "SAME")), (2, 6, 2)),
    "pool_avg_inside": (function(lambda x: nn.avg_pool(x, (3,), (2,), ((1, 2),), count_include_pad=False).astype(x.dtype)), (2, 6, 2)),
    "pool_min": (function(lambda x: nn.pooling.min_pool(x, (2, 2))), (1, 4, 3, 2)),
    "space_to_depth": (function(lambda x: space_to_depth(x, 2, 3)), (2, 4, 6, 2)),
    "depth_to_space": (function(lambda x: depth_to_space(x, 2, 3)), (1, 2, 2, 12)),
    "batch_norm": (norm(nn.BatchNorm), (4, 3, 5)),
    "batch_norm_axes": (norm(nn.BatchNorm, axis=(-1, 1), momentum=0.75, epsilon=0.01, use_bias=False), (4, 3, 2, 3)),
    "batch_norm_mask": (norm(nn.BatchNorm, mask=(6, 1), use_scale=False), (6, 4)),
    "batch_norm_frozen": (norm(nn.BatchNorm, use_running_average=True), (4, 5)),
    "batch_norm_init": (norm(nn.BatchNorm, scale_init=INIT.normal(0.5), bias_init=INIT.uniform(0.3)), (4, 5)),
    "group_norm": (norm(nn.GroupNorm, num_groups=3), (2, 4, 3, 6)),
    "group_norm_size": (norm(nn.GroupNorm, num_groups=None, group_size=2, use_bias=False, epsilon=0.1), (2, 5, 4)),
    "group_norm_default": (norm(nn.GroupNorm), (2, 64)),
    "group_norm_mask": (norm(nn.GroupNorm, num_groups=2, mask=(2, 4, 4)), (2, 4, 4)),
    "instance_norm": (norm(nn.InstanceNorm), (2, 4, 3, 2)),
    "instance_norm_axes": (norm(nn.InstanceNorm, feature_axes=(1, -1), use_scale=False), (2, 2, 5, 3)),
    "instance_norm_rows": (norm(nn.InstanceNorm, bias_init=INIT.normal(1.0)), (3, 4)),
    "instance_norm_mask": (norm(nn.InstanceNorm, mask=(2, 5, 1)), (2, 5, 3)),
    "layer_norm_axes": (norm(nn.LayerNorm, reduction_axes=(-1, 1), feature_axes=(2, 1), bias_init=INIT.normal(1.0)), (3, 4, 5)),
    "layer_norm_first": (norm(nn.LayerNorm, reduction_axes=0, feature_axes=-2, epsilon=0.1), (4, 3, 2)),
    "layer_norm_features": (norm(nn.LayerNorm, feature_axes=(0, 1), use_bias=False, scale_init=INIT.normal(1.0)), (3, 5)),
    "layer_norm_mask": (norm(nn.LayerNorm, mask=(3, 1, 7)), (3, 2, 7)),
    "layer_norm_fast": (norm(nn.LayerNorm, use_fast_variance=True), (3, 9)),
    "layer_norm_one": (norm(nn.LayerNorm, use_fast_variance=True, use_scale=False), (3, 1)),
    "rms_norm_axes": (norm(nn.RMSNorm, reduction_axes=(0, -1), feature_axes=1, scale_init=INIT.normal(1.0)), (3, 4, 5)),
    "rms_norm_mask": (norm(nn.RMSNorm, mask=(3, 9), epsilon=0.01), (3, 9)),
    "batch_norm_fast": (norm(nn.BatchNorm, use_fast_variance=True), (4, 3, 5)),
    "batch_norm_fast_mask": (norm(nn.BatchNorm, mask=(6, 4), use_fast_variance=True, axis=0), (6, 4)),
    "group_norm_axes": (norm(nn.GroupNorm, num_groups=3, reduction_axes=(-1, 2)), (2, 4, 3, 6)),
    "group_norm_batch": (norm(nn.GroupNorm, num_groups=2, reduction_axes=(0, 1, 2), mask=(3, 2, 4)), (3, 2, 4)),
    "group_norm_fast": (norm(nn.GroupNorm, num_groups=3, use_fast_variance=True, bias_init=INIT.normal(1.0)), (2, 4, 3, 6)),
    "instance_norm_fast": (norm(nn.InstanceNorm, use_fast_variance=True), (2, 4, 3, 2)),
    "prelu": (layer(lambda name: nn.PReLU(name=name)), (3, 5)),
    "prelu_init": (layer(lambda name: nn.PReLU(negative_slope_init=0.25, name=name)), (3, 5)),
    "weight_norm": (weight_norm(lambda name: nn.Dense(4, name=name)), (3, 5)),
    "weight_norm_everything": (weight_norm(lambda name: nn.Conv(4, (3,), bias_init=INIT.normal(1.0), name=name), variable_filter=None), (2, 5, 3)),
    "weight_norm_axes": (weight_norm(lambda name: nn.Conv(4, (3,), name=name), feature_axes=(-1, 0), scale_init=INIT.constant(1.5)), (2, 5, 3)),
    "weight_norm_whole": (weight_norm(lambda name: nn.Dense(4, name=name), feature_axes=None, epsilon=0.1), (3, 5)),
    "weight_norm_no_scale": (weight_norm(lambda name: nn.Dense(4, name=name), use_scale=False), (3, 5)),
    "weight_norm_filter": (weight_norm(lambda name: MLP((4, 3), name=name), variable_filter={"Dense_1"}), (3, 5)),
    "spectral_norm": (spectral_norm(lambda name: nn.Dense(4, name=name)), (3, 5)),
    "spectral_norm_steps": (spectral_norm(lambda name: nn.Conv(4, (3,), name=name), n_steps=3, epsilon=1e-3), (2, 5, 3)),
    "spectral_norm_mlp": (spectral_norm(lambda name: MLP((4, 3), name=name)), (3, 5)),
    "einsum": (einsum((6, 2, 4), "btd,dhk->bthk"), (2, 3, 6)),
    "einsum_mixed": (einsum((5, 2, 3), "btd , dkt -> bkt", bias_init=INIT.normal(1.0)), (2, 3, 5)),
    "einsum_dots": (einsum((4, 3), "...d,dk->...k"), (2, 2, 3, 4)),
    "einsum_no_bias": (einsum((3, 2), "ab,bc->ca", use_bias=False), (4, 3)),
}

# name: function of torch, sizes, shape in channels-last order
TORCH = {
    "adaptive_avg": (torch.nn.functional.adaptive_avg_pool2d, (3, 2), (2, 5, 7, 2)),
    "adaptive_avg_global": (torch.nn.functional.adaptive_avg_pool2d, (1, 1), (2, 5, 4, 3)),
    "adaptive_avg_even": (torch.nn.functional.adaptive_avg_pool1d, (3,), (2, 6, 3)),
    "adaptive_avg_larger": (torch.nn.functional.adaptive_avg_pool1d, (5,), (2, 3, 2)),
    "adaptive_avg_kept": (torch.nn.functional.adaptive_avg_pool2d, (None, 2), (1, 3, 5, 2)),
    "adaptive_max": (torch.nn.functional.adaptive_max_pool2d, (2, 3), (2, 5, 4, 2)),
    "adaptive_max_3d": (torch.nn.functional.adaptive_max_pool3d, (2, 1, 2), (1, 3, 2, 5, 2)),
}
DOUBLE = """dense general mlp layer_norm rms_norm attention block layer_norm_axes conv_local layer_norm_fast rms_norm_axes group_norm_axes batch_norm_fast conv conv_circular conv_explicit conv_mask conv_transpose conv_transpose_circular pool_max pool_avg space_to_depth
batch_norm batch_norm_mask group_norm group_norm_mask instance_norm instance_norm_rows prelu weight_norm spectral_norm einsum adaptive_avg adaptive_max""".split()


def our_state(tree):
    """{"batch_stats": {"wrapper": {"layer/kernel/u": ...}}} with our paths"""
    flat = flax.traverse_util.flatten_dict(tree, sep="/")
    return {c + "/" + our_path(k): v for c, k, v in ((*key.split("/", 1), v) for key, v in flat.items())}


class File:
    def __init__(self, name):
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", name)
        self.file = open(path, "w", encoding="utf-8")

    def write(self, case, dtype, what, value):
        value = np.asarray(value)
        digits = 17 if value.dtype == np.float64 else 9
        text = " ".join(f"{v:.{digits}g}" for v in value.reshape(-1))
        self.file.write(f"{case} {dtype} {what} {shape_text(value)} {text}\n")

    def write_tree(self, case, dtype, prefix, tree):
        for key, value in flax.traverse_util.flatten_dict(tree, sep="/").items():
            self.write(case, dtype, f"{prefix}/{our_path(key)}", value)


def write_flax(file, name, model, shape, dtype):
    x = inputs(*shape).astype(jnp.float32 if dtype == "f32" else jnp.float64)
    state = dict(model.init(jax.random.PRNGKey(SEED), x, True))
    params = state.pop("params", {})
    if id(model) in PLAIN:
        params = {**params, **PLAIN[id(model)][1].init(jax.random.PRNGKey(SEED), x, True)["params"]}
    file.write_tree(name, dtype, "param", params)
    if "spectral" in name:  # initial values are our own: keys go by paths, and writes in init do not count
        stats = flax.traverse_util.flatten_dict(state["batch_stats"]["wrapper"], sep="/")
        start = {k: draw(our_path("wrapper/" + k), v.shape) if k.endswith("/u") else jnp.ones((), jnp.float32) for k, v in stats.items()}
        state = {"batch_stats": {"wrapper": start}}
        for key, value in start.items():
            file.write(name, dtype, f"start/batch_stats/{our_path('wrapper/' + key)}", value)

    def loss(p, x):
        y, new = model.apply({"params": p, **state}, x, True, mutable=list(state))
        return jnp.sum(y * inputs(*y.shape).astype(x.dtype)), (y, new)

    (_, (y, new)), (dp, dx) = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(params, x)
    assert y.dtype == x.dtype, name
    file.write(name, dtype, "output", y)
    file.write(name, dtype, "input", dx)
    file.write_tree(name, dtype, "grad", dp)
    if state:
        for key, value in our_state(dict(new)).items():
            file.write(name, dtype, f"state/{key}", value.astype(jnp.float32))
        new = jax.tree.map(lambda v: v.astype(jnp.float32), new)
        file.write(name, dtype, "eval", model.apply({"params": params, **new}, x, False))


def write_torch(file, name, function, size, shape, dtype):
    def last(x):
        return x.movedim(1, -1)

    x = torch.tensor(np.asarray(inputs(*shape)), dtype=torch.float32 if dtype == "f32" else torch.float64, requires_grad=True)
    y = last(function(x.movedim(-1, 1), size))
    (y * torch.tensor(np.asarray(inputs(*y.shape)), dtype=x.dtype)).sum().backward()
    file.write(name, dtype, "output", y.detach().numpy())
    file.write(name, dtype, "input", x.grad.numpy())


def main():
    file = File("flax_catalogue.txt")
    for dtype in ("f32", "f64"):
        for name, (model, shape) in CASES.items():
            if dtype == "f64" and name not in DOUBLE:
                continue
            write_flax(file, name, model, shape, dtype)
        for name, (f, size, shape) in TORCH.items():
            if dtype == "f64" and name not in DOUBLE:
                continue
            write_torch(file, name, f, size, shape, dtype)


if __name__ == "__main__":
    main()
