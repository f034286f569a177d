#!/usr/bin/env python3
"""What a PyTorch worker packs for joiners: an optimizer's state. Needs PyTorch, else skipped."""
import sys
import unittest

import client_case  # noqa: F401  (the path of the package)

try:
    import torch
except ImportError:
    print("skipped: needs PyTorch (Debian: python3-torch)")
    sys.exit(77)
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


if __name__ == "__main__":
    unittest.main()
