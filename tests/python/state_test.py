#!/usr/bin/env python3
"""What a PyTorch worker packs and reads: an optimizer's state, and the model that a job leaves. Needs PyTorch, else skipped."""
import json
import pathlib
import sys
import unittest

import client_case
import numpy

try:
    import torch
except ImportError:
    print("skipped: needs PyTorch (Debian: python3-torch)")
    sys.exit(77)
import crowdsurf
from crowdsurf import state


def linear():
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))


class StateTest(unittest.TestCase):
    def test_every_kind_of_optimizer_comes_back_the_same(self):
        for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop):
            with self.subTest(kind):
                net = linear()
                optimizer = kind(net.parameters(), lr=0.1)
                net(torch.rand(5, 3)).sum().backward()
                optimizer.step()
                before = optimizer.state_dict()
                after = state.unpack(state.pack(before))
                torch.testing.assert_close(after["state"], before["state"])
                kind(net.parameters(), lr=0.5).load_state_dict(after)

    def test_bytes_that_are_cut_short_are_no_state(self):
        net = linear()
        optimizer = torch.optim.Adam(net.parameters())
        net(torch.rand(5, 3)).sum().backward()
        optimizer.step()
        whole = state.pack(optimizer.state_dict())
        for length in range(0, len(whole), 7):
            self.assertRaises(ValueError, state.unpack, whole[:length])

    def test_types_of_tensors_come_back_and_others_are_refused(self):
        values = {"flag": torch.tensor([True, False]), "half": torch.ones(3).half(), "none": torch.empty(0, 2), "one": torch.tensor(3)}
        for name, value in state.unpack(state.pack(values)).items():
            self.assertTrue(torch.equal(value, values[name]) and value.dtype == values[name].dtype, name)
        self.assertRaises(TypeError, state.pack, torch.ones(1, dtype=torch.complex64))


class ModelTest(client_case.ClientCase):
    """The format as its page describes it: u64 length of the header, JSON, the tensors' bytes."""

    HEADER = {"__metadata__": {"job": "digits"}, "w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
              "n": {"dtype": "I64", "shape": [], "data_offsets": [16, 24]}}
    VALUES = numpy.arange(4, dtype="<f4").tobytes() + (7).to_bytes(8, "little")

    def write(self, header, values=VALUES, length=None):
        path = pathlib.Path(self.folder.name, "model.safetensors")
        text = json.dumps(header).encode()
        path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + values)
        return path

    def test_a_model_comes_back_by_name(self):
        model = crowdsurf.load_model(self.write(self.HEADER))
        self.assertEqual(sorted(model), ["n", "w"])
        torch.testing.assert_close(model["w"], torch.arange(4.0).reshape(2, 2))
        self.assertEqual((int(model["n"]), model["n"].shape), (7, torch.Size([])))

    def test_files_that_are_garbled_or_cut_short_are_refused(self):
        def but(**changes):
            return {**self.HEADER, "w": {**self.HEADER["w"], **changes}}
        short = self.write(self.HEADER, self.VALUES[:-1])
        self.assertRaisesRegex(ValueError, "cut short", crowdsurf.load_model, short)
        for header in (but(shape=[3, 2]), but(dtype="F8"), but(data_offsets=[-4, 12]), but(data_offsets=[8, 4]),
                       but(data_offsets=[0]), [], {"w": 3}, {"w": {}}):
            with self.subTest(header):
                self.assertRaises(ValueError, crowdsurf.load_model, self.write(header))
        self.assertRaises(ValueError, crowdsurf.load_model, self.write(self.HEADER, length=1 << 60))
        self.assertRaises(ValueError, crowdsurf.load_model, self.write(self.HEADER, length=3))


if __name__ == "__main__":
    unittest.main()
