"""More programs of jax_programs.py: functions of lax, jax.numpy and jax.scipy that few programs call. Registers them in
jax_programs_cases.CASES."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax_programs_cases import case, f32

# ---- moves ----------------------------------------------------------------------------------------------------------------

case("reshape_order", lambda x: (x.reshape((2, 6), order="F"), lax.reshape(x, (3, 4), dimensions=(1, 0)),
                                 jnp.ravel(x, order="F") * jnp.arange(12)), f32(3, 4), both=True)
case("diagonals", lambda x: (jnp.diagonal(x), jnp.diagonal(x, offset=1), jnp.trace(x), jnp.diagflat(x[0]), jnp.diag(x)), f32(4, 4))
case("diagonal_axes", lambda x: (jnp.diagonal(x, axis1=0, axis2=2), jnp.trace(x, axis1=1, axis2=2, offset=1)), f32(3, 2, 3))
case("tile_many_axes", lambda x: (jnp.tile(x, (1, 2, 1, 3, 1)), jnp.tile(x[0, 0, 0], (2, 1, 2, 2))), f32(2, 1, 2, 2, 2))


# ---- names in the rules of custom calls -----------------------------------------------------------------------------------

@jax.custom_vjp
def gated(x, w):
    """A gate as libraries of transformers write theirs: the names stand in the forward rule"""
    return jnp.tanh(x) * w


def gated_forward(x, w):
    t = checkpoint_name(jnp.tanh(x), "gate")
    return t * w, (t, w)


def gated_backward(residuals, ct):
    t, w = residuals
    return ct * w * (1 - t * t), ct * t


gated.defvjp(gated_forward, gated_backward)


@jax.custom_jvp
def scaled(x):
    """A custom_jvp whose rule has a name"""
    return jnp.exp(x)


@scaled.defjvp
def scaled_jvp(primals, tangents):
    y = checkpoint_name(jnp.exp(primals[0]), "slope")
    return y, y * tangents[0]


def named_in_rules(x, w):
    policy = jax.checkpoint_policies.save_only_these_names("gate", "slope")
    return jax.checkpoint(lambda x, w: scaled(gated(jnp.sin(x), w)), policy=policy)(x, w)


case("names_in_rules", named_in_rules, f32(3, 4), f32(3, 4), both=True)

# ---- choosing -------------------------------------------------------------------------------------------------------------

case("approx_top_k", lambda x: (*lax.approx_max_k(x, 3), *lax.approx_min_k(x, 2, reduction_dimension=0)), f32(4, 6))
