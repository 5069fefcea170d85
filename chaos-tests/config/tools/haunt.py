"""haunt (read): leaves a process behind, as a careless tool does.

The process has forked twice and has a session of its own, so neither the parent's end nor a
signal to the group reaches it. While it lives it appends the time, in Unix milliseconds, to a
file of its own every few milliseconds: the file tells when it died. The file `owner` tells the
mark that all processes of the data directory carry, also those without its path.
"""

import json
import os
import sys
import time

EVERY_S = 0.02
LIFE_S = 60


def haunt(path):
    with open(path, "a", buffering=1) as log:
        end = time.monotonic() + LIFE_S
        while time.monotonic() < end:
            log.write(f"{time.time_ns() // 1_000_000}\n")
            time.sleep(EVERY_S)


def leave_behind(path):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(nowhere, stream)
            haunt(path)
        os._exit(0)
    os.wait()


def main():
    folder = os.path.join(json.load(sys.stdin)["home"], "ghosts")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, os.pardir, "owner"), "w") as owner:
        owner.write(os.environ["DETENT_RUN_OWNER"])
    name = "-".join([os.environ["DETENT_GOAL"], os.environ["DETENT_ATTEMPT"], str(os.getpid())])
    path = os.path.join(folder, name)
    leave_behind(path)
    while not (os.path.exists(path) and os.path.getsize(path)):
        time.sleep(0.005)
    # Long enough for others to reach their failpoints while this one is still there.
    time.sleep(0.1)
    print(json.dumps({"ghost": name}))


main()
