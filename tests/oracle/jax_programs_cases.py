"""The programs of jax_programs.py: CASES[name] = (function, arguments or a function that makes them, options of write)."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

CASES = {}


def f32(*shape):
    return np.zeros(shape, np.float32)


def case(name, f, *args, both=False, **options):
    """both: a second program in double precision."""
    CASES[name] = (f, args, options)
    if both:
        wide = jax.tree_util.tree_map(lambda x: x.astype(np.float64) if x.dtype == np.float32 else x, args)
        CASES[name + "_f64"] = (f, wide, options)


# ---- jax.nn, function by function ---------------------------------------------------------------------------------------

ACTIVATIONS = """celu elu gelu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu log_sigmoid mish relu relu6 selu sigmoid
    silu soft_sign softplus sparse_plus sparse_sigmoid squareplus swish tanh""".split()
for name in ACTIVATIONS:
    function = getattr(jax.nn, name)
    case(f"nn_{name}", (lambda function: lambda x: function(x))(function), f32(3, 5), low=-4, high=4, both=name in ("gelu", "elu", "softplus"))
case("nn_gelu_erf", lambda x: jax.nn.gelu(x, approximate=False), f32(3, 5), low=-4, high=4)
case("nn_glu", lambda x: jax.nn.glu(x, axis=1), f32(3, 6))
case("nn_softmax", lambda x: jax.nn.softmax(x, axis=0), f32(4, 5), low=-4, high=4, both=True)
case("nn_softmax_where", lambda x: jax.nn.softmax(x, where=jnp.arange(5) < 3), f32(4, 5))
case("nn_log_softmax", lambda x: jax.nn.log_softmax(x, axis=-1), f32(2, 3, 4), low=-4, high=4)
case("nn_logsumexp", lambda x: jax.nn.logsumexp(x, axis=(0, 2)), f32(2, 3, 4), low=-4, high=4)
case("nn_logmeanexp", lambda x: jax.nn.logmeanexp(x, axis=1), f32(2, 3), low=-4, high=4)
case("nn_standardize", lambda x: jax.nn.standardize(x, axis=-1), f32(3, 7), both=True)
case("nn_one_hot", lambda i, w: jax.nn.one_hot(i, 5) @ w, np.arange(6, dtype=np.int32) - 1, f32(5, 2))
case("nn_log1mexp", lambda x: jax.nn.log1mexp(x), f32(3, 5), low=0.1, high=4)
case("nn_dot_product_attention", lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True),
     f32(2, 4, 2, 3), f32(2, 4, 2, 3), f32(2, 4, 2, 3))
case("nn_dot_product_attention_grouped", lambda q, k, v, bias: jax.nn.dot_product_attention(q, k, v, bias=bias),
     f32(1, 4, 4, 3), f32(1, 5, 2, 3), f32(1, 5, 2, 3), f32(1, 4, 4, 5))
