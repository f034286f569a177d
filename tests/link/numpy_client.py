"""A trainer for the link in numpy: docs/trainer-link.md, part 9. Usage: numpy_client.py DIR STEPS"""
import http.client, json, mmap, os, socket, sys, time
import numpy as np

DIR, STEPS = sys.argv[1], int(sys.argv[2])
PUBLISH_WANTED, RESULT_READY, RELEASED, ADOPT, HOLD, STOP = 0x280, 0x2C0, 0x300, 0x340, 0x1C0, 0x200
STEPS_AT, SAMPLES_AT, PUBLISHED, APPLIED, STOPPED, ADOPTED, LOSS = 0x840, 0x880, 0x8C0, 0x900, 0x940, 0x980, 0xA08

link = http.client.HTTPConnection("agent")  # this connection is our sign of life: it stays open
link.sock = socket.socket(socket.AF_UNIX)
while link.sock.connect_ex(os.path.join(DIR, "agent.sock")):
    time.sleep(0.01)  # agent and trainer start together; whoever started us ends us if it never comes
link.request("POST", "/v1/register", json.dumps({"tensors": [{"name": "w", "shape": [4, 8]}]}))
answer = json.loads(link.getresponse().read())
with open(os.path.join(DIR, "tensors"), "r+b") as file:
    memory = mmap.mmap(file.fileno(), answer["file_bytes"])
word = lambda at, kind=np.uint64: np.frombuffer(memory, kind, 1, at)
region = lambda at: np.frombuffer(memory, np.float32, answer["elements"], at)
outbox, inbox = region(answer["outbox"]), [region(at) for at in answer["inbox"]]

rng = np.random.default_rng(answer["seed"])  # the same first parameters everywhere
w = rng.normal(size=answer["elements"]).astype(np.float32)
goal = np.full_like(w, float(os.environ.get("GOAL", "3")))
while word(HOLD, np.uint32)[0] and not word(STOP, np.uint32)[0]:
    time.sleep(0.01)
voided = 0
for step in range(1, STEPS + 1):
    w -= 0.1 * (w - goal)  # a step of training
    word(SAMPLES_AT)[0] = 8 * step
    word(STEPS_AT)[0], word(LOSS, np.float64)[0] = step, ((w - goal) ** 2).mean()
    wanted, ready, request = word(PUBLISH_WANTED)[0], int(word(RESULT_READY)[0]), int(word(ADOPT)[0])
    if ready >> 1 and ready >> 1 == word(PUBLISHED)[0] and ready >> 1 != word(APPLIED)[0]:
        if ready >> 1 != voided:
            w += inbox[ready & 1] - outbox
        word(APPLIED)[0] = ready >> 1
    if request >> 1 > word(ADOPTED)[0]:
        w[:], voided = inbox[request & 1], word(PUBLISHED)[0]  # its result is of the old parameters
        word(ADOPTED)[0] = request >> 1
    if wanted > word(PUBLISHED)[0] <= max(word(RELEASED)[0], word(APPLIED)[0]):
        outbox[:] = w
        word(PUBLISHED + 8)[0], word(PUBLISHED + 16)[0] = step, 8 * step
        word(PUBLISHED)[0] = wanted  # last: it announces the others
    if word(STOP, np.uint32)[0]:
        word(STOPPED, np.uint32)[0] = 1
        break
    time.sleep(0.002)
print("mean", w.mean())
