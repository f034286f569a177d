"""A trainer of pytorch.py: prints the time of day when its callback for a notice runs, notice after notice."""
import array
import sys
import threading
import time

import crowdsurf

agent = crowdsurf.Agent([crowdsurf.Tensor("w", (1,))])
agent.start(array.array("f", [0.0]))


def watch():
    told = threading.Event()

    def on_notice(notice):
        print(f"noticed {time.time():.6f}", flush=True)
        told.set()

    while True:
        agent.on_notice(on_notice)
        told.wait()
        told.clear()
        while agent.notice() is not None:
            time.sleep(0.01)
        print("withdrawn", flush=True)


threading.Thread(target=watch, daemon=True).start()
while not agent.step(samples=1).stop:
    time.sleep(1)   # steps are slow, and a callback does not wait for them
sys.exit(0)
