#!/usr/bin/env python3
"""A job that averages gradients: equal parameters at all workers after each step, to the bit, also after kills.

Usage: gradients_test.py BIN     BIN is the folder of the built programs. The parameters are read where the trainers
leave them: inbox 0 of the file that each shares with its agent (docs/trainer-link.md, sections 4 and 11).
"""
import hashlib
import json
import struct
import unittest

from runs import RunCase

AVERAGING = {"strategy: Moshpit, groupSize: 2, interval: {steps: 20}":
             "strategy: AllReduce, what: Gradients, globalBatch: 4096, overlap: Blocking, compression: None"}
STEP, ELEMENTS, INBOX_0 = 0xB90, 24, 72
SEEN = 15   # steps at which all workers are compared


class GradientsTest(RunCase):
    def parameters(self, worker):
        """(step, hash of its parameters) of a worker; None: it takes a step just now, or has taken none."""
        try:
            with open(self.link(worker) / "tensors", "rb") as file:
                def word(at):
                    file.seek(at)
                    return struct.unpack("<Q", file.read(8))[0]

                elements, inbox, step = word(ELEMENTS), word(INBOX_0), word(STEP)
                values = []
                for _ in range(2):   # the step is written right after the parameters: a new one shows by the second look
                    file.seek(inbox)
                    values.append(file.read(4 * elements))
                return (step, hashlib.sha256(values[0]).hexdigest()) if step and step == word(STEP) and values[0] == values[1] else None
        except (OSError, ValueError, struct.error):
            return None   # it is being replaced

    def expect_equal_bits(self, workers, seen=SEEN):
        """Until all of them were seen at so many steps. Returns the last step."""
        found, last = {}, 0

        def look():
            nonlocal last
            for worker in workers:
                got = self.parameters(worker)
                if got is not None:
                    last = max(last, got[0])
                    found.setdefault(got[0], {})[worker] = got[1]
            for step, hashes in found.items():
                self.assertEqual(len(set(hashes.values())), 1, f"step {step}: {hashes}")
            return sum(len(hashes) == len(workers) for hashes in found.values()) >= seen

        self.wait_until(look)
        return last

    def names(self, incarnations):
        return [f"e2e-{index}-{incarnation}" for index, incarnation in enumerate(incarnations)]

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
