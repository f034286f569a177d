#!/usr/bin/env python3
"""A job that averages gradients: equal parameters at all workers after each step, to the bit, also after kills.

Usage: gradients_test.py BIN     BIN is the folder of the built programs.
"""
import json
import unittest

from equal_bits import AVERAGING, SEEN, EqualBitsCase


class GradientsTest(EqualBitsCase):
    def test_workers_are_equal_after_each_step_though_one_is_killed(self):
        self.write_endless(**AVERAGING)
        process = self.start()
        seen = self.wait_for_all(process)
        first = self.expect_equal_bits(self.names([1, 1, 1, 1]))
        self.kill_worker("e2e-1-1")
        seen += self.wait_for(process, "e2e-1-2 trains")
        last = self.expect_equal_bits(self.names([1, 2, 1, 1]))   # Adam's moments came with the parameters
        self.assertGreater(last, first)
        seen = self.end_job(process, seen)
        self.assertEqual(self.report()["rounds"]["hash_mismatches"], 0, seen)
        self.assertTrue((self.state / "checkpoint" / "model.safetensors").exists(), seen)
        self.nothing_is_left()

    def test_all_go_on_from_a_checkpoint(self):
        self.write_endless(**AVERAGING)
        process = self.start()
        seen = self.wait_for_all(process)
        self.wait_until(lambda: any((self.state / "checkpoint").glob("*")) and
                        self.expect_equal_bits(self.names([1, 1, 1, 1]), 1) > 30)
        for worker in self.names([1, 1, 1, 1]):
            self.kill_worker(worker)
        seen += self.wait_for_each(process, [f"e2e-{index}-2 trains" for index in range(4)])
        self.assertGreater(self.expect_equal_bits(self.names([2, 2, 2, 2])), SEEN + 10, "it begins anew")
        self.end_job(process, seen)
        self.nothing_is_left()

    def test_a_model_is_left_and_it_has_learnt(self):
        self.write(self.command, **{**AVERAGING, "samples: 80000": "samples: 400000"})
        code, output = self.run_job()
        self.assertEqual(code, 0, output)
        report = self.report()
        self.assertGreaterEqual(report["samples"], 400000)
        self.assertLess(report["heldout_bits_per_char"], 5, json.dumps(report))
        self.nothing_is_left()


if __name__ == "__main__":
    unittest.main()
