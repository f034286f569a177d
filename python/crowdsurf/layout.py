"""Where the words of the file `tensors` lie: the control block of the trainer link, version 1.

The names are those of docs/trainer-link.md; a test compares every offset with worker/core/link/link_layout.h.
"""

MAGIC = b"CSFLINK1"
VERSION = 1                  # of the trainer link
CONTROL_BYTES = 4096
METRICS_MOST = 16

# Written by the agent, read by the trainer.
AGENT_EPOCH = 0x100          # u64: +1 whenever an agent opens the file
AGENT_BEAT = 0x140           # u64: +1 at least every 500 ms
AGENT_BELL = 0x180           # u32, futex: rung after words of the agent changed
HOLD = 0x1C0                 # u32: no step yet, state is being fetched
STOP = 0x200                 # u32: target met: finish, acknowledge, exit 0
NOTICE = 0x240               # u32: this worker is about to be taken
NOTICE_DEADLINE = 0x248      # i64: Unix time in nanoseconds
PUBLISH_WANTED = 0x280       # u64: ticket asked for
RESULT_READY = 0x2C0         # u64: ticket * 2 + inbox
RESULT_AVERAGING = 0x2C8     # u64: the result's averaging number
RELEASED = 0x300             # u64: ticket whose outbox the agent reads no more
ADOPT_REQUEST = 0x340        # u64: sequence * 2 + inbox
ADOPT_AVERAGING = 0x348      # u64
ADOPT_HAS_OPAQUE = 0x350     # u32
OVERLAP = 0x380              # u32: 0 delayed, 1 blocking
INBOX_IS_CHANGE = 0x384      # u32: add the inbox, not inbox - outbox
CADENCE_STEPS = 0x388        # u32: publish every so many steps unasked; 0: never
LR_SCALE = 0x3C0             # f64
JOB_SAMPLES = 0x400          # f64
JOB_AVERAGING = 0x408        # u64: the last committed one
JOB_EPOCH = 0x410            # u64: of the view
JOB_MEMBERS = 0x418          # u64: of the view
OPAQUE_WANTED = 0x440        # u64: sequence
INDEX_VERSION = 0x480        # u64: the index sets are of this version
WAKE_AT_STEPS = 0x4C0        # u64: ring when steps reach this; 0: never
WAKE_AT_SAMPLES = 0x4C8      # u64: the same for samples
LEASES_VERSION = 0x500       # u64: +1 when GET /v1/leases has changed
SHARE = 0x540                # u64: samples to gather for a step, where gradients are averaged

# Written by the trainer, read by the agent.
TRAINER_BELL = 0x800         # u32, futex: rung after published, applied, adopted, stop_acknowledged and at a mark
STEPS = 0x840                # u64
SAMPLES = 0x880              # u64
PUBLISHED = 0x8C0            # u64: ticket in the outbox; steps and samples at the snapshot follow
PUBLISHED_STEPS = 0x8C8      # u64
PUBLISHED_SAMPLES = 0x8D0    # u64
PUBLISHED_STREAM = 0x8D8     # u64: of the leases, at the snapshot
PUBLISHED_POSITION = 0x8E0   # u64: in that stream
PUBLISHED_GATHERED = 0x8E8   # u64: samples of the gradient, at the snapshot
APPLIED = 0x900              # u64: ticket
STOP_ACKNOWLEDGED = 0x940    # u32
ADOPTED = 0x980              # u64: sequence
STALL_NS = 0x9C0             # u64
PROGRESS_SEQUENCE = 0xA00    # u64
LOSS = 0xA08                 # f64
OPAQUE_GIVEN = 0xA40         # u64: sequence
INDEX_TAKEN = 0xA80          # u64: version of the index sets in use
METRICS = 0xAC0              # f64 each
LEASES_STREAM = 0xB40        # u64: of the leases; 0: none, or the position changes
LEASES_POSITION = 0xB48      # u64: samples of the stream that are trained
LEASES_WAITS = 0xB50         # u64: 1: nothing is trained until there are other leases
LEASES_SEEN = 0xB58          # u64: the version of the leases that the trainer goes by
GATHERED = 0xB80             # u64: samples of the gradient of the next step
SHARES = 0xB88               # u64: +1 when the share is there
PARAMETERS_STEP = 0xB90      # u64: averaging that the parameters are of
FILLING_TICKET = 0xBC0       # u64: the snapshot of this ticket is being copied; what is PUBLISHED_... was written before
FILLING_ELEMENTS = 0xBC8     # u64: values of it that are there, from the first on
ORDER = 0xC00                # u64: a hash of the first batches that this trainer drew; 0: not known
