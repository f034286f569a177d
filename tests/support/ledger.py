"""The leases in a checkpoint, read byte by byte (worker/edge/state/checkpoint_file.h): for tests, and bench/pytorch.py.

Needs python/ in the path of modules: positions become indices by the client's EpochOrder.
"""
import struct

from crowdsurf.epoch_order import EpochOrder


class Ledger:
    """`committed` and `open` are sets of (epoch, index of the data set). data: samples of the data set, and of a batch."""

    def __init__(self, path):
        data, at = path.read_bytes(), 0

        def take(form):   # little-endian numbers one after the other
            nonlocal at
            values = struct.unpack_from("<" + form, data, at)
            at += struct.calcsize("<" + form)
            return values if len(values) != 1 else values[0]

        _, self.version, *_ = take("QIQ32s")   # the magic word; the header's length and hash
        take(f"{take('I')}s")                  # job
        take("Q32sddQ32s")                     # averaging, root, samples, seconds, view, schema
        take(f"{take('I')}s")                  # tensors
        take("QQ32s32s")                       # lengths and hashes
        take("32sIB" if take("B") else "IB")   # the velocity's hash; the ledger's length and format
        *self.data, seed = take("QIQ")         # samples and unit
        _, _, self.epoch, begin, _ = take("5Q")   # its mark; what is granted next
        self.count, self.returned, self.void = take("3Q")
        leases = [take("3Q") for _ in range(take("I"))]
        for _ in range(take("I")):
            take("32sQQ")                      # a holder, its stream and position
            leases += [take("3Q") for _ in range(take("I"))]
        samples = self.data[0]
        orders = [EpochOrder(samples, seed, epoch) for epoch in range(self.epoch + 1)]
        indices = [[order.at(position) for position in range(samples)] for order in orders]
        self.open = {(epoch, indices[epoch][at]) for epoch, first, count in leases for at in range(first, first + count)}
        granted = {(epoch, index) for epoch in range(self.epoch) for index in range(samples)}
        self.committed = (granted | {(self.epoch, index) for index in indices[self.epoch][:begin]}) - self.open
