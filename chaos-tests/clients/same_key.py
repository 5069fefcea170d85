"""Submits one idempotency key again and again from several connections.

    same_key.py --nats URL --input JSON --key K --times N --connections C --progress FILE

Writes one JSON line at the end: which goals were answered, how often it was refused and
with which codes. The progress file holds the number of answers so far, for whoever wants
to break something in the middle.
"""

import argparse
import asyncio
import json
import pathlib
import time

import nats

PATIENCE_S = 90


async def main():
    parser = argparse.ArgumentParser()
    for name in ["nats", "input", "key", "progress"]:
        parser.add_argument("--" + name, required=True)
    for name in ["times", "connections"]:
        parser.add_argument("--" + name, type=int, required=True)
    args = parser.parse_args()
    issued = int(time.time() * 1000)
    body = {"agent": "light", "input": json.loads(args.input),
            "key": {"key": args.key, "issued_at_ms": issued}}
    message = json.dumps({"kind": "submit", "v": 1, "body": body}).encode()
    goals, codes, answers = {}, {}, 0

    async def once(nc):
        nonlocal answers
        give_up = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up:
            try:
                answer = await nc.request("detent.default.submit.light", message, timeout=10)
                reply = json.loads(answer.data)
            except Exception:  # nobody answers, or the broker is away: the same again
                await asyncio.sleep(0.05)
                continue
            if "ok" in reply:
                goal = reply["ok"]["goal"]
                goals[goal] = goals.get(goal, 0) + 1
                answers += 1
                pathlib.Path(args.progress).write_text(str(answers))
                return
            code = reply["fault"]["code"]
            codes[code] = codes.get(code, 0) + 1
            if "retry_after_ms" not in reply["fault"]:
                return
            await asyncio.sleep(reply["fault"]["retry_after_ms"] / 1000)
        codes["no answer"] = codes.get("no answer", 0) + 1

    async def lane(share):
        nc = await nats.connect(args.nats, max_reconnect_attempts=-1, reconnect_time_wait=0.1,
                                error_cb=quiet)
        for _ in range(share):
            await once(nc)
        await nc.close()

    async def quiet(_):
        pass

    share = args.times // args.connections
    await asyncio.gather(*[lane(share) for _ in range(args.connections)])
    print(json.dumps({"type": "answers", "goals": goals, "codes": codes}))


asyncio.run(main())
