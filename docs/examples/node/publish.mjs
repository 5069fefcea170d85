// Publishes a goal over NATS and waits for its verified result.
//
//   npm install
//   node publish.mjs --nats nats://127.0.0.1:4222 --agent sales-report --key order-4711 \
//     --input '{"product": "widget", "date_range": {"from": "2026-01-01", "to": "2026-03-31"}}'
//
// Messages are msgpack here; --json sends and gets JSON. Lines on stdout are JSON:
// `accepted`, one for each event as it is published, and `result`. Exit code 0: succeeded,
// 1: it ended otherwise, 3: refused.

import { parseArgs } from "node:util";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { connect } from "@nats-io/transport-node";
import { decode, encode } from "@msgpack/msgpack";

// A node may be restarting: how long the same request is repeated, milliseconds.
// Repeating is safe because the goal has an idempotency key.
const PATIENCE_MS = 60_000;

const { values: args } = parseArgs({
  options: {
    nats: { type: "string", default: "nats://127.0.0.1:4222" },
    user: { type: "string" },
    "password-file": { type: "string" },
    "inbox-prefix": { type: "string", default: "_INBOX" },
    tenant: { type: "string", default: "default" },
    agent: { type: "string" },
    input: { type: "string" },
    key: { type: "string" },
    json: { type: "boolean", default: false },
  },
});
if (!args.agent || !args.input || !args.key) {
  console.error("needs --agent, --input and --key");
  process.exit(2);
}

const text = new TextEncoder();
const pack = (value) => (args.json ? text.encode(JSON.stringify(value)) : encode(value));
// A JSON message begins with "{"; no msgpack message of Detent's does.
const unpack = (bytes) =>
  bytes[0] === 0x7b ? JSON.parse(new TextDecoder().decode(bytes)) : decode(bytes);
const say = (type, what) => console.log(JSON.stringify({ type, ...what }));

class Refused extends Error {}

// One request; repeated while nobody answers or the node says "later".
async function ask(nc, subject, kind, body) {
  const giveUp = Date.now() + PATIENCE_MS;
  for (;;) {
    let reply;
    try {
      const answer = await nc.request(subject, pack({ kind, v: 1, body }), { timeout: 30_000 });
      reply = unpack(answer.data);
    } catch (error) {
      if (Date.now() > giveUp) throw error;
      await sleep(500);
      continue;
    }
    if (reply.ok !== undefined) return reply.ok;
    const { fault } = reply;
    if (fault.retry_after_ms === undefined || Date.now() > giveUp) {
      throw Object.assign(new Refused(fault.message), { fault });
    }
    await sleep(fault.retry_after_ms);
  }
}

// Every event once and in order. They come as they are published; where a number is
// missing (a lost connection, a node that died before it could tell) the journal is asked.
async function follow(nc, goal, published, onEvent) {
  let next = 1;
  const missing = async (wait_ms) => {
    const query = { ask: "events", goal, from: next, wait_ms };
    const body = { tenant: args.tenant, ask: query };
    const answer = await ask(nc, `detent.${args.tenant}.query`, "query", body);
    for (const event of answer.events) {
      next = event.n + 1;
      onEvent(event);
    }
    return answer.ended && answer.events.length === 0;
  };
  const fromBus = [];
  let wake = () => {};
  (async () => {
    for await (const message of published) {
      fromBus.push(unpack(message.data).body);
      wake();
    }
  })();
  // What happened before the first one was heard.
  let ended = await missing(0);
  while (!ended) {
    if (fromBus.length === 0) {
      const heard = new Promise((resolve) => (wake = resolve));
      if ((await Promise.race([heard, sleep(5_000, "quiet")])) === "quiet") ended = await missing(0);
      continue;
    }
    const event = fromBus.shift();
    if (event.n < next) continue;
    if (event.n > next) {
      ended = await missing(0);
      continue;
    }
    next += 1;
    onEvent(event);
    if (event.kind === "ended") ended = await missing(0);
  }
}

const login = args.user
  ? { user: args.user, pass: readFileSync(args["password-file"], "utf8").trim() }
  : {};
const nc = await connect({
  servers: args.nats.replace(/^nats:\/\//, ""),
  inboxPrefix: args["inbox-prefix"],
  maxReconnectAttempts: -1,
  ...login,
});
let code = 1;
try {
  const submit = {
    tenant: args.tenant,
    agent: args.agent,
    input: JSON.parse(args.input),
    key: { key: args.key, issued_at_ms: Date.now() },
  };
  const accepted = await ask(nc, `detent.${args.tenant}.submit.${args.agent}`, "submit", submit);
  const goal = accepted.goal;
  const published = nc.subscribe(`detent.${args.tenant}.event.${goal}`);
  say("accepted", { goal, duplicate: accepted.duplicate });
  await follow(nc, goal, published, (event) => say("event", event));
  const body = { tenant: args.tenant, ask: { ask: "show", goal } };
  const shown = await ask(nc, `detent.${args.tenant}.query`, "query", body);
  const { result } = shown.goal;
  say("result", { goal, ...result });
  code = result.status === "succeeded" ? 0 : 1;
} catch (error) {
  if (!(error instanceof Refused)) throw error;
  say("refused", { fault: error.fault });
  code = 3;
} finally {
  await nc.drain();
}
process.exit(code);
