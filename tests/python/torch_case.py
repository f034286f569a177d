"""A test of crowdsurf.join() with a stand-in of the agent. Whatever imports this is skipped where PyTorch is not."""
import gc
import sys

import client_case

try:
    import torch
except ImportError:
    print("skipped: needs PyTorch (Debian: python3-torch)")
    sys.exit(77)
import crowdsurf


def model(bias=True):
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2, bias=bias))


def flat(module):
    return torch.cat([p.detach().float().reshape(-1) for p in module.parameters()]).numpy()


class JoinCase(client_case.ClientCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(gc.collect)

    def join(self, module, optimizer=None, **options):
        joined = crowdsurf.join(module, optimizer, **options)
        self.addCleanup(joined.close)
        return joined
