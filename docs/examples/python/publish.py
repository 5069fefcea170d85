"""Publishes a goal over NATS and waits for its verified result.

    pip install nats-py
    python3 publish.py --nats nats://127.0.0.1:4222 --agent sales-report \\
        --input '{"product": "widget", "date_range": {"from": "2026-01-01", "to": "2026-03-31"}}' \\
        --key order-4711

Everything is JSON here; the same messages may be msgpack instead. Lines on stdout are
JSON: `accepted`, one for each event, and `result`. Exit code 0: succeeded, 1: it ended
otherwise, 3: refused.
"""

import argparse
import asyncio
import json
import sys
import time

import nats
from nats.errors import NoRespondersError, TimeoutError as NatsTimeout

# A node may be restarting: how long the same request is repeated, seconds. Repeating is
# safe because the goal has an idempotency key.
PATIENCE_S = 60


class Refused(Exception):
    """The node said no; the fault has `code`, `message` and perhaps `at`."""


def envelope(kind, body):
    return json.dumps({"kind": kind, "v": 1, "body": body}).encode()


async def ask(nc, subject, kind, body):
    """One request; repeated while nobody answers or the node says "later"."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        try:
            answer = await nc.request(subject, envelope(kind, body), timeout=30)
            reply = json.loads(answer.data)
            if "ok" in reply:
                return reply["ok"]
            fault = reply["fault"]
            if "retry_after_ms" not in fault or time.monotonic() > give_up:
                raise Refused(fault)
            await asyncio.sleep(fault["retry_after_ms"] / 1000)
        except (NoRespondersError, NatsTimeout):
            if time.monotonic() > give_up:
                raise
            await asyncio.sleep(0.5)


async def events(nc, tenant, goal, first=1):
    """Every event once and in order; goes on after any interruption.

    A query waits on the node until there is something to tell, so nothing is polled. The
    same events are published on `detent.<tenant>.event.<goal>` as they happen; who reads
    there has to look at the numbers and ask for what is missing.
    """
    while True:
        body = {"tenant": tenant,
                "ask": {"ask": "events", "goal": goal, "from": first, "wait_ms": 20_000}}
        answer = await ask(nc, f"detent.{tenant}.query", "query", body)
        for event in answer["events"]:
            assert event["n"] == first, "numbers have no gaps"
            first += 1
            yield event
        if answer["ended"] and not answer["events"]:
            return


def say(kind, /, **what):
    print(json.dumps({"type": kind, **what}), flush=True)


async def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--nats", default="nats://127.0.0.1:4222")
    parser.add_argument("--user")
    parser.add_argument("--password-file")
    parser.add_argument("--inbox-prefix", default="_INBOX")
    parser.add_argument("--tenant", default="default")
    parser.add_argument("--agent", required=True)
    parser.add_argument("--input", required=True, help="JSON")
    parser.add_argument("--key", required=True, help="idempotency key: one key, one goal")
    parser.add_argument("--intake", action="store_true",
                        help="hand it in without waiting for the answer")
    args = parser.parse_args()

    login = {}
    if args.user:
        with open(args.password_file, encoding="utf-8") as file:
            login = {"user": args.user, "password": file.read().strip()}
    nc = await nats.connect(args.nats, inbox_prefix=args.inbox_prefix.encode(),
                            max_reconnect_attempts=-1, **login)
    try:
        return await publish(nc, args)
    finally:
        await nc.drain()


async def publish(nc, args):
    submit = {"tenant": args.tenant, "agent": args.agent, "input": json.loads(args.input),
              "key": {"key": args.key, "issued_at_ms": int(time.time() * 1000)}}
    if args.intake:
        # Kept by the broker until a node takes it; refusals come on a subject of their own.
        refusals = await nc.subscribe(f"detent.{args.tenant}.refused.{args.key}")
        kept = await nc.request(f"detent.{args.tenant}.intake.{args.agent}",
                                envelope("submit", submit), timeout=10)
        say("kept", **json.loads(kept.data))
        try:
            refusal = await refusals.next_msg(timeout=2)
            say("refused", **json.loads(refusal.data)["body"])
            return 3
        except NatsTimeout:
            pass
    # With the same key this finds the goal, whoever handed it in.
    try:
        accepted = await ask(nc, f"detent.{args.tenant}.submit.{args.agent}", "submit", submit)
    except Refused as refused:
        say("refused", fault=refused.args[0])
        return 3
    goal = accepted["goal"]
    say("accepted", goal=goal, duplicate=accepted["duplicate"])
    async for event in events(nc, args.tenant, goal):
        say("event", **event)
    body = {"tenant": args.tenant, "ask": {"ask": "show", "goal": goal}}
    shown = await ask(nc, f"detent.{args.tenant}.query", "query", body)
    result = shown["goal"]["result"]
    say("result", goal=goal, **result)
    return 0 if result["status"] == "succeeded" else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
