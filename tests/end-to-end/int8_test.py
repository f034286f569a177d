#!/usr/bin/env python3
"""A job whose workers send changes as Int8: a byte a value, and a worker that is killed costs no round.

Usage: int8_test.py BIN     BIN is the folder of the built programs.
"""
import struct
import unittest

from runs import RunCase

AVERAGING = {"strategy: Moshpit, groupSize: 2, interval: {steps: 20}": "strategy: AllReduce, compression: Int8, interval: {steps: 20}"}
ELEMENTS = 24   # its place in the file that trainer and agent share (docs/trainer-link.md, section 4)
ROUNDS = 15     # that are weighed, and that are seen after a kill


class Int8Test(RunCase):
    def averagings(self, worker):
        return self.metric(worker, "crowdsurf_averaging_delivered_total")

    def wait_for_rounds(self, worker):
        wanted = self.averagings(worker) + ROUNDS
        self.wait_until(lambda: self.averagings(worker) >= wanted)

    def test_changes_travel_as_a_byte_a_value_though_a_worker_is_killed(self):
        self.write_endless(**AVERAGING)
        process = self.start()
        seen = self.wait_for_all(process)
        self.wait_for_rounds("e2e-0-1")   # the views of the start are over
        with open(self.link("e2e-0-1") / "tensors", "rb") as file:
            file.seek(ELEMENTS)
            elements, = struct.unpack("<Q", file.read(8))
        before = self.averagings("e2e-0-1"), self.metric("e2e-0-1", "crowdsurf_tensor_sent_bytes_total")
        self.wait_for_rounds("e2e-0-1")
        rounds = self.averagings("e2e-0-1") - before[0]
        sent = self.metric("e2e-0-1", "crowdsurf_tensor_sent_bytes_total") - before[1]
        # One of four sends 3/4 of its values as inputs, and its quarter to three: 1.5 bytes a value, and 3 as Float16. One round
        # more may be under way.
        self.assertLess(sent / elements, 1.5 * 1.1 * (rounds + 1))
        self.kill_worker("e2e-1-1")
        seen += self.wait_for(process, "e2e-1-2 trains")
        self.wait_for_rounds("e2e-1-2")
        seen = self.end_job(process, seen)
        rounds = self.report()["rounds"]
        self.assertEqual((rounds["hash_mismatches"], rounds["failed"]), (0, 0), seen)
        self.assertLess(self.report()["heldout_bits_per_char"], 5)
        self.nothing_is_left()


if __name__ == "__main__":
    unittest.main()
