"""Bessel functions, incomplete gamma and beta functions, the zeta function: values and gradients of JAX in f32 and f64, and
values of SciPy in f64, which keeps more digits, at places where formulas lose them.

    python3 tests/oracle/vocabulary_special.py        (needs jax, scipy; made with jax 0.10.2, scipy 1.17.1)
"""
import jax
import numpy as np
import scipy.special
from golden_cases import File

lax = jax.lax
INF, NAN = np.inf, np.nan
file = File("vocabulary_special.txt", "vocabulary_special.py")

# JAX's approximations are off by several units in the last place in f64, too; those of f32 are made of f32.
x = np.array([[-25.0, -7.5, -0.75], [0.5, 3.25, 8.0]])
file.case("bessel_i0e", lax.bessel_i0e, x, loose=5)
file.case("bessel_i1e", lax.bessel_i1e, x, loose=5)
file.case("bessel_i1e", lax.bessel_i1e, np.array([1e-4, 100.0]), loose=5)
file.case("bessel_i1e", lax.bessel_i1e, np.array([0.0]))
file.case("bessel_i0e", lax.bessel_i0e, np.array([INF, -INF, NAN]), gradient=False)
a = np.array([[0.5, 0.5, 1.0, 3.5], [3.5, 7.0, 10.0, 10.0]])
x = np.array([[0.25, 2.5, 1.0, 2.0], [6.0, 3.0, 9.5, 14.0]])
file.case("igamma", lax.igamma, a, x, loose=30)
file.case("igammac", lax.igammac, a, x, loose=30)
file.case("igamma_grad_a", lax.igamma_grad_a, a, x, loose=30, gradient=False)
file.case("random_gamma_grad", lax.random_gamma_grad, a, x, loose=60, gradient=False)
ends = (np.array([1.0, 2.0, 2.0, -1.0, 1.0, NAN, 1.0, 0.0]), np.array([0.0, INF, -1.0, 2.0, NAN, 1.0, 0.0, 0.0]))
for name in ("igamma", "igammac", "igamma_grad_a"):
    n = 8 if name != "igamma_grad_a" else 1
    file.case(name, getattr(lax, name), *(v[:n] for v in ends), gradient=False)
p = np.array([[0.5, 2.0, 1.5], [3.0, 5.0, 0.75]])
q = np.array([[0.5, 3.0, 0.5], [1.0, 4.0, 6.0]])
x = np.array([[0.25, 0.5, 0.9], [0.75, 0.3, 0.1]])
file.case("betainc", lax.betainc, p, q, x, loose=30, gradient=False)
file.case("betainc_of_x", lambda x: lax.betainc(np.asarray(p, x.dtype), np.asarray(q, x.dtype), x), x, loose=30)
file.case("betainc", lax.betainc, np.array([1.0, 2.0, 0.0, 2.0, -1.0, 1.0, INF, 1.0, 0.0]), np.array([1.0, 3.0, 2.0, 0.0, 1.0, 1.0, 2.0, INF, 0.0]),
          np.array([0.0, 1.0, 0.5, 0.5, 0.5, 2.0, 0.5, 0.5, 0.5]), gradient=False)
s = np.array([1.5, 2.0, 3.5, 6.0, 20.0])
file.case("zeta", lax.zeta, s, np.array([0.5, 1.0, 2.25, 10.0, 0.75]), loose=10, gradient=False)
file.case("zeta", lax.zeta, np.array([1.0, 0.5, 2.0, 3.0, 2.5, 2.0]), np.array([2.0, 2.0, 0.0, -1.0, -0.5, -0.5]), loose=10, gradient=False)

# SciPy: next to the mean of large a, far tails, small a.
f64 = (np.float64,)
a = np.array([1e-3, 1e-3, 0.3, 40.0, 150.0, 150.0, 250.0, 1e3, 1e3, 1e5, 1e5, 1e8, 30.0, 300.0])
x = np.array([1e-3, 0.7, 20.0, 41.0, 140.0, 170.0, 251.0, 950.0, 1100.0, 1e5, 1.01e5, 1.00001e8, 4.0, 90.0])
file.case("igamma", scipy.special.gammainc, a, x, loose=10, gradient=False, dtypes=f64)
file.case("igammac", scipy.special.gammaincc, a, x, loose=10, gradient=False, dtypes=f64)
p = np.array([1e-2, 0.5, 40.0, 40.0, 500.0, 500.0, 2e3, 1e-2])
q = np.array([5.0, 1e-2, 60.0, 60.0, 700.0, 700.0, 0.5, 1e-2])
x = np.array([0.2, 0.9, 0.4, 0.2, 0.41, 0.45, 0.999, 0.5])
file.case("betainc", scipy.special.betainc, p, q, x, loose=30, gradient=False, dtypes=f64)
x = np.array([-300.0, -3.0, 1e-3, 7.99, 8.01, 1e4])
file.case("bessel_i0e", scipy.special.i0e, x, gradient=False, dtypes=f64)
file.case("bessel_i1e", scipy.special.i1e, x, gradient=False, dtypes=f64)
file.case("zeta", scipy.special.zeta, np.array([1.0001, 2.5, 60.0, 300.0]), np.array([3.0, 1e-2, 1.5, 1.25]), loose=2, gradient=False, dtypes=f64)
file.write()
