"""Expected values of tests/graphs: the same functions in JAX.

Each function below says what NAME.tow computes, written for itself from the comment of that file. For every line
`# test: run ...`, `# test: grad --run ...` and `# test: vmap --run ...` of the file this script writes what `tow` must print.

    python3 tests/oracle/graphs_values.py        (needs jax; made with jax 0.10.2)
"""
import inspect
import json
import pathlib
import re
import shlex
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
FOLDER = pathlib.Path(__file__).resolve().parent.parent / "graphs"
DTYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "u32": np.uint32, "bool": np.bool_,
          "bf16": jnp.bfloat16, "f16": np.float16, "i8": np.int8, "u8": np.uint8, "i64": np.int64, "u64": np.uint64}


def sin(x): return jnp.sum(jnp.sin(x))
def exp(x): return jnp.sum(jnp.exp(x))
def log(x): return jnp.sum(jnp.log(x))
def tanh(x): return jnp.sum(jnp.tanh(x))
def logistic(x): return jnp.sum(1 / (1 + jnp.exp(-x)))
def roots(x): return jnp.sum(x * x ** -0.5)
def integer_pow(x, y, z): return jnp.sum(x * x + y * y * y + 1 / z)
def mul(x, y): return jnp.sum(x * y)
def div(x, y): return jnp.sum(x / y)
def pow(x, y): return jnp.sum(jnp.power(x, y))
def choice(x, y): return jnp.sum(jnp.maximum(x, y) + jax.nn.relu(x) + jnp.abs(y))
def select(p, x, y): return jnp.sum(jnp.where(p, x, y) ** 2)
def dot(x, w): return jnp.sum(jnp.tanh(x @ w))
def rows(table, rows): return jnp.sum(table[rows] ** 2)
def rows_outside(table, rows): return table.at[rows].get(mode="fill")
def reductions(x, y): return jnp.sum(jnp.max(x, axis=1)) + y[0] * y[1] * y[2]
def softmax(x, w): return jnp.sum(jax.nn.softmax(x, axis=1) * w)
def cross_entropy(logits, labels): return -jnp.sum(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1))
def linear_cross_entropy(x, w, labels): return cross_entropy(x @ w.T, labels)
def remat_nothing(x): return jnp.sin(jnp.sin(x))
def remat_names(x): return jnp.sum(jnp.sin(jnp.sin(x)) * jnp.sin(x))
def remat_constants(x): return jnp.sum(0.0 * jnp.sin(x))
def cos(x): return jnp.sum(jnp.cos(x))
def near_zero(x, y): return jnp.sum(jnp.expm1(x) + jnp.log1p(y))
def erf(x, y): return jnp.sum(jax.scipy.special.erf(x) + jax.scipy.special.erfinv(y))
def clamp(low, x, high): return jnp.sum(jax.lax.clamp(low, x, high))
def rem(x, y): return jnp.sum(jax.lax.rem(x, y))
def pad(x, value): return jnp.sum(jax.lax.pad(x, value, [(-1, 3, 1)]))
def scatter_add(rows, updates): return jnp.sum(jnp.zeros((3, 2)).at[rows].add(updates, mode="drop") ** 2)
def index_add(operand, rows, updates, table, others):
    a = operand.at[rows].add(updates, mode="drop")
    return jnp.sum(a * table) + jnp.sum((a[others] * table[others]) ** 2)
def stop_gradient(x): return jnp.sum(x * jax.lax.stop_gradient(x))
def call(x): return jnp.sum(jnp.sin(jnp.sin(x)))
def sixteen_bits(x, w):
    h = jax.nn.relu(x @ w)
    return jnp.sum(jnp.square(jax.lax.dot(h, h, preferred_element_type=jnp.float32).astype(jnp.float16)))
def sixteen_bits_chain(c, x):
    y = []
    for row in x:
        c = jnp.tanh(c * jnp.bfloat16(1.0078125) + jnp.bfloat16(0.00390625))
        y.append(jax.nn.softmax(c * row))
    return jnp.sum(c * c) + jnp.max(jnp.sum(jnp.stack(y) * x, axis=1))
def whole_numbers(x, y, z):
    return x + y, x * y, jax.lax.div(x, y), jax.lax.dot(y, y, preferred_element_type=jnp.int32), z << 40, z.astype(jnp.uint8)
def call_in_known_remat(x, y): return jnp.sum(x * jnp.sin(y))
def fma(x, y, z):
    if isinstance(x, jax.core.Tracer): return jnp.sum(x * y + z)
    exact = [float(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))) for a, b, c in zip(x, y, z)]
    return jnp.sum(jnp.array(exact))
def convert(x, y): return jnp.sum(x.astype(jnp.float64) * y.astype(jnp.int32).astype(jnp.float64))
def broadcasts_kept(x, b):
    def step(c, _): return jnp.tanh(jnp.sum(jnp.broadcast_to(jnp.exp(c), (8, 4)) * b, axis=0)), None
    y = jnp.sin(x)
    return jnp.sum(jax.lax.scan(step, y, None, length=3)[0]) + jnp.sum(y.reshape(2, 2).T ** 2)
def layers(w1, w2, w3, x): return jnp.sum(jnp.sin(w3 @ jnp.sin(w2 @ jnp.sin(w1 @ x))))
def names(x): return x * 4.0 * 4.0 * 4.0 * 4.0
def vmap_mlp(x, w, v, label):
    return cross_entropy((jnp.tanh(x @ w) @ v)[None], label[None])


def vmap_scan(n, x, xs):
    def body(carry, e):
        n, x = carry
        y = jnp.sin(x * e) + x
        return (jnp.sin(n), y), y
    (n, x), ys = jax.lax.scan(body, (n, x), xs, reverse=True)
    return n, x, ys


def vmap_rows(table, rows, updates, x, start):
    part = jax.lax.dynamic_slice(x, (jnp.clip(start, 0, 2), jnp.int32(0)), (2, 2))  # Tow clamps; JAX counts -1 from the end first
    whole = jax.lax.dynamic_update_slice(x, part * part, (jnp.clip(start, 0, 2), jnp.int32(0)))
    return rows_outside(table, rows), jnp.zeros(3, updates.dtype).at[rows].add(updates, mode="drop"), part, whole


def vmap_attention(q, k, v, mask, scale):
    logits = jnp.where(mask, jnp.einsum("bthd,bshd->bhts", q * 0.5, k), jnp.finfo(q.dtype).min)
    y = jnp.einsum("bhts,bshe->bthe", jax.nn.softmax(logits), v)
    mean = y.mean(-1, keepdims=True)
    n = (y - mean) * jax.lax.rsqrt(((y - mean) ** 2).mean(-1, keepdims=True) + 0.001)
    return n * scale, jax.scipy.special.logsumexp(logits, axis=-1)


def vmap_rnn(w, h, xs):
    def body(h, x):
        h = jnp.tanh(h @ w + x)
        return h, jnp.sin(h)
    last, ys = jax.lax.scan(body, h, xs)
    return jnp.sum(ys) * jnp.max(last)


def random(key, x):
    a, b = jax.random.split(key)
    return jnp.sum(x * jax.random.normal(b, (2, 3), jnp.float32) + jax.random.uniform(a, (2, 3), jnp.float32))


def numpy(q, k, labels):
    logits = jnp.einsum("ij,kj->ik", q, k)
    along = jnp.take_along_axis(logits, labels[:, None], axis=1)
    hot = jax.nn.one_hot(labels, 2, dtype=q.dtype)
    return jnp.sum(jnp.tril(logits) * hot) + jnp.sum(along) + jnp.sum(jnp.std(logits, axis=1))


def vmap_random(key): return jax.random.bits(key, (2, 2), jnp.uint32)
def jacobians(x, w): return jnp.tanh(x @ w), jnp.sum(x * x)
def hessian(x, w): return jnp.sum(jnp.tanh(x @ w) * (x @ w))
def extremes(x, y): return jnp.sum(x[1:2]) + jnp.sum(jax.lax.integer_pow(y, -2**63))
def scan_deep(x): return jnp.sum(jax.lax.fori_loop(0, 2 ** 8, lambda i, x: jnp.sin(x), x))
def no_rows(h, xs, w): return jnp.sum(jax.lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), h, xs)[0])
def dead_reader(x, s): return jnp.sum(jnp.sin(x / jnp.sqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 0.1) * s))
def erf_inv(y): return jax.scipy.special.erfinv(y)
def special(x):
    polygamma = jax.lax.polygamma(jnp.full_like(x, 1), x)
    return jnp.sum(jax.lax.cbrt(x) + 2 ** x + jax.lax.erfc(x) + jax.lax.lgamma(x) + polygamma)


def trigonometry(x, y): return jnp.sum(jnp.tan(x) + jnp.arcsin(y) + jnp.arctanh(y) + jnp.arctan2(x, y))


def sort(x, y):
    a, b = jax.lax.sort((x, y), num_keys=1)
    return jnp.sum(jax.lax.top_k(a * b, 2)[0])


def scatter_general(x, i, u):
    rows = i[:, 0]
    a = x.at[rows].set(u, mode="drop")
    b = a.at[rows].add(u, mode="clip")
    return jnp.sum(b.at[rows].get(mode="fill", fill_value=0) * 10)


def bits(x, y, z):
    d = jax.lax.reduce_precision(z, 5, 10)
    return (jax.lax.shift_right_arithmetic(x, y), jax.lax.population_count(x), jax.lax.clz(x), d, jnp.isfinite(d),
            jnp.nextafter(z, d))


@jax.custom_jvp
def softplus(x): return jnp.log1p(jnp.exp(x))


@softplus.defjvp
def softplus_rule(primals, tangents):
    return softplus(primals[0]), tangents[0] / (1 + jnp.exp(-primals[0]))


def custom_jvp(x): return jnp.sum(softplus(x))


@jax.custom_vjp
def sine_of_product(x, w): return jnp.sin(x @ w)


def sine_forward(x, w): return jnp.sin(x @ w), (x, w, jnp.cos(x @ w))
def sine_backward(residuals, ct):
    x, w, c = residuals
    return (ct * c) @ w.T, x.T @ (ct * c)


sine_of_product.defvjp(sine_forward, sine_backward)
def custom_vjp(x, w): return jnp.sum(jnp.sin(sine_of_product(x, w)))


@jax.custom_vjp
def three(x): return jnp.sin(x)


three.defvjp(lambda x: (jnp.sin(x), None), lambda residuals, ct: (3 * ct,))
def custom_vjp_forward(x): return jnp.sum(three(x))


def forward_mode(x, w): return jnp.sin(x) * w


def conv(x, w):
    return jnp.sum(jnp.sin(jax.lax.conv_general_dilated(x, w, (2,), [(1, 1)], dimension_numbers=("NWC", "WIO", "NWC"))))


def pool(x):
    m = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2), (1, 2), "VALID")
    return jnp.sum(jax.lax.cumprod(jax.lax.reduce_window(m, 0.0, jax.lax.add, (1, 2), (1, 1), "VALID"), axis=1))


def moves(x, y):
    c = jnp.concatenate([x.T[1:], jnp.stack([y, y])], axis=0)
    return jnp.sum(jnp.cumsum(c[::-1].reshape(8)))


def windows(x, u, i, j):
    y = jax.lax.dynamic_update_slice(x, u, (i,))
    return jnp.sum(jax.lax.dynamic_slice(y, (j,), (2,))) + jnp.sum(y)


def log_softmax(x, w):
    return jnp.sum(jax.nn.log_softmax(x, axis=1) * w) + jnp.sum(jax.nn.logsumexp(x, axis=1))


def layer_norm(x, scale, bias, w):
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean((x - mean) ** 2, axis=-1, keepdims=True)
    return jnp.sum(((x - mean) / jnp.sqrt(variance + 1e-5) * scale + bias) * w)


def rms_norm(x, scale, w):
    return jnp.sum(x / jnp.sqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-5) * scale * w)


def attention(q, k, v):
    logits = 0.5 * jnp.einsum("bthd,bshd->bhts", q, k)
    logits = jnp.where(jnp.tril(jnp.ones((3, 3), bool)), logits, -jnp.inf)
    return jnp.sum(jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(logits), v))


def activations(x):
    return jnp.sum(jax.nn.silu(x) + jax.nn.gelu(x, approximate=True) + jax.nn.gelu(x, approximate=False))


def remat_dots(x):
    for _ in range(3):
        x = jnp.sin(x @ x)
    return jnp.sum(x)


def scan(w, h, xs):
    total = 0.0
    for x in xs:
        h = jnp.tanh(w * h + x)
        total += jnp.sum(h * h)
    return total + jnp.sum(h)


def cond(i, x):
    return jnp.sum(jax.lax.switch(i, [jnp.sin, lambda x: jnp.exp(x) * x, lambda x: x * jnp.array([1.0, 2, 4])], x))


def cond_remat(p, x):
    y = jax.lax.cond(p, lambda x: jnp.tanh(x.T @ jnp.cos(x)), lambda x: jnp.sin(x @ x), x)
    return jnp.sum(y * y)


def while_loop(w, x, bound):
    def step(x, _):
        return jax.lax.cond(jnp.sum(x) > bound, lambda x: jnp.sin(w * x), lambda x: x, x), None
    return jnp.sum(jax.lax.scan(step, x, length=8)[0])


def scan_remat(w, h):
    for _ in range(4):
        h = jnp.tanh(jnp.sin(w * h))
    return jnp.sum(h)


def names_in_remat(w, x):
    for _ in range(5):
        x = jnp.sin(x @ w)
    return jnp.sum(x)


def scan_invariants(w, h):
    for _ in range(5):
        h = jnp.tanh(h * jnp.sin(w) * jnp.exp(-jnp.arange(2, dtype=h.dtype)))
    return jnp.sum(h)


def kept_anyway(x, y):
    n = x.astype(jnp.float32)
    return jnp.sum(x * y + x / y + jnp.sin(x) + jnp.exp(x) + (n * n).astype(x.dtype)) + jnp.sum(x[:2] * y[2:])


def scan_kept_anyway(h, xs):
    for x in xs:
        h = jnp.tanh(h * x * h)
    return jnp.sum(h)


def show(x):
    """What the command prints of one array."""
    x = np.asarray(x)
    name = next(n for n, d in DTYPES.items() if d == x.dtype)
    data = json.dumps(x.tolist() if x.dtype.kind in "iub" else np.float64(x).tolist())
    return f"{name}[{','.join(map(str, x.shape))}] {data.replace('NaN', 'nan').replace('Infinity', 'inf')}\n"


def inputs_of(text, arguments):
    types = re.findall(r':(' + '|'.join(DTYPES) + r')\[([\d,]*)\]', text[text.index("lambda"):text.index("let")])
    values = [re.sub(r"^\w+=", "", arguments[i + 1]) for i, a in enumerate(arguments) if a == "--input"]  # in order
    arrays = []
    for i, value in enumerate(values):
        if arguments[0] == "vmap":  # all rows are given
            arrays.append(jnp.asarray(np.array(json.loads(value), DTYPES[types[i][0]])))
            continue
        dtype, dims = types[i] if i < len(types) else types[0]  # tangents of forward mode have the type of the first
        shape = tuple(int(d) for d in dims.split(",")) if dims else ()
        arrays.append(jnp.broadcast_to(jnp.asarray(np.array(json.loads(value), DTYPES[dtype])), shape))
    return arrays


def axes_of(arguments, option, count):
    axes = arguments[arguments.index(option) + 1].split(",") if option in arguments else ["0"]
    return tuple(None if a == "none" else int(a) for a in (axes if len(axes) == count else axes * count))


def evaluate_rows(function, arguments, inputs):
    """jax.vmap of the function, or of its gradient"""
    def row(*values):
        return tuple(evaluate(function, ["grad" if "--grad" in arguments else "run", *arguments[1:]], values))
    size = int(arguments[arguments.index("--size") + 1])
    in_axes = axes_of(arguments, "--in-axes", len(inputs))
    examples = [x if a is None else jnp.take(x, 0, axis=a) for x, a in zip(inputs, in_axes)]
    out_axes = axes_of(arguments, "--out-axes", len(jax.eval_shape(row, *examples)))
    return list(jax.vmap(row, in_axes, out_axes, axis_size=size)(*inputs))


def evaluate(function, arguments, inputs):
    if arguments[0] == "vmap":
        return evaluate_rows(function, arguments, inputs)
    if arguments[0] == "run":
        results = function(*inputs)
        return results if isinstance(results, tuple) else [results]
    names = list(inspect.signature(function).parameters)
    wrt = [names.index(n) if n in names else int(n)
           for n in (arguments[arguments.index("--wrt") + 1].split(",") if "--wrt" in arguments else ["0"])]
    if "--jvp" in arguments:
        primals, tangents = inputs[:len(names)], inputs[len(names):]

        def chosen(*values):
            return function(*(values[wrt.index(i)] if i in wrt else x for i, x in enumerate(primals)))
        return list(jax.jvp(chosen, [primals[i] for i in wrt], tangents))
    for option, transform in [("--jacfwd", jax.jacfwd), ("--jacrev", jax.jacrev), ("--hessian", jax.hessian)]:
        if option in arguments:
            return jax.tree.leaves(transform(function, argnums=tuple(wrt))(*inputs))
    value, gradients = jax.value_and_grad(function, argnums=tuple(wrt))(*inputs)
    return ([value] if "--value" in arguments else []) + list(gradients)


def main():
    for path in sorted(FOLDER.glob("*.tow")):
        text = path.read_text()
        seen = {}
        for line in re.findall(r"^# test: (.*)$", text, re.M):
            arguments = shlex.split(line)
            command = arguments[0]
            seen[command] = seen.get(command, 0) + 1
            if command != "run" and not (command in ("grad", "vmap") and "--run" in arguments):
                continue
            if path.stem not in globals():
                print(f"{path.name}: no function says what it computes; left alone")
                continue
            outputs = evaluate(globals()[path.stem], arguments, inputs_of(text, arguments))
            number = "" if seen[command] == 1 else f".{seen[command]}"
            target = FOLDER / f"{path.stem}.{command}{number}.expected"
            target.write_text("# made by tests/oracle/graphs_values.py\n" + "".join(map(show, outputs)))


if __name__ == "__main__":
    main()
