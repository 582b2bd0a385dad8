"""Writes golden/schedules.txt: how many iterations binomial schedules run forward, by checkpoint_schedules (Revolve).

    pip install checkpoint_schedules==1.0.4; python tests/oracle/schedules_golden.py

Lines: iterations, slots, iterations run forward, each of those beside their derivatives counted once.
"""

import pathlib

from checkpoint_schedules import Forward, Revolve

CASES = ([(n, s) for n in (2, 3, 4, 5, 7, 10, 16, 24, 37) for s in (1, 2, 3, 4, 6, 9) if s < n]
         + [(64, s) for s in (2, 3, 5, 8, 20)] + [(100, s) for s in (5, 10)]
         + [(365, 5)] + [(n, s) for n in (128, 256, 512) for s in (3, 5, 8, 13, 32)])


def forward_steps(n, slots):
    steps = 0
    schedule = Revolve(n, slots)
    for action in schedule:
        if isinstance(action, Forward):
            steps += action.n1 - action.n0
        if schedule.is_exhausted:
            return steps


lines = [f"{n} {slots} {forward_steps(n, slots)}" for n, slots in CASES]
(pathlib.Path(__file__).parent / "golden/schedules.txt").write_text("\n".join(lines) + "\n")
