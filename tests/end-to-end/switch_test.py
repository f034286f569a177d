#!/usr/bin/env python3
"""An edit of the manifest while its job runs: another strategy, by a new view and one full average, and no round lost.

Usage: switch_test.py BIN     BIN is the folder of the built programs.
"""
import json
import unittest
import urllib.request

from runs import RunCase

WORKERS = [f"e2e-{index}-1" for index in range(4)]


class SwitchTest(RunCase):
    def summaries(self):
        return [json.load(urllib.request.urlopen(f"http://{self.endpoints(worker)['http']}/summary", timeout=10))
                for worker in WORKERS]

    def edit_strategy(self, process, strategy):
        """Returns what the run said until it took the edit."""
        self.edit(self.job.read_text().replace(self.strategy, strategy))
        self.strategy = strategy
        return self.wait_for(process, f"the manifest was edited: strategy {strategy} from the next view on")

    def settled(self, epoch, radices):
        """All train in one view after `epoch` of these radices."""
        views = [summary["view"] for summary in self.summaries()]
        return (all(view and view["epoch"] > epoch and view["members"] == 4 and view["radices"] == radices
                    for view in views) and len({view["hash"] for view in views}) == 1)

    def total(self, name):
        return sum(self.metric(worker, name) for worker in WORKERS)

    def test_moshpit_then_gossip_then_all_reduce_without_a_failed_round(self):
        self.strategy = "Moshpit"
        self.write_endless()
        process = self.start()
        seen = self.wait_for_all(process)
        self.wait_until(lambda: self.settled(0, [2, 2]))
        self.assertEqual(self.total("crowdsurf_mix_exchanges_total"), 0, "nobody exchanges in pairs under Moshpit")

        epoch, delivered = self.epoch(), self.total("crowdsurf_averaging_delivered_total")
        seen += self.edit_strategy(process, "Gossip")
        self.wait_until(lambda: self.epoch() > epoch and self.total("crowdsurf_mix_exchanges_total") >= 8)
        # The view begins with one full average of all. Not all are given it at the same moment.
        self.wait_until(lambda: self.total("crowdsurf_averaging_delivered_total") >= delivered + 4)

        epoch, exchanges = self.epoch(), self.total("crowdsurf_mix_exchanges_total")
        self.assertGreater(exchanges, 0)
        seen += self.edit_strategy(process, "AllReduce")
        self.wait_until(lambda: self.settled(epoch, [4]))
        delivered = self.total("crowdsurf_averaging_delivered_total")
        self.wait_until(lambda: self.total("crowdsurf_averaging_delivered_total") >= delivered + 8)

        seen = self.end_job(process, seen)
        report = self.report()
        self.assertEqual((report["rounds"]["failed"], report["rounds"]["hash_mismatches"]), (0, 0), seen)
        self.assertEqual(report["workers"], {"min": 4, "max": 4}, "nobody was replaced")
        self.nothing_is_left()

    def epoch(self):
        return max(summary["view"]["epoch"] for summary in self.summaries() if summary["view"])

    def test_an_edit_that_cannot_be_taken_is_said_and_changes_nothing(self):
        self.strategy = "Moshpit"
        self.write_endless()
        process = self.start()
        self.wait_for_all(process)
        self.edit(self.job.read_text().replace("Moshpit", "Mosh"))
        self.wait_for(process, "the edit is not taken: .*spec.averaging.strategy")
        self.edit(self.job.read_text().replace("Mosh", "Moshpit, roles: [Parameter, Buffer]"))
        self.wait_for(process, "the edit is not taken: averaging.roles may not change")
        self.interrupt(process)
        self.nothing_is_left()

    def test_an_edit_that_was_read_at_half_is_read_again(self):
        """The file system's clock ticks in milliseconds: the whole of it may have the time of its half."""
        self.strategy = "Moshpit"
        self.write_endless()
        process = self.start()
        self.wait_for_all(process)
        whole = self.job.read_text().replace("Moshpit", "AllReduce")
        moment = self.job.stat().st_mtime_ns + 10**9
        self.edit(whole[:whole.index("AllReduce") + 3], moment)
        self.wait_for(process, "the edit is not taken: ")
        self.edit(whole, moment)
        self.wait_for(process, "the manifest was edited: strategy AllReduce from the next view on")
        self.interrupt(process)
        self.nothing_is_left()


if __name__ == "__main__":
    unittest.main()
