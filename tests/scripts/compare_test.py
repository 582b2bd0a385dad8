"""The arithmetic of bench/compare: spread, when a row has settled, quiet, shares, and merged runs. Needs no packages."""

import pathlib
import sys
import types
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.dont_write_bytecode = True
sys.path[:0] = [str(BENCH), str(BENCH / "peers")]

import common
import figures
import report
import rows
import running


def runs(*best, median=None, calibration=100.0, others=0.0, steal=0.0, **more):
    """One run for each best step, with the same median and the same machine."""
    return [{"min_seconds": seconds, "median_seconds": median or seconds, "calibration": calibration, "others": others,
             "steal": steal, "load": 0.5, "library": "tow", **more} for seconds in best]


def row(limit="peak", value="seconds", peers=None):
    return types.SimpleNamespace(number=1, name="work", tow="own", value=value, limit=limit,
                                 peers=peers or {"JAX": ["jax a", "jax b"], "PyTorch": ["torch"]})


class Summary(unittest.TestCase):
    def test_a_burst_is_a_spread_and_no_result(self):
        found = figures.summary(runs(1.0, 1.02, 1.6, median=1.1), "seconds")
        self.assertEqual((found["rounds"], found["best"], found["median"], found["slowest"]), (3, 1.0, 1.1, 1.6))
        self.assertAlmostEqual(found["spread"], 0.02)

    def test_one_lucky_process_is_a_large_spread(self):
        self.assertAlmostEqual(figures.summary(runs(1.0, 1.5, 1.6), "seconds")["spread"], 0.5)

    def test_other_values(self):
        self.assertEqual(figures.summary([{"planned": {"temporary": 8}}], "temporary")["best"], 8)
        compiled = [{"compile_seconds": seconds} for seconds in (2.0, 4.0, 3.0)]
        self.assertEqual(figures.summary(compiled, "compile_seconds")["median"], 3.0)
        self.assertAlmostEqual(figures.summary(compiled, "compile_seconds")["spread"], 0.5)


class Share(unittest.TestCase):
    def test_peak_is_that_of_the_same_process(self):
        slow, fast = runs(1.5, median=2.0, gflop=60.0, sustained_gflops=50.0), runs(1.0, gflop=60.0, sustained_gflops=100.0)
        self.assertAlmostEqual(figures.share(slow + fast, "peak"), 0.6)  # in each of them, whatever the clock

    def test_bandwidth_is_that_of_the_same_process(self):
        moved = runs(0.5, copy_gbytes=20.0, gbyte=5.0)
        self.assertAlmostEqual(figures.share(moved, "memory"), 0.5)

    def test_nothing_known(self):
        self.assertIsNone(figures.share(runs(1.0), "peak"))
        self.assertIsNone(figures.share(runs(1.0, gflop=1.0, sustained_gflops=1.0), "none"))


class Settled(unittest.TestCase):
    def settled(self, own, jax, torch=(9.0,)):
        return figures.is_settled(row(), {"own": own, "jax a": jax, "torch": runs(*torch)}, 3, 0.05)

    def test_agreement(self):
        self.assertTrue(self.settled(runs(1.0, 1.0, 1.04), runs(2.0, 2.0, 2.0)))

    def test_spread_of_tow_or_of_the_best_peer(self):
        self.assertFalse(self.settled(runs(1.0, 1.1, 1.1), runs(2.0, 2.0, 2.0)))
        self.assertFalse(self.settled(runs(1.0, 1.0, 1.0), runs(2.0, 2.2, 2.2)))

    def test_a_peer_that_is_far_behind_decides_nothing(self):
        results = {"own": runs(1.0), "jax a": runs(2.0), "jax b": runs(2.4), "torch": runs(2.6)}
        self.assertEqual(figures.contenders(row(), results), ["own", "jax a", "jax b"])
        self.assertTrue(self.settled(runs(1.0, 1.0, 1.0), runs(2.0, 2.0, 2.0), torch=(9.0, 18.0)))

    def test_disturbed_runs_do_not_settle_a_row(self):
        disturbed = runs(1.5, 1.5, 1.5, others=0.3)
        self.assertFalse(self.settled(disturbed, runs(2.0, 2.0, 2.0)))
        self.assertTrue(self.settled(disturbed + runs(1.5, 1.5, 1.5), runs(2.0, 2.0, 2.0)))

    def test_a_slow_clock_does_not_settle_a_row(self):
        self.assertFalse(self.settled(runs(1.6, 1.6, 1.6, calibration=62.0), runs(2.0, 2.0, 2.0)))

    def test_bytes_and_failures_are_settled(self):
        self.assertTrue(figures.is_settled(row(value="temporary"), {"own": [{}]}, 3, 0.05))
        self.assertTrue(figures.is_settled(row(), {"own": "exit status 1", "torch": runs(1.0, 2.0, 3.0)}, 3, 0.05))


class Quiet(unittest.TestCase):
    def test_nobody_else(self):
        found = figures.conditions({"own": runs(1.0, 1.0), "jax a": runs(2.0), "torch": "not installed"})
        self.assertTrue(found["quiet"])
        self.assertEqual((found["runs"], found["disturbed"]), (3, 0))

    def test_others_steal_and_clock(self):
        for trouble in ({"others": 0.2}, {"steal": 0.06}, {"others": 0.03, "steal": 0.03}, {"calibration": 90.0}):
            found = figures.conditions({"own": runs(1.0), "torch": runs(2.0, **trouble)})
            self.assertEqual((found["quiet"], found["disturbed"]), (False, 1), trouble)
            self.assertIn("**The machine was not quiet**: 1 of 2 processes", report.quiet_sentence(found))

    def test_a_neighbor_on_the_same_cores(self):
        slowed = {"own": runs(1.0, calibration=62.0, calibration_best=100.0), "torch": runs(2.0, calibration=63.0)}
        found = figures.conditions(slowed)
        self.assertEqual((found["quiet"], found["disturbed"]), (False, 0))
        self.assertIn("62 to 63 GFLOP/s, in the median at 62, and in its best millisecond at 100", report.quiet_sentence(found))

    def test_ticks_of_the_allowed_cpus(self):
        stat = "cpu 1 2 3 4\ncpu0 100 10 20 500 9 1 2 7 0 0\ncpu1 1 1 1 1 1 1 1 1 1 1\ncpu10 5 0 0 0\nintr 12 0\n"
        self.assertEqual(common.cpu_ticks(stat, {0}), (133, 7))
        self.assertEqual(common.cpu_ticks(stat, {1, 10}), (10, 1))

    def test_shares_leave_out_this_process_and_what_counters_cannot_tell(self):
        ticks = round(1 / common.TICK)
        found = common.shares((0, 0), (3 * ticks, ticks), 1.0, 2.0, 2)  # 3 s busy, of which 1 s own, of 4 s
        error = 2 * common.TICK * 2 / 4
        self.assertAlmostEqual(found["others"], 0.5 - error)
        self.assertAlmostEqual(found["steal"], 0.25 - error)
        self.assertEqual(common.shares((0, 0), (2, 1), 0.0, 1.0, 1), {"others": 0.0, "steal": 0.0})


class Evaluate(unittest.TestCase):
    def test_ratio_to_the_best_peer(self):
        results = {"own": runs(1.0, median=1.2, gflop=60.0, sustained_gflops=100.0), "jax a": runs(4.0),
                   "jax b": runs(2.0, median=2.5), "torch": runs(2.2, median=2.4)}
        found = figures.evaluate(row(), results)
        self.assertAlmostEqual(found["ratio"], 0.5)
        self.assertAlmostEqual(found["ratio_of_medians"], 0.5)
        self.assertAlmostEqual(found["share"], 0.5)
        self.assertEqual(found["peers"]["JAX"]["best"], 2.0)
        self.assertIn("| 1 | work | 1000 ms | 2000 ms | 2200 ms |  | 0.5 | 0.5 | 0 % | 50 % |", report.table([found]))

    def test_a_peer_of_some_rows_has_a_column(self):
        found = [figures.evaluate(row(peers={library: ["a"]}), {"own": runs(1.0), "a": runs(2.0)}) for library in ("JAX", "llama.cpp")]
        self.assertIn("| PyTorch compile | llama.cpp | Tow /", report.table(found))
        self.assertIn("| 1 | work | 1000 ms |  |  |  | 2000 ms | 0.5 |", report.table(found))
        self.assertNotIn("llama.cpp", report.table(found[:1]))

    def test_without_peers(self):
        found = figures.evaluate(row(), {"own": runs(1.0, 1.2), "torch": "torch not installed"})
        self.assertIsNone(found["ratio"])
        self.assertAlmostEqual(found["spread"], 0.1)
        self.assertIn("torch: torch not installed", found["notes"])
        self.assertIn("row 1: no peer to compare with", found["notes"])
        self.assertIn("| 1 | work | 1000 ms | not measured | not measured |  |  |  | 10 % |  |", report.table([found]))

    def test_bytes_have_neither_spread_nor_share(self):
        own = [{"planned": {"temporary": 2**20}, "gflop": 1.0, "sustained_gflops": 1.0, "median_seconds": 1.0}]
        found = figures.evaluate(row(value="temporary", peers={"JAX": ["jax"]}), {"own": own, "jax": own})
        self.assertIn("| 1 | work | 1.0 MiB | 1.0 MiB |  |  | 1 | 1 |  |  |", report.table([found]))


class Merge(unittest.TestCase):
    def piece(self, found, errors=None, **about):
        return {"about": {"cpu": "a", "threads": 2, "system": "s", "commit": "c", "peak_isa": "AVX2", "peak_gflops": 100.0,
                          "describe": "d", "versions": {"jax": "1"}, **about}, "runs": found, "errors": errors or {}}

    def test_runs_are_added(self):
        results, about = figures.merge([
            ("x", self.piece({"own": runs(1.0)}, {"jax": "over 300 s"})),
            ("y", self.piece({"own": runs(2.0), "jax": runs(3.0)}, {"torch": "gone"}, versions={"torch": "2"},
                             peak_gflops=110.0))])
        self.assertEqual([run["min_seconds"] for run in results["own"]], [1.0, 2.0])
        self.assertEqual([run["min_seconds"] for run in results["jax"]], [3.0])
        self.assertEqual(results["torch"], "gone")
        self.assertEqual((about["versions"], about["peak_gflops"]), ({"jax": "1", "torch": "2"}, 110.0))

    def test_peers_have_no_commit(self):
        peers = self.piece({"jax": runs(2.0)}, commit="d", peak_isa=None, peak_gflops=None)
        results, about = figures.merge([("x", peers), ("y", self.piece({"own": runs(1.0)}))])
        self.assertEqual((sorted(results), about["commit"], about["peak_gflops"]), (["jax", "own"], "c", 100.0))

    def test_other_machines_commits_and_versions_are_refused(self):
        for about in ({"commit": "d"}, {"cpu": "b"}, {"threads": 1}, {"versions": {"jax": "2"}}):
            with self.assertRaisesRegex(ValueError, f"{next(iter(about.get('versions', about)))} is .* y"):
                figures.merge([("x", self.piece({})), ("y", self.piece({}, **about))])


class Rows(unittest.TestCase):
    def test_each_row_says_what_is_known(self):
        for one in rows.ROWS:
            self.assertIn(one.value, ("seconds", "compile_seconds", "temporary"))
            self.assertTrue(set(one.peers) <= {"Tow", *report.LIBRARIES}, one)

    def test_libraries_of_commands(self):
        for one in rows.ROWS:
            self.assertEqual(running.library_of(one.tow), "tow")
            for library, commands in one.peers.items():
                expected = {"Tow": "tow", "JAX": "jax", "llama.cpp": "llama"}.get(library, "torch")
                self.assertEqual({running.library_of(command) for command in commands}, {expected})

    def test_names_and_numbers_are_no_second_row(self):
        seen = [(one.number, one.tow, one.value) for one in rows.ROWS]
        self.assertEqual(len(seen), len(set(seen)))


if __name__ == "__main__":
    unittest.main()
