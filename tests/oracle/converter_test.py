"""What scripts/jaxpr_to_tow.py says of what it cannot convert, and its exit status. Needs JAX; exit status 77 without it.

    python tests/oracle/converter_test.py
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest
import warnings

os.environ.setdefault("JAX_PLATFORMS", "cpu")
try:
    import jax
except ImportError:
    print("skipped: the Python that runs this has no jax (pip install jax==0.10.2)")
    sys.exit(77)
import jax.numpy as jnp
import numpy as np
from jax import export, lax

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
import jaxpr_to_tow  # noqa: E402

f32 = np.zeros((3, 3), np.float32)


def problems(fun, *args, **options):
    try:
        jaxpr_to_tow.convert(fun, *args, **options)
    except jaxpr_to_tow.Unsupported as e:
        return str(e).splitlines()
    return []


def line_of(fun, part):
    """FILE:LINE of the line of fun that has this in it."""
    code = fun.__code__
    lines = pathlib.Path(__file__).read_text().splitlines()
    return f"{pathlib.Path(__file__).name}:{next(i for i in range(code.co_firstlineno, len(lines) + 1) if part in lines[i - 1])}"


def several(x):
    y = jnp.linalg.cholesky(x)
    z = lax.real(jnp.fft.fft(x))
    return y + z + jnp.linalg.cholesky(y)


def in_a_loop(x):
    def step(c, _):
        return jnp.linalg.inv(c), None
    return lax.scan(step, x, None, length=2)[0]


@jax.custom_jvp
def with_rule(x):
    return x * 2


@with_rule.defjvp
def the_rule(primals, tangents):
    return primals[0], jnp.linalg.cholesky(primals[0]) @ tangents[0]


def sharded(x):
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("i")
    return jax.shard_map(lambda x: x * 2, mesh=mesh, in_specs=spec, out_specs=spec)(x)


def called_back(x):
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def of_another_type(x):
    return x.astype(jnp.float8_e4m3fn).astype(jnp.float32)


def scattered_by_a_function(x):
    return x.at[np.array([0, 0])].apply(jnp.sin)


class Problems(unittest.TestCase):
    def test_each_is_named_once_with_its_place(self):
        self.assertEqual(problems(several, f32), [
            f"primitive cholesky (first at {line_of(several, 'cholesky(x)')})",
            f"type complex64 (first at {line_of(several, 'fft')})",
            f"primitive fft (first at {line_of(several, 'fft')})",
            f"primitive real (first at {line_of(several, 'fft')})"])

    def test_places_in_regions_and_rules(self):
        self.assertIn(f"primitive lu (first at {line_of(in_a_loop, 'inv')})", problems(in_a_loop, f32))
        self.assertEqual(problems(with_rule, f32), [f"primitive cholesky (first at {line_of(the_rule, 'cholesky')})"])
        self.assertEqual(problems(lambda x: with_rule(x), f32, custom_rules=False), [])

    def test_what_belongs_to_a_machine(self):
        self.assertEqual(problems(sharded, f32), [f"primitive shard_map (first at {line_of(sharded, 'shard_map')})"])
        self.assertEqual(problems(called_back, f32), [f"primitive pure_callback (first at {line_of(called_back, 'pure_callback')})"])

    def test_types(self):
        self.assertEqual(problems(of_another_type, f32), [f"type float8_e4m3fn (first at {line_of(of_another_type, 'float8')})"])
        self.assertEqual(problems(lambda x: x, np.zeros(2, np.complex64)), ["type complex64"])
        self.assertEqual(problems(lambda x: x, np.zeros(2, np.int16)), ["type int16"])
        self.assertEqual(problems(lambda x: x.astype(jnp.int4).astype(jnp.int32), np.zeros(2, np.int32))[0].split(" (")[0], "type int4")

    def test_shapes_that_depend_on_a_variable(self):
        a, = export.symbolic_shape("a")
        self.assertEqual(problems(lambda x: x * 2, jax.ShapeDtypeStruct((a, 3), "float32")), ["shape (a, 3), which depends on a variable"])

    def test_more_axes_than_there_are(self):
        self.assertEqual(problems(lambda x: x * 2, np.zeros((1,) * 9, np.float32)),
                         ["type f32[1,1,1,1,1,1,1,1,1] of 9 axes, where Tow has at most 8"])
        found = problems(lambda x: x.reshape((1,) * 7 + (3, 3)).sum(), f32)
        self.assertEqual([f.split(" (")[0] for f in found], ["type f32[1,1,1,1,1,1,1,3,3] of 9 axes, where Tow has at most 8"])
        self.assertEqual(problems(lambda x: jnp.tile(x, (2,) * 8).sum(), np.zeros((1,) * 8, np.float32)), [])

    def test_types_that_jax_makes_narrower(self):
        for dtype, taken in (("float64", "float32"), ("int64", "int32"), ("uint64", "uint32"), ("complex128", "complex64")):
            self.assertEqual(problems(lambda x: x, {"w": jax.ShapeDtypeStruct((4,), dtype)}),
                             [f"argument x/w is of {dtype}, which JAX takes as {taken} without jax_enable_x64 (--x64)"])
            with jax.enable_x64(True):
                self.assertEqual(problems(lambda x: x, jax.ShapeDtypeStruct((4,), dtype)),
                                 ["type complex128"] if dtype == "complex128" else [])

    def test_code_for_other_platforms(self):
        def f(x):
            return lax.platform_dependent(x, tpu=jnp.sin)
        self.assertIn("code for the platforms tpu alone", problems(f, f32)[0])
        text = jaxpr_to_tow.convert(lambda x: lax.platform_dependent(x, tpu=jnp.linalg.cholesky, cpu=jnp.cos), f32).text
        self.assertIn("= cos a", text)

    def test_what_jax_cannot_trace(self):
        found = problems(lambda x: x[x > 0], f32)
        self.assertEqual(len(found), 1)
        self.assertIn("JAX cannot trace the function: NonConcreteBooleanIndexError: Array boolean indices must be concrete", found[0])

    def test_functions_of_their_own(self):
        self.assertIn("scatter with a function, at indices that may be equal", problems(scattered_by_a_function, f32)[0])
        wide = np.zeros((20, 20), np.float32)
        found = problems(lambda x: lax.reduce_window(x, np.float32(1), lax.mul, (17, 17), (1, 1), "VALID"), wide)
        self.assertIn("a window of more than 256 places", found[0])
        text = jaxpr_to_tow.convert(lambda x: lax.reduce(x, np.float32(0), lambda a, b: b + b, (0,)), f32).text
        self.assertNotIn("reduce_sum", text)

    def test_policies_of_the_user(self):
        def f(x):
            return jax.checkpoint(jnp.sin, policy=lambda *_, **__: True)(x)
        self.assertIn("remat with the policy", problems(f, f32)[0])


class Warnings(unittest.TestCase):
    def warnings(self, fun, *args):
        return jaxpr_to_tow.convert(fun, *args).warnings

    def test_what_is_left_out(self):
        def calling(x):
            jax.debug.callback(print, x)
            return x
        self.assertEqual(len(self.warnings(calling, f32)), 1)
        self.assertEqual(self.warnings(lambda x: jnp.sin(x), f32), [])

    def test_prints(self):
        def printing(x):
            def body(c, v):
                jax.debug.print("{1} of {0:.2f}", c, v)
                return c * v, None
            jax.debug.print("x = {x} {{}}", x=x)
            return jax.lax.scan(body, jnp.float32(1), jnp.ravel(x))[0]
        program = jaxpr_to_tow.convert(printing, f32)
        self.assertEqual(program.warnings, [])
        self.assertIn('= debug_print[format="x = {} {{}}"] a', program.text)
        self.assertIn('= debug_print[format="{} of {}"] b a', program.text)

    def test_arrays_that_jax_makes_narrower(self):
        program = jaxpr_to_tow.convert(lambda x: x * 2, np.zeros(3))
        self.assertEqual(program.warnings, ["argument x is of float64, which JAX takes as float32 without jax_enable_x64 (--x64)"])
        self.assertEqual(program.arguments["x"].dtype, np.float32)

    def test_what_numpy_and_libraries_warn_of(self):
        def overflowing(x):
            return x + np.float64(1e300)

        def infinite(x):
            return x + np.log(np.zeros(3))

        def truncated(x):
            return x + jnp.zeros(3, "float64")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertEqual(self.warnings(overflowing, f32), ["overflow encountered in cast"])
            self.assertEqual(self.warnings(infinite, f32), [f"divide by zero encountered in log ({line_of(infinite, 'np.log')})"])
            self.assertIn("dtype float64", self.warnings(truncated, f32)[0])

    def test_random_numbers_without_a_key(self):
        for dtype in (np.float32, np.int32, np.uint8, jnp.bfloat16):
            found = self.warnings(lambda a, b: lax.rng_uniform(a, b, (3,)), dtype(0), dtype(1))
            self.assertEqual(len(found), 1)
            self.assertIn("rng_uniform has no key", found[0])

    def test_rules_that_jax_cannot_trace(self):
        @jax.custom_vjp
        def f(x):
            return x * 2
        f.defvjp(lambda x: (x * 2, x), lambda x, ct: (jnp.sum(ct),))
        found = self.warnings(lambda x: f(x), f32)
        self.assertEqual(len(found), 1)
        self.assertIn("the rule of f is left out (JAX cannot trace it: ValueError: Custom VJP bwd rule must produce", found[0])
        self.assertIn("closes over a value", " ".join(self.warnings(lambda x: jax.scipy.special.expn(2, x), f32)))

    def test_rules_without_end(self):
        found = self.warnings(jnp.sinc, f32)
        self.assertEqual(len(found), 1)
        self.assertIn("3 rules deep", found[0])

    def test_names_that_are_nowhere(self):
        def f(x):
            return jax.checkpoint(jnp.sin, policy=jax.checkpoint_policies.save_only_these_names("nowhere"))(x)
        self.assertEqual(self.warnings(f, f32), ["the policy of a remat has the name 'nowhere', which no value in the region has"])


class CommandLine(unittest.TestCase):
    def run_script(self, *args):
        with tempfile.TemporaryDirectory() as directory:
            (pathlib.Path(directory) / "model.py").write_text(textwrap.dedent("""
                import jax.numpy as jnp
                import numpy as np
                def f(x): return jnp.sin(x) + np.arange(100, dtype=np.float32)
                def bad(x):
                    return jnp.linalg.cholesky(x)
                def args(): return np.zeros((100,), np.float32)
                def twice(x): return x * 2
                def large(x): return x + np.float64(1e300)
                def wide(): return np.full(3, 1e300)
                """))
            done = subprocess.run([sys.executable, str(SCRIPTS / "jaxpr_to_tow.py"), *args], cwd=directory, capture_output=True, text=True)
            files = {p.name: p.read_bytes() for p in pathlib.Path(directory).iterdir() if p.is_file()}
        return done, files

    def test_a_conversion(self):
        done, files = self.run_script("model:f", "--args", "f32[100]", "-o", "f.tow", "--constants", "f.safetensors")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(b'"const.0"', files["f.tow"])
        self.assertIn(b"const.0", files["f.safetensors"])

    def test_constants_nobody_asked_for(self):
        done, _ = self.run_script("model:f", "--args", "model:args")
        self.assertEqual(done.returncode, 0)
        self.assertIn("1 constants are inputs of the program (const.0): --constants FILE writes them", done.stderr)

    def test_a_refusal(self):
        done, files = self.run_script("model:bad", "--args", "f32[3,3]", "-o", "bad.tow")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(done.stderr, "jaxpr_to_tow: cannot convert: primitive cholesky (first at model.py:6)\n")
        self.assertNotIn("bad.tow", files)

    def test_types_of_64_bits(self):
        for dtype in ("f64", "i64", "u64"):
            done, files = self.run_script("model:twice", "--args", f"{dtype}[4]", "-o", "f.tow")
            self.assertEqual((done.returncode, "f.tow" in files), (1, False))
            self.assertIn("jaxpr_to_tow: cannot convert: argument x is of ", done.stderr)
            self.assertIn("(--x64)", done.stderr)
            done, files = self.run_script("model:twice", "--x64", "--args", f"{dtype}[4]", "-o", "f.tow")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn(f'a:{dtype}[4]"x"'.encode(), files["f.tow"])

    def test_one_message(self):
        done, _ = self.run_script("model:large", "--args", "f32[]")
        self.assertEqual((done.returncode, done.stderr), (0, "jaxpr_to_tow: warning: overflow encountered in cast\n"))
        done, _ = self.run_script("model:twice", "--args", "model:wide")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stderr, "jaxpr_to_tow: warning: argument x is of float64, which JAX takes as float32 without jax_enable_x64 (--x64)\n")

    def test_bad_arguments(self):
        for args, message in ((("nowhere:f",), "No module named 'nowhere'"), (("model:g",), "has no attribute 'g'"),
                              (("model:f", "--args", "f33[3]"), "argument 'f33[3]': expected a type"),
                              (("model:f", "--args", "c64[3]"), "argument 'c64[3]': expected a type"),
                              (("model:f", "--args", "3000000000"), "argument 3000000000 does not fit into int32; --x64"),
                              (("model:f", "--args", "[0.5, -1e300]"), "argument -1e+300 does not fit into float32; --x64")):
            done, _ = self.run_script(*args)
            self.assertEqual(done.returncode, 2)
            self.assertIn(message, done.stderr)


if __name__ == "__main__":
    unittest.main()
