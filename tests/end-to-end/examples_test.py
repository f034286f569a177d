#!/usr/bin/env python3
"""The examples in PyTorch beside digits, each as a job of two workers by its own manifest. What a job learns is judged by a
figure that no untrained model reaches, and no worker without the other. Needs Debian's PyTorch, scikit-learn and
fortunes, else skipped.

Usage: examples_test.py BIN     BIN is the folder of the built programs.
"""
import os
import pathlib
import re
import sys
import unittest

from runs import PATIENCE, RunCase

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "deploy" / "examples"
sys.path[:0] = [str(ROOT / "python"), str(EXAMPLES)]
try:
    import characters
    import crowdsurf
    import digits
    import federated
    import lora
    import subnets
    import torch
    TEXT = characters.read(characters.FORTUNES)
except (ImportError, OSError) as error:
    print(f"skipped: needs Debian's python3-torch, python3-sklearn and fortunes ({error})")
    sys.exit(77)

ENVIRONMENT = {**os.environ, "PATH": f"/usr/bin:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "python")}
WORKERS = ("e2e-0-1", "e2e-1-1")
UNIGRAM_BITS = 4.776   # held-out bits per character of fortunes without a look at the text before (docs/trainer.md)


class ExamplesTest(RunCase):
    def run_example(self, name, enough, **replace):
        """The tensors that the job leaves: both workers had its averages, and it has trained `enough` samples."""
        manifest = (EXAMPLES / f"{name}-pytorch.yaml").read_text()
        edits = {f"{{name: {name}}}": "{name: e2e}", "replicas: 4": "replicas: 2", "intervalSeconds: 30": "intervalSeconds: 1",
                 **replace}
        for old, new in edits.items():
            self.assertIn(old, manifest)
            manifest = manifest.replace(old, new)
        self.job.write_text(re.sub(r"samples: \d+", "samples: 1000000000", manifest))
        process = self.start(env=ENVIRONMENT, cwd=ROOT)
        seen = self.wait_for_each(process, [f"{worker} trains" for worker in WORKERS])
        for worker in WORKERS:
            self.wait_until(lambda: self.metric(worker, "crowdsurf_averaging_delivered_total") >= 3)
        self.wait_until(lambda: self.metric(WORKERS[0], "crowdsurf_averaging_job_samples") >= enough, 5 * PATIENCE)
        output = self.end_job(process, seen)
        report = self.report()
        self.assertEqual(report["rounds"]["hash_mismatches"], 0, output)
        self.assertGreater(report["rounds"]["completed"], 0, output)
        self.nothing_is_left()
        return crowdsurf.load_model(self.state / "checkpoint" / "model.safetensors")

    def said(self, pattern):
        """What each worker's log says that matches; every worker says it."""
        found = {worker: re.findall(pattern, (self.state / "workers" / worker / "trainer.log").read_text())
                 for worker in WORKERS}
        self.assertTrue(all(found.values()), found)
        return found

    def test_a_transformer_learns_more_than_the_frequencies_of_characters(self):
        model, (_, held_out) = characters.Transformer(), characters.windows(TEXT)
        self.assertGreater(characters.bits(model, *held_out), UNIGRAM_BITS)
        model.load_state_dict(self.run_example("characters", 4000))
        reached = characters.bits(model, *held_out)
        print(f"{reached:.3f} bits per character")
        self.assertLess(reached, UNIGRAM_BITS - 0.5)

    def test_adapters_learn_another_text_and_the_base_stays_as_it_is(self):
        tensors = self.run_example("lora", 3000, **{"/base/base.pt]": "/base/base.pt, --base-steps, '100']"})
        file = self.state / "checkpoint" / "base.pt"
        base, (_, held_out) = lora.load_base(file, 0), lora.windows(lora.python_source())
        plain = lora.bits(base, *held_out)
        names = set(base.state_dict())
        model = lora.adapt(base)
        adapters = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
        self.assertEqual(set(tensors), adapters, "only the adapters are averaged")
        self.assertEqual({name.replace(".layer", "") for name, _ in model.named_parameters()} - adapters, names)
        before = lora.fingerprint(model)
        self.assertEqual(lora.bits(model, *held_out), plain, "adapters that have not trained change nothing")
        model.load_state_dict(tensors, strict=False)
        reached = lora.bits(model, *held_out)
        print(f"{reached:.3f} bits per character of Python, {plain:.3f} by the base alone")
        self.assertLess(reached, plain - 0.5)
        # Each worker says it after the base is read, and again at its end.
        for worker, prints in self.said(r"base (\w{16})").items():
            self.assertEqual(prints, [before, before], worker)

    def test_sites_learn_the_digits_that_they_have_never_seen(self):
        model = digits.network()
        train, (images, labels) = digits.digits()
        shards = [set(federated.private_shard(*train, site, 2)[1].tolist()) for site in (0, 1)]
        # By a model that is right in all that its site can know.
        alone = max(float(sum(labels == digit for digit in shard).float().mean()) for shard in shards)
        self.assertLess(alone, 0.65)
        model.load_state_dict(self.run_example("federated", 40000, **{"federated.py]": "federated.py, --sites, '2']"}))
        reached = digits.accuracy(model, images, labels)
        print(f"accuracy {reached:.4f} of all digits; a site alone has {alone:.4f} at most")
        self.assertGreater(reached, alone + 0.1)
        sites = {found[0] for found in self.said(r"site (\d) has \d+ pictures").values()}
        self.assertEqual(sites, {"0", "1"})

    def test_sub_networks_of_half_the_units_make_one_wide_network(self):
        model = subnets.network(256)
        model.load_state_dict(self.run_example("subnets", 40000))
        reached = digits.accuracy(model, *digits.digits()[1])
        print(f"accuracy {reached:.4f}")
        self.assertGreater(reached, 0.7)
        for worker, ((deals, smallest),) in self.said(r"(\d+) sub-networks, the smallest of (\d+) of 256").items():
            self.assertEqual(int(smallest), 128, worker)
            self.assertGreater(int(deals), 3, f"{worker}: the units are dealt anew at each averaging")


if __name__ == "__main__":
    unittest.main()
