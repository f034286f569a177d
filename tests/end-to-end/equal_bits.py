"""Parameters of workers that average gradients, read where the trainers leave them: inbox 0 of the file that each shares
with its agent (docs/trainer-link.md, sections 4 and 11).
"""
import hashlib
import struct

from runs import RunCase

AVERAGING = {"strategy: Moshpit, groupSize: 2, interval: {steps: 20}":
             "strategy: AllReduce, what: Gradients, globalBatch: 4096, overlap: Blocking, compression: None"}
STEP, ELEMENTS, INBOX_0 = 0xB90, 24, 72
RESULT_READY, APPLIED, ADOPT_REQUEST, ADOPTED = 0x2C0, 0x900, 0x340, 0x980
SEEN = 15   # steps at which all workers are compared


class EqualBitsCase(RunCase):
    def parameters(self, worker):
        """(step, hash of its parameters) of a worker; None: it takes a step just now, or has taken none."""
        try:
            with open(self.link(worker) / "tensors", "rb", buffering=0) as file:   # a buffer would be of another moment
                def word(at):
                    file.seek(at)
                    return struct.unpack("<Q", file.read(8))[0]

                def words():
                    return [word(at) for at in (STEP, RESULT_READY, APPLIED, ADOPT_REQUEST, ADOPTED)]

                elements, inbox, before = word(ELEMENTS), word(INBOX_0), words()
                file.seek(inbox)
                values = file.read(4 * elements)
                step, ready, applied, request, adopted = before
                # The trainer writes parameters from a result, or a request, on: until it has said that it took it.
                still = before == words() and ready >> 1 <= applied and request >> 1 <= adopted
                return (step, hashlib.sha256(values).hexdigest()) if step and still else None
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
