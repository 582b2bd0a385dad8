"""Writes examples/dpsgd/golden.txt: what Google's accountant says of private steps.

    pip install dp-accounting==0.6.0; python tests/oracle/dpsgd_golden.py

Lines: batch, images, noise, steps, delta, epsilon. Orders are the whole numbers from 2 to 512, as in examples/dpsgd/privacy.c.
"""

import pathlib

import dp_accounting
from dp_accounting.rdp import RdpAccountant

IMAGES = 1438
CASES = [(512, 5.0, 150, 1e-4), (128, 1.1, 100, 1e-4), (64, 0.7, 1000, 1e-5), (1, 0.5, 5000, 1e-3), (1438, 20.0, 300, 1e-5),
         (256, 3.0, 1, 1e-6), (700, 40.0, 10, 0.5)]


def main():
    lines = []
    for batch, noise, steps, delta in CASES:
        accountant = RdpAccountant(orders=list(range(2, 513)), neighboring_relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
        event = dp_accounting.PoissonSampledDpEvent(batch / IMAGES, dp_accounting.GaussianDpEvent(noise))
        accountant.compose(event, steps)
        lines.append(f"{batch} {IMAGES} {noise} {steps} {delta} {accountant.get_epsilon(delta):.10g}")
    path = pathlib.Path(__file__).parents[2] / "examples/dpsgd/golden.txt"
    path.write_text("\n".join(lines) + "\n")


main()
