#!/usr/bin/env python3
"""What the examples in deploy/examples are made of, without a job. Needs PyTorch, scikit-learn and fortunes, else skipped."""
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "deploy" / "examples")]
try:
    import torch

    import characters
    import crowdsurf
    import digits
    import federated
    import lora
    import subnets
    TEXT = characters.read(characters.FORTUNES)[:50000]
except (ImportError, OSError) as error:
    print(f"skipped: needs Debian's python3-torch, python3-sklearn and fortunes ({error})")
    sys.exit(77)


class CharactersTest(unittest.TestCase):
    def test_windows_are_text_and_what_follows_each_character_of_it(self):
        (inputs, targets), (held_out, _) = characters.windows(TEXT)
        said = ["".join(map(chr, row.tolist())) for row in (inputs[5], targets[5], held_out[0])]
        self.assertEqual(said[0][1:], said[1][:-1])
        self.assertIn(said[0] + said[1][-1], TEXT)
        self.assertTrue(TEXT.startswith(said[2]))
        self.assertEqual(len(inputs) + len(held_out), (len(TEXT) - 1) // characters.WINDOW)

    def test_a_guess_does_not_see_what_comes_after(self):
        torch.manual_seed(1)
        model = characters.Transformer()
        first = torch.randint(characters.SYMBOLS, (1, characters.WINDOW))
        other = first.clone()
        other[0, 40:] = (other[0, 40:] + 1) % characters.SYMBOLS
        one, two = model(first), model(other)
        torch.testing.assert_close(one[0, :40], two[0, :40])
        self.assertGreater(float((one[0, 40:] - two[0, 40:]).abs().max()), 0.01)


class LoraTest(unittest.TestCase):
    def test_only_adapters_train_and_at_first_they_change_nothing(self):
        torch.manual_seed(2)
        model = characters.Transformer()
        codes = torch.randint(characters.SYMBOLS, (2, 2, 20))
        plain = model(codes[0])
        lora.adapt(model, rank=4)
        torch.testing.assert_close(model(codes[0]), plain)
        before = lora.fingerprint(model)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1)
        for _ in range(2):   # the first step moves the outer matrices, which were zero
            optimizer.zero_grad()
            lora.loss_of(model, *codes).backward()
            optimizer.step()
        self.assertEqual(lora.fingerprint(model), before)
        self.assertGreater(float((model(codes[0]) - plain).abs().max()), 0.01)
        moved = {name for name, p in model.named_parameters() if p.grad is not None}
        self.assertEqual(len(moved), 2 * 4 * 2, "two matrices, of four layers, in two blocks")
        with torch.no_grad():
            model.blocks[0].up.layer.bias += 1
        self.assertNotEqual(lora.fingerprint(model), before)

    def test_a_base_that_is_there_is_not_replaced_by_a_worker_that_is_done_later(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "volume", "base.pt")
            first = lora.load_base(file, 1)
            kept = file.read_bytes()
            with mock.patch.object(pathlib.Path, "exists", return_value=False):   # it began before the file was there
                second = lora.load_base(file, 2)
            self.assertEqual(file.read_bytes(), kept)
            self.assertEqual([path.name for path in file.parent.iterdir()], ["base.pt"])
        for name, value in first.state_dict().items():
            self.assertTrue(torch.equal(second.state_dict()[name], value), name)


class FederatedTest(unittest.TestCase):
    def test_sites_share_no_picture_and_have_few_digits(self):
        (images, labels), _ = digits.digits()
        numbers = torch.arange(len(labels))
        shards = [federated.private_shard(numbers, labels, site, 4) for site in range(4)]
        self.assertEqual(sorted(torch.cat([shard[0] for shard in shards]).tolist()), numbers.tolist())
        for _, own in shards:
            self.assertLessEqual(len(set(own.tolist())), 4)

    def test_a_replacement_stands_at_the_site_of_the_worker_before(self):
        for worker, site in (("my-job-7-1", 7), ("my-job-7-12", 7), ("my-job-0-3", 0)):
            with mock.patch.dict(os.environ, CROWDSURF_WORKER=worker):
                self.assertEqual(federated.site_of_worker(), site)


class SubnetsTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)
        self.net = subnets.network(12)
        self.vector = torch.nn.utils.parameters_to_vector(self.net.parameters()).detach()
        self.images = torch.rand(5, 1, 8, 8)
        offset, self.tensors = 0, subnets.tensors(self.net)
        for tensor in self.tensors:   # as the agent places them
            tensor.offset = offset
            offset += 4 * tensor.elements

    def outputs(self, sets):
        subnet = crowdsurf.Subnet(self.tensors, sets)
        parts = {name: torch.from_numpy(values) for name, values in subnet.gather(self.vector.numpy()).items()}
        return subnets.forward(parts, [subnet.scale(group) for group in (0, 1)], self.images)

    def test_the_tensors_are_those_of_the_network(self):
        self.assertEqual([(tensor.name, tensor.shape) for tensor in self.tensors],
                         [(name, tuple(value.shape)) for name, value in self.net.state_dict().items()])

    def test_with_all_units_it_is_the_network(self):
        torch.testing.assert_close(self.outputs({}), self.net(self.images))

    def test_a_sub_network_is_the_network_in_which_the_other_units_say_nothing(self):
        sets = {0: (1, 4, 5), 1: (0, 2, 3, 11)}
        masks = [torch.zeros(12).index_fill(0, torch.tensor(units), 12 / len(units)) for units in sets.values()]
        x = self.net[2](self.net[1](self.images.flatten(1))) * masks[0]
        x = self.net[4](self.net[3](x)) * masks[1]
        torch.testing.assert_close(self.outputs(sets), self.net[5](x))

    def test_a_step_changes_the_own_units_and_what_all_share(self):
        sets = {0: (1, 4, 5), 1: (0, 2, 3, 11)}
        before = self.vector.clone()
        subnet = crowdsurf.Subnet(self.tensors, sets)
        losses = [subnets.train(subnet, self.vector.numpy(), self.images, torch.arange(5), 0.1) for _ in range(5)]
        self.assertLess(losses[-1], losses[0])
        torch.nn.utils.vector_to_parameters((self.vector != before).float(), self.net.parameters())
        changed = dict(self.net.named_parameters())
        rows = {name: set(value.flatten(1).sum(1).nonzero().flatten().tolist()) if value.dim() == 2 else
                set(value.nonzero().flatten().tolist()) for name, value in changed.items()}
        self.assertLessEqual(rows["1.weight"] | rows["1.bias"], set(sets[0]))
        self.assertLessEqual(rows["3.weight"] | rows["3.bias"], set(sets[1]))
        self.assertLessEqual(set(changed["3.weight"].sum(0).nonzero().flatten().tolist()), set(sets[0]))
        self.assertEqual(rows["5.bias"], set(range(10)))


if __name__ == "__main__":
    unittest.main()
