"""Parameters of workers that average gradients, read where the trainers leave them: inbox 0 of the file that each shares
with its agent (docs/trainer-link.md, sections 4 and 11).
"""
import hashlib
import struct

from runs import RunCase

AVERAGING = {"strategy: Moshpit, groupSize: 2, interval: {steps: 20}":
             "strategy: AllReduce, what: Gradients, globalBatch: 4096, overlap: Blocking, compression: None"}
STEP, ELEMENTS, INBOX_0 = 0xB90, 24, 72
SEEN = 15   # steps at which all workers are compared


class EqualBitsCase(RunCase):
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
            for step, hashes in list(found.items()):
                self.judge(step, hashes, set(found.get(step + 1, {}).values()))
            return sum(len(hashes) == len(workers) for hashes in found.values()) >= seen

        self.wait_until(look)
        return last

    def judge(self, step, hashes, after):
        """A trainer that loses the processor between the two writes shows the parameters of `after`, the next step, under this one.
        Where nobody was seen at the next step nothing is judged: parameters that differ do so at the steps that follow."""
        if len(set(hashes.values())) == 1 or not after:
            return
        for worker in [worker for worker, got in hashes.items() if got in after]:
            del hashes[worker]
        self.assertLessEqual(len(set(hashes.values())), 1, f"step {step}: {hashes}")

    def names(self, incarnations):
        return [f"e2e-{index}-{incarnation}" for index, incarnation in enumerate(incarnations)]
