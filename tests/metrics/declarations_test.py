#!/usr/bin/env python3
"""The sources' metrics are those of docs/metrics.md, and planted faults in a small tree are found."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import declarations  # noqa: E402  (beside this file)

GOOD = 'r.AddCounter("crowdsurf_a_total", "Things, by reason.", {{"reason", why}});'
# What the planted file says, and a word of the complaint.
FAULTS = {
    'r.AddCounter(kName, "Things.");': "are literals",
    'r.AddCounter("crowdsurf_b_total", "things");': "is no sentence",
    'r.AddCounter("crowdsurf_b_count", "Things.");': "end in _total",
    'r.AddGauge("crowdsurf_b_total", "Things.");': "end in _total",
    'r.AddHistogram("crowdsurf_b", "Things.", {1, 2});': "ends in its unit",
    'r.AddCounter("crowdsurf_a_total", "Things, by reason.", {{"reason", other}});': "is declared 2 times",
    'r.AddCounter("crowdsurf_b_total", "Things.").Add();': "is not there until it counts",
    'r.AddGauge("crowdsurf_b", "Things.", unknown);': "cannot be read",
}


def complaints(*lines):
    with tempfile.TemporaryDirectory() as folder:
        room = pathlib.Path(folder) / "worker"
        room.mkdir()
        (room / "x.cc").write_text("\n".join(lines))
        found, violations = declarations.declarations(pathlib.Path(folder))
        return found, violations + list(declarations.judge(found))


class Declarations(unittest.TestCase):
    def test_a_good_one_is_read_whole(self):
        found, violations = complaints(GOOD)
        self.assertEqual([], violations)
        self.assertEqual([("crowdsurf_a_total", "counter", "Things, by reason.", ["reason"], "worker/x.cc")], found)

    def test_planted_faults_are_found(self):
        for line, word in FAULTS.items():
            with self.subTest(line):
                self.assertIn(word, "\n".join(complaints(GOOD, line)[1]))

    def test_a_test_that_asks_for_what_nobody_declares_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            room = pathlib.Path(folder) / "tests"
            room.mkdir()
            (room / "x_test.cc").write_text('EXPECT_EQ(r.Value("crowdsurf_a_total"), 0);\nr.Value("crowdsurf_gone_total");')
            (room / "y_test.py").write_text("self.metric('e2e-0-1', 'crowdsurf_a_seconds_count')\n'crowdsurf_no_such_total'")
            (room / "own_test.cc").write_text('r.AddCounter("crowdsurf_own_total", "x"); r.Value("crowdsurf_own_total");')
            names = {"crowdsurf_a_total", "crowdsurf_a_seconds"}
            self.assertEqual(["tests/x_test.cc:2: asks for crowdsurf_gone_total, which nobody declares"],
                             list(declarations.asked_in_vain(pathlib.Path(folder), names)))

    def test_the_page_lists_what_the_sources_declare(self):
        done = subprocess.run([sys.executable, "-B", HERE / "declarations.py"], capture_output=True, text=True)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
